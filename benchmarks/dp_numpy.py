"""The stochastic slice sampler of Baker et al. (2018), supplement D.3, in plain NumPy: the reference of `dp.py`.

    python benchmarks/dp_numpy.py [--seeds 0 1 2] [--data DIR]     # scores on msweb, the paper's settings

A Dirichlet-process mixture of categorical visits. A step updates sticks and components from counts that are estimated
on a minibatch, then slices and labels of that minibatch alone. SCIR or SGRLD; the products 1 - v in ω and the minus
sign in α's rate are mended where the paper's text has lost them.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dp_data
import numpy as np

TINY = 1e-300  # under a logarithm: gammas of small shape underflow to zero


@dataclass(frozen=True)
class Plan:
    """Settings of a chain; the defaults are the paper's for SCIR."""

    sampler: str = "scir"
    concentration: float = 0.5
    step_size: float = 0.1
    stick_step_size: float = 0.1
    num_clusters: int = 20
    batch_size: int = 1_000
    prior: tuple[float, float] = (1.0, 1.0)


SCIR = Plan()
SGRLD = Plan("sgrld", 0.001, 0.001, 0.005, 30)


class SliceSampler:
    """One chain: labels `z` of all rows, gammas of the sticks (2, C) and of the components (C, V), `alpha`."""

    def __init__(self, rows: Any, plan: Plan, seed: int):
        self.plan, self.rows = plan, rows
        self.rng = np.random.default_rng(seed)
        size, clusters = rows.shape, plan.num_clusters
        self.z = self.rng.integers(0, clusters, size[0])
        self.members = np.bincount(self.z, minlength=clusters)
        self.alpha = 1.0
        self.sticks = self.rng.standard_gamma(np.ones((2, clusters)))
        self.gammas = self.rng.standard_gamma(np.full((clusters, size[1]), plan.concentration))

    def step(self) -> None:
        """One minibatch."""
        plan, rng, (num_rows, width) = self.plan, self.rng, self.rows.shape
        chosen = rng.choice(num_rows, plan.batch_size, replace=False, shuffle=False)
        batch, labels = self.rows[chosen], self.z[chosen]
        top = np.flatnonzero(self.members)[-1] + 1
        scale = num_rows / plan.batch_size
        counted = scale * np.bincount(labels, minlength=top)
        later = np.append(np.cumsum(counted[:0:-1])[::-1], 0.0)
        prior = np.array([[1.0], [self.alpha]])
        self.sticks = self._move(self.sticks[:, :top], prior, np.stack([counted, later]), 0, plan.stick_step_size)
        places = np.repeat(labels, np.diff(batch.indptr)) * width + batch.indices
        visits = scale * np.bincount(places, batch.data, top * width).reshape(top, width)
        self.gammas = self._move(self.gammas[:top], plan.concentration, visits, 1, plan.step_size)
        weights, rest = self.weights()
        u = rng.random(plan.batch_size) * weights[labels]
        left = self.sticks[1] / np.maximum(self.sticks.sum(axis=0), TINY)
        rate = plan.prior[1] - np.log(np.maximum(left, TINY)).sum()
        self.alpha = rng.standard_gamma(plan.prior[0] + top) / rate
        weights = self._extend(weights, rest, u.min())
        self._label(chosen, batch, weights, u)

    def _move(self, value: np.ndarray, prior: Any, counts: np.ndarray, axis: int, step: float) -> np.ndarray:
        """Gammas whose shares have the law Dir(prior + counts) along an axis.

        SCIR: the exact CIR transition to Gamma(prior + counts, 1). SGRLD: an Euler step of Patterson & Teh's expanded
        mean, in which the counts pull the shares and the prior alone the sum.
        """
        if self.plan.sampler == "scir":
            scale = -np.expm1(-step) / 2
            return scale * self.rng.noncentral_chisquare(2 * (prior + counts), value * (np.exp(-step) / scale))
        pull = counts.sum(axis=axis, keepdims=True) / np.maximum(value.sum(axis=axis, keepdims=True), TINY)
        drift = prior + counts - value * (1 + pull)
        noise = self.rng.standard_normal(value.shape)
        return np.abs(value + step * drift + np.sqrt(2 * step * value) * noise)

    def weights(self) -> tuple[np.ndarray, float]:
        """ω of the components that are there, and what is left for all others."""
        shares = self.sticks / np.maximum(self.sticks.sum(axis=0), TINY)
        before = np.cumprod(np.append(1.0, shares[1]))
        return shares[0] * before[:-1], float(before[-1])

    def _extend(self, weights: np.ndarray, rest: float, least: float) -> np.ndarray:
        """Components from the prior until the rest is below the least slice."""
        rng, sticks, new = self.rng, [self.sticks], [weights]
        while rest > least:
            pair = rng.standard_gamma([1.0, self.alpha])
            share = pair[0] / max(pair.sum(), TINY)
            sticks.append(pair[:, None])
            new.append(np.array([share * rest]))
            rest *= 1 - share
        more = len(new) - 1
        if more:
            fresh = rng.standard_gamma(np.full((more, self.rows.shape[1]), self.plan.concentration))
            self.sticks, self.gammas = np.hstack(sticks), np.vstack([self.gammas, fresh])
        return np.concatenate(new)

    def _label(self, chosen: np.ndarray, batch: Any, weights: np.ndarray, u: np.ndarray) -> None:
        """Labels of the batch among the components whose weight is above the slice."""
        scores = batch @ self._logs().T
        scores[weights <= u[:, None]] = -np.inf
        chances = np.exp(scores - scores.max(axis=1, keepdims=True)).cumsum(axis=1)
        drawn = self.rng.random(len(u)) * chances[:, -1]
        labels = (chances <= drawn[:, None]).sum(axis=1)
        size = len(weights)
        self.members = np.append(self.members, np.zeros(max(size - len(self.members), 0), int))
        self.members -= np.bincount(self.z[chosen], minlength=len(self.members))
        self.z[chosen] = labels
        self.members += np.bincount(labels, minlength=len(self.members))

    def _logs(self) -> np.ndarray:
        components = self.gammas / np.maximum(self.gammas.sum(axis=1, keepdims=True), TINY)
        return np.log(np.maximum(components, TINY))

    def predictive(self, rows: Any) -> np.ndarray:
        """p(x) of each row as an ordered sequence of visits, given the state."""
        weights, rest = self.weights()
        scores = rows @ self._logs().T + np.log(np.maximum(weights, TINY))
        a, width = self.plan.concentration, rows.shape[1]
        return np.exp(scores).sum(axis=1) + rest * dp_data.marginal(rows, a, width)


