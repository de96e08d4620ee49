"""Topics to spare are merged: each pair of topics in turn that loses the least."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_PIECE = 1 << 12


def merge_topics(table: Array, totals: Array, beta: float, target: int) -> Array:
    """Which of `target` topics each topic becomes, by the counts (words, topics) and their sums over words.

    The cost of a merger is n_i n_j / (n_i + n_j) times the squared Hellinger distance 1 - Σ_w √(ω_iw ω_jw): small for
    topics that are alike, and for topics with few tokens. Affinities of merged topics are averages over their tokens.

    Examples
    --------
    >>> import numpy as np
    >>> table = np.array([[9, 0, 8], [8, 1, 9], [0, 7, 0]])
    >>> merge_topics(table, table.sum(axis=0), 0.1, target=2).tolist()
    [0, 1, 0]
    """
    affinity = _affinities(table, totals, beta)
    weight = totals.astype(np.float64) + 1e-9
    group = np.arange(len(totals))
    cost = _costs(weight, weight[:, None], affinity)
    cost[np.tril_indices(len(totals))] = np.inf
    for _ in range(len(totals) - target):
        i, j = (int(place) for place in np.unravel_index(np.argmin(cost), cost.shape))
        share = weight[j] / (weight[i] + weight[j])
        affinity[i] = affinity[:, i] = (1 - share) * affinity[i] + share * affinity[j]
        weight[i] += weight[j]
        group[group == group[j]] = group[i]
        cost[j], cost[:, j] = np.inf, np.inf
        alive = np.isfinite(cost[i]) | np.isfinite(cost[:, i])
        renewed = np.where(alive, _costs(weight[i], weight, affinity[i]), np.inf)
        cost[i, i + 1 :], cost[:i, i] = renewed[i + 1 :], renewed[:i]
    names: Array = np.unique(group, return_inverse=True)[1]
    return names


def _costs(a: Any, b: Any, affinity: Array) -> Array:
    out: Array = a * b / (a + b) * (1.0 - affinity)
    return out


def _affinities(table: Array, totals: Array, beta: float) -> Array:
    """Σ_w √(ω_iw ω_jw) for all pairs, a piece of the words at a time."""
    scale = 1.0 / (totals + beta * len(table))
    out = np.zeros((len(totals), len(totals)))
    for begin in range(0, len(table), _PIECE):
        roots = np.sqrt((table[begin : begin + _PIECE] + beta) * scale).astype(np.float32)
        out += roots.T @ roots
    return out
