"""The contract of all samplers: a move of the position, given an estimate of the gradient of the log posterior.

A sampler never sees data, batches or models. It is of one of five kinds, which differ in what a step is given:

`Mover`        `step(state, gradient, noise, number)`: one move
`Proposer`     the same move as a proposal, and `accept`, which is given the gradient there
`Trajectory`   exact gradients at points of its own choice (`trajectories.py`)
`Events`       an expansion of the log posterior, and bounds on what it leaves out (`events.py`)
`Blocks`       an estimate for each block of parameters, in turn (`blocks.py`)

What a step requires is data, `Needs`; what is known about the sampler is data, `Known`. The rest of the library reads
those and never tests for a class, so that you can add a sampler in one file.

Conventions: ε is the recipe's step size (drift ε·(...), noise variance 2εD); the gradient is that of the log posterior;
`number` counts steps from 0; the target is posterior^(1/temperature).
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco.errors import InvalidValueError
from scirocco.samplers import schedules
from scirocco.samplers.scales import Excess, Scales, Setting, langevin_step, momentum_step
from scirocco.types import Array, Key, Params, PyTree


class Reference(NamedTuple):
    """A better estimate of the same sum, renewed from time to time (`Needs.reference`)."""

    total: PyTree
    variance: PyTree
    """Variance of a single estimate, for each entry."""
    renewed: float | None = None
    """Variance of a renewed reference over that of a single estimate; None: not applicable."""
    before: PyTree | None = None
    """The reference before it, whose error is independent; None: references are from all rows and have none."""
    error: PyTree | None = None
    """The standard error of `before`."""


class Gradient(NamedTuple):
    """The input of a sampler at the current position."""

    total: PyTree
    """Unbiased estimate of the gradient of the log posterior; of the counts' sum for samplers driven by counts."""
    noise: PyTree | None = None
    """Its covariance, if the sampler requires it (`Needs.noise`)."""
    curvature: PyTree | None = None
    """Unbiased estimate of the diagonal of the Hessian of the log posterior (`Needs.curvature`)."""
    reference: Reference | None = None
    value: Array | None = None
    """Estimate of the log posterior there, from the same rows (`Needs.value`); on the real line, up to a constant."""
    value_variance: Array | None = None
    """Its variance, if the estimator knows it: 0 for `sc.Full`; for others if `Needs.noise` is not "none"."""
    auxiliary: PyTree | None = None
    """The auxiliary draws of the rows of the batch used for `total`, leaves (row, ...) (`Needs.auxiliary`)."""


Average = Callable[[Params, Params, Params], PyTree]
"""`average(origin, start, end)`: what is averaged along a straight line, at a step that started at `origin`."""


class Renewals(NamedTuple):
    """How a sampler has its `Reference` renewed."""

    every: int | None
    """Steps between renewals; 0: never; None: `completed` fills it in."""
    size: int | None
    """Rows for a renewal; None: all."""
    completed: Callable[[bool, int, int], Any]
    """`completed(latent, batch_size, num_rows)`: the sampler with `every` filled in."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Needs:
    """What the steps of a sampler require, in addition to an estimate of the gradient of the log posterior."""

    drive: str = "gradient"
    """What `Gradient.total` must be: "gradient" (of a `Model`), "counts" (of a `CountModel`) or "blocks"."""
    value: bool = False
    """Whether each step uses an estimate of the log posterior (`Gradient.value`)."""
    exact_value_every: int = 0
    """Steps of a `Proposer` between proposals whose `Gradient.value` is that of all rows; 0: there are none."""
    curvature: bool = False
    """Whether each step uses the diagonal of the Hessian (`Gradient.curvature`)."""
    noise: str = "none"
    """Which covariance of the estimate each step uses (`Gradient.noise`): none, scalar, diagonal or full."""
    auxiliary: bool = False
    """Whether each step uses the auxiliary draws of the batch, from a likelihood with a key (`Gradient.auxiliary`)."""
    reference: Renewals | None = None
    """Whether each step uses a `Reference`, and how that is renewed."""
    independent_batches: bool = False
    """Whether batches must be independent of each other, instead of without replacement over an epoch."""
    trajectory: bool = False
    """Whether a step evaluates exact gradients at several points: it requires `sc.Full`, and rows in memory."""
    expansion: int = 0
    """The least order of an expansion of the log posterior with bounds (`sc.Taylor`); 0: it requires none."""
    mode: bool = False
    """Whether chains start at the posterior mode, which is searched for from the given parameters."""
    metric: str = "none"
    """The coordinates of the measurement for `resolve`: the parameters' own, or those of `Preconditioned`."""


