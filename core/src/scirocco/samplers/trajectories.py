"""Trajectories of exact gradients: HMC and MALA, which end with a Metropolis step, and NUTS, made by BlackJAX."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import _checks, _tree
from scirocco._extras import require
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.errors import InvalidValueError
from scirocco.samplers.base import Gradient, Known, Needs, Sampler, rebuilt
from scirocco.samplers.jumps import Jumps
from scirocco.samplers.preconditioned import times
from scirocco.samplers.scales import Scales
from scirocco.types import Array, Key, Params, PyTree

_DIVERGED = 1_000.0  # energy error from which a trajectory is called diverging, as in Stan
_JITTER = 0.4  # share by which the length of a trajectory of HMC varies


Evaluate = Callable[[Params], Gradient]
"""The exact gradient, and the value, anywhere."""


class TrajectoryState(NamedTuple):
    """The position, and statistics of the step that led to it."""

    position: Params
    acceptance_rate: Array
    diverging: Array
    n_steps: Array


class PointOfTrajectory(NamedTuple):
    """A point of a trajectory: the coordinates v of θ + L v, the momentum, and gradient and log density there."""

    place: Array
    momentum: Array
    gradient: Gradient


class Trajectory(Sampler):
    """Samplers on all rows, in coordinates v of θ + L v that are adapted before the run together with the step size."""

    step_size: Any = None
    factor: Any = None
    target_acceptance: float
    jumps: Jumps | None = None
    reference: Any = None
    """Where log densities are 0, as a vector: their sums over the rows are sums of differences, which 32 bits hold
    although the log density itself is 10⁷ or more. Set before the run where it is needed."""

    needs = Needs(value=True, trajectory=True)

    def __post_init__(self) -> None:
        if self.step_size is not None and not isinstance(self.step_size, jax.Array):
            _checks.positive(self.step_size, "step_size")
        _checks.positive(self.target_acceptance, "target_acceptance")
        if not 0.5 <= self.target_acceptance < 1:
            raise InvalidValueError(
                f"`target_acceptance` must be at least 0.5 and below 1, got {self.target_acceptance}."
            )

    @property
    def known(self) -> Known:
        return Known(step_order=1, is_exact=True, factor=self.factor)

    @property
    def is_open(self) -> bool:
        return self.step_size is None or self.factor is None

    def resolve(self, scales: Scales, params: Params) -> Sampler:
        """Adaptation, not a measurement, completes it."""
        return self

    def check_params(self, params: Params, num_steps: int) -> None:
        if self.factor is not None and np.shape(self.factor)[0] != _tree.size(params):
            raise InvalidValueError(
                f"`factor` of {type(self).__name__} is for {np.shape(self.factor)[0]} parameters; there are "
                f"{_tree.size(params)}."
            )

    def with_settings(self, **settings: Any) -> Trajectory:
        """With another step size, L or jumps, from the adaptation, which need no checks.

        What is None need not be a field: a class of one's own may have no jumps and no reference.
        """
        fields = _tree.fields_of(self)
        return rebuilt(self, **{name: value for name, value in settings.items() if name in fields or value is not None})

    @abc.abstractmethod
    def step(
        self, state: Any, gradient: Gradient, evaluate: Evaluate, noise: PyTree, number: Array
    ) -> tuple[Any, Gradient]:
        """The state after a step, and the gradient there; `evaluate` computes it anywhere."""


class Jumping(Trajectory):
    """A trajectory in each step, and then a jump between modes, if they are known."""

    jumps: Jumps | None = None

    def init(self, params: Params, key: Key) -> TrajectoryState:
        return TrajectoryState(params, jnp.ones((), jnp.float32), jnp.zeros((), bool), jnp.zeros((), jnp.int32))

    def noise(self, key: Key, params: Params) -> PyTree:
        """That of the trajectory, and a key for the jump after it."""
        own = self.randomness(key, params)
        return own if self.jumps is None else (own, jax.random.key_data(jax.random.fold_in(key, 1)))

    @abc.abstractmethod
    def randomness(self, key: Key, params: Params) -> PyTree:
        """Everything random in a trajectory that does not depend on the state."""

    @abc.abstractmethod
    def trajectory(self, state: Any, gradient: Gradient, evaluate: Evaluate, noise: PyTree) -> tuple[Any, Gradient]:
        """The state after a trajectory, and the gradient there."""

    def step(
        self, state: Any, gradient: Gradient, evaluate: Evaluate, noise: PyTree, number: Array
    ) -> tuple[Any, Gradient]:
        """The state after a trajectory and a jump, and the gradient there; `evaluate` computes it anywhere."""
        if self.jumps is None:
            return self.trajectory(state, gradient, evaluate, noise)
        state, gradient = self.trajectory(state, gradient, evaluate, noise[0])
        key = jax.random.wrap_key_data(noise[1])
        position, gradient = self.jumps.move(state.position, gradient, evaluate, key)
        return state._replace(position=position), gradient

    def stats(self, state: TrajectoryState) -> dict[str, Array]:
        named = state._asdict()
        return {name: named[name] for name in ("acceptance_rate", "diverging", "n_steps")}


class _Leapfrog(Jumping):
    """Trajectories whose number of leapfrog steps does not depend on where they lead."""

    @abc.abstractmethod
    def leapfrogs(self, uniform: Array) -> Array:
        """The number of leapfrog steps of this trajectory."""

    def randomness(self, key: Key, params: Params) -> tuple[Array, Array]:
        first, second = jax.random.split(key)
        dtype = jnp.result_type(*jax.tree.leaves(params))
        return ravel_pytree(_tree.normal_like(first, params))[0], jax.random.uniform(second, (2,), dtype)

    def trajectory(
        self, state: TrajectoryState, gradient: Gradient, evaluate: Evaluate, noise: PyTree
    ) -> tuple[TrajectoryState, Gradient]:
        """One trajectory; its end is accepted with probability min(1, e^(-ΔH))."""
        momentum, uniforms = noise
        unravel = ravel_pytree(state.position)[1]
        eps = jnp.asarray(self.step_size, momentum.dtype)

        def force(gradient: Gradient) -> Array:
            return ravel_pytree(times(self.factor, gradient.total, transposed=True))[0]

        def where(place: Array) -> Params:
            return _tree.add(state.position, times(self.factor, unravel(place)))

        def leap(_: Array, at: PointOfTrajectory) -> PointOfTrajectory:
            half = at.momentum + 0.5 * eps * force(at.gradient)
            place = at.place + eps * half
            there = evaluate(where(place))
            return PointOfTrajectory(place, half + 0.5 * eps * force(there), there)

        begin = PointOfTrajectory(jnp.zeros_like(momentum), momentum, gradient)
        count = self.leapfrogs(uniforms[0])
        end = jax.lax.fori_loop(0, count, leap, begin)
        change = _energy(end) - _energy(begin)
        rate = jnp.where(jnp.isfinite(change), jnp.exp(jnp.minimum(-change, 0.0)), 0.0)
        accepted = uniforms[1] < rate
        position, kept = jax.tree.map(
            lambda new, old: jnp.where(accepted, new, old), (where(end.place), end.gradient), (state.position, gradient)
        )
        diverging = ~(change < _DIVERGED)
        rate, count = rate.astype(jnp.float32), jnp.asarray(count, jnp.int32)
        return TrajectoryState(position, rate, diverging, count), kept


def _energy(at: PointOfTrajectory) -> Array:
    return 0.5 * jnp.sum(at.momentum**2) - jnp.asarray(at.gradient.value)


@cited("Hamiltonian Monte Carlo on all rows", "duane1987")
@pytree_dataclass
class HMC(_Leapfrog):
    r"""Hamiltonian Monte Carlo on all rows: exact, with trajectories of a given length. Needs `sc.Full()`.

    .. math:: H(v, r) = -\log π(θ + L v \mid x) + \tfrac12 |r|^2

    Each step draws r ~ N(0, 1), makes leapfrog steps of size ε for a time that varies by 40 % around `length`, and
    accepts the end with probability min(1, e^(-ΔH)): the posterior is invariant for any ε. Cost per step: about
    `length`/ε passes over the rows. Unlike `sc.NUTS` it needs no further package, and all chains of a vectorised run
    make about as many passes.

    Step size and L are adapted before the run, as for `sc.NUTS`.

    Parameters
    ----------
    step_size
        ε in the coordinates v, where the posterior is about round; None: adapted.
    length
        Of a trajectory in the same units. A quarter of a period, the default, leads to independent draws on Gaussians.
    factor
        L with LLᵀ about the posterior covariance, as for `sc.NUTS`; None: adapted.
    target_acceptance
        For the adaptation of ε.
    jumps
        Tried after each trajectory, see `sc.samplers.Jumps`; None: between the modes that are found, if there are
        several and L is adapted.

    Notes
    -----
    Statistics for each draw: `acceptance_rate`, `diverging` (an energy error above 1,000), `n_steps` (passes).

    References
    ----------
    Duane, Kennedy, Pendleton & Roweth (1987); Neal (2011).

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = 3.0 + jax.random.normal(jax.random.key(0), (50,))
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> run = sc.sample(model, x, jnp.array(0.0), sampler=sc.HMC(), num_samples=500, progress=False)
    >>> bool(abs(run.draws.mean() - x.mean()) < 0.05)
    True
    """

    step_size: Any = None
    length: Any = float(np.pi / 2)
    factor: Any = None
    target_acceptance: float = static(default=0.8)
    max_leapfrogs: int = static(default=1_000)
    jumps: Jumps | None = None
    reference: Any = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.length, jax.Array):
            _checks.positive(self.length, "length")
        _checks.positive_int(self.max_leapfrogs, "max_leapfrogs")

    def leapfrogs(self, uniform: Array) -> Array:
        """As many as make up the length, which is redrawn for each trajectory so that none is periodic."""
        time = self.length * (1.0 + _JITTER * (2.0 * uniform - 1.0))
        return jnp.clip(jnp.ceil(time / self.step_size), 1, self.max_leapfrogs).astype(jnp.int32)


@cited("the Metropolis-adjusted Langevin algorithm on all rows", "roberts1996")
@pytree_dataclass
class MALA(_Leapfrog):
    r"""The Metropolis-adjusted Langevin algorithm on all rows: SGLD with exact gradients, corrected. Needs `sc.Full()`.

    .. math:: θ^* = θ + \tfrac12 ε^2 LL^T ∇\log π(θ) + ε L ξ

    accepted with the Metropolis-Hastings probability, so that the posterior is invariant for any ε. This is one
    leapfrog step of `sc.HMC`, which usually mixes better; compare SGLD with it to see what SGLD's step size costs. Cost
    per step: one pass over the rows.

    Parameters
    ----------
    step_size
        ε in coordinates where the posterior is about round (SGLD's ε is ε²/2 here); None: adapted before the run.
    factor
        L with LLᵀ about the posterior covariance, as for `sc.NUTS`; None: adapted.
    target_acceptance
        For the adaptation of ε: 0.574 is the optimum of many dimensions.
    jumps
        As for `sc.HMC`.

    References
    ----------
    Roberts & Tweedie (1996); Roberts & Rosenthal (1998).

    Examples
    --------
    >>> import scirocco as sc
    >>> sc.MALA()
    MALA(step_size=None, factor=None, target_acceptance=0.574, jumps=None)
    """

    step_size: Any = None
    factor: Any = None
    target_acceptance: float = static(default=0.574)
    jumps: Jumps | None = None
    reference: Any = dataclasses.field(default=None, repr=False)

    def leapfrogs(self, uniform: Array) -> Array:
        return jnp.ones((), jnp.int32)


@cited("the no-U-turn sampler on all rows", "hoffman2014")
@pytree_dataclass
class NUTS(Jumping):
    r"""The no-U-turn sampler on all rows: exact, with no step size to choose. Needs `sc.Full()`.

    .. math:: H(v, r) = -\log π(θ + L v \mid x) + \tfrac12 |r|^2

    Each step follows Hamiltonian dynamics from v = 0 until the trajectory turns back, and draws from its points in
    proportion to e^(-H) (BlackJAX's implementation). A step costs 3 to 1,023 passes over the rows, so this is for data
    of which a pass is cheap. `sc.sample` without a sampler uses it there.

    Step size and L are adapted before the run, by four or more chains that start around the mode: the step size until
    trajectories are accepted with probability `target_acceptance`, L from the covariance of all chains' positions.

    Parameters
    ----------
    step_size
        ε in the coordinates v, where the posterior is about round; None: adapted.
    factor
        L with LLᵀ about the posterior covariance, (d, d) and lower triangular, or (d,) for a diagonal, in the order
        of `jax.flatten_util.ravel_pytree`, on the real line for transformed parameters; None: adapted.
    target_acceptance
        For the adaptation. Values closer to 1 give shorter steps, which helps where trajectories diverge.
    max_doublings
        At most 2^max_doublings - 1 gradients per step.
    jumps
        As for `sc.HMC`.

    Notes
    -----
    Statistics for each draw: `acceptance_rate`, `diverging` (whether the energy error exceeded 1,000: the curvature
    varies too much for this step size, and that region is not explored), `n_steps` (gradients used).

    References
    ----------
    Hoffman & Gelman (2014); Betancourt (2017), for the multinomial choice of the point.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = 3.0 + jax.random.normal(jax.random.key(0), (50,))
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> run = sc.sample(model, x, jnp.array(0.0), sampler=sc.NUTS(), estimator=sc.Full(), num_samples=500,
    ...                 progress=False)
    >>> bool(abs(run.draws.mean() - x.mean()) < 0.05)
    True
    """

    step_size: Any = None
    factor: Any = None
    target_acceptance: float = static(default=0.9)
    max_doublings: int = static(default=10)
    jumps: Jumps | None = None
    reference: Any = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.positive_int(self.max_doublings, "max_doublings")

    def randomness(self, key: Key, params: Params) -> Array:
        return jax.random.key_data(key)

    def trajectory(
        self, state: TrajectoryState, gradient: Gradient, evaluate: Evaluate, noise: PyTree
    ) -> tuple[TrajectoryState, Gradient]:
        nuts = require("blackjax.mcmc.nuts", "sc.NUTS")
        flat, unravel = ravel_pytree(state.position)

        def place(v: Array) -> Params:
            return _tree.add(state.position, times(self.factor, unravel(v)))

        @jax.custom_vjp
        def log_density(v: Array) -> Array:
            return jnp.asarray(evaluate(place(v)).value)

        def forward(v: Array) -> tuple[Array, Array]:
            there = evaluate(place(v))
            return jnp.asarray(there.value), ravel_pytree(times(self.factor, there.total, transposed=True))[0]

        log_density.defvjp(forward, lambda slope, cotangent: (cotangent * slope,))
        here = ravel_pytree(times(self.factor, gradient.total, transposed=True))[0]
        begin = nuts.hmc.HMCState(jnp.zeros_like(flat), gradient.value, here)
        key, eps = jax.random.wrap_key_data(noise), jnp.asarray(self.step_size, flat.dtype)
        kernel = nuts.build_kernel()
        end, info = kernel(key, begin, log_density, eps, jnp.ones_like(flat), self.max_doublings)
        total = _unpulled(self.factor, unravel(end.logdensity_grad))
        rate = jnp.asarray(info.acceptance_rate, jnp.float32)
        steps = jnp.asarray(info.num_integration_steps, jnp.int32)
        moved = TrajectoryState(place(end.position), rate, info.is_divergent, steps)
        return moved, Gradient(total, value=end.logdensity, value_variance=gradient.value_variance)


def _unpulled(factor: Any, tree: PyTree) -> PyTree:
    """L⁻ᵀ x, for a lower triangular L or a diagonal."""
    flat, unravel = ravel_pytree(tree)
    factor = jnp.asarray(factor, flat.dtype)
    if factor.ndim == 1:
        return unravel(flat / factor)
    return unravel(jax.scipy.linalg.solve_triangular(factor, flat, trans=1, lower=True))
