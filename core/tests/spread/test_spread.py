"""`sc.sample(mesh=...)`: rows and chains on several devices, in one process and in two."""

import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

import helpers

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("quick_compiler")]

HERE = pathlib.Path(__file__).parent
CHECKS = [
    *("sums", "gradients", "estimates", "chains", "both", "axis_types", "values"),
    *("defaults", "counts", "resume", "folders", "refusals"),
]


@pytest.fixture(scope="module")
def four_devices(request):
    """All checks that were chosen in one process, because starting one and compiling takes longer than they do."""
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4",
        "PYTHONPATH": path,
    }
    seed = os.environ.get("SCIROCCO_TEST_SEED", "0")
    chosen = helpers.chosen_cases(request, test_four_devices, "what")
    result = subprocess.run(
        [sys.executable, str(HERE / "check_spread.py"), seed, *chosen], capture_output=True, text=True, env=environment
    )
    return result.stdout + result.stderr[-3000:]


@pytest.mark.rotates(3)
@pytest.mark.parametrize("what", CHECKS)
def test_four_devices(what, four_devices):
    assert f"{what} ok\n" in four_devices, four_devices


@pytest.mark.rotates(2, "processes")
def test_two_processes(tmp_path):
    """Two processes (jax.distributed) make the draws of one with two devices, and resume a stored run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = str(HERE / "check_processes.py")
    both = [
        subprocess.Popen(
            [sys.executable, script, str(rank), str(port), str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    alone = subprocess.run(
        [sys.executable, script, "alone", "0", str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"},
    )
    assert alone.returncode == 0, alone.stderr[-3000:]
    for process in both:
        output = process.communicate(timeout=1_200)[0]
        assert process.returncode == 0, output[-3000:]
    for axis in ("rows", "chains"):
        expected = np.load(tmp_path / f"{axis}-alone.npy")
        for rank in range(2):
            assert np.array_equal(np.load(tmp_path / f"{axis}-{rank}.npy"), expected), axis
