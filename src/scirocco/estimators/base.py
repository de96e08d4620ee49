"""What every estimator is: an unbiased estimate of a sum over the data, and the memory it needs for that.

An estimator estimates Σ_i f(θ, x_i) for a summand f. For Langevin and Hamiltonian samplers f is the gradient of the
log likelihood; other samplers are driven by counts. It never sees a sampler.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from scirocco import _tree
from scirocco.estimators import noise as _noise
from scirocco.estimators.batching import Batch, Batching
from scirocco.types import Array, ArrayLike, Data, Key, Params, PyTree, Rows

_CHUNK_BYTES = 1 << 21


class Summand(Protocol):
    """f in Σ_i f(θ, x_i)."""

    def total(
        self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None
    ) -> PyTree:
        """Σ_i w_i f(θ, x_i) over the rows."""

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        """f(θ, x_i) for each row."""


class Estimate(NamedTuple):
    """An estimate of the sum over the data."""

    total: PyTree
    noise: PyTree | None = None
    """Covariance of `total` given θ, when it was asked for (see `scirocco.estimators.noise`)."""


class Context(NamedTuple):
    """What an estimate is made from, besides the position and the memory."""

    data: Data
    batch: Batch
    number: Array
    """How many estimates this chain has made before."""
    key: Key | None = None


class Prepared(NamedTuple):
    """What the set-up before sampling yields."""

    position: Params
    """Where the chain starts."""
    memory: PyTree
    report: dict[str, Any]
    """Numbers for the reader: passes over the data, distance to the mode, ..."""
    near_mode: bool = False
    """Whether `position` is known to be near the posterior mode."""
    gradient: PyTree | None = None
    """The exact gradient of the log posterior at `position`, when the set-up has made it anyway."""


class Estimator(abc.ABC):
    """Base of all estimators: frozen dataclasses and pytrees; what shapes the computation (batch size) is static."""

    @abc.abstractmethod
    def batching(self, num_rows: int) -> Batching:
        """How this estimator draws its rows; refuses batch sizes that the data cannot serve."""

    def prepare(self, model: Any, data: Data, position: Params, num_rows: int, key: Key) -> Prepared:
        """One-off work before the first step (host side): by default none."""
        return Prepared(position, (), {})

    @abc.abstractmethod
    def estimate(
        self, summand: Summand, position: Params, memory: PyTree, context: Context, noise: str = "none"
    ) -> tuple[Estimate, PyTree]:
        """The estimate at `position` and the memory for the next one."""

    def check_memory(self, position: Params, num_rows: int, num_chains: int) -> None:  # noqa: B027
        """Refuse to start when the memory would not fit; nothing to check by default."""


def estimate_from_rows(
    summand: Summand, position: Params, batch: Batch, key: Key | None, kind: str
) -> Estimate:
    """Plain estimate Σ_i w_i f(θ, x_i); rows are looked at one by one only when their covariance is wanted."""
    if kind == "none":
        total = summand.total(position, batch.rows, batch.weights, key)
        return Estimate(total if batch.weights is not None else _tree.scale(batch.scale, total))
    values = summand.each(position, batch.rows, key)
    return Estimate(weighted_sum(values, batch), _noise.covariance(values, batch, kind))


def weighted_sum(values: PyTree, batch: Batch) -> PyTree:
    """Σ_i w_i v_i over the leading axis."""
    weights = batch.weights
    if weights is None:
        return jax.tree.map(lambda v: batch.scale * v.sum(axis=0), values)
    return jax.tree.map(lambda v: jnp.tensordot(weights.astype(v.dtype), v, axes=1), values)


def full_sum(
    summand: Summand, position: Params, data: Data, num_rows: int, chunk: int | None = None
) -> PyTree:
    """Σ_i f(θ, x_i) over the first `num_rows` rows, in chunks, so that memory does not grow with the data.

    The last chunk reaches back to be full, and the rows that were counted already get the weight 0: one graph serves
    all chunks.
    """
    chunk = min(num_rows, chunk or rows_per_chunk(data))
    steps = -(-num_rows // chunk)
    weighted = num_rows % chunk != 0

    def part(step: ArrayLike) -> PyTree:
        begin = jnp.minimum(step * chunk, num_rows - chunk)
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, begin, chunk), data)
        fresh = begin + jnp.arange(chunk) >= step * chunk
        return summand.total(position, rows, fresh.astype(jnp.float32) if weighted else None)

    spec = jax.eval_shape(part, 0)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), spec)
    return jax.lax.fori_loop(0, steps, lambda step, total: _tree.add(total, part(step)), zeros)


def rows_per_chunk(data: Data) -> int:
    """Rows that fill about 2 MB: large enough to keep a core busy, small enough for its cache."""
    row_bytes = max(1, sum(leaf.nbytes // max(1, leaf.shape[0]) for leaf in jax.tree.leaves(data)))
    return max(256, _CHUNK_BYTES // row_bytes)
