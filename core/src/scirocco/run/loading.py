"""Runs on disk: `sc.load`, `run.save`, and an overview of their progress and convergence."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from scirocco import _checks, _tree
from scirocco.diagnostics import ess
from scirocco.diagnostics.columns import Columns
from scirocco.errors import InvalidValueError, SciroccoError, StoreError
from scirocco.run import encoding, records
from scirocco.run.certificate import Certificate
from scirocco.run.keeping import GROUPS, Kept, store_groups
from scirocco.run.records import OWN_LOOP, Progress, Record
from scirocco.run.result import Run
from scirocco.run.run_group import CHAINS, SHARDS, RunFamily, name_of
from scirocco.store import JoinedArray, Store, Stored, holds_run, open_stored
from scirocco.types import Params, PyTree

COLUMNS = "columns_of_coef"
"""The note with the names of the columns of the data, as JSON."""
_BLOCK, _BLOCK_BYTES = 4_096, 1 << 25
"""The most draws, and bytes, that are written at a time."""


def load(path: str | os.PathLike[str]) -> Run:
    """Open a stored run, complete or not, even while another process writes to it.

    The arrays stay on disk: the leaves of `run.draws` are read when you index them, and `np.asarray` turns them into
    NumPy arrays. Parameters that were a class of your own are returned as dicts. No stored code is executed.

    Examples
    --------
    >>> import tempfile, jax.numpy as jnp, scirocco as sc
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = sc.sample(model, jnp.ones(100), jnp.array(1.0), sampler=sc.SGLD(1e-3), num_samples=200,
    ...                   store=folder, progress=False)
    ...     run = sc.load(folder)
    ...     run.draws[:, -10:].shape, run.status
    ((1, 10), 'complete')
    """
    _checks.path(path, "path")
    if CHAINS.is_at(path):
        return load_chains(path)
    if SHARDS.is_at(path):
        raise InvalidValueError(f"{path} holds subposteriors, one run per shard: open them with sc.combine.load.")
    stored = Stored.open(path)
    with records.understood(stored.path):
        return _loaded(stored)


def _loaded(stored: Stored) -> Run:
    record, progress = records.read(stored)
    arrays = stored.arrays

    def tree(part: str) -> PyTree | None:
        found = arrays.get(GROUPS[part])
        if found and record.structure is None:
            raise ValueError("it has draws, but not their structure")
        return None if found is None else encoding.build(record.structure, list(found.values()))

    traces = {name: _trace(name, written, arrays["traces"]) for name, written in record.traces.items()}
    found = Run(
        tree("draws"),
        tree("gradients"),
        dict[str, Any](arrays.get(GROUPS["stats"], {})),
        record.configuration | {"num_samples": progress.num_samples},
        record.report,
        progress.timing,
        records.status_of(stored),
        progress.scores,
        traces,
        encoding.build(record.reduced, list(encoding.results_in(stored.read_state()).values())),
        stored.path,
        None if progress.certificate is None else Certificate.from_json(progress.certificate),
    )
    labels = _labels(found, record.notes or {})
    return dataclasses.replace(found, converted=(found.draws, labels)) if labels else found


def _labels(run: Run, notes: dict[str, str]) -> dict[str, list[str]]:
    """The names of columns that a run from a configuration file has kept, by the axis of the coefficients."""
    if COLUMNS not in notes or not isinstance(run.draws, dict) or "coef" not in run.draws:
        return {}
    return {f"coef_dim_{len(run.draws['coef'].shape) - 3}": json.loads(notes[COLUMNS])}


def _trace(name: str, written: dict[str, Any], arrays: dict[str, Any]) -> PyTree:
    shape = encoding.build(written["structure"], list(range(len(written["leaves"]))))
    return encoding.build(written["structure"], [arrays[leaf] for leaf in _tree.leaf_names({name: shape})])


def save(
    run: Run,
    path: str | os.PathLike[str],
    overwrite: bool,
    *,
    notes: dict[str, str] | None = None,
    fitted: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a run that is in memory; it can be loaded, but not resumed.

    `notes` and `fitted` are what a model of `sc.models` needs in addition to the draws.
    """
    _checks.path(path, "path")
    kept = Kept(run.draws, run.gradients, run.stats, run.traces)
    spec = _spec(kept)
    record = Record(
        configuration=run.configuration,
        notes=notes,
        structure=encoding.structure(spec.draws),
        report=records.plain(run.preparation),
        traces=records.trace_specs(spec.traces),
        reduced=encoding.structure(run.reduced),
    )
    progress = Progress(
        record.num_steps(run.num_draws),
        run.num_draws,
        run.configuration["num_samples"],
        run.status,
        scores=run.scores,
        timing=run.timing,
    )
    state = encoding.save_results(run.reduced) | encoding.save_fitted(fitted or {})
    write(path, kept, record, progress, state, overwrite)


