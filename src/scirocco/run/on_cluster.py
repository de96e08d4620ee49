"""Chains as tasks on a Dask cluster: the set-up once, then every chain on a worker, in a folder of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from scirocco import _tree
from scirocco.cluster import connected, run_tasks
from scirocco.cluster.pickling import for_workers, opened
from scirocco.errors import InvalidValueError
from scirocco.model import Posterior
from scirocco.run import family, records, resuming
from scirocco.run.family import CHAINS
from scirocco.run.joining import load_chains
from scirocco.run.request import Begun, Request, carry_out, prepared
from scirocco.run.result import Origin, Run
from scirocco.run.side_by_side import Chain, Whole, carried_out
from scirocco.store import holds_run

_PURPOSE = "sc.sample"


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
    _refuse(request, client)
    plan = request.plan
    with connected(client, _PURPOSE) as link, family.folder_for(request.store) as folder:
        CHAINS.begin(folder, _page(request), resume=request.resume, overwrite=request.overwrite)
        paths = [CHAINS.path(folder, number) for number in range(plan.num_chains)]
        there = [path for path in paths if holds_run(path)]
        for path in there:
            resuming.check(path, plan.num_samples, request.sampler, request.estimator, request.reducers)
        plain = request._replace(
            source=None, params=_tree.on_host(request.params), store=None, overwrite=False, progress=False
        )
        with family.place_for_rows(folder) as place:
            rows = _rows(request.source, link, place)
            shared = Shared(plain, None, family.double_precision())
            if len(there) < len(paths):
                task = partial(set_up, shared=shared)
                begun = run_tasks(task, [rows], client=link, names=["the set-up"])[0]
                shared = shared._replace(begun=begun)
            whole = Whole(
                *(folder, plan.num_chains, plan.num_samples, plan.num_steps, request.params),
                *(request.store is not None, request.progress),
            )
            run = carried_out(partial(draw, shared=shared), rows, link, whole)
        return _with_origin(run, request, shared.begun)


def _rows(source: Any, link: Any, place: str) -> Any:
    return source if link is None else for_workers([source], place)[0]


def set_up(rows: Any, tell: Callable[[int], None], *, shared: Shared) -> Begun:
    """What has to be found before the first step, on a worker: the mode, a step size."""
    family.check_precision(shared.double)
    request = shared.request
    _, ready = prepared(request._replace(source=opened(rows)))
    return Begun(ready.parts.sampler, request.estimator, _tree.on_host(ready.start), ready.report)


def draw(chain: Chain, tell: Callable[[int], None], *, shared: Shared) -> str:
    """One chain, from its last commit on where there is one.

    Dask calls it again when its worker died: what the first attempt committed is not made a second time.
    """
    CHAINS.check_place(chain.path, shared.double)
    family.wait_for_writer(chain.path, tell)
    request = shared.request._replace(
        source=opened(chain.rows),
        plan=shared.request.plan._replace(num_chains=1, first_chain=chain.number),
        store=chain.path,
        resume=True,
        begun=shared.begun,
    )
    family.driven(lambda callback: carry_out(request._replace(callbacks=(callback,))), tell)
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
    if not CHAINS.is_at(path) and holds_run(path):
        raise InvalidValueError(
            f"{path} holds a run whose chains share a process: go on with it without `client`."
        )
    page = CHAINS.read(path)
    now = {"num_rows": int(source.num_rows), "data": source.fingerprint()}
    records.refuse_differences({key: page[key] for key in now}, now, path, "these data")
    paths = [CHAINS.path(path, number) for number in range(page["count"])]
    for number, place in enumerate(paths):
        if not holds_run(place):
            raise InvalidValueError(
                f"chain {number} of the run in {path} has not begun: go on with sc.sample(..., store={path!r}, "
                "resume=True), which begins it."
            )
        resuming.check(place, num_samples, *method[1:])
    was = load_chains(path).configuration
    wanted = was["num_samples"] if num_samples is None else num_samples
    num_steps = was["num_burnin"] + wanted * was["thin"]
    whole = Whole(path, len(paths), wanted, num_steps, method[0], True, progress)
    task = partial(
        go_on_there,
        model=model,
        num_samples=num_samples,
        method=(_tree.on_host(method[0]), *method[1:]),
        double=family.double_precision(),
    )
    with connected(client, "sc.resume") as link, family.place_for_rows(path) as place:
        return carried_out(task, _rows(source, link, place), link, whole)


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
    arguments = (chain.path, model, opened(chain.rows), num_samples, *method)
    family.driven(lambda callback: resuming.go_on(*arguments, (callback,), False, None), tell)
    return chain.path


def _refuse(request: Request, client: Any) -> None:
    if request.callbacks and client is None:
        raise InvalidValueError(
            f"the chains in {request.store} were made on workers, and are a run each: they are gone on with one after "
            "the other, without `callbacks`. Leave those out."
        )
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


def _with_origin(run: Run, request: Request, begun: Begun | None) -> Run:
    if begun is None:
        return run
    origin = Origin(request.model, request.source, begun.sampler, begun.estimator, None)
    return dataclasses.replace(run, origin=origin)
