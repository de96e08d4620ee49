"""Chains as tasks, each to its end or as far as it comes: one run, or an error that holds what there is of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from scirocco import _checks
from scirocco.cluster import run_tasks
from scirocco.errors import DivergenceError, SciroccoError
from scirocco.run.family import CHAINS
from scirocco.run.joining import draws_made, in_memory, load_begun, load_chains
from scirocco.run.result import Run
from scirocco.run.shared_bar import SharedBar
from scirocco.types import Params


class Chain(NamedTuple):
    """What tells one chain's task from another's."""

    rows: Any
    """A source, or what `travel.opened` makes one of."""
    number: int
    path: str


class Whole(NamedTuple):
    """What the chains are together."""

    folder: str
    num_chains: int
    num_samples: int
    num_steps: int
    params: Params | None
    """The structure of the draws; None: that of the store."""
    stays: bool
    """Whether the folder is the user's; if not, the draws are read into memory."""
    progress: bool

    def kept(self, run: Run) -> Run:
        """The run, as the user is given it."""
        return run if self.stays else in_memory(run)


def carried_out(task: Callable[..., Any], rows: Any, link: Any, whole: Whole) -> Run:
    """`task` for each chain, on the workers of `link` or here; as in one process, Ctrl-C keeps what there is."""
    folder, count = whole.folder, whole.num_chains
    chains = [Chain(rows, number, CHAINS.path(folder, number)) for number in range(count)]
    names = [f"chain {number}" for number in range(count)]
    bar = SharedBar(count, whole.num_steps, whole.progress, "chains")
    try:
        run_tasks(task, chains, client=link, names=names, on_progress=bar.tell)
    except KeyboardInterrupt:
        made, run = draws_made(folder), load_begun(folder, whole.params)
        if run is None or not all(made):
            raise
        _checks.warn(f"interrupted after {min(made)} of {whole.num_samples} draws; the run holds them.")
        return whole.kept(dataclasses.replace(run, status="interrupted"))
    except SciroccoError as error:
        _hold(error, load_begun(folder, whole.params), whole)
        raise
    finally:
        bar.close()
    return whole.kept(load_chains(folder, whole.params))


def _hold(error: Any, run: Run | None, whole: Whole) -> None:
    """Give the error what all chains have made."""
    diverged = isinstance(error, DivergenceError)
    if run is None or (diverged and error.run is None):
        return
    if diverged:
        run = dataclasses.replace(run, status="diverged")
        was = f"The {error.run.num_draws} draws before it are in `error.run`."
        now = f"The first {run.num_draws} draws of {run.num_chains} chains are in `error.run`."
        error.args = (str(error.args[0]).replace(was, now), *error.args[1:])
    error.run = whole.kept(run)
