"""The base of all samplers: a move of the position, given an estimate of the gradient of the log posterior.

A sampler never sees data, batches or models. Its contract:

`init(params, key)`             the state before the first step; the next gradient is computed at `state.position`
`noise(key, params)`            everything random in a step that does not depend on the state; because it is separate,
                                the noise of many steps is drawn in advance in one vectorised call
`step(state, gradient, noise, number)`   the move: pure arithmetic
`accept(...)`                   for samplers that need the gradient at the proposal before they accept the move
`travel(...)`                   in place of `step`, for samplers that follow a trajectory of exact gradients
`follow(...)`                   in place of `step`, for samplers that use bounds on what an expansion leaves out

The requirements and properties of a sampler are attributes of `Sampler`: the rest of the library uses those and never
tests for a class, so that you can add a sampler in one file.

Conventions: ε is the recipe's step size (drift ε·(...), noise variance 2εD); the gradient is that of the log posterior;
`number` counts steps from 0; the target is posterior^(1/temperature).
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco._expansion import Expansion
from scirocco.errors import InvalidValueError
from scirocco.samplers import schedules
from scirocco.samplers.linear import Setting
from scirocco.types import Array, Key, Params, PyTree


class Reference(NamedTuple):
    """A better estimate of the same sum, renewed from time to time (`needs_reference`)."""

    total: PyTree
    variance: PyTree
    """Variance of a single estimate, for each entry."""
    renewed: float | None = None
    """Variance of a renewed reference over that of a single estimate; None: not applicable."""


class Gradient(NamedTuple):
    """The input of a sampler at the current position."""

    total: PyTree
    """Unbiased estimate of the gradient of the log posterior; of the counts' sum for samplers driven by counts."""
    noise: PyTree | None = None
    """Its covariance, if the sampler requires it (`noise_kind`)."""
    curvature: PyTree | None = None
    """Unbiased estimate of the diagonal of the Hessian of the log posterior (`needs_curvature`)."""
    reference: Reference | None = None
    value: Array | None = None
    """Estimate of the log posterior there, from the same rows (`needs_value`); on the real line, up to a constant."""
    value_variance: Array | None = None
    """Its variance, if the estimator knows it: 0 for `sc.Full`; for others if `noise_kind` is not "none"."""
    auxiliary: PyTree | None = None
    """The auxiliary draws of the rows of the batch used for `total`, leaves (row, ...) (`needs_auxiliary`)."""


Average = Callable[[Params, Params, Params], PyTree]
"""`average(origin, start, end)`: what is averaged along a straight line, at a step that started at `origin`."""


class Scales(NamedTuple):
    """Measurements before the run, for samplers that choose their own hyper-parameters."""

    largest_curvature: float
    """Largest eigenvalue of -∇² log posterior, by power iteration on a sample of rows."""
    noise: PyTree
    """Variance of one gradient estimate for each parameter, at typical posterior points."""
    information: PyTree
    """Curvature for each parameter: the diagonal of the empirical Fisher information."""
    epoch: int
    """Steps in an epoch of batches without replacement, whose errors cancel; 1 when batches are independent."""
    factor: Any = None
    """L, if all of the above is in the coordinates u of θ = θ₀ + L u (see `Preconditioned`); otherwise None."""

    def lasting_noise(self, relaxation: PyTree) -> PyTree:
        """The variance of independent errors with the same effect on a chain.

        `relaxation` is the relaxation time of the chain in steps, for each parameter. Errors that sum to zero over an
        epoch hardly affect a chain that is slow compared with the epoch.
        """
        return jax.tree.map(
            lambda v, steps: v * reshuffling_factor(np.asarray(steps), self.epoch).astype(v.dtype),
            self.noise,
            relaxation,
        )


