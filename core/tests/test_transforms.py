"""Constrained parameters: the maps, their Jacobians, and the law that comes out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
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
    "positive_ordered": transforms.positive_ordered,
    "affine": transforms.affine(-2.0, 3.0),
    "simplex": transforms.simplex,
    "cholesky": transforms.cholesky_correlation,
}
SHAPES = {"number": (), "vector": (6,), "matrix": (2, 3)}
ALONG_AN_AXIS = ("ordered", "positive_ordered", "simplex", "cholesky")
PAIRS = [(m, shape) for m in MAPS for shape in SHAPES if shape != "number" or m not in ALONG_AN_AXIS]


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs of a few steps."""


def points(shape, seed):
    return jnp.asarray(np.random.default_rng([seed, 1]).normal(0.0, 1.5, SHAPES[shape]), jnp.float32)


def free(name, x):
    """The elements of x that fix the others."""
    if name == "simplex":
        return x[..., :-1]
    return x[..., *np.tril_indices(x.shape[-1], -1)] if name == "cholesky" else x


@pytest.mark.rotates(2)
@pytest.mark.parametrize(("name", "shape"), PAIRS)
def test_there_and_back(name, shape, seed):
    transform, u = MAPS[name], points(shape, seed)
    x = transform.forward(u)
    assert free(name, x).shape == u.shape
    assert x.dtype == u.dtype
    assert bool(transform.contains(x))
    np.testing.assert_allclose(transform.inverse(x), u, rtol=1e-3, atol=1e-4)


@pytest.mark.rotates(2)
@pytest.mark.parametrize(("name", "shape"), PAIRS)
def test_log_det_is_that_of_the_jacobian(name, shape, seed):
    transform, u = MAPS[name], points(shape, seed)
    flat = jax.jacfwd(lambda v: free(name, transform.forward(v.reshape(u.shape))).ravel())(u.ravel())
    sign, log_det = np.linalg.slogdet(np.asarray(flat, np.float64))
    assert sign != 0
    np.testing.assert_allclose(transform.log_det(u), log_det, rtol=1e-4, atol=1e-4)
    assert transform.log_det(u).shape == ()


OUTSIDE = {"positive": [0.0, -1.0], "above": [-2.0, -3.0], "below": [3.0, 4.0], "interval": [-1.0, 4.0, -1.5, 4.5]}


@pytest.mark.parametrize("name", OUTSIDE)
def test_the_edge_is_outside(name):
    inside = MAPS[name].forward(jnp.zeros(2))
    for value in OUTSIDE[name]:
        assert not bool(MAPS[name].contains(inside.at[1].set(value))), value


def test_ordered_means_strictly_increasing_along_the_last_axis():
    assert bool(transforms.ordered.contains(jnp.array([[1.0, 2.0], [0.0, 5.0]])))
    assert not bool(transforms.ordered.contains(jnp.array([[1.0, 2.0], [5.0, 0.0]])))
    assert not bool(transforms.ordered.contains(jnp.array([1.0, 1.0])))
    assert bool(transforms.positive_ordered.contains(jnp.array([0.5, 2.0])))
    assert not bool(transforms.positive_ordered.contains(jnp.array([-1.0, 2.0])))


def test_what_simplexes_and_cholesky_factors_are(seed):
    for shape in ("vector", "matrix"):
        u = points(shape, seed)
        np.testing.assert_allclose(transforms.simplex.forward(u).sum(axis=-1), 1.0, rtol=1e-6)
        factor = np.asarray(transforms.cholesky_correlation.forward(u))
        np.testing.assert_allclose(np.sum(factor**2, axis=-1), 1.0, rtol=1e-5)
        assert np.all(np.triu(factor, 1) == 0)
    np.testing.assert_allclose(transforms.simplex.forward(jnp.zeros(3)), 0.25, rtol=1e-6)
    np.testing.assert_allclose(transforms.cholesky_correlation.forward(jnp.zeros(3)), np.eye(3))
    assert not bool(transforms.simplex.contains(jnp.array([0.5, 0.6])))
    assert not bool(transforms.simplex.contains(jnp.array([0.0, 1.0])))
    assert not bool(transforms.cholesky_correlation.contains(jnp.array([[1.0, 0.0], [0.6, 0.7]])))
    assert not bool(transforms.cholesky_correlation.contains(jnp.array([[1.0, 0.6], [0.0, 0.8]])))


