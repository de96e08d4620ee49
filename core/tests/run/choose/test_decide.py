"""The choice of a method as a table: what was asked and measured, and what is decided from it."""

from __future__ import annotations

import dataclasses
import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.data import as_source
from scirocco.run.choose.decide import Again, Asked, Choice, decide, leapfrogs, predicted
from scirocco.run.choose.limits import LIMITS, Limits
from scirocco.run.choose.measure import Measured, measure
from scirocco.run.progress import in_units

pytestmark = pytest.mark.unit

FREE = Asked()
FEW = Measured(
    drive="gradient", is_random=False, in_memory=True, on_mesh=False, num_rows=500, numbers=5_000, dimension=10
)
MANY = dataclasses.replace(FEW, num_rows=200_000, numbers=2_000_000)
HUGE = dataclasses.replace(FEW, num_rows=10**7, numbers=10**8)
NETWORK = dataclasses.replace(MANY, dimension=20_000)
SLOW = {"pass_seconds": 0.02, "some_seconds": 0.0008, "some_rows": 8_192, "at_once": 2.0}
QUICK = {"pass_seconds": 0.0005, "some_seconds": 0.0004, "some_rows": 8_192, "at_once": 1.0}


def with_(measured, **changes):
    return dataclasses.replace(measured, **changes)


FIRST = [
    ("few rows", FREE, FEW, "trajectories", "few_numbers"),
    ("one row", FREE, with_(FEW, num_rows=1, numbers=3), "trajectories", "few_numbers"),
    ("many rows", FREE, MANY, "scaled", "few_numbers"),
    ("rows that cost as much as many", FREE, with_(FEW, numbers=10**6), "scaled", "few_numbers"),
    ("a stream", FREE, with_(FEW, in_memory=False, numbers=math.inf), "scaled", "not in memory"),
    ("a mesh", FREE, with_(FEW, on_mesh=True), "scaled", "mesh"),
    ("a random likelihood", FREE, with_(FEW, is_random=True), "scaled", "random"),
    ("a network", FREE, NETWORK, "scaled", "trajectory_parameters"),
    ("counts", FREE, with_(FEW, drive="counts"), "counts", "counts"),
    ("no package for trajectories", FREE, with_(FEW, can_travel=False), "scaled", "blackjax"),
    ("a named sampler", Asked(sampler=True), FEW, "own", "named"),
    ("a named estimator with batches", Asked(estimator=True, exact=False), FEW, "scaled", "batches"),
    ("a named estimator of all rows", Asked(estimator=True), FEW, "trajectories", "few_numbers"),
]


@pytest.mark.parametrize(("asked", "measured", "method", "because"), [c[1:] for c in FIRST], ids=[c[0] for c in FIRST])
def test_the_first_choice(asked, measured, method, because):
    verdict = decide(asked, measured)
    assert isinstance(verdict, Again) and not verdict.at_mode
    assert verdict.choice.method == method and because in verdict.choice.because


def done(measured, method, roundness=0.01, **changes):
    """After a set-up for this method."""
    return with_(measured, methods=(*measured.methods, method), roundness=roundness, **changes)


