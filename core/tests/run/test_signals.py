"""Signals that end a process: the run commits first, and is resumed as if nothing had happened."""

import os
import signal
import subprocess
import sys
import textwrap

import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.run import records
from scirocco.store import Store, open_stored

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("quick_compiler")]

PROGRAM = """
import sys, jax.numpy as jnp, numpy as np, scirocco as sc
from scirocco.run.sizes import RUNNING
RUNNING.chunk_seconds = 0.02

def draw(num_samples=200_000, callbacks=(), **options):
    model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    return sc.sample(model, jnp.ones(100), jnp.array(1.0), sampler=sc.SGLD(1e-3), estimator=sc.Minibatch(10),
                     num_samples=num_samples, num_burnin=0, num_chains=2, progress=False, callbacks=callbacks,
                     **options)
"""
CHILD = """
import signal
for name in ("SIGTERM", "SIGHUP"):  # who starts the tests with nohup has them ignored
    signal.signal(getattr(signal, name), signal.SIG_DFL)
def tell(report):
    if report.step > 3_000:
        print("ready", flush=True)
draw(store=sys.argv[1], callbacks=[tell])
print("went on")
"""


@pytest.mark.rotates(2)
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no such signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_the_run_commits_and_the_process_ends(tmp_path, name):
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM + CHILD), str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "ready\n"
    child.send_signal(getattr(signal, name))
    out, err = child.communicate()
    assert child.returncode == 128 + getattr(signal, name) and "went on" not in out
    assert "Traceback" not in err and "interrupted after" in err
    _, reached = records.read(open_stored(tmp_path / "run"))
    assert reached.status == "interrupted" and 3_000 < reached.draws < 200_000
    names = {}
    exec(PROGRAM, names)
    whole, some = names["draw"](reached.draws + 100), sc.load(tmp_path / "run")
    np.testing.assert_array_equal(np.asarray(some.draws), whole.draws[:, : reached.draws])
    rest = names["draw"](reached.draws + 100, store=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(np.asarray(rest.draws), whole.draws)


def test_a_second_signal_commits_nothing_that_is_half_done(tmp_path):
    """The chains may have made different numbers of steps: the last commit counts."""
    committed = []

    def step():
        return records.read(open_stored(tmp_path / "run"))[1].step

    def twice(report):
        if report.step > 300:
            committed.append(step())  # 0, unless the machine is busy and a commit was due
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    names = {}
    exec(PROGRAM, names)
    with pytest.warns(sc.errors.SciroccoWarning, match="interrupted"):
        names["draw"](5_000, callbacks=[twice], store=tmp_path / "run")
    assert [step()] == committed


def test_handlers_of_the_program_stay(tmp_path):
    """Signals that the program handles itself are its own business; afterwards all are as before."""
    seen, before = [], signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
    try:

        def once(report):
            if not seen:
                signal.raise_signal(signal.SIGTERM)

        names = {}
        exec(PROGRAM, names)
        assert names["draw"](200, callbacks=[once]).status == "complete" and seen
    finally:
        signal.signal(signal.SIGTERM, before)
    names["draw"](200)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture
def read_only(monkeypatch):
    """From the call on, no store can be opened to be written."""

    def refuse(path):
        raise OSError(30, "Read-only file system", os.fspath(path))

    return lambda: monkeypatch.setattr(Store, "open", refuse)


def test_a_finished_run_on_a_disk_that_cannot_be_written(tmp_path, read_only):
    model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    options = {"sampler": sc.SGLD(1e-3), "estimator": sc.Minibatch(10), "progress": False}
    store = tmp_path / "run"
    sc.sample(model, jnp.ones(100), jnp.array(1.0), num_samples=50, store=store, **options)

    read_only()
    assert sc.resume(store, model, jnp.ones(100), progress=False).num_draws == 50
    again = sc.sample(model, jnp.ones(100), jnp.array(1.0), num_samples=50, store=store, resume=True, **options)
    assert again.status == "complete"
    with pytest.raises(OSError, match="Read-only"):
        sc.resume(store, model, jnp.ones(100), num_samples=60, progress=False)


def test_a_finished_fit_on_a_disk_that_cannot_be_written(tmp_path, read_only):
    pytest.importorskip("numba")
    counts = np.random.default_rng(0).poisson(1.0, (20, 15))

    def fit(**options):
        return sc.models.LDA(3, num_samples=2).fit(
            counts, num_steps=4, store=tmp_path / "run", progress=False, **options
        )

    first = fit()

    read_only()
    again = np.asarray(fit(resume=True).run_.draws["topics"])
    np.testing.assert_array_equal(again, np.asarray(first.run_.draws["topics"]))
    counts[3, 4] += 1
    with pytest.raises(sc.errors.InvalidValueError, match="values of `data` have changed"):
        fit(resume=True)
