"""`sc.models.BNN`: a classifier with posterior draws of its weights, by minibatches."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks, _tree
from scirocco.analysis import scores as rating
from scirocco.data.arrays import ArraySource
from scirocco.data.values import Sparse, as_numpy
from scirocco.errors import InvalidValueError
from scirocco.estimators import Estimator, Minibatch
from scirocco.models._core.length import BY_THE_CLOCK
from scirocco.models._core.model import FittedModel
from scirocco.models._core.program import FitOptions, Sampled
from scirocco.models._core.view import View
from scirocco.models.inputs import ColumnLike, TableLike
from scirocco.models.network import networks
from scirocco.models.network.problem import (
    Apply,
    Form,
    LabelledRows,
    NetworkProblem,
    Probabilities,
    WeightPrior,
    check_network,
    checked_inputs,
    checked_labels,
    gamma_prior,
    num_classes_of,
)
from scirocco.reducers import Predictive
from scirocco.run import sample
from scirocco.run.encoding import decode, encode
from scirocco.run.loading import like
from scirocco.run.result import Run
from scirocco.samplers import SGHMC, Sampler
from scirocco.types import Array, Params, PyTree

_DEFAULT_EPOCHS, _LEAST_STEPS = 100, 5_000
"""Passes of a run without a length, and the fewest steps of it."""
_STEP, _DAMPING = 0.03, 0.02
"""ε² N and εC of the default sampler: a learning rate of 0.03 for the mean gradient, with momentum 0.98."""
MONITORED = "predictive"
"""Name of the reducer of `X_test`."""
_REFERENCE_ROWS, _REFERENCE_BYTES = 10, 1 << 20
"""Training rows whose predictions are compared between chains: so many, or as many as take this memory."""
_ROWS_AT_ONCE = 2_048
"""Rows of a piece of a prediction."""


class BNN(FittedModel):
    r"""Bayesian neural network for classification: :math:`y ∼ \text{Categorical}(\text{softmax}(\text{apply}(w, x)))`.

    Each array of weights has a normal prior N(0, I/λ) with its own precision λ ∼ Gamma (thesis section 4.6.3); λ is
    integrated out and drawn afterwards, see `scirocco.models.network.problem`. Predictions are averages over posterior
    draws of the weights. Only `num_samples` of these are kept; for test inputs passed to `fit`, the average is over all
    draws, which need not be kept.

    Parameters
    ----------
    hidden, activation
        Number of units and activation ("relu", "tanh", "sigmoid", or "softmax" as in the thesis) of the network with
        one hidden layer that is used if `apply` is not given.
    apply, params
        Any pure function `apply(params, x)` from inputs (n, ...) to logits (n, classes), and initial weights. For
        modules of Flax and Equinox see `from_flax` and `from_equinox`.
    classes
        The labels, in the order of the logits; by default those in y, sorted (with `apply`: 0, 1, ...).
    precision
        Shape and rate of the Gamma prior of the precisions.
    sampler
        Sampler; by default SGHMC with step size √(0.03/N) and εC = 0.02, for inputs of about unit scale.
    estimator
        Gradient estimator; by default `sc.Minibatch(batch_size)`.
    batch_size
        Number of rows per step (all if there are fewer).
    thin
        Steps between two averaged draws.
    num_samples
        Number of draws kept per chain, for `predict`.
    num_burnin
        Length of the burn-in: steps (int), or a fraction of the run (float below 1).
    num_chains, seed
        Number of independent chains, which start from the same weights; the seed of all random numbers.

    Attributes
    ----------
    classes_
        The labels.
    n_features_in_, feature_names_in_
        Number of features in a row of X, and the names of its columns, if it is a table with names.
    predictive_, scores_
        For `X_test` of `fit`: probabilities averaged over all draws of all chains, (rows, classes); with `y_test`,
        their accuracy, log loss, Brier score and calibration error.
    precisions_
        λ of each array of weights for each kept draw, leaves (chain, draw).
    run_
        The run: `run_.draws` are the kept weights.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2)).astype(np.float32)
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)                        # no line divides these classes
    >>> net = sc.models.BNN(hidden=20).fit(X, y, num_epochs=3_000, progress=False)
    >>> net.score(X, y) > 0.9, net.predict_proba(X[:3]).shape
    (True, (3, 2))
    """

    ADVICE = "Pass a larger `num_epochs` to fit, or a longer `num_burnin`."
    CODE = ("apply", "params")
    _estimator_type: ClassVar[str | None] = "classifier"
    classes_: np.ndarray
    predictive_: np.ndarray
    """Only with `X_test`."""
    scores_: dict[str, float]
    """Scores of `predictive_`; only with `y_test`."""
    _probabilities: Probabilities | None
    """None for a loaded model with a user's network, which is not saved."""
    _prior: WeightPrior
    n_features_in_: int
    feature_names_in_: np.ndarray
    """Only for a table whose columns have names."""
    _form: Form
    _reference: dict[str, Any]
    """Some training rows, from `some_rows`."""
    _weights: PyTree
    """The kept draws, as a tree for the network."""

    def __init__(
        self,
        hidden: int = 100,
        activation: str = "relu",
        *,
        apply: Apply | None = None,
        params: Params | None = None,
        classes: Sequence[object] | None = None,
        precision: tuple[float, float] = (1.0, 1.0),
        sampler: Sampler | None = None,
        estimator: Estimator | None = None,
        batch_size: int = 500,
        thin: int = 20,
        num_samples: int = 50,
        num_burnin: float = 0.3,
        num_chains: int = 4,
        seed: int = 0,
    ):
        self.hidden, self.activation = hidden, activation
        self.apply, self.params = apply, params
        self.classes, self.precision = classes, precision
        self.sampler, self.estimator, self.batch_size = sampler, estimator, batch_size
        self.thin, self.num_samples, self.num_burnin = thin, num_samples, num_burnin
        self.num_chains, self.seed = num_chains, seed

    @classmethod
    def from_flax(cls, module: object, example: ArrayLike, **options: Any) -> BNN:
        """Use a Flax module (linen or nnx) as the network; `example` is an array of inputs, a few rows are enough.

        The module must be deterministic and have no state except its parameters: no dropout, no batch statistics.
        """
        apply, params = networks.flax(module, example, options.get("seed", 0))
        return cls(apply=apply, params=params, **options)

    @classmethod
    def from_equinox(cls, module: object, **options: Any) -> BNN:
        """Use an Equinox module, which takes one input, as the network; all its floating-point arrays are sampled."""
        apply, params = networks.equinox(module)
        return cls(apply=apply, params=params, **options)

    def fit(
        self,
        X: TableLike,
        y: ColumnLike,
        *,
        X_test: TableLike | None = None,
        y_test: ColumnLike | None = None,
        **options: Unpack[FitOptions],
    ) -> BNN:
        """Sample weights from the posterior given inputs and their classes.

        Parameters
        ----------
        X
            Inputs (rows, ...) of about unit scale. Bytes (uint8) are pixels: they are divided by 255, with a warning,
            unless all are zeros and ones. If the columns of a table have names, predictions require the same names.
        y
            Labels, one per row.
        X_test, y_test
            Inputs whose predictive probabilities are averaged over all draws while the chains run, and their labels.
        num_steps, num_epochs, max_seconds
            The length of the run, including burn-in, as steps, passes over the rows or seconds of sampling (without
            set-up and compilation); give at most one. By default 100 passes, but at least 5,000 steps.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`. A resumed fit keeps its original length, because burn-in and kept draws are fractions of
            it.
        """
        problem = self._problem(X, y)
        num_rows = len(problem.rows.y)
        sampler, estimator = self._method(num_rows)
        batch_size = estimator.batching(num_rows).size
        if all(options.get(name) is None for name in ("num_steps", "num_epochs", "max_seconds")):
            options["num_steps"] = max(math.ceil(_DEFAULT_EPOCHS * num_rows / batch_size), _LEAST_STEPS)
        monitored = None if X_test is None else jnp.asarray(checked_inputs(X_test, problem.form)[0])
        if y_test is not None and monitored is None:
            raise InvalidValueError("`y_test` requires `X_test`.")
        tested = {}
        if y_test is not None and monitored is not None:
            tested["tested"] = checked_labels(y_test, len(monitored), problem.classes.tolist(), None)[0]
        asked = self._asked(options)
        sampling = functools.partial(
            _sampled,
            asked.num_samples,
            problem.model,
            ArraySource(problem.rows),  # already checked; from_arrays would make bytes four times as large
            problem.params,
            sampler=sampler,
            estimator=estimator,
            reducers=None if monitored is None else {MONITORED: Predictive(problem.probabilities, monitored)},
        )
        program = Sampled(
            sampling,
            num_rows,
            batch_size,
            {
                "own": self.apply is not None,
                "form": problem.form._asdict(),
                "classes": problem.classes.tolist(),
                "classes_type": problem.classes.dtype.str,
                "reference": some_rows(problem.rows.x),
            },
            tested,
        )
        # as many draws as fit are averaged, `thin` steps apart
        return self._run(program, options, asked._replace(num_samples=BY_THE_CLOCK))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _problem(self, X: TableLike, y: ColumnLike) -> NetworkProblem:
        prior = gamma_prior(self.precision)
        x, form = checked_inputs(X)
        if self.apply is None:
            network = networks.TwoLayers(self.activation)
            hidden = _checks.positive_int(self.hidden, "hidden")
            codes, classes = checked_labels(y, len(x), self.classes, None)
            params = network.start(math.prod(x.shape[1:]), hidden, len(classes), self.seed)
            return NetworkProblem(Probabilities(network), params, LabelledRows(x, codes), form, classes, prior)
        check_network(self.apply, self.params)
        count = num_classes_of(self.apply, self.params, x)
        codes, classes = checked_labels(y, len(x), self.classes, count)
        start = jax.tree.map(jnp.asarray, self.params)
        return NetworkProblem(Probabilities(self.apply), start, LabelledRows(x, codes), form, classes, prior)

    def _method(self, num_rows: int) -> tuple[Sampler, Estimator]:
        size = _checks.positive_int(self.batch_size, "batch_size")
        estimator = Minibatch(min(size, num_rows)) if self.estimator is None else self.estimator
        if self.sampler is not None:
            return self.sampler, estimator
        step = math.sqrt(_STEP / num_rows)
        return SGHMC(step, friction=_DAMPING / step, gradient_noise=0.0), estimator

    # -- results -------------------------------------------------------------------------------------------------------

    def _results(self, run: Run, told: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        for name in ("predictive_", "scores_", "feature_names_in_", "_precisions"):
            vars(self).pop(name, None)
        network = self.apply if told["own"] else networks.TwoLayers(self.activation)
        self._prior, self._reference = gamma_prior(self.precision), told["reference"]
        self._probabilities = None if network is None else Probabilities(network)
        self.classes_ = np.asarray(told["classes"], np.dtype(told["classes_type"]))
        row, names = tuple(told["form"]["row"]), told["form"]["names"]
        self._form = Form(row, None if names is None else tuple(names), bool(told["form"]["pixels"]))
        self.n_features_in_ = math.prod(row)
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        named, params = run.named_draws(), self.params
        if params is not None and sorted(named) != sorted(wanted := _tree.leaf_names(params)):
            raise InvalidValueError(
                f"the weights in {run.path} are {', '.join(sorted(named))}, but `params` has "
                f"{', '.join(sorted(wanted))}: pass those of the fitted network."
            )
        self._weights = run.draws if params is None else like(params, run.draws)
        if MONITORED in run.reduced:
            averages = run.reduced[MONITORED]
            counts, means = np.asarray(averages.count, np.float64), np.asarray(averages.mean, np.float64)
            self.predictive_ = _normalised(np.tensordot(counts / counts.sum(), means, axes=1))
            if "tested" in arrays:
                self.scores_ = all_scores(self.predictive_, arrays["tested"])
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

    # -- predictions ---------------------------------------------------------------------------------------------------

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

    # -- inside --------------------------------------------------------------------------------------------------------

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


def _sampled(num_kept: int, *problem: Any, num_samples: int, **how: Any) -> Run:
    """`sc.sample`; of the draws of a chain, at most `num_kept` are kept."""
    return sample(*problem, num_samples=num_samples, keep_draws=math.ceil(num_samples / num_kept), **how)


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
