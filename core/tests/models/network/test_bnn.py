"""What users of BNN meet: a fit, its store, bad inputs, modules of other libraries."""

import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.errors import InvalidTypeError, InvalidValueError, MissingExtraError, NotFittedError
from scirocco.models.network.estimator import BNN
from scirocco.models.network.problem import checked_inputs, checked_labels
from scirocco.run.sizes import RUNNING

pytestmark = pytest.mark.compile

SHORT = {"num_epochs": 60, "progress": False}


def bytes_and_words():
    """100 pictures of 2 × 3 bytes: bright ones are "day"."""
    rng = np.random.default_rng(1)
    X = rng.integers(256, size=(100, 2, 3)).astype(np.uint8)
    return X, np.where(X.mean(axis=(1, 2)) > 127, "day", "night")


def net(**changes):
    short = {"hidden": 4, "batch_size": 20, "thin": 5, "num_samples": 10, "num_chains": 1, "seed": 1}
    return BNN(**short | changes)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, quick_compiler):
    """In a store, stopped half way, and gone on with; and the same without a break."""
    X, y = bytes_and_words()
    path = tmp_path_factory.mktemp("bnn") / "run"

    def stop(report):
        if report.step >= 150:
            report.stop()

    options = {**SHORT, "X_test": X[:7], "y_test": y[:7]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        whole = net().fit(X, y, **options)
    with RUNNING.changed(second_chunk=40, chunk_seconds=1e-9), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        broken = net().fit(X, y, store=path, callbacks=[stop], **options)
        again = net().fit(X, y, store=path, resume=True, **options)
    return whole, broken, again, [str(each.message) for each in caught]


def test_fit(fitted):
    whole, _, _, notices = fitted
    X, y = bytes_and_words()
    assert notices == ["BNN divides the bytes (uint8) of X by 255: inputs are between 0 and 1."]
    assert whole.classes_.tolist() == ["day", "night"] and whole.n_features_in_ == 6
    assert whole.score(X, y) == np.mean(whole.predict(X) == y) > 0.6
    assert whole.predictive_.shape == (7, 2) and set(whole.scores_) == {
        "accuracy",
        "log_loss",
        "brier",
        "calibration_error",
    }
    assert whole.run_.draws["B"].shape == (1, 8, 6, 4), "42 draws are averaged, every fifth is kept"
    assert whole.run_.reduced["predictive"].count.tolist() == [42]
    assert whole.precisions_["A"].shape == (1, 8)
    assert set(whole.scores(X, y)) == {"average", "single draw"}
    assert repr(whole) == "BNN(hidden=4, batch_size=20, thin=5, num_samples=10, num_chains=1, seed=1)"


def test_store_and_resume(fitted):
    """Draws and the average kept on the fly, bit for bit."""
    whole, broken, again, _ = fitted
    assert broken.run_.status == "stopped" and again.run_.status == "complete"
    assert 0 < broken.run_.reduced["predictive"].count[0] < 42
    np.testing.assert_array_equal(np.asarray(again.run_.draws["B"][:]), whole.run_.draws["B"])
    np.testing.assert_array_equal(again.predictive_, whole.predictive_)
    X, _ = bytes_and_words()
    np.testing.assert_array_equal(again.predict_proba(X), whole.predict_proba(X))


def linear(params, x):
    return x.reshape(len(x), -1) @ params


START = jnp.zeros((6, 2))


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"apply": linear}, InvalidTypeError, "passed together with initial `params`"),
        ({"apply": "relu", "params": START}, InvalidTypeError, "must be a function"),
        ({"apply": lambda p, x: x @ p, "params": START}, InvalidTypeError, "failed for params"),
        ({"apply": lambda p, x: linear(p, x)[:, 0], "params": START}, InvalidValueError, r"returned shape \(3,\)"),
        ({"apply": lambda p, x: linear(p, x)[0], "params": START}, InvalidValueError, r"returned shape \(2,\)"),
        ({"apply": linear, "params": START[:, :1]}, InvalidValueError, "at least two classes"),
        ({"apply": linear, "params": jnp.zeros((6, 3))}, InvalidValueError, "logits for 3 classes, but there are 2"),
        ({"classes": ["day", "dusk"]}, InvalidValueError, "not one of the declared classes"),
        ({"hidden": 0}, InvalidValueError, "`hidden` must be at least 1"),
        ({"activation": "gelu"}, InvalidValueError, "`activation` must be one of"),
        ({"precision": 1.0}, InvalidTypeError, r"a pair \(shape, rate\)"),
        ({"precision": (1.0, -1.0)}, InvalidValueError, "`precision` of BNN must be finite and > 0"),
        ({"batch_size": 0}, InvalidValueError, "`batch_size` must be at least 1"),
        ({"num_samples": 0}, InvalidValueError, "`num_samples` must be at least 1"),
        ({"thin": 1_000}, InvalidValueError, "no draw after its burn-in"),
        ({"num_burnin": 1.0}, InvalidValueError, "a fraction of the run below 1"),
    ],
)
@pytest.mark.filterwarnings("ignore:BNN divides")
def test_bad_settings(changes, error, match):
    with pytest.raises(error, match=match):
        net(**changes).fit(*bytes_and_words(), **SHORT)


