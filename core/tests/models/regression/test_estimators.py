"""What users type: fit, predict, intervals, pipelines, files; and what they are told when it cannot work."""

import os
import warnings

import numpy as np
import pytest

import scirocco as sc
from scirocco.errors import DivergenceError, InvalidTypeError, InvalidValueError, NotFittedError, SciroccoWarning
from scirocco.models.regression.linear import LinearRegression
from scirocco.models.regression.logistic import LogisticRegression, SoftmaxRegression

pytestmark = pytest.mark.compile

QUICK = {"num_samples": 40, "num_burnin": 20, "num_chains": 2, "thin": 1}
CHECKS = (
    "check_classifiers_one_label",
    "check_complex_data",
    "check_estimators_empty_data_messages",
    "check_estimators_pickle",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_n_features_in_after_fitting",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_requires_y_none",
    "check_supervised_y_no_nan",
)
"""Of scikit-learn's: what is refused, and two that fit. Most of the others bring a table of another shape, for which
all is compiled again: the whole list takes minutes."""


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(120, 3))
    # no more digits than float32 holds
    X = X.astype(np.float32).astype(np.float64)
    return X, np.array(["no", "yes"])[(X[:, 0] + rng.logistic(size=120) > 0).astype(int)]


@pytest.fixture(scope="module")
def fitted(rows, quick_compiler):
    pandas = pytest.importorskip("pandas")
    X, y = rows
    return LogisticRegression(**QUICK).fit(pandas.DataFrame(X, columns=["a", "b", "c"]), y, progress=False)


@pytest.fixture(scope="module")
def three(rows, quick_compiler):
    X, _ = rows
    rng = np.random.default_rng(1)
    y = np.argmax(X + rng.gumbel(size=X.shape), axis=1)
    return LogisticRegression("normal", **QUICK, standardise=True).fit(X * [1, 10, 0.1] + 5, y, progress=False)


@pytest.fixture(scope="module")
def line(rows, quick_compiler):
    X, _ = rows
    model = LinearRegression(**QUICK, scale=np.float32(8))
    return model.fit(X, 100.0 + X @ [1.0, 2.0, 0.0], progress=False)


def test_a_frame_of_predictions(rows, fitted, line):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(rows[0][:5], columns=["a", "b", "c"], index=list("vwxyz"))
    frame, found = fitted.predict_frame(X, interval=0.5), fitted.predict_proba(X, interval=0.5)
    assert list(frame.index) == list("vwxyz")
    assert list(frame) == ["predicted", "p[no]", "low[no]", "high[no]", "p[yes]", "low[yes]", "high[yes]"]
    np.testing.assert_array_equal(frame["high[yes]"], found.high[:, 1])
    np.testing.assert_array_equal(frame["predicted"], fitted.predict(X))
    np.testing.assert_array_equal(line.predict_frame(rows[0])["low"], line.predict(rows[0], interval=0.9).low)
    with pytest.raises(InvalidValueError, match="interval"):
        line.predict_frame(rows[0], interval=1.5)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_probabilities_are_averages_over_the_draws(rows, fitted):
    X = rows[0][:5]
    coef = np.asarray(fitted.run_.draws["coef"], np.float64).reshape(-1, 3)
    eta = (X - rows[0].mean(axis=0)) @ coef.T  # the chain's columns are centred
    each = 1 / (1 + np.exp(-eta - np.asarray(fitted.run_.draws["intercept"], np.float64).reshape(-1)))
    found = fitted.predict_proba(X, interval=0.8)
    np.testing.assert_allclose(found.mean[:, 1], each.mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose(found.low[:, 1], np.quantile(each, 0.1, axis=1, method="weibull"), rtol=1e-6)
    np.testing.assert_allclose(found.high[:, 0], 1 - np.quantile(each, 0.1, axis=1, method="weibull"), rtol=1e-6)
    np.testing.assert_array_equal(fitted.predict_proba(X), found.mean)
    assert fitted.predict(X).tolist() == np.where(found.mean[:, 1] > 0.5, "yes", "no").tolist()
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(X)), found.mean)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_shapes_are_those_of_scikit_learn(rows, fitted, three, line):
    X, y = rows
    assert fitted.coef_.shape == (1, 3)
    assert fitted.intercept_.shape == (1,)
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.score(X, y) > 0.6
    assert three.coef_.shape == (3, 3)
    assert three.predict_proba(X, interval=0.5).low.shape == (120, 3)
    assert line.coef_.shape == (3,)
    assert line.score(X, 100.0 + X @ [1.0, 2.0, 0.0]) > 0.99
    low, high = fitted.coef_interval_(0.9)
    assert low.shape == (1, 3)
    assert (low < fitted.coef_).all()
    assert (fitted.coef_ < high).all()


