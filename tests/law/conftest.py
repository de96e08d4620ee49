"""Law tests must pass for any seed: SCIROCCO_TEST_SEED (0-99) picks it."""

import os

import pytest


@pytest.fixture
def seed() -> int:
    """The seed of this session's law tests."""
    return int(os.environ.get("SCIROCCO_TEST_SEED", "0"))
