"""The host's part of a run: what is kept, when it stops, what it tells, and that nothing drawn is lost."""

from __future__ import annotations

import dataclasses
import signal
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers
import scirocco as sc
from scirocco.errors import DivergenceError, InvalidValueError, SciroccoWarning
from scirocco.run import chains
from scirocco.run.choose.limits import LIMITS
from scirocco.run.sizes import RUNNING

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]


@pytest.fixture
def small_chunks(changed):
    """Chunks of 4, 3, 1, 1, ... steps."""
    changed(RUNNING, first_chunk=4, second_chunk=3, chunk_seconds=0.0)


def first(run, count):
    return jax.tree.map(lambda leaf: leaf[:, :count], run.draws)


# -- a chain without noise, whose position after m steps is m ε ---------------------------------------------------

EPS = 2.0**-6


def climb(params, x):
    """Gradient 1 in all; NaN beyond 5.5 ε."""
    return params * jnp.where(params > 5.5 * EPS, jnp.nan, 1.0) / 8


def endless(params, x):
    return params / 8


def walk(likelihood, **changes):
    arguments = {"sampler": sc.SGLD(EPS, temperature=0.0), "estimator": sc.Full(), "progress": False}
    return sc.sample(sc.Model(likelihood), np.zeros(8, np.float32), np.float32(0.0), **(arguments | changes))


@pytest.mark.parametrize(
    ("num_burnin", "thin", "num_samples"), [(0, 1, 5), (0, 3, 4), (7, 1, 3), (5, 2, 6), (300, 7, 40)]
)
def test_burn_in_and_thinning_count_steps(num_burnin, thin, num_samples):
    run = walk(endless, num_burnin=num_burnin, thin=thin, num_samples=num_samples)
    expected = (num_burnin + thin * np.arange(1, num_samples + 1)) * EPS
    np.testing.assert_allclose(run.draws[0], expected, rtol=1e-5)
    assert run.status == "complete"


@pytest.mark.parametrize(
    ("num_burnin", "thin", "kept"),
    [(0, 1, [1, 2, 3, 4, 5, 6]), (0, 2, [2, 4, 6]), (0, 4, [4]), (2, 1, [3, 4, 5, 6]), (3, 2, [5]), (20, 1, [])],
)
@pytest.mark.parametrize("chunks", ["one chunk", "small chunks"])
def test_a_divergence_loses_no_earlier_draw(num_burnin, thin, kept, chunks, request):
    """The gradient is NaN at 6 ε, so step 6 (from 0) is the first that diverges."""
    if chunks == "small chunks":
        request.getfixturevalue("small_chunks")
    with pytest.raises(DivergenceError) as caught:
        walk(climb, num_burnin=num_burnin, thin=thin, num_samples=50, num_chains=2, keep_gradients=True)
    error = caught.value
    assert (error.chain, error.step) == (0, 6)
    assert "chain 0" in str(error)
    assert "at step 6" in str(error)
    if not kept:
        assert error.run is None
        return
    assert error.run.status == "diverged"
    np.testing.assert_allclose(error.run.draws, np.tile(np.array(kept) * EPS, (2, 1)), rtol=1e-6)
    assert error.run.gradients.shape == error.run.draws.shape
    assert error.run.stats["gradient_norm"].shape == error.run.draws.shape


def test_a_divergence_names_the_chain_and_the_parameter():
    """Noise decides which chain goes first; the others were cut at the same draw."""

    def steep(params, x):
        return (params["b"] * jnp.where(params["b"] > 4.0, jnp.nan, 1.0) - 0.5 * params["a"] ** 2) / 8

    with pytest.raises(DivergenceError) as caught:
        sc.sample(
            sc.Model(steep),
            np.zeros(8, np.float32),
            {"a": np.float32(0.0), "b": np.float32(0.0)},
            sampler=sc.SGLD(0.02),
            estimator=sc.Full(),
            num_samples=5_000,
            num_chains=3,
            progress=False,
        )
    error = caught.value
    draws = error.run.draws["b"]
    assert "`b`" in str(error)
    assert draws.shape == (3, error.step)
    assert np.all(np.isfinite(draws))
    assert np.argmax(draws[:, -1]) == error.chain, "the last draw before the divergence lies beyond the edge"
    assert draws[error.chain, -1] > 4.0


