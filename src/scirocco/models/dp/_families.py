"""What compiled samplers ask of a family of distributions; the kind of rows decides which answers."""

from __future__ import annotations

from typing import Any

from numba.extending import overload

from scirocco.models.dp import _counts, _normal

_PLAIN: Any = {"nogil": True, "error_model": "numpy"}


def _of(data: Any) -> Any:
    """CSR arrays are counts, one matrix is real rows."""
    return _counts if len(data) == 3 else _normal


def weigh(row: Any, data: Any, clusters: Any, num: Any, weights: Any, space: Any) -> None:
    """Multiply weights[k], k < num, by the density of a row in each cluster; up to a common factor."""


def move(row: Any, data: Any, clusters: Any, k: Any, sign: Any) -> None:
    """A row joins a cluster (sign 1) or leaves it (-1)."""


def copy(data: Any, source: Any, k: Any, target: Any, slot: Any) -> None:
    """Cluster k of `source` becomes cluster `slot` of `target`."""


def clear(data: Any, clusters: Any, k: Any) -> None:
    """A free slot."""


def evidence(data: Any, clusters: Any, k: Any) -> Any:
    """log of the density of all rows of a cluster."""


def advance(
    data: Any,
    parameters: Any,
    clusters: Any,
    scale: Any,
    reference: Any,
    reference_scale: Any,
    num: Any,
    method: Any,
    step: Any,
    seed: Any,
    first: Any,
    last: Any,
) -> None:
    """A step of the parameters of clusters k < num, in some of their coordinates."""


def rescale(data: Any, parameters: Any, clusters: Any, num: Any, seed: Any) -> None:
    """Draw anew what the parameters do not depend on."""


def born(data: Any, parameters: Any, clusters: Any, k: Any, seed: Any) -> None:
    """A component from the prior."""


def settle(data: Any, parameters: Any, first: Any, last: Any) -> None:
    """What follows from the parameters of the clusters `first` to `last`."""


@overload(weigh, jit_options=_PLAIN, strict=False)
def _weigh(row: Any, data: Any, clusters: Any, num: Any, weights: Any, space: Any) -> Any:
    chosen = _of(data).weigh
    return lambda row, data, clusters, num, weights, space: chosen(row, data, clusters, num, weights, space)


@overload(move, jit_options=_PLAIN, strict=False)
def _move(row: Any, data: Any, clusters: Any, k: Any, sign: Any) -> Any:
    chosen = _of(data).move
    return lambda row, data, clusters, k, sign: chosen(row, data, clusters, k, sign)


@overload(copy, jit_options=_PLAIN, strict=False)
def _copy(data: Any, source: Any, k: Any, target: Any, slot: Any) -> Any:
    chosen = _of(data).copy
    return lambda data, source, k, target, slot: chosen(source, k, target, slot)


@overload(clear, jit_options=_PLAIN, strict=False)
def _clear(data: Any, clusters: Any, k: Any) -> Any:
    chosen = _of(data).clear
    return lambda data, clusters, k: chosen(clusters, k)


@overload(evidence, jit_options=_PLAIN, strict=False)
def _evidence(data: Any, clusters: Any, k: Any) -> Any:
    chosen = _of(data).evidence
    return lambda data, clusters, k: chosen(clusters, k)


@overload(advance, jit_options=_PLAIN, strict=False)
def _advance(
    data: Any,
    parameters: Any,
    clusters: Any,
    scale: Any,
    reference: Any,
    reference_scale: Any,
    num: Any,
    method: Any,
    step: Any,
    seed: Any,
    first: Any,
    last: Any,
) -> Any:
    chosen = _of(data).advance
    return (
        lambda data, parameters, clusters, scale, reference, reference_scale, num, method, step, seed, first, last: (
            chosen(
                parameters, clusters, scale, reference, reference_scale, num, method, step, seed, first, last
            )
        )
    )


@overload(rescale, jit_options=_PLAIN, strict=False)
def _rescale(data: Any, parameters: Any, clusters: Any, num: Any, seed: Any) -> Any:
    chosen = _of(data).rescale
    return lambda data, parameters, clusters, num, seed: chosen(parameters, clusters, num, seed)


@overload(born, jit_options=_PLAIN, strict=False)
def _born(data: Any, parameters: Any, clusters: Any, k: Any, seed: Any) -> Any:
    chosen = _of(data).born
    return lambda data, parameters, clusters, k, seed: chosen(parameters, clusters, k, seed)


@overload(settle, jit_options=_PLAIN, strict=False)
def _settle(data: Any, parameters: Any, first: Any, last: Any) -> Any:
    chosen = _of(data).settle
    return lambda data, parameters, first, last: chosen(parameters, first, last)
