"""The inputs of zero-variance estimates (draws, gradients, a function of the draws) and their regression."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.linalg import cho_factor, cho_solve

from scirocco import _tree
from scirocco.diagnostics.columns import label
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.model import Posterior
from scirocco.run import Run
from scirocco.types import Params, PyTree

Array = np.ndarray[Any, np.dtype[Any]]
_FEWEST = 10  # draws per chain

RIDGES = (0.0, 1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)  # tried, relative to correlations of 1
_FLOOR = 1e-10  # smaller eigenvalues are rounding: for linearly dependent features float32 gives about 1e-14
_AS_GOOD, _ROUNDING = 1.01, 1e-10  # errors that count as equal: relative, and of the variance of g


class GradientSource(NamedTuple):
    """Draws and gradients, leaves (chain, draw, ...), in memory or on disk."""

    draws: PyTree
    gradients: PyTree
    unconstrain: Callable[[Params], Params] | None
    """From a draw to its position; None: they are the same."""
    temperature: float = 1.0

    @property
    def num_chains(self) -> int:
        """Chains."""
        return int(jax.tree.leaves(self.draws)[0].shape[0])

    @property
    def num_draws(self) -> int:
        """Draws of each chain."""
        return int(jax.tree.leaves(self.draws)[0].shape[1])

    @property
    def dimension(self) -> int:
        """Length of a gradient."""
        return _tree.size(jax.tree.map(lambda leaf: one(leaf), self.gradients))

    def read(self, part: slice) -> tuple[PyTree, Array]:
        """These draws of all chains: leaves (chain·draw, ...), and the gradients as a matrix."""
        draws = jax.tree.map(lambda leaf: _rows(leaf, part), self.draws)
        gradients = _tree.matrix(jax.tree.map(lambda leaf: _rows(leaf, part), self.gradients))
        return draws, gradients / self.temperature

    def positions(self, draws: PyTree) -> Array:
        """The positions of such draws, as a matrix."""
        if self.unconstrain is None:
            return _tree.matrix(draws)
        found = _tree.matrix(_many(self.unconstrain, draws))
        if not np.isfinite(found).all():
            raise InvalidValueError(
                "`model` has transforms whose domain the draws are not in: pass the run's own model."
            )
        return found

    def refuse_infinite(self, values: Array, part: slice, what: str) -> None:
        """Raise an error that names the first draw that is not finite."""
        bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(bad):
            chain, draw = divmod(int(bad[0]), part.stop - part.start)
            raise InvalidValueError(
                f"{what} must be finite; at chain {chain}, draw {part.start + draw} (from 0) one is not."
            )


def one(leaf: Array) -> jax.ShapeDtypeStruct:
    """The shape of one draw."""
    return jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype)


def _rows(leaf: Array, part: slice) -> Array:
    values = np.asarray(leaf[:, part])
    return values.reshape(-1, *values.shape[2:])


@partial(jax.jit, static_argnums=0)
def _many(function: Callable[[PyTree], PyTree], draws: PyTree) -> PyTree:
    """Apply a function to each row; JAX caches the program for each function and shape."""
    return jax.vmap(function)(draws)


# -- the inputs ---------------------------------------------------------------------------------------------


def source_of(run: Run | tuple[PyTree, PyTree], degree: int, model: Posterior | None) -> GradientSource:
    """The draws and gradients of a run, or of a pair; raises an error if there are none."""
    if model is not None and not isinstance(model, Posterior):
        raise InvalidTypeError(f"`model` must be the sc.Model of the run, got {model!r}.")
    if isinstance(run, tuple) and not _tree.is_named_tuple(run) and len(run) == 2:
        source = GradientSource(*run, None if model is None else model.unconstrain)
    elif isinstance(run, Run):
        _refuse_bare(run)
        source = GradientSource(
            run.draws, run.gradients, _unconstrain(run, model) if degree == 2 else None, _temperature(run)
        )
    else:
        raise InvalidTypeError(f"zero_variance requires a run, or a pair (draws, gradients); got {type(run).__name__}.")
    _check_shapes(source)
    if source.num_draws < _FEWEST:
        raise InvalidValueError(
            f"zero_variance requires at least {_FEWEST} draws per chain, got {source.num_draws} (leaves are "
            "(chain, draw, ...))."
        )
    return source


def _temperature(run: Run) -> float:
    """T of a run that targets posterior^(1/T): its log density has gradients 1/T times the posterior's."""
    sampler = run.configuration["sampler"]
    inner = sampler.get("inner") or sampler
    temperature = inner.get("temperature", 1.0)
    if not temperature:
        raise InvalidValueError("zero_variance requires draws of a distribution: at temperature 0 there is none.")
    return float(temperature)


