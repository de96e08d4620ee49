r"""Predictions of a mixture from its draws.

Given a draw (ω, θ) a row has the density

.. math:: p(x) = Σ_j ω_j f(x | θ_j) + ω_{rest} ∫ f(x | θ) dG_0(θ),

where the last term stands for all clusters without rows, whose parameters have the distribution G₀.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from scirocco_latent.dp.families import BaseMeasure
from scirocco_latent.dp.rows import Array, RowsT


def log_joint(family: BaseMeasure[RowsT], rows: RowsT, draw: dict[str, Array]) -> Array:
    """log ω_j f(x | θ_j), (rows, clusters of the draw + 1); the last column stands for clusters without rows."""
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


def log_predictive(family: BaseMeasure[RowsT], rows: RowsT, draw: dict[str, Array]) -> Array:
    """log p(x) of each row given one draw."""
    return log_sum(log_joint(family, rows, draw), axis=1)


def memberships(family: BaseMeasure[RowsT], rows: RowsT, draw: dict[str, Array]) -> Array:
    """P(row is in cluster j | draw), (rows, clusters of the draw + 1)."""
    logs = log_joint(family, rows, draw)
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    out: Array = shares / shares.sum(axis=1, keepdims=True)
    return out


# -- one set of labels for all draws
#
# Cluster labels are not identified: cluster 3 of one draw may be cluster 5 of the next, or parts of two. We choose
# as reference the draw whose co-clustering of some rows has the least squared distance to the posterior mean (Dahl
# 2006). Cluster c of any other draw is divided among the clusters r of the reference in proportion to its rows,
#
# .. math:: A_{cr} = Σ_i p_{ic} p^{ref}_{ir} \big/ Σ_i p_{ic},
#
# with p the membership probabilities of those rows. Rows of A sum to one, so that probabilities stay probabilities.


_FEW = 3.0  # rows of a cluster that are too few to translate it by them


class ReferenceDraw(NamedTuple):
    """The draw that defines the labels, and the translations of the other draws."""

    draw: int
    num_clusters: int
    translations: list[Array]
    """A of each draw, (its clusters, clusters of the reference)."""


def choose(
    family: BaseMeasure[RowsT], rows: RowsT, draws: Callable[[int], dict[str, Array]], num_draws: int
) -> ReferenceDraw:
    """Choose the reference draw, based on the co-clustering of some rows."""
    known = [_known(memberships(family, rows, draws(number))) for number in range(num_draws)]
    mean = np.zeros((rows.num_rows, rows.num_rows))
    for shares in known:
        mean += (shares @ shares.T) / num_draws
    best = int(np.argmin([float(np.sum((shares @ shares.T - mean) ** 2)) for shares in known]))
    reference = draws(best)
    made = [
        _translation(family, rows, draws(number), reference, shares, known[best]) for number, shares in enumerate(known)
    ]
    return ReferenceDraw(best, known[best].shape[1], made)


def _known(shares: Array) -> Array:
    """Memberships given that a row is in a cluster that has rows."""
    out: Array = shares[:, :-1] / np.maximum(shares[:, :-1].sum(axis=1, keepdims=True), 1e-300)
    return out


def _translation(
    family: BaseMeasure[RowsT],
    rows: RowsT,
    draw: dict[str, Array],
    reference: dict[str, Array],
    shares: Array,
    known: Array,
) -> Array:
    """Compute A; clusters with hardly any of the rows are divided as a typical row of theirs would be."""
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


def translated(family: BaseMeasure[RowsT], rows: RowsT, draw: dict[str, Array], translation: Array) -> Array:
    """Memberships in the clusters of the reference by another draw, (rows, clusters)."""
    return _known(memberships(family, rows, draw)) @ translation


# -- credible intervals of the parameters of clusters, whose labels differ between draws


def ends(
    draw: Callable[[int], dict[str, Array]],
    weights: Callable[[int], Array],
    translations: Sequence[Array],
    names: Sequence[str],
    columns: Array,
    tails: Sequence[float],
) -> dict[str, Array]:
    """{parameter: (tail, clusters, n)} for n columns of each cluster of the reference, (clusters, n).

    In each draw a cluster of the reference has the average of the clusters matched to it by `translations` (see
    `scirocco_latent.dp.prediction`); a draw is weighted by the total weight matched.
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
    """Averages (clusters of the reference, n) of the parameters `values` (clusters of one draw, columns)."""
    shares = shared / np.maximum(shared.sum(axis=0), 1e-300)
    return np.stack([share @ values[:, chosen] for share, chosen in zip(shares.T, columns, strict=True)])


def weighted_quantiles(values: Array, weights: Array, tails: Sequence[float]) -> Array:
    """Quantiles (tail, clusters, n) of values (draw, clusters, n) with weights (draw, clusters).

    The smallest value at which the cumulative weight reaches the tail probability; NaN if all weights are zero.
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
