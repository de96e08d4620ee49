r"""`sc.models.CorrelatedTopics`: topics whose shares in documents are correlated (logistic normal).

A step is an exact Gibbs sweep: the topics z of all tokens given shares and words; ω_k ~ Dir(β + n_k); for each document
a level, which does not change its shares, and u ~ Gamma(N, rate Σ e^x), given which x is drawn as in `_paths`; and the
mean μ and covariance Σ of all x, whose prior is conjugate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from scirocco import _checks
from scirocco.diagnostics.intervals import central, effective_draws, tails_of
from scirocco.diffusions.host import _arguments as arguments
from scirocco.diffusions.host._threads import run_blocks
from scirocco.models._core.chain import Spec, TopicPurpose
from scirocco.models._core.program import FitOptions
from scirocco.models._core.view import View
from scirocco.run.result import Run
from scirocco_latent.lda import local, prediction
from scirocco_latent.lda.corpus import Corpus, Documents
from scirocco_latent.lda.estimator import LDA
from scirocco_latent.lda.gaussian import GaussianChain, GaussianTopics, kernels
from scirocco_latent.lda.readers import Vocabulary
from scirocco_latent.lda.results import all_rows
from scirocco_latent.lda.settings import TopicSettings
from scirocco_latent.lda.tokeniser import Tokeniser
from scirocco_latent.lda.topics import Arrays

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = np.ndarray

_SEED = 29  # the same seed gives unrelated numbers to different functions
PRIOR_SCALE, PRIOR_COUNT = 4.0, 0.1
"""Σ ~ InverseWishart(K + 2, 4 I), whose mean is 4 I; μ ~ N(0, Σ / 0.1)."""
# of `transform`: draws, sweeps, those discarded, documents at a time
_DRAWS, _SWEEPS, _BURN_IN, _PIECE = 10, 30, 10, 4096
# of a sweep, by token and topic, by entry, by topic cubed (measured on one core)
_TOKEN_SECONDS, _ENTRY_SECONDS, _SOLVE_SECONDS = 4e-9, 1e-7, 1.2e-9


class Members:
    """Documents, the topics z of their tokens, and x, of which the softmax are the shares of topics."""

    def __init__(self, rows: Any, num_topics: int, threads: int | None):
        self.batch, self.threads = local.from_counts(*rows), threads
        self.z = np.full(self.batch.num_tokens, -1, np.int32)
        self.x = np.zeros((self.batch.num_documents, num_topics))
        self.inside = np.zeros(self.x.shape, np.float32)

    def shares(self) -> Array:
        """Shares of the topics in the documents."""
        weights = np.exp(self.x - self.x.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def draw_tokens(self, omega: Array, seed: tuple[int, int]) -> None:
        """The topics of all tokens given ω (topics, words)."""
        weights = np.ascontiguousarray(omega[:, self.batch.distinct].T)
        shares, words, run = self.shares(), arguments.seed_words(seed, _SEED), kernels().draw_topics
        held = (self.batch.indptr, self.batch.tokens, shares, weights, self.z, self.inside, words)
        run_blocks(lambda first, last: run(*held, first, last), len(self.x), self.threads)

    def draw_shares(self, mean: Array, precision: Array, rng: np.random.Generator, seed: tuple[int, int]) -> None:
        """x given the topics of the tokens."""
        sums = precision.sum(axis=0)
        level = (mean - self.x) @ sums / sums.sum()
        self.x += (level + rng.standard_normal(len(self.x)) / math.sqrt(sums.sum()))[:, None]
        rates = rng.standard_gamma(np.diff(self.batch.indptr)) / np.exp(self.x).sum(axis=1)
        exposure = np.repeat(rates[:, None], self.x.shape[1], axis=1)
        words, run = arguments.seed_words(seed, _SEED + 1), kernels().draw_rows
        held = (self.x, self.inside, exposure, mean, precision, len(mean) - 1, words)
        run_blocks(lambda first, last: run(*held, first, last), len(self.x), self.threads)


class MemberChain(GaussianChain):
    """One chain."""

    STATE = ("mean", "precision", "omega")

    prior_count = PRIOR_COUNT
    """Observations that the prior of the mean is worth."""

    def __init__(self, corpus: Corpus, settings: TopicSettings, seed: int, number: int):
        super().__init__(corpus, settings, seed, number)
        self.members = Members(all_rows(corpus), settings.num_topics, settings.num_threads)
        size = settings.num_topics
        self.omega = np.full((size, corpus.vocabulary_size), 1.0 / corpus.vocabulary_size)
        self.mean, self.precision = np.zeros(size), np.eye(size)

    def begin(self) -> None:
        """Take the topics of tokens from a short chain with Dirichlet shares."""
        chain = self.start()
        z = chain.engine._gather(np.arange(self.corpus.num_documents))
        members, size = self.members, len(self.mean)
        owner = np.repeat(np.arange(len(members.x)), np.diff(members.batch.indptr))
        members.z = z
        members.inside[:] = np.bincount(owner * size + z, minlength=members.x.size).reshape(members.x.shape)
        members.x[:] = np.log(members.inside + 0.3)
        members.x -= members.x.mean(axis=1, keepdims=True)
        self.omega = chain.mean().astype(np.float64)
        self._draw_population(np.random.default_rng([self.seed, 0, TopicPurpose.HYPER]))

    def move(self) -> None:
        """A sweep: all parameters once."""
        rng, members = self.rng(TopicPurpose.UPDATE), self.members
        members.draw_tokens(self.omega, self.words(TopicPurpose.LOCAL))
        self.omega = self._draw_words(rng)
        members.draw_shares(self.mean, self.precision, rng, self.words(TopicPurpose.READ))
        self._draw_population(rng)

    def _draw_words(self, rng: np.random.Generator) -> Array:
        """ω given the topics of all tokens."""
        batch, size = self.members.batch, len(self.mean)
        counts = np.zeros(self.omega.shape)
        cells = batch.tokens.astype(np.int64) * size + self.members.z
        found = np.bincount(cells, minlength=len(batch.distinct) * size)
        counts[:, batch.distinct] = found.reshape(-1, size).T
        theta = rng.standard_gamma(counts + self.settings.beta)
        sums = theta.sum(axis=1, keepdims=True)
        return np.where(sums > 0, theta / np.where(sums > 0, sums, 1.0), 1.0 / theta.shape[1])

    def _draw_population(self, rng: np.random.Generator) -> None:
        """μ and Σ⁻¹ given x."""
        x, size = self.members.x, len(self.mean)
        count, middle = len(x), x.mean(axis=0)
        total = self.prior_count + count
        scatter = PRIOR_SCALE * np.eye(size) + (x - middle).T @ (x - middle)
        scatter += self.prior_count * count / total * np.outer(middle, middle)
        self.precision = wishart(rng, size + 2 + count, np.linalg.inv(scatter))
        factor = np.linalg.cholesky(np.linalg.inv(self.precision) / total)
        self.mean = count / total * middle + factor @ rng.standard_normal(size)

    def kept(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """ω, μ, Σ, and the mean shares of the topics in the documents."""
        draws = {"topics": self.omega, "mean": self.mean, "covariance": np.linalg.inv(self.precision)}
        return draws, {"shares": self.members.shares().mean(axis=0)}

    def state(self) -> Arrays:
        """Arrays from which `restore` resumes exactly."""
        return {**super().state(), "x": self.members.x, "memory": self.members.z}

    def restore(self, state: Arrays) -> None:
        """Restore the chain from `state`."""
        super().restore(state)
        self.members.x, self.members.z = state["x"].copy(), state["memory"].copy()


def wishart(rng: np.random.Generator, freedom: float, scale: Array) -> Array:
    """A draw of Wishart(freedom, scale), by Bartlett's decomposition."""
    size = len(scale)
    factor = np.tril(rng.standard_normal((size, size)), -1)
    factor[np.diag_indices(size)] = np.sqrt(2.0 * rng.standard_gamma((freedom - np.arange(size)) / 2.0))
    root = np.linalg.cholesky(scale) @ factor
    return root @ root.T


