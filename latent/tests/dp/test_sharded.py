"""Mixtures whose labels are drawn on Dask workers: the same draws, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba", reason="mixtures need numba (the extra `compiled`)")
pytest.importorskip("distributed", reason="workers need Dask (the extra `cluster`)")

from scirocco.cluster.client import WAITS
from scirocco.cluster.client import local as local_cluster
from scirocco.errors import InvalidValueError
from scirocco_latent.dp import DPMixture, Gaussian, Multinomial
from scirocco_latent.dp.chain import row_kernels

pytestmark = pytest.mark.process

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 6, 1500)
SHARES = RNG.dirichlet(np.full(20, 0.2), 6)
ROWS = {
    "multinomial": np.stack([RNG.multinomial(8, SHARES[label]) for label in LABELS]),
    "gaussian": 5.0 * RNG.standard_normal((6, 3))[LABELS] + RNG.standard_normal((1500, 3)),
}
ROWS["multinomial"][5] = 0  # says nothing
ROWS["multinomial"][6] *= 10  # long: by logarithms


@pytest.fixture(scope="module")
def client():
    """Two workers; on a busy machine it takes minutes until one that was killed is replaced."""
    with local_cluster(2) as made, WAITS.changed(worker=1_200.0):
        yield made


def draws(kind: str, sampler: str, num_steps: int = 8, options: Any = None, **how: Any) -> Any:
    """Of one fit."""
    mixture = DPMixture(kind, sampler=sampler, batch_size=600, seed=3, num_samples=3, **options or {})
    run = mixture.fit(ROWS[kind], num_steps=num_steps, progress=False, **how).run_
    assert run is not None
    return run.draws | run.stats


def assert_same(left: Any, right: Any) -> None:
    """To the last bit."""
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(np.asarray(left[name]), np.asarray(right[name]))


@pytest.mark.rotates(2)
@pytest.mark.parametrize(
    ("kind", "sampler", "num_shards", "options"),
    [
        ("multinomial", "scir", 1, {}),
        ("multinomial", "scir", 2, {"num_chains": 2}),
        ("multinomial", "scir", 4, {"counts": "estimated"}),
        ("multinomial", "scir_cv", 3, {"refresh_size": 300}),
        ("multinomial", "sgrld", 2, {}),
        ("multinomial", "gibbs", None, {}),
        ("gaussian", "scir", 4, {}),
        ("gaussian", "gibbs", 2, {}),
    ],
)
def test_draws_are_those_of_one_process(client, kind, sampler, num_shards, options):
    there = draws(kind, sampler, options=options, client=client, num_shards=num_shards)
    assert_same(there, draws(kind, sampler, options=options))


@pytest.mark.rotates(2, "killed workers")
def test_a_killed_worker_changes_nothing(client):
    before = client.run(os.getpid)
    killed: list[int] = []

    def kill(report: Any) -> None:
        if not killed:
            killed.append(next(iter(before.values())))
            os.kill(killed[0], signal.SIGKILL)

    there = draws("multinomial", "scir", 20, client=client, callbacks=[kill])
    assert killed
    assert_same(there, draws("multinomial", "scir", 20))


def test_a_stored_fit_goes_on_with_and_without_workers(client, tmp_path):
    how: dict[str, Any] = {"store": tmp_path / "run"}

    def stop(report: Any) -> None:
        report.stop()

    for more in ({"client": client}, {"resume": True}):
        with pytest.raises(InvalidValueError, match="before its first draw"):
            draws("gaussian", "scir", callbacks=[stop], **how, **more)
    assert_same(draws("gaussian", "scir", client=client, resume=True, **how), draws("gaussian", "scir"))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]  # what was written for the workers is gone


@pytest.mark.parametrize("kind", ["multinomial", "gaussian"])
def test_rows_that_are_left_out_change_no_others(kind, seed):
    """A row has the random number of its place, whether or not its neighbours are there."""
    rng = np.random.default_rng(seed)
    base: Any = Multinomial() if kind == "multinomial" else Gaussian()
    family = base.resolve(ROWS[kind])
    data = family.kernel_data(family.rows(ROWS[kind]))
    parameters = family.parameter_arrays(8)
    for part in parameters:
        part[...] = rng.gamma(2.0, size=part.shape)
    batch = rng.permutation(1500)[:700]
    weights, bounds = np.full(8, 0.1), np.full(700, 0.01)
    before, seeds = np.zeros(1500, np.int32), np.array([seed, 1], np.uint64)
    whole, part = np.full(700, -1, np.int32), np.full(700, -1, np.int32)
    some = np.where(rng.random(700) < 0.3, batch, -1)
    for rows, chosen in ((batch, whole), (some, part)):
        row_kernels(kind).allocate(rows, data, parameters, weights, bounds, before, chosen, 8, seeds, 0, 3)
    np.testing.assert_array_equal(part, np.where(some >= 0, whole, -1))
    assert len(set(whole.tolist())) > 1


def test_what_workers_cannot_do_is_refused(client):
    with pytest.raises(InvalidValueError, match="one after another"):
        draws("multinomial", "collapsed", client=client)
    with pytest.raises(InvalidValueError, match="num_shards"):
        draws("multinomial", "scir", client=client, num_shards=0)
    with pytest.raises(InvalidValueError, match="num_shards"):
        draws("multinomial", "scir", num_shards=2)
