"""The scikit-learn estimator interface, without scikit-learn."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, ParamSpec, Self, TypeVar

import numpy as np

from scirocco import _checks
from scirocco.drawing.markup import Html, join, tag
from scirocco.errors import InvalidTypeError, InvalidValueError, NotFittedError
from scirocco.models._core.program import FitOptions
from scirocco.samplers.schedules import Schedule

StepSize = float | Schedule | Callable[[int], float] | None
"""A step size: a number or a schedule; None: the default of the model."""

P = ParamSpec("P")
R = TypeVar("R")


def renamed_arguments(renamed: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator that passes keyword arguments with an old name under the new one, with a `FutureWarning`.

    Parameters
    ----------
    renamed
        Mapping from old to new names, such as `{"num_draws": "num_samples"}`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            given: Any = new_names(kwargs, renamed)
            return function(*args, **given)

        return wrapper

    return decorate


def new_names(given: Mapping[str, Any], renamed: Mapping[str, str], *, warn: bool = True) -> dict[str, Any]:
    """Arguments under their new names; use `warn=False` for those of a stored fit."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        new = renamed.get(name, name)
        if new in found or (new != name and new in given):
            raise InvalidTypeError(f"`{name}` is the old name of `{new}`: pass only `{new}`.")
        if new != name and warn:
            _warn_of_old_name(name, new)
        found[new] = value
    return found


def _warn_of_old_name(old: str, new: str) -> None:
    _checks.warn(f"`{old}` is now `{new}`; the old name will be removed in the next version.", FutureWarning)


def with_options(signature: inspect.Signature) -> inspect.Signature:
    """A signature with the names of `FitOptions` in place of `**options`."""
    given = list(signature.parameters.values())
    if not given or given[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        return signature
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_OPTIONS[name], annotation=kind)
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
    """Base class: parameters are the arguments of the constructor, stored under their names and checked when used.

    A model that renames arguments lists them in `_renamed`, and decorates its constructor with
    `@renamed_arguments(_renamed)`: the old names then also work in `set_params` and as attributes.
    """

    _renamed: ClassVar[Mapping[str, str]] = {}
    """Mapping from old to new names of arguments; old names work for one version."""
    _estimator_type: ClassVar[str | None] = None
    """For scikit-learn: "classifier", "regressor" or "density_estimator"; None: a transformer."""
    _takes_counts: ClassVar[bool] = False
    """Whether the input must be >= 0, for scikit-learn."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._check_arguments()
        for old, new in vars(cls).get("_renamed", {}).items():
            setattr(cls, old, _old_attribute(old, new))

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
        cls.__init__ = _checks.known_arguments(made, cls.__name__, to_fit, cls._renamed)  # type: ignore[method-assign]

    @classmethod
    def _names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        """Set some arguments of the constructor; they are checked when used."""
        params = new_names(params, self._renamed)
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


def _old_attribute(old: str, new: str) -> property:
    """An attribute under its old name."""

    def read(model: Conventions) -> Any:
        _warn_of_old_name(old, new)
        return getattr(model, new)

    def write(model: Conventions, value: Any) -> None:
        _warn_of_old_name(old, new)
        setattr(model, new, value)

    return property(read, write)


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
