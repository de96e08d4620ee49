"""`sc.models.BNN`: a classifier with posterior draws of its weights, by minibatches."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks, _tree
from scirocco.data.arrays import ArraySource
from scirocco.errors import InvalidValueError
from scirocco.estimators import Estimator, Minibatch
from scirocco.models import fits, sampled
from scirocco.models.fits.drive import BY_THE_CLOCK
from scirocco.models.fits.mixing import warn_if_unmixed
from scirocco.models.inputs import ColumnLike, TableLike
from scirocco.models.network import networks
from scirocco.models.network.density import Apply, Probabilities
from scirocco.models.network.problem import (
    Form,
    Problem,
    checked_inputs,
    checked_labels,
    gamma_prior,
    own_problem,
    two_layers,
)
from scirocco.models.network.results import MONITORED, Results
from scirocco.reducers import Predictive
from scirocco.run import sample
from scirocco.run.progress import Callback
from scirocco.run.result import Run
from scirocco.samplers import SGHMC, Sampler
from scirocco.types import Array, Params

_KIND = fits.Kind("BNN", "a network", "bnn")
_DEFAULT_EPOCHS, _LEAST_STEPS = 100, 5_000
_STEP, _DAMPING = 0.03, 0.02
"""ε² N and εC of the default sampler: a learning rate of 0.03 for the mean gradient, with momentum 0.98."""


class BNN(fits.Conventions, Results):
    r"""Bayesian neural network for classification: :math:`y ∼ \text{Categorical}(\text{softmax}(\text{apply}(w, x)))`.

    Each array of weights has a normal prior N(0, I/λ) with its own precision λ ∼ Gamma (thesis section 4.6.3); λ is
    integrated out and drawn afterwards, see `scirocco.models.network.density`. Predictions are averages over posterior
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

    run_: Run

    _estimator_type = "classifier"
    _renamed: ClassVar[Mapping[str, str]] = {"num_draws": "num_samples", "discard": "num_burnin"}

    @fits.renamed_arguments(_renamed)
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
        num_chains: int = 1,
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
        num_epochs: float | None = None,
        max_seconds: float | None = None,
        store: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
        num_steps: int | None = None,
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
        num_epochs, max_seconds
            The length of the run, including burn-in, as passes over the rows or seconds of sampling (without set-up and
            compilation); give at most one. By default 100 passes, but at least 5,000 steps.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`. A resumed fit keeps its original length, because burn-in and kept draws are fractions of
            it.
        num_steps
            Deprecated: use `num_epochs`.
        """
        problem = self._problem(X, y)
        sampler, estimator = self._method(len(problem.rows.y))
        length, wanted = self._length(num_steps, num_epochs, max_seconds, len(problem.rows.y), estimator)
        monitored = None if X_test is None else self._monitored(X_test, problem)
        tested = None if y_test is None else self._tested(y_test, monitored, problem.classes)
        averaged = None if monitored is None else {MONITORED: Predictive(problem.probabilities, monitored)}
        kept = _checks.positive_int(self.num_samples, "num_samples")
        notes = sampled.notes(_KIND, self, self._extra(problem.form, problem.classes))

        def sampling(num_samples: int, **how: Any) -> Run:
            return sample(
                problem.model,
                # already checked; from_arrays would make bytes four times as large
                ArraySource(problem.rows),
                problem.params,
                sampler=sampler,
                estimator=estimator,
                num_samples=num_samples,
                keep_draws=math.ceil(num_samples / kept),
                num_chains=self.num_chains,
                seed=self.seed,
                reducers=averaged,
                notes=notes,
                **how,
            )

        run = sampled.draw(
            *(sampling, length, wanted),
            store=store,
            resume=resume,
            overwrite=overwrite,
            callbacks=callbacks,
            progress=progress,
            arrays=None if tested is None else {"tested": tested},
        )
        self._settle(run, problem.classes, problem.form, problem.prior, problem.probabilities)
        self._average(run, tested)
        if run.num_draws:
            advice = "Pass a larger `num_epochs` to fit, or a longer `num_burnin`."
            warn_if_unmixed(self._some_predictions(problem.rows.x), "BNN", advice)
        return self

    # -- on disk ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the fitted model: kept weights as a Zarr group, settings, classes; no pickles and no code.

        Your own network, a sampler or an estimator are not saved: pass the network to `load`.
        """
        self._draws()
        extra = self._extra(self._form, self.classes_) | {"scores": self.__dict__.get("scores_")}
        averaged = {"predictive": self.predictive_} if "predictive_" in self.__dict__ else {}
        sampled.save(_KIND, self, self.run_.named_draws(), extra, path, overwrite, averaged)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, apply: Apply | None = None, params: Params | None = None
    ) -> BNN:
        """Load a model written by `save`, or by `fit` with `store`.

        Parameters
        ----------
        path
            Path of the folder.
        apply, params
            The network, if the model was fitted with your own: a file contains no code. Without it you can read the
            weights but not predict.
        """
        saved = sampled.open_saved(_KIND, path, cls._renamed)
        model, extra = cls(apply=apply, params=params, **saved.settings), saved.extra
        form = extra["form"]
        names = None if form["names"] is None else tuple(form["names"])
        shape = Form(tuple(form["row"]), names, bool(form["pixels"]))
        network = apply if extra["own"] else networks.TwoLayers(model.activation)
        run = _as_tree(saved.run, params, path)
        probabilities = None if network is None else Probabilities(network)
        model._settle(run, sampled.read_labels(extra), shape, gamma_prior(model.precision), probabilities)
        model._average(run, saved.arrays.get("tested"))
        if "predictive" in saved.arrays:
            model.predictive_ = saved.arrays["predictive"]
        if extra.get("scores") is not None:
            model.scores_ = extra["scores"]
        return model

    def _extra(self, form: Form, classes: np.ndarray) -> dict[str, Any]:
        """Contents of a file in addition to draws and settings."""
        described = {"row": list(form.row), "names": form.names, "pixels": form.pixels}
        return {"own": self.apply is not None, "form": described, **sampled.write_labels(classes)}

    # -- inside -------------------------------------------------------------------------------------------------------

    def _problem(self, X: TableLike, y: ColumnLike) -> Problem:
        prior = gamma_prior(self.precision)
        x, form = checked_inputs(X)
        if self.apply is not None:
            return own_problem(self.apply, self.params, x, form, y, self.classes, prior)
        return two_layers(self.hidden, self.activation, x, form, y, self.classes, prior, self.seed)

    def _method(self, num_rows: int) -> tuple[Sampler, Estimator]:
        size = _checks.positive_int(self.batch_size, "batch_size")
        estimator = Minibatch(min(size, num_rows)) if self.estimator is None else self.estimator
        if self.sampler is not None:
            return self.sampler, estimator
        step = math.sqrt(_STEP / num_rows)
        return SGHMC(step, friction=_DAMPING / step, gradient_noise=0.0), estimator

    def _length(
        self,
        num_steps: int | None,
        num_epochs: float | None,
        max_seconds: float | None,
        num_rows: int,
        estimator: Estimator,
    ) -> tuple[fits.Length, sampled.Wanted]:
        """Length of the run, and its averaged draws: as many as fit, `thin` steps apart."""
        wanted = (BY_THE_CLOCK, fits.check_burnin(self.num_burnin), _checks.positive_int(self.thin, "thin"))
        batch_size = estimator.batching(num_rows).size
        sampled.warn_of_steps(num_steps, num_rows, batch_size)
        length = fits.check_length(
            *(num_steps, num_epochs, max_seconds),
            num_rows=num_rows,
            batch_size=batch_size,
            default_epochs=_DEFAULT_EPOCHS,
        )
        if length.num_steps is None:
            return length, wanted
        steps = max(length.num_steps, _LEAST_STEPS) if length.is_default else length.num_steps
        if steps < sampled.first_draw(wanted):
            said = f"{wanted[1]:g} of them" if wanted[1] < 1 else f"{wanted[1]} steps"
            raise InvalidValueError(
                f"{steps} steps are too few for a draw every `thin` = {wanted[2]} steps after the burn-in of {said}: "
                "use a larger `num_epochs` or a smaller `thin`."
            )
        return length._replace(num_steps=steps), wanted

    def _monitored(self, X_test: TableLike, problem: Problem) -> Array:
        return jnp.asarray(checked_inputs(X_test, problem.form)[0])

    def _tested(self, y_test: ColumnLike, monitored: Array | None, classes: np.ndarray) -> np.ndarray:
        if monitored is None:
            raise InvalidValueError("`y_test` requires `X_test`.")
        return checked_labels(y_test, len(monitored), classes.tolist(), None)[0]


def _as_tree(run: Run, params: Params | None, path: str | os.PathLike[str]) -> Run:
    """Convert stored draws, which have a name for each array, to a tree like the given weights."""
    if params is None:
        return run
    names, named = _tree.leaf_names(params), run.named_draws()
    if sorted(names) != sorted(named):
        raise InvalidValueError(
            f"the weights in {path} are {', '.join(sorted(named))}, but `params` has {', '.join(sorted(names))}: "
            "pass those of the fitted network."
        )
    leaves = [named[name] for name in names]
    return dataclasses.replace(run, draws=jax.tree.unflatten(jax.tree.structure(params), leaves))
