"""Hidden Markov models: forms of series, results, stores, and what is refused."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import scirocco as sc
from scirocco import report
from scirocco.analysis.diagnosis.report import Diagnosis
from scirocco.errors import InvalidTypeError, InvalidValueError, NoDrawsError

pytest.importorskip("numba", reason="hidden Markov models need numba (the extra `compiled`)")

from scirocco_latent.hmm import buffered, emissions, priors
from scirocco_latent.hmm.gibbs import Parameters, StateChain, StatePrior
from scirocco_latent.hmm.results import in_one_order
from scirocco_latent.hmm.series import read

pytestmark = [pytest.mark.compile, pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning")]

RNG = np.random.default_rng(3)
STATES = np.cumsum(RNG.random(300) < 0.08) % 2
X = np.array([-2.0, 2.0])[STATES] + RNG.normal(size=300)
COUNTS = RNG.poisson(np.array([1.0, 9.0])[STATES])
LABELS = np.array(["a", "b", "c"])[np.minimum(RNG.poisson(np.array([0.2, 3.0])[STATES]), 2)]
SHORT = {"num_chains": 2, "num_samples": 20, "num_starts": 2, "seed": 1}
DATA = {"gaussian": X, "poisson": COUNTS, "categorical": LABELS}


def _log_density(params, row):
    """A regression whose line depends on the state."""
    y, x = row
    return -jnp.log(params["sd"]) - 0.5 * ((y - params["line"] @ jnp.array([1.0, x])) / params["sd"]) ** 2


def _log_prior(params):
    return -0.02 * jnp.sum(params["line"] ** 2) - 0.5 * jnp.log(params["sd"]) ** 2


SWITCHING = sc.Model(_log_density, _log_prior, transforms={"sd": sc.transforms.positive})


def fitted(series, emissions="gaussian", by=None, how=None, **options):
    model = sc.models.HMM(2, emissions=emissions, **(SHORT | options))
    return model.fit(series, by=by, **({"num_epochs": 40, "progress": False} | (how or {})))


@pytest.fixture(scope="module")
def models():
    return {kind: fitted(series, kind) for kind, series in DATA.items()}


@pytest.mark.parametrize("kind", DATA)
def test_states_are_found_and_results_have_their_shapes(models, kind):
    model, series = models[kind], DATA[kind]
    shares = model.predict_proba(series)
    assert shares.shape == (300, 2)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    right = (model.predict(series) == STATES).mean()
    assert max(right, 1 - right) > 0.9
    mean, low, high = model.transitions(0.9)
    np.testing.assert_array_equal(mean, model.transitions_)
    assert ((low <= mean) & (mean <= high)).all()
    np.testing.assert_allclose(model.draws_["transitions"].sum(axis=-1), 1.0)
    assert (model.dwell_times() >= 1).all()
    forecast = model.forecast(4, interval=0.9)
    assert forecast.mean.shape == ((4, 3) if kind == "categorical" else (4,))
    assert (forecast.low <= forecast.high).all()
    assert model.forecast(2, [series[:50], series[:7]]).shape[:2] == (2, 2)
    np.testing.assert_allclose(model.score(series), model.log_predictive(series).sum() / 300)
    assert len(model.states()) == 2 and "dwell_high" in model.states()
    assert "exact Gibbs sampler" in model.run_.preparation["chosen"]


def test_a_forecast_is_the_distribution_of_the_next_observation():
    """P(x_{T+1} | x) by forecast, and by the ratio of the likelihoods of the longer and the shorter series."""
    model = fitted(LABELS[:60], "categorical", num_chains=1, num_samples=1)
    ratios = [model.log_predictive([*LABELS[:60], label])[0] for label in model.categories_]
    ratios = np.exp(np.array(ratios) - model.log_predictive(LABELS[:60])[0])
    np.testing.assert_allclose(model.forecast(1, LABELS[:60])[0], ratios, rtol=1e-6)


def test_all_forms_of_series_are_the_same_series(models):
    lists = [X[:100], X[100:101], X[101:]]
    reference = fitted(lists)
    ids = np.repeat(["u", "v", "w"], [100, 1, 199])
    table = pd.DataFrame({"x": X, "id": ids})
    framed = fitted(table, by="id")
    np.testing.assert_array_equal(framed.draws_["means"], reference.draws_["means"])
    np.testing.assert_array_equal(framed.predict(table, by="id"), np.concatenate(reference.predict(lists)))
    woven = table.iloc[np.argsort(np.concatenate([np.arange(100), [0], np.arange(199)]), kind="stable")]
    again = framed.predict_proba(woven, by="id")
    straight = framed.predict_proba(table, by="id")
    np.testing.assert_allclose(again, straight[woven.index.to_numpy()])
    np.testing.assert_array_equal(fitted(X[:, None]).draws_["means"], models["gaussian"].draws_["means"])


def test_missing_observations_carry_no_information(models):
    model, gone = models["gaussian"], X.copy()
    gone[50:60] = np.nan
    padded = np.concatenate([X[:50], np.full(9, np.nan)])
    np.testing.assert_allclose(model.log_predictive(padded), model.log_predictive(X[:50]))
    assert np.isfinite(fitted(gone).means_).all()
    labels = [None if k % 7 == 0 else label for k, label in enumerate(LABELS.tolist())]
    assert set(fitted(labels, "categorical").categories_) == {"a", "b", "c"}


def test_draws_do_not_depend_on_labels_or_threads():
    given = read(X)
    emission = priors.resolve("gaussian", given, 2, None, None)
    made = []
    for threads in (1, 3):
        chain = StateChain(
            StatePrior(2, 1.0, 0.0, emission),
            emission.encode(given),
            given.bounds,
            batch_size=100,
            num_starts=1,
            seed=5,
            chain=0,
            num_threads=threads,
            piece=11,
        )
        chain.advance(20)
        made.append(chain.state())
    for name, part in made[0].items():
        np.testing.assert_array_equal(part, made[1][name])

    rng = np.random.default_rng(0)
    raw = {
        "initial": rng.dirichlet([1, 1, 1], (2, 9)),
        "transitions": rng.dirichlet([1, 1, 1], (2, 9, 3)),
        "means": np.array([0.0, 5.0, 9.0])[:, None] + 0.1 * rng.normal(size=(2, 9, 3, 1)),
        "covariances": np.ones((2, 9, 3, 1, 1)),
        "last": rng.integers(0, 3, (2, 9)),
    }
    other = {name: values.copy() for name, values in raw.items()}
    for chain, draw in np.ndindex(2, 9):
        order = rng.permutation(3)
        for name in raw:
            if name == "last":
                other[name][chain, draw] = np.argsort(order)[raw[name][chain, draw]]
            else:
                other[name][chain, draw] = raw[name][chain, draw][order]
        other["transitions"][chain, draw] = other["transitions"][chain, draw][:, order]
    found = in_one_order(other, emissions.NormalEmission((0.0,), (1.0,), (0.0,), 1.0, 3.0, (1.0,)))
    for name, values in raw.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("sampler", ["gibbs", "scir_cv"])
def test_a_stored_fit_is_resumed_bit_for_bit(sampler, tmp_path):
    how = {"num_epochs": 40, "store": tmp_path / "part"}
    options = {"sampler": sampler, "num_burnin": 0}
    part = fitted(COUNTS, "poisson", how=how | {"callbacks": [lambda told: told.stop()]}, **options)
    assert part.run_.status == "stopped" and part.run_.num_draws < 20
    fitted(COUNTS, "poisson", how=how | {"resume": True}, **options)
    again = sc.models.load(tmp_path / "part")
    whole = fitted(COUNTS, "poisson", **options)
    np.testing.assert_array_equal(again.draws_["rates"], whole.draws_["rates"])
    assert sampler == "gibbs" or again.buffer_ == whole.buffer_ > 0


def test_a_saved_model_comes_back_and_is_reported(models, tmp_path):
    model = models["categorical"]
    model.save(tmp_path / "saved")
    again = sc.models.load(tmp_path / "saved")
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict_proba(LABELS), model.predict_proba(LABELS))
    np.testing.assert_array_equal(again.forecast(3), model.forecast(3))
    for subject in (model, tmp_path / "saved"):
        text = report.html(subject, diagnosis=Diagnosis([], {}))
        assert "<h1>HMM</h1>" in text and 'id="states"' in text and 'id="transitions"' in text
    with pytest.raises(InvalidTypeError, match="is not one of"):
        sc.models.StochasticBlockModel.load(tmp_path / "saved")


@pytest.mark.rotates(2, "long fits")
def test_own_emissions_are_fitted_stored_and_loaded(tmp_path):
    """A regression with two columns, a missing row, and intervals that contain the truth."""
    x = RNG.normal(size=300)
    y = np.where(STATES == 0, 1.0 + 2.0 * x, -1.0 - x) + 0.3 * RNG.normal(size=300)
    rows = np.stack([y, x], axis=1)
    rows[7] = np.nan
    options = {"start": {"line": [0.0, 0.0], "sd": 1.0}, "num_chains": 1, "num_burnin": 10}
    how = {"num_epochs": 60, "store": tmp_path / "part"}
    with pytest.raises(NoDrawsError, match="stopped in its burn-in after 1 step,"):
        fitted(rows, SWITCHING, how=how | {"callbacks": [lambda told: told.stop()]}, **options)
    fitted(rows, SWITCHING, how=how | {"resume": True}, **options)
    again = sc.models.HMM.load(tmp_path / "part", emissions=SWITCHING)
    whole = fitted(rows, SWITCHING, how={"num_epochs": 60}, **options)
    np.testing.assert_array_equal(again.draws_["line"], whole.draws_["line"])
    np.testing.assert_allclose(whole.parameters_["line"], [[-1.0, -1.0], [1.0, 2.0]], atol=0.2)
    right = np.mean(whole.predict(rows) == STATES)
    assert max(right, 1 - right) > 0.95
    assert {"line(0)", "line(1)", "sd"} <= set(whole.states())
    assert "Metropolis-Hastings" in whole.run_.preparation["chosen"]
    for path in (tmp_path / "part", tmp_path / "saved"):
        whole.save(path, overwrite=True)
        with pytest.raises(InvalidTypeError, match="code is not stored"):
            sc.models.load(path)
    loaded = sc.models.HMM.load(tmp_path / "saved", emissions=SWITCHING)
    np.testing.assert_allclose(loaded.score(rows), whole.score(rows), rtol=1e-6)
    with pytest.raises(InvalidValueError, match="no forecasts"):
        whole.forecast(3)


def test_all_windows_together_give_the_exact_counts():
    """Estimates of the stochastic samplers, with all windows and long buffers, for any place of the cuts."""
    given = read([COUNTS[:40], COUNTS[40:41], np.tile(COUNTS, 5)])
    emission = priors.resolve("poisson", given, 2, None, None)
    prior, data = StatePrior(2, 1.0, 0.0, emission), emission.encode(given)
    known = buffered.settings("scir", prior, data, given.bounds, 10**6, None, 2_000, 1, 0)
    chain = buffered.BufferedChain(prior, data, given.bounds, known, 0, 0, 1)
    chain.advance(3)
    begins, ends = given.bounds[:-1], given.bounds[1:]
    whole = np.stack([begins, ends, begins, ends, 0 * begins], axis=1)
    exact = buffered.expected(prior, chain.params(), data, whole, 1)
    found = chain.estimate(10**6, buffered.StatePurpose.WINDOWS)
    for part, wanted in zip(found, exact, strict=True):
        np.testing.assert_allclose(part, wanted.sum(axis=0), rtol=1e-8, atol=1e-8)
    assert known.error < 1e-9
    np.testing.assert_allclose(found.stats.sum(), len(given.values), rtol=1e-9)


def test_sticky_states_last_longer():
    plain, sticky = (fitted(X[:60], sticky=value).dwell_times().min() for value in (0.0, 500.0))
    assert sticky > plain


def test_emissions_are_chosen_from_the_series():
    """Labels, small counts and other numbers; what is said of a prior is followed."""
    kinds = {
        "categorical": [
            (LABELS, {}),
            ([0, 1, 1], {"categories": [0, 1, 2]}),
            ([0, 1], {"prior": {"concentration": 1}}),
        ],
        "poisson": [([0, 3, 1, np.nan], {}), (np.ones((4, 2)), {}), ([500, 10**6], {"prior": {"shape": 1.0}})],
        "gaussian": [(X, {}), ([500, 900, 10**6], {}), ([-1, 2], {}), ([1, 2], {"prior": {"strength": 1.0}})],
    }
    for kind, cases in kinds.items():
        for series, options in cases:
            found = priors.resolve("auto", read(series), 2, options.get("prior"), options.get("categories"))
            assert found.kind == kind, (kind, series, options)


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_figures_show_the_states_of_the_first_series(kind, models):
    pytest.importorskip("matplotlib", reason="needs matplotlib (the extra `plot`)")
    series = [X[:30], X[30:50]] if kind == "gaussian" else [np.array([*LABELS[:29], None], object), LABELS[30:50]]
    top, below = models[kind].plot(series).axes
    shown = top.collections[0].get_array().ravel()
    np.testing.assert_array_equal(shown, models[kind].predict(series)[0])
    assert top.get_title(loc="left") == "the first series, the first 30 of 50 observations"
    assert np.isnan(top.lines[0].get_ydata()[-1]) == (kind == "categorical") and len(below.patches) == 2


def test_presets(tmp_path):
    """A schedule is stored and loaded, too."""
    for name, sampler in (("baker2018", "scir"), ("barile2024", "scir_cv"), ("aicher2019", "sgrld")):
        model = sc.models.HMM.preset(name, 2, num_chains=1, num_samples=5, num_starts=1)
        model.fit(X, num_epochs=10, progress=False).save(tmp_path / name)
        assert model.sampler == sampler and model.buffer_error_ < 1e-2
        assert sc.models.load(tmp_path / name).get_params() == model.get_params()
    with pytest.raises(InvalidValueError, match="`preset` must be one of"):
        sc.models.HMM.preset("baum1970")


WRONG = {
    "empty": ([], {}, "is empty"),
    "empty in a list": ([X, []], {}, "series 1 is empty"),
    "more states than observations": ([1.0], {}, "2 states need at least as many observations, got 1"),
    "constant": (np.full(9, 0.5), {}, "column 0 of the series is constant"),
    "all missing": (np.full(9, np.nan), {}, "all observations are missing"),
    "infinite": ([X, [1.0, np.inf]], {}, "infinite, the first at time 1 of series 1"),
    "partly missing": (np.array([[1.0, np.nan], [2.0, 1.0]]), {}, "in some columns only, the first at time 0"),
    "negative counts": ([3, -1, 2], {"emissions": "poisson"}, r"whole numbers >= 0, got -1"),
    "fractional counts": ([3, 1.5, 2], {"emissions": "poisson"}, r"whole numbers >= 0, got 1.5"),
    "labels as numbers": (LABELS, {"emissions": "gaussian"}, 'emissions="categorical"'),
    "numbers as labels": (X, {"emissions": "categorical"}, 'emissions="gaussian"'),
    "columns of labels": (np.ones((5, 2), int), {"emissions": "categorical"}, "one label per time"),
    "unequal columns": ([np.ones((3, 2)), np.ones((3, 1))], {}, "the same columns"),
    "three axes": (np.ones((2, 3, 4)), {}, "Pass several series as a list"),
    "too many states": (X, {"num_states": 200}, "at most 127"),
    "unknown emissions": (X, {"emissions": "student"}, "emissions"),
    "a function as emissions": (X, {"emissions": lambda x: x}, "must be a name or an sc.Model"),
    "own emissions without a prior": (X, {"emissions": sc.Model(lambda p, x: -x)}, "needs a log_prior"),
    "own emissions without a start": (X, {"emissions": SWITCHING}, "need `start`"),
    "own emissions with a reserved name": (X, {"emissions": SWITCHING, "start": {"last": 0.0}}, "'last'"),
    "own emissions that give an array": (
        X,
        {"emissions": sc.Model(lambda p, x: p["a"] * x, lambda p: 0.0), "start": {"a": np.zeros(2)}},
        "must return one number",
    ),
    "own emissions and a prior": (X, {"emissions": SWITCHING, "prior": {"shape": 1.0}}, "has its own prior"),
    "a start of built-in emissions": (X, {"start": {"mean": 0.0}}, "emissions of your own"),
    "unknown prior": (X, {"emissions": "gaussian", "prior": {"shape": 1.0}}, "has no 'shape'"),
    "categories of numbers": (X, {"emissions": "gaussian", "categories": [1, 2]}, "requires emissions"),
    "step of Gibbs": (X, {"step_size": 0.1}, "remove it"),
    "a device of SCIR": (X, {"sampler": "scir", "device": "jax"}, 'requires sampler="gibbs"'),
    "negative sticky": (X, {"sticky": -1.0}, "sticky"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name):
    series, options, message = WRONG[name]
    with pytest.raises((InvalidValueError, InvalidTypeError), match=message):
        sc.models.HMM(**({"num_states": 2, "num_chains": 1} | options)).fit(series, num_epochs=2, progress=False)


def test_what_is_refused_after_a_fit(models):
    with pytest.raises(InvalidValueError, match="the category 'z' does not occur in the fit"):
        models["categorical"].predict(["a", "z"])
    with pytest.raises(InvalidValueError, match="fitted to 1 columns, got 2"):
        models["gaussian"].predict(np.ones((3, 2)))
    with pytest.raises(InvalidValueError, match="`by`='id' is not a column"):
        models["gaussian"].predict(pd.DataFrame({"x": X}), by="id")
    with pytest.raises(InvalidValueError, match="one id per observation"):
        models["gaussian"].predict(X, by=[1, 2])
    with pytest.raises(AttributeError, match="has rates_, not means_"):
        _ = models["poisson"].means_
    with pytest.raises(InvalidValueError, match="forecast"):
        fitted([X[:50], X[50:]]).forecast(2)
    with pytest.raises(sc.errors.NotFittedError, match="not fitted yet"):
        sc.models.HMM(2).predict(X)


def test_a_count_that_the_fit_has_not_seen_is_fine(models):
    assert np.isfinite(models["poisson"].score([1, 50, 5_000]))
    params = Parameters(np.full(2, 0.5), np.full((2, 2), 0.5), {"rates": np.array([[1.0], [9.0]])})
    emission = models["poisson"]._emission
    table, rows = (emission.encode(read(np.array(x))) for x in ([3, 4], [3, 4, 10_000]))
    assert len(table.codes) and len(rows.rows)
    from scirocco_latent.hmm.gibbs import log_likelihoods

    first = log_likelihoods(emission, params, table, np.array([0, 2]), 1)[0]
    second = log_likelihoods(emission, params, rows.take(np.arange(2)), np.array([0, 2]), 1)[0]
    np.testing.assert_allclose(first, second)


@pytest.mark.parametrize("size", [1e300, 1e200])
def test_a_series_whose_squares_are_not_finite(size):
    series = np.random.default_rng(0).normal(size=50) * size
    with pytest.raises(InvalidValueError, match=r"its squares are not finite\. Divide the series"):
        sc.models.HMM(2, num_samples=5).fit(series, num_steps=20, progress=False)
