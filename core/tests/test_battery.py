"""Every sampler × every estimator: the promises that hold for all of them.

Compiling the loop of a pair takes a second or more, so there are two checks.

The cheap one is made of **all pairs** in every run. The library's own loop (`start_chain`, `advance`) is traced for
the pair, not compiled: the state comes out as it went in, draws have the shapes and dtypes of the parameters, and other
numbers trace nothing new, so that nothing is compiled again. Then a few steps are made by the library's own
`start_chain` and `move`, outside `jit`, with the methods of samplers, estimators and batches compiled one by one: each
of these programs serves all pairs it occurs in. Draws move and are finite; a chain whose state went through its stored
form half-way makes the same steps bit for bit; by JAX's own bookkeeping no key is used twice. Pairs that are refused
must be refused. What this does not cover: the loop as one compiled program, `sc.sample`, several chains, numbers that
are left open.

The dear one compiles what the user runs, for a **covering set** of pairs: every second class of samplers, each
estimator at least once. Which classes these are, which variant of a class it is and which estimator it meets changes
with the commit, or with SCIROCCO_TEST_PAIRS; the first lines of a test run say how to repeat it. `Kernel.step`, which
compiles once more, is checked for every second pair. SCIROCCO_TEST_ALL=1 takes all pairs, and all classes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
import os
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers
import scirocco as sc
from helpers import MODEL, NUM_ROWS
from scirocco import _tree
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import Estimator, Referenced
from scirocco.run import encoding, loop, setup
from scirocco.run.choose import set_up
from scirocco.run.loop import step_key
from scirocco.run.schemes import InTurn, OneMove
from scirocco.run.sizes import RUNNING
from scirocco.samplers import Events, Needs, Proposer, Sampler, Trajectory
from simplex import counting

pytestmark = [
    pytest.mark.compile,
    pytest.mark.filterwarnings("error::scirocco.errors.SciroccoWarning"),
    pytest.mark.usefixtures("quick_compiler"),
]
NUM_CHAINS, NUM_SAMPLES, SEED = 2, 10, 5


# -- tables: of what is exported, those whose numbers are not the default -----------------------------


def _metric(params):
    return jax.tree.map(lambda leaf: 1.0 + leaf**2, params)


INTERNAL = {Referenced}
"""Wraps the estimators of `sc.SCIRCV`."""


def exported(base):
    """Names and classes of all that `sc` exports of a kind; a function that returns one counts."""
    found = {}
    for room in (sc, sc.samplers, sc.estimators):
        for name in dir(room):
            thing = kind = getattr(room, name)
            if inspect.isfunction(thing):
                kind = getattr(sc.samplers, str(thing.__annotations__.get("return")), None)
            if inspect.isclass(kind) and issubclass(kind, base) and not inspect.isabstract(kind):
                found[name] = kind
    return {name: kind for name, kind in found.items() if kind not in INTERNAL}


def by_default(base, table, number):
    """What is exported and not in the table, made with one number: whoever adds a class need not add it there."""
    named = {name.split("-")[0] for name in table}
    missing = {name: kind(number) for name, kind in exported(base).items() if name not in named}
    return table | missing


WHITENED = {
    "Preconditioned-SGLD": sc.Preconditioned(sc.SGLD(0.05), factor=0.1 * np.tri(5, dtype=np.float32)),
    "Preconditioned-SGHMC": sc.Preconditioned(sc.SGHMC(0.05)),
}
RECIPES = {
    "Recipe": sc.Recipe(1e-3, diffusion=1.0),
    "SGRLD": sc.SGRLD(1e-3, _metric),
    "SGRHMC": sc.SGRHMC(5e-3, _metric),
    "SGFS": sc.SGFS(1e-3),
    "HMCDynamics": sc.HMCDynamics(5e-3),
}
WITH_FUNCTIONS = {"SGRLD", "SGRHMC"}
"""Hold functions of their own, which cannot be pickled."""
ON_SIMPLEX = {"SCIR": sc.SCIR(0.2), "SCIRCV": sc.SCIRCV(0.2), "SimplexSGRLD": sc.SimplexSGRLD(0.01)}
"""Driven by counts; the dear checks of these are in tests/simplex."""
SAMPLERS = (
    helpers.SAMPLERS
    | WHITENED
    | RECIPES
    | {
        "NUTS": sc.NUTS(0.1, factor=0.1 * np.tri(5, dtype=np.float32)),
        "HMC": sc.HMC(0.02, length=0.1, factor=0.1 * np.tri(5, dtype=np.float32)),
        "MALA": sc.MALA(0.02, factor=0.1 * np.tri(5, dtype=np.float32)),
        "ReplicaExchange": sc.ReplicaExchange(sc.MALA(0.02, factor=0.1 * np.tri(5, dtype=np.float32)), (1, 4)),
        "SGBarker": sc.SGBarker(1e-3, gradient_noise=20.0),
        "SGGMC": sc.SGGMC(1e-3, friction=60.0, length=1),  # after each of its steps a position that can be drawn
        "ZigZag": sc.ZigZag(),
        "BouncyParticle": sc.BouncyParticle(),
        "SMH": sc.SMH(0.5),
        "Blocks": sc.Blocks({"bias": sc.SGLD(1e-3), "weights": sc.BAOAB(5e-3, friction=60.0)}),
    }
)
ALL = by_default(Sampler, SAMPLERS | ON_SIMPLEX, 1e-3)
SAMPLERS = {name: one for name, one in ALL.items() if one.needs.drive != "counts"}
ON_SIMPLEX = {name: one for name, one in ALL.items() if one.needs.drive == "counts"}
ESTIMATORS = helpers.ESTIMATORS | {"Stratified": sc.Stratified(helpers.BATCH, np.arange(NUM_ROWS) % 3)}
ESTIMATORS = by_default(Estimator, ESTIMATORS, helpers.BATCH)
OF_COUNTS = ESTIMATORS | {
    "Weighted": sc.Weighted(counting.BATCH, np.linspace(1.0, 2.0, counting.NUM_ROWS)),
    "Stratified": sc.Stratified(counting.BATCH, counting.categories()),
    "Taylor": sc.Taylor(counting.BATCH, probabilities=np.linspace(1.0, 2.0, counting.NUM_ROWS), order=2),
}
REFUSED = {
    **{
        name: (set(ESTIMATORS) - {"Full"}, InvalidValueError, "requires exact gradients")
        for name in ("NUTS", "HMC", "MALA", "ReplicaExchange")
    },
    **{
        name: (set(ESTIMATORS) - {"Taylor"}, InvalidValueError, r"use estimator=sc\.Taylor\(\)")
        for name in ("ZigZag", "BouncyParticle", "SMH")
    },
    **{name: ({"Taylor"}, InvalidTypeError, "requires a sc.Model") for name in ("SCIR", "SimplexSGRLD")},
    "SGGMC": (
        {"Minibatch-blocks", "ControlVariates", "SVRG", "SAGA"},
        InvalidValueError,
        "requires independent batches|do not depend on the path",
    ),
    "Blocks": ({"SVRG", "SAGA", "Stratified", "Taylor"}, InvalidTypeError, "sc.Blocks does not support"),
    "SCIRCV": (
        {"Weighted", "ControlVariates", "SVRG", "SAGA", "Taylor"},
        InvalidValueError,
        "SCIRCV has its own control variate",
    ),
}
"""Sampler: the estimators it refuses, and how."""


@pytest.mark.unit
def test_everything_exported_is_in_the_tables():
    """By itself, or in a table; and the tables have nothing else."""
    for base, table in ((Sampler, SAMPLERS | ON_SIMPLEX), (Estimator, ESTIMATORS)):
        named = {name.split("-")[0] for name in table}
        assert set(exported(base)) == named
        assert {type(one) for one in table.values()} == set(exported(base).values())


def covering(names, seed):
    """Each sampler once, each estimator at least once, no refused pair."""
    rng = np.random.default_rng([seed, 23])
    fitting = [(name, set(ESTIMATORS) - REFUSED.get(name, (set(),))[0]) for name in rng.permutation(names)]
    fitting.sort(key=lambda entry: len(entry[1]))  # the choosy first
    pairs, free = {}, []
    for name, usable in fitting:
        free = free or list(rng.permutation(list(ESTIMATORS)))
        chosen = next((one for one in free if one in usable), None) or min(usable)
        free = [one for one in free if one != chosen]
        pairs[str(name)] = str(chosen)
    return [(name, pairs[name]) for name in names]


def halved(pairs, seed):
    """Every second pair, and one of each estimator that is not among them."""
    taken = pairs[seed % 2 :: 2]
    for pair in pairs:
        if pair[1] not in {estimator for _, estimator in taken}:
            taken.append(pair)
    return taken


def once(pairs, seed, place):
    """One pair of each kind: of the variants of a class, at `place` in its pair, one that changes with the seed."""
    kinds = {}
    for pair in pairs:
        kinds.setdefault((pair[place].split("-")[0], pair[1 - place]), []).append(pair)
    return [variants[seed % len(variants)] for variants in kinds.values()]


CLOSED = [name for name, sampler in SAMPLERS.items() if not sampler.is_open]
"""To measure what a sampler leaves open takes programs of its own for each pair; the dear checks do that."""
CHOICE = int(os.environ["SCIROCCO_TEST_PAIRS"])  # conftest.py makes it from the commit if it is not set
ALL_PAIRS = once(itertools.product(CLOSED, ESTIMATORS), CHOICE, 1)
ALL_PAIRS += once(itertools.product(ON_SIMPLEX, OF_COUNTS), CHOICE, 1)
CHEAP = covering(CLOSED, CHOICE) + [(name, "Minibatch-blocks") for name in ON_SIMPLEX]
CLASSES = [name for name, _ in once([(name, "") for name in SAMPLERS], CHOICE, 0)]
"""One sampler of each class."""
DEAR = halved(covering(CLASSES, CHOICE), CHOICE)
IN_KERNEL = DEAR[CHOICE // 2 % 2 :: 2]
if os.environ.get("SCIROCCO_TEST_ALL"):
    ALL_PAIRS = list(itertools.product(CLOSED, ESTIMATORS)) + list(itertools.product(ON_SIMPLEX, OF_COUNTS))
    DEAR = [(s, e) for s, e in itertools.product(SAMPLERS, ESTIMATORS) if e not in REFUSED.get(s, (set(),))[0]]
    IN_KERNEL = [pair for pair in DEAR if pair[0] in CLASSES]


@pytest.mark.unit
@pytest.mark.parametrize("names", [CLASSES, CLOSED], ids=["classes", "closed"])
@pytest.mark.parametrize("seed", range(20))
def test_the_covering_set_covers(names, seed):
    pairs = covering(names, seed)
    assert [sampler for sampler, _ in pairs] == names
    assert {estimator for _, estimator in pairs} == set(ESTIMATORS)
    assert not any(estimator in REFUSED.get(sampler, (set(),))[0] for sampler, estimator in pairs)
    assert {estimator for _, estimator in halved(pairs, seed)} == set(ESTIMATORS)
    assert {*halved(pairs, 0), *halved(pairs, 1)} == set(pairs)


def with_step(sampler, factor):
    """The same sampler with another step size; in other coordinates that is the inner one's, of blocks all."""
    if isinstance(sampler, (sc.Preconditioned, sc.ReplicaExchange)):
        return dataclasses.replace(sampler, inner=helpers.with_step(sampler.inner, factor))
    if isinstance(sampler, sc.Blocks):
        halved = {n: with_step(s, factor) for n, s in zip(sampler.names, sampler.samplers, strict=True)}
        return sc.Blocks(halved)
    return helpers.with_step(sampler, factor)


