"""Samplers, estimators, trees, models and the state of chains as plain JSON and arrays, and back.

No stored code is executed, nothing is pickled, and everything that is read is checked. Only classes of this library,
and the user's own samplers, estimators and schedules that are defined when a file is read, are constructed, by their
own constructors with their own checks. Values that cannot be stored (functions, optimisers, very large arrays) are
marked, and the user must pass them again. The structure of a state comes from the model and the method, traced on
shapes; a file contains only its numbers.
"""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree, estimators, samplers, simplex
from scirocco._programs import setup_program
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.model import Posterior
from scirocco.reducers import MomentResult, ZeroVarianceResult
from scirocco.run import loop
from scirocco.run.loop import KernelState, Start
from scirocco.run.setup import Problem
from scirocco.run.sizes import RUNNING
from scirocco.types import Array, Key, Params, PyTree


def _known() -> dict[str, type]:
    """Classes that a store identifies by name alone: those of this library."""
    rooms = (samplers, samplers.schedules, simplex, estimators)
    classes = [item for room in rooms for item in vars(room).values() if isinstance(item, type)]
    return {cls.__name__: cls for cls in classes if dataclasses.is_dataclass(cls)}


_KINDS = (samplers.Sampler, estimators.Estimator, samplers.schedules.Schedule)


def _own(module: str, name: str) -> type | None:
    """A user's sampler, estimator or schedule; its class must be defined already, because nothing is imported."""
    found, kinds = None, list[type](_KINDS)
    while kinds:
        kind = kinds.pop(0)
        kinds += kind.__subclasses__()
        if (kind.__module__, kind.__qualname__) == (module, name) and dataclasses.is_dataclass(kind):
            found = kind  # the latest one, where a notebook defines several
    return found


def encode(part: Any) -> Any:
    """A sampler, an estimator or a value inside one, as JSON."""
    if part is None or isinstance(part, (bool, int, float, str)):
        return part
    if isinstance(part, dict):
        return {"dict": [[encode(key), encode(value)] for key, value in part.items()]}
    if isinstance(part, (list, tuple)) and not _tree.is_named_tuple(part):
        return {type(part).__name__: [encode(value) for value in part]}
    cls = type(part)
    if dataclasses.is_dataclass(part) and _known().get(cls.__name__) is cls:
        return {"class": cls.__name__, "fields": _fields(part)}
    if isinstance(part, _KINDS) and dataclasses.is_dataclass(cls):
        return {"class": cls.__qualname__, "module": cls.__module__, "fields": _fields(part)}
    if _tree.is_array(part):
        array = np.asarray(part)
        if array.nbytes <= RUNNING.recorded_bytes and array.dtype.kind in "fiub":
            content = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
            return {"array": content, "dtype": array.dtype.str, "shape": list(array.shape)}
    return {"unknown": type(part).__name__}


def _fields(part: Any) -> dict[str, Any]:
    skipped = part.traits.only_for_setup if isinstance(part, estimators.Estimator) else ()
    names = [field.name for field in dataclasses.fields(part) if field.init and field.name not in skipped]
    return {name: encode(value) for name, value in _tree.fields_of(part).items() if name in names}


def decode(written: Any, name: str) -> Any:
    """The value that `encode` wrote; raises an error when the user must pass part of it again."""
    if written is None or isinstance(written, (bool, int, float, str)):
        return written
    if not isinstance(written, dict):
        raise InvalidValueError(f"the stored `{name}` cannot be read: {written!r}.")
    if "dict" in written:
        return {decode(key, name): decode(value, name) for key, value in written["dict"]}
    if "list" in written:
        return [decode(value, name) for value in written["list"]]
    if "tuple" in written:
        return tuple(decode(value, name) for value in written["tuple"])
    if "array" in written:
        content = np.frombuffer(base64.b64decode(written["array"]), np.dtype(written["dtype"]))
        return content.reshape(written["shape"])
    if "spread" in written:
        mean, deviation = written["spread"]
        return _spread(mean, deviation, tuple(written["shape"]), np.dtype(written["dtype"]))
    if "class" in written:
        own = written.get("module")
        cls = _known().get(written["class"]) if own is None else _own(own, written["class"])
        if cls is not None:
            fields = {key: decode(value, name) for key, value in written["fields"].items()}
            try:
                return cls(**fields)
            except TypeError as error:
                raise InvalidTypeError(
                    f"the run's {name} cannot be rebuilt from {', '.join(fields)}: {error}. Pass {name}=... to "
                    "sc.resume with the original value."
                ) from error
    what = written.get("unknown") or written.get("class")
    raise InvalidTypeError(
        f"the run's {name} contains a {what}, which cannot be stored: pass {name}=... (the original) to sc.resume."
    )


