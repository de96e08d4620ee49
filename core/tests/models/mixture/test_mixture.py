"""Gaussian mixtures: the posterior by quadrature, a common order of components, predictions, and bad input."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats

import scirocco as sc
from scirocco.errors import InvalidTypeError, InvalidValueError, NoDrawsError, NotFittedError
from scirocco.models._core.relabel import orders
from scirocco.models.mixture.start import Priors, rough_fit, step_sizes

pytestmark = pytest.mark.compile

GaussianMixture = sc.models.GaussianMixture
POINTS = np.array([-2.0, 0.0, 1.0, 4.0])


def _rows(seed, count):
    rng = np.random.default_rng([seed, 8])
    return np.where(rng.random(count) < 0.3, -2.0, 2.0) + rng.normal(size=count)


def _predictive(rows, prior_scale):
    """E[p(x) | rows] at the points, w ~ U(0, 1), means ~ N(0, prior_scale²): a grid over (w, μ₁, μ₂)."""
    w = np.linspace(0.01, 0.99, 50)
    mu = np.linspace(-6, 6, 90)
    near = stats.norm.pdf(rows[:, None], mu)  # (rows, means)
    log_prior = stats.norm.logpdf(mu, scale=prior_scale)
    logs = log_prior[:, None] + log_prior + np.zeros((50, 1, 1))
    for density in near:
        logs = logs + np.log(w[:, None, None] * density[:, None] + (1 - w[:, None, None]) * density)
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    at = stats.norm.pdf(POINTS[:, None], mu)
    return np.array([np.sum(weight * (w[:, None, None] * p[:, None] + (1 - w[:, None, None]) * p)) for p in at])


@pytest.mark.rotates(2, "mixtures")
def test_the_predictive_density_is_that_of_the_posterior(seed):
    rows = _rows(seed, 25)
    mixture = GaussianMixture(
        2, covariance="known", prior_scale=3.0, num_samples=1_800, num_burnin=300, thin=4, num_chains=4, seed=seed
    )
    mixture.fit(rows[:, None], progress=False)
    means, weights = (np.asarray(mixture.run_.draws[name]) for name in ("means", "weights"))
    each = np.sum(weights[..., None] * stats.norm.pdf(POINTS, means), axis=2)  # (chain, draw, point)
    parts = each.reshape(4 * 15, -1, len(POINTS)).mean(axis=1)
    error = parts.std(axis=0, ddof=1) / np.sqrt(len(parts))
    exact = _predictive(rows, 3.0)
    assert np.all(np.abs(parts.mean(axis=0) - exact) < 5.5 * error + 0.02 * exact)  # the step adds 5 % to a variance


@pytest.fixture(scope="module")
def narrow():
    """Two clusters of twelve rows with standard deviations of 1 and 2, far from 0 and from each other, in a frame."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    rng = np.random.default_rng(3)
    X = 1e9 + np.repeat([[-10.0, 20.0], [10.0, -20.0]], 12, axis=0) + rng.normal(size=(24, 2)) * [1.0, 2.0]
    frame = pandas.DataFrame(X, columns=["height", "time"])
    mixture = GaussianMixture(2, weights="equal", num_samples=1_500, num_burnin=200, thin=4, num_chains=4)
    return mixture.fit(frame, progress=False), X.reshape(2, 12, 2), frame


def test_standard_deviations_of_narrow_clusters(narrow):
    """Given the labels s⁻² ~ Gamma(1 + 11/2, 0.01 v + S/2), v the column's variance and S a cluster's squares."""
    mixture, clusters, frame = narrow
    squares = np.sum((clusters - clusters.mean(axis=1, keepdims=True)) ** 2, axis=1)
    exact = (1 + 11 / 2) / (0.01 * frame.to_numpy().var(axis=0) + squares / 2)
    parts = (mixture.draws_["scales"] ** -2).reshape(40, -1, 2, 2).mean(axis=1)
    error = parts.std(axis=0, ddof=1) / np.sqrt(len(parts))
    assert np.all(np.abs(parts.mean(axis=0) - exact) < 5.5 * error + 0.05 * exact)


