"""The native format: a folder with one `.npy` file for each array, and a header with checksums."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from scirocco import _checks
from scirocco.data.arrays import RowSource, check_lengths
from scirocco.data.native.header import check_unchanged, open_arrays, read_header, stamp, verify_arrays
from scirocco.data.native.npy import MAP_LIMIT, ArrayFile
from scirocco.data.native.writer import DEFAULT_MEMORY, FolderWriter
from scirocco.data.values import as_numpy, named_columns
from scirocco.errors import DataChangedError, InvalidTypeError, InvalidValueError
from scirocco.types import PyTree, Rows

__all__ = ["FolderSource", "FolderWriter", "describe_folder", "open_folder", "write_folder"]

_WRITE_BYTES = 16 << 20  # rows written at a time


class FolderSource(RowSource):
    """Rows in a data folder, which may be larger than memory.

    Rows are read directly from the files, so that the process needs little memory for data of any size; only
    scattered rows of small files are read through memory maps, whose pages count as this process's memory. Several
    threads may read at once; a pickle contains only the path.

    Parameters
    ----------
    path
        A folder made by `sc.data.write`, `sc.data.convert` or `scirocco data convert`.
    map_limit
        Maximum number of bytes to map, smallest files first, 1 GiB by default. `take` from a file that is not mapped is
        about ten times slower; `read` never uses maps.

    Examples
    --------
    >>> import numpy as np, scirocco as sc, tempfile
    >>> path = tempfile.mkdtemp() + "/rows"
    >>> source = sc.data.write(path, {"x": np.ones((5, 2)), "y": np.arange(5)}, shuffle=False)
    >>> source.num_rows, source.row_spec["x"]
    (5, ShapeDtypeStruct(shape=(2,), dtype=float32))
    >>> source.take([3, 0])["y"]
    array([3, 0], dtype=int32)
    """

    checked = True
    """Every value was checked when the folder was written: there are no NaN or infinite values."""
    fills = True
    scatters = True

    def __init__(self, path: str | os.PathLike[str], *, map_limit: int = MAP_LIMIT):
        self.map_limit = map_limit
        self.path = Path(path).expanduser().absolute()
        self.header = read_header(self.path)
        if self.header.kind != "rows":
            raise InvalidValueError(
                f"{self.path} holds a {self.header.kind}, not plain rows. Open it with sc.data.open(path)."
            )
        self.num_rows = self.header.num_rows
        self.shuffled = self.header.shuffled
        """Whether the rows were put into random order when they were written."""
        self._digest = self.header.digest
        self._files = open_arrays(self.path, self.header, map_limit)

    @property
    def row_spec(self) -> PyTree:
        """Shape and dtype of one row."""
        return self._tree(lambda _, file: jax.ShapeDtypeStruct(file.row_shape, file.dtype))

    @property
    def nbytes(self) -> int:
        """Size of all rows in bytes."""
        return sum(file.nbytes for file in self._files.values())

    def take(self, indices: Any, out: Rows | None = None) -> Rows:
        """The rows with these numbers, in this order.

        Parameters
        ----------
        indices
            Row numbers, 0..num_rows-1.
        out
            Arrays to fill, in the same tree as the rows; new ones by default.
        """
        indices = check_indices(indices, self.num_rows)
        buffers = self._buffers(out, len(indices))
        return self._tree(lambda name, file: file.take(indices, buffers.get(name)))

    def read(self, start: int, stop: int, out: Rows | None = None) -> Rows:
        """The rows start..stop-1 (up to the last one), optionally into the arrays `out`."""
        start, stop = check_stretch(start, stop, self.num_rows)
        buffers = self._buffers(out, stop - start)
        return self._tree(lambda name, file: file.read(start, stop, buffers.get(name)))

    def places(self, out: Rows, run: int) -> dict[str, list[memoryview]]:
        """The slots of `run` rows in the arrays `out`: slot k is the rows k run..(k + 1) run - 1."""
        buffers = self._buffers(out, len(jax.tree.leaves(out)[0]))
        return {name: file.places(buffers[name], run) for name, file in self._files.items()}

    def scatter(self, starts: list[int], slots: list[list[int]], run: int, places: dict[str, Any]) -> None:
        """Read windows of neighbouring rows into the arrays that `places` belong to, shuffled on the way.

        Parameters
        ----------
        starts
            The first row of each window.
        slots
            For each window the slots for its runs of `run` rows.
        run, places
            The argument and the result of `places`.
        """
        for start, window in zip(starts, slots, strict=True):
            if not 0 <= start <= self.num_rows - run * len(window):
                raise InvalidValueError(
                    f"{run * len(window)} rows from row {start} on are not a range of the rows 0..{self.num_rows - 1}."
                )
        for name, file in self._files.items():
            file.scatter(starts, slots, places[name])

    def fingerprint(self) -> str:
        """A short hash of the header and its checksums: copies of a folder have the same one.

        Files whose size or times have changed are read and compared with their checksums.
        """
        check_unchanged(self._files, self.header)
        return self._digest[:16]

    def stamp(self) -> str:
        """The fingerprint with the current sizes and modification times of the files, to detect changes."""
        return stamp(self._files, self._digest)

    def verify(self) -> None:
        """Read everything once and compare the checksums; raises InvalidValueError that names a damaged file."""
        verify_arrays(self._files, self.header)

    def _tree(self, make: Callable[[str, ArrayFile], Any]) -> PyTree:
        made = {name: make(name, file) for name, file in self._files.items()}
        return next(iter(made.values())) if self.header.single else made

    def _buffers(self, out: Rows | None, count: int) -> Mapping[str, np.ndarray]:
        if out is None:
            return {}
        if self.header.single:
            out = dict.fromkeys(self._files, out)
        return check_buffers(out, {name: (file.row_shape, file.dtype) for name, file in self._files.items()}, count)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.path), self._digest, self.map_limit)

    def __repr__(self) -> str:
        return f"FolderSource({str(self.path)!r}, num_rows={self.num_rows:,})"


def open_folder(path: str | os.PathLike[str]) -> Any:
    """Open a data folder: a `FolderSource`, or a `CorpusSource` if it holds a corpus."""
    from scirocco.data.native.corpus import CorpusSource  # it depends on this module

    kind = read_header(_checks.path(path, "path")).kind
    return CorpusSource(path) if kind == "corpus" else FolderSource(path)


def _reopen(path: str, digest: str, map_limit: int) -> FolderSource:
    source = FolderSource(path, map_limit=map_limit)
    if source._digest != digest:
        raise DataChangedError(f"{path} holds other data than when this source was pickled.")
    return source


def check_indices(indices: Any, num_rows: int) -> np.ndarray:
    """Row numbers as the platform's integers, all of them in range."""
    indices = np.asarray(indices)
    if indices.ndim != 1 or (indices.dtype.kind not in "iu" and indices.size):
        raise InvalidTypeError(
            f"`indices` must be a vector of whole numbers, got {indices.dtype} of shape {indices.shape}."
        )
    if indices.size and (indices.min() < 0 or indices.max() >= num_rows):
        first = int(np.argmax((indices < 0) | (indices >= num_rows)))
        raise InvalidValueError(
            f"row {indices[first]} (entry {first} of `indices`) does not exist: the rows are 0..{num_rows - 1}."
        )
    return indices.astype(np.intp, copy=False)


