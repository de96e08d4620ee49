"""`sc.models.HMM`: hidden Markov models with intervals for everything."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Unpack

import jax
import numpy as np

from scirocco import _checks
from scirocco._programs import available_cores
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.model.density import Model
from scirocco.models._core import device
from scirocco.models._core.chain import Spec
from scirocco.models._core.model import StepSize
from scirocco.models._core.program import FitOptions, OwnChains, fingerprint
from scirocco.models._core.view import View
from scirocco.run.result import Run
from scirocco.samplers import schedules
from scirocco_latent.hmm import priors
from scirocco_latent.hmm.emissions import Encoded
from scirocco_latent.hmm.gibbs import PIECE, StateChain, StatePrior, num_batches
from scirocco_latent.hmm.results import StateResults, in_one_order
from scirocco_latent.hmm.series import Array, SeriesData, SeriesLike, read

SAMPLERS = ("gibbs", "scir", "scir_cv", "sgrld")
_MOST_STARTS = 1_000  # more is a mistake
PRESETS: dict[str, dict[str, Any]] = {
    "baker2018": {"sampler": "scir", "step_size": schedules.polynomial(0.5, 10.0, 0.33)},
    "barile2024": {"sampler": "scir_cv", "step_size": schedules.polynomial(1.0, 1000.0, 0.33)},
    "aicher2019": {"sampler": "sgrld"},
}
"""Samplers of papers: SCIR and SCIR-CV with the step sizes that they use for topic models, since they have no series,
and SGRLD with buffered subsequences (the step size follows from the length of the series)."""


@dataclasses.dataclass(frozen=True)
class SeriesMethod:
    """Chains of a sampler."""

    batches: int
    """Steps per epoch."""
    words: str
    measured: tuple[int, float] | None
    """Length and error of the buffers."""
    make: Callable[[int], Any]
    """Makes the chain with a number."""
    on_device: bool = False


def choose(model: HMM, prior: StatePrior, data: Encoded, given: SeriesData) -> SeriesMethod:
    """The chains for the settings of a model, and what they are in words."""
    _checks.choice(model.sampler, "sampler", SAMPLERS)
    seed = _checks.positive_int(model.seed, "seed", minimum=0)
    starts = _checks.positive_int(model.num_starts, "num_starts")
    if starts > _MOST_STARTS:
        raise InvalidValueError(f"`num_starts` must be at most {_MOST_STARTS:,}, got {starts:,}.")
    size = None if model.batch_size is None else _checks.positive_int(model.batch_size, "batch_size")
    chains = _checks.positive_int(model.num_chains, "num_chains")
    threads = model.num_threads
    if threads is None:
        threads = max(1, available_cores() // chains)
    threads = _checks.positive_int(threads, "num_threads")
    on_device = _on_device(model, prior, data)
    if model.sampler != "gibbs":
        return _stochastic(model, prior, data, given, size, threads)
    for name, value in (("step_size", model.step_size), ("buffer", model.buffer)):
        if value is not None:
            raise InvalidValueError(f'sampler="gibbs" has no `{name}`: remove it.')
    if on_device:
        return _scanned(prior, data, given, starts, seed)
    if size is None:  # own emissions have no sums to update: a step reads all observations in any case
        size = data.num_rows if prior.emission.kind == "own" else 65_536
    return _exact(prior, data, given, size, starts, seed, threads)


def _exact(
    prior: StatePrior, data: Encoded, given: SeriesData, size: int, starts: int, seed: int, threads: int
) -> SeriesMethod:
    batches = num_batches(given.bounds, size)

    def make(number: int) -> StateChain:
        return StateChain(
            prior, data, given.bounds, batch_size=size, num_starts=starts, seed=seed, chain=number, num_threads=threads
        )

    pieces = "" if int(np.diff(given.bounds).max()) <= PIECE else f" in pieces of {PIECE:,}"
    own = " (emissions by Metropolis-Hastings)" if prior.emission.kind == "own" else ""
    some = "all" if batches == 1 else f"1/{batches} of the"
    words = (
        f"{prior.emission.kind} emissions; exact Gibbs sampler: a step draws {some} states{pieces} by forward "
        f"filtering and backward sampling, then all parameters{own}; starts from the best of {starts} short chains"
    )
    return SeriesMethod(batches, words, None, make)


def _on_device(model: HMM, prior: StatePrior, data: Encoded) -> bool:
    """Whether array programs draw the states."""
    from scirocco_latent.hmm.scan import LEAST_ROWS, MOST_STATES

    able = model.sampler == "gibbs" and prior.emission.kind != "own"
    large = data.num_rows >= LEAST_ROWS and prior.num_states <= MOST_STATES
    return device.resolve(model.device, able, 'sampler="gibbs" and built-in emissions', large) != device.HOST


def _scanned(prior: StatePrior, data: Encoded, given: SeriesData, starts: int, seed: int) -> SeriesMethod:
    from scirocco_latent.hmm.scan import DeviceStates

    def make(number: int) -> StateChain:
        return StateChain(
            prior,
            data,
            given.bounds,
            batch_size=data.num_rows,
            num_starts=starts,
            seed=seed,
            chain=number,
            num_threads=1,
            piece=data.num_rows,
            of_states=DeviceStates,
        )

    words = (
        f"{prior.emission.kind} emissions; exact Gibbs sampler on {jax.default_backend()}: a step draws all states by "
        f"associative scans, then all parameters; starts from the best of {starts} short chains"
    )
    return SeriesMethod(1, words, None, make, on_device=True)


def _stochastic(
    model: HMM, prior: StatePrior, data: Encoded, given: SeriesData, size: int | None, threads: int
) -> SeriesMethod:
    from scirocco_latent.hmm import buffered

    settings = buffered.settings(
        model.sampler, prior, data, given.bounds, size, model.step_size, model.buffer, model.num_starts, model.seed
    )

    def make(number: int) -> buffered.BufferedChain:
        return buffered.BufferedChain(prior, data, given.bounds, settings, model.seed, number, threads)

    words = f"{prior.emission.kind} emissions; {settings.words}"
    return SeriesMethod(settings.batches, words, (settings.buffer, settings.error), make)


_MOST_STATES = 127
"""States are stored in bytes."""
_LEAST_EPOCHS, _MOST_EPOCHS, _WORK = 200, 2_000, 10_000_000
"""Default passes: as many as draw this number of states, within limits."""


class HMM(StateResults):
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

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = PRESETS
    ADVICE = (
        "Chains that found different states never mix: raise `num_starts`, use fewer states, or a longer fit "
        "(num_epochs)."
    )
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

    def fit(self, series: SeriesLike, y: object = None, *, by: Any = None, **options: Unpack[FitOptions]) -> HMM:
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
        arrays = {"bounds": given.bounds, "codes": data.codes, "rows": data.rows}
        emission = priors.as_json(prior.emission)
        settings = ("sampler", "concentration", "sticky", "batch_size", "num_starts")
        program = OwnChains(
            chosen.words,
            {
                **{name: getattr(self, name) for name in settings},
                "num_states": prior.num_states,
                "emission": emission,
                "step_size": None if self.step_size is None else repr(self.step_size),
                "buffer": None if chosen.measured is None else chosen.measured[0],
                **({"device": "jax"} if chosen.on_device else {}),
            },
            lambda: fingerprint(arrays),
            data.num_rows,
            _spec(prior, given, ("log_joint", "passes") if self.sampler == "gibbs" else ("passes",)),
            chosen.make,
            {
                "emission": emission,
                "names": None if given.names is None else list(given.names),
                "buffer": None if chosen.measured is None else list(chosen.measured),
            },
            epoch=(chosen.batches, 1),
            default_epochs=min(_MOST_EPOCHS, max(_LEAST_EPOCHS, _WORK // len(data.is_missing))),
        )
        return self._run(program, options)

    # -- what a fitted model is ---------------------------------------------------------------------------------------

    def _results(self, run: Run, told: dict[str, Any], arrays: Mapping[str, Array]) -> dict[str, Array]:
        own = self.emissions if isinstance(self.emissions, Model) else None
        self._emission = priors.from_json(told["emission"], own)
        self._columns = None if told["names"] is None else tuple(told["names"])
        for name in ("buffer_", "buffer_error_"):
            vars(self).pop(name, None)
        if told["buffer"] is not None:
            self.buffer_, self.buffer_error_ = int(told["buffer"][0]), float(told["buffer"][1])
        return in_one_order({name: np.asarray(values) for name, values in run.draws.items()}, self._emission)

    def _watched(self) -> dict[str, Array]:
        named = self._named_parameters() or {name: self.draws_[name] for name in self._emission.shapes(1)}
        joint = (
            {"log joint density": np.asarray(self.run_.stats["log_joint"])} if "log_joint" in self.run_.stats else {}
        )
        return {"transitions": self.draws_["transitions"], **named, **joint}

    def _view(self, run: Run, **options: Any) -> View:
        from scirocco_latent.hmm import view

        return view.view(self, run)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _prior(self, given: SeriesData) -> StatePrior:
        num = _checks.positive_int(self.num_states, "num_states")
        if num > _MOST_STATES:
            raise InvalidValueError(f"`num_states` must be at most {_MOST_STATES}, got {num}.")
        if self.prior is not None and not isinstance(self.prior, Mapping):
            raise InvalidTypeError(f"`prior` must be a dict, got {type(self.prior).__name__}.")
        _checks.positive(self.concentration, "concentration")
        _checks.positive(self.sticky, "sticky", allow_zero=True)
        _check_enough(len(given.values), num)
        emission = priors.resolve(self.emissions, given, num, self.prior, self.categories, self.start)
        return StatePrior(num, float(self.concentration), float(self.sticky), emission)


def _spec(prior: StatePrior, given: SeriesData, stats: tuple[str, ...]) -> Spec:
    """Arrays of one draw; in double precision, because dwell times are differences from 1."""
    num = prior.num_states
    shapes = {"initial": (num,), "transitions": (num, num), **prior.emission.shapes(num)}
    draws = {name: jax.ShapeDtypeStruct(shape, np.float64) for name, shape in shapes.items()}
    if given.num_series == 1:
        draws["last"] = jax.ShapeDtypeStruct((), np.int64)
    return Spec(draws, {name: jax.ShapeDtypeStruct((), np.float64) for name in stats})


def _check_enough(observations: int, num: int) -> None:
    if observations < num:
        raise InvalidValueError(
            f"{num} states need at least as many observations, got {observations}. Use fewer states."
        )
