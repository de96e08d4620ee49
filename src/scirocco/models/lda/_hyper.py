"""Compiled draws of the numbers of tables in Chinese restaurants, for `hyper`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import called, stream, uniform
from scirocco.models.lda._gibbs import kept


@called
def _tables(count: int, concentration: float, s0: Any, s1: Any) -> tuple[Any, Any, int]:
    """Σ_{i<=count} Bernoulli(a/(a + i - 1)): the first guest always opens a table."""
    tables = 1
    for i in range(1, count):
        s0, s1, u = uniform(s0, s1)
        tables += u * (concentration + i) < concentration
    return s0, s1, tables


@kept
def document_tables(memory: Any, begins: Any, alpha: Any, seed: Any, tables: Any, lengths: Any) -> None:
    """Adds to `tables` those of each topic over all documents; `lengths` become the tokens that have a topic."""
    counts, active = np.zeros(alpha.size, np.int64), np.empty(alpha.size, np.int64)
    for d in range(begins.size - 1):
        num, length = 0, 0
        for i in range(begins[d], begins[d + 1]):
            k = np.int64(memory[i])
            if k >= 0:
                if counts[k] == 0:
                    active[num] = k
                    num += 1
                counts[k] += 1
                length += 1
        lengths[d] = length
        s0, s1 = stream(seed[0], seed[1], uint64(2 * d))
        for j in range(num):
            k = active[j]
            s0, s1, found = _tables(counts[k], alpha[k], s0, s1)
            tables[k] += found
            counts[k] = 0


@kept
def word_tables(table: Any, beta: float, seed: Any) -> int:
    """Tables over all words and topics."""
    total = 0
    for w in range(table.shape[0]):
        s0, s1 = stream(seed[0], seed[1], uint64(2 * w + 1))
        for k in range(table.shape[1]):
            if table[w, k] > 0:
                s0, s1, found = _tables(table[w, k], beta, s0, s1)
                total += found
    return total
