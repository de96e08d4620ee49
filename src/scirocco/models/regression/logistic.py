"""`sc.models.LogisticRegression`: classes from a linear predictor, with posterior draws."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from scirocco import _checks, transforms
from scirocco.estimators import Estimator
from scirocco.model import Model
from scirocco.models import fits, sampled
from scirocco.models.fits.intervals import Predicted, tails_of
from scirocco.models.inputs import ColumnLike, TableLike, Units, labels
from scirocco.models.regression import density
from scirocco.models.regression.approximation import Rows, approximate, probabilities, survey
from scirocco.models.regression.base import Regression
from scirocco.models.regression.density import Prior
from scirocco.models.regression.inference import (
    Coordinates,
    Method,
    in_order,
    large_method,
    method,
)
from scirocco.run.metric import DENSE_LIMIT
from scirocco.run.progress import Callback
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
        Horseshoe: the standard deviation of coefficients that are not shrunk; None: unbounded.
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
    coef_: np.ndarray
    intercept_: np.ndarray
    _kind = fits.Kind("LogisticRegression", "a logistic regression", "logistic")
    _estimator_type = "classifier"

    @fits.renamed_arguments(Regression._renamed)
    def __init__(
        self,
        prior: str = "laplace",
        *,
        scale: float = 1.0,
        slab: float | None = None,
        intercept: bool = True,
        intercept_scale: float = 10.0,
        standardise: bool = False,
        classes: Sequence[object] | None = None,
        constant_columns: str = "refuse",
        sampler: Sampler | None = None,
        estimator: Estimator | None = None,
        num_samples: int = 1000,
        num_burnin: float | None = None,
        thin: int | None = None,
        num_chains: int = 4,
        num_prediction_draws: int = 1000,
        seed: int = 0,
    ):
        self.prior, self.scale, self.slab = prior, scale, slab
        self.intercept, self.intercept_scale = intercept, intercept_scale
        self.standardise, self.classes, self.constant_columns = standardise, classes, constant_columns
        self.sampler, self.estimator = sampler, estimator
        self.num_samples, self.num_burnin, self.thin = num_samples, num_burnin, thin
        self.num_chains, self.num_prediction_draws, self.seed = num_chains, num_prediction_draws, seed

    def fit(
        self,
        X: TableLike,
        y: ColumnLike | None = None,
        *,
        num_epochs: float | None = None,
        max_seconds: float | None = None,
        store: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
    ) -> LogisticRegression:
        """Draw coefficients given rows and their classes.

        Parameters
        ----------
        X
            Numbers, a row for each observation: NumPy, pandas, polars, SciPy sparse (made dense). In a data frame,
            columns of categories get a feature `column[level]` of 0 and 1 for each level but the first.
        y
            Labels of any kind that can be sorted.
        num_epochs, max_seconds
            The length of the run, including burn-in, as passes over the rows or as seconds of sampling (without
            set-up and compilation). A fifth of it is burn-in unless `num_burnin` is given, and the draws are
            spread evenly unless `thin` is given. By default the length
            follows from `num_samples`, `num_burnin` and `thin`.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`.
        """
        table = self._table(X)
        name, num_rows = type(self).__name__, len(table.array)
        codes, classes = labels(y, self.classes, num_rows=num_rows, who=name, sort=True)
        units = Units.of(table.array, self.standardise, self.intercept)
        x = units.apply(table.array)
        model, chosen = self._composed(x, codes, len(classes))
        data = {"x": x, "y": codes.astype(x.dtype) if len(classes) == 2 else codes}
        options: dict[str, Any] = {"store": store, "resume": resume, "overwrite": overwrite}
        options |= {"callbacks": callbacks, "progress": progress}
        extra = {
            "names": table.names,
            "levels": table.levels,
            "num_rows": len(table.array),
            **units.written(),
            **sampled.write_labels(classes),
        }
        run = self._sample(model, data, chosen, extra, num_epochs, max_seconds, options)
        self._remember(table, run, classes_=classes)
        self._settle(self._outside(run.draws, extra))
        return self

    def _composed(self, x: np.ndarray, codes: np.ndarray, num_classes: int) -> tuple[Model, Method]:
        """Model, sampler, estimator and start."""
        binary = num_classes == 2
        shape = (1 if binary else num_classes, x.shape[1] + self.intercept)
        if shape[0] * shape[1] > DENSE_LIMIT:
            prior = self._own_prior(np.ones((1, x.shape[1])))
            sampler, estimator = large_method(self.prior, len(x), self.sampler, self.estimator)
            start = self._start(np.zeros(shape), None, x.dtype)
            return self._model(prior, binary), Method(sampler, estimator, start)
        rng = np.random.default_rng(_checks.positive_int(self.seed, "seed", minimum=0))
        rows = Rows(x, codes, num_classes, self.intercept)
        made: list[Prior] = []

        def make(information: np.ndarray) -> Prior:
            made.append(self._own_prior(information))
            return made[0]

        found = approximate(rows, make, rng)
        seen = survey(rows, found, rng)
        more = [] if found.working.tau is None else [found.working.log_tau_sd]
        start = self._start(found.centre, found.working.tau, x.dtype)
        ordered, noise = in_order(seen.factor, seen.noise, shape, self.intercept, more)
        coordinates = Coordinates(start, ordered, seen.curvature, noise)
        chosen = method(coordinates, self.prior, len(x), self.sampler, self.estimator)
        return self._model(made[0], binary), chosen

    def _own_prior(self, information: np.ndarray) -> Prior:
        return self._make_prior(information, float(self.scale), float(self.intercept_scale))

    def _model(self, prior: Prior, binary: bool) -> Model:
        constrained = {"coef": None} | ({"intercept": None} if self.intercept else {})
        changes = {**constrained, "tau": transforms.positive} if self.prior == "horseshoe" else None
        likelihood = density.binary if binary else density.multinomial
        return Model(likelihood, prior, vectorized=True, transforms=changes)

    def _start(self, theta: np.ndarray, tau: float | None, dtype: DTypeLike) -> dict[str, np.ndarray]:
        cut = theta.shape[1] - self.intercept
        parts = {"coef": theta[:, :cut]} | ({"intercept": theta[:, cut]} if self.intercept else {})
        if len(theta) == 1:
            parts = {name: part[0] for name, part in parts.items()}
        if tau is not None:
            parts["tau"] = np.asarray(tau)
        return {name: np.asarray(part, dtype) for name, part in parts.items()}

    def _settle(self, draws: dict[str, Any]) -> None:
        super()._settle(draws)
        coef = np.asarray(draws["coef"], np.float64).mean(axis=(0, 1))
        self.coef_ = coef.reshape(self._coef_shape())
        intercept = np.asarray(draws.get("intercept", np.zeros((1, 1))), np.float64).mean(axis=(0, 1))
        self.intercept_ = np.broadcast_to(intercept.reshape(-1), (len(self.coef_),)).copy()

    def _coef_shape(self) -> tuple[int, ...]:
        number = 1 if len(self.classes_) == 2 else len(self.classes_)
        return (number, self.n_features_in_)

    def _more(self) -> dict[str, Any]:
        return sampled.write_labels(self.classes_)

    def _restore(self, extra: dict[str, Any]) -> None:
        self.classes_ = sampled.read_labels(extra)

    # -- predictions --------------------------------------------------------------------------------------------------

    def predict_proba(self, X: TableLike, interval: float | None = None) -> Any:
        """Posterior mean of every class's probability, (rows, classes); with `interval`, a `Predicted`.

        Parameters
        ----------
        X
            Rows.
        interval
            A probability such as 0.9: the result then has `mean`, `low` and `high`, a central interval of the class
            probabilities given the data (of the probability, not of the outcome, which is one class or another).
        """
        self._check_fitted()
        tails = None if interval is None else tails_of(interval)
        means, ends = [], []
        for _, eta in self._predictors(X):
            each = probabilities(eta, len(self.classes_) > 2)
            means.append(each.mean(axis=1))
            if tails is not None:
                ends.append(np.quantile(each, tails, axis=1))
        mean = np.concatenate(means)
        if tails is None:
            return mean if mean.ndim == 2 else np.stack([1.0 - mean, mean], axis=1)
        low, high = np.concatenate(ends, axis=1)
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

    def score(self, X: TableLike, y: ColumnLike) -> float:
        """Accuracy: the fraction of rows with the right predicted class; an error for labels not in `classes_`."""
        predicted = np.argmax(self.predict_proba(X), axis=1)
        codes, _ = labels(y, self.classes_, num_rows=len(predicted), who=type(self).__name__)
        return float(np.mean(codes == predicted))