def with_value(value):
    X = np.zeros((100, 2, 3))
    X[4, 1, 2] = value
    return X


@pytest.mark.parametrize(
    ("X", "error", "match"),
    [
        (
            with_value(np.nan),
            InvalidValueError,
            r"X holds 1 missing \(NaN\) or infinite value in 1 of 100 rows; .* row 4",
        ),
        (with_value(0)[:50], InvalidValueError, "X has 50 rows and y has 100"),
        (with_value(0).astype(str), InvalidTypeError, "must be numbers, got the type <U"),
        (with_value(0)[:, 0, 0], InvalidValueError, r"the shape \(rows, ...\), got shape \(100,\)"),
        ([["a", 1.0]] * 100, InvalidTypeError, "features must be numbers"),
    ],
)
def test_bad_inputs(X, error, match):
    with pytest.raises(error, match=match):
        net().fit(X, bytes_and_words()[1], **SHORT)


def test_labels_beyond_the_logits():
    X = np.random.default_rng(0).random((100, 6), np.float32)
    own = net(apply=linear, params=jnp.zeros((6, 3)))
    wrong = np.arange(100) % 2
    wrong[7] = 3
    with pytest.raises(InvalidValueError, match=r"the label 3 in row 7 of y is not one of the 3 classes .* 0 ... 2"):
        own.fit(X, wrong, **SHORT)
    codes, classes = checked_labels(np.arange(100) % 2 * 2, 100, None, 3)
    assert classes.tolist() == [0, 1, 2] and set(codes) == {0, 2}, "a class without rows"


def test_predictions_that_still_move_are_noted(quick_compiler):
    X, y = bytes_and_words()
    with pytest.warns(
        sc.errors.SciroccoWarning, match=r"BNN have not converged: R-hat of `prediction\[row \d+, (day|night)\]`"
    ):
        net(num_burnin=0, thin=1, num_samples=60).fit(X, y, num_epochs=60, progress=False)


def test_large_inputs_are_remarked():
    X, _ = bytes_and_words()
    with pytest.warns(sc.errors.SciroccoWarning, match="the inputs of BNN are large"):
        checked_inputs(X.astype(np.float32))


def test_bad_use_of_a_fit(fitted):
    whole, *_ = fitted
    X, y = bytes_and_words()
    with pytest.raises(InvalidTypeError, match="fitted to bytes"):
        whole.predict(X / 255)
    with pytest.raises(InvalidValueError, match=r"a row of X has the shape \(6,\)"):
        whole.predict(X.reshape(100, 6))
    with pytest.raises(InvalidValueError, match="not one of the declared classes"):
        whole.score(X, np.where(y == "day", "dawn", y))
    with pytest.raises(NotFittedError, match="not fitted yet"):
        net().predict(X)
    with pytest.raises(InvalidValueError, match="requires `X_test`"), pytest.warns(sc.errors.SciroccoWarning):
        net().fit(X, y, y_test=y, **SHORT)


