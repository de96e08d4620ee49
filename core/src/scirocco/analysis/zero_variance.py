r"""Zero-variance estimates: posterior expectations from the draws and gradients of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scirocco import _checks
from scirocco.analysis.zero_variance_fit import (
    Array,
    FeatureSums,
    GradientSource,
    Integrand,
    features,
    fit,
    num_features,
    source_of,
    uncentred,
)
from scirocco.diagnostics import mcse
from scirocco.diagnostics.frames import supported
from scirocco.errors import InvalidValueError
from scirocco.model import Posterior
from scirocco.run import Run
from scirocco.types import Params, PyTree

_FOLDS = 5  # parts of the draws, each with coefficients from the others
_BLOCK_NUMBERS, _BLOCK_ROWS = 1 << 21, 4_096  # in memory at once
MOST_FEATURES = 2_000
"""The most features of a regression: a dozen matrices of 32 MB."""
_SHOWN = 8  # lines that are printed
_STRETCHES = 1_000  # segments of a chain that an error is from


@dataclass(frozen=True, repr=False)
class ZeroVariance:
    """Expectations of a function without and with control variates, in the function's structure.

    Attributes
    ----------
    plain, plain_error
        The mean of g over the draws, and its Monte Carlo standard error.
    value, standard_error
        The mean of g + aᵀz, and its error.
    reduction
        (plain_error / standard_error)²: how many times more draws the plain mean would need for the error of `value`.
    coefficients
        a, (feature, output), from all draws. Features: ∇ log posterior; with degree 2 then, for i <= j row by row,
        x_i s_j + x_j s_i (1 + x_i s_i for i = j).
    num_draws, num_features
        Draws of all chains, and features.
    degree, ridge
        The degree of the polynomials; and the ridge added to the correlations of the features (0: least squares).
    """

    plain: PyTree
    value: PyTree
    plain_error: PyTree
    standard_error: PyTree
    reduction: PyTree
    coefficients: Array
    num_draws: int
    num_features: int
    degree: int
    ridge: float
    _rows: list[tuple[str, float, float, float, float, float]] = field(compare=False)

    def __repr__(self) -> str:
        ridge = f"ridge {self.ridge:.2g}" if self.ridge else "no ridge"
        size = f"{self.num_draws:,} draws, {self.num_features:,} features of degree {self.degree}"
        shown = self._rows if len(self._rows) <= _SHOWN + 1 else self._rows[:_SHOWN]
        width = max(len(name) for name, *_ in shown)
        lines = [f"ZeroVariance: {size}, {ridge}", f"{'':{width}}  {'without':>22}  {'with':>22}  variance divided by"]
        for name, plain, plain_error, value, error, reduction in shown:
            without = f"{supported(plain, plain_error)} ± {plain_error:.2g}"
            with_ = f"{supported(value, error)} ± {error:.2g}"
            lines.append(f"{name:{width}}  {without:>22}  {with_:>22}  {reduction:.3g}")
        if len(shown) < len(self._rows):
            lines.append(f"... and {len(self._rows) - len(shown):,} more")
        return "\n".join(lines)


def zero_variance(
    run: Run | tuple[PyTree, PyTree],
    g: Callable[[Params], PyTree] | None = None,
    *,
    degree: int = 1,
    model: Posterior | None = None,
    ridge: float | None = None,
    block: int | None = None,
) -> ZeroVariance:
    r"""Estimate E g(θ) under the posterior from the draws *and* the gradients of a run.

    With s = ∇ log posterior at a position x, every polynomial P gives a feature z = ΔP + ∇P·s of mean 0 under the
    posterior. The estimate is the mean of

    .. math:: \tilde g = g + a^\top z, \qquad a = -\operatorname{Var}(z)^{-1} \operatorname{Cov}(z, g),

    whose variance is the part of g that no feature explains: zero if the posterior is Gaussian and g a polynomial of
    that degree. (The paper and the thesis print a = +Var⁻¹ Cov, with which the standard deviation doubles where it
    should vanish.) It needs only the run's gradients: `sc.sample(..., keep_gradients=True)`.

    Gradients may be estimates from minibatches: their noise has mean 0, so features keep their mean, but explain less;
    with plain minibatches of large data, almost nothing. Use `sc.ControlVariates` (thesis, theorem 3.4.2).

    The features have mean 0 under the posterior itself, not under the stationary distribution of a sampler with a
    finite step size. So the estimate also corrects the bias of the draws: with degree 2 the variance of a Gaussian is
    right although SGLD's draws are too wide. (Not with degree 1: the mean of s is 0 along any chain of SGLD in
    equilibrium.)

    Parameters
    ----------
    run
        A run with gradients, in memory or from `sc.load` (then it is read in blocks, never as a whole); or a pair
        (draws, gradients) of trees with leaves (chain, draw, ...), where draws are positions on the real line unless
        `model` says otherwise. With degree 1 the gradients of a pair may be those of some parameters only.
    g
        A function of ONE draw, parameters in your units, that returns a number, an array or a tree; written with
        jax.numpy. By default the parameters themselves.
    degree
        1 or 2, of the polynomials. Degree 2 has d + d(d + 1)/2 features for d parameters.
    model
        The run's model. Needed with degree 2 if the run does not contain it, to find positions from draws.
    ridge
        Added to the correlation matrix of the features; 0 is least squares. None: the smallest ridge that predicts
        held-out segments of the chains about as well as the best one; this helps if there are more features than draws.
    block
        Draws per chain that are in memory at once.

    Returns
    -------
    ZeroVariance
        Estimates with and without control variates, their errors, the reduction, coefficients; printed as a table.

    Notes
    -----
    Every fifth of the draws gets coefficients from the other four fifths. So `value` has no bias from fitted
    coefficients, and `standard_error` (`sc.diagnostics.mcse` of means of segments of the chains) is valid also with
    many features: a useless feature can make it a little larger, never smaller. Errors are of Monte Carlo noise only.

    Two passes over the draws, O(draws · features²) time; memory grows with features², not with draws.

    References
    ----------
    Mira, Solgi & Imparato (2013); Friel, Mira & Oates (2016); thesis section 3.4.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> from scirocco.analysis.zero_variance import zero_variance
    >>> data = jax.random.normal(jax.random.key(0), (1000, 2))
    >>> model = sc.Model(lambda mu, x: -0.5 * jnp.sum((x - mu) ** 2))
    >>> run = sc.sample(model, data, jnp.zeros(2), sampler=sc.SGLD(2e-4), estimator=sc.ControlVariates(100),
    ...                 num_samples=2000, keep_gradients=True, progress=False)
    >>> found = zero_variance(run, lambda mu: mu[0] + mu[1])
    >>> found.reduction > 100, bool(abs(found.value - data.mean(0).sum()) < 0.001)
    (True, True)
    """
    if isinstance(degree, bool) or degree not in (1, 2):
        raise InvalidValueError(f"`degree` of zero_variance must be 1 or 2, got {degree!r}.")
    if ridge is not None:
        _checks.positive(ridge, "ridge", "zero_variance", allow_zero=True)
    source = source_of(run, degree, model)
    count = num_features(source.dimension, degree)
    if count > MOST_FEATURES:
        raise InvalidValueError(
            f"degree {degree} of {source.dimension:,} parameters has {count:,} features; zero_variance allows at most "
            f"{MOST_FEATURES:,}. Use degree=1, or the gradients of the parameters that matter for `g`: "
            "zero_variance((run.draws, {'name': run.gradients['name']}), g)."
        )
    reader = _FoldReader(source, Integrand(g, source.draws), degree, _block(source, count, block))
    found = fit(reader.sums(), None if ridge is None else float(ridge))
    plain, value = reader.averages(found.outside)
    means = [average.mean for average in (plain, value)]
    errors = [average.error for average in (plain, value)]
    with np.errstate(divide="ignore", invalid="ignore"):
        reduction = np.where(errors[0] > 0, (errors[0] / errors[1]) ** 2, 1.0)
    columns = (means[0], errors[0], means[1], errors[1], reduction)
    rows = zip(reader.g.labels(), *(column.tolist() for column in columns), strict=True)
    build = reader.g.build
    return ZeroVariance(
        plain=build(means[0]),
        value=build(means[1]),
        plain_error=build(errors[0]),
        standard_error=build(errors[1]),
        reduction=build(reduction),
        coefficients=uncentred(found.coefficients, reader.centre),
        num_draws=source.num_chains * source.num_draws,
        num_features=count,
        degree=degree,
        ridge=found.ridge,
        _rows=list(rows),
    )


def _block(source: GradientSource, count: int, block: int | None) -> int:
    if block is not None:
        return _checks.positive_int(block, "block")
    rows = min(_BLOCK_ROWS, _BLOCK_NUMBERS // count)
    return max(1, rows // source.num_chains)


class _FoldReader:
    """Two passes over the draws, a block of a fold at a time."""

    def __init__(self, source: GradientSource, g: Integrand, degree: int, block: int):
        self.source, self.g, self._degree, self._block = source, g, degree, block
        self._edges = [round(k * source.num_draws / _FOLDS) for k in range(_FOLDS + 1)]
        self.centre = np.zeros(source.dimension)
        if degree == 2:  # any point near the draws: it decorrelates the features of degree 1 and 2
            self.centre = self._read(self._parts().__next__()[1])[2].mean(axis=0)

    def _parts(self) -> Iterator[tuple[int, slice]]:
        """Blocks of draws, and the fold of each."""
        for fold in range(_FOLDS):
            for start in range(self._edges[fold], self._edges[fold + 1], self._block):
                yield fold, slice(start, min(start + self._block, self._edges[fold + 1]))

    def _read(self, part: slice) -> tuple[PyTree, Array, Any]:
        draws, gradients = self.source.read(part)
        self.source.refuse_infinite(gradients, part, "gradients")
        return draws, gradients, self.source.positions(draws) if self._degree == 2 else None

    def _rows(self, part: slice) -> tuple[Array, Array]:
        """Features and outputs of these draws, (chain·draw, ...)."""
        draws, gradients, positions = self._read(part)
        if positions is not None and positions.shape != gradients.shape:
            raise InvalidValueError(
                f"degree 2 requires as many gradients as positions, got {gradients.shape[1]} and {positions.shape[1]}."
            )
        outputs = self.g(draws)
        self.source.refuse_infinite(outputs, part, "draws, and the values of `g`,")
        return features(gradients, None if positions is None else positions - self.centre), outputs

    def sums(self) -> list[FeatureSums]:
        """Moments of the folds, about the means of the first block."""
        folds: list[FeatureSums | None] = [None] * _FOLDS
        shift: tuple[Array, Array] | None = None
        for fold, part in self._parts():
            z, g = self._rows(part)
            shift = shift or (z.mean(axis=0), g.mean(axis=0))
            found, sums = FeatureSums.of(z - shift[0], g - shift[1]), folds[fold]
            folds[fold] = found if sums is None else sums.add(found)
        return [sums for sums in folds if sums is not None]

    def averages(self, outside: list[Array]) -> tuple[Average, Average]:
        """Means of g, and of g + aᵀz with the coefficients from outside each fold."""
        chains, draws = self.source.num_chains, self.source.num_draws
        plain, value = (Average(chains, draws, self.g.size) for _ in range(2))
        for fold, part in self._parts():
            z, g = self._rows(part)
            plain.add(part, g)
            value.add(part, g + z @ outside[fold])
        return plain, value


class Average:
    """The mean of a chain's values, and the means of at most 1,000 segments of it, which give its error."""

    def __init__(self, num_chains: int, num_draws: int, size: int):
        self._length = -(-num_draws // _STRETCHES)
        self._count = num_draws
        self._sums = np.zeros((num_chains, -(-num_draws // self._length), size))

    def add(self, part: slice, values: Array) -> None:
        """Add the rows (chain·draw, output) of these draws."""
        values = values.reshape(len(self._sums), -1, values.shape[1])
        stretch = np.arange(part.start, part.stop) // self._length
        starts = np.flatnonzero(np.diff(stretch, prepend=-1))
        self._sums[:, stretch[starts]] += np.add.reduceat(values, starts, axis=1)

    @property
    def mean(self) -> Array:
        """The mean over all draws of all chains."""
        return np.asarray(self._sums.sum(axis=(0, 1)) / (len(self._sums) * self._count))

    @property
    def error(self) -> Array:
        """The standard error of the mean; a shorter last segment is left out."""
        return mcse(self._sums[:, : self._count // self._length] / self._length)


# -- theory --------------------------------------------------------------------------------------------------


class Reduction(NamedTuple):
    """The variance of g that the best linear combination of the gradients removes."""

    exact: float
    """R = cᵀV⁻¹c, with exact gradients."""
    noisy: float
    """R̂ = cᵀ(V + V_ξ)⁻¹c, with estimates of them."""
    bound: float
    """R / (1 + λ_max(V⁻¹V_ξ)) ≤ R̂; equal if V_ξ is proportional to V."""


def zv_reduction(
    gradient_covariance: npt.ArrayLike, noise_covariance: npt.ArrayLike, covariance: npt.ArrayLike
) -> Reduction:
    r"""Variance of g(θ) that degree-1 zero-variance control variates remove, with exact and with noisy gradients.

    With z the gradient (or half of it: the factor cancels) and a = -Var(z)⁻¹ Cov(z, g), Var(g + aᵀz) is
    Var(g) - cᵀ Var(z)⁻¹ c. The error ξ of an estimate has mean 0 for every θ, so it adds V_ξ to Var(z) and does not
    change c = Cov(z, g).

    Parameters
    ----------
    gradient_covariance
        V (d, d), of the exact gradient over the posterior: E[∇f ∇fᵀ]. A number if d = 1.
    noise_covariance
        V_ξ (d, d), of the errors of the estimates, averaged over the posterior.
    covariance
        c (d,), between the gradient and g.

    Returns
    -------
    Reduction
        With the fields `exact`, `noisy` and `bound`, in the units of Var(g).

    Examples
    --------
    The mean of N(·, 1/4), with precision 4: V = 4 and c = 1 (up to sign) remove all of its variance 1/4; noise as
    large as the gradient itself halves that.

    >>> from scirocco.analysis.zero_variance import zv_reduction
    >>> zv_reduction(4.0, 4.0, 1.0)
    Reduction(exact=0.25, noisy=0.125, bound=0.125)
    """
    c = _numbers(covariance, "covariance")
    if c.ndim > 1:
        raise InvalidValueError(f"`covariance` must be a vector (d,), got shape {c.shape}.")
    c = np.atleast_1d(c)
    v = _matrix(gradient_covariance, "gradient_covariance", len(c))
    noise = _matrix(noise_covariance, "noise_covariance", len(c))
    try:
        root = np.linalg.cholesky(v)
    except np.linalg.LinAlgError as error:
        raise InvalidValueError(
            "`gradient_covariance` must be positive definite; remove parameters that the density does not depend on."
        ) from error
    half = np.linalg.solve(root, c)
    inner = np.linalg.solve(root, np.linalg.solve(root, noise).T)
    values, vectors = np.linalg.eigh(0.5 * (inner + inner.T))
    if values[0] < -1e-8 * max(1.0, values[-1]):
        raise InvalidValueError("`noise_covariance` must have no negative eigenvalue; it is a covariance.")
    values = np.maximum(values, 0.0)
    exact = float(half @ half)
    noisy = float(np.sum((vectors.T @ half) ** 2 / (1.0 + values)))
    return Reduction(exact, noisy, exact / (1.0 + float(values[-1])))


def zv_reduction_bound(reduction: float, noise: float, row_gradient: float, num_rows: int) -> float:
    r"""The thesis' lower bound of the noisy reduction, R / (1 + E|ξ|² / (σ(N + 1))) (Thm 3.4.2): it does not hold.

    Its proof divides E[aᵀξ]² by E[aᵀ∇f]² and needs the latter from below; lemma A.2.2 bounds it from above. For data
    x_i = ±2 with x_i ~ N(θ, 1), where R = Var(θ), the bound promises about R/(1 + N/n) for batches of n, and the truth
    is R/(1 + 4N/n). Use `zv_reduction(...).bound`, which holds. The thesis' conclusion stays true: with noise of
    order N² the reduction decreases like n/N, with that of SGLD-CV (order N) it does not decrease.

    Parameters
    ----------
    reduction
        R, with exact gradients.
    noise
        E|ξ|², the squared error of the gradient estimate, over batches and posterior.
    row_gradient
        σ ≥ E|∇f_i|² for all rows and the prior.
    num_rows
        N.

    Returns
    -------
    float
        The right-hand side of (3.4.3).
    """
    _checks.positive(reduction, "reduction", allow_zero=True)
    _checks.positive(noise, "noise", allow_zero=True)
    _checks.positive(row_gradient, "row_gradient")
    rows = _checks.positive_int(num_rows, "num_rows")
    return float(reduction / (1.0 + noise / (row_gradient * (rows + 1))))


def _matrix(values: npt.ArrayLike, name: str, dimension: int) -> Array:
    found = _numbers(values, name)
    if found.ndim == 0:
        found = found.reshape(1, 1)
    if found.shape != (dimension, dimension):
        raise InvalidValueError(
            f"`{name}` must have the shape ({dimension}, {dimension}), d being the length of `covariance`; got "
            f"{found.shape}."
        )
    if not np.allclose(found, found.T, rtol=1e-6, atol=1e-12 * float(np.abs(found).max())):
        raise InvalidValueError(f"`{name}` must be symmetric; it is a covariance.")
    return found


def _numbers(values: npt.ArrayLike, name: str) -> Array:
    found = _checks.numbers(values, name)
    if not np.all(np.isfinite(found)):
        raise InvalidValueError(f"`{name}` must be finite.")
    return found
