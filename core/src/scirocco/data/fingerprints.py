"""Fingerprints of data: every byte counts, at the speed of memory.

A fingerprint is made of the shapes, the dtypes and a checksum for every mebibyte, and has 32 hexadecimal digits.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from scirocco._checksum import checksum
from scirocco.data.sizes import READING

_BLOCK = 1 << 20  # bytes hashed at a time
_THREADS = 4  # that hash at once


def shortened(content: bytes) -> str:
    """The hash of a description that contains fingerprints."""
    return hashlib.sha256(content).hexdigest()[:32]


def of_arrays(head: str, arrays: Iterable[tuple[str, np.ndarray]]) -> str:
    """The fingerprint of named arrays.

    Parameters
    ----------
    head
        The beginning of the description.
    arrays
        A description of each array, and the array.
    """
    content = bytearray(head.encode())
    for words, array in arrays:
        content += words.encode() + _checksums(array)
    return shortened(bytes(content))


def _checksums(array: np.ndarray) -> bytes:
    """All bytes of a small array; of a large one a checksum for every mebibyte (NumPy lets other threads run)."""
    if array.nbytes <= _BLOCK:
        return np.ascontiguousarray(array).tobytes()
    step = max(1, _BLOCK // (array.nbytes // len(array)))
    starts = range(0, len(array), step)

    def one(start: int) -> int:
        return checksum(np.ascontiguousarray(array[start : start + step]))

    if len(starts) < READING.threaded_blocks:
        crcs = list(map(one, starts))
    else:
        with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
            crcs = list(pool.map(one, starts, chunksize=16))
    return np.array(crcs, "<u4").tobytes()
