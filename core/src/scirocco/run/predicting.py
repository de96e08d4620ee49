"""Functions of rows for many draws in bounded memory: predictions, and log likelihoods row by row.

A chunk of rows meets all chosen draws in one compiled program, so that linear predictors are products of matrices. On
a CPU, NumPy sorts the values of a chunk for quantiles while the program works on the next one; accelerators sort them
themselves, and only summaries leave the device.
"""

from __future__ import annotations

import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco.data import ArraySource, FolderWriter, as_source
from scirocco.data.arrays import RowSource
from scirocco.data.sources import check_memory
from scirocco.diagnostics.intervals import check_draws
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import Full
from scirocco.estimators.base import full_products
from scirocco.model import Model, Posterior
from scirocco.model.checks import asks_for_key, describe, trace
from scirocco.run.sizes import RUNNING
from scirocco.types import Array, Data, Datum, Key, Params, PyTree, Rows

_FEWEST_ROWS, _MOST_ROWS = 16, 1 << 13
"""Rows of a chunk, whatever they need."""


class WithDraws(ABC):
    """A run, as far as functions of draws and rows know it."""

    draws: Params
    origin: Any
    converted: Any

    @abstractmethod
    def known_model(self, given: Any) -> Any:
        """The model that was given, or that of the run, if it was made in this process."""

    @abstractmethod
    def _need_draws(self) -> None:
        """An error if the run has no draws."""


class Chosen(NamedTuple):
    """Some draws of all chains, without chains."""

    params: Params
    """Leaves (draw, ...)."""
    count: int  # type: ignore[assignment]
    words: str
    """How many draws of how many."""


# -- draws ------------------------------------------------------------------------------------------------------------


def chosen(draws: PyTree, num_draws: int | None) -> Chosen:
    """At most `num_draws` (None: all) of the draws (chain, draw, ...), as many of each chain, spread evenly."""
    leaves, treedef = jax.tree.flatten(draws)
    leaves = [leaf if _tree.is_array(leaf) else np.asarray(leaf) for leaf in leaves]
    shapes = {tuple(leaf.shape[:2]) for leaf in leaves}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2 or 0 in next(iter(shapes)):
        named = dict(zip(_tree.leaf_names(draws), (leaf.shape for leaf in leaves), strict=True))
        raise InvalidValueError(
            f"`draws` must be a run, or have leaves (chain, draw, ...) with the same first two axes, got {named}."
        )
    chains, length = next(iter(shapes))
    total = chains * length
    wanted = total if num_draws is None else min(_checks.positive_int(num_draws, "num_draws"), total)
    each = max(1, wanted // chains)
    stride = length // each
    kept = slice(length - 1 - (each - 1) * stride, length, stride)  # the last draw of each chain is among them
    flat = [np.asarray(leaf[:, kept]) for leaf in leaves]
    flat = [leaf.reshape(-1, *leaf.shape[2:])[:wanted] for leaf in flat]
    finite = np.all([np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in flat], axis=0)
    if not finite.any():
        raise InvalidValueError("no draw is finite, so there is nothing to predict with.")
    if not finite.all():
        flat = [leaf[finite] for leaf in flat]
    count = int(finite.sum())
    some = f"{count:,} of {total:,} draws" if count < total else f"{total:,} draws"
    if not finite.all():
        some += f" ({int((~finite).sum()):,} that are not finite were left out)"
    return Chosen(jax.tree.unflatten(treedef, flat), count, some)


def draws_of(run: Any) -> PyTree:
    """The draws of a run (chain, draw, ...); of a pytree of draws, itself."""
    if not isinstance(run, WithDraws):
        return run
    run._need_draws()
    return run.draws


# -- chunks -----------------------------------------------------------------------------------------------------------


def chunk_size(num_draws: int, width: int, num_rows: int) -> int:
    """Rows per chunk, if each holds `width` numbers for each draw."""
    fitting = RUNNING.predicted_numbers // max(1, num_draws * width)
    return min(num_rows, max(_FEWEST_ROWS, min(_MOST_ROWS, fitting)))


def widest(graph: Any) -> int:
    """The most numbers in a value that a program computes; looks into the functions that it calls."""
    found = 1
    for equation in graph.eqns:
        found = max([found, *(math.prod(var.aval.shape) for var in equation.outvars if _tree.is_array(var.aval))])
        inside = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program)
        found = max([found, *(widest(inner.jaxpr) for inner in inside if _is_program(inner))])
    return found


