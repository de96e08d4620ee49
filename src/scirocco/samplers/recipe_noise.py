"""The noise that a recipe injects: N(0, 2εTD - ε²B̂), each block in its own form."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from scirocco import _tree
from scirocco.errors import InvalidValueError
from scirocco.samplers import matrices
from scirocco.samplers.matrices import POSITION, Block, State
from scirocco.types import Array, PyTree


def inject(
    recipe: Any, z: State, eps: Array, normals: PyTree, covariance: PyTree | None
) -> tuple[State, Array]:
    """The random part of a step for each part that D drives, and how many variances had to be clipped at 0."""
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
    """`taken`: what is taken out, a tree like the part (a diagonal) or, when `full`, a matrix."""
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
    matrix = scale * matrices.to_dense(block, part, part)
    if taken is not None:
        matrix = matrix - square * (taken if full else jnp.diag(ravel_pytree(taken)[0]))
    values, vectors = jnp.linalg.eigh(matrix)
    flat, back = ravel_pytree(own)
    tolerance = 1e-6 * jnp.max(jnp.abs(values))
    move = vectors @ (jnp.sqrt(jnp.maximum(values, 0.0)) * flat)
    return back(move), jnp.sum(values < -tolerance).astype(jnp.int32)


def _taken_out(recipe: Any, z: State, part: str, covariance: PyTree) -> Any:
    """B̂ of a part: (D+Q) V (D+Q)ᵀ with the blocks that multiply the gradient; a tree (diagonal) or a matrix."""
    driving = [
        block
        for (a, b), block in [*recipe._diffusion_pairs(z).items(), *recipe.curl_blocks(z).items()]
        if a == part and b == POSITION
    ]
    if recipe.correct_noise == "full":
        if not driving:
            return None
        dense = [matrices.to_dense(block, z[part], z[POSITION]) for block in driving]
        factor = sum(dense[1:], dense[0])
        return factor @ covariance @ factor.T
    if any(block.form not in ("scalar", "diagonal") for block in driving):
        raise InvalidValueError(
            'correct_noise="diagonal" needs scalar or diagonal blocks between a part and the position; '
            'use correct_noise="full" with matrices.'
        )
    if not driving:
        return None
    ones = jax.tree.map(jnp.ones_like, covariance)
    factors = [matrices.multiply(block, ones, z[part]) for block in driving]
    total = factors[0]
    for factor in factors[1:]:
        total = _tree.add(total, factor)
    return jax.tree.map(lambda f, v: f * f * v, total, covariance)
