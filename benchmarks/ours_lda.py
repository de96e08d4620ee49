"""Our side of the topic-model comparison: topics saved at marks of time.

    python ours_lda.py corpus.npz ours.npz --marks 5 15 30 60 --sampler scir

One chain of `sc.models.LDA(100, alpha=0.1, beta=0.05, sampler=..., num_threads=1)`, everything else as it comes. The
corpus is what `lda_corpus.py --save` writes. Compiling is not timed: the kernels are called on a small corpus first.

At a mark three things are kept. `topics` is the point estimate of a user who averages: the mean of E[ω | z] over states
of the last fifth of the time (of one state as long as the chain grows, because its topics are still merged). `state`
is E[ω | z] of the last state alone, which is what a Gibbs sampler without averaging has. `states` are up to five of
those that were averaged, for predictions that are averaged instead; missing ones are NaN. With `--states`, `topics` is
the last state alone, and nothing else is kept.
"""

from __future__ import annotations

from typing import Any

import lda_marks
import numpy as np
import scipy.sparse as sp

import scirocco as sc
from scirocco_latent.lda import as_corpus
from scirocco_latent.lda.chain import TopicChain
from scirocco_latent.lda.settings import Size, resolve

LATEST, EVERY = 0.2, 0.02  # shares of the time so far: what is averaged, and how often a state is added
MOST_STATES = 5


class Average:
    """E[ω | z] over states of the last part of a chain."""

    def __init__(self, chain: TopicChain):
        self._chain = chain
        self._kept: list[tuple[float, np.ndarray]] = []
        self._next = 0.0

    def visit(self, now: float) -> None:
        """After a step, at this time."""
        if self._chain.batches.growing or now < self._next:
            return
        self._kept = [(then, mean) for then, mean in self._kept if then > (1 - LATEST) * now]
        self._kept.append((now, self._chain.mean()))
        self._next = (1 + EVERY) * now

    def topics(self) -> dict[str, np.ndarray]:
        """The average, the last state alone, and some of the states."""
        state = self._chain.mean()
        means = [mean for _, mean in self._kept] or [state]
        states = np.full((MOST_STATES, *state.shape), np.nan, np.float32)
        for place, number in enumerate(np.unique(np.linspace(0, len(means) - 1, MOST_STATES).round())):
            states[place] = means[int(number)]
        return {"topics": np.mean(means, axis=0), "state": state, "states": states}


def chain_of(counts: Any, model: sc.models.LDA) -> TopicChain:
    """What `model.fit(counts)` would run."""
    corpus = as_corpus(counts)
    size = Size(corpus.num_documents, corpus.vocabulary_size, corpus.num_tokens)
    return TopicChain(corpus, resolve(model.get_params(), size), model.seed, 0)


def warm_up(counts: Any, model: sc.models.LDA) -> None:
    """Every kernel is called once: growing, merging, both kinds of sweeps, reading out."""
    few = counts[:400]
    params = model.get_params() | {"growth": [(100, 1), (200, 1)], "batch_size": 50}
    chain = chain_of(few, sc.models.LDA(**params))
    for _ in range(4 * few.shape[0] // 50):
        chain.advance(1)
    chain.mean()


def main() -> None:
    """The command."""
    parser = lda_marks.arguments(__doc__)
    parser.add_argument("--sampler", default="scir")
    parser.add_argument("--documents", type=int, help="use only the first so many")
    parser.add_argument("--states", action="store_true", help="keep only the last state at each mark")
    options = parser.parse_args()
    indptr, indices, values, shape = lda_marks.read(options.corpus)
    counts = sp.csr_array((values, indices, indptr), shape=shape)[: options.documents or shape[0]]
    model = sc.models.LDA(
        options.topics,
        alpha=options.alpha,
        beta=options.beta,
        sampler=options.sampler,
        seed=options.seed,
        num_threads=1,
    )
    warm_up(counts, model)
    marks = lda_marks.Marks(options.marks, options.document_marks, options.clock)
    corpus_ready = as_corpus(counts)
    marks.begin()
    chain = chain_of(corpus_ready, model)
    average, going = Average(chain), True
    while going:
        chain.advance(1)
        if not options.states:
            average.visit(marks.elapsed())
        kept = chain.mean if options.states else average.topics
        going = marks.look(round(chain.passes * counts.shape[0]), kept)
    marks.save(options.out)


if __name__ == "__main__":
    main()
