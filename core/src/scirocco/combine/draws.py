"""Draws of subposteriors as matrices on the real line, the way back to parameters, and what combining returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from scirocco import _checks, _tree
from scirocco.combine.shards import Subposteriors
from scirocco.data.values import as_numpy
from scirocco.diagnostics.columns import label
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.model import Model, Posterior
from scirocco.run import Run
from scirocco.types import Params, PyTree

Array = np.ndarray[Any, np.dtype[Any]]


class ShardDraws(NamedTuple):
    """The draws to combine."""

    points: list[Array]
    """For each subposterior its draws (draw, coordinate), in float64 and on the real line; chains one after another."""
    num_chains: list[int]
    names: list[str]
    """The names of the coordinates."""
    restore: Callable[[Array], PyTree]
    """From such a matrix to draws as the user knows them."""

    @property
    def dimension(self) -> int:
        """Coordinates."""
        return len(self.names)

    @property
    def shortest(self) -> int:
        """Draws of the subposterior that has the fewest."""
        return min(map(len, self.points))

    def thinned(self, num_draws: int) -> list[Array]:
        """As many draws of every subposterior, evenly spread over those that it has."""
        return [part[np.arange(num_draws) * len(part) // num_draws] for part in self.points]


def read_shards(subposteriors: Subposteriors | Iterable[PyTree], model: Posterior | None = None) -> ShardDraws:
    """The draws of `sc.combine.subposteriors`, of runs or of trees; rejects what cannot be combined."""
    items, model = _items(subposteriors, model)
    chains = [item.num_chains if isinstance(item, Run) else 1 for item in items]
    trees = [_draws_of(item, shard) for shard, item in enumerate(items)]
    _refuse_unlike(trees)
    positions = trees
    if model is not None:
        positions = [_to_real_line(model, tree, shard) for shard, tree in enumerate(trees)]
    points = [_tree.matrix(tree) for tree in positions]
    if not points[0].shape[1]:
        raise InvalidValueError("the draws contain no numbers: there is nothing to combine.")
    return ShardDraws(points, chains, _coordinates(positions[0]), partial(_restore, trees[0], model))


# -- what is given -------------------------------------------------------------------------------------------


def _items(given: Subposteriors | Iterable[PyTree], model: Posterior | None) -> tuple[list[Any], Model | None]:
    if isinstance(given, Subposteriors):
        model = given.model if model is None else model
        given = given.runs
    loose = isinstance(given, (str, bytes, dict, Run)) or _tree.is_named_tuple(given)
    if loose or not isinstance(given, Iterable) or getattr(given, "ndim", 2) < 2:
        raise InvalidTypeError(
            "`subposteriors` must be a sequence with one item for each subposterior (a run, or draws with leaves "
            f"(draw, ...)), or what sc.combine.subposteriors returns; got {type(given).__name__}."
        )
    items = list(given)
    if not items:
        raise InvalidValueError("`subposteriors` is empty: there is nothing to combine.")
    if len({isinstance(item, Run) for item in items}) > 1:
        raise InvalidTypeError("`subposteriors` must be all runs or all draws; it holds both.")
    return items, _transforming(items, model)


def _transforming(items: list[Any], model: Posterior | None) -> Model | None:
    """The model, where draws and positions differ."""
    if model is None and isinstance(items[0], Run):
        run = items[0]
        model = None if run.origin is None else run.origin.model
        if model is None and run.configuration.get("transformed"):
            raise InvalidValueError(
                "these runs have transformed parameters, which are combined on the real line, and a run that was "
                "loaded does not know its model: pass model=..., the model of the runs."
            )
    if model is None:
        return None
    if not isinstance(model, Model):
        raise InvalidTypeError(
            "subposteriors of an sc.Model can be combined, whose parameters are on the real line or are taken there by "
            f"its transforms; got {type(model).__name__}."
        )
    return None if model.transforms is None else model


def _draws_of(item: Run | PyTree, shard: int) -> PyTree:
    """One tree of NumPy arrays (draw, ...)."""
    if isinstance(item, Run):
        if item.draws is None or not item.num_draws:
            raise InvalidValueError(
                f"the run of subposterior {shard} holds no draws (status: {item.status}). Sample with keep_draws=True."
            )
        return jax.tree.map(lambda leaf: _joined(np.asarray(leaf)), item.draws)
    tree = jax.tree.map(lambda leaf: _array(leaf, shard), item)
    lengths = {leaf.shape[0] for leaf in jax.tree.leaves(tree)}
    if len(lengths) != 1:
        raise InvalidValueError(
            f"the leaves of subposterior {shard} must have the same number of draws, got {sorted(lengths)}."
        )
    return tree


def _joined(leaf: Array) -> Array:
    return leaf.reshape(-1, *leaf.shape[2:])


def _array(leaf: npt.ArrayLike, shard: int) -> Array:
    found = as_numpy(leaf, f"the draws of subposterior {shard}")
    if not jnp.issubdtype(found.dtype, jnp.floating) and found.dtype.kind not in "iu":
        raise InvalidTypeError(
            f"the draws of subposterior {shard} must be real numbers, got {type(leaf).__name__} of {found.dtype}."
        )
    if not found.ndim:
        raise InvalidValueError(
            f"the draws of subposterior {shard} must be arrays (draw, ...), got the single number {found}. Give a "
            "sequence with one item for each subposterior."
        )
    return found


def _refuse_unlike(trees: list[PyTree]) -> None:
    """Same structure and shapes in all; finite; at least two draws."""
    first = _shapes(trees[0])
    for shard, tree in enumerate(trees):
        if not _tree.same_structure(tree, trees[0]):
            raise InvalidValueError(
                f"subposterior {shard} has the structure {jax.tree.structure(tree)}, and subposterior 0 "
                f"{jax.tree.structure(trees[0])}: all must have the same parameters."
            )
        if _shapes(tree) != first:
            raise InvalidValueError(
                f"one draw of subposterior {shard} has the shapes {_shapes(tree)}, and of subposterior 0 {first}: all "
                "must have the same parameters."
            )
        for name, leaf in zip(_tree.leaf_names(tree), jax.tree.leaves(tree), strict=True):
            if len(leaf) < 2:
                raise InvalidValueError(
                    f"subposterior {shard} must have at least 2 draws, got {len(leaf)}. Leaves are (draw, ...); of "
                    "draws with chains, (chain, draw, ...), pass the runs or the subposteriors themselves."
                )
            _refuse_infinite(leaf, f"the draws of subposterior {shard} (`{name}`) must be finite")


def _shapes(tree: PyTree) -> list[tuple[int, ...]]:
    return [leaf.shape[1:] for leaf in jax.tree.leaves(tree)]


def _refuse_infinite(leaf: Array, what: str) -> None:
    finite = np.isfinite(leaf.astype(np.float64, copy=False)).reshape(len(leaf), -1).all(axis=1)
    if not finite.all():
        raise InvalidValueError(
            f"{what}; {np.sum(~finite):,} of {len(leaf):,} are not, the first is draw {int(np.argmin(finite))}."
        )


# -- to the real line and back -------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=0)
def _many(function: Callable[[Params], Params], draws: PyTree) -> PyTree:
    return jax.vmap(function)(draws)


def _to_real_line(model: Model, tree: PyTree, shard: int) -> PyTree:
    found = jax.tree.map(np.asarray, _many(model.unconstrain, tree))
    for name, leaf in zip(_tree.leaf_names(found), jax.tree.leaves(found), strict=True):
        _refuse_infinite(
            leaf, f"the draws of subposterior {shard} (`{name}`) must lie in the domain of the model's transforms"
        )
    return found


def _coordinates(tree: PyTree) -> list[str]:
    leaves = zip(_tree.leaf_names(tree), jax.tree.leaves(tree), strict=True)
    return [label(name, leaf.shape[1:], k) for name, leaf in leaves for k in range(math.prod(leaf.shape[1:]))]


def _restore(like: PyTree, model: Model | None, points: Array) -> PyTree:
    """Rows of `points` as draws with the structure and the precision of those in `like`."""
    leaves, start = [], 0
    for leaf in jax.tree.leaves(like):
        stop = start + int(np.prod(leaf.shape[1:]))
        kind = leaf.dtype if jnp.issubdtype(leaf.dtype, jnp.floating) else np.float64
        leaves.append(points[:, start:stop].reshape(len(points), *leaf.shape[1:]).astype(kind))
        start = stop
    tree = jax.tree.unflatten(jax.tree.structure(like), leaves)
    if model is None:
        return tree
    back = _many(model.constrain, tree)
    return jax.tree.map(lambda new, old: np.asarray(new).astype(old.dtype), back, tree)


# -- what comes out ------------------------------------------------------------------------------------------


class AssumptionCheck(NamedTuple):
    """The result of a diagnostic."""

    numbers: dict[str, Any]
    message: str | None = None
    """What is wrong and what to do; None where nothing is."""


@dataclass(frozen=True, eq=False, repr=False)
class Combined:
    """Draws that stand for the posterior, made of those of the subposteriors.

    Attributes
    ----------
    draws
        The structure and the precision of the subposteriors' draws, leaves (draw, ...), in the user's units. Where
        they are one array, `numpy.asarray(combined)` is that array.
    method
        The function that made them.
    diagnostics
        What was measured on the way, as numbers and arrays by name.
    warnings
        What is wrong, as sentences; each was also warned of when it was found.
    """

    draws: PyTree
    method: str
    diagnostics: dict[str, Any]
    warnings: tuple[str, ...]

    @property
    def num_draws(self) -> int:
        """How many."""
        return int(jax.tree.leaves(self.draws)[0].shape[0])

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        if not isinstance(self.draws, np.ndarray):
            raise InvalidTypeError(
                f"the combined draws are a tree of {', '.join(_tree.leaf_names(self.draws))}, not one array: use "
                "`.draws`."
            )
        return np.array(self.draws, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        size = _tree.size(jax.tree.map(lambda leaf: leaf[0], self.draws))
        found = len(self.warnings)
        said = "no warnings" if not found else f"{found} warning{'s' * (found > 1)}"
        return (
            f"Combined({self.method}: {self.num_draws:,} draws of {size} number{'s' * (size > 1)} from "
            f"{self.diagnostics['num_subposteriors']} subposteriors, {said})"
        )


def conclude(method: str, shards: ShardDraws, points: Array, findings: Sequence[AssumptionCheck]) -> Combined:
    """The result, after saying what is wrong."""
    numbers: dict[str, Any] = {"num_subposteriors": len(shards.points)}
    for finding in findings:
        numbers |= finding.numbers
    messages = tuple(finding.message for finding in findings if finding.message is not None)
    for message in messages:
        _checks.warn(f"{method}: {message}")
    return Combined(shards.restore(points), method, numbers, messages)
