"""Chains as tasks on a Dask cluster: one set-up, then every chain on a worker, in its own folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

from scirocco import _checks, _tree
from scirocco.cluster import connected, run_tasks
from scirocco.cluster.pickling import for_workers, opened
from scirocco.data.arrays import RowSource
from scirocco.errors import DivergenceError, InvalidValueError, SciroccoError
from scirocco.model import Posterior
from scirocco.run import matching, records, run_group
from scirocco.run.choose.settle import prepared
from scirocco.run.loading import draws_made, in_memory, load_begun, load_chains
from scirocco.run.matching import PassedParts
from scirocco.run.progress import SharedBar
from scirocco.run.records import Record
from scirocco.run.request import Request, carry_out, stored_request
from scirocco.run.result import Origin, Run
from scirocco.run.run_group import CHAINS
from scirocco.run.setup import Ready
from scirocco.samplers.base import has_one_scale
from scirocco.store import holds_run, open_stored
from scirocco.types import Params

_PURPOSE = "sc.sample"


class Shared(NamedTuple):
    """What all chains share."""

    request: Request
    """Without data, store and callbacks; with the results of the set-up, unless all chains have started before."""
    double: bool
    """Whether JAX uses 64 bits in the process that requested the run."""


def sample_on(client: Any, request: Request) -> Run:
    """`sc.sample` with every chain on a worker; the draws are the same as those of one process."""
    _refuse(request, client)
    if request.source.wild_scales and has_one_scale(request.sampler):
        _checks.warn(request.source.wild_scales)  # warnings on workers are not shown here
    plan = request.plan
    with connected(client, _PURPOSE) as link, run_group.folder_for(request.store) as folder:
        if CHAINS.is_at(folder) and request.resume:
            request = _as_begun(request, CHAINS.path(folder, 0))
            plan = request.plan
        CHAINS.begin(
            folder, _page(request), resume=request.resume, overwrite=request.overwrite, left_out=request.left_out
        )
        paths = [CHAINS.path(folder, number) for number in range(plan.num_chains)]
        there = [path for path in paths if holds_run(path)]
        sampler = None if "sampler" in request.left_out else request.sampler
        estimator = None if "estimator" in request.left_out else request.estimator
        method = PassedParts(request.params, sampler, estimator, request.reducers)
        for path in there:
            matching.check(path, plan.num_samples, method)
        plain = request._replace(
            source=cast(RowSource, None),
            params=_tree.on_host(request.params),
            store=None,
            overwrite=False,
            progress=False,
        )
        with run_group.place_for_rows(folder) as place:
            rows = _rows(request.source, link, place)
            shared = Shared(plain, run_group.double_precision())
            if len(there) < len(paths):
                task = partial(set_up, shared=shared)
                ready = run_tasks(task, [rows], client=link, names=["the set-up"])[0]
                shared = shared._replace(request=plain._replace(ready=ready))
                if {"sampler", "thin"} <= request.left_out and ready.thin:
                    plan = plan._replace(thin=ready.thin)
            whole = Whole(
                *(folder, plan.num_chains, plan.num_samples, plan.num_steps, request.params),
                *(request.store is not None, request.progress),
            )
            run = carried_out(partial(draw, shared=shared), rows, link, whole)
        return _with_origin(run, request, shared.request.ready)


def _as_begun(request: Request, first: str) -> Request:
    """The omitted arguments are those of the chains that have started."""
    if not request.left_out or not holds_run(first):
        return request
    record = Record.from_json(open_stored(first).record)
    names = {"sampler", "estimator"} & request.left_out
    parts = {name: matching.stored_part(record, None, name) for name in names}
    plan = request.plan
    _, num_burnin, thin = record.lengths
    if "num_burnin" in request.left_out:
        plan = plan._replace(num_burnin=num_burnin)
    if "thin" in request.left_out:
        plan = plan._replace(thin=thin)
    return request._replace(plan=plan, **parts)


def _rows(source: RowSource, link: Any, place: str) -> Any:
    return source if link is None else for_workers([source], place)[0]


def set_up(rows: Any, tell: Callable[[int], None], *, shared: Shared) -> Ready:
    """The work before the first step, on a worker: find the mode, choose a step size."""
    run_group.check_precision(shared.double)
    _, _, ready = prepared(shared.request._replace(source=opened(rows)))
    return ready._replace(start=_tree.on_host(ready.start))


def draw(chain: ChainTask, tell: Callable[[int], None], *, shared: Shared) -> str:
    """One chain, resumed from its last commit where there is one.

    Dask calls it again when its worker died: the draws that the first attempt committed are not made twice.
    """
    CHAINS.check_place(chain.path, shared.double)
    run_group.wait_for_writer(chain.path, tell)
    request = shared.request._replace(
        source=opened(chain.rows),
        plan=shared.request.plan._replace(num_chains=1, first_chain=chain.number),
        store=chain.path,
        resume=True,
    )
    run_group.driven(lambda callback: carry_out(request._replace(callbacks=(callback,))), tell)
    return chain.path


def resume_on(
    client: Any,
    path: str,
    model: Posterior,
    source: RowSource,
    num_samples: int | None,
    method: PassedParts,
    progress: bool,
) -> Run:
    """`sc.resume` of chains that are in separate folders."""
    if not CHAINS.is_at(path) and holds_run(path):
        raise InvalidValueError(f"{path} holds a run whose chains share one process: resume it without `client`.")
    page = CHAINS.read(path)
    now = {"num_rows": int(source.num_rows), "data": source.fingerprint()}
    records.refuse_differences({key: page[key] for key in now}, now, path, "these data")
    paths = [CHAINS.path(path, number) for number in range(page["count"])]
    for number, place in enumerate(paths):
        if not holds_run(place):
            raise InvalidValueError(
                f"chain {number} of the run in {path} has not started: start it with sc.sample(..., store={path!r}, "
                "resume=True)."
            )
    wanted = max(matching.check(place, num_samples, method).num_samples for place in paths)
    method = method._replace(params=_tree.on_host(method.params))
    request = stored_request(paths[0], model, cast(RowSource, None), wanted, method, progress=False)
    shared = Shared(request, run_group.double_precision())
    whole = Whole(path, len(paths), wanted, request.plan.num_steps, method.params, True, progress)
    with connected(client, "sc.resume") as link, run_group.place_for_rows(path) as place:
        return carried_out(partial(draw, shared=shared), _rows(source, link, place), link, whole)


def _refuse(request: Request, client: Any) -> None:
    if request.callbacks and client is None:
        raise InvalidValueError(
            f"the chains in {request.store} were made on workers and are separate runs: they are resumed one after "
            "the other, without `callbacks`. Omit `callbacks`."
        )
    if request.callbacks:
        raise InvalidValueError(
            "`callbacks` are called by the process that makes the steps; with `client`, workers make the steps. Omit "
            "one of them out."
        )
    if request.devices is not None:
        raise InvalidValueError("`mesh` and `client` are two ways to use several devices: pass only one of them.")


def _page(request: Request) -> dict[str, Any]:
    return {
        "count": request.plan.num_chains,
        "data": request.source.fingerprint(),
        "num_rows": int(request.source.num_rows),
        "asked": request.asked,
        "model": repr(request.model),
    }


def _with_origin(run: Run, request: Request, ready: Ready | None) -> Run:
    if ready is None:
        return run
    origin = Origin(request.model, request.source, ready.sampler, ready.estimator, None)
    return dataclasses.replace(run, origin=origin)


# ------------------------------------------------------------------------------- chains as tasks, in any process


class ChainTask(NamedTuple):
    """The part of a chain's task that differs between chains."""

    rows: Any
    """A source, or the argument of `travel.opened` that yields one."""
    number: int
    path: str


