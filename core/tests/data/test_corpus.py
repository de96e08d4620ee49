"""Sparse corpora: padded and unpadded rows agree with the dense matrix, in memory and on disk."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from scirocco.data.native.corpus import CorpusSource, write_corpus
from scirocco.data.native.folder import FolderSource, describe_folder, open_folder, write_folder
from scirocco.errors import DataChangedError, InvalidTypeError, InvalidValueError

pytestmark = pytest.mark.unit

N, V = 60, 25
DENSE = np.random.default_rng(0).poisson(0.2, size=(N, V)).astype(np.int32)
DENSE[7] = 0  # an empty document
DENSE[11] = 1  # the longest
MATRIX = sp.csr_array(DENSE)


@pytest.fixture(params=["memory", "mapped", "unmapped"])
def corpus(request, tmp_path):
    if request.param == "memory":
        return CorpusSource(MATRIX)
    write_corpus(tmp_path / "corpus", MATRIX, shuffle=False)
    return CorpusSource(tmp_path / "corpus", map_limit=1 << 30 if request.param == "mapped" else 0)


def dense(rows):
    out = np.zeros((len(rows["index"]), V), rows["count"].dtype)
    np.add.at(out, (np.arange(len(out))[:, None], rows["index"]), rows["count"])
    return out


def test_a_corpus_knows_its_rows(corpus):
    assert corpus.num_rows == N
    assert corpus.vocabulary_size == V
    assert corpus.longest_row == V
    assert corpus.num_entries == MATRIX.nnz
    assert corpus.nbytes == 8 * (N + 1) + 8 * MATRIX.nnz
    assert corpus.row_spec == {
        "index": jax.ShapeDtypeStruct((V,), np.int32),
        "count": jax.ShapeDtypeStruct((V,), np.int32),
    }


def test_take_and_read(corpus, seed):
    order = np.random.default_rng(seed).integers(0, N, 200)
    rows = corpus.take(order)
    np.testing.assert_array_equal(dense(rows), DENSE[order])
    padding = np.arange(V) >= (DENSE[order] > 0).sum(axis=1)[:, None]
    assert not rows["index"][padding].any()
    assert not rows["count"][padding].any()
    assert (rows["count"][~padding] > 0).all()
    np.testing.assert_array_equal(dense(corpus.read(3, 20)), DENSE[3:20])
    np.testing.assert_array_equal(dense(corpus.read(50, 99)), DENSE[50:])
    assert corpus.take([])["index"].shape == (0, V)
    assert corpus.read(5, 5)["count"].shape == (0, V)


def test_rows_without_padding(corpus, seed):
    order = np.random.default_rng(seed).integers(0, N, 200)
    indptr, indices, counts = corpus.take_csr(order)
    np.testing.assert_array_equal(sp.csr_array((counts, indices, indptr), shape=(200, V)).toarray(), DENSE[order])
    indptr, indices, counts = corpus.take_csr([7])
    assert indptr.tolist() == [0, 0]
    assert len(indices) == len(counts) == 0


def test_out_is_filled_in_place(corpus):
    out = {"index": np.full((2, V), 9, np.int32), "count": np.full((2, V), 9, np.int32)}
    assert corpus.take([7, 3], out)["index"] is out["index"]
    np.testing.assert_array_equal(dense(out), DENSE[[7, 3]])
    corpus.read(6, 8, out=out)
    np.testing.assert_array_equal(dense(out), DENSE[6:8])
    with pytest.raises(InvalidValueError, match="`out` of `index` must have shape"):
        corpus.take([1], out)


def test_rows_that_do_not_exist(corpus):
    with pytest.raises(InvalidValueError, match=r"row 60 \(entry 1"):
        corpus.take([0, 60])
    with pytest.raises(InvalidValueError, match="row -1"):
        corpus.take_csr([-1])


def test_a_pickle(corpus):
    copy = pickle.loads(pickle.dumps(corpus))
    np.testing.assert_array_equal(dense(copy.read(0, N)), DENSE)
    assert copy.fingerprint() == corpus.fingerprint()


def test_threads(corpus):
    problems = []

    def work(number):
        rng = np.random.default_rng(number)
        for _ in range(100):
            order = rng.integers(0, N, 10)
            if (dense(corpus.take(order)) != DENSE[order]).any():
                problems.append(order)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csc_array, sp.coo_matrix, sp.csr_array])
@pytest.mark.parametrize(
    ("dtype", "stored"),
    [("int64", "int32"), ("float64", "float32"), ("uint8", "uint8"), ("bool", "int32"), ("uint64", "int32")],
)
def test_formats_and_dtypes(make, dtype, stored):
    corpus = CorpusSource(make(DENSE.astype(dtype)))
    assert corpus.row_spec["count"].dtype == stored
    np.testing.assert_array_equal(dense(corpus.read(0, N)), DENSE.astype(dtype))


def test_duplicates_are_summed_and_zeros_dropped():
    matrix = sp.csr_array((np.array([1, 2, 0, 4]), np.array([3, 3, 1, 0]), np.array([0, 3, 4])), shape=(2, 5))
    corpus = CorpusSource(matrix)
    assert corpus.longest_row == 1
    assert corpus.take([0, 1])["index"].tolist() == [[3], [0]]
    assert corpus.take([0, 1])["count"].tolist() == [[3], [4]]
    assert matrix.nnz == 4  # the caller's matrix is left alone


def _broken_index(value):
    matrix = MATRIX.copy()
    matrix.indices = matrix.indices.copy()
    matrix.indices[5] = value
    return matrix


def _count(value, document=13):
    counts = DENSE.astype(float)
    counts[document, 2] = value
    return sp.csr_array(counts)


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (_count(-1.0), "document 13 .*negative count"),
        (_count(np.nan), "document 13 .*NaN or infinite"),
        (_count(np.inf), "document 13 .*NaN or infinite"),
        (_broken_index(V), "row .*column index 25; with 25 columns they are 0..24"),
        (_broken_index(-1), "column index -1"),
        (sp.csr_array((0, 5)), "empty: 0 documents"),
        (sp.csr_array((5, 5)), "empty: 5 documents with 0 entries"),
        (sp.csr_array((np.zeros(1), np.zeros(1, int), np.array([0, 1])), shape=(1, 2)), "all counts are 0"),
        (sp.csr_array(DENSE.astype(complex)), "complex"),
        (_count(1e39), "beyond the range of float32"),
        (DENSE, "got ndarray. Wrap dense counts with scipy.sparse.csr_array"),
    ],
)
def test_what_is_refused(tmp_path, matrix, words):
    with pytest.raises((InvalidValueError, InvalidTypeError), match=words):
        CorpusSource(matrix)
    with pytest.raises((InvalidValueError, InvalidTypeError), match=words):
        write_corpus(tmp_path / "corpus", matrix)
    assert not os.listdir(tmp_path)


def test_shuffling_permutes_documents(tmp_path, seed):
    counts = DENSE.copy()
    counts[:, 0] = np.arange(1, N + 1)  # every document carries its number
    source = write_corpus(tmp_path / "a", sp.csr_array(counts), seed=seed)
    rows = dense(source.read(0, N))
    assert source.shuffled
    order = rows[:, 0] - 1
    np.testing.assert_array_equal(np.sort(order), np.arange(N))
    np.testing.assert_array_equal(rows, counts[order])
    assert (order != np.arange(N)).mean() > 0.8
    again = write_corpus(tmp_path / "b", sp.csr_array(counts), seed=seed)
    np.testing.assert_array_equal(dense(again.read(0, N)), rows)
    other = write_corpus(tmp_path / "c", sp.csr_array(counts), seed=seed + 1)
    assert (dense(other.read(0, N)) != rows).any()


def test_the_folder_is_opened_by_what_it_holds(tmp_path):
    write_corpus(tmp_path / "corpus", MATRIX)
    write_folder(tmp_path / "rows", DENSE)
    assert isinstance(open_folder(tmp_path / "corpus"), CorpusSource)
    assert isinstance(open_folder(tmp_path / "rows"), FolderSource)
    with pytest.raises(InvalidValueError, match=r"not a corpus. Use sc.data.open"):
        CorpusSource(tmp_path / "rows")
    with pytest.raises(InvalidValueError, match=r"holds a corpus.*sc.data.open"):
        FolderSource(tmp_path / "corpus")
    assert "vocabulary size: 25" in describe_folder(open_folder(tmp_path / "corpus"))


def test_overwriting(tmp_path):
    write_corpus(tmp_path / "corpus", MATRIX)
    with pytest.raises(InvalidValueError, match="exists already"):
        write_corpus(tmp_path / "corpus", MATRIX)
    assert write_corpus(tmp_path / "corpus", MATRIX[:5], overwrite=True).num_rows == 5


@pytest.mark.parametrize("map_limit", [0, 1 << 30])
def test_change_and_damage(tmp_path, map_limit):
    write_corpus(tmp_path / "corpus", MATRIX, shuffle=False)
    source = CorpusSource(tmp_path / "corpus", map_limit=map_limit)
    source.verify()
    before = source.stamp()
    with open(tmp_path / "corpus" / "counts.npy", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    os.utime(tmp_path / "corpus" / "counts.npy", ns=(1, 1))
    assert source.stamp() != before
    with pytest.raises(InvalidValueError, match=r"`counts.npy`"):
        source.verify()
    with open(tmp_path / "corpus" / "indices.npy", "r+b") as file:
        file.truncate(200)
    for call in (lambda: source.take([N - 1]), lambda: source.read(0, N)):
        with pytest.raises(DataChangedError, match=r"`indices.npy` has shrunk"):
            call()


def test_the_fingerprint_of_a_matrix_in_memory():
    assert CorpusSource(MATRIX).fingerprint() == CorpusSource(MATRIX.copy()).fingerprint()
    assert CorpusSource(MATRIX).fingerprint() != CorpusSource(MATRIX * 2).fingerprint()


@pytest.mark.process
def test_scipy_is_imported_only_when_needed():
    code = (
        "import sys; sys.modules['scipy.sparse'] = None\n"
        "import scirocco.data.native.corpus, scirocco.data.formats.conversion\n"
        "from scirocco.errors import MissingExtraError\n"
        "try: scirocco.data.native.corpus.CorpusSource(1)\n"
        "except MissingExtraError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "a corpus in memory needs the package `scipy`" in done.stdout, done.stderr
