"""How rows are dealt out to shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from scirocco import _checks, _tree
from scirocco.cluster.rows import RowsOf
from scirocco.data import Source, as_source
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.types import Data


class Dealt(NamedTuple):
    """The rows of every shard."""

    sources: list[Any]
    """One for each shard."""
    num_rows: list[int]
    fingerprints: list[str]
    """Of the data as they were given: one for the whole, or one for each shard."""


def deal(data: Data, num_shards: int | None, seed: int, shuffle: bool) -> Dealt:
    """Deal out rows to shards of sizes that differ by at most one; what comes in shards stays so."""
    if _in_shards(data):
        sources = [as_source(part) for part in data]
        _check_alike(sources)
        if num_shards not in (None, len(sources)):
            raise InvalidValueError(
                f"`data` has {len(sources)} shards already, but num_shards={num_shards}: leave `num_shards` out."
            )
        return Dealt(
            sources, [int(s.num_rows) for s in sources], [source.fingerprint() for source in sources]
        )
    if num_shards is None:
        raise InvalidValueError(
            "`num_shards` is needed: into how many shards the rows are to be dealt. (Data that are in shards already "
            "are a list of paths of data folders or of sc.data sources; a list of arrays is one data set.)"
        )
    source, count = as_source(data), _checks.positive_int(num_shards, "num_shards")
    if count > source.num_rows:
        raise InvalidValueError(f"num_shards={count} is more than the {source.num_rows} rows of the data.")
    stretches = [bounds(source.num_rows, count, number) for number in range(count)]
    # neighbouring rows of a folder that was shuffled when it was written are as good as random ones
    own = seed if shuffle and not source.shuffled else None
    parts: list[Any] = [RowsOf(source, start, stop, own) for start, stop in stretches]
    return Dealt(parts, [stop - start for start, stop in stretches], [source.fingerprint()])


def bounds(num_rows: int, num_shards: int, number: int) -> tuple[int, int]:
    """First row, and the one after the last, of a shard."""
    return number * num_rows // num_shards, (number + 1) * num_rows // num_shards


def _in_shards(data: Any) -> bool:
    """Whether `data` is a list of paths and sources, and not one data set in a tuple or list of arrays."""
    if not isinstance(data, (list, tuple)) or hasattr(data, "_fields"):
        return False
    if not data:
        raise InvalidValueError("`data` is empty: there are no shards.")
    whole = [isinstance(part, (str, Path, Source)) for part in data]
    if any(whole) and not all(whole):
        number = whole.index(False)
        raise InvalidTypeError(
            f"`data` is a list of shards, of which each must be a path of a data folder or a sc.data source; entry "
            f"{number} is {type(data[number]).__name__}. Wrap arrays with sc.data.as_source(...)."
        )
    return all(whole)


def _check_alike(sources: list[Any]) -> None:
    first = _tree.leaf_names(sources[0].row_spec)
    for number, source in enumerate(sources):
        found = _tree.leaf_names(source.row_spec)
        if found != first:
            raise InvalidValueError(f"shard {number} has the arrays {found}, and shard 0 has {first}.")
