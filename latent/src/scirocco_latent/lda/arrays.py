r"""Gibbs sampling of topics by whole arrays: the programs that a chain on an accelerator runs.

With the counts n_wk of words and n_dk of documents in topics, a sweep draws

.. math::
    θ_{wk} \sim \mathrm{Gamma}(β + n_{wk}), \quad ω_{kw} = θ_{wk} / Σ_w θ_{wk}, \qquad
    η_{dk} \sim \mathrm{Gamma}(α_k + n_{dk}), \qquad P(z = k) ∝ η_{dk} ω_{kw}

and the topics z of all tokens at once. Tokens are flat arrays, so documents of any lengths need no padding. No array of
tokens x topics is written: topics are in lanes, topic k in lane k mod L. A token's sums over the lanes are written, one
uniform chooses the lane and then the topic in it. Neighbouring threads read neighbouring topics.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco._random import threefry
from scirocco.diffusions.variates import gamma_attempts, uniforms
from scirocco.types import Array

_LANES = 16  # topics side by side
_ETA, _TOPIC, _THETA, _BLOCK, _ANY = 1, 2, 3, 4, 5  # purposes of random words


class Tokens(NamedTuple):
    """The tokens of some documents; places that are not used have the first numbers that are too large."""

    document: Array
    """Number of the document among them."""
    word: Array


def width_for(num_topics: int) -> int:
    """Number of topics, rounded up to whole lanes."""
    lanes = _lanes(num_topics)
    return -(-num_topics // lanes) * lanes


def _lanes(num_topics: int) -> int:
    """A multiple of 16 near the square root of the number of topics."""
    return max(1, math.ceil(math.sqrt(num_topics) / (1.5 * _LANES))) * _LANES


def seed_words(seed: tuple[int, int]) -> np.ndarray:
    """Two 32-bit words from the two seed words of a step."""
    return np.random.SeedSequence(seed).generate_state(2, np.uint32)


def _derived(words: Array, purpose: int, number: Array | int = 0) -> Array:
    """Random words for one purpose."""
    return jnp.stack(threefry(words, jnp.asarray(number, jnp.uint32), purpose))


# -- topics given counts


@jax.jit
def weights(words: Array, counts: Array, beta: Array, alpha: Array) -> Array:
    """ω | z as `scaled`; 0 for topics with α = 0, which are not in use."""
    return scaled(_theta(words, counts, beta) * (alpha > 0.0))


@jax.jit
def topics(words: Array, counts: Array, beta: Array, chosen: Array) -> Array:
    """ω | z of the chosen topics, (topics, words)."""
    return normalised(_theta(words, counts[:, chosen], beta))


def _theta(words: Array, counts: Array, beta: Array) -> Array:
    return gamma_attempts(_derived(words, _THETA), counts + beta)


@jax.jit
def scaled(theta: Array) -> Array:
    """ω of θ (words, topics), each word up to a factor, which cancels: small numbers do not underflow."""
    sums = theta.sum(axis=0)
    omega = theta / jnp.where(sums > 0.0, sums, 1.0)
    high = omega.max(axis=1, keepdims=True)
    return omega / jnp.where(high > 0.0, high, 1.0)


@jax.jit
def normalised(theta: Array) -> Array:
    """ω of θ, (topics, words); a topic whose θ all underflow is uniform."""
    theta = theta.T
    sums = theta.sum(axis=1, keepdims=True)
    return jnp.where(sums > 0.0, theta / jnp.where(sums > 0.0, sums, 1.0), 1.0 / theta.shape[1])


# -- topics of tokens


@partial(jax.jit, static_argnames=("rows", "sweeps"), donate_argnames=("counts", "z"))
def sweep(
    words: Array,
    block: Array,
    weights: Array,
    counts: Array,
    tokens: Tokens,
    z: Array,
    alpha: Array,
    rows: int,
    sweeps: int,
    allowed: Array | None = None,
) -> tuple[Array, Array]:
    """Sweeps over the tokens of a block with ω fixed; the counts of the corpus and z afterwards.

    `rows` is the number of documents of the largest block. Numbers of topics that are too large mean: none yet.
    `allowed` says which topics each document has (rows, topics); by default all.
    """
    alpha = alpha if allowed is None else alpha * allowed
    words, old = _derived(words, _BLOCK, block), z.astype(jnp.int32)
    new = old
    for number in range(sweeps):
        new = swept(_derived(words, _ETA, number), weights, tokens, new, alpha, rows)
    counts = counts.at[tokens.word, old].add(-1, mode="drop")
    return counts.at[tokens.word, new].add(1, mode="drop"), new.astype(z.dtype)


@partial(jax.jit, static_argnames=("rows", "sweeps", "burn_in"))
def local(words: Array, weights: Array, tokens: Tokens, alpha: Array, rows: int, sweeps: int, burn_in: int) -> Array:
    """Mean counts (words, topics) of some documents over sweeps with ω fixed, from scratch."""
    nothing = jnp.full(tokens.word.shape, jnp.iinfo(jnp.int32).max)

    def once(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        z, counts = carry
        z = swept(_derived(words, _ETA, number), weights, tokens, z, alpha, rows)
        return z, counts.at[tokens.word, z].add((number >= burn_in).astype(jnp.int32), mode="drop")

    counts = jnp.zeros(weights.shape, jnp.int32)
    return jax.lax.fori_loop(0, sweeps, once, (nothing, counts))[1] / (sweeps - burn_in)


def swept(words: Array, weights: Array, tokens: Tokens, z: Array, alpha: Array, rows: int) -> Array:
    """η | z, then z | η, for all tokens at once; α may be one for each document, 0 for topics that it has not."""
    held = jnp.zeros((rows, weights.shape[1]), jnp.int32).at[tokens.document, z].add(1, mode="drop")
    eta = gamma_attempts(words, held + alpha)
    # documents without topics begin with the mean of η, not with a draw: their words decide
    eta = jnp.where(held.sum(axis=1, keepdims=True) > 0, eta, alpha)
    if alpha.ndim == 1:
        return assigned(_derived(words, _TOPIC), eta, weights, tokens, jnp.sum(alpha > 0.0))
    eta = jnp.where(alpha > 0.0, eta, 0.0)  # a chain that continues may begin with other topics
    uniform, _ = uniforms(_derived(words, _ANY), jnp.arange(rows, dtype=jnp.uint32), 0, jnp.float32)
    number = jnp.cumsum(alpha > 0.0, axis=1)
    own = jnp.argmax(number > (uniform * number[:, -1])[:, None], axis=1)
    anyone = own.at[tokens.document].get(mode="clip").astype(jnp.int32)
    return assigned(_derived(words, _TOPIC), eta, weights, tokens, number[:, -1].max(), anyone)


def assigned(
    words: Array, eta: Array, weights: Array, tokens: Tokens, num_topics: Array, anyone: Array | None = None
) -> Array:
    """z with P(z = k) ∝ η_dk ω_kw; if all products underflow `anyone`, by default uniform over the topics."""
    width = weights.shape[1]
    lanes = _lanes(width)
    depth = width // lanes
    shares, rows = eta.reshape(-1, depth, lanes), weights.reshape(-1, depth, lanes)
    document, word = tokens

    def products(*at: Array | int) -> Array:
        return shares.at[(document, *at)].get(mode="clip") * rows.at[(word, *at)].get(mode="clip")

    sums = jnp.sum(products(), axis=1)
    sums = jax.lax.optimization_barrier(sums)  # written once, not computed again for each use
    uniform, _ = uniforms(words, jnp.arange(word.size, dtype=jnp.uint32), 0, jnp.float32)
    lane, left, total = _chosen([sums[:, lane] for lane in range(lanes)], uniform)
    level, _, _ = _chosen([products(number, lane) for number in range(depth)], uniform, left)
    if anyone is None:
        anyone = jnp.minimum((uniform * num_topics).astype(jnp.int32), num_topics - 1)
    return jnp.where(total > 0.0, level * lanes + lane, anyone)


def _chosen(parts: list[Array], uniform: Array, left: Array | None = None) -> tuple[Array, Array, Array]:
    """The first part whose partial sum is above a point: `uniform` of the total, or `left`; what is left; the total.

    The point is below the total in any rounding, so a part of 0 is never chosen.
    """
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    below = jnp.nextafter(total, jnp.zeros_like(total))
    point = jnp.minimum(jnp.maximum(uniform * total if left is None else left, 0.0), below)
    sum_, before = jnp.zeros_like(total), jnp.zeros_like(total)
    place = jnp.zeros(total.shape, jnp.int32)
    for part in parts[:-1]:
        sum_ = sum_ + part
        past = sum_ <= point
        place, before = place + past, jnp.where(past, sum_, before)
    return place, point - before, total


# -- counts


@partial(jax.jit, static_argnames=("rows", "width"))
def pairs(document: Array, z: Array, rows: int, width: int) -> Array:
    """Σ_d n_dk (n_dk - 1) of each topic."""
    held = jnp.zeros((rows, width), jnp.int32).at[document, z.astype(jnp.int32)].add(1, mode="drop")
    return jnp.sum(held.astype(jnp.float32) * (held - 1), axis=0)


@partial(jax.jit, donate_argnames="z")
def renamed(z: Array, names: Array) -> Array:
    """z with other numbers of the topics."""
    return names.at[z.astype(jnp.int32)].get(mode="fill", fill_value=jnp.iinfo(z.dtype).max).astype(z.dtype)


@jax.jit
def counted(counts: Array, word: Array, z: Array) -> Array:
    """`counts`, and those of some words in their topics."""
    return counts.at[word, z.astype(jnp.int32)].add(1, mode="drop")


@partial(jax.jit, static_argnames=("rows", "size"))
def document_counts(document: Array, z: Array, rows: int, alpha: Array, size: int) -> Array:
    """Number of documents with n tokens of topic k, (topics, n), n < size; none have `size` or more."""
    held = jnp.zeros((rows, alpha.size), jnp.int32).at[document, z.astype(jnp.int32)].add(1, mode="drop")
    topic = jnp.broadcast_to(jnp.arange(alpha.size), held.shape)
    return jnp.zeros((alpha.size, size), jnp.int32).at[topic, held].add(1, mode="drop")
