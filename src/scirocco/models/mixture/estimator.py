"""`sc.models.GaussianMixture`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidTypeError, InvalidValueError, NotFittedError
from scirocco.estimators import ControlVariates, Estimator, Full
from scirocco.models.fits.conventions import Conventions
from scirocco.models.fits.mixing import warn_if_unmixed
from scirocco.models.inputs import features
from scirocco.models.mixture import density, relabelling
from scirocco.models.mixture.start import Start, rough_fit, step_sizes
from scirocco.run import Run, sample
from scirocco.run.progress import Callback
from scirocco.samplers import SGLD, Blocks, Preconditioned, Sampler
from scirocco.simplex import SCIR
from scirocco.types import Array, Params

COVARIANCES = ("known", "diagonal")
_ALL_ROWS, _LEAST_BATCH, _MOST_BATCH = 2_000, 500, 10_000
_DRAWS = 200
_BLOCK = 4_096


class Summary(NamedTuple):
    """Posterior means and intervals, components in one common order."""

    mean: dict[str, np.ndarray]
    low: dict[str, np.ndarray]
    high: dict[str, np.ndarray]


class GaussianMixture(Conventions):
    r"""A mixture of K Gaussians with posterior draws of its means, weights and (if asked) standard deviations.

    .. math:: x_i ∼ \sum_k w_k\, N(μ_k, \mathrm{diag}(s_k^2)), \qquad w ∼ \mathrm{Dir}(α), \quad μ_k ∼ N(0, σ_0^2 I)

    Means (and log s) follow the gradient of the likelihood with the labels summed out; the weights move exactly on the
    simplex by `sc.SCIR`, driven by counts of labels that are drawn for the rows of a batch: two blocks of `sc.Blocks`.
    The law is the posterior, up to the step sizes (chosen so that each adds about 5 % to a variance; with all rows the
    weights' block is exact).

    Parameters
    ----------
    num_components
        K.
    weights
        "sample" (default), "equal", or K known weights: then only a gradient block is left. "equal" with two components
        and `covariance="known"` is the model of the thesis, section 4.6.1.
    covariance
        "known": every component has the standard deviation `scale` in each coordinate. "diagonal": each component and
        coordinate has its own, with s⁻² ~ Gamma(`scale_prior`) in units of the data's variance.
    scale
        For "known": the standard deviation, a number or one for each column.
    concentration
        α, a number.
    prior_scale
        σ₀ of the means' prior around 0, in the units of X; by default √10 as in the thesis. "data": ten times the
        largest absolute value of X.
    scale_prior
        (shape, rate) of the precisions, relative to the columns' variances.
    sampler
        Of the gradient block; by default SGLD with control variates at a rough mode (found by EM), and a step for each
        number from the curvature there.
    step_size
        h of `sc.SCIR`; by default from the noise of the counts.
    batch_size
        Rows of a batch; by default all rows up to 2,000, else a tenth of them, at least 500 and at most 10,000. Each of
        the two blocks gets its own.
    num_samples, num_burnin, thin, num_chains, seed
        As for `sc.sample`.

    Attributes
    ----------
    means_, weights_, scales_
        Posterior means with components in one common order (labels of draws are matched; `relabelled_` has the draws).
    run_
        The run; its draws have the order of components that the chain had, in units in which known (or else the
        columns') standard deviations are one.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-3, 1, (60, 2)), rng.normal(3, 1, (140, 2))])
    >>> mixture = sc.models.GaussianMixture(2, num_samples=500, num_burnin=100).fit(X, progress=False)
    >>> bool(abs(mixture.weights_[0] - 0.3) < 0.1), mixture.means_.shape
    (True, (2, 2))
    """

    run_: Run

    def __init__(
        self,
        num_components: int = 2,
        *,
        weights: Any = "sample",
        covariance: str = "known",
        scale: Any = 1.0,
        concentration: float = 1.0,
        prior_scale: Any = 10**0.5,
        scale_prior: tuple[float, float] = (2.0, 1.0),
        sampler: Sampler | None = None,
        step_size: float | None = None,
        batch_size: int | None = None,
        num_samples: int = 2_000,
        num_burnin: int = 1_000,
        thin: int = 1,
        num_chains: int = 1,
        seed: int = 0,
    ):
        self.num_components, self.weights, self.covariance = num_components, weights, covariance
        self.scale, self.concentration, self.prior_scale = scale, concentration, prior_scale
        self.scale_prior, self.sampler, self.step_size = scale_prior, sampler, step_size
        self.batch_size, self.num_samples, self.num_burnin = batch_size, num_samples, num_burnin
        self.thin, self.num_chains, self.seed = thin, num_chains, seed

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        store: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
    ) -> GaussianMixture:
        """Draw from the posterior given rows X (N, d); `y` is ignored, the rest is as for `sc.sample`."""
        table = features(X, "GaussianMixture")
        count = _checks.positive_int(self.num_components, "num_components")
        if len(table.array) < count:
            raise InvalidValueError(
                f"{count} components need at least as many rows; X has {len(table.array)}."
            )
        self.n_features_in_ = table.array.shape[1]
        self._units = self._column_units(table.array)
        x = np.ascontiguousarray(table.array / self._units, dtype=table.array.dtype)
        known, rng = self._known_weights(count), np.random.default_rng(self.seed)
        begin = rough_fit(x, count, rng, known_scales=self.covariance == "known", weights=known)
        estimator = self._estimator(len(x))
        self.run_ = sample(
            self._posterior(known, x),
            x,
            self._params(begin, x.dtype, known),
            sampler=self._sampler(x, begin, estimator, known, rng),
            estimator=estimator,
            num_samples=self.num_samples,
            num_burnin=self.num_burnin,
            thin=self.thin,
            num_chains=self.num_chains,
            seed=self.seed,
            store=store,
            resume=resume,
            overwrite=overwrite,
            callbacks=callbacks,
            progress=progress,
        )
        self._known = known
        self._settle()
        warn_if_unmixed(
            self.relabelled_, "GaussianMixture", "Raise `thin` or `num_samples`, or use fewer components."
        )
        return self

    # -- the parts of a fit -----------------------------------------------------------------------------------

    def _column_units(self, x: np.ndarray) -> np.ndarray:
        """Columns are divided by their known standard deviations, or by the data's."""
        _checks.choice(self.covariance, "covariance", COVARIANCES)
        if self.covariance == "diagonal":
            return x.std(axis=0).astype(np.float64)
        units = np.asarray(self.scale, np.float64)
        if units.shape not in ((), (x.shape[1],)) or not np.all(np.isfinite(units)) or np.any(units <= 0):
            raise InvalidValueError(
                f"`scale` of GaussianMixture must be a number > 0 or one for each of the {x.shape[1]} columns, got "
                f"{self.scale!r}."
            )
        return np.broadcast_to(units, (x.shape[1],))

    def _known_weights(self, count: int) -> np.ndarray | None:
        if isinstance(self.weights, str):
            _checks.choice(self.weights, "weights", ("sample", "equal"))
            return None if self.weights == "sample" else np.full(count, 1 / count)
        known = np.asarray(self.weights, np.float64)
        if known.shape != (count,) or np.any(known <= 0) or abs(known.sum() - 1) > 1e-6:
            raise InvalidValueError(
                f"`weights` of GaussianMixture must be {count} numbers > 0 with the sum 1, got {self.weights!r}."
            )
        return known

    def _posterior(self, known: np.ndarray | None, x: np.ndarray) -> Any:
        _checks.positive(self.concentration, "concentration", "GaussianMixture")
        spread = self.prior_scale
        if isinstance(spread, str):
            if spread != "data":
                raise InvalidTypeError(f'`prior_scale` must be a number > 0 or "data", got {spread!r}.')
            spread = 10 * float(np.abs(x * self._units).max())
        _checks.positive(spread, "prior_scale", "GaussianMixture")
        gamma = tuple(map(float, self.scale_prior)) if self.covariance == "diagonal" else None
        alpha = float(self.concentration) if known is None else None
        scales = tuple((float(spread) / self._units).tolist())
        return density.posterior(scales, gamma, alpha, None if known is None else tuple(known))

    def _params(self, begin: Start, dtype: Any, known: np.ndarray | None) -> Params:
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
        self, x: np.ndarray, begin: Start, estimator: Estimator, known: np.ndarray | None, rng: Any
    ) -> Sampler:
        """A step of its own for each number, as a diagonal metric; SCIR for the weights."""
        steps = step_sizes(x, begin, getattr(estimator, "batch_size", None), rng)
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

    # -- results ----------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Draws in the user's units and in one order of components."""
        raw = {name: np.asarray(values) for name, values in self.run_.draws.items()}
        shape = raw["means"].shape
        if self._known is not None:
            raw["weights"] = np.broadcast_to(self._known, (*shape[:2], shape[2]))
        self._inner = {name: values.reshape(-1, *values.shape[2:]) for name, values in raw.items()}
        # components with known, unequal weights are told apart by them
        named = self._known is not None and np.ptp(self._known) > 0
        flat = self._inner["means"]
        order = np.broadcast_to(np.arange(shape[2]), flat.shape[:2]) if named else relabelling.orders(flat)
        sorted_draws = {
            name: np.take_along_axis(v, order.reshape(*order.shape, *[1] * (v.ndim - 2)), axis=1)
            for name, v in self._inner.items()
        }
        sorted_draws["means"] = sorted_draws["means"] * self._units
        scales = sorted_draws.get("scales", np.ones((1, *shape[2:])))
        sorted_draws["scales"] = scales * self._units
        self.relabelled_ = {
            name: np.broadcast_to(v, (len(flat), *v.shape[1:])).reshape(*shape[:2], *v.shape[1:])
            for name, v in sorted_draws.items()
        }
        self._order = order
        self.means_, self.weights_, self.scales_ = (
            self.relabelled_[name].mean(axis=(0, 1)) for name in ("means", "weights", "scales")
        )

    def summary(self, interval: float = 0.9) -> Summary:
        """Posterior means and equal-tailed intervals of means, weights and standard deviations."""
        self._check_fitted()
        if not 0 < interval < 1:
            raise InvalidValueError(f"`interval` must lie between 0 and 1, got {interval}.")
        tails = [(1 - interval) / 2, (1 + interval) / 2]
        low, high = (
            {name: np.quantile(v, tail, axis=(0, 1)) for name, v in self.relabelled_.items()}
            for tail in tails
        )
        return Summary({name: v.mean(axis=(0, 1)) for name, v in self.relabelled_.items()}, low, high)

    def predict_proba(self, X: Any) -> np.ndarray:
        """P(component | row), averaged over draws with components in the order of `means_`."""
        draws, order = self._thinned()
        parts = []
        for rows in self._blocks(X):
            logs = np.asarray(_responsibilities(draws, rows))
            shares = np.take_along_axis(np.exp(logs), order[:, None, :], axis=2)
            parts.append(shares.mean(axis=0))
        return np.concatenate(parts)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable component of each row."""
        labels: np.ndarray = self.predict_proba(X).argmax(axis=1)
        return labels

    def fit_predict(self, X: Any, y: Any = None, **options: Any) -> np.ndarray:
        """`fit`, then `predict` of the same rows."""
        return self.fit(X, y, **options).predict(X)

    def score_samples(self, X: Any) -> np.ndarray:
        """Log posterior predictive density of each row: log (1/S) Σ_s p(x | θ_s); it knows no order of components."""
        draws, _ = self._thinned()
        jacobian = float(np.sum(np.log(self._units)))
        parts = []
        for rows in self._blocks(X):
            logs = np.asarray(_likelihoods(draws, rows), np.float64)
            parts.append(np.logaddexp.reduce(logs, axis=0) - np.log(len(logs)) - jacobian)
        return np.concatenate(parts)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def _thinned(self) -> tuple[Params, np.ndarray]:
        self._check_fitted()
        total = len(self._order)
        chosen = np.unique(np.linspace(0, total - 1, min(_DRAWS, total)).astype(int))
        return {name: jnp.asarray(v[chosen], jnp.float32) for name, v in self._inner.items()}, self._order[
            chosen
        ]

    def _blocks(self, X: Any) -> Any:
        table = features(X, "GaussianMixture", constant="keep", like=(self.n_features_in_, None))
        scaled = (table.array / self._units).astype(table.array.dtype)
        yield from np.array_split(scaled, range(_BLOCK, len(scaled), _BLOCK))

    def _check_fitted(self) -> None:
        if not hasattr(self, "relabelled_"):
            raise NotFittedError("this GaussianMixture is not fitted yet: call `fit` first.")


@jax.jit
def _responsibilities(draws: Params, rows: Array) -> Array:
    one = jax.vmap(density.log_responsibilities, (None, 0))
    return jax.lax.map(lambda draw: one(draw, rows), draws)


@jax.jit
def _likelihoods(draws: Params, rows: Array) -> Array:
    one = jax.vmap(density.log_likelihood, (None, 0))
    return jax.lax.map(lambda draw: one(draw, rows), draws)
