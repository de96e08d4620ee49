"""Runs with planted faults: `diagnose` must name each, and nothing else.

Runs of one length with one estimator share their programs, so a test takes these unless it is about others.
"""

import functools
import html
import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.analysis import diagnose
from scirocco.analysis.diagnosis.report import NAMES, Diagnosis
from scirocco.errors import InvalidTypeError, InvalidValueError

pytestmark = pytest.mark.compile

ROWS = 4_000
CURVATURE = 0.16 * ROWS  # about the largest, for these covariates
CV = sc.ControlVariates(200)


def log_likelihood(beta, datum):
    x, y = datum
    logit = x @ beta
    return y * logit - jnp.logaddexp(0.0, logit)


def wide(beta):
    return -0.5 * jnp.sum((beta / 10.0) ** 2)


def two_modes(mu, x):
    return jnp.logaddexp(-0.5 * (x - mu) ** 2, -0.5 * (x + mu) ** 2)


MODEL = sc.Model(log_likelihood, wide)
TWO_MODES = sc.Model(two_modes)


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs that run for less than a second."""


def make_data():
    rng = np.random.default_rng(11)
    x = rng.standard_normal((ROWS, 3)).astype(np.float32)
    y = rng.random(ROWS) < 1 / (1 + np.exp(-x @ np.array([1.0, -1.0, 0.5])))
    return x, y.astype(np.float32)


DATA = make_data()


def run_of(sampler, estimator=CV, model=MODEL, data=DATA, start=None, seed=0, **options):
    start = jnp.zeros(3) if start is None else start
    options = {"num_samples": 4_000, "num_chains": 4, "seed": seed, "progress": False} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the faults are meant
        return sc.sample(model, data, start, sampler=sampler, estimator=estimator, **options)


@functools.cache
def too_long(seed):
    """A run whose step size is far too large."""
    return run_of(sc.SGLD(1.0 / CURVATURE), seed=seed)


def both_signs(seed):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(1_000) + 3 * rng.choice([-1, 1], 1_000)).astype(np.float32)


def apart(seed):
    """Chains fall to either side of the start at random: take a seed with which both sides are visited."""
    for other in range(20):
        options = {"data": both_signs(1), "start": jnp.array(0.0), "num_samples": 1_000, "seed": seed + other}
        run = run_of(sc.SGLD(2e-4), sc.Minibatch(200), TWO_MODES, **options)
        signs = np.sign(np.asarray(run.draws)[:, -1])
        if abs(signs.sum()) < 4:
            return run
    raise AssertionError("twenty times the same side")


PLANTED = {
    "step size too large": too_long,
    "step size too small": lambda seed: run_of(sc.SGLD(1e-3 / CURVATURE), seed=seed),
    "friction too small": lambda seed: run_of(
        sc.SGHMC(0.1 / CURVATURE**0.5, friction=20.0), sc.Minibatch(200), seed=seed
    ),
    "minibatch noise dominates": lambda seed: run_of(sc.SGLD(0.05 / CURVATURE), sc.Minibatch(20), seed=seed),
    "not converged": lambda seed: run_of(
        sc.SGLD(0.05 / CURVATURE), sc.Minibatch(2_000), start=jnp.array([30.0, 30.0, -30.0]), seed=seed, num_samples=300
    ),
    "chains disagree": apart,
    "variances do not fit": lambda seed: run_of(  # half of the injected noise is taken out for nothing
        sc.SGHMC(0.1 / CURVATURE**0.5, friction=30.0, gradient_noise=300.0 * CURVATURE**0.5),
        num_samples=20_000,
        seed=seed,
    ),
    "prior and data disagree": lambda seed: run_of(  # the same data in units in which coefficients are large
        sc.SGLD(0.1 / (CURVATURE / 500**2 + 0.01)), data=(DATA[0] / 500, DATA[1]), seed=seed
    ),
}


def test_the_plants_are_all_that_can_be_found():
    elsewhere = {"several modes", "trajectories diverge", "gradients disagree"}  # test_exact_laws, test_verdicts
    assert set(PLANTED) == set(NAMES) - elsewhere


@pytest.mark.rotates(4)
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_named_and_nothing_else(fault, seed):
    found = diagnose(PLANTED[fault](seed))
    assert found.names == [fault]
    assert not found.ok
    assert fault in found.findings[0].words or found.findings[0].words in found.verdict
    assert found.findings[0].advice


@pytest.mark.rotates(3)
@pytest.mark.parametrize("sampler", [sc.SGLD(), sc.SGHMC(), sc.Preconditioned(sc.SGLD())])
def test_all_well(sampler, seed):
    found = diagnose(run_of(sampler, seed=seed, num_samples=20_000))  # with few effective draws chains may disagree
    assert found.ok and found.verdict == "all well" and not found.missing
    assert abs(found.measures["stein_inflation"]) < 0.06 + 5 * found.measures["stein_inflation_error"]


@pytest.mark.rotates(2, "diagnoses")
def test_a_step_too_large_for_a_direction_that_matters_to_no_parameter_is_no_fault(seed):
    """Columns with one common part: the stiffest direction, inflated by a third, has 2 % of a parameter's variance."""
    rng = np.random.default_rng([seed, 12])
    x = rng.standard_normal((ROWS, 3)) + 3 * rng.standard_normal((ROWS, 1))
    data = (x.astype(np.float32), (rng.random(ROWS) < 0.5).astype(np.float32))
    step = 0.5 / np.linalg.eigvalsh(x.T @ x / 4)[-1]
    found = diagnose(run_of(sc.SGLD(step), data=data, seed=seed, thin=10))
    assert found.measures["step_inflation"] > 0.25 and found.ok


