"""What a run is worth beside a known posterior: pure functions of draws, and the counting of row gradients."""

from __future__ import annotations

from typing import Any

import arviz
import jax
import numpy as np

import scirocco as sc


def flat(draws: Any) -> np.ndarray:
    """Draws (chain, draw, parameter) of all leaves, in double precision."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(draws)]
    return np.concatenate([leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves], axis=-1)


def gradients_a_step(estimator: Any, num_rows: int) -> float:
    """Gradients of single rows: two a row where a batch is compared with a centre; SVRG's passes as they come."""
    if isinstance(estimator, sc.Full):
        return float(num_rows)
    twice = 2 if isinstance(estimator, (sc.ControlVariates, sc.SVRG)) else 1
    passes = num_rows / estimator.resolved(num_rows).refresh_every if isinstance(estimator, sc.SVRG) else 0.0
    return estimator.batch_size * twice + passes


def spread_ratios(draws: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Standard deviation of all draws over the true one, a parameter each."""
    return draws.reshape(-1, draws.shape[-1]).std(axis=0) / sd


def judge(draws: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> dict[str, float]:
    """Moments against the truth; standard errors from the chains, which are independent.

    mean_error   root mean square over the parameters of (mean - true mean) / true sd of ONE chain, mean over chains
    sd_ratio     mean over the parameters of sd / true sd of all draws; its error by leaving out a chain at a time
    sd_low, sd_high   the extremes over the parameters
    ess          effective draws of all chains, the least over the parameters
    """
    each = np.sqrt(np.mean(((draws.mean(axis=1) - mean) / sd) ** 2, axis=-1))
    ratios = spread_ratios(draws, sd)
    num = len(draws)
    without = [spread_ratios(np.delete(draws, chain, axis=0), sd).mean() for chain in range(num)]
    ess = [float(arviz.ess(values, method="mean")) for values in np.moveaxis(draws, -1, 0)]
    return {
        "mean_error": float(each.mean()),
        "mean_error_se": float(each.std(ddof=1) / num**0.5),
        "sd_ratio": float(ratios.mean()),
        "sd_ratio_se": float(np.sqrt((num - 1) * np.var(without))),
        "sd_low": float(ratios.min()),
        "sd_high": float(ratios.max()),
        "ess": min(ess),
    }


def combined(seeds: list[np.ndarray]) -> np.ndarray:
    """The chains of several runs together, cut to the shortest."""
    shortest = min(draws.shape[1] for draws in seeds)
    return np.concatenate([draws[:, :shortest] for draws in seeds])
