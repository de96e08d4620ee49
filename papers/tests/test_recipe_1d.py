"""Parts of `recipe-1d` by themselves, and a small run of all of it."""

import copy
import json

import jax
import numpy as np
import pytest

import helpers
from scirocco_papers import ALL, Settings, reproduce
from scirocco_papers import recipe_1d as r1

BOTH = pytest.mark.parametrize("target", list(r1.TARGETS))


@BOTH
def test_laws_integrate_to_one(target):
    for law in (r1.Law.of(r1.TARGETS[target]), r1.naive_law(target)):
        assert np.trapezoid(law.density, law.x) == pytest.approx(1.0, abs=1e-12)
        assert law.cumulated[-1] == pytest.approx(1.0, abs=1e-12) and np.all(np.diff(law.cumulated) >= 0)
        assert law.density[0] < 1e-10 and law.density[-1] < 1e-10, "nothing is left outside"


def test_quadrature_of_a_normal():
    law = r1.Law.of(r1.TARGETS["one peak"])
    assert law.density.max() == pytest.approx((2 * np.pi) ** -0.5, rel=1e-8)
    np.testing.assert_allclose(law.quantiles(np.array([0.025, 0.5, 0.975])), [-1.959964, 0, 1.959964], atol=1e-5)


@BOTH
def test_cells_are_equally_probable(target):
    law = r1.Law.of(r1.TARGETS[target])
    cells = law.cells(law.edges(r1.NUM_CELLS))
    np.testing.assert_allclose(cells, 1 / r1.NUM_CELLS, rtol=1e-6)
    assert r1.kl_of_cells(cells) == pytest.approx(0.0, abs=1e-12)


def test_divergence_of_known_cells():
    assert r1.kl_of_cells(np.array([3, 1])) == pytest.approx(0.75 * np.log(1.5) + 0.25 * np.log(0.5))
    np.testing.assert_allclose(r1.kl_of_cells(np.array([[5, 0, 0, 0], [1, 1, 1, 1]])), [np.log(4), 0], atol=1e-15)


@BOTH
def test_divergence_of_exact_draws_is_the_floor(target, seed):
    """Twice the number of draws times KL is χ² with 59 degrees of freedom."""
    law, num_draws = r1.Law.of(r1.TARGETS[target]), 20_000
    found = r1.floor(law, law.edges(r1.NUM_CELLS), num_draws, np.random.default_rng(seed))
    expected, sd = (r1.NUM_CELLS - 1) / (2 * num_draws), (2 * (r1.NUM_CELLS - 1)) ** 0.5 / (2 * num_draws)
    assert found["mean"] == pytest.approx(expected, abs=5 * sd / 20**0.5)
    assert found["sd"] == pytest.approx(sd, rel=0.8)


@BOTH
def test_binning_hides_little_of_the_naive_law(target):
    law, wrong = r1.Law.of(r1.TARGETS[target]), r1.naive_law(target)
    inside = law.density > 1e-12
    ratio = np.log(wrong.density[inside] / law.density[inside])
    whole = np.trapezoid(wrong.density[inside] * ratio, law.x[inside])
    binned = r1.kl_of_cells(wrong.cells(law.edges(r1.NUM_CELLS)))
    assert 0.95 * whole < binned < whole


def test_all_chains_differ_and_keep_their_shape(seed, quick_compiler):
    recipe = r1.sampler("gSGRHMC", r1.inverse_root("two peaks"), 0.1)
    draws = r1.run_chains(recipe, r1.TARGETS["two peaks"], 0.1, 50, jax.random.key(seed))
    assert draws.shape == (r1.NUM_KEPT, 50) and np.isfinite(draws).all()
    assert len(np.unique(draws)) == draws.size


# -- judging -------------------------------------------------------------------------------------------------


def numbers():
    of: dict = {
        name: {"kl": 1.2e-4, "kl_error": 1e-6, "verified": True, "residual": 1e-7, "said": "right"} for name in r1.NAMES
    }
    of["naive gSGRHMC"] = {"kl": 7.1e-3, "kl_error": 1e-4, "verified": False, "residual": 0.1, "said": "Γ is missing"}
    facts = {"floor": {"mean": 1e-4, "sd": 1e-5}, "naive_limit": 7e-3, "samplers": of}
    return {"targets": {name: copy.deepcopy(facts) for name in r1.TARGETS}}


def test_claims_hold_for_the_papers_picture():
    assert all(claim.holds for claim in r1.judge(numbers()))


@pytest.mark.parametrize("target", list(r1.TARGETS))
@pytest.mark.parametrize(
    ("sampler", "changes", "fails"),
    [
        ("naive gSGRHMC", {"kl": 9e-4}, "miss"),
        ("naive gSGRHMC", {"kl": 1.4e-2}, "miss"),
        ("gSGRHMC", {"kl": 2.1e-4}, 2),
        ("SGHMC", {"kl": 2.1e-4}, 3),
        ("SGLD", {"kl": 2.1e-4}, 4),
        ("SGLD", {"verified": False}, 5),
        ("naive gSGRHMC", {"verified": True}, 5),
    ],
)
def test_each_claim_can_fail(target, sampler, changes, fails):
    changed = numbers()
    changed["targets"][target]["samplers"][sampler] |= changes
    expected = list(r1.TARGETS).index(target) if fails == "miss" else fails
    assert [k for k, claim in enumerate(r1.judge(changed)) if claim.failed] == [expected]
    assert r1.judge(changed)[expected].of_a_quick_run().failed


def test_groups_of_chains_give_the_error_of_a_divergence(seed):
    """Of chains whose kept draws are the same: as many draws as there are chains."""
    rng, law = np.random.default_rng([seed, 9]), r1.naive_law("one peak")
    edges = r1.Law.of(r1.TARGETS["one peak"]).edges(r1.NUM_CELLS)
    sets = [np.tile(law.quantiles(rng.random(5_000)), (2, 1)) for _ in range(60)]
    found = [r1.kl_of_cells(r1.counts_in(edges, draws)) for draws in sets]
    errors = [r1.jackknifed(edges, draws) for draws in sets]
    assert np.mean(errors) == pytest.approx(np.std(found, ddof=1), rel=0.5)


@pytest.mark.rotates(5, "small runs")
def test_small_run(tmp_path, monkeypatch, quick_compiler):
    """A few chains with long steps: the divergences mean nothing, but what does not depend on them is judged."""
    monkeypatch.setattr(r1, "QUICK", (200, 0.05, 0.1))
    done = reproduce(ALL["recipe-1d"], Settings(quick=True, out_dir=tmp_path))
    assert len(done.outcome.claims) == 6 and done.outcome.claims[5].holds
    for facts in done.outcome.numbers["targets"].values():
        assert facts["samplers"]["naive gSGRHMC"]["kl"] > 0
        assert "Γ is missing" in facts["samplers"]["naive gSGRHMC"]["said"]
    assert json.loads(done.record.read_text("utf-8"))["numbers"]["num_draws"] == 2_000
    helpers.assert_drawn(done.picture)
