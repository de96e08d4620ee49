"""Going on with a run that was started from a file."""

from __future__ import annotations

from pathlib import Path

from scirocco.errors import InvalidValueError
from scirocco.jobs.job import read_job
from scirocco.run import Run, resume
from scirocco.run.family import CHAINS, SHARDS
from scirocco.store import open_stored


def take_up(path: Path, num_samples: int | None, config: Path | None = None, progress: bool = True) -> Run:
    """Go on with a stored run that was started from a file."""
    if SHARDS.is_at(path):
        raise InvalidValueError(
            f"{path} holds subposteriors, a run for each shard: go on in Python, with the call of "
            "sc.combine.subposteriors that began them."
        )
    written = origin(path)
    _refuse_others(path)
    if config is None and written is None:
        raise InvalidValueError(
            f"the run in {path} was not started from a configuration file, and its model is code that a store does not "
            f"hold. Go on in Python, sc.resume({str(path)!r}, model, data), or name a file with --config."
        )
    job = read_job(config or Path(written or ""))
    return resume(
        path,
        job.model,
        job.data,
        params=job.params,
        num_samples=num_samples,
        reducers=job.options.get("reducers"),
        progress=progress,
    )


def origin(path: Path) -> str | None:
    """The configuration file that a stored run was started from."""
    found = open_stored(_first(path)).record.get("notes", {}).get("config")
    return None if found is None else str(found)


def _first(path: Path) -> Path:
    """The run itself; of chains in a folder each the first."""
    return Path(CHAINS.path(str(path), 0)) if CHAINS.is_at(path) else path


def _refuse_others(path: Path) -> None:
    """Models with a loop of their own have a command of their own."""
    model = open_stored(_first(path)).record["configuration"].get("model")
    command = {"LDA": "topics fit", "DPMixture": "cluster fit"}.get(str(model))
    if command is not None:
        raise InvalidValueError(
            f"{path} holds a fitted {model}: go on with the command that began it, with --resume added: "
            f"scirocco {command} ... --out {path} --resume"
        )
