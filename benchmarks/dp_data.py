"""Data of the mixture benchmarks: msweb, and users that are made of known clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

NUM_CLUSTERS, WIDTH, VISITS = 20, 300, 3.0


def msweb(folder: Path | None = None) -> Any:
    """From the folder, SCIROCCO_DATA or the cache; failing that from ../shared/data beside the repository."""
    from scirocco import datasets, errors

    try:
        return datasets.msweb(folder)
    except errors.InvalidValueError:
        beside = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
        if folder is not None or not (beside / "msweb").is_dir():
            raise
        return datasets.msweb(beside)


def synthetic(num_users: int, seed: int = 0) -> sp.csr_matrix:
    """Users of 20 clusters over 300 categories, 1 + Poisson(2) visits each."""
    rng = np.random.default_rng(seed)
    tables = rng.dirichlet(np.full(WIDTH, 0.05), NUM_CLUSTERS).cumsum(axis=1)
    cluster = rng.choice(NUM_CLUSTERS, num_users, p=rng.dirichlet(np.full(NUM_CLUSTERS, 5.0)))
    lengths = 1 + rng.poisson(VISITS - 1, num_users)
    owner = np.repeat(np.arange(num_users, dtype=np.int64), lengths)
    drawn = rng.random(len(owner))
    word = np.empty(len(owner), np.int64)
    for number, table in enumerate(tables):
        mine = cluster[owner] == number
        word[mine] = np.minimum(np.searchsorted(table, drawn[mine]), WIDTH - 1)
    ones = np.ones(len(owner), np.int32)
    matrix = sp.csr_matrix((ones, (owner, word)), shape=(num_users, WIDTH))
    matrix.sum_duplicates()
    return matrix


def marginal(rows: Any, a: float, width: int) -> np.ndarray:
    """p(x) of each row, as ordered visits, under the base measure Dir(a): the visits one after the other."""
    lengths = np.asarray(rows.sum(axis=1)).ravel().astype(int)
    out = np.zeros(rows.shape[0])
    counts = rows.data.astype(float)
    for number in range(int(counts.max(initial=0))):
        with np.errstate(divide="ignore"):
            part = np.where(counts > number, np.log(a + number), 0.0)
        out += np.bincount(np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), part, rows.shape[0])
    steps = np.append(0.0, np.log(a * width + np.arange(lengths.max(initial=0))).cumsum())
    return np.exp(out - steps[lengths])