def _is_program(value: Any) -> bool:
    return hasattr(value, "jaxpr")


def padded(rows: Rows, size: int) -> Rows:
    """Pad to the same number of rows in each call, so that one compiled program is enough."""
    return jax.tree.map(lambda leaf: filled(np.asarray(leaf), size), rows)


def filled(values: np.ndarray, size: int) -> np.ndarray:
    """The array with its last entry repeated up to this length."""
    missing = size - len(values)
    return values if not missing else np.concatenate([values, np.repeat(values[-1:], missing, axis=0)])


# -- log likelihoods --------------------------------------------------------------------------------------------------


def in_users_units(model: Any, who: str) -> Model:
    """The likelihood alone, as a function of constrained parameters, so that draws are not transformed twice."""
    if not isinstance(model, Model):
        raise InvalidTypeError(f"{who} requires a sc.Model with a log likelihood, got {type(model).__name__}.")
    if model.form == "total":
        return Model.from_total(model.log_likelihood)
    return Model(model.log_likelihood, vectorized=model.form == "rows")


def origin_of(run: Any, model: Any, data: Data | None, who: str) -> tuple[Any, RowSource]:
    """The model and the data of a run, unless others are given; rows must have the columns of the run's own."""
    known: Any = run.origin if isinstance(run, WithDraws) else None
    if known is None and (model is None or data is None):
        raise InvalidValueError(
            f"{who}: the run does not know its model and data (they are never stored): pass both, the model and the "
            "rows."
        )
    given = model is not None
    model = model if given else known.model
    facts = model.facts if isinstance(model, Posterior) else None
    if facts is not None and facts.takes_key:
        raise InvalidTypeError(
            f"{who}: the log likelihood is random (it takes a key), so a row has no value of its own."
        )
    if facts is not None and facts.groups is not None:
        raise InvalidTypeError(
            f"{who}: the rows of a group share its variable, so a row of a sc.HierarchicalModel has no log likelihood "
            "of its own. Compare predictions for groups that were held out (sc.analysis.log_predictive)."
        )
    if data is None:
        if known.source.sums_up:
            raise InvalidValueError(
                f"{who}: this run was made from sums over the rows instead of the rows, which have no log likelihoods "
                "of their own. Pass the rows, and the model with the log likelihood of a row."
            )
        return model, known.source
    source = as_source(data)
    if not given and describe(source.row_spec) != describe(known.source.row_spec):
        raise InvalidValueError(
            f"{who}: one of these rows is {describe(source.row_spec)}, but one of the run is "
            f"{describe(known.source.row_spec)}. Pass rows with the same columns."
        )
    return model, source


def draws_and_rows(run: Any, data: Data | None, who: str) -> tuple[PyTree, RowSource]:
    """Draws and rows in the same units: those of the user if the rows are given."""
    origin: Any = run.origin if isinstance(run, WithDraws) else None
    converted = run.converted if isinstance(run, WithDraws) else None
    groups = origin.model.facts.groups if origin is not None and isinstance(origin.model, Posterior) else None
    if data is not None:
        return (draws_of(run) if converted is None else converted[0]), _with_labels(data, groups)
    if origin is None or converted is not None or origin.source.sums_up:
        raise InvalidValueError(
            f"{who} requires the rows: pass `data`, in your units (a run that was loaded, the run of a fitted model "
            "and plain draws do not have them)."
        )
    if groups is not None:
        raise InvalidValueError(
            f"{who} requires the rows: the run has them by group. Pass the data that you sampled with."
        )
    return draws_of(run), origin.source


