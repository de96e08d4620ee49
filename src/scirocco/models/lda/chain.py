"""One chain of a topic model: which documents are next, their local step, what it tells the topics."""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco.models.lda import local
from scirocco.models.lda.settings import Settings
from scirocco.models.lda.topics import Arrays, ControlledTopics, LazyTopics, RememberedTopics, Topics

_UNSEEN = -1
_PIECE = 1 << 14


class Order:
    """Documents in a random order, new in every pass; what comes next follows from (seed, pass, place)."""

    def __init__(self, num_documents: int, seed: int, epoch: int = 0, place: int = 0):
        self.num_documents, self.seed, self.epoch, self.place = num_documents, seed, epoch, place
        self._order = self._shuffled()

    def _shuffled(self) -> np.ndarray:
        return np.random.default_rng([self.seed, 0xD0C, self.epoch]).permutation(self.num_documents)

    def take(self, count: int) -> np.ndarray:
        """The next documents; the last batch of a pass is filled from the next pass."""
        parts = []
        while count:
            part = self._order[self.place : self.place + count]
            parts.append(part)
            count -= len(part)
            self.place += len(part)
            if self.place == self.num_documents:
                self.epoch, self.place = self.epoch + 1, 0
                self._order = self._shuffled()
        return np.unique(np.concatenate(parts)) if len(parts) > 1 else np.sort(parts[0])


def document_lengths(corpus: Any) -> np.ndarray:
    """Tokens of every document, counted in pieces."""
    lengths = np.empty(corpus.num_documents, np.int64)
    for begin in range(0, corpus.num_documents, _PIECE):
        rows = np.arange(begin, min(begin + _PIECE, corpus.num_documents))
        indptr, _, counts = corpus.take_csr(rows)
        sums = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        lengths[rows] = sums[indptr[1:]] - sums[indptr[:-1]]
    return lengths


class Memory:
    """The topic of every token of the corpus, document by document."""

    def __init__(self, begins: np.ndarray, topics: np.ndarray):
        self.begins, self.topics = begins, topics

    @classmethod
    def of(cls, corpus: Any, num_topics: int) -> Memory:
        """No token has a topic yet."""
        lengths = document_lengths(corpus)
        kind = np.int16 if num_topics < 1 << 15 else np.int32
        begins = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return cls(begins, np.full(begins[-1], _UNSEEN, kind))

    def gather(self, documents: np.ndarray) -> np.ndarray:
        """Topics of the tokens of these documents."""
        starts, ends = self.begins[documents], self.begins[documents + 1]
        out = np.empty(int((ends - starts).sum()), np.int32)
        _kernels().gather_runs(self.topics, starts, ends, out)
        return out

    def scatter(self, documents: np.ndarray, topics: np.ndarray) -> None:
        """Remember them."""
        starts, ends = self.begins[documents], self.begins[documents + 1]
        _kernels().scatter_runs(topics, starts, ends, self.topics)


