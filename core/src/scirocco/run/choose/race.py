"""Many settings of one sampler, run together in rounds: the better ones continue with more chains.

The settings are a grid around what the curvature suggests, and the values that the user wants varied. All lanes use the
same batches, so that a batch is read once for all. Lanes of the same replicate use the same noise, so that settings are
compared on equal terms. A program has a fixed number of lanes: when settings drop out, the others get their lanes, as
further chains.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco._programs import setup_loop_program, setup_program
from scirocco._random import Purpose, key_for
from scirocco.cluster.tasks import check_wanted
from scirocco.data import Resident, Table
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators.base import next_pass
from scirocco.estimators.newton import beside
from scirocco.model import Model
from scirocco.run import loop
from scirocco.run.choose import reward
from scirocco.run.loop import KernelState, Parts, Start
from scirocco.samplers import Sampler, Scales, is_open
from scirocco.samplers.base import damping_of
from scirocco.samplers.preconditioned import with_core
from scirocco.types import Array, Key, Params, PyTree

WIDTH = 32
"""Number of settings tried together."""
_SMALLEST, _LARGEST = 1 / 25, 12.0
"""Range of step sizes, in units of the first guess."""
_MULTIPLES = (1.0, 0.4, 2.5)
"""Damping to try, in units of the first guess."""


class Candidate(NamedTuple):
    """A sampler with all settings fixed, and the settings that distinguish it from the others."""

    sampler: Sampler
    settings: dict[str, Any]
    first_guess: bool
    """Whether its step size is what curvature and noise suggest."""
    at_end: bool
    """Whether its step size is at an end of the automatic range."""


def make_candidates(
    inner: Sampler,
    scales: Scales,
    params: Params,
    over: Mapping[str, Sequence[Any]],
    num_steps: int,
    around: float | None = None,
) -> list[Candidate]:
    """Every combination of `over`, and of step size and damping if they are open.

    Step sizes lie around `around`, or around what curvature and noise suggest.
    """
    axes: dict[str, Sequence[Any]] = {name: list(values) for name, values in over.items()}
    damping = inner.known.damping
    multiples: Sequence[float] = (1.0,)
    if damping and damping not in axes and damping_of(inner) is None:
        multiples = _MULTIPLES
    guess: float | None = None
    ends: tuple[float, ...] = ()
    if "step_size" not in axes:
        if is_open(inner.step_size):
            guess = around or float(_quietly_resolved(inner, scales, params).step_size)
            others = len(multiples) * int(np.prod([len(values) for values in axes.values()]))
            curvature = scales.largest_curvature
            most = inner.known.largest_step(curvature) if curvature > 0 else np.inf
            axes["step_size"] = sizes = _around(guess, max(5, WIDTH // others), most)
            ends = (sizes[0], sizes[-1]) if sizes[-1] < most else (sizes[0],)
        else:
            axes["step_size"] = [inner.step_size]
    found = []
    for values in itertools.product(*axes.values()):
        fields = dict(zip(axes, values, strict=True))
        for multiple in multiples:
            made = _candidate(inner, fields, damping, multiple, scales, params, num_steps)
            if made is not None:
                first = around is None and fields["step_size"] == guess and multiple == 1.0
                found.append(Candidate(*made, first, fields["step_size"] in ends))
    if not found:
        raise InvalidValueError(
            "none of the settings to try is possible for this sampler and its gradient noise: use larger "
            "batches, smaller step sizes, or sc.ControlVariates."
        )
    return found


def _around(guess: float, count: int, most: float) -> list[float]:
    """Powers of one ratio below and of another above the guess, which is included; none above `most`."""
    smallest, largest = guess * _SMALLEST, max(guess, min(guess * _LARGEST, most))
    below = max(1, round((count - 1) * np.log(guess / smallest) / np.log(largest / smallest)))
    above = count - 1 - below
    lower = np.geomspace(smallest, guess, below + 1)[:-1]
    upper = np.geomspace(guess, largest, above + 1)[1:]
    return [*map(float, lower), guess, *map(float, upper)]


def _candidate(
    inner: Sampler,
    fields: dict[str, Any],
    damping: str,
    multiple: float,
    scales: Scales,
    params: Params,
    num_steps: int,
) -> tuple[Sampler, dict[str, Any]] | None:
    """The sampler with these fields; None if it rejects them (a step too large for the noise, εC > 1)."""
    names = [field.name for field in dataclasses.fields(inner)]  # type: ignore[arg-type]
    if unknown := sorted(set(fields) - set(names)):
        raise InvalidValueError(
            f"`over` names {unknown}; {type(inner).__name__} has {names}, and the estimator has `batch_size`."
        )
    given = dataclasses.replace(inner, **fields)  # type: ignore[type-var]
    try:
        sampler = _quietly_resolved(given, scales, params)
        if multiple != 1.0:
            scaled = jax.tree.map(lambda c: multiple * c, damping_of(sampler))
            sampler = dataclasses.replace(sampler, **{damping: scaled})  # type: ignore[type-var]
        sampler.check_params(params, num_steps)
    except InvalidValueError:
        return None
    settings = {name: _plain(value) for name, value in fields.items()}
    if damping and damping not in settings:
        settings[damping] = float(np.mean([np.mean(c) for c in jax.tree.leaves(damping_of(sampler))]))
    return sampler, dict(sorted(settings.items(), key=lambda item: item[0] != "step_size"))


def _quietly_resolved(sampler: Sampler, scales: Scales, params: Params) -> Sampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sampler.resolve(scales, params)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def grouped(candidates: list[Candidate]) -> list[list[int]]:
    """Group the candidates that share a compiled program: those that differ only in numbers."""
    groups: dict[Any, list[int]] = {}
    for number, candidate in enumerate(candidates):
        groups.setdefault(jax.tree.structure(candidate.sampler), []).append(number)
    return list(groups.values())


def stacked(samplers: list[Sampler]) -> Sampler:
    """Samplers of one structure as one, leaves with a leading axis."""

    def one(*leaves: Any) -> Any:
        if all(isinstance(leaf, (np.ndarray, np.generic)) for leaf in leaves):  # without a program
            return np.stack(leaves)
        return jnp.stack([jnp.asarray(leaf) for leaf in leaves])

    return jax.tree.map(one, *samplers)


def check_over(over: Any) -> dict[str, list[Any]]:
    """`over` as lists, none of them empty."""
    if not isinstance(over, Mapping):
        raise InvalidTypeError(
            f'`over` must be a dict of the settings to vary, e.g. over={{"batch_size": [100, 500]}}, got {over!r}.'
        )
    out = {}
    for name, values in over.items():
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise InvalidTypeError(f"`over[{name!r}]` must be a list of values to try, got {values!r}.")
        out[name] = [_tree_number(value) for value in values]
        if name == "step_size" and not all(isinstance(value, (int, float)) for value in out[name]):
            raise InvalidTypeError(f"`over['step_size']` must contain numbers, got {out[name]!r}.")
        if not out[name]:
            raise InvalidValueError(f"`over[{name!r}]` is empty: list the values to try.")
    return out


def _tree_number(value: Any) -> Any:
    return value.item() if isinstance(value, (np.generic, jax.Array)) and _tree.size(value) == 1 else value


_SURVIVORS = 4
"""One setting in this many continues to the next round."""
_FINALISTS = 4
"""Settings of which the last round decides."""
_MOST_STEPS = 20.0
"""The smallest batches get at most this many times the steps of the largest."""
_PAIR_WORK = 3e10
"""Maximum cost of a round, in pairs of draws × parameters."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """One setting and its results."""

    settings: dict[str, Any]
    """Values of the varied settings: `step_size`, `friction`, `batch_size`, ..."""
    ksd: list[float]
    """Stein discrepancy after each of its rounds (about 1/√n for n exact draws); NaN: it diverged."""
    first_guess: bool = False
    """Whether this is the choice from curvature alone."""

    @property
    def rounds(self) -> int:
        """Number of rounds it took part in."""
        return len(self.ksd)


def with_rounds(trial: Trial, value: float) -> Trial:
    """The trial after one more round."""
    return dataclasses.replace(trial, ksd=[*trial.ksd, value])


class Arena(NamedTuple):
    """What lanes share: model, method, data and start."""

    model: Model
    parts: Parts
    table: Table
    start: Start
    settings: dict[str, Any]
    """The settings of this arena that differ from other arenas: the batch size, if several are tried."""


class Lanes:
    """Chains of settings that differ only in numbers."""

    def __init__(self, arena: Arena, samplers: list[Sampler], key: Key, num_steps: int, kept: int):
        self.arena, self._key, self.num_steps = arena, key, num_steps
        self.thin = max(1, num_steps // kept)
        # one program for all rounds and the warm-up
        self._room = min(num_steps // self.thin, arena.table.steps_in_segment // self.thin + 2)
        self.alive = list(range(len(samplers)))
        """Settings that are still in the race."""
        self.count = lanes_for(len(samplers))
        spare = self.count - len(samplers)
        self._inners = stacked(samplers + samplers[:1] * spare)
        if isinstance(arena.table, Resident):
            self._inners = beside(arena.table.data, self._inners)
        self.owners = np.array([*self.alive, *[-1] * spare])
        """The setting of each lane; -1: none."""
        self.replicates = 1
        """Lanes per setting."""
        self._feed = arena.table.feed(key)
        estimator = arena.parts.estimator
        if not arena.table.whole and next_pass(estimator, 1, arena.table.num_rows) is not None:
            raise InvalidValueError(
                f"tuning on streamed or distributed data reads batches, but {type(estimator).__name__} makes passes "
                "over all rows: tune with sc.ControlVariates or sc.Minibatch."
            )
        self._shared, self.states = True, cast(KernelState, None)

    def _parts(self, number: int) -> tuple[Parts, int]:
        segment = self._feed.at(number)
        return self.arena.parts._replace(data=segment.data, batching=segment.batching), segment.stop

    def _begin(self, parts: Parts) -> tuple[Any, ...]:
        """The arguments of `_start`, without the first."""
        arena = self.arena
        return arena.model, parts, self._inners, arena.start, self._key, np.zeros(self.count, np.uint32)

    def begin(self) -> None:
        """Make the first states; lanes share the estimators' memory if they do not write to it."""
        parts = self._parts(0)[0]
        begin = self._begin(parts)
        try:
            self.states = _start(True, *begin)
            _advance.eval_shape(*self._step(parts, self.states))
        except ValueError:  # each lane has its own memory
            self._shared, self.states = False, _start(False, *begin)

    def _step(self, parts: Parts, states: KernelState, span: tuple[int, int, int] = (1, 1, 0)) -> tuple[Any, ...]:
        """The arguments of `_advance`; `span`: steps, steps per draw, steps already made towards the first."""
        return self.arena.model, self._shared, self._room, parts, self._inners, states, *span

    def _pick(self, lanes: list[int], states: KernelState, replicates: np.ndarray) -> tuple[Any, ...]:
        """The arguments of `_picked`."""
        memory = None if self._shared else states.memory
        kept = (self._inners, states.sampler, states.gradient, memory)
        return np.array(lanes), kept, self._key, replicates.astype(np.uint32)

    def programs(self, judge: reward.Judge) -> list[tuple[Any, tuple[Any, ...]]]:
        """The jitted functions of a race of lanes that share their memory, with their arguments or shapes of them."""
        parts = self._parts(0)[0]
        begin = (True, *self._begin(parts))
        states, none = _like(_start.eval_shape(*begin), parts.data), [0] * self.count
        one = jax.eval_shape(self.arena.model.constrain, judge.centre)
        draws = jax.tree.map(lambda s: s.update(shape=(self.count, self._room, *s.shape)), one)
        return [
            reward.program(self.arena.model, judge, 1, _like(draws, parts.data), self._key),
            (_advance, self._step(parts, states)),
            (_start, begin),
            (_picked, self._pick(none, states, np.array(none))),
        ]

    def warm_up(self) -> None:
        """Half a round; lanes start at the mode, and their first draws are not evaluated."""
        steps = max(1, self.num_steps // 2)
        for _ in self._chunks(steps, steps):
            check_wanted()

    def advance(self) -> tuple[Params, np.ndarray]:
        """A round: draws (lane, draw, ...) in the user's units, and whether each lane is still finite."""
        draws, good = [], np.ones(self.count, bool)
        for chunk, complete in self._chunks(self.num_steps // self.thin * self.thin, self.thin):
            draws.append(jax.tree.map(lambda leaf, most=complete: leaf[:, :most], chunk.draws))
            good &= np.asarray(chunk.bad_step) < 0
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *draws), good

    def _chunks(self, num_steps: int, thin: int) -> Iterator[tuple[loop.Chunk, int]]:
        """Make these steps; the results, and how many of their draws are complete."""
        done = 0
        while done < num_steps:
            number, phase = int(self.states.number), done % thin
            parts, stop = self._parts(number + 1)  # step m moves, then needs estimate m + 1
            steps = min(num_steps - done, stop - number - 1)
            self.states, chunk = _advance(*self._step(parts, self.states, (steps, thin, phase)))
            yield chunk, (phase + steps) // thin
            done += steps

    def keep(self, settings: list[int]) -> None:
        """Continue with these settings only; they divide the lanes among them."""
        replicates = self.replicates = self.count // len(settings)
        owners = np.repeat(settings, replicates)
        lanes = [int(np.flatnonzero(self.owners == owner)[0]) for owner in owners]
        spare = self.count - len(lanes)
        lanes += lanes[:1] * spare
        number = np.concatenate([np.tile(np.arange(replicates), len(settings)), np.arange(spare)])
        states = self.states
        (self._inners, sampler, gradient, memory), keys = _picked(*self._pick(lanes, states, number))
        self.states = states._replace(
            sampler=sampler, gradient=gradient, memory=states.memory if self._shared else memory, noise_key=keys
        )
        self.owners = np.concatenate([owners, np.full(spare, -1)])
        self.alive = settings

    def close(self) -> None:
        """Release the feed."""
        self._feed.close()


@setup_program()
def _picked(lanes: Array, tree: PyTree, key: Key, replicates: Array) -> tuple[PyTree, Key]:
    """What these lanes have, and the keys of their noise as replicates of these numbers."""
    return jax.tree.map(lambda leaf: leaf[lanes], tree), _replicate_keys(key, replicates)


def _like(spec: PyTree, data: PyTree) -> PyTree:
    """The shapes of results of programs with these data, placed as the results will be."""
    first = jax.tree.leaves(data)[0]
    where = first.sharding if getattr(first, "committed", False) else None
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=where, weak_type=s.weak_type), spec)


