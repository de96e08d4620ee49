"""The local step of latent Dirichlet allocation on the CPU: expected counts of a batch, given the topics.

Compiled, multithreaded kernels; requires the extra `compiled`. `local_jax` has the version for accelerators.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks, _extras
from scirocco.diffusions.host import _arguments as arguments
from scirocco.diffusions.host._arguments import Array
from scirocco.diffusions.host._threads import run_blocks
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.lda._tokens import TokenBatch, distinct_words, from_counts

__all__ = ["LocalCounts", "TokenBatch", "cvb0", "distinct_words", "from_counts", "gibbs"]

_GIBBS = 11  # the same seed gives unrelated numbers to different functions
_FEW_TOPICS = 25  # up to which the dense kernel is as fast; measured with benchmarks/lda_local.py
_FEW_DRAWS = 20_000  # too few for a thread: about a millisecond of work
CVB0_UNIT = 2.0**-32  # of integer sums
_UNPLACED = {np.dtype(np.int32): -1, np.dtype(np.uint16): 65535}


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
    rao_blackwell: bool = False,
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

    Parameters
    ----------
    seed
        A non-negative int or a pair of ints, different for each call. The draws of a document depend on the seed, its
        number and its tokens, but not on the number of threads or the rest of the batch.
    batch
        From `from_counts`. Documents may be empty.
    weights
        (words, topics): row i has ω_kw of the word `batch.distinct[i]`, up to a constant factor. A row of zeros carries
        no information about the topic.
    alpha
        α > 0: a number, or one per topic.
    sweeps, burn_in
        Total number of sweeps, and the number of initial ones that are discarded; burn_in < sweeps.
    z
        int32 or uint16, (tokens,): initial topics, replaced by those of the last sweep; -1 (65535) for none. A token
        without a topic gets one in the first sweep, given the tokens that already have one.
    keep_documents
        Also return the documents' topics.
    rao_blackwell
        Average the conditional probabilities of the topics instead of the drawn topics: the same mean, less variance,
        slower sweeps. Topics of documents are means of the draws in either case.
    num_threads
        Number of threads; default: all cores.
    kernel
        "sparse", "dense", or "auto": depends on the number of topics.
    whole
        Return the counts as integer sums over the sweeps after the burn-in, which can be added to those of other
        documents in any order; not with `rao_blackwell`.

    Returns
    -------
    Local
        The memory needed in addition is 4 bytes per word, topic and thread (8 with `rao_blackwell`, or where sums need
        them), and half a byte more with the sparse kernel.

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
    if whole and rao_blackwell:
        raise InvalidValueError("`whole` sums drawn topics and cannot be combined with `rao_blackwell`.")
    kernels = _kernels()
    table, concentration = _topics(kernels, batch, weights, alpha)
    state = _state(z, batch, table.shape[1])
    dense = kernel == "dense" or (kernel == "auto" and table.shape[1] <= _FEW_TOPICS)
    sums = table[:0] if dense else _cumulative(table, concentration, num_threads)
    kept = sweeps - burn_in
    wide = rao_blackwell or batch.num_tokens * kept >= 2**31
    slabs = _Slabs(table.shape, np.int64 if wide else np.int32, rao_blackwell and not dense)
    mixes = np.zeros((batch.num_documents, table.shape[1]) if keep_documents else (1, 1), np.float64)
    texts, topics = batch[:2] + batch[3:], (table, concentration) if dense else (table, concentration, sums)
    plan = (sweeps, burn_in, bool(rao_blackwell), bool(keep_documents))
    words = arguments.seed_words(seed, _GIBBS)
    sweep_some = kernels.dense_documents if dense else _sparse_kernels().sparse_documents

    def work(first: int, last: int) -> None:
        slab, rest = slabs.take()
        sweep_some(texts, topics, state, plan, slab, rest, mixes, words, first, last)
        slabs.put(slab, rest)

    _share(work, batch, sweeps, num_threads)
    factor = 1.0 / (kept * (kernels.UNIT if rao_blackwell else 1.0))
    counts = slabs.total()[0] if whole else _means(kernels, slabs, (table, concentration, sums), factor)
    return LocalCounts(counts, (mixes / kept).astype(np.float32) if keep_documents else None)


def check_sweeps(sweeps: int, burn_in: int) -> None:
    """Check that `burn_in` is below `sweeps`."""
    _checks.positive_int(sweeps, "sweeps")
    _checks.positive_int(burn_in, "burn_in", minimum=0)
    if burn_in >= sweeps:
        raise InvalidValueError(f"`burn_in` must be below `sweeps` ({sweeps}), got {burn_in}.")


def cvb0(
    batch: TokenBatch,
    weights: ArrayLike,
    alpha: ArrayLike,
    *,
    iterations: int,
    keep_documents: bool = False,
    num_threads: int | None = None,
    whole: bool = False,
) -> LocalCounts:
    """Expected counts by CVB0, the zeroth-order collapsed variational method, with the topics' words fixed.

    Iterates γ_ik ∝ (α_k + Σ_{j≠i} γ_jk) ω_kw over the tokens i of a document (tokens of one word share their γ), from
    γ_ik ∝ α_k ω_kw. Deterministic and fast, but without a target distribution: it is the Gibbs conditional at expected
    counts, exact for documents of one token and otherwise biased towards mixtures that are too even or too extreme.

    Parameters
    ----------
    batch, weights, alpha, keep_documents, num_threads
        As for `gibbs`.
    iterations
        Passes over each document, about ten.
    whole
        Return the counts as integer multiples of `CVB0_UNIT`.

    Returns
    -------
    Local
        Expected counts. The memory is 8 bytes per word, topic and thread.

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco_latent.lda import local
    >>> batch = local.from_counts([0, 1], [5], [1])
    >>> local.cvb0(batch, np.array([[0.6, 0.2]], np.float32), alpha=0.1, iterations=3).counts
    array([[0.75, 0.25]], dtype=float32)
    """
    _checks.positive_int(iterations, "iterations")
    kernels = _kernels()
    from scirocco_latent.lda import _gibbs

    table, concentration = _topics(kernels, batch, weights, alpha)
    slabs = _Slabs(table.shape, np.int64, False)
    mixes = np.zeros((batch.num_documents, table.shape[1]) if keep_documents else (1, 1), np.float32)
    texts, single = batch[:2] + batch[3:], concentration.astype(np.float32)

    def work(first: int, last: int) -> None:
        slab, rest = slabs.take()
        _gibbs.cvb0_documents(
            texts, table, single, iterations, slab, mixes, bool(keep_documents), first, last
        )
        slabs.put(slab, rest)

    _share(work, batch, iterations, num_threads)
    topics = (table, concentration, table[:0])
    counts = slabs.total()[0] if whole else _means(kernels, slabs, topics, CVB0_UNIT)
    return LocalCounts(counts, mixes if keep_documents else None)


class _Slabs:
    """Integer sums, one array per running thread."""

    def __init__(self, shape: tuple[int, ...], dtype: type[np.generic], with_rest: bool) -> None:
        self._shape, self._dtype, self._rest = shape, dtype, shape[0] if with_rest else 0
        self._free: list[tuple[Array, Array]] = []
        self._lock = threading.Lock()

    def take(self) -> tuple[Array, Array]:
        with self._lock:
            if self._free:
                return self._free.pop()
        return np.zeros(self._shape, self._dtype), np.zeros(self._rest, np.int64)

    def put(self, slab: Array, rest: Array) -> None:
        with self._lock:
            self._free.append((slab, rest))

    def total(self) -> tuple[Array, Array]:
        """The sum of all arrays; call it last."""
        (slab, rest), *others = self._free or [self.take()]
        for other, other_rest in others:
            slab += other
            rest += other_rest
        return slab, rest


def _kernels() -> ModuleType:
    """Import the compiled kernels when they are first needed."""
    _extras.require("numba", "compiled CPU kernels")
    from scirocco_latent.lda import _gibbs

    return _gibbs


def _sparse_kernels() -> ModuleType:
    from scirocco_latent.lda import _sparse

    return _sparse


def _topics(
    kernels: ModuleType, batch: TokenBatch, weights: ArrayLike, alpha: ArrayLike
) -> tuple[Array, Array]:
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


def _means(kernels: ModuleType, slabs: _Slabs, topics: tuple[Array, ...], factor: float) -> Array:
    slab, rest = slabs.total()
    out = np.empty(slab.shape, np.float32)
    kernels.spread(slab, rest, topics, factor, out, 0, slab.shape[0])
    return out
