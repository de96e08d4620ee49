"""Moments and effective sizes of the subposteriors' draws, and checks of the methods' assumptions."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from scirocco._extras import require
from scirocco.combine.draws import AssumptionCheck, ShardDraws
from scirocco.diagnostics import ess
from scirocco.diagnostics.columns import spread_evenly
from scirocco.errors import InvalidValueError

Array = np.ndarray[Any, np.dtype[Any]]

_BY_CHANCE = 1e-6
"""The probability that consistent subposteriors are reported as inconsistent."""
# limits of skewness and of excess kurtosis, explained in `gaussianity`
_SKEWED, _TWO_PEAKS, _HEAVY_TAILS = 0.5, -0.6, 1.5
# the same by chance: z-scores, probability; effective draws below which nothing is said
_STANDARD_ERRORS, _RARE, _FEWEST = 5.0, 3e-7, 16
_FLAT = 1e-12  # eigenvalues of a correlation matrix below this count as 0
_LOOKED_AT = 64  # coordinates whose effective sizes are computed
_DRAWS_A_COORDINATE = 10  # inverse covariances are then 10 % too large on average
SILVERMAN = (4, 19, 67, 223, 768, 2_790, 10_700, 43_700, 187_000, 842_000)
"""Draws for a relative mean square error of 0.1 at the centre of a Gaussian, in d = 1, 2, ... (Silverman 1986)."""


class SampleMoments(NamedTuple):
    """Moments of one sample."""

    mean: Array
    covariance: Array
    """(d, d); with `diagonal` the variances on the diagonal and zeros elsewhere."""
    precision: Array
    """The inverse."""


def moments(points: Array, names: list[str], owner: str, *, diagonal: bool = False) -> SampleMoments:
    """Mean, covariance and precision of draws (draw, coordinate); rejects a singular covariance."""
    mean, variances = points.mean(axis=0), points.var(axis=0, ddof=1)
    # Draws that are equal have a variance of rounding errors.
    constant = np.flatnonzero(np.sqrt(variances) <= 1e-12 * np.abs(mean))
    if len(constant):
        raise InvalidValueError(
            f"`{names[constant[0]]}` is the same in all draws of {owner}: it has no precision to weigh it by. Leave it "
            "out, or look at its chain (a step size that is too small does not move)."
        )
    if diagonal:
        return SampleMoments(mean, np.diag(variances), np.diag(1.0 / variances))
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
    return SampleMoments(mean, covariance, 0.5 * (precision + precision.T))


def moments_of(shards: ShardDraws, *, diagonal: bool = False) -> list[SampleMoments]:
    """One result for each subposterior."""
    return [
        moments(part, shards.names, f"subposterior {shard}", diagonal=diagonal)
        for shard, part in enumerate(shards.points)
    ]


def product(parts: list[SampleMoments]) -> tuple[Array, Array]:
    r"""Mean and covariance of the product of Gaussians: Σ = (Σ_s Σ_s⁻¹)⁻¹, μ = Σ Σ_s Σ_s⁻¹ μ_s."""
    precision = sum((part.precision for part in parts[1:]), parts[0].precision)
    weighted = sum((part.precision @ part.mean for part in parts[1:]), parts[0].precision @ parts[0].mean)
    covariance = np.linalg.inv(precision)
    return covariance @ weighted, 0.5 * (covariance + covariance.T)


def effective_draws(points: Array, num_chains: int) -> float:
    """The effective sample size of the mean: the smallest over (at most 64 evenly spread) coordinates.

    Never more than there are; all of them where chains are too short to tell.
    """
    some = points[:, spread_evenly(points.shape[1], _LOOKED_AT)]
    found = ess(some.reshape(num_chains, -1, some.shape[1]), "identity")
    return float(np.nanmin(found, initial=len(points)))


def effective_of(shards: ShardDraws) -> Array:
    """One result for each subposterior."""
    pairs = zip(shards.points, shards.num_chains, strict=True)
    return np.array([effective_draws(part, chains) for part, chains in pairs])


# -- assumptions: each returns its numbers and, where it fails, a sentence -----------------------------------


def overlap(shards: ShardDraws, parts: list[SampleMoments], effective: Array) -> AssumptionCheck:
    r"""Whether the subposteriors lie where chance puts them: m_s² = (μ_s - μ)ᵀ Σ_s⁻¹ (μ_s - μ), μ the product's mean.

    A shard of exchangeable rows has its likelihood's peak about N(true value, Σ_s) (Bernstein and von Mises), so that μ
    is to subposterior s what one more of its draws would be. Mean and covariance are known from n effective draws:
    m_s² is then at most Hotelling's d (n² - 1) / (n (n - d)) F_{d, n-d}, and beyond its 1 - 10⁻⁶/S quantile the
    shards differ, or a chain has not converged. With no more than 2d effective draws the coordinates are checked
    one by one.
    """
    stats, d = require("scipy.stats", "sc.combine"), shards.dimension
    common, _ = product(parts)
    measured, limits = np.zeros(len(parts)), np.zeros(len(parts))
    for s, (part, n) in enumerate(zip(parts, effective, strict=True)):
        away = part.mean - common
        jointly = n > 2 * d + 2 and _is_full(part)
        size = d if jointly else 1
        squares = away @ part.precision @ away if jointly else np.max(away**2 / np.diag(part.covariance))
        n = max(n, 3.0)
        level = _BY_CHANCE / len(parts) / (1 if jointly else d)
        limit = size * (n**2 - 1) / (n * (n - size)) * stats.f.isf(level, size, n - size)
        measured[s], limits[s] = math.sqrt(squares), math.sqrt(limit)
    numbers = {"distance": measured, "distance_limit": limits}
    apart = np.flatnonzero(measured > limits)
    if not len(apart):
        return AssumptionCheck(numbers)
    worst = int(np.argmax(measured / limits))
    others = f" ({len(apart)} of {len(parts)} do, this one most)" if len(apart) > 1 else ""
    return AssumptionCheck(
        numbers,
        f"subposterior {worst} lies apart{others}: its mean is {measured[worst]:.3g} of its standard deviations from "
        f"the common one, and chance explains {limits[worst]:.3g}. The shards are not exchangeable (divide the rows "
        "at random), or a chain has not converged. What is combined from tails that do not overlap is not to be "
        "trusted.",
    )


def _is_full(part: SampleMoments) -> bool:
    return len(part.mean) == 1 or bool(np.any(part.covariance[~np.eye(len(part.mean), dtype=bool)]))


def gaussianity(shards: ShardDraws, effective: Array) -> AssumptionCheck:
    """How far the subposteriors are from Gaussian: skewness and kurtosis, as sizes, in the directions where they show.

    Each subposterior is taken to mean 0 and covariance I. Checked are the coordinates and, found from the first half
    of the draws, the eigenvectors of Σ |z|² z zᵀ, which point along separated peaks (Cardoso 1989); the other half is
    measured along them. The skewness of a direction is the root mean square over the subposteriors less what chance
    adds, the excess kurtosis their mean.

    Limits: 0.5 for the skewness (Gamma(16)); -0.6 for the kurtosis (equal peaks at ±1.1 of their standard
    deviations; below ±1 they are one) and 1.5 (Student's t with 8 degrees of freedom). Sizes that few Gaussian draws
    reach by chance (once in three million) are not counted, and below 16 effective draws nothing is.
    """
    rows = [_standardised(part) for part in shards.points]
    values = _along(rows, _directions([z[: len(z) // 2] for z in rows]))
    skewness, kurtosis = np.stack([_skewness(v) for v in values]), np.stack([_kurtosis(v) for v in values])
    n = np.maximum(effective / 2.0, 8.0)[:, None]
    by_chance = 6.0 * (n - 2) / ((n + 1) * (n + 3))
    sizes = np.sqrt(np.maximum(np.mean(skewness**2 - by_chance, axis=0), 0.0))
    peaks = np.mean(kurtosis, axis=0)
    scores = np.sum(normal_score(kurtosis, n), axis=0) / math.sqrt(len(n))
    limit = require("scipy.stats", "sc.combine").chi2.isf(_RARE, len(n))
    numbers = {
        "skewness": float(sizes.max()),
        "kurtosis_lowest": float(peaks.min()),
        "kurtosis_highest": float(peaks.max()),
    }
    low, high = int(np.argmin(peaks)), int(np.argmax(peaks))
    found = []
    if peaks[low] < _TWO_PEAKS and scores[low] < -_STANDARD_ERRORS:
        found.append(f"excess kurtosis {peaks[low]:.2f} (two peaks, or a flat distribution)")
    if peaks[high] > _HEAVY_TAILS and scores[high] > _STANDARD_ERRORS:
        found.append(f"excess kurtosis {peaks[high]:.2f} (heavy tails)")
    if sizes.max() > _SKEWED and np.max(np.sum(skewness**2 / by_chance, axis=0)) > limit:
        found.append(f"skewness {sizes.max():.2f}")
    if not found or np.median(effective) < _FEWEST:
        return AssumptionCheck(numbers)
    return AssumptionCheck(
        numbers,
        f"the subposteriors are not Gaussian ({' and '.join(found)} along a direction, where a Gaussian has 0), and "
        "the method is exact only for those. Compare with sc.combine.weierstrass, use fewer and larger shards, or "
        "another parametrisation.",
    )


def normal_score(kurtosis: Array, n: Array) -> Array:
    """The excess kurtosis of n Gaussian draws as a standard normal variable (Anscombe & Glynn 1983)."""
    sd = np.sqrt(24.0 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3) * (n + 5)))
    x = (kurtosis + 6.0 / (n + 1)) / sd
    lean = 6.0 * (n * n - 5 * n + 2) / ((n + 7) * (n + 9)) * np.sqrt(6.0 * (n + 3) * (n + 5) / (n * (n - 2) * (n - 3)))
    a = 6.0 + 8.0 / lean * (2.0 / lean + np.sqrt(1.0 + 4.0 / lean**2))
    root = np.cbrt((1.0 - 2.0 / a) / np.maximum(1.0 + x * np.sqrt(2.0 / (a - 4.0)), 1e-9))
    return np.asarray((1.0 - 2.0 / (9.0 * a) - root) / np.sqrt(2.0 / (9.0 * a)))


def _standardised(points: Array) -> Array:
    """Mean 0 and covariance I, turned as little as possible; only scaled where draws are too few to turn."""
    centred = points - points.mean(axis=0)
    centred /= centred.std(axis=0)
    if len(points) > 2 * points.shape[1]:
        values, vectors = np.linalg.eigh(centred.T @ centred / len(points))
        if values[0] > _FLAT:
            centred = centred @ (vectors / np.sqrt(values)) @ vectors.T
    return centred


def _directions(rows: list[Array]) -> Array:
    """Unit vectors as columns."""
    fourth = np.sum([z.T @ (z * np.sum(z * z, axis=1, keepdims=True)) / len(z) for z in rows], axis=0)
    return np.asarray(np.linalg.eigh(fourth)[1])


def _along(rows: list[Array], directions: Array) -> list[Array]:
    """Of the second half of each: the coordinates, and the projections on the directions."""
    halves = [z[len(z) // 2 :] for z in rows]
    return [z if z.shape[1] == 1 else np.concatenate([z, z @ directions], axis=1) for z in halves]


def _skewness(values: Array) -> Array:
    centred = values - values.mean(axis=0)
    return np.asarray(np.mean(centred**3, axis=0) / np.mean(centred**2, axis=0) ** 1.5)


def _kurtosis(values: Array) -> Array:
    squares = values**2
    return np.asarray(np.mean(squares**2, axis=0) / np.mean(squares, axis=0) ** 2 - 3.0)


def noisy_precisions(shards: ShardDraws, effective: Array) -> AssumptionCheck:
    """Whether inverse covariances are known: with n Gaussian draws they are too large by n/(n - d - 2) on average."""
    n, d = float(effective.min()), shards.dimension
    numbers = {"effective_draws": effective}
    if n >= _DRAWS_A_COORDINATE * d:
        return AssumptionCheck(numbers)
    factor = f"up to {n / (n - d - 2):.2g} times too large on average" if n > d + 2.5 else "mostly noise"
    return AssumptionCheck(
        numbers,
        f"{n:,.0f} effective draws of {d} coordinates (subposterior {int(np.argmin(effective))}) give inverse "
        f"covariances that are {factor}. Make at least {_DRAWS_A_COORDINATE * d:,} effective draws, or use "
        'weights="diagonal" where the method has it.',
    )


def kde_dimension(shards: ShardDraws, effective: Array) -> AssumptionCheck:
    """Whether there are draws enough for kernel densities in d dimensions: Silverman's table, for 10 % at the centre.

    The product of S such densities has S times the relative error, so that the table is the least that is needed.
    """
    n, d = float(effective.min()), shards.dimension
    numbers = {"effective_draws": effective, "draws_needed": SILVERMAN[d - 1] if d <= 10 else math.inf}
    if d > 10:
        return AssumptionCheck(
            numbers,
            f"kernel density estimates do not work in {d} dimensions: 10 need {SILVERMAN[-1]:,} effective draws of "
            "each subposterior, and more need many more. Use sc.combine.weierstrass or sc.combine.consensus.",
        )
    if n >= SILVERMAN[d - 1]:
        return AssumptionCheck(numbers)
    return AssumptionCheck(
        numbers,
        f"kernel density estimates in {d} dimension{'s' * (d > 1)} need {SILVERMAN[d - 1]:,} effective draws for an "
        f"error of 10 % at the centre, and subposterior {int(np.argmin(effective))} has {n:,.0f}. Make more draws, or "
        "use sc.combine.weierstrass or sc.combine.consensus.",
    )