# -- parameter trees ---------------------------------------------------------------------------------------------------


def structure(tree: PyTree) -> Any:
    """The shape of a tree of dicts, lists and tuples; leaves are numbered. Other nodes become dicts of their fields."""
    numbers = iter(range(len(jax.tree.leaves(tree))))

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            if not all(isinstance(key, str) for key in node):
                return {"foreign": type(node).__name__, "items": _children(node, walk)}
            return {"dict": {key: walk(node[key]) for key in sorted(node)}}
        if isinstance(node, (list, tuple)) and not _tree.is_named_tuple(node):
            return {type(node).__name__: [walk(child) for child in node]}
        if jax.tree_util.all_leaves([node]):
            return next(numbers)
        if node is None:
            return None
        return {"foreign": type(node).__name__, "items": _children(node, walk)}

    return walk(tree)


def _children(node: Any, walk: Any) -> dict[str, Any]:
    paths, _ = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda child: child is not node)
    return {_key_name(path[0]): walk(child) for path, child in paths}


def _key_name(key: object) -> str:
    """The name of a child in its node."""
    if isinstance(key, jax.tree_util.GetAttrKey):
        return str(key.name)
    return str(key.key if isinstance(key, (jax.tree_util.DictKey, jax.tree_util.FlattenedIndexKey)) else key)


def build(written: Any, leaves: list[Any], exact: bool = False) -> PyTree:
    """A tree of that structure; foreign nodes become dicts, or raise an error when the tree must be `exact`."""
    if written is None:
        return None
    if isinstance(written, int):
        return leaves[written]
    if "dict" in written:
        return {key: build(child, leaves, exact) for key, child in written["dict"].items()}
    if "list" in written:
        return [build(child, leaves, exact) for child in written["list"]]
    if "tuple" in written:
        return tuple(build(child, leaves, exact) for child in written["tuple"])
    if exact:
        raise InvalidTypeError(
            f"the parameters contain a {written['foreign']}, which cannot be rebuilt: pass params=... (any values of "
            "the same structure) to sc.resume."
        )
    fields = {key: build(child, leaves, exact) for key, child in written["items"].items()}
    kind = {"MomentResult": MomentResult, "ZeroVarianceResult": ZeroVarianceResult}.get(written["foreign"])
    return fields if kind is None else kind(**fields)


# -- models ------------------------------------------------------------------------------------------------------------


def point(position: Params) -> list[Any]:
    """Where a model is recognised: at this position, or for many parameters at one of the same mean and spread.

    A position as large as a draw has no place in a record; the other one is written as two numbers per leaf.
    """
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(position)]
    if _tree.size(position) <= RUNNING.recorded_parameters:
        return [encode(leaf) for leaf in leaves]
    return [
        {
            "spread": [float(leaf.mean(dtype=np.float64)), float(leaf.std(dtype=np.float64))],
            "dtype": leaf.dtype.str,
            "shape": list(leaf.shape),
        }
        for leaf in leaves
    ]


def point_of(position: Params) -> Params:
    """The point that `point` writes."""
    leaves = [jnp.asarray(decode(leaf, "params")) for leaf in point(position)]
    return jax.tree.unflatten(jax.tree.structure(position), leaves)


