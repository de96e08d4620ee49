"""The Langevin and Hamiltonian samplers of topics from the papers, which move every word at every step.

The expected counts n of a batch replace the unknown topics of the tokens (Fisher's identity: the gradient is an
expectation over z). Given n, all samplers have the same limit for short steps, ω_k ~ Dirichlet(β + n_k), in the
parametrisations of `langevin_mean` and this module. They differ in mixing time and in the bias of longer steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco import _checks
from scirocco.diffusions import host
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.lda.langevin_mean import SGHMCTopics, SGLDTopics, SGRHMCTopics, SGRLDTopics, diverged, normals
from scirocco_latent.lda.topics import Arrays, Topics

Array = np.ndarray

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
# options of each sampler and their defaults
_OPTIONS: dict[str, dict[str, float]] = {
    "sgrld": {},
    "sgrhmc": {"friction": 100.0},
    "sghmc": {"friction": 100.0},
    "sgld": {},
    "sgld_natural": {},
    "sgld_cv": {"optimise_steps": 0},
}


def begin(
    method: str, num_words: int, num_topics: int, beta: float, seed: int, threads: int | None, **options: Any
) -> Topics:
    """Topics at the start of a chain: θ (natural: e^θ) ~ Gamma(1, 1) as in the papers' code, momenta N(0, 1).

    The class of each of `METHODS` documents its update and target distribution. Options are `friction` of "sghmc" and
    "sgrhmc", `optimise_steps` of "sgld_cv".

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco_latent.lda import langevin
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


def check_options(method: str, given: object) -> tuple[tuple[str, float], ...]:
    """Check the options of a sampler (None: the defaults); options of other samplers raise an error."""
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


# -- langevin samplers of topics in the expanded-natural parametrisation (Patterson & Teh 2013; thesis, §3.5.3 and A.3)
#
# ω_kw = e^{θ_kw} / Σ_w e^{θ_kw} with e^{θ_kw} ~ Gamma(β, 1) a priori. Given counts n,
#
#     log p(θ | n) = Σ_kw [(β + n_kw) θ_kw - e^{θ_kw}] - Σ_k n_k log Σ_w e^{θ_kw},
#     g_kw = β + n_kw - n_k ω_kw - e^{θ_kw},
#
# under which ω ~ Dirichlet(β + n), independent of Σ_w e^θ ~ Gamma(Vβ, 1). θ is any real number: no reflection is
# needed. A word without counts has the left tail e^{βθ}, of width 1/β, which chains with short steps leave slowly.


class NaturalTopics(Topics):
    r"""SGLD: θ' = θ + ε ĝ + √(2ε) ξ. The thesis writes h/2 for ε. Targets p(θ | n) as ε → 0."""

    def __init__(self, theta: Array, beta: float):
        self.theta, self.beta = np.ascontiguousarray(theta, np.float32), np.float32(beta)

    def read(self, words: Array, seed: tuple[int, int]) -> Array:
        """softmax(θ) of these words."""
        return np.exp(self.theta[words] - _log_sums(self.theta))

    def draw(self, seed: tuple[int, int]) -> Array:
        """softmax(θ)."""
        return np.ascontiguousarray(np.exp(self.theta - _log_sums(self.theta)).T)

    def state(self) -> Arrays:
        """θ."""
        return {"theta": self.theta.copy()}

    def restore_state(self, arrays: Arrays) -> None:
        """Restore the topics from `state`."""
        self.theta = arrays["theta"].copy()

    def gradient(self, words: Array, counts: Array, scale: float) -> Array:
        """ĝ, estimated from the counts of a batch."""
        out = likelihood_gradient(self.theta, words, counts, scale)
        out += self.beta - np.exp(self.theta)
        return out

    def update(self, words: Array, counts: Array, scale: float, time: float, seed: tuple[int, int]) -> None:
        """One step of all words."""
        self._move(self.gradient(words, counts, scale), time, seed)

    def _move(self, gradient: Array, time: float, seed: tuple[int, int] | None) -> None:
        """Move θ along the gradient; without noise if `seed` is None."""
        step = np.float32(time)
        self.theta += step * gradient
        if seed is not None:
            self.theta += np.sqrt(2.0 * step) * normals(seed, self.theta.shape)


