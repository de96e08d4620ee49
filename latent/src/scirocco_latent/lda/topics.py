"""The topics of one chain: gamma variables θ, words × topics, with ω_kw = θ_wk / Σ_w θ_wk.

All samplers have the same interface: `read(words)` returns the current ω of some words, `update` moves the topics given
the counts of a batch, `draw` returns the whole matrix, `state` and `restore_state` are for stores. See also `langevin`.
"""

from __future__ import annotations

import abc

import numpy as np

from scirocco.diffusions import host
from scirocco.simplex import tables
from scirocco.simplex.lazy import LazySCIR

Array = np.ndarray

Arrays = dict[str, np.ndarray]
_PIECE = 1 << 12  # words at a time, to save memory


class Topics(abc.ABC):
    """Interface of samplers of topics; `scale` is the size of the corpus over that of the batch, in documents."""

    @abc.abstractmethod
    def read(self, words: Array, seed: tuple[int, int]) -> Array:
        """ω of these words, (words, topics), for the local step."""

    @abc.abstractmethod
    def update(self, words: Array, counts: Array, scale: float, time: float, seed: tuple[int, int]) -> None:
        """A step of length `time`, given the counts (words, topics) of a batch."""

    @abc.abstractmethod
    def draw(self, seed: tuple[int, int]) -> Array:
        """ω of all words, (topics, words)."""

    def extend(self, theta: Array) -> None:
        """Add words with these θ, (words, topics); only SCIR and SCIR-CV (`settings.EXTENSIBLE`)."""
        raise NotImplementedError

    @abc.abstractmethod
    def state(self) -> Arrays:
        """State needed for the next step; the arrays are not copied and valid until then."""

    @abc.abstractmethod
    def restore_state(self, arrays: Arrays) -> None:
        """Restore the topics from `state`."""


class ReferringTopics(Topics):
    """Topics with a reference that `refer` updates from time to time (SCIR-CV)."""

    @abc.abstractmethod
    def refer(self, words: Array, counts: Array, scale: float) -> None:
        """Update the reference: an estimate of α + Σz from a larger batch."""


class LazyTopics(Topics):
    """SCIR with plain minibatches: only the words of a batch are moved, the others when they are next needed.

    Exact for each word. The normaliser Σ_w θ_wk is its conditional mean given the draws so far, with a relative
    error of at most √(2/Σ) (one standard deviation): below 1 % if a topic has 20,000 tokens of the corpus.
    """

    def __init__(self, lazy: LazySCIR, beta: float, threads: int | None = None):
        self.lazy, self.beta, self._threads = lazy, np.float32(beta), threads

    @classmethod
    def begin(cls, num_words: int, num_topics: int, beta: float, seed: int, threads: int | None) -> LazyTopics:
        """θ ~ Gamma(1, 1), as in the papers' code."""
        start = host.gamma((seed, 0), np.broadcast_to(np.float32(1.0), (num_words, num_topics)), num_threads=threads)
        return cls(LazySCIR(np.float32(beta), start, seed=(seed, 1), num_threads=threads), beta, threads)

    def read(self, words: Array, seed: tuple[int, int]) -> Array:
        """ω of these words, which are first brought up to date."""
        return self.lazy.read(words) / self.lazy.row_sums().astype(np.float32)

    def update(self, words: Array, counts: Array, scale: float, time: float, seed: tuple[int, int]) -> None:
        """SCIR with â = β + scale · counts."""
        self.lazy.advance(words, self.beta + np.float32(scale) * counts, time)

    def draw(self, seed: tuple[int, int]) -> Array:
        """Bring all words up to date, in pieces to save memory."""
        num_words, num_topics = self.lazy.state(copy=False)["theta"].shape
        out = np.empty((num_topics, num_words), np.float32)
        for begin in range(0, num_words, _PIECE):
            words = np.arange(begin, min(begin + _PIECE, num_words))
            out[:, words[0] : words[-1] + 1] = self.lazy.read(words).T
        return normalise(out)

    def extend(self, theta: Array) -> None:
        """New columns are up to date."""
        state, new = self.lazy.state(copy=False), len(theta)
        added = {
            "theta": theta,
            "ahead": np.zeros(theta.shape, np.uint8),
            "when": np.full(new, self.lazy.now),
            "span": np.zeros(new),
        }
        grown = {name: np.concatenate([state[name], values]) for name, values in added.items()}
        excess = state["excess"] + theta.sum(axis=0, dtype=np.float64) - new * state["concentration"]
        self.restore_state({**state, **grown, "excess": excess})

    def state(self) -> Arrays:
        """The state of `LazySCIR`."""
        return self.lazy.state(copy=False)

    def restore_state(self, arrays: Arrays) -> None:
        """Restore the topics from `state`."""
        self.lazy = LazySCIR.restore(arrays, num_threads=self._threads)


