"""What every sampler is: a move of the position, given an estimate of the gradient of the log posterior.

A sampler never sees data, batches or models. Its contract:

`init(params, key)`             the state before the first step; `state.position` is where the next gradient is taken
`noise(key, params)`            all that is random in one step and does not depend on the state; because it is apart,
                                the noise of many steps is drawn ahead in one vectorised call
`step(state, gradient, noise, number)`   the move: pure arithmetic
`accept(...)`                   for samplers that look at the gradient where the move leads before they go there

What a sampler needs and what is known of it are attributes of `Sampler`: the rest of the library asks those, and never
for a class, so that a sampler is added in one file.

Conventions: ε is the recipe's step size (drift ε·(...), noise variance 2εD); the gradient is that of the log posterior;
`number` counts steps from 0; the law that is targeted is posterior^(1/temperature).
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco.errors import InvalidValueError
from scirocco.samplers import schedules
from scirocco.types import Array, Key, Params, PyTree


class Reference(NamedTuple):
    """A better estimate of the same sum, made now and then (`needs_reference`)."""

    total: PyTree
    variance: PyTree
    """Variance of a single estimate, for each entry."""
    renewed: float | None = None
    """Variance of a renewed reference, over that of a single estimate; None: it has none."""


class Gradient(NamedTuple):
    """What a sampler is given at the current position."""

    total: PyTree
    """Unbiased estimate of the gradient of the log posterior; of the counts' sum for samplers driven by counts."""
    noise: PyTree | None = None
    """Its covariance, when the sampler asks for it (`noise_kind`)."""
    curvature: PyTree | None = None
    """Unbiased estimate of the diagonal of the Hessian of the log posterior (`needs_curvature`)."""
    reference: Reference | None = None
    value: Array | None = None
    """Estimate of the log posterior there, from the same rows (`needs_value`); on the real line, up to a constant."""
    value_variance: Array | None = None
    """Its variance, where the estimator knows it: 0 of `sc.Full`; of others where `noise_kind` is not "none"."""
    auxiliary: PyTree | None = None
    """The auxiliary draws of the rows of the batch that are behind `total`, leaves (row, ...) (`needs_auxiliary`)."""


class Scales(NamedTuple):
    """Measured once before the run, for samplers that choose their own numbers."""

    largest_curvature: float
    """Largest eigenvalue of -∇² log posterior, by power iteration on a sample of rows."""
    noise: PyTree
    """Variance of one gradient estimate for each parameter, at typical posterior points."""
    information: PyTree
    """Curvature for each parameter: the diagonal of the empirical Fisher information."""
    epoch: int
    """Steps in an epoch of batches without replacement, whose errors cancel; 1 when batches are independent."""
    factor: Any = None
    """L, when all of the above is in the coordinates u of θ = θ₀ + L u (see `Preconditioned`); else None."""

    def lasting_noise(self, relaxation: PyTree) -> PyTree:
        """The variance that independent errors would need to have the same effect on a chain.

        `relaxation` is the number of steps in which the chain forgets, for each parameter. A chain that is slow
        compared with an epoch hardly feels errors that sum to zero over it.
        """
        return jax.tree.map(
            lambda v, steps: v * reshuffling_factor(np.asarray(steps), self.epoch).astype(v.dtype),
            self.noise,
            relaxation,
        )


