"""Parts of `gaussian-scaling` by themselves, and a small run of all of it."""

import copy

import jax
import numpy as np
import pytest

import helpers
from scirocco_papers import ALL, Settings, reproduce
from scirocco_papers import gaussian_scaling as gs


def test_divergence_of_a_known_normal():
    x = np.array([0.5, -0.5])
    precision = 2 + 1 / gs.PRIOR_VARIANCE
    draws = np.array([1.0, 3.0])  # mean 2, variance 2
    expected = 0.5 * np.log(2 * precision) + (1 / precision + 4) / 4 - 0.5
    assert gs.kl_divergence(draws, x) == pytest.approx(expected, rel=1e-12)


def test_exact_sample_has_the_divergence_that_is_drawn_as_reference(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=100)
    variance = 1 / gs.precision(x)
    draws = variance * x.sum() + variance**0.5 * rng.normal(size=(400, gs.NUM_DRAWS))
    found = np.array([gs.kl_divergence(row, x) for row in draws])
    error = found.std() / len(found) ** 0.5
    assert abs(found.mean() - gs.EXACT_SAMPLE) < 5 * error


def test_rule_minimises_the_expected_divergence():
    best = gs.best_rho(1_000)
    at_best = gs.expected_kl(best, 1_000)
    assert all(gs.expected_kl(best * factor, 1_000) > at_best for factor in (0.8, 0.95, 1.05, 1.25))


def test_expected_divergence_is_that_of_the_autoregression(seed):
    """θ' = (1 - ρ) θ + √(2ρ) ξ has the posterior N(0, 1) as its target, as SGLD-CV has for a Gaussian."""
    rng = np.random.default_rng([seed, 1])
    rho, num_draws, num_chains = 0.1, 4_000, 600
    chains = np.empty((num_draws, num_chains))
    state = np.zeros(num_chains)
    for step in range(num_draws):
        state = (1 - rho) * state + np.sqrt(2 * rho) * rng.normal(size=num_chains)
        chains[step] = state
    mean, variance = chains.mean(0), chains.var(0, ddof=1)
    divergence = 0.5 * np.log(variance) + (1 + mean**2) / (2 * variance) - 0.5
    assert divergence.mean() == pytest.approx(gs.expected_kl(rho, num_draws), rel=0.25)


def rows():
    def side(kl, seconds, anew):
        found = {"kl": kl, "kl_error": 0.02 * kl, "log_seconds_error": 0.05}
        return found | {"seconds": {"cpu": seconds}, gs.ANEW: {"cpu": anew}}

    return [
        {"num_rows": 1_000, "sgld_cv": side(0.1, 0.02, 2.0), "nuts": side(0.002, 0.1, 3.0)},
        {"num_rows": 10_000, "sgld_cv": side(0.04, 0.02, 2.0), "nuts": side(0.002, 0.2, 3.1)},
        {"num_rows": 100_000, "sgld_cv": side(0.01, 0.03, 2.0), "nuts": side(0.002, 1.6, 4.6)},
    ]


def test_claims_hold_for_the_papers_picture():
    assert all(claim.holds for claim in gs.judge(rows()))


@pytest.mark.parametrize(
    ("number", "row", "method", "field", "value"),
    [
        (0, 2, "nuts", "seconds", {"cpu": 0.5}),
        (1, 2, "sgld_cv", "seconds", {"cpu": 0.3}),
        (2, 0, "nuts", gs.ANEW, {"cpu": 0.15}),
        (3, 0, "sgld_cv", "kl", 0.009),
        (4, 2, "sgld_cv", "kl", 0.06),
    ],
)
def test_each_claim_can_fail(number, row, method, field, value):
    changed = copy.deepcopy(rows())
    changed[row][method][field] = value
    assert not gs.judge(changed)[number].holds and gs.judge(changed)[number].of_a_quick_run().failed
    changed[2]["nuts"]["kl_error"] = 0.1
    assert gs.judge(changed)[4].of_a_quick_run().undecided


@pytest.mark.rotates(5, "small runs")
def test_small_run(tmp_path, monkeypatch, quick_compiler):
    """Two sizes, a few draws; programs of other tests are not forgotten."""
    monkeypatch.setattr(jax, "clear_caches", lambda: None)
    for name, value in (
        ("NUM_DRAWS", 50),
        ("NUM_RUNS", 2),
        ("NUM_NUTS_RUNS_QUICK", 1),
        ("QUICK_SIZES", (1_000, 10_000)),
    ):
        monkeypatch.setattr(gs, name, value)
    done = reproduce(ALL["gaussian-scaling"], Settings(quick=True, out_dir=tmp_path))
    results = done.outcome.numbers["results"]
    assert len(done.outcome.claims) == 5 and [row["num_rows"] for row in results] == [1_000, 10_000]
    assert all(np.isfinite(row[method]["kl"]) for row in results for method in ("sgld_cv", "sgld_cv_rule", "nuts"))
    helpers.assert_drawn(done.picture)