def _replicate_keys(key: Key, replicates: Array) -> Key:
    return jax.vmap(lambda number: jax.random.fold_in(key, number))(replicates)


def lanes_for(settings: int) -> int:
    """A multiple of the usual number, so that one compiled program serves different numbers of settings."""
    return -(-settings // WIDTH) * WIDTH


def _axes(shared: bool) -> Any:
    return KernelState._make((0, 0, None if shared else 0, None, None, 0))


def _with_inner(parts: Parts, inner: Sampler) -> Parts:
    """The lane's own sampler, in the coordinates that all lanes share (None: those of the parameters)."""
    return parts._replace(sampler=inner if parts.sampler is None else with_core(parts.sampler, inner))


@setup_program(2)
def _start(
    shared: bool, model: Model, parts: Parts, inners: Sampler, begin: Start, key: Key, replicates: Array
) -> KernelState:
    def one(inner: Sampler, noise_key: Key) -> KernelState:
        state = loop.start_chain(model, _with_inner(parts, inner), begin, key, 0)[0]
        return state._replace(noise_key=noise_key)

    return jax.vmap(one, out_axes=_axes(shared))(inners, _replicate_keys(key, replicates))


def _advance_all(
    model: Model,
    shared: bool,
    capacity: int,
    parts: Parts,
    inners: Sampler,
    states: KernelState,
    num_steps: Any,
    thin: Any,
    phase: Any,
) -> tuple[KernelState, loop.Chunk]:
    def one(inner: Sampler, state: KernelState) -> tuple[KernelState, loop.Chunk]:
        own = _with_inner(parts, inner)
        return loop.advance(model, False, capacity, own, state, num_steps, thin, phase, in_graph=True)

    return jax.vmap(one, in_axes=(0, _axes(shared)), out_axes=(_axes(shared), 0))(inners, states)


_advance = setup_loop_program(3)(_advance_all)


# -- rounds ---------------------------------------------------------------------------------------------------


class RaceEntry(NamedTuple):
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
        self.entries: list[RaceEntry] = []
        self.numbers: list[list[int]] = []
        """The entries of each group of lanes."""
        size = _tree.size(judge.centre)
        pooled = int(np.clip(math.sqrt(_PAIR_WORK / (16 * size)), 1_000, 8_000))
        groups = [grouped(found) for found in candidates]
        kept = max(50, 2 * pooled // sum(lanes_for(len(group)) for found in groups for group in found))
        largest = max(room.parts.batching.size for room in rooms)
        for place, (room, found) in enumerate(zip(rooms, candidates, strict=True)):
            # the same number of rows for every setting: longer chains for smaller batches
            steps = round(num_steps * min(_MOST_STEPS, largest / room.parts.batching.size))
            for group in groups[place]:
                first = len(self.entries)
                self.entries += [RaceEntry(place, len(self.lanes), k, found[c]) for k, c in enumerate(group)]
                self.numbers.append(list(range(first, len(self.entries))))
                self.lanes.append(Lanes(room, [found[c].sampler for c in group], self.key, steps, kept))
        self.trials = [
            Trial({**rooms[e.arena].settings, **e.candidate.settings}, [], e.candidate.first_guess)
            for e in self.entries
        ]

    def programs(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """The jitted functions of the race, with their arguments or shapes of them."""
        return [program for lanes in self.lanes for program in lanes.programs(self.judge)]

    def run(self, method: str, deadline: float | None) -> list[int]:
        """Entries, best first."""
        alive = list(range(len(self.entries)))
        places = sum(lanes.count for lanes in self.lanes)
        for lanes in self.lanes:
            lanes.begin()
            lanes.warm_up()
        while True:
            scores = self._round()
            for number in alive:
                self.trials[number] = with_rounds(self.trials[number], _root(scores.get(number, math.nan)))
            best = sorted((n for n in alive if math.isfinite(scores[n])), key=lambda n: scores[n])
            if not best:
                raise InvalidValueError(
                    "every setting that was tried diverged (NaN or inf): standardise the data, start closer to the "
                    "mode, or try smaller step sizes."
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

    def _round(self) -> dict[int, float]:
        scores: dict[int, float] = {}
        for number, lanes in enumerate(self.lanes):
            if not lanes.alive:
                continue
            check_wanted()
            draws, good = lanes.advance()
            replicates = lanes.replicates
            found = reward.discrepancies(self.model, self.judge, replicates, draws, self.key)
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
