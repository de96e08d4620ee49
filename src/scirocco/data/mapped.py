"""Memory-mapped arrays (`np.load(path, mmap_mode="r")`): streamed where they are too large to be copied into memory."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np

from scirocco import _tree
from scirocco.data.arrays import ArraySource, as_arrays
from scirocco.data.system import available_memory
from scirocco.types import Data, PyTree, Rows

_SHARE = 0.25


class MappedSource:
    """Rows of memory-mapped arrays, read when they are needed; in the user's order, so not known to be shuffled."""

    shuffled = False

    def __init__(self, arrays: PyTree):
        self.arrays = as_arrays(arrays)
        self.num_rows: int = jax.tree.leaves(self.arrays)[0].shape[0]

    @property
    def row_spec(self) -> PyTree:
        """Shape and dtype of one row."""
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), self.arrays)

    def take(self, indices: np.ndarray) -> Rows:
        """The rows with these numbers, in this order."""
        return jax.tree.map(lambda leaf: np.take(leaf, indices, axis=0), self.arrays)

    def read(self, start: int, stop: int) -> Rows:
        """A contiguous stretch of rows."""
        return jax.tree.map(lambda leaf: np.array(leaf[start:stop]), self.arrays)

    def fingerprint(self) -> str:
        """Of shapes, dtypes and a sample of the rows."""
        return ArraySource(self.arrays).fingerprint()

    def stamp(self) -> str:
        """Sizes and times of change of the files."""
        files = sorted({str(name) for leaf in jax.tree.leaves(self.arrays) if (name := _file(leaf))})
        return repr([(name, (status := os.stat(name)).st_size, status.st_mtime_ns) for name in files])


def _file(leaf: Any) -> Any:
    """The file behind a map, or behind a view of one."""
    while leaf is not None and getattr(leaf, "filename", None) is None:
        leaf = getattr(leaf, "base", None)
    return getattr(leaf, "filename", None)


def worth_streaming(data: Data) -> bool:
    """Whether all arrays are memory maps, and too large to be copied: more than a quarter of the free memory."""
    leaves = jax.tree.leaves(data)
    if not leaves or not all(isinstance(leaf, np.memmap) for leaf in leaves):
        return False
    return _tree.nbytes(data) > _SHARE * available_memory()
