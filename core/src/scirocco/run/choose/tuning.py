"""Automatic choice of step sizes and other settings: successive halving on the kernel Stein discrepancy."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco import _tree
from scirocco._programs import compile_ahead
from scirocco.data import Resident
from scirocco.errors import InvalidValueError
from scirocco.estimators import Estimator, Prepared
from scirocco.model import without_value
from scirocco.run.choose import limits, metric, pilot, reward
from scirocco.run.choose.race import Arena, Candidate, Race, Trial, make_candidates
from scirocco.run.loop import Start
from scirocco.samplers import Preconditioned, Proposer, Sampler, Scales, preconditioned
from scirocco.samplers.base import rebuilt
from scirocco.samplers.preconditioned import core_of, with_core
from scirocco.types import Key, Params

METHODS = ("halving", "grid", "curvature")
METRICS = ("auto", None, *preconditioned.METRICS)
NUM_STEPS = 4_000
"""Steps for each setting in a round."""
_EXTENSIONS = 2
"""Further searches around the best setting, while it is at an end of the range."""


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The outcome of `sc.analysis.tune`.

    Attributes
    ----------
    sampler, estimator
        With the chosen settings: pass them to `sc.sample`.
    trials
        Everything that was tried, best first.
    seconds
        Time of the search, including the posterior's shape, without the estimator's own set-up (the mode).
    condition
        Largest over smallest curvature of the posterior at its mode; None when it was not computed.
    num_steps
        Steps per setting in each round.
    method
        "halving", "grid" or "curvature".
    """

    sampler: Sampler
    estimator: Estimator
    trials: list[Trial]
    seconds: float
    condition: float | None
    num_steps: int
    method: str

    @property
    def best(self) -> Trial:
        """The chosen setting."""
        return self.trials[0]

    @property
    def curve(self) -> dict[str, np.ndarray]:
        """Step sizes in ascending order and the discrepancy of each after the first round."""
        first = sorted((t.settings["step_size"], t.ksd[0]) for t in self.trials if t.ksd)
        sizes, values = zip(*first, strict=True) if first else ((), ())
        return {"step_size": np.array(sizes), "ksd": np.array(values)}

    def record(self) -> dict[str, Any]:
        """The results as plain numbers, for `run.preparation`."""
        trials = [
            {"settings": t.settings, "ksd": [_number(v) for v in t.ksd], "first_guess": t.first_guess}
            for t in self.trials
        ]
        return {
            "chosen": self.best.settings,
            "method": self.method,
            "seconds": self.seconds,
            "condition": self.condition,
            "num_steps": self.num_steps,
            "trials": trials,
        }

    def __repr__(self) -> str:
        return self.table()

    def table(self, rows: int = 12) -> str:
        """The best settings, one per line, with their discrepancy after each round."""
        names = list(self.trials[0].settings)
        most = max(t.rounds for t in self.trials)
        head = [*names, *(f"KSD, round {r + 1}" for r in range(most)), ""]
        body = [
            [*(_show(t.settings[name]) for name in names), *_ksd(t, most), "first guess" * t.first_guess]
            for t in self.trials
        ]
        shown = body[:rows] + [row for row in body[rows:] if row[-1]]
        widths = [max(len(row[k]) for row in (head, *shown)) for k in range(len(head))]
        lines = [
            "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in (head, *shown)
        ]
        title = f"{_name(self.sampler)}: {_settings(self.best.settings)}, the best of {len(self.trials)} settings"
        left = len(body) - len(shown)
        more = [f"... and {left} more"] if left > 0 else []
        return "\n".join([f"{title} ({self.seconds:.1f} s)", *lines, *more])


def _name(sampler: Sampler) -> str:
    name = type(core_of(sampler)).__name__
    return name if core_of(sampler) is sampler else f"{name}, preconditioned ({sampler.needs.metric})"


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_show(value)}" for name, value in settings.items())


