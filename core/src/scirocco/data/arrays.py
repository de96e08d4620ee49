"""Data in memory: a pytree of arrays with equal first axes, checked once, on the host.

JAX clamps out-of-range gathers without a warning and NaN spreads silently, so everything that can be checked before
sampling is checked here, and the message names the array.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from scirocco import _checks, _tree
from scirocco.data import fingerprints
from scirocco.data.values import Frame, as_numpy, missing, named_columns
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.types import Data, PyTree, Rows

_WILD_SCALE = 1e3  # ratio of standard deviations that is warned of
_SCALE_PROBE_ROWS = 10_000  # rows that are looked at for it
_ROUNDING, _NOTICEABLE = 6e-8, 1e-3
"""Relative rounding error of float32, and the part of a standard deviation by which it may change a value."""


class RowSource(abc.ABC):
    """A source as the rest of the library sees it; `as_source` makes one from whatever users pass."""

    num_rows: int
    unit: str = "rows"
    """What a row is called in messages."""
    shuffled: bool = False
    """Whether neighbouring rows are as good as random ones."""
    checked: bool = False
    """Whether the data are known to have no NaN or infinite values."""
    fills: bool = False
    """Whether `take` and `read` have an argument `out`, arrays to fill instead of new ones."""
    scatters: bool = False
    """Whether there are `places` and `scatter`."""
    sums_up: bool = False
    """Whether the rows are sums over those of the user, which only together have the user's likelihood."""
    wild_scales: str = ""
    """The warning for samplers that have one scale for all parameters; empty if the columns have similar scales."""

    @property
    @abc.abstractmethod
    def row_spec(self) -> PyTree:
        """Shape and dtype of one row."""

    @abc.abstractmethod
    def take(self, indices: np.ndarray) -> Rows:
        """The rows with these numbers, in this order."""

    @abc.abstractmethod
    def read(self, start: int, stop: int) -> Rows:
        """A contiguous range of rows."""

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """A short string that changes when the data change."""

    def stamp(self) -> str:
        """A value that is compared to detect that the data change during a run."""
        return self.fingerprint()

    def verify(self) -> None:
        """Read everything and compare checksums, if there are any; arrays in memory have none."""
        return None

    def places(self, out: Rows, run: int) -> Any:
        """The slots of `run` rows in the arrays `out`, for `scatter`."""
        raise NotImplementedError

    def scatter(self, starts: list[int], slots: list[list[int]], run: int, places: Any) -> None:
        """Copy windows of neighbouring rows into the arrays that `places` belong to, shuffled on the way."""
        raise NotImplementedError

    @property
    def given(self) -> Any:
        """The user's object, for messages and pickles."""
        return self


class ArraySource(RowSource):
    """Rows held in memory.

    The protocol of a source: `num_rows`, `row_spec`, `take(indices)`, `read(start, stop)` and `fingerprint()`.
    """

    def __init__(self, arrays: PyTree, wild_scales: str = "", sums_up: bool = False):
        self.arrays, self.wild_scales, self.sums_up = arrays, wild_scales, sums_up
        self._fingerprint = ""
        self.num_rows: int = jax.tree.leaves(arrays)[0].shape[0]

    @property
    def row_spec(self) -> PyTree:
        """Shape and dtype of one row."""
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), self.arrays)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return _tree.nbytes(self.arrays)

    def take(self, indices: np.ndarray) -> Rows:
        """The rows with these numbers, in this order."""
        return jax.tree.map(lambda leaf: np.take(leaf, indices, axis=0), self.arrays)

    def read(self, start: int, stop: int) -> Rows:
        """A contiguous range of rows."""
        return jax.tree.map(lambda leaf: leaf[start:stop], self.arrays)

    def fingerprint(self) -> str:
        """A short hash of shapes, dtypes and all values: the same data give the same string."""
        if not self._fingerprint:
            named = zip(_tree.leaf_names(self.arrays), jax.tree.leaves(self.arrays), strict=True)
            described = ((f"{name}{leaf.shape}{leaf.dtype}", leaf) for name, leaf in named)
            self._fingerprint = fingerprints.of_arrays("", described)
        return self._fingerprint

    def stamp(self) -> str:
        """Always the same: nobody else writes to this memory."""
        return ""


def from_arrays(data: Data) -> ArraySource:
    """Check a pytree of arrays, or a table with named columns, and wrap it as a source."""
    leaves, treedef, names = _leaves(data)
    columns = [_column_names(leaf) for leaf in leaves]
    arrays = [_as_array(leaf, name) for leaf, name in zip(leaves, names, strict=True)]
    _check_lengths(arrays, names)
    for array, name, inside in zip(arrays, names, columns, strict=True):
        check_finite(array, name, columns=inside)
    wild = next(filter(None, map(_wild_scales, arrays, names)), "")
    return ArraySource(jax.tree.unflatten(treedef, _to_jax_precision(arrays, names, columns)), wild)


