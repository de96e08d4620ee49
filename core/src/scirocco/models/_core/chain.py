"""Chains of a model in NumPy or compiled for the host, with the interface of a session."""

from __future__ import annotations

import abc
import enum
import math
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from scirocco._programs import available_cores
from scirocco.run.keeping import Chains, HostChunk, Kept
from scirocco.types import PyTree

Arrays = dict[str, np.ndarray]


class TopicPurpose(enum.IntEnum):
    """Purposes of random numbers in one step of a topic chain: the lowest three bits of the second seed word."""

    CONTINUED = 0
    READ = 1
    UPDATE = 2
    LOCAL = 3
    REFERENCE = 4
    DRAW = 5
    COLLAPSED = 6
    HYPER = 7


class DocumentPurpose(enum.IntEnum):
    """Purposes of random choices of documents: the second word of a generator's seed."""

    REFERENCE = 0xCF
    FIRST = 0xF1
    ORDER = 0xD0C
    HELD_OUT = 0x4E1D
    CONTINUED = 0xC0


class MixturePurpose(enum.IntEnum):
    """Purposes of random numbers in one step of a mixture: the lowest four bits of the second seed word.

    The steps of the slice sampler have the numbers below `DRAW`.
    """

    DRAW = 8
    ROWS = 9
    REFRESH = 10


class StatePurpose(enum.IntEnum):
    """Purposes of random numbers in one step of a hidden Markov model: the lowest four bits of the second seed word."""

    STATES = 1
    PARAMETERS = 2
    ORDER = 3
    START = 4
    WINDOWS = 5
    REFRESH = 6
    MOVES = 7
    REFERENCE = 8


class BlockPurpose(enum.IntEnum):
    """Purposes of random numbers in one step of a block model: the lowest four bits of the second seed word."""

    BLOCKS = 1
    MATRIX = 2
    ORDER = 3
    START = 4
    UNSEEN = 5
    DRAW = 6
    SPLITS = 7


_OF_ONE_CHAIN = re.compile(r"(.*)@(\d+)")


