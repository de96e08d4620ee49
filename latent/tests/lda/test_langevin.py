"""The limit laws of the Langevin and Hamiltonian samplers of topics, one step exactly, gradients and states.

Topics do not know each other given the counts, so thousands of topics with the same counts are as many independent
chains. Counts of 5 and more keep all words away from the mirror at 0: the density of θ_kw is θ^(β + n - 1) there, so
a word comes within a step's noise of it, √(2ε)-ish, with a probability of the order ε^((β + n)/2) or less.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco.errors import DivergenceError, InvalidTypeError, InvalidValueError
from scirocco_latent.lda import langevin
from scirocco_latent.lda.langevin_mean import SGLDTopics, SGRLDTopics

pytestmark = pytest.mark.compile

WORDS = np.arange(4)
COUNTS = np.array([5.0, 8.0, 12.0, 20.0])
BETA = 1.5
CHAINS = 10_000
BOUND = 5.2  # of some dozens of z-scores a test: one false alarm in about 10^5 tests


def start(method, rng, **options):
    """Chains with the exact law: ω ~ Dirichlet(β + n), θ_k ~ Gamma(Vβ, 1), r ~ N(0, 1)."""
    topics = langevin.begin(method, len(COUNTS), CHAINS, BETA, int(rng.integers(1 << 30)), 1, **options)
    theta = rng.dirichlet(BETA + COUNTS, CHAINS).T * rng.gamma(len(COUNTS) * BETA, 1.0, CHAINS)
    topics.theta = (np.log(theta) if "natural" in method or "cv" in method else theta).astype(np.float32)
    return topics


def run(topics, counts, time, num_steps, seed):
    for step in range(num_steps):
        if isinstance(topics, langevin.CentredTopics):
            if topics.due(10):
                topics.refer(WORDS, counts, 1.0)
            topics.control(WORDS, counts)
        topics.update(WORDS, counts, 1.0, time, (seed, step))


def moments(topics):
    """What is compared, per chain: ω, its square about the exact mean, and the sum of θ; and of the momentum."""
    omega = topics.draw((0, 0)).astype(np.float64)  # (chains, words)
    natural = isinstance(topics, langevin.NaturalTopics)
    size = np.exp(topics.theta.astype(np.float64)) if natural else topics.theta.astype(np.float64)
    shapes = BETA + COUNTS
    parts = [omega, (omega - shapes / shapes.sum()) ** 2, size.sum(axis=0)[:, None]]
    if hasattr(topics, "momentum"):
        parts += [topics.momentum.T.astype(np.float64), topics.momentum.T.astype(np.float64) ** 2]
    return np.concatenate(parts, axis=1)


def exact(topics):
    shapes = BETA + COUNTS
    total = shapes.sum()
    parts = [shapes / total, shapes * (total - shapes) / (total**2 * (total + 1)), [len(COUNTS) * BETA]]
    if hasattr(topics, "momentum"):
        parts += [np.zeros(4), np.ones(4)]
    return np.concatenate(parts)


LIMITS = {
    # options, longer step, time of the run in the sampler's own unit
    "sgrld": ({}, 0.01, 1.0),
    "sgld": ({}, 0.004, 0.8),
    "sgld_natural": ({}, 0.004, 0.8),
    "sgld_cv": ({}, 0.004, 0.8),
    "sghmc": ({"friction": 4.0}, 0.05, 4.0),
    "sgrhmc": ({"friction": 2.0}, 0.05, 4.0),
    "sghmc, strong friction": ({"friction": 200.0}, 0.05, 4.0),
    "sgrhmc, strong friction": ({"friction": 200.0}, 0.05, 4.0),
}


@pytest.mark.rotates(2)
@pytest.mark.parametrize("case", LIMITS)
def test_the_limit_is_the_dirichlet_posterior(case, seed):
    """Errors are of first order in ε: 2 m(ε/2) - m(ε) takes them out, and what is left is below the noise."""
    options, time, length = LIMITS[case]
    method = case.partition(",")[0]
    rng = np.random.default_rng([seed, 71, list(LIMITS).index(case)])
    counts = np.tile(COUNTS[:, None], CHAINS).astype(np.float32)
    means, variances = [], []
    for part in (1, 2):
        topics = start(method, rng, **options)
        run(topics, counts, time / part, round(length / time) * part, int(rng.integers(1 << 30)))
        found = moments(topics)
        means.append(found.mean(axis=0))
        variances.append(found.var(axis=0) / CHAINS)
    limit = 2 * means[1] - means[0]
    z = (limit - exact(topics)) / np.sqrt(4 * variances[1] + variances[0])
    assert np.abs(z).max() < BOUND, z


@pytest.mark.parametrize("method", ["sgrld", "sgld"])
def test_one_step_is_a_normal_that_is_mirrored(method, seed):
    """θ' = |m + s ξ|: mean and second moment of a folded normal; some words are at the mirror, some far from it."""
    theta = np.array([0.02, 0.5, 2.0, 7.0])
    counts, time, scale = np.array([0.0, 3.0, 1.0, 6.0]), 0.05, 2.0
    total, pull = scale * counts.sum(), scale * counts.sum() / theta.sum()
    shape = BETA - 1 + scale * counts
    if method == "sgrld":
        drift, spread = shape + 1 - theta * (1 + pull), np.sqrt(2 * time * theta)
    else:
        drift, spread = shape / np.maximum(theta, np.sqrt(2 * time)) - 1 - pull, np.sqrt(2 * time)
    assert total == scale * 10
    kind = SGRLDTopics if method == "sgrld" else SGLDTopics
    topics = kind(np.tile(theta[:, None], 100_000), BETA)
    found = np.tile(counts[1:, None], 100_000).astype(np.float32)  # word 0 is not in the batch
    topics.update(WORDS[1:], found, scale, time, (seed, 5))
    middle = theta + time * drift
    law = stats.foldnorm(np.abs(middle) / spread, scale=np.broadcast_to(spread, 4))
    values = topics.theta.astype(np.float64)
    z = (values.mean(axis=1) - law.mean()) / (law.std() / np.sqrt(values.shape[1]))
    squares = values**2
    z2 = (squares.mean(axis=1) - law.moment(2)) / (squares.std(axis=1) / np.sqrt(values.shape[1]))
    assert max(np.abs(z).max(), np.abs(z2).max()) < BOUND


