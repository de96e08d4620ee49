"""Settings that are found by trying: `step_size="auto"`, and `tune` with everything it can vary."""

from __future__ import annotations

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers
import scirocco as sc
from scirocco.analysis.tuning import tune
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.run.choose import set_up
from scirocco.run.choose.tuning import tune_prepared
from scirocco.run.sizes import RUNNING

ROWS, COLUMNS, BATCH, STEPS = 600, 3, 50, 100
UNITS = np.array([1e-3, 1.0, 1e2])
pytestmark = [
    pytest.mark.compile,
    pytest.mark.usefixtures("quick_compiler"),
    pytest.mark.filterwarnings("ignore:the columns of data"),
]


def log_likelihood(beta, row):
    return -0.5 * (row["y"] - row["x"] @ beta) ** 2


def log_prior(beta):
    return -0.5e-6 * jnp.sum(beta**2)


MODEL = sc.Model(log_likelihood, log_prior)
START = jnp.zeros(COLUMNS)
CV = sc.ControlVariates(BATCH)


@pytest.fixture(scope="module")
def data():
    """Linear regression in raw units: curvatures differ by 10¹⁰."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(ROWS, COLUMNS)) * UNITS).astype(np.float32)
    return {"x": x, "y": (x @ (1 / UNITS) + rng.normal(size=ROWS)).astype(np.float32)}


@pytest.fixture(scope="module")
def truth(data):
    """Mean and standard deviations of the posterior."""
    x = data["x"].astype(np.float64)
    covariance = np.linalg.inv(x.T @ x + 1e-6 * np.eye(COLUMNS))
    return covariance @ x.T @ data["y"], np.sqrt(np.diagonal(covariance))


@pytest.fixture
def short(monkeypatch):
    """What `sc.sample` does on its way, with rounds of a hundred steps; the calls that have tried settings."""
    calls = []

    def tuned(*arguments):
        calls.append(arguments)
        return tune_prepared(*arguments, num_steps=STEPS)

    monkeypatch.setattr(set_up, "tune_prepared", tuned)
    return calls


@pytest.fixture
def tuned_once(short):
    """How often settings have been tried."""
    return short


def quick(data, **options):
    return tune(MODEL, data, START, **({"estimator": CV, "num_steps": STEPS, "seconds": None} | options))


def draw(data, sampler, estimator=CV, **options):
    options = {"params": START, "num_samples": 400, "num_chains": 2, "progress": False} | options
    return sc.sample(MODEL, data, sampler=sampler, estimator=estimator, **options)


# -- step_size="auto" --------------------------------------------------------------------------------------------------

PAIRS = {
    "SGHMC": (sc.SGHMC("auto"), sc.Minibatch(BATCH)),
    "BADODAB": (sc.BADODAB("auto"), sc.SVRG(BATCH, refresh_every=20)),
}


@pytest.mark.rotates(2)
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", PAIRS)
def test_auto_finds_a_step_in_raw_units(name, data, truth, seed):
    """A step that is stable in the posterior's own coordinates; draws as wide as they should be, to a factor of 3."""
    start = jnp.asarray(truth[0] + truth[1], jnp.float32)
    run = draw(data, *PAIRS[name], params=start, num_burnin=400, seed=seed)
    found = run.preparation["tuning"]
    assert found == json.loads(json.dumps(found, allow_nan=False))
    assert found.keys() == {"chosen", "method", "seconds", "condition", "num_steps", "trials"}
    assert (found["method"], found["num_steps"]) == ("halving", STEPS)
    assert found["condition"] == pytest.approx(1e10, rel=0.5)
    assert found["chosen"] == found["trials"][0]["settings"]
    assert 1e-3 < found["chosen"]["step_size"] < 2.0
    assert 10 <= len(found["trials"]) <= 32
    assert sum(trial["first_guess"] for trial in found["trials"]) == 1
    described = run.configuration["sampler"]
    assert described["name"] == "Preconditioned"
    assert np.all(np.isfinite(run.draws))
    mean, sd = truth
    z = (run.draws.astype(np.float64) - mean) / sd
    assert np.all(np.abs(z.mean(axis=(0, 1))) < 1.0)
    assert np.all((z.std(axis=(0, 1)) > 1 / 3) & (z.std(axis=(0, 1)) < 3.0))


