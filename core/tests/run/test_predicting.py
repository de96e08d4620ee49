"""Predictions: closed forms, chunks, folders, what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import scirocco as sc
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.run import predicting
from scirocco.run.result import Origin, Run
from scirocco.run.sizes import RUNNING

pytestmark = pytest.mark.unit

DRAWS = 999
GRID = norm.ppf(np.arange(1, DRAWS + 1) / (DRAWS + 1))
"""Quantiles of the standard normal at the ranks k/(S + 1), where an interval's ends are exact."""


def run_of(draws, **more):
    configuration = {"model": "test", "sampler": "given", "dimension": 1, "num_rows": 3}
    return Run(draws, None, {}, configuration, {}, {}, "complete", [], **more)


def shuffled_grid(seed, chains=3):
    """Draws of N(2, 0.5²), exact to the grid, in random order."""
    return (2.0 + 0.5 * np.random.default_rng(seed).permutation(GRID)).astype(np.float32).reshape(chains, -1)


def add(mu, row):
    return mu + row


def both(mu, row):
    return {"sum": mu + row["a"], "pair": jnp.stack([mu, mu * row["a"]])}


def noisy(mu, row, key):
    return mu + row + jax.random.normal(key)


def test_moments_and_interval_of_a_normal(seed):
    rows = np.linspace(-1, 1, 7).astype(np.float32)
    found = run_of(shuffled_grid(seed)).predict(add, rows, interval=0.8)
    np.testing.assert_allclose(found.mean, 2.0 + rows, atol=1e-5)
    np.testing.assert_allclose(found.sd, 0.5 * GRID.std(ddof=1), rtol=1e-5)
    np.testing.assert_allclose(found.low, 2.0 + 0.5 * norm.ppf(0.1) + rows, atol=1e-5)
    np.testing.assert_allclose(found.high, 2.0 + 0.5 * norm.ppf(0.9) + rows, atol=1e-5)
    assert repr(found) == "Predictions(7 rows, 999 draws, 80 % interval)"
    alone = run_of(shuffled_grid(seed)).predict(add, rows, interval=None)
    assert alone.low is None
    np.testing.assert_allclose(alone.mean, found.mean)


def test_the_interval_of_new_observations_covers_them(seed):
    """mu + noise is N(2, 0.25 + 1): the ends are known up to the Monte Carlo error of each row, which averages out."""
    rows = np.zeros(1500, np.float32)
    found = run_of(shuffled_grid(seed)).predict(noisy, rows, seed=seed)
    spread = np.sqrt(1.25)
    inside = norm.cdf(found.high, 2.0, spread) - norm.cdf(found.low, 2.0, spread)
    assert abs(np.mean(inside) - 0.9) / (np.std(inside) / np.sqrt(len(rows))) < 5
    assert np.std(found.mean) > 0.01, "rows have noise of their own"


def test_an_accelerator_sorts_in_its_program(seed, monkeypatch):
    rows = np.linspace(-1, 1, 40).astype(np.float32)
    run = run_of(shuffled_grid(seed))
    here = run.predict(add, rows)
    monkeypatch.setattr(predicting.jax, "default_backend", lambda: "gpu")
    there = run.predict(add, rows)
    np.testing.assert_allclose(there.low, here.low, rtol=1e-6)
    np.testing.assert_allclose(there.high, here.high, rtol=1e-6)


def test_chunks_do_not_matter(seed, changed):
    rows = np.linspace(0, 1, 100).astype(np.float32)
    run = run_of(shuffled_grid(seed))
    whole = run.predict(noisy, rows, seed=seed, num_draws=60)
    changed(RUNNING, predicted_numbers=60 * 16)
    assert predicting.prepared(noisy, shuffled_grid(seed)[0, :60], sc.data.as_source(rows)).size == 16
    parts = run.predict(noisy, rows, seed=seed, num_draws=60)
    for name in ("mean", "sd", "low", "high"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-5, err_msg=name)


