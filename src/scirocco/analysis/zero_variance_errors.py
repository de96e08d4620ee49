"""Means along chains and their Monte Carlo errors, for many outputs at once and without keeping the chains."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_STRETCHES = 1_000


class Average:
    """The mean of a chain's values, and those of at most 1,000 stretches of it, from which its error follows."""

    def __init__(self, num_chains: int, num_draws: int, size: int):
        self._length = -(-num_draws // _STRETCHES)
        self._count = num_draws
        self._sums = np.zeros((num_chains, -(-num_draws // self._length), size))

    def add(self, part: slice, values: Array) -> None:
        """Rows (chain·draw, output) of these draws."""
        values = values.reshape(len(self._sums), -1, values.shape[1])
        stretch = np.arange(part.start, part.stop) // self._length
        starts = np.flatnonzero(np.diff(stretch, prepend=-1))
        self._sums[:, stretch[starts]] += np.add.reduceat(values, starts, axis=1)

    @property
    def mean(self) -> Array:
        """Over all draws of all chains."""
        return np.asarray(self._sums.sum(axis=(0, 1)) / (len(self._sums) * self._count))

    @property
    def error(self) -> Array:
        """Of the mean; a last stretch that is shorter is left out."""
        return mcse(self._sums[:, : self._count // self._length] / self._length)


def mcse(values: Array) -> Array:
    """Monte Carlo standard errors of the means of (chain, draw, output): ArviZ's `mcse`, for all outputs at once.

    Chains are cut in half, autocorrelations of all halves averaged, summed in pairs as long as these are positive, and
    kept from rising (Geyer 1992; Vehtari et al. 2021).
    """
    half = values.shape[1] // 2
    halves = np.concatenate([values[:, :half], values[:, -half:]])
    means = halves.mean(axis=1)
    covariance = _autocovariance(halves - means[:, None]).mean(axis=0)
    total = covariance[0] + means.var(axis=0, ddof=1)
    within = covariance[0] * half / (half - 1.0)
    moving = total > 0
    rho = 1.0 - (within - covariance) / np.where(moving, total, 1.0)
    rho[0] = 1.0
    num_pairs = max(1, (half - 1) // 2)
    even = rho[: 2 * num_pairs : 2]
    pairs = even + rho[1 : 2 * num_pairs : 2]
    end = np.where((pairs <= 0).any(axis=0), np.argmax(pairs <= 0, axis=0), num_pairs - 1)
    before = np.arange(num_pairs)[:, None] < end
    falling = np.minimum.accumulate(pairs, axis=0)
    last = np.maximum(np.take_along_axis(even, end[None], axis=0)[0], 0.0)
    times = -1.0 + 2.0 * np.where(before, falling, 0.0).sum(axis=0) + last
    count = halves.shape[0] * half
    times = np.maximum(times, 1.0 / np.log10(count))
    spread = values.reshape(-1, values.shape[2]).std(axis=0, ddof=1)
    return np.asarray(np.where(moving, spread * np.sqrt(times / count), 0.0))


def _autocovariance(centred: Array) -> Array:
    """At every lag along axis 1, over the number of draws."""
    num = centred.shape[1]
    length = 1 << (2 * num - 1).bit_length()
    spectrum = np.fft.rfft(centred, n=length, axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    return np.asarray(np.fft.irfft(power, n=length, axis=1)[:, :num] / num)
