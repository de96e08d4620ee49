"""Mixed models with several large factors: chains of a blocked Gibbs sampler under the session of all fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.models._core.chain import Chain, Spec
from scirocco.models.glmm import blocks, moves
from scirocco.models.glmm.blocks import SweepState
from scirocco.models.glmm.density import Columns, Factor, SweepLayout
from scirocco.types import Params

METHOD = "blocked Gibbs sampler"
DEFAULTS: dict[str, Any] = {"num_samples": 250, "thin": 4, "num_burnin": 75, "share": 0.3, "num_chains": 4}
"""Lengths where none is given, the burn-in in units of `thin` sweeps; `share`: its part of a run with a length."""
_SAME = 1e-5  # relative difference of columns that are the same
_MOST_TOGETHER, _LARGEST_TABLE = 300, 10_000_000
"""Coefficients and effects that are drawn together at most; numbers in the table of those × levels of the largest."""
_SPREAD = 0.2
"""Deviation of the starting points of chains, on the real line."""

_sweeps = jax.jit(blocks.sweeps, static_argnums=0)
_renewed = jax.jit(blocks.renewed, static_argnums=0)


def arranged(
    layout_of: tuple[str, Any, tuple[Factor, ...]],
    arrays: Mapping[str, np.ndarray],
    num_levels: Sequence[int],
    intercepts: Sequence[int | None],
) -> tuple[SweepLayout, dict[str, Any]]:
    """The layout of the programs, and their data.

    `layout_of` are family, model of global parameters and factors; `arrays` have `x`, `y`, `z_k`, `level_k` and what
    else rows have, in internal units; `intercepts` are the places of intercepts among the effects of each factor.
    """
    family, model, factors = layout_of
    data: Columns = {**arrays, "x": np.ascontiguousarray(arrays["x"].T)}
    levels = [arrays[f"level_{factor.number}"] for factor in factors]
    weight = arrays.get("weight", np.ones(len(arrays["y"])))
    shifted = list[tuple[int, ...]]()
    for factor, level, count, place in zip(factors, levels, num_levels, intercepts, strict=True):
        z = arrays[f"z_{factor.number}"]
        found = replaced(arrays["x"], z, level, count, place)
        shifted.append(tuple(found))
        if found:
            data[f"shift_{factor.number}"] = np.stack(list(found.values())).astype(z.dtype)
        pairs = [(j, k) for j in range(factor.size) for k in range(j + 1)]
        gram = [np.bincount(level, weight * z[:, j] * z[:, k], count) for j, k in pairs]
        data[f"gram_{factor.number}"] = np.stack(gram).astype(z.dtype)
        data[f"z_{factor.number}"] = np.ascontiguousarray(z.T)
    nested = list[tuple[int, int, int, int]]()
    for outer in factors:
        for inner in factors:
            above, below = intercepts[outer.number], intercepts[inner.number]
            if above is None or below is None or num_levels[outer.number] >= num_levels[inner.number]:
                continue
            parent = np.zeros(num_levels[inner.number], np.int32)
            parent[levels[inner.number]] = levels[outer.number]
            if np.array_equal(parent[levels[inner.number]], levels[outer.number]):
                nested.append((outer.number, inner.number, above, below))
                data[f"parent_{outer.number}_{inner.number}"] = parent
    sizes = [factor.size * count for factor, count in zip(factors, num_levels, strict=True)]
    together, small = arrays["x"].shape[1], list[int]()
    for number in np.argsort(sizes, kind="stable")[:-1]:  # the smallest factors, never the largest
        together += sizes[number]
        if together > _MOST_TOGETHER or together * max(sizes) > _LARGEST_TABLE:
            break
        small.append(int(number))
    layout = SweepLayout(family, model, factors, tuple(shifted), tuple(nested), tuple(sorted(small)))
    return layout, jax.tree.map(jnp.asarray, data)


def replaced(
    x: np.ndarray, z: np.ndarray, level: np.ndarray, count: int, intercept: int | None
) -> dict[int, np.ndarray]:
    """For columns of x that a factor's effects can replace: the effects (q, levels) that equal the column."""
    found = dict[int, np.ndarray]()
    sizes = np.maximum(np.bincount(level, minlength=count), 1)
    mean = z.mean(axis=0)
    sample = np.linspace(0, len(x) - 1, min(len(x), 1_000)).astype(int)
    for place, column in enumerate(x.T.astype(np.float64)):
        tight = _SAME * (1.0 + np.abs(column).max())
        if intercept is not None:
            means = np.bincount(level, column, count) / sizes
            if np.abs(column - means[level]).max() < tight:
                effects = np.zeros((z.shape[1], count))
                effects[intercept] = means / mean[intercept]
                found[place] = effects
                continue
        solution = np.linalg.lstsq(z[sample].astype(np.float64), column[sample], rcond=None)[0]
        if np.abs(z @ solution - column).max() < tight:
            found[place] = np.repeat(solution[:, None], count, axis=1)
    return found