@pytest.mark.parametrize(("method", "speed"), [("sghmc", 1.0), ("sgrhmc", 0.5)])
def test_momentum_changes_its_sign_at_the_mirror(method, speed):
    """Speed stays. SGRHMC moves √θ, half as fast."""
    topics = langevin.begin(method, 1, 1000, 1.0, 0, 1)
    topics.theta[:] = 0.01 ** (1 / speed)
    before = topics.momentum.copy()
    topics.glide(0.1)
    moved = 0.01 + 0.1 * speed * before
    assert (moved < 0).any()
    np.testing.assert_array_equal(topics.momentum, np.where(moved < 0, -before, before))
    np.testing.assert_allclose(topics.theta**speed, np.abs(moved), atol=1e-5)


@pytest.mark.parametrize(("method", "prior"), [("sghmc", 1.0), ("sgrhmc", 0.5), ("sgld", 1.0)])
def test_the_force_at_zero_is_that_at_the_length_of_a_step(method, prior):
    """1/max(θ, ε), 1/max(√θ, ε) and 1/max(θ, √(2ε)): a word at 0 is kicked by a finite amount, which is known."""
    topics = langevin.begin(method, 1, 1, BETA, 0, 1)
    topics.theta[:] = 0.0
    given = np.arange(0), np.zeros((0, 1), np.float32), 1.0
    if method == "sgld":
        topics.update(*given, 0.02, (3, 4))
        noise = 0.2 * langevin.normals((3, 4), (1, 1))
        assert topics.theta[0, 0] == pytest.approx(abs(0.02 * ((BETA - 1) / 0.2 - 1) + noise[0, 0]), rel=1e-5)
    else:
        pull = 1.0 if method == "sghmc" else 0.0
        assert topics.force_on(*given, np.float32(0.02))[0, 0] == pytest.approx((BETA - prior) / 0.02 - pull)


def log_posterior_mean(theta, counts):
    prior = jnp.sum((BETA - 1) * jnp.log(theta) - theta)
    return prior + jnp.sum(counts * (jnp.log(theta) - jnp.log(theta.sum(axis=0))))


def log_posterior_natural(theta, counts):
    prior = jnp.sum(BETA * theta - jnp.exp(theta))
    return prior + jnp.sum(counts * jax.nn.log_softmax(theta, axis=0))


@pytest.mark.parametrize("method", ["sgld", "sgld_natural"])
def test_gradients(method, seed):
    rng = np.random.default_rng([seed, 3])
    topics = langevin.begin(method, 6, 3, BETA, seed, 1)
    words = np.array([0, 2, 5])
    counts = rng.gamma(2.0, 2.0, (3, 3)).astype(np.float32)
    full = np.zeros((6, 3), np.float32)
    full[words] = 2.5 * counts
    law = log_posterior_mean if method == "sgld" else log_posterior_natural
    wanted = np.asarray(jax.grad(law)(jnp.asarray(topics.theta), jnp.asarray(full)))
    got = topics.gradient(words, counts, 2.5)
    assert np.max(np.abs(got - wanted) / (1 + np.abs(wanted))) < 1e-5


