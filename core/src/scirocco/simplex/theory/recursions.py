"""Mean and variance of SCIR and SCIR-CV after M steps and in the limit, for independent batches.

With decay e and gain g of a step (`transition`), c = âg, and θ independent of the batch of the next step:

    m' = E[e] m + E[c]
    V' = E[e²] V + E[2eg] m + E[âg²] + Var(em + c)

The last term is the effect of the minibatch on the mean. Without it the recursion gives only E[Var(θ | batches)], which
the papers print as the variance of SCIR-CV.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scirocco._checks import positive
from scirocco.simplex.theory.counts import Counts
from scirocco.simplex.theory.steps import Times, check_process, rates, transition


class Moments(NamedTuple):
    """Mean and variance: floats, or arrays of the shape of `num_steps`."""

    mean: Any
    variance: Any

    @classmethod
    def plain(cls, mean: Any, variance: Any) -> Moments:
        """Moments with arrays without axes as floats."""
        return cls(_plain(mean), _plain(variance))


class _Step(NamedTuple):
    """The coefficients of the two recursions for a step."""

    decay: float
    decay_squared: float
    push: float
    slope: float
    noise: float
    variance_of_decay: float
    covariance: float
    variance_of_push: float

    @classmethod
    def of(cls, counts: Counts, step_size: float, parametrization: int) -> _Step:
        e, g = transition(rates(counts.values, counts.mean), step_size, parametrization)
        p, c = counts.probabilities, counts.values * g
        with np.errstate(over="ignore", invalid="ignore"):
            decay, push = p @ e, p @ c
            return cls(
                decay=float(decay),
                decay_squared=float(p @ e**2),
                push=float(push),
                slope=float(p @ (2 * e * g)),
                noise=float(p @ (c * g)),
                variance_of_decay=float(p @ (e - decay) ** 2),
                covariance=float(p @ ((e - decay) * (c - push))),
                variance_of_push=float(p @ (c - push) ** 2),
            )

    def within(self, mean: float) -> float:
        """The term that a step adds to E[Var(θ | batches)]."""
        return self.slope * mean + self.noise

    def between(self, mean: float) -> float:
        """Var(em + c), the term that a step adds to Var(E[θ | batches])."""
        return self.variance_of_decay * mean * mean + 2 * self.covariance * mean + self.variance_of_push


def moments(
    process: str, theta0: float, counts: Counts, step_size: ArrayLike, num_steps: ArrayLike, parametrization: int = 2
) -> Moments:
    """Mean and variance of θ after M steps from θ₀, exact for independent batches.

    The exact CIR process has E[θ_M] = θ₀e^(-T) + a(1 - e^(-T)) and Var[θ_M] = 2θ₀(e^(-T) - e^(-2T)) + a(1 - e^(-T))²,
    T = Mh; it tends to Gamma(a, 1). SCIR has the same mean, and (1 - e^(-2T)) tanh(h/2) Var(â) more variance. For
    SCIR-CV uses the recursions at the top of this module: a <= 1 is plain SCIR, b̂ <= 0 in (i) is a step of (ii),
    b̂ = 0 is the limit. (`sc.SCIRCV` also uses plain SCIR for rare components; here control is always used.)

    Parameters
    ----------
    process
        "exact", "scir" or "scir_cv".
    theta0
        θ₀ >= 0, the start of the chain.
    counts
        The distribution of the estimate â of this component.
    step_size
        h, in the time of the process (its relaxation time is one); or an array, an entry for each step.
    num_steps
        M >= 0, a number or an array of numbers.
    parametrization
        For SCIR-CV: 1 (b = 1, σ² = 2/b̂) or 2 (b = b̂, σ² = 2). The other processes have only one.

    Returns
    -------
    Moments
        `mean` and `variance`; infinite if they exceed the largest float.

    Examples
    --------
    >>> from scirocco.simplex import theory
    >>> counts = theory.Counts.hypergeometric(0.1, count=150, num_rows=1000, batch_size=100)
    >>> round(theory.moments("scir_cv", 7.67, counts, 0.1, 5).variance, 2)
    45.81
    >>> theory.moments("exact", 7.67, counts, 0.1, [0, 5, 300]).variance.round(2)
    array([  0. ,  26.9, 150.1])
    """
    theta0, times = check_process(process, counts, theta0), Times.of(step_size, num_steps)
    if process == "scir_cv":
        mean, variance, _ = _recursion(theta0, counts, times, parametrization)
    else:
        mean, variance = exact_moments(theta0, counts.mean, times.elapsed)
        if process == "scir":
            variance = variance + counts.variance * _inherited(times)
    return Moments.plain(mean, variance)


def conditional_variance(
    process: str, theta0: float, counts: Counts, step_size: ArrayLike, num_steps: ArrayLike, parametrization: int = 2
) -> Any:
    """E[Var(θ_M | batches)]: the part of the variance that remains given the batches.

    Var[θ_M] = E[Var(θ_M | batches)] + Var(E[θ_M | batches]). The variance in the SCIR-CV paper, its
    equations (9) and (21), is the first term; here it is by recursion, also for schedules and for b̂ <= 0. For SCIR it
    is the variance of the exact process.

    Parameters
    ----------
    process, theta0, counts, step_size, num_steps, parametrization
        As for `moments`.

    Examples
    --------
    >>> from scirocco.simplex import theory
    >>> counts = theory.Counts.hypergeometric(0.1, count=150, num_rows=1000, batch_size=100)
    >>> round(theory.conditional_variance("scir_cv", 7.67, counts, 0.1, 5), 2)
    26.88
    """
    theta0, times = check_process(process, counts, theta0), Times.of(step_size, num_steps)
    if process == "scir_cv":
        _, _, within = _recursion(theta0, counts, times, parametrization)
    else:
        _, within = exact_moments(theta0, counts.mean, times.elapsed)
    return _plain(within)


def stationary(process: str, counts: Counts, step_size: float, parametrization: int = 2) -> Moments:
    """Mean and variance in the limit of many steps of one size.

    m = E[c] / (1 - E[e]),  V = (E[2eg] m + E[âg²] + Var(em + c)) / (1 - E[e²]), where the target Gamma(a, 1) has a and
    a. SCIR-CV has no mean in the limit if E[e] >= 1 and no variance if E[e²] >= 1; the result is then infinite. That
    happens for categories that most batches lack: b̂ < 0 in most steps, and θ grows in those. Under (ii) the few steps
    with a large b̂ bring it back (E[log e] = -h), from far away; under (i) they shrink it by e^(-h) only, and θ may
    diverge. Plain SCIR always has both moments, and is the better choice if its variance is smaller.

    Parameters
    ----------
    process, counts, parametrization
        As for `moments`.
    step_size
        h, one number.

    Examples
    --------
    >>> from scirocco.simplex import theory
    >>> counts = theory.Counts.hypergeometric(0.1, count=150, num_rows=1000, batch_size=100)
    >>> round(theory.stationary("scir_cv", counts, 0.1).variance, 2)
    150.86
    >>> rare = theory.Counts.hypergeometric(0.1, count=10, num_rows=1000, batch_size=10)
    >>> theory.stationary("scir_cv", rare, 2.0).mean
    inf
    """
    check_process(process, counts, 0.0)
    positive(step_size, "step_size")
    if process != "scir_cv":
        mean = counts.mean
        excess = np.tanh(float(step_size) / 2) * counts.variance if process == "scir" else 0.0
        return Moments(mean, float(mean + excess))
    step = _Step.of(counts, float(step_size), parametrization)
    if not step.decay < 1:
        return Moments(np.inf, np.inf)
    mean = step.push / (1 - step.decay)
    if not step.decay_squared < 1:
        return Moments(mean, np.inf)
    return Moments(mean, (step.within(mean) + step.between(mean)) / (1 - step.decay_squared))


def inflation(process: str, counts: Counts, step_size: float, parametrization: int = 2) -> float:
    """Stationary variance over a, the variance of the target Gamma(a, 1): one for an exact sampler.

    Parameters
    ----------
    process, counts, step_size, parametrization
        As for `stationary`.

    Examples
    --------
    >>> from scirocco.simplex import theory
    >>> counts = theory.Counts.hypergeometric(0.1, count=150, num_rows=1000, batch_size=100)
    >>> [round(theory.inflation(name, counts, 0.1), 3) for name in ("exact", "scir", "scir_cv")]
    [1.0, 1.382, 1.005]
    """
    return stationary(process, counts, step_size, parametrization).variance / counts.mean


class Correction(NamedTuple):
    """Factor κ of the shape and scale s of the noise of a corrected step."""

    factor: float
    scale: float


def correction(counts: Counts, step_size: float, parametrization: int = 2) -> Correction:
    """κ and s with which dθ = (κâ - b̂θ) dt + √(2sθ) dW has mean and variance a in the limit, exactly.

    The fixed points m = a and V = a of the recursions with âκ for â and noise s,

        κ = a (1 - E[e]) / E[âg],    s = (a (1 - E[e²]) - Var(ea + κâg)) / (2a E[eg] + κ E[âg²]),

    so κ > 0 if E[e] < 1, and there is a process if s > 0: the batches alone must not make more variance than the target
    has. Without control (a <= 1) κ = 1 and s = 1 - tanh(h/2) Var(â)/a. `sc.SCIRCV(corrected=True)` uses an
    approximation of the distribution of â.

    Parameters
    ----------
    counts
        The distribution of the estimate â of this component.
    step_size
        h, one number.
    parametrization
        1 or 2.

    Examples
    --------
    >>> from scirocco.simplex import theory
    >>> counts = theory.Counts.hypergeometric(0.1, count=100, num_rows=1000, batch_size=10)
    >>> factor, scale = theory.correction(counts, 0.5)
    >>> round(factor, 3), round(scale, 3)
    (0.998, 0.68)
    """
    positive(step_size, "step_size")
    step, a = _Step.of(counts, float(step_size), parametrization), counts.mean
    factor = a * (1.0 - step.decay) / step.push
    ends = step.variance_of_decay * a * a + 2 * factor * step.covariance * a + factor**2 * step.variance_of_push
    return Correction(factor, (a * (1.0 - step.decay_squared) - ends) / (step.slope * a + factor * step.noise))


def exact_moments(theta0: float, shape: float, elapsed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the exact process after some time."""
    left, gone = np.exp(-elapsed), -np.expm1(-elapsed)
    return theta0 * left + shape * gone, 2 * theta0 * left * gone + shape * gone**2


