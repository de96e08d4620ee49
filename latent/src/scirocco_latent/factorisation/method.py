"""A sampler and a gradient estimator for ratings.

`WithPrecisions` draws the precisions of the tables from their conditional distribution at each step; `CompactSAGA` is
SAGA for summands whose values are mostly zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from scirocco import _tree
from scirocco._tree import pytree_dataclass, static
from scirocco.data.tables import Table
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import SAGA, Context, Estimate, Prepared
from scirocco.estimators.variance_reduced import TableMemory
from scirocco.model import Posterior
from scirocco.samplers import Gradient, Known, Mover, Needs, Sampler, Scales
from scirocco.samplers.base import rebuilt
from scirocco.types import Array, Key, Params, PyTree, Rows
from scirocco_latent.factorisation.density import TABLES, Compact, RatingSum

PRECISIONS = "precisions"


def gamma_conditional(table: Array, shape: float, rate: float) -> tuple[float, Array]:
    """Shape and rate of λ given x_k ~ N(0, 1/λ) for each entry of `table`, when λ ~ Gamma(shape, rate).

    Gamma(shape + size/2, rate + Σ x_k²/2).
    """
    return shape + table.size / 2, rate + 0.5 * jnp.vdot(table, table)


class PrecisionState(NamedTuple):
    """Position of the chain, and the state of the inner sampler, whose position has no precisions."""

    position: Params
    inner: Any


class PrecisionNoise(NamedTuple):
    """Noise of the inner sampler, and a standard Gamma variate for each table: only its rate depends on the state."""

    inner: PyTree
    gammas: Array


@pytree_dataclass
class WithPrecisions(Mover):
    r"""An inner sampler for the tables, and an exact draw of their precisions after each of its steps.

    .. math:: x' = \text{inner step}(x, ĝ(x, λ)), \qquad
        λ_t' ∼ Gamma(\text{shape} + d_t/2, \; \text{rate} + |x_t'|^2/2)

    It has the target of the inner sampler: a Gibbs draw leaves the posterior invariant. Cost per step: four Gamma
    variates, and a sum of squares for each table.

    Parameters
    ----------
    inner
        Any sampler that needs only the gradient; step sizes by name refer to the parameters without
        `precisions`.
    shape, rate
        Parameters of the Gamma prior of the precisions, as in the model.
    """

    inner: Any
    shape: float = static(default=1.0)
    rate: float = static(default=1.0)

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Sampler):
            raise InvalidTypeError(f"`inner` must be a sampler such as sc.SGLD(1e-4), got {self.inner!r}.")
        alone = Needs(mode=self.inner.needs.mode, metric=self.inner.needs.metric)
        if not isinstance(self.inner, Mover) or self.inner.needs != alone:
            raise InvalidTypeError(
                f"{type(self.inner).__name__} needs more than the gradient: with BPMF use sc.SGLD, "
                "sc.LeafScaledSGLD, sc.SGHMC, sc.BAOAB, sc.SGNHT or sc.BADODAB."
            )

    @property
    def step_size(self) -> Any:
        """The inner sampler's."""
        return self.inner.step_size

    @property
    def temperature(self) -> Any:
        """The inner sampler's."""
        return self.inner.temperature

    @property
    def known(self) -> Known:
        """The inner sampler's unit of the step size."""
        return Known(step_order=self.inner.known.step_order)

    def resolve(self, scales: Scales, params: Params) -> WithPrecisions:
        """A copy with the missing settings of the inner sampler filled in."""
        cut = scales._replace(noise=_without(scales.noise), information=_without(scales.information))
        return rebuilt(self, inner=self.inner.resolve(cut, _without(params)))

    def check_params(self, params: Params, num_steps: int) -> None:
        """Check the parameters with the inner sampler."""
        self.inner.check_params(_without(params), num_steps)

    def init(self, params: Params, key: Key) -> PrecisionState:
        """Initial state, with the given precisions."""
        return PrecisionState(params, self.inner.init(_without(params), key))

    def noise(self, key: Key, params: Params) -> PrecisionNoise:
        """Normal variates for the tables, Gamma variates for the precisions."""
        first, second = jax.random.split(key)
        rest = _without(params)
        shapes = jnp.array([self.shape + rest[name].size / 2 for name in TABLES], params[PRECISIONS].dtype)
        return PrecisionNoise(self.inner.noise(first, rest), jax.random.gamma(second, shapes, dtype=shapes.dtype))

    def step(self, state: PrecisionState, gradient: Gradient, noise: PyTree, number: Array) -> PrecisionState:
        """Move the tables, then draw their precisions; positions have log λ."""
        inner = self.inner.step(state.inner, Gradient(_without(gradient.total)), noise.inner, number)
        rates = jnp.stack([gamma_conditional(inner.position[t], self.shape, self.rate)[1] for t in TABLES])
        drawn = jnp.log(noise.gammas) - jnp.log(rates)
        return PrecisionState({**inner.position, PRECISIONS: drawn}, inner)

    def stats(self, state: PrecisionState) -> dict[str, Array]:
        """The inner sampler's."""
        return self.inner.stats(state.inner)


def _without(tree: PyTree) -> PyTree:
    """The parameters without the precisions."""
    return {name: leaf for name, leaf in tree.items() if name != PRECISIONS}


# -- SAGA ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Compacted:
    """A summand with compact values."""

    summand: RatingSum

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        return self.summand.compact(position, rows)

    def total(self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None) -> PyTree:
        return self.summand.total(position, rows, weights, key)


@pytree_dataclass
class CompactSAGA(SAGA):
    """`sc.SAGA` that stores the gradient of a rating in 2D + 2 numbers instead of one per parameter.

    The estimate is the same: stored values are expanded when they are summed. Requires `RatingModel`, whose summand has
    `compact` and `expand`, and batches without replacement.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampling == "with_replacement":
            raise InvalidValueError('`sampling` of CompactSAGA must not be "with_replacement".')

    def check_memory(self, position: Params, num_rows: int, num_chains: int) -> None:
        """Check the memory: N × (2D + 2) numbers per chain, and as many again while a chunk is copied."""
        need = _tree.nbytes(_blank(position, 1)) * num_rows * (num_chains + 1)
        if need > self.max_memory:
            raise InvalidValueError(
                f"SAGA would keep {need / 2**30:.2f} GiB for {num_rows} ratings, more than `max_memory` "
                f"({self.max_memory / 2**30:.2f} GiB). Increase it, or use sc.ControlVariates."
            )

    def prepare(self, model: Posterior, table: Table, position: Params, key: Key) -> Prepared:
        """Fill the table at the starting point."""
        if not isinstance(model.summand, RatingSum):
            raise InvalidTypeError(
                f"CompactSAGA requires a summand with `compact`; that of {model!r} has none. Use sc.SAGA."
            )
        values = table.each(_Compacted(model.summand), position, key)
        memory = TableMemory(values, table.sum(model.summand, position, key))
        return Prepared(position, memory, {"passes": 2.0})

    def blank_memory(self, position: Params, total: PyTree, num_rows: int) -> PyTree:
        """An empty table and its sum."""
        return TableMemory(_blank(position, num_rows), position)

    def estimate(
        self, summand: Any, position: Params, memory: TableMemory, context: Context, noise: str = "none"
    ) -> tuple[Estimate, PyTree]:
        """The sum of the table plus the scaled change over the batch; then the table is updated."""
        if noise != "none":
            raise InvalidTypeError("CompactSAGA does not estimate the gradient-noise covariance: use sc.Minibatch.")
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
