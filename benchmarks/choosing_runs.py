"""Running the cells of `choosing.py`: two seeds of four chains, of which the first compiles and the second is timed."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

import choosing_measures as measures
import numpy as np
from choosing_cells import Cell
from choosing_problems import Problem

import scirocco as sc
from scirocco.errors import DivergenceError, SciroccoWarning
from scirocco_papers.nuts import Nuts

NUM_CHAINS, NUM_SEEDS, KEPT = 4, 2, 2_000
BURNIN = 0.2
NUTS_ITERATIONS = {"plain": (200, 200), "small": (500, 2_000)}
"""Warm-up and draws."""


def sampled(problem: Problem, sampler: Any, estimator: Any, seed: int, budget: float | None = None) -> Any:
    """A run within the budget of row gradients, a fifth of which is burn-in."""
    cost = measures.gradients_a_step(estimator, problem.num_rows)
    num_steps = int((problem.budget if budget is None else budget) / cost)
    burnin = int(BURNIN * num_steps)
    thin = max(1, math.ceil((num_steps - burnin) / KEPT))
    with warnings.catch_warnings(action="ignore", category=SciroccoWarning):
        return sc.sample(
            problem.model,
            problem.data,
            problem.start,
            sampler=sampler,
            estimator=estimator,
            num_samples=(num_steps - burnin) // thin,
            num_burnin=burnin,
            thin=thin,
            num_chains=NUM_CHAINS,
            seed=seed,
            progress=False,
        )


def measured(cell: Cell) -> dict[str, Any]:
    """A line of a table; `diverged` where a chain left the finite numbers."""
    if cell.sampler is None:
        return _nuts(cell.problem)
    try:
        return _measured(cell.problem, cell.sampler, cell.estimator)
    except DivergenceError as error:
        return {"diverged": str(error)}


def _measured(problem: Problem, sampler: Any, estimator: Any) -> dict[str, Any]:
    runs = []
    for seed in range(NUM_SEEDS):
        start = time.process_time()
        runs.append(sampled(problem, sampler, estimator, seed))
        cpu = time.process_time() - start
    last = runs[-1]
    draws = measures.combined([measures.flat(problem.view(run.draws)) for run in runs])
    found = measures.judge(draws, problem.truth.mean, problem.truth.sd)
    cost = measures.gradients_a_step(estimator, problem.num_rows)
    num_steps = int(problem.budget / cost)
    setup = last.timing["setup"]["cpu"]
    one_call = found["ess"] / NUM_SEEDS
    configuration = last.configuration["sampler"]
    out = found | {
        "num_steps": num_steps,
        "ess_per_cpu_s": one_call / (cpu - setup),
        "ess_per_million_gradients": 1e6 * one_call / (NUM_CHAINS * num_steps * cost),
        "steps_per_cpu_s": NUM_CHAINS * num_steps / (cpu - setup),
        "sampling_cpu_s": cpu - setup,
        "setup_cpu_s": setup,
        "setup_passes": last.preparation.get("passes", 0.0),
        "step_size": configuration.get("inner", configuration).get("step_size"),
    }
    if "concentration" in problem.extra:
        out["ks"] = _ks(draws, problem.extra["concentration"])
    return out


def _ks(draws: np.ndarray, concentration: np.ndarray) -> float:
    """Distance to the Dirichlet law, mean over the chains."""
    return float(np.mean([sc.analysis.ks_dirichlet(chain, concentration) for chain in draws]))


def _nuts(problem: Problem) -> dict[str, Any]:
    """NumPyro's, in double precision, a chain a seed; its CPU seconds include the warm-up."""
    warmup, draws = NUTS_ITERATIONS[problem.name]
    nuts = Nuts(problem.model.look, problem.start, problem.data, num_warmup=warmup, num_draws=draws)
    results = [nuts.run(seed) for seed in range(NUM_SEEDS)]
    found = measures.judge(np.stack([result.draws for result in results]), problem.truth.mean, problem.truth.sd)
    cpu = sum(result.seconds["cpu"] for result in results)
    return found | {
        "num_steps": warmup + draws,
        "ess_per_cpu_s": found["ess"] / cpu,
        "steps_per_cpu_s": NUM_SEEDS * (warmup + draws) / cpu,
        "sampling_cpu_s": cpu / NUM_SEEDS,
    }


# -- step size, batch size, diagnosis ------------------------------------------------------------------------

MULTIPLES = (1 / 16, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0, 16.0)
BATCHES = (50, 500, 5_000)
SWEPT = {
    "SGLD, ControlVariates": (sc.SGLD, "ControlVariates"),
    "SGLD, Minibatch": (sc.SGLD, "Minibatch"),
    "BAOAB, ControlVariates": (sc.BAOAB, "ControlVariates"),
}
KINDS = {"ControlVariates": sc.ControlVariates, "Minibatch": sc.Minibatch}


def step_sizes(problem: Problem, quick: bool) -> dict[str, Any]:
    """Multiples of the step size that is chosen by default with control variates; one program serves them all."""
    out: dict[str, Any] = {}
    for name, (make, kind) in SWEPT.items():
        if quick and name != "SGLD, ControlVariates":
            continue
        chosen = _chosen(problem, make)
        lines = []
        for multiple in (0.25, 1.0, 4.0) if quick else MULTIPLES:
            line: dict[str, Any] = {"multiple": multiple, "step_size": chosen * multiple}
            try:
                run = sampled(problem, make(chosen * multiple), KINDS[kind](problem.batch_size), seed=7)
                line |= measures.judge(measures.flat(run.draws), problem.truth.mean, problem.truth.sd)
            except DivergenceError:
                line["diverged"] = True
            lines.append(line)
        out[name] = {"chosen": chosen, "lines": lines}
    return out


def _chosen(problem: Problem, make: Any) -> float:
    """The default with control variates."""
    run = sampled(problem, make(), sc.ControlVariates(problem.batch_size), 0, problem.budget / 100)
    return float(run.configuration["sampler"]["step_size"])


def batch_sizes(problem: Problem) -> dict[str, Any]:
    """The default step size of SGLD at several batch sizes, the same number of row gradients."""
    return {
        name: {str(size): _measured(problem, sc.SGLD(), kind(size)) for size in BATCHES} for name, kind in KINDS.items()
    }


def diagnoses(plain: Problem, raw: Problem, bimodal: Problem) -> list[dict[str, Any]]:
    """What `diagnose` says of runs that are right and wrong in known ways."""
    step = _chosen(plain, sc.SGLD)
    batch = plain.batch_size
    cases = [
        ("the defaults", plain, sc.SGLD(), sc.ControlVariates(batch)),
        ("a step 16 times as large", plain, sc.SGLD(16 * step), sc.ControlVariates(batch)),
        ("a step 100 times as small", plain, sc.SGLD(step / 100), sc.ControlVariates(batch)),
        ("the same step with plain minibatches", plain, sc.SGLD(step), sc.Minibatch(batch)),
        ("raw units, the defaults", raw, sc.SGLD(), sc.ControlVariates(batch)),
        ("two modes, the defaults", bimodal, sc.SGLD(), sc.ControlVariates(batch)),
    ]
    return [_diagnosed(*case) for case in cases]


def _diagnosed(case: str, problem: Problem, sampler: Any, estimator: Any) -> dict[str, Any]:
    run = sampled(problem, sampler, estimator, seed=3)
    said = sc.analysis.diagnose(run)
    found = measures.judge(measures.flat(run.draws), problem.truth.mean, problem.truth.sd)
    advice = [finding.advice for finding in said.findings]
    return {"case": case, "problem": problem.name, "says": list(said.names), "advice": advice} | found
