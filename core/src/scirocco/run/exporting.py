"""A run for others: ArviZ's container, with the groups that comparisons and predictive checks use, and figures.

Figures are drawn by matplotlib (the extra `plot`).
"""

from __future__ import annotations

import difflib
import functools
import importlib
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from scirocco import _checks, _tree
from scirocco._extras import require
from scirocco._version import __version__
from scirocco.data import as_source
from scirocco.data.arrays import RowSource
from scirocco.data.sources import check_memory
from scirocco.diagnostics.columns import Columns, Leaf
from scirocco.diagnostics.intervals import METHOD
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.run.predicting import (
    Chosen,
    chosen,
    draws_and_rows,
    log_likelihood,
    origin_of,
    prepared,
    simulator,
    values,
)
from scirocco.run.records import plain
from scirocco.types import Data, PyTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    labels = {name: coords[name] for name in posterior.dims if name in coords} | {**labels, **(coordinates or {})}
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
        return dataset.assign_coords({name: each for name, each in known.items() if len(each) == dataset.sizes[name]})


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


Array = np.ndarray[Any, np.dtype[Any]]
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_MOST = {"traces": 6, "intervals": 30, "pairs": 5}
"""Parameters that are plotted if none are named."""
_MOST_POINTS = 2_000
"""Draws in a plot of a pair of parameters."""
_STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9.0,
    "savefig.dpi": 115,
}  # settings of matplotlib


def plot(leaves: Mapping[str, Leaf], kind: str, names: str | Sequence[str] | None) -> Figure:
    """A figure of the draws (chain, draw, ...) by name."""
    kind = _checks.choice(kind, "kind", tuple(_MOST))
    columns = _chosen(leaves, names, _MOST[kind])
    drawing: dict[str, Callable[[Figure, list[str], Array], None]] = {
        "traces": _traces,
        "intervals": _intervals,
        "pairs": _pairs,
    }
    with drawn_figure("run.plot()") as figure:
        drawing[kind](figure, columns.names, columns.values)
    if names is None and len(columns.names) < columns.total:
        shown = f"{len(columns.names)} of {columns.total:,} parameters; choose others with names=[...]"
        figure.supxlabel(shown, fontsize=8, color="0.4")
    return figure


@contextmanager
def drawn_figure(purpose: str) -> Iterator[Figure]:
    """An empty figure to draw on, in the style of this library; notebooks show it.

    If the program has imported pyplot, it is the current figure there, for `plt.show()` and `plt.savefig(...)`; not in
    a notebook that shows figures inline, which would show it twice.
    """
    matplotlib = require("matplotlib", purpose)
    with matplotlib.rc_context(_STYLE):
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None or "inline" in pyplot.get_backend():
            make = importlib.import_module("matplotlib.figure").Figure
        else:
            make = pyplot.figure
        figure: Figure = make(layout="constrained")
        yield figure
    # a figure that pyplot does not know is shown by notebooks only if it says how
    figure._repr_png_ = functools.partial(_png, figure)  # type: ignore[attr-defined]


def _png(figure: Figure) -> bytes:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=115)
    return drawn.getvalue()