def _with_labels(data: Data, groups: str | None) -> RowSource:
    """The rows; labels of groups may be texts, which only functions on the host can read."""
    if not isinstance(data, Mapping) or groups not in data or np.asarray(data[groups]).dtype.kind not in "OUS":
        return as_source(data)
    rest = as_source({name: column for name, column in data.items() if name != groups})
    return ArraySource({**rest.read(0, rest.num_rows), groups: np.asarray(data[groups]).astype(str)})


def simulator(run: Any, given: Any, who: str, model: Any = None) -> Any:
    """The function that was given, or how the model (by default that of the run) draws new outcomes."""
    known = run.known_model(model) if given is None and isinstance(run, WithDraws) else None
    found = known.simulate if isinstance(known, Model) else given
    if found is None:
        raise InvalidTypeError(
            f"{who}: the run does not know how outcomes are drawn. Pass a function simulate(params, row, key) that "
            "draws the outcome of one row, or give it to the model: sc.Model(..., simulate=...). For a run that was "
            "loaded, pass that of its model: model.simulate."
        )
    return found


@partial(jax.jit, static_argnums=0)
def log_likelihoods(model: Model, params: Params, rows: Rows) -> Array:
    """(row, draw) for draws (draw, ...) and a model in the user's units."""
    return jax.vmap(model.log_likelihoods, (0, None), out_axes=1)(params, rows)


def log_likelihood_matrix(
    model: Model, params: Params, source: RowSource, numbers: np.ndarray | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """(start, log likelihoods (row, draw)) of all rows, or of those with these numbers, some at a time."""
    total = source.num_rows if numbers is None else len(numbers)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), params)
    row = jax.tree.map(lambda spec: jax.ShapeDtypeStruct((1, *spec.shape), spec.dtype), source.row_spec)
    width = widest(jax.make_jaxpr(model.log_likelihoods)(one, row).jaxpr)
    size = chunk_size(len(jax.tree.leaves(params)[0]), width, total)
    for first in range(0, total, size):
        stop = min(first + size, total)
        rows = source.read(first, stop) if numbers is None else source.take(numbers[first:stop])
        with full_products(Full()):
            found = np.asarray(log_likelihoods(model, params, padded(rows, size)))[: stop - first]
        bad = ~np.isfinite(found).all(axis=1)
        if bad.any():
            place = first + int(np.argmax(bad))
            number = place if numbers is None else int(numbers[place])
            raise InvalidValueError(
                f"the log likelihood of row {number} is not finite for at least one draw; check the row, and draws at "
                "the edge of their domain."
            )
        yield first, found


def log_likelihood(
    run: Any, model: Any, data: Data | None, num_draws: int | None, to: str | os.PathLike[str] | None, overwrite: bool
) -> np.ndarray:
    """See `Run.log_likelihood`."""
    model, source = origin_of(run, model, data, "run.log_likelihood()")
    direct = in_users_units(model, "run.log_likelihood()")
    few = chosen(draws_of(run), num_draws)
    if to is not None:
        with FolderWriter(to, shuffle=False, overwrite=overwrite, source="log likelihoods") as writer:
            for _, part in log_likelihood_matrix(direct, few.params, source):
                writer.append({"log_likelihood": part})
        return np.load(Path(to).expanduser() / "log_likelihood.npy", mmap_mode="r")
    size = 4 * few.count * source.num_rows
    check_memory(size, "the log likelihoods", "Write them to a folder with `to`, or use fewer draws.")
    whole = np.empty((source.num_rows, few.count), jax.dtypes.canonicalize_dtype(np.float64))
    for first, part in log_likelihood_matrix(direct, few.params, source):
        whole[first : first + len(part)] = part
    return whole


