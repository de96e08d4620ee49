r"""Compiled draws of Gaussian vectors given Poisson counts, which softmax models become with one more variable.

Counts n of a softmax of x have the log likelihood Σ n_t x_t - N log Σ e^{x_t}. With u ~ Gamma(N, rate Σ e^x) it becomes
Σ n_t x_t - u e^{x_t}: given u, entries are independent Poisson counts with exposure u. A row x ~ N(μ, P⁻¹) is then
drawn by elliptical slice sampling (Nishihara, Murray & Adams 2014) around a t distribution with the location m and the
precision A, which are functions of n and u alone: m is the mode after a few Newton steps, A = P + D. It is exact for
any m and A, and has no step size. The tails of a t distribution are heavier than those of x, so that a row that is far
from m after a change of its counts comes back at once; around a Gaussian it would not.
"""

from __future__ import annotations

import math

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import cached_for, called, normal, stream, uniform
from scirocco.diffusions.host._variates import gamma

Array = np.ndarray

kept = cached_for(__file__)
# Newton steps to a mode, the longest, and the change that ends them
_NEWTON, _LARGEST_STEP, _CLOSE = 12, 2.0, 1e-3
_MOST_TURNS = 200  # of a slice sampler
_FREEDOM = 6.0  # of the t distribution


@called
def _factorise(precision: Array, diagonal: Array, band: int, out: Array) -> None:
    """The lower Cholesky factor of P + diag, which has `band` entries below the diagonal."""
    n = diagonal.size
    for i in range(n):
        first = max(0, i - band)
        for j in range(first, i + 1):
            total = precision[i, j] + (diagonal[i] if i == j else 0.0)
            for k in range(max(first, j - band), j):
                total -= out[i, k] * out[j, k]
            out[i, j] = math.sqrt(total) if i == j else total / out[j, j]


@called
def _solve_upper(factor: Array, band: int, x: Array) -> None:
    """x becomes L⁻ᵀ x."""
    n = x.size
    for i in range(n - 1, -1, -1):
        total = x[i]
        for k in range(i + 1, min(n, i + band + 1)):
            total -= factor[k, i] * x[k]
        x[i] = total / factor[i, i]


@called
def _solve(factor: Array, band: int, x: Array) -> None:
    """x becomes (L Lᵀ)⁻¹ x."""
    for i in range(x.size):
        total = x[i]
        for k in range(max(0, i - band), i):
            total -= factor[i, k] * x[k]
        x[i] = total / factor[i, i]
    _solve_upper(factor, band, x)


@called
def _times(precision: Array, band: int, x: Array, out: Array) -> None:
    n = x.size
    for i in range(n):
        total = 0.0
        for k in range(max(0, i - band), min(n, i + band + 1)):
            total += precision[i, k] * x[k]
        out[i] = total


@called
def _mode(
    counts: Array,
    exposure: Array,
    mean: Array,
    precision: Array,
    band: int,
    m: Array,
    rates: Array,
    slope: Array,
    factor: Array,
) -> None:
    """m near the mode; `rates` = u e^m there, and the factor of P + diag(rates)."""
    n = m.size
    for t in range(n):
        m[t] = math.log((counts[t] + 0.5) / exposure[t]) if exposure[t] > 0.0 else mean[t]
    for _ in range(_NEWTON):
        for t in range(n):
            rates[t] = exposure[t] * math.exp(m[t])
            slope[t] = m[t] - mean[t]
        _times(precision, band, slope, factor[:, n])
        for t in range(n):
            slope[t] = counts[t] - rates[t] - factor[t, n]
        _factorise(precision, rates, band, factor)
        _solve(factor, band, slope)
        largest = 0.0
        for t in range(n):
            step = min(max(slope[t], -_LARGEST_STEP), _LARGEST_STEP)
            m[t] += step
            largest = max(largest, abs(step))
        if largest < _CLOSE:
            break


