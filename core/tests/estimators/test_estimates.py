"""What an estimate is on average, and how it scatters: exactly, by going through every batch of a tiny data set."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import helpers
import scirocco as sc
from scirocco.data import Resident
from scirocco.data.batching import SAMPLING as EVERY_SAMPLING
from scirocco.estimators import Context, full_sum

pytestmark = pytest.mark.compile

MODEL = helpers.MODEL
NUM_ROWS, BATCH = 5, 2
DATA = helpers.make_data(num_rows=NUM_ROWS)
HERE = helpers.make_params()
THERE = jax.tree.map(lambda leaf: leaf + np.float32(0.7), HERE)
PROBABILITIES = np.array([1.0, 3.0, 2.0, 0.5, 4.0])

SAMPLING = EVERY_SAMPLING[1:]  # without "auto", which is blocks in memory
ESTIMATORS = {
    "Minibatch": lambda sampling: sc.Minibatch(BATCH, sampling=sampling),
    "ControlVariates": lambda sampling: sc.ControlVariates(BATCH, centre=THERE, sampling=sampling),
    "SVRG": lambda sampling: sc.SVRG(BATCH, refresh_every=100, sampling=sampling),
    "SAGA": lambda sampling: sc.SAGA(BATCH, sampling=sampling),
}
CASES = {
    f"{name}-{sampling}": (name, sampling)
    for name in ESTIMATORS
    for sampling in SAMPLING
    if (name, sampling) != ("SAGA", "blocks")  # which it refuses
}
CASES["Weighted"] = ("Weighted", None)
CASES["ControlVariates-unequal"] = ("ControlVariates-unequal", None)


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs of one step."""


def make(name, sampling):
    """An estimator, with what it remembers from an estimate made elsewhere."""
    if name == "Weighted":
        return sc.Weighted(BATCH, probabilities=PROBABILITIES)
    if name == "ControlVariates-unequal":
        return sc.ControlVariates(BATCH, centre=THERE, probabilities=PROBABILITIES)
    return ESTIMATORS[name](sampling)


def table(estimator, data):
    return Resident(data, estimator.batching(NUM_ROWS))


def outcomes(how, sampling):
    """Every (order of the rows, plan) that can happen, and its probability."""
    rows = range(NUM_ROWS)
    if sampling == "blocks":  # every shuffle × every window
        orders = list(itertools.permutations(rows))
        cases = [([*order, *order[: BATCH - 1]], start) for order in orders for start in rows]
        return cases, np.full(len(cases), 1 / len(cases))
    if sampling == "without_replacement":
        plans = list(itertools.combinations(rows, BATCH))
        return [(list(rows), plan) for plan in plans], np.full(len(plans), 1 / len(plans))
    plans = list(itertools.product(rows, repeat=BATCH))
    shares = np.full(NUM_ROWS, 1 / NUM_ROWS)
    if sampling is None:
        shares = np.diff(np.asarray(how.edges).astype(np.int64), prepend=-1) / 2.0**32
    return [(list(rows), plan) for plan in plans], np.array([np.prod(shares[list(plan)]) for plan in plans])


KINDS = ("none", "scalar", "diagonal", "full")


@functools.cache
def estimates(name, sampling):
    """All estimates at HERE (flat) and their covariances as the estimator sees them, by kind; their probabilities."""
    estimator = make(name, sampling)
    how = estimator.batching(NUM_ROWS)
    cases, probabilities = outcomes(how, sampling)
    orders, plans = (jnp.asarray(part) for part in zip(*cases, strict=True))

    def memory_of(data):
        memory = estimator.prepare(MODEL, table(estimator, data), THERE, jax.random.key(0)).memory
        if name == "SVRG":  # its first estimate fills the memory; here that happens at THERE
            first = Context(data, how.take(data, plans[0]), jnp.array(0))
            memory = estimator.estimate(MODEL.summand, THERE, memory, first)[1]
        return memory

    @jax.jit
    @jax.vmap
    def one(order, plan):
        data = jax.tree.map(lambda leaf: jnp.asarray(leaf)[order], DATA)
        context, memory = Context(data, how.take(data, plan), jnp.array(1)), memory_of(data)
        found = {kind: estimator.estimate(MODEL.summand, HERE, memory, context, kind)[0] for kind in KINDS}
        return {kind: (ravel_pytree(estimate.total)[0], estimate.noise) for kind, estimate in found.items()}

    return jax.tree.map(np.asarray, one(orders, plans)), probabilities