AFTER = [
    ("few rows, round", done(FEW, "trajectories"), None, ""),
    ("few rows, far from Gaussian", done(FEW, "trajectories", 3.0), None, ""),
    ("many rows, round", done(MANY, "scaled", 0.29), None, ""),
    ("many rows, far from Gaussian", done(MANY, "scaled", 0.31), "trajectories", "far_from_gaussian"),
    ("the same, slowly", done(MANY, "scaled", 0.9, **SLOW), None, ""),
    ("without any shape, slowly", done(MANY, "scaled", 1.1, **SLOW), "trajectories", "no_shape"),
    ("data that contradict the scale", done(FEW, "trajectories", rounding=2.0), "scaled", "coarse"),
    ("the same, far from Gaussian", done(FEW, "trajectories", 0.5, rounding=2.0), None, ""),
    ("more rows than trajectories can pass over", done(HUGE, "scaled", 0.5), None, ""),
    ("the same on a quick device", done(HUGE, "scaled", 0.5, **QUICK), "trajectories", "far_from_gaussian"),
    ("a stream, far from Gaussian", done(with_(HUGE, in_memory=False), "scaled", 0.5, **QUICK), None, ""),
    ("a network", done(NETWORK, "scaled", math.inf), "networks", "no_shape"),
    ("a network that is settled", done(done(NETWORK, "scaled", 9.0), "networks", math.inf), None, ""),
    ("many parameters, round", done(NETWORK, "scaled", 0.2), None, ""),
    ("a pass that takes long, round", done(MANY, "trajectories", **SLOW), "scaled", "patience"),
    ("a pass that takes long, far from Gaussian", done(MANY, "trajectories", 0.5, **SLOW), None, ""),
    ("a pass that is quick", done(MANY, "trajectories", **QUICK), None, ""),
    ("counts", done(with_(FEW, drive="counts"), "counts", None), None, ""),
    ("a mesh", done(with_(MANY, on_mesh=True), "scaled", 5.0), None, ""),
]


@pytest.mark.parametrize(("measured", "method", "because"), [c[1:] for c in AFTER], ids=[c[0] for c in AFTER])
def test_what_a_set_up_changes(measured, method, because):
    verdict = decide(FREE, measured)
    if method is None:
        assert isinstance(verdict, Choice) and verdict.method == measured.method
    else:
        assert isinstance(verdict, Again)
        assert verdict.choice.method == method and because in verdict.choice.because
        assert verdict.at_mode == (method == "networks")
    for named in (Asked(sampler=True), Asked(estimator=True)):  # what was named is never exchanged
        assert isinstance(decide(named, measured), Choice)


def test_every_chain_of_decisions_ends():
    """Whatever set-ups measure, no method is set up twice."""
    for roundness in itertools.product((0.0, 0.5, 2.0), repeat=4):
        for start in (FEW, MANY, with_(NETWORK, **SLOW), with_(MANY, **SLOW, rounding=2.0)):
            measured, tried = start, []
            for value in roundness:
                verdict = decide(FREE, measured)
                if isinstance(verdict, Choice):
                    break
                tried.append(verdict.choice.method)
                measured = done(measured, verdict.choice.method, value)
            assert len(set(tried)) == len(tried)
            assert isinstance(decide(FREE, measured), Choice)


def test_predictions():
    """Time is proportional to the passes; batches cost less than passes, and more than their share of one."""
    measured = done(MANY, "trajectories", **SLOW)
    twice = with_(measured, pass_seconds=0.04)
    assert predicted(FREE, twice, "trajectories") == pytest.approx(2 * predicted(FREE, measured, "trajectories"))
    assert predicted(FREE, MANY, "trajectories") is None
    by_hand = (420 + 1_000) * 4 * leapfrogs(10) * 0.02 / 2
    assert predicted(FREE, measured, "trajectories") == pytest.approx(by_hand)
    assert predicted(FREE, measured, "scaled") < by_hand / LIMITS.gain
    assert [leapfrogs(size) for size in (1, 10, 100, 1_000)] == [3, 7, 15, 31]
    assert [in_units(value) for value in (31.0, 94.0, 130.0, 7_000.0)] == ["30 s", "90 s", "2 min", "2 h"]


def test_limits_are_data():
    """A decision with other limits needs no patch."""
    verdict = decide(FREE, FEW, Limits(few_numbers=4_999))
    assert verdict.choice.method == "scaled"


def test_what_is_measured_of_data():
    """Before anything is computed."""
    model = sc.Model(lambda p, x: -0.5 * jnp.sum((x - p["mu"]) ** 2))
    measured = measure(model, as_source(np.ones((30, 4), np.float32)), {"mu": 0.0, "z": np.zeros(3)}, None)
    assert (measured.num_rows, measured.numbers, measured.dimension) == (30, 120, 4)
    assert measured.report() == {"num_rows": 30, "numbers": 120.0, "dimension": 4}
