"""The judgement of `bnn-mnist` on known numbers, its parts on small data, and a small run of it."""

import copy
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers
import scirocco as sc
from scirocco.datasets import Digits
from scirocco.errors import InvalidValueError
from scirocco.models.network.problem import LabelledRows
from scirocco_papers import ALL, Settings, reproduce
from scirocco_papers.bnn_mnist import run as bnn
from scirocco_papers.bnn_mnist.claims import METHODS, STANDARD, judge, notes


def found(level):
    """Two runs whose draws are `level` on average, and whose average is better."""

    def scores(factor):
        names = ("log_loss", "accuracy", "brier", "calibration_error")
        return dict(zip(names, (factor * level, 0.9, factor * level / 2, 0.02), strict=True))

    losses = np.array([1.02, 1.0, 0.98]) * level
    return [{"losses": losses, "single": scores(0.98), "average": scores(0.8)} for _ in range(2)]


@pytest.fixture
def numbers():
    levels = dict(zip(METHODS, (0.4, 0.3, 0.31, 0.25, 0.2, 0.21), strict=True))
    return {"methods": {name: found(level) for name, level in levels.items()}}


def test_claims_hold_for_the_thesis_picture(numbers):
    claims = judge(numbers, cut=False)
    assert [claim.verdict for claim in claims] == ["yes"] * 4
    assert "sgld 0.4000 → 0.2500" in claims[0].here and "in 12 of 12 runs" in claims[2].here
    assert [bool(claim.because) for claim in judge(numbers, cut=True)] == [True] * 4
    assert "0.9000" in notes(numbers)[1] and "0.020 → 0.020" in notes(numbers)[2]
    assert "it is higher for none" in notes(numbers)[0]
    for run in numbers["methods"]["sghmccv"]:
        run["average"]["log_loss"] = 1.0
    assert "it is higher for sghmc." in notes(numbers)[0]


@pytest.mark.parametrize(
    ("fails", "method", "level"),
    [([0], "sgldcv", 0.41), ([0], "sgnhtcv", 0.32), ([1], "sghmc", 0.41), ([1], "sgnht", 0.41)],
)
def test_each_order_can_fail(numbers, fails, method, level):
    numbers["methods"][method] = found(level)
    assert [k for k, claim in enumerate(judge(numbers, cut=False)) if claim.failed] == fails


@pytest.mark.parametrize(("fails", "score"), [(2, "log_loss"), (3, "brier")])
def test_averages_can_fail(numbers, fails, score):
    for method in ("sgld", "sghmc"):
        numbers["methods"][method] = copy.deepcopy(numbers["methods"][method])
        for each in numbers["methods"][method]:
            each["average"][score] = 1.0
    assert [k for k, claim in enumerate(judge(numbers, cut=False)) if claim.failed] == [fails]


def test_samplers_are_rs():
    assert bnn.sampler("sgld", 2e-5) == sc.SGLD(1e-5) == bnn.sampler("sgldcv", 2e-5)
    hamiltonian = bnn.sampler("sghmccv", 1e-4)
    assert hamiltonian.step_size == pytest.approx(0.01) and hamiltonian.friction == pytest.approx(1.0)
    assert hamiltonian.resample_every == 5
    assert bnn.sampler("sgnht", 1e-4).thermostat == "leaf"
    assert set(bnn.STEP_SIZES) == set(METHODS) and len(STANDARD) == 3


def test_watch_sees_every_draw(seed):
    """Losses in order, the mean of the probabilities, and those of the last draw."""
    rng = np.random.default_rng(seed)
    rows = LabelledRows(jnp.asarray(rng.random((4, 3)), jnp.float32), jnp.asarray(rng.integers(10, size=4)))
    draws = [bnn.start(3, number) for number in range(3)]
    watch = bnn.Watch(rows, jnp.zeros(3))
    state = watch.init(draws[0])
    for params in draws:
        state = jax.jit(bnn.Watch.update)(watch, state, params)
    p = np.stack([np.asarray(bnn.NETWORK(params, rows.x)) for params in draws])
    seen = watch.result(state)
    expected = [-np.mean(np.log(each[np.arange(4), np.asarray(rows.y)])) for each in p]
    np.testing.assert_allclose(seen.losses, expected, rtol=1e-4)
    np.testing.assert_allclose(seen.mean, p.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(seen.last, p[-1], atol=1e-6)


@pytest.fixture
def digits():
    """300 pictures of 3 × 3 bytes in two classes, 100 of them for testing, 20 left over."""
    rng = np.random.default_rng(7)
    X = rng.integers(256, size=(300, 3, 3)).astype(np.uint8)
    y = (X[:, 0].mean(axis=1) > 127).astype(np.uint8)
    return Digits(X[:200], y[:200], X[200:], y[200:], "made here")


def test_split(digits, monkeypatch):
    monkeypatch.setattr(bnn, "NUM_TRAINING", 180)
    parts = bnn.split(digits)
    assert [part.x.shape for part in parts] == [(180, 9), (100, 9), (20, 9)]
    np.testing.assert_array_equal(parts.left.x, digits.X[180:].reshape(20, 9))
    assert parts.train.x.dtype == np.uint8 and parts.test.y.dtype == np.int32


@pytest.mark.rotates(5, "small runs")
def test_small_run(digits, tmp_path, monkeypatch, quick_compiler):
    monkeypatch.setattr(bnn, "mnist", lambda folder: digits)
    monkeypatch.setattr(bnn, "sampler", lambda method, step_size: sc.SGLD(1e-5))  # compiles less
    small = {"NUM_TRAINING": 180, "BATCH": 20, "HIDDEN": 3, "SHORT": 60, "EVERY": 10, "NUM_SEEDS": 2}
    for name, value in small.items():
        monkeypatch.setattr(bnn, name, value)
    done = reproduce(ALL["bnn-mnist"], Settings(out_dir=tmp_path))
    record = json.loads(done.record.read_text("utf-8"))
    methods = record["numbers"]["methods"]
    assert set(methods) == set(METHODS) and all(len(runs) == 2 for runs in methods.values())
    assert len(methods["sghmc"][0]["losses"]) == 6
    assert methods["sgld"][0]["losses"] != methods["sgld"][1]["losses"], "seeds differ"
    first = [methods[name][0]["losses"][0] for name in ("sgldcv", "sghmccv", "sgnhtcv")]
    assert np.ptp(first) == 0 < abs(first[0] - methods["sgld"][0]["losses"][0]), "from one centre"
    assert len(record["claims"]) == 4
    helpers.assert_drawn(done.picture)


def test_no_data(tmp_path):
    with pytest.raises(InvalidValueError, match="the data set `mnist` was not found"):
        bnn.run(Settings(data_dir=tmp_path))