@pytest.mark.parametrize("name", ["positive", "above", "below", "interval", "affine", "simplex"])
def test_far_out_everything_stays_finite(name):
    """A chain may wander far on the real line: neither the density nor its gradient may become NaN there."""
    u = jnp.array([-60.0, -20.0, 20.0, 60.0])
    assert np.all(np.isfinite(MAPS[name].forward(u)))
    assert np.all(np.isfinite(jax.grad(MAPS[name].log_det)(u)))
    assert np.isfinite(MAPS[name].log_det(u))


def test_a_cholesky_factor_of_a_matrix_that_is_nearly_singular(seed):
    """The smallest entries of the diagonal are those that rounding would destroy."""
    u = jnp.array([12.0, -3.0, 0.5])
    factor = transforms.cholesky_correlation.forward(u)
    assert float(factor[1, 1]) > 0
    np.testing.assert_allclose(transforms.cholesky_correlation.inverse(factor), u, rtol=1e-4)
    assert np.isfinite(transforms.cholesky_correlation.log_det(u))


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


def grid(size, dimension, far):
    """Points of a grid as rows, and the volume of a cell: the trapezoidal rule."""
    axis = np.linspace(-far, far, size)
    mesh = np.meshgrid(*[axis] * dimension, indexing="ij")
    points = jnp.asarray(np.stack(mesh, axis=-1).reshape(-1, dimension), jnp.float32)
    return points, (axis[1] - axis[0]) ** dimension


def test_a_dirichlet_distribution_on_the_real_line_integrates_to_one():
    """With its normalising constant, its means are a / Σa."""
    a = np.array([2.0, 3.0, 1.5])
    points, cell = grid(161, 2, 16.0)
    x = np.asarray(jax.vmap(transforms.simplex.forward)(points), np.float64)
    log_det = np.asarray(jax.vmap(transforms.simplex.log_det)(points), np.float64)
    log_density = (a - 1) @ np.log(x).T + scipy.special.gammaln(a.sum()) - scipy.special.gammaln(a).sum()
    weights = np.exp(log_density + log_det) * cell
    assert abs(weights.sum() - 1) < 1e-4
    np.testing.assert_allclose(weights @ x, a / a.sum(), atol=1e-4)


@pytest.mark.parametrize("eta", [1.0, 2.5])
def test_an_lkj_distribution_has_beta_marginals(eta):
    """A correlation of LKJ(η) in d dimensions is 2 Beta(b, b) - 1, b = η - 1 + d/2, with variance 1 / (2b + 1)."""
    points, cell = grid(61, 3, 9.0)
    factor = np.asarray(jax.vmap(transforms.cholesky_correlation.forward)(points), np.float64)
    log_det = np.asarray(jax.vmap(transforms.cholesky_correlation.log_det)(points), np.float64)
    diagonal = np.diagonal(factor, axis1=1, axis2=2)[:, 1:]
    log_density = np.log(diagonal) @ (np.array([1.0, 0.0]) + 2 * eta - 2)
    weights = np.exp(log_density + log_det) * cell
    weights /= weights.sum()
    correlation = factor @ factor.transpose(0, 2, 1)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert abs(weights @ correlation[:, i, j] ** 2 - 1 / (2 * eta + 2)) < 1e-4, (i, j)


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


MODEL = sc.Model(log_likelihood, log_prior, transforms={"scale": transforms.positive})
BY_HAND = sc.Model(by_hand_likelihood, by_hand_prior)
START = {"mean": np.float32(0.5), "scale": np.float32(2.0)}
START_BY_HAND = {"mean": np.float32(0.5), "scale": np.float32(np.log(2.0))}
DATA = np.random.default_rng(5).normal(1.0, 2.0, 64).astype(np.float32)


