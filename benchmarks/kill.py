"""Kill storing runs at random moments; they must open every time and end as if nothing had happened.

python benchmarks/kill.py KIND [NUMBER] [SEED]

KIND is memory, streamed (rows in a folder), lda, mixture (their own loops), or cluster: there workers are killed while
they run chains. Results are compared bit for bit with a run that nobody killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "core" / "tests"))

import jax
import numpy as np

import helpers
import scirocco as sc
import sharding
import storing
from scirocco.errors import InvalidValueError, StoreError, WorkerError

ROWS = Path(tempfile.gettempdir()) / "scirocco-kill-rows"
PARTS = ("draws", "gradients", "stats", "traces", "reduced")


def streamed(store: Any = None, **options: Any) -> Any:
    """Rows that are read from a folder while the chain runs."""
    where = {} if store is None else {"store": store, "resume": True}
    lengths = {"num_samples": 30_000, "num_burnin": 1_000, "num_chains": 2}
    method = {"sampler": sc.SGLD(2e-5), "estimator": sc.Minibatch(16)}
    data, params = sc.data.open(ROWS), helpers.make_params()
    return sc.sample(helpers.MODEL, data, params, progress=False, **method, **lengths, **where, **options)


def topics(store: Any = None, **options: Any) -> Any:
    """A topic model."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.5, size=(200, 60))
    model = sc.models.LDA(8, batch_size=40, num_samples=300, num_burnin=0.05, num_threads=1, num_chains=1)
    where = {} if store is None else {"store": store, "resume": True}
    return model.fit(counts, num_steps=1_500, progress=False, **where, **options).run_


def mixture(store: Any = None, **options: Any) -> Any:
    """A Dirichlet process mixture."""
    rng = np.random.default_rng(0)
    rows = 5.0 * rng.standard_normal((6, 3))[rng.integers(0, 6, 500)] + rng.standard_normal((500, 3))
    model = sc.models.DPMixture("gaussian", num_samples=300, num_burnin=0.05, num_chains=1, num_threads=1)
    where = {} if store is None else {"store": store, "resume": True}
    return model.fit(rows, num_steps=1_500, progress=False, **where, **options).run_


KINDS = {"memory": storing.draw, "streamed": streamed, "lda": topics, "mixture": mixture}


def main(kind: str, number: int = 50, seed: int = 0) -> int:
    """Start, kill, look, resume, ...; then end the run and compare."""
    if kind == "streamed" and not ROWS.exists():
        sc.data.write(ROWS, helpers.make_data(num_rows=2_000))
    with tempfile.TemporaryDirectory() as folder:
        kill = _kill_workers if kind == "cluster" else _kill_process
        killed, rounds, looks = kill(kind, number, seed, Path(folder))
    print(
        f"{kind}: {killed} kills in {rounds} runs; the store opened after each, with {min(looks):,} to {max(looks):,} "
        "draws, all equal bit for bit to those of the run that nobody killed, and so were the runs that were resumed."
    )
    return 0


def _kill_process(kind: str, number: int, seed: int, folder: Path) -> tuple[int, int, list[int]]:
    draw, rng, looks, killed, rounds = KINDS[kind], random.Random(seed), [], 0, 0
    whole = draw()
    while killed < number:  # a run that ends before its kill is followed by a new one
        store, left, before = folder / f"run-{rounds}", True, killed
        while killed < number and left:
            killed += _kill_once(kind, store, rng)
            if (store / "scirocco" / "commit.json").exists():
                run = sc.load(store)
                _compare(whole, run)
                looks.append(run.num_draws)
                left = run.num_draws < whole.num_draws
        _compare(whole, draw(store), ended=True)
        rounds += 1
        assert killed > before or rounds < 10
    return killed, rounds, looks


def _kill_once(kind: str, store: Path, rng: random.Random) -> bool:
    share = rng.uniform(0.05, 0.3)  # of the run, after which the process waits to be killed
    command = [sys.executable, __file__, "--child", kind, str(store), str(share)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(rng.uniform(0.0, 1.5))
    child.send_signal(signal.SIGKILL)
    return child.wait() == -signal.SIGKILL


def _child(kind: str, store: str, share: str) -> None:
    sharding.commit_often()
    began: list[int] = []

    def ready(report: Any) -> None:
        if not began:
            began.append(report.step)
            print("ready", flush=True)
        while began[0] + float(share) * report.num_steps <= report.step < report.num_steps:
            time.sleep(1.0)

    KINDS[kind](Path(store), callbacks=[ready])
    print("" if began else "ready", flush=True)


def _kill_workers(kind: str, number: int, seed: int, folder: Path) -> tuple[int, int, list[int]]:
    from scirocco.cluster.client import local

    def draw(**options: Any) -> Any:
        method = {"sampler": sc.SGLD(1e-4), "estimator": sc.Minibatch(16), "num_chains": 2}
        return sc.sample(
            sharding.SCALED,
            sharding.rows(500),
            sharding.START,
            num_samples=400_000,
            progress=False,
            **method,
            **options,
        )

    rng, looks, killed, rounds = random.Random(seed), [], 0, 0
    whole = draw()
    while killed < number:
        store, run, rounds = folder / f"run-{rounds}", None, rounds + 1
        while run is None:  # another cluster where workers died so often that no new ones come
            done, victims = threading.Event(), list[int]()
            with local(2) as client:
                arguments = (client, store, done, victims, number - killed, rng, whole, looks)
                killer = threading.Thread(target=_kill_until, args=arguments)
                killer.start()
                try:
                    run = draw(client=client, store=store, resume=True)
                except (WorkerError, InvalidValueError) as error:
                    print(f"{type(error).__name__} after {len(victims)} kills", flush=True)
                done.set()
                killer.join()
            killed += len(victims)
        _compare(whole, run, ended=True)
    return killed, rounds, looks


def _kill_until(
    client: Any,
    store: Path,
    done: threading.Event,
    victims: list[int],
    most: int,
    rng: random.Random,
    whole: Any,
    looks: list[int],
) -> None:
    """Kill a worker now and then, and look at the draws after it."""
    while len(victims) < most and not done.wait(rng.uniform(2.0, 7.0)):
        try:
            workers = list(client.run(_often_and_pid).values())
        except OSError:  # one of them is ending
            continue
        if not workers:
            continue
        victims.append(rng.choice(workers))
        os.kill(victims[-1], signal.SIGKILL)
        try:
            run = sc.load(store)
        except (StoreError, ValueError):  # not all chains have started
            continue
        _compare(whole, run)
        looks.append(run.num_draws)


def _often_and_pid() -> int:
    sharding.commit_often()
    return os.getpid()


def _compare(whole: Any, part: Any, ended: bool = False) -> None:
    """`part` is the beginning of `whole` (or all of it, if `ended`), bit for bit."""
    count = part.num_draws
    assert count == whole.num_draws or not ended
    for name in PARTS[: 5 if ended else 4] if count else ():
        some, everything = (getattr(run, name) for run in (part, whole))
        if ended:
            helpers.assert_equal(*(jax.tree.map(np.asarray, tree) for tree in (some, everything)))
        elif name != "traces":
            first = [np.asarray(leaf)[:, :count] for leaf in jax.tree.leaves(everything)]
            helpers.assert_equal([np.asarray(leaf)[:, :count] for leaf in jax.tree.leaves(some)], first)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if sys.argv[1] == "--child":
        _child(*sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
