"""From a regression to posterior draws: what is sampled, in which units, by what, from where.

Chains move in the coordinates of a Gaussian approximation (`approximation`), in which all regressions are similar:
posterior deviations are about 1, so that one step size suits all. With few rows gradients are exact and the sampler is
BAOAB, which has the right variance on Gaussians at every step size. With many rows it is SGHMC with control variates;
the noise of their estimates, known for every coordinate from the approximation, is subtracted from the injected noise.
The remaining error is of second order in the step size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.errors import InvalidValueError
from scirocco.estimators import ControlVariates, Estimator, Full
from scirocco.model.families import PARAMETERS
from scirocco.models.inputs import Units
from scirocco.run.choose.metric import DENSE_LIMIT
from scirocco.samplers import BAOAB, SGHMC, Preconditioned, Sampler, Scales
from scirocco.types import Array

FRICTION = 1.0
STEP = {"normal": 0.3, "laplace": 0.3, "horseshoe": 0.15}
"""In units of posterior deviations (over the root of the largest curvature, where that is above 1)."""
THIN = {"normal": 10, "laplace": 10, "horseshoe": 100}
_BATCH = 500
_NOISE, _SHORTER = 0.01, 0.5
"""Largest ε²V, and how much shorter steps with minibatches are. The mean noise is subtracted from the injected noise,
but it grows with the distance from the centre. On covertype with all rows, ε²V = 0.1 left deviations up to 11 % too
large, 0.006 left them within 1 %."""


class Method(NamedTuple):
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
) -> Method:
    """What the user gave, and the defaults for the rest."""
    start = found.start
    step_size = STEP[kind] / math.sqrt(max(found.curvature, 1.0))
    factor = found.factor.astype(jax.dtypes.canonicalize_dtype(start["coef"].dtype))
    if estimator is not None:  # of unknown noise: measured before the run
        return Method(sampler or Preconditioned(SGHMC(), factor=factor), estimator, start)
    shorter = _SHORTER * step_size
    size = num_rows if found.noise is None else batch_size(found.noise, shorter, num_rows)
    if size >= num_rows:
        exact = Preconditioned(BAOAB(step_size, friction=FRICTION), factor=factor)
        return Method(sampler or exact, Full(), start)
    inner: Sampler = SGHMC(shorter)
    if found.noise is not None:
        noise = (1.0 - size / num_rows) * found.noise / size
        tree = unflattened(noise, start)
        ones = unflattened(np.ones_like(noise), start)
        inner = inner.resolve(Scales(FRICTION**2, tree, ones, num_rows // size, factor), start)
    return Method(sampler or Preconditioned(inner, factor=factor), ControlVariates(size, centre=start), start)


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
