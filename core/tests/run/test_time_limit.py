"""`sc.sample(max_seconds=)`, what is said while a long run goes on, and after one whose draws say nothing."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import helpers
import scirocco as sc
from scirocco.run import progress

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]


def test_a_run_ends_in_time_and_can_be_resumed(tmp_path):
    """With the draws that an uninterrupted run has; `sc.resume` makes the others."""
    short = helpers.draw(num_samples=10**6, num_burnin=4, max_seconds=0.2, store=tmp_path / "run", seed=3)
    assert short.status == "stopped" and 1 <= short.num_draws < 10**6
    whole = helpers.draw(num_samples=short.num_draws, num_burnin=4, seed=3)
    helpers.assert_equal(short.draws, whole.draws)


def test_the_burn_in_and_the_first_draw_are_made_in_any_case():
    run = helpers.draw(num_samples=10**5, num_burnin=300, thin=2, max_seconds=1e-6)
    assert 1 <= run.num_draws < 10**5 and run.status == "stopped"


def test_enough_time_changes_nothing():
    run, without = (helpers.draw(num_samples=20, **options) for options in ({"max_seconds": 1_000.0}, {}))
    assert run.status == "complete"
    helpers.assert_equal(run.draws, without.draws)


def test_a_default_run_that_ends_early_has_a_certificate():
    data, params = helpers.make_data(), helpers.make_params()
    run = sc.sample(helpers.MODEL, data, params, num_samples=10**6, max_seconds=0.5, progress=False)
    assert run.status == "stopped" and run.certificate is not None and run.certificate.ok


@pytest.mark.parametrize("limit", [0, -1.0, "long"])
def test_limits_that_are_none(limit):
    with pytest.raises((sc.errors.InvalidValueError, sc.errors.InvalidTypeError), match="max_seconds"):
        helpers.draw(num_samples=5, max_seconds=limit)


def test_off_a_terminal_there_is_a_line_a_minute(monkeypatch, capsys):
    now = iter(np.arange(0.0, 1_000.0, 20.0))
    monkeypatch.setattr(progress.time, "perf_counter", lambda: float(next(now)))
    bar = progress.Bar(1_000, True)
    for step in range(10, 110, 10):  # 20 s for 10 steps
        bar.update(step, "sampling", 0.5, None)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "sampling: step 30 of 1,000 after 60 s, about 32 min left",
        "sampling: step 60 of 1,000 after 2 min, about 31 min left",
        "sampling: step 90 of 1,000 after 3 min, about 30 min left",
    ]
    bar.expect(1_000, 7.0)
    for step in range(110, 113):  # 60 s
        bar.update(step, "sampling", 0.5, None)
    assert "predicted" not in capsys.readouterr().err
    bar.update(113, "sampling", 0.5, None)
    assert "much longer than the 7 s that were predicted" in capsys.readouterr().err
    quiet = progress.Bar(1_000, False)
    for step in range(10, 110, 10):
        quiet.update(step, "sampling", 0.5, None)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("step", [1e-7, 1e-2])
def test_a_named_sampler_whose_draws_say_nothing_is_named(step):
    """Steps of 10⁻⁷ diffuse by a few thousandths of a standard deviation."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        helpers.draw(num_samples=1_000, num_chains=4, sampler=sc.SGLD(step), estimator=sc.Full())
    said = [str(each.message) for each in caught if "hardly anything" in str(each.message)]
    assert len(said) == (step < 1e-6)
    assert all("effective draws of 4,000, R-hat " in line for line in said)
