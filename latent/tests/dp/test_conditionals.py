"""Sticks and components have their conditional laws while labels are held, for any step size if counts are kept."""

from __future__ import annotations

import numpy as np
import pytest

from partitions import furthest

pytest.importorskip("numba", reason="mixtures need numba (the extra `compiled`)")

from scirocco_latent.dp import DPMixture, Multinomial
from scirocco_latent.dp.chain import slice_kernels

pytestmark = pytest.mark.law

GIBBS, SCIR, SCIR_CV, SGRLD = range(4)
SIZES, ALPHA = np.array([5, 0, 12, 2]), 1.4
AFTER = SIZES.sum() - np.cumsum(SIZES)


@pytest.mark.parametrize(
    ("method", "step", "fresh"),
    [(GIBBS, 1.0, True), (SCIR, 0.5, True), (SCIR, 0.5, False), (SCIR_CV, 0.5, False), (SGRLD, 0.02, False)],
)
def test_sticks(method: int, step: float, fresh: bool, seed: int) -> None:
    """v_j ~ Beta(1 + m_j, α + Σ_{l>j} m_l): mean, and mean of log(1 - v) summed; SGRLD but for its step."""
    sticks, found = np.ones((4, 2)), []
    number = 12_000 if method != SGRLD else 24_000
    for place in range(number):
        words = np.array([seed, place], np.uint64)
        logs = slice_kernels().move_sticks(sticks, SIZES, 1.0, SIZES, 4, ALPHA, method, step, fresh, words)
        share = sticks[:, 0] / sticks.sum(axis=1)
        if place % 16 == 0:
            np.testing.assert_allclose(logs, np.log1p(-share).sum(), rtol=1e-9)
        found.append([*share, *share**2])
    one, two = 1.0 + SIZES, ALPHA + AFTER
    mean = one / (one + two)
    square = mean * (one + 1) / (one + two + 1)
    if method == SGRLD:  # its bias is of the order of the step
        np.testing.assert_allclose(np.mean(found[2000:], axis=0)[:4], mean, atol=0.08)
    else:
        assert furthest(found[400:], [*mean, *square]) < 5.5


def test_stick_of_a_tiny_concentration_keeps_its_logarithm(seed: int) -> None:
    """-log(1 - v) of the last stick is about an exponential number over α, far below the smallest double."""
    found = []
    for place in range(4000):
        words = np.array([seed, place], np.uint64)
        logs = slice_kernels().move_sticks(
            np.ones((1, 2)), np.array([3]), 1.0, np.array([3]), 1, 1e-5, GIBBS, 1.0, True, words
        )
        found.append([-1e-5 * logs])
    assert furthest(found, [1.0]) < 5.5


@pytest.mark.parametrize(("method", "step"), [(GIBBS, 1.0), (SCIR, 0.4), (SCIR_CV, 0.4)])
def test_components_of_counts(method: int, step: float, seed: int) -> None:
    """Gamma numbers of shape a + S_w."""
    rng = np.random.default_rng(seed)
    X = rng.poisson([0.1, 0.5, 1.0, 4.0], (30, 4)) + np.array([0, 0, 0, 1])
    chain = DPMixture(Multinomial(0.6), sampler="scir", step_size=0.4, initial_clusters=2, seed=seed).chain(X)
    shapes = 0.6 + chain.clusters[2][:, :2]
    found = []
    for place in range(8000):
        chain.move_components(1.0, chain.batch_counts, 1.0, (method, step), np.array([seed, place], np.uint64))
        gammas = chain.parameters[0][:, :2]
        found.append([*gammas.ravel(), *(gammas**2).ravel(), *gammas.sum(axis=0)])
        if place % 16 == 0:
            np.testing.assert_allclose(chain.parameters[1][:, :2], gammas / gammas.sum(axis=0), rtol=1e-9)
    truth = [*shapes.ravel(), *(shapes * (shapes + 1)).ravel(), *shapes.sum(axis=0)]
    assert furthest(found[200:], truth) < 5.5
