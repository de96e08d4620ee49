"""`sc.models.LinearRegression`: a number from a linear predictor, with posterior draws."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from scirocco import _checks, transforms
from scirocco.data.shuffle import shuffled_numbers
from scirocco.diagnostics.intervals import Predicted
from scirocco.errors import DivergenceError, InvalidValueError
from scirocco.estimators import Estimator
from scirocco.estimators.newton import inverse_root
from scirocco.model import Model
from scirocco.models.inputs import ColumnLike, TableLike, Units, targets
from scirocco.models.regression import density
from scirocco.models.regression.approximation import (
    Approximation,
    Coordinates,
    full_precision,
    in_order,
    method,
    reduced,
)
from scirocco.models.regression.base import Composed, Regression
from scirocco.models.regression.columns import FitInput
from scirocco.models.regression.density import Prior
from scirocco.run import Run
from scirocco.run.choose.metric import DENSE_LIMIT
from scirocco.samplers import Sampler

_ROUNDS = 50  # of the normal equations, at most; a few are usual
_MOST_KEPT = 1 << 28
"""Bytes of a table up to which a fit keeps its rows, for leave-one-out; the draws do not need them."""


class LinearRegression(Regression):
    r"""Bayesian linear regression with normal noise.

    .. math:: y ∼ N(x^\top β + b, σ^2)

    The likelihood depends on the rows through the triangular factor of [1, X, y] alone: d + 2 numbers square, made in
    one pass. Gradients are those of all rows, at a cost that does not depend on how many there are.

    Parameters
    ----------
    prior
        Of every coefficient: "normal" (standard deviation `scale`), "laplace" (density ∝ e^(-|β|/scale)) or "horseshoe"
        (normal with standard deviation τλ_j, λ_j ~ C⁺(0, 1), τ ~ C⁺(0, scale): few coefficients matter).
    scale
        Of the prior, in units of y over those of the column. None: 10 sd(y) over the smallest standard deviation of a
        column (root mean squares instead of both without an intercept), rounded to a power of two; a
        tenth of that for the horseshoe.
    slab
        HorseshoePrior: the standard deviation of coefficients that are not shrunk; None: unbounded.
    noise
        σ where it is known. None: unknown, with a half-normal prior of scale s = sd(y), rounded to a power of two,
        times exp(-(s/1000)² / 2σ²), which keeps a perfect fit away from 0.
    intercept, intercept_scale
        Whether there is one, and the standard deviation of its normal prior around the mean of y; None: 10 sd(y),
        rounded to a power of two. The prior is on the intercept at the means of the columns: with an intercept,
        sampling is on centred columns, so that it does not matter how far from 0 they lie. It is returned at x = 0, as
        in scikit-learn.
    standardise
        Sample, and put the prior, on columns with mean 0 and standard deviation 1; coefficients are returned in the
        units of X.
    constant_columns
        "refuse" or "keep" columns with a single value.
    formula
        `y ~ a * b + C(g)`: `fit` then takes a data frame, see `from_formula`.
    sampler
        None: BAOAB in the coordinates of a Gaussian approximation.
    estimator
        None: all rows, by way of the triangular factor. One of your own estimates gradients from the rows themselves.
    num_samples, num_burnin, thin, num_chains, seed
        Draws kept in each chain; steps of the burn-in (int) or their share of the run (float below 1); steps between
        two draws. `thin` None: 10, horseshoe 100; `num_burnin` None: 50 times `thin`.
    num_prediction_draws
        Draws, spread over all, that predictions average over.

    Attributes
    ----------
    coef_, intercept_, noise_
        Posterior means: (d,), and numbers.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    run_
        The run, for diagnosis; its parameters are those of centred columns and of y less its mean where there is an
        intercept, and of standardised columns where `standardise` is on.

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco.models.regression import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = 3.0 + X @ [1.0, -2.0] + 0.1 * rng.normal(size=200)
    >>> model = LinearRegression(seed=1).fit(X, y, progress=False)
    >>> model.coef_.round(1)
    array([ 1., -2.])
    >>> predicted = model.predict([[1.0, 1.0]], interval=0.9)
    >>> bool(predicted.low[0] < 2.0 < predicted.high[0])
    True
    """

    noise_: float
    _estimator_type = "regressor"
    _from_data = ("scale", "intercept_scale")

    def __init__(
        self,
        prior: str = "normal",
        *,
        scale: float | None = None,
        noise: float | None = None,
        intercept: bool = True,
        intercept_scale: float | None = None,
        standardise: bool = False,
        constant_columns: str = "refuse",
        formula: str | None = None,
        sampler: Sampler | None = None,
        estimator: Estimator | None = None,
        num_samples: int = 1000,
        num_burnin: float | None = None,
        thin: int | None = None,
        num_chains: int = 4,
        num_prediction_draws: int = 1000,
        seed: int = 0,
    ):
        self.prior, self.scale, self.noise = prior, scale, noise
        self.intercept, self.intercept_scale = intercept, intercept_scale
        self.standardise, self.constant_columns, self.formula = standardise, constant_columns, formula
        self.sampler, self.estimator = sampler, estimator
        self.num_samples, self.num_burnin, self.thin = num_samples, num_burnin, thin
        self.num_chains, self.num_prediction_draws, self.seed = num_chains, num_prediction_draws, seed

    def _composed(self, inputs: FitInput) -> Composed:
        """Model, data, sampler, estimator and start."""
        if self.noise is not None:
            _checks.positive(self.noise, "noise", type(self).__name__)
        intercept, weight = inputs.intercept, inputs.weight
        count, width = inputs.table.array.shape
        given = targets(inputs.y, num_rows=count, who=type(self).__name__, name=inputs.response)
        if width + intercept > DENSE_LIMIT:
            raise InvalidValueError(f"LinearRegression is for up to {DENSE_LIMIT} columns, got {width}.")
        given = given if inputs.offset is None else given - inputs.offset
        units = Units.of(inputs.table.array, self.standardise, intercept)
        x = units.apply(inputs.table.array)
        centre = float(np.average(given, weights=weight)) if intercept else 0.0
        spread = float(given.std()) if given.min() < given.max() else abs(float(given[0])) or 1.0
        y = given - centre
        factor = reduced(x, y, intercept, weight)
        total = count if weight is None else float(weight.sum())
        prior, start, ordered = self._approximated(factor, total, spread, intercept, x.dtype)
        rows = self._rows(x, y, weight)
        data = rows if self.estimator is not None else _few_rows(factor, total, intercept, x.dtype)
        if self.noise is not None:  # in units of the noise, so that it is 1
            noise = np.asarray(self.noise, x.dtype)
            rows, data = (part | {name: part[name] / noise for name in ("x", "one", "y")} for part in (rows, data))
        chosen = method(Coordinates(start, ordered), self.prior, len(data["y"]), self.sampler, self.estimator)
        told = {**units.written(), "centre": centre}
        model = self._model(prior, start)
        if self.estimator is not None:
            return Composed(model, data, chosen, told)
        return Composed(model, data, chosen, told, rows=rows if x.nbytes <= _MOST_KEPT else {})

    def _explained(self, error: DivergenceError, inputs: FitInput) -> DivergenceError | None:
        num_rows, unknowns = inputs.num_rows, inputs.table.array.shape[1] + inputs.intercept
        if self.noise is not None or num_rows > unknowns:
            return None
        return DivergenceError(
            f"a chain diverged (NaN or inf): {num_rows} rows cannot identify the noise and {unknowns} unknowns. Set "
            "`noise`, a smaller `scale`, or use more rows.",
            run=error.run,
            chain=error.chain,
            step=error.step,
        )

    def _scale(self, factor: np.ndarray, num_rows: float, spread: float, intercept: bool = True) -> float:
        """The prior's, from the triangular factor: what is left of columns and y by the intercept, if there is one."""
        if self.scale is not None:
            return float(self.scale)
        first = int(intercept)
        *whole, own = np.sqrt(np.sum(factor[:, first:] ** 2, axis=0) / num_rows)
        left = np.sqrt(np.sum(factor[first:, first:-1] ** 2, axis=0) / num_rows)
        # of a constant column rounding leaves something
        smallest = min((d for d, size in zip(left, whole, strict=True) if d > 1e-3 * size), default=1.0)
        own = spread if intercept else own or 1.0
        wide = 2.0 ** round(math.log2(10.0 * own / smallest))
        return wide / 10 if self.prior == "horseshoe" else wide

    def _approximated(
        self, factor: np.ndarray, num_rows: float, spread: float, intercept: bool, dtype: DTypeLike
    ) -> tuple[Prior, dict[str, np.ndarray], np.ndarray]:
        """The prior, the start, and the factor of the posterior covariance in the order of the parameters."""
        gram, size = factor.T @ factor, factor.shape[1] - 1
        width = size - intercept
        rough = 2.0 ** round(math.log2(spread))
        intercept_scale = 10.0 * rough if self.intercept_scale is None else float(self.intercept_scale)
        ones = np.diagonal(gram)[intercept:size]
        guess = spread if self.noise is None else float(self.noise)
        prior = self._make_prior(
            ones[None] / guess**2, self._scale(factor, num_rows, spread, intercept), intercept_scale, rough
        )
        found = _approximate(gram, num_rows, intercept, prior, guess, self.noise is not None)
        start, more = {"coef": found.centre[0, :width]}, []
        if intercept:
            start["intercept"] = found.centre[0, -1]
        if self.noise is None:
            start["noise"] = np.asarray(found.noise)
            more.append(1.0 / math.sqrt(2.0 * num_rows))
        if found.working.tau is not None:
            start["tau"] = np.asarray(found.working.tau)
            more.append(found.working.log_tau_sd)
        ordered, _ = in_order(found.factor, np.zeros(size), (1, size), intercept, more)
        return prior, {name: np.asarray(value, dtype) for name, value in start.items()}, ordered

    def _rows(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> dict[str, np.ndarray]:
        ones = np.ones(len(y), x.dtype)
        constant = -0.5 * math.log(2 * math.pi) - math.log(self.noise or 1.0)
        if weight is None:
            return {"x": x, "y": y.astype(x.dtype), "one": ones, "share": ones, "constant": constant * ones}
        root, share = np.sqrt(weight), weight.astype(x.dtype)
        parts = {"x": x * root[:, None], "y": y * root, "one": root, "share": share, "constant": constant * share}
        return {name: np.asarray(part, x.dtype) for name, part in parts.items()}

    def _model(self, prior: Prior, start: dict[str, Any]) -> Model:
        changes: dict[str, Any] = {name: transforms.positive if name in ("noise", "tau") else None for name in start}
        constrained = changes if any(changes.values()) else None
        return Model(density.linear, prior, vectorized=True, transforms=constrained)

    def _results(self, run: Run, told: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self.noise is not None:
            self.noise_ = float(self.noise)
        return super()._results(run, told, arrays)

    # -- predictions ---------------------------------------------------------------------------------------------------

    def predict(
        self,
        X: TableLike,
        interval: float | None = None,
        *,
        kind: str = "observation",
        offset: ColumnLike | None = None,
    ) -> Any:
        """Posterior mean of xᵀβ + b; with `interval`, a `Predicted` with `mean`, `low` and `high`.

        Parameters
        ----------
        X
            Rows.
        interval
            A probability such as 0.9.
        kind
            What lies between `low` and `high` with that probability: a new "observation" (coefficients and noise
            together), or xᵀβ + b ("mean").
        offset
            As for `fit`, of these rows; by default 0.
        """
        _checks.choice(kind, "kind", ("observation", "mean"))

        from scipy.special import ndtri

        def drawn(eta: np.ndarray) -> np.ndarray:
            noise = self._few.get("noise", np.full(len(self._few["coef"]), self.noise))
            if kind == "mean":
                return eta
            # quantiles of a standard normal in a random order, one a draw: the same for every row
            return eta + noise * ndtri((shuffled_numbers(len(noise), self.seed) + 0.5) / len(noise))

        found = self._averages(X, offset, interval, lambda eta: eta, drawn)
        return found[0] if interval is None else Predicted(*found)


def _few_rows(factor: np.ndarray, num_rows: float, intercept: bool, dtype: DTypeLike) -> dict[str, np.ndarray]:
    """Rows that say the same as all: those of the triangular factor."""
    first = int(intercept)
    one = factor[:, 0] if intercept else np.zeros(len(factor))
    share = np.full(len(factor), num_rows / len(factor))
    parts = {"x": factor[:, first:-1], "y": factor[:, -1], "one": one, "share": share}
    return {name: np.ascontiguousarray(part, dtype) for name, part in parts.items()}


def _approximate(
    gram: np.ndarray, num_rows: float, intercept: bool, prior: Prior, noise: float, known: bool
) -> Approximation:
    """Normal equations with the working precisions of the prior, and σ², in turn until they agree."""
    size = len(gram) - 1
    order = [*range(int(intercept), size), *([0] if intercept else [])]  # the intercept last
    squared, moment, rest = gram[np.ix_(order, order)], gram[order, size], gram[size, size]
    columns = size - intercept
    theta, squares = np.zeros(size), noise**2 / np.maximum(np.diagonal(squared)[:columns], 1e-12)
    floor = prior.noise_floor * (prior.noise_scale or 0.0)
    for _ in range(_ROUNDS):
        working = prior.working(squares[None])
        penalty = full_precision(working, prior, (1, size))[0]
        precision = squared / noise**2 + np.diag(penalty)
        root = inverse_root(precision)
        covariance = root @ root.T
        before, theta = (theta, noise), covariance @ moment / noise**2
        squares = theta[:columns] ** 2 + np.diagonal(covariance)[:columns]
        if not known:
            left = rest - 2 * theta @ moment + theta @ squared @ theta + np.sum(squared * covariance)
            noise = math.sqrt((max(left, 0.0) + floor**2) / num_rows)
        settled = abs(noise - before[1]) <= 1e-2 * noise
        if settled and np.all(np.abs(theta - before[0]) <= 1e-3 * np.sqrt(np.diagonal(covariance))):
            break
    return Approximation(theta[None], precision, working, noise)
