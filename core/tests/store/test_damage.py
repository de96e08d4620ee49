"""Damaged and hostile folders: each is refused with the file's name and what can be saved, and nothing in it is run."""

import io
import json
import os
import pickle
import zipfile
import zlib

import numpy as np
import pytest

from scirocco.errors import InvalidValueError, StoreError
from scirocco.store import Store, Stored, files, open_stored
from store import truth

pytestmark = pytest.mark.unit


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    with truth.create(path) as store:
        truth.go_on(store, 2_000)
    return path


def rewrite(path, change):
    """Change a document as someone would who knows how the checksum is made."""
    content = json.loads(path.read_text())["content"]
    change(content)
    files.write_document(str(path), content)


DAMAGES = {
    "empty": lambda raw: b"",
    "cut": lambda raw: raw[: len(raw) // 2],
    "zeros": lambda raw: bytes(len(raw)),
    "not text": lambda raw: b"\xff\xfe" + raw,
    "a list": lambda raw: b"[1, 2]",
    "a digit changed": lambda raw: raw.replace(b"2", b"3", 1) if b"2000" not in raw else raw.replace(b"2000", b"2001"),
    "no content": lambda raw: b'{"crc32": 1}',
    "very deep": lambda raw: b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["commit.json", "run.json"])
def test_damaged_documents(run, name, damage):
    file = run / "scirocco" / name
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    for opening in (Store.open, Stored.open):
        with pytest.raises(StoreError, match=f"{name} is damaged.*open_zarr"):
            opening(run)
    assert not list(run.rglob("*.tmp"))


def test_no_single_flipped_bit_goes_unnoticed(run):
    file = run / "scirocco" / "commit.json"
    raw, wanted = file.read_bytes(), Stored.open(run)
    for place in range(len(raw)):
        file.write_bytes(raw[:place] + bytes([raw[place] ^ (1 << place % 7)]) + raw[place + 1 :])
        try:
            got = Stored.open(run)
        except StoreError:
            continue
        assert got.progress == wanted.progress and got.draws("posterior") == 2_000  # a blank among blanks


def test_a_damaged_run_is_not_overwritten_unseen(run):
    (run / "scirocco" / "run.json").write_text("{")
    with pytest.raises(InvalidValueError, match="nothing in it was touched"):
        truth.create(run, overwrite=True)
    assert (run / "posterior" / "beta" / "c.0.0.0").exists()


def test_a_damaged_commit_does_not_count_as_nothing(run):
    (run / "scirocco" / "commit.json").write_text("{")
    with pytest.raises(InvalidValueError, match=r"holds a run already.*damaged"):
        truth.create(run)
    with truth.create(run, overwrite=True) as store:
        truth.go_on(store, 10)
    assert truth.check(run) == 10


def test_a_missing_chunk(run):
    (run / "posterior" / "layers[0].weight" / "c.0.0.0.0").unlink()
    with pytest.raises(StoreError, match=r"c\.0\.0\.0\.0 is missing.*cannot be resumed.*the 0 draws .* before it"):
        Store.open(run)
    arrays = open_stored(run).arrays["posterior"]
    with pytest.raises(StoreError, match=r"c\.0\.0\.0\.0 is missing"):
        arrays["layers[0].weight"][0, 0]
    np.testing.assert_array_equal(np.asarray(arrays["beta"]), truth.values("posterior", 0, 2_000)["beta"])


def test_a_chunk_of_the_wrong_size_and_what_is_before_it(run):
    with Store.open(run) as store:
        truth.go_on(store, 9_000)
        length = store.groups["posterior"].chunk_draws
    file = run / "posterior" / "beta" / "c.0.1.0"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(StoreError, match=rf"c\.0\.1\.0 has \d+ bytes instead of \d+: .*\[:, :{length}\]"):
        Store.open(run)
    beta = open_stored(run).arrays["posterior"]["beta"]
    with pytest.raises(StoreError, match=rf"c\.0\.1\.0 has .*\[:, :{length}\]"):
        np.asarray(beta)
    np.testing.assert_array_equal(beta[:, :length], truth.values("posterior", 0, length)["beta"])


def test_lost_coordinates_and_documents_are_made_again(run):
    for name in ("draw/c.0", "chain/c.0", "draw/zarr.json", "zarr.json", "beta/zarr.json"):
        (run / "posterior" / name).unlink()
    (run / "zarr.json").unlink()
    assert Stored.open(run).draws("posterior") == 2_000
    truth.check_reopened(run, 2_000)
    assert np.fromfile(run / "posterior/draw/c.0", "<i8")[5] == 5 and (run / "posterior/beta/zarr.json").exists()


@pytest.mark.parametrize("key, value", [("format_version", 2), ("format_version", None), ("format", "something")])
def test_an_unknown_format(run, key, value):
    rewrite(run / "scirocco" / "run.json", lambda content: content.update({key: value}))
    for opening in (Store.open, Stored.open):
        with pytest.raises(StoreError, match=r"run\.json has the format .* reads 'scirocco run', version 1"):
            opening(run)


def _set(*keys_and_value):
    *keys, last, value = keys_and_value

    def change(content):
        for key in keys:
            content = content[key]
        content[last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("groups", "posterior", "variables", 0, "node", "../../../escape"),
        _set("groups", "posterior", "variables", 0, "node", "/etc"),
        _set("groups", "posterior", "variables", 0, "node", "draw"),
        _set("groups", "posterior", "variables", 0, "shape", [-1]),
        _set("groups", "posterior", "variables", 0, "stored_dtype", "object"),
        _set("groups", "posterior", "variables", 0, {}),
        _set("groups", "posterior", "chunk_draws", 0),
        _set("groups", "posterior", "num_chains", "many"),
        _set("groups", "../x", {}),
        _set("groups", "scirocco", {}),
        _set("groups", []),
        _set("record", None),
    ],
)
def test_a_hostile_layout(run, change):
    rewrite(run / "scirocco" / "run.json", change)
    for opening in (Store.open, Stored.open):
        with pytest.raises(StoreError, match=r"run\.json"):
            opening(run)
    with pytest.raises(InvalidValueError, match="nothing in it was touched"):
        truth.create(run, overwrite=True)


