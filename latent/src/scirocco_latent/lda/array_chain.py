"""Chains with memory on an accelerator: exact Gibbs sampling by whole arrays (`arrays`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.data.shuffle import shuffled_numbers
from scirocco.models._core.chain import DocumentPurpose, TopicPurpose
from scirocco_latent.lda import arrays
from scirocco_latent.lda.arrays import Tokens
from scirocco_latent.lda.collapsed_chain import document_lengths
from scirocco_latent.lda.corpus import Corpus
from scirocco_latent.lda.document_batches import Growth
from scirocco_latent.lda.guiding import NOTHING, Guide
from scirocco_latent.lda.hyper import alpha_given, beta_given, tables_given
from scirocco_latent.lda.settings import TopicSettings
from scirocco_latent.lda.sizes import FITTING
from scirocco_latent.lda.streams import Rows
from scirocco_latent.lda.topics import Arrays, normalise

Array = np.ndarray

_SHARE = 0.5  # of the memory of the device that a corpus may take


class DocumentBlocks:
    """The documents in random order, cut into blocks of about equal numbers of tokens.

    The corpus is put on the device if it fits into half of its memory; otherwise each pass reads it again. With a
    growth, the first documents should fill whole blocks.
    """

    def __init__(self, corpus: Corpus, seed: int, growth: Growth = ()):
        self.corpus = corpus
        self.order = shuffled_numbers(corpus.num_documents, seed, DocumentPurpose.FIRST)
        self.lengths = lengths = document_lengths(corpus)[self.order]
        """Number of tokens of each document, in this order."""
        ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        first = int(ends[growth[0][0] if growth else -1])
        even = -(-first // -(-first // FITTING.most_block)) if first else 1
        wanted = max(even, min(FITTING.least_block, int(ends[-1])))
        self.capacity = _rounded(max(wanted, int(lengths.max(initial=1))))
        starts = [0]
        while starts[-1] < len(lengths):
            starts.append(int(np.searchsorted(ends, ends[starts[-1]] + self.capacity, side="right")) - 1)
        self.starts = np.array(starts)
        """Block b has the documents order[starts[b] : starts[b + 1]]."""
        self.sizes = np.diff(ends[self.starts])
        self.rows = int(np.diff(self.starts).max())
        self._held: dict[int, Tokens] | None = {} if self._fits() else None

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def resident(self) -> bool:
        """Whether all tokens stay on the device."""
        return self._held is not None

    def _fits(self) -> bool:
        limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
        return limit is None or 8 * len(self) * self.capacity <= _SHARE * limit

    def tokens(self, number: int) -> Tokens:
        """The tokens of a block, on the device."""
        if self._held is not None and number in self._held:
            return self._held[number]
        documents = self.order[self.starts[number] : self.starts[number + 1]]
        found = packed(self.corpus.take_csr(documents), self.capacity, self.rows, self.corpus.vocabulary_size)
        if self._held is not None:
            self._held[number] = found
        return found

    def reach(self, num_documents: int) -> int:
        """Number of blocks that have the first documents."""
        return int(np.searchsorted(self.starts, num_documents, side="left"))


def packed(rows: Rows, capacity: int, num_documents: int, num_words: int) -> Tokens:
    """Documents as flat tokens on the device, with places for `capacity` tokens."""
    indptr, words, counts = rows
    document = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
    flat = np.full((2, capacity), [[num_documents], [num_words]], np.int32)
    size = int(counts.sum(dtype=np.int64))
    flat[0, :size], flat[1, :size] = np.repeat(document, counts), np.repeat(words, counts)
    return Tokens(*jax.device_put((flat[0], flat[1])))


def _rounded(number: int) -> int:
    return -(-number // FITTING.rounded_to) * FITTING.rounded_to


class BlockPasses:
    """Which blocks are next: those of a stage of the growth, then all; the state of a chain's supply of documents."""

    def __init__(self, blocks: DocumentBlocks, growth: Growth):
        self.blocks, self.growth = blocks, growth
        self.total = blocks.corpus.num_documents
        self.epoch = self.visits = 0
        self._ends = np.cumsum([passes for _, passes in growth], dtype=np.int64)

    @property
    def growth_passes(self) -> int:
        """Number of passes of all stages."""
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def growing(self) -> bool:
        """Whether the growth is not over."""
        return self.epoch < self.growth_passes

    @property
    def passes(self) -> float:
        """Number of documents processed, divided by the number of documents."""
        return self.visits / self.total

    def finish_growth(self) -> None:
        """Use all documents from the next pass on."""
        self.epoch = max(self.epoch, self.growth_passes)

    def next(self) -> int:
        """Number of blocks of the next pass."""
        count = len(self.blocks)
        if self.growing:
            count = self.blocks.reach(self.growth[int(np.searchsorted(self._ends, self.epoch, side="right"))][0])
        self.epoch += 1
        self.visits += int(self.blocks.starts[count])
        return count

    def state(self) -> Array:
        """The position in the sequence of passes."""
        return np.array([self.epoch, self.visits], np.int64)

    def restore(self, state: Array) -> None:
        """Resume at a position."""
        self.epoch, self.visits = (int(number) for number in state)


