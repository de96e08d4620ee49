"""Pareto-smoothed weights against ArviZ's, one set after the other."""

from __future__ import annotations

import numpy as np
import pytest

from scirocco.diagnostics.pareto import largest_k, psis

pytestmark = pytest.mark.unit


def weights(seed, num_draws=400):
    rng = np.random.default_rng(seed)
    logs = rng.normal(size=(6, num_draws)) * np.array([0.01, 0.5, 1.0, 2.0, 4.0, 1.0])[:, None]
    logs[5, : num_draws // 2] = -np.inf
    return logs


@pytest.mark.parametrize("efficiency", [1.0, 0.3])
def test_as_arviz(efficiency, seed):
    arviz = pytest.importorskip("arviz")
    if not hasattr(arviz, "psislw"):
        pytest.skip("ArviZ 1.x has it elsewhere")
    logs = weights(seed)
    found = psis(logs, efficiency)
    for row, one in enumerate(logs):
        theirs, k_hat = arviz.psislw(one.copy(), efficiency)
        np.testing.assert_allclose(np.exp(found.log_weights[row]), np.exp(theirs), atol=1e-12)
        assert found.k_hat[row] == pytest.approx(float(k_hat), abs=1e-9)


def test_equal_weights_of_a_tail_are_smoothed_by_their_number(seed):
    arviz = pytest.importorskip("arviz")
    if not hasattr(arviz, "psislw"):
        pytest.skip("ArviZ 1.x has it elsewhere")
    logs = np.round(weights(seed)[:5], 1)
    found = psis(logs)
    for row, one in enumerate(logs):
        theirs, k_hat = arviz.psislw(one.copy())
        np.testing.assert_allclose(np.sort(found.log_weights[row]), np.sort(theirs), atol=1e-9)
        if np.isfinite(k_hat):
            assert found.k_hat[row] == pytest.approx(float(k_hat), abs=1e-9)


def test_sets_do_not_see_each_other(seed):
    logs = weights(seed)
    together, alone = psis(logs), [psis(one) for one in logs]
    np.testing.assert_allclose(together.log_weights, [one.log_weights for one in alone], rtol=1e-12)
    np.testing.assert_allclose(np.exp(together.log_weights).sum(axis=1), 1.0, rtol=1e-12)


def test_too_few_weights_have_no_shape():
    assert psis(np.zeros(1000)).k_hat == np.inf  # all equal: no tail
    assert psis(np.arange(10.0)).k_hat == np.inf
    np.testing.assert_allclose(np.exp(psis(np.zeros((2, 50))).log_weights), 1 / 50)


def test_what_is_reliable_depends_on_the_number_of_draws():
    assert largest_k(100) == pytest.approx(0.5)
    assert largest_k(10**6) == 0.7
