"""Logistic regression on all of covertype: how soon SGLD-CV is there, beside SGLD, NUTS and the number of rows.

    python benchmarks/covertype.py                        # everything: about ten minutes
    python benchmarks/covertype.py --only sooner flat     # some: sooner nuts flat
    python benchmarks/covertype.py --quick                # does it run? (the numbers mean nothing)

sooner  Seconds until the test log loss is within 0.001 of the final one, and 95 % of those that follow: SGLD-CV, its
        set-up included, and SGLD with each step size of a grid, the fastest of which counts. By the loss of a draw, as
        in the thesis, and by that of the predictive averaged over the later half of the draws so far, which hides most
        of what minibatches do. The same loop, model, minibatches of 500 and start (zeros), turn and turn about.
        «Final» is the averaged loss of a long run of SGLD-CV in round coordinates, the same for all.
nuts    NumPyro's NUTS on the same rows from the same start: seconds of warm-up, as far as the time allowed goes.
flat    Seconds of SGLD-CV (round coordinates, ε = 0.02) and of `sc.models.LogisticRegression` until the deviations of
        the coefficients are known to 1 % (root mean square), for N = 5,810, 58,101 and 581,012. Truth: the Laplace
        approximation, corrected by importance weights (`covertype_truth.py`).

Class 2 against the rest, 10⁴ rows held out, the thesis' prior for `sooner` and `nuts` (Laplace, scale 1), N(0, 2) for
`flat`, with the columns that are not 0 in at least 1 % of the rows. Seconds of the CPU and by the clock; compiling is
left out of the first column and in the second. A timing is never a test: the exit status is 0 whatever comes out.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import covertype_truth as posterior
import jax
import jax.numpy as jnp
import numpy as np
import tuning_data
from covertype_truth import LAPLACE, NORMAL, Rows

import scirocco as sc

LINES = ("sooner", "nuts", "flat")
BATCH, NUM_TEST = 500, 10_000
NEAR, SOONER, FLAT, PER_CENT = 0.001, 5.0, 2.0, 0.01
GRID = (5e-7, 1e-6, 2e-6, 5e-6, 1e-5)
"""Step sizes h = 2ε of SGLD, around the thesis' 5e-6, which is SGLD-CV's."""
CV_STEP, MARKS, TURNS, MOST = 5e-6, 1_000, 3, 0.95
FLAT_STEP, THIN, CHAINS = 0.02, 20, 4
"""In round coordinates; ε/4 of a standard deviation is what such a step adds, half of the 1 % that is asked for."""


def seconds(run: Any, part: str) -> dict[str, float]:
    """Of a run: its set-up, or all its steps."""
    if part == "setup":
        return {kind: run.timing["setup"][kind] for kind in ("wall", "cpu")}
    return {kind: run.timing["first_chunk"][kind] + run.timing["sampling"][kind] for kind in ("wall", "cpu")}


# -- sooner --------------------------------------------------------------------------------------------------


@jax.jit
def chances(draws: Any, x: Any) -> Any:
    """Of class 2, (draw, row)."""
    return jax.nn.sigmoid(draws @ x.T)


def losses_of(draws: np.ndarray, test: Rows) -> dict[str, np.ndarray]:
    """Log loss at every draw: of the draw, and of the predictive averaged over the later half of the draws so far."""
    each = np.asarray(chances(draws, test.x), np.float64)
    sums = np.concatenate([np.zeros((1, each.shape[1])), np.cumsum(each, axis=0)])
    ends = np.arange(1, len(draws) + 1)
    begins = ends // 2
    averaged = (sums[ends] - sums[begins]) / (ends - begins)[:, None]
    return {"draw": _log_loss(each, test), "averaged": _log_loss(averaged, test)}


def _log_loss(chance: np.ndarray, test: Rows) -> np.ndarray:
    return -np.mean(np.log(np.where(np.asarray(test.y) == 1, chance, 1 - chance)), axis=1)


def arrival(losses: np.ndarray, final: float) -> float:
    """The share of the run after which at least 95 % of the losses are near the final one; infinite: never."""
    near = np.abs(losses - final) <= NEAR
    later = np.cumsum(near[::-1])[::-1] / np.arange(len(near), 0, -1)
    good = np.flatnonzero(near & (later >= MOST))
    return (good[0] + 1) / len(near) if len(good) and good[0] < MOST * len(near) else math.inf


def sooner(train: Rows, test: Rows, quick: bool) -> dict[str, Any]:
    """Both sides, turn and turn about; the first turn compiles."""
    num_steps = 2_000 if quick else 100_000
    thin = max(1, num_steps // MARKS)
    sides = {"SGLD-CV": (CV_STEP, sc.ControlVariates(BATCH))} | {
        f"SGLD, h = {h:g}": (h, sc.Minibatch(BATCH)) for h in GRID
    }
    turns: dict[str, list[Any]] = {name: [] for name in sides}
    for turn in range(TURNS):
        for name, (h, estimator) in sides.items():
            run = draw(LAPLACE, train, sc.SGLD(h / 2), estimator, num_steps, thin, turn)
            turns[name].append((losses_of(run.draws[0], test), seconds(run, "setup"), seconds(run, "steps")))
    long = draw(LAPLACE, train, sc.Preconditioned(sc.SGLD()), sc.ControlVariates(BATCH), num_steps // 2, thin, 9)
    final = float(losses_of(long.draws[0], test)["averaged"][-1])
    return {what: _compare(turns, what, final) for what in ("draw", "averaged")} | {"final": final}


def _compare(turns: dict[str, list[Any]], what: str, final: float) -> dict[str, Any]:
    """One way to score: a line a side, and the fastest SGLD over SGLD-CV."""

    def until(losses: Any, setup: dict[str, float], steps: dict[str, float]) -> dict[str, float]:
        share = arrival(losses[what], final)
        return {kind: setup[kind] + share * steps[kind] for kind in setup}

    found = {name: [until(*each) for each in done] for name, done in turns.items()}
    best = {name: min(each[1:], key=lambda s: s["cpu"]) for name, each in found.items()}
    kind = {"draw": "a draw", "averaged": "the averaged predictive"}[what]
    print(f"\nsooner: log loss of {kind} within {NEAR} of {final:.5f}, s of the CPU and by the clock")
    for name, each in best.items():
        first = found[name][0]
        print(
            f"  {name:20} {each['cpu']:8.2f} {each['wall']:8.2f}   compiling included {first['cpu']:8.2f} "
            f"{first['wall']:8.2f}   mean loss of the last half {_late(turns[name][-1][0][what]):.5f}",
            flush=True,
        )
    fastest = min((name for name in best if name != "SGLD-CV"), key=lambda name: best[name]["cpu"])
    ratio = best[fastest]["cpu"] / best["SGLD-CV"]["cpu"]
    verdict(f"{fastest} / SGLD-CV, CPU", ratio, SOONER, at_least=True)
    same = best[f"SGLD, h = {CV_STEP:g}"]["cpu"] / best["SGLD-CV"]["cpu"]
    verdict("SGLD with SGLD-CV's step / SGLD-CV, CPU", same, SOONER, at_least=True)
    return {"sides": found, "ratio": ratio, "same_step": same}


def _late(losses: np.ndarray) -> float:
    return float(losses[len(losses) // 2 :].mean())


def draw(
    model: Any, rows: Rows, sampler: Any, estimator: Any, num_steps: int, thin: int, seed: int, num_chains: int = 1
) -> Any:
    """Chains from zeros."""
    return sc.sample(
        model,
        rows,
        jnp.zeros(rows.x.shape[1]),
        sampler=sampler,
        estimator=estimator,
        num_samples=num_steps // thin,
        thin=thin,
        num_chains=num_chains,
        seed=seed,
        progress=False,
    )


def verdict(name: str, value: float, bar: float, at_least: bool = False) -> None:
    """One line with its bar."""
    met = "met" if (value >= bar if at_least else value <= bar) else "NOT met"
    print(f"  {name:46}{value:9.2f}   (bar {'>=' if at_least else '<='} {bar:g}: {met})", flush=True)


# -- nuts ----------------------------------------------------------------------------------------------------


def nuts(train: Rows, allowed: float, num_warmup: int = 500) -> dict[str, Any]:
    """As many iterations of warm-up as there is time for."""
    from numpyro.infer.hmc import hmc

    rows = jax.tree.map(jnp.asarray, train)
    init, move = hmc(potential_fn_gen=lambda rows: lambda at: -LAPLACE.look(at, rows), algo="NUTS")
    state = init(jnp.zeros(train.x.shape[1]), num_warmup, model_args=(rows,), rng_key=jax.random.PRNGKey(0))
    step = jax.jit(lambda state, rows: move(state, model_args=(rows,)))
    program = step.lower(state, rows).compile()
    wall, cpu, done = time.perf_counter(), time.process_time(), 0
    while done < num_warmup and time.perf_counter() - wall < allowed:
        state = jax.block_until_ready(program(state, rows))
        done += 1
    found = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "done": done}
    more = "" if done == num_warmup else ">"
    print(
        f"\nnuts: warm-up {more}{found['wall']:.0f} s by the clock, CPU {more}{found['cpu']:.0f} s; {done} of "
        f"{num_warmup} iterations done",
        flush=True,
    )
    return found


# -- flat ----------------------------------------------------------------------------------------------------


def flat(rows: Rows, quick: bool) -> dict[str, Any]:
    """Seconds to 1 % for three sizes."""
    rows, found = posterior.common(rows), {}
    samplers = {f"SGLD, ε = {FLAT_STEP}": (sc.Preconditioned(sc.SGLD(FLAT_STEP)), 600_000)}
    exact = {}
    for size, num_draws in ((5_810, 20_000), (58_101, 8_000), (len(rows.y), 2_000)):
        part = Rows(rows.x[:size], rows.y[:size])
        exact[size] = part, posterior.truth(part, num_draws // 4 if quick else num_draws)
    for name, (sampler, num_steps) in samplers.items():
        print(f"\nflat: {name}, control variates: N, s of the CPU and by the clock until the sds are known to 1 %")
        found[name] = {
            size: _to_one_per_cent(part, sampler, num_steps // (50 if quick else 1), truth)
            for size, (part, truth) in exact.items()
        }
        cpu = [each["cpu"] for each in found[name].values()]
        verdict("longest / shortest, CPU", max(cpu) / min(cpu), FLAT)
    name = "LogisticRegression, four chains together"
    print(f"\nflat: {name}: N, s of the CPU and by the clock until the sds are known to 1 %")
    found[name] = {size: _by_model(part, truth, quick) for size, (part, truth) in exact.items()}
    cpu = [each["cpu"] for each in found[name].values()]
    verdict("longest / shortest, CPU", max(cpu) / min(cpu), FLAT)
    return found


def _by_model(part: Rows, truth: posterior.Truth, quick: bool) -> dict[str, Any]:
    """As a user types it; the second fit compiles nothing."""
    num_samples = 200 if quick else 4_000
    for seed in range(2):
        model = sc.models.LogisticRegression(
            "normal", scale=posterior.PRIOR_VARIANCE**0.5, intercept=False, num_samples=num_samples, seed=seed
        )
        began = {"wall": time.perf_counter(), "cpu": time.process_time()}
        model.fit(part.x, part.y, progress=False)
        taken = {"wall": time.perf_counter() - began["wall"], "cpu": time.process_time() - began["cpu"]}
    draws = np.asarray(model.run_.draws["coef"], np.float64)
    marks = np.unique(np.linspace(20, num_samples, 200).astype(int))
    errors = np.array(
        [np.sqrt(np.mean((draws[:, :k].reshape(-1, draws.shape[-1]).std(axis=0) / truth.sd - 1) ** 2)) for k in marks]
    )
    late = np.flatnonzero(errors > PER_CENT)
    reached = late[-1] + 1 if len(late) else 0
    share = marks[reached] / num_samples if reached < len(marks) else math.inf
    steps = seconds(model.run_, "steps")
    each: dict[str, Any] = {kind: taken[kind] - (1 - share) * steps[kind] for kind in taken}
    batch = model.run_.configuration["estimator"].get("batch_size", "all")
    print(
        f"  {len(part.y):8,} {each['cpu']:8.2f} {each['wall']:8.2f}   set-up {taken['cpu'] - steps['cpu']:.2f}   "
        f"batches of {batch}   draws {4 * share * num_samples:9,.0f}   last error {errors[-1]:.4f}",
        flush=True,
    )
    return each | {"last": float(errors[-1]), "batch": batch}


def _to_one_per_cent(part: Rows, sampler: Any, num_steps: int, truth: posterior.Truth) -> dict[str, Any]:
    """Of one chain, set-up included; the error is the root mean square over four, of a run that compiles nothing."""
    first = draw(NORMAL, part, sampler, sc.ControlVariates(BATCH), 1_000, THIN, 0)
    compiling = sum(seconds(first, which)["cpu"] for which in ("setup", "steps"))
    run = draw(NORMAL, part, sampler, sc.ControlVariates(BATCH), num_steps, THIN, 1, CHAINS)
    squares = [sd_errors(np.asarray(chain, np.float64), truth.sd) ** 2 for chain in run.draws]
    errors = np.sqrt(np.mean(squares, axis=0))
    late = np.flatnonzero(errors > PER_CENT)
    reached = late[-1] + 1 if len(late) else 0
    share = (reached + 1) / len(errors) if reached < len(errors) else math.inf
    setup, steps = seconds(run, "setup"), seconds(run, "steps")
    each: dict[str, Any] = {kind: setup[kind] + share * steps[kind] / CHAINS for kind in setup}
    print(
        f"  {len(part.y):8,} {each['cpu']:8.2f} {each['wall']:8.2f}   set-up {setup['cpu']:.2f}   compiling "
        f"{compiling:.2f}   steps {share * num_steps:9,.0f}   last error {errors[-1]:.4f}   (truth: {truth.ess:,.0f} "
        "effective draws)",
        flush=True,
    )
    return each | {"steps": share * num_steps, "last": errors[-1], "setup": setup, "compiling": compiling}


def sd_errors(draws: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Root mean square over the coefficients of sd / exact - 1, of all draws so far, at every draw."""
    count = np.arange(1, len(draws) + 1)[:, None]
    away = draws - draws[0]
    first, second = np.cumsum(away, axis=0) / count, np.cumsum(away**2, axis=0) / count
    sd = np.sqrt(np.maximum(second - first**2, 0.0))
    return np.sqrt(np.mean((sd / exact - 1) ** 2, axis=1))


def main() -> None:
    """Print the lines that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=LINES, default=LINES, metavar="LINE")
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument("--nuts-seconds", type=float, default=200.0, help="time that NUTS is given")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all numbers to this file")
    options = parser.parse_args()
    data = tuning_data.covertype(options.data)
    order = np.random.default_rng(0).permutation(len(data.y))
    rows = Rows(data.x[order], data.y[order])
    if options.quick:
        rows = Rows(rows.x[::10], rows.y[::10])
    test, train = (Rows(*(leaf[part] for leaf in rows)) for part in (slice(NUM_TEST), slice(NUM_TEST, None)))
    results: dict[str, Any] = {}
    if "sooner" in options.only:
        results["sooner"] = sooner(train, test, options.quick)
    if "nuts" in options.only:
        results["nuts"] = nuts(train, 10.0 if options.quick else options.nuts_seconds)
    if "flat" in options.only:
        results["flat"] = flat(rows, options.quick)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
