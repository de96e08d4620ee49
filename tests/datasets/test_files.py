"""Where data sets are looked for, in which order, and what is said of those that are missing or damaged."""

import hashlib
import os

import numpy as np
import pytest

import scirocco as sc
from scirocco import errors
from scirocco.datasets import corpora, files
from scirocco.datasets.files import Entry, File

WORDS = b"ant\nbee\ncat\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache of this test's own, and no variable; returns the cache's folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(files.VARIABLE, raising=False)
    return tmp_path / "cache" / "scirocco" / "data"


@pytest.fixture
def tiny(tmp_path):
    """A data set of 3 documents and 3 words, with its files in `origin`."""
    origin = tmp_path / "origin"
    origin.mkdir()
    indptr, indices = np.array([0, 2, 2, 3], np.int32), np.array([0, 2, 1], np.uint16)
    np.savez(origin / "tiny.npz", indptr=indptr, indices=indices, counts=np.array([4, 1, 2], np.uint16))
    (origin / "words.txt").write_bytes(WORDS)
    listed = [file_of(origin / name) for name in ("tiny.npz", "words.txt")]
    return Entry("tiny", tuple(listed), "a field", "Counted by hand.", "none needed."), origin


def file_of(path, address=None):
    content = path.read_bytes()
    return File(path.name, hashlib.sha256(content).hexdigest(), len(content), address)


def put(origin, folder):
    folder.mkdir(parents=True)
    for path in origin.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.mark.parametrize("inner", ["tiny", ""])
def test_a_given_folder_the_variable_and_the_cache(inner, tiny, tmp_path, monkeypatch, cache):
    """Each alone is enough, and they go in this order; files may lie in a folder of the data set's name."""
    entry, origin = tiny
    put(origin, cache / inner)
    assert files.find(entry)["tiny.npz"] == cache / inner / "tiny.npz"
    put(origin, tmp_path / "named" / inner)
    monkeypatch.setenv(files.VARIABLE, str(tmp_path / "named"))
    assert files.find(entry)["tiny.npz"] == tmp_path / "named" / inner / "tiny.npz"
    put(origin, tmp_path / "given" / inner)
    found = files.find(entry, tmp_path / "given")
    assert found == {name: tmp_path / "given" / inner / name for name in ("tiny.npz", "words.txt")}


def test_what_the_named_folder_lacks_may_be_in_the_cache(tiny, tmp_path, monkeypatch, cache):
    entry, origin = tiny
    (tmp_path / "named").mkdir()
    monkeypatch.setenv(files.VARIABLE, str(tmp_path / "named"))
    put(origin, cache / "tiny")
    assert files.find(entry)["words.txt"] == cache / "tiny" / "words.txt"
    with pytest.raises(errors.InvalidValueError, match="not where it was looked for"):
        files.find(entry, tmp_path / "named")


def test_the_cache_without_its_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative/folder"):  # the standard says: not absolute, not valid
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert files.cache_folder() == tmp_path / ".cache" / "scirocco" / "data"


def test_a_corpus_is_read(tiny):
    entry, origin = tiny
    data = corpora._corpus(entry, origin, 0)
    np.testing.assert_array_equal(data.matrix.toarray(), [[4, 0, 1], [0, 0, 0], [0, 2, 0]])
    assert data.matrix.dtype == np.int32 and data.vocabulary == ("ant", "bee", "cat")
    assert data.source.startswith("tiny: a field. Licence: none needed. Read from ")
    np.testing.assert_array_equal(corpora._corpus(entry, origin, 2).matrix.toarray(), [[4, 0, 1], [0, 2, 0]])
    with pytest.raises(errors.InvalidValueError, match="no document of `tiny` has 6 tokens"):
        corpora._corpus(entry, origin, 6)
    with pytest.raises(errors.InvalidTypeError, match="`min_tokens`"):
        corpora._corpus(entry, origin, 1.5)


def test_missing_files_are_described(tiny, tmp_path, cache):
    entry, _ = tiny
    with pytest.raises(errors.InvalidValueError) as caught:
        files.find(entry)
    for words in (
        str(cache / "tiny"),
        "tiny.npz",
        entry.files[0].sha256,
        "a field",
        "Counted by hand",
        "--data",
    ):
        assert words in str(caught.value)


@pytest.mark.parametrize("what", ["nowhere", "file"])
def test_folders_that_are_none(what, tiny, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    state = "is not a folder" if what == "file" else "does not exist"
    with pytest.raises(errors.InvalidValueError, match=f"`folder` says .*{what}, which {state}"):
        files.find(tiny[0], tmp_path / what)
    monkeypatch.setenv(files.VARIABLE, str(tmp_path / what))
    with pytest.raises(errors.InvalidValueError, match=f"SCIROCCO_DATA says .*{what}, which {state}"):
        files.find(tiny[0])
    with pytest.raises(errors.InvalidTypeError, match="`folder` must be a path, got int"):
        files.find(tiny[0], 3)


def test_a_damaged_file_is_refused_also_after_a_good_one(tiny):
    entry, origin = tiny
    files.find(entry, origin)
    (origin / "words.txt").write_bytes(WORDS.replace(b"bee", b"bug"))
    with pytest.raises(
        errors.InvalidValueError, match=r"words\.txt is damaged or another version: its sha256"
    ):
        files.find(entry, origin)


def test_a_file_is_hashed_once_for_each_state(tiny, monkeypatch, cache):
    entry, origin = tiny
    hashed = []
    monkeypatch.setattr(files, "sha256", lambda path: hashed.append(path.name) or real(path))
    files.find(entry, origin)
    files.find(entry, origin)
    assert hashed == ["tiny.npz", "words.txt"]
    os.utime(origin / "tiny.npz", ns=(0, 0))
    files.find(entry, origin)
    assert hashed == ["tiny.npz", "words.txt", "tiny.npz"]
    (cache / "checked.json").write_text("{")  # a broken memory is no memory
    files.find(entry, origin)
    assert len(hashed) == 5
    assert sorted(path.name for path in cache.iterdir()) == ["checked.json"]


real = files.sha256


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tiny, monkeypatch, tmp_path):
    entry, origin = tiny
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(files.find(entry, origin)) == 2


def test_download(tiny, cache):
    _, origin = tiny
    address = (origin / "words.txt").as_uri()
    known = Entry("tiny", (file_of(origin / "words.txt", address),), "", "", "")
    assert files.find(known)["words.txt"] == cache / "tiny" / "words.txt"
    assert (cache / "tiny" / "words.txt").read_bytes() == WORDS
    (cache / "tiny" / "words.txt").unlink()
    (origin / "words.txt").write_bytes(b"other")
    with pytest.raises(errors.InvalidValueError, match=r"sent for words\.txt .* Nothing was kept"):
        files.find(known)
    (origin / "words.txt").unlink()
    with pytest.raises(errors.InvalidValueError, match="could not be downloaded from file:"):
        files.find(known)
    assert list((cache / "tiny").iterdir()) == []
    with pytest.raises(errors.InvalidValueError, match="not where it was looked for"):
        files.find(known, origin)  # a folder that is given is the only place


def test_the_front_door():
    assert sc.datasets.wikipedia is corpora.wikipedia
    with pytest.raises(errors.InvalidValueError, match="`vocabulary` must be one of 'top20k', 'dictnostops'"):
        sc.datasets.newsgroups20(vocabulary="all")
