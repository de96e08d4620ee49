"""A sampler in other coordinates: the same chain as on the transformed model, the exact law, the shape it measures."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import helpers
import scirocco as sc
from law import laws
from scirocco.errors import DivergenceError, InvalidTypeError, InvalidValueError
from scirocco.run.sizes import RUNNING
from scirocco.samplers.base import Gradient
from scirocco.samplers.preconditioned import rows_times, times, variances

pytestmark = pytest.mark.compile

SIZE = 5
INNERS = {
    "SGLD": sc.SGLD(0.05),
    "SGHMC": sc.SGHMC(0.1, friction=1.5, gradient_noise=0.2),
    "BAOAB": sc.BAOAB(0.1, friction=1.5),
    "SGNHT": sc.SGNHT(0.1, diffusion=1.2),
    "BADODAB": sc.BADODAB(0.1, diffusion=1.2, thermostat="elementwise"),
}


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs of a few steps."""


def factor_of(seed, dense=True):
    """Some L, far from symmetric, for the five parameters of the small regression."""
    rng = np.random.default_rng([seed, 8])
    scales = np.array([0.05, 0.1, 0.2, 0.1, 0.15])
    return (scales[:, None] * (np.eye(SIZE) + 0.4 * rng.normal(size=(SIZE, SIZE))) if dense else scales).astype(
        np.float32
    )


# -- the same chain, by coupling ---------------------------------------------------------------------------------------


def walk(sampler, gradient, start, key, num_steps=40):
    """Positions and statistics of one chain that is driven by a gradient without data."""

    @jax.jit
    def run(key):
        first, rest = jax.random.split(key)

        def one(state, number):
            noise = sampler.noise(jax.random.fold_in(rest, number), start)
            state = sampler.step(state, Gradient(gradient(state.position)), noise, number)
            return state, (state.position, sampler.stats(state))

        return jax.lax.scan(one, sampler.init(start, first), jnp.arange(num_steps))[1]

    return run(key)


@pytest.fixture
def not_measured(monkeypatch):
    """From the call on, nothing may be measured."""
    return lambda: monkeypatch.setattr("scirocco.run.choose.pilot.measure", lambda *_: pytest.fail("measured"))


@pytest.mark.rotates(2)
@pytest.mark.parametrize(("name", "dense"), [*zip(INNERS, [True, True, False] * 2, strict=False)])
def test_it_is_the_inner_chain_of_the_transformed_density(name, dense, seed):
    """u with the density p(θ₀ + L u), and the same noise: the same chain, whatever L is; so are the statistics."""
    factor, start = factor_of(seed, dense), jax.tree.map(jnp.asarray, helpers.make_params())

    def density(theta):
        flat = ravel_pytree(theta)[0]
        return -60.0 * jnp.sum(flat**2) - jnp.sum(jnp.cosh(flat)) - 20.0 * jnp.sum(flat) ** 2

    def moved(u):
        return jax.tree.map(jnp.add, start, times(factor, u))

    key, zero = jax.random.key(seed), jax.tree.map(jnp.zeros_like, start)
    outer = sc.Preconditioned(INNERS[name], factor=factor)
    theta, stats = walk(outer, jax.grad(density), start, key)
    u, inner_stats = walk(INNERS[name], jax.grad(lambda u: density(moved(u))), zero, key)
    helpers.assert_close(theta, jax.vmap(moved)(u), rtol=1e-4, atol=1e-4)
    helpers.assert_close(stats, inner_stats, rtol=1e-3, atol=1e-4)
    assert helpers.differ(jax.tree.map(lambda leaf: leaf[-1], theta), start)


SHAPED = sc.Model(
    lambda params, y: -0.5 * ((y - params["mean"]) / params["sd"]) ** 2 - jnp.log(params["sd"]),
    lambda params: -0.5 * params["mean"] ** 2 - params["sd"],
    transforms={"mean": None, "sd": sc.transforms.positive},
)
START = {"mean": jnp.asarray(0.3), "sd": jnp.asarray(1.7)}


