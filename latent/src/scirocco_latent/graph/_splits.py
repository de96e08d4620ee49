r"""Compiled splits and merges of whole blocks, with the block matrix, shares and propensities integrated out.

A proposal splits a block, merges two, merges two and splits one, or divides the nodes of two blocks again. Nodes of a
block to split are divided as in Jain & Neal (2004): two of them, the anchors, are in different halves; the others start
in a division that does not depend on the current one, are drawn a few times given the rest (the launch), and then once
more with a known probability. A merge computes the probability with which its launch would give the two blocks. Pairs
to merge are chosen by following two edges, as in Peixoto (2020).

The probability of a split is that of its block and anchors, 2 / (N (n - 1)), times that of the division. That of a
merge is that of its pair times 1 / (n_r n_s), of its anchors. Proposals are accepted by the Metropolis-Hastings ratio.
"""

from __future__ import annotations

import math

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import cached_for, called, stream, uniform
from scirocco_latent.graph._kernels import Rows, State, Tables, Unseen, scan, spread

Array = np.ndarray

kept = cached_for(__file__)
_LAUNCH = 4  # passes before the last one
_SPLIT, _BOTH, _AGAIN = 0, 1, 2  # 3 is a merge
Model = tuple[bool, bool, bool, bool, float, float, float, float]
"""Directed, Poisson counts, degree-corrected, Dirichlet process; a, c, d and γ."""
Words = tuple[uint64, uint64]


@called
def _pairs(r: int, s: int, sizes: Array, model: Model) -> float:
    """Number of pairs of nodes between two blocks."""
    if r != s:
        return float(sizes[r]) * sizes[s]
    n = float(sizes[r])
    total = n * n if model[2] else n * (n - 1.0)
    return total if model[0] else total / 2


@called
def _marginal(r: int, s: int, edges: Array, sizes: Array, model: Model) -> float:
    """Log probability of the edges between two blocks with their rate integrated out, up to a constant."""
    n, m, c, d = _pairs(r, s, sizes, model), float(edges[r, s]), model[5], model[6]
    if n == 0.0 and m == 0.0:
        return 0.0
    if model[1]:
        return math.lgamma(c + m) - (c + m) * math.log(d + n) - math.lgamma(c) + c * math.log(d)
    some = math.lgamma(c + m) + math.lgamma(d - c + n - m) - math.lgamma(d + n)
    return some - math.lgamma(c) - math.lgamma(d - c) + math.lgamma(d)


@called
def _touching(r: int, s: int, state: State, model: Model) -> float:
    """The terms of the log joint density that depend on two blocks."""
    _, sizes, edges, _, sums = state
    found, occupied = 0.0, 0
    for t in range(sizes.size):
        occupied += sizes[t] > 0
        found += _marginal(r, t, edges, sizes, model)
        if model[0] or t != r:
            found += _marginal(s, t, edges, sizes, model)
        if model[0] and t != r and t != s:
            found += _marginal(t, r, edges, sizes, model) + _marginal(t, s, edges, sizes, model)
    for k in (r, s):
        if model[3]:
            found += math.lgamma(float(sizes[k])) if sizes[k] > 0 else 0.0
        else:
            found += math.lgamma(model[4] + sizes[k])
        if model[2]:
            for d in range(sums.shape[1]):
                found += spread(sizes[k], sums[k, d], model[7])
    if model[3]:
        return found + occupied * math.log(model[4])
    return found - math.lgamma(sizes.size - occupied + 1.0)


@called
def _tables(some: Array, state: State, model: Model) -> Tables:
    """What edges and pairs of a node in two blocks add to the log likelihood, at the mean rates given all blocks."""
    _, sizes, edges, _, _ = state
    num, c, d = sizes.size, model[5], model[6]
    to, back, both = np.empty((num, 2)), np.empty((num, 2)), np.empty((num, 2))
    loop, alone = np.empty(2), np.empty(2)
    for k in range(2):
        r = some[k]
        for s in range(num):
            n = d + _pairs(r, s, sizes, model)
            out, into = (c + edges[r, s]) / n, (c + edges[s, r]) / n
            pair, other = (-out, -into) if model[1] else (math.log1p(-out), math.log1p(-into))
            to[s, k], back[s, k] = math.log(out), math.log(into)
            if not model[1]:
                to[s, k] -= pair
                back[s, k] -= other
            both[s, k] = pair + other if model[0] else pair
            if s == r:
                loop[k], alone[k] = to[s, k], pair if model[0] else 0.5 * pair
    return to, back, both, loop, alone


@called
def _place(s0: uint64, s1: uint64, size: int) -> tuple[uint64, uint64, int]:
    """A random number below `size`."""
    s0, s1, u = uniform(s0, s1)
    return s0, s1, min(int(u * size), size - 1)


