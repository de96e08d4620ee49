"""Compiled recursions of hidden Markov models: states of pieces of series, expected counts, log likelihoods.

Observations enter as `Data`: `codes` (categories, or small counts; -1: missing) with `table`, the density of each code
in each state; or `rows` (NaN: missing) with one row of numbers per state in `values`; or, of the kind `DENSE`, `rows`
with the log densities of an observation in all states. Densities are divided by their largest over the states, so that
the recursions neither overflow nor underflow.

All kernels release the GIL and work on a range of pieces, so that threads can share them. A group of pieces has its own
stream of random numbers and its own sums: results do not depend on which thread takes which group.
"""

from __future__ import annotations

import math

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import cached_for, called, inlined, stream, uniform

Array = np.ndarray

TABLE, NORMAL, POISSON, DENSE = 0, 1, 2, 3  # kinds of emissions
UNSET = -1  # a state that has not been drawn yet
_SMALL, _BLOCK = 1e-150, 1024  # weights below are scaled up; observations of which filters are kept

kept = cached_for(__file__)
Data = tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Kind, codes (N,), rows (N, d), table (V, K), log of the scale of each row of the table (V,), values (K, p)."""
Chain = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Initial distribution, transitions, their transpose, the distribution of a state of which nothing is known."""


@called
def _log_density(kind: int, x: Array, v: Array) -> float:
    """Of one row: normal with [constant, mean, root of the precision], or Poisson with [log rates, minus rates]."""
    d = x.size
    if kind == POISSON:
        out = 0.0
        for i in range(d):
            out += x[i] * v[i] + v[d + i]
        return out
    square = 0.0
    for i in range(d):
        part = 0.0
        for j in range(i, d):
            part += v[1 + d + j * d + i] * (x[j] - v[1 + j])
        square += part * part
    return v[0] - 0.5 * square


@called
def _fill(data: Data, begin: int, end: int, out: Array) -> float:
    """Densities of some observations in all states, each divided by its largest; returns the sum of their logs."""
    kind, codes, rows, table, scales, values = data
    num, logs = out.shape[1], 0.0
    for t in range(begin, end):
        w = out[t - begin]
        if kind == TABLE:
            code = codes[t]
            for k in range(num):
                w[k] = 1.0 if code < 0 else table[code, k]
            logs += 0.0 if code < 0 else scales[code]
        elif math.isnan(rows[t, 0]):
            for k in range(num):
                w[k] = 1.0
        else:
            high = -math.inf
            if kind == NORMAL and rows.shape[1] == 1:
                x = rows[t, 0]
                for k in range(num):
                    side = values[k, 2] * (x - values[k, 1])
                    w[k] = values[k, 0] - 0.5 * side * side
                    high = max(high, w[k])
            elif kind == DENSE:
                for k in range(num):
                    w[k] = rows[t, k]
                    high = max(high, w[k])
            else:
                for k in range(num):
                    w[k] = _log_density(kind, rows[t], values[k])
                    high = max(high, w[k])
            for k in range(num):
                w[k] = math.exp(w[k] - high)
            logs += high
    return logs


@inlined
def _forward(before: Array, moves: Array, w: Array, out: Array) -> float:
    """One step of the filter; returns the predictive density of the observation."""
    num, total = out.size, 0.0
    for k in range(num):
        out[k] = 0.0
    for j in range(num):
        for k in range(num):
            out[k] += before[j] * moves[j, k]
    for k in range(num):
        out[k] *= w[k]
        total += out[k]
    scale = 1.0 / total
    for k in range(num):
        out[k] *= scale
    return total


@called
def _begin(start: Array, w: Array, out: Array) -> float:
    """The filter at the first observation."""
    total = 0.0
    for k in range(out.size):
        out[k] = start[k] * w[k]
        total += out[k]
    for k in range(out.size):
        out[k] /= total
    return total