def test_wide_functions_have_small_chunks():
    hidden = np.zeros((2, 50, 300), np.float32)
    source = sc.data.as_source(np.zeros((5000, 3), np.float32))

    def network(weights, row):
        return jnp.tanh(weights * row.sum()).sum()

    wide = predicting.prepared(network, hidden[0], source).size
    assert wide == RUNNING.predicted_numbers // (50 * 300)


def test_to_a_folder_and_back(tmp_path, seed):
    rows = {"a": np.linspace(-1, 1, 50).astype(np.float32)}
    source = sc.data.write(tmp_path / "rows", rows, shuffle=False)
    run = run_of(shuffled_grid(seed))
    held = run.predict(both, rows, interval=0.5)
    written = run.predict(both, source, interval=0.5, to=tmp_path / "out")
    for name in ("mean", "sd", "low", "high"):
        for leaf in ("sum", "pair"):
            np.testing.assert_array_equal(getattr(held, name)[leaf], getattr(written, name)[leaf])
    assert held.mean["pair"].shape == (50, 2)
    folder = sc.data.open(tmp_path / "out")
    np.testing.assert_array_equal(folder.read(0, 50)["pair_high"], held.high["pair"])
    with pytest.raises(InvalidValueError, match="exists"):
        run.predict(both, rows, to=tmp_path / "out")


def test_draws_are_spread_over_all_chains():
    draws = np.arange(40.0).reshape(4, 10)
    assert predicting.chosen(draws, 8).params.tolist() == [4, 9, 14, 19, 24, 29, 34, 39]
    assert predicting.chosen(draws, 3).count == 3  # fewer than chains
    assert predicting.chosen(draws, None).words == "40 draws"
    assert predicting.chosen(draws, 9).words == "8 of 40 draws"


def test_draws_that_are_not_finite_are_left_out():
    draws = np.arange(8.0).reshape(2, 4)
    draws[1, 3] = np.nan
    found = predicting.chosen({"a": draws, "b": np.ones((2, 4, 3))}, None)
    assert found.count == 7 and found.words == "7 of 8 draws (1 that are not finite were left out)"
    with pytest.raises(InvalidValueError, match="no draw is finite"):
        predicting.chosen(draws * np.nan, None)


