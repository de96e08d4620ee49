"""Base class of the regressions: settings and fitting."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self, Unpack

import numpy as np

from scirocco import _checks
from scirocco.data.arrays import ArraySource
from scirocco.errors import DivergenceError, InvalidTypeError, InvalidValueError
from scirocco.model import Model
from scirocco.models._core.program import FitOptions, Sampled
from scirocco.models.inputs import ColumnLike, TableLike, features
from scirocco.models.regression import given
from scirocco.models.regression.density import KINDS, RESOLUTION, Horseshoe, Laplace, Normal, Prior
from scirocco.models.regression.given import Given
from scirocco.models.regression.inference import THIN, Method
from scirocco.models.regression.results import Results
from scirocco.run import Run, sample

_NUM_SAMPLES = 1_000
"""Default number of draws of a chain, of regressions that have their own method."""
_BURN_IN, _SHARE = 50, 0.2
"""Default burn-in, in units of `thin` steps, or as a share of a run whose length is given."""
_BATCH = 1_000
"""Rows of a batch for a length in steps, epochs or seconds, in models that `sc.sample` chooses a method for."""
_HINT = "it cannot be told from the intercept. Drop it, or keep it with constant_columns='keep'"


class Composed(NamedTuple):
    """What is sampled, and what is known when it is."""

    model: Model
    data: dict[str, np.ndarray]
    method: Method
    told: dict[str, Any]
    """JSON that results need in addition to the draws."""
    rows: dict[str, np.ndarray] | None = None
    """The rows themselves, if `data` are sums over them; {}: they are too many to keep."""


class Regression(Results):
    """A linear predictor with posterior draws of its coefficients."""

    _priors: ClassVar[tuple[str, ...]] = KINDS
    _from_data: ClassVar[tuple[str, ...]] = ()
    """Settings that may be None: they are then taken from the data."""

    @classmethod
    def from_formula(
        cls, formula: str, frame: Any, *, weights: str | None = None, **settings_and_options: Any
    ) -> Self:
        """Fit to the columns that a formula makes of a data frame: the same as `cls(formula=...).fit(frame)`.

        Parameters
        ----------
        formula
            `y ~ a * b + bs(x) + C(g) + offset(log(time))`: a response and terms, as in R. `a:b` is a product, `a * b`
            is `a + b + a:b`; `bs(x, df=5)`, `cr(x, df=5)` and `poly(x, 2)` are splines and polynomials; `C(g)` and
            columns of text are categories, whose levels are remembered; `log`, `exp`, `sqrt`, `center`, `scale` and
            `I(x**2)` are functions; `0 +` leaves the intercept out; `offset(x)` is added to the linear predictor.
        frame
            A data frame of pandas, polars or Arrow, a dict of columns, or the path of a table or data folder.
            Predictions take one with the same columns; the response is not needed there.
        weights
            Name of a column with weights of the rows' log likelihoods.
        **settings_and_options
            Arguments of the constructor, and of `fit`: num_steps, num_epochs, max_seconds, store, resume, overwrite,
            callbacks, progress.
        """
        model: Any = cls
        settings = dict(settings_and_options)
        options = {name: settings.pop(name) for name in FitOptions.__annotations__ if name in settings}
        return model(formula=formula, **settings).fit(frame, weights=weights, **options)

    def fit(
        self,
        X: TableLike,
        y: ColumnLike | None = None,
        *,
        offset: ColumnLike | None = None,
        weights: ColumnLike | str | None = None,
        **options: Unpack[FitOptions],
    ) -> Self:
        """Draw coefficients given rows and their responses.

        Parameters
        ----------
        X
            Numbers, a row for each observation: NumPy, pandas, polars, SciPy sparse (made dense). In a data frame,
            columns of categories get a feature `column[level]` of 0 and 1 for each level but the first. With a
            `formula`: a table with the columns that it names.
        y
            One response per row: labels of any kind that can be sorted, numbers, or counts. Not with a formula.
        offset
            Numbers that are added to the linear predictor, such as the logarithm of an exposure. Not with a formula.
        weights
            Numbers that the log likelihoods of rows are multiplied by: a row with the weight 2 counts as two. With a
            formula, the name of their column.
        num_steps, num_epochs, max_seconds
            The length of the run, including burn-in, as steps, as passes over the rows or as seconds of sampling
            (without set-up and compilation); at most one of them. A fifth of it is burn-in unless `num_burnin` is
            given, and the draws are spread evenly unless `thin` is given. By default the length follows from
            `num_samples`, `num_burnin` and `thin`.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`.
        """
        self._check_settings()
        rows = self._given(X, y, offset, weights)
        program = self._program(rows, self._composed(rows))
        asked = None
        if not program.chosen:
            lengths = {"num_samples": _NUM_SAMPLES, "thin": THIN[self.prior], "num_burnin": _BURN_IN}
            asked = self._asked(options, **lengths, share=_SHARE)
        try:
            return self._run(program, options, asked)
        except DivergenceError as error:
            if (better := self._explained(error, rows)) is not None:
                raise better from error
            raise

    def _program(self, rows: Given, composed: Composed) -> Sampled:
        """The call of `sc.sample`."""
        (sampler, estimator, start), design = composed.method, rows.columns.design
        count = len(composed.data["y"])
        source = ArraySource(composed.data, sums_up=composed.rows is not None)  # checked already
        return Sampled(
            partial(sample, composed.model, source, start, sampler=sampler, estimator=estimator),
            num_rows=count,
            batch_size=_BATCH if estimator is None else estimator.batching(count).size,
            told={
                "names": rows.table.names,
                "levels": rows.table.levels,
                "num_rows": rows.num_rows,
                "design": None if design is None else design.written(),
                **composed.told,
            },
            chosen=sampler is None or estimator is None,
            finish=partial(_with_rows, composed.rows) if composed.rows else lambda run: run,
        )

    def _given(self, X: TableLike, y: Any, offset: Any, weights: Any) -> Given:
        """The checked input of a fit; features are as precise as they were given."""
        name = type(self).__name__
        if self.formula is None:
            columns = given.plain(X, y, offset, weights, self.intercept, name)
        else:
            columns = given.from_formula(self.formula, X, y, offset, weights, self.intercept, name)
        table = features(
            columns.X,
            name,
            constant=self.constant_columns if columns.intercept else "keep",
            constant_hint=_HINT,
            exact=True,
            wild=not self.standardise,
            levels={},
        )
        count = len(table.array)
        if count < 2:
            raise InvalidValueError(f"{name} requires at least 2 rows, got n_samples = 1.")
        columns = columns._replace(
            X=None,
            offset=given.per_row(columns.offset, "offset", count, name),
            weight=given.per_row(columns.weight, "weights", count, name),
        )
        return Given(table, columns)

    def _composed(self, found: Given) -> Composed:
        raise NotImplementedError

    def _explained(self, error: DivergenceError, found: Given) -> DivergenceError | None:
        """A better explanation of a failed run, if there is one."""
        return None

    def _check_settings(self) -> None:
        name = type(self).__name__
        _checks.choice(self.prior, "prior", self._priors)
        for setting, value in (("scale", self.scale), ("intercept_scale", self.intercept_scale)):
            if value is not None or setting not in self._from_data:
                _checks.positive(value, setting, name)
        for setting, flag in (("intercept", self.intercept), ("standardise", self.standardise)):
            if not isinstance(flag, (bool, np.bool_)):
                raise InvalidTypeError(f"`{setting}` of {name} must be True or False, got {flag!r}.")
        if self.slab is not None:
            _checks.positive(self.slab, "slab", name)
            if self.prior != "horseshoe":
                raise InvalidValueError(
                    f"`slab` of {name} requires prior='horseshoe', got prior={self.prior!r}."
                )
        _checks.positive_int(self.num_prediction_draws, "num_prediction_draws")

    def _make_prior(
        self, information: np.ndarray, scale: float, intercept_scale: float, noise_scale: float | None = None
    ) -> Prior:
        """The prior; a horseshoe's resolution comes from the likelihood's own precisions (K, d)."""
        if self.prior == "normal":
            return Normal(scale, intercept_scale, noise_scale)
        if self.prior == "laplace":
            return Laplace(scale, intercept_scale, noise_scale)
        # powers of two, so that tables that are alike share compiled programs
        most = information.max(axis=0)
        known = most > 1e-12 / scale**2  # not of a column of zeros that was kept: the prior has to do
        widths = RESOLUTION / np.sqrt(np.where(known, most, scale**-2.0))
        resolution = tuple(float(2.0 ** np.round(np.log2(width))) for width in widths)
        slab = None if self.slab is None else float(self.slab)
        return Horseshoe(scale, intercept_scale, noise_scale, resolution, slab)


def _with_rows(rows: dict[str, np.ndarray], run: Run) -> Run:
    """A run over sums of rows, with the rows themselves as its data."""
    if run.origin is None:
        return run
    return dataclasses.replace(run, origin=run.origin._replace(source=ArraySource(rows)))
