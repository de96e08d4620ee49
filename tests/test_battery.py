"""Every sampler × every estimator: the promises that hold for all of them.

Once a pair has been compiled all its checks cost little, but compiling takes seconds. So the product is a chessboard:
even seeds (SCIROCCO_TEST_SEED) take the white squares, odd ones the black, and each has every sampler with half of the
estimators and the other way round. SCIROCCO_TEST_ALL=1 takes all.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers
import scirocco as sc
from helpers import ESTIMATORS, MODEL
from scirocco import _tree
from scirocco.estimators import Estimator
from scirocco.run import loop, session, setup
from scirocco.run.loop import step_key
from scirocco.samplers import Sampler

WHITENED = {
    "Preconditioned-SGLD": sc.Preconditioned(sc.SGLD(0.05), factor=0.1 * np.tri(5, dtype=np.float32)),
    "Preconditioned-SGHMC": sc.Preconditioned(sc.SGHMC(0.05)),
}
"""In other coordinates, which are no business of the estimator: one pair each, in every seed's half."""
SAMPLERS = helpers.SAMPLERS | WHITENED

COLOUR = int(os.environ.get("SCIROCCO_TEST_SEED", "0")) % 2
PAIRS = [
    (sampler, estimator)
    for (i, sampler), (j, estimator) in itertools.product(enumerate(helpers.SAMPLERS), enumerate(ESTIMATORS))
    if (i + j) % 2 == COLOUR or os.environ.get("SCIROCCO_TEST_ALL")
] + list(zip(WHITENED, ["Minibatch-blocks", "ControlVariates"], strict=True))
pytestmark = [
    pytest.mark.compile,
    pytest.mark.filterwarnings("error::scirocco.errors.SciroccoWarning"),
    pytest.mark.usefixtures("quick_compiler"),
]
NUM_CHAINS, NUM_SAMPLES, SEED = 2, 10, 5


def draw(sampler, estimator, **changes):
    arguments = {"num_samples": NUM_SAMPLES, "num_chains": NUM_CHAINS, "keep_gradients": True, "seed": SEED}
    sampler = SAMPLERS.get(sampler) if isinstance(sampler, str) else sampler
    return helpers.draw(sampler, estimator, **(arguments | changes))


def with_step(sampler, factor):
    """The same sampler with another step size; in other coordinates that is the inner one's."""
    if isinstance(sampler, sc.Preconditioned):
        return dataclasses.replace(sampler, inner=helpers.with_step(sampler.inner, factor))
    return helpers.with_step(sampler, factor)


@dataclasses.dataclass
class Pair:
    """A sampler, an estimator, and a model of their own."""

    sampler: Sampler
    estimator: Estimator
    model: sc.Model

    def draw(self, **changes):
        arguments = {"sampler": self.sampler, "estimator": self.estimator, "model": self.model}
        return draw(**(arguments | changes))


@pytest.mark.parametrize(("sampler", "estimator"), PAIRS, ids=map("+".join, PAIRS))
def test_battery(sampler, estimator, monkeypatch):
    """All checks of a pair in one test, because they share its compiled program."""
    model, calls = helpers.counted_model()
    pair = Pair(SAMPLERS[sampler], ESTIMATORS[estimator], model)
    run = pair.draw()
    check_structure(run)
    with helpers.compiled() as programs:
        check_keys(run, pair)
        check_pickles(run, pair)
        check_other_numbers(run, pair)
        check_chunks(run, pair, monkeypatch)
        halved = pair.draw(sampler=with_step(pair.sampler, 0.5))
    assert not programs, f"new numbers compiled {programs}"
    assert helpers.differ(halved.draws, run.draws), "the step size does nothing"
    check_kernel(run, halved, pair)
    assert calls.keys() == {"log_likelihood", "log_prior"}
    assert max(calls.values()) <= 2, f"the user's functions were traced more than twice: {calls}"


def check_structure(run):
    params = helpers.make_params()
    assert run.status == "complete"
    for tree in (run.draws, run.gradients):
        assert jax.tree.structure(tree) == jax.tree.structure(params)
        for leaf, start in zip(jax.tree.leaves(tree), jax.tree.leaves(params), strict=True):
            assert isinstance(leaf, np.ndarray)
            assert leaf.shape == (NUM_CHAINS, NUM_SAMPLES, *start.shape)
            assert leaf.dtype == start.dtype
            assert np.all(np.isfinite(leaf))
            assert np.all(np.diff(leaf, axis=1) != 0), "a chain stood still"
    for name, values in run.stats.items():
        assert values.shape == (NUM_CHAINS, NUM_SAMPLES), name
        assert np.all(np.isfinite(values)), name


