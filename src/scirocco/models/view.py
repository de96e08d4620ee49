"""What a fitted model shows in a report: the one contract between models and reports.

A report asks an object for `report_view(run=None, **options)` and draws the `View` that comes back; it knows no model.
The models of this library answer by it, and so may any object of a user's own. `run` is the stored run that the model
was opened from, None where the object is to bring its own; `options` are those that the report was given (`documents`,
`names`), and those that mean nothing to the object are ignored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from scirocco.drawing.markup import Section
from scirocco.errors import InvalidValueError, SciroccoError
from scirocco.run import Run, load
from scirocco.store import StoredArray

Array = np.ndarray[Any, np.dtype[Any]]
Draws = Mapping[str, Any]
"""Arrays (chain, draw, ...) by name, in memory or on disk."""


class Seen(Protocol):
    """The draws that are charted, as the report has summarised them."""

    @property
    def names(self) -> list[str]:
        """Of the parameters."""

    @property
    def values(self) -> Array:
        """(chain, draw, parameter)."""

    @property
    def summary(self) -> dict[str, Array]:
        """A value a parameter: "mean", "sd", "low" and "high" (90 %), "lower" and "upper" (50 %), and diagnostics."""

    @property
    def cut(self) -> str:
        """A sentence where not all parameters, or not all draws, are looked at."""


def _no_sections(seen: Seen) -> list[Section]:
    return []


@dataclasses.dataclass(frozen=True)
class View:
    """What a report shows of a fit.

    Attributes
    ----------
    run
        The run: what was run, how long, with which settings.
    title, size
        The heading, and the line under it: by default rows, parameters, chains and draws.
    judged
        The run with the draws that are judged, where not all draws of `run` can be compared between draws and chains.
    about
        What is judged and charted, where that is not obvious.
    charted
        Draws that are charted, by name, where they are not those that are judged.
    sections
        Makes sections of the model's own, which stand before the charts of the draws.
    shows_scores
        Whether those sections show `run.scores` already.
    """

    run: Run
    title: str
    size: str = ""
    judged: Run | None = None
    about: str = ""
    charted: Draws | None = None
    sections: Callable[[Seen], list[Section]] = _no_sections
    shows_scores: bool = False

    @property
    def to_judge(self) -> Run:
        """The run with the draws that are judged."""
        return self.run if self.judged is None else self.judged

    @property
    def to_chart(self) -> Draws:
        """Draws (chain, draw, ...) by name."""
        return self.to_judge.named_draws() if self.charted is None else self.charted


@runtime_checkable
class Reportable(Protocol):
    """A fitted model that a report can ask."""

    def report_view(self, run: Run | None = None, **options: Any) -> View:
        """What a report shows of it."""


def size_of(run: Run, unit: str = "parameters", width: int | None = None) -> str:
    """Rows, columns, chains, draws and how it ended."""
    rows = run.configuration.get("num_rows", 0)
    known = f"{rows:,} rows, " if rows > 1 else ""
    width = int(run.configuration.get("dimension", 0)) if width is None else width
    unit = unit.removesuffix("s") if width == 1 else unit
    chains = "1 chain" if run.num_chains == 1 else f"{run.num_chains} chains"
    return f"{known}{width:,} {unit}; {chains} × {run.num_draws:,} draws, {run.status}"


def with_draws(run: Run, draws: Draws, only_moving: bool = True) -> Run:
    """The run with other draws, to be judged. Numbers that never move say nothing of mixing, unless nothing moves."""
    moving = {name: values for name, values in draws.items() if np.ptp(values) != 0} if only_moving else {}
    return dataclasses.replace(run, draws=moving or dict(draws), path=None, origin=None)


def own_run(model: object, run: Run | None = None) -> Run:
    """The run that is given, or else the one that the model was fitted by; it must hold draws."""
    found = getattr(model, "run_", None) if run is None else run
    if not isinstance(found, Run):
        raise InvalidValueError(
            f"this {type(model).__name__} holds no run: it has not been fitted, or was loaded without its draws. "
            "Report the folder of its run, or fit it first."
        )
    return need_draws(found)


def need_draws(run: Run) -> Run:
    """The run, unless it holds no draws."""
    if run.draws is None or not run.num_draws:
        raise InvalidValueError(
            f"a report needs draws, and this run holds none (status: {run.status}). Go on with it, or sample with "
            "keep_draws=True."
        )
    return run


def run_behind(name: str, draws: Draws, stats: Draws, sampler: str, seed: int, status: str) -> Run:
    """The run of a model that has draws but no run: the stored one, or else what is known of it.

    `status` says how it came to its draws.
    """
    first = next(iter(draws.values()))
    if isinstance(first, StoredArray):
        try:
            return load(first.root)
        except SciroccoError:  # moved or changed since: the model is still at hand
            pass
    number = sum(int(np.prod(leaf.shape[2:], dtype=int)) for leaf in draws.values())
    known = {"model": name, "sampler": sampler, "dimension": number, "seed": seed}
    return Run(dict(draws), None, dict(stats), known, {}, {}, status, [])
