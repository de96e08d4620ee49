"""Draws that spread too widely for the posterior do not pass in silence, and others raise no alarm."""

import types
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.errors import DivergenceError, SciroccoWarning, StoreError
from scirocco.run import setup
from scirocco.run.choose import spread_check

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

ROWS = 2_000
TOO_WIDE = "spread about"


def normal(params, row):
    """A regression with unknown noise."""
    sd = params["sd"]
    return -0.5 * ((row["y"] - row["x"] @ params["slopes"]) / sd) ** 2 - jnp.log(sd)


def logistic(beta, row):
    logit = row["x"] @ beta
    return row["y"] * logit - jnp.logaddexp(0.0, logit)


NORMAL = sc.Model(normal, transforms={"slopes": None, "sd": sc.transforms.positive})
LOGISTIC = sc.Model(logistic)
X = np.random.default_rng(1).standard_normal((ROWS, 3)).astype(np.float32)
NOISE = np.random.default_rng(2).standard_normal(ROWS).astype(np.float32)
LABELS = {"x": X, "y": (X @ np.array([1.0, -1.0, 0.5]) + NOISE > 0).astype(np.float32)}
NUMBERS = {"x": X, "y": X @ np.array([1.0, -1.0, 0.5], np.float32) + NOISE}
START = {"sd": jnp.array(1.0), "slopes": jnp.zeros(3)}
CURVATURE = 0.1 * ROWS
"""Of the logistic regression, about."""


def sampled(step, store=None, **options):
    options = {"num_samples": 1_000, "num_burnin": 200, "progress": False} | options
    return sc.sample(LOGISTIC, LABELS, jnp.zeros(3), sampler=sc.SGLD(step), store=store, **options)


def spread_of(width, seed, shape=(2, 200)):
    """What is found in independent draws with `width` times the standard deviations of the posterior."""
    centre = np.linalg.lstsq(NUMBERS["x"], NUMBERS["y"])[0]
    sd = np.std(NUMBERS["y"] - NUMBERS["x"] @ centre)
    root = np.linalg.cholesky(np.linalg.inv(X.T @ X) * sd**2)
    rng = np.random.default_rng([seed, 6])
    z = width * rng.standard_normal((*shape, 4))
    draws = {"sd": sd * np.exp(z[..., 0] / np.sqrt(2 * ROWS)), "slopes": centre + z[..., 1:] @ root.T}
    draws = {name: leaf.astype(np.float32) for name, leaf in draws.items()}
    table = setup.compose(NORMAL, NUMBERS, sc.SGLD(1.0), sc.Minibatch(100), 0).table
    run = types.SimpleNamespace(draws=draws, num_chains=shape[0], num_draws=shape[1])
    return spread_check.too_wide(run, NORMAL, table, 1.0, seed)


def test_exact_draws_raise_no_alarm(seed):
    assert spread_of(1.0, seed) is None
    assert spread_of(1.0, seed, (300, 2)) is None


@pytest.mark.parametrize("width", [2.2, 10.0])
def test_the_ratio_of_standard_deviations_is_found(width, seed):
    """E[-(x - m) g] is width² for these slopes; of 200 draws it is known within a tenth."""
    found = spread_of(width, seed)
    assert found is not None and found.sure < found.ratio
    assert abs(np.log(found.ratio / width)) < 0.5  # the worst of five, and log sd is not quite normal


def test_too_few_draws_tell_nothing(seed):
    assert spread_of(10.0, seed, (1, 100)) is None


def test_a_warning_has_a_step_that_works(seed):
    with pytest.warns(SciroccoWarning, match=TOO_WIDE) as caught:
        sampled(1.7 / CURVATURE, seed=seed)
    (said,) = [str(each.message) for each in caught if TOO_WIDE in str(each.message)]
    step = float(said.split("Try step_size=")[1].split(",")[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", SciroccoWarning)
        sampled(step, seed=seed, thin=50)  # shorter steps need more of them


def test_a_hopeless_run_is_an_error_that_keeps_the_draws(tmp_path, seed):
    """Finite everywhere: gradients of a logistic regression are bounded."""
    with pytest.raises(DivergenceError, match=rf"{TOO_WIDE}.* Try step_size=") as caught:
        sampled(300 / CURVATURE, tmp_path / "run", seed=seed)
    assert np.asarray(caught.value.run.draws).shape == (1, 1_000, 3) and caught.value.run.status == "diverged"
    assert sc.load(tmp_path / "run").status == "diverged"
    with pytest.raises(StoreError, match="diverged"):
        sc.resume(tmp_path / "run", LOGISTIC, LABELS, num_samples=2_000, progress=False)


def test_a_resumed_run_is_checked(tmp_path, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("error", SciroccoWarning)
        sampled(1.7 / CURVATURE, tmp_path / "run", num_samples=50, seed=seed)  # too few to tell
    with pytest.warns(SciroccoWarning, match=TOO_WIDE):
        sc.resume(tmp_path / "run", LOGISTIC, LABELS, num_samples=1_000, progress=False)


def test_streamed_rows_are_checked(tmp_path, seed):
    for name, values in LABELS.items():
        np.save(tmp_path / f"{name}.npy", values)
    rows = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in LABELS}
    options = {"estimator": sc.Minibatch(500), "num_samples": 1_000, "progress": False, "seed": seed}
    with pytest.raises(DivergenceError, match=TOO_WIDE):
        sc.sample(LOGISTIC, rows, jnp.zeros(3), sampler=sc.SGLD(300 / CURVATURE), **options)
