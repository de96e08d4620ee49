"""The result of a run: draws with their provenance, a summary, and the conversion to ArviZ."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco import _tree
from scirocco._extras import require
from scirocco.diagnostics.columns import Columns
from scirocco.diagnostics.frames import html_summary, rounded, summary_frame
from scirocco.diagnostics.measures import summarise
from scirocco.drawing.markup import join, tag
from scirocco.errors import InvalidValueError
from scirocco.model.base import bare
from scirocco.run import exporting
from scirocco.run.certificate import Certificate
from scirocco.run.predicting import Predictions, WithDraws, draws_and_rows, predict, simulator
from scirocco.run.predicting import log_likelihood as log_likelihoods
from scirocco.run.records import kind_of, method_of
from scirocco.types import Data, Params, PyTree


class Origin(NamedTuple):
    """The model, data and method of a run, in the process that made it: code and data are never stored."""

    model: Any
    source: Any
    sampler: Any
    """With all automatic choices filled in."""
    estimator: Any
    memory: PyTree | None
    """The estimator's memory before the first step; None where it must be recomputed."""


@dataclass(frozen=True)
class Run(WithDraws):
    """Posterior draws and how they were made.

    Attributes
    ----------
    draws
        The structure of the parameters, leaves (chain, draw, ...), in the units of the user.
    gradients
        If kept: the estimate of ∇ log posterior at each draw (on the real line for transformed parameters).
    stats
        Scalars for each draw: `gradient_norm`, and those that the sampler reports.
    configuration
        Everything that defines the run, as plain numbers and strings, with versions.
    preparation
        Results of the set-up: passes over the data, distance of the centre to the mode, ...
    timing
        Wall and CPU seconds of `setup`, `first_chunk` (includes compilation) and `sampling`, with their steps.
    status
        "complete", "interrupted", "stopped" (by a callback) or "diverged".
    scores
        Return values of callbacks: (step, {name: value}).
    traces
        The functions of `sc.reducers.Trace` at every draw, leaves (chain, draw, ...).
    reduced
        Results of the other reducers, leaves with a leading chain axis.
    path
        The folder of the store, if there is one; the leaves above are then read from it when they are used.
    certificate
        Limits for the errors of means and standard deviations (`print(run.certificate)`), if the sampler was chosen by
        `sc.sample`; `sc.analysis.certify(run)` computes it for other runs.
    origin
        Model, data, sampler and estimator, for `sc.analysis`; None for a run that was loaded.
    converted
        Of a model that samples in coordinates of its own: the draws in the units of the user, and labels along their
        axes, as for `to_arviz`, which converts these.
    """

    draws: Params
    gradients: PyTree | None
    stats: dict[str, np.ndarray]
    configuration: dict[str, Any]
    preparation: dict[str, Any]
    timing: dict[str, Any]
    status: str
    scores: list[tuple[int, dict[str, float]]]
    traces: dict[str, PyTree] = field(default_factory=dict)
    reduced: dict[str, Any] = field(default_factory=dict)
    path: str | None = None
    certificate: Certificate | None = None
    origin: Origin | None = field(default=None, repr=False, compare=False)
    converted: tuple[Params, Mapping[str, Sequence[Any]]] | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        # models are functions, and data are large: a pickled run omits them
        return self.__dict__ | {"origin": None}

    @property
    def num_draws(self) -> int:
        """Draws kept in each chain."""
        return jax.tree.leaves(self.draws)[0].shape[1] if self.draws is not None else 0

    @property
    def num_chains(self) -> int:
        """Chains."""
        leaves = jax.tree.leaves((self.draws, self.stats))
        return leaves[0].shape[0] if leaves else 0

    @property
    def group_size(self) -> int:
        """Chains that share their batches, and are dependent therefore; 1: all chains are independent."""
        size = int(self.configuration.get("group_size", 1))
        return size if self.num_chains % size == 0 else 1  # a single chain, made apart from the others

    @property
    def kind(self) -> str:
        """Either "sampled" (by `sc.sample`) or "own loop" (by a model that makes its draws in its own loop)."""
        return kind_of(self.configuration)

    @property
    def method(self) -> str:
        """A short description of how the draws were made."""
        return method_of(self.configuration)

    def __repr__(self) -> str:
        size = self.configuration["dimension"]
        chains, parameters = (
            f"{n} {word}{'s' * (n != 1)}" for n, word in ((self.num_chains, "chain"), (size, "parameter"))
        )
        draws = f"{chains} × {self.num_draws} draws of {parameters}"
        return f"Run({self.method}: {draws}, {self.status})"

    def named_draws(self) -> dict[str, np.ndarray]:
        """The draws as a flat dict from parameter names to arrays (chain, draw, ...)."""
        return self._named(self.draws)

    def labelled_draws(self) -> dict[str, np.ndarray]:
        """As `named_draws`; of the run of a regression in the units of the user, an entry for each named column."""
        if self.converted is None:
            return self.named_draws()
        out = {}
        for name, leaf in self._named(self.converted[0]).items():
            array = np.asarray(leaf)
            for index in np.ndindex(array.shape[2:]):
                place = f"[{', '.join(map(str, index))}]" if index else ""
                out[self.labelled(name + place)] = array[(slice(None), slice(None), *index)]
        return out

    def labelled(self, text: str) -> str:
        """A text in which parameters have the labels of their axes, if there are any: `coef[age]` for `coef[2]`."""
        labels = {} if self.converted is None else self.converted[1]

        def named(found: re.Match[str]) -> str:
            places = [int(place) for place in found[2].split(",")]
            known = [labels.get(f"{found[1]}_dim_{axis}") for axis in range(len(places))]
            inside = (str(place if of is None else of[place]) for of, place in zip(known, places, strict=True))
            return f"{found[1]}[{', '.join(inside)}]"

        return re.sub(r"(\w+)\[(\d+(?:, \d+)*)\]", named, text) if labels else text

    def derived(self, model: Any = None) -> dict[str, np.ndarray]:
        """The quantities that the model derives from its parameters (`derived` of `sc.Model`), (chain, draw, ...).

        For models of PyMC and NumPyro these are the deterministic variables that do not depend on the rows. Pass the
        `model` for a run that was loaded.
        """
        model = self.known_model(model)
        derive = None if model is None else model.facts.derive
        return {} if derive is None or self.draws is None else derive(self.draws)

    def known_model(self, given: Any) -> Any:
        """The model that was given, or that of the run, if it was made in this process."""
        if given is not None or self.origin is None or self.converted is not None:
            return given
        return bare(self.origin.model)

    def _named(self, tree: PyTree) -> dict[str, np.ndarray]:
        return dict(zip(_tree.leaf_names(tree), jax.tree.leaves(tree), strict=True))

    def summary(self, probability: float = 0.9, digits: int | None = 4) -> Any:
        """Mean, sd, a central interval, Monte Carlo error, effective sample sizes and R-hat, one row per parameter.

        The diagnostics are those of `sc.diagnostics`; the other columns ignore draws that are NaN. The result is a
        pandas data frame, rounded to `digits` digits or, if they are more, those that the Monte Carlo error supports
        (None: not rounded); it is printed within 80 columns, with the latter. The run of
        a regression is summarised in the units of the user, with the names of its columns.
        """
        self._need_draws()
        if not 0 < probability < 1:
            raise InvalidValueError(f"`probability` must be between 0 and 1, got {probability}.")
        pandas = require("pandas", "run.summary()")
        tail = (1 - probability) / 2
        parts = [
            _summary_of(part, tail, self.group_size) for part in Columns(self.labelled_draws() | self.derived()).parts()
        ]
        frame = pandas.concat([pandas.DataFrame(numbers, names) for numbers, names in parts])
        if digits is not None:
            frame = rounded(frame, digits)
        return summary_frame(frame, _sentence(self.certificate))

    def to_arviz(
        self,
        coordinates: Mapping[str, Sequence[Any]] | None = None,
        *,
        log_likelihood: bool = False,
        observed_data: bool = False,
        posterior_predictive: Callable[..., Any] | bool | None = None,
        data: Data | None = None,
        model: Any = None,
        seed: int = 0,
    ) -> Any:
        """Convert the run to ArviZ's container (InferenceData or, from 1.0 on, an xarray DataTree).

        Groups: posterior, sample_stats, observed_data (the number of rows), and `gradients` if they were kept; the
        configuration and the versions are attributes. If not every draw was kept (`keep_draws`), the statistics are
        those of the kept draws; `run.stats` has all of them. The run of a regression is converted in the units of the
        user, with the names of its columns. ArviZ regards all chains as independent; if groups of chains share batches
        (`run.group_size`), use the effective sizes, errors and R-hat of `run.summary`.

        Parameters
        ----------
        coordinates
            Labels along an axis of a parameter, by the name of the axis: `{"beta_dim_0": ["age", "income"]}`.
        log_likelihood
            Add the log likelihood of every row at every draw, (chain, draw, row), for `arviz.loo` and `arviz.compare`.
            It is large: `sc.analysis.loo` and `sc.analysis.compare` do not need it.
        observed_data
            Add the rows to the group observed_data; for models of PyMC and NumPyro also the observed variables by name.
        posterior_predictive
            `simulate(params, row, key)`, as for `sc.analysis.predictive_check`: add its results at every draw, as
            `prediction`, or by the names of the dict that it returns. True: as the model draws new observations.
        data, model
            Rows, if not those of the run; and for a run that was loaded, its data and model. Derived quantities, dims
            and coords are those of the model.
        seed
            Of the simulations.
        """
        self._need_draws()
        return exporting.to_arviz(
            self,
            coordinates,
            with_log_likelihood=log_likelihood,
            with_data=observed_data,
            simulate=posterior_predictive,
            data=data,
            model=model,
            seed=seed,
        )

    def predict(
        self,
        function: Callable[..., Any] | None = None,
        rows: Data | None = None,
        *,
        interval: float | None = 0.9,
        num_draws: int | None = None,
        seed: int = 0,
        to: str | os.PathLike[str] | None = None,
        overwrite: bool = False,
    ) -> Predictions:
        """Evaluate a function at every row and many draws: its mean, standard deviation and central interval.

        Parameters
        ----------
        function
            `function(params, row)` of one draw and one row, as a log likelihood: returns an array, or a dict of arrays.
            `function(params, row, key)` may draw new observations; the interval is then one for those. For a
            regression, `params` are its draws in the units of the columns, `{"coef": ..., "intercept": ...}`. By
            default new observations, as the model draws them (`simulate` of `sc.Model`; models of PyMC and NumPyro).
        rows
            Arrays, a path or a source, like the data of a run; columns that the function does not use may be missing.
            By default the rows of the run.
        interval
            The probability of the central interval; None: none, which is faster.
        num_draws
            At most so many draws, as many of each chain and spread evenly; by default 1,000.
        seed
            For functions that take a key. A row's numbers depend on seed, row and draw alone; those that PyMC draws,
            also on the number of rows.
        to
            A folder to write the results to, for more rows than fit into memory; `sc.data.open` reads it.
        overwrite
            Replace a data folder at `to`.

        Returns
        -------
        Predictions
            `mean`, `sd`, `low` and `high`, leaves (row, ...). Memory holds a chunk of rows and, without `to`, these.

        Examples
        --------
        >>> import jax, jax.numpy as jnp, scirocco as sc
        >>> x = 3.0 + jax.random.normal(jax.random.key(1), (500,))
        >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
        >>> run = sc.sample(model, x, jnp.array(0.0), progress=False)
        >>> run.predict(lambda mu, row: mu + row, x[:3])
        Predictions(3 rows, 1,000 of 4,000 draws, 90 % interval)
        """
        self._need_draws()
        function = simulator(self, function, "run.predict()")
        draws, source = draws_and_rows(self, rows, "run.predict()")
        return predict(
            draws, function, source, interval=interval, num_draws=num_draws, seed=seed, to=to, overwrite=overwrite
        )

    def log_likelihood(
        self,
        rows: Data | None = None,
        *,
        model: Any = None,
        num_draws: int | None = None,
        to: str | os.PathLike[str] | None = None,
        overwrite: bool = False,
    ) -> np.ndarray:
        """The log likelihood of every row at every draw, (row, draw), with all chains one after the other.

        For a score of many rows you do not need this matrix: `sc.analysis.loo` and `sc.analysis.log_predictive`
        compute it in chunks.

        Parameters
        ----------
        rows
            Rows like those of the run; by default its own.
        model
            The model, for a run that was loaded.
        num_draws
            At most so many draws, spread evenly; by default all.
        to, overwrite
            A folder to write to, if the matrix does not fit into memory; the result is then a memory map.
        """
        self._need_draws()
        return log_likelihoods(self, model, rows, num_draws, to, overwrite)

    def locals(
        self,
        groups: Sequence[Any] | None = None,
        interval: float = 0.9,
        *,
        function: Callable[[Params, PyTree], PyTree] | None = None,
        num_draws: int = 400,
        keep_draws: bool = False,
        seed: int = 0,
        model: Any = None,
        data: Any = None,
    ) -> Any:
        """Local variables of groups of a `sc.HierarchicalModel`, drawn given the draws of the global parameters.

        For each of some draws of the global parameters, a local variable is drawn from p(b | rows of its group, θ), by
        importance resampling around the mode: together they are draws of its posterior. Nothing of it is stored with
        the run.

        Parameters
        ----------
        groups
            Labels of groups; by default all.
        interval
            Probability of the central intervals from `low` to `high`.
        function
            `function(global_, local)`: what to report in place of the local variable, such as its value in other units.
        num_draws
            Draws of the global parameters that are used, evenly spaced.
        keep_draws
            Return the draws, too, leaves (draw, group, ...).
        seed
            Of the draws.
        model, data
            For a run that was loaded: the model and the data that it was made with.

        Returns
        -------
        Locals
            `groups`, `mean`, `sd`, `low`, `high` and `draws`, and `to_frame()`.
        """
        from scirocco.run.local_draws import local_draws

        self._need_draws()
        return local_draws(self, groups, interval, function, num_draws, seed, keep_draws, model, data)

    def plot(self, kind: str = "traces", names: str | Sequence[str] | None = None) -> Any:
        """Plot draws; requires matplotlib (the extra `plot`).

        Parameters
        ----------
        kind
            "traces": the draws of every chain in order, and their histograms; "intervals": means and central 50 % and
            90 % intervals; "pairs": every pair of parameters as points.
        names
            Parameters, `"beta"` for all of an array, `"beta[3]"` for one number of it; by default the first few.

        Returns
        -------
        matplotlib.figure.Figure
            Notebooks show it; `figure.savefig("traces.png")` writes it to a file.
        """
        from scirocco.run.exporting import plot

        self._need_draws()
        return plot(self.labelled_draws(), kind, names)

    def _repr_html_(self) -> str:
        """For notebooks: how the draws were made, and the summary of the first parameters."""
        head = tag("p", tag("b", "Run"), f" {repr(self)[4:-1]}")
        if self.draws is None or not self.num_draws:
            return head
        note = _sentence(self.certificate)
        return join([head, html_summary(self.labelled_draws(), self.group_size), *([tag("p", note)] if note else [])])

    def report(self, path: str | os.PathLike[str] | None = None, **options: Any) -> Any:
        """Show a report in words and plots in a notebook; with `path`, also write one HTML file that needs no network.

        The same as `sc.report.show(run, path, **options)`.
        """
        # reports are a layer above this package, so they are imported by name when needed
        return importlib.import_module("scirocco.report").show(self, path, **options)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the run to a folder that `sc.load`, xarray and ArviZ can open; an existing folder raises an error.

        Writes only configuration and draws: a run can be resumed only from the `store` that it was made with.
        """
        from scirocco.run.loading import save

        self._need_draws()
        save(self, path, overwrite)

    def _need_draws(self) -> None:
        if self.draws is None or not self.num_draws:
            raise InvalidValueError(
                f"the run has no draws (status: {self.status}). Sample with keep_draws=True, or resume it."
            )


def _sentence(certificate: Certificate | None) -> str:
    if certificate is None:
        return ""
    return f"{certificate.words[0].upper()}{certificate.words[1:]}."


def _summary_of(columns: Columns, tail: float, group_size: int) -> tuple[dict[str, np.ndarray], list[str]]:
    found = summarise(columns.values, (tail, 1 - tail), group_size)
    low, high = found.pop("quantiles")
    between = {f"{100 * tail:g}%": low, f"{100 * (1 - tail):g}%": high}
    return {"mean": found.pop("mean"), "sd": found.pop("sd")} | between | found, columns.names