def test_transformed_parameters_move_on_the_real_line(seed):
    """Through `sc.sample` with minibatches, against a model that is written in u by hand."""
    y = np.random.default_rng(seed).normal(0.2, 1.5, 64).astype(np.float32)
    factor = np.array([[0.2, 0.0], [0.1, -0.1]], np.float32)
    origin = SHAPED.unconstrain(START)

    def moved(u):
        return jax.tree.map(jnp.add, origin, times(factor, u))

    by_hand = sc.Model(
        lambda u, y: SHAPED.log_likelihood_sum(moved(u), y[None]), lambda u: SHAPED.log_prior_density(moved(u))
    )
    options = {"estimator": sc.Minibatch(16), "num_samples": 30, "num_chains": 2, "seed": seed, "progress": False}
    sampler = sc.Preconditioned(sc.SGLD(0.05), factor=factor)
    run = sc.sample(SHAPED, y, START, sampler=sampler, **options)
    zero = jax.tree.map(jnp.zeros_like, START)
    expected = sc.sample(by_hand, y, zero, sampler=sc.SGLD(0.05), **options).draws
    expected = jax.vmap(jax.vmap(lambda u: SHAPED.constrain(moved(u))))(expected)
    helpers.assert_close(run.draws, jax.tree.map(np.asarray, expected), rtol=1e-4, atol=1e-4)
    assert np.all(run.draws["sd"] > 0)


# -- the exact law -----------------------------------------------------------------------------------------------------

COVARIANCE = np.array([[1.0, 60.0, 0.0], [60.0, 1e4, -0.5], [0.0, -0.5, 1e-4]])
"""Correlated, with standard deviations from 0.01 to 100."""


@pytest.mark.parametrize("case", ["its own", "another"])
def test_sgld_has_the_law_of_its_linear_chain(case, seed):
    """θ' = θ - ε LLᵀPθ + √(2ε) Lξ: with LLᵀ = P⁻¹ it has the covariance P⁻¹/(1 - ε/2), with another L Lyapunov's."""
    step, chains, steps = 0.5, 2_000, 40
    lower = np.linalg.cholesky(COVARIANCE)
    precision = np.linalg.inv(COVARIANCE)
    mixed = lower @ np.array([[1.0, 0.3, 0.0], [0.0, 0.7, 0.2], [0.4, 0.0, 1.2]])
    factor = lower if case == "its own" else mixed
    sampler = sc.Preconditioned(sc.SGLD(step), factor=factor.astype(np.float32))
    matrix = jnp.asarray(precision, jnp.float32)
    keys = jax.random.split(jax.random.key(seed), chains)
    draws = jax.vmap(lambda key: walk(sampler, lambda theta: -matrix @ theta, jnp.zeros(3), key, steps)[0][-1])(keys)
    drift = factor @ factor.T
    exact = laws.stationary_covariance(np.eye(3) - step * drift @ precision, 2 * step * drift)
    if case == "its own":
        np.testing.assert_allclose(exact, COVARIANCE / (1 - step / 2), rtol=1e-8, atol=1e-12)
    white = np.asarray(draws, np.float64) @ np.linalg.inv(np.linalg.cholesky(exact)).T
    products = white[:, :, None] * white[:, None, :] - np.eye(3)
    z = products.mean(axis=0) / (products.std(axis=0) / np.sqrt(chains))
    assert np.all(np.abs(z) < 5), z
    assert np.all(np.abs(white.mean(axis=0)) < 5 / np.sqrt(chains))


# -- the shape it measures ---------------------------------------------------------------------------------------------


def exact_covariance(data):
    """Of the small regression's posterior, in the order of `ravel_pytree`: bias, then weights."""
    design = np.column_stack([np.ones(len(data["y"])), data["x"].reshape(-1, 4)]).astype(np.float64)
    return np.linalg.inv(design.T @ design + np.eye(SIZE))


