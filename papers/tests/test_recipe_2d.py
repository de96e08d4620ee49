"""Parts of `recipe-2d` by themselves, and a small run of all of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers
import scirocco as sc
from scirocco_papers import ALL, Settings, reproduce
from scirocco_papers.recipe_1d import Law, kl_of_cells
from scirocco_papers.recipe_2d import run as r2
from scirocco_papers.recipe_2d.claims import LEVELS, judge, notes


def exact_draws(rng, count):
    first = Law.of(lambda t: t**4 / 10).quantiles(rng.random(count))
    return np.stack([first, (rng.normal(size=count) + first**2) / 4 - 1.2])


def test_density_factorises():
    """∫ exp(-U) over the plane is that of the two factors, with the Jacobian ¼ of w."""
    x, y = np.linspace(-5, 5, 1_001), np.linspace(-4, 8, 1_201)
    whole = np.trapezoid(np.trapezoid(np.exp(-r2.potential(np.meshgrid(x, y, indexing="ij"))), y), x)
    assert whole == pytest.approx(np.trapezoid(np.exp(-(x**4) / 10), x) * (2 * np.pi) ** 0.5 / 4, rel=1e-6)
    assert np.trapezoid(Law.of(lambda t: t**4 / 10).density, Law.of(lambda t: t**4 / 10).x) == pytest.approx(1.0)


def test_divergence_of_exact_draws(seed):
    """Of M draws in K cells (K - 1)/2M, with standard deviation √(2 (K - 1))/2M."""
    cells = np.asarray(jax.vmap(r2.cell, 1)(jnp.asarray(exact_draws(np.random.default_rng(seed), 20_000))))
    found = kl_of_cells(np.bincount(cells, minlength=r2.SIDE**2))
    assert cells.min() == 0 and cells.max() == r2.SIDE**2 - 1
    assert found == pytest.approx(99 / 40_000, abs=4 * 198**0.5 / 40_000)


def test_marks_and_steps():
    assert r2.marks(3) == [33, 58, 100, 173, 300, 520, 900]
    at, curve = [100, 300, 900], np.array([1.0, 0.1, 0.01])
    assert r2.steps_to(0.1, at, curve) == pytest.approx(300)
    assert r2.steps_to(0.1**1.5, at, curve) == pytest.approx((300 * 900) ** 0.5)
    assert r2.steps_to(2.0, at, curve) == 100
    assert r2.steps_to(0.001, at, curve) == float("inf")
    assert r2.steps_to(0.1, at, np.array([1.0, 0.05, np.inf])) < 300


@pytest.mark.rotates(4)
@pytest.mark.parametrize("name", r2.NAMES)
def test_all_of_the_grid_are_right_recipes(name, quick_compiler):
    """The residual of a recipe knows no step; it is looked at once for each exponent of the metric."""
    points = [jnp.array([0.4, -1.0]), jnp.array([-1.5, -0.4])]
    for setting in r2.grid(name):
        step_size = r2.recipe(setting).step_size
        assert float(step_size(0) if callable(step_size) else step_size) == pytest.approx(setting.step_size)
    for setting in {setting.power: setting for setting in r2.grid(name)}.values():
        found = sc.verify_recipe(r2.recipe(setting), points, lambda theta: -r2.potential(theta))
        assert found.ok, str(found)


def test_settings_that_differ_in_the_step_share_a_program():
    first, second = (s for s in r2.grid("gSGRHMC") if s.power == 0.25 and s.scale == 0.5 and s.step_size > 0.15)
    structures = [jax.tree.structure(r2.recipe(setting)) for setting in (first, second)]
    assert structures[0] == structures[1]


def test_curves_start_high_and_an_unstable_step_is_told(seed, quick_compiler):
    at, key = r2.marks(2), jax.random.key(seed)
    fine = r2.curves(r2.Setting("SGHMC", 0.13, 0.3), 20, at, key)  # these programs are those of the small run
    assert fine.shape == (20, len(at)) and np.isfinite(fine).all()
    assert fine.max() <= np.log(100) + 1e-9 and fine[:, -1].mean() < fine[:, 0].mean()
    wild = r2.curves(r2.Setting("SGLD", 0.5), 20, at, key)
    assert np.isinf(wild[:, -1]).all()


# -- judging -------------------------------------------------------------------------------------------------


def facts(steps, error=10.0):
    every = dict.fromkeys(LEVELS, float(steps))
    return {
        "kl": np.array([1.0, 0.01]),
        "steps_to": every,
        "standard_errors": dict.fromkeys(LEVELS, error),
        "setting": "ε = 1",
        "left_the_finite_numbers": [],
        "best_of_grid": every,
        "best_of_power": {0.25: float(steps)},
    }


def numbers(**changed):
    steps = {"SGLD": 4_000, "SGRLD": 4_500, "SGHMC": 1_700, "gSGRHMC": 1_500} | changed
    return {"steps": [33, 900], "samplers": {name: facts(count) for name, count in steps.items()}}


def test_claims_hold_for_the_papers_picture():
    assert all(claim.holds for claim in judge(numbers()))
    assert [bool(claim.because) for claim in judge(numbers())] == [False, True, False]


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"gSGRHMC": 1_690}, [1]),
        ({"gSGRHMC": 3_990}, [0, 1]),
        ({"SGLD": 1_720}, [2]),
        ({"SGRLD": 1_510}, [2]),
        ({"gSGRHMC": float("inf")}, [0, 1, 2]),
    ],
)
def test_each_claim_can_fail(changed, wrong):
    assert [k for k, claim in enumerate(judge(numbers(**changed))) if not claim.holds] == wrong


@pytest.mark.parametrize("steps", [8_000, float("inf")])
def test_a_quick_run_refutes_what_is_far_off(steps):
    assert [claim.of_a_quick_run().failed for claim in judge(numbers(gSGRHMC=steps))] == [True, False, True]


def test_a_setting_that_was_given_up_is_named():
    told = numbers()
    told["samplers"]["SGRLD"]["left_the_finite_numbers"] = ["ε = 7"]
    assert "SGRLD ε = 7" in notes(told)[-1]


@pytest.mark.rotates(5, "small runs")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_small_run(tmp_path, monkeypatch, quick_compiler):
    """One program for each sampler, a few chains, too few steps for the level that is judged (∞ - ∞)."""
    grid = r2.grid
    monkeypatch.setattr(r2, "grid", lambda name: grid(name)[:3])
    monkeypatch.setattr(r2, "QUICK", (20, 20, 4))
    done = reproduce(ALL["recipe-2d"], Settings(quick=True, out_dir=tmp_path))
    of = done.outcome.numbers["samplers"]
    assert len(done.outcome.claims) == 3 and all(len(one["grid"]) == 2 for one in of.values())
    assert all(one["kl"].shape == (9,) and one["kl"][-1] < one["kl"][0] for one in of.values())
    helpers.assert_drawn(done.picture)
