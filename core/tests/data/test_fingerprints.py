"""Fingerprints of data: every byte counts; folders are read again when their files look changed, or on request."""

import os
import shutil
import time

import numpy as np
import pytest
import scipy.sparse as sp

import scirocco as sc
from scirocco.data import as_source
from scirocco.data.native import header
from scirocco.data.sizes import READING
from scirocco.errors import InvalidValueError, SciroccoError

pytestmark = pytest.mark.unit


def large(seed=0):
    """Rows of more than one block, and several threads' worth of them."""
    return {"x": np.random.default_rng(seed).standard_normal((2**18, 70)).astype(np.float32)}


def test_every_row_counts():
    rng = np.random.default_rng(1)
    for shape in ((1_000, 3), (400_000, 3), (10, 300_000)):
        x = rng.standard_normal(shape).astype(np.float32)
        known = as_source(x).fingerprint()
        for _ in range(3):
            place = tuple(rng.integers(0, size) for size in shape)
            was, x[place] = x[place], -x[place]
            assert as_source(x).fingerprint() != known
            x[place] = was
        assert as_source(x).fingerprint() == known == as_source(np.asfortranarray(x)).fingerprint()


def test_threads_make_no_difference(changed):
    source = large()
    many = as_source(source).fingerprint()
    changed(READING, threaded_blocks=10**9)
    assert as_source(source).fingerprint() == many


def test_every_count_of_a_corpus_counts():
    matrix = sp.random_array((500, 200), density=0.1, rng=np.random.default_rng(2))
    matrix.data[:] = 1 + np.arange(matrix.nnz) % 5
    matrix = matrix.tocsr()
    known = sc.data.CorpusSource(matrix).fingerprint()
    other = matrix.copy()
    other.data[1_234] += 1
    assert sc.data.CorpusSource(other).fingerprint() != known == sc.data.CorpusSource(matrix).fingerprint()


@pytest.fixture
def folder(tmp_path):
    rows = {"x": np.arange(30_000, dtype=np.float32).reshape(10_000, 3)}
    return sc.data.write(tmp_path / "rows", rows, shuffle=False).path


def edit(folder, keep_time=False):
    file = folder / "x.npy"
    status = os.stat(file)
    time.sleep(0.02)  # file systems count milliseconds
    with open(file, "r+b") as opened:
        opened.seek(-1_000, os.SEEK_END)
        opened.write(b"\1")
    if keep_time:
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))


@pytest.mark.parametrize("keep_time", [False, True])
def test_a_folder_that_was_edited_in_place(folder, keep_time):
    """Also when its size and its modification time are as before."""
    known = sc.data.open(folder).fingerprint()
    edit(folder, keep_time)
    with pytest.raises(InvalidValueError, match=r"`x.npy` in .* was changed after writing"):
        sc.data.open(folder).fingerprint()
    assert len(known) == 16


@pytest.fixture
def without_a_trace(monkeypatch):
    """From the call on, what happens to a file does not show in its size and times."""

    def begin(folder):
        before, look = {os.fspath(path): os.stat(path) for path in folder.glob("*.npy")}, os.stat
        monkeypatch.setattr(os, "stat", lambda path, **how: before.get(os.fspath(path)) or look(path, **how))

    return begin


def test_files_are_read_again_only_if_they_look_changed(folder, without_a_trace, tmp_path):
    """A copy has other times, so it is read and that is noted, in the folder and in the process."""
    known, copy = sc.data.open(folder).fingerprint(), tmp_path / "copy"
    shutil.copytree(folder, copy, copy_function=shutil.copyfile)
    noted = (copy / header.STAMP_NAME).read_text()
    assert sc.data.open(copy).fingerprint() == known
    assert (copy / header.STAMP_NAME).read_text() != noted
    without_a_trace(copy)
    edit(copy)
    assert sc.data.open(copy).fingerprint() == known, "it was read again"
    (copy / header.STAMP_NAME).unlink()
    assert sc.data.open(copy).fingerprint() == known, "it was read again"
    header.VERIFIED.clear()
    with pytest.raises(InvalidValueError, match="was changed after writing"):
        sc.data.open(copy).fingerprint()


def test_verifying_does_not_trust_times(folder, without_a_trace):
    sc.data.open(folder).fingerprint()
    without_a_trace(folder)
    edit(folder)
    sc.data.open(folder).fingerprint()
    with pytest.raises(InvalidValueError, match="was changed after writing"):
        sc.data.open(folder).verify()


def test_a_folder_can_still_be_replaced(folder):
    assert (folder / header.STAMP_NAME).exists()
    sc.data.write(folder, {"x": np.ones((5, 2), np.float32)}, overwrite=True)
    assert sc.data.open(folder).num_rows == 5


@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied", "removed", "swapped"])
def test_damaged_files_of_a_folder(tmp_path, damage):
    """Opening or verifying fails, or (in the header) the fingerprint is another one; the stamp is written again."""
    rows = {"x": np.arange(3_000, dtype=np.float32), "y": np.arange(3_000, dtype=np.float32)[::-1]}
    folder = sc.data.write(tmp_path / "rows", rows).path
    known = sc.data.open(folder).fingerprint()
    files = sorted(path for path in folder.iterdir())
    for number, file in enumerate(files):
        other = files[number - 1]
        raw, others = file.read_bytes(), other.read_bytes()
        if damage == "removed":
            file.unlink()
        elif damage == "swapped":
            file.write_bytes(others)
            other.write_bytes(raw)
        else:
            place = len(raw) // 2
            flipped = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
            file.write_bytes({"flipped": flipped, "cut": raw[:place], "emptied": b""}[damage])
        try:
            source = sc.data.open(folder)
            source.verify()
            found = source.fingerprint()
        except SciroccoError as error:
            found = str(error)
        assert (found == known) == (file.name == header.STAMP_NAME and damage != "swapped"), (file, found)
        file.write_bytes(raw)
        other.write_bytes(others)
