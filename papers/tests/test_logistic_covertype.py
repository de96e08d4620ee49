"""The judgement of `logistic-covertype` on known numbers, its parts on small data."""

import jax.numpy as jnp
import numpy as np
import pytest

import helpers
from scirocco import datasets
from scirocco.demo import save_figure
from scirocco.errors import InvalidValueError
from scirocco.sgmcmc import arguments
from scirocco_papers import covertype_rows
from scirocco_papers.base import Settings
from scirocco_papers.logistic_covertype import run as experiment
from scirocco_papers.logistic_covertype import six
from scirocco_papers.logistic_covertype import sizes as by_size
from scirocco_papers.logistic_covertype.claims import about_trend, judge, notes, rise
from scirocco_papers.logistic_covertype.run import draw


def curve(mean, sd):
    passes = np.arange(5.0)
    return {
        "passes": passes,
        "mean": np.full(5, mean),
        "low": np.full(5, mean - sd),
        "high": np.full(5, mean + sd),
        "first_passes": 1.0,
        "late_mean": mean,
        "late_sd": sd,
    }


def size(gain):
    def four():
        return {
            "SGLD": curve(-0.5125, 1e-3),
            "SGLD-CV": curve(-0.512, 1e-3 / gain),
            by_size.OWN: curve(-0.511, 5e-4 / gain),
            "SAGA": curve(-0.5115, 1e-3),
        }

    return {"fixed": four() | {by_size.HALF: curve(-0.5115, 1e-3)}, "decreasing": four()}


def method(name):
    controlled = name.endswith("cv")
    return {
        "step": 1e-6,
        "inner": 5 if "hmc" in name else 1,
        "iterations": np.arange(10, 60, 10),
        "first_chain": np.full(5, 0.51),
        "mean": 0.511 if controlled else 0.512,
        "error": 1e-4,
        "sd": 1e-4 if controlled else {"sgld": 2e-3, "sghmc": 5e-4, "sgnht": 1e-3}[name],
        "burnin": {"sgldcv": 4_000}.get(name, 900),
    }


@pytest.fixture
def numbers():
    return {
        "sizes": {5_000: size(1.2), 50_000: size(2.0), 500_000: size(8.0)},
        "listed_ascent": {"listed": -0.55, "read as": -0.52},
        "stability": {5_000: {"limit": 4e-4, "saga": 5e-4}, 500_000: {"limit": 4e-6, "saga": 5e-6}},
        "boxes": [
            {"variance_ratio": r, "without": np.linspace(0, 1, 9), "with": np.linspace(0.4, 0.6, 9)}
            for r in (6.0, 9.0, 7.0)
        ],
        "six": {name: method(name) for name in six.NAMES},
    }


def test_claims_hold_for_the_thesis_picture(numbers):
    claims = judge(numbers, quick=False)
    assert len(claims) == 12 and all(claim.holds for claim in claims)
    assert "1.20, 2.00, 8.00 at N = 5,000, 50,000, 500,000" in claims[0].here
    counted = [not claim.because for claim in judge(numbers, quick=True)]
    assert counted == [False] * 11 + [True], "a quick run judges the boxes alone"
    assert "5e-06 and 2/λ at the start 4e-06" in notes(numbers)[1]
    assert "step sizes 0 are not stationary" in notes(numbers)[0]


def test_a_trend_is_told_from_noise(numbers):
    """A line of standard deviation 3 and noise of standard deviation 4 have 5 together."""
    line = 3 * 12**0.5 * np.arange(200) / 100
    found = curve(0.0, 5.0) | {"mean": line}
    assert rise(found) == pytest.approx(3 * 12**0.5) and about_trend(found) == pytest.approx(4.0)
    numbers["sizes"][500_000]["fixed"]["SGLD"] |= {"mean": line / 5_000, "late_sd": 1e-3}
    assert "step sizes 1 are not stationary" in notes(numbers)[0]
    assert "6.40 at N" in judge(numbers, quick=False)[0].here, "0.8 of 8"


@pytest.mark.parametrize(
    ("fails", "path", "value"),
    [
        ([0], ("sizes", 500_000, "fixed", "SGLD-CV", "late_sd"), 9e-4),
        ([1], ("sizes", 50_000, "fixed", "SGLD", "late_mean"), -0.5119),
        ([2], ("sizes", 50_000, "fixed", "SAGA", "late_mean"), -0.6),
        ([3], ("sizes", 50_000, "fixed", by_size.HALF, "late_mean"), -0.5121),
        ([4], ("sizes", 5_000, "decreasing", "SAGA", "late_mean"), -0.5121),
        ([5], ("sizes", 5_000, "decreasing", "SGLD", "late_mean"), -0.5145),
        ([11], ("boxes", 1, "variance_ratio"), 0.9),
        ([6], ("six", "sgnhtcv", "mean"), 0.5119),
        ([7], ("six", "sghmccv", "sd"), 6e-4),
        ([8], ("six", "sghmc", "sd"), 1.1e-3),
        ([9], ("six", "sgnhtcv", "burnin"), 4_000),
        ([10], ("six", "sgld", "sd"), 1.4e-3),
    ],
)
def test_each_claim_can_fail(numbers, fails, path, value):
    *above, last = path
    place = numbers
    for key in above:
        place = place[key]
    place[last] = value
    assert [k for k, claim in enumerate(judge(numbers, quick=False)) if not claim.holds] == fails


