"""Matrices over the parts of a state, each stored in its cheapest form.

A state z has parts: the position, perhaps a momentum, a thermostat, ... A matrix M(z) over it is a dict of blocks
M[a, b]; a block between two parts is written as

a number         c · I             parts of the same structure
a tree like a    a diagonal        parts of the same structure
a tree like a    a column          b is a single number
a tree like b    a row             a is a single number
`LowRank`        diag(d) + U Uᵀ    a = b
a matrix         dense             over the flattened parts (`jax.flatten_util.ravel_pytree`)

The cost of a product depends on the form: O(dim) for all except the dense one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from scirocco import _checks, _tree
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.types import Array, PyTree

if TYPE_CHECKING:
    from scirocco.samplers.recipe import Recipe

POSITION = "position"
State = dict[str, PyTree]
Pair = tuple[str, str]
Matrix = dict[Pair, Any]


@pytree_dataclass
class Varying:
    """A matrix that depends on the state."""

    function: Callable[[State], Any] = static()


@cited("a recipe whose matrices are diagonal plus low rank", "ma2015")
@pytree_dataclass
class LowRank:
    """diag(d) + U Uᵀ over one flattened part: `diagonal` is a number or a vector (dim,), `factor` is (dim, rank)."""

    diagonal: Any
    factor: Any


class Block(NamedTuple):
    """One block, with the form that was recognised."""

    form: str
    value: Any


def recognise(value: Any, a: PyTree, b: PyTree, place: str) -> Block:
    """The form of a block; raises an error if it fits none."""
    value = jax.tree.map(_as_float, value)
    if isinstance(value, LowRank):
        return Block("low rank", value)
    square = alike(a, b)
    if _is_leaf(value) and jnp.ndim(value) == 0 and square:
        return Block("scalar", value)
    if alike(value, a) and square:
        return Block("diagonal", value)
    if alike(value, a) and _is_number(b):
        return Block("column", value)
    if alike(value, b) and _is_number(a):
        return Block("row", value)
    if _is_leaf(value) and jnp.shape(value) == (_tree.size(a), _tree.size(b)):
        return Block("dense", value)
    shapes = jax.tree.map(jnp.shape, value)
    raise InvalidValueError(
        f"{place} has shape {shapes}, not a matrix between parts of {_tree.size(a)} and {_tree.size(b)} numbers. "
        "Give a number (times the identity), a tree like the part (a diagonal), sc.LowRank, or a matrix over the "
        "flattened parts."
    )


def multiply(block: Block, vector: PyTree, like: PyTree) -> PyTree:
    """M v, a tree like the rows' part."""
    form, value = block
    if form == "scalar":
        return jax.tree.map(lambda v, t: (value * v).astype(t.dtype), vector, like)
    if form == "diagonal":
        return jax.tree.map(jnp.multiply, value, vector)
    if form == "column":
        number = jax.tree.leaves(vector)[0]
        return jax.tree.map(lambda c: c * number, value)
    if form == "row":
        return _refill(_tree.vdot(value, vector), like)
    flat, back = ravel_pytree(vector)
    if form == "low rank":
        return back(value.diagonal * flat + value.factor @ (value.factor.T @ flat))
    return ravel_pytree(like)[1](value @ flat)


def transpose(block: Block) -> Block:
    """Mᵀ."""
    form, value = block
    turned = {"column": "row", "row": "column"}.get(form, form)
    return Block(turned, value.T if form == "dense" else value)


def to_dense(block: Block, a: PyTree, b: PyTree) -> Array:
    """The block as a dense matrix, for checks and small problems."""
    size = _tree.size(b)
    flat, back = ravel_pytree(b)
    columns = jax.vmap(lambda e: ravel_pytree(multiply(block, back(e), a))[0])(jnp.eye(size, dtype=flat.dtype))
    return columns.T


def divergence(function: Callable[[PyTree], Any], at: PyTree, form: str, like: PyTree, elementwise: bool) -> PyTree:
    """Σ_j ∂M_ij / ∂z_j for a block M(z) whose columns belong to the part `at` (a function of that part alone).

    `elementwise`: entry j of a diagonal depends on z_j alone, so that one derivative along (1, ..., 1) gives all;
    otherwise it takes one derivative for each number of the part.
    """
    if form == "scalar":
        return jax.grad(function)(at)
    if form in ("diagonal", "row"):
        own = _own_derivatives(function, at, elementwise)
        return own if form == "diagonal" else _refill(_total(own), like)
    if form == "column":
        return jax.jvp(function, (at,), (jax.tree.map(jnp.ones_like, at),))[1]
    flat, back = ravel_pytree(at)

    def matrix(vector: Array) -> Array:
        value = function(back(vector))
        if form == "low rank":
            return jnp.diag(jnp.broadcast_to(value.diagonal, flat.shape)) + value.factor @ value.factor.T
        return value

    def add(j: Array, total: Array) -> Array:
        direction = jnp.zeros_like(flat).at[j].set(1.0)
        return total + jax.jvp(matrix, (flat,), (direction,))[1][:, j]

    rows = ravel_pytree(like)[0]
    return ravel_pytree(like)[1](jax.lax.fori_loop(0, flat.size, add, jnp.zeros_like(rows)))


