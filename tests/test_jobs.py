"""Runs from a file: `scirocco sample`, `resume`, `runs`, `data convert` and `data info`, as they are typed."""

from __future__ import annotations

import json
import subprocess
import sys

import jax
import numpy as np
import pytest

import scirocco as sc
from scirocco import cli, jobs
from scirocco.errors import InvalidTypeError, InvalidValueError

MODULE = """
import jax, jax.numpy as jnp, scirocco as sc

def log_likelihood(beta, row):
    z = row["x"] @ beta
    return row["y"] * z - jax.nn.softplus(z)

model = sc.Model(log_likelihood, lambda beta: -0.05 * jnp.sum(beta**2))
start = jnp.zeros(2)
not_a_model = 3
"""
CONFIG = """
model = "{module}:model"
params = "{module}:start"
data = "rows"
store = "run"

[sampler]
name = "SGLD"
step_size = {{schedule = "polynomial", start = 1e-3, tau = 100.0, kappa = 0.33}}

[estimator]
name = "Minibatch"
batch_size = 20

[run]
num_samples = 60
num_chains = 2
"""


@pytest.fixture
def folder(tmp_path, request):
    """A module of its own name for each test: Python keeps what it has imported."""
    module = "regression_" + str(abs(hash(request.node.name)))
    (tmp_path / f"{module}.py").write_text(MODULE)
    (tmp_path / "job.toml").write_text(CONFIG.format(module=module))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 2)).astype(np.float32)
    y = (rng.random(200) < 0.5).astype(np.float32)
    np.savetxt(
        tmp_path / "rows.csv", np.column_stack([x, y]), delimiter=",", header="f_a,f_b,late", comments=""
    )
    sc.data.write(tmp_path / "rows", {"x": x, "y": y})
    return tmp_path


def call(capsys, *words):
    with pytest.raises(SystemExit) as end:
        cli.main([str(word) for word in words])
    shown = capsys.readouterr()
    return end.value.code, shown.out, shown.err


def test_from_the_file_to_the_draws_and_on(folder, capsys):
    status, out, err = call(capsys, "sample", folder / "job.toml")
    assert (status, err) == (0, "")
    assert "2 chains × 60 draws" in out
    assert "ess_bulk" in out
    run = sc.load(folder / "run")
    assert run.configuration["sampler"]["step_size"]["name"] == "Polynomial"
    status, out, _ = call(capsys, "resume", folder / "run", "--num-samples", 90)
    assert status == 0
    assert "2 chains × 90 draws" in out
    # the same in one go
    job = jobs.read_job(folder / "job.toml")
    whole = sc.sample(job.model, job.data, job.params, progress=False, **job.options | {"num_samples": 90})
    np.testing.assert_array_equal(np.asarray(sc.load(folder / "run").draws), whole.draws)


def test_the_same_command_again(folder, capsys):
    call(capsys, "sample", folder / "job.toml")
    status, out, err = call(capsys, "sample", folder / "job.toml")
    assert (status, out) == (2, "")
    assert "holds a run already (60 of 60 draws)" in err
    assert call(capsys, "sample", folder / "job.toml", "--resume")[0] == 0
    assert call(capsys, "sample", folder / "job.toml", "--overwrite")[0] == 0


def test_runs_are_listed(folder, capsys):
    call(capsys, "sample", folder / "job.toml")
    (folder / "deeper").mkdir()
    sc.load(folder / "run").save(folder / "deeper" / "copy")
    (folder / "deeper" / "copy" / "scirocco" / "commit.json").write_text("{}")
    status, out, _ = call(capsys, "runs", folder, "--json")
    assert status == 0
    broken, good = json.loads(out)
    assert good["draws"] == good["num_samples"] == 60
    assert good["percent"] == 100.0
    assert good["status"] == "complete"
    assert good["smallest_ess"] > 0
    assert broken["status"] == "damaged"
    assert "commit.json" in broken["error"]
    status, out, _ = call(capsys, "runs", folder)
    assert status == 0
    for piece in ("SGLD, Minibatch", "60 of 60", "100 %", "complete", "damaged"):
        assert piece in out
    assert call(capsys, "runs", folder / "rows")[1].startswith("no stored run")
    assert call(capsys, "runs", folder / "nowhere")[0] == 2


