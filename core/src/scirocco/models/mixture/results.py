"""Results of a fitted mixture: components in one order, labels of rows, densities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.models._core.model import FittedModel
from scirocco.models._core.relabel import orders
from scirocco.models._core.view import View
from scirocco.models.inputs import TableLike, Units, features
from scirocco.models.mixture import density
from scirocco.run import Run
from scirocco.types import Array, Params

_DRAWS = 200
"""Draws that predictions average over, at most."""
_BLOCK = 4_096
"""Rows of a prediction at once."""


class Results(FittedModel):
    """Everything that follows from the draws."""

    ADVICE = "Raise `thin` or `num_samples`, or use fewer components."
    CODE = ("sampler",)
    draws_: dict[str, np.ndarray]
    means_: np.ndarray
    weights_: np.ndarray
    scales_: np.ndarray
    n_features_in_: int
    feature_names_in_: np.ndarray
    """Only of a table whose columns have names."""
    _units: Units
    _inner: Params
    """Draws (draw, K, ...) in the units and with the components of the chains."""
    _order: np.ndarray
    """The common order of their components, (draw, K)."""

    def _results(
        self, run: Run, told: dict[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Draws in the user's units and in one order of components."""
        self._units = Units(np.asarray(told["mean"]), np.asarray(told["deviation"]))
        self.n_features_in_ = len(self._units.mean)
        vars(self).pop("feature_names_in_", None)
        if told["names"] is not None:
            self.feature_names_in_ = np.asarray(told["names"], dtype=object)
        raw = {name: np.asarray(values) for name, values in run.draws.items()}
        shape, weights = raw["means"].shape, told["weights"]
        if weights is not None:
            raw["weights"] = np.broadcast_to(np.asarray(weights), shape[:3])
        self._inner = {name: values.reshape(-1, *values.shape[2:]) for name, values in raw.items()}
        # components with fixed, unequal weights are told apart by them
        named = weights is not None and np.ptp(weights) > 0
        flat = self._inner["means"]
        self._order = np.broadcast_to(np.arange(shape[2]), flat.shape[:2]) if named else orders(flat)
        draws = self._in_order(shape)
        self.means_, self.weights_, self.scales_ = (
            draws[name].mean(axis=(0, 1)) for name in ("means", "weights", "scales")
        )
        return draws

    def _watched(self) -> dict[str, np.ndarray]:
        return {name: self.draws_[name] for name in self.run_.draws}  # the others are fixed

    def _coordinates(self) -> dict[str, Sequence[Any]]:
        names = vars(self).get("feature_names_in_")
        return {} if names is None else {"means_dim_1": list(names), "scales_dim_1": list(names)}

    def _view(self, run: Run, **options: Any) -> View:
        about = (
            "Diagnosed and plotted in the units of the columns, with the components of all draws in one order: the "
            "first number in brackets is the component."
        )
        return View(run, type(self).__name__, judged=self._judged(), about=about)

    def _in_order(self, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
        """(chain, draw, K, ...)."""
        order, units = self._order, self._units
        found = {
            name: np.take_along_axis(v, order.reshape(*order.shape, *[1] * (v.ndim - 2)), axis=1)
            for name, v in self._inner.items()
        }
        found["means"] = found["means"] * units.deviation + units.mean
        found["scales"] = found.get("scales", np.ones((1, *shape[2:]))) * units.deviation
        return {
            name: np.broadcast_to(v, (len(order), *v.shape[1:])).reshape(*shape[:2], *v.shape[1:])
            for name, v in found.items()
        }

    def predict_proba(self, X: TableLike) -> np.ndarray:
        """P(component | row), averaged over draws with components in the order of `means_`."""
        draws, order = self._thinned()
        parts = []
        for rows in self._blocks(X):
            logs = np.asarray(_responsibilities(draws, rows))
            shares = np.take_along_axis(np.exp(logs), order[:, None, :], axis=2)
            parts.append(shares.mean(axis=0))
        return np.concatenate(parts)

    def predict(self, X: TableLike) -> np.ndarray:
        """The most probable component of each row."""
        labels: np.ndarray = self.predict_proba(X).argmax(axis=1)
        return labels

    def score_samples(self, X: TableLike) -> np.ndarray:
        """Log posterior predictive density of each row: log (1/S) Σ_s p(x | θ_s); it knows no order of components."""
        draws, _ = self._thinned()
        jacobian = float(np.sum(np.log(self._units.deviation)))
        parts = []
        for rows in self._blocks(X):
            logs = np.asarray(_likelihoods(draws, rows), np.float64)
            parts.append(np.logaddexp.reduce(logs, axis=0) - np.log(len(logs)) - jacobian)
        return np.concatenate(parts)

    def score(self, X: TableLike, y: object = None) -> float:
        """Mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def _thinned(self) -> tuple[Params, np.ndarray]:
        self._check_fitted()
        total = len(self._order)
        chosen = np.unique(np.linspace(0, total - 1, min(_DRAWS, total)).astype(int))
        draws = {name: jnp.asarray(v[chosen], jnp.float32) for name, v in self._inner.items()}
        return draws, self._order[chosen]

    def _blocks(self, X: TableLike) -> Iterator[np.ndarray]:
        like = (self.n_features_in_, getattr(self, "feature_names_in_", None))
        table = features(X, "GaussianMixture", constant="keep", exact=True, like=like)
        rows = self._units.apply(table.array)
        yield from np.array_split(rows, range(_BLOCK, len(rows), _BLOCK))


@jax.jit
def _responsibilities(draws: Params, rows: Array) -> Array:
    one = jax.vmap(density.log_responsibilities, (None, 0))
    return jax.lax.map(lambda draw: one(draw, rows), draws)


@jax.jit
def _likelihoods(draws: Params, rows: Array) -> Array:
    one = jax.vmap(density.log_likelihood, (None, 0))
    return jax.lax.map(lambda draw: one(draw, rows), draws)
