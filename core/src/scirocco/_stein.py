"""The Stein kernel, written once for NumPy and JAX arrays."""

from __future__ import annotations

from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from scirocco.types import Array, ArrayLike

Rows: TypeAlias = Array | np.ndarray


def stein_kernel(xp: ModuleType, x: Rows, s: Rows, y: Rows, t: Rows, c: ArrayLike) -> Any:
    r"""k₀(x_i, y_j) for all pairs of rows, where s and t are ∇ log p at x and y.

    .. math:: k_0(x, y) = s·t k + s·∇_y k + t·∇_x k + \operatorname{tr} ∇_x ∇_y k

    with k = (c² + |x - y|²)^(-1/2). `xp` is `numpy` or `jax.numpy`.

    All but the last few operations are three products of matrices: rows are extended so that a product yields
    |x - y|² or (s - t)·(x - y), constants included, and large arrays are read as few times as possible.
    """
    dimension = x.shape[1]
    one_x, one_y = xp.ones_like(x[:, :1]), xp.ones_like(y[:, :1])

    def product(left: list[Any], right: list[Any]) -> Any:
        return xp.concatenate(left, axis=1) @ xp.concatenate(right, axis=1).T

    def rows(a: Rows, b: Rows) -> Any:
        return (a * b).sum(axis=1)[:, None]

    both = s @ t.T
    # with u = 1/(c² + |x - y|²), k = u^½: k₀ = k (s·t + u ((s - t)·(x - y) + d - 3 |x - y|² u)), |x - y|² u = 1 - c² u
    square = product([-2.0 * x, rows(x, x) + c**2, one_x], [y, one_y, rows(y, y)])
    u = 1.0 / xp.maximum(square, c**2)  # rounding may give less
    along = product([-s, -x, rows(s, x) + (dimension - 3.0), one_x], [y, t, one_y, rows(t, y)])
    return xp.sqrt(u) * (both + u * (along + (3.0 * c**2) * u))
