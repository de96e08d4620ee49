"""Topic models as array programs (device="jax"), on JAX's CPU backend: exact laws, stores, memory that is too small."""

from __future__ import annotations

import itertools
import types

import numpy as np
import pytest

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

import jax

from enumerated_topics import ALPHA, BETA, DOCUMENTS, TOPICS, WORDS, exact_products
from scirocco.errors import InvalidValueError
from scirocco_latent.lda import LDA, array_chain, array_topics, arrays
from scirocco_latent.lda.chain import TopicChain
from scirocco_latent.lda.corpus import as_corpus
from scirocco_latent.lda.document_batches import Delivery
from scirocco_latent.lda.estimator import size_of
from scirocco_latent.lda.settings import resolve
from scirocco_latent.lda.sizes import FITTING

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

JAX = {"device": "jax", "alpha": ALPHA, "beta": BETA}


@pytest.fixture
def small_blocks(changed):
    """Blocks of at most seven tokens, so that six documents are several blocks."""
    changed(FITTING, least_block=1, most_block=7, rounded_to=1)


def test_draws_have_the_exact_posterior(small_blocks, seed):
    """Through the public interface, with a growth and a spare topic, by summing over all z."""
    options = {"growth": [(2, 3), (5, 2)], "spare_topics": 1, "num_samples": 2_400, "num_burnin": 60, "thin": 1}
    model = LDA(TOPICS, seed=seed, **JAX, **options).fit(DOCUMENTS, progress=False)
    draws = np.asarray(model.draws_["topics"][0], np.float64).reshape(40, -1, TOPICS, WORDS)
    means = np.einsum("bnkw,bnkv->bwv", draws, draws) / draws.shape[1]
    errors = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    exact = exact_products()
    assert np.max(np.abs(means.mean(axis=0) - exact) / errors) < 5.0
    assert np.max(errors / exact) < 0.1  # there is something to see


def test_tokens_get_topics_in_proportion(seed):
    """P(z = k) ∝ η_dk ω_kw for 37 topics, some of which are impossible; a word of no topic is anywhere."""
    rng, num_topics, count = np.random.default_rng(seed), 37, 20_000
    width = arrays.width_for(num_topics)
    eta, weights = np.zeros((3, width), np.float32), np.zeros((4, width), np.float32)
    eta[:, :num_topics] = rng.gamma(0.3, size=(3, num_topics))
    weights[:3, :num_topics] = rng.gamma(0.3, size=(3, num_topics)) * (rng.random((3, num_topics)) < 0.7)
    pairs = np.array(list(itertools.product(range(3), range(4))), np.int32)
    tokens = arrays.Tokens(*np.repeat(pairs, count, axis=0).T)
    words = arrays.seed_words((seed, 1))
    z = np.asarray(jax.jit(arrays.assigned)(words, eta, weights, tokens, num_topics)).reshape(12, count)
    for (document, word), found in zip(pairs, z, strict=True):
        chance = eta[document].astype(float) * weights[word]
        if not chance.any():
            chance[:num_topics] = 1.0
        chance /= chance.sum()
        frequency = np.bincount(found, minlength=width) / count
        assert not frequency[chance == 0].any()
        score = (frequency - chance) / np.sqrt(np.maximum(chance * (1 - chance), 1e-9) / count)
        assert np.abs(score[chance > 2e-2]).max() < 5.0


def test_the_local_step_has_the_exact_law(seed):
    """Mean counts of one document's words given ω, repeated in 4,000 documents, by summing over all z."""
    copies, document = 4_000, [0, 0, 2]
    omega, alpha = np.array([[0.6, 0.1], [0.3, 0.2], [0.1, 0.7]], np.float32), np.array([0.3, 0.5])
    expected, total = np.zeros((3, 2)), 0.0
    for z in itertools.product(range(2), repeat=3):
        urn, weight = alpha.copy(), 1.0
        for word, topic in zip(document, z, strict=True):
            weight *= urn[topic] * omega[word, topic]
            urn[topic] += 1
        total += weight
        for word, topic in zip(document, z, strict=True):
            expected[word, topic] += weight
    expected /= total
    model = LDA(2, alpha=alpha, device="jax", memory="none", sweeps=30, burn_in=29)
    settings = resolve(model.get_params(), size_of(as_corpus(DOCUMENTS)))
    counting = array_topics.OnDevice(3, settings)
    rows = (
        np.arange(copies + 1) * 2,
        np.tile(np.array([0, 2], np.int32), copies),
        np.tile(np.array([2, 1], np.int32), copies),
    )
    batch = counting.prepare(Delivery(np.arange(copies), rows))
    weights = np.zeros((3, arrays.width_for(2)), np.float32)
    weights[:, :2] = omega
    found = np.asarray(counting.counts(batch, weights, (seed, 2)))
    assert found.sum() == 3 * copies and found[1].sum() == 0
    shares = found[[0, 2], 0] / copies
    error = np.array([1.0, 0.5]) / np.sqrt(copies)  # at most: counts of up to two tokens and of one
    assert np.abs((shares - expected[[0, 2], 0]) / error).max() < 5.0


