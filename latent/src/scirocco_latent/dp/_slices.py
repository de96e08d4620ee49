"""Compiled steps of the slice sampler of a Dirichlet-process mixture (Walker 2007, Papaspiliopoulos 2008).

Component j has the weight ω_j = v_j ∏_{l<j} (1 - v_l), and v_j = g_j0/(g_j0 + g_j1) of two gamma variables. A row can
be in the finitely many components j with u_i < ω_j. Components are numbered in the order of their sticks.
"""

from __future__ import annotations

import math

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import stream, uniform
from scirocco.diffusions.host._variates import factors, gamma
from scirocco.simplex._moves import GIBBS, moved
from scirocco_latent.dp._common import Arrays, How, Known, kept
from scirocco_latent.dp._families import advance, born, clear, move, rescale, settle

Array = np.ndarray

VECTOR = 8  # components that are tried together
BLOCK = 256  # rows with one stream of random numbers: changing it changes the draws
_FLOOR = 1e-300  # avoids log 0 and division by 0


@kept
def forget(data: Arrays, clusters: Arrays, first: int, last: int) -> None:
    """Set the sums of the components `first` to `last` to 0."""
    for k in range(first, last):
        clear(data, clusters, k)


@kept
def move_sticks(
    sticks: Array,
    sizes: Array,
    scale: float,
    reference: Array,
    num: int,
    alpha: float,
    method: int,
    step: float,
    fresh_sums: bool,
    seed: Array,
) -> float:
    """Move the two variables of each stick j < num, of shapes 1 + m_j and α + Σ_{l>j} m_l; return Σ log(1 - v_j).

    m_j are `scale` times the `sizes` of a batch; `reference` are the sizes in all rows, which are known. `fresh_sums`:
    redraw the sum of the two, which v does not depend on, before the step.
    """
    plain = factors(max(step, 1e-300), 1.0)
    after, whole_after, logs = 0.0, 0.0, 0.0
    for j in range(num - 1, -1, -1):
        here, whole = scale * sizes[j], float(reference[j])
        s0, s1 = stream(seed[0], seed[1], uint64(j))
        if fresh_sums:
            s0, s1, total = gamma(s0, s1, 1.0 + alpha + here + after)
            factor = total / max(sticks[j, 0] + sticks[j, 1], _FLOOR)
            sticks[j, 0] *= factor
            sticks[j, 1] *= factor
        one, two = sticks[j, 0], sticks[j, 1]
        pull = (here + after) / (one + two)
        drift = 1.0 + here - one - pull * one
        variance = scale * whole
        s0, s1, one = moved(s0, s1, one, 1.0 + here, drift, 1.0 + whole, variance, method, step, 1.0, plain)
        shape, wanted, drift = alpha + after, alpha + whole_after, alpha + after - two - pull * two
        variance = scale * whole_after
        s0, s1, two = moved(s0, s1, two, shape, drift, wanted, variance, method, step, 1.0, plain)
        log_two = math.log(max(two, _FLOOR))
        # may underflow, and α depends on its logarithm
        if method == GIBBS and alpha + after < 1.0:
            s0, s1, two = gamma(s0, s1, alpha + after + 1.0)
            s0, s1, u = uniform(s0, s1)
            log_two = math.log(two) + math.log(u) / (alpha + after)
            two = math.exp(log_two)
        sticks[j, 0], sticks[j, 1] = max(one, _FLOOR), max(two, _FLOOR)
        logs += log_two - math.log(sticks[j, 0] + sticks[j, 1])
        after += here
        whole_after += whole
    return logs


@kept
def weigh_sticks(sticks: Array, weights: Array, num: int) -> float:
    """Compute ω_j for j < num; return the remaining length of the stick."""
    rest = 1.0
    for j in range(num):
        total = sticks[j, 0] + sticks[j, 1]
        weights[j] = rest * (sticks[j, 0] / total)
        rest *= sticks[j, 1] / total
    return rest