def write(
    path: str | os.PathLike[str],
    kept: Kept,
    record: Record,
    progress: Progress,
    state: dict[str, np.ndarray],
    overwrite: bool,
) -> None:
    """Write a store of a run that has ended."""
    groups, num_chains = store_groups(_spec(kept)), jax.tree.leaves(kept)[0].shape[0]
    with Store.whole(path, groups, num_chains, record.to_json(), overwrite=overwrite) as store:
        for part, group in GROUPS.items():
            _append(store, group, kept._asdict()[part])
        store.commit(state, progress.to_json())


def _spec(kept: Kept) -> Kept:
    """The shapes and dtypes of one draw of one chain."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), kept)


def _append(store: Store, group: str, tree: PyTree) -> None:
    leaves = jax.tree.leaves(tree)
    if not leaves:
        return
    names, num_draws = _tree.leaf_names(tree), leaves[0].shape[1]
    total = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
    many = max(1, min(_BLOCK, _BLOCK_BYTES * num_draws // max(total, 1)))  # a draw may be large
    for start in range(0, num_draws, many):
        part = [np.asarray(leaf[:, start : start + many]) for leaf in leaves]
        store.append(group, dict(zip(names, part, strict=True)))


def load_chains(folder: str | os.PathLike[str], params: Params | None = None) -> Run:
    """The run whose chains are in separate folders; arrays stay on disk."""
    root = os.path.abspath(os.fspath(folder))
    page = CHAINS.read(root)
    runs = []
    for number in range(page["count"]):
        try:
            runs.append(load(CHAINS.path(root, number)))
        except (SciroccoError, OSError) as error:
            raise StoreError(
                f"chain {number} cannot be opened: {error} If it has not started, start it with sc.sample(..., "
                "resume=True). If a worker wrote it, workers and client must share the disk."
            ) from error
    return as_params(join_runs(runs, root), params)


def as_params(run: Run, params: Params | None) -> Run:
    """The run with draws in the structure of the parameters, where that is known."""
    if params is None or run.draws is None:
        return run
    return dataclasses.replace(run, draws=like(params, run.draws), gradients=like(params, run.gradients))


def draws_made(folder: str) -> list[int]:
    """The number of draws that each chain has made; 0 for a chain that has not started."""
    paths = [CHAINS.path(folder, number) for number in range(CHAINS.read(folder)["count"])]
    return [records.read(open_stored(path))[1].draws if holds_run(path) else 0 for path in paths]


def load_begun(folder: str, params: Params | None) -> Run | None:
    """The draws of chains that ended early, cut to the shortest; chains without draws are left out."""
    made = draws_made(folder)
    if not any(made):
        return None
    runs = [load(CHAINS.path(folder, number)) for number, count in enumerate(made) if count]
    return as_params(join_runs(runs, os.path.abspath(folder)), params)


def join_runs(runs: list[Run], path: str | None) -> Run:
    """Join chains, cut to the shortest."""
    first, parts = runs[0], [(run.draws, run.gradients, run.stats, run.traces) for run in runs]
    if any(run.draws is None and first.draws is not None for run in runs):
        raise StoreError("some chains have no draws yet: resume them first.")
    draws, gradients, stats, traces = jax.tree.map(lambda *leaves: JoinedArray(leaves), *parts)
    configuration = {key: value for key, value in first.configuration.items() if key != "first_chain"}
    configuration["num_chains"] = sum(run.configuration["num_chains"] for run in runs)
    status = next((run.status for run in runs if run.status != "complete"), "complete")
    reduced = jax.tree.map(lambda *leaves: np.concatenate(leaves), *[run.reduced for run in runs])
    timing = _timing([run.timing for run in runs])
    joined = Run(draws, gradients, stats, configuration, first.preparation, timing, status, [], traces, reduced, path)
    return joined if first.converted is None else dataclasses.replace(joined, converted=(draws, first.converted[1]))


def _timing(timings: list[dict[str, Any]]) -> dict[str, Any]:
    """The longest wall time, the total CPU time, the steps per chain."""
    found: dict[str, Any] = {}
    for phase in timings[0]:
        those = [timing[phase] for timing in timings if phase in timing]
        found[phase] = {
            name: sum(t[name] for t in those) if name == "cpu" else max(t[name] for t in those) for name in those[0]
        }
    return found


def in_memory(run: Run) -> Run:
    """The run with its arrays read into memory."""
    parts = (run.draws, run.gradients, run.stats, run.traces)
    draws, gradients, stats, traces = jax.tree.map(np.asarray, parts)
    return dataclasses.replace(run, draws=draws, gradients=gradients, stats=stats, traces=traces, path=None)


def like(params: Params, tree: PyTree) -> PyTree:
    """Restore the user's class, which a store returns as a dict whose leaves have the same names."""
    if tree is None:
        return None
    named = dict(zip(_tree.leaf_names(tree), jax.tree.leaves(tree), strict=True))
    leaves = [named[name] for name in _tree.leaf_names(params)]
    return jax.tree.unflatten(jax.tree.structure(params), leaves)


NOT_BEGUN = "not started"
_ESS_NUMBERS, _ESS_DRAWS = 64, 20_000
"""Parameters, and last draws of each chain, from which effective sizes are listed."""


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


def _describe_family(path: Path, family: RunFamily) -> dict[str, Any]:
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
