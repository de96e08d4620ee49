"""What follows from the draws of a regression: the user's units, intervals, summary, predictions, files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from scirocco._extras import require
from scirocco.diagnostics.intervals import central
from scirocco.drawing.charts import forest
from scirocco.drawing.markup import Section, join, number, paragraph, search, sortable, tag
from scirocco.errors import InvalidValueError
from scirocco.estimators import Estimator
from scirocco.models._core.model import FittedModel
from scirocco.models._core.view import Seen, View, size_of
from scirocco.models.inputs import ColumnLike, TableLike, features, targets
from scirocco.models.inputs.formulas import Design
from scirocco.models.regression import given
from scirocco.models.regression.inference import in_own_units
from scirocco.run import Run
from scirocco.samplers import Sampler

_MOST_NUMBERS = 4_000_000
"""Rows × draws (× classes) held at once by a prediction."""
_FOREST = 40
"""Coefficients in a chart."""
_HEADS = ["coefficient", "mean", "sd", "5 %", "95 %", "|mean| / sd", "P(sign)"]
"""Columns of the table of coefficients in a report."""


class Results(FittedModel):
    """The settings of a regression, and everything that follows from its draws."""

    ADVICE = "Increase `thin` or `num_samples`."
    CODE = ("sampler", "estimator")
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
    num_prediction_draws: int
    n_features_in_: int
    categories_: dict[str, list[object]]
    """The levels of columns of categories; each level but the first is a feature `column[level]`."""
    _columns: list[str] | None
    """The names of the coefficients' columns."""
    _design: Design | None
    _few: dict[str, np.ndarray]
    """Draws for predictions, (draw, ...), in double precision."""

    def _settle(self, run: Run, told: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        # the rows of the run may be sums over those of the user
        run = dataclasses.replace(run, configuration=run.configuration | {"num_rows": told["num_rows"]})
        super()._settle(run, told, arrays)

    def _results(
        self, run: Run, told: dict[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
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
        return draws

    # -- what a fit gives ---------------------------------------------------------------------------------------------

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

    def _coordinates(self) -> dict[str, Sequence[Any]]:
        """The names of columns and classes, by the axis of `coef` and `intercept` that they label."""
        several = [self._predictor_names()] if self._predictor_names() else []
        named: dict[str, list[list[Any]]] = {
            "coef": [*several, list(self._columns or [])],
            "intercept": several,
        }
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
    scaled = {
        name: seen.summary[name][shown] / sd[shown] for name in ("mean", "low", "lower", "upper", "high")
    }
    inner, outer = (
        np.stack([scaled[a], scaled[b]], axis=1) for a, b in (("lower", "upper"), ("low", "high"))
    )
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
        numbers = [
            mean,
            sd,
            seen.summary["low"][place],
            seen.summary["high"][place],
            abs(mean) / max(sd, 1e-300),
        ]
        rows.append([name, *(number(value) for value in numbers), number(max(above, 1 - above))])
    return rows
