"""The posterior of weights and precisions against quadrature; averages against the draws they are made of."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import scirocco as sc
from scirocco.models.network.estimator import BNN
from scirocco.models.network.networks import ACTIVATIONS, TwoLayers
from scirocco.models.network.problem import LabelledRows, LogLikelihood, Probabilities, WeightPrior

pytestmark = pytest.mark.law

GRID = np.linspace(-12.0, 12.0, 200_001)


def line(params, x):
    """Logits (0, w x): logistic regression with one coefficient."""
    return jnp.stack([jnp.zeros(len(x)), x[:, 0] * params["w"][0]], axis=1)


def grid_posterior(x, y, shape, rate):
    """p(w | data) on the grid, the precision integrated out by hand: a Student law."""
    eta = GRID[:, None] * x[:, 0]
    logs = (y * eta - np.logaddexp(0.0, eta)).sum(axis=1) - (shape + 0.5) * np.log(rate + GRID**2 / 2)
    density = np.exp(logs - logs.max())
    return density / density.sum()


@pytest.fixture(scope="module")
def fitted():
    """40 rows, all of them at every step; 8 chains of nearly independent draws."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(40, 1)).astype(np.float32)
    y = (rng.random(40) < 1 / (1 + np.exp(-x[:, 0]))).astype(int)
    net = BNN(
        apply=line,
        params={"w": jnp.zeros(1)},
        precision=(2.0, 0.5),
        sampler=sc.BAOAB(0.1, friction=4.0),
        estimator=sc.Full(),
        num_chains=8,
        thin=20,
        num_samples=500,
        num_burnin=0.05,
        seed=int(os.environ.get("SCIROCCO_TEST_SEED", "0")),
    )
    net.fit(x, y, X_test=x, y_test=y, num_epochs=10_500, progress=False)
    return net, x, y


def z_score(values, exact):
    """Of the mean of a (chain, draw) array, with batch means of 25 draws."""
    means = values.reshape(-1, 25).mean(axis=1)
    return (means.mean() - exact) / (means.std(ddof=1) / np.sqrt(len(means)))


@pytest.mark.parametrize("power", [1, 2])
def test_weights_have_the_exact_law(fitted, power):
    net, x, y = fitted
    draws = np.asarray(net.run_.draws["w"], np.float64)[..., 0]
    assert draws.shape[1] >= 490
    exact = np.sum(grid_posterior(x, y, 2.0, 0.5) * GRID**power)
    assert abs(z_score(draws[:, -475:] ** power, exact)) < 5


def test_precisions_have_the_exact_law(fitted):
    """E λ = ∫ E(λ | w) p(w | data) dw, and λ is independent of nothing: E λw² by the same integral."""
    net, x, y = fitted
    posterior, w2 = grid_posterior(x, y, 2.0, 0.5), GRID**2
    precision = net.precisions_["w"][:, -475:]
    given = 2.5 / (0.5 + w2 / 2)
    assert np.all(precision > 0)
    assert abs(z_score(precision, np.sum(posterior * given))) < 5
    drawn = np.asarray(net.run_.draws["w"], np.float64)[:, -475:, 0] ** 2
    assert abs(z_score(precision * drawn, np.sum(posterior * given * w2))) < 5


def test_predictions_average_the_draws(fitted):
    net, x, y = fitted
    draws = np.asarray(net.run_.draws["w"], np.float64).reshape(-1, 1)
    by_hand = (1 / (1 + np.exp(-draws * x[:, 0]))).mean(axis=0)
    np.testing.assert_allclose(net.predict_proba(x)[:, 1], by_hand, atol=1e-6)
    np.testing.assert_allclose(net.predictive_[:, 1], by_hand, atol=1e-6, err_msg="kept on the fly")
    exact = grid_posterior(x, y, 2.0, 0.5) @ (1 / (1 + np.exp(-GRID[:, None] * x[:, 0])))
    np.testing.assert_allclose(by_hand, exact, atol=0.03)
    assert net.score(x, y) == net.scores_["accuracy"] == np.mean((by_hand > 0.5) == y)
    assert net.calibration(x, y).error == pytest.approx(net.scores_["calibration_error"], abs=1e-6)


def test_prior_is_the_integral_over_the_precision():
    """Of three weights, by quadrature over λ; up to a constant."""
    prior, rate = WeightPrior(1.5, 0.7), stats.gamma(1.5, scale=1 / 0.7)
    precisions = np.linspace(1e-6, 60, 400_001)

    def integral(w):
        normal = precisions ** (w.size / 2) * np.exp(-0.5 * precisions * np.sum(w**2))
        return np.log(np.sum(normal * rate.pdf(precisions)))

    a, b = np.array([0.3, -1.0, 0.5]), np.array([2.0, 0.1, -0.4])
    ours = float(prior({"w": jnp.asarray(a)}) - prior({"w": jnp.asarray(b)}))
    assert ours == pytest.approx(integral(a) - integral(b), abs=1e-4)


def test_precision_given_weights(seed):
    """Gamma(α + d/2, β + |w|²/2), exactly."""
    prior, weights = WeightPrior(1.0, 1.0), np.random.default_rng(seed).normal(size=(3, 2))
    rng = np.random.default_rng([seed, 1])
    drawn = [prior.draw_precisions({"w": weights}, rng)["w"] for _ in range(2_000)]
    law = stats.gamma(1 + 3, scale=1 / (1 + np.sum(weights**2) / 2))
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-6


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_network_and_likelihood_by_hand(activation, seed):
    """(4.6.3), bytes and numbers alike."""
    network, rng = TwoLayers(activation), np.random.default_rng(seed)
    params = network.start(6, 4, 3, seed)
    pixels = rng.integers(256, size=(5, 2, 3)).astype(np.uint8)
    y = rng.integers(3, size=5)
    flat = pixels.reshape(5, 6) / 255
    hidden = np.asarray(ACTIVATIONS[activation](jnp.asarray(flat @ params["B"] + params["b"])))
    logits = hidden @ params["A"] + params["a"]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    said = Probabilities(network)
    np.testing.assert_allclose(said(params, jnp.asarray(pixels)), p, atol=1e-6)
    found = LogLikelihood(said)(params, LabelledRows(jnp.asarray(pixels), jnp.asarray(y)))
    np.testing.assert_allclose(found, np.log(p[np.arange(5), y]), atol=1e-5)
    assert jax.tree.map(np.shape, params) == {"A": (4, 3), "B": (6, 4), "a": (3,), "b": (4,)}
