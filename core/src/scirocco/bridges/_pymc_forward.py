"""New observations of a PyMC model: its own random variables, drawn by PyTensor on the host, some rows at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scirocco._extras import require
from scirocco.bridges._common import said
from scirocco.bridges._pymc_graph import RowLeaf, Terms, empty_leaves, find_leaves, fold
from scirocco.bridges._pymc_walk import PURPOSE, Variable, compiled, copy, inputs_of
from scirocco.errors import InvalidValueError
from scirocco.run.predicting import HostFunction
from scirocco.types import Params, Rows


class DrawnGroups(NamedTuple):
    """DrawnGroups of rows whose variables are integrated out; new observations draw them again."""

    column: str
    """The column of the data with the label of each row's group, ..."""
    labels: np.ndarray
    """... all labels, in the order of the model, ..."""
    codes: np.ndarray
    """... and the number of each row's group, as the model uses it."""


class Forward(HostFunction):
    """`forward(params, rows, first, seed)`: the observed variables by name, drawn again. It refers to no data of rows.

    Free variables that are not among the parameters are those of rows or groups: they are drawn, too, the same for all
    rows of a group.
    """

    def __init__(
        self,
        values: Mapping[str, Variable],
        drawn: Mapping[str, Variable],
        seen: Mapping[str, Variable],
        leaves: Sequence[RowLeaf],
        fixed: Mapping[str, np.ndarray],
        num_rows: int,
        of_groups: frozenset[Variable],
        groups: tuple[str, np.ndarray] | None,
    ):
        self.values, self.drawn, self.seen = dict(values), dict(drawn), dict(seen)
        self.leaves, self.num_rows, self.groups = list(leaves), num_rows, groups
        self.fixed = dict(fixed)
        """What is the same for all rows, by name: one row of it."""
        generator = require("pytensor.tensor.random.type", PURPOSE).RandomType
        found = [each for each in inputs_of(list(drawn.values())) if isinstance(each.type, generator)]
        self.generators = {each: each in of_groups for each in found}
        """Whether each belongs to variables of groups, which are the same in all chunks of rows."""
        self._functions: dict[tuple[bool, int], Any] = {}

    def __call__(self, params: Params, rows: Rows, first: int, seed: Sequence[int]) -> dict[str, np.ndarray]:
        """See `HostFunction`."""
        length, count = len(next(iter(rows.values()))), len(next(iter(params.values())))
        columns, function = self._columns(rows, length), self._function(True, length)
        given = [np.asarray(params[name], each.dtype) for name, each in self.values.items()]
        found: list[list[np.ndarray]] = []
        for draw in range(count):
            own = [
                np.random.default_rng([*seed, draw, place, 0 if shared else first + 1])
                for place, shared in enumerate(self.generators.values())
            ]
            try:
                found.append(function(*(each[draw] for each in given), *columns, *own))
            except Exception as error:
                raise self._failure(error) from error
        return {
            name: np.stack([np.asarray(each[place], np.float64) for each in found], axis=-1)
            for place, name in enumerate(self.drawn)
        }

    def observed(self, rows: Rows) -> dict[str, np.ndarray]:
        """What was observed in these rows, by name."""
        length = len(next(iter(rows.values())))
        found = self._function(False, length)(*self._columns(rows, length))
        return dict(zip(self.seen, map(np.asarray, found), strict=True))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_functions": {}}

    def _failure(self, error: Exception) -> InvalidValueError:
        return InvalidValueError(
            f"PyMC could not draw {', '.join(f'`{name}`' for name in self.drawn)} for some of the rows: {said(error)} "
            "Pass a function simulate(params, row, key) that draws the outcome of one row."
        )

    def _columns(self, rows: Rows, length: int) -> list[np.ndarray]:
        """The data of these rows, one array for each name."""
        found = []
        for name, leaf in {leaf.name: leaf for leaf in self.leaves}.items():
            if name in self.fixed:
                array = np.repeat(self.fixed[name], length, axis=0)
            elif self.groups is not None and name == self.groups[0]:
                array = self._numbers(np.asarray(rows[name]))
            elif name in rows:
                array = np.asarray(rows[name])
            else:
                raise InvalidValueError(f"the rows have no column `{name}`; they have {sorted(rows)}.")
            shape = (length, *np.delete(leaf.variable.type.shape, leaf.axis))
            shape = tuple(-1 if size is None else int(size) for size in shape)
            found.append(array.reshape(shape).astype(leaf.variable.dtype, copy=False))
        return found

    def _numbers(self, labels: np.ndarray) -> np.ndarray:
        """The numbers of groups by their labels."""
        assert self.groups is not None
        column, known = self.groups
        order = np.argsort(known)
        places = order[np.searchsorted(known, labels, sorter=order).clip(max=len(known) - 1)]
        if not np.array_equal(known[places], labels):
            missing = labels[known[places] != labels][0]
            raise InvalidValueError(f"column `{column}` has the group {missing!r}, which the model does not.")
        return places

    def _function(self, drawing: bool, length: int) -> Any:
        if (drawing, length) not in self._functions:
            tensor = require("pytensor.tensor", PURPOSE)
            inputs: dict[str, Variable] = {}
            placed: dict[Variable, Variable] = {}
            for leaf in self.leaves:
                shape = [size for axis, size in enumerate(leaf.variable.type.shape) if axis != leaf.axis]
                own = tensor.TensorType(leaf.variable.dtype, shape=(length, *shape))
                placed[leaf.variable] = tensor.moveaxis(inputs.setdefault(leaf.name, own()), 0, leaf.axis)
            outputs = copy(list((self.drawn if drawing else self.seen).values()), placed, {self.num_rows: length})
            first = [*self.values.values(), *inputs.values()] if drawing else [*inputs.values()]
            self._functions[drawing, length] = compiled([*first, *(self.generators if drawing else ())], outputs)
        return self._functions[drawing, length]


