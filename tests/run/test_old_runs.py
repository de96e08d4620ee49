"""Run folders that version 0.1.0 wrote, before its code was rearranged: they open, and they are resumed.

They were made by `tools/same_draws.py --folders`: 40 draws of two chains after five steps of burn-in.
"""

from __future__ import annotations

import json
import pathlib
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.errors import InvalidValueError
from scirocco.run import records
from scirocco.store import open_stored

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

ARCHIVE = pathlib.Path(__file__).parent / "data" / "runs_of_version_0_1_0.zip"
METHODS = {
    "sgld": {"sampler": sc.SGLD(1e-3), "estimator": sc.Minibatch(20)},
    "whitened": {"sampler": sc.Preconditioned(sc.BAOAB()), "estimator": sc.ControlVariates(20)},
}


def rows():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((400, 3)).astype(np.float32)
    return {"x": x, "y": (x @ np.array([1.0, -1.0, 0.5]) + rng.standard_normal(400)).astype(np.float32)}


def log_likelihood(params, row):
    return -0.5 * (row["y"] - row["x"] @ params["beta"] - params["bias"]) ** 2


def log_prior(params):
    return -0.5 * (jnp.sum(params["beta"] ** 2) + params["bias"] ** 2)


MODEL = sc.Model(log_likelihood, log_prior)
START = {"beta": np.zeros(3, np.float32), "bias": np.float32(0.1)}


@pytest.fixture(params=METHODS)
def old(request, tmp_path):
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(tmp_path)
    return request.param, tmp_path / request.param


def test_what_an_old_run_holds_is_written_as_it_was(old):
    """Record and progress come back to the same JSON, in the same order; versions before 0.2 do not say the kind."""
    stored = open_stored(old[1])
    record, progress = records.read(stored)
    assert json.dumps(record.to_json()) == json.dumps(stored.record)
    assert json.dumps(progress.to_json()) == json.dumps(stored.progress)
    assert "kind" not in record.configuration and record.kind == "sampled"
    assert (progress.draws, progress.step) == (40, record.num_steps(40))
    assert (record.num_chains, record.first_chain, record.fitted) == (2, 0, {})


@pytest.mark.rotates(2)
@pytest.mark.filterwarnings("ignore:the run was started on another setup")
def test_an_old_run_opens_and_is_resumed(old):
    """What it holds stays as it was; what follows is what a run in one go has, to rounding on another machine."""
    name, path = old
    before = jax.tree.map(np.asarray, sc.load(path).draws)
    assert before["beta"].shape == (2, 40, 3)
    assert (sc.load(path).kind, sc.load(path).status) == ("sampled", "complete")
    run = sc.resume(path, MODEL, rows(), num_samples=80, progress=False)
    jax.tree.map(lambda new, was: np.testing.assert_array_equal(new[:, :40], was), run.draws, before)
    assert run.draws["beta"].shape == (2, 80, 3)
    method = METHODS[name]
    if name == "whitened":  # numbers that were left open are those that the old version chose
        method = method | {"sampler": run.origin.sampler}
    whole = sc.sample(
        MODEL,
        rows(),
        START,
        **method,
        num_samples=80,
        num_burnin=5,
        num_chains=2,
        seed=7,
        progress=False,
    )
    jax.tree.map(
        lambda new, one: np.testing.assert_allclose(new, one, rtol=1e-2, atol=1e-3), run.draws, whole.draws
    )


def test_an_old_run_refuses_another_model(old):
    _, path = old
    other = sc.Model(lambda params, row: 2 * log_likelihood(params, row), log_prior)
    with pytest.raises(InvalidValueError, match="cannot be resumed with this model"):
        sc.resume(path, other, rows(), num_samples=80, progress=False)
