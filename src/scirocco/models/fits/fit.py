"""What a model says about a fit; all else is common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scirocco._version import __version__
from scirocco.models.fits.chains import Chain, HostChains, Spec
from scirocco.models.fits.length import Length, spread
from scirocco.models.fits.saved import Kind, document
from scirocco.run.keeping import Keeping
from scirocco.run.session import Plan

BY_THE_CLOCK = 1 << 30
"""Steps of a burn-in that ends by the clock."""


@dataclass(frozen=True)
class Fit:
    """A fit: everything but what happens while it runs.

    Parameters
    ----------
    kind
        What the model is called in records and in messages.
    configuration
        The settings that define the chains, as plain JSON, with a name of the method under "sampler". A stored fit is
        gone on with only where all of it is the same.
    fingerprint
        Of the data: called once, when the record is written.
    num_rows
        Of the data.
    spec
        What one draw leaves, see `Spec`.
    make_chains
        Makes `num_chains` chains, where they begin.
    num_chains, num_draws, seed
        `num_draws` are wanted of each chain; a short run gives fewer.
    length
        From `check_length`.
    discard
        The share of the run that is burn-in.
    first_steps
        Steps that must pass before the first draw, whatever `discard` is.
    capacity
        Draws in a chunk, see `HostChains`.
    after_clock
        With `max_seconds`, called with the chains when the burn-in's time is over: ends what should not go on in the
        part that is kept, and returns the steps that must pass before the first draw.
    as_stored
        The same fit with what a stored one had settled on, given the stored configuration.
    """

    kind: Kind
    configuration: dict[str, Any]
    fingerprint: Callable[[], Any]
    num_rows: int
    spec: Spec
    make_chains: Callable[[], Sequence[Chain]]
    num_chains: int
    num_draws: int
    seed: int
    length: Length
    discard: float = 0.5
    first_steps: int = 0
    capacity: int = 1
    after_clock: Callable[[Sequence[Any]], int] | None = None
    as_stored: Callable[[dict[str, Any]], Fit] | None = None

    def chains(self) -> HostChains:
        """The chains where they begin."""
        return HostChains(self.make_chains(), self.spec, self.capacity)

    def plan(self) -> Plan:
        """Of the whole run; for a time limit that of its burn-in, as the rest is not known yet."""
        if self.length.num_steps is None:
            return self.plan_of(self.num_draws, BY_THE_CLOCK, 1)
        return self.plan_of(*spread(self.length.num_steps, self.num_draws, self.discard, self.first_steps))

    def plan_of(self, num_draws: int, burn_in: int, thin: int) -> Plan:
        """So many draws of the chains of this fit."""
        keeping = Keeping.checked(False, True, None)
        return Plan(num_draws, burn_in, thin, self.num_chains, self.seed, keeping, "threads")

    def record(self, plan: Plan, extra: dict[str, Any]) -> dict[str, Any]:
        """All that a store must hold; `extra` is what only the model needs."""
        configuration = {
            "model": self.kind.name,
            **self.configuration,
            "num_rows": int(self.num_rows),
            "dimension": self.spec.dimension,
            "data": self.fingerprint(),
            "num_samples": plan.num_samples,
            "num_burnin": plan.num_burnin,
            "thin": plan.thin,
            "num_chains": plan.num_chains,
            "seed": plan.seed,
            "versions": {"scirocco": __version__, "numpy": np.__version__},
        }
        return document(self.kind, self.spec.draws, configuration, extra)
