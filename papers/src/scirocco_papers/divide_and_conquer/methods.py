"""The methods of `divide-and-conquer`, each as "draws of several runs at one setting", and their tuning.

The stochastic gradient methods use batches of 50 rows drawn without replacement and start at the mode. An iteration of
SGHMC is L = 3 steps, with the momentum redrawn before each iteration. Settings are tried on separate runs,
and the one with the smallest mean divergence from exact draws is used. Steps are in units of the inverse of the
largest curvature at the mode: ε for SGLD, ε² for SGHMC.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from scirocco import combine
from scirocco.analysis import kl_knn
from scirocco.errors import DivergenceError
from scirocco.estimators import ControlVariates, Estimator, Minibatch
from scirocco.run import sample
from scirocco.samplers import SGHMC, SGLD, Sampler
from scirocco_papers.divide_and_conquer.problems import BATCH, Draws, Problem

SAMPLED, COMBINED, TODAY = ("SGLD", "SGHMC"), ("Consensus", "KDEMC", "Weierstrass"), "SGLD-CV"
JUDGED = (*SAMPLED, *COMBINED)
TRAJECTORY, NEIGHBOUR = 3, 5
STEPS = (1.0, 0.3, 0.1, 0.05, 0.02, 0.01, 0.003)
FRICTION = 0.1
"""α = εC of SGHMC, which matters little where the momentum lives for three steps."""
BANDWIDTHS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""In units of a subposterior's standard deviation."""
ACCEPTANCES = (0.003, 0.01, 0.03, 0.1, 0.3)
GRIDS: dict[str, list[tuple[float, ...]]] = {
    "SGLD": [(step,) for step in STEPS],
    "SGHMC": [(step,) for step in STEPS],
    TODAY: [(step,) for step in STEPS],
    "Consensus": [()],
    "KDEMC": [(width,) for width in BANDWIDTHS],
    "Weierstrass": [(rate,) for rate in ACCEPTANCES],
}
FOR_NORMAL: dict[str, list[tuple[float, ...]]] = {
    "KDEMC": [(0.4,), (0.8,), (1.6,), (3.2,)],
    "Weierstrass": [(0.1,), (0.3,), (0.6,), (0.9,)],
}

SHORT: dict[str, list[tuple[float, ...]]] = {
    "SGLD": [(step,) for step in STEPS[2:6]],
    "SGHMC": [(step,) for step in STEPS[2:6]],
    "Consensus": [()],
    "KDEMC": [(0.2,), (0.4,), (0.8,)],
    "Weierstrass": [(0.003,), (0.03,), (0.3,)],
}
SHORT_FOR_NORMAL: dict[str, list[tuple[float, ...]]] = {"KDEMC": [(0.8,), (1.6,)], "Weierstrass": [(0.6,), (0.9,)]}
"""Of quick runs: the settings that the full run chose on any of the posteriors that both have. Every second setting of
the grids, as they once had, lacked the best ones, and then the order of the methods was that of the gaps."""


class Plan(NamedTuple):
    """How much work."""

    num_runs: int
    num_iterations: int
    num_draws: int
    """Kept of each run: every so many iterations."""
    num_trials: int
    """Runs at each setting while tuning."""
    short: bool = False
    """Whether only the settings of `SHORT` are tried."""

    @property
    def thin(self) -> int:
        """Iterations for each kept draw."""
        return self.num_iterations // self.num_draws


class Runs(NamedTuple):
    """Draws (run, draw, d) of one method, all NaN when one chain diverged; CPU seconds that a run took to combine."""

    draws: Draws
    combining_seconds: float = 0.0


# -- the measure ---------------------------------------------------------------------------------------------


def by_neighbours(truth: Draws, draws: Draws) -> float:
    """KL(law of truth ‖ law of draws) from samples; ∞ for a run that diverged or did not move."""
    for part in (truth, draws):
        if not np.all(np.isfinite(part)) or len(np.unique(part, axis=0)) < NEIGHBOUR + 2:
            return math.inf
    return kl_knn(truth, draws, k=NEIGHBOUR)


def by_moments(mean: Draws, covariance: Draws, draws: Draws) -> float:
    """KL(N(mean, covariance) ‖ normal law with the draws' moments)."""
    if not np.all(np.isfinite(draws)):
        return math.inf
    found = np.cov(draws, rowvar=False)
    away = draws.mean(axis=0) - mean
    signs, logs = np.linalg.slogdet(np.stack([found, covariance]))
    if signs[0] <= 0:
        return math.inf
    ratio = np.linalg.solve(found, covariance + np.outer(away, away))
    return float(0.5 * (np.trace(ratio) - len(mean) + logs[0] - logs[1]))


def divergences(problem: Problem, draws: Draws, first: int, how: str = "") -> Draws:
    """KL(posterior ‖ approximation) for each run, by neighbours, from exact draws of its own (numbered from `first`).

    With "drawn": of the coordinates in the figure; "back": KL(approximation ‖ posterior); "moments": by moments, if
    normal.
    """
    shown = problem.shown if how == "drawn" else problem.dimension

    def one(number: int) -> float:
        if how == "moments" and problem.normal is not None:
            return by_moments(*problem.normal, draws[number])
        pair = (problem.exact(draws.shape[1], first + number)[:, :shown], draws[number][:, :shown])
        return by_neighbours(*(pair[::-1] if how == "back" else pair))

    return np.array([one(number) for number in range(len(draws))])


