"""How long this process waits for a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from scirocco._adjustable import Adjustable


@dataclass
class Waits(Adjustable):
    """Seconds."""

    answer: float = 10.0
    """Until a scheduler must have answered."""
    worker: float = 60.0
    """Until there must be a new worker, when all have gone."""
    look: float = 5.0
    """Between two checks of the connection."""
    silence: float = 30.0
    """Without a report, until waiting jobs are mentioned."""


WAITS = Waits()
