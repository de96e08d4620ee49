"""A corpus in blocks of whole documents, as flat tokens, on the device or sent to it block by block."""

from __future__ import annotations

import jax
import numpy as np

from scirocco.data.shuffle import shuffled_numbers
from scirocco.models._core.chain import DocumentPurpose
from scirocco_latent.lda.arrays import Tokens
from scirocco_latent.lda.collapsed_chain import document_lengths
from scirocco_latent.lda.corpus import Corpus
from scirocco_latent.lda.document_batches import Growth
from scirocco_latent.lda.streams import Rows

_LEAST, _MOST = 1 << 14, 1 << 22
"""Tokens of a block: many, because starting a program takes as long as 200,000 tokens on a fast accelerator."""
_ROUND = 1024
_SHARE = 0.5


class DocumentBlocks:
    """The documents in random order, cut into blocks of about equal numbers of tokens.

    Parameters
    ----------
    corpus
        The corpus. It is put on the device if it fits into half of its memory; otherwise each pass reads it again.
    seed
        Determines the order.
    growth
        Stages of the chains: the first documents should fill whole blocks.
    """

    def __init__(self, corpus: Corpus, seed: int, growth: Growth = ()):
        self.corpus = corpus
        self.order = shuffled_numbers(corpus.num_documents, seed, DocumentPurpose.FIRST)
        self.lengths = lengths = document_lengths(corpus)[self.order]
        """Number of tokens of each document, in this order."""
        ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        first = int(ends[growth[0][0] if growth else -1])
        wanted = max(-(-first // -(-first // _MOST)) if first else 1, min(_LEAST, int(ends[-1])))
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
    return -(-number // _ROUND) * _ROUND


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
            count = self.blocks.reach(
                self.growth[int(np.searchsorted(self._ends, self.epoch, side="right"))][0]
            )
        self.epoch += 1
        self.visits += int(self.blocks.starts[count])
        return count

    def state(self) -> np.ndarray:
        """The position in the sequence of passes."""
        return np.array([self.epoch, self.visits], np.int64)

    def restore(self, state: np.ndarray) -> None:
        """Resume at a position."""
        self.epoch, self.visits = (int(number) for number in state)
