"""`tune`: choose the settings of a sampler by trying many in parallel."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from scirocco import _checks, _tree
from scirocco.cluster import connected, run_tasks
from scirocco.cluster.pickling import for_workers, opened
from scirocco.data.arrays import RowSource
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import ControlVariates, Estimator, Minibatch, Stratified, Weighted
from scirocco.estimators.base import Prepared
from scirocco.model import Model, Posterior
from scirocco.run import run_group, setup
from scirocco.run.choose import set_up
from scirocco.run.choose.methods import default_estimator
from scirocco.run.choose.race import WIDTH, Arena, Trial, check_over
from scirocco.run.choose.tuning import METHODS, METRICS, NUM_STEPS, Tuning, tune_prepared
from scirocco.run.loop import Start
from scirocco.samplers import SGLD, Sampler
from scirocco.samplers.base import is_open
from scirocco.samplers.preconditioned import core_of
from scirocco.types import Data, Key, Params

_WITHOUT_ROWS = (ControlVariates, Minibatch, Stratified, Weighted)
"""Estimators whose memory does not depend on the order of the rows, so that it is valid for every batch size."""
_LONGER = "longer"
"""The factor of steps for a part of the grid, so that all settings use the same number of rows."""


def tune(
    model: Model,
    data: Data,
    params: Params,
    *,
    sampler: Sampler | None = None,
    estimator: Estimator | None = None,
    over: Mapping[str, Sequence[Any]] | None = None,
    preconditioner: str | None = "auto",
    method: str = "halving",
    num_steps: int = NUM_STEPS,
    seconds: float | None = 60.0,
    seed: int = 0,
    client: Any = None,
) -> Tuning:
    r"""Choose the step size, and other settings if you like, by trying many settings in parallel.

    Thirty-two settings run as one vectorised program on the same batches. After `num_steps` steps the best quarter
    continues, each with four times as many chains, then the best quarter of those (successive halving, Jamieson &
    Talwalkar 2016). They are compared by the kernel Stein discrepancy of their draws (as in MAMBA: Coullon, South &
    Nemeth 2021), which measures both errors at once: a step too large gives a wrong distribution, one too small does
    not explore it. Its gradients are control-variate estimates around the mode, whatever estimator is tuned.

    Parameters
    ----------
    model, data, params, estimator
        As for `sc.sample`. The search starts at the mode.
    sampler
        `sc.SGLD()` by default; settings that are not given are chosen (step size; with momentum also friction or
        diffusion). Any other sampler can be tuned over the values of `over`.
    over
        Values to try, by name of the sampler's fields, or `batch_size`: {"batch_size": [100, 500],
        "resample_every": [5, 20]}. All combinations are tried; smaller batches make more steps, so that every setting
        uses the same number of rows.
    preconditioner
        "auto": `sc.Preconditioned` if curvatures differ by a factor above five, "laplace" up to 2,000 parameters and
        "diagonal" above; or one of its metrics; None: never.
    method
        "halving"; "grid" (one round of all settings); "curvature" (no search: the initial guess from the largest
        curvature and the gradient noise).
    num_steps
        Steps per round.
    seconds
        No round starts after so long; None: no limit. The same seed gives the same choice unless this limit is reached.
    seed
        The random seed.
    client
        A `distributed.Client`, or the address of a Dask scheduler: the values of the longest entry of `over` are
        divided among its workers. Each worker tunes over its own values, and the settings that reach its last round are
        compared by their discrepancies, which are measured in the same way on all workers.

    Returns
    -------
    Tuning
        Pass `tuning.sampler` and `tuning.estimator` to `sc.sample`; `tuning.trials` and `tuning.curve` show what was
        tried. `sc.sample(..., sampler=sc.SGLD(step_size="auto"))` does the same in its set-up.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = 1e-3 * jax.random.normal(jax.random.key(1), (5000,))
    >>> model = sc.Model(lambda mu, x: -0.5 * ((x - mu) / 1e-3) ** 2)
    >>> tuning = sc.analysis.tune(model, x, jnp.array(0.0), num_steps=200)
    >>> 1e-12 < tuning.best.settings["step_size"] < 3e-10  # the posterior variance is 2e-10
    True
    """
    _check(model, preconditioner, method, seconds)
    num_steps = _checks.positive_int(num_steps, "num_steps", minimum=10)
    over = check_over(over or {})
    source = setup.source_of(model, data)
    seed = _checks.positive_int(seed, "seed", minimum=0)
    if sampler is not None:
        setup.check_kind(sampler, Sampler, "sampler", "sc.SGLD()")
    if client is not None:
        shared = {
            "sampler": sampler,
            "estimator": estimator,
            "preconditioner": preconditioner,
            "method": method,
            "num_steps": num_steps,
            "seconds": seconds,
            "seed": seed,
        }
        return _tune_on(client, model, source, params, over, shared)
    sampler = SGLD() if sampler is None else sampler
    estimator = default_estimator(model, source, sampler) if estimator is None else estimator
    sizes = over.pop("batch_size", None)
    inner = core_of(sampler)
    if not is_open(inner.step_size) and not over and sizes is None:
        raise InvalidValueError(
            f"there is nothing to choose: {type(inner).__name__} has a step size. Omit it, or pass values to try "
            '(over={"step_size": [...]}).'
        )
    key = jax.random.key(seed)
    problem = setup.compose(model, source, sampler, estimator, seed)
    parts, prepared = set_up.prepare_estimator(problem, params, num_chains=WIDTH, key=key)
    start = Start(prepared.position, prepared.memory, None)
    arenas = [Arena(model, parts, problem.table, start, {})]
    if sizes is not None:
        arenas = [
            _arena(model, source, params, sampler, _with_size(estimator, size), prepared, seed, key) for size in sizes
        ]
    return tune_prepared(
        arenas,
        prepared,
        key,
        over=over,
        preconditioner=preconditioner,
        method=method,
        num_steps=num_steps,
        seconds=seconds,
    ).tuning


def _arena(
    model: Model,
    source: RowSource,
    params: Params,
    sampler: Sampler,
    estimator: Estimator,
    prepared: Prepared,
    seed: int,
    key: Key,
) -> Arena:
    """The same problem with batches of another size."""
    problem = setup.compose(model, source, sampler, estimator, seed)
    if not isinstance(estimator, _WITHOUT_ROWS):
        _, prepared = set_up.prepare_estimator(problem, params, num_chains=WIDTH, key=key)
    start = Start(prepared.position, prepared.memory, None)
    return Arena(model, problem.parts, problem.table, start, {"batch_size": estimator.batch_size})


def _with_size(estimator: Estimator, size: int) -> Estimator:
    if estimator.batch_size is None:
        raise InvalidValueError(f"{type(estimator).__name__} has no batch size to try.")
    size = _checks.positive_int(size, "batch_size")
    return dataclasses.replace(estimator, batch_size=size)  # type: ignore[type-var]


def _check(model: object, preconditioner: str | None, method: str, seconds: float | None) -> None:
    if not isinstance(model, Model):
        if isinstance(model, Posterior) and model.facts.drive == "counts":
            raise InvalidTypeError(
                "tune requires gradients of a log density, which a CountModel does not have. sc.SCIR and sc.SCIRCV "
                "choose their step size from the noise of the counts if you omit it."
            )
        raise InvalidTypeError(f"`model` must be a sc.Model(log_likelihood, log_prior); got {model!r}.")
    _checks.choice(method, "method", METHODS)
    if preconditioner not in METRICS:
        raise InvalidValueError(
            f"`preconditioner` must be one of {', '.join(map(repr, METRICS))}, got {preconditioner!r}."
        )
    if seconds is not None:
        _checks.positive(seconds, "seconds")


# -- a grid of settings, divided among the workers of a Dask cluster -------------------------------------------


def _tune_on(
    client: Any,
    model: Model,
    source: RowSource,
    params: Params,
    over: Mapping[str, Sequence[Any]],
    shared: dict[str, Any],
) -> Tuning:
    """`tune`, with the longest entry of `over` divided among the workers."""
    name = max(over, key=lambda n: len(over[n]), default=None)
    if name is None or len(over[name]) < 2:
        raise InvalidValueError(
            "there is nothing to divide among workers: `over` has no setting with several values. Step sizes are "
            "tried in parallel in one program: omit `client`."
        )
    on_host = _tree.on_host(params)
    with connected(client, "sc.analysis.tune") as link, run_group.folder_for(None) as folder:
        rows = for_workers([source], folder)[0]
        parts = _cut(list(over[name]), len(link.nthreads()))
        jobs = [dict(over) | {name: part} for part in parts]
        if name == "batch_size":  # in a race the largest batch makes `num_steps` steps, and smaller ones more
            jobs = [job | {_LONGER: max(over[name]) / max(part)} for job, part in zip(jobs, parts, strict=True)]
        names = [f"the race of {name}={part}" for part in parts]
        double = run_group.double_precision()
        task = partial(_race, model=model, rows=rows, params=on_host, shared=shared, double=double)
        return _best_of(run_tasks(task, jobs, client=link, names=names))


def _race(
    over: dict[str, list[Any]],
    tell: Callable[[int], None],
    *,
    model: Model,
    rows: Any,
    params: Params,
    shared: dict[str, Any],
    double: bool,
) -> Tuning:
    """Tune over one part on a worker; between rounds it checks whether it was cancelled."""
    run_group.check_precision(double)
    steps = round(shared["num_steps"] * over.pop(_LONGER, 1.0))
    return tune(model, opened(rows), params, over=over, **shared | {"num_steps": steps})


def _cut(values: list[Any], num_parts: int) -> list[list[Any]]:
    """Parts whose lengths differ by at most one."""
    return [list(part) for part in np.array_split(np.array(values, object), min(num_parts, len(values)))]


def _best_of(races: list[Tuning]) -> Tuning:
    """The best of several tunings, with the trials of all of them."""
    best = min(races, key=lambda found: _last(found.best))
    trials = [best.best, *(t for found in races for t in found.trials if t is not best.best)]
    trials[1:] = sorted(trials[1:], key=lambda t: (-t.rounds, _last(t)))
    return dataclasses.replace(best, trials=trials, seconds=max(found.seconds for found in races))


def _last(trial: Trial) -> float:
    value = trial.ksd[-1] if trial.ksd else math.inf
    return value if math.isfinite(value) else math.inf
