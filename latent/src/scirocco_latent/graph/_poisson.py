"""Compiled updates of mixed memberships with weights: communities of the edges of some nodes, then their weights.

The edges of a pair have the rate Σ_k φ_ik t_jk. `to` (N, K) contains t_j, that of a node j to which an edge leads: its
weights, if edges are inside communities, or the block matrix times its weights, in directed networks also times
the factor ρ_j. `fro` is the same for edges that enter a node, of directed networks only.
"""

from __future__ import annotations

import math

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import cached_for, called, stream, uniform
from scirocco.diffusions.host._variates import factors, gamma
from scirocco.simplex import _moves
from scirocco.simplex._moves import moved
from scirocco_latent.graph._shared import Rows, Unseen, dot, pick, some_edge

Array = np.ndarray

kept = cached_for(__file__, _moves.__file__)
State = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Weights (N, K), `to`, `fro`, the sums of these two over nodes, the block matrix, ρ; empty where a model has none."""


@called
def _expose(i: int, unseen: Unseen, state: State, less: Array, into: Array, out: Array) -> None:
    """Sums of `to` and `fro` over the other nodes of the pairs of a node: `out` of both, `into` of `fro` alone."""
    first, second, numbers, by = unseen
    _, to, fro, sums_to, sums_fro, _, receive = state
    num, directed = out.size, receive.size > 0
    for k in range(num):
        less[k] = to[i, k]
        into[k] = fro[i, k] if directed else 0.0
    for place in range(by[i], by[i + 1]):
        pair = numbers[place]
        sends = first[pair] == i
        j = second[pair] if sends else first[pair]
        for k in range(num):
            if sends or not directed:
                less[k] += to[j, k]
            else:
                into[k] += fro[j, k]
    for k in range(num):
        out[k] = max(sums_to[k] - less[k], 0.0)
        if directed:
            into[k] = max(sums_fro[k] - into[k], 0.0)
            out[k] += receive[i] * into[k]


@called
def _renew(
    i: int, state: State, before: Array, arriving: Array, arrived: float, spread: float, s0: uint64, s1: uint64
) -> tuple[uint64, uint64]:
    """Draw ρ, and update `to`, `fro` and their sums, after the weights of a node changed, which were `before`.

    `arrived` are edges that enter the node, `arriving` what they are expected to be for one unit of each weight.
    """
    weights, to, fro, sums_to, sums_fro, matrix, receive = state
    num, general, directed = before.size, matrix.size > 0, receive.size > 0
    if directed:
        total = spread
        for k in range(num):
            total += weights[i, k] * arriving[k]
        s0, s1, g = gamma(s0, s1, spread + arrived)
        receive[i] = max(g / total, 1e-200)
    if not general and not directed:  # `to` are the weights
        for k in range(num):
            sums_to[k] += weights[i, k] - before[k]
        return s0, s1
    for k in range(num):
        out, into = 0.0, 0.0
        if general:
            for n in range(num):
                out += matrix[k, n] * weights[i, n]
                into += matrix[n, k] * weights[i, n]
        else:
            out = into = weights[i, k]
        if directed:
            out *= receive[i]
            sums_fro[k] += into - fro[i, k]
            fro[i, k] = into
        sums_to[k] += out - to[i, k]
        to[i, k] = out
    return s0, s1


@kept
def sweep(
    nodes: Array,
    pointers: Array,
    ends: Array,
    places: Array,
    unseen: Unseen,
    colours: Array,
    others: Array,
    counts: Array,
    pairs: Array,
    state: State,
    arrived: Array,
    shape: float,
    rate: float,
    spread: float,
    seed: tuple[uint64, uint64],
) -> None:
    """Draw the communities of the edges that belong to some nodes, and then the weights of each of these nodes.

    Edge e of node i is pointers[i] to pointers[i + 1], its units are colours[places[e]] to colours[places[e + 1]];
    `others` are the communities of their other ends, if these can differ. `counts` (N, K) are units of edges by node
    and community, `pairs` (K, K) by the communities of both ends, `arrived` those that enter a node; `spread` is the
    shape of the prior of ρ.
    """
    weights, to, matrix = state[0], state[1], state[5]
    num, general = weights.shape[1], matrix.size > 0
    share, ahead, less, into, out = np.empty(num), np.empty(num), np.empty(num), np.empty(num), np.empty(num)
    s0, s1 = stream(seed[0], seed[1], uint64(0))
    for i in nodes:
        for e in range(pointers[i], pointers[i + 1]):
            j, total = ends[e], 0.0
            for k in range(num):
                total += weights[i, k] * to[j, k]
                share[k] = total
            for unit in range(places[e], places[e + 1]):
                old = colours[unit]
                s0, s1, u = uniform(s0, s1)
                new = pick(u, share)
                colours[unit] = new
                counts[i, old] -= 1
                counts[i, new] += 1
                if general:
                    total = 0.0
                    for k in range(num):
                        total += matrix[new, k] * weights[j, k]
                        ahead[k] = total
                    pairs[old, others[unit]] -= 1
                    old = others[unit]
                    s0, s1, u = uniform(s0, s1)
                    others[unit] = pick(u, ahead)
                    pairs[new, others[unit]] += 1
                    new = others[unit]
                counts[j, old] -= 1
                counts[j, new] += 1
        _expose(i, unseen, state, less, into, out)
        for k in range(num):
            s0, s1, g = gamma(s0, s1, shape + counts[i, k])
            less[k] = weights[i, k]
            weights[i, k] = max(g / (rate + out[k]), 1e-200)
        s0, s1 = _renew(i, state, less, into, arrived[i], spread, s0, s1)


@kept
def log_likelihood(pointers: Array, ends: Array, places: Array, weights: Array, to: Array) -> float:
    """The log of the rates of all edges, times their counts."""
    total = 0.0
    for i in range(pointers.size - 1):
        for e in range(pointers[i], pointers[i + 1]):
            total += (places[e + 1] - places[e]) * math.log(dot(weights, i, to, ends[e]))
    return total


@called
def _expect(sign: float, i: int, j: int, weights: Array, to: Array, matrix: Array, out: Array, pairs: Array) -> None:
    """Add the probabilities of the communities of an edge at node i, and of those at both of its ends."""
    total = dot(weights, i, to, j)
    for k in range(out.size):
        out[k] += sign * weights[i, k] * to[j, k] / total
    if pairs.size:  # the factor ρ_j is in `to` alone: divide by the sum of what is added
        total = 0.0
        for k in range(out.size):
            for n in range(out.size):
                total += weights[i, k] * matrix[k, n] * weights[j, n]
        for k in range(out.size):
            for n in range(out.size):
                pairs[k, n] += sign * weights[i, k] * matrix[k, n] * weights[j, n] / total


@kept
def expected(rows: Rows, weights: Array, to: Array, matrix: Array, out: Array, pairs: Array) -> None:
    """Add the expected units of edges by node and community (N, K), and by the communities of both ends."""
    pointers, ends, units = rows
    for i in range(out.shape[0]):
        for e in range(pointers[i], pointers[i + 1]):
            _expect(float(units[e]), i, ends[e], weights, to, matrix, out[i], pairs)


@called
def _moved(
    s0: uint64, s1: uint64, value: float, a: float, b: float, wanted: float, noise: float, step: float, method: int
) -> tuple[uint64, uint64, float]:
    """A step of dφ = (a - bφ) dt + sqrt(2φ) dW, see `moved`."""
    s0, s1, value = moved(s0, s1, value, a, a - b * value, wanted, noise, method, step, b, factors(step / b, b))
    return s0, s1, max(value, 1e-200)


@kept
def langevin(
    nodes: Array,
    rows: Rows,
    entering: Rows,
    unseen: Unseen,
    state: State,
    reference: State,
    totals: Array,
    pairs: Array,
    arrived: Array,
    shape: float,
    rate: float,
    spread: float,
    drawn: Array,
    noise: Array,
    most: int,
    step: float,
    method: int,
    seed: tuple[uint64, uint64],
) -> None:
    """Move the weights of some nodes, with counts that are estimated from at most `most` edges of a node.

    By a step of dφ = (a - bφ) dt + sqrt(2φ) dW over the time step / b, see `moved`. With `reference`, counts are
    `totals` at the reference plus an estimate of the difference. SCIR-CV has counts of communities that were `drawn`
    (N, K) for all edges, and the variance of an estimate is at most `noise` (N) times a count. The estimated units by
    the communities of both ends are added to `pairs`.
    """
    weights, to, fro, _, _, matrix, receive = state
    old_weights, old_to, old_fro, _, _, old_matrix, _ = reference
    num, controlled, directed = weights.shape[1], old_weights.shape[0] > 0, receive.size > 0
    count, less, into, out = np.empty(num), np.empty(num), np.empty(num), np.empty(num)
    nothing = np.empty((0, 0))
    s0, s1 = stream(seed[0], seed[1], uint64(0))
    for i in nodes:
        for k in range(num):
            count[k] = totals[i, k] if controlled else 0.0
        for side in range(2 if directed else 1):
            pointers, ends, units = rows if side == 0 else entering
            table, old_table, counted = (to, old_to, pairs) if side == 0 else (fro, old_fro, nothing)
            size = pointers[i + 1] - pointers[i]
            used = min(size, most)
            for n in range(used):
                s0, s1, e = some_edge(s0, s1, n, pointers[i], size, most)
                scale = units[e] * (size / used)
                _expect(scale, i, ends[e], weights, table, matrix, count, counted)
                if controlled:
                    _expect(-scale, i, ends[e], old_weights, old_table, old_matrix, count, counted)
        _expose(i, unseen, state, less, into, out)
        for k in range(num):
            a = max(shape + count[k], 1e-3 * shape)  # an estimate of a difference may be too small
            b, value, whole = rate + out[k], weights[i, k], drawn[i, k] if drawn.size else 0.0
            wanted, less[k] = shape + whole if whole > 0.0 else 0.0, value
            s0, s1, weights[i, k] = _moved(s0, s1, value, a, b, wanted, noise[i] * whole, step, method)
        s0, s1 = _renew(i, state, less, into, arrived[i], spread, s0, s1)


@kept
def move_matrix(
    matrix: Array,
    shapes: Array,
    rates: Array,
    drawn: Array,
    noise: float,
    step: float,
    method: int,
    symmetric: bool,
    seed: tuple[uint64, uint64],
) -> None:
    """Move the entries of a block matrix as `langevin` moves weights; `drawn` are shapes of the reference, or empty."""
    s0, s1 = stream(seed[0], seed[1], uint64(0))
    num = matrix.shape[0]
    for k in range(num):
        for n in range(k if symmetric else 0, matrix.shape[1]):
            a, b, value, wanted = shapes[k, n], rates[k, n], matrix[k, n], drawn[k, n] if drawn.size else 0.0
            s0, s1, matrix[k, n] = _moved(s0, s1, value, a, b, wanted, noise * wanted, step, method)
            if symmetric:
                matrix[n, k] = matrix[k, n]
