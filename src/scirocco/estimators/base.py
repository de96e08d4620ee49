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
from scirocco.types import Array, Data, Key, Params, PyTree, Rows

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
    """Σ_i f(θ, x_i) over the first `num_rows` rows, in chunks, so that memory does not grow with the data."""
    chunk = min(num_rows, chunk or rows_per_chunk(data))
    steps, rest = divmod(num_rows, chunk)

    def one(step: Array, total: PyTree) -> PyTree:
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, step * chunk, chunk), data)
        return _tree.add(total, summand.total(position, rows))

    spec = jax.eval_shape(lambda p: summand.total(p, jax.tree.map(lambda leaf: leaf[:chunk], data)), position)
    total = jax.lax.fori_loop(0, steps, one, jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), spec))
    if rest:
        rows = jax.tree.map(lambda leaf: leaf[num_rows - rest : num_rows], data)
        total = _tree.add(total, summand.total(position, rows))
    return total


def rows_per_chunk(data: Data) -> int:
    """Rows that fill about 2 MB: large enough to keep a core busy, small enough for its cache."""
    row_bytes = max(1, sum(leaf.nbytes // max(1, leaf.shape[0]) for leaf in jax.tree.leaves(data)))
    return max(256, _CHUNK_BYTES // row_bytes)