def test_means_do_not_depend_on_where_the_columns_lie(narrow):
    mixture, clusters, _ = narrow
    np.testing.assert_allclose(mixture.means_ - 1e9, clusters.mean(axis=1) - 1e9, atol=0.4)


def test_columns_keep_their_names(narrow):
    mixture, _, frame = narrow
    assert mixture.feature_names_in_.tolist() == ["height", "time"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mixture.predict(frame).tolist() == [0] * 12 + [1] * 12
    with pytest.raises(InvalidValueError, match="in the same order"):
        mixture.predict(frame[["time", "height"]])


@pytest.fixture(scope="module")
def fitted(quick_compiler):
    rng = np.random.default_rng(5)
    label = rng.choice(3, 2_400, p=[0.2, 0.3, 0.5])
    centres = np.array([[-5.0, 0.0], [0.0, 50.0], [5.0, 0.0]])
    X = centres[label] + rng.normal(size=(2_400, 2)) * [1.0, 10.0]
    mixture = GaussianMixture(3, num_samples=150, num_burnin=100, thin=3)
    return mixture.fit(X, progress=False), X, label


@pytest.mark.rotates(2, "mixtures")
def test_many_rows_by_batches(fitted):
    mixture, X, label = fitted
    assert mixture.run_.configuration["estimator"]["name"] == "ControlVariates"
    share = np.bincount(label) / len(label)
    order = np.argsort(mixture.means_[:, 0])
    weights = mixture.summary(0.99).loc[[f"weights[{k}]" for k in order]]
    assert np.all((weights["0.5%"] - 0.03 < share) & (share < weights["99.5%"] + 0.03))
    np.testing.assert_allclose(mixture.scales_[order], np.tile([1.0, 10.0], (3, 1)), rtol=0.15)
    assert np.mean(np.argsort(order)[mixture.predict(X)] == label) > 0.95
    shares = mixture.predict_proba(X[:50])
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-4)
    logs = mixture.score_samples(X[:50])
    assert logs.shape == (50,) and mixture.score(X[:50]) == pytest.approx(logs.mean())


def test_the_density_is_in_the_users_units(fitted):
    """It integrates to one over the plane that the data fill."""
    mixture, _, _ = fitted
    a, b = np.linspace(-12, 12, 120), np.linspace(-70, 120, 120)
    grid = np.stack(np.meshgrid(a, b, indexing="ij"), axis=-1).reshape(-1, 2)
    total = np.exp(mixture.score_samples(grid)).sum() * (a[1] - a[0]) * (b[1] - b[0])
    assert total == pytest.approx(1.0, abs=0.02)


def test_known_weights_leave_one_block(seed, quick_compiler):
    rows = _rows(seed, 40)[:, None]
    mixture = GaussianMixture(2, weights=[0.3, 0.7], covariance="known", num_samples=50, num_burnin=10)
    mixture.fit(rows, progress=False)
    assert set(mixture.run_.draws) == {"means"}
    np.testing.assert_allclose(mixture.weights_, [0.3, 0.7])


def test_one_component(seed, quick_compiler):
    """μ ~ N(Σx / (N + 1/9), 1 / (N + 1/9)); and a later fit that is stopped in its burn-in changes nothing."""
    rows = _rows(seed, 40)[:, None]
    settings = {"covariance": "known", "prior_scale": 3.0, "num_samples": 800, "seed": seed}
    mixture = GaussianMixture(1, num_burnin=50, **settings).fit(rows, progress=False)
    assert mixture.weights_.tolist() == [1.0] and mixture.predict(rows).tolist() == [0] * 40
    assert mixture.means_[0, 0] == pytest.approx(rows.sum() / (40 + 1 / 9), abs=0.15)
    before, longer = mixture.run_, mixture.set_params(num_burnin=50_000)
    with pytest.raises(NoDrawsError, match="stopped in its burn-in"):
        longer.fit(rows, callbacks=[lambda report: report.stop()], progress=False)
    assert mixture.run_ is before and mixture.predict(rows).tolist() == [0] * 40
    assert list(mixture.summary().index) == ["means[0, 0]"]  # what is fixed is left out


