"""KDEMC against the mixture that it samples, all components counted."""

from __future__ import annotations

import importlib
import itertools
import warnings

import numpy as np
import pytest
from scipy import stats

from scirocco.combine.gaussian import consensus
from scirocco.combine.kdemc import WALKING, kdemc
from scirocco.combine.weierstrass import weierstrass
from scirocco.errors import SciroccoWarning

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

module = importlib.import_module("scirocco.combine.kdemc")  # its name is also the function's
H = 0.7
POINTS = [
    np.array([[-1.0, 0.2], [0.3, 0.0], [1.0, -0.8]]),
    np.array([[0.0, 0.5], [0.8, -0.3], [-0.6, 0.1], [1.5, 1.0]]),
    np.array([[0.4, 0.4], [-0.5, -0.9]]),
]


def exact_weights(points, h):
    """w_t = Π_s N(θ_{s,t_s} | θ̄_t, h²) for all t, and θ̄_t."""
    found, centres = {}, {}
    for t in itertools.product(*[range(len(part)) for part in points]):
        chosen = np.stack([part[i] for part, i in zip(points, t, strict=True)])
        centres[t] = chosen.mean(axis=0)
        found[t] = np.exp(stats.norm.logpdf(chosen, centres[t], h).sum())
    total = sum(found.values())
    return {t: weight / total for t, weight in found.items()}, centres


def walk(moves, seed, points=POINTS, number=10_000):
    """As many chains as draws: independent ones."""
    burnin = module.bandwidths(H, 15 if moves == "gibbs" else 60, True)
    rng = np.random.default_rng(seed)
    return module.sample_components(points, burnin, H, number, num_chains=number, moves=moves, rng=rng)


def assert_frequencies(indices, weights):
    counts = [int(np.sum(np.all(indices == t, axis=1))) for t in weights]
    expected = len(indices) * np.array(list(weights.values()))
    assert expected.min() > 5
    assert stats.chisquare(counts, expected).pvalue > 1e-6


@pytest.mark.parametrize("moves", ["gibbs", "independent"])
def test_components_have_their_weights(moves, seed):
    assert_frequencies(walk(moves, seed).indices, exact_weights(POINTS, H)[0])


def semiparametric_weights(points, h):
    """The same times N(θ̄_t | μ, Σ + h²/S) / Π_s N(θ_{s,t_s} | μ_s, Σ_s), all densities by hand."""
    plain, centres = exact_weights(points, h)
    laws = [stats.multivariate_normal(part.mean(axis=0), np.cov(part.T)) for part in points]
    precision = sum(np.linalg.inv(law.cov) for law in laws)
    mean = np.linalg.solve(precision, sum(np.linalg.solve(law.cov, law.mean) for law in laws))
    whole = stats.multivariate_normal(mean, np.linalg.inv(precision) + h**2 / len(points) * np.eye(2))
    found = {
        t: weight
        * whole.pdf(centres[t])
        / np.prod([law.pdf(part[i]) for law, part, i in zip(laws, points, t, strict=True)])
        for t, weight in plain.items()
    }
    total = sum(found.values())
    return {t: weight / total for t, weight in found.items()}


@pytest.mark.parametrize("moves", ["gibbs", "independent"])
def test_semiparametric_components_have_their_weights(moves, seed):
    points = [part + 0.1 * np.random.default_rng(s).normal(size=part.shape) for s, part in enumerate(POINTS)]
    points[2] = np.array([[0.4, 0.4], [-0.5, -0.9], [0.2, -0.6]])  # three points have a covariance
    normals = module.NormalParts.of(points, ["a", "b"], H)
    rng, number = np.random.default_rng(seed), 10_000
    burnin = module.bandwidths(H, 15 if moves == "gibbs" else 60, True)
    options = {"num_chains": number, "moves": moves, "rng": rng, "normals": normals}
    found = module.sample_components(points, burnin, H, number, **options)
    assert_frequencies(found.indices, semiparametric_weights(points, H))


def test_semiparametric_estimates_add_no_variance_to_normal_subposteriors(seed):
    """Kernels alone add h² to the variance of each; in five dimensions that is much."""
    rng = np.random.default_rng(seed)
    shards = [rng.normal(mean, 1.0, size=(600, 5)) for mean in (-0.1, 0.1, 0.2)]
    found = {kind: kdemc(shards, semiparametric=kind, num_draws=1_000, seed=seed).draws.var() for kind in (True, False)}
    assert abs(found[True] * 3 - 1) < 0.12
    assert found[False] * 3 > 1.1


@pytest.mark.parametrize("changes", [{"single": 0.0}, {"stretch": 2}, {"block": 400}, {"far": 10.0}])
def test_the_same_law_by_other_ways_of_computing(changes, seed, changed):
    """Double precision; sums over stretches of two; a few chains at a time; all weights shifted."""
    changed(WALKING, **changes)
    assert_frequencies(walk("gibbs", seed).indices, exact_weights(POINTS, H)[0])