DRAWS = 1_000
"""Draws of a prediction, unless another number is given."""


@dataclass(frozen=True)
class Predictions:
    """A function of parameters and rows: its posterior mean, standard deviation and central interval for every row.

    Attributes
    ----------
    mean, sd, low, high
        The structure of the function's results, leaves (row, ...); `low` and `high` are None without an interval. If
        they were written to a folder, they are memory maps of its files.
    num_draws
        The number of draws behind each.
    words
        What was computed, in one line.
    path
        The folder, if there is one: `sc.data.open(path)` reads it.
    """

    mean: PyTree
    sd: PyTree
    low: PyTree | None
    high: PyTree | None
    num_draws: int
    words: str
    path: str | None = None

    def __repr__(self) -> str:
        return f"Predictions({self.words})"


# -- chunks -----------------------------------------------------------------------------------------------------------


class HostFunction(ABC):
    """A random function of many draws and rows at once that NumPy computes, in place of a function for JAX."""

    @abstractmethod
    def __call__(self, params: Params, rows: Rows, first: int, seed: Sequence[int]) -> dict[str, np.ndarray]:
        """By name (row, ..., draw), for draws (draw, ...) and rows from number `first` on."""


class RowProgram(NamedTuple):
    """A function, compiled for chunks of rows."""

    function: Callable[..., Any]
    takes_key: bool
    out: PyTree
    """Shapes of the results for one row and one draw."""
    size: int
    """Rows per chunk."""


def prepared(function: Callable[..., Any], params: Params, source: RowSource) -> RowProgram:
    """Check a user's function of one draw and one row on shapes alone, and choose the number of rows per chunk."""
    if not callable(function):
        raise InvalidTypeError(
            f"`function` must be a function (params, row) of one draw and one row, got {type(function).__name__}."
        )
    length = len(jax.tree.leaves(params)[0])
    if isinstance(function, HostFunction):
        tried = function(jax.tree.map(lambda leaf: leaf[:1], params), source.read(0, 1), 0, [0])
        dtype = jax.dtypes.canonicalize_dtype(np.float64)
        shapes = {name: jax.ShapeDtypeStruct(each.shape[1:-1], dtype) for name, each in tried.items()}
        return RowProgram(function, True, shapes, chunk_size(length, _tree.size(shapes), source.num_rows))
    random = asks_for_key(function)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), params)
    arguments = (source.row_spec, *((jax.eval_shape(jax.random.key, 0),) if random else ()))
    name = _tree.name_of(function)
    out = trace(function, name, one, *arguments)
    for leaf in jax.tree.leaves(out, is_leaf=lambda node: node is None) or [None]:
        if not _tree.is_array(leaf) or jnp.issubdtype(leaf.dtype, jnp.complexfloating) or 0 in leaf.shape:
            got = f"{leaf.dtype}{list(leaf.shape)}" if _tree.is_array(leaf) else type(leaf).__name__
            raise InvalidValueError(
                f"{name}(params, row) must return real numbers for one row, an array or a dict of arrays; got {got}."
            )
    width = max(_tree.size(out), widest(jax.make_jaxpr(function)(one, *arguments).jaxpr))
    return RowProgram(function, random, out, chunk_size(length, width, source.num_rows))


def values(
    job: RowProgram, params: Params, source: RowSource, key: Key, picks: Picks | None = None, summary: bool = False
) -> Iterator[tuple[int, int, Any]]:
    """(start, stop, results) of all rows, one chunk after the other; the next chunk is already being computed.

    The results are values (row, ..., draw), or with `summary` (mean, sd, quantiles or sorted values).
    """
    here = picks is not None and jax.default_backend() != "cpu"
    waiting: tuple[int, int, Any] | None = None
    seed = np.asarray(jax.random.key_data(key)).tolist() if isinstance(job.function, HostFunction) else []
    for first in range(0, source.num_rows, job.size):
        stop = min(first + job.size, source.num_rows)
        if isinstance(job.function, HostFunction):
            found: Any = job.function(params, source.read(first, stop), first, seed)
            found = _summary(found, picks if here else None) if summary else found
        else:
            rows = padded(source.read(first, stop), job.size)
            numbers = np.arange(first, first + job.size, dtype=np.uint32)
            with full_products(Full()):
                found = _chunk(
                    job.function, job.takes_key, summary, picks if here else None, params, rows, numbers, key
                )
        if waiting is not None:
            yield waiting
        waiting = (first, stop, found)
    if waiting is not None:
        yield waiting


