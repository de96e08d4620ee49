"""Effective sample sizes, R-hat, Monte Carlo errors and autocorrelations: against ArviZ, and by their definitions."""

import logging
import subprocess
import sys
import warnings

import numpy as np
import pytest

from scirocco import diagnostics
from scirocco.diagnostics import measures
from scirocco.errors import InvalidValueError

pytestmark = pytest.mark.unit

METHODS = {
    "bulk": lambda x: diagnostics.ess(x),
    "tail": lambda x: diagnostics.ess(x, "tail"),
    "mean": lambda x: diagnostics.ess(x, "mean"),
    "identity": lambda x: diagnostics.ess(x, "identity"),
    "rank": lambda x: diagnostics.rhat(x),
    "split": lambda x: diagnostics.rhat(x, "split"),
    "mcse": lambda x: diagnostics.mcse(x),
}
LENGTHS = [(1, 4), (2, 4), (1, 5), (3, 7), (2, 8), (4, 10), (2, 13), (1, 50), (4, 101), (2, 200), (3, 401)]


@pytest.fixture(scope="module")
def arviz():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return pytest.importorskip("arviz", reason="the numbers are compared with ArviZ's")


@pytest.fixture(autouse=True)
def _quiet_arviz(caplog):
    caplog.set_level(logging.ERROR)


def autoregressive(rng, rho, shape):
    x = rng.normal(size=shape)
    for draw in range(1, shape[1]):
        x[:, draw] = rho * x[:, draw - 1] + np.sqrt(1 - rho**2) * x[:, draw]
    return x


def of_arviz(arviz, name, x):
    """Column by column, as ArviZ does it."""
    ask = {
        "bulk": lambda v: arviz.ess(v, method="bulk"),
        "tail": lambda v: arviz.ess(v, method="tail"),
        "mean": lambda v: arviz.ess(v, method="mean"),
        "identity": lambda v: arviz.ess(v, method="identity"),
        "rank": lambda v: arviz.rhat(v),
        "split": lambda v: arviz.rhat(v, method="split"),
        "mcse": lambda v: arviz.mcse(v, method="mean"),
    }[name]
    with np.errstate(invalid="ignore", divide="ignore"):
        found = [np.ravel(ask(np.ascontiguousarray(x[:, :, k]))) for k in range(x.shape[2])]
    return np.array([one[0] if one.size == 1 else np.nan for one in found])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("length", LENGTHS)
def test_numbers_are_those_of_arviz(seed, arviz, name, length):
    rng = np.random.default_rng([seed, *length])
    parts = [autoregressive(rng, rho, (*length, 4)) for rho in (-0.9, 0.0, 0.5, 0.95)]
    apart = autoregressive(rng, 0.3, (*length, 3))
    apart[0] += 3.0  # chains that disagree, and chains of different scales
    apart[0, :, 1] *= 5.0
    ties = np.round(autoregressive(rng, 0.5, (*length, 3)))
    x = np.concatenate([*parts, apart, ties], axis=2)
    moves = np.ptp(x, axis=(0, 1)) > 0
    np.testing.assert_allclose(METHODS[name](x)[moves], of_arviz(arviz, name, x)[moves], rtol=1e-6)


@pytest.mark.parametrize("name", ["bulk", "tail", "rank"])
def test_ranks_of_infinite_draws_are_ranks(seed, arviz, name):
    x = np.random.default_rng(seed).normal(size=(3, 51, 4))
    x[0, :2] = np.inf
    np.testing.assert_allclose(METHODS[name](x), of_arviz(arviz, name, x), rtol=1e-6)
    assert np.isnan(diagnostics.ess(x, "mean")).all() and np.isnan(diagnostics.mcse(x)).all()


@pytest.mark.parametrize("name", METHODS)
def test_where_there_is_nothing_to_say(seed, name):
    x = np.random.default_rng(seed).normal(size=(2, 30, 3))
    x[1, 7, 1] = np.nan
    found = METHODS[name](x)
    assert np.isnan(found[1]) and np.isfinite(found[[0, 2]]).all()
    assert np.isnan(METHODS[name](x[:, :3])).all()  # too few draws
    one_chain = METHODS[name](x[:1])
    assert np.isnan(one_chain[0]) == (name in ("rank", "split"))


@pytest.mark.parametrize("value", [0.0, 0.1, -7e30])
def test_a_parameter_that_never_moves(value):
    x = np.full((2, 51), value)
    assert [float(diagnostics.ess(x, method)) for method in ("bulk", "tail", "mean")] == [100.0] * 3
    assert np.isnan(diagnostics.rhat(x)) and np.isnan(diagnostics.rhat(x, "split"))
    assert diagnostics.mcse(x) == 0.0
    assert np.isnan(diagnostics.autocorrelation(x, 4)).all()


def test_only_the_middle_draw_moves():
    """It belongs to no half of a chain, but to the standard deviation."""
    x = np.zeros((1, 5))
    x[0, 2] = 1.0
    np.testing.assert_allclose(diagnostics.mcse(x), x.std(ddof=1) / np.sqrt(4))


