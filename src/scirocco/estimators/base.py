"""The base of all estimators: an unbiased estimate of a sum over the data, and the memory it needs.

An estimator estimates Σ_i f(θ, x_i) for a summand f. For Langevin and Hamiltonian samplers f is the gradient of the
log likelihood; other samplers are driven by counts. It never sees a sampler.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from scirocco import _tree
from scirocco.data.batching import Batch, Batching
from scirocco.data.tables import Summand, Table, full_sum, rows_per_chunk
from scirocco.errors import InvalidValueError
from scirocco.model import Posterior, WithValue
from scirocco.types import Array, Data, Key, Params, PyTree

__all__ = ["Summand", "full_sum", "rows_per_chunk"]


class Estimate(NamedTuple):
    """An estimate of the sum over the data."""

    total: PyTree
    noise: PyTree | None = None
    """Covariance of `total` given θ, if requested (see `covariance`)."""
    reference: tuple[PyTree, PyTree] | None = None
    """A better estimate of the sum, and the variance of a single one, from `Referenced`."""


class Context(NamedTuple):
    """The inputs of an estimate, in addition to the position and the memory."""

    data: Data | None
    """All rows, if they are on the device; None for streamed data."""
    batch: Batch
    number: Array
    """The number of estimates that this chain has made before."""
    key: Key | None = None


class Prepared(NamedTuple):
    """The result of the set-up before sampling."""

    position: Params
    """Where the chain starts."""
    memory: PyTree
    report: dict[str, Any]
    """Numbers for the user: passes over the data, distance to the mode, ..."""
    near_mode: bool = False
    """Whether `position` is known to be near the posterior mode."""
    gradient: PyTree | None = None
    """The result of `combine` for the exact sum at `position` (the gradient of the log posterior), if the set-up has
    computed it."""
    estimator: Any = None
    """The estimator with what it has found filled in, if that changes how it draws its rows."""


class Estimator(abc.ABC):
    """Base of all estimators: frozen dataclasses and pytrees; fields that determine shapes (batch size) are static."""

    @abc.abstractmethod
    def batching(self, num_rows: int) -> Batching:
        """How this estimator draws its rows; raises an error for batch sizes that do not suit the data."""

    # Capabilities of an estimator: the rest of the library checks these, never the class.

    finds_mode: ClassVar[bool] = False
    """Whether `prepare` moves the start to the posterior mode."""
    needs_index: ClassVar[bool] = False
    """Whether estimates need the numbers of the rows in a batch."""
    is_exact: ClassVar[bool] = False
    """Whether every estimate is the sum itself."""
    is_uniform: ClassVar[bool] = True
    """Whether all rows have the same probability, so that the noise of plain batches is that of the estimates."""
    can_spread: ClassVar[bool] = False
    """Whether it supports rows that are spread over several devices."""
    serves_blocks: ClassVar[bool] = False
    """Whether it supports `sc.Blocks`, which divides one batch among the blocks."""
    can_be_referenced: ClassVar[bool] = False
    """Whether its estimates can be compared with a reference (`Referenced`)."""
    looks_once: ClassVar[bool] = False
    """Whether an estimate is the weighted sum over its batch, each row evaluated once: its auxiliary draws are then
    those of the batch."""
    keeps_one_sum: ClassVar[bool] = False
    """Whether its memory is one sum over all rows, which does not change during the run."""
    expands: ClassVar[bool] = False
    """Whether its memory is an expansion with a bound for its remainders (`sc.Taylor`)."""
    learns: ClassVar[bool] = False
    """Whether its memory changes during the run, and its noise with it."""
    only_for_setup: ClassVar[tuple[str, ...]] = ()
    """Fields that only matter before the first step: they are not stored."""
    sampling: str = "auto"
    """How rows are drawn, as set by the user: "auto" leaves it to the source of streamed data."""
    precision: str | None = None
    """Of the factors of matrix products in an estimate, as set by the user; None: as in `full_products`."""
    order: int | None = None
    """The order of its expansion (`expands`); None: chosen in the set-up."""
    batch_size: int | None = None
    """Rows per estimate; None: all of them, or as in the wrapped estimator."""

    @property
    def core(self) -> Estimator:
        """The estimator that makes the estimates: itself, unless it wraps another."""
        return self

    def serving(self, summand_is_drawn: bool) -> Estimator:
        """The estimator for one block of a model, whose sum may be drawn at random; itself by default."""
        return self

    def around(self, centre: Params) -> Estimator:
        """The estimator for estimates near `centre` (user's units), without a search; by default itself."""
        return self

    def resolved(self, num_rows: int) -> Estimator:
        """The estimator with fields filled in that depend on the total number of rows; itself by default."""
        return self

    @property
    def is_open(self) -> bool:
        """Whether `prepare` completes it (`Prepared.estimator`)."""
        return False

    @property
    def needs_key(self) -> bool:
        """Whether estimates are random beyond their batch."""
        return False

    def prepare(self, model: Posterior, table: Table, position: Params, key: Key) -> Prepared:
        """One-off work before the first step (host side): by default none."""
        return Prepared(position, (), {})

    def blank_memory(self, position: Params, total: PyTree, num_rows: int) -> PyTree:
        """A value with the structure and shapes of the memory (traced on shapes only, when a run is resumed).

        `total` has the structure and shapes of the estimated sum.
        """
        return ()

    def rows_in_pass(self, num_rows: int) -> int:
        """The number of rows, drawn at random, in a pass over streamed data; by default all of them."""
        return num_rows

    def next_pass(self, number: int, num_rows: int) -> int | None:
        """The first estimate from `number` on that needs a pass over all rows; None: none does.

        With all rows on the device the estimate makes that pass itself; for streamed data the host makes it and passes
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

    def remainder(self, summand: Summand, position: Params, memory: PyTree, batch: Batch) -> PyTree:
        """What its expansion leaves out, estimated from a batch (`expands`)."""
        raise NotImplementedError(f"{type(self).__name__} has no expansion")

    def check_memory(self, position: Params, num_rows: int, num_chains: int) -> None:  # noqa: B027
        """Raise an error if the memory would not suffice; by default nothing is checked."""


def estimate_from_rows(
    summand: Summand, position: Params, batch: Batch, key: Key | None, kind: str
) -> Estimate:
    """Plain estimate Σ_i w_i f(θ, x_i); rows are evaluated one by one only if their covariance is requested."""
    if kind == "none":
        total = summand.total(position, batch.rows, batch.weights, key)
        return Estimate(total if batch.weights is not None else _tree.scale(batch.scale, total))
    values = summand.each(position, batch.rows, key)
    return Estimate(weighted_sum(values, batch), covariance(values, batch, kind))


def weighted_sum(values: PyTree, batch: Batch) -> PyTree:
    """Σ_i w_i v_i over the leading axis."""
    weights = batch.weights
    if weights is None:
        return jax.tree.map(lambda v: batch.scale * v.sum(axis=0), values)
    return jax.tree.map(lambda v: jnp.tensordot(weights.astype(v.dtype), v, axes=1), values)


# -- the covariance of an estimate, from the rows of its own minibatch ----------------------------------------
#
# For n uniform rows with values v_i (gradients, or gradients minus a control variate) the estimate N/n Σ v_i has
# covariance N²/n · S² · c, where S² is the covariance of the v_i over the data and c the finite-population factor
# (1 - n/N without replacement). For rows drawn with probability p_i it is the covariance of v_i/p_i, over n.


def covariance(values: PyTree, batch: Batch, kind: str) -> PyTree:
    """Estimated covariance of the estimate whose rows contributed `values`.

    `diagonal`: a tree like the parameters. `scalar`: its mean over all parameters. `full`: a (dim, dim) matrix in the
    order of `jax.flatten_util.ravel_pytree`. If rows contribute a value in addition to the gradient, its variance
    is returned next to the covariance.
    """
    if isinstance(values, WithValue):
        return WithValue(
            covariance(values.gradient, batch, kind), covariance(values.value, batch, "diagonal")
        )
    n = jax.tree.leaves(values)[0].shape[0]
    if n < 2:
        raise InvalidValueError(
            "a batch of one row has no covariance: use `batch_size` >= 2 with this sampler."
        )
    correction = batch.correction
    # the estimate of the sum from each row alone, over n
    weighted = jax.tree.map(lambda v: _spread(batch, v) * v, values)
    diagonal = jax.tree.map(lambda w: jnp.var(w, axis=0, ddof=1) * n * correction, weighted)
    if kind == "diagonal":
        return diagonal
    if kind == "scalar":
        total = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(diagonal))
        return total / sum(leaf.size for leaf in jax.tree.leaves(diagonal))
    flat = jax.vmap(lambda w: ravel_pytree(w)[0])(weighted)
    centred = flat - flat.mean(axis=0)
    return centred.T @ centred * (n * correction / (n - 1))


def _spread(batch: Batch, like: Array) -> Array:
    if batch.weights is None:
        return jnp.asarray(batch.scale, like.dtype)
    return batch.weights.reshape((-1,) + (1,) * (like.ndim - 1)).astype(like.dtype)


def none_at_all(total: PyTree, position: PyTree, kind: str) -> PyTree | None:
    """The zero covariance of an exact sum; that of its value has no extra cost."""
    if isinstance(total, WithValue):
        return WithValue(none_at_all(total.gradient, position, kind), jnp.zeros_like(total.value))
    if kind == "none":
        return None
    if kind == "diagonal":
        return jax.tree.map(jnp.zeros_like, position)
    dimension = sum(leaf.size for leaf in jax.tree.leaves(position))
    return jnp.zeros(() if kind == "scalar" else (dimension, dimension))
