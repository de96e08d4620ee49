"""The decision: which method a run gets that names none, from what was asked and what was measured. Pure.

| method | sampler | estimator |
|---|---|---|
| own | the user's | the user's, or control variates |
| counts | SCIR | batches |
| trajectories | NUTS | all rows |
| scaled | BAOAB in coordinates scaled at the mode | control variates, or all rows if that is less work |
| networks | SGHMC | batches |
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scirocco.run.choose.limits import LIMITS, Limits
from scirocco.run.choose.measure import Measured
from scirocco.run.progress import in_units


@dataclass(frozen=True)
class Asked:
    """What the user has named, and how long the run is to be."""

    sampler: bool = False
    """Whether a sampler was named."""
    estimator: bool = False
    """Whether an estimator was named."""
    exact: bool = True
    """Whether that uses all rows; True if none was named."""
    num_chains: int = 4
    num_samples: int = 1_000
    thin: int | None = None
    """None if it is to be chosen."""

    @property
    def free(self) -> bool:
        """Whether neither was named, so that the choice may be changed after a set-up."""
        return not (self.sampler or self.estimator)


@dataclass(frozen=True)
class Choice:
    """A method, the limit that decided, and the seconds that the run is predicted to take."""

    method: str
    because: str
    seconds: float | None = None


@dataclass(frozen=True)
class Again:
    """A choice whose set-up is the next to be made; `at_mode`: from where the last one has ended."""

    choice: Choice
    at_mode: bool = False


def decide(asked: Asked, measured: Measured, limits: Limits = LIMITS) -> Choice | Again:
    """The method for the run, or one to set up and to measure again. No method is set up twice."""
    if not measured.method:
        return Again(_first(asked, measured, limits))
    stay = Choice(measured.method, "no limit was exceeded", predicted(asked, measured, measured.method, limits))
    if not asked.free or measured.on_mesh:
        return stay
    choice = _instead(asked, measured, limits)
    if choice is None or choice.method in measured.methods:
        return stay
    return Again(choice, at_mode=choice.method == "networks")


def _first(asked: Asked, measured: Measured, limits: Limits) -> Choice:
    """Before anything was computed."""
    if asked.sampler:
        return Choice("own", "a sampler was named")
    if measured.drive == "counts":
        return Choice("counts", "the model has counts, not a density")
    refused = _refuses_trajectories(asked, measured, limits)
    if not refused and measured.numbers > limits.few_numbers:
        refused = f"{measured.numbers:,.0f} numbers in the data, more than few_numbers ({limits.few_numbers:,})"
    if refused:
        return Choice("scaled", refused)
    return Choice(
        "trajectories", f"{measured.numbers:,.0f} numbers in the data, at most few_numbers ({limits.few_numbers:,})"
    )


def _refuses_trajectories(asked: Asked, measured: Measured, limits: Limits) -> str:
    """Why there can be no trajectories over all rows; "" if there can."""
    reasons = {
        "the model has no gradient": measured.drive != "gradient",
        "an estimator with batches was named": not asked.exact,
        "the log likelihood is random": measured.is_random,
        "the run is on a mesh": measured.on_mesh,
        "the rows are not in memory": not measured.in_memory,
        f"{measured.dimension:,} parameters, more than trajectory_parameters ({limits.trajectory_parameters:,})": (
            measured.dimension > limits.trajectory_parameters
        ),
        "blackjax is not installed": not measured.can_travel,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _instead(asked: Asked, measured: Measured, limits: Limits) -> Choice | None:
    """What a set-up has shown to be better than its method, if anything."""
    roundness = 0.0 if measured.roundness is None else measured.roundness
    seconds, instead = (predicted(asked, measured, method, limits) for method in ("trajectories", "scaled"))
    slow = (
        seconds is not None
        and instead is not None
        and (measured.pass_seconds or 0.0) >= limits.least_pass
        and seconds > max(limits.patience, limits.gain * instead)
    )
    far, name = (limits.no_shape, "no_shape") if slow else (limits.far_from_gaussian, "far_from_gaussian")
    if measured.method == "scaled" and roundness > far:
        if not _refuses_trajectories(asked, measured, limits) and _has_time(asked, measured, limits):
            return Choice("trajectories", f"roundness {roundness:.2g}, above {name} ({far})")
        if roundness > limits.no_shape and measured.dimension > limits.trajectory_parameters:
            return Choice("networks", f"roundness {roundness:.2g}, above no_shape ({limits.no_shape})")
    if measured.method != "trajectories" or roundness > limits.far_from_gaussian:
        return None
    if measured.least_rounding > limits.coarse:
        return Choice(
            "scaled", f"the log density is rounded by {measured.least_rounding:.2g}, more than coarse ({limits.coarse})"
        )
    if not slow:
        return None
    told = f"trajectories would take about {in_units(seconds or 0.0)}, more than patience ({limits.patience:g} s)"
    return Choice("scaled", f"{told}, and the posterior is round")


def _has_time(asked: Asked, measured: Measured, limits: Limits) -> bool:
    """Whether trajectories end in time: by the numbers in the data, or by what a pass takes."""
    seconds = predicted(asked, measured, "trajectories", limits)
    quick = seconds is not None and seconds <= limits.long_wait
    return measured.numbers <= limits.many_numbers or quick


def predicted(asked: Asked, measured: Measured, method: str, limits: Limits = LIMITS) -> float | None:
    """Seconds from the end of the search for the mode to the last draw; None if no pass was timed."""
    if measured.pass_seconds is None or measured.some_seconds is None:
        return None
    if method == "trajectories":
        steps = limits.adaptation_steps * max(4, asked.num_chains)
        steps += asked.num_chains * asked.num_samples * (asked.thin or 1)
        at_once = min(measured.at_once, asked.num_chains)
        return steps * leapfrogs(measured.dimension) * measured.pass_seconds / at_once
    if method != "scaled":
        return None
    batch, thin = min(2 * limits.batch, measured.num_rows), asked.thin or limits.expected_thin
    seconds = batches_seconds(asked, measured, thin * asked.num_samples + 25 * limits.expected_thin, batch)
    return (seconds or 0.0) + (limits.expected_passes + 3 * measured.dimension) * measured.pass_seconds


def batches_seconds(asked: Asked, measured: Measured, num_steps: int, rows: int) -> float | None:
    """Seconds of so many steps of all chains with gradients of so many rows; None if no pass was timed."""
    if measured.pass_seconds is None or measured.some_seconds is None:
        return None
    at_once = min(measured.at_once, asked.num_chains)
    return asked.num_chains * num_steps * _batch_seconds(measured, rows) / at_once


def _batch_seconds(measured: Measured, rows: int) -> float:
    """Seconds of a gradient of so many rows, by a straight line through those that were timed."""
    some, whole = measured.some_seconds or 0.0, measured.pass_seconds or 0.0
    more = measured.num_rows - measured.some_rows
    if more <= 0:
        return some * rows / measured.num_rows
    slope = max(whole - some, 0.0) / more
    return max(some - slope * (measured.some_rows - rows), some * rows / measured.some_rows)


def leapfrogs(dimension: int) -> int:
    """Gradients of a trajectory in round coordinates: it is about π long, with steps of 0.8 d^(-1/4)."""
    return int(2 ** math.ceil(math.log2(4 * dimension**0.25)) - 1)
