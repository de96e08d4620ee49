"""Gaussian approximation of a regression's posterior, before a chain is started: Newton's method on the host.

In double precision, without compiling anything. Coefficients are β = m + L u with u about N(0, I); a prior stands in
the equations with the normal precision that it has on average there (a scale mixture's E[1/variance | β]), so that
m is near the posterior mean also for priors with a kink at 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.errors import InvalidValueError
from scirocco.estimators import ControlVariates, Estimator, Full
from scirocco.estimators.newton import Ascent, Curve, ascend, whitening
from scirocco.model.families import PARAMETERS
from scirocco.models.inputs import Units
from scirocco.models.regression.density import Prior, Working
from scirocco.run.choose.metric import DENSE_LIMIT
from scirocco.samplers import BAOAB, SGHMC, Preconditioned, Sampler, Scales
from scirocco.types import Array

_CHUNK = 16_384  # rows at once: their design matrix stays in the cache
_FIRST_ROWS = 20_000  # of the first Newton steps
_WORK = 2e10
"""Rows × parameters² of one look at the curvature; of more rows a random part is taken."""
_MOST_STEPS, _MOST_LOOKS = 40, 6  # Newton steps on the first rows, and on all
_CLOSE = 0.02
"""Root-mean-square distance to the centre, in posterior standard deviations, at which steps end."""
_POINTS = 8  # of the posterior at which curvature and noise are measured
_FLATTEST = 1e-9
"""Smallest eigenvalue of a correlation matrix that is believed: chains move in float32."""


class LikelihoodLook(NamedTuple):
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


class DesignRows:
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

    def part(self, count: int, rng: np.random.Generator) -> DesignRows:
        """Some rows at random, or all."""
        if count >= len(self):
            return self
        chosen = np.sort(rng.choice(len(self), count, replace=False))
        offset, weight = (None if part is None else part[chosen] for part in (self.offset, self.weight))
        return DesignRows(
            self.x[chosen], self.codes[chosen], self.num_classes, self.intercept, self.baseline, offset, weight
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

    def look(self, theta: np.ndarray, curved: bool = True) -> LikelihoodLook:
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
        return LikelihoodLook(value, gradient, curvature)

    def _value(self, eta: np.ndarray, target: np.ndarray, weight: np.ndarray | None) -> float:
        if self.num_predictors == 1:
            each = target * eta - np.logaddexp(0.0, eta)
            return float(np.sum(each if weight is None else weight * each))
        whole = np.logaddexp.reduce(eta, axis=1)
        whole = np.logaddexp(0.0, whole) if self.baseline else whole
        if weight is None:
            return float(np.sum(target * eta) - np.sum(whole))
        return float(np.sum(weight * target * eta) - np.sum(weight[:, 0] * whole))

    def _add_curvature(self, curvature: np.ndarray, z: np.ndarray, mean: np.ndarray, times: float | np.ndarray) -> None:
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


def approximate(rows: DesignRows, prior: Callable[[np.ndarray], Prior], rng: np.random.Generator) -> Approximation:
    """Newton steps on some rows, then on all. `prior` makes the prior from the likelihood's own precisions (K, d)."""
    size = int(np.prod(rows.shape))
    few = rows.part(min(_FIRST_ROWS, affordable(size)), rng)
    blank = few.look(np.zeros(rows.shape))
    information = len(rows) / len(few) * np.diagonal(blank.curvature).reshape(rows.shape)[:, : rows.x.shape[1]]
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
    rows: DesignRows, some: DesignRows, factor: float, prior: Prior, theta: np.ndarray, squares: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """The centre, and the mean squares of the coefficients there, by Newton steps.

    The gradient is that of `rows`, times `factor`; the curvature that of `some` of them. Before each step the prior
    gets the normal precision that it has with the squares so far (EM, with one step of Newton's method as M-step).
    """
    shape, number = theta.shape, squares.shape[1]
    scale, alike = factor * len(rows) / len(some), some is rows

    def curve(penalty: np.ndarray, at: np.ndarray, given: LikelihoodLook | None = None) -> Curve[LikelihoodLook]:
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


def laplace(rows: DesignRows, variance: float) -> Ascent[None]:
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
        [working.precision, np.full((shape[0], shape[1] - working.precision.shape[1]), prior.intercept_scale**-2.0)],
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


def survey(rows: DesignRows, found: Approximation, rng: np.random.Generator) -> Survey:
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
            change = part.means(part.predictors(here, z, theta)) - part.means(part.predictors(here, z, found.centre))
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


# -- what samples, in the coordinates of the approximation -------------------------------------------------------------
#
# Chains move in the coordinates of a Gaussian approximation (`approximation`), in which all regressions are similar:
# posterior deviations are about 1, so that one step size suits all. With few rows gradients are exact and the sampler
# is BAOAB, which has the right variance on Gaussians at every step size. With many rows it is SGHMC with control
# variates; the noise of their estimates, known for every coordinate from the approximation, is subtracted from the
# injected noise. The remaining error is of second order in the step size.

FRICTION = 1.0  # per unit of time: posterior deviations are about 1, so that chains forget in a few units
STEP = {"normal": 0.3, "laplace": 0.3, "horseshoe": 0.15}
"""In units of posterior deviations (over the root of the largest curvature, where that is above 1)."""
THIN = {"normal": 10, "laplace": 10, "horseshoe": 100}  # steps from one draw to the next
_BATCH = 500  # rows
_NOISE, _SHORTER = 0.01, 0.5
"""Largest ε²V, and how much shorter steps with minibatches are. The mean noise is subtracted from the injected noise,
but it grows with the distance from the centre. On covertype with all rows, ε²V = 0.1 left deviations up to 11 % too
large, 0.006 left them within 1 %."""


