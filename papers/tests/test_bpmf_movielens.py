"""`bpmf-movielens` in small: splits, scores, the noise of gradients, and a whole run on made-up ratings."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import helpers
from scirocco.datasets import MovieLens
from scirocco.errors import InvalidValueError
from scirocco_papers import ALL
from scirocco_papers.base import Settings, reproduce
from scirocco_papers.bpmf_movielens import chains
from scirocco_papers.bpmf_movielens import run as bpmf
from scirocco_papers.bpmf_movielens.claims import METHODS, passes_to

pytestmark = pytest.mark.usefixtures("quick_compiler")


@pytest.fixture(scope="module")
def data():
    """600 ratings of 12 users."""
    rng = np.random.default_rng(0)
    users, items = (rng.integers(0, size, 600).astype(np.int32) for size in (12, 9))
    ratings = np.clip(np.round(3 + rng.normal(size=600)), 1, 5).astype(np.float32)
    empty = np.zeros(0)
    return MovieLens(users, items, ratings, empty, empty, tuple("abcdefghi"), empty, (), "made up")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(chains, "BATCH", 100)
    monkeypatch.setattr(chains, "NUM_FACTORS", 2)


def test_split(data, seed):
    given = chains.problem(data, 8, seed)
    count = int(np.sum(data.users < 8))
    assert len(given.test.value) == count // 10 and len(given.train.value) == count - count // 10
    assert given.train.user.max() == 7 and given.batch == 100
    assert given.train.value.mean() == pytest.approx(0, abs=1e-5)
    pairs = sorted(
        zip(*(np.concatenate(both) for both in zip(given.train[:2], given.test[:2], strict=True)), strict=True)
    )
    assert pairs == sorted(zip(data.users[data.users < 8], data.items[data.users < 8], strict=True))


def test_scores(data, seed):
    given = chains.problem(data, 12, seed)
    params = chains.start(given, seed)
    rows = given.test
    mean = np.sum(params["users"][rows.user] * params["items"][rows.item], axis=1)
    mean += params["user_bias"][rows.user] + params["item_bias"][rows.item]
    expected = stats.norm.logpdf(rows.value, mean, 3**-0.5).mean()
    stacked = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], params)
    np.testing.assert_allclose(chains.scores(stacked, rows), [expected], rtol=1e-5)


def test_control_variates_are_exact_at_their_centre(data, seed):
    given = chains.problem(data, 12, seed)
    here, there = (chains.start(given, seed + k) for k in (0, 100))
    assert chains.noise_ratio(given, here, here, seed) < 1e-6
    assert chains.noise_ratio(given, here, there, seed) > 1e-3


def test_passes_to():
    curve = {"passes": np.array([1.0, 2.0, 3.0]), "scores": np.array([-3.0, -1.0, -2.0])}
    assert passes_to(curve, -1.5) == 2.0 and passes_to(curve, 0.0) == np.inf


@pytest.mark.rotates(5, "small runs")
def test_small_run(data, tmp_path, monkeypatch):
    monkeypatch.setattr(bpmf, "movielens100k", lambda folder: data)
    monkeypatch.setattr(bpmf, "SIZES", (12,))
    monkeypatch.setattr(bpmf, "PAPER_H", {m: {12: 1e-3} for m in METHODS})
    for name, value in (("NUM_SEEDS", 2), ("NUM_STEPS", 60), ("NUM_ASCENT", 60), ("ZV_STEPS", 120), ("THIN", 2)):
        monkeypatch.setattr(bpmf, name, value)
    monkeypatch.setattr(chains, "THIN", 2)
    done = reproduce(ALL["bpmf-movielens"], Settings(out_dir=tmp_path))
    record = json.loads(done.record.read_text("utf-8"))
    curves = record["numbers"]["curves"]["12"]
    assert set(curves) == {"fixed", "decreasing"} and set(curves["fixed"]) == set(METHODS)
    sgld, saga = curves["fixed"]["SGLD"], curves["fixed"]["SAGA"]
    assert len(sgld) == 2 and len(sgld[0]["scores"]) == 30 and sgld[0]["scores"] != sgld[1]["scores"]
    assert saga[0]["passes"][0] == pytest.approx(sgld[0]["passes"][0] + 1)
    assert len(record["claims"]) == 6 and len(record["notes"]) == 7
    helpers.assert_drawn(done.picture)


def test_no_data(tmp_path):
    with pytest.raises(InvalidValueError, match="the data set `movielens100k` was not found"):
        bpmf.run(Settings(data_dir=tmp_path))
