"""What every model with `fit`, `save` and `load` is: one driver, one file format, one policy for runs without draws."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from scirocco import _checks
from scirocco.diagnostics.chains import check_chains, r_hat_in_digits
from scirocco.diagnostics.frames import html_summary
from scirocco.drawing.markup import join, tag
from scirocco.errors import InvalidValueError, NoDrawsError, NotFittedError
from scirocco.models._core import files, registry
from scirocco.models._core.length import AskedDraws, check_burnin
from scirocco.models._core.program import FitOptions, Program
from scirocco.models._core.view import View
from scirocco.run import records
from scirocco.run.result import Run
from scirocco.samplers.schedules import Schedule

Array = np.ndarray[Any, np.dtype[Any]]

StepSize = float | Schedule | Callable[[int], float] | None
"""A step size: a number or a schedule; None: the default of the model."""


def with_options(signature: inspect.Signature) -> inspect.Signature:
    """A signature with the names of `FitOptions` in place of `**options`."""
    given = list(signature.parameters.values())
    if not given or given[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        return signature
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_OPTIONS[name], annotation=kind.__forward_arg__)
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


class FittedModel:
    """A model with posterior draws.

    A model makes a program of its data in `fit`, and calls `_run`. It writes `_results`, which turns the draws into
    what users see, for a fit and for a file; `_watched`, what is compared between chains; and `_view`. As in
    scikit-learn, the constructor stores its arguments under their names, and they are checked when they are used.
    """

    ADVICE: ClassVar[str] = "Run the chains longer (num_epochs)."
    """What to do if chains disagree."""
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings of papers, by name."""
    CODE: ClassVar[tuple[str, ...]] = ()
    """Arguments with functions or weights of the user, which a file does not have: they are passed to `load`."""
    VALUES: ClassVar[tuple[type, ...]] = ()
    """Classes of arguments that a file may contain: dataclasses or named tuples of plain values."""

    _estimator_type: ClassVar[str | None] = None
    """For scikit-learn: "classifier", "regressor" or "density_estimator"; None: a transformer."""
    _takes_counts: ClassVar[bool] = False
    """Whether the input must be >= 0, for scikit-learn."""

    num_samples: Any
    num_burnin: Any
    thin: int | None
    num_chains: Any
    seed: int
    run_: Run
    draws_: Mapping[str, Any]
    """Draws (chain, draw, ...) as users see them, by name."""
    _noted: dict[str, Any]
    _arrays: Mapping[str, Array]

    # -- a model writes these ------------------------------------------------------------------------------------------

    def _results(self, run: Run, told: dict[str, Any], arrays: Mapping[str, Array]) -> Mapping[str, Any]:
        """Set the attributes that follow from the draws, and return the draws as users see them.

        `told` and `arrays` are those of the program: all that is kept of the data in addition to the draws.
        """
        return run.named_draws()

    def _watched(self) -> dict[str, Array]:
        """Draws (chain, draw, ...) that can be interpreted and compared between chains, by name."""
        return {name: np.asarray(values) for name, values in self.draws_.items()}

    def _coordinates(self) -> dict[str, Sequence[Any]]:
        """Labels along the axes of the draws, by the name of the axis: `means_dim_1`."""
        return {}

    def _view(self, run: Run, **options: Any) -> View:
        """Contents of a report."""
        return View(run, type(self).__name__, judged=self._judged())

    def _written_arrays(self) -> Mapping[str, Array]:
        """Arrays that are saved with the draws."""
        return self._arrays

    # -- and has these -------------------------------------------------------------------------------------------------

    @classmethod
    def preset(cls, name: str, *args: Any, **changes: Any) -> Self:
        """A model with the settings of a paper; `args` and `changes` are other arguments of the constructor."""
        _checks.choice(name, "preset", tuple(cls.PRESETS))
        return cls(*args, **{**cls.PRESETS[name], **changes})

    def summary(self, probability: float = 0.9, digits: int | None = 4) -> Any:
        """Mean, sd, a central interval, effective sample sizes and R-hat of what can be interpreted, as a data frame.

        The same as `Run.summary`, of draws that mean the same in all chains. The largest R-hat is the one that `fit`
        warns about and that a report shows.
        """
        self._check_fitted()
        return self._judged().summary(probability, digits)

    def to_arviz(self) -> Any:
        """Convert the draws to ArviZ, as users see them: in one order, with labels."""
        self._check_fitted()
        draws = {name: np.asarray(values) for name, values in self.draws_.items()}
        run = dataclasses.replace(self.run_, draws=draws, converted=(draws, self._coordinates()))
        return run.to_arviz()

    def report_view(self, run: Run | None = None, **options: Any) -> View:
        """Contents of a report, see `scirocco.models._core.view`."""
        self._check_fitted()
        return self._view(self.run_ if run is None else run, **options)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the fitted model: its run, settings, and what its results need; no pickles and no code."""
        self._check_fitted()
        files.save(self.run_, self._note(self._noted), self._written_arrays(), path, overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **code: Any) -> Self:
        """Load a model from `save`, or from the `store` of a fit, finished or not; draws are read when needed.

        `code` are arguments of the constructor with functions or weights of your own: a file contains no code.
        """
        saved = files.read(cls.__name__, registry.MODELS[cls.__name__].words, path, cls.VALUES)
        with records.understood(os.fspath(path)):
            model = cls(**(saved.settings | code))
            model._settle(saved.run, saved.told, saved.arrays)
        return model

    # -- inside --------------------------------------------------------------------------------------------------------

    def _asked(
        self,
        options: FitOptions,
        *,
        num_samples: int | None = None,
        num_chains: int | None = None,
        thin: int | None = None,
        num_burnin: float | None = None,
        share: float | None = None,
    ) -> AskedDraws:
        """The common arguments, checked; what is None has the given default.

        Without one, None is only for arguments that are None in the constructor: the program then decides.

        `thin` and `num_burnin` (in units of `thin` steps) are for fits without a length. With one, `share` of the run
        is burn-in, and the draws after it are spread evenly.
        """
        samples = num_samples if self.num_samples is None else self.num_samples
        chains = num_chains if self.num_chains is None else self.num_chains
        apart, burn_in = self.thin, self.num_burnin
        if all(options.get(name) is None for name in ("num_steps", "num_epochs", "max_seconds")):
            apart = thin if apart is None else apart
            if burn_in is None and num_burnin is not None:
                burn_in = num_burnin * _checks.positive_int(apart, "thin")
        burn_in = share if burn_in is None else burn_in
        arguments = inspect.signature(type(self)).parameters
        open_ones = {name for name, argument in arguments.items() if argument.default is None}
        return AskedDraws(
            None if samples is None and "num_samples" in open_ones else _checks.positive_int(samples, "num_samples"),
            None if burn_in is None and "num_burnin" in open_ones else check_burnin(burn_in),
            None if apart is None else _checks.positive_int(apart, "thin"),
            None if chains is None and "num_chains" in open_ones else _checks.positive_int(chains, "num_chains"),
            _checks.positive_int(self.seed, "seed", minimum=0),
        )

    def _run(self, program: Program, options: FitOptions, asked: AskedDraws | None = None) -> Self:
        """Run the program, and settle the results; a fit that fails leaves the model as it was."""
        note = self._note(program.told)
        asked = self._asked(options) if asked is None else asked
        run = program.run(type(self).__name__, asked, note, options)
        if run.draws is None or not run.num_draws:
            phases = [phase for phase in run.timing.values() if isinstance(phase, Mapping)]
            raise NoDrawsError.after(run.status, sum(int(phase.get("steps", 0)) for phase in phases))
        files.add_arrays(run, program.arrays)
        self._settle(run, program.told, program.arrays)
        self._warn_if_unmixed()
        return self

    def _settle(self, run: Run, told: dict[str, Any], arrays: Mapping[str, Array]) -> None:
        """Take a run: from a fit or from a file."""
        self.draws_ = self._results(run, told, arrays)
        self.run_, self._noted, self._arrays = run, told, arrays
        if self.draws_ is not run.draws:
            self.run_ = dataclasses.replace(run, converted=(dict(self.draws_), self._coordinates()))

    def _note(self, told: dict[str, Any]) -> dict[str, str]:
        settings = {name: value for name, value in self.get_params().items() if name not in self.CODE}
        return files.note(type(self).__name__, settings, told, self.VALUES)

    def _check_fitted(self) -> None:
        if "run_" not in vars(self):
            raise not_fitted(f"this {type(self).__name__} is not fitted yet: call fit(...) first.")

    def _judged(self) -> Run:
        """The run with the draws whose chains are compared."""
        draws = self._watched()
        labels = {axis: names for axis, names in self._coordinates().items() if axis.rpartition("_dim_")[0] in draws}
        return dataclasses.replace(
            self.run_, draws=draws, path=None, origin=None, converted=(draws, labels) if labels else None
        )

    def _warn_if_unmixed(self) -> None:
        """Warn about the largest R-hat of the summary, unless it may be chance."""
        judged = self._judged()
        check = check_chains(judged.labelled_draws(), judged.group_size, loose=True)
        if check.disagree:
            (r_hat, where), who = check.r_hat, check.who.removeprefix("the ")
            _checks.warn(
                f"the {who} of this {type(self).__name__} have not converged: R-hat of `{where}` is "
                f"{r_hat_in_digits(r_hat)}, and the intervals are unreliable. {self.ADVICE}"
            )

    # -- scikit-learn's interface, without scikit-learn ----------------------------------------------------------------

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
        return {name: vars(self)[name] for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        """Set some arguments of the constructor; they are checked when used."""
        for name, value in params.items():
            if name not in self._names():
                kind = type(self).__name__
                raise InvalidValueError(f"{kind} has no parameter `{name}`. It has {', '.join(self._names())}.")
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

    def _repr_html_(self) -> str:
        """The settings and, after `fit`, the summary of the draws, for notebooks."""
        parts = [tag("pre", repr(self))]
        if "run_" in vars(self):
            parts += [tag("p", repr(self.run_)), html_summary(self._judged().labelled_draws())]
        return join(parts)


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
