"""Chains with memory: the topic of each token is stored, so the counts of the whole corpus are known at each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scirocco._extras import later, require
from scirocco.diffusions import host
from scirocco.diffusions.host import _arguments as arguments
from scirocco.models._core.chain import TopicPurpose
from scirocco_latent.lda import hyper, local
from scirocco_latent.lda.corpus import Corpus
from scirocco_latent.lda.document_batches import CorpusBatches, Delivery
from scirocco_latent.lda.guiding import Guide
from scirocco_latent.lda.settings import TopicSettings
from scirocco_latent.lda.sizes import FITTING
from scirocco_latent.lda.topics import Arrays, normalise
from scirocco_latent.lda.word_groups import LANES, Block, GroupLayout, WordGroups, num_groups

SeedWords = Callable[[int], tuple[int, int]]
_UNSEEN = -1  # a token without a topic
_PIECE = 1 << 12  # documents or words at a time, to save memory
_AGEING_PASSES = 2  # first passes, in which partial sums age fast
_KEPT_TOKENS = 1 << 22  # of a batch with all documents, whose arrangement is kept
_COLLAPSED_SEED = 23  # the same seed gives unrelated numbers to different functions
_kernels = later("scirocco_latent.lda._collapsed_kernel")
_dense = later("scirocco_latent.lda._dense_kernel")


class CollapsedChain:
    r"""Gibbs sampling of the joint posterior, by batches of documents, without minibatch noise.

    Collapsed (sampler "gibbs", and every chain during its growth): the topics are integrated out, and

    .. math:: P(z = k | all other tokens) ∝ (α_k + n_dk) (β + n_wk) / (βV + n_k).

    Up to 512 topics all probabilities are computed (`_dense_kernel`). With more topics, the part with α is drawn from
    partial sums of an earlier visit, and a Metropolis-Hastings step corrects for that (`_collapsed_kernel`). The sums
    are recomputed when they are due in the first passes, and later in pass 2, 4, 8, 16, ...: a diminishing adaptation,
    so the limit is the posterior itself. Threads share a batch, still exactly (`word_groups`).

    Augmented (sampler "scir"): θ_wk | z ~ Gamma(β + n_wk, 1), SCIR's stationary distribution, is drawn for the words of
    a batch. The sum over all other words is Gamma too, so the normaliser is exact at the cost of one number per topic.
    Then z of the batch is drawn given ω, document by document, in several threads.
    """

    def __init__(self, corpus: Corpus, settings: TopicSettings, guide: Guide | None = None):
        self.settings, self.threads, self.guide = settings, settings.num_threads, guide
        self.alpha, self.beta = settings.alpha.copy(), settings.beta
        lengths, self._frequencies = count_tokens(corpus)
        self.begins = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        width = settings.num_topics + settings.spare_topics
        kind = np.int16 if width < 1 << 15 else np.int32
        self.memory = np.full(self.begins[-1], _UNSEEN, kind)
        """The topic of each token of the corpus, document by document."""
        self._padded: Array
        self._groups: WordGroups | None
        self._layout: GroupLayout | None = None
        self._inside = np.empty((0, 0), np.int32)  # n_dk of a batch
        self._set_table(np.zeros((corpus.vocabulary_size, width), np.int32))
        if guide is not None:
            guide.add_to(self.table, self.totals)
        self._sums: Array
        """Partial sums of α_k φ_wk for each word, and the visits they may still serve; empty if not needed."""
        self._age: Array
        self._drop_sums()
        self._pass = -1

    def _set_table(self, table: Array) -> None:
        """Set n_wk and n_k; rows are padded to whole vectors if the kernel needs them."""
        self._width = table.shape[1]
        width = -(-self._width // LANES) * LANES if self._width <= FITTING.dense_topics else self._width
        self._padded = np.zeros((len(table), width), np.int32)
        self._padded[:, : self._width] = table
        self._totals = self._padded.sum(axis=0, dtype=np.int64)
        self._groups = None

    @property
    def table(self) -> Array:
        """n_wk, (words, topics)."""
        return self._padded[:, : self._width]

    @property
    def totals(self) -> Array:
        """n_k."""
        return self._totals[: self._width]

    def step(self, batches: CorpusBatches, number: int, seed: SeedWords) -> None:
        """Process one batch; at the end of a pass draw the hyper-parameters, if they are learned."""
        settings = self.settings
        collapsed = settings.sampler == "gibbs" or batches.growing
        before, grown = batches.epoch, not batches.growing
        if grown and len(self.totals) > settings.num_topics:
            self._give_up_spare()
        self._prepare(collapsed, before - batches.growth_passes)
        delivery = batches.next(settings.batch_size)
        if collapsed:
            self._collapsed(delivery, seed, grown)
        else:
            self._augmented(delivery, seed)
        if (settings.learn_alpha or settings.learn_beta) and batches.epoch > before and grown:
            self._learn(arguments.seed_words(seed(TopicPurpose.HYPER), TopicPurpose.HYPER))

    # -- collapsed -----------------------------------------------------------------------------------------------------

    def _prepare(self, collapsed: bool, full_pass: int) -> None:
        """Allocate the partial sums while they are needed; all of them are due at passes 2, 4, 8, ..."""
        if not collapsed:
            self._drop_sums()
            return
        if self._width <= FITTING.dense_topics:
            return
        if self._sums.shape != self.table.shape:
            self._sums = np.zeros(self.table.shape, np.float32)
            self._age = np.zeros(len(self.table), np.int32)
        if full_pass > self._pass:
            self._pass = full_pass
            if full_pass >= _AGEING_PASSES and full_pass & (full_pass - 1) == 0:
                self._age[:] = 0

    def _drop_sums(self) -> None:
        self._sums, self._age = np.zeros((0, 0), np.float32), np.zeros(0, np.int32)

    def _collapsed(self, delivery: Delivery, seed: SeedWords, grown: bool) -> None:
        words = arguments.seed_words(seed(TopicPurpose.COLLAPSED), _COLLAPSED_SEED)
        settings, kernels = self.settings, _kernels()
        allowed = None if self.guide is None else self.guide.allowed
        if allowed is not None:
            rows = (*delivery.rows, delivery.documents)
            counted = (self.memory, self.begins, self._padded, self._totals)
            kernels.labelled_documents(rows, *counted, allowed, self.alpha, self.beta, settings.sweeps, words)
            return
        groups, layout = self._arranged(delivery)
        alpha, priors = self._spread_alpha(), self.beta * groups.sizes
        first: tuple[Array, ...]
        last: tuple[Any, ...] = ()
        if self._width <= FITTING.dense_topics:
            shape = (len(layout.documents), self._padded.shape[1])
            if self._inside.shape != shape:
                self._inside = np.empty(shape, np.int32)
            inside = self._inside
            kernel, first = _dense().dense_documents, (inside, self._padded)
            groups.over_documents(
                lambda *part: _dense().count_topics(self.memory, self.begins, layout.documents, *part, inside),
                layout,
                self.threads,
            )
        else:
            ageing = not grown or self._pass < _AGEING_PASSES
            kernel, first = kernels.collapsed_documents, (self.begins, layout.documents, self._padded)
            last = ((self._sums, self._age, ageing),)

        def work(block: Block, masses: Array) -> None:
            of_group = (groups.totals[block[2]], masses, float(priors[block[2]]))
            kernel(
                block, layout.rows, self.memory, *first, *of_group, *last, *(alpha, self.beta, settings.sweeps, words)
            )

        groups.sweep(work, layout, groups.masses(_generator(words, 3), self.beta), self.threads)
        self._totals = groups.totals.sum(axis=0)

    def _arranged(self, delivery: Delivery) -> tuple[WordGroups, GroupLayout]:
        """The groups of words, and the documents of a batch by groups; kept if these are all documents."""
        documents, begins = delivery.documents, self.begins
        num_tokens = int((begins[documents + 1] - begins[documents]).sum())
        num = num_groups(num_tokens, len(documents))
        if 2 * self._totals.sum() < num_tokens:
            num = 1  # most tokens have no topic yet, and S would be drawn from its prior
        groups = self._groups
        if groups is None or groups.num != num:
            self._groups = groups = WordGroups(num, self._frequencies, self._padded)
            self._layout = None
        whole = len(documents) == len(begins) - 1
        if whole and self._layout is not None:
            return groups, self._layout
        layout = groups.layout(_kernels(), documents, delivery.rows, begins, self.threads)
        if whole and num_tokens <= _KEPT_TOKENS:
            self._layout = layout
        return groups, layout

    def _spread_alpha(self) -> Array:
        """α; while there are spare topics, the same total spread evenly over all topics."""
        width = len(self.totals)
        if width == len(self.alpha):
            return self.alpha
        return np.full(width, self.alpha.sum() / width)

    def _give_up_spare(self) -> None:
        """Discard the spare topics; their tokens have no topic until the next visit."""
        kept = self._best()
        names = np.full(len(self.totals), _UNSEEN, np.int32)
        names[kept] = np.arange(len(kept))
        self._drop_sums()
        table = np.empty((len(self.table), len(kept)), np.int32)
        for begin in range(0, len(table), _PIECE):
            table[begin : begin + _PIECE] = self.table[begin : begin + _PIECE, kept]
        self._set_table(table)
        _kernels().rename(self.memory, names)

    def _best(self) -> Array:
        """Topics to keep; larger topics get larger α.

        A topic is kept if its tokens occur together: if a document with one of them has more of them than by chance,
        Σ_d n_dk (n_dk - 1) / n_k compared with n_k / N times the same for all tokens. A mixture of several topics is
        spread thinly, and so is each of two halves of one topic.
        """
        wanted = self.settings.num_topics
        pairs = np.zeros(len(self.totals), np.int64)
        _kernels().pairs_in_documents(self.memory, self.begins, pairs)
        lengths = np.diff(self.begins).astype(np.float64)
        by_chance = np.sum(lengths * (lengths - 1)) / lengths.sum() * self.totals / lengths.sum()
        together = pairs / np.maximum(self.totals, 1) - by_chance
        best = np.argsort(-together, kind="stable")[:wanted]
        out = np.empty(wanted, np.int64)
        out[np.argsort(-self.alpha, kind="stable")] = best[np.argsort(-self.totals[best], kind="stable")]
        return out

    def _kept(self) -> Any:
        """The topics without spare ones."""
        return slice(None) if len(self.totals) == self.settings.num_topics else self._best()

    # -- augmented -----------------------------------------------------------------------------------------------------

    def _augmented(self, delivery: Delivery, seed: SeedWords) -> None:
        documents = delivery.documents
        batch = local.from_counts(*delivery.rows, documents)
        if not len(batch.distinct):
            return
        old = self._gather(documents)
        new, sweeps = old.copy(), self.settings.sweeps
        local.gibbs(
            seed(TopicPurpose.LOCAL),
            batch,
            self._weights(batch.distinct, seed(TopicPurpose.READ)),
            self.alpha,
            sweeps=sweeps,
            burn_in=sweeps - 1,
            z=new,
            num_threads=self.threads,
        )
        self._scatter(documents, new)
        _kernels().move_counts(self._padded, self._totals, batch.distinct[batch.tokens], old, new)
        self._groups = None

    def _weights(self, words: Array, seed: tuple[int, int]) -> Array:
        """Draw ω of these words, jointly with the sum of the others."""
        counts = self.table[words]
        theta = host.gamma(seed, counts + np.float32(self.beta), num_threads=self.threads)
        others = self.totals - counts.sum(axis=0, dtype=np.int64)
        left = self.beta * (len(self.table) - len(words))
        rest = np.zeros(len(others))
        if left > 0:
            rest = host.gamma((seed[0], seed[1] ^ (1 << 62)), others + left, num_threads=1)
        sums = (theta.sum(axis=0, dtype=np.float64) + rest).astype(np.float32)
        theta[:, sums <= 0] = 1.0 / len(self.table)  # all underflowed: uniform, as in `normalise`
        theta /= np.where(sums > 0, sums, np.float32(1.0))
        return theta

    # -- starts --------------------------------------------------------------------------------------------------------

    def log_joint(self) -> float:
        """log p(words, topics of all tokens), up to a constant that depends on the corpus and on K."""
        log_gamma = require("scipy.special", "topic models").gammaln
        documents = np.repeat(np.arange(len(self.begins) - 1), np.diff(self.begins))
        inside = np.zeros((len(self.begins) - 1, len(self.totals)))
        np.add.at(inside, (documents, self.memory), 1)
        words = log_gamma(self.beta + self.table).sum()
        words -= log_gamma(self.beta * len(self.table) + self.totals).sum()
        of_documents = log_gamma(self.alpha + inside).sum()
        return float(words + of_documents - log_gamma(self.alpha.sum() + inside.sum(axis=1)).sum())

    def start_from(self, other: CollapsedChain) -> None:
        """Take over the topics of all tokens."""
        none = {"sums": np.zeros((0, 0), np.float32), "age": np.zeros(0, np.int32)}
        self.restore({**other.state(), **none, "numbers": np.concatenate([self.alpha, [self.beta, -1]])})

    # -- hyper-parameters ----------------------------------------------------------------------------------------------

    def _learn(self, seed: tuple[np.uint64, np.uint64]) -> None:
        if self.settings.learn_alpha:
            allowed = None if self.guide is None else self.guide.allowed
            self.alpha = draw_alpha(seed, self.memory, self.begins, self.alpha, allowed)
        if self.settings.learn_beta:
            self.beta = draw_beta(seed, self._padded, self.totals, self.beta, self.guide)

    # -- results ------------------------------------------------------------------------------------------------------

    def draw(self, seed: tuple[int, int]) -> Array:
        """ω_k | z ~ Dirichlet(β + n_k) for each topic, (topics, words)."""
        table = self.table[:, self._kept()]
        out = np.empty(table.shape[::-1], np.float32)
        for number, begin in enumerate(range(0, len(table), _PIECE)):  # in pieces, to save memory
            shapes = table[begin : begin + _PIECE] + np.float32(self.beta)
            words = (seed[0], seed[1] ^ (number << 32))
            out[:, begin : begin + _PIECE] = host.gamma(words, shapes, num_threads=self.threads).T
        return normalise(out)

    def mean(self, seed: tuple[int, int]) -> Array:
        """E[ω | z] = (β + n_wk) / (βV + n_k)."""
        kept = self._kept()
        table, totals = self.table[:, kept], self.totals[kept]
        out = table.T.astype(np.float32)
        out += np.float32(self.beta)
        out /= (totals + self.beta * len(table)).astype(np.float32)[:, None]
        return out

    def sizes(self) -> Array:
        """Number of tokens of each topic."""
        prior = 0 if self.guide is None else self.guide.totals(len(self.totals))
        return (self.totals - prior)[self._kept()]

    def state(self) -> Arrays:
        """Arrays from which `restore` resumes exactly; valid until the next step."""
        numbers = np.concatenate([self.alpha, [self.beta, self._pass]])
        sums = {"sums": self._sums, "age": self._age}
        table = np.ascontiguousarray(self.table)
        return {"memory": self.memory, "table": table, "numbers": numbers, **sums}

    def restore(self, state: Arrays) -> None:
        """Restore the state from `state`."""
        self.memory = state["memory"].copy()
        self._set_table(state["table"])
        self._sums, self._age = state["sums"].copy(), state["age"].copy()
        self.alpha, self.beta = state["numbers"][:-2].copy(), float(state["numbers"][-2])
        self._pass = int(state["numbers"][-1])

    def _gather(self, documents: Array) -> Array:
        """Topics of the tokens of these documents."""
        starts, ends = self.begins[documents], self.begins[documents + 1]
        out = np.empty(int((ends - starts).sum()), np.int32)
        _kernels().gather_runs(self.memory, starts, ends, out)
        return out

    def _scatter(self, documents: Array, topics: Array) -> None:
        """Store the topics of the tokens of these documents."""
        _kernels().scatter_runs(topics, self.begins[documents], self.begins[documents + 1], self.memory)


def count_tokens(corpus: Corpus) -> tuple[Array, Array]:
    """Number of tokens of each document and of each word, counted in pieces."""
    lengths = np.empty(corpus.num_documents, np.int64)
    frequencies = np.zeros(corpus.vocabulary_size)
    for begin in range(0, corpus.num_documents, _PIECE):
        rows = np.arange(begin, min(begin + _PIECE, corpus.num_documents))
        indptr, words, counts = corpus.take_csr(rows)
        sums = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        lengths[rows] = sums[indptr[1:]] - sums[indptr[:-1]]
        frequencies += np.bincount(words, counts, len(frequencies))
    return lengths, frequencies


def document_lengths(corpus: Corpus) -> Array:
    """Number of tokens of each document."""
    return count_tokens(corpus)[0]


# -- learning α and β given the topics of all tokens, see `hyper`


Array = np.ndarray[Any, np.dtype[Any]]


def draw_alpha(
    seed: tuple[np.uint64, np.uint64],
    memory: Array,
    begins: Array,
    alpha: Array,
    allowed: tuple[Array, Array] | None = None,
) -> Array:
    """Draw α given the topics of all tokens (`memory`, document d from begins[d] to begins[d + 1]; -1: none)."""
    tables, lengths = np.zeros(alpha.size, np.int64), np.zeros(begins.size - 1, np.int64)
    _kernels().document_tables(memory, begins, alpha, seed, tables, lengths)
    return hyper.alpha_given(_generator(seed, 1), tables, alpha, lengths, allowed)


def draw_beta(
    seed: tuple[np.uint64, np.uint64], table: Array, totals: Array, beta: float, guide: Guide | None = None
) -> float:
    """Draw β given the counts of words in topics, (words, topics), and their sums over words."""
    if guide is not None and len(guide.counts):
        rng, prior = _generator(seed, 2), guide.totals(totals.size)
        tables = guide.tables(rng, table[:, : totals.size], beta)
        return hyper.beta_given(rng, tables, beta, totals - prior, len(table), prior)
    tables = _kernels().word_tables(table, beta, seed)
    return hyper.beta_given(_generator(seed, 2), tables, beta, totals, len(table))


def _generator(seed: tuple[np.uint64, np.uint64], purpose: int) -> np.random.Generator:
    return np.random.default_rng([int(seed[0]), int(seed[1]), purpose])
