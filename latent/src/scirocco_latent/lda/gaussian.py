"""What topic models with Gaussian parts share: reading documents, chains and their start, topics as an `LDA`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np

from scirocco._extras import later
from scirocco.data import fingerprints
from scirocco.errors import InvalidTypeError
from scirocco.models._core.chain import Chain, Spec
from scirocco.models._core.program import FitOptions, OwnChains
from scirocco.run.records import OWN_LOOP
from scirocco.run.result import Run
from scirocco_latent.lda.chain import TopicChain
from scirocco_latent.lda.corpus import Corpus, Documents
from scirocco_latent.lda.document_batches import growth_steps
from scirocco_latent.lda.estimator import LDA
from scirocco_latent.lda.model import TopicModel, usual_draws
from scirocco_latent.lda.readers import Vocabulary
from scirocco_latent.lda.settings import Size, TopicSettings
from scirocco_latent.lda.streams import DocumentStream
from scirocco_latent.lda.texts import open_corpus
from scirocco_latent.lda.tokeniser import Tokeniser
from scirocco_latent.lda.topics import Arrays

_START_PASSES = 40
"""Passes of the LDA whose topics are the start of a chain."""
_SECONDS, _LEAST_SWEEPS, _MOST_SWEEPS = 40.0, 200, 1_000
"""Default length: about this time on one core, within limits of sweeps."""
kernels = later("scirocco_latent.lda._paths")
"""The compiled kernels."""


class GaussianChain(Chain):
    """A chain that starts from the topics of an LDA; the random numbers of its first step are those of number 1."""

    PURPOSE_BITS = 3

    def __init__(self, corpus: Corpus, settings: TopicSettings, seed: int, number: int):
        super().__init__(seed, number)
        self.corpus, self.settings, self.threads = corpus, settings, settings.num_threads
        self._of_fit = seed, number

    def start(self) -> TopicChain:
        """A short chain of the model without Gaussian parts, which has found topics."""
        settings = self.settings
        chain = TopicChain(self.corpus, settings, *self._of_fit)
        chain.advance(growth_steps(settings.growth, settings.batch_size) + _START_PASSES)
        return chain

    def prepare(self) -> None:
        """Find the start, and compile, by a step that is taken back."""
        super().prepare()
        before = {name: np.array(part) for name, part in self.state().items()}
        self.advance(1)
        self.kept()
        self.restore(before)

    def words(self, purpose: int) -> tuple[int, int]:
        """Seed words of the step that is made."""
        return self.seed, ((self.step + 1) << self.PURPOSE_BITS) + purpose

    def rng(self, purpose: int) -> np.random.Generator:
        """A generator of the step that is made."""
        return np.random.default_rng([self.seed, self.step + 1, purpose])


class GaussianTopics(TopicModel):
    """A topic model whose chains draw Gaussian vectors given counts (`_paths`)."""

    num_topics: int
    alpha: Any = None
    num_threads: int | None
    tokeniser: Tokeniser | Callable[[str], Iterable[str]] | str | None

    def _open(self, X: Documents, vocabulary: Vocabulary, column: str | None, encoding: str) -> Corpus:
        if isinstance(X, DocumentStream):
            raise InvalidTypeError(f"{type(self).__name__} reads documents many times: a stream is not possible.")
        opened = open_corpus(X, vocabulary, column=column, encoding=encoding, tokeniser=self.tokeniser)
        return opened.corpus

    def _start_settings(self, corpus: Corpus, **options: Any) -> TopicSettings:
        """Settings of the LDA whose topics are the start of a chain; a step is a pass."""
        params = {"spare_topics": 0, "batch_size": corpus.num_documents, "device": "cpu", **options}
        model = LDA(self.num_topics, num_threads=self.num_threads, **params)
        return model._settings(Size(corpus.num_documents, corpus.vocabulary_size, corpus.num_tokens))

    def _program(
        self,
        corpus: Corpus,
        words: str,
        settings: dict[str, Any],
        spec: Spec,
        make: Callable[[int], GaussianChain],
        seconds: float,
        told: dict[str, Any] | None = None,
        more: Arrays | None = None,
    ) -> OwnChains:
        """The chains of a fit; a step takes about so many seconds on one core, and `more` is data that are no words."""
        others = b"".join(part.tobytes() for part in (more or {}).values())
        return OwnChains(
            words,
            {"sampler": "gibbs", **settings, "num_words": corpus.vocabulary_size},
            lambda: fingerprints.shortened(corpus.fingerprint().encode() + others),
            corpus.num_documents,
            spec,
            make,
            self._words_of(corpus) | (told or {}),
            default_epochs=min(max(round(_SECONDS / seconds), _LEAST_SWEEPS), _MOST_SWEEPS),
            capacity=1,
        )

    def _drawn(self, program: OwnChains, corpus: Corpus, options: FitOptions) -> Self:
        """The fitted model; by default with as many draws as are made and read in a small part of the time."""
        self._run(program, options, self._asked(options, num_samples=usual_draws(program.spec.dimension)))
        self.tokeniser_ = corpus.tokeniser
        return self

    def _pooled(self, name: str, take: Callable[[Any], Any] = lambda draw: draw) -> np.ndarray:
        """Draws of all chains together, or a part of each."""
        self._check_fitted()
        return np.stack([take(self._draw(number, name)) for number in range(self._num_draws)])

    def _as_lda(self, topics: np.ndarray) -> LDA:
        """An `LDA` with these draws (draw, topic, word): top words, intervals, documents, scores."""
        options = {} if self.alpha is None else {"alpha": self.alpha}
        model = LDA(topics.shape[1], seed=self.seed, num_threads=self.num_threads, **options)
        model.tokeniser = self.tokeniser
        settings = model._settings(Size(1, topics.shape[2]), growth=None, device="cpu")
        known = {"kind": OWN_LOOP, "model": "LDA"} | settings.as_json()
        run = Run({"topics": topics[None]}, None, {}, known, {}, {}, "complete", [])
        model._settle(run, self._noted | {"topic_names": []}, {})
        model.tokeniser_ = self.tokeniser_
        return model