def test_draws_are_brought_into_one_order(seed):
    rng = np.random.default_rng(seed)
    centres = np.array([[-3.0, 1.0], [0.0, 0.0], [3.0, -1.0]])
    truth = np.array([rng.permutation(3) for _ in range(40)])
    means = centres[truth] + 0.1 * rng.normal(size=(40, 3, 2))
    order = orders(means)
    np.testing.assert_array_equal(np.take_along_axis(truth, order, axis=1), np.tile([0, 1, 2], (40, 1)))


def test_a_rough_fit_finds_separate_components(seed):
    rng = np.random.default_rng([seed, 9])
    x = np.concatenate([rng.normal(-8, 1, (300, 1)), rng.normal(8, 1, (100, 1))])
    fit = rough_fit(x, 2, rng, priors=Priors(np.array([10.0]), None), weights=None)
    np.testing.assert_allclose(np.sort(fit.means[:, 0]), [-8, 8], atol=0.6)
    np.testing.assert_allclose(np.sort(fit.weights), [0.25, 0.75], atol=0.02)


def test_rows_without_spread_have_the_prior_s(seed):
    """Components of 50 equal rows: s² = 2 rate / (50 + 2 shape), and steps for the prior's curvature in log s."""
    rng, priors = np.random.default_rng(seed), Priors(np.array([2.0]), (1.0, 0.01))
    x = np.repeat([[-1.0], [1.0]], 50, axis=0)
    fit = rough_fit(x, 2, rng, priors=priors, weights=None)
    np.testing.assert_allclose(fit.scales**2, 0.02 / 52, rtol=1e-5)
    steps = step_sizes(x, fit, priors, None, rng)
    np.testing.assert_allclose(steps.scales, 0.1 / (2 * 50 + 4 * 0.01 / fit.scales**2), rtol=1e-5)
    np.testing.assert_allclose(steps.means, 0.1 / (50 / fit.scales**2 + 1 / 4), rtol=1e-5)


X = np.random.default_rng(0).normal(size=(20, 2))


@pytest.mark.parametrize(
    ("settings", "rows", "error", "words"),
    [
        ({"weights": [0.5, 0.6]}, X, InvalidValueError, "sum 1"),
        ({"weights": "even"}, X, InvalidValueError, "weights"),
        ({"covariance": "full"}, X, InvalidValueError, "covariance"),
        ({"weights": [np.nan, 0.3]}, X, InvalidValueError, "sum 1"),
        ({"covariance": "known", "scale": -1.0}, X, InvalidValueError, "`scale`"),
        ({"covariance": "known", "scale": [1.0, 1.0, 1.0]}, X, InvalidValueError, "2 columns"),
        ({"scale_prior": (-1.0, 1.0)}, X, InvalidValueError, "`scale_prior` .* > 0"),
        ({"scale_prior": 1.0}, X, InvalidTypeError, r"a pair \(shape, rate\)"),
        ({"num_components": 1}, X[:1], InvalidValueError, "one sample"),
        ({"prior_scale": "wide"}, X, InvalidTypeError, "prior_scale"),
        ({"num_components": 30}, X, InvalidValueError, "at least as many rows"),
        ({}, X[:, 0], InvalidValueError, "shape"),
        ({}, np.where(X > 2, np.nan, X * np.nan), InvalidValueError, "missing|NaN"),
        ({}, np.array([["a", "b"]] * 5), InvalidTypeError, "column|numbers"),
    ],
)
def test_bad_input(settings, rows, error, words):
    with pytest.raises(error, match=words):
        GaussianMixture(**{"num_components": 2, **settings}).fit(rows, progress=False)


def test_unfitted():
    with pytest.raises(NotFittedError):
        GaussianMixture().predict(X)
