"""Fixtures for all tests. Random tests must pass for any seed: SCIROCCO_TEST_SEED (0-99) picks it."""

import gc
import os
import signal
import threading
from pathlib import Path

import jax
import pytest

_MAPS, _MANY_MAPS = Path("/proc/self/maps"), 25_000


def pytest_configure():
    """Who starts the tests in the background has Ctrl-C ignored: tests of it need Python's own handler."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture(autouse=True, scope="module")
def _forget_programs():
    """Compiled programs take memory maps, of which a process may have 65,530: beyond that the compiler crashes."""
    yield
    if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > _MANY_MAPS:
        jax.clear_caches()
        gc.collect()
