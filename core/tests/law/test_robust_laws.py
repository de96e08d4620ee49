"""The stationary variances of moves of bounded length, from their transition on a grid, and of corrected ones."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

import scirocco as sc
from law import laws
from law.test_gaussian_laws import assert_law, run_chains

pytestmark = [pytest.mark.law, pytest.mark.usefixtures("quick_compiler")]
LARGE = 30  # rows of a batch, so that the noise of its gradient is nearly normal
ROWS = sc.Minibatch(LARGE, "with_replacement")


def normal_nodes(number, variance):
    """Points and weights of a normal law."""
    points, weights = np.polynomial.hermite_e.hermegauss(number)
    return points * variance**0.5, weights / weights.sum()


def stationary(transition):
    """The distribution that a matrix of transitions keeps."""
    matrix = np.vstack([transition.T - np.eye(len(transition)), np.ones(len(transition))])
    return np.linalg.lstsq(matrix, np.append(np.zeros(len(transition)), 1.0), rcond=None)[0]


def barker_variance(eps, precision, noise, known):
    """θ' = θ ± z with P(+) = E[logistic(α z (η - λθ))], as a matrix on a grid that resolves the law of z."""
    mean, sd = (1.98 * eps) ** 0.5, 0.1 * (2 * eps) ** 0.5
    width = 7 * precision**-0.5 * (1 + eps * precision) ** 0.5
    grid = np.arange(-width, width, sd / 2)
    move = grid[None, :] - grid[:, None]
    density = np.exp(-0.5 * ((np.abs(move) - mean) / sd) ** 2)
    q = np.minimum(np.pi / 8 * move**2 * known, 0.95)
    slope = np.sqrt((1 + 0.28 * q) / (1 - q)) * move
    chance = sum(w * expit(slope * (eta - precision * grid[:, None])) for eta, w in zip(*noise, strict=True))
    transition = density * chance
    return float(stationary(transition / transition.sum(axis=1, keepdims=True)) @ grid**2)


def zigzag_variance(eps, precision, noise):
    """The direction times the place between two half moves, s: s + e, or -s with the probability of a turn.

    A draw is half a move e further, in the same direction.
    """
    spread = 0.3 * eps
    width = 7 * precision**-0.5
    grid = np.arange(-round(width / spread * 2), round(width / spread * 2) + 1) * spread / 2
    lengths = np.arange(0, round((eps + 5 * spread) / spread * 2) + 1)
    e = lengths * spread / 2
    weight = np.exp(-0.5 * ((e - eps) / spread) ** 2) + np.exp(-0.5 * ((e + eps) / spread) ** 2)
    weight /= weight.sum()
    transition, places = np.zeros((len(grid), len(grid))), np.arange(len(grid))
    for shift, length, share in zip(lengths, e, weight, strict=True):
        rates = (np.maximum(precision * (grid + length / 2) + eta, 0) for eta in noise[0])
        turns = sum(w * -np.expm1(-length * rate) for rate, w in zip(rates, noise[1], strict=True))
        np.add.at(transition, (places, np.minimum(places + shift, len(grid) - 1)), share * (1 - turns))
        np.add.at(transition, (places, len(grid) - 1 - places), share * turns)
    law = stationary(transition)
    return float(law @ grid**2 + law @ grid * (weight @ e) + weight @ e**2 / 4)


@pytest.mark.parametrize("corrected", [True, False])
def test_barker_with_noise(seed, corrected):
    """The correction leaves the inflation by the step alone."""
    x, mean, precision = laws.gaussian_problem(seed)
    variance = laws.gradient_noise(x, "with_replacement") * laws.BATCH / LARGE
    eps = 0.5 / variance
    known, noise = variance if corrected else 0.0, normal_nodes(21, variance)
    exact = barker_variance(eps, precision, noise, known)
    if corrected:
        assert exact == pytest.approx(barker_variance(eps, precision, ([0.0], [1.0]), 0.0), rel=0.02)
    else:
        assert exact * precision > 1.2
    sampler = sc.SGBarker(eps, gradient_noise=known)
    run, *_ = run_chains(seed, sampler, ROWS, num_burnin=1_000, thin=3)
    assert_law(run.draws, mean, exact)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_barker_with_the_full_gradient(seed, temperature):
    eps = 0.01
    sampler = sc.SGBarker(eps, gradient_noise=0.0, temperature=temperature)
    run, _, mean, precision = run_chains(seed, sampler, sc.Full())
    exact = temperature * barker_variance(eps, precision, ([0.0], [1.0]), 0.0)
    assert exact * precision == pytest.approx(temperature * (1 + eps * precision / 2), rel=0.05)
    assert_law(run.draws, mean, exact)


