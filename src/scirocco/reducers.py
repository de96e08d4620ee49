"""Summaries of chains that are too large to keep: reducers see every draw and keep a small state.

A reducer is a frozen pytree dataclass with `init(params)`, `update(state, params)` and `result(state)`; its state is
part of the chain's, so it is stored and resumed with it. Your own class with these three methods works as well.
`Trace` is different: it keeps one value per draw, like the "test functions" of R's sgmcmc.

    run = sc.sample(..., keep_draws=100, reducers={
        "posterior": sc.reducers.Moments(),
        "held_out": sc.reducers.Predictive(predict, x_test),
        "norm": sc.reducers.Trace(lambda params: jnp.linalg.norm(params["w"])),
    })
    run.reduced["posterior"].mean       # leaves (chain, ...)
    run.traces["norm"]                  # (chain, draw)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from scirocco._tree import pytree_dataclass, static
from scirocco.errors import InvalidTypeError
from scirocco.types import Array, Params, PyTree

__all__ = [
    "MomentResult",
    "MomentState",
    "Moments",
    "Predictive",
    "Reducer",
    "Reducing",
    "Trace",
]


def __dir__() -> list[str]:
    return __all__


@runtime_checkable
class Reducer(Protocol):
    """Sees every draw, keeps a state of fixed size."""

    def init(self, params: Params) -> PyTree:
        """The state before the first draw."""

    def update(self, state: PyTree, params: Params) -> PyTree:
        """The state after one more draw."""

    def result(self, state: PyTree) -> Any:
        """The result for the user."""


class MomentState(NamedTuple):
    """State of Welford's recursion, which is stable for any number of draws."""

    count: Array  # type: ignore[assignment]
    mean: PyTree
    squares: PyTree
    """Sum of squared deviations from the running mean."""


class MomentResult(NamedTuple):
    """Mean and variance over the draws of a chain."""

    count: Array  # type: ignore[assignment]
    mean: PyTree
    variance: PyTree


@pytree_dataclass
class Moments:
    """Running mean and variance, elementwise, of the parameters or of a function of them.

    m_t = m_{t-1} + (x_t - m_{t-1}) / t,  S_t = S_{t-1} + (x_t - m_{t-1}) (x_t - m_t),  variance = S_t / (t - 1).

    Parameters
    ----------
    function
        `function(params)` -> any pytree of numbers; by default the parameters themselves.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> run = sc.sample(model, jnp.ones(1000), jnp.array(1.0), sampler=sc.SGLD(1e-4), num_samples=500,
    ...                 keep_draws=False, reducers={"mu": sc.reducers.Moments()}, progress=False)
    >>> int(run.reduced["mu"].count[0]), run.draws is None
    (500, True)
    """

    function: Callable[[Params], PyTree] | None = static(default=None)

    def __post_init__(self) -> None:
        _check_function(self.function, "Moments", optional=True)

    def value(self, params: Params) -> PyTree:
        """The values to average, as floating-point numbers."""
        values = params if self.function is None else self.function(params)
        return jax.tree.map(lambda v: jnp.asarray(v, jnp.result_type(v, jnp.float32)), values)

    def init(self, params: Params) -> MomentState:
        """Zeros."""
        spec = jax.eval_shape(self.value, params)
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), spec)
        return MomentState(jnp.zeros((), jnp.int32), zeros, zeros)

    def update(self, state: MomentState, params: Params) -> MomentState:
        """One step of Welford's recursion."""
        value, count = self.value(params), state.count + 1
        mean = jax.tree.map(lambda m, v: m + (v - m) / count.astype(m.dtype), state.mean, value)
        squares = jax.tree.map(
            lambda s, v, old, new: s + (v - old) * (v - new), state.squares, value, state.mean, mean
        )
        return MomentState(count, mean, squares)

    def result(self, state: MomentState) -> MomentResult:
        """Mean and variance (NaN before the second draw)."""
        free = jnp.where(state.count > 1, state.count - 1, jnp.nan)
        return MomentResult(state.count, state.mean, jax.tree.map(lambda s: s / free, state.squares))


