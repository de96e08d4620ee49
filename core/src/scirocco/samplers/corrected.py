"""Trajectories on minibatches that end with a Metropolis step on all rows."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from scirocco import _checks, _tree
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.samplers.base import (
    Gradient,
    Known,
    Needs,
    Proposer,
    check_amounts,
    check_fields,
    coefficients,
    is_open,
    select,
)
from scirocco.samplers.momentum import fresh_momentum
from scirocco.samplers.scales import Scales, momentum_step
from scirocco.types import Array, ArrayLike, Key, Params, PyTree


class CorrectedState(NamedTuple):
    """The position after the last correction, where it came from, and the trajectory that started there."""

    position: Params
    momentum: PyTree
    """The momentum with which the trajectory began."""
    value: Array
    """The log posterior at `position`; before the first correction it is unknown: minus infinity."""
    place: Params
    """Where the trajectory is."""
    speed: PyTree
    """The momentum there."""
    force: PyTree
    """The gradient estimate there."""
    work: Array
    """Kinetic energy gained so far."""
    acceptance_rate: Array
    """That of the last correction."""


@cited("gradient-guided Monte Carlo with minibatches and an amortised Metropolis step", "garriga2021 zhang2020amagold")
@pytree_dataclass
class SGGMC(Proposer):
    r"""Langevin dynamics on minibatches, corrected by a Metropolis step (AMAGOLD; Garriga-Alonso & Fortuin 2021).

    .. math::
        r_1 = r + \tfrac ε2 \hat g(θ), \quad θ' = θ + ε r_1, \quad r_2 = r_1 + \tfrac ε2 \hat g'(θ'), \quad
        r' = e^{-εC} r_2 + \sqrt{T(1 - e^{-2εC})}\,ξ

    with a new batch for ĝ' at each place. After `length` steps the log posterior of all rows is computed, and the whole
    trajectory is accepted with probability

    .. math:: \min\left(1, \exp\left[\left(\log π(θ_{end}) - \log π(θ_{start}) - \textstyle\sum \tfrac12(|r_2|^2 -
        |r|^2)\right)/T\right]\right),

    otherwise the chain returns to its start with the momentum (and the batch) that it had there, reversed. The same
    batches, in reverse order, lead back, so that posterior^(1/T) is the stationary distribution for any step size,
    batch size and friction. Step and noise only decide how much is accepted: about all while `length` d ε² V is below
    1, V being the variance of ĝ in each of d directions. Control variates make V small.

    Cost: one gradient estimate and one normal per parameter for each step, and the log density of all rows (without a
    gradient) every `length` steps. Draws are positions after a correction: `thin=length` keeps each once.

    Parameters
    ----------
    step_size
        ε: number, prefix tree or schedule, in units of θ, constant within a trajectory; None: chosen from curvature and
        gradient noise at the start.
    friction
        C > 0; None: √λ.
    length
        Steps between corrections.
    temperature
        T > 0.

    Notes
    -----
    Requires rows in memory, batches that are independent of each other, as `sampling="without_replacement"` draws them
    (the default estimator has these), and an estimator that does not learn from its path. Statistics for each draw:
    `acceptance_rate`, of the last correction. The first trajectory is always accepted. Differences of log densities
    are found in the precision of the parameters: use 64 bits beyond a million rows.

    References
    ----------
    Zhang, Cooper & De Sa (2020), with another splitting; Garriga-Alonso & Fortuin (2021).

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = 3.0 + jax.random.normal(jax.random.key(0), (1000,))
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> run = sc.sample(model, x, jnp.array(0.0), sampler=sc.SGGMC(0.005, friction=20.0), num_samples=1000, thin=10,
    ...                 estimator=sc.Minibatch(200, sampling="without_replacement"), progress=False)
    >>> bool(abs(run.draws.mean() - x.mean()) < 0.02), bool(run.stats["acceptance_rate"].mean() > 0.5)
    (True, True)
    """

    step_size: Any = None
    friction: Any = None
    length: int = static(default=10)
    temperature: ArrayLike = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        _checks.positive(self.temperature, "temperature", "SGGMC")
        _checks.positive_int(self.length, "length")
        check_amounts(self, "friction")

    @property
    def needs(self) -> Needs:
        return Needs(exact_value_every=self.length, independent_batches=True)

    @property
    def known(self) -> Known:
        return Known(step_order=1, is_exact=True)

    @property
    def is_open(self) -> bool:
        return is_open(self.step_size) or self.friction is None

    def resolve(self, scales: Scales, params: Params) -> SGGMC:
        """Fill in step size and friction."""
        step = momentum_step(scales) if is_open(self.step_size) else self.step_size
        friction = float(scales.largest_curvature**0.5) if self.friction is None else self.friction
        return dataclasses.replace(self, step_size=step, friction=friction)

    def init(self, params: Params, key: Key) -> CorrectedState:
        momentum, zero = fresh_momentum(key, params, self.temperature), jnp.zeros((), jnp.float32)
        unknown = jnp.full((), -jnp.inf, jnp.result_type(*jax.tree.leaves(params)))
        force = _tree.zeros_like(params)
        return CorrectedState(params, momentum, unknown, params, momentum, force, jnp.zeros_like(unknown), zero + 1.0)

    def noise(self, key: Key, params: Params) -> PyTree:
        first, second = jax.random.split(key)
        dtype = jnp.result_type(*jax.tree.leaves(params))
        return _tree.normal_like(first, params), jnp.log(jax.random.uniform(second, (), dtype))

    def step(self, state: CorrectedState, gradient: Gradient, noise: PyTree, number: Array) -> CorrectedState:
        """Half a kick and a drift."""
        force = select(number % self.length == 0, gradient.total, state.force)
        eps = self.sizes(state.place, self._first(number))
        speed = jax.tree.map(lambda r, e, g: r + 0.5 * e * g, state.speed, eps, force)
        return state._replace(position=jax.tree.map(lambda p, e, r: p + e * r, state.place, eps, speed), speed=speed)

    def accept(
        self, state: CorrectedState, gradient: Gradient, proposal: Any, there: Gradient, noise: PyTree, number: Array
    ) -> tuple[CorrectedState, Gradient]:
        """The other half of the kick; after the last step the correction; then friction."""
        normals, log_uniform = noise
        eps, ends = self.sizes(state.place, self._first(number)), (number + 1) % self.length == 0
        speed = jax.tree.map(lambda r, e, g: r + 0.5 * e * g, proposal.speed, eps, there.total)
        gained = 0.5 * (_tree.vdot(speed, speed) - _tree.vdot(state.speed, state.speed))
        work = state.work + gained.astype(state.work.dtype)
        value = jnp.asarray(there.value, state.value.dtype)
        logs = (value - state.value - work) / self.temperature
        logs = jnp.where(jnp.isnan(logs), -jnp.inf, jnp.minimum(logs, 0.0))
        back = (state.position, _tree.scale(-1.0, state.momentum), state.value, gradient.total)
        place, speed, end, force = select(
            ~ends | (log_uniform < logs), (proposal.position, speed, value, there.total), back
        )

        def damped(r: Array, e: Array, c: ArrayLike, xi: Array) -> Array:
            return (jnp.exp(-e * c) * r + jnp.sqrt(-jnp.expm1(-2.0 * e * c) * self.temperature) * xi).astype(r.dtype)

        friction = coefficients(self.friction, state.place, "friction")
        speed = jax.tree.map(damped, speed, eps, friction, normals)
        rate = jnp.where(ends, jnp.exp(logs), state.acceptance_rate).astype(jnp.float32)
        begin = (state.position, state.momentum, state.value, gradient.total, work)
        begin = select(ends, (place, speed, end, force, jnp.zeros_like(work)), begin)
        position, momentum, value, total, work = begin
        return CorrectedState(position, momentum, value, place, speed, force, work, rate), Gradient(total)

    def _first(self, number: Array) -> Array:
        """The step with which the trajectory began: a schedule changes between trajectories."""
        return number - number % self.length

    def stats(self, state: CorrectedState) -> dict[str, Array]:
        return {"acceptance_rate": state.acceptance_rate}
