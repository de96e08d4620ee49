"""A run that is killed for real: the child process, and the parent that kills it.

As a program: `python storing.py STORE SECONDS STEPS` starts or takes up the run in STORE and commits every SECONDS;
after STEPS more it waits to be killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np

import helpers
import scirocco as sc
from scirocco.run.sizes import RUNNING

NUM_SAMPLES = 100_000
REDUCERS = {"moments": sc.reducers.Moments(), "bias": sc.reducers.Trace(helpers.bias_of)}


def draw(store=None, num_samples=NUM_SAMPLES, **options):
    """The run that everything is compared with; with `store` it goes on where it was."""
    stored = {} if store is None else {"store": store, "resume": True}
    return sc.sample(
        helpers.MODEL,
        helpers.make_data(),
        helpers.make_params(),
        sampler=sc.SGLD(1e-3),
        estimator=sc.SVRG(16, refresh_every=50),
        num_samples=num_samples,
        num_burnin=1_000,
        num_chains=2,
        keep_gradients=True,
        reducers=REDUCERS,
        progress=False,
        **stored,
        **options,
    )


def kill_while_storing(store: Path, number: int, seed: int, check) -> int:
    """Start or take up the run `number` times, each time killing it at a random moment; returns how many were killed.

    None makes more than a third of all steps, so that three of them cannot end the run, however late they are killed.
    `check(run)` is called with what `sc.load` finds after each kill.
    """
    rng, killed = random.Random(seed), 0
    for _ in range(number):
        steps = str(rng.randrange(NUM_SAMPLES // 20, NUM_SAMPLES * 3 // 10))
        child = subprocess.Popen(
            [sys.executable, __file__, str(store), "0.05", steps], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.0, 0.5))
        child.send_signal(signal.SIGKILL)
        killed += child.wait() == -signal.SIGKILL
        if (store / "scirocco" / "commit.json").exists():
            check(sc.load(store))
    return killed


def main(store: str, seconds: str, steps: str) -> None:
    began = None

    def ready(report):
        nonlocal began
        if began is None:
            began = report.step
            print("ready", flush=True)
        while began + int(steps) <= report.step < report.num_steps:
            time.sleep(1.0)

    with RUNNING.changed(commit_seconds=float(seconds), commit_share=1.0, chunk_seconds=0.02):
        draw(store, callbacks=[ready])
    print("ready" if began is None else "", flush=True)


def equal_beginnings(whole, part) -> None:
    """`part` is the beginning of `whole`, bit for bit."""
    count = part.stats["gradient_norm"].shape[1]
    for name in ("draws", "gradients", "stats", "traces"):
        some, everything = getattr(part, name), getattr(whole, name)
        helpers.assert_equal(
            helpers.tree_map(np.asarray, some), helpers.tree_map(lambda leaf: np.asarray(leaf[:, :count]), everything)
        )


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main(*sys.argv[1:])
