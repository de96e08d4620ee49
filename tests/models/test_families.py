"""Families of responses: normalised densities beside SciPy's, means, new responses, checks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from scirocco.errors import InvalidValueError
from scirocco.models.families import FAMILIES, log_prior

pytestmark = pytest.mark.unit

TRIALS = np.array([1.0, 2.0, 5.0, 9.0])


def exact(family, y, eta, theta):
    """The distributions of SciPy."""
    chance, rate = 1 / (1 + np.exp(-eta)), np.exp(eta)
    if family == "negative_binomial":
        shape = 1 / theta["dispersion"]
        return stats.nbinom(shape, shape / (shape + rate))
    return {
        "normal": lambda: stats.norm(eta, theta["noise"]),
        "student": lambda: stats.t(theta["freedom"], eta, theta["noise"]),
        "bernoulli": lambda: stats.bernoulli(chance),
        "binomial": lambda: stats.binom(TRIALS, chance),
        "poisson": lambda: stats.poisson(rate),
    }[family]()


@pytest.mark.parametrize("name", FAMILIES)
def test_densities_are_those_of_scipy(name):
    family, rng = FAMILIES[name], np.random.default_rng(1)
    y = np.array([0.0, 1.0, 3.0, 7.0])
    y = np.minimum(y, 1.0) if name == "bernoulli" else y
    family.check(y, "y")
    trials = TRIALS if name == "binomial" else None
    for noise, freedom, dispersion in ((1, 3, 0.5), (2, 30, 4), (0.7, 0.5, 1e-3)):
        theta, eta = {"noise": noise, "freedom": freedom, "dispersion": dispersion}, rng.normal(size=4)
        law = exact(name, y, eta, theta)
        found = np.asarray(family.log_density({"y": y, "trials": TRIALS}, eta, theta), np.float64)
        wanted = law.logpdf(y) if family.continuous else law.logpmf(y)
        np.testing.assert_allclose(found + family.constant(y, trials), wanted, rtol=1e-5, atol=3e-6)
        mean = family.mean(eta) * (TRIALS if name == "binomial" else 1.0)
        np.testing.assert_allclose(mean, eta if name == "student" else law.mean(), rtol=1e-6)
        np.testing.assert_allclose(family.linked(family.mean(eta)), eta, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_new_responses_have_their_distribution(name, seed):
    """By Kolmogorov-Smirnov where it is continuous, otherwise by the share of zeros and the mean."""
    family, count = FAMILIES[name], 4_000
    theta = {"noise": 2.0, "freedom": 3.0, "dispersion": 0.5}
    eta = np.full(4, 0.3)
    law = exact(name, None, eta, theta)
    rng = np.random.default_rng([seed, 3])
    drawn = [family.draw(rng, np.tile(family.mean(eta)[:, None], count), theta, TRIALS.astype(int))]
    if name in ("bernoulli", "poisson"):
        key = jax.random.key(seed)
        drawn.append(np.asarray(family.simulate(key, jnp.full((4, count), 0.3), theta)))
    for values in drawn:
        assert values.shape == (4, count)
        if family.continuous:
            assert stats.kstest(values[0], lambda x: law.cdf(x[:, None])[:, 0]).pvalue > 1e-6
            continue
        zero = law.pmf(0)
        z = (np.mean(values == 0, axis=1) - zero) / np.sqrt(zero * (1 - zero) / count)
        assert np.abs(z).max() < 5
        assert np.abs((values.mean(axis=1) - law.mean()) / (law.std() / count**0.5)).max() < 5


def test_rates_of_exposures_give_the_centre():
    y, offset, weights = np.array([1.0, 4.0, 0.0]), np.log([2.0, 3.0, 5.0]), np.array([1.0, 2.0, 0.0])
    poisson = FAMILIES["poisson"]
    assert np.isclose(poisson.centre(y, None, offset), np.log(5 / 10))
    assert np.isclose(poisson.centre(y, None, offset, weights), np.log(9 / 8))
    assert np.isclose(
        FAMILIES["normal"].centre(y, None, offset, weights), np.average(y - offset, weights=weights)
    )
    outliers = np.r_[np.arange(9.0), 1e9]
    assert FAMILIES["student"].centre(outliers) == 4.5
    assert FAMILIES["student"].spread(outliers) < 5


def test_priors_of_positive_parameters():
    theta = {"noise": 2.0, "dispersion": 0.5, "freedom": 4.0}
    wanted = stats.expon.logpdf(2.0) + stats.expon.logpdf(0.5) + stats.gamma.logpdf(4.0, 2.0, scale=10.0)
    wanted -= stats.gamma.logpdf(1.0, 2.0, scale=10.0) + 0.1  # up to a constant, that of freedom = 1
    assert np.isclose(float(log_prior(theta)), wanted, atol=1e-5)


def test_responses_that_do_not_suit():
    with pytest.raises(
        InvalidValueError, match=r"`hits` of a poisson model must be a count .* got 1.5 in row 1"
    ):
        FAMILIES["poisson"].check(np.array([0.0, 1.5]), "hits")
    with pytest.raises(InvalidValueError, match=r"must be a count .* got -1 in row 0"):
        FAMILIES["negative_binomial"].check(np.array([-1.0]), "hits")
    with pytest.raises(InvalidValueError, match="must be 0 or 1"):
        FAMILIES["bernoulli"].check(np.array([2.0]), "hit")
