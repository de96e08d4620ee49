"""The graph of a PyMC model as functions for JAX: terms of single rows, the rest, deterministic variables.

PyMC keeps data as constants of its graphs. Those with one entry per observation along an axis are the rows. For a batch
they are replaced by inputs of its length, in a copy of the graph in which the lengths of axes are replaced, too. JAX
knows the length of a batch when it traces a function, so there is a copy for each length.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from scirocco._extras import require
from scirocco.bridges._pymc_walk import (
    PURPOSE,
    Variable,
    copy,
    data_of,
    evaluate,
    inputs_of,
    is_check,
    is_indexing,
    toposort,
)
from scirocco.transforms import Transform
from scirocco.types import Array, Params, Rows

UNNAMED = "constant_"
"""How the names of data without a name begin."""
_ROWWISE = ("Elemwise", "DimShuffle", "Alloc")
"""Operations on data that can be left to each batch; the others are evaluated once, on all rows."""


class RowLeaf(NamedTuple):
    """A constant or shared variable of the graph with one entry per observation."""

    variable: Variable
    name: str
    """Its name among the rows; equal arrays share one."""
    axis: int
    """The axis over the observations. The rows have it first."""


class Grouping(NamedTuple):
    """Variables with a value for every group of rows, or for every row."""

    size: int
    """The number of groups, ..."""
    by: str | None
    """... the name of the data with the number of each row's group; None if every row is a group."""
    axes: dict[str, int]
    """The axis of the groups in the value of each variable, by name."""


class Terms(NamedTuple):
    """Parts of the log density, as graphs of the values of the free variables in the user's units."""

    rows: dict[str, Variable]
    """By name of the observed variable or potential: one entry per observation on the first axis."""
    whole: dict[str, Variable]
    """All others."""


class TermGraph:
    """The terms of a model, for batches of any length. It refers to no data: see `split`.

    With a grouping, it is the model of one group and of one of its rows: the axis of the groups has the length 1.
    """

    def __init__(
        self,
        values: Mapping[str, Variable],
        rows: Mapping[str, Variable],
        leaves: Sequence[RowLeaf],
        columns: Mapping[str, tuple[str, tuple[int, ...]]],
        num_rows: int,
        grouping: Grouping | None = None,
    ):
        self.values, self.rows, self.leaves = dict(values), dict(rows), list(leaves)
        self.columns, self.num_rows, self.grouping = dict(columns), num_rows, grouping
        self._for_length: dict[int, GraphFunction] = {}

    def rowwise(self, params: Params, rows: Rows) -> dict[str, Array]:
        """Every term of each row, by name; axes other than the first are summed."""
        found = self.raw(params, rows)
        return {name: jnp.sum(value, axis=tuple(range(1, value.ndim))) for name, value in found.items()}

    def raw(self, params: Params, rows: Rows) -> dict[str, Array]:
        """Every term as it is."""
        length = jax.tree.leaves(rows)[0].shape[0]
        if length not in self._for_length:
            self._for_length[length] = self._function(length)
        found = self._for_length[length](*self.ordered(params), *(rows[name] for name in self.columns))
        return dict(zip(self.rows, found, strict=True))

    def ordered(self, params: Params) -> list[Array]:
        """The values of the free variables in the order of the inputs of the functions."""
        return [params[name] for name in self.values]

    def _function(self, length: int) -> GraphFunction:
        tensor = require("pytensor.tensor", PURPOSE)
        inputs = {
            name: tensor.TensorType(dtype, shape=(length, *shape))(name)
            for name, (dtype, shape) in self.columns.items()
        }
        placed = {
            leaf.variable: tensor.moveaxis(inputs[leaf.name], 0, leaf.axis)
            for leaf in self.leaves
            if leaf.name in inputs
        }
        lengths, values, index = {self.num_rows: length}, self.values, frozenset[Variable]()
        if self.grouping is not None:
            lengths[self.grouping.size] = 1
            values = self.values | of_one_group(self.values, self.grouping)
            placed |= {self.values[name]: values[name] for name in self.grouping.axes}
            index = frozenset(leaf.variable for leaf in self.leaves if leaf.name == self.grouping.by)
        outputs = copy(list(self.rows.values()), placed, lengths, index)
        return GraphFunction([*values.values(), *inputs.values()], outputs)