def check_stretch(start: int, stop: int, num_rows: int) -> tuple[int, int]:
    """A range of rows, cut at the last row."""
    stop = min(int(stop), num_rows)
    if not 0 <= start <= stop:
        raise InvalidValueError(f"rows {start} to {stop} are not a range of the rows 0..{num_rows - 1}.")
    return int(start), stop


def check_buffers(
    out: Any, wanted: Mapping[str, tuple[tuple[int, ...], np.dtype]], count: int
) -> Mapping[str, np.ndarray]:
    """Raise an error for output arrays that do not fit the rows."""
    if not isinstance(out, Mapping) or set(out) != set(wanted):
        got = sorted(out) if isinstance(out, Mapping) else type(out).__name__
        raise InvalidTypeError(f"`out` must be a dict of the arrays {sorted(wanted)}, got {got}.")
    for name, (row_shape, dtype) in wanted.items():
        array, shape = out[name], (count, *row_shape)
        if not isinstance(array, np.ndarray):
            raise InvalidTypeError(f"`out` of `{name}` must be a NumPy array, got {type(array).__name__}.")
        if array.shape != shape or array.dtype != dtype:
            raise InvalidValueError(
                f"`out` of `{name}` must have shape {shape} and dtype {dtype}, got {array.shape} and {array.dtype}."
            )
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise InvalidValueError(f"`out` of `{name}` must be writeable and C-contiguous.")
    return out


