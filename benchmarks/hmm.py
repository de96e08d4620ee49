"""Hidden Markov models: held-out log likelihood by CPU seconds beside EM of hmmlearn and dynamax, and coverage.

    python benchmarks/hmm.py speed                    # 10⁶ observations, 5 states, one core: about five minutes
    python benchmarks/hmm.py speed --emissions poisson
    python benchmarks/hmm.py speed --size 100000 --sets 4      # a quick look, also at series with random parameters
    python benchmarks/hmm.py coverage                 # 90 % intervals over 200 simulated data sets
    python benchmarks/hmm.py samplers                 # SCIR, SCIR-CV and SGRLD beside the exact sampler

speed     CPU seconds until the held-out log likelihood per observation is within 10⁻⁴ of the best that EM reaches.
          hmmlearn (implementation="scaling", its faster one) and dynamax run in an environment of their own; their
          k-means starts are counted, and so are our short chains. Scoring is not timed, nor is compiling. Our starts
          were chosen with the first set, so look at the others, too. pomegranate needs PyTorch: it is not compared.
samplers  the same mark for the stochastic samplers, and the posterior mean and deviation of a transition.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import environments
import numpy as np

import scirocco as sc
from scirocco_latent.hmm.gibbs import StateChain, StatePrior, log_likelihoods
from scirocco_latent.hmm.priors import resolve
from scirocco_latent.hmm.series import read

NEAR = 1e-4
GOAL = 5.0
PASSES = 8
STAY = np.array([0.98, 0.95, 0.9, 0.97, 0.93])


def transitions() -> np.ndarray:
    rest = np.array([[0, 4, 3, 2, 1], [1, 0, 4, 3, 2], [2, 1, 0, 4, 3], [3, 2, 1, 0, 4], [4, 3, 2, 1, 0]]) / 10
    return np.diag(STAY) + (1 - STAY)[:, None] * rest


def states(moves: np.ndarray, length: int, rng: np.random.Generator) -> np.ndarray:
    edges, drawn, z = np.cumsum(moves, axis=1), rng.random(length), np.zeros(length, int)
    for t in range(1, length):
        z[t] = min(np.searchsorted(edges[z[t - 1]], drawn[t]), len(moves) - 1)
    return z


def simulated(kind: str, length: int, seed: int, world: int = 0) -> np.ndarray:
    """A series; world 0 is the one with which starts were chosen, the others have parameters at random."""
    rng, drawn = np.random.default_rng(seed), np.random.default_rng([world, 5])
    moves, means, deviations = transitions(), np.array([0.0, 1.5, 3.0, 5.0, 8.0]), [1.0, 0.7, 1.2, 1.0, 2.0]
    rates, shares = (np.array([1.0, 3.0, 7.0, 13.0, 25.0]), np.random.default_rng(1).dirichlet(np.full(12, 0.3), 5))
    if world:
        stay, rest = drawn.uniform(0.85, 0.99, 5), drawn.dirichlet(np.ones(5), 5) * (1 - np.eye(5))
        moves = np.diag(stay) + (1 - stay)[:, None] * rest / rest.sum(axis=1, keepdims=True)
        means, deviations = drawn.normal(0.0, 3.0, 5), drawn.uniform(0.5, 1.5, 5)
        rates, shares = drawn.gamma(1.0, 10.0, 5), drawn.dirichlet(np.full(12, 0.3), 5)
    z = states(moves, length, rng)
    if kind == "gaussian":
        return means[z] + np.array(deviations)[z] * rng.normal(size=length)
    if kind == "poisson":
        return rng.poisson(rates[z])
    return np.minimum((rng.random(length)[:, None] > np.cumsum(shares, axis=1)[z]).sum(axis=1), 11)


def ours(kind: str, x: np.ndarray, held: np.ndarray, passes: int, seed: int) -> list[list[float]]:
    """[CPU seconds, held-out log likelihood per observation] of the current state of one chain, one thread."""
    given, after = read(x), read(held)
    begin = time.process_time()
    emission = resolve(kind, given, 5, None, None)
    data = emission.encode(given)
    chain = StateChain(
        StatePrior(5, 1.0, 0.0, emission),
        data,
        given.bounds,
        batch_size=65_536,
        num_starts=16,
        seed=seed,
        chain=0,
        num_threads=1,
    )
    spent, marks = time.process_time() - begin, []
    coded = emission.encode(after)
    constant = emission.constant(coded).sum()
    for _ in range(passes * chain.batches):
        begin = time.process_time()
        chain.advance(1)
        spent += time.process_time() - begin
        assert chain.params is not None
        logs, _ = log_likelihoods(emission, chain.params, coded, after.bounds, 1)
        marks.append([spent, float(logs.sum() + constant) / len(held)])
    return marks


def reached(marks: list[list[float]], target: float) -> float:
    """Seconds until the target; infinity: never."""
    return next((seconds for seconds, score in marks if score >= target), np.inf)


def speed(kind: str, size: int, worlds: list[int], rivals: list[str]) -> None:
    ours(kind, simulated(kind, 5_000, 0), simulated(kind, 500, 1), 1, 0)  # compiles
    print(f"{kind} emissions, {size:,} observations, 5 states, one core")
    for world in worlds:
        x, held = simulated(kind, size, 0, world), simulated(kind, min(size, 100_000), 1, world)
        own = ours(kind, x, held, PASSES, world)
        top = max(score for _, score in own)
        a_pass = (own[-1][0] - own[0][0]) / (len(own) - 1) * len(own) / PASSES
        print(f"  set {world}: ours {top:.5f} ({a_pass:.2f} CPU s a pass)", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "series.npz"
            np.savez(path, x=x, held=held, num_states=5)
            for rival in rivals:
                script = Path(__file__).parent / "rivals" / f"hmm_{rival}.py"
                said = subprocess.run(
                    [environments.series_python(), str(script), str(path), kind, "60", str(world)],
                    capture_output=True,
                    text=True,
                    check=True,
                    env=environments.child_variables(False, None),
                )
                compared(rival, json.loads(said.stdout), own)


def compared(rival: str, theirs: list[list[float]], own: list[list[float]]) -> None:
    """CPU seconds of both to the mark that the rival reaches, and scores after some seconds."""
    best = max(score for _, score in theirs)
    target = best - NEAR
    them, us = reached(theirs, target), reached(own, target)
    verdict = "met" if them / us >= GOAL else "NOT met"
    print(
        f"    {rival:9} {best:.5f} after {len(theirs)} iterations ({theirs[-1][0] / len(theirs):.2f} CPU s each); to "
        f"{target:.5f}: {them:.1f} CPU s, ours {us:.2f}: {them / us:.1f} x (bar >= {GOAL:g}: {verdict})",
        flush=True,
    )
    for seconds in (1.0, 4.0):
        at = [max([score for spent, score in marks if spent <= seconds], default=np.nan) for marks in (theirs, own)]
        print(f"      after {seconds:g} CPU s: {at[0]:.5f}, ours {at[1]:.5f}", flush=True)


def in_order(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The order of the states that brings their emissions nearest to the truth: labels have no meaning."""
    return np.array(min(itertools.permutations(range(3)), key=lambda order: ((found[list(order)] - truth) ** 2).sum()))