def of_one_group(values: Mapping[str, Variable], grouping: Grouping) -> dict[str, Variable]:
    """The variables of the groups with one of them."""
    tensor = require("pytensor.tensor", PURPOSE)
    found = {}
    for name, axis in grouping.axes.items():
        shape = list(values[name].type.shape)
        shape[axis] = 1
        found[name] = tensor.TensorType(values[name].dtype, shape=tuple(shape))(name)
    return found


def split(
    values: Mapping[str, Variable], terms: Mapping[str, Variable], num_rows: int
) -> tuple[TermGraph, dict[str, np.ndarray]]:
    """The terms of rows without their data, and the data, with the rows along the first axis."""
    folded = fold(list(terms.values()))
    leaves, data = find_leaves(folded, num_rows)
    return _emptied(values, dict(zip(terms, folded, strict=True)), leaves, data, num_rows, None), data


def split_groups(
    values: Mapping[str, Variable],
    terms: Mapping[str, Variable],
    num_rows: int,
    grouping: Grouping,
    index: np.ndarray | None,
) -> tuple[TermGraph, dict[str, np.ndarray]]:
    """The same for one group; data of groups become columns of their rows.

    `index` has the numbers of the rows' groups, as they are used in the terms.
    """
    folded = fold(list(terms.values()))
    leaves, data = find_leaves(folded, num_rows)
    codes = np.arange(num_rows) if index is None else index
    if index is not None:
        name = next(name for name, array in data.items() if _equal(array, index))
        grouping = grouping._replace(by=name)
        del data[name]
    if grouping.size != num_rows:
        more, arrays = find_leaves(folded, grouping.size)
        names = {name: name if name not in data else f"{name}_of_group" for name in arrays}
        leaves += [leaf._replace(name=names[leaf.name]) for leaf in more]
        data |= {names[name]: array[codes] for name, array in arrays.items()}
    terms = dict(zip(terms, folded, strict=True))
    return _emptied(values, terms, leaves, data, num_rows, grouping), data


def _emptied(
    values: Mapping[str, Variable],
    terms: Mapping[str, Variable],
    leaves: Sequence[RowLeaf],
    data: Mapping[str, np.ndarray],
    num_rows: int,
    grouping: Grouping | None,
) -> TermGraph:
    outputs, empty = empty_leaves(list(terms.values()), leaves)
    rows = dict(zip(terms, outputs, strict=True))
    columns = {name: (str(array.dtype), array.shape[1:]) for name, array in data.items()}
    return TermGraph(values, rows, empty, columns, num_rows, grouping)


def empty_leaves(outputs: Sequence[Variable], leaves: Sequence[RowLeaf]) -> tuple[list[Variable], list[RowLeaf]]:
    """The graph with free inputs in place of its data."""
    empty = [leaf._replace(variable=leaf.variable.type()) for leaf in leaves]
    placed = {leaf.variable: place.variable for leaf, place in zip(leaves, empty, strict=True)}
    return copy(outputs, placed), empty


def all_rows(
    values: Mapping[str, Variable], terms: Mapping[str, Variable], num_rows: int
) -> tuple[GraphFunction, list[np.ndarray]]:
    """PyMC's graph of all observations as it is, as a function of values and data, and the data."""
    leaves, arrays = find_leaves(list(terms.values()), num_rows)
    inputs = {leaf.variable: leaf.variable.type() for leaf in leaves}
    function = GraphFunction([*values.values(), *inputs.values()], copy(list(terms.values()), inputs))
    return function, [np.moveaxis(arrays[leaf.name], 0, leaf.axis) for leaf in leaves]