class Picks(NamedTuple):
    """Order statistics next to the two quantiles, and the weights of the upper ones."""

    places: tuple[int, int, int, int]
    weights: tuple[float, float]


def picks_of(interval: float | None, count: int) -> Picks | None:
    """The ends of a central interval among `count` exchangeable draws: quantile p is at rank p (count + 1).

    A new draw of the same distribution is then inside with exactly that probability, where `count` allows.
    """
    if interval is None:
        return None
    if not _checks.is_number(interval) or not 0 < interval < 1:
        raise InvalidValueError(f"`interval` must be between 0 and 1, or None, got {interval!r}.")
    check_draws(count, interval, "Sample more draws (num_samples), pass interval=None")
    places, weights = [], []
    for level in ((1 - interval) / 2, (1 + interval) / 2):
        rank = min(max(level * (count + 1) - 1, 0.0), count - 1.0)
        below = min(int(rank), max(count - 2, 0))
        places += [below, min(below + 1, count - 1)]
        weights.append(rank - below)
    return Picks((places[0], places[1], places[2], places[3]), (weights[0], weights[1]))


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _chunk(
    function: Callable[..., Any],
    takes_key: bool,
    summary: bool,
    picks: Picks | None,
    params: Params,
    rows: Rows,
    numbers: Array,
    key: Key,
) -> Any:
    count = len(jax.tree.leaves(params)[0])

    def of_row(row: Datum, number: Array) -> PyTree:
        def at(theta: Params, draw: Array) -> PyTree:
            own = (jax.random.fold_in(jax.random.fold_in(key, draw), number),) if takes_key else ()
            return jax.tree.map(_as_floats, function(theta, row, *own))

        return jax.vmap(at, out_axes=-1)(params, jnp.arange(count))

    found = jax.vmap(of_row)(rows, numbers)
    return _summary(found, picks) if summary else found


@partial(jax.jit, static_argnums=1)
def _summary(found: PyTree, picks: Picks | None) -> tuple[PyTree, PyTree, PyTree]:
    """Mean, standard deviation, and the values or, with `picks`, their quantiles."""
    count = jax.tree.leaves(found)[0].shape[-1]
    mean = jax.tree.map(lambda each: each.mean(axis=-1), found)
    sd = jax.tree.map(lambda each: each.std(axis=-1, ddof=min(1, count - 1)), found)
    if picks is None:
        return mean, sd, found
    return mean, sd, jax.tree.map(lambda each: _ends(jnp.sort(each, axis=-1), picks), found)


def _as_floats(value: Array) -> Array:
    value = jnp.asarray(value)
    return value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(jnp.result_type(float))


def _ends(ordered: Any, picks: Picks) -> tuple[Any, Any]:
    a, b, c, d = (ordered[..., place] for place in picks.places)
    low, high = picks.weights
    return a + low * (b - a), c + high * (d - c)


