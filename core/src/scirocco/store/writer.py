"""The buffered draws of one group: full chunks are written at once, the rest at a commit."""

from __future__ import annotations

import math
import os
import re
from typing import Any

import numpy as np

from scirocco.errors import InvalidTypeError, InvalidValueError, StoreError
from scirocco.store import layout, zarr_format
from scirocco.store.files import Unsynced
from scirocco.store.layout import Group


class GroupWriter:
    """Buffers of one chunk for each variable; memory does not grow with the number of draws."""

    def __init__(
        self, root: str, group: Group, unsynced: Unsynced, num_draws: int = 0, checksums: dict[str, str] | None = None
    ):
        self.group = group
        self.num_draws = num_draws
        self._checksums = {
            column.node: re.findall("." * 8, checksums[column.node] if checksums else "")
            for column in group.columns
            if math.prod(column.shape)
        }
        self._root = root
        self.unsynced = unsynced
        self._dirty = False
        self._coordinate_chunks = 0
        self._held: dict[str, np.ndarray] = {}

    @property
    def buffers(self) -> dict[str, np.ndarray]:
        """Created when first needed: draws that fill whole chunks bypass them."""
        if not self._held:
            shape = self.group.chunk_shape
            self._held = {c.name: np.zeros(shape(c), c.dtype) for c in self.group.columns}
        return self._held

    def load_last(self, rescue: str) -> None:
        """Read the partly filled last chunk back, so that appending continues where the commit ended."""
        for number, values in layout.coordinate_chunks(0, self.num_draws):
            path = self.group.coordinate_path(self._root, "draw", number)
            if not os.path.exists(path):
                self.unsynced.write(path, values.data)
            self._coordinate_chunks = number + 1
        used = self.num_draws % self.group.chunk_draws
        if used:
            for column in self.group.columns:
                path = self.group.chunk_path(self._root, column, self.num_draws // self.group.chunk_draws)
                chunk = zarr_format.read_chunk(path, self.group.chunk_shape(column), column.dtype, rescue)
                crcs, number = self.checksums[column.node], self.num_draws // self.group.chunk_draws
                wrong = self.group.check_content(column, number, self.num_draws, chunk, crcs)
                if wrong:
                    raise StoreError(f"{path}: {wrong} {rescue}")
                self.buffers[column.name][:, :used] = chunk[:, :used]

    def check(self, arrays: dict[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        """The arrays as NumPy arrays, and their number of draws; raises an error before anything is stored."""
        names = {column.name for column in self.group.columns}
        if set(arrays) != names:
            raise InvalidValueError(
                f"the group {self.group.name!r} has the variables {sorted(names)}; got {sorted(map(str, arrays))}."
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
                    f"`{column.name}` was declared as {column.given_dtype} but has dtype {array.dtype}: convert it."
                )
            out[column.name], num_draws = array, array.shape[1]
        return out, num_draws

    def append(self, arrays: dict[str, np.ndarray], num_draws: int) -> None:
        """Store checked draws; every chunk that is full is written."""
        length, taken = self.group.chunk_draws, 0
        while taken < num_draws:
            used = self.num_draws % length
            count = min(length - used, num_draws - taken)
            part = {name: array[:, taken : taken + count] for name, array in arrays.items()}
            if count == length:
                self._write_chunk({c.name: _by_chain(part[c.name], c.dtype) for c in self.group.columns}, length)
            else:
                for name, array in part.items():
                    self.buffers[name][:, used : used + count] = array
                if used + count == length:
                    self._write_chunk(self.buffers, length)
                else:
                    self._dirty = True
            taken += count
            self.num_draws += count

    def flush(self) -> None:
        """Write the content of the buffers as a partly filled chunk, and the numbers of the draws."""
        if self._dirty:
            self._write_chunk(self.buffers, self.num_draws % self.group.chunk_draws)
        for number, values in layout.coordinate_chunks(self._coordinate_chunks, self.num_draws):
            self.unsynced.write(self.group.coordinate_path(self._root, "draw", number), values.data)
            self._coordinate_chunks = number + 1

    @property
    def checksums(self) -> dict[str, str]:
        """The checksums of all chunks of each variable."""
        return {column.node: "".join(self._checksums.get(column.node, ())) for column in self.group.columns}

    def _write_chunk(self, arrays: dict[str, np.ndarray], used: int) -> None:
        number = self.num_draws // self.group.chunk_draws
        for column in self.group.columns:
            if arrays[column.name].size:
                path = self.group.chunk_path(self._root, column, number)
                # Readers ignore what follows the draws; zeros make the files of equal runs equal.
                parts = [part for chain in arrays[column.name] for part in (chain[:used].data, chain[used:].nbytes)]
                self.unsynced.write(path, parts)
                self._checksums[column.node][number:] = [zarr_format.checksum(arrays[column.name], used)]
        self._dirty = False


def _by_chain(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The array with this dtype, each chain contiguous; a range of draws is used as it is, without a copy."""
    if array.dtype == dtype and array[0].flags.c_contiguous:
        return array
    return np.ascontiguousarray(array, dtype)
