"""Summaries of chains that are too large to keep: reducers see every draw and keep a small state.

A reducer is a frozen pytree dataclass with `init(params)`, `update(state, params)` and `result(state)`; its state is
part of the chain's, so it is stored and resumed with it. Your own class with these three methods works as well; with
`needs_gradients = True` its `update(state, params, gradient)` also receives the gradient at the draw, on the real line.
`PathMoments` uses the whole path of `sc.ZigZag` and `sc.BouncyParticle`, not only its positions at the draws.
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
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import _checks
from scirocco._programs import library_program
from scirocco._tree import pytree_dataclass, static
from scirocco.errors import InvalidTypeError
from scirocco.types import Array, Params, PyTree

__all__ = [
    "MomentResult",
    "MomentState",
    "Moments",
    "PathMoments",
    "PathState",
    "Predictive",
    "Reducer",
    "Reducing",
    "Trace",
    "ZeroVariance",
    "ZeroVarianceResult",
    "ZeroVarianceState",
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
        squares = jax.tree.map(lambda s, v, old, new: s + (v - old) * (v - new), state.squares, value, state.mean, mean)
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


class ZeroVarianceState(NamedTuple):
    """Running means and co-moments of a function g and of the gradient s."""

    count: Array  # type: ignore[assignment]
    mean: PyTree
    slope: Array
    """The mean of s, (d,)."""
    squares: PyTree
    """Sums of squared deviations of g."""
    cross: PyTree
    """Sums of products of deviations of s and g, leaves (d, ...)."""
    own: Array
    """Sums of products of deviations of s, (d, d)."""


class ZeroVarianceResult(NamedTuple):
    """The mean of g over the draws of a chain, without and with control variates."""

    count: Array  # type: ignore[assignment]
    plain: PyTree
    value: PyTree
    """The mean of g + aᵀs."""
    reduction: PyTree
    """The variance of g over that of g + aᵀs."""


@pytree_dataclass
class ZeroVariance:
    r"""Zero-variance estimates of posterior expectations without keeping draws (thesis, section 3.6).

    The mean of g + aᵀs, where s = ∇ log posterior has mean 0 and a = -Var(s)⁻¹ Cov(s, g): that of
    `sc.analysis.zero_variance` of degree 1, from running means and co-moments (Welford's recursion), (d + q) d numbers
    for d parameters and q values. On a Gaussian posterior with exact gradients, means of linear functions have no Monte
    Carlo error. Each chain has its own estimate: their spread is the standard error.

    Parameters
    ----------
    function
        g(params), any pytree of numbers; by default the parameters themselves.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = 3.0 + jax.random.normal(jax.random.key(0), (100,))
    >>> run = sc.sample(sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2), x, jnp.array(0.0), sampler=sc.SGLD(1e-3),
    ...                 estimator=sc.Full(), num_samples=500, keep_draws=False, progress=False,
    ...                 reducers={"mu": sc.reducers.ZeroVariance()})
    >>> bool(abs(run.reduced["mu"].value[0] - x.mean()) < 1e-3)
    True
    """

    function: Callable[[Params], PyTree] | None = static(default=None)

    needs_gradients: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_function(self.function, "ZeroVariance", optional=True)

    def init(self, params: Params) -> ZeroVarianceState:
        """Zeros."""
        count, mean, squares = Moments(self.function).init(params)
        size = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params))
        cross = jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape), leaf.dtype), mean)
        slope = jnp.zeros(size, jnp.result_type(*jax.tree.leaves(params)))
        return ZeroVarianceState(count, mean, slope, squares, cross, jnp.zeros((size, size), slope.dtype))

    def update(self, state: ZeroVarianceState, params: Params, gradient: PyTree) -> ZeroVarianceState:
        """One step of Welford's recursion, for both."""
        count, mean, squares = Moments(self.function).update(
            MomentState(state.count, state.mean, state.squares), params
        )
        new = ravel_pytree(gradient)[0].astype(state.slope.dtype)
        if new.shape != state.slope.shape:
            raise InvalidTypeError(
                "ZeroVariance requires as many numbers on the real line as there are parameters: this model's "
                "transforms change their number. Use keep_gradients=True and sc.analysis.zero_variance."
            )
        before = new - state.slope
        slope = state.slope + before / count.astype(new.dtype)
        value = Moments(self.function).value(params)
        cross = jax.tree.map(
            lambda c, v, m: c + before.reshape(-1, *[1] * v.ndim) * (v - m)[None], state.cross, value, mean
        )
        own = state.own + jnp.outer(before, new - slope)
        return ZeroVarianceState(count, mean, slope, squares, cross, own)

    def result(self, state: ZeroVarianceState) -> ZeroVarianceResult:
        """Both means, and the reduction of the variance (NaN before the second draw)."""
        scale = jnp.sqrt(jnp.maximum(jnp.diagonal(state.own), jnp.finfo(state.own.dtype).tiny))
        eye = jnp.eye(len(scale), dtype=scale.dtype)
        correlations = state.own / jnp.outer(scale, scale) + 4 * jnp.finfo(scale.dtype).eps * eye

        def of_leaf(mean: Array, squares: Array, cross: Array) -> tuple[Array, Array]:
            flat = cross.reshape(len(scale), -1) / scale[:, None].astype(cross.dtype)
            weights = -jnp.linalg.solve(correlations.astype(cross.dtype), flat)
            value = mean + (weights.T @ (state.slope / scale)).reshape(mean.shape)
            left = jnp.maximum(squares + jnp.sum(weights * flat, axis=0).reshape(mean.shape), 0.0)
            return value, squares / left

        leaves = zip(*map(jax.tree.leaves, (state.mean, state.squares, state.cross)), strict=True)
        found = [of_leaf(*each) for each in leaves]
        treedef = jax.tree.structure(state.mean)
        value, reduction = (jax.tree.unflatten(treedef, part) for part in zip(*found, strict=True))
        return ZeroVarianceResult(state.count, state.mean, value, reduction)


