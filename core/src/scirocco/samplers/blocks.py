"""A sampler of named blocks: each block of parameters has its own sampler, and they move in turn."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from scirocco import _tree
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.samplers.base import Gradient, Known, Mover, Needs, Sampler
from scirocco.types import Array, Key, Params, PyTree

Names = tuple[str, ...]
Units = tuple[Callable[[Params], Params], Callable[[Params], Params]]
"""From positions to the user's parameters, and back."""


@cited("Gibbs updates of a block between stochastic gradient steps", "chen2014")
@pytree_dataclass
class Gibbs:
    """A block with your own update: a draw from its conditional, or any move that leaves the conditional invariant.

    Parameters
    ----------
    update
        `update(key, params)` -> the new value of the block, or `update(key, params, total)` if the model has
        `sc.Statistics` for the block: `total` is then their (estimated) sum over all rows. `params` are all parameters
        in your units; for a block of several names the new value is a dict.

    Notes
    -----
    An update whose statistics are exact (`sc.Full`), or that needs none, leaves the posterior exactly invariant. With
    minibatches the sum is an unbiased estimate whose variance adds to that of the draw: if that matters, use `sc.SCIR`
    (its step size damps it) or a gradient.

    Examples
    --------
    >>> import jax, scirocco as sc
    >>> def precision_of_u(key, params):
    ...     shape, rate = 1.0 + params["u"].size / 2, 1.0 + (params["u"] ** 2).sum() / 2
    ...     return jax.random.gamma(key, shape) / rate
    >>> sampler = sc.Blocks({"u": sc.SGLD(1e-4), "precision": sc.Gibbs(precision_of_u)})
    """

    update: Callable[..., Any] = static()

    def __post_init__(self) -> None:
        if not callable(self.update):
            raise InvalidTypeError(f"`update` of Gibbs must be a function (key, params), got {self.update!r}.")

    @property
    def takes_total(self) -> bool:
        """Whether the update takes the sum of statistics."""
        return required_arguments(self.update) >= 3

    @property
    def needs(self) -> Needs:
        """The sum of statistics, or nothing."""
        return Needs(drive="statistics" if self.takes_total else "")


