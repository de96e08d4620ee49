"""Data in memory: a pytree of arrays with equal first axes, checked once, on the host.

JAX clamps out-of-range gathers without a warning and NaN spreads silently, so everything that can be checked before
sampling is checked here, and the message names the array.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from scirocco import _checks, _tree
from scirocco.data import fingerprints
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.types import Data, PyTree, Rows

_WILD_SCALE = 1e3
_SCALE_PROBE_ROWS = 10_000
_SAMPLED_ROWS = 64


class RowSource(abc.ABC):
    """A source as the rest of the library sees it; `as_source` makes one from whatever users pass."""

    num_rows: int
    shuffled: bool = False
    """Whether neighbouring rows are as good as random ones."""
    checked: bool = False
    """Whether the data are known to have no NaN or infinite values."""
    fills: bool = False
    """Whether `take` and `read` have an argument `out`, arrays to fill instead of new ones."""
    scatters: bool = False
    """Whether there are `places` and `scatter`."""
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

    def __init__(self, arrays: PyTree, wild_scales: str = ""):
        self.arrays, self.wild_scales = arrays, wild_scales
        self._fingerprints: dict[bool, str] = {}
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
        rule = fingerprints.by_sample()
        if rule not in self._fingerprints:
            named = zip(_tree.leaf_names(self.arrays), jax.tree.leaves(self.arrays), strict=True)
            described = ((f"{name}{leaf.shape}{leaf.dtype}", leaf) for name, leaf in named)
            self._fingerprints[rule] = fingerprints.of_arrays("", described, _SAMPLED_ROWS)
        return self._fingerprints[rule]

    def stamp(self) -> str:
        """Always the same: nobody else writes to this memory."""
        return ""


def from_arrays(data: Data) -> ArraySource:
    """Check a pytree of arrays and wrap it as a source."""
    checked = as_arrays(data)
    leaves, treedef = jax.tree.flatten(checked)
    names = _names(data, leaves)
    for array, name in zip(leaves, names, strict=True):
        check_finite(array, name)
    wild = next(filter(None, map(_wild_scales, leaves, names)), "")
    return ArraySource(jax.tree.unflatten(treedef, _to_jax_precision(leaves, names)), wild)


def as_arrays(data: Data) -> PyTree:
    """A pytree of numeric arrays with equal first axes; checks everything that does not require reading them."""
    leaves, treedef = jax.tree.flatten(data, is_leaf=_is_iterator)
    if any(_is_iterator(leaf) for leaf in leaves):
        raise InvalidTypeError(
            "`data` holds a generator or iterator, which can be read only once. Collect its rows first, e.g. "
            "np.stack(list(rows))."
        )
    if not leaves:
        raise InvalidValueError(
            "`data` holds no arrays. Pass an array or a dict of arrays with one row per datum."
        )
    names = _names(data, leaves)
    arrays = [_as_array(leaf, name) for leaf, name in zip(leaves, names, strict=True)]
    _check_lengths(arrays, names)
    return jax.tree.unflatten(treedef, arrays)


def _names(data: Data, leaves: list[Any]) -> list[str]:
    """Names for messages: the whole, or its parts by name."""
    bare = len(leaves) == 1 and jax.tree_util.all_leaves([data])
    return ["`data`"] if bare else [f"data `{name}`" for name in _tree.leaf_names(data)]


def _is_iterator(node: Any) -> bool:
    return isinstance(node, Iterator)


def _as_array(leaf: Any, name: str) -> np.ndarray:
    columns = getattr(leaf, "dtypes", None)
    # a data frame: name the columns that are not numeric
    if columns is not None and getattr(leaf, "ndim", 1) == 2:
        bad = [f"{column!r} ({dtype})" for column, dtype in columns.items() if not _is_numeric(dtype)]
        if bad:
            raise InvalidTypeError(f"{name}: columns {', '.join(bad)} are not numeric. Encode or drop them.")
    try:
        array = np.asarray(leaf)
    except Exception as error:
        raise InvalidTypeError(f"{name} cannot be read as an array: {error}") from error
    if not _is_numeric(array.dtype):
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
            "Consider dividing by 255 or `sc.data.standardise`."
        )
        array = array.astype(np.float32)
    return array


def _is_numeric(dtype: Any) -> bool:
    try:
        dtype = np.dtype(dtype)
    except TypeError:
        return False
    return dtype.kind in "fiub"


def _check_lengths(arrays: list[np.ndarray], names: list[str]) -> None:
    lengths = {name: len(array) for name, array in zip(names, arrays, strict=True)}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name.removeprefix('data ')}: {length}" for name, length in lengths.items())
        raise InvalidValueError(
            f"the data arrays have different numbers of rows ({listed}). They must be equal."
        )
    if not next(iter(lengths.values())):
        raise InvalidValueError("the data are empty: there are 0 rows.")


def check_finite(array: np.ndarray, name: str, first_row: int = 0) -> None:
    """Raise an error for NaN and infinite values; it names the array and the first row, counted from `first_row`."""
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
    place = f"row {first_row + first[0]}" + (f", index {first[1:]}" if len(first) > 1 else "")
    raise InvalidValueError(
        f"{name} holds {count} NaN or infinite value{'s' * (count > 1)} in {rows} of {len(array)} rows; the "
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


def _to_jax_precision(arrays: list[np.ndarray], names: list[str]) -> list[np.ndarray]:
    """Cast 64-bit arrays if JAX uses 32 bits, with one warning."""
    if jax.dtypes.canonicalize_dtype(np.float64) == np.float64:
        return arrays
    out, cast = [], []
    for array, name in zip(arrays, names, strict=True):
        if array.dtype == np.float64:
            cast.append(name.removeprefix("data "))
            array = _as_single(array, name)
        elif array.dtype in (np.int64, np.uint64):
            if array.size and (array.max() > np.iinfo(np.int32).max or array.min() < np.iinfo(np.int32).min):
                raise InvalidValueError(
                    f"{name} holds integers beyond 32 bits, but JAX uses 32 bits. "
                    "Recode them, or call jax.config.update('jax_enable_x64', True)."
                )
            array = array.astype(np.int32)
        out.append(array)
    if cast:
        _checks.warn(
            f"float64 data ({', '.join(cast)}) are converted to float32, because JAX uses 32 bits. Pass float32 "
            "to avoid this warning, or call jax.config.update('jax_enable_x64', True) for double precision."
        )
    return out


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
