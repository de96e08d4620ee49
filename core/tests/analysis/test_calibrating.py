"""Simulation-based calibration: exact tests of ranks, correct and wrong posteriors, no second compilation."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from helpers import compiled
from scirocco.analysis import sbc
from scirocco.analysis.uniformity import bands, counts, p_value
from scirocco.errors import InvalidTypeError, InvalidValueError, SciroccoWarning

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("quick_compiler")]

NOISE, ROWS = 2.0, 2


def log_density(mu, x):
    return -0.5 * ((x - mu) / NOISE) ** 2


MODEL = sc.Model(log_density, lambda mu: -0.5 * mu**2)


def simulator(prior_sd):
    @jax.jit
    def simulate(key):
        first, second = jax.random.split(key)
        mu = prior_sd * jax.random.normal(first)
        return mu, mu + NOISE * jax.random.normal(second, (ROWS,))

    return simulate


def exact(data, seed):
    """Independent draws of the exact posterior, for the prior N(0, 1)."""
    precision = 1.0 + ROWS / NOISE**2
    mean = np.sum(data) / NOISE**2 / precision
    draws = mean + np.random.default_rng(seed).normal(size=(2, 100)) / np.sqrt(precision)
    return draws.astype(np.float32)


def test_p_values_are_exact():
    """Over all ranks of 4 replications among 2 draws: P(p <= a) = a at every a that occurs."""
    found = np.array([p_value(np.array(ranks), 2) for ranks in itertools.product(range(3), repeat=4)])
    for value in np.unique(np.round(found, 9)):
        assert np.mean(found <= value + 1e-9) == pytest.approx(value, abs=1e-9)


def test_bands_hold_with_their_probability():
    """By enumeration: at least 80 %, and less if they were any narrower."""
    limits = bands(5, 2, 0.8)
    every = np.array([counts(np.array(ranks), 2) for ranks in itertools.product(range(3), repeat=5)])
    inside = np.all((every >= limits.low) & (every <= limits.high), axis=1)
    assert inside.mean() >= 0.8
    narrow = np.all((every > limits.low) & (every < limits.high), axis=1)
    assert narrow.mean() < 0.8


def test_a_correct_posterior_has_uniform_ranks(seed):
    found = sbc(exact, simulator(1.0), num_replications=100, seed=1000 * seed)
    assert found.names == ("params",)
    assert found.ranks.shape == (100, 1) and 0 <= found.ranks.min() and found.ranks.max() <= found.num_ranks
    assert np.all(found.p_values > 1e-4), found
    assert found.words.startswith("ranks are uniform") or not found.ok
    assert "params" in str(found.section().content)


def test_a_wrong_prior_shows(seed):
    """Parameters drawn with twice the standard deviation that the model assumes."""
    found = sbc(exact, simulator(2.0), num_replications=200, seed=1000 * seed)
    assert not found.ok
    assert found.p_values[0] < 1e-4
    assert "params: posterior too narrow" in found.words
    assert found.frame.loc["params", "sd_rank"] > 0.33


def test_ranks_are_thinned_by_the_effective_sample_size(seed):
    def sticky(data, seed):
        return np.repeat(exact(data, seed)[:, :20], 5, axis=1)

    found = sbc(sticky, simulator(1.0), num_replications=20, seed=seed)
    assert 9 <= found.num_ranks < 60
    with pytest.warns(SciroccoWarning, match="effective sample size is below"):
        sbc(sticky, simulator(1.0), num_replications=20, seed=seed, num_ranks=99)


def test_ties_are_broken_at_random():
    """All draws equal the truth, in 200 replications."""

    def nothing(key):
        return jnp.zeros(()), jnp.zeros(1)

    found = sbc(lambda data, seed: np.zeros((1, 50)), nothing, num_replications=200, num_ranks=9)
    assert set(found.ranks[:, 0]) == set(range(10))


def test_further_quantities_and_failures():
    calls = []

    def failing(data, seed):
        calls.append(1)
        if len(calls) == 3:
            raise InvalidValueError("it went wrong")
        return exact(data, seed)

    found = sbc(failing, simulator(1.0), num_replications=5, quantities=lambda mu: {"squared": mu**2})
    assert found.names == ("params", "squared")
    assert found.failures == ("it went wrong",) and found.num_replications == 4 and not found.ok


@pytest.mark.compile
def test_replications_share_their_programs():
    """The data have the same shapes, and nothing else differs: a second call compiles nothing."""
    sampler = sc.SGLD(0.3)
    options = {"sampler": sampler, "estimator": sc.Full(), "num_samples": 200, "num_burnin": 50, "thin": 5}
    options["start"] = np.float32(-0.1)  # a positive start, whose draws become negative, is looked at more closely
    simulate = simulator(1.0)
    sbc(MODEL, simulate, num_replications=2, num_ranks=20, **options)
    with compiled() as made:
        found = sbc(MODEL, simulate, num_replications=8, seed=5, num_ranks=20, **options)
    assert not made, made
    assert found.ranks.shape == (8, 2)


def test_what_is_refused():
    with pytest.raises(InvalidTypeError, match="`model` must be"):
        sbc(log_density, simulator(1.0))
    with pytest.raises(InvalidTypeError, match="`model` must be"):
        sbc(sc.models.PoissonRegression, simulator(1.0))
    with pytest.raises(InvalidValueError, match="`num_samples`, `start` would not be used"):
        sbc(log_density, simulator(1.0), start=0.0, num_samples=10)
    with pytest.raises(InvalidTypeError, match="function of a key"):
        sbc(MODEL, 3)
    with pytest.raises(InvalidTypeError, match="pair \\(params, data\\)"):
        sbc(MODEL, lambda key: jnp.zeros(3))
    with pytest.raises(InvalidValueError, match="except `store`"):
        sbc(MODEL, simulator(1.0), store="somewhere")
