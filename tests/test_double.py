"""Where JAX is switched to double precision, everything is double."""

import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

CHECK = pathlib.Path(__file__).parent / "double" / "check_double.py"


@pytest.mark.parametrize("what", ["draws", "gradients", "programs", "defaults", "counts", "kernels"])
def test_double_precision(what):
    environment = os.environ | {"JAX_ENABLE_X64": "1"}
    result = subprocess.run(
        [sys.executable, str(CHECK), what], capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
