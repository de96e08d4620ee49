"""Interface between compiled samplers and families of distributions, dispatched on the type of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from scirocco_latent.dp import _counts, _normal
from scirocco_latent.dp._common import Arrays, How, Known

Array = np.ndarray

_PLAIN: Any = {"nogil": True, "error_model": "numpy"}


def _of(data: types.BaseTuple) -> Any:
    """Return the kernels of the family: CSR arrays are counts, one matrix is real rows."""
    return _counts if len(data) == 3 else _normal


def weigh(row: int, data: Arrays, clusters: Arrays, num: int, weights: Array, space: Array) -> None:
    """Multiply weights[k], k < num, by the density of a row in each cluster; up to a common factor."""


def move(row: int, data: Arrays, clusters: Arrays, k: int, sign: int) -> None:
    """Add a row to a cluster (sign 1) or remove it (-1)."""


def copy(data: Arrays, source: Arrays, k: int, target: Arrays, slot: int) -> None:
    """Copy cluster k of `source` to cluster `slot` of `target`."""


def clear(data: Arrays, clusters: Arrays, k: int) -> None:
    """Mark slot k as free."""


def evidence(data: Arrays, clusters: Arrays, k: int) -> Any:
    """log density of all rows of a cluster."""


def advance(data: Arrays, parameters: Arrays, known: Known, how: How, first: int, last: int) -> None:
    """Move the parameters of clusters k < num by one step, in some of their coordinates."""


def rescale(data: Arrays, parameters: Arrays, clusters: Arrays, num: int, seed: Array) -> None:
    """Redraw the auxiliary variables that the parameters do not depend on."""


def born(data: Arrays, parameters: Arrays, clusters: Arrays, k: int, seed: Array) -> None:
    """Draw component k from the prior."""


def settle(data: Arrays, parameters: Arrays, first: int, last: int) -> None:
    """Update the quantities derived from the parameters of the clusters `first` to `last`."""


@overload(weigh, jit_options=_PLAIN, strict=False)
def _weigh(
    row: types.Type,
    data: types.BaseTuple,
    clusters: types.Type,
    num: types.Type,
    weights: types.Type,
    space: types.Type,
) -> Any:
    chosen = _of(data).weigh
    return lambda row, data, clusters, num, weights, space: chosen(row, data, clusters, num, weights, space)


@overload(move, jit_options=_PLAIN, strict=False)
def _move(row: types.Type, data: types.BaseTuple, clusters: types.Type, k: types.Type, sign: types.Type) -> Any:
    chosen = _of(data).move
    return lambda row, data, clusters, k, sign: chosen(row, data, clusters, k, sign)


@overload(copy, jit_options=_PLAIN, strict=False)
def _copy(data: types.BaseTuple, source: types.Type, k: types.Type, target: types.Type, slot: types.Type) -> Any:
    chosen = _of(data).copy
    return lambda data, source, k, target, slot: chosen(source, k, target, slot)


@overload(clear, jit_options=_PLAIN, strict=False)
def _clear(data: types.BaseTuple, clusters: types.Type, k: types.Type) -> Any:
    chosen = _of(data).clear
    return lambda data, clusters, k: chosen(clusters, k)


@overload(evidence, jit_options=_PLAIN, strict=False)
def _evidence(data: types.BaseTuple, clusters: types.Type, k: types.Type) -> Any:
    chosen = _of(data).evidence
    return lambda data, clusters, k: chosen(clusters, k)


@overload(advance, jit_options=_PLAIN, strict=False)
def _advance(
    data: types.BaseTuple,
    parameters: types.Type,
    known: types.Type,
    how: types.Type,
    first: types.Type,
    last: types.Type,
) -> Any:
    chosen = _of(data).advance
    return lambda data, parameters, known, how, first, last: chosen(parameters, known, how, first, last)


@overload(rescale, jit_options=_PLAIN, strict=False)
def _rescale(
    data: types.BaseTuple, parameters: types.Type, clusters: types.Type, num: types.Type, seed: types.Type
) -> Any:
    chosen = _of(data).rescale
    return lambda data, parameters, clusters, num, seed: chosen(parameters, clusters, num, seed)


@overload(born, jit_options=_PLAIN, strict=False)
def _born(data: types.BaseTuple, parameters: types.Type, clusters: types.Type, k: types.Type, seed: types.Type) -> Any:
    chosen = _of(data).born
    return lambda data, parameters, clusters, k, seed: chosen(parameters, clusters, k, seed)


@overload(settle, jit_options=_PLAIN, strict=False)
def _settle(data: types.BaseTuple, parameters: types.Type, first: types.Type, last: types.Type) -> Any:
    chosen = _of(data).settle
    return lambda data, parameters, first, last: chosen(parameters, first, last)
