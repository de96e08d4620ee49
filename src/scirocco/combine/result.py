"""What combining returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco import _checks, _tree
from scirocco.combine.draws import Shards
from scirocco.errors import InvalidTypeError
from scirocco.types import PyTree

Array = np.ndarray[Any, np.dtype[Any]]


class Finding(NamedTuple):
    """What a diagnostic saw."""

    numbers: dict[str, Any]
    message: str | None = None
    """What is wrong and what to do; None where nothing is."""


@dataclass(frozen=True, eq=False, repr=False)
class Combined:
    """Draws that stand for the posterior, made of those of the subposteriors.

    Attributes
    ----------
    draws
        The structure and the precision of the subposteriors' draws, leaves (draw, ...), in the user's units. Where
        they are one array, `numpy.asarray(combined)` is that array.
    method
        The function that made them.
    diagnostics
        What was measured on the way, as numbers and arrays by name.
    warnings
        What is wrong, as sentences; each was also warned of when it was found.
    """

    draws: PyTree
    method: str
    diagnostics: dict[str, Any]
    warnings: tuple[str, ...]

    @property
    def num_draws(self) -> int:
        """How many."""
        return int(jax.tree.leaves(self.draws)[0].shape[0])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if not isinstance(self.draws, np.ndarray):
            raise InvalidTypeError(
                f"the combined draws are a tree of {', '.join(_tree.leaf_names(self.draws))}, not one array: use "
                "`.draws`."
            )
        return np.array(self.draws, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        size = _tree.size(jax.tree.map(lambda leaf: leaf[0], self.draws))
        found = len(self.warnings)
        said = "no warnings" if not found else f"{found} warning{'s' * (found > 1)}"
        return (
            f"Combined({self.method}: {self.num_draws:,} draws of {size} number{'s' * (size > 1)} from "
            f"{self.diagnostics['num_subposteriors']} subposteriors, {said})"
        )


def conclude(method: str, shards: Shards, points: Array, findings: Sequence[Finding]) -> Combined:
    """The result, after saying what is wrong."""
    numbers: dict[str, Any] = {"num_subposteriors": len(shards.points)}
    for finding in findings:
        numbers |= finding.numbers
    messages = tuple(finding.message for finding in findings if finding.message is not None)
    for message in messages:
        _checks.warn(f"{method}: {message}")
    return Combined(shards.restore(points), method, numbers, messages)
