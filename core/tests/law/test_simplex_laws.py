"""SCIR and SCIR-CV, through `sc.sample`, have exactly the laws that `sc.simplex.theory` gives them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import scirocco as sc
from law.kernel_laws import ks_bound, ks_distance
from scirocco.analysis import ks_dirichlet
from scirocco.simplex import theory

pytestmark = pytest.mark.law

# As in figure 3 of the CV paper, but with a fifth of the rows: drawing batches without replacement is most of the work.
# The other numbers keep the power: a step that is a tenth too large is 16 standard errors off, the other
# parametrization 20, batches with replacement 2.4.
NUM_ROWS, COUNT, BATCH, ALPHA, STEP, START = 200, 100, 20, 0.1, 0.2, 7.67
LOOK_AT = (1, 5, 20, 40)
SAMPLERS = {
    "scir": (sc.SCIR(STEP), "scir", 2),
    "scir_cv_1": (sc.SCIRCV(STEP, parametrization=1), "scir_cv", 1),
    "scir_cv_2": (sc.SCIRCV(STEP), "scir_cv", 2),
}


def in_category(_, row):
    return row[None]


@pytest.mark.parametrize(
    "name", ["scir", *(pytest.param(name, marks=pytest.mark.rotates(2)) for name in ("scir_cv_1", "scir_cv_2"))]
)
def test_moments_are_those_of_the_theory(name, seed):
    """Mean and variance after 1, 5, 20 and 40 steps, over independent chains, |z| < 5."""
    sampler, process, parametrization = SAMPLERS[name]
    rows = (np.arange(NUM_ROWS) < COUNT).astype(np.float32)
    run = sc.sample(
        sc.CountModel(ALPHA, in_category, space="positive"),
        rows,
        jnp.array([START]),
        sampler=sampler,
        estimator=sc.Minibatch(BATCH, "without_replacement"),
        num_samples=max(LOOK_AT),
        num_chains=2_000,
        chain_method="vmap",
        seed=seed,
        progress=False,
    )
    counts = theory.Counts.hypergeometric(ALPHA, COUNT, NUM_ROWS, BATCH)
    exact = theory.moments(process, START, counts, STEP, list(LOOK_AT), parametrization)
    for number, (mean, variance) in zip(LOOK_AT, zip(exact.mean, exact.variance, strict=True), strict=True):
        theta = np.asarray(run.draws, np.float64)[:, number - 1, 0]
        squares = (theta - mean) ** 2
        assert abs(theta.mean() - mean) < 5 * np.sqrt(variance / theta.size), number
        assert abs(squares.mean() - variance) < 5 * squares.std() / np.sqrt(theta.size), number


def test_the_corrected_process_has_the_moments_of_the_target(seed):
    """θ has mean and variance a; without the correction its variance is 1.15 a here, 8 standard errors."""
    count, a = 30, 30 + ALPHA
    run = sc.sample(
        sc.CountModel(ALPHA, in_category, space="positive"),
        (np.arange(NUM_ROWS) < count).astype(np.float32),
        jnp.array([a]),
        sampler=sc.SCIRCV(0.5, corrected=True),
        estimator=sc.Minibatch(BATCH, "with_replacement"),
        num_samples=24,
        num_burnin=16,
        num_chains=1_000,
        chain_method="vmap",
        seed=seed,
        progress=False,
    )
    theta = np.asarray(run.draws, np.float64)[..., 0]
    for values, expected in ((theta, a), ((theta - a) ** 2, a)):
        means = values.mean(axis=1)
        assert abs(means.mean() - expected) < 5 * means.std() / np.sqrt(means.size), means.mean() / expected


@pytest.mark.parametrize("parametrization", [1, 2])
def test_the_corrected_process_on_the_papers_example(parametrization, seed):
    """Counts 800, 100, 100, 0, ..., batches of 10, steps of ½: the moments of the corrected recursion, none diverges.

    They are those of the target to 2 %; without the correction the variance of the second is 1.6 or 1.5 times a.
    """
    counts = np.array([800, 100, 100, *[0] * 7])
    run = sc.sample(
        sc.CountModel(ALPHA, lambda _, z: jax.nn.one_hot(z, 10), space="positive"),
        np.repeat(np.arange(10), counts),
        jnp.asarray(counts + ALPHA, jnp.float32),
        sampler=sc.SCIRCV(0.5, parametrization=parametrization, corrected=True),
        estimator=sc.Minibatch(10, "without_replacement"),
        num_samples=10,
        num_burnin=15,
        num_chains=1_000,
        chain_method="vmap",
        seed=seed,
        progress=False,
    )
    theta = np.asarray(run.draws, np.float64)
    for place in (0, 1, 3):
        a = counts[place] + ALPHA
        for values, expected in ((theta[..., place], a), ((theta[..., place] - a) ** 2, a)):
            means = values.mean(axis=1)
            assert abs(means.mean() - expected) < 5 * means.std() / np.sqrt(means.size) + 0.02 * a, place


@pytest.mark.parametrize(
    "sampler",
    [
        sc.SCIR(0.5),
        sc.SCIRCV(0.05),
        sc.SCIRCV(5.0, parametrization=1),
        sc.SCIRCV(5.0),
        sc.SCIRCV(0.5, refresh_every=1, refresh_size=100),
        sc.SCIRCV(0.5, refresh_every=20, refresh_size=100),
    ],
    ids=str,
)
def test_mean_and_variance_of_categories_that_most_batches_miss(sampler, seed):
    """θ of a category of four rows among 400 is Gamma(α + 4), but for the noise of the batches.

    That is SCIR's, except where steps are so short that the control variate is stable. With a reference from 100 rows
    that chose itself, the mean would be 1.4 times as large.
    """
    num_rare, count, num_rows, batch = 40, 4, 400, 40
    rows = np.repeat(np.arange(num_rare + 1), [*[count] * num_rare, num_rows - num_rare * count])
    run = sc.sample(
        sc.CountModel(ALPHA, lambda _, z: jax.nn.one_hot(z, num_rare + 1), space="positive"),
        rows,
        jnp.asarray(np.bincount(rows) + ALPHA, jnp.float32),
        sampler=sampler,
        estimator=sc.Minibatch(batch, "without_replacement"),
        num_samples=20,
        num_burnin=max(40, round(6 / sampler.step_size)),
        thin=7,  # draws at all places between two renewals
        num_chains=100,
        chain_method="vmap",
        seed=seed,
        progress=False,
    )
    theta, mean = np.asarray(run.draws, np.float64)[..., :-1], ALPHA + count
    every, size = (getattr(sampler, name, None) for name in ("refresh_every", "refresh_size"))
    # a renewed reference is the estimate of its step
    sizes = [batch] * (every - 1) + [size] if every else [batch]
    noise = np.mean([theory.variance_of_estimate(count, num_rows, each) for each in sizes])
    variance = mean + np.tanh(sampler.step_size / 2) * noise
    controlled = isinstance(sampler, sc.SCIRCV) and bool(np.all(run.stats["controlled"] > 0.99))
    assert controlled == (sampler.step_size == 0.05)
    if controlled:
        counts = theory.Counts.hypergeometric(ALPHA, count, num_rows, batch)
        mean, variance = theory.stationary("scir_cv", counts, sampler.step_size)
    for values, expected in ((theta, mean), ((theta - mean) ** 2, variance)):
        means = values.mean(axis=(1, 2))
        error = means.std(ddof=1) / np.sqrt(means.size)
        assert abs(means.mean() - expected) < 5 * error, (means.mean(), expected, error)


def test_many_steps_at_the_boundary():
    """α = 10⁻³ and a row that no datum touches: no NaN, nothing negative, sums of one, in a million draws."""

    def counts(omega, z):
        return jnp.stack([jax.nn.one_hot(z, 8), jnp.zeros(8)])

    def look(omega):
        return {"least": omega.min(), "off": jnp.max(jnp.abs(omega.sum(axis=-1) - 1.0))}

    run = sc.sample(
        sc.CountModel(1e-3, counts),
        np.repeat(np.arange(8), [90, 10, 0, 0, 0, 0, 0, 0]),
        jnp.full((2, 8), 0.125),
        sampler=sc.SCIR(0.5),
        estimator=sc.Minibatch(5),
        num_samples=1_000,
        num_chains=100,
        chain_method="vmap",
        keep_draws=False,
        reducers={"look": sc.reducers.Trace(look)},
        progress=False,
    )
    seen = run.traces["look"]
    assert seen["least"].shape == (100, 1_000)
    assert np.all(np.isfinite(seen["least"])) and np.all(seen["least"] >= 0)
    assert np.all(seen["off"] <= 1e-6)


# -- latent counts -----------------------------------------------------------------------------------------------------

TOPICS = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
LOG_TOPICS = jnp.log(jnp.asarray(TOPICS, jnp.float32))


def drawn_topic(omega, word, key):
    """Which of two known topics a word came from, given the share of each."""
    first, second = jnp.log(omega) + LOG_TOPICS[:, word]
    return jax.nn.one_hot(jnp.where(jax.random.uniform(key) < jax.nn.sigmoid(first - second), 0, 1), 2)


def share_posterior(words):
    """The posterior of the first topic's share, on a grid."""
    share = (np.arange(4_000) + 0.5) / 4_000
    height = np.log(np.outer(share, TOPICS[0]) + np.outer(1 - share, TOPICS[1])) @ np.bincount(words, minlength=3)
    weight = np.exp(height - height.max())
    mean = weight @ share / weight.sum()
    return mean, np.sqrt(weight @ (share - mean) ** 2 / weight.sum())


