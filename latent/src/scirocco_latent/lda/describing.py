"""What topics are about: tables of words, comparison of models, representative documents, shares by group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco._extras import require
from scirocco.diagnostics.intervals import central
from scirocco.errors import InvalidValueError
from scirocco_latent.lda import prediction
from scirocco_latent.lda.alignment import topic_distance
from scirocco_latent.lda.corpus import Corpus, Documents
from scirocco_latent.lda.estimator import LDA
from scirocco_latent.lda.results import TopWords, all_rows, largest
from scirocco_latent.lda.texts import open_corpus

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = np.ndarray


class Word(NamedTuple):
    """A word of a topic: the posterior mean of its weight, and a credible interval."""

    word: str
    weight: float
    low: float
    high: float


class Topic(NamedTuple):
    """A topic: its number (the row of `components_`), its share of the tokens, R-hat, its words."""

    number: int
    share: float | None
    rhat: float | None
    words: tuple[Word, ...]
    name: str | None = None
    """The name of seed words or of a label."""


def summarise(
    model: LDA, num_words: int = 10, interval: float = 0.9, drawn: TopWords | None = None, shares: Array | None = None
) -> list[Topic]:
    """All topics, the largest first; R-hat is None with one chain or fewer than four draws.

    The intervals have a smaller probability if there are few draws. `drawn`: the result of
    `model.top_draws(num_words)`, if already computed. `shares`: others than those in the tokens of the fit.
    """
    model._check_fitted()
    drawn = model.top_draws(num_words) if drawn is None else drawn
    level = model._level(interval)
    listed = model.top_words(num_words, interval=level or None, drawn=drawn)
    if not level:  # a single draw
        rows = zip(listed, drawn.draws[0, 0].tolist(), strict=True)
        listed = [[(word, *[weight] * 3) for word, weight in zip(*row, strict=True)] for row in rows]
    rhat = model.rhat() if model.run_.num_chains > 1 and model.run_.num_draws > 3 else None
    shares, names = model.shares_ if shares is None else shares, model.topic_names_
    order = range(len(listed)) if shares is None else np.argsort(-shares, kind="stable").tolist()
    return [
        Topic(
            k,
            None if shares is None else float(shares[k]),
            None if rhat is None else float(rhat[k]),
            tuple(Word(str(word), mean, low, high) for word, mean, low, high in listed[k]),
            names[k] if k < len(names) else None,
        )
        for k in order
    ]


# -- comparison of two fitted models: matching of their topics


class Pair(NamedTuple):
    """Two topics that were matched, and their distance (Hellinger, from 0 to 1)."""

    first: int
    second: int
    distance: float


class TopicComparison(NamedTuple):
    """Comparison of the topics of two models.

    Attributes
    ----------
    pairs
        Matched topics, the nearest first.
    only_first, only_second
        Unmatched topics: none was left, or the nearest one left is further away than the limit.
    num_words
        Number of words in both vocabularies; topics are compared over these.
    """

    pairs: list[Pair]
    only_first: list[int]
    only_second: list[int]
    num_words: int


def compare(first: LDA, second: LDA, limit: float = 0.5) -> TopicComparison:
    """Match the topics of two models to minimise the sum of their Hellinger distances (Hungarian algorithm).

    Parameters
    ----------
    first, second
        Fitted models; numbers of topics and vocabularies may differ. Topics are compared over the words in both
        vocabularies, normalised to sum to one there.
    limit
        Pairs further apart than this are no more similar than two topics of one model, and count as unmatched.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> X = np.random.default_rng(0).poisson(2.0, (50, 6))
    >>> lda = sc.models.LDA(3, batch_size=50).fit(X, num_epochs=20, progress=False)
    >>> found = compare(lda, lda)
    >>> sorted((pair.first, pair.second) for pair in found.pairs), found.only_first
    ([(0, 0), (1, 1), (2, 2)], [])
    """
    optimize = require("scipy.optimize", "matching topics")
    a, b = _common(first, second)
    distances = topic_distance(a, b)
    rows, columns = optimize.linear_sum_assignment(distances)
    pairs = [Pair(int(i), int(j), float(distances[i, j])) for i, j in zip(rows, columns, strict=True)]
    near = sorted((pair for pair in pairs if pair.distance <= limit), key=lambda pair: pair.distance)
    return TopicComparison(
        near,
        sorted(set(range(len(a))) - {pair.first for pair in near}),
        sorted(set(range(len(b))) - {pair.second for pair in near}),
        a.shape[1],
    )


def same_words(first: LDA, second: LDA) -> bool:
    """Whether column i is the same word in both, as far as known."""
    if first.vocabulary_ is None or second.vocabulary_ is None:
        return bool(first.n_features_in_ == second.n_features_in_)
    return bool(first.vocabulary_ == second.vocabulary_)


def _common(first: LDA, second: LDA) -> tuple[Array, Array]:
    """The topics of both over the words in both vocabularies."""
    a, b = first.topics(), second.topics()
    if same_words(first, second):
        return a, b
    if first.vocabulary_ is None or second.vocabulary_ is None:
        raise InvalidValueError(
            f"the models have {a.shape[1]:,} and {b.shape[1]:,} words, and at least one has no vocabulary. "
            "Fit both with a vocabulary."
        )
    place = {word: number for number, word in enumerate(second.vocabulary_)}
    shared = [(number, place[word]) for number, word in enumerate(first.vocabulary_) if word in place]
    if not shared:
        raise InvalidValueError("the vocabularies of the models are disjoint: their topics cannot be compared.")
    mine, other = (np.array(numbers) for numbers in zip(*shared, strict=True))
    return a[:, mine], b[:, other]


# -- documents: representative ones, shares by group, and how many topics they have


def representative(shares: Array, lengths: Array, num: int, least_tokens: int = 10) -> list[list[tuple[int, float]]]:
    """See `LDA.representative_documents`: from the shares (documents, topics) and the lengths of the documents."""
    long = np.flatnonzero(lengths >= min(least_tokens, lengths.max()))
    return [[(int(long[d]), float(column[long[d]])) for d in largest(column[long], num)] for column in shares.T]


class GroupShares(NamedTuple):
    """Mean shares of the topics in the documents of each group, with central intervals."""

    groups: Array
    """The groups in increasing order."""
    num_documents: Array
    mean: Array
    """(groups, topics), like `low` and `high`."""
    low: Array
    high: Array

    def to_frame(self, labels: Sequence[str] | None = None) -> Any:
        """A pandas data frame with a row for each group and topic; `labels` are names of the topics."""
        number, topics = self.mean.shape
        names = np.arange(topics) if labels is None else np.asarray(labels)
        columns = {
            "group": np.repeat(self.groups, topics),
            "topic": np.tile(names, number),
            "num_documents": np.repeat(self.num_documents, topics),
            "mean": self.mean.ravel(),
            "low": self.low.ravel(),
            "high": self.high.ravel(),
        }
        return require("pandas", "this table").DataFrame(columns)

    def plot(self, labels: Sequence[str] | None = None) -> Figure:
        """A matplotlib figure: shares by group with intervals, for the twelve topics that differ most between them."""
        from scirocco_latent.lda import plotting

        return plotting.shares(self, labels)


def shares_by(
    corpus: Corpus, groups: ArrayLike, draws: Iterable[Array], how: prediction.FoldIn, interval: float
) -> GroupShares:
    """See `LDA.shares_by`."""
    given = np.asarray(groups)
    if given.shape != (corpus.num_documents,):
        raise InvalidValueError(
            f"`groups` must have one value for each of the {corpus.num_documents:,} documents, got shape {given.shape}."
        )
    names, codes = np.unique(given, return_inverse=True)
    sizes = np.bincount(codes)
    drawn = [
        np.stack([np.bincount(codes, eta[:, k], len(names)) for k in range(eta.shape[1])], axis=1) / sizes[:, None]
        for eta in prediction.drawn_proportions(corpus, draws, how)
    ]
    return GroupShares(names, sizes, np.mean(drawn, axis=0), *central(np.stack(drawn), interval))


class TopicChoice(NamedTuple):
    """Held-out scores of several numbers of topics."""

    num_topics: tuple[int, ...]
    perplexity: Array
    """Perplexity of the hidden words of held-out documents; lower is better."""
    log_probability: Array
    """Mean log probability of a hidden word."""
    error: Array
    """Standard error of the difference of `log_probability` to the best one, over documents; 0 for the best."""
    best: int
    """The smallest number of topics within one standard error of the best."""

    def __str__(self) -> str:
        lines = ["topics  perplexity  log probability - best (standard error)"]
        gap = self.log_probability - self.log_probability.max()
        for k, value, less, error in zip(self.num_topics, self.perplexity, gap, self.error, strict=True):
            lines.append(f"{k:6}  {value:10.1f}  {less:+.4f} ({error:.4f}){' *' if k == self.best else ''}")
        return "\n".join(lines)


def choose_topics(
    X: Documents,
    num_topics: Sequence[int] = (5, 10, 20, 50, 100),
    *,
    held_out: float = 0.1,
    vocabulary: Any = None,
    column: str | None = None,
    encoding: str = "utf-8",
    tokeniser: Any = None,
    seed: int = 0,
    **options: Any,
) -> TopicChoice:
    """Compare numbers of topics by the probability of hidden words in held-out documents.

    The same documents are held out for all; a tenth of their words is hidden and predicted from the others, averaged
    over posterior draws. Errors are those of paired differences over documents: they do not include the variation
    between fits with other seeds.

    Parameters
    ----------
    X, vocabulary, column, encoding
        Documents as for `LDA.fit`.
    num_topics
        The numbers to compare.
    held_out
        Share of the documents that are held out.
    tokeniser, seed, **options
        Arguments of `LDA`.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.poisson([5, 5, 0, 0], (80, 4)), rng.poisson([0, 0, 5, 5], (80, 4))])
    >>> sc.models.choose_topics(X, (2, 4), beta=0.5).best
    2
    """
    numbers = tuple(_checks.positive_int(number, "num_topics", minimum=2) for number in num_topics)
    if not numbers:
        raise InvalidValueError("`num_topics` must have at least one number.")
    corpus = open_corpus(X, vocabulary, column=column, encoding=encoding, tokeniser=tokeniser).corpus
    fitted, held = prediction.hold_out(corpus, held_out, seed)
    if held is None:
        raise InvalidValueError(f"`held_out` must be above 0, got {held_out}.")
    seen, hidden = prediction.split(all_rows(held))
    found = []
    for number in numbers:
        model = LDA(number, seed=seed, **options).fit(fitted, progress=False)
        found.append(prediction.document_scores(seen, hidden, model._some_draws(), model._fold_in()))
    counts = prediction.document_counts(hidden)
    logs = np.array([each.sum() for each in found]) / counts.sum()
    top = int(np.argmax(logs))
    errors = np.array([_error(each - found[top], counts) for each in found])
    near = logs >= logs[top] - errors
    return TopicChoice(numbers, np.exp(-logs), logs, errors, min(k for k, ok in zip(numbers, near, strict=True) if ok))


def _error(differences: Array, counts: Array) -> float:
    """Standard error of Σ differences / Σ counts, a ratio over documents."""
    mean = differences.sum() / counts.sum()
    return float(np.sqrt(np.sum((differences - mean * counts) ** 2)) / counts.sum())
