"""Compiled updates of mixed memberships without weights: an edge has the probability π_i' B π_j.

`to` (N, K) contains B π_j, for edges from i to j; `fro` contains B' π_j, for edges that enter i, of directed networks
only. A role is the community in which a node acts in one pair.
"""

from __future__ import annotations

import math

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import cached_for, called, inlined, stream, uniform
from scirocco.diffusions.host._variates import factors, gamma
from scirocco.simplex import _moves
from scirocco.simplex._moves import moved
from scirocco_latent.graph._shared import Rows, Unseen, pick, product, some_edge

Array = np.ndarray

kept = cached_for(__file__, _moves.__file__)
State = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""π (N, K), `to`, `fro`, the sums of these two over nodes, B."""


@called
def _choose(u: float, rows: Array, i: int) -> int:
    """A number with the probabilities in row i."""
    last = rows.shape[1] - 1
    k = 0
    while k < last:
        u -= rows[i, k]
        if u < 0.0:
            break
        k += 1
    return k


@called
def _mark(i: int, side: int, rows: Rows, unseen: Unseen, directed: bool, marks: Array) -> int:
    """Mark the nodes with which a node has no pair without an edge: linked, not observed, itself; returns how many."""
    pointers, ends, _ = rows
    first, second, numbers, by = unseen
    stamp, found = 2 * i + side + 1, 1
    marks[i] = stamp
    for e in range(pointers[i], pointers[i + 1]):
        marks[ends[e]] = stamp
        found += 1
    for place in range(by[i], by[i + 1]):
        pair = numbers[place]
        sends = first[pair] == i
        if directed and sends == (side == 1):
            continue
        marks[second[pair] if sends else first[pair]] = stamp
        found += 1
    return found


@called
def _renew(i: int, state: State, inside: bool) -> None:
    """`to`, `fro` and their sums after the memberships of a node changed."""
    pi, to, fro, sums_to, sums_fro, matrix = state
    num, directed = pi.shape[1], fro.shape[0] > 0
    for k in range(num):
        out, into = 0.0, 0.0
        if inside:
            base = matrix[0, 1] if num > 1 else 0.0
            out = into = base + (matrix[k, k] - base) * pi[i, k]
        else:
            for n in range(num):
                out += matrix[k, n] * pi[i, n]
                into += matrix[n, k] * pi[i, n]
        sums_to[k] += out - to[i, k]
        to[i, k] = out
        if directed:
            sums_fro[k] += into - fro[i, k]
            fro[i, k] = into


@inlined
def _two_roles(s0: uint64, s1: uint64, pi: Array, i: int, j: int) -> tuple[uint64, uint64, int, int, float]:
    """Roles of two nodes given their memberships, and a uniform number."""
    s0, s1, u = uniform(s0, s1)
    k = _choose(u, pi, i)
    s0, s1, u = uniform(s0, s1)
    n = _choose(u, pi, j)
    s0, s1, u = uniform(s0, s1)
    return s0, s1, k, n, u


@called
def _draw_roles(
    i: int,
    leaving: Rows,
    entering: Rows,
    unseen: Unseen,
    state: State,
    top: float,
    marks: Array,
    count: Array,
    share: Array,
    s0: uint64,
    s1: uint64,
) -> tuple[uint64, uint64]:
    """Draw the roles of a node in its pairs, see `sweep`, and add them to `count`; `top` is max B, `share` is space."""
    pi, to, fro, _, _, matrix = state
    total, directed = pi.shape[0], fro.shape[0] > 0
    for side in range(2 if directed else 1):
        rows = leaving if side == 0 else entering
        table = to if side == 0 else fro
        pointers, ends, _ = rows
        for e in range(pointers[i], pointers[i + 1]):
            product(pi, i, table, ends[e], share)
            s0, s1, u = uniform(s0, s1)
            count[pick(u, share)] += 1.0
        _mark(i, side, rows, unseen, directed, marks)
        stamp, j = 2 * i + side + 1, -1
        while True:
            s0, s1, u = uniform(s0, s1)
            gap = math.log(1.0 - u) / math.log1p(-top) if top < 1.0 else 0.0
            if gap >= total:
                break
            j += 1 + int(gap)
            if j >= total:
                break
            if marks[j] == stamp:
                continue
            while True:
                s0, s1, k, n, u = _two_roles(s0, s1, pi, i, j)
                if u * top >= (matrix[k, n] if side == 0 else matrix[n, k]):
                    count[k] += 1.0
                    break
                s0, s1, u = uniform(s0, s1)  # it would have been an edge: begin again
                if u >= top:
                    break
    return s0, s1


@kept
def sweep(
    nodes: Array,
    leaving: Rows,
    entering: Rows,
    unseen: Unseen,
    state: State,
    inside: bool,
    concentration: float,
    marks: Array,
    seed: tuple[uint64, uint64],
) -> None:
    """Draw the memberships of some nodes exactly, given those of the others and B.

    Each pair without an edge is a candidate with the probability c = max B. Only candidates have roles, and become
    edges with the probability B / c. So the roles of a share c of the pairs are drawn, found by geometric gaps.
    """
    pi, top, num = state[0], state[5].max(), state[0].shape[1]
    count, share = np.empty(num), np.empty(num)
    s0, s1 = stream(seed[0], seed[1], uint64(0))
    for i in nodes:
        count[:] = concentration
        s0, s1 = _draw_roles(i, leaving, entering, unseen, state, top, marks, count, share, s0, s1)
        mass = 0.0
        for k in range(num):
            s0, s1, g = gamma(s0, s1, count[k])
            share[k] = max(g, 1e-200)
            mass += share[k]
        for k in range(num):
            pi[i, k] = share[k] / mass
        _renew(i, state, inside)


@kept
def draw_roles(
    leaving: Rows,
    entering: Rows,
    unseen: Unseen,
    state: State,
    marks: Array,
    counts: Array,
    seed: tuple[uint64, uint64],
) -> None:
    """Draw the roles of all nodes given memberships and B, and add them to `counts` (N, K)."""
    top, share = state[5].max(), np.empty(counts.shape[1])
    s0, s1 = stream(seed[0], seed[1], uint64(0))
    for i in range(counts.shape[0]):
        s0, s1 = _draw_roles(i, leaving, entering, unseen, state, top, marks, counts[i], share, s0, s1)


@kept
def roles(
    leaving: Rows, unseen: Unseen, state: State, linked: Array, apart: Array, marks: Array, seed: tuple[uint64, uint64]
) -> None:
    """Draw the roles in all pairs, and count them by pairs with (`linked`) and without (`apart`) an edge (K, K).

    Without `apart` (empty), only pairs with an edge.
    """
    pi, to, fro, _, _, matrix = state
    total, num = pi.shape
    directed = fro.shape[0] > 0
    share = np.empty(num)
    pointers, ends, _ = leaving
    s0, s1 = stream(seed[0], seed[1], uint64(0))
    for i in range(total):
        _mark(i, 0, leaving, unseen, directed, marks)
        for e in range(pointers[i], pointers[i + 1]):
            j = ends[e]
            if j < i and not directed:
                continue
            product(pi, i, to, j, share)
            s0, s1, u = uniform(s0, s1)
            k = pick(u, share)
            product(matrix, k, pi, j, share)
            s0, s1, u = uniform(s0, s1)
            linked[k, pick(u, share)] += 1
        for j in range(0 if directed else i + 1, total if apart.size else 0):
            if marks[j] == 2 * i + 1:
                continue
            while True:
                s0, s1, k, n, u = _two_roles(s0, s1, pi, i, j)
                if u >= matrix[k, n]:
                    apart[k, n] += 1
                    break


@called
def _at_edge(
    sign: float, i: int, j: int, pi: Array, table: Array, matrix: Array, inside: bool, top: float,
    out: Array, linked: Array, exposed: Array,
) -> None:  # fmt: skip
    """Add what an edge has in place of a pair without one, to first order: to roles of i, and to those of both ends.

    If all different communities share one probability, their sum is added to one entry.
    """
    num, p = pi.shape[1], 0.0
    for k in range(num):
        p += pi[i, k] * table[j, k]
    for k in range(num):
        out[k] += sign * pi[i, k] * (table[j, k] / p - (top - table[j, k]))
    if linked.size and inside:
        links, rest = sign, sign
        for k in range(num):
            both = sign * pi[i, k] * pi[j, k]
            linked[k, k] += both * matrix[k, k] / p
            exposed[k, k] -= both
            links -= both * matrix[k, k] / p
            rest -= both
        if num > 1:
            linked[0, 1] += links
            exposed[0, 1] -= rest
    elif linked.size:
        for k in range(num):
            for n in range(num):
                both = sign * pi[i, k] * pi[j, n]
                linked[k, n] += both * matrix[k, n] / p
                exposed[k, n] -= both


@called
def _apart(
    scale: float, i: int, j: int, pi: Array, table: Array, inside: bool, top: float, out: Array,
    often: float, exposed: Array,
) -> None:  # fmt: skip
    """Add what a pair without an edge has beyond first order."""
    num, p = pi.shape[1], 0.0
    for k in range(num):
        p += pi[i, k] * table[j, k]
    p /= 1.0 - p
    for k in range(num):
        out[k] += scale * pi[i, k] * (top - table[j, k]) * p
    often *= scale * p
    if often > 0.0 and inside:
        rest = often
        for k in range(num):
            exposed[k, k] += often * pi[i, k] * pi[j, k]
            rest -= often * pi[i, k] * pi[j, k]
        if num > 1:
            exposed[0, 1] += rest
    elif often > 0.0:
        for k in range(num):
            for n in range(num):
                exposed[k, n] += often * pi[i, k] * pi[j, n]


@kept
def count_edges(
    rows: Rows, state: State, inside: bool, side: int, top: float, out: Array, linked: Array,
    exposed: Array,
) -> None:  # fmt: skip
    """`_at_edge` of all edges."""
    pi, to, fro, _, _, matrix = state
    pointers, ends, _ = rows
    for i in range(pi.shape[0]):
        for e in range(pointers[i], pointers[i + 1]):
            _at_edge(1.0, i, ends[e], pi, to if side == 0 else fro, matrix, inside, top, out[i], linked, exposed)


@kept
def estimate(
    i: int,
    leaving: Rows,
    entering: Rows,
    unseen: Unseen,
    state: State,
    reference: State,
    totals: Array,
    inside: bool,
    tops: tuple[float, float],
    most: int,
    num_pairs: int,
    out: Array,
    linked: Array,
    exposed: Array,
    marks: Array,
    s0: uint64,
    s1: uint64,
) -> tuple[uint64, uint64]:
    """Unbiased counts of the roles of a node, from some of its edges and some of its pairs without one.

    Σ over pairs without an edge of π_k (c - t_k) / (1 - p), p = Σ π_k t_k, is a sum over all pairs to first order
    in p, which is known, and a rest, which is estimated. With `reference`, edges are `totals` there plus an estimate
    of the difference. `tops` are c here and there.
    """
    top, old_top = tops
    pi, to, fro, sums_to, sums_fro, matrix = state
    old_pi, old_to, old_fro, _, _, old_matrix = reference
    total, num = pi.shape
    first, second, numbers, by = unseen
    controlled, directed = old_pi.shape[0] > 0, fro.shape[0] > 0
    nobody = np.empty((0, 0))
    for k in range(num):
        out[k] = totals[i, k] if controlled else 0.0
    for side in range(2 if directed else 1):
        rows = leaving if side == 0 else entering
        table, sums = (to, sums_to) if side == 0 else (fro, sums_fro)
        old_table = old_to if side == 0 else old_fro
        counted = linked if side == 0 else nobody
        pointers, ends, _ = rows
        marked = _mark(i, side, rows, unseen, directed, marks)
        size = pointers[i + 1] - pointers[i]
        seen = total - marked + size
        for k in range(num):
            out[k] += pi[i, k] * (top * seen - sums[k] + table[i, k])
        for place in range(by[i], by[i + 1]):
            pair = numbers[place]
            sends = first[pair] == i
            if directed and sends == (side == 1):
                continue
            j = second[pair] if sends else first[pair]
            for k in range(num):
                out[k] += pi[i, k] * table[j, k]
        used = min(size, most)
        for n in range(used):
            s0, s1, e = some_edge(s0, s1, n, pointers[i], size, most)
            _at_edge(size / used, i, ends[e], pi, table, matrix, inside, top, out, counted, exposed)
            if controlled:
                _at_edge(
                    -size / used, i, ends[e], old_pi, old_table, old_matrix, inside, old_top, out, counted, exposed
                )
        if marked < total:
            for n in range(num_pairs):
                j = i
                while marks[j] == 2 * i + side + 1:
                    s0, s1, u = uniform(s0, s1)
                    j = np.int64(u * total)
                often = float(num_pairs) if n == 0 and side == 0 and linked.size > 0 else 0.0
                _apart((total - marked) / num_pairs, i, j, pi, table, inside, top, out, often, exposed)
    return s0, s1


@kept
def move(
    nodes: Array,
    leaving: Rows,
    entering: Rows,
    unseen: Unseen,
    theta: Array,
    state: State,
    reference: State,
    totals: Array,
    inside: bool,
    concentration: float,
    most: int,
    num_pairs: int,
    drawn: Array,
    noise: Array,
    weight: Array,
    step: float,
    method: int,
    linked: Array,
    exposed: Array,
    marks: Array,
    seed: tuple[uint64, uint64],
) -> None:
    """Move π = θ / Σθ of some nodes: a step of dθ = (a + n - θ) dt + sqrt(2θ) dW with estimated counts n, see `moved`.

    SCIR-CV has counts of roles that were `drawn` (N, K), and the variance of an estimate is about `noise` (N) times a
    count. SGRLD has the drift a + n - θ (1 + (Σn - w)/Σθ), with which counts do not move Σθ ~ Gamma(Ka + w), for any
    `weight` w (N).
    """
    pi, top = state[0], state[5].max()
    tops = (top, reference[5].max() if reference[5].size > 0 else top)
    num = pi.shape[1]
    out = np.empty(num)
    plain = factors(step, 1.0)
    s0, s1 = stream(seed[0], seed[1], uint64(0))
    for i in nodes:
        s0, s1 = estimate(
            i, leaving, entering, unseen, state, reference, totals, inside, tops, most, num_pairs, out, linked, exposed,
            marks, s0, s1,
        )  # fmt: skip
        mass, found, total = 0.0, 0.0, 0.0
        for k in range(num):
            found += out[k]
            total += theta[i, k]
        pull = 1.0 + (found - weight[i]) / total
        for k in range(num):
            a = max(concentration + out[k], 1e-3 * concentration)  # an estimate may be too small
            value, whole = theta[i, k], drawn[i, k] if drawn.size else 0.0
            wanted, drift = concentration + whole if whole > 0.0 else 0.0, a - pull * value
            s0, s1, value = moved(s0, s1, value, a, drift, wanted, noise[i] * whole, method, step, 1.0, plain)
            theta[i, k] = max(value, 1e-200)
            mass += theta[i, k]
        for k in range(num):
            pi[i, k] = theta[i, k] / mass
        _renew(i, state, inside)