@pytest.mark.rotates(2, "the same chain")
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


def test_naming_only_the_constrained_parameters_is_enough():
    """At every level of nested dicts."""
    nested = {"a": {"b": jnp.array([1.0, 2.0]), "c": [jnp.array(3.0), {"e": jnp.array(2.0), "f": jnp.array(-2.0)}]}}
    nested["d"] = jnp.array(-1.0)
    named = {"a": {"c": [None, {"e": transforms.positive}]}}
    position = sc.Model(lambda p, x: 0.0 * x, transforms=named).unconstrain(nested)
    expected = jax.tree.map(lambda leaf: leaf, nested)
    expected["a"]["c"][1]["e"] = jnp.log(2.0)
    helpers.assert_close(position, expected)


# -- transforms that depend on other parameters -----------------------------------------------------------------------

CHAINED = {
    "top": transforms.above(lambda p: p["middle"]),
    "middle": transforms.interval(lambda p: p["bottom"], 10.0),
    "bottom": transforms.positive,
    "group": transforms.affine(lambda p: p["mean"], lambda p: p["bottom"] * p["weights"][0]),
    "weights": transforms.simplex,
}
VALUES = {
    "bottom": jnp.float32(1.5),
    "group": jnp.array([0.3, -1.0, 2.0]),
    "mean": jnp.float32(-0.5),
    "middle": jnp.float32(4.0),
    "top": jnp.array([4.5, 7.0]),
    "weights": jnp.array([0.2, 0.3, 0.5]),
}


def test_values_are_found_in_the_order_of_what_depends_on_what(seed):
    """`top` depends on `middle`, which depends on `bottom`: against the same by hand, and there and back."""
    model = sc.Model(lambda p, x: 0.0 * x, transforms=CHAINED)
    model.check_domain(VALUES)
    position = model.unconstrain(VALUES)
    np.testing.assert_allclose(position["top"], np.log([0.5, 3.0]), rtol=1e-5)
    np.testing.assert_allclose(position["middle"], np.log(2.5 / 6.0), rtol=1e-5)
    np.testing.assert_allclose(position["group"], (VALUES["group"] + 0.5) / (1.5 * 0.2), rtol=1e-5)
    assert position["weights"].shape == (2,)
    helpers.assert_close(model.constrain(position), VALUES)
    rng = np.random.default_rng([seed, 2])
    moved = jax.tree.map(lambda u: u + jnp.asarray(rng.normal(0, 0.5, u.shape), u.dtype), position)
    helpers.assert_close(jax.jit(model.unconstrain)(jax.jit(model.constrain)(moved)), moved, 1e-3, 1e-3)


def test_log_det_of_a_model_is_that_of_the_whole_jacobian(seed):
    """Over all parameters together: what one depends on is off the diagonal blocks and must not count."""
    model = sc.Model(lambda p, x: 0.0 * x, transforms=CHAINED)
    start, unravel = jax.flatten_util.ravel_pytree(model.unconstrain(VALUES))
    flat = start + jnp.asarray(np.random.default_rng([seed, 4]).normal(0, 0.3, start.shape), start.dtype)

    def elements(v):
        params = model.constrain(unravel(v))
        params["weights"] = params["weights"][:-1]
        return jax.flatten_util.ravel_pytree(params)[0]

    sign, log_det = np.linalg.slogdet(np.asarray(jax.jacfwd(elements)(flat), np.float64))
    assert sign != 0
    np.testing.assert_allclose(model.log_prior_density(unravel(flat)), log_det, rtol=1e-3, atol=1e-3)


