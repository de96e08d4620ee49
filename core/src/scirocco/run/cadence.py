"""At which steps draws are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from scirocco.errors import InvalidValueError

_FOREVER = 1 << 31


class Stretch(NamedTuple):
    """Steps of one kind."""

    keeps: bool
    """Whether draws are made in them."""
    left: int
    """Steps to its end."""


class Cadence(NamedTuple):
    """Draws are `thin` steps apart, after the burn-in and, with cycles, only in the sampling phase of each.

    The first phase with draws is the first that begins after the burn-in; cycles are counted from step 0, as those of
    the schedule are.
    """

    num_burnin: int
    thin: int
    cycle: int = 0
    """Steps of a cycle; 0: there are none."""
    explore: int = 0
    """Steps at the beginning of a cycle in which no draws are made."""

    def checked(self) -> Cadence:
        """The same; raises an error if no draw fits into a cycle."""
        if self.cycle and self.per_cycle < 1:
            raise InvalidValueError(
                f"thin={self.thin} is longer than the sampling phase of a cycle, {self.cycle - self.explore} of "
                f"{self.cycle} steps: no draw would be made. Use longer cycles, or a smaller `explore` or `thin`."
            )
        return self

    @property
    def per_cycle(self) -> int:
        """Draws of a cycle."""
        return (self.cycle - self.explore) // self.thin

    @property
    def begin(self) -> int:
        """Steps before the first phase in which draws are made."""
        if not self.cycle:
            return self.num_burnin
        return max(0, -(-(self.num_burnin - self.explore) // self.cycle)) * self.cycle + self.explore

    def steps(self, draws: Any) -> Any:
        """Steps after which there are so many draws of a chain; numbers or arrays of them."""
        if not self.cycle:
            return self.begin + draws * self.thin
        cycles, within = divmod(draws - 1, self.per_cycle)
        return self.begin + cycles * self.cycle + (within + 1) * self.thin

    def stretch(self, step: int) -> Stretch:
        """The steps of one kind from number `step` on."""
        if step < self.begin:
            return Stretch(False, self.begin - step)
        if not self.cycle:
            return Stretch(True, _FOREVER)
        within, phase = (step - self.begin) % self.cycle, self.per_cycle * self.thin
        return Stretch(True, phase - within) if within < phase else Stretch(False, self.cycle - within)


def cadence_of(configuration: Mapping[str, Any]) -> Cadence:
    """That of a run; one that is put together by hand has a draw after each step."""
    return Cadence(
        int(configuration.get("num_burnin", 0)),
        int(configuration.get("thin", 1)),
        *map(int, configuration.get("cycle", ())),
    )
