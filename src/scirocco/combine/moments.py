"""Means, covariances and effective sizes of the subposteriors' draws."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scirocco.combine.draws import Shards
from scirocco.errors import InvalidValueError

Array = np.ndarray[Any, np.dtype[Any]]

_FLAT = 1e-12  # of a correlation matrix: an eigenvalue below this is none
_LOOKED_AT = 64


class Moments(NamedTuple):
    """Of one sample."""

    mean: Array
    covariance: Array
    """(d, d); with `diagonal` the variances on the diagonal and zeros elsewhere."""
    precision: Array
    """The inverse."""


def moments(points: Array, names: list[str], owner: str, *, diagonal: bool = False) -> Moments:
    """Mean, covariance and precision of draws (draw, coordinate); refuses a covariance that has no inverse."""
    mean, variances = points.mean(axis=0), points.var(axis=0, ddof=1)
    # Draws that are equal have a variance of rounding errors.
    constant = np.flatnonzero(np.sqrt(variances) <= 1e-12 * np.abs(mean))
    if len(constant):
        raise InvalidValueError(
            f"`{names[constant[0]]}` is the same in all draws of {owner}: it has no precision to weigh it by. Leave it "
            "out, or look at its chain (a step size that is too small does not move)."
        )
    if diagonal:
        return Moments(mean, np.diag(variances), np.diag(1.0 / variances))
    if len(points) <= points.shape[1]:
        raise InvalidValueError(
            f"the covariance of {points.shape[1]} coordinates has no inverse with {len(points)} draws of {owner}: make "
            f'more than {10 * points.shape[1]:,} draws, or use weights="diagonal" where the method has it.'
        )
    scale = np.sqrt(variances)
    covariance = np.cov(points, rowvar=False).reshape(len(mean), len(mean))
    correlation = covariance / np.outer(scale, scale)
    if np.linalg.eigvalsh(correlation)[0] < _FLAT:
        raise InvalidValueError(
            f"the coordinates in the draws of {owner} depend on each other linearly, so that their covariance has no "
            'inverse. Leave some out (e.g. the last one of a simplex), or use weights="diagonal" where the method has '
            "it."
        )
    precision = np.linalg.inv(correlation) / np.outer(scale, scale)
    return Moments(mean, covariance, 0.5 * (precision + precision.T))


def moments_of(shards: Shards, *, diagonal: bool = False) -> list[Moments]:
    """For each subposterior."""
    return [
        moments(part, shards.names, f"subposterior {shard}", diagonal=diagonal)
        for shard, part in enumerate(shards.points)
    ]


def product(parts: list[Moments]) -> tuple[Array, Array]:
    r"""Mean and covariance of the product of Gaussians: Σ = (Σ_s Σ_s⁻¹)⁻¹, μ = Σ Σ_s Σ_s⁻¹ μ_s."""
    precision = sum((part.precision for part in parts[1:]), parts[0].precision)
    weighted = sum((part.precision @ part.mean for part in parts[1:]), parts[0].precision @ parts[0].mean)
    covariance = np.linalg.inv(precision)
    return covariance @ weighted, 0.5 * (covariance + covariance.T)


def effective_draws(points: Array, num_chains: int) -> float:
    """How many independent draws the mean is worth: the smallest over (at most 64 evenly spread) coordinates.

    n/τ, τ the sum of the autocorrelations by Geyer's initial monotone sequence (1992), with the variance between chains
    counted as in R-hat; never more than n.
    """
    d = points.shape[1]
    looked_at = np.unique(np.linspace(0, d - 1, min(d, _LOOKED_AT)).astype(int))
    chains = points[:, looked_at].reshape(num_chains, -1, len(looked_at))
    n = chains.shape[1]
    if n < 4:
        return float(len(points))
    means = chains.mean(axis=1)
    spectrum = np.fft.rfft(chains - means[:, None], 1 << (2 * n - 1).bit_length(), axis=1)
    covariances = np.fft.irfft(np.mean(np.abs(spectrum) ** 2, axis=0), axis=0)[:n] / n
    within = covariances[0] * n / (n - 1)
    between = means.var(axis=0, ddof=1) if num_chains > 1 else 0.0
    correlations = 1.0 - (within - covariances) / (covariances[0] + between)
    correlations[0] = 1.0
    pairs = correlations[: n // 2 * 2].reshape(-1, 2, len(looked_at)).sum(axis=1)
    falling = np.maximum(np.minimum.accumulate(pairs, axis=0), 0.0)
    times = np.maximum(2.0 * np.sum(falling, axis=0) - 1.0, 1.0)
    return float(len(points) / times.max())


def effective_of(shards: Shards) -> Array:
    """For each subposterior."""
    pairs = zip(shards.points, shards.num_chains, strict=True)
    return np.array([effective_draws(part, chains) for part, chains in pairs])
