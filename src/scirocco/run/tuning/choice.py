"""From a prepared run to a choice: coordinates, candidates, rounds."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco import _tree
from scirocco.errors import InvalidValueError
from scirocco.estimators import Prepared
from scirocco.model import Model
from scirocco.run import metric, pilot
from scirocco.run.loop import Start
from scirocco.run.tuning import reward
from scirocco.run.tuning.candidates import Candidate, grouped, make_candidates
from scirocco.run.tuning.race import Arena, Lanes
from scirocco.run.tuning.record import Trial, Tuning, with_rounds
from scirocco.samplers import Preconditioned, Sampler
from scirocco.types import Key, Params

METHODS = ("halving", "grid", "curvature")
METRICS = ("auto", None, "laplace", "fisher", "diagonal")
NUM_STEPS = 4_000
_SURVIVORS = 4
"""One in so many goes on to the next round."""
_FINALISTS = 4
_WORTH_IT = 5.0
"""Ratio of curvatures from which coordinates are changed."""
_MOST_STEPS = 20.0
"""Times as many steps for the smallest batches as for the largest, at most."""
_PAIR_WORK = 3e10
"""Pairs of draws × parameters that a round may cost."""
_TAG = 0xFFFFFFFA  # a run's key is folded with chain numbers elsewhere: far from this


class _Entry(NamedTuple):
    """A candidate and where it runs."""

    arena: int
    lanes: int
    place: int
    candidate: Candidate


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
) -> Tuning:
    """The best of many settings of `arenas[0].parts.sampler`, in each arena.

    The sampler moves in the posterior's own coordinates where curvatures differ much (`preconditioner`), all settings
    run side by side, and of every four the best one goes on, judged by the Stein discrepancy of its draws.
    """
    begin = time.perf_counter()
    model, table = arenas[0].model, arenas[0].table
    centre = pilot.near_mode(model, table, prepared, key)
    sampler, shape = _coordinates(arenas[0], centre, preconditioner, key)
    inner = sampler.inner if isinstance(sampler, Preconditioned) else sampler
    factor = sampler.factor if isinstance(sampler, Preconditioned) else None
    rooms, candidates = [], []
    for arena in arenas:
        parts = arena.parts._replace(sampler=sampler)
        scales = pilot.scales_at(model, parts, arena.table, arena.start.memory, centre, factor, key)
        begin_at = Start(centre, arena.start.memory, None)
        rooms.append(arena._replace(parts=parts._replace(sampler=_empty(sampler)), start=begin_at))
        candidates.append(make_candidates(inner, scales, centre, over or {}, num_steps))
    if method == "curvature":
        entries = [
            (room, c) for room, found in zip(rooms, candidates, strict=True) for c in found if c.first_guess
        ]
        if not entries:
            raise InvalidValueError('method="curvature" chooses a step size: leave `step_size` open.')
        room, chosen = entries[0]
        trial = Trial({**room.settings, **chosen.settings}, [], True)
        return _result(sampler, room, chosen, [trial], begin, shape, 0, method)
    judge = reward.make_judge(model, table, centre, shape.factor, _inverse(shape.factor), key)
    race = _Race(model, rooms, candidates, judge, num_steps, key)
    try:
        order = race.run(method, None if seconds is None else begin + seconds)
    finally:
        race.close()
    winner = race.entries[order[0]]
    trials = [race.trials[number] for number in order]
    return _result(sampler, rooms[winner.arena], winner.candidate, trials, begin, shape, num_steps, method)


def _coordinates(
    arena: Arena, centre: Params, preconditioner: str | None, key: Key
) -> tuple[Sampler, metric.Shape]:
    """The sampler, in other coordinates where that is wanted or pays; and the posterior's shape."""
    model, sampler, table = arena.model, arena.parts.sampler, arena.table
    size = _tree.size(centre)
    automatic = "laplace" if size <= metric.DENSE_LIMIT else "diagonal"
    if isinstance(sampler, Preconditioned):
        shape = metric.shape_at(model, table, centre, sampler.metric, key)
        if sampler.factor is not None:
            shape = shape._replace(factor=np.asarray(sampler.factor))
        return _tree.rebuilt(sampler, factor=shape.factor), shape
    wanted = automatic if preconditioner in (None, "auto") else preconditioner
    assert wanted is not None
    shape = metric.shape_at(model, table, centre, wanted, key)
    pays = preconditioner == "auto" and size > 1 and shape.condition > _WORTH_IT
    if sampler.gradient_alone and preconditioner is not None and (pays or preconditioner != "auto"):
        return Preconditioned(sampler, wanted, shape.factor), shape
    return sampler, shape


def _empty(sampler: Sampler) -> Any:
    """The sampler without numbers of its own: each lane brings them."""
    return _tree.rebuilt(sampler, inner=None) if isinstance(sampler, Preconditioned) else None


def _inverse(factor: np.ndarray) -> np.ndarray:
    if factor.ndim == 1:
        return 1.0 / factor
    return np.linalg.inv(factor.astype(np.float64)).astype(np.float32)