@called
def tally(sign: float, data: Data, z: Array, piece: Array, firsts: Array, moves: Array, stats: Array) -> None:
    """Add the initial state, the transitions and the observations of a piece to sums, or subtract them."""
    kind, codes, rows = data[0], data[1], data[2]
    begin, end = piece[0], piece[1]
    d = rows.shape[1]
    if not piece[2] and z[begin] >= 0:
        firsts[z[begin]] += sign
    for t in range(begin if piece[2] else begin + 1, end + piece[3]):
        if z[t - 1] >= 0 and z[t] >= 0:
            moves[z[t - 1], z[t]] += sign
    for t in range(begin, end):
        k = z[t]
        if k < 0:
            continue
        if kind == TABLE:
            if codes[t] >= 0:
                stats[k, codes[t]] += sign
        elif kind != DENSE and not math.isnan(rows[t, 0]):
            stats[k, 0] += sign
            for i in range(d):
                stats[k, 1 + i] += sign * rows[t, i]
                if kind == NORMAL:
                    for j in range(i + 1):
                        stats[k, 1 + d + i * d + j] += sign * rows[t, i] * rows[t, j]


@kept
def sample_groups(
    data: Data,
    chain: Chain,
    z: Array,
    pieces: Array,
    groups: Array,
    chosen: Array,
    firsts: Array,
    moves: Array,
    stats: Array,
    seed: tuple[uint64, uint64],
    first: int,
    last: int,
) -> None:
    """Draw the states of the chosen groups of pieces, each piece jointly: forward filtering, backward sampling.

    A piece is (begin, end, left, right): left and right say whether the series goes on beyond it. The neighbouring
    states are not in any piece, and are conditioned on; where they are not set, they are integrated out. The changes of
    the sums are added to `firsts`, `moves` and `stats` of the slot of each group.
    """
    initial, transitions, columns, free = chain
    num, longest = transitions.shape[0], 0
    for slot in range(first, last):
        for p in range(groups[chosen[slot]], groups[chosen[slot] + 1]):
            longest = max(longest, pieces[p, 1] - pieces[p, 0])
    w, f = np.empty((longest, num)), np.empty((longest, num))
    partial = np.empty(num)
    for slot in range(first, last):
        g = chosen[slot]
        s0, s1 = stream(seed[0], seed[1], uint64(pieces[groups[g], 0]))
        for p in range(groups[g], groups[g + 1]):
            piece = pieces[p]
            begin, end = piece[0], piece[1]
            tally(-1.0, data, z, piece, firsts[slot], moves[slot], stats[slot])
            _fill(data, begin, end, w)
            if not piece[2]:
                _begin(initial, w[0], f[0])
            elif z[begin - 1] >= 0:
                _begin(transitions[z[begin - 1]], w[0], f[0])
            else:
                _begin(free, w[0], f[0])
            for t in range(1, end - begin):
                _forward(f[t - 1], transitions, w[t], f[t])
            after = np.int64(z[end]) if piece[3] else np.int64(UNSET)
            for t in range(end - begin - 1, -1, -1):
                total = 0.0
                for k in range(num):
                    total += f[t, k] * columns[after, k] if after >= 0 else f[t, k]
                    partial[k] = total
                s0, s1, u = uniform(s0, s1)
                u *= total
                drawn = 0
                for k in range(num - 1):
                    drawn += partial[k] <= u
                z[begin + t] = drawn
                after = np.int64(drawn)
            tally(1.0, data, z, piece, firsts[slot], moves[slot], stats[slot])


