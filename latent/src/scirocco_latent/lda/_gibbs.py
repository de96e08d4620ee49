"""Compiled Gibbs sweeps over the documents of a batch, with the topics fixed: all K products for every token.

A token of word w in document d has topic k with probability proportional to (α_k + n_dk) ω_kw, n_dk counted without the
token. Two kernels draw from it: the one here by a binary search in partial sums of all K products, the one in `_sparse`
from a list of the topics in the document. Both process the documents `first` to `last` and release the GIL, so that
threads can share a batch. Each document has its own stream of random numbers, and sums are integers, so the results
do not depend on which thread takes which document.

Conditional probabilities are summed as integer multiples of 2⁻³², so that their sums do not depend on the order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy import uint64

from scirocco.diffusions.host._random import cached_for, called, stream, uniform

UNIT = 2.0**32  # of summed probabilities: 2³¹ tokens times sweeps fit in 64 bits with sign
BLOCK = 8  # topics in a block of the sparse kernel
_IGNORED, _DRAWN, _EXPECTED = 0, 1, 2  # summed in a sweep: nothing, topics, or their probabilities
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
def first_bad(weights: np.ndarray) -> tuple[int, bool]:
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
def scaled(weights: np.ndarray) -> Any:
    """A copy in which tiny rows have the maximum 1, and rows of zeros (uninformative words) are ones."""
    out = weights.copy()
    for w in range(out.shape[0]):
        high = out[w].max()
        if high < _TINY:
            for k in range(out.shape[1]):
                out[w, k] = np.float64(weights[w, k]) / high if high > 0.0 else 1.0
    return out


@called
def _count(z: np.ndarray, counts: np.ndarray) -> None:
    """Count the tokens of each topic; tokens without a topic are skipped."""
    counts[:] = 0.0
    for i in range(z.size):
        topic = uint64(z[i])
        if topic < uint64(counts.size):
            counts[topic] += 1.0


@called
def _dense_sweep(
    tokens: np.ndarray,
    topics: Arrays,
    z: np.ndarray,
    counts: np.ndarray,
    partial: np.ndarray,
    slab: np.ndarray,
    mode: int,
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
        if mode == _DRAWN:
            slab[w, topic] += 1
        elif mode == _EXPECTED:
            factor, before = UNIT / total, 0.0
            for k in range(weights.shape[1]):
                slab[w, uint64(k)] += np.int64((partial[uint64(k)] - before) * factor + 0.5)
                before = partial[uint64(k)]
    return s0, s1


@kept
def dense_documents(
    texts: Arrays,
    topics: Arrays,
    z: np.ndarray,
    plan: tuple[int, int, bool, bool],
    slab: np.ndarray,
    rest: np.ndarray,
    mixes: np.ndarray,
    seed: Seed,
    first: int,
    last: int,
) -> None:
    """Sweep over some documents; arguments as in `_sparse`, but `topics` is (ω, α), and `rest` is not used."""
    indptr, tokens, documents = texts
    sweeps, burn_in, expected, keep = plan
    counts, partial = np.empty(topics[1].size), np.empty(topics[1].size)
    for d in range(first, last):
        begin, end = indptr[d], indptr[d + 1]
        _count(z[begin:end], counts)
        s0, s1 = stream(seed[0], seed[1], uint64(documents[d]))
        for sweep in range(sweeps):
            mode = _IGNORED if sweep < burn_in else _EXPECTED if expected else _DRAWN
            s0, s1 = _dense_sweep(
                tokens[begin:end], topics, z[begin:end], counts, partial, slab, mode, s0, s1
            )
            if keep and sweep >= burn_in:
                for k in range(counts.size):
                    mixes[d, k] += counts[k]


@kept
def spread(
    slab: np.ndarray, rest: np.ndarray, topics: Arrays, factor: float, out: np.ndarray, first: int, last: int
) -> None:
    """Convert sums to means: `factor` times the slab, plus the share of `rest` (if any) in proportion to α_k ω_kw."""
    weights, alpha, cumulative = topics
    for w in range(first, last):
        share = rest[w] / np.float64(cumulative[w, blocks(slab.shape[1])]) if rest.size else 0.0
        for k in range(slab.shape[1]):
            out[w, k] = (slab[w, k] + share * alpha[k] * weights[w, k]) * factor


# -- compiled CVB0 on the documents of a batch: the Gibbs conditional with expected counts instead of counts


_reordered = njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})


@called
def _runs(tokens: np.ndarray, begin: int, end: int, words: np.ndarray, repeats: np.ndarray) -> int:
    """Find the runs of equal words in a document and their lengths; return the number of runs."""
    num = 0
    for i in range(begin, end):
        if num > 0 and words[num - 1] == tokens[i]:
            repeats[num - 1] += 1.0
        else:
            words[num], repeats[num] = tokens[i], 1.0
            num += 1
    return num


@_reordered
def _renew(
    weights: np.ndarray, alpha: np.ndarray, w: int, repeat: np.float32, share: np.ndarray, mix: np.ndarray
) -> None:
    """One fixed-point step for the tokens of one word: `share` is γ, `mix` is Σ γ over the document's tokens."""
    total = np.float32(0.0)
    for k in range(share.size):
        mix[k] -= repeat * share[k]
        # Rounding may make a sum of others' shares slightly negative.
        others = max(mix[k] + (repeat - np.float32(1.0)) * share[k], np.float32(0.0))
        share[k] = (alpha[k] + others) * weights[w, k]
        total += share[k]
    scale = np.float32(1.0) / total
    for k in range(share.size):
        share[k] *= scale
        mix[k] += repeat * share[k]


@_reordered
def _start(weights: np.ndarray, alpha: np.ndarray, w: int, share: np.ndarray) -> None:
    """Start from γ ∝ α_k ω_kw, the posterior of a single token."""
    total = np.float32(0.0)
    for k in range(share.size):
        share[k] = alpha[k] * weights[w, k]
        total += share[k]
    for k in range(share.size):
        share[k] /= total


@kept
def cvb0_documents(
    texts: Arrays,
    weights: np.ndarray,
    alpha: np.ndarray,
    iterations: int,
    slab: np.ndarray,
    mixes: np.ndarray,
    keep: bool,
    first: int,
    last: int,
) -> None:
    """Iterate over some documents; sums of γ are added to the slab as integer multiples of 1 / UNIT."""
    indptr, tokens, _ = texts
    longest = 0
    for d in range(first, last):
        longest = max(longest, indptr[d + 1] - indptr[d])
    words, repeats = np.empty(longest, np.int32), np.empty(longest, np.float32)
    shares, mix = np.empty((longest, alpha.size), np.float32), np.empty(alpha.size, np.float32)
    for d in range(first, last):
        num = _runs(tokens, indptr[d], indptr[d + 1], words, repeats)
        mix[:] = 0.0
        for j in range(num):
            _start(weights, alpha, words[j], shares[j])
            for k in range(alpha.size):
                mix[k] += repeats[j] * shares[j, k]
        for _ in range(iterations):
            for j in range(num):
                _renew(weights, alpha, words[j], repeats[j], shares[j], mix)
        for j in range(num):
            for k in range(alpha.size):
                slab[words[j], k] += np.int64(repeats[j] * shares[j, k] * UNIT + 0.5)
                if keep:
                    mixes[d, k] += repeats[j] * shares[j, k]
