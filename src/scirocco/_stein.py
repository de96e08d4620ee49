"""The Stein kernel, written once for NumPy and JAX arrays."""

from __future__ import annotations

from types import ModuleType
from typing import Any

KERNELS = ("imq", "gaussian")


def stein_kernel(xp: ModuleType, x: Any, s: Any, y: Any, t: Any, c: Any, kernel: str = "imq") -> Any:
    r"""k₀(x_i, y_j) for all pairs of rows, where s and t are ∇ log p at x and y; by products of matrices.

    .. math:: k_0(x, y) = s·t k + s·∇_y k + t·∇_x k + \operatorname{tr} ∇_x ∇_y k

    with k = (c² + |x - y|²)^(-1/2) for "imq" and exp(-|x - y|²/(2c²)) for "gaussian". `xp` is `numpy` or `jax.numpy`.
    """
    dimension = x.shape[1]
    square = xp.maximum((x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1) - 2.0 * (x @ y.T), 0.0)
    # (s - t)·(x - y)
    along = (s * x).sum(axis=1)[:, None] + (t * y).sum(axis=1) - s @ y.T - x @ t.T
    both = s @ t.T
    if kernel == "gaussian":
        value = xp.exp(square * (-0.5 / c**2))
        return value * (both + along / c**2 + dimension / c**2 - square / c**4)
    inverse = 1.0 / (c**2 + square)  # k = inverse^½; k' = -½ inverse^(3/2), and so on
    return xp.sqrt(inverse) * (both + inverse * (along + dimension - 3.0 * square * inverse))
