"""`sc.models.DPMixture`: mixtures whose number of clusters is inferred from the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np

from scirocco import _checks
from scirocco.data.shuffle import shuffled_numbers
from scirocco.errors import InvalidValueError
from scirocco.models._core.device import HOST
from scirocco.models._core.model import StepSize
from scirocco.models._core.program import FitOptions, OwnChains
from scirocco.models._core.view import View
from scirocco.run.progress import Callback, Report, as_callbacks
from scirocco.run.result import Run
from scirocco_latent.dp import prediction, sharded
from scirocco_latent.dp import settings as given
from scirocco_latent.dp.arrays import ArraySlices
from scirocco_latent.dp.chain import MixtureChain, fingerprint, spec
from scirocco_latent.dp.collapsed import Collapsed
from scirocco_latent.dp.families import BaseMeasure, Gaussian, Multinomial
from scirocco_latent.dp.results import MixtureResults, column_names, reference_rows
from scirocco_latent.dp.rows import Rows, Table
from scirocco_latent.dp.settings import Gamma, MixtureSettings
from scirocco_latent.dp.slices import Slices

_LEAST_EPOCHS, _MOST_EPOCHS, _LABELS = 100, 1000, 2_000_000
"""Default passes: as many as draw this number of labels, within limits."""
_FIRST_EPOCHS = 20
"""Passes of `partial_fit` over the rows of its first call."""
_MANY = 1 << 40
"""Rows of `partial_fit`, whose number is not known."""


class DPMixture(MixtureResults):
    r"""Dirichlet-process mixture: :math:`G ~ DP(α, G_0)`, :math:`θ_i ~ G`, :math:`x_i ~ f(· | θ_i)`; posterior draws.

    The number of clusters is neither fixed nor bounded: the chain creates and removes clusters. It stores the labels of
    all rows, and a step draws those of a batch, at a cost that does not depend on the number of rows.

    Parameters
    ----------
    base
        Type of the rows: "multinomial" (counts of categories, sparse or dense), "gaussian" (real numbers), or a
        `Multinomial(...)` or `Gaussian(...)` with a prior of your own.
    sampler
        "collapsed" (default): each label given all others, weights and parameters integrated out; exact, no step size.
        "gibbs": the slice sampler over all rows per step; exact. "scir": the same over a batch of rows per step; exact
        if counts are kept. "scir_cv" and "sgrld": stochastic samplers of the papers; for counts of categories.
    concentration
        α: a number, or its prior as `Gamma(shape, rate)` (or a pair).
    batch_size
        Number of rows per step.
    counts
        Cluster counts of the slice samplers: "kept" for all rows, or "estimated" from those of the batch, as in the
        papers. "auto": kept with "scir".
    step_size, stick_step_size
        h of "scir", "scir_cv" and "sgrld", for components and for sticks (by default the same): a number or a schedule.
        With kept counts None means an exact draw, the limit of a long step.
    refresh_every, refresh_size
        For "scir_cv": steps between two references, and the number of rows of each.
    initial_clusters
        Initial labels are drawn uniformly from this many clusters; by default 30 for counts, 10 for real rows, three
        times as many where an accelerator makes passes cheap. With sparse counts, a chain merges clusters easily but
        rarely splits them: start with more than you expect.
    split_merge
        For "collapsed": number of proposals per pass to split or merge whole clusters.
    keep_clusters
        Number of clusters stored in each draw, the largest first. It does not limit the number in the chain.
    num_samples
        Number of posterior draws per chain; a short run gives fewer.
    num_burnin
        Length of the burn-in, whose draws are discarded: steps (int), or a fraction of the run (float below 1).
    thin
        Steps between two draws. None: the draws are spread evenly over the run after the burn-in.
    num_chains, seed, num_threads
        Number of independent chains; the same seed gives the same draws for any `num_threads`.
    device
        "auto": for sampler="gibbs" an accelerator if JAX has one, otherwise the compiled kernels of the CPU. "cpu",
        "gpu"; "jax": array programs on JAX's default device, whatever it is. They draw the labels of all rows at once,
        with the same distribution; the other samplers draw labels one after the other, on the CPU.

    Attributes
    ----------
    weights_, components_ (or means_, precisions_)
        Posterior means for the clusters numbered as in `predict`.
    labels_
        The most probable cluster of each training row.
    concentration_
        Posterior mean of α.
    n_features_in_, feature_names_in_
        Number of columns, and their names, if they have any.
    run_
        The run: `run_.draws["weights"]` has the axes (chain, draw, cluster), clusters by decreasing weight, padded with
        zeros; `run_.stats` has "num_clusters" and "concentration". After `partial_fit` it has the latest draws.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.poisson([4, 4, 0, 0], (60, 4)), rng.poisson([0, 0, 4, 4], (60, 4))])
    >>> mixture = sc.models.DPMixture("multinomial", seed=1).fit(X, num_epochs=200, progress=False)
    >>> labels = mixture.predict(X)
    >>> len(set(labels[:60])), len(set(labels[60:])), bool(labels[0] != labels[-1])
    (1, 1, True)
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = given.PRESETS
    VALUES = (Multinomial, Gaussian, Gamma)
    ADVICE = (
        "Chains that found different clusters mix slowly: start with more (initial_clusters), or fit longer "
        "(num_epochs)."
    )
    _online: list[Collapsed] | None = None
    """Chains of `partial_fit`."""
    _latest: list[list[Any]]

    def __init__(
        self,
        base: str | Multinomial | Gaussian = "multinomial",
        *,
        sampler: str = "collapsed",
        concentration: float | tuple[float, float] = (1.0, 1.0),
        batch_size: int = 1000,
        counts: str = "auto",
        step_size: StepSize = None,
        stick_step_size: StepSize = None,
        refresh_every: int = 5,
        refresh_size: int = 5000,
        initial_clusters: int | None = None,
        split_merge: int = 5,
        keep_clusters: int = 100,
        num_samples: int = 50,
        num_burnin: float = 0.5,
        thin: int | None = None,
        num_chains: int = 4,
        seed: int = 0,
        num_threads: int | None = None,
        device: str = "auto",
    ):
        self.base, self.sampler, self.concentration = base, sampler, concentration
        self.batch_size, self.counts = batch_size, counts
        self.step_size, self.stick_step_size = step_size, stick_step_size
        self.refresh_every, self.refresh_size = refresh_every, refresh_size
        self.initial_clusters, self.split_merge, self.keep_clusters = (initial_clusters, split_merge, keep_clusters)
        self.num_samples, self.num_burnin, self.thin = num_samples, num_burnin, thin
        self.num_chains = num_chains
        self.seed, self.num_threads, self.device = seed, num_threads, device

    @classmethod
    def preset(cls, name: str, sampler: str = "scir", **changes: Any) -> DPMixture:
        """A model with the settings of a paper: "baker2018", for "scir", "scir_cv", "sgrld" or "gibbs"."""
        return cls(**{**given.preset(name, sampler), **changes})

    def fit(
        self,
        X: Table,
        y: object = None,
        *,
        names: Sequence[object] | None = None,
        validation: Table | None = None,
        client: object = None,
        num_shards: int | None = None,
        **options: Unpack[FitOptions],
    ) -> DPMixture:
        """Sample from the posterior given the rows of `X`.

        Parameters
        ----------
        X
            One row for each observation: whole counts of categories (SciPy sparse or a table), or real numbers. An
            empty row of counts carries no information about its cluster and is left out.
        y
            Ignored.
        names
            Names of the columns, for reports; by default those of a data frame.
        num_steps, num_epochs, max_seconds
            The length of the run, including burn-in; give at most one of the three. By default `num_samples` times
            `thin` steps after the burn-in if `thin` is given, otherwise 100 passes, up to 1000 for small data.
        validation
            Rows to score while the chains run: the mean of their `log_predictive` given the latest draw is shown and
            kept in `run_.scores`.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`.
        client
            A `distributed.Client`, or the address of a Dask scheduler: labels are drawn on its workers; for all
            samplers except "collapsed". The draws are the same as without workers, for any number of workers and even
            if some are killed. The rows are written once, next to the store or to the folder of temporary files, which
            the workers must be able to read.
        num_shards
            Number of tasks per step; by default one per worker thread.
        """
        family = given.base(self.base).resolve(X)
        everything = family.rows(X)
        rows = self._shuffled(family, everything)
        settings = self._settings(family, rows)
        if client is not None and settings.by_arrays:
            if self.device != "auto":
                raise InvalidValueError(
                    f'device="{self.device}" runs in one process: pass no `client`, or device="cpu".'
                )
            settings = dataclasses.replace(settings, device=HOST)
        if validation is not None:
            watch = _watcher(family, family.rows(validation))
            options["callbacks"] = (*as_callbacks(options.get("callbacks", ())), watch)
        store, labels = options.get("store"), column_names(X, family.width, names)
        with sharded.labelling_on(client, num_shards, rows, family, settings.sampler, store) as labelling:
            program = self._program(family, everything, rows, settings, labels, labelling)

            def as_stored(was: dict[str, Any]) -> OwnChains:
                """A run that was started on the CPU stays there."""
                if was["device"] != HOST or not settings.by_arrays:
                    return program
                if self.device != "auto":
                    raise InvalidValueError(
                        f"the run in {store} was started with the compiled kernels of the CPU: resume it with "
                        f'device="cpu" or "auto", not "{self.device}".'
                    )
                on_host = dataclasses.replace(settings, device=HOST)
                return self._program(family, everything, rows, on_host, labels, labelling)

            self._run(dataclasses.replace(program, as_stored=as_stored), options)
        self._training, self._online = everything, None
        return self

    def fit_predict(self, X: Table, y: object = None, **options: Any) -> np.ndarray:
        """`fit`, then `predict` of the same rows."""
        labels: np.ndarray = self.fit(X, y, **options).predict(X)
        return labels

    def partial_fit(self, X: Table, y: object = None) -> DPMixture:
        """Update the model with more rows; requires sampler="collapsed".

        The rows are added to those of earlier calls, which are stored (and copied once per call): the draws converge to
        the posterior given all of them. A call draws each of its own labels once, and as many of the others; the first
        call makes 20 passes and fixes a base measure that depends on the data. After each call the current clusters are
        added to the last `num_samples` draws. `fit` starts a new model, and so does the first call after it.
        """
        if self.sampler != "collapsed":
            raise InvalidValueError(f'partial_fit requires sampler="collapsed", got {self.sampler!r}.')
        online = self._online
        family: BaseMeasure[Any] = given.base(self.base).resolve(X) if online is None else self._family
        new = family.rows(X)
        if online is not None and not family.informative(new).size:
            return self
        rows = self._shuffled(family, new)
        asked = self._asked({})
        settings = given.resolve(self.get_params(), family.kind, _MANY)
        if online is None:
            online = [Collapsed(rows, family, settings, self.seed, number) for number in range(asked.num_chains)]
            for chain in online:
                chain.advance(_FIRST_EPOCHS * -(-rows.num_rows // settings.batch_size))
            self._latest, judged = [[] for _ in online], rows
        else:
            for chain in online:
                chain.take_in(rows)
            judged = self._judges
        for chain, latest in zip(online, self._latest, strict=True):
            latest.append(chain.kept())
            del latest[: -asked.num_samples]
        program = self._program(family, rows, judged, settings, column_names(X, family.width))
        program = dataclasses.replace(program, num_rows=online[0].num_rows)
        run = program.gathered(type(self).__name__, asked, self._latest)
        self._settle(run, program.told, program.arrays)
        self._online = online
        return self

    def chain(self, X: Table, chain: int = 0) -> MixtureChain:
        """A chain with these settings, to advance yourself; its rows are in a random order."""
        family = given.base(self.base).resolve(X)
        rows = self._shuffled(family, family.rows(X))
        return chain_of(rows, family, self._settings(family, rows), self.seed, chain)

    def _view(self, run: Run, **options: Any) -> View:
        from scirocco_latent.dp import view

        return view.view(self, run, options.get("names"))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _program(
        self,
        family: BaseMeasure[Any],
        everything: Rows,
        rows: Rows,
        settings: MixtureSettings,
        names: list[str] | None = None,
        labelling: sharded.LabelShards | None = None,
    ) -> OwnChains:
        """The chains of `rows`: those of `everything` that carry information, in a random order."""
        num_rows, size = rows.num_rows, settings.batch_size
        return OwnChains(
            settings.words,
            {**settings.as_json(), "family": family.as_json()},
            lambda: fingerprint(family, everything),
            num_rows,
            spec(family, settings),
            lambda number: chain_of(rows, family, settings, self.seed, number, labelling),
            {"family": family.as_json(), "reference": reference_rows(rows), "names": names},
            epoch=(num_rows, size),
            default_epochs=min(_MOST_EPOCHS, max(_LEAST_EPOCHS, _LABELS // num_rows)),
        )

    def _settings(self, family: BaseMeasure[Any], rows: Rows) -> MixtureSettings:
        return given.resolve(self.get_params(), family.kind, rows.num_rows)

    def _shuffled(self, family: BaseMeasure[Any], rows: Rows) -> Rows:
        """The informative rows, in a random order."""
        chosen = family.informative(rows)
        if not chosen.size:
            raise InvalidValueError(f"all {rows.num_rows} rows are empty: clusters cannot be estimated.")
        return rows.take(shuffled_numbers(chosen, _checks.positive_int(self.seed, "seed", minimum=0)))


def chain_of(
    rows: Rows,
    family: BaseMeasure[Any],
    settings: MixtureSettings,
    seed: int,
    number: int,
    labelling: sharded.LabelShards | None = None,
) -> MixtureChain:
    """The chain with a number, by the sampler of the settings."""
    if settings.by_arrays:
        return ArraySlices(rows, family, settings, seed, number)
    if settings.sampler == "collapsed":
        return Collapsed(rows, family, settings, seed, number)
    return Slices(rows, family, settings, seed, number, labelling)


def _watcher(family: BaseMeasure[Any], rows: Rows) -> Callback:
    def watch(report: Report) -> dict[str, float] | None:
        if report.draws is None or not report.draws["rest"].shape[1]:
            return None
        draw = {name: np.asarray(values[0, -1]) for name, values in report.draws.items()}
        return {"log_predictive": float(prediction.log_predictive(family, rows, draw).mean())}

    return watch
