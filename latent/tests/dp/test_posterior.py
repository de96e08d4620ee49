"""Labels have the exact posterior law, by enumeration of all partitions of a few rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partitions
from scirocco_latent.dp import settings
from scirocco_latent.dp.estimator import chain_of
from scirocco_latent.dp.families import Gaussian, Multinomial

pytestmark = pytest.mark.law

pytest.importorskip("numba")

COUNTS = np.array([[2, 0, 0], [3, 1, 0], [0, 2, 0], [0, 1, 20], [0, 0, 1]])
REAL = np.array([[0.1, 1.0], [0.4, 0.8], [-1.2, 0.1], [-0.9, -0.3], [2.0, 1.5]])
GIVEN: dict[str, Any] = {
    "sampler": "collapsed",
    "concentration": (2.0, 1.5),
    "batch_size": 3,
    "counts": "auto",
    "step_size": None,
    "stick_step_size": None,
    "refresh_every": 1,
    "refresh_size": 5,
    "initial_clusters": 2,
    "split_merge": 2,
    "keep_clusters": 10,
    "num_threads": 1,
}


def chain(X: Any, base: Any, seed: int, **changes: Any) -> tuple[Any, Any, Any]:
    family = base.resolve(X)
    rows = family.rows(X)
    chosen = settings.resolve({"device": "cpu", **GIVEN, **changes}, family.kind, rows.num_rows)
    return chain_of(rows, family, chosen, seed, 0), family, rows


SAMPLERS = {
    "collapsed": {},
    "collapsed, α given": {"concentration": 0.7},
    "collapsed, no split": {"split_merge": 0},
    "gibbs": {"sampler": "gibbs"},
    "gibbs, α given": {"sampler": "gibbs", "concentration": 0.7},
    "kept counts": {"sampler": "scir"},
    "kept counts, short steps": {"sampler": "scir", "step_size": 0.7},
}


BOTH = ("collapsed", "gibbs", "kept counts", "kept counts, short steps")
"""Moves of which each family has its own; the others are the same for all."""


def questions(family: Any, rows: Any, concentration: Any) -> tuple[dict[Any, int], np.ndarray, np.ndarray]:
    """Numbers of partitions, their probabilities, and what each is asked (partition, question).

    The number of clusters, which rows are together, and whether it is one of the likely.
    """
    law = partitions.posterior(family, rows, concentration)
    labels, probabilities = np.array(list(law)), np.array(list(law.values()))
    pairs = np.triu_indices(labels.shape[1], 1)
    asked = [
        labels.max(axis=1)[:, None] == np.arange(4),
        labels[:, pairs[0]] == labels[:, pairs[1]],
        (np.arange(len(labels))[:, None] == np.flatnonzero(probabilities > 0.04)),
    ]
    place = {found: number for number, found in enumerate(law)}
    return place, probabilities, np.concatenate(asked, axis=1).astype(float)


@pytest.mark.parametrize(
    ("name", "base"), [(name, "multinomial") for name in SAMPLERS] + [(name, "gaussian") for name in BOTH]
)
def test_partitions_have_the_posterior_law(name: str, base: str, seed: int) -> None:
    changes = SAMPLERS[name]
    X, measure = (COUNTS, Multinomial(0.6)) if base == "multinomial" else (REAL, Gaussian(strength=1.0, rate=0.8))
    made, family, rows = chain(X, measure, seed, **changes)
    place, probabilities, asked = questions(family, rows, {**GIVEN, **changes}["concentration"])
    made.advance(100)
    seen = np.empty(6_000, int)
    for number in range(len(seen)):
        made.advance(1)
        seen[number] = place[partitions.canonical(made.labels)]
    expected = probabilities @ asked
    usual = (expected > 0.05) & (expected < 0.95)  # means of rarer answers are not normal
    assert usual.sum() > 8
    assert partitions.furthest(asked[seen][:, usual], expected[usual]) < 5.5
