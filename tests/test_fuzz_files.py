"""Random damage to every file format: what is read is what was written, or an error of the library in a sentence."""

from __future__ import annotations

import contextlib
import io
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import scirocco as sc
from fuzzing import DAMAGES, JSON, Folder, examples, finite, given, refused_or_done, st
from scirocco import cli, run
from scirocco.run.sizes import RUNNING
from scirocco.store import Store, open_stored

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

MODEL = sc.Model(
    lambda params, x: -0.5 * jnp.sum((x - params["mean"]) ** 2), lambda params: -params["mean"] @ params["mean"]
)
ROWS = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
START = {"mean": np.zeros(2, np.float32)}
METHOD = {"sampler": sc.SGLD(1e-3), "estimator": sc.Minibatch(10), "progress": False}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def stored(place):
    """A run of 30 draws that was stopped before its end, and all its draws."""
    path = place / "run"
    options = {"num_samples": 60, "num_chains": 2, "keep_gradients": True, "store": path, "notes": {"a": "b"}}

    def stop(report):
        if report.draws is not None and report.step >= 30:
            report.stop()

    with RUNNING.changed(first_chunk=30):
        made = sc.sample(MODEL, ROWS, START, callbacks=[stop, lambda report: {"score": 1.0}], **METHOD, **options)
    assert 0 < made.num_draws < 60
    return Folder(path), np.asarray(made.draws["mean"])


@examples(30)
@given(st.data())
def test_stored_runs(place, stored, data):
    """Other values without an error only where somebody changed a document and its checksum."""
    folder, wanted = stored
    where = place / "damaged-run"
    _, kind = folder.damaged(where, data, DAMAGES)
    with refused_or_done():
        found = sc.load(where)
        draws = np.asarray(found.draws["mean"])
        if kind != "value":
            np.testing.assert_array_equal(draws, wanted)
        finite(draws)
        found.summary()
    with refused_or_done():
        opened = open_stored(where)
        for arrays in opened.arrays.values():
            for array in arrays.values():
                np.asarray(array)
    with refused_or_done():
        open_stored(where).verify()
    with refused_or_done():
        Store.open(where).close()
    with refused_or_done():
        run.list_runs(place)
    with refused_or_done():
        done = sc.resume(where, MODEL, ROWS, num_samples=40, progress=False)
        finite(done.draws)
        if kind != "value" and done.num_draws >= wanted.shape[1]:
            np.testing.assert_array_equal(np.asarray(done.draws["mean"])[:, : wanted.shape[1]], wanted)


@pytest.fixture(scope="module")
def rows(place):
    sc.data.write(place / "rows", {"x": ROWS, "y": np.arange(40, dtype=np.float32) / 40}, shuffle=False)
    return Folder(place / "rows")


@examples(60)
@given(st.data())
def test_data_folders(place, rows, data):
    where = place / "damaged-rows"
    name, kind = rows.damaged(where, data, DAMAGES)
    with refused_or_done():
        source = sc.data.open(where)
        source.verify()
        found = source.read(0, source.num_rows)
        if kind != "value" and name.endswith(".npy"):
            np.testing.assert_array_equal(found["x"], ROWS)
        source.take(np.arange(source.num_rows)[::-1])
        sc.data.describe(source)
    with refused_or_done():
        sc.data.open(where).fingerprint()
    with refused_or_done():
        sc.data.write(where, ROWS, overwrite=True)


COUNTS = sp.csr_array(np.random.default_rng(1).poisson(0.7, (30, 8)))


@pytest.fixture(scope="module")
def corpus(place):
    sc.data.write_corpus(place / "corpus", COUNTS, shuffle=False)
    return Folder(place / "corpus")


@examples(60)
@given(st.data())
def test_corpora(place, corpus, data):
    where = place / "damaged-corpus"
    name, kind = corpus.damaged(where, data, DAMAGES)
    if kind == "cut" and name.endswith(".npy") and data.draw(st.booleans(), label="inside"):
        shutil.copyfile(corpus.path / name, where / name)  # other numbers, of the right size
        array = np.load(where / name, mmap_mode="r+")
        value = data.draw(st.sampled_from([-1, 0, 7, 8, 10**6, 2**31 - 1, -(2**31)]), label="value")
        array[data.draw(st.integers(0, len(array) - 1), label="at")] = value
        array.flush()
    with refused_or_done():
        source = sc.data.CorpusSource(where)
        source.take(np.arange(source.num_rows))
        source.read(0, source.num_rows)
        sc.models.lda.as_corpus(where)
    if data.draw(st.integers(0, 4), label="fit") == 0:
        with refused_or_done():
            model = sc.models.LDA(2, num_samples=2, num_threads=1, batch_size=10)
            finite(model.fit(where, num_steps=3, progress=False).run_.draws)


