"""Constrained parameters: the maps, their Jacobians, and the law that comes out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

import helpers
import scirocco as sc
from scirocco import transforms

pytestmark = pytest.mark.compile

MAPS = {
    "positive": transforms.positive,
    "above": transforms.above(-2.0),
    "below": transforms.below(3.0),
    "interval": transforms.interval(-1.0, 4.0),
    "ordered": transforms.ordered,
}
SHAPES = {"number": (), "vector": (4,), "matrix": (2, 3)}
PAIRS = [(name, shape) for name in MAPS for shape in SHAPES if (name, shape) != ("ordered", "number")]


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs of a few steps."""


def points(shape, seed):
    return jnp.asarray(np.random.default_rng([seed, 1]).normal(0.0, 1.5, SHAPES[shape]), jnp.float32)


@pytest.mark.parametrize(("name", "shape"), PAIRS)
def test_there_and_back(name, shape, seed):
    transform, u = MAPS[name], points(shape, seed)
    x = transform.forward(u)
    assert x.shape == u.shape
    assert x.dtype == u.dtype
    assert bool(transform.contains(x))
    np.testing.assert_allclose(transform.inverse(x), u, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("name", "shape"), PAIRS)
def test_log_det_is_that_of_the_jacobian(name, shape, seed):
    transform, u = MAPS[name], points(shape, seed)
    flat = jax.jacfwd(lambda v: transform.forward(v.reshape(u.shape)).ravel())(u.ravel())
    sign, log_det = np.linalg.slogdet(np.asarray(flat, np.float64))
    assert sign != 0
    np.testing.assert_allclose(transform.log_det(u), log_det, rtol=1e-4, atol=1e-4)
    assert transform.log_det(u).shape == ()


