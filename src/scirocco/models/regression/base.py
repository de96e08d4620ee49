"""Base class of the regressions: fitting, draws in the user's units, intervals, summary, saving."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco.data.arrays import ArraySource
from scirocco.diagnostics.frames import html_summary
from scirocco.drawing.markup import Html
from scirocco.errors import DivergenceError, InvalidTypeError, InvalidValueError
from scirocco.estimators import Estimator
from scirocco.model import Model
from scirocco.models import fits, sampled
from scirocco.models.fits.conventions import not_fitted
from scirocco.models.fits.intervals import tails_of
from scirocco.models.fits.mixing import warn_if_unmixed
from scirocco.models.inputs import ColumnLike, TableLike, Units, features, targets
from scirocco.models.inputs.formulas import Design
from scirocco.models.regression import given
from scirocco.models.regression.density import KINDS, RESOLUTION, Horseshoe, Laplace, Normal, Prior
from scirocco.models.regression.given import Given
from scirocco.models.regression.inference import THIN, Method, in_own_units
from scirocco.models.view import View
from scirocco.run import Run, sample
from scirocco.run.progress import Callback
from scirocco.samplers import Sampler

_BURN_IN, _SHARE = 50, 0.2
"""Burn-in in units of `thin` steps, or as a share of a run whose length is given."""
_BATCH = 1_000
"""Rows of a batch where `sc.sample` chooses, but for a length in epochs or seconds."""
_MOST_NUMBERS = 4_000_000
"""Rows × draws (× classes) held at once by a prediction."""
_HINT = "it cannot be told from the intercept. Drop it, or keep it with constant_columns='keep'"


class Composed(NamedTuple):
    """What is sampled, and what is known when it is."""

    model: Model
    data: dict[str, np.ndarray]
    method: Method
    extra: dict[str, Any]
    """JSON that a file needs in addition to draws and settings."""
    fitted: dict[str, Any] = {}  # noqa: RUF012
    """Attributes of the fitted model."""
    rows: dict[str, np.ndarray] | None = None
    """The rows themselves, if `data` are sums over them."""


class Regression(fits.Conventions):
    """A linear predictor with posterior draws of its coefficients."""

    prior: str
    scale: float | None
    intercept: bool
    intercept_scale: float | None
    slab: float | None = None
    standardise: bool
    constant_columns: str
    formula: str | None
    sampler: Sampler | None
    estimator: Estimator | None
    num_samples: int | None
    num_burnin: float | None
    thin: int | None
    num_chains: int | None
    num_prediction_draws: int
    seed: int
    run_: Run | None
    n_features_in_: int
    categories_: dict[str, list[object]]
    """The levels of columns of categories; each level but the first is a feature `column[level]`."""
    _kind: fits.Kind
    _renamed: ClassVar[Mapping[str, str]] = {"num_draws": "num_prediction_draws"}
    _priors: ClassVar[tuple[str, ...]] = KINDS
    _from_data: tuple[str, ...] = ()
    """Settings that may be None: they are then taken from the data."""
    _columns: list[str] | None = None
    """The names of the coefficients' columns."""
    _design: Design | None = None
    _draws: dict[str, Any]

    # -- fitting ------------------------------------------------------------------------------------------------------

    @classmethod
    def from_formula(
        cls,
        formula: str,
        frame: Any,
        *,
        weights: str | None = None,
        num_epochs: float | None = None,
        max_seconds: float | None = None,
        store: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
        **settings: Any,
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
            A data frame of pandas, polars or Arrow, a dict of columns, or the path of a data folder. Predictions take
            one with the same columns; the response is not needed there.
        weights
            Name of a column with weights of the rows' log likelihoods.
        num_epochs, max_seconds, store, resume, overwrite, callbacks, progress
            As for `fit`.
        **settings
            Arguments of the constructor.
        """
        return cls(formula=formula, **settings).fit(
            frame,
            weights=weights,
            num_epochs=num_epochs,
            max_seconds=max_seconds,
            store=store,
            resume=resume,
            overwrite=overwrite,
            callbacks=callbacks,
            progress=progress,
        )

    def fit(
        self,
        X: TableLike,
        y: ColumnLike | None = None,
        *,
        offset: ColumnLike | None = None,
        weights: ColumnLike | str | None = None,
        num_epochs: float | None = None,
        max_seconds: float | None = None,
        store: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
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
        num_epochs, max_seconds
            The length of the run, including burn-in, as passes over the rows or as seconds of sampling (without
            set-up and compilation). A fifth of it is burn-in unless `num_burnin` is given, and the draws are
            spread evenly unless `thin` is given. By default the length
            follows from `num_samples`, `num_burnin` and `thin`.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`.
        """
        self._check_settings()
        found = self._given(X, y, offset, weights)
        composed = self._composed(found)
        design = {} if found.columns.design is None else {"design": found.columns.design.written()}
        composed = composed._replace(
            extra={"names": found.table.names, "levels": found.table.levels, **composed.extra, **design}
        )
        options: dict[str, Any] = {"store": store, "resume": resume, "overwrite": overwrite}
        options |= {"callbacks": callbacks, "progress": progress}
        try:
            run = self._sample(composed, num_epochs, max_seconds, options)
        except DivergenceError as error:
            if (better := self._explained(error, found)) is not None:
                raise better from error
            raise
        self._remember(found, run, composed)
        self._settle(self._outside(run.draws, composed.extra))
        return self

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

    def _remember(self, found: Given, run: Run, composed: Composed) -> None:
        """What a fit leaves behind, all at its end: one that fails leaves the model as it was."""
        if composed.rows is not None and run.origin is not None:
            run = dataclasses.replace(run, origin=run.origin._replace(source=ArraySource(composed.rows)))
        self.n_features_in_, self.run_, self.categories_ = (
            found.table.array.shape[1],
            run,
            found.table.levels,
        )
        self._set_names(found.table.names)
        self._design = found.columns.design
        for name, value in composed.fitted.items():
            setattr(self, name, value)

    def _set_names(self, names: Sequence[str] | None) -> None:
        self.__dict__.pop("feature_names_in_", None)
        self._columns = None if names is None else list(names)
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)

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

    def _sample(
        self,
        composed: Composed,
        num_epochs: float | None,
        max_seconds: float | None,
        options: dict[str, Any],
    ) -> Run:
        method, num_rows = composed.method, len(composed.data["y"])
        sampling = functools.partial(
            sample,
            composed.model,
            ArraySource(composed.data, sums_up=composed.rows is not None),  # checked already
            method.start,
            sampler=method.sampler,
            estimator=method.estimator,
            num_chains=self.num_chains,
            seed=self.seed,
            notes=sampled.notes(self._kind, self, composed.extra),
        )
        if method.sampler is None or method.estimator is None:
            wanted = (self.num_samples, self.num_burnin, self.thin)
            sizes: dict[str, int] = {"num_rows": num_rows, "batch_size": _BATCH}
            run = sampled.draw_chosen(sampling, wanted, num_epochs, max_seconds, **sizes, **options)
        else:
            length, plan = sampled.lengths(
                (1_000 if self.num_samples is None else self.num_samples, self.num_burnin, self.thin),
                num_epochs,
                max_seconds,
                num_rows=num_rows,
                batch_size=method.estimator.batching(num_rows).size,
                thin=THIN[self.prior],
                num_burnin=_BURN_IN,
                share=_SHARE,
            )
            run = sampled.draw(sampling, length, plan, **options)
        if run.draws is None or not run.num_draws:
            if run.status == "interrupted":
                raise KeyboardInterrupt
            raise InvalidValueError("the run was stopped during burn-in, before its first draw.")
        warn_if_unmixed(run.draws, type(self).__name__, "Increase `thin` or `num_samples`.")
        return run

    def _outside(self, draws: Mapping[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
        """Draws of a run in the user's units."""
        if "mean" not in extra:  # saved in the user's units
            return {name: np.asarray(leaf) for name, leaf in draws.items()}
        inner, spread = dict(draws), float(extra.get("spread", 1.0))
        if spread != 1.0:
            inner |= {
                name: np.asarray(inner[name], np.float64) * spread
                for name in ("coef", "intercept", "noise")
                if name in inner
            }
        found = in_own_units(inner, Units(np.asarray(extra["mean"]), np.asarray(extra["deviation"])))
        if "centre" in extra and "intercept" in found:
            found["intercept"] = np.asarray(found["intercept"], np.float64) + extra["centre"]
        return found

    def _settle(self, draws: dict[str, Any]) -> None:
        """Keep draws (chain, draw, ...) in the user's units, and some of them for predictions."""
        self._draws = draws
        if self.run_ is not None:
            self.run_ = self._with_units(self.run_)
        flat = {name: np.asarray(leaf).reshape(-1, *leaf.shape[2:]) for name, leaf in draws.items()}
        total = len(flat["coef"])
        chosen = np.unique(
            np.linspace(0, total - 1, min(total, self.num_prediction_draws)).round().astype(int)
        )
        self._few = {name: leaf[chosen].astype(np.float64) for name, leaf in flat.items()}

    def _with_units(self, run: Run) -> Run:
        """A run that knows its draws in the user's units, and the names of their columns and classes."""
        return dataclasses.replace(run, converted=(self._draws, self._coordinates()))

    # -- what a fit gives ---------------------------------------------------------------------------------------------

    def coef_interval_(self, probability: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of central posterior intervals, each with the shape of `coef_`."""
        self._check_fitted()
        tails = tails_of(probability)
        coef = np.asarray(self._draws["coef"], np.float64)
        low, high = np.quantile(coef.reshape(-1, *coef.shape[2:]), tails, axis=0)
        shape = self._coef_shape()
        return low.reshape(shape), high.reshape(shape)

    def _coef_shape(self) -> tuple[int, ...]:
        return (self.n_features_in_,)

    def _predictor_names(self) -> list[object]:
        """Of models with several linear predictors: the classes that they belong to."""
        return []

    def summary(self, probability: float = 0.9, digits: int | None = 4) -> Any:
        """As `Run.summary`: a pandas data frame with one row per parameter, in the user's units, with column names."""
        self._check_fitted()
        require("pandas", "summary()")
        run = self.run_
        if run is None:
            raise InvalidValueError("a loaded model has no run; open it with sc.load(path).summary().")
        return run.summary(probability, digits)

    def _html_of_fit(self) -> Html:
        return html_summary(self.named_draws()) if "_draws" in vars(self) else super()._html_of_fit()

    @property
    def draws_(self) -> dict[str, Any]:
        """Draws in the user's units, leaves (chain, draw, ...): `coef`, `intercept`, ..."""
        self._check_fitted()
        return self._draws

    def named_draws(self) -> dict[str, np.ndarray]:
        """The draws in the user's units as a flat dict: {"coef[age]": (chain, draw), ...}."""
        out, known = {}, self._coordinates()
        for name, leaf in self.draws_.items():
            array = np.asarray(leaf)
            for index in np.ndindex(array.shape[2:]):
                labels = [
                    str(known.get(f"{name}_dim_{axis}", range(k + 1))[k]) for axis, k in enumerate(index)
                ]
                inside = f"[{', '.join(labels)}]" if index else ""
                out[f"{name}{inside}"] = array[(slice(None), slice(None), *index)]
        return out

    def _predictors(
        self, X: TableLike, offset: ColumnLike | None = None
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Rows, and their linear predictors (rows, draws) or (rows, draws, K), some rows at a time."""
        who = type(self).__name__
        if self._design is not None and self.formula is not None:
            if offset is not None:
                raise InvalidValueError(f"the formula {self.formula!r} has the offset: pass none to predict.")
            X, offset = given.for_prediction(self.formula, self._design, X, who)
        like = (self.n_features_in_, None if self._columns is None else tuple(self._columns))
        table = features(X, who, like=like, exact=True, levels=self.categories_).array
        shift = given.per_row(offset, "offset", len(table), who)
        coef = self._few["coef"]
        flat = coef.reshape(-1, coef.shape[-1])
        size = max(1, _MOST_NUMBERS // len(flat))
        for first in range(0, len(table), size):
            here = slice(first, first + size)
            eta = table[here].astype(np.float64) @ flat.T
            eta = eta.reshape(len(eta), *coef.shape[:-1]) + self._few.get("intercept", 0.0)
            yield here, eta if shift is None else eta + shift[here, None]

    def predict_frame(self, X: TableLike, interval: float = 0.9) -> Any:
        """Predictions as a pandas data frame with a row for each row of X, and its index if X is a data frame.

        Columns `mean`, `low` and `high`: what `predict(X, interval=interval)` returns. For classes, `predicted` is the
        most probable one, and each class has the columns `p[class]`, `low[class]` and `high[class]` of its
        probability.
        """
        pandas = require("pandas", "predict_frame()")
        self._check_fitted()
        index = X.index if isinstance(X, pandas.DataFrame) else None
        return pandas.DataFrame(self._frame_columns(X, interval), index)

    def _frame_columns(self, X: TableLike, interval: float) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def _responses(self, X: TableLike, y: ColumnLike | None) -> Any:
        """The responses of rows: those of the formula's column, or y."""
        if self.formula is not None and y is None:
            return given.response_of(self.formula, X, type(self).__name__)
        return y

    def _r_squared(self, predicted: np.ndarray, y: ColumnLike | None) -> float:
        values = targets(y, who=type(self).__name__)
        if len(values) != len(predicted):
            raise InvalidValueError(
                f"X has {len(predicted)} rows and y has {len(values)}: they must be as many."
            )
        total = float(np.sum((values - values.mean()) ** 2))
        left = float(np.sum((values - predicted) ** 2))
        return 1.0 - left / total if total else float(left == 0.0)

    def _check_fitted(self) -> None:
        if "_draws" not in vars(self):
            raise not_fitted(f"this {type(self).__name__} is not fitted yet: call fit(X, y) first.")

    def to_arviz(self) -> Any:
        """Convert the draws in the user's units, with the names of columns and classes; see `Run.to_arviz`."""
        self._check_fitted()
        if self.run_ is not None:
            return self.run_.to_arviz()
        return fits.to_arviz(self._kind, None, self._draws, {}, self._coordinates())

    def _coordinates(self) -> dict[str, Sequence[Any]]:
        """The names of columns and classes, by the axis of `coef` and `intercept` that they label."""
        several = [self._predictor_names()] if self._predictor_names() else []
        named = {"coef": [*several, self._columns or []], "intercept": several}
        return {
            f"{name}_dim_{axis}": labels
            for name, axes in named.items()
            for axis, labels in enumerate(axes)
            if labels and name in self._draws
        }

    def report_view(self, run: Run | None = None, **options: Any) -> View:
        """Contents of a report, see `scirocco.models.view`: coefficients by name."""
        from scirocco.models.regression import view

        return view.view(self, run)

    # -- on disk ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the fitted model: draws as a Zarr group, settings, classes; no pickles and no code.

        `sampler` and `estimator` are not saved: the loaded model has the defaults.
        """
        self._check_fitted()
        extra = {"names": self._columns, "levels": self.categories_, **self._more()}
        if self._design is not None:
            extra["design"] = self._design.written()
        kept = {name: np.asarray(leaf) for name, leaf in self._draws.items()}
        sampled.save(self._kind, self, kept, extra, path, overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a model written by `save`, or by `fit` with `store`."""
        saved = sampled.open_saved(cls._kind, path, cls._renamed)
        model = cls(**saved.settings)
        model.run_ = saved.run if "mean" in saved.extra else None
        model.n_features_in_ = int(saved.run.draws["coef"].shape[-1])
        model._set_names(saved.extra["names"])
        if "design" in saved.extra:
            model._design = Design.read(saved.extra["design"])
        model.categories_ = dict(saved.extra.get("levels", {}))
        model._restore(saved.extra)
        model._settle(model._outside(saved.run.draws, saved.extra))
        return model

    def _more(self) -> dict[str, Any]:
        return {}

    def _restore(self, extra: dict[str, Any]) -> None:
        pass
