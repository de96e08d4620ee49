"""What makes the stochastic slice sampler better on msweb: one change at a time, two seeds, a thousand steps each.

    python benchmarks/dp_variants.py            # needs the data set, see `scirocco data`
    python benchmarks/dp_variants.py --seeds 1
    python benchmarks/dp_variants.py --rare     # mass of rare categories over its exact mean, one minute

Scores are mean -log predictive of the test users (one component: 11.917): of a state, averaged over the second half of
the run, and of the average of these states' densities. All but the last three estimate the counts of clusters from the
batch, as the paper does.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from typing import Any

import dp_data
import numpy as np

import scirocco as sc
from scirocco_latent.dp import prediction

STEPS, EVERY = 1000, 20


def paper(**changes: Any) -> Any:
    """The paper's SCIR with something else."""
    return sc.models.DPMixture.preset("baker2018", "scir", **{"num_threads": 1, **changes})


def warm(chain: Any, X: Any, seed: int) -> None:
    """Begin where fifty passes over 3,000 rows have come to."""
    few = np.random.default_rng(seed).permutation(X.shape[0])[:3000]
    short = sc.models.DPMixture(seed=seed, num_samples=1, num_chains=1, initial_clusters=20).fit(
        X[few], num_epochs=50, progress=False
    )
    draw = short._draw(0)
    rows = short._family.rows(X)
    shares = prediction.memberships(short._family, rows, draw)[:, :-1]
    limits = np.cumsum(shares, axis=1)
    chosen = (np.random.default_rng(seed).random(len(limits))[:, None] * limits[:, -1:] > limits).sum(axis=1)
    chain.labels[:] = chosen
    sizes = np.bincount(chosen, minlength=len(chain.weights))
    chain.clusters[0][:] = sizes
    chain.num = int(np.flatnonzero(sizes).max()) + 1
    after = sizes.sum() - np.cumsum(sizes)
    chain.sticks[:] = np.stack([1.0 + sizes, chain.alpha + after], axis=1)
    num = chain.num
    chain.parameters[0][:, :num] = np.asarray(draw["components"][:num]).T * (147.0 + 3.0 * sizes[:num])


def growing(chain: Any) -> None:
    """Batches of 1,000 rows, then 2,000, 4,000 and 8,000."""
    size = 1000 * 2 ** min(3, 4 * chain.step // STEPS)
    chain.settings = chain.settings = dataclasses.replace(chain.settings, batch_size=size)


VARIANTS: dict[str, dict[str, Any]] = {
    "paper: h = 0.1, n = 1,000": {},
    "h = 0.02": {"step_size": 0.02, "stick_step_size": 0.02},
    "h falls from 0.1 as (1 + m/100)^-0.75": {"step_size": "falls", "stick_step_size": "falls"},
    "n = 3,000": {"batch_size": 3000},
    "batches grow to 8,000": {},
    "begun from 3,000 rows": {},
    "K = 30 at the beginning": {"initial_clusters": 30},
    "kept counts, h = 0.1": {"counts": "kept"},
    "kept counts, exact draws": {"counts": "kept", "step_size": None, "stick_step_size": None},
    "collapsed, no splits": {"sampler": "collapsed", "split_merge": 0},
    "collapsed, 5 splits or merges a pass": {"sampler": "collapsed", "split_merge": 5},
}


def run(name: str, seed: int, data: Any) -> tuple[float, float, float, float]:
    """CPU seconds, score of states, score of their average, clusters."""
    changes = dict(VARIANTS[name])
    for key, value in changes.items():
        changes[key] = sc.schedules.polynomial(0.1, 100.0, 0.75) if value == "falls" else value
    if changes.get("sampler") == "collapsed":
        mixture = sc.models.DPMixture(seed=seed, **changes)
    else:
        mixture = paper(seed=seed, **changes)
    chain = mixture.chain(data.train)
    test = chain.family.rows(data.test)
    spent, found, clusters = 0.0, [], []
    begin = time.process_time()
    if name.startswith("begun"):
        warm(chain, data.train, seed)
    for mark in range(STEPS // EVERY):
        if name.startswith("batches"):
            growing(chain)
        chain.advance(EVERY)
        spent += time.process_time() - begin
        if mark >= STEPS // EVERY // 2:
            draw, stats = chain.kept()
            found.append(prediction.log_predictive(chain.family, test, draw))
            clusters.append(stats["num_clusters"])
        begin = time.process_time()
    average = prediction.log_sum(np.array(found), axis=0) - np.log(len(found))
    return spent, -float(np.mean(found)), -float(average.mean()), float(np.mean(clusters))


def rare(sampler: str, num_rows: int, width: int, steps: int, seed: int, **settings: Any) -> None:
    """θ of rare and of frequent categories over exact means; one cluster of rows of one event: labels are certain."""
    rng = np.random.default_rng(seed)
    shares = np.arange(1, width + 1) ** -1.2
    X = np.eye(width, dtype=np.int32)[rng.choice(width, num_rows, p=shares / shares.sum())]
    counts = X.sum(axis=0)
    alone = {"concentration": 1e-9, "initial_clusters": 1, "num_threads": 1, "seed": seed}
    chain = sc.models.DPMixture.preset("baker2018", sampler, **alone, **settings).chain(X)
    chain.advance(1000)
    groups = counts < (10 if num_rows < 10_000 else 40), counts >= (10 if num_rows < 10_000 else 40)
    found, highest = np.empty((steps, 2)), 0.0
    for step in range(steps):
        chain.advance(1)
        theta = chain.parameters[0][:, 0]
        found[step], highest = [theta[group].sum() for group in groups], max(highest, theta.max())
    means = found.reshape(20, -1, 2).mean(axis=1) / [(0.5 + counts[group]).sum() for group in groups]
    parts = [f"{m:.4f} ± {s:.4f}" for m, s in zip(means.mean(0), means.std(0, ddof=1) / 20**0.5, strict=True)]
    changed = ", ".join(f"{key} {value}" for key, value in settings.items())
    print(f"{num_rows:6,} rows  {sampler:8}{changed:36}{'   '.join(parts)}   largest θ / rows {highest / num_rows:.2f}")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12])
    parser.add_argument("--rare", action="store_true", help="rare categories with SCIR and SCIR-CV")
    asked = parser.parse_args()
    if asked.rare:
        for sampler, settings in (("scir", {}), ("scir_cv", {}), ("scir_cv", {"refresh_every": 500})):
            rare(sampler, 4_000, 100, 20_000, 1, batch_size=100, **settings)
        for step_size in (0.2, 0.05, 0.025):
            steps = int(1_200 / step_size)
            rare("scir_cv", 4_000, 100, steps, 1, batch_size=100, step_size=step_size, stick_step_size=step_size)
        for sampler in ("scir", "scir_cv"):
            rare(sampler, 30_000, 1_000, 10_000, 1)
        return
    seeds, data = asked.seeds, dp_data.msweb()
    for name in ("paper: h = 0.1, n = 1,000", "collapsed, no splits", "begun from 3,000 rows"):
        run(name, 0, data)  # compiles
    print(f"{'':44}{'CPU s':>8}{'state':>9}{'average':>9}{'clusters':>10}")
    for name in VARIANTS:
        spent, state, average, clusters = np.mean([run(name, seed, data) for seed in seeds], axis=0)
        print(f"{name:44}{spent:8.2f}{state:9.3f}{average:9.3f}{clusters:10.1f}", flush=True)


if __name__ == "__main__":
    main()
