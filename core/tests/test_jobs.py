"""Runs from a file: `scirocco sample`, `resume`, `runs`, `data convert` and `data info`, as they are typed."""

from __future__ import annotations

import hmac
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import scirocco as sc
from scirocco import cli, jobs
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.jobs import job, zoo
from scirocco.store import files as store_files

pytestmark = pytest.mark.compile

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


@pytest.fixture(autouse=True, scope="module")
def _quick(quick_compiler):
    """Runs of a few dozen steps."""


@pytest.fixture
def folder(tmp_path):
    """All tests import the same module, so that what was compiled for its model is found again."""
    module = "regression_of_test_jobs"
    (tmp_path / f"{module}.py").write_text(MODULE)
    (tmp_path / "job.toml").write_text(CONFIG.format(module=module))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 2)).astype(np.float32)
    y = (rng.random(200) < 0.5).astype(np.float32)
    np.savetxt(tmp_path / "rows.csv", np.column_stack([x, y]), delimiter=",", header="f_a,f_b,late", comments="")
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
    assert "R-hat" in out
    run = sc.load(folder / "run")
    assert run.configuration["sampler"]["step_size"]["name"] == "Polynomial"
    status, out, _ = call(capsys, "resume", folder / "run", "--num-samples", 90)
    assert status == 0
    assert "2 chains × 90 draws" in out
    # the same in one go
    job = jobs.read_job(folder / "job.toml")
    whole = sc.sample(job.model, job.data, job.params, progress=False, **job.options | {"num_samples": 90})
    np.testing.assert_array_equal(np.asarray(sc.load(folder / "run").draws), whole.draws)


@pytest.mark.parametrize("case", ["inside the run", "of somebody else", "without a mark"])
def test_a_received_run_executes_nothing(folder, capsys, case, monkeypatch, tmp_path):
    """`notes.config` of a folder that somebody sent may name any file."""
    call(capsys, "sample", folder / "job.toml")
    place = folder / "run" if case == "inside the run" else folder / "sent"
    place.mkdir(exist_ok=True)
    (place / "sent_code.py").write_text(f"open({str(folder / 'executed')!r}, 'w')" + MODULE)
    text = (folder / "job.toml").read_text().replace("regression_of_test_jobs", "sent_code")
    (place / "job.toml").write_text(text.replace('"rows"', '"../rows"'))
    file = folder / "run" / "scirocco" / "run.json"
    content = json.loads(file.read_text())["content"]
    name = str(place / "job.toml")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    mark = {} if case == "without a mark" else {"config_mark": job.signature(name)}
    if case == "of somebody else":
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    content["record"]["notes"] = {"config": name} | mark
    store_files.write_document(str(file), content)
    status, _, err = call(capsys, "resume", folder / "run", "--num-samples", 90)
    assert status == 2 and f"--config {name}" in err
    assert not (folder / "executed").exists()
    assert name not in call(capsys, "diagnose", folder / "run")[1]
    status, _, err = call(capsys, "resume", folder / "run", "--num-samples", 90, "--config", folder / "job.toml")
    assert (status, err) == (0, "") and not (folder / "executed").exists()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs owners of files")
@pytest.mark.parametrize("case", ["empty", "link", "readable", "another user's", "long"])
def test_a_key_that_others_can_know_signs_nothing(monkeypatch, tmp_path, case):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    signed = job.signature("job.toml")
    assert job.signature("job.toml") == signed
    key = tmp_path / "state" / "scirocco" / "key"
    if case in ("empty", "long"):
        key.write_bytes(b"" if case == "empty" else b"k" * 64)
    elif case == "link":
        theirs = tmp_path / "theirs"
        theirs.write_bytes(key.read_bytes())
        theirs.chmod(0o600)
        key.unlink()
        key.symlink_to(theirs)
    elif case == "readable":
        key.chmod(0o644)
    else:
        owner = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    known = key.read_bytes()
    again = job.signature("job.toml")
    assert again != signed and again != hmac.new(known, b"job.toml", "sha256").hexdigest()
    assert key.is_file() and not key.is_symlink() and key.stat().st_mode & 0o777 == 0o600
    if case == "link":
        assert theirs.read_bytes() == known
    if case != "another user's":
        assert job.signature("job.toml") == again


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
    options = {"sampler": sc.SGLD(1e-3), "estimator": sc.Minibatch(20), "progress": False}
    sc.sample(job.model, job.data, job.params, num_samples=5, store=folder / "other", **options)
    status, _, err = call(capsys, "resume", folder / "other")
    assert status == 2
    assert "was not started from a configuration file" in err
    assert "Resume it in Python, sc.resume(" in err and "scirocco resume" not in err and "--config" in err