def reshuffling_factor(relaxation: np.ndarray, epoch: int) -> np.ndarray:
    """The factor for errors that sum to zero over every epoch, for a chain with relaxation time `relaxation` (steps).

    The stationary variance of x' = (1 - 1/relaxation) x + η with such errors η, averaged over the position in the
    epoch, divided by that with independent errors of the same variance.
    """
    if epoch <= 1:
        return np.ones_like(np.asarray(relaxation, float))
    a = np.clip(1.0 - 1.0 / np.maximum(np.asarray(relaxation, float), 1.0), 0.0, 1.0 - 1e-9)[..., None]
    t = np.unique(np.round(np.linspace(1, epoch, min(epoch, 200))))
    shared = 1.0 / (epoch - 1)

    def within(steps: np.ndarray) -> np.ndarray:
        squares = (1 - a ** (2 * steps)) / (1 - a**2)
        return (1 + shared) * squares - shared * ((1 - a**steps) / (1 - a)) ** 2

    whole = np.array([float(epoch)])
    boundary = within(whole) / (1 - a ** (2 * whole))
    return np.mean(a ** (2 * t) * boundary + within(t), axis=-1) * (1 - a[..., 0] ** 2)


def reshuffling_spectrum(frequency: np.ndarray, epoch: int) -> np.ndarray:
    """The power at `frequency` (radians per step) of errors that sum to zero over every epoch; 1 if independent.

    Errors of one epoch are exchangeable with covariance -V/(E-1): E/(E-1) (1 - |Σ_t e^(iωt)|²/E²).
    """
    if epoch <= 1:
        return np.ones_like(np.asarray(frequency, float))
    half = np.clip(np.asarray(frequency, float), 1e-9, np.pi) / 2
    return epoch / (epoch - 1) * (1 - (np.sin(half * epoch) / (epoch * np.sin(half))) ** 2)


class Excess(NamedTuple):
    """By how much step size and gradient noise inflate variances: closed forms, exact on Gaussians."""

    step: float
    """Relative excess of the variance in the stiffest direction, from the step alone; inf: unstable."""
    noise: PyTree
    """Relative excess of the variance from gradient noise, for each parameter."""
    suggested: float
    """ε at which step and noise each inflate variances by about 5 % (1 % for samplers with momentum)."""
    friction: PyTree | None = None
    friction_needed: PyTree | None = None
    """C at which the noise inflates variances by 5 %."""


