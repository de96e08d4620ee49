"""Exact samplers with few rows: their stationary distribution and event rates against quadrature, and their bounds."""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from law import laws
from scirocco.errors import DivergenceError, InvalidValueError
from scirocco.model.families import FAMILIES, LinearLikelihood
from scirocco.run.sizes import RUNNING

pytestmark = pytest.mark.law

SEED = int(os.environ.get("SCIROCCO_TEST_SEED", "0"))
NUM_ROWS, PRIOR_MEAN, PRIOR_SD = 40, 0.3, 0.6


def prior(beta):
    return -0.5 * jnp.sum((beta - PRIOR_MEAN) ** 2) / PRIOR_SD**2


MODEL = sc.Model.linear("bernoulli", prior)
CASES = {
    "ZigZag": (sc.ZigZag(), sc.Taylor()),
    "ZigZag of order 1, three rows": (sc.ZigZag(0.7), sc.Taylor(3, order=1)),
    "BouncyParticle": (sc.BouncyParticle(), sc.Taylor()),
    "SMH": (sc.SMH(0.7), sc.Taylor(2)),
}


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs that run for less than a second."""


def make_rows():
    rng = np.random.default_rng([SEED, 31])
    x = rng.normal(size=(NUM_ROWS, 2)).astype(np.float32)
    y = rng.random(NUM_ROWS) < 1 / (1 + np.exp(-x @ np.array([1.0, -0.7])))
    return {"x": x, "y": y.astype(np.float32)}


class Quadrature:
    """The posterior on a grid: sums over it are exact to many digits."""

    def __init__(self, rows, width=8.0, size=200):
        x, y = rows["x"].astype(np.float64), rows["y"].astype(np.float64)
        axis = np.linspace(-width / 2, width / 2, size) + np.array([[0.7], [-0.4]])
        self.points = np.stack(np.meshgrid(*axis, indexing="ij"), -1).reshape(-1, 2)
        eta = self.points @ x.T
        log = (y * eta - np.logaddexp(0, eta)).sum(axis=1)
        log -= 0.5 * ((self.points - PRIOR_MEAN) ** 2).sum(axis=1) / PRIOR_SD**2
        self.weights = np.exp(log - log.max())
        self.weights /= self.weights.sum()

    def mean(self, values):
        return np.tensordot(self.weights, values, axes=1)


def moments(points, mean):
    """The functions whose averages are compared: both coordinates, their products, and a third power."""
    a, b = points[..., 0] - mean[0], points[..., 1] - mean[1]
    return np.stack([a, b, a * a, a * b, b * b, (a - b) ** 3], axis=-1)


def draw(model, rows, sampler, estimator, **changes):
    options = {"num_samples": 300, "num_burnin": 10, "num_chains": 64, "chain_method": "vmap", "seed": SEED}
    return sc.sample(
        model, rows, jnp.zeros(2), sampler=sampler, estimator=estimator, progress=False, **(options | changes)
    )


@pytest.mark.parametrize("case", CASES)
def test_the_posterior_is_stationary(case):
    rows = make_rows()
    exact = Quadrature(rows)
    run = draw(MODEL, rows, *CASES[case])
    mean = exact.mean(exact.points)
    expected = exact.mean(moments(exact.points, mean))
    found = moments(np.asarray(run.draws, np.float64), mean).mean(axis=1)
    scores = [laws.z_score(found[:, k], expected[k]) for k in range(len(expected))]
    assert np.max(np.abs(scores)) < 5, scores
    assert 0 < run.stats["tightness"].max() <= 1
    if case == "ZigZag":
        check_rate_of_turns(run, rows, exact)


def check_rate_of_turns(run, rows, exact):
    """Half of E Σ_j (|q_j| + Σ_i |(Lᵀr_i)_j|), by quadrature, with the remainders of a logistic regression by hand."""
    expansion = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), run.origin.memory.expansion)
    x, change = rows["x"].astype(np.float64), exact.points - expansion.centre
    eta, step = x @ expansion.centre, change @ x.T
    p = 1 / (1 + np.exp(-eta))
    remainder = 1 / (1 + np.exp(-eta - step)) - p - p * (1 - p) * step
    of_rows = (np.abs(remainder) @ np.abs(x @ expansion.factor)).sum(axis=1)
    of_expansion = np.abs(expansion.slope + change @ expansion.inverse.T @ expansion.curvature.T).sum(axis=1)
    rate = 0.5 * exact.mean(of_expansion + of_rows)
    assert abs(laws.z_score(run.stats["n_events"].mean(axis=1), rate)) < 5
    assert rate > 1.02 * 0.5 * exact.mean(of_expansion), "rows that never turn it prove nothing"


@pytest.mark.parametrize("sampler", [sc.ZigZag(8.0), sc.BouncyParticle(8.0)], ids=lambda s: type(s).__name__)
def test_integrals_along_the_path_are_exact(sampler):
    """Of polynomials up to degree 3 against quadrature, and with a smaller variance than averages over draws."""
    rows = make_rows()
    exact = Quadrature(rows)
    mean = exact.mean(exact.points)

    def powers(beta):
        a, b = beta - mean
        return jnp.stack([a, b, a * b, (a - b) ** 3])

    both = {"path": sc.reducers.PathMoments(powers, degree=3), "draws": sc.reducers.Moments(powers)}
    # with paths a tenth as long the averages of (a - b)⁶ are so skewed that 64 of them have no normal mean
    run = draw(MODEL, rows, sampler, None, reducers=both)
    values = np.asarray(jax.vmap(powers)(exact.points))
    path, expected = run.reduced["path"], exact.mean(values)
    squares = path.variance + (path.mean - expected) ** 2  # the average of (g - E g)² along the path
    for found, truth in ((path.mean, expected), (squares, exact.mean((values - expected) ** 2))):
        scores = [laws.z_score(np.asarray(found)[:, k], truth[k]) for k in range(len(truth))]
        assert np.max(np.abs(scores)) < 5, scores
    line = both["path"].average(jnp.ones(2), lambda share: jnp.array([0.5 + 2 * share, 1 - share]))
    fine = np.polynomial.legendre.leggauss(40)
    dense = np.array([powers(np.array([1.5 + node, 0.5 - node / 2])) for node in fine[0]])
    np.testing.assert_allclose(line.mean, 0.5 * fine[1] @ dense, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(line.square, 0.5 * fine[1] @ (dense - powers(np.ones(2))) ** 2, rtol=1e-4, atol=1e-5)
    share = np.var(path.mean, axis=0) / np.var(run.reduced["draws"].mean, axis=0)
    assert np.exp(np.mean(np.log(share))) < 0.85, share


def test_a_bound_that_is_too_small_is_an_error():
    """Half of the true one: some row exceeds it, and the error names it."""
    likelihood = LinearLikelihood("bernoulli")
    small = sc.Model(likelihood, prior, curvature_bound=lambda v, row: 0.25 * (row["x"] @ v))
    with pytest.raises(DivergenceError, match=r"more than the model's `curvature_bound`"):
        draw(small, make_rows(), sc.ZigZag(), None, num_samples=1_000)


def test_zig_zag_is_resumed(tmp_path, changed):
    changed(RUNNING, second_chunk=20)

    def stop(report):
        if report.step >= 12:
            report.stop()

    path = {"path": sc.reducers.PathMoments()}
    rows, options = (make_rows(), {"num_samples": 200, "chain_method": "threads", "num_chains": 1, "reducers": path})
    whole = draw(MODEL, rows, sc.ZigZag(), None, **options)
    part = draw(MODEL, rows, sc.ZigZag(), None, **options, store=tmp_path / "run", callbacks=[stop])
    assert part.status == "stopped"
    again = sc.resume(tmp_path / "run", MODEL, rows, progress=False, reducers=path)
    np.testing.assert_array_equal(np.asarray(again.draws), whole.draws)
    for found, expected in zip(again.reduced["path"], whole.reduced["path"], strict=True):
        np.testing.assert_array_equal(found, expected)


# -- bounds ------------------------------------------------------------------------------------------------------------


def parameters_of(family):
    return {name: {"noise": 0.7, "freedom": 3.0}[name] for name in FAMILIES[family].parameters}


@pytest.mark.parametrize("family", ["bernoulli", "normal", "student"])
def test_derivatives_are_bounded(seed, family):
    """At a million random predictors and on a grid, where the bounds are attained."""
    likelihood = LinearLikelihood(family, lambda eta, row: eta, tuple(parameters_of(family).items()))
    rng = np.random.default_rng(seed)
    eta = np.concatenate([rng.standard_t(2, 1_000_000), np.linspace(-8, 8, 100_001)])
    y = rng.integers(0, 2, eta.size) if family == "bernoulli" else np.zeros(eta.size)
    second = jax.grad(jax.grad(lambda eta, y: likelihood(eta, {"y": y})))
    with jax.enable_x64():
        both = jax.jit(jax.vmap(lambda eta, y: (second(eta, y), jax.grad(second)(eta, y))))
        found = [float(np.max(np.abs(each))) for each in both(eta, y.astype(np.float64))]
    for value, bound in zip(found, likelihood.derivatives(), strict=True):
        assert value <= bound * (1 + 1e-9)
        assert value >= bound * (1 - 1e-5)


def test_derivatives_of_softmax_are_bounded(seed):
    """Along random directions, and where two classes are equally likely and the others impossible."""
    likelihood, rng = LinearLikelihood("softmax", lambda eta, row: eta), np.random.default_rng(seed)
    curvature, third = likelihood.derivatives()
    eta = rng.standard_t(2, (100_000, 4)) * 2
    a, b, c = rng.standard_normal((3, 100_000, 4))
    eta[0], a[0], b[0] = [0, 0, -40, -40], [1, -1, 0, 0], [1, -1, 0, 0]

    def along(eta, a, b, c):
        def first(at):
            return jax.jvp(lambda at: likelihood(at, {"y": jnp.zeros(())}), (at,), (a,))[1]

        def second(at):
            return jax.jvp(first, (at,), (b,))[1]

        return jax.jvp(second, (eta,), (c,))

    with jax.enable_x64():
        two, three = jax.jit(jax.vmap(along))(eta, a, b, c)
    norm = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    assert np.all(np.abs(two) <= curvature * norm * (1 + 1e-9))
    assert np.abs(two)[0] == pytest.approx(curvature * norm[0])
    assert np.all(np.abs(three) <= third * norm * np.linalg.norm(c, axis=1))


@pytest.mark.rotates(3)
@pytest.mark.parametrize("family", ["bernoulli", "student", "softmax"])
@pytest.mark.parametrize("order", [1, 2])
def test_remainders_of_rows_are_within_their_bounds(seed, family, order):
    """|Lᵀr_i| ≤ (1 or κ/2) ‖B_iL‖_F ‖B_iL‖^order |u|^order for rows with heavy tails, near the mode and far away."""
    count, rng = int(os.environ.get("SCIROCCO_FUZZ_ROWS", "20_000")), np.random.default_rng([seed, order])
    shape = (3, 2) if family == "softmax" else (2,)
    size = int(np.prod(shape))
    model = sc.Model.linear(family, **parameters_of(family))
    x = rng.standard_t(1.5, (count, 2))
    y = rng.standard_t(2, count) if family == "student" else rng.integers(0, shape[0], count)
    lower, centre = rng.standard_normal((size, size)) * 0.3, rng.standard_normal(size)
    places = rng.standard_normal((count, size)) * rng.choice([0.1, 1.0, 10.0], (count, 1))

    def remainder(row, u):
        def gradient(at):
            return jax.grad(lambda flat: model.log_likelihood(flat.reshape(shape), row))(at)

        first, along = jax.jvp(gradient, (centre,), (lower @ u,))
        left = gradient(centre + lower @ u) - first - (along if order == 2 else 0.0)
        return left, jnp.stack([jnp.ravel(model.curvature_bound(v.reshape(shape), row)) for v in lower.T], axis=1)

    with jax.enable_x64():
        left, image = map(np.asarray, jax.jit(jax.vmap(remainder))({"x": x, "y": y.astype(np.float64)}, places))
    constant = 1.0 if order == 1 else 0.5 * model.third_bound
    norms = np.linalg.norm(image, axis=(1, 2)) * np.linalg.norm(image, 2, axis=(1, 2)) ** order
    bound = constant * norms * np.linalg.norm(places, axis=1) ** order
    excess = np.linalg.norm(left @ lower, axis=1) / np.maximum(bound, 1e-8)  # smaller ones are rounding errors
    assert 0.1 < excess.max() <= 1 + 1e-6


# -- errors ------------------------------------------------------------------------------------------------------------


def test_what_exact_samplers_refuse(tmp_path):
    rows = make_rows()
    sc.data.write(tmp_path / "rows", rows)
    plain = sc.Model(LinearLikelihood("bernoulli"), prior)
    rough = sc.Model(LinearLikelihood("bernoulli"), prior, curvature_bound=MODEL.curvature_bound)
    laplace = sc.Model.linear("bernoulli", lambda beta: -jnp.sum(jnp.abs(beta)))
    zigzag = sc.ZigZag()
    loose = sc.Model(plain.log_likelihood, prior, curvature_bound=lambda v, row: 1e3 * (row["x"] @ v))
    for model, data, sampler, estimator, words in (
        (plain, rows, zigzag, None, r"curvature_bound=\.\.\. .* sc\.NUTS\(\)"),
        (sc.Model.linear("poisson", prior), rows, zigzag, None, "Poisson counts with a log link"),
        (rough, rows, sc.SMH(), None, "third_bound"),
        (MODEL, rows, sc.SMH(), sc.Taylor(order=1), "second order"),
        (laplace, rows, zigzag, None, "normal or a flat prior"),
        (loose, rows, zigzag, None, "rows for each draw"),
        (MODEL, rows, zigzag, sc.Minibatch(10), r"sc\.Taylor\(\) in place of Minibatch"),
        (MODEL, str(tmp_path / "rows"), zigzag, None, "in the memory"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            draw(model, data, sampler, estimator, num_chains=1, num_samples=2)
    with pytest.raises(InvalidValueError, match=r"SMH only makes draws: use sc\.reducers\.Moments"):
        draw(MODEL, rows, sc.SMH(), None, reducers={"beta": sc.reducers.PathMoments()})