def _inherited(times: Times) -> np.ndarray:
    """Σ_m (1 - e_m)² Π_{l > m} e_l², the share of Var(â) that SCIR inherits."""
    if isinstance(times.sizes, float):
        return -np.expm1(-2 * times.elapsed) * np.tanh(times.sizes / 2)
    shares = [0.0]
    for size in times.each():
        shares.append(np.exp(-2 * size) * shares[-1] + np.expm1(-size) ** 2)
    return np.array(shares)[times.numbers]


def _recursion(theta0: float, counts: Counts, times: Times, parametrization: int) -> tuple[np.ndarray, ...]:
    """Mean, variance and E[Var(θ | batches)] after the given numbers of steps."""
    fixed = _Step.of(counts, times.sizes, parametrization) if isinstance(times.sizes, float) else None
    mean, variance, within = theta0, 0.0, 0.0
    rows = [(mean, variance, within)]
    with np.errstate(over="ignore", invalid="ignore"):
        for size in times.each():
            step = fixed or _Step.of(counts, float(size), parametrization)
            within = step.decay_squared * within + step.within(mean)
            variance = step.decay_squared * variance + step.within(mean) + step.between(mean)
            mean = step.decay * mean + step.push
            rows.append((mean, variance, within))
    found = np.array(rows)
    found[np.isnan(found)] = np.inf  # all inputs are finite: NaN comes from an overflow
    return tuple(found[times.numbers].T if times.numbers.ndim < 2 else np.moveaxis(found[times.numbers], -1, 0))


def _plain(array: Any) -> Any:
    return array if np.ndim(array) else float(array)
