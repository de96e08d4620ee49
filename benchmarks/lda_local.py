"""The local step of LDA: token-samples per second of the kernels, and what Rao-Blackwellised counts gain.

    python benchmarks/lda_local.py          # compiled kernels on the CPU
    python benchmarks/lda_local.py --gpu    # the parallel form on JAX's default device, no numba needed

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


def gibbs_side(
    batch: local.TokenBatch, weights: np.ndarray, alpha: float, **options: Any
) -> Callable[[int], Any]:
    return lambda number: local.gibbs(
        (1, number), batch, weights, alpha, sweeps=SWEEPS, burn_in=BURN_IN, **options
    )


def kernels(num_topics: int, alpha: float) -> None:
    batch, weights = corpus(num_topics, 200, 0.1)
    sides = {
        kernel: gibbs_side(batch, weights, alpha, kernel=kernel, num_threads=1)
        for kernel in ("dense", "sparse")
    }
    sides["CVB0, 10 iterations"] = lambda _: local.cvb0(batch, weights, alpha, iterations=10, num_threads=1)
    times = best_times(sides, time.process_time)
    speed = {name: batch.num_tokens * SWEEPS / seconds / 1e6 for name, seconds in times.items()}
    bar = f" (bar {BARS[num_topics]:g})" if alpha == 0.1 and num_topics in BARS else ""
    print(
        f"K {num_topics:5}  α {alpha:<5} dense {speed['dense']:7.2f}  sparse {speed['sparse']:7.2f} M/s  "
        f"ratio {speed['sparse'] / speed['dense']:.2f}{bar}   "
        f"CVB0 {1e3 * times['CVB0, 10 iterations']:.0f} ms, sparse {1e3 * times['sparse']:.0f} ms"
    )


def threads(num_topics: int) -> None:
    batch, weights = corpus(num_topics, 400, 0.1)
    sides = {str(n): gibbs_side(batch, weights, 0.1, num_threads=n) for n in (1, 2)}
    times = best_times(sides)
    print(f"K {num_topics:5}  two threads over one: {times['1'] / times['2']:.2f} (bar 1.7)")


def rao_blackwell(num_topics: int, alpha: float) -> None:
    """Variance of the counts over calls, times the CPU time of a call: without over with expectations."""
    batch, weights = corpus(num_topics, 50, 0.1)
    costs = {}
    for expected in (False, True):
        side = gibbs_side(batch, weights, alpha, num_threads=1, rao_blackwell=expected)
        spread = np.stack([side(number).counts for number in range(40)]).var(0, ddof=1).sum()
        costs[expected] = (float(spread), best_times({"": side}, time.process_time)[""])
    (plain, seconds), (less, longer) = costs[False], costs[True]
    print(
        f"K {num_topics:5}  α {alpha:<5} Rao-Blackwell: variance / {plain / less:.2f}, "
        f"time x {longer / seconds:.2f}, efficiency x {plain * seconds / (less * longer):.2f}"
    )


def parallel(num_documents: int, num_topics: int = 100, length: int = 200, sweeps: int = 200) -> None:
    """Padded documents of 200 tokens on JAX's default device; from arrays on the device to results on it."""
    import jax

    from scirocco_latent.lda import local_jax

    rng = np.random.default_rng(0)
    weights = jax.numpy.asarray(rng.gamma(0.05, size=(WORDS, num_topics)), np.float32)
    index = jax.numpy.asarray(rng.integers(0, WORDS, (num_documents, length)), np.int32)
    count = jax.numpy.ones_like(index)
    seconds = best_times(
        {
            "": lambda number: jax.block_until_ready(
                local_jax.gibbs_parallel(
                    jax.random.key(number), index, count, weights, 0.1, sweeps, sweeps // 2
                )
            )
        }
    )[""]
    speed = num_documents * length * sweeps / seconds / 1e6
    print(
        f"{jax.devices()[0].device_kind}: {num_documents} documents, K {num_topics}: {speed:.0f} M/s (bar 300)"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", action="store_true", help="only the parallel form, on JAX's default device")
    if parser.parse_args().gpu:
        for num_documents in (50, 1_000):
            parallel(num_documents)
        return
    for num_topics in (2, 10, 100, 1_000):
        for alpha in (0.1, 0.01):
            kernels(num_topics, alpha)
    for num_topics in (100, 1_000):
        threads(num_topics)
    for num_topics in (10, 100, 1_000):
        rao_blackwell(num_topics, 0.1)


if __name__ == "__main__":
    main()
