"""A model with the S-th root of its prior: what every one of S shards is sampled with."""

from __future__ import annotations

from typing import Any

from scirocco.errors import InvalidTypeError
from scirocco.model import CountModel, Model, Posterior
from scirocco.types import Array, Params, Rows


class FractionatedModel(Model):
    """log p(u) = share · (log prior + log Jacobian)(u) + Σ_i log_likelihood(u, x_i), u on the real line.

    With share = 1/S and the rows dealt out to S shards, the densities of the unconstrained positions multiply to the
    posterior. The Jacobian is divided as the prior is: otherwise the product would have it S times.

    Parameters
    ----------
    model
        The model of all data.
    share
        The exponent of the prior, 1/S.
    """

    def __init__(self, model: Model, share: float):
        self.share: float
        self.__setstate__(model.__getstate__() | {"share": float(share)})

    def _finish(self) -> None:
        super()._finish()
        self._identity = (*self._identity, self.share)  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"share": self.share}

    def __repr__(self) -> str:
        return super().__repr__()[:-1] + f", share={self.share:g})"

    def log_prior_density(self, position: Params) -> Array:
        """The share of the log prior and the log-Jacobian."""
        return self.share * super().log_prior_density(position)

    def log_density(self, params: Params, data: Rows) -> Array:
        """The share of the log prior, and the log likelihood of `data` (user's units, no Jacobian)."""
        prior = 0.0 if self._jitted_prior is None else self.share * self._jitted_prior(params)
        return prior + self.log_likelihood_sum(self.unconstrain(params), data)


def fractionate(model: Posterior, num_shards: int) -> Model:
    """The model of one of `num_shards` shards."""
    if type(model) is Model:
        return FractionatedModel(model, 1 / num_shards)
    if isinstance(model, CountModel):
        raise InvalidTypeError(
            "subposteriors are made of a sc.Model: the draws of a CountModel's could not be combined. Its counts need "
            "no shards to be exact: sc.sample(..., mesh=...) adds them up over devices."
        )
    hint = "; add parentheses" if isinstance(model, type) else ""
    raise InvalidTypeError(
        "subposteriors are made of a sc.Model(log_likelihood, log_prior), whose prior can be divided among the shards; "
        f"got {model!r}{hint}."
    )
