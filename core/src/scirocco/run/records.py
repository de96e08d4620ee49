"""The description and the progress of a stored run, as plain JSON, for listing, comparing and resuming runs."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import jax
import numpy as np

from scirocco import _tree
from scirocco._version import __version__
from scirocco.data import ArraySource, Devices
from scirocco.data.arrays import RowSource
from scirocco.errors import InvalidValueError, SciroccoError, StoreError
from scirocco.run import encoding, loop
from scirocco.run.cadence import cadence_of
from scirocco.run.keeping import Keeping, Kept
from scirocco.store import Store, Stored, open_stored
from scirocco.types import PyTree

if TYPE_CHECKING:
    from scirocco.run.request import Request
    from scirocco.run.session import Plan
    from scirocco.run.setup import Problem, Ready

_MODEL_ROWS = 8
"""Rows on which models are compared."""
SAMPLED, OWN_LOOP = "sampled", "own loop"
"""Kinds of runs: made by `sc.sample`, or by a model in a loop of its own."""


class Divergence(NamedTuple):
    """Where a chain diverged (NaN or inf)."""

    chain: int
    step: int
    leaf: int


_OPTIONAL = frozenset({"model_values", "certificate"})
_FORMS: dict[str, type] = {
    "configuration": dict,
    "asked": dict,
    "notes": dict,
    "position": dict,
    "params": dict,
    "model_values": dict,
    "report": dict,
    "traces": dict,
    "probe": list,
    "reducers": list,
}
"""What the entries of a description are, where they are not None."""
_LEAST = {"num_samples": 1, "num_burnin": 0, "thin": 1, "num_chains": 1, "first_chain": 0, "seed": 0}
"""Whole numbers in the configuration, and the least of each."""
_MOST_STEPS = 2**62
"""Steps of a run; a larger number was not written by one."""


@dataclass(frozen=True)
class Progress:
    """The progress of a stored run, written with every commit."""

    step: int
    draws: int
    num_samples: int
    """The requested number of draws per chain."""
    status: str
    """"running", "complete", "interrupted", "stopped" or "diverged"."""
    steps_per_second: float = 0.0
    scores: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    timing: dict[str, dict[str, float]] = field(default_factory=dict)
    diverged: Divergence | None = None
    certificate: dict[str, Any] | None = None
    """`Certificate.to_json` at the end of a run whose sampler was chosen."""
    model_values: dict[str, Any] | None = None
    """Values of the model where the first chain is; only at the end of a session."""

    def to_json(self) -> dict[str, Any]:
        """The content of a commit."""
        diverged = None if self.diverged is None else list(self.diverged)
        written = {**vars(self), "diverged": diverged}
        return {name: value for name, value in written.items() if name not in _OPTIONAL or value is not None}

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Self:
        """What `to_json` wrote."""
        known = {name: written[name] for name in cls.__dataclass_fields__ if name in written}
        for name in ("step", "draws", "num_samples"):  # of NaN no comparison holds: a run would never be done
            if type(known[name]) is not int or not 0 <= known[name] < _MOST_STEPS:
                raise ValueError(f"`{name}` is {known[name]!r}")
        if not isinstance(known["status"], str) or not isinstance(known.get("timing", {}), dict):
            raise TypeError(f"the status is {known['status']!r}")
        for values in (known.get("model_values") or {}).values():
            np.asarray(values, float)
        known["steps_per_second"] = float(known.get("steps_per_second", 0.0))
        known["scores"] = [(int(step), dict(values)) for step, values in written["scores"]]
        known["diverged"] = Divergence(*map(int, written["diverged"])) if written.get("diverged") else None
        return cls(**known)


@dataclass(frozen=True, kw_only=True)
class Record:
    """The description of a stored run, written once, before its first step.

    Fields that are None are not written. The fields from `asked` on are needed to resume a run of `sc.sample`, and only
    such a run has them; a model with its own loop makes its chains itself.
    """

    configuration: dict[str, Any]
    """Everything that defines the run, for users: `Run.configuration`."""
    asked: dict[str, Any] | None = None
    """The requested arguments that affect the chains."""
    notes: dict[str, str] | None = None
    sampler: Any = None
    """Encoded, with all automatic choices filled in."""
    estimator: Any = None
    structure: Any = None
    """The structure of the draws."""
    position: dict[str, dict[str, Any]] | None = None
    """Shapes and dtypes of the unconstrained parameters, by name; `params`: those of the constrained ones."""
    params: dict[str, dict[str, Any]] | None = None
    model_values: Any = None
    """Values of the model at the point `probe` and others, by which another model is recognised."""
    probe: list[Any] | None = None
    report: dict[str, Any] = field(default_factory=dict)
    """The results of the set-up."""
    traces: dict[str, Any] = field(default_factory=dict)
    reducers: list[str] = field(default_factory=list)
    reduced: Any = field(default_factory=lambda: encoding.structure({}))
    """The structure of the reducers' results."""

    def to_json(self) -> dict[str, Any]:
        """The content of a store's description."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        names = cls.__dataclass_fields__.keys()
        known = {name: value for name, value in written.items() if name in names}
        for name, kind in _FORMS.items():
            if known.get(name) is not None and not isinstance(known[name], kind):
                raise StoreError(f"`{name}` of a run is {known[name]!r:.60}, and cannot have been written by scirocco.")
        for name, least in _LEAST.items():
            number = known["configuration"].get(name, least)
            if number is not None and (type(number) is not int or not least <= number < _MOST_STEPS):
                raise StoreError(f"`{name}` of a run is {number!r:.60}, and cannot have been written by scirocco.")
        cycle = known["configuration"].get("cycle", [])
        if cycle and not (len(cycle) == 2 and all(type(n) is int for n in cycle) and 0 < cycle[1] < cycle[0]):
            raise StoreError(f"`cycle` of a run is {cycle!r:.60}, and cannot have been written by scirocco.")
        for values in (known.get("model_values") or {}).values():
            np.asarray(values, float)
        dict(known["configuration"].get("versions", {}))
        return cls(**known)

    @property
    def kind(self) -> str:
        """Either "sampled" or "own loop"."""
        return kind_of(self.configuration)

    @property
    def method(self) -> str:
        """A short description of how the draws were made."""
        return method_of(self.configuration)

    @property
    def model(self) -> str:
        """The model's name, if it is one of `sc.models`."""
        return str(self.configuration.get("model"))

    @property
    def lengths(self) -> tuple[int, int, int]:
        """`num_samples`, `num_burnin` and `thin`, as originally planned."""
        return tuple(self.configuration[name] for name in ("num_samples", "num_burnin", "thin"))

    @property
    def num_burnin(self) -> int:
        """Steps before the first with draws."""
        return cadence_of(self.configuration).begin

    def num_steps(self, num_samples: int) -> int:
        """The number of steps for this many draws per chain."""
        return int(cadence_of(self.configuration).steps(num_samples))

    @property
    def num_chains(self) -> int:
        """Chains."""
        return int(self.configuration["num_chains"])

    @property
    def first_chain(self) -> int:
        """Number of the first chain, when other chains run elsewhere."""
        return int(self.configuration.get("first_chain", 0))


