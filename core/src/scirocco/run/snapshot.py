"""The state of all chains as named arrays, and back: nothing is pickled, and everything that is read is checked.

The structure comes from the model and the method, traced on shapes; a file contains only the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco.errors import InvalidValueError
from scirocco.run import loop
from scirocco.run.loop import KernelState, Start
from scirocco.run.setup import Problem
from scirocco.types import Key, Params, PyTree


class Snapshot(NamedTuple):
    """One chain."""

    state: KernelState
    reducing: PyTree
    made: Any
    """Draws made so far, kept or not."""


def save(chains: list[Snapshot]) -> dict[str, np.ndarray]:
    """Named arrays with a leading chain axis."""
    names = _tree.leaf_names(chains[0])
    leaves = [[_as_numbers(leaf) for leaf in jax.tree.leaves(chain)] for chain in chains]
    return {name: np.stack(parts) for name, *parts in zip(names, *leaves, strict=True)}


def save_stacked(chains: Snapshot) -> dict[str, np.ndarray]:
    """The same for chains whose leaves have the chain axis already."""
    names = _tree.leaf_names(chains)
    return {name: _as_numbers(leaf) for name, leaf in zip(names, jax.tree.leaves(chains), strict=True)}


_RESULT, FITTED = "result:", "fitted:"
"""Prefix of arrays that are not part of the state: the reducers' results, the extra arrays of a fitted model."""


def save_results(results: PyTree) -> dict[str, np.ndarray]:
    """The reducers' results: named arrays that are not part of the state."""
    leaves = jax.tree.leaves(results)
    return {f"{_RESULT}{number:04d}": np.asarray(leaf) for number, leaf in enumerate(leaves)}


def results(saved: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of `save_results`, in order."""
    return {name: saved[name] for name in sorted(saved) if name.startswith(_RESULT)}


def save_fitted(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays that a fitted model needs in addition to its draws: named arrays that are not part of the state."""
    return {FITTED + name: np.asarray(array) for name, array in arrays.items()}


def fitted(saved: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of `save_fitted`."""
    return {n.removeprefix(FITTED): array for n, array in saved.items() if n.startswith(FITTED)}


def of_chains(saved: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
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
    saved = of_chains(saved)
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
