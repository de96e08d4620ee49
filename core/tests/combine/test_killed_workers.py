"""kill -9 of a Dask worker while it draws from a subposterior."""

from __future__ import annotations

import json
import os

import jax
import numpy as np
import pytest

import helpers
import scirocco as sc
import sharding
from scirocco import cluster
from scirocco.combine.divide import subposteriors

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("quick_compiler")]

pytest.importorskip("distributed")

NUM_SHARDS, NUM_SAMPLES, NUM_BURNIN = 3, 20_000, 500


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


@pytest.mark.rotates(2, "killed workers")
def test_a_killed_worker_changes_nothing(tmp_path):
    """Of two workers one is killed right after a commit: its shard is resumed there, and all draws are the same."""
    whole = draw()
    store, flag = tmp_path / "store", tmp_path / "killed"
    with cluster.local(2) as client:
        client.run(sharding.die_after_a_commit, str(flag))
        pids = set(client.run(os.getpid).values())
        parts = draw(client=client, store=store)
        killed = json.loads(flag.read_text())
        assert killed["pid"] in pids and killed["pid"] not in set(client.run(os.getpid).values())
    helpers.assert_equal(*(jax.tree.map(np.asarray, found.draws) for found in (parts, whole)))
    everything = NUM_BURNIN + NUM_SAMPLES
    for number, run in enumerate(parts.runs):
        resumed = killed["path"].endswith(f"shard-{number:03d}")
        assert _steps_made(run) == everything - (killed["step"] if resumed else 0)


def _steps_made(run):
    """Steps of the last process that drove the run."""
    return sum(run.timing[phase]["steps"] for phase in ("first_chunk", "sampling"))
