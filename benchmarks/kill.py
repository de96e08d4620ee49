"""Kill storing runs at random moments; they must open every time and end as if nothing had happened.

python benchmarks/kill.py KIND|all [NUMBER] [SEED]

KIND is a name in KINDS: runs of `sc.sample` (data in memory, rows in a folder, the default method, counts), of every
model of `sc.models` (as in tests/models/test_contract.py), or `cluster`: there
workers of Dask are killed while they run chains. A kill counts if it comes after the first commit. Results are compared
bit for bit with a run that nobody killed.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "core" / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "models"))

import jax
import numpy as np
import test_contract

import helpers
import scirocco as sc
import sharding
import storing
from scirocco.errors import InvalidValueError, StoreError, WorkerError

_LONGER = 20
"""How much longer a fit is than that of the contract test: it must make many commits."""
_SECONDS = 120
"""A process that has not stored anything by then hangs."""
_PARTS = ("draws", "gradients", "stats", "traces", "reduced")


def sampled(*arguments: Any, folder: Path, store: Path | None, **options: Any) -> Any:
    """A run of `sc.sample` that is started, or continued."""
    stored = {} if store is None else {"store": store, "resume": True}
    return sc.sample(*arguments, progress=False, **stored, **options)


def in_memory(folder: Path, store: Path | None, **options: Any) -> Any:
    """SVRG with gradients and reducers."""
    return storing.draw(store, **options)


def streamed(folder: Path, store: Path | None, **options: Any) -> Any:
    """Rows that are read from a folder while the chain runs."""
    rows = folder / "rows"
    if not rows.exists():
        sc.data.write(rows, helpers.make_data(num_rows=2_000))
    method = {"sampler": sc.SGLD(2e-5), "estimator": sc.Minibatch(16), "num_burnin": 1_000, "num_chains": 2}
    given = (helpers.MODEL, sc.data.open(rows), helpers.make_params())
    return sampled(*given, folder=folder, store=store, num_samples=20_000, **method, **options)


def default(folder: Path, store: Path | None, **options: Any) -> Any:
    """A call that names no method."""
    given = (helpers.MODEL, helpers.make_data(), helpers.make_params())
    return sampled(*given, folder=folder, store=store, num_samples=3_000, num_chains=2, **options)


def counts(folder: Path, store: Path | None, **options: Any) -> Any:
    """SCIR on a simplex, with batches of counts."""
    rows = np.random.default_rng(0).integers(0, 4, 2_000)
    method = {"sampler": sc.SCIR(0.1), "estimator": sc.Minibatch(50), "num_chains": 2}
    given = (_count_model(), rows, np.full(4, 0.25, np.float32))
    return sampled(*given, folder=folder, store=store, num_samples=20_000, **method, **options)


def _count_model() -> Any:
    return sc.CountModel(np.full(4, 0.5), lambda weights, row, key: jax.nn.one_hot(row, 4))


def model(name: str, folder: Path, store: Path | None, **options: Any) -> Any:
    """A model of the contract test."""
    case = test_contract.CASES[name]
    settings = {"num_samples": 10 * case.settings["num_samples"]}
    stored = {} if store is None else {"store": store, "resume": True}
    length = {"num_epochs": _LONGER * case.num_epochs}
    return test_contract.made(name, **settings).fit(*case.data, progress=False, **length, **stored, **options).run_


KINDS: dict[str, Callable[..., Any]] = {
    "memory": in_memory,
    "streamed": streamed,
    "default": default,
    "counts": counts,
    **{name: partial(model, name) for name in test_contract.CASES},
}


def main(kind: str, number: int = 50, seed: int = 0) -> int:
    """Start, kill, look, resume, ...; then end the run and compare."""
    failed = []
    for one in [*KINDS, "cluster"] if kind == "all" else [kind]:
        begin = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory() as folder:
                kill = _kill_workers if one == "cluster" else _kill_process
                killed, rounds, looks = kill(one, number, seed, Path(folder))
            seen = f"{min(looks):,} to {max(looks):,} draws found"
            found = f"{killed} kills in {rounds} runs, {seen}, all equal bit for bit"
        except Exception as error:
            failed.append(one)
            found = f"FAILED: {type(error).__name__}: {error}"
        print(f"{one}: {found}; {time.perf_counter() - begin:.0f} s", flush=True)
    return int(bool(failed))


# -- runs of this machine ----------------------------------------------------------------------------------------------


def _kill_process(kind: str, number: int, seed: int, folder: Path) -> tuple[int, int, list[int]]:
    rng, looks, killed, rounds = random.Random(seed), list[int](), 0, 0
    assert _started(kind, folder, folder / "whole", None).wait() == 0
    whole = sc.load(folder / "whole")
    while killed < number:  # a run that ends before its kill is followed by a new one
        store, left, before = folder / f"run-{rounds}", True, killed
        while killed < number and left:
            killed += _kill_once(kind, folder, store, rng)
            run = sc.load(store)
            _compare(whole, run)
            looks.append(run.num_draws)
            left = run.num_draws < whole.num_draws
        assert _started(kind, folder, store, None).wait() == 0
        _compare(whole, sc.load(store), ended=True)
        rounds += 1
        assert killed > before or rounds < 10, "the runs end before they can be killed"
    return killed, rounds, looks


class _Child:
    """A process that makes a run. It is forked from one that has imported everything and made no run."""

    def __init__(self, arguments: tuple[Any, ...]):
        context = multiprocessing.get_context("forkserver")
        self.begun, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=_child, args=(*arguments, sender))
        self.process.start()
        sender.close()

    def wait(self) -> int | None:
        """The status with which it ends."""
        self.process.join()
        return self.process.exitcode


def _started(kind: str, folder: Path, store: Path, share: float | None) -> _Child:
    return _Child((kind, str(folder), str(store), share))


def _kill_once(kind: str, folder: Path, store: Path, rng: random.Random) -> bool:
    """Whether the run was killed; it has a commit then."""
    child = _started(kind, folder, store, rng.uniform(0.01, 0.12))
    try:
        assert child.begun.poll(_SECONDS), "the run does not begin"
        child.begun.recv()
        commit = _commit(store)
        end = time.perf_counter() + _SECONDS
        while not commit.exists() and child.process.is_alive():
            assert time.perf_counter() < end, "the run stores nothing"
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 1.0))
    except EOFError:  # it ended
        pass
    finally:
        child.process.kill()
    return child.wait() == -signal.SIGKILL


def _commit(store: Path) -> Path:
    return store / "scirocco" / "commit.json"


def _child(kind: str, folder: str, store: str, share: float | None, begun: Any) -> None:
    """Make a run; in many short chunks, and after a share of its steps wait to be killed, if it is to be."""
    from scirocco.run.sizes import RUNNING

    if share is None:
        KINDS[kind](Path(folder), Path(store))
        return
    sharding.commit_often()
    RUNNING.first_chunk, RUNNING.second_chunk = 8, 16
    first: list[int] = []

    def wait(report: Any) -> None:
        if not first:
            first.append(report.step)
            begun.send("begun")
        while first[0] + share * report.num_steps <= report.step < report.num_steps and _commit(Path(store)).exists():
            time.sleep(1.0)

    KINDS[kind](Path(folder), Path(store), callbacks=[wait])


# -- workers of Dask ---------------------------------------------------------------------------------------------------


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
    for name in _PARTS[: 5 if ended else 4] if count else ():
        some, everything = (getattr(run, name) for run in (part, whole))
        if ended:
            helpers.assert_equal(*(jax.tree.map(np.asarray, tree) for tree in (some, everything)))
        elif name != "traces":
            first = [np.asarray(leaf)[:, :count] for leaf in jax.tree.leaves(everything)]
            helpers.assert_equal([np.asarray(leaf)[:, :count] for leaf in jax.tree.leaves(some)], first)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
