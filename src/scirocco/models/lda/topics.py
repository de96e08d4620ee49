"""The topics of one chain: gamma variables θ, words × topics, of which ω_kw = θ_wk / Σ_w θ_wk.

Three ways to move them, one contract: `read(words)` gives ω of some words at the present time, `update` tells what a
batch has found, `draw` gives the whole matrix, `state` and `restore` are for stores.
"""

from __future__ import annotations

import abc

import numpy as np

from scirocco.diffusions import host
from scirocco.simplex.lazy import LazySCIR
from scirocco.simplex.scir_cv import control_is_stable

Arrays = dict[str, np.ndarray]


class Topics(abc.ABC):
    """The contract. `scale` is the number of documents of the corpus for each one in the batch."""

    @abc.abstractmethod
    def read(self, words: np.ndarray, seed: tuple[int, int]) -> np.ndarray:
        """ω of these words, (words, topics), for the local step."""

    @abc.abstractmethod
    def update(
        self, words: np.ndarray, counts: np.ndarray, scale: float, time: float, seed: tuple[int, int]
    ) -> None:
        """A step of length `time`, given the counts (words, topics) that a batch has found."""

    @abc.abstractmethod
    def draw(self, seed: tuple[int, int]) -> np.ndarray:
        """ω of all words, (topics, words)."""

    @abc.abstractmethod
    def state(self) -> Arrays:
        """All that the next step needs."""


class LazyTopics(Topics):
    """Plain minibatches and SCIR: only the words of a batch are moved, the others when they are next needed.

    Exact for each word. The normaliser Σ_w θ_wk is its conditional mean given what has been drawn, off by at most
    √(2/Σ) of itself (one standard deviation): below one per cent once a topic has 20,000 tokens of the corpus.
    """

    def __init__(self, lazy: LazySCIR, beta: float):
        self.lazy, self.beta = lazy, np.float32(beta)

    @classmethod
    def begin(
        cls, num_words: int, num_topics: int, beta: float, seed: int, threads: int | None
    ) -> LazyTopics:
        """θ ~ Gamma(1, 1), as in the papers' code."""
        start = host.gamma(
            (seed, 0), np.broadcast_to(np.float32(1.0), (num_words, num_topics)), num_threads=threads
        )
        return cls(LazySCIR(np.float32(beta), start, seed=(seed, 1), num_threads=threads), beta)

    def read(self, words: np.ndarray, seed: tuple[int, int]) -> np.ndarray:
        """Overdue words are drawn now."""
        return self.lazy.read(words) / self.lazy.row_sums().astype(np.float32)

    def update(
        self, words: np.ndarray, counts: np.ndarray, scale: float, time: float, seed: tuple[int, int]
    ) -> None:
        """SCIR with â = β + scale · counts."""
        self.lazy.advance(words, self.beta + np.float32(scale) * counts, time)

    def draw(self, seed: tuple[int, int]) -> np.ndarray:
        """All words are brought to the present."""
        return _normalised(self.lazy.catch_up())

    def state(self) -> Arrays:
        """That of `LazySCIR`."""
        return self.lazy.state()

    @classmethod
    def restore(cls, state: Arrays, beta: float, threads: int | None) -> LazyTopics:
        """From `state`."""
        return cls(LazySCIR.restore(state, num_threads=threads), beta)


class RememberedTopics(Topics):
    """The topics of every token are remembered, so that the counts of the whole corpus are known at every step.

    θ_wk given all z is Gamma(β + n_wk, 1): SCIR's law in the limit of long steps. It is drawn afresh for the words of
    a batch, and for all other words together: their sum is Gamma too, so the normaliser is exact at the cost of one
    number a topic. With z of the batch drawn given θ this is a Gibbs sampler; nothing is left of minibatch noise.
    """

    def __init__(self, table: np.ndarray, beta: float, threads: int | None):
        self.table, self.beta, self.threads = table, float(beta), threads
        self.totals = table.sum(axis=0, dtype=np.int64)

    @classmethod
    def begin(cls, num_words: int, num_topics: int, beta: float, threads: int | None) -> RememberedTopics:
        """No document has been seen."""
        return cls(np.zeros((num_words, num_topics), np.int32), beta, threads)

    def read(self, words: np.ndarray, seed: tuple[int, int]) -> np.ndarray:
        """A fresh draw of ω of these words, jointly with the sum of the others."""
        counts = self.table[words]
        shapes = counts + np.float32(self.beta)
        theta = host.gamma(seed, shapes, num_threads=self.threads)
        others = self.totals - counts.sum(axis=0, dtype=np.int64)
        left = self.beta * (len(self.table) - len(words))
        rest = np.zeros(len(others))
        if left > 0:
            rest = host.gamma((seed[0], seed[1] ^ (1 << 62)), others + left, num_threads=1)
        return theta / (theta.sum(axis=0, dtype=np.float64) + rest).astype(np.float32)

    def update(
        self, words: np.ndarray, counts: np.ndarray, scale: float, time: float, seed: tuple[int, int]
    ) -> None:
        """Nothing: the table follows the tokens."""

    def draw(self, seed: tuple[int, int]) -> np.ndarray:
        """Dirichlet(β + n) for every topic."""
        theta = host.gamma(seed, self.table + np.float32(self.beta), num_threads=self.threads)
        return _normalised(theta)

    def state(self) -> Arrays:
        """The table can be counted again from the tokens, but that takes longer than reading it."""
        return {"table": self.table.copy()}


