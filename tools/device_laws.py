"""Run the tests of distributions on an accelerator.

usage: python tools/device_laws.py [tests ...] [arguments for pytest, such as -n 8]

The suite runs on CPUs; this runs tests/law, and the tests of loops and topics for accelerators, on the GPU or TPU that
JAX finds: the draws there come from another loop (`loop.advance_by_draws`), and products of matrices are rounded. Tests
of kernels that only exist for CPUs are left out. Most of the time is compiling: several workers share the device.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ["tests/law", "tests/run/test_accelerator.py", "tests/models/lda/test_arrays.py"]
ONLY_CPU = ["tests/law/test_host_kernels.py"]


def main() -> int:
    """Print the device, and run the tests."""
    import jax

    if jax.default_backend() == "cpu":
        print(
            "JAX finds no accelerator here: nothing to run (set JAX_PLATFORMS, or install JAX for your device)."
        )
        return 2
    print(f"device: {jax.devices()[0].device_kind}, jax {jax.__version__}", flush=True)
    paths = [os.environ.get("PYTHONPATH", ""), str(ROOT / "src"), str(ROOT / "papers/src")]
    environment = {"XLA_FLAGS": ""} | os.environ  # the suite's flags for the compiler are for CPUs
    environment |= {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    given = sys.argv[1:]
    chosen = [] if any(argument.startswith("tests") for argument in given) else TESTS
    left_out = ["-m", "not process", *(f"--ignore={test}" for test in ONLY_CPU)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, *left_out, *given]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
