"""What every estimator is: an unbiased estimate of a sum over the data, and the memory it needs for that.

An estimator estimates Σ_i f(θ, x_i) for a summand f. For Langevin and Hamiltonian samplers f is the gradient of the
log likelihood; other samplers are driven by counts. It never sees a sampler.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from scirocco import _tree
from scirocco.data.batching import Batch, Batching
from scirocco.data.tables import Summand, Table, full_sum, rows_per_chunk
from scirocco.estimators import noise as _noise
from scirocco.types import Array, Data, Key, Params, PyTree

__all__ = ["Summand", "full_sum", "rows_per_chunk"]


class Estimate(NamedTuple):
    """An estimate of the sum over the data."""

    total: PyTree
    noise: PyTree | None = None
    """Covariance of `total` given θ, when it was asked for (see `scirocco.estimators.noise`)."""
    reference: tuple[PyTree, PyTree] | None = None
    """A better estimate of the sum, and the variance of a single one, from `Referenced`."""


class Context(NamedTuple):
    """What an estimate is made from, besides the position and the memory."""

    data: Data | None
    """All rows, where they are on the device; None for streamed data."""
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

    needs_index = False
    """Whether estimates need the numbers of the rows in a batch."""

    @property
    def needs_key(self) -> bool:
        """Whether estimates are random beyond their batch."""
        return False

    def prepare(self, model: Any, table: Table, position: Params, key: Key) -> Prepared:
        """One-off work before the first step (host side): by default none."""
        return Prepared(position, (), {})

    def blank_memory(self, position: Params, num_rows: int) -> PyTree:
        """Something with the structure and shapes of the memory (traced on shapes only, when a run is resumed)."""
        return ()

    def rows_in_pass(self, num_rows: int) -> int:
        """How many rows, drawn at random, a pass over streamed data takes; all of them by default."""
        return num_rows

    def next_pass(self, number: int, num_rows: int) -> int | None:
        """The first estimate from `number` on that needs a pass over all rows; None: none does.

        With all rows on the device the estimate makes that pass itself; for streamed data the host makes it and hands
        the sum to `from_pass`.
        """
        return None

    def from_pass(
        self, total: PyTree, position: Params, memory: PyTree, kind: str
    ) -> tuple[Estimate, PyTree]:
        """The estimate and the memory after a pass that found the exact sum `total` at `position`."""
        raise NotImplementedError(f"{type(self).__name__} makes no passes")

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
