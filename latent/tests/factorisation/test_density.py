"""Gradients in closed form, the compact form that SAGA remembers, and the conditional law of the precisions."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import helpers
from scirocco.data.batching import Batch
from scirocco.data.tables import Resident
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import SAGA, Context, Minibatch
from scirocco.samplers import PSGLD, SGFS, SGLD, Gradient
from scirocco_latent.factorisation.density import TABLES, Law, RatingModel, Ratings
from scirocco_latent.factorisation.method import CompactSAGA, WithPrecisions, gamma_conditional

NUM_USERS, NUM_ITEMS, NUM_FACTORS, NUM_ROWS = 5, 4, 2, 12
LAWS = {"sampled": Law(2.0, 3.0, None, 1.5, 0.5), "given": Law(1.0, 300.0, 3.0)}

pytestmark = [pytest.mark.law, pytest.mark.usefixtures("quick_compiler")]


def position_of(law, seed):
    rng = np.random.default_rng([seed, 1])
    shapes = ((NUM_USERS, NUM_FACTORS), (NUM_ITEMS, NUM_FACTORS), (NUM_USERS,), (NUM_ITEMS,), (4,))
    names = (*TABLES, "precisions")
    position = {n: jnp.asarray(rng.normal(size=s), jnp.float32) for n, s in zip(names, shapes, strict=True)}
    return position | ({"rating_precision": jnp.asarray(0.4)} if law.rating_precision is None else {})


def rows_of(seed):
    """Some pairs come more than once."""
    rng = np.random.default_rng([seed, 2])
    return Ratings(
        jnp.asarray(rng.integers(0, NUM_USERS, NUM_ROWS), jnp.int32),
        jnp.asarray(rng.integers(0, NUM_ITEMS, NUM_ROWS), jnp.int32),
        jnp.asarray(rng.normal(size=NUM_ROWS), jnp.float32),
    )


@pytest.mark.parametrize("name", LAWS)
def test_gradients_are_those_of_the_density(name, seed):
    """Of the likelihood, with weights, row by row, and of the prior with its Jacobians."""
    model, rows = RatingModel(LAWS[name]), rows_of(seed)
    position = position_of(LAWS[name], seed)
    weights = jnp.linspace(0.0, 2.0, NUM_ROWS)

    @jax.jit
    def both(position):
        """What is found in closed form, and what is expected."""
        slope, found, expected = jax.grad(model.log_likelihood_sum), [], []
        for given in (None, weights):
            found.append(model.summand.total(position, rows, given))
            expected.append(slope(position, rows, given))
        found.append(jax.tree.map(lambda v: v.sum(axis=0), model.summand.each(position, rows)))
        expected.append(model.summand.total(position, rows))
        prior = model.combine(position, jax.tree.map(jnp.zeros_like, position))
        return (found, expected), (prior, jax.grad(model.log_prior_density)(position))

    likelihood, prior = both(position)
    helpers.assert_close(*likelihood, rtol=1e-3, atol=1e-4)
    helpers.assert_close(*prior, rtol=1e-3, atol=1e-3)


def test_the_density_is_the_models(seed):
    """By SciPy: normal ratings, normal tables, Gamma precisions; the constants do not depend on the parameters."""
    law, rows = LAWS["sampled"], rows_of(seed)
    model = RatingModel(law)

    def exact(params):
        p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
        mean = np.sum(p["users"][rows.user] * p["items"][rows.item], axis=1)
        mean += p["user_bias"][rows.user] + p["item_bias"][rows.item]
        total = stats.norm.logpdf(rows.value, mean, p["rating_precision"] ** -0.5).sum()
        total += stats.gamma.logpdf(p["precisions"], law.shape, scale=1 / law.rate).sum()
        total += stats.gamma.logpdf(p["rating_precision"], law.noise_shape, scale=1 / law.noise_rate)
        return total + sum(
            stats.norm.logpdf(p[name], 0, precision**-0.5).sum()
            for name, precision in zip(TABLES, p["precisions"], strict=True)
        )

    first, second = (model.constrain(position_of(law, seed + k)) for k in (0, 1_000))
    ours = float(model.log_density(first, rows) - model.log_density(second, rows))
    assert ours == pytest.approx(exact(first) - exact(second), rel=1e-4, abs=1e-2)


def test_models_of_one_law_are_one():
    assert RatingModel(Law()) == RatingModel(Law()) != RatingModel(Law(rate=2.0))
    assert hash(RatingModel(Law())) == hash(RatingModel(Law()))
    assert pickle.loads(pickle.dumps(RatingModel(LAWS["given"]))) == RatingModel(LAWS["given"])


# -- SAGA --------------------------------------------------------------------------------------------------------------


def test_compact_saga_is_saga(seed):
    """The same estimates and the same memory, expanded, over several batches."""
    law, rows = LAWS["sampled"], rows_of(seed)
    model, size = RatingModel(law), 5
    table = Resident(rows, Minibatch(size).batching(NUM_ROWS))
    memories, key = {}, jax.random.key(seed)
    estimators = {"dense": SAGA(size), "compact": CompactSAGA(size)}
    start = position_of(law, seed)
    for name, estimator in estimators.items():
        memories[name] = estimator.prepare(model, table, start, key).memory
        shapes = jax.tree.map(jnp.shape, estimator.blank_memory(start, start, NUM_ROWS))
        assert jax.tree.map(jnp.shape, memories[name]) == shapes

    @jax.jit
    def estimates(position, memories, index, number):
        chosen = jax.tree.map(lambda leaf: leaf[index], rows)
        context = Context(rows, Batch(chosen, index, None, NUM_ROWS / size, 1.0, NUM_ROWS), number)
        found = {
            name: estimator.estimate(model.summand, position, memories[name], context)
            for name, estimator in estimators.items()
        }
        totals = {name: (estimate.total, memory.total) for name, (estimate, memory) in found.items()}
        return totals, {name: memory for name, (_, memory) in found.items()}

    rng = np.random.default_rng(seed)
    for number in range(3):
        index = jnp.asarray(rng.choice(NUM_ROWS, size, replace=False))
        position = position_of(law, seed + 10 * number)
        totals, memories = estimates(position, memories, index, jnp.asarray(number))
        helpers.assert_close(totals["compact"], totals["dense"], rtol=1e-3, atol=1e-3)


def test_compact_saga_refuses():
    with pytest.raises(InvalidValueError, match="with_replacement"):
        CompactSAGA(5, sampling="with_replacement")
    with pytest.raises(InvalidValueError, match="max_memory"):
        CompactSAGA(5, max_memory=100).check_memory(position_of(LAWS["given"], 0), NUM_ROWS, 1)
    table = Resident(helpers.make_data(), Minibatch(5).batching(helpers.NUM_ROWS))
    with pytest.raises(InvalidTypeError, match=r"requires a summand with `compact`.*sc\.SAGA"):
        CompactSAGA(5).prepare(helpers.MODEL, table, helpers.make_params(), jax.random.key(0))


# -- precisions --------------------------------------------------------------------------------------------------------


def test_conditional_law_by_bayes():
    """log Gamma(λ; conditional) - log prior - log likelihood does not depend on λ."""
    table, grid = np.array([0.5, -1.0, 2.0]), np.array([0.2, 1.0, 5.0])
    shape, rate = gamma_conditional(jnp.asarray(table), 2.0, 3.0)
    left = stats.gamma.logpdf(grid, shape, scale=1 / float(rate))
    right = stats.gamma.logpdf(grid, 2.0, scale=1 / 3.0)
    right += stats.norm.logpdf(table[:, None], 0, grid**-0.5).sum(axis=0)
    np.testing.assert_allclose(left - right, (left - right)[0], rtol=1e-5)


def test_precisions_have_their_conditional_law(seed):
    """After a step each λ is Gamma given the tables as they are then."""
    law, count = LAWS["sampled"], 3_000
    sampler = WithPrecisions(SGLD(1e-3), law.shape, law.rate)
    start = position_of(law, seed)
    gradient = Gradient(jax.tree.map(jnp.ones_like, start))

    @jax.jit
    def moved(key):
        first, second = jax.random.split(key)
        state = sampler.init(start, first)
        return sampler.step(state, gradient, sampler.noise(second, start), jnp.zeros((), jnp.int32)).position

    drawn = jax.tree.map(np.asarray, jax.vmap(moved)(jax.random.split(jax.random.key(seed), count)))
    for number, name in enumerate(TABLES):
        squares = np.sum(drawn[name].reshape(count, -1) ** 2, axis=1)
        shape, rate = law.shape + start[name].size / 2, law.rate + squares / 2
        uniform = stats.gamma.cdf(np.exp(drawn["precisions"][:, number]) * rate, shape)
        assert stats.kstest(uniform, "uniform").pvalue > 1e-6
        assert abs(np.corrcoef(uniform, squares)[0, 1]) < 5 / np.sqrt(count)


def test_samplers_that_need_more_are_refused():
    for inner in (SGFS(1e-3), PSGLD(1e-3, correction=True)):
        with pytest.raises(InvalidTypeError, match="needs more than the gradient"):
            WithPrecisions(inner)
    with pytest.raises(InvalidTypeError, match="must be a sampler"):
        WithPrecisions(SGLD)
