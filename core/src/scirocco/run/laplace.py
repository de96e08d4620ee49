"""`sc.laplace`: the Gaussian approximation at the posterior mode, with importance weights that say how good it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import _checks, _programs, _tree
from scirocco._extras import require
from scirocco.diagnostics.columns import Columns
from scirocco.diagnostics.pareto import USABLE, psis
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import Full, find_mode
from scirocco.estimators.mode import FoundMode
from scirocco.estimators.newton import FAR, beside, look, vector
from scirocco.model import Model
from scirocco.run import setup
from scirocco.run.choose import metric, set_up
from scirocco.samplers import SGLD
from scirocco.types import Array, Data, Key, Params, Rows

_GOOD = 0.5
"""k-hat below which weighted draws are an answer of their own (Vehtari et al., 2024)."""
_TOGETHER = 32
"""Draws whose log densities are computed together."""
_CLOSE, _STEPS = 0.01, 5
"""Distance to the mode, in posterior standard deviations, at which Newton steps end, and the most of them."""


@dataclass(frozen=True)
class Laplace:
    """A Gaussian approximation of a posterior, its draws and their importance weights.

    Attributes
    ----------
    mode
        The posterior mode (of the density on the real line, for transformed parameters), in the user's units.
    covariance
        The inverse of the Hessian of -log posterior there, (d, d), on the real line, in the order of
        `jax.flatten_util.ravel_pytree`.
    draws
        Draws of the Gaussian in the user's units, leaves (draw, ...).
    weights
        Pareto-smoothed importance weights of the draws, which sum to 1.
    k_hat
        The shape of the weights' tail: below 0.5 weighted averages are as good as `ess` posterior draws; up to 0.7
        they are usable; above, the posterior is too different from the Gaussian.
    ess
        1 / Σ weights²: the number of independent posterior draws that weighted averages are worth.
    log_evidence
        The logarithm of the integral of likelihood × prior, if both are normalised.
    """

    mode: Params
    covariance: np.ndarray
    draws: Params
    weights: np.ndarray
    k_hat: float
    ess: float
    log_evidence: float
    position: Params = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether the weighted draws are an answer of their own (k̂ below 0.5)."""
        return self.k_hat < _GOOD

    @property
    def words(self) -> str:
        """What the weights say, in one line."""
        if self.k_hat < _GOOD:
            return f"k-hat {self.k_hat:.2f}: weighted draws are worth {self.ess:,.0f} posterior draws"
        if self.k_hat < USABLE:
            return f"k-hat {self.k_hat:.2f}: usable; weighted draws are worth about {self.ess:,.0f} posterior draws"
        return f"k-hat {self.k_hat:.2f}: the posterior is far from this Gaussian; use sc.sample"

    def __repr__(self) -> str:
        return f"Laplace({len(self.weights):,} draws of {len(self.covariance)} parameters, {self.words})"

    def summary(self, probability: float = 0.9, digits: int | None = 4) -> Any:
        """Weighted mean, sd and central interval, one row per parameter, as a pandas data frame."""
        if not 0 < probability < 1:
            raise InvalidValueError(f"`probability` must be between 0 and 1, got {probability}.")
        pandas = require("pandas", "laplace.summary()")
        tail = (1 - probability) / 2
        named = zip(_tree.leaf_names(self.draws), jax.tree.leaves(self.draws), strict=True)
        columns = Columns({name: np.asarray(leaf)[None] for name, leaf in named})
        values, weights = columns.values[0], self.weights
        mean = weights @ values
        sd = np.sqrt(weights @ (values - mean) ** 2)
        low, high = (_quantile(values, weights, level) for level in (tail, 1 - tail))
        numbers = {"mean": mean, "sd": sd, f"{100 * tail:g}%": low, f"{100 * (1 - tail):g}%": high}
        frame = pandas.DataFrame(numbers, columns.names)
        return frame if digits is None else frame.map(lambda value: float(f"{value:.{digits}g}"))

    def resample(self, num_samples: int, seed: int = 0) -> Params:
        """Draws of equal weight, drawn with replacement: leaves (draw, ...)."""
        size = _checks.positive_int(num_samples, "num_samples")
        chosen = np.random.default_rng(seed).choice(len(self.weights), size, p=self.weights)
        return jax.tree.map(lambda leaf: leaf[chosen], self.draws)


