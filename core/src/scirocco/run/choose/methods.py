"""From a choice to a method: sampler, estimator and batch size, lengths of the run."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from scirocco import _tree
from scirocco.data import ArraySource, Devices, FolderSource, as_source
from scirocco.data.arrays import RowSource
from scirocco.estimators import ControlVariates, Estimator, Full, Minibatch, Taylor
from scirocco.run.choose import limits
from scirocco.run.choose.measure import dimension_of, drive_of
from scirocco.samplers import BAOAB, NUTS, SGHMC, Preconditioned, Sampler, Scales
from scirocco.samplers.scales import MOST_FORGETS
from scirocco.simplex import SCIR
from scirocco.types import Params


def default_lengths(
    model: Any, sampler: Sampler | None, num_samples: Any, num_chains: Any, params: Params
) -> tuple[Any, Any]:
    """Draws per chain and chains, where the user gives none; fewer draws of very many parameters, for their memory."""
    thinned = drive_of(model) == "gradient" and (sampler is None or sampler.known.is_exact)
    draws, chains = (limits.LIMITS.num_samples, limits.LIMITS.num_chains) if thinned else (limits.LIMITS.num_steps, 1)
    chains = chains if num_chains is None else num_chains
    if num_samples is not None or not thinned:
        return draws if num_samples is None else num_samples, chains
    size = dimension_of(params)
    room = limits.LIMITS.kept_numbers // max(1, size * chains) if isinstance(chains, int) and chains > 0 else draws
    return max(limits.LIMITS.least_samples, min(draws, room)), chains


def default_burnin(sampler: Sampler, forgets: int | None) -> int:
    """Steps before the first draw of a default or exact sampler; `forgets`: its thinning, if it is known."""
    if sampler.known.is_exact:
        return limits.LIMITS.burnin_of_trajectories
    if sampler.needs.drive != "gradient":
        return 0
    return (
        limits.LIMITS.burnin
        if forgets is None
        else max(limits.LIMITS.burnin // 4, limits.LIMITS.burnin_of_thin * forgets)
    )


def default_thin(sampler: Sampler, forgets: int | None) -> int:
    """Steps for each draw of a sampler that was left out; `forgets`: its thinning, if it is known."""
    if forgets is not None:
        return forgets
    return limits.LIMITS.thin if sampler.needs.drive == "gradient" and not sampler.needs.trajectory else 1


def read_if_few(source: RowSource) -> RowSource:
    """A folder with few numbers as arrays in memory, so that the rules for arrays apply; others as they are."""
    if (
        not isinstance(source, FolderSource)
        or source.num_rows * _tree.size(source.row_spec) > limits.LIMITS.few_numbers
    ):
        return source
    return as_source(source.read(0, source.num_rows))


def sampler_for(method: str, params: Params) -> Sampler:
    """The sampler of a method that was decided."""
    if method == "scaled":
        return Preconditioned(
            BAOAB(), metric="laplace" if dimension_of(params) <= limits.LIMITS.dense_parameters else "low_rank"
        )
    return {"counts": SCIR, "trajectories": NUTS, "networks": SGHMC}[method]()


def method_for(
    method: str, model: Any, source: RowSource, params: Params, devices: Devices | None
) -> tuple[Sampler, Estimator]:
    """Sampler and estimator of a method that was decided, where neither was named."""
    sampler = sampler_for(method, params)
    if method != "networks" or not model.facts.has_rows:
        return sampler, default_estimator(model, source, sampler, devices, exact_if_few=True)
    few = dimension_of(params) <= limits.LIMITS.many_parameters
    return sampler, Minibatch(min(source.num_rows, limits.LIMITS.batch if few else limits.LIMITS.batch // 4))


def default_estimator(
    model: Any, source: Any, sampler: Sampler, devices: Devices | None = None, exact_if_few: bool = False
) -> Estimator:
    """What `sc.sample` uses when none is given; `exact_if_few`: all rows, where that costs no more."""
    if sampler.needs.trajectory:
        return Full()
    if sampler.needs.expansion:
        return Taylor()
    if drive_of(model) == "gradient" and not model.facts.has_rows:
        return Full()
    drawn = drive_of(model) != "gradient" or model.facts.takes_key  # a sum that is drawn has no fixed reference
    few = (
        4 * limits.LIMITS.batch
        if drawn or model.facts.row_cost(source.row_spec) == 1
        else 2 * limits.LIMITS.least_costly_batch
    )
    if exact_if_few and not drawn and isinstance(source, ArraySource) and source.num_rows <= few:
        return Full()  # control variates look at each row of a batch twice
    places = 1 if devices is None else devices.num_row_places
    chosen = exact_if_few and not drawn and places == 1
    # a smaller one is chosen in the set-up, from the noise of this one, which must not contain all rows
    largest = min(limits.LIMITS.largest_batch, source.num_rows // 2) if chosen else limits.LIMITS.batch
    size = max(places, min(largest, source.num_rows) // places * places)
    sampling = "without_replacement" if sampler.needs.independent_batches else "auto"
    return Minibatch(size, sampling=sampling) if drawn else ControlVariates(size, sampling=sampling)


def with_best_batch(
    sampler: Sampler,
    estimator: Estimator,
    scales: Scales,
    num_rows: int,
    params: Params,
    in_epochs: bool = True,
    in_memory: bool = True,
    row_cost: float = 1.0,
) -> tuple[Estimator, Scales]:
    """The batch size with the least work for an effective draw, and the scales with its noise.

    `in_epochs`: no row is used twice in an epoch; otherwise batches are independent. `in_memory`: all rows may be used
    at every step, if that is less work: their noise is 0, and each is used once. `row_cost`: see `Posterior`.

    The work of a step is that of its rows, each used twice, and of what a step costs anyway: about as much as
    4000/d + d/2 rows of d numbers (k/2 where L has kd numbers). They are fixed: the same data give the same draws.
    """
    dimension = dimension_of(params)
    anyway = (limits.LIMITS.step_overhead + np.size(scales.factor) / 2) / dimension / row_cost
    measured = estimator.batching(num_rows)

    def scales_for(size: int) -> Scales:
        batching = dataclasses.replace(estimator, batch_size=size).batching(num_rows)  # type: ignore[type-var]
        factor = measured.size / size * batching.correction / max(measured.correction, 1e-12)
        epoch = batching.epoch if in_epochs else 1
        return scales._replace(noise=_tree.scale(factor, scales.noise), epoch=epoch)

    def work(size: int) -> float:
        setting = sampler.known.foreseen(scales_for(size))
        if setting is not None and setting.forgets >= MOST_FORGETS:  # too slow for a prediction
            return math.inf
        return (2 * size + anyway) * (1.0 if setting is None else setting.time)

    least = 0 if row_cost == 1 else limits.LIMITS.least_costly_batch
    costs = {size: work(size) for size in (*limits.LIMITS.batch_sizes, measured.size) if least <= size <= measured.size}
    exact = scales._replace(noise=_tree.scale(0.0, scales.noise), epoch=1)
    setting = sampler.known.foreseen(exact)
    if in_memory and setting is not None and (num_rows + anyway) * setting.time <= min(costs.values()):
        return Full(), exact
    best = max(size for size, cost in costs.items() if cost <= limits.LIMITS.as_good * min(costs.values()))
    return dataclasses.replace(estimator, batch_size=best), scales_for(best)  # type: ignore[type-var]
