"""The papers' Langevin and Hamiltonian samplers of topics, beside SCIR: every word is moved at every step.

Counts n of a batch stand for the unknown topics of the tokens (Fisher's identity: the gradient is an expectation over
z). Given n, all of them have the same limit for short steps, ω_k ~ Dirichlet(β + n_k): `langevin_mean` and
`langevin_natural` say in which parametrisation. They differ in how long they need, and in what longer steps do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco import _checks
from scirocco.diffusions import host
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.lda.langevin_mean import (
    SGHMCTopics,
    SGLDTopics,
    SGRHMCTopics,
    SGRLDTopics,
    normals,
)
from scirocco.models.lda.langevin_natural import CentredTopics, NaturalTopics
from scirocco.models.lda.topics import Topics

__all__ = [
    "METHODS",
    "CentredTopics",
    "NaturalTopics",
    "SGHMCTopics",
    "SGLDTopics",
    "SGRHMCTopics",
    "SGRLDTopics",
    "begin",
]

METHODS = ("sgrld", "sgrhmc", "sghmc", "sgld", "sgld_natural", "sgld_cv")
_OPTIONS: dict[str, dict[str, float]] = {
    "sgrld": {},
    "sgrhmc": {"friction": 100.0},
    "sghmc": {"friction": 100.0},
    "sgld": {},
    "sgld_natural": {},
    "sgld_cv": {"optimise_steps": 0},
}


def begin(
    method: str,
    num_words: int,
    num_topics: int,
    beta: float,
    seed: int,
    threads: int | None,
    **options: Any,
) -> Topics:
    """Topics at the start of a chain: θ (natural: e^θ) ~ Gamma(1, 1) as in the papers' code, momenta N(0, 1).

    Parameters
    ----------
    method
        One of `METHODS`; each class says its update and the law that it targets.
    num_words, num_topics
        V and K.
    beta
        β > 0 of the Dirichlet prior of a topic's words.
    seed
        Of this chain.
    threads
        For the start only; None: all cores.
    options
        `friction` for "sghmc" and "sgrhmc"; `optimise_steps` for "sgld_cv".

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco.models.lda import langevin
    >>> topics = langevin.begin("sgrhmc", 4, 2, beta=0.5, seed=0, threads=1, friction=10.0)
    >>> counts = np.array([[9.0, 0.0], [0.0, 7.0]], np.float32)  # of words 0 and 2
    >>> topics.update(np.array([0, 2]), counts, scale=1.0, time=0.01, seed=(0, 1))
    >>> topics.draw((0, 2)).shape
    (2, 4)
    """
    _checks.choice(method, "method", METHODS)
    chosen = dict(check_options(method, options))
    shape = (num_words, num_topics)
    theta = host.gamma((seed, 0), np.broadcast_to(np.float32(1.0), shape), num_threads=threads)
    if method in ("sghmc", "sgrhmc"):
        kind = SGHMCTopics if method == "sghmc" else SGRHMCTopics
        return kind(theta, beta, normals((seed, 1), shape), chosen["friction"])
    if method == "sgld_natural":
        return NaturalTopics(np.log(theta), beta)
    if method == "sgld_cv":
        return CentredTopics(np.log(theta), beta, int(chosen["optimise_steps"]))
    return SGRLDTopics(theta, beta) if method == "sgrld" else SGLDTopics(theta, beta)


def check_options(method: str, given: Any) -> tuple[tuple[str, float], ...]:
    """The options of a sampler (None: as they are by default), checked; those of others are refused."""
    if given is not None and not isinstance(given, dict):
        raise InvalidTypeError(f"`options` must be a dict such as {{'friction': 10.0}}, got {given!r}.")
    options, known = given or {}, _OPTIONS.get(method, {})
    for name in options:
        if name not in known:
            has = f"has {', '.join(known)}" if known else "has none"
            raise InvalidValueError(f"the sampler {method!r} has no option `{name}`; it {has}.")
    if "friction" in options:
        _checks.positive(options["friction"], "friction", method, allow_zero=method == "sgrhmc")
    if "optimise_steps" in options:
        _checks.positive_int(options["optimise_steps"], "optimise_steps", minimum=0)
    return tuple(sorted({**known, **options}.items()))
