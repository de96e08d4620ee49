"""kill -9 of a real process that stores a run."""

from __future__ import annotations

import os

import jax
import numpy as np
import pytest

import helpers
import storing

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("quick_compiler")]


def test_a_killed_run_holds_whole_draws_and_ends_as_if_nothing_had_happened(tmp_path, seed):
    """At random moments, `SCIROCCO_TEST_KILLS` times; `python benchmarks/kill.py` does it fifty times."""
    whole = storing.draw()
    number = int(os.environ.get("SCIROCCO_TEST_KILLS", "2"))
    store = tmp_path / "run"
    killed = storing.kill_while_storing(store, number, seed, lambda run: storing.equal_beginnings(whole, run))
    assert killed >= min(number, 3)
    done = storing.draw(store)
    assert done.num_draws == storing.NUM_SAMPLES
    for part in ("draws", "gradients", "stats", "traces", "reduced"):
        helpers.assert_equal(*(jax.tree.map(np.asarray, getattr(run, part)) for run in (done, whole)))
