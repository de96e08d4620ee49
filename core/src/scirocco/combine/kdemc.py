"""KDEMC: draws from the product of kernel density estimates, by a walk over the components of that mixture."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from scirocco import _checks
from scirocco._adjustable import Adjustable
from scirocco.combine import assumptions
from scirocco.combine.assumptions import SampleMoments, effective_of, moments, moments_of, product
from scirocco.combine.draws import AssumptionCheck, Combined, ShardDraws, conclude, read_shards
from scirocco.combine.shards import Subposteriors
from scirocco.model import Model
from scirocco.types import PyTree

Array = np.ndarray[Any, np.dtype[Any]]

_ANNEALED = 0.75
"""Part of the burn-in in which the bandwidth falls."""
_BURNIN = {"gibbs": 100, "independent": 1000}  # sweeps
_MOVED = 0.05  # share of moves below which there is a warning


@dataclass
class WalkSizes(Adjustable):
    """How weights are computed."""

    single: float = 1e4
    """|x|²/h² below which single precision gives log weights to 10⁻³."""
    block: int = 1 << 22
    """Weights computed at a time."""
    stretch: int = 128
    """Draws whose weights are summed before one of them is looked for."""
    far: float = -50.0
    """Largest log weight below which they are shifted, lest all vanish."""


WALKING = WalkSizes()


def kdemc(
    subposteriors: Subposteriors | Iterable[PyTree],
    *,
    num_draws: int | None = None,
    bandwidth: float | None = None,
    anneal: bool = True,
    moves: str = "gibbs",
    semiparametric: bool = False,
    num_chains: int = 100,
    num_burnin: int | None = None,
    seed: int = 0,
    model: Model | None = None,
) -> Combined:
    r"""Product of kernel density estimates, sampled by MCMC over its components (Neiswanger et al. 2014, Algorithm 1).

    With Gaussian kernels of width h on the draws of each subposterior the product is a mixture with one component for
    each choice t = (t_1, ..., t_S) of a draw from every subposterior:

    .. math::
        \prod_s \frac1{M_s} \sum_i N(θ | θ_{s,i}, h^2 I) ∝ \sum_t w_t\, N(θ | \barθ_t, h^2 I / S), \qquad
        w_t = \prod_s N(θ_{s,t_s} | \barθ_t, h^2 I), \quad \barθ_t = \frac1S \sum_s θ_{s,t_s}

    Result: that mixture (as chains grow long). A Gaussian subposterior of unit variance gets the variance 1 + h²
    from its kernels, and so does the product, relative to its own. As h falls and draws abound it becomes the product
    itself, for subposteriors of any shape; draws must abound exponentially in the dimension, and a warning says when
    they do not.

    Moves: "gibbs" draws t_s given the others. Σ_s |x_s - x̄|² = Σ_{r≠s} |x_r - c|² + (1 - 1/S)|x_s - c|²
    with c the mean of the others' points, so that draw i of subposterior s has the probability
    ∝ exp(-(1 - 1/S)|θ_{s,i} - c|² / (2h²)). "independent" is the paper's move: a draw proposed at random, accepted
    with min(1, w_t'/w_t). Same target; the second is much cheaper and nearly always rejected where h is small.

    Semiparametric estimates (section 3.3 of the paper) are a normal density times a kernel estimate of what is left,
    p̂_s(θ) = N(θ|μ_s, Σ_s) (1/M_s) Σ_i N(θ|θ_{s,i}, h²I) / N(θ_{s,i}|μ_s, Σ_s). Their product is a mixture, too, with
    weights w_t N(θ̄_t | μ, Σ + h²I/S) / Π_s N(θ_{s,t_s}|μ_s, Σ_s), where N(μ, Σ) ∝ Π_s N(μ_s, Σ_s), and with components
    that are drawn towards μ. For normal subposteriors the kernels add no variance; otherwise the result lies between
    the product of kernel estimates and `gaussian_product`.

    Distances are measured in coordinates in which the mean covariance of the subposteriors is I. In the paper h falls
    like i^(-1/(4+d)) forever, so that every draw has another target; here it falls from 1 during the burn-in and stays.

    Parameters
    ----------
    subposteriors, model
        As for `consensus`. One subposterior gives its kernel density estimate.
    num_draws
        By default as many as the shortest subposterior has.
    bandwidth
        h, in standard deviations of a subposterior. Silverman's (4/((d + 2) n))^(1/(d+4)) when left out, n the
        smallest effective number of draws.
    anneal
        Begin with wide kernels, which lets chains find where the subposteriors overlap; else h is fixed from the start.
    moves
        "gibbs" or "independent".
    semiparametric
        Normal densities corrected by kernels, in place of kernels alone: better where subposteriors are nearly normal,
        and in more than a few dimensions.
    num_chains
        Chains that go side by side; each gives num_draws / num_chains draws.
    num_burnin
        Sweeps over all subposteriors that each chain makes first: 100, and 1000 with "independent", when left out.
    seed
        The random seed.

    Returns
    -------
    Combined
        Draws of one sweep of all chains after another. In `diagnostics`: `bandwidth`, `moved` (share of moves that
        change an index) and `distinct` (components that were used).

    Notes
    -----
    A Gibbs sweep of a chain costs O(S M d); O(S d) for independent moves. Draws of a chain are correlated over about
    1/h² sweeps.

    References
    ----------
    Neiswanger, Wang & Xing (2014), Asymptotically exact, embarrassingly parallel MCMC.

    Examples
    --------
    >>> import numpy as np
    >>> import scirocco.combine as combine
    >>> rng = np.random.default_rng(0)
    >>> shards = [rng.normal(mean, 1.0, size=(1000, 1)) for mean in (0.0, 1.0)]
    >>> posterior = combine.kdemc(shards)
    >>> print(posterior.draws.shape, posterior.draws.var().round(1))
    (1000, 1) 0.5
    """
    rng = np.random.default_rng(_checks.positive_int(seed, "seed", minimum=0))
    _checks.choice(moves, "moves", ("gibbs", "independent"))
    _checks.positive_int(num_chains, "num_chains")
    _checks.flag(anneal, "anneal")
    _checks.flag(semiparametric, "semiparametric")
    burnin = _BURNIN[moves] if num_burnin is None else _checks.positive_int(num_burnin, "num_burnin", minimum=0)
    if bandwidth is not None:
        _checks.positive(bandwidth, "bandwidth")
    shards = read_shards(subposteriors, model)
    number = shards.shortest if num_draws is None else _checks.positive_int(num_draws, "num_draws")
    points, centre, root = _whitened(shards)
    effective, d = effective_of(shards), shards.dimension
    h = (4.0 / ((d + 2.0) * effective.min())) ** (1.0 / (d + 4.0)) if bandwidth is None else float(bandwidth)
    normals = NormalParts.of(points, shards.names, h) if semiparametric else None
    walk = sample_components(
        points, bandwidths(h, burnin, anneal), h, number, num_chains=num_chains, moves=moves, rng=rng, normals=normals
    )
    found = np.mean([part[walk.indices[:, s]] for s, part in enumerate(points)], axis=0)
    noise = h / math.sqrt(len(points)) * rng.normal(size=found.shape)
    found = found + noise if normals is None else normals.drawn(found, noise)
    findings = [_mixing(walk, h, moves)]
    if not semiparametric:
        findings.insert(0, assumptions.kde_dimension(shards, effective))
    if len(points) > 1:
        parts = moments_of(shards, diagonal=shards.shortest <= d)
        findings.append(assumptions.overlap(shards, parts, effective))
    return conclude("kdemc", shards, centre + found @ root.T, findings)


def _whitened(shards: ShardDraws) -> tuple[list[Array], Array, Array]:
    """Points in coordinates in which the mean covariance of the subposteriors is I; the way back is centre + z Lᵀ."""
    means = [part.mean(axis=0) for part in shards.points]
    for s, part in enumerate(shards.points):
        moments(part, shards.names, f"subposterior {s}", diagonal=True)  # refuses what does not move
    within = np.concatenate([part - mean for part, mean in zip(shards.points, means, strict=True)])
    pooled = moments(within, shards.names, "the subposteriors together").covariance
    root, centre = np.linalg.cholesky(pooled), np.mean(means, axis=0)
    back = np.linalg.inv(root).T
    return [(part - centre) @ back for part in shards.points], centre, root


def bandwidths(h: float, num_burnin: int, anneal: bool) -> Array:
    """One for each sweep of the burn-in: from 1 down to h geometrically, then h."""
    if not anneal or h >= 1.0:
        return np.full(num_burnin, h)
    return np.asarray(h ** np.minimum(np.arange(num_burnin) / max(_ANNEALED * num_burnin, 1.0), 1.0))


def _mixing(walk: Walk, h: float, moves: str) -> AssumptionCheck:
    numbers = {"bandwidth": h, "moved": walk.moved, "distinct": walk.distinct}
    number = len(walk.indices)
    if walk.moved < _MOVED:
        more = ' or moves="gibbs"' if moves == "independent" else ""
        return AssumptionCheck(
            numbers,
            f"the walk over components hardly moves: {walk.moved:.1%} of its moves change one. Use a larger bandwidth "
            f"than {h:.2g}{more}, or sc.combine.weierstrass.",
        )
    if 10 * walk.distinct < number:
        return AssumptionCheck(
            numbers,
            f"{number:,} draws come from {walk.distinct:,} components of the mixture. Make more draws of the "
            "subposteriors, or ask for fewer (`num_draws`).",
        )
    return AssumptionCheck(numbers)


# -- a walk over the components of a product of mixtures: one draw of every subposterior at a time -----------


class NormalParts(NamedTuple):
    """The normal parts of semiparametric estimates."""

    parts: list[SampleMoments]
    mean: Array
    """The mean of the product of the normal densities."""
    spread: Array
    """(Σ + h²I/S)⁻¹."""
    shrink: Array
    """Σ (Σ + h²I/S)⁻¹: how far components keep to the mean of their points."""

    @classmethod
    def of(cls, points: list[Array], names: list[str], h: float) -> NormalParts:
        """Those of these subposteriors, for kernels of width h."""
        parts = [moments(part, names, f"subposterior {s}") for s, part in enumerate(points)]
        mean, covariance = product(parts)
        narrow = h**2 / len(points) * np.eye(len(mean))
        spread = np.linalg.inv(covariance + narrow)
        return cls(parts, mean, spread, covariance @ spread)

    def fixed(self, s: int, points: Array) -> Array:
        """The part of a log weight that depends on the point x of subposterior s alone."""
        own = points - self.parts[s].mean
        of_normal = 0.5 * np.einsum("ij,jk,ik->i", own, self.parts[s].precision, own)
        return of_normal - 0.5 * np.einsum("ij,jk,ik->i", points, self.spread, points) / len(self.parts) ** 2

    def slopes(self, others: Array) -> Array:
        """The vectors b with which x contributes b·x, for chains whose other points have the means `others`."""
        rest = (1.0 - 1.0 / len(self.parts)) * others
        return np.asarray((self.mean - rest) @ self.spread / len(self.parts))

    def drawn(self, centres: Array, noise: Array) -> Array:
        """Draws of the components at `centres`, from noise of the variance h²/S."""
        root = np.linalg.cholesky((self.shrink + self.shrink.T) / 2)
        return np.asarray(self.mean + (centres - self.mean) @ self.shrink.T + noise @ root.T)


class Walk(NamedTuple):
    """Which components were visited."""

    indices: Array
    """(draw, subposterior)."""
    moved: float
    """Share of the moves after the burn-in that changed an index."""
    distinct: int


def sample_components(
    points: list[Array],
    burnin: Array,
    h: float,
    num_draws: int,
    *,
    num_chains: int,
    moves: str,
    rng: np.random.Generator,
    normals: NormalParts | None = None,
) -> Walk:
    """Indices t with probabilities ∝ w_t: a sweep at each bandwidth in `burnin`, then sweeps at h, which are kept."""
    num_chains = min(num_chains, num_draws)
    num_sweeps = -(-num_draws // num_chains)
    indices = np.stack([rng.integers(len(part), size=num_chains) for part in points], axis=1)
    share = 1.0 - 1.0 / len(points)
    movers: list[_Gibbs] | list[_Independent]
    if moves == "gibbs":
        single = normals is None and max(_squares(part).max() for part in points) < WALKING.single * h**2
        movers = [
            _Gibbs(part, share, np.float32 if single else np.float64, normals, s) for s, part in enumerate(points)
        ]
    else:
        movers = [_Independent(part, share, normals, s) for s, part in enumerate(points)]
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

    def __init__(self, part: Array, share: float, normals: NormalParts | None = None, s: int = 0):
        self._part, self._share, self._normals = part, share, normals
        self._fixed = np.zeros(len(part)) if normals is None else normals.fixed(s, part)

    def __call__(self, now: Array, others: Array, h: float, rng: np.random.Generator) -> Array:
        """New indices for chains whose other points have the means `others`."""
        new = rng.integers(len(self._part), size=len(now))
        gain = _squares(self._part[now] - others) - _squares(self._part[new] - others)
        log_ratio = 0.5 * self._share / h**2 * gain
        if self._normals is not None:
            step = np.einsum("ij,ij->i", self._part[new] - self._part[now], self._normals.slopes(others))
            log_ratio = log_ratio + self._fixed[new] - self._fixed[now] + step
        accepted = rng.standard_exponential(len(now)) >= -log_ratio
        return np.where(accepted, new, now)


class _Gibbs:
    """A draw of one subposterior given the others: probabilities ∝ exp(-(1 - 1/S)|x - c|²/(2h²)).

    One matrix product gives -|x - c|²/2 = (c, 1, -|c|²/2)·(x, -|x|²/2, 1) for all chains and draws.
    """

    def __init__(
        self, part: Array, share: float, kind: type[np.floating[Any]], normals: NormalParts | None = None, s: int = 0
    ):
        self._size, self._share, self._kind, self._normals = len(part), share, kind, normals
        more = [] if normals is None else [part, normals.fixed(s, part)[:, None]]
        columns = np.concatenate([part, -0.5 * _squares(part)[:, None], np.ones((len(part), 1)), *more], axis=1)
        width = min(WALKING.stretch, len(part))
        extra = np.zeros((-len(part) % width, columns.shape[1]))  # to whole stretches
        self._columns = np.ascontiguousarray(np.concatenate([columns, extra]).T, kind)
        self._width = width

    def __call__(self, now: Array, others: Array, h: float, rng: np.random.Generator) -> Array:
        """New indices for chains whose other points have the means `others`."""
        rows = np.concatenate([others, np.ones((len(now), 1)), -0.5 * _squares(others)[:, None]], axis=1)
        rows = rows * (self._share / h**2)
        if self._normals is not None:
            rows = np.concatenate([rows, self._normals.slopes(others), np.ones((len(now), 1))], axis=1)
        rows = rows.astype(self._kind)
        uniforms = rng.random(len(now))
        size = max(1, WALKING.block // self._columns.shape[1])
        blocks = [slice(first, first + size) for first in range(0, len(now), size)]
        return np.concatenate([self._choose(rows[block] @ self._columns, uniforms[block]) for block in blocks])

    def _choose(self, logits: Array, uniforms: Array) -> Array:
        """One index for each row, with probabilities ∝ exp(logits): first its stretch, then its place there."""
        logits[:, self._size :] = -np.inf
        far = logits.max(axis=1) < WALKING.far
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