@pytest.mark.rotates(2, "diagnoses")
def test_parameters_that_do_not_move_are_named():
    """Nothing moves; or one of two."""
    found = diagnose(run_of(sc.SGLD(1e-30)))
    assert found.names == ["step size too small"] and "do not move" in found.verdict
    assert found.certificate.troubles == ("some parameters never move",)
    model = sc.Model(lambda p, d: log_likelihood(jnp.append(p["u"], p["v"]), d))
    steps = sc.SGLD({"u": 2e-4, "v": 1e-30})
    start = {"u": jnp.zeros(2), "v": jnp.array(0.5)}
    half = run_of(steps, sc.Minibatch(200), model, start=start, num_samples=500)
    assert "v does not move" in diagnose(half).verdict


@pytest.mark.rotates(2, "diagnoses")
def test_estimators_that_move_on_are_judged_by_where_they_are(seed):
    """Their memory of before the first step would be far off, and its noise with it."""
    start = jnp.array([0.5, -0.5, 0.0])
    run = run_of(sc.SGLD(0.1 / CURVATURE), sc.SVRG(100), start=start, seed=seed, num_burnin=500)
    assert diagnose(run).ok


@pytest.mark.rotates(2, "diagnoses")
def test_a_direction_without_curvature_is_told(seed):
    """Only the sum of two parameters matters, and the prior is flat."""
    x = np.random.default_rng(seed).standard_normal(500).astype(np.float32)
    model = sc.Model(lambda p, x: -0.5 * (x - p[0] - p[1]) ** 2)
    start = jnp.zeros(2)
    run = run_of(sc.SGLD(1e-4), sc.Full(), model, x, start, seed=seed, num_samples=2_000)
    found = diagnose(run)
    assert found.names == ["not converged"] and "no curvature" in found.verdict


def test_what_is_said_about_a_step_follows_the_closed_form(seed):
    """ε λ by power iteration is the largest eigenvalue of the Hessian; the inflation is 1/(1 - ελ/2) - 1."""
    x, _ = DATA
    run = run_of(sc.SGLD(0.5 / CURVATURE), seed=seed)
    found = diagnose(run).measures
    mean = np.asarray(run.draws)[:, 2_000:].mean(axis=(0, 1))
    weight = np.exp(-np.logaddexp(0, x @ mean) - np.logaddexp(0, -x @ mean))
    largest = np.linalg.eigvalsh((x * weight[:, None]).T @ x)[-1]
    # power iteration looks at a quarter of the rows
    assert found["curvature"] == pytest.approx(0.5 / CURVATURE * largest, rel=0.15)
    assert found["step_inflation"] == pytest.approx(1 / (1 - found["curvature"] / 2) - 1)