def whole(values: Mapping[str, Variable], variables: Mapping[str, Variable]) -> Callable[[Params], dict[str, Array]]:
    """Variables that depend on no row, as a function of the parameters."""
    names, function = list(variables), GraphFunction(values.values(), variables.values())
    return lambda params: dict(zip(names, function(*(params[name] for name in values)), strict=True))


# -- PyTensor and JAX --------------------------------------------------------------------------------------------------


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings that 64 bits, which PyTensor asks for everywhere, are 32, and that checks are left out."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*truncated to dtype")
        warnings.filterwarnings("ignore", "Skipping .*", UserWarning)
        yield


class GraphFunction:
    """A graph as a function for JAX; it is translated when it is first called, and pickled as a graph."""

    def __init__(self, inputs: Iterable[Variable], outputs: Iterable[Variable]):
        self.inputs, self.outputs = list(inputs), list(outputs)

    def __call__(self, *arguments: Any) -> Sequence[Array]:
        """The outputs, in the precision that JAX had at the first call."""
        with quiet():
            return self._translated(*(jnp.asarray(each) for each in arguments))

    def __getstate__(self) -> dict[str, Any]:
        return {"inputs": self.inputs, "outputs": self.outputs}

    @cached_property
    def _translated(self) -> Callable[..., Sequence[Array]]:
        double = jax.config.read("jax_enable_x64")
        try:
            linked = require("pymc.sampling.jax", PURPOSE)  # it sets JAX to 64 bits when it is imported
        finally:
            jax.config.update("jax_enable_x64", double)
        with quiet(), jax.ensure_compile_time_eval():  # the first call may be traced
            return linked.get_jaxified_graph(inputs=self.inputs, outputs=self.outputs)


def find_leaves(outputs: Sequence[Variable], num_rows: int) -> tuple[list[RowLeaf], dict[str, np.ndarray]]:
    """The data of the rows in a graph, and their arrays by name, with the rows along the first axis."""
    leaves: list[RowLeaf] = []
    arrays: dict[str, np.ndarray] = {}
    named_first = sorted(inputs_of(outputs), key=lambda each: (each.name is None, str(each.name)))
    for variable in named_first:
        array = data_of(variable)
        if array is None or num_rows not in array.shape:
            continue
        axis = array.shape.index(num_rows)
        array = np.moveaxis(array, axis, 0)
        name = next((name for name, other in arrays.items() if _equal(array, other)), None)
        if name is None:
            name = variable.name or f"{UNNAMED}{len(arrays)}"
            name = name if name not in arrays else f"{name}_{len(arrays)}"
            arrays[name] = array
        leaves.append(RowLeaf(variable, name, axis))
    return leaves, arrays


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)


def fold(outputs: Sequence[Variable]) -> list[Variable]:
    """The graph with everything that depends on data alone evaluated, except what acts on each row by itself.

    After that, means and scales of columns that are computed in the model are constants.
    """
    constant = require("pytensor.tensor", PURPOSE).constant
    memo: dict[Variable, Variable] = {}
    fixed = {each for each in inputs_of(outputs) if data_of(each) is not None}
    nodes = toposort(outputs)
    indices = {each for node in nodes if is_indexing(node) for each in node.inputs[1:]}
    for node in nodes:
        known = all(each in fixed or hasattr(each, "data") for each in node.inputs)
        if known:
            fixed.update(node.outputs)
        rowwise = type(node.op).__name__ in _ROWWISE and not indices.intersection(node.outputs)
        if known and not rowwise and not is_check(node):
            for each in node.outputs:
                value = evaluate(copy([each], memo)[0])
                if np.all(np.isfinite(value)):  # a density may be 0; data may not be infinite
                    memo[each] = constant(value, name=each.name)
    return copy(outputs, memo)


