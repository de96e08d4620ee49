"""Compiled loops over whole arrays, and passes over some columns of a matrix of CIR processes.

Arrays are cut into blocks of a fixed number of entries with a stream of random numbers each. A kernel fills the entries
of the blocks `first` to `last` and releases the interpreter's lock, so that threads can share the blocks; which thread
takes which changes nothing. An operand that is one number comes as a double and costs nothing; its array then has one
unused entry. Not `parallel=True`: numba's own threads must not be called from several threads at once, and chains are
threads.

Columns of a matrix (see `simplex.lazy`) are processes of rate 1 that are advanced when they are needed. They are rows
of the arrays: `theta[w]` holds the K processes of column w, each as it was when it was last drawn: at the time
`when[w]`, or, for those that `ahead[w]` marks, at `when[w] + span[w]`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._arguments import Array, Words
from scirocco.diffusions.host._random import cached, called, stream
from scirocco.diffusions.host._variates import factors, gamma, poisson, transition

BLOCK = 1024  # a part of the definition of the numbers: another length, other draws


@cached
def cir_blocks(
    theta: Array,
    shape: Array,
    time: Array,
    rate: Array,
    varies: tuple[bool, ...],
    values: tuple[float, ...],
    out: Array,
    seed: Words,
    first: int,
    last: int,
) -> None:
    """Transitions of one process per entry; `varies` says which of (theta, shape, time, rate) are arrays."""
    theta_varies, shape_varies, time_varies, rate_varies = varies
    start, a, t, b = values
    ratio, scale = factors(t, b)
    starts, shapes = np.empty(BLOCK), np.empty(BLOCK)
    ratios, scales = np.empty(BLOCK), np.empty(BLOCK)
    for block in range(first, last):
        begin, length = block * BLOCK, min(BLOCK, out.size - block * BLOCK)
        # Operands are prepared before the draws, whose unpredictable branches would each wait for them.
        for i in range(length):
            starts[i] = float(theta[begin + i]) if theta_varies else start
            shapes[i] = float(shape[begin + i]) if shape_varies else a
            if time_varies or rate_varies:
                t = float(time[begin + i]) if time_varies else t
                b = float(rate[begin + i]) if rate_varies else b
                ratio, scale = factors(t, b)
            ratios[i], scales[i] = ratio, scale
        s0, s1 = stream(seed[0], seed[1], uint64(block))
        for i in range(length):
            s0, s1, out[begin + i] = transition(s0, s1, starts[i], shapes[i], ratios[i], scales[i])


@cached
def gamma_blocks(shape: Array, varies: bool, value: float, out: Array, seed: Words, first: int, last: int) -> None:
    """Gamma numbers of scale 1."""
    for block in range(first, last):
        s0, s1 = stream(seed[0], seed[1], uint64(block))
        for i in range(block * BLOCK, min((block + 1) * BLOCK, out.size)):
            s0, s1, x = gamma(s0, s1, float(shape[i]) if varies else value)
            out[i] = x


@cached
def poisson_blocks(mean: Array, varies: bool, value: float, out: Array, seed: Words, first: int, last: int) -> None:
    """Poisson numbers, as 64-bit integers."""
    for block in range(first, last):
        s0, s1 = stream(seed[0], seed[1], uint64(block))
        for i in range(block * BLOCK, min((block + 1) * BLOCK, out.size)):
            s0, s1, count = poisson(s0, s1, float(mean[i]) if varies else value)
            out[i] = int(count)


@cached
def first_bad(columns: Array, marks: Array, call: int) -> tuple[int, bool]:
    """Position of the first column that is out of range or repeated, and whether it is repeated; (-1, False) if none.

    `marks` has an entry for every column of the matrix and `call` has not been used before, so nothing is cleared.
    """
    for i in range(columns.size):
        column = columns[i]
        if column < 0 or column >= marks.size:
            return i, False
        if marks[column] == call:
            return i, True
        marks[column] = call
    return -1, False


@cached
def move_columns(
    theta: Array,
    ahead: Array,
    when: Array,
    span: Array,
    base: Array,
    columns: Array,
    shapes: Array,
    clock: tuple[int, float, float],
    out: Array,
    gone: Array,
    came: Array,
    seed: Words,
    width: int,
    first: int,
    last: int,
) -> None:
    """Advance columns to the present with the shapes `base`; then, if a time is given, by that time with `shapes`.

    Entries whose shape is the base evolve as if they were not in the batch, so they stay overdue, and the others are
    ahead of them. `clock` is (number of the step, present time, time of the step or 0). A column has one
    stream for either move, which follows from the seed, the step and the column. Blocks of `width` columns add to their
    rows of `gone` and `came` the expectation of θ - base now given earlier draws, and after the step given the new
    draws.
    """
    step, now, time = clock
    size = theta.shape[1]
    values, marks = np.empty((width, size), theta.dtype), np.empty((width, size), ahead.dtype)
    late, lead = np.empty(width), np.empty(width)
    for block in range(first, last):
        begin = block * width
        chosen = columns[begin : min(begin + width, columns.size)]
        # Columns are anywhere in memory: fetched in a loop without branches, they do not wait for each other.
        for j in range(chosen.size):
            w = uint64(chosen[j])  # unsigned: no test for a negative index
            late[j], lead[j] = now - when[w], span[w]
            for k in range(size):
                values[j, k] = theta[w, k]
                marks[j, k] = ahead[w, k]
        _add_excess(gone[block], values, marks, base, late, lead, chosen.size)
        _catch_up(values, marks, late, lead, base, chosen, stream(seed[0], seed[1], uint64(2 * step)))
        if time > 0.0:
            own = shapes[begin : begin + chosen.size]
            _advance(values, marks, own, base, time, chosen, stream(seed[0], seed[1], uint64(2 * step + 1)))
        for j in range(chosen.size):
            w = uint64(chosen[j])
            when[w], span[w] = now, time
            late[j], lead[j] = time, time
            for k in range(size):
                theta[w, k] = values[j, k]
                ahead[w, k] = marks[j, k]
            if out.shape[0] > 0:
                for k in range(size):
                    out[begin + j, k] = values[j, k]
        _add_excess(came[block], values, marks, base, late, lead, chosen.size)


@called
def _add_excess(total: Array, values: Array, marks: Array, base: Array, late: Array, lead: Array, count: int) -> None:
    """Add the sum over columns of the expectation of values - base after their overdue time."""
    for j in range(count):
        behind, before = math.exp(-late[j]), math.exp(lead[j] - late[j])
        for k in range(base.size):
            weight = before if marks[j, k] else behind
            total[k] += (float(values[j, k]) - base[k]) * weight


@called
def _catch_up(values: Array, marks: Array, late: Array, lead: Array, base: Array, chosen: Array, seed: Words) -> None:
    for j in range(chosen.size):
        if late[j] <= 0.0:
            continue
        ratio, scale = factors(late[j], 1.0)
        rest = late[j] - lead[j]
        short_ratio, short_scale = factors(rest, 1.0) if rest > 0.0 else (ratio, scale)
        s0, s1 = stream(seed[0], seed[1], uint64(chosen[j]))
        for k in range(base.size):
            if not marks[j, k]:
                s0, s1, values[j, k] = transition(s0, s1, float(values[j, k]), base[k], ratio, scale)
                continue
            marks[j, k] = 0
            if rest > 0.0:
                x = float(values[j, k])
                s0, s1, values[j, k] = transition(s0, s1, x, base[k], short_ratio, short_scale)


@called
def _advance(values: Array, marks: Array, shapes: Array, base: Array, time: float, chosen: Array, seed: Words) -> None:
    ratio, scale = factors(time, 1.0)
    for j in range(chosen.size):
        s0, s1 = stream(seed[0], seed[1], uint64(chosen[j]))
        for k in range(shapes.shape[1]):
            shape = float(shapes[j, k])
            if shape != base[k]:
                s0, s1, values[j, k] = transition(s0, s1, float(values[j, k]), shape, ratio, scale)
                marks[j, k] = 1
