"""The measurement before a run: curvature and gradient noise against their exact values."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.run import setup
from scirocco.run.choose import pilot, scores
from scirocco.samplers.scales import reshuffling_factor

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

ROWS, COLUMNS = 2_000, 3


@pytest.fixture(scope="module")
def regression():
    """Linear regression with unit noise: curvature XᵀX, gradient noise known at the mode."""
    rng = np.random.default_rng(2)
    x = (rng.standard_normal((ROWS, COLUMNS)) * np.array([1.0, 2.0, 3.0])).astype(np.float32)
    y = (x @ np.array([1.0, -1.0, 0.5]) + rng.standard_normal(ROWS)).astype(np.float32)
    return {"x": x, "y": y}


MODEL = sc.Model(lambda beta, d: -0.5 * (d["y"] - d["x"] @ beta) ** 2)


def measure(data, estimator):
    problem = setup.compose(MODEL, data, sc.SGLD(), estimator, 0)
    key, start = jax.random.key(0), jnp.zeros(COLUMNS)
    prepared = estimator.prepare(MODEL, problem.table, start, key)
    return pilot.measure(MODEL, problem.parts, problem.table, prepared, key)


def test_the_largest_curvature_is_the_largest_eigenvalue(regression):
    exact = np.linalg.eigvalsh(regression["x"].T.astype(np.float64) @ regression["x"])[-1]
    assert measure(regression, sc.Minibatch(100)).largest_curvature == pytest.approx(exact, rel=0.15)  # 1,024 rows


def test_the_noise_is_that_at_the_mode_although_the_start_is_far(regression):
    """At the start, zero, the residuals and with them the noise are several times larger."""
    x, y = (regression[name].astype(np.float64) for name in ("x", "y"))
    mode = np.linalg.lstsq(x, y, rcond=None)[0]
    gradients = x * (y - x @ mode)[:, None]
    exact = ROWS**2 / 100 * gradients.var(axis=0, ddof=1) * (1 - 100 / ROWS)
    at_start = ROWS**2 / 100 * (x * y[:, None]).var(axis=0, ddof=1)
    scales = measure(regression, sc.Minibatch(100))
    np.testing.assert_allclose(scales.noise, exact, rtol=0.35)  # eight batches of 100 rows
    assert np.all(at_start > 2 * exact)
    assert scales.epoch == 20


def test_control_variates_have_little_noise_left(regression):
    plain, centred = measure(regression, sc.Minibatch(100)), measure(regression, sc.ControlVariates(100))
    assert np.all(np.asarray(centred.noise) < 0.05 * np.asarray(plain.noise))


@pytest.mark.parametrize("relaxation", [1.5, 10.0, 80.0])
def test_errors_that_cancel_within_an_epoch_count_less(relaxation):
    """The closed form against the exact covariance of an AR(1) driven by shuffled errors, by linear algebra."""
    epoch, a = 12, 1 - 1 / relaxation
    epochs = int(60 * relaxation / epoch) + 3
    within = np.eye(epoch) * (1 + 1 / (epoch - 1)) - 1 / (epoch - 1)
    covariance = np.kron(np.eye(epochs), within)
    steps = epoch * epochs
    powers = a ** np.abs(np.subtract.outer(np.arange(steps), np.arange(steps))) * np.tri(steps)
    last = powers[-epoch:]
    variances = np.sum((last @ covariance) * last, axis=1)
    expected = variances.mean() * (1 - a**2)
    assert reshuffling_factor(np.array(relaxation), epoch) == pytest.approx(expected, rel=1e-6)


def test_noise_of_control_variates_from_all_rows():
    """In closed form for a linear regression: the gradient of a row changes by -x (x · δ), and so does a heavy row."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(500, 3)).astype(np.float32)
    x[:3] *= 20.0  # a few rows cause most of it
    model = sc.Model(lambda beta, x: -0.5 * (1.0 - x @ beta) ** 2)
    problem = setup.compose(model, x, sc.SGLD(1.0), sc.ControlVariates(50, sampling="with_replacement"), 0)
    factor = np.tri(3, dtype=np.float32) * 0.1
    batching = problem.parts.batching
    centre = jnp.array([0.3, -0.2, 0.1])
    noise, information, turned = pilot.noise_of_all(model, problem.table, batching, centre, factor, jax.random.key(0))
    np.testing.assert_allclose(turned @ turned.T, factor @ factor.T, atol=1e-8)
    round_rows = x.astype(np.float64) @ turned  # the change along u ~ N(0, I) has the mean square r rᵀ |r|²
    squares = (round_rows * np.sum(round_rows**2, axis=1, keepdims=True)).T @ round_rows / 500
    mean = round_rows.T @ round_rows / 500
    exact = (squares - mean @ mean) * 500**2 / 50 * batching.correction
    np.testing.assert_allclose(np.diag(noise), exact, atol=1e-4 * exact.max())
    residual = 1.0 - x @ np.asarray(centre)
    np.testing.assert_allclose(information, np.sum((residual[:, None] * round_rows) ** 2, axis=0), rtol=1e-3)


