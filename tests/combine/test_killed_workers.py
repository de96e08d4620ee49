"""kill -9 of a Dask worker while it draws from a subposterior."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time

import jax
import numpy as np
import pytest

import helpers
import scirocco as sc
import sharding
from scirocco import cluster
from scirocco.combine.divide import subposteriors
from scirocco.store import open_stored

pytestmark = pytest.mark.process

pytest.importorskip("distributed")

NUM_SHARDS, NUM_SAMPLES, NUM_BURNIN = 4, 150_000, 500
PATIENCE = 240.0


def draw(**options):
    return subposteriors(
        sharding.SCALED,
        sharding.rows(80),
        NUM_SHARDS,
        sharding.START,
        sampler=sc.SGLD(1e-3),
        estimator=sc.Minibatch(5),
        num_samples=NUM_SAMPLES,
        num_burnin=NUM_BURNIN,
        seed=1,
        progress=False,
        **options,
    )


class Killer(threading.Thread):
    """Waits until some shard has committed draws and goes on, and kills the worker that writes it."""

    def __init__(self, store):
        super().__init__(daemon=True)
        self.store, self.shard, self.step, self.pid = store, None, 0, None

    def run(self):
        end = time.monotonic() + PATIENCE
        while self.pid is None and time.monotonic() < end:
            time.sleep(0.01)
            for number in range(NUM_SHARDS):
                with contextlib.suppress(Exception):  # not begun, or between two files
                    self._look(number)
                if self.pid is not None:  # one, and no more
                    break

    def _look(self, number):
        folder = self.store / f"shard-{number:03d}"
        progress = open_stored(folder).progress
        if progress["status"] != "running" or not NUM_BURNIN < progress["step"] < NUM_SAMPLES // 2:
            return
        pid = json.loads((folder / "scirocco" / "lock").read_text())["pid"]
        assert pid != os.getpid()
        os.kill(pid, signal.SIGKILL)
        self.shard, self.step, self.pid = number, progress["step"], pid


def test_a_killed_worker_changes_nothing(tmp_path):
    """Four workers, one killed in the middle: its shard goes on from its last commit, and all draws are the same."""
    whole = draw()
    store = tmp_path / "store"
    with cluster.local(4) as client:
        client.run(sharding.commit_often)
        pids = set(client.run(os.getpid).values())
        killer = Killer(store)
        killer.start()
        parts = draw(client=client, store=store)
        killer.join()
        assert killer.pid in pids and killer.pid not in set(client.run(os.getpid).values())
    helpers.assert_equal(*(jax.tree.map(np.asarray, found.draws) for found in (parts, whole)))
    made = {number: _steps_made(run) for number, run in enumerate(parts.runs)}
    everything = NUM_BURNIN + NUM_SAMPLES
    resumed = made.pop(killer.shard)
    assert 0 < resumed <= everything - killer.step  # from the commit on, and no step before it a second time
    assert set(made.values()) == {everything}


def _steps_made(run):
    """Steps of the last process that drove the run."""
    return sum(run.timing[phase]["steps"] for phase in ("first_chunk", "sampling"))
