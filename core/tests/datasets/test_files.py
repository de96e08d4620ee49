"""Where data sets are looked for, in which order, and what is said of those that are missing or damaged."""

import functools
import gzip
import hashlib
import http.server
import threading
import zipfile

import numpy as np
import pytest

import scirocco as sc
from scirocco import errors
from scirocco.datasets import classification, corpora, files, relations
from scirocco.datasets.files import Entry, File
from shared_data import data_folder

pytestmark = pytest.mark.unit

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


def file_of(path):
    content = path.read_bytes()
    return File(path.name, hashlib.sha256(content).hexdigest(), len(content))


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
    with pytest.raises(errors.InvalidValueError, match="was not found"):
        files.find(entry, tmp_path / "named")


def test_the_cache_without_its_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative/folder"):  # the standard says: not absolute, not valid
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert files.cache_folder() == tmp_path / ".cache" / "scirocco" / "data"


def test_a_corpus_is_read(tiny):
    entry, origin = tiny
    data = corpora.read_counts(entry, origin, 0)
    np.testing.assert_array_equal(data.matrix.toarray(), [[4, 0, 1], [0, 0, 0], [0, 2, 0]])
    assert data.matrix.dtype == np.int32 and data.vocabulary == ("ant", "bee", "cat")
    assert data.source.startswith("tiny: a field. Licence: none needed. Read from ")
    np.testing.assert_array_equal(corpora.read_counts(entry, origin, 2).matrix.toarray(), [[4, 0, 1], [0, 2, 0]])
    with pytest.raises(errors.InvalidValueError, match="no document of `tiny` has 6 tokens"):
        corpora.read_counts(entry, origin, 6)
    with pytest.raises(errors.InvalidTypeError, match="`min_tokens`"):
        corpora.read_counts(entry, origin, 1.5)


def test_missing_files_are_described(tiny, tmp_path, cache):
    entry, _ = tiny
    with pytest.raises(errors.InvalidValueError) as caught:
        files.find(entry)
    for words in (str(cache / "tiny"), "tiny.npz", entry.files[0].sha256, "a field", "Counted by hand", "--data"):
        assert words in str(caught.value)


@pytest.mark.parametrize("what", ["nowhere", "file"])
def test_folders_that_are_none(what, tiny, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    state = "is not a folder" if what == "file" else "does not exist"
    with pytest.raises(errors.InvalidValueError, match=f"`folder` is .*{what}, which {state}"):
        files.find(tiny[0], tmp_path / what)
    monkeypatch.setenv(files.VARIABLE, str(tmp_path / what))
    with pytest.raises(errors.InvalidValueError, match=f"SCIROCCO_DATA is .*{what}, which {state}"):
        files.find(tiny[0])
    with pytest.raises(errors.InvalidTypeError, match="`folder` must be a path, got int"):
        files.find(tiny[0], 3)


def test_a_damaged_file_is_refused_also_after_a_good_one(tiny):
    entry, origin = tiny
    files.find(entry, origin)
    (origin / "words.txt").write_bytes(WORDS.replace(b"bee", b"bug"))
    with pytest.raises(errors.InvalidValueError, match=r"words\.txt is damaged or another version: its sha256"):
        files.find(entry, origin)


@pytest.fixture
def served(tmp_path):
    """A folder that is served on loopback; returns it and its address."""
    pytest.importorskip("pooch", reason="downloads need pooch (the extra `data`)")
    root = tmp_path / "served"
    root.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(root))
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield root, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _doubled(paths):
    return {"numbers": np.loadtxt(paths[0]) * 2}


def _made_entry(root, address, content=None, checksum=None):
    (root / "numbers.txt").write_text("1 2 3\n")
    right = "sha256:" + hashlib.sha256(b"1 2 3\n").hexdigest()
    original = files.Original("numbers.txt", f"{address}/numbers.txt", checksum or right)
    content = content or files.digest({"numbers": np.array([2.0, 4.0, 6.0])})
    recipe = files.DownloadRecipe((original,), _doubled, content)
    return Entry("tiny", (File("tiny.npz", "0" * 64, 1),), "a field", "Doubled.", "be kind.", recipe)


def test_a_data_set_is_made_from_its_public_source_once(served, cache, capsys):
    root, address = served
    entry = _made_entry(root, address)
    assert files.state(entry) == "no"
    path = files.find(entry)["tiny.npz"]
    assert path == cache / "tiny" / "tiny-made.npz"
    np.testing.assert_array_equal(np.load(path)["numbers"], [2.0, 4.0, 6.0])
    assert "be kind." in capsys.readouterr().err
    (root / "numbers.txt").unlink()
    assert files.find(entry)["tiny.npz"] == path and files.state(entry) == "yes"
    assert capsys.readouterr().err == ""
    with pytest.raises(errors.InvalidValueError, match="was not found"):
        files.find(entry, root)  # a folder that is given is the only place


