"""What a run folder says of a run: how far it is, its scores, its chains. Nothing is locked, nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scirocco.errors import InvalidValueError, SciroccoError
from scirocco.run import load
from scirocco.run.family import CHAINS, SHARDS
from scirocco.run.listing import NOT_BEGUN, smallest_ess, worst
from scirocco.store import holds_run, open_stored

_CURVE = 400
"""Points of a curve that are read from the disk at most."""


class Part(NamedTuple):
    """A run in a folder: the only one, or that of some chains or of a shard."""

    name: str
    status: str
    step: int = 0
    num_steps: int = 0
    draws: int = 0
    num_samples: int = 0
    num_chains: int = 0
    rate: float = 0.0
    burning: bool = False
    method: str = ""
    scores: tuple[tuple[int, dict[str, float]], ...] = ()
    path: Path | None = None


class State(NamedTuple):
    """All parts of what is watched."""

    path: Path
    kind: str
    """"run", "chains" or "subposteriors"."""
    parts: tuple[Part, ...]

    @property
    def status(self) -> str:
        """Running as long as a part is; else the worst that happened."""
        return worst([part.status for part in self.parts])

    @property
    def share(self) -> float:
        """Of all steps, between 0 and 1."""
        whole = max((part.num_steps for part in self.parts), default=0) * len(self.parts)
        return min(1.0, sum(part.step for part in self.parts) / whole) if whole else 0.0

    @property
    def mark(self) -> tuple[Any, ...]:
        """What changes when there is something new."""
        return tuple((part.step, part.draws, part.status) for part in self.parts)


def read_state(path: Path) -> State:
    """Where a run, a folder of chains or a folder of subposteriors stands now."""
    if not path.exists():
        raise InvalidValueError(f"{path} does not exist.")
    for family in (CHAINS, SHARDS):
        if family.is_at(path):
            count = family.read(str(path))["count"]
            paths = [Path(family.path(str(path), number)) for number in range(count)]
            return State(path, family.name, tuple(_part_or_none(each) for each in paths))
    return State(path, "run", (_part(path),))


def _part_or_none(path: Path) -> Part:
    """A worker may not have begun, or be just beginning."""
    if not holds_run(path):
        return Part(path.name, NOT_BEGUN)
    return _part(path)


def _part(path: Path) -> Part:
    stored = open_stored(path)
    progress, configuration = stored.progress, stored.record["configuration"]
    status = str(progress["status"])
    step, burnin = int(progress["step"]), int(configuration["num_burnin"])
    return Part(
        path.name,
        "killed" if status == "running" and not stored.running else status,
        step,
        burnin + int(progress["num_samples"]) * int(configuration["thin"]),
        int(progress["draws"]),
        int(progress["num_samples"]),
        int(configuration["num_chains"]),
        float(progress["steps_per_second"]),
        step < burnin,
        _method(configuration),
        tuple((int(at), dict(values)) for at, values in progress["scores"]),
        path,
    )


def _method(configuration: dict[str, Any]) -> str:
    sampler = configuration["sampler"]
    if isinstance(sampler, str):
        return f"{configuration['model']} by {sampler}"
    return f"{sampler['name']} with {configuration['estimator']['name']}"


def curves(state: State) -> dict[str, list[float]]:
    """Scores of callbacks along the run (of the first part that has any); else the gradient norm at the draws."""
    scored = next((part.scores for part in state.parts if part.scores), ())
    names = dict.fromkeys(name for _, values in scored for name in values)
    if names:
        return {name: [values[name] for _, values in scored if name in values] for name in names}
    first = next((part for part in state.parts if part.path is not None and part.draws), None)
    if first is None or first.path is None:
        return {}
    norms = open_stored(first.path).arrays.get("sample_stats", {}).get("gradient_norm")
    if norms is None or not norms.shape[1]:
        return {}
    some = np.asarray(norms[:, :: max(1, norms.shape[1] // _CURVE)], np.float64)
    return {"gradient norm": some.mean(axis=0).tolist()}


def effective(state: State) -> float | None:
    """The smallest effective sample size so far; None where it cannot be told (yet), or has no meaning."""
    try:
        if state.kind == "chains":
            found = [load(state.path)]
        else:
            found = [load(part.path) for part in state.parts if part.path is not None]
        if any(isinstance(run.configuration["sampler"], str) for run in found):
            return None  # parts of such models change places between draws
        sizes = [smallest_ess(run) for run in found]
    except SciroccoError:  # a chain that has not begun
        return None
    known = [size for size in sizes if size is not None]
    return min(known) if known and len(known) == len(sizes) else None


def as_plain(state: State) -> dict[str, Any]:
    """All of it for programs: the state, the last values of its curves, its parts."""
    parts = [
        {name: value for name, value in part._asdict().items() if name not in ("scores", "path")}
        for part in state.parts
    ]
    return {
        "path": str(state.path),
        "kind": state.kind,
        "status": state.status,
        "share": state.share,
        "ess": effective(state),
        "scores": {name: values[-1] for name, values in curves(state).items()},
        "parts": parts,
    }
