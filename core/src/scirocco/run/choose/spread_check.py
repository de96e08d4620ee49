"""The check at the end of a run whose sampler was given: whether its draws spread too widely for the posterior.

A step that is too large, for the curvature or for the noise of the batches, gives draws that look healthy but spread
too widely. For draws x of the posterior with score g, Stein's identity says E[-(x_j - m_j) g_j] = 1 for every parameter
(on the real line); draws of standard deviation r times too large have about r². Scores are differences to that at the
mean of the draws over a few rows, others for each draw: the noise of the rows nearly cancels, and what is left of it is
part of the standard error, so that rare rows raise no false alarm.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco._programs import setup_program
from scirocco._random import Purpose, SeedPurpose, key_for
from scirocco.data import Resident, Table
from scirocco.diagnostics.columns import label
from scirocco.errors import SciroccoError
from scirocco.estimators import approach_mode
from scirocco.estimators.base import around
from scirocco.model import Model
from scirocco.run.choose import limits, pilot
from scirocco.run.loop import Parts
from scirocco.run.result import Run
from scirocco.samplers import Sampler, schedules
from scirocco.samplers.preconditioned import core_of
from scirocco.samplers.scales import Excess, largest
from scirocco.types import Array, Key, Params, PyTree, Rows

_GROUPS = 16
"""Groups of draws, from whose means the standard error of a spread is estimated."""
_STIFF = {2: 1.0, 1: 2.0}
"""ε λ (ε² λ with a momentum) above which the step is at fault: formulas of the excess hold for smaller ones."""
_AT_ONCE = 64
"""Draws whose scores are computed together, whatever their number is: one program."""


class TooWide(NamedTuple):
    """The parameter, or array of parameters, whose draws spread most."""

    ratio: float
    """Standard deviation over that of the posterior, about."""
    sure: float
    """The same, less the Monte Carlo error."""
    name: str
    chain: int
    leaf: int
    moving: bool
    """Whether the chains are still on their way: half of the way is most of the spread."""


def applies(model: Any, sampler: Sampler) -> bool:
    """Whether Stein's identity can be used: there are scores, and a distribution to sample."""
    return bool(
        model.facts.has_density
        and not model.facts.takes_key
        and sampler.needs.drive == "gradient"
        and not sampler.needs.trajectory  # exact, and adapted
        and not sampler.needs.expansion
        and float(sampler.temperature) > 0.0
    )


