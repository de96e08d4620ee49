"""The interface between models and reports.

A report calls `report_view(run=None, **options)` of an object and shows the `View` that it returns; it does not depend
on any model. The models of this library have this method, and your own objects may have it too. `run` is the stored run
that the model was loaded from, None to use the run of the object; `options` are those of the report (`documents`,
`names`), and an object ignores the options that it does not use.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from scirocco.drawing.markup import Section
from scirocco.errors import InvalidValueError
from scirocco.run import Run

Array = np.ndarray[Any, np.dtype[Any]]
Draws = Mapping[str, Any]
"""Arrays (chain, draw, ...) by name, in memory or on disk."""


class Seen(Protocol):
    """The plotted draws, as summarised by the report."""

    @property
    def names(self) -> list[str]:
        """Names of the parameters."""

    @property
    def values(self) -> Array:
        """Draws, (chain, draw, parameter)."""

    @property
    def summary(self) -> dict[str, Array]:
        """Value per parameter: "mean", "sd", "low" and "high" (90 %), "lower" and "upper" (50 %), and diagnostics."""

    @property
    def cut(self) -> str:
        """A sentence that says if parameters or draws were left out."""


@dataclasses.dataclass(frozen=True)
class View:
    """Contents of a report of a fit.

    Attributes
    ----------
    run
        The run: its model, length and settings.
    title, size
        The heading, and the line under it: by default rows, parameters, chains and draws.
    judged
        The run with the draws to diagnose, if not all draws of `run` can be compared between draws and chains.
    about
        Description of what is diagnosed and plotted, if that is not obvious.
    charted
        Draws to plot, by name, if they differ from those to diagnose.
    sections
        Creates the sections of the model, which precede the plots of the draws.
    shows_scores
        Whether those sections show `run.scores`.
    """

    run: Run
    title: str
    size: str = ""
    judged: Run | None = None
    about: str = ""
    charted: Draws | None = None
    sections: Callable[[Seen], list[Section]] = lambda seen: []
    shows_scores: bool = False

    @property
    def to_judge(self) -> Run:
        """The run with the draws to diagnose."""
        return self.run if self.judged is None else self.judged

    @property
    def to_chart(self) -> Draws:
        """Draws (chain, draw, ...) to plot, by name."""
        return self.to_judge.labelled_draws() if self.charted is None else self.charted


@runtime_checkable
class Reportable(Protocol):
    """A fitted model with a report."""

    def report_view(self, run: Run | None = None, **options: Any) -> View:
        """Contents of a report of the model."""


def size_of(run: Run, unit: str = "parameters", width: int | None = None) -> str:
    """A text with the numbers of rows, columns, chains and draws, and the status."""
    rows = run.configuration.get("num_rows", 0)
    known = f"{rows:,} rows, " if rows > 1 else ""
    width = int(run.configuration.get("dimension", 0)) if width is None else width
    unit = unit.removesuffix("s") if width == 1 else unit
    chains = "1 chain" if run.num_chains == 1 else f"{run.num_chains} chains"
    return f"{known}{width:,} {unit}; {chains} × {run.num_draws:,} draws, {run.status}"


def with_draws(run: Run, draws: Draws) -> Run:
    """The run with other draws, to diagnose. Constant quantities are omitted, unless all are constant."""
    moving = {name: values for name, values in draws.items() if np.ptp(values) != 0}
    return dataclasses.replace(run, draws=moving or dict(draws), path=None, origin=None, converted=None)


def own_run(model: object, run: Run | None = None) -> Run:
    """The given run, or the run of the fit of `model`; it must have draws."""
    found = getattr(model, "run_", None) if run is None else run
    if not isinstance(found, Run):
        raise InvalidValueError(
            f"this {type(model).__name__} has no run: it has not been fitted, or was loaded without its draws. "
            "PlannedFit it first, or report the folder of its run."
        )
    return need_draws(found)


def need_draws(run: Run) -> Run:
    """The run; an error if it has no draws."""
    if run.draws is None or not run.num_draws:
        raise InvalidValueError(
            f"a report requires draws, and this run has none (status: {run.status}). Resume it, or sample with "
            "keep_draws=True."
        )
    return run
