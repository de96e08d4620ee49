"""Variables of a PyMC model with a value for every row, or for many groups of rows: local ones, integrated out.

The graph for one group and one of its rows is PyMC's own, with the axis of the groups shortened to 1. That is right
only if a row uses the values of its group alone, and if the values of the groups are independent given the other
variables. Both are checked, at random points, against the graph of all rows and groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.bridges._common import ConvertedModel, LocalVariable, check_size, close, said
from scirocco.bridges._pymc_forward import DrawnGroups, find_forward
from scirocco.bridges._pymc_graph import (
    UNNAMED,
    GraphFunction,
    Grouping,
    TermGraph,
    Terms,
    all_rows,
    find_leaves,
    find_transform,
    indexed_by_rows,
    split_groups,
    whole,
)
from scirocco.bridges._pymc_walk import Variable, inputs_of
from scirocco.errors import InvalidValueError
from scirocco.model import HierarchicalModel, Model
from scirocco.types import Array, Params, Rows

_SHARE = "share_of_group"
_PROBES = 8  # rows that are compared with PyMC's density


def find_grouping(graph: TermGraph, data: Mapping[str, np.ndarray], params: Params, max_groups: int) -> Grouping | None:
    """The groups whose variables are integrated out: those of the only index with more than `max_groups` of them."""
    found: dict[str, tuple[int, str]] = {}
    for name, index in indexed_by_rows(graph).items():
        lengths = [size for size in np.shape(params[name]) if size > data[index].max()]
        if lengths:
            found[index] = min((min(lengths), name), found.get(index, (min(lengths), name)))
    large = {index: (size, name) for index, (size, name) in found.items() if size > max_groups}
    if len(large) > 1:
        named = ", ".join(f"`{name}` for {size:,} (indexed by `{index}`)" for index, (size, name) in large.items())
        raise InvalidValueError(
            f"several variables have values for more than max_groups={max_groups:,} groups of rows: {named}. The "
            "values for one kind of groups can be integrated out, the others must be parameters: raise `max_groups` "
            "above all of these numbers but the largest, or use sc.models.GLMM, which samples several large factors."
        )
    return next((_grouping(size, index, params) for index, (size, _) in large.items()), None)


def rows_as_groups(graph: TermGraph, params: Params) -> Grouping | None:
    """Every row as a group, if there are variables with a value for each."""
    found = _grouping(graph.num_rows, None, params)
    return found if found.axes else None


def _grouping(size: int, index: str | None, params: Params) -> Grouping:
    shapes = {name: np.shape(value) for name, value in params.items()}
    return Grouping(size, index, {name: shape.index(size) for name, shape in shapes.items() if size in shape})


class OneGroup:
    """The terms and deterministic variables of a model for one group and one of its rows. It refers to no data."""

    def __init__(self, graph: TermGraph, rows: Iterable[str], found: dict[str, LocalVariable], has_data: bool):
        self.graph, self.rows, self.locals = graph, tuple(rows), found
        self.has_data = has_data
        """Whether the priors use data of the groups."""

    def __call__(self, params: Params, local: Params, row: Rows) -> dict[str, Array]:
        """Everything by name, with an axis of length 1 for the rows, or for the groups."""
        values = {name: jnp.expand_dims(value, self.locals[name].axis) for name, value in local.items()}
        return self.graph.raw(params | values, {name: row[name][None] for name in self.graph.columns})

    def log_likelihood(self, params: Params, local: Params, row: Rows) -> Array:
        """Of a row of the group; priors that use data of the group are divided among its rows."""
        found = self(params, local, row)
        total = sum((jnp.sum(found[name]) for name in self.rows), jnp.zeros(()))
        return total if not self.has_data else total + row[_SHARE] * self._prior(found)

    def log_prior(self, local: Params, params: Params) -> Array:
        """The log density of the variables of the group, unless the rows have it."""
        if self.has_data:
            return jnp.zeros(())
        blank = {name: np.zeros(shape, dtype) for name, (dtype, shape) in self.graph.columns.items()}  # not used
        return self._prior(self(params, local, blank))

    def _prior(self, found: Mapping[str, Array]) -> Array:
        return sum((jnp.sum(found[_prior(name)]) for name in self.locals), jnp.zeros(()))


def _prior(name: str) -> str:
    return f"prior of {name}"


def _local(
    model: Any, rv: Variable, values: Mapping[str, Variable], grouping: Grouping, params: Params
) -> LocalVariable:
    transform, axis = find_transform(model, rv, values, grouping), grouping.axes[rv.name]
    if transform is not None and transform.depends_on:
        raise refused(
            [rv.name],
            grouping,
            f"its bounds depend on `{transform.depends_on[0]}`: give it fixed bounds, and rescale it in the model",
        )
    return LocalVariable(jnp.take(params[rv.name], 0, axis), transform, axis)


def refused(names: Iterable[str], grouping: Grouping, why: str) -> InvalidValueError:
    """The error for local variables that cannot be integrated out."""
    named, size = ", ".join(f"`{name}`" for name in names), f"{grouping.size:,}"
    if grouping.by is None:
        units, hint = f"each of the {size} rows", ""
    else:
        units = f"{size} groups of rows (indexed by `{grouping.by}`)"
        hint = ", or raise `max_groups`, if there are many rows for each group"
    return InvalidValueError(
        f"variable {named} has values for {units}, of which most batches see only a few, and it cannot be integrated "
        f"out: {why}. Sum it out of the likelihood (e.g. pm.NegativeBinomial is a Poisson with gamma effects){hint}."
    )


def convert(
    model: Any,
    plain: Model,
    values: Mapping[str, Variable],
    terms: Terms,
    deterministic: Mapping[str, Variable],
    num_rows: int,
    grouping: Grouping,
    index: np.ndarray | None,
    position: Params,
    seed: int,
) -> ConvertedModel:
    """The model with the variables of the groups integrated out; `plain` has them as parameters.

    `index` has the number of each row's group; None if every row is a group.
    """
    params = plain.constrain(position)
    local = {values[name] for name in grouping.axes}
    others = {name: term for name, term in terms.whole.items() if name not in grouping.axes}
    for name, term in others.items():
        if local & inputs_of([term]):
            raise refused(grouping.axes, grouping, f"`{name}`, which is not a row, depends on it")
    priors = {_prior(name): terms.whole[name] for name in grouping.axes}
    for name in priors.keys() - _axes(values, priors, params, grouping.size).keys():
        raise _coupled(name, grouping)
    own = {name: each for name, each in deterministic.items() if local & inputs_of([each])}
    axes = _axes(values, own, params, grouping.size)
    everything = {**terms.rows, **priors, **{name: own[name] for name in axes}}
    graph, data = split_groups(values, everything, num_rows, grouping, index)
    codes = np.arange(num_rows) if index is None else index.astype(np.int64) % grouping.size
    found = {rv.name: _local(model, rv, values, grouping, params) for rv in model.free_RVs if rv.name in grouping.axes}
    check_size(found, "row" if grouping.by is None else "group")
    has_data = any(find_leaves(list(priors.values()), size)[0] for size in (num_rows, grouping.size))
    group = OneGroup(graph, terms.rows, found, has_data)
    original = all_rows(values, everything, num_rows)
    kept = _check(group, grouping, (data, codes), original, plain, position, axes, seed)
    name, labels = _labels(model, grouping, data)
    rest = {key: each for key, each in values.items() if key not in grouping.axes}
    groups = None if index is None else DrawnGroups(name, labels, index)
    forward = find_forward(model, rest, terms, data, num_rows, groups)
    data |= {name: labels[codes]}
    if has_data:
        data[_SHARE] = (1.0 / np.bincount(codes))[codes]
    prior = whole(rest, others)
    derived = {
        key: each for key, each in deterministic.items() if key not in own and not find_leaves([each], num_rows)[0]
    }
    changes = {key: each for key, each in (plain.transforms or {}).items() if key in rest}

    def log_prior(params: Params) -> Array:
        return sum((jnp.sum(term) for term in prior(params).values()), jnp.zeros(()))

    def local_derived(params: Params, local: Params, row: Rows) -> dict[str, Array]:
        found = group(params, local, row)
        return {key: jnp.squeeze(found[key], axes[key]) for key in kept}

    made = HierarchicalModel(
        group.log_likelihood,
        group.log_prior,
        log_prior,
        groups=name,
        local={key: each.start for key, each in group.locals.items()},
        transforms=changes if any(each is not None for each in changes.values()) else None,
        local_transforms={key: each.transform for key, each in group.locals.items()},
        derived=whole(rest, derived) if derived else None,
        local_derived=local_derived if kept else None,
        dims={key: each for key, each in plain.dims.items() if key not in grouping.axes and key not in own},
        coords=plain.coords,
        simulate=forward,
        observed=None if forward is None else forward.observed,
    )
    return ConvertedModel(made, data, {key: params[key] for key in rest})


def _axes(values: Mapping[str, Variable], own: Mapping[str, Variable], params: Params, size: int) -> dict[str, int]:
    """The axis of the groups in these variables; those without one are left out."""
    shapes = {
        name: jax.eval_shape(GraphFunction(values.values(), [each]), *(params[key] for key in values))[0].shape
        for name, each in own.items()
    }
    return {name: shape.index(size) for name, shape in shapes.items() if size in shape}


def _labels(model: Any, grouping: Grouping, data: Mapping[str, np.ndarray]) -> tuple[str, np.ndarray]:
    """The name of the column with the groups, and the label of each: the dim and coords of their variables."""
    dims = [(model.named_vars_to_dims.get(name) or ())[axis : axis + 1] for name, axis in grouping.axes.items()]
    plain = "rows" if grouping.by is None else grouping.by
    name = next((dim[0] for dim in dims if dim), "group" if plain.startswith(UNNAMED) else plain)
    labels = model.coords.get(name)
    name = name if name not in data else f"{name}_group"
    if labels is None or len(labels) != grouping.size:
        return name, np.arange(grouping.size)
    array = np.asarray(labels)
    return name, array if array.dtype.kind in "iufUS" and len(np.unique(array)) == len(array) else np.arange(
        grouping.size
    )


# -- consistency check -------------------------------------------------------------------------------------------------


def _check(
    group: OneGroup,
    grouping: Grouping,
    given: tuple[dict[str, np.ndarray], np.ndarray],
    original: tuple[GraphFunction, list[np.ndarray]],
    plain: Model,
    position: Params,
    axes: Mapping[str, int],
    seed: int,
) -> list[str]:
    """Compare rows and groups with PyMC's graph of all of them, at three points.

    Returns the deterministic variables that depend on one group each.
    """
    (data, codes), rng = given, np.random.default_rng(seed)
    count = len(codes)
    chosen = np.unique(rng.choice(count, min(_PROBES, count), replace=False))
    rows = {name: array[chosen] for name, array in data.items()}
    names, places, kept = list(group.graph.rows), codes[chosen], set(axes)

    @jax.jit
    def both(position: Params, arrays: list[Array], rows: Rows) -> tuple[list[Array], dict[str, Array]]:
        point = plain.constrain(position)
        local = {
            name: jnp.moveaxis(jnp.take(point[name], places, axis), axis, 0) for name, axis in grouping.axes.items()
        }
        found = jax.vmap(group, (None, 0, 0))(point, local, rows)
        return list(original[0](*group.graph.ordered(point), *arrays)), found

    for spread in (0.0, 0.5, 0.5):
        shifted = {
            name: leaf + np.asarray(spread * (rng.standard_normal(leaf.shape) + (name in grouping.axes)), leaf.dtype)
            for name, leaf in position.items()
        }  # the values of groups have a mean other than 0
        try:
            all_of_them, found = both(shifted, original[1], rows)
        except Exception as error:
            raise refused(
                grouping.axes, grouping, f"a group by itself has no log likelihood ({said(error)})"
            ) from error
        for name, full in zip(names, all_of_them, strict=True):
            length, at = (count, chosen) if name in group.rows else (grouping.size, places)
            same = _same(np.asarray(full, np.float64), np.asarray(found[name], np.float64), length, at)
            if name in axes:
                kept = kept if same else kept - {name}
            elif not same and name in group.rows:
                raise refused(
                    grouping.axes, grouping, f"the rows of `{name}` use values of other {_units(grouping)}, too"
                )
            elif not same:
                raise _coupled(name, grouping)
    return [name for name in axes if name in kept]


def _same(full: np.ndarray, found: np.ndarray, length: int, at: np.ndarray) -> bool:
    """Whether entries along the axis of this length are those of the groups or rows by themselves."""
    if length not in full.shape:
        return False
    expected = np.moveaxis(full, full.shape.index(length), 0)[at].reshape(len(at), -1)
    found = found.reshape(len(at), -1)
    return found.shape == expected.shape and close(found, expected, np.abs(expected))


def _coupled(name: str, grouping: Grouping) -> InvalidValueError:
    why = f"its values for different {_units(grouping)} are not independent given the other variables"
    return refused([name.removeprefix(_prior(""))], grouping, why)


def _units(grouping: Grouping) -> str:
    return "rows" if grouping.by is None else "groups"
