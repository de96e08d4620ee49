"""`sc.models.HMM`: hidden Markov models with intervals for everything."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from scirocco import _checks
from scirocco.data.arrays import ArraySource
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.model.density import Model
from scirocco.models import fits
from scirocco.models.fits.conventions import StepSize
from scirocco.models.fits.mixing import warn_if_unmixed
from scirocco.models.hmm import priors
from scirocco.models.hmm.emissions import Emission, Encoded
from scirocco.models.hmm.gibbs import Prior
from scirocco.models.hmm.methods import PRESETS, Method, choose
from scirocco.models.hmm.results import Results
from scirocco.models.hmm.series import Given, SeriesLike, read
from scirocco.models.view import View
from scirocco.run.encoding import decode, encode
from scirocco.run.progress import Callback, as_callbacks
from scirocco.run.result import Run

KIND = fits.Kind("HMM", "a hidden Markov model", "hmm")
_MOST_STATES = 127
_LEAST_EPOCHS, _MOST_EPOCHS, _WORK = 200, 2_000, 10_000_000
_ADVICE = (
    "Chains that found different states never mix: raise `num_starts`, use fewer states, or a longer fit "
    "(num_epochs)."
)


class HMM(fits.Conventions, Results):
    r"""Hidden Markov model: :math:`z_t | z_{t-1} ~ A_{z_{t-1}}`, :math:`x_t | z_t ~ f(· | θ_{z_t})`; posterior draws.

    Priors are conjugate: :math:`A_j ~ Dir(a + κ e_j)`, the first state Dir(a), and for emissions a Dirichlet, a
    normal-inverse-Wishart or a gamma distribution. States and parameters are drawn exactly, with compiled code.
    Parameters of emissions that you write yourself are drawn by Metropolis-Hastings steps that need no step size.

    Parameters
    ----------
    num_states
        K.
    emissions
        "gaussian" (one or more real columns), "poisson" (counts; columns are independent), "categorical" (labels), or
        your own: an `sc.Model(log_density, log_prior)` of one observation x (a number, or an array if there are
        columns) given a dict with the parameters of one state, `log_density(params, x)`. "auto": "categorical" for
        texts, "poisson" for whole numbers >= 0 whose mean is at most 20, otherwise "gaussian".
    sampler
        "gibbs" (default): states jointly by forward filtering and backward sampling, in batches of pieces of the
        series, then all parameters given all states; exact, no step size. "scir", "scir_cv", "sgrld": stochastic
        gradients from random subsequences with buffers; approximate, they store no states.
    concentration, sticky
        a, and κ >= 0: prior pseudo-counts of staying in a state. Larger κ makes visits longer.
    prior
        The emission prior: {"concentration"} of categories (1 each); {"mean", "strength", "degrees", "scale"} of normal
        emissions: Σ ~ inverse Wishart(degrees, diag(scale²)), μ ~ N(mean, Σ / strength); {"shape", "rate"} of Poisson
        rates. What is not given is chosen from the scale of the data.
    start
        With emissions of your own: a dict with parameters of one state from which the search for starts begins.
    categories
        All categories, if the series to fit may not have all of them.
    batch_size
        Observations per step. By default 65,536, or 10,000 for stochastic gradients.
    num_starts
        Each chain starts from the best of this many short chains on a part of the data.
    step_size
        h of "scir", "scir_cv" and "sgrld".
    buffer
        Of these samplers: observations before and after a subsequence that are used but not counted. None: measured,
        so that the states forget all but 0.1 % of what lies beyond. `buffer_` has the length, `buffer_error_` the
        error of counts per observation that is left.
    num_samples
        Number of posterior draws per chain; a short run gives fewer.
    num_burnin
        Length of the burn-in, whose draws are discarded: steps (int), or a fraction of the run (float below 1).
    thin
        Steps between two draws. None: the draws are spread evenly over the run after the burn-in.
    num_chains, seed, num_threads
        Number of independent chains; the same seed gives the same draws for any `num_threads`.
    device
        "auto": long series (a million observations or more) on an accelerator if JAX has one, otherwise the compiled
        kernels of the CPU. "cpu", "gpu"; "jax": the array programs on JAX's default device. They draw all states in
        each step, jointly, by associative scans; `batch_size` is not used. Built-in emissions and "gibbs" only.

    Attributes
    ----------
    transitions_, initial_, means_ and covariances_, rates_, or probabilities_
        Posterior means. States are in the same order everywhere.
    draws_
        Draws (chain, draw, ...) with the states of all draws in one order.
    run_
        The run; `run_.preparation["chosen"]` says what was chosen.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> rng = np.random.default_rng(0)
    >>> states = np.repeat([0, 1, 0, 1], 50)
    >>> model = sc.models.HMM(2, emissions="poisson", num_chains=2, seed=1)
    >>> model = model.fit(rng.poisson([1, 8])[states] + rng.poisson(1, 200), num_epochs=50, progress=False)
    >>> model.predict([0, 1, 2, 9, 8, 10]).tolist()
    [0, 0, 0, 1, 1, 1]
    """

    buffer_: int
    buffer_error_: float
    _estimator_type: ClassVar[str | None] = "density_estimator"

    def __init__(
        self,
        num_states: int = 2,
        *,
        emissions: str | Model = "auto",
        sampler: str = "gibbs",
        concentration: float = 1.0,
        sticky: float = 0.0,
        prior: Mapping[str, Any] | None = None,
        start: Mapping[str, Any] | None = None,
        categories: Sequence[Any] | None = None,
        batch_size: int | None = None,
        num_starts: int = 16,
        step_size: StepSize = None,
        buffer: int | None = None,
        num_samples: int = 250,
        num_burnin: float = 0.5,
        thin: int | None = None,
        num_chains: int = 4,
        seed: int = 0,
        num_threads: int | None = None,
        device: str = "auto",
    ):
        self.num_states, self.emissions, self.sampler = num_states, emissions, sampler
        self.concentration, self.sticky, self.prior = concentration, sticky, prior
        self.start = start
        self.categories, self.batch_size, self.num_starts = categories, batch_size, num_starts
        self.step_size, self.buffer = step_size, buffer
        self.num_samples, self.num_burnin, self.thin = num_samples, num_burnin, thin
        self.num_chains, self.seed, self.num_threads, self.device = num_chains, seed, num_threads, device

    @classmethod
    def preset(cls, name: str, num_states: int = 2, **changes: Any) -> HMM:
        """A model with the sampler of a paper: "baker2018" (SCIR), "barile2024" (SCIR-CV), "aicher2019" (SGRLD).

        Series are seen through buffered subsequences, as in the last of them. `changes` are other arguments.
        """
        _checks.choice(name, "preset", tuple(PRESETS))
        return cls(num_states, **{**PRESETS[name], **changes})

    def fit(
        self,
        series: SeriesLike,
        y: object = None,
        *,
        by: Any = None,
        num_steps: int | None = None,
        num_epochs: float | None = None,
        max_seconds: float | None = None,
        store: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
    ) -> HMM:
        """Sample from the posterior given one or more series.

        Parameters
        ----------
        series
            One series (time,) or (time, columns), a list of series of any lengths, or a data frame (or a CSV, text,
            Parquet, Arrow or .npy file) whose columns are the observations. NaN (None for labels) is a missing
            observation, which is integrated out; a row with NaN in some columns only raises an error. If the first of
            several columns has times, it is left out; they must not decrease.
        y
            Ignored.
        by
            Of a data frame: the column with the id of the series of each row; or an array with one id per row.
        num_steps, num_epochs, max_seconds
            The length of the run, including burn-in; give at most one of the three. An epoch draws all states once. By
            default `num_samples` times `thin` steps after the burn-in if `thin` is given, otherwise 200 epochs, up to
            2,000 for short series.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`.
        """
        given = read(series, by)
        prior = self._prior(given)
        data = prior.emission.encode(given)
        _check_enough(int(np.count_nonzero(~data.is_missing)), prior.num_states)
        chosen = choose(self, prior, data, given)
        length = fits.check_length(
            num_steps,
            num_epochs,
            max_seconds,
            num_rows=chosen.batches,
            batch_size=1,
            default_epochs=min(_MOST_EPOCHS, max(_LEAST_EPOCHS, _WORK // len(data.is_missing))),
            planned_steps=fits.planned_steps(*self._draws_wanted()),
        )
        fit = self._fit(prior, data, given, chosen, length)
        extra = self._extra(prior.emission, given.names, chosen)
        run = fits.run_fit(
            fit,
            store=store,
            resume=resume,
            overwrite=overwrite,
            callbacks=as_callbacks(callbacks),
            progress=progress,
            extra=extra,
        )
        if run.status == "interrupted" and not run.num_draws:
            raise KeyboardInterrupt
        run = dataclasses.replace(run, preparation={"chosen": chosen.words})
        self._settle(run, prior.emission, given.names)
        self._take_buffer(chosen.measured)
        if "draws_" in self.__dict__:
            watched = ("transitions", *prior.emission.shapes(1))
            warn_if_unmixed({name: self.draws_[name] for name in watched}, "HMM", _ADVICE)
        return self

    def report_view(self, run: Run | None = None, **options: Any) -> View:
        """Contents of a report, see `scirocco.models.view`."""
        from scirocco.models.hmm import view

        return view.view(self, run)

    def to_arviz(self) -> Any:
        """Convert the draws to ArviZ, with the states of all draws in one order."""
        self._check_fitted()
        return fits.to_arviz(KIND, self.run_, self.draws_, dict(self.run_.stats), self._coordinates())

    # -- on disk ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the fitted model: draws as a Zarr group, settings and the prior; no pickles and no code."""
        self._check_fitted()
        measured = (self.buffer_, self.buffer_error_) if "buffer_" in self.__dict__ else None
        extra = self._extra(self._emission, self._columns, Method(1, "", measured, lambda number: None))
        draws = {name: np.asarray(values) for name, values in (self.run_.draws or {}).items()}
        stats = {name: np.asarray(values) for name, values in self.run_.stats.items()}
        configuration = {"sampler": self.sampler, "emissions": self._emission.kind}
        fits.save(KIND, draws, stats, configuration, extra, path, overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], emissions: Model | None = None) -> HMM:
        """Load a model from `save`, or from the `store` of a fit, finished or not; emissions of your own are passed."""
        from scirocco.run.loading import load

        loaded = fits.load(KIND, path)
        extra = loaded.extra
        emission = priors.from_json(extra["emission"], emissions)
        model = cls(**{name: decode(value, name) for name, value in extra["params"].items()})
        if emissions is not None:
            model.emissions = emissions
        names = None if extra["names"] is None else tuple(extra["names"])
        model._settle(load(path), emission, names)
        model._take_buffer(extra["buffer"])
        return model

    # -- inside -------------------------------------------------------------------------------------------------------

    def _extra(self, emission: Emission, names: tuple[str, ...] | None, chosen: Method) -> dict[str, Any]:
        params = {name: _written(value, name) for name, value in self.get_params().items()}
        return {
            "params": params,
            "emission": priors.as_json(emission),
            "names": None if names is None else list(names),
            "buffer": None if chosen.measured is None else list(chosen.measured),
        }

    def _take_buffer(self, measured: Sequence[float] | None) -> None:
        for name in ("buffer_", "buffer_error_"):
            self.__dict__.pop(name, None)
        if measured is not None:
            self.buffer_, self.buffer_error_ = int(measured[0]), float(measured[1])

    def _prior(self, given: Given) -> Prior:
        num = _checks.positive_int(self.num_states, "num_states")
        if num > _MOST_STATES:
            raise InvalidValueError(f"`num_states` must be at most {_MOST_STATES}, got {num}.")
        if self.prior is not None and not isinstance(self.prior, Mapping):
            raise InvalidTypeError(f"`prior` must be a dict, got {type(self.prior).__name__}.")
        _checks.positive(self.concentration, "concentration")
        _checks.positive(self.sticky, "sticky", allow_zero=True)
        _check_enough(len(given.values), num)
        emission = priors.resolve(self.emissions, given, num, self.prior, self.categories, self.start)
        return Prior(num, float(self.concentration), float(self.sticky), emission)

    def _draws_wanted(self) -> tuple[int, float, int | None]:
        """`num_samples`, `num_burnin` and `thin`, checked."""
        return fits.check_draws(self.num_samples, self.num_burnin, self.thin)

    def _fit(
        self, prior: Prior, data: Encoded, given: Given, chosen: Method, length: fits.Length
    ) -> fits.Fit:
        num_samples, num_burnin, thin = self._draws_wanted()
        num_chains = _checks.positive_int(self.num_chains, "num_chains")
        arrays = {"bounds": given.bounds, "codes": data.codes, "rows": data.rows}
        known = {
            name: getattr(self, name) for name in ("concentration", "sticky", "batch_size", "num_starts")
        }
        return fits.Fit(
            KIND,
            {
                "sampler": self.sampler,
                "num_states": prior.num_states,
                "emission": priors.as_json(prior.emission),
                **known,
                "step_size": None if self.step_size is None else repr(self.step_size),
                "buffer": None if chosen.measured is None else chosen.measured[0],
                **({"device": "jax"} if chosen.on_device else {}),
            },
            lambda: "-".join(
                ArraySource({name: part}).fingerprint() for name, part in arrays.items() if len(part)
            ),
            data.num_rows,
            _spec(prior, given, ("log_joint", "passes") if self.sampler == "gibbs" else ("passes",)),
            lambda: [_begun(chosen.make(number), length) for number in range(num_chains)],
            num_chains,
            num_samples,
            _checks.positive_int(self.seed, "seed", minimum=0),
            length,
            num_burnin,
            thin,
            capacity=8,
            chosen=f"HMM: {chosen.words}",
        )


def _spec(prior: Prior, given: Given, stats: tuple[str, ...]) -> fits.Spec:
    """Arrays of one draw; in double precision, because dwell times are differences from 1."""
    num = prior.num_states
    shapes = {"initial": (num,), "transitions": (num, num), **prior.emission.shapes(num)}
    draws = {name: jax.ShapeDtypeStruct(shape, np.float64) for name, shape in shapes.items()}
    if given.num_series == 1:
        draws["last"] = jax.ShapeDtypeStruct((), np.int64)
    return fits.Spec(draws, {name: jax.ShapeDtypeStruct((), np.float64) for name in stats})


def _begun(chain: Any, length: fits.Length) -> Any:
    """The chain, started if there is a time limit: it is for sampling, not for compiling and short chains."""
    if length.max_seconds is not None:
        chain.advance(0)
    return chain


def _check_enough(observations: int, num: int) -> None:
    if observations < num:
        raise InvalidValueError(
            f"{num} states need at least as many observations, got {observations}. Use fewer states."
        )


def _written(value: Any, name: str) -> Any:
    """`encode`, for dicts and arrays of a prior as lists; of an sc.Model its kind."""
    if name == "emissions" and not isinstance(value, str):
        return "own"
    if name == "categories" and value is not None:
        return encode(np.asarray(value).tolist())
    if name in ("prior", "start") and value is not None:
        return encode({key: np.asarray(part).tolist() for key, part in value.items()})
    return encode(value.item() if isinstance(value, np.generic) else value)
