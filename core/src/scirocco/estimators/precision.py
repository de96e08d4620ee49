"""The precision of the factors of matrix products on accelerators."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:
    from scirocco.estimators.base import Estimator

PRECISIONS = {"float32": "float32", "bfloat16": "BF16_BF16_F32"}
"""What a user can set, and what JAX calls it: factors of so many digits, and sums in float32."""
_PRECISION = "jax_default_matmul_precision"
"""JAX's option for all products."""


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
    precision = estimator.core.traits.precision
    if precision is None:
        return full_products(estimator)
    if jax.default_backend() == "cpu":  # it never rounds
        return contextlib.nullcontext()
    return jax.default_matmul_precision(PRECISIONS[precision])
