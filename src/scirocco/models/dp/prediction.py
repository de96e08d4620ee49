r"""What draws of a mixture say of rows.

Given a draw (ω, θ) a row has the density

.. math:: p(x) = Σ_j ω_j f(x | θ_j) + ω_{rest} ∫ f(x | θ) dG_0(θ),

where the last term stands for all clusters that have no row: their parameters have the law G₀.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from scirocco.models.dp.families import Family
from scirocco.models.dp.rows import Array, RowsT


def log_joint(family: Family[RowsT], rows: RowsT, draw: dict[str, Array]) -> Array:
    """log ω_j f(x | θ_j), (rows, clusters of the draw + 1); the last column is a cluster without rows."""
    weights = np.asarray(draw["weights"], np.float64)
    num = int(np.count_nonzero(weights))
    out = np.empty((rows.num_rows, num + 1))
    parameters = {name: np.asarray(draw[name][:num]) for name in family.parameters}
    out[:, :num] = family.log_density(rows, parameters) + np.log(weights[:num])
    out[:, num] = family.log_marginal(rows) + np.log(max(float(draw["rest"]), 1e-300))
    return out


def log_sum(logs: Array, axis: int) -> Array:
    """log Σ exp."""
    highest = logs.max(axis=axis, keepdims=True)
    total: Array = np.log(np.sum(np.exp(logs - highest), axis=axis)) + highest.squeeze(axis)
    return total


def log_predictive(family: Family[RowsT], rows: RowsT, draw: dict[str, Array]) -> Array:
    """log p(x) of every row given one draw."""
    return log_sum(log_joint(family, rows, draw), axis=1)


def memberships(family: Family[RowsT], rows: RowsT, draw: dict[str, Array]) -> Array:
    """P(row is in cluster j | draw), (rows, clusters of the draw + 1)."""
    logs = log_joint(family, rows, draw)
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    out: Array = shares / shares.sum(axis=1, keepdims=True)
    return out


# -- one set of labels for all draws
#
# Clusters have no names: cluster 3 of one draw may be cluster 5 of the next, or two in one. So a draw is chosen as
# reference, the one whose co-clustering of some rows is nearest to the posterior mean in squares (Dahl 2006), and
# cluster c of any other draw is shared out among its clusters r as rows are,
#
# .. math:: A_{cr} = Σ_i p_{ic} p^{ref}_{ir} \big/ Σ_i p_{ic},
#
# with p the membership probabilities of those rows. Rows of A sum to one, so that probabilities stay probabilities.


_FEW = 3.0


class Reference(NamedTuple):
    """A draw whose clusters give the labels, and how others are translated."""

    draw: int
    num_clusters: int
    translations: list[Array]
    """A of each draw, (its clusters, clusters of the reference)."""


def choose(
    family: Family[RowsT], rows: RowsT, draws: Callable[[int], dict[str, Array]], num_draws: int
) -> Reference:
    """The reference among draws, judged by some rows."""
    known = [_known(memberships(family, rows, draws(number))) for number in range(num_draws)]
    mean = np.zeros((rows.num_rows, rows.num_rows))
    for shares in known:
        mean += (shares @ shares.T) / num_draws
    best = int(np.argmin([float(np.sum((shares @ shares.T - mean) ** 2)) for shares in known]))
    reference = draws(best)
    made = [
        _translation(family, rows, draws(number), reference, shares, known[best])
        for number, shares in enumerate(known)
    ]
    return Reference(best, known[best].shape[1], made)


def _known(shares: Array) -> Array:
    """Given that a row is in a cluster that has rows."""
    out: Array = shares[:, :-1] / np.maximum(shares[:, :-1].sum(axis=1, keepdims=True), 1e-300)
    return out


def _translation(
    family: Family[RowsT],
    rows: RowsT,
    draw: dict[str, Array],
    reference: dict[str, Array],
    shares: Array,
    known: Array,
) -> Array:
    """A; clusters that hardly any of the rows is in are shared out as a typical row of theirs would be."""
    totals = shares.sum(axis=0)
    out: Array = (shares.T @ known) / np.maximum(totals, 1e-300)[:, None]
    rare = np.flatnonzero(totals < _FEW)
    if rare.size:
        of = {name: np.asarray(draw[name])[rare] for name in family.parameters}
        under = {name: np.asarray(reference[name])[: known.shape[1]] for name in family.parameters}
        weights = np.asarray(reference["weights"], np.float64)[: known.shape[1]]
        logs = family.expected_log_density(rows, of, under) + np.log(weights)
        typical = np.exp(logs - logs.max(axis=1, keepdims=True))
        out[rare] = typical / typical.sum(axis=1, keepdims=True)
    return out


def translated(family: Family[RowsT], rows: RowsT, draw: dict[str, Array], translation: Array) -> Array:
    """Memberships in the clusters of the reference by another draw, (rows, clusters)."""
    return _known(memberships(family, rows, draw)) @ translation


# -- credible intervals of the parameters of clusters, which no two draws have in common


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
    see `scirocco.models.dp.prediction`); a draw counts by how much that is.
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
