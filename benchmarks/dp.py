"""Dirichlet-process mixtures: steps per second beside plain NumPy, time per step by size, and the score by time.

    python benchmarks/dp.py                               # everything: about a minute
    python benchmarks/dp.py --only numpy sizes            # some: numpy sizes gibbs score
    python benchmarks/dp.py --quick                       # does it run? (the numbers mean nothing)

numpy   the paper's sampler (SCIR, minibatches of 1,000 users of msweb) beside the same updates in NumPy (`dp_numpy.py`)
sizes   time of a step for 10⁴, 10⁵ and 10⁶ users
gibbs   passes a second of the exact slice sampler, two threads
score   -log predictive of msweb's test users after 1, 2, 5 and 10 s of the default, one core

Best of several rounds in which the sides take turns; compiling is not timed, nor is scoring. One thread is timed by its
CPU time, two by the clock. A timing is never a test: the exit status is 0 whatever the ratios are.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_data
import dp_numpy
import environments
import numpy as np

from scirocco.models import DPMixture
from scirocco_latent.dp.prediction import log_predictive

LINES = ("numpy", "sizes", "gibbs", "score")
SIZES = (10_000, 100_000, 1_000_000)
MARKS = (1.0, 2.0, 5.0, 10.0)
FASTER, FLAT, SWEEPS, SCORE = 5.0, 1.3, 5.0, 11.345  # the bars


def best_times(
    sides: dict[str, Callable[[], Any]], rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Seconds of the best call of each side; one call before is not counted."""
    best = dict.fromkeys(sides, math.inf)
    for number in range(rounds + 1):
        for name, side in sides.items():
            begin = clock()
            side()
            if number:
                best[name] = min(best[name], clock() - begin)
    return best


def verdict(name: str, value: float, sense: str, bar: float) -> None:
    """One line with its bar."""
    met = value >= bar if sense == ">=" else value <= bar
    print(f"  {name:58}{value:9.3f}   (bar {sense} {bar:g}: {'met' if met else 'NOT met'})", flush=True)


def paper(**changes: Any) -> DPMixture:
    """The paper's SCIR, which knows the counts of a minibatch only."""
    return DPMixture.preset("baker2018", sampler="scir", num_threads=1, **changes)


def advancing(chain: Any, steps: int) -> Callable[[], None]:
    """A side: so many steps more."""
    return lambda: chain.advance(steps)


def beside_numpy(visits: Any, quick: bool) -> dict[str, float]:
    """Steps per CPU second, both chains past their beginning."""
    steps, burn_in = (10, 10) if quick else (100, 200)
    ours = paper().chain(visits.train)
    theirs = dp_numpy.SliceSampler(visits.train, dp_numpy.SCIR, 0)

    def numpy_steps(number: int = steps) -> None:
        for _ in range(number):
            theirs.step()

    ours.advance(burn_in)
    numpy_steps(burn_in)
    seconds = best_times({"ours": advancing(ours, steps), "numpy": numpy_steps}, 2 if quick else 7)
    speed = {name: steps / value for name, value in seconds.items()}
    print("\nSCIR with the paper's settings, msweb, minibatches of 1,000: steps per CPU second, one thread")
    print(f"  ours {speed['ours']:,.0f}, NumPy {speed['numpy']:,.0f}")
    verdict("ours / NumPy", speed["ours"] / speed["numpy"], ">=", FASTER)
    return speed


