"""The ten small posteriors against SciPy's densities and conjugate formulas, and the truth about them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from scirocco.errors import InvalidValueError, SciroccoError
from scirocco_papers.small_posteriors import problems as sp
from scirocco_papers.small_posteriors import regressions
from scirocco_papers.small_posteriors import truth as spt


def normal(x, mean, sd):
    return np.sum(stats.norm.logpdf(x, mean, sd))


def lognormal(x, median, spread):
    return np.sum(stats.lognorm.logpdf(x, spread, scale=median))


def linear(p, rows):
    prior = normal(p["beta"], 0, [1e3, 0.1, 1e2, 1e3]) + lognormal(p["sigma"], 200, 1)
    return prior + normal(rows["y"], rows["x"] @ p["beta"], p["sigma"])


def logistic(sd):
    def joint(p, rows):
        chance = special.expit(rows["x"] @ p["beta"])
        return normal(p["beta"], 0, sd) + np.sum(stats.bernoulli.logpmf(rows["y"], chance))

    return joint


def poisson(p, rows):
    rate = np.exp(rows["offset"] + rows["x"] @ p["beta"])
    return normal(p["beta"], 0, [10, 1, 1e-2, 10, 1]) + np.sum(stats.poisson.logpmf(rows["y"], rate))


def student(p, rows):
    prior = normal(p["beta"], 0, 10) + lognormal(p["sigma"], 2, 1) + lognormal(p["dof"], 8, 1)
    return prior + np.sum(stats.t.logpdf(rows["y"], p["dof"], rows["x"] @ p["beta"], p["sigma"]))


def hierarchical(p, rows):
    prior = normal(p["mu"], 400, 200) + lognormal(p["tau"], 50, 1) + lognormal(p["sigma"], 50, 1)
    return prior + normal(p["theta"], p["mu"], p["tau"]) + normal(rows["y"], p["theta"][rows["group"]], p["sigma"])


def mixture(p, rows):
    parts = stats.norm.pdf(rows["y"][:, None], p["means"], p["sds"]) @ [p["weight"], 1 - p["weight"]]
    return normal(p["means"], 3, 2) + lognormal(p["sds"], 1, 1) + np.sum(np.log(parts))


def tiny(p, rows):
    variance = p["sigma"] ** 2
    prior = stats.invgamma.logpdf(variance, 2, scale=3e-8) + np.log(2 * p["sigma"])  # the density of σ, not of σ²
    return prior + normal(p["mu"], 0, p["sigma"] / 0.01**0.5) + normal(rows["y"], p["mu"], p["sigma"])


def huge(p, rows):
    return normal(p["beta"], 0, 1e7) + normal(rows["y"], rows["x"] @ p["beta"], 3e4)


def softmax(p, rows):
    units = np.concatenate([[1.0], np.logspace(-1, 1, 9)])[:, None]
    scores = np.concatenate([np.zeros((len(rows["y"]), 1)), rows["x"] @ p["beta"]], axis=1)
    chosen = special.log_softmax(scores, axis=1)[np.arange(len(scores)), rows["y"]]
    return normal(p["beta"], 0, 5 / units) + np.sum(chosen)


JOINT = {
    "linear": linear,
    "logistic": logistic([20, 0.5, 0.5, 0.5, 0.5, 5]),
    "poisson": poisson,
    "correlated": logistic(2.0),
    "student": student,
    "hierarchical": hierarchical,
    "mixture": mixture,
    "tiny": tiny,
    "huge": huge,
    "softmax": softmax,
}


def log_jacobian(p):
    """Written out: Σ log x for positive parameters, the gap for ordered means, w (1 - w) for a weight."""
    total = sum(np.sum(np.log(p[name])) for name in ("sigma", "dof", "tau", "sds") if name in p)
    if "weight" in p:
        total += np.log(p["weight"] * (1 - p["weight"])) + np.log(p["means"][1] - p["means"][0])
    return total


def two_points(posterior, seed):
    """On the real line: the start, and one within a per cent of it (or of 1e-6 where it is 0)."""
    rng = np.random.default_rng(seed)
    here = posterior.model.unconstrain(spt.double(posterior.start))
    return here, jax.tree.map(lambda u: u + (1e-6 + 0.01 * abs(u)) * rng.normal(size=u.shape), here)


@pytest.mark.rotates(3)
@pytest.mark.parametrize("name", sp.NAMES)
def test_densities_are_scipys(name, seed):
    posterior = sp.small_posterior(name)
    rows = jax.tree.map(lambda x: np.asarray(x, np.float64) if x.dtype.kind == "f" else x, posterior.data)
    with jax.enable_x64(True):
        ours, plain, theirs, jacobian = [], [], [], []
        for u in two_points(posterior, seed):
            params = posterior.model.constrain(u)
            ours.append(float(posterior.log_density(u, spt.double(posterior.data))))
            plain.append(float(posterior.model.log_density(params, spt.double(posterior.data))))
            params = jax.tree.map(np.asarray, params)
            theirs.append(JOINT[name](params, rows))
            jacobian.append(log_jacobian(params))
    rounding = 1e-13 * abs(ours[0]) + 1e-11 * abs(theirs[0])
    assert np.diff(plain) == pytest.approx(np.diff(theirs), abs=rounding)
    assert np.diff(ours) == pytest.approx(np.diff(theirs) + np.diff(jacobian), abs=rounding)
    # and in single precision after that: nothing of the double-precision trace may stay behind
    value = posterior.log_density(posterior.model.unconstrain(posterior.start), posterior.data)
    assert value.dtype == jnp.float32
    assert float(value) == pytest.approx(ours[0], rel=1e-4)


@pytest.mark.parametrize("posterior", sp.small_posteriors(), ids=sp.NAMES)
def test_data_and_start_are_fit_for_a_run(posterior):
    kinds = {x.dtype for x in jax.tree.leaves(posterior.data)}
    assert kinds <= {np.dtype(np.float32), np.dtype(np.int32)}
    assert {x.dtype for x in jax.tree.leaves(posterior.start)} == {np.dtype(np.float32)}
    assert len({len(x) for x in jax.tree.leaves(posterior.data)}) == 1
    posterior.model.check_domain(posterior.start)
    assert sp.small_posterior(posterior.name) is posterior


def test_another_seed_gives_other_data_and_an_unknown_name_is_refused():
    assert not np.array_equal(sp.small_posterior("tiny").data["y"], sp.small_posterior("tiny", 1).data["y"])
    with pytest.raises(InvalidValueError, match=r"no small posterior 'big'; choose one of linear, "):
        sp.small_posterior("big")


def test_linear_model_has_its_mode_at_the_exact_mean():
    posterior = sp.small_posterior("huge")
    x, y = (np.asarray(posterior.data[name], np.float64) for name in ("x", "y"))
    precision = x.T @ x / regressions.HUGE_NOISE**2 + np.eye(3) / regressions.HUGE_PRIOR**2
    mode = spt.find_mode(posterior)
    np.testing.assert_allclose(mode.hessian, precision, rtol=1e-9)
    mean = np.linalg.solve(precision, x.T @ y / regressions.HUGE_NOISE**2)
    np.testing.assert_allclose(mode.position, mean, rtol=1e-9)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert -1 < np.linalg.inv(precision)[1, 2] / (sd[1] * sd[2]) < -0.985


def test_intercept_and_slopes_in_raw_units_are_badly_scaled_and_correlated():
    hessian = spt.find_mode(sp.small_posterior("linear")).hessian
    covariance = np.linalg.inv(hessian)
    sd = np.sqrt(np.diag(covariance))
    assert covariance[0, 1] / (sd[0] * sd[1]) < -0.95
    assert np.linalg.cond(hessian) > 1e11


@pytest.mark.rotates(5, "small runs")
def test_nuts_agrees_with_the_conjugate_posterior(quick_compiler):
    """σ² ~ inverse gamma, μ | σ normal: moments in closed form."""
    posterior = sp.small_posterior("tiny")
    y, prior = np.asarray(posterior.data["y"], np.float64), sp.TINY_PRIOR
    strength, shape = prior["strength"] + len(y), prior["shape"] + len(y) / 2
    mean = y.sum() / strength
    rate = prior["rate"] + 0.5 * (np.sum(y**2) - strength * mean**2)
    spread = np.sqrt(rate) * np.exp(special.gammaln(shape - 0.5) - special.gammaln(shape))
    variance = rate / (shape - 1)
    found = spt.truth(posterior)
    exact = {"mu": (mean, np.sqrt(variance / strength)), "sigma": (spread, np.sqrt(variance - spread**2))}
    for name, (location, sd) in exact.items():
        assert abs(found.means[name] - location) < 5 * sd / found.ess**0.5
        assert abs(found.sds[name] / sd - 1) < 5 / (2 * found.ess) ** 0.5
    assert spt.truth(posterior) is found
    assert found.draws["mu"].shape == (spt.NUM_CHAINS, spt.NUM_DRAWS)


def test_draws_that_have_not_mixed_are_no_truth(monkeypatch, seed):
    walk = np.cumsum(np.random.default_rng(seed).normal(size=(4, 1_000)), axis=1)
    monkeypatch.setattr(spt, "find_mode", lambda _: spt.Mode(np.zeros(2), np.eye(2)))
    monkeypatch.setattr(spt, "_nuts", lambda *_: {"mu": walk, "sigma": np.exp(walk / 100)})
    with pytest.raises(SciroccoError, match=r"NUTS on 'tiny' gave split R-hat \d"):
        spt.truth(sp.small_posterior("tiny", 1))


def test_chains_are_lengthened_until_they_are_good(monkeypatch, seed):
    """The truth asks for 2,500 effective draws; here a quarter of the draws is worth something."""

    def slow(posterior, mode, data, num_draws):
        rng = np.random.default_rng(seed)
        return {name: np.repeat(rng.normal(size=(4, num_draws // 4)), 4, axis=1) for name in ("mu", "sigma")}

    monkeypatch.setattr(spt, "find_mode", lambda _: spt.Mode(np.zeros(2), np.eye(2)))
    monkeypatch.setattr(spt, "_nuts", slow)
    found = spt.truth(sp.small_posterior("tiny", 2))
    assert found.draws["mu"].shape[1] > spt.NUM_DRAWS and found.ess > spt.MIN_ESS


def test_discrepancy_is_the_worst_of_all_parameters():
    draws = {"a": np.array([[1.0, 3.0]]), "b": np.array([[[0.0, 0.0], [2.0, 8.0]]])}  # sds 1; 1 and 4
    means, sds = {"a": 1.0, "b": np.array([1.0, 6.0])}, {"a": 2.0, "b": np.array([1.0, 5.0])}
    known = spt.Truth(means, sds, draws, 1.0, 1.0, 1e4)
    assert spt.discrepancy(draws, known) == pytest.approx((0.5, 0.5))
