"""`sc.sample(client=...)`: chains on Dask workers make the draws of one process."""

import contextlib
import itertools
import os
import signal
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest

import helpers
import scirocco as sc
import sharding
from scirocco.run.loading import list_runs
from scirocco.run.on_cluster import ChainTask, Shared, draw
from scirocco.run.run_group import CHAINS
from scirocco.store import JoinedArray, holds_run, open_stored

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("quick_compiler")]

pytest.importorskip("distributed")

CHANGES = {"num_samples": 40, "num_burnin": 10, "num_chains": 3, "seed": 4, "progress": False}


@pytest.fixture(scope="module")
def client():
    with sc.cluster.local(2) as found:
        yield found


def sample(**changes):
    """With what is chosen from the data left open: mode and step size."""
    options = CHANGES | {"estimator": sc.ControlVariates(10)} | changes
    return sc.sample(sharding.SCALED, sharding.rows(200), sharding.START, **options)


@pytest.fixture(scope="module")
def alone():
    return sample(reducers={"moments": sc.reducers.Moments()})


@pytest.mark.rotates(3, "chains on workers")
def test_chains_on_workers_make_the_draws_of_one_process(client, alone):
    run = sample(client=client, reducers={"moments": sc.reducers.Moments()})
    helpers.assert_equal(run.draws, alone.draws)
    helpers.assert_equal(run.stats, alone.stats)
    helpers.assert_equal(run.reduced, alone.reduced)
    # only stored data are hashed in full
    assert run.configuration | {"data": ""} == alone.configuration | {"data": ""}
    assert run.path is None
    assert isinstance(run.draws["mean"], np.ndarray)


@pytest.mark.rotates(3, "chains on workers")
def test_a_store_of_chains_is_opened_and_gone_on_with(client, alone, tmp_path):
    path = tmp_path / "run"
    run = sample(client=client.scheduler.address, store=path, num_samples=25)
    assert run.draws["mean"].shape == (3, 25)
    assert not (path / "data").exists(), "rows for the workers are left behind"
    with pytest.raises(ValueError, match="holds chains already"):
        sample(client=client, store=path)
    with pytest.raises(ValueError, match=r"asked.seed. was 4 and is now 5"):
        sample(client=client, store=path, resume=True, seed=5)
    for other in (client, None):
        with pytest.raises(ValueError, match="with these data: the values of `data` have changed"):
            sc.resume(path, sharding.SCALED, sharding.rows(200, seed=9), num_samples=30, client=other)
    with pytest.raises(ValueError, match="already has 25 draws"):
        sc.resume(path, sharding.SCALED, sharding.rows(200), num_samples=20, client=client)
    # what a client that was killed has left is not taken for the rows
    sc.data.write(path / "data", {"array000": sharding.rows(200, seed=9)["x"][0]}, shuffle=False)
    more = sc.resume(path, sharding.SCALED, sharding.rows(200), num_samples=30, client=client, progress=False)
    assert not (path / "data").exists()
    assert more.num_draws == 30
    # and without workers, by either way
    sc.resume(path, sharding.SCALED, sharding.rows(200), num_samples=35, progress=False)
    whole = sample(store=path, resume=True)
    helpers.assert_equal(
        {name: np.asarray(leaf) for name, leaf in whole.draws.items()},
        {name: np.asarray(leaf) for name, leaf in alone.draws.items()},
    )
    loaded = sc.load(path)
    assert loaded.configuration["num_chains"] == 3
    assert loaded.draws["mean"].shape == (3, 40)
    summary = loaded.summary()
    assert summary["r_hat"].notna().all()
    (entry,) = list_runs(path)  # one run, not three
    assert (entry["kind"], entry["num_chains"], entry["draws"]) == ("chains", 3, 40)
    loaded.save(tmp_path / "copy")
    helpers.assert_equal(np.asarray(sc.load(tmp_path / "copy").draws["scale"]), alone.draws["scale"])


@pytest.mark.rotates(3, "chains on workers")
def test_what_is_in_the_way_is_named_and_overwritten(client, tmp_path):
    path = tmp_path / "run"
    few = {"store": path, "num_samples": 5, "num_chains": 1}
    few |= {"sampler": sc.SGLD(1e-3), "estimator": sc.Minibatch(10)}
    sample(client=client, **few)
    with pytest.raises(ValueError, match="holds chains already"):
        sample(**few)
    with pytest.raises(ValueError, match=r"were made on workers.*without `callbacks`"):
        sample(resume=True, callbacks=[print], **few)
    assert sample(overwrite=True, **few).num_draws == 5
    assert not CHAINS.is_at(path)
    with pytest.raises(ValueError, match="holds a run, not chains"):
        sample(client=client, resume=True, **few)
    with pytest.raises(ValueError, match="resume it without `client`"):
        sc.resume(path, sharding.SCALED, sharding.rows(200), client=client)
    (path / "mine").touch()
    with pytest.raises(ValueError, match="also holds 'mine', not only a run, so nothing in it was touched"):
        sample(client=client, overwrite=True, **few)
    assert sc.load(path).num_draws == 5
    (path / "mine").unlink()
    assert sample(client=client, overwrite=True, **few).num_draws == 5
    assert sorted(os.listdir(path)) == ["chain-000", "chains.json"]


