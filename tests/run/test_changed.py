"""What is resumed is the run that was started: other data and other models are refused."""

import os

import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.errors import InvalidValueError

pytestmark = pytest.mark.compile

ROWS = 4_000


def rows():
    return np.random.default_rng(5).standard_normal(ROWS).astype(np.float32) + 1


def log_likelihood(mu, x):
    return -0.5 * (x - mu) ** 2


def log_prior(mu):
    return -0.005 * mu**2


MODEL = sc.Model(log_likelihood, log_prior)


def started(path, data, model=MODEL):
    sc.sample(
        model,
        data,
        jnp.array(1.0),
        sampler=sc.SGLD(1e-4),
        estimator=sc.Minibatch(50),
        num_samples=40,
        num_chains=2,
        store=path,
        progress=False,
    )
    return path


def test_data_of_which_a_sample_is_unchanged(tmp_path):
    """All rows are shifted but the 64 evenly spaced ones that versions before 0.2 looked at."""
    path, data = started(tmp_path / "run", rows()), rows() + 1
    kept = np.unique(np.linspace(0, ROWS - 1, 64).astype(int))
    data[kept] = rows()[kept]
    with pytest.raises(InvalidValueError, match="cannot be resumed with these data: `data` was"):
        sc.resume(path, MODEL, data, num_samples=60, progress=False)
    assert sc.resume(path, MODEL, rows(), num_samples=60, progress=False).num_draws == 60


@pytest.mark.parametrize("keeps_time", [False, True])
def test_a_data_folder_edited_in_place(tmp_path, keeps_time):
    source = sc.data.write(tmp_path / "rows", rows())
    path, file = started(tmp_path / "run", source), tmp_path / "rows" / "data.npy"
    status = os.stat(file)
    with open(file, "r+b") as opened:
        opened.seek(-2_000, os.SEEK_END)
        opened.write(np.full(200, 7, np.float32).tobytes())
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + (0 if keeps_time else 10**9)))
    with pytest.raises(InvalidValueError, match=r"`data.npy` in .* was changed after writing"):
        sc.resume(
            path, MODEL, sc.data.open(tmp_path / "rows"), num_samples=60, progress=False, verify=keeps_time
        )