@pytest.mark.parametrize("along", ["coordinates", "other directions"])
def test_heavy_rows_are_not_hidden(along):
    """Rows that change by -x (x · u), of which the mean square over u ~ N(0, 1) is known in every direction."""
    heavy = np.zeros((500, 20))
    heavy[np.arange(20), np.arange(20)] = 30.0
    if along != "coordinates":
        heavy = heavy @ np.linalg.qr(np.random.default_rng(1).normal(size=(20, 20)))[0]
    model = sc.Model(lambda beta, x: -0.5 * (1.0 - x @ beta) ** 2)
    estimator = sc.ControlVariates(50, sampling="with_replacement")
    heavy[6:] = 0.0  # six directions with noise
    problem = setup.compose(model, heavy.astype(np.float32), sc.SGLD(1.0), estimator, 0)
    batching, factor = problem.parts.batching, np.eye(20, dtype=np.float32)
    found = pilot.noise_of_all(model, problem.table, batching, jnp.zeros(20), factor, jax.random.key(0))[0]
    share = 1 / 500
    exact = 30.0**4 * share * (1 - share) * 500**2 / 50 * batching.correction
    np.testing.assert_allclose(np.sort(found)[-6:], exact, rtol=1e-3)


def test_a_gaussian_is_round_however_roughly_its_shape_is_known():
    """A scale for each of sixty correlated parameters leaves half of the score; a matrix leaves nothing."""
    x = np.random.default_rng(4).normal(size=(150, 60)).astype(np.float32)
    model = sc.Model(lambda beta, x: -0.5 * (1.0 - x @ beta) ** 2)
    table = setup.compose(model, x, sc.SGLD(1.0), sc.Full(), 0).table
    precision = x.T.astype(np.float64) @ x
    mode = np.linalg.solve(precision, x.sum(axis=0)).astype(np.float32)
    for factor in (1 / np.sqrt(np.diagonal(precision)), np.linalg.inv(np.linalg.cholesky(precision)).T):
        assert scores.roundness(model, table, mode, factor, jax.random.key(0)) < 1e-3


def test_the_curvature_in_the_tails_is_that_of_the_skewed_direction():
    """Counts with rate e^(w · θ) and 20 events, normal in all other directions: the curvature at u is e^(u/√20)."""
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(4, 4)))[0].astype(np.float32)
    events = np.zeros((64, 1), np.float32)
    events[:20] = 1.0
    model = sc.Model(
        lambda theta, y: y[0] * (turn[0] @ theta) - jnp.exp(turn[0] @ theta) * 20 / 64,
        lambda theta: -10.0 * jnp.sum((turn[1:] @ theta) ** 2),
    )
    table = setup.compose(model, events, sc.SGLD(1.0), sc.Full(), 0).table
    s = 1 / np.sqrt(20.0)
    factor, at = s * np.eye(4), np.zeros(4, np.float32)
    found = scores.stiffness_in_tails(model, table, at, factor, jax.random.key(0))
    assert found == pytest.approx((np.exp(5 * s) - np.exp(4 * s)) / s, rel=0.02)
    plain = sc.Model(lambda theta, y: -0.5 * jnp.sum(theta**2) * 20 / 64)
    table = setup.compose(plain, events, sc.SGLD(1.0), sc.Full(), 0).table
    assert scores.stiffness_in_tails(plain, table, at, factor, jax.random.key(0)) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("rows", "numbers", "size", "wanted"),
    [
        (300_000, (), 1_001, 300_000),  # a value and its group: all rows
        (20_000, (1_500,), 1_500, 20_000),  # 16 for each parameter
        (581_012, (34,), 34, 4_000_000 // 34),
        (60_000, (784,), 10**6, 67),
    ],
)
def test_rows_of_a_score(rows, numbers, size, wanted):
    """As many as keep its noise small and its cost in bounds."""
    spec = {"x": jax.ShapeDtypeStruct(numbers, np.float32), "y": jax.ShapeDtypeStruct((), np.float32)}
    table = SimpleNamespace(num_rows=rows, row_spec=spec)
    model = sc.Model(lambda params, row: 0.0)
    assert min(rows, scores.scored_rows(model, table, size)) == wanted


@pytest.mark.parametrize(("num", "spread"), [(1_000, 1_000.0), (250_000, 40.0)])
def test_the_plain_call_when_the_data_contradict_the_scale_of_the_errors(num, spread, seed):
    """Log densities of 10^8, whose rounding errors exceed their changes; squared gradients far above the curvature."""
    x = np.random.default_rng([seed, 3]).normal(3.0, spread, num).astype(np.float32)
    model = sc.Model(lambda p, row: -0.5 * (row - p) ** 2, lambda p: -0.5 * (p / 1e4) ** 2)
    run = sc.sample(model, x, 0.0, num_samples=500, seed=seed, progress=False)
    assert "NUTS" not in run.preparation["chosen"]
    scaled = (np.asarray(run.draws, np.float64) - x.mean(dtype=np.float64)) * np.sqrt(num)
    effective = float(run.summary()["ess_bulk"].iloc[0])
    assert effective > 1_000
    assert abs(scaled.mean()) < 5 / np.sqrt(effective) + 0.05
    assert abs(scaled.std() - 1) < 5 / np.sqrt(2 * effective) + 0.03
