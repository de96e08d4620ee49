"""Combinations that are exact for Gaussian subposteriors: weighted averages, and the product of fitted Gaussians."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco.combine import assumptions
from scirocco.combine.assumptions import effective_of, moments_of, product
from scirocco.combine.draws import AssumptionCheck, Combined, conclude, read_shards
from scirocco.combine.shards import Subposteriors
from scirocco.model import Model
from scirocco.types import PyTree

Array = np.ndarray[Any, np.dtype[Any]]


def consensus(
    subposteriors: Subposteriors | Iterable[PyTree], *, weights: str = "matrix", model: Model | None = None
) -> Combined:
    r"""Consensus Monte Carlo: weighted averages of the subposteriors' draws (Scott et al. 2016; thesis eq. 2.4.5).

    .. math:: θ_i = \Big(\sum_s W_s\Big)^{-1} \sum_s W_s θ_{s,i}, \qquad W_s = \hatΣ_s^{-1}

    Result: for Gaussian subposteriors N(μ_s, Σ_s) the average is N(Σ Σ_s Σ_s⁻¹ μ_s, Σ) with Σ = (Σ_s Σ_s⁻¹)⁻¹, which
    is exactly their product, except for the error of the estimated Σ̂_s. Nothing else is exact: the average of draws
    from two peaks lies between them. Skewness and kurtosis are checked, with a warning if they are large.

    Parameters
    ----------
    subposteriors
        What `sc.combine.subposteriors` returns, or a sequence with one item for each subposterior: runs (chains are
        joined), or trees of draws with leaves (draw, ...). Numbers of draws may differ: longer ones are thinned evenly
        to the shortest. One subposterior is the posterior: its draws come back.
    weights
        "matrix": Σ̂_s⁻¹, which takes more draws than coordinates, better ten times as many. "diagonal": the inverse
        variances; exact for Gaussians with independent coordinates, or with the same covariance in all. "uniform":
        plain means.
    model
        The runs' model, where its parameters have transforms and the runs were loaded, or draws are given. Draws are
        then combined on the real line, where the samplers move, and taken back: they lie in the domain.

    Returns
    -------
    Combined
        With `diagnostics`: effective draws, distances of the subposteriors, skewness and kurtosis.

    References
    ----------
    Scott et al. (2016), Bayes and big data: the consensus Monte Carlo algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> import scirocco.combine as combine
    >>> rng = np.random.default_rng(0)
    >>> shards = [rng.normal(mean, 1.0, size=(10_000, 2)) for mean in (-0.5, 0.0, 0.5, 0.8)]
    >>> posterior = combine.consensus(shards)
    >>> posterior
    Combined(consensus: 10,000 draws of 2 numbers from 4 subposteriors, no warnings)
    >>> print(posterior.draws.mean(axis=0).round(1), posterior.draws.std(axis=0).round(1))
    [0.2 0.2] [0.5 0.5]
    """
    _checks.choice(weights, "weights", ("matrix", "diagonal", "uniform"))
    shards = read_shards(subposteriors, model)
    parts = moments_of(shards, diagonal=weights != "matrix")
    matrices = [np.eye(shards.dimension) if weights == "uniform" else part.precision for part in parts]
    total = np.linalg.inv(np.sum(matrices, axis=0))
    points = np.zeros((shards.shortest, shards.dimension))
    for matrix, part in zip(matrices, shards.thinned(shards.shortest), strict=True):
        points += part @ (total @ matrix).T
    effective = effective_of(shards)
    known = assumptions.noisy_precisions(shards, effective)
    findings = [known if weights == "matrix" else AssumptionCheck(known.numbers)]
    if len(parts) > 1:
        findings.append(assumptions.overlap(shards, parts, effective))
        findings.append(assumptions.gaussianity(shards, effective))
    return conclude("consensus", shards, points, findings)


def gaussian_product(
    subposteriors: Subposteriors | Iterable[PyTree],
    *,
    num_draws: int | None = None,
    seed: int = 0,
    model: Model | None = None,
) -> Combined:
    r"""The product of Gaussians fitted to the subposteriors (Neiswanger et al. 2014, the parametric method).

    .. math:: Σ = \Big(\sum_s \hatΣ_s^{-1}\Big)^{-1}, \quad μ = Σ \sum_s \hatΣ_s^{-1} \hatμ_s, \qquad θ_i ∼ N(μ, Σ)

    Result: that Gaussian, whatever the subposteriors are; it is the posterior if they are Gaussian. μ and Σ are in
    `diagnostics` ("mean", "covariance"), on the real line.

    Parameters
    ----------
    subposteriors, model
        As for `consensus`. One subposterior gives the Gaussian fitted to it.
    num_draws
        By default as many as the shortest subposterior has.
    seed
        Random seed of the draws.

    Returns
    -------
    Combined
        Independent draws.

    References
    ----------
    Neiswanger, Wang & Xing (2014), Asymptotically exact, embarrassingly parallel MCMC.

    Examples
    --------
    >>> import numpy as np
    >>> import scirocco.combine as combine
    >>> rng = np.random.default_rng(0)
    >>> shards = [rng.normal(mean, 1.0, size=10_000) for mean in (-0.5, 0.0, 0.5, 1.0)]
    >>> posterior = combine.gaussian_product(shards, num_draws=500)
    >>> posterior.draws.shape, posterior.diagnostics["covariance"].round(2)
    ((500,), array([[0.25]]))
    """
    rng = np.random.default_rng(_checks.positive_int(seed, "seed", minimum=0))
    shards = read_shards(subposteriors, model)
    number = shards.shortest if num_draws is None else _checks.positive_int(num_draws, "num_draws")
    parts = moments_of(shards)
    mean, covariance = product(parts)
    points = mean + rng.normal(size=(number, len(mean))) @ np.linalg.cholesky(covariance).T
    effective = effective_of(shards)
    findings = [
        AssumptionCheck({"mean": mean, "covariance": covariance}),
        assumptions.noisy_precisions(shards, effective),
        assumptions.gaussianity(shards, effective),
    ]
    if len(parts) > 1:
        findings.append(assumptions.overlap(shards, parts, effective))
    return conclude("gaussian_product", shards, points, findings)