def _result(
    sampler: Sampler,
    room: Arena,
    chosen: Candidate,
    trials: list[Trial],
    begin: float,
    shape: metric.Shape,
    num_steps: int,
    method: str,
) -> Tuning:
    found = chosen.sampler
    if isinstance(sampler, Preconditioned):
        found = _tree.rebuilt(sampler, inner=found)
    spent = time.perf_counter() - begin
    return Tuning(found, room.parts.estimator, trials, spent, shape.condition, num_steps, method)


class _Race:
    """Rounds over all lanes of all arenas."""

    def __init__(
        self,
        model: Model,
        rooms: list[Arena],
        candidates: list[list[Candidate]],
        judge: reward.Judge,
        num_steps: int,
        key: Key,
    ):
        self.model, self.judge = model, judge
        self.key = jax.random.fold_in(key, _TAG)
        self.lanes: list[Lanes] = []
        self.entries: list[_Entry] = []
        self.numbers: list[list[int]] = []
        """For each group of lanes, the entries it runs."""
        self.steps: list[int] = []
        largest = max(room.parts.batching.size for room in rooms)
        for place, (room, found) in enumerate(zip(rooms, candidates, strict=True)):
            # as many rows for every setting: longer chains for smaller batches
            steps = round(num_steps * min(_MOST_STEPS, largest / room.parts.batching.size))
            for group in grouped(found):
                first = len(self.entries)
                self.entries += [_Entry(place, len(self.lanes), k, found[c]) for k, c in enumerate(group)]
                self.numbers.append(list(range(first, len(self.entries))))
                self.lanes.append(Lanes(room, [found[c].sampler for c in group], self.key))
                self.steps.append(steps)
        self.trials = [
            Trial({**rooms[e.arena].settings, **e.candidate.settings}, [], e.candidate.first_guess)
            for e in self.entries
        ]
        size = _tree.size(judge.centre)
        pooled = int(np.clip(math.sqrt(_PAIR_WORK / (16 * size)), 1_000, 8_000))
        self.kept = max(50, 2 * pooled // sum(lanes.count for lanes in self.lanes))

    def run(self, method: str, deadline: float | None) -> list[int]:
        """Entries, best first."""
        alive = list(range(len(self.entries)))
        places = sum(lanes.count for lanes in self.lanes)
        self._warm_up()
        while True:
            scores = self._round()
            for number in alive:
                self.trials[number] = with_rounds(self.trials[number], _root(scores.get(number, math.nan)))
            best = sorted((n for n in alive if math.isfinite(scores[n])), key=lambda n: scores[n])
            if not best:
                raise InvalidValueError(
                    "every setting that was tried left the finite numbers: standardise the data, start closer to the "
                    "mode, or give smaller step sizes to try."
                )
            late = deadline is not None and time.perf_counter() > deadline
            if method == "grid" or late or len(alive) <= _FINALISTS or len(best) == 1:
                return best + self._others(best)
            places //= _SURVIVORS
            alive = best[: max(_FINALISTS, places)]
            self._drop(alive)

    def _others(self, best: list[int]) -> list[int]:
        rest = [n for n in range(len(self.entries)) if n not in best]

        def place(number: int) -> tuple[int, float]:
            values = self.trials[number].ksd
            return -len(values), values[-1] if math.isfinite(values[-1]) else math.inf

        return sorted(rest, key=place)

    def _warm_up(self) -> None:
        """Lanes start at the mode; what they draw on their way from it is not judged."""
        for lanes, steps in zip(self.lanes, self.steps, strict=True):
            lanes.advance(max(1, steps // 2), max(1, steps // 2))

    def _round(self) -> dict[int, float]:
        scores: dict[int, float] = {}
        for number, (lanes, steps) in enumerate(zip(self.lanes, self.steps, strict=True)):
            if not lanes.alive:
                continue
            thin = max(1, steps // self.kept)
            draws, good = lanes.advance(steps, thin)
            replicates = lanes.replicates
            used = lanes.count // replicates * replicates
            draws = jax.tree.map(lambda leaf, used=used: leaf[:used], draws)
            found = np.asarray(
                reward.discrepancies(
                    self.model, reward.block_of(self.judge), replicates, self.judge, draws, self.key
                )
            )
            for k, place in enumerate(lanes.alive):
                fine = good[k * replicates : (k + 1) * replicates].all() and np.isfinite(found[k])
                scores[self.numbers[number][place]] = float(found[k]) if fine else math.nan
        return scores

    def _drop(self, alive: list[int]) -> None:
        for number, lanes in enumerate(self.lanes):
            going_on = [self.entries[n].place for n in alive if self.entries[n].lanes == number]
            if going_on:
                lanes.keep(going_on)
            else:
                lanes.alive = []

    def close(self) -> None:
        for lanes in self.lanes:
            lanes.close()


def _root(squared: float) -> float:
    return math.sqrt(max(squared, 0.0)) if math.isfinite(squared) else math.nan
