"""From every format to the native folder and back: the same rows; and each way a file can be wrong has its words."""

from __future__ import annotations

import gzip
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from scirocco.data.formats import conversion
from scirocco.data.formats.conversion import convert
from scirocco.data.native.corpus import CorpusSource
from scirocco.data.sizes import READING
from scirocco.errors import InvalidTypeError, InvalidValueError, MissingExtraError, SciroccoWarning

pytestmark = pytest.mark.unit

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
ipc = pytest.importorskip("pyarrow.ipc")
zarr = pytest.importorskip("zarr")

N = 500
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = np.arange(N)
COLUMNS = {"x": ["f*"], "y": "y"}


def table(**more):
    return pa.table({"f0": X[:, 0], "f1": X[:, 1], "y": Y, "f2": X[:, 2], **more})


def frame():
    return pd.DataFrame({"f0": X[:, 0], "f1": X[:, 1], "y": Y, "f2": X[:, 2]})


def write_parquet(path):
    pq.write_table(table(), path, row_group_size=90)


def write_parquet_folder(path):
    path.mkdir()
    for i, part in enumerate(np.array_split(np.arange(N), 3)):
        pq.write_table(table().take(part), path / f"part-{i}.parquet")
    (path / "_SUCCESS").touch()


def write_arrow_file(path):
    with ipc.new_file(path, table().schema) as writer:
        writer.write_table(table(), max_chunksize=130)


def write_arrow_stream(path):
    with ipc.new_stream(path, table().schema) as writer:
        writer.write_table(table(), max_chunksize=130)


def write_feather(path):
    import pyarrow.feather as feather

    feather.write_feather(table(), path, compression="lz4")


def write_csv(path):
    frame().to_csv(path, index=False)


def write_zarr_columns(version):
    def write(path):
        group = zarr.open_group(path, mode="w", zarr_format=version)
        for name, column in frame().items():
            array = group.create_array(name, shape=(N,), chunks=(70 if name == "y" else 64,), dtype=column.dtype)
            array[:] = column.to_numpy()

    return write


def write_npz(save):
    return lambda path: save(path, **{name: column.to_numpy() for name, column in frame().items()})


FORMATS = {
    "rows.parquet": write_parquet,
    "parts": write_parquet_folder,
    "rows.arrow": write_arrow_file,
    "stream.arrow": write_arrow_stream,
    "rows.feather": write_feather,
    "rows.csv": write_csv,
    "rows.csv.gz": write_csv,
    "rows2.zarr": write_zarr_columns(2),
    "rows3.zarr": write_zarr_columns(3),
    "rows.npz": write_npz(np.savez),
    "packed.npz": write_npz(np.savez_compressed),
}


@pytest.fixture(autouse=True)
def small_chunks(changed):
    """Many chunks also for small files."""
    changed(READING, chunk_bytes=2000, text_values=400)


# --------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize("name", FORMATS)
def test_round_trip(tmp_path, name):
    FORMATS[name](tmp_path / name)
    source = convert(tmp_path / name, tmp_path / "out", columns=COLUMNS, shuffle=False)
    rows = source.read(0, N)
    np.testing.assert_array_equal(rows["x"], X.astype(np.float32))
    np.testing.assert_array_equal(rows["y"], Y)
    assert rows["y"].dtype == np.int32
    assert source.header.arrays["x"].columns == ("f0", "f1", "f2")
    assert source.header.source == str(tmp_path / name)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("memory", [1 << 30, 2000])
def test_round_trip_shuffled(tmp_path, name, memory, seed):
    FORMATS[name](tmp_path / name)
    source = convert(tmp_path / name, tmp_path / "out", columns=COLUMNS, seed=seed, memory=memory)
    rows = source.read(0, N)
    np.testing.assert_array_equal(np.sort(rows["y"]), Y)
    np.testing.assert_array_equal(rows["x"], X[rows["y"]].astype(np.float32))
    assert (rows["y"] != Y).mean() > 0.9


