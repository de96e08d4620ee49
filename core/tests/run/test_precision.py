"""Log densities of 10⁷ in 32 bits, and runs in double precision."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc

pytestmark = pytest.mark.compile

ROWS, COLUMNS = 2_000, 3
RNG = np.random.default_rng(0)
X = RNG.standard_normal((ROWS, COLUMNS))
DATA = {"x": X, "y": X @ np.array([1.0, -2.0, 0.5]) + RNG.standard_normal(ROWS)}
START = {"slope": np.zeros(COLUMNS, np.float32)}


def regression(scale):
    """Errors have standard deviation 1, and the model says that they are as small as `scale`."""
    model = sc.Model(lambda p, row: -0.5 * ((row["y"] - row["x"] @ p["slope"]) / scale) ** 2)
    covariance = np.linalg.inv(X.T @ X) * scale**2
    return model, covariance @ (X.T @ DATA["y"]) / scale**2, np.sqrt(np.diag(covariance))


def assert_law(run, mean, sd):
    draws = np.asarray(run.draws["slope"], float)
    least = sc.diagnostics.ess(draws).min()
    assert least > 300
    assert np.all(np.abs(draws.mean(axis=(0, 1)) - mean) / sd < 5 / np.sqrt(least))
    squares = ((draws - mean) / sd) ** 2
    assert np.all(np.abs(squares.mean(axis=(0, 1)) - 1) < 5 * np.sqrt(2 / sc.diagnostics.ess(squares)))


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs of a few steps."""


@pytest.mark.parametrize(
    "sampler", [sc.NUTS(), sc.HMC(), sc.ReplicaExchange(sc.HMC(), (1, 4))], ids=["NUTS", "HMC", "ReplicaExchange"]
)
def test_trajectories_where_the_log_density_is_ten_million(sampler, seed, tmp_path):
    model, mean, sd = regression(1e-2)
    options = {"sampler": sampler, "seed": seed, "progress": False}
    run = sc.sample(model, DATA, START, num_samples=300, store=tmp_path / "run", **options)
    assert run.preparation["log_density"] < -9e6
    assert_law(run, mean, sd)
    more = sc.resume(tmp_path / "run", model, DATA, num_samples=320, progress=False)
    np.testing.assert_array_equal(
        more.draws["slope"], sc.sample(model, DATA, START, num_samples=320, **options).draws["slope"]
    )


def test_what_rows_of_32_bits_cannot_tell_apart_is_said(seed):
    model, *_ = regression(1e-5)
    with pytest.warns(sc.errors.SciroccoWarning, match='precision="float64"'):
        sc.sample(model, DATA, START, sampler=sc.NUTS(max_doublings=2), num_samples=2, seed=seed, progress=False)


def test_double_precision_in_one_word(seed, tmp_path):
    model, mean, sd = regression(1e-4)
    options = {"sampler": sc.NUTS(), "seed": seed, "progress": False, "precision": "float64"}
    sc.sample(model, DATA, {"slope": jnp.zeros(COLUMNS)}, num_samples=200, store=tmp_path / "run", **options)
    run = sc.resume(tmp_path / "run", model, DATA, num_samples=300, progress=False)
    assert run.draws["slope"].dtype == np.float64
    assert_law(run, mean, sd)
    whole = sc.sample(model, DATA, START, num_samples=300, **options)
    np.testing.assert_array_equal(run.draws["slope"], whole.draws["slope"])
    assert not jax.config.jax_enable_x64


def test_other_precisions_and_workers_are_refused():
    model, *_ = regression(1.0)
    with pytest.raises(sc.errors.InvalidValueError, match=r"`precision`.*float64"):
        sc.sample(model, DATA, START, precision="float16")
    with pytest.raises(sc.errors.InvalidValueError, match="JAX_ENABLE_X64=1"):
        sc.sample(model, DATA, START, precision="float64", client="tcp://127.0.0.1:1")