def test_summary_has_the_columns_names(fitted, three):
    pytest.importorskip("arviz")
    assert list(fitted.summary().index) == ["coef[a]", "coef[b]", "coef[c]", "intercept"]
    assert "coef[2, 1]" in three.summary().index
    for model in (fitted, three):  # the run, too, is shown in the user's units, with names
        np.testing.assert_array_equal(model.run_.summary(digits=None), model.summary(digits=None))
        shown = model.run_.labelled_draws()
        assert list(shown) == list(model.named_draws())
        for name, draws in model.named_draws().items():
            np.testing.assert_array_equal(shown[name], draws)
    assert "coef[b]" in fitted.run_._repr_html_()


def test_a_diagnosis_compares_the_chains_as_the_summary_does(three):
    """Intercepts at x = 0 and at the means of the columns are other quantities."""
    found, table = sc.analysis.diagnose(three.run_), three.summary(digits=None)
    assert found.measures["r_hat"] == pytest.approx(table["r_hat"].max(), rel=1e-6)
    assert found.measures["ess_bulk"] == pytest.approx(table["ess_bulk"].min(), rel=1e-6)
    assert found.measures["r_hat_parameter"] == table["r_hat"].idxmax()


def test_a_notebook_shows_settings_and_coefficients(fitted):
    assert "LinearRegression" in sc.models.LinearRegression()._repr_html_()
    assert "coef[b]" in fitted._repr_html_() and type(fitted).__name__ in fitted._repr_html_()
    assert "<table" not in sc.models.BNN()._repr_html_()


def test_arviz_has_the_users_units_and_names(fitted, three, line):
    pytest.importorskip("arviz")
    for found in (fitted, fitted.run_):
        posterior = found.to_arviz()["posterior"]
        assert list(posterior["coef_dim_0"].values) == ["a", "b", "c"]
        mean = posterior["coef"].sel(coef_dim_0="b").mean()
        np.testing.assert_allclose(mean, fitted.coef_[0, 1], rtol=1e-5)
    posterior = three.run_.to_arviz()["posterior"]  # standardised: other numbers than those of the chains
    np.testing.assert_allclose(posterior["coef"].mean(("chain", "draw")), three.coef_, rtol=1e-5)
    assert [str(each) for each in three.to_arviz()["posterior"]["coef_dim_0"].values] == list(map(str, three.classes_))
    np.testing.assert_allclose(line.to_arviz()["posterior"]["coef"].mean(("chain", "draw")), line.coef_, rtol=1e-4)


def test_standardised_coefficients_come_back_in_the_users_units(rows, three):
    X = rows[0] * [1, 10, 0.1] + 5
    drawn = three.run_.draws
    standard = (X - X.mean(axis=0)) / X.std(axis=0)
    wanted = standard @ np.asarray(drawn["coef"][0, 0]).T + np.asarray(drawn["intercept"][0, 0])
    mine = X @ np.asarray(three.draws_["coef"][0, 0]).T + np.asarray(three.draws_["intercept"][0, 0])
    np.testing.assert_allclose(mine, wanted, atol=1e-9)


@pytest.fixture(scope="module")
def near(quick_compiler):
    """A table whose sums and means are exact in binary, also far from 0, and the fits to it."""
    rng = np.random.default_rng(3)
    X = rng.integers(-4096, 4096, size=(128, 2)) / 1024
    y = np.round(X @ [1.0, 0.5] * 64 + 32 * rng.normal(size=128)) / 64
    return X, y, LogisticRegression(**QUICK).fit(X, y > 0, progress=False), _line(X, y)


def _line(X, y):
    return LinearRegression(**QUICK).fit(X, y, progress=False)


@pytest.mark.rotates(2)
@pytest.mark.parametrize("far", [2048, 2**31])  # a year; seconds of a clock, which float32 rounds to 256 of them
def test_it_does_not_matter_how_far_from_zero_columns_and_targets_lie(near, far):
    X, y, logistic, line = near
    there = LogisticRegression(**QUICK).fit(X + far, y > 0, progress=False)
    np.testing.assert_array_equal(there.coef_, logistic.coef_)
    np.testing.assert_allclose(there.predict_proba(X + far), logistic.predict_proba(X), rtol=1e-5)
    there = _line(X + far, y + far)
    np.testing.assert_array_equal(there.coef_, line.coef_)
    np.testing.assert_allclose(there.predict(X + far) - far, line.predict(X), atol=1e-5)


def test_units_of_the_target_and_of_columns_do_not_matter(near):
    """Powers of two: the same chain in other units."""
    X, y, _, line = near
    other = _line(X / 256, y * 4096)
    np.testing.assert_allclose(other.coef_ / 4096 / 256, line.coef_, rtol=1e-4)
    assert other.noise_ / 4096 == pytest.approx(line.noise_, rel=1e-4)


def test_declared_classes_are_sorted(rows, fitted):
    X, y = rows
    model = LogisticRegression(**QUICK, classes=["yes", "no"]).fit(X, y, progress=False)
    assert model.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(model.coef_, fitted.coef_)