# -- chains ---------------------------------------------------------------------------------------------------------

METHODS = [("SGHMC-resample", "SVRG"), ("PSGLD-correction", "SAGA")]


@pytest.mark.rotates(2)
@pytest.mark.parametrize(("sampler", "estimator"), METHODS, ids=map("+".join, METHODS))
def test_threads_and_vmap_make_the_same_chains(sampler, estimator):
    threads, together = (
        helpers.draw(sampler, estimator, num_chains=3, num_samples=15, chain_method=method, keep_gradients=True)
        for method in ("threads", "vmap")
    )
    helpers.assert_close(together.draws, threads.draws)
    helpers.assert_close(together.gradients, threads.gradients, rtol=1e-3, atol=1e-2)
    helpers.assert_close(together.stats, threads.stats, rtol=1e-3, atol=1e-3)


def test_a_chain_does_not_depend_on_how_many_others_there_are():
    one, five = helpers.draw(num_chains=1, seed=3), helpers.draw(num_chains=5, seed=3)
    helpers.assert_equal(one.draws, jax.tree.map(lambda leaf: leaf[:1], five.draws))
    flat = five.draws["weights"].reshape(5, -1)
    assert len(np.unique(flat, axis=0)) == 5, "two chains are equal"


def test_threads_end_with_the_run():
    helpers.draw(num_chains=4)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("chain") and _busy(thread)]


def _busy(thread):
    thread.join(timeout=600.0)
    return thread.is_alive()


@pytest.mark.rotates(2)
@pytest.mark.parametrize("method", ["threads", "vmap"])
def test_runs_longer_than_the_buffers(method, changed):
    """Draws are brought to the host whenever the buffer on the device is full."""
    whole = helpers.draw(num_samples=40, num_chains=2, chain_method=method, keep_gradients=True)
    changed(RUNNING, buffer_draws=16)
    pieces = helpers.draw(num_samples=40, num_chains=2, chain_method=method, keep_gradients=True)
    helpers.assert_close(pieces.draws, whole.draws, rtol=1e-5, atol=1e-6)


# -- defaults ---------------------------------------------------------------------------------------------------------


def test_defaults_choose_everything():
    """Few rows: exact trajectories over all of them; chains, coordinates, step size and burn-in are told."""
    run = sc.sample(helpers.MODEL, helpers.make_data(), helpers.make_params(), num_samples=50, progress=False)
    assert run.num_draws == 50
    assert run.num_chains == 4
    assert run.configuration["sampler"]["name"] == "NUTS"
    assert run.configuration["sampler"]["step_size"] > 0
    assert run.configuration["estimator"]["name"] == "Full"
    assert run.configuration["num_burnin"] == 100
    assert run.configuration["thin"] == 1
    assert run.preparation["adaptation"]["steps"] > 300
    assert run.preparation["chosen"] == "NUTS, Full (all 64 rows at every step), 100 burn-in steps"
    assert not run.stats["diverging"].any()


def test_defaults_without_blackjax(changed):
    """Model, data, start: coordinates, step size, gradients and burn-in follow from them, and are told."""
    changed(LIMITS, few_numbers=0)
    run = sc.sample(helpers.MODEL, helpers.make_data(), helpers.make_params(), num_samples=50, progress=False)
    assert run.configuration["sampler"]["name"] == "Preconditioned"
    assert run.configuration["sampler"]["inner"]["name"] == "BAOAB"
    assert run.configuration["sampler"]["inner"]["step_size"] > 0
    assert run.configuration["estimator"]["name"] == "Full"
    assert run.configuration["num_burnin"] == 250
    assert run.preparation["largest_curvature"] > 0
    assert run.preparation["distance_to_mode_in_sd"] < 0.25
    assert run.preparation["chosen"] == (
        "BAOAB in coordinates scaled at the mode, Full (all 64 rows at every step), 250 burn-in steps, "
        f"one draw every {run.configuration['thin']} steps"
    )
    assert 1 < run.configuration["thin"] < 6


