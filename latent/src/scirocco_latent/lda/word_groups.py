r"""Collapsed Gibbs sweeps over the documents of a batch, in several threads and exactly.

The words are in G groups j, the documents of a batch in G groups i. Of the topics ω only the masses
S_jk = Σ_{w in j} ω_wk are drawn, (S_1k, ..., S_Gk) | z ~ Dirichlet(βV_j + n_jk); the rest is integrated out. Given S,

.. math:: P(z = k | all other tokens) ∝ (α_k + n_dk) S_jk (β + n_wk) / (βV_j + n_jk), \qquad w ∈ j,

depends only on tokens of the same document and on tokens of words of the same group. So the blocks (i, i + r mod G),
i = 1, ..., G, can be processed in parallel, for r = 1, ..., G one after the other. G depends on the number of tokens
and not on the number of threads, and every block has its own random numbers: so have the draws. With G = 1, S = 1.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from scirocco._programs import available_cores
from scirocco.diffusions.host._threads import run_blocks
from scirocco_latent.lda.sizes import FITTING

LANES = 16
"""Topics in a vector of the dense kernel."""

Block = tuple[int, int, int, int, np.uint64]
"""First and last document of a batch (exclusive), group of words, first entry, number of the random stream."""
Array = np.ndarray[Any, np.dtype[Any]]


def num_groups(num_tokens: int, num_documents: int) -> int:
    """G for a batch of so many tokens.

    Examples
    --------
    >>> num_groups(20_000, 200), num_groups(400_000, 3_000), num_groups(1_000_000, 10_000), num_groups(10**6, 10**5)
    (1, 8, 12, 2)
    """
    by_work = math.isqrt(num_tokens // FITTING.shared_tokens)
    by_visits = num_tokens // (FITTING.visit_tokens * max(num_documents, 1))
    return max(1, min(FITTING.most_groups, by_work, max(2, by_visits)))


class GroupLayout(NamedTuple):
    """A batch whose entries are in the order of their groups."""

    documents: Array
    """Numbers of the documents in the corpus."""
    rows: tuple[Array, ...]
    """See `_collapsed_kernel.arrange`."""
    bounds: list[int]
    """Group i has the documents bounds[i] to bounds[i + 1] - 1."""
    places: list[list[int]]
    """The first entry of each block, (groups of documents, groups of words)."""


class WordGroups:
    """G groups of words of about equal numbers of tokens, and n_jk."""

    def __init__(self, num: int, frequencies: Array, table: Array):
        self.num = num
        turn = np.concatenate([np.arange(num), np.arange(num)[::-1]])
        self.of_word = np.empty(len(frequencies), np.int8)
        self.of_word[np.argsort(-frequencies, kind="stable")] = np.resize(turn, len(frequencies))
        self.sizes = np.bincount(self.of_word, minlength=num)
        sums = [table[self.of_word == j].sum(axis=0, dtype=np.int64) for j in range(num)]
        self.totals = np.stack(sums)

    def masses(self, rng: np.random.Generator, beta: float) -> Array:
        """Draw S, (groups, topics)."""
        if self.num == 1:
            return np.ones(self.totals.shape)
        shapes = self.totals + beta * self.sizes[:, None]
        drawn = np.maximum(rng.standard_gamma(shapes), np.finfo(np.float64).tiny)
        shares: Array = drawn / drawn.sum(axis=0)
        return shares

    def layout(
        self, kernels: Any, documents: Array, rows: tuple[Array, ...], begins: Array, threads: int | None
    ) -> GroupLayout:
        """Arrange the entries of a batch."""
        indptr, words, counts = rows
        num = len(documents)
        arranged = (
            np.empty((self.num, num), np.int32),
            np.empty(len(words), np.int32),
            np.empty(len(words), np.int32),
            np.empty(len(words), np.int64),
        )
        given = ((indptr, words, counts, documents), begins, self.of_word)
        ends = np.cumsum(begins[documents + 1] - begins[documents])
        total = int(ends[-1]) if num else 0
        inner = np.searchsorted(ends, total * np.arange(1, self.num) / self.num)
        bounds = [0, *inner.tolist(), num]
        layout = GroupLayout(documents, arranged, bounds, [])
        self.over_documents(lambda *part: kernels.arrange(*given, *part, arranged), layout, threads)
        for i in range(self.num):
            sizes = arranged[0][:, bounds[i] : bounds[i + 1]].sum(axis=1, dtype=np.int64)
            layout.places.append((indptr[bounds[i]] + np.cumsum(sizes) - sizes).tolist())
        return layout

    def over_documents(self, work: Callable[[int, int], object], layout: GroupLayout, threads: int | None) -> None:
        """Call `work(first, end)` on ranges that cover the documents of a batch."""
        bounds = layout.bounds

        def some(first: int, end: int) -> None:
            for i in range(first, end):
                work(bounds[i], bounds[i + 1])

        run_blocks(some, self.num, threads)

    def sweep(
        self, work: Callable[[Block, Array], object], layout: GroupLayout, masses: Array, threads: int | None
    ) -> None:
        """Call `work` for all G² blocks, with the masses of its group.

        Threads take the blocks in their order. A block waits for the earlier blocks of the same documents and of the
        same words, which have been taken before: so some thread can always continue, however many there are.
        """
        turns, changed, broken = [0] * self.num, threading.Condition(), threading.Event()
        numbers = itertools.count()  # `next` on it is atomic

        def take(first: int, end: int) -> None:
            try:
                for number in numbers:
                    turn, i = divmod(number, self.num)
                    if turn == self.num:
                        return
                    with changed:
                        while not broken.is_set() and min(turns[i], turns[(i + 1) % self.num]) < turn:
                            changed.wait()
                    if broken.is_set():
                        return
                    work(*self._block(layout, masses, i, (i + turn) % self.num))
                    with changed:
                        turns[i] = turn + 1
                        changed.notify_all()
            except BaseException:
                broken.set()
                with changed:
                    changed.notify_all()
                raise

        most = min(self.num, available_cores() if threads is None else threads)
        run_blocks(take, most, most)

    def _block(self, layout: GroupLayout, masses: Array, i: int, j: int) -> tuple[Block, Array]:
        first, end = layout.bounds[i : i + 2]
        return (first, end, j, layout.places[i][j], np.uint64(i * self.num + j)), masses[j]