@pytest.mark.parametrize("kind", [array_topics.ArrayTopics, array_topics.ControlledArrayTopics])
def test_scir_has_its_stationary_law(kind, seed):
    """θ ~ Gamma(β + n) if all documents are in the batch; with and without a reference."""
    count = 60_000
    topics = kind.begin(count, 2, BETA, seed)
    counts = np.broadcast_to(np.float32([0.0, 5.0]), (count, 2))
    if kind is array_topics.ControlledArrayTopics:
        topics.refer(np.arange(1), counts, 1.0)
    for step in range(12):
        topics.update(np.arange(1), counts, 1.0, 1.0, (seed, step))
    shapes, theta = BETA + counts[0], np.asarray(topics.theta, np.float64)
    means = (theta.mean(axis=0) - shapes) / np.sqrt(shapes / count)
    spread = (theta.var(axis=0) - shapes) / np.sqrt((6 * shapes + 2 * shapes**2) / count)
    assert np.abs([means, spread]).max() < 5.0


CHAINS = [
    {"growth": [(10, 3), (30, 2)], "spare_topics": 3, "learn_alpha": True, "learn_beta": True},
    {"memory": "none", "sweeps": 3, "batch_size": 20},
    {"sampler": "scir_cv", "sweeps": 3, "batch_size": 20, "refresh_size": 40},
]


@pytest.mark.parametrize("options", CHAINS, ids=["memory", "scir", "scir_cv"])
def test_a_run_is_resumed_bit_for_bit(options, tmp_path, monkeypatch):
    X = np.random.default_rng(0).poisson(0.4, (60, 30))

    def fit(**how):
        model = LDA(3, device="jax", num_chains=2, seed=1, **options)
        return model.fit(X, num_steps=24, progress=False, **how)

    def stop(report):
        if report.step >= 14:
            report.stop()

    whole = fit()
    cut = fit(store=tmp_path / "run", callbacks=[stop])
    assert cut.run_.status == "stopped"
    small = types.SimpleNamespace(memory_stats=lambda: {"bytes_limit": 1})
    monkeypatch.setattr(jax, "local_devices", lambda: [small])  # and on a device with less memory
    again = fit(store=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(whole.topics(draws=True), again.topics(draws=True))
    for name, values in whole.run_.stats.items():
        np.testing.assert_array_equal(values, again.run_.stats[name])
    with pytest.raises(InvalidValueError, match="device"):
        LDA(3, device="cpu", num_chains=2, seed=1, **options).fit(
            X, num_steps=24, store=tmp_path / "run", resume=True, progress=False
        )
    loaded = LDA.load(tmp_path / "run")
    assert loaded.perplexity(X) == again.perplexity(X)


def test_counts_are_those_of_the_remembered_topics(small_blocks, seed):
    """Also while it grows, with documents sent to the device one block after the other."""
    X = np.random.default_rng(seed).poisson(0.1, (30, 40))
    corpus = as_corpus(X)
    model = LDA(4, growth=[(10, 2), (20, 2)], spare_topics=3, **JAX)
    held = array_chain.DocumentBlocks(corpus, seed, ((10, 2), (20, 2)))
    assert len(held) > 3 and held.sizes.sum() == X.sum()
    chain = TopicChain(corpus, resolve(model.get_params(), size_of(corpus)), seed, 0, blocks=held)
    for step in range(6):
        chain.advance(1)
        counted = np.zeros(chain.engine.counts.shape, np.int64)
        for number, z in enumerate(chain.engine.z):
            word, z = np.asarray(held.tokens(number).word), np.asarray(z)
            seen = (z < chain.engine.active) & (word < 40)
            np.add.at(counted, (word[seen], z[seen]), 1)
        np.testing.assert_array_equal(counted, chain.engine.counts)
        assert chain.mean().shape == chain.draw().shape == (4, 40)
        assert (counted.sum() == X.sum()) == (step >= 4)  # all documents after the growth
    assert chain.engine.active == 4 and chain.passes == pytest.approx((10 + 10 + 20 + 20 + 60) / 30, abs=0.6)


def test_devices_that_cannot_be_used(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")  # also where there is an accelerator
    with pytest.raises(InvalidValueError, match="no accelerator"):
        LDA(2, device="gpu").fit(DOCUMENTS)
    with pytest.raises(InvalidValueError, match='device="jax" requires sampler'):
        LDA(2, device="jax", sampler="sgrld").fit(DOCUMENTS)
    with pytest.raises(InvalidValueError, match="`device` must be"):
        LDA(2, device="tpu").fit(DOCUMENTS)
    assert resolve(LDA(2).get_params(), size_of(as_corpus(DOCUMENTS))).device == "cpu"
