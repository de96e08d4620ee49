"""Modules imported where they are used: optional packages, with a helpful message if they are missing; kernels."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType

from scirocco.errors import MissingExtraError

_EXTRA_OF = {
    "numpyro": "numpyro",
    "pymc": "pymc",
    "pytensor": "pymc",
    "flax": "networks",
    "equinox": "networks",
    "dask": "cluster",
    "distributed": "cluster",
    "cloudpickle": "cluster",
}
"""The extras of `scirocco` by the packages in them; `pip install scirocco` installs every other optional package."""


def require(module: str, purpose: str) -> ModuleType:
    """Import `module`, or raise an error that names its purpose and how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        extra = _EXTRA_OF.get(package)
        command = f"pip install 'scirocco[{extra}]'" if extra else "pip install scirocco"
        raise MissingExtraError(
            f"{purpose} needs the package `{package}`, which cannot be imported ({error}). "
            f"Install it with `pip install {package}`, or with all that scirocco uses: `{command}`.",
            name=package,
        ) from error


def later(module: str) -> Callable[[], ModuleType]:
    """A function that returns a module, and imports it when it is first called: compiled code takes long to import."""
    return functools.cache(functools.partial(importlib.import_module, module))
