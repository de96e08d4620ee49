"""The native folder: what is written is what is read, in a uniformly random order, and damage is noticed."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import threading

import jax
import numpy as np
import pytest
import scipy.stats

from scirocco.data.native.folder import FolderSource, FolderWriter, describe_folder, open_folder, write_folder
from scirocco.data.shuffle import RowShuffle
from scirocco.errors import DataChangedError, InvalidTypeError, InvalidValueError

pytestmark = pytest.mark.unit

N = 1000
X = np.arange(3 * N, dtype=np.float32).reshape(N, 3)
Y = np.arange(N, dtype=np.int32)
HEADER = "scirocco-data.json"
STAMP_NAME = "scirocco-data.stamp"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows"


@pytest.fixture(params=[1 << 30, 0], ids=["mapped", "unmapped"])
def source(request, path):
    write_folder(path, {"x": X, "y": Y}, shuffle=False)
    return FolderSource(path, map_limit=request.param)


def same_rows(rows, order):
    np.testing.assert_array_equal(rows["x"], X[order])
    np.testing.assert_array_equal(rows["y"], Y[order])


# ------------------------------------------------------------------------------------------------- reading


def test_a_folder_knows_its_rows(source):
    assert source.num_rows == N
    assert source.nbytes == X.nbytes + Y.nbytes
    assert not source.shuffled
    assert source.checked
    assert source.row_spec == {"x": jax.ShapeDtypeStruct((3,), np.float32), "y": jax.ShapeDtypeStruct((), np.int32)}


def test_take_and_read(source, seed):
    order = np.random.default_rng(seed).integers(0, N, 20_000)
    same_rows(source.take(order), order)
    same_rows(source.take([7, 0, 7]), [7, 0, 7])
    same_rows(source.take(np.array([], int)), [])
    same_rows(source.take([]), [])
    same_rows(source.read(4, 600), np.arange(4, 600))
    same_rows(source.read(N - 2, N + 20), [N - 2, N - 1])
    same_rows(source.read(N, N), [])


def test_out_is_filled_in_place(source):
    out = {"x": np.empty((4, 3), np.float32), "y": np.empty(4, np.int32)}
    assert source.take([3, 1, 4, 1], out)["x"] is out["x"]
    same_rows(out, [3, 1, 4, 1])
    assert source.read(10, 14, out=out)["y"] is out["y"]
    same_rows(out, [10, 11, 12, 13])
    superbatch = {"x": np.zeros((8, 3), np.float32), "y": np.zeros(8, np.int32)}
    source.read(20, 24, out={name: array[2:6] for name, array in superbatch.items()})
    np.testing.assert_array_equal(superbatch["y"], [0, 0, 20, 21, 22, 23, 0, 0])


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ({"x": np.empty((4, 3), np.float32)}, r"dict of the arrays \['x', 'y'\], got \['x'\]"),
        (np.empty((4, 3)), "got ndarray"),
        ({"x": [0], "y": np.empty(4, np.int32)}, "must be a NumPy array, got list"),
        ({"x": np.empty((5, 3), np.float32), "y": np.empty(5, np.int32)}, r"shape \(4, 3\)"),
        ({"x": np.empty((4, 3)), "y": np.empty(4, np.int32)}, "dtype float32, got"),
        ({"x": np.empty((3, 4), np.float32).T, "y": np.empty(4, np.int32)}, "C-contiguous"),
    ],
)
def test_wrong_out(source, out, words):
    for call in (lambda: source.read(0, 4, out), lambda: source.take([0, 1, 2, 3], out)):
        with pytest.raises((InvalidTypeError, InvalidValueError), match=words):
            call()


def test_rows_that_do_not_exist(source):
    with pytest.raises(InvalidValueError, match=r"row 1000 \(entry 2 of `indices`\).* 0\.\.999"):
        source.take([0, 999, 1000, -5])
    with pytest.raises(InvalidValueError, match=r"row -1 \(entry 0"):
        source.take(np.array([-1]))
    with pytest.raises(InvalidTypeError, match="whole numbers, got float64"):
        source.take([0.5])
    with pytest.raises(InvalidTypeError, match=r"shape \(1, 1\)"):
        source.take([[0]])
    with pytest.raises(InvalidTypeError, match="bool"):
        source.take(np.ones(N, bool))
    with pytest.raises(InvalidValueError, match="not a range"):
        source.read(-1, 5)
    with pytest.raises(InvalidValueError, match="not a range"):
        source.read(5, 4)


def test_one_bare_array(path):
    source = write_folder(path, X, shuffle=False)
    assert source.row_spec == jax.ShapeDtypeStruct((3,), np.float32)
    np.testing.assert_array_equal(source.take([5, 2]), X[[5, 2]])
    out = np.empty((2, 3), np.float32)
    assert source.read(1, 3, out) is out
    np.testing.assert_array_equal(out, X[1:3])


def test_threads_read_at_once(source):
    problems = []

    def work(number):
        rng = np.random.default_rng(number)
        try:
            for _ in range(100):
                order = rng.integers(0, N, 50)
                same_rows(source.take(order), order)
                start = int(rng.integers(0, N - 50))
                same_rows(source.read(start, start + 50), np.arange(start, start + 50))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_a_pickle_reopens_the_files(source, path):
    copy = pickle.loads(pickle.dumps(source))
    same_rows(copy.take([9, 3]), [9, 3])
    assert copy.fingerprint() == source.fingerprint()
    held = pickle.dumps(source)
    write_folder(path, {"x": X + 1, "y": Y}, overwrite=True)
    with pytest.raises(DataChangedError, match="other data"):
        pickle.loads(held)


def test_open_files_are_closed(path):
    write_folder(path, {"x": X, "y": Y})
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    for _ in range(5):
        FolderSource(path).take([1])
    assert not before or len(os.listdir("/proc/self/fd")) == before


# ------------------------------------------------------------------------------------- change and damage


def test_the_stamp_notices_change(source, path):
    before = source.stamp()
    assert before == source.stamp() == open_folder(path).stamp()
    status = os.stat(path / "y.npy")
    os.utime(path / "y.npy", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert source.stamp() != before
    os.utime(path / "y.npy", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert source.stamp() == before
    with open(path / "y.npy", "ab") as file:
        file.write(b"x")
    os.utime(path / "y.npy", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert source.stamp() != before
    (path / "y.npy").unlink()
    with pytest.raises(DataChangedError, match=r"`y.npy` has disappeared"):
        source.stamp()


def test_other_data_have_another_fingerprint(tmp_path):
    first = write_folder(tmp_path / "a", {"x": X}, shuffle=False)
    second = write_folder(tmp_path / "b", {"x": X + 1}, shuffle=False)
    assert first.header.digest != second.header.digest
    assert first.header.digest == write_folder(tmp_path / "c", {"x": X}, shuffle=False).header.digest


def test_a_file_that_shrinks_raises_and_does_not_kill(source, path):
    source.take([N - 1])
    with open(path / "x.npy", "r+b") as file:
        file.truncate(5000)
    with pytest.raises(DataChangedError, match=r"`x.npy` has shrunk"):
        source.read(N - 10, N)
    with pytest.raises(DataChangedError, match=r"`x.npy` has shrunk"):
        source.take([N - 1])


def test_verify(source, path):
    source.verify()
    with open(path / "x.npy", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    with pytest.raises(InvalidValueError, match=r"`x.npy` .*was changed after writing"):
        source.verify()


def edit_header(path, **changes):
    content = json.loads((path / HEADER).read_text())
    content.update(changes)
    (path / HEADER).write_text(json.dumps(content))


def _entry(**changes):
    def damage(path):
        content = json.loads((path / HEADER).read_text())
        content["arrays"]["x"].update(changes)
        (path / HEADER).write_text(json.dumps(content))

    return damage


def _other_npy(path):
    content = bytearray((path / "x.npy").read_bytes())
    content[:128] = content[:128].replace(b"<f4", b"<i4")
    (path / "x.npy").write_bytes(content)


def _cut(path):
    with open(path / "x.npy", "r+b") as file:
        file.truncate(500)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: (path / HEADER).unlink(), "not a scirocco data folder.*scirocco data convert SOURCE FOLDER"),
        (lambda path: (path / HEADER).write_text("{"), "cannot be used"),
        (lambda path: (path / HEADER).write_text("[]"), "format is not"),
        (lambda path: edit_header(path, format="other"), "format is not"),
        (lambda path: edit_header(path, version=99), "version 99 .*reads version 1"),
        (lambda path: edit_header(path, arrays={}), "lists no data"),
        (lambda path: edit_header(path, num_rows=7), "different numbers of rows"),
        (lambda path: edit_header(path, kind="corpus"), "holds a corpus"),
        (lambda path: (path / "x.npy").unlink(), "`x.npy` is missing"),
        (_cut, "`x.npy` has 500 bytes instead of 12,128"),
        (_other_npy, "npy header of `x.npy` does not specify float32"),
        (_entry(file="../x.npy"), "not a plain file name"),
        (_entry(dtype="O"), "dtype O"),
    ],
)
def test_opening_a_damaged_folder(path, damage, words):
    write_folder(path, {"x": X, "y": Y})
    damage(path)
    with pytest.raises(InvalidValueError, match=words):
        FolderSource(path)


def test_no_folder(path):
    with pytest.raises(InvalidValueError, match="there is no folder"):
        open_folder(path)


def test_the_files_are_plain_npy(source, path):
    np.testing.assert_array_equal(np.load(path / "x.npy", allow_pickle=False), X)
    np.testing.assert_array_equal(np.load(path / "y.npy", allow_pickle=False), Y)


# ------------------------------------------------------------------------------------------------ writing


@pytest.mark.parametrize("memory", [1 << 30, 20_000, 100, 1])
def test_shuffling_permutes_whole_rows(path, memory, seed):
    source = write_folder(path, {"x": X, "y": Y}, seed=seed, memory=memory)
    rows = source.read(0, N)
    assert source.shuffled
    same_rows(rows, rows["y"])
    np.testing.assert_array_equal(np.sort(rows["y"]), Y)
    assert (rows["y"] != Y).mean() > 0.9
    assert sorted(os.listdir(path)) == [HEADER, STAMP_NAME, "x.npy", "y.npy"]
    source.verify()


@pytest.mark.parametrize("memory", [1 << 30, 3000])
def test_the_order_is_a_function_of_seed_and_memory(tmp_path, memory, seed):
    def order(name, seed, step):
        with FolderWriter(tmp_path / name, seed=seed, memory=memory) as writer:
            for start in range(0, N, step):
                writer.append({"y": Y[start : start + step]})
        return FolderSource(tmp_path / name).read(0, N)["y"]

    first = order("a", seed, 100)
    np.testing.assert_array_equal(first, order("b", seed, 100))
    np.testing.assert_array_equal(first, order("c", seed, 77))  # however the source cuts the rows
    assert (first != order("d", seed + 1, 100)).any()


@pytest.mark.law
@pytest.mark.parametrize(("capacity", "num_buckets"), [(10, 256), (1, 2), (2, 3)], ids=str)
def test_every_permutation_is_equally_likely(tmp_path, seed, capacity, num_buckets):
    record = np.dtype([("f0", np.int32)])
    rows, tries = np.arange(4, dtype=np.int32), 720
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for number in range(tries):
        rng = np.random.default_rng([seed, number])
        shuffle = RowShuffle(record, tmp_path, rng, 2 * 20 * capacity, num_buckets=num_buckets)
        assert shuffle.capacity == capacity
        shuffle.add({"f0": rows[:3]})
        shuffle.add({"f0": rows[3:]})
        counts[tuple(np.concatenate(list(shuffle.drain()))["f0"].tolist())] += 1
    assert not os.listdir(tmp_path)
    chi_square = sum((count - tries / 24) ** 2 / (tries / 24) for count in counts.values())
    assert scipy.stats.norm.isf(scipy.stats.chi2.sf(chi_square, 23)) < 5


def test_the_buckets_hold_no_more_than_the_budget(tmp_path, monkeypatch):
    loaded = []
    shuffled = RowShuffle._shuffled
    monkeypatch.setattr(
        RowShuffle, "_shuffled", lambda self, rows: (loaded.append(rows.nbytes), shuffled(self, rows))[1]
    )
    memory = 150  # a few rows: most of the 256 buckets of 1,000 rows are too large and are split again
    write_folder(tmp_path / "rows", X, memory=memory)
    assert sum(loaded) == X.nbytes
    assert max(loaded) <= memory // 2


@pytest.mark.parametrize(
    ("array", "dtype", "stored"),
    [
        (np.zeros((2, 2)), None, "float32"),
        (np.zeros(2), "float64", "float64"),
        (np.zeros(2, np.float16), None, "float32"),
        (np.zeros(2, ">f4"), None, "float32"),
        (np.zeros(2, np.int64), None, "int32"),
        (np.zeros(2, np.uint64), None, "int32"),
        (np.zeros(2, np.int64), "float64", "int64"),
        (np.zeros(2, np.uint8), None, "uint8"),
        (np.zeros(2, np.int16), None, "int16"),
        (np.zeros(2, bool), None, "bool"),
    ],
)
def test_precision_on_disk(path, array, dtype, stored):
    source = write_folder(path, array, dtype=dtype)
    assert source.row_spec.dtype == stored
    assert source.read(0, 2).dtype == np.dtype(stored)


def _with(value, dtype=np.float64):
    column = np.zeros(200_000, dtype)
    column[150_000] = value
    return column


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"x": _with(np.nan)}, r"array `x`, row 150000 .*is NaN or infinite \(1 such value in the first"),
        ({"x": _with(np.inf)[:, None]}, r"row 150000 \(counted from 0\), index \(0,\) is NaN or infinite"),
        ({"x": _with(1e39)}, "row 150000 .*is 1e[+]39, beyond the range of float32.*dtype='float64'"),
        ({"x": _with(2**31, np.int64)}, "row 150000 .*is 2147483648, beyond 32 bits.*dtype='float64'"),
        ({"x": _with(-(2**31) - 1, np.int64)}, "is -2147483649, beyond 32 bits"),
        ({"x": _with(2**63, np.uint64)}, "beyond 32 bits"),
        ({"x": np.array(["a", "b"])}, "array `x` has dtype <U1, which holds text: encode it as numbers"),
        ({"x": np.array([None, 1])}, "array `x` has dtype object.*missing values"),
        ({"x": np.array(["2020-01-01"], "M8[D]")}, "array `x` has dtype datetime64.*dates"),
        ({"x": np.zeros(2, complex)}, "complex"),
        ({"x": np.zeros(2, [("a", float)])}, "records"),
        ({"x": [[1], [1, 2]]}, "array `x` is not a table: its rows differ"),
        ({"x": np.ma.masked_array([1.0], [True])}, "array `x` is a masked array"),
        ({"x": {"a": Y}}, "nested names"),
        ({"x": 3.0}, "single number"),
        ({"x": np.zeros((3, 0))}, r"rows of shape \(0,\), with no values"),
        ({"x": X, "y": Y[:-1]}, "different numbers of rows .`x`: 1000, `y`: 999"),
        ({"x": X[:0]}, "there are no rows"),
        ({}, "holds no arrays"),
        ({"": Y}, "non-empty string"),
        ({f"a{i}": Y for i in range(201)}, "201 arrays; a folder can have at most 200.*columns="),
    ],
)
def test_what_is_refused(path, data, words):
    with pytest.raises((InvalidValueError, InvalidTypeError), match=words):
        write_folder(path, data)
    assert not path.exists()
    assert not path.with_name("rows.partial").exists()


def test_wrong_options(path):
    with pytest.raises(InvalidValueError, match="`dtype` must be 'float32'"):
        write_folder(path, X, dtype="int8")
    with pytest.raises(InvalidValueError, match="`memory` must be at least 1"):
        write_folder(path, X, memory=0)
    with pytest.raises(InvalidValueError, match="`seed` must be at least 0"):
        write_folder(path, X, seed=-1)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"y": Y}, r"change from \['x'\] to \['y'\] at row 1000"),
        ({"x": X[:, :2]}, r"change shape from \(3,\) to \(2,\) at row 1000"),
        ({"x": X.astype(np.int32)}, "changes from float32 to int32 at row 1000"),
    ],
)
def test_chunks_that_do_not_fit(path, second, words):
    with pytest.raises(InvalidValueError, match=words), FolderWriter(path) as writer:
        writer.append({"x": X})
        writer.append(second)
    assert not path.exists()


def test_odd_names_get_plain_files(path):
    arrays = {"x": Y, "X": Y + 1, "sepal length (cm)": Y + 2, "../up": Y + 3, "array.1": Y + 4}
    source = write_folder(path, arrays, shuffle=False)
    assert len({entry.file.casefold() for entry in source.header.arrays.values()}) == 5
    for name, array in source.read(0, N).items():
        np.testing.assert_array_equal(array, arrays[name])
    assert all("/" not in entry.file for entry in source.header.arrays.values())


# ------------------------------------------------------------------------- replacing and being interrupted


def test_an_existing_folder_is_kept_unless_told_otherwise(path):
    write_folder(path, X)
    with pytest.raises(InvalidValueError, match=r"exists already. Pass overwrite=True"):
        write_folder(path, X + 1)
    source = write_folder(path, {"z": Y}, overwrite=True)
    assert list(source.row_spec) == ["z"]
    assert sorted(os.listdir(path.parent)) == ["rows"]


def test_only_data_folders_are_deleted(path):
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")
    with pytest.raises(InvalidValueError, match="is not a scirocco data folder, so it is not deleted"):
        write_folder(path, X, overwrite=True)
    (path / "thesis.tex").unlink()
    path.rmdir()
    write_folder(path, X)
    (path / "thesis.tex").write_text("years of work")
    with pytest.raises(InvalidValueError, match=r"also holds `thesis.tex`"):
        write_folder(path, X, overwrite=True)
    assert (path / "thesis.tex").exists()


def test_an_old_folder_stays_until_the_new_one_is_whole(path):
    write_folder(path, X, shuffle=False)
    with pytest.raises(InvalidValueError, match="NaN"):
        write_folder(path, np.full(3, np.nan), overwrite=True)
    np.testing.assert_array_equal(FolderSource(path).read(0, N), X)


def test_an_interrupted_conversion_leaves_nothing_in_the_way(path):
    writer = FolderWriter(path, memory=1000)
    writer.append({"y": Y})  # killed here: nobody finishes or abandons it
    del writer
    assert not path.exists()
    partial = path.with_name("rows.partial")
    assert len(os.listdir(partial)) > 10
    rows = write_folder(path, {"x": X, "y": Y}, memory=1000).read(0, N + 1)
    np.testing.assert_array_equal(np.sort(rows["y"]), Y)
    same_rows(rows, rows["y"])
    assert sorted(os.listdir(path)) == [HEADER, STAMP_NAME, "x.npy", "y.npy"]
    assert sorted(os.listdir(path.parent)) == ["rows"]


def test_a_partial_folder_of_somebody_else_is_kept(path):
    partial = path.with_name("rows.partial")
    partial.mkdir()
    (partial / "mine").write_text("x")
    with pytest.raises(InvalidValueError, match="is not from an interrupted conversion"):
        write_folder(path, X)
    assert (partial / "mine").exists()


def test_an_interrupt_inside_the_block_removes_the_parts(path):
    with pytest.raises(KeyboardInterrupt), FolderWriter(path) as writer:
        writer.append({"y": Y})
        raise KeyboardInterrupt
    assert not os.listdir(path.parent)


def test_the_description(path):
    text = describe_folder(write_folder(path, {"x": X, "y": Y}, seed=3))
    assert "1,000 rows" in text
    assert "shuffled with seed 3" in text
    assert "x: float32, 1,000 × 3" in text
    assert str(path) in text
    with pytest.raises(InvalidTypeError, match="only data folders"):
        describe_folder(X)
