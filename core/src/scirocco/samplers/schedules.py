"""Step sizes that change with the step number.

A schedule is a pytree: its numbers are data, so changing them does not recompile.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.types import Array, ArrayLike, Params, PyTree

__all__ = [
    "Constant",
    "Custom",
    "Cyclical",
    "Polynomial",
    "Schedule",
    "check_positive_along",
    "constant",
    "cycle_of",
    "cyclical",
    "is_schedule",
    "normalise",
    "polynomial",
    "step_sizes",
]


def __dir__() -> list[str]:
    return __all__


class Schedule(abc.ABC):
    """m ↦ ε_m."""

    @abc.abstractmethod
    def __call__(self, step: ArrayLike) -> Array:
        """The step size of step number `step` (counted from 0)."""


@pytree_dataclass
class Constant(Schedule):
    """ε_m = start."""

    start: ArrayLike

    def __post_init__(self) -> None:
        _checks.positive(self.start, "start", "constant")

    def __call__(self, step: ArrayLike) -> Array:
        return jnp.asarray(self.start, jnp.float32)


@pytree_dataclass
class Polynomial(Schedule):
    """ε_m = start (1 + m/tau)^(-kappa), the papers' schedule (there also h, τ, κ or a, b).

    Examples
    --------
    >>> import scirocco as sc
    >>> float(sc.schedules.polynomial(0.1, tau=10.0, kappa=1.0)(10))
    0.05000000074505806
    """

    start: ArrayLike
    tau: ArrayLike = 1_000.0
    kappa: ArrayLike = 0.33

    def __post_init__(self) -> None:
        _checks.positive(self.start, "start", "polynomial")
        _checks.positive(self.tau, "tau", "polynomial")
        _checks.positive(self.kappa, "kappa", "polynomial", allow_zero=True)

    def __call__(self, step: ArrayLike) -> Array:
        return jnp.asarray(self.start * (1.0 + step / self.tau) ** (-self.kappa))


@cited("cyclical step sizes", "zhang2020")
@pytree_dataclass
class Cyclical(Schedule):
    """ε_m = start/2 (cos(π (m mod length)/length) + 1), at least `floor`: large steps to move, small to sample.

    `length` is the number of steps of a cycle. `sc.sample` makes no draws in the first `explore` of each cycle, a share
    of its length: steps are large there, and positions have another distribution. `num_samples` counts the draws that
    are kept, so that a run has 1/(1 - explore) times as many steps; cycles that begin before the end of the burn-in
    count towards it as far as their first draw. explore=0 keeps draws of whole cycles.

    References
    ----------
    Zhang, Li, Zhang, Chen & Wilson (2020).

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = jax.random.normal(jax.random.key(0), (1000,))
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> cycles = sc.schedules.cyclical(1e-3, length=50, floor=1e-5)
    >>> run = sc.sample(model, x, jnp.array(0.0), sampler=sc.SGLD(cycles), estimator=sc.Minibatch(100),
    ...                 num_samples=100, progress=False)
    >>> run.num_draws, run.configuration["cycle"]
    (100, [50, 40])
    """

    start: ArrayLike
    length: int = static()
    floor: ArrayLike = 0.0
    explore: float = static(default=0.8)

    def __post_init__(self) -> None:
        _checks.positive(self.start, "start", "cyclical")
        _checks.positive_int(self.length, "length")
        _checks.positive(self.floor, "floor", "cyclical", allow_zero=True)
        _checks.positive(self.explore, "explore", "cyclical", allow_zero=True)
        if self.explore >= 1:
            raise InvalidValueError(f"`explore` of cyclical must be below 1, got {self.explore}.")

    @property
    def steps_to_explore(self) -> int:
        """Steps at the beginning of a cycle without draws."""
        return min(round(self.explore * self.length), self.length - 1)

    def __call__(self, step: ArrayLike) -> Array:
        phase = (step % self.length) / self.length
        return jnp.maximum(0.5 * self.start * (jnp.cos(jnp.pi * phase) + 1.0), self.floor)


@pytree_dataclass
class Custom(Schedule):
    """The user's own function of the step number; it must be traceable by JAX."""

    function: Callable[[ArrayLike], Any] = static()

    def __call__(self, step: ArrayLike) -> Array:
        try:
            return jnp.asarray(self.function(step), jnp.float32)
        except (jax.errors.TracerBoolConversionError, TypeError):
            raise  # explained by `_evaluate`
        except Exception as error:
            raise InvalidValueError(
                f"the schedule `{_tree.name_of(self.function)}` must return a number for the number of a step, and be "
                f"traceable by JAX; it failed ({type(error).__name__}: {error})."
            ) from error