def _chosen(leaves: Mapping[str, Leaf], names: str | Sequence[str] | None, most: int) -> Columns:
    """The first columns, or those that are named: `beta` is all of an array, `beta[3]` one number of it."""
    columns = Columns(leaves)
    if names is None:
        return columns.select(np.arange(min(most, columns.total)))
    wanted = [names] if isinstance(names, str) else list(names)
    places: list[int] = []
    for name in wanted:
        if not isinstance(name, str):
            raise InvalidTypeError(f"`names` must be names of parameters, got {name!r}.")
        found = [k for k, label in enumerate(columns.names) if label == name or label.startswith(f"{name}[")]
        if not found:
            close = difflib.get_close_matches(name, [*leaves, *columns.names], 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise InvalidValueError(f"there is no parameter {name!r}.{hint} There are {', '.join(leaves)}.")
        places += found
    return columns.select(np.unique(places))


def _traces(figure: Figure, names: list[str], values: Array) -> None:
    """A row for each parameter: draws of every chain in order, and their histograms."""
    figure.set_size_inches(8.5, 0.6 + 1.3 * len(names))
    axes = figure.subplots(len(names), 2, squeeze=False, width_ratios=[3, 1])
    for row, name in enumerate(names):
        trace, marginal = axes[row]
        bins = np.histogram_bin_edges(_finite(values[:, :, row]), 40)
        for chain, draws in enumerate(values[:, :, row]):
            colour = COLOURS[chain % len(COLOURS)]
            trace.plot(draws, color=colour, linewidth=0.5, alpha=0.8)
            marginal.hist(_finite(draws), bins, density=True, histtype="step", color=colour)
        trace.set(ylabel=name, xlim=(0, max(1, values.shape[1] - 1)))
        marginal.set(yticks=[])
    axes[-1][0].set_xlabel("draw")


def _intervals(figure: Figure, names: list[str], values: Array) -> None:
    """A row for each parameter: the mean, and the central 50 % and 90 % intervals of all chains."""
    figure.set_size_inches(7.0, 1.0 + 0.24 * len(names))
    axes, rows = figure.subplots(), np.arange(len(names))[::-1]
    ends = np.array(
        [np.quantile(_finite(column), [0.05, 0.25, 0.5, 0.75, 0.95], method=METHOD) for column in _flat(values)]
    )
    axes.hlines(rows, ends[:, 0], ends[:, 4], color=COLOURS[0], linewidth=1.5, label="90 %")
    axes.hlines(rows, ends[:, 1], ends[:, 3], color=COLOURS[0], linewidth=4.0, label="50 %")
    means = [_finite(column).mean() for column in _flat(values)]
    axes.plot(means, rows, "o", color="white", markeredgecolor=COLOURS[0], markersize=5, label="mean")
    if ends.min() < 0 < ends.max():
        axes.axvline(0, color="0.6", linewidth=0.8, zorder=0)
    axes.set_yticks(rows, names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.0 + 0.9 / (1 + len(names))), ncols=3, frameon=False)


def _pairs(figure: Figure, names: list[str], values: Array) -> None:
    """Every pair of parameters as points, histograms on the diagonal; at most 2,000 draws, spread over all."""
    count = len(names)
    if count < 2:
        raise InvalidValueError("`kind='pairs'` requires at least two parameters.")
    figure.set_size_inches(1.7 * count + 0.6, 1.7 * count + 0.6)
    axes = figure.subplots(count, count, sharex="col", squeeze=False)
    chains, draws, _ = values.shape
    stride = -(-chains * draws // _MOST_POINTS)
    for row in range(count):
        for column in range(count):
            here = axes[row][column]
            if column > row:
                here.set_axis_off()
                continue
            if column == row:
                here.hist(_finite(values[:, :, row]), 40, histtype="stepfilled", color=COLOURS[0], alpha=0.5)
                here.set(yticks=[])
            else:
                for chain in range(chains):
                    colour = COLOURS[chain % len(COLOURS)]
                    some = values[chain, ::stride]
                    here.plot(some[:, column], some[:, row], ".", color=colour, markersize=2, alpha=0.4)
                here.sharey(axes[row][0])
            if column > 0:
                here.tick_params(labelleft=False)
            if row == count - 1:
                here.set_xlabel(names[column])
            if column == 0:
                here.set_ylabel(names[row])


def _flat(values: Array) -> Array:
    """(parameter, draw of all chains)."""
    flat: Array = values.reshape(-1, values.shape[2]).T
    return flat


def _finite(values: Array) -> Array:
    found: Array = values[np.isfinite(values)]
    return found if found.size else np.zeros(1)
