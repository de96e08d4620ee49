"""What the tests of clusters share, where workers can import it: models, data, and jobs that wait, fail or die."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time

import jax.numpy as jnp
import numpy as np

import scirocco as sc
from scirocco.run.sizes import RUNNING

PRIOR_MEAN, PRIOR_PRECISION = 5.0, 100.0


def log_likelihood(mu, x):
    return -0.5 * (x - mu) ** 2


def log_prior(mu):
    return -0.5 * PRIOR_PRECISION * (mu - PRIOR_MEAN) ** 2


GAUSSIAN = sc.Model(log_likelihood, log_prior)


def scaled_likelihood(params, row):
    z = (row["x"][0] - params["mean"]) / params["scale"]
    return -0.5 * z**2 - jnp.log(params["scale"])


def scaled_prior(params):
    return -0.5 * params["mean"] ** 2 - 3.0 * params["scale"]


SCALED = sc.Model(scaled_likelihood, scaled_prior, transforms={"mean": None, "scale": sc.transforms.positive})
START = {"mean": np.float32(0.0), "scale": np.float32(1.0)}


def rows(num_rows, seed=0):
    """A data set whose tree is not flat."""
    x = np.random.default_rng([seed, 8]).normal(2.0, 1.5, size=num_rows)
    return {"x": (x.astype(np.float32),)}


# -- jobs ----------------------------------------------------------------------------------------------------


def square(job, tell):
    for step in range(3):
        tell(step + 1)
    return job**2, os.getpid()


def keep(job, tell, params):
    return params


def wait_or_fail(job, tell):
    """The job 'fail' fails at once; the others work for an hour, or until they are told to end."""
    if job == "fail":
        raise sc.errors.InvalidValueError("this cannot work.")
    if job == "break":
        raise KeyError("lost")
    for step in range(36_000):
        time.sleep(0.1)
        tell(step)


def wait_for(path):
    """Until the file is there."""
    while not os.path.exists(path):
        time.sleep(0.05)


def die_once(path, tell):
    """Kill the own process, the first time."""
    tell(1)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def die(job, tell):
    os.kill(os.getpid(), signal.SIGKILL)


def die_after_a_commit(flag):
    """On workers: commit after every chunk, and the first of them to commit draws is killed right after that."""
    often = contextlib.ExitStack()
    often.enter_context(RUNNING.changed(chunk_seconds=0.002, commit_seconds=0.0, commit_share=1e9))
    inner = os.replace

    def replace(draft, path):
        inner(draft, path)
        if os.path.basename(path) != "commit.json":
            return
        with open(path) as file:
            progress = json.load(file)["content"]["progress"]
        if os.path.exists(flag):  # commits cost more than draws
            often.close()
        elif progress["draws"] and progress["status"] == "running":
            with contextlib.suppress(FileExistsError), open(flag, "x") as file:
                folder = os.path.dirname(os.path.dirname(path))
                file.write(json.dumps({"pid": os.getpid(), "path": folder, "step": progress["step"]}))
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace


OFTEN = {"commit_seconds": 0.05, "commit_share": 1.0, "chunk_seconds": 0.02}
"""Chunks and commits many times a second, so that a short run has several."""


def commit_often():
    """On a worker."""
    vars(RUNNING).update(OFTEN)
