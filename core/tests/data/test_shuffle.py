"""The shuffle is a permutation for every length, and uniform; the integer arithmetic under it is exact."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers
from scirocco.data import shuffle

pytestmark = pytest.mark.compile


@pytest.fixture(autouse=True, scope="module")
def _quick(quick_compiler):
    """Programs that run once."""


def random_words(seed, shape):
    return jnp.asarray(np.random.default_rng([seed, 11]).integers(0, 2**32, shape, dtype=np.uint32))


@jax.jit
@functools.partial(jax.vmap, in_axes=(0, None, None))
def orders_of(words, positions, length):
    """Orders for many words; the length is traced, so that one program serves every length."""
    return shuffle.random_order(words, positions, length)


def test_every_order_is_a_permutation(seed):
    words = random_words(seed, (8, 2))
    for length in [*range(1, 129), 65_537]:
        positions = jnp.arange(max(128, length))
        orders = np.asarray(orders_of(words, positions, length))[:, :length]
        np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(length), (8, 1)))


def test_one_entry_does_not_depend_on_which_others_are_asked_for(seed):
    words = random_words(seed, 2)
    whole = np.asarray(shuffle.random_order(words, jnp.arange(50), 50))
    some = jnp.array([49, 3, 17])
    np.testing.assert_array_equal(shuffle.random_order(words, some, 50), whole[np.asarray(some)])


@pytest.mark.law
@pytest.mark.parametrize("length", [2, 3, 5])
def test_every_permutation_is_equally_likely(length, seed):
    count = 400 * math.factorial(length)
    words = random_words(seed, (count, 2))
    orders = np.asarray(orders_of(words, jnp.arange(length), length))
    codes = orders @ length ** np.arange(length)
    _, counts = np.unique(codes, return_counts=True)
    assert len(counts) == math.factorial(length)
    expected = count / len(counts)
    z = helpers.chi_square_z(np.sum((counts - expected) ** 2 / expected), len(counts) - 1)
    assert abs(z) < 5


@functools.partial(jax.jit, static_argnums=1)
def many_words(keys, num_epochs):
    """Three words for each key and epoch."""
    epochs = jnp.arange(num_epochs)
    return jax.vmap(lambda key: jax.vmap(lambda epoch: shuffle.epoch_words(key, epoch, 3))(epochs))(keys)


def test_words_of_an_epoch_are_those_of_its_key_and_number(seed):
    keys = jax.random.split(jax.random.key(seed), 200)
    words = np.asarray(many_words(keys, 50))
    assert words.dtype == np.uint32
    assert len(np.unique(words)) > 0.999 * words.size, "keys or epochs share words"
    one = shuffle.epoch_words(keys[7], jnp.array(31), 3)
    np.testing.assert_array_equal(one, words[7, 31])


@pytest.mark.law
def test_words_of_an_epoch_are_uniform(seed):
    """Every bit is fair, and the bits of successive words agree as often as chance would have it."""
    keys = jax.random.split(jax.random.key(seed), 400)
    words = np.asarray(many_words(keys, 40))
    bits = (words.reshape(-1, 1) >> np.arange(32, dtype=np.uint32)) & 1
    z = (bits.mean(axis=0) - 0.5) * 2 * np.sqrt(len(bits))
    assert np.max(np.abs(z)) < 5
    signs = 2.0 * bits - 1.0
    products = signs[:-1].T @ signs[1:]  # 32 × 32 sums of independent signs: their squares are nearly a chi-square
    assert abs(helpers.chi_square_z(np.sum(products**2) / (len(signs) - 1), 32 * 32)) < 5


def test_multiply_high_is_exact(seed):
    edge = np.array([0, 1, 2, 0xFFFF, 0x10000, 0x10001, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], np.uint32)
    words = np.concatenate([edge, np.asarray(random_words(seed, 50))])
    a, b = (grid.ravel() for grid in np.meshgrid(words, words))
    expected = [(int(x) * int(y)) >> 32 for x, y in zip(a, b, strict=True)]
    got = jax.jit(shuffle.multiply_high)(jnp.asarray(a), jnp.asarray(b))
    np.testing.assert_array_equal(np.asarray(got), np.array(expected, np.uint32))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64, 1_000, 2**22])
def test_scale_word_gives_every_index_its_share_of_the_words(length):
    """Index k gets the words from ⌈k 2³²/length⌉ on: counts differ by at most one."""
    index = np.unique(np.linspace(0, length - 1, 50).astype(np.int64))
    first = -((-index * 2**32) // length)
    scale_word = jax.jit(shuffle.scale_word)
    got = scale_word(jnp.asarray(first.astype(np.uint32)), length)
    np.testing.assert_array_equal(got, index)
    before = scale_word(jnp.asarray((first[1:] - 1).astype(np.uint32)), length)
    np.testing.assert_array_equal(before, index[1:] - 1)


@pytest.mark.law
@pytest.mark.parametrize("length", [10, 1_000, 2**22, 2**22 + 1, 3 * 10**8])
def test_uniform_index_is_uniform(length, seed):
    count = 200_000
    index = np.asarray(shuffle.uniform_index(jax.random.key(seed), (count,), length))
    assert index.min() >= 0
    assert index.max() < length
    counts = np.bincount(index.astype(np.int64) * 10 // length, minlength=10)
    shares = np.diff(np.ceil(np.arange(11) * length / 10)) / length
    z = helpers.chi_square_z(np.sum((counts - count * shares) ** 2 / (count * shares)), 9)
    assert abs(z) < 5
