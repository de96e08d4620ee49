"""SAGA for summands whose values are mostly zeros."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scirocco import _tree
from scirocco._tree import pytree_dataclass
from scirocco.data.tables import Table
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import SAGA, Context, Estimate, Prepared
from scirocco.estimators.variance_reduced import TableMemory
from scirocco.models.factorisation.density import Compact
from scirocco.types import Array, Key, Params, PyTree, Rows


class _Compacted:
    """A summand whose values are the compact ones."""

    def __init__(self, summand: Any):
        self.summand = summand

    def __hash__(self) -> int:
        return hash((_Compacted, self.summand))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Compacted) and self.summand == other.summand

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        return self.summand.compact(position, rows)

    def total(
        self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None
    ) -> PyTree:
        return self.summand.total(position, rows, weights, key)


@pytree_dataclass
class CompactSAGA(SAGA):
    """`sc.SAGA` that remembers the gradient of a rating in 2D + 2 numbers instead of one for each parameter.

    The same estimate: what is remembered is expanded when it is summed. For `RatingModel`, whose summand has `compact`
    and `expand`; batches without replacement.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampling == "with_replacement":
            raise InvalidValueError('`sampling` of CompactSAGA must not be "with_replacement".')

    def check_memory(self, position: Params, num_rows: int, num_chains: int) -> None:
        """N × (2D + 2) numbers for each chain, and once more while a chunk is copied."""
        need = _tree.nbytes(_blank(position, 1)) * num_rows * (num_chains + 1)
        if need > self.max_memory:
            raise InvalidValueError(
                f"SAGA would keep {need / 2**30:.2f} GiB for {num_rows} ratings, more than `max_memory` "
                f"({self.max_memory / 2**30:.2f} GiB). Raise it, or use sc.ControlVariates."
            )

    def prepare(self, model: Any, table: Table, position: Params, key: Key) -> Prepared:
        """Fill the table at the starting point."""
        if not hasattr(model.summand, "compact"):
            raise InvalidTypeError(
                f"CompactSAGA needs a summand with `compact`; that of {model!r} has none. Use sc.SAGA."
            )
        values = table.each(_Compacted(model.summand), position, key)
        memory = TableMemory(values, table.sum(model.summand, position, key))
        return Prepared(position, memory, {"passes": 2.0})

    def blank_memory(self, position: Params, total: PyTree, num_rows: int) -> PyTree:
        """A table and its sum."""
        return TableMemory(_blank(position, num_rows), position)

    def estimate(
        self, summand: Any, position: Params, memory: TableMemory, context: Context, noise: str = "none"
    ) -> tuple[Estimate, PyTree]:
        """The sum of the table plus the scaled change over the batch; then the table learns the new values."""
        if noise != "none":
            raise InvalidTypeError("CompactSAGA gives no gradient-noise covariance: use sc.Minibatch.")
        batch = context.batch
        new = summand.compact(position, batch.rows)
        change = jax.tree.map(lambda v, table: v - table[batch.index], new, memory.table)
        sums = summand.expand(change, batch.rows, position, batch.weights)
        total = jax.tree.map(lambda t, s: t + batch.scale * s, memory.total, sums)
        # `add`, not `set`: the compiler copies the whole table for the latter
        table = jax.tree.map(lambda t, v: t.at[batch.index].add(v), memory.table, change)
        return Estimate(total), TableMemory(table, _tree.add(memory.total, sums))


def _blank(position: Params, num_rows: int) -> Compact:
    tables = (position["users"], position["items"])
    wide = [jnp.zeros((num_rows, table.shape[1]), table.dtype) for table in tables]
    return Compact(*wide, *(jnp.zeros(num_rows, tables[0].dtype) for _ in range(2)))
