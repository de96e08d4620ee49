"""A walk over the components of a product of mixtures: one draw of every subposterior at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_SINGLE = 1e4
"""|x|²/h² below which single precision gives log weights to 10⁻³."""
_BLOCK = 1 << 22
"""Weights computed at a time."""
_STRETCH = 128
"""Draws whose weights are summed before one of them is looked for."""
_FAR = -50.0
"""Largest log weight below which they are shifted, lest all vanish."""


class Walk(NamedTuple):
    """Which components were visited."""

    indices: Array
    """(draw, subposterior)."""
    moved: float
    """Share of the moves after the burn-in that changed an index."""
    distinct: int


def sample_components(
    points: list[Array], burnin: Array, h: float, num_draws: int, *, num_chains: int, moves: str, rng: Any
) -> Walk:
    """Indices t with probabilities ∝ w_t: a sweep at each bandwidth in `burnin`, then sweeps at h, which are kept."""
    num_chains = min(num_chains, num_draws)
    num_sweeps = -(-num_draws // num_chains)
    indices = np.stack([rng.integers(len(part), size=num_chains) for part in points], axis=1)
    share = 1.0 - 1.0 / len(points)
    movers: list[_Gibbs] | list[_Independent]
    if moves == "gibbs":
        single = max(_squares(part).max() for part in points) < _SINGLE * h**2
        movers = [_Gibbs(part, share, np.float32 if single else np.float64) for part in points]
    else:
        movers = [_Independent(part, share) for part in points]
    kept, changed = [], 0
    for sweep, width in enumerate([*burnin, *[h] * num_sweeps]):
        total = np.sum([part[indices[:, s]] for s, part in enumerate(points)], axis=0)
        keep = sweep >= len(burnin)
        for s, part in enumerate(points):
            now = indices[:, s]
            others = (total - part[now]) / max(len(points) - 1, 1)
            new = movers[s](now, others, width, rng)
            changed += keep * int(np.sum(new != now))
            total += part[new] - part[now]
            indices[:, s] = new
        if keep:
            kept.append(indices.copy())
    found = np.concatenate(kept)[:num_draws]
    return Walk(found, changed / (num_sweeps * indices.size), len(np.unique(found, axis=0)))


class _Independent:
    """A draw of one subposterior at random, accepted with min(1, w_t'/w_t)."""

    def __init__(self, part: Array, share: float):
        self._part, self._share = part, share

    def __call__(self, now: Array, others: Array, h: float, rng: Any) -> Array:
        """New indices for chains whose other points have the means `others`."""
        new = rng.integers(len(self._part), size=len(now))
        gain = _squares(self._part[now] - others) - _squares(self._part[new] - others)
        accepted = rng.standard_exponential(len(now)) >= -0.5 * self._share / h**2 * gain
        return np.where(accepted, new, now)


class _Gibbs:
    """A draw of one subposterior from its law given the others: probabilities ∝ exp(-(1 - 1/S)|x - c|²/(2h²)).

    One matrix product gives -|x - c|²/2 = (c, 1, -|c|²/2)·(x, -|x|²/2, 1) for all chains and draws.
    """

    def __init__(self, part: Array, share: float, kind: Any):
        self._size, self._share, self._kind = len(part), share, kind
        columns = np.concatenate([part, -0.5 * _squares(part)[:, None], np.ones((len(part), 1))], axis=1)
        width = min(_STRETCH, len(part))
        extra = np.zeros((-len(part) % width, columns.shape[1]))  # to whole stretches
        self._columns = np.ascontiguousarray(np.concatenate([columns, extra]).T, kind)
        self._width = width

    def __call__(self, now: Array, others: Array, h: float, rng: Any) -> Array:
        """New indices for chains whose other points have the means `others`."""
        rows = np.concatenate([others, np.ones((len(now), 1)), -0.5 * _squares(others)[:, None]], axis=1)
        rows = (rows * (self._share / h**2)).astype(self._kind)
        uniforms = rng.random(len(now))
        size = max(1, _BLOCK // self._columns.shape[1])
        blocks = [slice(first, first + size) for first in range(0, len(now), size)]
        return np.concatenate(
            [self._choose(rows[block] @ self._columns, uniforms[block]) for block in blocks]
        )

    def _choose(self, logits: Array, uniforms: Array) -> Array:
        """One index for each row, with probabilities ∝ exp(logits): first its stretch, then its place there."""
        logits[:, self._size :] = -np.inf
        far = logits.max(axis=1) < _FAR
        logits[far] -= logits[far].max(axis=1, keepdims=True)
        weights = np.exp(logits, out=logits).reshape(len(logits), -1, self._width)
        sums = np.cumsum(weights.sum(axis=2, dtype=np.float64), axis=1)
        level = uniforms * sums[:, -1]
        stretch = np.minimum(np.sum(sums <= level[:, None], axis=1), sums.shape[1] - 1)
        rows = np.arange(len(logits))
        inner = np.cumsum(weights[rows, stretch], axis=1, dtype=np.float64)
        level -= np.where(stretch > 0, sums[rows, stretch - 1], 0.0)
        place = np.minimum(np.sum(inner <= level[:, None], axis=1), self._width - 1)
        return stretch * self._width + place


def _squares(rows: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", rows, rows))
