"""What topic models with Gaussian parts share: reading documents, running chains, files, topics as an `LDA`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco.data import fingerprints
from scirocco.errors import InvalidTypeError
from scirocco.models import fits
from scirocco.models.fits.conventions import not_fitted
from scirocco.models.fits.mixing import warn_if_unmixed
from scirocco.models.lda.alignment import align
from scirocco.models.lda.chain import usual_draws
from scirocco.models.lda.corpus import Corpus, Documents
from scirocco.models.lda.estimator import LDA
from scirocco.models.lda.readers import Vocabulary
from scirocco.models.lda.settings import Settings, Size
from scirocco.models.lda.streams import DocumentStream
from scirocco.models.lda.texts import open_corpus
from scirocco.models.lda.tokeniser import Tokeniser
from scirocco.run.encoding import decode, encode
from scirocco.run.loading import load
from scirocco.run.progress import Callback, as_callbacks
from scirocco.run.result import Run

START_PASSES = 40
"""Passes of the LDA whose topics are the start of a chain."""
_SECONDS, _LEAST_SWEEPS, _MOST_SWEEPS = 40.0, 200, 1_000
_ADVICE = "Run them longer (num_steps), or fit fewer topics."


class Plan(NamedTuple):
    """The chains of a model, for `fits.Fit`."""

    known: dict[str, Any]
    """Settings that define the chains, as plain JSON."""
    draws: dict[str, tuple[int, ...]]
    stats: dict[str, tuple[int, ...]]
    make: Callable[[int], fits.Chain]
    """Makes the chain with a number."""
    seconds: float
    """About the time of a step on one core."""
    words: str
    """What was chosen."""
    given: np.ndarray
    """What is known about the documents in addition to their words, for the fingerprint."""


class GaussianTopics(fits.Conventions):
    """A topic model whose chains draw Gaussian vectors given counts (`_paths`)."""

    _kind: ClassVar[fits.Kind]
    _takes_counts = True
    num_topics: int
    alpha: Any = None
    num_samples: int | None
    num_burnin: float
    thin: int | None
    num_chains: int
    seed: int
    num_threads: int | None
    tokeniser: Tokeniser | Callable[[str], Iterable[str]] | str | None
    run_: Run
    vocabulary_: tuple[str, ...] | None
    tokeniser_: Tokeniser | None
    n_features_in_: int
    _told: dict[str, Any]

    def _open(self, X: Documents, vocabulary: Vocabulary, column: str | None, encoding: str) -> Corpus:
        if isinstance(X, DocumentStream):
            raise InvalidTypeError(
                f"{type(self).__name__} reads documents many times: a stream is not possible."
            )
        opened = open_corpus(X, vocabulary, column=column, encoding=encoding, tokeniser=self.tokeniser)
        return opened.corpus

    def _start_settings(self, corpus: Corpus, **options: Any) -> Settings:
        """Settings of the LDA whose topics are the start of a chain; a step is a pass."""
        params = {"spare_topics": 0, "batch_size": corpus.num_documents, "device": "cpu", **options}
        model = LDA(self.num_topics, num_threads=self.num_threads, **params)
        return model._settings(Size(corpus.num_documents, corpus.vocabulary_size, corpus.num_tokens))

    def _run(
        self, corpus: Corpus, plan: Plan, lengths: tuple[Any, Any, Any], told: dict[str, Any], **how: Any
    ) -> Self:
        """Run the chains; `told` is what results need in addition to the draws, as plain JSON."""
        numbers = sum(int(np.prod(shape)) for shape in plan.draws.values())
        kept = usual_draws(1, numbers) if self.num_samples is None else self.num_samples
        wanted = fits.check_draws(kept, self.num_burnin, self.thin)
        sweeps = min(max(round(_SECONDS / plan.seconds), _LEAST_SWEEPS), _MOST_SWEEPS)
        length = fits.check_length(
            *lengths,
            num_rows=1,
            batch_size=1,
            default_epochs=sweeps,
            planned_steps=fits.planned_steps(*wanted),
        )
        lasts = f"{length.max_seconds:g} s" if length.num_steps is None else f"{length.num_steps:,} passes"
        words = f"{plan.words}; {lasts}, at most {wanted[0]} draws per chain."
        num_chains = _checks.positive_int(self.num_chains, "num_chains")
        fit = fits.Fit(
            self._kind,
            {"sampler": "gibbs", **plan.known, "num_words": corpus.vocabulary_size},
            lambda: fingerprints.shortened(corpus.fingerprint().encode() + plan.given.tobytes()),
            corpus.num_documents,
            fits.Spec.of(plan.draws, plan.stats),
            lambda: [plan.make(number) for number in range(num_chains)],
            num_chains,
            wanted[0],
            _checks.positive_int(self.seed, "seed", minimum=0),
            length,
            *wanted[1:],
            chosen=f"{type(self).__name__}: {words}",
        )
        if how["store"] is None:
            fit.warn_if_large("Pass a `store`, or fewer draws (num_samples).")
        params = {name: encode(value) for name, value in self.get_params().items() if name != "tokeniser"}
        split = None if corpus.tokeniser is None else corpus.tokeniser.as_json()
        extra = {**told, "params": params, "tokeniser": split, "vocabulary": corpus.vocabulary}
        callbacks = as_callbacks(how.pop("callbacks"))
        run = fits.run_fit(fit, callbacks=callbacks, extra=extra, **how)
        if run.status == "interrupted" and not run.num_draws:
            raise KeyboardInterrupt
        self._settle(dataclasses.replace(run, preparation={"chosen": words}), extra)
        self.tokeniser_ = corpus.tokeniser
        if run.num_draws:
            warn_if_unmixed(self._watched(), self._kind.words.removeprefix("a "), _ADVICE)
        return self

    def _settle(self, run: Run, told: dict[str, Any]) -> None:
        """Set the results from the draws of a run."""
        self.run_, self._told = run, told
        self.vocabulary_ = None if told["vocabulary"] is None else tuple(told["vocabulary"])
        self.n_features_in_ = int(run.draws["topics"].shape[-1]) if run.draws is not None else 0
        self.tokeniser_ = None if told["tokeniser"] is None else Tokeniser.from_json(told["tokeniser"])
        self.__dict__.pop("_orders", None)
        if run.draws is None or not run.num_draws:
            return
        means = [
            np.mean([self._without_time(np.asarray(draw)) for draw in part], axis=0)
            for part in (run.draws["topics"][c] for c in range(run.num_chains))
        ]
        own = np.arange(means[0].shape[0])[None]
        self._orders = np.concatenate([own, align(means[0], np.stack(means[1:]))]) if len(means) > 1 else own

    def _without_time(self, topics: np.ndarray) -> np.ndarray:
        """A draw of the topics as (topics, words), to match those of several chains."""
        return topics

    def _watched(self) -> dict[str, np.ndarray]:
        """Draws whose chains are compared, (chain, draw, ...)."""
        raise NotImplementedError

    def _pooled(self, name: str, axis: int, take: Callable[[Any], Any] = lambda draw: draw) -> np.ndarray:
        """Draws of all chains together, with the topics (an axis of a draw) in the order of the first chain."""
        self._check_fitted()
        draws = self.run_.draws[name]
        return np.stack(
            [
                take(np.take(np.asarray(draws[chain, number]), order, axis))
                for chain, order in enumerate(self._orders)
                for number in range(draws.shape[1])
            ]
        )

    def _as_lda(self, topics: np.ndarray) -> LDA:
        """An `LDA` with these draws (draw, topic, word): top words, intervals, documents, scores."""
        options = {} if self.alpha is None else {"alpha": self.alpha}
        model = LDA(topics.shape[1], seed=self.seed, num_threads=self.num_threads, **options)
        model.tokeniser, model.tokeniser_, model.run_ = self.tokeniser, self.tokeniser_, None
        model._keep({"topics": topics[None]}, {})
        size = Size(1, topics.shape[2])
        model._settle(self.vocabulary_, topics.shape[2], model._settings(size, growth=None, device="cpu"))
        return model

    def _check_fitted(self) -> None:
        if "_orders" not in vars(self):
            raise not_fitted(f"this {type(self).__name__} has not been fitted: call fit(...) first.")

    # -- on disk ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the fitted model: draws as a Zarr group, settings and words; no pickles and no code."""
        self._check_fitted()
        draws = {name: np.asarray(values) for name, values in (self.run_.draws or {}).items()}
        stats = {name: np.asarray(values) for name, values in self.run_.stats.items()}
        fits.save(self._kind, draws, stats, {"sampler": "gibbs"}, self._told, path, overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a model from `save`, or from the `store` of a fit, finished or not; draws are read when needed."""
        extra = fits.load(cls._kind, path).extra
        model = cls(**{name: decode(value, name) for name, value in extra["params"].items()})
        model._settle(load(path), extra)
        return model

    def to_arviz(self) -> Any:
        """Convert the draws to ArviZ, with the topics of all chains in the order of the first."""
        self._check_fitted()
        shape = (len(self._orders), -1)
        draws = {
            name: pooled.reshape(*shape, *pooled.shape[1:])
            for name, pooled in ((name, self._pooled(name, axis)) for name, axis in self._axes.items())
        }
        return fits.to_arviz(self._kind, self.run_, draws, dict(self.run_.stats))

    _axes: ClassVar[dict[str, int]]
    """The axis of the topics in each draw, by name."""


Callbacks = Sequence[Callback]


def kernels() -> Any:
    """Import the compiled kernels when they are first needed."""
    require("numba", "topic models with Gaussian parts")
    from scirocco.models.lda import _paths

    return _paths
