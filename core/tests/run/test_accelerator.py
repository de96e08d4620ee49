"""The loop for accelerators, run on a CPU: draws at their own rhythm, groups of fixed length, short rows by columns."""

import signal
import subprocess
import sys
import threading
from concurrent.futures import Future

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers
import scirocco as sc
from scirocco import _programs, _tree
from scirocco._random import as_normal, threefry
from scirocco.data import batching
from scirocco.errors import DivergenceError
from scirocco.estimators import base
from scirocco.estimators.base import full_products, products_of
from scirocco.run import chains, keeping, session
from scirocco.run.sizes import RUNNING

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]


@pytest.fixture
def as_on_accelerators(monkeypatch, changed):
    """Small groups, so that short runs have several of them."""
    changed(RUNNING, ahead_steps=12)
    return lambda on=True: monkeypatch.setattr(jax, "default_backend", lambda: "gpu" if on else "cpu")


def run(model, sampler=None, estimator=None, **given):
    """Two vectorised chains."""
    plan = {"num_samples": 37, "num_burnin": 5, "num_chains": 2, "chain_method": "vmap", "progress": False}
    sampler, estimator = sampler or sc.SGLD(1e-3), estimator or sc.Minibatch(16)
    return sc.sample(
        model, helpers.make_data(), helpers.make_params(), sampler=sampler, estimator=estimator, **plan | given
    )


def same(a, b):
    """Equal up to rounding."""
    for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6 * max(1.0, np.abs(x).max()))


CASES = {
    "every step": {"thin": 1, "keep_gradients": True},
    "several draws in a group": {"thin": 3, "keep_gradients": True},
    "several groups in a draw": {"thin": 30, "num_samples": 3, "num_burnin": 50},
    "one chain": {"thin": 4, "num_chains": 1},
    "groups of chains": {"thin": 3, "num_chains": 4, "batches": 2, "estimator": sc.ControlVariates(16)},
    "passes over all rows": {"thin": 2, "estimator": sc.SVRG(16, refresh_every=7)},
    "threads": {"thin": 3, "chain_method": "threads"},
}


INLINE = ("several draws in a group", "several groups in a draw", "groups of chains")
GROUPINGS = [(case, False) for case in CASES] + [(case, True) for case in INLINE]
GROUPINGS += [("several draws in a group", "long steps")]


@pytest.mark.rotates(5)
@pytest.mark.parametrize(("case", "inline"), GROUPINGS)
def test_the_same_chain_for_any_grouping(case, inline, as_on_accelerators, changed):
    if inline:  # as if the noise of several steps had no room
        changed(RUNNING, ahead_words_accelerator=8)
    if inline == "long steps":
        changed(RUNNING, long_step=1)
    expected = run(helpers.MODEL, **CASES[case])
    as_on_accelerators()
    model, _ = helpers.counted_model()  # its own, so that nothing compiled is found again
    found = run(model, **CASES[case])
    same(expected.draws, found.draws)
    if CASES[case].get("keep_gradients"):
        same(expected.gradients, found.gradients)
    same(expected.stats, found.stats)


@pytest.mark.rotates(2, "divergences")
def test_a_divergence_names_its_step(as_on_accelerators):
    errors = []
    for _ in range(2):
        model, _ = helpers.counted_model()
        with pytest.raises(DivergenceError) as error:
            run(model, sc.SGLD(30.0), thin=3)
        errors.append(error.value)
        as_on_accelerators()
    assert str(errors[0]) == str(errors[1])
    assert errors[0].run.num_draws == errors[1].run.num_draws


