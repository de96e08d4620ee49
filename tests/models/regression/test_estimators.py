"""What users type: fit, predict, intervals, pipelines, files; and what they are told when it cannot work."""

import numpy as np
import pytest

import scirocco as sc
from scirocco.errors import InvalidTypeError, InvalidValueError, NotFittedError, SciroccoWarning
from scirocco.models.regression.linear import LinearRegression
from scirocco.models.regression.logistic import LogisticRegression

QUICK = {"num_samples": 40, "num_burnin": 20, "num_chains": 2, "thin": 1}
CHECKS = (
    "check_classifiers_one_label",
    "check_complex_data",
    "check_estimators_unfitted",
    "check_n_features_in_after_fitting",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
)
"""Of scikit-learn's; all of them are in the slow test."""


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(120, 3))
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
    return LogisticRegression("normal", **QUICK, standardise=True).fit(
        X * [1, 10, 0.1] + 5, y, progress=False
    )


@pytest.fixture(scope="module")
def line(rows, quick_compiler):
    X, _ = rows
    return LinearRegression(**QUICK).fit(X, 100.0 + X @ [1.0, 2.0, 0.0], progress=False)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_probabilities_are_averages_over_the_draws(rows, fitted):
    X = rows[0][:5]
    coef = np.asarray(fitted.run_.draws["coef"], np.float64).reshape(-1, 3)
    eta = X.astype(np.float32).astype(np.float64) @ coef.T
    each = 1 / (1 + np.exp(-eta - np.asarray(fitted.run_.draws["intercept"], np.float64).reshape(-1)))
    found = fitted.predict_proba(X, interval=0.8)
    np.testing.assert_allclose(found.mean[:, 1], each.mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose(found.low[:, 1], np.quantile(each, 0.1, axis=1), rtol=1e-6)
    np.testing.assert_allclose(found.high[:, 0], 1 - np.quantile(each, 0.1, axis=1), rtol=1e-6)
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


def test_standardised_coefficients_come_back_in_the_users_units(rows, three):
    X = (rows[0] * [1, 10, 0.1] + 5).astype(np.float32)
    drawn = three.run_.draws
    standard = (X - X.mean(axis=0)) / X.std(axis=0)
    wanted = standard @ np.asarray(drawn["coef"][0, 0]).T + np.asarray(drawn["intercept"][0, 0])
    mine = X @ np.asarray(three._draws["coef"][0, 0]).T + np.asarray(three._draws["intercept"][0, 0])
    np.testing.assert_allclose(mine, wanted, atol=2e-3)


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
        ({"slab": 1.0}, "`slab` is the horseshoe's"),
        ({"constant_columns": "drop"}, "`constant_columns` must be one of"),
        ({"classes": ["no", "maybe"]}, "label 'yes' in row"),
    ],
)
def test_bad_settings_are_refused(rows, changes, words):
    with pytest.raises(InvalidValueError, match=words):
        LogisticRegression(**changes).fit(*rows)


def test_bad_data_are_refused(rows):
    X, y = rows
    with pytest.raises(InvalidValueError, match="column 1 of X has the one value 0"):
        LogisticRegression().fit(X * [1, 0, 1], y)
    with pytest.raises(InvalidValueError, match="X has 120 rows and y has 119"):
        LogisticRegression().fit(X, y[:-1])
    with pytest.raises(InvalidValueError, match="Unknown label type: continuous"):
        LogisticRegression().fit(X, X[:, 0])
    with pytest.raises(InvalidTypeError, match="holds 'no' in row"):
        LinearRegression().fit(X, np.array(["no"] * 120))
    with (
        pytest.warns(SciroccoWarning, match="standardise=True"),
        pytest.raises(InvalidValueError, match="class"),
    ):
        LogisticRegression().fit(X * [1, 1e5, 1], np.zeros(120))
    with pytest.raises(NotFittedError, match="call fit"):
        LogisticRegression().predict(X)


def test_a_loaded_interval_or_both_is_refused(line, rows):
    with pytest.raises(InvalidValueError, match="between 0 and 1, got 90"):
        line.predict(rows[0], interval=90)
    with pytest.raises(InvalidValueError, match="not for both"):
        line.predict(rows[0], return_std=True, interval=0.9)


def test_pipelines_clones_and_searches(rows, fitted):
    pytest.importorskip("sklearn")
    from sklearn.base import clone, is_classifier
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    assert is_classifier(fitted)
    assert clone(fitted).get_params() == fitted.get_params()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression(**QUICK)),
        {"logisticregression__scale": [1.0]},
        cv=2,
    )
    assert search.fit(*rows).best_score_ > 0.5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression])
def test_some_checks_of_scikit_learn(kind, quick_compiler):
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    for estimator, check in checks.estimator_checks_generator(kind(**QUICK)):
        if check.func.__name__ in CHECKS:
            check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression])
def test_all_checks_of_scikit_learn(kind, quick_compiler):
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    checks.check_estimator(kind(**QUICK | {"num_chains": 1, "thin": 2}), on_skip=None)