# -- all pairs ------------------------------------------------------------------------------------------------------

START = jax.jit(loop.start_chain, static_argnums=0)
ADVANCE = jax.jit(loop.advance, static_argnums=(0, 1, 2))
CAPACITY, NUM_STEPS = 8, 4
KEY = jax.random.key(SEED)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Asking:
    """All that an estimate asks of a sampler."""

    needs: Needs


@functools.cache
def program(method, static=()):
    """A method as a program of its own, for all pairs it occurs in; its object is data, as in the library."""
    return jax.jit(method, static_argnums=static)


ESTIMATE = jax.jit(OneMove().evaluate, static_argnums=0)
ESTIMATE_BLOCK = jax.jit(InTurn().evaluate, static_argnums=(0, 8))


def estimate(scheme, model, parts, *arguments, index=0):
    """`Scheme.evaluate`, in one program for all samplers that ask the same of it."""
    if isinstance(scheme, InTurn):
        return ESTIMATE_BLOCK(model, parts, *arguments, index)
    needs = parts.sampler.needs
    asking = Asking(Needs(noise=needs.noise, value=needs.value, auxiliary=needs.auxiliary))
    return ESTIMATE(model, parts._replace(sampler=asking), *arguments)


@contextlib.contextmanager
def compiled_by_halves(parts):
    """Outside `jit`, what the sampler does and what the estimator does are programs that all pairs share."""
    with pytest.MonkeyPatch.context() as patch:
        kind, of_rows = type(parts.sampler), type(parts.batching)
        replaced = [(type(parts.scheme), "evaluate", estimate), (of_rows, "plan", program(of_rows.plan))]
        for name in ("init", "noise", "stats", "step"):
            static = (1, 6) if kind is sc.Blocks and name == "step" else ()
            if name != "step" or not isinstance(parts.sampler, Trajectory | Events):  # whose steps take functions
                replaced.append((kind, name, program(getattr(kind, name), static)))
        if isinstance(parts.sampler, Proposer):
            replaced.append((kind, "accept", program(kind.accept)))
        for owner, name, value in (*replaced, (_tree, "normal", visible_normal)):
            patch.setattr(owner, name, value)
        yield