def test_defaults_of_many_rows(changed):
    """Too many rows for a pass at every step: control variates."""
    changed(LIMITS, few_numbers=0)
    data, known = helpers.make_data(num_rows=3_000), helpers.MODEL
    model = sc.Model(lambda params, row: known.log_likelihood(params, row), known.log_prior)  # nothing is compiled
    with helpers.compiled() as programs:
        run = sc.sample(model, data, helpers.make_params(), num_samples=50, num_burnin=0, progress=False)
    assert len(programs) <= 12, f"{programs}: one for each part of the set-up, none for arithmetic in between"
    assert run.configuration["estimator"]["name"] == "ControlVariates"
    size = run.configuration["estimator"]["batch_size"]
    assert 32 <= size < 500, "few rows do where control variates leave hardly any noise"
    assert run.configuration["num_burnin"] == 0
    assert f"ControlVariates of {size} rows, one draw every" in run.preparation["chosen"]
    assert run.preparation["variance_from_noise"] < 0.15


def test_thinning_that_is_given_stays():
    run = sc.sample(helpers.MODEL, helpers.make_data(), helpers.make_params(), num_samples=20, thin=1, progress=False)
    assert run.configuration["thin"] == 1 and "one draw" not in run.preparation["chosen"]


@pytest.mark.rotates(2, "plain calls")
def test_defaults_of_a_likelihood_that_draws():
    """A sum that is drawn is never the same twice: no reference, and no pass that would pass for exact."""
    model = sc.Model(lambda mu, x, key: -0.5 * (x - mu + 0.0 * jax.random.normal(key)) ** 2)
    run = sc.sample(model, np.ones(40, np.float32), np.float32(0.0), num_samples=5, progress=False)
    assert run.configuration["estimator"]["name"] == "Minibatch"


@pytest.mark.parametrize("wrong", [{"sampler": "SGLD"}, {"estimator": 3}, {"sampler": sc.SGLD}])
def test_what_is_no_sampler_or_estimator_is_named(wrong):
    with pytest.raises(sc.errors.InvalidTypeError, match=f"`{next(iter(wrong))}` must be a scirocco"):
        sc.sample(helpers.MODEL, helpers.make_data(), helpers.make_params(), keep_gradients=True, **wrong)


def test_what_is_given_is_not_chosen():
    """A sampler of one's own has no burn-in that was not asked for, and nothing is said."""
    run = helpers.draw(num_samples=5)
    assert run.configuration["num_burnin"] == 0
    assert "chosen" not in run.preparation


def test_defaults_resume_what_is_there(tmp_path):
    """The same plain call again goes on with the run, whatever was chosen for it at first."""
    problem = (helpers.MODEL, helpers.make_data(), helpers.make_params())
    other = {"sampler": sc.SGLD(1e-3), "estimator": sc.Minibatch(16), "num_burnin": 3}
    sc.sample(*problem, num_samples=5, store=tmp_path / "run", progress=False, **other)
    run = sc.sample(*problem, num_samples=9, store=tmp_path / "run", resume=True, progress=False)
    assert run.num_draws == 9
    assert run.configuration["sampler"]["name"] == "SGLD"
    assert run.configuration["num_burnin"] == 3


def test_only_what_was_asked_for_is_kept():
    run = helpers.draw()
    assert run.gradients is None
    assert run.scores == []
    assert set(run.timing) == {"setup", "first_chunk", "sampling"}


# -- callbacks --------------------------------------------------------------------------------------------------------


def test_callbacks_see_every_chunk(small_chunks):
    reports = []
    run = helpers.draw(
        num_samples=6, num_burnin=5, thin=2, num_chains=2, callbacks=[lambda r: reports.append(dataclasses.replace(r))]
    )
    assert [report.step for report in reports] == [4, 5, 7, 9, 11, 13, 15, 17]
    assert all(report.num_steps == 17 and report.num_chains == 2 for report in reports)
    assert [report.draws is None for report in reports] == [True, True] + 6 * [False]
    seen = [report.draws for report in reports if report.draws is not None]
    helpers.assert_equal(jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *seen), run.draws)
    times = [report.elapsed for report in reports]
    assert times == sorted(times)


def test_scores_are_kept_with_their_step(small_chunks):
    run = helpers.draw(num_samples=8, callbacks=[lambda r: r.step / 2, lambda r: {"draws": r.step}, lambda r: None])
    assert run.scores == [(step, {"score": step / 2, "draws": float(step)}) for step in (4, 7, 8)]


