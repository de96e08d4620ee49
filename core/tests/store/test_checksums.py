"""Checksums of draws: no change of a committed byte goes unnoticed, and what is intact can still be read."""

import json
import shutil

import numpy as np
import pytest

from scirocco import cli
from scirocco.errors import StoreError
from scirocco.store import Store, files, open_stored
from store import truth

pytestmark = pytest.mark.unit


@pytest.fixture
def run(tmp_path):
    """Several chunks of each kind; the last is partly filled."""
    with truth.create(tmp_path / "run") as store:
        truth.go_on(store, 2_000)
        truth.go_on(store, 9_000)
    return tmp_path / "run"


def flip(file, place):
    raw = bytearray(file.read_bytes())
    raw[place] ^= 4
    file.write_bytes(raw)


@pytest.mark.parametrize("is_last", [False, True])
def test_a_flipped_bit_is_named(run, is_last):
    length = open_stored(run).groups["posterior"].chunk_draws
    number = 9_000 // length if is_last else 0
    file = run / "posterior" / "beta" / f"c.0.{number}.0"
    flip(file, 12)
    beta = open_stored(run).arrays["posterior"]["beta"]
    first, last = number * length, min(9_000, (number + 1) * length) - 1
    words = rf"c\.0\.{number}\.0: the draws {first:,} to {last:,} of chains 0 to 1 of 'beta' are damaged"
    with pytest.raises(StoreError, match=words):
        beta[:, first]
    with pytest.raises(StoreError, match=words):
        np.asarray(beta)
    if is_last:
        np.testing.assert_array_equal(beta[:, :first], truth.values("posterior", 0, first)["beta"])
        with pytest.raises(StoreError, match=words):  # the buffers of a resumed run begin with it
            Store.open(run)
    assert len(open_stored(run).verify()) == 1


@pytest.mark.rotates(2, "checksums")
def test_every_committed_file_is_verified(run):
    """Flipped, cut, emptied, removed: each is found, in any file but the lock."""
    assert open_stored(run).verify() == []
    for file in sorted(path for path in run.rglob("*") if path.is_file() and path.name != "lock"):
        raw = file.read_bytes()
        for damage in ("flipped", "cut", "emptied", "removed"):
            if damage == "flipped":
                flip(file, 5 if file.name.startswith("c.") else len(raw) // 3)  # the end of a chunk may be unused
            elif damage == "removed":
                file.unlink()
            else:
                file.write_bytes(raw[: len(raw) // 2 if damage == "cut" else 0])
            try:
                found = open_stored(run).verify()
            except Exception as error:
                found = [str(error)]
            assert len(found) == 1 and str(run) in found[0], (file, damage, found)
            file.write_bytes(raw)
    assert open_stored(run).verify() == []


def test_chunks_of_another_run_are_refused(run, tmp_path):
    other = tmp_path / "other"
    with truth.create(other) as store:
        store.append("posterior", truth.values("posterior", 5, 9_005))
        store.append("sample_stats", truth.values("sample_stats", 5, 18_005))
        store.append("snapshots", truth.values("snapshots", 5, 23))
        store.commit(truth.state_at(9_000), {"step": 9_000, "status": "running"})
    shutil.copy(other / "posterior" / "beta" / "c.0.0.0", run / "posterior" / "beta" / "c.0.0.0")
    with pytest.raises(StoreError, match="changed on disk, or belong to another run"):
        open_stored(run).arrays["posterior"]["beta"][:, 0]
    for name in ("posterior", "sample_stats", "snapshots"):
        shutil.rmtree(run / name)
        shutil.copytree(other / name, run / name)
    for file in (other / "scirocco").glob("[cs]*"):
        shutil.copy(file, run / "scirocco")
    for opening in (open_stored, Store.open):
        with pytest.raises(StoreError, match=r"commit\.json belongs to another run"):
            opening(run)


def test_what_a_killed_process_wrote_beyond_the_commit_does_not_count(run):
    with Store.open(run) as store:
        store.append("posterior", truth.values("posterior", 9_000, 9_100))
        store.writers["posterior"].flush()
    assert open_stored(run).verify() == [] and truth.check(run) == 9_000
    truth.check_reopened(run, 9_000)
    assert open_stored(run).verify() == []


def test_a_reader_of_an_earlier_commit_while_another_process_writes(run):
    earlier = open_stored(run).arrays["posterior"]["count"]
    with Store.open(run) as store:
        truth.go_on(store, 9_500)
    np.testing.assert_array_equal(np.asarray(earlier), truth.values("posterior", 0, 9_000)["count"])


@pytest.mark.parametrize("wrong", [None, {}, [], {"posterior": {}}, {"posterior": 3}, {"posterior": {"beta": 5}}])
def test_checksums_of_another_shape(run, wrong):
    file = run / "scirocco" / "commit.json"
    content = json.loads(file.read_text())["content"]
    files.write_document(str(file), content | {"checksums": wrong})
    with pytest.raises(StoreError, match="one checksum for each chunk"):
        open_stored(run)


def test_the_command(run, capsys):
    def say(*words):
        with pytest.raises(SystemExit) as ended:
            cli.main(["verify", str(run), *words])
        return ended.value.code, " ".join(capsys.readouterr().out.split())

    code, out = say()
    assert code == 0 and "no damaged files" in out
    flip(run / "posterior" / "count" / "c.0.0", 9)
    code, out = say()
    assert code == 1 and "1 damaged file" in out and "of 'count' are damaged" in out
    code, out = say("--json")
    assert code == 1 and len(json.loads(out)[0]["problems"]) == 1


@pytest.mark.rotates(2, "checksums")
def test_swapped_files_are_found(run):
    """Any two files of a folder of chunks, and chunks of two variables with the same size."""
    chunks = sorted(path for path in run.rglob("c.*") if path.parent.name not in ("chain", "draw"))
    pairs = [
        (a, b)
        for k, a in enumerate(chunks)
        for b in chunks[k + 1 :]
        if a.stat().st_size == b.stat().st_size and a.read_bytes() != b.read_bytes()
    ]
    assert len(pairs) > 10
    for one, two in pairs:
        first, second = one.read_bytes(), two.read_bytes()
        one.write_bytes(second)
        two.write_bytes(first)
        assert len(open_stored(run).verify()) == 2, (one, two)
        one.write_bytes(first)
        two.write_bytes(second)
