"""Fixtures for all tests. Random tests must pass for any seed: SCIROCCO_TEST_SEED (0-99) picks it."""

import os

import jax
import pytest


@pytest.fixture
def seed() -> int:
    """The seed of this session's random tests."""
    return int(os.environ.get("SCIROCCO_TEST_SEED", "0"))


@pytest.fixture(scope="module")
def quick_compiler():
    """Programs that make a few steps spend nearly all their time in the compiler: it is told to hurry."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
