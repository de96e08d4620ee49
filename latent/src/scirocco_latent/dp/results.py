"""Results of a fitted mixture: labels, predictive densities, number of clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco.data.values import Frame, Sparse, as_numpy
from scirocco.diagnostics.intervals import central, check_draws, tails_of, widest
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models._core.model import FittedModel, not_fitted
from scirocco.run.encoding import decode, encode
from scirocco.run.result import Run
from scirocco_latent.dp import prediction
from scirocco_latent.dp.families import BaseMeasure, GaussianFamily, MultinomialFamily
from scirocco_latent.dp.prediction import ends
from scirocco_latent.dp.rows import Array, CountRows, RealRows, Rows, Table

_ROWS_AT_ONCE = 32_768
"""Rows whose densities are in memory at a time."""
_MOST_NUMBERS = 20_000_000
"""Largest number of values (draws × clusters × columns) in memory when computing intervals."""
_MORE_DRAWS = "Fit longer, with more draws (num_samples)"
"""Advice for too few draws."""
_REFERENCE_ROWS = 300
"""Rows used to compare clusters of different draws."""
_BY_SIZE = 4
"""Clusters whose weights are compared between chains, by size."""


class Cluster(NamedTuple):
    """A cluster: its label as in `predict`, its weight, and a credible interval of the weight."""

    label: int
    weight: float
    low: float
    high: float


class MixtureResults(FittedModel):
    """Results computed from the draws (chain, draw, ...), in memory or on disk."""

    _family: BaseMeasure[Any]
    _judges: Rows
    """Rows used to choose the reference draw."""
    _chosen: prediction.ReferenceDraw | None = None
    n_features_in_: int
    feature_names_in_: Array
    """Only if the columns have names."""

    def _results(self, run: Run, told: dict[str, Any], arrays: Mapping[str, Array]) -> Mapping[str, Any]:
        for name in ("_chosen", "_averages", "_labels", "_training", "feature_names_in_"):
            self.__dict__.pop(name, None)
        self._family, self._judges = _opened(told["family"], told["reference"])
        self.n_features_in_ = self._family.width
        if told["names"] is not None:
            self.feature_names_in_ = np.asarray(told["names"], dtype=object)
        draws: dict[str, Any] = run.draws
        return draws

    def _watched(self) -> dict[str, Array]:
        """Quantities that do not depend on the labels of clusters."""
        weights = self.draws_["weights"]
        largest = np.asarray(weights[:, :, :_BY_SIZE])
        return {
            "number of clusters": self.stats_["num_clusters"],
            "concentration": self.stats_["concentration"],
            **{f"weight of cluster {k + 1} by size": largest[:, :, k] for k in range(largest.shape[2])},
        }

    # -- predictive density -------------------------------------------------------------------------------------------

    def log_predictive(self, X: Table) -> Array:
        """log p(x | data) of each row, with the density averaged over all draws; shape (rows,).

        For counts, the probability of a row's events in their order (no multinomial coefficient); 0 for an empty row.
        """
        rows = self._rows(X)
        out = np.full(rows.num_rows, -np.inf)
        for number in range(self._count):
            draw = self._draw(number)
            for part in _parts(rows.num_rows):
                logs = prediction.log_predictive(self._family, rows.take(part), draw)
                out[part] = np.logaddexp(out[part], logs)
        return out - np.log(self._count)

    def score(self, X: Table, y: object = None) -> float:
        """The mean of `log_predictive`."""
        return float(self.log_predictive(X).mean())

    # -- labels -------------------------------------------------------------------------------------------------------

    def predict_proba(self, X: Table) -> Array:
        """Probability of each cluster for each row, (rows, clusters), averaged over draws.

        The probabilities are conditional on the row being in a cluster that has rows. The clusters are those of a
        reference draw, see `scirocco_latent.dp.prediction`.
        """
        return self._shares(self._rows(X))

    def _shares(self, rows: Rows) -> Array:
        chosen = self._reference()
        out = np.zeros((rows.num_rows, chosen.num_clusters))
        for number, translation in enumerate(chosen.translations):
            draw = self._draw(number)
            for part in _parts(rows.num_rows):
                out[part] += prediction.translated(self._family, rows.take(part), draw, translation)
        return out / self._count

    def predict(self, X: Table) -> Array:
        """The most probable cluster of each row."""
        return self._predicted(self._rows(X))

    def _predicted(self, rows: Rows) -> Array:
        labels: Array = self._shares(rows).argmax(axis=1)
        return labels

    @property
    def labels_(self) -> Array:
        """The most probable cluster of each training row; computed when first requested."""
        self._check_fitted()
        if "_labels" not in self.__dict__:
            self._labels = self._predicted(self._fitted_rows(None))
        return self._labels

    def co_clustering(self, X: Table, others: Table | None = None) -> Array:
        """P(two rows are in the same cluster | data), (rows, rows) or (rows, others); independent of labels.

        Pass the rows as a table, or as their indices in the training table.

        Given a draw, different rows are independent, so the probability is Σ_j p_ij p_kj, averaged over draws. For a
        row with itself it is 1. Two rows that are both in clusters without rows count as being in different clusters,
        which matters only for very few rows.
        """
        rows = self._rows_or_numbers(X)
        second = rows if others is None else self._rows_or_numbers(others)
        out = np.zeros((rows.num_rows, second.num_rows))
        for number in range(self._count):
            draw = self._draw(number)
            left = prediction.memberships(self._family, rows, draw)[:, :-1]
            right = left if others is None else prediction.memberships(self._family, second, draw)[:, :-1]
            out += left @ right.T
        out /= self._count
        if others is None:
            np.fill_diagonal(out, 1.0)
        return out

    # -- clusters -----------------------------------------------------------------------------------------------------

    @property
    def base_(self) -> str:
        """Type of the rows: "multinomial" for counts, "gaussian" for real numbers."""
        self._check_fitted()
        return str(self._family.kind)

    def column_names(self, names: Sequence[object] | None = None) -> list[str]:
        """The names of the columns for readers: those given, those of the fit, or else numbers."""
        known = vars(self).get("feature_names_in_") if names is None else names
        if known is None:
            return [f"column {k}" for k in range(self.n_features_in_)]
        return column_names([], self.n_features_in_, known) or []

    @property
    def stats_(self) -> dict[str, Array]:
        """Statistics of each draw, (chain, draw): number of clusters that have rows, concentration α, ..."""
        self._check_fitted()
        return {name: np.asarray(values) for name, values in self.run_.stats.items()}

    def num_clusters(self, interval: float | None = None) -> Any:
        """Number of clusters that have rows: all draws (chain, draw), or (low, high) of a credible interval."""
        found = self.stats_["num_clusters"].astype(int)
        if interval is None:
            return found
        return tuple(int(value) for value in self._interval(found, interval))

    @property
    def concentration_(self) -> float:
        """Posterior mean of α."""
        return float(self.stats_["concentration"].mean())

    @property
    def weights_(self) -> Array:
        """Posterior mean weights of the clusters, numbered as in `predict`."""
        return self._means()["weights"]

    @property
    def components_(self) -> Array:
        """Posterior mean probabilities of the categories in each cluster, numbered as in `predict`; for counts."""
        return self._parameter("components")

    @property
    def means_(self) -> Array:
        """Posterior means of the clusters, numbered as in `predict`; for real rows."""
        return self._parameter("means")

    @property
    def precisions_(self) -> Array:
        """Posterior mean precisions of the clusters; for real rows."""
        return self._parameter("precisions")

    def _parameter(self, name: str) -> Array:
        self._check_fitted()
        if name not in self._family.parameters:
            raise AttributeError(
                f"a mixture with base={self._family.kind!r} has "
                f"{' and '.join(other + '_' for other in self._family.parameters)}, not {name}_."
            )
        return self._means()[name]

    def clusters(self, interval: float = 0.9) -> list[Cluster]:
        """The clusters, largest first: label as in `predict`, weight, and its credible interval (low, high)."""
        chosen, shares = self._reference(), []
        for number, translation in enumerate(chosen.translations):
            shares.append(self._weights(number) @ translation)
        low, high = self._interval(np.array(shares), interval)
        mean = np.mean(shares, axis=0)
        order = np.argsort(-mean, kind="stable")
        return [Cluster(int(r), float(mean[r]), float(low[r]), float(high[r])) for r in order]

    def intervals(self, interval: float = 0.9, columns: ArrayLike | None = None) -> dict[str, tuple[Array, Array]]:
        """Credible intervals of the parameters of the clusters, numbered as in `predict`: {name: (low, high)}.

        In each draw, a cluster of the reference is the average of the clusters matched to it; draws are weighted by the
        total weight matched. Each end has the shape of `components_`, or of `means_` and `precisions_`.

        Parameters
        ----------
        interval
            Probability of the intervals.
        columns
            Indices of the columns to include: the same for all clusters (n,), or different ones (clusters, n).
        """
        chosen = self._reference()
        wanted = np.arange(self.n_features_in_) if columns is None else np.asarray(columns)
        wanted = np.broadcast_to(wanted, (chosen.num_clusters, wanted.shape[-1]))
        names, tails = tuple(self._family.shapes()), (0.5, 0.5)
        if interval:
            tails = tails_of(interval)
            check_draws(self._count, interval, _MORE_DRAWS)
        size = max(1, _MOST_NUMBERS // (self._count * chosen.num_clusters))
        parts = [
            ends(self._draw, self._weights, chosen.translations, names, wanted[:, first : first + size], tails)
            for first in range(0, wanted.shape[1], size)
        ]
        joined = {name: np.concatenate([part[name] for part in parts], axis=2) for name in names}
        return {name: (low, high) for name, (low, high) in joined.items()}

    def _means(self) -> dict[str, Array]:
        """Σ_c ω_c A_cr, and parameters averaged with these weights."""
        if "_averages" not in self.__dict__:
            self._averages = self._averaged()
        return self._averages

    def _averaged(self) -> dict[str, Array]:
        chosen = self._reference()
        weights = np.zeros(chosen.num_clusters)
        sums = {name: np.zeros((chosen.num_clusters, *shape)) for name, shape in self._family.shapes().items()}
        for number, translation in enumerate(chosen.translations):
            shared = self._weights(number)[:, None] * translation
            weights += shared.sum(axis=0)
            draw = self._draw(number)
            for name, total in sums.items():
                total += shared.T @ np.asarray(draw[name][: len(shared)], np.float64)
        out = {name: total / np.maximum(weights, 1e-300)[:, None] for name, total in sums.items()}
        return {"weights": weights / self._count, **out}

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _count(self) -> int:
        """Number of draws in all chains."""
        chains, draws = self.draws_["rest"].shape[:2]
        return int(chains * draws)

    def _draw(self, number: int) -> dict[str, Array]:
        chain, draw = divmod(number, self.draws_["rest"].shape[1])
        return {name: np.asarray(values[chain, draw]) for name, values in self.draws_.items()}

    def _weights(self, number: int) -> Array:
        chain, draw = divmod(number, self.draws_["rest"].shape[1])
        weights = np.asarray(self.draws_["weights"][chain, draw], np.float64)
        return weights[: np.count_nonzero(weights)]

    def _reference(self) -> prediction.ReferenceDraw:
        self._check_fitted()
        if self._chosen is None:
            self._chosen = prediction.choose(self._family, self._judges, self._draw, self._count)
        return self._chosen

    def _rows(self, X: Table) -> Rows:
        self._check_fitted()
        known, names = vars(self).get("feature_names_in_"), column_names(X, None)
        if known is not None and names is not None and list(known) != names:
            raise InvalidValueError(
                f"the columns of `X` begin with {', '.join(names[:5])}, and those of the fit with "
                f"{', '.join(known[:5])}: pass the same columns in the same order."
            )
        return self._family.rows(X)

    def _rows_or_numbers(self, X: Table) -> Rows:
        if not isinstance(X, Sparse):
            numbers = as_numpy(X, "`X`")
            if numbers.ndim == 1 and numbers.dtype.kind in "iu":
                return self._fitted_rows(numbers)
        return self._rows(X)

    def _fitted_rows(self, numbers: Array | None) -> Rows:
        """The training rows; a loaded model does not have them."""
        self._check_fitted()
        rows = self.__dict__.get("_training")
        if rows is None:
            raise not_fitted(
                "the training rows are not available (they are not saved, and partial_fit does not keep their order): "
                "pass the rows themselves."
            )
        if numbers is None:
            return rows
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < rows.num_rows:
            raise InvalidValueError(f"row numbers must be from 0 to {rows.num_rows - 1}, got {numbers}.")
        return rows.take(numbers)

    def _interval(self, values: Array, probability: float) -> tuple[Array, Array]:
        """By the rule of all models; those of whole numbers (of all chains) end at whole numbers, further out."""
        whole = values.dtype.kind == "i"
        flat = values.ravel() if whole else values
        if not probability:  # `level` of a single draw
            return np.median(flat, axis=0), np.median(flat, axis=0)
        low, high = central(flat, probability, advice=_MORE_DRAWS)
        return (np.floor(low), np.ceil(high)) if whole else (low, high)

    def _level(self, interval: float) -> float:
        """The interval, or the widest that the draws determine: 0 for a single draw."""
        return widest(self._count, interval)


def _parts(num_rows: int) -> Iterator[Array]:
    for first in range(0, num_rows, _ROWS_AT_ONCE):
        yield np.arange(first, min(first + _ROWS_AT_ONCE, num_rows))


def column_names(X: Table, width: int | None, names: Sequence[object] | None = None) -> list[str] | None:
    """The names of columns that were passed, or of a data frame whose columns have names."""
    if names is None and isinstance(X, Frame) and all(isinstance(name, str) for name in X.columns):
        names = list(X.columns)
    if names is None:
        return None
    if not _checks.is_list(names):
        raise InvalidTypeError(f"`names` must be a list with one name per column, got {names!r}.")
    listed = [str(name) for name in names]
    if width is not None and len(listed) != width:
        raise InvalidValueError(f"`names` must have one name per column ({width:,}), got {len(listed):,}.")
    return listed


def reference_rows(rows: Rows) -> dict[str, Any]:
    """Some rows, as JSON: a stored fit has them from its first step, so that its clusters can be matched."""
    some = rows.take(np.arange(min(_REFERENCE_ROWS, rows.num_rows)))
    return {name: encode(value) for name, value in some._asdict().items()}


def _opened(family: dict[str, Any], reference: dict[str, Any]) -> tuple[BaseMeasure[Any], Rows]:
    """The family and the rows of `reference_rows`."""
    kind: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in family.items()}
    parts = {name: decode(value, name) for name, value in reference.items()}
    if kind.pop("kind") == "multinomial":
        return MultinomialFamily(**kind), CountRows(**parts)
    return GaussianFamily(**kind), RealRows(**parts)
