"""Any sampler in coordinates in which the posterior is isotropic."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import _checks, _tree
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.samplers.base import Gradient, Known, Mover, Needs, Proposer, Sampler, rebuilt
from scirocco.samplers.scales import Scales
from scirocco.types import Array, Key, Params, PyTree

METRICS = ("laplace", "fisher", "low_rank", "diagonal")


class WhitenedState(NamedTuple):
    """θ = θ₀ + L u: the position, the starting point, and the inner sampler's state, whose position is u."""

    position: Params
    start: Params
    inner: Any


@cited("a sampler moved in preconditioned coordinates", "ma2015 welling2011")
@pytree_dataclass
class Preconditioned(Mover):
    r"""A sampler that moves u in θ = θ₀ + L u, with L Lᵀ about the posterior covariance.

    .. math:: ĝ_u = Lᵀ ĝ(θ), \qquad u' = \text{inner step}(u, ĝ_u), \qquad θ' = θ + L (u' - u)

    Has the target of the inner sampler: a linear change of coordinates has a constant Jacobian. For SGLD it is
    θ' = θ + ε LLᵀ ĝ + √(2ε) L ξ. Badly scaled or correlated posteriors, in which one step size is too large for one
    direction and too small for another, become isotropic: the inner step size has no unit, and about 0.1 suits all.
    If L is measured, chains start at the mode.

    Cost per step: two products of L with a vector, O(d²) (O(kd) for k directions of "low_rank", O(d) for "diagonal").

    Parameters
    ----------
    inner
        `sc.SGLD()`, `sc.SGHMC()`, `sc.BAOAB()`, `sc.SGNHT()` or `sc.BADODAB()`; step size and friction are those of u.
    metric
        How L is computed before the run: "laplace" (the Hessian of the log posterior at the mode; where it is
        negligible compared with the gradients, as with absolute values, the same as "fisher"), "fisher"
        (the sum of outer products of the rows' gradients there, and the prior's curvature). For many parameters:
        "low_rank" (the diagonal of the Hessian and the directions, 48 at most, in which the posterior is much narrower
        or wider than the diagonal says) or "diagonal" (of "fisher").
    factor
        L itself: a matrix (d, d); a diagonal (d,); or (d, 1 + k), a diagonal s in the first column and k orthogonal
        directions w in the others, of which L = diag(s) (1 + Σ (|w| - 1) ww'/|w|²) stretches each by its length. In
        the order of `jax.flatten_util.ravel_pytree`, on the real line for transformed parameters; None: from `metric`.

    References
    ----------
    Ma, Chen & Fox (2015): their recipe, eq. (9), with constant D = LLᵀ, Q = 0.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = jax.random.normal(jax.random.key(0), (1000, 2)) * jnp.array([1e-3, 1e3])
    >>> model = sc.Model(lambda mu, x: -0.5 * jnp.sum(((x - mu) / jnp.array([1e-3, 1e3])) ** 2))
    >>> run = sc.sample(model, x, jnp.zeros(2), sampler=sc.Preconditioned(sc.SGLD()), num_samples=2000, progress=False)
    >>> bool(run.draws[0, :, 0].std() < 1e-4), bool(run.draws[0, :, 1].std() > 10)
    (True, True)
    """

    inner: Any
    metric: str = static(default="laplace")
    factor: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Sampler):
            raise InvalidTypeError(
                f"`inner` of Preconditioned must be a sampler such as sc.SGLD(), got {self.inner!r}."
            )
        if not self.inner.known.gradient_alone:
            raise InvalidTypeError(
                f"{type(self.inner).__name__} has a preconditioner or a geometry of its own. Preconditioned works with "
                "sc.SGLD, sc.SGHMC, sc.BAOAB, sc.SGNHT and sc.BADODAB."
            )
        if isinstance(self.inner, Proposer):
            raise InvalidTypeError(
                f"{type(self.inner).__name__} may reject a move, which it checks in the parameters' own coordinates: "
                "give it a step size for each parameter in place of Preconditioned."
            )
        _checks.choice(self.metric, "metric", METRICS)
        if self.factor is not None:
            if not isinstance(self.factor, jax.Array):
                object.__setattr__(self, "factor", np.asarray(self.factor))
            _check_factor(self.factor)

    @property
    def step_size(self) -> Any:
        return self.inner.step_size

    @property
    def temperature(self) -> Any:
        return self.inner.temperature

    @property
    def needs(self) -> Needs:
        """As the inner sampler; if L is measured, the mode, for which the step size is chosen."""
        inner = self.inner.needs
        return Needs(value=inner.value, auxiliary=inner.auxiliary, mode=self.factor is None, metric=self.metric)

    @property
    def known(self) -> Known:
        """The coordinates; all else is known about the inner sampler."""
        inner = self.inner.known
        return Known(step_order=inner.step_order, factor=self.factor, foreseen=inner.foreseen)

    @property
    def is_open(self) -> bool:
        return self.factor is None or self.inner.is_open

    def resolve(self, scales: Scales, params: Params) -> Preconditioned:
        """Fill in the measured L, and the inner sampler's hyper-parameters in the scale of u."""
        factor = scales.factor if self.factor is None else self.factor
        return rebuilt(self, inner=self.inner.resolve(scales, params), factor=factor)

    def check_params(self, params: Params, num_steps: int) -> None:
        if self.factor is not None and self.factor.shape[0] != _tree.size(params):
            raise InvalidValueError(
                f"`factor` of Preconditioned is for {self.factor.shape[0]} parameters; there are {_tree.size(params)}."
            )
        self.inner.check_params(params, num_steps)

    def init(self, params: Params, key: Key) -> WhitenedState:
        return WhitenedState(params, params, self.inner.init(_tree.zeros_like(params), key))

    def noise(self, key: Key, params: Params) -> PyTree:
        return self.inner.noise(key, params)

    def step(self, state: WhitenedState, gradient: Gradient, noise: PyTree, number: Array) -> WhitenedState:
        total = times(self.factor, gradient.total, transposed=True)
        pulled = Gradient(total, value=gradient.value, value_variance=gradient.value_variance)
        inner = self.inner.step(state.inner, pulled, noise, number)
        return WhitenedState(_tree.add(state.start, times(self.factor, inner.position)), state.start, inner)

    def stats(self, state: WhitenedState) -> dict[str, Array]:
        return self.inner.stats(state.inner)


