"""What every model with `fit`, `save` and `load` is: one driver, one file format, one policy for runs without draws."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from scirocco import _checks
from scirocco.diagnostics.columns import Columns
from scirocco.diagnostics.frames import html_summary
from scirocco.diagnostics.measures import rhat
from scirocco.drawing.markup import Html, join, tag
from scirocco.errors import NoDrawsError
from scirocco.models._core import files, registry
from scirocco.models._core.conventions import Conventions, not_fitted
from scirocco.models._core.length import Asked, check_burnin
from scirocco.models._core.program import FitOptions, Program
from scirocco.models._core.view import View
from scirocco.run import records
from scirocco.run.result import Run

Array = np.ndarray[Any, np.dtype[Any]]

_LEAST_DRAWS = 20
"""Draws of a chain below which R-hat says nothing."""
_LIMIT = 1.1
"""R-hat above which `fit` warns."""
_CHANCE = 12.0
"""Half-chains of n independent draws exceed R-hat² = 1 + 12 / n in one of 2,000 parameters."""


class FittedModel(Conventions):
    """A model with posterior draws.

    A model makes a program of its data in `fit`, and calls `_run`. It writes `_results`, which turns the draws into
    what users see, for a fit and for a file; `_watched`, what is compared between chains; and `_view`.
    """

    ADVICE: ClassVar[str] = "Run the chains longer (num_epochs)."
    """What to do if chains disagree."""
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings of papers, by name."""
    CODE: ClassVar[tuple[str, ...]] = ()
    """Arguments with functions or weights of the user, which a file does not have: they are passed to `load`."""
    VALUES: ClassVar[tuple[type, ...]] = ()
    """Classes of arguments that a file may contain: dataclasses or named tuples of plain values."""

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

    # -- a model writes these -----------------------------------------------------------------------------------------

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

    # -- and has these ------------------------------------------------------------------------------------------------

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

    # -- inside -------------------------------------------------------------------------------------------------------

    def _asked(
        self,
        options: FitOptions,
        *,
        num_samples: int | None = None,
        num_chains: int | None = None,
        thin: int | None = None,
        num_burnin: float | None = None,
        share: float | None = None,
    ) -> Asked:
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
        return Asked(
            None
            if samples is None and "num_samples" in open_ones
            else _checks.positive_int(samples, "num_samples"),
            None if burn_in is None and "num_burnin" in open_ones else check_burnin(burn_in),
            None if apart is None else _checks.positive_int(apart, "thin"),
            None
            if chains is None and "num_chains" in open_ones
            else _checks.positive_int(chains, "num_chains"),
            _checks.positive_int(self.seed, "seed", minimum=0),
        )

    def _run(self, program: Program, options: FitOptions, asked: Asked | None = None) -> Self:
        """Run the program, and settle the results; a fit that fails leaves the model as it was."""
        note = self._note(program.told)
        asked = self._asked(options) if asked is None else asked
        run = program.run(type(self).__name__, asked, note, options)
        if run.draws is None or not run.num_draws:
            raise NoDrawsError.after(run.status, _steps_made(run))
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
        labels = {
            axis: names for axis, names in self._coordinates().items() if axis.rpartition("_dim_")[0] in draws
        }
        return dataclasses.replace(
            self.run_, draws=draws, path=None, origin=None, converted=(draws, labels) if labels else None
        )

    def _warn_if_unmixed(self) -> None:
        """Warn about the largest R-hat of the summary, unless it may be chance."""
        judged = self._judged()
        if judged.num_draws < _LEAST_DRAWS:
            return
        alone, length = judged.num_chains == 1, judged.num_draws // 2
        worst, where = 1.0, ""
        for part in Columns(judged.labelled_draws()).parts():
            values = part.values
            if alone:  # its halves are compared
                values = values[0, : 2 * length].reshape(2, length, -1)
            largest = np.nan_to_num(rhat(values, group_size=judged.group_size), nan=1.0)
            if largest.max(initial=1.0) > worst:
                worst, where = float(largest.max()), part.names[int(largest.argmax())]
        half = length // 2 if alone else length
        if worst > max(_LIMIT, (1 + _CHANCE / half) ** 0.5):
            who = "halves of the only chain" if alone else "chains"
            _checks.warn(
                f"the {who} of this {type(self).__name__} have not converged: R-hat of `{where}` is {worst:.2f}, and "
                f"the intervals are unreliable. {self.ADVICE}"
            )

    def _html_of_fit(self) -> Html:
        if "run_" not in vars(self):
            return Html("")
        return join([tag("p", repr(self.run_)), html_summary(self._judged().labelled_draws())])


def _steps_made(run: Run) -> int:
    """Steps of all phases of a run."""
    return int(sum(phase.get("steps", 0) for phase in run.timing.values() if isinstance(phase, Mapping)))
