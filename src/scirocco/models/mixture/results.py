"""Results of a fitted mixture: components in one order, labels of rows, densities."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.diagnostics.intervals import central
from scirocco.errors import InvalidValueError
from scirocco.models.fits.conventions import not_fitted
from scirocco.models.fits.mixing import orders
from scirocco.models.inputs import TableLike, Units, features
from scirocco.models.mixture import density
from scirocco.models._core.view import View, own_run, with_draws
from scirocco.run import Run
from scirocco.types import Array, Params

_DRAWS = 200
_BLOCK = 4_096


class Summary(NamedTuple):
    """Posterior means and intervals, components in one common order."""

    mean: dict[str, np.ndarray]
    low: dict[str, np.ndarray]
    high: dict[str, np.ndarray]


class Results:
    """Everything that follows from the draws."""

    run_: Run
    means_: np.ndarray
    weights_: np.ndarray
    scales_: np.ndarray
    relabelled_: dict[str, np.ndarray]
    n_features_in_: int
    feature_names_in_: np.ndarray
    """Only of a table whose columns have names."""
    _units: Units
    _known: np.ndarray | None
    """Weights that are not drawn."""
    _inner: Params
    _order: np.ndarray

    def _settle(self, run: Run, units: Units, names: Sequence[str] | None, known: np.ndarray | None) -> None:
        """Draws in the user's units and in one order of components; a run without draws leaves none."""
        for name in ("means_", "weights_", "scales_", "relabelled_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        self.run_, self._units, self.n_features_in_ = run, units, len(units.mean)
        self._known = known
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        if not run.num_draws:
            return
        raw = {name: np.asarray(values) for name, values in run.draws.items()}
        shape = raw["means"].shape
        if known is not None:
            raw["weights"] = np.broadcast_to(known, shape[:3])
        self._inner = {name: values.reshape(-1, *values.shape[2:]) for name, values in raw.items()}
        # components with known, unequal weights are told apart by them
        named = known is not None and np.ptp(known) > 0
        flat = self._inner["means"]
        self._order = np.broadcast_to(np.arange(shape[2]), flat.shape[:2]) if named else orders(flat)
        self.relabelled_ = self._in_order(shape)
        self.means_, self.weights_, self.scales_ = (
            self.relabelled_[name].mean(axis=(0, 1)) for name in ("means", "weights", "scales")
        )

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

    def summary(self, interval: float = 0.9) -> Summary:
        """Posterior means and equal-tailed intervals of means, weights and standard deviations."""
        self._check_fitted()
        ends = {name: central(v, interval, axis=(0, 1)) for name, v in self.relabelled_.items()}
        low, high = ({name: both[n] for name, both in ends.items()} for n in (0, 1))
        return Summary({name: v.mean(axis=(0, 1)) for name, v in self.relabelled_.items()}, low, high)

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

    def to_arviz(self) -> Any:
        """Convert the draws to ArviZ: components in one order, in the units of the columns."""
        self._check_fitted()
        return dataclasses.replace(self.run_, draws=self.relabelled_).to_arviz()

    def report_view(self, run: Run | None = None, **options: Any) -> View:
        """Contents of a report, see `scirocco.models._core.view`: components in one order, in the units of the columns."""
        run = own_run(self, run)
        found = self.relabelled_
        names = getattr(self, "feature_names_in_", [f"column {k}" for k in range(self.n_features_in_)])
        draws: dict[str, np.ndarray] = {"weight": found["weights"]}
        for place, name in enumerate(names):
            draws[f"mean of {name}"] = found["means"][..., place]
            draws[f"sd of {name}"] = found["scales"][..., place]
        about = (
            "Diagnosed and plotted in the units of the columns, with the components of all draws in one order: the "
            "number in brackets is the component."
        )
        return View(run, type(self).__name__, judged=with_draws(run, draws), about=about)

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

    def _check_fitted(self) -> None:
        if "run_" not in self.__dict__:
            raise not_fitted("this GaussianMixture is not fitted yet: call `fit` first.")
        if "relabelled_" not in self.__dict__:
            raise InvalidValueError(
                f"this GaussianMixture has no draws: its run was {self.run_.status} in the burn-in. Fit it again, or "
                "resume its store with fit(..., resume=True)."
            )


@jax.jit
def _responsibilities(draws: Params, rows: Array) -> Array:
    one = jax.vmap(density.log_responsibilities, (None, 0))
    return jax.lax.map(lambda draw: one(draw, rows), draws)


@jax.jit
def _likelihoods(draws: Params, rows: Array) -> Array:
    one = jax.vmap(density.log_likelihood, (None, 0))
    return jax.lax.map(lambda draw: one(draw, rows), draws)
