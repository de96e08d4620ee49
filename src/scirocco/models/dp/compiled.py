"""The compiled part, imported when it is first needed."""

from __future__ import annotations

from typing import Any

from scirocco import _extras


def collapsed_kernels() -> Any:
    """Labels given labels."""
    _extras.require("numba", "a Dirichlet-process mixture")
    from scirocco.models.dp import _collapsed

    return _collapsed


def slice_kernels() -> Any:
    """Sticks, components and slices."""
    _extras.require("numba", "a Dirichlet-process mixture")
    from scirocco.models.dp import _slices

    return _slices


def rows_at(first: int, num_rows: int, seed: Any, out: Any) -> None:
    """Fill `out` with rows of a random order of all, see `_order`."""
    _extras.require("numba", "a Dirichlet-process mixture")
    from scirocco.models.dp import _order

    _order.rows_at(first, num_rows, *seed, out)
