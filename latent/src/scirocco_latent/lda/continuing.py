"""Models that continue: chains that start where an earlier fit ended, and draws that take in more documents."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from scirocco.data.native.corpus import CorpusSource
from scirocco.errors import InvalidValueError
from scirocco.models._core.chain import DocumentPurpose, TopicPurpose
from scirocco.run.result import Run
from scirocco_latent.lda import local
from scirocco_latent.lda.array_chain import BlockPasses
from scirocco_latent.lda.corpus import Corpus, as_corpus
from scirocco_latent.lda.document_batches import Growth
from scirocco_latent.lda.guiding import Guide
from scirocco_latent.lda.readers import Vocabulary
from scirocco_latent.lda.settings import TopicSettings
from scirocco_latent.lda.topics import Arrays, normalised

Array = np.ndarray

_PIECE = 4096
"""Documents whose topics are drawn together."""
_SWEEPS, _ROUNDS = 4, 3
"""Sweeps over documents given topics, and rounds of sweeps and of draws of words that are new."""
_OF_A_RUN = ("growth", "spare_topics", "starts")
"""Settings that a finished chain no longer uses."""


def token_counts(run: Run, states: Sequence[Arrays], num_topics: int) -> Array:
    """Number of tokens of each topic: (chain, 1, topic), or (chain, draw, topic) after an update."""
    seeds = (run.configuration.get("guide") or {}).get("counts", ())
    return np.stack([_token_counts(state, num_topics, seeds) for state in states])


def _token_counts(state: Arrays, num_topics: int, seeds: Sequence[tuple[int, int, int]]) -> Array:
    if "sizes" in state:
        return state["sizes"]
    if "table" in state and state["table"].shape[1] == num_topics:
        return state["table"].sum(axis=0, dtype=np.int64)[None]
    if "memory" not in state or "table" in state:
        raise InvalidValueError(
            "the fit of this model was stopped while its chains had spare topics: resume it first, or continue with "
            "fit(all_documents, continue_from=model)."
        )
    sizes = np.bincount(state["memory"][state["memory"] < num_topics], minlength=num_topics)
    for _, topic, count in seeds:  # of an accelerator, where the memory has no seed words
        sizes[topic] += count
    return sizes[None]


# -- words


def with_new_words(X: object, vocabulary: Vocabulary, known: tuple[str, ...] | None, num_words: int) -> Corpus:
    """Documents over the known words, then those that are new; where words have no names, over the same columns."""
    if known is None:
        return as_corpus(X, num_words if vocabulary is None else vocabulary)
    if vocabulary is None and not isinstance(X, (Sized, Corpus)):  # an iterator: words cannot be learned from it
        return as_corpus(X, known)
    own = as_corpus(X, vocabulary)
    if own.vocabulary is None:
        return as_corpus(X, known)
    if own.vocabulary == known:
        return own
    places = {word: place for place, word in enumerate(known)}
    numbers = np.array([places.setdefault(word, len(places)) for word in own.vocabulary], np.int32)
    return replace(own, source=_renumbered(own, numbers, len(places)), vocabulary=tuple(places))


def _renumbered(corpus: Corpus, numbers: Array, num_words: int) -> CorpusSource:
    from scipy import sparse

    indptr, words, counts = corpus.take_csr(np.arange(corpus.num_documents))
    matrix = sparse.csr_array((counts, numbers[words], indptr), shape=(corpus.num_documents, num_words))
    matrix.sort_indices()
    return CorpusSource(matrix)


def with_more_words(omega: Array, num_words: int) -> Array:
    """A draw of ω (topics, words) from before some words were known, which have no weight in it."""
    return np.pad(omega, ((0, 0), (0, num_words - omega.shape[1])))


# -- chains that start where others ended


class TopicStart(NamedTuple):
    """Where new chains start."""

    states: Sequence[Arrays]
    """States of the earlier chains, one for each new one; empty if unknown."""
    topics: Sequence[Array]
    """A draw of ω for each new chain, (topics, words)."""
    hyper: Sequence[tuple[Array, float]]
    """α and β of each new chain."""
    exact: bool
    """Whether documents, settings and seed are the same: the chains then continue bit for bit."""
    growth: Growth
    name: str
    """Name of the earlier fit, for records."""

    def place(self, chain: Any, number: int, corpus: Any) -> None:
        """Set the state of a new chain."""
        state = self.states[number]
        if self.exact:
            chain.restore(state)
            return
        fresh = {"supply": np.zeros_like(chain.batches.state()), "steps": state.get("steps", np.zeros(1, np.int64))}
        chain.step = int(fresh["steps"][0])
        if chain.settings.memory == "none":
            chain.restore({**state, **fresh})
        else:
            chain.restore({**_with_topics(chain, corpus, self.topics[number], *self.hyper[number]), **fresh})


def _with_topics(chain: Any, corpus: Corpus, omega: Array, alpha: Array, beta: float) -> Arrays:
    """The state of a chain with memory, with the topics of all tokens drawn given ω.

    If ω is a draw from the posterior given the same documents, so is this state. Words without a topic yet get those
    of the other words of their documents.
    """
    blocks = chain.batches.blocks if isinstance(chain.batches, BlockPasses) else None
    order = np.arange(corpus.num_documents) if blocks is None else blocks.order
    table = np.zeros((corpus.vocabulary_size, len(alpha)), np.int32)
    memory = []
    for begin in range(0, len(order), _PIECE):
        documents = order[begin : begin + _PIECE]
        batch = local.from_counts(*corpus.take_csr(documents), documents)
        z = np.full(batch.num_tokens, -1, np.int32)
        if len(batch.distinct):
            weights = np.zeros((len(batch.distinct), len(alpha)), np.float32)
            old = batch.distinct < omega.shape[1]
            weights[old] = omega[:, batch.distinct[old]].T
            seed = chain.seed, (chain.step << 3) + TopicPurpose.CONTINUED
            found = _swept(seed, batch, weights, alpha, z, chain.settings)
            table[batch.distinct] += found.astype(np.int32)
        memory.append(z)
    if blocks is None and chain.engine.guide is not None:
        chain.engine.guide.add_to(table, np.zeros(len(alpha), np.int64))
    if blocks is not None:
        return {"memory": np.concatenate(memory), "numbers": np.concatenate([alpha, [beta, len(alpha)]])}
    kind = chain.engine.memory.dtype
    return {
        "memory": np.concatenate(memory).astype(kind),
        "table": table,
        "numbers": np.concatenate([alpha, [beta, -1]]),
        "sums": np.zeros((0, 0), np.float32),
        "age": np.zeros(0, np.int32),
    }


def _swept(
    seed: tuple[int, int], batch: local.TokenBatch, weights: Array, alpha: Array, z: Array, settings: TopicSettings
) -> Array:
    """Draw the topics z of a batch given ω; their counts (words, topics)."""
    found = local.gibbs(
        seed, batch, weights, alpha, sweeps=_SWEEPS, burn_in=_SWEEPS - 1, z=z, num_threads=settings.num_threads
    )
    return np.rint(found.counts).astype(np.float64)


def start(
    run: Run,
    states: Sequence[Arrays],
    corpus: Any,
    settings: TopicSettings,
    num_chains: int,
    seed: int,
    guide: Guide | None = None,
) -> TopicStart:
    """Where `num_chains` chains on `corpus` start after a run whose chains ended in `states`."""
    draws, stats = run.draws["topics"], run.stats
    was, num_topics = run.configuration, draws.shape[2]
    if settings.num_topics != num_topics:
        raise InvalidValueError(
            f"the model of `continue_from` has {num_topics} topics, this one {settings.num_topics}: they must be equal."
        )
    same = {
        "num_chains": num_chains,
        "seed": seed,
        "num_words": corpus.vocabulary_size,
        "data": corpus.fingerprint(),
        "guide": None if guide is None else guide.as_json(),
    }
    same |= {name: value for name, value in settings.as_json().items() if name not in _OF_A_RUN}
    exact = bool(states[0].get("steps") is not None) and all(was.get(name) == value for name, value in same.items())
    if not exact and settings.memory == "none" and not _fits(states, was, settings, corpus.vocabulary_size):
        raise InvalidValueError(
            f'a chain without memory (sampler="{settings.sampler}") can continue only from one with the same sampler, '
            'device and words. For a corpus that can be read again use memory="documents", which continues from any '
            "topics."
        )
    chosen = [(number % draws.shape[0], -1 - number // draws.shape[0]) for number in range(num_chains)]
    hyper = [
        (
            stats["alpha"][chain, draw] if settings.learn_alpha and "alpha" in stats else settings.alpha.copy(),
            float(stats["beta"][chain, draw]) if settings.learn_beta and "beta" in stats else settings.beta,
        )
        for chain, draw in chosen
    ]
    growth = tuple((int(size), int(passes)) for size, passes in was.get("growth", ())) if exact else ()
    return TopicStart(
        [states[chain] for chain, _ in chosen],
        [np.asarray(draws[chain, draws.shape[1] + draw]) for chain, draw in chosen],
        hyper,
        exact,
        growth,
        f"{was.get('data')} {[int(state.get('steps', [0])[0]) for state in states]}",
    )


def _fits(states: Sequence[Arrays], was: dict[str, Any], settings: TopicSettings, num_words: int) -> bool:
    now = settings.as_json()
    same = all(was.get(name) == now[name] for name in ("sampler", "memory", "device"))
    return same and "steps" in states[0] and was.get("num_words") == num_words


# -- draws that take in more documents


class Particle(NamedTuple):
    """A draw of ω (topics, words), and the number of tokens of each topic behind it."""

    omega: Array
    sizes: Array


def take_in(
    run: Run, states: Sequence[Arrays], corpus: Corpus, settings: TopicSettings, seed: int
) -> tuple[Array, Array]:
    """All draws (chain, draw, topic, word), each updated with the documents of `corpus`, and their topics' sizes."""
    draws, stats = run.draws["topics"], run.stats
    num_chains, num_draws, num_topics, _ = draws.shape
    shape = (num_chains, num_draws, num_topics)
    sizes = np.broadcast_to(token_counts(run, states, num_topics), shape)
    seen, found = int(run.configuration["num_rows"]), []
    for at in np.ndindex(num_chains, num_draws):
        alpha = stats["alpha"][at] if "alpha" in stats else settings.alpha
        beta = float(stats["beta"][at]) if "beta" in stats else settings.beta
        before = Particle(np.asarray(draws[at]), sizes[at])
        found.append(updated(before, corpus, alpha, beta, settings, (seed, *at, seen)))
    omega = np.stack([each.omega for each in found]).reshape(*shape, corpus.vocabulary_size)
    return omega, np.stack([each.sizes for each in found]).reshape(shape)


