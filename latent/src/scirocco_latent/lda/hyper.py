r"""Draws of α and β given the topics of all tokens: exact Gibbs steps by auxiliary variables.

With n_dk tokens of topic k in document d of length N_d, and α_k ~ Gamma(1, 1) a priori,

.. math:: p(α | n) ∝ e^{-Σα} ∏_d [Γ(A)/Γ(A + N_d)] ∏_k Γ(α_k + n_dk)/Γ(α_k), \qquad A = Σ_k α_k.

u_d ~ Beta(A, N_d) turns the first ratio into u_d^A, and the number of tables t_dk of a Chinese restaurant process
with n_dk guests, Σ_{i<=n} Bernoulli(α_k/(α_k + i - 1)), the second into α_k^t. Given them, all α_k are independent:

.. math:: α_k ~ Gamma(1 + Σ_d t_dk, \text{rate } 1 - Σ_d \log u_d).

The same holds for β with words instead of topics and topics instead of documents; all words share one β. A labelled
document has only some topics: A is the sum over them, and its u_d is in their rates alone. A seed word with prior count
s has β + s: its first s guests sit already, and only the tables that later ones open are counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def alpha_given(
    rng: np.random.Generator, tables: Array, alpha: Array, lengths: Array, allowed: tuple[Array, Array] | None = None
) -> Array:
    """Draw α given Σ_d t_dk of each topic and the lengths of the documents.

    `allowed` has the topics of labelled documents: those of d are topics[offsets[d] : offsets[d + 1]].
    """
    used, rate = lengths > 0, np.ones(alpha.size)
    if allowed is None:
        rate -= _log_beta(rng, alpha.sum(), lengths[used]).sum()
    else:
        offsets, topics = allowed
        owner = np.repeat(np.arange(lengths.size), np.diff(offsets))
        sums, logs = np.bincount(owner, alpha[topics], lengths.size), np.zeros(lengths.size)
        logs[used] = _log_beta(rng, sums[used], lengths[used])
        rate -= np.bincount(topics, logs[owner], alpha.size)
    return np.maximum(rng.standard_gamma(1.0 + tables) / rate, np.finfo(np.float32).tiny)


def beta_given(
    rng: np.random.Generator, tables: int, beta: float, totals: Array, num_words: int, prior: Array | float = 0.0
) -> float:
    """Draw β given the number of all tables, the numbers of tokens of the topics, and their prior counts."""
    shapes = np.broadcast_to(num_words * beta + prior, totals.shape)
    rate = 1.0 - num_words * _log_beta(rng, shapes[totals > 0], totals[totals > 0]).sum()
    return float(max(rng.standard_gamma(1.0 + tables) / rate, np.finfo(np.float32).tiny))


def tables_given(rng: np.random.Generator, of_size: Array, alpha: Array) -> Array:
    """Draw Σ t for each α, given how many restaurants have n guests: `of_size` is (α, n), n = 0, 1, ...

    The i-th guests of all restaurants with at least i open a table independently, with probability α/(α + i - 1).
    """
    at_least = np.cumsum(of_size[:, ::-1], axis=1)[:, ::-1][:, 1:]
    before = np.arange(at_least.shape[1])
    tables: Array = rng.binomial(at_least, alpha[:, None] / (alpha[:, None] + before)).sum(axis=1)
    return tables


def _log_beta(rng: np.random.Generator, a: Array | float, b: Array) -> Array:
    """log u with u ~ Beta(a, b); does not underflow for small a."""
    first = np.log(rng.standard_gamma(a + 1.0, b.size)) + np.log(rng.random(b.size)) / a
    return first - np.logaddexp(first, np.log(rng.standard_gamma(b)))
