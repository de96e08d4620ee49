"""Chains of a topic model in the form that a session drives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from scirocco.diffusions.host._threads import available_cores
from scirocco.models.lda.chain import TopicChain
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
            return self._chunk([[] for _ in self.chains], [[] for _ in self.chains])
        pairs = self._each(lambda chain: _draws(chain, num_draws, thin))
        return self._chunk([draws for draws, _ in pairs], [epochs for _, epochs in pairs])

    def _chunk(self, draws: list[list[np.ndarray]], epochs: list[list[float]]) -> HostChunk:
        one = self.chains[0].settings.num_topics, self.chains[0].corpus.vocabulary_size
        shape = (len(self.chains), len(draws[0]), *one)
        topics = np.stack([np.stack(some) for some in draws]) if draws[0] else np.empty(shape, np.float32)
        nothing = np.full(len(self.chains), -1)
        passes = np.array(epochs, np.float64).reshape(shape[:2])
        return HostChunk({"topics": topics}, None, {"passes": passes}, {}, nothing, nothing)

    def save(self) -> dict[str, np.ndarray]:
        """Everything needed to go on."""
        states = [chain.state() for chain in self.chains]
        return {name: np.stack([state[name] for state in states]) for name in states[0]}

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


def _draws(chain: TopicChain, num_draws: int, thin: int) -> tuple[list[np.ndarray], list[float]]:
    draws, epochs = [], []
    for _ in range(num_draws):
        chain.advance(thin)
        draws.append(chain.draw())
        epochs.append(chain.passes)
    return draws, epochs
