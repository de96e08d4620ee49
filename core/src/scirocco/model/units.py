"""Between the real line, where samplers move, and the user's units: the transforms of all parameters of a model.

A transform may depend on other parameters. On which is read from what JAX traces of its functions; parameters are then
evaluated in an order in which those that others depend on come first, otherwise in the order of the leaves.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco.errors import InvalidValueError
from scirocco.model.checks import trace, used_inputs
from scirocco.transforms import Transform
from scirocco.types import Array, Params, PyTree


def is_leaf(value: Any) -> bool:
    """Whether this is an entry of `transforms`, not a node."""
    return value is None or isinstance(value, Transform)


def leafwise(transforms: PyTree, params: Params) -> list[Transform | None]:
    """The transform of each leaf of the parameters, None for those that are unconstrained or not named."""
    if transforms is None or isinstance(transforms, Transform):
        return [transforms] * len(jax.tree.leaves(params))
    if isinstance(transforms, dict) and isinstance(params, dict):
        for name in transforms:
            if name not in params:
                raise InvalidValueError(
                    f"`transforms` names {name!r}, which is not a parameter.{_suggestion(name, list(params))}"
                )
        transforms = {name: transforms.get(name) for name in params}
    elif isinstance(params, dict):
        raise InvalidValueError(
            f"`transforms` is a {type(transforms).__name__}, but the parameters are a dict: name those that are "
            f"constrained, e.g. {{{next(iter(params))!r}: sc.transforms.positive}}. The parameters are "
            f"{sorted(params)}."
        )
    parts, node = jax.tree.flatten(transforms, is_leaf=lambda value: value is not transforms)
    try:
        below = node.flatten_up_to(params)  # type: ignore[attr-defined]
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidValueError(
            f"`transforms` has the structure {jax.tree.structure(transforms, is_leaf=is_leaf)}, which does not match "
            f"the parameters {jax.tree.structure(params)}. Give one value for all, or one for each named parameter."
        ) from error
    return [found for pair in zip(parts, below, strict=True) for found in leafwise(*pair)]


def _suggestion(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(str(name), [str(each) for each in known], 1)
    return (f" Did you mean {close[0]!r}?" if close else "") + f" The parameters are {sorted(known)}."


def constrain(transforms: PyTree, position: Params) -> Params:
    """From the real line to the user's units."""
    leaves, treedef = jax.tree.flatten(position)
    for index, transform in _in_order(leafwise(transforms, position), leaves, treedef, forward=True):
        leaves[index] = _forward(transform, leaves[index])
    return jax.tree.unflatten(treedef, leaves)


def _forward(transform: Transform, u: Array) -> Array:
    """In the precision of u, whatever that of the parameters on which the transform depends."""
    return transform.forward(u).astype(jnp.result_type(u))


def log_det(transforms: PyTree, position: Params) -> Array:
    """Log |d constrain / d position|: the sum over the parameters, because the matrix is triangular."""
    real, treedef = jax.tree.flatten(position)
    leaves, terms = list(real), []
    for index, transform in _in_order(leafwise(transforms, position), leaves, treedef, forward=True):
        leaves[index] = _forward(transform, real[index])
        terms.append(transform.log_det(real[index]))
    return jnp.asarray(sum(terms))


def unconstrain(transforms: PyTree, params: Params) -> Params:
    """From the user's units to the real line."""
    leaves, treedef = jax.tree.flatten(params)
    found = list(leaves)
    for index, transform in _in_order(leafwise(transforms, params), leaves, treedef, forward=False):
        found[index] = transform.inverse(leaves[index])
    return jax.tree.unflatten(treedef, found)


def check_domain(transforms: PyTree, params: Params) -> None:
    """Raise an error if a starting value is outside its transform's domain."""
    names, (leaves, treedef) = _tree.leaf_names(params), jax.tree.flatten(params)
    for index, transform in _in_order(leafwise(transforms, params), leaves, treedef, forward=False):
        name, leaf = names[index], leaves[index]
        try:
            inside = bool(transform.contains(leaf))
        except InvalidValueError as error:
            raise InvalidValueError(f"`transforms` of `{name}`: {error}") from error
        if not inside:
            value = np.asarray(leaf).tolist() if leaf.size <= 8 else f"{leaf.size} numbers"
            raise InvalidValueError(
                f"the starting value of `{name}` ({value}) is outside its transform's domain ({transform.domain})."
            )
        back = jax.eval_shape(lambda x, t=transform: t.forward(t.inverse(x)), leaf)
        if back.shape != leaf.shape:
            raise InvalidValueError(
                f"`transforms` of `{name}`: what it depends on must be a number or have the shape {leaf.shape} of the "
                f"parameter; with it, the parameter has shape {back.shape}."
            )


def _in_order(
    found: list[Transform | None], leaves: list[Any], treedef: Any, *, forward: bool
) -> Iterator[tuple[int, Transform]]:
    """Index and transform of each constrained leaf, with the values of those it depends on.

    `leaves` is read when a transform is due: the caller of `forward` replaces the leaves that come before.
    """
    constrained = [(index, transform) for index, transform in enumerate(found) if transform is not None]
    if not any(transform.functions for _, transform in constrained):
        yield from constrained
        return
    shapes = [
        jax.eval_shape(transform.forward, leaf) if forward and transform and not transform.functions else leaf
        for transform, leaf in zip(found, leaves, strict=True)
    ]
    like = jax.tree.unflatten(treedef, shapes)
    known = {index for index, transform in enumerate(found) if transform is None}
    waiting = {index: _used(transform, like) for index, transform in constrained}
    while waiting:
        ready = [index for index, used in waiting.items() if used <= known]
        if not ready:
            names = _tree.leaf_names(like)
            cycle = ", ".join(f"`{names[index]}`" for index in waiting)
            raise InvalidValueError(
                f"the transforms of {cycle} depend on each other or on their own parameter, so none can be evaluated "
                "first. Let each depend only on parameters that do not depend on it."
            )
        index = ready[0]
        del waiting[index]
        transform = found[index]
        assert transform is not None
        if transform.functions:
            values = [
                leaf if place in known or not forward else jnp.zeros(jnp.shape(shape), jnp.result_type(shape))
                for place, (leaf, shape) in enumerate(zip(leaves, shapes, strict=True))
            ]
            transform = transform.at(jax.tree.unflatten(treedef, values))
        yield index, transform
        known.add(index)


def _used(transform: Transform, params: Params) -> set[int]:
    """The leaves of the parameters that the functions of a transform use."""
    if not transform.functions:
        return set()

    def values(tree: Params) -> list[Array]:
        return [jnp.asarray(function(tree)) for function in transform.functions]

    trace(values, "a function in `transforms`", params)
    graph = jax.make_jaxpr(values)(params).jaxpr
    return {index for index, used in enumerate(used_inputs(graph, [True] * len(graph.outvars))) if used}
