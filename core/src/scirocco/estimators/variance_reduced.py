"""Estimators with memory: control variates (fixed or moving centre) and SAGA.

All have the form  total + Σ_{i in S} w_i [f(θ, x_i) - m_i],  where the m_i are remembered values with the exact sum
`total`: unbiased for any m_i, and exact if they equal f(θ, x_i).
"""

from __future__ import annotations

import dataclasses
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.data.batching import SAMPLING, Batching, batching
from scirocco.data.tables import OverDevices, Table
from scirocco.data.unequal import WeightedRows
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import bounds
from scirocco.estimators.base import (
    Context,
    Estimate,
    Estimator,
    Passes,
    Prepared,
    Summand,
    Traits,
    covariance,
    full_sum,
    none_at_all,
    weighted_sum,
)
from scirocco.estimators.mode import find_mode
from scirocco.estimators.plain import Minibatch
from scirocco.model import Posterior
from scirocco.model.base import bare
from scirocco.types import Array, Key, Params, PyTree


class CentredMemory(NamedTuple):
    """A centre θ̂ and the exact sum Σ_i f(θ̂, x_i)."""

    centre: Params
    total: PyTree


class _Centred(Estimator):
    """total + Σ w_i [f(θ, x_i) - f(θ̂, x_i)], the SAME rows in both."""

    def estimate(
        self, summand: Summand, position: Params, memory: CentredMemory, context: Context, noise: str = "none"
    ) -> tuple[Estimate, PyTree]:
        batch, key = context.batch, context.key
        if noise == "none":
            # rows on several devices: sum the difference over them once
            own = summand.here if isinstance(summand, OverDevices) else summand
            here = own.total(position, batch.rows, batch.weights, key)
            there = own.total(memory.centre, batch.rows, batch.weights, key)
            difference = _tree.subtract(here, there)
            if isinstance(summand, OverDevices):
                difference = summand.across(difference)
            factor = batch.scale if batch.weights is None else 1.0
            return Estimate(jax.tree.map(lambda t, change: t + factor * change, memory.total, difference)), memory
        here, there = summand.each(position, batch.rows, key), summand.each(memory.centre, batch.rows, key)
        differences = _tree.subtract(here, there)
        total = _tree.add(memory.total, weighted_sum(differences, batch))
        return Estimate(total, covariance(differences, batch, noise)), memory

    def blank_memory(self, position: Params, total: PyTree, num_rows: int) -> PyTree:
        return CentredMemory(position, total)


