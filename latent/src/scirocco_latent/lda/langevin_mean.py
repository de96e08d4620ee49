r"""Langevin and Hamiltonian samplers of topics in the expanded-mean parametrisation (Patterson & Teh 2013).

θ_kw ~ Gamma(β, 1) a priori, ω_kw = θ_kw / θ_k with θ_k = Σ_w θ_kw. Given counts n, and with a_kw = β + n_kw,

    log p(θ | n) = Σ_kw [(a_kw - 1) log θ_kw - θ_kw] - Σ_k n_k log θ_k,
    g_kw = ∂ log p / ∂θ_kw = (a_kw - 1)/θ_kw - 1 - n_k/θ_k,

under which ω ~ Dirichlet(β + n), independent of θ_k ~ Gamma(Vβ, 1). Steps below 0 are reflected.

Forces like 1/θ cannot be discretised near 0. They are held constant where θ is below the distance that noise moves a
word in one step: √(2ε) for SGLD, ε for SGHMC, √θ = ε for SGRHMC. SGRLD and SCIR need no such rule.
"""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from scirocco.errors import DivergenceError
from scirocco.simplex.tables import reflected
from scirocco_latent.lda.topics import Arrays, Topics, normalised

Array = np.ndarray

_TINY = np.float32(np.finfo(np.float32).tiny)


class ExpandedMean(Topics):
    """Base class of samplers with θ > 0: ω from θ, and the likelihood's drift; θ is (words, topics), float32."""

    def __init__(self, theta: Array, beta: float):
        self.theta, self.beta = np.ascontiguousarray(theta, np.float32), np.float32(beta)

    def read(self, words: Array, seed: tuple[int, int]) -> Array:
        """ω of these words at the current θ."""
        return self.theta[words] / self._sums()

    def draw(self, seed: tuple[int, int]) -> Array:
        """ω of all words at the current θ."""
        return normalised(self.theta)

    def state(self) -> Arrays:
        """θ."""
        return {"theta": self.theta.copy()}

    def restore_state(self, arrays: Arrays) -> None:
        """Restore the topics from `state`."""
        self.theta = arrays["theta"].copy()

    def _sums(self) -> Array:
        """θ_k."""
        sums = self.theta.sum(axis=0, dtype=np.float64)
        if not np.all(np.isfinite(sums)):
            raise diverged(sums)
        return np.maximum(sums, _TINY).astype(np.float32)

    def _pull(self, counts: Array, scale: float) -> Array:
        """1 + n_k/θ_k, with n_k from the batch: the rate at which each word of a topic is pulled towards 0."""
        totals = counts.sum(axis=0, dtype=np.float64).astype(np.float32)
        return 1.0 + np.float32(scale) * totals / self._sums()

    def gradient(self, words: Array, counts: Array, scale: float, floor: np.float32 | Array = _TINY) -> Array:
        """The estimate of g_kw, with θ held at `floor` in 1/θ."""
        length = np.maximum(self.theta, np.float32(floor))
        out = _over(self.beta - 1.0, words, np.float32(scale) * counts, length)
        out -= self._pull(counts, scale)
        return out

    @abc.abstractmethod
    def update(self, words: Array, counts: Array, scale: float, time: float, seed: tuple[int, int]) -> None:
        """A step of length `time`, given the counts (words, topics) of a batch."""


class SGRLDTopics(ExpandedMean):
    r"""Riemannian Langevin dynamics (Patterson & Teh 2013): D = diag(θ), so Γ = 1.

    .. math:: θ' = |θ + ε\,(a_{kw} - θ_{kw}(1 + n_k/θ_k)) + \sqrt{2εθ}\,ξ|

    ε has no factor ½: it is half of the value in their paper, and the same as in their code.
    """

    def update(self, words: Array, counts: Array, scale: float, time: float, seed: tuple[int, int]) -> None:
        """One step of all words."""
        drift = self.beta - self.theta * self._pull(counts, scale)
        drift[words] += np.float32(scale) * counts
        self.theta = reflected(np)(self.theta, drift, np.float32(time), normals(seed, self.theta.shape))


class SGLDTopics(ExpandedMean):
    r"""Langevin dynamics without a metric (Ma, Chen & Fox 2015, figure 3): D = 1, Γ = 0.

    .. math:: θ' = |θ + ε\,g_{kw} + \sqrt{2ε}\,ξ|

    with 1/max(θ, √(2ε)) for 1/θ in g. The rarest word, whose θ is the smallest, limits the step size; frequent words
    then hardly move.
    """

    def update(self, words: Array, counts: Array, scale: float, time: float, seed: tuple[int, int]) -> None:
        """One step of all words."""
        step = np.float32(time)
        change = normals(seed, self.theta.shape)
        change *= np.sqrt(2.0 * step)
        change += step * self.gradient(words, counts, scale, np.sqrt(2.0 * step))
        change += self.theta
        self.theta = np.abs(change, out=change)


