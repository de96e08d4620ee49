"""The length of a fit, and the positions of its draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidValueError

_DEFAULT_EPOCHS = 20  # passes of a run whose length is not given
BY_THE_CLOCK = 1 << 30
"""Planned steps of a burn-in with a time limit."""


class FitLength(NamedTuple):
    """FitLength of a run: steps, or seconds."""

    num_steps: int | None
    max_seconds: float | None
    is_default: bool = False
    """Whether no length was given."""


def check_length(
    num_steps: int | None,
    num_epochs: float | None,
    max_seconds: float | None,
    *,
    num_rows: int,
    batch_size: int,
    steps_of: Callable[[float], int] | None = None,
    default_epochs: float = _DEFAULT_EPOCHS,
    planned_steps: int | None = None,
) -> FitLength:
    """Check the length; at most one of three. Default: `planned_steps`, or `default_epochs` passes.

    `steps_of` are the steps of a number of passes; by default as many as have the rows in batches of `batch_size`.

    Examples
    --------
    >>> check_length(None, 3, None, num_rows=1000, batch_size=300)
    FitLength(num_steps=10, max_seconds=None, is_default=False)
    """
    given = {"num_steps": num_steps, "num_epochs": num_epochs, "max_seconds": max_seconds}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InvalidValueError(f"pass only one of num_steps, num_epochs and max_seconds, not {' and '.join(named)}.")
    if num_steps is not None:
        return FitLength(_checks.positive_int(num_steps, "num_steps"), None)
    if max_seconds is not None:
        _checks.positive(max_seconds, "max_seconds")
        return FitLength(None, float(max_seconds))
    if num_epochs is None and planned_steps is not None:
        return FitLength(planned_steps, None)
    epochs = default_epochs if num_epochs is None else num_epochs
    _checks.positive(epochs, "num_epochs")
    steps = math.ceil(float(epochs) * num_rows / batch_size) if steps_of is None else steps_of(float(epochs))
    return FitLength(max(1, steps), None, num_epochs is None)


def check_burnin(given: Any, name: str = "num_burnin") -> int | float:
    """Check a burn-in: an integer number of steps, or a fraction of the run (a float below 1)."""
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        return _checks.positive_int(given, name, minimum=0)
    _checks.positive(given, name, allow_zero=True)
    if float(given) >= 1:
        raise InvalidValueError(
            f"`{name}` must be a number of steps (int) or a fraction of the run below 1, got {given}."
        )
    return float(given)


class DrawSpread(NamedTuple):
    """Positions of the draws in a run, as arguments of `sc.sample`."""

    num_samples: int
    num_burnin: int
    """Steps before the first `thin`."""
    thin: int
    """Steps from one draw to the next."""


class AskedDraws(NamedTuple):
    """The arguments that all models have, checked: which draws of how many chains are wanted."""

    num_samples: Any
    """Draws per chain; a short run gives fewer."""
    num_burnin: Any
    """Steps of burn-in (int), or the fraction of the run that is burn-in (float)."""
    thin: int | None
    """Steps between two draws; None: draws are spread evenly over the run after the burn-in."""
    num_chains: Any
    seed: int

    def planned_steps(self, first_steps: int = 0) -> int | None:
        """Steps of a run that keeps the draws wanted, none in the first steps; None if they do not determine them.

        Examples
        --------
        >>> [AskedDraws(100, *lengths, 1, 0).planned_steps() for lengths in ((50, 2), (0.5, 2), (50, None))]
        [250, 400, None]
        """
        if self.thin is None:
            return None
        kept = self.num_samples * self.thin
        steps: int = kept + first_steps
        if isinstance(self.num_burnin, int):
            return max(steps, kept + self.num_burnin)
        steps = max(steps, int(kept / (1.0 - self.num_burnin)))
        while self._after_burnin(steps) < kept:
            steps += 1
        return steps

    def first_draw(self) -> int:
        """Number of steps of the shortest run with a draw."""
        return self._replace(num_samples=1, thin=self.thin or 1).planned_steps() or 1

    def spread(self, num_steps: int, first_steps: int = 0) -> DrawSpread:
        """Spread draws over a run after its burn-in, the last at its end; none in the first steps.

        With `thin`, draws are that many steps apart, and a run that is longer than needed has a longer burn-in.

        Examples
        --------
        >>> AskedDraws(20, 0.5, None, 4, 0).spread(100)
        DrawSpread(num_samples=20, num_burnin=60, thin=2)
        >>> AskedDraws(20, 30, 3, 4, 0).spread(100)
        DrawSpread(num_samples=20, num_burnin=40, thin=3)
        """
        left = min(self._after_burnin(num_steps), num_steps - first_steps)
        if left < (self.thin or 1) and (self.thin or isinstance(self.num_burnin, int)):
            thin = f", thin = {self.thin}" if self.thin else ""
            raise InvalidValueError(
                f"a run of {num_steps} steps has no draw after its burn-in (num_burnin = {self.num_burnin}{thin}): use "
                "more steps or a shorter burn-in."
            )
        left = max(1, left)
        draws = max(1, min(self.num_samples, left // (self.thin or 1)))
        apart = self.thin or left // draws
        return DrawSpread(draws, max(0, num_steps - draws * apart), apart)

    def _after_burnin(self, num_steps: int) -> int:
        if isinstance(self.num_burnin, int):
            return num_steps - self.num_burnin
        return int(num_steps * (1.0 - self.num_burnin))
