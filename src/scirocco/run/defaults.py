"""What `sc.sample` chooses when it is not told: sampler, estimator, batch size, thinning; and the line that says so."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from collections.abc import Set
from typing import Any

import jax
import numpy as np

from scirocco import _checks, _tree
from scirocco.data import ArraySource, Devices, FolderSource, as_source
from scirocco.data.arrays import RowSource
from scirocco.estimators import ControlVariates, Estimator, Full, Minibatch, Taylor
from scirocco.model import Posterior
from scirocco.run.metric import DENSE_LIMIT
from scirocco.samplers import BAOAB, NUTS, SGHMC, Preconditioned, Sampler, Scales
from scirocco.samplers.linear import MOST_FORGETS
from scirocco.samplers.preconditioned import core_of
from scirocco.simplex import SCIR
from scirocco.types import Params

NUM_SAMPLES, NUM_CHAINS = 1_000, 4
"""For a sampler that was left out: draws are then nearly independent. With a sampler of the user's own: as below."""
_KEPT_NUMBERS, _LEAST_SAMPLES = 2 * 10**8, 50
"""Numbers in all draws above which fewer of them are made, and the fewest of a chain."""
_NUM_STEPS = 10_000
BURNIN, _THIN = 1_000, 10
_BURNIN_OF_TRAJECTORIES = 100
"""After an adaptation of some 400 steps."""
_FEW_NUMBERS, _MANY_NUMBERS = 200_000, 5_000_000
"""Numbers in the data up to which trajectories over all rows are used: always, and for posteriors far from Gaussian.
Folders with up to the first number are read whole."""
_TRAJECTORY_PARAMETERS = 1_000
"""Maximum number of parameters for that: the products with L at each point of a trajectory grow with its square."""
FAR_FROM_GAUSSIAN, HAS_NO_SHAPE = 0.3, 1.0
"""`scores.roundness` above which a posterior counts as that: skewness of about 0.8; above which the shape at the mode
says nothing about it."""
_COARSE = 0.5
"""Rounding error of the log density above which trajectories are not used: they accept by changes of about 1."""
_MANY_PARAMETERS = 50_000
_BATCH, _LARGEST_BATCH = 500, 4_000
_SIZES = (32, 48, 64, 100, 150, 200, 300, 400, 500, 700, 1_000, 1_500, 2_000, 3_000)
"""Batch sizes to choose from, in addition to the one that the data were arranged for."""
_LEAST_OF_COSTLY = 100
"""The smallest batch of rows that cost as much as many: the fixed cost of a step, which argues for larger batches than
a Gaussian needs, is small compared with theirs, but posteriors of few groups are skewed."""
_NUMBERS = 8
"""Numbers in a plain row, by which the cost of others is measured."""
_AS_GOOD = 1.15
"""The largest batch is chosen whose work is at most this many times the least."""


def drive_of(model: Any) -> str:
    """What drives a sampler of this model; "" for what is no model."""
    return model.facts.drive if isinstance(model, Posterior) else ""


def default_lengths(
    model: Any, sampler: Sampler | None, num_samples: Any, num_chains: Any, params: Params
) -> tuple[Any, Any]:
    """Draws per chain and chains, where the user gives none; fewer draws of very many parameters, for their memory."""
    thinned = drive_of(model) == "gradient" and (sampler is None or sampler.known.is_exact)
    draws, chains = (NUM_SAMPLES, NUM_CHAINS) if thinned else (_NUM_STEPS, 1)
    chains = chains if num_chains is None else num_chains
    if num_samples is not None or not thinned:
        return draws if num_samples is None else num_samples, chains
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(params))
    room = _KEPT_NUMBERS // max(1, size * chains) if isinstance(chains, int) and chains > 0 else draws
    return max(_LEAST_SAMPLES, min(draws, room)), chains


