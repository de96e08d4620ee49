"""The posterior's shape at its mode, and the measurement in coordinates in which it is round."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.errors import InvalidValueError
from scirocco.run import setup
from scirocco.run.choose import metric, pilot
from scirocco.run.choose.limits import LIMITS
from scirocco.samplers.preconditioned import rows_times

ROWS, COLUMNS = 1_000, 4
UNITS = np.array([1e-3, 1.0, 30.0, 1e2])
"""Of the columns: curvatures differ by 10¹⁰, and more through correlation."""
PRIOR = 1e-6


def log_likelihood(params, row):
    predicted = params["level"] + row["x"] @ params["slopes"]
    return -0.5 * (row["y"] - predicted) ** 2


MODEL = sc.Model(log_likelihood, lambda params: -0.5 * PRIOR * jnp.sum(params["slopes"] ** 2))
KEY = jax.random.key(3)
pytestmark = [
    pytest.mark.compile,
    pytest.mark.filterwarnings("ignore:the columns of data"),
    pytest.mark.usefixtures("quick_compiler"),
]


@pytest.fixture(scope="module")
def data():
    """Linear regression in raw units."""
    rng = np.random.default_rng(6)
    mixed = rng.standard_normal((ROWS, COLUMNS)) @ (np.eye(COLUMNS) + 0.5)
    x = (mixed * UNITS).astype(np.float32)
    y = (x @ (1 / UNITS) + rng.standard_normal(ROWS)).astype(np.float32)
    return {"x": x, "y": y}


def design(data):
    return np.column_stack([np.ones(ROWS), data["x"].astype(np.float64)])


def precision(data):
    return design(data).T @ design(data) + np.diag([0.0, *[PRIOR] * COLUMNS])


def mode(data):
    found = np.linalg.solve(precision(data), design(data).T @ data["y"])
    return {"level": jnp.asarray(found[0], jnp.float32), "slopes": jnp.asarray(found[1:], jnp.float32)}


def compose(data, estimator=sc.Minibatch(250, "with_replacement")):  # noqa: B008
    return setup.compose(MODEL, data, sc.SGLD(), estimator, 0)


def relative(factor, matrix):
    """Eigenvalues of LᵀPL: all 1 when LLᵀ is the inverse of P."""
    factor = np.asarray(factor, np.float64)
    return np.linalg.eigvalsh(factor.T @ matrix @ factor)


# -- the shape ---------------------------------------------------------------------------------------------------------


def test_laplace_is_the_exact_covariance_of_a_gaussian_posterior(data):
    """In single precision, for parameters in raw units."""
    shape = metric.shape_at(MODEL, compose(data).table, mode(data), "laplace", KEY)
    exact = np.linalg.eigvalsh(precision(data))
    assert exact[-1] / exact[0] > 1e10
    assert shape.condition == pytest.approx(exact[-1] / exact[0], rel=1e-2)
    np.testing.assert_allclose(relative(shape.factor, precision(data)), 1.0, rtol=1e-3)


def test_nearly_collinear_columns_are_not_lost_in_rounding():
    """A direction whose curvature is 10⁻⁶ of that of its columns, in single precision."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((4_000, 4)).astype(np.float32)
    x[:, 3] = x[:, :3].sum(axis=1) + 2e-3 * rng.standard_normal(4_000)
    model = sc.Model(lambda beta, x: -0.5 * (1.0 - x @ beta) ** 2)
    problem = setup.compose(model, x, sc.SGLD(), sc.Minibatch(250), 0)
    shape = metric.shape_at(model, problem.table, jnp.zeros(4), "laplace", KEY)
    exact = x.astype(np.float64).T @ x.astype(np.float64)
    np.testing.assert_allclose(relative(shape.factor, exact), 1.0, rtol=0.02)
    assert not shape.flat


def test_fisher_is_the_sum_of_outer_products(data):
    at = mode(data)
    residual = data["y"] - design(data) @ np.concatenate([[at["level"]], at["slopes"]]).astype(np.float64)
    gradients = design(data) * residual[:, None]
    exact = gradients.T @ gradients + np.diag([0.0, *[PRIOR] * COLUMNS])
    table = compose(data).table
    full = metric.shape_at(MODEL, table, at, "fisher", KEY)
    np.testing.assert_allclose(relative(full.factor, exact), 1.0, rtol=1e-3)
    alone = metric.shape_at(MODEL, table, at, "diagonal", KEY)
    np.testing.assert_allclose(alone.factor, np.diagonal(exact) ** -0.5, rtol=1e-3)
    assert alone.condition == pytest.approx(np.diagonal(exact).max() / np.diagonal(exact).min(), rel=1e-2)


