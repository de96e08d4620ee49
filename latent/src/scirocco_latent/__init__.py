"""Models of latent structure for scirocco: topics, clusters, hidden states, networks, matrix factorisation.

They are in `sc.models` once this distribution is installed: `sc.models.LDA`. Here they have the same names.
"""

from __future__ import annotations

from typing import Any

from scirocco.models._core import registry as _table  # noqa: F401  (first: it reads the rows below)
from scirocco_latent.registry import FUNCTIONS, MODELS

__all__ = [*MODELS, *FUNCTIONS]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'scirocco_latent' has no attribute {name!r}.")
    from scirocco import models

    return getattr(models, name)