def exact_sum(position):
    """Σ_i ∇ log p(x_i | θ) in the order of `ravel_pytree`, in double precision."""
    gradient = helpers.exact_gradient(position, DATA)
    return np.concatenate([np.ravel(gradient[name] + position[name]) for name in ("bias", "weights")])


@pytest.mark.parametrize("case", CASES)
def test_the_average_over_all_batches_is_the_sum(case):
    found, probabilities = estimates(*CASES[case])
    totals = found["none"][0].astype(np.float64)
    np.testing.assert_allclose(probabilities @ totals, exact_sum(HERE), rtol=1e-5, atol=1e-5)
    assert np.ptp(totals, axis=0).min() > 0.1, "batches that agree prove nothing"


@pytest.mark.parametrize("case", CASES)
def test_the_average_covariance_is_the_covariance(case):
    """The full matrix, its diagonal and its scalar, each against the true covariance of the estimate."""
    found, probabilities = estimates(*CASES[case])
    totals, full = found["full"][0].astype(np.float64), found["full"][1]
    centred = totals - probabilities @ totals
    truth = (centred * probabilities[:, None]).T @ centred
    np.testing.assert_allclose(np.tensordot(probabilities, full, axes=1), truth, rtol=1e-4, atol=1e-4)
    diagonal = jax.tree.leaves(found["diagonal"][1])
    flat = np.concatenate([np.reshape(leaf, (len(probabilities), -1)) for leaf in diagonal], 1)
    np.testing.assert_allclose(probabilities @ flat, np.diag(truth), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(probabilities @ found["scalar"][1], np.trace(truth) / len(truth), rtol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_asking_for_the_covariance_does_not_change_the_estimate(case):
    found, _ = estimates(*CASES[case])
    for kind in KINDS[1:]:
        np.testing.assert_allclose(found[kind][0], found["none"][0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["scalar", "diagonal", "full"])
def test_the_exact_sum_has_no_noise(kind):
    estimator = sc.Full()
    how = estimator.batching(NUM_ROWS)
    context = Context(DATA, how.take(DATA, how.plan(jax.random.key(0), 0)), jnp.array(0))
    estimate, _ = estimator.estimate(MODEL.summand, HERE, (), context, kind)
    np.testing.assert_allclose(ravel_pytree(estimate.total)[0], exact_sum(HERE), rtol=1e-5, atol=1e-5)
    shapes = {"scalar": (), "full": (5, 5)}
    if kind == "diagonal":
        assert jax.tree.map(np.shape, estimate.noise) == jax.tree.map(np.shape, HERE)
    else:
        assert estimate.noise.shape == shapes[kind]
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(estimate.noise))


# -- where the remembered values are those of today --------------------------------------------------------------


@pytest.mark.parametrize("sampling", SAMPLING)
def test_control_variates_at_the_centre_have_no_variance(sampling):
    """Bit for bit the exact sum, for every batch; and they know it."""
    estimator = sc.ControlVariates(BATCH, centre=HERE, sampling=sampling)
    how = estimator.batching(NUM_ROWS)
    data = jax.tree.map(jnp.asarray, how.arrange(DATA, 0))
    prepared = estimator.prepare(MODEL, table(estimator, data), THERE, jax.random.key(0))
    helpers.assert_equal(prepared.position, HERE)

    @jax.jit
    def one(number):
        context = Context(data, how.take(data, how.plan(jax.random.key(3), number)), number)
        plain, _ = estimator.estimate(MODEL.summand, HERE, prepared.memory, context)
        noisy, _ = estimator.estimate(MODEL.summand, HERE, prepared.memory, context, "full")
        return plain.total, noisy

    for number in range(6):
        total, noisy = one(number)
        helpers.assert_equal(total, prepared.memory.total)
        helpers.assert_equal(noisy.total, prepared.memory.total)
        assert not np.any(noisy.noise)


def walk(estimator, positions, seed=0):
    """Estimates and memories of a chain that visits `positions`."""
    how = estimator.batching(NUM_ROWS)
    data = jax.tree.map(jnp.asarray, how.arrange(DATA, seed))
    memory = estimator.prepare(MODEL, table(estimator, data), positions[0], jax.random.key(seed)).memory

    @jax.jit
    def one(position, memory, number):
        batch = how.take(data, how.plan(jax.random.key(seed), number))
        estimate, memory = estimator.estimate(MODEL.summand, position, memory, Context(data, batch, number))
        return estimate.total, memory, batch.index

    for number, position in enumerate(positions):
        total, memory, index = one(position, memory, number)
        yield data, total, memory, np.asarray(index)


def some_positions(count, seed):
    rng = np.random.default_rng([seed, 9])
    names = HERE.keys()
    return [{name: HERE[name] + np.float32(rng.normal(size=HERE[name].shape)) for name in names} for _ in range(count)]


def test_svrg_moves_its_centre_when_due_and_only_then(seed):
    positions = some_positions(7, seed)
    steps = list(walk(sc.SVRG(BATCH, refresh_every=3), positions, seed))
    for number, (_, total, memory, _) in enumerate(steps):
        due = number - number % 3
        helpers.assert_equal(memory.centre, positions[due])
        np.testing.assert_allclose(ravel_pytree(memory.total)[0], exact_sum(positions[due]), rtol=1e-4, atol=1e-4)
        if number == due:
            helpers.assert_equal(total, memory.total)


@pytest.mark.parametrize("sampling", SAMPLING[1:])
def test_saga_remembers_each_row_as_it_was_last_seen(sampling, seed):
    """Also when a row comes twice in a batch: the total must stay the sum of the table."""
    positions = some_positions(12, seed)
    each, expected = jax.jit(MODEL.summand.each), None
    for position, (data, _, memory, index) in zip(
        positions, walk(sc.SAGA(BATCH, sampling=sampling), positions, seed), strict=True
    ):
        now = jax.tree.map(np.array, each(position, jax.tree.map(lambda leaf: leaf[:NUM_ROWS], data)))
        expected = now if expected is None else expected  # at first all rows are seen where the chain begins
        for name in expected:
            expected[name][index] = now[name][index]
        helpers.assert_close(memory.table, expected)
        helpers.assert_close(
            memory.total, jax.tree.map(lambda leaf: leaf.sum(axis=0), memory.table), rtol=1e-3, atol=1e-4
        )


# -- batches that are the whole data -----------------------------------------------------------------------------


WHOLE = {
    "Minibatch": sc.Minibatch(NUM_ROWS, sampling="without_replacement"),
    "ControlVariates": sc.ControlVariates(NUM_ROWS, centre=THERE),
    "SVRG": sc.SVRG(NUM_ROWS, refresh_every=3),
    "SAGA": sc.SAGA(NUM_ROWS),
}


@pytest.mark.parametrize("name", WHOLE)
def test_all_estimators_are_exact_when_the_batch_is_the_data(name, seed):
    """n = N: whatever is remembered, every estimate along a chain is the sum."""
    positions = some_positions(5, seed)
    for position, (_, total, _, _) in zip(positions, walk(WHOLE[name], positions, seed), strict=True):
        np.testing.assert_allclose(ravel_pytree(total)[0], exact_sum(position), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("num_rows", "chunk"), [(5, 2), (5, 1), (4, 2), (5, None), (5, 100)])
def test_the_full_sum_does_not_depend_on_chunks_or_on_rows_beyond_the_end(num_rows, chunk):
    total = full_sum(MODEL.summand, HERE, jax.tree.map(jnp.asarray, DATA), num_rows, chunk)
    rows = jax.tree.map(lambda leaf: leaf[:num_rows], DATA)
    gradient = helpers.exact_gradient(HERE, rows)
    expected = {name: gradient[name] + HERE[name] for name in gradient}  # less the prior's part
    helpers.assert_close(total, expected, rtol=1e-5, atol=1e-5)


# -- probabilities in proportion to Lipschitz constants --------------------------------------------------------------


def heavy_rows(num_rows=200):
    data = helpers.make_data(num_rows=num_rows)
    data["x"][::50] *= 30.0
    return data


def squares(data):
    """|(x, 1)|² in units of the standard deviations that the information gives, of the small regression."""
    x = np.column_stack([np.ones(len(data["y"])), data["x"].reshape(len(data["y"]), -1)]).astype(np.float64)
    there = {name: np.asarray(leaf, np.float64) for name, leaf in THERE.items()}
    residual = data["y"] - np.sum(data["x"] * there["weights"], axis=(1, 2)) - there["bias"]
    information = np.sum((residual[:, None] * x) ** 2, axis=0)
    return np.sum(x**2 / information, axis=1), x


def test_lipschitz_probabilities_meet_the_bound_of_the_lemma(tmp_path):
    """Found from a stated bound and by measurement, in memory and from disk; E|ξ|² ≤ (Σ L_i)² |θ - θ̂|² / n."""
    data, options = heavy_rows(), {"num_samples": 4, "progress": False}
    sizes, x = squares(data)
    estimator = sc.ControlVariates(BATCH, centre=THERE, probabilities="lipschitz")
    sc.data.write(tmp_path / "rows", data)
    run = sc.sample(MODEL, data, HERE, sampler=sc.SGLD(1e-6), estimator=estimator, **options)
    found = np.asarray(run.origin.estimator.probabilities)
    np.testing.assert_allclose(found, 0.9 * sizes / sizes.sum() + 0.1 / len(sizes), rtol=1e-3)
    path = str(tmp_path / "rows")
    streamed = sc.sample(
        MODEL, path, HERE, sampler=sc.SGLD(1e-6), estimator=estimator, store=tmp_path / "run", **options
    )
    # the folder has the rows in another order
    np.testing.assert_allclose(np.sort(streamed.origin.estimator.probabilities), np.sort(found), rtol=1e-4)
    resumed = sc.resume(tmp_path / "run", MODEL, path, num_samples=8, progress=False)
    assert np.all(np.isfinite(jax.tree.leaves(resumed.draws)[0]))
    unstated = sc.Model(helpers.log_likelihood, helpers.log_prior)
    run = sc.sample(unstated, data, HERE, sampler=sc.SGLD(1e-6), estimator=estimator, **options)
    measured = np.asarray(run.origin.estimator.probabilities)
    assert np.all(measured[::50] > 2 * np.median(measured))
    change = np.full(x.shape[1], 0.1)
    differences = -x * (x @ change)[:, None]  # ∇ log p(x_i | θ) - ∇ log p(x_i | θ̂)
    plain = np.sum(x**2, axis=1)  # L_i

    def variance(p):
        return np.sum(differences**2 / p[:, None]) - np.sum(differences.sum(axis=0) ** 2)

    exact = plain / plain.sum()
    assert variance(exact) <= plain.sum() ** 2 * np.sum(change**2)
    uniform = variance(np.full(len(x), 1 / len(x)))
    assert max(variance(found), variance(measured)) < 0.3 * uniform


@pytest.mark.parametrize("order", [1, 2])
def test_taylor_is_unbiased_and_within_its_bound(order):
    """Every pair of rows of a logistic regression: gradients and values, their means, and the promise to samplers."""
    model = sc.Model.linear("bernoulli", lambda beta: -0.5 * jnp.sum(beta**2))
    rng = np.random.default_rng(3)
    data = {"x": jnp.asarray(rng.normal(size=(NUM_ROWS, 2)), jnp.float32), "y": jnp.array([0.0, 1.0, 1.0, 0.0, 1.0])}
    centre, here = jnp.array([0.2, -0.1]), jnp.array([1.5, 0.8])
    bare = sc.Taylor(BATCH, order=order, centre=centre)
    prepared = bare.prepare(model.valued, table(bare, data), centre, jax.random.key(0))
    estimator, memory = prepared.estimator, prepared.memory
    how = estimator.batching(NUM_ROWS)
    plans, probabilities = outcomes(how, None)
    plans = jnp.asarray([plan for _, plan in plans])

    @jax.jit
    @jax.vmap
    def one(plan):
        batch = how.take(data, plan)
        context = Context(data, batch, jnp.array(1))
        found = [estimator.estimate(model.valued.summand, here, memory, context, kind)[0] for kind in KINDS]
        return [each.total for each in found], estimator.remainder(model.valued.summand, here, memory, batch)

    totals, rest = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), one(plans))
    exact = full_sum(model.valued.summand, here, data, NUM_ROWS)
    for total in totals:
        np.testing.assert_allclose(probabilities @ total.gradient, exact.gradient, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(probabilities @ total.value, exact.value, rtol=1e-4)
    u = np.asarray(memory.expansion.inverse, np.float64) @ (here - centre)
    length = np.linalg.norm(rest.gradient @ np.asarray(memory.expansion.factor, np.float64), axis=1).max()
    assert 0 < length <= memory.expansion.bound * np.linalg.norm(u) ** order
    power = order + 1
    assert 0 < np.abs(rest.value).max() <= memory.expansion.bound * np.linalg.norm(u) ** power / power
