"""Documents that arrive after a fit: `partial_fit`, and models from which others continue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from scirocco import _checks
from scirocco._version import __version__
from scirocco.models._core.chain import HostChains, Spec, states_of
from scirocco.run import encoding
from scirocco.run.progress import Callback, Report
from scirocco.run.records import OWN_LOOP
from scirocco.run.result import Run
from scirocco.store import open_stored
from scirocco_latent.lda import continuing, prediction
from scirocco_latent.lda.chain import TopicChain
from scirocco_latent.lda.corpus import Corpus, Documents
from scirocco_latent.lda.guiding import Guide
from scirocco_latent.lda.model import usual_draws
from scirocco_latent.lda.readers import Vocabulary
from scirocco_latent.lda.results import TopicResults, all_rows, fold_in
from scirocco_latent.lda.settings import EXTENSIBLE, Size, TopicSettings
from scirocco_latent.lda.streams import DocumentStream
from scirocco_latent.lda.texts import is_text, open_corpus
from scirocco_latent.lda.tokeniser import Tokeniser
from scirocco_latent.lda.topics import Arrays

Array = np.ndarray

_MANY = 1 << 40
"""Documents of a corpus of which only parts are seen: no batch is limited by it."""


class Incremental(TopicResults):
    """A topic model that takes in more documents, and from which other models continue."""

    sampler: str
    _online: list[TopicChain] | None = None
    """Chains of `partial_fit` without memory."""

    if TYPE_CHECKING:
        num_topics: int

        def _settings(self, size: Size, **changes: Any) -> TopicSettings: ...

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
        if "run_" in vars(self) and self.run_.configuration["memory"] == "documents":
            return self._take_in(X, vocabulary, column, encoding)
        corpus = self._batch(X, vocabulary, column, encoding)
        if self._online is None:
            self._begin_online(corpus)
        online = self._online
        assert online is not None
        self._seen += corpus.num_documents
        total = max(self._seen, total_documents or 0)
        kept = usual_draws(self.num_topics * corpus.vocabulary_size)
        kept = kept if self.num_samples is None else _checks.positive_int(self.num_samples, "num_samples")
        for chain, latest in zip(online, self._latest, strict=True):
            chain.extend(corpus.vocabulary_size)
            chain.take_over(corpus, total)
            chain.advance(-(-corpus.num_documents // chain.settings.batch_size))
            latest[:] = [(continuing.with_more_words(draw, corpus.vocabulary_size), shares) for draw, shares in latest]
            drawn, stats = chain.kept()
            latest.append((drawn["topics"], stats["shares"]))
            del latest[:-kept]
        topics, shares = (
            np.stack([np.stack([each[part] for each in latest]) for latest in self._latest]) for part in (0, 1)
        )
        settings = online[0].settings.as_json()
        states = HostChains(online, Spec({}, {})).save()
        self._update(corpus, topics, {"shares": shares}, self._seen, settings, states)
        return self

    def _update(
        self,
        corpus: Corpus,
        topics: Array,
        stats: dict[str, Array],
        num_documents: int,
        settings: dict[str, Any],
        arrays: Arrays,
    ) -> None:
        """Settle draws that have taken in documents, with the states of their chains."""
        configuration = {
            "kind": OWN_LOOP,
            "model": type(self).__name__,
            **settings,
            "num_rows": num_documents,
            "num_words": corpus.vocabulary_size,
            "data": None,
            "dimension": int(np.prod(topics.shape[2:])),
            "num_samples": topics.shape[1],
            "num_burnin": 0,
            "thin": 1,
            "num_chains": len(topics),
            "seed": self.seed,
            "versions": {"scirocco": __version__, "numpy": np.__version__},
        }
        said = {"chosen": "fitted incrementally, by partial_fit"}
        run = Run({"topics": topics}, None, stats, configuration, said, {}, "complete", [])
        names, tokeniser = vars(self).get("topic_names_", ()), vars(self).get("tokeniser_")
        split = {} if tokeniser is None else {"tokeniser": tokeniser.as_json()}
        told = self._words_of(corpus) | split | {"topic_names": list(names)}
        self._settle(run, told, arrays)
        self.tokeniser_ = tokeniser

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
        fitted = "run_" in vars(self)
        number = self.run_.num_chains if fitted else _checks.positive_int(self.num_chains, "num_chains")
        self._online = [TopicChain(corpus, settings, self.seed, chain) for chain in range(number)]
        self._latest: list[list[tuple[Array, Array]]] = [[] for _ in self._online]
        self._seen = 0
        if fitted:
            for chain, state in zip(self._online, self._states(), strict=True):
                chain.continue_from(state)
            draws, shares = self.run_.draws["topics"], np.asarray(self.run_.stats["shares"])
            self._latest = [
                list(zip(map(np.asarray, part), each, strict=True)) for part, each in zip(draws, shares, strict=True)
            ]
            self._seen = int(self.run_.configuration["num_rows"])

    def _states(self) -> list[Arrays]:
        """The states in which the chains ended; after an update with documents the sizes of the topics of all draws."""
        return states_of(dict(self._written_arrays()), self.run_.num_chains)

    def _written_arrays(self) -> Mapping[str, Array]:
        if self._arrays or self.run_.path is None:
            return self._arrays
        return encoding.chains_in(open_stored(self.run_.path).read_state())

    def _take_in(self, X: Documents, vocabulary: Vocabulary, column: str | None, encoding: str) -> Self:
        """Update each draw with the documents (`continuing.updated`)."""
        corpus, run = self._documents(X, vocabulary, self, column, encoding), self.run_
        assert isinstance(corpus, Corpus)
        topics, sizes = continuing.take_in(run, self._states(), corpus, self._fitted, self.seed)
        stats = {name: np.asarray(values) for name, values in run.stats.items() if name in ("alpha", "beta")}
        stats["shares"] = sizes / sizes.sum(axis=-1, keepdims=True)
        seen = int(run.configuration["num_rows"]) + corpus.num_documents
        self._update(corpus, topics, stats, seen, dict(run.configuration), {"sizes": sizes})
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
        self, corpus: Corpus | DocumentStream, settings: TopicSettings, num_chains: int, seed: int, guide: Guide | None
    ) -> continuing.TopicStart:
        """Where chains that continue from this model start."""
        self._check_fitted()
        return continuing.start(self.run_, self._states(), corpus, settings, num_chains, seed, guide)

    def _watcher(
        self,
        validation: Documents,
        corpus: Corpus | DocumentStream,
        settings: TopicSettings,
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
