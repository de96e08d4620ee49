"""`sc.sample(client=...)`: chains on Dask workers make the draws of one process."""

import jax.numpy as jnp
import numpy as np
import pytest

import helpers
import scirocco as sc
import sharding
from scirocco.run.joining import CHAINS
from scirocco.run.listing import list_runs
from scirocco.run.on_cluster import Chain, Shared, draw

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


def test_chains_on_workers_make_the_draws_of_one_process(client, alone):
    run = sample(client=client, reducers={"moments": sc.reducers.Moments()})
    helpers.assert_equal(run.draws, alone.draws)
    helpers.assert_equal(run.stats, alone.stats)
    helpers.assert_equal(run.reduced, alone.reduced)
    assert run.configuration == alone.configuration
    assert run.path is None
    assert isinstance(run.draws["mean"], np.ndarray)


def test_a_store_of_chains_is_opened_and_gone_on_with(client, alone, tmp_path):
    path = tmp_path / "run"
    run = sample(client=client.scheduler.address, store=path, num_samples=25)
    assert run.draws["mean"].shape == (3, 25)
    assert not (path / "data").exists(), "rows for the workers are left behind"
    with pytest.raises(ValueError, match="holds chains already"):
        sample(client=client, store=path)
    with pytest.raises(ValueError, match=r"asked.seed. was 4 and is now 5"):
        sample(client=client, store=path, resume=True, seed=5)
    more = sc.resume(path, sharding.SCALED, sharding.rows(200), num_samples=30, client=client, progress=False)
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
    assert [entry["draws"] for entry in list_runs(path)] == [40] * 3
    loaded.save(tmp_path / "copy")
    helpers.assert_equal(np.asarray(sc.load(tmp_path / "copy").draws["scale"]), alone.draws["scale"])
    over = sample(client=client, store=path, overwrite=True, num_samples=5)
    assert over.num_draws == 5


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


def test_a_chain_that_diverges_is_named_and_says_what_to_do(client, tmp_path):
    with pytest.raises(sc.errors.DivergenceError, match=r"chain (\d): chain \1 left the finite numbers"):
        sc.sample(
            sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2),
            np.ones(50, np.float32),
            jnp.array(0.0),
            sampler=sc.SGLD(step_size=1.0),
            estimator=sc.Minibatch(5),
            client=client,
            **CHANGES | {"num_samples": 500},
        )


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
    with pytest.raises(ValueError, match="nothing to share out"):
        sc.analysis.tune(sharding.GAUSSIAN, x, np.float32(0.0), client=client)


def test_what_cannot_be_done_on_workers_is_refused(client, tmp_path):
    with pytest.raises(ValueError, match="`callbacks` are called by the process"):
        sample(client=client, callbacks=[print])
    with pytest.raises(TypeError, match=r"must be a distributed\.Client"):
        sample(client=4)
    with pytest.raises(sc.errors.StoreError, match="does not see"):
        draw(Chain(None, 0, str(tmp_path / "chain-000")), print, shared=Shared(None, None, False))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(ValueError, match="nothing in it was touched"):
        sample(client=client, store=tmp_path / "other")
    with pytest.raises(ValueError, match="holds no chains"):
        CHAINS.read(str(tmp_path))
