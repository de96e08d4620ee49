"""Where they begin: at the mode, unless chains from it do worse; and what is said of chains that stand still."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import scirocco as sc
from scirocco.diagnostics import chains

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

REGRESSION = sc.Model(
    lambda p, row: norm.logpdf(row["y"], row["x"] @ p["beta"], p["sigma"]), transforms={"sigma": sc.transforms.positive}
)


def regression(num_rows, columns, seed, unit=1_000.0):
    rng = np.random.default_rng([seed, num_rows])
    x = np.column_stack([np.ones(num_rows), rng.normal(size=(num_rows, columns - 1))]).astype(np.float32)
    y = unit * (x @ rng.normal(size=columns) + rng.normal(size=num_rows))
    return {"x": x, "y": y.astype(np.float32)}, {"beta": np.zeros(columns, np.float32), "sigma": np.float32(1.0)}


@pytest.mark.rotates(2, "first guesses")
@pytest.mark.parametrize(("num_rows", "columns"), [(50, 10), (20, 12)])
def test_few_rows_in_large_units_from_a_start_that_is_far_too_small(num_rows, columns, seed):
    """With flat priors σ⁻² is a gamma variable, and β a Student t around the least squares."""
    data, start = regression(num_rows, columns, seed)
    run = sc.sample(REGRESSION, data, start, num_samples=500, num_chains=4, seed=seed, progress=False)
    assert run.preparation["roundness"] < 0.8
    x, y = data["x"].astype(np.float64), data["y"].astype(np.float64)
    beta = np.linalg.lstsq(x, y, rcond=None)[0]
    squares, degrees = np.sum((y - x @ beta) ** 2), num_rows - columns - 1  # flat in σ
    precision = 1 / np.asarray(run.draws["sigma"], np.float64) ** 2 * squares / degrees
    sizes = run.summary()["ess_bulk"].to_numpy()
    error = 5 * np.sqrt(2 / degrees / sizes.min()) + 0.02
    assert abs(precision.mean() - 1) < error
    sds = np.sqrt(squares / (degrees - 2) * np.diagonal(np.linalg.inv(x.T @ x)))
    off = (np.asarray(run.draws["beta"], np.float64).mean(axis=(0, 1)) - beta) / sds
    assert np.all(np.abs(off) < 5 / np.sqrt(sizes.min()) + 0.02)


def test_a_mode_of_negligible_mass_is_left():
    """The mode of Neal's funnel is where v = -40.5, far below its mean 0 and standard deviation 3."""
    model = sc.Model(
        lambda p, row: 0.0 * row,
        lambda p: -(p["v"] ** 2) / 18 - 4.5 * p["v"] - 0.5 * jnp.sum(p["x"] ** 2) * jnp.exp(-p["v"]),
    )
    start = {"v": np.float32(0.0), "x": np.full(9, 0.1, np.float32)}
    with pytest.warns(sc.errors.SciroccoWarning):
        run = sc.sample(model, np.zeros(1, np.float32), start, num_samples=200, progress=False)
    assert run.preparation["roundness"] > 100
    assert run.preparation["adaptation"]["from"] == "start"
    assert run.draws["v"].mean() > -10


def two_bumps(distance):
    return sc.Model(
        lambda p, row: 0.0 * row,
        lambda p: jnp.logaddexp(-0.5 * (p["a"] - distance) ** 2, -0.5 * (p["a"] + distance) ** 2) - 0.5 * p["b"] ** 2,
    )


@pytest.mark.parametrize("step", [1e-6, 1.0])
def test_chains_that_hardly_move_are_told_from_chains_in_different_modes(step):
    """Starts are scattered by hand: one chain each, joined to one run."""
    runs = [
        sc.sample(
            two_bumps(20.0),
            np.zeros(1, np.float32),
            {"a": np.float32(a), "b": np.float32(0.0)},
            sampler=sc.HMC(step_size=step, factor=np.ones(2, np.float32)),
            num_samples=200,
            num_burnin=20,
            num_chains=1,
            progress=False,
        )
        for a in (-23.0, 23.0, -24.0, 24.0)
    ]
    joined = _joined(runs)
    words = sc.analysis.certify(joined).words
    assert ("hardly moves" in words) == (step < 1)
    assert ("different modes" in words) == (step == 1)


def _joined(runs):

    def together(*leaves):
        return np.concatenate([np.asarray(leaf) for leaf in leaves])

    draws, stats = (
        jax.tree.map(together, *each) for each in zip(*((run.draws, run.stats) for run in runs), strict=True)
    )
    return dataclasses.replace(runs[0], draws=draws, stats=stats)


def test_the_digits_of_an_r_hat():
    """Of chains that are constant it is 10¹⁵ or so."""
    assert [chains.r_hat_in_digits(value) for value in (1.021, 36.5, 5.9e15)] == ["1.02", "36.50", "above 100"]
