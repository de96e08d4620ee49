"""Gradient noise along a run against its closed form, and why it cannot always be known."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.analysis.diagnosis.noise import noise_along
from scirocco.errors import InvalidValueError

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

ROWS, BATCH, STEP = 2_000, 50, 1e-5
MODEL = sc.Model(lambda mu, x: -0.5 * jnp.sum((x - mu) ** 2))
SIGNS = np.tile(np.array([[1, 1], [-1, 1], [1, -1], [-1, -1]], np.float32), (ROWS // 4, 1))
SINGLE = sc.Minibatch(BATCH, sampling="with_replacement")
RATIO = STEP * ROWS**2 / BATCH / 2
"""ε V / 2 with V = N²/n: rows have variance 1."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noise") / "run"
    options = {"num_samples": 400, "num_chains": 2, "progress": False}
    start = jnp.zeros(2)
    run = sc.sample(
        MODEL, SIGNS, start, sampler=sc.SGLD(STEP), estimator=SINGLE, keep_gradients=True, store=folder, **options
    )
    return folder, run


def test_it_is_the_closed_form_from_model_and_from_gradients(stored):
    folder, run = stored
    found = noise_along(run)
    assert found.steps[0] == 0 and found.steps[-1] == 399
    np.testing.assert_allclose([found.median, found.largest], RATIO, rtol=0.1)
    loaded = noise_along(sc.load(folder))
    np.testing.assert_allclose(loaded.median.mean(), RATIO, rtol=0.25)  # of 800 draws: 4 standard deviations
    assert "stored gradients" in loaded.how


def as_by(run, **parts):
    """The same draws, as if they had been made by another sampler or estimator."""
    return dataclasses.replace(run, origin=run.origin._replace(**parts))


def test_it_follows_a_schedule_and_the_friction(stored):
    falling = noise_along(as_by(stored[1], sampler=sc.SGLD(sc.schedules.polynomial(STEP, 100.0, 0.5))))
    expected = RATIO * (1 + falling.steps / 100.0) ** -0.5
    np.testing.assert_allclose(falling.median, expected, rtol=0.1)
    damped = noise_along(as_by(stored[1], sampler=sc.SGHMC(1e-4, friction=1_000.0, gradient_noise=0.0)))
    np.testing.assert_allclose(damped.median, 1e-4 * ROWS**2 / BATCH / 2_000, rtol=0.1)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"estimator": sc.Full()}, "every gradient is exact"),
        ({"estimator": sc.SVRG(BATCH)}, "SVRG depends on its memory"),
        ({"sampler": sc.PSGLD(STEP)}, "the noise of this sampler"),
        ({"sampler": sc.SGLD(STEP, temperature=0.0)}, "temperature 0"),
    ],
)
def test_where_it_cannot_be_known_the_reason_is_given(stored, parts, words):
    with pytest.raises(InvalidValueError, match=words):
        noise_along(as_by(stored[1], **parts))


def test_a_run_without_model_needs_gradients(stored):
    bare = dataclasses.replace(stored[1], origin=None, gradients=None)
    with pytest.raises(InvalidValueError, match="keep_gradients=True"):
        noise_along(bare)