def updated(
    particle: Particle, corpus: Corpus, alpha: Array, beta: float, settings: TopicSettings, seed: Sequence[int]
) -> Particle:
    r"""A draw that has taken in the documents of `corpus`, whose first words are those of ω.

    Given the topics z of all earlier tokens, θ_wk ~ Gamma(β + n_wk, 1) independently, and ω is θ normalised. The sum of
    θ is independent of ω, so θ is recovered from ω and a draw of Gamma(βV + n_k). The topics of the new tokens are
    drawn given ω, and θ_wk + Gamma(m_wk, 1), with m the new counts, has exactly the distribution of θ given old and new
    topics. The earlier topics are not drawn again: exact draws need `fit(..., continue_from=)` with all documents.
    All tokens of a new word are here: its θ and their topics are drawn in turn, by Gibbs sampling.
    """
    rng = np.random.default_rng([*seed, DocumentPurpose.CONTINUED])
    words = [int(word) for word in rng.integers(0, 2**62, 2)]
    num_topics, num_old = particle.omega.shape
    theta = np.zeros((corpus.vocabulary_size, num_topics), np.float32)
    theta[:num_old] = particle.omega.T * rng.standard_gamma(beta * num_old + particle.sizes)
    added = np.zeros((corpus.vocabulary_size - num_old, num_topics))
    sizes = np.array(particle.sizes, np.int64)
    for begin in range(0, corpus.num_documents, settings.batch_size):
        documents = np.arange(begin, min(begin + settings.batch_size, corpus.num_documents))
        batch = local.from_counts(*corpus.take_csr(documents), documents)
        if not len(batch.distinct):
            continue
        fresh = batch.distinct >= num_old
        z = np.full(batch.num_tokens, -1, np.int32)
        counts = np.zeros((len(batch.distinct), num_topics))
        for turn in range(_ROUNDS if fresh.any() else 1):
            weights = theta[batch.distinct] / theta.sum(axis=0, dtype=np.float64).astype(np.float32)
            counts = _swept((words[0], words[1] + turn), batch, weights, alpha, z, settings)
            new = batch.distinct[fresh]
            theta[new] = rng.standard_gamma(beta + added[new - num_old] + counts[fresh])
        added[batch.distinct[fresh] - num_old] += counts[fresh]
        theta[batch.distinct[~fresh]] += rng.standard_gamma(counts[~fresh])
        sizes += counts.sum(axis=0).astype(np.int64)
        words[1] += _ROUNDS
    theta[num_old:] = rng.standard_gamma(beta + added)
    return Particle(normalised(theta), sizes)