@called
def _nth(s0: uint64, s1: uint64, full: int, sizes: Array) -> tuple[uint64, uint64, int]:
    """A random block with nodes, or one without; -1 if there is none."""
    count = 0
    for t in range(sizes.size):
        count += (sizes[t] > 0) == full
    s0, s1, place = _place(s0, s1, count)
    for t in range(sizes.size):
        place -= (sizes[t] > 0) == full
        if place < 0 and count > 0:
            return s0, s1, t
    return s0, s1, -1


@called
def _divide(
    words: Words,
    anchors: tuple[int, int],
    some: Array,
    rest: Array,
    sides: Array,
    again: int,
    network: tuple[Rows, Rows, Unseen],
    state: State,
    rows: Array,
    model: Model,
) -> tuple[uint64, uint64, float]:
    """Divide nodes between two blocks; returns the log probability of the division, or of `sides` if it has any.

    If `again` is 1, the nodes are then divided once more from the same launch: returns the log ratio of the two.
    """
    s0, s1 = words
    before, launch = 0.0, np.zeros(rest.size if again else 0, np.int64)
    s0, s1, near = uniform(s0, s1)
    nodes, given = np.empty(rest.size + 2, np.int64), np.zeros(rest.size + 2, np.int64)
    nodes[0], nodes[1], given[1] = anchors[0], anchors[1], 1
    for t in range(rest.size):
        i = rest[t]
        nodes[t + 2] = i
        apart = 0.0
        for d in range(rows.shape[1] if near < 0.5 else 0):
            apart += (rows[i, d] - rows[anchors[0], d]) ** 2 - (rows[i, d] - rows[anchors[1], d]) ** 2
        s0, s1, u = uniform(s0, s1)
        given[t + 2] = apart > 0.0 if apart != 0.0 else u < 0.5
    leaving, entering, unseen = network
    concentration, free = 0.0 if model[3] else model[4], np.empty(0, np.int64)
    for number in range(_LAUNCH + 2 + 2 * again):
        chosen = free
        if number == 0:
            chosen = given
        elif number == _LAUNCH + 1:
            chosen = sides
        elif number == _LAUNCH + 2:
            chosen = launch
        s0, s1, found = scan(
            s0,
            s1,
            nodes if number == 0 else rest,
            chosen,
            some,
            leaving,
            entering,
            unseen,
            state,
            _tables(some, state, model),
            model[2],
            concentration,
            model[7],
        )
        if rest.size == 0:
            return s0, s1, 0.0
        for t in range(launch.size if number == _LAUNCH else 0):
            launch[t] = state[0][rest[t]] == some[1]
        if number == _LAUNCH + 1:
            before = found
    return s0, s1, before - found if again else found


@called
def _partners(r: int, state: State, model: Model, out: Array) -> None:
    """Probabilities with which block r is merged with the others: that an edge to it shares an end with one to them."""
    _, sizes, edges, _, _ = state
    num, own, occupied, all_of_them = sizes.size, 0.0, 0, 0.0
    for t in range(num):
        out[t] = 0.0
        occupied += sizes[t] > 0
        own += _ends(r, t, edges, model)
    for t in range(num):
        share = _ends(r, t, edges, model) / own if own > 0.0 else 1.0 / occupied
        if share == 0.0 or sizes[t] == 0:
            continue
        total = float(occupied)
        for s in range(num):
            total += _ends(t, s, edges, model)
        for s in range(num):
            if sizes[s] > 0 and s != r:
                out[s] += share * (1.0 + _ends(t, s, edges, model)) / total
    for s in range(num):
        all_of_them += out[s]
    for s in range(num):
        out[s] /= all_of_them


@called
def _ends(r: int, s: int, edges: Array, model: Model) -> float:
    """Ends in block r of edges to block s, in both directions."""
    return float(edges[r, s] + edges[s, r]) if model[0] or r == s else float(edges[r, s])


@called
def _chosen(r: int, s: int, state: State, model: Model) -> float:
    """Log probability of choosing two blocks and their anchors to merge."""
    sizes, out = state[1], np.empty(state[1].size)
    _partners(r, state, model, out)
    either = out[s]
    _partners(s, state, model, out)
    either += out[r]
    occupied = 0
    for t in range(sizes.size):
        occupied += sizes[t] > 0
    return math.log(either) - math.log(occupied) - math.log(sizes[r]) - math.log(sizes[s])


