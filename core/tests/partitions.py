"""Exact posteriors of tiny mixtures: all partitions of a few rows, weighed by the process and by the rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import integrate, stats


def partitions(num: int) -> Iterator[tuple[int, ...]]:
    """All partitions as labels in the order of first appearance."""

    def grow(labels: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(labels) == num:
            yield labels
            return
        for label in range(max(labels, default=-1) + 2):
            yield from grow((*labels, label))

    yield from grow(())


def canonical(labels: Any) -> tuple[int, ...]:
    names: dict[int, int] = {}
    return tuple(names.setdefault(int(label), len(names)) for label in labels)


def law_of_num_clusters(num_rows: int, alpha: float) -> np.ndarray:
    """P(k clusters of n rows | α), k = 0..n, row by row: a new one with probability α/(α + i)."""
    law = np.zeros(num_rows + 1)
    law[0] = 1.0
    for i in range(num_rows):
        new = alpha / (alpha + i)
        law = law * (1.0 - new) + np.concatenate([[0.0], law[:-1]]) * new
    return law


def adjusted_rand_index(first: Any, second: Any) -> float:
    """Agreement of two partitions, 1 if they are the same and 0 on average by chance (Hubert & Arabie 1985)."""
    table = np.zeros((np.max(first) + 1, np.max(second) + 1))
    np.add.at(table, (first, second), 1)

    def pairs(counts: Any) -> float:
        return float(np.sum(counts * (counts - 1)) / 2)

    both, rows, columns = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    chance = rows * columns / pairs(np.array([table.sum()]))
    return (both - chance) / ((rows + columns) / 2 - chance)


def log_partition_prior(sizes: Any, concentration: Any) -> float:
    """log of α^k ∏ Γ(m_k) Γ(α)/Γ(α + N), α integrated over its prior if it has one."""
    k, num = len(sizes), sum(sizes)
    base = sum(math.lgamma(size) for size in sizes)

    def term(alpha: float) -> float:
        return k * math.log(alpha) + math.lgamma(alpha) - math.lgamma(alpha + num)

    if not isinstance(concentration, tuple):
        return base + term(concentration)
    prior = stats.gamma(concentration[0], scale=1.0 / concentration[1])
    found, _ = integrate.quad(lambda alpha: math.exp(term(alpha)) * prior.pdf(alpha), 0, np.inf)
    return base + math.log(found)


def log_evidence(family: Any, rows: Any, members: Any) -> float:
    """log density of some rows in one cluster, one after another by the formulas of the families."""
    if family.kind == "multinomial":
        table = np.zeros(family.width)
        for row in members:
            entries = slice(rows.indptr[row], rows.indptr[row + 1])
            np.add.at(table, rows.indices[entries], rows.counts[entries])
        a, whole = family.prior, family.prior * family.width
        each = sum(math.lgamma(a + count) - math.lgamma(a) for count in table)
        return each + math.lgamma(whole) - math.lgamma(whole + table.sum())
    x = rows.values[list(members)] - np.array(family.mean)
    m, kappa, shape, total = len(x), family.strength + len(x), family.shape + len(x) / 2, 0.0
    for d, rate in enumerate(family.rate):
        # one multivariate t density: x ~ t_{2a}(0, (b/a)(I + 11ᵀ/κ))
        cover = np.eye(m) + np.ones((m, m)) / family.strength
        total += float(
            stats.multivariate_t(np.zeros(m), rate / family.shape * cover, df=2 * family.shape).logpdf(x[:, d])
        )
    assert kappa > 0 and shape > 0
    return total


def posterior(family: Any, rows: Any, concentration: Any) -> dict[tuple[int, ...], float]:
    """Probability of every partition."""
    logs = {}
    for labels in partitions(rows.num_rows):
        groups = [[i for i, label in enumerate(labels) if label == k] for k in range(max(labels) + 1)]
        evidence = sum(log_evidence(family, rows, group) for group in groups)
        logs[labels] = evidence + log_partition_prior([len(group) for group in groups], concentration)
    highest = max(logs.values())
    total = sum(math.exp(value - highest) for value in logs.values())
    return {labels: math.exp(value - highest) / total for labels, value in logs.items()}


def furthest(indicators: Any, truth: Any, num_batches: int = 40) -> float:
    """The largest |z| of means of correlated draws (draws, quantities), by batch means."""
    draws = np.asarray(indicators, np.float64)
    draws = draws[: len(draws) // num_batches * num_batches]
    means = draws.reshape(num_batches, -1, draws.shape[1]).mean(axis=1)
    error = means.std(axis=0, ddof=1) / math.sqrt(num_batches)
    away = np.abs(means.mean(axis=0) - np.asarray(truth))
    stuck = np.where(away > 1e-12, np.inf, 0.0)  # a chain that never moves has no error of its own
    return float(np.max(np.where(error > 0, away / np.maximum(error, 1e-300), stuck)))