def as_arrays(data: Data) -> PyTree:
    """A pytree of numeric arrays with equal first axes; checks everything that does not require reading them."""
    leaves, treedef, names = _leaves(data)
    arrays = [_as_array(leaf, name) for leaf, name in zip(leaves, names, strict=True)]
    _check_lengths(arrays, names)
    return jax.tree.unflatten(treedef, arrays)


def _leaves(data: Data) -> tuple[list[Any], Any, list[str]]:
    """The arrays, their tree, and their names for messages; a table is a dict of its columns."""
    table = named_columns(data)
    leaves, treedef = jax.tree.flatten(data if table is None else table, is_leaf=_is_iterator)
    if any(_is_iterator(leaf) for leaf in leaves):
        raise InvalidTypeError(
            "`data` holds a generator or iterator, which can be read only once. Collect its rows first, e.g. "
            "np.stack(list(rows))."
        )
    if not leaves:
        raise InvalidValueError("`data` holds no arrays. Pass an array or a dict of arrays with one row per datum.")
    if table is not None:
        return leaves, treedef, [f"column `{name}` of the data" for name in sorted(table)]
    bare = len(leaves) == 1 and jax.tree_util.all_leaves([data])
    return leaves, treedef, ["`data`"] if bare else [f"data `{name}`" for name in _tree.leaf_names(data)]


def _is_iterator(node: Any) -> bool:
    return isinstance(node, Iterator)


def _column_names(leaf: Any) -> list[str]:
    return [str(name) for name in leaf.columns] if isinstance(leaf, Frame) else []


def _as_array(leaf: Any, name: str) -> np.ndarray:
    if isinstance(leaf, Frame) and len(leaf.columns):
        parts = [_as_array(leaf[column], f"column `{column}` of {name}") for column in leaf.columns]
        return np.stack(parts, axis=1)
    array = as_numpy(leaf, name)
    if array.dtype == object:
        array = _from_objects(array, name)
    if array.dtype.kind not in "fiub":
        raise InvalidTypeError(
            f"{name} has dtype {array.dtype}; real numbers are required (no strings, objects, dates, complex or "
            "ragged lists). Encode it as numbers first."
        )
    if array.ndim == 0:
        raise InvalidTypeError(
            f"{name} is a single number. `data` is a pytree of arrays with one row per datum: "
            "pass np.asarray(...) rather than a Python list of numbers."
        )
    if array.dtype in (np.uint8, np.int8) and array.ndim >= 2:
        _checks.warn(
            f"{name} is {array.dtype}: cast to float32 (8-bit arithmetic would wrap around). "
            "Consider dividing by 255 or `sc.data.standardise`; if your log likelihood converts them, pass "
            "sc.data.ArraySource(data)."
        )
        array = array.astype(np.float32)
    return array


def _from_objects(array: np.ndarray, name: str) -> np.ndarray:
    """Numbers that are held as Python objects; the first value that is none is named."""
    for place, value in np.ndenumerate(array):
        if missing(value) or not (_checks.is_number(value) or isinstance(value, (bool, np.bool_))):
            raise InvalidTypeError(
                f"{name} has dtype object and holds {value!r} in row {place[0] if place else 0}; real numbers are "
                "required (no strings, missing values, dates or ragged lists). Encode it as numbers, and drop or "
                "impute missing values first."
            )
    return array.astype(np.result_type(*{np.asarray(value).dtype for value in array.flat} or {np.dtype(float)}))


def _check_lengths(arrays: list[np.ndarray], names: list[str]) -> None:
    check_lengths({name.removeprefix("data "): array for name, array in zip(names, arrays, strict=True)})
    if not len(arrays[0]):
        raise InvalidValueError("the data are empty: there are 0 rows.")


def check_lengths(arrays: Mapping[str, np.ndarray]) -> None:
    """Raise an error for arrays of different lengths."""
    if len({len(array) for array in arrays.values()}) > 1:
        listed = ", ".join(f"{name}: {len(array)}" for name, array in arrays.items())
        raise InvalidValueError(f"the arrays have different numbers of rows ({listed}). They must be equal.")