class ControlledTopics(Topics):
    """SCIR-CV (parametrisation 2) or SGRLD: every word is moved at every step.

    The reference of SCIR-CV is renewed by `refer`.
    """

    def __init__(
        self, theta: np.ndarray, beta: float, method: str, reference: np.ndarray, threads: int | None
    ):
        self.theta, self.beta, self.method, self.threads = theta, np.float32(beta), method, threads
        self.reference = reference

    @classmethod
    def begin(
        cls, num_words: int, num_topics: int, beta: float, method: str, seed: int, threads: int | None
    ) -> ControlledTopics:
        """θ ~ Gamma(1, 1), as in the papers' code; no reference yet."""
        shape = (num_words, num_topics)
        theta = host.gamma((seed, 0), np.broadcast_to(np.float32(1.0), shape), num_threads=threads)
        empty = np.zeros(shape if method == "scir_cv" else (0, num_topics), np.float32)
        return cls(theta, beta, method, empty, threads)

    def read(self, words: np.ndarray, seed: tuple[int, int]) -> np.ndarray:
        """As they are."""
        return self.theta[words] / self._sums()

    def _sums(self) -> np.ndarray:
        return self.theta.sum(axis=0, dtype=np.float64).astype(np.float32)

    def refer(self, words: np.ndarray, counts: np.ndarray, scale: float) -> None:
        """A better estimate of α + Σz from a larger batch."""
        self.reference[:] = self.beta
        self.reference[words] += np.float32(scale) * counts

    def update(
        self, words: np.ndarray, counts: np.ndarray, scale: float, time: float, seed: tuple[int, int]
    ) -> None:
        """One step of all words."""
        if self.method == "sgrld":
            self._sgrld(words, counts, scale, time, seed)
            return
        shapes = np.full_like(self.theta, self.beta)
        shapes[words] += np.float32(scale) * counts
        rates = self._rates(shapes, scale, time)
        host.cir(seed, self.theta, shapes, time, rates, out=self.theta, num_threads=self.threads)

    def _rates(self, shapes: np.ndarray, scale: float, time: float) -> np.ndarray:
        """b̂ = (â - 1)/(a - 1) where control is stable, as for `SCIRCV`, with the variance of Poisson counts; else 1."""
        variance = scale * np.maximum(self.reference - self.beta, 0.0)
        used = control_is_stable(2, self.reference, variance, time, np)
        return np.where(used, (shapes - 1.0) / np.where(used, self.reference - 1.0, 1.0), 1.0).astype(
            np.float32
        )

    def _sgrld(
        self, words: np.ndarray, counts: np.ndarray, scale: float, time: float, seed: tuple[int, int]
    ) -> None:
        """θ' = |θ + ε (β - θ + scale (n_kw - ω_kw n_k)) + √(2εθ) ξ| (Patterson & Teh 2013)."""
        step, theta = np.float32(time), self.theta
        pull = np.float32(scale) * counts.sum(axis=0, dtype=np.float64).astype(np.float32) / self._sums()
        drift = self.beta - theta * (1.0 + pull)
        drift[words] += np.float32(scale) * counts
        noise = np.random.Generator(np.random.SFC64(list(seed))).standard_normal(theta.shape, np.float32)
        self.theta = np.abs(theta + step * drift + np.sqrt(2.0 * step * theta) * noise)

    def draw(self, seed: tuple[int, int]) -> np.ndarray:
        """As they are."""
        return _normalised(self.theta)

    def state(self) -> Arrays:
        """θ and the reference."""
        return {"theta": self.theta.copy(), "reference": self.reference.copy()}


def _normalised(theta: np.ndarray) -> np.ndarray:
    """Rows of ω, (topics, words), which sum to one; a topic whose θ all underflow is uniform."""
    sums = theta.sum(axis=0, dtype=np.float64)
    omega = theta.T / np.where(sums > 0, sums, 1.0)[:, None]
    omega[sums <= 0] = 1.0 / theta.shape[0]
    return np.ascontiguousarray(omega, np.float32)
