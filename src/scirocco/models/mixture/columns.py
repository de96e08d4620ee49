"""The units in which a mixture is sampled, and its priors in them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.inputs import float_type
from scirocco.models.mixture.start import Priors

COVARIANCES = ("known", "diagonal")
_WHO = "GaussianMixture"


class Columns(NamedTuple):
    """A column is taken as (x - shift) / unit: known standard deviations, or else the data's, are one."""

    shift: np.ndarray
    units: np.ndarray

    def inside(self, table: np.ndarray) -> np.ndarray:
        """Rows in these units, in the precision of JAX; the difference is taken in float64."""
        centred = (table.astype(np.float64) - self.shift) / self.units
        return np.ascontiguousarray(centred, dtype=float_type(table.dtype))

    def outside(self, means: np.ndarray) -> np.ndarray:
        """Means in the user's units."""
        return means * self.units + self.shift


def columns_and_priors(
    table: np.ndarray, covariance: Any, scale: Any, prior_scale: Any, scale_prior: Any
) -> tuple[Columns, Priors]:
    """From a table and the settings of `GaussianMixture`, which are checked here."""
    _checks.choice(covariance, "covariance", COVARIANCES)
    x, diagonal = table.astype(np.float64), covariance == "diagonal"
    if isinstance(prior_scale, str):
        if prior_scale != "data":
            raise InvalidTypeError(f'`prior_scale` must be a number > 0 or "data", got {prior_scale!r}.')
        shift, spread = x.mean(axis=0), np.ptp(x, axis=0)
    else:
        _checks.positive(prior_scale, "prior_scale", _WHO)
        shift, spread = np.zeros(x.shape[1]), np.full(x.shape[1], float(prior_scale))
    gamma = _gamma(scale_prior) if diagonal else None
    if len(x) < 2 and (diagonal or not spread.all()):
        raise InvalidValueError(
            f"X of {_WHO} has one sample, which has no spread to take the priors from: give more rows, or "
            'covariance="known" with `scale` and a number as `prior_scale`.'
        )
    units = x.std(axis=0) if diagonal else _known(scale, x.shape[1])
    return Columns(shift, units), Priors(spread / units, gamma)


def _known(scale: Any, width: int) -> np.ndarray:
    try:
        units = np.asarray(scale, np.float64)
    except (TypeError, ValueError):
        units = np.full(1, np.nan)
    if units.shape not in ((), (width,)) or not np.all(np.isfinite(units)) or np.any(units <= 0):
        raise InvalidValueError(
            f"`scale` of {_WHO} must be a number > 0 or one for each of the {width} columns, got {scale!r}."
        )
    return np.broadcast_to(units, (width,))


def _gamma(scale_prior: Any) -> tuple[float, float]:
    try:
        shape, rate = scale_prior
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(
            f"`scale_prior` of {_WHO} must be the pair (shape, rate) of a Gamma law, got {scale_prior!r}."
        ) from error
    for value in (shape, rate):
        _checks.positive(value, "scale_prior", _WHO)
    return float(shape), float(rate)


def known_weights(weights: Any, count: int) -> np.ndarray | None:
    """None where they are drawn; a single component has the weight 1."""
    if isinstance(weights, str):
        _checks.choice(weights, "weights", ("sample", "equal"))
        return None if weights == "sample" and count > 1 else np.full(count, 1 / count)
    try:
        known = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        known = np.full(count, np.nan)
    if known.shape != (count,) or not np.all(known > 0) or abs(known.sum() - 1) > 1e-6:
        raise InvalidValueError(
            f"`weights` of {_WHO} must be {count} numbers > 0 with the sum 1, got {weights!r}."
        )
    return known