def _no_closed_form(*_: Any) -> None:
    """What is not known."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
    """What is known about a sampler: for the choice of its step size, for `sc.analysis.diagnose`, and for messages."""

    step_order: int = 2
    """ε has the unit of the parameters to this power: 2 for Langevin dynamics, 1 with a momentum."""
    gradient_alone: bool = False
    """Whether a step depends on the position only through the gradient, so that it can move in other coordinates."""
    is_exact: bool = False
    """Whether the posterior is its stationary distribution, for any step size."""
    damping: str = ""
    """Name of its friction hyper-parameter; "": it has none. Tuning varies it if it is not given."""
    absorbs_noise: bool = False
    """Whether gradient noise of unknown variance leaves its stationary distribution unchanged (thermostats)."""
    stiffest: float | None = None
    """ε λ (ε² λ for `step_order` 1) of the longest step that tuning tries, with λ the largest curvature; None: where
    the step alone inflates a variance by a fifth."""
    noise_ratio: Callable[[Scales, PyTree, Params], PyTree] | None = None
    """`noise_ratio(scales, eps, params)`: variance that gradient noise adds in a step over the injected variance, for
    each parameter; None: the injected noise is not known in closed form."""
    excess: Callable[[Scales, float, PyTree, Params], Excess | None] = _no_closed_form
    """`excess(scales, stiffness, eps, params)`: inflation of variances by step size and gradient noise; `stiffness` is
    ε λ for `step_order` 2 and ε² λ for 1."""
    foreseen: Callable[[Scales], Setting | None] = _no_closed_form
    """`foreseen(scales)`: what `resolve` would choose in round coordinates and where it leads."""
    factor: Any = None
    """L, for a sampler that moves u in θ = θ₀ + L u."""
    averaging: Callable[[Average], Any] | None = None
    """`averaging(average)`: the same sampler, with averages along its path in its state (`path`); None: it only makes
    draws."""
    divergence: str = (
        "Its transitions are finite for finite counts: look whether `counts` returned NaN or infinite numbers."
    )
    """Advice when a chain of a model without a density, or a chain with an expansion, has diverged."""

    def largest_step(self, curvature: float) -> float:
        """The largest ε that tuning tries."""
        if self.step_order == 2:
            return 1.0 / (3.0 * curvature) if self.stiffest is None else self.stiffest / curvature
        return float(np.sqrt((0.6 if self.stiffest is None else self.stiffest) / curvature))


class Sampler(abc.ABC):
    """Base class of all kinds. Concrete samplers are frozen dataclasses and pytrees of their hyper-parameters.

    Override `needs` and `known` with an attribute, or with a property if they depend on the hyper-parameters.
    """

    step_size: Any
    temperature: Any = 1.0

    @property
    def needs(self) -> Needs:
        """What its steps require: by default an estimate of the gradient."""
        return Needs()

    @property
    def known(self) -> Known:
        """What is known about it: by default nothing."""
        return Known()

    @property
    def is_open(self) -> bool:
        """Whether `resolve` must fill in hyper-parameters, from a measurement of curvature and gradient noise."""
        return is_open(self.step_size)

    def resolve(self, scales: Scales, params: Params) -> Sampler:
        """The same sampler with all missing hyper-parameters filled in; by default only the step size."""
        if not is_open(self.step_size):
            return self
        step = langevin_step(scales) if self.known.step_order == 2 else momentum_step(scales)
        return dataclasses.replace(self, step_size=step)  # type: ignore[type-var]

    def check_params(self, params: Params, num_steps: int) -> None:
        """Reject hyper-parameters that do not fit the parameters or the length of the run (host side)."""
        schedules.check_positive_along(self.step_size, num_steps)
        jax.eval_shape(partial(schedules.step_sizes, self.step_size), params, 0)

    @abc.abstractmethod
    def init(self, params: Params, key: Key) -> Any:
        """The state before the first step; the next gradient is computed at `state.position`."""

    def noise(self, key: Key, params: Params) -> PyTree:
        """Everything random in a step that does not depend on the state; by default normals like the parameters.

        It is separate, so that the noise of many steps is drawn in advance in one vectorised call.
        """
        return _tree.normal_like(key, params)

    def stats(self, state: Any) -> dict[str, Array]:
        """Scalars to store with every draw."""
        return {}

    def sizes(self, params: Params, number: Array) -> PyTree:
        """ε for each parameter leaf."""
        return schedules.step_sizes(self.step_size, params, number)


S = TypeVar("S", bound=Sampler)


class Mover(Sampler):
    """A sampler whose step is one move, driven by the estimate at the current position."""

    @abc.abstractmethod
    def step(self, state: Any, gradient: Gradient, noise: PyTree, number: Array) -> Any:
        """The state after the move: pure arithmetic."""


class Proposer(Sampler):
    """A sampler that may reject its move once it knows the gradient at the new position."""

    @abc.abstractmethod
    def step(self, state: Any, gradient: Gradient, noise: PyTree, number: Array) -> Any:
        """The proposal: pure arithmetic."""

    @abc.abstractmethod
    def accept(
        self, state: Any, gradient: Gradient, proposal: Any, there: Gradient, noise: PyTree, number: Array
    ) -> tuple[Any, Gradient]:
        """The state after the step and the gradient at its position, given the gradient at the proposal.

        A Metropolis step chooses between (`proposal`, `there`) and (`state`, `gradient`), for example with `select`.
        """


def rebuilt(sampler: S, **fields: Any) -> S:
    """A copy with other fields, made without the constructor and its checks: fields may be tracers or stacks."""
    copy, known = object.__new__(type(sampler)), [field.name for field in dataclasses.fields(sampler)]  # type: ignore[arg-type]
    if unknown := sorted(fields.keys() - set(known)):
        raise TypeError(f"{type(sampler).__name__} has no fields {unknown}; it has {sorted(known)}.")
    for name in known:
        object.__setattr__(copy, name, fields.get(name, getattr(sampler, name)))
    return copy


def check_fields(sampler: Sampler, automatic: bool = False) -> None:
    """Check step size and temperature, and keep known numbers as floats."""
    owner = type(sampler).__name__
    step_size = schedules.normalise(sampler.step_size, owner, automatic=automatic)
    object.__setattr__(sampler, "step_size", step_size)
    _checks.positive(sampler.temperature, "temperature", owner, allow_zero=True)
    object.__setattr__(sampler, "temperature", _checks.as_float(sampler.temperature))


def check_amounts(sampler: Sampler, name: str, allow_zero: bool = False) -> None:
    """Check a field with a number, or a tree of numbers and arrays; known numbers are kept as floats."""
    owner = type(sampler).__name__

    def one(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray | jax.Array) and leaf.ndim and np.issubdtype(leaf.dtype, np.number):
            return leaf
        _checks.positive(leaf, name, owner, allow_zero=allow_zero)
        return _checks.as_float(leaf)

    object.__setattr__(sampler, name, jax.tree.map(one, getattr(sampler, name)))


def damping_of(sampler: Sampler) -> Any:
    """The value of the friction hyper-parameter; None: not given, or there is none."""
    return getattr(sampler, sampler.known.damping) if sampler.known.damping else None


def has_one_scale(sampler: Sampler) -> bool:
    """Whether all parameters have one step size in their own units: neither preconditioned, tuned nor adapted."""
    return sampler.needs.metric == "none" and not is_tuned(sampler) and not sampler.known.is_exact


def is_tuned(sampler: Sampler) -> bool:
    """Whether the step size is chosen by trying many (`step_size="auto"`)."""
    return isinstance(sampler.step_size, str)


def is_open(step_size: PyTree) -> bool:
    """Whether a step size must be chosen: None (from curvature and noise), or "auto" (by trying many)."""
    return step_size is None or isinstance(step_size, str)


def select(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    """One of two trees of the same structure."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def coefficients(value: PyTree, params: Params, name: str) -> PyTree:
    """A hyper-parameter for each parameter leaf: a number for all, or a prefix tree whose leaves broadcast."""
    spread = _tree.broadcast_prefix(value, params, name)
    for leaf, part in zip(jax.tree.leaves(spread), jax.tree.leaves(params), strict=True):
        here, there = np.shape(leaf), np.shape(part)
        sizes = there[len(there) - len(here) :]
        if len(here) > len(there) or any(size not in (1, wanted) for size, wanted in zip(here, sizes, strict=True)):
            raise InvalidValueError(f"`{name}` has the shape {here}, but the parameters have {there}.")
    return spread
