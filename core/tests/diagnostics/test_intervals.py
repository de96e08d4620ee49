"""The rule for central intervals of draws."""

from __future__ import annotations

import numpy as np
import pytest

from scirocco.diagnostics.intervals import central, effective_draws, least_draws, widest
from scirocco.errors import InvalidValueError

pytestmark = pytest.mark.unit


def share_inside(chain, truth, corrected):
    """Share of `truth` inside 90 % intervals of draws (draw, value)."""
    effective = effective_draws(chain[None]) if corrected else None
    low, high = central(chain, 0.9, effective=effective)
    return np.mean((low <= truth) & (truth <= high))


@pytest.mark.parametrize("count", [19, 20, 40])
def test_independent_draws(count, seed):
    """A further draw is inside with exactly the probability that is asked for, however few there are."""
    rng = np.random.default_rng([seed, count])
    shares = [share_inside(rng.exponential(size=(count, 50)), rng.exponential(size=50), False) for _ in range(200)]
    assert abs(np.mean(shares) - 0.9) < 5 * np.std(shares) / np.sqrt(len(shares))


def test_dependent_draws(seed):
    """Wider than of independent ones; 100 draws of an AR(1) process that are worth about five."""
    rng = np.random.default_rng([seed, 1])
    noise, plain, corrected = rng.standard_normal((60, 100, 50)), [], []
    for each in noise:
        for step in range(1, 100):
            each[step] = 0.9 * each[step - 1] + np.sqrt(1 - 0.81) * each[step]
        truth = rng.standard_normal(50)
        plain.append(share_inside(each, truth, False))
        corrected.append(share_inside(each, truth, True))
    assert np.mean(plain) < 0.86 and 0.88 < np.mean(corrected) < 0.95
    assert 3 < effective_draws(noise[:1]) < 20


def test_worth_of_independent_draws(seed):
    draws = np.random.default_rng(seed).standard_normal((2, 200, 300))
    assert effective_draws(draws) > 380
    assert effective_draws(np.ones((2, 30, 3))) == 60


def test_too_few_draws():
    assert (least_draws(0.9), least_draws(0.95), widest(20, 0.95), widest(40, 0.95)) == (19, 39, 0.9, 0.95)
    with pytest.raises(InvalidValueError, match=r"of 95 % requires at least 39 draws, got 20\. .* at most 0\.9"):
        central(np.zeros((20, 3)), 0.95)
    for wrong in (90, 0, 1.0, "0.9", None):
        with pytest.raises(InvalidValueError, match="between 0 and 1"):
            central(np.zeros(30), wrong)