def write_folder(
    path: str | os.PathLike[str],
    data: Any,
    *,
    shuffle: bool = True,
    seed: int = 0,
    dtype: Any = None,
    memory: int = DEFAULT_MEMORY,
    overwrite: bool = False,
) -> FolderSource:
    """Write arrays in memory as a data folder.

    Parameters
    ----------
    path
        The folder to create.
    data
        A dict of arrays with equal first axes, a data frame (an array for each column), or one array.
    shuffle, seed, dtype, memory, overwrite
        As in `FolderWriter`: rows in a uniformly random order (required by `batching="blocks"`), 32-bit numbers
        unless `dtype` is 'float64', the memory budget in bytes, and whether to replace an existing data folder.

    Returns
    -------
    FolderSource
        The folder, opened.
    """
    table = named_columns(data)
    data = data if table is None else table
    single = not isinstance(data, Mapping)
    arrays = {name: _as_array(leaf, name) for name, leaf in ({"data": data} if single else dict(data)).items()}
    if not arrays:
        raise InvalidValueError("`data` holds no arrays. Pass an array or a dict of arrays with one row per datum.")
    check_lengths({f"`{name}`": array for name, array in arrays.items()})
    num_rows = len(next(iter(arrays.values())))
    step = max(1, _WRITE_BYTES // max(1, sum(array[:1].nbytes for array in arrays.values())))
    options: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "dtype": dtype, "memory": memory}
    with FolderWriter(path, **options, overwrite=overwrite, single=single, source="arrays in memory") as writer:
        for start in range(0, num_rows, step):
            writer.append({name: array[start : start + step] for name, array in arrays.items()})
    return FolderSource(path)


def _as_array(leaf: Any, name: str) -> np.ndarray:
    if isinstance(leaf, (Mapping, Iterator)):
        problem = "is a dict: nested names are not supported"
        if isinstance(leaf, Iterator):
            problem = f"is a {type(leaf).__name__}, which can be read only once: collect its rows in an array"
        raise InvalidTypeError(f"array `{name}` {problem}.")
    array = as_numpy(leaf, f"array `{name}`")
    if array.ndim == 0:
        raise InvalidTypeError(f"array `{name}` is a single number, not one row per datum.")
    return array


def describe_folder(source: Any) -> str:
    """Describe the content of a data folder (of rows or of a corpus) as text."""
    header = getattr(source, "header", None)
    if header is None:
        raise InvalidTypeError(f"only data folders can be described, got {type(source).__name__} in memory.")
    order = f"shuffled with seed {header.seed}" if header.shuffled else "in the source's order"
    lines = [
        f"{source.path}",
        f"{header.kind}: {header.num_rows:,} rows, {source.nbytes / 1e6:,.1f} MB, {order}",
        f"from {header.source}" if header.source else "source not recorded",
        *(f"{name.replace('_', ' ')}: {value:,}" for name, value in header.extra.items()),
    ]
    for name, entry in header.arrays.items():
        shape = " × ".join(f"{size:,}" for size in (entry.rows, *entry.row_shape))
        columns = _shortened(entry.columns) if entry.columns else ""
        size = math.prod((entry.rows, *entry.row_shape)) * np.dtype(entry.dtype).itemsize
        lines.append(f"  {name}: {np.dtype(entry.dtype).name}, {shape}, {size / 1e6:,.1f} MB{columns}")
    return "\n".join(lines)


def _shortened(columns: tuple[str, ...]) -> str:
    listed = columns if len(columns) <= 4 else (*columns[:2], "...", columns[-1])
    return f", columns {', '.join(listed)}"