@pytest.mark.parametrize("name", FORMATS)
def test_double_precision_and_every_column(tmp_path, name):
    FORMATS[name](tmp_path / name)
    rows = convert(tmp_path / name, tmp_path / "out", dtype="float64", shuffle=False).read(0, N)
    assert set(rows) == {"f0", "f1", "f2", "y"}
    np.testing.assert_array_equal(rows["f1"], X[:, 1])
    assert rows["y"].dtype == np.int64


def write_fortran_npz(path):
    np.savez(path, x=np.asfortranarray(X), y=Y)


def write_zarr_matrix(path):
    group = zarr.open_group(path, mode="w")
    group.create_array("x", shape=X.shape, chunks=(64, 2), dtype="f8")[:] = X
    group.create_array("y", shape=Y.shape, chunks=(N,), dtype="i8")[:] = Y


@pytest.mark.parametrize(
    ("name", "write"), [("rows.npz", write_fortran_npz), ("rows.zarr", write_zarr_matrix)], ids=["npz", "zarr"]
)
def test_matrices(tmp_path, name, write):
    write(tmp_path / name)
    rows = convert(tmp_path / name, tmp_path / "out", shuffle=False).read(0, N)
    np.testing.assert_array_equal(rows["x"], X.astype(np.float32))
    np.testing.assert_array_equal(rows["y"], Y)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_bare_npy(tmp_path, order):
    np.save(tmp_path / "x.npy", np.asarray(X, order=order))
    rows = convert(tmp_path / "x.npy", tmp_path / "out", shuffle=False).read(0, N)
    np.testing.assert_array_equal(rows, X.astype(np.float32))
    named = convert(tmp_path / "x.npy", tmp_path / "named", columns={"x": "data"}, shuffle=False)
    np.testing.assert_array_equal(named.read(0, N)["x"], X.astype(np.float32))


def test_a_bare_zarr_array(tmp_path):
    zarr.open_array(tmp_path / "x.zarr", mode="w", shape=X.shape, chunks=(64, 3), dtype="f8")[:] = X
    rows = convert(tmp_path / "x.zarr", tmp_path / "out", shuffle=False).read(0, N)
    np.testing.assert_array_equal(rows, X.astype(np.float32))


def test_lists_become_matrices(tmp_path):
    flat = pa.array(X.reshape(-1))
    nested = pa.array(np.arange(4 * N)), np.arange(0, 4 * N + 1, 2), np.arange(0, 2 * N + 1, 2)
    columns = {
        "fixed": pa.FixedSizeListArray.from_arrays(flat, 3),
        "equal": pa.ListArray.from_arrays(pa.array(np.arange(0, 3 * N + 1, 3), pa.int32()), flat),
        "deep": pa.ListArray.from_arrays(
            pa.array(nested[2], pa.int32()), pa.ListArray.from_arrays(pa.array(nested[1], pa.int32()), nested[0])
        ),
        "codes": pa.array(Y % 3).dictionary_encode(),
        "flag": pa.array(Y % 2 == 0),
    }
    pq.write_table(pa.table(columns), tmp_path / "lists.parquet", row_group_size=70)
    rows = convert(tmp_path / "lists.parquet", tmp_path / "out", shuffle=False).read(0, N)
    np.testing.assert_array_equal(rows["fixed"], X.astype(np.float32))
    np.testing.assert_array_equal(rows["equal"], X.astype(np.float32))
    np.testing.assert_array_equal(rows["deep"], np.arange(4 * N).reshape(N, 2, 2))
    np.testing.assert_array_equal(rows["codes"], Y % 3)
    np.testing.assert_array_equal(rows["flag"], Y % 2 == 0)
    stacked = convert(tmp_path / "lists.parquet", tmp_path / "s", columns={"x": ["fixed", "codes"]}, shuffle=False)
    np.testing.assert_array_equal(stacked.read(0, N)["x"], np.column_stack([X, Y % 3]).astype(np.float32))


