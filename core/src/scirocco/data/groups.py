"""Rows by group: every group with all its rows in one bin, so that a bin is a datum of a model with local variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from scirocco._random import SeedPurpose
from scirocco.data.arrays import ArraySource, RowSource, from_arrays
from scirocco.data.sizes import READING
from scirocco.data.values import as_numpy, missing, named_columns
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.types import Data, PyTree

_FULL_ENOUGH = 0.2
"""Share of the places in bins of one group each that must hold rows; below, several groups share a bin."""
_FEWEST_PLACES = 4
_AT_ONCE = 1 << 20
"""Rows that are read together."""


class Labelled:
    """Groups by their labels, and where they are in bins."""

    labels: np.ndarray
    bin_of: np.ndarray
    place_of: np.ndarray
    num_data: int
    """Rows of the user."""

    def find(self, groups: Sequence[Any] | None) -> np.ndarray:
        """The numbers of these groups; all if None."""
        if groups is None:
            return np.arange(len(self.labels))
        wanted = np.atleast_1d(np.asarray(groups))
        if wanted.ndim != 1 or not len(wanted):
            raise InvalidValueError(f"`groups` must be a list of labels of groups, got {groups!r}.")
        order = {label: number for number, label in enumerate(self.labels.tolist())}
        unknown = [label for label in wanted.tolist() if label not in order]
        if unknown:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise InvalidValueError(
                f"the data have no group {unknown[0]!r}{more}: local variables are those of groups in the data, such "
                f"as {self.labels[0]!r}."
            )
        return np.array([order[label] for label in wanted.tolist()])


class GroupedSource(Labelled, ArraySource):
    """Bins of whole groups, as `model.groups.Integrated` takes them.

    If groups have similar sizes, a bin has one group and as many places as the largest group has rows. Otherwise bins
    hold several groups, in a random order: as many as fit.
    """

    def __init__(self, bins: PyTree, labels: np.ndarray, bin_of: np.ndarray, place_of: np.ndarray, num_data: int):
        super().__init__(bins)
        self.unit = _unit(bins["present"].shape[1])
        self.labels, self.bin_of, self.place_of, self.num_data = labels, bin_of, place_of, num_data


class StreamedGroups(Labelled, RowSource):
    """Bins of neighbouring groups of a source whose rows are sorted by group, read when needed."""

    def __init__(self, rows: RowSource, column: str):
        self.rows, self.column, self.num_data = rows, column, rows.num_rows
        self.labels, self._first = _neighbours(rows, column)
        sizes = np.diff(np.append(self._first, rows.num_rows))
        self._width = int(sizes.max())
        if sizes.sum() >= _FULL_ENOUGH * self._width * len(sizes):
            self.bin_of, self.place_of, self._places = np.arange(len(sizes)), np.zeros(len(sizes), int), 1
        else:
            self._places = max(_FEWEST_PLACES, int(np.ceil(2 * self._width / sizes.mean())))
            order = np.arange(len(sizes))
            self.bin_of, self.place_of = _filled(sizes, order, self._width, self._places)
        self.num_rows = int(self.bin_of[-1]) + 1
        self.unit = _unit(self._places)
        self._begin = np.append(np.flatnonzero(self.place_of == 0), len(sizes))  # first groups of bins

    @property
    def row_spec(self) -> PyTree:
        """Shape and dtype of one bin."""

        def of_bin(leaf: Any) -> Any:
            return jax.ShapeDtypeStruct((self._width, *leaf.shape), leaf.dtype)

        rows = {name: leaf for name, leaf in self.rows.row_spec.items() if name != self.column}
        group = jax.ShapeDtypeStruct((self._width,), np.int32)
        present = jax.ShapeDtypeStruct((self._places,), bool)
        return {"rows": jax.tree.map(of_bin, rows), "group": group, "present": present}

    def take(self, indices: np.ndarray) -> PyTree:
        """Bins; padding repeats the last row of a bin."""
        indices = np.asarray(indices)
        begin, end = self._begin[indices], self._begin[indices + 1]
        ends = np.append(self._first, self.num_data)
        numbers = ends[begin][:, None] + np.arange(self._width)
        used = numbers < ends[end][:, None]
        numbers = np.minimum(numbers, ends[end][:, None] - 1)
        taken = self.rows.take(numbers.reshape(-1))
        rows = {name: leaf for name, leaf in taken.items() if name != self.column}
        rows = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(*numbers.shape, *leaf.shape[1:]), rows)
        place = np.searchsorted(self._first, numbers, side="right") - 1 - begin[:, None]
        group = np.where(used, place, self._places).astype(np.int32)
        return {"rows": rows, "group": group, "present": np.arange(self._places) < (end - begin)[:, None]}

    def read(self, start: int, stop: int) -> PyTree:
        """A contiguous range of bins."""
        return self.take(np.arange(start, min(stop, self.num_rows)))

    def fingerprint(self) -> str:
        """That of the rows, and the column."""
        return f"{self.rows.fingerprint()}-{self.column}"

    def stamp(self) -> str:
        """That of the rows."""
        return self.rows.stamp()


def _unit(places: int) -> str:
    return "groups" if places == 1 else "bins of groups"


def _neighbours(rows: RowSource, column: str) -> tuple[np.ndarray, np.ndarray]:
    """The labels of rows sorted by group, and the first row of each group; the column is read once."""
    labels, first = list[np.ndarray](), list[np.ndarray]()
    last: Any = None
    for begin in range(0, rows.num_rows, _AT_ONCE):
        values = np.asarray(rows.read(begin, min(begin + _AT_ONCE, rows.num_rows))[column])
        new = np.append(last is None or values[0] != last, values[1:] != values[:-1])
        labels.append(values[new])
        first.append(begin + np.flatnonzero(new))
        last = values[-1]
    found = np.concatenate(labels)
    if np.any(found[1:] <= found[:-1]):
        raise InvalidValueError(
            f"the data are too large for memory, and their rows are not sorted by the groups {column!r}: the rows of a "
            "group must be neighbours, in increasing order of groups. Sort them, and write the folder with "
            "sc.data.write(..., shuffle=False)."
        )
    return found, np.concatenate(first)


def grouped(data: Data, column: str) -> GroupedSource | StreamedGroups:
    """The rows of a table, a dict of arrays or a source, with the groups that a column names.

    A source that is larger than a quarter of the memory is streamed: its rows must be sorted by group.
    """
    if isinstance(data, (GroupedSource, StreamedGroups)):
        return data
    if isinstance(data, RowSource) and not isinstance(data, ArraySource):
        if isinstance(data.row_spec, dict) and column in data.row_spec and _is_large(data):
            return StreamedGroups(data, column)
        data = data.read(0, data.num_rows)
    elif isinstance(data, ArraySource):
        data = data.arrays
    columns = named_columns(data)
    columns = data if columns is None else columns
    if not isinstance(columns, dict):
        raise InvalidTypeError(
            f"the data of a model with groups={column!r} must be a data frame or a dict with that column, got "
            f"{type(data).__name__}."
        )
    if column not in columns:
        raise InvalidValueError(f"the data have no column {column!r} with the groups; they have {sorted(columns)}.")
    rest = {name: values for name, values in columns.items() if name != column}
    if not rest:
        raise InvalidValueError(f"the data have no column other than the groups ({column!r}).")
    labels, codes = label_codes(columns[column], f"column `{column}` of the data")
    source = from_arrays(rest)
    if len(codes) != source.num_rows:
        raise InvalidValueError(
            f"column `{column}` with the groups has {len(codes)} rows, the other columns have {source.num_rows}."
        )
    return _packed(source.arrays, labels, codes)


def _is_large(source: RowSource) -> bool:
    """Whether the rows of a source would take more than a quarter of the memory that is available."""
    from scirocco.data.sources import available_memory

    leaves = jax.tree.leaves(source.row_spec)
    each = sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in leaves)
    return each * source.num_rows > READING.share_of_memory * available_memory()


def label_codes(values: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The distinct labels in order, and the number of each row's label; missing labels raise an error."""
    array = as_numpy(values, name)
    if array.ndim != 1:
        raise InvalidTypeError(f"{name} must have one label per row, got shape {array.shape}.")
    if array.dtype.kind == "f":
        bad = ~np.isfinite(array)
    elif array.dtype == object:
        bad = np.fromiter((missing(value) for value in array), bool, len(array))
        array = array if bad.any() else np.asarray(array.tolist())
    else:
        bad = np.zeros(len(array), bool)
    if bad.any():
        raise InvalidValueError(
            f"{name} is missing in {int(bad.sum())} rows, the first of them row {int(np.argmax(bad))}: a row without a "
            "group belongs to none. Drop these rows, or give them a group of their own."
        )
    if array.dtype.kind not in "fiubUS":
        raise InvalidTypeError(f"{name} has labels of type {array.dtype}: use strings or numbers.")
    labels, codes = np.unique(array, return_inverse=True)
    return labels, codes.reshape(-1)


