"""Dynamic topics on simulated corpora: coverage of 90 % intervals, drift, mixing, time; and held-out perplexity.

usage: dynamic_topics.py [coverage|perplexity] [number of corpora] [first seed]

`coverage` draws corpora from the model (3 topics, 60 words, 6 slices, 240 documents of 60 tokens) and compares the
intervals of all words, of the most probable ones, and of the shares of topics by time with the truth. `perplexity`
compares DynamicTopics with LDA on documents whose words drift, and on ones whose words do not.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from scirocco.models import LDA, DynamicTopics
from scirocco_latent.lda import align

TOPICS, WORDS, SLICES, DOCUMENTS, TOKENS, ALPHA = 3, 60, 6, 240, 60, 0.1


def simulated(seed: int, drift: float, spread: float = 2.0):
    """Counts, times, topics (slice, topic, word) and shares (documents, topics)."""
    rng = np.random.default_rng([seed, 77])
    steps = rng.standard_normal((SLICES, TOPICS, WORDS)) * drift
    steps[0] = rng.standard_normal((TOPICS, WORDS)) * spread
    weights = np.exp(np.cumsum(steps, axis=0))
    omega = weights / weights.sum(axis=2, keepdims=True)
    times = np.arange(DOCUMENTS) % SLICES
    shares = rng.dirichlet(np.full(TOPICS, ALPHA), DOCUMENTS)
    counts = [rng.multinomial(TOKENS, eta @ omega[t]) for eta, t in zip(shares, times, strict=True)]
    return np.array(counts), times, omega, shares


def coverage(seeds: range) -> None:
    print("drift  all words  top words  shares by time  learned drift  R-hat of drift  CPU s a fit")
    for drift, given in ((0.2, 0.2), (0.3, None), (0.05, None)):
        rows = []
        for seed in seeds:
            counts, times, omega, shares = simulated(seed, drift)
            begun = time.process_time()
            model = DynamicTopics(TOPICS, drift=given, seed=seed, num_threads=1, num_chains=2)
            model.fit(counts, times, num_steps=800, progress=False)
            spent = time.process_time() - begun
            order = align(omega.mean(axis=0), model.components_.mean(axis=0)[None])[0]
            paths = [model.evolution(int(k), range(WORDS)) for k in order]
            low, high = (np.stack([getattr(path, end) for path in paths], axis=1) for end in ("low", "high"))
            inside = (low <= omega) & (omega <= high)
            by = model.shares()
            truth = np.stack([shares[times == t].mean(axis=0) for t in range(SLICES)])
            covered = (by.low[:, order] <= truth) & (truth <= by.high[:, order])
            draws = np.asarray(model.run_.stats["drift"])
            between = np.var(draws.mean(axis=1), ddof=1)
            within = draws.var(axis=1, ddof=1).mean()
            ratio = 1.0 if given is not None else np.sqrt(1 + between / within)
            rows.append([inside.mean(), inside[omega > 0.02].mean(), covered.mean(), model.drift_, ratio, spent])
        means = np.mean(rows, axis=0)
        errors = np.std(rows, axis=0, ddof=1) / np.sqrt(len(seeds))
        name = f"{drift:g} ({'learned' if given is None else 'given'})"
        parts = (f"{m:.3f} ({e:.3f})" for m, e in zip(means, errors, strict=True))
        print(f"{name}  {'  '.join(parts)}", flush=True)


def perplexity(seeds: range) -> None:
    print("drift  LDA  DynamicTopics(drift=0.2)  drift=None")
    for drift in (0.0, 0.1, 0.3, 0.6):
        rows = []
        for seed in seeds:
            counts, times, *_ = simulated(100 + seed, drift)
            seen, held = slice(0, 180), slice(180, None)
            lda = LDA(TOPICS, num_chains=1, seed=seed, num_threads=1)
            lda.fit(counts[seen], num_epochs=200, progress=False)
            row = [lda.perplexity(counts[held])]
            for given in (0.2, None):
                model = DynamicTopics(TOPICS, drift=given, seed=seed, num_threads=1, num_chains=1)
                model.fit(counts[seen], times[seen], num_steps=400, progress=False)
                row.append(model.perplexity(counts[held], times[held]))
            rows.append(row)
        print(f"{drift:g}  {'  '.join(f'{value:.2f}' for value in np.mean(rows, axis=0))}", flush=True)


def main() -> None:
    what, number, first = sys.argv[1:] + ["coverage", "4", "0"][len(sys.argv) - 1 :]
    seeds = range(int(first), int(first) + int(number))
    {"coverage": coverage, "perplexity": perplexity}[what](seeds)


if __name__ == "__main__":
    main()
