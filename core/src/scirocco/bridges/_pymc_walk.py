"""PyTensor's graphs: their nodes, inputs and data, and copies of them with other inputs and lengths."""

from __future__ import annotations

from collections.abc import KeysView, Mapping, Sequence
from typing import Any

import numpy as np

from scirocco._extras import require

PURPOSE = "sc.from_pymc"
Variable = Any
"""A variable of a PyTensor graph."""
_LENGTHS_FROM = {"Alloc": 1, "AllocEmpty": 0, "Reshape": 1, "SpecifyShape": 1, "BroadcastTo": 1}
"""The operations whose inputs, from this one on, are lengths of axes."""


def toposort(outputs: Sequence[Variable]) -> list[Any]:
    """The nodes of a graph, inputs first."""
    return list(require("pytensor.graph.traversal", PURPOSE).toposort(outputs))


def inputs_of(outputs: Sequence[Variable]) -> KeysView[Variable]:
    """Constants, shared variables and free inputs of a graph, in its order."""
    below = dict.fromkeys(each for node in toposort(outputs) for each in node.inputs if each.owner is None)
    return (below | dict.fromkeys(each for each in outputs if each.owner is None)).keys()


def data_of(variable: Variable) -> np.ndarray | None:
    """The array in a constant or a shared variable, e.g. of `pm.Data`; None for others."""
    value = variable.get_value(borrow=True) if hasattr(variable, "get_value") else getattr(variable, "data", None)
    is_number = isinstance(value, (int, float, np.generic))
    return np.asarray(value) if is_number or isinstance(value, np.ndarray) else None


def evaluate(variable: Variable) -> Any:
    """The value of a variable that depends on data alone, without a compiler."""
    mode = require("pytensor.compile.mode", PURPOSE).Mode(linker="py", optimizer=None)
    return variable.eval(mode=mode)


def compiled(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Any:
    """A graph as a function of NumPy's arrays and generators, without a compiler."""
    pytensor = require("pytensor", PURPOSE)
    mode = require("pytensor.compile.mode", PURPOSE).Mode(linker="py", optimizer=None)
    return pytensor.function(list(inputs), list(outputs), mode=mode, on_unused_input="ignore")


def is_indexing(node: Any) -> bool:
    """Whether entries are taken by arrays of numbers."""
    return type(node.op).__name__.startswith("AdvancedSubtensor")


def is_random(node: Any) -> bool:
    """Whether the node draws from a distribution; its inputs are a generator, the shape and the parameters."""
    return isinstance(node.op, require("pytensor.tensor.random.op", PURPOSE).RandomVariable)


def is_check(node: Any) -> bool:
    return isinstance(node.op, require("pytensor.raise_op", PURPOSE).CheckAndRaise)


def copy(
    outputs: Sequence[Variable],
    placed: Mapping[Variable, Variable],
    lengths: Mapping[int, int] | None = None,
    index: frozenset[Variable] = frozenset(),
    *,
    inside: bool = False,
) -> list[Variable]:
    """The graph with some variables replaced; with `lengths`, axes of one length get another.

    An `index` of groups is left out where it is used, because there is one group. The graph `inside` an operation is
    copied as a whole. Checks of the values of parameters are left out, as PyMC does for JAX.
    """
    memo = dict(placed)
    for node in toposort(outputs):
        if all(each in memo for each in node.outputs):
            continue
        inputs = [memo.get(each, each) for each in node.inputs]
        first = _LENGTHS_FROM.get(type(node.op).__name__)
        if lengths is not None and first is not None:
            inputs[first:] = [_with_length(each, lengths) for each in inputs[first:]]
        elif lengths is not None and is_random(node):
            inputs[1] = _with_length(inputs[1], lengths)
        if is_check(node):
            memo[node.outputs[0]] = inputs[0]
        elif is_indexing(node) and index.intersection(node.inputs[1:]):
            memo[node.outputs[0]] = _of_the_group(node, inputs, index)
        elif lengths is not None and hasattr(node.op, "inner_outputs") and hasattr(node.op, "inline"):
            # an operation made of a graph, whose shapes are fixed
            inner = dict(zip(node.op.inner_inputs, inputs, strict=True))
            copied = copy(node.op.inner_outputs, inner, lengths, inside=True)
            memo.update(zip(node.outputs, copied, strict=True))
        elif inside or any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
            rebuilt = node.op.make_node(*inputs)
            for old, new in zip(node.outputs, rebuilt.outputs, strict=True):
                memo.setdefault(old, new)
    return [memo.get(each, each) for each in outputs]


def _of_the_group(node: Any, inputs: list[Variable], index: frozenset[Variable]) -> Variable:
    """x[index] for one row of the only group: a slice if possible, because derivatives of an index are scatters."""
    own = [old in index for old in node.inputs[1:]]
    at = _indices(node, [slice(0, 1) if mine else new for mine, new in zip(own, inputs[1:], strict=True)])
    others = [each for each in at if not isinstance(each, slice)]
    whole = sum(isinstance(each, slice) for each in at) - sum(own)
    if all(each.type.ndim == 0 for each in others) and not (others and whole):
        return inputs[0][tuple(at)]
    zero = require("pytensor.tensor", PURPOSE).constant(np.zeros(1, np.int64))
    rest = [zero if mine else new for mine, new in zip(own, inputs[1:], strict=True)]
    return node.op.make_node(inputs[0], *rest).outputs[0]


def _indices(node: Any, given: list[Any]) -> list[Any]:
    """The indices of the axes, which PyTensor writes in two ways."""
    written = getattr(node.op, "idx_list", None)
    if written is None:
        return [_as_slice(each) for each in given]
    return [
        slice(*(None if part is None else given[part] for part in (each.start, each.stop, each.step)))
        if isinstance(each, slice)
        else given[each]
        for each in written
    ]


def _as_slice(index: Any) -> Any:
    """A slice that is made in the graph, as Python's."""
    if isinstance(index, slice) or index.owner is None or type(index.owner.op).__name__ != "MakeSlice":
        return index
    ends = [None if each.type.__class__.__name__ == "NoneTypeT" else each for each in index.owner.inputs]
    return slice(*ends)


def _with_length(variable: Variable, lengths: Mapping[int, int]) -> Variable:
    """The graph of a length, or of a shape, with other numbers of rows and groups."""
    constant = require("pytensor.tensor", PURPOSE).constant
    placed = {}
    for each in inputs_of([variable]):
        value = data_of(each)
        if value is not None and value.dtype.kind in "iu" and np.isin(value, list(lengths)).any():
            new = np.array([lengths.get(int(number), int(number)) for number in value.ravel()])
            placed[each] = constant(new.reshape(value.shape).astype(value.dtype))
    return copy([variable], placed)[0]