def check_finite(array: np.ndarray, name: str, first_row: int = 0, columns: Sequence[str] = ()) -> None:
    """Raise an error for NaN and infinite values.

    It names the array, the first row, counted from `first_row`, and the column.
    """
    if array.dtype.kind != "f":
        return
    with np.errstate(all="ignore"):  # a finite sum proves finite entries in one fast pass
        if np.isfinite(np.sum(array)):
            return
    bad = ~np.isfinite(array)
    count = int(bad.sum())
    if not count:
        return
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    rows = int(bad.reshape(len(array), -1).any(axis=1).sum())
    inside = f", column `{columns[first[1]]}`" if columns else f", index {first[1:]}" if first[1:] else ""
    place = f"row {first_row + first[0]}{inside}"
    raise InvalidValueError(
        f"{name} holds {count} missing (NaN) or infinite value{'s' * (count > 1)} in {rows} of {len(array)} rows; the "
        f"first is at {place}. Drop or impute them."
    )


def _wild_scales(array: np.ndarray, name: str) -> str:
    if array.dtype.kind not in "fiu" or array.ndim != 2 or array.shape[1] < 2:
        return ""
    probe = array[:: max(1, len(array) // _SCALE_PROBE_ROWS)].astype(np.float64)
    spread = probe.std(axis=0)
    moving = spread[spread > 0]
    if len(moving) < 2 or moving.max() / moving.min() <= _WILD_SCALE:
        return ""
    return (
        f"the columns of {name} have very different scales (standard deviations from {moving.min():.3g} to "
        f"{moving.max():.3g}). One step size cannot suit them all: use `sc.data.standardise`, a sampler with "
        'step_size="auto", or `sc.Preconditioned`.'
    )


def _to_jax_precision(arrays: list[np.ndarray], names: list[str], columns: list[list[str]]) -> list[np.ndarray]:
    """Cast 64-bit arrays if JAX uses 32 bits."""
    if jax.dtypes.canonicalize_dtype(np.float64) == np.float64:
        return arrays
    out = []
    for array, name, inside in zip(arrays, names, columns, strict=True):
        if array.dtype == np.float64:
            remark_rounding(array, name, inside)
            array = _as_single(array, name)
        elif array.dtype in (np.int64, np.uint64):
            if array.size and (array.max() > np.iinfo(np.int32).max or array.min() < np.iinfo(np.int32).min):
                raise InvalidValueError(
                    f"{name} holds integers beyond 32 bits, but JAX uses 32 bits. "
                    "Recode them, or call jax.config.update('jax_enable_x64', True)."
                )
            array = array.astype(np.int32)
        out.append(array)
    return out


def remark_rounding(array: np.ndarray, name: str, columns: Sequence[str] = ()) -> None:
    """Warn if rounding to float32 changes a column by a noticeable part of its standard deviation.

    Some rows are enough: in 10⁸ rows or fewer no single value can be that far out without widening the column.
    """
    table = array.reshape(len(array), -1)
    step = max(1, len(table) // _SCALE_PROBE_ROWS)
    probe = table[::step]
    with np.errstate(over="ignore", invalid="ignore"):
        largest, spread = np.abs(probe).max(axis=0), probe.std(axis=0)
        for still in np.flatnonzero((probe == probe[0]).all(axis=0) & (step > 1)):
            spread[still] = table[:, still].std()
        lost = largest * _ROUNDING > _NOTICEABLE * spread
    for column in map(int, np.flatnonzero(lost)):
        values = table[:, column]
        if values.min() == values.max():
            continue
        inside = f"column `{columns[column]}` of {name}" if columns else f"column {column} of {name}"
        where = name if table.shape[1] == 1 and not columns else inside
        _checks.warn(
            f"{where} has values near {largest[column]:.4g} with the standard deviation {spread[column]:.2g}, and JAX "
            f"uses 32 bits: rounding changes them by up to {largest[column] * _ROUNDING:.1g}. Subtract the mean "
            f"({float(values.mean()):.10g}) first, or call jax.config.update('jax_enable_x64', True)."
        )
        return


def _as_single(array: np.ndarray, name: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        single = array.astype(np.float32)
        if np.isfinite(np.sum(single)) or np.all(np.isfinite(single)):
            return single
    largest = np.max(np.abs(array))
    raise InvalidValueError(
        f"{name} holds numbers up to {largest:.3g}, beyond the range of float32 (3.4e38), but JAX uses 32 bits. "
        "Rescale them, or call jax.config.update('jax_enable_x64', True)."
    )


def standardise(features: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scale columns to mean 0 and standard deviation 1; return them with their means and standard deviations.

    Constant columns are only centred.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> scaled, mean, deviation = sc.data.standardise(np.array([[1.0, 1000.0], [3.0, 5000.0]]))
    >>> scaled
    array([[-1., -1.],
           [ 1.,  1.]], dtype=float32)
    """
    features = np.asarray(features)
    mean = features.mean(axis=0, dtype=np.float64)
    deviation = features.std(axis=0, dtype=np.float64)
    deviation = np.where(deviation > 0, deviation, 1.0)
    return ((features - mean) / deviation).astype(np.float32), mean, deviation