@pytest.mark.parametrize(
    "change",
    [
        _set("draws", {"posterior": 2_000}),
        _set("draws", "posterior", -1),
        _set("draws", "posterior", True),
        _set("draws", "posterior", 2.5),
        _set("draws", None),
        _set("state", None),
        _set("progress", None),
        _set("commit", "x"),
    ],
)
def test_a_commit_that_makes_no_sense(run, change):
    rewrite(run / "scirocco" / "commit.json", change)
    for opening in (Store.open, Stored.open):
        with pytest.raises(StoreError, match=r"commit\.json"):
            opening(run)


@pytest.mark.parametrize(
    "name", ["../../victim.npz", "/tmp/victim.npz", "victim.npz", "state-1.npz/../../x", "", None, 3]
)
def test_a_state_outside_the_folder(run, name):
    victim = run.parent / "victim.npz"
    np.savez(victim, x=np.ones(2))
    rewrite(run / "scirocco" / "commit.json", _set("state", "file", name))
    with pytest.raises(StoreError, match=r"commit\.json names the state file"):
        Store.open(run)
    assert victim.exists()


class Malice:
    """What a pickle could do."""

    def __reduce__(self):
        return os.mkdir, (os.environ["SCIROCCO_TEST_MALICE"],)


def _object_npz():
    raw = io.BytesIO()
    np.savez(raw, position=np.array([Malice()], dtype=object))
    return raw.getvalue()


def _pickle_in_zip():
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        archive.writestr("position.npy", pickle.dumps(Malice()))
    return raw.getvalue()


@pytest.mark.parametrize(
    "make", [_object_npz, _pickle_in_zip, lambda: pickle.dumps(Malice()), lambda: b"", lambda: b"PK\x03\x04 no"]
)
def test_no_pickle_is_ever_loaded(run, monkeypatch, make):
    monkeypatch.setenv("SCIROCCO_TEST_MALICE", str(run.parent / "owned"))
    raw = make()
    entry = json.loads((run / "scirocco" / "commit.json").read_text())["content"]["state"]
    (run / "scirocco" / entry["file"]).write_bytes(raw)
    rewrite(run / "scirocco" / "commit.json", _set("state", "crc32", zlib.crc32(raw)))
    with Store.open(run) as store, pytest.raises(StoreError, match=r"does not contain plain arrays.*was not loaded"):
        store.read_state()
    assert not (run.parent / "owned").exists()


def test_a_damaged_or_lost_state(run):
    (file,) = (run / "scirocco").glob("state-*.npz")
    raw = file.read_bytes()
    file.write_bytes(raw[:-30] + b"\0" + raw[-29:])
    with Store.open(run) as store, pytest.raises(StoreError, match=r"state-1\.npz is damaged: its checksum"):
        store.read_state()
    file.unlink()
    with Store.open(run) as store, pytest.raises(StoreError, match=r"state-1\.npz is missing"):
        store.read_state()
    assert truth.check(run) == 2_000


@pytest.mark.parametrize("dtypes", [{"position": "object"}, {"position": "nonsense"}, {"position": "float64"}, [1]])
def test_a_state_of_another_type_than_it_says(run, dtypes):
    rewrite(run / "scirocco" / "commit.json", _set("state", "dtypes", dtypes))
    with Store.open(run) as store:
        if dtypes == [1]:  # names nothing: the arrays are as they are
            assert store.read_state()["position"].dtype == np.float32
            return
        with pytest.raises(StoreError, match="does not contain plain arrays"):
            store.read_state()
