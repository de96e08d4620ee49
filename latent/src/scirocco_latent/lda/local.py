"""The local step of latent Dirichlet allocation on the CPU: expected counts of a batch, given the topics.

Compiled, multithreaded kernels. `arrays.local` is the version for accelerators.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco._extras import later
from scirocco.diffusions.host import _arguments as arguments
from scirocco.diffusions.host._arguments import Array
from scirocco.diffusions.host._threads import run_blocks
from scirocco.errors import InvalidTypeError, InvalidValueError

_GIBBS = 11  # the same seed gives unrelated numbers to different functions
_FEW_TOPICS = 25  # up to which the dense kernel is as fast; measured with benchmarks/lda_local.py
_FEW_DRAWS = 20_000  # too few for a thread: about a millisecond of work
_UNPLACED = {np.dtype(np.int32): -1, np.dtype(np.uint16): 65535}  # a token without a topic
_kernels = later("scirocco_latent.lda._gibbs")
_sparse_kernels = later("scirocco_latent.lda._sparse")


class LocalCounts(NamedTuple):
    """Result of a local step.

    Attributes
    ----------
    counts
        float32, (words, topics): mean number of tokens of each word of the batch in each topic. With `whole`, the
        integer sums.
    document_topics
        float32, (documents, topics): mean number of tokens of each document in each topic; None if not requested.
    """

    counts: Array
    document_topics: Array | None


def gibbs(
    seed: int | tuple[int, int],
    batch: TokenBatch,
    weights: ArrayLike,
    alpha: ArrayLike,
    *,
    sweeps: int,
    burn_in: int,
    z: Array | None = None,
    keep_documents: bool = False,
    num_threads: int | None = None,
    kernel: str = "auto",
    whole: bool = False,
) -> LocalCounts:
    """Collapsed Gibbs sweeps over the topics of a batch's tokens, with the topics' words fixed.

    The topic of a token of word w in document d is drawn from

        P(z = k | the document's other tokens) ∝ (α_k + n_dk) ω_kw,

    n_dk counted without the token. The chain has the stationary distribution p(z | words, ω, α) with the documents'
    mixtures integrated out; the results are means over the sweeps after the burn-in. A token costs O(K) in the dense
    kernel, and in the sparse one O(topics in the document), plus K/8 comparisons when its topic is drawn from α_k ω_kw.

    `seed` is different for each call. The draws of a document depend on the seed, its number and its tokens, but not on
    the number of threads or the rest of the batch. Row i of `weights` (words, topics) has ω_kw of the word
    `batch.distinct[i]`, up to a constant factor; a row of zeros carries no information about the topic. `z` (int32 or
    uint16) are initial topics of the tokens, replaced by those of the last sweep; -1 (65535) for none: such a token
    gets one in the first sweep, given the tokens that already have one. `kernel` is "sparse", "dense", or "auto": by
    the number of topics. `whole` returns integer sums, which can be added to those of other documents in any order. The
    memory needed in addition is 4 bytes per word, topic and thread (8 where sums need them), and half a byte more with
    the sparse kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco_latent.lda import local
    >>> batch = local.from_counts([0, 2, 3], [0, 1, 1], [3, 1, 2])
    >>> topics = np.array([[0.9, 0.2], [0.1, 0.8]], np.float32)  # of words 0 and 1
    >>> found = local.gibbs(7, batch, topics, alpha=0.5, sweeps=200, burn_in=20)
    >>> bool(abs(found.counts.sum() - 6.0) < 1e-3)
    True
    """
    check_sweeps(sweeps, burn_in)
    _checks.choice(kernel, "kernel", ("auto", "sparse", "dense"))
    kernels = _kernels()
    table, concentration = _topics(kernels, batch, weights, alpha)
    state = _state(z, batch, table.shape[1])
    dense = kernel == "dense" or (kernel == "auto" and table.shape[1] <= _FEW_TOPICS)
    sums = table[:0] if dense else _cumulative(table, concentration, num_threads)
    kept = sweeps - burn_in
    slabs = _Slabs(table.shape, np.int64 if batch.num_tokens * kept >= 2**31 else np.int32)
    mixes = np.zeros((batch.num_documents, table.shape[1]) if keep_documents else (1, 1), np.float64)
    texts, topics = batch[:2] + batch[3:], (table, concentration) if dense else (table, concentration, sums)
    plan = (sweeps, burn_in, bool(keep_documents))
    words = arguments.seed_words(seed, _GIBBS)
    sweep_some = kernels.dense_documents if dense else _sparse_kernels().sparse_documents

    def work(first: int, last: int) -> None:
        slab = slabs.take()
        sweep_some(texts, topics, state, plan, slab, mixes, words, first, last)
        slabs.put(slab)

    _share(work, batch, sweeps, num_threads)
    counts = slabs.total() if whole else scaled_sums(slabs.total(), 1.0 / kept)
    return LocalCounts(counts, (mixes / kept).astype(np.float32) if keep_documents else None)


def check_sweeps(sweeps: int, burn_in: int) -> None:
    """Check that `burn_in` is below `sweeps`."""
    _checks.positive_int(sweeps, "sweeps")
    _checks.positive_int(burn_in, "burn_in", minimum=0)
    if burn_in >= sweeps:
        raise InvalidValueError(f"`burn_in` must be below `sweeps` ({sweeps}), got {burn_in}.")


class _Slabs:
    """Integer sums, one array per running thread."""

    def __init__(self, shape: tuple[int, ...], dtype: type[np.generic]) -> None:
        self._shape, self._dtype = shape, dtype
        self._free: list[Array] = []
        self._lock = threading.Lock()

    def take(self) -> Array:
        with self._lock:
            return self._free.pop() if self._free else np.zeros(self._shape, self._dtype)

    def put(self, slab: Array) -> None:
        with self._lock:
            self._free.append(slab)

    def total(self) -> Array:
        """The sum of all arrays; call it last."""
        slab, *others = self._free or [self.take()]
        for other in others:
            slab += other
        return slab


def _topics(kernels: ModuleType, batch: TokenBatch, weights: ArrayLike, alpha: ArrayLike) -> tuple[Array, Array]:
    """ω in the format of the kernels, checked and without rows of zeros, and α for each topic."""
    table = np.require(weights, np.float32, ["C", "W"])
    if table.ndim != 2 or table.shape[0] != batch.distinct.size or not table.shape[1]:
        raise InvalidValueError(
            f"`weights` must have shape ({batch.distinct.size}, topics), one row per entry of `batch.distinct`, "
            f"got {table.shape}. Use `topics.T[batch.distinct]` of a (topics, words) matrix."
        )
    concentration = arguments.as_real(alpha, "alpha").astype(np.float64)
    arguments.check_sign(concentration, "alpha", sign="> 0")
    if concentration.shape not in ((), (1,), (table.shape[1],)):
        raise InvalidValueError(
            f"`alpha` must be a number or one for each of the {table.shape[1]} topics, got {concentration.shape}."
        )
    row, small = kernels.first_bad(table)
    if row >= 0:
        arguments.check_sign(table[row], f"weights[{row}]", sign=">= 0")
    full = np.ascontiguousarray(np.broadcast_to(concentration, table.shape[1:]))
    return (kernels.scaled(table) if small else table), full.copy()


def _cumulative(table: Array, alpha: Array, num_threads: int | None) -> Array:
    kernels = _sparse_kernels()
    columns = 1 + 16 * -(-kernels.blocks(table.shape[1]) // 16)
    sums = np.empty((table.shape[0], columns), np.float32)
    threads = 1 if table.size < 100 * _FEW_DRAWS and num_threads is None else num_threads
    run_blocks(lambda a, b: kernels.accumulate(table, alpha, sums, a, b), table.shape[0], threads)
    return sums


def _state(z: np.ndarray | None, batch: TokenBatch, num_topics: int) -> Array:
    """The array of topics that the kernels read and write: `z` itself, or a new one."""
    if z is None:
        return np.full(batch.num_tokens, -1, np.int32)
    wanted = f"a writeable, C-contiguous int32 or uint16 array of shape ({batch.num_tokens},)"
    if not isinstance(z, np.ndarray) or z.dtype not in _UNPLACED:
        raise InvalidTypeError(
            f"`z` must be {wanted}, got {z.dtype if isinstance(z, np.ndarray) else type(z).__name__}."
        )
    if z.shape != (batch.num_tokens,) or not z.flags.c_contiguous or not z.flags.writeable:
        raise InvalidValueError(f"`z` must be {wanted}, got shape {z.shape}; use np.ascontiguousarray.")
    none = _UNPLACED[z.dtype]
    bad = (z != none) & ((z < 0) | (z >= num_topics))
    if bad.any():
        i = int(np.argmax(bad))
        raise InvalidValueError(
            f"`z` must be below the number of topics, {num_topics}, or {none} for none; got {z[i]} at {i}."
        )
    return z


def _share(work: Callable[[int, int], None], batch: TokenBatch, rounds: int, num_threads: int | None) -> None:
    few = num_threads is None and batch.num_tokens * rounds < _FEW_DRAWS
    if batch.num_documents:
        run_blocks(work, batch.num_documents, 1 if few else num_threads)


def scaled_sums(sums: Array, unit: float) -> Array:
    """Integer sums as counts in float32, rounded once."""
    out = np.empty(sums.shape, np.float32)
    np.multiply(sums, np.float64(unit), out=out, casting="same_kind")
    return out


# -- documents as tokens


class TokenBatch(NamedTuple):
    """Some documents, token by token; tokens of one word are neighbours within a document.

    Attributes
    ----------
    indptr
        int64, (documents + 1,): tokens `indptr[d]` to `indptr[d + 1]` belong to document d, which may have none.
    tokens
        int32, (tokens,): for each token the position of its word in `distinct`.
    distinct
        int64, (words,): the numbers of the words that occur in the batch, ascending.
    documents
        int64, (documents,): numbers that select the documents' random streams. Equal numbers have equal streams.
    """

    indptr: Array
    tokens: Array
    distinct: Array
    documents: Array

    @property
    def num_documents(self) -> int:
        """Number of documents in the batch, including empty ones."""
        return self.documents.size

    @property
    def num_tokens(self) -> int:
        """Number of tokens in the batch."""
        return self.tokens.size


def from_counts(
    indptr: ArrayLike, words: ArrayLike, counts: ArrayLike, documents: ArrayLike | None = None
) -> TokenBatch:
    """A batch from the rows of a sparse matrix of counts.

    Document d has the words `words[indptr[d]:indptr[d + 1]]`, with the counts at the same positions of `counts`. Takes
    time proportional to the number of tokens, and one byte for each word number up to the largest.

    `documents` are numbers >= 0, for the random streams of the documents: by default 0, 1, 2, ... A document with the
    same number has the same stream in any batch.

    Examples
    --------
    >>> from scirocco_latent.lda.local import from_counts
    >>> batch = from_counts([0, 2, 3], [7, 2, 7], [1, 2, 3])
    >>> batch.distinct, batch.tokens, batch.indptr
    (array([2, 7]), array([1, 0, 0, 1, 1, 1], dtype=int32), array([0, 3, 6]))
    """
    starts = np.asarray(indptr, np.int64)
    numbers = np.asarray(words, np.int64)
    repeats = np.asarray(counts).astype(np.int64)
    _check_rows(starts, numbers, repeats)
    distinct, rows = _distinct(_present(numbers, repeats), numbers)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(repeats)])
    names = np.arange(starts.size - 1) if documents is None else np.array(documents, np.int64)
    if names.shape != (starts.size - 1,) or (names.size and names.min() < 0):
        raise InvalidValueError(
            f"`documents` must contain one number >= 0 for each of the {starts.size - 1} documents, "
            f"got shape {names.shape}{f' and {names.min()}' if names.size else ''}."
        )
    return TokenBatch(ends[starts], np.repeat(rows, repeats), distinct, names)


def distinct_words(words: Array, counts: Array) -> Array:
    """The numbers of the words that have a token, ascending: `from_counts(...).distinct` without the tokens."""
    return _distinct(_present(words, counts), words)[0]


def _present(words: Array, counts: Array) -> Array:
    return words[counts > 0] if counts.size and counts.min() == 0 else words


def _distinct(present: Array, words: Array) -> tuple[Array, Array]:
    """The sorted distinct numbers of `present`, and the position of each of `words` in them; found without sorting."""
    if not present.size:
        return np.empty(0, np.int64), np.zeros(words.size, np.int32)
    marks = np.zeros(int(words.max()) + 1, np.bool_)
    marks[present] = True
    distinct = np.flatnonzero(marks)
    place = np.empty(marks.size, np.int32)  # only pages with words are touched
    place[distinct] = np.arange(distinct.size, dtype=np.int32)
    return distinct, place[words]


def _check_rows(starts: Array, words: Array, repeats: Array) -> None:
    if words.shape != repeats.shape or words.ndim != 1:
        raise InvalidValueError(
            f"`words` and `counts` must be vectors of the same length, got shapes {words.shape} and {repeats.shape}."
        )
    if starts.ndim != 1 or not starts.size or starts[0] != 0 or starts[-1] != words.size:
        raise InvalidValueError(
            f"`indptr` must start with 0 and end with the number of entries, {words.size}. "
            "For some rows of a matrix use `matrix[rows].indptr`, not a part of `matrix.indptr`."
        )
    if np.any(np.diff(starts) < 0):
        raise InvalidValueError("`indptr` must not decrease: document d ends where document d + 1 begins.")
    if words.size and (words.min() < 0 or repeats.min() < 0):
        name, low = ("words", words.min()) if words.min() < 0 else ("counts", repeats.min())
        raise InvalidValueError(f"`{name}` must be >= 0, got {low}.")
