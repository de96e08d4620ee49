"""Families of responses: normalised densities beside SciPy's, means, new responses, checks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import scirocco as sc
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.jobs import zoo
from scirocco.model.families import FAMILIES, Family, log_prior
from scirocco.models._core import registry
from scirocco.models.regression.generalised import FamilyRegression

pytestmark = pytest.mark.unit

TRIALS = np.array([1.0, 2.0, 5.0, 9.0])
ONE_PREDICTOR = [name for name, family in FAMILIES.items() if not family.has_classes]


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


@pytest.mark.parametrize("name", ONE_PREDICTOR)
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


@pytest.mark.parametrize("name", ONE_PREDICTOR)
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
    assert np.isclose(FAMILIES["normal"].centre(y, None, offset, weights), np.average(y - offset, weights=weights))
    outliers = np.r_[np.arange(9.0), 1e9]
    assert FAMILIES["student"].centre(outliers) == 4.5
    assert FAMILIES["student"].spread(outliers) < 5


def test_priors_of_positive_parameters():
    theta = {"noise": 2.0, "dispersion": 0.5, "freedom": 4.0}
    wanted = stats.expon.logpdf(2.0) + stats.expon.logpdf(0.5) + stats.gamma.logpdf(4.0, 2.0, scale=10.0)
    wanted -= stats.gamma.logpdf(1.0, 2.0, scale=10.0) + 0.1  # up to a constant, that of freedom = 1
    assert np.isclose(float(log_prior(theta)), wanted, atol=1e-5)


def test_responses_that_do_not_suit():
    with pytest.raises(InvalidValueError, match=r"`hits` of a poisson model must be a count .* got 1.5 in row 1"):
        FAMILIES["poisson"].check(np.array([0.0, 1.5]), "hits")
    with pytest.raises(InvalidValueError, match=r"must be a count .* got -1 in row 0"):
        FAMILIES["negative_binomial"].check(np.array([-1.0]), "hits")
    with pytest.raises(InvalidValueError, match="must be 0 or 1"):
        FAMILIES["bernoulli"].check(np.array([2.0]), "hit")


class Exponential(Family):
    """Waiting times with the mean e^η, as a user of this library would add them: this class, and nothing else."""

    name = "exponential"
    title = "Regression of waiting times."
    continuous = False
    parameters = ()

    def log_density(self, row, eta, theta):
        return -eta - row["y"] * jnp.exp(-eta)

    def constant(self, y, trials=None):
        return np.zeros(len(y))

    def mean(self, eta):
        return np.exp(eta)

    def linked(self, mean):
        return np.log(np.maximum(mean, 1e-3))

    def centre(self, y, trials=None, offset=None, weights=None):
        return float(np.log(np.mean(y)))

    def check(self, y, name):
        pass

    def draw(self, rng, mean, theta, trials=None):
        return rng.exponential(mean)


@pytest.mark.compile
@pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning")
def test_a_new_family_works_in_all_models(monkeypatch, quick_compiler, seed):
    """Mixed models by both methods, a regression, `sc.Model.linear` and configuration files agree about it."""
    monkeypatch.setitem(FAMILIES, "exponential", Exponential())
    rng = np.random.default_rng(seed)
    x, group, day = rng.normal(size=400), rng.integers(0, 8, 400), rng.integers(0, 6, 400)
    table = {"x": x, "g": group, "h": day, "y": rng.exponential(np.exp(1.0 + 0.5 * x))}
    slopes = []
    for terms in ("(1 | g)", "(1 | g) + (1 | h)"):
        model = sc.models.GLMM(f"y ~ x + {terms}", "exponential", num_samples=60, num_chains=2, seed=seed)
        slopes.append(model.fit(table, num_epochs=200, progress=False).draws_["coef"][..., 1])
        assert model.predict(table, interval=0.9, kind="observation").mean.shape == (400,)

    class ExponentialRegression(FamilyRegression):
        _family = "exponential"

    monkeypatch.setitem(registry.MODELS, "ExponentialRegression", registry.MODELS["PoissonRegression"])
    model = ExponentialRegression(num_samples=100, num_chains=2, seed=seed)
    slopes.append(model.fit(x[:, None], table["y"], num_epochs=300, progress=False).draws_["coef"][..., 0])
    for draws in slopes:  # the posterior standard deviation is 1/√400
        assert abs(draws.mean() - 0.5) < 5 / 20 + 0.05 and 0.02 < draws.std() < 0.1
    params, rows = np.array([0.3]), {"x": x[:, None], "y": table["y"]}
    wanted = np.sum(stats.expon(scale=np.exp(0.3 * x)).logpdf(table["y"]))
    assert float(sc.Model.linear("exponential").log_density(params, rows)) == pytest.approx(wanted, rel=1e-4)
    made = zoo.make("exponential", {"intercept": False}, rows)
    found = float(np.sum(made.model.log_likelihood({"coef": params}, rows)))
    assert found == pytest.approx(wanted, rel=1e-4)
    assert "waiting times" in zoo.example("exponential")


def test_parameters_of_linear_models_are_those_of_the_family():
    with pytest.raises(InvalidTypeError, match="the student family has the parameters noise, freedom, got"):
        sc.Model.linear("student", noise=1.0)
    with pytest.raises(InvalidTypeError, match="the poisson family has no parameters, got the parameter noise"):
        sc.Model.linear("poisson", noise=1.0)
    with pytest.raises(InvalidValueError, match="`noise` must be finite and > 0"):
        sc.Model.linear("normal", noise=-1.0)
