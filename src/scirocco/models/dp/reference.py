r"""One set of labels for all draws.

Clusters have no names: cluster 3 of one draw may be cluster 5 of the next, or two in one. So a draw is chosen as
reference, the one whose co-clustering of some rows is nearest to the posterior mean in squares (Dahl 2006), and cluster
c of any other draw is shared out among its clusters r as rows are,

.. math:: A_{cr} = Σ_i p_{ic} p^{ref}_{ir} \big/ Σ_i p_{ic},

with p the membership probabilities of those rows. Rows of A sum to one, so that probabilities stay probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from scirocco.models.dp.prediction import memberships

Array = np.ndarray[Any, np.dtype[Any]]

_FEW = 3.0


class Reference(NamedTuple):
    """A draw whose clusters give the labels, and how others are translated."""

    draw: int
    num_clusters: int
    translations: list[Array]
    """A of each draw, (its clusters, clusters of the reference)."""


def choose(family: Any, rows: Any, draws: Callable[[int], dict[str, Array]], num_draws: int) -> Reference:
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
    family: Any, rows: Any, draw: dict[str, Array], reference: dict[str, Array], shares: Array, known: Array
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


def translated(family: Any, rows: Any, draw: dict[str, Array], translation: Array) -> Array:
    """Memberships in the clusters of the reference by another draw, (rows, clusters)."""
    return _known(memberships(family, rows, draw)) @ translation
