"""Check that a stored run matches the request, and rebuild its problem so that it can be resumed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco._version import __version__
from scirocco.data import Devices
from scirocco.errors import InvalidTypeError, InvalidValueError, StoreError
from scirocco.estimators import Estimator
from scirocco.model import Posterior
from scirocco.run import encoding, records, setup
from scirocco.run.choose import methods
from scirocco.run.keeping import Keeping
from scirocco.run.loop import Start
from scirocco.run.records import Progress, Record
from scirocco.run.session import Plan
from scirocco.samplers import Sampler
from scirocco.store import open_stored
from scirocco.types import Params, PyTree

if TYPE_CHECKING:
    from scirocco.run.request import Request

_Path = str | os.PathLike[str]


class PassedParts(NamedTuple):
    """The parts that could not be stored, passed again by the user."""

    params: Params | None
    sampler: Sampler | None
    estimator: Estimator | None
    reducers: Mapping[str, Any] | None


def check(path: _Path, num_samples: int | None, method: PassedParts) -> Plan:
    """The plan of the stored run; raises an error for differences that the arguments alone show."""
    stored = open_stored(path)
    with records.understood(stored.path):
        record, reached = records.read(stored)
        plan = _plan(record, reached, num_samples, method.reducers, stored.path)
        stored_part(record, method.sampler, "sampler")
        stored_part(record, method.estimator, "estimator")
    return plan


def checked(request: Request, record: Record, reached: Progress) -> Request:
    """The request with the plan, sampler and estimator of the stored run; raises an error if it differs."""
    path = os.path.abspath(os.fspath(cast(_Path, request.store)))
    with records.understood(path):
        return _checked(request, record, reached, path)


def _checked(request: Request, record: Record, reached: Progress, path: str) -> Request:
    left_out = request.left_out
    was, now = (
        {name: value for name, value in asked.items() if name not in left_out}
        for asked in (_asked(record, path), request.asked)
    )
    records.refuse_differences(was, now, path, "these arguments")
    plan = _plan(record, reached, request.plan.num_samples, request.reducers, path)
    _refuse_another_spread(record, request.devices, path)
    return request._replace(
        plan=plan,
        source=_as_stored(record, request.source),
        sampler=stored_part(record, None if "sampler" in left_out else request.sampler, "sampler"),
        estimator=stored_part(record, None if "estimator" in left_out else request.estimator, "estimator"),
    )


def _as_stored(record: Record, source: Any) -> Any:
    """A small folder as arrays, if the stored run read it whole: its fingerprint is then that of the arrays."""
    was = record.configuration["data"]
    whole = source if source.fingerprint() == was else methods.read_if_few(source)
    return whole if whole.fingerprint() == was else source


def recomposed(request: Request, record: Record) -> tuple[setup.Problem, setup.Ready]:
    """The original problem, after a check that model and data are the same."""
    path, source = os.fspath(cast(_Path, request.store)), request.source
    problem = setup.compose(
        request.model, source, request.sampler, request.estimator, request.plan.seed, request.devices
    )
    with records.understood(path):
        _refuse_other_data(record, source, path)
        position = _position(record, request.params)
    _refuse_another_model(_difference(record, problem.model, position, records.probe_rows(source)), path)
    _warn_other_machine(record)
    scheme, table = problem.parts.scheme, problem.table
    memory = scheme.blank_memory(problem.model, problem.parts, position, 1, table.row_spec)
    sampler, report = problem.parts.sampler, dict(record.report)
    ready = setup.Ready(sampler, problem.parts.estimator, Start(position, memory, None), report, resumed=True)
    return problem, ready


def _refuse_another_spread(record: Record, devices: Devices | None, path: str) -> None:
    was = record.configuration.get("row_places", 1)
    now = devices.num_row_places if devices is not None and devices.row_axes else 1
    if was != now:
        raise InvalidValueError(
            f"the run in {path} has its rows spread over {was} devices; with {now}, its batches would "
            "differ. Pass a `mesh` with the same number of devices for rows."
        )


def _asked(record: Record, path: str) -> dict[str, Any]:
    if record.asked is None:
        raise StoreError(
            f"{path} holds draws without the state of the chains (`run.save`), so the run cannot be resumed. Pass "
            "overwrite=True to start it again, or another `store`."
        )
    return record.asked


def _plan(
    record: Record, reached: Progress, num_samples: int | None, reducers: Mapping[str, Any] | None, path: str
) -> Plan:
    """The plan of the stored run, with the number of draws requested now."""
    _asked(record, path)
    was = record.configuration
    if reached.diverged is not None:
        chain, step = record.first_chain + reached.diverged.chain, reached.diverged.step
        raise StoreError(
            f"the run in {path} ended because chain {chain} diverged (NaN, inf or far too wide) at step {step}; "
            "a resumed run would diverge again. Start a new run with a smaller step size; sc.load opens the draws."
        )
    wanted = reached.num_samples if num_samples is None else _checks.positive_int(num_samples, "num_samples")
    if wanted < reached.draws:
        raise InvalidValueError(
            f"the run in {path} already has {reached.draws} draws, more than num_samples={wanted}. sc.load opens it."
        )
    keeping = Keeping.checked(was["keep_gradients"], was["keep_draws"] or False, dict(reducers or {}))
    if keeping.reducing.names != record.reducers:
        raise InvalidValueError(
            f"the run in {path} has the reducers {record.reducers}, which are functions and cannot be stored; "
            f"pass the original reducers=... (got {keeping.reducing.names})."
        )
    return Plan(
        wanted,
        *record.lengths[1:],
        record.num_chains,
        was["seed"],
        keeping,
        was["chain_method"],
        record.first_chain,
        was.get("group_size", 1),
        tuple(was.get("cycle", ())),
    )


def stored_part(record: Record, given: Any, key: str) -> Any:
    """The sampler or estimator of a stored run (the given one if none could be stored); another one is an error."""
    if given is not None and record.asked is not None:
        was, now = record.asked[key], records.describe(given)
        records.refuse_differences({key: was}, {key: now}, "the store", f"another {key}")
    stored = {"sampler": record.sampler, "estimator": record.estimator}
    try:
        return encoding.decode(stored[key], key)
    except InvalidTypeError:
        open_sampler = isinstance(given, Sampler) and given.is_open
        if given is None or open_sampler or (isinstance(given, Estimator) and given.is_open):
            raise  # only the store knows the values that were chosen
        return given


def _position(record: Record, params: Params | None) -> PyTree:
    """Where the run started, in unconstrained coordinates."""
    leaves = [jnp.asarray(encoding.decode(leaf, "params")) for leaf in record.probe or []]
    shapes = [tuple(leaf["shape"]) for leaf in (record.position or {}).values()]
    if [leaf.shape for leaf in leaves] != shapes:
        raise ValueError(f"its start has the shapes {[leaf.shape for leaf in leaves]}, its parameters {shapes}")
    if params is None:
        return encoding.build(record.structure, leaves, exact=True)
    names = list(record.position or {})
    if _tree.leaf_names(params) != names:
        raise InvalidValueError(f"`params` has the parameters {_tree.leaf_names(params)}; the stored run has {names}.")
    return jax.tree.unflatten(jax.tree.structure(params), leaves)


def _refuse_other_data(record: Record, source: Any, path: str) -> None:
    was = {key: record.configuration[key] for key in ("num_rows", "data")}
    now = {"num_rows": int(source.num_rows), "data": source.fingerprint()}
    records.refuse_differences(was, now, path, "these data")


def _difference(record: Record, model: Posterior, position: PyTree, rows: PyTree) -> str | None:
    """What distinguishes a model from that of the stored run; None if nothing does."""
    values = encoding.model_values(model, position, rows)
    return encoding.compare_models(record.model_values, values, _tolerance(record, position))


def check_here(record: Record, reached: Progress, model: Posterior, position: PyTree, request: Request) -> None:
    """Raise an error if the model has other values where the first chain is than it had when it came there."""
    if reached.model_values is None:
        return
    values = encoding.values_at(model, position, records.probe_rows(request.source))
    difference = encoding.compare_models(reached.model_values, values, _tolerance(record, position))
    _refuse_another_model(difference, os.fspath(cast(_Path, request.store)))


def _refuse_another_model(difference: str | None, path: str) -> None:
    if difference:
        raise InvalidValueError(
            f"the run in {path} cannot be resumed with this model: {difference}. Pass the original model."
        )


def _tolerance(record: Record, position: PyTree) -> float:
    """Rounding errors of the same program; more where another version or another kind of device computes it."""
    changed = {change.split()[0] for change in _changes(record)}
    least = 1e-3 if "backend" in changed else 1e-4 if "jax" in changed else 0.0
    kinds = [leaf.dtype for leaf in jax.tree.leaves(position) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return max([least, *(64 * float(jnp.finfo(kind).eps) for kind in kinds)])


def _changes(record: Record) -> list[str]:
    """What differs from the setup on which the run was started."""
    was = record.configuration
    versions = {"jax": jax.__version__, "numpy": np.__version__, "scirocco": __version__}
    now, then = {"backend": jax.default_backend(), **versions}, {"backend": was["backend"], **was["versions"]}
    return [f"{key} {then[key]} → {now[key]}" for key in now if then[key] != now[key]]


def _warn_other_machine(record: Record) -> None:
    changed = [change for change in _changes(record) if not change.startswith("scirocco")]
    if changed:
        _checks.warn(
            f"the run was started on another setup ({', '.join(changed)}): it resumes correctly, but further draws may "
            "differ in the last bits from those of an uninterrupted run."
        )