class TopicChain:
    """All that a chain is: topics, the order of documents, the step number, and, with memory, the tokens' topics."""

    def __init__(self, corpus: Any, settings: Settings, seed: int, chain: int):
        self.corpus, self.settings = corpus, settings
        self.seed = int(np.random.SeedSequence([seed, chain]).generate_state(1, np.uint64)[0] >> 1)
        self.order = Order(corpus.num_documents, self.seed)
        self.total = corpus.num_documents
        """Documents of the corpus that batches speak for."""
        self.step = 0
        size = (corpus.vocabulary_size, settings.num_topics)
        self.memory: Memory | None = None
        self.topics: Topics
        if settings.memory == "documents":
            self.memory = Memory.of(corpus, settings.num_topics)
            self.topics = RememberedTopics.begin(*size, settings.beta, settings.num_threads)
        elif settings.sampler == "scir":
            self.topics = LazyTopics.begin(*size, settings.beta, self.seed, settings.num_threads)
        else:
            self.topics = ControlledTopics.begin(
                *size, settings.beta, settings.sampler, self.seed, settings.num_threads
            )

    def take_over(self, corpus: Any, total: int) -> None:
        """Go on with other documents, of a corpus of `total`; only without memory."""
        assert self.memory is None
        self.corpus, self.total = corpus, total
        self.order = Order(corpus.num_documents, self.seed, epoch=self.order.epoch + 1)

    def advance(self, num_steps: int) -> None:
        """Make steps."""
        for _ in range(num_steps):
            self._one()

    def _one(self) -> None:
        settings = self.settings
        if settings.sampler == "scir_cv" and self.step % settings.refresh_every == 0:
            self._refer()
        documents = self.order.take(min(settings.batch_size, self.corpus.num_documents))
        batch = self._batch(documents)
        if len(batch.distinct):
            scale = self.total / len(documents)
            weights = self.topics.read(batch.distinct, self._words(1))
            found = self._local(batch, weights, documents)
            time = float(settings.step_size(self.step))
            self.topics.update(batch.distinct, found, scale, time, self._words(2))
        self.step += 1

    def _batch(self, documents: np.ndarray) -> local.Batch:
        indptr, words, counts = self.corpus.take_csr(documents)
        return local.from_counts(indptr, words, counts, documents)

    def _local(self, batch: Any, weights: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """The counts (words, topics) of a batch, given its topics."""
        settings = self.settings
        threads = settings.num_threads
        if self.memory is None and settings.local == "cvb0":
            return local.cvb0(
                batch, weights, settings.alpha, iterations=settings.sweeps, num_threads=threads
            ).counts
        if self.memory is None:
            found = local.gibbs(
                self._words(3),
                batch,
                weights,
                settings.alpha,
                sweeps=settings.sweeps,
                burn_in=settings.burn_in,
                num_threads=threads,
            )
            return found.counts
        old = self.memory.gather(documents)
        new, first = old.copy(), bool(len(old)) and bool(old.min() < 0)
        sweeps = settings.first_sweeps if first else settings.sweeps
        local.gibbs(
            self._words(3),
            batch,
            weights,
            settings.alpha,
            sweeps=sweeps,
            burn_in=sweeps - 1,
            z=new,
            num_threads=threads,
        )
        self.memory.scatter(documents, new)
        assert isinstance(self.topics, RememberedTopics)
        words = batch.distinct[batch.tokens]
        _kernels().move_counts(self.topics.table, self.topics.totals, words, old, new)
        return np.empty((0, settings.num_topics), np.float32)

    def _refer(self) -> None:
        """A reference for SCIR-CV from a larger batch."""
        settings, topics = self.settings, self.topics
        assert isinstance(topics, ControlledTopics)
        rng = np.random.default_rng([self.seed, 0xCF, self.step])
        size = min(settings.refresh_size, self.corpus.num_documents)
        documents = np.sort(rng.choice(self.corpus.num_documents, size, replace=False))
        batch = self._batch(documents)
        found = local.gibbs(
            self._words(4),
            batch,
            topics.read(batch.distinct, self._words(1)),
            settings.alpha,
            sweeps=settings.sweeps,
            burn_in=settings.burn_in,
            num_threads=settings.num_threads,
        )
        topics.refer(batch.distinct, found.counts, self.total / size)

    def _words(self, purpose: int) -> tuple[int, int]:
        """Seed words of this step, for one purpose."""
        return self.seed, (self.step << 3) + purpose

    @property
    def passes(self) -> float:
        """How often the corpus has been seen."""
        return self.order.epoch + self.order.place / self.corpus.num_documents

    def draw(self) -> np.ndarray:
        """ω at the present time, (topics, words)."""
        return self.topics.draw(self._words(5))

    def state(self) -> Arrays:
        """Arrays from which `restore` goes on bit for bit."""
        out = {f"topics.{name}": value for name, value in self.topics.state().items()}
        out["progress"] = np.array([self.step, self.order.epoch, self.order.place], np.int64)
        if self.memory is not None:
            out["memory"] = self.memory.topics.copy()
        return out

    def restore(self, state: Arrays) -> None:
        """Take up where `state` was taken."""
        topics = {
            name.partition(".")[2]: value for name, value in state.items() if name.startswith("topics.")
        }
        settings = self.settings
        if isinstance(self.topics, LazyTopics):
            self.topics = LazyTopics.restore(topics, settings.beta, settings.num_threads)
        elif isinstance(self.topics, RememberedTopics):
            self.topics = RememberedTopics(topics["table"].copy(), settings.beta, settings.num_threads)
        elif isinstance(self.topics, ControlledTopics):
            self.topics.theta, self.topics.reference = topics["theta"].copy(), topics["reference"].copy()
        if self.memory is not None:
            self.memory.topics = state["memory"].copy()
        self.step, epoch, place = (int(number) for number in state["progress"])
        self.order = Order(self.corpus.num_documents, self.seed, epoch, place)


def _kernels() -> Any:
    """The compiled part, imported when it is first needed."""
    from scirocco._extras import require

    require("numba", "topic models")
    from scirocco.models.lda import _table

    return _table
