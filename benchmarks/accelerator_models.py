"""Matrix factorisation and Dirichlet-process mixtures on an accelerator, beside the same machine's processor.

usage: python benchmarks/accelerator_models.py [factorisation] [mixture] [--seconds 3] [--rows 30000 1000000]

factorisation: `BPMF` runs on the device: sweeps of its Gibbs sampler over simulated ratings of the size of MovieLens
1M, there and, in another process, on the CPU. mixture: `DPMixture(sampler="gibbs")` runs on the device, by whole
arrays; beside it are the compiled kernels of the CPU (all cores that the process may use), with the same sampler and
with the default, "collapsed", also from as many clusters as on the device. Passes per second, and the log predictive
density of held-out rows after that many seconds, averaged over the draws of the second half.
"""

import argparse
import os
import subprocess
import sys
import time
import warnings

import jax
import numpy as np
import scipy.sparse

import scirocco as sc
from scirocco.errors import SciroccoWarning

ON_CPU = jax.default_backend() == "cpu"


def ratings(users=6_040, items=3_706, count=1_000_000):
    """Simulated ratings of rank 10."""
    rng = np.random.default_rng(0)
    u, v = (0.4 * rng.standard_normal((size, 10)) for size in (users, items))
    i, j = rng.integers(0, users, count), rng.integers(0, items, count)
    return i, j, (3.5 + np.sum(u[i] * v[j], axis=1) + 0.8 * rng.standard_normal(count)).astype(np.float32)


def factorisation(arguments):
    """Sweeps per second of `BPMF(20)`."""
    i, j, r = ratings(count=20_000 if ON_CPU and not os.environ.get("WHOLE") else 1_000_000)
    sweeps = 4
    while True:
        model = sc.models.BPMF(20, num_chains=1, num_samples=2, seed=1)
        model.fit(i, j, r, num_epochs=sweeps, progress=False)  # the first compiles
        begin = time.perf_counter()
        model.fit(i, j, r, num_epochs=sweeps, progress=False)
        wall = time.perf_counter() - begin
        if wall > 0.5 * arguments.seconds or sweeps >= 100_000:
            break
        sweeps = int(min(max(2 * sweeps, 1.2 * arguments.seconds * sweeps / wall), 100_000))
    where = jax.devices()[0].device_kind
    print(
        f"BPMF, {len(r):,} ratings, {where}: {sweeps / wall:,.1f} sweeps/s, "
        f"{len(r) * sweeps / wall / 1e6:,.1f} M ratings/s",
        flush=True,
    )
    if not ON_CPU:
        command = [sys.executable, __file__, "factorisation", "--seconds", str(arguments.seconds)]
        subprocess.run(command, env=os.environ | {"JAX_PLATFORMS": "cpu", "WHOLE": "1"}, check=False)


def rows_of_words(count, words=294, clusters=30, seed=0):
    """Simulated rows of about three words (as in the visits of msweb)."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(7).dirichlet(np.full(words, 0.05), clusters)
    members, lengths = rng.integers(0, clusters, count), 1 + rng.poisson(2.0, count)
    sums = np.cumsum(centres, axis=1)
    row = np.repeat(np.arange(count), lengths)
    uniform, word, member = rng.random(len(row)), np.empty(len(row), np.int64), members[row]
    for cluster in range(clusters):
        chosen = member == cluster
        word[chosen] = np.minimum(np.searchsorted(sums[cluster], uniform[chosen]), words - 1)
    return scipy.sparse.csr_matrix((np.ones(len(row)), (row, word)), (count, words)).astype(np.int64)


def mixture(arguments):
    """Passes per second, and the log predictive density of held-out rows after that many seconds."""
    where = jax.devices()[0].device_kind
    for count in arguments.rows:
        X, test = rows_of_words(count), rows_of_words(2_000, seed=1)
        for sampler, device, start in (
            ("gibbs", "jax", None),
            ("gibbs", "cpu", None),
            ("collapsed", "cpu", None),
            ("collapsed", "cpu", 100),
        ):
            model = sc.models.DPMixture(
                sampler=sampler, device=device, initial_clusters=start, keep_clusters=200, num_chains=1, seed=1
            )
            begin = time.perf_counter()
            model.fit(X if device == "jax" else X[:1_000], num_epochs=2, progress=False)  # compiles
            first = time.perf_counter() - begin
            begin = time.perf_counter()
            model.fit(X, max_seconds=arguments.seconds, progress=False)
            wall = time.perf_counter() - begin
            passes, clusters = (model.run_.stats[name].ravel() for name in ("passes", "num_clusters"))
            score = np.mean(model.log_predictive(test))
            print(
                f"mixture, {count:,} rows, {sampler}, {where if device == 'jax' else 'CPU kernels'}"
                f"{'' if start is None else f', {start} clusters at the start'}: "
                f"{passes.max() / wall:,.1f} passes/s, log predictive {score:.4f}, {clusters[-1]:.0f} clusters, "
                f"first fit {first:.1f} s",
                flush=True,
            )


def main(given=None):
    """Run the chosen parts."""
    parts = {"factorisation": factorisation, "mixture": mixture}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*parts, []])
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a measurement")
    parser.add_argument("--rows", type=int, nargs="+", default=[3_000] if ON_CPU else [30_000, 1_000_000])
    arguments = parser.parse_args(given)
    warnings.simplefilter("ignore", SciroccoWarning)  # of short runs
    for name in arguments.parts or parts:
        parts[name](arguments)


if __name__ == "__main__":
    main()