def _refuse_bare(run: Run) -> None:
    if run.draws is None or not run.num_draws:
        raise InvalidValueError(
            "the run has no draws: zero_variance requires them and their gradients. Sample with keep_draws=True and "
            "keep_gradients=True."
        )
    if run.gradients is not None:
        return
    written = str(run.configuration.get("model", ""))
    if written.startswith("CountModel") or isinstance(run.configuration.get("sampler"), str):
        kind = written.partition("(")[0] or "this model"
        raise InvalidValueError(
            f"zero_variance requires gradients of a log density, and {kind} has none: use it with runs of sc.Model."
        )
    raise InvalidValueError(
        "the run has no gradients, which zero_variance requires. Sample again with sc.sample(..., keep_gradients=True)."
    )


def _unconstrain(run: Run, model: Posterior | None) -> Callable[[Params], Params]:
    """The map from draws to positions; if they differ, it requires the model."""
    if model is None and run.origin is not None:
        model = run.origin.model
    if model is None and run.configuration.get("transformed") is False:
        return lambda draw: draw
    if model is None:
        raise InvalidValueError(
            "degree 2 requires positions on the real line, and the model of this run transforms its parameters: pass "
            "model=..., the model of the run, or use degree=1."
        )
    unconstrain: Callable[[Params], Params] = model.unconstrain
    return unconstrain


def _check_shapes(source: GradientSource) -> None:
    for tree, name in ((source.draws, "draws"), (source.gradients, "gradients")):
        leaves = jax.tree.leaves(tree)
        if not leaves or any(len(np.shape(leaf)) < 2 for leaf in leaves):
            raise InvalidValueError(f"`{name}` must be arrays (chain, draw, ...), or a tree of such.")
    shapes = {tuple(leaf.shape[:2]) for leaf in jax.tree.leaves((source.draws, source.gradients))}
    if len(shapes) > 1:
        raise InvalidValueError(
            f"draws and gradients must have the same chains and draws, got leading shapes {sorted(shapes)}."
        )


# -- the function --------------------------------------------------------------------------------------------


class Integrand:
    """g for many draws, as a matrix, and the conversion back to g's own structure."""

    def __init__(self, g: Callable[[Params], PyTree] | None, draws: PyTree):
        draw = jax.tree.map(one, draws)
        self._g = g if g is None else _hashable(g)
        self._spec = draw if self._g is None else _shape_of(self._g, draw)
        self.size = _tree.size(self._spec)

    def __call__(self, draws: PyTree) -> Array:
        """The values of g as a matrix (row, output)."""
        return _tree.matrix(draws if self._g is None else _many(self._g, draws))

    def build(self, values: Array) -> PyTree:
        """A value for each output, in g's structure; single numbers as numbers."""
        leaves, start = [], 0
        for leaf in jax.tree.leaves(self._spec):
            stop = start + int(np.prod(leaf.shape))
            part = values[start:stop].reshape(leaf.shape)
            leaves.append(part if part.ndim else float(part))
            start = stop
        return jax.tree.unflatten(jax.tree.structure(self._spec), leaves)

    def labels(self) -> Iterator[str]:
        """A name for each output."""
        names = _tree.leaf_names(self._spec)
        for name, leaf in zip(names, jax.tree.leaves(self._spec), strict=True):
            name = "g" if self._g is not None and name == "params" else name
            yield from (label(name, leaf.shape, place) for place in range(math.prod(leaf.shape)))


