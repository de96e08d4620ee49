"""Fits of a fake model, a random walk whose every position is known: what any model with chains of its own gets."""

from __future__ import annotations

import dataclasses
import os
import threading
import time

import numpy as np
import pytest

import scirocco as sc
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models._core import files
from scirocco.models._core.chain import Chain, HostChains, Spec
from scirocco.models._core.driver import PlannedFit, run_fit
from scirocco.models._core.length import AskedDraws, FitLength, check_length
from scirocco.models._core.program import OwnChains
from scirocco.run.sizes import RUNNING

pytestmark = pytest.mark.unit

SPEC = Spec.of({"position": (), "recent": (3,)}, {"steps": (), "signs": (2,)})


class Walk(Chain):
    """Adds a normal number at each step; keeps all positive ones in a buffer that doubles when it is full."""

    STATE = ("position", "used", "buffer")

    def __init__(self, seed, number):
        super().__init__(seed, number)
        self.position, self.buffer, self.used = np.zeros(()), np.zeros(1), np.zeros((), int)

    def move(self):
        number = self.rng(0).normal()
        self.position = self.position + number
        if number > 0:
            if self.used == len(self.buffer):
                self.buffer = np.concatenate([self.buffer, np.zeros(self.used)])
            self.buffer[self.used] = number
            self.used = self.used + 1

    def kept(self):
        recent = np.zeros(3)
        last = self.buffer[max(0, self.used - 3) : self.used]
        recent[: len(last)] = last
        signs = [self.used, self.step - self.used]
        return {"position": self.position, "recent": recent}, {"steps": self.step, "signs": signs}


def make(seed, length=None, *, num_chains=3, num_burnin=0.5, num_samples=10, told=None, name="Walk", **changes):
    program = OwnChains(
        "a walk",
        {"sampler": "walk", "scale": 1.0},
        lambda: "no data",
        100,
        SPEC,
        lambda number: Walk(seed, number),
        capacity=4,
    )
    asked = AskedDraws(num_samples, num_burnin, None, num_chains, seed)
    note = files.note(name, {}, told or {})
    return PlannedFit(name, dataclasses.replace(program, **changes), asked, length or FitLength(60, None), note)


def run(fit, **how):
    options = {"store": None, "resume": False, "overwrite": False, "callbacks": (), "progress": False}
    return run_fit(fit, **(options | how))


def check_positions(result, seed):
    """Every draw is where its chain is after so many steps, whatever happened in between."""
    for chain in range(result.num_chains):
        walk = Walk(seed, chain)
        for number, step in enumerate(np.asarray(result.stats["steps"])[chain].astype(int)):
            walk.advance(step - walk.step)
            draws, stats = walk.kept()
            assert np.float32(draws["position"]) == result.draws["position"][chain, number]
            np.testing.assert_array_equal(np.float32(draws["recent"]), result.draws["recent"][chain, number])
            np.testing.assert_array_equal(stats["signs"], result.stats["signs"][chain, number])


def same(one, other):
    for name in SPEC.draws:
        np.testing.assert_array_equal(np.asarray(one.draws[name]), np.asarray(other.draws[name]))
    for name in SPEC.stats:
        np.testing.assert_array_equal(np.asarray(one.stats[name]), np.asarray(other.stats[name]))


def at(step, act):
    def callback(report):
        if report.step >= step:
            act(report)

    return callback


def fail(report):
    raise RuntimeError("a crash")