# -- stochastic gradients ------------------------------------------------------------------------------------


def sampler(name: str, setting: Sequence[float], scale: float) -> Sampler:
    """At a setting of the grid."""
    if name != "SGHMC":
        return SGLD(setting[0] / scale)
    # the noise of the minibatches is left in, as it is in SGLD: tuning decides how much of it is bearable
    found = SGHMC.from_r(setting[0] / scale, FRICTION, TRAJECTORY)
    return dataclasses.replace(found, gradient_noise=0.0)


def chains(
    problem: Problem,
    name: str,
    setting: Sequence[float],
    plan: Plan,
    num_runs: int,
    seed: int,
    start: Draws | None = None,
) -> Runs:
    """A chain for each run, a tenth of its length as burn-in."""
    steps = TRAJECTORY if name == "SGHMC" else 1
    at = jnp.asarray(problem.start if start is None else start, jnp.float32)
    how = "without_replacement"
    estimator: Estimator = Minibatch(BATCH, sampling=how)
    if name == TODAY:
        estimator = ControlVariates(BATCH, centre=jnp.asarray(problem.start, jnp.float32), sampling=how)
    try:
        run = sample(
            problem.model,
            problem.x,
            at,
            sampler=sampler(name, setting, problem.curvature),
            estimator=estimator,
            num_samples=plan.num_draws,
            num_burnin=steps * plan.num_iterations // 10,
            thin=steps * plan.thin,
            num_chains=num_runs,
            seed=seed,
            progress=False,
        )
    except DivergenceError:
        return Runs(np.full((num_runs, plan.num_draws, problem.dimension), np.nan))
    return Runs(np.asarray(run.draws, np.float64))


# -- divide and conquer --------------------------------------------------------------------------------------


def combined(name: str, shards: Draws, setting: Sequence[float], seed: int) -> Runs:
    """Combine each run's subposteriors (run, shard, draw, d).

    "published": KDEMC by one chain of the paper's moves; "diagonal": consensus with diagonal weights.
    """
    num_draws = shards.shape[2]
    how: dict[str, Callable[[list[Draws], int], Any]] = {
        "Consensus": lambda parts, seed: combine.consensus(parts),
        "diagonal": lambda parts, seed: combine.consensus(parts, weights="diagonal"),
        "KDEMC": lambda parts, seed: combine.kdemc(
            parts, num_draws=num_draws, bandwidth=setting[0], num_chains=50, num_burnin=50, seed=seed
        ),
        "published": lambda parts, seed: combine.kdemc(
            parts,
            num_draws=num_draws,
            bandwidth=setting[0],
            moves="independent",
            num_chains=1,
            num_burnin=num_draws,
            seed=seed,
        ),
        "Weierstrass": lambda parts, seed: combine.weierstrass(
            parts, num_draws=num_draws, acceptance=setting[0], seed=seed
        ),
    }

    def one(number: int) -> tuple[Draws, float]:
        began = time.thread_time()
        found = np.asarray(how[name](list(shards[number]), seed + number).draws)
        return found, time.thread_time() - began

    draws, seconds = zip(*[one(number) for number in range(len(shards))], strict=True)
    return Runs(np.stack(draws), float(np.mean(seconds)))


# -- tuning --------------------------------------------------------------------------------------------------


class Tuned(NamedTuple):
    """The setting that is used, and (setting, mean divergence) of all that were tried."""

    setting: tuple[float, ...]
    tried: list[tuple[tuple[float, ...], float]]


def grid(name: str, problem: Problem, plan: Plan) -> list[tuple[float, ...]]:
    """What is tried. For normal laws every acceptance is right, and many dimensions need wide kernels."""
    for_normal, whole = (SHORT_FOR_NORMAL, SHORT) if plan.short else (FOR_NORMAL, GRIDS)
    return for_normal.get(name, whole[name]) if problem.normal is not None else whole[name]


def tune(name: str, problem: Problem, plan: Plan, seed: int, run_at: Callable[[Sequence[float]], Runs]) -> Tuned:
    """Try the grid of a method."""
    how = "" if problem.normal is None else "moments"
    settings, tried = grid(name, problem, plan), []
    for setting in settings:
        found = divergences(problem, run_at(setting).draws, seed, how) if len(settings) > 1 else np.zeros(1)
        tried.append((setting, float(np.mean(found))))
    best = min(tried, key=lambda pair: pair[1])
    return Tuned(best[0], tried)


def compare(
    problem: Problem, plan: Plan, seed: int, names: Sequence[str], every: Draws
) -> dict[str, tuple[Tuned, Runs]]:
    """Methods on one posterior: tuned on trial runs, then run; `every`: subposteriors of trials, then of runs."""
    trial_shards, shards = every[: plan.num_trials], every[plan.num_trials :]

    def one(name: str) -> tuple[Tuned, Runs]:
        def trial(setting: Sequence[float]) -> Runs:
            if name in COMBINED:
                return combined(name, trial_shards, setting, seed + 600)
            return chains(problem, name, setting, plan, plan.num_trials, seed + 700)

        tuned = tune(name, problem, plan, seed + 500, trial)
        if name in COMBINED:
            return tuned, combined(name, shards, tuned.setting, seed)
        return tuned, chains(problem, name, tuned.setting, plan, plan.num_runs, seed + 800)

    return {name: one(name) for name in names}
