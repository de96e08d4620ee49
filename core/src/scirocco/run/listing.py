"""An overview of stored runs: their progress and their convergence so far."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco.diagnostics import ess
from scirocco.diagnostics.columns import Columns
from scirocco.errors import InvalidValueError, SciroccoError
from scirocco.run import records
from scirocco.run.loading import load
from scirocco.run.records import OWN_LOOP, Record
from scirocco.run.result import Run
from scirocco.run.run_group import CHAINS, SHARDS, Family, name_of
from scirocco.store import holds_run, open_stored

NOT_BEGUN = "not started"
_ESS_NUMBERS = 64
_ESS_DRAWS = 20_000


def list_runs(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """List every stored run at or below `path`, as plain values; a damaged run has an `error`.

    Chains that are stored in separate folders count as one run, and so do the runs of the shards of one data set.
    """
    root = Path(path)
    _checks.path(path, "path")
    if not root.exists():
        raise InvalidValueError(f"{root} does not exist.")
    if not root.is_dir():
        raise InvalidValueError(f"{root} is a file, but runs are stored in folders.")
    found = [root] if name_of(root) else sorted(_below(root))
    return [_describe(folder) for folder in found]


def verify_run(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read every file of a stored run (or of each run of a family) once, and say for each run what is damaged."""
    root = os.fspath(path)
    family = next((family for family in (CHAINS, SHARDS) if family.is_at(root)), None)
    if family is None:
        return [_verified(root)]
    members = [family.path(root, number) for number in range(family.read(root)["count"])]
    return [_verified(member) for member in members if holds_run(member)]


def _verified(path: str) -> dict[str, Any]:
    stored = open_stored(path)
    size = sum(array.nbytes for arrays in stored.arrays.values() for array in arrays.values())
    return {"path": stored.path, "bytes": size, "problems": stored.verify()}


def _below(root: Path) -> list[Path]:
    found = []
    for folder, names, _ in os.walk(root):
        if name_of(folder):
            found.append(Path(folder))
            names.clear()  # do not search inside a run
        names[:] = [name for name in names if not name.startswith(".")]
    return found


def _describe(path: Path) -> dict[str, Any]:
    try:
        for family in (CHAINS, SHARDS):
            if family.is_at(path):
                return _describe_family(path, family)
        return _describe_run(path)
    except (SciroccoError, KeyError, TypeError) as error:
        return {"path": str(path), "status": "damaged", "error": str(error)}


def _describe_family(path: Path, family: Family) -> dict[str, Any]:
    """The members as one run: the progress of the slowest, and the status of the worst."""
    folders = [Path(family.path(str(path), number)) for number in range(family.read(str(path))["count"])]
    begun = [_describe_run(folder) for folder in folders if holds_run(folder)]
    statuses = [member["status"] for member in begun] + [NOT_BEGUN] * (len(folders) - len(begun))
    common = {"path": str(path), "kind": family.name, "status": worst(statuses), "members": len(folders)}
    if not begun:
        return common | {"num_chains": 0, "draws": 0, "num_samples": 0, "percent": 0.0, "smallest_ess": None}
    whole = len(begun) == len(folders)
    sizes = [member["smallest_ess"] for member in begun]
    if family == CHAINS:
        sizes = [smallest_ess(load(path))] if whole and None not in sizes else [None]
    return common | {
        **{name: begun[0][name] for name in ("sampler", "estimator", "step_size", "num_samples")},
        "num_chains": sum(member["num_chains"] for member in begun),
        "draws": min(member["draws"] for member in begun) if whole else 0,
        "percent": sum(member["percent"] for member in begun) / len(folders),
        "steps_per_second": sum(member["steps_per_second"] for member in begun),
        "smallest_ess": min(sizes) if whole and None not in sizes else None,
        "updated": min(member["updated"] for member in begun),
    }


def worst(statuses: list[str]) -> str:
    """The status of several runs that count as one: running while one of them is, else the worst."""
    for status in ("running", "diverged", "killed", "interrupted", NOT_BEGUN, "stopped"):
        if status in statuses:
            return status
    return "complete"


def _describe_run(path: Path) -> dict[str, Any]:
    record, progress = records.read(open_stored(path))
    run, steps = load(path), record.num_steps(progress.num_samples)
    return {
        "path": str(path),
        "kind": "run",
        "status": run.status,
        **_method(record),
        "num_chains": record.num_chains,
        "draws": progress.draws,
        "num_samples": progress.num_samples,
        # a chain that diverged keeps the draws before that, and the step of its last commit
        "percent": 100.0 * max(progress.step / steps, progress.draws / max(progress.num_samples, 1)),
        "steps_per_second": progress.steps_per_second,
        # models with their own loop may have huge draws, whose components switch labels between chains
        "smallest_ess": None if record.kind == OWN_LOOP else smallest_ess(run),
        "updated": time.time() - os.path.getmtime(path / "scirocco" / "commit.json"),
    }


def _method(record: Record) -> dict[str, Any]:
    """Sampler, estimator and step size; for a model with its own loop, its name is the sampler."""
    configuration = record.configuration
    sampler = configuration["sampler"]
    if record.kind == OWN_LOOP:
        size = str(configuration.get("step_size", ""))
        return {"sampler": record.model, "estimator": sampler, "step_size": size}
    return {
        "sampler": sampler["name"],
        "estimator": configuration["estimator"]["name"],
        "step_size": sampler.get("step_size"),
    }


def smallest_ess(run: Run) -> float | None:
    """The smallest bulk effective sample size over (at most 64 evenly spaced) parameters; None with too few draws.

    Computed from at most the last 20,000 draws of each chain, and scaled to all draws.
    """
    if run.draws is None or run.num_draws < 8:
        return None
    used = min(run.num_draws, _ESS_DRAWS)
    sizes = ess(Columns(run.named_draws()).spread(_ESS_NUMBERS).last(used).values, group_size=run.group_size)
    finite = sizes[np.isfinite(sizes)]
    return float(finite.min()) * run.num_draws / used if len(finite) else None