def chosen_by(sampler, **options):
    """The sampler after it has been resolved by a kernel on the small regression, and its first state."""
    kernel = sc.Kernel(helpers.MODEL, helpers.make_data(), sampler, sc.Minibatch(16), **options)
    state = kernel.init(jax.random.key(0), helpers.make_params())
    return kernel.problem.parts.sampler, state, kernel


@pytest.mark.rotates(2)
@pytest.mark.parametrize("metric", ["laplace", "fisher", "diagonal"])
def test_the_metric_is_measured_before_the_run(metric):
    """And the inner sampler chooses its step in those coordinates, where the largest curvature is about 1."""
    sampler, state, kernel = chosen_by(sc.Preconditioned(sc.SGLD(), metric))
    covariance = exact_covariance(helpers.make_data())
    if metric == "diagonal":
        assert sampler.factor.shape == (SIZE,)
        ratio = sampler.factor**2 * np.diagonal(np.linalg.inv(covariance))
    else:
        root = np.linalg.cholesky(np.linalg.inv(covariance))
        ratio = np.linalg.eigvalsh(root.T @ sampler.factor @ sampler.factor.T @ root)
    # the Fisher information of 64 rows is that of the model but for its noise
    np.testing.assert_allclose(ratio, 1.0, rtol=1e-3 if metric == "laplace" else 0.8)
    curvature = kernel.preparation["largest_curvature"]
    assert curvature == pytest.approx(1.0, rel=1e-3 if metric == "laplace" else 1.0)
    assert 0.0 < sampler.inner.step_size <= 0.1 / curvature * 1.001
    gradient = helpers.exact_gradient(state.sampler.position)  # the chain begins at the mode, where L was measured
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])
    assert flat @ covariance @ flat < 1e-4


def test_what_is_given_is_not_measured(not_measured):
    """With a factor and a step size there is nothing to find out."""
    not_measured()
    given = sc.Preconditioned(sc.SGLD(0.1), factor=factor_of(0))
    assert not given.is_open
    sampler, _, _ = chosen_by(given)
    np.testing.assert_array_equal(sampler.factor, given.factor)
    assert (sampler.step_size, sampler.temperature) == (0.1, 1.0)


def test_a_stored_run_goes_on_bit_for_bit(tmp_path, not_measured, changed):
    """With the factor that was measured: nothing is measured again."""
    changed(RUNNING, first_chunk=5, second_chunk=4, chunk_seconds=0.0, commit_seconds=0.0, commit_share=1e9)
    options = {"num_samples": 14, "num_chains": 2, "keep_gradients": True}
    sampler = sc.Preconditioned(sc.SGNHT())
    whole = helpers.draw(sampler, **options)
    stop = [lambda report: report.stop() if report.step >= 9 else None]
    part = helpers.draw(sampler, store=tmp_path / "run", callbacks=stop, **options)
    assert part.status == "stopped" and 0 < part.num_draws < 14
    not_measured()
    done = sc.resume(tmp_path / "run", helpers.MODEL, helpers.make_data(), progress=False)
    for run in (done, sc.load(tmp_path / "run")):
        for name in ("draws", "gradients", "stats"):
            helpers.assert_equal(*(jax.tree.map(np.asarray, getattr(r, name)) for r in (run, whole)))
    assert whole.stats.keys() == {"gradient_norm", "thermostat", "kinetic_temperature"}


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inner", [sc.PSGLD(1e-2), sc.SGRLD(1e-2, lambda theta: 1.0), sc.SCIR(0.1), sc.Preconditioned(sc.SGLD())]
)
def test_samplers_with_a_geometry_of_their_own_are_refused(inner):
    with pytest.raises(InvalidTypeError, match=f"{type(inner).__name__} has a preconditioner or a geometry"):
        sc.Preconditioned(inner)


