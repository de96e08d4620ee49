"""The scikit-learn estimator interface, without scikit-learn."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np

from scirocco import _checks
from scirocco.drawing.markup import Html, join, tag
from scirocco.errors import InvalidValueError, NotFittedError
from scirocco.models._core.program import FitOptions
from scirocco.samplers.schedules import Schedule

StepSize = float | Schedule | Callable[[int], float] | None
"""A step size: a number or a schedule; None: the default of the model."""


def with_options(signature: inspect.Signature) -> inspect.Signature:
    """A signature with the names of `FitOptions` in place of `**options`."""
    given = list(signature.parameters.values())
    if not given or given[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        return signature
    named = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=_OPTIONS[name], annotation=kind.__forward_arg__
        )
        for name, kind in FitOptions.__annotations__.items()
    ]
    return signature.replace(parameters=[*given[:-1], *named])


_OPTIONS: dict[str, Any] = dict.fromkeys(("num_steps", "num_epochs", "max_seconds", "store")) | {
    "resume": False,
    "overwrite": False,
    "callbacks": (),
    "progress": True,
}
"""Defaults of `FitOptions`."""


class Conventions:
    """Base class: parameters are the arguments of the constructor, stored under their names and checked when used."""

    _estimator_type: ClassVar[str | None] = None
    """For scikit-learn: "classifier", "regressor" or "density_estimator"; None: a transformer."""
    _takes_counts: ClassVar[bool] = False
    """Whether the input must be >= 0, for scikit-learn."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._check_arguments()

    @classmethod
    def _check_arguments(cls) -> None:
        """Unknown arguments of the constructor and of `fit` are answered by those that were meant."""
        made: Any = cls.__init__
        fit: Any = vars(cls).get("fit", getattr(cls, "fit", None))
        if fit is None or made is object.__init__:
            return
        known = dict.fromkeys(cls._names(), f"{cls.__name__}(...)")
        signature = with_options(inspect.signature(fit))
        to_fit = dict.fromkeys(signature.parameters, f"{cls.__name__}.fit")
        cls.fit = _checks.known_arguments(  # type: ignore[attr-defined]
            fit, f"{cls.__name__}.fit", known, signature=signature
        )
        cls.__init__ = _checks.known_arguments(made, cls.__name__, to_fit)  # type: ignore[method-assign]

    @classmethod
    def _names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        """Set some arguments of the constructor; they are checked when used."""
        for name, value in params.items():
            if name not in self._names():
                kind = type(self).__name__
                raise InvalidValueError(
                    f"{kind} has no parameter `{name}`. It has {', '.join(self._names())}."
                )
            setattr(self, name, value)
        return self

    def report(self, path: str | os.PathLike[str] | None = None, **options: Any) -> Any:
        """A report of the fit in text and plots, shown in a notebook; with `path` also written as one HTML file.

        The same as `sc.report.show(model, path, **options)`.
        """
        # reports depend on this package, which works without them: imported only when needed
        return importlib.import_module("scirocco.report").show(self, path, **options)

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        shown = [f"{n}={v!r}" for n, v in self.get_params().items() if not _same(v, defaults[n])]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        """The settings and, after `fit`, the summary of the draws, for notebooks."""
        return join([tag("pre", repr(self)), self._html_of_fit()])

    def _html_of_fit(self) -> Html:
        run = vars(self).get("run_")
        return Html("") if run is None else tag("p", repr(run))

    def __sklearn_tags__(self) -> Any:
        """Tags for scikit-learn's pipelines."""
        from scirocco._extras import require

        utils, kind = require("sklearn.utils", "a scikit-learn pipeline"), self._estimator_type
        return utils.Tags(
            estimator_type=kind,
            target_tags=utils.TargetTags(required=kind in ("classifier", "regressor")),
            transformer_tags=utils.TransformerTags() if kind is None else None,
            classifier_tags=utils.ClassifierTags() if kind == "classifier" else None,
            regressor_tags=utils.RegressorTags() if kind == "regressor" else None,
            input_tags=utils.InputTags(sparse=True, positive_only=self._takes_counts),
        )


def not_fitted(message: str) -> Exception:
    """The error, also an instance of scikit-learn's NotFittedError if scikit-learn is imported."""
    exceptions = sys.modules.get("sklearn.exceptions")
    if exceptions is None:
        return NotFittedError(message)
    kind = type("NotFittedError", (NotFittedError, exceptions.NotFittedError), {})
    return kind(message)


def _same(a: Any, b: Any) -> bool:
    try:
        return bool(np.all(a == b)) and type(a) is type(b)
    except Exception:
        return False
