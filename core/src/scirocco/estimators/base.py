"""The base of all estimators: an unbiased estimate of a sum over the data, and the memory it needs.

An estimator estimates Σ_i f(θ, x_i) for a summand f. For Langevin and Hamiltonian samplers f is the gradient of the
log likelihood; other samplers are driven by counts. It never sees a sampler.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

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
    reference: Any = None
    """A better estimate of the sum, from `Referenced`: its memory."""


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traits:
    """What is known about an estimator, and what it supports: the rest of the library reads these, never the class."""

    is_exact: bool = False
    """Whether every estimate is the sum itself."""
    is_uniform: bool = True
    """Whether all rows have the same probability, so that the noise of plain batches is that of the estimates."""
    looks_once: bool = False
    """Whether an estimate is the weighted sum over its batch, each row evaluated once: its auxiliary draws are then
    those of the batch."""
    keeps_one_sum: bool = False
    """Whether its memory is one sum over all rows, which does not change during the run."""
    learns: bool = False
    """Whether its memory changes during the run, and its noise with it."""
    finds_mode: bool = False
    """Whether `prepare` moves the start to the posterior mode, unless its field `centre` says where that is."""
    is_random: bool = False
    """Whether estimates are random beyond their batch, so that they need a key."""
    needs_index: bool = False
    """Whether estimates need the numbers of the rows in a batch."""
    can_spread: bool = False
    """Whether it supports rows that are spread over several devices."""
    serves_blocks: bool = False
    """Whether it supports `sc.Blocks`, which divides one batch among the blocks."""
    can_be_referenced: bool = False
    """Whether its estimates can be compared with a reference (`Referenced`)."""
    sampling: str = "auto"
    """How rows are drawn, as set by the user: "auto" leaves it to the source of streamed data."""
    precision: str | None = None
    """Of the factors of matrix products in an estimate, as set by the user; None: as in `full_products`."""
    order: int | None = None
    """The order of its expansion; None: chosen in the set-up."""
    remainder: Callable[[Summand, Params, PyTree, Batch], PyTree] | None = None
    """`remainder(summand, position, memory, batch)`: what its expansion leaves out, estimated from a batch, if its
    memory is an expansion with a bound (`sc.Taylor`)."""
    for_drawn_sums: Callable[[], Estimator] | None = None
    """Makes the estimator in place of this one for a block whose sum is drawn at random; None: this one."""
    only_for_setup: tuple[str, ...] = ()
    """Fields that only matter before the first step: they are not stored."""


class Passes(NamedTuple):
    """The passes over all rows that an estimator makes during the run.

    With all rows on the device the estimate makes them itself; for streamed data the host makes them.
    """

    due: Callable[[int, int], int | None]
    """`due(number, num_rows)`: the first estimate from `number` on that needs a pass; None: none does."""
    absorb: Callable[[PyTree, Params, PyTree, str], tuple[Estimate, PyTree]]
    """`absorb(total, position, memory, noise)`: the estimate and the memory after a pass that found the exact sum."""
    rows: Callable[[int], int] = int
    """`rows(num_rows)`: how many rows, drawn at random, a pass takes; by default all."""


class Estimator(abc.ABC):
    """Base of all estimators: frozen dataclasses and pytrees; fields that determine shapes (batch size) are static.

    Override `traits` with an attribute, or with a property if they depend on the fields.
    """

    batch_size: int | None = None
    """Rows per estimate; None: all of them, or as in the wrapped estimator."""

    @property
    def traits(self) -> Traits:
        """What is known about it, and what it supports."""
        return Traits()

    @property
    def passes(self) -> Passes | None:
        """The passes over all rows that it makes during the run; None: it makes none."""
        return None

    @property
    def is_open(self) -> bool:
        """Whether `prepare` completes it (`Prepared.estimator`)."""
        return False

    @property
    def core(self) -> Estimator:
        """The estimator that makes the estimates: itself, unless it wraps another."""
        return self

    @abc.abstractmethod
    def batching(self, num_rows: int) -> Batching:
        """How this estimator draws its rows; raises an error for batch sizes that do not suit the data."""

    def resolved(self, num_rows: int) -> Estimator:
        """The estimator with fields filled in that depend on the total number of rows; itself by default."""
        return self

    def check_memory(self, position: Params, num_rows: int, num_chains: int) -> None:  # noqa: B027
        """Raise an error if the memory would not suffice; by default nothing is checked."""

    def prepare(self, model: Posterior, table: Table, position: Params, key: Key) -> Prepared:
        """One-off work before the first step (host side): by default none."""
        return Prepared(position, (), {})

    def blank_memory(self, position: Params, total: PyTree, num_rows: int) -> PyTree:
        """A value with the structure and shapes of the memory (traced on shapes only, when a run is resumed).

        `total` has the structure and shapes of the estimated sum.
        """
        return ()

    @abc.abstractmethod
    def estimate(
        self, summand: Summand, position: Params, memory: PyTree, context: Context, noise: str = "none"
    ) -> tuple[Estimate, PyTree]:
        """The estimate at `position` and the memory for the next one."""


def next_pass(estimator: Estimator, number: int, num_rows: int) -> int | None:
    """The first estimate from `number` on that needs a pass over all rows; None: none does."""
    return None if estimator.passes is None else estimator.passes.due(number, num_rows)


def around(estimator: Any, centre: Params) -> Any:
    """The estimator for estimates near `centre` (user's units), without a search for the mode."""
    return dataclasses.replace(estimator, centre=centre) if estimator.traits.finds_mode else estimator


def serving(estimator: Estimator, summand_is_drawn: bool) -> Estimator:
    """The estimator for one block of a model, whose sum may be drawn at random."""
    other = estimator.traits.for_drawn_sums
    return other() if summand_is_drawn and other is not None else estimator


def estimate_from_rows(summand: Summand, position: Params, batch: Batch, key: Key | None, kind: str) -> Estimate:
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
        return WithValue(covariance(values.gradient, batch, kind), covariance(values.value, batch, "diagonal"))
    n = jax.tree.leaves(values)[0].shape[0]
    if n < 2:
        raise InvalidValueError("a batch of one row has no covariance: use `batch_size` >= 2 with this sampler.")
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


# -- the precision of the factors of matrix products on accelerators

PRECISIONS = {"float32": "float32", "bfloat16": "BF16_BF16_F32"}
"""What a user can set, and what JAX calls it: factors of so many digits, and sums in float32."""


def full_products(estimator: Estimator | None) -> contextlib.AbstractContextManager[Any]:
    """Products of matrices in full precision, except for estimates that are plain sums over a batch.

    Accelerators round the factors of products to about ten bits. The noise of a plain batch hides that, but in a
    difference of nearly equal gradients, or in an exact log density, it is an error. A precision that the user has set
    (`jax.default_matmul_precision`) is used for everything.
    """
    chosen = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    exact = jax.default_backend() == "cpu" or chosen is not None
    if exact or estimator is None or estimator.core.traits.looks_once:
        return contextlib.nullcontext()
    return jax.default_matmul_precision("float32")


def products_of(estimator: Estimator) -> contextlib.AbstractContextManager[Any]:
    """Products of matrices in the precision of an estimate: as its user has set it, or as in `full_products`."""
    precision = estimator.core.traits.precision
    if precision is None:
        return full_products(estimator)
    if jax.default_backend() == "cpu":  # it never rounds
        return contextlib.nullcontext()
    return jax.default_matmul_precision(PRECISIONS[precision])
