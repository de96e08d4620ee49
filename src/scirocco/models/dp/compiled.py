"""The compiled part, imported when it is first needed."""

from __future__ import annotations

import functools
from typing import Any

from scirocco import _extras


@functools.cache
def collapsed_kernels() -> Any:
    """Labels given labels."""
    _extras.require("numba", "a Dirichlet-process mixture")
    from scirocco.models.dp import _collapsed

    return _collapsed


@functools.cache
def slice_kernels() -> Any:
    """Sticks, components and slices."""
    _extras.require("numba", "a Dirichlet-process mixture")
    from scirocco.models.dp import _slices

    return _slices


@functools.cache
def row_kernels(kind: str) -> Any:
    """`sweep`, `tally` and `allocate`, the loops over rows of a family."""
    _extras.require("numba", "a Dirichlet-process mixture")
    from scirocco.models.dp import _counts_rows, _normal_rows

    return _counts_rows if kind == "multinomial" else _normal_rows


@functools.cache
def order_kernels() -> Any:
    """Random orders of rows."""
    _extras.require("numba", "a Dirichlet-process mixture")
    from scirocco.models.dp import _common

    return _common
