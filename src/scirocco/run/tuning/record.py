"""What tuning found: the choice, everything that was tried, and how it fared."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Trial:
    """One setting and how it fared."""

    settings: dict[str, Any]
    """Values of what was varied: `step_size`, `friction`, `batch_size`, ..."""
    ksd: list[float]
    """Stein discrepancy after each round it took part in (n exact draws have about 1/√n of it); NaN: it diverged."""
    first_guess: bool = False
    """Whether this is what the curvature alone would choose."""

    @property
    def rounds(self) -> int:
        """Rounds it took part in."""
        return len(self.ksd)


@dataclass(frozen=True)
class Tuning:
    """The outcome of `sc.analysis.tune`.

    Attributes
    ----------
    sampler, estimator
        With the chosen settings: ready for `sc.sample`.
    trials
        Everything that was tried, best first.
    seconds
        Of the search and what it needs (the posterior's shape), without the estimator's own set-up (the mode).
    condition
        Largest over smallest curvature of the posterior at its mode; None when it was not looked at.
    num_steps
        Steps a setting made in each round.
    method
        "halving", "grid" or "curvature".
    """

    sampler: Any
    estimator: Any
    trials: list[Trial]
    seconds: float
    condition: float | None
    num_steps: int
    method: str

    @property
    def best(self) -> Trial:
        """The chosen one."""
        return self.trials[0]

    @property
    def curve(self) -> dict[str, np.ndarray]:
        """Step sizes in ascending order and the discrepancy of each after the first round."""
        first = sorted((t.settings["step_size"], t.ksd[0]) for t in self.trials if t.ksd)
        sizes, values = zip(*first, strict=True) if first else ((), ())
        return {"step_size": np.array(sizes), "ksd": np.array(values)}

    def record(self) -> dict[str, Any]:
        """As plain numbers, for `run.preparation`."""
        trials = [
            {"settings": t.settings, "ksd": [_number(v) for v in t.ksd], "first_guess": t.first_guess}
            for t in self.trials
        ]
        return {
            "chosen": self.best.settings,
            "method": self.method,
            "seconds": self.seconds,
            "condition": self.condition,
            "num_steps": self.num_steps,
            "trials": trials,
        }

    def __repr__(self) -> str:
        return self.table()

    def table(self, rows: int = 12) -> str:
        """The best settings, a line each: what they are, their discrepancy after each round."""
        names = list(self.trials[0].settings)
        most = max(t.rounds for t in self.trials)
        head = [*names, *(f"KSD, round {r + 1}" for r in range(most)), ""]
        body = [
            [*(_show(t.settings[name]) for name in names), *_ksd(t, most), "first guess" * t.first_guess]
            for t in self.trials
        ]
        shown = body[:rows] + [row for row in body[rows:] if row[-1]]
        widths = [max(len(row[k]) for row in (head, *shown)) for k in range(len(head))]
        lines = [
            "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in (head, *shown)
        ]
        title = (
            f"{_name(self.sampler)}: {_settings(self.best.settings)}, the best of {len(self.trials)} settings"
        )
        left = len(body) - len(shown)
        more = [f"... and {left} more"] if left > 0 else []
        return "\n".join([f"{title} ({self.seconds:.1f} s)", *lines, *more])


def _name(sampler: Any) -> str:
    inner = getattr(sampler, "inner", None)
    return (
        type(sampler).__name__
        if inner is None
        else f"{type(inner).__name__}, preconditioned ({sampler.metric})"
    )


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_show(value)}" for name, value in settings.items())


def _show(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _ksd(trial: Trial, most: int) -> list[str]:
    shown = ["diverged" if math.isnan(value) else f"{value:.3g}" for value in trial.ksd]
    return shown + [""] * (most - len(shown))


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def with_rounds(trial: Trial, value: float) -> Trial:
    """The trial after one more round."""
    return dataclasses.replace(trial, ksd=[*trial.ksd, value])
