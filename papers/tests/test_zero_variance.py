"""The judgement of `zero-variance` on known numbers, its parts on small data, and a small run of it."""

import copy
import json

import jax.numpy as jnp
import numpy as np
import pytest

import helpers
from scirocco import datasets
from scirocco.errors import InvalidValueError
from scirocco_papers import ALL, Settings, reproduce
from scirocco_papers.zero_variance import run as zv
from scirocco_papers.zero_variance.claims import KINDS, judge, notes

EXACT, CONTROL, PLAIN = KINDS


def found(*reductions):
    return {
        name: {"reduction": reduction, "quartiles": [reduction / 2, 2 * reduction], "moved": 0.9, "num_draws": 480}
        for name, reduction in zip(KINDS, reductions, strict=True)
    }


@pytest.fixture
def numbers():
    return {
        "boxes": {
            500_000: [{"variance_ratio": ratio} for ratio in (6.0, 9.0, 7.0)],
            5_000: [{"variance_ratio": ratio} for ratio in (4.0, 1.8, 3.0)],
        },
        "scaling": {5_000: found(50, 10, 1.1), 50_000: found(500, 11, 1.01), 500_000: found(9_000, 12, 0.99)},
    }


def test_claims_hold_for_the_thesis_picture(numbers):
    claims = judge(numbers, quick=False)
    assert [claim.verdict for claim in claims] == ["yes"] * 6
    assert "500,000 rows" in claims[0].here and "6.0, 9.0, 7.0" in claims[0].here
    assert "10, 11, 12 at N = 5,000, 50,000, 500,000" in claims[3].here
    assert [bool(claim.because) for claim in judge(numbers, quick=True)] == [False] * 2 + [True] + [False] * 3
    assert "50, 500, 9000" in notes(numbers)[0]


@pytest.mark.parametrize(
    ("fails", "part", "size", "key", "field", "value"),
    [
        ([0], "boxes", 500_000, 1, "variance_ratio", 0.9),
        ([1], "boxes", 5_000, 2, "variance_ratio", 1.9),
        ([2], "scaling", 500_000, PLAIN, "reduction", 1.07),
        ([2], "scaling", 5_000, PLAIN, "reduction", 0.98),
        ([3], "scaling", 500_000, CONTROL, "reduction", 6.9),
        ([3, 4], "scaling", 500_000, CONTROL, "reduction", 0.9),
        ([4], "scaling", 500_000, EXACT, "reduction", 11.0),
        ([5], "scaling", 50_000, CONTROL, "moved", 2.1),
    ],
)
def test_each_claim_can_fail(numbers, fails, part, size, key, field, value):
    changed = copy.deepcopy(numbers)
    changed[part][size][key][field] = value
    assert [k for k, claim in enumerate(judge(changed, quick=False)) if claim.failed] == fails
    assert judge(changed, quick=True)[3].of_a_quick_run().failed is (fails == [3, 4])


@pytest.fixture
def patches():
    """2,000 rows like covertype's: two measured columns, four areas, and one that hardly occurs."""
    rng = np.random.default_rng(7)
    measured, area = rng.random((2_000, 2)), rng.integers(4, size=2_000)
    X = np.column_stack([measured, np.eye(4)[area], np.arange(2_000) % 1_000 == 0]).astype(np.float32)
    y = (rng.random(2_000) < 1 / (1 + np.exp(3 - 6 * X[:, 0]))).astype(np.int8)
    return datasets.Covertype(X, y, tuple("abcdefg"), "made here")


def test_rows(patches):
    train, test = zv.split(patches, seed=3)
    assert train.x.shape == (1_800, 7) and test.x.shape == (200, 7)
    both = np.concatenate([train.x[:, 0], test.x[:, 0]])
    np.testing.assert_array_equal(np.sort(both), np.sort(patches.X[:, 0]), "each row is in one of them")
    assert zv.first(train, 0.1).x.shape == (180, 7)
    assert zv.common(train).x.shape == (1_800, 6), "without the rare one"