def test_steins_identity_sees_the_inflation_of_the_closed_form(seed):
    """A normal mean: the variance is inflated by exactly 1/(1 - ελ/2), and E[-(x - m) s] is that factor."""
    x = np.random.default_rng(seed).standard_normal(1_000).astype(np.float32)
    model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    options = {"data": x, "start": jnp.array(0.0), "num_samples": 8_000}
    run = run_of(sc.SGLD(0.8 / 1_000), sc.Full(), model, seed=seed, **options)
    found = diagnose(run).measures
    assert abs(found["stein_inflation"] - (1 / 0.6 - 1)) < 5.5 * found["stein_inflation_error"]
    assert found["curvature"] == pytest.approx(0.8, rel=1e-3)


def test_the_advice_is_a_number_that_works(seed):
    first = diagnose(too_long(seed))
    step = float(first.findings[0].advice.split("step_size=")[1].split(" ")[0])
    assert diagnose(run_of(sc.SGLD(step), seed=seed, num_samples=12_000)).ok  # shorter steps need more of them


def test_a_loaded_run_is_judged_by_its_draws_and_closer_with_model_and_data(tmp_path, seed):
    run_of(sc.SGLD(1.0 / CURVATURE), seed=seed, store=tmp_path / "run")
    loaded = sc.load(tmp_path / "run")
    alone = diagnose(loaded)
    assert alone.ok and "as far as could be measured" in alone.verdict and "pass model=" in alone.missing[0]
    assert diagnose(loaded, MODEL, DATA).names == ["step size too large"]


def test_a_saved_run_asks_for_its_sampler(tmp_path, seed):
    run = too_long(seed)
    run.save(tmp_path / "run")
    loaded = sc.load(tmp_path / "run")
    with pytest.raises(InvalidValueError, match="pass sampler="):
        diagnose(loaded, MODEL, DATA)
    found = diagnose(loaded, MODEL, DATA, sampler=sc.SGLD(1.0 / CURVATURE), estimator=CV)
    assert "curvature" in found.measures


def test_a_run_that_left_the_finite_numbers():
    model = sc.Model(lambda b, d: -jnp.sum(b**4))
    with pytest.raises(sc.errors.DivergenceError) as caught:
        run_of(sc.SGLD(1e6), sc.Minibatch(200), model, num_chains=1)
    run = caught.value.run
    if run is not None and run.num_draws >= 20:
        assert diagnose(run).names[0] == "step size too large"


@pytest.mark.rotates(2, "diagnoses")
def test_count_models_and_refusals():
    counts = sc.CountModel(jnp.ones(3), lambda omega, z: jax.nn.one_hot(z, 3))
    z = np.random.default_rng(0).integers(0, 3, 500)
    run = sc.sample(counts, z, jnp.ones(3) / 3, num_samples=200, num_chains=2, progress=False)
    found = diagnose(run)
    assert "CountModel" in found.missing[0] and "ess_bulk" in found.measures
    with pytest.raises(InvalidTypeError, match="must be a run"):
        diagnose(np.zeros(3))
    with pytest.raises(InvalidValueError, match="at least 20 draws"):
        diagnose(run_of(sc.SGLD(1e-4), num_samples=10))


@pytest.mark.rotates(2, "diagnoses")
def test_the_report_reads_well(seed):
    found = diagnose(too_long(seed))
    shown = found._repr_html_()
    assert shown.count(found.findings[0].words) == 1 and "<li>" in shown and "R-hat" in shown
    assert f"Certificate: {html.escape(str(found.certificate))}." in shown
    assert 'padding-left:2em">its standard error' in shown
    text = repr(found)
    assert max(map(len, text.splitlines())) <= 160
    for piece in ("Verdict: the step size is too large", "→ Use step_size=", "R-hat", "kernel Stein discrepancy"):
        assert piece in text
    assert isinstance(Diagnosis([], {}), Diagnosis)
    assert Diagnosis([], {}).verdict == "all well"


def test_a_run_that_travels_leaves_model_and_data_behind(seed):
    run = too_long(seed)
    assert run.origin.model is MODEL
    assert pickle.loads(pickle.dumps(run)).origin is None