def laplace(model: Model, data: Data, params: Params, *, num_samples: int = 1_000, seed: int = 0) -> Laplace:
    """Approximate the posterior by a Gaussian at its mode, and weigh the draws by the exact log posterior.

    An answer of its own where k̂ < 0.5 (large data, regular models), at the cost of a few Hessians and `num_samples`
    evaluations of the log posterior; elsewhere a start and a warning.

    Parameters
    ----------
    model, data, params
        As for `sc.sample`; at most 2,000 parameters.
    num_samples
        Draws of the Gaussian.
    seed
        Of the draws.

    Returns
    -------
    Laplace
        With `summary()`, `resample(n)`, `weights`, `k_hat`.

    References
    ----------
    Vehtari, Simpson, Gelman, Yao & Gabry (2024), for the smoothed weights and k̂.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = 3.0 + jax.random.normal(jax.random.key(1), (500,))
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> fit = sc.laplace(model, x, jnp.array(0.0))
    >>> fit.ok, abs(float(fit.mode) - float(x.mean())) < 0.01
    (True, True)
    """
    _programs.begin()
    if not isinstance(model, Model) or model.facts.takes_key:
        raise InvalidTypeError("sc.laplace requires a sc.Model(log_likelihood, log_prior) without a key.")
    count = _checks.positive_int(num_samples, "num_samples", minimum=100)
    seed = _checks.positive_int(seed, "seed", minimum=0)
    key = jax.random.key(seed)
    problem = setup.compose(model, data, SGLD(1.0), Full(), seed)
    table = problem.table
    _, prepared = set_up.prepare_estimator(problem, params, num_chains=1, key=key)
    found = find_mode(model, table, prepared.position, key, quiet=True)
    distance = found.report["distance_to_mode_in_sd"]
    if not distance <= FAR:
        raise InvalidValueError(
            f"no posterior mode was found: the search stopped about {distance:.2g} standard deviations away. Start "
            "closer, or check that the posterior has a mode (problems are a flat prior, a scale that can go to 0); "
            "sc.sample does not need one."
        )
    found, shape = _at_the_mode(model, table, found, key)
    if shape.flat:
        raise InvalidValueError(
            "the log posterior is flat in some direction at its mode, so that there is no Gaussian: use sc.sample, or "
            "a prior that bounds all parameters."
        )
    flat, unravel = ravel_pytree(found.position)
    root = np.asarray(shape.factor, np.float64)
    normals = np.random.default_rng([seed, 0x1A91ACE]).standard_normal((count, flat.size))
    places = jax.vmap(unravel)(jnp.asarray(np.asarray(flat) + normals @ root.T, flat.dtype))
    gains = _gains(model, table, found.position, places)
    log_normal = -0.5 * np.sum(normals**2, axis=1)
    smoothed = psis(np.where(np.isfinite(gains), gains - log_normal, -np.inf))
    weights, k_hat = np.exp(smoothed.log_weights), float(smoothed.k_hat)
    log_mean = float(np.logaddexp.reduce(gains - log_normal) - math.log(count))
    volume = 0.5 * flat.size * math.log(2 * math.pi) + float(np.linalg.slogdet(root)[1])
    fit = Laplace(
        jax.tree.map(np.asarray, model.constrain(found.position)),
        root @ root.T,
        jax.tree.map(np.asarray, jax.vmap(model.constrain)(places)),
        weights,
        k_hat,
        float(1.0 / np.sum(weights**2)),
        found.report["log_density"] + log_mean + volume,
        found.position,
    )
    if k_hat >= USABLE:
        _checks.warn(f"{fit.words}.")
    return fit


def _at_the_mode(model: Model, table: Any, found: FoundMode, key: Key) -> tuple[FoundMode, metric.Shape]:
    """The mode itself, by Newton steps, and the shape there: other searches end a quarter of a deviation away."""
    for last in (False,) * _STEPS + (True,):
        shape = metric.shape_at(model, table, found.position, "laplace", key)
        if last or shape.flat:
            break
        flat, back = vector(found.position)
        root = np.asarray(shape.factor, np.float64)
        half = root.T @ vector(found.gradient)[0].astype(np.float64)
        if not _CLOSE < math.sqrt(half @ half / max(1, flat.size)):
            break
        there = look(model, table, beside(found.gradient, back(flat + root @ half)))
        here, value = found.report["log_density"], float(there.log_density)
        if not value >= here - 1e-7 * abs(here):
            break
        found = FoundMode(there.position, there.total, there.gradient, found.report | {"log_density": value})
    return found, shape


def _gains(model: Model, table: Any, centre: Params, places: Params) -> np.ndarray:
    """log posterior at the places minus that at the centre, in one pass over the rows."""
    likelihood = table.sum(_Gain(model), (centre, places))
    prior = _prior_gains(model, centre, places)
    return np.asarray(likelihood, np.float64) + np.asarray(prior, np.float64)


@partial(jax.jit, static_argnums=0)
def _prior_gains(model: Model, centre: Params, places: Params) -> Array:
    return jax.vmap(model.log_prior_density)(places) - model.log_prior_density(centre)


class _Gain(metric.OfModel):
    """The change of the log likelihood of the rows from the centre to each of some places.

    Differences are taken row by row: sums over many rows have few decimals in single precision.
    """

    def total(self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None) -> Array:
        """One number for each place."""
        centre, places = position
        there = self.model.log_likelihoods(centre, rows)

        def gain(place: Params) -> Array:
            change = self.model.log_likelihoods(place, rows) - there
            return jnp.sum(change if weights is None else weights * change)

        return jax.lax.map(gain, places, batch_size=_TOGETHER)


def _quantile(values: np.ndarray, weights: np.ndarray, level: float) -> np.ndarray:
    """Weighted quantiles of each column."""
    found = []
    for column in values.T:
        order = np.argsort(column)
        reached = np.cumsum(weights[order]) - 0.5 * weights[order]
        found.append(np.interp(level, reached, column[order]))
    return np.asarray(found)