def visible_normal(key, size, dtype):
    """JAX's own, whose keys its bookkeeping sees."""
    return jax.random.normal(key, (size,), dtype)


def problem_of(sampler, estimator):
    """A pair on its small model: composed and prepared."""
    if sampler in ON_SIMPLEX:
        model, params = counting.MODELS["expected"]
        methods, data = (ON_SIMPLEX[sampler], OF_COUNTS[estimator]), counting.categories()
    else:
        model, params, data = MODEL, helpers.make_params(), helpers.make_data()
        methods = SAMPLERS[sampler], ESTIMATORS[estimator]
    problem = setup.compose(model, data, *methods, SEED)
    return set_up.prepare(problem, params, num_steps=NUM_STEPS, num_chains=1, key=KEY)


def check_pair(sampler, estimator):
    """The cheap check; see the top of the file."""
    refused, error, words = REFUSED.get(sampler, ((), Exception, ""))
    if estimator in refused:
        with pytest.raises(error, match=words):
            problem_of(sampler, estimator)
        return
    problem, ready = problem_of(sampler, estimator)
    state = check_traces(problem, ready)
    with compiled_by_halves(problem.parts), jax.debug_key_reuse(True):
        check_steps(problem, ready, state)


def shapes(tree):
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)


def check_traces(problem, ready):
    """The library's loop, traced on shapes: what comes out fits what went in, and numbers are data."""
    model, parts = problem.model, problem.parts
    state, density = START.trace(model, parts, ready.start, KEY, np.int32(0)).out_info
    assert density.shape == ()
    numbers = map(np.int32, (NUM_STEPS, 1, 0))
    after, chunk = ADVANCE.trace(model, True, CAPACITY, parts, state, *numbers).out_info
    assert shapes(after) == shapes(state)
    position = model.constrain(ready.start.position)
    wanted = jax.tree.map(lambda leaf: ((CAPACITY, *leaf.shape), leaf.dtype), position)
    assert shapes(chunk.draws) == wanted
    assert all(leaf.shape == (CAPACITY,) for leaf in jax.tree.leaves(chunk.stats))
    other = parts._replace(sampler=with_step(parts.sampler, 0.5))
    key = jax.random.key(SEED + 1)
    with helpers.traced() as programs:
        START.trace(model, other, ready.start, key, np.int32(1))
        ADVANCE.trace(model, True, CAPACITY, other, state, *map(np.int32, (NUM_STEPS + 3, 2, 1)))
    assert not programs, f"new numbers traced {programs}"
    return state


