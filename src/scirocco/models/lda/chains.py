"""Chains of a topic model in the form that a session drives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from scirocco.diffusions.host._threads import available_cores
from scirocco.models.lda.chain import TopicChain
from scirocco.models.lda.settings import Settings
from scirocco.run.keeping import HostChunk
from scirocco.types import PyTree


class TopicChains:
    """Several chains, each in a thread of its own; the kernels release the interpreter's lock."""

    first_chunks = (1, 2)
    capacity = 1
    """Draws in a chunk: whole matrices of topics."""

    def __init__(self, chains: list[TopicChain]):
        self.chains = chains
        self._pool: ThreadPoolExecutor | None = None

    def _each(self, function: Any) -> list[Any]:
        workers = min(len(self.chains), available_cores())
        if workers == 1:
            return [function(chain) for chain in self.chains]
        if self._pool is None:  # also after `close`: a fit by the clock is two sessions
            self._pool = ThreadPoolExecutor(workers, thread_name_prefix="topics")
        return list(self._pool.map(function, self.chains))

    def advance(self, num_steps: int, thin: int) -> HostChunk:
        """Steps in every chain; a draw after each `thin` of them."""
        num_draws = num_steps // thin
        if not num_draws:
            self._each(lambda chain: chain.advance(num_steps))
            return self._chunk([[] for _ in self.chains])
        return self._chunk(self._each(lambda chain: _draws(chain, num_draws, thin)))

    def _chunk(self, parts: list[list[Drawn]]) -> HostChunk:
        """`parts[chain][draw]`."""
        chain, counts = self.chains[0], (len(parts), len(parts[0]))
        shapes = stat_shapes(chain.settings)
        empty = np.empty((*counts, chain.settings.num_topics, chain.vocabulary_size), np.float32)
        topics = _stacked([[drawn.topics for drawn in part] for part in parts]) if counts[1] else empty
        stats = {
            name: np.array([[drawn.stats[name] for drawn in part] for part in parts], np.float64).reshape(
                *counts, *shape
            )
            for name, shape in shapes.items()
        }
        nothing = np.full(len(self.chains), -1)
        return HostChunk({"topics": topics}, None, stats, {}, nothing, nothing)

    def finish_growth(self) -> bool:
        """All documents from now on, in every chain; whether any had not come so far."""
        under_way = any(chain.supply.growing for chain in self.chains)
        for chain in self.chains:
            chain.supply.finish_growth()
        return under_way

    def save(self) -> dict[str, np.ndarray]:
        """Everything needed to go on."""
        states = [chain.state() for chain in self.chains]
        return {name: _stacked([state[name] for state in states]) for name in states[0]}

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        """Go on from there."""
        for number, chain in enumerate(self.chains):
            chain.restore({name: value[number] for name, value in saved.items()})

    def reduced(self) -> PyTree:
        """There are no reducers."""
        return {}

    def close(self) -> None:
        """Release threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None


class Drawn(NamedTuple):
    """One draw of one chain."""

    topics: np.ndarray
    stats: dict[str, Any]


def stat_shapes(settings: Settings) -> dict[str, tuple[int, ...]]:
    """What is kept with every draw: how often the corpus has been seen, and what is learned besides the topics."""
    alpha = {"alpha": (settings.num_topics,)} if settings.learn_alpha else {}
    return {"passes": (), **alpha, **({"beta": ()} if settings.learn_beta else {})}


def _draws(chain: TopicChain, num_draws: int, thin: int) -> list[Drawn]:
    drawn = []
    for _ in range(num_draws):
        chain.advance(thin)
        drawn.append(Drawn(chain.draw(), {"passes": chain.passes, **chain.hyper()}))
    return drawn


def _stacked(parts: list[Any]) -> np.ndarray:
    """`np.stack`, of one array (or a list of one) without a copy: topics may be gigabytes."""
    arrays = [_stacked(part) if isinstance(part, list) else part for part in parts]
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)
