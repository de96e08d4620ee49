"""Runs on disk: resumed bit for bit, opened at any time, refused when they are not the same run."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers
import scirocco as sc
from scirocco.errors import (
    DataChangedError,
    DivergenceError,
    InvalidTypeError,
    InvalidValueError,
    SciroccoWarning,
    StoreError,
)
from scirocco.run.choose.limits import LIMITS
from scirocco.run.choose.metric import DENSE_LIMIT
from scirocco.run.encoding import decode, encode
from scirocco.run.sizes import RUNNING
from scirocco.samplers import Sampler
from scirocco.store import Store

pytestmark = pytest.mark.compile

REDUCERS = {
    "moments": sc.reducers.Moments(),
    "norms": sc.reducers.Trace(lambda params: {"total": jnp.sum(params["weights"] ** 2), "parts": [params["bias"]]}),
    "predictive": sc.reducers.Predictive(lambda params, x: x * params["bias"], np.arange(3.0, dtype=np.float32)),
}


@pytest.fixture(autouse=True)
def _often(changed):
    """Chunks of a few steps, and a commit after each."""
    changed(RUNNING, first_chunk=5, second_chunk=4, chunk_seconds=0.0, commit_seconds=0.0, commit_share=1e9)


def draw(sampler=helpers.SAMPLERS["SGLD"], estimator=sc.Minibatch(16), **options):  # noqa: B008
    options = {"num_samples": 9, "num_burnin": 3, "thin": 2, "num_chains": 2} | options
    return sc.sample(
        helpers.MODEL,
        helpers.make_data(),
        helpers.make_params(),
        sampler=sampler,
        estimator=estimator,
        progress=False,
        **options,
    )


def resume(path, **options):
    options = {"model": helpers.MODEL, "data": helpers.make_data()} | options
    return sc.resume(path, options.pop("model"), options.pop("data"), progress=False, **options)


def same(a, b):
    for part in ("draws", "gradients", "stats", "traces", "reduced"):
        helpers.assert_equal(*(jax.tree.map(np.asarray, getattr(run, part)) for run in (a, b)))


def stop_at(step):
    def callback(report):
        if report.step >= step:
            report.stop()

    return callback


PAIRS = [
    ("SGHMC-auto", "Weighted"),
    ("SGHMC-resample", "SVRG"),
    ("PSGLD-correction", "SAGA"),
    ("SGNHT-elementwise", "ControlVariates"),
    ("BADODAB", "Minibatch-without"),
]
"""Every kind of state that a sampler or an estimator carries from step to step."""

# -- bit for bit -------------------------------------------------------------------------------------------------------


@pytest.mark.rotates(2)
@pytest.mark.usefixtures("quick_compiler")
@pytest.mark.parametrize(("sampler", "estimator"), PAIRS, ids=map("+".join, PAIRS))
def test_a_resumed_run_equals_one_that_was_never_interrupted(sampler, estimator, tmp_path):
    """Stopped in the middle, then asked for more draws than at first; everything that was resolved comes back."""
    method = (helpers.SAMPLERS[sampler], helpers.ESTIMATORS[estimator])
    options = {"keep_gradients": True, "reducers": REDUCERS}
    whole = draw(*method, num_samples=14, **options)
    part = draw(*method, store=tmp_path / "run", callbacks=[stop_at(9)], **options)
    assert part.status == "stopped"
    assert 0 < part.num_draws < 9
    done = resume(tmp_path / "run", num_samples=14, reducers=REDUCERS)
    assert (done.status, done.num_draws) == ("complete", 14)
    same(done, whole)
    same(sc.load(tmp_path / "run"), whole)


@pytest.mark.rotates(2)
@pytest.mark.usefixtures("quick_compiler")
@pytest.mark.parametrize("streamed", [False, True], ids=["in memory", "streamed"])
def test_a_run_in_which_everything_was_chosen_is_resumed(streamed, tmp_path, changed):
    """Batch size and thinning are chosen in the set-up, after the data have been put in order."""
    changed(LIMITS, few_numbers=0)
    data = helpers.make_data(num_rows=3_000)
    if streamed:
        sc.data.write(tmp_path / "rows", data)
        data = str(tmp_path / "rows")
    arguments = helpers.MODEL, data, helpers.make_params()
    options = {"num_samples": 12, "num_burnin": 5, "seed": 3, "progress": False}
    whole = sc.sample(*arguments, **options)
    part = sc.sample(*arguments, **options, store=tmp_path / "run", callbacks=[stop_at(12)])
    assert part.status == "stopped"
    again = sc.resume(tmp_path / "run", *arguments[:2], progress=False)
    assert again.configuration["thin"] == whole.configuration["thin"] > 1
    helpers.assert_equal(jax.tree.map(np.asarray, again.draws), whole.draws)


@pytest.mark.rotates(2)
@pytest.mark.parametrize(("keep", "method"), [(False, "threads"), (3, "vmap")])
def test_what_is_kept_does_not_change_the_rest(keep, method, tmp_path):
    options = {"keep_draws": keep, "reducers": REDUCERS, "chain_method": method, "num_samples": 20}
    everything = draw(**options | {"keep_draws": True})
    draw(store=tmp_path / "run", callbacks=[stop_at(17)], **options)
    done = resume(tmp_path / "run", reducers=REDUCERS)
    helpers.assert_equal(done.traces, everything.traces)
    helpers.assert_equal(done.reduced, everything.reduced)
    if keep is False:
        assert done.draws is None
    else:
        helpers.assert_equal(
            jax.tree.map(np.asarray, done.draws), jax.tree.map(lambda leaf: leaf[:, keep - 1 :: keep], everything.draws)
        )


def test_a_run_stopped_in_its_burn_in_goes_on(tmp_path):
    whole = draw(num_burnin=20)
    part = draw(num_burnin=20, store=tmp_path / "run", callbacks=[stop_at(6)])
    assert part.num_draws == 0
    same(resume(tmp_path / "run"), whole)


def test_the_same_call_again_goes_on_or_returns_what_is_there(tmp_path):
    whole = draw()
    path = tmp_path / "run"
    draw(store=path, resume=True, callbacks=[stop_at(9)])
    same(draw(store=path, resume=True), whole)
    same(draw(store=path, resume=True), whole)
    with pytest.raises(InvalidValueError, match=r"`sampler.step_size` was 0.001 and is now 0.002.*`seed`.* 0 .* 1"):
        draw(sc.SGLD(2e-3), store=path, resume=True, seed=1)


def test_constrained_parameters_come_back(tmp_path):
    """Transforms: draws in the user's units, the state on the real line."""
    model = sc.Model(
        lambda p, x: -0.5 * (x / p["scale"]) ** 2 - jnp.log(p["scale"]),
        lambda p: -jnp.sum(p["cuts"] ** 2),
        transforms={"scale": sc.transforms.positive, "cuts": sc.transforms.ordered},
    )
    params = {"scale": np.float32(1.0), "cuts": np.arange(3.0, dtype=np.float32)}
    x = np.linspace(-2, 2, 40, dtype=np.float32)
    options = {"sampler": sc.SGLD(1e-3), "estimator": sc.Minibatch(8), "progress": False}
    whole = sc.sample(model, x, params, num_samples=20, **options)
    sc.sample(model, x, params, num_samples=7, store=tmp_path / "run", **options)
    done = sc.resume(tmp_path / "run", model, x, num_samples=20, progress=False)
    same(done, whole)


