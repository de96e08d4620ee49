"""Checksums of arrays at the speed of memory, three times that of a CRC-32."""

from __future__ import annotations

import zlib

import numpy as np

WIDTH = 2048
"""Words of 64 bits in a block."""


def _odd_numbers(count: int) -> np.ndarray:
    """Fixed random odd numbers (the generator splitmix64)."""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)


_FACTORS = _odd_numbers(WIDTH)


def checksum(array: np.ndarray, start: int = 0) -> int:
    """The checksum of a C-contiguous array, continued from that of earlier ones.

    The words of every block of 16 KiB are multiplied by fixed odd numbers and added modulo 2^64, so that no single
    changed word leaves the sum as it was; the result is the CRC-32 of these sums and of the bytes after the last block.
    """
    raw = np.frombuffer(array.data if array.size else b"", np.uint8)
    end = len(raw) // (8 * WIDTH) * 8 * WIDTH
    if end:
        sums = np.einsum("ij,j->i", raw[:end].view("<u8").reshape(-1, WIDTH), _FACTORS)  # `@`: half the speed
        start = zlib.crc32(sums.data, start)
    return zlib.crc32(raw[end:].data, start)
