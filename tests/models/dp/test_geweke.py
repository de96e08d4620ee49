"""Rows drawn given the state, and the state moved given the rows, leave the law of the prior (Geweke 2004)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

pytest.importorskip("numba", reason="mixtures need numba (the extra `compiled`)")

from partitions import furthest, law_of_num_clusters
from scirocco.models.dp import settings
from scirocco.models.dp.chain import MixtureChain
from scirocco.models.dp.collapsed import Collapsed
from scirocco.models.dp.families import MultinomialFamily
from scirocco.models.dp.rows import count_rows

pytestmark = pytest.mark.law

NUM_ROWS, EVENTS, CATEGORIES, A = 6, 3, 4, 0.8
PRIOR = (2.0, 1.0)
GIVEN: dict[str, Any] = {
    "concentration": PRIOR,
    "batch_size": NUM_ROWS,
    "counts": "auto",
    "step_size": None,
    "stick_step_size": None,
    "refresh_every": 1,
    "refresh_size": NUM_ROWS,
    "initial_clusters": 3,
    "split_merge": 1,
    "keep_clusters": 10,
    "num_threads": 1,
}


def over_prior(function: Any) -> float:
    density = stats.gamma(PRIOR[0], scale=1.0 / PRIOR[1]).pdf
    return float(integrate.quad(lambda alpha: function(alpha) * density(alpha), 0, np.inf)[0])


def rows_given(engine: Any, rng: np.random.Generator) -> np.ndarray:
    """x_i ~ Multinomial(L, θ_{z_i}); where θ is integrated out it is drawn from the prior."""
    if isinstance(engine, Collapsed):
        thetas = rng.dirichlet(np.full(CATEGORIES, A), engine.used)
    else:
        gammas = engine.parameters[0][:, : engine.num].T
        thetas = gammas / gammas.sum(axis=1, keepdims=True)
    return np.array([rng.multinomial(EVENTS, thetas[label]) for label in engine.labels])


def give(engine: Any, X: np.ndarray) -> None:
    """Other rows, the same labels."""
    from scirocco.models.dp import _collapsed

    engine.data = engine.family.kernel_data(count_rows(X))
    _collapsed.clear_all(engine.data, engine.clusters)
    _collapsed.count_all(engine.data, engine.labels, engine.clusters)


SAMPLERS = {
    "collapsed": ({"sampler": "collapsed", "batch_size": 4}, 5_000),
    "gibbs": ({"sampler": "gibbs"}, 5_000),
    "all rows, short steps": ({"sampler": "scir", "step_size": 0.2}, 8_000),
    "kept counts": ({"sampler": "scir", "batch_size": 3}, 5_000),
}


@pytest.mark.rotates(2)
@pytest.mark.parametrize("name", SAMPLERS)
def test_joint_law(name: str, seed: int) -> None:
    changes, num = SAMPLERS[name]
    rng = np.random.default_rng(seed)
    family = MultinomialFamily(A, CATEGORIES)
    chosen = settings.resolve({**GIVEN, **changes}, "multinomial", NUM_ROWS)
    rows = count_rows(rng.multinomial(EVENTS, np.full(CATEGORIES, 1 / CATEGORIES), NUM_ROWS))
    chain = MixtureChain(rows, family, chosen, seed, 0)
    found = []
    for _ in range(num + 200):
        X = rows_given(chain.engine, rng)
        give(chain.engine, X)
        chain.advance(1)
        k, alpha, labels = chain.engine.num_clusters, chain.engine.alpha, chain.engine.labels
        agree = np.mean(X[0] @ X[1]) / EVENTS**2
        found.append([k, k == 1, k == 2, k >= 5, alpha, 1 / (1 + alpha), labels[0] == labels[3], agree])
    law = np.array(
        [over_prior(lambda a, k=k: law_of_num_clusters(NUM_ROWS, a)[k]) for k in range(NUM_ROWS + 1)]
    )
    together = over_prior(lambda a: 1 / (1 + a))
    same = (A + 1) / (A * CATEGORIES + 1)
    truth = [
        law @ np.arange(NUM_ROWS + 1),
        law[1],
        law[2],
        law[5:].sum(),
        PRIOR[0] / PRIOR[1],
        together,
        together,
    ]
    truth.append(together * same + (1 - together) / CATEGORIES)
    assert furthest(np.array(found[200:], float), truth) < 5.5