def _own_derivatives(function: Callable[[PyTree], PyTree], at: PyTree, elementwise: bool) -> PyTree:
    """∂f_j / ∂z_j for each j."""
    if elementwise:
        return jax.jvp(function, (at,), (jax.tree.map(jnp.ones_like, at),))[1]
    flat, back = ravel_pytree(at)

    def one(j: Array, own: Array) -> Array:
        direction = jnp.zeros_like(flat).at[j].set(1.0)
        change = jax.jvp(lambda v: ravel_pytree(function(back(v)))[0], (flat,), (direction,))[1]
        return own.at[j].set(change[j])

    return back(jax.lax.fori_loop(0, flat.size, one, jnp.zeros_like(flat)))


def _as_float(leaf: Any) -> Any:
    """Integers as floats: a variance stored as an integer would be truncated."""
    if isinstance(leaf, (bool, int)):
        return float(leaf)
    if _tree.is_array(leaf) and not jnp.issubdtype(leaf.dtype, jnp.floating):
        return jnp.asarray(leaf, jnp.result_type(float))
    return leaf


def alike(value: Any, part: PyTree) -> bool:
    """Whether two trees have the same structure and shapes."""
    same: bool = _tree.leaf_names(value) == _tree.leaf_names(part)
    return same and [jnp.shape(v) for v in jax.tree.leaves(value)] == [p.shape for p in jax.tree.leaves(part)]


def _is_leaf(value: Any) -> bool:
    return len(jax.tree.leaves(value)) == 1 and jax.tree_util.all_leaves([value])


def _is_number(part: PyTree) -> bool:
    leaves = jax.tree.leaves(part)
    return len(leaves) == 1 and leaves[0].shape == ()


def _refill(number: Array, like: PyTree) -> PyTree:
    """A tree of a single number, like the given one, with this value."""
    return jax.tree.map(lambda leaf: number.astype(leaf.dtype).reshape(leaf.shape), like)


def _total(tree: PyTree) -> Array:
    leaves = [jnp.sum(leaf) for leaf in jax.tree.leaves(tree)]
    return sum(leaves[1:], leaves[0])


# -- the user's arguments in one form --------------------------------------------------------------------------


def normal_auxiliaries(written: Any, owner: str) -> tuple[tuple[str, Any], ...]:
    """Pairs (name, "normal" or a number)."""
    if isinstance(written, str):
        written = (written,)
    if not isinstance(written, (Mapping, Sequence)):
        raise InvalidTypeError(f"`auxiliaries` of {owner} must be names, or a dict by name, got {written!r}.")
    pairs = [entry if isinstance(entry, tuple) else (entry, "normal") for entry in written]
    items = written.items() if isinstance(written, Mapping) else pairs
    out = []
    for name, start in items:
        if not isinstance(name, str) or name == POSITION:
            raise InvalidValueError(f"`auxiliaries` of {owner} must have names other than 'position', got {name!r}.")
        if start != "normal" and not _checks.is_number(start):
            raise InvalidValueError(f"auxiliary `{name}` of {owner} must start 'normal' or at a number, got {start!r}.")
        out.append((name, start if start == "normal" else float(start)))
    return tuple(out)


def normal_matrix(written: Any, name: str, parts: tuple[str, ...], pairs: bool) -> Any:
    """Wrap a function as data; check constants now."""
    if isinstance(written, Varying) or written is None:
        return written
    if callable(written):
        return Varying(written)
    return by_part(written, name, parts, pairs)


def by_part(written: Any, name: str, parts: tuple[str, ...], pairs: bool) -> dict[Any, Any]:
    """Blocks by part (or pair of parts); a single block belongs to the position if there are no auxiliaries."""
    if written is None:
        return {}
    wanted = "pairs of parts" if pairs else "parts"
    keys = list(written) if isinstance(written, Mapping) else []
    by_part = bool(keys) and all((isinstance(k, tuple) if pairs else k in parts) for k in keys)
    if not by_part:
        if len(parts) > 1:
            raise InvalidValueError(
                f"`{name}` must be a dict of blocks by {wanted} if there are auxiliaries; parts are {sorted(parts)}."
            )
        return {(POSITION, POSITION) if pairs else POSITION: written}
    for key in keys:
        if pairs and (len(key) != 2 or not set(key) <= set(parts)):
            raise InvalidValueError(f"`{name}` names {key}; its keys are pairs of {sorted(parts)}.")
        if pairs and tuple(reversed(key)) in keys and key[0] != key[1]:
            raise InvalidValueError(
                f"`{name}` gives both {key} and {tuple(reversed(key))}: give one, the other is its negative transpose."
            )
    return dict(written)


