"""Compiled updates of mixed memberships: communities of the edges of some nodes, then the weights of these nodes."""

from __future__ import annotations

import math

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import cached_for, called, normal, stream, uniform
from scirocco.diffusions.host._variates import factors, gamma, transition

kept = cached_for(__file__)


@called
def _pick(u: float, edges: np.ndarray) -> int:
    """The first place at which cumulative weights reach a share u of the total."""
    last = edges.size - 1
    u *= edges[last]
    k = 0
    while k < last and edges[k] < u:
        k += 1
    return k


@kept
def sweep(
    nodes: np.ndarray,
    pointers: np.ndarray,
    ends: np.ndarray,
    places: np.ndarray,
    unseen: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    colours: np.ndarray,
    counts: np.ndarray,
    weights: np.ndarray,
    sums: np.ndarray,
    shape: float,
    rate: float,
    seed: tuple[uint64, uint64],
) -> None:
    """Draw the communities of the edges that belong to some nodes, and then the weights of each of these nodes.

    Edge e of node i is pointers[i] to pointers[i + 1], its units are colours[places[e]] to colours[places[e + 1]].
    `counts` (N, K) are units of edges by node and community, `sums` the sums of `weights` over all nodes.
    """
    first, second, numbers, by = unseen
    num = sums.size
    share, less = np.empty(num), np.empty(num)
    s0, s1 = stream(seed[0], seed[1], uint64(0))
    for i in nodes:
        for e in range(pointers[i], pointers[i + 1]):
            j, total = ends[e], 0.0
            for k in range(num):
                total += weights[i, k] * weights[j, k]
                share[k] = total
            for unit in range(places[e], places[e + 1]):
                old = colours[unit]
                s0, s1, u = uniform(s0, s1)
                new = _pick(u, share)
                colours[unit] = new
                counts[i, old] -= 1
                counts[j, old] -= 1
                counts[i, new] += 1
                counts[j, new] += 1
        for k in range(num):
            less[k] = weights[i, k]
        for place in range(by[i], by[i + 1]):
            pair = numbers[place]
            j = second[pair] if first[pair] == i else first[pair]
            for k in range(num):
                less[k] += weights[j, k]
        for k in range(num):
            s0, s1, g = gamma(s0, s1, shape + counts[i, k])
            others = max(sums[k] - less[k], 0.0)
            value = max(g / (rate + others), 1e-200)
            sums[k] += value - weights[i, k]
            weights[i, k] = value


@kept
def log_likelihood(
    pointers: np.ndarray, ends: np.ndarray, places: np.ndarray, weights: np.ndarray, rates: np.ndarray
) -> float:
    """The log of the rates of all edges, times their counts; the rates are also returned in `rates`."""
    total = 0.0
    for i in range(pointers.size - 1):
        for e in range(pointers[i], pointers[i + 1]):
            rate = 0.0
            for k in range(weights.shape[1]):
                rate += weights[i, k] * weights[ends[e], k]
            rates[e] = rate
            total += (places[e + 1] - places[e]) * math.log(rate)
    return total


@called
def _expect(sign: float, i: int, j: int, weights: np.ndarray, out: np.ndarray) -> None:
    """Add the probabilities of the communities of an edge."""
    total = 0.0
    for k in range(out.size):
        total += weights[i, k] * weights[j, k]
    for k in range(out.size):
        out[k] += sign * weights[i, k] * weights[j, k] / total


@kept
def expected(rows: tuple[np.ndarray, np.ndarray, np.ndarray], weights: np.ndarray, out: np.ndarray) -> None:
    """Expected units of edges by node and community (N, K)."""
    pointers, ends, units = rows
    for i in range(out.shape[0]):
        for e in range(pointers[i], pointers[i + 1]):
            _expect(float(units[e]), i, ends[e], weights, out[i])


@kept
def langevin(
    nodes: np.ndarray,
    rows: tuple[np.ndarray, np.ndarray, np.ndarray],
    unseen: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    weights: np.ndarray,
    sums: np.ndarray,
    reference: np.ndarray,
    totals: np.ndarray,
    shape: float,
    rate: float,
    most: int,
    step: float,
    exact: bool,
    seed: tuple[uint64, uint64],
) -> None:
    """Move the weights of some nodes, with counts that are estimated from at most `most` edges of a node.

    By the exact transition of dφ = (a - bφ) dt + sqrt(2φ) dW over the time step / b, or by an Euler step. With
    `reference`, counts are `totals` at the reference plus an estimate of the difference.
    """
    pointers, ends, units = rows
    first, second, numbers, by = unseen
    num, controlled = sums.size, reference.shape[0] > 0
    count, less = np.empty(num), np.empty(num)
    s0, s1 = stream(seed[0], seed[1], uint64(0))
    for i in nodes:
        size = pointers[i + 1] - pointers[i]
        used = min(size, most)
        for k in range(num):
            count[k] = totals[i, k] if controlled else 0.0
            less[k] = weights[i, k]
        for n in range(used):
            e = pointers[i] + n
            if size > most:
                s0, s1, u = uniform(s0, s1)
                e = pointers[i] + np.int64(u * size)
            scale = units[e] * (size / used)
            _expect(scale, i, ends[e], weights, count)
            if controlled:
                _expect(-scale, i, ends[e], reference, count)
        for place in range(by[i], by[i + 1]):
            pair = numbers[place]
            j = second[pair] if first[pair] == i else first[pair]
            for k in range(num):
                less[k] += weights[j, k]
        for k in range(num):
            a = max(shape + count[k], 1e-3 * shape)  # an estimate of a difference may be too small
            b = rate + max(sums[k] - less[k], 0.0)
            time, value = step / b, weights[i, k]
            if exact:
                ratio, scale = factors(time, b)
                s0, s1, value = transition(s0, s1, value, a, ratio, scale)
            else:
                s0, s1, z = normal(s0, s1)
                value = abs(value + time * (a - b * value) + math.sqrt(2.0 * time * value) * z)
            value = max(value, 1e-200)
            sums[k] += value - weights[i, k]
            weights[i, k] = value