def scored(plan: Plan, visits: Any, seed: int, num_steps: int = 1_000, every: int = 10) -> dict[str, float]:
    """Mean -log predictive of the test users: of the last state, and averaged over the later half."""
    chain, kept, spent = SliceSampler(visits.train, plan, seed), [], 0.0
    for number in range(1, num_steps + 1):
        begin = time.process_time()
        chain.step()
        spent += time.process_time() - begin
        if number > num_steps // 2 and number % every == 0:
            kept.append(chain.predictive(visits.test))
    return {
        "last": float(-np.log(kept[-1]).mean()),
        "averaged": float(-np.log(np.mean(kept, axis=0)).mean()),
        "occupied": int((chain.members > 0).sum()),
        "steps_per_s": num_steps / spent,
    }


def main() -> None:
    """Print the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    options = parser.parse_args()
    visits = dp_data.msweb(options.data)
    for name, plan in (("SCIR", SCIR), ("SGRLD", SGRLD)):
        for seed in options.seeds:
            found = scored(plan, visits, seed, options.steps)
            print(
                f"{name:6} seed {seed}: last state {found['last']:.3f}, averaged {found['averaged']:.3f}, "
                f"{found['occupied']} occupied, {found['steps_per_s']:.0f} steps per CPU s",
                flush=True,
            )


if __name__ == "__main__":
    main()
