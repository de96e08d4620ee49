"""Results of a fitted topic model: topics with intervals, documents, scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco._extras import require
from scirocco._tree import is_array
from scirocco.diagnostics import rhat
from scirocco.diagnostics.intervals import central, effective_draws, tails_of
from scirocco.errors import InvalidValueError
from scirocco.run.result import Run
from scirocco_latent.lda import prediction
from scirocco_latent.lda.alignment import topic_distance
from scirocco_latent.lda.coherence import coherence as _coherence
from scirocco_latent.lda.coherence import to_pyldavis
from scirocco_latent.lda.collapsed_chain import document_lengths
from scirocco_latent.lda.corpus import Corpus, Documents
from scirocco_latent.lda.model import TopicModel
from scirocco_latent.lda.settings import TopicSettings
from scirocco_latent.lda.texts import as_numbers, column_of, open_corpus

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = np.ndarray

_WATCHED_WORDS = 5
"""Words of each topic that are compared between chains, in addition to its share."""
_FOLD_DRAWS = 10
"""Draws that results about documents are averaged over."""
_FEW_EFFECTIVE = 8
"""Independent draws below which intervals say little."""
_MORE_DRAWS = "Fit longer, with more draws (num_samples)"


class TopWords(NamedTuple):
    """The most probable words of each topic, and the draws of their weights."""

    words: Array
    """Word ids, (topics, n), most probable first."""
    draws: Array
    """(chain, draw, topics, n), with the topics of the chains matched."""


class TopicResults(TopicModel):
    """Results computed from the draws (chain, draw, topic, word), in memory or on disk."""

    seed: int
    num_threads: int | None
    topic_names_: tuple[str, ...] = ()
    _sklearn_output_config: Mapping[str, str] = {}
    alpha_: Array
    beta_: float
    shares_: Array | None
    """Posterior mean of the shares of the topics in the tokens."""
    _fitted: TopicSettings

    def _results(self, run: Run, told: dict[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
        draws = super()._results(run, told, arrays)
        self._fitted = TopicSettings.from_json(run.configuration, self.num_threads)
        self.topic_names_ = tuple(told["topic_names"])
        self.alpha_, self.beta_ = self._fitted.alpha, self._fitted.beta
        self.shares_ = None  # of topics that another model made
        if "shares" in run.stats:
            self.shares_ = np.asarray(self._in_order(run.stats["shares"])).mean(axis=(0, 1))
        if "alpha" in run.stats:
            self.alpha_ = np.asarray(self._in_order(run.stats["alpha"])).mean(axis=(0, 1))
        if "beta" in run.stats:
            self.beta_ = float(np.mean(run.stats["beta"]))
        return draws

    def _watched(self) -> dict[str, Array]:
        """Shares of the topics in the tokens, weights of their first words, and α and β if they are drawn."""
        stats = self.run_.stats
        weights = self.top_draws(_WATCHED_WORDS).draws
        of_topics = [name for name in stats if name in ("shares", "alpha")]
        found: dict[str, Array] = {name: np.asarray(self._in_order(stats[name])) for name in of_topics}
        found["words"] = weights.reshape(*weights.shape[:2], -1)
        return found | ({"beta": np.asarray(stats["beta"])} if "beta" in stats else {})

    def _coordinates(self) -> dict[str, Sequence[Any]]:
        words = [f"{k}: {self._words[w]}" for k, row in enumerate(self._top(_WATCHED_WORDS)) for w in row]
        return {"words_dim_0": words}

    def _of_words(self, words: Array) -> Array:
        """Draws of ω of some words of each topic: `words` is (topics, n), the result (chain, draw, topics, n)."""
        out = np.empty((self._num_draws, *words.shape), np.float32)
        for number in range(self._num_draws):
            out[number] = np.take_along_axis(self._draw(number), words, axis=1)
        return self._by_chain(out)

    # -- topics --------------------------------------------------------------------------------------------------------

    def topics(self, draws: bool = False) -> Array:
        """The posterior mean (topics, words), or all draws (chain · draw, topics, words)."""
        self._check_fitted()
        if not draws:
            return self.components_
        return np.stack([self._draw(number) for number in range(self._num_draws)])

    def top_draws(self, num: int = 10) -> TopWords:
        """Draws of the weights of the `num` most probable words of each topic: for traces, intervals and R-hat."""
        words = self._top(num)
        return TopWords(words, self._of_words(words))

    def top_words(
        self, num: int = 10, *, interval: float | None = None, drawn: TopWords | None = None
    ) -> list[list[Any]]:
        """The most probable words of each topic; with `interval` as (word, mean, low, high).

        Pass `drawn` from `top_draws(num)` to avoid reading all draws again.
        """
        order = self._top(num) if drawn is None else drawn.words
        names = self._words
        if interval is None:
            return [[names[w] for w in row] for row in order]
        values = self._of_words(order) if drawn is None else drawn.draws
        low, high = self._ends(values, interval)
        means = np.take_along_axis(self.components_, order, axis=1)
        return [
            [(names[w], float(m), float(a), float(b)) for w, m, a, b in zip(*rows, strict=True)]
            for rows in zip(order, means, low, high, strict=True)
        ]

    def rhat(self) -> Array:
        """R-hat of each topic: the largest of its share and of its most probable words, as in `summary`.

        Near 1, the chains agree on the topic; above 1.1, they have found different topics or have not run long enough.
        """
        self._check_fitted()
        chains, draws = self.run_.num_chains, self.run_.num_draws
        if chains < 2 or draws < 4:
            raise InvalidValueError(
                f"R-hat requires 2 chains with 4 draws each; got {chains} and {draws}. Fit with num_chains=2."
            )
        watched, size = self._watched(), len(self.components_)
        values = [watched[name].reshape(chains, draws, size, -1) for name in ("shares", "words") if name in watched]
        found = rhat(np.concatenate(values, axis=-1))
        largest: Array = np.where(np.isnan(found), -np.inf, found).max(axis=1)
        return largest

    def coherence(self, X: Documents, *, measure: str = "npmi", num: int = 10) -> Array:
        """Coherence of the `num` top words of each topic in documents `X`; higher is better."""
        order = self._top(num)
        return _coherence(order, self._read(X), measure)

    def topic_distance(self, other: TopicResults | None = None, measure: str = "hellinger") -> Array:
        """Distances between the topics of this model, or to those of another."""
        self._check_fitted()
        return topic_distance(self.components_, self.components_ if other is None else other.topics(), measure)

    # -- documents -----------------------------------------------------------------------------------------------------

    def transform(
        self, X: Documents, *, interval: float | None = None, column: str | None = None, encoding: str = "utf-8"
    ) -> Any:
        """Proportions of topics in documents (documents, topics); with `interval` also bounds: (mean, low, high).

        Documents in any format of `fit`: texts are split as those of the fit, and words that it did not know are left
        out. A document without a known word has the proportions of the prior.
        """
        self._check_fitted()
        corpus = self._read(X, column, encoding, may_be_empty=True)
        if interval is not None:
            tails_of(interval)
        found = prediction.all_shares(corpus, self._some_draws(), self._fold_in(), interval)
        return self._as_output(found[0], X) if interval is None else found

    def representative_documents(
        self, X: Documents, num: int = 3, *, least_tokens: int = 10, column: str | None = None, encoding: str = "utf-8"
    ) -> list[list[tuple[int, float]]]:
        """For each topic the `num` documents with the largest shares of it: (number of the document, share).

        Documents with fewer than `least_tokens` known tokens are left out, unless all have fewer.
        """
        from scirocco_latent.lda import describing

        self._check_fitted()
        _checks.positive_int(num, "num")
        corpus = self._read(X, column, encoding)
        (shares,) = prediction.all_shares(corpus, self._some_draws(), self._fold_in())
        return describing.representative(shares, document_lengths(corpus), num, least_tokens)

    def plot_topics(self, num: int = 8, *, topics: Sequence[int] | None = None, interval: float = 0.9) -> Figure:
        """A matplotlib figure: the `num` most probable words of each topic, with central intervals.

        `topics` are numbers of topics; by default the first twelve. Save it with `figure.savefig("topics.pdf")`.
        """
        from scirocco_latent.lda import plotting

        return plotting.topics(self, num, topics, interval)

    def shares_by(
        self,
        X: Documents,
        groups: str | ArrayLike,
        *,
        interval: float = 0.9,
        column: str | None = None,
        encoding: str = "utf-8",
    ) -> Any:
        """Mean shares of the topics in the documents of each group (a source, a year, ...), with central intervals.

        `groups` has one value per document, or is the name of a column of `X`, a data frame or the path of a table. The
        intervals are about these documents, and include the uncertainty of their topics. The result has `groups`,
        `num_documents`, `mean`, `low` and `high`, and `to_frame()`.
        """
        from scirocco_latent.lda import describing

        self._check_fitted()
        tails_of(interval)
        corpus = self._read(X, column, encoding, may_be_empty=True)
        if isinstance(groups, str):
            groups = as_numbers(column_of(X, groups, encoding))
        return describing.shares_by(corpus, groups, self._some_draws(), self._fold_in(), interval)

    def labels(self, num: int = 3) -> list[str]:
        """A short name for each topic: its `num` most probable words, after the name of its seed words or label."""
        words = [", ".join(map(str, words)) for words in self.top_words(num)]
        named = [f"{name}: {words[k]}" for k, name in enumerate(self.topic_names_)]
        return [*named, *words[len(named) :]]

    def set_output(self, *, transform: str | None = None) -> Any:
        """Set the type of the result of `transform`: "default" (an array), "pandas" or "polars" (a data frame)."""
        if transform is not None:
            _checks.choice(transform, "transform", ("default", "pandas", "polars"))
            self._sklearn_output_config = {"transform": transform}
        return self

    def _as_output(self, shares: Array, X: object) -> Any:
        """Shares as an array, or as the data frame that `set_output` asks for, with the index of X."""
        kind = self._sklearn_output_config.get("transform", "default")
        if kind == "default":
            return shares
        names = list(self.get_feature_names_out())
        if kind == "polars":
            return require("polars", 'set_output(transform="polars")').DataFrame(shares, schema=names)
        pandas = require("pandas", 'set_output(transform="pandas")')
        index = X.index if isinstance(X, (pandas.DataFrame, pandas.Series)) else None
        return pandas.DataFrame(shares, columns=names, index=index)

    def get_feature_names_out(self, input_features: object = None) -> Array:
        """Names of the columns of `transform`: "topic0", "topic1", ..."""
        self._check_fitted()
        return np.array([f"topic{number}" for number in range(len(self.components_))], object)

    def perplexity(self, X: Documents, X_hidden: Documents | None = None) -> float:
        """exp(-mean log probability) of hidden words, given the others of their documents (document completion).

        Every tenth token of `X` is hidden, unless `X_hidden` has the hidden words of the same documents. The
        probability of a word is averaged over posterior draws. Lower is better. It is not a variational bound.
        """
        self._check_fitted()
        rows = all_rows(self._read(X))
        if X_hidden is None:
            seen, hidden = prediction.split(rows)
        else:
            seen, hidden = rows, all_rows(self._read(X_hidden))
        return prediction.perplexity(seen, hidden, self._some_draws(), self._fold_in())

    def score(self, X: Documents, y: object = None) -> float:
        """Mean log probability of hidden words: -log perplexity."""
        return -float(np.log(self.perplexity(X)))

    def to_pyldavis(self, X: Documents) -> dict[str, Any]:
        """The arguments of `pyLDAvis.prepare` for documents `X`."""
        self._check_fitted()
        corpus = self._read(X)
        _, words, counts = all_rows(corpus)
        frequency = np.zeros(corpus.vocabulary_size, np.int64)
        np.add.at(frequency, words, counts)
        names = self.vocabulary_ or tuple(map(str, range(self.n_features_in_)))
        return to_pyldavis(self.components_, self.transform(X), document_lengths(corpus), names, frequency)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _ends(self, values: Array, interval: float) -> tuple[Array, Array]:
        """Central intervals of values (chain, draw, ...), wider if the draws depend on each other."""
        worth = effective_draws(values)
        if worth < _FEW_EFFECTIVE < values.shape[0] * values.shape[1]:
            _checks.warn(
                f"the draws of this {type(self).__name__} are worth only {worth:.0f} independent ones: the intervals "
                "are unreliable. Fit it longer (num_epochs)."
            )
        return central(values, interval, axis=(0, 1), effective=worth, advice=_MORE_DRAWS)

    def _top(self, num: int) -> Array:
        self._check_fitted()
        _checks.positive_int(num, "num")
        return np.stack([largest(row, num) for row in self.components_])

    def _some_draws(self) -> Iterator[Array]:
        """At most ten draws, evenly spread; yielded one by one because each may be large."""
        count = self._num_draws
        for number in np.unique(np.linspace(0, count - 1, min(_FOLD_DRAWS, count)).astype(int)):
            yield self._draw(int(number))

    def _fold_in(self) -> prediction.FoldIn:
        return fold_in(self.alpha_, self._fitted.num_threads, self.seed)

    def _read(
        self, X: Documents, column: str | None = None, encoding: str = "utf-8", may_be_empty: bool = False
    ) -> Corpus:
        """Documents over the words of the model."""
        self._check_columns(X)
        return open_corpus(
            X, self._known(), column=column, encoding=encoding, tokeniser=self._split_by(), may_be_empty=may_be_empty
        ).corpus

    def _check_columns(self, X: Any) -> None:
        """Raise an error if a matrix has other columns than the words of the fit, which have no names."""
        shape: tuple[int, ...] = X.shape if is_array(X) else ()
        if self.vocabulary_ is None and len(shape) == 2 and shape[1] != self.n_features_in_:
            raise InvalidValueError(
                f"X has {shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features as "
                "input: its columns must be the words of the fit, in the same order."
            )

    def _split_by(self) -> Any:
        """How texts are split: as those of the fit, or by the function that was set after loading."""
        fitted = self.tokeniser_
        if fitted is None:
            return self.tokeniser
        return replace(fitted, function=self.tokeniser) if callable(self.tokeniser) else fitted

    def _known(self) -> Any:
        return self.vocabulary_ or self.n_features_in_


def largest(values: Array, num: int) -> Array:
    """Indices of the `num` largest values, largest first, ties in their order.

    The same as with a stable sort, but without sorting the vocabulary.
    """
    if num >= len(values):
        return np.argsort(-values, kind="stable")
    least = np.partition(values, len(values) - num)[len(values) - num]
    above = np.flatnonzero(values > least)
    equal = np.flatnonzero(values == least)[: num - len(above)]
    chosen = np.sort(np.concatenate([above, equal]))
    return chosen[np.argsort(-values[chosen], kind="stable")]


def fold_in(alpha: Array, num_threads: int | None, seed: int) -> prediction.FoldIn:
    """Settings of the inference of topics in new documents."""
    return prediction.FoldIn(alpha, 20, 5, num_threads, int(seed))


def all_rows(corpus: Corpus) -> Any:
    """All documents of a corpus."""
    return corpus.take_csr(np.arange(corpus.num_documents))