def interrupt(report):
    raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    """A disk that promises nothing is fast; what survives a power cut is the store's subject."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture
def eager(changed):
    """A commit after each chunk."""
    changed(RUNNING, commit_seconds=0.0, commit_share=1e9)


# -- length and plan ---------------------------------------------------------------------------------------------------


def test_length():
    rows = {"num_rows": 100, "batch_size": 30}
    assert check_length(7, None, None, **rows) == (7, None, False)
    assert check_length(None, 1.5, None, **rows) == (5, None, False)
    assert check_length(None, 1.5, None, steps_of=lambda epochs: int(6 * epochs), **rows) == (9, None, False)
    assert check_length(None, None, 2, **rows) == (None, 2.0, False)
    assert check_length(None, None, None, default_epochs=3, **rows) == (10, None, True)
    with pytest.raises(InvalidValueError, match="not num_steps and max_seconds"):
        check_length(7, None, 2, **rows)
    with pytest.raises(InvalidValueError, match="`max_seconds` must be finite and > 0"):
        check_length(None, None, 0, **rows)


def test_the_last_draw_is_at_the_end():
    for steps in range(1, 40):
        for first in (0, 3, 25):
            for discard in (0.0, 0.5, 0.9):
                draws, burn_in, thin = AskedDraws(10, discard, None, 1, 0).spread(steps, first)
                assert burn_in + draws * thin == steps and 1 <= draws <= 10 and thin >= 1
                assert burn_in >= min(first, steps - 1)


def test_draws_are_where_the_plan_says(seed):
    result = run(make(seed, num_burnin=0.25, first_steps=12))
    assert (result.status, result.num_chains, result.num_draws) == ("complete", 3, 10)
    np.testing.assert_array_equal(result.stats["steps"], np.tile(np.arange(24, 61, 4), (3, 1)))
    assert result.draws["recent"].shape == (3, 10, 3) and result.draws["recent"].dtype == np.float32
    assert result.stats["signs"].shape == (3, 10, 2) and result.stats["signs"].dtype == np.float64
    check_positions(result, seed)
    assert "Walk by walk: 3 chains × 10 draws of 4 parameters" in repr(result)


# -- chains ------------------------------------------------------------------------------------------------------------


def test_chunks_are_one_run(seed):
    same(run(make(seed, capacity=1)), run(make(seed, capacity=16)))
    host = HostChains([Walk(seed, 0), Walk(seed, 1)], SPEC)
    assert host.advance(5, 1 << 30).num_draws == 0
    parts = [host.advance(count, 2) for count in (2, 6, 4)]
    assert [part.num_draws for part in parts] == [1, 3, 2]
    other = HostChains([Walk(seed, 0), Walk(seed, 1)], SPEC)
    other.advance(5, 1 << 30)
    whole = other.advance(12, 2)
    for name in SPEC.draws:
        joined = np.concatenate([part.draws[name] for part in parts], axis=1)
        np.testing.assert_array_equal(joined, whole.draws[name])
    host.close()
    other.close()


def test_states_are_stacked_and_those_of_other_shapes_have_names_of_their_own(seed):
    first, second = Walk(seed, 0), Walk(seed, 1)
    host = HostChains([first, second], SPEC)
    assert {name: array.shape for name, array in host.save().items()} == {
        "position": (2,),
        "used": (2,),
        "buffer": (2, 1),
        "steps": (2, 1),
    }
    second.buffer = np.arange(4.0)
    saved = host.save()
    assert set(saved) == {"position", "used", "buffer@0", "buffer@1", "steps"}
    again = HostChains([Walk(seed, 0), Walk(seed, 1)], SPEC)
    again.restore(saved)
    for chain, copy in zip(host.chains, again.chains, strict=True):
        for name, array in chain.state().items():
            np.testing.assert_array_equal(array, copy.state()[name])


def test_chains_run_at_once(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    meeting = threading.Barrier(2, timeout=10)

    class Waiting(Walk):
        def advance(self, num_steps):
            meeting.wait()
            super().advance(num_steps)

    result = run(make(0, num_chains=2, make=lambda number: Waiting(0, number)))
    check_positions(result, 0)


def test_chains_compile_before_a_time_limit_and_start_where_they_would(seed):
    """The step that compiles them is undone, in arrays that it changes in place, too."""
    moved = []

    class Counted(Walk):
        def move(self):
            moved.append(self.step)
            super().move()

    for number in range(8):
        walk, other = Counted(seed, number), Walk(seed, number)
        walk.prepare()
        assert moved.pop() == 0 and walk.step == 0
        for name, array in other.state().items():
            np.testing.assert_array_equal(walk.state()[name], array)


# -- store -------------------------------------------------------------------------------------------------------------


def test_store_and_resume(tmp_path, seed):
    whole = run(make(seed))
    part = run(make(seed), store=tmp_path, callbacks=(at(40, sc.run.progress.Report.stop),))
    assert part.status == "stopped" and 0 < part.num_draws < 10
    again = run(make(seed, told={"not": "used"}), store=tmp_path, resume=True)
    assert again.status == "complete"
    same(again, whole)
    same(sc.load(tmp_path), whole)
    finished = run(make(seed, length=FitLength(9, None, True)), store=tmp_path, resume=True)
    same(finished, whole)


@pytest.mark.parametrize("act", [fail, interrupt], ids=["crash", "interrupt"])
@pytest.mark.parametrize("step", [2, 45], ids=["burn-in", "draws"])
def test_a_run_that_was_cut_is_gone_on_with(step, act, tmp_path, seed, eager):
    whole = run(make(seed))
    if act is fail:
        with pytest.raises(RuntimeError, match="a crash"):
            run(make(seed), store=tmp_path, callbacks=(at(step, fail),))
    else:
        with pytest.warns(match="interrupted after"):
            run(make(seed), store=tmp_path, callbacks=(at(step, interrupt),))
    same(run(make(seed), store=tmp_path, resume=True), whole)


def test_an_interrupt_before_the_first_commit(tmp_path, seed):
    with pytest.raises(KeyboardInterrupt), pytest.warns(match="interrupted after 0 of 10"):
        run(make(seed), store=tmp_path, callbacks=(interrupt,))
    same(run(make(seed), store=tmp_path, resume=True), run(make(seed)))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("stored")
    run(make(5), store=path)
    return path


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"settings": {"sampler": "walk", "scale": 2.0}}, "`scale` was 1.0 and is now 2.0"),
        ({"fingerprint": lambda: "other"}, "`data` was 'no data' and is now 'other'"),
        ({"seed": 101}, "`seed` was"),
        ({"num_chains": 2}, "`num_chains` was 3 and is now 2"),
        ({"num_rows": 7}, "`num_rows` was 100 and is now 7"),
        ({"length": FitLength(61, None)}, "was planned as 60 steps for 10 draws"),
        ({"num_burnin": 0.1}, "pass the same num_steps, num_epochs, num_samples, num_burnin and thin"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_run_is_not_gone_on_with(changes, phrase, stored):
    with pytest.raises(InvalidValueError) as caught:
        run(make(5, **changes) if "seed" not in changes else make(**changes), store=stored, resume=True)
    assert phrase in str(caught.value)


def test_a_run_is_overwritten_when_that_is_said(tmp_path, seed):
    run(make(seed), store=tmp_path)
    with pytest.raises(InvalidValueError, match="holds a run already"):
        run(make(seed + 1), store=tmp_path)
    run(make(seed + 1), store=tmp_path, overwrite=True)
    same(sc.load(tmp_path), run(make(seed + 1)))


def test_another_model_is_refused(stored):
    with pytest.raises(InvalidTypeError, match="is one of Walk, not of Run"):
        run(make(5, name="Run"), store=stored, resume=True)
    with pytest.raises(InvalidTypeError, match="is not one of a runner"):
        files.read("Run", "a runner", stored)


def test_what_was_settled_on_is_taken_from_the_store(tmp_path, seed):
    cut = make(seed, settings={"sampler": "walk", "scale": 0.5})
    whole = run(cut, store=tmp_path, callbacks=(at(40, sc.run.progress.Report.stop),))
    assert whole.status == "stopped"

    def as_stored(was):
        return make(seed, settings={"sampler": "walk", "scale": was["scale"]}).program

    assert run(make(seed, as_stored=as_stored), store=tmp_path, resume=True).status == "complete"


def test_save_and_load(tmp_path, seed):
    result = run(make(seed, told={"words": ["a"]}), store=tmp_path / "run")
    stored = files.read("Walk", "a walk", tmp_path / "run")
    assert stored.told == {"words": ["a"]} and stored.run.configuration["scale"] == 1.0
    table = {"table": np.arange(3)}
    files.save(stored.run, files.note("Walk", {}, stored.told), table, tmp_path / "copy", False)
    copied = files.read("Walk", "a walk", tmp_path / "copy")
    same(copied.run, result)
    assert copied.told == stored.told and copied.run.configuration == stored.run.configuration
    np.testing.assert_array_equal(copied.arrays["table"], np.arange(3))
    with pytest.raises(InvalidValueError, match=r"already stored in"):
        files.save(copied.run, {}, {}, tmp_path / "copy", True)


# -- by the clock ------------------------------------------------------------------------------------------------------


def timed(seed, seconds=0.3, **changes):
    return make(seed, FitLength(None, seconds), **changes)


def test_a_time_limit(seed):
    ended = []

    def after_clock(chains):
        ended.extend(chain.step for chain in chains)
        return 7

    began = time.perf_counter()
    result = run(timed(seed, after_clock=after_clock))
    assert 0.15 < time.perf_counter() - began < 5
    assert len(ended) == 3 and len(set(ended)) == 1
    steps = result.stats["steps"][0]
    assert 1 <= result.num_draws <= 10 and len(np.unique(np.diff(steps))) <= 1
    assert steps[0] == ended[0] + 7 + result.configuration["thin"]
    check_positions(result, seed)


def test_a_time_limit_with_a_store(tmp_path, seed):
    result = run(timed(seed, 0.1, told={"kept": 1}), store=tmp_path)
    same(sc.load(tmp_path), result)
    assert sc.load(tmp_path).configuration == result.configuration
    assert result.configuration["num_burnin"] == 0
    assert files.read("Walk", "a walk", tmp_path).told == {"kept": 1}
    check_positions(result, seed)
    gone_on = run(timed(seed, 5.0), store=tmp_path, resume=True)
    assert gone_on.status == "complete"
    check_positions(gone_on, seed)


@pytest.mark.parametrize("act", [fail, interrupt], ids=["crash", "interrupt"])
def test_a_burn_in_by_the_clock_is_stored(act, tmp_path, seed, eager):
    cut = {"store": tmp_path, "callbacks": (at(20, act),)}
    if act is fail:
        with pytest.raises(RuntimeError, match="a crash"):
            run(timed(seed, 60.0), **cut)
    else:
        with pytest.warns(match="interrupted after 0 of 10 draws"):
            assert run(timed(seed, 60.0), **cut).status == "interrupted"
    assert sc.load(tmp_path).status in ("killed", "interrupted")
    with pytest.raises(InvalidValueError, match="stopped during burn-in: pass max_seconds"):
        run(make(seed), store=tmp_path, resume=True)
    begun = []
    result = run(timed(seed, 0.1), store=tmp_path, resume=True, callbacks=(lambda r: begun.append(r.step),))
    assert begun[0] > 1  # not from the first step
    check_positions(result, seed)
    same(sc.load(tmp_path), result)


def test_a_crash_after_the_burn_in_costs_no_burn_in(tmp_path, seed):
    steps = []
    with pytest.raises(RuntimeError, match="a crash"):
        run(
            timed(seed, 0.2, after_clock=lambda chains: steps.append(chains[0].step) or 0),
            store=tmp_path,
            callbacks=(lambda report: fail(report) if report.draws is not None else None,),
        )
    result = run(timed(seed, 5.0), store=tmp_path, resume=True)
    assert result.status == "complete" and result.stats["steps"][0, 0] == steps[0] + result.configuration["thin"]
    check_positions(result, seed)


def test_a_run_that_is_stopped_in_its_burn_in_has_no_draws(seed):
    result = run(timed(seed, 60.0), callbacks=(at(3, sc.run.progress.Report.stop),))
    assert result.status == "stopped" and not result.num_draws