@called
def _anchored(words: Words, first: int, second: int, state: State) -> tuple[uint64, uint64, int, int, Array]:
    """Anchors of two blocks (or two of one block), and the other nodes of both in random order."""
    s0, s1 = words
    z, sizes = state[0], state[1]
    found = np.empty(sizes[first] + (sizes[second] if second != first else 0), np.int64)
    ends = np.zeros(2, np.int64)
    ends[1] = sizes[first]
    for i in range(z.size):
        if z[i] == first or z[i] == second:
            k = 0 if z[i] == first else 1
            found[ends[k]] = i
            ends[k] += 1
    s0, s1, a = _place(s0, s1, sizes[first])
    if first == second:
        s0, s1, b = _place(s0, s1, sizes[first] - 1)
        b += b >= a
    else:
        s0, s1, b = _place(s0, s1, sizes[second])
        b += sizes[first]
    rest, count = np.empty(found.size - 2, np.int64), 0
    for t in range(found.size):
        if t != a and t != b:
            s0, s1, place = _place(s0, s1, count + 1)
            rest[count] = rest[place]
            rest[place] = found[t]
            count += 1
    return s0, s1, found[a], found[b], rest


@called
def _split(
    words: Words, network: tuple[Rows, Rows, Unseen], state: State, rows: Array, model: Model
) -> tuple[uint64, uint64, float]:
    """Split a block; returns its part of the log acceptance ratio, -inf if it is impossible."""
    s0, s1 = words
    z, sizes, _, _, _ = state
    s0, s1, i = _place(s0, s1, z.size)
    s0, s1, r = _nth(s0, s1, 0, sizes)
    size, some = sizes[z[i]], np.empty(2, np.int64)
    if size < 2 or r < 0:
        return s0, s1, -math.inf
    some[0], some[1] = z[i], r
    r = some[0]
    before = _touching(r, some[1], state, model)
    s0, s1, i, j, rest = _anchored((s0, s1), r, r, state)
    free = np.empty(0, np.int64)
    s0, s1, chance = _divide((s0, s1), (i, j), some, rest, free, 0, network, state, rows, model)
    after = _touching(r, some[1], state, model)
    forward = math.log(2.0) - math.log(z.size) - math.log(size - 1.0) + chance
    return s0, s1, after - before + _chosen(r, some[1], state, model) - forward


@called
def _merge(
    words: Words, again: int, network: tuple[Rows, Rows, Unseen], state: State, rows: Array, model: Model
) -> tuple[uint64, uint64, float]:
    """Merge two blocks, or divide their nodes again; returns the log acceptance ratio, -inf if it is impossible."""
    s0, s1 = words
    z, sizes, edges, _, sums = state
    s0, s1, r = _nth(s0, s1, 1, sizes)
    if sizes[r] == z.size:
        return s0, s1, -math.inf
    some, out = np.empty(2, np.int64), np.empty(sizes.size)
    _partners(r, state, model, out)
    s0, s1, u = uniform(s0, s1)
    some[0], total = r, 0.0
    for t in range(sizes.size):
        total += out[t]
        if out[t] > 0.0:
            some[1] = t
            if u < total:
                break
    s = some[1]
    before, forward = _touching(r, s, state, model), _chosen(r, s, state, model)
    s0, s1, i, j, rest = _anchored((s0, s1), r, s, state)
    sides = np.empty(rest.size, np.int64)
    for t in range(rest.size):
        sides[t] = z[rest[t]] == s
    s0, s1, chance = _divide((s0, s1), (i, j), some, rest, sides, again, network, state, rows, model)
    if again:
        change = _touching(r, s, state, model) - before
        return s0, s1, change + _chosen(r, s, state, model) - forward + chance
    between = edges[r, s]
    for t in range(sizes.size):
        edges[r, t] += edges[s, t]
        edges[s, t] = 0
    for t in range(sizes.size):
        edges[t, r] += edges[t, s]
        edges[t, s] = 0
    if not model[0]:
        edges[r, r] -= between
    sizes[r] += sizes[s]
    sizes[s] = 0
    for d in range(sums.shape[1]):
        sums[r, d] += sums[s, d]
        sums[s, d] = 0
    for t in range(rest.size):
        z[rest[t]] = r
    z[j] = r
    reverse = math.log(2.0) - math.log(z.size) - math.log(sizes[r] - 1.0) + chance
    return s0, s1, _touching(r, s, state, model) - before + reverse - forward


@kept
def propose(
    leaving: Rows, entering: Rows, unseen: Unseen, state: State, rows: Array, model: Model, seed: Words
) -> bool:
    """Propose a split or a merge; returns whether to keep the new state. `rows` (N, d) are places of nodes."""
    s0, s1 = stream(seed[0], seed[1], uint64(0))
    network = (leaving, entering, unseen)
    s0, s1, kind = _place(s0, s1, 4)
    ratio = 0.0
    if kind != _SPLIT:
        s0, s1, ratio = _merge((s0, s1), 1 if kind == _AGAIN else 0, network, state, rows, model)
    if (kind == _SPLIT or kind == _BOTH) and ratio > -math.inf:
        s0, s1, more = _split((s0, s1), network, state, rows, model)
        ratio += more
    s0, s1, u = uniform(s0, s1)
    return math.log(u) < ratio