def test_a_sparse_matrix_becomes_a_corpus(tmp_path):
    counts = RNG.poisson(0.3, size=(40, 12))
    sp.save_npz(tmp_path / "counts.npz", sp.csc_matrix(counts))
    source = convert(tmp_path / "counts.npz", tmp_path / "out", shuffle=False)
    assert isinstance(source, CorpusSource)
    indptr, indices, values = source.take_csr(np.arange(40))
    np.testing.assert_array_equal(sp.csr_array((values, indices, indptr), shape=(40, 12)).toarray(), counts)
    with pytest.raises(InvalidValueError, match="sparse matrix: it has no columns"):
        convert(tmp_path / "counts.npz", tmp_path / "out2", columns={"x": "*"})


def test_a_csv_column_that_turns_into_decimals(tmp_path):
    values = np.arange(N).astype(float)
    values[400:] += 0.5
    lines = ["a,b,c", *(f"{i},{int(v) if v == int(v) else v},{i}" for i, v in enumerate(values))]
    (tmp_path / "late.csv").write_text("\n".join(lines))
    rows = convert(tmp_path / "late.csv", tmp_path / "out", shuffle=False).read(0, N)
    np.testing.assert_array_equal(rows["b"], values.astype(np.float32))
    assert rows["a"].dtype == rows["c"].dtype == np.int32


def test_a_csv_without_a_header(tmp_path):
    np.savetxt(tmp_path / "bare.csv", X, delimiter=",")
    with pytest.warns(SciroccoWarning, match="has no header: .* x0 to x2"):
        source = convert(tmp_path / "bare.csv", tmp_path / "out", columns={"x": ["*"]}, shuffle=False)
    np.testing.assert_array_equal(source.read(0, N)["x"], X.astype(np.float32))


def test_a_csv_whose_columns_are_numbered(tmp_path):
    pd.DataFrame(X).to_csv(tmp_path / "numbered.csv", index=False)
    with pytest.warns(SciroccoWarning, match="is taken as the names"):
        rows = convert(tmp_path / "numbered.csv", tmp_path / "out", shuffle=False).read(0, N)
    np.testing.assert_array_equal(rows["2"], X[:, 2].astype(np.float32))


@pytest.mark.parametrize("first", ["3,1,0", "1,0,1", "2,3,4", "0.5,1,2"])
def test_a_first_line_of_numbers_is_data(first, tmp_path):
    (tmp_path / "rows.csv").write_text(f"{first}\n5,2,0\n7,1,1\n")
    with pytest.warns(SciroccoWarning, match=r"rows\.csv has no header: its first line .* is read as data"):
        source = convert(tmp_path / "rows.csv", tmp_path / "out", shuffle=False)
    assert source.num_rows == 3 and float(source.read(0, 1)["x0"][0]) == float(first.split(",")[0])


def test_the_index_of_pandas_is_no_data(tmp_path):
    frame().iloc[::-1].to_parquet(tmp_path / "frame.parquet")
    assert set(convert(tmp_path / "frame.parquet", tmp_path / "out").row_spec) == {"f0", "f1", "f2", "y"}


# ------------------------------------------------------------------------------------------------- columns


@pytest.mark.parametrize(
    ("columns", "groups"),
    [
        (None, {"a1": ["a1"], "a2": ["a2"], "b": ["b"], "odd[x]": ["odd[x]"]}),
        ({"x": "a*"}, {"x": ["a1", "a2"]}),
        ({"x": ["a2", "a1"]}, {"x": ["a2", "a1"]}),
        ({"y": "b", "x": "*"}, {"y": ["b"], "x": ["a1", "a2", "odd[x]"]}),
        ({"x": ["*"], "y": "a1"}, {"x": ["a2", "b", "odd[x]"], "y": ["a1"]}),
        ({"x": ["a?", "odd[x]"]}, {"x": ["a1", "a2", "odd[x]"]}),
    ],
)
def test_which_columns_are_chosen(columns, groups):
    plan = conversion.ColumnPlan(columns, ["a1", "a2", "b", "odd[x]"], "f.csv")
    assert plan.columns == groups
    assert sorted(plan.wanted) == sorted(name for group in groups.values() for name in group)