constant, polynomial, cyclical = Constant, Polynomial, Cyclical


def cycle_of(sampler: PyTree) -> tuple[int, ...]:
    """The cycle of its step sizes, in steps, and how many of them make no draws; empty if all steps may."""
    leaves = jax.tree.leaves(sampler, is_leaf=lambda node: isinstance(node, Cyclical))
    found = {(one.length, one.steps_to_explore) for one in leaves if isinstance(one, Cyclical) and one.steps_to_explore}
    if len(found) > 1:
        raise InvalidValueError(
            "the schedules of step sizes have different phases (steps of a cycle, steps without draws): "
            f"{sorted(found)}. Use the same `length` and `explore`, or explore=0 where all steps may make draws."
        )
    return found.pop() if found else ()


def is_schedule(value: Any) -> bool:
    """Whether this is a schedule or a plain function of the step number."""
    return isinstance(value, Schedule) or (callable(value) and not isinstance(value, type))


def normalise(step_size: PyTree, owner: str, automatic: bool = False) -> PyTree:
    """Check the numbers in a step size (number, tree of numbers, schedule) and wrap plain functions.

    `automatic`: whether None or "auto" is allowed too.
    """
    if step_size is None and automatic:
        return None

    def one(name: str, value: Any) -> Any:
        if isinstance(value, Schedule):
            return value
        if is_schedule(value):
            return Custom(value)
        _checks.positive(value, name, owner)
        return _checks.as_float(value)

    if isinstance(step_size, str):
        if step_size == "auto" and automatic:
            return step_size
        others = "" if automatic else f" {owner} has no default."
        raise InvalidTypeError(
            f"`step_size` of {owner} must be a number, a dict of numbers or a schedule, got {step_size!r}.{others} "
            'With step_size="auto" sc.SGLD, sc.SGHMC, sc.BAOAB, sc.SGNHT and sc.BADODAB choose theirs by trying many.'
        )
    leaves, treedef = jax.tree.flatten(step_size, is_leaf=_is_whole)
    if not leaves or any(leaf is None for leaf in leaves):
        raise InvalidTypeError(f"`step_size` of {owner} must be a number, a dict of numbers or a schedule.")
    names = [f"step_size of {name}" for name in _tree.leaf_names(step_size, _is_whole)]
    if len(leaves) == 1 and leaves[0] is step_size:
        names = ["step_size"]
    return jax.tree.unflatten(treedef, [one(name, leaf) for name, leaf in zip(names, leaves, strict=True)])


def _is_whole(value: Any) -> bool:
    return is_schedule(value) or value is None


def step_sizes(step_size: PyTree, params: Params, step: ArrayLike, name: str = "step_size") -> PyTree:
    """ε for each parameter leaf at this step."""
    spread = _tree.broadcast_prefix(step_size, params, name, is_leaf=is_schedule)
    leaves = jax.tree.leaves(spread, is_leaf=is_schedule)
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(params)]
    values = [
        jnp.asarray(leaf(step) if is_schedule(leaf) else leaf, dtype)
        for leaf, dtype in zip(leaves, dtypes, strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(params), values)


def check_positive_along(step_size: PyTree, num_steps: int) -> None:
    """Reject schedules that reach 0 or become NaN or inf within the run (checked at 1,000 steps)."""
    # always the same length, to avoid recompilation
    probe = np.linspace(0, max(0, num_steps - 1), 1_000).astype(np.int32)
    for schedule in jax.tree.leaves(step_size, is_leaf=is_schedule):
        if not is_schedule(schedule):
            continue
        values = _evaluate(schedule, probe)
        bad = np.flatnonzero(~np.isfinite(values) | (values <= 0))
        if len(bad):
            raise InvalidValueError(
                f"the step-size schedule gives {values[bad[0]]} at step {probe[bad[0]]}: it must stay finite and > 0 "
                f"for all {num_steps} steps of the run."
            )


def _evaluate(schedule: Schedule, probe: np.ndarray) -> np.ndarray:
    """The schedule at these steps; errors in users' own functions are explained."""
    try:
        values = np.asarray(jax.vmap(schedule)(jnp.asarray(probe)))
    except jax.errors.TracerBoolConversionError as error:
        raise InvalidValueError(
            "the step-size schedule branches on the step number with `if`, which JAX cannot trace: use jnp.where."
        ) from error
    except TypeError as error:
        raise InvalidValueError(
            f"the step-size schedule failed; it must take one argument, the step number ({error})."
        ) from error
    if values.shape != probe.shape:
        raise InvalidValueError(f"the step-size schedule must return one number; it returns shape {values.shape[1:]}.")
    return values