class ControlledTopics(ReferringTopics):
    """SCIR-CV (parametrisation 2): every word is moved at every step. `refer` updates the reference."""

    def __init__(self, theta: Array, beta: float, reference: Array, threads: int | None):
        self.theta, self.beta, self.threads = theta, np.float32(beta), threads
        self.reference, self.counted = reference, np.zeros_like(reference)
        """Shapes where control is used, otherwise 0; and counts of the last reference, with its own scale."""
        self.step = np.zeros(2)
        """Scale and length of the last step."""

    @classmethod
    def begin(cls, num_words: int, num_topics: int, beta: float, seed: int, threads: int | None) -> ControlledTopics:
        """θ ~ Gamma(1, 1), as in the papers' code; no reference yet."""
        shape = (num_words, num_topics)
        theta = host.gamma((seed, 0), np.broadcast_to(np.float32(1.0), shape), num_threads=threads)
        return cls(theta, beta, np.zeros(shape, np.float32), threads)

    def read(self, words: Array, seed: tuple[int, int]) -> Array:
        """ω of these words at the current θ."""
        return self.theta[words] / self._sums()

    def _sums(self) -> Array:
        return self.theta.sum(axis=0, dtype=np.float64).astype(np.float32)

    def refer(self, words: Array, counts: Array, scale: float) -> None:
        """Update the reference: an estimate of α + Σz from a larger batch."""
        before, self.counted = self.counted, np.zeros_like(self.counted)
        self.counted[words] = np.float32(scale) * counts
        kept = tables.controlling(self.counted, before, self.beta, scale, *self.step)
        self.reference = np.where(kept > 0, self.beta + kept, 0).astype(np.float32)

    def update(self, words: Array, counts: Array, scale: float, time: float, seed: tuple[int, int]) -> None:
        """One step of all words."""
        shapes = np.full_like(self.theta, self.beta)
        shapes[words] += np.float32(scale) * counts
        variance = scale * np.maximum(self.reference - self.beta, 0.0)  # of Poisson counts
        known = self.reference, variance
        tables.moved(seed, self.theta, shapes, time, *known, out=self.theta, num_threads=self.threads)
        self.step = np.array([scale, time])

    def draw(self, seed: tuple[int, int]) -> Array:
        """ω of all words at the current θ."""
        return normalised(self.theta)

    def extend(self, theta: Array) -> None:
        """New words are not in the reference."""
        self.theta = np.concatenate([self.theta, theta])
        self.reference, self.counted = (
            np.concatenate([part, np.zeros_like(theta)]) for part in (self.reference, self.counted)
        )

    def state(self) -> Arrays:
        """θ and the reference."""
        return {"theta": self.theta, "reference": self.reference, "counted": self.counted, "step": self.step}

    def restore_state(self, arrays: Arrays) -> None:
        """Restore the topics from `state`."""
        for name in self.state():
            setattr(self, name, arrays[name].copy())


def normalised(theta: Array) -> Array:
    """ω (topics, words) from θ (words, topics)."""
    return normalise(np.array(theta.T, np.float32, order="C"))


def normalise(omega: Array) -> Array:
    """Normalise rows to sum to one, in place; a topic whose θ all underflow becomes uniform."""
    sums = omega.sum(axis=1, dtype=np.float64)
    omega[sums <= 0] = 1.0 / omega.shape[1]
    omega /= np.where(sums > 0, sums, 1.0).astype(np.float32)[:, None]
    return omega
