"""What every sampler is: a move of the position, given an estimate of the gradient of the log posterior.

A sampler never sees data, batches or models. Its contract:

`init(params, key)`             the state before the first step; `state.position` is where the next gradient is taken
`noise(key, params)`            all that is random in one step and does not depend on the state; because it is apart,
                                the noise of many steps is drawn ahead in one vectorised call
`step(state, gradient, noise, number)`   the move: pure arithmetic

Conventions: ε is the recipe's step size (drift ε·(...), noise variance 2εD); the gradient is that of the log posterior;
`number` counts steps from 0; the law that is targeted is posterior^(1/temperature).
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from scirocco import _tree
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


class Sampler(abc.ABC):
    """Base of all samplers. Every concrete one is a frozen dataclass and a pytree of its hyper-parameters."""

    step_size: Any
    driven_by: ClassVar[str] = "gradient"
    """What `Gradient.total` must be: "gradient" (of a `Model`) or "counts" (of a `CountModel`)."""
    needs_reference: ClassVar[bool] = False
    """Whether each step needs a `Reference`; such a sampler has `refresh_every` and `refresh_size`."""
    gradient_alone: ClassVar[bool] = False
    """Whether a step depends on where it starts through the gradient alone: then it can move in other coordinates."""
    noise_kind: ClassVar[str] = "none"
    """Which gradient-noise covariance each step needs: none, scalar, diagonal or full."""

    @property
    def needs_curvature(self) -> bool:
        """Whether each step needs the diagonal of the Hessian."""
        return False

    metric: ClassVar[str] = "none"
    """In which coordinates `resolve` wants its measurement: the parameters' own, or those of `Preconditioned`."""

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

    def resolve(self, scales: Scales, params: Params) -> Sampler:
        """The same sampler with every number that was left open filled in."""
        return self

    @abc.abstractmethod
    def init(self, params: Params, key: Key) -> Any:
        """State before the first step."""

    def noise(self, key: Key, params: Params) -> PyTree:
        """The randomness of one step: standard normals like the parameters."""
        return _tree.normal_like(key, params)

    @abc.abstractmethod
    def step(self, state: Any, gradient: Gradient, noise: PyTree, number: Array) -> Any:
        """One move."""

    def stats(self, state: Any) -> dict[str, Array]:
        """Scalars worth keeping with every draw."""
        return {}

    def check_params(self, params: Params, num_steps: int) -> None:
        """Refuse hyper-parameters that do not fit the parameters or the length of the run (host side)."""
        schedules.check_positive_along(self.step_size, num_steps)
        schedules.step_sizes(self.step_size, params, 0)

    def sizes(self, params: Params, number: Array) -> PyTree:
        """ε for each parameter leaf."""
        return schedules.step_sizes(self.step_size, params, number)


def is_open(step_size: Any) -> bool:
    """Whether a step size is still to be chosen: None (from curvature and noise), or "auto" (by trying)."""
    return step_size is None or isinstance(step_size, str)


def coefficients(value: Any, params: Params, name: str) -> PyTree:
    """A hyper-parameter for each parameter leaf: a number for all, or a prefix tree whose leaves broadcast."""
    return _tree.broadcast_prefix(value, params, name)
