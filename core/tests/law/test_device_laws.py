"""What only an accelerator does: rounded factors of matrix products, and the loop for accelerators itself.

Skipped on a CPU; `python tools/device_laws.py` runs it, and the other tests of distributions, on an accelerator.
"""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.estimators import base
from scirocco.estimators.base import products_of
from scirocco.estimators.variance_reduced import CentredMemory

pytestmark = [pytest.mark.law, pytest.mark.skipif(jax.default_backend() == "cpu", reason="needs an accelerator")]

NUM_ROWS, DIMENSION, NOISE = 1_000, 4, 0.5
MODEL = sc.Model(lambda beta, row: -0.5 / NOISE**2 * (row["y"] - row["x"] @ beta) ** 2, lambda beta: -0.5 * beta @ beta)


def linear_data(seed):
    """Rows, and the exact mean and covariance of the posterior."""
    rng = np.random.default_rng([seed, 11])
    x = rng.normal(size=(NUM_ROWS, DIMENSION)).astype(np.float32)
    y = (x @ np.linspace(0.5, 1.5, DIMENSION) + NOISE * rng.normal(size=NUM_ROWS)).astype(np.float32)
    wide = x.astype(float)
    covariance = np.linalg.inv(wide.T @ wide / NOISE**2 + np.eye(DIMENSION))
    return {"x": x, "y": y}, covariance @ (wide.T @ y.astype(float)) / NOISE**2, covariance


def estimate(estimator, memory, position, rows, model=MODEL):
    """One estimate from all rows as a batch."""
    batch = base.Batch(rows, None, None, 1.0, 1.0, NUM_ROWS)
    context = base.Context(None, batch, jnp.zeros((), jnp.int32))

    @jax.jit
    def total(position, memory):
        with products_of(estimator):
            return estimator.estimate(model.summand, position, memory, context)[0].total

    return np.asarray(total(position, memory), float)


def rounded(values):
    return np.asarray(jnp.asarray(values, jnp.bfloat16).astype(jnp.float32), float)


MATRIX = sc.Model(
    lambda w, rows: -0.5 * jnp.sum((rows["y"] - rows["x"] @ w) ** 2, axis=1),
    lambda w: -0.5 * jnp.sum(w**2),
    vectorized=True,
)


def test_products_are_rounded_as_stated_and_sums_are_not(seed):
    rng = np.random.default_rng([seed, 12])
    x, y, w = (rng.normal(size=size).astype(np.float32) for size in ((NUM_ROWS, 64), (NUM_ROWS, 64), (64, 64)))
    found = {
        name: estimate(sc.Minibatch(NUM_ROWS, precision=name), (), jnp.asarray(w), {"x": x, "y": y}, MATRIX)
        for name in ("float32", "bfloat16")
    }

    def total(factor):
        """The gradient, with `factor` of the factors of its two products, and a bound of its terms."""
        residual = y.astype(float) - factor(x) @ factor(w)
        return factor(x).T @ factor(residual), np.abs(x).T.astype(float) @ np.abs(residual)

    exact, scale = total(lambda values: values.astype(float))
    assert np.all(np.abs(found["float32"] - exact) < 1e-5 * scale)
    assert np.all(np.abs(found["bfloat16"] - total(rounded)[0]) < 2e-5 * scale)
    assert np.any(np.abs(found["bfloat16"] - exact) > 1e-4 * scale)  # otherwise nothing was rounded


def test_differences_of_control_variates_keep_their_digits(seed):
    data, mean, covariance = linear_data(seed)
    x = data["x"].astype(float)
    centre = jnp.asarray(mean, jnp.float32)
    position = centre + 0.01 * jnp.asarray(np.sqrt(np.diag(covariance)), jnp.float32)
    memory = CentredMemory(centre, jnp.zeros(DIMENSION))
    found = estimate(sc.ControlVariates(NUM_ROWS, centre=centre), memory, position, data)
    moved = np.asarray(position, float) - np.asarray(centre, float)
    np.testing.assert_allclose(found, -x.T @ (x @ moved) / NOISE**2, rtol=0.02)


