"""What defines a run, as plain JSON: enough to describe it, to refuse another one, and to go on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from scirocco import _tree
from scirocco._version import __version__
from scirocco.data import ArraySource, Devices
from scirocco.errors import InvalidValueError
from scirocco.run import encoding, loop
from scirocco.run.keeping import Keeping
from scirocco.run.session import Plan
from scirocco.run.setup import Problem, Ready
from scirocco.run.sinks import Kept
from scirocco.types import PyTree

if TYPE_CHECKING:
    from scirocco.run.request import Request

_MODEL_ROWS = 8


SAMPLED, OWN_LOOP = "sampled", "own loop"
"""Kinds of runs: made by `sc.sample`, or by a model in a loop of its own."""


def kind_of(configuration: dict[str, Any]) -> str:
    """Of a run; those stored by versions before 0.2 do not say it, but their own loops have a name for a sampler."""
    older = OWN_LOOP if isinstance(configuration.get("sampler"), str) else SAMPLED
    return str(configuration.get("kind", older))


def method_of(configuration: dict[str, Any]) -> str:
    """How the draws of a run were made, in a few words."""
    sampler = configuration["sampler"]
    if kind_of(configuration) == OWN_LOOP:
        return f"{configuration['model']} by {sampler}"
    return f"{sampler['name']} with {configuration['estimator']['name']}"


def make(problem: Problem, ready: Ready, request: Request) -> dict[str, Any]:
    """What a store must hold besides the configuration; the request has sampler and estimator as the user gave them."""
    plan, estimator, position = request.plan, request.estimator, ready.start.position
    params = jax.eval_shape(problem.model.constrain, position)
    rows = problem.source.read(0, min(_MODEL_ROWS, problem.source.num_rows))
    return {
        "asked": request.asked,
        "notes": dict(request.notes),
        "sampler": encoding.encode(ready.sampler),
        "estimator": encoding.encode(estimator),
        "structure": encoding.structure(params),
        "position": leaves_spec(position),
        "params": leaves_spec(params),
        "model_values": encoding.model_values(problem.model, position, rows),
        "probe": [encoding.encode(np.asarray(leaf)) for leaf in jax.tree.leaves(position)],
        "report": plain(ready.report),
        "traces": {
            name: {
                "structure": encoding.structure(spec := jax.eval_shape(function, params)),
                "leaves": leaves_spec(spec),
            }
            for name, function in plan.keeping.reducing.traced.items()
        },
        "reducers": plan.keeping.reducing.names,
        "reduced": encoding.structure(_results(plan.keeping, params)),
    }


def _results(keeping: Keeping, params: PyTree) -> PyTree:
    """What the reducers will have found: shapes of one chain."""
    reducing = keeping.reducing
    states = jax.eval_shape(reducing.init, params)
    return {name: jax.eval_shape(r.result, states[name]) for name, r in reducing.reducers.items()}


def configuration(
    problem: Problem, ready: Ready, plan: Plan, devices: Devices | None = None
) -> dict[str, Any]:
    """Everything that defines a run, for readers."""
    return {
        **_places(plan, devices),
        "kind": SAMPLED,
        "model": repr(problem.model),
        "transformed": problem.model.transforms is not None,
        "sampler": describe(ready.sampler),
        "estimator": describe(problem.parts.estimator),
        "num_rows": int(problem.source.num_rows),
        "data": problem.source.fingerprint(),
        "parameters": leaves_spec(ready.start.position),
        "dimension": _tree.size(ready.start.position),
        "num_samples": plan.num_samples,
        "num_burnin": plan.num_burnin,
        "thin": plan.thin,
        "num_chains": plan.num_chains,
        "seed": plan.seed,
        "keep_gradients": plan.keeping.gradients,
        "keep_draws": plan.keeping.every,
        "chain_method": plan.chain_method,
        "backend": jax.default_backend(),
        "versions": {"scirocco": __version__, "jax": jax.__version__, "numpy": np.__version__},
    }


PLACES = frozenset({"row_places", "first_chain"})
"""Names of what `_places` tells."""


def _places(plan: Plan, devices: Devices | None) -> dict[str, Any]:
    """Over how many devices the rows are spread, and which chains of several these are; nothing in the usual case."""
    spread = {"row_places": devices.num_row_places} if devices is not None and devices.row_axes else {}
    return spread | ({"first_chain": plan.first_chain} if plan.first_chain else {})


def asked(sampler: Any, estimator: Any, plan: Plan, devices: Devices | None = None) -> dict[str, Any]:
    """What the user asked for, as far as it shapes the chains."""
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


def kept_spec(problem: Problem, state: loop.KernelState, keeping: Keeping) -> Kept:
    """What one draw leaves in the store: shapes and dtypes."""
    model, position = problem.model, jax.eval_shape(lambda: state.sampler.position)
    params = jax.eval_shape(model.constrain, position)
    stats = jax.eval_shape(lambda: loop.inform(model, problem.parts, state).stats)
    traces = {name: jax.eval_shape(f, params) for name, f in keeping.reducing.traced.items()}
    return Kept(
        params if keeping.every else None,
        position if keeping.every and keeping.gradients else None,
        stats,
        traces,
    )


def stamp(source: Any) -> Callable[[], str] | None:
    """How to notice that streamed data change under way; arrays in memory are not looked at."""
    if isinstance(source, ArraySource):
        return None
    return getattr(source, "stamp", source.fingerprint)


def refuse_differences(stored: Any, given: Any, path: str, what: str) -> None:
    """Raise with every place where two configurations differ."""
    differences = list(_differences(stored, given, ""))
    if differences:
        raise InvalidValueError(
            f"the run in {path} cannot be resumed with {what}: "
            + "; ".join(differences[:6])
            + ". Pass what it was "
            "started with, or start another run in another folder."
        )


def _differences(stored: Any, given: Any, place: str) -> Any:
    if isinstance(stored, dict) and isinstance(given, dict):
        for key in sorted({*stored, *given}):
            inside = f"{place}.{key}" if place else str(key)
            yield from _differences(stored.get(key), given.get(key), inside)
    elif stored != given:
        yield f"`{place}` was {_short(stored)} and is now {_short(given)}"


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
    """Numbers, strings, lists and dicts; arrays become a few numbers about them, functions their names."""
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
