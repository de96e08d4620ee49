"""What can go wrong, as classes; every message carries the fix.

Each class is also one of Python's own, so that `except ValueError` works for a caller who does not know scirocco.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "BadStartError",
    "DataChangedError",
    "DivergenceError",
    "InvalidTypeError",
    "InvalidValueError",
    "MissingDataError",
    "MissingExtraError",
    "NotFittedError",
    "SciroccoError",
    "SciroccoWarning",
    "StoreError",
    "WorkerError",
]


class SciroccoError(Exception):
    """Root of all errors that scirocco raises on purpose."""

    run: Any = None
    """What was kept of a run before it, where there is something."""


class InvalidValueError(SciroccoError, ValueError):
    """An argument has a value that cannot work."""


class BadStartError(InvalidValueError):
    """The log density is not finite where a chain or an optimiser is to begin."""


class MissingDataError(InvalidValueError):
    """A data set is not on this machine, and could not be downloaded."""


class NotFittedError(InvalidValueError, AttributeError):
    """A model was asked for what only a fit gives; `hasattr` says no, as scikit-learn expects."""


class InvalidTypeError(SciroccoError, TypeError):
    """An argument is of a kind that cannot work."""


class MissingExtraError(SciroccoError, ImportError):
    """An optional package is needed for this call and is not installed."""


class DataChangedError(SciroccoError, RuntimeError):
    """The data changed or shrank during a run; `run` holds what was kept of it, where there is something."""


class StoreError(SciroccoError, RuntimeError):
    """A stored run is damaged, in use, or not one that can be gone on with."""


class DivergenceError(SciroccoError, FloatingPointError):
    """A chain left the finite numbers.

    Attributes
    ----------
    run
        The draws made before it happened, as an ordinary `Run` (None when there are none).
    chain, step
        Where it happened, counted from 0; burn-in steps count.
    """

    def __init__(self, message: str, *, run: Any = None, chain: int = 0, step: int = 0):
        super().__init__(message)
        self.run = run
        self.chain = chain
        self.step = step


class SciroccoWarning(UserWarning):
    """Something that works, but probably not as intended."""


class WorkerError(SciroccoError, RuntimeError):
    """A cluster could not carry a job to its end: its workers died again and again, or the connection ended."""
