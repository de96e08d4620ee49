"""`sc.models.GaussianMixture`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike

from scirocco import _checks, transforms
from scirocco.errors import InvalidValueError
from scirocco.estimators import ControlVariates, Estimator, Full
from scirocco.model import BlockModel, CountModel, Model, Posterior
from scirocco.models._core.model import FittedModel
from scirocco.models._core.program import FitOptions, Sampled
from scirocco.models._core.relabel import orders
from scirocco.models._core.view import View
from scirocco.models.inputs import TableLike, Units, features
from scirocco.models.mixture.start import Priors, RoughFit, known_weights, rough_fit, step_sizes, units_and_priors
from scirocco.run import Run, sample
from scirocco.samplers import SGLD, Blocks, Preconditioned, Sampler
from scirocco.simplex import SCIR
from scirocco.types import Array, Key, Params

_ALL_ROWS, _LEAST_BATCH, _MOST_BATCH = 2_000, 500, 10_000
"""Rows up to which all are used in a step; limits for a tenth of more."""
_DRAWS = 200
"""Draws that predictions average over, at most."""
_BLOCK = 4_096
"""Rows of a prediction at once."""


class GaussianMixture(FittedModel):
    r"""A mixture of K Gaussians with posterior draws of its means, weights and standard deviations.

    .. math:: x_i ∼ \sum_k w_k\, N(μ_k, \mathrm{diag}(s_k^2)), \qquad w ∼ \mathrm{Dir}(α), \quad
        μ_k ∼ N(m_0, \mathrm{diag}(σ_0^2))

    Means (and log s) follow the gradient of the likelihood with the labels summed out; the weights move exactly on the
    simplex by `sc.SCIR`, driven by counts of labels that are drawn for the rows of a batch: two blocks of `sc.Blocks`.
    The stationary distribution is the posterior, up to the step sizes (chosen so that each adds about 5 % to a
    variance; with all rows the weights' block is exact).

    Parameters
    ----------
    num_components
        K.
    weights
        "sample" (default), "equal", or K known weights: then only a gradient block is left. A single component has the
        weight 1.
    covariance
        "diagonal" (default): each component and coordinate has its own standard deviation, see `scale_prior`. "known":
        all components have the standard deviation `scale` in each coordinate.
    scale
        For "known": the standard deviation, a number or one for each column.
    concentration
        α, a number.
    prior_scale
        Of the means' prior. "data" (default): around the mean of each column, with the column's range (largest less
        smallest value) as σ₀; shifts and units of X then do not matter. A number: σ₀ in the units of X, around 0. The
        model of the thesis, section 4.6.1, is `GaussianMixture(2, weights="equal", covariance="known", scale=...,
        prior_scale=10**0.5)`.
    scale_prior
        For "diagonal": (shape, rate) of the Gamma law of s⁻², with s in units of its column's standard deviation. It
        counts as 2·shape more rows in a component, whose squared distances from its mean add up to 2·rate: by default
        two, a tenth of the column's standard deviation away. Components much narrower than that need a smaller rate.
    sampler
        Of the gradient block; by default SGLD with control variates at a rough mode (found by EM), and a step for each
        number from the curvature there.
    step_size
        h of `sc.SCIR`; by default from the noise of the counts.
    batch_size
        Rows of a batch; by default all rows up to 2,000, else a tenth of them, at least 500 and at most 10,000. Each of
        the two blocks gets its own.
    num_samples, num_burnin, thin, num_chains, seed
        Draws kept in each chain; steps of the burn-in (int) or their share of the run (float below 1); steps between
        two draws (None: 1, or draws spread evenly where `fit` is given a length); independent chains, the random seed.

    Attributes
    ----------
    means_, weights_, scales_
        Posterior means with components in one common order.
    draws_
        Draws (chain, draw, ...) of `means`, `weights` and `scales` with the components of all draws in that order, in
        the units of X.
    n_features_in_, feature_names_in_
        The columns of X, and their names, if any; `predict` requires the same.
    run_
        The run; its draws have the order of components that the chain had, in units in which known (or else the
        columns') standard deviations are one, less the columns' means where `prior_scale="data"`.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-3, 1, (60, 2)), rng.normal(3, 1, (140, 2))])
    >>> mixture = sc.models.GaussianMixture(2, num_samples=500, num_burnin=100).fit(X, progress=False)
    >>> bool(abs(mixture.weights_[0] - 0.3) < 0.1), mixture.means_.shape
    (True, (2, 2))
    """

    _estimator_type = "density_estimator"
    ADVICE = "Raise `thin` or `num_samples`, or use fewer components."
    CODE = ("sampler",)
    draws_: dict[str, np.ndarray]
    means_: np.ndarray
    weights_: np.ndarray
    scales_: np.ndarray
    n_features_in_: int
    feature_names_in_: np.ndarray
    """Only of a table whose columns have names."""
    _units: Units
    _inner: Params
    """Draws (draw, K, ...) in the units and with the components of the chains."""
    _order: np.ndarray
    """The common order of their components, (draw, K)."""

    def __init__(
        self,
        num_components: int = 2,
        *,
        weights: str | Sequence[float] | np.ndarray = "sample",
        covariance: str = "diagonal",
        scale: float | Sequence[float] | np.ndarray = 1.0,
        concentration: float = 1.0,
        prior_scale: float | str = "data",
        scale_prior: tuple[float, float] = (1.0, 0.01),
        sampler: Sampler | None = None,
        step_size: float | None = None,
        batch_size: int | None = None,
        num_samples: int = 2_000,
        num_burnin: float = 1_000,
        thin: int | None = None,
        num_chains: int = 4,
        seed: int = 0,
    ):
        self.num_components, self.weights, self.covariance = num_components, weights, covariance
        self.scale, self.concentration, self.prior_scale = scale, concentration, prior_scale
        self.scale_prior, self.sampler, self.step_size = scale_prior, sampler, step_size
        self.batch_size, self.num_samples, self.num_burnin = batch_size, num_samples, num_burnin
        self.thin, self.num_chains, self.seed = thin, num_chains, seed

    def fit(self, X: TableLike, y: object = None, **options: Unpack[FitOptions]) -> GaussianMixture:
        """Draw from the posterior given rows X (N, d).

        Parameters
        ----------
        X, y
            Rows; `y` is ignored.
        num_steps, num_epochs, max_seconds
            The length of the run, burn-in included, as steps, as passes over the rows or as seconds of sampling (set-up
            and compilation are not counted); at most one of them. By default the run is as long as `num_samples`,
            `num_burnin` and `thin` say.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`.
        """
        table = features(X, "GaussianMixture", exact=True)
        count = _checks.positive_int(self.num_components, "num_components")
        if len(table.array) < count:
            rows = f"{len(table.array)} sample{'s' * (len(table.array) > 1)}"
            raise InvalidValueError(f"{count} components need at least as many rows; X has {rows}.")
        units, priors = units_and_priors(table.array, self.covariance, self.scale, self.prior_scale, self.scale_prior)
        x, known, rng = (
            units.apply(table.array),
            known_weights(self.weights, count),
            np.random.default_rng(_checks.positive_int(self.seed, "seed", minimum=0)),
        )
        begin = rough_fit(x, count, rng, priors=priors, weights=known)
        estimator = self._estimator(len(x))
        sampler = self._sampler(x, begin, priors, estimator, known, rng)
        start = self._params(begin, x.dtype, known)
        program = Sampled(
            partial(sample, self._posterior(known, priors), x, start, sampler=sampler, estimator=estimator),
            num_rows=len(x),
            batch_size=estimator.batching(len(x)).size,
            told={"names": table.names, **units.written(), "weights": None if known is None else known.tolist()},
        )
        return self._run(program, options, self._asked(options, thin=1, num_burnin=0, share=0.0))

    def fit_predict(self, X: TableLike, y: object = None, **options: Any) -> np.ndarray:
        """`fit`, then `predict` of the same rows."""
        return self.fit(X, y, **options).predict(X)

    # -- the parts of a fit --------------------------------------------------------------------------------------------

    def _posterior(self, known: np.ndarray | None, priors: Priors) -> Posterior:
        _checks.positive(self.concentration, "concentration", "GaussianMixture")
        alpha = float(self.concentration) if known is None else None
        weights = None if known is None else tuple(known.tolist())
        return posterior(tuple(priors.means.tolist()), priors.scales, alpha, weights)

    def _params(self, begin: RoughFit, dtype: DTypeLike, known: np.ndarray | None) -> Params:
        params = {"means": begin.means.astype(dtype)}
        if self.covariance == "diagonal":
            params["scales"] = begin.scales.astype(dtype)
        if known is None:
            params["weights"] = begin.weights.astype(dtype)
        return params

    def _estimator(self, num_rows: int) -> Estimator:
        if self.batch_size is None:
            share = min(max(num_rows // 10, _LEAST_BATCH), _MOST_BATCH)
            return Full() if num_rows <= _ALL_ROWS else ControlVariates(share)
        size = _checks.positive_int(self.batch_size, "batch_size")
        return Full() if size == num_rows else ControlVariates(size)

    def _sampler(
        self,
        x: np.ndarray,
        begin: RoughFit,
        priors: Priors,
        estimator: Estimator,
        known: np.ndarray | None,
        rng: np.random.Generator,
    ) -> Sampler:
        """A step of its own for each number, as a diagonal metric; SCIR for the weights."""
        size = None if isinstance(estimator, Full) else estimator.batching(len(x)).size
        steps = step_sizes(x, begin, priors, size, rng)
        diagonal = self.covariance == "diagonal"
        sizes = [steps.means, steps.scales] if diagonal else [steps.means]
        gradient = self.sampler
        if gradient is None:
            factor = np.sqrt(np.concatenate([size.ravel() for size in sizes]))
            gradient = Preconditioned(SGLD(1.0), metric="diagonal", factor=factor.astype(np.float32))
        if known is not None:
            return gradient
        h = steps.weights if self.step_size is None else self.step_size
        return Blocks({("means", "scales") if diagonal else "means": gradient, "weights": SCIR(h)})

    # -- results -------------------------------------------------------------------------------------------------------

    def _results(self, run: Run, told: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Draws in the user's units and in one order of components."""
        self._units = Units(np.asarray(told["mean"]), np.asarray(told["deviation"]))
        self.n_features_in_ = len(self._units.mean)
        vars(self).pop("feature_names_in_", None)
        if told["names"] is not None:
            self.feature_names_in_ = np.asarray(told["names"], dtype=object)
        raw = {name: np.asarray(values) for name, values in run.draws.items()}
        shape, weights = raw["means"].shape, told["weights"]
        if weights is not None:
            raw["weights"] = np.broadcast_to(np.asarray(weights), shape[:3])
        self._inner = {name: values.reshape(-1, *values.shape[2:]) for name, values in raw.items()}
        # components with fixed, unequal weights are told apart by them
        named = weights is not None and np.ptp(weights) > 0
        flat = self._inner["means"]
        self._order = np.broadcast_to(np.arange(shape[2]), flat.shape[:2]) if named else orders(flat)
        draws = self._in_order(shape)
        self.means_, self.weights_, self.scales_ = (
            draws[name].mean(axis=(0, 1)) for name in ("means", "weights", "scales")
        )
        return draws

    def _watched(self) -> dict[str, np.ndarray]:
        return {name: self.draws_[name] for name in self.run_.draws}  # the others are fixed

    def _coordinates(self) -> dict[str, Sequence[Any]]:
        names = vars(self).get("feature_names_in_")
        return {} if names is None else {"means_dim_1": list(names), "scales_dim_1": list(names)}

    def _view(self, run: Run, **options: Any) -> View:
        about = (
            "Diagnosed and plotted in the units of the columns, with the components of all draws in one order: the "
            "first number in brackets is the component."
        )
        return View(run, type(self).__name__, judged=self._judged(), about=about)

    def _in_order(self, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
        """(chain, draw, K, ...)."""
        order, units = self._order, self._units
        found = {
            name: np.take_along_axis(v, order.reshape(*order.shape, *[1] * (v.ndim - 2)), axis=1)
            for name, v in self._inner.items()
        }
        found["means"] = found["means"] * units.deviation + units.mean
        found["scales"] = found.get("scales", np.ones((1, *shape[2:]))) * units.deviation
        return {
            name: np.broadcast_to(v, (len(order), *v.shape[1:])).reshape(*shape[:2], *v.shape[1:])
            for name, v in found.items()
        }

    def predict_proba(self, X: TableLike) -> np.ndarray:
        """P(component | row), averaged over draws with components in the order of `means_`."""
        draws, order = self._thinned()
        parts = []
        for rows in self._blocks(X):
            logs = np.asarray(_responsibilities(draws, rows))
            shares = np.take_along_axis(np.exp(logs), order[:, None, :], axis=2)
            parts.append(shares.mean(axis=0))
        return np.concatenate(parts)

    def predict(self, X: TableLike) -> np.ndarray:
        """The most probable component of each row."""
        labels: np.ndarray = self.predict_proba(X).argmax(axis=1)
        return labels

    def score_samples(self, X: TableLike) -> np.ndarray:
        """Log posterior predictive density of each row: log (1/S) Σ_s p(x | θ_s); it knows no order of components."""
        draws, _ = self._thinned()
        jacobian = float(np.sum(np.log(self._units.deviation)))
        parts = []
        for rows in self._blocks(X):
            logs = np.asarray(_likelihoods(draws, rows), np.float64)
            parts.append(np.logaddexp.reduce(logs, axis=0) - np.log(len(logs)) - jacobian)
        return np.concatenate(parts)

    def score(self, X: TableLike, y: object = None) -> float:
        """Mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def _thinned(self) -> tuple[Params, np.ndarray]:
        self._check_fitted()
        total = len(self._order)
        chosen = np.unique(np.linspace(0, total - 1, min(_DRAWS, total)).astype(int))
        draws = {name: jnp.asarray(v[chosen], jnp.float32) for name, v in self._inner.items()}
        return draws, self._order[chosen]

    def _blocks(self, X: TableLike) -> Iterator[np.ndarray]:
        like = (self.n_features_in_, vars(self).get("feature_names_in_"))
        table = features(X, "GaussianMixture", constant="keep", exact=True, like=like)
        rows = self._units.apply(table.array)
        yield from np.array_split(rows, range(_BLOCK, len(rows), _BLOCK))


@jax.jit
def _responsibilities(draws: Params, rows: Array) -> Array:
    one = jax.vmap(log_components, (None, 0))
    return jax.lax.map(lambda draw: jax.nn.log_softmax(one(draw, rows)), draws)


@jax.jit
def _likelihoods(draws: Params, rows: Array) -> Array:
    one = jax.vmap(log_likelihood, (None, 0))
    return jax.lax.map(lambda draw: one(draw, rows), draws)


# -- density -----------------------------------------------------------------------------------------------------------


def log_components(params: Params, x: Array) -> Array:
    """log w_k + log N(x | μ_k, s_k²), (K,), for one row."""
    scales = params.get("scales")
    standard = x - params["means"]
    logs = jnp.log(params["weights"]) - 0.5 * x.shape[-1] * math.log(2 * math.pi)
    if scales is not None:
        standard = standard / scales
        logs = logs - jnp.sum(jnp.log(scales), axis=-1)
    return logs - 0.5 * jnp.sum(standard**2, axis=-1)


def log_likelihood(params: Params, x: Array) -> Array:
    """log Σ_k w_k N(x | μ_k, s_k²): the labels are summed out."""
    return jax.nn.logsumexp(log_components(params, x))


def label(params: Params, x: Array, key: Key) -> Array:
    """A label drawn given all parameters, as an indicator: the count that moves the weights."""
    logs = log_components(params, x)
    return jax.nn.one_hot(jax.random.categorical(key, logs), logs.shape[-1])


@lru_cache(maxsize=64)
def posterior(
    prior_scales: tuple[float, ...],
    scale_prior: tuple[float, float] | None,
    concentration: float | None,
    weights: tuple[float, ...] | None,
) -> Posterior:
    """The model of a fit; equal settings give one object, so that compiled programs are found again.

    `prior_scales`: of the means, for each column.
    `scale_prior`: shape and rate of the Gamma prior of the precisions 1/s², None where scales are known.
    `concentration`: α of the weights' Dirichlet prior, None where `weights` (a tuple) are known.
    """

    def log_prior(params: Params) -> Array:
        total = -0.5 * jnp.sum((params["means"] / np.asarray(prior_scales, np.float32)) ** 2)
        if scale_prior is not None:
            shape, rate = scale_prior
            logs = jnp.log(params["scales"])
            # τ = s⁻² ~ Gamma(a, b) has the density ∝ s^(-2a-1) exp(-b s⁻²) in s
            total = total - jnp.sum((2 * shape + 1) * logs + rate * jnp.exp(-2 * logs))
        return total

    known = None if weights is None else np.asarray(weights, np.float32)

    def likelihood(params: Params, x: Array) -> Array:
        return log_likelihood(params if known is None else {**params, "weights": known}, x)

    names = {"means": None} | ({} if scale_prior is None else {"scales": transforms.positive})
    if concentration is None:
        return Model(likelihood, log_prior, transforms=names)
    joint = Model(likelihood, log_prior, transforms={**names, "weights": None})
    return BlockModel(joint, weights=CountModel(concentration, label))