@cited("control variates for the gradient, centred at the mode", "baker2019")
@pytree_dataclass
class ControlVariates(_Centred):
    """Σ_i f(θ̂, x_i) + (N/n) Σ_{i in S} [f(θ, x_i) - f(θ̂, x_i)] with a fixed centre θ̂ at the posterior mode.

    The variance decreases with |θ - θ̂|², and the posterior concentrates like 1/√N, so a batch size that does not
    grow with N suffices. The set-up finds the mode (optax Adam on minibatches over several learning rates, then 1 to 3
    Newton corrections, each a pass over the data) and the exact sum there. The chain starts at the mode.
    (Baker, Fearnhead, Fox & Nemeth 2019; thesis section 3.3.)

    Parameters
    ----------
    batch_size
        n.
    centre
        θ̂, if it is known; then only one pass for the exact sum is made. In the user's units.
    optimizer, num_optimizer_steps
        An `optax` optimiser that replaces the automatic one, and its number of minibatch steps.
    polish
        Whether Newton corrections follow the optimiser. They are kept only if they raise the log posterior.
    sampling
        As for `Minibatch`; rows with `probabilities` are drawn with replacement.
    probabilities
        For data in which a few rows have much larger gradients than the rest: row i is drawn with probability p_i, and
        its difference has the weight 1/(n p_i) in place of N/n. "lipschitz": p_i ∝ L_i, a Lipschitz constant of the
        row's gradient, for which the variance is at most (Σ L_i)² |θ - θ̂|² / n (thesis, lemma 3.3.3), while that of
        uniform rows is N Σ L_i² |θ - θ̂|² / n. L_i is that of the model's `curvature_bound`, or is measured at the
        centre (two passes). Or an array with one number > 0 per row.

    Examples
    --------
    >>> import scirocco as sc
    >>> estimator = sc.ControlVariates(batch_size=500)
    >>> for_heavy_rows = sc.ControlVariates(batch_size=500, probabilities="lipschitz")
    """

    batch_size: int = static()
    centre: Params | None = None
    optimizer: Any = static(default=None)
    num_optimizer_steps: int | None = static(default=None)
    polish: bool = static(default=True)
    sampling: str = static(default="auto")
    probabilities: Any = None

    def __post_init__(self) -> None:
        _checks.positive_int(self.batch_size, "batch_size")
        _checks.choice(self.sampling, "sampling", SAMPLING)
        if self.probabilities is not None:
            if self.sampling != "auto":
                raise InvalidValueError(
                    "`sampling` of ControlVariates does not apply to rows with `probabilities`: omit one of them."
                )
            if isinstance(self.probabilities, str):
                _checks.choice(self.probabilities, "probabilities", ("lipschitz",))
        if self.num_optimizer_steps is not None:
            _checks.positive_int(self.num_optimizer_steps, "num_optimizer_steps")
        if self.optimizer is not None and not hasattr(self.optimizer, "update"):
            raise InvalidTypeError(
                "`optimizer` of ControlVariates must be an optax optimiser such as optax.adam(0.01), got "
                f"{self.optimizer!r}."
            )

    @cached_property
    def traits(self) -> Traits:
        """Only uniform rows can be spread; random sums have no exact value at a centre."""
        uniform = self.probabilities is None
        return Traits(
            keeps_one_sum=True,
            finds_mode=True,
            is_uniform=uniform,
            can_spread=uniform,
            serves_blocks=not self.is_open,  # probabilities are found for all blocks together
            sampling=self.sampling,
            for_drawn_sums=partial(Minibatch, self.batch_size, self.sampling),
            only_for_setup=("optimizer",),
        )

    @property
    def is_open(self) -> bool:
        return isinstance(self.probabilities, str)

    def batching(self, num_rows: int) -> Batching:
        if self.probabilities is None:
            return batching(self.batch_size, num_rows, self.sampling)
        if self.is_open:  # until they are known
            return batching(self.batch_size, num_rows, "with_replacement")
        return WeightedRows.from_probabilities(self.probabilities, num_rows, self.batch_size)

    def prepare(self, model: Posterior, table: Table, position: Params, key: Key) -> Prepared:
        """Find the mode, the exact sum there, and the probabilities."""
        if self.is_open and model.facts.drive != "gradient":
            raise InvalidTypeError(
                'probabilities="lipschitz" of ControlVariates requires the gradient of a log density: use a sc.Model, '
                "or pass an array."
            )
        # counts have no density to maximise: stay at the start
        if self.centre is not None or model.facts.drive != "gradient":
            centre = position
            if self.centre is not None:
                centre = on_real_line(self.centre, model, position, "ControlVariates")
            total = table.sum(model.summand, centre, key)
            gradient = model.combine(centre, total)
            report: dict[str, Any] = {"passes": 1.0}
        else:
            centre, total, gradient, report = find_mode(
                bare(model), table, position, key, self.optimizer, self.num_optimizer_steps, self.polish
            )
            if model.facts.has_value:  # repeat with the value
                total = table.sum(model.summand, centre, key)
                gradient, report = model.combine(centre, total), {**report, "passes": report["passes"] + 1.0}
        found = None
        if self.is_open:
            sizes = bounds.row_sizes(bare(model), table, centre)
            found = dataclasses.replace(self, probabilities=bounds.shares(sizes).astype(np.float32))
            report = {**report, "passes": report["passes"] + 2.0}
        memory = CentredMemory(centre, total)
        return Prepared(centre, memory, report, near_mode=True, gradient=gradient, estimator=found)


