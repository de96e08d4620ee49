"""The conversion of a run to ArviZ's container, with the groups that comparisons and predictive checks use."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco import _tree
from scirocco._extras import require
from scirocco._version import __version__
from scirocco.data import as_source
from scirocco.data.arrays import RowSource
from scirocco.data.sources import check_memory
from scirocco.errors import InvalidValueError
from scirocco.run.predicting import prepared, values
from scirocco.run.records import plain
from scirocco.run.rowwise import Chosen, chosen, draws_and_rows, log_likelihood, origin_of, simulator
from scirocco.types import Data, PyTree

_WHO = "run.to_arviz()"
_ADVICE = "Sample fewer draws, or pass fewer rows as `data`."


def to_arviz(
    run: Any,
    coordinates: Mapping[str, Sequence[Any]] | None,
    *,
    with_log_likelihood: bool,
    with_data: bool,
    simulate: Callable[..., Any] | bool | None,
    data: Data | None,
    model: Any,
    seed: int,
) -> Any:
    """See `Run.to_arviz`."""
    az = require("arviz", _WHO)
    xarray = require("xarray", _WHO)
    attributes = {
        "configuration": json.dumps(run.configuration),
        "preparation": json.dumps(plain(run.preparation)),
        "timing": json.dumps(run.timing),
        "status": run.status,
        "inference_library": "scirocco",
        "inference_library_version": __version__,
    }
    draws, labels = (run.draws, {}) if run.converted is None else run.converted
    known = run.known_model(model)
    dims, coords = ({}, {}) if known is None else (known.facts.dims, known.facts.coords)
    named = dict(zip(_tree.leaf_names(draws), jax.tree.leaves(draws), strict=True))
    posterior = _dataset(run, named | run.derived(known), dims)
    labels = {name: coords[name] for name in posterior.dims if name in coords} | {
        **labels,
        **(coordinates or {}),
    }
    axes = _Axes(dims, coords)
    observed: dict[str, Any] = {"num_rows": run.configuration["num_rows"]}
    if with_data:
        rows = _rows_of(run, data)
        observed |= _columns(rows)
        if known is not None and known.observed is not None:
            seen = known.observed(rows.read(0, rows.num_rows))
            observed |= {name: (axes.named(name, np.ndim(each)), each) for name, each in seen.items()}
    groups = {
        "posterior": posterior.assign_coords(labels).assign_attrs(attributes),
        "sample_stats": _dataset(run, jax.tree.map(lambda leaf: _at_draws(run, leaf), run.stats)),
        "observed_data": axes.labelled(xarray.Dataset(observed)),
    }
    if run.gradients is not None:
        groups["gradients"] = _dataset(run, run.gradients)
    if with_log_likelihood:
        check_memory(8 * _size(run) * _rows_of(run, data).num_rows, "the group log_likelihood", _ADVICE)
        found = log_likelihood(run, model, data, None, None, False)
        groups["log_likelihood"] = _by_draws(run, {"log_likelihood": found}, axes)
    if simulate is not None and simulate is not False:
        function = simulator(run, None if simulate is True else simulate, _WHO, model)
        drawn = _by_draws(run, _simulated(run, function, data, seed), axes)
        groups["posterior_predictive"] = axes.labelled(drawn)
    if az.__version__.startswith("0."):
        return az.InferenceData(attrs=attributes, warn_on_custom_groups=False, **groups)
    tree = xarray.DataTree.from_dict(groups)
    tree.attrs.update(attributes)
    return tree


def _size(run: Any) -> int:
    return run.num_chains * run.num_draws


def _rows_of(run: Any, data: Data | None) -> RowSource:
    return origin_of(run, None, None, _WHO)[1] if data is None else as_source(data)


def _columns(source: RowSource) -> dict[str, Any]:
    """All rows, as variables with the axis `row`."""
    check_memory(2 * _tree.nbytes(source.row_spec) * source.num_rows, "the group observed_data", _ADVICE)
    rows = source.read(0, source.num_rows)
    bare = _tree.is_array(rows)
    found = {}
    for name, leaf in zip(_tree.leaf_names(rows), jax.tree.leaves(rows), strict=True):
        name = "data" if bare else name
        inner = (f"{name}_column_{axis}" for axis in range(np.ndim(leaf) - 1))
        found[name] = (("row", *inner), np.asarray(leaf))
    return found


def _simulated(run: Any, simulate: Callable[..., Any], data: Data | None, seed: int) -> dict[str, np.ndarray]:
    """Results of the function by name, (row, ..., draw)."""
    draws, source = draws_and_rows(run, data, _WHO)
    every = _all_draws(run, draws)
    job = prepared(simulate, every.params, source)
    size = 8 * every.count * source.num_rows * _tree.size(job.out)
    check_memory(size, "the group posterior_predictive", _ADVICE)
    parts: dict[str, list[np.ndarray]] = {}
    for first, stop, found in values(job, every.params, source, jax.random.key(seed)):
        names = ["prediction"] if _tree.is_array(found) else _tree.leaf_names(found)
        for name, leaf in zip(names, jax.tree.leaves(found), strict=True):
            parts.setdefault(name, []).append(np.asarray(leaf)[: stop - first])
    return {name: np.moveaxis(np.concatenate(leaves), -1, 1) for name, leaves in parts.items()}


def _all_draws(run: Any, draws: PyTree) -> Chosen:
    every = chosen(draws, None)
    if every.count != _size(run):
        raise InvalidValueError(
            f"some draws of the run are not finite, so that {_WHO} cannot add groups: {every.words}."
        )
    return every


class _Axes(NamedTuple):
    """The names of the axes of observed variables, and their labels, as the model has them."""

    dims: Mapping[str, Sequence[str | None]]
    coords: Mapping[str, Sequence[Any]]

    def named(self, name: str, count: int) -> tuple[str, ...]:
        plain = ("row", *(f"{name}_dim_{axis}" for axis in range(count - 1)))
        own = self.dims.get(name, ())
        return tuple(own[k] or plain[k] for k in range(count)) if len(own) == count else plain

    def labelled(self, dataset: Any) -> Any:
        """The dataset with the labels of axes whose length they have: rows may be others than those of the model."""
        known = {name: self.coords[name] for name in dataset.dims if name in self.coords}
        return dataset.assign_coords(
            {name: each for name, each in known.items() if len(each) == dataset.sizes[name]}
        )


def _by_draws(run: Any, found: Mapping[str, np.ndarray], axes: _Axes) -> Any:
    """A dataset (chain, draw, row, ...) of arrays (row, draw of all chains, ...)."""
    xarray = require("xarray", _WHO)
    variables = {}
    for name, leaf in found.items():
        shaped = np.moveaxis(leaf, 0, 1).reshape(run.num_chains, run.num_draws, len(leaf), *leaf.shape[2:])
        variables[name] = (("chain", "draw", *axes.named(name, leaf.ndim - 1)), shaped)
    return xarray.Dataset(variables, _numbers(run))


def _numbers(run: Any) -> dict[str, np.ndarray]:
    return {"chain": np.arange(run.num_chains), "draw": np.arange(run.num_draws)}


def _at_draws(run: Any, values: np.ndarray) -> np.ndarray:
    """From values (chain, draw) of all draws, select those of the draws that were kept."""
    every = run.configuration.get("keep_draws", 1)
    return np.asarray(values)[:, every - 1 :: every][:, : run.num_draws]


def _dataset(run: Any, tree: PyTree, dims: Mapping[str, Sequence[str | None]] | None = None) -> Any:
    xarray = require("xarray", _WHO)
    variables = {}
    for name, leaf in zip(_tree.leaf_names(tree), jax.tree.leaves(tree), strict=True):
        inner = [f"{name}_dim_{axis}" for axis in range(leaf.ndim - 2)]
        for axis, known in zip(range(len(inner)), (dims or {}).get(name, ()), strict=False):
            inner[axis] = inner[axis] if known is None else known
        variables[name] = (("chain", "draw", *inner), np.asarray(leaf))
    return xarray.Dataset(variables, _numbers(run))
