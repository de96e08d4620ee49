"""What counts as data: arrays, a native folder, or anything that can be asked for rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from scirocco import _tree
from scirocco.data.arrays import ArraySource, from_arrays
from scirocco.data.mapped import MappedSource, worth_streaming
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.types import Data, PyTree, Rows

_NAMES = ("num_rows", "row_spec", "take", "read", "fingerprint")


@runtime_checkable
class Source(Protocol):
    """Rows that can be asked for; any class with these five names is one.

    Optional: `shuffled` (True: neighbouring rows are as good as random ones), `checked` (True: known to be free of NaN
    and infinities), and an argument `out` of `take` and `read`, a tree of arrays to fill instead of new ones.
    """

    @property
    def num_rows(self) -> int:
        """How many rows there are."""

    @property
    def row_spec(self) -> PyTree:
        """Shape and dtype of one row, as `jax.ShapeDtypeStruct` leaves."""

    def take(self, indices: np.ndarray) -> Rows:
        """The rows with these numbers, in this order. Called from several threads."""

    def read(self, start: int, stop: int) -> Rows:
        """A contiguous stretch of rows. Called from several threads."""

    def fingerprint(self) -> str:
        """A short string that changes when the data change; asked for every few seconds, so it should be cheap."""


def as_source(data: Data) -> Any:
    """The user's data as a source, checked: arrays are wrapped, a path is opened, a source is tried on two rows."""
    if isinstance(data, ArraySource):
        return data
    if isinstance(data, (str, Path)):
        from scirocco.data.native.folder import open_folder

        return open_folder(data)
    if worth_streaming(data):
        return _try_out(MappedSource(data))
    if isinstance(data, Source):
        return _try_out(data)
    if hasattr(data, "take") and hasattr(data, "read"):
        missing = [name for name in _NAMES if not hasattr(data, name)]
        raise InvalidTypeError(
            f"{type(data).__name__} looks like a data source but lacks {', '.join(f'`{name}`' for name in missing)}; "
            "a source has num_rows, row_spec, take(indices), read(start, stop) and fingerprint()."
        )
    return from_arrays(data)


def _try_out(source: Source) -> Source:
    """Two rows, to see that they are what `row_spec` says."""
    name = type(source).__name__
    if not isinstance(source.num_rows, (int, np.integer)) or source.num_rows < 0:
        raise InvalidTypeError(f"`num_rows` of {name} must be a whole number, got {source.num_rows!r}.")
    if source.num_rows == 0:
        raise InvalidValueError(f"the data are empty: {name} has 0 rows.")
    if source.num_rows >= 1 << 31:
        raise InvalidValueError(f"{name} has {source.num_rows} rows; at most 2^31 - 1 can be numbered.")
    count = min(2, int(source.num_rows))
    for call, rows in (
        (f"read(0, {count})", source.read(0, count)),
        (f"take({list(range(count))})", source.take(np.arange(count))),
    ):
        _compare(name, call, rows, source.row_spec, count)
    return source


def _compare(name: str, call: str, rows: Rows, spec: PyTree, count: int) -> None:
    if _tree.leaf_names(rows) != _tree.leaf_names(spec):
        raise InvalidTypeError(
            f"{call} of {name} returned {_tree.leaf_names(rows)}, but `row_spec` has {_tree.leaf_names(spec)}."
        )
    for leaf, row, wanted in zip(
        _tree.leaf_names(spec), jax.tree.leaves(rows), jax.tree.leaves(spec), strict=True
    ):
        got, want = (np.shape(row), np.asarray(row).dtype), ((count, *wanted.shape), wanted.dtype)
        if got != want:
            raise InvalidTypeError(
                f"{call} of {name} returned `{leaf}` with shape {got[0]} and dtype {got[1]}; by `row_spec` it should "
                f"have shape {want[0]} and dtype {want[1]}."
            )
        if want[1].kind not in "fiub":
            raise InvalidTypeError(f"`{leaf}` of {name} has dtype {want[1]}; real numbers are needed.")