class Pair(NamedTuple):
    a: object
    b: object


def test_parameters_of_any_structure(tmp_path):
    """Dicts, lists and tuples are rebuilt; a class of the user's own has to be shown again, and loads as a dict."""
    model = sc.Model(lambda p, x: -0.5 * (x - p[0]["m"] - p[1][0].a - p[1][0].b) ** 2)
    params = ({"m": np.float32(0.0)}, [Pair(np.float32(0.1), np.float32(0.2))])
    options = {"sampler": sc.SGLD(1e-3), "estimator": sc.Minibatch(8), "progress": False}
    x = np.linspace(-2, 2, 40, dtype=np.float32)
    whole = sc.sample(model, x, params, num_samples=8, **options)
    sc.sample(model, x, params, num_samples=4, store=tmp_path / "run", **options)
    with pytest.raises(InvalidTypeError, match=r"contain a Pair.*params="):
        sc.resume(tmp_path / "run", model, x, num_samples=8, progress=False)
    done = sc.resume(tmp_path / "run", model, x, num_samples=8, params=params, progress=False)
    same(done, whole)
    loaded = sc.load(tmp_path / "run").draws
    assert isinstance(loaded, tuple)
    np.testing.assert_array_equal(loaded[1][0]["b"], whole.draws[1][0].b)


