"""`sc.load` and `run.save`: runs on disk."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np

from scirocco import _tree
from scirocco.errors import InvalidValueError
from scirocco.run import encoding, records, snapshot
from scirocco.run.result import Run
from scirocco.run.sinks import GROUPS, Kept, store_groups
from scirocco.store import Store, Stored
from scirocco.types import PyTree

_BLOCK = 4_096


def load(path: str | os.PathLike[str]) -> Run:
    """Open a stored run, finished or not, also while another process writes to it.

    The arrays stay on disk: `run.draws` has leaves that are read when they are indexed, and turn into NumPy arrays
    with `np.asarray`. Parameters that were a class of your own come back as dicts. No code is run.

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
    from scirocco.run.family import CHAINS, SHARDS
    from scirocco.run.joining import load_chains

    if CHAINS.is_at(path):
        return load_chains(path)
    if SHARDS.is_at(path):
        raise InvalidValueError(
            f"{path} holds subposteriors, a run for each shard: sc.combine.load opens them."
        )
    stored = Stored.open(path)
    record, progress = stored.record, stored.progress
    arrays = stored.arrays

    def tree(part: str) -> PyTree | None:
        found = arrays.get(GROUPS[part])
        return None if found is None else encoding.build(record["structure"], list(found.values()))

    traces = {name: _trace(name, written, arrays["traces"]) for name, written in record["traces"].items()}
    return Run(
        tree("draws"),
        tree("gradients"),
        dict[str, Any](arrays.get(GROUPS["stats"], {})),
        record["configuration"] | {"num_samples": progress["num_samples"]},
        record["report"],
        progress["timing"],
        _status(stored),
        [(step, dict(values)) for step, values in progress["scores"]],
        traces,
        encoding.build(record["reduced"], list(snapshot.results(stored.read_state()).values())),
        stored.path,
    )


def _status(stored: Stored) -> str:
    """A run that is neither finished nor being written was ended from outside."""
    status = str(stored.progress["status"])
    return "killed" if status == "running" and not stored.running else status


def _trace(name: str, written: dict[str, Any], arrays: dict[str, Any]) -> PyTree:
    shape = encoding.build(written["structure"], list(range(len(written["leaves"]))))
    return encoding.build(written["structure"], [arrays[leaf] for leaf in _tree.leaf_names({name: shape})])


def save(run: Run, path: str | os.PathLike[str], overwrite: bool) -> None:
    """Write a run that was kept in memory; it can be loaded, not resumed."""
    kept = Kept(run.draws, run.gradients, run.stats, run.traces)
    spec = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), kept)
    record = {
        "configuration": run.configuration,
        "structure": encoding.structure(spec.draws) if spec.draws is not None else None,
        "report": records.plain(run.preparation),
        "traces": {
            name: {"structure": encoding.structure(tree), "leaves": records.leaves_spec(tree)}
            for name, tree in spec.traces.items()
        },
        "reducers": [],
        "reduced": encoding.structure(run.reduced),
    }
    progress = {
        "step": run.configuration["num_burnin"] + run.num_draws * run.configuration["thin"],
        "draws": run.num_draws,
        "num_samples": run.configuration["num_samples"],
        "status": run.status,
        "steps_per_second": 0.0,
        "scores": run.scores,
        "timing": run.timing,
        "diverged": None,
    }
    with Store.create(path, store_groups(spec), run.num_chains, record, overwrite=overwrite) as store:
        for part, group in GROUPS.items():
            _append(store, group, getattr(kept, part))
        store.commit(snapshot.save_results(run.reduced), progress)


def _append(store: Store, group: str, tree: PyTree) -> None:
    leaves = jax.tree.leaves(tree)
    if not leaves:
        return
    names = _tree.leaf_names(tree)
    for start in range(0, leaves[0].shape[1], _BLOCK):
        store.append(
            group,
            {
                name: np.asarray(leaf[:, start : start + _BLOCK])
                for name, leaf in zip(names, leaves, strict=True)
            },
        )