def check_keys(run, pair):
    """The seed decides everything; chains and seeds share nothing."""
    again, other = pair.draw(), pair.draw(seed=SEED + 1)
    helpers.assert_equal(run.draws, again.draws)
    helpers.assert_equal(run.gradients, again.gradients)
    first, second = (jax.tree.map(lambda leaf: leaf[chain], run.draws) for chain in range(NUM_CHAINS))  # noqa: B023
    assert helpers.differ(first, second), "two chains are equal"
    assert helpers.differ(run.draws, other.draws), "two seeds give the same draws"


def check_pickles(run, pair):
    """Samplers and estimators travel: same description, same draws."""
    parts = {"sampler": pair.sampler, "estimator": pair.estimator}
    copies = pickle.loads(pickle.dumps(parts))
    assert repr(copies) == repr(parts)
    helpers.assert_equal(pair.draw(**copies).draws, run.draws)


def check_other_numbers(run, pair):
    """A shorter run is the beginning of a longer one; burn-in and thinning only select."""
    longer = pair.draw(num_samples=2 * NUM_SAMPLES)
    helpers.assert_equal(jax.tree.map(lambda leaf: leaf[:, :NUM_SAMPLES], longer.draws), run.draws)
    selected = pair.draw(num_burnin=4, thin=3, num_samples=5)
    helpers.assert_equal(jax.tree.map(lambda leaf: leaf[:, 6:19:3], longer.draws), selected.draws)
    helpers.assert_equal(jax.tree.map(lambda leaf: leaf[:, 6:19:3], longer.gradients), selected.gradients)


def check_chunks(run, pair, monkeypatch):
    """Cut into chunks of 4, 3, 1, 1, 1 steps, a run is the same bit for bit."""
    with monkeypatch.context() as patch:
        patch.setattr(session, "_FIRST_CHUNK", 4)
        patch.setattr(session, "_SECOND_CHUNK", 3)
        patch.setattr(session, "_CHUNK_SECONDS", 0.0)
        chunks = []
        pieces = pair.draw(callbacks=[lambda report: chunks.append(report.step)])
    assert chunks == [4, 7, 8, 9, 10]
    helpers.assert_equal(pieces.draws, run.draws)
    helpers.assert_equal(pieces.gradients, run.gradients)
    helpers.assert_equal(pieces.stats, run.stats)


def check_kernel(run, halved, pair):
    """`Kernel.step` in the user's own scan, jitted and vmapped over step sizes: each lane is a chain of `sc.sample`."""
    kernels, states = [], []
    for sampler in (pair.sampler, with_step(pair.sampler, 0.5)):
        kernels.append(sc.Kernel(pair.model, helpers.make_data(), sampler, pair.estimator, seed=SEED))
        states.append(kernels[-1].init(jax.random.key(SEED), helpers.make_params()))
    lanes = [(kernel.problem.parts.sampler, state) for kernel, state in zip(kernels, states, strict=True)]
    kernel, parts = kernels[0], kernels[0].problem.parts

    @jax.jit
    @jax.vmap
    def chain(sampler, state):
        kernel.problem = kernel.problem._replace(parts=parts._replace(sampler=sampler))

        def one(state, number):
            state, info = kernel.step(step_key(state.noise_key, number), state)
            return state, (kernel.position(state), info.code)

        return jax.lax.scan(one, state, jnp.arange(NUM_SAMPLES))[1]

    draws, codes = chain(*jax.tree.map(lambda *leaves: jnp.stack(leaves), *lanes))
    assert not np.any(codes)
    expected = jax.tree.map(lambda a, b: np.stack([a[0], b[0]]), run.draws, halved.draws)
    helpers.assert_close(draws, expected)


# -- keys ---------------------------------------------------------------------------------------------------------

COVER = list(zip(SAMPLERS, itertools.cycle(ESTIMATORS), strict=False))
"""Each sampler once, each estimator at least once."""


@pytest.mark.parametrize(("sampler", "estimator"), COVER, ids=map("+".join, COVER))
def test_no_key_is_used_twice(sampler, estimator, monkeypatch):
    """By JAX's own bookkeeping, through set-up, start and step; it sees only what goes through `jax.random`."""
    monkeypatch.setattr(_tree, "normal", lambda key, size, dtype: jax.random.normal(key, (size,), dtype))
    with jax.debug_key_reuse(True):
        kernel = sc.Kernel(MODEL, helpers.make_data(), SAMPLERS[sampler], ESTIMATORS[estimator])
        state = kernel.init(jax.random.key(0), helpers.make_params())
        key = jax.random.key(1)
        state, _ = kernel.step(key, state)
        kernel.step(jax.random.key(2), state)
        with pytest.raises(jax.errors.KeyReuseError):  # the bookkeeping is awake
            kernel.step(key, state)


