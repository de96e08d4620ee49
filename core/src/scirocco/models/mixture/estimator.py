"""`sc.models.GaussianMixture`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack

import numpy as np
from numpy.typing import DTypeLike

from scirocco import _checks
from scirocco.errors import InvalidValueError
from scirocco.estimators import ControlVariates, Estimator, Full
from scirocco.model import Posterior
from scirocco.models._core.program import FitOptions, Sampled
from scirocco.models.inputs import TableLike, features
from scirocco.models.mixture import density
from scirocco.models.mixture.results import Results
from scirocco.models.mixture.start import (
    Priors,
    Start,
    known_weights,
    rough_fit,
    step_sizes,
    units_and_priors,
)
from scirocco.run import sample
from scirocco.samplers import SGLD, Blocks, Preconditioned, Sampler
from scirocco.simplex import SCIR
from scirocco.types import Params

_ALL_ROWS, _LEAST_BATCH, _MOST_BATCH = 2_000, 500, 10_000
"""Rows up to which all are used in a step; limits for a tenth of more."""


class GaussianMixture(Results):
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

    def fit(
        self,
        X: TableLike,
        y: object = None,
        **options: Unpack[FitOptions],
    ) -> GaussianMixture:
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
        units, priors = units_and_priors(
            table.array, self.covariance, self.scale, self.prior_scale, self.scale_prior
        )
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
            told={
                "names": table.names,
                **units.written(),
                "weights": None if known is None else known.tolist(),
            },
        )
        return self._run(program, options, self._asked(options, thin=1, num_burnin=0, share=0.0))

    def fit_predict(self, X: TableLike, y: object = None, **options: Any) -> np.ndarray:
        """`fit`, then `predict` of the same rows."""
        return self.fit(X, y, **options).predict(X)

    # -- the parts of a fit -----------------------------------------------------------------------------------

    def _posterior(self, known: np.ndarray | None, priors: Priors) -> Posterior:
        _checks.positive(self.concentration, "concentration", "GaussianMixture")
        alpha = float(self.concentration) if known is None else None
        weights = None if known is None else tuple(known.tolist())
        return density.posterior(tuple(priors.means.tolist()), priors.scales, alpha, weights)

    def _params(self, begin: Start, dtype: DTypeLike, known: np.ndarray | None) -> Params:
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
        begin: Start,
        priors: Priors,
        estimator: Estimator,
        known: np.ndarray | None,
        rng: np.random.Generator,
    ) -> Sampler:
        """A step of its own for each number, as a diagonal metric; SCIR for the weights."""
        steps = step_sizes(x, begin, priors, getattr(estimator, "batch_size", None), rng)
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
