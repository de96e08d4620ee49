"""What follows from the draws of a regression: the user's units, intervals, summary, predictions, files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from scirocco._extras import require
from scirocco.diagnostics.frames import html_summary
from scirocco.diagnostics.intervals import central
from scirocco.drawing.markup import Html
from scirocco.errors import InvalidValueError
from scirocco.estimators import Estimator
from scirocco.models import fits, sampled
from scirocco.models.fits.conventions import not_fitted
from scirocco.models.inputs import ColumnLike, TableLike, Units, features, targets
from scirocco.models.inputs.formulas import Design
from scirocco.models.regression import given
from scirocco.models.regression.inference import in_own_units
from scirocco.models._core.view import View
from scirocco.run import Run
from scirocco.samplers import Sampler

_MOST_NUMBERS = 4_000_000
"""Rows × draws (× classes) held at once by a prediction."""


class Results(fits.Conventions):
    """The settings of a regression, and everything that follows from its draws."""

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
    _columns: list[str] | None = None
    """The names of the coefficients' columns."""
    _design: Design | None = None
    _draws: dict[str, Any]
    _num_rows: int | None = None
    """None for a fit that an older version stored."""

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

    def _set_names(self, names: Sequence[str] | None) -> None:
        self.__dict__.pop("feature_names_in_", None)
        self._columns = None if names is None else list(names)
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)

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
        """A run that knows its draws in the user's units, the names of their columns and classes, and the user's rows.

        The rows of the run itself may be sums over those.
        """
        known = {} if self._num_rows is None else {"num_rows": self._num_rows}
        configuration = run.configuration | known
        return dataclasses.replace(
            run, configuration=configuration, converted=(self._draws, self._coordinates())
        )

    # -- what a fit gives ---------------------------------------------------------------------------------------------

    def coef_interval_(self, probability: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of central posterior intervals, each with the shape of `coef_`."""
        self._check_fitted()
        coef = np.asarray(self._draws["coef"], np.float64)
        low, high = central(coef, probability, axis=(0, 1))
        shape = self._coef_shape()
        return low.reshape(shape), high.reshape(shape)

    def _coef_shape(self) -> tuple[int, ...]:
        return (self.n_features_in_,)

    def _predictor_names(self) -> list[Any]:
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
        named: dict[str, list[list[Any]]] = {
            "coef": [*several, list(self._columns or [])],
            "intercept": several,
        }
        return {
            f"{name}_dim_{axis}": labels
            for name, axes in named.items()
            for axis, labels in enumerate(axes)
            if labels and name in self._draws
        }

    def report_view(self, run: Run | None = None, **options: Any) -> View:
        """Contents of a report, see `scirocco.models._core.view`: coefficients by name."""
        from scirocco.models.regression import view

        return view.view(self, run)

    # -- on disk ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the fitted model: draws as a Zarr group, settings, classes; no pickles and no code.

        `sampler` and `estimator` are not saved: the loaded model has the defaults.
        """
        self._check_fitted()
        extra = {"names": self._columns, "levels": self.categories_, **self._more()}
        extra["num_rows"] = self._num_rows
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
        model._num_rows = saved.extra.get("num_rows")
        model._restore(saved.extra)
        model._settle(model._outside(saved.run.draws, saved.extra))
        return model

    def _more(self) -> dict[str, Any]:
        return {}

    def _restore(self, extra: dict[str, Any]) -> None:
        pass