class SamplingMethod(NamedTuple):
    """Sampler, estimator and start of a run; None: as `sc.sample` chooses."""

    sampler: Sampler | None
    estimator: Estimator | None
    start: dict[str, np.ndarray]


class Coordinates(NamedTuple):
    """θ = start + L u, in the order of the flattened parameters, and what a chain meets there."""

    start: dict[str, np.ndarray]
    factor: np.ndarray
    curvature: float = 1.0
    noise: np.ndarray | None = None
    """Variance of a control-variate estimate times the batch size; None: gradients are exact."""


def batch_size(noise: np.ndarray, step_size: float, num_rows: int) -> int:
    """500 rows, or as many as the gradient noise asks for; all of them where that is no saving."""
    wanted = max(float(noise.max()) * step_size**2 / _NOISE, 1.0)
    size = _BATCH if wanted <= _BATCH else 1 << math.ceil(math.log2(wanted))
    return size if 2 * size <= num_rows else num_rows


def method(
    found: Coordinates, kind: str, num_rows: int, sampler: Sampler | None, estimator: Estimator | None
) -> SamplingMethod:
    """What the user gave, and the defaults for the rest."""
    start = found.start
    step_size = STEP[kind] / math.sqrt(max(found.curvature, 1.0))
    factor = found.factor.astype(jax.dtypes.canonicalize_dtype(start["coef"].dtype))
    if estimator is not None:  # of unknown noise: measured before the run
        return SamplingMethod(sampler or Preconditioned(SGHMC(), factor=factor), estimator, start)
    shorter = _SHORTER * step_size
    size = num_rows if found.noise is None else batch_size(found.noise, shorter, num_rows)
    if size >= num_rows:
        exact = Preconditioned(BAOAB(step_size, friction=FRICTION), factor=factor)
        return SamplingMethod(sampler or exact, Full(), start)
    inner: Sampler = SGHMC(shorter)
    if found.noise is not None:
        noise = (1.0 - size / num_rows) * found.noise / size
        tree = unflattened(noise, start)
        ones = unflattened(np.ones_like(noise), start)
        inner = inner.resolve(Scales(FRICTION**2, tree, ones, num_rows // size, factor), start)
    return SamplingMethod(sampler or Preconditioned(inner, factor=factor), ControlVariates(size, centre=start), start)


def unflattened(flat: np.ndarray, like: dict[str, np.ndarray]) -> dict[str, Array]:
    """A vector in the order of the flattened parameters, as a tree like them."""
    parts, first = {}, 0
    for name in sorted(like):
        part = flat[first : first + like[name].size]
        parts[name] = jnp.asarray(part.reshape(like[name].shape), like[name].dtype)
        first += like[name].size
    return parts


def large_method(
    kind: str, num_rows: int, sampler: Sampler | None, estimator: Estimator | None
) -> tuple[Sampler, Estimator]:
    """Of models with too many coefficients for a matrix: the library's own set-up, one scale a coefficient."""
    if kind == "horseshoe":
        raise InvalidValueError(
            f"the horseshoe prior is for up to {DENSE_LIMIT} coefficients (classes × columns): use 'laplace', or fewer."
        )
    few = num_rows <= 2 * _BATCH
    estimator = (Full() if few else ControlVariates(_BATCH)) if estimator is None else estimator
    return Preconditioned(BAOAB(), metric="diagonal") if sampler is None else sampler, estimator


def in_order(
    factor: np.ndarray, noise: np.ndarray, shape: tuple[int, int], intercept: bool, more: list[float]
) -> tuple[np.ndarray, np.ndarray]:
    """L and V of θ (K, p) in the order coef, intercept, then the scalars `more` with their own deviations."""
    number, p = shape
    grid = np.arange(number * p).reshape(shape)
    order = np.concatenate([grid[:, : p - intercept].ravel(), grid[:, p - intercept :].ravel()])
    size = len(order) + len(more)
    whole = np.zeros((size, size))
    whole[: len(order), : len(order)] = factor[np.ix_(order, order)]
    whole[range(len(order), size), range(len(order), size)] = more
    return whole, np.concatenate([noise[order], np.zeros(len(more))])


def in_own_units(draws: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Draws in the user's units, in float64 where they differ: far from 0 coefficients and intercept nearly cancel.

    `told` has the `mean` and `deviation` of the columns, and where the response has units, its `centre` and `spread`.
    """
    changed = {name: np.asarray(leaf) for name, leaf in draws.items()}
    if told.get("spread", 1.0) != 1.0:
        scaled = [name for name in changed if name not in PARAMETERS or PARAMETERS[name].has_units]
        changed |= {name: np.asarray(changed[name], np.float64) * told["spread"] for name in scaled}
    units = Units(np.asarray(told["mean"]), np.asarray(told["deviation"]))
    if not units.plain:
        changed["coef"] = np.asarray(changed["coef"], np.float64) / units.deviation
    if "intercept" in changed:
        if not units.plain:
            changed["intercept"] = np.asarray(changed["intercept"], np.float64) - changed["coef"] @ units.mean
        if "centre" in told:
            changed["intercept"] = np.asarray(changed["intercept"], np.float64) + told["centre"]
    return changed