def test_a_fit_that_fails_changes_nothing(rows, fitted, line):
    for model in (fitted, line):
        before = dict(vars(model))
        with pytest.raises(InvalidValueError):
            model.fit(rows[0][:, :2], None)
        assert vars(model).keys() == before.keys()
        assert all(value is before[name] for name, value in vars(model).items())


def test_columns_of_unequal_scale_are_spoken_of_once(rows):
    X, y = rows
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        LogisticRegression(**QUICK).fit(X * [1, 1e5, 1], y, progress=False)
    assert sum("standardise=True" in str(each.message) for each in caught) == 1


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_saved_models_predict_the_same(rows, fitted, line, tmp_path):
    for number, model in enumerate((fitted, line)):
        model.save(tmp_path / str(number))
        again = type(model).load(tmp_path / str(number))
        np.testing.assert_array_equal(again.predict(rows[0]), model.predict(rows[0]))
        assert again.get_params()["num_samples"] == 40
    assert again.n_features_in_ == 3
    assert sc.load(tmp_path / "0").draws["coef"].shape == (2, 40, 3)
    with pytest.raises(InvalidTypeError, match="not one of a linear regression"):
        LinearRegression.load(tmp_path / "0")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prior": "cauchy"}, "`prior` must be one of 'laplace', 'normal', 'horseshoe'"),
        ({"scale": -1.0}, "`scale` of LogisticRegression must be finite and > 0"),
        ({"constant_columns": "drop"}, "`constant_columns` must be one of"),
        ({"classes": ["no", "maybe"]}, "label 'yes' in row"),
        ({"classes": "ab"}, "`classes` of LogisticRegression must be a list of labels, got 'ab'"),
        ({"intercept_scale": None}, "`intercept_scale` of LogisticRegression must be a number"),
        ({"intercept": "no"}, "`intercept` of LogisticRegression must be True or False, got 'no'"),
    ],
)
def test_bad_settings_are_refused(rows, changes, words):
    with pytest.raises((InvalidValueError, InvalidTypeError), match=words):
        LogisticRegression(**changes).fit(*rows)


def test_bad_data_are_refused(rows):
    X, y = rows
    with pytest.raises(InvalidValueError, match="the single value 0: it cannot be told from the int"):
        LogisticRegression().fit(X * [1, 0, 1], y)
    with pytest.raises(InvalidValueError, match="X has 120 rows and y has 119"):
        LogisticRegression().fit(X, y[:-1])
    with pytest.raises(InvalidValueError, match="Unknown label type: continuous"):
        LogisticRegression().fit(X, X[:, 0])
    with pytest.raises(InvalidTypeError, match=r"^y contains 'no' in row 0: targets must be numbers"):
        LinearRegression().fit(X, np.array(["no"] * 120))
    with pytest.warns(SciroccoWarning, match="standardise=True"), pytest.raises(InvalidValueError, match="class"):
        LogisticRegression().fit(X * [1, 1e5, 1], np.zeros(120))
    with pytest.raises(NotFittedError, match="call fit"):
        LogisticRegression().predict(X)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_scores_ask_for_labels_of_the_fit(rows, fitted):
    with pytest.raises(InvalidValueError, match="label 0 in row 0 of y is not one of"):
        fitted.score(rows[0], np.zeros(120, int))


def test_too_few_rows_for_the_noise_are_told():
    class Diverging(LinearRegression):
        def _run(self, *_):
            raise DivergenceError("try step_size=0.1", step=7)

    X = np.array([[0.5], [2.0], [3.0]])
    with pytest.raises(DivergenceError, match="2 rows cannot identify the noise and 2 unknowns") as caught:
        Diverging().fit(X[:2], X[:2, 0])
    assert caught.value.step == 7
    with pytest.raises(DivergenceError, match="step_size"):
        Diverging().fit(X, X[:, 0])


def test_a_loaded_interval_or_both_is_refused(line, rows):
    with pytest.raises(InvalidValueError, match="between 0 and 1, got 90"):
        line.predict(rows[0], interval=90)


def test_pipelines_clones_and_searches(rows, fitted):
    pytest.importorskip("sklearn")
    from sklearn.base import clone, is_classifier
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    assert is_classifier(fitted)
    assert clone(fitted).get_params() == fitted.get_params()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression(**QUICK)), {"logisticregression__scale": [1.0]}, cv=2
    )
    assert search.fit(*rows).best_score_ > 0.5


@pytest.mark.rotates(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression])
def test_some_checks_of_scikit_learn(kind, quick_compiler):
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    for estimator, check in checks.estimator_checks_generator(kind(**QUICK)):
        if check.func.__name__ in CHECKS:
            check(estimator)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression, SoftmaxRegression])
@pytest.mark.skipif(not os.environ.get("SCIROCCO_TEST_ALL"), reason="80 s: only with SCIROCCO_TEST_ALL=1")
def test_all_checks_of_scikit_learn(kind, quick_compiler):
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    checks.check_estimator(kind(**QUICK | {"num_chains": 1, "thin": 2}), on_skip=None)