def quantiles(values: np.ndarray, picks: Picks) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of the interval along the last axis; NumPy's sort is 20 times faster than XLA's on a CPU."""
    return _ends(np.sort(values, axis=-1), picks)


# -- predictions ------------------------------------------------------------------------------------------------------


def predict(
    draws: PyTree,
    function: Callable[..., Any],
    data: Data,
    *,
    interval: float | None,
    num_draws: int | None,
    seed: int,
    to: str | os.PathLike[str] | None,
    overwrite: bool,
) -> Predictions:
    """See `Run.predict`."""
    source = as_source(data)
    few = chosen(draws, DRAWS if num_draws is None else num_draws)
    picks = picks_of(interval, few.count)
    key = jax.random.key(_checks.positive_int(seed, "seed", minimum=0))
    job = prepared(function, few.params, source)
    found: dict[str, list[PyTree]] = {"mean": [], "sd": []} | ({} if picks is None else {"low": [], "high": []})
    if to is None:
        size = 4 * len(found) * _tree.size(job.out) * source.num_rows
        check_memory(size, "the predictions", "Write them to a folder with `to`.")
        for part in _summaries(job, few.params, source, key, picks):
            for name, values in zip(found, part, strict=True):
                found[name].append(values)
        whole = [jax.tree.map(lambda *parts: np.concatenate(parts), *parts) for parts in found.values()]
    else:
        names = _names(job.out)
        with FolderWriter(to, shuffle=False, overwrite=overwrite, source="predictions") as writer:
            for part in _summaries(job, few.params, source, key, picks):
                leaves = [jax.tree.leaves(values) for values in part]
                writer.append(
                    {
                        name.format(kind): leaf
                        for kind, each in zip(found, leaves, strict=True)
                        for name, leaf in zip(names, each, strict=True)
                    }
                )
        whole = [_mapped(to, kind, names, job.out) for kind in found]
    mean, sd, low, high = (*whole, None, None)[:4]
    ends = "" if interval is None else f", {100 * interval:g} % interval"
    words = f"{source.num_rows:,} rows, {few.words}{ends}"
    return Predictions(mean, sd, low, high, few.count, words, None if to is None else str(to))


def _summaries(
    job: RowProgram, params: Params, source: RowSource, key: Key, picks: Picks | None
) -> Iterator[list[PyTree]]:
    for first, stop, (mean, sd, rest) in values(job, params, source, key, picks, summary=True):
        count = stop - first
        part = [jax.tree.map(lambda leaf, count=count: np.asarray(leaf)[:count], tree) for tree in (mean, sd)]
        _check_numbers(part[0], first, job)
        if picks is not None:
            leaves = [
                leaf if isinstance(leaf, tuple) else quantiles(np.asarray(leaf)[:count], picks)
                for leaf in jax.tree.leaves(rest, is_leaf=lambda node: isinstance(node, tuple))
            ]
            tree = jax.tree.structure(job.out)
            part += [jax.tree.unflatten(tree, [np.asarray(pair[end])[:count] for pair in leaves]) for end in (0, 1)]
        yield part


def _check_numbers(mean: PyTree, first: int, job: RowProgram) -> None:
    for name, leaf in zip(_tree.leaf_names(mean), jax.tree.leaves(mean), strict=True):
        bad = ~np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)
        if bad.any():
            what = "" if _tree.is_array(mean) else f" `{name}`"
            raise InvalidValueError(
                f"the function {_tree.name_of(job.function)} returned{what} NaN or inf for at least one draw at row "
                f"{first + int(np.argmax(bad))} (and for {int(bad.sum()):,} of the {len(leaf):,} rows computed with "
                "it). Check the row, and the function at draws at the edge of their domain."
            )


def _names(out: PyTree) -> list[str]:
    """`{}` for a bare array, `p_{}` for the leaf p: names of files, to be filled with mean, sd, low or high."""
    if _tree.is_array(out):
        return ["{}"]
    return [re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") + "_{}" for name in _tree.leaf_names(out)]


def _mapped(to: str | os.PathLike[str], kind: str, names: list[str], out: PyTree) -> PyTree:
    files = [Path(to).expanduser() / f"{name.format(kind)}.npy" for name in names]
    return jax.tree.unflatten(jax.tree.structure(out), [np.load(file, mmap_mode="r") for file in files])
