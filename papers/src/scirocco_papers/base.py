"""The base of experiments: an experiment runs, checks the paper's claims, draws a figure, and writes a JSON file.

An experiment is a module with a function `run(settings) -> Outcome`, or a folder whose module `run` has it. It never
prints and never writes: that is done here, the same way for all.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco._console import make_folder, to_json
from scirocco._extras import require
from scirocco._version import versions
from scirocco.errors import InvalidValueError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


CONFIRMED, REFUTED = 2.0, -3.0
"""Standard errors from which on a quick run decides a claim. Refuting one takes more: an exit status is an alarm, and
of some sixty claims one or two are two standard errors on the wrong side by chance."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, what was measured for it here, and whether it holds.

    Attributes
    ----------
    paper
        The sentence, in the paper's words as far as they can be checked.
    here
        The numbers by which it is checked.
    rule
        When it counts as holding.
    holds
        The verdict.
    because
        Empty for a claim that a right implementation should reproduce. Otherwise the reason why this one cannot be
        expected to hold here; it is then shown with its numbers, but does not decide the exit status.
    ours
        Whether no paper makes this claim: it is the library's own, and is counted separately.
    margin
        How far the numbers are from the limit of the rule, in standard errors of this run; negative on the wrong side.
        None if chance cannot move them across it: it plays no part, or the limit is far away.
    undecided
        Whether a quick run is too short to tell, by `margin`. Full runs decide by the rule alone.
    """

    paper: str
    here: str
    rule: str
    holds: bool
    because: str = ""
    ours: bool = False
    margin: float | None = None
    undecided: bool = False

    @property
    def failed(self) -> bool:
        """Expected to hold, and does not."""
        return not (self.holds or self.because or self.undecided)

    def of_a_quick_run(self) -> Claim:
        """The same claim, undecided if its numbers are too near to the limit of the rule."""
        if self.margin is None or self.because:
            return self
        clear = self.margin >= CONFIRMED if self.holds else self.margin <= REFUTED
        return dataclasses.replace(self, undecided=not clear)

    @property
    def verdict(self) -> str:
        """The verdict for the table."""
        if self.because:
            return "yes (not counted)" if self.holds else "no (not counted)"
        if self.undecided:
            return "not decided"
        return "yes" if self.holds else "NO"


def in_errors(*parts: tuple[Any, Any]) -> float:
    """The `margin` of a claim: of each part a distance from its limit and the standard error of it; the least counts.

    An error that is not known decides nothing.
    """
    gaps, errors = np.array(parts, np.float64).T
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.min(np.nan_to_num(gaps / errors, nan=0.0, posinf=math.inf, neginf=-math.inf)))


def error_of(values: Any, of: str = "mean") -> float:
    """The standard error of the mean of independent values, or of their median as if they were normal."""
    values = np.asarray(values, np.float64)
    if values.size < 2:
        return math.nan
    return float(values.std(ddof=1) / values.size**0.5 * (1.0 if of == "mean" else (math.pi / 2) ** 0.5))


@dataclass(frozen=True)
class Settings:
    """What the user of an experiment may choose."""

    quick: bool = False
    data_dir: Path | None = None
    out_dir: Path = Path("results")
    seed: int | None = None
    """None: the experiment's own."""

    def __post_init__(self) -> None:
        if self.data_dir is not None and not self.data_dir.is_dir():
            raise InvalidValueError(f"the data folder {self.data_dir} does not exist or is not a folder.")


@dataclass(frozen=True)
class Outcome:
    """What a run of an experiment yields."""

    claims: list[Claim]
    numbers: dict[str, Any]
    draw: Callable[[Figure], None]
    """Draws on an empty matplotlib figure."""
    notes: list[str] = field(default_factory=list)
    """Findings that are nobody's claim, a sentence each."""


@dataclass(frozen=True)
class Experiment:
    """A figure of a paper that can be reproduced."""

    name: str
    title: str
    figure: str
    """Where it is in the literature."""
    run: Callable[[Settings], Outcome]
    seed: int = 0
    duration: str = ""
    """The duration of a full and of a quick run, as text."""
    needs: tuple[str, ...] = ()
    """Packages in addition to the core ones, checked before the work starts."""
    cite: tuple[str, ...] = ()
    """Keys of the papers in the bibliography of `scirocco cite`."""


def run_of(name: str) -> Callable[[Settings], Outcome]:
    """The function `run` of an experiment's module, or of its folder's module `run`; imported when it is called."""

    def run(settings: Settings) -> Outcome:
        home = Path(__file__).with_name(name)
        module = importlib.import_module(f"scirocco_papers.{name}{'.run' * home.is_dir()}")
        outcome: Outcome = module.run(settings)
        return outcome

    return run


@dataclass(frozen=True)
class Reproduction:
    """A finished experiment and its files."""

    experiment: Experiment
    outcome: Outcome
    record: Path
    picture: Path
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every claim that is expected to hold does."""
        return not any(claim.failed for claim in self.outcome.claims)


def reproduce(experiment: Experiment, settings: Settings) -> Reproduction:
    """Run an experiment; write `<name>.json` and `<name>.png` (with `-quick` for a quick run) to the output folder."""
    from scirocco.demo import save_figure
    from scirocco.run.progress import Clock

    for package in ("matplotlib", *experiment.needs):
        require(package, f"`scirocco reproduce {experiment.name}`")
    if settings.seed is None:
        settings = dataclasses.replace(settings, seed=experiment.seed)
    make_folder(settings.out_dir)
    clock = Clock()
    outcome = experiment.run(settings)
    if settings.quick:
        outcome = dataclasses.replace(outcome, claims=[claim.of_a_quick_run() for claim in outcome.claims])
    seconds = clock.read()
    stem = settings.out_dir / (experiment.name + ("-quick" if settings.quick else ""))
    record, picture = stem.with_suffix(".json"), stem.with_suffix(".png")
    _write_record(record, experiment, settings, outcome, seconds)
    save_figure(outcome.draw, picture)
    return Reproduction(experiment, outcome, record, picture, seconds["wall"])


def _write_record(
    path: Path, experiment: Experiment, settings: Settings, outcome: Outcome, seconds: dict[str, float]
) -> None:
    command = f"scirocco reproduce {experiment.name}{' --quick' * settings.quick} --seed {settings.seed}"
    record = {
        "experiment": experiment.name,
        "title": experiment.title,
        "figure": experiment.figure,
        "command": command,
        "seed": settings.seed,
        "quick": settings.quick,
        "seconds": seconds,
        "claims": [
            {"paper": c.paper, "here": c.here, "rule": c.rule, "holds": c.holds, "counts": not c.because}
            | ({"because": c.because} if c.because else {})
            | ({"ours": True} if c.ours else {})
            | ({"margin": c.margin, "decided": not c.undecided} if settings.quick and c.margin is not None else {})
            for c in outcome.claims
        ],
        "notes": outcome.notes,
        "numbers": outcome.numbers,
        "versions": versions(),
        "machine": machine(),
    }
    path.write_text(json.dumps(to_json(record), indent=1, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")


def machine() -> dict[str, Any]:
    """What it ran on, without names of anybody's."""
    import jax

    return {"cores": os.cpu_count(), "backend": jax.default_backend(), "architecture": platform.machine()}