def test_a_barker_step_is_as_short_as_the_noise_requires(seed):
    """Where no probability has the right mean, steps are those of the longest ε for which one has."""
    noise = 500.0
    few = {"num_samples": 20, "num_burnin": 0}
    long, short = (
        run_chains(seed, sc.SGBarker(eps, gradient_noise=noise), sc.Full(), **few)[0].draws
        for eps in (10.0, 2.4 / np.pi / noise)
    )
    np.testing.assert_allclose(long, short, rtol=1e-4)
    assert np.abs(np.diff(long)).max() < 2 * (2 * 2.4 / np.pi / noise) ** 0.5


def test_barker_measures_the_noise(seed):
    """Left open, step and noise are those that the formulas name."""
    run, x, _, precision = run_chains(seed, sc.SGBarker(), ROWS, num_samples=10, num_burnin=0)
    found = run.configuration["sampler"]
    noise = laws.gradient_noise(x, "with_replacement") * laws.BATCH / LARGE
    assert found["gradient_noise"] == pytest.approx(noise, rel=0.35)
    assert found["step_size"] == pytest.approx(min(0.1 / precision, 0.3 / found["gradient_noise"]), rel=0.02)


@pytest.mark.parametrize("noisy", [False, True])
def test_zigzag(seed, noisy):
    """Second order in ε without noise; with it the first order in ε√V that is said."""
    x, mean, precision = laws.gaussian_problem(seed)
    variance = laws.gradient_noise(x, "with_replacement") * laws.BATCH / LARGE if noisy else 0.0
    noise = normal_nodes(41, variance) if noisy else ([0.0], [1.0])
    eps = 0.3 * variance**-0.5 if noisy else 0.3 * precision**-0.5
    exact = zigzag_variance(eps, precision, noise)
    assert exact * precision == pytest.approx(1.15 if noisy else 1.0, abs=0.05)
    run, *_ = run_chains(seed, sc.SGZigZag(eps), ROWS if noisy else sc.Full(), num_burnin=2_000, thin=4)
    assert_law(run.draws, mean, exact)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_corrected_trajectories_are_exact(seed, temperature):
    """Without the correction noise would add more than a fifth of the variance at temperature 1, at any other, too."""
    eps, friction = 0.01, 20.0
    x, mean, precision = laws.gaussian_problem(seed)
    noise = laws.gradient_noise(x, "with_replacement")
    assert laws.baoab_variance(eps, friction, precision, noise, temperature) * precision > temperature + 0.2
    sampler = sc.SGGMC(eps, friction=friction, length=3, temperature=temperature)
    run, *_ = run_chains(seed, sampler, sc.Minibatch(laws.BATCH, "with_replacement"), num_burnin=1_200, thin=6)
    assert 0.3 < run.stats["acceptance_rate"].mean() < 0.95
    assert_law(run.draws, mean, temperature / precision)


def test_corrected_trajectories_with_long_steps(seed):
    """ε√λ = 1.2, where leapfrog alone is 56 % off."""
    _, mean, precision = laws.gaussian_problem(seed)
    sampler = sc.SGGMC(1.2 * precision**-0.5, friction=6.0, length=4)
    run, *_ = run_chains(seed, sampler, sc.Full(), thin=4)
    assert_law(run.draws, mean, 1 / precision)


@pytest.mark.filterwarnings("ignore:The draws of")
@pytest.mark.parametrize("kind", [sc.SGBarker, sc.SGZigZag])
def test_no_gradient_is_too_large(kind):
    """Rows as far as 10⁶ and a step at which SGLD diverges: moves stay below their bound."""
    x = np.append(np.ones(50), 1e6).astype(np.float32)
    run = sc.sample(
        laws.MODEL, x, jnp.array(1e4), sampler=kind(0.1), estimator=sc.Minibatch(5), num_samples=500, progress=False
    )
    assert np.abs(np.diff(run.draws)).max() < 1.0
