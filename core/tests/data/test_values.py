"""The one door of arrays, tables and sparse matrices: what comes through unchanged, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import scirocco as sc
from scirocco.data import as_source
from scirocco.data.values import as_csr, as_numpy
from scirocco.errors import InvalidValueError, SciroccoError

pytestmark = [pytest.mark.unit, pytest.mark.filterwarnings("error::scirocco.errors.SciroccoWarning")]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
Y = RNG.normal(size=40)
MASKED = np.ma.array(X, mask=np.zeros((40, 2), bool))
MASKED[3, 1] = np.ma.masked
COUNTS = np.ma.array(RNG.poisson(1.0, (40, 2)), mask=MASKED.mask)


class Column:
    """A column of polars, as far as the library looks at it: a null becomes NaN."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return np.array([np.nan if value is None else value for value in self.values])


class PolarsFrame:
    def __init__(self, **columns):
        self.held, self.columns = columns, list(columns)

    def __getitem__(self, name):
        return Column(self.held[name])

    def __len__(self):
        return len(next(iter(self.held.values())))

    def to_numpy(self):
        return np.stack([self[name].to_numpy() for name in self.columns], axis=1)


def model(cls, *arguments, **options):
    return lambda: getattr(sc.models, cls)(**options).fit(*arguments, progress=False)


def combine(tree):
    return lambda: sc.combine.consensus([tree, tree])


NORMAL = sc.Model(lambda p, datum: -0.5 * ((datum - p) ** 2).sum(), lambda p: -0.5 * (p**2).sum())
FEW = {"num_samples": 20, "num_chains": 1}


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: sc.sample(NORMAL, MASKED, np.zeros(2), num_samples=5, progress=False),
        lambda: sc.sample(NORMAL, X, np.ma.array([0.0, 0.0], mask=[0, 1]), num_samples=5, progress=False),
        lambda: sc.laplace(NORMAL, MASKED, np.zeros(2)),
        lambda: sc.laplace(NORMAL, X, np.ma.array([0.0, 0.0], mask=[0, 1])),
        combine({"a": MASKED}),
        model("LinearRegression", MASKED, Y),
        model("LinearRegression", list(MASKED), Y),
        model("LinearRegression", X, np.ma.array(Y, mask=Y > 1)),
        model("LogisticRegression", MASKED, Y > 0),
        model("LogisticRegression", X, np.ma.array(Y > 0, mask=Y > 1)),
        model("GaussianMixture", MASKED, num_components=2),
        model("BNN", MASKED, Y > 0),
        model("BNN", X, np.ma.array(Y > 0, mask=Y > 1)),
        model("BPMF", np.ma.array([0, 1], mask=[0, 1]), [0, 1], [1.0, 2.0]),
        model("BPMF", [0, 1], [0, 1], np.ma.array([1.0, 2.0], mask=[0, 1])),
        model("DPMixture", COUNTS),
        model("LDA", COUNTS, num_topics=2),
        lambda: as_source({"x": MASKED}),
    ],
)
def test_masked_values_are_refused_everywhere(attempt):
    with pytest.raises(InvalidValueError, match=r"masked array with \d+ masked value"):
        attempt()


def test_masked_values_are_refused_by_folders(tmp_path):
    for data in (MASKED, {"x": X, "y": MASKED[:, 1]}):
        with pytest.raises(InvalidValueError, match=r"masked array with 1 masked value, the first in row 3"):
            sc.data.write(tmp_path / "rows", data)
    with sc.data.FolderWriter(tmp_path / "rows") as writer:
        with pytest.raises(InvalidValueError, match="masked"):
            writer.append({"x": MASKED})
        writer.append({"x": X})


def test_a_masked_array_with_nothing_masked_is_an_array():
    np.testing.assert_array_equal(as_numpy(np.ma.array(X), "x"), X)


def test_the_byte_order_of_other_machines_does_not_matter(tmp_path):
    foreign = X.astype(">f8")
    assert as_source(foreign).arrays.dtype == np.float32
    assert sc.data.write(tmp_path / "rows", foreign, shuffle=False).read(0, 40).dtype == np.float32
    options = {"seed": 3, "num_samples": 5, "num_burnin": 5}
    both = [sc.models.LinearRegression(**options).fit(x, Y, progress=False) for x in (X, foreign)]
    np.testing.assert_array_equal(both[0].coef_, both[1].coef_)


