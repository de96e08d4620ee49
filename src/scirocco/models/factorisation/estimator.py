"""`sc.models.BPMF`: Bayesian probabilistic matrix factorisation."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco.data.arrays import ArraySource
from scirocco.data.sources import check_memory
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import Estimator, Minibatch
from scirocco.models import fits, sampled
from scirocco.models.factorisation import gibbs
from scirocco.models.factorisation.density import Law, RatingModel, Ratings
from scirocco.models.factorisation.method import WithPrecisions
from scirocco.models.factorisation.ratings import Triples, check_triples
from scirocco.models.factorisation.results import Rated, Results
from scirocco.models.fits.mixing import warn_if_unmixed
from scirocco.run import sample
from scirocco.run.progress import Callback
from scirocco.run.result import Run
from scirocco.samplers import LeafScaledSGLD, Sampler
from scirocco.types import Params

_KIND = fits.Kind("BPMF", "a factorisation of ratings", "bpmf")
_STEP_SIZE, _BATCH, _NUM_STEPS = 0.01, 5_000, 10_000
_START_SD = 0.1


class BPMF(fits.Conventions, Results):
    r"""Bayesian probabilistic matrix factorisation, with posterior draws of factors, biases and precisions.

    .. math:: r ∼ N(\text{offset} + U_i · V_j + a_i + b_j, 1/τ), \quad U_i ∼ N(0, I/λ_U), \; V_j ∼ N(0, I/λ_V), \;
        a_i ∼ N(0, 1/λ_a), \; b_j ∼ N(0, 1/λ_b)

    with λ ~ Gamma(shape, rate) and τ ~ Gamma(1, 1); `offset` is the mean of the training ratings. By default an exact
    Gibbs sampler draws all users given the items and all items given the users, on a CPU or an accelerator, with steps
    along the scales and locations that the ratings leave free (`scirocco.models.factorisation.gibbs`). Ratings are
    treated as real numbers with a standard deviation of about 1 (such as 1 to 5 stars); predictions are not clipped to
    the scale.

    A user or an item without ratings is predicted from the prior: the mean is offset + b_j (or + a_i, or offset alone),
    and the interval is wider accordingly. Set `num_users` and `num_items` to include such users and items.

    Parameters
    ----------
    num_factors
        D: number of columns of U and V.
    prior
        (shape, rate) of the Gamma prior of each λ. The thesis uses (1, 300), which keeps the standard deviation of
        factors at 0.2 or more; on MovieLens, (1, 1) predicts better.
    rating_precision
        τ: "sample" (default), or a fixed number (the thesis uses 3, which makes intervals too narrow: the noise of
        ratings has a τ near 1.5).
    num_users, num_items
        Number of rows of U and V: ids are then integers below it. None: ids may be of any kind (strings, integers with
        gaps) and the rows are those that occur, except that integers below 1000, or with few gaps, are row numbers.
    sampler
        "gibbs" (the default; a step is a sweep over all ratings), or a sampler of U, V, a, b and log τ by stochastic
        gradients, while the λ are drawn from their conditional distribution: `sc.LeafScaledSGLD(0.01)`, which scales
        the step size of each table by its gradient and is used if you pass only an `estimator` or a `batch_size`; or
        sc.SGLD, sc.SGHMC, sc.BAOAB, ... with step sizes by name ("users", "items", "user_bias", "item_bias",
        "rating_precision").
    estimator
        Gradient estimator of such a sampler; by default `sc.Minibatch(batch_size)`.
    batch_size
        Number of ratings per step of such a sampler (all if there are fewer); by default 5,000.
    num_samples
        Number of posterior draws per chain.
    num_burnin
        Length of the burn-in: steps (int), or a fraction of the run (float below 1).
    thin
        Steps between two draws. None: the draws are spread evenly over the run after the burn-in.
    num_chains, seed
        Number of independent chains (None: 4 of the Gibbs sampler, otherwise 1); the same seed gives the same draws.

    Attributes
    ----------
    run_
        The run: `run_.draws["users"]` has the axes (chain, draw, user, factor). Factors are not identified: they may
        rotate and change sign along a chain, so use predictions, not means of factors.
    offset_, num_users_, num_items_
        Mean of the training ratings, and numbers of users and items.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> from scirocco.models.factorisation import BPMF
    >>> rng = np.random.default_rng(0)
    >>> users, items = rng.integers(0, 30, 2000), rng.integers(0, 20, 2000)
    >>> liking = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 20))
    >>> ratings = 3 + liking[users, items] + 0.3 * rng.normal(size=2000)
    >>> model = BPMF(num_factors=3).fit(users, items, ratings, progress=False)
    >>> model.score(users, items, ratings) > 0.8
    True
    >>> mean, low, high = model.predict([0, 1], [2, 3], interval=0.9)
    >>> bool((low < mean).all() and (mean < high).all())
    True
    """

    _renamed: ClassVar[Mapping[str, str]] = {"num_draws": "num_samples", "discard": "num_burnin"}

    @fits.renamed_arguments(_renamed)
    def __init__(
        self,
        num_factors: int = 20,
        *,
        prior: tuple[float, float] = (1.0, 1.0),
        rating_precision: float | str = "sample",
        num_users: int | None = None,
        num_items: int | None = None,
        sampler: Sampler | str | None = None,
        estimator: Estimator | None = None,
        batch_size: int | None = None,
        num_samples: int = 100,
        num_burnin: float = 0.2,
        thin: int | None = None,
        num_chains: int | None = None,
        seed: int = 0,
    ):
        self.num_factors, self.prior, self.rating_precision = num_factors, prior, rating_precision
        self.num_users, self.num_items = num_users, num_items
        self.sampler, self.estimator, self.batch_size = sampler, estimator, batch_size
        self.num_samples, self.num_burnin, self.thin = num_samples, num_burnin, thin
        self.num_chains, self.seed = num_chains, seed

    def fit(
        self,
        users: ArrayLike,
        items: ArrayLike,
        ratings: ArrayLike,
        *,
        num_epochs: float | None = None,
        max_seconds: float | None = None,
        store: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
        num_steps: int | None = None,
    ) -> BPMF:
        """Sample factors and biases from the posterior given ratings.

        Parameters
        ----------
        users, items
            Ids, one of each per rating: integers or strings. Several ratings of one pair are all used.
        ratings
            Finite numbers.
        num_epochs, max_seconds
            The length of the run, including burn-in, as passes over the ratings or seconds of sampling (without set-up
            and compilation); give at most one. By default `num_samples` times `thin` steps after the burn-in if
            `thin` is given, otherwise 300 sweeps, or 10,000 steps of a stochastic sampler.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`; a resumed fit must have the same length.
        num_steps
            Deprecated: use `num_epochs`.
        """
        triples = check_triples(users, items, ratings, self.num_users, self.num_items)
        law, offset = self._law(), float(triples.ratings.mean(dtype=np.float64))
        rated = Rated.of(triples)
        data = Ratings(triples.users, triples.items, triples.ratings - np.float32(offset))
        draw = self._by_gibbs if self._is_exact() else self._by_gradients
        options = {"store": store, "resume": resume, "overwrite": overwrite}
        run = draw(
            data,
            self._start(triples, law),
            (num_steps, num_epochs, max_seconds),
            _extra(offset, rated),
            {"items": rated.items, "first": rated.first},
            **options,
            callbacks=callbacks,
            progress=progress,
        )
        if not run.num_draws:
            raise InvalidValueError("the run was stopped during burn-in, before its first draw.")
        self._settle(run, offset, law, rated)
        advice = "Pass a larger `num_epochs` to fit, or a longer `num_burnin`."
        warn_if_unmixed(self.report_view(run).to_chart, "BPMF", advice)
        return self

    def _is_exact(self) -> bool:
        """Whether the Gibbs sampler is used."""
        if isinstance(self.sampler, str):
            _checks.choice(self.sampler, "sampler", (gibbs.METHOD,))
            for name in ("estimator", "batch_size"):
                if getattr(self, name) is not None:
                    raise InvalidTypeError(
                        f'`{name}` is for samplers with gradients; sampler="gibbs" has none.'
                    )
            return True
        return self.sampler is None and self.estimator is None and self.batch_size is None

    def _by_gibbs(
        self,
        data: Ratings,
        start: Params,
        lengths: tuple[int | None, float | None, float | None],
        extra: dict[str, Any],
        arrays: dict[str, np.ndarray],
        **options: Any,
    ) -> Run:
        """Exact draws of users and items in turn: `gibbs`."""
        wanted = fits.check_draws(self.num_samples, self.num_burnin, self.thin)
        sampled.warn_of_steps(lengths[0], 1, 1)
        length = fits.check_length(
            *lengths,
            num_rows=1,  # a sweep is a pass
            batch_size=1,
            default_epochs=gibbs.NUM_SWEEPS,
            planned_steps=fits.planned_steps(*wanted),
        )
        law, seed = self._law(), _checks.positive_int(self.seed, "seed", minimum=0)
        chains = gibbs.NUM_CHAINS if self.num_chains is None else self.num_chains
        chains = _checks.positive_int(chains, "num_chains")
        sizes = len(start["users"]), len(start["items"])
        arranged = gibbs.arranged(data, *sizes, self.num_factors)
        fit = fits.Fit(
            _KIND,
            {"sampler": gibbs.METHOD, "num_factors": self.num_factors, "law": repr(RatingModel(law))},
            ArraySource(data._asdict()).fingerprint,
            len(data.value),
            gibbs.spec_of(start),
            lambda: [gibbs.GibbsChain(law, arranged, start, seed, chain) for chain in range(chains)],
            *(chains, wanted[0], seed, length, wanted[1], wanted[2]),
        )
        if options["store"] is None:
            fit.warn_if_large("Pass a `store`, or fewer `num_samples`.")
        if lengths[2] is not None:  # compiles: the time limit is for sampling
            gibbs.GibbsChain(law, arranged, start, seed, 0).advance(1)
        run = fits.run_fit(fit, **options, extra=sampled.with_settings(self, extra))
        words = "exact Gibbs sampler: all users given the items, all items given the users, then scales and precisions"
        return dataclasses.replace(sampled.with_arrays(run, arrays), preparation={"chosen": words})

    def _by_gradients(
        self,
        data: Ratings,
        start: Params,
        lengths: tuple[int | None, float | None, float | None],
        extra: dict[str, Any],
        arrays: dict[str, np.ndarray],
        **options: Any,
    ) -> Run:
        """Tables by stochastic gradients, their precisions by exact draws."""
        size = _BATCH if self.batch_size is None else self.batch_size
        batch = min(_checks.positive_int(size, "batch_size"), len(data.value))
        sampled.warn_of_steps(lengths[0], len(data.value), batch)
        wanted = fits.check_draws(self.num_samples, self.num_burnin, self.thin)
        length = fits.check_length(
            *lengths,
            num_rows=len(data.value),
            batch_size=batch,
            default_epochs=_NUM_STEPS * batch / len(data.value),
            planned_steps=fits.planned_steps(*wanted),
        )
        law = self._law()
        inner = LeafScaledSGLD(_STEP_SIZE) if self.sampler is None else cast(Sampler, self.sampler)
        sampling = functools.partial(
            sample,
            RatingModel(law),
            data,
            start,
            sampler=WithPrecisions(inner, law.shape, law.rate),
            estimator=Minibatch(batch) if self.estimator is None else self.estimator,
            num_chains=1 if self.num_chains is None else self.num_chains,
            seed=self.seed,
            notes=sampled.notes(_KIND, self, extra),
        )
        return sampled.draw(sampling, length, wanted, **options, arrays=arrays)

    # -- on disk ----------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the fitted model: draws as a Zarr group, settings, pairs with ratings; no pickles and no code.

        `sampler` and `estimator` are not saved: the loaded model has the defaults.
        """
        self._check_fitted()
        extra = _extra(self.offset_, self._rated)
        rated = {"items": self._rated.items, "first": self._rated.first}
        sampled.save(_KIND, self, dict(self.run_.draws), extra, path, overwrite, rated)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> BPMF:
        """Load a model written by `save`, or by `fit` with `store`."""
        saved = sampled.open_saved(_KIND, path, cls._renamed)
        model = cls(**saved.settings)
        if "items" not in saved.arrays:
            raise InvalidValueError(
                f"the fit in {path} has not finished ({saved.run.status}), and the rated pairs are written at its end: "
                "wait for it, or resume it. To open its draws use sc.load."
            )
        ids = (_read_ids(saved.extra.get(name)) for name in ("user_ids", "item_ids"))
        rated = Rated(saved.arrays["items"], saved.arrays["first"], int(saved.extra["num_items"]), *ids)
        model._settle(saved.run, float(saved.extra["offset"]), model._law(), rated)
        return model

    # -- inside -----------------------------------------------------------------------------------------------

    def _law(self) -> Law:
        try:
            shape, rate = self.prior
        except (TypeError, ValueError) as error:
            raise InvalidValueError(
                f"`prior` of BPMF must be a pair (shape, rate), got {self.prior!r}."
            ) from error
        _checks.positive(shape, "shape", "prior")
        _checks.positive(rate, "rate", "prior")
        tau = self.rating_precision
        if isinstance(tau, str):
            _checks.choice(tau, "rating_precision", ("sample",))
            return Law(float(shape), float(rate))
        _checks.positive(tau, "rating_precision", "BPMF")
        return Law(float(shape), float(rate), float(tau))

    def _start(self, triples: Triples, law: Law) -> dict[str, np.ndarray]:
        """Small random factors: at 0 the gradients of U and V vanish."""
        rng = np.random.default_rng([_checks.positive_int(self.seed, "seed", minimum=0), 0xB9])
        size = _checks.positive_int(self.num_factors, "num_factors")
        check_memory(
            8 * size * (triples.num_users + triples.num_items),
            f"{size:,} factors of {triples.num_users:,} users and {triples.num_items:,} items",
            "Choose a smaller `num_factors`.",
        )
        shapes = {
            "users": (triples.num_users, size),
            "items": (triples.num_items, size),
            "user_bias": (triples.num_users,),
            "item_bias": (triples.num_items,),
        }
        start = {name: (_START_SD * rng.normal(size=s)).astype(np.float32) for name, s in shapes.items()}
        start["precisions"] = np.array([10.0, 10.0, 5.0, 5.0], np.float32)
        if law.rating_precision is None:
            start["rating_precision"] = np.asarray(1 / max(float(triples.ratings.var()), 0.01), np.float32)
        return start


def _extra(offset: float, rated: Rated) -> dict[str, Any]:
    """What is saved in addition to draws and settings."""
    ids = {"user_ids": rated.user_ids, "item_ids": rated.item_ids}
    written = {name: sampled.write_labels(known) for name, known in ids.items() if known is not None}
    return {"offset": offset, "num_items": rated.num_items, **written}


def _read_ids(written: dict[str, Any] | None) -> np.ndarray | None:
    return None if written is None else sampled.read_labels(written)
