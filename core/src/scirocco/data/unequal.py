"""Batches whose rows have different probabilities: by given probabilities, or stratum by stratum."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks
from scirocco._tree import pytree_dataclass, static
from scirocco.data.batching import Batch, Batching, check_batch_size, gather
from scirocco.data.shuffle import random_order
from scirocco.errors import InvalidValueError
from scirocco.types import Array, Data, Key


@pytree_dataclass
class WeightedRows(Batching):
    """Row i with probability p_i, with replacement, and weight 1 / (n p_i)."""

    num_rows: int = static()
    size: int = static()
    edges: Array
    """Upper edge of each row's interval of the 32-bit words: word u belongs to the first row with u < edge."""
    weights: Array

    @classmethod
    def from_probabilities(cls, probabilities: Any, num_rows: int, size: int) -> WeightedRows:
        """Quantise the probabilities to multiples of 2^-32 and weight by the quantised ones: unbiased to the bit."""
        p = _checks.numbers(probabilities, "probabilities")
        if p.shape != (num_rows,):
            raise InvalidValueError(f"`probabilities` must have one entry per row, shape ({num_rows},); got {p.shape}.")
        if not np.all(np.isfinite(p)) or np.any(p <= 0):
            bad = int(np.flatnonzero(~np.isfinite(p) | (p <= 0))[0])
            raise InvalidValueError(
                f"`probabilities` must be finite and > 0 for every row (a row that is never drawn would bias the sum); "
                f"entry {bad} is {p[bad]}."
            )
        edges = np.round(np.cumsum(p / p.sum()) * 2.0**32)
        edges[-1] = 2.0**32
        shares = np.diff(edges, prepend=0.0)
        if np.any(shares < 1):
            bad = int(np.argmin(shares))
            raise InvalidValueError(
                f"probability {p[bad] / p.sum():.3g} of row {bad} is below 2^-32: it would never be drawn. Mix the "
                "probabilities with the uniform ones, e.g. 0.9 * p / p.sum() + 0.1 / len(p)."
            )
        last_word = np.minimum(edges - 1, 2.0**32 - 1).astype(np.uint32)
        weights = 2.0**32 / shares / size
        return cls(num_rows, size, jnp.asarray(last_word), jnp.asarray(weights))

    @property
    def plan_size(self) -> int:
        """One number per row."""
        return self.size

    def plan(self, key: Key, step: Array) -> Array:
        """Row numbers, by inversion of the integer distribution function."""
        words = jax.random.bits(jax.random.fold_in(key, step), (self.size,), jnp.uint32)
        return jnp.searchsorted(self.edges, words, side="left").astype(jnp.int32)

    def row_weights(self, index: np.ndarray) -> np.ndarray | None:
        """1 / (n p_i)."""
        return np.asarray(self.weights)[index]

    def take(self, data: Data, plan: Array) -> Batch:
        """A gather, with the rows' weights."""
        return Batch(gather(data, plan), plan, self.weights[plan], 1.0, self.correction, self.num_rows)


@pytree_dataclass
class StratifiedRows(Batching):
    """n_s distinct rows of every stratum s, drawn independently at every step, with the weight N_s / n_s."""

    num_rows: int = static()
    size: int = static()
    members: Array
    """Row numbers, stratum by stratum."""
    stratum: Array
    """The stratum of each place in a batch."""
    place: Array
    """The number of each place within its stratum."""
    begins: Array
    lengths: Array
    weights: Array
    """The weight of each place."""

    @classmethod
    def from_strata(cls, strata: Any, num_rows: int, size: int) -> StratifiedRows:
        """Divide the places in proportion to the strata, at least one for each."""
        labels = np.asarray(strata)
        if labels.shape != (num_rows,):
            raise InvalidValueError(f"`strata` must have one label per row, shape ({num_rows},); got {labels.shape}.")
        _, codes, lengths = np.unique(labels, return_inverse=True, return_counts=True)
        check_batch_size(size, num_rows)
        if size < len(lengths):
            raise InvalidValueError(
                f"`batch_size` is {size}, but there are {len(lengths)} strata, and a batch needs a row of each. Use "
                "larger batches or fewer strata."
            )
        places = _share_out(lengths, size)
        stratum = np.repeat(np.arange(len(lengths)), places)
        begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        place = np.arange(size) - np.repeat(np.cumsum(places) - places, places)
        weights = (lengths / places)[stratum].astype(np.float32)
        members = np.argsort(codes, kind="stable")
        return cls(
            num_rows,
            size,
            jnp.asarray(members, jnp.int32),
            jnp.asarray(stratum, jnp.int32),
            jnp.asarray(place, jnp.int32),
            jnp.asarray(begins[stratum], jnp.int32),
            jnp.asarray(lengths[stratum], jnp.int32),
            jnp.asarray(weights),
        )

    @property
    def correction(self) -> float:
        """At most that of a plain batch: the gain from strata is not counted."""
        return 1.0 - self.size / self.num_rows

    @property
    def plan_size(self) -> int:
        """One number per row."""
        return self.size

    def plan(self, key: Key, step: Array) -> Array:
        """Row numbers, by a random order of each stratum."""
        words = jax.random.bits(jax.random.fold_in(key, step), (2, self.size), jnp.uint32)
        order = random_order(words[:, self.stratum], self.place, self.lengths)
        return self.members[self.begins + order]

    def row_weights(self, index: np.ndarray) -> np.ndarray | None:
        """N_s / n_s, by the place in the batch."""
        return np.tile(np.asarray(self.weights), len(index) // self.size)

    def take(self, data: Data, plan: Array) -> Batch:
        """A gather, with the weights of the places."""
        return Batch(gather(data, plan), plan, self.weights, 1.0, self.correction, self.num_rows)


def _share_out(lengths: np.ndarray, size: int) -> np.ndarray:
    """Places for strata of these lengths: one each, the others by largest remainder, never more than the rows."""
    places = np.ones(len(lengths), np.int64)
    for _ in range(len(lengths)):
        free = size - places.sum()
        room = lengths - places
        if free == 0:
            break
        ideal = np.maximum(size * lengths / lengths.sum() - places, 0.0) * (room > 0)
        ideal = ideal if ideal.sum() > 0 else room.astype(float)
        share = np.minimum(free * ideal / ideal.sum(), room)
        whole = np.floor(share).astype(np.int64)
        if whole.sum() == 0:
            order = np.argsort(-share, kind="stable")[:free]
            whole[order[share[order] > 0]] = 1
        places += whole
    return places
