"""Auxiliary draws of a log likelihood that takes a key: their law, and those of a batch in what a sampler is given.

Rows are y = z + e with z ~ N(θ, 1) that is not observed and e ~ N(0, 1/4): given y and θ, z ~ N((θ + 4y) / 5, 1/5).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import own_samplers
import scirocco as sc
from scirocco.errors import InvalidTypeError, InvalidValueError

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

ROWS = 60
Y = np.linspace(-2.0, 4.0, ROWS).astype(np.float32)
WEIGHTS = np.linspace(1.0, 3.0, ROWS)


def drawn(theta, y, key):
    return jax.lax.stop_gradient((theta + 4 * y) / 5 + jnp.sqrt(0.2) * jax.random.normal(key))


def log_joint(theta, y, key):
    z = drawn(theta, y, key)
    return -0.5 * (z - theta) ** 2 - 2.0 * (y - z) ** 2, {"z": z, "y": y}


def log_joint_alone(theta, y, key):
    return log_joint(theta, y, key)[0]


MODEL = sc.Model(log_joint)
ALONE = sc.Model(log_joint_alone)


class Seen(NamedTuple):
    position: Any
    difference: Any
    latent: Any


@sc.samplers.pytree_dataclass
class Looking(own_samplers.ScaledSGLD):
    """SGLD that compares the gradient with the one that follows from the auxiliary draws: Σ w (z - θ)."""

    needs = sc.samplers.Needs(auxiliary=True)
    chances: Any = None

    def init(self, params, key):
        return Seen(params, jnp.zeros(()), jnp.zeros(()))

    def step(self, state, gradient, noise, number):
        z = gradient.auxiliary["z"]
        numbers = jnp.round((gradient.auxiliary["y"] + 2) / 6 * (ROWS - 1)).astype(int)
        weights = ROWS if self.chances is None else 1 / self.chances[numbers]
        implied = jnp.mean(weights * (z - state.position))
        moved = super().step(own_samplers.Place(state.position), gradient, noise, number)
        return Seen(moved.position, jnp.abs(gradient.total - implied), z.mean())

    def stats(self, state):
        return {"difference": state.difference, "latent": state.latent}


@sc.samplers.pytree_dataclass
class LookingNoise(Looking):
    needs = sc.samplers.Needs(auxiliary=True, noise="diagonal")


def run(sampler, estimator=None, model=MODEL, data=Y, **options):
    options = {"num_samples": 40, "num_chains": 2, "progress": False} | options
    estimator = sc.Minibatch(12) if estimator is None else estimator
    return sc.sample(model, data, jnp.array(0.5), sampler=sampler, estimator=estimator, **options)


def test_auxiliary_draws_have_their_law(seed):
    """Standardised they are normal: all moments up to the fourth, within 6 standard errors of 40,000 draws."""
    rows, theta = np.resize(Y, 40_000), jnp.array(0.7)
    found = MODEL.auxiliary(theta, rows, jax.random.key(seed))
    np.testing.assert_array_equal(found["y"], rows)
    u = (np.asarray(found["z"], np.float64) - (0.7 + 4 * rows) / 5) / np.sqrt(0.2)
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(u**power) - mean) < 6 * np.sqrt(variance / len(u)), power
    again = MODEL.auxiliary(theta, rows, jax.random.key(seed + 1))
    assert abs(np.corrcoef(found["z"] - 0.8 * rows, again["z"] - 0.8 * rows)[0, 1]) < 6 / np.sqrt(len(u))


def test_the_gradient_is_that_of_the_likelihood_by_fishers_identity(seed):
    """E[∇ log p(y, z | θ) | y] = ∇ log p(y | θ) = (y - θ) / (1 + 1/4), summed over the rows."""
    keys = jax.random.split(jax.random.key(seed), 4_000)
    theta = jnp.array(0.7)
    found = np.asarray(jax.vmap(lambda key: MODEL.summand.total(theta, Y, None, key))(keys), np.float64)
    exact, sd = np.sum(Y - 0.7) / 1.25, np.sqrt(ROWS * 0.2)
    assert abs(found.mean() - exact) < 6 * sd / np.sqrt(len(keys))


def test_a_chain_is_the_same_with_and_without_them(seed):
    one, other = (run(sc.SGLD(1e-3), model=model, seed=seed) for model in (MODEL, ALONE))
    np.testing.assert_array_equal(one.draws, other.draws)
    kernel = sc.Kernel(MODEL, Y, sc.SGLD(1e-3), sc.Minibatch(12))
    assert kernel.init(jax.random.key(seed), jnp.array(0.5)).gradient.auxiliary is None


@pytest.mark.rotates(2)
@pytest.mark.parametrize("sampler", [Looking(1e-3), LookingNoise(1e-3)], ids=["plain", "noise"])
@pytest.mark.parametrize("where", ["in memory", "streamed"])
def test_a_sampler_is_given_the_draws_behind_its_gradient(sampler, where, seed, tmp_path):
    data = Y
    if where == "streamed":
        np.save(tmp_path / "y.npy", Y)
        sc.data.convert(tmp_path / "y.npy", tmp_path / "data")
        data = tmp_path / "data"
    found = run(sampler, data=data, seed=seed)
    assert found.stats["difference"].max() < 1e-3
    assert np.ptp(found.stats["latent"]) > 0.1
    plain = run(own_samplers.ScaledSGLD(1e-3), data=data, seed=seed)
    if sampler.needs.noise == "none":
        np.testing.assert_array_equal(found.draws, plain.draws)


def test_a_run_that_looks_at_them_is_resumed(seed, tmp_path):
    run(Looking(1e-3), seed=seed, store=tmp_path / "run", num_samples=15)
    part = sc.resume(tmp_path / "run", MODEL, Y, num_samples=40, progress=False)
    whole = run(Looking(1e-3), seed=seed)
    np.testing.assert_array_equal(part.draws, whole.draws)
    np.testing.assert_array_equal(part.stats["latent"], whole.stats["latent"])


@pytest.mark.rotates(2)
@pytest.mark.parametrize(
    "estimator, chances",
    [(sc.Weighted(12, WEIGHTS), WEIGHTS / WEIGHTS.sum()), (sc.Stratified(12, np.arange(ROWS) % 3), None)],
    ids=["weighted", "stratified"],
)
def test_rows_that_are_weighted_have_auxiliary_draws(estimator, chances):
    found = run(Looking(1e-3, chances=chances), estimator)
    assert found.stats["difference"].max() < 1e-3 and np.ptp(found.stats["latent"]) > 0.1


@pytest.mark.parametrize("estimator", [sc.Full(), sc.SVRG(12), sc.SAGA(12)])
def test_other_estimators_are_refused(estimator):
    with pytest.raises(InvalidValueError, match="from passes or differences"):
        run(Looking(1e-3), estimator)


def test_models_without_them_are_refused():
    with pytest.raises(InvalidTypeError, match="returns \\(value, auxiliary\\)"):
        run(Looking(1e-3), model=ALONE)
    with pytest.raises(InvalidTypeError, match="returns \\(value, auxiliary\\)"):
        sc.Model(lambda theta, y: -((y - theta) ** 2)).auxiliary(0.0, Y, jax.random.key(0))
    with pytest.raises(InvalidValueError, match="got a tuple"):
        run(sc.SGLD(1e-3), model=sc.Model(lambda theta, y: (-((y - theta) ** 2), y)))
    together = sc.Model(lambda theta, y, key: (-((y - theta) ** 2), y), vectorized=True)
    with pytest.raises(InvalidValueError, match="belongs to one row"):
        run(sc.SGLD(1e-3), model=together)
    with pytest.raises(InvalidTypeError, match="more than an estimate"):
        sc.Blocks({"theta": Looking(1e-3)})