@kept
def slice_rows(rows: Array, labels: Array, weights: Array, bounds: Array, seed: Array) -> float:
    """Draw u_i ~ U(0, ω_{z_i}) for a batch; return the lowest."""
    lowest = 1.0
    for block in range((rows.size + BLOCK - 1) // BLOCK):
        s0, s1 = stream(seed[0], seed[1], uint64(block))
        for place in range(block * BLOCK, min((block + 1) * BLOCK, rows.size)):
            s0, s1, u = uniform(s0, s1)
            bounds[place] = u * weights[labels[rows[place]]]
            lowest = min(lowest, bounds[place])
    return lowest


@kept
def given_labels(
    rows: Array,
    labels: Array,
    sticks: Array,
    weights: Array,
    bounds: Array,
    sizes: Array,
    scale: float,
    reference: Array,
    num: int,
    alpha: float,
    prior: Array,
    method: int,
    step: float,
    fresh_sums: bool,
    seeds: Array,
) -> tuple[float, float, float]:
    """Draw sticks, α, weights of components j < num and slices of a batch; return α, the rest and the lowest slice.

    α | v ~ Gamma(b₁ + num, b₂ - Σ log(1 - v_j)), if it has a prior (b₁ > 0).
    """
    logs = move_sticks(sticks, sizes, scale, reference, num, alpha, method, step, fresh_sums, seeds[0])
    if prior[0] > 0.0:
        s0, s1 = stream(seeds[1, 0], seeds[1, 1], uint64(0))
        s0, s1, alpha = gamma(s0, s1, prior[0] + num)
        alpha = max(alpha / (prior[1] - logs), 1e-10)
    rest = weigh_sticks(sticks, weights, num)
    return alpha, rest, slice_rows(rows, labels, weights, bounds, seeds[2])


@kept
def extend(
    data: Arrays,
    sticks: Array,
    weights: Array,
    parameters: Arrays,
    clusters: Arrays,
    first: int,
    rest: float,
    lowest: float,
    alpha: float,
    seed: Array,
    other: Array,
) -> tuple[int, float]:
    """Draw components from the prior, starting at `first`, until less than `lowest` is left (or it is full)."""
    j = first
    while rest >= lowest and j < weights.size:
        s0, s1 = stream(seed[0], seed[1], uint64(j))
        s0, s1, one = gamma(s0, s1, 1.0)
        s0, s1, two = gamma(s0, s1, alpha)
        sticks[j, 0], sticks[j, 1] = max(one, _FLOOR), max(two, _FLOOR)
        total = sticks[j, 0] + sticks[j, 1]
        weights[j] = rest * (sticks[j, 0] / total)
        rest *= sticks[j, 1] / total
        born(data, parameters, clusters, j, other)
        j += 1
    settle(data, parameters, first, j)
    for beyond in range(j, min(j + VECTOR, weights.size)):
        weights[beyond] = 0.0
    return j, rest


@kept
def move_components(data: Arrays, parameters: Arrays, known: Known, how: How, first: int, last: int) -> None:
    """Move the parameters of components j < num by one step, in some of their coordinates."""
    advance(data, parameters, known, how, first, last)


@kept
def move_all_components(data: Arrays, parameters: Arrays, known: Known, how: How, coordinates: int) -> None:
    """Move the parameters of components j < num by one step, in all coordinates."""
    advance(data, parameters, known, how, 0, coordinates)
    settle(data, parameters, 0, how[0])


@kept
def rescale_components(data: Arrays, parameters: Arrays, clusters: Arrays, num: int, seed: Array) -> None:
    """Redraw the auxiliary variables that the parameters do not depend on."""
    rescale(data, parameters, clusters, num, seed)


@kept
def settle_components(data: Arrays, parameters: Arrays, first: int, last: int) -> None:
    """Update the quantities derived from the parameters."""
    settle(data, parameters, first, last)


@kept
def relabel(rows: Array, data: Arrays, labels: Array, chosen: Array, clusters: Arrays, keeps: bool) -> int:
    """Write new labels; update cluster sums (`keeps`) or only sizes. Return the number of components up to the last."""
    sizes = clusters[0]
    for place in range(rows.size):
        row, label = rows[place], chosen[place]
        if labels[row] != label:
            if keeps:
                move(row, data, clusters, labels[row], -1)
                move(row, data, clusters, label, 1)
            else:
                sizes[labels[row]] -= 1
                sizes[label] += 1
            labels[row] = label
    num = sizes.size
    while num > 1 and sizes[num - 1] == 0:
        num -= 1
    return num
