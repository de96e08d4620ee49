"""Many draws and all rows in bounded memory: some draws of all chains, chunks of rows, log likelihoods row by row."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco import _checks, _tree
from scirocco.data import ArraySource, FolderWriter, as_source
from scirocco.data.arrays import RowSource
from scirocco.data.sources import check_memory
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import Full
from scirocco.estimators.base import full_products
from scirocco.model import Model, Posterior
from scirocco.model.checks import describe
from scirocco.types import Array, Data, Params, PyTree, Rows

_NUMBERS = 1 << 22
"""Numbers that a chunk holds at once: rows × draws × the widest intermediate value."""
_FEWEST_ROWS, _MOST_ROWS = 16, 1 << 13


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
    kept = slice(
        length - 1 - (each - 1) * stride, length, stride
    )  # the last draw of each chain is among them
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
    if not hasattr(run, "configuration"):
        return run
    run._need_draws()
    return run.draws


# -- chunks -----------------------------------------------------------------------------------------------------------


def chunk_size(num_draws: int, width: int, num_rows: int) -> int:
    """Rows per chunk, if each holds `width` numbers for each draw."""
    fitting = _NUMBERS // max(1, num_draws * width)
    return min(num_rows, max(_FEWEST_ROWS, min(_MOST_ROWS, fitting)))


def widest(graph: Any) -> int:
    """The most numbers in a value that a program computes; looks into the functions that it calls."""
    found = 1
    for equation in graph.eqns:
        found = max([found, *(math.prod(getattr(var.aval, "shape", ())) for var in equation.outvars)])
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "jaxpr")):
            found = max(found, widest(inner.jaxpr)) if hasattr(inner, "jaxpr") else found
    return found


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
        raise InvalidTypeError(
            f"{who} requires a sc.Model with a log likelihood, got {type(model).__name__}."
        )
    if model.form == "total":
        return Model.from_total(model.log_likelihood)
    return Model(model.log_likelihood, vectorized=model.form == "rows")


def origin_of(run: Any, model: Any, data: Data | None, who: str) -> tuple[Any, RowSource]:
    """The model and the data of a run, unless others are given; rows must have the columns of the run's own."""
    known: Any = getattr(run, "origin", None)
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
    converted = getattr(run, "converted", None)
    origin = getattr(run, "origin", None)
    if data is not None:
        groups = None if origin is None else getattr(origin.model, "groups", None)
        return (draws_of(run) if converted is None else converted[0]), _with_labels(data, groups)
    if origin is None or converted is not None or origin.source.sums_up:
        raise InvalidValueError(
            f"{who} requires the rows: pass `data`, in your units (a run that was loaded, the run of a fitted model "
            "and plain draws do not have them)."
        )
    if getattr(origin.model, "groups", None) is not None:
        raise InvalidValueError(
            f"{who} requires the rows: the run has them by group. Pass the data that you sampled with."
        )
    return draws_of(run), origin.source


def _with_labels(data: Data, groups: str | None) -> RowSource:
    """The rows; labels of groups may be texts, which only functions on the host can read."""
    if (
        not isinstance(data, Mapping)
        or groups not in data
        or np.asarray(data[groups]).dtype.kind not in "OUS"
    ):
        return as_source(data)
    rest = as_source({name: column for name, column in data.items() if name != groups})
    return ArraySource({**rest.read(0, rest.num_rows), groups: np.asarray(data[groups]).astype(str)})


def simulator(run: Any, given: Any, who: str, model: Any = None) -> Any:
    """The function that was given, or how the model (by default that of the run) draws new outcomes."""
    known = run.known_model(model) if given is None and hasattr(run, "known_model") else None
    found = given if given is not None else getattr(known, "simulate", None)
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
    run: Any,
    model: Any,
    data: Data | None,
    num_draws: int | None,
    to: str | os.PathLike[str] | None,
    overwrite: bool,
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