def core_of(sampler: Sampler) -> Any:
    """The sampler that makes the moves: itself, unless it is wrapped in new coordinates."""
    return sampler.inner if isinstance(sampler, Preconditioned) else sampler


def with_core(sampler: Any, core: Any) -> Any:
    """`core` in the coordinates of a sampler, by default those of the parameters; None: the coordinates alone."""
    return rebuilt(sampler, inner=core) if isinstance(sampler, Preconditioned) else core


def times(factor: Any, tree: PyTree, transposed: bool = False) -> PyTree:
    """L x or Lᵀ x for a tree x; L as in `Preconditioned`."""
    flat, unravel = ravel_pytree(tree)
    # accelerators would round the factors of a product to ten bits or so
    product = partial(jnp.matmul, precision="highest")
    return unravel(rows_times(jnp.asarray(factor, flat.dtype), flat, transposed, product))


def rows_times(factor: Any, rows: Any, transposed: bool = False, product: Any = operator.matmul) -> Any:
    """L x or Lᵀ x for each of some vectors x (..., d), in NumPy or JAX."""
    if factor.ndim == 1:
        return rows * factor
    if factor.shape[0] == factor.shape[1]:
        if rows.ndim == 1 and not transposed:
            return product(factor, rows)
        return product(rows, factor if transposed else factor.T)
    scale, directions = factor[:, 0], factor[:, 1:]
    square = (directions * directions).sum(axis=0)
    rows = rows * scale if transposed else rows
    along = product(rows, directions) * ((square**0.5 - 1) / square)
    moved = rows + product(along, directions.T)
    return moved if transposed else moved * scale


def variances(factor: np.ndarray) -> np.ndarray:
    """The diagonal of LLᵀ."""
    if factor.ndim == 1:
        return factor**2
    if factor.shape[0] == factor.shape[1]:
        return np.asarray(np.sum(factor**2, axis=1))
    square = np.sum(factor[:, 1:] ** 2, axis=0)
    return np.asarray(factor[:, 0] ** 2 * (1 + factor[:, 1:] ** 2 @ ((square - 1) / square)))


def _check_factor(factor: Any) -> None:
    shape = np.shape(factor)
    if len(shape) not in (1, 2) or shape[0] < shape[-1]:
        raise InvalidValueError(f"`factor` of Preconditioned must be (d, d), (d,) or (d, 1 + k), got shape {shape}.")
    if isinstance(factor, jax.core.Tracer):
        return
    values = np.asarray(factor, np.float64)
    if not np.all(np.isfinite(values)):
        raise InvalidValueError("`factor` of Preconditioned must be finite.")
    square = len(shape) == 2 and shape[0] == shape[1]
    if not square and len(shape) == 2:
        gram = values[:, 1:].T @ values[:, 1:]
        lengths = np.sqrt(np.diagonal(gram))
        if np.any(np.abs(gram - np.diag(lengths**2)) > 1e-2 * np.outer(lengths, lengths)):
            raise InvalidValueError("the directions in `factor` of Preconditioned must be orthogonal.")
        values = np.concatenate([values[:, 0], lengths])
    if not (np.isfinite(np.linalg.slogdet(values)[1]) if square else np.all(values)):
        raise InvalidValueError("`factor` of Preconditioned is singular: some direction would never move.")
