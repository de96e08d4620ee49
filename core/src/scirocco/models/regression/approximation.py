"""Gaussian approximation of a regression's posterior, before a chain is started: Newton's method on the host.

In double precision, without compiling anything. Coefficients are β = m + L u with u about N(0, I); a prior stands in
the equations with the normal precision that it has on average there (a scale mixture's E[1/variance | β]), so that
m is near the posterior mean also for priors with a kink at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from scirocco.estimators.newton import Ascent, Curve, ascend, whitening
from scirocco.models.regression.density import Prior, Working

_CHUNK = 16_384
_FIRST_ROWS = 20_000
_WORK = 2e10
"""Rows × parameters² of one look at the curvature; of more rows a random part is taken."""
_MOST_STEPS, _MOST_LOOKS = 40, 6
_CLOSE = 0.02
"""Root-mean-square distance to the centre, in posterior standard deviations, at which steps end."""
_POINTS = 8
_FLATTEST = 1e-9
"""Smallest eigenvalue of a correlation matrix that is believed: chains move in float32."""


class Look(NamedTuple):
    """Log likelihood at a point, its gradient (K, p), and minus its Hessian (Kp, Kp)."""

    value: float
    gradient: np.ndarray
    curvature: np.ndarray


class Approximation(NamedTuple):
    """θ about N(centre, precision⁻¹); θ has the shape (K, p), the intercept last where there is one."""

    centre: np.ndarray
    precision: np.ndarray
    working: Working
    noise: float | None = None
    """σ, in linear regression with an unknown one."""

    @property
    def factor(self) -> np.ndarray:
        """L with LLᵀ = precision⁻¹."""
        return whitening(self.precision, _FLATTEST)[0]


class Rows:
    """A table with linear predictors for the classes of its rows, processed in chunks.

    Two classes have one predictor, the log odds of the second. More have one each, or with a `baseline` one each but
    the first, whose predictor is 0.
    """

    def __init__(
        self,
        x: np.ndarray,
        codes: np.ndarray,
        num_classes: int,
        intercept: bool,
        baseline: bool = False,
        offset: np.ndarray | None = None,
        weight: np.ndarray | None = None,
    ):
        self.x, self.codes, self.num_classes, self.intercept = x, codes, num_classes, intercept
        self.offset, self.weight = offset, weight
        self.baseline = baseline or num_classes == 2
        self.num_predictors = num_classes - self.baseline
        self.shape = (self.num_predictors, x.shape[1] + intercept)

    def __len__(self) -> int:
        return len(self.x)

    def part(self, count: int, rng: np.random.Generator) -> Rows:
        """Some rows at random, or all."""
        if count >= len(self):
            return self
        chosen = np.sort(rng.choice(len(self), count, replace=False))
        offset, weight = (None if part is None else part[chosen] for part in (self.offset, self.weight))
        return Rows(
            self.x[chosen],
            self.codes[chosen],
            self.num_classes,
            self.intercept,
            self.baseline,
            offset,
            weight,
        )

    def chunks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Numbers of rows, and their design matrices with the column of ones."""
        for first in range(0, len(self), _CHUNK):
            z = self.x[first : first + _CHUNK].astype(np.float64)
            if self.intercept:
                z = np.concatenate([z, np.ones((len(z), 1))], axis=1)
            yield slice(first, first + _CHUNK), z

    def predictors(self, here: slice, z: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """(rows, K)."""
        eta = z @ theta.T
        return eta if self.offset is None else eta + self.offset[here, None]

    def means(self, eta: np.ndarray) -> np.ndarray:
        """Probabilities (rows, K) of the predictors (rows, K)."""
        return probabilities(eta, self.num_predictors > 1, self.baseline)[:, -self.num_predictors :]

    def look(self, theta: np.ndarray, curved: bool = True) -> Look:
        """One pass; the curvature is expensive, and 0 unless `curved`."""
        value, gradient = 0.0, np.zeros(self.shape)
        size = gradient.size
        curvature = np.zeros((size, size) if curved else (1, 1))
        for here, z in self.chunks():
            eta = self.predictors(here, z, theta)
            mean, weight = self.means(eta), None if self.weight is None else self.weight[here, None]
            target = (self.codes[here, None] == np.arange(self.baseline, self.num_classes)).astype(np.float64)
            value += self._value(eta, target, weight)
            left = target - mean
            gradient += (left if weight is None else weight * left).T @ z
            if curved:
                self._add_curvature(curvature, z, mean, 1.0 if weight is None else weight[:, 0])
        return Look(value, gradient, curvature)

    def _value(self, eta: np.ndarray, target: np.ndarray, weight: np.ndarray | None) -> float:
        if self.num_predictors == 1:
            each = target * eta - np.logaddexp(0.0, eta)
            return float(np.sum(each if weight is None else weight * each))
        whole = np.logaddexp.reduce(eta, axis=1)
        whole = np.logaddexp(0.0, whole) if self.baseline else whole
        if weight is None:
            return float(np.sum(target * eta) - np.sum(whole))
        return float(np.sum(weight * target * eta) - np.sum(weight[:, 0] * whole))

    def _add_curvature(
        self, curvature: np.ndarray, z: np.ndarray, mean: np.ndarray, times: float | np.ndarray
    ) -> None:
        p = z.shape[1]
        for k in range(self.num_predictors):
            for other in range(k + 1):
                weight = times * (mean[:, k] * ((k == other) - mean[:, other]))
                block = z.T @ (weight[:, None] * z)
                curvature[k * p : (k + 1) * p, other * p : (other + 1) * p] += block
                if k != other:
                    curvature[other * p : (other + 1) * p, k * p : (k + 1) * p] += block


def probabilities(eta: np.ndarray, several: bool, baseline: bool = False) -> np.ndarray:
    """Of predictors (..., K) of `several` classes: all classes'; else the second class's, for each predictor."""
    if not several:
        return np.asarray(0.5 * (1.0 + np.tanh(0.5 * eta)))
    if baseline:
        eta = np.concatenate([np.zeros_like(eta[..., :1]), eta], axis=-1)
    shifted = np.exp(eta - eta.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def affordable(size: int) -> int:
    """Rows of one look at the curvature of so many parameters."""
    return max(1_000, int(_WORK / size**2))


def approximate(rows: Rows, prior: Callable[[np.ndarray], Prior], rng: np.random.Generator) -> Approximation:
    """Newton steps on some rows, then on all. `prior` makes the prior from the likelihood's own precisions (K, d)."""
    size = int(np.prod(rows.shape))
    few = rows.part(min(_FIRST_ROWS, affordable(size)), rng)
    blank = few.look(np.zeros(rows.shape))
    information = (
        len(rows) / len(few) * np.diagonal(blank.curvature).reshape(rows.shape)[:, : rows.x.shape[1]]
    )
    made = prior(information)
    theta, squares = np.zeros(rows.shape), 1.0 / np.maximum(information, 1e-12)
    some, factor = few, len(rows) / len(few)
    theta, squares = _climb(few, few, factor, made, theta, squares, _MOST_STEPS)
    if few is not rows:
        some, factor = rows.part(affordable(size), rng), 1.0
        theta, squares = _climb(rows, some, factor, made, theta, squares, _MOST_LOOKS)
    working = made.working(squares)
    penalty = full_precision(working, made, theta.shape)
    precision = len(rows) / len(some) * some.look(theta).curvature + np.diag(penalty.ravel())
    return Approximation(theta, precision, working)


def _climb(
    rows: Rows, some: Rows, factor: float, prior: Prior, theta: np.ndarray, squares: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """The centre, and the mean squares of the coefficients there, by Newton steps.

    The gradient is that of `rows`, times `factor`; the curvature that of `some` of them. Before each step the prior
    gets the normal precision that it has with the squares so far (EM, with one step of Newton's method as M-step).
    """
    shape, number = theta.shape, squares.shape[1]
    scale, alike = factor * len(rows) / len(some), some is rows

    def curve(penalty: np.ndarray, at: np.ndarray, given: Look | None = None) -> Curve[Look]:
        here = at.reshape(shape)
        seen = rows.look(here, alike) if given is None else given

        def curvature() -> np.ndarray:
            likelihood = seen.curvature if alike else some.look(here).curvature
            return scale * likelihood + np.diag(penalty.ravel())

        value = factor * seen.value - 0.5 * float(np.sum(penalty * here**2))
        gradient = factor * seen.gradient - penalty * here
        return Curve(at, value, gradient.ravel(), curvature, seen)

    seen = rows.look(theta, alike)
    for _ in range(most):
        penalty = full_precision(prior.working(squares), prior, shape)
        found = ascend(curve(penalty, theta.ravel(), seen), partial(curve, penalty), most=1, close=0.0)
        theta, seen = found.here.at.reshape(shape), found.here.seen
        variances = np.sum(found.factor**2, axis=1).reshape(shape)[:, :number]
        before, squares = squares, theta[:, :number] ** 2 + variances
        if found.distance < _CLOSE and np.all(np.abs(squares - before) < 0.05 * squares):
            break
    return theta, squares


def laplace(rows: Rows, variance: float) -> Ascent[None]:
    """The mode (Kp,) with normal priors of this variance for all unknowns, to rounding, and L with LLᵀ = H⁻¹ there."""

    def curve(at: np.ndarray) -> Curve[None]:
        seen = rows.look(at.reshape(rows.shape))
        value = seen.value - 0.5 * float(at @ at) / variance
        precision = seen.curvature + np.eye(at.size) / variance
        return Curve(at, value, seen.gradient.ravel() - at / variance, lambda: precision, None)

    return ascend(curve(np.zeros(int(np.prod(rows.shape)))), curve, most=50, close=1e-9)


def full_precision(working: Working, prior: Prior, shape: tuple[int, ...]) -> np.ndarray:
    """The working precisions of the coefficients, and that of the intercept where there is one."""
    return np.concatenate(
        [
            working.precision,
            np.full((shape[0], shape[1] - working.precision.shape[1]), prior.intercept_scale**-2.0),
        ],
        axis=1,
    )


class Survey(NamedTuple):
    """What a chain will meet, in the coordinates u."""

    curvature: float
    """Largest, at points of the posterior."""
    noise: np.ndarray
    """For each coordinate, the variance of a control-variate estimate times the batch size."""
    factor: np.ndarray
    """L, turned so that the noises of two coordinates are uncorrelated."""


def survey(rows: Rows, found: Approximation, rng: np.random.Generator) -> Survey:
    """Look at a few points m + L u, u ~ N(0, I).

    Features that are mostly positive give gradient noise that the coordinates share: its largest eigenvalue can be
    many times its largest variance, and a sampler that takes out variances alone would leave most of it in. L is free
    up to a rotation, so u can be turned to where the covariance of the noise is diagonal.
    """
    factor, part = found.factor, rows.part(affordable(found.centre.size), rng)
    scale = len(rows) / len(part)
    penalty = found.precision - scale * part.look(found.centre).curvature
    largest, products = 1.0, np.zeros((found.centre.size, found.centre.size))
    for _ in range(_POINTS):
        theta = found.centre + (factor @ rng.standard_normal(found.centre.size)).reshape(found.centre.shape)
        curvature = scale * part.look(theta).curvature + penalty
        largest = max(largest, float(np.linalg.eigvalsh(factor.T @ curvature @ factor)[-1]))
        for here, z in part.chunks():
            change = part.means(part.predictors(here, z, theta)) - part.means(
                part.predictors(here, z, found.centre)
            )
            if part.weight is not None:
                change = part.weight[here, None] * change
            each = (change[:, :, None] * z[:, None, :]).reshape(len(z), -1) @ factor
            products += each.T @ each / _POINTS
    variances, rotation = np.linalg.eigh(products)
    return Survey(largest, np.maximum(variances, 0.0) * scale * len(rows), factor @ rotation)


def reduced(x: np.ndarray, y: np.ndarray, intercept: bool, weight: np.ndarray | None = None) -> np.ndarray:
    """The triangular factor R of [1, x, y] (or [x, y]): Σ w (y - Zθ)² is the same of its rows, for every θ."""
    r = np.zeros((0, x.shape[1] + intercept + 1))
    for first in range(0, len(x), _CHUNK):
        part = np.concatenate([x[first : first + _CHUNK], y[first : first + _CHUNK, None]], axis=1)
        part = part.astype(np.float64)
        if intercept:
            part = np.concatenate([np.ones((len(part), 1)), part], axis=1)
        if weight is not None:
            part *= np.sqrt(weight[first : first + _CHUNK, None])
        r = np.asarray(np.linalg.qr(np.concatenate([r, part]), mode="r"))
    return r
