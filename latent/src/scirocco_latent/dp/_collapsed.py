"""Compiled collapsed Gibbs: each label given the others, parameters integrated out; split and merge proposals.

Clusters are slots. A slot without rows is free, and slot `used` is always free and stands for a new cluster.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import called, stream, uniform
from scirocco_latent.dp._common import Arrays, kept
from scirocco_latent.dp._families import clear, copy, evidence, move, weigh

Array = np.ndarray

Given = tuple[Arrays, Array, Array, Arrays, Arrays, float, int, Array, Array]
"""Rows, labels, room for the members of a cluster, clusters, room for two of them, α, slots used, space, the stream."""


@kept
def begin_words(seed0: uint64, seed1: uint64, words: Array) -> None:
    """Seed the random generator in `words`."""
    words[0], words[1] = stream(seed0, seed1, uint64(0))


@kept
def count_all(data: Arrays, labels: Array, clusters: Arrays) -> None:
    """Compute the statistics of all clusters from the labels."""
    for row in range(labels.size):
        if labels[row] >= 0:
            move(row, data, clusters, labels[row], 1)


@kept
def clear_all(data: Arrays, clusters: Arrays) -> None:
    """Mark all slots as free."""
    for k in range(clusters[0].size):
        clear(data, clusters, k)


@called
def _allocate(
    members: Array,
    num: int,
    first: int,
    second: int,
    forced: bool,
    labels: Array,
    data: Arrays,
    pair: Arrays,
    space: Array,
    s0: uint64,
    s1: uint64,
) -> tuple[Any, Any, float]:
    """Assign rows one by one to the cluster of `first` (slot 0) or `second` (slot 1); return the log probability.

    `forced`: use the labels, slot 0 for the label of `first`. Otherwise sides are written to `members` as ±(row + 1).
    """
    weights, log_probability = space[2], 0.0
    clear(data, pair, 0)
    clear(data, pair, 1)
    move(first, data, pair, 0, 1)
    move(second, data, pair, 1, 1)
    for place in range(num):
        row = members[place]
        if row == first or row == second:
            continue
        weights[0], weights[1] = pair[0][0], pair[0][1]
        weigh(row, data, pair, 2, weights, space)
        share = weights[0] / (weights[0] + weights[1])
        if forced:
            right = labels[row] != labels[first]
        else:
            s0, s1, u = uniform(s0, s1)
            right = u >= share
        log_probability += math.log(1.0 - share) if right else math.log(share)
        move(row, data, pair, 1 if right else 0, 1)
        if not forced:
            members[place] = -(row + 1) if right else row + 1
    return s0, s1, log_probability


@called
def _members(left: int, right: int, labels: Array, members: Array) -> int:
    """List the rows of two clusters (or of one, twice) in their order in the data, which does not depend on labels."""
    num = 0
    for row in range(labels.size):
        if labels[row] == left or labels[row] == right:
            members[num] = row
            num += 1
    return num


@called
def _one_of(label: int, size: int, labels: Array, members: Array, s0: uint64, s1: uint64) -> tuple[Any, Any, int]:
    """Choose one of the `size` rows of a cluster."""
    s0, s1, u = uniform(s0, s1)
    left, place = int(u * size), -1
    while left >= 0:
        place += 1
        if labels[members[place]] == label:
            left -= 1
    return s0, s1, members[place]


@called
def _apart(alpha: float, data: Arrays, pair: Arrays) -> float:
    """log probability of two clusters, without the factors common to all partitions."""
    return (
        math.log(alpha)
        + math.lgamma(pair[0][0])
        + math.lgamma(pair[0][1])
        + evidence(data, pair, 0)
        + evidence(data, pair, 1)
    )


@kept
def split(label: int, num_clusters: int, given: Given) -> tuple[int, bool]:
    """Propose to split a randomly chosen cluster; return the slots used and whether the split was accepted.

    Sequentially allocated (Dahl 2005): two of its rows are the first of two clusters, and the others, in an order that
    depends on no label, join one of them with the same probabilities as in `sweep`. Slot `used` must be free. Here one
    of K clusters and two of its m rows were chosen; `merge` would choose two of K + 1 clusters and a row of each. The
    ratio of the proposal probabilities is

        [2/((K + 1)K m_1 m_2)] / [2/(K m(m - 1))] = m(m - 1)/((K + 1) m_1 m_2).
    """
    data, labels, members, clusters, pair, alpha, used, space, words = given
    sizes = clusters[0]
    if sizes[label] < 2:
        return used, False
    s0, s1 = words[0], words[1]
    num = _members(label, label, labels, members)
    s0, s1, first = _one_of(label, num, labels, members, s0, s1)
    s0, s1, second = _one_of(label, num, labels, members, s0, s1)
    while second == first:
        s0, s1, second = _one_of(label, num, labels, members, s0, s1)
    s0, s1, log_probability = _allocate(members, num, first, second, False, labels, data, pair, space, s0, s1)
    s0, s1, u = uniform(s0, s1)
    words[0], words[1] = s0, s1
    together = math.lgamma(sizes[label]) + evidence(data, clusters, label)
    chances = math.log(num) + math.log(num - 1.0) - math.log(num_clusters + 1.0)
    chances -= math.log(pair[0][0]) + math.log(pair[0][1])
    if not math.log(u) < _apart(alpha, data, pair) - together - log_probability + chances:
        return used, False
    slot = 0
    while sizes[slot] > 0:
        slot += 1
    copy(data, pair, 0, clusters, label)
    copy(data, pair, 1, clusters, slot)
    labels[second] = slot
    for place in range(num):
        if members[place] < 0:
            labels[-members[place] - 1] = slot
    return max(used, slot + 1), True


@kept
def merge(left: int, right: int, num_clusters: int, given: Given) -> tuple[int, bool]:
    """Propose to merge two randomly chosen clusters: the reverse of `split`."""
    data, labels, members, clusters, pair, alpha, used, space, words = given
    sizes = clusters[0]
    s0, s1 = words[0], words[1]
    num = _members(left, right, labels, members)
    s0, s1, first = _one_of(left, sizes[left], labels, members, s0, s1)
    s0, s1, second = _one_of(right, sizes[right], labels, members, s0, s1)
    s0, s1, log_probability = _allocate(members, num, first, second, True, labels, data, pair, space, s0, s1)
    s0, s1, u = uniform(s0, s1)
    words[0], words[1] = s0, s1
    chances = math.log(num) + math.log(num - 1.0) - math.log(num_clusters)
    chances -= math.log(pair[0][0]) + math.log(pair[0][1])
    apart = _apart(alpha, data, pair)
    for place in range(num):
        if labels[members[place]] == right:
            move(members[place], data, pair, 0, 1)
    together = math.lgamma(pair[0][0]) + evidence(data, pair, 0)
    if not math.log(u) < together - apart + log_probability - chances:
        return used, False
    copy(data, pair, 0, clusters, left)
    clear(data, clusters, right)
    for place in range(num):
        labels[members[place]] = left
    while used > 0 and sizes[used - 1] == 0:
        used -= 1
    return used, True
