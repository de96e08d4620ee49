"""`sc.models.LDA`: topic models with a posterior."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.lda import fitting, prediction
from scirocco.models.lda.alignment import align, topic_distance
from scirocco.models.lda.chain import TopicChain, document_lengths
from scirocco.models.lda.coherence import coherence as _coherence
from scirocco.models.lda.corpus import Corpus, as_corpus
from scirocco.models.lda.pyldavis import to_pyldavis
from scirocco.models.lda.settings import Settings, preset, resolve
from scirocco.run.encoding import decode, encode
from scirocco.run.progress import Callback
from scirocco.run.result import Run

_FOLD_DRAWS = 10


class LDA:
    r"""Latent Dirichlet allocation: ω_k ~ Dir(β), η_d ~ Dir(α), z ~ η_d, w ~ ω_z; posterior draws of the topics ω.

    Follows scikit-learn's conventions (`fit`, `transform`, `components_`, `get_params`, pipelines), and keeps what
    point estimates throw away: draws of every topic, credible intervals for every word.

    With `memory="documents"` the topic of every token is remembered, and the topics are drawn given all of them, word
    by word as batches need them: an exact Gibbs sampler at the cost of a minibatch method. Without memory (documents
    that come in a stream) batches estimate the counts of the corpus, and SCIR, SCIR-CV or SGRLD follow them.

    Parameters
    ----------
    num_topics
        K.
    alpha
        Dirichlet concentration of topics in documents: a number, or one for each topic.
    beta
        Of words in topics.
    sampler
        "scir" (default), "scir_cv" or "sgrld".
    memory
        "documents", "none", or "auto": documents with SCIR, none with the others.
    batch_size
        Documents in a batch.
    local
        "gibbs" (default) or "cvb0" (deterministic, biased, fast to start; only without memory).
    sweeps, burn_in
        Gibbs sweeps over the documents of a batch, and how many of them are dropped. With memory the sweeps go on from
        the remembered topics, and none is dropped.
    first_sweeps
        With memory: sweeps over documents that are seen for the first time.
    step_size
        h, a number or a schedule such as `sc.schedules.polynomial(0.5, 10.0, 0.33)`; not used with memory.
    refresh_every, refresh_size
        SCIR-CV: steps between two references, and documents for each.
    num_draws
        Posterior draws kept in each chain.
    discard
        The share of a run that is burn-in.
    num_chains, seed, num_threads
        Independent chains; the same seed gives the same draws whatever `num_threads` is.

    Attributes
    ----------
    components_
        Posterior mean of the topics, (topics, words); rows sum to one.
    run_
        The run: `run_.draws["topics"]` has the axes (chain, draw, topic, word).
    vocabulary_
        The words, if they are known.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.poisson([4, 4, 0, 0], (60, 4)), rng.poisson([0, 0, 4, 4], (60, 4))])
    >>> lda = sc.models.LDA(2, beta=0.5, batch_size=40, seed=1).fit(X, num_epochs=20, progress=False)
    >>> lda.components_.shape, bool(np.allclose(lda.components_.sum(axis=1), 1))
    ((2, 4), True)
    """

    def __init__(
        self,
        num_topics: int = 100,
        *,
        alpha: Any = 0.1,
        beta: float = 0.05,
        sampler: str = "scir",
        memory: str = "auto",
        batch_size: int = 500,
        local: str = "gibbs",
        sweeps: int | None = None,
        burn_in: int | None = None,
        first_sweeps: int = 10,
        step_size: Any = None,
        refresh_every: int = 5,
        refresh_size: int = 1000,
        num_draws: int = 20,
        discard: float = 0.5,
        num_chains: int = 1,
        seed: int = 0,
        num_threads: int | None = None,
    ):
        self.num_topics, self.alpha, self.beta = num_topics, alpha, beta
        self.sampler, self.memory, self.batch_size, self.local = sampler, memory, batch_size, local
        self.sweeps, self.burn_in, self.first_sweeps = sweeps, burn_in, first_sweeps
        self.step_size, self.refresh_every, self.refresh_size = step_size, refresh_every, refresh_size
        self.num_draws, self.discard, self.num_chains = num_draws, discard, num_chains
        self.seed, self.num_threads = seed, num_threads

    # -- scikit-learn's conventions --------------------------------------------------------------------------------

    @classmethod
    def preset(cls, name: str, num_topics: int = 100, **changes: Any) -> LDA:
        """The settings of a paper: "patterson2013", "baker2018" or "barile2024"."""
        return cls(num_topics, **{**preset(name), **changes})

    @classmethod
    def _names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> LDA:
        """Change some of them."""
        for name, value in params.items():
            if name not in self._names():
                raise InvalidValueError(f"LDA has no parameter `{name}`. It has {', '.join(self._names())}.")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        shown = [f"{n}={v!r}" for n, v in self.get_params().items() if not _same(v, defaults[n])]
        return f"LDA({', '.join(shown)})"

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn's pipelines ask for."""
        from scirocco._extras import require

        utils = require("sklearn.utils", "a scikit-learn pipeline")
        tags = utils.Tags(
            estimator_type=None,
            target_tags=utils.TargetTags(required=False),
            transformer_tags=utils.TransformerTags(),
        )
        tags.input_tags.sparse = True
        return tags

    # -- fitting ----------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        vocabulary: Any = None,
        num_steps: int | None = None,
        num_epochs: float | None = None,
        max_seconds: float | None = None,
        validation: Any = None,
        store: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
    ) -> LDA:
        """Draw topics given documents.

        Parameters
        ----------
        X
            Word counts in any usual form, see `scirocco.models.lda.as_corpus`.
        y
            Ignored.
        vocabulary
            The words in the order of their ids.
        num_steps, num_epochs, max_seconds
            One of them; ten passes by default.
        validation
            Documents to score while the chains run: their perplexity is shown and kept in `run_.scores`.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`.
        """
        corpus = as_corpus(X, vocabulary)
        settings = self._settings(corpus)
        length = fitting.check_length(
            num_steps, num_epochs, max_seconds, corpus.num_documents, settings.batch_size
        )
        task = fitting.Task(
            corpus,
            settings,
            _checks.positive_int(self.num_chains, "num_chains"),
            _checks.positive_int(self.num_draws, "num_draws"),
            _checks.positive_int(self.seed, "seed", minimum=0),
            length,
            self._discard(),
        )
        self.vocabulary_ = corpus.vocabulary
        watch = () if validation is None else (self._watcher(validation, corpus, settings),)
        self.run_: Run | None
        self.run_, self._chains = fitting.fit(
            task,
            store=store,
            resume=resume,
            overwrite=overwrite,
            callbacks=(*callbacks, *watch),
            progress=progress,
            extra=self._extra(),
        )
        assert self.run_ is not None
        self._draws = np.asarray(self.run_.draws["topics"])
        self._settle(corpus.vocabulary, corpus.vocabulary_size, settings)
        return self

    def partial_fit(
        self, X: Any, y: Any = None, *, vocabulary: Any = None, total_documents: int | None = None
    ) -> LDA:
        """Go on with some more documents, without memory; `total_documents` is the size of the corpus they come from.

        Documents are seen once, in batches of `batch_size`. After each call the topics as they are then join the last
        `num_draws` draws.
        """
        known = self._known() if hasattr(self, "n_features_in_") else vocabulary
        corpus = as_corpus(X, known)
        if not hasattr(self, "_online"):
            settings = self._settings(corpus, memory="none")
            self._online = [TopicChain(corpus, settings, self.seed, c) for c in range(self.num_chains)]
            self._latest: list[list[np.ndarray]] = [[] for _ in self._online]
            self._seen = 0
        chains: list[TopicChain] = self._online
        self._seen += corpus.num_documents
        total = max(self._seen, total_documents or 0)
        for chain, latest in zip(chains, self._latest, strict=True):
            chain.take_over(corpus, total)
            chain.advance(max(1, -(-corpus.num_documents // chain.settings.batch_size)))
            latest.append(chain.draw())
            del latest[: -self.num_draws]
        self.run_ = None
        self._draws = np.stack([np.stack(latest) for latest in self._latest])
        self._settle(corpus.vocabulary, corpus.vocabulary_size, chains[0].settings)
        return self

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> np.ndarray:
        """`fit`, then `transform` of the same documents."""
        return self.fit(X, y, **options).transform(X)

    def _settle(self, vocabulary: tuple[str, ...] | None, num_words: int, settings: Settings) -> None:
        if not self._draws.shape[1]:
            raise InvalidValueError("the run ended before its first draw: give it more steps or seconds.")
        self._fitted, self.vocabulary_ = settings, vocabulary
        means = self._draws.mean(axis=1, dtype=np.float64)
        self._orders = align(means[0], means[1:]) if len(means) > 1 else np.empty((0, len(means[0])), int)
        aligned = [means[0], *(mean[order] for mean, order in zip(means[1:], self._orders, strict=True))]
        self.components_ = np.mean(aligned, axis=0)
        self.n_features_in_ = num_words

    # -- what the topics say ------------------------------------------------------------------------------------------

    def topics(self, draws: bool = False) -> np.ndarray:
        """The posterior mean (topics, words), or all draws (chain · draw, topics, words), chains aligned."""
        self._check_fitted()
        if not draws:
            return self.components_
        orders = [np.arange(self._draws.shape[2]), *self._orders]
        return np.concatenate([part[:, order] for part, order in zip(self._draws, orders, strict=True)])

    def top_words(self, num: int = 10, *, interval: float | None = None) -> list[list[Any]]:
        """The most probable words of every topic; with `interval` as (word, mean, low, high)."""
        self._check_fitted()
        _checks.positive_int(num, "num")
        names: tuple[Any, ...] = self.vocabulary_ or tuple(range(self.n_features_in_))
        order = np.argsort(-self.components_, axis=1)[:, :num]
        if interval is None:
            return [[names[w] for w in row] for row in order]
        tail = _tail(interval)
        every = self.topics(draws=True)
        out = []
        for k, row in enumerate(order):
            low, high = np.quantile(every[:, k, row], [tail, 1 - tail], axis=0)
            means = self.components_[k, row]
            out.append(
                [
                    (names[w], float(m), float(a), float(b))
                    for w, m, a, b in zip(row, means, low, high, strict=True)
                ]
            )
        return out

    def transform(self, X: Any, *, interval: float | None = None) -> Any:
        """Proportions of topics in documents (documents, topics); with `interval` also bounds: (mean, low, high)."""
        self._check_fitted()
        corpus = as_corpus(X, self._known())
        eta = prediction.document_proportions(corpus, self._some_draws(), self._fold_in())
        if interval is None:
            return eta.mean(axis=0)
        tail = _tail(interval)
        low, high = np.quantile(eta, [tail, 1 - tail], axis=0)
        return eta.mean(axis=0), low, high

    def perplexity(self, X: Any, X_hidden: Any = None) -> float:
        """exp(-mean log probability) of hidden words, given the others of their documents (document completion).

        Every tenth token of `X` is hidden, unless `X_hidden` has the hidden words of the same documents. The
        probability of a word is averaged over posterior draws. Lower is better. Never a variational bound.
        """
        self._check_fitted()
        rows = _all_rows(as_corpus(X, self._known()))
        if X_hidden is None:
            seen, hidden = prediction.split(rows)
        else:
            seen, hidden = rows, _all_rows(as_corpus(X_hidden, self._known()))
        return prediction.perplexity(seen, hidden, self._some_draws(), self._fold_in())

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log probability of hidden words: -log perplexity."""
        return -float(np.log(self.perplexity(X)))

    def coherence(self, X: Any, *, measure: str = "npmi", num: int = 10) -> np.ndarray:
        """Coherence of the top words of each topic in documents `X`; higher is better."""
        self._check_fitted()
        order = np.argsort(-self.components_, axis=1)[:, :num]
        return _coherence(order, as_corpus(X, self._known()), measure)

    def topic_distance(self, other: LDA | None = None, measure: str = "hellinger") -> np.ndarray:
        """Distances between the topics of this model, or to those of another."""
        self._check_fitted()
        return topic_distance(
            self.components_, self.components_ if other is None else other.topics(), measure
        )

    def to_pyldavis(self, X: Any) -> dict[str, Any]:
        """The arguments of `pyLDAvis.prepare` for documents `X`."""
        self._check_fitted()
        corpus = as_corpus(X, self._known())
        frequency = np.zeros(corpus.vocabulary_size, np.int64)
        _, words, counts = _all_rows(corpus)
        np.add.at(frequency, words, counts)
        names = self.vocabulary_ or tuple(map(str, range(self.n_features_in_)))
        return to_pyldavis(self.components_, self.transform(X), document_lengths(corpus), names, frequency)

    # -- on disk ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model: draws as a Zarr group, settings and vocabulary; never pickles, never code."""
        self._check_fitted()
        fitting.save(self._draws, self._fitted, self._extra(), path, overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LDA:
        """What `save` wrote, or what a fit with `store` has drawn so far."""
        draws, extra, num_documents = fitting.load(path)
        model = cls(**{name: decode(value, name) for name, value in extra["params"].items()})
        model._draws, model.run_ = draws, None
        words = tuple(extra["vocabulary"]) if extra["vocabulary"] else None
        size = fitting.Size(num_documents, draws.shape[-1])
        model._settle(words, size.vocabulary_size, model._settings(size))
        return model

    def _extra(self) -> dict[str, Any]:
        params = {name: encode(value) for name, value in self.get_params().items()}
        return {"vocabulary": list(self.vocabulary_) if self.vocabulary_ else None, "params": params}

    # -- inside -------------------------------------------------------------------------------------------------------

    def _settings(self, corpus: Any, memory: str | None = None) -> Settings:
        return resolve(
            self.get_params() | ({} if memory is None else {"memory": memory}), corpus.num_documents
        )

    def _discard(self) -> float:
        _checks.positive(self.discard, "discard", allow_zero=True)
        if float(self.discard) >= 1:
            raise InvalidValueError(f"`discard` must be below 1, got {self.discard}.")
        return float(self.discard)

    def _watcher(self, validation: Any, corpus: Corpus, settings: Settings) -> Callback:
        seen, hidden = prediction.split(
            _all_rows(as_corpus(validation, corpus.vocabulary or corpus.vocabulary_size))
        )
        how = self._fold_in(settings)

        def watch(report: Any) -> dict[str, float] | None:
            if report.draws is None or not report.draws["topics"].shape[1]:
                return None
            return {"perplexity": prediction.perplexity(seen, hidden, report.draws["topics"][0, -1:], how)}

        return watch

    def _fold_in(self, settings: Settings | None = None) -> prediction.FoldIn:
        used = settings or self._fitted
        return prediction.FoldIn(used.alpha, 20, 5, used.num_threads, int(self.seed))

    def _some_draws(self) -> np.ndarray:
        every = self.topics(draws=True)
        picked = np.unique(np.linspace(0, len(every) - 1, min(_FOLD_DRAWS, len(every))).astype(int))
        return every[picked]

    def _known(self) -> Any:
        return self.vocabulary_ or self.n_features_in_

    def _check_fitted(self) -> None:
        if not hasattr(self, "components_"):
            raise InvalidValueError("this LDA has not been fitted: call fit(X) first.")


def _tail(interval: Any) -> float:
    if not _checks.is_number(interval) or not 0 < float(interval) < 1:
        raise InvalidTypeError(f"`interval` must be a number between 0 and 1 such as 0.9, got {interval!r}.")
    return (1.0 - float(interval)) / 2.0


def _all_rows(corpus: Corpus) -> Any:
    return corpus.take_csr(np.arange(corpus.num_documents))


def _same(a: Any, b: Any) -> bool:
    try:
        return bool(np.all(a == b)) and type(a) is type(b)
    except Exception:
        return False