def _spread(mean: float, deviation: float, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Numbers of this mean and standard deviation, the same on every machine."""
    steps = np.arange(math.prod(shape), dtype=np.uint32) * np.uint32(2_654_435_761)
    uniform = steps.astype(np.int32).astype(np.float32) * np.float32(2.0**-31)
    return (mean + math.sqrt(3.0) * deviation * uniform).astype(dtype).reshape(shape)


def model_values(model: Posterior, position: Params, rows: PyTree) -> dict[str, list[list[float]]]:
    """The values of a model (log prior and a few rows) at a point and at dispersed ones, by which it is recognised."""
    shifts = _shifts(position)
    points = jax.tree.map(lambda leaf: _around(np.asarray(leaf), shifts), position)
    return _as_lists(_values(model, points, rows))


def values_at(model: Posterior, position: Params, rows: PyTree) -> dict[str, list[list[float]]]:
    """The values at one point; by the program of `model_values`, which exists already."""
    num_points = len(_shifts(position)) + 1
    points = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], num_points, axis=0), position)
    return {name: values[:1] for name, values in _as_lists(_values(model, points, rows)).items()}


@setup_program(1)
def _values(model: Posterior, points: Params, rows: PyTree) -> dict[str, Array]:
    return jax.vmap(lambda point: model.values(point, rows))(points)


def _as_lists(values: dict[str, Array]) -> dict[str, list[list[float]]]:
    """The values as lists by name, the prior first: JAX has sorted the names."""
    return {
        name: np.asarray(values[name], np.float64).reshape(len(values[name]), -1).tolist()
        for name in sorted(values, reverse=True)
    }


def _shifts(position: Params) -> list[float]:
    scales = _SCALES if _tree.size(position) <= RUNNING.recorded_parameters else _SCALES[1:2]
    return [sign * scale for scale in scales for sign in (1, -1)]


_SCALES = (0.1, 1.0, 10.0, 100.0)
"""How far from the start models are compared."""


def _around(leaf: np.ndarray, shifts: list[float]) -> np.ndarray:
    """The leaf, and shifted: every entry by a different amount, half of the shift to all of it, up or down."""
    mixed = np.arange(1, leaf.size + 1, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(1 << 32)
    amount = (0.5 + (mixed >> np.uint64(8)) % np.uint64(1 << 16) / (1 << 17)) * np.where(mixed & np.uint64(1), 1, -1)
    shifted = [leaf + (by * amount.reshape(leaf.shape)).astype(leaf.dtype) for by in shifts]
    return np.stack([leaf, *shifted])


def compare_models(stored: dict[str, list[Any]], found: dict[str, list[Any]], tolerance: float) -> str | None:
    """Describe the first difference; None when there is none.

    `tolerance` is relative to a value, and in addition to the largest finite value at its point.
    """
    if set(stored) != set(found):
        return f"the model has {', '.join(sorted(found))} where the stored run had {', '.join(sorted(stored))}"
    for name in stored:
        was, now = (np.asarray(values[name], float) for values in (stored, found))
        if was.shape != now.shape:
            return f"the model's {name} has a different structure"
        finite = np.where(np.isfinite(was) & np.isfinite(now), np.maximum(abs(was), abs(now)), 0.0)
        unit = finite.max(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            close = (was == now) | (abs(was - now) <= tolerance * (finite + unit))
        close |= np.isnan(was) & np.isnan(now)
        if not close.all():
            place = np.unravel_index(int(np.argmin(close)), close.shape)
            return f"the model's {name} is {now[place]:.8g}, but {was[place]:.8g} in the stored run"
    return None


class Snapshot(NamedTuple):
    """One chain."""

    state: KernelState
    reducing: PyTree
    made: Any
    """Draws made so far, kept or not."""


def save_chains(chains: list[Snapshot]) -> dict[str, np.ndarray]:
    """Named arrays with a leading chain axis."""
    names = _tree.leaf_names(chains[0])
    leaves = [[_as_numbers(leaf) for leaf in jax.tree.leaves(chain)] for chain in chains]
    return {name: np.stack(parts) for name, *parts in zip(names, *leaves, strict=True)}


def save_stacked_chains(chains: Snapshot) -> dict[str, np.ndarray]:
    """The same for chains whose leaves have the chain axis already."""
    names = _tree.leaf_names(chains)
    return {name: _as_numbers(leaf) for name, leaf in zip(names, jax.tree.leaves(chains), strict=True)}


_RESULT, FITTED = "result:", "fitted:"
"""Prefix of arrays that are not part of the state: the reducers' results, the extra arrays of a fitted model."""


def save_results(results: PyTree) -> dict[str, np.ndarray]:
    """The reducers' results: named arrays that are not part of the state."""
    leaves = jax.tree.leaves(results)
    return {f"{_RESULT}{number:04d}": np.asarray(leaf) for number, leaf in enumerate(leaves)}


def results_in(saved: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of `save_results`, in order."""
    return {name: saved[name] for name in sorted(saved) if name.startswith(_RESULT)}


def save_fitted(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays that a fitted model needs in addition to its draws: named arrays that are not part of the state."""
    return {FITTED + name: np.asarray(array) for name, array in arrays.items()}


def fitted_in(saved: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of `save_fitted`."""
    return {n.removeprefix(FITTED): array for n, array in saved.items() if n.startswith(FITTED)}


def chains_in(saved: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays that form the state of the chains."""
    return {name: value for name, value in saved.items() if not name.startswith((_RESULT, FITTED))}


def _as_numbers(leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    array = np.asarray(leaf)
    return array.view(np.uint16) if array.dtype == jnp.bfloat16 else array


def template(problem: Problem, position: Params, key: Key, reducing: PyTree) -> Snapshot:
    """The shapes and dtypes of a chain's state."""
    model, parts, num_rows = problem.model, problem.parts, problem.table.num_rows
    scheme, row_spec = parts.scheme, problem.table.row_spec
    batching = scheme.batching(parts.sampler, parts.estimator, num_rows)

    def begin(data: PyTree) -> KernelState:
        served = parts._replace(data=data, batching=batching)
        memory = scheme.blank_memory(model, served, position, num_rows, row_spec)
        return loop.start_chain(model, served, Start(position, memory, None), key, np.int32(0))[0]

    def all_rows(row: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((num_rows + batching.size - 1, *row.shape), row.dtype)

    data = jax.tree.map(all_rows, row_spec)
    return Snapshot(jax.eval_shape(begin, data), jax.eval_shape(lambda: reducing), np.int64(0))


def restore(like: Snapshot, saved: dict[str, np.ndarray], chain: int) -> Snapshot:
    """The saved numbers of one chain in the structure of `like`; raises an error if they do not fit."""
    names = _tree.leaf_names(like)
    saved = chains_in(saved)
    missing, extra = sorted(set(names) - set(saved)), sorted(set(saved) - set(names))
    if missing or extra:
        raise InvalidValueError(
            "the stored state belongs to another sampler, estimator or set of reducers: "
            + "; ".join(
                f"{what} {', '.join(f'`{name}`' for name in some)}"
                for what, some in (("missing", missing), ("unexpected", extra))
                if some
            )
            + "."
        )
    leaves, treedef = jax.tree.flatten(like)
    values = [_fit(name, leaf, saved[name][chain]) for name, leaf in zip(names, leaves, strict=True)]
    return jax.tree.unflatten(treedef, values)


def _fit(name: str, like: Any, value: np.ndarray) -> Any:
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(value))
    if like.dtype == jnp.bfloat16:
        value = value.view(jnp.bfloat16)
    if value.shape != like.shape or value.dtype != like.dtype:
        raise InvalidValueError(
            f"the stored state has `{name}` with shape {value.shape} and dtype {value.dtype}; this model and method "
            f"require shape {like.shape} and dtype {like.dtype}."
        )
    return jnp.asarray(value) if isinstance(like, jax.ShapeDtypeStruct) else value