def test_the_control_variate_has_the_full_gradient_as_its_mean(seed):
    """Six documents in three batches, counts that depend on the topics: the mean over batches is the whole corpus'."""
    rng = np.random.default_rng([seed, 9])
    documents = rng.poisson(3.0, (3, 6, 1)).astype(np.float32)  # batches, words

    def local(batch, omega):  # what a local step would find, each word on its own
        return documents[batch] * omega / omega.sum(axis=1, keepdims=True)

    topics = langevin.begin("sgld_cv", 6, 2, 0.5, seed, 1)
    everything = np.arange(6)
    assert topics.due(1000) and not topics.centred
    here = topics.read(everything, (0, 0))
    topics.refer(everything, sum(local(b, here) for b in range(3)), 1.0)
    assert topics.centred and not topics.due(1000)
    topics.theta += rng.normal(0.0, 0.3, topics.theta.shape).astype(np.float32)
    estimates = []
    for batch in range(3):
        topics.control(everything, local(batch, topics.read_centre(everything)))
        now = local(batch, topics.read(everything, (0, 0)))
        estimates.append(topics.gradient(everything, now, 3.0))
    plain = langevin.NaturalTopics(topics.theta, 0.5)
    now = sum(local(b, plain.read(everything, (0, 0))) for b in range(3))
    np.testing.assert_allclose(np.mean(estimates, axis=0), plain.gradient(everything, now, 1.0), atol=2e-4)
    singles = [plain.gradient(everything, local(b, plain.read(everything, (0, 0))), 3.0) for b in range(3)]
    assert np.var(estimates, axis=0).sum() < np.var(singles, axis=0).sum()
    topics.theta = topics.centre.copy()
    topics.control(everything, local(0, here))
    np.testing.assert_allclose(
        topics.gradient(everything, local(0, here), 3.0), topics.reference + 0.5 - np.exp(topics.centre), atol=2e-4
    )


def test_the_centre_is_found_without_noise():
    topics = langevin.begin("sgld_cv", 4, 3, BETA, 0, 1, optimise_steps=4000)
    counts = np.tile(COUNTS[:, None], 3).astype(np.float32)
    assert not topics.due(1)
    run(topics, counts, 0.01, 4000, 0)
    assert topics.due(1)
    topics.refer(WORDS, counts, 1.0)
    run(topics, counts, 0.01, 9, 0)
    assert topics.due(9) and not topics.due(10), "a new reference after so many steps"
    topics.theta = topics.centre.copy()
    # the mode in θ: e^θ = β + n - n_k ω, of which the sum says Σ e^θ = Vβ, so ω ∝ β + n
    wanted = (BETA + COUNTS) / (BETA + COUNTS).sum()
    np.testing.assert_allclose(topics.draw((0, 0)), np.tile(wanted, (3, 1)), rtol=1e-4)


@pytest.mark.parametrize("method", langevin.METHODS)
def test_state_goes_on_bit_for_bit(method):
    counts = np.tile(COUNTS[:, None], 5).astype(np.float32)
    one = langevin.begin(method, 4, 5, 0.1, 3, 1)
    run(one, counts, 0.01, 7, 1)
    two = langevin.begin(method, 4, 5, 0.1, 4, 1)
    two.restore_state(one.state())
    for topics in (one, two):
        run(topics, counts, 0.01, 9, 2)
    for name, array in one.state().items():
        np.testing.assert_array_equal(array, two.state()[name])
    assert one.draw((0, 0)).shape == (5, 4)
    np.testing.assert_allclose(one.draw((0, 0)).sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(one.read(WORDS[1:3], (0, 0)).T, one.draw((0, 0))[:, 1:3], rtol=1e-5)


@pytest.mark.parametrize("method", langevin.METHODS)
def test_sparse_topics_stay_finite(method):
    """β far below 1 and words without counts: θ comes near 0 all the time."""
    topics = langevin.begin(method, 200, 10, 0.05, 0, 1)
    counts = np.full((5, 10), 40.0, np.float32)
    words = np.arange(5)
    for step in range(300):
        if method == "sgld_cv" and topics.due(50):
            topics.refer(words, counts, 1.0)
        if method == "sgld_cv":
            topics.control(words, counts)
        topics.update(words, counts, 1.0, 0.005, (1, step))
    omega = topics.draw((0, 0))
    assert np.all(np.isfinite(omega)) and np.all(omega >= 0)
    np.testing.assert_allclose(omega.sum(axis=1), 1.0, rtol=1e-4)


def test_words_for_what_is_wrong():
    with pytest.raises(InvalidValueError, match="`method` must be one of 'sgrld'"):
        langevin.begin("hmc", 4, 2, 0.1, 0, 1)
    with pytest.raises(InvalidValueError, match="no option `friction`; it has none"):
        langevin.begin("sgrld", 4, 2, 0.1, 0, 1, friction=1.0)
    with pytest.raises(InvalidValueError, match="`friction` of sghmc"):
        langevin.begin("sghmc", 4, 2, 0.1, 0, 1, friction=0.0)
    with pytest.raises(InvalidTypeError, match="`optimise_steps`"):
        langevin.begin("sgld_cv", 4, 2, 0.1, 0, 1, optimise_steps=1.5)
    topics = langevin.begin("sgld", 4, 2, 0.1, 0, 1)
    topics.theta[1, 1] = np.inf
    with pytest.raises(DivergenceError, match=r"topic 1 .* ten times smaller"):
        topics.read(WORDS, (0, 0))