class PathAverages(NamedTuple):
    """Time averages over the path between two draws: of g, of g - g(last draw) and of its square."""

    mean: PyTree
    change: PyTree
    square: PyTree


class PathState(NamedTuple):
    """Welford's recursion for the means between draws, and the sum of the variances around them."""

    count: Array  # type: ignore[assignment]
    mean: PyTree
    between: PyTree
    within: PyTree


@pytree_dataclass
class PathMoments:
    r"""Mean and variance by integrals along the whole path of `sc.ZigZag` or `sc.BouncyParticle`.

    .. math:: \frac1T \int_0^T g(θ_t)\, dt \quad\text{and}\quad \frac1T \int_0^T (g(θ_t) - \bar g)^2 dt

    instead of averages over positions at equal times: a lower variance, for no more rows, if draws are far apart
    (`step_size` of the sampler). Paths are straight lines on the real line, so that the integral of a polynomial g is
    computed exactly: by Gauss's rule with `degree` + 1 nodes for each line, which is exact up to degree 2 `degree` + 1.
    For other smooth functions it is accurate, and more so with a higher `degree`.

    Parameters
    ----------
    function
        g(params), any pytree of numbers; by default the parameters themselves.
    degree
        Degree of the polynomial g.

    Notes
    -----
    The result has the fields `count` (draws), `mean` and `variance` (of g), leaves (chain, ...); the spread of the
    chains' means is the standard error. With thinning only the part of the path before each draw counts: use a larger
    `step_size` instead.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, scirocco as sc
    >>> rng = np.random.default_rng(0)
    >>> data = {"x": rng.normal(size=(1000, 2)).astype(np.float32), "y": rng.integers(0, 2, 1000)}
    >>> model = sc.Model.linear("bernoulli", lambda beta: -0.5 * jnp.sum(beta**2))
    >>> run = sc.sample(model, data, jnp.zeros(2), sampler=sc.ZigZag(), num_samples=1000, keep_draws=False,
    ...                 reducers={"beta": sc.reducers.PathMoments()}, progress=False)
    >>> run.reduced["beta"].mean.shape == (run.num_chains, 2)
    True
    """

    function: Callable[[Params], PyTree] | None = static(default=None)
    degree: int = static(default=1)

    needs_path: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_function(self.function, "PathMoments", optional=True)
        _checks.positive_int(self.degree, "degree")

    def average(self, origin: Params, at: Callable[[float], Params]) -> PathAverages:
        """The averages over the line `at(share)`, 0 <= share <= 1, of a path that started at `origin`."""
        nodes, weights = np.polynomial.legendre.leggauss(self.degree + 1)
        value = Moments(self.function).value
        base = value(origin)
        found = [value(at(float(0.5 + 0.5 * node))) for node in nodes]

        def of_leaf(base: Array, *values: Array) -> tuple[Array, Array, Array]:
            stack = jnp.stack(values)
            shares = jnp.asarray(0.5 * weights, stack.dtype).reshape(-1, *[1] * base.ndim)
            change = stack - base
            return tuple(jnp.sum(shares * each, axis=0) for each in (stack, change, change**2))  # type: ignore[return-value]

        leaves, treedef = jax.tree.flatten(base)
        each = [of_leaf(*parts) for parts in zip(leaves, *map(jax.tree.leaves, found), strict=True)]
        return PathAverages(*(jax.tree.unflatten(treedef, part) for part in zip(*each, strict=True)))

    def init(self, params: Params) -> PathState:
        """Zeros."""
        count, mean, squares = Moments(self.function).init(params)
        return PathState(count, mean, squares, squares)

    def update(self, state: PathState, params: Params, path: PathAverages) -> PathState:
        """Add the path since the last draw."""
        moments = Moments().update(MomentState(state.count, state.mean, state.between), path.mean)
        within = jax.tree.map(lambda s, q, c: s + q - c**2, state.within, path.square, path.change)
        return PathState(*moments, within)

    def result(self, state: PathState) -> MomentResult:
        """Mean and variance (NaN before the first draw)."""
        number = jnp.where(state.count > 0, state.count, jnp.nan)
        variance = jax.tree.map(lambda b, w: (b + w) / number, state.between, state.within)
        return MomentResult(state.count, state.mean, variance)


