"""From a request to its first step: what is measured, how often it is set up, and what `run.preparation` says of it."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import helpers
import scirocco as sc
from scirocco.run.choose import set_up
from scirocco.run.choose.limits import LIMITS

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]


@pytest.fixture
def set_ups(monkeypatch):
    """The samplers for which a set-up was made."""
    made, prepare = [], set_up.prepare

    def spy(problem, *args, **options):
        made.append(type(problem.parts.sampler).__name__)
        return prepare(problem, *args, **options)

    monkeypatch.setattr(set_up, "prepare", spy)
    return made


def plain(**options):
    arguments = helpers.MODEL, helpers.make_data(), helpers.make_params()
    return sc.sample(*arguments, **({"num_samples": 40, "progress": False} | options))


def test_few_rows_are_set_up_once(set_ups):
    run = plain()
    assert set_ups == ["NUTS"]
    assert run.preparation["because"].startswith("320 numbers in the data, at most few_numbers")
    measured = run.preparation["measured"]
    assert measured["num_rows"] == 64 and measured["dimension"] == 5 and measured["roundness"] < 0.1
    assert 0 < measured["pass_seconds"] < 1 and run.preparation["predicted_seconds"] > 0
    assert "about" not in run.preparation["chosen"], "what takes a second needs no prediction"


def test_trajectories_that_would_take_long_give_way_to_batches(set_ups, changed, capsys):
    """If the posterior is round; the line says how long it takes, before it takes it."""
    changed(LIMITS, patience=0.0, least_pass=0.0, gain=0.0, told_from=0.0)
    run = plain(progress=True)
    assert set_ups == ["NUTS", "Preconditioned"]
    assert run.configuration["sampler"]["name"] == "Preconditioned"
    assert "more than patience (0 s)" in run.preparation["because"]
    assert "steps, about " in run.preparation["chosen"]
    assert run.preparation["chosen"] in capsys.readouterr().err


def test_what_was_named_is_not_exchanged(set_ups, changed):
    changed(LIMITS, patience=0.0, least_pass=0.0, gain=0.0)
    run = plain(sampler=sc.NUTS(), num_chains=1)
    assert set_ups == ["NUTS"] and "because" not in run.preparation


def test_a_posterior_far_from_gaussian_gets_trajectories(set_ups, changed):
    """The logarithm of a gamma variable of shape 1 has skewness -1.14: ½κ² = .65."""
    changed(LIMITS, few_numbers=0)
    model = sc.Model(lambda p, y: p - jnp.exp(p) * y)
    run = sc.sample(model, np.ones(1, np.float32), np.float32(1.0), num_samples=50, progress=False)
    assert set_ups == ["Preconditioned", "NUTS"]
    assert "above far_from_gaussian (0.3)" in run.preparation["because"]
