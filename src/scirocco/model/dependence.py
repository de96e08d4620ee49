"""Which inputs of a traced function its outputs depend on."""

from __future__ import annotations

from typing import Any

from jax.extend.core import Literal


def used_inputs(graph: Any, wanted: list[bool]) -> list[bool]:
    """For each input of a jaxpr whether one of the wanted outputs needs it; looks into functions that are jitted."""
    pairs = zip(graph.outvars, wanted, strict=True)
    needed = {var for var, want in pairs if want and not isinstance(var, Literal)}
    for equation in reversed(graph.eqns):
        outputs = [var in needed for var in equation.outvars]
        if not any(outputs):
            continue
        inner = equation.params.get("jaxpr")
        if equation.primitive.name in ("pjit", "jit") and inner is not None:
            flags = used_inputs(inner.jaxpr, outputs)
        else:
            flags = [True] * len(equation.invars)
        needed.update(
            var
            for var, flag in zip(equation.invars, flags, strict=True)
            if flag and not isinstance(var, Literal)
        )
    return [var in needed for var in graph.invars]
