"""Parts of `gaussian-mixture` by themselves, and a small run of all of it."""

import copy
import types

import jax.numpy as jnp
import numpy as np
import pytest

import helpers
import scirocco as sc
from scirocco_papers import ALL, Settings, reproduce
from scirocco_papers.gaussian_mixture import run as gm
from scirocco_papers.gaussian_mixture.as_in_r import sample_as_in_r
from scirocco_papers.gaussian_mixture.claims import judge
from scirocco_papers.gaussian_mixture.measures import Yardstick
from scirocco_papers.gaussian_mixture.run import Density, total_variation

MODE = {"theta1": np.array([0.0, 0.0]), "theta2": np.array([0.4, 0.6])}


def test_paper_data():
    x, start = gm.paper_data()
    assert x.shape == (1_000, 2) and x.dtype == np.float32
    # the midpoint of the components in the chain that the authors stored for the figure is near (0.2, 0.3)
    np.testing.assert_allclose(x.mean(axis=0), [0.2065, 0.2991], atol=1e-4)
    np.testing.assert_allclose(start["theta1"], [-0.954353, -1.408150], atol=1e-6)


def two_components(rng, shape, weight=0.5, scale=0.1):
    first = rng.random(shape)[..., None] < weight
    theta1 = np.where(first, MODE["theta1"], MODE["theta2"]) + scale * rng.normal(size=(*shape, 2))
    theta2 = np.where(first, MODE["theta2"], MODE["theta1"]) + scale * rng.normal(size=(*shape, 2))
    return {"theta1": theta1, "theta2": theta2}


def test_measures_of_exact_draws(seed):
    rng = np.random.default_rng(seed)
    yardstick = Yardstick.of(MODE, two_components(rng, (20_000,)))
    found = yardstick.measure(two_components(rng, (6, 5_000)))
    assert found["share"] == pytest.approx(0.49, abs=0.02)
    for name in ("spread", "spread_of_component", "spread_of_sum", "spread_of_difference"):
        assert found[name] == pytest.approx(1.0, abs=0.03), name
    assert np.abs(found["mean_offset_in_sd"]).max() < 0.05


def test_measures_of_one_component_and_of_too_wide_draws(seed):
    rng = np.random.default_rng([seed, 1])
    yardstick = Yardstick.of(MODE, two_components(rng, (20_000,)))
    stuck = yardstick.measure(two_components(rng, (4, 5_000), weight=1.0))
    assert stuck["share"] == 0.0 and stuck["spread"] < 0.5
    assert stuck["spread_of_component"] == pytest.approx(1.0, abs=0.03)
    assert stuck["spread_of_difference"] == pytest.approx(1.0, abs=0.03), "which side a chain is on does not matter"
    wide = yardstick.measure(two_components(rng, (4, 5_000), scale=0.2))
    assert wide["share"] > 0.4 and wide["spread"] > 1.05 and wide["spread_of_sum"] == pytest.approx(2.0, abs=0.1)


def test_total_variation(seed):
    rng = np.random.default_rng([seed, 2])
    near, again, far = (Density.of(rng.normal(centre, 0.05, (3_000, 2))) for centre in (0.0, 0.0, 0.6))
    assert total_variation(near, near) == 0
    assert total_variation(near, again) < 0.15
    assert total_variation(near, far) > 0.98


def test_contours_enclose_their_mass(seed):
    density = Density.of(np.random.default_rng([seed, 3]).normal(0.2, 0.1, (3_000, 2)))
    enclosed = [density.cells[density.cells >= level].sum() for level in density.levels()]
    np.testing.assert_allclose(enclosed, [0.9, 0.7, 0.5, 0.3, 0.1], atol=0.03)


# -- the R package's moves -----------------------------------------------------------------------------------


def in_r(method, model, stepsize, **changed):
    start = {"theta1": jnp.ones(2), "theta2": jnp.ones(2)}
    options = {"batch_size": 5, "num_samples": 50, "num_burnin": 0, "num_chains": 2, "seed": 0} | changed
    return sample_as_in_r(method, model, np.zeros((10, 2), np.float32), start, stepsize, **options)


@pytest.mark.parametrize("method", ["sgld", "sghmc"])
def test_in_r_all_parameters_get_the_same_normals(method, quick_compiler):
    flat = sc.Model(lambda params, x: 0.0 * jnp.sum(x))
    draws = in_r(method, flat, 0.1)
    np.testing.assert_array_equal(draws["theta1"], draws["theta2"])
    assert np.std(draws["theta1"]) > 0 and not np.array_equal(draws["theta1"][0], draws["theta1"][1])


def test_in_r_parameters_move_one_after_the_other(quick_compiler):
    """Of a likelihood in θ₁ + θ₂ alone: both at once is unstable at ε = 0.15 (ελ = 0.15 · 20), one by one is not."""
    model = sc.Model(lambda params, x: -0.5 * jnp.sum((params["theta1"] + params["theta2"] - x) ** 2))
    draws = in_r("sgld", model, 0.3, num_samples=2_000)
    assert np.abs(draws["theta1"] + draws["theta2"]).max() < 20
    with pytest.raises(sc.errors.DivergenceError):
        sc.sample(
            model,
            np.zeros((10, 2), np.float32),
            {"theta1": np.ones(2, np.float32), "theta2": np.ones(2, np.float32)},
            sampler=sc.SGLD(0.15),
            estimator=sc.Minibatch(5),
            num_samples=2_000,
            progress=False,
        )