def test_data_convert_and_info(folder, capsys):
    words = ("data", "convert", folder / "rows.csv", folder / "made", "--array", "x=f_*", "--array", "y=late")
    status, out, _ = call(capsys, *words)
    assert status == 0
    assert "200 × 2" in out
    status, out, _ = call(capsys, "data", "info", folder / "made", "--verify")
    assert status == 0
    assert "all checksums match" in out
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
    (folder / "job.toml").write_text(text.replace("rows.npz", "rows.csv"))
    (folder / "rows.csv").write_text("x,y\n1.5,2\n2.5,3\n")
    columns = jobs.read_job(folder / "job.toml").data
    assert {name: column.tolist() for name, column in columns.items()} == {"x": [1.5, 2.5], "y": [2, 3]}
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
        ('name = "SGLD"', "", InvalidValueError, "requires a `name`"),
        ("batch_size", "batchsize", InvalidValueError, "Did you mean `batch_size`"),
        ('"polynomial"', '"polinomial"', InvalidValueError, "Did you mean `polynomial`"),
        ("tau =", "tua =", InvalidValueError, "Did you mean `tau`"),
        ("batch_size = 20", "batch_size = -1", InvalidValueError, "at least 1"),
        (':model"', ':modle"', InvalidValueError, "has no attribute 'modle'"),
        (':model"', ':not_a_model"', InvalidTypeError, "must name a sc.Model"),
        (':model"', '"', InvalidValueError, "form module:object"),
        ('model = "regr', 'model = "x.regr', InvalidValueError, "cannot be imported"),
        ('data = "rows"', 'data = "nothing"', InvalidValueError, "no file or folder"),
        ('data = "rows"', 'data = "job.toml"', InvalidValueError, "files of this kind cannot be read"),
        ('data = "rows"', "data = ", InvalidValueError, "is not TOML"),
    ],
)
def test_a_file_with_a_slip(folder, old, new, error, message):
    path = folder / "job.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(error, match=message):
        jobs.read_job(path)


