"""Topic models on a real corpus, scored while they run: common to the experiments `lda-*`.

The score is the perplexity of document completion: every tenth token of a document that was held out is hidden, its
topics are found from the others, and p of a hidden token is averaged over the chain's states at several marks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scirocco import datasets
from scirocco._programs import available_cores
from scirocco.models import LDA
from scirocco_latent.lda import Corpus, as_corpus, prediction
from scirocco_latent.lda.chain import TopicChain
from scirocco_latent.lda.settings import Size, resolve
from scirocco_papers.base import Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SPLIT = 0x5B117
_SWEEPS, _DROPPED = 20, 5  # of the local step that finds the topics of documents held out


class Texts(NamedTuple):
    """Documents to fit, and some that are scored."""

    training: Corpus
    scorer: Scorer


class Job(NamedTuple):
    """One chain to follow."""

    model: LDA
    documents: int
    """How many the chain is handed, passes over the same documents counted again."""
    seed: int


class Scorer:
    """Hidden words of documents, which topics are asked to predict."""

    def __init__(self, held: Any):
        rows = (held.indptr.astype(np.int64), held.indices, held.data)
        self.seen, self.hidden = prediction.split(rows)
        self._document = np.repeat(np.arange(held.shape[0]), np.diff(self.hidden[0]))

    def chances(self, omega: np.ndarray, alpha: np.ndarray, seed: int) -> np.ndarray:
        """The probability of every hidden word, given topics ω and the words seen in its document."""
        how = prediction.FoldIn(alpha, _SWEEPS, _DROPPED, 1, seed)
        eta = prediction.proportions(self.seen, omega, how, 0).astype(np.float32)
        by_word = np.ascontiguousarray(omega.T)
        return np.einsum("ik,ik->i", eta[self._document], by_word[self.hidden[1]])

    def perplexity(self, chances: np.ndarray) -> float:
        """exp(-mean log p)."""
        counts = self.hidden[2]
        with np.errstate(divide="ignore"):
            return float(np.exp(-np.sum(counts * np.log(chances)) / counts.sum()))


def wikipedia(
    settings: Settings,
    num_training: int,
    num_held: int,
    *,
    num_words: int | None = None,
    min_tokens: int = 50,
    split: int = 0,
) -> Texts:
    """Articles chosen at random, the same for all seeds.

    Parameters
    ----------
    settings
        Says where the data are.
    num_training, num_held
        Documents.
    num_words
        Only the commonest words; default: all.
    min_tokens
        Of these words in an article.
    split
        Another number, other documents.
    """
    matrix = datasets.wikipedia(settings.data_dir, min_tokens).matrix
    if num_words is not None:
        totals = np.asarray(matrix.sum(axis=0)).ravel()
        matrix = matrix[:, np.sort(np.argsort(-totals, kind="stable")[:num_words])]
        matrix = matrix[np.asarray(matrix.sum(axis=1)).ravel() >= min_tokens]
    order = np.random.default_rng([_SPLIT, split]).permutation(matrix.shape[0])
    training = order[num_held : num_held + num_training]
    return Texts(as_corpus(matrix[np.sort(training)]), Scorer(matrix[np.sort(order[:num_held])]))


def follow(texts: Texts, job: Job, num_marks: int) -> dict[str, Any]:
    """Run a chain in this thread, and score it at as many marks.

    Returns
    -------
    dict
        At each mark: `documents` that the chain was handed, `seconds` of processor time it took, the perplexity of the
        topics as they are `now`, that of p `averaged` over the later half of the marks so far, and of p averaged over
        all of them, `from_start`.
    """
    corpus = texts.training
    given = {**job.model.get_params(), "num_threads": 1}
    resolved = resolve(given, Size(corpus.num_documents, corpus.vocabulary_size, corpus.num_tokens))
    chain = TopicChain(corpus, resolved, job.seed, 0)
    names = ("documents", "seconds", "now", "averaged", "from_start")
    out: dict[str, Any] = {name: [] for name in names}
    kept: list[np.ndarray] = []
    seconds = 0.0
    for mark in range(1, num_marks + 1):
        began = time.thread_time()
        while chain.passes * corpus.num_documents < mark * job.documents / num_marks - 0.5:
            chain.advance(1)
        seconds += time.thread_time() - began
        chances = texts.scorer.chances(chain.draw(), resolved.alpha, mark)
        kept.append(chances)
        later = np.mean(kept[len(kept) // 2 :], axis=0)
        values = (
            round(chain.passes * corpus.num_documents),
            seconds,
            *(texts.scorer.perplexity(p) for p in (chances, later, np.mean(kept, axis=0))),
        )
        for name, value in zip(names, values, strict=True):
            out[name].append(value)
    return out


def follow_all(texts: Texts, jobs: Mapping[str, Sequence[Job]], num_marks: int) -> dict[str, list[dict[str, Any]]]:
    """All chains of all names, as many at a time as there are cores; each has one thread."""
    with ThreadPoolExecutor(available_cores()) as pool:
        started = {name: [pool.submit(follow, texts, job, num_marks) for job in each] for name, each in jobs.items()}
        return {name: [future.result() for future in each] for name, each in started.items()}


def ends(curves: Sequence[dict[str, Any]], score: str = "averaged") -> np.ndarray:
    """The score of each chain at its last mark."""
    return np.array([curve[score][-1] for curve in curves])


def at_time(curves: Sequence[dict[str, Any]], seconds: float, score: str = "averaged") -> np.ndarray:
    """The score of each chain after so much processor time, interpolated between its marks."""
    return np.array([np.interp(seconds, curve["seconds"], curve[score]) for curve in curves])


def plot_band(axes: Axes, curves: Sequence[dict[str, Any]], x: str, score: str, **style: Any) -> None:
    """The mean of several chains over `x` (averaged too), and a band from the lowest to the highest."""
    across = np.mean([curve[x] for curve in curves], axis=0)
    scores = np.array([curve[score] for curve in curves])
    line = axes.plot(across, scores.mean(axis=0), **style)[0]
    axes.fill_between(across, scores.min(axis=0), scores.max(axis=0), color=line.get_color(), alpha=0.25, linewidth=0)