class CentredTopics(NaturalTopics):
    r"""SGLD-CV: a control variate from the likelihood's gradient at a centre θ̂, for the same documents.

    .. math:: \tilde g = β - e^θ + L(θ̂) + \hat L(θ) - \hat L(θ̂), \qquad L_{kw} = Σ_d E[n_{dkw} - ω_{kw} n_{dk}]

    with L over a large reference batch (all documents, in the thesis) and L̂ over the step's batch, scaled up. It has
    the same limit as `NaturalTopics`; the noise of a batch vanishes as θ approaches θ̂. If the reference is not all
    documents, its error is a constant force until the next one.

    In addition to the counts of a batch, a step needs, in this order:

    - `due(every)`: whether a reference is due, after the optimisation and then at regular intervals. Then counts of
      the reference batch are computed at the current topics (`read`) and passed to `refer`, which sets θ̂ = θ. The
      thesis does this once, with all documents: one pass over the corpus.
    - while `centred` is true, the local step of each batch is repeated with the topics `read_centre(words)` and the
      *same* seed as the first (so that the two share their random numbers), and its counts are passed to `control`.
      This doubles the time of the local step.
    - `update`.

    Parameters
    ----------
    optimise_steps
        Steps without noise at the start (the stochastic optimisation of the centre in the thesis); there is
        no centre until they are done.
    """

    def __init__(self, theta: Array, beta: float, optimise_steps: int = 0):
        super().__init__(theta, beta)
        self.optimise_steps = optimise_steps
        self.centre, self.reference = np.zeros_like(self.theta), np.zeros_like(self.theta)
        self.steps, self.referred = 0, -1
        """Number of steps made, and that number at the last reference (-1: none yet)."""
        self._at_centre: Array | None = None

    @property
    def centred(self) -> bool:
        """Whether there is a reference, so that `control` must be called before `update`."""
        return self.referred >= 0

    def due(self, every: int) -> bool:
        """Whether `refer` must be called before the next step."""
        if self.steps < self.optimise_steps:
            return False
        return not self.centred or self.steps - self.referred >= every

    def refer(self, words: Array, counts: Array, scale: float) -> None:
        """Set the centre to the current θ; `counts` are of a large batch at θ, scaled by `scale`."""
        self.centre = self.theta.copy()
        self.reference = likelihood_gradient(self.centre, words, counts, scale)
        self.referred = self.steps

    def read_centre(self, words: Array) -> Array:
        """The ω of these words at the centre, for the second local step."""
        return np.exp(self.centre[words] - _log_sums(self.centre))

    def control(self, words: Array, counts: Array) -> None:
        """Set the counts of the next update's batch at the centre."""
        self._at_centre = counts

    def gradient(self, words: Array, counts: Array, scale: float) -> Array:
        """g̃, or ĝ if there is no centre yet."""
        out = super().gradient(words, counts, scale)
        if self.centred:
            assert self._at_centre is not None, "control() must be called before update()"
            out += self.reference
            out -= likelihood_gradient(self.centre, words, self._at_centre, scale)
        return out

    def update(self, words: Array, counts: Array, scale: float, time: float, seed: tuple[int, int]) -> None:
        """One step of all words; without noise while the centre is optimised."""
        gradient = self.gradient(words, counts, scale)
        self._move(gradient, time, seed if self.steps >= self.optimise_steps else None)
        self._at_centre = None
        self.steps += 1

    def state(self) -> Arrays:
        """θ, the centre with its gradient, and the step at which it was set."""
        return {
            "theta": self.theta.copy(),
            "centre": self.centre.copy(),
            "reference": self.reference.copy(),
            "steps": np.array([self.steps, self.referred], np.int64),
        }

    def restore_state(self, arrays: Arrays) -> None:
        """Restore the topics from `state`."""
        self.theta, self.centre = arrays["theta"].copy(), arrays["centre"].copy()
        self.reference = arrays["reference"].copy()
        self.steps, self.referred = (int(number) for number in arrays["steps"])
        self._at_centre = None


def likelihood_gradient(theta: Array, words: Array, counts: Array, scale: float) -> Array:
    """scale (n_kw - n_k ω_kw) at ω = softmax(θ), for all words; n is 0 except for `words`."""
    totals = counts.sum(axis=0, dtype=np.float64).astype(np.float32)
    out = np.exp(theta - _log_sums(theta))
    out *= -np.float32(scale) * totals
    out[words] += np.float32(scale) * counts
    return out


def _log_sums(theta: Array) -> Array:
    """log Σ_w e^θ of each topic; an error if it is not finite."""
    highest = theta.max(axis=0)
    sums = np.exp(theta - highest).sum(axis=0, dtype=np.float64)
    if not np.all(np.isfinite(sums)):
        raise diverged(sums)
    return highest + np.log(sums).astype(np.float32)