def test_zeros_and_ones_are_no_pixels(fitted):
    ones = np.arange(12, dtype=np.uint8).reshape(6, 2) % 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, form = checked_inputs(ones)
    assert x.dtype == np.float32 and x.max() == 1.0 and not form.pixels
    assert checked_inputs(ones, form)[1] == form
    with pytest.raises(InvalidTypeError, match="fitted to other numbers"):
        checked_inputs(200 * ones, form)
    whole, *_ = fitted
    assert whole.predict(np.zeros((1, 2, 3), np.uint8)).shape == (1,), "a black picture among others"


def test_columns_keep_their_names():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, y = bytes_and_words()
    frame = pandas.DataFrame(X[:, 0] / np.float32(255), columns=["a", "b", "c"])
    own = net().fit(frame, y, **SHORT)
    assert own.feature_names_in_.tolist() == ["a", "b", "c"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own.score(frame, y)
    for use in (own.predict, lambda other: net().fit(frame, y, X_test=other, **SHORT)):
        with pytest.raises(InvalidValueError, match="in the same order"):
            use(frame[["b", "a", "c"]])


def test_scikit_learn():
    base = pytest.importorskip("sklearn.base", reason="scikit-learn is not installed")
    own = net(activation="tanh")
    assert base.is_classifier(own) and base.clone(own).get_params() == own.get_params()


# -- modules of other libraries -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("package", "make"), [("flax", "from_flax"), ("equinox", "from_equinox")])
def test_missing_packages(monkeypatch, package, make):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    arguments = (object(), np.zeros((1, 6))) if package == "flax" else (object(),)
    with pytest.raises(MissingExtraError, match=f"BNN.{make} needs the package `{package}`"):
        getattr(BNN, make)(*arguments)


def check_module(made):
    X, y = bytes_and_words()
    x = (X.reshape(100, 6) / np.float32(255)).astype(np.float32)
    made.set_params(batch_size=20, thin=5)
    assert made.fit(x, y == "day", num_epochs=60, progress=False).predict_proba(x).shape == (100, 2)


def test_flax_linen():
    linen = pytest.importorskip("flax.linen", reason="Flax is not installed")
    module = linen.Sequential([linen.Dense(4), linen.relu, linen.Dense(2)])
    check_module(BNN.from_flax(module, np.zeros((1, 6), np.float32)))
    with pytest.raises(InvalidValueError, match="batch_stats"):
        BNN.from_flax(linen.BatchNorm(use_running_average=True), np.zeros((1, 6), np.float32))
    with pytest.raises(InvalidTypeError, match="Create an instance"):
        BNN.from_flax(linen.Dense, np.zeros((1, 6), np.float32))


def test_flax_nnx():
    nnx = pytest.importorskip("flax.nnx", reason="Flax is not installed")
    rngs = nnx.Rngs(0)
    check_module(
        BNN.from_flax(nnx.Sequential(nnx.Linear(6, 4, rngs=rngs), nnx.relu, nnx.Linear(4, 2, rngs=rngs)), None)
    )
    with pytest.raises(InvalidValueError, match="in addition to parameters"):
        BNN.from_flax(nnx.BatchNorm(6, rngs=rngs), None)


def test_equinox():
    eqx = pytest.importorskip("equinox", reason="Equinox is not installed")
    made = BNN.from_equinox(eqx.nn.MLP(6, 2, 4, 1, key=jax.random.key(0)))
    assert "layers[0].weight" in made.params and len(made.params) == 4
    check_module(made)
    with pytest.raises(InvalidValueError, match="no floating-point arrays"):
        BNN.from_equinox(eqx.nn.Identity())