@kept
def smooth(
    data: Data,
    chain: Chain,
    windows: Array,
    firsts: Array,
    moves: Array,
    stats: Array,
    out: Array,
    first: int,
    last: int,
) -> None:
    """Add expected counts of windows given the observations in and around them, and the probabilities of states.

    A window is (begin, end, low, high, left): sums are over [begin, end), observations of [low, high) are used, and
    `left` says whether the series begins before `low`. `out` (N, K) gets the probabilities unless it is empty;
    `moves` is empty if no counts are wanted.
    """
    initial, transitions, _, free = chain
    num = transitions.shape[0]
    kind, codes, rows = data[0], data[1], data[2]
    d, longest = rows.shape[1], 0
    for place in range(first, last):
        longest = max(longest, windows[place, 3] - windows[place, 2])
    w, f = np.empty((longest, num)), np.empty((longest, num))
    back, after, gamma = np.empty(num), np.empty(num), np.empty(num)
    for place in range(first, last):
        begin, end, low, high, left = windows[place]
        _fill(data, low, high, w)
        _begin(free if left else initial, w[0], f[0])
        for t in range(1, high - low):
            _forward(f[t - 1], transitions, w[t], f[t])
        for k in range(num):
            back[k] = 1.0
        for t in range(high - 1, begin - 1, -1):
            at = t - low
            total = 0.0
            for k in range(num):
                gamma[k] = f[at, k] * back[k]
                total += gamma[k]
            for k in range(num):
                gamma[k] /= total
            if t < end:
                if out.size:
                    for k in range(num):
                        out[t, k] += gamma[k]
                if moves.size:
                    if t == low and not left:
                        for k in range(num):
                            firsts[place, k] += gamma[k]
                    for k in range(num):
                        if kind == TABLE:
                            if codes[t] >= 0:
                                stats[place, k, codes[t]] += gamma[k]
                        elif kind != DENSE and not math.isnan(rows[t, 0]):
                            stats[place, k, 0] += gamma[k]
                            for i in range(d):
                                stats[place, k, 1 + i] += gamma[k] * rows[t, i]
                                if kind == NORMAL:
                                    for j in range(i + 1):
                                        product = rows[t, i] * rows[t, j]
                                        stats[place, k, 1 + d + i * d + j] += gamma[k] * product
            largest = 0.0
            for k in range(num):
                after[k] = w[at, k] * back[k]
            for j in range(num):
                back[j] = 0.0
                for k in range(num):
                    back[j] += transitions[j, k] * after[k]
                largest = max(largest, back[j])
            if moves.size and begin <= t < end and t > low:
                total = 0.0
                for j in range(num):
                    total += f[at - 1, j] * back[j]
                for j in range(num):
                    for k in range(num):
                        moves[place, j, k] += f[at - 1, j] * transitions[j, k] * after[k] / total
            for j in range(num):
                back[j] /= largest


@kept
def filter_series(data: Data, chain: Chain, bounds: Array, logs: Array, ends: Array, first: int, last: int) -> None:
    """Log likelihood of each series, and the distribution of its last state given all its observations."""
    initial, transitions = chain[0], chain[1]
    num = transitions.shape[0]
    w, f, g = np.empty((_BLOCK, num)), np.empty(num), np.empty(num)
    for place in range(first, last):
        begin, end = bounds[place], bounds[place + 1]
        total, scale = 0.0, 1.0
        for low in range(begin, end, _BLOCK):
            high = min(low + _BLOCK, end)
            total += _fill(data, low, high, w)
            for t in range(low, high):
                if t == begin:
                    scale *= _begin(initial, w[0], f)
                else:
                    scale *= _forward(f, transitions, w[t - low], g)
                    f, g = g, f
                if scale < _SMALL:
                    total += math.log(scale)
                    scale = 1.0
        logs[place] = total + math.log(scale)
        ends[place] = f


@kept
def forget(data: Data, chain: Chain, windows: Array, out: Array) -> None:
    """How fast filters forget: for windows (low, high), the largest distance in total variation between filters.

    The filters start at `low` in each of the states. `out` (windows, steps) gets the distances after each step.
    """
    transitions = chain[1]
    num = transitions.shape[0]
    w = np.empty((1, num))
    f, g = np.empty((num, num)), np.empty(num)
    for place in range(windows.shape[0]):
        for j in range(num):
            for k in range(num):
                f[j, k] = transitions[j, k]
        for t in range(windows[place, 0], windows[place, 1]):
            _fill(data, t, t + 1, w)
            for j in range(num):
                if t == windows[place, 0]:
                    _begin(transitions[j], w[0], g)
                else:
                    _forward(f[j], transitions, w[0], g)
                for k in range(num):
                    f[j, k] = g[k]
            far = 0.0
            for i in range(num):
                for j in range(i):
                    apart = 0.0
                    for k in range(num):
                        apart += abs(f[i, k] - f[j, k])
                    far = max(far, 0.5 * apart)
            out[place, t - windows[place, 0]] = far
