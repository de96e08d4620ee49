"""The local step of LDA: token-samples per second of the kernels.

    python benchmarks/lda_local.py

Synthetic documents of about 160 tokens, 8,000 words, topics from Dir(0.05), mixtures from Dir(α); 25 sweeps, 5 of them
burn-in. A token-sample is one token in one sweep. One thread is timed by its CPU time, several by the clock; the best
of several rounds in which all sides take turns. A timing is never a test: the exit status is 0 whatever the ratios are.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from scirocco_latent.lda import local

WORDS, LENGTH, SWEEPS, BURN_IN, ROUNDS = 8_000, 160, 25, 5, 7
BARS = {100: 3.0, 1_000: 8.0}  # sparse over dense, one thread, α = 0.1


def corpus(num_topics: int, num_documents: int, alpha: float) -> tuple[local.TokenBatch, np.ndarray]:
    """Documents, and the weights of their words in the topics that made them."""
    rng = np.random.default_rng(num_topics)
    topics = rng.standard_gamma(0.05, (num_topics, WORDS))
    topics /= topics.sum(1, keepdims=True)
    rows = []
    for _ in range(num_documents):
        shares = rng.multinomial(max(rng.poisson(LENGTH), 1), rng.dirichlet(np.full(num_topics, alpha)))
        rows.append(sum(rng.multinomial(n, topics[k]) for k, n in enumerate(shares) if n))
    document, word = np.nonzero(rows)
    indptr = np.searchsorted(document, np.arange(num_documents + 1))
    batch = local.from_counts(indptr, word, np.asarray(rows)[document, word])
    return batch, np.ascontiguousarray(topics.T[batch.distinct], np.float32)


def best_times(
    sides: dict[str, Callable[[int], Any]], clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Seconds of the best call of each side, which gets the number of the call."""
    for side in sides.values():
        side(0)
    best = dict.fromkeys(sides, math.inf)
    for number in range(1, ROUNDS + 1):
        for name, side in sides.items():
            begin = clock()
            side(number)
            best[name] = min(best[name], clock() - begin)
    return best


def gibbs_side(batch: local.TokenBatch, weights: np.ndarray, alpha: float, **options: Any) -> Callable[[int], Any]:
    return lambda number: local.gibbs((1, number), batch, weights, alpha, sweeps=SWEEPS, burn_in=BURN_IN, **options)


def kernels(num_topics: int, alpha: float) -> None:
    batch, weights = corpus(num_topics, 200, 0.1)
    sides = {kernel: gibbs_side(batch, weights, alpha, kernel=kernel, num_threads=1) for kernel in ("dense", "sparse")}
    times = best_times(sides, time.process_time)
    speed = {name: batch.num_tokens * SWEEPS / seconds / 1e6 for name, seconds in times.items()}
    bar = f" (bar {BARS[num_topics]:g})" if alpha == 0.1 and num_topics in BARS else ""
    print(
        f"K {num_topics:5}  α {alpha:<5} dense {speed['dense']:7.2f}  sparse {speed['sparse']:7.2f} M/s  "
        f"ratio {speed['sparse'] / speed['dense']:.2f}{bar}"
    )


def threads(num_topics: int) -> None:
    batch, weights = corpus(num_topics, 400, 0.1)
    sides = {str(n): gibbs_side(batch, weights, 0.1, num_threads=n) for n in (1, 2)}
    times = best_times(sides)
    print(f"K {num_topics:5}  two threads over one: {times['1'] / times['2']:.2f} (bar 1.7)")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    for num_topics in (2, 10, 100, 1_000):
        for alpha in (0.1, 0.01):
            kernels(num_topics, alpha)
    for num_topics in (100, 1_000):
        threads(num_topics)


if __name__ == "__main__":
    main()
