"""`run.locals`: the local variables of chosen groups, drawn given the draws of the global parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco._extras import require
from scirocco._random import Purpose, key_for
from scirocco.data.groups import GroupedSource, StreamedGroups, grouped
from scirocco.diagnostics.columns import Columns
from scirocco.diagnostics.intervals import central
from scirocco.errors import InvalidValueError
from scirocco.model.base import bare
from scirocco.model.groups import Groups, HierarchicalModel, solve_transposed
from scirocco.types import Array, Data, Key, Params, PyTree

_CANDIDATES, _FREEDOM = 32, 8
"""Candidates for each local variable, from a Student distribution around the mode of its group."""
_TOGETHER = 1 << 21
"""Rows × candidates that are evaluated together."""


class Locals(NamedTuple):
    """Local variables of some groups: leaves (group, ...) of the structure of the local variable."""

    groups: np.ndarray
    """Labels of the groups."""
    mean: PyTree
    sd: PyTree
    low: PyTree
    high: PyTree
    draws: PyTree | None
    """If requested, leaves (draw, group, ...)."""

    def to_frame(self) -> Any:
        """A pandas data frame with one row per group and number, by the group's label and the number's name."""
        pandas = require("pandas", "to_frame()")
        found = {"mean": self.mean, "sd": self.sd, "low": self.low, "high": self.high}
        columns = {name: _columns(values) for name, values in found.items()}
        names = columns["mean"].names
        index = pandas.MultiIndex.from_product([self.groups, names], names=["group", "variable"])
        return pandas.DataFrame({name: of.values[0].ravel() for name, of in columns.items()}, index)


def _columns(tree: PyTree) -> Columns:
    named = zip(_tree.leaf_names(tree), jax.tree.leaves(tree), strict=True)
    return Columns({name: np.asarray(leaf)[None] for name, leaf in named})


def local_draws(
    run: Any,
    groups: Sequence[Any] | None,
    interval: float,
    function: Callable[[Params, PyTree], PyTree] | None = None,
    num_draws: int = 400,
    seed: int = 0,
    keep_draws: bool = False,
    model: Any = None,
    data: Data | None = None,
) -> Locals:
    """See `Run.locals`."""
    model, source = _origin(run, model, data)
    numbers = source.find(groups)
    globals_ = some_draws(run.draws, _checks.positive_int(num_draws, "num_draws"))
    key = key_for(jax.random.key(_checks.positive_int(seed, "seed", minimum=0)), Purpose.LOCALS)
    parts = []
    for places, bins, own in _chunks(source, numbers):
        drawn = _drawn(model, function, bins, globals_, own, key)
        some = jax.tree.map(lambda leaf, at=places: np.asarray(leaf, np.float64)[:, at], drawn)
        ends = jax.tree.map(lambda leaf: np.stack(central(leaf, interval)), some)
        low, high = (jax.tree.map(lambda leaf, n=n: leaf[n], ends) for n in (0, 1))
        mean, sd = (jax.tree.map(partial(of, axis=0), some) for of in (np.mean, np.std))
        parts.append((mean, sd, low, high, some if keep_draws else None))
    order = np.argsort(np.argsort(source.bin_of[numbers], kind="stable"), kind="stable")  # chunks are by bins
    joined = [_joined([part[k] for part in parts], order, axis=int(k == 4)) for k in range(4 + keep_draws)]
    mean, sd, low, high = joined[:4]
    return Locals(source.labels[numbers], mean, sd, low, high, joined[4] if keep_draws else None)


def _joined(parts: list[PyTree], order: np.ndarray, axis: int) -> PyTree:
    return jax.tree.map(lambda *leaves: np.take(np.concatenate(leaves, axis=axis), order, axis=axis), *parts)


def _origin(run: Any, model: Any, data: Data | None) -> tuple[HierarchicalModel, GroupedSource | StreamedGroups]:
    if model is None and run.origin is not None:
        model = bare(run.origin.model)
    if model is not None and not isinstance(model, HierarchicalModel):
        raise InvalidValueError(
            f"local variables are those of a sc.HierarchicalModel; the model of this run is a {type(model).__name__}."
        )
    if data is None and run.origin is not None:
        data = run.origin.source
    if model is None or data is None:
        raise InvalidValueError(
            "a loaded run has neither model nor data, which the local variables depend on: pass them, "
            "run.locals(groups, model=model, data=data)."
        )
    return model, grouped(data, str(model.groups))


def some_draws(draws: Params, count: int) -> Params:
    """At most so many draws, evenly spaced over all chains: leaves (draw, ...)."""

    def spaced(leaf: Any) -> Array:
        flat = np.asarray(leaf).reshape(-1, *np.shape(leaf)[2:])
        return jnp.asarray(flat[np.linspace(0, len(flat) - 1, min(count, len(flat))).round().astype(int)])

    return jax.tree.map(spaced, draws)


def _chunks(source: GroupedSource | StreamedGroups, numbers: np.ndarray) -> Any:
    """Places of groups in a chunk, its bins, and the numbers of all groups in them; all chunks have the same size."""
    wanted = numbers[np.argsort(source.bin_of[numbers], kind="stable")]
    bins, inverse = np.unique(source.bin_of[wanted], return_inverse=True)
    width, places = source.row_spec["group"].shape[0], source.row_spec["present"].shape[0]
    size = max(1, _TOGETHER // (_CANDIDATES * width))
    size = min(size, 1 << math.ceil(math.log2(len(bins))))
    number_of = np.zeros((source.num_rows, places), np.int32)
    number_of[source.bin_of, source.place_of] = np.arange(len(source.labels))
    for begin in range(0, len(bins), size):
        chunk = np.resize(bins[begin : begin + size], size)
        own = (inverse >= begin) & (inverse < begin + size)
        at = (inverse[own] - begin) * places + source.place_of[wanted[own]]
        yield at, source.take(chunk), number_of[chunk].reshape(-1)


@partial(jax.jit, static_argnums=(0, 1))
def _drawn(model: HierarchicalModel, function: Any, bins: PyTree, globals_: Params, numbers: Array, key: Key) -> PyTree:
    """Draws of b given each draw of the global parameters: leaves (draw, group, ...).

    Random numbers depend on the key and the number of a group, not on the other groups.
    """
    integrated, of = model.integrated, Groups.of(bins)
    size, rows = len(integrated.start.numbers), of.first_rows()

    def noise(draw: Array, number: Array) -> tuple[Array, Array]:
        """Candidates (M, q) of a Student distribution, and numbers by which one of them is chosen."""
        own = jax.random.fold_in(jax.random.fold_in(key, number), draw)
        normals = jax.random.normal(own, (_CANDIDATES, size + _FREEDOM))
        choice_key = jax.random.fold_in(own, 1)
        squares = jnp.sum(normals[:, size:] ** 2, axis=1, keepdims=True)
        return normals[:, :size] / jnp.sqrt(squares / _FREEDOM), jax.random.gumbel(choice_key, (_CANDIDATES,))

    def given(start: Array, each: tuple[Params, Array]) -> tuple[Array, PyTree]:
        params, draw = each
        mode, root = integrated.mode(params, of, start)
        z, gumbel = jax.vmap(partial(noise, draw), 0, -1)(numbers)
        places = mode + jax.vmap(lambda one: solve_transposed(root, one))(z)
        student = -0.5 * (_FREEDOM + size) * jnp.log1p(jnp.sum(z**2, axis=1) / _FREEDOM)
        logs = jax.vmap(partial(integrated.joint, params, of))(places) - student
        chosen = jnp.argmax(logs + gumbel, axis=0)
        b = jnp.take_along_axis(places, chosen[None, None], axis=0)[0]
        local = jax.vmap(integrated.start.tree, 1)(b)
        if function is not None:
            local = jax.vmap(partial(function, params))(local)
        elif model.local_derived is not None:
            local = local | jax.vmap(partial(model.local_derived, params))(local, rows)
        return mode, local

    first = jax.tree.map(lambda leaf: leaf[0], globals_)
    start = integrated.mode(first, of)[0]
    count = jax.tree.leaves(globals_)[0].shape[0]
    return jax.lax.scan(given, start, (globals_, jnp.arange(count)))[1]
