"""What an experiment is: it runs, judges the paper's sentences, draws a figure, and leaves a JSON file behind.

An experiment is one file with a function `run(settings) -> Outcome` and a module constant `EXPERIMENT`. It never prints
and never writes: that is done here, the same way for all.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import io
import json
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from scirocco._extras import require
from scirocco._showing import to_json
from scirocco._version import __version__
from scirocco.errors import InvalidValueError
from scirocco.run.progress import Clock

_REPORTED_PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "optax", "numpyro", "matplotlib")


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, what was measured for it here, and whether it holds.

    Attributes
    ----------
    paper
        The sentence, in the paper's words as far as they can be judged.
    here
        The numbers it is judged by.
    rule
        When it counts as holding.
    holds
        The verdict.
    because
        Empty for a claim that a right implementation should reproduce. Otherwise the reason why this one cannot be
        expected to hold here; it is then shown with its numbers, but does not decide the exit status.
    """

    paper: str
    here: str
    rule: str
    holds: bool
    because: str = ""

    @property
    def failed(self) -> bool:
        """Expected to hold, and does not."""
        return not self.holds and not self.because

    @property
    def verdict(self) -> str:
        """For the table."""
        if self.because:
            return "yes (not counted)" if self.holds else "no (not counted)"
        return "yes" if self.holds else "NO"


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
    draw: Callable[[Any], None]
    """Draws on an empty matplotlib figure."""
    notes: list[str] = field(default_factory=list)
    """Findings that are nobody's claim, a sentence each."""


@dataclass(frozen=True)
class Experiment:
    """A figure of a paper that can be made again."""

    name: str
    title: str
    figure: str
    """Where it is in the literature."""
    run: Callable[[Settings], Outcome]
    seed: int = 0
    duration: str = ""
    """Of a full and of a quick run, in words."""
    needs: tuple[str, ...] = ()
    """Packages besides the core ones, asked for before the work begins."""


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
    for package in ("matplotlib", *experiment.needs):
        require(package, f"`scirocco reproduce {experiment.name}`")
    if settings.seed is None:
        settings = dataclasses.replace(settings, seed=experiment.seed)
    make_folder(settings.out_dir)
    clock = Clock()
    outcome = experiment.run(settings)
    seconds = clock.read()
    stem = settings.out_dir / (experiment.name + ("-quick" if settings.quick else ""))
    record, picture = stem.with_suffix(".json"), stem.with_suffix(".png")
    _write_record(record, experiment, settings, outcome, seconds)
    save_figure(outcome.draw, picture)
    return Reproduction(experiment, outcome, record, picture, seconds["wall"])


def make_folder(path: Path) -> None:
    """Make a folder for results, before the work begins; or say why it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValueError(f"results cannot be written to {path}: {error.strerror or error}.") from error


def save_figure(draw: Callable[[Any], None], path: Path) -> None:
    """Make an empty figure, let `draw` fill it, save it; works without a display and leaves pyplot alone.

    With 256 colours, of which figures like ours need a few: a third of the bytes for the same picture.
    """
    matplotlib = require("matplotlib", "drawing a figure")
    figure_class = importlib.import_module("matplotlib.figure").Figure
    style = {"axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 11, "font.size": 9.5}
    with matplotlib.rc_context({**style, "legend.frameon": False, "savefig.dpi": 115}):
        figure = figure_class(layout="constrained")
        draw(figure)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png")
    shrink(drawn, path)


def shrink(source: Any, path: Path) -> None:
    """Write a PNG (a path or a stream) with a palette of its own in place of four bytes a pixel."""
    images = importlib.import_module("PIL.Image")  # matplotlib cannot be installed without it
    with images.open(source) as image:
        few = image.convert("RGB").quantize(256, method=images.Quantize.MEDIANCUT, dither=images.Dither.NONE)
    few.save(path, format="PNG", optimize=True)


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
            for c in outcome.claims
        ],
        "notes": outcome.notes,
        "numbers": outcome.numbers,
        "versions": versions(),
        "machine": machine(),
    }
    path.write_text(
        json.dumps(to_json(record), indent=1, ensure_ascii=False, allow_nan=False) + "\n", "utf-8"
    )


def versions() -> dict[str, str]:
    """Of Python, scirocco and the packages that matter, as far as they are installed."""
    found = {"python": platform.python_version(), "scirocco": __version__}
    for package in _REPORTED_PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """What it ran on, without names of anybody's."""
    return {"cores": os.cpu_count(), "backend": jax.default_backend(), "architecture": platform.machine()}
