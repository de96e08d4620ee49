"""What a model makes of its data: chains of its own, or a call of `sc.sample`; and the options of every `fit`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np

from scirocco import _programs
from scirocco.data.arrays import ArraySource
from scirocco.estimators import ControlVariates, Full
from scirocco.models._core.chain import Chain, Spec
from scirocco.models._core.driver import PlannedFit, run_fit
from scirocco.models._core.length import BY_THE_CLOCK, AskedDraws, FitLength, check_length
from scirocco.run import Run, load
from scirocco.run.progress import Callback, Stopwatch, affordable, as_callbacks
from scirocco.samplers import BAOAB, Preconditioned
from scirocco.store import holds_run

_NUM_SAMPLES, _SHARE = 1_000, 0.2
"""Draws of a chain, and burn-in, of runs with a length for which `sc.sample` chooses the rest."""


class FitOptions(TypedDict, total=False):
    """The arguments that every `fit` has after its data: its length (at most one of three), its store, its progress."""

    num_steps: int | None
    num_epochs: float | None
    max_seconds: float | None
    store: str | os.PathLike[str] | None
    resume: bool
    overwrite: bool
    callbacks: Sequence[Callback]
    progress: bool


@dataclass(frozen=True)
class OwnChains:
    """Chains that the model makes and moves itself, in threads.

    Parameters
    ----------
    words
        What was chosen for the user, in one line.
    settings
        What defines the chains, as plain JSON, with the name of the method under "sampler". A stored fit is resumed
        only if all of it is the same.
    fingerprint
        Returns the fingerprint of the data: called once, when the record is written.
    num_rows
        Number of rows of the data.
    spec
        Shapes and types of one draw.
    make
        Makes the chain with a number, in its initial state.
    told
        What results need in addition to the draws, as JSON.
    arrays
        The same, as arrays that are too large for JSON; a store has them when the run has ended.
    epoch
        Rows of a pass and of a step: a step is a pass if they are the same.
    steps_of
        The steps of a number of passes, of chains whose steps do not all have as many rows.
    default_epochs
        Passes of a run whose length is not given.
    first_steps
        Least number of steps before the first draw, for any `num_burnin`.
    capacity
        Draws in a chunk, see `HostChains`.
    after_clock
        With `max_seconds`, called with the chains when the time of the burn-in is over: ends phases that belong to
        the burn-in, and returns the least number of steps before the first draw.
    as_stored
        The same program with the choices that a stored fit had made, given its configuration.
    """

    words: str
    settings: dict[str, Any]
    fingerprint: Callable[[], Any]
    num_rows: int
    spec: Spec
    make: Callable[[int], Chain]
    told: dict[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    epoch: tuple[int, int] = (1, 1)
    steps_of: Callable[[float], int] | None = None
    default_epochs: float = 20
    first_steps: int = 0
    capacity: int = 8
    after_clock: Callable[[Sequence[Any]], int] | None = None
    as_stored: Callable[[dict[str, Any]], OwnChains] | None = None

    def run(self, name: str, asked: AskedDraws, note: dict[str, str], options: FitOptions) -> Run:
        """Run the chains."""
        _programs.begin()
        return run_fit(PlannedFit(name, self, asked, self.length(asked, options), note), **_of_session(options))

    def gathered(
        self, name: str, asked: AskedDraws, kept: Sequence[Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]]
    ) -> Run:
        """The run of chains that the model moved itself, from the draws and statistics `kept[chain][draw]`."""
        fit = PlannedFit(name, self, asked, FitLength(None, None), {})
        record = fit.record(fit.plan_of(len(kept[0]), 0, 1))
        parts = [
            {each: np.stack([[drawn[part][each] for drawn in chain] for chain in kept]) for each in kept[0][0][part]}
            for part in (0, 1)
        ]
        return Run(parts[0], None, parts[1], record.configuration, record.report, {}, "complete", [])

    def length(self, asked: AskedDraws, options: FitOptions) -> FitLength:
        """The length of the run."""
        return check_length(
            *_lengths(options),
            num_rows=self.epoch[0],
            batch_size=self.epoch[1],
            steps_of=self.steps_of,
            default_epochs=self.default_epochs,
            planned_steps=asked.planned_steps(self.first_steps),
        )


@dataclass(frozen=True)
class Sampled:
    """A call of `sc.sample`.

    Parameters
    ----------
    sampling
        `sc.sample` with all arguments except its lengths, chains, seed, notes and the options of a fit.
    num_rows, batch_size
        Rows of a pass, and of a step.
    told, arrays
        As for `OwnChains`.
    chosen
        Whether `sc.sample` chooses the method, and the length where none is given. For a length in steps, epochs or
        seconds it is then BAOAB with control variates on batches of `batch_size` rows, unless `sampling` has a sampler
        or an estimator; of what was asked, None is 1,000 draws, and a fifth of the run as burn-in.
    default_epochs
        Passes of a run whose length is not given, where the draws wanted do not determine its length.
    least_steps
        The fewest steps of such a run.
    finish
        Completes the run, before anything follows from it.
    """

    sampling: functools.partial[Run]
    num_rows: int
    batch_size: int
    told: dict[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    chosen: bool = False
    default_epochs: float = 20
    least_steps: int = 1
    finish: Callable[[Run], Run] = lambda run: run

    def run(self, name: str, asked: AskedDraws, note: dict[str, str], options: FitOptions) -> Run:
        """Run for a number of steps or of seconds; or, without a length, as long as `sc.sample` chooses.

        A time limit is for sampling: set-up and compilation are not counted. A trial of a tenth of it measures the
        speed, which determines the planned number of steps, at least those of the first draw; the run ends at the
        limit in any case. A stored run that is resumed keeps its plan.
        """
        how = {**_of_session(options), "num_chains": asked.num_chains, "seed": asked.seed, "notes": note}
        if self.chosen and all(value is None for value in _lengths(options)):
            wanted = {name: asked._asdict()[name] for name in ("num_samples", "num_burnin", "thin")}
            return self.finish(self.sampling(**wanted, **how))
        sampling: Callable[..., Run] = self.sampling
        if self.chosen:
            sampling = functools.partial(sampling, **self._method())
            asked = asked._replace(
                num_samples=_NUM_SAMPLES if asked.num_samples is None else asked.num_samples,
                num_burnin=_SHARE if asked.num_burnin is None else asked.num_burnin,
            )
        length = check_length(
            *_lengths(options),
            num_rows=self.num_rows,
            batch_size=min(self.batch_size, self.num_rows),
            default_epochs=self.default_epochs,
            planned_steps=asked.planned_steps(),
        )
        if length.is_default and length.num_steps is not None:
            length = length._replace(num_steps=max(length.num_steps, self.least_steps))
        return self.finish(self._drawn(sampling, length, asked, how))

    def _method(self) -> dict[str, Any]:
        size = min(self.batch_size, self.num_rows)
        estimator = Full() if size == self.num_rows else ControlVariates(size)
        own = {name: value for name, value in self.sampling.keywords.items() if value is not None}
        return {"sampler": Preconditioned(BAOAB()), "estimator": estimator, **own}

    def _drawn(self, sampling: Callable[..., Run], length: FitLength, asked: AskedDraws, how: dict[str, Any]) -> Run:
        if length.num_steps is not None:
            return sampling(**asked.spread(length.num_steps)._asdict(), **how)
        store, seconds = how["store"], length.max_seconds or 0.0
        if store is not None and how["resume"] and holds_run(store):
            was = load(store).configuration
            plan, left = {key: was[key] for key in ("num_samples", "num_burnin", "thin")}, seconds
        else:
            fixed = {name: how[name] for name in ("num_chains", "seed")}
            trial = functools.partial(sampling, num_samples=1, num_burnin=BY_THE_CLOCK, thin=1, **fixed)
            num_steps, left = affordable(trial, seconds)
            plan = asked.spread(max(num_steps, asked.first_draw()))._asdict()
        watch = Stopwatch(left, plan["num_burnin"] + plan["thin"])
        return sampling(**plan, **(how | {"callbacks": (*how["callbacks"], watch)}))


Program = OwnChains | Sampled


def fingerprint(arrays: Mapping[str, np.ndarray]) -> str:
    """The fingerprint of named arrays, of those that are not empty."""
    return "-".join(ArraySource({name: part}).fingerprint() for name, part in arrays.items() if len(part))


def _lengths(options: FitOptions) -> tuple[int | None, float | None, float | None]:
    return options.get("num_steps"), options.get("num_epochs"), options.get("max_seconds")


def _of_session(options: FitOptions) -> dict[str, Any]:
    """The options of `sc.sample` among those of a fit, all of them."""
    return {
        "store": options.get("store"),
        "resume": options.get("resume", False),
        "overwrite": options.get("overwrite", False),
        "callbacks": as_callbacks(options.get("callbacks", ())),
        "progress": options.get("progress", True),
    }