@pytest.fixture(scope="module")
def searched(data):
    """SGLD with control variates, all that is left open; and what was compiled for it."""
    with helpers.compiled() as programs:
        found = quick(data, seed=4)
    return found, programs


@pytest.fixture(scope="module")
def tuning(searched):
    return searched[0]


def test_all_rounds_use_the_same_programs(searched):
    """Compiled ahead for what they are called with, whatever the number of chains of a setting; none for arithmetic."""
    programs = searched[1]
    twice = {name for name in programs if programs.count(name) > 1}
    assert twice <= {"jit(_sum)", "jit(random_rows)", "jit(stage)"}, programs
    assert len(programs) <= 20, programs


def test_a_quarter_goes_on_after_each_round(tuning):
    """Thirty-two, eight, four; the winner is the best of the last round."""
    rounds = [trial.rounds for trial in tuning.trials]
    assert rounds == [3] * 4 + [2] * 4 + [1] * 24
    last = [trial.ksd[-1] for trial in tuning.trials[:4]]
    assert last == sorted(last)
    sizes = [trial.settings["step_size"] for trial in tuning.trials]
    guess = next(t.settings["step_size"] for t in tuning.trials if t.first_guess)
    assert guess == pytest.approx(0.1, rel=0.01)  # 0.1/λ with λ = 1: control variates have hardly any noise
    assert min(sizes) == pytest.approx(guess / 25)
    assert max(sizes) == pytest.approx(1 / 3, rel=0.01)  # from here on the step alone inflates a variance by a fifth
    assert len(set(sizes)) == 32


def test_what_was_tried_can_be_looked_at(tuning):
    curve = tuning.curve
    assert np.all(np.diff(curve["step_size"]) > 0) and len(curve["ksd"]) == 32
    assert curve["ksd"][0] > 1.5 * np.nanmin(curve["ksd"])  # too small a step does not explore
    text = repr(tuning)
    assert text.startswith("SGLD, preconditioned (laplace): step_size=") and "the best of 32 settings" in text
    assert "first guess" in text and "KSD, round 3" in text and "more" in text


def test_the_same_seed_makes_the_same_choice(tuning, data):
    again = quick(data, seed=4)
    helpers.assert_equal(tuning.sampler, again.sampler)
    assert [(t.settings, t.first_guess) for t in again.trials] == [(t.settings, t.first_guess) for t in tuning.trials]
    np.testing.assert_array_equal([t.ksd[0] for t in again.trials], [t.ksd[0] for t in tuning.trials])
    other = quick(data, seed=5)
    assert [t.ksd[0] for t in other.trials] != [t.ksd[0] for t in tuning.trials]


def test_the_choice_is_ready_for_sample(tuning, data, truth, seed):
    run = draw(data, tuning.sampler, tuning.estimator, num_samples=1_000, seed=seed)
    assert "tuning" not in run.preparation
    z = (run.draws.astype(np.float64) - truth[0]) / truth[1]
    assert np.all(np.abs(z.mean(axis=(0, 1))) < 0.6) and np.all(np.abs(z.std(axis=(0, 1)) - 1) < 0.5)


@pytest.mark.usefixtures("short")
def test_a_kernel_tunes_at_its_start(data):
    kernel = sc.Kernel(MODEL, data, sc.SGLD("auto"), CV)
    state = kernel.init(jax.random.key(4), START)
    chosen = kernel.preparation["tuning"]["chosen"]["step_size"]
    assert kernel.problem.parts.sampler.inner.step_size == pytest.approx(chosen)
    moved, info = kernel.step(jax.random.key(1), state)
    assert int(info.code) == 0 and helpers.differ(kernel.position(moved), kernel.position(state))


def test_a_stored_run_goes_on_without_tuning_again(data, tuned_once, tmp_path, monkeypatch, changed):
    """Bit for bit, by `sc.resume` and by asking `sc.sample` for the same again."""
    changed(RUNNING, first_chunk=5, second_chunk=4, chunk_seconds=0.0, commit_seconds=0.0, commit_share=1e9)
    path = tmp_path / "run"
    whole = draw(data, sc.SGLD("auto"), num_samples=20)
    stop = [lambda report: report.stop() if report.step >= 9 else None]
    part = draw(data, sc.SGLD("auto"), num_samples=12, store=path, callbacks=stop)
    assert part.status == "stopped" and len(tuned_once) == 2
    middle = draw(data, sc.SGLD("auto"), num_samples=12, store=path, resume=True)
    done = sc.resume(path, MODEL, data, num_samples=20, progress=False)
    assert (middle.num_draws, done.num_draws, len(tuned_once)) == (12, 20, 2)
    np.testing.assert_array_equal(np.asarray(done.draws), whole.draws)
    for run in (done, sc.load(path)):
        assert run.preparation["tuning"] == part.preparation["tuning"]
    with pytest.raises(InvalidValueError, match="sampler"):
        draw(data, sc.SGLD(0.1), num_samples=12, store=path, resume=True)


