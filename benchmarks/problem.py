"""The one problem every side is timed on, and how its draws are judged.

Bayesian logistic regression with simulated rows. NumPy only, so that it imports in every environment. The
posterior of N = 100,000 rows and d = 50 coefficients is Gaussian to about d/N, so a Laplace approximation in
float64 serves as the exact answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NUM_ROWS, NUM_FEATURES, BATCH_SIZE, NUM_STEPS = 100_000, 50, 500, 10_000
PRIOR_VARIANCE = 10.0
STEP_SGLD = 1e-7  # theta' = theta + step * gradient + sqrt(2 * step) * normal, on every side
STEP_CV = 1e-6


@dataclass(frozen=True)
class Reference:
    """Mode and standard deviations of the posterior, in float64."""

    mode: np.ndarray
    sd: np.ndarray


def make_data(
    num_rows: int = NUM_ROWS, num_features: int = NUM_FEATURES, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 features (num_rows, num_features) and 0/1 outcomes (num_rows,)."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_rows, num_features), dtype=np.float32)
    coefficients = 0.3 * rng.standard_normal(num_features, dtype=np.float32)
    probability = 1.0 / (1.0 + np.exp(-(x @ coefficients)))
    y = (rng.random(num_rows, dtype=np.float32) < probability).astype(np.float32)
    return x, y


def laplace(x: np.ndarray, y: np.ndarray, max_iterations: int = 30) -> Reference:
    """Newton's method in float64 until the step is nothing, then the inverse Hessian's diagonal."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    prior_precision = np.eye(x.shape[1]) / PRIOR_VARIANCE
    mode = np.zeros(x.shape[1])
    for _ in range(max_iterations):
        p = 1.0 / (1.0 + np.exp(-(x @ mode)))
        gradient = x.T @ (y - p) - mode / PRIOR_VARIANCE
        hessian = x.T @ (x * (p * (1.0 - p))[:, None]) + prior_precision
        move = np.linalg.solve(hessian, gradient)
        mode = mode + move
        if np.abs(move).max() < 1e-12:
            break
    return Reference(mode, np.sqrt(np.diag(np.linalg.inv(hessian))))


def effective_sample_size(draws: np.ndarray) -> np.ndarray:
    """Effective draws of each column of (draws, dim), by Geyer's initial positive monotone sequence."""
    centred = np.asarray(draws, np.float64) - np.mean(draws, axis=0, dtype=np.float64)
    n, dim = centred.shape
    spectrum = np.fft.rfft(centred, 2 * n, axis=0)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, 2 * n, axis=0)[:n]
    correlation = covariance / covariance[0]
    num_pairs = n // 2
    pairs = correlation[: 2 * num_pairs].reshape(num_pairs, 2, dim).sum(axis=1)
    result = np.empty(dim)
    for j in range(dim):
        negative = np.flatnonzero(pairs[:, j] <= 0.0)
        kept = pairs[: negative[0] if negative.size else num_pairs, j]
        kept = np.minimum.accumulate(kept)
        result[j] = n / max(2.0 * kept.sum() - 1.0, 1.0)
    return result


def variance_ratios(draws: np.ndarray, reference: Reference) -> tuple[float, float]:
    """Mean over the coefficients of variance / exact variance: about the chain's mean, and about the mode.

    The first sees only the spread; the second also charges a chain that sits beside the mode. ``draws`` is
    (chain, draw, dim); the mean is each chain's own.
    """
    draws = np.asarray(draws, np.float64)
    exact = reference.sd**2
    about_mean = draws.var(axis=1, ddof=1).mean(axis=0) / exact
    about_mode = ((draws - reference.mode) ** 2).mean(axis=(0, 1)) / exact
    return float(about_mean.mean()), float(about_mode.mean())
