"""Where everything is stored: the groups, their variables, and the documents that describe them to Zarr readers.

The layout is fixed when a run is created and kept in `run.json`; only the numbers of draws change.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from scirocco.errors import InvalidTypeError, InvalidValueError, StoreError
from scirocco.store import zarr_format as zarr
from scirocco.store.files import STORING

INNER = "scirocco"
"""The subfolder for everything except draws: the record, the commit, the sampler's state, the lock."""
_CHUNK_BYTES = 1 << 20  # the most in a chunk of the largest variable
_GROUP_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_INDEX = np.dtype("<i8")


class Variable(NamedTuple):
    """The shape and dtype of one draw of a variable."""

    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True)
class Column:
    """A variable on disk: its name, the name of its folder, the shape of one draw, its stored and original dtype."""

    name: str
    node: str
    shape: tuple[int, ...]
    dtype: np.dtype
    given_dtype: str


@dataclass(frozen=True)
class Group:
    """Variables that have the same number of draws; a chunk holds `chunk_draws` draws of all chains."""

    name: str
    num_chains: int
    chunk_draws: int
    columns: tuple[Column, ...]

    def chunk_shape(self, column: Column) -> tuple[int, ...]:
        """The shape of a chunk."""
        return (self.num_chains, self.chunk_draws, *column.shape)

    def chunk_path(self, root: str, column: Column, number: int) -> str:
        """The file that holds the draws from `number * chunk_draws` on."""
        return zarr.chunk_path(os.path.join(root, self.name, column.node), number, 2 + len(column.shape))

    def draws_in(self, number: int, num_draws: int) -> range:
        """The draws of the chunk `number`, if there are `num_draws` in all."""
        return range(num_draws)[number * self.chunk_draws : (number + 1) * self.chunk_draws]

    def check_content(self, column: Column, number: int, num_draws: int, values: np.ndarray, crcs: str) -> str:
        """What is wrong with the values of a chunk, by the commit's checksums of its variable; empty if nothing."""
        draws, expected = self.draws_in(number, num_draws), crcs[8 * number : 8 * number + 8]
        if not values.size or zarr.checksum(values, len(draws)) == expected:
            return ""
        chains = f"chains 0 to {self.num_chains - 1}" if self.num_chains > 1 else "chain 0"
        return (
            f"the draws {draws.start:,} to {draws.stop - 1:,} of {chains} of {column.name!r} are damaged: they do not "
            f"have the checksum of the commit. They changed on disk, or belong to another run."
        )

    def num_chunks(self, num_draws: int) -> int:
        """The number of chunks for `num_draws` draws; the last may be partly empty."""
        return -(-num_draws // self.chunk_draws)

    def coordinate_path(self, root: str, name: str, number: int) -> str:
        """The file with the numbers of chains or draws."""
        return zarr.chunk_path(os.path.join(root, self.name, name), number, 1)

    def coordinates(self, root: str, num_draws: int) -> Iterator[tuple[str, np.ndarray]]:
        """The files with the numbers of chains and of `num_draws` draws, and their content."""
        yield self.coordinate_path(root, "chain", 0), np.arange(self.num_chains, dtype=_INDEX)
        for number, values in coordinate_chunks(0, num_draws):
            yield self.coordinate_path(root, "draw", number), values

    def documents(self, num_draws: int) -> dict[str, str]:
        """The document of each array, for `num_draws` draws, as JSON."""
        nodes = [column.node for column in self.columns]
        out = {
            "chain": zarr.array_document((self.num_chains,), (self.num_chains,), _INDEX, ["chain"], {}),
            "draw": zarr.array_document((num_draws,), (STORING.chunk_draws,), _INDEX, ["draw"], {}),
        }
        for column in self.columns:
            out[column.node] = zarr.array_document(
                (self.num_chains, num_draws, *column.shape),
                self.chunk_shape(column),
                column.dtype,
                ["chain", "draw", *zarr.dimension_names(column.node, len(column.shape), nodes)],
                {"name": column.name, "dtype": column.given_dtype},
            )
        return {node: json.dumps(document) for node, document in out.items()}


def documents(groups: dict[str, Group], draws: dict[str, int], attributes: dict[str, Any]) -> dict[str, str]:
    """The JSON documents of all nodes: the arrays of a group, then the group; last the root, with the name `""`."""
    out: dict[str, str] = {}
    everything: dict[str, str] = {}
    text = json.dumps(attributes)
    for name, group in groups.items():
        members = group.documents(draws[name])
        arrays = {f"{name}/{node}": document for node, document in members.items()}
        out |= arrays | {name: zarr.group_document(text, members)}
        everything |= {name: zarr.group_document(text)} | arrays
    return out | {"": zarr.group_document(text, everything)}


def coordinate_chunks(first: int, num_draws: int) -> Iterator[tuple[int, np.ndarray]]:
    """The numbered chunks of the coordinate `draw` that `num_draws` draws need, from the `first` on.

    They are written completely, beyond the existing draws, so that they are written only once.
    """
    for number in range(first, -(-num_draws // STORING.chunk_draws)):
        yield number, np.arange(number * STORING.chunk_draws, (number + 1) * STORING.chunk_draws, dtype=_INDEX)


def plan(groups: dict[str, dict[str, Variable]], num_chains: int) -> dict[str, Group]:
    """The layout for the variables that a caller wants to store."""
    if not groups:
        raise InvalidValueError("`groups` is empty: name at least one group with one variable.")
    folded = [str(name).casefold() for name in groups]
    out = {}
    for name, variables in groups.items():
        if not isinstance(name, str) or not _GROUP_NAME.fullmatch(name) or name.casefold() == INNER:
            raise InvalidValueError(
                f"a group cannot be named {name!r}: use letters, digits and `_`, and not {INNER!r}."
            )
        if folded.count(name.casefold()) > 1:
            raise InvalidValueError(f"two groups are named {name!r}, except for upper and lower case.")
        if not variables:
            raise InvalidValueError(f"the group {name!r} has no variables: omit it.")
        out[name] = _plan_group(name, variables, num_chains)
    return out


def _plan_group(name: str, variables: dict[str, Variable], num_chains: int) -> Group:
    for variable in variables:
        if not isinstance(variable, str):
            raise InvalidTypeError(f"a variable's name must be a string, got {variable!r}.")
    nodes = zarr.node_names(variables, taken=("chain", "draw"))
    columns = tuple(
        Column(key, nodes[key], tuple(int(length) for length in shape), zarr.stored_dtype(dtype, key), str(dtype))
        for key, (shape, dtype) in variables.items()
    )
    largest = max(math.prod(column.shape) * column.dtype.itemsize for column in columns)
    chunk_draws = max(1, min(STORING.chunk_draws, _CHUNK_BYTES // max(1, largest * num_chains)))
    return Group(name, num_chains, chunk_draws, columns)


def to_json(groups: dict[str, Group]) -> dict[str, Any]:
    """The layout as written to `run.json`."""
    return {
        name: {
            "num_chains": group.num_chains,
            "chunk_draws": group.chunk_draws,
            "variables": [
                {
                    "name": column.name,
                    "node": column.node,
                    "shape": list(column.shape),
                    "stored_dtype": column.dtype.name,
                    "dtype": column.given_dtype,
                }
                for column in group.columns
            ],
        }
        for name, group in groups.items()
    }


_MOST = 2**48
"""The length of no axis of a run reaches this."""


def from_json(content: Any, path: str) -> dict[str, Group]:
    """The layout in `run.json`; names that lead out of the folder and lengths below 1 raise an error."""
    try:
        out = {name: _group_from_json(name, entry) for name, entry in content.items()}
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise StoreError(
            f"{path} describes arrays that scirocco cannot have written ({error!r}). Nothing was read from them."
        ) from error
    return out


def _group_from_json(name: str, entry: dict[str, Any]) -> Group:
    if not _GROUP_NAME.fullmatch(name) or name.casefold() == INNER:
        raise ValueError(f"a group named {name!r}")
    num_chains, chunk_draws = int(entry["num_chains"]), int(entry["chunk_draws"])
    if not 1 <= num_chains < _MOST or not 1 <= chunk_draws < _MOST:
        raise ValueError(f"{num_chains} chains, {chunk_draws} draws in a chunk")
    columns = []
    for item in entry["variables"]:
        if not zarr.is_node_name(item["node"]) or item["node"] in ("chain", "draw"):
            raise ValueError(f"a folder named {item['node']!r}")
        shape = tuple(int(length) for length in item["shape"])
        if any(not 0 <= length < _MOST for length in shape):
            raise ValueError(f"a variable of shape {shape}")
        dtype = zarr.stored_dtype(item["stored_dtype"], item["name"])
        columns.append(Column(str(item["name"]), item["node"], shape, dtype, str(item["dtype"])))
    return Group(name, num_chains, chunk_draws, tuple(columns))
