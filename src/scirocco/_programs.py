"""Compiled programs are kept on disk, so that the next process does not compile them again.

JAX does so when it is told where; if you have told it (JAX_COMPILATION_CACHE_DIR), nothing is changed here. Otherwise
the programs are in SCIROCCO_CACHE, or in the user's cache folder; SCIROCCO_CACHE=off turns it off. Programs are
specific to the processor, so each kind has its own folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
from pathlib import Path

import jax
import jaxlib

_LARGEST = 1 << 28
"""Bytes; the programs that have not been used for the longest time are deleted."""
_WORTH_KEEPING = 0.0
"""Seconds of compiling."""


def keep() -> str | None:
    """Tell JAX where to keep programs, unless the user has; the folder, or None."""
    wanted = os.environ.get("SCIROCCO_CACHE", "")
    if wanted.lower() == "off" or getattr(jax.config, "jax_compilation_cache_dir", None):
        return None
    top = Path(wanted or os.environ.get("XDG_CACHE_HOME", "") or "~/.cache").expanduser()
    folder = top / ("" if wanted else "scirocco") / f"programs-{jaxlib.__version__}-{_processor()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        return None
    if not writable:
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTH_KEEPING)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if importlib.util.find_spec("filelock") is not None:  # needed to delete safely
        jax.config.update("jax_compilation_cache_max_size", _LARGEST)
        _remove_torn(folder)
    return str(folder)


def _remove_torn(folder: Path) -> None:
    """Delete programs without the time of their last use: a process was killed while it wrote them.

    JAX would not delete them, and could not write another program as long as there is one.
    """
    try:
        names = set(os.listdir(folder))
        for name in names:
            if name.endswith("-cache") and f"{name.removesuffix('-cache')}-atime" not in names:
                (folder / name).unlink(missing_ok=True)
    except OSError:
        pass


def _processor() -> str:
    """A name for the processor and what it can do."""
    known = platform.machine() + platform.processor()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        lines = file.read(20_000).splitlines()
        known += "".join(line for line in lines[:60] if line.startswith(("flags", "model name", "Features")))
    return hashlib.sha256(known.encode()).hexdigest()[:12]


keep()