def required_arguments(function: Callable[..., Any]) -> int:
    """The number of positional arguments without a default."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = inspect.signature(function).parameters.values()
    return sum(p.kind in kinds and p.default is p.empty for p in found)


class BlocksState(NamedTuple):
    """All parameters, and the state of the sampler of each block."""

    position: Params
    inner: tuple[Any, ...]


@cited("samplers that move the blocks of the parameters in turn", "ma2015")
@pytree_dataclass
class Blocks(Sampler):
    r"""Moves the blocks of the parameters in turn, each by its own sampler.

    .. math:: θ_b' ∼ K_b(θ_b, \hat g_b(θ_1', …, θ_{b-1}', θ_b, …, θ_B)), \qquad b = 1, …, B

    Each K_b is a step of a gradient sampler, a transition of `sc.SCIR`, or your own update (`sc.Gibbs`), and each
    leaves the conditional of its block given the others invariant (up to its own step-size error), so the sweep leaves
    the joint posterior invariant. Blocks that use data use different rows: an estimate that has already moved one block
    would be biased for the next.

    Cost of a step (a sweep): the sum over blocks; a batch of the estimator's size for each block that uses data.

    Parameters
    ----------
    samplers
        A dict from the name of a parameter, or a tuple of names that move together, to a sampler. Every parameter must
        be in one block. Blocks are moved in the order given.

    Notes
    -----
    With `sc.ControlVariates` the centre is the starting point of the chain, unless you give one; blocks whose counts or
    statistics are random (they take a key) use plain minibatches. A step of `sample` or a `Kernel` is a whole sweep.
    The R package lists this as future work: Gibbs steps together with stochastic gradients (thesis, 4.7).

    Examples
    --------
    >>> import scirocco as sc
    >>> sampler = sc.Blocks({"means": sc.SGLD(1e-4), "weights": sc.SCIR(0.1)})
    """

    needs = Needs(drive="blocks")
    known = Known(
        divergence="Check the block of that parameter: a step size that is too large (try a tenth), or a Gibbs update "
        "that returned NaN or a value outside its domain."
    )

    samplers: Any
    names: tuple[Names, ...] = static(default=())

    def __post_init__(self) -> None:
        if isinstance(self.samplers, Mapping):
            keys = [(key,) if isinstance(key, str) else key for key in self.samplers]
            object.__setattr__(self, "names", tuple(keys))
            object.__setattr__(self, "samplers", tuple(self.samplers.values()))
        listed = isinstance(self.names, Sequence) and isinstance(self.samplers, Sequence)
        if listed and all(isinstance(names, Sequence) for names in self.names):
            object.__setattr__(self, "names", tuple(tuple(names) for names in self.names))
        else:
            object.__setattr__(self, "names", ())
        if not self.names or len(self.names) != len(self.samplers):
            raise InvalidTypeError(
                "Blocks requires a dict of samplers by parameter, e.g. sc.Blocks({'means': sc.SGLD(1e-4)})."
            )
        for names, sampler in zip(self.names, self.samplers, strict=True):
            _check_block(names, sampler)
        twice = sorted({n for names in self.names for n in names if sum(n in other for other in self.names) > 1})
        if twice:
            raise InvalidValueError(f"Blocks has {', '.join(f'`{n}`' for n in twice)} in two blocks.")

    step_size: ClassVar[Any] = ()  # type: ignore[misc]
    """Each block has its own."""

    @property
    def reading(self) -> list[int]:
        """The blocks that use data."""
        return [index for index, sampler in enumerate(self.samplers) if sampler.needs.drive]

    @property
    def updates(self) -> list[tuple[Names, Gibbs]]:
        """The blocks with an update of the user."""
        return [(names, one) for names, one in zip(self.names, self.samplers, strict=True) if isinstance(one, Gibbs)]

    def own(self, index: int, position: Params) -> Params:
        """The part of a position that a block moves."""
        return _tree.pick(position, self.names[index])

    def put(self, index: int, position: Params, part: Params) -> Params:
        """The position with the part of a block replaced."""
        return _tree.put(position, self.names[index], part)

    def check_params(self, params: Params, num_steps: int) -> None:
        """Check that every parameter is in a block, and that each block's sampler fits it."""
        if not isinstance(params, dict):
            raise InvalidTypeError(f"Blocks requires a dict of parameters by name, got {type(params).__name__}.")
        named = {name for names in self.names for name in names}
        if named != set(params):
            missing, unknown = sorted(set(params) - named), sorted(named - set(params))
            problem = f"has no sampler for {missing}" if missing else f"names {unknown}, which are not parameters"
            raise InvalidValueError(f"Blocks {problem}. The parameters are {sorted(params)}.")
        for index, sampler in enumerate(self.samplers):
            if isinstance(sampler, Sampler):
                sampler.check_params(self.own(index, params), num_steps)

    def init(self, params: Params, key: Key) -> BlocksState:
        inner = [
            sampler.init(self.own(index, params), jax.random.fold_in(key, index))
            if isinstance(sampler, Sampler)
            else ()
            for index, sampler in enumerate(self.samplers)
        ]
        return BlocksState(params, tuple(inner))

    def noise(self, key: Key, params: Params) -> PyTree:
        """The noise of each block; an update of the user gets the key itself."""
        keys = [jax.random.fold_in(key, index) for index in range(len(self.samplers))]
        return tuple(
            sampler.noise(own, self.own(index, params)) if isinstance(sampler, Sampler) else own
            for index, (sampler, own) in enumerate(zip(self.samplers, keys, strict=True))
        )

    def step(
        self, index: int, state: BlocksState, gradient: Gradient, noise: PyTree, number: Array, units: Units
    ) -> BlocksState:
        """Move one block."""
        sampler, position = self.samplers[index], state.position
        if isinstance(sampler, Gibbs):
            return BlocksState(self._drawn(index, position, gradient, noise, units), state.inner)
        moved = sampler.step(state.inner[index], gradient, noise, number)
        inner = (*state.inner[:index], moved, *state.inner[index + 1 :])
        return BlocksState(self.put(index, position, moved.position), inner)

    def _drawn(self, index: int, position: Params, gradient: Gradient, key: Key, units: Units) -> Params:
        constrain, unconstrain = units
        params, sampler = constrain(position), self.samplers[index]
        total = (gradient.total,) if sampler.takes_total else ()
        value = sampler.update(key, params, *total)
        was = self.own(index, params)
        if jax.tree.structure(value) != jax.tree.structure(was):  # type: ignore[operator]
            raise InvalidValueError(
                f"the Gibbs update of {self._label(index)} must return a value like it, {jax.tree.structure(was)}; got "
                f"{jax.tree.structure(value)}."
            )
        value = jax.tree.map(lambda new, old: self._like(index, new, old), value, was)
        back = unconstrain(self.put(index, params, value))
        return self.put(index, position, self.own(index, back))

    def _like(self, index: int, new: Any, old: Array) -> Array:
        if jnp.shape(new) != old.shape:
            raise InvalidValueError(
                f"the Gibbs update of {self._label(index)} returned shape {jnp.shape(new)}; it must be {old.shape}."
            )
        return jnp.asarray(new, old.dtype)

    def _label(self, index: int) -> str:
        return ", ".join(f"`{name}`" for name in self.names[index])

    def stats(self, state: BlocksState) -> dict[str, Array]:
        return {
            f"{name}_{'_'.join(names)}": value
            for names, sampler, inner in zip(self.names, self.samplers, state.inner, strict=True)
            if isinstance(sampler, Sampler)
            for name, value in sampler.stats(inner).items()
        }


def _check_block(names: Any, sampler: Any) -> None:
    if not isinstance(names, tuple) or not names or not all(isinstance(name, str) for name in names):
        raise InvalidTypeError(f"a block is named by a parameter or a tuple of them, got {names!r}.")
    label = ", ".join(f"`{name}`" for name in names)
    if isinstance(sampler, Gibbs):
        return
    if not isinstance(sampler, Sampler) or isinstance(sampler, Blocks):
        raise InvalidTypeError(
            f"the block {label} requires a sampler such as sc.SGLD(1e-5) or sc.Gibbs(update); got {sampler!r}."
        )
    kind = type(sampler).__name__
    if sampler.is_open:
        raise InvalidValueError(
            f"{kind} has missing hyper-parameters, which cannot be chosen in Blocks; in the block {label} give its "
            "step size and, if it has them, friction and gradient noise (0.0: no correction)."
        )
    needs = sampler.needs
    more = (needs.curvature, needs.reference, needs.value, needs.auxiliary)
    if any(more) or not isinstance(sampler, Mover):
        what = "sc.SCIR" if needs.reference else "a sampler without it"
        raise InvalidTypeError(f"{kind} requires more than an estimate at each step; use {what} in the block {label}.")