def test_a_regression_predicts_in_the_users_units():
    outside = {"coef": np.full((1, 20, 2), 3.0, np.float32)}
    run = run_of({"coef": np.zeros((1, 20, 2), np.float32)}, converted=(outside, {}))
    found = run.predict(lambda params, row: row @ params["coef"], np.ones((4, 2), np.float32))
    np.testing.assert_allclose(found.mean, 6.0)


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (3, InvalidTypeError, "function"),
        (lambda mu, row: None, InvalidValueError, "real numbers for one row"),
        (lambda mu, row: jnp.zeros(0), InvalidValueError, "real numbers for one row"),
        (lambda mu, row: mu + row["y"], InvalidValueError, "failed for parameters"),
        (lambda mu, row: mu + jnp.ones(3) @ row["x"], InvalidValueError, "x \\(2,\\)"),
        (lambda mu, row: jnp.log(row["x"][0] - 1.0) + mu, InvalidValueError, "NaN or inf .* at row 0"),
    ],
)
def test_functions_that_are_refused(function, error, words, tmp_path):
    rows = {"x": np.zeros((5, 2), np.float32)}
    with pytest.raises(error, match=words):
        run_of(shuffled_grid(0)).predict(function, rows, to=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("interval", [0.0, 1.0, 1.5, -0.1, "90"])
def test_intervals_that_are_refused(interval):
    with pytest.raises(InvalidValueError, match="`interval` must be between 0 and 1"):
        run_of(shuffled_grid(0)).predict(add, np.zeros(3, np.float32), interval=interval)


def test_runs_and_draws_that_are_refused():
    with pytest.raises(InvalidValueError, match="keep_draws=True"):
        run_of(None).predict(add, np.zeros(3, np.float32))
    with pytest.raises(InvalidValueError, match="same first two axes"):
        run_of({"a": np.zeros((2, 5)), "b": np.zeros((2, 4))}).predict(add, np.zeros(3, np.float32))
    with pytest.raises(InvalidTypeError, match="num_draws"):
        run_of(shuffled_grid(0)).predict(add, np.zeros(3, np.float32), num_draws=2.5)


# -- log likelihoods --------------------------------------------------------------------------------------------------


def log_density(mu, row):
    return -0.5 * (row["y"] - mu) ** 2


def with_origin(draws, rows, model=None):
    origin = Origin(model or sc.Model(log_density), sc.data.as_source(rows), None, None, None)
    return run_of(draws, origin=origin)


def test_log_likelihoods_row_by_row(seed, tmp_path, changed):
    rng = np.random.default_rng(seed)
    rows, draws = {"y": rng.normal(size=40).astype(np.float32)}, rng.normal(size=(2, 10)).astype(np.float32)
    expected = -0.5 * (rows["y"][:, None] - draws.reshape(-1)) ** 2
    run = with_origin(draws, rows)
    np.testing.assert_allclose(run.log_likelihood(), expected, rtol=1e-5, atol=1e-6)
    changed(RUNNING, predicted_numbers=16 * 20)  # three chunks
    written = run.log_likelihood(to=tmp_path / "out")
    np.testing.assert_allclose(written, expected, rtol=1e-5, atol=1e-6)
    loaded = run_of(draws)
    np.testing.assert_allclose(loaded.log_likelihood(rows, model=run.origin.model), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(InvalidValueError, match="pass both"):
        loaded.log_likelihood()


def test_rows_with_other_columns_are_refused():
    run = with_origin(np.zeros((1, 5), np.float32), {"y": np.zeros(4, np.float32)})
    with pytest.raises(InvalidValueError, match="same columns"):
        run.log_likelihood({"y": np.zeros(4, np.float32), "x": np.zeros(4, np.float32)})
    with pytest.raises(InvalidValueError, match="same columns"):
        run.log_likelihood({"y": np.zeros((4, 2), np.float32)})


def test_what_has_no_log_likelihood_is_refused():
    rows = {"y": np.zeros(4, np.float32)}
    random = with_origin(np.zeros((1, 5), np.float32), rows, sc.Model(lambda mu, row, key: mu))
    with pytest.raises(InvalidTypeError, match="random"):
        random.log_likelihood()
    sums = sc.data.ArraySource(rows, sums_up=True)
    with pytest.raises(InvalidValueError, match="sums over the rows"):
        with_origin(np.zeros((1, 5), np.float32), sums).log_likelihood()
    infinite = with_origin(np.zeros((1, 5), np.float32), rows, sc.Model(lambda mu, row: jnp.log(mu + row["y"])))
    with pytest.raises(InvalidValueError, match="row 0 is not finite"):
        infinite.log_likelihood()


def test_arviz_has_the_groups_that_are_asked_for(seed):
    arviz = pytest.importorskip("arviz")
    rng = np.random.default_rng(seed)
    rows = {"y": rng.normal(size=12).astype(np.float32), "x": rng.normal(size=(12, 2)).astype(np.float32)}
    draws = rng.normal(size=(2, 30)).astype(np.float32)
    found = with_origin(draws, rows).to_arviz(
        log_likelihood=True, observed_data=True, posterior_predictive=lambda mu, row: mu * row["x"]
    )
    logs = found["log_likelihood"]["log_likelihood"]
    assert logs.dims == ("chain", "draw", "row")
    np.testing.assert_allclose(logs, -0.5 * (rows["y"] - draws[..., None]) ** 2, rtol=1e-4, atol=1e-6)
    made = found["posterior_predictive"]["prediction"]
    np.testing.assert_allclose(made, draws[..., None, None] * rows["x"], rtol=1e-5)
    np.testing.assert_array_equal(found["observed_data"]["x"], rows["x"])
    assert int(found["observed_data"]["num_rows"]) == 3
    if arviz.__version__.startswith("0."):
        assert arviz.loo(found, reff=1.0).n_data_points == 12
    with pytest.raises(InvalidValueError, match="requires the rows"):
        run_of(draws).to_arviz(posterior_predictive=noisy)
