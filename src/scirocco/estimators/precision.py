"""The precision of the factors of matrix products on accelerators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.extend.core.primitives import custom_jvp_call_p, custom_vjp_call_p, dot_general_p, jit_p

if TYPE_CHECKING:
    from scirocco.estimators.base import Estimator

F = TypeVar("F", bound=Callable[..., Any])

PRECISIONS = ("float32", "bfloat16")
"""What a user can set."""
_PRECISION = "jax_default_matmul_precision"
_INLINED = {jit_p: "jaxpr", custom_jvp_call_p: "call_jaxpr", custom_vjp_call_p: "call_jaxpr"}
"""Functions that are called, by the name of their body; rules for derivatives have been applied before."""


def full_products(estimator: Estimator | None) -> contextlib.AbstractContextManager[Any]:
    """Products of matrices in full precision, except for estimates that are plain sums over a batch.

    Accelerators round the factors of products to about ten bits. The noise of a plain batch hides that, but in a
    difference of nearly equal gradients, or in an exact log density, it is an error. A precision that the user has set
    (`jax.default_matmul_precision`) is used for everything.
    """
    rounds = jax.default_backend() != "cpu" and getattr(jax.config, _PRECISION) is None
    if not rounds or estimator is None or estimator.core.looks_once:
        return contextlib.nullcontext()
    return jax.default_matmul_precision("float32")


def products_of(estimator: Estimator) -> contextlib.AbstractContextManager[Any]:
    """Products of matrices in the precision of an estimate: as its user has set it, or as in `full_products`."""
    if estimator.core.precision is None:
        return full_products(estimator)
    if estimator.core.precision != "float32" or jax.default_backend() == "cpu":  # a CPU never rounds
        return contextlib.nullcontext()
    return jax.default_matmul_precision("float32")


def in_precision(precision: str | None, function: F) -> F:
    """The function with the factors of its matrix products in bfloat16, if that is the precision, and sums in float32.

    The factors are converted before the product. The compiler offers such products (`BF16_BF16_F32`), but converts in
    each of them, and then cannot use its fastest kernels. A CPU has no such products.
    """
    if precision != "bfloat16" or jax.default_backend() == "cpu":
        return function

    def rounded(*arguments: Any) -> Any:
        program, out = jax.make_jaxpr(function, return_shape=True)(*arguments)
        found = _evaluate(program.jaxpr, program.consts, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(out), found)

    return rounded  # type: ignore[return-value]


def _evaluate(program: Jaxpr, consts: list[Any], arguments: list[Any]) -> list[Any]:
    """The results of a program with rounded factors."""
    values = dict(zip([*program.constvars, *program.invars], [*consts, *arguments], strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in program.eqns:
        primitive, params = equation.primitive, equation.params
        given = [read(atom) for atom in equation.invars]
        if primitive is dot_general_p and jnp.result_type(*given) == jnp.float32:
            params = params | {"precision": None, "preferred_element_type": jnp.dtype(jnp.float32)}
            found = [primitive.bind(*(factor.astype(jnp.bfloat16) for factor in given), **params)]
        elif primitive in _INLINED:
            body = params[_INLINED[primitive]]
            found = _evaluate(body.jaxpr, body.consts, given)
        else:
            made = primitive.bind(*given, **{name: _rounded_body(value) for name, value in params.items()})
            found = made if primitive.multiple_results else [made]
        values.update(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in program.outvars]


def _rounded_body(value: Any) -> Any:
    """A parameter of a loop, a branch, ...: if it is a program, with rounded factors."""
    if isinstance(value, tuple):
        parts = [_rounded_body(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, ClosedJaxpr):  # of newer versions of JAX, every program is one
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in value.jaxpr.invars]
        return jax.make_jaxpr(lambda *given: _evaluate(value.jaxpr, value.consts, list(given)))(*shapes)
    if isinstance(value, Jaxpr):
        body = _rounded_body(ClosedJaxpr(value, ()))
        return value if body.consts else body.jaxpr
    return value
