"""The local step of latent Dirichlet allocation with array operations, for accelerators."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.diffusions import gamma
from scirocco.types import Array, ArrayLike, Key
from scirocco_latent.lda._tokens import TokenBatch
from scirocco_latent.lda.local import LocalCounts, check_sweeps

_BLOCK = 16


def padded(batch: TokenBatch, multiple: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Tokens as a matrix with one row per document: positions in `batch.distinct`, and 1 for a token, 0 for padding.

    The length of the rows is rounded up to a multiple of `multiple`, so that few different shapes are compiled.

    Examples
    --------
    >>> from scirocco_latent.lda import local, local_jax
    >>> index, count = local_jax.padded(local.from_counts([0, 2, 3], [4, 9, 9], [1, 1, 1]), multiple=2)
    >>> index.tolist(), count.tolist()
    ([[0, 1], [1, 0]], [[1, 1], [1, 0]])
    """
    lengths = np.diff(batch.indptr)
    longest = max(int(lengths.max(initial=1)), 1)
    count = np.arange(-(-longest // multiple) * multiple) < lengths[:, None]
    index = np.zeros(count.shape, np.int32)
    index[count] = batch.tokens
    return index, count.astype(np.int32)


def gibbs_parallel(
    key: Key,
    index: ArrayLike,
    count: ArrayLike,
    weights: ArrayLike,
    alpha: ArrayLike,
    sweeps: int,
    burn_in: int,
) -> LocalCounts:
    r"""Gibbs sweeps that alternate between the mixtures of the documents and the topics of all their tokens.

    A sweep draws η_d | z ~ Dirichlet(α + n_d), then z_i | η_d with P(z = k) ∝ η_dk ω_kw for all tokens at once. The
    stationary distribution of z is that of `local.gibbs`, p(z | words, ω, α), but the chain needs more sweeps. The
    results are means of P(z = k | η_d) over the sweeps after the burn-in, less noisy than means of drawn topics. It
    starts from P(z = k) ∝ α_k ω_kw.

    Parameters
    ----------
    key
        A JAX key, which determines the random numbers.
    index
        int, (documents, places): rows of `weights`; see `padded`. Any valid index where `count` is 0. Not checked.
    count
        int, (documents, places): number of tokens at each place. Without counts above 1 a sweep is one pass over
        documents x places x topics; otherwise the largest count is the number of passes.
    weights
        (words, topics): ω_kw, each row up to a constant factor; a row of zeros carries no information about the topic.
    alpha
        α > 0: a number, or one per topic. Not checked.
    sweeps, burn_in
        Total number of sweeps, and the number of initial ones that are discarded; other values are compiled again.

    Returns
    -------
    Local
        JAX arrays: counts (words, topics), and the documents' topics (documents, topics). The memory is that of three
        arrays (documents, places, topics) and (sweeps - burn_in) of (documents, places + topics).

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from scirocco_latent.lda import local_jax
    >>> index, count = jnp.array([[0, 1], [1, 0]]), jnp.array([[3, 1], [2, 0]])
    >>> topics = jnp.array([[0.9, 0.2], [0.1, 0.8]])
    >>> found = local_jax.gibbs_parallel(jax.random.key(0), index, count, topics, 0.5, sweeps=50, burn_in=10)
    >>> bool(abs(found.counts.sum() - 6.0) < 1e-3)
    True
    """
    check_sweeps(sweeps, burn_in)
    single = not isinstance(count, jax.core.Tracer) and bool(np.max(np.asarray(count), initial=0) <= 1)
    counts, documents = _gibbs_parallel(
        key, jnp.asarray(index), jnp.asarray(count), jnp.asarray(weights), alpha, sweeps, burn_in, single
    )
    return LocalCounts(counts, documents)


@partial(jax.jit, static_argnames=("sweeps", "burn_in", "single"))
def _gibbs_parallel(
    key: Key,
    index: Array,
    count: Array,
    weights: Array,
    alpha: ArrayLike,
    sweeps: int,
    burn_in: int,
    single: bool,
) -> tuple[Array, Array]:
    table = weights.astype(jnp.float32)
    high = table.max(1, keepdims=True)
    table = jnp.where(high > 0.0, table / high, 1.0)
    rows = _blocks(table)[index]  # the only gather: all sweeps read the same rows
    shapes = jnp.broadcast_to(jnp.asarray(alpha, jnp.float32), table.shape[1:])

    def sweep(held: Array, number: Array) -> tuple[Array, tuple[Array, Array]]:
        mixing, topics = jax.random.split(jax.random.fold_in(key, number))
        mixture = gamma(mixing, shapes + held)  # an unnormalised Dirichlet variable; its sum cancels
        held, totals = _assign(topics, mixture, rows, count, single)
        return held, (mixture, totals)

    first = jnp.broadcast_to(shapes, (index.shape[0], shapes.size))
    held, _ = _assign(jax.random.fold_in(key, sweeps), first, rows, count, single)
    held = jax.lax.fori_loop(0, burn_in, lambda i, held: sweep(held, i)[0], held)
    _, (mixtures, totals) = jax.lax.scan(sweep, held, jnp.arange(burn_in, sweeps))
    # Σ over sweeps of η_dk ω_kw / Σ_j η_dj ω_jw is ω_kw times a product of matrices.
    inverse = jnp.where(count > 0, 1.0 / totals, 0.0)
    sums = jnp.einsum("sdl,sdk->dlk", inverse, mixtures, precision=jax.lax.Precision.HIGHEST)
    means = sums * table[index] * (count[..., None] / (sweeps - burn_in)).astype(jnp.float32)
    flat = means.reshape(-1, shapes.size)
    return jax.ops.segment_sum(flat, index.reshape(-1), table.shape[0]), means.sum(1)


def _assign(key: Key, mixture: Array, rows: Array, count: Array, single: bool) -> tuple[Array, Array]:
    """Draw the number of tokens of each document in each topic; also return the sums Σ_k η_dk ω_kw.

    `rows` are in blocks of topics, (documents, places, blocks, topics of a block). A draw picks the block by its sum,
    then the topic: each sweep reads the rows once, and partial sums of all topics are never written.
    """
    shares = _blocks(mixture)
    sums = jnp.cumsum(jnp.sum(shares[:, None] * rows, axis=-1), axis=-1)
    totals = sums[..., -1]
    topics = jnp.arange(mixture.shape[-1])

    def one_each(number: Array | int, held: Array) -> Array:
        u = jax.random.uniform(jax.random.fold_in(key, number), totals.shape)
        x = jnp.minimum(u * totals, jnp.nextafter(totals, jnp.zeros_like(totals)))
        block = jnp.sum(sums <= x[..., None], axis=-1)
        before = jnp.where(block > 0, _pick(sums, jnp.maximum(block - 1, 0)), 0.0)
        inside = jnp.take_along_axis(rows, block[..., None, None], axis=2)[:, :, 0]
        inside = jnp.cumsum(inside * jnp.take_along_axis(shares, block[..., None], axis=1), axis=-1)
        most = jnp.nextafter(inside[..., -1], jnp.zeros_like(totals))
        place = jnp.sum(inside <= jnp.clip(x - before, 0.0, most)[..., None], axis=-1)
        z = block * rows.shape[-1] + place
        chosen = (z[..., None] == topics) & (number < count)[..., None]
        return held + jnp.sum(chosen, axis=1, dtype=jnp.float32)

    held = jnp.zeros(mixture.shape, jnp.float32)
    held = one_each(0, held) if single else jax.lax.fori_loop(0, count.max(initial=0), one_each, held)
    return held, totals


def _pick(values: Array, place: Array) -> Array:
    return jnp.take_along_axis(values, place[..., None], axis=-1)[..., 0]


def _blocks(values: Array) -> Array:
    """The last axis in blocks, padded with zeros."""
    size = values.shape[-1]
    short = -size % _BLOCK
    padding = [(0, 0)] * (values.ndim - 1) + [(0, short)]
    return jnp.pad(values, padding).reshape(*values.shape[:-1], -1, _BLOCK)