def check_steps(problem, ready, like):
    """A few steps: finite, moving, and the same when the state goes through its stored form half-way."""
    model, parts = problem.model, problem.parts

    def steps(state, count):
        made = []
        for _ in range(count):
            key = step_key(state.noise_key, state.number)
            drawn = loop.draw(model, parts, state.sampler.position, key, state.batch_key, state.number)
            state, info = loop.move(model, parts, state, drawn)
            assert int(info.code) == 0
            made.append((state.sampler.position, state.gradient.total, info.stats))
        return state, made

    key = jax.random.key(SEED)
    first, density = loop.start_chain(model, parts, ready.start, key, np.int32(0))
    assert shapes(first) == shapes(like) and np.isfinite(density)
    half, before = steps(first, NUM_STEPS // 2)
    saved = encoding.save_chains([encoding.Snapshot(half, (), 2)])
    template = encoding.template(problem, ready.start.position, KEY, ())
    restored = encoding.restore(template, saved, 0).state
    _, after = steps(half, NUM_STEPS // 2)
    _, again = steps(restored, NUM_STEPS // 2)
    helpers.assert_equal(after, again)
    places = [first.sampler.position] + [position for position, *_ in before + after]
    for earlier, later in itertools.pairwise(places):
        assert helpers.differ(earlier, later), "a chain stood still"
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(before + after))


@pytest.mark.unit
@pytest.mark.parametrize(("sampler", "estimator"), CHEAP, ids=map("+".join, CHEAP))
def test_each_once(sampler, estimator):
    """The cheap check of every sampler and every estimator, for `make quick`."""
    check_pair(sampler, estimator)


@pytest.mark.parametrize("sampler", CLOSED + list(ON_SIMPLEX))
def test_all_pairs(sampler):
    """The cheap check of every pair that `test_each_once` has not made; one test a sampler."""
    for first, estimator in ALL_PAIRS:
        if first == sampler and (sampler, estimator) not in CHEAP:
            check_pair(sampler, estimator)


# -- a covering set, compiled ---------------------------------------------------------------------------------------


def draw(sampler, estimator, **changes):
    arguments = {"num_samples": NUM_SAMPLES, "num_chains": NUM_CHAINS, "keep_gradients": True, "seed": SEED}
    arguments["num_burnin"] = 0  # by default that of exact samplers depends on the number of draws
    sampler = SAMPLERS[sampler] if isinstance(sampler, str) else sampler
    estimator = ESTIMATORS[estimator] if isinstance(estimator, str) else estimator
    return helpers.draw(sampler, estimator, **(arguments | changes))


@dataclasses.dataclass
class Pair:
    """A sampler, an estimator, and a model of their own."""

    sampler: Sampler
    estimator: Estimator
    model: sc.Model

    def draw(self, **changes):
        arguments = {"sampler": self.sampler, "estimator": self.estimator, "model": self.model}
        arguments["keep_gradients"] = not isinstance(self.sampler, sc.Blocks)  # they have no one gradient
        return draw(**(arguments | changes))


@pytest.mark.parametrize(("sampler", "estimator"), DEAR, ids=map("+".join, DEAR))
def test_battery(sampler, estimator, monkeypatch):
    """All checks of a pair in one test, because they share its compiled program."""
    model, calls = helpers.counted_model()
    pair = Pair(SAMPLERS[sampler], ESTIMATORS[estimator], model)
    run = pair.draw()
    check_structure(run)
    with helpers.compiled() as programs:
        check_keys(run, pair)
        if sampler not in WITH_FUNCTIONS:
            check_pickles(run, pair)
        check_other_numbers(run, pair)
        check_chunks(run, pair)
        halved = pair.draw(sampler=with_step(pair.sampler, 0.5))
    # a positive parameter that falls below 0 is looked at once
    new = set(programs) - {"jit(_first_density)", "jit(_spread_rows)"}
    assert not new, f"new numbers compiled {new}"
    assert helpers.differ(halved.draws, run.draws), "the step size does nothing"
    if (sampler, estimator) in IN_KERNEL:
        check_kernel(run, halved, pair)
    assert calls.keys() == {"log_likelihood", "log_prior"}
    most = 2 * len(getattr(pair.sampler, "names", "1"))  # for each block
    assert max(calls.values()) <= most, f"the user's functions were traced more than {most} times: {calls}"


def check_structure(run):
    params = helpers.make_params()
    assert run.status == "complete"
    for tree in (run.draws,) if run.gradients is None else (run.draws, run.gradients):
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


def check_chunks(run, pair):
    """Cut into chunks of 4, 3, 1, 1, 1 steps, a run is the same bit for bit."""
    with RUNNING.changed(first_chunk=4, second_chunk=3, chunk_seconds=0.0):
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


def test_the_bookkeeping_of_keys_is_awake(monkeypatch):
    """`check_steps` relies on it."""
    monkeypatch.setattr(_tree, "normal", visible_normal)
    with jax.debug_key_reuse(True):
        kernel = sc.Kernel(MODEL, helpers.make_data(), SAMPLERS["SGLD"], ESTIMATORS["Full"])
        state = kernel.init(jax.random.key(0), helpers.make_params())
        key = jax.random.key(1)
        state, _ = kernel.step(key, state)
        kernel.step(jax.random.key(2), state)
        with pytest.raises(jax.errors.KeyReuseError):
            kernel.step(key, state)


@pytest.mark.parametrize("sampler", ["SGLD", "PSGLD-correction", "SGHMC-resample"])
def test_no_number_is_used_twice(sampler):
    """The noise of `sc.sample`, over steps and chains: keys are made by arithmetic there, which JAX cannot follow."""
    kernel = sc.Kernel(MODEL, helpers.make_data(), SAMPLERS[sampler], ESTIMATORS["Minibatch-blocks"])
    key = jax.random.key(SEED)
    problem, ready = set_up.prepare(kernel.problem, helpers.make_params(), num_steps=1, num_chains=4, key=key)

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


def test_schedules_are_data_too():
    """Other numbers in a schedule, and other lengths of the run it is checked for, compile nothing new."""

    def sampler(start):
        bias = sc.schedules.polynomial(start, tau=10.0)
        return sc.SGLD({"bias": bias, "weights": sc.schedules.cyclical(start, length=8, explore=0)})

    first = draw(sampler(1e-3), "Minibatch-blocks")
    with helpers.compiled() as programs:
        longer = draw(sampler(1e-3), "Minibatch-blocks", num_samples=25)
        other = draw(sampler(2e-3), "Minibatch-blocks")
    assert not programs
    helpers.assert_equal(jax.tree.map(lambda leaf: leaf[:, :NUM_SAMPLES], longer.draws), first.draws)
    assert helpers.differ(other.draws, first.draws)


@pytest.mark.parametrize("number", [2, np.float32(2.0), np.int64(2), jnp.float32(2.0)], ids=lambda n: type(n).__name__)
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


@pytest.mark.rotates(2)
@pytest.mark.parametrize(("sampler", "estimator"), [("SGLD", "SAGA"), ("SGHMC-auto", "ControlVariates")])
def test_each_parameter_keeps_its_precision(sampler, estimator):
    """Half precision beside single. (Double: test_double.py.)"""
    params = helpers.make_params() | {"bias": jnp.asarray(0.1, jnp.bfloat16)}
    run = draw(sampler, estimator, params=params)
    for tree in (run.draws, run.gradients):
        assert {name: leaf.dtype for name, leaf in tree.items()} == {"bias": jnp.bfloat16, "weights": np.float32}


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
            sc.BAOAB(sc.schedules.cyclical(number, 5, floor=number), friction={"bias": number, "weights": number}),
            sc.BADODAB(sc.schedules.constant(number), diffusion=number, temperature=number),
        )

    kinds = [sc.SGLD, sc.PSGLD, sc.SGHMC, sc.SGNHT, sc.BAOAB, sc.BADODAB]
    made = make(jnp.array([0.25, 0.5]))
    assert [type(sampler) for sampler in made] == kinds
    assert all(leaf.shape == (2,) for leaf in jax.tree.leaves(made))