def read(stored: Stored | Store) -> tuple[Record, Progress]:
    """Read the description and the progress of a stored run."""
    with understood(stored.path):
        record, progress = Record.from_json(stored.record), Progress.from_json(stored.progress)
        held = []
        for group in ("posterior", "sample_stats"):  # with keep_draws=k only the statistics are of all draws
            with contextlib.suppress(KeyError):
                held.append(stored.draws(group))
        if held and progress.draws not in held:
            raise ValueError(f"`draws` is {progress.draws}, but {held[0]} are committed")
    return record, progress


def precision_of(path: Any) -> str | None:
    """The precision in which a stored run was made, if that is more than JAX's default."""
    with understood(str(path)):
        written = open_stored(path).record.get("position") or {}
        return "float64" if any(leaf["dtype"] == "float64" for leaf in written.values()) else None


@contextlib.contextmanager
def understood(path: str) -> Iterator[None]:
    """Documents that somebody else wrote may be of any form: an error of reading them is one of the store."""
    try:
        yield
    except (SciroccoError, OSError, MemoryError):
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise StoreError(
            f"the run in {path} is not as scirocco writes it ({type(error).__name__}: {reason}): its documents were "
            "changed. `xarray.open_zarr(path, group='posterior')` may still read its draws."
        ) from error


