"""The package imports and samples with only jax and numpy, and says what is missing when more is asked."""

import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

CHECK = pathlib.Path(__file__).parent / "minimal" / "check_minimal.py"


def test_optional_packages_are_optional():
    result = subprocess.run([sys.executable, str(CHECK), "--hide"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
