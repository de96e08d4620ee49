"""`sc.models.DynamicTopics`: topics whose words change over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco._extras import require
from scirocco.diagnostics.intervals import central, effective_draws
from scirocco.errors import InvalidValueError
from scirocco.models._core.chain import Spec
from scirocco.models._core.program import FitOptions
from scirocco.models._core.view import View
from scirocco.run.result import Run
from scirocco_latent.lda import prediction
from scirocco_latent.lda.corpus import Corpus, Documents
from scirocco_latent.lda.describing import GroupShares
from scirocco_latent.lda.dynamic_chain import WalkChain, Walks
from scirocco_latent.lda.estimator import LDA
from scirocco_latent.lda.gaussian import GaussianTopics
from scirocco_latent.lda.readers import Vocabulary
from scirocco_latent.lda.results import all_rows, largest
from scirocco_latent.lda.texts import as_numbers, column_of
from scirocco_latent.lda.tokeniser import Tokeniser

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = np.ndarray

_MOST_TIMES, _USUAL_SLICES = 40, 20  # times that are slices of their own; otherwise the number of slices
# of a sweep, by entry of a draw and by token (measured on one core)
_ENTRY_SECONDS, _TOKEN_SECONDS = 4e-7, 2e-7


class WordPaths(NamedTuple):
    """Probabilities of some words of a topic over time, with central intervals."""

    topic: int
    times: Array
    words: tuple[Any, ...]
    mean: Array
    """(times, words), like `low` and `high`."""
    low: Array
    high: Array

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each time and word."""
        count = len(self.words)
        columns = {
            "time": np.repeat(self.times, count),
            "word": np.tile(np.array(self.words, object), len(self.times)),
            "mean": self.mean.ravel(),
            "low": self.low.ravel(),
            "high": self.high.ravel(),
        }
        return require("pandas", "this table").DataFrame(columns)


