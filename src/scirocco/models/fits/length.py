"""How long a fit is, and where in it the draws are."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from scirocco import _checks
from scirocco.errors import InvalidValueError

_DEFAULT_EPOCHS = 20


class Length(NamedTuple):
    """How long to run: steps, or seconds."""

    num_steps: int | None
    max_seconds: float | None
    is_default: bool = False
    """Whether nothing was said."""


def check_length(
    num_steps: Any,
    num_epochs: Any,
    max_seconds: Any,
    *,
    num_rows: int,
    batch_size: int,
    first_steps: int = 0,
    default_epochs: float = _DEFAULT_EPOCHS,
) -> Length:
    """At most one of the three, `default_epochs` passes if none is given; `first_steps` come before the passes.

    Examples
    --------
    >>> check_length(None, 3, None, num_rows=1000, batch_size=300)
    Length(num_steps=10, max_seconds=None, is_default=False)
    """
    given = {"num_steps": num_steps, "num_epochs": num_epochs, "max_seconds": max_seconds}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InvalidValueError(
            f"give one of num_steps, num_epochs and max_seconds, not {' and '.join(named)}."
        )
    if num_steps is not None:
        return Length(_checks.positive_int(num_steps, "num_steps"), None)
    if max_seconds is not None:
        _checks.positive(max_seconds, "max_seconds")
        return Length(None, float(max_seconds))
    epochs = default_epochs if num_epochs is None else num_epochs
    _checks.positive(epochs, "num_epochs")
    steps = first_steps + math.ceil(float(epochs) * num_rows / batch_size)
    return Length(max(1, steps), None, num_epochs is None)


def check_discard(given: Any) -> float:
    """The share of a run that is burn-in."""
    _checks.positive(given, "discard", allow_zero=True)
    if float(given) >= 1:
        raise InvalidValueError(f"`discard` must be below 1, got {given}.")
    return float(given)


class Spread(NamedTuple):
    """Where the draws of a run are."""

    num_draws: int
    burn_in: int
    """Steps before the first `thin`."""
    thin: int
    """Steps from one draw to the next."""


def spread(num_steps: int, num_draws: int, discard: float, first_steps: int = 0) -> Spread:
    """Draws spread over the part of the run that is kept, the last at its end; none in the first steps.

    Examples
    --------
    >>> spread(100, 20, 0.5)
    Spread(num_draws=20, burn_in=60, thin=2)
    """
    left = max(1, min(int(num_steps * (1.0 - discard)), num_steps - first_steps))
    draws = max(1, min(num_draws, left))
    thin = left // draws
    return Spread(draws, max(0, num_steps - draws * thin), thin)
