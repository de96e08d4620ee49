"""The precision of the factors of matrix products on accelerators."""

from __future__ import annotations

import contextlib
import functools
import itertools
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
_SHORT_SUM, _LONGEST_DIVIDED = 31, 256
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


def in_precision(precision: str | None, function: F, by_columns: bool = False) -> F:
    """The function with the factors of its matrix products in bfloat16, if that is the precision, and sums in float32.

    The factors are converted before the product. The compiler offers such products (`BF16_BF16_F32`), but converts in
    each of them, and then cannot use its fastest kernels. A CPU has no such products.

    `by_columns`: the rows are read by columns (see `scirocco.data.batching.Batch`); products of rows and a vector are
    then divided into short sums.
    """
    if precision == "bfloat16" and jax.default_backend() != "cpu":
        return _with_products(function, _rounded)
    return _with_products(function, _in_short_sums) if by_columns else function


def _with_products(function: F, product: Callable[..., Any]) -> F:
    """The function with its matrix products replaced."""

    def replaced(*arguments: Any) -> Any:
        program, out = jax.make_jaxpr(function, return_shape=True)(*arguments)
        found = _evaluate(program.jaxpr, program.consts, jax.tree.leaves(arguments), product)
        return jax.tree.unflatten(jax.tree.structure(out), found)

    return replaced  # type: ignore[return-value]


def _rounded(primitive: Any, params: dict[str, Any], left: Any, right: Any) -> Any:
    if jnp.result_type(left, right) != jnp.float32:
        return primitive.bind(left, right, **params)
    params = params | {"precision": None, "preferred_element_type": jnp.dtype(jnp.float32)}
    return primitive.bind(left.astype(jnp.bfloat16), right.astype(jnp.bfloat16), **params)


def _in_short_sums(primitive: Any, params: dict[str, Any], left: Any, right: Any) -> Any:
    """Rows times a vector as several sums of few products.

    A GPU makes a sum of fewer than 32 numbers in the kernel that uses it, one thread for each row, which reads columns
    at the speed of the memory. Longer ones are kernels of their own, and slower: each is divided among threads.
    """
    (contracted, batches), length = params["dimension_numbers"], 0
    if (left.ndim == 1) != (right.ndim == 1) and len(contracted[0]) == 1 and not batches[0]:
        matrix, vector, axis = (
            (right, left, contracted[1][0]) if left.ndim == 1 else (left, right, contracted[0][0])
        )
        length = vector.shape[0] if axis == matrix.ndim - 1 else 0
    if not _SHORT_SUM < length <= _LONGEST_DIVIDED or left.dtype != jnp.float32 or right.dtype != left.dtype:
        return primitive.bind(left, right, **params)
    parts = -(-length // _SHORT_SUM)
    ends = [length * part // parts for part in range(parts + 1)]
    sums = [jnp.sum(matrix[..., a:b] * vector[a:b], axis=-1) for a, b in itertools.pairwise(ends)]
    return functools.reduce(jnp.add, sums)


def _evaluate(
    program: Jaxpr, consts: list[Any], arguments: list[Any], product: Callable[..., Any]
) -> list[Any]:
    """The results of a program with other products."""
    values = dict(zip([*program.constvars, *program.invars], [*consts, *arguments], strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in program.eqns:
        primitive, params = equation.primitive, equation.params
        given = [read(atom) for atom in equation.invars]
        if primitive is dot_general_p:
            found = [product(primitive, params, *given)]
        elif primitive in _INLINED:
            body = params[_INLINED[primitive]]
            found = _evaluate(body.jaxpr, body.consts, given, product)
        else:
            within = {name: _with_other_products(value, product) for name, value in params.items()}
            made = primitive.bind(*given, **within)
            found = made if primitive.multiple_results else [made]
        values.update(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in program.outvars]


def _with_other_products(value: Any, product: Callable[..., Any]) -> Any:
    """A parameter of a loop, a branch, ...: if it is a program, with other products."""
    if isinstance(value, tuple):
        parts = [_with_other_products(part, product) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, ClosedJaxpr):  # of newer versions of JAX, every program is one
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in value.jaxpr.invars]

        def body(*given: Any) -> list[Any]:
            return _evaluate(value.jaxpr, value.consts, list(given), product)

        return jax.make_jaxpr(body)(*shapes)
    if isinstance(value, Jaxpr):
        closed = _with_other_products(ClosedJaxpr(value, ()), product)
        return value if closed.consts else closed.jaxpr
    return value
