"""`sc.Blocks` in a run: rows of its own for each block, control variates, streams, stores, and wrong pairs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.data.batching import Batch
from scirocco.errors import InvalidTypeError, InvalidValueError, SciroccoWarning
from scirocco.run import loop, schemes

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]
N, SIZE = 60, 5
DATA = {"x": np.random.default_rng(0).normal(size=N).astype(np.float32)}
START = {"a": np.array([0.1, 0.2], np.float32), "b": np.float32(0.3), "c": np.float32(1.5)}


def _likelihood(params, row):
    return -0.5 * (row["x"] - params["a"].sum() - params["b"]) ** 2


def _prior(params):
    return -0.5 * params["c"] * (jnp.sum(params["a"] ** 2) + params["b"] ** 2)


def _precision(key, params):
    squares = jnp.sum(params["a"] ** 2) + params["b"] ** 2
    return jax.random.exponential(key) / (1.0 + 0.5 * squares)  # any positive draw will do here


MODEL = sc.Model(_likelihood, _prior, transforms={"a": None, "b": None, "c": sc.transforms.positive})
SAMPLER = sc.Blocks({"a": sc.BAOAB(0.05, friction=1.0), "c": sc.Gibbs(_precision), "b": sc.SGLD(1e-3)})


def _run(estimator, data=DATA, sampler=SAMPLER, **options):
    return sc.sample(
        MODEL, data, START, sampler=sampler, estimator=estimator, progress=False, **{"num_samples": 12, **options}
    )


def _same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_every_block_that_reads_data_gets_rows_of_its_own():
    batching = schemes.batching(sc.Minibatch(SIZE), N, 2)
    assert batching.size == 2 * SIZE
    single = sc.Minibatch(SIZE).batching(N)
    rows = jnp.arange(2.0 * SIZE)
    whole = Batch(rows, rows.astype(int), None, N / (2 * SIZE), batching.correction, N)
    parts = [schemes.share_of(whole, place, 2, single) for place in range(2)]
    assert sorted(np.concatenate([p.rows for p in parts]).tolist()) == rows.tolist()
    assert {p.scale for p in parts} == {N / SIZE}
    assert {p.correction for p in parts} == {1 - SIZE / N}
    weighted = whole._replace(weights=jnp.ones(2 * SIZE))
    assert np.all(np.asarray(schemes.share_of(weighted, 1, 2, single).weights) == 2.0)


@pytest.mark.rotates(2, "the same chain")
def test_control_variates_leave_no_noise_where_rows_have_one_hessian():
    """Differences of gradients are then the same for every row: the chain is that of all rows."""
    full, controlled = _run(sc.Full()), _run(sc.ControlVariates(SIZE))
    for a, b in zip(jax.tree.leaves(full.draws), jax.tree.leaves(controlled.draws), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    assert not np.allclose(full.draws["a"], _run(sc.Minibatch(SIZE)).draws["a"], atol=1e-3)


@pytest.mark.rotates(2, "streamed chains")
def test_streamed_rows_give_the_same_chain(tmp_path):
    sc.data.write(tmp_path / "rows", DATA, shuffle=False)
    estimator = sc.Minibatch(SIZE, sampling="without_replacement")
    assert _same(_run(estimator).draws, _run(estimator, data=tmp_path / "rows").draws)


def test_a_stored_run_is_resumed_bit_for_bit(tmp_path):
    estimator = sc.ControlVariates(SIZE)
    whole = _run(estimator, num_samples=20, num_chains=2)
    _run(estimator, num_samples=9, num_chains=2, store=tmp_path / "run")
    again = sc.resume(tmp_path / "run", MODEL, DATA, num_samples=20, sampler=SAMPLER, progress=False)
    assert _same(whole.draws, {k: np.asarray(v) for k, v in again.draws.items()})


def test_a_kernel_steps_through_the_same_chain():
    run = _run(sc.Minibatch(SIZE), num_samples=3)
    kernel = sc.Kernel(MODEL, DATA, SAMPLER, sc.Minibatch(SIZE))
    state = kernel.init(jax.random.key(0), START)
    state = state._replace(**{f: getattr(state, f) for f in ("batch_key", "noise_key")})
    for draw in range(3):
        state, _ = kernel.step(loop.step_key(state.noise_key, state.number), state)
        np.testing.assert_allclose(kernel.position(state)["a"], run.draws["a"][0, draw], rtol=1e-5)


def test_several_names_move_together():
    sampler = sc.Blocks({("a", "b"): sc.SGLD({"a": 1e-3, "b": 1e-2}), "c": sc.Gibbs(_precision)})
    run = _run(sc.Minibatch(SIZE), sampler=sampler)
    assert run.draws["a"].shape == (1, 12, 2)
    assert np.ptp(run.draws["b"]) > 0 and np.all(run.draws["c"] > 0)


ONE = sc.SGLD(1e-3)
REST = {"a": ONE, "b": ONE}


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: sc.Blocks({}), InvalidTypeError, "requires a dict of samplers"),
        (lambda: sc.Blocks({"a": sc.SGLD()}), InvalidValueError, "has missing hyper-parameters"),
        (lambda: sc.Blocks({"a": 0.1}), InvalidTypeError, "requires a sampler such as"),
        (lambda: sc.Blocks({"a": ONE, ("a", "b"): ONE}), InvalidValueError, "`a` in two blocks"),
        (lambda: sc.Blocks({"a": sc.SCIRCV(0.1)}), InvalidTypeError, "use sc.SCIR"),
        (lambda: sc.Gibbs(3), InvalidTypeError, "must be a function"),
        (lambda: sc.Statistics(3), InvalidTypeError, "must be a function"),
        (lambda: sc.BlockModel(3), InvalidTypeError, "joint sc.Model"),
        (lambda: sc.BlockModel(MODEL, a=3), InvalidTypeError, "sc.CountModel or sc.Statistics"),
        (lambda: _run(sc.Full(), sampler=sc.Blocks(REST)), InvalidValueError, "no sampler for \\['c'\\]"),
        (lambda: _run(sc.Full(), sampler=sc.Blocks(REST | {"c": sc.SCIR(1.0)})), InvalidTypeError, "driven by counts"),
        (
            lambda: _run(sc.Full(), sampler=sc.Blocks(REST | {"c": sc.Gibbs(lambda key, params, total: 1.0)})),
            InvalidTypeError,
            "requires a sum of statistics",
        ),
        (
            lambda: _run(sc.Full(), sampler=sc.Blocks(REST | {"c": sc.Gibbs(lambda key, params: jnp.ones(3))})),
            InvalidValueError,
            "returned shape \\(3,\\)",
        ),
        (lambda: _run(sc.SAGA(SIZE)), InvalidTypeError, "sc.Blocks does not support"),
        (
            lambda: _run(sc.Full(), sampler=sc.Blocks(REST | {"c": sc.Gibbs(lambda key, params: params["d"])})),
            InvalidTypeError,
            "Gibbs update of `c` raised an error .* KeyError",
        ),
        (
            lambda: sc.sample(sc.BlockModel(MODEL, d=sc.Statistics(_likelihood)), DATA, START, sampler=SAMPLER),
            InvalidValueError,
            "BlockModel names \\['d'\\]",
        ),
        (lambda: _run(sc.Minibatch(40)), InvalidValueError, "at most batch_size=30"),
        (lambda: _run(sc.Full(), keep_gradients=True), InvalidValueError, "no single gradient"),
        (
            lambda: sc.sample(sc.BlockModel(MODEL), DATA, START, sampler=ONE, progress=False),
            InvalidTypeError,
            "BlockModel requires sampler",
        ),
    ],
)
def test_wrong_blocks_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_an_update_that_does_not_use_its_key_is_noticed():
    frozen = sc.Blocks(REST | {"c": sc.Gibbs(lambda key, params: np.random.default_rng(0).gamma(2.0))})
    with pytest.warns(SciroccoWarning, match="does not use its key"):
        _run(sc.Full(), sampler=frozen, num_samples=2)


def test_half_of_the_rows_for_each_of_two_blocks():
    """Two batches that make up all rows are two batches."""
    single = sc.Minibatch(N // 2).batching(N)
    rows = jnp.arange(float(N))
    whole = Batch(rows, rows.astype(int), None, 1.0, 0.0, N)
    first, second = (schemes.share_of(whole, place, 2, single) for place in range(2))
    assert len(first.rows) == len(second.rows) == N // 2 and not set(first.rows.tolist()) & set(second.rows.tolist())
    assert first.scale == 2.0


def test_arguments_with_defaults_ask_for_nothing():
    assert not sc.Gibbs(lambda key, params, a=2.0: a).takes_total
    assert sc.Gibbs(lambda key, params, total, a=2.0: a).takes_total
    assert not sc.Statistics(lambda params, x, power=2.0: x**power).takes_key