class _WithMomentum(ExpandedMean):
    """Base class of samplers with a momentum r, N(0, 1) under the target and independent of θ."""

    def __init__(self, theta: Array, beta: float, momentum: Array, friction: float):
        super().__init__(theta, beta)
        self.momentum, self.friction = momentum, np.float32(friction)

    def state(self) -> Arrays:
        """θ and r."""
        return {"theta": self.theta.copy(), "momentum": self.momentum.copy()}

    def restore_state(self, arrays: Arrays) -> None:
        """Restore the topics from `state`."""
        self.theta, self.momentum = arrays["theta"].copy(), arrays["momentum"].copy()

    def update(self, words: Array, counts: Array, scale: float, time: float, seed: tuple[int, int]) -> None:
        """One step of all words: force, half a move, friction and noise, the other half."""
        step = np.float32(time)
        force = self.force_on(words, counts, scale, step)
        force *= step
        self.momentum += force
        self.glide(0.5 * step)
        kept = np.exp(-step * self._rate())
        noise = normals(seed, self.theta.shape)
        noise *= np.sqrt(1.0 - kept * kept)
        self.momentum *= kept
        self.momentum += noise
        self.glide(0.5 * step)

    @abc.abstractmethod
    def force_on(self, words: Array, counts: Array, scale: float, step: np.float32) -> Array:
        """The force on r."""

    @abc.abstractmethod
    def _rate(self) -> Any:
        """Rate of friction: r decays as e^(-rate · time) and is refreshed by noise."""

    @abc.abstractmethod
    def glide(self, time: np.float32) -> None:
        """Move θ along r, which changes sign where θ is reflected."""


class SGHMCTopics(_WithMomentum):
    r"""Hamiltonian dynamics with friction: D = C in r, Q = [[0, -1], [1, 0]].

    .. math::
        r^+ = r + ε\,g_{kw}, \quad θ^+ = |θ + ½ε r^+|, \quad r' = e^{-Cε} r^+ + \sqrt{1 - e^{-2Cε}}\,ξ, \quad
        θ' = |θ^+ + ½ε r'|

    (r changes sign where θ is reflected; 1/max(θ, ε) for 1/θ in g.) Targets p(θ | n) N(r; 0, 1) as ε → 0, for every
    C: as Cε grows, it becomes SGLD with the step ε²/2. Its ε is comparable to the square root of SGLD's.

    Parameters
    ----------
    friction
        C, a rate. The counts of a batch add noise of variance ε² Var(ĝ) per step to r, so that its temperature is
        1 + ε Var(ĝ)/(2C): C must be large compared with ε Var(ĝ)/2.
    """

    def force_on(self, words: Array, counts: Array, scale: float, step: np.float32) -> Array:
        """The force on the coordinates of this mirror."""
        return self.gradient(words, counts, scale, step)

    def _rate(self) -> Any:
        return self.friction

    def glide(self, time: np.float32) -> None:
        """Move along the momentum for this time."""
        moved = self.theta + time * self.momentum
        np.negative(self.momentum, out=self.momentum, where=moved < 0)
        self.theta = np.abs(moved, out=moved)


class SGRHMCTopics(_WithMomentum):
    r"""Riemannian Hamiltonian dynamics (Ma, Chen & Fox 2015, §4.2), with G = diag(1/θ).

    In the recipe D = θ + C for r, Q = [[0, -√θ], [√θ, 0]] and Γ_r = 1/(2√θ):

    .. math::
        r^+ = r + ε\,[(a_{kw} - ½)/\sqrt{θ} - \sqrt{θ}(1 + n_k/θ_k)], \quad \sqrt{θ^+} = |\sqrt{θ} + ¼ε r^+|, \quad
        r' = e^{-(θ^+ + C)ε} r^+ + \sqrt{1 - e^{-2(θ^+ + C)ε}}\,ξ, \quad \sqrt{θ'} = |\sqrt{θ^+} + ¼ε r'|

    The paper's Algorithm 1 with three changes that vanish with ε: the momentum moves first, friction and noise are
    exact and in the middle of a step, and θ' = θ + ε√θ r + (ε r/2)² (in two halves), which is never negative (r changes
    sign with the root). Targets p(θ | n) N(r; 0, 1) as ε → 0; as Cε grows, it becomes SGRLD with the step ε²/2.

    Parameters
    ----------
    friction
        C >= 0, added to the paper's D = G⁻¹ = θ (any block D of r that does not depend on r leaves the target
        unchanged). Without it, words with small θ have almost no friction, and the noise of a batch, of variance ε²
        scale n/θ per step, heats them without limit.
    """

    def force_on(self, words: Array, counts: Array, scale: float, step: np.float32) -> Array:
        """The force on the coordinates of this mirror."""
        root = np.sqrt(self.theta)
        force = _over(self.beta - 0.5, words, np.float32(scale) * counts, np.maximum(root, step))
        force -= root * self._pull(counts, scale)
        return force

    def _rate(self) -> Any:
        return self.theta + self.friction

    def glide(self, time: np.float32) -> None:
        """Move along the momentum for this time."""
        root = np.sqrt(self.theta)
        root += 0.5 * time * self.momentum
        np.negative(self.momentum, out=self.momentum, where=root < 0)
        self.theta = np.square(root, out=root)


def normals(seed: tuple[int, int], shape: tuple[int, ...]) -> Array:
    """Standard normals, determined by a pair of seed words."""
    return np.random.Generator(np.random.SFC64(list(seed))).standard_normal(shape, np.float32)


def _over(prior: np.float32, words: Array, counts: Array, length: Array) -> Array:
    """(prior + n_kw) / length, where n is given for `words` and 0 for the others."""
    out = np.float32(prior) / length
    out[words] += counts / length[words]
    return out


def diverged(sums: Array) -> DivergenceError:
    """The error for topics whose sums are not finite."""
    topic = int(np.argmin(np.isfinite(sums)))
    return DivergenceError(
        f"topic {topic} (counted from 0) diverged (NaN or inf): the step size is too large for this sampler. Try a "
        "`step_size` ten times smaller, or sampler='scir', which is stable for any step size."
    )
