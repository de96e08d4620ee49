"""Where JAX is switched to double precision, everything is double."""

import os
import pathlib
import subprocess
import sys

import pytest

import helpers

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("quick_compiler")]

CHECK = pathlib.Path(__file__).parent / "double" / "check_double.py"
CHECKS = ["draws", "programs", "defaults", "counts", "kernels"]


@pytest.fixture(scope="module")
def told(request):
    """What all checks that were chosen say, in one process."""
    environment = os.environ | {"JAX_ENABLE_X64": "1"}
    chosen = helpers.chosen_cases(request, test_double_precision, "what")
    result = subprocess.run([sys.executable, str(CHECK), *chosen], capture_output=True, text=True, env=environment)
    return result.stdout + result.stderr[-3000:]


@pytest.mark.rotates(2)
@pytest.mark.parametrize("what", CHECKS)
def test_double_precision(what, told):
    assert f"{what} ok\n" in told, told