def default_burnin(sampler: Sampler, forgets: int | None) -> int:
    """Steps before the first draw of a default or exact sampler; `forgets`: its thinning, if it is known."""
    if sampler.known.is_exact:
        return _BURNIN_OF_TRAJECTORIES
    if sampler.needs.drive != "gradient":
        return 0
    return BURNIN if forgets is None else max(BURNIN // 4, 25 * forgets)


def default_thin(sampler: Sampler, forgets: int | None) -> int:
    """Steps for each draw of a sampler that was left out; `forgets`: its thinning, if it is known."""
    if forgets is not None:
        return forgets
    return _THIN if sampler.needs.drive == "gradient" and not sampler.needs.trajectory else 1


def is_large(params: Params) -> bool:
    """Whether there are too many parameters for trajectories."""
    return sum(np.size(leaf) for leaf in jax.tree.leaves(params)) > _TRAJECTORY_PARAMETERS


def method_for_many(num_rows: int, params: Params) -> tuple[Sampler, Estimator]:
    """For many parameters and a posterior far from Gaussian (networks): no mode stands for all of it."""
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(params))
    return SGHMC(), Minibatch(min(num_rows, _BATCH if size <= _MANY_PARAMETERS else _BATCH // 4))


def read_if_few(source: RowSource) -> RowSource:
    """A folder with few numbers as arrays in memory, so that the rules for arrays apply; others as they are."""
    if not isinstance(source, FolderSource) or source.num_rows * _tree.size(source.row_spec) > _FEW_NUMBERS:
        return source
    return as_source(source.read(0, source.num_rows))


def default_sampler(model: Any, source: Any, params: Params, devices: Devices | None) -> Sampler:
    """What `sc.sample` uses when none is given."""
    if drive_of(model) == "counts":
        return SCIR()
    if affords_trajectories(model, source, params, devices, _FEW_NUMBERS):
        return NUTS()
    return scaled_sampler(params)


def scaled_sampler(params: Params) -> Sampler:
    """What `sc.sample` uses where trajectories over all rows cost too much, or are not accurate enough."""
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(params))
    return Preconditioned(BAOAB(), metric="laplace" if size <= DENSE_LIMIT else "low_rank")


def is_coarse(report: dict[str, Any], position: Params) -> bool:
    """Whether the log density at the mode is so large that its changes over the posterior are lost in rounding."""
    eps = max(float(np.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves(position))
    return bool(abs(report.get("log_density", 0.0)) * eps > _COARSE)


def warn_of_coarse(report: dict[str, Any]) -> None:
    """Say that a sampler which compares log densities cannot be exact."""
    _checks.warn(
        f"the log posterior is about {report['log_density']:.2g} at its mode, and 32-bit numbers of this size are "
        "further apart than the changes of the log posterior that this sampler must tell apart: it is slow and not "
        "exact. Check the scale of the errors (a model whose errors are far smaller than those of the data has such a "
        "log likelihood), leave `sampler` out, or use 64-bit numbers (JAX_ENABLE_X64=1)."
    )


def affords_trajectories(
    model: Any, source: Any, params: Params, devices: Devices | None, numbers: int = _MANY_NUMBERS
) -> bool:
    """Whether `sc.NUTS` can be used, on data with at most so many numbers."""
    return (
        drive_of(model) == "gradient"
        and not model.facts.takes_key
        and devices is None
        and isinstance(source, ArraySource)
        and _numbers(model, source) <= numbers
        and sum(np.size(leaf) for leaf in jax.tree.leaves(params)) <= _TRAJECTORY_PARAMETERS
        and importlib.util.find_spec("blackjax") is not None
    )


def _numbers(model: Any, source: ArraySource) -> float:
    """Numbers in the data, or as many as cost the same."""
    cost, numbers = (
        model.facts.row_cost(source.row_spec),
        sum(leaf.size for leaf in jax.tree.leaves(source.arrays)),
    )
    return numbers if cost == 1 else max(numbers, _NUMBERS * source.num_rows * cost)


def default_estimator(
    model: Any, source: Any, sampler: Sampler, devices: Devices | None = None, exact_if_few: bool = False
) -> Estimator:
    """What `sc.sample` uses when none is given; `exact_if_few`: all rows, where that costs no more."""
    if sampler.needs.trajectory:
        return Full()
    if sampler.needs.expansion:
        return Taylor()
    drawn = (
        drive_of(model) != "gradient" or model.facts.takes_key
    )  # a sum that is drawn has no fixed reference
    few = 4 * _BATCH if drawn or model.facts.row_cost(source.row_spec) == 1 else 2 * _LEAST_OF_COSTLY
    if exact_if_few and not drawn and isinstance(source, ArraySource) and source.num_rows <= few:
        return Full()  # control variates look at each row of a batch twice
    places = 1 if devices is None else devices.num_row_places
    chosen = exact_if_few and not drawn and places == 1
    # a smaller one is chosen in the set-up, from the noise of this one, which must not contain all rows
    largest = min(_LARGEST_BATCH, source.num_rows // 2) if chosen else _BATCH
    size = max(places, min(largest, source.num_rows) // places * places)
    sampling = "without_replacement" if sampler.needs.independent_batches else "auto"
    return Minibatch(size, sampling=sampling) if drawn else ControlVariates(size)


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
    at every step, if that is less work: their noise is 0, and each is used once. `row_cost`: see `model.Facts`.

    The work of a step is that of its rows, each used twice, and of what a step costs anyway: about as much as
    4000/d + d/2 rows of d numbers (k/2 where L has kd numbers). They are fixed: the same data give the same draws.
    """
    dimension = _tree.size(params)
    anyway = (4_000 + np.size(scales.factor) / 2) / dimension / row_cost
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

    least = 0 if row_cost == 1 else _LEAST_OF_COSTLY
    costs = {size: work(size) for size in (*_SIZES, measured.size) if least <= size <= measured.size}
    exact = scales._replace(noise=_tree.scale(0.0, scales.noise), epoch=1)
    setting = sampler.known.foreseen(exact)
    if in_memory and setting is not None and (num_rows + anyway) * setting.time <= min(costs.values()):
        return Full(), exact
    best = max(size for size, cost in costs.items() if cost <= _AS_GOOD * min(costs.values()))
    return dataclasses.replace(estimator, batch_size=best), scales_for(best)  # type: ignore[type-var]


def in_words(
    sampler: Sampler,
    estimator: Estimator,
    num_burnin: int,
    thin: int,
    num_rows: int,
    left_out: Set[str],
    on_mesh: bool = False,
    num_samples: int = NUM_SAMPLES,
    unit: str = "rows",
) -> str:
    """What was chosen for the user, in one line; empty when nothing was."""
    said = []
    if "sampler" in left_out:
        each = {"diagonal": " one by one", "low_rank": " one by one and along correlated directions"}
        how = each.get(sampler.needs.metric, "")
        where = f" in coordinates scaled{how} at the mode" if sampler.needs.metric != "none" else ""
        if not where and default_thin(sampler, None) > 1:
            where = (
                " (the posterior is far from Gaussian: predictions can be averaged, single parameters cannot)"
            )
        said.append(f"{type(core_of(sampler)).__name__}{where}")
    if "estimator" in left_out:
        size = estimator.batching(num_rows).size
        every = "the only row" if (size, unit) == (1, "rows") else f"all {size:,} {unit}"
        which = f" ({every} at every step)" if estimator.traits.is_exact else f" of {size:,} {unit}"
        fixed = (
            " (not chosen: the batch size on a mesh is fixed)"
            if on_mesh and not estimator.traits.is_exact
            else ""
        )
        said.append(f"{type(estimator).__name__}{which}{fixed}")
    if said and "num_burnin" in left_out:
        said.append(f"{num_burnin:,} burn-in steps")
    if said and "thin" in left_out and thin > 1:
        said.append(f"one draw every {thin} steps")
    if {"sampler", "num_samples"} <= left_out and num_samples < NUM_SAMPLES:
        said.append(f"only {num_samples} draws per chain, to save memory")
    return ", ".join(said)
