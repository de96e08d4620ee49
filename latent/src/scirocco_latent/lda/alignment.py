"""Alignment of topics between chains: distances between topics, and the best matching."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scirocco._checks import choice
from scirocco._extras import require
from scirocco.errors import InvalidValueError
from scirocco_latent.lda.sizes import FITTING

Array = np.ndarray

MEASURES = ("hellinger", "jensen_shannon", "cosine")


def topic_distance(a: ArrayLike, b: ArrayLike, measure: str = "hellinger") -> Array:
    r"""Distances between the topics p of `a` and q of `b`, after normalising each row to sum to one.

    All are between 0 (equal) and 1 (disjoint words):

    - hellinger: √(1 − Σ_w √(p_w q_w));
    - jensen_shannon: √(½ Σ_w p_w log₂(p_w / m_w) + ½ Σ_w q_w log₂(q_w / m_w)) with m = (p + q) / 2;
    - cosine: 1 − Σ_w p_w q_w / (‖p‖ ‖q‖), not a metric.

    Computed in double precision in blocks of 4,096 words; the memory is that of the result and one block. The distance
    of equal topics may be as large as 1e-7, the root of a rounding error.

    Parameters
    ----------
    a, b
        Weights >= 0 (topics × words), (K, V) and (K', V).
    measure
        "hellinger", "jensen_shannon" (K·K'·V logarithms: slow beyond a few hundred topics) or "cosine".

    Returns
    -------
    numpy.ndarray
        (K, K').

    Examples
    --------
    >>> topic_distance([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], [[0.0, 0.0, 3.0]])
    array([[1.],
           [0.]])
    """
    choice(measure, "measure", MEASURES)
    first, total_a = _weights(a, "a")
    second, total_b = _weights(b, "b")
    if first.shape[1] != second.shape[1]:
        raise InvalidValueError(
            f"`a` has {first.shape[1]:,} words and `b` {second.shape[1]:,}. They must have the same vocabulary."
        )
    sums = np.zeros((len(first), len(second)))
    squares_a, squares_b = np.zeros(len(first)), np.zeros(len(second))
    for start in range(0, first.shape[1], FITTING.compared_words):
        block = slice(start, start + FITTING.compared_words)
        p = first[:, block].astype(np.float64) / total_a[:, None]
        q = second[:, block].astype(np.float64) / total_b[:, None]
        if measure == "hellinger":
            sums += np.sqrt(p) @ np.sqrt(q).T
        elif measure == "jensen_shannon":
            sums += _divergence(p, q)
        else:
            sums += p @ q.T
            squares_a += np.sum(p**2, axis=1)
            squares_b += np.sum(q**2, axis=1)
    if measure == "jensen_shannon":
        return np.sqrt(np.clip(sums, 0.0, 1.0))
    if measure == "cosine":
        return np.clip(1.0 - sums / np.sqrt(np.outer(squares_a, squares_b)), 0.0, 1.0)
    return np.sqrt(np.clip(1.0 - sums, 0.0, 1.0))


def _divergence(p: Array, q: Array) -> Array:
    """A block's part of the Jensen–Shannon divergences, in bits."""
    own_p, own_q = np.sum(_entropy_terms(p), axis=1), np.sum(_entropy_terms(q), axis=1)
    mixed = np.stack([np.sum(_entropy_terms(0.5 * (topic + q)), axis=1) for topic in p])
    return 0.5 * (own_p[:, None] + own_q[None, :]) - mixed


def _entropy_terms(p: Array) -> Array:
    return p * np.log2(p, out=np.zeros_like(p), where=p > 0)


def _weights(topics: ArrayLike, name: str) -> tuple[Array, Array]:
    """The checked matrix, and the sum of each row."""
    array = np.asarray(topics)
    if array.ndim != 2 or not array.size or array.dtype.kind not in "fiub":
        raise InvalidValueError(
            f"`{name}` must be a matrix of numbers (topics × words), got {array.dtype} of shape {array.shape}."
        )
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        topic, word = np.argwhere(bad)[0]
        raise InvalidValueError(
            f"`{name}` must contain weights >= 0; topic {topic}, word {word} is {array[topic, word]}."
        )
    total = array.sum(axis=1, dtype=np.float64)
    if not total.all():
        raise InvalidValueError(f"topic {int(np.argmin(total))} of `{name}` has only zero weights.")
    return array, total


def align(reference: ArrayLike, others: Array, measure: str = "hellinger") -> Array:
    """Match topics so that the sum of their distances is minimal, by the Hungarian algorithm.

    The posterior of topics is invariant to permutations, so chains can be compared only after their topics have been
    matched. `others[c][align(reference, others)[c]]` has its topics in the order of `reference`.

    Parameters
    ----------
    reference
        Topics × words, (K, V), e.g. the mean topics of the first chain.
    others
        Chains × topics × words, (C, K, V).
    measure
        See `topic_distance`.

    Returns
    -------
    numpy.ndarray
        (C, K): entry (c, k) is the topic of chain c that matches topic k of the reference.

    Examples
    --------
    >>> import numpy as np
    >>> topics = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    >>> align(topics, topics[None, ::-1])
    array([[1, 0]])
    """
    optimize = require("scipy.optimize", "matching topics")
    shape = np.shape(reference)
    if np.ndim(others) != 3 or np.shape(others)[1:] != shape:
        raise InvalidValueError(
            f"`others` must be chains × topics × words with the topics and words of `reference` {shape}, got shape "
            f"{np.shape(others)}. For one chain use others[None]."
        )
    orders = np.empty(np.shape(others)[:2], np.int64)
    for chain, topics in enumerate(others):
        rows, columns = optimize.linear_sum_assignment(topic_distance(reference, topics, measure))
        orders[chain, rows] = columns
    return orders