def _hashable(g: Callable[[Params], PyTree]) -> Callable[[Params], PyTree]:
    if not callable(g):
        raise InvalidTypeError(f"`g` must be a function of one draw of the parameters, or None, got {g!r}.")
    try:
        hash(g)
    except TypeError:
        return lambda params: g(params)
    return g


def _shape_of(g: Callable[[Params], PyTree], draw: PyTree) -> PyTree:
    try:
        spec = jax.eval_shape(g, draw)
    except Exception as error:  # anything that the user's function raises
        reason = str(error).strip().partition("\n")[0][:200].rstrip(".")
        raise InvalidValueError(
            f"`g` cannot be traced with the parameters of ONE draw ({type(error).__name__}: {reason}). It must be "
            "written with jax.numpy, without `if` or float() on the parameters."
        ) from error
    leaves = jax.tree.leaves(spec)
    if not _tree.size(spec) or any(leaf.dtype.kind not in "fiub" and leaf.dtype.name != "bfloat16" for leaf in leaves):
        kinds = ", ".join(f"{leaf.dtype} {leaf.shape}" for leaf in leaves) or "nothing"
        raise InvalidValueError(f"`g` must return real numbers (a scalar, an array or a tree), got {kinds}.")
    return spec


# -- the regression: least squares on Stein features, for each fold from the draws outside it, with a ridge -------


def num_features(dimension: int, degree: int) -> int:
    """Monomials of degree 1 to `degree`."""
    return dimension if degree == 1 else dimension + dimension * (dimension + 1) // 2


def features(s: Array, x: Array | None) -> Array:
    """ΔP + ∇P·s for P = x_i, and with positions for P = x_i²/2 and x_i x_j (i < j), row by row of the triangle."""
    if x is None:
        return s
    rows, dimension = s.shape
    out, start = np.empty((rows, num_features(dimension, 2))), dimension
    out[:, :dimension] = s
    for i in range(dimension):
        stop = start + dimension - i
        out[:, start:stop] = x[:, i, None] * s[:, i:] + x[:, i:] * s[:, i, None]
        out[:, start] = 1.0 + x[:, i] * s[:, i]
        start = stop
    return out


def uncentred(coefficients: Array, centre: Array) -> Array:
    """Coefficients for features of x, from those for features of x - centre."""
    dimension = len(centre)
    if len(coefficients) == dimension:
        return coefficients
    i, j = np.triu_indices(dimension)
    out, pairs = coefficients.copy(), coefficients[dimension:]
    # (x_i - m_i) s_j + (x_j - m_j) s_i is the feature of x, less m_i s_j + m_j s_i
    np.subtract.at(out, j, centre[i, None] * pairs)
    off = i != j
    np.subtract.at(out, i[off], centre[j[off], None] * pairs[off])
    return out


