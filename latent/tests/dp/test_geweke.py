"""Rows drawn given the state, and the state moved given the rows, leave the law of the prior (Geweke 2004)."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from scipy import integrate, stats

pytest.importorskip("numba", reason="mixtures need numba (the extra `compiled`)")

from partitions import furthest, law_of_num_clusters
from scirocco_latent.dp import arrays, settings
from scirocco_latent.dp.collapsed import Collapsed
from scirocco_latent.dp.estimator import chain_of
from scirocco_latent.dp.families import MultinomialFamily
from scirocco_latent.dp.rows import count_rows

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


def rows_given(chain: Any, rng: np.random.Generator) -> np.ndarray:
    """x_i ~ Multinomial(L, θ_{z_i}); where θ is integrated out it is drawn from the prior."""
    if isinstance(chain, Collapsed):
        thetas = rng.dirichlet(np.full(CATEGORIES, A), chain.used)
    else:
        gammas = chain.parameters[0][:, : chain.num].T
        thetas = gammas / gammas.sum(axis=1, keepdims=True)
    return np.array([rng.multinomial(EVENTS, thetas[label]) for label in chain.labels])


def give(chain: Any, X: np.ndarray) -> None:
    """Other rows, the same labels."""
    from scirocco_latent.dp import _collapsed

    chain.data = chain.family.kernel_data(count_rows(X))
    _collapsed.clear_all(chain.data, chain.clusters)
    _collapsed.count_all(chain.data, chain.labels, chain.clusters)


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
    chosen = settings.resolve({"device": "cpu", **GIVEN, **changes}, "multinomial", NUM_ROWS)
    rows = count_rows(rng.multinomial(EVENTS, np.full(CATEGORIES, 1 / CATEGORIES), NUM_ROWS))
    chain = chain_of(rows, family, chosen, seed, 0)
    found = []
    for _ in range(num + 200):
        X = rows_given(chain, rng)
        give(chain, X)
        chain.advance(1)
        k, alpha, labels = chain.num_clusters, chain.alpha, chain.labels
        agree = np.mean(X[0] @ X[1]) / EVENTS**2
        found.append([k, k == 1, k == 2, k >= 5, alpha, 1 / (1 + alpha), labels[0] == labels[3], agree])
    law = np.array([over_prior(lambda a, k=k: law_of_num_clusters(NUM_ROWS, a)[k]) for k in range(NUM_ROWS + 1)])
    together = over_prior(lambda a: 1 / (1 + a))
    same = (A + 1) / (A * CATEGORIES + 1)
    truth = [law @ np.arange(NUM_ROWS + 1), law[1], law[2], law[5:].sum(), PRIOR[0] / PRIOR[1], together, together]
    truth.append(together * same + (1 - together) / CATEGORIES)
    assert furthest(np.array(found[200:], float), truth) < 5.5


COPIES, CAPACITY = 2_000, 32


def counts_of(rng: np.random.Generator, labels: np.ndarray) -> tuple[Any, tuple[np.ndarray, ...]]:
    """Parameters from the prior, and rows of three events given labels (copy, row)."""
    theta = rng.dirichlet(np.full(CATEGORIES, A), (COPIES, CAPACITY))
    own = np.take_along_axis(theta, labels[..., None], axis=1)
    events = (rng.random((*labels.shape, EVENTS, 1)) > np.cumsum(own, axis=-1)[:, :, None]).sum(axis=-1)
    events = np.minimum(events, CATEGORIES - 1).astype(np.int32)
    prior = np.full(COPIES, A, np.float32)
    return arrays.CountArrays(((events, np.ones_like(events)),), prior, CATEGORIES), (np.log(theta),)


def normals_of(rng: np.random.Generator, labels: np.ndarray) -> tuple[Any, tuple[np.ndarray, ...]]:
    """Parameters from the prior, and rows of two real numbers given labels (copy, row)."""
    strength, shape, rate = 0.4, 2.5, np.array([0.7, 2.0])
    precisions = rng.gamma(shape, 1.0 / rate, (COPIES, CAPACITY, 2))
    means = rng.normal(0.0, 1.0 / np.sqrt(strength * precisions))
    mean, precision = (np.take_along_axis(part, labels[..., None], axis=1) for part in (means, precisions))
    values = rng.normal(mean, 1.0 / np.sqrt(precision))
    given = (values, *(np.broadcast_to(part, (COPIES, *np.shape(part))) for part in (strength, shape, rate)))
    return arrays.Normals(*(np.asarray(part, np.float32) for part in given)), (means, precisions)


def answers(rows: Any, labels: np.ndarray, alpha: np.ndarray, parameters: Any) -> np.ndarray:
    """What labels, concentration, parameters and rows are asked together (copy, question)."""
    own = [np.take_along_axis(np.asarray(part), labels[..., None], axis=1) for part in parameters]
    if len(own) == 1:
        events = rows.blocks[0][0]
        fit, spread = (np.take_along_axis(own[0], events, axis=2).mean(axis=2), np.exp(2.0 * own[0]).sum(axis=2))
        alike = np.mean(events[:, 0, :, None] == events[:, 1, None, :], axis=(1, 2))
    else:
        fit = (0.5 * np.log(own[1]) - 0.5 * own[1] * (rows.values - own[0]) ** 2).mean(axis=2)
        spread = np.log(own[1]).mean(axis=2)
        alike = np.exp(-np.abs(rows.values[:, 0] - rows.values[:, 1]).sum(axis=1))
    together, ordered = labels[:, 0] == labels[:, 1], np.sort(labels, axis=1)
    num = 1 + (np.diff(ordered, axis=1) > 0).sum(axis=1)
    asked = [num, num == 1, num >= 4, together, together & (labels[:, 1] == labels[:, 2]), labels[:, 0] == 0]
    asked += [np.minimum(labels, 5).mean(axis=1), alpha, 1 / (1 + alpha), alike * together]
    return np.stack([*asked, fit[:, 0], fit.mean(axis=1), fit[:, 0] * together, spread.mean(axis=1)], axis=1).astype(
        float
    )


@pytest.mark.rotates(2)
@pytest.mark.parametrize("rows_of", [counts_of, normals_of])
def test_joint_law_of_the_slice_sampler_by_arrays(rows_of: Any, seed: int) -> None:
    """Everything from the prior in many copies, two steps given the rows: each answer keeps its mean."""
    rng = np.random.default_rng(seed)
    alpha = rng.gamma(12.0, 1.0 / 16.0, COPIES)
    sticks = rng.beta(1.0, alpha[:, None], (COPIES, CAPACITY))
    left = np.cumprod(1.0 - sticks, axis=1)
    labels = (rng.random((COPIES, NUM_ROWS, 1)) < left[:, None, :]).sum(axis=2).astype(np.int32)
    rows, parameters = rows_of(rng, np.minimum(labels, CAPACITY - 1))
    zeros = [np.zeros_like(part, np.float32) for part in parameters]
    state = arrays.DeviceState(labels, alpha.astype(np.float32), np.zeros_like(left, np.float32), tuple(zeros))
    step = jax.jit(jax.vmap(arrays.make_step, in_axes=(0, None, 0, 0)))
    before = answers(rows, labels, alpha, parameters)
    for words in rng.integers(0, 1 << 32, (2, COPIES, 2), dtype=np.uint32):
        state, enough = step(rows, np.array([12.0, 16.0], np.float32), words, state)
        assert np.all(enough)
    after = answers(rows, np.asarray(state.labels), np.asarray(state.alpha), state.parameters)
    change = after - before
    z = change.mean(axis=0) / (change.std(axis=0) / np.sqrt(COPIES))
    assert np.all(np.abs(z) < 5), z
