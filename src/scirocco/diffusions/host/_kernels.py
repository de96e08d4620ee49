"""Compiled loops over whole arrays, cut into blocks of a fixed number of entries with a stream of random numbers each.

A kernel fills the entries of the blocks `first` to `last` and releases the interpreter's lock, so that threads can
share the blocks; which thread takes which changes nothing. An operand that is one number comes as a double and costs
nothing; its array then has one unused entry. Not `parallel=True`: numba's own threads must not be called from several
threads at once, and chains are threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._cir import factors, transition
from scirocco.diffusions.host._gamma import gamma
from scirocco.diffusions.host._poisson import poisson
from scirocco.diffusions.host._random import cached, stream

BLOCK = 1024  # a part of the definition of the numbers: another length, other draws


@cached
def cir_blocks(
    theta: Any,
    shape: Any,
    time: Any,
    rate: Any,
    varies: Any,
    values: Any,
    out: Any,
    seed: Any,
    first: int,
    last: int,
) -> None:
    """Transitions of one process an entry; `varies` says of (theta, shape, time, rate) which are arrays."""
    theta_varies, shape_varies, time_varies, rate_varies = varies
    start, a, t, b = values
    ratio, scale = factors(t, b)
    starts, shapes = np.empty(BLOCK), np.empty(BLOCK)
    ratios, scales = np.empty(BLOCK), np.empty(BLOCK)
    for block in range(first, last):
        begin, length = block * BLOCK, min(BLOCK, out.size - block * BLOCK)
        # Operands are made ready ahead of the draws, whose unpredictable branches would each wait for them.
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
def gamma_blocks(shape: Any, varies: bool, value: float, out: Any, seed: Any, first: int, last: int) -> None:
    """Gamma numbers of scale 1."""
    for block in range(first, last):
        s0, s1 = stream(seed[0], seed[1], uint64(block))
        for i in range(block * BLOCK, min((block + 1) * BLOCK, out.size)):
            s0, s1, x = gamma(s0, s1, float(shape[i]) if varies else value)
            out[i] = x


@cached
def poisson_blocks(mean: Any, varies: bool, value: float, out: Any, seed: Any, first: int, last: int) -> None:
    """Poisson numbers, as 64-bit integers."""
    for block in range(first, last):
        s0, s1 = stream(seed[0], seed[1], uint64(block))
        for i in range(block * BLOCK, min((block + 1) * BLOCK, out.size)):
            s0, s1, count = poisson(s0, s1, float(mean[i]) if varies else value)
            out[i] = int(count)
