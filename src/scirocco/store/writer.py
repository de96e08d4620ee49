"""The draws of one group on their way to the disk: whole chunks at once, the rest when there is a commit."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.store import layout, zarr_format
from scirocco.store.files import Unsynced
from scirocco.store.layout import Group


class GroupWriter:
    """Buffers of one chunk for each variable; nothing here grows with the number of draws."""

    def __init__(self, root: str, group: Group, unsynced: Unsynced, num_draws: int = 0):
        self.group = group
        self.num_draws = num_draws
        self._root = root
        self._unsynced = unsynced
        self._dirty = False
        self._coordinate_chunks = 0
        self._held: dict[str, np.ndarray] = {}

    @property
    def _buffers(self) -> dict[str, np.ndarray]:
        """Made when they are first needed: draws that fill whole chunks never are in them."""
        if not self._held:
            shape = self.group.chunk_shape
            self._held = {c.name: np.zeros(shape(c), c.dtype) for c in self.group.columns}
        return self._held

    def load_last(self, rescue: str) -> None:
        """Read the part-filled last chunk back, so that appending goes on where the commit ended."""
        for number, values in layout.coordinate_chunks(0, self.num_draws):
            path = self.group.coordinate_path(self._root, "draw", number)
            if not os.path.exists(path):
                self._unsynced.write(path, values.data)
            self._coordinate_chunks = number + 1
        used = self.num_draws % self.group.chunk_draws
        if used:
            for column in self.group.columns:
                path = self.group.chunk_path(self._root, column, self.num_draws // self.group.chunk_draws)
                chunk = zarr_format.read_chunk(path, self.group.chunk_shape(column), column.dtype, rescue)
                self._buffers[column.name][:, :used] = chunk[:, :used]

    def check(self, arrays: dict[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        """The arrays as NumPy's, and how many draws they hold; refused before anything is stored."""
        names = {column.name for column in self.group.columns}
        if set(arrays) != names:
            raise InvalidValueError(
                f"the group {self.group.name!r} holds {sorted(names)}; got {sorted(map(str, arrays))}."
            )
        out, num_draws = {}, -1
        for column in self.group.columns:
            array = np.asarray(arrays[column.name])
            wanted = (self.group.num_chains, "draws", *column.shape)
            if array.ndim != len(wanted) or (array.shape[0], *array.shape[2:]) != (wanted[0], *wanted[2:]):
                shown = ", ".join(map(str, wanted))
                raise InvalidValueError(f"`{column.name}` must have the shape ({shown}), got {array.shape}.")
            if num_draws not in (-1, array.shape[1]):
                raise InvalidValueError(
                    f"`{column.name}` has {array.shape[1]} draws, but another variable of the group "
                    f"{self.group.name!r} has {num_draws}: append the same number of each."
                )
            if not np.can_cast(array.dtype, column.dtype, "safe"):
                raise InvalidTypeError(
                    f"`{column.name}` was announced as {column.given_dtype} and is now {array.dtype}: convert it."
                )
            out[column.name], num_draws = array, array.shape[1]
        return out, num_draws

    def append(self, arrays: dict[str, np.ndarray], num_draws: int) -> None:
        """Take checked draws; every chunk that becomes full is written."""
        length, taken = self.group.chunk_draws, 0
        while taken < num_draws:
            used = self.num_draws % length
            count = min(length - used, num_draws - taken)
            part = {name: array[:, taken : taken + count] for name, array in arrays.items()}
            if count == length:
                kinds = {column.name: column.dtype for column in self.group.columns}
                self._write_chunk({name: np.ascontiguousarray(a, kinds[name]) for name, a in part.items()})
            else:
                for name, array in part.items():
                    self._buffers[name][:, used : used + count] = array
                if used + count == length:
                    self._write_chunk(self._buffers)
                else:
                    self._dirty = True
            taken += count
            self.num_draws += count

    def flush(self) -> None:
        """Write what the buffers hold as a part-filled chunk, and the numbers of the draws."""
        used = self.num_draws % self.group.chunk_draws
        if self._dirty:
            for buffer in self._buffers.values():
                buffer[:, used:] = 0  # no reader looks there; equal runs shall have equal files
            self._write_chunk(self._buffers)
        for number, values in layout.coordinate_chunks(self._coordinate_chunks, self.num_draws):
            self._unsynced.write(self.group.coordinate_path(self._root, "draw", number), values.data)
            self._coordinate_chunks = number + 1

    def _write_chunk(self, arrays: dict[str, np.ndarray]) -> None:
        number = self.num_draws // self.group.chunk_draws
        for column in self.group.columns:
            if arrays[column.name].size:
                path = self.group.chunk_path(self._root, column, number)
                self._unsynced.write(path, arrays[column.name].data)
        self._dirty = False