@pytest.mark.parametrize("kind", ["laplace", "diagonal"])
def test_streamed_rows_give_the_same(data, kind, tmp_path):
    sc.data.write(tmp_path / "rows", data)
    streamed = compose(sc.data.open(tmp_path / "rows")).table
    assert streamed.streamed
    here, there = (
        metric.shape_at(MODEL, table, mode(data), kind, KEY).factor for table in (compose(data).table, streamed)
    )
    if kind == "diagonal":
        np.testing.assert_allclose(there, here, rtol=1e-4)
    else:  # eigenvectors of eigenvalues that are nearly equal may differ: LLᵀ does not
        np.testing.assert_allclose(relative(there, np.linalg.inv(here @ here.T.astype(np.float64))), 1.0, rtol=1e-3)


def test_many_rows_are_represented_by_some(data, changed):
    changed(LIMITS, curvature_work=500 * (COLUMNS + 1) ** 2)
    shape = metric.shape_at(MODEL, compose(data).table, mode(data), "laplace", KEY)
    values = relative(shape.factor, precision(data))
    # of 500 rows; five times the relative error √(2/500) of a variance
    assert np.all((values > 0.6) & (values < 1.6)) and not np.allclose(values, 1.0, rtol=1e-3)


def test_too_many_parameters_for_a_matrix_are_refused(data):
    many = jnp.zeros(metric.DENSE_LIMIT + 1)
    with pytest.raises(InvalidValueError, match=r'2001 parameters .* metric="low_rank"'):
        metric.shape_at(MODEL, compose(data).table, many, "fisher", KEY)


# -- a diagonal and some directions ------------------------------------------------------------------------------------


def wide_problem(which):
    """300 parameters in units 10⁻²-10², five directions much narrower or wider; the rows' squared gradients mislead."""
    rng = np.random.default_rng(4)
    own = np.exp(rng.normal(size=300))
    away = 30 * rng.normal(size=(300, 5)) / np.sqrt(300)
    matrix = np.diag(own) + (own[:, None] ** 0.5 * away) @ (own[:, None] ** 0.5 * away).T
    if which == "wide":
        matrix = np.linalg.inv(matrix)
    units = 10 ** rng.uniform(-2, 2, 300)
    matrix = matrix * units[:, None] * units
    exact, rows = (jnp.asarray(matrix, jnp.float32), {"number": np.arange(300), "y": np.full(300, 9.0, np.float32)})
    sizes = jnp.asarray(units, jnp.float32)
    model = sc.Model(
        lambda p, row: 1e-3 * row["y"] * sizes[row["number"]] * p[row["number"]], lambda p: -0.5 * p @ exact @ p
    )
    return model, rows, matrix


@pytest.mark.rotates(2)
@pytest.mark.parametrize("which", ["narrow", "wide"])
def test_a_diagonal_and_directions_make_the_posterior_round(which):
    model, rows, matrix = wide_problem(which)
    problem = setup.compose(model, rows, sc.SGLD(), sc.Full(), 0)
    shape = metric.shape_at(model, problem.table, jnp.zeros(300), "low_rank", KEY)
    factor = rows_times(np.asarray(shape.factor, np.float64), np.eye(300)).T
    alone = np.diagonal(matrix) ** -0.5
    before, after = relative(np.diag(alone), matrix), relative(factor, matrix)
    assert before[-1] / before[0] > 300
    assert after[-1] / after[0] < 5, after
    assert shape.largest == pytest.approx(after[-1], rel=0.1)
    assert shape.factor.shape == (300, 6)


def test_directions_of_few_parameters(data):
    """All of the space: exact."""
    shape = metric.shape_at(MODEL, compose(data).table, mode(data), "low_rank", KEY)
    factor = rows_times(np.asarray(shape.factor, np.float64), np.eye(COLUMNS + 1)).T
    values = relative(factor, precision(data))
    assert values[-1] / values[0] < 50 < np.linalg.cond(precision(data))


