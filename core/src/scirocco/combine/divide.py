"""`sc.combine.subposteriors`: a run for every shard of the data, here or on a Dask cluster."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import Any

import numpy as np

from scirocco import _checks, _tree
from scirocco._random import SeedPurpose
from scirocco.cluster import connected, run_tasks
from scirocco.cluster.pickling import for_workers
from scirocco.combine.shards import Dealt, Shard, ShardSettings, Subposteriors, deal, draw, fractionate, open_run
from scirocco.errors import InvalidValueError, SciroccoError
from scirocco.estimators import Estimator
from scirocco.model import Posterior
from scirocco.run import Run, records, run_group
from scirocco.run.choose import limits
from scirocco.run.choose.measure import drive_of
from scirocco.run.loading import in_memory
from scirocco.run.progress import SharedBar
from scirocco.run.run_group import SHARDS
from scirocco.samplers import Sampler
from scirocco.types import Data, Params


def subposteriors(
    model: Posterior,
    data: Data,
    num_shards: int | None = None,
    params: Params | None = None,
    *,
    sampler: Sampler | None = None,
    estimator: Estimator | None = None,
    num_samples: int = 10_000,
    num_burnin: int | None = None,
    thin: int = 1,
    num_chains: int = 1,
    seed: int = 0,
    store: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    shuffle: bool = True,
    client: Any = None,
    progress: bool = True,
) -> Subposteriors:
    r"""Divide the rows among S shards, and sample from the subposterior of each.

    Subposterior s has the density p₀(u)^{1/S} Π_{i ∈ B_s} p(x_i | u), where B_s are the rows of the shard and p₀ is the
    prior density of the unconstrained position u, where samplers move (with the Jacobian of the model's transforms).
    The product over the shards is the posterior.

    Parameters
    ----------
    model
        `sc.Model`.
    data
        As for `sc.sample`; or data that are in shards already: a list of paths of data folders or of `sc.data` sources
        (a list of arrays is one data set, as everywhere).
    num_shards
        S; omit it for data that are already in shards.
    params
        The starting point of the chains of every shard.
    sampler, estimator, num_samples, num_burnin, thin, num_chains
        As for `sc.sample`, for each shard: `num_burnin` is 1,000 by default when the sampler is left out, 0 when you
        give one. What is chosen from the data (a step size, a mode) is chosen by each shard for itself.
    seed
        Determines the seeds of the shards and of the division of the rows.
    store
        A folder: the run of shard 3 is in `store/shard-003`. By default the draws stay in memory.
    resume, overwrite
        With `store`: resume the runs in the folder (the same call, also with more `num_samples`), or delete them.
    shuffle
        Divide the rows at random, so that the shards are similar; False: in order, which is right only for rows that
        are in random order. Data folders that were shuffled when they were written are read in order.
    client
        A `distributed.Client`, the address of a Dask scheduler, or a `scirocco.cluster.client(...)`: the shards are
        drawn by its workers. None: in this process, one after the other, with the same result. Workers and client must
        see the same files: arrays in memory are written once for the workers, and draws come back as files.
    progress
        Show one bar for all shards when there is a terminal.

    Returns
    -------
    Subposteriors
        For `sc.combine.consensus`, `gaussian_product`, `kdemc` and `weierstrass`.

    Raises
    ------
    DivergenceError
        If a chain diverges (NaN or inf); it names the shard. With `store` the other shards keep their draws.

    Notes
    -----
    A run commits its draws every few seconds. When a worker dies, Dask gives its shard to another, which resumes from
    the last commit; the draws are those of an uninterrupted run, bit for bit (machines of one kind).

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = 3.0 + jax.random.normal(jax.random.key(1), (4000,))
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2, lambda mu: -0.005 * mu**2)
    >>> parts = sc.combine.subposteriors(model, x, 4, jnp.array(0.0), sampler=sc.SGLD(step_size=2e-4),
    ...                                  num_samples=500, progress=False)
    >>> parts
    Subposteriors(4 shards of 1,000 rows: 1 chains × 500 draws of 1 parameters)
    """
    if params is None:
        raise InvalidValueError("`params` is required: the starting point of the chains of every shard.")
    seed = _checks.positive_int(seed, "seed", minimum=0)
    run_group.check_switches(store, resume, overwrite)
    options: dict[str, Any] = {
        "sampler": sampler,
        "estimator": estimator,
        "num_samples": _checks.positive_int(num_samples, "num_samples"),
        "num_burnin": _burnin(num_burnin, model, sampler, store if resume else None),
        "thin": _checks.positive_int(thin, "thin"),
        "num_chains": _checks.positive_int(num_chains, "num_chains"),
    }
    dealt = deal(data, num_shards, seed, shuffle)
    shared = fractionate(model, len(dealt.sources))
    settings = ShardSettings(shared, _tree.on_host(params), options, run_group.double_precision())
    page = page_of(model, dealt, options, seed, shuffle)
    with connected(client, "sc.combine.subposteriors") as link, contextlib.ExitStack() as stack:
        folder = None
        if store is not None or link is not None:
            folder = stack.enter_context(run_group.folder_for(store))
            SHARDS.begin(folder, page, resume=resume, overwrite=overwrite)
        rows = dealt.sources
        if link is not None and folder is not None:
            rows = for_workers(rows, stack.enter_context(run_group.place_for_rows(folder)))
        runs = _run_shards(settings, rows, seed, folder, link, progress, keep=store is not None)
    return Subposteriors(runs, model, dealt.num_rows, None if store is None else folder)


def _burnin(
    given: int | None, model: Posterior, sampler: Sampler | None, resumed: str | os.PathLike[str] | None
) -> int:
    """The burn-in that `sc.sample` would use; resumed runs keep theirs."""
    if given is not None:
        return _checks.positive_int(given, "num_burnin", minimum=0)
    if resumed is not None and SHARDS.is_at(resumed):
        return int(SHARDS.read(os.fspath(resumed))["asked"]["num_burnin"])
    return limits.LIMITS.burnin if sampler is None and drive_of(model) == "gradient" else 0


def _run_shards(
    settings: ShardSettings, rows: list[Any], seed: int, folder: str | None, link: Any, progress: bool, keep: bool
) -> list[Run]:
    shards = [
        Shard(part, shard_seed(seed, number), None if folder is None else SHARDS.path(folder, number))
        for number, part in enumerate(rows)
    ]
    options = settings.options
    num_steps = options["num_burnin"] + options["num_samples"] * options["thin"]
    bar = SharedBar(len(shards), num_steps, progress, "shards")
    names = [f"shard {number}" for number in range(len(shards))]
    try:
        found: list[Any] = run_tasks(
            partial(draw, settings=settings), shards, client=link, names=names, on_progress=bar.tell
        )
    except SciroccoError as error:
        if error.run is not None and not keep:
            error.run = in_memory(error.run)
        raise
    finally:
        bar.close()
    if folder is None:
        return found
    runs = [open_run(path, settings.params, number) for number, path in enumerate(found)]
    return runs if keep else [in_memory(run) for run in runs]


def shard_seed(seed: int, number: int) -> int:
    """The seed of a shard's chains."""
    return int(np.random.SeedSequence([seed, number, int(SeedPurpose.SHARD_SEED)]).generate_state(1)[0])


def page_of(model: Posterior, dealt: Dealt, options: dict[str, Any], seed: int, shuffle: bool) -> dict[str, Any]:
    """The description of a folder of subposteriors, to reject a different call."""
    asked = {key: value for key, value in options.items() if key != "num_samples"}
    described = {key: records.describe(asked.pop(key)) for key in ("sampler", "estimator")}
    return {
        "count": len(dealt.sources),
        "num_rows": dealt.num_rows,
        "data": dealt.fingerprints,
        "seed": seed,
        "shuffle": bool(shuffle),
        "asked": described | asked,
        "model": repr(model),
        "transformed": model.facts.transforms is not None,
    }
