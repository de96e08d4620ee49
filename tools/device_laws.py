"""Run the tests of distributions on an accelerator.

usage: python tools/device_laws.py [arguments for pytest]

The suite runs on CPUs; this runs tests/law, and the tests of the loop for accelerators, on the GPU or TPU that JAX
finds: the draws there come from another loop (`loop.advance_by_draws`), and products of matrices are rounded. Tests of
kernels that only exist for CPUs are left out. With one device, tests run one after the other (no `-n`).
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ["tests/law", "tests/run/test_accelerator.py"]
ONLY_CPU = ["tests/law/test_host_kernels.py"]


def main() -> int:
    """Print the device, and run the tests."""
    import jax

    if jax.default_backend() == "cpu":
        print("JAX finds no accelerator here: nothing to run (set JAX_PLATFORMS, or install JAX for your device).")
        return 2
    print(f"device: {jax.devices()[0].device_kind}, jax {jax.__version__}", flush=True)
    paths = [os.environ.get("PYTHONPATH", ""), str(ROOT / "src"), str(ROOT / "papers/src")]
    # the suite's compiler flags are for CPUs
    environment = {"XLA_FLAGS": ""} | os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    given = sys.argv[1:]
    chosen = [test for test in TESTS if (ROOT / test).exists()]
    left_out = [f"--ignore={test}" for test in ONLY_CPU]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, *left_out, *given]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
