"""One step of the exact CIR process, of SCIR and of SCIR-CV: the same law with another decay and gain.

A step with shape â is, for all of them,

    θ' | θ, â  ~  (g/2) χ²(2â, 2θe/g),   E = eθ + âg,   Var = 2egθ + âg²,
    E[exp(sθ')] = (1 - sg)^(-â) exp(θ se/(1 - sg))   for s < 1/g

| process      | decay e  | gain g          |
|--------------|----------|-----------------|
| exact, SCIR  | e^(-h)   | 1 - e^(-h)      |
| SCIR-CV (i)  | e^(-h)   | (1 - e^(-h))/b̂  |
| SCIR-CV (ii) | e^(-b̂h)  | (1 - e^(-b̂h))/b̂ |

with b̂ = (â-1)/(a-1). Everything else in this package follows from these lines.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from scirocco._checks import choice, is_number, positive, positive_int
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.simplex.theory.counts import Counts

PROCESSES = ("exact", "scir", "scir_cv")


class Transition(NamedTuple):
    """Decay e and gain g of a step, for each value of â."""

    decay: np.ndarray
    gain: np.ndarray


def rates(shapes: Any, mean: float) -> np.ndarray:
    """b̂ = (â-1)/(a-1); one where a <= 1, for there is no mode inside and SCIR-CV is SCIR.

    Parameters
    ----------
    shapes
        â, an array.
    mean
        a, the parameter that the full data give.

    Examples
    --------
    >>> from scirocco.simplex.theory import rates
    >>> rates([0.1, 1.0, 5.5], mean=4.0)
    array([-0.3,  0. ,  1.5])
    """
    shapes = np.asarray(shapes, np.float64)
    return (shapes - 1) / (mean - 1) if mean > 1 else np.ones_like(shapes)


def transition(rate: Any, step_size: Any, parametrization: int = 2) -> Transition:
    """Decay and gain of a step of SCIR-CV; with rate 1 those of SCIR and of the exact process.

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


def check_process(process: str, counts: Counts, theta0: Any) -> float:
    """Check what most functions here begin with; θ₀ as a float."""
    choice(process, "process", PROCESSES)
    if not isinstance(counts, Counts):
        raise InvalidTypeError(
            f"`counts` must be a law of the estimate such as Counts.hypergeometric(...), got {counts!r}."
        )
    positive(theta0, "theta0", allow_zero=True)
    return float(theta0)


@dataclasses.dataclass(frozen=True)
class Times:
    """After which steps an answer is wanted, and how long the steps are."""

    numbers: np.ndarray
    """Numbers of steps, any shape."""
    sizes: float | np.ndarray
    """One size for all steps, or as many as there are steps."""

    @classmethod
    def of(cls, step_size: Any, num_steps: Any) -> Times:
        """Check both; a schedule must be as long as the longest number of steps."""
        numbers = _numbers(num_steps)
        longest = int(numbers.max(initial=0))
        if is_number(step_size):
            positive(step_size, "step_size")
            return cls(numbers, float(step_size))
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
        """Time of the process after the wanted numbers of steps."""
        if isinstance(self.sizes, float):
            return self.numbers * self.sizes
        return np.concatenate([[0.0], np.cumsum(self.sizes)])[self.numbers]

    def each(self) -> np.ndarray:
        """The sizes of all steps up to the longest number."""
        return np.broadcast_to(self.sizes, (int(self.numbers.max(initial=0)),))


def _numbers(num_steps: Any) -> np.ndarray:
    if np.ndim(num_steps) == 0:
        return np.asarray(positive_int(num_steps, "num_steps", minimum=0))
    numbers = np.asarray(num_steps)
    if not np.issubdtype(numbers.dtype, np.integer):
        raise InvalidTypeError(f"`num_steps` must be whole numbers (int), got {num_steps!r}.")
    if np.any(numbers < 0):
        raise InvalidValueError(f"`num_steps` must be at least 0, got {numbers.min()}.")
    return numbers