# -- what is tried -----------------------------------------------------------------------------------------------------


def test_settings_that_diverge_drop_out(data):
    found = quick(data, over={"step_size": [0.3, 1e3, 1e30]})
    assert found.best.settings == {"step_size": 0.3}
    assert [trial.settings["step_size"] for trial in found.trials[1:]] == [1e3, 1e30]
    assert all(math.isnan(trial.ksd[0]) for trial in found.trials[1:])
    assert "diverged" in found.table()
    assert found.record()["trials"][1]["ksd"] == [None]
    json.dumps(found.record(), allow_nan=False)


def test_when_all_diverge_it_is_told(data):
    with pytest.raises(InvalidValueError, match=r"every setting that was tried diverged.*smaller"):
        quick(data, over={"step_size": [1e20, 1e30]})


@pytest.mark.rotates(2, "what is tuned")
def test_batch_sizes_are_compared_for_the_same_number_of_rows(data):
    found = quick(data, over={"batch_size": [BATCH, 10], "step_size": [0.05, 0.3]})
    assert {(t.settings["batch_size"], t.settings["step_size"]) for t in found.trials} == {
        (size, step) for size in (BATCH, 10) for step in (0.05, 0.3)
    }
    assert found.estimator.batch_size == found.best.settings["batch_size"]
    assert found.sampler.inner.step_size == pytest.approx(found.best.settings["step_size"])


@pytest.mark.rotates(2, "what is tuned")
def test_friction_and_refreshes_can_be_varied(data):
    over = {"friction": [0.5, np.float32(1.0)], "resample_every": [5, 20], "step_size": [0.2]}
    found = quick(data, sampler=sc.SGHMC(), over=over, estimator=sc.Full())
    assert [sorted(t.settings) for t in found.trials] == [["friction", "resample_every", "step_size"]] * 4
    assert found.sampler.inner.friction == found.best.settings["friction"]
    assert found.sampler.inner.resample_every == found.best.settings["resample_every"]


def test_a_grid_has_one_round_and_curvature_none(data):
    grid = quick(data, method="grid", over={"step_size": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]})
    assert [trial.rounds for trial in grid.trials] == [1] * 6
    values = [trial.ksd[0] for trial in grid.trials]
    assert values == sorted(values)
    guess = quick(data, method="curvature")
    assert [(t.rounds, t.first_guess) for t in guess.trials] == [(0, True)]
    assert guess.sampler.inner.step_size == pytest.approx(0.1, rel=0.01)
    assert (guess.num_steps, guess.curve["ksd"].size) == (0, 0)


@pytest.mark.parametrize("preconditioner", [None, "diagonal"])
def test_the_coordinates_can_be_asked_for(data, truth, preconditioner):
    found = quick(data, preconditioner=preconditioner, method="curvature")
    if preconditioner is None:
        curvature = np.linalg.eigvalsh(data["x"].astype(np.float64).T @ data["x"])[-1]
        assert isinstance(found.sampler, sc.SGLD)
        assert found.sampler.step_size == pytest.approx(0.1 / curvature, rel=0.01)
    else:
        assert found.sampler.metric == preconditioner
        np.testing.assert_allclose(found.sampler.factor, truth[1], rtol=0.2)


def test_a_round_posterior_keeps_its_coordinates(seed):
    """Curvatures that differ less than five-fold are not worth a matrix."""
    x = np.random.default_rng(seed).normal(size=(ROWS, 2)).astype(np.float32)
    model = sc.Model(lambda mu, row: -0.5 * jnp.sum((row - mu) ** 2))
    found = tune(model, x, jnp.zeros(2), estimator=sc.Full(), method="curvature")
    assert isinstance(found.sampler, sc.SGLD)
    assert found.condition == pytest.approx(1.0, rel=1e-3)
    assert found.sampler.step_size == pytest.approx(0.1 / ROWS, rel=0.01)


