"""Type aliases for annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import numpy as np

Array: TypeAlias = jax.Array
ArrayLike: TypeAlias = jax.Array | np.ndarray | float | int
Key: TypeAlias = jax.Array
"""A typed key, as returned by `jax.random.key`."""
PyTree: TypeAlias = Any
Params: TypeAlias = PyTree
"""The parameters: any pytree of floating-point arrays."""
Data: TypeAlias = PyTree
"""The data: a pytree of arrays with one common first axis, the rows."""
Rows: TypeAlias = PyTree
"""Some rows of the data: the same pytree with a shorter first axis."""
Datum: TypeAlias = PyTree
"""One row: the same pytree without the first axis."""
LogLikelihood: TypeAlias = Callable[[Params, Datum], Any]
LogPrior: TypeAlias = Callable[[Params], Any]
