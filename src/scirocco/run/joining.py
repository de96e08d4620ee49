"""Runs of single chains as one run of several."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import jax
import numpy as np

from scirocco import _tree
from scirocco.errors import SciroccoError, StoreError
from scirocco.run.family import CHAINS
from scirocco.run.loading import load
from scirocco.run.result import Run
from scirocco.store import JoinedArray, holds_run, open_stored
from scirocco.types import Params, PyTree


def load_chains(folder: str | os.PathLike[str], params: Params | None = None) -> Run:
    """The run whose chains are in a folder each; arrays stay on the disk."""
    root = os.path.abspath(os.fspath(folder))
    page = CHAINS.read(root)
    runs = []
    for number in range(page["count"]):
        try:
            runs.append(load(CHAINS.path(root, number)))
        except (SciroccoError, OSError) as error:
            raise StoreError(
                f"chain {number} cannot be opened: {error} One that has not begun is begun by sc.sample(..., "
                "resume=True); one that a worker wrote must be on a disk that workers and client share."
            ) from error
    return as_params(join_runs(runs, root), params)


def as_params(run: Run, params: Params | None) -> Run:
    """The run with draws in the structure of the parameters, where that is known."""
    if params is None or run.draws is None:
        return run
    return dataclasses.replace(run, draws=like(params, run.draws), gradients=like(params, run.gradients))


def draws_made(folder: str) -> list[int]:
    """Draws that each chain has made; 0 for one that has not begun."""
    paths = [CHAINS.path(folder, number) for number in range(CHAINS.read(folder)["count"])]
    return [open_stored(path).progress["draws"] if holds_run(path) else 0 for path in paths]


def load_begun(folder: str, params: Params | None) -> Run | None:
    """What there is of chains that were ended early, cut to the shortest; those without draws are left out."""
    made = draws_made(folder)
    if not any(made):
        return None
    runs = [load(CHAINS.path(folder, number)) for number, count in enumerate(made) if count]
    return as_params(join_runs(runs, os.path.abspath(folder)), params)


def join_runs(runs: list[Run], path: str | None) -> Run:
    """Chains side by side, cut to the shortest."""
    first, parts = runs[0], [(run.draws, run.gradients, run.stats, run.traces) for run in runs]
    if any(run.draws is None and first.draws is not None for run in runs):
        raise StoreError("some chains have no draws yet: go on with them first.")
    draws, gradients, stats, traces = jax.tree.map(lambda *leaves: JoinedArray(leaves), *parts)
    configuration = {key: value for key, value in first.configuration.items() if key != "first_chain"}
    configuration["num_chains"] = sum(run.configuration["num_chains"] for run in runs)
    status = next((run.status for run in runs if run.status != "complete"), "complete")
    reduced = jax.tree.map(lambda *leaves: np.concatenate(leaves), *[run.reduced for run in runs])
    timing = _timing([run.timing for run in runs])
    return Run(
        draws, gradients, stats, configuration, first.preparation, timing, status, [], traces, reduced, path
    )


def _timing(timings: list[dict[str, Any]]) -> dict[str, Any]:
    """The longest wall time, all CPU time, the steps of a chain."""
    found: dict[str, Any] = {}
    for phase in timings[0]:
        those = [timing[phase] for timing in timings if phase in timing]
        found[phase] = {
            name: sum(t[name] for t in those) if name == "cpu" else max(t[name] for t in those)
            for name in those[0]
        }
    return found


def in_memory(run: Run) -> Run:
    """The run with its arrays read from the disk."""
    parts = (run.draws, run.gradients, run.stats, run.traces)
    draws, gradients, stats, traces = jax.tree.map(np.asarray, parts)
    return dataclasses.replace(run, draws=draws, gradients=gradients, stats=stats, traces=traces, path=None)


def like(params: Params, tree: PyTree) -> PyTree:
    """A class of the user's own comes back from a store as a dict: its leaves have the same names."""
    if tree is None:
        return None
    named = dict(zip(_tree.leaf_names(tree), jax.tree.leaves(tree), strict=True))
    leaves = [named[name] for name in _tree.leaf_names(params)]
    return jax.tree.unflatten(jax.tree.structure(params), leaves)