def _packed(rows: PyTree, labels: np.ndarray, codes: np.ndarray) -> GroupedSource:
    """Rows arranged in bins."""
    sizes = np.bincount(codes, minlength=len(labels))
    width = int(sizes.max())
    order = np.argsort(codes, kind="stable")
    first = np.cumsum(sizes) - sizes
    shuffled = np.random.default_rng([SeedPurpose.GROUPS]).permutation(len(labels))
    if sizes.sum() >= _FULL_ENOUGH * width * len(sizes):
        bin_of, place_of, places = np.arange(len(labels)), np.zeros(len(labels), int), 1
    else:
        places = max(_FEWEST_PLACES, int(np.ceil(2 * width / sizes.mean())))
        bin_of, place_of = _filled(sizes, shuffled, width, places)
    num_bins = int(bin_of.max()) + 1
    begin = np.zeros(len(labels), np.int64)  # where a group's rows begin in its bin
    if places > 1:
        by_bin = np.lexsort((place_of, bin_of))
        ends = np.cumsum(sizes[by_bin])
        start_of_bin = np.concatenate([[0], ends])[np.searchsorted(bin_of[by_bin], np.arange(num_bins))]
        begin[by_bin] = ends - sizes[by_bin] - start_of_bin[bin_of[by_bin]]
    group = np.full((num_bins, width), places, np.int32)
    source = np.zeros((num_bins, width), np.int64)
    sorted_codes = codes[order]
    at = begin[sorted_codes] + np.arange(len(order)) - first[sorted_codes]
    group[bin_of[sorted_codes], at] = place_of[sorted_codes]
    source[bin_of[sorted_codes], at] = order
    source = np.where(group < places, source, source[:, :1])  # padding repeats a row of the bin: values stay valid
    present = np.zeros((num_bins, places), bool)
    present[bin_of, place_of] = True
    bins = {"rows": jax.tree.map(lambda leaf: leaf[source], rows), "group": group, "present": present}
    return GroupedSource(bins, labels, bin_of, place_of, len(codes))


def _filled(sizes: np.ndarray, order: np.ndarray, width: int, places: int) -> tuple[np.ndarray, np.ndarray]:
    """The bin of each group and its place there: bins are filled one after the other."""
    ends = np.concatenate([[0], np.cumsum(sizes[order])])
    bin_of, place_of = np.empty(len(sizes), np.int64), np.empty(len(sizes), np.int64)
    begin, number = 0, 0
    while begin < len(order):
        stop = min(int(np.searchsorted(ends, ends[begin] + width, side="right")) - 1, begin + places, len(order))
        bin_of[order[begin:stop]], place_of[order[begin:stop]] = number, np.arange(stop - begin)
        begin, number = stop, number + 1
    return bin_of, place_of
