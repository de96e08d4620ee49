"""`sc.models.BNN`: a classifier whose weights are drawn from their posterior, by minibatches."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco.data.arrays import ArraySource
from scirocco.errors import InvalidValueError
from scirocco.estimators import Minibatch
from scirocco.models import fits
from scirocco.models.fits.length import Spread
from scirocco.models.network import adapters
from scirocco.models.network.inputs import checked_inputs, checked_labels
from scirocco.models.network.problem import Problem, gamma_prior, own_problem, two_layers
from scirocco.models.network.results import MONITORED, Results
from scirocco.reducers import Predictive
from scirocco.run import sample
from scirocco.run.progress import Callback
from scirocco.run.result import Run
from scirocco.samplers import SGHMC

_DEFAULT_EPOCHS, _LEAST_STEPS = 100, 5_000
_STEP, _DAMPING = 0.03, 0.02
"""ε² N and εC of the default sampler: an average gradient is followed at a rate of 0.03, with momentum 0.98."""


class BNN(fits.Conventions, Results):
    r"""Bayesian neural network for classes: :math:`y ∼ \text{Categorical}(\text{softmax}(\text{apply}(w, x)))`.

    Every array of weights has a normal prior N(0, I/λ) with a precision λ ∼ Gamma of its own (thesis section 4.6.3); λ
    is integrated out and drawn afterwards, see `scirocco.models.network.density`. Predictions are averages over
    posterior draws of the weights. Only `num_draws` of these are kept; for inputs that are given to `fit`, the average
    is over all draws, and none is kept for it.

    Parameters
    ----------
    hidden, activation
        Of the network with one hidden layer that is used when `apply` is not given: how many units, and "relu", "tanh",
        "sigmoid" or "softmax" (the thesis').
    apply, params
        Any pure function `apply(params, x)` from inputs (n, ...) to logits (n, classes), and weights to start from. For
        modules of Flax and Equinox see `from_flax` and `from_equinox`.
    classes
        The labels, in the order of the logits; by default those that occur, sorted (of a user's `apply`: 0, 1, ...).
    precision
        Shape and rate of the Gamma law of the precisions.
    sampler
        By default SGHMC with step size √(0.03/N) and εC = 0.02, for inputs of about unit size.
    estimator
        By default `sc.Minibatch(batch_size)`.
    batch_size
        Rows in a step (all, where there are fewer).
    thin
        Steps between two draws that are averaged.
    num_draws
        Draws kept in each chain, for `predict`.
    discard
        The share of a run that is burn-in.
    num_chains, seed
        Independent chains, from the same weights; the seed of everything.

    Attributes
    ----------
    classes_
        The labels.
    n_features_in_, feature_names_in_
        Numbers in a row of X, and the names of its columns where it is a table that has them.
    predictive_, scores_
        For `X_test` of `fit`: probabilities averaged over all draws of all chains, (rows, classes); with `y_test` their
        accuracy, log loss, Brier score and calibration error.
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
    >>> net = sc.models.BNN(hidden=20).fit(X, y, num_steps=3_000, progress=False)
    >>> net.score(X, y) > 0.9, net.predict_proba(X[:3]).shape
    (True, (3, 2))
    """

    run_: Run

    def __init__(
        self,
        hidden: int = 100,
        activation: str = "relu",
        *,
        apply: Any = None,
        params: Any = None,
        classes: Sequence[Any] | None = None,
        precision: tuple[float, float] = (1.0, 1.0),
        sampler: Any = None,
        estimator: Any = None,
        batch_size: int = 500,
        thin: int = 20,
        num_draws: int = 50,
        discard: float = 0.3,
        num_chains: int = 1,
        seed: int = 0,
    ):
        self.hidden, self.activation = hidden, activation
        self.apply, self.params = apply, params
        self.classes, self.precision = classes, precision
        self.sampler, self.estimator, self.batch_size = sampler, estimator, batch_size
        self.thin, self.num_draws, self.discard = thin, num_draws, discard
        self.num_chains, self.seed = num_chains, seed

    @classmethod
    def from_flax(cls, module: Any, example: Any, **options: Any) -> BNN:
        """A Flax module (linen or nnx) as the network; `example` is an array of inputs, a few rows will do.

        The module must be deterministic and have no state besides its parameters: no dropout, no batch statistics.
        """
        apply, params = adapters.flax(module, example, options.get("seed", 0))
        return cls(apply=apply, params=params, **options)

    @classmethod
    def from_equinox(cls, module: Any, **options: Any) -> BNN:
        """An Equinox module, which takes one input, as the network; all its floating-point arrays are drawn."""
        apply, params = adapters.equinox(module)
        return cls(apply=apply, params=params, **options)

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        X_test: Any = None,
        y_test: Any = None,
        num_steps: int | None = None,
        num_epochs: float | None = None,
        store: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
    ) -> BNN:
        """Draw weights given inputs and their classes.

        Parameters
        ----------
        X
            Inputs (rows, ...) of about unit size. Bytes (uint8) are pixels: they are divided by 255, with a notice,
            unless all are zeros and ones. Where the columns of a table have names, predictions ask for the same ones.
        y
            Labels, one a row.
        X_test, y_test
            Inputs whose predictive probabilities are averaged over every draw while the chains run, and their labels.
        num_steps, num_epochs
            One of them; a hundred passes by default, and no fewer than 5,000 steps.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`. A fit that is gone on with has the length that it was started with: burn-in and kept
            draws are shares of it.
        """
        problem = self._problem(X, y)
        sampler, estimator = self._method(len(problem.rows.y))
        plan = self._plan(num_steps, num_epochs, len(problem.rows.y), estimator)
        monitored = None if X_test is None else self._monitored(X_test, problem)
        tested = None if y_test is None else self._tested(y_test, monitored, problem.classes)
        run = sample(
            problem.model,
            ArraySource(problem.rows),  # checked already; from_arrays would make bytes four times as large
            problem.params,
            sampler=sampler,
            estimator=estimator,
            num_samples=plan.num_draws,
            num_burnin=plan.burn_in,
            thin=plan.thin,
            keep_draws=math.ceil(plan.num_draws / _checks.positive_int(self.num_draws, "num_draws")),
            num_chains=self.num_chains,
            seed=self.seed,
            reducers=None if monitored is None else {MONITORED: Predictive(problem.probabilities, monitored)},
            store=store,
            resume=resume,
            overwrite=overwrite,
            callbacks=callbacks,
            progress=progress,
        )
        self._settle(run, problem, tested)
        return self

    def __sklearn_tags__(self) -> Any:
        """A classifier, of inputs of any shape."""
        utils = require("sklearn.utils", "a scikit-learn pipeline")
        tags = super().__sklearn_tags__()
        tags.estimator_type, tags.transformer_tags = "classifier", None
        tags.classifier_tags, tags.target_tags.required = utils.ClassifierTags(), True
        return tags

    # -- inside -------------------------------------------------------------------------------------------------------

    def _problem(self, X: Any, y: Any) -> Problem:
        prior = gamma_prior(self.precision)
        x, form = checked_inputs(X)
        if self.apply is not None:
            return own_problem(self.apply, self.params, x, form, y, self.classes, prior)
        return two_layers(self.hidden, self.activation, x, form, y, self.classes, prior, self.seed)

    def _method(self, num_rows: int) -> tuple[Any, Any]:
        size = _checks.positive_int(self.batch_size, "batch_size")
        estimator = Minibatch(min(size, num_rows)) if self.estimator is None else self.estimator
        if self.sampler is not None:
            return self.sampler, estimator
        step = math.sqrt(_STEP / num_rows)
        return SGHMC(step, friction=_DAMPING / step, gradient_noise=0.0), estimator

    def _plan(self, num_steps: Any, num_epochs: Any, num_rows: int, estimator: Any) -> Spread:
        """Where the draws are, `thin` steps from one to the next."""
        batch = getattr(estimator, "batch_size", num_rows)
        length = fits.check_length(
            num_steps, num_epochs, None, num_rows=num_rows, batch_size=batch, default_epochs=_DEFAULT_EPOCHS
        )
        steps = int(length.num_steps or 0)
        steps = max(steps, _LEAST_STEPS) if length.is_default else steps
        thin = _checks.positive_int(self.thin, "thin")
        wanted = int(steps * (1.0 - fits.check_discard(self.discard))) // thin
        if wanted < 1:
            raise InvalidValueError(
                f"{steps} steps are too few for a draw every `thin` = {thin} steps after the burn-in of "
                f"{self.discard:g} of them: give more steps or a smaller `thin`."
            )
        return Spread(wanted, steps - wanted * thin, thin)

    def _monitored(self, X_test: Any, problem: Problem) -> Any:
        return jnp.asarray(checked_inputs(X_test, problem.form)[0])

    def _tested(self, y_test: Any, monitored: Any, classes: np.ndarray) -> np.ndarray:
        if monitored is None:
            raise InvalidValueError("`y_test` is of no use without `X_test`.")
        return checked_labels(y_test, len(monitored), classes.tolist(), None)[0]
