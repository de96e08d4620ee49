"""Many different models in one process: each compiles its own programs, and the process must not run out of maps.

python benchmarks/many_models.py [NUMBER] [SECONDS]

Stops after NUMBER models, or when SECONDS of CPU time are used; prints the number of memory maps and the resident
memory on the way. JAX_DISABLE_MOST_OPTIMIZATIONS=1 makes the compiler quick.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import scirocco as sc


def sampled(number: int) -> float:
    """A run of a model that no other has, so that its programs are its own; returns the mean of the draws."""
    model = sc.Model(lambda mu, x: -0.5 * (x - number * mu) ** 2)
    run = sc.sample(
        model,
        jnp.ones(50),
        jnp.array(0.0),
        sampler=sc.SGLD(1e-6),
        estimator=sc.Minibatch(5),
        num_samples=5,
        progress=False,
    )
    return float(np.mean(run.draws))


def main(number: int = 2_000, seconds: float = 3_600.0) -> int:
    """Print a line for every fiftieth model, and the largest number of maps at the end."""
    peak = done = 0
    while done < number and time.process_time() < seconds:
        assert np.isfinite(sampled(done + 1))
        done += 1
        maps = Path("/proc/self/maps").read_bytes().count(b"\n")
        peak = max(peak, maps)
        if done % 50 == 0 or done == number:
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e9
            print(f"{done} models: {maps:,} maps (at most {peak:,}), {resident:.2f} GB resident", flush=True)
    print(f"{done} models in {time.process_time():.0f} CPU s; at most {peak:,} maps", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
