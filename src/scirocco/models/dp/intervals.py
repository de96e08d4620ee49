"""Credible intervals of the parameters of clusters, which no two draws have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def ends(
    draw: Callable[[int], dict[str, Array]],
    weights: Callable[[int], Array],
    translations: Sequence[Array],
    names: Sequence[str],
    columns: Array,
    tails: Sequence[float],
) -> dict[str, Array]:
    """{parameter: (tail, clusters, n)} for n columns of each cluster of the reference, (clusters, n).

    In each draw a cluster of the reference has the average of the clusters that are shared out to it (`translations`,
    see `scirocco.models.dp.reference`); a draw counts by how much that is.
    """
    masses, found = [], {name: list[Array]() for name in names}
    for number, translation in enumerate(translations):
        shared = weights(number)[:, None] * translation
        masses.append(shared.sum(axis=0))
        drawn = draw(number)
        for name, each in found.items():
            each.append(_averages(shared, np.asarray(drawn[name][: len(shared)], np.float64), columns))
    counts = np.array(masses)
    return {name: weighted_quantiles(np.array(each), counts, tails) for name, each in found.items()}


def _averages(shared: Array, values: Array, columns: Array) -> Array:
    """(clusters of the reference, n), of the parameters `values` (clusters of one draw, columns)."""
    shares = shared / np.maximum(shared.sum(axis=0), 1e-300)
    return np.stack([share @ values[:, chosen] for share, chosen in zip(shares.T, columns, strict=True)])


def weighted_quantiles(values: Array, weights: Array, tails: Sequence[float]) -> Array:
    """(tail, clusters, n) of values (draw, clusters, n) that count by weights (draw, clusters).

    The least value up to which that share of the weight lies; nan where there is no weight at all.
    """
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    spread = np.broadcast_to(weights[..., None], values.shape)
    below = np.cumsum(np.take_along_axis(spread, order, axis=0), axis=0)
    found = []
    for tail in tails:
        place = np.argmax(below >= tail * below[-1] * (1 - 1e-12), axis=0)
        found.append(np.take_along_axis(ordered, place[None], axis=0)[0])
    out: Array = np.where(below[-1] > 0, np.stack(found), np.nan)
    return out
