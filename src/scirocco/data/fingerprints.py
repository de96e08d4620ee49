"""Fingerprints of data: every byte counts, at the speed of memory.

A fingerprint is made of the shapes, the dtypes and a checksum for every mebibyte, and has 32 hexadecimal digits.
Versions before 0.2 read 64 rows (256 numbers of a corpus) and wrote 16 digits: `like` makes one by the rule of the
stored one, so that their runs can be resumed.
"""

from __future__ import annotations

import contextvars
import hashlib
import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from scirocco._checksum import checksum

NEWEST = "0" * 32
"""A fingerprint by the rule of this version, for `like`."""
_T = TypeVar("_T")
_BLOCK = 1 << 20
_MANY = 64
_THREADS = 4
_BY_SAMPLE = contextvars.ContextVar("fingerprints by a sample of rows", default=False)


def like(was: object, make: Callable[[], _T]) -> _T:
    """The result of `make`, with fingerprints by the rule that `was` (one or several of them) was made by."""
    token = _BY_SAMPLE.set(re.search("[0-9a-f]{32}", str(was)) is None)
    try:
        return make()
    finally:
        _BY_SAMPLE.reset(token)


def by_sample() -> bool:
    """Whether the rule of versions before 0.2 is wanted."""
    return _BY_SAMPLE.get()


def shortened(content: bytes) -> str:
    """The hash of a description that contains fingerprints."""
    return hashlib.sha256(content).hexdigest()[: 16 if by_sample() else 32]


def of_arrays(head: str, arrays: Iterable[tuple[str, np.ndarray]], num_sampled: int) -> str:
    """The fingerprint of named arrays.

    Parameters
    ----------
    head
        The beginning of the description.
    arrays
        A description of each array, and the array.
    num_sampled
        The number of rows that versions before 0.2 read.
    """
    content = bytearray(head.encode())
    for words, array in arrays:
        content += words.encode()
        if by_sample():
            rows = np.unique(np.linspace(0, len(array) - 1, num_sampled).astype(np.int64))
            content += np.ascontiguousarray(array[rows]).tobytes()
        else:
            content += _checksums(array)
    return shortened(bytes(content))


def _checksums(array: np.ndarray) -> bytes:
    """All bytes of a small array; of a large one a checksum for every mebibyte (NumPy lets other threads run)."""
    if array.nbytes <= _BLOCK:
        return np.ascontiguousarray(array).tobytes()
    step = max(1, _BLOCK // (array.nbytes // len(array)))
    starts = range(0, len(array), step)

    def one(start: int) -> int:
        return checksum(np.ascontiguousarray(array[start : start + step]))

    if len(starts) < _MANY:
        crcs = list(map(one, starts))
    else:
        with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
            crcs = list(pool.map(one, starts, chunksize=16))
    return np.array(crcs, "<u4").tobytes()