# -- the injected noise of a recipe: N(0, 2εTD - ε²B̂), each block in its own form ----------------------------


def inject(recipe: Recipe, z: State, eps: Array, normals: PyTree, covariance: PyTree | None) -> tuple[State, Array]:
    """The random part of a step for each part that D drives, and the number of variances clipped at 0."""
    moves, clipped = {}, jnp.zeros((), jnp.int32)
    for part, block in recipe.diffusion_blocks(z).items():
        taken = None if covariance is None else _taken_out(recipe, z, part, covariance)
        scale = 2.0 * eps * recipe.temperature
        full = recipe.correct_noise == "full" and taken is not None
        moves[part], count = _draw(block, z[part], scale, eps * eps, taken, full, normals[part])
        clipped = clipped + count
    return moves, clipped


def _draw(
    block: Block, part: PyTree, scale: Array, square: Array, taken: Any, full: bool, normals: PyTree
) -> tuple[PyTree, Array]:
    """`taken`: the variance to subtract, a tree like the part (a diagonal) or, if `full`, a matrix."""
    form, value = block
    if form in ("scalar", "diagonal") and not full:
        level = jax.tree.map(lambda p: jnp.broadcast_to(value, p.shape), part) if form == "scalar" else value
        variance = _tree.scale(scale, level)
        if taken is not None:
            variance = jax.tree.map(lambda v, t: v - square * t, variance, taken)
        count = jnp.asarray(sum(jnp.sum(v < 0) for v in jax.tree.leaves(variance)), jnp.int32)
        return jax.tree.map(lambda v, xi: jnp.sqrt(jnp.maximum(v, 0.0)) * xi, variance, normals), count
    if form == "low rank" and taken is None:
        own, along = normals
        flat, back = ravel_pytree(own)
        return back(jnp.sqrt(scale) * (jnp.sqrt(value.diagonal) * flat + value.factor @ along)), jnp.zeros(
            (), jnp.int32
        )
    own = normals[0] if form == "low rank" else normals
    matrix = scale * to_dense(block, part, part)
    if taken is not None:
        matrix = matrix - square * (taken if full else jnp.diag(ravel_pytree(taken)[0]))
    flat, back = ravel_pytree(own)
    root, values = _symmetric_root(matrix)
    tolerance = 1e-6 * jnp.max(jnp.abs(values))
    return back(root @ flat), jnp.sum(values < -tolerance).astype(jnp.int32)


def _symmetric_root(matrix: Array) -> tuple[Array, Array]:
    """The symmetric R with R R = M, negative eigenvalues taken as 0, and the eigenvalues of M.

    R changes by at most ‖δM‖ / (2 √λ_min) with M; the eigenvectors alone turn freely where eigenvalues are close, as
    those of 2εD - ε²B̂ are for small ε, and would make rounding errors visible in the draws.
    """
    values, vectors = jnp.linalg.eigh(matrix)
    return (vectors * jnp.sqrt(jnp.maximum(values, 0.0))) @ vectors.T, values


def _taken_out(recipe: Recipe, z: State, part: str, covariance: PyTree) -> Any:
    """B̂ of a part: (D+Q) V (D+Q)ᵀ with the blocks that multiply the gradient; a tree (diagonal) or a matrix."""
    driving = [
        block
        for (a, b), block in [*recipe._diffusion_pairs(z).items(), *recipe.curl_blocks(z).items()]
        if a == part and b == POSITION
    ]
    if recipe.correct_noise == "full":
        if not driving:
            return None
        dense = [to_dense(block, z[part], z[POSITION]) for block in driving]
        factor = sum(dense[1:], dense[0])
        return factor @ covariance @ factor.T
    if any(block.form not in ("scalar", "diagonal") for block in driving):
        raise InvalidValueError(
            'correct_noise="diagonal" requires scalar or diagonal blocks between a part and the position; '
            'use correct_noise="full" with dense or low-rank ones.'
        )
    if not driving:
        return None
    ones = jax.tree.map(jnp.ones_like, covariance)
    factors = [multiply(block, ones, z[part]) for block in driving]
    total = factors[0]
    for factor in factors[1:]:
        total = _tree.add(total, factor)
    return jax.tree.map(lambda f, v: f * f * v, total, covariance)
