"""Compiled CVB0 on the documents of a batch: the Gibbs conditional with expected counts in place of counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from scirocco.diffusions.host._random import called
from scirocco.models.lda._gibbs import UNIT, kept

_reordered = njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})


@called
def _runs(tokens: Any, begin: int, end: int, words: Any, repeats: Any) -> int:
    """The words of a document and how often each occurs in a row; returns how many there are."""
    num = 0
    for i in range(begin, end):
        if num > 0 and words[num - 1] == tokens[i]:
            repeats[num - 1] += 1.0
        else:
            words[num], repeats[num] = tokens[i], 1.0
            num += 1
    return num


@_reordered
def _renew(weights: Any, alpha: Any, w: int, repeat: Any, share: Any, mix: Any) -> None:
    """One fixed-point step for the tokens of one word: `share` is γ, `mix` is Σ γ over the document's tokens."""
    total = np.float32(0.0)
    for k in range(share.size):
        mix[k] -= repeat * share[k]
        # Rounding may leave a sum of others' shares a little below 0.
        others = max(mix[k] + (repeat - np.float32(1.0)) * share[k], np.float32(0.0))
        share[k] = (alpha[k] + others) * weights[w, k]
        total += share[k]
    scale = np.float32(1.0) / total
    for k in range(share.size):
        share[k] *= scale
        mix[k] += repeat * share[k]


@_reordered
def _start(weights: Any, alpha: Any, w: int, share: Any) -> None:
    """γ ∝ α_k ω_kw: what a token says on its own."""
    total = np.float32(0.0)
    for k in range(share.size):
        share[k] = alpha[k] * weights[w, k]
        total += share[k]
    for k in range(share.size):
        share[k] /= total


@kept
def cvb0_documents(
    texts: Any,
    weights: Any,
    alpha: Any,
    iterations: int,
    slab: Any,
    mixes: Any,
    keep: bool,
    first: int,
    last: int,
) -> None:
    """Iterations over some documents; sums of γ go to the slab as whole multiples of 1 / UNIT."""
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
