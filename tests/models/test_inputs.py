"""Tables and targets as users have them: what is accepted, and what every complaint says."""

import numpy as np
import pytest

from scirocco.errors import InvalidTypeError, InvalidValueError, SciroccoWarning
from scirocco.models.inputs import features, labels, targets
from scirocco_latent.dp.rows import count_rows
from scirocco_latent.lda.corpus import as_corpus

pytestmark = pytest.mark.unit

GOOD = np.array([[1.0, 2.0], [3.0, 5.0], [4.0, 9.0]])


def test_tables_become_floats_with_names():
    pandas = pytest.importorskip("pandas")
    sparse = pytest.importorskip("scipy.sparse")
    frame = pandas.DataFrame({"a": [1, 3, 4], "b": [2.0, 5.0, 9.0]})
    for given in (GOOD, GOOD.tolist(), GOOD.astype(np.int16), sparse.csr_matrix(GOOD), frame, GOOD.astype(object)):
        found = features(given, "Model")
        assert found.array.dtype == np.float32
        np.testing.assert_array_equal(found.array, GOOD)
    assert features(frame, "Model").names == ("a", "b")


def test_levels_of_polars_have_the_order_of_an_enum_or_of_the_rows():
    """As far as the library looks at them: `cat.get_categories` was removed in polars 2."""

    class Type:
        categories = ("z", "b", "a")

        def __init__(self, name):
            self.name = name

        def __str__(self):
            return self.name

    class Table:
        columns = ("g",)

        def __init__(self, name):
            self.dtype = Type(name)

        def __getitem__(self, name):
            return self

        def __len__(self):
            return 3

        def to_numpy(self):
            return np.array(["a", "b", "a"], dtype=object)

    for name, names, column in (("Categorical", ("g[b]",), [0, 1, 0]), ("Enum(categories=...)", ("g[a]",), [1, 0, 1])):
        found = features(Table(name), "Model", levels={})
        assert found.names == names and found.array[:, 0].tolist() == column


@pytest.mark.parametrize(
    ("X", "error", "words"),
    [
        (np.ones(3), InvalidValueError, r"shape \(3,\). Reshape your data"),
        (np.ones((0, 2)), InvalidValueError, "0 rows"),
        (np.ones((2, 0)), InvalidValueError, r"0 feature\(s\)"),
        (GOOD * 1j, InvalidValueError, "Complex data not supported"),
        ([[1.0, "red"], [2.0, "blue"]], InvalidTypeError, "column 1 of X contains 'red' in row 0"),
        (np.array([[1.0, "red"], [2.0, "blue"]], object), InvalidTypeError, "column 1 of X contains 'red' in row 0"),
        ([[1.0, 2.0], [np.nan, 3.0]], InvalidValueError, "NaN: first in row 1, column 0; 1 of its 4"),
        ([[1.0, 2.0], [2.0, np.inf]], InvalidValueError, "inf: first in row 1, column 1"),
        ([[1.0, 2.0], [2.0, 1e300]], InvalidValueError, "infinity in float32"),
        ([[1.0, 2.0], [3.0]], InvalidValueError, "its rows differ in length"),
        ([[1.0, np.nan], [2.0, np.nan]], InvalidValueError, "column 1 of X is missing"),
        (
            [[1.0, 7.0], [2.0, 7.0]],
            InvalidValueError,
            "column 1 of X has the single value 7: it has no information. Drop it.$",
        ),
    ],
)
def test_bad_tables_are_refused_with_their_column(X, error, words):
    with pytest.raises(error, match=words):
        features(X, "Model")


def test_columns_are_named_in_complaints():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"height": [1.0, 2.0], "age": [None, None], "eyes": ["blue", "brown"]})
    with pytest.raises(InvalidTypeError, match=r"column 2 \(`eyes`\) of X contains 'blue' in row 0"):
        features(frame, "Model")
    with pytest.raises(InvalidValueError, match=r"column 1 \(`age`\) of X is missing"):
        features(frame[["height", "age"]], "Model")
    with pytest.raises(InvalidValueError, match="columns 0 and 1 of X have one name, 'height'"):
        features(frame[["height", "height"]], "Model")