def test_a_run_from_python_cannot_be_resumed_without_its_model(folder, capsys):
    job = jobs.read_job(folder / "job.toml")
    sc.sample(job.model, job.data, job.params, num_samples=5, store=folder / "other", progress=False)
    status, _, err = call(capsys, "resume", folder / "other")
    assert status == 2
    assert "was not started from a configuration file" in err
    assert "sc.resume(" in err


def test_data_convert_and_info(folder, capsys):
    words = ("data", "convert", folder / "rows.csv", folder / "made", "--array", "x=f_*", "--array", "y=late")
    status, out, _ = call(capsys, *words)
    assert status == 0
    assert "200 × 2" in out
    status, out, _ = call(capsys, "data", "info", folder / "made", "--verify")
    assert status == 0
    assert "all checksums hold" in out
    assert call(capsys, *words)[0] == 2
    assert call(capsys, *words, "--overwrite")[0] == 0
    path = folder / "made" / "x.npy"
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\1\0")
    status, _, err = call(capsys, "data", "info", folder / "made", "--verify")
    assert status == 2
    assert "x.npy" in err
    for bad in ("x", "=a", "x="):
        status, _, err = call(capsys, "data", "convert", folder / "rows.csv", folder / "new", "--array", bad)
        assert status == 2
        assert "NAME=COLUMN" in err


def test_arrays_in_memory_and_numbers_as_start(folder):
    rows = sc.data.open(folder / "rows").read(0, 200)
    np.savez(folder / "rows.npz", **rows)
    text = (folder / "job.toml").read_text().replace('data = "rows"', 'data = "rows.npz"')
    (folder / "job.toml").write_text(text)
    job = jobs.read_job(folder / "job.toml")
    np.testing.assert_array_equal(job.data["x"], rows["x"])
    starts = {"params = [0.5, 1.0]": np.array([0.5, 1.0]), "params = {a = 1.0}": {"a": np.array(1.0)}}
    for written, expected in starts.items():
        lines = [written if line.startswith("params") else line for line in text.splitlines()]
        (folder / "job.toml").write_text("\n".join(lines))
        jax.tree.map(np.testing.assert_array_equal, jobs.read_job(folder / "job.toml").params, expected)


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ('store = "run"', "", InvalidValueError, "lacks `store`"),
        ('store = "run"', 'stroe = "run"', InvalidValueError, "Did you mean `store`"),
        ("num_samples = 60", "num_sample = 60", InvalidValueError, "Did you mean `num_samples`"),
        ('name = "SGLD"', 'name = "SGDL"', InvalidValueError, "Did you mean `SGLD`"),
        ('name = "SGLD"', "", InvalidValueError, "needs a `name`"),
        ("batch_size", "batchsize", InvalidValueError, "Did you mean `batch_size`"),
        ('"polynomial"', '"polinomial"', InvalidValueError, "Did you mean `polynomial`"),
        ("batch_size = 20", "batch_size = -1", InvalidValueError, "at least 1"),
        (':model"', ':modle"', InvalidValueError, "has no attribute 'modle'"),
        (':model"', ':not_a_model"', InvalidTypeError, "must name a sc.Model"),
        (':model"', '"', InvalidValueError, "form module:object"),
        ('model = "regr', 'model = "x.regr', InvalidValueError, "cannot be imported"),
        ('data = "rows"', 'data = "nothing"', InvalidValueError, "does not exist"),
        ('data = "rows"', 'data = "rows.csv"', InvalidValueError, "scirocco data convert rows.csv"),
        ('data = "rows"', "data = ", InvalidValueError, "is not TOML"),
    ],
)
def test_a_file_with_a_slip(folder, old, new, error, message):
    path = folder / "job.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(error, match=message):
        jobs.read_job(path)


def test_in_a_process_of_its_own(folder):
    """As typed; quiet where there is no terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "scirocco", "sample", "job.toml"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "60 draws" in done.stdout
