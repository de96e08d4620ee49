"""Lazy imports of the compiled kernels."""

from __future__ import annotations

import functools
from typing import Any

from scirocco import _extras


@functools.cache
def collapsed_kernels() -> Any:
    """Kernels of the collapsed sampler."""
    _extras.require("numba", "a Dirichlet-process mixture")
    from scirocco_latent.dp import _collapsed

    return _collapsed


@functools.cache
def slice_kernels() -> Any:
    """Kernels of the slice sampler."""
    _extras.require("numba", "a Dirichlet-process mixture")
    from scirocco_latent.dp import _slices

    return _slices


@functools.cache
def row_kernels(kind: str) -> Any:
    """`sweep`, `tally` and `allocate`, the loops over rows of a family."""
    _extras.require("numba", "a Dirichlet-process mixture")
    from scirocco_latent.dp import _counts_rows, _normal_rows

    return _counts_rows if kind == "multinomial" else _normal_rows


@functools.cache
def order_kernels() -> Any:
    """Kernels of random row orders."""
    _extras.require("numba", "a Dirichlet-process mixture")
    from scirocco_latent.dp import _common

    return _common
