"""The empirical Fisher information against closed forms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers
import scirocco as sc
from scirocco.errors import InvalidValueError

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]


def exact(data, params):
    """Linear regression: gradient of one row is residual times (x, 1)."""
    residual = data["y"] - np.sum(data["x"] * params["weights"], axis=(1, 2)) - params["bias"]
    return {"bias": np.sum(residual**2), "weights": np.sum((residual[:, None, None] * data["x"]) ** 2, axis=0)}


def test_all_rows_give_the_exact_sum(tmp_path):
    data, params = helpers.make_data(num_rows=1_000), helpers.make_params()
    expected = exact(data, params)
    for source in (data, sc.data.write(tmp_path / "rows", data)):
        found = sc.empirical_fisher(helpers.MODEL, source, params, num_rows=None)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), found, expected)


def test_some_rows_give_an_unbiased_estimate(seed):
    """|z| < 5 over 200 samples of rows."""
    data, params = helpers.make_data(num_rows=500), helpers.make_params()
    found = np.array(
        [
            float(sc.empirical_fisher(helpers.MODEL, data, params, num_rows=50, seed=1_000 * seed + k)["bias"])
            for k in range(200)
        ]
    )
    z = (found.mean() - exact(data, params)["bias"]) / (found.std(ddof=1) / np.sqrt(len(found)))
    assert abs(z) < 5


def test_it_preconditions_a_recipe():
    """Columns of very different scales: one step size serves them all."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2_000, 3)).astype(np.float32) * np.array([1.0, 30.0, 0.03], np.float32)
    y = (x @ np.array([1.0, 0.02, 10.0]) + rng.standard_normal(2_000)).astype(np.float32)
    model = sc.Model(lambda b, d: -0.5 * (d["y"] - d["x"] @ b) ** 2)
    data = {"x": x, "y": y}
    exact_sd = np.sqrt(np.diag(np.linalg.inv(x.T.astype(np.float64) @ x)))
    mode = jnp.asarray(np.linalg.lstsq(x, y, rcond=None)[0], jnp.float32)
    fisher = sc.empirical_fisher(model, data, mode)
    sampler = sc.Recipe(0.1, diffusion=1.0 / fisher)
    run = sc.sample(
        model,
        data,
        mode,
        sampler=sampler,
        estimator=sc.ControlVariates(100, centre=mode),
        num_samples=4_000,
        num_chains=4,
        progress=False,
    )
    np.testing.assert_allclose(run.draws.astype(np.float64).std(axis=(0, 1)) / exact_sd, np.ones(3), atol=0.15)


def test_bad_numbers_of_rows():
    with pytest.raises(InvalidValueError, match="num_rows"):
        sc.empirical_fisher(helpers.MODEL, helpers.make_data(), helpers.make_params(), num_rows=0)