SeedWords = Callable[[int], tuple[int, int]]


class ArrayChain:
    r"""Gibbs sampling of the joint posterior: ω | z, then, block by block, η | z and z | η, ω.

    A step is a pass over the documents. The corpus, the topics of the tokens and the counts stay on the device; a
    corpus that does not fit is sent there block by block. As on the host, a chain starts with few documents and some
    spare topics, and the topics that are not kept are discarded after the growth (see `CollapsedChain`). `guide` has
    seed words, whose prior counts are in the counts, and labels, with the topics of each document.
    """

    def __init__(self, blocks: DocumentBlocks, settings: TopicSettings, guide: Guide | None = None):
        self.blocks, self.settings, self.guide = blocks, settings, guide
        self.alpha, self.beta = settings.alpha.copy(), settings.beta
        self.active = settings.num_topics + settings.spare_topics
        """Number of topics in use."""
        self._kind = np.int16 if self._width < np.iinfo(np.int16).max else np.int32
        self.z: list[Any] = [self._unseen() for _ in range(len(blocks))]
        """The topics of the tokens of each block, on the device if the corpus is there."""
        self.counts = self._no_tokens()
        self._allowed: dict[int, Any] = {}
        self._numbers = [jnp.uint32(number) for number in range(len(blocks))]
        self._last = self._numbers[0]
        self._sent: tuple[Array, Any] = np.empty(0), None

    @property
    def _width(self) -> int:
        return arrays.width_for(self.active)

    def _unseen(self) -> Any:
        z = np.full(self.blocks.capacity, np.iinfo(self._kind).max, self._kind)
        return jax.device_put(z) if self.blocks.resident else z

    def _no_tokens(self) -> Any:
        """The counts before any token has a topic: those of the seed words."""
        table = np.zeros((self.blocks.corpus.vocabulary_size, self._width), np.int32)
        if self.guide is not None:
            self.guide.add_to(table, np.zeros(self._width, np.int64))
        return jnp.asarray(table)

    def _topics_of(self, block: int) -> Any:
        """Which topics the documents of a block have; None: all."""
        if self.guide is None or not self.guide.has_labels:
            return None
        if block in self._allowed:
            return self._allowed[block]
        blocks = self.blocks
        documents = blocks.order[blocks.starts[block] : blocks.starts[block + 1]]
        found = jax.device_put(self.guide.mask(documents, (blocks.rows, self._width)))
        if blocks.resident:
            self._allowed[block] = found
        return found

    def step(self, passes: BlockPasses, number: int, seed: SeedWords) -> None:
        """One pass over the documents; then the hyper-parameters, if they are learned."""
        settings, grown = self.settings, not passes.growing
        if grown and self.active > settings.num_topics:
            self._give_up_spare()
        words = arrays.seed_words(seed(TopicPurpose.LOCAL))
        weights, alpha = self._weights(seed(TopicPurpose.READ))
        self._last.block_until_ready()  # one pass ahead of the device, not more
        self._last = weights
        waiting: tuple[int, Any] | None = None
        for block in range(passes.next()):
            self.counts, z = self._swept(words, block, weights, self.counts, self.z[block], alpha)
            if self.blocks.resident:
                self.z[block] = z
                continue
            if waiting is not None:  # one block late: the device is not kept waiting
                self.z[waiting[0]] = np.array(waiting[1])
            waiting = block, z
        if waiting is not None:
            self.z[waiting[0]] = np.array(waiting[1])
        if grown and (settings.learn_alpha or settings.learn_beta):
            self._learn(np.random.default_rng(list(seed(TopicPurpose.HYPER))))

    def _weights(self, seed: tuple[int, int]) -> tuple[Any, Any]:
        """ω given the counts, and α."""
        spread = self._spread_alpha()
        if not np.array_equal(spread, self._sent[0]):  # a transfer takes as long as many tokens
            self._sent = spread, jnp.asarray(spread)
        alpha = self._sent[1]
        return arrays.weights(arrays.seed_words(seed), self.counts, np.float32(self.beta), alpha), alpha

    def _swept(self, words: Any, block: int, weights: Any, counts: Any, z: Any, alpha: Any) -> tuple[Any, Any]:
        tokens, number = self.blocks.tokens(block), self._numbers[block]
        rows, sweeps = self.blocks.rows, self.settings.sweeps
        return arrays.sweep(words, number, weights, counts, tokens, z, alpha, rows, sweeps, self._topics_of(block))

    def compile(self) -> None:
        """Compile the programs, so that a time limit is one of sampling; the chain does not change."""
        weights, alpha = self._weights((0, 0))
        words = arrays.seed_words((0, 0))
        jax.block_until_ready(self._swept(words, 0, weights, jnp.zeros_like(self.counts), self._unseen(), alpha))
        self.draw((0, 0))

    def _spread_alpha(self) -> Array:
        """α, with zeros for unused places; while there are spare topics, the same total spread over all topics."""
        out = np.zeros(self._width, np.float32)
        spread = self.alpha if self.active == len(self.alpha) else self.alpha.sum() / self.active
        out[: self.active] = spread
        return out

    # -- spare topics --------------------------------------------------------------------------------------------------

    def _give_up_spare(self) -> None:
        """Discard the spare topics; their tokens have no topic until the next pass."""
        kept, nothing = self._best(), np.iinfo(self._kind).max
        names = np.full(self._width, nothing, np.int32)
        names[kept] = np.arange(len(kept))
        self.active = len(kept)
        for block, z in enumerate(self.z):
            found = arrays.renamed(z, names)
            self.z[block] = found if self.blocks.resident else np.array(found)
        table = np.zeros((self.counts.shape[0], self._width), np.int32)
        table[:, : len(kept)] = np.asarray(self.counts)[:, kept]
        self.counts = jnp.asarray(table)

    def _best(self) -> Array:
        """Topics to keep: those whose tokens occur together, as in `CollapsedChain`; larger topics get larger α."""
        blocks, wanted = self.blocks, self.settings.num_topics
        pairs = np.zeros(self._width)
        for block, z in enumerate(self.z):
            pairs += np.asarray(arrays.pairs(blocks.tokens(block).document, z, blocks.rows, self._width), np.float64)
        totals = np.asarray(self.counts, np.int64).sum(axis=0)
        lengths = blocks.lengths.astype(np.float64)
        by_chance = np.sum(lengths * (lengths - 1)) / lengths.sum() * totals / lengths.sum()
        together = (pairs / np.maximum(totals, 1) - by_chance)[: self.active]
        best = np.argsort(-together, kind="stable")[:wanted]
        out = np.empty(wanted, np.int64)
        out[np.argsort(-self.alpha, kind="stable")] = best[np.argsort(-totals[best], kind="stable")]
        return out

    # -- hyper-parameters ----------------------------------------------------------------------------------------------

    def _learn(self, rng: np.random.Generator) -> None:
        settings, blocks = self.settings, self.blocks
        if settings.learn_alpha:
            size = int(blocks.lengths.max()) + 1
            of_size = np.zeros((len(self.alpha), size), np.int64)
            alpha = self._spread_alpha()
            for block, z in enumerate(self.z):
                found = arrays.document_counts(blocks.tokens(block).document, z, blocks.rows, alpha, size)
                of_size += np.asarray(found)[: len(self.alpha)]
            tables, lengths = tables_given(rng, of_size, self.alpha), blocks.lengths
            allowed = None if self.guide is None else self.guide.allowed
            if allowed is not None:
                lengths = lengths[np.argsort(blocks.order)]
            self.alpha = alpha_given(rng, tables, self.alpha, lengths, allowed)
        if settings.learn_beta:
            table, guide = np.asarray(self.counts)[:, : self.active], self.guide or NOTHING
            opened, prior = guide.tables(rng, table, self.beta), guide.totals(self.active)
            self.beta = beta_given(rng, opened, self.beta, table.sum(axis=0) - prior, len(table), prior)

    # -- results -------------------------------------------------------------------------------------------------------

    def draw(self, seed: tuple[int, int]) -> Array:
        """ω_k | z ~ Dirichlet(β + n_k) for each topic, (topics, words)."""
        words = arrays.seed_words(seed)
        return np.array(arrays.topics(words, self.counts, np.float32(self.beta), self._kept()))

    def mean(self, seed: tuple[int, int]) -> Array:
        """E[ω | z] = (β + n_wk) / (βV + n_k)."""
        counts = np.asarray(self.counts)[:, self._kept()]
        return normalise(np.array(counts.T + np.float32(self.beta), np.float32, order="C"))

    def sizes(self) -> Array:
        """Number of tokens of each topic."""
        totals = np.asarray(self.counts, np.int64).sum(axis=0)
        prior = 0 if self.guide is None else self.guide.totals(len(totals))
        return (totals - prior)[self._kept()]

    def _kept(self) -> Array:
        num_topics = self.settings.num_topics
        return np.arange(num_topics) if self.active == num_topics else self._best()

    def state(self) -> Arrays:
        """The topics of all tokens, block by block, and the hyper-parameters."""
        pairs = zip(self.z, self.blocks.sizes, strict=True)
        memory = np.concatenate([np.asarray(z)[:size] for z, size in pairs])
        return {"memory": memory, "numbers": np.concatenate([self.alpha, [self.beta, self.active]])}

    def restore(self, state: Arrays) -> None:
        """Restore the state from `state`; the counts follow from it."""
        numbers = state["numbers"]
        self.alpha, self.beta, self.active = numbers[:-2].copy(), float(numbers[-2]), int(numbers[-1])
        begin, blocks = 0, self.blocks
        self.counts = self._no_tokens()
        for block, size in enumerate(blocks.sizes):
            z = np.array(self._unseen())
            z[:size] = state["memory"][begin : begin + size]
            begin += size
            self.z[block] = jax.device_put(z) if blocks.resident else z
            word = blocks.tokens(block).word
            self.counts = arrays.counted(self.counts, word, z)
