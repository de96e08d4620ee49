"""Compiled updates of block models: blocks of nodes given the block matrix, and counts of pairs that were not seen.

A network is `(pointers, ends, weights)` by rows, once for undirected and twice for directed networks (edges that leave
a node, edges that enter it). Pairs that were not observed are `(first, second, counts, by node, pointers)`; their
counts are drawn. All counts are whole numbers, so that sums that are updated stay exact.
"""

from __future__ import annotations

import math

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import cached_for, called, stream, uniform
from scirocco.diffusions.host._variates import gamma, poisson
from scirocco_latent.graph._shared import Rows, pick

Array = np.ndarray

kept = cached_for(__file__)
Unseen = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""First and second node of a pair, its count, numbers of pairs by node, pointers to them."""
State = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Blocks of nodes (N,), sizes of blocks (K,), edges between blocks (K, K), degrees (N, D), degrees of blocks (K, D).

D is 1, of a directed network 2 (out and in). Edges between two blocks of an undirected network are entered twice."""
Tables = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""For all blocks and C candidates of a node's block: what an edge from the node to the block adds to the log likelihood
(K, C), an edge from the block to the node (K, C), and a pair (K, C); for candidates what the count of the node's pair
with itself adds (C,), and that pair (C,)."""


@called
def spread(size: int, degree: int, shape: float) -> float:
    """Log of what is left of a block after its propensities, n times a Dirichlet distribution, are integrated out."""
    if size == 0:
        return 0.0
    total = size * shape
    return degree * math.log(size) + math.lgamma(total) - math.lgamma(total + degree)


@called
def _more(r: int, sizes: Array, sums: Array, shape: float, out: Array) -> None:
    """What `spread` of a block with one node more needs: all terms without the new degree, log n, and n times γ."""
    total = (sizes[r] + 1) * shape
    out[0], out[1], out[2] = sums.shape[1] * math.lgamma(total), math.log(sizes[r] + 1.0), total
    for d in range(sums.shape[1]):
        out[0] -= spread(sizes[r], sums[r, d], shape)


@called
def _gather(i: int, rows: Rows, z: Array, count: Array) -> None:
    pointers, ends, weights = rows
    for e in range(pointers[i], pointers[i + 1]):
        count[z[ends[e]]] += weights[e]


@called
def _gather_unseen(i: int, unseen: Unseen, z: Array, two: bool, out: Array, into: Array) -> int:
    """Counts of pairs that were not observed; returns that of the node with itself."""
    first, second, counts, numbers, pointers = unseen
    loops = 0
    for e in range(pointers[i], pointers[i + 1]):
        pair = numbers[e]
        c = counts[pair]
        if c == 0:
            continue
        if first[pair] == second[pair]:
            loops += c
        elif first[pair] == i:
            out[z[second[pair]]] += c
        elif two:
            into[z[first[pair]]] += c
        else:
            out[z[first[pair]]] += c
    return loops


@called
def _enter(sign: int, r: int, loops: int, two: bool, out: Array, into: Array, edges: Array) -> None:
    """Add (or take away) the edges of a node in block r."""
    for s in range(out.size):
        if out[s] != 0:
            edges[r, s] += sign * out[s]
            if not two and s != r:
                edges[s, r] += sign * out[s]
        if two and into[s] != 0:
            edges[s, r] += sign * into[s]
    edges[r, r] += sign * loops


@called
def scan(
    s0: uint64,
    s1: uint64,
    nodes: Array,
    given: Array,
    candidates: Array,
    leaving: Rows,
    entering: Rows,
    unseen: Unseen,
    state: State,
    tables: Tables,
    corrected: bool,
    concentration: float,
    shape: float,
) -> tuple[uint64, uint64, float]:
    """Draw the blocks of some nodes, one after the other, with shares and propensities integrated out.

    A node is moved to one of the candidates, among which its block must be. If `given` is not empty, it is moved to
    that candidate instead. Returns the log probability of what was drawn or given. If the concentration is 0, a node
    that is alone in its block stays there.
    """
    z, sizes, edges, degrees, sums = state
    to, back, both, loop, alone = tables
    num, two, free = sizes.size, entering[0].size > 0, given.size == 0
    wide = candidates.size
    place = np.zeros(num, np.int64)
    base = np.zeros(wide)
    more = np.zeros((wide, 3))
    for k in range(wide):
        place[candidates[k]] = k
        _more(candidates[k], sizes, sums, shape, more[k])
    for s in range(num):
        for k in range(wide):
            base[k] += sizes[s] * both[s, k]
    out, into = np.zeros(num, np.int64), np.zeros(num, np.int64)
    weights, logs = np.empty(wide), np.empty(wide)
    found = 0.0
    for t in range(nodes.size):
        i = nodes[t]
        r = z[i]
        if free and concentration == 0.0 and sizes[r] == 1:
            continue
        out[:] = 0
        into[:] = 0
        _gather(i, leaving, z, out)
        if two:
            _gather(i, entering, z, into)
        loops = _gather_unseen(i, unseen, z, two, out, into)
        _enter(-1, r, loops, two, out, into, edges)
        sizes[r] -= 1
        for k in range(wide):
            base[k] -= both[r, k]
        if corrected:
            for d in range(sums.shape[1]):
                sums[r, d] -= degrees[i, d]
            _more(r, sizes, sums, shape, more[place[r]])
        for k in range(wide):
            logs[k] = base[k]
        for s in range(num):
            c = float(out[s])
            if c != 0.0:
                for k in range(wide):
                    logs[k] += c * to[s, k]
            c = float(into[s])
            if c != 0.0:
                for k in range(wide):
                    logs[k] += c * back[s, k]
        high = -math.inf
        for k in range(wide):
            s = candidates[k]
            w = logs[k] + math.log(concentration + sizes[s])
            if corrected:
                w += alone[k] + loops * loop[k] + more[k, 0]
                for d in range(sums.shape[1]):
                    degree = sums[s, d] + degrees[i, d]
                    w += degree * more[k, 1] - math.lgamma(more[k, 2] + degree)
            logs[k] = w
            high = max(high, w)
        total = 0.0
        for k in range(wide):
            total += math.exp(logs[k] - high)
            weights[k] = total
        if free:
            s0, s1, u = uniform(s0, s1)
            k = pick(u, weights)
        else:
            k = given[t]
        found += logs[k] - high - math.log(total)
        r = candidates[k]
        z[i] = r
        _enter(1, r, loops, two, out, into, edges)
        sizes[r] += 1
        for c in range(wide):
            base[c] += both[r, c]
        if corrected:
            for d in range(sums.shape[1]):
                sums[r, d] += degrees[i, d]
            _more(r, sizes, sums, shape, more[k])
    return s0, s1, found


@kept
def sweep(
    nodes: Array,
    candidates: Array,
    leaving: Rows,
    entering: Rows,
    unseen: Unseen,
    state: State,
    tables: Tables,
    corrected: bool,
    concentration: float,
    shape: float,
    seed: tuple[uint64, uint64],
) -> None:
    """Draw the blocks of some nodes, see `scan`."""
    s0, s1 = stream(seed[0], seed[1], uint64(0))
    free = np.empty(0, np.int64)
    scan(s0, s1, nodes, free, candidates, leaving, entering, unseen, state, tables, corrected, concentration, shape)


@called
def _propensity(
    s0: uint64, s1: uint64, i: int, state: State, shape: float, drawn: Array, total: Array, left: Array
) -> tuple[uint64, uint64]:
    """Draw the gamma numbers of a node, unless it has them."""
    z, _, _, degrees, _ = state
    for d in range(degrees.shape[1]):
        if drawn[i, d] >= 0.0:
            continue
        own = shape + degrees[i, d]
        s0, s1, g = gamma(s0, s1, own)
        drawn[i, d] = g
        total[z[i], d] += g
        left[z[i], d] -= own
    return s0, s1


@kept
def impute(
    pairs: Array,
    unseen: Unseen,
    state: State,
    rates: Array,
    two: bool,
    poisson_counts: bool,
    corrected: bool,
    shape: float,
    drawn: Array,
    seed: tuple[uint64, uint64],
) -> None:
    """Draw the counts of some pairs that were not observed, given blocks, propensities and the block matrix.

    The propensities of a block are n times a Dirichlet distribution. Only those of the nodes in question are drawn,
    and the sum of all others. `drawn` is -1 everywhere, and is -1 again at the end.
    """
    z, sizes, edges, degrees, sums = state
    first, second, counts, _, _ = unseen
    s0, s1 = stream(seed[0], seed[1], uint64(0))
    num = sizes.size
    total, left = np.zeros(sums.shape), np.zeros(sums.shape)
    if corrected:
        for r in range(num):
            for d in range(sums.shape[1]):
                left[r, d] = sizes[r] * shape + sums[r, d]
        for pair in pairs:
            s0, s1 = _propensity(s0, s1, first[pair], state, shape, drawn, total, left)
            s0, s1 = _propensity(s0, s1, second[pair], state, shape, drawn, total, left)
        for r in range(num):
            for d in range(sums.shape[1]):
                if left[r, d] > 1e-9:  # otherwise all nodes of the block are drawn, and it is rounding
                    s0, s1, g = gamma(s0, s1, left[r, d])
                    total[r, d] += g
    last = degrees.shape[1] - 1
    for pair in pairs:
        i, j = first[pair], second[pair]
        r, s = z[i], z[j]
        rate = rates[r, s]
        if corrected:
            rate *= sizes[r] * drawn[i, 0] / total[r, 0] * sizes[s] * drawn[j, last] / total[s, last]
            if i == j and not two:
                rate *= 0.5
        if poisson_counts:
            s0, s1, value = poisson(s0, s1, rate)
            c = np.int64(value)
        else:
            s0, s1, u = uniform(s0, s1)
            c = np.int64(1) if u < rate else np.int64(0)
        change = c - counts[pair]
        if change == 0:
            continue
        counts[pair] = c
        edges[r, s] += change
        if not two and r != s:
            edges[s, r] += change
        degrees[i, 0] += change
        sums[r, 0] += change
        degrees[j, last] += change
        sums[s, last] += change
    if corrected:
        for pair in pairs:
            for d in range(sums.shape[1]):
                drawn[first[pair], d] = -1.0
                drawn[second[pair], d] = -1.0