@pytest.mark.rotates(3, "chains on workers")
def test_joined_arrays_are_indexed_as_arrays(client, tmp_path):
    run = sample(client=client, store=tmp_path / "run")
    stored, array = run.draws["mean"], np.asarray(run.draws["mean"])
    for index in (
        *(0, -1, slice(1, None), (slice(None), -5), (..., slice(3, 20, 4)), (1, slice(None, None, -1))),
        *((slice(None, None, -2), slice(30, 5, -3)), (slice(2, 2), slice(None)), (2, 7)),
    ):
        assert np.array_equal(stored[index], array[index]), index
    assert np.array_equal(np.concatenate(list(stored.blocks(7)), axis=1), array)
    assert (len(stored), stored.ndim, stored.size, stored.nbytes) == (3, 2, 120, 480)


def test_joined_arrays_are_cut_to_the_shortest():
    ends = (None, -7, -3, -1, 0, 1, 2, 5, 9)
    for lengths in ((0, 4), (3, 0), (2, 5), (4, 4)):
        parts = [np.arange(2.0 * n).reshape(1, n, 2) + 100 * n for n in lengths]
        joined = JoinedArray(parts)
        array = np.concatenate([part[:, : min(lengths)] for part in parts])
        for start, stop, step in itertools.product(ends, ends, (None, 1, 2, 3, -1, -2, -3)):
            index = slice(start, stop, step)
            assert np.array_equal(joined[:, index], array[:, index]), (lengths, index)
            assert np.array_equal(joined[::-1, index, 0], array[::-1, index, 0]), (lengths, index)


def test_a_chain_that_diverges_is_named_and_says_what_to_do(client):
    with pytest.raises(sc.errors.DivergenceError, match=r"^chain \d diverged at step") as caught:
        sc.sample(
            sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2),
            np.ones(50, np.float32),
            jnp.array(0.0),
            sampler=sc.SGLD(step_size=1.0),
            estimator=sc.Minibatch(5),
            client=client,
            **CHANGES | {"num_samples": 500},
        )
    run = caught.value.run
    assert run.status == "diverged"
    assert f"The first {run.num_draws} draws of {run.num_chains} chains are in" in str(caught.value)
    assert run.num_draws > 0
    assert np.isfinite(run.draws).all()


@pytest.mark.rotates(3, "chains on workers")
def test_grids_are_tuned_on_workers(client):
    x = np.random.default_rng(0).normal(size=400).astype(np.float32)
    tuning = sc.analysis.tune(
        sharding.GAUSSIAN,
        x,
        np.float32(0.0),
        over={"batch_size": [20, 40], "step_size": [1e-4, 1e-3]},
        num_steps=100,
        client=client,
    )
    tried = {(trial.settings["batch_size"], trial.settings["step_size"]) for trial in tuning.trials}
    assert tried == {(size, step) for size in (20, 40) for step in (1e-4, 1e-3)}
    assert tuning.best == min(tuning.trials, key=lambda trial: (-trial.rounds, trial.ksd[-1]))
    assert tuning.estimator.batch_size == tuning.best.settings["batch_size"]
    with pytest.raises(ValueError, match="nothing to divide"):
        sc.analysis.tune(sharding.GAUSSIAN, x, np.float32(0.0), client=client)


def test_what_cannot_be_done_on_workers_is_refused(client, tmp_path):
    with pytest.raises(ValueError, match="`callbacks` are called by the process"):
        sample(client=client, callbacks=[print])
    with pytest.raises(TypeError, match=r"must be a distributed\.Client"):
        sample(client=4)
    with pytest.raises(sc.errors.StoreError, match="cannot find"):
        draw(ChainTask(None, 0, str(tmp_path / "chain-000")), print, shared=Shared(None, False))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(ValueError, match="nothing in it was touched"):
        sample(client=client, store=tmp_path / "other")
    with pytest.raises(ValueError, match="holds no chains"):
        CHAINS.read(str(tmp_path))


@pytest.mark.rotates(3, "chains on workers")
def test_ctrl_c_returns_what_all_chains_have_made(client, tmp_path):
    path = tmp_path / "run"
    client.run(sharding.commit_often)

    def interrupt():
        paths = [CHAINS.path(str(path), number) for number in range(2)]
        while True:
            time.sleep(0.05)
            with contextlib.suppress(Exception):  # not begun, or between two files
                if all(holds_run(p) and open_stored(p).progress["draws"] for p in paths):
                    return os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.warns(UserWarning, match="interrupted after"):
        run = sample(client=client, store=path, num_samples=10_000_000, num_chains=2)
    assert run.status == "interrupted"
    made = [open_stored(CHAINS.path(str(path), number)).progress["draws"] for number in range(2)]
    assert run.num_draws == min(made) > 0
    assert run.draws["mean"].shape == (2, run.num_draws)
    assert not (path / "data").exists()