@pytest.mark.parametrize("sampler", ["SGLD", "PSGLD-correction", "SGHMC-resample"])
def test_no_number_is_used_twice(sampler):
    """The noise of `sc.sample`, over steps and chains: keys are made by arithmetic there, which JAX cannot follow."""
    kernel = sc.Kernel(MODEL, helpers.make_data(), SAMPLERS[sampler], ESTIMATORS["Minibatch-blocks"])
    key = jax.random.key(SEED)
    problem, ready = setup.prepare(kernel.problem, helpers.make_params(), num_steps=1, num_chains=4, key=key)

    @jax.jit
    @jax.vmap
    def numbers_of(chain):
        state, _ = loop.start_chain(MODEL, problem.parts, ready.start, key, chain)
        position = state.sampler.position

        def one(number):
            own = step_key(state.noise_key, number)
            drawn = loop.draw(MODEL, problem.parts, position, own, state.batch_key, number)
            return drawn.noise

        return jax.vmap(one)(jnp.arange(300)), getattr(state.sampler, "momentum", None)

    numbers = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(numbers_of(jnp.arange(4)))])
    # 23 bits let single numbers meet by chance, so neighbours are looked at together.
    neighbours = np.stack([numbers[:-1], numbers[1:]], axis=1)
    assert len(np.unique(neighbours, axis=0)) == len(neighbours)


# -- numbers are data ---------------------------------------------------------------------------------------------

SCHEDULES = {
    "polynomial": lambda start: sc.schedules.polynomial(start, tau=10.0),
    "cyclical": lambda start: sc.schedules.cyclical(start, length=8),
    "for each parameter": lambda start: {"bias": sc.schedules.constant(start), "weights": start},
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_data_too(name):
    """Other numbers in a schedule, and other lengths of the run it is checked for, compile nothing new."""
    first = draw(sc.SGLD(SCHEDULES[name](1e-3)), "Minibatch-blocks")
    with helpers.compiled() as programs:
        longer = draw(sc.SGLD(SCHEDULES[name](1e-3)), "Minibatch-blocks", num_samples=25)
        other = draw(sc.SGLD(SCHEDULES[name](2e-3)), "Minibatch-blocks")
    assert not programs
    helpers.assert_equal(jax.tree.map(lambda leaf: leaf[:, :NUM_SAMPLES], longer.draws), first.draws)
    assert helpers.differ(other.draws, first.draws)


@pytest.mark.parametrize(
    "number", [2, np.float32(2.0), np.int64(2), jnp.float32(2.0)], ids=lambda n: type(n).__name__
)
def test_a_number_may_be_of_any_kind(number):
    """As a temperature and as a step size: the same draws, and nothing new to compile."""
    expected = draw(sc.SGLD(1e-3, temperature=2.0), "Minibatch-blocks")
    coarse = draw(sc.SGLD(2.0, temperature=1e-6), "Full", num_samples=3)
    with helpers.compiled() as programs:
        run = draw(sc.SGLD(1e-3, temperature=number), "Minibatch-blocks")
        other = draw(sc.SGLD(number, temperature=1e-6), "Full", num_samples=3)
    helpers.assert_close(run.draws, expected.draws, rtol=1e-6)
    helpers.assert_close(other.draws, coarse.draws, rtol=1e-6)
    assert not programs


# -- precision ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sampler", "estimator"), [("SGLD", "SAGA"), ("SGHMC-auto", "ControlVariates")])
def test_each_parameter_keeps_its_precision(sampler, estimator):
    """Half precision beside single. (Double: test_double.py.)"""
    params = helpers.make_params() | {"bias": jnp.asarray(0.1, jnp.bfloat16)}
    run = draw(sampler, estimator, params=params)
    for tree in (run.draws, run.gradients):
        assert {name: leaf.dtype for name, leaf in tree.items()} == {
            "bias": jnp.bfloat16,
            "weights": np.float32,
        }


def test_samplers_can_be_made_from_traced_numbers():
    """Inside the user's own jit or vmap, where no number is known yet: nothing to check, nothing to trip over."""

    @jax.jit
    @jax.vmap
    def make(number):
        return (
            sc.SGLD(number, temperature=number),
            sc.PSGLD(number, decay=number, damping=number, gradient_scale=number, temperature=number),
            sc.SGHMC({"bias": number, "weights": 1.0}, friction=number, gradient_noise=number),
            sc.SGNHT(sc.schedules.polynomial(number, tau=number, kappa=number), diffusion=number),
            sc.BAOAB(
                sc.schedules.cyclical(number, 5, floor=number), friction={"bias": number, "weights": number}
            ),
            sc.BADODAB(sc.schedules.constant(number), diffusion=number, temperature=number),
        )

    kinds = [sc.SGLD, sc.PSGLD, sc.SGHMC, sc.SGNHT, sc.BAOAB, sc.BADODAB]
    made = make(jnp.array([0.25, 0.5]))
    assert [type(sampler) for sampler in made] == kinds
    assert all(leaf.shape == (2,) for leaf in jax.tree.leaves(made))
