"""The checksum of arrays: every word, its place and the length count."""

import numpy as np
import pytest

from scirocco._checksum import WIDTH, checksum

pytestmark = pytest.mark.unit


def test_every_bit_counts(seed):
    words = np.random.default_rng(seed).integers(0, 2**63, 2 * WIDTH + 3, dtype=np.uint64)
    was = checksum(words)
    for place in range(0, len(words), 13):
        for bit in (0, 31, 63, place % 64):
            words[place] ^= np.uint64(1) << np.uint64(bit)
            assert checksum(words) != was
            words[place] ^= np.uint64(1) << np.uint64(bit)
    assert checksum(words) == was


def test_places_and_lengths_count(seed):
    words = np.random.default_rng(seed).integers(0, 2**63, 4 * WIDTH, dtype=np.uint64)
    blocks = words.reshape(4, WIDTH)
    different = [words, words[::-1].copy(), blocks[[1, 0, 2, 3]].ravel(), np.roll(words, 1), words[:-1], words[:0]]
    different += [np.zeros(n, np.uint8) for n in (1, 2, 8 * WIDTH, 8 * WIDTH + 1, 16 * WIDTH)]
    assert len({checksum(array) for array in different}) == len(different)


def test_it_goes_on_from_an_earlier_one(seed):
    pieces = np.random.default_rng(seed).normal(size=(3, 5_000)).astype(np.float32)
    crc = 0
    for piece in pieces:
        crc = checksum(piece, crc)
    assert crc == checksum(pieces[2], checksum(pieces[1], checksum(pieces[0]))) != checksum(pieces[0])
