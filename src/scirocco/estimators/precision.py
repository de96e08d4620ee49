"""The precision of the factors of matrix products on accelerators."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.extend.core.primitives import dot_general_p, jit_p

from scirocco.data.tables import Summand, is_dense
from scirocco.types import Array, Key, Params, PyTree, Rows

if TYPE_CHECKING:
    from scirocco.estimators.base import Estimator

F = TypeVar("F", bound=Callable[..., Any])

PRECISIONS = ("float32", "bfloat16")
"""What a user can set."""
_SHORT_SUM, _LONGEST_DIVIDED = 31, 256
_PRECISION = "jax_default_matmul_precision"


def full_products(estimator: Estimator | None) -> contextlib.AbstractContextManager[Any]:
    """Products of matrices in full precision, except for estimates that are plain sums over a batch.

    Accelerators round the factors of products to about ten bits. The noise of a plain batch hides that, but in a
    difference of nearly equal gradients, or in an exact log density, it is an error. A precision that the user has set
    (`jax.default_matmul_precision`) is used for everything.
    """
    rounds = jax.default_backend() != "cpu" and getattr(jax.config, _PRECISION) is None
    if not rounds or estimator is None or estimator.core.traits.looks_once:
        return contextlib.nullcontext()
    return jax.default_matmul_precision("float32")


def products_of(estimator: Estimator) -> contextlib.AbstractContextManager[Any]:
    """Products of matrices in the precision of an estimate: as its user has set it, or as in `full_products`."""
    if estimator.core.traits.precision is None:
        return full_products(estimator)
    if estimator.core.traits.precision != "float32" or jax.default_backend() == "cpu":  # a CPU never rounds
        return contextlib.nullcontext()
    return jax.default_matmul_precision("float32")


def in_precision(precision: str | None, function: F) -> F:
    """The function with the factors of its matrix products in bfloat16, if that is the precision, and sums in float32.

    The factors are converted before the product. The compiler offers such products (`BF16_BF16_F32`), but converts in
    each of them, and then cannot use its fastest kernels. A CPU has no such products.
    """
    if precision != "bfloat16" or jax.default_backend() == "cpu":
        return function
    return _with_products(function, _rounded)


@dataclasses.dataclass(frozen=True)
class ShortSums:
    """A summand whose products of rows and a vector are divided into short sums: for rows that are read by columns.

    It has no further derivatives: functions with rules of their own are replaced by their bodies.
    """

    summand: Summand

    @property
    def dense(self) -> bool:
        """Whether the value of a row takes as many numbers as there are parameters."""
        return is_dense(self.summand)

    def total(
        self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None
    ) -> PyTree:
        """Σ_i w_i f(θ, x_i) over the rows."""
        return _with_products(self.summand.total, _in_short_sums)(position, rows, weights, key)

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        """f(θ, x_i) for each row."""
        return _with_products(self.summand.each, _in_short_sums)(position, rows, key)


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
        elif (body := _body_of(primitive, params)) is not None:
            found = _evaluate(body.jaxpr, body.consts, given, product)
        else:
            if product is _rounded:
                params = {name: _with_other_products(value, product) for name, value in params.items()}
            made = primitive.bind(*given, **params)
            found = made if primitive.multiple_results else [made]
        values.update(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in program.outvars]


def _body_of(primitive: Any, params: dict[str, Any]) -> ClosedJaxpr | None:
    """The program of a function that is called; rules for derivatives have been applied before."""
    body = params.get("jaxpr" if primitive is jit_p else "call_jaxpr")
    return body if body is None or isinstance(body, ClosedJaxpr) else ClosedJaxpr(body, ())


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