class Chain(abc.ABC):
    """One chain of a model: it makes steps, returns draws, and can be saved and restored.

    A chain writes `move` and `kept`, names the arrays that its next step needs in `STATE`, and makes what it moves in
    `begin`. Everything random in a step depends only on the seed of the chain, the number of the step and a purpose.
    """

    STATE: ClassVar[tuple[str, ...]] = ()
    """Attributes with arrays, which `state` returns and `restore` copies."""
    PURPOSE_BITS: ClassVar[int] = 4
    """The lowest bits of the second seed word say what the numbers are for, the others are the number of the step."""

    def __init__(self, seed: int, number: int):
        self.seed = int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> 1)  # 63 bits
        self.step = 0
        self._has_begun = False

    @abc.abstractmethod
    def move(self) -> None:
        """One step."""

    @abc.abstractmethod
    def kept(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """A posterior draw and its statistics, in arrays that later steps do not change."""

    def begin(self) -> None:  # noqa: B027 (many chains start where their constructor puts them)
        """Find a start: called once, before the first step of a new chain."""

    def advance(self, num_steps: int) -> None:
        """Run `num_steps` steps; chains run in parallel threads."""
        if not self._has_begun:
            self._has_begun = True
            self.begin()
        for _ in range(num_steps):
            self.move()
            self.step += 1

    def prepare(self) -> None:
        """Do what a time limit does not count: find a start, and compile, by a step that is undone."""
        self.advance(0)
        state = {name: np.array(array) for name, array in self.state().items()}
        self.advance(1)
        self.restore(state)

    def words(self, purpose: int) -> tuple[int, int]:
        """Seed words of this step, for one purpose."""
        return self.seed, (self.step << self.PURPOSE_BITS) + purpose

    def rng(self, purpose: int) -> np.random.Generator:
        """A generator of this step, for one purpose."""
        return np.random.default_rng([self.seed, self.step, purpose])

    def state(self) -> Arrays:
        """Arrays from which `restore` resumes exactly; not copied, so read them before the next step."""
        return {
            **{name: np.asarray(getattr(self, name)) for name in self.STATE},
            "steps": np.array([self.step], np.int64),
        }

    def restore(self, state: Arrays) -> None:
        """Restore the chain from `state`."""
        self._has_begun = True
        for name in self.STATE:
            setattr(self, name, state[name].copy())
        self.step = int(state["steps"][0])


class Spec(NamedTuple):
    """Shapes and types of one draw of one chain, by name."""

    draws: dict[str, jax.ShapeDtypeStruct]
    stats: dict[str, jax.ShapeDtypeStruct]
    """Statistics of a draw; at least one, which is used to count draws."""

    @classmethod
    def of(cls, draws: Mapping[str, tuple[int, ...]], stats: Mapping[str, tuple[int, ...]]) -> Spec:
        """From shapes: draws in float32, statistics in float64."""
        return cls(
            {name: jax.ShapeDtypeStruct(shape, np.float32) for name, shape in draws.items()},
            {name: jax.ShapeDtypeStruct(shape, np.float64) for name, shape in stats.items()},
        )

    @property
    def dimension(self) -> int:
        """Number of values in a draw."""
        return sum(math.prod(leaf.shape) for leaf in self.draws.values())

    def kept(self) -> Kept:
        """Converted for sinks and stores."""
        return Kept(self.draws, None, self.stats, {})


class HostChains(Chains):
    """Several chains, each in its own thread; kernels that release the GIL run in parallel.

    Parameters
    ----------
    chains
        The chains, which must differ only in their random numbers.
    spec
        Shapes and types of one draw of one chain.
    capacity
        Number of draws in a chunk: 1 if a draw is large, more if it is fast.
    """

    first_chunks = (1, 2)

    def __init__(self, chains: Sequence[Chain], spec: Spec, capacity: int = 1):
        self.chains, self.spec, self.capacity = chains, spec, capacity
        self._workers = min(len(self.chains), available_cores())
        self._pool: ThreadPoolExecutor | None = None

    def _each(self, function: Any) -> list[Any]:
        if self._workers == 1:
            return [function(chain) for chain in self.chains]
        if self._pool is None:  # also after `close`: a fit with a time limit has two sessions
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="chain")
        return list(self._pool.map(function, self.chains))

    def advance(self, num_steps: int, thin: int) -> HostChunk:
        """Run steps in all chains, with a draw after each `thin` of them."""
        num_draws = num_steps // thin
        if not num_draws:
            self._each(lambda chain: chain.advance(num_steps))
            return self._chunk([[] for _ in self.chains])
        return self._chunk(self._each(lambda chain: _draws(chain, num_draws, thin)))

    def _chunk(self, parts: list[list[Drawn]]) -> HostChunk:
        """A chunk from `parts[chain][draw]`."""
        draws = {
            name: _joined([[drawn.draws[name] for drawn in part] for part in parts], like)
            for name, like in self.spec.draws.items()
        }
        stats = {
            name: _joined([[drawn.stats[name] for drawn in part] for part in parts], like)
            for name, like in self.spec.stats.items()
        }
        nothing = np.full(len(self.chains), -1)
        return HostChunk(draws, None, stats, {}, nothing, nothing)

    def save(self) -> Arrays:
        """The state needed to resume.

        Arrays of all chains are stacked under their name. If their shapes differ (each chain grows its own buffers),
        the array of chain `c` is `name@c`.
        """
        states, out = [chain.state() for chain in self.chains], {}
        for name in states[0]:
            arrays = [state[name] for state in states]
            if len({array.shape for array in arrays}) == 1:
                out[name] = _stacked(arrays)
            else:
                out |= {f"{name}@{number}": array for number, array in enumerate(arrays)}
        return out

    def restore(self, saved: Arrays) -> None:
        """Restore the chains from `saved`."""
        for chain, state in zip(self.chains, states_of(saved, len(self.chains)), strict=True):
            chain.restore(state)

    def reduced(self) -> PyTree:
        """Results of reducers: none."""
        return {}

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None


def states_of(saved: Arrays, num_chains: int) -> list[Arrays]:
    """The state of each chain from `HostChains.save`."""
    states: list[Arrays] = [{} for _ in range(num_chains)]
    for name, value in saved.items():
        if own := _OF_ONE_CHAIN.fullmatch(name):
            states[int(own[2])][own[1]] = value
        else:
            for number, state in enumerate(states):
                state[name] = value[number]
    return states


class Drawn(NamedTuple):
    """One draw of one chain."""

    draws: Mapping[str, Any]
    stats: Mapping[str, Any]


def _draws(chain: Chain, num_draws: int, thin: int) -> list[Drawn]:
    drawn = []
    for _ in range(num_draws):
        chain.advance(thin)
        drawn.append(Drawn(*chain.kept()))
    return drawn


def _joined(parts: list[list[Any]], like: jax.ShapeDtypeStruct) -> np.ndarray:
    """(chain, draw, ...) from the draws of the chains; an error if the shape differs from `like`."""
    if not parts[0]:
        return np.empty((len(parts), 0, *like.shape), like.dtype)
    joined = _stacked([_stacked([np.asarray(value, like.dtype) for value in part]) for part in parts])
    assert joined.shape[2:] == like.shape, (joined.shape, like.shape)
    return joined


def _stacked(arrays: list[np.ndarray]) -> np.ndarray:
    """`np.stack`, without a copy for one array: draws may be gigabytes."""
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)