@pytest.mark.rotates(2, "the same chain")
def test_directions_that_only_a_sample_of_rows_picks_out_are_not_believed(changed):
    """600 parameters, 150 of 4,000 rows read: their largest curvatures are several times too large."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4_000, 600)).astype(np.float32)
    model = sc.Model(lambda p, row: -0.5 * (row @ p) ** 2 + 0.1 * row @ p)
    table = setup.compose(model, x, sc.SGLD(), sc.Minibatch(100), 0).table
    changed(LIMITS, product_work=150 * 600 * 2 * 16 * 6)
    shape = metric.shape_at(model, table, jnp.zeros(600), "low_rank", KEY)
    factor = rows_times(np.asarray(shape.factor, np.float64), np.eye(600)).T
    values = relative(factor, x.T.astype(np.float64) @ x)
    assert values[-1] / values[0] < 4 * ((1 + 0.15**0.5) / (1 - 0.15**0.5)) ** 2


# -- directions without information ------------------------------------------------------------------------------------


def test_cholesky_and_eigenvectors_give_the_same_shape():
    """Of a well-conditioned curvature, in units that differ; and both see a direction without information."""
    rng = np.random.default_rng(1)
    roots, units = rng.normal(size=(60, 30)), np.exp(3 * rng.normal(size=30))
    precision = np.outer(units, units) * (roots.T @ roots)
    singular = precision.copy()
    singular[:, 3], singular[3] = precision[:, 4], precision[4]
    singular[3, 3] = singular[3, 4] = singular[4, 3] = precision[4, 4]
    for limit in (1_000, 1):  # eigenvectors, Cholesky
        shape = metric.dense_shape(precision, np.float64, limit)
        covariance = shape.factor @ shape.factor.T
        np.testing.assert_allclose(precision @ covariance, np.eye(30), atol=1e-6)
        spread = np.linalg.eigvalsh(precision)
        assert shape.condition == pytest.approx(spread[-1] / spread[0], rel=0.05)
        assert not shape.flat
        assert metric.dense_shape(singular, by_cholesky=limit).flat


def test_negative_curvature_counts_as_its_size():
    shape = metric.dense_shape(np.diag([4.0, -0.25]))
    np.testing.assert_allclose(shape.factor @ shape.factor.T, np.diag([0.25, 4.0]), rtol=1e-5)
    assert shape.condition == pytest.approx(16.0)


@pytest.mark.parametrize(
    "matrix",
    [
        np.ones((2, 2)),  # only the sum is known
        np.diag([4.0, 0.0]),  # nothing is known of the second
        np.array([[1.0, 1.5], [1.5, 1.0]]),  # a saddle
        np.zeros((2, 2)),
        1e-12 * np.array([[1.0, 1e5], [1e5, 1e10]]),  # flat, in units that differ
    ],
)
def test_flat_directions_are_bounded(matrix):
    """By 1/_FLATTEST times the variance that each parameter would have alone."""
    factor = metric.dense_shape(matrix).factor.astype(np.float64)
    diagonal = np.diagonal(matrix)
    known = diagonal[diagonal > 0]
    scaled = np.sqrt(np.where(diagonal > 0, diagonal, known.min() if len(known) else 1.0))[:, None] * factor
    values = np.linalg.svd(scaled, compute_uv=False) ** 2
    assert np.all(values <= 1.001e5) and np.all(values > 0.3)


def test_unknown_entries_of_a_diagonal_are_as_the_least_known():
    shape = metric.diagonal_shape(np.array([100.0, 0.0, 4.0]))
    np.testing.assert_allclose(shape.factor, [0.1, 0.5, 0.5], rtol=1e-6)
    assert shape.condition == pytest.approx(25.0)
    np.testing.assert_array_equal(metric.diagonal_shape(np.zeros(2)).factor, [1.0, 1.0])


# -- the measurement in those coordinates ------------------------------------------------------------------------------


def scales(data, factor, key=KEY):
    problem = compose(data)
    return pilot.scales_at(MODEL, problem.parts, problem.table, None, mode(data), factor, key)


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_the_largest_curvature_is_one_in_the_posteriors_own_coordinates(data):
    problem = compose(data)
    factor = metric.shape_at(MODEL, problem.table, mode(data), "laplace", KEY).factor
    assert scales(data, factor).largest_curvature == pytest.approx(1.0, rel=2e-3)
    twice = pilot.curvature_limit(MODEL, problem.table, mode(data), KEY, 2 * factor)
    assert twice == pytest.approx(4.0, rel=2e-3)


def test_the_noise_is_that_of_the_transformed_gradient(data, seed):
    """diag(LᵀVL) against V over all rows at the mode. L is far from symmetric: LVLᵀ would be something else."""
    factor = np.linalg.cholesky(np.linalg.inv(precision(data)))
    factor = factor @ np.linalg.qr(np.random.default_rng(0).normal(size=(COLUMNS + 1, COLUMNS + 1)))[0]
    at = mode(data)
    residual = data["y"] - design(data) @ np.concatenate([[at["level"]], at["slopes"]]).astype(np.float64)
    gradients = (design(data) * residual[:, None]) @ factor
    exact = ROWS**2 / 250 * gradients.var(axis=0)
    found = scales(data, factor.astype(np.float32), jax.random.key(seed))
    np.testing.assert_allclose(flat(found.noise), exact, rtol=0.35)  # eight batches of 250 rows
    np.testing.assert_allclose(flat(found.information), ROWS * np.mean(gradients**2, axis=0), rtol=0.02)
    assert found.factor.shape == (COLUMNS + 1, COLUMNS + 1)


def test_a_diagonal_is_a_matrix_with_nothing_beside_it(data):
    """The same batches at the same points: equal to rounding."""
    entries = (1 / np.sqrt(np.diagonal(precision(data)))).astype(np.float32)
    alone, matrix = scales(data, entries), scales(data, np.diag(entries))
    np.testing.assert_allclose(flat(alone.noise), flat(matrix.noise), rtol=1e-4)
    np.testing.assert_allclose(flat(alone.information), flat(matrix.information), rtol=1e-4)
    assert alone.largest_curvature == pytest.approx(matrix.largest_curvature, rel=1e-5)