def test_figure_is_drawn(numbers, tmp_path):
    save_figure(lambda figure: draw(figure, numbers), tmp_path / "figure.png")
    helpers.assert_drawn(tmp_path / "figure.png")


def test_burnin_ends_where_the_band_is_reached():
    marks = 10 * np.arange(1, 201)
    wave = 0.01 * np.where(np.arange(200) % 2, 1.0, -1.0)
    losses = 1.0 + wave
    losses[:40] += 1.0
    losses[60] += 1.0  # a spike does not count
    assert six.burnin(six.Chains(marks, np.stack([losses, losses]))) == 410


@pytest.fixture(scope="module")
def patches():
    """2,000 rows like covertype's: two measured columns and four areas."""
    rng = np.random.default_rng(7)
    X = np.column_stack([rng.random((2_000, 2)), np.eye(4)[rng.integers(4, size=2_000)]]).astype(np.float32)
    y = (rng.random(2_000) < 1 / (1 + np.exp(3 - 6 * X[:, 0]))).astype(np.int8)
    return datasets.Covertype(X, y, tuple("abcdef"), "made here")


@pytest.mark.rotates(5, "small runs")
def test_curves(patches, monkeypatch, quick_compiler):
    """Passes count what comes before the sampler; κ = 0 is a fixed step; seeds differ."""
    monkeypatch.setattr(by_size, "BATCH", 100)
    monkeypatch.setattr(by_size, "STEPS", {1.0: {"SGLD": 1e-3, "SGLD-CV": 1e-3, "SGD": 1e-3, "SAGA": 2e-3}})
    train, test = covertype_rows.split(patches, 0)
    found = by_size.curves(covertype_rows.first(train, 1.0), covertype_rows.first(test, 1.0), 1.0, 200, 2, 0)
    fixed = found["fixed"]
    each = 10 * 100 / 1_800
    np.testing.assert_allclose(fixed["SGLD"].passes, each * np.arange(1, 21))
    np.testing.assert_allclose(fixed["SAGA"].passes, 1 + each * np.arange(1, 21))
    ascent = 4 * each  # a fifth of 200 steps
    joined = np.concatenate([each * np.arange(1, 5), ascent + 1 + each * np.arange(1, 17)])
    np.testing.assert_allclose(fixed["SGLD-CV"].passes, joined)
    assert fixed["SGLD-CV"].first_passes == pytest.approx(ascent + 1)
    assert fixed[by_size.OWN].first_passes > 2
    assert fixed["SGLD"].scores.shape == (2, 20) and np.ptp(fixed["SGLD"].scores[:, -1]) > 0
    np.testing.assert_array_equal(fixed["SGLD-CV"].scores[:, :4], found["decreasing"]["SGLD-CV"].scores[:, :4])
    assert np.ptp([found[kind]["SGLD"].scores[0, -1] for kind in found]) > 0
    assert experiment._summary(fixed["SGLD"])["late_mean"] == pytest.approx(fixed["SGLD"].scores[:, 10:].mean())


def test_samplers_are_those_of_the_r_interface():
    params = {"bias": jnp.zeros(()), "beta": jnp.zeros(6)}
    for name, theirs in (
        ("sgld", arguments.langevin(1e-4)),
        ("sghmc", arguments.hamiltonian(1e-4, 0.01, six.LEAPFROG)),
        ("sgnht", arguments.thermostat(1e-4, 0.01)),
    ):
        ours, expected = six._SAMPLERS[name](1e-4), theirs.sampler(params)
        assert type(ours) is type(expected)
        for field in ("step_size", "friction", "diffusion"):
            numbers = getattr(expected, field, None)
            if numbers is not None:
                assert set(numbers.values()) == {getattr(ours, field)}
        assert getattr(ours, "resample_every", None) == getattr(expected, "resample_every", None)
        assert getattr(ours, "thermostat", None) == getattr(expected, "thermostat", None)


def test_a_chain_that_diverges_has_an_infinite_loss(patches, monkeypatch, quick_compiler):
    train, test = covertype_rows.split(patches, 0)
    rows, held_out = (covertype_rows.first(part, 1.0) for part in (train, test))
    methods = six.Six.__new__(six.Six)
    methods.rows, methods.start = rows, {"bias": jnp.zeros(()), "beta": jnp.zeros(6)}
    methods.num_iterations, methods.seed = 200, 0
    monkeypatch.setattr(six, "ALL_ROWS", 3_600)
    tried = methods.tuned("sgnht", held_out, (1e-5, 1e6))
    assert list(tried) == [2e-5, 2e6], "twice as many rows are half the step"
    assert np.isfinite(tried[2e-5]) and tried[2e6] == np.inf


def test_stability_limit(patches, monkeypatch):
    """2/λ of Σ xxᵀ/4."""
    monkeypatch.setattr(by_size, "STEPS", {1.0: {"SAGA": 1e-3}})
    train, _ = covertype_rows.split(patches, 0)
    x = train.x.astype(np.float64)
    limit = 8 / np.linalg.eigvalsh(x.T @ x)[-1]
    assert experiment.stability(train, [1.0]) == {1_800: {"limit": pytest.approx(limit, 1e-4), "saga": 5e-4}}


def test_no_data(tmp_path):
    with pytest.raises(InvalidValueError, match="the data set `covertype` was not found"):
        experiment.run(Settings(data_dir=tmp_path))
