"""Where a child runs: one thread, and for a rival an environment of its own.

The usual flags no longer keep XLA to one thread (its second worker spins and doubles the CPU time), so the process
is also pinned to one core, which children inherit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RIVALS_ENVIRONMENT = ROOT / ".venv-rivals"
BLACKJAX = "blackjax==1.7.1"
TOPICS_ENVIRONMENT = ROOT / ".venv-rivals-topics"
SERIES_ENVIRONMENT = ROOT / ".venv-rivals-series"
SERIES_RIVALS = ("hmmlearn==0.3.3", "dynamax==1.0.3")
NETWORKS_ENVIRONMENT = ROOT / ".venv-rivals-networks"
NETWORK_RIVALS = ("graspologic==3.4.4", "igraph==1.0.0", "leidenalg==0.12.0", "numpy")
TOPIC_RIVALS = ("gensim==4.4.0", "scikit-learn==1.9.1", "tomotopy==0.14.0")


def pin_to_one_core() -> None:
    """Keep this process and its children on one core, where the system can (Linux)."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def child_variables(quick: bool, repeats: int | None) -> dict[str, str]:
    """The environment of a child: one thread everywhere, the CPU, and how much to run."""
    variables = dict(os.environ)
    variables["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        variables[name] = "1"
    variables["JAX_PLATFORMS"] = "cpu"
    variables.pop("JAX_COMPILATION_CACHE_DIR", None)  # a cache on disk would hide the compile time
    variables["SCIROCCO_CACHE"] = "off"
    here = str(Path(__file__).resolve().parent)
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    variables["BENCHMARK_QUICK"] = "1" if quick else "0"
    if repeats is not None:
        variables["BENCHMARK_REPEATS"] = str(repeats)
    return variables


def rivals_python() -> str:
    """The rivals' interpreter; its environment is made on first use, with the JAX version that ours has."""
    return _made(
        RIVALS_ENVIRONMENT, [BLACKJAX, f"jax=={metadata.version('jax')}", f"numpy=={metadata.version('numpy')}"]
    )


def topics_python() -> str:
    """The interpreter of the rivals in topic models."""
    return _made(TOPICS_ENVIRONMENT, list(TOPIC_RIVALS))


def series_python() -> str:
    """The interpreter of the rivals in hidden Markov models."""
    return _made(SERIES_ENVIRONMENT, list(SERIES_RIVALS))


def networks_python() -> str:
    """The interpreter of the rivals in models of networks."""
    return _made(NETWORKS_ENVIRONMENT, list(NETWORK_RIVALS))


def _made(folder: Path, packages: list[str]) -> str:
    """The interpreter of an environment with these packages, made unless it is there."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp, wanted = folder / ".installed", " ".join(packages)
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"making {folder.name}: {wanted}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
        stamp.write_text(wanted)
    return str(python)