def test_columns_of_different_types_are_promoted():
    plan = conversion.ColumnPlan({"x": ["a", "b"]}, ["a", "b"], "f.csv")
    made = plan.arrays({"a": np.array([1, 2]), "b": np.array([0.5, 1.5], np.float32)})["x"]
    np.testing.assert_array_equal(made, [[1, 0.5], [2, 1.5]])
    assert made.dtype == np.float64


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"x": ["g*"]}, r"pattern 'g\*' matches no column of rows.csv. The columns are: f0, f1, y, f2"),
        ({"x": "f22"}, "rows.csv has no column `f22`. Did you mean `f2`"),
        ({"x": ["f0", "f0"]}, "column `f0` of rows.csv is used twice: in `x` and in `x`"),
        ({"x": "f*", "z": "?1"}, "column `f1` of rows.csv is used twice: in `x` and in `z`"),
        ({"x": []}, "no column for the array `x`"),
        ({}, "`columns` maps array names"),
        (["f0"], "`columns` maps array names"),
    ],
)
def test_wrong_columns(tmp_path, columns, words):
    write_csv(tmp_path / "rows.csv")
    with pytest.raises((InvalidValueError, InvalidTypeError), match=words):
        convert(tmp_path / "rows.csv", tmp_path / "out", columns=columns)


# ------------------------------------------------------------------------------------------ what is refused


def _parquet(**columns):
    def write(path):
        pq.write_table(pa.table(columns), path / "bad.parquet", row_group_size=4)
        return path / "bad.parquet"

    return write


def _arrow(**columns):
    def write(path):
        with ipc.new_file(path / "bad.arrow", pa.table(columns).schema) as writer:
            writer.write_table(pa.table(columns), max_chunksize=4)
        return path / "bad.arrow"

    return write


def _csv(text, name="bad.csv"):
    def write(path):
        (path / name).write_text(text)
        return path / name

    return write


def _npz(**arrays):
    def write(path):
        np.savez(path / "bad.npz", **arrays)
        return path / "bad.npz"

    return write


def _npy(array):
    def write(path):
        np.save(path / "bad.npy", array)
        return path / "bad.npy"

    return write


def _zarr(**arrays):
    def write(path):
        group = zarr.open_group(path / "bad.zarr", mode="w")
        for name, array in arrays.items():
            group.create_array(name, shape=array.shape, dtype=array.dtype)[...] = array
        return path / "bad.zarr"

    return write


def _folder(*tables):
    def write(path):
        (path / "parts").mkdir()
        for i, part in enumerate(tables):
            pq.write_table(pa.table(part), path / "parts" / f"part-{i}.parquet")
        return path / "parts"

    return write