class FeatureSums(NamedTuple):
    """Moments of features z and outputs g, about a point near their means."""

    num: float
    """Rows."""
    z: Array
    g: Array
    zz: Array
    zg: Array
    gg: Array
    """Second moments of each output alone."""

    @classmethod
    def of(cls, z: Array, g: Array) -> FeatureSums:
        """The moments of these rows."""
        return cls(float(len(z)), z.sum(axis=0), g.sum(axis=0), z.T @ z, z.T @ g, (g * g).sum(axis=0))

    def plus(self, other: FeatureSums, sign: float = 1.0) -> FeatureSums:
        """Both together (sign -1: the rows of `other` left out)."""
        arrays = (a + sign * b for a, b in zip(self[1:], other[1:], strict=True))
        return FeatureSums(self.num + sign * other.num, *arrays)

    def add(self, other: FeatureSums) -> FeatureSums:
        """Both together, in place where it saves a large matrix."""
        for mine, theirs in zip(self[1:], other[1:], strict=True):
            np.add(mine, theirs, out=mine)
        return self._replace(num=self.num + other.num)

    def about(self, z: Array, g: Array) -> tuple[Array, Array, Array]:
        """Means of (z - z₀)(z - z₀)ᵀ, (z - z₀)(g - g₀)ᵀ and (g - g₀)²."""
        n, mz, mg = self.num, self.z / self.num, self.g / self.num
        dz, dg = mz - z, mg - g
        zz = self.zz / n - np.outer(mz, mz) + np.outer(dz, dz)
        zg = self.zg / n - np.outer(mz, mg) + np.outer(dz, dg)
        return zz, zg, np.maximum(self.gg / n - mg * mg, 0.0) + dg * dg

    @property
    def means(self) -> tuple[Array, Array]:
        """The means of z and of g."""
        return self.z / self.num, self.g / self.num


class FeatureRegression:
    """Regression of g on standardised z, for any ridge."""

    def __init__(self, sums: FeatureSums):
        self._means = sums.means
        zz, zg, _ = sums.about(*self._means)
        spread = np.sqrt(np.maximum(np.diag(zz), 0.0))
        self._scale = np.where(spread > 0, spread, np.inf)  # a feature that does not vary is left out
        self._correlations = zz / np.outer(self._scale, self._scale)
        self._cross = zg / self._scale[:, None]

    def coefficients(self, ridge: float) -> Array:
        """a = -(Var z + ridge)⁻¹ Cov(z, g), for z in its own units: (feature, output)."""
        matrix = self._correlations.copy()
        matrix[np.diag_indices_from(matrix)] += max(ridge, _FLOOR)
        found = cho_solve(cho_factor(matrix, lower=True, overwrite_a=True), self._cross)
        return np.asarray(-found / self._scale[:, None])

    def errors(self, other: FeatureSums, ridges: tuple[float, ...]) -> Array:
        """Mean squares of g + aᵀz about its mean here, over the rows of `other`: (ridge, output)."""
        zz, zg, gg = other.about(*self._means)
        tried = (self.coefficients(ridge) for ridge in ridges)
        return np.maximum([gg + (a * (2.0 * zg + zz @ a)).sum(axis=0) for a in tried], 0.0)


class FittedFeatures(NamedTuple):
    """Coefficients of all draws, those of each fold (from the draws outside it), and the ridge."""

    coefficients: Array
    outside: list[Array]
    ridge: float


def fit(folds: list[FeatureSums], ridge: float | None) -> FittedFeatures:
    """Choose the smallest ridge that predicts the held-out folds about as well as the best one."""
    total = folds[0]
    for fold in folds[1:]:
        total = total.plus(fold)
    others = [FeatureRegression(total.plus(fold, -1.0)) for fold in folds]
    if ridge is None:
        few = total.num - max(fold.num for fold in folds) <= len(total.z)
        ridge = _choose(total, folds, others, RIDGES[1:] if few else RIDGES)
    outside = [regression.coefficients(ridge) for regression in others]
    return FittedFeatures(FeatureRegression(total).coefficients(ridge), outside, ridge)


def _choose(
    total: FeatureSums, folds: list[FeatureSums], others: list[FeatureRegression], ridges: tuple[float, ...]
) -> float:
    variance = total.about(*total.means)[2]
    unit = np.where(variance > 0, variance, 1.0)
    squares = [other.errors(fold, ridges) for other, fold in zip(others, folds, strict=True)]
    scores = np.mean(np.mean(squares, axis=0) / unit, axis=1)
    good = scores <= _AS_GOOD * scores.min() + _ROUNDING
    return ridges[int(np.argmax(good))]
