"""Results of a fitted network: probabilities averaged over draws, scores, precisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from scirocco import _tree
from scirocco.analysis import scores as rating
from scirocco.data.values import Sparse, as_numpy
from scirocco.errors import InvalidValueError
from scirocco.models._core.model import FittedModel
from scirocco.models._core.view import View
from scirocco.models.inputs import ColumnLike, TableLike
from scirocco.models.network.density import Prior, Probabilities
from scirocco.models.network.problem import Form, checked_inputs, checked_labels
from scirocco.run.encoding import decode, encode
from scirocco.run.loading import like
from scirocco.run.result import Run
from scirocco.types import Array, Params, PyTree

MONITORED = "predictive"
"""Name of the reducer of `X_test`."""
_REFERENCE_ROWS, _REFERENCE_BYTES = 10, 1 << 20
"""Training rows whose predictions are compared between chains: so many, or as many as take this memory."""
_ROWS_AT_ONCE = 2_048
"""Rows of a piece of a prediction."""


class Results(FittedModel):
    """Results computed from the kept draws."""

    classes_: np.ndarray
    predictive_: np.ndarray
    """Only with `X_test`."""
    scores_: dict[str, float]
    """Scores of `predictive_`; only with `y_test`."""
    _probabilities: Probabilities | None
    """None for a loaded model with a user's network, which is not saved."""
    _prior: Prior
    n_features_in_: int
    feature_names_in_: np.ndarray
    """Only for a table whose columns have names."""
    _form: Form
    _reference: dict[str, Any]
    """Some training rows, from `some_rows`."""
    _weights: PyTree
    """The kept draws, as a tree for the network."""

    def _set_form(self, form: Form) -> None:
        self.__dict__.pop("feature_names_in_", None)
        self._form, self.n_features_in_ = form, int(np.prod(form.row))
        if form.names is not None:
            self.feature_names_in_ = np.asarray(form.names, dtype=object)

    def _set_weights(self, run: Run, params: Params | None, tested: np.ndarray | None) -> Mapping[str, Any]:
        """Take the draws of a run, and the averages over all draws for the test inputs of `fit`; the draws by name."""
        for name in ("predictive_", "scores_", "_precisions"):
            self.__dict__.pop(name, None)
        named = run.named_draws()
        if params is not None and sorted(named) != sorted(names := _tree.leaf_names(params)):
            raise InvalidValueError(
                f"the weights in {run.path} are {', '.join(sorted(named))}, but `params` has "
                f"{', '.join(sorted(names))}: pass those of the fitted network."
            )
        self._weights = run.draws if params is None else like(params, run.draws)
        if MONITORED in run.reduced:
            averages = run.reduced[MONITORED]
            counts, means = np.asarray(averages.count, np.float64), np.asarray(averages.mean, np.float64)
            self.predictive_ = _normalised(np.tensordot(counts / counts.sum(), means, axes=1))
            if tested is not None:
                self.scores_ = all_scores(self.predictive_, tested)
        return run.draws if isinstance(run.draws, dict) and run.draws.keys() == named.keys() else named

    def _watched(self) -> dict[str, np.ndarray]:
        """Predictions for some training rows: unlike weights, which hidden units may exchange, they are identified."""
        if self._probabilities is None:
            return self._sizes()
        rows = decode(self._reference["rows"], "rows")
        found = np.stack([self._probabilities_at(k, rows) for k in range(self._count)])
        chains, draws = self.run_.num_chains, self.run_.num_draws
        return {"prediction": found.reshape(chains, draws, len(rows), -1)}

    def _coordinates(self) -> dict[str, Sequence[Any]]:
        return {
            "prediction_dim_0": [f"row {k}" for k in self._reference["numbers"]],
            "prediction_dim_1": self.classes_.tolist(),
        }

    # -- predictions --------------------------------------------------------------------------------------------------

    def predict_proba(self, X: TableLike) -> np.ndarray:
        """Predictive probabilities, (rows, classes): averages over the kept draws of all chains."""
        x = self._inputs(X)
        out = np.zeros((len(x), len(self.classes_)))
        for number in range(self._count):
            out += self._probabilities_at(number, x)
        return _normalised(out / self._count)

    def predict(self, X: TableLike) -> np.ndarray:
        """The most probable class of each row."""
        chosen = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[chosen]

    def score(self, X: TableLike, y: ColumnLike) -> float:
        """Accuracy: the fraction of rows whose most probable class is the label."""
        return rating.accuracy(self.predict_proba(X), self._codes(y, X))

    def calibration(self, X: TableLike, y: ColumnLike, bins: int = 10) -> rating.Calibration:
        """Calibration: observed frequency of predictions with probability about p, see `sc.analysis.calibration`."""
        return rating.calibration(self.predict_proba(X), self._codes(y, X), bins)

    def scores(self, X: TableLike, y: ColumnLike) -> dict[str, dict[str, float]]:
        """Accuracy, log loss, Brier score and calibration error: of the average over draws, and of the last draw."""
        x, codes = self._inputs(X), self._codes(y, X)
        single = self._probabilities_at(self._count - 1, x)
        return {
            "average": all_scores(self.predict_proba(X), codes),
            "single draw": all_scores(_normalised(single), codes),
        }

    @property
    def precisions_(self) -> PyTree:
        """λ of each array of weights, drawn given the weights of each kept draw; leaves (chain, draw)."""
        self._check_fitted()
        if "_precisions" not in self.__dict__:
            rng = np.random.default_rng([self.seed, 0x1A3])
            found = [self._prior.draw_precisions(self._at(k), rng) for k in range(self._count)]
            shape = jax.tree.leaves(self._weights)[0].shape[:2]
            self._precisions = jax.tree.map(lambda *each: np.reshape(each, shape), *found)
        return self._precisions

    def _sizes(self) -> dict[str, np.ndarray]:
        """Precision and size (root mean square) of each array of weights, (chain, draw)."""
        draws: dict[str, np.ndarray] = {}
        precisions = jax.tree.leaves(self.precisions_)
        for name, leaf, precision in zip(
            _tree.leaf_names(self._weights), jax.tree.leaves(self._weights), precisions, strict=True
        ):
            squares = [
                np.mean(np.square(np.asarray(leaf[:, k], np.float64)), axis=tuple(range(1, leaf.ndim - 1)))
                for k in range(leaf.shape[1])
            ]
            draws[f"size of {name}"] = np.sqrt(np.stack(squares, axis=1))
            draws[f"precision of {name}"] = np.asarray(precision)
        return draws

    def _view(self, run: Run, **options: Any) -> View:
        about = (
            "Hidden units can be permuted, so single weights are not identified. The diagnostics use predictions for "
            "some training rows; the plots show the precision of each array of weights, and its size: the root mean "
            "square of the weights."
        )
        return View(run, type(self).__name__, judged=self._judged(), about=about, charted=self._sizes())

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _count(self) -> int:
        return self.run_.num_chains * self.run_.num_draws

    def _at(self, number: int) -> Params:
        """One draw, in memory or on disk."""
        chain, draw = divmod(number, self.run_.num_draws)
        return jax.tree.map(lambda leaf: np.asarray(leaf[chain, draw]), self._weights)

    def _probabilities_at(self, number: int, x: np.ndarray) -> np.ndarray:
        """Probabilities, computed in pieces of equal size, so that only one program is compiled."""
        network = self._probabilities
        if network is None:
            raise InvalidValueError(
                "a file contains no code: to predict, pass the network of the fit, BNN.load(path, apply=..., "
                "params=...)."
            )
        params, size, parts = self._at(number), min(_ROWS_AT_ONCE, len(x)), []
        for first in range(0, len(x), size):
            piece = x[first : first + size]
            short = size - len(piece)
            if short:
                piece = np.concatenate([piece, np.repeat(piece[-1:], short, axis=0)])
            parts.append(np.asarray(_predict(network, params, piece))[: size - short])
        return np.concatenate(parts).astype(np.float64)

    def _inputs(self, X: TableLike) -> np.ndarray:
        self._check_fitted()
        return checked_inputs(X, self._form)[0]

    def _codes(self, y: ColumnLike, X: TableLike) -> np.ndarray:
        self._check_fitted()
        rows = X.shape[0] if isinstance(X, Sparse) else len(as_numpy(X, "X of BNN"))
        return checked_labels(y, rows, self.classes_.tolist(), None)[0]


@partial(jax.jit, static_argnums=0)
def _predict(probabilities: Probabilities, params: Params, x: Array) -> Array:
    return probabilities(params, x)


def all_scores(probabilities: np.ndarray, codes: np.ndarray) -> dict[str, float]:
    """Accuracy, log loss, Brier score and expected calibration error."""
    return {
        "accuracy": rating.accuracy(probabilities, codes),
        "log_loss": rating.log_loss(probabilities, codes),
        "brier": rating.brier(probabilities, codes),
        "calibration_error": rating.calibration(probabilities, codes).error,
    }


def _normalised(probabilities: np.ndarray) -> np.ndarray:
    """Normalise in double precision: sums in single precision are off by 1e-6."""
    return probabilities / probabilities.sum(axis=1, keepdims=True)


def some_rows(x: np.ndarray) -> dict[str, Any]:
    """A few training rows and their numbers, as JSON: a stored fit has them from its first step."""
    count = max(1, min(_REFERENCE_ROWS, len(x), _REFERENCE_BYTES * len(x) // max(1, x.nbytes)))
    numbers = np.linspace(0, len(x) - 1, count).astype(int)
    return {"numbers": numbers.tolist(), "rows": encode(np.asarray(x[numbers]))}