class Sampler(abc.ABC):
    """Base class of all samplers. Concrete samplers are frozen dataclasses and pytrees of their hyper-parameters."""

    step_size: Any
    temperature: Any = 1.0

    # -- what it needs --------------------------------------------------------------------------------------

    driven_by: ClassVar[str] = "gradient"
    """What `Gradient.total` must be: "gradient" (of a `Model`) or "counts" (of a `CountModel`)."""
    needs_value: ClassVar[bool] = False
    """Whether each step needs an estimate of the log posterior (`Gradient.value`)."""
    needs_trajectory: ClassVar[bool] = False
    """Whether a step evaluates exact gradients at several points (`travel`): it requires `sc.Full`, rows in memory."""
    needs_expansion: ClassVar[bool] = False
    """Whether it moves by `follow`, with an expansion of the log posterior and bounds: it requires `sc.Taylor`."""
    expansion_order: ClassVar[int] = 1
    """The least order of that expansion."""
    needs_auxiliary: ClassVar[bool] = False
    """Whether each step needs the auxiliary draws of the batch (`Gradient.auxiliary`), from a likelihood with a key."""
    needs_reference: ClassVar[bool] = False
    """Whether each step needs a `Reference`; such a sampler has `refresh_every` and `refresh_size`."""
    refresh_every: int | None = None
    refresh_size: int | None = None
    noise_kind: ClassVar[str] = "none"
    """Which gradient-noise covariance each step needs: none, scalar, diagonal or full."""
    metric: ClassVar[str] = "none"
    """The coordinates of the measurement for `resolve`: the parameters' own, or those of `Preconditioned`."""

    @property
    def needs_independent_batches(self) -> bool:
        """Whether batches must be independent of each other, instead of without replacement over an epoch."""
        return False

    @property
    def needs_curvature(self) -> bool:
        """Whether each step needs the diagonal of the Hessian."""
        return False

    @property
    def is_exact(self) -> bool:
        """Whether the posterior is its stationary distribution, for any step size: a Metropolis step or events."""
        return self.needs_trajectory or self.needs_expansion

    @property
    def has_one_scale(self) -> bool:
        """Whether all parameters have one step size in their own units: neither preconditioned nor tuned."""
        return self.metric == "none" and not self.needs_tuning

    @property
    def starts_at_mode(self) -> bool:
        """Whether chains start at the posterior mode, which is searched for from the given parameters."""
        return False

    @property
    def needs_scales(self) -> bool:
        """Whether `resolve` requires a measurement of curvature and gradient noise before the run."""
        return is_open(self.step_size)

    @property
    def needs_tuning(self) -> bool:
        """Whether the step size is chosen by trying many (`step_size="auto"`)."""
        return isinstance(self.step_size, str)

    @property
    def proposes(self) -> bool:
        """Whether it may reject a move (it overrides `accept`)."""
        return type(self).accept is not Sampler.accept

    # -- what is known of it --------------------------------------------------------------------------------

    step_order: ClassVar[int] = 2
    """ε has the unit of the parameters to this power: 2 for Langevin dynamics, 1 with a momentum."""
    gradient_alone: ClassVar[bool] = False
    """Whether a step depends on the position only through the gradient, so that it can move in other coordinates."""
    damping_field: ClassVar[str] = ""
    """Name of its friction hyper-parameter; "": it has none. Tuning varies it if it is not given."""

    @property
    def damping(self) -> Any:
        """The value of that hyper-parameter; None: not given, or there is none."""
        return getattr(self, self.damping_field) if self.damping_field else None

    absorbs_noise: ClassVar[bool] = False
    """Whether gradient noise of unknown variance leaves its stationary distribution unchanged (thermostats)."""
    divergence_advice: ClassVar[str] = (
        "Its transitions are finite for finite counts: look whether `counts` returned NaN or infinite numbers."
    )
    """Advice when a chain of a model without a density, or a chain with an expansion, has diverged."""
    factor: Any = None
    """L, for a sampler that moves u in θ = θ₀ + L u."""

    @property
    def core(self) -> Sampler:
        """The sampler that makes the moves: itself, unless it wraps another in new coordinates."""
        return self

    def with_core(self, core: Any) -> Any:
        """The same coordinates for another sampler; by default those of the parameters, and `core` itself."""
        return core

    def largest_step(self, curvature: float) -> float:
        """The largest ε that tuning tries: there the step alone inflates a variance by a fifth."""
        return 1.0 / (3.0 * curvature) if self.step_order == 2 else float(np.sqrt(0.6 / curvature))

    @property
    def has_noise_ratio(self) -> bool:
        """Whether it has a `noise_ratio`."""
        return type(self).noise_ratio is not Sampler.noise_ratio

    def noise_ratio(self, scales: Scales, eps: PyTree, params: Params) -> PyTree | None:
        """Variance that gradient noise adds in a step over the injected variance, for each parameter.

        None, the default: the injected noise is not known in closed form.
        """
        return None

    def excess(self, scales: Scales, stiffness: float, eps: PyTree, params: Params) -> Excess | None:
        """Inflation of variances by step size and gradient noise, for `sc.analysis.diagnose`; None: no closed form.

        `stiffness` is ε λ for `step_order` 2 and ε² λ for 1, with λ the largest curvature.
        """
        return None

    # -- before the run -------------------------------------------------------------------------------------

    def resolve(self, scales: Scales, params: Params) -> Sampler:
        """The same sampler with all missing hyper-parameters filled in; by default only the step size."""
        if not is_open(self.step_size):
            return self
        step = langevin_step(scales) if self.step_order == 2 else momentum_step(scales)
        return dataclasses.replace(self, step_size=step)  # type: ignore[type-var]

    def foreseen(self, scales: Scales) -> Setting | None:
        """What `resolve` would choose in round coordinates and where it leads; None, the default: not foreseen."""
        return None

    def with_refresh(self, latent: bool, batch_size: int, num_rows: int) -> Sampler:
        """The same sampler with the number of steps between references filled in (`needs_reference`)."""
        raise NotImplementedError(f"{type(self).__name__} needs no reference")

    def check_params(self, params: Params, num_steps: int) -> None:
        """Reject hyper-parameters that do not fit the parameters or the length of the run (host side)."""
        schedules.check_positive_along(self.step_size, num_steps)
        jax.eval_shape(partial(schedules.step_sizes, self.step_size), params, 0)

    # -- the moves ------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def init(self, params: Params, key: Key) -> Any:
        """The state before the first step."""

    def noise(self, key: Key, params: Params) -> PyTree:
        """The randomness of one step: standard normals like the parameters."""
        return _tree.normal_like(key, params)

    @abc.abstractmethod
    def step(self, state: Any, gradient: Gradient, noise: PyTree, number: Array) -> Any:
        """One move; a proposal, for samplers that may reject it."""

    def accept(
        self, state: Any, gradient: Gradient, proposal: Any, there: Gradient, noise: PyTree, number: Array
    ) -> tuple[Any, Gradient]:
        """The state after the step and the gradient at its position, given the gradient at the proposal.

        By default it is accepted. A Metropolis step chooses between (`proposal`, `there`) and (`state`, `gradient`),
        for example with `select`.
        """
        return proposal, there

    def travel(
        self,
        state: Any,
        gradient: Gradient,
        evaluate: Callable[[Params], Gradient],
        noise: PyTree,
        number: Array,
    ) -> tuple[Any, Gradient]:
        """The state after a step and the gradient there, for samplers with `needs_trajectory` (in place of `step`)."""
        raise NotImplementedError(f"{type(self).__name__} makes single moves")

    def follow(
        self,
        state: Any,
        expansion: Expansion,
        remainder: Callable[[Params, Key], Gradient],
        noise: PyTree,
        number: Array,
    ) -> Any:
        """The state after a step, for samplers with `needs_expansion` (in place of `step`).

        `remainder(position, key)` estimates what the expansion leaves out, from rows that the key determines.
        """
        raise NotImplementedError(f"{type(self).__name__} needs no expansion")

    def averaging(self, average: Average) -> Sampler:
        """The same sampler, which also averages along its path; see `path`."""
        raise InvalidValueError(
            f"sc.reducers.PathMoments averages along a path, and {type(self).__name__} only makes draws: use "
            "sc.reducers.Moments(), or sampler=sc.ZigZag() or sc.BouncyParticle()."
        )

    def path(self, state: Any) -> PyTree:
        """The averages along the path of the last step, for samplers that have one, if a reducer uses it."""
        return None

    def stats(self, state: Any) -> dict[str, Array]:
        """Scalars to store with every draw."""
        return {}

    def sizes(self, params: Params, number: Array) -> PyTree:
        """ε for each parameter leaf."""
        return schedules.step_sizes(self.step_size, params, number)