def indexed_by_rows(graph: TermGraph) -> dict[str, str]:
    """The free variables of which each row uses the entries of its group, with the name of the index."""
    names = {leaf.variable: leaf.name for leaf in graph.leaves}
    found = {}
    for node in toposort(list(graph.rows.values())):
        if is_indexing(node):
            index = [names[each] for each in inputs_of(node.inputs[1:]) if each in names]
            base = inputs_of(node.inputs[:1])
            found.update({name: index[0] for name, value in graph.values.items() if index and value in base})
    return found


# -- PyMC's transforms to the real line, as `sc.transforms` ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PymcTransform(Transform):
    """A transform of PyMC; it may depend on other variables, as the bounds of pm.Uniform("u", 0, top)."""

    name: str
    maps: tuple[Callable[..., Sequence[Array]], ...] = field(repr=False)
    """To the user's units, back, and the log-Jacobian: functions of the value and of the variables in `depends_on`."""
    depends_on: tuple[str, ...] = ()
    others: tuple[Any, ...] = field(default=(), repr=False)
    axis: int | None = None
    """For the value of one group: the axis of the groups, which it does not have."""

    @property
    def domain(self) -> str:  # type: ignore[override]
        """A description of the set, for messages."""
        return f"the support of the variable; PyMC's transform is {self.name}"

    @property
    def functions(self) -> tuple[Callable[[Params], Any], ...]:
        """The other variables."""
        return tuple(map(itemgetter, self.depends_on))

    def at(self, params: Params) -> Self:
        """With these values of the other variables."""
        return replace(self, others=tuple(params[name] for name in self.depends_on))

    def forward(self, u: Array) -> Array:
        """To the user's units (`backward` in PyMC)."""
        return self._mapped(0, u)

    def inverse(self, x: Array) -> Array:
        """To the real line."""
        return self._mapped(1, x)

    def log_det(self, u: Array) -> Array:
        """PyMC's log-Jacobian."""
        u = u if self.axis is None else jnp.expand_dims(u, self.axis)
        return jnp.sum(self.maps[2](u, *self.others)[0])

    def _mapped(self, way: int, x: Array) -> Array:
        if self.axis is None:
            return self.maps[way](x, *self.others)[0]
        return jnp.squeeze(self.maps[way](jnp.expand_dims(x, self.axis), *self.others)[0], self.axis)

    def contains(self, x: Array) -> Array:
        """The way to the real line and back exists."""
        u = self.inverse(x)
        return jnp.all(jnp.isfinite(u)) & jnp.allclose(self.forward(u), x, rtol=1e-3, atol=1e-3)


def find_transform(
    model: Any, rv: Variable, values: Mapping[str, Variable], grouping: Grouping | None = None
) -> PymcTransform | None:
    """PyMC's transform of a free variable, or of the value of one group; None where it has none."""
    transform = model.rvs_to_transforms[rv]
    if transform is None:
        return None
    real, value = model.rvs_to_values[rv].type(), values[rv.name].type()
    graphs = [
        transform.backward(real, *rv.owner.inputs),
        transform.forward(value, *rv.owner.inputs),
        transform.log_jac_det(real, *rv.owner.inputs),
    ]
    graphs = copy(graphs, {other: values[other.name] for other in model.free_RVs})
    axis = None
    if grouping is not None:
        axis, ends = grouping.axes[rv.name], (real, value)
        one, also = (of_one_group({rv.name: end}, grouping)[rv.name] for end in ends)
        graphs = copy(graphs, {real: one, value: also}, {grouping.size: 1})
        real, value = one, also
    needed = inputs_of(graphs)
    others = tuple(name for name, other in values.items() if other in needed)
    inputs = [[start, *(values[name] for name in others)] for start in (real, value, real)]
    maps = tuple(GraphFunction(given, [graph]) for given, graph in zip(inputs, graphs, strict=True))
    return PymcTransform(type(transform).__name__, maps, others, axis=axis)