def _show(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _ksd(trial: Trial, most: int) -> list[str]:
    shown = ["diverged" if math.isnan(value) else f"{value:.3g}" for value in trial.ksd]
    return shown + [""] * (most - len(shown))


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


class TunedStart(NamedTuple):
    """The choice, and the start of a chain with it: near the mode."""

    tuning: Tuning
    start: Start


def tune_prepared(
    arenas: list[Arena],
    prepared: Prepared,
    key: Key,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    preconditioner: str | None = "auto",
    method: str = "halving",
    num_steps: int = NUM_STEPS,
    seconds: float | None = None,
) -> TunedStart:
    """The best of many settings of `arenas[0].parts.sampler`, in each arena.

    The sampler moves in the posterior's own coordinates where curvatures differ much (`preconditioner`), all settings
    run together, and the best one of every four continues, ranked by the Stein discrepancy of its draws.
    """
    begin = time.perf_counter()
    _refuse_other_targets(arenas[0].parts.sampler, over or {})
    deadline = None if seconds is None else begin + seconds
    model, table = arenas[0].model, arenas[0].table
    centre = pilot.near_mode(model, table, prepared, key)
    if not prepared.near_mode:
        arenas = [_moved(arena, centre, key) for arena in arenas]
    sampler, shape = _coordinates(arenas[0], centre, preconditioner, key)
    inner = core_of(sampler)
    rooms = [arena._replace(parts=arena.parts._replace(sampler=_empty(sampler))) for arena in arenas]

    spread = shape.factor
    if spread.ndim == 2 and spread.shape[0] != spread.shape[1]:
        spread = spread[:, 0]  # draws are compared in coordinates scaled one by one
    known = without_value(prepared.gradient) if prepared.near_mode else None  # there the centre is its position
    of = (centre, spread, _inverse(spread), inner.temperature, key, known)
    judge = None if method == "curvature" else reward.make_judge(model, table, *of)
    if judge is not None and len(arenas) == 1:
        _compile_ahead(arenas[0], rooms[0], sampler, judge, over or {}, num_steps, key)
    scales = [_scales(arena, sampler, centre, key) for arena in arenas]

    def finish(room: int, chosen: Candidate, trials: list[Trial]) -> TunedStart:
        found = with_core(sampler, chosen.sampler)
        spent = time.perf_counter() - begin
        estimator = rooms[room].parts.estimator
        steps = num_steps if trials[0].ksd else 0
        tuning = Tuning(found, estimator, trials, spent, shape.condition, steps, method)
        return TunedStart(tuning, rooms[room].start)

    def candidates(guess: float | None) -> list[list[Candidate]]:
        return [make_candidates(inner, found, centre, over or {}, num_steps, guess) for found in scales]

    if method == "curvature":
        first = [(k, c) for k, found in enumerate(candidates(None)) for c in found if c.first_guess]
        if not first:
            raise InvalidValueError('method="curvature" chooses a step size: leave `step_size` unset.')
        place, chosen = first[0]
        return finish(place, chosen, [Trial({**rooms[place].settings, **chosen.settings}, [], True)])
    assert judge is not None
    trials: list[Trial] = []
    guess = None
    for _ in range(1 + _EXTENSIONS):
        race = Race(model, rooms, candidates(guess), judge, num_steps, key)
        try:
            order = race.run(method, deadline)
        finally:
            race.close()
        winner = race.entries[order[0]]
        trials = [race.trials[number] for number in order] + trials
        guess = winner.candidate.settings["step_size"]
        if not winner.candidate.at_end or (deadline is not None and time.perf_counter() > deadline):
            break
    return finish(winner.arena, winner.candidate, trials)


def _compile_ahead(
    arena: Arena,
    room: Arena,
    sampler: Sampler,
    judge: reward.Judge,
    over: Mapping[str, Sequence[Any]],
    num_steps: int,
    key: Key,
) -> None:
    """Begin to compile the programs of a search on rows in memory: only numbers are not known yet."""
    table, centre = arena.table, judge.centre
    if not isinstance(table, Resident):
        return
    # these numbers are not possible, lanes do not share their memory, or L has another size, which is said later
    with contextlib.suppress(TypeError, ValueError):
        parts = arena.parts._replace(sampler=sampler)
        of = (arena.start.memory, centre, sampler.known.factor, key)
        compile_ahead(pilot.programs_of_scales(arena.model, parts, table, *of))
        ones = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), centre)
        scales = Scales(1.0, ones, ones, arena.parts.batching.epoch, sampler.known.factor)
        candidates = make_candidates(core_of(sampler), scales, centre, over, num_steps)
        compile_ahead(Race(arena.model, [room], [candidates], judge, num_steps, key).programs())


def _refuse_other_targets(sampler: Sampler, over: Mapping[str, Sequence[Any]]) -> None:
    """Raise an error if settings have different targets: only draws from one distribution can be compared."""
    if "temperature" in over:
        raise InvalidValueError(
            "`over` cannot vary `temperature`: every temperature has a different target, and draws from one cannot be "
            "compared with draws from another."
        )
    temperature = sampler.temperature
    if not isinstance(temperature, jax.core.Tracer) and float(temperature) == 0.0:
        raise InvalidValueError(
            "at temperature 0 there is no distribution to sample, so nothing to tune: set a step size."
        )


def _moved(arena: Arena, centre: Params, key: Key) -> Arena:
    """The arena with its estimator prepared near the mode, because its memory from far away is not useful."""
    memory = arena.parts.scheme.prepare(arena.model, arena.parts, arena.table, centre, key).memory
    return arena._replace(start=Start(centre, memory, None))


def _scales(arena: Arena, sampler: Sampler, centre: Params, key: Key) -> Scales:
    parts = arena.parts._replace(sampler=sampler)
    return pilot.scales_at(
        arena.model, parts, arena.table, arena.start.memory, centre, sampler.known.factor, key, thorough=True
    )


def _coordinates(arena: Arena, centre: Params, preconditioner: str | None, key: Key) -> tuple[Sampler, metric.Shape]:
    """The sampler, in other coordinates if requested or worthwhile, and the posterior's shape."""
    model, sampler, table = arena.model, arena.parts.sampler, arena.table
    size = _tree.size(centre)
    automatic = "laplace" if size <= limits.LIMITS.dense_parameters else "diagonal"
    if sampler.needs.metric != "none":
        shape = metric.shape_at(model, table, centre, sampler.needs.metric, key)
        if sampler.known.factor is not None:
            shape = shape._replace(factor=np.asarray(sampler.known.factor))
        return rebuilt(sampler, factor=shape.factor), shape
    wanted = automatic if preconditioner in (None, "auto") else preconditioner
    assert wanted is not None
    shape = metric.shape_at(model, table, centre, wanted, key)
    pays = preconditioner == "auto" and size > 1 and shape.condition > limits.LIMITS.unequal
    if (
        sampler.known.gradient_alone
        and not isinstance(sampler, Proposer)
        and preconditioner is not None
        and (pays or preconditioner != "auto")
    ):
        return Preconditioned(sampler, wanted, shape.factor), shape
    return sampler, shape


def _empty(sampler: Sampler) -> Any:
    """The sampler without its own numbers: each lane supplies them."""
    return with_core(sampler, None)


def _inverse(factor: np.ndarray) -> np.ndarray:
    if factor.ndim == 1:
        return 1.0 / factor
    return np.linalg.inv(factor.astype(np.float64)).astype(np.float32)
