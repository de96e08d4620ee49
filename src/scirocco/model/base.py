"""What a run asks of a model, whatever kind it is."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

from scirocco.types import Array, Key, Params, PyTree, Rows


class Posterior(abc.ABC):
    """A posterior whose data enter through a sum over the rows.

    Samplers move a *position*; the user sees *parameters*. What drives a sampler is `combine(position, total)`, made
    of the prior and an estimate of the sum of `summand` over all rows. Models are compared and hashed by the user's
    functions, because compiled programs are kept for each.
    """

    drive: ClassVar[str]
    """What the sum is: "gradient" or "counts". A sampler says which it needs."""
    takes_key: bool = False
    """Whether the summand is random (latent variables that are drawn for each row)."""

    @abc.abstractmethod
    def constrain(self, position: Params) -> Params:
        """From the sampler's position to the user's parameters."""

    @abc.abstractmethod
    def unconstrain(self, params: Params) -> Params:
        """From the user's parameters to a position."""

    @abc.abstractmethod
    def check_domain(self, params: Params) -> None:
        """Raise when a starting value is outside its domain."""

    @abc.abstractmethod
    def combine(self, position: Params, total: PyTree) -> PyTree:
        """What drives a sampler: the exact part of the prior, and an estimate `total` of the sum over the data."""

    @abc.abstractmethod
    def look(self, position: Params, rows: Rows, key: Key | None = None) -> Array:
        """A number that is finite if the model can be evaluated at `position` with these rows."""

    @abc.abstractmethod
    def values(self, position: Params, rows: Rows) -> dict[str, Array]:
        """What the model says there, by name: two models that say the same are taken for one (resuming a run)."""

    @abc.abstractmethod
    def stats(self, total: PyTree) -> dict[str, Array]:
        """What a reader wants to know of an estimate."""

    @property
    @abc.abstractmethod
    def summand(self) -> Any:
        """f in Σ_i f(θ, x_i)."""

    def spread(self, position: Params, total: PyTree) -> Params:
        """The position to start from, when the sum over all rows is about `total` there; as it is by default."""
        return position
