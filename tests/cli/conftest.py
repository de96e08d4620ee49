"""What the commands are tried on: small files and stored runs, made once for all tests of this folder."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import scirocco as sc
from scirocco import cli


class Place(NamedTuple):
    """A folder with everything in it."""

    root: Path

    def __getattr__(self, name):
        known = {
            "config": "job.toml",
            "rows": "rows.npz",
            "folder": "rows",
            "table": "table.csv",
            "text": "lines.txt",
            "run": "run",
            "topics": "topics",
            "clusters": "clusters",
            "states": "states",
            "edges": "edges.csv",
            "blocks": "blocks",
            "damaged": "damaged",
        }
        return self.root / known[name]


CONFIG = """
model = "logistic"
data = "rows.npz"
store = "run"

[sampler]
name = "SGLD"
step_size = 1e-3

[estimator]
name = "Minibatch"
batch_size = 20

[run]
num_samples = {num_samples}
num_chains = 2
"""


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """Rows, a table, a text, a configuration; runs of a regression, a topic model and a mixture; a damaged run."""
    here = Place(tmp_path_factory.mktemp("place"))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 2)).astype(np.float32)
    rows = {"x": x, "y": (rng.random(200) < 0.5).astype(np.float32)}
    np.savez(here.rows, **rows)
    sc.data.write(here.folder, rows)
    centres = rng.choice([-4.0, 4.0], 40)
    table = centres[:, None] + rng.standard_normal((40, 2))
    np.savetxt(here.table, table, delimiter=",", header="wide,high", comments="")
    ends = np.sort(rng.permuted(np.tile(np.arange(20), (60, 1)), axis=1)[:, :2], axis=1)
    np.savetxt(here.edges, np.unique(ends, axis=0), "%d", ",", header="source,target", comments="")
    words = (["sun", "moon", "star", "comet"], ["cow", "horse", "sheep", "goat"])
    here.text.write_text("".join(" ".join(rng.choice(words[d % 2], 12)) + "\n" for d in range(40)))
    here.config.write_text(CONFIG.format(num_samples=60))
    assert call("sample", here.config)[0] == 0
    (here.root / "broken").mkdir()
    sc.load(here.run).save(here.damaged)
    (here.damaged / "scirocco" / "commit.json").write_text("{}")
    return here


@pytest.fixture(scope="session")
def fitted(place):
    """The place with a topic model, a mixture, a hidden Markov model and a block model, fitted by their commands."""
    pytest.importorskip("numba", reason="topic models and mixtures need numba (the extra `compiled`)")
    short = ("--epochs", "10", "--threads", "1")
    fit = ("topics", "fit", place.text, "--topics", "2", "--min-documents", "1", "--held-out", "0")
    long = ("--epochs", "200", "--threads", "1")  # draws that `topics show` does not warn of
    assert call(*fit, "--batch-size", "20", *long, "--out", place.topics)[0] == 0
    assert call("cluster", "fit", place.table, *short, "--chains", "1", "--out", place.clusters)[0] == 0
    assert call("hmm", "fit", place.table, *short, "--chains", "1", "--out", place.states)[0] == 0
    fit = ("network", "fit", place.edges, "--epochs", "20", "--chains", "1", "--starts", "1")
    assert call(*fit, "--out", place.blocks)[0] == 0
    return place


def call(*words):
    """Exit status, for fixtures, which may not capture."""
    with pytest.raises(SystemExit) as end:
        cli.main([str(word) for word in words])
    return (end.value.code,)


@pytest.fixture
def say(capsys):
    """Exit status, stdout and stderr of a command line, in this process."""

    def run(*words):
        capsys.readouterr()
        (status,) = call(*words)
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


@pytest.fixture
def typed():
    """As typed, in a process of its own."""

    def run(*words, **options):
        command = [sys.executable, "-m", "scirocco", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, **options)

    return run