def reshuffling_factor(relaxation: np.ndarray, epoch: int) -> np.ndarray:
    """How much less errors count that sum to zero over every epoch, for a chain that forgets in `relaxation` steps.

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
    """The power at `frequency` (radians a step) of errors that sum to zero over every epoch; 1 for independent ones.

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
    """Base of all samplers. Every concrete one is a frozen dataclass and a pytree of its hyper-parameters."""

    step_size: Any
    temperature: Any = 1.0

    # -- what it needs --------------------------------------------------------------------------------------

    driven_by: ClassVar[str] = "gradient"
    """What `Gradient.total` must be: "gradient" (of a `Model`) or "counts" (of a `CountModel`)."""
    needs_value: ClassVar[bool] = False
    """Whether each step needs an estimate of the log posterior (`Gradient.value`)."""
    needs_auxiliary: ClassVar[bool] = False
    """Whether each step needs the auxiliary draws of the batch (`Gradient.auxiliary`), from a likelihood with a key."""
    needs_reference: ClassVar[bool] = False
    """Whether each step needs a `Reference`; such a sampler has `refresh_every` and `refresh_size`."""
    refresh_every: int | None = None
    refresh_size: int | None = None
    noise_kind: ClassVar[str] = "none"
    """Which gradient-noise covariance each step needs: none, scalar, diagonal or full."""
    metric: ClassVar[str] = "none"
    """In which coordinates `resolve` wants its measurement: the parameters' own, or those of `Preconditioned`."""

    @property
    def needs_curvature(self) -> bool:
        """Whether each step needs the diagonal of the Hessian."""
        return False

    @property
    def has_one_scale(self) -> bool:
        """Whether one step size serves all parameters as they are: not in other coordinates, nor where it is tuned."""
        return self.metric == "none" and not self.needs_tuning

    @property
    def starts_at_mode(self) -> bool:
        """Whether chains begin at the posterior mode, which is searched for from the parameters that are given."""
        return False

    @property
    def needs_scales(self) -> bool:
        """Whether `resolve` wants a measurement of curvature and gradient noise before the run."""
        return is_open(self.step_size)

    @property
    def needs_tuning(self) -> bool:
        """Whether the step size is to be found by trying many (`step_size="auto"`)."""
        return isinstance(self.step_size, str)

    @property
    def proposes(self) -> bool:
        """Whether it may refuse a move (it has an `accept` of its own)."""
        return type(self).accept is not Sampler.accept

    # -- what is known of it --------------------------------------------------------------------------------

    step_order: ClassVar[int] = 2
    """ε has the unit of the parameters to this power: 2 for Langevin dynamics, 1 with a momentum."""
    gradient_alone: ClassVar[bool] = False
    """Whether a step depends on where it starts through the gradient alone: then it can move in other coordinates."""
    damping_field: ClassVar[str] = ""
    """Name of the hyper-parameter that is its friction; "": it has none. Tuning varies it where it is left open."""

    @property
    def damping(self) -> Any:
        """The value of that hyper-parameter; None: left open, or there is none."""
        return getattr(self, self.damping_field) if self.damping_field else None

    absorbs_noise: ClassVar[bool] = False
    """Whether gradient noise of unknown variance leaves its law as it is (thermostats)."""
    divergence_advice: ClassVar[str] = (
        "Its transitions are finite for finite counts: look whether `counts` returned NaN or infinite numbers."
    )
    """What to do when a chain of a model without a density has diverged."""
    factor: Any = None
    """L, for a sampler that moves u in θ = θ₀ + L u."""

    @property
    def core(self) -> Sampler:
        """The sampler that makes the moves: itself, unless it changes the coordinates of another."""
        return self

    def with_core(self, core: Any) -> Any:
        """The same coordinates for another sampler; by default those of the parameters, and `core` itself."""
        return core

    def largest_step(self, curvature: float) -> float:
        """Beyond this ε the step alone would inflate a variance by a fifth: tuning tries none larger."""
        return 1.0 / (3.0 * curvature) if self.step_order == 2 else float(np.sqrt(0.6 / curvature))

    @property
    def has_noise_ratio(self) -> bool:
        """Whether it knows its `noise_ratio`."""
        return type(self).noise_ratio is not Sampler.noise_ratio

    def noise_ratio(self, scales: Scales, eps: PyTree, params: Params) -> PyTree | None:
        """Variance of what gradient noise adds in a step over that of what is injected, for each parameter.

        None, the default: the injected noise is not known in closed form.
        """
        return None

    def excess(self, scales: Scales, stiffness: float, eps: PyTree, params: Params) -> Excess | None:
        """What `sc.analysis.diagnose` says of step size and gradient noise; None, the default: no closed form is known.

        `stiffness` is ε λ for `step_order` 2 and ε² λ for 1, with λ the largest curvature.
        """
        return None

    # -- before the run -------------------------------------------------------------------------------------

    def resolve(self, scales: Scales, params: Params) -> Sampler:
        """The same sampler with every number that was left open filled in; by default the step size alone."""
        if not is_open(self.step_size):
            return self
        step = langevin_step(scales) if self.step_order == 2 else momentum_step(scales)
        return dataclasses.replace(self, step_size=step)  # type: ignore[type-var]

    def with_refresh(self, latent: bool, batch_size: int, num_rows: int) -> Sampler:
        """With the steps between references filled in (`needs_reference`)."""
        raise NotImplementedError(f"{type(self).__name__} needs no reference")

    def check_params(self, params: Params, num_steps: int) -> None:
        """Refuse hyper-parameters that do not fit the parameters or the length of the run (host side)."""
        schedules.check_positive_along(self.step_size, num_steps)
        schedules.step_sizes(self.step_size, params, 0)

    # -- the moves ------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def init(self, params: Params, key: Key) -> Any:
        """State before the first step."""

    def noise(self, key: Key, params: Params) -> PyTree:
        """The randomness of one step: standard normals like the parameters."""
        return _tree.normal_like(key, params)

    @abc.abstractmethod
    def step(self, state: Any, gradient: Gradient, noise: PyTree, number: Array) -> Any:
        """One move; a proposal, for samplers that may refuse it."""

    def accept(
        self, state: Any, gradient: Gradient, proposal: Any, there: Gradient, noise: PyTree, number: Array
    ) -> tuple[Any, Gradient]:
        """The state after the step and the gradient at its position, given the gradient where the move leads.

        By default the move is made. A Metropolis step chooses between (`proposal`, `there`) and (`state`, `gradient`),
        for example with `select`.
        """
        return proposal, there

    def stats(self, state: Any) -> dict[str, Array]:
        """Scalars worth keeping with every draw."""
        return {}

    def sizes(self, params: Params, number: Array) -> PyTree:
        """ε for each parameter leaf."""
        return schedules.step_sizes(self.step_size, params, number)


def select(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    """One of two trees of the same structure."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def is_open(step_size: PyTree) -> bool:
    """Whether a step size is still to be chosen: None (from curvature and noise), or "auto" (by trying)."""
    return step_size is None or isinstance(step_size, str)


def coefficients(value: PyTree, params: Params, name: str) -> PyTree:
    """A hyper-parameter for each parameter leaf: a number for all, or a prefix tree whose leaves broadcast."""
    return _tree.broadcast_prefix(value, params, name)


MARGIN = 5.0
"""Default friction, as a multiple of the least that the gradient noise needs."""


def langevin_step(scales: Scales) -> float:
    """The largest step at which curvature and gradient noise each inflate the variance by at most about 5 %."""
    noise = max(float(jnp.max(leaf)) for leaf in jax.tree.leaves(scales.noise))
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
    """Largest entry of all leaves."""
    return max(float(jnp.max(leaf)) for leaf in jax.tree.leaves(tree))