def find_forward(
    model: Any,
    values: Mapping[str, Variable],
    terms: Terms,
    data: Mapping[str, np.ndarray],
    num_rows: int,
    groups: DrawnGroups | None = None,
) -> Forward | None:
    """How new observations of the rows are drawn, given the values of these variables; None if it is not known."""
    observed = [rv for rv in model.observed_RVs if rv.name in terms.rows]
    if not observed or len(observed) < len(terms.rows):  # a potential is a density only
        return None
    names = [rv.name for rv in observed]
    tensor = require("pytensor.tensor.random.type", PURPOSE)
    free = [rv for rv in model.free_RVs if rv.name not in values]
    shared = () if groups is None else (each for rv in free for each in inputs_of(rv.owner.inputs))
    kept = {rv: values[rv.name] for rv in model.free_RVs if rv.name in values}
    outputs = fold(copy([*observed, *(model.rvs_to_values[rv] for rv in observed)], kept))
    generators = {each: each.type() for each in inputs_of(outputs) if isinstance(each.type, tensor.RandomType)}
    of_groups = frozenset(generators[each] for each in shared if each in generators)
    outputs = copy(outputs, generators)
    leaves, arrays = find_leaves(outputs, num_rows)
    known = dict(data) if groups is None else {**data, groups.column: groups.codes}
    renamed, fixed = {}, {}
    for name, array in arrays.items():
        found = next((other for other, own in known.items() if _same(array, own)), None)
        if found is None and not _same(array, np.repeat(array[:1], num_rows, axis=0)):
            return None
        renamed[name] = f"fixed {name}" if found is None else found
        if found is None:
            fixed[renamed[name]] = array[:1].copy()
    leaves = [leaf._replace(name=renamed[leaf.name]) for leaf in leaves]
    outputs, leaves = empty_leaves(outputs, leaves)
    drawn, seen = (dict(zip(names, part, strict=True)) for part in (outputs[: len(names)], outputs[len(names) :]))
    labels = None if groups is None else (groups.column, groups.labels)
    return Forward(values, drawn, seen, leaves, fixed, num_rows, of_groups, labels)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two columns have the same numbers, as numbers of any type, and whatever their axes of length 1."""
    return a.size == b.size and np.array_equal(a.ravel(), b.ravel())