def test_circles_are_refused():
    below_b, above_a = transforms.below(lambda p: p["b"]), transforms.above(lambda p: p["a"])
    values = {"a": jnp.float32(1.0), "b": jnp.float32(2.0), "c": jnp.float32(0.0)}
    for named, words in (
        ({"a": below_b, "b": above_a}, "`a`, `b`"),
        ({"a": transforms.below(lambda p: p["a"])}, "`a`"),
    ):
        model = sc.Model(lambda p, x: 0.0 * x, transforms=named)
        with pytest.raises(sc.errors.InvalidValueError, match=f"transforms of {words} depend on each other"):
            model.unconstrain(values)
        with pytest.raises(sc.errors.InvalidValueError, match=f"transforms of {words} depend on each other"):
            model.constrain(values)


def test_what_does_not_fit_is_refused():
    def check(named, **changes):
        sc.Model(lambda p, x: 0.0 * x, transforms=named).check_domain({**VALUES, **changes})

    invalid = sc.errors.InvalidValueError
    with pytest.raises(invalid, match=r"`middle` \(0.5\) is outside"):
        check(CHAINED, middle=jnp.float32(0.5))
    with pytest.raises(invalid, match=r"shape \(\) of the parameter; with it, the parameter has shape \(3,\)"):
        check({"middle": transforms.above(lambda p: jnp.min(p["top"]) - jnp.ones(3) * 5)})
    with pytest.raises(invalid, match=r"a function in `transforms` failed for parameters .*KeyError: 'botom'"):
        check({"middle": transforms.above(lambda p: p["botom"])})
    with pytest.raises(invalid, match=r"which is not a parameter\. Did you mean 'middle'"):
        check({"midle": transforms.positive})
    with pytest.raises(invalid, match="no transform of its model may depend on other parameters"):
        sc.BlockModel(sc.Model(lambda p, x: 0.0 * x, transforms=CHAINED))


@pytest.mark.rotates(3, "resumed runs")
def test_a_run_with_shapes_that_change(tmp_path):
    """Draws in the user's shapes, gradients and step sizes on the real line; stored, resumed, summarised, diagnosed."""
    labels = np.repeat(np.arange(3), [30, 20, 14])
    model = sc.Model(
        lambda p, k: jnp.log(p["weights"][k]) - 0.5 * (p["group"][k] - p["mean"]) ** 2,
        lambda p: -p["scale"] - 0.5 * jnp.sum(((p["group"] - p["mean"]) / p["scale"]) ** 2 + 2 * jnp.log(p["scale"])),
        transforms={
            "weights": transforms.simplex,
            "scale": transforms.positive,
            "factor": transforms.cholesky_correlation,
            "group": transforms.affine(lambda p: p["mean"], lambda p: p["scale"]),
        },
    )
    start = {
        "weights": np.full(3, 1 / 3, np.float32),
        "scale": np.float32(1.0),
        "mean": np.float32(0.0),
        "group": np.zeros(3, np.float32),
        "factor": np.eye(3, dtype=np.float32),
    }
    arguments = {
        "sampler": sc.SGLD(dict.fromkeys(start, 0.001)),
        "estimator": sc.ControlVariates(16, centre=start),
        "keep_gradients": True,
        "num_chains": 2,
        "progress": False,
    }
    whole = sc.sample(model, labels, start, num_samples=20, **arguments)
    assert whole.draws["weights"].shape == (2, 20, 3)
    assert whole.gradients["weights"].shape == (2, 20, 2)
    assert whole.draws["factor"].shape == (2, 20, 3, 3)
    assert whole.configuration["dimension"] == 2 + 1 + 1 + 3 + 3
    np.testing.assert_allclose(whole.draws["weights"].sum(axis=-1), 1.0, rtol=1e-5)
    sc.sample(model, labels, start, num_samples=7, store=tmp_path / "run", **arguments)
    resumed = sc.resume(tmp_path / "run", model, labels, num_samples=20, progress=False)
    helpers.assert_equal(resumed.draws, whole.draws)
    loaded = sc.load(tmp_path / "run")
    helpers.assert_equal(loaded.gradients, whole.gradients)
    assert "weights[2]" in str(whole.summary())
    assert "factor[2, 1]" in str(whole.summary())
    assert "stuck" not in sc.analysis.diagnose(whole).measures  # factor[0, 0] is 1 by definition