def status_of(stored: Stored) -> str:
    """The status; a run with all its draws is complete, one that is neither finished nor being written was killed."""
    status, progress = str(stored.progress["status"]), stored.progress
    if status in ("stopped", "interrupted") and 0 < progress["num_samples"] <= progress["draws"]:
        return "complete"
    return "killed" if status == "running" and not stored.running else status


def kind_of(configuration: Mapping[str, Any]) -> str:
    """The kind of a run; one that is put together by hand has the kind of `sc.sample`."""
    return str(configuration.get("kind", SAMPLED))


def method_of(configuration: Mapping[str, Any]) -> str:
    """A short description of how the draws of a run were made."""
    sampler = configuration["sampler"]
    if kind_of(configuration) == OWN_LOOP:
        return f"{configuration['model']} by {sampler}"
    return f"{sampler_name(sampler)} with {configuration['estimator']['name']}"


def sampler_name(sampler: Mapping[str, Any]) -> str:
    """The name of a described sampler for readers; a model's own additions to the user's sampler have none."""
    inner = sampler.get("inner")
    if not isinstance(inner, Mapping):
        return str(sampler["name"])
    return ("preconditioned " if sampler["name"] == "Preconditioned" else "") + sampler_name(inner)


def make(problem: Problem, ready: Ready, request: Request, configuration: dict[str, Any]) -> Record:
    """The record of a run to be stored; the request has sampler and estimator as the user gave them."""
    plan, position = request.plan, ready.start.position
    estimator = ready.estimator if request.estimator.is_open else request.estimator
    params = jax.eval_shape(problem.model.constrain, position)
    rows, point = probe_rows(problem.source), encoding.point_of(position)
    traced = plan.keeping.reducing.traced.items()
    return Record(
        configuration=configuration,
        asked=request.asked,
        notes=dict(request.notes),
        sampler=encoding.encode(ready.sampler),
        estimator=encoding.encode(estimator),
        structure=encoding.structure(params),
        position=leaves_spec(position),
        params=leaves_spec(params),
        model_values=encoding.model_values(problem.model, point, rows),
        probe=encoding.point(position),
        report=plain(ready.report),
        traces=trace_specs({name: jax.eval_shape(function, params) for name, function in traced}),
        reducers=plan.keeping.reducing.names,
        reduced=encoding.structure(_results(plan.keeping, params)),
    )


def probe_rows(source: Any) -> PyTree:
    """The rows at which models are compared."""
    return source.read(0, min(_MODEL_ROWS, source.num_rows))


def trace_specs(traces: Mapping[str, PyTree]) -> dict[str, Any]:
    """Structure and leaves of the traces."""
    return {name: {"structure": encoding.structure(tree), "leaves": leaves_spec(tree)} for name, tree in traces.items()}


def _results(keeping: Keeping, params: PyTree) -> PyTree:
    """The reducers' results: shapes for one chain."""
    reducing = keeping.reducing
    if not reducing.reducers:
        return {}
    states = jax.eval_shape(reducing.init, params)
    return {name: jax.eval_shape(r.result, states[name]) for name, r in reducing.reducers.items()}


def configuration(
    problem: Problem, ready: Ready, plan: Plan, devices: Devices | None = None, *, stored: bool
) -> dict[str, Any]:
    """Everything that defines a run, for users; the data are read for their fingerprint only if the run is stored."""
    return {
        **_places(plan, devices),
        "kind": SAMPLED,
        "model": repr(problem.model),
        "transformed": problem.model.facts.transforms is not None,
        "sampler": describe(ready.sampler),
        "estimator": describe(problem.parts.estimator),
        "num_rows": int(problem.source.num_rows),
        **({"data": problem.source.fingerprint()} if stored else {}),
        "parameters": leaves_spec(ready.start.position),
        "dimension": _tree.size(ready.start.position),
        "num_samples": plan.num_samples,
        "num_burnin": plan.num_burnin,
        "thin": plan.thin,
        **_cycle(plan),
        "num_chains": plan.num_chains,
        "seed": plan.seed,
        "keep_gradients": plan.keeping.gradients,
        "keep_draws": plan.keeping.every,
        "chain_method": plan.chain_method,
        "backend": jax.default_backend(),
        "versions": {"scirocco": __version__, "jax": jax.__version__, "numpy": np.__version__},
    }


PLACES = frozenset({"row_places", "first_chain", "group_size"})
"""The names of the entries that `_places` returns."""