def test_a_table_in_the_place_of_a_file(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("age,bought\n51,1\n")
    with pytest.raises(InvalidValueError, match=r"not TOML: .* scirocco data convert own.csv FOLDER.* --example"):
        jobs.read_job(path)


@pytest.mark.rotates(2, "processes")
@pytest.mark.process
def test_in_a_process_of_its_own(folder):
    """As typed; quiet where there is no terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "scirocco", "sample", "job.toml"],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "60 draws" in done.stdout


# -- models by name ---------------------------------------------------------------------------------------------------


def by_name(folder, model, y=None, **run):
    """A configuration with a model of the zoo."""
    rows = sc.data.open(folder / "rows").read(0, 200)
    np.savez(folder / "rows.npz", x=rows["x"], y=rows["y"] if y is None else y)
    lines = [f"model = {model}", 'data = "rows.npz"', 'store = "named"', "[sampler]", 'name = "SGLD"']
    lines += ["step_size = 1e-3", "[estimator]", 'name = "Minibatch"', "batch_size = 20", "[run]"]
    lines += ["num_samples = 40"]
    path = folder / "named.toml"
    path.write_text("\n".join([*lines, *(f"{key} = {value}" for key, value in run.items())]))
    return path


@pytest.mark.parametrize("name", zoo.families())
def test_densities_of_the_zoo(name, seed):
    """Up to what does not depend on the parameters, against SciPy."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal(3), float(rng.integers(0, 2))
    known = zoo.of_name(name)(zoo.RowFacts(3, np.array([0.0, 1.0])), scale=0.7)
    row = {"x": jnp.asarray(x), "y": jnp.asarray(y)}

    def there():
        params = jax.tree.map(lambda p: rng.standard_normal(p.shape), known.params)
        return params | {key: 1.3 + rng.random() for key in ("noise", "dispersion", "freedom") if key in params}

    def expected(params):
        eta, shape = params["coef"] @ x + params["intercept"], 1 / params.get("dispersion", 1.0)
        likelihood = {
            "logistic": lambda: stats.bernoulli.logpmf(y, special.expit(eta)),
            "linear": lambda: stats.norm.logpdf(y, eta, params.get("noise")),
            "poisson": lambda: stats.poisson.logpmf(y, np.exp(eta)),
            "negative_binomial": lambda: stats.nbinom.logpmf(y, shape, shape / (shape + np.exp(eta))),
            "student": lambda: stats.t.logpdf(y, params["freedom"], eta, params["noise"]),
            "softmax": lambda: special.log_softmax(eta)[int(y)],
        }[name]()
        prior = stats.norm.logpdf(params["coef"], 0, 0.7).sum()
        prior += stats.norm.logpdf(params["intercept"], 0, 7.0).sum()
        of_noise = stats.norm if name == "linear" else stats.expon
        laws = {"noise": of_noise, "dispersion": stats.expon, "freedom": stats.gamma(2, scale=10)}
        prior += sum(law.logpdf(params[key]) for key, law in laws.items() if key in params)
        return likelihood, prior

    def ours(params):
        return known.model.log_likelihood(params, row), known.model.log_prior(params)

    a, b = there(), there()
    found = np.subtract(ours(a), ours(b))
    np.testing.assert_allclose(found, np.subtract(expected(a), expected(b)), rtol=1e-4, atol=1e-4)


def test_a_model_by_name(folder, capsys):
    """As the file says it, to the draws and on; --json for programs."""
    path = by_name(folder, '{name = "logistic", scale = 2.0, intercept = false}', num_chains=2)
    status, out, err = call(capsys, "sample", path, "--json", "--seed", 3)
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["status"] == "complete" and found["num_draws"] == 40 and found["configuration"]["seed"] == 3
    assert set(found["summary"]) == {"coef[0]", "coef[1]"}
    assert call(capsys, "resume", folder / "named", "--num-samples", 50)[0] == 0
    assert sc.load(folder / "named").num_draws == 50


def test_a_model_by_name_keeps_the_names_of_the_columns(folder, capsys):
    """From the table to what is printed, and to JSON; a store that was resumed still knows them."""
    convert = ("data", "convert", folder / "rows.csv", folder / "of_table", "--array", "x=f_a,f_b", "--array", "y=late")
    assert call(capsys, *convert)[0] == 0
    path = by_name(folder, '"logistic"', num_chains=2)
    path.write_text(path.read_text().replace('"rows.npz"', '"of_table"'))
    status, out, _ = call(capsys, "sample", path)
    assert status == 0 and "coef[f_a]" in out and "coef[f_b]" in out and "coef[0]" not in out
    status, out, _ = call(capsys, "resume", folder / "named", "--num-samples", 50, "--json")
    assert list(json.loads(out)["summary"]) == ["coef[f_a]", "coef[f_b]", "intercept"]
    run = sc.load(folder / "named")
    assert list(run.summary().index) == ["coef[f_a]", "coef[f_b]", "intercept"]
    assert list(run.to_arviz().posterior["coef"]["coef_dim_0"].values) == ["f_a", "f_b"]
    assert "coef[f_" in call(capsys, "diagnose", folder / "named")[1]


def test_the_command_line_comes_before_the_file(folder, capsys):
    path = by_name(folder, '"logistic"', num_chains=1)
    words = ("--out", folder / "other", "--num-samples", 30, "--chains", 2)
    assert call(capsys, "sample", path, *words)[0] == 0
    run = sc.load(folder / "other")
    assert (run.num_chains, run.num_draws) == (2, 30) and not (folder / "named").exists()
    status, _, err = call(capsys, "sample", path, "--resume", "--overwrite")
    assert status == 2 and "not both" in err


@pytest.mark.parametrize(
    ("model", "y", "message"),
    [
        ('"logistik"', None, "Did you mean `logistic`"),
        ('{name = "logistic", scal = 1.0}', None, "Did you mean `scale`"),
        ('{name = "logistic", scale = -1.0}', None, "scale"),
        ('{name = "logistic", intercept = 1}', None, "true or false"),
        ('"logistic"', np.full(200, 2.0), "`y` of a bernoulli model must be 0 or 1, got"),
        ('"poisson"', np.full(200, 0.5), "`y` of a poisson model must be a count"),
        ('"linear"', np.zeros((200, 2)), "`y` of shape"),
        ('"softmax"', np.array(["late", "early"] * 100), "`y` of rows.npz .* holds text"),
        ("3", None, "must be a name in quotes, got 3"),
    ],
)
def test_a_slip_with_a_name(folder, model, y, message):
    with pytest.raises((InvalidValueError, InvalidTypeError), match=message):
        jobs.read_job(by_name(folder, model, y))


def test_data_without_the_arrays_of_a_named_model(folder):
    path = by_name(folder, '"linear"')
    np.savez(folder / "rows.npz", features=np.ones((5, 2)), late=np.ones(5))
    with pytest.raises(InvalidValueError, match=r"these hold features, late\. Make them with: scirocco data"):
        jobs.read_job(path)


def test_a_module_that_fails_is_told_in_one_line(folder, capsys):
    (folder / "fails_on_import.py").write_text("x = 1\ny = 1 / 0\n")
    text = (folder / "job.toml").read_text().replace('model = "', 'model = "fails_on_import:model" #', 1)
    (folder / "job.toml").write_text(text)
    status, _, err = call(capsys, "sample", folder / "job.toml")
    assert status == 2 and len(err.splitlines()) == 1
    assert "ZeroDivisionError" in err and "fails_on_import.py, line 2" in err


@pytest.mark.parametrize("name", jobs.examples())
def test_examples_work(name, tmp_path, capsys, quick_compiler):
    """As they are printed, as soon as the rows are there."""
    with pytest.raises(SystemExit) as end:
        cli.main(["sample", "--example", name])
    text = capsys.readouterr().out
    assert end.value.code == 0 and max(map(len, text.splitlines())) <= 80
    (tmp_path / "job.toml").write_text(text.replace('data = "rows"', 'data = "rows.npz"'))
    code = [line[4:] for line in text.splitlines() if line.startswith("#   ")]
    module = f"regression_of_{name}"  # Python keeps what it has imported
    (tmp_path / f"{module}.py").write_text("\n".join(code))
    (tmp_path / "job.toml").write_text((tmp_path / "job.toml").read_text().replace("regression:", f"{module}:"))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 2)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", x=x, y=rng.integers(0, 2, 300).astype(np.float32))
    options = {"num_samples": 8, "num_burnin": 2, "num_chains": 1}
    job = jobs.read_job(tmp_path / "job.toml", options)
    assert job.options["num_samples"] == 8
    if name == "own":  # the others differ in the model only, which has been made by now
        assert jobs.start(job, progress=False).num_draws == 8


def test_an_example_with_a_slip(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["sample", "--example", "logstic"])
    assert end.value.code == 2 and "Did you mean `logistic`?" in capsys.readouterr().err
    with pytest.raises(SystemExit) as end:
        cli.main(["sample"])
    assert end.value.code == 2 and "--example logistic > job.toml" in capsys.readouterr().err