@pytree_dataclass
class Predictive:
    """Running mean of `predict(params, inputs)`: the posterior predictive, without keeping draws.

    Parameters
    ----------
    predict
        A function of `(params, inputs)`, for example class probabilities for all rows of `inputs`.
    inputs
        Any pytree of arrays; it is data, so other inputs of the same shape do not recompile.
    """

    predict: Callable[[Params, PyTree], PyTree] = static()
    inputs: PyTree

    def __post_init__(self) -> None:
        _check_function(self.predict, "Predictive")

    def init(self, params: Params) -> MomentState:
        """Zeros."""
        return self._moments().init(params)

    def update(self, state: MomentState, params: Params) -> MomentState:
        """Add one prediction."""
        return self._moments().update(state, params)

    def result(self, state: MomentState) -> MomentResult:
        """The mean is the predictive; the variance measures how much the draws disagree."""
        return Moments().result(state)

    def _moments(self) -> Moments:
        return Moments(lambda params: self.predict(params, self.inputs))


@pytree_dataclass
class Trace:
    """A function of the parameters at every draw, kept like draws, (chain, draw, ...), in `run.traces`.

    For chains whose positions are too large to keep, but whose log density, norm or prediction is not.
    """

    function: Callable[[Params], PyTree] = static()

    def __post_init__(self) -> None:
        _check_function(self.function, "Trace")


def _check_function(function: object, owner: str, optional: bool = False) -> None:
    if not callable(function) and not (optional and function is None):
        raise InvalidTypeError(f"{owner} requires a function of the parameters, got {function!r}.")


class Reducing:
    """All reducers of a run as one: their states, and the traces of a chunk."""

    def __init__(self, reducers: dict[str, Any] | None):
        reducers = {} if reducers is None else reducers
        if not isinstance(reducers, dict):
            raise InvalidTypeError(
                "`reducers` must be a dict from names to reducers, e.g. "
                f"reducers={{'posterior': sc.reducers.Moments()}}; got {type(reducers).__name__}."
            )
        for name, reducer in reducers.items():
            if isinstance(reducer, type):
                raise InvalidTypeError(f"reducer `{name}` is a class: add parentheses.")
            if not isinstance(reducer, (Trace, Reducer)):
                raise InvalidTypeError(
                    f"reducer `{name}` must have init, update and result (or be a sc.reducers.Trace), got {reducer!r}."
                )
        self.traced = {name: r.function for name, r in reducers.items() if isinstance(r, Trace)}
        self.reducers = {name: r for name, r in reducers.items() if not isinstance(r, Trace)}
        self._update = jax.jit(_update)
        self._update_all = jax.jit(jax.vmap(_update, in_axes=(None, 0, 0, None)))
        self._trace = jax.jit(self._traces, static_argnums=1)

    def __bool__(self) -> bool:
        return bool(self.traced or self.reducers)

    @property
    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted([*self.traced, *self.reducers])

    def init(self, params: Params) -> dict[str, PyTree]:
        """States before the first draw of one chain."""
        return {name: reducer.init(params) for name, reducer in self.reducers.items()}

    def update(self, states: PyTree, draws: PyTree, count: int, vectorized: bool = False) -> PyTree:
        """Add the first `count` draws of a chunk, one after the other (of all chains at once if `vectorized`)."""
        if not self.reducers:
            return states
        update = self._update_all if vectorized else self._update
        return update(self.reducers, states, draws, np.int32(count))

    def trace(self, draws: PyTree, axis: int) -> dict[str, PyTree]:
        """The traced functions at every draw of a chunk; `axis` is the axis of the draws."""
        return self._trace(draws, axis) if self.traced else {}

    def _traces(self, draws: PyTree, axis: int) -> dict[str, PyTree]:
        return {name: _mapped(function, axis)(draws) for name, function in self.traced.items()}

    def results(self, states: dict[str, PyTree]) -> dict[str, Any]:
        """The results for the user, from states with a leading chain axis."""
        return {name: jax.vmap(r.result)(states[name]) for name, r in self.reducers.items()}


def _mapped(function: Callable[..., PyTree], axis: int) -> Callable[..., PyTree]:
    over_draws = jax.vmap(function)
    return jax.vmap(over_draws) if axis else over_draws


def _update(
    reducers: dict[str, Reducer], states: dict[str, PyTree], draws: PyTree, count: Array
) -> dict[str, PyTree]:
    def one(number: Array, states: dict[str, PyTree]) -> dict[str, PyTree]:
        params = jax.tree.map(lambda leaf: leaf[number], draws)
        return {name: reducer.update(states[name], params) for name, reducer in reducers.items()}

    return jax.lax.fori_loop(0, count, one, states)