def _places(plan: Plan, devices: Devices | None) -> dict[str, Any]:
    """Devices that share the rows, chains that share batches, and which chains these are; empty in the usual case."""
    spread = {"row_places": devices.num_row_places} if devices is not None and devices.row_axes else {}
    grouped = {"group_size": plan.group_size} if plan.group_size > 1 else {}
    return spread | grouped | ({"first_chain": plan.first_chain} if plan.first_chain else {})


def _cycle(plan: Plan) -> dict[str, list[int]]:
    return {"cycle": list(plan.cycle)} if plan.cycle else {}


def asked(sampler: Any, estimator: Any, plan: Plan, devices: Devices | None = None) -> dict[str, Any]:
    """The requested arguments that affect the chains."""
    return {
        **_places(plan, devices),
        "sampler": describe(sampler),
        "estimator": describe(estimator),
        "num_burnin": plan.num_burnin,
        "thin": plan.thin,
        "num_chains": plan.num_chains,
        "seed": plan.seed,
        "keep_gradients": plan.keeping.gradients,
        "keep_draws": plan.keeping.every,
        "reducers": plan.keeping.reducing.names,
    }


def leaves_spec(tree: PyTree) -> dict[str, dict[str, Any]]:
    """Shape and dtype of every leaf, by name."""
    named = zip(_tree.leaf_names(tree), jax.tree.leaves(tree), strict=True)
    return {name: {"shape": list(leaf.shape), "dtype": str(leaf.dtype)} for name, leaf in named}


def _shapes(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def kept_spec(problem: Problem, state: loop.KernelState, keeping: Keeping) -> Kept:
    """The shapes and dtypes that one draw needs in the store."""
    model, position = problem.model, _shapes(state.sampler.position)
    params = jax.eval_shape(model.constrain, position)
    stats = jax.eval_shape(lambda: loop.stats_of(model, problem.parts, state.sampler, state.gradient))
    traces = {name: jax.eval_shape(f, params) for name, f in keeping.reducing.traced.items()}
    return Kept(
        params if keeping.every else None, position if keeping.every and keeping.gradients else None, stats, traces
    )


def stamp(source: RowSource) -> Callable[[], str] | None:
    """A value that changes when streamed data change during the run; arrays in memory are not checked."""
    if isinstance(source, ArraySource):
        return None
    return source.stamp


def refuse_differences(stored: Any, given: Any, path: str, what: str) -> None:
    """Raise an error that lists the differences between two configurations."""
    differences = list(_differences(stored, given, ""))
    if differences:
        raise InvalidValueError(
            f"the run in {path} cannot be resumed with {what}: " + "; ".join(differences[:6]) + ". Pass the original "
            "arguments, or start another run in another folder."
        )


def _differences(stored: Any, given: Any, place: str) -> Any:
    if isinstance(stored, dict) and isinstance(given, dict):
        for key in sorted({*stored, *given}):
            inside = f"{place}.{key}" if place else str(key)
            yield from _differences(stored.get(key), given.get(key), inside)
    elif stored != given and all(_FINGERPRINT.fullmatch(str(value)) for value in (stored, given)):
        yield f"the values of `{place}` have changed (fingerprint {stored[:8]}, now {given[:8]})"
    elif stored != given:
        yield f"`{place}` was {_short(stored)} and is now {_short(given)}"


_FINGERPRINT = re.compile("[0-9a-f]{16}([0-9a-f]{16})?")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def describe(part: Any) -> dict[str, Any]:
    """A sampler, estimator or schedule by name and fields."""
    if not dataclasses.is_dataclass(part):
        return {"name": type(part).__name__}
    fields = {name: plain(value) for name, value in _tree.fields_of(part).items()}
    return {"name": type(part).__name__, **fields}


def plain(value: Any) -> Any:
    """Convert to numbers, strings, lists and dicts; arrays become summary numbers, functions their names."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not _tree.is_named_tuple(value):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return describe(value)
    if _tree.is_array(value):
        array = np.asarray(value)
        if array.size <= 1:
            return array.item() if array.size else None
        return {
            "shape": list(array.shape),
            "mean": float(array.mean()),
            "min": float(array.min()),
            "max": float(array.max()),
        }
    return getattr(value, "__qualname__", type(value).__name__)
