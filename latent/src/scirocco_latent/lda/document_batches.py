"""Batches of documents: those of a corpus in random order, or those of a stream."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from scirocco import _checks
from scirocco.data.shuffle import shuffled_numbers
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models._core.chain import DocumentPurpose
from scirocco_latent.lda.corpus import Corpus
from scirocco_latent.lda.streams import DocumentStream, Rows

Array = np.ndarray

Growth = tuple[tuple[int, int], ...]
"""Stages (documents, passes) before all documents are used."""
_MOST_KEPT = 1 << 22  # entries of a batch with all documents that is kept


class Delivery(NamedTuple):
    """Some documents, and the numbers of their random streams."""

    documents: Array
    rows: Rows


class CorpusBatches:
    """Batches without replacement, in a new random order for each pass, determined by (seed, pass, position).

    With a growth, the first passes use only the first documents of one random order: for each stage, the given number
    of passes over the given number of documents.
    """

    def __init__(self, corpus: Corpus, seed: int, growth: Growth = (), epoch: int = 0):
        self.corpus, self.seed, self.growth = corpus, seed, growth
        self.num_documents = self.total = corpus.num_documents
        """Documents available, and documents of the corpus that batches represent."""
        self.epoch, self.place, self.visits = epoch, 0, 0
        self.once = False
        """Whether each document is used exactly once."""
        self._ends = np.cumsum([passes for _, passes in growth], dtype=np.int64)
        self._order = self._shuffled()
        self._whole: Delivery | None = None

    @property
    def growing(self) -> bool:
        """Whether the growth is still using a part of the documents."""
        return self.epoch < self.growth_passes

    @property
    def fills(self) -> bool:
        """Whether the last batch of a pass is filled from the next one."""
        return not (self.growing or self.once)

    @property
    def growth_passes(self) -> int:
        """Number of passes of all stages."""
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def reach(self) -> int:
        """Number of documents in this pass."""
        if not self.growing:
            return self.num_documents
        return self.growth[int(np.searchsorted(self._ends, self.epoch, side="right"))][0]

    @property
    def passes(self) -> float:
        """Number of documents returned, divided by the number of documents."""
        return self.visits / self.num_documents

    def finish_growth(self) -> None:
        """Use all documents from the next batch on."""
        if self.growing:
            self.epoch, self.place = self.growth_passes, 0
            self._order = self._shuffled()

    def _shuffled(self) -> Array:
        chosen: int | Array = self.num_documents
        if self.growing:
            chosen = shuffled_numbers(chosen, self.seed, DocumentPurpose.FIRST)[: self.reach]
        return shuffled_numbers(chosen, self.seed, DocumentPurpose.ORDER, self.epoch)

    def next(self, count: int) -> Delivery:
        """The next documents."""
        count = min(count, self.num_documents if self.fills else len(self._order) - self.place)
        self.visits += count
        parts = []
        while count:
            part = self._order[self.place : self.place + count]
            parts.append(part)
            count -= len(part)
            self.place += len(part)
            if self.place == len(self._order):
                self.epoch, self.place = self.epoch + 1, 0
                self._order = self._shuffled()
        if len(parts) == 1 and len(parts[0]) == self.num_documents:
            return self._everything()
        chosen = np.unique(np.concatenate(parts)) if len(parts) > 1 else np.sort(parts[0])
        return Delivery(chosen, self.corpus.take_csr(chosen))

    def _everything(self) -> Delivery:
        """All documents; kept if they are few."""
        if self._whole is not None:
            return self._whole
        chosen = np.arange(self.num_documents)
        whole = Delivery(chosen, self.corpus.take_csr(chosen))
        if len(whole.rows[1]) <= _MOST_KEPT:
            self._whole = whole
        return whole

    def reference(self, count: int, step: int) -> Delivery:
        """Random documents for a reference; the order of the batches does not change."""
        rng = np.random.default_rng([self.seed, DocumentPurpose.REFERENCE, step])
        chosen = np.sort(rng.choice(self.num_documents, min(count, self.num_documents), replace=False))
        return Delivery(chosen, self.corpus.take_csr(chosen))

    def state(self) -> Array:
        """The position in the sequence of batches."""
        return np.array([self.epoch, self.place, self.visits], np.int64)

    def restore(self, state: Array) -> None:
        """Resume at a position."""
        self.epoch, self.place, self.visits = (int(number) for number in state)
        self._order = self._shuffled()


class StreamBatches:
    """Documents in the order of a stream, which are not stored."""

    growing = False

    def __init__(self, stream: DocumentStream):
        self.stream, self.total = stream, stream.num_documents
        self.handed_out = 0
        stream.begin_again()

    @property
    def passes(self) -> float:
        """Number of documents returned, divided by those of a pass."""
        return self.handed_out / self.total

    @property
    def reach(self) -> int:
        """Number of documents in a pass."""
        return self.total

    def finish_growth(self) -> None:
        """Do nothing: a stream has no growth."""

    def next(self, count: int) -> Delivery:
        """The next documents; an error if a stream that cannot restart is exhausted."""
        rows = self.stream.take(min(count, self.total))
        first = self.handed_out
        self.handed_out += len(rows[0]) - 1
        return Delivery(np.arange(first, self.handed_out), rows)

    def reference(self, count: int, step: int) -> Delivery:
        """The next documents of the stream."""
        return self.next(count)

    def state(self) -> Array:
        """The number of documents read."""
        return np.array([self.handed_out], np.int64)

    def restore(self, state: Array) -> None:
        """Read and skip the documents returned before."""
        left = int(state[0]) - self.handed_out
        while left > 0:
            left -= len(self.stream.take(min(left, 4096))[0]) - 1
        self.handed_out = int(state[0])


Batches = CorpusBatches | StreamBatches


# -- growth: a chain first finds topics in a few documents, then adds the others


_TOKENS_A_TOPIC = 3200  # of the first stage
_FACTOR = 3  # from one stage to the next
_PASSES = (50, 12, 6)  # over the first, the second and later stages
_LAST_PASSES = 3  # over all documents, with spare topics
_ARRAY_PASSES, _LAST_ARRAY_PASSES = (200, 40, 15), 5  # whole-array passes need more, and are cheap
_LEAST_ARRAY, _LARGE_ARRAY = 1 << 20, 1 << 24  # tokens: fewer take as long; fewer need no growth
_LEAST_SHARE = 2.5  # least ratio of all documents to the stage before


def automatic_growth(num_documents: int, num_tokens: int, num_topics: int, by_arrays: bool = False) -> Growth:
    """Stages of 3,200 tokens per topic, then three times as many and so on, up to all documents.

    Passes over few documents are cheap, and the topics separate there. The numbers were chosen on other corpora than
    those with reported results. `by_arrays`: for accelerators, where only large corpora need a growth.

    Examples
    --------
    >>> automatic_growth(20_000, 3_200_000, 100)
    ((2000, 50), (6000, 12), (20000, 3))
    """
    length = max(num_tokens / max(num_documents, 1), 1e-9)
    tokens, passes, last = _TOKENS_A_TOPIC * num_topics, _PASSES, _LAST_PASSES
    if by_arrays:
        tokens, passes, last = max(tokens, _LEAST_ARRAY), _ARRAY_PASSES, _LAST_ARRAY_PASSES
        if num_tokens < max(_LARGE_ARRAY, _LEAST_SHARE * tokens):
            return ()
    size = max(int(tokens / length), num_topics)
    stages: list[tuple[int, int]] = []
    while size * _LEAST_SHARE <= num_documents:
        stages.append((size, passes[min(len(stages), len(passes) - 1)]))
        size *= _FACTOR
    return (*stages, (num_documents, last))


START_GROWTH, START_PASSES = 15, 45
"""Passes of a short run with spare topics, and all of its passes."""
_START_TOKENS, _MOST_STARTS = 8_000_000, 8  # token-samples of all short runs; most of them


def automatic_starts(num_tokens: int) -> int:
    """Number of short runs from which a chain chooses its start: small corpora have bad modes, and passes are cheap.

    Examples
    --------
    >>> automatic_starts(24_000), automatic_starts(60_000), automatic_starts(3_200_000)
    (7, 2, 1)
    """
    affordable = _START_TOKENS // (START_PASSES * max(num_tokens, 1))
    return max(1, min(_MOST_STARTS, affordable)) if num_tokens else 1


def growth_steps(growth: Growth, batch_size: int) -> int:
    """Number of batches of the stages; no batch has documents of two passes."""
    return sum(passes * -(-size // batch_size) for size, passes in growth)


def shortened_growth(growth: Growth, most_steps: float, batch_size: int) -> Growth:
    """The same stages with fewer passes, so that they take at most `most_steps`; empty if no pass remains."""
    share = min(1.0, most_steps / max(growth_steps(growth, batch_size), 1))
    return tuple((size, int(passes * share)) for size, passes in growth if int(passes * share))


def check_growth(given: object, num_documents: int) -> Growth:
    """Check the stages passed by the user."""
    if not _checks.is_list(given):
        raise InvalidTypeError(
            '`growth` must be "auto", None or pairs (documents, passes) such as [(1000, 60), (4000, 15)]; '
            f"got {given!r}."
        )
    out = []
    for pair in given:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InvalidTypeError(f"each stage of `growth` must be a pair (documents, passes), got {pair!r}.")
        size = _checks.positive_int(pair[0], "growth: documents")
        if size > num_documents:
            raise InvalidValueError(
                f"a stage of `growth` has {size:,} documents, but there are only {num_documents:,}."
            )
        out.append((size, _checks.positive_int(pair[1], "growth: passes")))
    if any(later[0] <= former[0] for former, later in itertools.pairwise(out)):
        raise InvalidValueError(f"the stages of `growth` must increase in documents, got {out}.")
    return tuple(out)