OUTSIDE = {
    "positive": [0.0, -1.0],
    "above": [-2.0, -3.0],
    "below": [3.0, 4.0],
    "interval": [-1.0, 4.0, -1.5, 4.5],
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_the_edge_is_outside(name):
    inside = MAPS[name].forward(jnp.zeros(2))
    for value in OUTSIDE[name]:
        assert not bool(MAPS[name].contains(inside.at[1].set(value))), value


def test_ordered_means_strictly_increasing_along_the_last_axis():
    assert bool(transforms.ordered.contains(jnp.array([[1.0, 2.0], [0.0, 5.0]])))
    assert not bool(transforms.ordered.contains(jnp.array([[1.0, 2.0], [5.0, 0.0]])))
    assert not bool(transforms.ordered.contains(jnp.array([1.0, 1.0])))


@pytest.mark.parametrize("name", ["positive", "above", "below", "interval"])
def test_far_out_everything_stays_finite(name):
    """A chain may wander far on the real line: neither the density nor its gradient may become NaN there."""
    u = jnp.array([-60.0, -20.0, 20.0, 60.0])
    assert np.all(np.isfinite(MAPS[name].forward(u)))
    assert np.all(np.isfinite(jax.grad(MAPS[name].log_det)(u)))
    assert np.isfinite(MAPS[name].log_det(u))


gamma = scipy.stats.gamma(3.0)
beta = scipy.stats.beta(2.0, 3.0, loc=-1.0, scale=5.0)
LAWS = {  # density and 70 % quantile
    "positive": (gamma.pdf, gamma.ppf(0.7)),
    "above": (lambda x: gamma.pdf(x + 2.0), gamma.ppf(0.7) - 2.0),
    "below": (lambda x: gamma.pdf(3.0 - x), 3.0 - gamma.ppf(0.3)),
    "interval": (beta.pdf, beta.ppf(0.7)),
}


@pytest.mark.parametrize("name", LAWS)
def test_densities_on_the_real_line_integrate_to_probabilities(name):
    """∫_{forward(u) ≤ x} p(forward(u)) |d forward/du| du is the probability of being below x."""
    transform, (density, quantile) = MAPS[name], LAWS[name]
    u = float(transform.inverse(jnp.float32(quantile)))
    grid = np.linspace(u, 8.0, 401) if name == "below" else np.linspace(-16.0, u, 401)
    points = jnp.asarray(grid, jnp.float32)
    values = density(np.asarray(transform.forward(points))) * np.exp(jax.vmap(transform.log_det)(points))
    assert abs(scipy.integrate.simpson(values, x=grid) - 0.7) < 1e-4


@pytest.mark.parametrize("name", MAPS)
def test_words_for_messages(name):
    assert isinstance(MAPS[name].domain, str)
    assert len(MAPS[name].domain) > 5


# -- in a model ---------------------------------------------------------------------------------------------------


def log_likelihood(params, x):
    return -0.5 * ((x - params["mean"]) / params["scale"]) ** 2 - jnp.log(params["scale"])


def log_prior(params):
    return -params["scale"] - 0.5 * params["mean"] ** 2


def by_hand_likelihood(params, x):
    return log_likelihood({"mean": params["mean"], "scale": jnp.exp(params["scale"])}, x)


def by_hand_prior(params):
    return log_prior({"mean": params["mean"], "scale": jnp.exp(params["scale"])}) + params["scale"]


MODEL = sc.Model(log_likelihood, log_prior, transforms={"mean": None, "scale": transforms.positive})
BY_HAND = sc.Model(by_hand_likelihood, by_hand_prior)
START = {"mean": np.float32(0.5), "scale": np.float32(2.0)}
START_BY_HAND = {"mean": np.float32(0.5), "scale": np.float32(np.log(2.0))}
DATA = np.random.default_rng(5).normal(1.0, 2.0, 64).astype(np.float32)


def test_a_transformed_chain_is_the_chain_written_by_hand():
    """Same key: draws in the user's units, gradients on the real line with the Jacobian's part."""
    estimator = sc.ControlVariates(16, num_optimizer_steps=50)
    arguments = {"sampler": sc.SGLD(1e-3), "estimator": estimator, "num_samples": 20, "progress": False}
    run = sc.sample(MODEL, DATA, START, keep_gradients=True, **arguments)
    twin = sc.sample(BY_HAND, DATA, START_BY_HAND, keep_gradients=True, **arguments)
    assert np.all(run.draws["scale"] > 0)
    expected = {"mean": twin.draws["mean"], "scale": np.exp(twin.draws["scale"])}
    helpers.assert_close(run.draws, expected, rtol=1e-3)
    helpers.assert_close(run.gradients, twin.gradients, rtol=1e-2, atol=1e-2)


def test_constrain_and_unconstrain_are_inverse():
    position = MODEL.unconstrain(START)
    np.testing.assert_allclose(position["scale"], np.log(2.0), rtol=1e-6)
    helpers.assert_close(MODEL.constrain(position), START)


def test_the_prior_on_the_real_line_has_the_jacobian_and_the_users_density_has_not():
    position = MODEL.unconstrain(START)
    prior = float(log_prior(START))
    np.testing.assert_allclose(MODEL.log_prior_density(position), prior + np.log(2.0), rtol=1e-5)
    expected = prior + float(sum(log_likelihood(START, x) for x in DATA))
    np.testing.assert_allclose(MODEL.log_density(START, DATA), expected, rtol=1e-5)


def test_one_transform_serves_all_parameters_below_it():
    nested = {"a": {"b": jnp.array([1.0, 2.0]), "c": jnp.array(3.0)}, "d": jnp.array(-1.0)}
    model = sc.Model(lambda p, x: 0.0 * x, transforms={"a": transforms.positive, "d": None})
    position = model.unconstrain(nested)
    helpers.assert_close(position["a"], jax.tree.map(jnp.log, nested["a"]))
    helpers.assert_equal(position["d"], nested["d"])
    everything = sc.Model(lambda p, x: 0.0 * x, transforms=transforms.positive)
    helpers.assert_close(everything.unconstrain(nested["a"]), jax.tree.map(jnp.log, nested["a"]))


def test_control_variates_take_their_centre_in_the_users_units():
    centre = {"mean": np.float32(1.0), "scale": np.float32(2.5)}
    kernel = sc.Kernel(MODEL, DATA, sc.SGLD(1e-3), sc.ControlVariates(16, centre=centre))
    state = kernel.init(jax.random.key(0), START)
    helpers.assert_close(kernel.position(state), centre)
