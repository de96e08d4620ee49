"""The counts of a batch given the topics, in this process."""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco.models.lda import local
from scirocco.models.lda.settings import Settings
from scirocco.models.lda.supply import Delivery


class Here:
    """The local step of all documents of a batch, shared among threads.

    `prepare` says which words a batch has, under `distinct`; `counts` takes what `prepare` gave and the topics of these
    words. `sharded.Shards` does the same on other processes.
    """

    def __init__(self, settings: Settings):
        self.settings = settings

    def prepare(self, delivery: Delivery) -> local.Batch:
        """Documents as tokens."""
        return local.from_counts(*delivery.rows, delivery.documents)

    def counts(self, batch: local.Batch, weights: np.ndarray, seed: tuple[int, int]) -> np.ndarray:
        """(words, topics), float32."""
        settings = self.settings
        if settings.local == "parallel":
            return _parallel(batch, weights, settings, seed)
        return swept(batch, weights, settings, seed, settings.num_threads).counts


def swept(
    batch: local.Batch,
    weights: np.ndarray,
    settings: Settings,
    seed: tuple[int, int],
    num_threads: int | None,
    whole: bool = False,
) -> local.Local:
    """The compiled local step; `whole`: sums as whole numbers, of which `unit` makes counts."""
    if settings.local == "cvb0":
        return local.cvb0(
            batch, weights, settings.alpha, iterations=settings.sweeps, num_threads=num_threads, whole=whole
        )
    return local.gibbs(
        seed,
        batch,
        weights,
        settings.alpha,
        sweeps=settings.sweeps,
        burn_in=settings.burn_in,
        num_threads=num_threads,
        whole=whole,
    )


def unit(settings: Settings) -> float:
    """What one of the whole numbers of `swept` is worth."""
    return local.CVB0_UNIT if settings.local == "cvb0" else 1.0 / (settings.sweeps - settings.burn_in)


def _parallel(
    batch: local.Batch, weights: np.ndarray, settings: Settings, seed: tuple[int, int]
) -> np.ndarray:
    """The local step on an accelerator; shapes are rounded up, so that few are compiled."""
    import jax

    from scirocco.models.lda import local_jax

    index, count = local_jax.padded(batch)
    rows = -(-len(weights) // 1024) * 1024
    table = np.empty((rows, weights.shape[1]), np.float32)
    table[: len(weights)], table[len(weights) :] = weights, 1.0  # the rest are words of no document
    words = jax.numpy.asarray(np.array(seed, np.uint64).astype(np.uint32))
    key = jax.random.wrap_key_data(words, impl="threefry2x32")
    found: Any = local_jax.gibbs_parallel(
        key,
        index,
        count,
        table,
        settings.alpha.astype(np.float32),
        sweeps=settings.sweeps,
        burn_in=settings.burn_in,
    )
    return np.asarray(found.counts)[: len(weights)]
