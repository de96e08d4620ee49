"""`sc.models.LogisticRegression`: classes from a linear predictor, with posterior draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from scirocco import _checks, transforms
from scirocco.diagnostics.intervals import Predicted
from scirocco.errors import InvalidValueError
from scirocco.estimators import Estimator
from scirocco.model import Model
from scirocco.models.inputs import ColumnLike, TableLike, Units, labels
from scirocco.models.regression.approximation import (
    Coordinates,
    DesignRows,
    SamplingMethod,
    approximate,
    in_order,
    large_method,
    method,
    probabilities,
    survey,
)
from scirocco.models.regression.base import Composed, Regression
from scirocco.models.regression.columns import FitInput
from scirocco.models.regression.density import Likelihood, Prior
from scirocco.run import Run
from scirocco.run.choose.metric import DENSE_LIMIT
from scirocco.samplers import Sampler


class LogisticRegression(Regression):
    r"""Bayesian logistic regression, for two classes or more.

    .. math:: P(y = k | x) ∝ \exp(x^\top β_k + b_k)

    with two classes :math:`β_0 = 0, b_0 = 0` and one vector of coefficients is left; with K > 2 there are K, and the
    prior tells them apart (adding one vector to all changes no probability).

    Parameters
    ----------
    prior
        Of every coefficient: "laplace" (density ∝ e^(-|β|/scale)), "normal" (standard deviation `scale`) or "horseshoe"
        (normal with standard deviation τλ_j, λ_j ~ C⁺(0, 1), τ ~ C⁺(0, scale): few coefficients matter).
    scale
        Of the prior.
    slab
        HorseshoePrior: the standard deviation of coefficients that are not shrunk; None: unbounded.
    intercept, intercept_scale
        Whether there is one, and the standard deviation of its normal prior. The prior is on the intercept at the means
        of the columns: with an intercept, sampling is on centred columns, so that it does not matter how far from 0
        they lie. It is returned at x = 0, as in scikit-learn.
    standardise
        Sample, and put the prior, on columns with mean 0 and standard deviation 1; coefficients are returned in the
        units of X.
    classes
        The labels that may occur; others raise an error. None: those in y. They are sorted in `classes_`, which is the
        order of the columns of `predict_proba`.
    constant_columns
        "refuse" or "keep" columns with a single value.
    formula
        `y ~ a * b + C(g)`: `fit` then takes a data frame, see `from_formula`.
    sampler, estimator
        None: in the coordinates of a Gaussian approximation, SGHMC with control variates on 500 rows (more where the
        gradient noise asks for more), or BAOAB with all rows if they are few.
    num_samples, num_burnin, thin, num_chains, seed
        Draws kept in each chain; steps of the burn-in (int) or their share of the run (float below 1); steps between
        two draws. `thin` None: 10, horseshoe 100; `num_burnin` None: 50 times `thin`.
    num_prediction_draws
        Draws, spread over all, that predictions average over.

    Attributes
    ----------
    coef_, intercept_
        Posterior means: (1, d) and (1,) for two classes, (K, d) and (K,) for more.
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.
    run_
        The run, for diagnosis; its parameters are those of centred columns where there is an intercept, and of
        standardised ones where `standardise` is on.

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco.models.regression import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> y = np.where(X[:, 0] + rng.logistic(size=500) > 0, "yes", "no")
    >>> model = LogisticRegression(seed=1).fit(X, y, progress=False)
    >>> model.predict([[5.0, 0.0], [-5.0, 0.0]])
    array(['yes', 'no'], dtype='<U3')
    >>> low, high = model.coef_interval_(0.99)
    >>> bool(low[0, 0] < 1 < high[0, 0])
    True
    """

    scale: float
    intercept_scale: float
    classes_: np.ndarray
    _estimator_type = "classifier"
    _baseline: ClassVar[bool] = False
    """Whether the coefficients of more than two classes are against the first."""

    def __init__(
        self,
        prior: str = "laplace",
        *,
        scale: float = 1.0,
        intercept: bool = True,
        intercept_scale: float = 10.0,
        standardise: bool = False,
        classes: Sequence[object] | None = None,
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
        self.prior, self.scale = prior, scale
        self.intercept, self.intercept_scale = intercept, intercept_scale
        self.standardise, self.classes, self.constant_columns = standardise, classes, constant_columns
        self.formula = formula
        self.sampler, self.estimator = sampler, estimator
        self.num_samples, self.num_burnin, self.thin = num_samples, num_burnin, thin
        self.num_chains, self.num_prediction_draws, self.seed = num_chains, num_prediction_draws, seed

    def _composed(self, inputs: FitInput) -> Composed:
        """Model, data, sampler, estimator and start."""
        width = inputs.table.array.shape[1]
        codes, classes = labels(
            inputs.y, self.classes, num_rows=inputs.num_rows, who=type(self).__name__, sort=True, name=inputs.response
        )
        if inputs.offset is not None and len(classes) > 2:
            raise InvalidValueError(
                f"an offset is added to the log odds of two classes; {type(self).__name__} was given {len(classes)}."
            )
        units = Units.of(inputs.table.array, self.standardise, inputs.intercept)
        x = units.apply(inputs.table.array)
        rows = DesignRows(x, codes, len(classes), inputs.intercept, self._baseline, inputs.offset, inputs.weight)
        if rows.shape[0] * rows.shape[1] > DENSE_LIMIT:
            prior = self._own_prior(np.ones((1, width)))
            sampler, estimator = large_method(self.prior, len(x), self.sampler, self.estimator)
            chosen = SamplingMethod(sampler, estimator, _start(np.zeros(rows.shape), width, None, x.dtype))
        else:
            prior, chosen = self._approximated(rows)
        data = {"x": x, "y": codes.astype(x.dtype) if rows.num_predictors == 1 else codes}
        for name, part in (("offset", inputs.offset), ("weight", inputs.weight)):
            data |= {} if part is None else {name: part.astype(x.dtype)}
        told = {**units.written(), "classes": classes.tolist(), "classes_type": classes.dtype.str}
        return Composed(self._model(prior, rows, chosen.start), data, chosen, told)

    def _approximated(self, rows: DesignRows) -> tuple[Prior, SamplingMethod]:
        """The prior, and what samples in the coordinates of a Gaussian approximation."""
        rng = np.random.default_rng(_checks.positive_int(self.seed, "seed", minimum=0))
        made: list[Prior] = []

        def make(information: np.ndarray) -> Prior:
            made.append(self._own_prior(information))
            return made[0]

        found = approximate(rows, make, rng)
        seen = survey(rows, found, rng)
        more = [] if found.working.tau is None else [found.working.log_tau_sd]
        start = _start(found.centre, rows.x.shape[1], found.working.tau, rows.x.dtype)
        ordered, noise = in_order(seen.factor, seen.noise, rows.shape, rows.intercept, more)
        coordinates = Coordinates(start, ordered, seen.curvature, noise)
        return made[0], method(coordinates, self.prior, len(rows), self.sampler, self.estimator)

    def _own_prior(self, information: np.ndarray) -> Prior:
        return self._make_prior(information, float(self.scale), float(self.intercept_scale))

    def _model(self, prior: Prior, rows: DesignRows, start: dict[str, np.ndarray]) -> Model:
        changes = {name: transforms.positive if name == "tau" else None for name in start}
        one = rows.num_predictors == 1
        likelihood = Likelihood("bernoulli") if one else Likelihood("softmax", rows.baseline)
        transformed = changes if "tau" in changes else None
        return Model(likelihood, prior, vectorized=True, transforms=transformed)

    def _results(self, run: Run, told: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        draws = super()._results(run, told, arrays)
        self.classes_ = np.asarray(told["classes"], np.dtype(told["classes_type"]))
        self.coef_ = self.coef_.reshape(self._coef_shape())
        self.intercept_ = np.broadcast_to(np.ravel(self.intercept_), (len(self.coef_),)).copy()
        return draws

    @property
    def _has_baseline(self) -> bool:
        return self._baseline or len(self.classes_) == 2

    def _coef_shape(self) -> tuple[int, ...]:
        return (len(self.classes_) - self._has_baseline, self.n_features_in_)

    def _predictor_names(self) -> list[object]:
        names = list(self.classes_[int(self._has_baseline) :])
        return names if len(names) > 1 else []

    # -- predictions ---------------------------------------------------------------------------------------------------

    def predict_proba(self, X: TableLike, interval: float | None = None, *, offset: ColumnLike | None = None) -> Any:
        """Posterior mean of every class's probability, (rows, classes); with `interval`, a `Predicted`.

        Parameters
        ----------
        X
            Rows.
        interval
            A probability such as 0.9: the result then has `mean`, `low` and `high`, a central interval of the class
            probabilities given the data (of the probability, not of the outcome, which is one class or another).
        offset
            As for `fit`, of these rows; by default 0.
        """
        mean, *ends = self._averages(
            X, offset, interval, lambda eta: probabilities(eta, len(self.classes_) > 2, self._has_baseline)
        )
        if interval is None:
            return mean if mean.ndim == 2 else np.stack([1.0 - mean, mean], axis=1)
        low, high = ends
        if mean.ndim == 2:
            return Predicted(mean, low, high)
        pairs = ((1.0 - mean, mean), (1.0 - high, low), (1.0 - low, high))
        return Predicted(*(np.stack(pair, axis=1) for pair in pairs))

    def predict(self, X: TableLike) -> np.ndarray:
        """The most probable class of every row."""
        return np.asarray(self.classes_of(self.predict_proba(X)))

    def classes_of(self, probabilities: np.ndarray) -> np.ndarray:
        """The labels of the largest probabilities (rows, classes)."""
        return np.asarray(self.classes_[np.argmax(probabilities, axis=1)])

    def _frame_columns(self, X: TableLike, interval: float) -> dict[str, np.ndarray]:
        found = self.predict_proba(X, interval=interval)
        columns = {"predicted": self.classes_of(found.mean)}
        for place, label in enumerate(self.classes_):
            for name, part in zip(("p", "low", "high"), found, strict=True):
                columns[f"{name}[{label}]"] = part[:, place]
        return columns

    def predict_log_proba(self, X: TableLike) -> np.ndarray:
        """The logarithm of `predict_proba`."""
        return np.log(self.predict_proba(X))

    def score(self, X: TableLike, y: ColumnLike | None = None) -> float:
        """Accuracy: the fraction of rows with the right predicted class; an error for labels not in `classes_`."""
        predicted, given = np.argmax(self.predict_proba(X), axis=1), self._responses(X, y)
        codes, _ = labels(given, self.classes_, num_rows=len(predicted), who=type(self).__name__)
        return float(np.mean(codes == predicted))


class SoftmaxRegression(LogisticRegression):
    r"""Bayesian regression for classes, with coefficients against the first one, as in R's `multinom` and statsmodels.

    .. math:: \log \frac{P(y = k | x)}{P(y = 0 | x)} = x^\top β_k + b_k

    The K - 1 vectors of coefficients are determined by the data, so that each has a meaning: how the log odds of a
    class against the first of `classes_` change with a column. `LogisticRegression` has K vectors instead, which
    treats all classes in the same way, and which the prior tells apart. With two classes the two models are the same.

    Parameters and methods are those of `LogisticRegression`. `coef_` has the shape (K - 1, d), `intercept_` (K - 1,).

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco.models.regression import SoftmaxRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> y = np.argmax(X @ [[0, 1, 2], [0, 0, 1]] + rng.gumbel(size=(500, 3)), axis=1)
    >>> model = SoftmaxRegression("normal", seed=1).fit(X, y, progress=False)
    >>> model.coef_.shape, model.predict_proba(X[:4]).shape
    ((2, 2), (4, 3))
    """

    _baseline = True


def _start(theta: np.ndarray, width: int, tau: float | None, dtype: DTypeLike) -> dict[str, np.ndarray]:
    parts = {"coef": theta[:, :width]}
    if theta.shape[1] > width:
        parts["intercept"] = theta[:, width]
    if len(theta) == 1:
        parts = {name: part[0] for name, part in parts.items()}
    if tau is not None:
        parts["tau"] = np.asarray(tau)
    return {name: np.asarray(part, dtype) for name, part in parts.items()}
