"""`sc.resume`: go on with a stored run, bit for bit, or say what stands in the way."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco.data import Devices, as_devices, as_source
from scirocco.errors import InvalidTypeError, InvalidValueError, StoreError
from scirocco.model import Posterior
from scirocco.run import chains as _chains
from scirocco.run import encoding, loading, records, setup
from scirocco.run.composed import Composed
from scirocco.run.conclusion import conclude
from scirocco.run.keeping import Keeping
from scirocco.run.loop import Start
from scirocco.run.progress import Bar, Callback, Clock
from scirocco.run.result import Run
from scirocco.run.session import Plan, Session
from scirocco.run.sinks import MemorySink, Sink, StoreSink
from scirocco.store import Store, open_stored
from scirocco.types import Data, Params, PyTree

_Path = str | os.PathLike[str]


def resume(
    path: _Path,
    model: Posterior,
    data: Data,
    *,
    num_samples: int | None = None,
    params: Params | None = None,
    sampler: Any = None,
    estimator: Any = None,
    reducers: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    mesh: jax.sharding.Mesh | None = None,
    client: Any = None,
) -> Run:
    """Go on with a run that was started with `sc.sample(..., store=path)`.

    The result equals that of a run that was never interrupted, bit for bit (same machine, same versions), also when
    more draws are asked for than at first. Another model, other data or another configuration are refused.

    Parameters
    ----------
    path
        The store.
    model, data
        As at first: a store holds numbers, not code and not the data.
    num_samples
        Draws of each chain in all, those made already included; by default what was asked for at first.
    params, sampler, estimator
        Only where the store could not hold them (it then says so): parameters that are not dicts, lists, tuples and
        arrays; classes of your own.
    reducers
        The reducers that the run was started with, if any: they are functions.
    callbacks, progress, mesh, client
        As for `sc.sample`; rows must be spread over as many devices as at first. Chains that were made on a cluster are
        gone on with by the workers of `client`, or here, one after the other.

    Examples
    --------
    >>> import tempfile, jax.numpy as jnp, scirocco as sc
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = sc.sample(model, jnp.ones(100), jnp.array(1.0), sampler=sc.SGLD(1e-3), num_samples=200,
    ...                     store=folder, progress=False)
    ...     run = sc.resume(folder, model, jnp.ones(100), num_samples=300, progress=False)
    ...     run.num_draws
    300
    """
    source = as_source(data)
    from scirocco.run.on_cluster import CHAINS, resume_on

    if client is not None or CHAINS.is_at(path):
        if callbacks or mesh is not None:
            raise InvalidValueError(
                f"`callbacks` and `mesh` are not for the chains in {os.fspath(path)}, which are a run each: they are "
                "gone on with by the workers of `client`, or here, one after the other."
            )
        method = (params, sampler, estimator, reducers)
        return resume_on(client, os.path.abspath(path), model, source, num_samples, method, progress)
    devices = as_devices(mesh)
    with contextlib.nullcontext() if devices is None else devices.in_use():
        return go_on(
            *(path, model, source, num_samples, params, sampler),
            *(estimator, reducers, callbacks, progress, None, devices),
        )


def go_on(
    path: _Path,
    model: Posterior,
    source: Any,
    num_samples: int | None,
    params: Params | None,
    sampler: Any,
    estimator: Any,
    reducers: Mapping[str, Any] | None,
    callbacks: Sequence[Callback],
    progress: bool,
    asked: dict[str, Any] | None,
    devices: Devices | None = None,
) -> Run:
    """`resume`, after the data have become a source; `asked`: what the caller asked for, to be compared."""
    clock, writes = Clock(), is_writer(devices)
    with Store.open(path) if writes else contextlib.nullcontext(open_stored(path)) as store:
        record, reached = store.record, store.progress
        _need_record(record, store.path)
        if asked is not None:
            chosen = {"sampler", "estimator", "num_burnin"} - set(asked)  # not by the user
            stored = {name: value for name, value in record["asked"].items() if name not in chosen}
            records.refuse_differences(stored, asked, store.path, "these arguments")
        plan = _plan(record, reached, num_samples, reducers, store.path)
        _refuse_another_spread(record, devices, store.path)
        problem, ready = _compose(
            record, model, source, plan, params, sampler, estimator, store.path, devices
        )
        if reached["draws"] >= plan.num_samples:
            return loading.load(path)
        key = jax.random.key(plan.seed)
        composed = Composed(
            *(problem.model, ready, plan.num_chains, key, plan.keeping, devices, plan.first_chain)
        )
        chains = _chains.make_chains(composed, plan.chain_method, store.read_state())
        spec = records.kept_spec(problem.model, ready, chains.first_state, plan.keeping)
        here = jax.tree.map(np.array, chains.first_state.sampler.position)
        ready = ready._replace(start=ready.start._replace(position=here))
        bar = Bar(plan.num_steps, progress and writes)
        sink: Sink = StoreSink(store, spec) if isinstance(store, Store) else MemorySink()
        try:
            session = Session(chains, plan, sink, tuple(callbacks), bar, records.stamp(source))
            session.take_up(reached)
            run = conclude(session, problem, ready, record, {"setup": clock.read()})
            return run if writes else loading.load(path)
        finally:
            bar.close()


def check(
    path: _Path, num_samples: int | None, sampler: Any, estimator: Any, reducers: Mapping[str, Any] | None
) -> None:
    """Refuse what `go_on` would refuse, as far as it can be seen from the arguments alone."""
    stored = open_stored(path)
    _need_record(stored.record, stored.path)
    _plan(stored.record, stored.progress, num_samples, reducers, stored.path)
    _method(stored.record, sampler, estimator)


def is_writer(devices: Devices | None) -> bool:
    """Whether this process writes the store and shows progress: the first of those that share a run."""
    return devices is None or not devices.many_processes or jax.process_index() == 0


def _refuse_another_spread(record: dict[str, Any], devices: Devices | None, path: str) -> None:
    was = record["configuration"].get("row_places", 1)
    now = devices.num_row_places if devices is not None and devices.row_axes else 1
    if was != now:
        raise InvalidValueError(
            f"the run in {path} has its rows spread over {was} devices, and is gone on with {now}: batches would be "
            "others. Pass a `mesh` with as many places for rows."
        )


def _need_record(record: dict[str, Any], path: str) -> None:
    if "asked" not in record:
        raise StoreError(
            f"{path} holds draws without the state of their chains (`run.save`): it cannot be resumed."
        )


def _plan(
    record: dict[str, Any],
    reached: dict[str, Any],
    num_samples: int | None,
    reducers: Mapping[str, Any] | None,
    path: str,
) -> Plan:
    """The plan of the stored run, with the number of draws that is wanted now."""
    was = record["configuration"]
    if reached["status"] == "diverged":
        chain, step, _ = reached["diverged"]
        chain += was.get("first_chain", 0)
        raise StoreError(
            f"the run in {path} ended because chain {chain} left the finite numbers at step {step}; going on would end "
            "there again. Start a new run with a smaller step size; sc.load opens the draws before it."
        )
    wanted = (
        reached["num_samples"] if num_samples is None else _checks.positive_int(num_samples, "num_samples")
    )
    if wanted < reached["draws"]:
        raise InvalidValueError(
            f"the run in {path} has {reached['draws']} draws already, more than num_samples={wanted}. sc.load opens it."
        )
    keeping = Keeping.checked(was["keep_gradients"], was["keep_draws"] or False, dict(reducers or {}))
    if keeping.reducing.names != record["reducers"]:
        raise InvalidValueError(
            f"the run in {path} has the reducers {record['reducers']}, which are functions and not stored; "
            f"pass reducers=... as at first (got {keeping.reducing.names})."
        )
    return Plan(
        wanted,
        was["num_burnin"],
        was["thin"],
        was["num_chains"],
        was["seed"],
        keeping,
        was["chain_method"],
        was.get("first_chain", 0),
    )


def _compose(
    record: dict[str, Any],
    model: Posterior,
    source: Any,
    plan: Plan,
    params: Params | None,
    sampler: Any,
    estimator: Any,
    path: str,
    devices: Devices | None,
) -> tuple[setup.Problem, setup.Ready]:
    """The problem as it was, after looking whether it is the same one."""
    resolved = _method(record, sampler, estimator)
    problem = setup.compose(model, source, *resolved, plan.seed, devices)
    _refuse_other_data(record, source, path)
    position = _position(record, params)
    rows = source.read(0, min(records._MODEL_ROWS, source.num_rows))
    difference = encoding.compare_models(
        record["model_values"], encoding.model_values(problem.model, position, rows)
    )
    if difference:
        raise InvalidValueError(
            f"the run in {path} cannot be resumed with this model: {difference}. Pass the model it was started with."
        )
    _warn_other_machine(record)
    begin = Start(
        position, setup.blank_memory(problem.model, problem.parts, problem.table, position, 1), None
    )
    return problem, setup.Ready(problem.parts, problem.table, begin, dict(record["report"]), resumed=True)


def _method(record: dict[str, Any], sampler: Any, estimator: Any) -> tuple[Any, Any]:
    """The sampler with everything resolved, and the estimator; given ones serve where the store has none."""
    return _part(record, sampler, "sampler"), _part(record, estimator, "estimator")


def _part(record: dict[str, Any], given: Any, key: str) -> Any:
    if given is not None:
        was, now = record["asked"][key], records.describe(given)
        records.refuse_differences({key: was}, {key: now}, "the store", f"another {key}")
    try:
        return encoding.decode(record[key], key)
    except InvalidTypeError:
        if given is None:
            raise
        return given


def _position(record: dict[str, Any], params: Params | None) -> PyTree:
    """Where the run started, in unconstrained coordinates."""
    leaves = [jnp.asarray(encoding.decode(leaf, "params")) for leaf in record["probe"]]
    if params is None:
        return encoding.build(record["structure"], leaves, exact=True)
    names = list(record["position"])
    if _tree.leaf_names(params) != names:
        raise InvalidValueError(
            f"`params` has the parameters {_tree.leaf_names(params)}; the stored run has {names}."
        )
    return jax.tree.unflatten(jax.tree.structure(params), leaves)


def _refuse_other_data(record: dict[str, Any], source: Any, path: str) -> None:
    was = {key: record["configuration"][key] for key in ("num_rows", "data")}
    now = {"num_rows": int(source.num_rows), "data": source.fingerprint()}
    records.refuse_differences(was, now, path, "these data")


def _warn_other_machine(record: dict[str, Any]) -> None:
    was = record["configuration"]
    now = {"backend": jax.default_backend(), "jax": jax.__version__, "numpy": np.__version__}
    then = {"backend": was["backend"], **{key: was["versions"][key] for key in ("jax", "numpy")}}
    changed = [f"{key} {then[key]} → {now[key]}" for key in now if then[key] != now[key]]
    if changed:
        _checks.warn(
            f"the run was started elsewhere ({', '.join(changed)}): it goes on correctly, but its further draws may "
            "differ in the last bits from those of an uninterrupted run."
        )