@dataclass(frozen=True)
class _Averaging:
    """The averages of all `PathMoments` of a run along a straight line on the real line."""

    reducers: tuple[tuple[str, PathMoments], ...]
    constrain: Callable[[Params], Params] | None

    def __call__(self, origin: Params, start: Params, end: Params) -> dict[str, PathAverages]:
        constrain = self.constrain or (lambda position: position)

        def at(share: float) -> Params:
            return constrain(jax.tree.map(lambda a, b: a + share * (b - a), start, end))

        return {name: reducer.average(constrain(origin), at) for name, reducer in self.reducers}


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
        self._trace = jax.jit(self._traces, static_argnums=1)

    def __bool__(self) -> bool:
        return bool(self.traced or self.reducers)

    @property
    def needs_gradients(self) -> bool:
        """Whether a reducer uses the gradients at the draws, too."""
        return any(_uses_gradients(reducer) for reducer in self.reducers.values())

    @property
    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted([*self.traced, *self.reducers])

    def init(self, params: Params) -> dict[str, PyTree]:
        """States before the first draw of one chain."""
        return {name: reducer.init(params) for name, reducer in self.reducers.items()}

    def average(self, constrain: Callable[[Params], Params] | None) -> Callable[..., PyTree] | None:
        """What a sampler averages along its path for these reducers; None: nothing."""
        found = {name: each for name, each in self.reducers.items() if _uses_path(each)}
        return _Averaging(tuple(found.items()), constrain) if found else None

    def update(self, states: PyTree, chunk: Any, count: int, vectorized: bool = False) -> PyTree:
        """Add the first `count` draws of a chunk, one after the other (of all chains at once if `vectorized`)."""
        if not self.reducers:
            return states
        update = _update_chains if vectorized else _update_chain
        gradients = chunk.gradients if self.needs_gradients else None
        return update(self.reducers, states, chunk.draws, (gradients, chunk.path), np.int32(count))

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


def _uses_path(reducer: Any) -> bool:
    return getattr(reducer, "needs_path", False)


def _uses_gradients(reducer: Any) -> bool:
    return getattr(reducer, "needs_gradients", False)


def _update(
    reducers: dict[str, Any], states: dict[str, PyTree], draws: PyTree, more: PyTree, count: Array
) -> dict[str, PyTree]:
    def one(number: Array, states: dict[str, PyTree]) -> dict[str, PyTree]:
        params, (gradient, path) = jax.tree.map(lambda leaf: leaf[number], (draws, more))

        def inputs(name: str, reducer: Any) -> tuple[PyTree, ...]:
            if _uses_path(reducer):
                return params, path[name]
            return (params, gradient) if _uses_gradients(reducer) else (params,)

        return {name: reducer.update(states[name], *inputs(name, reducer)) for name, reducer in reducers.items()}

    return jax.lax.fori_loop(0, count, one, states)


# compiled once for reducers of the same functions, whichever run they belong to
_update_chain = library_program()(_update)
_update_chains = library_program()(jax.vmap(_update, in_axes=(None, 0, 0, 0, None)))