def test_time_is_kept(data):
    """No further round begins after the deadline."""
    found = quick(data, seconds=1e-3)
    assert {trial.rounds for trial in found.trials} == {1}


@pytest.mark.rotates(2, "what is tuned")
def test_streamed_rows_are_tuned_as_well(data, tmp_path):
    sc.data.write(tmp_path / "rows", data)
    found = quick(sc.data.open(tmp_path / "rows"), over={"step_size": [0.01, 0.3, 1e3]})
    assert found.best.settings == {"step_size": 0.3}
    assert math.isnan(found.trials[-1].ksd[0])
    with pytest.raises(InvalidValueError, match=r"SVRG makes passes over all rows.*sc.ControlVariates"):
        quick(sc.data.open(tmp_path / "rows"), estimator=sc.SVRG(BATCH))


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"over": {"frictoin": [1.0]}}, InvalidValueError, r"names \['frictoin'\]; SGLD has .*batch_size"),
        ({"over": {"step_size": []}}, InvalidValueError, "is empty"),
        ({"over": {"step_size": 0.1}}, InvalidTypeError, "must be a list"),
        ({"over": {"step_size": "auto"}}, InvalidTypeError, "must be a list"),
        ({"over": [0.1]}, InvalidTypeError, "must be a dict of the settings to vary"),
        ({"over": {"batch_size": [10]}, "estimator": sc.Full()}, InvalidValueError, "Full has no batch size"),
        ({"sampler": sc.SGLD(0.1)}, InvalidValueError, "nothing to choose: SGLD has a step size"),
        ({"method": "random"}, InvalidValueError, "method"),
        ({"preconditioner": "hessian"}, InvalidValueError, "preconditioner"),
        ({"seconds": -1.0}, InvalidValueError, "seconds"),
        ({"num_steps": 5}, InvalidValueError, "num_steps"),
        ({"method": "curvature", "over": {"step_size": [0.1]}}, InvalidValueError, "leave `step_size` unset"),
    ],
)
def test_what_cannot_be_tuned_is_told(data, options, error, words):
    with pytest.raises(error, match=words):
        quick(data, **options)


def test_models_that_cannot_be_judged_are_told():
    counts = sc.CountModel(0.5, lambda omega, z: jax.nn.one_hot(z, 2))
    with pytest.raises(InvalidTypeError, match=r"CountModel does not have\. sc\.SCIR"):
        tune(counts, np.zeros(4, int), jnp.full(2, 0.5))
    with pytest.raises(InvalidTypeError, match=r"`model` must be a sc\.Model"):
        tune(log_likelihood, np.zeros(4), START)


@pytest.mark.parametrize("make", [lambda: sc.PSGLD("auto"), lambda: sc.SCIR("auto"), lambda: sc.SGLD("fast")])
def test_only_auto_and_only_where_it_can_be_found(make):
    with pytest.raises((InvalidValueError, InvalidTypeError), match=r'step_size="auto" sc\.SGLD, sc\.SGHMC'):
        make()


# -- other targets -----------------------------------------------------------------------------------------------------


@pytest.mark.rotates(2, "what is tuned")
def test_a_colder_target_is_judged_as_such(data):
    """At temperature T the law is N(m, T S): the same ε is best, to a factor, at any T."""
    chosen = [
        quick(data, sampler=sc.SGLD("auto", temperature=t), num_steps=400).best.settings["step_size"]
        for t in (1.0, 0.1)
    ]
    assert 1 / 4 < chosen[1] / chosen[0] < 4


def test_temperatures_are_not_compared(data):
    with pytest.raises(InvalidValueError, match="a different target"):
        quick(data, over={"temperature": [0.5, 1.0]})
    with pytest.raises(InvalidValueError, match="no distribution to sample"):
        quick(data, sampler=sc.SGLD("auto", temperature=0.0))


@pytest.mark.parametrize("wrong", [None, "auto", [1.0, 2.0]])
def test_step_sizes_to_try_are_numbers(wrong, data):
    with pytest.raises(InvalidTypeError, match="must contain numbers"):
        quick(data, over={"step_size": [1e-3, wrong]})


def test_what_is_not_a_sampler_or_a_whole_number_is_refused(data):
    with pytest.raises(InvalidTypeError, match="`sampler` must be a scirocco sampler"):
        quick(data, sampler="sgld")
    with pytest.raises(InvalidTypeError, match="whole number"):
        quick(data, over={"batch_size": [10.5]})
