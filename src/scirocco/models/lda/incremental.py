"""Documents that arrive after a fit: `partial_fit`, and models from which others continue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from scirocco import _checks
from scirocco.models.lda import chain as chains
from scirocco.models.lda import continuing, prediction
from scirocco.models.lda.chain import TopicChain
from scirocco.models.lda.corpus import Corpus, Documents
from scirocco.models.lda.guiding import Guide
from scirocco.models.lda.readers import Vocabulary
from scirocco.models.lda.results import Results, all_rows, fold_in
from scirocco.models.lda.settings import EXTENSIBLE, Settings, Size
from scirocco.models.lda.streams import DocumentStream
from scirocco.models.lda.texts import is_text, open_corpus
from scirocco.models.lda.tokeniser import Tokeniser
from scirocco.run.progress import Callback, Report
from scirocco.run.result import Run

_MANY = 1 << 40


class Incremental(Results):
    """A topic model that takes in more documents, and from which other models continue."""

    num_chains: int
    sampler: str
    run_: Run | None
    _online: list[TopicChain] | None = None
    """Chains of `partial_fit` without memory."""
    _reached: continuing.Reached | None = None
    """Where the chains ended."""

    if TYPE_CHECKING:

        def _settings(self, size: Size, **changes: Any) -> Settings: ...
        def _kept_draws(self, num_words: int) -> int: ...

    def partial_fit(
        self,
        X: Documents,
        y: object = None,
        *,
        vocabulary: Vocabulary = None,
        column: str | None = None,
        encoding: str = "utf-8",
        total_documents: int | None = None,
    ) -> Self:
        """Update the model with more documents.

        After `fit` with memory, or `load` of such a model: each draw takes in the documents, at the cost of a few
        sweeps over them, and new words are added to the vocabulary unless `vocabulary` is given. The topics of the
        earlier documents are not drawn again, which matters if many documents are new: `fit(all_documents,
        continue_from=model)` draws from the posterior given all of them.

        Otherwise the chains have no memory: documents are used once, in batches of at most `batch_size`, as a part of a
        corpus of `total_documents`, and after each call the current topics are added to the last `num_samples` draws.
        A model that was fitted or loaded continues where it stopped. New words are added with samplers "scir" (the
        default) and "scir_cv", and left out with the others.
        """
        if "n_features_in_" in vars(self) and vocabulary is None:
            self._check_columns(X)
        if self._reached is not None and self._reached.remembers:
            return self._take_in(X, vocabulary, column, encoding)
        corpus = self._batch(X, vocabulary, column, encoding)
        if self._online is None:
            self._begin_online(corpus)
        online = self._online
        assert online is not None
        self._seen += corpus.num_documents
        total = max(self._seen, total_documents or 0)
        kept = _checks.positive_int(self._kept_draws(corpus.vocabulary_size), "num_samples")
        for chain, latest in zip(online, self._latest, strict=True):
            chain.extend(corpus.vocabulary_size)
            chain.take_over(corpus, total)
            chain.advance(-(-corpus.num_documents // chain.settings.batch_size))
            latest[:] = [continuing.with_more_words(draw, corpus.vocabulary_size) for draw in latest]
            latest.append(chain.draw())
            del latest[:-kept]
        self.run_ = None
        self._draws, self._stats = np.stack([np.stack(latest) for latest in self._latest]), {}
        self._settle(corpus.vocabulary, corpus.vocabulary_size, online[0].settings)
        self._reached = chains.reached_online(online, self._seen, self.seed)
        return self

    def _batch(self, X: Documents, vocabulary: Vocabulary, column: str | None, encoding: str) -> Corpus:
        """Documents for chains without memory."""
        fitted = "n_features_in_" in vars(self)
        if fitted and (self.sampler == "auto" or self.sampler in EXTENSIBLE):
            return open_corpus(self._documents(X, vocabulary, self, column, encoding)).corpus
        corpus = open_corpus(
            X,
            self._known() if fitted else vocabulary,
            column=column,
            encoding=encoding,
            tokeniser=self._split_by() if fitted else self.tokeniser,
        ).corpus
        if not fitted:
            self.tokeniser_ = corpus.tokeniser
        return corpus

    def _begin_online(self, corpus: Corpus) -> None:
        """Chains without memory: new ones, or where those of a fit ended."""
        settings = self._settings(Size(_MANY, corpus.vocabulary_size), memory="none")
        reached = self._reached
        number = self.num_chains if reached is None else int(reached.configuration["num_chains"])
        self._online = [TopicChain(corpus, settings, self.seed, c) for c in range(number)]
        self._latest: list[list[np.ndarray]] = [[] for _ in self._online]
        self._seen = 0
        if reached is not None:
            for chain, state in zip(self._online, reached.states(), strict=True):
                chain.continue_from(state)
            self._latest = [[np.asarray(draw) for draw in part] for part in self._draws]
            self._seen = int(reached.configuration["num_rows"])

    def _take_in(self, X: Documents, vocabulary: Vocabulary, column: str | None, encoding: str) -> Self:
        """Update each draw with the documents (`continuing.updated`)."""
        assert self._reached is not None
        corpus = self._documents(X, vocabulary, self, column, encoding)
        assert isinstance(corpus, Corpus)
        settings = self._fitted
        self._draws, reached = continuing.take_in(
            self._reached, self._draws, self._stats, corpus, settings, self.seed
        )
        self.run_ = None
        self._settle(corpus.vocabulary, corpus.vocabulary_size, settings)
        self._reached = reached
        return self

    def _documents(
        self,
        X: Documents | DocumentStream,
        vocabulary: Vocabulary,
        former: Incremental | None,
        column: str | None,
        encoding: str,
    ) -> Corpus | DocumentStream:
        """The documents to fit; with the words of an earlier model first, if there is one."""
        if isinstance(X, DocumentStream):
            return X
        if former is not None:
            former._check_fitted()
        if former is None or is_text(X, column, encoding):
            corpus = open_corpus(
                X,
                vocabulary,
                column=column,
                encoding=encoding,
                tokeniser=self.tokeniser if former is None else former._split_by(),
                known=() if former is None else former.vocabulary_ or (),
            ).corpus
            if former is None:
                return corpus
            X, vocabulary = corpus, None
        return continuing.with_new_words(X, vocabulary, former.vocabulary_, former.n_features_in_)

    def _start(
        self,
        corpus: Corpus | DocumentStream,
        settings: Settings,
        num_chains: int,
        seed: int,
        guide: Guide | None,
    ) -> continuing.Start:
        """Where chains that continue from this model start."""
        self._check_fitted()
        assert self._reached is not None
        return continuing.start(
            self._reached, self._draws, self._stats, corpus, settings, num_chains, seed, guide
        )

    def _watcher(
        self,
        validation: Documents,
        corpus: Corpus | DocumentStream,
        settings: Settings,
        tokeniser: Tokeniser | None,
    ) -> Callback:
        """A callback that computes the perplexity of documents while the chains run."""
        known = corpus.vocabulary or corpus.vocabulary_size
        seen, hidden = prediction.split(all_rows(open_corpus(validation, known, tokeniser=tokeniser).corpus))
        prediction.check_hidden(hidden)
        how = fold_in(settings.alpha, settings.num_threads, self.seed)

        def watch(report: Report) -> dict[str, float] | None:
            if report.draws is None or not report.draws["topics"].shape[1]:
                return None
            return {"perplexity": prediction.perplexity(seen, hidden, report.draws["topics"][0, -1:], how)}

        return watch
