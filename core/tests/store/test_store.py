"""Writing a run: draws of all kinds come back, commits count, runs go on."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from scirocco.store import Store, Stored, Variable, open_stored
from scirocco.store.files import STORING
from store import truth
from store.truth import ONE, add, one

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "int32", "uint8", "int64", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 4)])
def test_every_type_and_shape_comes_back(tmp_path, name, shape):
    rng = np.random.default_rng(1)
    wanted = (rng.normal(size=(3, 50, *shape)) * 3).astype(name)
    with Store.create(tmp_path / "run", {"g": {"x": Variable(shape, np.dtype(name))}}, 3, {}) as store:
        for start in range(0, 50, 7):
            store.append("g", {"x": wanted[:, start : start + 7]})
        store.commit({}, {})
    got = open_stored(tmp_path / "run").arrays["g"]["x"]
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    np.testing.assert_array_equal(np.asarray(got), wanted)


def test_bfloat16_is_stored_as_float32_and_known_as_bfloat16(tmp_path):
    wanted = jnp.linspace(-3, 3, 40, dtype=jnp.bfloat16).reshape(2, 20)
    with Store.create(tmp_path / "run", {"g": {"x": Variable((), wanted.dtype)}}, 2, {}) as store:
        store.append("g", {"x": wanted})
        store.commit({"x": wanted, "scalar": wanted[0, 0]}, {})
        state = store.read_state()
    assert state["x"].dtype == wanted.dtype and state["scalar"].shape == ()
    np.testing.assert_array_equal(state["x"], np.asarray(wanted))
    got = open_stored(tmp_path / "run").arrays["g"]["x"]
    assert got.dtype == np.float32 and got.given_dtype == "bfloat16"
    np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted, np.float32))


def test_big_endian_draws_keep_their_values(tmp_path):
    wanted = np.arange(10, dtype=">f8")[None]
    with Store.create(tmp_path / "run", {"g": {"x": Variable((), wanted.dtype)}}, 1, {}) as store:
        store.append("g", {"x": wanted})
        store.commit({"b": wanted}, {})
        np.testing.assert_array_equal(store.read_state()["b"], wanted)
    np.testing.assert_array_equal(np.asarray(open_stored(tmp_path / "run").arrays["g"]["x"]), wanted)


def test_groups_of_different_lengths_many_chunks_and_odd_portions(tmp_path):
    path = tmp_path / "run"
    with truth.create(path) as store:
        for stop in (1, 2, 700, 5_000, 9_001):
            truth.go_on(store, stop)
            assert truth.check(path) == stop
        assert store.draws("sample_stats") == 18_002 and store.draws("snapshots") == 18
        assert store.progress["status"] == "running" and store.record == truth.RECORD
    assert len(list((path / "posterior" / "layers[0].weight").glob("c.*"))) > 2  # the test is about many chunks


def test_appending_in_any_portions_gives_the_same_files(tmp_path):
    contents = []
    for portion in (1_000, 333, 9_000, 10_000):
        path = tmp_path / str(portion)
        store = one(path)
        for start in range(0, 10_000, portion):
            add(store, min(portion, 10_000 - start))
            store.commit({}, {})
            if portion == 9_000:  # another process goes on
                store.close()
                store = Store.open(path)
        store.close()
        contents.append([file.read_bytes() for file in sorted(path.glob("posterior/x/c*"))])
    assert all(content == contents[0] for content in contents)


def test_a_run_goes_on_where_its_commit_ended(tmp_path):
    path = tmp_path / "run"
    with truth.create(path) as store:
        truth.go_on(store, 400)
        store.append("posterior", truth.values("posterior", 400, 9_000))  # never committed: chunks that do not count
    for stop in (401, 950, 7_000):
        with Store.open(path) as store:
            assert store.progress["step"] == store.draws("posterior") < stop
            truth.go_on(store, stop)
        assert truth.check(path) == stop


def test_an_early_commit_with_no_draws_is_a_run(tmp_path):
    with one(tmp_path / "run") as store:
        store.commit({"key": np.arange(2)}, {"phase": "burn-in"})
    with Store.open(tmp_path / "run") as store:
        assert store.draws("posterior") == 0
        np.testing.assert_array_equal(store.read_state()["key"], [0, 1])
    stored = open_stored(tmp_path / "run")
    assert stored.arrays["posterior"]["x"].shape == (1, 0) and stored.progress == {"phase": "burn-in"}


def test_state_of_any_name_and_shape(tmp_path):
    rng = np.random.default_rng(0)
    state = {"file": rng.normal(size=3), "allow_pickle": np.float32(2), "layers[0].w/b": np.zeros((0, 2))}
    state |= {"β.mean": np.array([True]), "key": np.arange(2, dtype=np.uint32), "F": np.asfortranarray(np.eye(3))}
    with one(tmp_path / "run") as store:
        store.commit(state, {})
        got = store.read_state()
    assert set(got) == set(state)
    for key in state:
        assert got[key].dtype == np.asarray(state[key]).dtype
        np.testing.assert_array_equal(got[key], state[key])


def test_only_the_last_state_is_kept(tmp_path):
    with one(tmp_path / "run") as store:
        for number in range(4):
            add(store, 1)
            store.commit({"n": np.array(number)}, {})
        assert store.read_state()["n"] == 3
    assert [file.name for file in (tmp_path / "run/scirocco").glob("state-*")] == ["state-4.npz"]


def test_open_removes_what_a_dead_process_left_and_nothing_else(tmp_path):
    path = tmp_path / "run"
    with one(path) as store:
        add(store, 3)
        store.commit({}, {})
    strays = ["zarr.json.tmp", "posterior/x/c.0.0.tmp", "scirocco/commit.json.tmp", "scirocco/state-77.npz"]
    mine = ["notes.txt", "draft.tmp", "scirocco/notes.txt", "posterior/readme"]
    for name in strays + mine:
        (path / name).write_text("x")
    Store.open(path).close()
    assert not any((path / name).exists() for name in strays)
    assert all((path / name).exists() for name in mine)


def test_memory_does_not_grow_with_the_draws(tmp_path, changed):
    changed(STORING, unsynced_files=4)
    with one(tmp_path / "run") as store:
        for _ in range(50):
            add(store, 8_192)
        assert len(store.unsynced.files) < 4
        assert sum(buffer.nbytes for buffer in store.writers["posterior"].buffers.values()) <= 1 << 20
        store.commit({}, {})


@pytest.mark.parametrize(
    "shape, chains, draws", [((), 1, 8_192), ((100,), 1, 2_621), ((100,), 4, 655), ((10**6,), 1, 1)]
)
def test_a_chunk_is_about_a_mebibyte(tmp_path, shape, chains, draws):
    groups = {"g": {"x": Variable(shape, np.dtype("float32")), "y": Variable((), np.dtype("bool"))}}
    with Store.create(tmp_path / "run", groups, chains, {}) as store:
        assert store.groups["g"].chunk_draws == draws


def test_the_record_comes_back_and_is_plain_json(tmp_path):
    record = {"configuration": {"a": 1.5, "b": [1, None, True]}, "β": "γ"}
    with Store.create(tmp_path / "run", ONE, 1, record) as store:
        store.commit({}, {})
    with Store.open(tmp_path / "run") as store:
        assert store.record == record == Stored.open(tmp_path / "run").record
    assert json.loads((tmp_path / "run/scirocco/run.json").read_text())["content"]["record"] == record


def test_a_reader_has_the_state_of_the_latest_commit(tmp_path):
    with one(tmp_path / "run") as store:
        store.commit({"n": np.array(1)}, {})
        stored = Stored.open(tmp_path / "run")
        assert stored.read_state()["n"] == 1
        store.commit({"n": np.array(2)}, {})
        assert stored.read_state()["n"] == 2 and Stored.open(tmp_path / "run").read_state()["n"] == 2
