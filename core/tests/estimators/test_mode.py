"""The search for the posterior mode: close in units of posterior sds, without a learning rate from the user."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import scirocco as sc
from scirocco.errors import InvalidValueError
from scirocco_papers.small_posteriors.problems import small_posterior
from scirocco_papers.small_posteriors.truth import find_mode

pytestmark = pytest.mark.compile

ROWS, COLUMNS = 20_000, 6


def log_likelihood(beta, datum):
    logit = datum["x"] @ beta
    return datum["y"] * logit - jax.nn.softplus(logit)


def log_prior(beta):
    return -0.05 * jnp.sum(beta**2)


MODEL = sc.Model(log_likelihood, log_prior)


def problem(seed: int, scale: np.ndarray):
    """Logistic regression whose columns have these scales; its exact mode and inverse Hessian in float64."""
    rng = np.random.default_rng([seed, 5])
    x = (rng.standard_normal((ROWS, COLUMNS)) * scale).astype(np.float32)
    beta = rng.standard_normal(COLUMNS) / scale
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-x @ beta))).astype(np.float32)
    mode, x64 = np.zeros(COLUMNS), x.astype(np.float64)
    for _ in range(40):
        p = 1 / (1 + np.exp(-x64 @ mode))
        hessian = (x64 * (p * (1 - p))[:, None]).T @ x64 + 0.1 * np.eye(COLUMNS)
        mode = mode + np.linalg.solve(hessian, x64.T @ (y - p) - 0.1 * mode)
    return {"x": x, "y": y}, mode, hessian


def centre_of(data, estimator, seed):
    kernel = sc.Kernel(MODEL, data, sc.SGLD(1e-6), estimator)
    state = kernel.init(jax.random.key(seed), jnp.zeros(COLUMNS))
    return np.asarray(state.memory.centre, np.float64), state, kernel.preparation


def rms_distance(centre, mode, hessian):
    """Root-mean-square distance in posterior standard deviations."""
    gap = centre - mode
    return float(np.sqrt(gap @ hessian @ gap / COLUMNS))


@pytest.mark.parametrize("scale", [np.ones(COLUMNS), np.geomspace(0.1, 10, COLUMNS)], ids=["even", "uneven"])
def test_the_mode_is_found_and_the_distance_is_told(seed, scale):
    data, mode, hessian = problem(seed, scale)
    centre, state, report = centre_of(data, sc.ControlVariates(200), seed)
    distance = rms_distance(centre, mode, hessian)
    assert distance < 0.3
    assert report["distance_to_mode_in_sd"] == pytest.approx(distance, abs=0.05)
    np.testing.assert_array_equal(state.sampler.position, state.memory.centre)  # the chain starts there


def test_the_exact_sum_at_the_centre_is_kept(seed):
    data, _, _ = problem(seed, np.ones(COLUMNS))
    centre, state, _ = centre_of(data, sc.ControlVariates(200), seed)
    logits = data["x"].astype(np.float64) @ centre
    exact = data["x"].astype(np.float64).T @ (data["y"] - 1 / (1 + np.exp(-logits)))
    np.testing.assert_allclose(state.memory.total, exact, atol=0.1)  # float32 sums of 20,000 terms of size 1


def test_a_given_centre_costs_one_pass_and_is_used_as_it_is(seed):
    data, mode, _ = problem(seed, np.ones(COLUMNS))
    given = jnp.asarray(mode, jnp.float32) + 0.01
    centre, _, report = centre_of(data, sc.ControlVariates(200, centre=given), seed)
    assert report == {"passes": 1.0}
    np.testing.assert_array_equal(centre, given)


def test_the_users_optimiser_replaces_the_automatic_one(seed):
    """With a learning rate of 0 nothing moves; without polish the end point is the optimiser's own."""
    data, _, _ = problem(seed, np.ones(COLUMNS))
    still = sc.ControlVariates(200, optimizer=optax.sgd(0.0), num_optimizer_steps=3, polish=False)
    centre, _, report = centre_of(data, still, seed)
    assert np.all(centre == 0)
    assert report["learning_rate"] is None
    assert report["distance_to_mode_in_sd"] > 10


def test_newton_alone_repairs_an_optimiser_that_did_nothing(seed):
    data, mode, hessian = problem(seed, np.ones(COLUMNS))
    lazy = sc.ControlVariates(200, optimizer=optax.sgd(0.0), num_optimizer_steps=1)
    centre, _, report = centre_of(data, lazy, seed)
    start = rms_distance(np.zeros(COLUMNS), mode, hessian)
    assert rms_distance(centre, mode, hessian) < 0.2 * start
    assert report["passes"] <= 6.1  # one look, and five corrections at most


