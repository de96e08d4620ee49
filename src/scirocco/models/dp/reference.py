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


class Reference(NamedTuple):
    """A draw whose clusters give the labels, and how others are translated."""

    draw: int
    num_clusters: int
    translations: list[Array]
    """A of each draw, (its clusters, clusters of the reference)."""


def choose(family: Any, rows: Any, draws: Callable[[int], dict[str, Array]], num_draws: int) -> Reference:
    """The reference among draws, judged by some rows."""
    known = [_known(memberships(family, rows, draws(number))) for number in range(num_draws)]
    mean = np.mean([shares @ shares.T for shares in known], axis=0)
    distances = [float(np.sum((shares @ shares.T - mean) ** 2)) for shares in known]
    best = int(np.argmin(distances))
    return Reference(best, known[best].shape[1], [_translation(shares, known[best]) for shares in known])


def _known(shares: Array) -> Array:
    """Given that a row is in a cluster that has rows."""
    out: Array = shares[:, :-1] / np.maximum(shares[:, :-1].sum(axis=1, keepdims=True), 1e-300)
    return out


def _translation(shares: Array, reference: Array) -> Array:
    totals = shares.sum(axis=0)
    usual = np.broadcast_to(reference.mean(axis=0), (shares.shape[1], reference.shape[1])).copy()
    return np.divide(shares.T @ reference, totals[:, None], out=usual, where=totals[:, None] > 1e-6)


def translated(family: Any, rows: Any, draw: dict[str, Array], translation: Array) -> Array:
    """Memberships in the clusters of the reference by another draw, (rows, clusters)."""
    return _known(memberships(family, rows, draw)) @ translation