# -- the command line -------------------------------------------------------------------------------------------------


def typed(*words):
    """What a command ends with: 0, or 1 or 2 and a line for the user; never a traceback."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), refused_or_done():
        try:
            cli.main([str(word) for word in words])
            code = 0
        except SystemExit as end:
            code = end.code
    assert code in (0, 1, 2), code
    assert "Traceback" not in err.getvalue() and (code == 0 or err.getvalue() or out.getvalue())
    return code


CONFIG = {
    "model": '"linear"',
    "data": '"rows"',
    "store": '"made"',
    "params": "{coef = [0.0, 0.0], intercept = 0.0}",
    "sampler": '{name = "SGLD", step_size = 1e-3}',
    "estimator": '{name = "Minibatch", batch_size = 10}',
    "run": "{num_samples = 5, num_chains = 1, seed = 1}",
}
TOML = ["3", "-1", "nan", "inf", '""', '"x"', '"../../x"', "[]", "[1, 2]", "{}", "true", "1979-05-27", '"os:system"']
TOML += [
    "{name = 3}",
    '{name = "SGLD"}',
    '{name = "SGLD", step_size = "auto"}',
    '{name = "Minibatch", batch_size = -1}',
]
TOML += [
    '{schedule = "polynomial"}',
    '{name = "SGLD", step_size = {schedule = "polynomial", start = -1}}',
    "{seed = -1}",
]
TOML += [
    "{num_samples = 1e3}",
    '{num_samples = 5, keep_draws = "x"}',
    '{mean = "a"}',
    "{mean = [[0.0], [1.0, 2.0]]}",
    '"\\u0000"',
]


@examples(40)
@given(st.data())
def test_configuration_files(place, rows, data):
    written = dict(CONFIG)
    for key in data.draw(st.sets(st.sampled_from(sorted(CONFIG)), max_size=2), label="changed"):
        written[key] = data.draw(st.sampled_from([None, *TOML]), label=key)
    text = "\n".join(f"{key} = {value}" for key, value in written.items() if value is not None)
    if data.draw(st.integers(0, 3), label="noise") == 0:
        at = data.draw(st.integers(0, len(text)), label="at")
        text = text[:at] + data.draw(st.text(max_size=6), label="text") + text[at:]
    (place / "job.toml").write_bytes(text.encode("utf-8", "replace"))
    typed("sample", place / "job.toml", "--overwrite")


CELLS = st.one_of(
    st.sampled_from(["1", "2.5", "", "nan", "NA", "a", "-0", "1e400", "0x1", '"', ",", "\0", "ü", "\r", "1;2", "True"]),
    st.text(max_size=4),
)


@examples(40)
@given(st.lists(st.lists(CELLS, max_size=4), max_size=5), st.sampled_from([",", "\t", ";"]), st.binary(max_size=4))
def test_tables(place, lines, separator, noise):
    text = "\n".join(separator.join(line) for line in lines)
    (place / "table.csv").write_bytes(text.encode("utf-8", "surrogatepass") + noise)
    shutil.rmtree(place / "converted", ignore_errors=True)
    with refused_or_done():
        source = sc.data.convert(place / "table.csv", place / "converted")
        finite(source.read(0, source.num_rows))


ARCHIVES = st.sampled_from(
    ["npy", "npz", "parquet", "feather", "arrow", "h5", "zarr", "csv.gz", "mtx", "txt", "svm", ""]
)


@examples(25)
@given(ARCHIVES, st.one_of(st.binary(max_size=60), JSON.map(lambda value: repr(value).encode("utf-8", "replace"))))
def test_other_files(place, ending, content):
    path = place / f"file.{ending}"
    path.write_bytes(content)
    shutil.rmtree(place / "converted", ignore_errors=True)
    with refused_or_done():
        sc.data.convert(path, place / "converted")
    with refused_or_done():
        sc.models.lda.as_corpus(path)


COMMANDS = ["verify", "report", "watch", "runs", "diagnose", "topics show", "cluster show", "data info", "resume"]


@examples(25)
@given(st.sampled_from(COMMANDS), st.data())
def test_commands_on_damaged_folders(place, stored, rows, command, data):
    folder, where = (rows if command == "data info" else stored[0]), place / "damaged-command"
    folder.damaged(where, data, DAMAGES)
    words = [*command.split(), where]
    typed(*words, *(["--out", place / "report.html"] if command == "report" else []))
