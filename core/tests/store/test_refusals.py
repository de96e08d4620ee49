"""Wrong uses are refused in words, and nothing is harmed by them."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from scirocco.errors import InvalidTypeError, InvalidValueError, StoreError
from scirocco.store import Store, Stored, Variable, open_stored
from store import truth
from store.truth import ONE, add, one

pytestmark = pytest.mark.unit


def test_a_run_is_not_overwritten_by_accident(tmp_path):
    with one(tmp_path / "run") as store:
        add(store, 1_234)
        store.commit({}, {})
    with pytest.raises(InvalidValueError, match=r"holds a run already \(1,234 of 10,000 draws\); use `sc.resume"):
        one(tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with one(tmp_path / "run", overwrite=True) as store:
        assert store.draws("posterior") == 0
        add(store, 2)
        store.commit({}, {})
    assert open_stored(tmp_path / "run").arrays["posterior"]["x"].shape == (1, 2)
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_overwriting_with_other_groups_leaves_none_of_the_old(tmp_path):
    with truth.create(tmp_path / "run") as store:
        truth.go_on(store, 100)
    with one(tmp_path / "run", overwrite=True) as store:
        store.commit({}, {})
    assert sorted(os.listdir(tmp_path / "run")) == ["posterior", "scirocco", "zarr.json"]
    assert sorted(os.listdir(tmp_path / "run/posterior")) == ["chain", "draw", "x", "zarr.json"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "content", ["notes.txt", "zarr.json", "posterior/x", "scirocco/mine.txt", "scirocco/run.json", None]
)
def test_what_is_not_ours_is_never_touched(tmp_path, overwrite, content):
    path = tmp_path / "place"
    file = path if content is None else path / content
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("precious")
    with pytest.raises(InvalidValueError, match="nothing in it was touched"):
        one(path, overwrite=overwrite)
    assert file.read_text() == "precious"
    assert sum(len(names) for _, _, names in os.walk(tmp_path)) == 1


def test_an_empty_folder_and_a_missing_parent_are_fine(tmp_path):
    (tmp_path / "empty").mkdir()
    one(tmp_path / "empty").close()
    one(tmp_path / "a" / "b" / "c").close()


def test_a_run_that_never_committed_holds_nothing_and_may_be_taken_over(tmp_path):
    with one(tmp_path / "run") as store:
        add(store, 20_000)
    for opening in (Store.open, Stored.open):
        with pytest.raises(StoreError, match="never started"):
            opening(tmp_path / "run")
    with truth.create(tmp_path / "run") as store:
        truth.go_on(store, 10)
    assert truth.check(tmp_path / "run") == 10


def test_places_that_hold_no_run(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "y").write_text("x")
    for opening in (Store.open, Stored.open):
        with pytest.raises(InvalidValueError, match="there is no folder"):
            opening(tmp_path / "nothing")
        with pytest.raises(InvalidValueError, match="is a file"):
            opening(tmp_path / "file")
        with pytest.raises(InvalidValueError, match="not a scirocco run"):
            opening(tmp_path / "folder")
    assert os.listdir(tmp_path / "folder") == ["y"]


def test_two_writers_in_one_process(tmp_path):
    with one(tmp_path / "run") as store:
        store.commit({}, {})
        for attempt in (Store.open, lambda path: one(path, overwrite=True)):
            with pytest.raises(StoreError, match=rf"process {os.getpid()} on "):
                attempt(tmp_path / "run")
        assert open_stored(tmp_path / "run").running
        add(store, 1)
        store.commit({}, {})
    assert not open_stored(tmp_path / "run").running
    Store.open(tmp_path / "run").close()


@pytest.mark.process
def test_a_second_process_is_refused_and_may_read(tmp_path):
    path = tmp_path / "run"
    code = (
        "import sys\nfrom store import truth\nstore = truth.create(sys.argv[1])\ntruth.go_on(store, 300)\n"
        "print('ready', flush=True)\nsys.stdin.read()\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=pipe, stdout=pipe, env=environment)
    try:
        assert child.stdout.readline() == b"ready\n"
        with pytest.raises(StoreError, match=rf"process {child.pid} on '.+'"):
            Store.open(path)
        assert truth.check(path) == 300 and open_stored(path).running
    finally:
        child.kill()
        child.communicate()
    assert not open_stored(path).running
    assert truth.check_reopened(path, 300) > 300


@pytest.mark.parametrize(
    "arrays, kind, words",
    [
        ({}, InvalidValueError, "has the variables ['x']; got []"),
        ({"x": np.ones((1, 2), "f4"), "y": np.ones((1, 2))}, InvalidValueError, "got ['x', 'y']"),
        ({"x": np.ones(2, "f4")}, InvalidValueError, "must have the shape (1, draws), got (2,)"),
        ({"x": np.ones((2, 2), "f4")}, InvalidValueError, "must have the shape (1, draws), got (2, 2)"),
        ({"x": np.ones((1, 2))}, InvalidTypeError, "declared as float32 but has dtype float64"),
    ],
)
def test_wrong_draws_are_refused_and_do_no_harm(tmp_path, arrays, kind, words):
    with one(tmp_path / "run") as store:
        with pytest.raises(kind, match=re.escape(words)):
            store.append("posterior", arrays)
        add(store, 3)
        store.commit({}, {})
        assert store.draws("posterior") == 3


def test_variables_of_a_group_grow_together(tmp_path):
    groups = {"g": {"x": Variable((), np.dtype("f4")), "y": Variable((), np.dtype("f4"))}}
    with Store.create(tmp_path / "run", groups, 1, {}) as store, pytest.raises(InvalidValueError, match="same number"):
        store.append("g", {"x": np.ones((1, 2), "f4"), "y": np.ones((1, 3), "f4")})


@pytest.mark.parametrize(
    "groups, kind, words",
    [
        ({}, InvalidValueError, "empty"),
        ({"g": {}}, InvalidValueError, "no variables"),
        ({"../g": ONE["posterior"]}, InvalidValueError, "cannot be named"),
        ({"scirocco": ONE["posterior"]}, InvalidValueError, "cannot be named"),
        ({"g": ONE["posterior"], "G": ONE["posterior"]}, InvalidValueError, "upper and lower case"),
        ({"g": {"x": Variable((), np.dtype(object))}}, InvalidTypeError, "cannot be stored"),
        ({"g": {"x": Variable((), np.dtype("U5"))}}, InvalidTypeError, "cannot be stored"),
        ({"g": {0: Variable((), np.dtype("f4"))}}, InvalidTypeError, "must be a string"),
    ],
)
def test_wrong_groups(tmp_path, groups, kind, words):
    with pytest.raises(kind, match=words):
        Store.create(tmp_path / "run", groups, 1, {})
    assert not (tmp_path / "run").exists()


def test_wrong_records_states_and_groups(tmp_path):
    with pytest.raises(InvalidTypeError, match="`record` must contain only"):
        Store.create(tmp_path / "run", ONE, 1, {"x": np.ones(3)})
    with pytest.raises(InvalidValueError, match="num_chains"):
        Store.create(tmp_path / "run", ONE, 0, {})
    with one(tmp_path / "run") as store:
        with pytest.raises(InvalidValueError, match="no group 'prior'"):
            store.append("prior", {})
        with pytest.raises(InvalidTypeError, match="`progress` must contain only"):
            store.commit({}, {"x": object()})
        with pytest.raises(InvalidTypeError, match="only numbers"):
            store.commit({"x": np.array([object()])}, {})
        with pytest.raises(StoreError, match="no commit yet"):
            store.read_state()
        store.commit({}, {"best": float("nan"), 10: 1, 9: (1, 2)})
    assert Stored.open(tmp_path / "run").progress["9"] == [1, 2]


def test_a_closed_store_takes_nothing(tmp_path):
    store = one(tmp_path / "run")
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        add(store, 1)
    with pytest.raises(StoreError, match="closed"):
        store.commit({}, {})