def test_a_sampler_of_the_users_own_has_to_be_defined_or_given_again(tmp_path):
    own = type("Own", (type(helpers.SAMPLERS["SGLD"]),), {})(1e-3)
    assert isinstance(own, Sampler)
    jax.tree_util.register_pytree_node(
        type(own), lambda s: ((s.step_size, s.temperature), None), lambda _, c: type(own)(*c)
    )
    whole = draw(own)
    for name in ("run", "other"):
        draw(own, store=tmp_path / name, callbacks=[stop_at(9)])
    same(resume(tmp_path / "run"), whole)
    type(own).__module__ = "elsewhere"  # as if the class were not defined where the run is resumed
    with pytest.raises(InvalidTypeError, match="pass sampler="):
        resume(tmp_path / "other")
    same(resume(tmp_path / "other", sampler=own), whole)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path):
    draw(store=tmp_path / "run", callbacks=[stop_at(9)])
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": sc.Model(lambda p, d: -((d["y"] - p["bias"]) ** 2), helpers.log_prior)}, "log_likelihood is -"),
        ({"model": sc.Model(helpers.log_likelihood, lambda p: -jnp.sum(p["bias"] ** 2))}, "log_prior is -"),
        ({"data": helpers.make_data(num_rows=60)}, "`num_rows` was 64 and is now 60"),
        ({"data": helpers.make_data(seed=1)}, "values of `data` have changed"),
        ({"sampler": sc.SGLD(5e-3)}, r"`sampler.step_size` was 0.001 and is now 0.005"),
        ({"estimator": sc.Minibatch(8)}, "`estimator.batch_size` was 16 and is now 8"),
        ({"num_samples": 1}, "more than num_samples=1"),
        ({"num_samples": 0}, "at least 1"),
        ({"reducers": REDUCERS}, "reducers"),
    ],
)
def test_another_run_is_refused_and_says_what_differs(stored, options, message):
    before = {path: path.read_bytes() for path in stored.rglob("*") if path.is_file() and path.name != "lock"}
    with pytest.raises(InvalidValueError, match=message):
        resume(stored, **options)
    after = {path: path.read_bytes() for path in stored.rglob("*") if path.is_file() and path.name != "lock"}
    assert {k: v for k, v in before.items() if k.name != "zarr.json"} == {
        k: v for k, v in after.items() if k.name != "zarr.json"
    }


def test_other_versions_are_told(stored, monkeypatch):
    monkeypatch.setattr(jax, "__version__", "9.9.9")
    with pytest.warns(SciroccoWarning, match=r"jax .* → 9.9.9.* last bits"):
        resume(stored)


def test_a_path_that_is_taken_is_refused(stored, tmp_path):
    with pytest.raises(InvalidValueError, match=r"holds a run already .*resume.*overwrite=True"):
        draw(store=stored)
    same(draw(store=stored, overwrite=True), draw())
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("ten years")
    with pytest.raises(InvalidValueError, match="nothing in it was touched"):
        draw(store=foreign, overwrite=True)
    assert (foreign / "thesis.tex").read_text() == "ten years"
    for options, message in (
        ({"resume": True}, "`resume` requires `store`"),
        ({"overwrite": True}, "`overwrite` requires `store`"),
        ({"store": stored, "resume": True, "overwrite": True}, "choose one"),
    ):
        with pytest.raises(InvalidValueError, match=message):
            draw(**options)


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises((InvalidValueError, StoreError), match="never started"):
        resume(tmp_path)
    with pytest.raises((InvalidValueError, StoreError), match="there is no folder"):
        sc.load(tmp_path / "missing")


@pytest.mark.process
def test_two_processes_on_one_store(stored):
    """The second one is refused; so is a second one of the same process."""
    code = f"""
import sys; sys.path[:0] = {sys.path!r}
import helpers, scirocco as sc
try:
    sc.resume({str(stored)!r}, helpers.MODEL, helpers.make_data(), progress=False)
except sc.errors.StoreError as error:
    print(error)
"""
    with Store.open(stored):
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert str(os.getpid()) in told
        with pytest.raises(StoreError, match=str(os.getpid())):
            resume(stored)
        assert sc.load(stored).status == "stopped"