def test_a_callback_can_stop_the_run(small_chunks):
    whole = helpers.draw(num_samples=20, seed=2)
    run = helpers.draw(num_samples=20, seed=2, callbacks=[lambda r: r.stop() if r.step >= 7 else None])
    assert run.status == "stopped"
    assert run.num_draws == 7
    helpers.assert_equal(run.draws, first(whole, 7))


# -- interrupts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["threads", "vmap"])
def test_ctrl_c_keeps_what_was_drawn(method, small_chunks):
    """A real signal, while the chains run."""
    whole = helpers.draw(num_samples=20, num_chains=2, chain_method=method)
    # a shell that starts the tests in the background makes them ignore the signal
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def press(report):
        if report.step >= 8:
            signal.raise_signal(signal.SIGINT)

    with pytest.warns(SciroccoWarning, match="interrupted after 8 of 20 draws"):
        run = helpers.draw(num_samples=20, num_chains=2, chain_method=method, callbacks=[press])
    signal.signal(signal.SIGINT, before)
    assert run.status == "interrupted"
    helpers.assert_close(run.draws, first(whole, 8), rtol=1e-6)


@pytest.fixture
def interrupted_in(monkeypatch):
    """Ctrl-C in the middle of the chunk of this number."""
    advance, calls = chains.ThreadedChains.advance, []

    def interrupt(number):
        def interrupted(self, *arguments):
            calls.append(arguments)
            if len(calls) == number:
                raise KeyboardInterrupt
            return advance(self, *arguments)

        monkeypatch.setattr(chains.ThreadedChains, "advance", interrupted)

    return interrupt


def test_ctrl_c_in_the_middle_of_a_chunk_keeps_the_chunks_before(small_chunks, interrupted_in):
    whole = helpers.draw(num_samples=20)
    interrupted_in(3)
    with pytest.warns(SciroccoWarning, match="interrupted after 7 of 20 draws"):
        run = helpers.draw(num_samples=20)
    helpers.assert_equal(run.draws, first(whole, 7))


def test_ctrl_c_before_the_first_draw_leaves_an_empty_run(interrupted_in):
    interrupted_in(1)
    with pytest.warns(SciroccoWarning, match="interrupted after 0 of 10 draws"):
        run = helpers.draw()
    assert (run.num_draws, run.num_chains, run.status) == (0, 0, "interrupted")
    assert "0 draws" in repr(run)
    for attempt in (run.summary, run.to_arviz):
        with pytest.raises(InvalidValueError, match="has no draws"):
            attempt()


# -- the progress bar -------------------------------------------------------------------------------------------------


@pytest.fixture
def terminal(monkeypatch):
    rich_console = pytest.importorskip("rich.console")
    monkeypatch.setattr(rich_console.Console, "is_terminal", property(lambda self: True))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")


def test_the_bar_tells_steps_speed_and_score(terminal, small_chunks, capsys):
    helpers.draw(num_samples=12, progress=True, callbacks=[lambda report: {"held-out": 0.25}])
    shown = capsys.readouterr()
    assert shown.out == ""
    for piece in ("sampling", "12/12 steps", "it/s", "held-out 0.25"):
        assert piece in shown.err, piece


def test_no_bar_when_not_asked_for(terminal, capsys):
    helpers.draw(progress=False)
    assert capsys.readouterr() == ("", "")


def test_no_bar_without_a_terminal(capsys):
    helpers.draw(progress=True)
    assert capsys.readouterr() == ("", "")


def test_the_bar_is_closed_when_a_run_fails(terminal, capsys):
    with warnings.catch_warnings(), pytest.raises(InvalidValueError):
        helpers.draw(estimator=sc.Minibatch(10_000), progress=True)
    assert "setting up" in capsys.readouterr().err


@pytest.mark.rotates(2, "plain calls")
def test_the_estimator_that_was_chosen_is_named_without_its_wrapping():
    """SCIRCV compares estimates with a reference, which wraps the estimator; users know the one inside."""
    model = sc.CountModel(0.5, lambda omega, z: jax.nn.one_hot(z, 3))
    run = sc.sample(model, np.arange(60) % 3, np.full(3, 1 / 3), sampler=sc.SCIRCV(0.1), num_samples=2, progress=False)
    assert run.preparation["chosen"].startswith("Minibatch of 60 rows")