NULLS = pa.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, None])
LONG = [1.0] * 6
REFUSED = {
    "parquet null": (_parquet(a=NULLS), "column `a` of bad.parquet has a null at row 6"),
    "arrow null": (_arrow(a=NULLS), "column `a` of bad.arrow has a null at row 6"),
    "null in a list": (
        _parquet(a=pa.array([[1, 2], [3, None]], pa.list_(pa.int32(), 2))),
        "null inside the list of row 1",
    ),
    "only nulls": (_parquet(a=pa.nulls(3)), "column `a` of bad.parquet has type null"),
    "parquet text": (_parquet(a=["u", "v"]), "column `a` of bad.parquet has type string, which holds text"),
    "categories": (_parquet(a=pa.array(["u", "v"]).dictionary_encode()), "column `a` .*text"),
    "parquet dates": (
        _parquet(a=pa.array([0], pa.timestamp("s"))),
        "column `a` of bad.parquet has type timestamp.*dates or times",
    ),
    "decimals": (_parquet(a=pa.array([1], pa.decimal128(9, 2))), "decimal numbers: cast them to double"),
    "structs": (_parquet(a=[{"u": 1}]), "column `a` .*nested records: flatten"),
    "ragged": (_parquet(a=[[1], [1], [1, 2]]), "ragged: row 2 .*length 2, the rows before of length 1"),
    "ragged later": (_arrow(a=[[1]] * 4 + [[1, 2]] * 4), r"ragged: lists of shape \(2,\) from row 4 on"),
    "parquet infinite": (_parquet(a=[*LONG, np.inf]), "array `a`, row 6 .*NaN or infinite"),
    "too large": (_parquet(u=[1, 2**40], v=[1, 2]), "array `u`, row 1 .*is 1099511627776, beyond 32 bits"),
    "no rows": (_parquet(a=pa.array([], pa.float32())), "bad.parquet: there are no rows"),
    "another type": (
        _folder({"a": [1], "b": [1]}, {"a": [1], "b": [0.5]}),
        "column `b` is double in part-1.parquet but int64 in part-0.parquet",
    ),
    "a column less": (_folder({"a": [1], "b": [1]}, {"a": [1]}), "part-1.parquet has no column `b`"),
    "a column more": (_folder({"a": [1]}, {"a": [1], "b": [1]}), "part-1.parquet has a column `b` that part-0"),
    "csv empty cell": (_csv("a,b\n1,2\n1,\n"), "column `b` of bad.csv has an empty cell or NaN at row 1"),
    "csv short line": (_csv("a,b\n1,2\n1\n"), "line 3 of .*bad.csv has 1 fields, the first line 2"),
    "csv long line": (_csv("a,b\n1,2\n1,2,3\n"), "line 3 of .*bad.csv has 3 fields, the first line 2"),
    "csv long lines": (_csv("a,b\n1,2,3\n1,2,3\n"), "line 2 of .*bad.csv has 3 fields, the first line 2"),
    "csv text": (_csv("a,b\n1,2\n1,red\n"), "column `b` of bad.csv holds text: 'red' at row 1"),
    "csv dates": (_csv("a\n2020-01-01\n"), "column `a` of bad.csv holds text: '2020-01-01' at row 0.*dates"),
    "csv empty": (_csv(""), "bad.csv is empty"),
    "csv no rows": (_csv("a,b\n"), "bad.csv: there are no rows"),
    "npz lengths": (_npz(a=np.ones(3), b=np.ones(4)), "bad.npz have different numbers of rows .`a`: 3, `b`: 4"),
    "npz text": (_npz(a=np.array(["u"])), "array `a` of bad.npz has dtype <U1"),
    "npz objects": (_npz(a=np.array([{}])), "array `a` of bad.npz holds Python objects.*never unpickled"),
    "npz number": (_npz(a=np.array(1.0)), "array `a` of bad.npz is a single number"),
    "npz dates": (_npz(a=np.zeros(2, "M8[s]")), "array `a` of bad.npz has dtype datetime64.*dates"),
    "npz empty": (_npz(), "no arrays|no rows"),
    "npy objects": (_npy(np.array([{}])), "array of bad.npy holds Python objects"),
    "npy records": (_npy(np.zeros(2, [("u", float)])), "records"),
    "npy no rows": (_npy(np.ones((0, 2))), "there are no rows"),
    "npy infinite": (_npy(np.array([1.0, np.inf])), "the array, row 1 .*NaN or infinite"),
    "zarr lengths": (_zarr(a=np.ones(3), b=np.ones(4)), "bad.zarr have different numbers of rows"),
    "zarr infinite": (_zarr(a=np.array([1.0, np.nan])), "array `a`, row 1 .*NaN or infinite"),
    "unknown": (_csv("x", "bad.xlsx"), r"bad.xlsx: files of this kind .*Supported are Parquet \(.parquet"),
    "an empty folder": (_folder(), "holds no Parquet, Arrow or Zarr data"),
    "nothing there": (lambda path: path / "none.csv", "there is no file or folder"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_refused(tmp_path, case):
    write, words = REFUSED[case]
    path = write(tmp_path)
    with pytest.raises((InvalidValueError, InvalidTypeError), match=words):
        convert(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.partial").exists()


def test_a_stacked_matrix_names_the_column(tmp_path):
    (tmp_path / "a.csv").write_text("f0,f1,y\n1.0,1.0,0\n1.0,inf,0\n")
    with pytest.raises(InvalidValueError, match="array `x`, column `f1`, row 1 "):
        convert(tmp_path / "a.csv", tmp_path / "out", columns={"x": "f*"})
    (tmp_path / "b.csv").write_text("f0,f1\n1,2\n1,3000000000\n")
    with pytest.raises(InvalidValueError, match=r"column `f1`, row 1 .*beyond 32 bits"):
        convert(tmp_path / "b.csv", tmp_path / "out", columns={"x": "f*"})


def test_a_bad_column_may_be_left_out(tmp_path):
    pq.write_table(table(city=["u"] * N, when=pa.nulls(N)), tmp_path / "rows.parquet")
    source = convert(tmp_path / "rows.parquet", tmp_path / "out", columns=COLUMNS, shuffle=False)
    np.testing.assert_array_equal(source.read(0, N)["y"], Y)


@pytest.mark.parametrize(
    "name", ["rows.parquet", "rows.arrow", "rows.feather", "rows.npz", "packed.npz", "rows.csv.gz", "x.npy"]
)
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.98])
def test_a_file_cut_short(tmp_path, name, share):
    if name == "x.npy":
        np.save(tmp_path / name, X)
    else:
        FORMATS[name](tmp_path / name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: int(len(content) * share)])
    with pytest.raises(InvalidValueError, match=rf"{name} (cannot be read|is empty)"):
        convert(tmp_path / name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_member_of_an_npz(tmp_path):
    np.savez(tmp_path / "rows.npz", x=X)
    content = bytearray((tmp_path / "rows.npz").read_bytes())
    content[2000] ^= 0xFF
    (tmp_path / "rows.npz").write_bytes(content)
    with pytest.raises(InvalidValueError, match=r"rows.npz cannot be read \(Bad CRC-32"):
        convert(tmp_path / "rows.npz", tmp_path / "out")


def test_a_file_that_is_not_what_its_name_says(tmp_path):
    for name in ("a.parquet", "a.arrow", "a.npz", "a.npy", "a.csv.gz"):
        (tmp_path / name).write_text("hello, world, this is no such file at all")
        with pytest.raises(InvalidValueError, match=rf"{name} cannot be read"):
            convert(tmp_path / name, tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "package", "words"),
    [
        ("rows.parquet", "pyarrow.parquet", "reading Parquet files needs the package `pyarrow`"),
        ("rows.arrow", "pyarrow", "reading Arrow files needs the package `pyarrow`"),
        ("rows3.zarr", "zarr", "reading Zarr arrays needs the package `zarr`"),
    ],
)
def test_a_missing_package(tmp_path, monkeypatch, name, package, words):
    FORMATS[name](tmp_path / name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=words):
        convert(tmp_path / name, tmp_path / "out")


def test_streams_hold_little(tmp_path, monkeypatch):
    """No chunk of any reader is larger than asked, so that memory does not grow with the file."""
    from scirocco.data.formats.conversion import open_table

    for name, write in FORMATS.items():
        write(tmp_path / name)
        opened = open_table(tmp_path / name)
        sizes = [len(chunk["y"]) for chunk in opened.chunks(["f0", "y"])]
        assert sum(sizes) == N
        assert len(sizes) > 3
        assert max(sizes) <= 180


def test_gz_is_really_compressed(tmp_path):
    write_csv(tmp_path / "rows.csv.gz")
    with gzip.open(tmp_path / "rows.csv.gz") as file:
        assert file.readline() == b"f0,f1,y,f2\n"
    write_npz(np.savez_compressed)(tmp_path / "packed.npz")
    assert zipfile.ZipFile(tmp_path / "packed.npz").infolist()[0].compress_type == zipfile.ZIP_DEFLATED