def test_a_diverged_run_keeps_what_was_before_and_is_not_resumed(tmp_path):
    with pytest.raises(DivergenceError) as caught:
        draw(sc.SGLD(1.0), num_samples=500, num_burnin=0, thin=1, store=tmp_path / "run")
    kept = caught.value.run
    assert kept.num_draws > 0
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(jax.tree.map(np.asarray, kept.draws)))
    assert sc.load(tmp_path / "run").status == "diverged"
    with pytest.raises(StoreError, match=r"diverged .* at step \d+.*smaller step"):
        resume(tmp_path / "run")


@pytest.mark.parametrize("failing", range(1, 6))
def test_a_full_disk_ends_the_run_and_loses_nothing_that_was_committed(failing, tmp_path, monkeypatch):
    """The disk is full at the n-th commit; with room again the run goes on as if nothing had happened."""
    whole, replace, calls = draw(), os.replace, []

    def full(draft, path):
        if os.path.basename(path) == "commit.json":
            calls.append(json.loads(Path(draft).read_bytes())["content"]["progress"]["draws"])
            if len(calls) == failing + 1:  # the first one makes the run
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(draft, path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            draw(store=tmp_path / "run")
    kept = sc.load(tmp_path / "run")
    assert kept.status == "killed"
    assert kept.num_draws == calls[failing - 1]
    same(resume(tmp_path / "run"), whole)


def test_a_data_folder_that_shrinks_ends_the_run_and_loses_nothing_that_was_committed(tmp_path, changed):
    changed(RUNNING, look_seconds=0.0)
    source = sc.data.write(tmp_path / "rows", helpers.make_data())
    content = (tmp_path / "rows" / "x.npy").read_bytes()
    options = {"sampler": sc.SGLD(1e-3), "estimator": sc.Minibatch(16), "progress": False, "num_samples": 40}
    whole = sc.sample(helpers.MODEL, source, helpers.make_params(), **options)

    def shrink(report):
        if report.step > 10:
            os.truncate(tmp_path / "rows" / "x.npy", len(content) // 2)

    with pytest.raises(DataChangedError) as caught:
        sc.sample(helpers.MODEL, source, helpers.make_params(), store=tmp_path / "run", callbacks=[shrink], **options)
    assert 0 < caught.value.run.num_draws < 40
    (tmp_path / "rows" / "x.npy").write_bytes(content)  # the data are back
    done = sc.resume(tmp_path / "run", helpers.MODEL, sc.data.open(tmp_path / "rows"), progress=False)
    same(done, whole)


def test_a_copied_data_folder_is_the_same_data(tmp_path):
    sc.data.write(tmp_path / "rows", helpers.make_data())
    options = {"sampler": sc.SGLD(1e-3), "estimator": sc.Minibatch(16), "progress": False}
    arguments = (helpers.MODEL, tmp_path / "rows", helpers.make_params())
    whole = sc.sample(*arguments, num_samples=12, **options)
    sc.sample(*arguments, num_samples=5, store=tmp_path / "run", **options)
    shutil.copytree(tmp_path / "rows", tmp_path / "copy", copy_function=shutil.copyfile)
    same(sc.resume(tmp_path / "run", helpers.MODEL, str(tmp_path / "copy"), num_samples=12, progress=False), whole)


# -- loading and saving ------------------------------------------------------------------------------------------------


def test_a_run_can_be_opened_while_it_is_written(tmp_path):
    xarray = pytest.importorskip("xarray")
    seen = []

    def look(report):
        if report.step > 8 and (tmp_path / "run" / "scirocco").exists():
            run = sc.load(tmp_path / "run")
            zarr = xarray.open_zarr(tmp_path / "run", group="posterior", consolidated=True)
            seen.append((run.status, run.num_draws, zarr.sizes["draw"], run))

    pytest.importorskip("zarr")
    whole = draw(store=tmp_path / "run", callbacks=[look], num_samples=12)
    assert len(seen) >= 3
    for status, num_draws, in_zarr, run in seen:
        assert status == "running"
        assert num_draws == in_zarr
        helpers.assert_equal(
            jax.tree.map(np.asarray, run.draws),
            jax.tree.map(lambda leaf, n=num_draws: np.asarray(leaf[:, :n]), whole.draws),
        )


def test_a_stored_run_is_a_run(tmp_path):
    memory, disk = draw(num_samples=60), draw(num_samples=60, store=tmp_path / "run")
    assert disk.path == str(tmp_path / "run")
    assert not isinstance(jax.tree.leaves(disk.draws)[0], np.ndarray), "it stays on the disk"
    for run in (disk, sc.load(tmp_path / "run")):
        np.testing.assert_array_equal(run.summary().to_numpy(), memory.summary().to_numpy())
        same(run, memory)
        assert run.configuration["sampler"] == memory.configuration["sampler"]
        assert run.to_arviz()["posterior"].sizes["draw"] == 60


def test_a_run_from_memory_is_saved_and_loaded(tmp_path):
    run = draw(keep_gradients=True, reducers=REDUCERS)
    run.save(tmp_path / "run")
    same(sc.load(tmp_path / "run"), run)
    assert sc.load(tmp_path / "run").reduced["moments"].mean["bias"].shape == (2,)
    with pytest.raises(InvalidValueError, match="holds a run already"):
        run.save(tmp_path / "run")
    run.save(tmp_path / "run", overwrite=True)
    with pytest.raises(StoreError, match="cannot be resumed"):
        resume(tmp_path / "run", num_samples=20)


def test_nothing_in_a_store_is_code(stored):
    """Every file is JSON, a NumPy archive without objects, or raw numbers."""
    for path in stored.rglob("*"):
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                assert all(arrays[name].dtype.kind in "fiub" for name in arrays)


# -- reducers ---------------------------------------------------------------------------------------------------------


def test_reducers_see_every_draw(tmp_path):
    run = draw(num_samples=200, reducers=REDUCERS)
    for name in ("bias", "weights"):
        found, draws = run.reduced["moments"], run.draws[name].astype(np.float64)
        np.testing.assert_allclose(found.mean[name], draws.mean(axis=1), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.variance[name], draws.var(axis=1, ddof=1), rtol=1e-4)
    np.testing.assert_array_equal(found.count, [200, 200])
    inputs = np.arange(3.0)
    np.testing.assert_allclose(
        run.reduced["predictive"].mean, inputs * run.draws["bias"].mean(axis=1)[:, None], rtol=1e-4, atol=1e-6
    )
    np.testing.assert_array_equal(run.traces["norms"]["parts"][0], run.draws["bias"])
    np.testing.assert_allclose(run.traces["norms"]["total"], (run.draws["weights"] ** 2).sum((2, 3)), rtol=1e-5)


def test_a_reducer_of_the_users_own():
    class Largest:
        def init(self, params):
            return jnp.full((), -jnp.inf)

        def update(self, state, params):
            return jnp.maximum(state, params["bias"])

        def result(self, state):
            return state

    jax.tree_util.register_static(Largest)
    run = draw(reducers={"largest": Largest()})
    np.testing.assert_array_equal(run.reduced["largest"], run.draws["bias"].max(axis=1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reducers": [sc.reducers.Moments()]}, "must be a dict"),
        ({"reducers": {"m": sc.reducers.Moments}}, "add parentheses"),
        ({"reducers": {"m": 3}}, "must have init, update and result"),
        ({"keep_draws": 0}, "at least 1"),
        ({"keep_draws": 1.5}, "whole number"),
        ({"keep_gradients": "yes"}, "True or False"),
    ],
)
def test_bad_reducers_and_bad_keeping(options, message):
    with pytest.raises((InvalidTypeError, InvalidValueError), match=message):
        draw(**options)


def test_reducers_need_functions():
    for make in (
        lambda: sc.reducers.Moments(3),
        lambda: sc.reducers.Trace("bias"),
        lambda: sc.reducers.Predictive(1, 2),
    ):
        with pytest.raises(InvalidTypeError, match="requires a function"):
            make()


def test_the_largest_full_metric_is_stored():
    """In double precision; what a store cannot hold would have to be given again by who resumes the run."""
    metric = np.diag(np.arange(1.0, DENSE_LIMIT + 1))
    sampler = sc.Preconditioned(sc.BAOAB(0.1, friction=1.0), factor=metric)
    again = decode(json.loads(json.dumps(encode(sampler))), "sampler")
    assert again.inner == sampler.inner
    np.testing.assert_array_equal(again.factor, metric)
