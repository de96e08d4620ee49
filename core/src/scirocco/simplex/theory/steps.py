"""One step of the exact CIR process, of SCIR and of SCIR-CV, and moment generating functions after M of them.

A step with shape â has, for all of them, the same distribution with different decay and gain:

    θ' | θ, â  ~  (g/2) χ²(2â, 2θe/g),   E = eθ + âg,   Var = 2egθ + âg²,
    E[exp(sθ')] = (1 - sg)^(-â) exp(θ se/(1 - sg))   for s < 1/g

| process      | decay e  | gain g          |
|--------------|----------|-----------------|
| exact, SCIR  | e^(-h)   | 1 - e^(-h)      |
| SCIR-CV (i)  | e^(-h)   | (1 - e^(-h))/b̂  |
| SCIR-CV (ii) | e^(-b̂h)  | (1 - e^(-b̂h))/b̂ |

with b̂ = (â-1)/(a-1). Everything else in this package follows from these lines. Given the batches, steps compose: with
e_m, g_m as above,

    E[exp(sθ_M) | batches] = exp(θ₀ s d/(1 - sG_M)) Π_j [(1 - sG_j)/(1 - sG_(j-1))]^(-â_(M-j+1)),
    G_j = Σ_{i <= j} g_(M-i+1) Π_{l < i} e_(M-l+1),   d = Π_m e_m

for s < 1/G_M. With e^(-h) and 1 - e^(-h) this is theorem 4.1 of the SCIR paper, and G_j = 1 - e^(-jh) does not depend
on the batches, so that the mean over them is a product. For SCIR-CV it is theorems 1 and 2, and G_j depends on them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scirocco._checks import choice, is_number, positive, positive_int
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.simplex.theory.counts import Counts

PROCESSES = ("exact", "scir", "scir_cv")


class Transition(NamedTuple):
    """Decay e and gain g of a step, for each value of â."""

    decay: np.ndarray
    gain: np.ndarray


def rates(shapes: ArrayLike, mean: float) -> np.ndarray:
    """b̂ = (â-1)/(a-1); one if a <= 1, as there is no mode inside and SCIR-CV is SCIR.

    Parameters
    ----------
    shapes
        â, an array.
    mean
        a, the parameter of the full data.

    Examples
    --------
    >>> from scirocco.simplex.theory import rates
    >>> rates([0.1, 1.0, 5.5], mean=4.0)
    array([-0.3,  0. ,  1.5])
    """
    shapes = np.asarray(shapes, np.float64)
    return (shapes - 1) / (mean - 1) if mean > 1 else np.ones_like(shapes)


def transition(rate: ArrayLike, step_size: ArrayLike, parametrization: int = 2) -> Transition:
    """Decay and gain of a step of SCIR-CV; with rate 1 also of SCIR and of the exact process.

    Parametrisation (i) has no process for b̂ <= 0: such a step is one of (ii). At b̂ = 0 the gain of (ii) is h.

    Parameters
    ----------
    rate
        b̂, an array, see `rates`.
    step_size
        h, in the time of the process (its relaxation time is one).
    parametrization
        1 or 2.

    Examples
    --------
    >>> from scirocco.simplex.theory import transition
    >>> transition(0.0, step_size=0.1).gain
    array(0.1)
    """
    if parametrization not in (1, 2):
        raise InvalidValueError(f"`parametrization` must be 1 or 2, got {parametrization!r}.")
    rate = np.asarray(rate, np.float64)
    speed = np.where(rate > 0, 1.0, rate) if parametrization == 1 else rate  # b of the process
    divisor = np.where(rate == 0, 1.0, rate)
    with np.errstate(over="ignore"):
        gain = np.where(rate == 0, step_size, -np.expm1(-speed * step_size) / divisor)
        return Transition(np.exp(-speed * step_size), gain)


def check_process(process: str, counts: Counts, theta0: float) -> float:
    """Check the common arguments; θ₀ as a float."""
    choice(process, "process", PROCESSES)
    if not isinstance(counts, Counts):
        raise InvalidTypeError(
            f"`counts` must be a distribution of the estimate such as Counts.hypergeometric(...), got {counts!r}."
        )
    positive(theta0, "theta0", allow_zero=True)
    return float(theta0)


@dataclasses.dataclass(frozen=True)
class Times:
    """The requested numbers of steps, and the step sizes."""

    numbers: np.ndarray
    """Numbers of steps, any shape."""
    sizes: float | np.ndarray
    """One size for all steps, or one for each step."""

    @classmethod
    def of(cls, step_size: ArrayLike, num_steps: ArrayLike) -> Times:
        """Check both; a schedule must be as long as the longest number of steps."""
        numbers = _numbers(num_steps)
        longest = int(numbers.max(initial=0))
        if is_number(step_size):
            positive(step_size, "step_size")
            return cls(numbers, float(step_size))  # type: ignore[arg-type]
        try:
            sizes = np.asarray(step_size, np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidTypeError(f"`step_size` must be a number or an array, got {step_size!r}.") from error
        if sizes.ndim != 1 or sizes.size < longest:
            raise InvalidValueError(
                f"`step_size` must be a number or have an entry for each of the {longest} steps, "
                f"got shape {sizes.shape}."
            )
        if not np.all(np.isfinite(sizes) & (sizes > 0)):
            raise InvalidValueError("`step_size` must be finite and > 0 in all steps.")
        return cls(numbers, sizes[:longest])

    @property
    def elapsed(self) -> np.ndarray:
        """Time of the process after the requested numbers of steps."""
        if isinstance(self.sizes, float):
            return self.numbers * self.sizes
        return np.concatenate([[0.0], np.cumsum(self.sizes)])[self.numbers]

    def each(self) -> np.ndarray:
        """The sizes of all steps up to the longest number."""
        return np.broadcast_to(self.sizes, (int(self.numbers.max(initial=0)),))


def _numbers(num_steps: ArrayLike) -> np.ndarray:
    if np.ndim(num_steps) == 0:
        return np.asarray(positive_int(num_steps, "num_steps", minimum=0))
    numbers = np.asarray(num_steps)
    if not np.issubdtype(numbers.dtype, np.integer):
        raise InvalidTypeError(f"`num_steps` must be whole numbers (int), got {num_steps!r}.")
    if np.any(numbers < 0):
        raise InvalidValueError(f"`num_steps` must be at least 0, got {numbers.min()}.")
    return numbers


def mgf(process: str, s: ArrayLike, theta0: float, counts: Counts, step_size: ArrayLike, num_steps: int) -> Any:
    """E[exp(s θ_M)] of the exact process and of SCIR, averaged over independent batches.

    Parameters
    ----------
    process
        "exact" or "scir"; for SCIR-CV there is `conditional_mgf`.
    s
        Real or complex, a number or an array, its real part below 1/(1 - e^(-Mh)).
    theta0
        θ₀ >= 0, the start of the chain.
    counts
        The distribution of the estimate â of this component.
    step_size
        h, in the time of the process; or an array, an entry for each step.
    num_steps
        M, one number.

    Examples
    --------
    >>> from scirocco.simplex import theory
    >>> counts = theory.Counts.hypergeometric(0.1, count=150, num_rows=1000, batch_size=100)
    >>> slope = theory.mgf("scir", 1e-20j, 7.67, counts, 0.1, 5).imag / 1e-20
    >>> round(float(slope), 6), round(theory.moments("scir", 7.67, counts, 0.1, 5).mean, 6)
    (63.711838, 63.711838)
    """
    theta0, times = check_process(process, counts, theta0), Times.of(step_size, num_steps)
    if process == "scir_cv":
        raise InvalidValueError(
            "the generating function of SCIR-CV averaged over batches has no closed form. "
            "Use conditional_mgf for given batches, or moments for its mean and variance."
        )
    if times.numbers.ndim:
        raise InvalidTypeError(f"`num_steps` must be one whole number here, got {num_steps!r}.")
    sizes = times.each() if process == "scir" else times.elapsed[None]
    s, total, logs = _composed(s, transition(np.ones_like(sizes), sizes))
    if process == "scir":
        powers = counts.log_mgf(-np.diff(logs, axis=-1)).sum(axis=-1)
    else:
        powers = -counts.mean * logs[..., -1]
    return np.exp(theta0 * s * total / np.exp(logs[..., -1]) + powers)[()]


def conditional_mgf(
    s: ArrayLike, theta0: float, shapes: ArrayLike, rates: ArrayLike, step_size: ArrayLike, parametrization: int = 2
) -> Any:
    """E[exp(s θ_M) | batches] of SCIR-CV: theorems 1 and 2 of its paper.

    Parameters
    ----------
    s
        Real or complex, a number or an array, its real part below the pole 1/G_M.
    theta0
        θ₀ >= 0, the start of the chain.
    shapes
        â_1, ..., â_M, all > 0.
    rates
        b̂_1, ..., b̂_M, see `theory.rates`; all ones give SCIR.
    step_size
        h, in the time of the process; or an array, an entry for each step.
    parametrization
        1 or 2; steps with b̂ <= 0 are always of the second.

    Examples
    --------
    >>> from scirocco.simplex import theory
    >>> float(theory.conditional_mgf(0.0, 2.0, [3.0, 4.0], [0.8, 1.2], 0.1))
    1.0
    """
    shapes, rates = np.asarray(shapes, np.float64), np.asarray(rates, np.float64)
    if shapes.ndim != 1 or shapes.shape != rates.shape:
        raise InvalidValueError(
            f"`shapes` and `rates` must have an entry for each step, got shapes {shapes.shape} and {rates.shape}."
        )
    if not np.all(np.isfinite(shapes) & (shapes > 0) & np.isfinite(rates)):
        raise InvalidValueError("`shapes` must be finite and > 0, `rates` finite.")
    theta0 = check_process("scir_cv", Counts.exact(1.0, 0), theta0)
    sizes = Times.of(step_size, len(shapes)).each()
    s, total, logs = _composed(s, transition(rates, sizes, parametrization))
    powers = -np.diff(logs, axis=-1) @ shapes[::-1]
    return np.exp(theta0 * s * total / np.exp(logs[..., -1]) + powers)[()]


def _composed(s: ArrayLike, steps: Transition) -> tuple[np.ndarray, float, np.ndarray]:
    """s as an array, d, and log(1 - sG_j) for j = 0, ..., M on a last axis; the last step of the chain comes first."""
    s = np.asarray(s)
    if not np.issubdtype(s.dtype, np.number):
        raise InvalidTypeError(f"`s` must be a number or an array of numbers, got {s!r}.")
    decays = np.concatenate([[1.0], np.cumprod(steps.decay[::-1])])
    gains = np.concatenate([[0.0], np.cumsum(decays[:-1] * steps.gain[::-1])])
    if not np.all(s.real * gains[-1] < 1):
        raise InvalidValueError(
            f"`s` must be below the pole of the generating function, {1 / gains[-1]:.6g}, got {s.real.max():.6g}: "
            "from there on the expectation is infinite."
        )
    return s, float(decays[-1]), np.log1p(-np.multiply.outer(s, gains))