class SweepChain(Chain):
    """One chain: a step is a sweep."""

    def __init__(self, layout: SweepLayout, data: Columns, start: Params, seed: int, number: int):
        super().__init__(seed, number)
        self.layout, self.data = layout, data
        self.key = jax.random.fold_in(jax.random.key(seed), number)
        theta = {name: jnp.asarray(leaf) for name, leaf in start.items() if not name.startswith("effects_")}
        effects = [jnp.asarray(start[f"effects_{factor.number}"]).T for factor in layout.factors]
        rng = np.random.default_rng([seed, number])
        position = layout.model.unconstrain(theta)
        position = jax.tree.map(
            lambda leaf: leaf + jnp.asarray(_SPREAD * rng.normal(size=leaf.shape), leaf.dtype), position
        )
        size = sum(leaf.size for leaf in jax.tree.leaves(position))
        dtype = effects[0].dtype
        self.now = SweepState(
            position,
            tuple(effects),
            jnp.eye(size, dtype=dtype),
            jnp.asarray(-0.5, dtype),
            moves.blank(layout, data, tuple(effects)),
            tuple(effects),
            jnp.ones(len(effects), dtype),
            jnp.zeros(len(blocks.rates(layout)), dtype),
        )

    def move(self) -> None:
        """One sweep."""
        self._sweep(1)

    def advance(self, num_steps: int) -> None:
        """Make sweeps, all up to the next renewal of the metric in one program."""
        end = self.step + num_steps
        while self.step < end:
            stop = min([end, *(number for number in blocks.RENEWED if number > self.step)])
            self._sweep(stop - self.step)
            self.step = stop
        jax.block_until_ready(self.now)

    def prepare(self) -> None:
        """Compile both programs."""
        _renewed(self.layout, self.data, self.now)
        self.now = _sweeps(self.layout, self.data, self.now, self.key, np.int32(0), np.int32(0))

    def _sweep(self, count: int) -> None:
        """Sweeps; the metric is renewed before certain ones, so that a resumed chain is the same."""
        if self.step in blocks.RENEWED:
            self.now = _renewed(self.layout, self.data, self.now)
        begin = np.int32(self.step)
        self.now = _sweeps(self.layout, self.data, self.now, self.key, begin, np.int32(count))

    def kept(self) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """Global parameters and effects, in internal units; acceptance rates."""
        draws = dict(self.layout.model.constrain(self.now.position))
        for factor, effects in zip(self.layout.factors, self.now.effects, strict=True):
            draws[f"effects_{factor.number}"] = effects.T
        accepted = np.asarray(self.now.accepted, np.float64).tolist()
        stats = dict(zip(blocks.rates(self.layout), accepted, strict=True))
        return {name: np.asarray(leaf) for name, leaf in draws.items()}, stats

    def state(self) -> dict[str, np.ndarray]:
        """Leaves of the state, by number, and the number of sweeps."""
        leaves = {f"leaf_{k}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(self.now))}
        return {**leaves, **super().state()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore the chain from `state`."""
        super().restore(state)
        leaves, treedef = jax.tree.flatten(self.now)
        self.now = jax.tree.unflatten(treedef, [jnp.asarray(state[f"leaf_{k}"]) for k in range(len(leaves))])


def spec_of(layout: SweepLayout, start: Params) -> Spec:
    """Shapes and types of a draw."""
    draws = {name: jax.ShapeDtypeStruct(np.shape(leaf), np.asarray(leaf).dtype) for name, leaf in start.items()}
    return Spec(draws, {name: jax.ShapeDtypeStruct((), np.float64) for name in blocks.rates(layout)})


def words(layout: SweepLayout, num_levels: Sequence[int]) -> str:
    """What was chosen, in one line."""
    moves = "exact draws" if layout.is_conjugate else "Metropolis–Hastings steps"
    return (
        f"{METHOD}: the effects of {' and '.join(f'{count:,}' for count in num_levels)} levels in turn by {moves}, "
        "global parameters given the effects and given the standardised effects"
    )