def test_an_optimiser_that_blows_up_is_told(seed):
    data, _, _ = problem(seed, np.ones(COLUMNS))
    wild = sc.ControlVariates(200, optimizer=optax.sgd(1e30), num_optimizer_steps=50)
    with pytest.raises(InvalidValueError, match="diverged"):
        centre_of(data, wild, seed)


def test_rows_that_a_sample_lacks(seed):
    """Two of 40,000 rows have all the information about the second coefficient: most samples contain neither."""
    rng = np.random.default_rng([seed, 8])
    x = np.zeros((40_000, 2), np.float32)
    x[:, 0], x[[100, 30_000], 1] = rng.normal(size=40_000), 30.0
    y = (x @ [1.0, 0.5] + rng.normal(size=40_000)).astype(np.float32)
    model = sc.Model(lambda beta, d: -0.5 * (d["y"] - d["x"] @ beta) ** 2, lambda beta: -0.5 * beta @ beta)
    kernel = sc.Kernel(model, {"x": x, "y": y}, sc.SGLD(1e-9), sc.ControlVariates(100))
    centre = np.asarray(kernel.init(jax.random.key(seed), jnp.zeros(2)).memory.centre, np.float64)
    hessian = x.T.astype(np.float64) @ x + np.eye(2)
    assert rms_distance(centre, np.linalg.solve(hessian, x.T.astype(np.float64) @ y), hessian) < 0.3


# -- raw units -----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the columns of data")
def test_raw_units_do_not_defeat_it(seed):
    """Linear regression with columns of scales from 10⁻⁴ to 10⁵, against the mode in double precision."""
    rng = np.random.default_rng([seed, 6])
    scale = np.array([1e-4, 1e-1, 1.0, 30.0, 1e3, 1e5])
    x = (rng.standard_normal((1_000, COLUMNS)) @ (np.eye(COLUMNS) + 0.3) * scale).astype(np.float32)
    y = (x @ (rng.standard_normal(COLUMNS) / scale) + rng.standard_normal(1_000)).astype(np.float32)
    model = sc.Model(lambda beta, d: -0.5 * (d["y"] - d["x"] @ beta) ** 2)
    kernel = sc.Kernel(model, {"x": x, "y": y}, sc.SGLD(1e-12), sc.ControlVariates(100))
    state = kernel.init(jax.random.key(seed), jnp.zeros(COLUMNS))
    x64 = x.astype(np.float64)
    hessian = x64.T @ x64
    mode = np.linalg.solve(hessian, x64.T @ y)
    distance = rms_distance(np.asarray(state.memory.centre, np.float64), mode, hessian)
    assert distance < 0.3
    assert kernel.preparation["distance_to_mode_in_sd"] == pytest.approx(distance, abs=0.1)


@pytest.mark.usefixtures("quick_compiler")
def test_a_parameter_that_only_the_prior_informs(seed):
    """The mean of twenty groups: no row's gradient knows of it. Against Newton's mode in double precision."""
    posterior = small_posterior("hierarchical")
    kernel = sc.Kernel(posterior.model, posterior.data, sc.SGLD(1e-6), sc.ControlVariates(250))
    state = kernel.init(jax.random.key(seed), posterior.start)
    exact = find_mode(posterior)
    gap = np.asarray(ravel_pytree(state.memory.centre)[0], np.float64) - exact.position
    assert np.sqrt(gap @ exact.hessian @ gap / gap.size) < 0.3
    place = 0  # "mu" is the first in the order of names
    assert abs(gap[place]) < 0.3 * np.sqrt(np.linalg.inv(exact.hessian)[place, place])


def test_many_parameters_need_no_learning_rate():
    """Newton corrections from the start: the end is a fraction of a standard deviation away from the mode."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2_000, 250)).astype(np.float32)
    y = (rng.random(2_000) < 1 / (1 + np.exp(-x[:, 0]))).astype(np.float32)
    kernel = sc.Kernel(MODEL, {"x": x, "y": y}, sc.SGLD(1e-6), sc.ControlVariates(200))
    centre = np.asarray(kernel.init(jax.random.key(0), jnp.zeros(250)).memory.centre, np.float64)
    report = kernel.preparation
    assert report["learning_rate"] is None and report["passes"] < 10
    logits = x @ centre
    chance = 1 / (1 + np.exp(-logits))
    gradient = x.T @ (y - chance) + np.asarray(jax.grad(MODEL.log_prior_density)(jnp.asarray(centre, jnp.float32)))
    precision = (x.T * (chance * (1 - chance))) @ x
    assert np.sqrt(gradient @ np.linalg.solve(precision, gradient) / 250) < 0.3