def test_a_resumed_run_is_the_same_bit_for_bit(as_on_accelerators, tmp_path):
    as_on_accelerators()
    model, _ = helpers.counted_model()
    whole = run(model, thin=3, num_samples=400)

    def stop(report):
        if report.step > 40:
            report.stop()

    part = run(model, thin=3, num_samples=400, store=tmp_path / "run", callbacks=[stop])
    assert 0 < part.num_draws < 400
    rest = sc.resume(tmp_path / "run", model, helpers.make_data(), progress=False)
    for a, b in zip(*map(jax.tree.leaves, (whole.draws, rest.draws)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.unit
def test_windows_by_columns_are_the_same_windows(seed):
    rng = np.random.default_rng(seed)
    data = {"y": rng.random(50), "x": rng.random((50, 3)), "image": rng.random((50, 20, 20))}
    blocks = batching.Blocks(50, 8)
    arranged = jax.tree.map(jnp.asarray, blocks.arrange(data, seed))
    other, columns = blocks.for_accelerator(arranged)
    for number in range(8):
        plan = blocks.plan(jax.random.key(seed), jnp.int32(number))
        expected, found = blocks.take(arranged, plan), other.take(columns, plan)
        for a, b in zip(*map(jax.tree.leaves, (expected, found)), strict=True):
            np.testing.assert_array_equal(a, b)
    for a, b in zip(*map(jax.tree.leaves, (arranged, other.rows(columns))), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.unit
def test_normals_of_large_networks(seed, monkeypatch):
    """On a CPU and an accelerator the same; no call of the generator serves two pairs, also in arrays of odd size."""
    tree = [jnp.zeros(shape) for shape in ((2, 3), (5,), (), (3, 5))]
    expected = jax.jit(lambda key: _tree.normal_like(key, tree, 1))(jax.random.key(seed))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    found = jax.jit(lambda key: _tree.normal_like(key, tree, 1))(jax.random.key(seed))
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a, b)
    numbers = np.concatenate([np.ravel(leaf) for leaf in expected])
    words = threefry(np.array([0, seed], np.uint32), np.arange(15, dtype=np.uint32), 0, np)
    pairs = np.asarray(jax.jit(as_normal)(np.stack(words, axis=-1)))
    kept = [pairs[:3].ravel(), pairs[3:6].ravel()[:5], pairs[6].ravel()[:1], pairs[7:].ravel()[:15]]
    np.testing.assert_allclose(numbers, np.concatenate(kept), rtol=1e-6)
    assert len(np.unique(numbers)) == 27


PRECISIONS = [(sc.Full(), True), (sc.ControlVariates(8), True), (sc.SAGA(8), True), (sc.Minibatch(8), False)]


@pytest.mark.unit
@pytest.mark.parametrize(("estimator", "full"), PRECISIONS)
def test_products_are_rounded_only_where_noise_hides_it(estimator, full, monkeypatch):
    """Products of matrices with ten bits would make the differences of control variates, and exact sums, wrong."""

    def precision():
        def product(x):
            with full_products(estimator):
                return x @ x

        (equation,) = jax.make_jaxpr(product)(jnp.ones((2, 2))).eqns
        return equation.params["precision"]

    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert precision() is None  # a CPU never rounds
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert precision() == ((jax.lax.Precision.HIGHEST,) * 2 if full else None)
    with jax.default_matmul_precision("bfloat16"):  # the user's wish
        assert precision() == (jax.lax.Precision.DEFAULT,) * 2


@pytest.mark.unit
@pytest.mark.parametrize("precision", [None, "bfloat16", "float32"])
def test_the_precision_of_an_estimate_reaches_its_products(precision, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")  # a CPU has no other products
    estimator = sc.Minibatch(8, precision=precision)

    def total(position, rows):
        batch = base.Batch(rows, None, None, 1.0, 1.0, 8)
        with products_of(estimator):
            return estimator.estimate(LINEAR.summand, position, (), base.Context(None, batch, 0))[0].total

    rows = {"x": jnp.ones((8, 3)), "y": jnp.ones(8)}
    program = str(jax.make_jaxpr(total)(jnp.ones(3), rows))
    assert program.count("dot_general") == 2  # of rows and parameters, and of residuals and rows
    assert program.count("BF16_BF16_F32") == (2 if precision == "bfloat16" else 0)
    assert program.count("preferred_element_type=float32") == 2
    assert program.count("HIGHEST") == (4 if precision == "float32" else 0)


LINEAR = sc.Model(lambda beta, row: -0.5 * (row["y"] - row["x"] @ beta) ** 2, lambda beta: -0.5 * beta @ beta)


# -- steps made ahead -----------------------------------------------------------------------------------------


@pytest.fixture
def sent(monkeypatch, changed, as_on_accelerators):
    """Buffers for 12 draws; returns the list of the steps that were begun."""
    as_on_accelerators()
    changed(RUNNING, buffer_draws=12)
    real, steps = chains.VectorizedChains._sent, []

    def spy(self, states, wanted, made):
        steps.append(wanted)
        assert len(self._ahead) <= len(self.promised) <= self.most_ahead
        return real(self, states, wanted, made)

    monkeypatch.setattr(chains.VectorizedChains, "_sent", spy)
    return steps


def test_the_device_makes_the_next_chunks_before_the_host_asks(sent, tmp_path, monkeypatch):
    real, promised = session.Session._promises, []

    def spy(*given):
        promised.append(real(*given))
        return promised[-1]

    monkeypatch.setattr(session.Session, "_promises", spy)
    model, _ = helpers.counted_model()
    given = {"thin": 3, "num_samples": 100, "keep_draws": 5, "reducers": {"moments": sc.reducers.Moments()}}
    whole = run(model, **given)
    assert whole.num_draws == 20
    assert [count for _, count, thin in sent if thin == 3] == [36] * 8 + [12]  # none is made twice
    assert max(map(len, promised)) == 3
    again = run(model, **given | {"keep_draws": True, "reducers": None})
    same(jax.tree.map(lambda leaf: leaf[:, 4::5], again.draws), whole.draws)
    means = jax.tree.map(lambda leaf: leaf.mean(axis=1), again.draws)
    same(means, whole.reduced["moments"].mean)

    def stop(report):
        if report.step > 100:
            report.stop()

    part = run(model, **given, store=tmp_path / "run", callbacks=[stop])  # a chunk was begun and is dropped
    assert part.status == "stopped"
    rest = sc.resume(tmp_path / "run", model, helpers.make_data(), progress=False, reducers=given["reducers"])
    for a, b in zip(*map(jax.tree.leaves, ((whole.draws, whole.reduced), (rest.draws, rest.reduced))), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.rotates(2, "divergences")
def test_a_divergence_in_a_chunk_that_was_made_ahead_names_its_step(sent, as_on_accelerators):
    errors = []
    for on_accelerator in (True, False):
        as_on_accelerators(on_accelerator)
        model, _ = helpers.counted_model()
        with pytest.raises(DivergenceError) as error:
            run(model, sc.SGLD(0.035), thin=3, num_samples=2_000)  # it grows slowly
        errors.append(error.value)
    assert len(sent) > 3
    assert str(errors[0]) == str(errors[1])
    assert errors[0].run.num_draws == errors[1].run.num_draws > 24


def test_an_error_in_the_thread_reaches_the_caller(sent, monkeypatch):
    real, calls = keeping.Keeping.begin_copy, []

    def fails(self, *given):
        calls.append(threading.current_thread())
        if len(calls) == 4:
            raise MemoryError("no room for draws")
        return real(self, *given)

    monkeypatch.setattr(keeping.Keeping, "begin_copy", fails)
    with pytest.raises(MemoryError, match="no room for draws"):
        run(helpers.MODEL, thin=3, num_samples=200)
    assert threading.main_thread() not in calls
    calls[-1].join(10)  # the thread ends with the run
    assert not calls[-1].is_alive()


@pytest.mark.rotates(2)
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupted_run_can_be_resumed(times, sent, tmp_path, changed):
    """The first Ctrl-C ends the chunk and commits; the second ends at once, and what was committed stays."""
    changed(RUNNING, commit_seconds=0.0, commit_share=1e9)
    whole = run(helpers.MODEL, thin=3, num_samples=200)

    def interrupt(report):
        if report.step > 150:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    with pytest.warns(UserWarning, match="interrupted after"):
        part = run(helpers.MODEL, thin=3, num_samples=200, store=tmp_path / "run", callbacks=[interrupt])
    assert part.status == "interrupted"
    rest = sc.resume(tmp_path / "run", helpers.MODEL, helpers.make_data(), progress=False)
    assert rest.num_draws == 200
    for a, b in zip(*map(jax.tree.leaves, (whole.draws, rest.draws)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_callers_settings_of_jax_apply(sent):
    found = set()

    def log_likelihood(beta, row):
        found.add(jax.config.jax_default_matmul_precision)
        return LINEAR.log_likelihood(beta, row)

    model = sc.Model(log_likelihood, lambda beta: -0.5 * beta @ beta)
    rows = {"x": np.ones((20, 2), np.float32), "y": np.ones(20, np.float32)}
    with jax.default_matmul_precision("float32"):
        sc.sample(
            model, rows, jnp.zeros(2), sampler=sc.SGLD(1e-3), estimator=sc.Minibatch(5), num_samples=60, num_burnin=0,
            chain_method="vmap", progress=False,
        )  # fmt: skip
    assert len(sent) > 2
    assert found == {"float32"}


@pytest.mark.unit
def test_options_of_the_compiler_are_those_that_it_has_and_the_user_has_not_set():
    options = _programs.AS_GRAPH
    assert _programs.accepted(tuple(options.items()), "") == options
    assert _programs.accepted((*options.items(), ("xla_gpu_no_such_option", True)), "") == {}
    flags = "--xla_gpu_command_buffer_scheduling_mode=LHS"
    assert list(_programs.accepted(tuple(options.items()), flags)) == ["xla_gpu_enable_command_buffer"]


# -- programs kept on disk ------------------------------------------------------------------------------------


@pytest.mark.unit
def test_a_call_waits_for_what_is_compiled_ahead():
    """Else it would be compiled a second time; programs with other static arguments are not waited for."""
    program, ready, found = _programs.setup_program(1)(lambda n, x: n * x), Future(), []
    program.expect((2, 1.0), ready)
    assert program(3, 1.0) == 3.0
    call = threading.Thread(target=lambda: found.append(program(2, 1.0)))
    call.start()
    call.join(0.3)
    assert not found
    ready.set_exception(ValueError("the compiler failed"))  # the call says so itself
    call.join()
    assert found == [2.0]


@pytest.mark.unit
def test_the_oldest_programs_are_deleted(tmp_path):
    for age in range(4):
        file = tmp_path / f"program-{age}"
        file.write_bytes(bytes(100))
        _programs.os.utime(file, (1e9 - age, 1e9 - age))
    _programs.trim(tmp_path, 250)
    assert sorted(file.name for file in tmp_path.iterdir()) == [".trimmed", "program-0", "program-1"]
    (tmp_path / "large").write_bytes(bytes(1000))
    _programs.trim(tmp_path, 250)  # once a day
    assert (tmp_path / "large").exists()


@pytest.mark.process
def test_damaged_programs_are_ignored(tmp_path):
    """Half-written by a process that was killed: the next one compiles again, without a word."""
    code = "import jax; from scirocco import _programs; _programs.begin(); print(float(jax.jit(lambda x: x + 1)(2.0)))"
    environment = {"SCIROCCO_CACHE": str(tmp_path), "JAX_PLATFORMS": "cpu", "PATH": ""}
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("3.0\n", "")
        kept = list(tmp_path.glob("programs-*/*-cache"))
        assert kept
        for file in kept:
            file.write_bytes(file.read_bytes()[:10])
