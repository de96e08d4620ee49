"""A better estimate in addition to the plain ones, for samplers that compare the two."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from scirocco import _tree
from scirocco._tree import pytree_dataclass, static
from scirocco.data.batching import AllRows, Batching
from scirocco.data.tables import Table, full_sum, random_rows
from scirocco.errors import InvalidValueError
from scirocco.estimators.base import Context, Estimate, Estimator, Passes, Prepared, Summand, Traits
from scirocco.model import Posterior
from scirocco.types import Array, Key, Params, PyTree, Rows

_ROWS = 1_024  # whose values give the variance of an estimate: to 5 %
_TABLE_NUMBERS = 1 << 24  # numbers of these values, at most


class ReferenceMemory(NamedTuple):
    """The last reference sum, and the variance of one plain estimate of it."""

    total: PyTree
    variance: PyTree
    before: PyTree | None = None
    """The sum before the last; None: all sums are exact."""
    error: PyTree | None = None
    """Its standard error."""
    excess: Array | None = None
    """The variance of a sum from some rows over its mean, for rows that count 0 or 1: N/size - 1."""

    def renewed(self, total: PyTree) -> ReferenceMemory:
        """The memory with a renewed sum."""
        if self.excess is None:
            return self._replace(total=total)
        factor = self.excess
        error = jax.tree.map(lambda t: jnp.sqrt(factor * jnp.maximum(t, 0.0)).astype(t.dtype), self.total)
        return self._replace(total=total, before=self.total, error=error)


@pytree_dataclass
class Referenced(Estimator):
    """The estimates of `inner`, each with a reference: the same sum from all or many rows, computed periodically.

    SCIR-CV compares every estimate with it. Before the first step the reference is the exact sum over all rows. It is
    renewed at the steps `every`, 2 `every`, ...; at these steps the estimate is the renewed reference itself.

    Parameters
    ----------
    inner
        An estimator without memory.
    every
        Steps between renewals; None: never, which is correct for counts that do not depend on the position.
    size
        Rows, drawn at random without replacement, in a renewed reference; None: all.
    """

    inner: Estimator
    every: int | None = static(default=None)
    size: int | None = static(default=None)

    def __post_init__(self) -> None:
        if isinstance(self.inner, Estimator) and not self.inner.traits.can_be_referenced:
            raise InvalidValueError(
                f"SCIRCV has its own control variate, which it compares with plain estimates: use sc.Minibatch, "
                f"sc.Stratified or sc.Full, not {type(self.inner).__name__}."
            )

    @property
    def core(self) -> Estimator:
        return self.inner

    @property
    def traits(self) -> Traits:
        """That a renewed reference may draw its rows."""
        return Traits(is_random=self.every is not None and self.size is not None)

    @property
    def passes(self) -> Passes:
        """At multiples of `every`, from `size` rows."""
        return Passes(self._next_pass, self._absorbed, self._rows_in_pass)

    def batching(self, num_rows: int) -> Batching:
        return self.inner.batching(num_rows)

    def prepare(self, model: Posterior, table: Table, position: Params, key: Key) -> Prepared:
        """One pass over all rows for the sum; the values of some rows for their spread."""
        memory = measure_counts(model, table, position, self.batching(table.num_rows), key)
        return Prepared(position, self._doubted(memory, table.num_rows), {"passes": 1.0})

    def blank_memory(self, position: Params, total: PyTree, num_rows: int) -> PyTree:
        return self._doubted(ReferenceMemory(total, total), num_rows)

    def _doubted(self, memory: ReferenceMemory, num_rows: int) -> ReferenceMemory:
        """A memory whose sums will be renewed from some rows remembers the sum before; the start has an exact one."""
        size = self._rows_in_pass(num_rows)
        if self.every is None or size == num_rows:
            return memory
        excess = jnp.asarray(num_rows / size - 1.0, jnp.float32)
        return memory._replace(before=memory.total, error=_tree.zeros_like(memory.total), excess=excess)

    def estimate(
        self, summand: Summand, position: Params, memory: ReferenceMemory, context: Context, noise: str = "none"
    ) -> tuple[Estimate, PyTree]:
        """The inner estimate, or a renewed reference."""

        def plain(memory: ReferenceMemory) -> tuple[PyTree, ReferenceMemory]:
            return self.inner.estimate(summand, position, (), context)[0].total, memory

        def renewed(memory: ReferenceMemory) -> tuple[PyTree, ReferenceMemory]:
            total = self._from_many(summand, position, context)
            return total, memory.renewed(total)

        if self.every is None or context.data is None:  # for streamed data the host makes the passes
            total, memory = plain(memory)
        else:
            due = (context.number > 0) & (context.number % self.every == 0)
            total, memory = jax.lax.cond(due, renewed, plain, memory)
        return Estimate(total, None, memory), memory

    def _from_many(self, summand: Summand, position: Params, context: Context) -> PyTree:
        num_rows = context.batch.num_rows
        size = self._rows_in_pass(num_rows)
        if size == num_rows:
            return full_sum(summand, position, context.data, num_rows, key=context.key)
        assert context.key is not None
        rows = random_rows(num_rows, size, False, context.data, jax.random.fold_in(context.key, 1))
        return _tree.scale(num_rows / size, full_sum(summand, position, rows, size, key=context.key))

    def _rows_in_pass(self, num_rows: int) -> int:
        if self.size is None or self.inner.traits.is_exact:
            return num_rows
        return min(self.size, num_rows)

    def _next_pass(self, number: int, num_rows: int) -> int | None:
        if self.inner.traits.is_exact:
            return number
        return None if self.every is None else max(1, -(-number // self.every)) * self.every

    def _absorbed(self, total: PyTree, position: Params, memory: ReferenceMemory, kind: str) -> tuple[Estimate, PyTree]:
        """The result of the pass is the reference."""
        memory = memory.renewed(total)
        return Estimate(total, None, memory), memory


def measure_counts(model: Posterior, table: Table, position: Params, batching: Batching, key: Key) -> ReferenceMemory:
    """The exact sum at `position` (one pass), and the variance of a plain estimate of it, from some rows."""
    total = table.sum(model.summand, position, key)
    count = min(table.num_rows, max(2, min(_ROWS, _TABLE_NUMBERS // _tree.size(position))))
    values = _values(model.summand, position, table.spread_rows(count), key)
    return ReferenceMemory(total, variance_of_estimates(total, values, table.num_rows, batching))


@partial(jax.jit, static_argnums=0)
def _values(summand: Summand, position: Params, rows: Rows, key: Key) -> PyTree:
    return summand.each(position, rows, key)


def variance_of_estimates(total: PyTree, values: PyTree, num_rows: int, batching: Batching) -> PyTree:
    """Variance of a plain estimate, N²/n S² c, from the sum over all rows and the values of some.

    Some rows give no information about rare counts, so S² is at least that of a count of 0 or 1 with the right mean.
    """
    if isinstance(batching, AllRows):
        return _tree.zeros_like(total)
    factor = num_rows**2 / batching.size * batching.correction

    def variance(t: Array, v: Array) -> Array:
        mean = jnp.clip(t / num_rows, 0.0, 1.0)
        return factor * jnp.maximum(jnp.var(v, axis=0), mean * (1.0 - mean))

    return jax.tree.map(variance, total, values)
