"""Chains without memory on an accelerator: SCIR and SCIR-CV with all topics there, and the local step of a batch."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.diffusions import cir
from scirocco.simplex import tables
from scirocco.simplex.scir import controlled
from scirocco.types import Array
from scirocco_latent.lda import arrays
from scirocco_latent.lda.array_chain import packed
from scirocco_latent.lda.document_batches import Delivery
from scirocco_latent.lda.settings import TopicSettings
from scirocco_latent.lda.topics import Arrays, ReferringTopics, Topics


class DeviceBatch(NamedTuple):
    """Documents of a batch on the device."""

    distinct: np.ndarray
    """Words that occur; the programs use all words of the vocabulary."""
    tokens: arrays.Tokens
    rows: int


class OnDevice:
    """The local step of all documents of a batch, see `stochastic_chain.Here`; sizes are rounded: few are compiled."""

    def __init__(self, num_words: int, settings: TopicSettings):
        self.num_words, self.settings = num_words, settings
        self._alpha = np.zeros(arrays.width_for(settings.num_topics), np.float32)
        self._alpha[: settings.num_topics] = settings.alpha

    def prepare(self, delivery: Delivery) -> DeviceBatch:
        """Documents as tokens."""
        indptr, words, counts = delivery.rows
        size, rows = _coarse(int(counts.sum(dtype=np.int64))), _coarse(len(indptr) - 1)
        return DeviceBatch(words, packed(delivery.rows, size, rows, self.num_words), rows)

    def counts(self, batch: DeviceBatch, weights: Any, seed: tuple[int, int]) -> Any:
        """Counts (words, topics) of all words."""
        settings = self.settings
        found = arrays.local(
            arrays.seed_words(seed), weights, batch.tokens, self._alpha, batch.rows, settings.sweeps, settings.burn_in
        )
        return found[:, : settings.num_topics]


def _coarse(number: int) -> int:
    """At least 64, rounded up to a quarter of a power of two."""
    step = max(64, 1 << max(int(max(number, 1) - 1).bit_length() - 3, 0))
    return max(-(-number // step), 1) * step


class ArrayTopics(Topics):
    """SCIR with all words moved at every step; θ is on the device."""

    def __init__(self, theta: Array, beta: float):
        self.theta, self.beta = theta, np.float32(beta)

    @classmethod
    def begin(cls, num_words: int, num_topics: int, beta: float, seed: int) -> ArrayTopics:
        """θ ~ Gamma(1, 1), as in the papers' code."""
        return cls(_first(arrays.seed_words((seed, 0)), num_words, num_topics), beta)

    def read(self, words: np.ndarray, seed: tuple[int, int]) -> Any:
        """ω of all words, each up to a factor, with empty places for whole lanes."""
        return arrays.scaled(_padded(self.theta))

    def update(self, words: np.ndarray, counts: Any, scale: float, time: float, seed: tuple[int, int]) -> None:
        """SCIR with â = β + scale · counts."""
        self.theta.block_until_ready()  # one step ahead of the device, not more
        self.theta = _moved(arrays.seed_words(seed), self.theta, counts, self.beta, np.float32(scale), np.float32(time))

    def draw(self, seed: tuple[int, int]) -> np.ndarray:
        """ω at the current θ."""
        return np.array(arrays.normalised(self.theta))

    def extend(self, theta: np.ndarray) -> None:
        """All words are on the device."""
        self.theta = jnp.concatenate([self.theta, theta])

    def state(self) -> Arrays:
        """θ."""
        return {"theta": np.asarray(self.theta)}

    def restore_state(self, state: Arrays) -> None:
        """Restore the topics from `state`."""
        self.theta = jnp.asarray(state["theta"])


class ControlledArrayTopics(ArrayTopics, ReferringTopics):
    """SCIR-CV (parametrisation 2) on the device."""

    def __init__(self, theta: Array, beta: float):
        super().__init__(theta, beta)
        self.reference, self.counted = jnp.zeros_like(theta), jnp.zeros_like(theta)
        self.step = np.zeros(2)

    def refer(self, words: np.ndarray, counts: Any, scale: float) -> None:
        """Update the reference, see `ControlledTopics`."""
        before, self.counted = self.counted, np.float32(scale) * counts
        batch, time = map(float, self.step)
        kept = tables.controlling(self.counted, before, self.beta, scale, batch, time, jnp)
        self.reference = jnp.where(kept > 0, self.beta + kept, 0)

    def update(self, words: np.ndarray, counts: Any, scale: float, time: float, seed: tuple[int, int]) -> None:
        """One step of all words."""
        self.theta.block_until_ready()
        self.theta = _controlled(
            arrays.seed_words(seed), self.theta, counts, self.reference, self.beta, np.float32(scale), np.float32(time)
        )
        self.step = np.array([scale, time])

    def extend(self, theta: np.ndarray) -> None:
        """New words are not in the reference."""
        super().extend(theta)
        self.reference, self.counted = (
            jnp.concatenate([part, jnp.zeros(theta.shape)]) for part in (self.reference, self.counted)
        )

    def state(self) -> Arrays:
        """θ and the reference."""
        kept = {"theta": self.theta, "reference": self.reference, "counted": self.counted, "step": self.step}
        return {name: np.asarray(part) for name, part in kept.items()}

    def restore_state(self, state: Arrays) -> None:
        """Restore the topics from `state`."""
        super().restore_state(state)
        self.reference, self.counted = jnp.asarray(state["reference"]), jnp.asarray(state["counted"])
        self.step = state["step"].copy()


@partial(jax.jit, static_argnames=("num_words", "num_topics"))
def _first(words: Array, num_words: int, num_topics: int) -> Array:
    uniform = jax.random.uniform(jax.random.wrap_key_data(words, impl="threefry2x32"), (num_words, num_topics))
    return -jnp.log1p(-uniform)


@jax.jit
def _padded(theta: Array) -> Array:
    return jnp.pad(theta, ((0, 0), (0, arrays.width_for(theta.shape[1]) - theta.shape[1])))


@jax.jit
def _moved(words: Array, theta: Array, counts: Array, beta: Array, scale: Array, time: Array) -> Array:
    return cir(words, theta, beta + scale * counts, time)


@jax.jit
def _controlled(
    words: Array, theta: Array, counts: Array, reference: Array, beta: Array, scale: Array, time: Array
) -> Array:
    shapes = beta + scale * counts
    variance = scale * jnp.maximum(reference - beta, 0.0)
    _, rates, _ = controlled(2, shapes, reference, variance, time)
    return cir(words, theta, shapes, time, rates)