@pytest.mark.rotates(2)
@pytest.mark.parametrize(
    "sampler",
    [sc.SCIRCV(), sc.SCIRCV(refresh_every=4, refresh_size=160)],
    ids=["renewed from all rows", "renewed from some"],
)
def test_latent_counts_have_the_right_posterior(sampler, seed):
    """Mean and spread over independent chains, at the end of runs that all start at the posterior mean.

    (SCIR with drawn counts: `test_blocks_laws`.)

    The default steps may add a tenth to the variance; five standard errors of 400 chains are 0.25 and 0.18.
    """
    words = np.random.default_rng([seed, 8]).choice(3, 400, p=[0.3, 0.7] @ TOPICS)
    mean, sd = share_posterior(words)
    run = sc.sample(
        sc.CountModel(1.0, drawn_topic),
        words,
        jnp.array([mean, 1 - mean]),
        sampler=sampler,
        estimator=sc.Minibatch(40),
        num_samples=1,
        num_burnin=150,
        num_chains=400,
        chain_method="vmap",
        seed=seed,
        progress=False,
    )
    draws = np.asarray(run.draws, np.float64)[:, 0, 0]
    assert abs(draws.mean() - mean) < 0.27 * sd
    assert 0.82 < draws.std() / sd < 1.24


# -- few steps, whose programs are compiled in a hurry (after those above, which make many) --------------------------

