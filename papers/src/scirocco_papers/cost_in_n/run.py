"""Rows that SGLD and SGLD-CV visit for a fixed accuracy, as the number of observations grows (thesis section 3.3).

A logistic regression whose posterior is known exactly at any size (`counted_logistic`). Many chains start at the mode,
so that their distribution after K steps can be compared with the posterior, as in the thesis' theorem. Its error is
the largest over the parameters of

    √((mean - mean*)² + (sd - sd*)²) / sd*,

the W₂ distance of normal laws with these moments in units of the posterior's sd; what chance has in it (3/2 over the
number of chains, squared) is taken off. A setting (ε, n) reaches the accuracy when the second half of a long run has an
error of at most `ACCURACY`; K is the first such step. The cost is K n, rows visited by one chain.

For each ρ = ε λ_max in `RHOS` the smallest n on the grid N, N/√2, N/2, ... that reaches it is searched for; the
cheapest of all counts. Batches are drawn as the library does by default. Not counted: the passes that find the mode and
the gradient there, which SGLD-CV needs and which SGLD is given here at no cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from scirocco.analysis.cost import sgld_cv_cost, sgld_settings
from scirocco.estimators import ControlVariates, Minibatch
from scirocco.run import sample
from scirocco.samplers import SGLD
from scirocco_papers.base import Outcome, Settings
from scirocco_papers.cost_in_n.claims import draw, judge, notes
from scirocco_papers.cost_in_n.counted import LARGEST_SMOOTHNESS, MODEL, Truth, count, exact, simulate

ACCURACY = 0.1
SIZES, QUICK_SIZES = (1_000, 10_000, 100_000, 1_000_000), (1_000, 10_000, 100_000)
RHOS, QUICK_RHOS = (0.1, 0.2), (0.1,)
NUM_CHAINS = 600
RELAXATIONS = 2.0
"""Length of a run, in relaxation times of the slowest direction; the variance then lacks e⁻⁴."""
_TIMES = 40
_WIDE = 1_000  # rows of a batch up to which all chains go side by side


class Trial(NamedTuple):
    """A setting, and whether and when its distribution was near enough."""

    step_size: float
    batch_size: int
    error: float
    """The error of the second half of the run."""
    num_steps: int | None
    """K; None: the accuracy was not reached."""

    @property
    def cost(self) -> float:
        """K n."""
        return math.inf if self.num_steps is None else float(self.num_steps * self.batch_size)


def law_error(draws: np.ndarray[Any, np.dtype[Any]], truth: Truth, num_independent: int) -> float:
    """The error of draws (..., 3), of which so many are independent."""
    draws = draws.reshape(-1, draws.shape[-1]).astype(np.float64)
    shift = (draws.mean(axis=0) - truth.mean) / truth.sd
    stretch = draws.std(axis=0, ddof=1) / truth.sd - 1.0
    # both have errors by chance: variances 1/C and 1/(2C), in a law with the posterior's sd
    return math.sqrt(max(0.0, float(np.max(shift**2 + stretch**2)) - 1.5 / num_independent))


def first_time(draws: np.ndarray[Any, np.dtype[Any]], truth: Truth, accuracy: float) -> tuple[float, int | None]:
    """The error of the later half of draws (chain, time, 3), and the first time at which it is small enough."""
    num_chains, num_times = draws.shape[:2]
    # neighbours in time are nearly the same draw: no more independent ones than chains are assumed
    settled = law_error(draws[:, num_times // 2 :], truth, num_chains)
    if settled > accuracy:  # a law that goes on widening is near the right one only in passing
        return settled, None
    near = [law_error(draws[:, time], truth, num_chains) <= accuracy for time in range(num_times)]
    return settled, near.index(True) + 1 if any(near) else None


def batch_grid(num_rows: int) -> list[int]:
    """N, N/√2, N/2, ... down to 1, rounded up."""
    return sorted({math.ceil(num_rows / 2 ** (0.5 * k)) for k in range(math.ceil(2 * math.log2(num_rows)) + 1)})


def smallest(grid: list[int], guess: float, attempt: Callable[[int], Trial], ceiling: float = math.inf) -> Trial | None:
    """The first size on the grid that succeeds, looked for from a guess on; None where no size below `ceiling` does."""
    start = max(0, int(np.searchsorted(grid, guess, side="right")) - 1)
    found = None
    for size in grid[start:]:
        if size >= ceiling:
            return None
        found = attempt(size)
        if found.num_steps is not None:
            break
    if found is None or found.num_steps is None:
        return None
    if found.batch_size == grid[start]:  # at once: smaller ones have not been tried
        for size in grid[:start][::-1]:
            smaller = attempt(size)
            if smaller.num_steps is None:
                break
            found = smaller
    return found


def guess_batch(method: str, rho: float, num_rows: int) -> float:
    """Where to begin the search.

    Independent batches make the variance of SGLD larger by a factor 1 + ρN/2n, the step by 1/(1 - ρ/2); the batches of
    one epoch are disjoint, which takes off about two thirds of their noise.
    """
    if method == "sgld_cv":
        return 1.0
    room = (1.0 + ACCURACY) ** 2 * (1.0 - 0.5 * rho) - 1.0
    return 0.5 * rho * num_rows / (3.0 * room)


def least_steps(rho: float, truth: Truth) -> int:
    """Steps in which the sd of the slowest direction grows from 0 to 1 - a where it ends at 1 + a, a the accuracy."""
    keep = 1.0 - rho * float(truth.curvatures[0] / truth.curvatures[-1])
    share = ((1.0 - ACCURACY) / (1.0 + ACCURACY)) ** 2
    return max(1, math.ceil(0.5 * math.log(1.0 - share) / math.log(keep)))


def run(settings: Settings) -> Outcome:
    """Every size in turn, both methods."""
    quick, seed = settings.quick, settings.seed or 0
    sizes = QUICK_SIZES if quick else SIZES
    all_rows = simulate(max(sizes), seed)
    rhos = QUICK_RHOS if quick else RHOS
    table = [_one_size(all_rows[:size], rhos, seed) for size in sizes]
    numbers = {"accuracy": ACCURACY, "sizes": list(sizes), "results": table}
    return Outcome(
        judge(table, ACCURACY), numbers, lambda figure: draw(figure, table, ACCURACY), notes(table, ACCURACY)
    )


def _one_size(rows: np.ndarray[Any, np.dtype[Any]], rhos: tuple[float, ...], seed: int) -> dict[str, Any]:
    truth, size = exact(count(rows)), len(rows)
    found: dict[str, Any] = {"num_rows": size, "noise": truth.noise, "noise_cv": truth.noise_cv}
    for method in ("sgld", "sgld_cv"):
        best = Trial(math.nan, 0, math.nan, None)
        for rho in rhos:

            def attempt(batch_size: int, method: str = method, rho: float = rho) -> Trial:
                return _attempt(method, rows, truth, rho, batch_size, seed)

            ceiling = best.cost / least_steps(rho, truth)  # larger batches cannot be cheaper
            trial = smallest(batch_grid(size), guess_batch(method, rho, size), attempt, ceiling)
            best = trial if trial is not None and trial.cost < best.cost else best
        found[method] = best._asdict() | {"rows": best.cost, "rho": best.step_size * truth.curvatures[-1]}
    return found | {"theory": theory(truth, size)}


def theory(truth: Truth, num_rows: int) -> dict[str, float]:
    """Rows that are certainly enough, with the least curvature as it is at the mode."""
    dimension, least = len(truth.mean), float(truth.curvatures[0])
    constants: dict[str, Any] = {
        "strong_concavity": least,
        "smoothness": LARGEST_SMOOTHNESS * num_rows,
        "dimension": dimension,
    }
    centre = float(np.linalg.norm(truth.mode - truth.mean))
    start = math.sqrt(centre**2 + dimension / least)
    plain = sgld_settings(ACCURACY, row_variance=truth.noise / dimension, start_distance=start, **constants)
    return {"sgld": plain.cost, "sgld_cv": sgld_cv_cost(ACCURACY, centre_distance=centre, **constants)}


def _attempt(
    method: str, rows: np.ndarray[Any, np.dtype[Any]], truth: Truth, rho: float, batch_size: int, seed: int
) -> Trial:
    """One setting: all chains, for a few relaxation times."""
    step_size = rho / float(truth.curvatures[-1])
    num_steps = RELAXATIONS / (step_size * float(truth.curvatures[0]))
    thin = max(1, math.ceil(num_steps / _TIMES))
    mode = truth.mode.astype(np.float32)
    result = sample(
        MODEL,
        rows,
        jnp.asarray(mode),
        sampler=SGLD(step_size),
        estimator=Minibatch(batch_size) if method == "sgld" else ControlVariates(batch_size, centre=mode),
        num_samples=math.ceil(num_steps / thin),
        thin=thin,
        num_chains=NUM_CHAINS,
        seed=seed,
        chain_method="vmap" if batch_size <= _WIDE else "threads",
        progress=False,
    )
    error, time = first_time(np.asarray(result.draws), truth, ACCURACY)
    return Trial(step_size, batch_size, error, None if time is None else time * thin)
