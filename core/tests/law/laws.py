"""Closed forms for the discretised, minibatched chains on Gaussian targets, and the z-scores that compare with them."""

from __future__ import annotations

import numpy as np
import scipy.linalg

import scirocco as sc

NUM_ROWS, BATCH = 60, 6
PRIOR_PRECISION = 2.0


def log_likelihood(theta, row):
    return -0.5 * (row - theta) ** 2


def log_prior(theta):
    return -0.5 * PRIOR_PRECISION * theta**2


MODEL = sc.Model(log_likelihood, log_prior)
"""One for all tests, so that they share what is compiled for it."""


def gaussian_problem(seed: int):
    """Rows x_i ~ N(1, 2²), log likelihood -½ (x_i - θ)², prior N(0, 1/2): data, and the exact posterior."""
    x = np.random.default_rng([seed, 7]).normal(1.0, 2.0, NUM_ROWS).astype(np.float32)
    precision = NUM_ROWS + PRIOR_PRECISION
    mean = float(x.astype(np.float64).sum() / precision)
    return x, mean, precision


def gradient_noise(x: np.ndarray, sampling: str) -> float:
    """Variance of N/n Σ (x_i - θ) over a batch: the same for every θ."""
    x = x.astype(np.float64)
    scale = NUM_ROWS**2 / BATCH
    if sampling == "with_replacement":
        return scale * x.var()
    return scale * x.var(ddof=1) * (1 - BATCH / NUM_ROWS)


def stationary_covariance(transition: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """P = A P Aᵀ + Σ for the linear chain z' = A z + N(0, Σ)."""
    return scipy.linalg.solve_discrete_lyapunov(transition, noise)


def sgld_variance(eps: float, precision: float, noise: float, temperature: float = 1.0) -> float:
    """θ' = (1 - ελ)θ + ε·noise + √(2εT) ξ."""
    return float(stationary_covariance([[1 - eps * precision]], [[2 * eps * temperature + eps**2 * noise]])[0, 0])


def sghmc_variance(eps, friction, precision, noise, temperature=1.0, corrected=0.0) -> float:
    """Momentum first: r' = (1-εC) r - ελθ + ..., θ' = θ + ε r'."""
    a = 1 - eps * friction
    transition = np.array([[1 - eps**2 * precision, eps * a], [-eps * precision, a]])
    kick = 2 * eps * friction * temperature - eps**2 * corrected + eps**2 * noise
    direction = np.array([[eps], [1.0]])
    return float(stationary_covariance(transition, kick * direction @ direction.T)[0, 0])


def sghmc_variances(eps: float, friction: float, precision: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The same for matrices λ and V: the variance of each parameter."""
    a, one = 1 - eps * friction, np.eye(len(precision))
    transition = np.block([[one - eps**2 * precision, eps * a * one], [-eps * precision, a * one]])
    direction = np.vstack([eps * one, one])
    kick = 2 * eps * friction * one + eps**2 * noise
    return np.diagonal(stationary_covariance(transition, direction @ kick @ direction.T))[: len(precision)]


def sghmc_variance_position_first(eps, friction, precision) -> float:
    """The order that several libraries use: θ' = θ + ε r (OLD momentum), r' = (1-εC) r - ελθ + ..."""
    transition = np.array([[1, eps], [-eps * precision, 1 - eps * friction]])
    return float(stationary_covariance(transition, np.diag([0.0, 2 * eps * friction]))[0, 0])


def baoab_variance(eps, friction, precision, noise, temperature=1.0) -> float:
    """Kick ε, half drift, exact friction, half drift, on (θ, r)."""
    kick = np.array([[1, 0], [-eps * precision, 1]])
    drift = np.array([[1, eps / 2], [0, 1]])
    c = np.exp(-eps * friction)
    damp = np.diag([1, c])
    transition = drift @ damp @ drift @ kick
    after_kick = drift @ damp @ drift @ np.array([[0], [1.0]])
    after_friction = drift @ np.array([[0], [1.0]])
    sigma = eps**2 * noise * after_kick @ after_kick.T
    sigma = sigma + temperature * (1 - c**2) * after_friction @ after_friction.T
    return float(stationary_covariance(transition, sigma)[0, 0])


def saga_variance(eps: float, precision: float) -> float:
    """SGLD with SAGA, batches of n distinct rows: a recursion of second moments, closed because rows share a Hessian.

    Row i is remembered at the position φ_i where it was last seen. With m = mean of φ over the batch, all centred,
    θ' = θ - ε (λθ + N(φ̄ - m)) + √(2ε) ξ, φ̄' = φ̄ + a (θ - m), q' = q + a (θ² - mean over the batch of φ²), a = n/N,
    where q is the mean of all φ² and E[m²] = φ̄² + (q - φ̄²) (1 - a)/n · N/(N - 1).
    """
    n, total = BATCH, NUM_ROWS
    a, stay, push = n / total, 1 - eps * precision, eps * total
    s = (1 - a) / n * total / (total - 1)
    # unknowns: E θ², E θφ̄, E φ̄², E q. Write δ = m - φ̄: E δ = 0, E δ² = s (q - φ̄²), uncorrelated with θ and φ̄
    spread = np.array([0.0, 0.0, -s, s])
    move = np.array(
        [
            np.array([stay**2, 0, 0, 0]) + push**2 * spread,
            np.array([stay * a, stay * (1 - a), 0, 0]) - push * a * spread,
            np.array([a**2, 2 * a * (1 - a), (1 - a) ** 2, 0]) + a**2 * spread,
            np.array([a, 0, 0, 1 - a]),
        ]
    )
    return float(np.linalg.solve(np.eye(4) - move, [2 * eps, 0, 0, 0])[0])


def blocks_variance(eps: float, precision: float, arranged: np.ndarray) -> float:
    """SGLD with blocks, exactly, for n dividing N: windows of one epoch are drawn without replacement.

    Given the offset the windows partition the data, so their errors η sum to zero: variance v, covariance -v/(B-1)
    within an epoch, none between epochs. Averages over the position in the epoch.
    """
    x = arranged.astype(np.float64)
    per_epoch = NUM_ROWS // BATCH
    doubled = np.concatenate([x, x])
    starts = np.arange(NUM_ROWS)
    sums = np.array([doubled[s : s + BATCH].sum() for s in starts]) * NUM_ROWS / BATCH
    v = np.mean((sums - x.sum()) ** 2)
    a = 1 - eps * precision

    def noise_variance(steps: int) -> float:
        c = eps * a ** np.arange(steps)
        shared = 1 / (per_epoch - 1)
        return v * ((1 + shared) * np.sum(c**2) - shared * np.sum(c) ** 2) + 2 * eps * np.sum(
            a ** (2 * np.arange(steps))
        )

    boundary = noise_variance(per_epoch) / (1 - a ** (2 * per_epoch))
    phases = [a ** (2 * t) * boundary + noise_variance(t) for t in range(1, per_epoch + 1)]
    return float(np.mean(phases))


def z_score(values: np.ndarray, expected: float) -> float:
    """How many standard errors the mean of independent values is from what theory says."""
    values = np.asarray(values, np.float64)
    return float((values.mean() - expected) / (values.std(ddof=1) / np.sqrt(len(values))))


def moments(draws: np.ndarray, mean: float) -> tuple[np.ndarray, np.ndarray]:
    """For each chain: its mean, and its second moment about the exact mean (so that nothing is estimated twice)."""
    draws = np.asarray(draws, np.float64)
    return draws.mean(axis=1), ((draws - mean) ** 2).mean(axis=1)
