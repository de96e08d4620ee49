"""Control variates of first or second order, whose remainders have a known bound: for exact samplers with few rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import _checks, _tree
from scirocco._expansion import Expansion
from scirocco._programs import setup_program
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.data.batching import Batch, Batching, batching
from scirocco.data.tables import Table
from scirocco.data.unequal import WeightedRows
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import bounds
from scirocco.estimators.base import Context, Estimate, Estimator, Prepared, Summand, Traits, covariance, weighted_sum
from scirocco.estimators.mode import find_mode
from scirocco.estimators.newton import hessian, inverse_root, vector
from scirocco.estimators.variance_reduced import on_real_line
from scirocco.model import Posterior, WithValue, without_value
from scirocco.model.base import bare, valued
from scirocco.types import Array, Key, Params, PyTree, Rows

_MOST_PARAMETERS = 2_000  # whose Hessian has 16 MB
_ROUNDING = 2.0
"""Allowance for rounding errors of a remainder, in units of the last place of what it is a difference of."""
_MARGIN = 1.0 + 1e-4  # of the bound, for the rounding errors of its norms


class TaylorMemory(NamedTuple):
    """The expansion around the mode θ̂, and what estimates need in addition."""

    expansion: Expansion
    total: PyTree
    """Σ_i f(θ̂, x_i)."""
    hessian: Array
    """Σ_i ∇² log p(x_i | θ̂), (d, d); 0 for order 1."""

    @property
    def centre(self) -> Params:
        """θ̂."""
        return self.expansion.centre


@cited("control variates of second order for the gradient", "cornish2019 baker2019")
@pytree_dataclass
class Taylor(Estimator):
    r"""Control variates of second order, with rows drawn in proportion to how much they can differ from the expansion.

    .. math::
        \sum_i ∇ℓ_i(\hat θ) + H(θ - \hat θ) + \frac1n \sum_{i ∈ S} \frac{r_i(θ)}{p_i}, \qquad
        r_i(θ) = ∇ℓ_i(θ) - ∇ℓ_i(\hat θ) - H_i (θ - \hat θ)

    with ℓ_i the log likelihood of row i, H_i its Hessian at the mode θ̂ and H = Σ H_i. The set-up finds the mode and
    makes four passes. For all samplers: the variance decreases with |θ - θ̂|⁴, one order faster than that of
    `sc.ControlVariates`. For `sc.ZigZag`, `sc.BouncyParticle` and `sc.SMH`, which are exact with a few rows for each
    draw, the remainders must have a bound: that of `sc.Model.linear`, or `curvature_bound` and `third_bound` of
    `sc.Model`.

    **The bound.** In the coordinates u of θ = θ̂ + L u, with z_i = ‖B_i L‖ for the map B_i of `curvature_bound` (see
    `estimators.bounds`) and κ = `third_bound`, Taylor's theorem gives for every direction v

    order 1: |vᵀLᵀ r_i| = |∫₀¹ (Lv)ᵀ ∇²ℓ_i(θ̂ + sLu) Lu ds| ≤ |B_i L v| |B_i L u| ≤ z_i² |v| |u|,

    order 2: |vᵀLᵀ r_i| = |∫₀¹ (1 - s) ∇³ℓ_i(θ̂ + sLu)[Lv, Lu, Lu] ds| ≤ κ/2 |B_i L v| |B_i L u|² ≤ κ/2 z_i³ |v| |u|²,

    so that |Lᵀ r_i| / p_i ≤ C |u|^order with C = max_i (1 or κ/2) z_i^(order+1) / p_i, and p_i ∝ z_i^(order+1) makes C
    about the sum instead of N times the largest. For values the same argument gives C |u|^(order+1) / (order+1). In
    order 2, C decreases like 1/√N: most moves need no row at all.

    Parameters
    ----------
    batch_size
        n, rows for each estimate or event; 1 suits the exact samplers.
    order
        1 or 2; None: 2 if the model has a `third_bound` or no bound at all, otherwise 1.
    centre
        θ̂, if it is known, in the user's units.
    probabilities
        One number > 0 per row; None: as above, or in proportion to the measured curvature if there is no bound.

    References
    ----------
    Bierkens, Fearnhead & Roberts (2019); Cornish et al. (2019).

    Examples
    --------
    >>> import scirocco as sc
    >>> estimator = sc.Taylor(batch_size=100)
    """

    batch_size: int = static(default=1)
    order: int | None = static(default=None)
    centre: Params | None = None
    probabilities: Any = None

    def __post_init__(self) -> None:
        _checks.positive_int(self.batch_size, "batch_size")
        if self.order not in (None, 1, 2):
            raise InvalidValueError(f"`order` of Taylor must be 1 or 2, got {self.order!r}.")
        if isinstance(self.probabilities, (str, bytes)):
            raise InvalidTypeError(
                f"`probabilities` of Taylor must be an array with one number > 0 per row, got {self.probabilities!r}."
            )

    @property
    def traits(self) -> Traits:
        return Traits(keeps_one_sum=True, finds_mode=True, is_uniform=False, order=self.order, remainder=self.remainder)

    @property
    def is_open(self) -> bool:
        return self.probabilities is None or self.order is None

    def batching(self, num_rows: int) -> Batching:
        if self.probabilities is None:  # until they are known
            return batching(min(self.batch_size, num_rows), num_rows, "with_replacement")
        return WeightedRows.from_probabilities(self.probabilities, num_rows, self.batch_size)

    def prepare(self, model: Posterior, table: Table, position: Params, key: Key) -> Prepared:
        """The mode, the sums of gradients and Hessians there, the probabilities and the bound."""
        plain: Any = bare(model)
        if not plain.facts.has_density or plain.facts.takes_key:
            raise InvalidTypeError(
                "Taylor expands a log likelihood that is not random: it requires a sc.Model without a key."
            )
        if _tree.size(position) > _MOST_PARAMETERS:
            raise InvalidValueError(
                f"Taylor keeps a Hessian of {_tree.size(position):,} × {_tree.size(position):,} numbers, more than "
                f"{_MOST_PARAMETERS:,}: use sc.ControlVariates."
            )
        order = self.order
        if order is None:
            order = 1 if plain.curvature_bound is not None and plain.third_bound is None else 2
        if self.centre is None:
            centre, _, _, report = find_mode(plain, table, position, key)
        else:
            centre, report = on_real_line(self.centre, plain, position, "Taylor"), {"passes": 0.0}
        total = table.sum(model.summand, centre, key)
        gradient = model.combine(centre, total)
        memory, estimator = self._expanded(plain, table, centre, total, without_value(gradient), order)
        report = {**report, "passes": report["passes"] + 4.0}
        return Prepared(centre, memory, report, near_mode=True, gradient=gradient, estimator=estimator)

    def _expanded(
        self, model: Any, table: Table, centre: Params, total: PyTree, gradient: PyTree, order: int
    ) -> tuple[TaylorMemory, Taylor]:
        dtype = jnp.result_type(*jax.tree.leaves(centre))
        likelihood = np.asarray(table.sum(_Hessian(model), centre), np.float64)
        prior = np.asarray(_prior_hessian(model, centre), np.float64)
        factor = inverse_root(-(likelihood + prior))
        inverse = np.linalg.inv(factor)
        largest = _largest(model, table, centre, factor, inverse, order)
        found = self.probabilities
        if found is None:  # at a typical place
            typical = largest.remainder * len(factor) ** ((order + 1) / 2) + largest.value_rounding
            found = bounds.shares(typical).astype(np.float32)
        estimator = dataclasses.replace(self, probabilities=found, order=order)
        weights = self.batch_size * np.asarray(
            estimator.batching(table.num_rows).row_weights(np.arange(table.num_rows)), np.float64
        )
        parts = likelihood if order == 2 else np.zeros_like(likelihood)

        def real(values: Any) -> Array:
            return jnp.asarray(values, dtype)

        expansion = Expansion(
            centre,
            factor=real(factor),
            inverse=real(inverse),
            slope=real(factor.T @ vector(gradient)[0].astype(np.float64)),
            curvature=real(factor.T @ (prior + parts) @ factor),
            bound=real(np.max(largest.remainder * weights) * _MARGIN if largest.known else np.inf),
            allowance=real(np.max(largest.rounding * weights)),
            value_allowance=real(np.max(largest.value_rounding * weights)),
            order=order,
        )
        return TaylorMemory(expansion, total, real(parts)), estimator

    def blank_memory(self, position: Params, total: PyTree, num_rows: int) -> PyTree:
        flat = ravel_pytree(position)[0]
        square, number = jnp.zeros((flat.size, flat.size), flat.dtype), jnp.zeros((), flat.dtype)
        numbers = (square, square, flat, square, number, number, number)
        return TaylorMemory(Expansion(position, *numbers, self.order or 1), total, square)

    def estimate(
        self, summand: Summand, position: Params, memory: TaylorMemory, context: Context, noise: str = "none"
    ) -> tuple[Estimate, PyTree]:
        change = _tree.subtract(position, memory.centre)
        flat, back = ravel_pytree(change)
        bend = jnp.matmul(memory.hessian, flat, precision="highest")
        total = memory.total
        if isinstance(total, WithValue):
            value = total.value + jnp.vdot(ravel_pytree(total.gradient)[0] + 0.5 * bend, flat)
            expanded: PyTree = WithValue(_tree.add(total.gradient, back(bend)), value)
        else:
            expanded = _tree.add(total, back(bend))
        if noise == "none":
            rest, spread = self.remainder(summand, position, memory, context.batch), None
        else:
            each = self._remainders(summand, position, memory, context.batch.rows)
            rest, spread = weighted_sum(each, context.batch), covariance(each, context.batch, noise)
        return Estimate(_tree.add(expanded, rest), spread), memory

    def remainder(self, summand: Summand, position: Params, memory: TaylorMemory, batch: Batch) -> PyTree:
        """What the expansion leaves out, estimated from a batch: its bound is that of the memory."""
        if batch.weights is None:
            raise InvalidValueError("Taylor requires its probabilities, which the set-up of a run finds.")
        return self._left(lambda at: summand.total(at, batch.rows, batch.weights), position, memory)

    def _remainders(self, summand: Summand, position: Params, memory: TaylorMemory, rows: Rows) -> PyTree:
        def one(row: PyTree) -> PyTree:
            alone = jax.tree.map(lambda leaf: leaf[None], row)
            return self._left(lambda at: summand.total(at, alone), position, memory)

        return jax.vmap(one)(rows)

    def _left(self, total: Any, position: Params, memory: TaylorMemory) -> PyTree:
        change = _tree.subtract(position, memory.centre)
        first, along = jax.jvp(total, (memory.centre,), (change,))
        rest = _tree.subtract(total(position), first)
        if not isinstance(rest, WithValue):
            return _tree.subtract(rest, along) if memory.expansion.order == 2 else rest
        value = rest.value - along.value
        if memory.expansion.order == 1:
            return WithValue(rest.gradient, value)
        slope = _tree.subtract(rest.gradient, along.gradient)
        return WithValue(slope, value - 0.5 * _tree.vdot(change, along.gradient))


class _Largest(NamedTuple):
    """What a row can contribute to an estimate with p_i = 1: over |u|^order, and by rounding errors."""

    remainder: np.ndarray
    rounding: np.ndarray
    value_rounding: np.ndarray
    known: bool
    """Whether `remainder` is a bound; otherwise it is only measured, and good for probabilities."""


def _largest(model: Any, table: Table, centre: Params, factor: np.ndarray, inverse: np.ndarray, order: int) -> _Largest:
    dtype = jnp.result_type(*jax.tree.leaves(centre))
    if model.curvature_bound is None or (order == 2 and model.third_bound is None):
        nothing = np.zeros(table.num_rows)
        return _Largest(bounds.row_sizes(model, table, centre), nothing, nothing, False)
    norms = bounds.bounded_sizes(model, table, centre, factor)
    constant = 1.0 if order == 1 else 0.5 * model.third_bound
    found = table.each(_Magnitudes(model), (centre, np.asarray(factor, dtype)))
    slopes, values = (np.asarray(each, np.float64) for each in found)
    length = float(np.linalg.norm(inverse @ vector(centre)[0].astype(np.float64)))
    unit = _ROUNDING * float(jnp.finfo(dtype).eps)
    return _Largest(
        constant * norms.frobenius * norms.spectral**order,
        unit * (norms.frobenius * norms.spectral * length + slopes),
        unit * (values + slopes * length),
        True,
    )


@setup_program(1)
def _prior_hessian(model: Any, centre: Params) -> Array:
    flat, back = ravel_pytree(centre)
    return jax.hessian(lambda x: model.log_prior_density(back(x)))(flat)


@dataclass(frozen=True)
class _Hessian:
    """∇² log p(x_i | θ)."""

    model: Any

    def total(self, position: Params, rows: Rows, weights: Any = None, key: Key | None = None) -> Array:
        flat, back = ravel_pytree(position)
        count = jax.tree.leaves(rows)[0].shape[0]
        return hessian(lambda x: self.model.log_likelihood_sum(back(x), rows, weights), flat, count)


@dataclass(frozen=True)
class _Magnitudes:
    """|Lᵀ∇ log p(x_i | θ)| and |log p(x_i | θ)| at the position (θ, L)."""

    model: Any

    def each(self, position: PyTree, rows: Rows, key: Key | None = None) -> tuple[Array, Array]:
        at, factor = position
        found = valued(self.model).summand.each(at, rows)
        flat = jax.vmap(lambda tree: ravel_pytree(tree)[0])(found.gradient)
        return jnp.sqrt(jnp.sum((flat @ factor) ** 2, axis=-1)), jnp.abs(found.value)
