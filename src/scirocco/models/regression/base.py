"""Base class of the regressions: fitting, draws in the user's units, intervals, summary, saving."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco.data.arrays import ArraySource
from scirocco.diagnostics.frames import html_summary
from scirocco.drawing.markup import Html
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import Estimator
from scirocco.model import Model
from scirocco.models import fits, sampled
from scirocco.models.fits.conventions import not_fitted
from scirocco.models.fits.intervals import tails_of
from scirocco.models.fits.mixing import warn_if_unmixed
from scirocco.models.inputs import Features, TableLike, Units, features
from scirocco.models.regression.density import KINDS, RESOLUTION, Horseshoe, Laplace, Normal, Prior
from scirocco.models.regression.inference import THIN, Method, in_own_units
from scirocco.models.view import View
from scirocco.run import Run, sample
from scirocco.samplers import Sampler

_BURN_IN, _SHARE = 50, 0.2
"""Burn-in in units of `thin` steps, or as a share of a run whose length is given."""
_MOST_NUMBERS = 4_000_000
"""Rows × draws (× classes) held at once by a prediction."""
_HINT = "it cannot be told from the intercept. Drop it, or keep it with constant_columns='keep'"


class Regression(fits.Conventions):
    """A linear predictor with posterior draws of its coefficients."""

    prior: str
    scale: float | None
    intercept: bool
    intercept_scale: float | None
    slab: float | None
    standardise: bool
    constant_columns: str
    sampler: Sampler | None
    estimator: Estimator | None
    num_samples: int
    num_burnin: float | None
    thin: int | None
    num_chains: int
    num_prediction_draws: int
    seed: int
    run_: Run | None
    n_features_in_: int
    categories_: dict[str, list[object]]
    """The levels of columns of categories; each level but the first is a feature `column[level]`."""
    _kind: fits.Kind
    _renamed: ClassVar[Mapping[str, str]] = {"num_draws": "num_prediction_draws"}
    _from_data: tuple[str, ...] = ()
    """Settings that may be None: they are then taken from the data."""
    _sums_up: bool = False
    """Whether a run is made from sums over the rows."""
    _draws: dict[str, Any]
    _num_rows: int | None = None
    """None for a fit that an older version stored."""

    # -- fitting ------------------------------------------------------------------------------------------------------

    def _table(self, X: TableLike) -> Features:
        """The features of a fit, as precise as they were given."""
        self._check_settings()
        name = type(self).__name__
        constant = self.constant_columns if self.intercept else "keep"
        wild = not self.standardise
        found = features(X, name, constant=constant, constant_hint=_HINT, exact=True, wild=wild, levels={})
        if len(found.array) < 2:
            raise InvalidValueError(f"{name} requires at least 2 rows, got n_samples = 1.")
        return found

    def _remember(self, table: Features, run: Run, **more: Any) -> None:
        """What a fit leaves behind, all at its end: one that fails leaves the model as it was."""
        self.__dict__.pop("feature_names_in_", None)
        if table.names is not None:
            self.feature_names_in_ = np.asarray(table.names, dtype=object)
        self.n_features_in_, self.run_, self.categories_ = table.array.shape[1], run, table.levels
        self._num_rows = len(table.array)
        for name, value in more.items():
            setattr(self, name, value)

    def _check_settings(self) -> None:
        name = type(self).__name__
        _checks.choice(self.prior, "prior", KINDS)
        for setting in ("scale", "intercept_scale"):
            value = getattr(self, setting)
            if value is not None or setting not in self._from_data:
                _checks.positive(value, setting, name)
        for setting in ("intercept", "standardise"):
            value = getattr(self, setting)
            if not isinstance(value, (bool, np.bool_)):
                raise InvalidTypeError(f"`{setting}` of {name} must be True or False, got {value!r}.")
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
        model: Model,
        data: dict[str, np.ndarray],
        method: Method,
        extra: dict[str, Any],
        num_epochs: float | None,
        max_seconds: float | None,
        options: dict[str, Any],
    ) -> Run:
        num_rows = len(data["y"])
        length, wanted = sampled.lengths(
            (self.num_samples, self.num_burnin, self.thin),
            num_epochs,
            max_seconds,
            num_rows=num_rows,
            batch_size=method.estimator.batching(num_rows).size,
            thin=THIN[self.prior],
            num_burnin=_BURN_IN,
            share=_SHARE,
        )
        sampling = functools.partial(
            sample,
            model,
            ArraySource(data, sums_up=self._sums_up),  # checked already
            method.start,
            sampler=method.sampler,
            estimator=method.estimator,
            num_chains=self.num_chains,
            seed=self.seed,
            notes=sampled.notes(self._kind, self, extra),
        )
        run = sampled.draw(sampling, length, wanted, **options)
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
        found = in_own_units(dict(draws), Units(np.asarray(extra["mean"]), np.asarray(extra["deviation"])))
        if "centre" in extra and self.intercept:
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
        tails = tails_of(probability)
        coef = np.asarray(self._draws["coef"], np.float64)
        low, high = np.quantile(coef.reshape(-1, *coef.shape[2:]), tails, axis=0)
        shape = self._coef_shape()
        return low.reshape(shape), high.reshape(shape)

    def _coef_shape(self) -> tuple[int, ...]:
        return (self.n_features_in_,)

    def summary(self, probability: float = 0.9, digits: int | None = 4) -> Any:
        """As `Run.summary`: a pandas data frame with one row per parameter, in the user's units, with column names."""
        self._check_fitted()
        require("pandas", "summary()")
        run = self.run_
        if run is None:
            raise InvalidValueError("a loaded model has no run; open it with sc.load(path).summary().")
        return run.summary(probability, digits)

    def _html_of_fit(self) -> Html:
        return html_summary(self.named_draws()) if hasattr(self, "_draws") else super()._html_of_fit()

    @property
    def draws_(self) -> dict[str, Any]:
        """Draws in the user's units, leaves (chain, draw, ...): `coef`, `intercept`, ..."""
        self._check_fitted()
        return self._draws

    def named_draws(self) -> dict[str, np.ndarray]:
        """The draws in the user's units as a flat dict: {"coef[age]": (chain, draw), ...}."""
        out = {}
        for name, leaf in self.draws_.items():
            array = np.asarray(leaf)
            for index in np.ndindex(array.shape[2:]):
                inside = f"[{', '.join(map(str, index))}]" if index else ""
                out[self._label(f"{name}{inside}")] = array[(slice(None), slice(None), *index)]
        return out

    def _label(self, parameter: str) -> str:
        """coef[2] as coef[age], coef[1, 2] as coef[setosa, age]."""
        name, _, inside = parameter.rstrip("]").partition("[")
        if not inside:
            return parameter
        numbers = [int(number) for number in inside.split(",")]
        labels = [str(number) for number in numbers]
        if name == "coef" and hasattr(self, "feature_names_in_"):
            labels[-1] = str(self.feature_names_in_[numbers[-1]])
        if len(numbers) == 2 or name == "intercept":
            labels[0] = str(getattr(self, "classes_", range(numbers[0] + 1))[numbers[0]])
        return f"{name}[{', '.join(labels)}]"

    def _predictors(self, X: TableLike) -> Iterator[tuple[slice, np.ndarray]]:
        """Rows, and their linear predictors (rows, draws) or (rows, draws, K), some rows at a time."""
        names = getattr(self, "feature_names_in_", None)
        like = (self.n_features_in_, None if names is None else tuple(names))
        table = features(X, type(self).__name__, like=like, exact=True, levels=self.categories_).array
        coef = self._few["coef"]
        flat = coef.reshape(-1, coef.shape[-1])
        size = max(1, _MOST_NUMBERS // len(flat))
        for first in range(0, len(table), size):
            eta = table[first : first + size].astype(np.float64) @ flat.T
            eta = eta.reshape(len(eta), *coef.shape[:-1])
            yield slice(first, first + size), eta + self._few.get("intercept", 0.0)

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

    def _check_fitted(self) -> None:
        if not hasattr(self, "_draws"):
            raise not_fitted(f"this {type(self).__name__} is not fitted yet: call fit(X, y) first.")

    def to_arviz(self) -> Any:
        """Convert the draws in the user's units, with the names of columns and classes; see `Run.to_arviz`."""
        self._check_fitted()
        if self.run_ is not None:
            return self.run_.to_arviz()
        return fits.to_arviz(self._kind, None, self._draws, {}, self._coordinates())

    def _coordinates(self) -> dict[str, Sequence[Any]]:
        """The names of columns and classes, by the axis of `coef` and `intercept` that they label."""
        columns = list(getattr(self, "feature_names_in_", ()))
        classes = list(getattr(self, "classes_", ()))
        found: dict[str, Sequence[Any]] = {}
        for name in ("coef", "intercept"):
            shape = np.shape(self._draws.get(name, 0.0))[2:]
            labels = (
                {"coef": (classes, columns), "intercept": (classes,)}[name][-len(shape) :] if shape else ()
            )
            for axis, known in enumerate(labels):
                if len(known) == shape[axis]:
                    found[f"{name}_dim_{axis}"] = known
        return found

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
        names = getattr(self, "feature_names_in_", None)
        extra = {"names": None if names is None else list(names), "levels": self.categories_, **self._more()}
        extra["num_rows"] = self._num_rows
        kept = {name: np.asarray(leaf) for name, leaf in self._draws.items()}
        sampled.save(self._kind, self, kept, extra, path, overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a model written by `save`, or by `fit` with `store`."""
        saved = sampled.open_saved(cls._kind, path, cls._renamed)
        model = cls(**saved.settings)
        model.run_ = saved.run if "mean" in saved.extra else None
        model.n_features_in_ = int(saved.run.draws["coef"].shape[-1])
        if saved.extra["names"] is not None:
            model.feature_names_in_ = np.asarray(saved.extra["names"], dtype=object)
        model.categories_ = dict(saved.extra.get("levels", {}))
        model._num_rows = saved.extra.get("num_rows")
        model._restore(saved.extra)
        model._settle(model._outside(saved.run.draws, saved.extra))
        return model

    def _more(self) -> dict[str, Any]:
        return {}

    def _restore(self, extra: dict[str, Any]) -> None:
        pass
