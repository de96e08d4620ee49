"""Exception classes; every message says how to fix the problem.

Each class is also one of Python's own, so that `except ValueError` works for callers that do not know scirocco.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "BadStartError",
    "DataChangedError",
    "DivergenceError",
    "ForkedError",
    "InvalidTypeError",
    "InvalidValueError",
    "MissingDataError",
    "MissingExtraError",
    "NoDrawsError",
    "NotFittedError",
    "SciroccoError",
    "SciroccoWarning",
    "StoreError",
    "WorkerError",
]


def __dir__() -> list[str]:
    return __all__


class SciroccoError(Exception):
    """Base class of all errors that scirocco raises."""

    run: Any = None
    """The draws that were kept before the error, if any."""


class InvalidValueError(SciroccoError, ValueError):
    """An argument has an invalid value."""


class BadStartError(InvalidValueError):
    """The log density is not finite at the starting point of a chain or an optimiser."""


class MissingDataError(InvalidValueError):
    """A data set is not on this machine and could not be downloaded."""


class NotFittedError(InvalidValueError, AttributeError):
    """A method that requires a fit was called before `fit`; `hasattr` returns False, as scikit-learn expects."""


class NoDrawsError(InvalidValueError):
    """The fit of a model ended in its burn-in, before its first draw; after Ctrl-C also a KeyboardInterrupt."""

    @classmethod
    def after(cls, status: str, num_steps: int) -> NoDrawsError:
        """The error of a fit that was stopped or interrupted after a number of steps."""
        kind = _InterruptedBurnIn if status == "interrupted" else cls
        return kind(
            f"the fit was {status} in its burn-in after {num_steps:,} step{'s' * (num_steps != 1)}, before its first "
            "draw. Fit it again, with a shorter `num_burnin`, or resume its store with fit(..., resume=True)."
        )


class _InterruptedBurnIn(NoDrawsError, KeyboardInterrupt):
    """So that Ctrl-C ends programs as it always does."""


class InvalidTypeError(SciroccoError, TypeError):
    """An argument has an invalid type."""


class MissingExtraError(SciroccoError, ImportError):
    """The call requires an optional package that is not installed."""


class DataChangedError(SciroccoError, RuntimeError):
    """The data changed or shrank during a run; `run` holds the draws that were kept, if any."""


class ForkedError(SciroccoError, RuntimeError):
    """The process was forked after a run, so that JAX cannot work in it."""


class StoreError(SciroccoError, RuntimeError):
    """A stored run is damaged, in use, or cannot be resumed."""


class DivergenceError(SciroccoError, FloatingPointError):
    """A chain diverged: a parameter is NaN or inf, or its draws spread at least 30 times too widely.

    Attributes
    ----------
    run
        The draws made before the divergence, as an ordinary `Run` (None if there are none).
    chain, step
        Where the chain diverged, counted from 0; burn-in steps count. The last step if the draws are finite.
    """

    def __init__(self, message: str, *, run: Any = None, chain: int = 0, step: int = 0):
        super().__init__(message)
        self.run = run
        self.chain = chain
        self.step = step


class SciroccoWarning(UserWarning):
    """Something that works, but probably not as intended."""


class WorkerError(SciroccoError, RuntimeError):
    """A cluster could not complete a job: its workers died repeatedly, or the connection ended."""
