"""Results of a fitted network: probabilities averaged over draws, scores, precisions."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np

from scirocco import _tree
from scirocco.analysis import scores as rating
from scirocco.data.values import Sparse, as_numpy
from scirocco.errors import InvalidValueError
from scirocco.models.fits.conventions import not_fitted
from scirocco.models.inputs import ColumnLike, TableLike
from scirocco.models.network.density import Prior, Probabilities
from scirocco.models.network.problem import Form, checked_inputs, checked_labels
from scirocco.models._core.view import View, own_run, with_draws
from scirocco.run.result import Run
from scirocco.types import Array, Params, PyTree

MONITORED = "predictive"
"""Name of the reducer of `X_test`."""
_JUDGED_ROWS = 10
_ROWS_AT_ONCE = 2_048


class Results:
    """Results computed from the kept draws."""

    run_: Run
    seed: int
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

    def _settle(
        self, run: Run, classes: np.ndarray, form: Form, prior: Prior, network: Probabilities | None
    ) -> None:
        for name in ("predictive_", "scores_", "_precisions", "feature_names_in_"):
            self.__dict__.pop(name, None)
        self.run_, self.classes_ = run, classes
        self._probabilities, self._prior = network, prior
        self._form, self.n_features_in_ = form, int(np.prod(form.row))
        if form.names is not None:
            self.feature_names_in_ = np.asarray(form.names, dtype=object)

    def _average(self, run: Run, tested: np.ndarray | None) -> None:
        """Set the averages over all draws for the test inputs of `fit`."""
        if MONITORED not in run.reduced:
            return
        found = run.reduced[MONITORED]
        counts = np.asarray(found.count, np.float64)
        if not counts.sum():
            raise InvalidValueError("the run was stopped during burn-in, before its first draw.")
        means = np.asarray(found.mean, np.float64)
        self.predictive_ = _normalised(np.tensordot(counts / counts.sum(), means, axes=1))
        if tested is not None:
            self.scores_ = all_scores(self.predictive_, tested)

    # -- predictions --------------------------------------------------------------------------------------------------

    def predict_proba(self, X: TableLike) -> np.ndarray:
        """Predictive probabilities, (rows, classes): averages over the kept draws of all chains."""
        x = self._inputs(X)
        out = np.zeros((len(x), len(self.classes_)))
        draws = self._draws()
        for number in range(self._count):
            out += self._probabilities_at(draws, number, x)
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
        single = self._probabilities_at(self._draws(), self._count - 1, x)
        return {
            "average": all_scores(self.predict_proba(X), codes),
            "single draw": all_scores(_normalised(single), codes),
        }

    @property
    def precisions_(self) -> PyTree:
        """λ of each array of weights, drawn given the weights of each kept draw; leaves (chain, draw)."""
        if "_precisions" not in self.__dict__:
            draws, rng = self._draws(), np.random.default_rng([self.seed, 0x1A3])
            found = [self._prior.draw_precisions(self._at(draws, k), rng) for k in range(self._count)]
            shape = jax.tree.leaves(draws)[0].shape[:2]
            self._precisions = jax.tree.map(lambda *each: np.reshape(each, shape), *found)
        return self._precisions

    def to_arviz(self) -> Any:
        """Convert the kept weights to ArviZ; hidden units may be permuted along a chain.

        Statistics are left out: the run has them for all averaged draws, of which only few are kept.
        """
        self._draws()
        return dataclasses.replace(self.run_, stats={}).to_arviz()

    def report_view(self, run: Run | None = None, **options: Any) -> View:
        """Contents of a report, see `scirocco.models._core.view`: precision and size of each array of weights."""
        run = own_run(self, run)
        draws: dict[str, np.ndarray] = {}
        precisions = dict(
            zip(_tree.leaf_names(self.precisions_), jax.tree.leaves(self.precisions_), strict=True)
        )
        for name, leaf in zip(_tree.leaf_names(run.draws), jax.tree.leaves(run.draws), strict=True):
            squares = [
                np.mean(np.square(np.asarray(leaf[:, k], np.float64)), axis=tuple(range(1, leaf.ndim - 1)))
                for k in range(leaf.shape[1])
            ]
            draws[f"size of {name}"] = np.sqrt(np.stack(squares, axis=1))
            if name in precisions:
                draws[f"precision of {name}"] = np.asarray(precisions[name])
        about = (
            "Hidden units can be permuted, so single weights are not identified. The diagnostics and plots use the "
            "precision of each array of weights, and its size: the root mean square of the weights."
        )
        return View(run, type(self).__name__, judged=with_draws(run, draws), about=about)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _some_predictions(self, x: Array) -> dict[str, np.ndarray]:
        """Probabilities (chain, draw, class) of some training rows: unlike weights, they are identified."""
        rows = np.linspace(0, len(x) - 1, min(_JUDGED_ROWS, len(x))).astype(int)
        some, draws = np.asarray(x[rows]), self._draws()
        found = np.stack([self._probabilities_at(draws, k, some) for k in range(self._count)])
        found = found.reshape(self.run_.num_chains, self.run_.num_draws, len(rows), -1)
        return {f"the prediction for row {row}": found[:, :, k] for k, row in enumerate(rows.tolist())}

    def _draws(self) -> PyTree:
        if "run_" not in self.__dict__:
            raise not_fitted("this BNN is not fitted yet: call fit(X, y) first.")
        if self.run_.draws is None or not self.run_.num_draws:
            raise InvalidValueError("no weights were kept: the run was too short, or stopped during burn-in.")
        return self.run_.draws

    @property
    def _count(self) -> int:
        return self.run_.num_chains * self.run_.num_draws

    def _at(self, draws: PyTree, number: int) -> Params:
        """One draw, in memory or on disk."""
        chain, draw = divmod(number, self.run_.num_draws)
        return jax.tree.map(lambda leaf: np.asarray(leaf[chain, draw]), draws)

    def _probabilities_at(self, draws: PyTree, number: int, x: np.ndarray) -> np.ndarray:
        """Probabilities, computed in pieces of equal size, so that only one program is compiled."""
        network = self._probabilities
        if network is None:
            raise InvalidValueError(
                "a file contains no code: to predict, pass the network of the fit, BNN.load(path, apply=..., "
                "params=...)."
            )
        params, size, parts = self._at(draws, number), min(_ROWS_AT_ONCE, len(x)), []
        for first in range(0, len(x), size):
            piece = x[first : first + size]
            short = size - len(piece)
            if short:
                piece = np.concatenate([piece, np.repeat(piece[-1:], short, axis=0)])
            parts.append(np.asarray(_predict(network, params, piece))[: size - short])
        return np.concatenate(parts).astype(np.float64)

    def _inputs(self, X: TableLike) -> np.ndarray:
        self._draws()
        return checked_inputs(X, self._form)[0]

    def _codes(self, y: ColumnLike, X: TableLike) -> np.ndarray:
        self._draws()
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