def select(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    """One of two trees of the same structure."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def is_open(step_size: PyTree) -> bool:
    """Whether a step size must be chosen: None (from curvature and noise), or "auto" (by trying many)."""
    return step_size is None or isinstance(step_size, str)


def coefficients(value: PyTree, params: Params, name: str) -> PyTree:
    """A hyper-parameter for each parameter leaf: a number for all, or a prefix tree whose leaves broadcast."""
    return _tree.broadcast_prefix(value, params, name)


MARGIN = 5.0
"""Default friction, as a multiple of the smallest that the gradient noise allows."""


def langevin_step(scales: Scales) -> float:
    """The largest step at which curvature and gradient noise each inflate the variance by at most about 5 %."""
    noise = largest(scales.noise)
    limits = [0.1 / value for value in (scales.largest_curvature, noise) if value > 0]
    if not limits:
        raise InvalidValueError(
            "no step size can be chosen: curvature and gradient noise are both zero at the start."
        )
    return min(limits)


def momentum_step(scales: Scales) -> float:
    """ε = min(0.2/√λ, 2√λ/5V): 1 % error from the step, and friction against the noise that is near critical."""
    root = scales.largest_curvature**0.5
    if not root > 0:
        raise InvalidValueError(
            "no step size can be chosen: the log posterior has no curvature at the start."
        )
    noise = largest(scales.noise)
    return min(0.2 / root, 2.0 * root / (MARGIN * noise)) if noise > 0 else 0.2 / root


def largest(tree: PyTree) -> float:
    """The largest entry of all leaves."""
    return max(float(np.max(leaf)) for leaf in jax.tree.leaves(tree))
