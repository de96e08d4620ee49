"""Counts and responses with heavy tails from a linear predictor: a family of responses, sampled by default."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import numpy as np

from scirocco import _checks, transforms
from scirocco.diagnostics.intervals import Predicted
from scirocco.errors import InvalidValueError
from scirocco.estimators import Estimator
from scirocco.model import Model
from scirocco.model.families import FAMILIES
from scirocco.models.inputs import ColumnLike, TableLike, Units, targets
from scirocco.models.regression.approximation import SamplingMethod
from scirocco.models.regression.base import Composed, Regression
from scirocco.models.regression.columns import FitInput
from scirocco.models.regression.density import Likelihood, Simulated
from scirocco.samplers import Sampler

_PARAMETERS = """Parameters
    ----------
    prior
        Of every coefficient: "normal" (standard deviation `scale`) or "laplace" (density ∝ e^(-|β|/scale)).
    scale
        Of the prior: for a column in units of its standard deviation, or with `standardise=False` in units of X.
    intercept, intercept_scale
        Whether there is one, and the standard deviation of its normal prior, around the average response. The prior is
        on the intercept at the means of the columns; it is returned at x = 0, as in scikit-learn.
    standardise
        Put the prior on columns with mean 0 and standard deviation 1; coefficients are returned in the units of X.
    constant_columns
        "refuse" or "keep" columns with a single value.
    formula
        `y ~ a * b + C(g)`: `fit` then takes a data frame, see `from_formula`.
    sampler, estimator
        None: as `sc.sample` chooses, see `run_.preparation["chosen"]`.
    num_samples, num_burnin, thin, num_chains, seed
        As for `sc.sample`, whose defaults apply to None.
    num_prediction_draws
        Draws, spread over all, that predictions average over.

    """
"""The section of their docstrings that all regressions of a family share."""


class FamilyRegression(Regression):
    """A regression of a family; subclasses name it, and share the arguments of the constructor."""

    scale: float
    intercept_scale: float
    _estimator_type = "regressor"
    _priors = ("normal", "laplace")
    _family: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        before, title, after = inspect.cleandoc(cls.__doc__ or "").partition("Attributes\n")
        cls.__doc__ = f"{before}{inspect.cleandoc(_PARAMETERS)}\n\n{title}{after}"

    def __init__(
        self,
        prior: str = "normal",
        *,
        scale: float = 2.5,
        intercept: bool = True,
        intercept_scale: float = 10.0,
        standardise: bool = True,
        constant_columns: str = "refuse",
        formula: str | None = None,
        sampler: Sampler | None = None,
        estimator: Estimator | None = None,
        num_samples: int | None = None,
        num_burnin: float | None = None,
        thin: int | None = None,
        num_chains: int | None = None,
        num_prediction_draws: int = 1000,
        seed: int = 0,
    ):
        self.prior, self.scale = prior, scale
        self.intercept, self.intercept_scale = intercept, intercept_scale
        self.standardise, self.constant_columns, self.formula = standardise, constant_columns, formula
        self.sampler, self.estimator = sampler, estimator
        self.num_samples, self.num_burnin, self.thin = num_samples, num_burnin, thin
        self.num_chains, self.num_prediction_draws, self.seed = num_chains, num_prediction_draws, seed

    def _check_settings(self) -> None:
        if self.prior == "horseshoe":
            raise InvalidValueError(
                f"{type(self).__name__} has the priors 'normal' and 'laplace': a horseshoe needs a sampler of its own, "
                "which LinearRegression and LogisticRegression have. For few large coefficients use prior='laplace'."
            )
        super()._check_settings()

    def _composed(self, inputs: FitInput) -> Composed:
        family = FAMILIES[self._family]
        y = targets(inputs.y, num_rows=inputs.num_rows, who=type(self).__name__, name=inputs.response)
        family.check(y, inputs.response)
        spread = family.spread(y if inputs.offset is None else y - inputs.offset)
        if spread == 0:
            raise InvalidValueError(
                f"the response `{inputs.response}` is {y[0]:g} in all rows: there is nothing to explain."
            )
        units = Units.of(inputs.table.array, self.standardise, inputs.intercept)
        x = units.apply(inputs.table.array)
        centre = family.centre(y, None, inputs.offset, inputs.weight) if inputs.intercept else 0.0
        shift = np.full(len(y), centre) if inputs.offset is None else centre + inputs.offset
        data = {"x": x, "y": (y - shift) / spread if family.continuous else y}
        data["constant"] = family.constant(y) - np.log(spread)
        if not family.continuous and shift.any():
            data["offset"] = shift
        if inputs.weight is not None:
            data["weight"] = inputs.weight
        data = {name: part.astype(x.dtype, copy=False) for name, part in data.items()}
        start = {"coef": np.zeros(x.shape[1], x.dtype)}
        start |= {"intercept": np.zeros((), x.dtype)} if inputs.intercept else {}
        start |= {name: np.asarray(value, x.dtype) for name, value in family.start.items()}
        scale = float(self.scale) if self.standardise else float(self.scale) / spread
        prior = self._make_prior(np.ones((1, x.shape[1])), scale, float(self.intercept_scale))
        changes = {name: transforms.positive if name in family.parameters else None for name in start}
        model = Model(Likelihood(self._family), prior, vectorized=True, transforms=changes)
        told = {**units.written(), "centre": centre, "spread": spread}
        return Composed(model, data, SamplingMethod(self.sampler, self.estimator, start), told)

    @property
    def simulate(self) -> Any:
        """`simulate(params, row, key)`: a new response of a row {x, offset}, for `sc.analysis.predictive_check`."""
        return Simulated(self._family)

    def predict(
        self,
        X: TableLike,
        interval: float | None = None,
        *,
        kind: str = "observation",
        offset: ColumnLike | None = None,
    ) -> Any:
        """Posterior mean of the expected response; with `interval`, a `Predicted` with `mean`, `low` and `high`.

        Parameters
        ----------
        X
            Rows; with a formula, a table with its columns.
        interval
            A probability such as 0.9.
        kind
            What lies between `low` and `high` with that probability: a new "observation", or the expected response
            ("mean").
        offset
            As for `fit`, of these rows; by default 0.
        """
        _checks.choice(kind, "kind", ("observation", "mean"))
        family, rng = FAMILIES[self._family], np.random.default_rng(self.seed)

        def drawn(mean: np.ndarray) -> np.ndarray:
            return mean if kind == "mean" else family.draw(rng, mean, self._few)

        found = self._averages(X, offset, interval, family.mean, drawn)
        return found[0] if interval is None else Predicted(*found)


class PoissonRegression(FamilyRegression):
    r"""Bayesian Poisson regression: counts.

    .. math:: y ∼ \mathrm{Poisson}(μ), \quad \log μ = x^\top β + b + \mathrm{offset}

    The variance is the mean. If that of your counts is larger (`sc.analysis.predictive_check` tells), use
    `NegativeBinomialRegression`. With the logarithm of an exposure as the offset, coefficients are those of rates.

    Attributes
    ----------
    coef_, intercept_
        Posterior means: (d,), and a number.
    run_
        The run, for diagnosis; its parameters are those of standardised columns.

    Examples
    --------
    >>> import scirocco as sc
    >>> model = sc.models.PoissonRegression(formula="calls ~ age + city + offset(log(hours))")

    `model.fit(frame)` draws from the posterior; then `model.summary()` and `model.predict(new_frame, interval=0.9)`.
    """

    _family = "poisson"


class NegativeBinomialRegression(FamilyRegression):
    r"""Bayesian negative binomial regression: counts that vary more than Poisson counts do.

    .. math:: y ∼ \mathrm{NegativeBinomial}, \quad \log μ = x^\top β + b + \mathrm{offset}, \quad
        \mathrm{var}(y) = μ + \mathrm{dispersion} · μ^2

    The prior of the dispersion is Exponential(1); as it goes to 0 the model becomes a `PoissonRegression`.

    Attributes
    ----------
    coef_, intercept_, dispersion_
        Posterior means: (d,), and numbers.
    run_
        The run, for diagnosis; its parameters are those of standardised columns.
    """

    dispersion_: float
    _family = "negative_binomial"


class StudentRegression(FamilyRegression):
    r"""Bayesian robust regression: Student's t instead of normal noise, so that outliers have little influence.

    .. math:: y ∼ t_ν(x^\top β + b, σ)

    The response is sampled in units of 1.48 times its median absolute deviation. In them σ has the prior
    Exponential(1), and coefficients and intercept theirs; the degrees of freedom ν have the prior Gamma(2, 0.1).
    Small ν: heavy tails.

    Attributes
    ----------
    coef_, intercept_, noise_, freedom_
        Posterior means: (d,), and numbers; `noise_` is σ, the scale of t (not its standard deviation).
    run_
        The run, for diagnosis; its parameters are those of standardised columns, and of y in the unit above.
    """

    noise_: float
    freedom_: float
    _family = "student"
