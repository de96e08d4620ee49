"""Runs whose documents somebody has changed, with their checksums: an error of the library, or the same draws."""

import copy
import json
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.errors import SciroccoError
from scirocco.run import list_runs
from scirocco.store import files

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

MODEL = sc.Model(
    lambda params, x: -0.5 * jnp.sum((x - params["mean"]) ** 2), lambda params: -params["mean"] @ params["mean"]
)
ROWS = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
VALUES = [None, float("nan"), -1, "x", [], {"a": 1}, 2**70, "remove"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("forged") / "run"
    sc.sample(
        MODEL,
        ROWS,
        {"mean": np.zeros(2, np.float32)},
        sampler=sc.SGLD(1e-3),
        estimator=sc.Minibatch(10),
        num_samples=20,
        num_chains=2,
        store=path,
        progress=False,
    )
    return path


def places(node, depth=3):
    """The keys of a document, with those of the documents inside it."""
    parts = node.items() if isinstance(node, dict) else enumerate(node[:2]) if isinstance(node, list) else ()
    for key, value in parts:
        yield (key,)
        yield from ((key, *inner) for inner in (places(value, depth - 1) if depth > 1 else ()))


def forge(stored, path, document, place, value):
    """A copy of a run with one entry changed."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(stored, path)
    file = path / "scirocco" / document
    content = copy.deepcopy(json.loads(file.read_text())["content"])
    node = content
    for key in place[:-1]:
        node = node[key]
    if value == "remove":
        del node[place[-1]]
    else:
        node[place[-1]] = value
    files.write_document(str(file), content)


@pytest.mark.parametrize("document", ["commit.json", "run.json"])
def test_every_entry_of_a_document_can_be_anything(stored, tmp_path, document):
    wanted = np.asarray(sc.load(stored).draws["mean"])
    content = json.loads((stored / "scirocco" / document).read_text())["content"]
    refused = 0
    for number, place in enumerate(places(content)):
        for value in (VALUES[number % 8], VALUES[(number + 3) % 8]):
            forge(stored, tmp_path / "run", document, place, value)
            try:
                found = sc.load(tmp_path / "run")
                np.testing.assert_array_equal(np.asarray(found.draws["mean"]), wanted)
            except SciroccoError:
                refused += 1
            list_runs(tmp_path)
    assert refused > 20


@pytest.mark.parametrize(
    ("document", "place", "values"),
    [
        ("commit.json", ("progress", "draws"), [float("nan"), 19, -1, 1e300, True, None, "20"]),
        ("commit.json", ("progress", "step"), [float("nan"), -1, "x", None]),
        ("commit.json", ("progress", "num_samples"), [float("nan"), -1, "x", None]),
        ("commit.json", ("progress", "model_values"), [float("nan"), {"log_prior": "x"}]),
        ("run.json", ("record", "configuration", "num_burnin"), [float("nan"), "x", -1]),
        ("run.json", ("record", "configuration", "thin"), [float("nan"), "x", 0]),
        ("run.json", ("record", "configuration", "seed"), [float("nan"), "x", -1]),
        ("run.json", ("record", "probe", 0), [float("nan"), "x"]),
        ("run.json", ("record", "structure"), [float("nan"), "x"]),
        ("run.json", ("record", "sampler", "fields"), [float("nan"), "x"]),
    ],
)
def test_a_forged_run_is_not_resumed(stored, tmp_path, document, place, values):
    for value in values:
        forge(stored, tmp_path / "run", document, place, value)
        with pytest.raises(SciroccoError):
            sc.resume(tmp_path / "run", MODEL, ROWS, num_samples=24, progress=False)


def test_a_run_that_keeps_some_draws_is_not_forged(tmp_path):
    """Statistics are of all draws; a copy of the run in memory counts those that were kept."""
    model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    run = sc.sample(
        model,
        np.linspace(-1.0, 1.0, 50, dtype=np.float32),
        np.float32(0.1),
        sampler=sc.SGLD(1e-3),
        estimator=sc.Minibatch(10),
        num_samples=20,
        keep_draws=5,
        store=tmp_path / "run",
        progress=False,
    )
    sc.load(tmp_path / "run").save(tmp_path / "copy")
    for path in (tmp_path / "run", tmp_path / "copy"):
        found = sc.load(path)
        assert found.num_draws == 4
        np.testing.assert_array_equal(np.asarray(found.draws), run.draws)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A regression with transforms, levels and an offset."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"y": rng.normal(size=60), "x": rng.normal(size=60), "g": list("abc") * 20})
    model = sc.models.LinearRegression(
        formula="y ~ bs(x, df=4) + C(g) + offset(center(x))", num_samples=20, num_chains=1
    ).fit(table, progress=False)
    path = tmp_path_factory.mktemp("model") / "saved"
    model.save(path)
    return path, table


def test_every_entry_of_a_model_can_be_anything(saved, tmp_path):
    path, table = saved
    content = json.loads((path / "scirocco" / "run.json").read_text())["content"]
    key = next(key for key in content["record"]["notes"] if key.startswith("sc.models."))
    note, refused = json.loads(content["record"]["notes"][key]), 0
    for number, place in enumerate(places(note, depth=5)):
        changed = copy.deepcopy(note)
        node = changed
        for part in place[:-1]:
            node = node[part]
        value = VALUES[number % 8]
        if value == "remove":
            del node[place[-1]]
        else:
            node[place[-1]] = value
        forge(path, tmp_path / "run", "run.json", ("record", "notes", key), json.dumps(changed))
        try:
            found = sc.models.load(tmp_path / "run").predict(table[:3])
            assert np.asarray(found).shape == (3,)
        except SciroccoError:
            refused += 1
    assert refused > 20