def test_numbers_that_are_held_as_objects_are_numbers():
    source = as_source({"x": np.array([1, 2.5, True], object), "n": np.array([1, 2, 3], object)})
    assert (source.arrays["x"].dtype, source.arrays["n"].dtype) == (np.float32, np.int32)


def arrow_table(columns):
    return pytest.importorskip("pyarrow").table(columns)


@pytest.mark.parametrize(
    "make", [pd.DataFrame, lambda c: PolarsFrame(**c), arrow_table], ids=["pandas", "polars", "arrow"]
)
def test_a_row_of_a_table_is_a_dict_of_its_columns(make):
    columns = {"size": Y.astype(np.float32), "age": np.arange(40)}
    source = as_source(make(columns))
    assert {name: leaf.dtype.name for name, leaf in source.arrays.items()} == {"age": "int32", "size": "float32"}
    for name, column in columns.items():
        np.testing.assert_array_equal(source.arrays[name], column)


@pytest.mark.parametrize(
    "make", [pd.DataFrame, lambda c: PolarsFrame(**c), arrow_table], ids=["pandas", "polars", "arrow"]
)
def test_nulls_are_named_by_column(make, tmp_path):
    table = make({"size": [1.0, 2.0, 3.0], "age": [30, None, 50]})
    with pytest.raises(InvalidValueError, match=r"column `age` of the data holds 1 missing \(NaN\).* row 1"):
        as_source(table)
    with pytest.raises(InvalidValueError, match="array `age`, row 1"):
        sc.data.write(tmp_path / "rows", table)


def test_a_table_is_sampled_and_written_by_column(tmp_path):
    frame = pd.DataFrame({"x": X[:, 0], "y": Y})
    line = sc.Model(lambda p, row: -0.5 * (row["y"] - p * row["x"]) ** 2, lambda p: -0.5 * p**2)
    options = {"sampler": sc.SGLD(1e-3), "estimator": sc.Minibatch(5), "num_samples": 5, "progress": False}
    runs = [sc.sample(line, data, 0.0, **options) for data in (frame, {"x": X[:, 0], "y": Y})]
    np.testing.assert_array_equal(runs[0].draws, runs[1].draws)
    assert set(sc.data.write(tmp_path / "rows", frame).row_spec) == {"x", "y"}


# -- sparse matrices -----------------------------------------------------------------------------------------------


def matrix(kind="csr", **changes):
    made = sp.random_array((30, 20), density=0.2, rng=1, format=kind, data_sampler=lambda size: np.full(size, 2))
    for name, change in changes.items():
        getattr(made, name)[change[0]] = change[1]
    return made


DAMAGED = {
    "index too large": lambda: matrix(indices=(5, 10**6)),
    "index negative": lambda: matrix(indices=(5, -(10**6))),
    "indptr decreases": lambda: matrix(indptr=(7, 10**6)),
    "indptr too long": lambda: matrix(indptr=(30, 10**6)),
    "indptr starts late": lambda: matrix(indptr=(0, 3)),
    "columns": lambda: matrix("csc", indices=(5, 10**6)),
    "columns' indptr": lambda: matrix("csc", indptr=(20, 10**6)),
    "rows of entries": lambda: matrix("coo", row=(5, 10**6)),
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize(
    "use",
    [
        lambda m: sc.models.DPMixture().fit(m, progress=False),
        lambda m: sc.models.DPMixture(base="gaussian").fit(m, progress=False),
        lambda m: sc.models.LDA(2).fit(m, progress=False),
        lambda m: sc.models.LogisticRegression().fit(m, np.arange(30) % 2, progress=False),
        sc.data.CorpusSource,
    ],
    ids=["counts", "numbers", "topics", "regression", "corpus"],
)
def test_damaged_matrices_are_refused_before_compiled_code_reads_them(use, damage):
    with pytest.raises(SciroccoError, match="not a valid sparse matrix"):
        use(DAMAGED[damage]())


def test_a_matrix_is_sorted_and_summed_although_scipy_believes_it_is():
    given = sp.csr_array((np.array([1, 2, 3], np.int8), np.array([2, 0, 2]), np.array([0, 3, 3])), shape=(2, 4))
    given.has_canonical_format = given.has_sorted_indices = True
    found = as_csr(given, "m")
    np.testing.assert_array_equal(found.toarray(), [[2, 0, 4, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(found.indices, [0, 2])
    np.testing.assert_array_equal(given.indices, [2, 0, 2])


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"])
def test_every_format_comes_through(kind):
    np.testing.assert_array_equal(as_csr(matrix().asformat(kind), "m").toarray(), matrix().toarray())