def test_wrong_arguments_are_told():
    with pytest.raises(InvalidTypeError, match=r"`inner` of Preconditioned .* sc.SGLD\(\)"):
        sc.Preconditioned(sc.SGLD)
    with pytest.raises(InvalidValueError, match="metric"):
        sc.Preconditioned(sc.SGLD(), "hessian")
    for shape in ((2, 3), (), (2, 2, 2)):
        with pytest.raises(InvalidValueError, match=r"must be \(d, d\), \(d,\) or \(d, 1 \+ k\), got shape"):
            sc.Preconditioned(sc.SGLD(), factor=np.ones(shape))
    with pytest.raises(InvalidValueError, match="must be finite"):
        sc.Preconditioned(sc.SGLD(), factor=np.array([1.0, np.inf]))
    with pytest.raises(InvalidValueError, match="must be orthogonal"):
        sc.Preconditioned(sc.SGLD(), factor=np.ones((4, 3)))


def test_a_diagonal_and_directions_are_a_matrix():
    """L = diag(s) (1 + Σ (|w| - 1) ww'/|w|²), its products with vectors and rows, and the diagonal of LLᵀ."""
    rng = np.random.default_rng(3)
    turned, lengths = np.linalg.qr(rng.normal(size=(7, 2)))[0], np.array([0.1, 5.0])
    scale = np.exp(rng.normal(size=7))
    factor = np.column_stack([scale, turned * lengths])
    matrix = np.diag(scale) @ (np.eye(7) + (turned * (lengths - 1)) @ turned.T)
    x = rng.normal(size=(3, 7))
    np.testing.assert_allclose(rows_times(factor, x), x @ matrix.T)
    np.testing.assert_allclose(rows_times(factor, x, transposed=True), x @ matrix)
    np.testing.assert_allclose(times(factor, x[0]), matrix @ x[0], rtol=1e-4, atol=1e-5)
    for form in (factor, matrix, scale):
        exact = rows_times(form, np.eye(7)).T
        np.testing.assert_allclose(variances(form), np.sum(exact**2, axis=1))


@pytest.mark.parametrize("inner", [sc.SGLD(0.1), sc.SGLD(), sc.SGLD("auto")])
def test_a_factor_of_another_size_is_told(inner):
    with pytest.raises(InvalidValueError, match="is for 3 parameters; there are 5"):
        helpers.draw(sc.Preconditioned(inner, factor=np.eye(3)))


def test_the_advice_after_a_divergence_is_for_these_coordinates():
    """A tenth over the curvature, which is 1."""
    factor = np.linalg.cholesky(exact_covariance(helpers.make_data())).astype(np.float32)
    with pytest.raises(DivergenceError, match=r"try step_size=0\.1 inside sc\.Preconditioned\(\.\.\.\) \("):
        helpers.draw(sc.Preconditioned(sc.SGLD(1e4), factor=factor), "Full", num_samples=100)


def test_a_matrix_of_many_parameters_is_refused():
    model = sc.Model(lambda theta, x: -0.5 * jnp.sum((x - theta) ** 2))
    with pytest.raises(InvalidValueError, match=r'2001 parameters.*metric="low_rank"'):
        sc.sample(
            model,
            np.zeros((4, 2_001), np.float32),
            jnp.zeros(2_001),
            sampler=sc.Preconditioned(sc.SGLD()),
            estimator=sc.Full(),
            num_samples=1,
            progress=False,
        )


@pytest.mark.parametrize("factor", [np.zeros(3), np.ones((3, 3)), [1.0, 0.0, 1.0]])
def test_a_factor_that_leaves_a_direction_out_is_refused(factor):
    with pytest.raises(InvalidValueError, match="singular"):
        sc.Preconditioned(sc.SGLD(0.1), factor=factor)


def test_a_factor_may_be_a_list():
    assert sc.Preconditioned(sc.SGLD(0.1), factor=[1.0, 2.0]).factor.shape == (2,)