def test_texts_that_are_numbers_and_dates_are_not_called_categories():
    pandas = pytest.importorskip("pandas")
    days = pandas.date_range("2020-01-01", periods=2)
    frame = pandas.DataFrame({"age": ["51.5", "49"], "day": days})
    with pytest.raises(InvalidTypeError, match=r"The texts are numbers: convert them with X\.astype\({'age': float}"):
        features(frame, "Model")
    assert features(frame.astype({"age": float})[["age"]], "Model").names == ("age",)
    with pytest.raises(InvalidTypeError, match=r"\(X\['day'\] - X\['day'\]\.min\(\)\)\.dt\.days"):
        features(frame[["day"]], "Model")


def test_columns_of_arrow_tables_have_names():
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"a": [1.0, 3.0, 4.0], "b": [2.0, None, 9.0], "c": ["x", "y", "z"]})
    assert features(table.select(["a"]), "Model").names == ("a",)
    with pytest.raises(InvalidValueError, match=r"row 1, column 1 \(`b`\)"):
        features(table.select(["a", "b"]), "Model")
    with pytest.raises(InvalidTypeError, match=r"\(`c`\) of X contains 'x' in row 0: features must be numbers\. Enc"):
        features(table, "Model")


def test_counts_in_data_frames():
    """pandas' nullable integers are counts; a frame of texts is not one long document."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2, 0], "b": [0, 3, 1]}, dtype="Int64")
    assert as_corpus(frame).num_tokens == count_rows(frame).counts.sum() == 7
    frame.loc[1, "b"] = pandas.NA
    with pytest.raises(InvalidValueError, match=r"document 1 .* nan"):
        as_corpus(frame)
    with pytest.raises(InvalidValueError, match=r"row 1, column 1 holds nan. Impute or remove"):
        count_rows(frame)
    with pytest.raises(InvalidTypeError, match=r"data frame.*fit\(frame, column='text'\)"):
        as_corpus(pandas.DataFrame({"text": ["sun moon", "moon"]}))


def test_constant_columns_can_be_kept():
    assert features([[1.0, 7.0], [2.0, 7.0]], "Model", constant="keep").array.shape == (2, 2)


def test_columns_of_a_fit_are_asked_for_again():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InvalidValueError, match="X has 2 features, but Model is expecting 3 features"):
        features(GOOD, "Model", like=(3, None))
    frame = pandas.DataFrame(GOOD, columns=["a", "b"])
    with pytest.raises(InvalidValueError, match="must be in the same order"):
        features(frame, "Model", like=(2, ("b", "a")))
    with pytest.raises(InvalidValueError, match=r"(?s)unseen at fit time:\n- b\n.*now missing:\n- c"):
        features(frame, "Model", like=(2, ("a", "c")))
    with pytest.warns(SciroccoWarning, match="does not have valid feature names"):
        features(GOOD, "Model", like=(2, ("a", "b")))


def test_exact_tables_keep_their_digits():
    clock = 1_700_000_000 + np.array([[1], [2]])
    for given in (clock, clock.astype(np.float64)):
        np.testing.assert_array_equal(features(given, "Model", exact=True).array, clock)
    assert features(GOOD.astype(np.float32), "Model", exact=True).array.dtype == np.float32
    with pytest.raises(InvalidValueError, match="infinity in float32"):
        features([[1.0], [1e300]], "Model", exact=True)


def test_wild_scales_bring_an_offer():
    with pytest.warns(SciroccoWarning, match="standardise=True"):
        features([[1.0, 1e6], [2.0, 9e6]], "Model", wild=True)


def test_labels_of_any_kind_become_codes():
    for given, classes in ((["b", "a", "b"], ["a", "b"]), ([1, -1, 1], [-1, 1]), ([True, False, True], [False, True])):
        codes, found = labels(given)
        assert codes.tolist() == [1, 0, 1]
        assert codes.dtype == np.int32
        assert found.tolist() == classes
    codes, found = labels(["low", "high"], ["low", "middle", "high"])
    assert codes.tolist() == [0, 2]
    assert found.tolist() == ["low", "middle", "high"]
    codes, found = labels(["low", "high"], ["low", "middle", "high"], sort=True)
    assert codes.tolist() == [1, 0]
    assert found.tolist() == ["high", "low", "middle"]


@pytest.mark.parametrize(
    ("y", "classes", "words"),
    [
        ([1, 2, 7], [1, 2], "label 7 in row 2 of y is not one of the declared classes"),
        ([1, 2], [1, 1], "two different labels"),
        ([0.5, 1.0], None, "Unknown label type: continuous.*0.5 in row 0"),
        ([1.0, np.nan], None, "NaN or infinity: first in row 1"),
        (["a", None], None, "label of row 1 is missing"),
        ([3.0, 3.0], None, "every row of y has the class 3.0"),
        (None, None, "requires y to be passed, but the target y is None"),
        (np.ones((3, 2)), None, r"one value per row, got shape \(3, 2\)"),
    ],
)
def test_bad_labels_are_refused(y, classes, words):
    with pytest.raises(InvalidValueError, match=words):
        labels(y, classes)


def test_targets_are_finite_numbers_one_a_row():
    assert targets([1, 2]).dtype == np.float64
    with pytest.raises(InvalidValueError, match="NaN: first in row 1; 1 of 2"):
        targets([1.0, np.nan])
    with pytest.raises(InvalidTypeError, match=r"^y contains 'x' in row 0: targets"):
        targets(["x", "y"])
    with pytest.raises(InvalidValueError, match="X has 3 rows and y has 2"):
        targets([1.0, 2.0], num_rows=3)
    with pytest.warns(Warning, match="column-vector y"):
        assert targets(np.ones((3, 1))).shape == (3,)


# -- categories --------------------------------------------------------------------------------------------------------


def coloured(eyes, kind="category"):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": np.arange(len(eyes)) % 5 + 20.0, "eyes": eyes, "size": np.arange(len(eyes)) % 3})
    return frame.astype({"eyes": kind})


EYES = ["green", "blue", "brown", "blue", "brown", "green"] * 10


def test_categories_become_indicators_of_all_levels_but_the_first():
    found = features(coloured(EYES), "Model", levels={})
    assert found.names == ("age", "eyes[brown]", "eyes[green]", "size")
    assert found.levels == {"eyes": ["blue", "brown", "green"]}
    np.testing.assert_array_equal(found.array[:3, 1:3], [[0, 1], [0, 0], [1, 0]])
    like = (4, found.names)
    for kind in ("category", object):  # the levels are those of the fit, in whatever order the new table has them
        again = features(coloured(["green", "brown"], kind), "Model", like=like, levels=found.levels)
        np.testing.assert_array_equal(again.array[:, 1:3], [[0, 1], [1, 0]])


def test_categories_that_cannot_be_used_are_named():
    with pytest.raises(InvalidValueError, match=r"column 1 \(`eyes`\) of X has 'red' in row 1, .*'blue', 'brown'"):
        features(coloured(["blue", "red"]), "M", like=(3, None), levels={"eyes": ["blue", "brown"]})
    with pytest.raises(InvalidValueError, match=r"`eyes`\) of X is missing \(NaN\) in row 1"):
        features(coloured(["blue", None, "brown"]), "M", levels={})
    with pytest.raises(InvalidValueError, match="single level 'blue'"):
        features(coloured(["blue", "blue"]), "M", levels={})
    with pytest.raises(InvalidTypeError, match=r"`eyes`\) of X contains 'blue' in row 0.*astype"):
        features(coloured(["blue", "brown"], object), "M", levels={})


@pytest.mark.rotates(2, "long fits")
@pytest.mark.compile
def test_regressions_take_categories_and_remember_them(tmp_path):
    from scirocco.models import LinearRegression

    frame, shift = coloured(EYES), {"blue": 0.0, "brown": 2.0, "green": -1.0}
    y = np.array([shift[eye] for eye in EYES]) + 0.1 * np.arange(60) % 0.3
    model = LinearRegression(num_samples=50, seed=1).fit(frame, y, progress=False)
    assert "coef[eyes[brown]]" in model.named_draws()
    assert model.coef_.shape == (4,) and list(model.feature_names_in_)[1] == "eyes[brown]"
    new = coloured(["brown", "blue"], object)
    model.save(tmp_path / "model")
    expected = model.predict(new)
    assert expected[0] - expected[1] == pytest.approx(2.0, abs=0.5)
    np.testing.assert_allclose(LinearRegression.load(tmp_path / "model").predict(new), expected)
    with pytest.raises(InvalidValueError, match="'red'"):
        model.predict(coloured(["red"]))
