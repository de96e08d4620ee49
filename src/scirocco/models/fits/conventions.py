"""What scikit-learn expects of an estimator, without scikit-learn."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from typing import Any, Self

import numpy as np

from scirocco.errors import InvalidValueError, NotFittedError


class Conventions:
    """Parameters are the constructor's arguments, kept under their own names and checked when they are used."""

    @classmethod
    def _names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        """Change some of them."""
        for name, value in params.items():
            if name not in self._names():
                kind = type(self).__name__
                raise InvalidValueError(
                    f"{kind} has no parameter `{name}`. It has {', '.join(self._names())}."
                )
            setattr(self, name, value)
        return self

    def report(self, path: str | os.PathLike[str] | None = None, **options: Any) -> Any:
        """A report of the fit in words and plots, which a notebook shows; with `path` also one HTML file.

        The same as `sc.report.show(model, path, **options)`.
        """
        # reports lie above this room, which works without them: opened by name when asked for, as the front door does
        return importlib.import_module("scirocco.report").show(self, path, **options)

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        shown = [f"{n}={v!r}" for n, v in self.get_params().items() if not _same(v, defaults[n])]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn's pipelines ask for."""
        from scirocco._extras import require

        utils = require("sklearn.utils", "a scikit-learn pipeline")
        tags = utils.Tags(
            estimator_type=None,
            target_tags=utils.TargetTags(required=False),
            transformer_tags=utils.TransformerTags(),
        )
        tags.input_tags.sparse = True
        return tags


def not_fitted(message: str) -> Exception:
    """The error, also as scikit-learn's own where scikit-learn is in use."""
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
