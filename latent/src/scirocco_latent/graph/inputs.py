"""Edges as users have them: lists, tables, files, data folders, streams, sparse matrices, networkx and igraph."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco.data.values import Frame, Sparse, as_csr, as_numpy, named_columns
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.inputs.files import read_table

Array = np.ndarray[Any, np.dtype[Any]]


@runtime_checkable
class _Networkx(Protocol):
    """A graph of networkx."""

    def is_directed(self) -> bool: ...

    def is_multigraph(self) -> bool: ...

    @property
    def nodes(self) -> Any: ...

    @property
    def edges(self) -> Any: ...


@runtime_checkable
class _Igraph(Protocol):
    """A graph of igraph."""

    def is_directed(self) -> bool: ...

    def get_edgelist(self) -> list[tuple[int, int]]: ...

    def vcount(self) -> int: ...

    @property
    def vs(self) -> Any: ...

    @property
    def es(self) -> Any: ...


GraphLike = ArrayLike | Frame | Sparse | _Networkx | _Igraph | str | os.PathLike[str] | Sequence[Any] | Iterator[Any]
"""Edges (edges, 2), or (edges, 3) with weights, a table, file or folder, batches, a sparse matrix, networkx, igraph."""


class Raw(NamedTuple):
    """Ends as the user names them."""

    source: Array
    target: Array
    weight: Array | None
    nodes: list[Any] | None
    """All nodes, if the input says so."""
    directed: bool
    is_table: bool = False
    """Whether ends are columns of a table: if one of them has a text, all names are texts."""


def raw_edges(graph: Any) -> Raw:
    """The ends of edges as the user names them."""
    if isinstance(graph, (str, os.PathLike)):
        graph = read_table(_checks.path(graph, "graph"), folders=True)
    if isinstance(graph, Sparse):
        return _matrix(graph)
    if isinstance(graph, _Igraph):
        return _igraph(graph)
    if isinstance(graph, _Networkx) and not isinstance(graph, np.ndarray):
        return _networkx(graph)
    if isinstance(graph, Iterator):
        return _batches(graph)
    if (named := named_columns(graph)) is not None or isinstance(graph, Frame):
        columns = {name: graph[name] for name in graph.columns} if named is None else named
        parts = [as_numpy(column, f"column {name!r}") for name, column in columns.items()]
        return _columns(parts)._replace(is_table=True)
    if isinstance(graph, (list, tuple)):  # pairs of any names: NumPy would make texts of mixed numbers and texts
        if not graph:
            raise InvalidValueError("the network is empty: it has no edges.")
        widths = {len(row) if isinstance(row, (list, tuple, np.ndarray)) else -1 for row in graph}
        if len(widths) > 1 or not widths <= {2, 3}:
            raise InvalidValueError(
                "a list of edges must have pairs (source, target), or triples (source, target, weight), got rows of "
                f"lengths {', '.join('no list' if w < 0 else str(w) for w in sorted(widths))}."
            )
        return _columns([_listed(column) for column in zip(*graph, strict=True)])
    if isinstance(graph, (Mapping, Set)) or graph is None:
        raise InvalidTypeError(
            f"a network cannot be read from {'None' if graph is None else f'a {type(graph).__name__}'}: pass a list of "
            "edges (source, target), an array, a table, a file, a SciPy sparse matrix, or a networkx or igraph graph."
        )
    array = as_numpy(graph, "the edges")
    if array.ndim != 2 or array.shape[1] not in (2, 3):
        hint = " Pass an adjacency matrix as scipy.sparse.csr_array(matrix)." if array.ndim == 2 else ""
        raise InvalidValueError(
            f"edges must have the shape (edges, 2), or (edges, 3) with weights, got {array.shape}.{hint}"
        )
    if array.shape in ((2, 2), (3, 3)) and _like_adjacency(array):
        raise InvalidValueError(
            f"an array of shape {array.shape} that is symmetric with a diagonal of zeros can be edges or an adjacency "
            "matrix: pass scipy.sparse.csr_array(matrix), or a list of edges."
        )
    return _columns([array[:, k] for k in range(array.shape[1])])


def _like_adjacency(array: Array) -> bool:
    return array.dtype.kind in "biuf" and bool(np.array_equal(array, array.T) and not np.diagonal(array).any())


def _listed(column: Sequence[Any]) -> Array:
    """A column of a list of edges; names of several types stay what they are."""
    types = {type(value) for value in column}
    if types == {str}:
        return as_numpy(list(column), "the edges")
    if all(issubclass(each, (int, np.integer)) and each is not bool for each in types):
        numbers = np.array(column)
        if numbers.dtype.kind in "iu":  # not those that only double precision or objects hold together
            return numbers
    return np.array([*column, None], object)[:-1]


def _batches(batches: Iterator[Any]) -> Raw:
    """All edges of a stream of edges, or of batches of them."""
    given = [batch for batch in batches if not is_empty(batch)]
    if given and all(isinstance(one, (list, tuple)) and np.isscalar(one[0]) for one in given):
        return raw_edges(given)
    parts = [raw_edges(batch) for batch in given]
    if not parts:
        raise InvalidValueError("the network is empty: the iterator has no edges.")
    if any(part.nodes is not None for part in parts):
        raise InvalidValueError("an iterator must give batches of edges, (edges, 2) or (edges, 3) with weights.")
    if len({part.weight is None for part in parts}) > 1:
        raise InvalidValueError("some batches of edges have weights, and others do not: give all of them weights.")
    weight = None if parts[0].weight is None else np.concatenate([_wide(part.weight) for part in parts])
    ends = [np.concatenate([_wide(part[k]) for part in parts]) for k in (0, 1)]
    return Raw(ends[0], ends[1], weight, None, False, any(part.is_table for part in parts))


def _wide(values: Any) -> Array:
    """Numbers as they are; texts as objects, which NumPy does not cut or turn into numbers."""
    return values if values.dtype.kind in "iuf" else values.astype(object)


def is_empty(batch: Any) -> bool:
    """Whether a batch has no edges."""
    return isinstance(batch, (list, tuple, np.ndarray)) and not len(batch)


def _columns(columns: list[Array]) -> Raw:
    if len(columns) not in (2, 3):
        raise InvalidValueError(
            "a table of edges must have two columns, source and target, or a third one with weights, got "
            f"{len(columns)}. Choose them: table[['source', 'target']], on the command line --columns source,target."
        )
    return Raw(columns[0], columns[1], columns[2] if len(columns) == 3 else None, None, False)


def _matrix(matrix: Any) -> Raw:
    rows = as_csr(matrix, "the matrix")
    if rows.shape[0] != rows.shape[1]:
        raise InvalidValueError(f"an adjacency matrix must be square, got the shape {rows.shape}.")
    entries = rows.tocoo()
    symmetric = (rows != rows.T).nnz == 0
    source, target, weight = entries.row.astype(np.int64), entries.col.astype(np.int64), entries.data
    if symmetric:  # each edge once
        once = source <= target
        source, target, weight = source[once], target[once], weight[once]
    return Raw(source, target, weight, list(range(rows.shape[0])), not symmetric)


def _igraph(graph: Any) -> Raw:
    pairs = np.array(graph.get_edgelist(), np.int64).reshape(-1, 2)
    names = list(graph.vs["name"]) if "name" in graph.vs.attributes() else list(range(graph.vcount()))
    numbers = np.array([*names, None], object)[:-1]
    weight = np.asarray(graph.es["weight"]) if "weight" in graph.es.attributes() else None
    return Raw(numbers[pairs[:, 0]], numbers[pairs[:, 1]], weight, names, graph.is_directed())


def _networkx(graph: Any) -> Raw:
    edges = list(graph.edges(data="weight"))
    weight = None
    if graph.is_multigraph() or any(w is not None for _, _, w in edges):
        weight = np.array([1 if w is None else w for _, _, w in edges])
    ends = [np.array([*(edge[k] for edge in edges), None], object)[:-1] for k in (0, 1)]
    return Raw(ends[0], ends[1], weight, list(graph.nodes), graph.is_directed())
