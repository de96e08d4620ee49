"""What topics are about: representative documents, shares by group or date, and how many topics a corpus has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco.diagnostics.intervals import central
from scirocco.errors import InvalidValueError
from scirocco.models.lda import prediction
from scirocco.models.lda.corpus import Corpus, Documents
from scirocco.models.lda.estimator import LDA
from scirocco.models.lda.results import all_rows, largest
from scirocco.models.lda.texts import open_corpus

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def representative(
    shares: np.ndarray, lengths: np.ndarray, num: int, least_tokens: int = 10
) -> list[list[tuple[int, float]]]:
    """See `LDA.representative_documents`: from the shares (documents, topics) and the lengths of the documents."""
    long = np.flatnonzero(lengths >= min(least_tokens, lengths.max()))
    return [
        [(int(long[d]), float(column[long[d]])) for d in largest(column[long], num)] for column in shares.T
    ]


class GroupShares(NamedTuple):
    """Mean shares of the topics in the documents of each group, with central intervals."""

    groups: np.ndarray
    """The groups in increasing order."""
    num_documents: np.ndarray
    mean: np.ndarray
    """(groups, topics), like `low` and `high`."""
    low: np.ndarray
    high: np.ndarray

    def to_frame(self, labels: Sequence[str] | None = None) -> Any:
        """A pandas data frame with a row for each group and topic; `labels` are names of the topics."""
        from scirocco._extras import require

        number, topics = self.mean.shape
        names = np.arange(topics) if labels is None else np.asarray(labels)
        columns = {
            "group": np.repeat(self.groups, topics),
            "topic": np.tile(names, number),
            "num_documents": np.repeat(self.num_documents, topics),
            **{name: getattr(self, name).ravel() for name in ("mean", "low", "high")},
        }
        return require("pandas", "this table").DataFrame(columns)

    def plot(self, labels: Sequence[str] | None = None) -> Figure:
        """A matplotlib figure: shares by group with intervals, for the twelve topics that differ most between them."""
        from scirocco.models.lda import plotting

        return plotting.shares(self, labels)


def shares_by(
    corpus: Corpus, groups: ArrayLike, draws: Iterable[np.ndarray], how: prediction.FoldIn, interval: float
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
        np.stack([np.bincount(codes, eta[:, k], len(names)) for k in range(eta.shape[1])], axis=1)
        / sizes[:, None]
        for eta in prediction.drawn_proportions(corpus, draws, how)
    ]
    return GroupShares(names, sizes, np.mean(drawn, axis=0), *central(np.stack(drawn), interval))


class Choice(NamedTuple):
    """Held-out scores of several numbers of topics."""

    num_topics: tuple[int, ...]
    perplexity: np.ndarray
    """Perplexity of the hidden words of held-out documents; lower is better."""
    log_probability: np.ndarray
    """Mean log probability of a hidden word."""
    error: np.ndarray
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
) -> Choice:
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
    return Choice(
        numbers, np.exp(-logs), logs, errors, min(k for k, ok in zip(numbers, near, strict=True) if ok)
    )


def _error(differences: np.ndarray, counts: np.ndarray) -> float:
    """Standard error of Σ differences / Σ counts, a ratio over documents."""
    mean = differences.sum() / counts.sum()
    return float(np.sqrt(np.sum((differences - mean * counts) ** 2)) / counts.sum())