class DynamicTopics(GaussianTopics):
    r"""Topics whose words change over time: in each time slice t, topic k is softmax(x_kt), and x is a random walk.

    x_k1w ~ N(0, τ²), x_ktw ~ N(x_{k,t-1,w}, σ² g) with the gap g between two slices (1 is the median gap); η_d ~ Dir(α)
    for each document. Draws are from the exact posterior: a Gibbs sampler without step sizes, in compiled code on the
    CPU. Documents are read into memory.

    Parameters
    ----------
    num_topics
        K, the number of topics.
    alpha
        Dirichlet concentration of topics in documents: a number, or one per topic.
    spread
        τ, the standard deviation of the log weights of words in the first slice. None: learned, 1/τ² ~ Gamma(1, 4).
    drift
        σ, the standard deviation of the change of a log weight from one slice to the next: with the default, weights
        change by up to a half (two standard deviations). None: learned, with 1/σ² ~ Gamma(1, 0.02). Documents of real
        corpora repeat their words more often than the model expects, which a learned σ takes for drift.
    num_slices
        Number of time slices, of about equal numbers of documents. None: one for each time, 20 if there are more
        than 40 times.
    num_samples, num_burnin, thin, num_chains, seed, num_threads, tokeniser
        As for `LDA`.

    Attributes
    ----------
    times_
        The times of the slices: the first time in each.
    num_documents_
        Number of documents of each slice.
    components_
        Posterior mean of the topics, (slices, topics, words).
    drift_, spread_
        Posterior means of σ and τ.
    draws_
        "topics" (chain, draw, slice, topic, word) and "shares" (chain, draw, slice, topic), in memory or read from disk
        when indexed; the topics of all chains are in the order of the first.
    run_
        The run, with the draws as each chain made them.
    vocabulary_
        The words, if known.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> rng, times = np.random.default_rng(0), np.repeat([2001, 2002, 2003], 20)
    >>> X = rng.poisson([[4, 2, 0, 0], [0, 0, 4, 2]] * 30)
    >>> model = sc.models.DynamicTopics(2).fit(X, times, num_steps=60, progress=False)
    >>> model.components_.shape, model.times_.tolist()
    ((3, 2, 4), [2001, 2002, 2003])
    """

    TOPICS: ClassVar[Mapping[str, Sequence[int]]] = {"topics": (1,), "shares": (1,)}

    def __init__(
        self,
        num_topics: int = 20,
        *,
        alpha: ArrayLike = 0.1,
        spread: float | None = None,
        drift: float | None = 0.2,
        num_slices: int | None = None,
        num_samples: int | None = None,
        num_burnin: float = 0.5,
        thin: int | None = None,
        num_chains: int = 2,
        seed: int = 0,
        num_threads: int | None = None,
        tokeniser: Tokeniser | Callable[[str], Iterable[str]] | str | None = None,
    ):
        self.num_topics, self.alpha, self.spread, self.drift = num_topics, alpha, spread, drift
        self.num_slices, self.num_samples, self.num_burnin, self.thin = (num_slices, num_samples, num_burnin, thin)
        self.num_chains, self.seed, self.num_threads, self.tokeniser = (num_chains, seed, num_threads, tokeniser)

    def fit(
        self,
        X: Documents,
        times: ArrayLike | str,
        *,
        vocabulary: Vocabulary = None,
        column: str | None = None,
        encoding: str = "utf-8",
        **options: Unpack[FitOptions],
    ) -> DynamicTopics:
        """Sample topics from the posterior given documents and their times.

        Parameters
        ----------
        X, vocabulary, column, encoding
            Documents as for `LDA.fit`: texts, counts, or the path of a table.
        times
            For each document a number, a date, or a text (slices are then in alphabetical order, with equal gaps); or
            the name of the column of `X` that has them.
        num_steps, num_epochs, max_seconds
            The length of the run, including burn-in; give at most one of the three. A step is a pass over all
            documents. By default `num_samples` times `thin` steps after the burn-in if `thin` is given, otherwise 200
            to 1,000, the more the smaller the model.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`.
        """
        num_topics = _checks.positive_int(self.num_topics, "num_topics", minimum=2)
        for name, value in (("spread", self.spread), ("drift", self.drift)):
            if value is not None:
                _checks.positive(value, name)
        corpus = self._open(X, vocabulary, column, encoding)
        when = as_numbers(column_of(X, times, encoding) if isinstance(times, str) else times)
        labels, slices, gaps = sliced(when, corpus.num_documents, self.num_slices)
        settings = self._start_settings(corpus, alpha=self.alpha)
        task = Walks(corpus, slices, gaps, settings, self.spread, self.drift)
        shape = (len(labels), num_topics, corpus.vocabulary_size)
        program = self._program(
            corpus,
            f"exact Gibbs sampler, {len(labels)} time slices from {labels[0]} to {labels[-1]}",
            {
                "num_topics": num_topics,
                "alpha": settings.alpha.tolist(),
                "spread": self.spread,
                "drift": self.drift,
                "num_slices": len(labels),
            },
            Spec.of({"topics": shape, "shares": shape[:2]}, {"spread": (), "drift": ()}),
            lambda number: WalkChain(task, self.seed, number),
            math.prod(shape) * _ENTRY_SECONDS + corpus.num_tokens * _TOKEN_SECONDS,
            {
                "times": labels.astype(str).tolist(),
                "kind": labels.dtype.str,
                "num_documents": np.bincount(slices).tolist(),
            },
            {"slices": slices},
        )
        return self._drawn(program, corpus, options)

    def _results(self, run: Run, told: dict[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
        draws = super()._results(run, told, arrays)
        self.times_ = np.array(told["times"]).astype(np.dtype(told["kind"]))
        self.num_documents_ = np.array(told["num_documents"])
        total = np.zeros(draws["topics"].shape[2:])
        for at in np.ndindex(draws["topics"].shape[:2]):
            total += draws["topics"][at]
        self.components_ = (total / (run.num_chains * run.num_draws)).astype(np.float32)
        self.spread_, self.drift_ = (float(np.mean(run.stats[name])) for name in ("spread", "drift"))
        return draws

    def _without_time(self, topics: Array) -> Array:
        mean: Array = topics.mean(axis=0)
        return mean

    def _watched(self) -> dict[str, Array]:
        """Shares of the topics in the slices, and τ and σ if they are learned."""
        learned = [name for name, value in (("spread", self.spread), ("drift", self.drift)) if value is None]
        scales = {name: np.asarray(self.run_.stats[name]) for name in learned}
        return {"shares": np.asarray(self.draws_["shares"]), **scales}

    def _coordinates(self) -> dict[str, Sequence[Any]]:
        return {"shares_dim_0": [str(time) for time in self.times_.tolist()]}

    # -- results -------------------------------------------------------------------------------------------------------

    def at(self, time: Any) -> LDA:
        """The topics of the slice of a time, as an `LDA`: `top_words`, `transform`, `plot_topics`, `coherence`, ..."""
        return self._slice(int(_slice_of(self.times_, as_numbers([time]))[0]))

    def _slice(self, number: int) -> LDA:
        return self._as_lda(self._pooled("topics", lambda draw: draw[number]))

    def top_words(self, num: int = 10, *, interval: float | None = None) -> dict[Any, list[list[Any]]]:
        """For each time the most probable words of each topic; with `interval` as (word, mean, low, high)."""
        self._check_fitted()
        found = (self._slice(t).top_words(num, interval=interval) for t in range(len(self.times_)))
        return dict(zip(self.times_.tolist(), found, strict=True))

    def labels(self, num: int = 3) -> list[str]:
        """A short name for each topic: its `num` most probable words over all times."""
        self._check_fitted()
        rows = self.components_.mean(axis=0)
        return [", ".join(str(self._words[word]) for word in largest(row, num)) for row in rows]

    def evolution(
        self, topic: int, words: Sequence[Any] | None = None, *, num: int = 6, interval: float = 0.9
    ) -> WordPaths:
        """Probabilities of words of a topic over time, with central intervals.

        `words` are words (or their numbers); by default `num`: the most probable ones at any time.
        """
        self._check_fitted()
        count = self.components_.shape[1]
        if not isinstance(topic, int | np.integer) or not 0 <= topic < count:
            raise InvalidValueError(f"`topic` must be a number from 0 to {count - 1}, got {topic!r}.")
        chosen = (
            largest(self.components_[:, topic].max(axis=0), _checks.positive_int(num, "num"))
            if words is None
            else np.array([self._number(word) for word in words])
        )
        drawn = self._by_chain(self._pooled("topics", lambda draw: draw[:, topic, chosen]))
        low, high = central(drawn, interval, axis=(0, 1), effective=effective_draws(drawn))
        names = tuple(self._words[word] for word in chosen)
        return WordPaths(int(topic), self.times_, names, drawn.mean(axis=(0, 1)), low, high)

    def _number(self, word: Any) -> int:
        if isinstance(word, int | np.integer) and 0 <= word < self.n_features_in_:
            return int(word)
        if self.vocabulary_ is None or word not in self.vocabulary_:
            raise InvalidValueError(f"the word {word!r} is not among the {self.n_features_in_:,} words of the model.")
        return self.vocabulary_.index(word)

    def shares(self, interval: float = 0.9) -> GroupShares:
        """Mean shares of the topics in the documents of each slice, with central intervals; it has `plot()`."""
        self._check_fitted()
        drawn = np.asarray(self.draws_["shares"])
        ends = central(drawn, interval, axis=(0, 1), effective=effective_draws(drawn))
        return GroupShares(self.times_, self.num_documents_, drawn.mean(axis=(0, 1)), *ends)

    def plot_topics(self, num: int = 5, *, topics: Sequence[int] | None = None, interval: float = 0.9) -> Figure:
        """A matplotlib figure: the most probable words of each topic over time, with central intervals.

        `topics` are numbers of topics; by default the first twelve.
        """
        from scirocco_latent.lda import plotting

        self._check_fitted()
        return plotting.paths(self, num, topics, interval)

    def _view(self, run: Run, **options: Any) -> View:
        from scirocco_latent.lda import view_documents

        return view_documents.over_time(self, run)

    # -- documents -----------------------------------------------------------------------------------------------------

    def transform(
        self,
        X: Documents,
        times: ArrayLike | str,
        *,
        interval: float | None = None,
        column: str | None = None,
        encoding: str = "utf-8",
    ) -> Any:
        """Proportions of topics in documents (documents, topics); with `interval` also bounds: (mean, low, high).

        `times` as for `fit`; a time after the last slice, or between two, belongs to the slice before it.
        """
        parts = [
            (rows, model.transform(part, interval=interval))
            for rows, model, part in self._by_slice(X, times, column, encoding)
        ]
        shape = (sum(len(rows) for rows, _ in parts), self.num_topics)
        out = [np.empty(shape) for _ in range(1 if interval is None else 3)]
        for rows, found in parts:
            for whole, part in zip(out, (found,) if interval is None else found, strict=True):
                whole[rows] = part
        return out[0] if interval is None else tuple(out)

    def perplexity(
        self, X: Documents, times: ArrayLike | str, *, column: str | None = None, encoding: str = "utf-8"
    ) -> float:
        """exp(-mean log probability) of every tenth word, given the others of their documents, as for `LDA`."""
        logs, count = 0.0, 0
        for _, model, part in self._by_slice(X, times, column, encoding):
            seen, hidden = prediction.split(all_rows(part))
            if hidden[2].sum() > 0:
                scores = prediction.document_scores(seen, hidden, model._some_draws(), model._fold_in())
                logs, count = logs + float(scores.sum()), count + int(hidden[2].sum())
        if not count:
            raise InvalidValueError("there is no hidden word to score: documents must have at least 10 tokens.")
        return float(np.exp(-logs / count))

    def _by_slice(
        self, X: Documents, times: ArrayLike | str, column: str | None, encoding: str
    ) -> Iterable[tuple[Array, LDA, Corpus]]:
        """The documents of each slice: their numbers, the topics at that time, the documents."""
        self._check_fitted()
        corpus = self._slice(0)._read(X, column, encoding, may_be_empty=True)
        when = as_numbers(column_of(X, times, encoding) if isinstance(times, str) else times)
        if when.shape != (corpus.num_documents,):
            raise _wrong_number(when, corpus.num_documents)
        slices = _slice_of(self.times_, when)
        for number in np.unique(slices):
            rows = np.flatnonzero(slices == number)
            yield rows, self._slice(int(number)), prediction.part(corpus, rows)


def _wrong_number(when: Array, num_documents: int) -> InvalidValueError:
    return InvalidValueError(
        f"`times` must have one value for each of the {num_documents:,} documents, got shape {when.shape}."
    )


def sliced(when: Array, num_documents: int, num_slices: int | None) -> tuple[Array, Array, Array]:
    """The first time of each slice, the slice of each document, and the gaps between slices (median 1)."""
    if when.shape != (num_documents,):
        raise _wrong_number(when, num_documents)
    if bool(np.any(when != when)):  # NaN, NaT
        raise InvalidValueError(f"`times`: the time of document {int(np.argmax(when != when))} is missing.")
    known, numbers = np.unique(when, return_inverse=True)
    if len(known) == 1:
        raise InvalidValueError(f"all documents have the time {known[0]}: without time, use LDA.")
    if num_slices is None:
        num_slices = len(known) if len(known) <= _MOST_TIMES else _USUAL_SLICES
    if _checks.positive_int(num_slices, "num_slices", minimum=2) > len(known):
        raise InvalidValueError(f"{num_slices} time slices require as many different times, got {len(known)} of them.")
    begins = np.arange(len(known))
    if num_slices < len(known):
        before = np.concatenate([[0], np.cumsum(np.bincount(numbers))[:-1]])
        begins = np.unique(np.searchsorted(before, np.arange(num_slices) * num_documents / num_slices))
        begins = np.unique(np.minimum(begins, len(known) - 1))
    slices = np.searchsorted(begins, numbers, side="right") - 1
    gaps = np.ones(len(begins) - 1)
    if known.dtype.kind in "iufM":
        values = known.astype(np.float64) if known.dtype.kind != "M" else known.astype("M8[s]").astype(float)
        middle = np.bincount(slices, values[numbers]) / np.bincount(slices)
        gaps = np.diff(middle) / np.median(np.diff(middle))
    return known[begins], slices, gaps


def _slice_of(times: Array, when: Array) -> Array:
    """The slice of each time; texts must be those of the fit."""
    if times.dtype.kind in "iufM" and when.dtype.kind in "iufM":
        return np.maximum(np.searchsorted(times, when, side="right") - 1, 0)
    places = {str(time): number for number, time in enumerate(times.tolist())}
    unknown = [str(time) for time in when.tolist() if str(time) not in places]
    if unknown:
        raise InvalidValueError(f"the time {unknown[0]!r} is not one of the slices: {', '.join(places)}.")
    return np.array([places[str(time)] for time in when.tolist()])
