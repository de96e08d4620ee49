"""`exact-in-n`: its judgement, and all of it with draws of the posterior itself in place of samplers."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import pytest

import helpers
from scirocco_papers import ALL, Settings, reproduce
from scirocco_papers import exact_in_n as en
from scirocco_papers.cost_in_n import counted

pytestmark = pytest.mark.papers


def good(num_rows):
    found = {name: {"z": 1.0, "rows": 5.0, "rows_per_draw": 2.0, "variance": 1.0} for name in en.LABELS}
    found["sgld_cv"]["z"], found["nuts"]["rows"] = 9.0, 4.0 * num_rows
    return {"num_rows": num_rows} | found


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, lambda row: row["zigzag"].update(z=5.0)),
        (1, lambda row: row["smh"].update(z=5.0)),
        (2, lambda row: row["bouncy"].update(rows=6.0)),
        (3, lambda row: row["sgld_cv"].update(z=2.0)),
        (3, lambda row: row["nuts"].update(rows=400.0)),
    ],
)
def test_claims_hold_and_can_fail(number, change):
    table = [good(1_000), good(100_000)]
    assert all(claim.holds for claim in en.judge(table))
    changed = copy.deepcopy(table)
    change(changed[-1])
    assert [not claim.holds for claim in en.judge(changed)] == [place == number for place in range(4)]


def test_all_of_it_with_perfect_draws(tmp_path, monkeypatch, seed):
    """The exact samplers are not rejected; SGLD-CV with 10 % too much variance is."""
    rng = np.random.default_rng(seed)

    def perfect(model, rows, start, *, sampler, num_samples, num_chains, **_):
        truth = counted.exact(counted.count(rows))
        root = np.linalg.inv(np.linalg.cholesky(counted.find_mode(counted.count(rows))[1]))
        wide = 1.05 if isinstance(sampler, en.SGLD) else 1.0
        unit = rng.normal(size=(num_chains, num_samples, 3)) @ root
        draws = truth.mean + wide * unit / unit.std(axis=(0, 1)) * truth.sd
        return SimpleNamespace(draws=draws, stats={"n_rows": np.ones(3), "n_steps": np.full(3, 3.0)})

    monkeypatch.setattr(en, "sample", perfect)
    monkeypatch.setattr(en, "QUICK_SIZES", (2_000, 20_000))
    done = reproduce(ALL["exact-in-n"], Settings(quick=True, out_dir=tmp_path))
    holds = [claim.holds for claim in done.outcome.claims]
    assert holds[:2] == [True, True] and holds[3]
    helpers.assert_drawn(done.picture)