def test_draws_are_those_of_the_mixture(seed):
    """Mean and covariance of the product of kernel densities, in the user's coordinates."""
    number, units = 20_000, np.array([[2.0, 0.0], [1.0, 0.5]])
    given = [part @ units.T + 3.0 for part in POINTS]
    with pytest.warns(SciroccoWarning):
        found = kdemc(given, bandwidth=H, num_draws=number, num_chains=number, num_burnin=15, seed=seed).draws
    within = np.concatenate([part - part.mean(axis=0) for part in given])
    root = np.linalg.cholesky(np.cov(within, rowvar=False))
    back = np.linalg.inv(root).T
    weights, centres = exact_weights([(part - 3.0) @ back for part in given], H)
    p, c = np.array(list(weights.values())), np.stack(list(centres.values()))
    mean = p @ c
    covariance = (c - mean).T @ ((c - mean) * p[:, None]) + np.eye(2) * H**2 / 3
    z = (found - 3.0) @ back - mean
    assert np.all(np.abs(z.mean(axis=0)) < 5 * np.sqrt(np.diag(covariance) / number))
    products = np.einsum("ni,nj->nij", z, z)
    assert np.all(np.abs(products.mean(axis=0) - covariance) < 5 * products.std(axis=0) / np.sqrt(number))


def test_one_subposterior_gives_its_density_estimate(seed):
    points = np.random.default_rng(seed).normal(size=(130, 1))  # not a whole number of stretches
    with pytest.warns(SciroccoWarning, match="20,000 draws come from 130 components"):
        found = kdemc([points], num_draws=20_000, num_chains=20_000, num_burnin=0, seed=seed)
    h = found.diagnostics["bandwidth"] * points.std(ddof=1)
    p = stats.kstest(found.draws[:, 0], lambda x: stats.norm.cdf(x[:, None], points[:, 0], h).mean(axis=1)).pvalue
    assert p > 1e-6
    assert found.diagnostics["moved"] > 0.9


@pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning")
def test_weights_do_not_vanish_far_away(seed):
    """Two subposteriors a thousand standard deviations apart: every log weight is below -10⁶/h²."""
    x = np.random.default_rng(seed).normal(size=(2, 200, 1)) + np.array([0.0, 1_000.0])[:, None, None]
    found = kdemc(x, num_draws=100, num_burnin=50, bandwidth=0.5, seed=seed).draws
    # the weights are exp(-|x_0 - x_1|²/(4h²)): all but the nearest pair are nothing
    nearest = 0.5 * (x[0].max() + x[1].min())
    assert np.all(np.abs(found - nearest) < 6 * 0.5 / np.sqrt(2) * x.std(axis=1).max())


def test_bandwidths_fall_and_stay():
    widths = module.bandwidths(0.1, 40, True)
    assert widths[0] == 1.0
    assert np.all(np.diff(widths[:31]) < 0)
    np.testing.assert_allclose(widths[30:], 0.1)
    np.testing.assert_allclose(module.bandwidths(0.1, 40, False), 0.1)
    np.testing.assert_allclose(module.bandwidths(2.0, 40, True), 2.0)
    assert len(module.bandwidths(0.1, 0, True)) == 0


def test_silvermans_bandwidth(seed):
    x = np.random.default_rng(seed).normal(size=(2, 500, 3))
    found = kdemc(x, num_draws=10, num_burnin=1).diagnostics
    n = found["effective_draws"].min()
    assert found["bandwidth"] == pytest.approx((4 / (5 * n)) ** (1 / 7), rel=1e-12)
    assert 100 < n <= 500


def error_of(draws, mean, variance):
    """KL of Gaussians, from the moments of the draws, to N(mean, variance I)."""
    c = np.cov(draws, rowvar=False) / variance
    away = np.sum((draws.mean(axis=0) - mean) ** 2) / variance
    return 0.5 * (np.trace(c) - len(c) - np.linalg.slogdet(c)[1] + away)


@pytest.mark.rotates(2, "subposteriors")
def test_kernel_densities_fail_in_many_dimensions_and_weierstrass_does_not(seed):
    """Product of four Gaussians against its exact law; consensus measures what the finite samples cost."""
    errors = {}
    for d in (2, 30):
        rng = np.random.default_rng([seed, d])
        means = rng.normal(size=(4, d))
        draws = [mean + rng.normal(size=(800, d)) for mean in means]
        for method, options in ((consensus, {}), (weierstrass, {}), (kdemc, {"num_burnin": 40})):
            found = _quiet(method, draws, **options)
            errors[method.__name__, d] = error_of(found, means.mean(axis=0), 0.25) / d
    assert errors["kdemc", 30] > 3 * errors["weierstrass", 30]
    growth = {name: errors[name, 30] - errors[name, 2] for name in ("kdemc", "weierstrass")}
    assert growth["kdemc"] > 3 * growth["weierstrass"]
    assert errors["weierstrass", 30] < 0.1 < errors["kdemc", 30]


def _quiet(method, draws, **options):
    """Without the warning about dimension, which has its own test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SciroccoWarning)
        return method(draws, **options).draws
