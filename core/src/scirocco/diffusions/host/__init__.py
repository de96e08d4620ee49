"""Exact diffusions on NumPy arrays: compiled CPU kernels for loops on the host (needs the extra `compiled`).

Inside a compiled JAX program, and on a GPU, use `scirocco.diffusions` itself. These functions draw from the same
distributions, run on all cores, and are several times faster than NumPy's generators. The first call imports numba and
compiles the kernels (seconds, once: the result is cached on disk).
"""

from scirocco.diffusions.host.draws import cir, gamma, poisson

__all__ = ["cir", "gamma", "poisson"]
