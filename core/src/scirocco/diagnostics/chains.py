"""Whether chains agree and are long enough: the one check behind certificates, diagnoses, reports and warnings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from scirocco.diagnostics.columns import Columns, Leaf
from scirocco.diagnostics.measures import rhat, summarise

_R_HAT, _LONG = 1.02, 500
"""The largest R-hat of chains that agree, from so many draws per chain on; of fewer it is uncertain."""
_R_HAT_LOOSE, _CHANCE = 1.1, 24.0
"""The same for fewer draws, and for models with their own loop. Chains of n independent draws exceed
R-hat² = 1 + 24 / n in one of 2,000 parameters."""
_FEWEST = 20  # draws per chain below which R-hat says nothing
_FEW_EFFECTIVE, _POOR = 100, 0.1
"""Effective draws per chain (Vehtari et al. 2021), and per draw, below which a run mixes badly."""
_MOST_COLUMNS, _MOST_NUMBERS = 1_000, 2e8  # what is looked at; columns are spread evenly over all


@dataclass(frozen=True)
class ChainCheck:
    """The worst effective sample sizes and R-hat of some draws, and whether they are good enough.

    Attributes
    ----------
    num_chains, num_draws
        Chains, and draws per chain.
    worst
        The worst value and the column that has it, by name: `ess_bulk`, `ess_tail`, and `r_hat` or, of a single chain,
        `r_hat_of_halves`. What cannot be measured is absent.
    limit
        The largest R-hat of chains that agree.
    """

    num_chains: int
    num_draws: int
    worst: dict[str, tuple[float, str]]
    limit: float

    @property
    def ess(self) -> float:
        """The smallest effective sample size; infinite if there is none."""
        return self.worst.get("ess_bulk", (math.inf, ""))[0]

    @property
    def r_hat(self) -> tuple[float, str]:
        """The largest R-hat, of the chains or of the halves of the only chain, and its column; 1 if there is none."""
        return self.worst.get("r_hat", self.worst.get("r_hat_of_halves", (1.0, "")))

    @property
    def who(self) -> str:
        """What R-hat compares."""
        return "chains" if self.num_chains > 1 else "the halves of the only chain"

    @property
    def disagree(self) -> bool:
        """Whether the chains, or the halves of the only one, are apart by more than chance."""
        return self.num_draws >= _FEWEST and self.r_hat[0] > self.limit

    @property
    def too_few(self) -> bool:
        """Whether there are too few effective draws."""
        return self.ess < self.num_chains * min(_FEW_EFFECTIVE, _POOR * self.num_draws)

    @property
    def measures(self) -> dict[str, Any]:
        """The numbers by name, each followed by the name of its column."""
        out: dict[str, Any] = {}
        for name, (value, column) in self.worst.items():
            out |= {name: value, f"{name}_parameter": column}
        return out


def check_chains(
    leaves: Mapping[str, Leaf], group_size: int = 1, *, loose: bool = False, most: int = _MOST_COLUMNS
) -> ChainCheck:
    """Compare chains (chain, draw, ...) by the numbers of `run.summary()`.

    Of more than `most` columns so many are compared. `loose`: for models with their own loop, whose quantities mix
    slowly, R-hat may be 1.1.
    """
    columns = Columns(leaves)
    chains, draws = columns.num_chains, columns.num_draws
    columns = columns.spread(max(1, int(min(most, _MOST_NUMBERS / max(1, chains * draws)))))
    alone, half = chains == 1, draws // 2
    worst: dict[str, tuple[float, str]] = {}
    for part in columns.parts():
        measured = summarise(part.values, (), group_size)
        measured["r_hat_of_halves" if alone else "r_hat"] = (
            rhat(part.values[0, : 2 * half].reshape(2, half, -1)) if alone and half else measured["r_hat"]
        )
        for name, sign in (("ess_bulk", -1), ("ess_tail", -1), ("r_hat", 1), ("r_hat_of_halves", 1)):
            numbers = sign * measured.get(name, np.array([]))
            if not np.isnan(numbers).all():
                place = int(np.nanargmax(numbers))
                if name not in worst or numbers[place] > sign * worst[name][0]:
                    worst[name] = sign * float(numbers[place]), part.names[place]
    return ChainCheck(chains, draws, worst, largest_r_hat(half if alone else draws, loose))


def largest_r_hat(draws: int, loose: bool = False) -> float:
    """Of chains of so many draws that agree: the largest of hundreds of parameters."""
    if draws >= _LONG and not loose:
        return _R_HAT
    return max(_R_HAT_LOOSE, math.sqrt(1 + _CHANCE / max(1, draws)))


def r_hat_in_digits(r_hat: float) -> str:
    """An R-hat, with the digits that mean something."""
    return f"{r_hat:.2f}" if r_hat < 100 else "above 100"