def on_real_line(centre: Params, model: Any, position: Params, owner: str) -> Params:
    """The user's centre as a position; raises an error for other structures or shapes, and for NaN."""
    params = jax.eval_shape(model.constrain, position)
    if _tree.leaf_names(centre) != _tree.leaf_names(params):
        raise InvalidValueError(
            f"`centre` of {owner} must have the structure of the parameters, {_tree.leaf_names(params)}; "
            f"it has {_tree.leaf_names(centre)}."
        )
    named = zip(_tree.leaf_names(params), jax.tree.leaves(centre), jax.tree.leaves(params), strict=True)
    for name, value, like in named:
        if np.shape(value) != like.shape:
            raise InvalidValueError(
                f"`centre` of {owner} has shape {np.shape(value)} for `{name}`; the parameter has {like.shape}."
            )
        if not np.all(np.isfinite(value)):
            raise InvalidValueError(f"`centre` of {owner} has NaN or infinite values in `{name}`.")
    return model.unconstrain(jax.tree.map(lambda c, p: jnp.asarray(c, p.dtype), centre, params))


@cited("stochastic variance reduced gradients", "dubey2016 johnson2013")
@pytree_dataclass
class SVRG(_Centred):
    """Control variates whose centre moves to the chain's position every `refresh_every` steps (Johnson & Zhang 2013).

    Needs no mode and follows a chain that moves far; costs one pass over the data for every refresh.

    Parameters
    ----------
    batch_size
        n.
    refresh_every
        Steps between refreshes; by default 2 N/n, so that refreshes cost half as much as the batches.
    sampling
        As for `Minibatch`.
    """

    batch_size: int = static()
    refresh_every: int | None = static(default=None)
    sampling: str = static(default="auto")

    def __post_init__(self) -> None:
        _checks.positive_int(self.batch_size, "batch_size")
        _checks.choice(self.sampling, "sampling", SAMPLING)
        if self.refresh_every is not None:
            _checks.positive_int(self.refresh_every, "refresh_every")

    def batching(self, num_rows: int) -> Batching:
        return batching(self.batch_size, num_rows, self.sampling)

    def prepare(self, model: Posterior, table: Table, position: Params, key: Key) -> Prepared:
        """The first centre is the starting point; the first estimate computes its sum."""
        memory = CentredMemory(position, _tree.zeros_like(model.blank_total(position, table.row_spec)))
        return Prepared(position, memory, {"passes": 1.0})

    def estimate(
        self, summand: Summand, position: Params, memory: CentredMemory, context: Context, noise: str = "none"
    ) -> tuple[Estimate, PyTree]:
        """The control-variate estimate, after moving the centre when it is due."""
        if context.data is not None:  # otherwise the host makes the passes
            num_rows = context.batch.num_rows

            def refresh(_: CentredMemory) -> CentredMemory:
                total = full_sum(summand, position, context.data, num_rows, key=context.key)
                return CentredMemory(position, total)

            due = context.number % self._every(num_rows) == 0
            memory = jax.lax.cond(due, refresh, lambda old: old, memory)
        return super().estimate(summand, position, memory, context, noise)

    @property
    def traits(self) -> Traits:
        return Traits(can_spread=True, learns=True, sampling=self.sampling)

    @property
    def passes(self) -> Passes:
        return Passes(self._next_pass, self._absorbed)

    def resolved(self, num_rows: int) -> SVRG:
        return SVRG(self.batch_size, self._every(num_rows), self.sampling)

    def _every(self, num_rows: int) -> int:
        return self.refresh_every or max(1, 2 * num_rows // self.batch_size)

    def _next_pass(self, number: int, num_rows: int) -> int | None:
        every = self._every(num_rows)
        return -(-number // every) * every

    def _absorbed(self, total: PyTree, position: Params, memory: PyTree, kind: str) -> tuple[Estimate, PyTree]:
        noise = None if kind == "none" else none_at_all(total, position, kind)
        return Estimate(total, noise), CentredMemory(position, total)


class TableMemory(NamedTuple):
    """The value of every row when it was last seen, and the exact sum of the table."""

    table: PyTree
    total: PyTree


@cited("SAGA estimates of the gradient", "dubey2016 defazio2014")
@pytree_dataclass
class SAGA(Estimator):
    """Σ_j g_j + (N/n) Σ_{i in S} [f(θ, x_i) - g_i], where g_i is row i's value when it was last drawn (Defazio 2014).

    Needs N × dim numbers per chain, and a pass to fill them; a chain far from equilibrium is slowed by stale entries
    (thesis section 3.5).

    Parameters
    ----------
    batch_size
        n.
    max_memory
        Maximum number of bytes for the tables of all chains; a run that needs more raises an error.
    sampling
        "without_replacement" (default) or "with_replacement". Blocks, elsewhere the fastest way, raise an error: rows
        that are left of an epoch have the oldest values, so that given the table an estimate from them is
        biased. On a Gaussian, blocks make the variance 9 % too small, or 17 % too large, depending on the step.
    """

    batch_size: int = static()
    max_memory: int = static(default=4 << 30)
    sampling: str = static(default="without_replacement")

    def __post_init__(self) -> None:
        _checks.positive_int(self.batch_size, "batch_size")
        _checks.choice(self.sampling, "sampling", ("auto", "without_replacement", "with_replacement"))
        if self.sampling == "auto":
            object.__setattr__(self, "sampling", "without_replacement")
        _checks.positive_int(self.max_memory, "max_memory")

    def batching(self, num_rows: int) -> Batching:
        return batching(self.batch_size, num_rows, self.sampling)

    @property
    def traits(self) -> Traits:
        return Traits(needs_index=True, learns=True, sampling=self.sampling)

    def check_memory(self, position: Params, num_rows: int, num_chains: int) -> None:
        """N × dim numbers for each chain, and once more while a chunk is copied."""
        need = _tree.nbytes(position) * num_rows * (num_chains + 1)
        if need > self.max_memory:
            raise InvalidValueError(
                f"SAGA would keep a gradient for each of {num_rows} rows × {_tree.size(position)} parameters × "
                f"{num_chains} chains: {need / 2**30:.2f} GiB, more than `max_memory` ({self.max_memory / 2**30:.2f} "
                "GiB). Use sc.ControlVariates or sc.SVRG, which keep two, or raise `max_memory`."
            )

    def prepare(self, model: Posterior, table: Table, position: Params, key: Key) -> Prepared:
        """Fill the table at the starting point."""
        values = table.each(model.summand, position, key)
        memory = TableMemory(values, jax.tree.map(lambda t: t.sum(axis=0), values))
        return Prepared(position, memory, {"passes": 1.0})

    def blank_memory(self, position: Params, total: PyTree, num_rows: int) -> PyTree:
        return TableMemory(jax.tree.map(lambda p: jnp.zeros((num_rows, *p.shape), p.dtype), total), total)

    def estimate(
        self, summand: Summand, position: Params, memory: TableMemory, context: Context, noise: str = "none"
    ) -> tuple[Estimate, PyTree]:
        """The sum of the table plus the scaled change over the batch; then update the table."""
        batch = context.batch
        new = summand.each(position, batch.rows, context.key)
        old = jax.tree.map(lambda table: table[batch.index], memory.table)
        change = _tree.subtract(new, old)
        total = _tree.add(memory.total, weighted_sum(change, batch))
        spread = None if noise == "none" else covariance(change, batch, noise)
        assert batch.index is not None
        if self.sampling == "with_replacement":
            once = _first_occurrence(batch.index)
            change = jax.tree.map(lambda v: v * once.reshape(-1, *[1] * (v.ndim - 1)).astype(v.dtype), change)
        # `add`, not `set`: the compiler copies the whole table for the latter
        table = jax.tree.map(lambda t, v: t.at[batch.index].add(v), memory.table, change)
        learnt = jax.tree.map(lambda v: v.sum(axis=0), change)
        return Estimate(total, spread), TableMemory(table, _tree.add(memory.total, learnt))


def _first_occurrence(index: Array) -> Array:
    """1 where a row number appears for the first time in the batch, else 0."""
    order = jnp.argsort(index)
    ordered = index[order]
    first = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
    return jnp.zeros(index.shape, jnp.float32).at[order].set(first.astype(jnp.float32))
