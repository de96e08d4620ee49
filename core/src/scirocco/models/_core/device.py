"""Where the chains of a model run: with compiled kernels on the host, or as array programs of JAX."""

from __future__ import annotations

from scirocco import _checks
from scirocco.errors import InvalidValueError

HOST = "cpu"
"""The device of compiled kernels; array programs have "jax:" and the name of JAX's backend."""
DEVICES = ("auto", HOST, "gpu", "jax")


def resolve(wanted: str, able: bool, requires: str, worthwhile: bool = True) -> str:
    """The device of the chains: `HOST`, or "jax:BACKEND".

    Parameters
    ----------
    wanted
        The argument `device`: "auto" is an accelerator if there is one, the model can use it and it is `worthwhile`;
        "jax" is JAX's default device, whatever it is.
    able
        Whether there are array programs for these settings.
    requires
        What they require, for the error: `sampler="gibbs"`.
    worthwhile
        Whether an accelerator is faster.
    """
    _checks.choice(wanted, "device", DEVICES)
    if wanted == HOST or (wanted == "auto" and not (able and worthwhile)):
        return HOST
    import jax

    backend = jax.default_backend()
    if backend == "cpu" and wanted == "auto":
        return HOST
    if backend == "cpu" and wanted == "gpu":
        raise InvalidValueError(
            'device="gpu", but JAX has no accelerator (jax.default_backend() is "cpu"): install JAX for it, or use '
            'device="auto".'
        )
    if not able:
        raise InvalidValueError(f'device="{wanted}" requires {requires}: use device="cpu".')
    return f"jax:{backend}"