class CorrelatedTopics(GaussianTopics):
    r"""Topics whose shares in documents are correlated: η_d = softmax(x_d), x_d ~ N(μ, Σ), ω_k ~ Dir(β).

    A Dirichlet distribution makes any two topics compete; here, topics can occur together. Draws are from the exact
    posterior: a Gibbs sampler without step sizes, in compiled code on the CPU. Documents are read into memory.

    Parameters
    ----------
    num_topics
        K, the number of topics.
    beta
        Dirichlet concentration of words in topics.
    num_samples, num_burnin, thin, num_chains, seed, num_threads, tokeniser
        As for `LDA`.

    Attributes
    ----------
    components_
        Posterior mean of the topics, (topics, words).
    shares_
        Posterior mean of the shares of the topics in the documents of the fit, (topics,).
    draws_
        "topics" (chain, draw, topic, word), "mean" and "covariance" of x, in memory or read from disk when indexed; the
        topics of all chains are in the order of the first.
    run_
        The run, with the draws as each chain made them.
    vocabulary_
        The words, if known.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> X = np.random.default_rng(0).poisson([[4, 2, 0, 0], [0, 0, 4, 2], [2, 1, 2, 1]] * 20)
    >>> model = sc.models.CorrelatedTopics(2, beta=0.5).fit(X, num_steps=60, progress=False)
    >>> model.correlations().shape, model.transform(X).shape
    ((2, 2), (60, 2))
    """

    TOPICS: ClassVar[Mapping[str, Sequence[int]]] = {"topics": (0,), "mean": (0,), "covariance": (0, 1)}

    def __init__(
        self,
        num_topics: int = 20,
        *,
        beta: float = 0.05,
        num_samples: int | None = None,
        num_burnin: float = 0.5,
        thin: int | None = None,
        num_chains: int = 2,
        seed: int = 0,
        num_threads: int | None = None,
        tokeniser: Tokeniser | Callable[[str], Iterable[str]] | str | None = None,
    ):
        self.num_topics, self.beta, self.num_samples, self.num_burnin = (num_topics, beta, num_samples, num_burnin)
        self.thin, self.num_chains, self.seed, self.num_threads = thin, num_chains, seed, num_threads
        self.tokeniser = tokeniser

    def fit(
        self,
        X: Documents,
        y: object = None,
        *,
        vocabulary: Vocabulary = None,
        column: str | None = None,
        encoding: str = "utf-8",
        **options: Unpack[FitOptions],
    ) -> CorrelatedTopics:
        """Sample topics and their correlations from the posterior given documents.

        Parameters
        ----------
        X, vocabulary, column, encoding
            Documents as for `LDA.fit`: texts, counts, or the path of a table.
        y
            Ignored.
        num_steps, num_epochs, max_seconds
            The length of the run, including burn-in; give at most one of the three. A step is a pass over all
            documents. By default `num_samples` times `thin` steps after the burn-in if `thin` is given, otherwise 200
            to 1,000, the more the smaller the corpus.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`.
        """
        size = _checks.positive_int(self.num_topics, "num_topics", minimum=2)
        _checks.positive(self.beta, "beta")
        corpus = self._open(X, vocabulary, column, encoding)
        # with a small alpha, topics that occur together begin as one, which is hard to leave
        settings = self._start_settings(corpus, beta=self.beta, alpha=1.0)
        solve = corpus.num_documents * size * (_ENTRY_SECONDS * 10 + _SOLVE_SECONDS * size**2)
        program = self._program(
            corpus,
            "exact Gibbs sampler",
            {"num_topics": size, "beta": settings.beta},
            Spec.of(
                {"topics": (size, corpus.vocabulary_size), "mean": (size,), "covariance": (size, size)},
                {"shares": (size,)},
            ),
            lambda number: MemberChain(corpus, settings, self.seed, number),
            corpus.num_tokens * size * _TOKEN_SECONDS + solve + size * corpus.vocabulary_size * _ENTRY_SECONDS,
        )
        return self._drawn(program, corpus, options)

    def _results(self, run: Run, told: dict[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
        draws = super()._results(run, told, arrays)
        vars(self).pop("_topics", None)
        self.shares_ = np.asarray(self._in_order(run.stats["shares"])).mean(axis=(0, 1))
        return draws

    @property
    def _lda(self) -> LDA:
        """The topics as an `LDA`, for results that do not depend on the shares."""
        if "_topics" not in vars(self):
            self._topics = self._as_lda(self._pooled("topics"))
        return self._topics

    def _drawn_correlations(self) -> Array:
        """Correlations of x less its mean over the topics, (chain, draw, topics, topics)."""
        centre = np.eye(self.num_topics) - 1.0 / self.num_topics
        covariance = centre @ np.asarray(self.draws_["covariance"]) @ centre
        sd = np.sqrt(np.maximum(np.einsum("cnkk->cnk", covariance), 1e-12))
        found: Array = covariance / (sd[..., :, None] * sd[..., None, :])
        return found

    def _watched(self) -> dict[str, Array]:
        """Shares of the topics, and the correlation of each pair."""
        pairs = (..., *np.triu_indices(self.num_topics, 1))
        shares = np.asarray(self._in_order(self.run_.stats["shares"]))
        return {"shares": shares, "correlations": self._drawn_correlations()[pairs]}

    def _coordinates(self) -> dict[str, Sequence[Any]]:
        pairs = zip(*np.triu_indices(self.num_topics, 1), strict=True)
        return {"correlations_dim_0": [f"{j}, {k}" for j, k in pairs]}

    # -- results -------------------------------------------------------------------------------------------------------

    def correlations(self, interval: float | None = None) -> Any:
        """Correlations between topics (topics, topics); with `interval` also bounds: (mean, low, high).

        They are those of the log shares log η_dk, less their mean over the topics of the document: shares sum to one,
        so only differences of logs are identified. Correlations of K topics without any relation are -1/(K - 1).
        """
        self._check_fitted()
        drawn = self._drawn_correlations()
        mean: Array = drawn.mean(axis=(0, 1))
        if interval is None:
            return mean
        off = ~np.eye(len(mean), dtype=bool)
        ends = central(drawn, interval, axis=(0, 1), effective=effective_draws(drawn[:, :, off]))
        return mean, *ends

    def top_words(self, num: int = 10, *, interval: float | None = None) -> list[list[Any]]:
        """The most probable words of each topic; with `interval` as (word, mean, low, high)."""
        self._check_fitted()
        return self._lda.top_words(num, interval=interval)

    def labels(self, num: int = 3) -> list[str]:
        """A short name for each topic: its `num` most probable words."""
        self._check_fitted()
        return self._lda.labels(num)

    def plot_topics(self, num: int = 8, *, topics: Sequence[int] | None = None, interval: float = 0.9) -> Figure:
        """A matplotlib figure: the `num` most probable words of each topic, with central intervals."""
        self._check_fitted()
        return self._lda.plot_topics(num, topics=topics, interval=interval)

    def plot_correlations(self, interval: float = 0.9) -> Figure:
        """A matplotlib figure: correlations between topics; those whose interval contains 0 are small dots."""
        from scirocco_latent.lda import plotting

        mean, low, high = self.correlations(interval)
        return plotting.correlations(mean, low, high, self.labels(2), interval)

    def _view(self, run: Run, **options: Any) -> View:
        from scirocco_latent.lda import view_documents

        return view_documents.of_correlations(self, run)

    # -- documents -----------------------------------------------------------------------------------------------------

    def transform(
        self, X: Documents, *, interval: float | None = None, column: str | None = None, encoding: str = "utf-8"
    ) -> Any:
        """Proportions of topics in documents (documents, topics); with `interval` also bounds: (mean, low, high)."""
        self._check_fitted()
        if interval is not None:
            tails_of(interval)
        corpus, parts = self._lda._read(X, column, encoding, may_be_empty=True), []
        for begin in range(0, corpus.num_documents, _PIECE):
            rows = corpus.take_csr(np.arange(begin, min(begin + _PIECE, corpus.num_documents)))
            drawn = np.concatenate([found for _, found in self._folded(rows)])
            mean = drawn.mean(axis=0)
            parts.append((mean,) if interval is None else (mean, *central(drawn, interval)))
        found = tuple(np.concatenate(part) for part in zip(*parts, strict=True))
        return found[0] if interval is None else found

    def _folded(self, rows: Any) -> Iterator[tuple[Array, Array]]:
        """For some draws of the parameters: ω, and draws of the shares of documents (draw, document, topic)."""
        topics, means, covariances = map(self._pooled, ("topics", "mean", "covariance"))
        chosen = np.unique(np.linspace(0, len(topics) - 1, min(_DRAWS, len(topics))).astype(int))
        for number in chosen:
            rng = np.random.default_rng([self.seed, number, 0xC7])
            seed = int(rng.integers(1 << 62))
            members, kept = Members(rows, self.num_topics, self.num_threads), []
            precision = np.linalg.inv(covariances[number].astype(np.float64))
            members.x[:] = mean = means[number].astype(np.float64)
            for sweep in range(_SWEEPS):
                members.draw_tokens(topics[number].astype(np.float64), (seed, 2 * sweep))
                members.draw_shares(mean, precision, rng, (seed, 2 * sweep + 1))
                if sweep >= _BURN_IN:
                    kept.append(members.shares().astype(np.float32))
            yield topics[number], np.stack(kept)

    def perplexity(self, X: Documents, *, column: str | None = None, encoding: str = "utf-8") -> float:
        """exp(-mean log probability) of every tenth word, given the others of their documents, as for `LDA`."""
        self._check_fitted()
        seen, hidden = prediction.split(all_rows(self._lda._read(X, column, encoding)))
        prediction.check_hidden(hidden)
        indptr, words, counts = hidden
        document, chance, number = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), 0.0, 0
        for omega, shares in self._folded(seen):
            number += 1
            chance = chance + np.einsum("ik,ki->i", shares.mean(axis=0)[document], omega[:, words])
        return float(np.exp(-np.sum(counts * np.log(chance / number)) / counts.sum()))