def coverage(repeats: int, only: str | None) -> None:
    """Shares of 90 % intervals that contain the truth, over data sets whose transitions are drawn from the prior.

    With one fixed truth the share depends on it: 4 categories hardly determine a state that lasts longer than a flat
    prior expects, and its dwell time is covered in 60 % of cases (81 % on average over states).
    """
    sticky = 10.0
    shares = np.array([[0.7, 0.2, 0.08, 0.02], [0.1, 0.6, 0.1, 0.2], [0.02, 0.08, 0.3, 0.6]])
    truths: dict[str, Any] = {"gaussian": [-2.0, 0.0, 2.5], "poisson": [1.0, 5.0, 14.0], "categorical": shares}
    for kind, truth in truths.items():
        if only not in (None, kind):
            continue
        inside: dict[str, list[Any]] = {"transitions": [], "emissions": [], "dwell": []}
        for number in range(repeats):
            rng = np.random.default_rng([7, number])
            moves = np.stack([rng.dirichlet(1.0 + sticky * row) for row in np.eye(3)])
            z = states(moves, 800, rng)
            if kind == "categorical":
                x = (rng.random(800)[:, None] > np.cumsum(shares, axis=1)[z, :-1]).sum(axis=1)
            else:
                x = rng.poisson(np.array(truth)[z]) if kind == "poisson" else np.array(truth)[z] + rng.normal(size=800)
            model = sc.models.HMM(
                3, emissions=kind, sticky=sticky, num_chains=1, num_samples=400, seed=number, num_threads=1
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(x, num_epochs=500, progress=False)
            name = {"poisson": "rates", "gaussian": "means", "categorical": "probabilities"}[kind]
            order = in_order(model.draws_[name].mean(axis=(0, 1)), np.array(truth).reshape(3, -1))
            found = model.transitions(0.9)
            low, high = found.low[np.ix_(order, order)], found.high[np.ix_(order, order)]
            inside["transitions"].append((low <= moves) & (moves <= high))
            low, high = np.quantile(model.draws_[name], [0.05, 0.95], axis=(0, 1))[:, order]
            right = np.array(truth).reshape(low.shape)
            inside["emissions"].append((low <= right) & (right <= high))
            dwell, right = model.dwell_times(0.9), 1 / (1 - np.diag(moves))
            inside["dwell"].append((dwell.low[order] <= right) & (right <= dwell.high[order]))
        for name, found in inside.items():
            share = np.mean(found)
            met = "met" if 0.85 <= share <= 0.95 else "NOT met"
            print(
                f"  {kind:10} {name:12} {share:.3f} of {np.size(found)} 90 % intervals (bar 0.85-0.95: {met})",
                flush=True,
            )


def samplers(size: int) -> None:
    """Categories: all samplers for the same CPU time."""
    x, held = simulated("categorical", size, 0), simulated("categorical", 50_000, 1)
    for sampler in ("gibbs", "scir", "scir_cv", "sgrld"):
        scores, means, deviations = [], [], []
        for seed in range(5):
            begin = time.process_time()
            model = sc.models.HMM(5, emissions="categorical", sampler=sampler, num_chains=1, seed=seed, num_threads=1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(x, num_epochs=20 if sampler == "gibbs" else 100, progress=False)
            spent = time.process_time() - begin
            scores.append(model.score(held))
            stay = model.draws_["transitions"][..., 0, 0]
            means.append(stay.mean())
            deviations.append(stay.std())
        print(
            f"  {sampler:8} {spent:6.1f} CPU s  held-out log likelihood {np.mean(scores):.5f} "
            f"(seeds {np.min(scores):.5f} to {np.max(scores):.5f})  "
            f"A[0, 0] {np.mean(means):.4f} ± {np.mean(deviations):.4f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "coverage", "samplers"])
    parser.add_argument("--emissions", choices=["gaussian", "poisson", "categorical"])
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--sets", type=int, default=1, help="data sets; all but the first have random parameters")
    parser.add_argument("--rivals", default="hmmlearn,dynamax")
    parser.add_argument("--repeats", type=int, default=200)
    given = parser.parse_args()
    if given.what == "speed":
        environments.pin_to_one_core()
        speed(given.emissions or "gaussian", given.size, list(range(given.sets)), given.rivals.split(","))
    elif given.what == "samplers":
        samplers(given.size)
    else:
        coverage(given.repeats, given.emissions)


if __name__ == "__main__":
    sys.exit(main())
