"""`sc.models.BPMF`: Bayesian probabilistic matrix factorisation."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco.data.arrays import ArraySource
from scirocco.data.sources import check_memory
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import Estimator, Minibatch
from scirocco.models._core.program import FitOptions, OwnChains, Program, Sampled
from scirocco.run import sample
from scirocco.samplers import LeafScaledSGLD, Sampler
from scirocco.types import Params
from scirocco_latent.factorisation import gibbs
from scirocco_latent.factorisation.density import Law, RatingModel, Ratings
from scirocco_latent.factorisation.method import WithPrecisions
from scirocco_latent.factorisation.ratings import Rated, Triples, check_triples
from scirocco_latent.factorisation.results import RatingResults

_STEP_SIZE, _BATCH, _NUM_STEPS = 0.01, 5_000, 10_000
"""Step size, ratings of a step and length by default, of a sampler with gradients."""
_START_SD = 0.1
"""Standard deviation of the factors at the start."""


class BPMF(RatingResults):
    r"""Bayesian probabilistic matrix factorisation, with posterior draws of factors, biases and precisions.

    .. math:: r ∼ N(\text{offset} + U_i · V_j + a_i + b_j, 1/τ), \quad U_i ∼ N(0, I/λ_U), \; V_j ∼ N(0, I/λ_V), \;
        a_i ∼ N(0, 1/λ_a), \; b_j ∼ N(0, 1/λ_b)

    with λ ~ Gamma(shape, rate) and τ ~ Gamma(1, 1); `offset` is the mean of the training ratings. By default an exact
    Gibbs sampler draws all users given the items and all items given the users, on a CPU or an accelerator, with steps
    along the scales and locations that the ratings leave free (`scirocco_latent.factorisation.gibbs`). Ratings are
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
        Number of independent chains; the same seed gives the same draws.

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
    >>> from scirocco_latent.factorisation import BPMF
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

    ADVICE = "Pass a larger `num_epochs` to fit, or a longer `num_burnin`."

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
        num_chains: int = 4,
        seed: int = 0,
    ):
        self.num_factors, self.prior, self.rating_precision = num_factors, prior, rating_precision
        self.num_users, self.num_items = num_users, num_items
        self.sampler, self.estimator, self.batch_size = sampler, estimator, batch_size
        self.num_samples, self.num_burnin, self.thin = num_samples, num_burnin, thin
        self.num_chains, self.seed = num_chains, seed

    def fit(self, users: ArrayLike, items: ArrayLike, ratings: ArrayLike, **options: Unpack[FitOptions]) -> BPMF:
        """Sample factors and biases from the posterior given ratings.

        Parameters
        ----------
        users, items
            Ids, one of each per rating: integers or strings. Several ratings of one pair are all used.
        ratings
            Finite numbers.
        num_steps, num_epochs, max_seconds
            The length of the run, including burn-in, as steps, passes over the ratings, or seconds of sampling (without
            set-up and compilation); give at most one. By default `num_samples` times `thin` steps after the burn-in if
            `thin` is given, otherwise 300 sweeps, or 10,000 steps of a stochastic sampler.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`; a resumed fit must have the same length.
        """
        triples = check_triples(users, items, ratings, self.num_users, self.num_items)
        law, offset = self._law(), float(triples.ratings.mean(dtype=np.float64))
        start, rated = self._start(triples, law), Rated.of(triples)
        data = Ratings(triples.users, triples.items, triples.ratings - np.float32(offset))
        program = self._by_gibbs if self._is_exact() else self._by_gradients
        arrays = {"items": rated.items, "first": rated.first}
        told = {"offset": offset, "rating_precision": law.rating_precision, **rated.told()}
        return self._run(program(data, law, start, told, arrays), options)

    def _is_exact(self) -> bool:
        """Whether the Gibbs sampler is used."""
        if isinstance(self.sampler, str):
            _checks.choice(self.sampler, "sampler", (gibbs.METHOD,))
            for name, value in (("estimator", self.estimator), ("batch_size", self.batch_size)):
                if value is not None:
                    raise InvalidTypeError(f'`{name}` is for samplers with gradients; sampler="gibbs" has none.')
            return True
        return self.sampler is None and self.estimator is None and self.batch_size is None

    def _by_gibbs(
        self, data: Ratings, law: Law, start: Params, told: dict[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> Program:
        """Exact draws of users and items in turn: `gibbs`."""
        arranged = gibbs.arranged(data, len(start["users"]), len(start["items"]), int(self.num_factors))
        return OwnChains(
            "exact Gibbs sampler: all users given the items, all items given the users, then scales and precisions",
            {"sampler": gibbs.METHOD, "num_factors": self.num_factors, "law": repr(RatingModel(law))},
            ArraySource(data._asdict()).fingerprint,
            len(data.value),
            gibbs.spec_of(start),
            lambda number: gibbs.FactorChain(law, arranged, start, self.seed, number),
            told,
            arrays,
            default_epochs=gibbs.NUM_SWEEPS,  # a sweep is a pass
            capacity=1,
        )

    def _by_gradients(
        self, data: Ratings, law: Law, start: Params, told: dict[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> Program:
        """Tables by stochastic gradients, their precisions by exact draws."""
        size = _BATCH if self.batch_size is None else self.batch_size
        batch = min(_checks.positive_int(size, "batch_size"), len(data.value))
        inner = LeafScaledSGLD(_STEP_SIZE) if self.sampler is None else cast(Sampler, self.sampler)
        sampling = functools.partial(
            sample,
            RatingModel(law),
            data,
            start,
            sampler=WithPrecisions(inner, law.shape, law.rate),
            estimator=Minibatch(batch) if self.estimator is None else self.estimator,
        )
        length = _NUM_STEPS * batch / len(data.value)
        return Sampled(sampling, len(data.value), batch, told, arrays, default_epochs=length)

    # -- inside -----------------------------------------------------------------------------------------------

    def _law(self) -> Law:
        try:
            shape, rate = self.prior
        except (TypeError, ValueError) as error:
            raise InvalidValueError(f"`prior` of BPMF must be a pair (shape, rate), got {self.prior!r}.") from error
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