class Whole(NamedTuple):
    """The properties of the run that the chains form together."""

    folder: str
    num_chains: int
    num_samples: int
    num_steps: int
    params: Params | None
    """The structure of the draws; None: as in the store."""
    stays: bool
    """Whether the folder belongs to the user; if not, the draws are read into memory."""
    progress: bool

    def kept(self, run: Run) -> Run:
        """The run as returned to the user."""
        return run if self.stays else in_memory(run)


def carried_out(task: Callable[..., Any], rows: Any, link: Any, whole: Whole) -> Run:
    """Run `task` for each chain, on the workers of `link` or here; Ctrl-C keeps the draws so far, as in one process."""
    folder, count = whole.folder, whole.num_chains
    chains = [ChainTask(rows, number, CHAINS.path(folder, number)) for number in range(count)]
    names = [f"chain {number}" for number in range(count)]
    bar = SharedBar(count, whole.num_steps, whole.progress, "chains")
    try:
        run_tasks(task, chains, client=link, names=names, on_progress=bar.tell)
    except KeyboardInterrupt:
        made, run = draws_made(folder), load_begun(folder, whole.params)
        if run is None or not all(made):
            raise
        _checks.warn(f"interrupted after {min(made)} of {whole.num_samples} draws; the run contains them.")
        return whole.kept(dataclasses.replace(run, status="interrupted"))
    except SciroccoError as error:
        _hold(error, load_begun(folder, whole.params), whole)
        raise
    finally:
        bar.close()
    return whole.kept(load_chains(folder, whole.params))


def _hold(error: Any, run: Run | None, whole: Whole) -> None:
    """Attach the draws of all chains to the error."""
    diverged = isinstance(error, DivergenceError)
    if run is None or (diverged and error.run is None):
        return
    if diverged:
        run = dataclasses.replace(run, status="diverged")
        was = f"The {error.run.num_draws} draws before it are in `error.run`."
        now = f"The first {run.num_draws} draws of {run.num_chains} chains are in `error.run`."
        error.args = (str(error.args[0]).replace(was, now), *error.args[1:])
    error.run = whole.kept(run)
