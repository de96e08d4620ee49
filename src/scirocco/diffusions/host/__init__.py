"""Exact diffusions on NumPy arrays: compiled CPU kernels for loops on the host (needs the extra `compiled`).

Inside a compiled JAX program, and on a GPU, use `scirocco.diffusions` itself. These functions have the same laws, run
on all cores, and are several times faster than NumPy's generators; numba is imported, and the kernels are compiled
(seconds, once: the result is kept on disk), when one of them is first called.
"""

from scirocco.diffusions.host.draws import cir, gamma, poisson

__all__ = ["cir", "gamma", "poisson"]
