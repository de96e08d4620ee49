"""Which chains a hidden Markov model uses: exact ones on the CPU or an accelerator, or stochastic gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from scirocco import _checks
from scirocco.diffusions.host._threads import available_cores
from scirocco.errors import InvalidValueError
from scirocco.models._core import device
from scirocco.samplers import schedules
from scirocco_latent.hmm.emissions import Encoded
from scirocco_latent.hmm.gibbs import PIECE, StateChain, StatePrior, num_batches
from scirocco_latent.hmm.series import SeriesData

if TYPE_CHECKING:
    from scirocco_latent.hmm.estimator import HMM

SAMPLERS = ("gibbs", "scir", "scir_cv", "sgrld")
_MOST_STARTS = 1_000
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
    for name in ("step_size", "buffer"):
        if getattr(model, name) is not None:
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
            prior,
            data,
            given.bounds,
            batch_size=size,
            num_starts=starts,
            seed=seed,
            chain=number,
            num_threads=threads,
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
        model.sampler,
        prior,
        data,
        given.bounds,
        size,
        model.step_size,
        model.buffer,
        model.num_starts,
        model.seed,
    )

    def make(number: int) -> buffered.BufferedChain:
        return buffered.BufferedChain(prior, data, given.bounds, settings, model.seed, number, threads)

    words = f"{prior.emission.kind} emissions; {settings.words}"
    return SeriesMethod(settings.batches, words, (settings.buffer, settings.error), make)
