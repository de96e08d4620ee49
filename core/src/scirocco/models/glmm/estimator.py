"""`sc.models.GLMM`: generalised linear mixed models from a formula."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

from scirocco import _checks
from scirocco.errors import InvalidValueError
from scirocco.model.families import FAMILIES
from scirocco.models._core import files
from scirocco.models._core.program import FitOptions, OwnChains, Sampled
from scirocco.models.glmm import blocks, crossed, problem
from scirocco.models.glmm.problem import Problem
from scirocco.models.glmm.results import Results
from scirocco.models.inputs.formulas import parse
from scirocco.run import sample

_BATCH = 100
"""Groups of a batch where a length is given; otherwise the batch size is chosen."""


class GLMM(Results):
    """A generalised linear mixed model: coefficients, and effects that differ between the levels of factors.

    The effects of one factor are integrated out (`sc.HierarchicalModel`): chains move the coefficients, deviations and
    correlations, and the effects of any level follow from their draws. With several factors, or with more than four
    effects per level, a blocked Gibbs sampler draws all effects: exact, with all rows in every sweep. Few levels with
    many rows that clearly differ are parameters of the chains: of a factor with at most 300 levels and more than 1,000
    rows for each; and, in more than 300,000 rows, up to 100 levels of all factors but the largest, which is integrated
    out. What was chosen is in `run_.preparation["chosen"]`.

    Parameters
    ----------
    formula
        `y ~ x1 + x2 + (1 + x1 | shop)`: a response, fixed effects, and group terms. `a * b`, `a:b`, `C(x)`, `bs(x)`,
        `poly(x, 2)`, `log(x)` and `0 +` are as in R; `offset(x)` is added to the linear predictor; columns of text are
        categories. `(1 + x | g)` has correlated effects, `(1 + x || g)` uncorrelated ones, `(1 | a/b)` nested
        and `(1 | a) + (1 | b)` crossed factors. For binomial responses: `proportion(successes, trials) ~ ...`.
    family
        "normal", "student" (identity link), "bernoulli", "binomial" (logit), "poisson" or "negative_binomial" (log; the
        variance is μ + dispersion · μ²).
    weights
        Name of a column with weights of the rows' log likelihoods.
    missing
        "error": rows with missing values raise an error; "drop": they are left out, with a warning.
    num_samples, num_burnin, thin, num_chains, seed
        As for `sc.sample`, whose defaults apply to None. Of the blocked Gibbs sampler: 4 chains of 250 draws, one in 4
        sweeps, after 300 sweeps (at least 60).
    num_prediction_draws
        Draws used for predictions and effects of levels.

    Attributes
    ----------
    run_
        The run, in internal units.
    draws_
        Draws in the user's units: `coef`, `sd_shop`, `correlation_shop`, `sigma`, `dispersion`, `freedom`.

    Notes
    -----
    Priors, for columns x and, if it is continuous, a response y in units of their standard deviations (of a Student
    response, 1.48 median absolute deviations): coefficients Normal(0, 2.5), the intercept around the response's
    average; deviations of effects half-Normal(2.5), for a column in units of its root mean square; correlations uniform
    (LKJ with η = 1); sigma Exponential(1); dispersion Exponential(1); degrees of freedom Gamma(2, 0.1).

    Examples
    --------
    >>> import scirocco as sc
    >>> model = sc.models.GLMM("visits ~ price + (1 + price | shop)", family="poisson")

    `model.fit(frame)` draws from the posterior; then `model.summary()`, `model.fixed_effects()`,
    `model.random_effects(levels=["north"])` and `model.predict(new_frame, interval=0.9)`.
    """

    _estimator_type = "regressor"

    def __init__(
        self,
        formula: str,
        family: str = "normal",
        *,
        weights: str | None = None,
        missing: str = "error",
        num_samples: int | None = None,
        num_burnin: int | None = None,
        thin: int | None = None,
        num_chains: int | None = None,
        num_prediction_draws: int = 200,
        seed: int = 0,
    ):
        self.formula, self.family, self.weights, self.missing = formula, family, weights, missing
        self.num_samples, self.num_burnin, self.thin, self.num_chains = (
            num_samples,
            num_burnin,
            thin,
            num_chains,
        )
        self.num_prediction_draws, self.seed = num_prediction_draws, seed

    def fit(
        self,
        frame: Any,
        y: None = None,
        **options: Unpack[FitOptions],
    ) -> GLMM:
        """Draw from the posterior given a table with named columns.

        Parameters
        ----------
        frame
            A data frame of pandas, polars or Arrow, a dict of columns, or the path of a table or data folder; the
            response is one of its columns.
        y
            Not used: the formula names the response.
        num_steps, num_epochs, max_seconds
            The length of the run as steps, as passes over the groups or as seconds of sampling; at most one of them. By
            default as long as `num_samples`, `num_burnin` and `thin` say.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`. A store also has draws of the effects of levels, as a saved model has.
        """
        if y is not None:
            raise InvalidValueError(
                "the formula names the response, a column of the table: call fit(frame) without y."
            )
        families = tuple(name for name, family in FAMILIES.items() if not family.has_classes)
        _checks.choice(self.family, "family", families)
        _checks.choice(self.missing, "missing", ("error", "drop"))
        _checks.positive_int(self.num_prediction_draws, "num_prediction_draws")
        composed = problem.compose(
            self.formula, self.family, frame, self.weights, self.missing, parse(self.formula)
        )
        if composed.by_blocks:
            self._run(self._by_blocks(composed), options, self._asked(options, **crossed.DEFAULTS))
        else:
            sampling = partial(sample, composed.model, composed.source, composed.start)
            rows, told = composed.source.num_rows, composed.written()
            self._run(Sampled(sampling, rows, _BATCH, told, chosen=True), options)
        self._fitted_to = (composed.model, composed.source)
        if self.run_.path is not None and not files.has_arrays(self.run_.path):
            files.add_arrays(self.run_, self._written_arrays())
        return self

    def _by_blocks(self, composed: Problem) -> OwnChains:
        """The effects of all factors are drawn in turn: `crossed`."""
        counts = [len(term.levels) for term in composed.terms]
        layout, data = crossed.arranged(
            (self.family, composed.model, composed.factors),
            composed.source.arrays,
            counts,
            [term.intercept for term in composed.terms],
        )
        return OwnChains(
            crossed.words(layout, counts),
            {"sampler": crossed.METHOD, "formula": self.formula, "family": self.family},
            composed.source.fingerprint,
            composed.num_rows,
            crossed.spec_of(layout, composed.start),
            lambda number: crossed.GibbsChain(layout, data, composed.start, self.seed, number),
            composed.written(),
            first_steps=blocks.TUNED,
            after_clock=lambda chains: max(0, blocks.TUNED - chains[0].step),
        )
