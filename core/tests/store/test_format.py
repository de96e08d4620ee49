"""The folder is a Zarr group for everyone: zarr, xarray and ArviZ open it while the run goes on and afterwards."""

import json
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from scirocco.errors import InvalidTypeError
from scirocco.store import Store, Variable, open_stored, zarr_format
from store import truth

pytestmark = pytest.mark.unit


@pytest.fixture
def strict():
    """No reader shall complain about what it finds; what it says of its own plans is not ours to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        yield


def read_zarr(path):
    zarr = pytest.importorskip("zarr", minversion="3")
    root = zarr.open_group(str(path), mode="r")
    assert sorted(root.group_keys()) == sorted(truth.GROUPS)
    assert "scirocco" not in str(root.tree()).replace("inference", "")
    return {group: {name: root[group][name][...] for name in truth.GROUPS[group]} for group in truth.GROUPS}


def read_zarr_groups(path):
    zarr = pytest.importorskip("zarr", minversion="3")
    out = {}
    for group, names in truth.GROUPS.items():
        node = zarr.open_group(str(path / group), mode="r")
        out[group] = {name: node[name][...] for name in names}
        for name in names:  # and without the group's document
            assert zarr.open_array(str(path / group / name), mode="r").shape == node[name].shape
    return out


def read_xarray(path):
    pytest.importorskip("zarr", minversion="3")
    xarray = pytest.importorskip("xarray")
    out = {}
    for group, names in truth.GROUPS.items():
        dataset = xarray.open_zarr(str(path), group=group)
        count = dataset.sizes["draw"]
        np.testing.assert_array_equal(dataset["draw"], np.arange(count))
        np.testing.assert_array_equal(dataset["chain"], np.arange(truth.NUM_CHAINS))
        assert dataset["draw"].dtype == np.int64 and dataset.attrs["inference_library"] == "scirocco"
        out[group] = {name: dataset[name].values for name in names}
    return out


def read_datatree(path):
    pytest.importorskip("zarr", minversion="3")
    xarray = pytest.importorskip("xarray")
    if not hasattr(xarray, "open_datatree"):
        pytest.skip("this xarray has no trees")
    tree = xarray.open_datatree(str(path), engine="zarr")
    assert set(tree.children) == set(truth.GROUPS)
    assert json.loads(tree.attrs["configuration"]) == truth.RECORD["configuration"]
    assert tree.attrs["status"] == "running" and "scores" not in tree.attrs
    assert tree["posterior"]["layers[0].weight"].dims[2:] == ("layers[0].weight_dim_0", "layers[0].weight_dim_1")
    return {group: {name: tree[group][name].values for name in truth.GROUPS[group]} for group in truth.GROUPS}


def read_arviz(path):
    pytest.importorskip("zarr", minversion="3")
    arviz = pytest.importorskip("arviz")
    if arviz.__version__.startswith("0."):
        # its `from_zarr` refuses zarr 3; xarray does not
        xarray = pytest.importorskip("xarray")
        # where Dask is installed xarray hands out chunks, which ArviZ refuses
        groups = {group: xarray.open_zarr(str(path), group=group).load() for group in truth.GROUPS}
        tree = arviz.InferenceData(warn_on_custom_groups=False, **groups)
    else:
        tree = arviz.from_zarr(str(path))
    assert np.isfinite(arviz.summary(tree, var_names=["beta"])["mean"].astype(float)).all()
    return {group: {name: tree[group][name].values for name in truth.GROUPS[group]} for group in truth.GROUPS}


@pytest.mark.parametrize("reader", [read_zarr, read_zarr_groups, read_xarray, read_datatree, read_arviz])
def test_readers_see_the_committed_draws(tmp_path, reader, strict):
    path = tmp_path / "run"
    for stop in (600, 2_500):
        with truth.create(path) if stop == 600 else Store.open(path) as store:
            truth.go_on(store, stop)
            store.append("posterior", truth.values("posterior", stop, stop + 3_000))  # not committed: not seen
            _compare(reader(path), stop)
    _compare(reader(path), 2_500)


def _compare(got, stop):
    for group, count in truth.draws_at(stop).items():
        for name, wanted in truth.values(group, 0, count).items():
            assert got[group][name].dtype == wanted.dtype  # no mask, no fill value has turned int into float
            np.testing.assert_array_equal(got[group][name], wanted, err_msg=name)


@pytest.mark.rotates(2)
@pytest.mark.parametrize("reader", ["scirocco", "xarray"])
def test_a_reader_at_any_moment_sees_whole_commits(tmp_path, reader):
    """Someone looks again and again while draws are appended and committed as fast as it goes."""
    pytest.importorskip("zarr", minversion="3")
    xarray = pytest.importorskip("xarray")
    path, seen, done = tmp_path / "run", [], threading.Event()

    def look():
        while not done.is_set():
            if reader == "scirocco":
                seen.append(truth.check(path, documents=False))
            else:
                dataset = xarray.open_zarr(str(path), group="posterior").load()
                seen.append(dataset.sizes["draw"])
                for name, wanted in truth.values("posterior", 0, seen[-1]).items():
                    np.testing.assert_array_equal(dataset[name].values, wanted)

    with truth.create(path) as store, ThreadPoolExecutor(1) as pool:
        truth.go_on(store, 1)
        looking = pool.submit(look)
        try:
            for stop in range(100, 4_000, 100):
                truth.go_on(store, stop)
        finally:
            done.set()
        looking.result()
    assert seen == sorted(seen) and len(set(seen)) > 2


def test_readers_of_a_run_without_draws(tmp_path, strict):
    pytest.importorskip("zarr", minversion="3")
    xarray = pytest.importorskip("xarray")
    with truth.create(tmp_path / "run"):
        dataset = xarray.open_zarr(str(tmp_path / "run"), group="posterior")
        assert dataset.sizes["draw"] == 0 and dataset["beta"].shape == (2, 0, 3)


NAMES = ["beta", "Beta", "a/b", "a_b", "a:b", "layers[0].weight", "x", "x_dim_0", "draw", "chain", "zarr.json", "."]
NAMES += ["..", "", "__init__", "trailing.", "β", "with space", "c", "../../escape", "n" * 400, "n" * 399 + "m", "\n"]
NAMES += ["é", "e\u0301", "CON~", "beta~"]


def test_every_name_has_a_place_of_its_own(tmp_path, strict):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr", minversion="3")
    groups = {"g": {name: Variable((2,), np.dtype("int32")) for name in NAMES}}
    draws = {name: np.full((1, 3, 2), number, np.int32) for number, name in enumerate(NAMES)}
    with Store.create(tmp_path / "run", groups, 1, {}) as store:
        store.append("g", draws)
        store.commit({}, {})
    Store.open(tmp_path / "run").close()
    arrays = open_stored(tmp_path / "run").arrays["g"]
    assert list(arrays) == NAMES
    for name, wanted in draws.items():
        np.testing.assert_array_equal(np.asarray(arrays[name]), wanted, err_msg=name)
    dataset = xarray.open_zarr(str(tmp_path / "run"), group="g")
    assert {value.attrs["name"]: int(value[0, 0, 0]) for value in dataset.data_vars.values()} == {
        name: number for number, name in enumerate(NAMES)
    }
    assert {"beta", "layers[0].weight", "x", "x_dim_0", "a_b", "c", "β"} & set(dataset.data_vars) >= {"beta", "β", "c"}
    assert not list(tmp_path.parent.glob("escape*")) and not list(tmp_path.glob("escape*"))


def test_node_names_do_not_collide_where_case_does_not_count():
    nodes = zarr_format.node_names(NAMES, taken=("chain", "draw"))
    folded = [node.casefold() for node in nodes.values()]
    assert len(set(folded)) == len(NAMES)
    assert all(zarr_format.is_node_name(node) for node in nodes.values())
    assert nodes["layers[0].weight"] == "layers[0].weight" and nodes["x_dim_0"] == "x_dim_0"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\\b", "zarr.json", "__x", "a\0", 3, None])
def test_names_that_are_no_folder_of_ours(name):
    assert not zarr_format.is_node_name(name)


@pytest.mark.parametrize("dtype", ["U3", "S3", "M8[s]", object, [("a", "f4")], "V4"])
def test_types_that_cannot_be_stored(dtype):
    with pytest.raises(InvalidTypeError, match="`x` has dtype"):
        zarr_format.stored_dtype(dtype, "x")


def test_documents_are_strict_json(tmp_path):
    with truth.create(tmp_path / "run") as store:
        store.commit({}, {"score": float("nan"), "status": "diverged"})

    def refuse(constant):
        raise AssertionError(constant)

    for document in (tmp_path / "run").rglob("zarr.json"):
        json.loads(document.read_text(), parse_constant=refuse)
    root = json.loads((tmp_path / "run" / "zarr.json").read_text())
    assert root["attributes"]["score"] == "NaN" and root["attributes"]["status"] == "diverged"
