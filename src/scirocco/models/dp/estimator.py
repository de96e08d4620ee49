"""`sc.models.DPMixture`: mixtures whose number of clusters is inferred from the data."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from scirocco import _checks
from scirocco.data.shuffle import shuffled_numbers
from scirocco.errors import InvalidValueError
from scirocco.models import fits
from scirocco.models.dp import chain as chains
from scirocco.models.dp import prediction, sharded
from scirocco.models.dp import settings as given
from scirocco.models.dp.chain import MixtureChain
from scirocco.models.dp.families import Family, Gaussian, Multinomial
from scirocco.models.dp.results import Results
from scirocco.models.dp.rows import Rows, Table
from scirocco.models.dp.settings import Settings
from scirocco.models.fits.conventions import StepSize, new_names
from scirocco.models._core.view import View
from scirocco.run.progress import Callback, Report, as_callbacks
from scirocco.run.result import Run

_DEFAULT_EPOCHS = 100  # at least; small data get more, up to so many labels drawn, at most 1000 epochs
_DEFAULT_LABELS = 2_000_000
_FIRST_EPOCHS = 20  # of `partial_fit`, over the rows of its first call
_MANY = 1 << 40
_JUDGES = 300  # rows used to compare clusters of different draws


class DPMixture(fits.Conventions, Results):
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
    run_
        The run: `run_.draws["weights"]` has the axes (chain, draw, cluster), clusters by decreasing weight, padded with
        zeros; `run_.stats` has "num_clusters" and "concentration".

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

    run_: Run | None
    _training: Rows
    """Rows of the last fit."""
    _online: list[MixtureChain] | None = None
    """Chains of `partial_fit`."""
    _latest: list[list[Any]]

    _renamed: ClassVar[Mapping[str, str]] = {"num_draws": "num_samples", "discard": "num_burnin"}

    @fits.renamed_arguments(_renamed)
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
        num_chains: int = 1,
        seed: int = 0,
        num_threads: int | None = None,
        device: str = "auto",
    ):
        self.base, self.sampler, self.concentration = base, sampler, concentration
        self.batch_size, self.counts = batch_size, counts
        self.step_size, self.stick_step_size = step_size, stick_step_size
        self.refresh_every, self.refresh_size = refresh_every, refresh_size
        self.initial_clusters, self.split_merge, self.keep_clusters = (
            initial_clusters,
            split_merge,
            keep_clusters,
        )
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
        num_steps: int | None = None,
        num_epochs: float | None = None,
        max_seconds: float | None = None,
        validation: Table | None = None,
        store: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
        client: object = None,
        num_shards: int | None = None,
    ) -> DPMixture:
        """Sample from the posterior given the rows of `X`.

        Parameters
        ----------
        X
            One row for each observation: whole counts of categories (SciPy sparse or a table), or real numbers. An
            empty row of counts carries no information about its cluster and is left out.
        y
            Ignored.
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
            settings = dataclasses.replace(settings, device=given.HOST)
        length = fits.check_length(
            num_steps,
            num_epochs,
            max_seconds,
            num_rows=rows.num_rows,
            batch_size=settings.batch_size,
            default_epochs=min(1000, max(_DEFAULT_EPOCHS, _DEFAULT_LABELS // rows.num_rows)),
            planned_steps=fits.planned_steps(*self._draws_wanted()),
        )
        fit = self._fit(family, everything, rows, settings, length)
        if store is None:
            fit.warn_if_large("Reduce `keep_clusters` or `num_samples`, or pass a `store`.")

        def as_stored(was: dict[str, Any]) -> fits.Fit:
            """A run that was started on the CPU stays there."""
            if "device" in was or not settings.by_arrays:
                return asked
            if self.device != "auto":
                raise InvalidValueError(
                    f'the run in {store} was started with the compiled kernels of the CPU: resume it with device="cpu" '
                    f'or "auto", not "{self.device}".'
                )
            on_host = dataclasses.replace(settings, device=given.HOST)
            return self._fit(family, everything, rows, on_host, length)

        watch = () if validation is None else (_watcher(family, family.rows(validation)),)
        judges = rows.take(np.arange(min(_JUDGES, rows.num_rows)))
        with sharded.labelling_on(client, num_shards, rows, family, settings.sampler, store) as labelling:
            asked = dataclasses.replace(
                fit,
                make_chains=lambda: self._chains(rows, family, settings, labelling),
                as_stored=as_stored,
            )
            run = fits.run_fit(
                asked,
                store=store,
                resume=resume,
                overwrite=overwrite,
                callbacks=(*as_callbacks(callbacks), *watch),
                progress=progress,
                extra=chains.extra(self.get_params(), family, judges),
            )
        if run.draws is None:
            if run.status == "interrupted":
                raise KeyboardInterrupt
            raise InvalidValueError("the run was stopped during burn-in, before its first draw.")
        self._settle(dict(run.draws), run.stats, family, judges)
        self._training = everything
        self.run_ = run
        self.__dict__.pop("_online", None)
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
        family: Family[Any] = self._family if online is not None else given.base(self.base).resolve(X)
        new = family.rows(X)
        if online is not None and not family.informative(new).size:
            return self
        rows = self._shuffled(family, new)
        if online is not None:
            for chain in online:
                chain.take_in(rows)
        else:
            settings = given.resolve(self.get_params(), family.kind, _MANY)
            online = self._chains(rows, family, settings)
            self._online, self._latest = online, [[] for _ in online]
            for chain in online:
                chain.advance(_FIRST_EPOCHS * -(-rows.num_rows // settings.batch_size))
            self._judges = rows.take(np.arange(min(_JUDGES, rows.num_rows)))
        kept = _checks.positive_int(self.num_samples, "num_samples")
        for chain, latest in zip(online, self._latest, strict=True):
            latest.append(chain.kept())
            del latest[:-kept]
        self.run_ = None
        draws, stats = (
            {n: np.stack([[kept[part][n] for kept in latest] for latest in self._latest]) for n in names}
            for part, names in enumerate(self._latest[0][0])
        )
        self._settle(draws, stats, family, self._judges)
        return self

    def chain(self, X: Table, chain: int = 0) -> MixtureChain:
        """A chain with these settings, to advance yourself; its rows are in a random order."""
        family = given.base(self.base).resolve(X)
        rows = self._shuffled(family, family.rows(X))
        return MixtureChain(rows, family, self._settings(family, rows), self.seed, chain)

    def report_view(self, run: Run | None = None, **options: Any) -> View:
        """Contents of a report, see `scirocco.models._core.view`."""
        from scirocco.models.dp import view

        return view.view(self, run, options.get("names"))

    def to_arviz(self) -> Any:
        """Convert the draws to ArviZ; clusters are sorted by weight, so cluster k is not the same in all draws."""
        self._check_fitted()
        return fits.to_arviz(chains.KIND, self.run_, self._draws, self._stats)

    # -- on disk ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the fitted model: draws as a Zarr group, settings and the base measure; no pickles and no code."""
        self._check_fitted()
        configuration = {"sampler": self.sampler, "family": self._family.as_json()}
        extra = chains.extra(self.get_params(), self._family, self._judges)
        fits.save(chains.KIND, self._draws, self._stats, configuration, extra, path, overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DPMixture:
        """Load a model from `save`, or from the `store` of a fit, finished or not; draws are read when needed."""
        loaded = fits.load(chains.KIND, path)
        params, family, judges = chains.opened(loaded.extra)
        model = cls(**new_names(params, cls._renamed, warn=False))
        model.run_ = None
        model._settle(loaded.draws, loaded.stats, family, judges)
        return model

    # -- inside -------------------------------------------------------------------------------------------------------

    def _fit(
        self, family: Family[Any], everything: Rows, rows: Rows, settings: Settings, length: fits.Length
    ) -> fits.Fit:
        num_samples, num_burnin, thin = self._draws_wanted()
        return fits.Fit(
            chains.KIND,
            {**settings.as_json(), "family": family.as_json()},
            lambda: chains.fingerprint(family, everything),
            rows.num_rows,
            chains.spec(family, settings),
            lambda: self._chains(rows, family, settings),
            _checks.positive_int(self.num_chains, "num_chains"),
            num_samples,
            _checks.positive_int(self.seed, "seed", minimum=0),
            length,
            num_burnin,
            thin,
            capacity=8,
            chosen=settings.words if settings.by_arrays else "",
        )

    def _draws_wanted(self) -> tuple[int, float, int | None]:
        """`num_samples`, `num_burnin` and `thin`, checked."""
        return fits.check_draws(self.num_samples, self.num_burnin, self.thin)

    def _chains(
        self, rows: Rows, family: Family[Any], settings: Settings, labelling: sharded.Shards | None = None
    ) -> list[MixtureChain]:
        number = _checks.positive_int(self.num_chains, "num_chains")
        return [MixtureChain(rows, family, settings, self.seed, chain, labelling) for chain in range(number)]

    def _settings(self, family: Family[Any], rows: Rows) -> Settings:
        return given.resolve(self.get_params(), family.kind, rows.num_rows)

    def _shuffled(self, family: Family[Any], rows: Rows) -> Rows:
        """The informative rows, in a random order."""
        chosen = family.informative(rows)
        if not chosen.size:
            raise InvalidValueError(f"all {rows.num_rows} rows are empty: clusters cannot be estimated.")
        return rows.take(shuffled_numbers(chosen, _checks.positive_int(self.seed, "seed", minimum=0)))


def _watcher(family: Family[Any], rows: Rows) -> Callback:
    def watch(report: Report) -> dict[str, float] | None:
        if report.draws is None or not report.draws["rest"].shape[1]:
            return None
        draw = {name: np.asarray(values[0, -1]) for name, values in report.draws.items()}
        return {"log_predictive": float(prediction.log_predictive(family, rows, draw).mean())}

    return watch
