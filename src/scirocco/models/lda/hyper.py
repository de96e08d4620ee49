r"""Learning α and β: exact Gibbs steps given the topics of all tokens, by auxiliary variables.

With n_dk tokens of topic k in document d of length N_d, and α_k ~ Gamma(1, 1) a priori,

.. math:: p(α | n) ∝ e^{-Σα} ∏_d [Γ(A)/Γ(A + N_d)] ∏_k Γ(α_k + n_dk)/Γ(α_k), \qquad A = Σ_k α_k.

u_d ~ Beta(A, N_d) turns the first ratio into u_d^A, and the number of tables t_dk of a Chinese restaurant with n_dk
guests, Σ_{i<=n} Bernoulli(α_k/(α_k + i - 1)), the second into α_k^t. Given them all α_k are independent:

.. math:: α_k ~ Gamma(1 + Σ_d t_dk, \text{rate } 1 - Σ_d \log u_d).

The same for β with words in the place of topics and topics in that of documents, all words sharing one β.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def draw_alpha(seed: Any, memory: Array, begins: Array, alpha: Array) -> Array:
    """α given the topics of all tokens (`memory`, document d from begins[d] to begins[d + 1]; -1: none)."""
    tables, lengths = np.zeros(alpha.size, np.int64), np.zeros(begins.size - 1, np.int64)
    _kernels().document_tables(memory, begins, alpha, seed, tables, lengths)
    rng = _generator(seed, 1)
    rate = 1.0 - _log_beta(rng, alpha.sum(), lengths[lengths > 0]).sum()
    return np.maximum(rng.standard_gamma(1.0 + tables) / rate, np.finfo(np.float32).tiny)


def draw_beta(seed: Any, table: Array, totals: Array, beta: float) -> float:
    """β given the counts of words in topics, (words, topics), and their sums over words."""
    tables = _kernels().word_tables(table, beta, seed)
    rng = _generator(seed, 2)
    rate = 1.0 - len(table) * _log_beta(rng, len(table) * beta, totals[totals > 0]).sum()
    return float(max(rng.standard_gamma(1.0 + tables) / rate, np.finfo(np.float32).tiny))


def _generator(seed: Any, purpose: int) -> np.random.Generator:
    return np.random.default_rng([int(seed[0]), int(seed[1]), purpose])


def _log_beta(rng: np.random.Generator, a: float, b: Array) -> Array:
    """log u with u ~ Beta(a, b); does not underflow for small a."""
    first = np.log(rng.standard_gamma(a + 1.0, b.size)) + np.log(rng.random(b.size)) / a
    return first - np.logaddexp(first, np.log(rng.standard_gamma(b)))


def _kernels() -> Any:
    """The compiled part, imported when it is first needed."""
    from scirocco.models.lda import _hyper

    return _hyper
