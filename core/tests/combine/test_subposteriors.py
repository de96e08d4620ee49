"""Subposteriors: their law, how rows are dealt out, and equal draws wherever they are made."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers
import scirocco as sc
import sharding
from scirocco import cluster
from scirocco.cluster.pickling import RowsOf, for_workers, opened
from scirocco.combine.divide import subposteriors
from scirocco.combine.shards import deal, fractionate
from scirocco.data.sources import MappedSource
from scirocco.errors import DivergenceError, InvalidTypeError, InvalidValueError
from scirocco.run.sizes import RUNNING
from scirocco.store import open_stored

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

OPTIONS = {
    "sampler": sc.SGLD(1e-3),
    "estimator": sc.Minibatch(5),
    "num_samples": 300,
    "num_burnin": 20,
    "seed": 4,
    "progress": False,
}


def draw(data, num_shards=3, **options):
    """Of the model with a constrained parameter."""
    return subposteriors(sharding.SCALED, data, num_shards, sharding.START, **(OPTIONS | options))


def in_numpy(parts):
    return jax.tree.map(np.asarray, parts.draws)


# -- the law -------------------------------------------------------------------------------------------------


@pytest.mark.rotates(2)
@pytest.mark.parametrize("num_shards", [1, 3, 7])
@pytest.mark.parametrize("model", [sharding.SCALED, sc.Model(sharding.scaled_likelihood, sharding.scaled_prior)])
def test_the_densities_on_the_real_line_multiply_to_the_posterior(model, num_shards, seed):
    data = sharding.rows(100, seed)
    part = fractionate(model, num_shards)
    shards = deal(data, num_shards, seed, True).sources
    assert sum(shard.num_rows for shard in shards) == 100
    for number in range(3):
        mean, scale = np.random.default_rng([seed, number]).normal([0.0, 1.0], 0.5)
        at = {"mean": jnp.float32(mean), "scale": jnp.float32(abs(scale) + 0.1)}
        each = [part.look(at, shard.read(0, shard.num_rows)) for shard in shards]
        np.testing.assert_allclose(sum(map(float, each)), float(model.look(at, data)), rtol=1e-5)


@pytest.mark.law
def test_gaussian_subposteriors_have_their_exact_law(seed):
    """Prior N(m, 1/λ), unit noise: N(., 1/P) with P = λ/S + n; by SGLD with all rows an AR(1) of known variance."""
    num_shards, num_rows = 4, 25
    x = np.random.default_rng([seed, 1]).normal(2.0, 1.0, num_shards * num_rows).astype(np.float32)
    precision = sharding.PRIOR_PRECISION / num_shards + num_rows
    step, count = 0.5 / precision, 20_000
    parts = subposteriors(
        sharding.GAUSSIAN,
        x,
        num_shards,
        np.float32(3.0),
        sampler=sc.SGLD(step),
        estimator=sc.Full(),
        num_samples=count,
        num_burnin=100,
        seed=seed,
        progress=False,
    )
    variance = 1 / (precision * (1 - step * precision / 2))
    for run, shard in zip(parts.runs, deal(x, num_shards, seed, True).sources, strict=True):
        rows = shard.read(0, num_rows)
        mean = (sharding.PRIOR_PRECISION / num_shards * sharding.PRIOR_MEAN + rows.sum()) / precision
        draws = np.asarray(run.draws, np.float64)[0]
        # ρ = 1/2: the variances of a mean and of a variance are (1 + ρ)/(1 - ρ) and (1 + ρ²)/(1 - ρ²) times larger
        assert abs(draws.mean() - mean) < 5 * np.sqrt(3 * variance / count)
        assert abs(draws.var() / variance - 1) < 5 * np.sqrt(2 * 5 / 3 / count)


def test_a_fractionated_model_is_another_model_and_survives_a_pickle():
    part = fractionate(sharding.SCALED, 3)
    again = pickle.loads(pickle.dumps(part))
    assert again == part and hash(again) == hash(part)
    assert part != sharding.SCALED and sharding.SCALED != part
    assert part != fractionate(sharding.SCALED, 4)
    data, whole = sharding.rows(7), sc.Model(sharding.scaled_likelihood, sharding.scaled_prior)
    prior = float(whole.log_density(sharding.START, data)) - float(
        sc.Model(sharding.scaled_likelihood).log_density(sharding.START, data)
    )
    taken = float(whole.log_density(sharding.START, data)) - float(part.log_density(sharding.START, data))
    np.testing.assert_allclose(taken, prior * 2 / 3, rtol=1e-4)


# -- rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("kind", ["arrays", "folder", "shuffled folder"])
def test_every_row_is_dealt_to_one_shard(tmp_path, seed, shuffle, kind):
    numbers = np.arange(103, dtype=np.float32)
    data = numbers
    if kind != "arrays":
        data = sc.data.write(tmp_path / "rows", numbers, shuffle=kind == "shuffled folder")
    dealt = deal(data, 5, seed, shuffle)
    found = [np.asarray(shard.read(0, 1000)) for shard in dealt.sources]
    assert sorted(np.concatenate(found).tolist()) == numbers.tolist()
    assert dealt.num_rows == [len(part) for part in found]
    assert max(dealt.num_rows) - min(dealt.num_rows) == 1
    if kind == "arrays":
        assert (found[0].tolist() == numbers[:20].tolist()) == (not shuffle)
    for shard, part in zip(dealt.sources, found, strict=True):
        some = np.array([3, 0, 19])
        assert shard.take(some).tolist() == part[some].tolist()
        buffer = np.empty(4, np.float32)
        assert shard.read(2, 6, out=buffer) is buffer and buffer.tolist() == part[2:6].tolist()
        assert sc.data.as_source(shard) is shard
    assert len({shard.fingerprint() for shard in dealt.sources}) == 5


def test_rows_travel_as_paths(tmp_path):
    data = sharding.rows(100_000)
    folder = sc.data.write(tmp_path / "folder", data["x"][0])
    np.save(tmp_path / "map.npy", data["x"][0])
    mapped = MappedSource({"x": np.load(tmp_path / "map.npy", mmap_mode="r")[10:]})
    held = [sc.data.as_source(np.ones(5, np.float16)), sc.data.as_source(np.arange(4, dtype=np.int8))]
    for number, given in enumerate((data, folder, mapped, [folder, *held])):
        sources = deal(given, None if isinstance(given, list) else 2, 0, True).sources
        there = for_workers(sources, str(tmp_path / f"data{number}"))
        for shard, portable in zip(sources, there, strict=True):
            pickled = pickle.dumps(portable)
            assert len(pickled) < 2_000
            again = opened(pickle.loads(pickled))
            helpers.assert_equal(again.read(0, 200_000), shard.read(0, 200_000))
            assert again.fingerprint() == opened(shard).fingerprint()


def test_windows_of_a_stretch_are_those_of_its_rows(tmp_path):
    folder = sc.data.write(tmp_path / "rows", np.arange(60, dtype=np.float32))
    shard, out = RowsOf(folder, 10, 50), np.empty(8, np.float32)
    shard.scatter([4, 20], [[3, 0], [1, 2]], 2, shard.places(out, 2))
    rows = shard.read(0, 40)
    assert out.tolist() == np.concatenate([rows[6:8], rows[20:22], rows[22:24], rows[4:6]]).tolist()
    assert shard.shuffled and not RowsOf(folder, 10, 50, seed=1).shuffled


def test_a_source_that_takes_its_rows_along_is_refused(tmp_path):
    class Heavy:
        num_rows, row_spec = 3, jax.ShapeDtypeStruct((), np.float32)

        def __init__(self):
            self.rows = np.zeros(5_000_000, np.float32)

        def take(self, indices):
            return self.rows[indices]

        def read(self, start, stop):
            return self.rows[start:stop]

        def fingerprint(self):
            return "heavy"

    with pytest.raises(InvalidTypeError, match="Heavy whose pickle has 19 MB"):
        for_workers([RowsOf(sc.data.as_source(Heavy()), 0, 3)], str(tmp_path))


# -- one process, several processes, stores ------------------------------------------------------------------


@pytest.fixture(scope="module")
def client():
    pytest.importorskip("distributed")
    with cluster.local(2) as client:
        yield client


@pytest.fixture(scope="module")
def plain():
    """Three shards of one size, in memory."""
    return draw(sharding.rows(60))


@pytest.mark.rotates(2, "subposteriors")
def test_burn_in(tmp_path):
    """1,000 steps where the sampler is left out, none where it is given; runs that are resumed keep theirs."""
    x, options = sharding.rows(60, 0), {"num_samples": 5, "progress": False, "seed": 4}
    start = (sharding.SCALED, x, 2, sharding.START)

    def burnin(parts):
        return [run.configuration["num_burnin"] for run in parts.runs]

    assert burnin(subposteriors(*start, sampler=sc.SGLD(1e-3), **options)) == [0, 0]
    by_default = subposteriors(*start, **options)
    assert burnin(by_default) == [1_000] * 2
    first = subposteriors(*start, num_burnin=7, store=tmp_path / "parts", **options)
    again = subposteriors(*start, store=tmp_path / "parts", resume=True, **(options | {"num_samples": 9}))
    assert burnin(first) == burnin(again) == [7, 7] and again.runs[0].num_draws == 9


def test_what_there_is_to_see(plain):
    assert len(plain) == 3 and plain.num_rows == [20, 20, 20] and plain.path is None
    assert plain.model is sharding.SCALED
    assert [run.draws["scale"].shape for run in plain.runs] == [(1, 300)] * 3
    assert len({run.configuration["seed"] for run in plain.runs}) == 3
    assert repr(plain) == "Subposteriors(3 shards of 20 rows: 1 chains × 300 draws of 2 parameters)"


@pytest.mark.process
def test_workers_make_the_same_draws(client, plain, tmp_path):
    there = draw(sharding.rows(60), client=client)
    helpers.assert_equal(in_numpy(there), in_numpy(plain))
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(there.draws)) and there.path is None


@pytest.mark.process
def test_stored_here_and_gone_on_with_there(client, plain, tmp_path):
    store = tmp_path / "store"
    draw(sharding.rows(60), store=store, num_samples=120)
    done = draw(sharding.rows(60), store=store, resume=True, client=client)
    helpers.assert_equal(in_numpy(done), in_numpy(plain))
    assert sorted(path.name for path in store.iterdir()) == [
        *(f"shard-00{number}" for number in range(3)),
        "subposteriors.json",
    ]
    loaded = sc.combine.load(store, sharding.SCALED)
    helpers.assert_equal(in_numpy(loaded), in_numpy(plain))
    assert loaded.num_rows == plain.num_rows and loaded.path == str(store)
    with pytest.warns(UserWarning, match="pass model="):
        assert sc.combine.load(store).model is None


@pytest.mark.process
def test_folders_and_shards_of_them_are_streamed_to_the_same_draws(client, tmp_path):
    x = np.random.default_rng(0).normal(size=60).astype(np.float32)
    paths = [tmp_path / f"part{number}" for number in range(2)]
    for number, path in enumerate(paths):
        sc.data.write(path, x[30 * number : 30 * number + 30])
    options = OPTIONS | {"num_samples": 100}
    here, there = (
        subposteriors(sharding.GAUSSIAN, paths, None, np.float32(0), **options, client=link) for link in (None, client)
    )
    helpers.assert_equal(in_numpy(here), in_numpy(there))
    assert here.num_rows == [30, 30]


@pytest.mark.process
@pytest.mark.parametrize("with_client", [False, True])
def test_a_shard_that_diverges_is_named_and_the_draws_before_it_are_there(client, tmp_path, with_client):
    link = client if with_client else None
    with pytest.raises(DivergenceError, match=r"shard \d: chain 0 diverged at step") as caught:
        draw(sharding.rows(60), sampler=sc.SGLD(1.0), client=link)
    run = caught.value.run
    assert run is None or np.all(np.isfinite(np.asarray(run.draws["mean"])))


def test_ctrl_c_keeps_what_there_is_and_begins_no_other_shard(tmp_path, plain, changed):
    changed(RUNNING, **sharding.OFTEN)
    store = tmp_path / "store"

    def interrupt():
        while True:
            time.sleep(0.01)
            with contextlib.suppress(Exception):  # not begun, or between two files
                if open_stored(store / "shard-000").progress["draws"]:
                    return os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.warns(UserWarning, match="interrupted after"), pytest.raises(KeyboardInterrupt):
        draw(sharding.rows(60), store=store, num_samples=30_000_000)
    run = sc.load(store / "shard-000")
    assert run.status == "interrupted" and run.num_draws and not (store / "shard-001").exists()
    count = min(300, run.num_draws)
    helpers.assert_equal(run.draws["mean"][:, :count], plain.draws[0]["mean"][:, :count])


# -- bad inputs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"num_shards": None}, InvalidValueError, "`num_shards` is needed"),
        ({"num_shards": 0}, InvalidValueError, "`num_shards` must be at least 1"),
        ({"num_shards": 2.0}, InvalidTypeError, "must be a whole number"),
        ({"num_shards": 61}, InvalidValueError, "num_shards=61 is more than the 60 rows"),
        ({"params": None}, InvalidValueError, "`params` is required"),
        ({"seed": -1}, InvalidValueError, "`seed` must be at least 0"),
        ({"num_samples": 0}, InvalidValueError, "`num_samples` must be at least 1"),
        ({"resume": True}, InvalidValueError, "`resume` requires `store`"),
        ({"store": "x", "resume": True, "overwrite": True}, InvalidValueError, "choose one"),
        ({"store": 3}, InvalidTypeError, "`store` must be the path"),
        ({"client": 3}, (InvalidTypeError, ImportError), "client"),
        ({"data": []}, InvalidValueError, "there are no shards"),
        ({"data": ["nowhere", np.ones(3)]}, InvalidTypeError, "entry 1 is ndarray"),
        ({"data": ["nowhere"], "num_shards": None}, InvalidValueError, "there is no folder"),
        ({"model": sc.Model}, InvalidTypeError, "add parentheses"),
        ({"model": sharding.log_prior}, InvalidTypeError, "are made of a sc.Model"),
        ({"model": sc.CountModel(1.0, lambda x, z: z)}, InvalidTypeError, "could not be combined"),
    ],
)
def test_bad_inputs(change, kind, message):
    given = {"model": sharding.SCALED, "data": sharding.rows(60), "num_shards": 3, "params": sharding.START}
    arguments = given | OPTIONS | change
    with pytest.raises(kind, match=message):
        subposteriors(**arguments)


def test_shards_must_be_alike_and_as_many_as_said():
    one = sc.data.as_source(np.ones(5, np.float32))
    with pytest.raises(InvalidValueError, match="2 shards already, but num_shards=3"):
        draw([one, one], 3)
    with pytest.raises(InvalidValueError, match=r"shard 1 has the arrays \['x'\]"):
        draw([one, sc.data.as_source({"x": np.ones(5, np.float32)})], None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_shards": 4}, "`count` was 3 and is now 4"),
        ({"seed": 5}, "`seed` was 4 and is now 5"),
        ({"shuffle": False}, "`shuffle`"),
        ({"sampler": sc.SGLD(2e-3)}, "sampler.step_size"),
        ({"data": sharding.rows(60, 1)}, "`data`"),
    ],
)
def test_a_store_refuses_another_configuration(tmp_path, change, message):
    _begin(tmp_path)
    with pytest.raises(InvalidValueError, match=message):
        draw(**({"data": sharding.rows(60), "num_shards": 3, "store": tmp_path, "resume": True} | change))


def _begin(folder):
    from scirocco.combine.divide import page_of
    from scirocco.combine.shards import SHARDS

    options = {key: OPTIONS[key] for key in ("sampler", "estimator", "num_burnin")}
    options |= {"thin": 1, "num_chains": 1}
    full = page_of(sharding.SCALED, deal(sharding.rows(60), 3, 4, True), options, 4, True)
    SHARDS.begin(str(folder), full, resume=False, overwrite=False)


def test_a_folder_is_not_overwritten_unless_asked_to(tmp_path):
    _begin(tmp_path / "ours")
    with pytest.raises(InvalidValueError, match="holds subposteriors already; pass resume=True"):
        draw(sharding.rows(60), store=tmp_path / "ours")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter").write_text("dear")
    for option in ("resume", "overwrite"):
        with pytest.raises(InvalidValueError, match="nothing in it was touched"):
            draw(sharding.rows(60), store=tmp_path / "other", **{option: True})
    assert (tmp_path / "other" / "letter").read_text() == "dear"
    (tmp_path / "ours" / "shard-000").mkdir()
    (tmp_path / "ours" / "mine").write_text("dear")
    with pytest.raises(InvalidValueError, match="nothing in it was touched"):
        draw(sharding.rows(60), store=tmp_path / "ours", overwrite=True)
    assert (tmp_path / "ours" / "mine").read_text() == "dear"


def test_a_damaged_or_missing_page_is_said_to_be_one(tmp_path):
    with pytest.raises(InvalidValueError, match="holds no subposteriors"):
        sc.combine.load(tmp_path)
    _begin(tmp_path / "store")
    with pytest.raises(sc.errors.StoreError, match="shard 0 cannot be opened"):
        sc.combine.load(tmp_path / "store", sharding.SCALED)
    page = tmp_path / "store" / "subposteriors.json"
    content = json.loads(page.read_text())
    content["content"]["seed"] = 17
    page.write_text(json.dumps(content))
    with pytest.raises(sc.errors.StoreError, match="checksum"):
        sc.combine.load(tmp_path / "store")


def test_a_worker_that_does_not_see_the_files_says_so(tmp_path):
    from scirocco.combine.shards import Shard, ShardSettings, draw

    shard = Shard(None, 0, str(tmp_path / "elsewhere" / "shard-000"))
    with pytest.raises(sc.errors.StoreError, match=r"cannot find .*elsewhere.*common file system"):
        draw(shard, lambda step: None, settings=ShardSettings(sharding.SCALED, None, {}, False))
    _begin(tmp_path / "store")
    shard = Shard(None, 0, str(tmp_path / "store" / "shard-000"))
    with pytest.raises(sc.errors.StoreError, match="JAX_ENABLE_X64"):
        draw(shard, lambda step: None, settings=ShardSettings(sharding.SCALED, None, {}, not jax.config.jax_enable_x64))
