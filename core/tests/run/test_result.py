"""What a run returns, and the way to ArviZ."""

from __future__ import annotations

import dataclasses
import json
import pickle
import subprocess
import sys
from typing import NamedTuple

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest

import helpers
import scirocco as sc
from scirocco.diagnostics.frames import supported
from scirocco.errors import InvalidValueError
from scirocco.run.certificate import Certificate, stein_line
from scirocco.run.loop import step_key

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]


@pytest.fixture(scope="module")
def run():
    return helpers.draw("SGHMC-resample", "SAGA", num_samples=60, num_chains=3, keep_gradients=True, seed=4)


# -- certificates -----------------------------------------------------------------------------------------------------


def test_scores_far_from_a_line_are_no_evidence(seed):
    """Draws of the posterior, E[g] = 0 and E[g zᵀ] = -1, with residuals so large that the fitted line is indefinite."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(512, 9))
    g = 20 * rng.normal(size=(512, 9)) - z
    for value, error in stein_line(z, g, np.eye(9), {}):
        assert np.all(np.abs(value) < 5 * error)


# -- kept gradients ---------------------------------------------------------------------------------------------------


@pytest.mark.rotates(2)
@pytest.mark.parametrize("sampler", ["SGLD", "SGHMC-friction", "BADODAB"])
@pytest.mark.parametrize("thin", [1, 3])
def test_a_kept_gradient_is_that_at_its_draw(sampler, thin):
    """Exactly, since all rows are used: not of the position before, nor of the one after."""
    run = helpers.draw(sampler, "Full", num_samples=8, num_burnin=2, thin=thin, num_chains=2, keep_gradients=True)
    for chain in range(2):
        for number in range(8):
            at = jax.tree.map(lambda leaf: leaf[chain, number], run.draws)  # noqa: B023
            kept = jax.tree.map(lambda leaf: leaf[chain, number], run.gradients)  # noqa: B023
            exact = helpers.exact_gradient(at)
            helpers.assert_close(kept, exact, rtol=1e-4, atol=1e-3)
            flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(exact)])
            np.testing.assert_allclose(run.stats["gradient_norm"][chain, number], np.linalg.norm(flat), rtol=1e-4)


@pytest.mark.rotates(2)
@pytest.mark.parametrize("estimator", ["Minibatch-without", "SAGA"])
def test_a_kept_gradient_is_the_estimate_that_drives_the_next_step(estimator):
    """Step by step with a kernel: the gradient of the state after m steps is the one kept with draw m."""
    run = helpers.draw("SGLD", estimator, num_samples=6, keep_gradients=True, seed=7)
    parts = helpers.SAMPLERS["SGLD"], helpers.ESTIMATORS[estimator]
    kernel = sc.Kernel(helpers.MODEL, helpers.make_data(), *parts, seed=7)
    state = kernel.init(jax.random.key(7), helpers.make_params())
    for number in range(6):
        state, info = kernel.step(step_key(state.noise_key, number), state)
        assert int(info.code) == 0
        helpers.assert_close(kernel.position(state), jax.tree.map(lambda leaf: leaf[0, number], run.draws))  # noqa: B023
        kept = jax.tree.map(lambda leaf: leaf[0, number], run.gradients)  # noqa: B023
        helpers.assert_close(state.gradient.total, kept, atol=1e-3)


# -- the run itself ---------------------------------------------------------------------------------------------------


def test_a_run_describes_itself(run):
    assert repr(run) == "Run(SGHMC with SAGA: 3 chains × 60 draws of 5 parameters, complete)"
    assert (run.num_chains, run.num_draws) == (3, 60)
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.draws = None


def test_the_configuration_defines_the_run(run):
    configuration = run.configuration
    assert json.loads(json.dumps(configuration)) == configuration
    expected = {
        "num_samples": 60,
        "num_burnin": 0,
        "thin": 1,
        "num_chains": 3,
        "seed": 4,
        "keep_gradients": True,
        "num_rows": helpers.NUM_ROWS,
        "dimension": 5,
    }
    assert configuration | expected == configuration
    assert configuration["sampler"]["step_size"] == helpers.SAMPLERS["SGHMC-resample"].step_size
    assert configuration["sampler"]["resample_every"] == 3
    assert configuration["estimator"]["batch_size"] == helpers.BATCH
    assert configuration["parameters"]["weights"] == {"shape": [2, 2], "dtype": "float32"}
    assert set(configuration["versions"]) >= {"scirocco", "jax", "numpy"}
    assert configuration["versions"]["scirocco"] == sc.__version__


def test_schedules_and_numbers_chosen_by_the_sampler_are_in_the_configuration():
    run = helpers.draw(sc.SGHMC({"bias": sc.schedules.polynomial(5e-3), "weights": 5e-3}))
    sampler = run.configuration["sampler"]
    assert sampler["step_size"]["bias"] == {"name": "Polynomial", "start": 5e-3, "tau": 1_000.0, "kappa": 0.33}
    assert sampler["friction"]["bias"] > 0
    assert sampler["friction"]["weights"]["min"] > 0
    json.dumps(run.configuration)


class Layer(NamedTuple):
    weight: object
    bias: object


def nested_likelihood(params, x):
    first, second = params["layers"]
    return -0.5 * (x - jnp.sum(first.weight) - second.bias - params["rest"][0]) ** 2


def test_draws_by_name():
    params = {
        "layers": [Layer(np.zeros((2, 2), np.float32), np.float32(0)), Layer(np.zeros(3, np.float32), np.float32(0))],
        "rest": (np.float32(1.0),),
    }
    run = sc.sample(
        sc.Model(nested_likelihood),
        np.zeros(20, np.float32),
        params,
        sampler=sc.SGLD(1e-3),
        estimator=sc.Minibatch(5),
        num_samples=4,
        progress=False,
    )
    named = run.named_draws()
    assert {name: values.shape for name, values in named.items()} == {
        "layers[0].weight": (1, 4, 2, 2),
        "layers[0].bias": (1, 4),
        "layers[1].weight": (1, 4, 3),
        "layers[1].bias": (1, 4),
        "rest[0]": (1, 4),
    }
    assert isinstance(run.draws["layers"][0], Layer)
    np.testing.assert_array_equal(named["layers[0].weight"], run.draws["layers"][0].weight)
    assert "layers[1].weight[2]" in run.summary().index
    assert "layers[1].weight" in run.to_arviz()["posterior"].data_vars


def test_a_bare_array_of_parameters_has_a_name_too():
    run = sc.sample(
        sc.Model(lambda mean, x: -0.5 * (x - mean) ** 2),
        np.zeros(20, np.float32),
        np.float32(0.0),
        sampler=sc.SGLD(1e-3),
        estimator=sc.Full(),
        num_samples=8,
        progress=False,
    )
    assert list(run.named_draws()) == ["params"]
    assert list(run.summary().index) == ["params"]


# -- summary ----------------------------------------------------------------------------------------------------------


def test_summary_agrees_with_numpy_and_arviz(run):
    table = run.summary(probability=0.8, digits=None)
    assert list(table.columns) == ["mean", "sd", "10%", "90%", "mcse_mean", "ess_bulk", "ess_tail", "r_hat"]
    assert list(table.index) == ["bias", "weights[0, 0]", "weights[0, 1]", "weights[1, 0]", "weights[1, 1]"]
    values = run.draws["weights"][:, :, 1, 0].astype(np.float64)
    row = table.loc["weights[1, 0]"]
    np.testing.assert_allclose(row["mean"], values.mean(), rtol=1e-9)
    np.testing.assert_allclose(row["sd"], values.std(ddof=1), rtol=1e-9)
    np.testing.assert_allclose(
        row[["10%", "90%"]].astype(float), np.quantile(values, [0.1, 0.9], method="weibull"), rtol=1e-9
    )
    np.testing.assert_allclose(row["ess_bulk"], az.ess(values, method="bulk"), rtol=1e-9)
    np.testing.assert_allclose(row["ess_tail"], az.ess(values, method="tail"), rtol=1e-9)
    np.testing.assert_allclose(row["r_hat"], az.rhat(values), rtol=1e-9)
    np.testing.assert_allclose(row["mcse_mean"], az.mcse(values, method="mean"), rtol=1e-9)


def test_summary_is_rounded_for_reading(run):
    exact, rounded = run.summary(digits=None), run.summary()
    assert list(rounded.columns)[2:4] == ["5%", "95%"]
    np.testing.assert_allclose(rounded["mean"], exact["mean"], rtol=1e-3)
    assert all(len(f"{abs(value):g}".replace(".", "").strip("0")) <= 4 for value in rounded["sd"])
    assert np.all(rounded["ess_bulk"] == rounded["ess_bulk"].round())


@pytest.mark.parametrize("name", ["b", "a_name_that_is_rather_long_for_a_table_of_numbers"])
@pytest.mark.parametrize("scale", [1.0, -1.234e-7])
def test_summary_is_printed_within_80_columns_with_both_bounds(run, name, scale):
    draws = {name: scale * np.random.default_rng(0).normal(size=(2, 50, 100)) + scale}
    table = dataclasses.replace(run, draws=draws).summary()
    lines = str(table).splitlines()
    assert max(map(len, lines)) <= 80
    for column in ("mean", "sd", "5%", "95%", "ess_bulk", "r_hat"):
        assert column in lines[0].split()
    assert "[100 rows]" in lines
    few = str(dataclasses.replace(run, draws={name: draws[name][:, :, :20]}).summary())
    assert "[19]" in few and "..." not in few


def test_digits_are_those_that_the_monte_carlo_error_supports(run):
    """Of large numbers with a small spread, too; and in a notebook as in a terminal."""
    draws = {"a": 1e9 + 0.01 * np.random.default_rng(0).normal(size=(2, 50))}
    table = dataclasses.replace(run, draws=draws).summary()
    assert table["mean"].iloc[0] == pytest.approx(draws["a"].mean(), abs=1e-3)
    place = int(np.floor(np.log10(table["mcse_mean"].iloc[0])))
    shown = f"{draws['a'].mean():.{-place}f}"
    assert shown in str(table).splitlines()[1].split() and f"<td>{shown}</td>" in table._repr_html_()


def test_names_of_categories_are_not_cut(run):
    """Columns that can be spared go first."""
    name = "coef[city[Kiel]]"
    draws = {name: 1e4 * np.random.default_rng(0).normal(size=(2, 50)) + 2.3e4}
    lines = str(dataclasses.replace(run, draws=draws).summary()).splitlines()
    assert lines[1].startswith(f"{name} ") and max(map(len, lines)) <= 80


def test_a_summary_is_a_data_frame_that_can_be_pickled(run):
    table = run.summary()
    assert isinstance(table, pandas.DataFrame)
    assert type(table[["mean", "sd"]]) is pandas.DataFrame
    again = pickle.loads(pickle.dumps(table))
    assert str(again) == str(table)
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer))"
    other = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(table), capture_output=True)
    assert other.stdout.decode().rstrip("\n") == str(table), other.stderr


def test_one_chain_has_no_r_hat():
    table = helpers.draw(num_samples=20).summary()
    assert np.all(np.isnan(table["r_hat"]))
    assert np.all(np.isfinite(table["sd"]))


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.5, 90])
def test_summary_refuses_intervals_that_are_none(run, probability):
    with pytest.raises(InvalidValueError, match="`probability` must be between 0 and 1"):
        run.summary(probability=probability)


# -- ArviZ ------------------------------------------------------------------------------------------------------------


def test_arviz_gets_draws_statistics_gradients_and_sizes(run):
    data = run.to_arviz()
    posterior = data["posterior"]
    assert dict(posterior.sizes) == {"chain": 3, "draw": 60, "weights_dim_0": 2, "weights_dim_1": 2}
    np.testing.assert_array_equal(posterior["weights"].values, run.draws["weights"])
    np.testing.assert_array_equal(posterior["bias"].values, run.draws["bias"])
    np.testing.assert_array_equal(data["gradients"]["weights"].values, run.gradients["weights"])
    assert set(data["sample_stats"].data_vars) == {"gradient_norm", "kinetic_temperature"}
    np.testing.assert_array_equal(data["sample_stats"]["gradient_norm"].values, run.stats["gradient_norm"])
    assert int(data["observed_data"]["num_rows"]) == helpers.NUM_ROWS


def test_arviz_gets_the_configuration_as_attributes(run):
    data = run.to_arviz()
    for attributes in (data.attrs, data["posterior"].attrs):
        assert json.loads(attributes["configuration"]) == run.configuration
        assert json.loads(attributes["timing"]) == run.timing
        assert json.loads(attributes["preparation"])["passes"] == 1.0
        assert attributes["status"] == "complete"
        assert attributes["inference_library"] == "scirocco"
        assert attributes["inference_library_version"] == sc.__version__


def test_arviz_gets_no_gradients_when_none_were_kept():
    data = helpers.draw(num_samples=20).to_arviz()
    groups = data.groups() if callable(data.groups) else [group.strip("/") for group in data.groups]
    assert "gradients" not in groups
    assert {"posterior", "sample_stats", "observed_data"} <= set(groups)


def test_arviz_gets_the_statistics_of_the_draws_that_were_kept(tmp_path):
    """One chain with every third draw is the same chain with all of them."""
    how = {"num_samples": 20, "num_chains": 2}
    whole, part = (helpers.draw(**how, keep_draws=every) for every in (True, 3))
    stored = helpers.draw(**how, keep_draws=3, store=tmp_path / "run")
    for run in (part, stored, sc.load(tmp_path / "run")):
        data = run.to_arviz()
        assert data["posterior"].sizes["draw"] == data["sample_stats"].sizes["draw"] == 6
        for group, all_of_them in (("posterior", whole.named_draws()), ("sample_stats", whole.stats)):
            for name, values in all_of_them.items():
                np.testing.assert_array_equal(data[group][name].values, values[:, 2::3])


def test_arviz_can_save_and_load_it(run, tmp_path):
    """Attributes must be plain strings for that."""
    data = run.to_arviz()
    data.to_netcdf(tmp_path / "run.nc")
    again = az.from_netcdf(tmp_path / "run.nc")
    np.testing.assert_array_equal(again["posterior"]["weights"].values, run.draws["weights"])
    assert json.loads(again["posterior"].attrs["configuration"]) == run.configuration


# -- notebooks and plots ----------------------------------------------------------------------------------------------


def test_a_notebook_shows_the_first_parameters(run):
    """The numbers are those of the summary; names are escaped; a run without draws has its line alone."""
    shown = run._repr_html_()
    assert "3 chains × 60 draws" in shown and "weights[1, 1]" in shown
    first = run.summary(digits=None).iloc[0]
    assert f">{supported(first['mean'], first['mcse_mean'])}<" in shown
    many = dataclasses.replace(run, draws={"<b>": np.random.default_rng(0).normal(size=(2, 20, 40))})
    assert "&lt;b&gt;[11]" in many._repr_html_() and "and 28 more parameters" in many._repr_html_()
    assert "<table" not in dataclasses.replace(run, draws=None)._repr_html_()


def test_a_notebook_shows_a_summary_as_it_is_printed(run):
    """Without the zeros with which pandas fills columns; the note below; long ones cut."""
    frame = run.summary()
    frame.iloc[0, 0], frame.iloc[0, 4] = 1.5, 0.2
    frame.attrs["note"] = "Right within <a bit>."
    shown = frame._repr_html_()
    assert "<td>1.5</td>" in shown and f"<td>{frame['ess_bulk'].iloc[0]:.0f}</td>" in shown
    assert "Right within &lt;a bit&gt;." in shown and "&lt;a" not in run.summary()._repr_html_()
    many = dataclasses.replace(run, draws={"<b>": np.random.default_rng(0).normal(size=(2, 20, 90))}).summary()
    assert "&lt;b&gt;[89]" in many._repr_html_() and "&lt;b&gt;[45]" not in many._repr_html_()


def test_a_notebook_shows_a_certificate():
    good = Certificate(0.0411, 0.021)._repr_html_()
    for piece in ("no trouble was found", "right within 0.05 posterior standard deviations", "right within 3 %"):
        assert piece in good
    bad = Certificate(troubles=("<a> is off", "chains disagree"), unknown="they need the model")._repr_html_()
    assert "<li>&lt;a&gt; is off.</li><li>chains disagree.</li>" in bad and "not known: they need the model" in bad


def test_labels_along_axes_name_the_parameters_of_a_text(run):
    labels = {"coef_dim_0": ["no", "yes"], "coef_dim_1": ["age", "city[Oslo]"]}
    named = dataclasses.replace(run, converted=(run.draws, labels))
    text = "R-hat of coef[1, 1], coef[0, 0] and scale[1]"
    assert named.labelled(text) == "R-hat of coef[yes, city[Oslo]], coef[no, age] and scale[1]"
    assert run.labelled(text) == text


@pytest.mark.rotates(3)
@pytest.mark.parametrize(("kind", "axes"), [("traces", 10), ("intervals", 1), ("pairs", 25)])
def test_plots(run, kind, axes, tmp_path):
    pytest.importorskip("matplotlib")
    figure = run.plot(kind)
    assert len(figure.axes) == axes
    assert figure._repr_png_().startswith(b"\x89PNG")
    figure.savefig(tmp_path / "figure.png")


def test_pyplot_saves_the_plot(run, tmp_path):
    """The plot is the current figure of pyplot, where that is used."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    blank = pyplot.figure()
    figure = run.plot("intervals")
    assert pyplot.gcf() is figure is not blank
    pyplot.close("all")


def test_plots_of_chosen_parameters(run):
    pytest.importorskip("matplotlib")
    labels = [axes.get_ylabel() for axes in run.plot(names=["weights[1, 0]", "bias"]).axes]
    assert labels == ["bias", "", "weights[1, 0]", ""]
    rows = run.plot("intervals", "weights").axes[0].get_yticklabels()
    assert rows[0].get_text() == "weights[0, 0]"
    with pytest.raises(InvalidValueError, match=r"no parameter 'wieghts'. Did you mean 'weights'?"):
        run.plot(names="wieghts")
    with pytest.raises(InvalidValueError, match="`kind` must be one of 'traces', 'intervals', 'pairs'"):
        run.plot("violins")
    with pytest.raises(InvalidValueError, match="at least two"):
        run.plot("pairs", "bias")


def test_trace_plots_show_the_draws(run):
    pytest.importorskip("matplotlib")
    lines = run.plot("traces", "bias").axes[0].get_lines()
    np.testing.assert_array_equal([line.get_ydata() for line in lines], run.draws["bias"])
