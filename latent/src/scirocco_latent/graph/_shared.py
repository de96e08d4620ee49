"""What the compiled updates of networks share: draws of a place, sums over communities, edges of a node.

Arrays that are passed to a compiled function have their references counted, by atomic operations: in the innermost
loops the arithmetic stands where it is used.
"""

from __future__ import annotations

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import called, uniform

Array = np.ndarray

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Pointers to the edges of each node, their other ends, their weights."""
Unseen = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""First and second node of pairs that were not observed, their numbers by node, pointers to them."""


@called
def pick(u: float, edges: Array) -> int:
    """The first place at which cumulative weights reach a share u of the total."""
    last = edges.size - 1
    u *= edges[last]
    k = 0
    while k < last and edges[k] < u:
        k += 1
    return k


@called
def product(first: Array, i: int, second: Array, j: int, out: Array) -> None:
    """Cumulative sums of the products of two rows, from which `pick` draws."""
    total = 0.0
    for k in range(out.size):
        total += first[i, k] * second[j, k]
        out[k] = total


@called
def dot(first: Array, i: int, second: Array, j: int) -> float:
    """The sum of the products of two rows, always in the same order."""
    total = 0.0
    for k in range(first.shape[1]):
        total += first[i, k] * second[j, k]
    return total


@called
def some_edge(s0: uint64, s1: uint64, n: int, begin: int, size: int, most: int) -> tuple[uint64, uint64, np.int64]:
    """Number n of at most `most` edges of a node: of all its edges, or with replacement if it has more."""
    if size <= most:
        return s0, s1, np.int64(begin + n)
    s0, s1, u = uniform(s0, s1)
    return s0, s1, begin + np.int64(u * size)