def chains_of(seed, precision, **given):
    """Many short chains from the posterior mean."""
    data, mean, covariance = linear_data(seed)
    plan = {"num_chains": 512, "num_samples": 50, "num_burnin": 300, "thin": 10, "seed": seed, "progress": False}
    run = sc.sample(
        MODEL, data, jnp.asarray(mean, jnp.float32), sampler=sc.SGLD(1e-5),
        estimator=sc.Minibatch(100, "with_replacement", precision), **plan | given,
    )  # fmt: skip
    return run, mean, covariance


@pytest.mark.filterwarnings("ignore")
def test_posterior_moments_with_rounded_products(seed):
    runs = {name: chains_of(seed, name)[0] for name in ("float32", "bfloat16")}
    _, mean, covariance = chains_of(seed, None, num_samples=1, num_burnin=0)
    spread = np.sqrt(np.diag(covariance))
    moments = {}
    for name, run in runs.items():
        x = (np.asarray(run.draws, float) - mean) / spread
        means, squares = x.mean(axis=1), (x**2).mean(axis=1)
        z = means.mean(axis=0) / (means.std(axis=0) / np.sqrt(len(x)))
        assert np.all(np.abs(z) < 5), name
        moments[name] = squares
    # the same key, so that only rounding differs: it moves the mode by a part of a standard deviation
    difference = moments["bfloat16"] - moments["float32"]
    assert np.all(np.abs(difference.mean(axis=0)) < 0.05)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("batches", ["own", 8])
def test_a_resumed_run_is_the_same_bit_for_bit(seed, batches, tmp_path):
    given = {"num_samples": 400, "num_chains": 64, "batches": batches}
    whole, *_ = chains_of(seed, None, **given)

    def stop(report):
        if report.step > 1_000:
            report.stop()

    part, *_ = chains_of(seed, None, **given, store=tmp_path / "run", callbacks=[stop])
    assert part.num_draws < 400
    rest = sc.resume(tmp_path / "run", MODEL, linear_data(seed)[0], progress=False)
    np.testing.assert_array_equal(np.asarray(rest.draws), whole.draws)


BEGIN_ON_A_CPU = """
import sys
sys.path.insert(0, {folder!r})
import test_device_laws as laws

def stop(report):
    if report.step > 1_000:
        report.stop()

run, *_ = laws.chains_of({seed}, None, num_samples=400, num_chains=64, store={store!r}, callbacks=[stop])
print("made", run.num_draws)
"""


@pytest.mark.filterwarnings("ignore")
def test_a_run_that_was_begun_on_a_cpu_warns_that_its_bits_differ(seed, tmp_path):
    store = str(tmp_path / "run")
    code = BEGIN_ON_A_CPU.format(folder=os.path.dirname(__file__), seed=seed, store=store)
    command = [sys.executable, "-W", "ignore", "-c", code]
    begun = subprocess.run(
        command, env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, timeout=100
    )
    assert "made" in begun.stdout, begun.stderr[-2_000:]
    made = int(begun.stdout.split("made")[1])
    before = np.asarray(sc.load(store).draws)
    with pytest.warns(UserWarning, match=r"another setup \(backend cpu → .*differ in the last bits"):
        rest = sc.resume(store, MODEL, linear_data(seed)[0], progress=False)
    assert 0 < made < rest.num_draws == 400
    np.testing.assert_array_equal(np.asarray(rest.draws)[:, :made], before)
    whole, _, covariance = chains_of(seed, None, num_samples=400, num_chains=64)
    # the same chain but for rounding, which the steps make smaller: it pulls towards the mode
    difference = (np.asarray(rest.draws) - whole.draws) / np.sqrt(np.diag(covariance))
    assert np.abs(difference).max() < 0.05