def test_units_do_not_matter(seed):
    unit = 2.0**-70  # exact, as ties are a matter of the last bit
    x = autoregressive(np.random.default_rng(seed), 0.8, (3, 100, 5))
    for name, measure in METHODS.items():
        factor = unit if name == "mcse" else 1.0
        np.testing.assert_allclose(measure(unit * x), factor * measure(x), rtol=1e-9, err_msg=name)


def test_a_known_process(seed):
    rho = 0.8
    x = autoregressive(np.random.default_rng(seed), rho, (8, 4000, 3))
    exact = 8 * 4000 * (1 - rho) / (1 + rho)
    for method in ("bulk", "mean"):
        np.testing.assert_allclose(diagnostics.ess(x, method), exact, rtol=0.25)
    np.testing.assert_allclose(diagnostics.mcse(x), 1 / np.sqrt(exact), rtol=0.2)
    assert np.all(np.abs(diagnostics.rhat(x) - 1) < 0.02)
    found = diagnostics.autocorrelation(x, 4).mean(axis=(0, 2))
    np.testing.assert_allclose(found, rho ** np.arange(4), atol=0.05)


def test_autocorrelation_is_that_of_the_definition(seed):
    values = np.random.default_rng(seed).normal(size=(2, 30))
    centred = values - values.mean(axis=1, keepdims=True)
    expected = [[np.sum(c[: 30 - lag] * c[lag:]) / np.sum(c * c) for lag in range(5)] for c in centred]
    np.testing.assert_allclose(diagnostics.autocorrelation(values, 5), expected, atol=1e-12)
    assert diagnostics.autocorrelation(values).shape == (2, 30)
    longer = diagnostics.autocorrelation(values[:, :, None], 40)
    assert longer.shape == (2, 40, 1) and np.isnan(longer[:, 30:]).all() and np.isfinite(longer[:, :30]).all()


def test_shapes_and_blocks(seed):
    x = np.random.default_rng(seed).normal(size=(2, 21, 3, 4)).astype(np.float32)
    whole = {name: measure(x) for name, measure in METHODS.items()}
    assert all(found.shape == (3, 4) for found in whole.values())
    assert METHODS["bulk"](x[:, :, 0, 0]).shape == ()
    many = np.tile(x.reshape(2, 21, 12), 600)  # more numbers than are processed together
    for name, measure in METHODS.items():
        np.testing.assert_array_equal(measure(many), np.tile(whole[name].reshape(12), 600))


@pytest.mark.parametrize("shape", [(3, 100, 6), (1, 100, 6), (2, 3, 6), (1, 1, 6)])
def test_a_summary_has_the_numbers_of_its_parts(seed, shape):
    x = np.random.default_rng(seed).normal(size=shape)
    found = measures.summarise(x, (0.1, 0.5, 0.9))
    np.testing.assert_allclose(found["mean"], x.mean(axis=(0, 1)))
    if shape[0] * shape[1] > 1:
        np.testing.assert_allclose(found["sd"], x.std(axis=(0, 1), ddof=1))
    np.testing.assert_allclose(found["quantiles"], np.quantile(x, [0.1, 0.5, 0.9], axis=(0, 1), method="weibull"))
    for name, method in (("ess_bulk", "bulk"), ("ess_tail", "tail"), ("r_hat", "rank"), ("mcse_mean", "mcse")):
        np.testing.assert_array_equal(found[name], METHODS[method](x))


def test_a_summary_leaves_out_draws_that_are_nan(seed):
    x = np.random.default_rng(seed).normal(size=(2, 40, 3))
    x[0, :5, 1], x[:, :, 2] = np.nan, np.nan
    found = measures.summarise(x, (0.25,))
    kept = x[:, :, 1][~np.isnan(x[:, :, 1])]
    np.testing.assert_allclose([found["mean"][1], found["sd"][1]], [kept.mean(), kept.std(ddof=1)])
    np.testing.assert_allclose(found["quantiles"][0, 1], np.quantile(kept, 0.25, method="weibull"))
    assert np.isnan(found["ess_bulk"][1]) and np.isnan(found["mean"][2])


@pytest.mark.parametrize("values", [1.0, [1.0, 2.0], np.ones((0, 4)), np.ones((2, 0))])
def test_draws_need_chains(values):
    for measure in (*METHODS.values(), diagnostics.autocorrelation):
        with pytest.raises(InvalidValueError, match=r"\(chain, draw, \.\.\.\)"):
            measure(values)


def test_unknown_methods_are_refused():
    with pytest.raises(InvalidValueError, match="`method`"):
        diagnostics.ess(np.ones((2, 10)), "median")
    with pytest.raises(InvalidValueError, match="`method`"):
        diagnostics.rhat(np.ones((2, 10)), "bulk")


@pytest.mark.process
def test_arviz_is_not_imported():
    code = "import sys, numpy as np, scirocco as sc; sc.diagnostics.ess(np.eye(4)); print('arviz' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
