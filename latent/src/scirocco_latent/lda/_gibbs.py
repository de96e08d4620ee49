"""Compiled Gibbs sweeps over the documents of a batch, with the topics fixed: all K products for every token.

A token of word w in document d has topic k with probability proportional to (α_k + n_dk) ω_kw, n_dk counted without the
token. Two kernels draw from it: the one here by a binary search in partial sums of all K products, the one in `_sparse`
from a list of the topics in the document. Both process the documents `first` to `last` and release the GIL, so that
threads can share a batch. Each document has its own stream of random numbers, and sums are integers, so the results
do not depend on which thread takes which document.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import cached_for, called, stream, uniform

Array = np.ndarray

BLOCK = 8  # topics in a block of the sparse kernel
_BELOW = 1.0 - 1e-9  # nearer to 1 than any partial sum in single precision
_TINY = 1e-20  # rows below are scaled up, so that products with α stay in the range of single precision


kept = cached_for(__file__)
Arrays = tuple[np.ndarray, ...]
Seed = tuple[uint64, uint64]


@called
def blocks(num_topics: int) -> int:
    """Number of blocks that hold all topics."""
    return (num_topics + BLOCK - 1) // BLOCK


@kept
def first_bad(weights: Array) -> tuple[int, bool]:
    """The first row with an entry that is negative or not finite (-1: none), and whether rows need `scaled`."""
    small: Any = False
    for w in range(weights.shape[0]):
        bad, high = np.uint8(0), np.uint8(0)  # not booleans with `or`: these are vectorised
        for k in range(weights.shape[1]):
            bad |= np.uint8(not 0.0 <= weights[w, k] < np.inf)
            high |= np.uint8(weights[w, k] >= _TINY)
        if bad:
            return w, False
        small |= not high
    return -1, small


@kept
def scaled(weights: Array) -> Any:
    """A copy in which tiny rows have the maximum 1, and rows of zeros (uninformative words) are ones."""
    out = weights.copy()
    for w in range(out.shape[0]):
        high = out[w].max()
        if high < _TINY:
            for k in range(out.shape[1]):
                out[w, k] = np.float64(weights[w, k]) / high if high > 0.0 else 1.0
    return out


@called
def _count(z: Array, counts: Array) -> None:
    """Count the tokens of each topic; tokens without a topic are skipped."""
    counts[:] = 0.0
    for i in range(z.size):
        topic = uint64(z[i])
        if topic < uint64(counts.size):
            counts[topic] += 1.0


@called
def _dense_sweep(
    tokens: Array,
    topics: Arrays,
    z: Array,
    counts: Array,
    partial: Array,
    slab: Array,
    counted: bool,
    s0: uint64,
    s1: uint64,
) -> tuple[Any, Any]:
    """One sweep over one document, with all K products for every token."""
    weights, alpha = topics
    last = uint64(weights.shape[1] - 1)
    for i in range(tokens.size):
        w, topic = uint64(tokens[i]), uint64(z[i])
        if topic <= last:  # otherwise the token gets its first topic
            counts[topic] -= 1.0
        total = 0.0
        for k in range(weights.shape[1]):
            total += (alpha[uint64(k)] + counts[uint64(k)]) * weights[w, uint64(k)]
            partial[uint64(k)] = total
        s0, s1, u = uniform(s0, s1)
        x, topic, span = min(u * total, total * _BELOW), uint64(0), last + uint64(1)
        while span > uint64(1):
            half = span >> uint64(1)
            topic = topic + half if partial[topic + half - uint64(1)] <= x else topic
            span -= half
        z[i] = topic
        counts[topic] += 1.0
        if counted:
            slab[w, topic] += 1
    return s0, s1


@kept
def dense_documents(
    texts: Arrays,
    topics: Arrays,
    z: Array,
    plan: tuple[int, int, bool],
    slab: Array,
    mixes: Array,
    seed: Seed,
    first: int,
    last: int,
) -> None:
    """Sweep over some documents; arguments as in `_sparse`, but `topics` is (ω, α)."""
    indptr, tokens, documents = texts
    sweeps, burn_in, keep = plan
    counts, partial = np.empty(topics[1].size), np.empty(topics[1].size)
    for d in range(first, last):
        begin, end = indptr[d], indptr[d + 1]
        _count(z[begin:end], counts)
        s0, s1 = stream(seed[0], seed[1], uint64(documents[d]))
        for sweep in range(sweeps):
            s0, s1 = _dense_sweep(
                tokens[begin:end], topics, z[begin:end], counts, partial, slab, sweep >= burn_in, s0, s1
            )
            if keep and sweep >= burn_in:
                for k in range(counts.size):
                    mixes[d, k] += counts[k]
