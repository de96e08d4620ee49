"""Inputs that once hung, were misread, or spoke to the terminal: each is refused at once, or made harmless."""

import contextlib
import os
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import scirocco as sc
from scirocco import cli
from scirocco._console import neutral, print_table
from scirocco.data.formats.conversion import open_table
from scirocco.errors import InvalidValueError, SciroccoError, SciroccoWarning
from scirocco.store import Variable
from scirocco.store.store import Store

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("quick_compiler")]

ESCAPE = "\x1b]0;owned\x07\x1b[2Jsun\x9b31m"


@pytest.fixture
def at_once():
    """What hung takes no more than five seconds of this process."""
    before = time.process_time()
    yield
    assert time.process_time() - before < 5


def test_more_chains_than_memory(at_once):
    model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    with pytest.raises(InvalidValueError, match=r"num_chains=1000+ would take at least .* GiB .* available"):
        sc.sample(model, jnp.ones(100), jnp.array(0.0), sampler=sc.SGLD(1e-3), num_chains=10**20)


@pytest.mark.parametrize("options", [{"num_topics": 10**9}, {"num_topics": 3, "num_chains": 10**20}])
def test_more_topics_than_memory(at_once, options):
    X = sp.csr_array(np.random.default_rng(0).poisson(1, (20, 400)))
    with pytest.raises(InvalidValueError, match=r"would take at least .* GiB .* available"):
        sc.models.LDA(**options).fit(X, progress=False)


@pytest.fixture(scope="module")
def short_run():
    model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    return sc.sample(
        model, jnp.ones(10), jnp.array(0.0), sampler=sc.SGLD(1e-3), num_samples=4, num_chains=2, progress=False
    )


