"""Draws in the sampling phases of cycles alone: at which steps, stored, resumed, divided into chunks."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from law import laws
from scirocco.errors import InvalidValueError
from scirocco.run.cadence import Cadence
from scirocco.run.sizes import RUNNING

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]
LENGTH, BURNIN, THIN = 20, 30, 3


def schedule(explore):
    return sc.schedules.cyclical(0.01, LENGTH, floor=1e-4, explore=explore)


def draw(seed, sampler=None, **changes):
    options = {"num_samples": 10, "num_burnin": BURNIN, "thin": THIN, "num_chains": 2, "seed": seed} | changes
    x, mean, _ = laws.gaussian_problem(seed)
    sampler = sampler or sc.SGLD(schedule(0.6))
    options["estimator"] = sc.Minibatch(laws.BATCH)
    return sc.sample(laws.MODEL, x, jnp.array(mean, jnp.float32), sampler=sampler, progress=False, **options)


def test_the_steps_of_draws():
    """The first phase after the burn-in begins at step 32: 2 draws of 3 steps in each of 8."""
    cadence = Cadence(BURNIN, THIN, LENGTH, 12)
    wanted = [35, 38, 55, 58, 75, 78]
    np.testing.assert_array_equal(cadence.steps(np.arange(1, 7)), wanted)
    made, step = [], 0
    while step < 80:  # as a session goes
        keeps, left = cadence.stretch(step)
        assert left > 0
        made += range(step + THIN, step + left + 1, THIN) if keeps else []
        step += left
    assert made == wanted
    assert Cadence(BURNIN, THIN).steps(4) == BURNIN + 4 * THIN
    assert cadence._replace(num_burnin=0).begin == 12
    assert cadence._replace(num_burnin=12).begin == 12
    assert cadence._replace(num_burnin=13).begin == 32


@pytest.mark.parametrize("method", ["threads", "vmap"])
@pytest.mark.parametrize("first", [1, 7, 1_000])
def test_draws_are_those_of_the_whole_path(seed, method, first, changed):
    """In chunks of any size: the positions of a run that keeps every step, at the steps of the sampling phases."""
    changed(RUNNING, first_chunk=first, second_chunk=first)
    run = draw(seed, chain_method=method)
    steps = Cadence(BURNIN, THIN, LENGTH, 12).steps(np.arange(1, 11))
    path = draw(seed, sc.SGLD(schedule(0.0)), num_samples=int(steps[-1]), num_burnin=0, thin=1, chain_method=method)
    np.testing.assert_array_equal(run.draws, path.draws[:, steps - 1])
    assert run.configuration["cycle"] == [LENGTH, 12]
    assert "cycle" not in path.configuration


@pytest.mark.parametrize("stopped", [1, 2, 3, 4])
def test_resumed_runs_equal_whole_ones(seed, stopped, tmp_path):
    whole = draw(seed, reducers={"moments": sc.reducers.Moments()})
    options = {"num_samples": stopped, "store": tmp_path / "run", "reducers": {"moments": sc.reducers.Moments()}}
    part = draw(seed, **options)
    assert part.num_draws == stopped
    x = laws.gaussian_problem(seed)[0]
    run = sc.resume(tmp_path / "run", laws.MODEL, x, num_samples=10, reducers=options["reducers"], progress=False)
    np.testing.assert_array_equal(run.draws, whole.draws)
    np.testing.assert_array_equal(run.reduced["moments"].mean, whole.reduced["moments"].mean)
    again = sc.load(tmp_path / "run")
    assert again.status == "complete" and again.configuration["cycle"] == [LENGTH, 12]


def test_streamed_rows(seed, tmp_path):
    np.save(tmp_path / "rows.npy", laws.gaussian_problem(seed)[0])
    source = sc.data.convert(tmp_path / "rows.npy", tmp_path / "rows")
    options = {"sampler": sc.SGLD(schedule(0.6)), "estimator": sc.Minibatch(laws.BATCH), "progress": False}
    run = sc.sample(laws.MODEL, source, jnp.array(0.0), num_samples=10, num_burnin=BURNIN, thin=THIN, **options)
    options["sampler"] = sc.SGLD(schedule(0.0))
    path = sc.sample(laws.MODEL, source, jnp.array(0.0), num_samples=120, **options)
    steps = Cadence(BURNIN, THIN, LENGTH, 12).steps(np.arange(1, 11))
    np.testing.assert_array_equal(run.draws, path.draws[:, steps - 1])


@pytest.mark.filterwarnings("ignore:The draws of")
def test_variances_are_those_of_the_end_of_a_cycle(seed):
    """The recursion of the variance along the schedule, exactly, at the steps with draws."""
    x, mean, precision = laws.gaussian_problem(seed)
    one = sc.schedules.cyclical(0.02, 40, floor=1e-3, explore=0.75)
    noise = laws.gradient_noise(x, "with_replacement")
    eps, variance = np.asarray([float(one(m)) for m in range(40)], np.float64), np.zeros(41)
    for _ in range(50):
        variance[0] = variance[40]
        for m, e in enumerate(eps):
            variance[m + 1] = (1 - e * precision) ** 2 * variance[m] + 2 * e + e**2 * noise
    options = {"num_samples": 400, "num_burnin": 400, "num_chains": 64, "seed": seed, "chain_method": "vmap"}
    estimator = sc.Minibatch(laws.BATCH, "with_replacement")
    start = jnp.array(mean, jnp.float32)
    run = sc.sample(laws.MODEL, x, start, sampler=sc.SGLD(one), estimator=estimator, progress=False, **options)
    _, seconds = laws.moments(run.draws, mean)
    assert abs(laws.z_score(seconds, variance[31:].mean())) < 5
    assert variance[31:].mean() < 0.7 * variance[1:].mean()


def test_what_does_not_fit():
    with pytest.raises(InvalidValueError, match="no draw would be made"):
        draw(0, thin=9)
    with pytest.raises(InvalidValueError, match="different phases"):
        sc.schedules.cycle_of(sc.SGLD({"a": schedule(0.6), "b": schedule(0.5)}))
    with pytest.raises(InvalidValueError, match="below 1"):
        schedule(1.0)
    assert sc.schedules.cycle_of(sc.SGLD({"a": schedule(0.6), "b": schedule(0.0)})) == (LENGTH, 12)
    assert sc.schedules.cycle_of(sc.Preconditioned(sc.SGLD(schedule(0.6)))) == (LENGTH, 12)
    assert sc.schedules.cycle_of(sc.Blocks({"a": sc.SGLD(1.0), "b": sc.SGLD(schedule(0.6))})) == (LENGTH, 12)
