"""Leaf-scaled SGLD: the running mean, the step sizes that follow from it, and the law once they are frozen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.samplers import SGLD, Gradient, LeafScaledSGLD, schedules

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

SCALES = {"narrow": 0.05, "wide": np.array([3.0, 6.0], np.float32)}
"""Standard deviations of a Gaussian."""
STEP, FREEZE, AFTER, CHAINS = 0.03, 30, 40, 4_000


def gradient_at(position):
    return {name: -position[name] / SCALES[name] ** 2 for name in SCALES}


@pytest.fixture(scope="module")
def chains():
    """Many chains that begin in the target; positions and squares after each step of the first, ends of all."""
    sampler = LeafScaledSGLD(STEP, freeze_after=FREEZE)

    @jax.jit
    def run(key):
        def one(key):
            first, rest = jax.random.split(key)
            normals = jax.random.normal(first, (3,))
            start = {"narrow": normals[0] * SCALES["narrow"], "wide": normals[1:] * SCALES["wide"]}

            def step(state, number):
                gradient = Gradient(gradient_at(state.position))
                noise = sampler.noise(jax.random.fold_in(rest, number), start)
                return sampler.step(state, gradient, noise, number), (state.position, state.squares)

            state, path = jax.lax.scan(step, sampler.init(start, first), jnp.arange(FREEZE + AFTER))
            return state, path

        keys = jax.random.split(key, CHAINS)
        return jax.lax.map(one, keys, batch_size=500)

    return lambda seed: run(jax.random.key(seed))


def test_it_is_a_running_mean_of_squared_gradients(chains, seed):
    """S_k = mean over the first k steps of |g|²/d, and constant after `freeze_after`."""
    state, (positions, squares) = jax.tree.map(np.asarray, chains(seed))
    for name in SCALES:
        g = positions[name][0] / np.asarray(SCALES[name], np.float64) ** 2
        each = np.mean(g.reshape(len(g), -1) ** 2, axis=1)
        mean = np.cumsum(each[:FREEZE]) / np.arange(1, FREEZE + 1)
        np.testing.assert_allclose(squares[name][0, 1 : FREEZE + 1], mean, rtol=1e-4)
        np.testing.assert_allclose(squares[name][0, FREEZE:], mean[-1], rtol=1e-4)
        np.testing.assert_allclose(state.squares[name][0], mean[-1], rtol=1e-4)


def test_its_law_once_frozen(chains, seed):
    """Given S each entry is SGLD with ε = STEP/√S: x_k = a x_0 + N(0, v), a = (1 - ε/σ²)^k, v as SGLD's."""
    state, (positions, _) = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), chains(seed))
    for name, sd in SCALES.items():
        eps = STEP / np.sqrt(state.squares[name])
        eps = eps.reshape(-1, *[1] * (positions[name].ndim - 2))
        one = 1 - eps / np.asarray(sd, np.float64) ** 2
        stationary = 2 * eps / (1 - one**2)
        frozen = positions[name][:, FREEZE]
        variance = stationary * (1 - one ** (2 * AFTER))
        z = (state.position[name] - one**AFTER * frozen) / np.sqrt(variance)
        z = z.reshape(CHAINS, -1)
        assert np.all(np.abs(z.mean(axis=0)) < 5 / np.sqrt(CHAINS))
        assert np.all(np.abs((z**2).mean(axis=0) - 1) < 5 * np.sqrt(2 / CHAINS))


def test_a_leaf_of_size_one_is_sgld(seed):
    """The first step divides by |g|: SGLD with that step size and the same noise."""
    position, g = jnp.array(0.3), jnp.array(-7.0)
    scaled = LeafScaledSGLD(0.1)
    noise = scaled.noise(jax.random.key(seed), position)
    zero = jnp.zeros((), jnp.int32)
    here = scaled.step(scaled.init(position, jax.random.key(0)), Gradient(g), noise, zero)
    plain = SGLD(0.1 / 7.0)
    there = plain.step(plain.init(position, jax.random.key(0)), Gradient(g), noise, zero)
    np.testing.assert_allclose(here.position, there.position, rtol=1e-5)


def test_no_gradient_yet():
    """A leaf whose gradient is 0 moves by its noise alone, and stays finite."""
    sampler = LeafScaledSGLD(schedules.polynomial(0.5, 1_000.0, 0.33), temperature=0.0)
    state = sampler.init(jnp.ones(3), jax.random.key(0))
    state = sampler.step(state, Gradient(jnp.zeros(3)), jnp.ones(3), jnp.zeros((), jnp.int32))
    np.testing.assert_array_equal(state.position, 1.0)


def test_wrong_arguments():
    with pytest.raises(InvalidValueError, match="step_size"):
        LeafScaledSGLD(-1.0)
    with pytest.raises(InvalidValueError, match="`freeze_after` must be at least 1"):
        LeafScaledSGLD(0.1, freeze_after=0)
    with pytest.raises(InvalidTypeError, match="temperature"):
        LeafScaledSGLD(0.1, temperature="hot")
