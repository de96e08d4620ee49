"""The Weierstrass sampler in its rejection form: subposteriors are merged two by two, up a tree."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from scirocco import _checks
from scirocco.combine import assumptions
from scirocco.combine.assumptions import effective_of, moments, moments_of
from scirocco.combine.draws import AssumptionCheck, Combined, ShardDraws, conclude, read_shards
from scirocco.combine.shards import Subposteriors
from scirocco.errors import InvalidValueError
from scirocco.model import Model
from scirocco.types import PyTree

Array = np.ndarray[Any, np.dtype[Any]]

_PILOT = 20_000
"""Pairs from which a bandwidth is found; more where few are kept."""
_BLOCK = 1 << 22
"""Numbers in a block of proposals."""


def weierstrass(
    subposteriors: Subposteriors | Iterable[PyTree],
    *,
    num_draws: int | None = None,
    acceptance: float = 0.1,
    weights: str = "matrix",
    seed: int = 0,
    model: Model | None = None,
) -> Combined:
    r"""The Weierstrass sampler by rejection, merging two at a time (Wang & Dunson 2013).

    A merge of two samples with covariances Σ₁, Σ₂ and precisions P₁, P₂ takes random pairs (t₁, t₂), keeps each with
    the probability exp(-q/(2h²)), and returns the precision-weighted averages of those kept:

    .. math::
        q = (t_1 - t_2)^⊤ (Σ_1 + Σ_2)^{-1} (t_1 - t_2), \qquad θ = (P_1 + P_2)^{-1} (P_1 t_1 + P_2 t_2)

    h is found for each merge so that the share `acceptance` is kept. Merged samples are merged again, until one is
    left; an odd one waits for the next level.

    Result: for any densities, θ → the normalised product f₁ f₂ as h → 0, since t₁ and t₂ are then the same point.
    For Gaussians, Cov(θ, t₁ - t₂) = (P₁ + P₂)⁻¹ (P₁ Σ₁ - P₂ Σ₂) = 0: the average knows nothing of the difference by
    which it is kept, and every h gives the product N((P₁ + P₂)⁻¹ (P₁ μ₁ + P₂ μ₂), (P₁ + P₂)⁻¹). Acceptance 1 is
    `consensus` with pairs at random. So h smooths away only what is not Gaussian, and in many dimensions, where the
    share of near pairs falls like (1 + 1/h²)^(-d/2), a large h costs little: there is no density estimate to fail.
    A warning says what it costs if the subposteriors are not Gaussian and h is above 1.

    Parameters
    ----------
    subposteriors, model
        As for `consensus`. One subposterior gives its draws back.
    num_draws
        By default as many as the shortest subposterior has.
    acceptance
        Share of the pairs that is kept, in (0, 1]. Smaller is nearer to the product, in time and in fresh pairs ∝ its
        inverse. Draws far from the others are used up: with S subposteriors only those within the posterior's width,
        1/√S of theirs, count, and the result is worth as many draws as these.
    weights
        "matrix", or "diagonal": variances only, in the average and in q; exact for Gaussians whose coordinates are
        independent.
    seed
        The random seed.

    Returns
    -------
    Combined
        Draws in random order. In `diagnostics`, a list for each level with an entry for each merge: `bandwidth` (h, in
        standard deviations of a difference), `accepted` (share) and `distinct` (pairs among those kept).

    Notes
    -----
    O(S num_draws d / acceptance) for all merges together.

    References
    ----------
    Wang & Dunson (2013), Parallelizing MCMC via Weierstrass sampler.

    Examples
    --------
    Two peaks in each of two subposteriors: the product has the same two, with nothing between them.

    >>> import numpy as np
    >>> import scirocco.combine as combine
    >>> rng = np.random.default_rng(0)
    >>> shards = [rng.normal(size=5000) + rng.choice([-4.0, 4.0], size=5000) for _ in range(2)]
    >>> posterior = combine.weierstrass(shards)
    >>> print(np.mean(np.abs(posterior.draws) < 2.0).round(2), np.abs(posterior.draws).mean().round(1))
    0.0 4.0
    """
    rng = np.random.default_rng(_checks.positive_int(seed, "seed", minimum=0))
    _checks.choice(weights, "weights", ("matrix", "diagonal"))
    _checks.positive(acceptance, "acceptance")
    if acceptance > 1:
        raise InvalidValueError(f"`acceptance` must be above 0 and at most 1, got {acceptance}.")
    shards = read_shards(subposteriors, model)
    number = shards.shortest if num_draws is None else _checks.positive_int(num_draws, "num_draws")
    diagonal = weights == "diagonal"
    parts = moments_of(shards, diagonal=diagonal)  # refuses what has no precision
    if len(parts) == 1:
        return conclude("weierstrass", shards, shards.points[0][shuffled(shards.shortest, number, rng)], [])
    level, merges = list(shards.points), []
    while len(level) > 1:
        wanted = number if len(level) == 2 else max(number, shards.shortest)
        pairs = zip(level[::2], level[1::2], strict=False)
        merges.append([merge(a, b, wanted, acceptance, shards.names, rng, diagonal=diagonal) for a, b in pairs])
        level = [one.points for one in merges[-1]] + level[len(level) // 2 * 2 :]
    effective = effective_of(shards)
    known = assumptions.noisy_precisions(shards, effective)
    findings = [
        AssumptionCheck(known.numbers) if diagonal else known,
        assumptions.overlap(shards, parts, effective),
        _smoothing(shards, merges, effective, acceptance),
        _repeats(merges),
    ]
    return conclude("weierstrass", shards, level[0], findings)


def _smoothing(shards: ShardDraws, merges: list[list[Merge]], effective: Array, acceptance: float) -> AssumptionCheck:
    """Whether kernels wider than the scatter of differences have averaged what is not Gaussian.

    At h = 1 a Gaussian merge keeps 2^(-d/2) of its pairs.
    """
    shape = assumptions.gaussianity(shards, effective)
    widest = max(one.bandwidth for level in merges for one in level)
    numbers = shape.numbers | {
        "bandwidth": [[one.bandwidth for one in level] for level in merges],
        "accepted": [[one.accepted for one in level] for level in merges],
    }
    if shape.message is None or widest <= 1.0:
        return AssumptionCheck(numbers)
    d = shards.dimension
    return AssumptionCheck(
        numbers,
        f"the subposteriors are not Gaussian (skewness {shape.numbers['skewness']:.2f}, excess kurtosis "
        f"{shape.numbers['kurtosis_lowest']:.2f} to {shape.numbers['kurtosis_highest']:.2f}), and at acceptance "
        f"{acceptance:g} the kernels are {widest:.2g} standard deviations of a difference wide: the method averages "
        f"over that width. Lower `acceptance` (about {2.0 ** (-d / 2):.1g} gives a width of 1 in {d} "
        f"dimension{'s' * (d > 1)}).",
    )


def _repeats(merges: list[list[Merge]]) -> AssumptionCheck:
    distinct = [[one.distinct for one in level] for level in merges]
    worst = min((one for level in merges for one in level), key=lambda one: one.distinct / len(one.points))
    if 2 * worst.distinct >= len(worst.points):
        return AssumptionCheck({"distinct": distinct})
    return AssumptionCheck(
        {"distinct": distinct},
        f"a merge made {len(worst.points):,} draws of {worst.distinct:,} distinct pairs: draws repeat themselves. Make "
        "more draws of the subposteriors, ask for fewer (`num_draws`), or raise `acceptance`.",
    )


# -- one merge -----------------------------------------------------------------------------------------------


class Merge(NamedTuple):
    """One merge of two samples."""

    points: Array
    bandwidth: float
    accepted: float
    distinct: int
    """Pairs among those kept that differ."""


def merge(
    a: Array, b: Array, num_draws: int, acceptance: float, names: list[str], rng: np.random.Generator, *, diagonal: bool
) -> Merge:
    """Draws from the product of the densities of `a` and `b`."""
    first = moments(a, names, "a merged sample", diagonal=diagonal)
    second = moments(b, names, "a merged sample", diagonal=diagonal)
    root = np.linalg.inv(np.linalg.cholesky(first.covariance + second.covariance)).T
    middle = 0.5 * (first.mean + second.mean)
    x, y = (a - middle) @ root, (b - middle) @ root  # q of a pair is now |x_i - y_j|²
    pilot = min(max(_PILOT, int(200 / acceptance)), _BLOCK // a.shape[1] + 1)
    h = _bandwidth(_distances(x, y, _pairs(len(a), len(b), pilot, rng)), acceptance)
    kept: list[tuple[Array, Array]] = []
    found = proposed = 0
    block = int(min(max(1_000, _BLOCK // a.shape[1]), math.ceil(1.1 * num_draws / acceptance)))
    while found < num_draws:
        pairs = _pairs(len(a), len(b), block, rng)
        taken = 2.0 * h**2 * rng.standard_exponential(block) >= _distances(x, y, pairs)
        kept.append((pairs[0][taken], pairs[1][taken]))
        found, proposed = found + int(taken.sum()), proposed + block
    i, j = (np.concatenate(part)[:num_draws] for part in zip(*kept, strict=True))
    total = np.linalg.inv(first.precision + second.precision)
    points = a[i] @ (total @ first.precision).T + b[j] @ (total @ second.precision).T
    return Merge(points, h, found / proposed, len(np.unique(i * len(b) + j)))


def _pairs(num_a: int, num_b: int, number: int, rng: np.random.Generator) -> tuple[Array, Array]:
    return shuffled(num_a, number, rng), shuffled(num_b, number, rng)


def shuffled(size: int, number: int, rng: np.random.Generator) -> Array:
    """`number` of the indices below `size` at random, each as often as any other, up to one."""
    return np.concatenate([rng.permutation(size) for _ in range(-(-number // size))])[:number]


def _distances(x: Array, y: Array, pairs: tuple[Array, Array]) -> Array:
    difference = x[pairs[0]] - y[pairs[1]]
    return np.asarray(np.einsum("ij,ij->i", difference, difference))


def _bandwidth(distances: Array, acceptance: float) -> float:
    """The h at which exp(-q/(2h²)) has the mean `acceptance`, by bisection of log h; ∞ for acceptance 1."""
    if acceptance == 1:
        return math.inf
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if np.mean(np.exp(-0.5 * math.exp(-2.0 * middle) * distances)) < acceptance:
            low = middle
        else:
            high = middle
    return math.exp(high)