def test_in_r_momentum_has_half_its_variance(quick_compiler):
    """One step of length 1 without gradient or friction is the refreshed momentum."""
    flat = sc.Model(lambda params, x: 0.0 * jnp.sum(x))
    draws = in_r("sghmc", flat, 0.1, num_samples=4_000, num_leapfrog=1, alpha=0.0, num_chains=4)
    moves = np.diff(draws["theta1"], axis=1)
    assert moves.var() == pytest.approx(0.05, rel=0.05)


def test_in_r_with_a_centre_uses_control_variates(quick_compiler):
    """At a batch of all rows the centre cancels: the chain is the same as without one, started there."""
    model = sc.Model(lambda params, x: -0.5 * jnp.sum((params["theta1"] - x) ** 2 + (params["theta2"] - x) ** 2))
    centre = {"theta1": jnp.ones(2), "theta2": jnp.ones(2)}
    plain = in_r("sgld", model, 0.01, batch_size=10)
    controlled = in_r("sgld", model, 0.01, batch_size=10, centre=centre)
    np.testing.assert_allclose(plain["theta1"], controlled["theta1"], atol=1e-4)


# -- judging -------------------------------------------------------------------------------------------------


def facts(share, spread, **more):
    measured = {
        "share": share,
        "share_error": 0.005,
        "spread_of_component_error": 0.01,
        "shares": [share] * 4,
        "spread": spread,
        "spreads": [spread] * 4,
    }
    return measured | {"spread_of_component": spread, "h": 1e-3, "thesis_h": 1e-3} | more


def numbers():
    of = {"sgld": facts(0.46, 1.2), "sghmc": facts(0.3, 1.4), "sgnht": facts(0.0, 0.3)}
    of |= {"sgldcv": facts(0.13, 1.1), "sghmccv": facts(0.08, 1.1), "sgnhtcv": facts(0.02, 0.7)}
    in_r = {"sghmc": facts(0.2, 1.1), "sgldcv": facts(0.04, 1.0)}
    return {"samplers": of, "as_in_r": in_r, "posterior": {"largest_curvature": 500.0}}


def test_claims_hold_for_the_papers_picture():
    assert all(claim.holds for claim in judge(numbers()))


@pytest.mark.parametrize(
    ("number", "sampler", "share", "spread", "counts"),
    [
        (0, "sghmc", 0.5, 1.4, True),
        (0, "sgld", 0.2, 1.2, True),
        (1, "sgld", 0.46, 0.9, True),
        (2, "sghmc", 0.2, 1.4, True),
        (3, "sghmc", 0.45, 1.4, False),
        (4, "sgnht", 0.3, 0.3, True),
        (4, "sgnht", 0.0, 1.1, True),
        (5, "sghmccv", 0.27, 1.1, True),
        (6, "sghmccv", 0.2, 1.1, True),
        (7, "sgldcv", 0.13, 0.9, True),
        (8, "sgnhtcv", 0.02, 1.2, True),
    ],
)
def test_each_claim_can_fail(number, sampler, share, spread, counts):
    changed = copy.deepcopy(numbers())
    changed["samplers"][sampler] = facts(share, spread)
    claim = judge(changed)[number]
    assert not claim.holds and claim.failed is claim.of_a_quick_run().failed is counts


def test_a_step_that_cannot_be_used_is_not_counted():
    changed = numbers()
    changed["samplers"]["sgldcv"] = facts(0.01, 1.1, diverged_at_step=70, thesis_h=1e-2, h=5e-3)
    claim = judge(changed)[6]
    assert not claim.holds and not claim.failed
    assert "2.5, above 2" in claim.because


def test_samplers_are_rs():
    assert gm._SAMPLERS["sgld"](2e-3) == sc.SGLD(1e-3)
    assert gm._SAMPLERS["sghmc"](5e-4).resample_every == gm.NUM_LEAPFROG
    assert gm._SAMPLERS["sgnht"](3e-4) == sc.SGNHT.from_r(3e-4, a=0.01)


@pytest.mark.rotates(5, "small runs")
def test_small_run(tmp_path, monkeypatch, quick_compiler):
    """A few draws of everything, by SGLD alone, which compiles less: the numbers mean nothing, but all is drawn."""

    def in_r(method, model, x, start, *_, num_chains, num_samples, **__):
        rng = np.random.default_rng(0)
        return {name: rng.normal(size=(num_chains, num_samples, 2)) for name in start}

    class Nuts:
        def __init__(self, *_, num_draws, **__):
            self.num_draws = num_draws

        def run(self, seed):
            draws = two_components(np.random.default_rng(seed), (self.num_draws,))
            return types.SimpleNamespace(draws=draws)

    monkeypatch.setattr(gm, "sample_as_in_r", in_r)  # tested above
    monkeypatch.setattr(gm, "Nuts", Nuts)  # `gaussian-scaling` has it
    monkeypatch.setattr(gm, "_SAMPLERS", dict.fromkeys(gm._SAMPLERS, lambda h: sc.SGLD(h / 2)))
    monkeypatch.setattr(gm, "QUICK", (2, 300))
    monkeypatch.setattr(gm, "NUM_STEPS", 250)
    monkeypatch.setattr(gm, "NUM_LEAPFROG", 1)
    monkeypatch.setattr("scirocco_papers.gaussian_mixture.run._KERNELS", 200)
    done = reproduce(ALL["gaussian-mixture"], Settings(quick=True, out_dir=tmp_path))
    found = done.outcome.numbers
    assert len(done.outcome.claims) == 9 and set(found["samplers"]) == set(gm.STEP_SIZES)
    assert found["samplers"]["sgldcv"]["h"] == 5e-3, "the thesis' step is unstable: the next half is used"
    assert found["posterior"]["noise_of_sum_over_noise_of_difference"] > 1
    helpers.assert_drawn(done.picture)
