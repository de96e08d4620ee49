"""The generator behind all noise: Threefry's published answers, and the law of the normals made from it."""

from __future__ import annotations

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from scirocco import _random
from scirocco._random import Purpose, SeedPurpose, key_for

pytestmark = pytest.mark.compile

SIZE = 200_000
normal, threefry = jax.jit(_random.normal, static_argnums=(1, 2)), jax.jit(_random.threefry)


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs that are run once."""


def test_threefry_gives_the_published_answer():
    """Known-answer vector of Random123 for 20 rounds: key (0, 0), counter (0, 0)."""
    first, second = threefry(jnp.zeros(2, jnp.uint32), jnp.zeros(1, jnp.uint32))
    assert (int(first[0]), int(second[0])) == (0x6B200159, 0x99BA4EFE)


def test_threefry_is_jaxs_own(seed):
    words = jax.random.key_data(jax.random.key(seed))
    low, high = jnp.arange(50, dtype=jnp.uint32), jnp.full(50, seed + 3, jnp.uint32)
    ours = jnp.concatenate(threefry(words, low, seed + 3))
    counters = jnp.concatenate([low, high])
    np.testing.assert_array_equal(ours, jax.extend.random.threefry_2x32(words, counters))


@pytest.mark.parametrize("size", [SIZE, SIZE - 1])
def test_normals_are_standard_normal_and_independent(seed, size):
    sample = np.asarray(normal(jax.random.key(seed), size, jnp.float32), np.float64)
    assert sample.shape == (size,)
    assert scipy.stats.kstest(sample, scipy.stats.norm.cdf).pvalue > 1e-6
    half = size // 2  # the two words of one call must not be related
    for lag in (1, half, (size + 1) // 2):
        product = sample[lag:] * sample[:-lag]
        assert abs(product.mean() * np.sqrt(len(product))) < 5
    fourth = (sample**4 - 3) / np.sqrt(96)
    assert abs(fourth.mean() * np.sqrt(size)) < 5


def test_neighbouring_keys_are_unrelated(seed):
    """Steps use keys that differ by one in the last word."""
    words = jax.random.key_data(jax.random.key(seed))
    keys = [jax.random.wrap_key_data(words + jnp.array([0, number], jnp.uint32)) for number in range(2)]
    first, second = (np.asarray(normal(key, SIZE, jnp.float32), np.float64) for key in keys)
    assert abs((first * second).mean() * np.sqrt(SIZE)) < 5


def test_another_generator_goes_through_jax(seed):
    key = jax.random.key(seed, impl="rbg")
    np.testing.assert_array_equal(normal(key, 7, jnp.float32), jax.random.normal(key, (7,)))


@pytest.mark.parametrize("purposes", [Purpose, SeedPurpose])
def test_no_two_purposes_share_a_number(purposes):
    """An `IntEnum` takes a number that is used twice for another name of the first, without a word."""
    assert len(purposes.__members__) == len({int(member) for member in purposes})
    assert all(0 <= int(member) < 2**32 for member in purposes)


def test_keys_of_purposes_differ_from_each_other_and_from_those_of_chains(seed):
    key = jax.random.key(seed)
    keys = [key_for(key, purpose) for purpose in Purpose]
    keys += [jax.random.fold_in(key, chain) for chain in range(64)]
    assert len({tuple(np.asarray(jax.random.key_data(one))) for one in keys}) == len(keys)