def test_downloads_that_are_not_what_they_should_be(served, cache):
    root, address = served
    with pytest.raises(errors.InvalidValueError, match=r"sent for numbers\.txt .* Nothing was kept"):
        files.find(_made_entry(root, address, checksum="md5:" + "0" * 32))
    with pytest.raises(errors.InvalidValueError, match="the public source has changed"):
        files.find(_made_entry(root, address, content="0" * 64))
    entry = _made_entry(root, address)
    (cache / "tiny" / "numbers.txt").unlink()
    (root / "numbers.txt").unlink()
    with pytest.raises(errors.InvalidValueError, match="could not be downloaded from http://127"):
        files.find(entry)
    assert not list(cache.rglob("*.npz"))


def test_mnist_is_read_from_its_original_files(tmp_path):
    images = np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28)
    labels = np.array([3, 7], np.uint8)
    paths = []
    for number, array in enumerate((images, labels, images, labels)):
        head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
        paths.append(tmp_path / f"{number}.gz")
        paths[-1].write_bytes(gzip.compress(head + array.tobytes()))
    made = classification.make_mnist(paths)
    np.testing.assert_array_equal(made["x_train"], images)
    np.testing.assert_array_equal(made["y_test"], labels)


def test_covertype_is_read_from_its_original_file(tmp_path):
    rows = np.zeros((3, 55), int)
    rows[:, :10] = np.arange(30).reshape(3, 10) - 5
    rows[[0, 1, 2], [10, 13, 11]] = 1
    rows[[0, 1, 2], [14, 53, 20]] = 1
    rows[:, 54] = [2, 7, 1]
    text = "\n".join(",".join(map(str, row)) for row in rows)
    (tmp_path / "covtype.data.gz").write_bytes(gzip.compress(text.encode()))
    made = classification.make_covertype([tmp_path / "covtype.data.gz"])
    np.testing.assert_array_equal(made["quantT"].T, rows[:, :10])
    assert made["wilderness"].tolist() == [0, 3, 1] and made["soil"].tolist() == [0, 39, 6]
    assert made["cover_type"].tolist() == [2, 7, 1]


def test_movielens_is_read_from_its_archive(tmp_path):
    genres = ["unknown", "Action"]
    with zipfile.ZipFile(tmp_path / "ml-100k.zip", "w") as archive:
        rows = ["2\t1\t5\t100", "1\t2\t3\t200", "1\t1\t4\t300"]
        archive.writestr("ml-100k/u.data", "\n".join(rows) + "\n")
        for k in range(1, 6):
            archive.writestr(f"ml-100k/u{k}.test", rows[k % 3] + "\n" if k < 4 else rows[0] + "\n")
        archive.writestr("ml-100k/ua.test", rows[1])
        archive.writestr("ml-100k/ub.test", rows[2])
        films = ["1|Cit\xe9 (1995)|01-Jan-1995||x|0|1", "2|B (1996)|||x|1|0"]
        archive.writestr("ml-100k/u.item", "\n".join(films).encode("latin-1"))
        archive.writestr("ml-100k/u.user", "1|24|M|technician|85711\n2|53|F|other|94043\n")
        archive.writestr("ml-100k/u.genre", "".join(f"{g}|{n}\n" for n, g in enumerate(genres)) + "\n")
    made = relations.make_movielens100k([tmp_path / "ml-100k.zip"])
    assert made["user"].tolist() == [2, 1, 1] and made["rating"].tolist() == [5, 3, 4]
    assert made["ua_test"].tolist() == [False, True, False] and made["fold"].tolist() == [5, 1, 2]
    assert made["item_title"][0] == "Cité (1995)" and made["genre_names"].tolist() == genres
    assert made["item_genre"].tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("name", ["covertype", "movielens100k", "mnist"])
def test_recipes_make_what_the_loaders_read(name):
    """The digest that a download must have is that of the file at hand."""
    entry = sc.datasets.ENTRIES[name]
    with np.load(data_folder(name) / name / f"{name}.npz") as stored:
        assert files.digest({key: stored[key] for key in stored}) == entry.recipe.content


def test_load_names_and_the_licence_once(capsys):
    sc.datasets.TOLD.discard("msweb")
    for _ in range(2):
        sc.datasets.load("msweb", data_folder("msweb"))
    assert capsys.readouterr().err.count("donated to UCI") == 1
    with pytest.raises(errors.InvalidValueError, match="Did you mean `covertype`"):
        sc.datasets.load("covtype")


def test_the_front_door():
    assert sc.datasets.wikipedia is corpora.wikipedia
    with pytest.raises(errors.InvalidValueError, match="`vocabulary` must be one of 'top20k', 'dictnostops'"):
        sc.datasets.newsgroups20(vocabulary="all")
