"""Chains as tasks on a Dask cluster: the set-up once, then every chain on a worker, in a folder of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco.cluster import connected, run_tasks
from scirocco.cluster.travel import for_workers, opened
from scirocco.errors import InvalidValueError, SciroccoError
from scirocco.model import Posterior
from scirocco.run import family, records, resuming
from scirocco.run.joining import CHAINS, in_memory, load_chains
from scirocco.run.request import Begun, Request, carry_out, prepared
from scirocco.run.result import Origin, Run
from scirocco.run.shared_bar import SharedBar
from scirocco.store import holds_run
from scirocco.types import PyTree

_PURPOSE = "sc.sample"


class Chain(NamedTuple):
    """What tells one chain's task from another's."""

    rows: Any
    """A source, or what `travel.opened` makes one of."""
    number: int
    path: str


class Shared(NamedTuple):
    """What all chains share."""

    request: Request
    """Without data, store and callbacks."""
    begun: Begun | None
    """None: all chains have begun before."""
    double: bool
    """Whether JAX runs in 64 bits where the run was asked for."""


def sample_on(client: Any, request: Request) -> Run:
    """`sc.sample` with every chain on a worker; the draws are those of one process."""
    _refuse(request)
    plan = request.plan
    with connected(client, _PURPOSE) as link, family.folder_for(request.store) as folder:
        CHAINS.begin(folder, _page(request), resume=request.resume, overwrite=request.overwrite)
        rows = for_workers([request.source], family.data_path(folder))[0]
        plain = request._replace(
            source=None, params=_on_host(request.params), store=None, overwrite=False, progress=False
        )
        chains = [Chain(rows, number, CHAINS.path(folder, number)) for number in range(plan.num_chains)]
        begun = None
        if not all(holds_run(chain.path) for chain in chains):
            begun = run_tasks(partial(set_up, request=plain), [rows], client=link, names=["the set-up"])[0]
        shared = Shared(plain, begun, family.double_precision())
        bar = SharedBar(plan.num_chains, plan.num_steps, request.progress, "chains")
        names = [f"chain {chain.number}" for chain in chains]
        try:
            run_tasks(partial(draw, shared=shared), chains, client=link, names=names, on_progress=bar.tell)
        except SciroccoError as error:
            if getattr(error, "run", None) is not None and request.store is None:
                error.run = in_memory(error.run)  # type: ignore[attr-defined]
            raise
        finally:
            bar.close()
        run = load_chains(folder, request.params)
        family.forget_data(folder)
        return _with_origin(run if request.store is not None else in_memory(run), request, begun)


def set_up(rows: Any, tell: Callable[[int], None], *, request: Request) -> Begun:
    """What has to be found before the first step, on a worker: the mode, a step size."""
    _, ready = prepared(request._replace(source=opened(rows)))
    return Begun(ready.parts.sampler, request.estimator, _on_host(ready.start), ready.report)


def draw(chain: Chain, tell: Callable[[int], None], *, shared: Shared) -> str:
    """One chain, from its last commit on where there is one.

    Dask calls it again when its worker died: what the first attempt committed is not made a second time.
    """
    CHAINS.check_place(chain.path, shared.double)
    family.wait_for_writer(chain.path, tell)
    request = shared.request
    carry_out(
        request._replace(
            source=opened(chain.rows),
            plan=request.plan._replace(num_chains=1, first_chain=chain.number),
            store=chain.path,
            resume=True,
            callbacks=(lambda report: tell(report.step),),
            begun=shared.begun,
        )
    )
    return chain.path


def resume_on(
    client: Any,
    path: str,
    model: Posterior,
    source: Any,
    num_samples: int | None,
    method: tuple[Any, Any, Any, Any],
    progress: bool,
) -> Run:
    """`sc.resume` of chains that are in a folder each."""
    count = CHAINS.read(path)["count"]
    paths = [CHAINS.path(path, number) for number in range(count)]
    lacking = [number for number, place in enumerate(paths) if not holds_run(place)]
    if lacking:
        raise InvalidValueError(
            f"chain {lacking[0]} of the run in {path} has not begun: go on with sc.sample(..., store={path!r}, "
            "resume=True), which begins it."
        )
    run = load_chains(path)
    was = run.configuration
    num_steps = was["num_burnin"] + (num_samples or was["num_samples"]) * was["thin"]
    with connected(client, "sc.resume") as link:
        rows = for_workers([source], family.data_path(path))[0]
        chains = [Chain(rows, number, place) for number, place in enumerate(paths)]
        bar = SharedBar(count, num_steps, progress, "chains")
        task = partial(
            go_on_there,
            model=model,
            num_samples=num_samples,
            method=(_on_host(method[0]), *method[1:]),
            double=family.double_precision(),
        )
        names = [f"chain {number}" for number in range(count)]
        try:
            run_tasks(task, chains, client=link, names=names, on_progress=bar.tell)
        finally:
            bar.close()
        family.forget_data(path)
    return load_chains(path, method[0])


def go_on_there(
    chain: Chain,
    tell: Callable[[int], None],
    *,
    model: Posterior,
    num_samples: int | None,
    method: tuple[Any, Any, Any, Any],
    double: bool,
) -> str:
    """Go on with one chain, on a worker."""
    CHAINS.check_place(chain.path, double)
    family.wait_for_writer(chain.path, tell)
    params, sampler, estimator, reducers = method
    resuming.go_on(
        *(chain.path, model, opened(chain.rows), num_samples, params, sampler, estimator, reducers),
        *((lambda report: tell(report.step),), False, None),
    )
    return chain.path


def _refuse(request: Request) -> None:
    if request.callbacks:
        raise InvalidValueError(
            "`callbacks` are called by the process that makes the steps; with `client` these are the workers. Leave "
            "one of them out."
        )
    if request.devices is not None:
        raise InvalidValueError("`mesh` and `client` are two ways to use several devices: give one of them.")


def _page(request: Request) -> dict[str, Any]:
    return {
        "count": request.plan.num_chains,
        "data": request.source.fingerprint(),
        "num_rows": int(request.source.num_rows),
        "asked": records.asked(request.sampler, request.estimator, request.plan),
        "model": repr(request.model),
    }


def _on_host(tree: PyTree) -> PyTree:
    """Arrays that can be pickled; Python numbers stay what they are."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if hasattr(leaf, "shape") else leaf, tree)


def _with_origin(run: Run, request: Request, begun: Begun | None) -> Run:
    if begun is None:
        return run
    origin = Origin(request.model, request.source, begun.sampler, begun.estimator, None)
    return dataclasses.replace(run, origin=origin)
