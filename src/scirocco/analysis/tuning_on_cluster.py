"""A grid of settings, shared out among the workers of a Dask cluster."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from scirocco import _tree
from scirocco.cluster import connected, run_tasks
from scirocco.cluster.pickling import for_workers, opened
from scirocco.errors import InvalidValueError
from scirocco.run import family
from scirocco.run.tuning import Trial, Tuning
from scirocco.types import Params

_LONGER = "longer"
"""Times as many steps for a part of the grid, so that all settings look at as many rows."""


def tune_on(
    client: Any,
    tune: Callable[..., Tuning],
    model: Any,
    source: Any,
    params: Params,
    over: Mapping[str, Sequence[Any]],
    shared: dict[str, Any],
) -> Tuning:
    """`tune`, with the longest entry of `over` cut into a part for each worker."""
    name = max(over, key=lambda n: len(over[n]), default=None)
    if name is None or len(over[name]) < 2:
        raise InvalidValueError(
            "there is nothing to share out among workers: `over` names no setting with several values. Step sizes are "
            "tried side by side in one program: leave `client` out."
        )
    on_host = _tree.on_host(params)
    with connected(client, "sc.analysis.tune") as link, family.folder_for(None) as folder:
        rows = for_workers([source], folder)[0]
        parts = _cut(list(over[name]), len(link.nthreads()))
        jobs = [dict(over) | {name: part} for part in parts]
        if name == "batch_size":  # in a race the largest batch makes `num_steps` steps, and smaller ones more
            jobs = [
                job | {_LONGER: max(over[name]) / max(part)} for job, part in zip(jobs, parts, strict=True)
            ]
        names = [f"the race of {name}={part}" for part in parts]
        double = family.double_precision()
        task = partial(race, tune=tune, model=model, rows=rows, params=on_host, shared=shared, double=double)
        return _best_of(run_tasks(task, jobs, client=link, names=names))


def race(
    over: dict[str, list[Any]],
    tell: Callable[[int], None],
    *,
    tune: Callable[..., Tuning],
    model: Any,
    rows: Any,
    params: Params,
    shared: dict[str, Any],
    double: bool,
) -> Tuning:
    """The race of one part, on a worker; between rounds it looks whether it is still wanted."""
    family.check_precision(double)
    steps = round(shared["num_steps"] * over.pop(_LONGER, 1.0))
    return tune(model, opened(rows), params, over=over, **shared | {"num_steps": steps})


def _cut(values: list[Any], num_parts: int) -> list[list[Any]]:
    """Parts that differ by at most one value."""
    return [list(part) for part in np.array_split(np.array(values, object), min(num_parts, len(values)))]


def _best_of(races: list[Tuning]) -> Tuning:
    """The race with the best winner, with the trials of all of them."""
    best = min(races, key=lambda found: _last(found.best))
    trials = [best.best, *(t for found in races for t in found.trials if t is not best.best)]
    trials[1:] = sorted(trials[1:], key=lambda t: (-t.rounds, _last(t)))
    return dataclasses.replace(best, trials=trials, seconds=max(found.seconds for found in races))


def _last(trial: Trial) -> float:
    value = trial.ksd[-1] if trial.ksd else math.inf
    return value if math.isfinite(value) else math.inf
