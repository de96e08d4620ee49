"""What all regressions have: settings, fitting, and what follows from the draws in the user's units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self, Unpack

import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco.data.arrays import ArraySource
from scirocco.diagnostics.intervals import central
from scirocco.drawing.charts import forest
from scirocco.drawing.markup import Section, join, number, paragraph, search, sortable, tag
from scirocco.errors import DivergenceError, InvalidValueError
from scirocco.estimators import Estimator
from scirocco.model import Model
from scirocco.model.families import PARAMETERS
from scirocco.models._core.model import FittedModel
from scirocco.models._core.program import FitOptions, Sampled
from scirocco.models._core.view import Seen, View, size_of
from scirocco.models.inputs import ColumnLike, TableLike, features, targets
from scirocco.models.inputs.formulas import Design
from scirocco.models.regression.approximation import THIN, SamplingMethod, in_own_units
from scirocco.models.regression.columns import FitInput, for_prediction, from_formula, per_row, plain, response_of
from scirocco.models.regression.density import KINDS, RESOLUTION, HorseshoePrior, LaplacePrior, NormalPrior, Prior
from scirocco.run import Run, sample
from scirocco.samplers import Sampler

_NUM_SAMPLES = 1_000
"""Default number of draws of a chain, of regressions that have their own method."""
_BURN_IN, _SHARE = 50, 0.2
"""Default burn-in, in units of `thin` steps, or as a share of a run whose length is given."""
_BATCH = 1_000
"""Rows of a batch for a length in steps, epochs or seconds, in models that `sc.sample` chooses a method for."""
_HINT = "it cannot be told from the intercept. Drop it, or keep it with constant_columns='keep'"


_MOST_NUMBERS = 4_000_000
"""Rows × draws (× classes) held at once by a prediction."""
_FOREST = 40
"""Coefficients in a chart."""
_HEADS = ["coefficient", "mean", "sd", "5 %", "95 %", "|mean| / sd", "P(sign)"]
"""Columns of the table of coefficients in a report."""


class Composed(NamedTuple):
    """What is sampled, and what is known when it is."""

    model: Model
    data: dict[str, np.ndarray]
    method: SamplingMethod
    told: dict[str, Any]
    """JSON that results need in addition to the draws."""
    rows: dict[str, np.ndarray] | None = None
    """The rows themselves, if `data` are sums over them; {}: they are too many to keep."""


class Regression(FittedModel):
    """A linear predictor with posterior draws of its coefficients."""

    _priors: ClassVar[tuple[str, ...]] = KINDS
    _from_data: ClassVar[tuple[str, ...]] = ()
    """Settings that may be None: they are then taken from the data."""
    ADVICE = "Increase `thin` or `num_samples`."
    CODE = ("sampler", "estimator")
    prior: str
    scale: float | None
    intercept: bool
    intercept_scale: float | None
    standardise: bool
    constant_columns: str
    formula: str | None
    sampler: Sampler | None
    estimator: Estimator | None
    num_prediction_draws: int
    coef_: np.ndarray
    intercept_: Any
    n_features_in_: int
    categories_: dict[str, list[object]]
    """The levels of columns of categories; each level but the first is a feature `column[level]`."""
    _columns: list[str] | None
    """The names of the coefficients' columns."""
    _design: Design | None
    _few: dict[str, np.ndarray]
    """Draws for predictions, (draw, ...), in double precision."""

    @classmethod
    def from_formula(cls, formula: str, frame: Any, *, weights: str | None = None, **settings_and_options: Any) -> Self:
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
        inputs = self._given(X, y, offset, weights)
        program = self._program(inputs, self._composed(inputs))
        asked = None
        if not program.chosen:
            lengths = {"num_samples": _NUM_SAMPLES, "thin": THIN[self.prior], "num_burnin": _BURN_IN}
            asked = self._asked(options, **lengths, share=_SHARE)
        try:
            return self._run(program, options, asked)
        except DivergenceError as error:
            if (better := self._explained(error, inputs)) is not None:
                raise better from error
            raise

    def _program(self, inputs: FitInput, composed: Composed) -> Sampled:
        """The call of `sc.sample`."""

        def with_rows(run: Run) -> Run:
            """A run over sums of rows, with the rows themselves as its data."""
            source = ArraySource(composed.rows or {})
            return run if run.origin is None else replace(run, origin=run.origin._replace(source=source))

        (sampler, estimator, start), design = composed.method, inputs.design
        count = len(composed.data["y"])
        source = ArraySource(composed.data, sums_up=composed.rows is not None)  # checked already
        return Sampled(
            partial(sample, composed.model, source, start, sampler=sampler, estimator=estimator),
            num_rows=count,
            batch_size=_BATCH if estimator is None else estimator.batching(count).size,
            told={
                "names": inputs.table.names,
                "levels": inputs.table.levels,
                "num_rows": inputs.num_rows,
                "design": None if design is None else design.written(),
                **composed.told,
            },
            chosen=sampler is None or estimator is None,
            finish=with_rows if composed.rows else lambda run: run,
        )

    def _given(self, X: TableLike, y: Any, offset: Any, weights: Any) -> FitInput:
        """The checked input of a fit; features are as precise as they were given."""
        name = type(self).__name__
        intercept = _checks.flag(self.intercept, "intercept", name)
        if self.formula is None:
            inputs = plain(X, y, offset, weights, intercept, name)
        else:
            inputs = from_formula(self.formula, X, y, offset, weights, intercept, name)
        table = features(
            inputs.table,
            name,
            constant=self.constant_columns if inputs.intercept else "keep",
            constant_hint=_HINT,
            exact=True,
            wild=not self.standardise,
            levels={},
        )
        count = len(table.array)
        if count < 2:
            raise InvalidValueError(f"{name} requires at least 2 rows, got n_samples = 1.")
        return inputs._replace(
            table=table,
            offset=per_row(inputs.offset, "offset", count, name),
            weight=per_row(inputs.weight, "weights", count, name),
        )

    def _composed(self, inputs: FitInput) -> Composed:
        raise NotImplementedError

    def _explained(self, error: DivergenceError, inputs: FitInput) -> DivergenceError | None:
        """A better explanation of a failed run, if there is one."""
        return None

    def _check_settings(self) -> None:
        name = type(self).__name__
        _checks.choice(self.prior, "prior", self._priors)
        for setting, value in (("scale", self.scale), ("intercept_scale", self.intercept_scale)):
            if value is not None or setting not in self._from_data:
                _checks.positive(value, setting, name)
        _checks.flag(self.standardise, "standardise", name)
        _checks.positive_int(self.num_prediction_draws, "num_prediction_draws")

    def _make_prior(
        self, information: np.ndarray, scale: float, intercept_scale: float, noise_scale: float | None = None
    ) -> Prior:
        """The prior; a horseshoe's resolution comes from the likelihood's own precisions (K, d)."""
        if self.prior == "normal":
            return NormalPrior(scale, intercept_scale, noise_scale)
        if self.prior == "laplace":
            return LaplacePrior(scale, intercept_scale, noise_scale)
        # powers of two, so that tables that are alike share compiled programs
        most = information.max(axis=0)
        known = most > 1e-12 / scale**2  # not of a column of zeros that was kept: the prior has to do
        widths = RESOLUTION / np.sqrt(np.where(known, most, scale**-2.0))
        resolution = tuple(float(2.0 ** np.round(np.log2(width))) for width in widths)
        return HorseshoePrior(scale, intercept_scale, noise_scale, resolution)

    # -- results -------------------------------------------------------------------------------------------------------

    def _settle(self, run: Run, told: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        # the rows of the run may be sums over those of the user
        run = replace(run, configuration=run.configuration | {"num_rows": told["num_rows"]})
        super()._settle(run, told, arrays)

    def _results(self, run: Run, told: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        draws = in_own_units(run.draws, told)
        self._design = None if told["design"] is None else Design.read(told["design"])
        self._columns = None if told["names"] is None else list(map(str, told["names"]))
        self.categories_ = dict(told["levels"])
        vars(self).pop("feature_names_in_", None)
        if self._columns is not None:
            self.feature_names_in_ = np.asarray(self._columns, dtype=object)
        self.n_features_in_ = draws["coef"].shape[-1]
        flat = {name: leaf.reshape(-1, *leaf.shape[2:]) for name, leaf in draws.items()}
        total = len(flat["coef"])
        some = np.linspace(0, total - 1, min(total, self.num_prediction_draws)).round().astype(int)
        self._few = {name: leaf[np.unique(some)].astype(np.float64) for name, leaf in flat.items()}
        means = {name: np.asarray(leaf, np.float64).mean(axis=(0, 1)) for name, leaf in draws.items()}
        self.coef_, intercept = means["coef"], means.get("intercept", 0.0)
        self.intercept_ = intercept if np.ndim(intercept) else float(intercept)
        for name in PARAMETERS.keys() & means.keys():
            setattr(self, f"{name}_", float(means[name]))
        return draws

    def coef_interval_(self, probability: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of central posterior intervals, each with the shape of `coef_`."""
        self._check_fitted()
        coef = np.asarray(self.draws_["coef"], np.float64)
        low, high = central(coef, probability, axis=(0, 1))
        shape = self._coef_shape()
        return low.reshape(shape), high.reshape(shape)

    def _coef_shape(self) -> tuple[int, ...]:
        return (self.n_features_in_,)

    def _predictor_names(self) -> list[Any]:
        """Of models with several linear predictors: the classes that they belong to."""
        return []

    def named_draws(self) -> dict[str, np.ndarray]:
        """The draws in the user's units as a flat dict: {"coef[age]": (chain, draw), ...}."""
        self._check_fitted()
        return self.run_.labelled_draws()

    def _predictors(self, X: TableLike, offset: ColumnLike | None = None) -> Iterator[tuple[slice, np.ndarray]]:
        """Rows, and their linear predictors (rows, draws) or (rows, draws, K), some rows at a time."""
        who = type(self).__name__
        if self._design is not None and self.formula is not None:
            if offset is not None:
                raise InvalidValueError(f"the formula {self.formula!r} has the offset: pass none to predict.")
            X, offset = for_prediction(self.formula, self._design, X, who)
        like = (self.n_features_in_, None if self._columns is None else tuple(self._columns))
        table = features(X, who, like=like, exact=True, levels=self.categories_).array
        shift = per_row(offset, "offset", len(table), who)
        coef = self._few["coef"]
        flat = coef.reshape(-1, coef.shape[-1])
        size = max(1, _MOST_NUMBERS // len(flat))
        for first in range(0, len(table), size):
            here = slice(first, first + size)
            eta = table[here].astype(np.float64) @ flat.T
            eta = eta.reshape(len(eta), *coef.shape[:-1]) + self._few.get("intercept", 0.0)
            yield here, eta if shift is None else eta + shift[here, None]

    def _averages(
        self,
        X: TableLike,
        offset: ColumnLike | None,
        interval: float | None,
        mean_of: Callable[[np.ndarray], np.ndarray],
        drawn_of: Callable[[np.ndarray], np.ndarray] = lambda mean: mean,
    ) -> tuple[np.ndarray, ...]:
        """Averages over the draws of a mean, and the ends of an interval of what is drawn given it, for each row."""
        self._check_fitted()
        found = []
        for _, eta in self._predictors(X, offset):
            mean = mean_of(eta)
            ends = () if interval is None else central(drawn_of(mean), interval, axis=1)
            found.append([mean.mean(axis=1), *ends])
        return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))

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
        return dict(self.predict(X, interval=interval)._asdict())  # type: ignore[attr-defined]

    def score(self, X: TableLike, y: ColumnLike | None = None) -> float:
        """R²: the fraction of the variance of y (with a formula, of its response) that `predict` explains."""
        predicted = self.predict(X)  # type: ignore[attr-defined]
        values = targets(self._responses(X, y), num_rows=len(predicted), who=type(self).__name__)
        total = float(np.sum((values - values.mean()) ** 2))
        left = float(np.sum((values - predicted) ** 2))
        return 1.0 - left / total if total else float(left == 0.0)

    def _responses(self, X: TableLike, y: ColumnLike | None) -> Any:
        """The responses of rows: those of the formula's column, or y."""
        if self.formula is not None and y is None:
            return response_of(self.formula, X, type(self).__name__)
        return y

    def _coordinates(self) -> dict[str, Sequence[Any]]:
        """The names of columns and classes, by the axis of `coef` and `intercept` that they label."""
        several = [self._predictor_names()] if self._predictor_names() else []
        named: dict[str, list[list[Any]]] = {"coef": [*several, list(self._columns or [])], "intercept": several}
        return {
            f"{name}_dim_{axis}": labels
            for name, axes in named.items()
            for axis, labels in enumerate(axes)
            if labels and name in self.draws_
        }

    def _view(self, run: Run, **options: Any) -> View:
        """Coefficients in the units of the columns."""
        return View(
            self.run_,
            type(self).__name__,
            size_of(self.run_, "columns", self.n_features_in_),
            about="The plots and R-hat are in the units of the columns, the other diagnostics in those of the sampler.",
            charted=self.named_draws(),
            sections=lambda seen: [_coefficients(seen)],
        )


# -- a regression in a report: its coefficients by name, those first that are surest to differ from 0 ------------------


def _coefficients(seen: Seen) -> Section:
    """A chart in units of posterior standard deviations, and a table in the units of the columns."""
    places = [k for k, name in enumerate(seen.names) if name.startswith("coef[")]
    sd = np.maximum(np.nan_to_num(seen.summary["sd"]), 1e-300)
    sure = np.abs(np.nan_to_num(seen.summary["mean"])) / sd
    order = sorted(places, key=lambda k: -sure[k])
    names = [seen.names[k].removeprefix("coef[").removesuffix("]") for k in order]
    shown = order[:_FOREST]
    scaled = {name: seen.summary[name][shown] / sd[shown] for name in ("mean", "low", "lower", "upper", "high")}
    inner, outer = (np.stack([scaled[a], scaled[b]], axis=1) for a, b in (("lower", "upper"), ("low", "high")))
    label = "Coefficients in posterior standard deviations from 0"
    chart = forest(names[:_FOREST], scaled["mean"], inner, outer, label, label)
    words = (
        "By how many posterior standard deviations a coefficient differs from 0: the dot is its mean, the lines hold "
        "50 % and 90 % of it. Those that are surest to have their sign come first."
    )
    if len(order) > _FOREST:
        words += f" The first {_FOREST} of {len(order):,} are drawn."
    table = sortable("coefficients", _HEADS, _rows(seen, order, names), "Coefficients")
    controls = tag("div", search("coefficients", "Find a coefficient", "rows"), class_="controls")
    parts = [paragraph(words, " ", seen.cut), tag("div", chart, class_="charts"), controls, table]
    return Section("coefficients", "Coefficients", join(parts))


def _rows(seen: Seen, order: list[int], names: list[str]) -> list[list[str]]:
    rows = []
    for place, name in zip(order, names, strict=True):
        values = seen.values[:, :, place]
        above = float(np.mean(values > 0))
        mean, sd = seen.summary["mean"][place], seen.summary["sd"][place]
        numbers = [mean, sd, seen.summary["low"][place], seen.summary["high"][place], abs(mean) / max(sd, 1e-300)]
        rows.append([name, *(number(value) for value in numbers), number(max(above, 1 - above))])
    return rows
