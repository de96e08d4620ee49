"""The formulas that the papers print, to compare with `moments` and `conditional_variance`.

Baker et al. (2018) is the SCIR paper, Barile & Nemeth the SCIR-CV paper; equation numbers are those of the latter.
All formulas are for one step size. We checked the derivations; the results:

- the mean and variance of SCIR (26) are exact;
- the means (8) and (20) of SCIR-CV are exact;
- the variances (9) and (21) are E[Var(θ_M | batches)]. The term Var(E[θ_M | batches]) is left out. For (i) it is small.
  For (ii) it is large before the chain is stationary, if θ₀ is far from a: in the paper's own example 26.9 is printed
  for M = 5, where the variance is 45.8;
- as E[Var(θ_M | batches)] both are right for every M >= 0, with the constants C₁, C₂, C₃ as proved. In
  our copy of (21) the first denominator of C₃ begins with e^(-t) M(2t), where the proof has e^(-t) M(t) - e^(-2t) M(2t)
  and only that agrees with the recursion; it is what `scir_cv_2` has;
- (8) and (9) assume b̂ > 0, which â < 1 < a violates; the sampler then uses (ii), the formula does not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scirocco.errors import InvalidValueError
from scirocco.simplex.theory.counts import Counts
from scirocco.simplex.theory.recursions import Moments, exact_moments
from scirocco.simplex.theory.steps import Times, check_process, rates, transition


def scir(theta0: float, counts: Counts, step_size: float, num_steps: ArrayLike) -> Moments:
    """Corollary 4.2 of the SCIR paper, (26): Var[θ_M] + (1 - e^(-2Mh)) (1 - e^(-h))/(1 + e^(-h)) Var(â); exact.

    Parameters
    ----------
    theta0, counts, num_steps
        As for `theory.moments`.
    step_size
        h, one number.

    Examples
    --------
    >>> from scirocco.simplex import theory
    >>> counts = theory.Counts.hypergeometric(0.1, count=150, num_rows=1000, batch_size=100)
    >>> round(theory.papers.scir(7.67, counts, 0.1, 80).variance, 2)
    207.39
    """
    h, powers = _setting("scir", theta0, counts, step_size, num_steps)
    mean, variance = exact_moments(theta0, counts.mean, powers * h)
    inherited = (1 - np.exp(-2 * powers * h)) * (1 - np.exp(-h)) / (1 + np.exp(-h))
    return Moments.plain(mean, variance + inherited * counts.variance)


def scir_cv_1(theta0: float, counts: Counts, step_size: float, num_steps: ArrayLike) -> Moments:
    """(8) and (9) for parametrisation (i): the mean, and E[Var(θ_M | batches)] called the variance.

    (8)  θ₀e^(-Mh) + (1 - e^(-Mh)) (a-1) E[â/(â-1)]
    (9)  2(a-1) E[1/(â-1)] {θ₀C₁ + C₃(a-1) E[â/(â-1)]} + C₂(a-1)² E[â/(â-1)²]

    Parameters
    ----------
    theta0, counts, step_size, num_steps
        As for `scir`; a > 1, and no value of â may be 1.

    Examples
    --------
    >>> from scirocco.simplex import theory
    >>> counts = theory.Counts.hypergeometric(0.1, count=150, num_rows=1000, batch_size=100)
    >>> round(theory.papers.scir_cv_1(7.67, counts, 0.1, 80).variance, 2)
    158.95
    """
    h, powers = _setting("scir_cv", theta0, counts, step_size, num_steps)
    a = _interior(counts)
    if np.any(counts.values == 1):
        raise InvalidValueError(
            "(8) and (9) divide by â - 1, and `counts` has the value 1. Use theory.moments or conditional_variance."
        )
    inverse = counts.expect(lambda values: (a - 1) / (values - 1))
    level = counts.expect(lambda values: (a - 1) * values / (values - 1))
    square = counts.expect(lambda values: (a - 1) ** 2 * values / (values - 1) ** 2)
    c1, c2, c3 = _constants_1(h, powers)
    mean = theta0 * np.exp(-powers * h) + (1 - np.exp(-powers * h)) * level
    return Moments.plain(mean, 2 * inverse * (theta0 * c1 + c3 * level) + c2 * square)


def scir_cv_1_approximate(theta0: float, counts: Counts, step_size: float, num_steps: ArrayLike) -> Moments:
    """(10) and (11): (8) and (9) expanded about a, in σ²(a) = Var(â)/(a-1)².

    (10)  E[θ_M] + (1 - e^(-Mh)) σ²(a)
    (11)  Var[θ_M] + {Var[θ_M] + (1 - e^(-Mh))² + C₂} σ²(a) + 2C₃ σ⁴(a)

    We checked the expansion: it is right to the stated order; E[θ_M] and Var[θ_M] are those of the exact process.

    Parameters
    ----------
    theta0, counts, step_size, num_steps
        As for `scir`; a > 1.

    Examples
    --------
    >>> from scirocco.simplex import theory
    >>> counts = theory.Counts.hypergeometric(0.1, count=150, num_rows=1000, batch_size=100)
    >>> round(theory.papers.scir_cv_1_approximate(7.67, counts, 0.1, 80).variance, 2)
    157.81
    """
    h, powers = _setting("scir_cv", theta0, counts, step_size, num_steps)
    ratio = _relative_variance(counts)
    mean, variance = exact_moments(theta0, counts.mean, powers * h)
    gone = 1 - np.exp(-powers * h)
    _, c2, c3 = _constants_1(h, powers)
    return Moments.plain(mean + gone * ratio, variance + (variance + gone**2 + c2) * ratio + 2 * c3 * ratio**2)


def scir_cv_2(theta0: float, counts: Counts, step_size: float, num_steps: ArrayLike) -> Moments:
    """(20) and (21) for parametrisation (ii): the mean, and E[Var(θ_M | batches)] called the variance.

    With q₁ = E[e^(-hb̂)], q₂ = E[e^(-2hb̂)], written as e^(-t) M(t) and e^(-2t) M(2t) in the paper, t = -h/(a-1):

    (20)  θ₀q₁^M + (1 - q₁^M)/(1 - q₁) E[â(1 - e^(-hb̂))/b̂]
    (21)  2E[(e^(-hb̂) - e^(-2hb̂))/b̂] {θ₀C₁ + E[â(1 - e^(-hb̂))/b̂] C₃} + E[â((1 - e^(-hb̂))/b̂)²] C₂

    Parameters
    ----------
    theta0, counts, step_size, num_steps
        As for `scir`; a > 1.

    Examples
    --------
    >>> from scirocco.simplex import theory
    >>> counts = theory.Counts.hypergeometric(0.1, count=150, num_rows=1000, batch_size=100)
    >>> round(theory.papers.scir_cv_2(7.67, counts, 0.1, 5).variance, 2)
    26.88
    """
    h, powers = _setting("scir_cv", theta0, counts, step_size, num_steps)
    t = -h / (_interior(counts) - 1)
    q1 = np.exp(-t) * float(counts.mgf(t))
    q2 = np.exp(-2 * t) * float(counts.mgf(2 * t))
    decay, gain = transition(rates(counts.values, counts.mean), h, 2)
    push = counts.expect(lambda values: values * gain)
    c1 = (q1**powers - q2**powers) / (q1 - q2)
    c2 = (1 - q2**powers) / (1 - q2)
    first = (q1**powers - q1**3) / ((q1 - q2) * (q1 - 1))
    c3 = 1 + q1 + q2 + first - (q2**powers - q2**3) / ((q1 - q2) * (q2 - 1))
    mean = theta0 * q1**powers + (1 - q1**powers) / (1 - q1) * push
    cross = counts.expect(lambda _: decay * gain)
    square = counts.expect(lambda values: values * gain**2)
    return Moments.plain(mean, 2 * cross * (theta0 * c1 + push * c3) + square * c2)


def stationary_bias(counts: Counts, step_size: float, parametrization: int = 2) -> float:
    """The mean in the limit minus a, to first order in σ²(a): as printed after (12) for (i) and after (21) for (ii).

    (i) σ²(a);  (ii) σ²(a) (1 - e^(-h)(1 + h)) / (1 - e^(-h)(1 + h²σ²(a)/2)). We checked both: they are right.

    Parameters
    ----------
    counts
        The distribution of the estimate â, a > 1.
    step_size
        h, one number; (i) does not depend on it.
    parametrization
        1 or 2.

    Examples
    --------
    >>> from scirocco.simplex import theory
    >>> counts = theory.Counts.hypergeometric(0.1, count=150, num_rows=1000, batch_size=100)
    >>> round(theory.papers.stationary_bias(counts, 0.1), 5)
    0.00255
    """
    h, _ = _setting("scir_cv", 0.0, counts, step_size, 0)
    ratio = _relative_variance(counts)
    if parametrization == 1:
        return ratio
    if parametrization != 2:
        raise InvalidValueError(f"`parametrization` must be 1 or 2, got {parametrization!r}.")
    return float(ratio * (1 - np.exp(-h) * (1 + h)) / (1 - np.exp(-h) * (1 + h**2 * ratio / 2)))


def _constants_1(h: float, powers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """C₁, C₂, C₃ of (9)."""
    one, many = np.exp(-h), np.exp(-powers * h)
    c1 = many - many**2
    c2 = (1 - one) ** 2 * (1 - many**2) / (1 - one**2)
    first = (many - one) / ((1 - one) * (one - 1))
    c3 = (1 - one) ** 2 * (first - (many**2 - one**2) / ((1 - one) * (one**2 - 1)))
    return c1, c2, c3


def _setting(
    process: str, theta0: float, counts: Counts, step_size: ArrayLike, num_steps: ArrayLike
) -> tuple[float, np.ndarray]:
    """Check the arguments; h, and the numbers of steps as floats."""
    check_process(process, counts, theta0)
    times = Times.of(step_size, num_steps)
    if not isinstance(times.sizes, float):
        raise InvalidValueError("the papers' formulas are for one step size. Use theory.moments for a schedule.")
    return times.sizes, times.numbers.astype(np.float64)


def _interior(counts: Counts) -> float:
    if counts.mean <= 1:
        raise InvalidValueError(
            f"the papers' formulas for SCIR-CV require a > 1, got {counts.mean:g}: below there is no mode to expand "
            "about, and the sampler is plain SCIR."
        )
    return counts.mean


def _relative_variance(counts: Counts) -> float:
    return counts.variance / (_interior(counts) - 1) ** 2
