"""`sc.models.GLMM`: generalised linear mixed models from a formula."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidValueError
from scirocco.models import fits, sampled
from scirocco.models.families import FAMILIES
from scirocco.models.fits.mixing import warn_if_unmixed
from scirocco.models.glmm import blocks, crossed, density, problem
from scirocco.models.glmm.problem import Problem, Term, Units
from scirocco.models.glmm.results import Results
from scirocco.models.inputs.formulas import Design, GroupTerm, parse
from scirocco.run import Run, sample
from scirocco.run.progress import Callback

_KIND = fits.Kind("GLMM", "a mixed model", "glmm")
_BATCH = 100
"""Groups of a batch where a length in epochs or seconds is given; otherwise the batch size is chosen."""
_MOST_SAVED = 50_000_000
"""Numbers in the draws of effects that are saved with a model."""


class GLMM(Results, fits.Conventions):
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
        *,
        num_epochs: float | None = None,
        max_seconds: float | None = None,
        store: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
    ) -> GLMM:
        """Draw from the posterior given a table with named columns.

        Parameters
        ----------
        frame
            A data frame of pandas, polars or Arrow, a dict of columns, or the path of a data folder; the response is
            one of its columns.
        y
            Not used: the formula names the response.
        num_epochs, max_seconds
            The length of the run as passes over the groups or as seconds of sampling; by default as long as
            `num_samples`, `num_burnin` and `thin` say.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`.
        """
        if y is not None:
            raise InvalidValueError(
                "the formula names the response, a column of the table: call fit(frame) without y."
            )
        _checks.choice(self.family, "family", tuple(FAMILIES))
        _checks.choice(self.missing, "missing", ("error", "drop"))
        _checks.positive_int(self.num_prediction_draws, "num_prediction_draws")
        found = problem.compose(
            self.formula, self.family, frame, self.weights, self.missing, parse(self.formula)
        )
        options: dict[str, Any] = {
            "store": store,
            "resume": resume,
            "overwrite": overwrite,
            "progress": progress,
            "callbacks": callbacks,
        }
        draw = self._by_blocks if found.by_blocks else self._integrated
        run = draw(found, num_epochs, max_seconds, options)
        if run.draws is None or not run.num_draws:
            raise InvalidValueError(f"the run was {run.status} before its first draw.")
        self._settle(run, found.design, found.terms, found.factors, found.units, found.num_rows)
        self._fitted_to = (found.model, found.source)
        return self

    def _integrated(
        self, found: Problem, num_epochs: float | None, max_seconds: float | None, options: dict[str, Any]
    ) -> Run:
        """The effects of one factor are integrated out: `sc.sample`."""
        sampling = functools.partial(
            sample,
            found.model,
            found.source,
            found.start,
            num_chains=self.num_chains,
            seed=self.seed,
            notes=sampled.notes(_KIND, self, _written(found)),
        )
        return sampled.draw_chosen(
            sampling,
            (self.num_samples, self.num_burnin, self.thin),
            num_epochs,
            max_seconds,
            num_rows=found.source.num_rows,
            batch_size=_BATCH,
            **options,
        )

    def _by_blocks(
        self, found: Problem, num_epochs: float | None, max_seconds: float | None, options: dict[str, Any]
    ) -> Run:
        """The effects of all factors are drawn in turn: `crossed`."""
        default = crossed.DEFAULTS
        num_samples = default["num_samples"] if self.num_samples is None else self.num_samples
        length, wanted = sampled.lengths(
            (num_samples, self.num_burnin, self.thin),
            num_epochs,
            max_seconds,
            num_rows=1,  # a sweep is a pass
            batch_size=1,
            thin=default["thin"],
            num_burnin=default["num_burnin"],
            share=0.3,
        )
        num_chains = default["num_chains"] if self.num_chains is None else self.num_chains
        num_chains = _checks.positive_int(num_chains, "num_chains")
        seed = _checks.positive_int(self.seed, "seed", minimum=0)
        counts = [len(term.levels) for term in found.terms]
        layout, data = crossed.arranged(
            (self.family, found.model, found.factors),
            found.source.arrays,
            counts,
            [term.intercept for term in found.terms],
        )
        fit = fits.Fit(
            _KIND,
            {"sampler": crossed.METHOD, "formula": self.formula, "family": self.family},
            found.source.fingerprint,
            found.num_rows,
            crossed.spec_of(layout, found.start),
            lambda: crossed.chains_of(layout, data, found.start, seed, num_chains),
            num_chains,
            wanted[0],
            seed,
            length,
            wanted[1],
            wanted[2],
            first_steps=blocks.TUNED,
            after_clock=lambda chains: max(0, blocks.TUNED - chains[0].step),
            capacity=8,
        )
        if options["store"] is None:
            fit.warn_if_large("Pass a `store`, or fewer `num_samples`.")
        if max_seconds is not None:  # compiles: the time limit is for sampling
            crossed.chains_of(layout, data, found.start, seed, 1)[0].advance(1)
        extra = sampled.with_settings(self, _written(found))
        run = fits.run_fit(fit, **options, extra=extra)
        if run.draws is not None:
            globals_ = {name: leaf for name, leaf in run.draws.items() if not name.startswith("effects_")}
            warn_if_unmixed(globals_, "GLMM", "Pass more `num_samples` and `num_burnin`.")
        return dataclasses.replace(run, preparation={"chosen": crossed.words(layout, counts)})

    # -- on disk ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the fitted model: draws, formula, levels, and draws of the levels' effects; no pickles and no code."""
        self._check_fitted()
        arrays = {}
        for number, term in enumerate(self._terms):
            size = len(term.levels) * len(term.design.names) * self.num_prediction_draws
            if size <= _MOST_SAVED:
                arrays[f"effects_{number}"] = self._effects(number, None).astype(np.float32)
        draws = {name: np.asarray(leaf) for name, leaf in self.run_.draws.items()}
        extra = _described(self._design, self._terms, self._factors, self._units, self._num_rows)
        sampled.save(_KIND, self, draws, extra, path, overwrite, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GLMM:
        """Load a model written by `save`, or by `fit` with `store`.

        One that was written by `fit` has no effects of levels: fit it again with `resume=True`, which makes no steps.
        """
        saved = sampled.open_saved(_KIND, path, cls._renamed)
        model, extra = cls(**saved.settings), saved.extra
        terms = tuple(
            Term(
                GroupTerm(*one["term"]),
                Design.read(one["design"]),
                problem.as_labels(one["levels"]),
                np.asarray(one["scale"]),
            )
            for one in extra["terms"]
        )
        mean, deviation, centre, spread = extra["units"]
        units = Units(np.asarray(mean), np.asarray(deviation), centre, spread)
        model._settle(
            saved.run,
            Design.read(extra["design"]),
            terms,
            tuple(density.Factor(*one[:3]) for one in extra["factors"]),
            units,
            extra["num_rows"],
        )
        model._saved_effects = {
            int(name.removeprefix("effects_")): array
            for name, array in saved.arrays.items()
            if name.startswith("effects_")
        }
        return model


def _written(found: Problem) -> dict[str, Any]:
    return _described(found.design, found.terms, found.factors, found.units, found.num_rows)


def _described(
    design: Design,
    terms: tuple[Term, ...],
    factors: tuple[density.Factor, ...],
    units: Units,
    num_rows: int,
) -> dict[str, Any]:
    """JSON of everything but draws and settings."""
    described = [
        {
            "term": list(term.term),
            "design": term.design.written(),
            "levels": term.levels.tolist(),
            "scale": term.scale.tolist(),
        }
        for term in terms
    ]
    numbers = [units.mean.tolist(), units.deviation.tolist(), units.centre, units.spread]
    return {
        "design": design.written(),
        "terms": described,
        "factors": [dataclasses.astuple(factor) for factor in factors],
        "units": numbers,
        "num_rows": num_rows,
    }