def test_laplace_approximation(patches):
    """The gradient vanishes at the centre, and L whitens the curvature (both with the normal prior)."""
    train = zv.first(zv.common(zv.split(patches, 0)[0]), 1.0)
    centre, factor = (np.asarray(part, np.float64) for part in zv.laplace(train))
    x, y = np.asarray(train.x, np.float64), np.asarray(train.y)
    chance = 1 / (1 + np.exp(-x @ centre))
    np.testing.assert_allclose(x.T @ (y - chance) - 0.5 * centre, 0, atol=1e-3)
    curvature = (x.T * (chance * (1 - chance))) @ x + 0.5 * np.eye(6)
    np.testing.assert_allclose(factor.T @ curvature @ factor, np.eye(6), atol=1e-3)


def test_gradients(patches, monkeypatch):
    """Of all rows: by hand. Of minibatches that together hold every row once: the same on average."""
    train = zv.first(zv.split(patches, 0)[0], 1.0)
    monkeypatch.setattr(zv, "BATCH", 100)
    beta = jnp.linspace(-1.0, 1.1, 7)
    exact = np.asarray(zv._exact(zv.MODEL, train, beta[None]))[0]
    residual = np.asarray(train.y) - 1 / (1 + np.exp(-np.asarray(train.x @ beta)))
    np.testing.assert_allclose(exact, np.asarray(train.x).T @ residual - np.sign(beta), rtol=1e-3, atol=1e-2)
    numbers = np.random.default_rng(0).permutation(1_800).reshape(18, 100)
    plain = np.asarray(zv._plain(zv.MODEL, train, jnp.broadcast_to(beta, (18, 7)), numbers))
    np.testing.assert_allclose(plain.mean(axis=0), exact, rtol=1e-3, atol=1e-2)
    assert plain.std(axis=0).min() > 1


def test_scores(patches):
    test = zv.first(zv.split(patches, 0)[1], 1.0)
    draws = jnp.stack([jnp.zeros(7), jnp.linspace(-1.0, 1.0, 7)])
    chance = 1 / (1 + np.exp(-np.asarray(test.x @ draws[1])))
    expected = np.mean(np.log(np.where(np.asarray(test.y) == 1, chance, 1 - chance)))
    np.testing.assert_allclose(zv.scores(draws, test), [-np.log(2), expected], rtol=1e-5)


@pytest.mark.rotates(5, "small runs")
def test_small_run(patches, tmp_path, monkeypatch, quick_compiler):
    monkeypatch.setattr(datasets, "covertype", lambda folder: patches)
    monkeypatch.setattr(zv, "mode", lambda rows: zv.laplace(rows)[0])  # compiles less
    monkeypatch.setattr(zv, "BATCH", 50)
    monkeypatch.setattr(zv, "PAPER_H", {1.0: 1e-3})
    for name, value in (("NUM_SEEDS", 2), ("NUM_DRAWS", 40), ("SCALED_DRAWS", 80), ("NUM_BURNIN", 20)):
        monkeypatch.setattr(zv, name, value)
    done = reproduce(ALL["zero-variance"], Settings(out_dir=tmp_path))
    record = json.loads(done.record.read_text("utf-8"))
    boxes, scaling = record["numbers"]["boxes"], record["numbers"]["scaling"]
    assert set(boxes) == set(scaling) == {"1800"} and set(scaling["1800"]) == set(KINDS)
    assert len(boxes["1800"]) == 2 and len(boxes["1800"][0]["without"]) == 40
    assert boxes["1800"][0]["without"] != boxes["1800"][1]["without"], "seeds differ"
    assert scaling["1800"][EXACT]["reduction"] > 5 and len(record["claims"]) == 5
    helpers.assert_drawn(done.picture)


def test_no_data(tmp_path):
    with pytest.raises(InvalidValueError, match="the data set `covertype` was not found"):
        zv.run(Settings(data_dir=tmp_path))
