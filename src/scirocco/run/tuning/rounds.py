"""Rounds: everybody runs, the better ones go on with more chains."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import jax
import numpy as np

from scirocco import _tree
from scirocco._random import Purpose, key_for
from scirocco.cluster.tasks import check_wanted
from scirocco.errors import InvalidValueError
from scirocco.model import Model
from scirocco.run.tuning import reward
from scirocco.run.tuning.candidates import Candidate, grouped
from scirocco.run.tuning.race import Arena, Lanes
from scirocco.run.tuning.record import Trial, with_rounds
from scirocco.types import Key

_SURVIVORS = 4
"""One in so many goes on to the next round."""
_FINALISTS = 4
_MOST_STEPS = 20.0
"""Times as many steps for the smallest batches as for the largest, at most."""
_PAIR_WORK = 3e10
"""Pairs of draws × parameters that a round may cost."""


class Entry(NamedTuple):
    """A candidate and where it runs."""

    arena: int
    lanes: int
    place: int
    candidate: Candidate


class Race:
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
        self.key = key_for(key, Purpose.TUNING)
        self.lanes: list[Lanes] = []
        self.entries: list[Entry] = []
        self.numbers: list[list[int]] = []
        """For each group of lanes, the entries it runs."""
        self.steps: list[int] = []
        largest = max(room.parts.batching.size for room in rooms)
        for place, (room, found) in enumerate(zip(rooms, candidates, strict=True)):
            # as many rows for every setting: longer chains for smaller batches
            steps = round(num_steps * min(_MOST_STEPS, largest / room.parts.batching.size))
            for group in grouped(found):
                first = len(self.entries)
                self.entries += [Entry(place, len(self.lanes), k, found[c]) for k, c in enumerate(group)]
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
            check_wanted()
            lanes.advance(max(1, steps // 2), max(1, steps // 2))

    def _round(self) -> dict[int, float]:
        scores: dict[int, float] = {}
        for number, (lanes, steps) in enumerate(zip(self.lanes, self.steps, strict=True)):
            if not lanes.alive:
                continue
            check_wanted()
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
        """Release the lanes."""
        for lanes in self.lanes:
            lanes.close()


def _root(squared: float) -> float:
    return math.sqrt(max(squared, 0.0)) if math.isfinite(squared) else math.nan