@pytest.mark.parametrize("url", ["s3://bucket/run.html", "gs://bucket/run.html", "file:///tmp/run.html"])
@pytest.mark.parametrize("as_path", [str, Path])
def test_a_url_is_no_path(tmp_path, monkeypatch, short_run, url, as_path):
    monkeypatch.chdir(tmp_path)  # a folder named s3: would be made here
    model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    calls = [
        lambda: sc.sample(model, jnp.ones(10), jnp.array(0.0), store=as_path(url), progress=False),
        lambda: short_run.save(as_path(url)),
        lambda: short_run.report(as_path(url)),
        lambda: sc.data.write(as_path(url), {"x": np.ones(3)}),
        lambda: sc.load(as_path(url)),
        lambda: sc.run.list_runs(as_path(url)),
        lambda: sc.models.GaussianMixture(2).fit(np.arange(20.0)[:, None], store=as_path(url), progress=False),
    ]
    for call in calls:
        with pytest.raises(InvalidValueError, match=r"is the URL .*only folders and files of this machine"):
            call()
    Path("rows.csv").write_text("x,y\n" + "1,2\n3,5\n" * 20)
    for command in (["cluster", "fit", "rows.csv", "--out", url], ["network", "fit", url, "--out", "run"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(command)
        assert ended.value.code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_names_with_colons_are_paths(tmp_path, monkeypatch, short_run):
    monkeypatch.chdir(tmp_path)
    for name in ("a:b", "10:30", "folder/s3:x"):
        short_run.save(name)
        assert sc.load(name).num_draws == short_run.num_draws


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize(
    "name, words",
    [
        ("rows.csv", "data convert {path} {root}/made"),
        ("rows.npz", "data convert {path} {root}/made"),
        ("rows.parquet", "data convert {path} {root}/made"),
        ("text.txt", "topics fit {path} --out {root}/t"),
        ("table.csv", "cluster fit {path} --out {root}/c"),
        ("job.toml", "sample {path}"),
        ("folder/scirocco-data.json", "data info {root}/folder"),
        ("run/scirocco/run.json", "verify {root}/run"),
    ],
)
def test_a_named_pipe_as_input(tmp_path, capsys, name, words):
    """Nobody writes to it: reading would never end."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    with pytest.raises(SystemExit) as ended:
        cli.main(words.format(path=path, root=tmp_path).split())
    assert ended.value.code == 2 and capsys.readouterr().err.startswith("scirocco: ")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_named_pipes_in_folders(tmp_path):
    sc.data.write(tmp_path / "rows", {"x": np.ones((5, 2), np.float32)})
    with Store.create(tmp_path / "run", {"posterior": {"x": Variable((), np.dtype("f4"))}}, 1, {}) as store:
        store.append("posterior", {"x": np.ones((1, 5), np.float32)})
        store.commit({"a": np.ones(3)}, {})
    for folder, read in (
        (tmp_path / "rows", sc.data.open),
        (tmp_path / "run", lambda path: Store.open(path).read_state()),
        (tmp_path / "run", lambda path: np.asarray(sc.store.open_stored(path).arrays["posterior"]["x"])),
        (tmp_path / "run", lambda path: sc.store.open_stored(path).verify()),
    ):
        for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock"):
            raw = file.read_bytes()
            file.unlink()
            os.mkfifo(file)
            with contextlib.suppress(SciroccoError):
                read(folder)
            file.unlink()
            file.write_bytes(raw)


@pytest.mark.parametrize(
    "first, names",
    [
        ("5,3,1", ["x0", "x1", "x2"]),
        ("1,1,2", ["x0", "x1", "x2"]),
        ("0.5,1,2", ["x0", "x1", "x2"]),
        ("-1,-2,-3", ["x0", "x1", "x2"]),
        ("0,1,2", ["x0", "x1", "x2"]),
        ("0,1,2,3", ["0", "1", "2", "3"]),
    ],
)
def test_a_first_line_of_numbers_is_not_silently_taken_as_names(tmp_path, first, names):
    (tmp_path / "rows.csv").write_text(f"{first}\n{'7,8,9,9'[: 2 * len(names) - 1]}\n")
    with pytest.warns(SciroccoWarning, match="first line"):
        table = open_table(tmp_path / "rows.csv")
    assert table.names == names
    rows = next(table.chunks(names))
    assert len(rows[names[0]]) == (1 if names[0] == "0" else 2)


# -- terminals --------------------------------------------------------------------------------------------------------


def harmless(text):
    return not any(ord(sign) in range(0x7F, 0xA0) or (ord(sign) < 32 and sign != "\n") for sign in text)


def test_control_characters_become_visible():
    assert neutral(ESCAPE) == "\\x1b]0;owned\\x07\\x1b[2Jsun\\x9b31m"
    assert neutral("two\nlines\tand ü, 日本") == "two\nlines\tand ü, 日本"
    assert neutral("a\u202eb") == "a\\u202eb"


@pytest.mark.parametrize("rich", [True, False])
def test_tables(capsys, monkeypatch, rich):
    if not rich:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    print_table(ESCAPE, [ESCAPE], [[ESCAPE]])
    out = capsys.readouterr().out
    assert harmless(out) and "owned" in out


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "{run}"],
        ["runs", "{root}"],
        ["runs", "{root}", "--json"],
        ["watch", "{run}", "--once"],
        ["data", "info", "{rows}"],
        ["data", "info", "{rows}", "--json"],
        ["sample", "{root}/" + ESCAPE],
    ],
)
def test_names_from_files(tmp_path, capsys, words):
    """Names of parameters, columns, folders and samplers."""
    columns = {ESCAPE.replace("/", ""): np.ones((5, 2), np.float32)}
    sc.data.write(tmp_path / "rows", columns)
    record = {
        "configuration": {
            "kind": "own loop",
            "model": ESCAPE,
            "sampler": ESCAPE,
            "num_chains": 1,
            "dimension": 1,
            "num_samples": 5,
            "num_burnin": 0,
            "thin": 1,
        },
        "structure": {"dict": {ESCAPE: 0}},
    }
    progress = {"step": 5, "draws": 5, "num_samples": 5, "status": "complete", "scores": [[5, {ESCAPE: 1.0}]]}
    with Store.create(tmp_path / ESCAPE, {"posterior": {ESCAPE: Variable((), np.dtype("f4"))}}, 1, record) as s:
        s.append("posterior", {ESCAPE: np.ones((1, 5), np.float32)})
        s.commit({}, progress)
    next((tmp_path / ESCAPE / "posterior").glob("_*/c.0.0")).write_bytes(bytes(20))
    names = {"run": str(tmp_path / ESCAPE), "root": str(tmp_path), "rows": str(tmp_path / "rows")}
    with pytest.raises(SystemExit):
        cli.main([word.format(**names) for word in words])
    shown = capsys.readouterr()
    assert harmless(shown.out) and harmless(shown.err) and "owned" in shown.out + shown.err