def by_size(quick: bool) -> dict[str, dict[str, float]]:
    """Milliseconds of a step of 1,000 users, for several numbers of users, after thirty passes over all of them."""
    sizes = SIZES[:2] if quick else SIZES
    steps = 10 if quick else 1000  # a whole pass over the largest, splits and merges included
    out = {}
    for name, make in (
        ("collapsed (the default)", lambda: DPMixture(num_threads=1)),
        ("scir, estimated counts", lambda: paper(initial_clusters=20)),
    ):
        chains = {str(size): make().chain(dp_data.synthetic(size)) for size in sizes}
        for size, chain in chains.items():
            chain.advance(20 if quick else max(300, 30 * int(size) // 1_000))  # clusters have settled
        seconds = best_times({size: advancing(chain, steps) for size, chain in chains.items()}, 2 if quick else 4)
        out[name] = {size: 1e3 * value / steps for size, value in seconds.items()}
        listed = ", ".join(
            f"{int(size):,}: {value:.3f} ({chains[size].num_clusters} clusters)" for size, value in out[name].items()
        )
        print(f"\n{name}: CPU ms per step of 1,000, by users\n  {listed}")
        verdict("slowest / fastest", max(out[name].values()) / min(out[name].values()), "<=", FLAT)
    return out


def sweeps(visits: Any, quick: bool) -> dict[str, float]:
    """Passes a second of the exact slice sampler."""
    out = {}
    for threads in (1, 2):
        model = DPMixture.preset("baker2018", sampler="gibbs", num_threads=threads)
        chain = model.chain(visits.train)
        chain.advance(2 if quick else 20)
        number = 1 if quick else 5
        seconds = best_times({"": advancing(chain, number)}, 2 if quick else 5, time.perf_counter)[""]
        out[str(threads)] = number / seconds
    print(f"\nThe Gibbs slice sampler, {visits.train.shape[0]:,} users of msweb, by the clock")
    print(f"  one thread: {out['1']:.1f} passes a second")
    verdict("two threads: passes a second", out["2"], ">=", SWEEPS)
    return out


def by_time(visits: Any, seeds: list[int], marks: tuple[float, ...]) -> list[dict[str, Any]]:
    """The score of the last state, and of p averaged over the later half of the states so far."""
    DPMixture(num_threads=1).chain(visits.train).advance(40)  # compiles
    out = []
    print("\nmsweb, the default, one core: -log predictive of a test user (p averaged over states; last state)")
    for seed in seeds:
        chain = DPMixture(seed=seed, num_threads=1).chain(visits.train)
        rows = chain.family.rows(visits.test)
        kept: list[np.ndarray] = []
        spent, found = 0.0, []
        for mark in marks:
            while spent < mark:
                begin = time.process_time()
                chain.advance(10)
                draws, _ = chain.kept()
                spent += time.process_time() - begin
                kept.append(np.exp(log_predictive(chain.family, rows, draws)))
            mean = np.mean(kept[len(kept) // 2 :], axis=0)
            found.append(
                {"mark": mark, "averaged": float(-np.log(mean).mean()), "state": float(-np.log(kept[-1]).mean())}
            )
        out.append({"seed": seed, "marks": found})
        listed = "   ".join(f"{r['mark']:g} s: {r['averaged']:.3f}; {r['state']:.3f}" for r in found)
        print(f"  seed {seed}   {listed}", flush=True)
    for score, name in (("averaged", "p averaged"), ("state", "last state alone")):
        worst = max(each["marks"][-1][score] for each in out)
        verdict(f"the worst of the seeds after {marks[-1]:g} s, {name}", worst, "<=", SCORE)
    return out


def main() -> None:
    """Print the lines that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=LINES, default=LINES, metavar="LINE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all numbers to this file")
    options = parser.parse_args()
    visits = dp_data.msweb(options.data) if set(options.only) - {"sizes"} else None
    results: dict[str, Any] = {}
    if "gibbs" in options.only:  # before this process is kept to one core
        results["gibbs"] = sweeps(visits, options.quick)
    environments.pin_to_one_core()
    if "numpy" in options.only:
        results["numpy"] = beside_numpy(visits, options.quick)
    if "sizes" in options.only:
        results["sizes"] = by_size(options.quick)
    if "score" in options.only:
        results["score"] = by_time(visits, options.seeds, (0.2, 0.5) if options.quick else MARKS)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
