"""Stored runs at a glance: where they stand, and how good they are so far."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from scirocco._extras import require
from scirocco.errors import InvalidValueError, SciroccoError
from scirocco.run.loading import load
from scirocco.run.result import Run
from scirocco.store import holds_run, open_stored

_ESS_NUMBERS = 64
_ESS_DRAWS = 20_000


def list_runs(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Every stored run at or below `path`, as plain values; a damaged one has an `error`."""
    root = Path(path)
    if not root.exists():
        raise InvalidValueError(f"{root} does not exist.")
    found = [root] if holds_run(root) else sorted(_below(root))
    return [_describe(folder) for folder in found]


def _below(root: Path) -> list[Path]:
    found = []
    for folder, names, _ in os.walk(root):
        if holds_run(folder):
            found.append(Path(folder))
            names.clear()  # what is inside a run is the run's
        names[:] = [name for name in names if not name.startswith(".")]
    return found


def _describe(path: Path) -> dict[str, Any]:
    try:
        stored = open_stored(path)
        run = load(path)
        progress, configuration = stored.progress, run.configuration
        own_loop = isinstance(configuration["sampler"], str)
        steps = configuration["num_burnin"] + progress["num_samples"] * configuration["thin"]
        return {
            "path": str(path),
            "status": run.status,
            **_method(configuration),
            "num_chains": configuration["num_chains"],
            "draws": progress["draws"],
            "num_samples": progress["num_samples"],
            "percent": 100.0 * progress["step"] / steps,
            "steps_per_second": progress["steps_per_second"],
            # draws of models with a loop of their own may be huge, and their parts change places between chains
            "smallest_ess": None if own_loop else smallest_ess(run),
            "updated": time.time() - os.path.getmtime(path / "scirocco" / "commit.json"),
        }
    except (SciroccoError, KeyError, TypeError) as error:
        return {"path": str(path), "status": "damaged", "error": str(error)}


def _method(configuration: dict[str, Any]) -> dict[str, Any]:
    """Sampler, estimator and step size; a model with a loop of its own has its name for the first."""
    sampler = configuration["sampler"]
    if isinstance(sampler, str):
        size = str(configuration.get("step_size", ""))
        return {"sampler": configuration["model"], "estimator": sampler, "step_size": size}
    return {
        "sampler": sampler["name"],
        "estimator": configuration["estimator"]["name"],
        "step_size": sampler.get("step_size"),
    }


def smallest_ess(run: Run) -> float | None:
    """The smallest bulk effective sample size over (at most 64 evenly spread) parameters; None before it can be told.

    From at most 20,000 of the last draws of each chain, scaled up to all.
    """
    if run.draws is None or run.num_draws < 8:
        return None
    arviz = require("arviz", "the effective sample size")
    used = min(run.num_draws, _ESS_DRAWS)
    recent = [np.asarray(leaf[:, -used:], np.float64) for leaf in run.named_draws().values()]
    flat = np.concatenate([leaf.reshape(*leaf.shape[:2], -1) for leaf in recent], axis=2)
    chosen = np.unique(np.linspace(0, flat.shape[2] - 1, _ESS_NUMBERS).astype(int))
    found = [float(arviz.ess(flat[:, :, number], method="bulk")) for number in chosen]
    finite = [value for value in found if math.isfinite(value)]
    return min(finite) * run.num_draws / used if finite else None