@called
def _rest(x: Array, tilt: Array, exposure: Array, m: Array, added: Array, square: float) -> float:
    """Log of the target over the t distribution, up to a constant; `square` is (x - m)ᵀ (P + diag(added)) (x - m)."""
    total = 0.5 * (_FREEDOM + x.size) * math.log1p(square / _FREEDOM) - 0.5 * square
    for t in range(x.size):
        away = x[t] - m[t]
        total += tilt[t] * x[t] - exposure[t] * math.exp(x[t]) + 0.5 * added[t] * away * away
    return total


@kept
def draw_rows(
    x: Array,
    counts: Array,
    exposure: Array,
    mean: Array,
    precision: Array,
    band: int,
    seed: tuple[uint64, uint64],
    first: int,
    last: int,
) -> None:
    """Move the rows `first` to `last` of x, in place; `exposure` has a row for each of them, or one for all."""
    n = x.shape[1]
    factor = np.zeros((n, n + 1))
    m, rates, slope, tilt, other, trial = (np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n))
    for row in range(first, last):
        u, held, now = exposure[row if exposure.shape[0] > 1 else 0], counts[row], x[row]
        s0, s1 = stream(seed[0], seed[1], uint64(row))
        _mode(held, u, mean, precision, band, m, rates, slope, factor)
        for t in range(n):
            rates[t] = u[t] * math.exp(m[t])
            slope[t] = mean[t] - m[t]
        _factorise(precision, rates, band, factor)
        _times(precision, band, slope, tilt)
        for t in range(n):
            tilt[t] += held[t]
            s0, s1, other[t] = normal(s0, s1)
        _solve_upper(factor, band, other)
        here, cross, there = 0.0, 0.0, 0.0  # squares of x - m and of the other point, and their product
        for t in range(n):
            near, far = 0.0, 0.0
            for k in range(t, min(n, t + band + 1)):  # row t of Lᵀ
                near += factor[k, t] * (now[k] - m[k])
                far += factor[k, t] * other[k]
            here += near * near
            cross += near * far
            there += far * far
        s0, s1, scale = gamma(s0, s1, 0.5 * (_FREEDOM + n))
        scale = math.sqrt(0.5 * (_FREEDOM + here) / scale)
        cross *= scale
        there *= scale * scale
        for t in range(n):
            other[t] *= scale
        s0, s1, level = uniform(s0, s1)
        level = math.log(level) + _rest(now, tilt, u, m, rates, here)
        s0, s1, angle = uniform(s0, s1)
        angle *= 2.0 * math.pi
        low, high = angle - 2.0 * math.pi, angle
        for _ in range(_MOST_TURNS):
            cosine, sine = math.cos(angle), math.sin(angle)
            for t in range(n):
                trial[t] = m[t] + cosine * (now[t] - m[t]) + sine * other[t]
            square = cosine * cosine * here + 2.0 * cosine * sine * cross + sine * sine * there
            if _rest(trial, tilt, u, m, rates, max(square, 0.0)) > level:
                for t in range(n):
                    now[t] = trial[t]
                break
            if angle < 0.0:
                low = angle
            else:
                high = angle
            s0, s1, angle = uniform(s0, s1)
            angle = low + (high - low) * angle


@kept
def draw_topics(
    begins: Array,
    tokens: Array,
    shares: Array,
    weights: Array,
    z: Array,
    inside: Array,
    seed: tuple[uint64, uint64],
    first: int,
    last: int,
) -> None:
    """Topics z of the tokens of some documents, P(z = k) ∝ shares_dk weights_wk, and their counts `inside`."""
    num_topics = shares.shape[1]
    sums = np.empty(num_topics)
    for d in range(first, last):
        s0, s1 = stream(seed[0], seed[1], uint64(d))
        inside[d] = 0.0
        for i in range(begins[d], begins[d + 1]):
            total = 0.0
            for k in range(num_topics):
                total += shares[d, k] * weights[tokens[i], k]
                sums[k] = total
            s0, s1, point = uniform(s0, s1)
            point *= total
            topic = 0
            while topic < num_topics - 1 and sums[topic] <= point:
                topic += 1
            z[i] = topic
            inside[d, topic] += 1.0