COUNTS = np.array([60, 0, 3, 0, 17])


def categories():
    return np.repeat(np.arange(5), COUNTS)


def one_hot(omega, z):
    return jax.nn.one_hot(z, 5)


@pytest.mark.usefixtures("quick_compiler")
@pytest.mark.parametrize("sampler", [sc.SCIR(4.0), sc.SCIRCV(4.0)])
def test_with_all_rows_the_law_is_dirichlet_for_any_step(sampler, seed):
    """However long the step: what remains of the start after five of them is e^(-20)."""
    run = sc.sample(
        sc.CountModel(0.2, one_hot),
        categories(),
        jnp.full(5, 0.2),
        sampler=sampler,
        estimator=sc.Full(),
        num_samples=1,
        num_burnin=4,
        num_chains=4_000,
        chain_method="vmap",
        seed=seed,
        progress=False,
    )
    omega = np.asarray(run.draws, np.float64)[:, 0]
    assert np.max(ks_dirichlet(omega, COUNTS + 0.2, each=True)) < ks_bound(len(omega), 2 * 4)


@pytest.mark.usefixtures("quick_compiler")
def test_gamma_targets(seed):
    """A Poisson rate with a gamma prior: Gamma(α + Σx, β + N)."""
    x = np.random.default_rng(seed).poisson(2.5, 40).astype(np.float32)
    run = sc.sample(
        sc.CountModel(1.5, lambda rate, x: x[None], space="positive", rate=0.5 + len(x)),
        x,
        jnp.array([1.0]),
        sampler=sc.SCIR(5.0),
        estimator=sc.Full(),
        num_samples=1,
        num_burnin=4,
        num_chains=20_000,
        chain_method="vmap",
        seed=seed,
        progress=False,
    )
    exact = scipy.stats.gamma(1.5 + x.sum(), scale=1 / (0.5 + len(x)))
    assert ks_distance(np.asarray(run.draws).ravel(), exact.cdf) < ks_bound(20_000, 1)


@pytest.mark.usefixtures("quick_compiler")
def test_sgrld_is_an_euler_step(seed):
    """By coupling: the same normals, by hand."""
    model = sc.CountModel(0.2, one_hot)
    kernel = sc.Kernel(model, categories(), sc.SimplexSGRLD(0.01), sc.Full())
    state = kernel.init(jax.random.key(seed), jnp.full(5, 0.2))
    theta = np.exp(np.asarray(state.sampler.position, np.float64))
    np.testing.assert_allclose(theta.sum(), COUNTS.sum() + 1.0, rtol=1e-5)
    moved, _ = kernel.step(jax.random.key(seed + 1), state)
    xi = np.asarray(sc.SimplexSGRLD(0.01).noise(jax.random.key(seed + 1), state.sampler.position))
    by_hand = np.abs(theta + 0.01 * (COUNTS + 0.2 - theta) + np.sqrt(0.02 * theta) * xi)
    np.testing.assert_allclose(np.exp(moved.sampler.position), by_hand, rtol=2e-4)


@pytest.mark.usefixtures("quick_compiler")
def test_stratified_counts_are_exact():
    """With the categories as strata every estimate is the sum itself, so minibatches cost nothing."""
    model, z = sc.CountModel(0.2, one_hot), categories()
    kernel = sc.Kernel(model, z, sc.SCIR(0.1), sc.Stratified(10, strata=z))
    state = kernel.init(jax.random.key(0), jnp.full(5, 0.2))
    for number in range(5):
        state, _ = kernel.step(jax.random.key(number), state)
        np.testing.assert_allclose(state.gradient.total, COUNTS + 0.2, rtol=1e-5)
