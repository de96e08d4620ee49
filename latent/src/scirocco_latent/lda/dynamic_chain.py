r"""Chains of dynamic topics: the log weights of the words follow Gaussian random walks over time.

.. math::
    x_{k1w} \sim N(0, τ^2), \quad x_{ktw} \sim N(x_{k,t-1,w}, σ^2 g_t), \quad ω_{kt} = \mathrm{softmax}(x_{kt}), \quad
    η_d \sim \mathrm{Dir}(α), \quad z \sim η_d, \quad w \sim ω_{z,t(d)}

with gaps g_t between slices. A step is an exact Gibbs sweep: the topics z of all tokens given ω, with η integrated out
(`local.gibbs`); for each topic and slice a level, which does not change ω, and u ~ Gamma(N, rate Σ e^x), given which
words are independent; the walk of each word (`_paths`); τ and σ given x, and again together with x scaled by them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from scirocco.diffusions.host import _arguments as arguments
from scirocco.diffusions.host._threads import run_blocks
from scirocco.models._core.chain import TopicPurpose
from scirocco_latent.lda import local
from scirocco_latent.lda.corpus import Corpus
from scirocco_latent.lda.gaussian import GaussianChain, kernels
from scirocco_latent.lda.settings import TopicSettings
from scirocco_latent.lda.topics import Arrays

Array = np.ndarray

_SEED = 23  # the same seed gives unrelated numbers to different functions
_SMOOTHED = 0.1  # added to counts of words at the start
PRIORS = {"spread": (1.0, 4.0), "drift": (1.0, 0.02)}
"""Shape and rate of the Gamma priors of 1/τ² and 1/σ²."""
_GOAL = 0.4
"""Acceptance probability of a scaled walk."""


class Walks(NamedTuple):
    """What defines the chains of a fit."""

    corpus: Corpus
    slices: Array
    """The slice of each document."""
    gaps: Array
    """Time from each slice to the next."""
    settings: TopicSettings
    """Those of the model without time that finds the start."""
    spread: float | None
    """τ; None: learned."""
    drift: float | None
    """σ; None: learned."""


class WalkChain(GaussianChain):
    """One chain; `x` has the axes (topic, word, slice)."""

    STATE = ("x", "inside", "scales", "widths")

    def __init__(self, task: Walks, seed: int, number: int):
        super().__init__(task.corpus, task.settings, seed, number)
        self.task = task
        self.alpha, corpus = task.settings.alpha, task.corpus
        num_slices, num_topics = len(task.gaps) + 1, task.settings.num_topics
        self.documents = [np.flatnonzero(task.slices == t) for t in range(num_slices)]
        self.batches = [local.from_counts(*corpus.take_csr(rows), rows) for rows in self.documents]
        self.z = [np.full(batch.num_tokens, -1, np.int32) for batch in self.batches]
        self.x = np.zeros((num_topics, corpus.vocabulary_size, num_slices))
        self.counts = np.zeros(self.x.shape, np.float32)
        self.inside = np.zeros((corpus.num_documents, num_topics), np.float32)
        """Tokens of each document in each topic."""
        self.scales = np.array([task.spread or 2.0, task.drift or 0.2])
        """τ and σ."""
        self.widths = np.full(2, -3.0)
        """Logs of the step sizes of their scaled moves."""

    def move(self) -> None:
        """A sweep."""
        self.draw_tokens()
        self.draw_topics()

    def begin(self) -> None:
        """Take the topics of tokens from a short chain of the model without time."""
        chain = self.start()
        for t, rows in enumerate(self.documents):
            self.z[t] = chain.engine._gather(rows)
        total = chain.engine.table.T.astype(np.float64) + _SMOOTHED
        self.x[:] = np.log(total / total.mean(axis=1, keepdims=True))[:, :, None]

    # -- a sweep -------------------------------------------------------------------------------------------------------

    def topics(self) -> Array:
        """ω, (topic, word, slice)."""
        weights = np.exp(self.x - self.x.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def draw_tokens(self) -> None:
        """The topics of all tokens, and their counts."""
        omega = self.topics()
        self.counts[:] = 0.0
        for t, batch in enumerate(self.batches):
            if not len(batch.distinct):
                continue
            found = local.gibbs(
                self.words(TopicPurpose.LOCAL),
                batch,
                omega[:, batch.distinct, t].T.astype(np.float32),
                self.alpha,
                sweeps=1,
                burn_in=0,
                z=self.z[t],
                keep_documents=True,
                num_threads=self.threads,
            )
            self.counts[:, batch.distinct, t] = found.counts.T
            self.inside[self.documents[t]] = found.document_topics

    def draw_topics(self) -> None:
        """The walks given the topics of all tokens, and their scales."""
        rng = self.rng(TopicPurpose.UPDATE)
        precision, run = self.precision(), kernels().draw_rows
        spread = np.linalg.cholesky(np.linalg.inv(precision)) / math.sqrt(self.x.shape[1])
        self.x -= self.x.mean(axis=1, keepdims=True)  # ω does not depend on the level, whose mean is 0 given the rest
        self.x += (rng.standard_normal((len(self.x), len(precision))) @ spread.T)[:, None]
        exposure = rng.standard_gamma(self.counts.sum(axis=1, dtype=np.float64)) / np.exp(self.x).sum(axis=1)
        seed = arguments.seed_words(self.words(TopicPurpose.READ), _SEED)
        mean = np.zeros(len(precision))
        for k, rows in enumerate(self.x):
            own = (seed[0], np.uint64((int(seed[1]) + k * 0x9E3779B97F4A7C15) % 2**64))
            held, u = self.counts[k], exposure[k : k + 1]

            def work(first: int, last: int, rows=rows, held=held, u=u, own=own) -> None:  # type: ignore[no-untyped-def]
                run(rows, held, u, mean, precision, 1, own, first, last)

            run_blocks(work, len(rows), self.threads)
        self._draw_scales(self.rng(TopicPurpose.HYPER))

    def precision(self) -> Array:
        """The precision matrix of a walk."""
        (spread, drift), gaps = self.scales, self.task.gaps
        steps = 1.0 / (drift**2 * gaps)
        diagonal = np.concatenate([[spread**-2.0], np.zeros(len(gaps))])
        diagonal[:-1] += steps
        diagonal[1:] += steps
        return np.diag(diagonal) - np.diag(steps, 1) - np.diag(steps, -1)

    def _draw_scales(self, rng: np.random.Generator) -> None:
        for which, given in enumerate((self.task.spread, self.task.drift)):
            if given is not None:
                continue
            first = self.x[:, :, :1]
            shape, rate = tuple(PRIORS.values())[which]
            parts = first if which == 0 else np.diff(self.x, axis=2) / np.sqrt(self.task.gaps)
            drawn = rng.standard_gamma(shape + parts.size / 2) / (rate + np.sum(parts * parts) / 2)
            self.scales[which] = drawn**-0.5
            self._scale(rng, which, first if which == 0 else self.x - first, shape, rate)

    def _scale(self, rng: np.random.Generator, which: int, part: Array, shape: float, rate: float) -> None:
        """Propose another scale together with x in proportion: words without tokens then do not hold it back."""
        step = math.exp(self.widths[which]) * rng.standard_normal()
        new, old = self.scales[which] * math.exp(step), self.scales[which]
        proposal = self.x + part * (math.exp(step) - 1.0)
        log = self._log_likelihood(proposal) - self._log_likelihood(self.x)
        log += -rate * (new**-2.0 - old**-2.0) - 2.0 * shape * step  # the prior of log τ or log σ
        chance = math.exp(min(log, 0.0)) if math.isfinite(log) else 0.0
        if rng.random() < chance:
            self.x, self.scales[which] = proposal, new
        self.widths[which] += (chance - _GOAL) / (self.step + 1) ** 0.6

    def _log_likelihood(self, x: Array) -> float:
        high = x.max(axis=1, keepdims=True)
        sums = np.log(np.exp(x - high).sum(axis=1)) + high[:, 0]
        return float(np.sum(self.counts * x) - np.sum(self.counts.sum(axis=1, dtype=np.float64) * sums))

    # -- results -------------------------------------------------------------------------------------------------------

    def kept(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """ω (slice, topic, word) and the mean shares of the topics in the documents of each slice."""
        rng = np.random.default_rng([self.seed, self.step, TopicPurpose.DRAW])
        theta = rng.standard_gamma(self.inside + self.alpha)
        theta /= theta.sum(axis=1, keepdims=True)
        shares = np.stack([theta[rows].mean(axis=0) for rows in self.documents])
        draws = {"topics": self.topics().transpose(2, 0, 1).astype(np.float32), "shares": shares}
        return draws, {"spread": self.scales[0], "drift": self.scales[1]}

    def state(self) -> Arrays:
        """Arrays from which `restore` resumes exactly."""
        return {**super().state(), "memory": np.concatenate(self.z)}

    def restore(self, state: Arrays) -> None:
        """Restore the chain from `state`."""
        super().restore(state)
        ends = np.cumsum([len(z) for z in self.z])[:-1]
        self.z = [part.copy() for part in np.split(state["memory"], ends)]