def too_wide(run: Run, model: Model, table: Table, temperature: float, seed: int) -> TooWide | None:
    """The worst parameter, if its draws spread too widely; None also if there are too few draws to tell."""
    some = _second_half(run)
    if some is None:
        return None
    per_chain = jax.tree.leaves(some)[0].shape[1]
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), some)
    positions = jax.tree.map(np.asarray, jax.vmap(model.unconstrain)(flat))
    centre = jax.tree.map(_mean, positions)
    changes = _changes_at(model, table, positions, centre, seed)
    x, middle = _matrix(positions), _matrix(centre)
    with np.errstate(over="ignore", invalid="ignore"):
        products = (middle - x) * changes / temperature
    good = np.isfinite(products).all(axis=1)
    if good.sum() < max(limits.LIMITS.spread_fewest, len(x) // 2):
        return None
    return _worst(some, x[good], products[good], np.flatnonzero(good) // per_chain)


def _mean(leaf: np.ndarray) -> np.ndarray:
    return leaf.astype(np.float64).mean(axis=0, keepdims=True).astype(leaf.dtype)


def _changes_at(model: Model, table: Table, positions: Params, centre: Params, seed: int) -> np.ndarray:
    """∇ log posterior at each position less that at the centre, from a few random rows, others for each position."""
    count = jax.tree.leaves(positions)[0].shape[0]
    size = _tree.size(centre)
    per_draw = min(table.num_rows, int(np.clip(size, limits.LIMITS.spread_rows, limits.LIMITS.spread_most_rows)))
    rng = np.random.default_rng([seed, SeedPurpose.ALARM])
    if isinstance(table, Resident):
        rows, available = table.data, table.num_rows
    else:
        available = min(table.num_rows, count * per_draw)
        rows = table.random_rows(available, key_for(jax.random.key(seed), Purpose.ALARM), False)
    index = rng.integers(0, available, (count, per_draw), np.int32)
    if per_draw == table.num_rows:
        index[:] = np.arange(per_draw)
    width = max(size, _tree.size(table.row_spec))
    at_once = min(_AT_ONCE, max(1, limits.LIMITS.spread_numbers // 4 // (per_draw * width)))
    parts = [
        _changes(model, table.num_rows, _cut(positions, begin, at_once), centre, rows, _cut(index, begin, at_once))
        for begin in range(0, count, at_once)
    ]
    return np.concatenate([_matrix(part) for part in parts])[:count]


def _cut(tree: PyTree, begin: int, length: int) -> PyTree:
    """Some of the first axis, repeated at the end if there are fewer."""
    return jax.tree.map(lambda leaf: leaf[np.minimum(np.arange(begin, begin + length), len(leaf) - 1)], tree)


def _matrix(tree: PyTree) -> np.ndarray:
    """Leaves (draw, ...) as numbers (draw, d)."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


@setup_program(2)
def _changes(model: Model, num_rows: int, positions: Params, centre: Params, rows: Rows, index: Array) -> Params:
    middle = jax.tree.map(lambda leaf: leaf[0], centre)

    def score(position: Params, own: Rows) -> Params:
        likelihood = _tree.scale(num_rows / index.shape[1], model.summand.total(position, own))
        return _tree.add(likelihood, jax.grad(model.log_prior_density)(position))

    def one(position: Params, places: Array) -> Params:
        own = jax.tree.map(lambda leaf: leaf[places], rows)
        return jax.tree.map(jnp.subtract, score(position, own), score(middle, own))

    return jax.vmap(one)(positions, index)


def _second_half(run: Run) -> PyTree | None:
    """Draws of the second half of each chain, leaves (chain, draw, ...)."""
    chains, draws = run.num_chains, run.num_draws
    half = draws // 2
    size = sum(math.prod(leaf.shape[2:]) for leaf in jax.tree.leaves(run.draws))
    wanted = min(limits.LIMITS.spread_draws, limits.LIMITS.spread_numbers // max(1, size))
    if wanted < limits.LIMITS.spread_fewest or (draws - half) * chains < limits.LIMITS.spread_fewest:
        return None
    between = max(1, chains // wanted)
    used = len(range(0, chains, between))
    stride = max(1, (draws - half) * used // wanted)
    each = slice(half, half + stride * max(1, wanted // used), stride)
    return jax.tree.map(lambda leaf: np.asarray(leaf[::between, each]), run.draws)


def _worst(some: PyTree, x: np.ndarray, products: np.ndarray, chain: np.ndarray) -> TooWide | None:
    leaves, names = jax.tree.leaves(some), _tree.leaf_names(some)
    sizes = [leaf[0, 0].size for leaf in leaves]
    if sum(sizes) != products.shape[1]:  # a constrained parameter may have more numbers than it has on the real line
        leaves, names, sizes = [], ["the parameters"], [products.shape[1]]
    owner = np.repeat(np.arange(len(sizes)), sizes)
    columns = np.stack([products[:, owner == leaf].mean(axis=1) for leaf in range(len(sizes))], axis=1)
    owners, labels = np.arange(len(sizes)), list(names)
    if products.shape[1] <= limits.LIMITS.spread_each and leaves:
        columns, owners = np.hstack([products, columns]), np.concatenate([owner, owners])
        each = zip(names, leaves, strict=True)
        labels = [label(name, leaf.shape[2:], k) for name, leaf in each for k in range(leaf[0, 0].size)] + labels
    groups = np.sort([group.mean(axis=0) for group in np.array_split(columns, _GROUPS)], axis=0)
    error, mean = groups.std(axis=0, ddof=1) / math.sqrt(_GROUPS), columns.mean(axis=0)
    sure = np.maximum(
        mean - limits.LIMITS.spread_errors * error, groups[1]
    )  # the latter for a spread that grows all the time
    worst = int(np.argmax(sure))
    if not sure[worst] > limits.LIMITS.too_wide**2:
        return None
    by_chain = [columns[chain == number, worst].mean() for number in range(chain.max() + 1)]
    own = x[:, owner == owners[worst]] if labels[worst] in names else x[:, [worst]]
    return TooWide(
        math.sqrt(mean[worst]),
        math.sqrt(sure[worst]),
        labels[worst],
        int(np.argmax(by_chain)),
        int(owners[worst]),
        _is_moving(own, chain),
    )


def _is_moving(x: np.ndarray, chain: np.ndarray) -> bool:
    own = (x[chain == number] for number in np.unique(chain))
    halves = [np.array_split(draws, 2) for draws in own if len(draws) > 1]
    if not halves:
        return False
    moved = np.mean([after.mean(axis=0) - before.mean(axis=0) for before, after in halves], axis=0)
    inside = np.mean([after.var(axis=0) for _, after in halves], axis=0)
    return bool(np.median(np.abs(moved) - 2.0 * np.sqrt(inside)) > 0)


def in_words(found: TooWide, model: Model, parts: Parts, table: Table, start: Params, num_steps: int, key: Key) -> str:
    """What is wrong, and the step size to try. Looks for the mode first: elsewhere the curvature may be another."""
    ratio = f"{found.ratio:.1f}" if found.ratio < 10 else f"{found.ratio:,.0f}"
    said = f"the draws of `{found.name}` spread about {ratio} times too widely for the gradients at them"
    core = core_of(parts.sampler)
    omitted = ", or omit it" if core.known.noise_ratio is not None else ""
    within = " inside sc.Preconditioned(...)" if parts.sampler.known.factor is not None else ""
    try:
        eps, product, excess = _excess(model, parts, table, start, num_steps, key)
    except SciroccoError:
        eps, product, excess = math.nan, 0.0, None
    if excess is None and not found.moving:
        return f"{said}: the step size{within} is probably too large. Try a tenth of it{omitted}."
    noise = 0.0 if excess is None else largest(excess.noise)
    step = 0.0 if excess is None else math.inf if product > _STIFF[core.known.step_order] else excess.step
    if excess is None or max(step, noise) < limits.LIMITS.excess:
        reason = "have not converged" if found.moving else "may not have converged"
        return (
            f"{said}, which the step size does not explain: the chains {reason}; "
            "print(sc.analysis.diagnose(run)) says more."
        )
    why = "" if step >= noise else " for the noise of the batches"
    if excess.friction is not None and noise > step:
        omitted = " without `friction`, or omit both"
    return (
        f"{said}: the step size ({eps:.3g}) is too large{why}. Try step_size={min(excess.suggested, eps / 2):.2g}"
        f"{within}{omitted}."
    )


def _excess(
    model: Model, parts: Parts, table: Table, start: Params, num_steps: int, key: Key
) -> tuple[float, float, Excess | None]:
    """ε, ε λ (ε² λ with a momentum), and by how much step and noise inflate variances near the mode."""
    position, sampler = approach_mode(model, table, start, key)[0], parts.sampler
    memory = around(parts.estimator.core, model.constrain(position)).prepare(model, table, position, key).memory
    scales = pilot.scales_at(model, parts, table, memory, position, sampler.known.factor, key)
    if parts.estimator.traits.is_exact:
        scales = scales._replace(noise=_tree.zeros_like(position))
    eps = schedules.step_sizes(sampler.step_size, position, num_steps // 2)
    product = pilot.stiffness(model, table, position, sampler, eps, key)
    return largest(eps), product, core_of(sampler).known.excess(scales, product, eps, position)
