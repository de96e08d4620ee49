"""Sums over all rows, in pieces, so that memory does not grow with the data."""

from __future__ import annotations

from typing import Protocol

import jax
import jax.numpy as jnp

from scirocco import _tree
from scirocco.types import Array, ArrayLike, Data, Key, Params, PyTree, Rows

_CHUNK_BYTES = 1 << 21
_DENSE_NUMBERS = 1 << 23


class Summand(Protocol):
    """f in Σ_i f(θ, x_i); hashable, because compiled programs are kept for each summand."""

    def total(
        self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None
    ) -> PyTree:
        """Σ_i w_i f(θ, x_i) over the rows."""

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        """f(θ, x_i) for each row."""


def full_sum(
    summand: Summand,
    position: Params,
    data: Data,
    num_rows: int,
    chunk: int | None = None,
    key: Key | None = None,
) -> PyTree:
    """Σ_i f(θ, x_i) over the first `num_rows` rows of arrays on the device (inside a compiled program).

    The last chunk reaches back to be full, and the rows that were counted already get the weight 0: one graph serves
    all chunks.
    """
    across = getattr(summand, "across", None)
    if across is not None:  # rows on several devices: one sum of sums at the end, not one a chunk
        return across(full_sum(summand.here, position, data, num_rows, chunk, key))  # type: ignore[attr-defined]
    chunk = min(num_rows, chunk or rows_per_chunk(data))
    if getattr(summand, "dense", False):
        chunk = min(chunk, max(1, _DENSE_NUMBERS // max(1, _tree.size(position))))
        return _plain_sum(summand, position, data, num_rows, chunk, key)
    steps = -(-num_rows // chunk)
    weighted = num_rows % chunk != 0

    def part(step: ArrayLike) -> PyTree:
        begin = jnp.minimum(step * chunk, num_rows - chunk)
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, begin, chunk), data)
        fresh = begin + jnp.arange(chunk) >= step * chunk
        own = None if key is None else jax.random.fold_in(key, step)
        return summand.total(position, rows, fresh.astype(jnp.float32) if weighted else None, own)

    spec = jax.eval_shape(part, 0)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), spec)
    return jax.lax.fori_loop(0, steps, lambda step, total: _tree.add(total, part(step)), zeros)


def _plain_sum(
    summand: Summand, position: Params, data: Data, num_rows: int, chunk: int, key: Key | None
) -> PyTree:
    """The same without weights, which would make every row's value an array of its own: the last rows are apart."""

    def part(begin: ArrayLike, length: int, number: ArrayLike) -> PyTree:
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, begin, length), data)
        return summand.total(position, rows, None, None if key is None else jax.random.fold_in(key, number))

    whole, rest = divmod(num_rows, chunk)
    total = part(whole * chunk, rest, whole) if rest else None
    if total is None:
        whole -= 1
        total = part(whole * chunk, chunk, whole)
    return jax.lax.fori_loop(
        0, whole, lambda step, sums: _tree.add(sums, part(step * chunk, chunk, step)), total
    )


def rows_per_chunk(data: Data) -> int:
    """Rows that fill about 2 MB: large enough to keep a core busy, small enough for its cache."""
    row_bytes = max(1, sum(leaf.nbytes // max(1, leaf.shape[0]) for leaf in jax.tree.leaves(data)))
    return max(256, _CHUNK_BYTES // row_bytes)


class Probed:
    """The summand and its derivative along a direction: f and ∂f·v at the position (θ, v)."""

    def __init__(self, summand: Summand):
        self.summand = summand

    def __hash__(self) -> int:
        return hash((Probed, self.summand))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Probed) and self.summand == other.summand

    def total(
        self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None
    ) -> PyTree:
        """Both sums."""
        at, direction = position
        return jax.jvp(lambda p: self.summand.total(p, rows, weights, key), (at,), (direction,))

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        """Both for each row."""
        at, direction = position
        return jax.jvp(lambda p: self.summand.each(p, rows, key), (at,), (direction,))
