"""Argument checks with messages of one format: the requirement, the value, the fix."""

from __future__ import annotations

import math
import os
import sys
import warnings
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from scirocco.errors import InvalidTypeError, InvalidValueError, SciroccoWarning


def warn(message: str, category: type[Warning] = SciroccoWarning) -> None:
    """Issue a warning that points at the line of the user's code, at any depth in the library."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "scirocco":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def positive_int(value: object, name: str, *, minimum: int = 1) -> int:
    """Return `value` as an int that is at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        hint = ""
        if isinstance(value, (float, np.floating)) and math.isfinite(value) and float(value).is_integer():
            hint = f" Write {int(value)}."
        raise InvalidTypeError(f"`{name}` must be a whole number (int), got {value!r}.{hint}")
    if value < minimum:
        raise InvalidValueError(f"`{name}` must be at least {minimum}, got {value}.")
    return int(value)


def is_number(value: object) -> bool:
    """True for a real scalar: Python, NumPy or a concrete JAX one; False for bool, str, None."""
    if isinstance(value, (bool, np.bool_, str, bytes)) or value is None:
        return False
    if isinstance(value, (int, float, np.integer, np.floating)):
        return True
    return isinstance(value, _Scalar) and value.shape == () and np.issubdtype(value.dtype, np.number)


@runtime_checkable
class _Scalar(Protocol):
    """An array of NumPy or JAX, or a tracer."""

    shape: tuple[int, ...]
    dtype: np.dtype


def numbers(values: npt.ArrayLike, name: str) -> np.ndarray:
    """Convert to an array of doubles."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(
            f"`{name}` must be an array of numbers, got {type(values).__name__}."
        ) from error


def as_float(value: Any) -> Any:
    """A known number as a Python float, so that its type (int, NumPy, JAX) never recompiles; tracers pass."""
    try:
        return float(value)
    except Exception:
        return value


def positive(value: object, name: str, owner: str = "", *, allow_zero: bool = False) -> None:
    """Check that a concrete scalar is finite and > 0 (>= 0 with `allow_zero`); tracers pass."""
    of = f" of {owner}" if owner else ""
    if not is_number(value):
        raise InvalidTypeError(f"`{name}`{of} must be a number, got {value!r} ({type(value).__name__}).")
    try:
        number = float(value)  # type: ignore[arg-type]
    except Exception:  # a tracer: its value is not known yet, nothing to check
        return
    if not math.isfinite(number) or number < 0 or (number == 0 and not allow_zero):
        sign = ">= 0" if allow_zero else "> 0"
        raise InvalidValueError(f"`{name}`{of} must be finite and {sign}, got {value}.")


def choice(value: object, name: str, options: tuple[str, ...]) -> str:
    """Return `value` if it is one of `options`."""
    if value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise InvalidValueError(f"`{name}` must be one of {listed}; got {value!r}.")
    return str(value)


def path(value: object, name: str) -> Path:
    """Return `value` as an absolute path that could exist: its nearest ancestor that exists is a folder."""
    if not isinstance(value, (str, os.PathLike)) or isinstance(os.fspath(value), bytes):
        raise InvalidTypeError(f"`{name}` must be a path (a string or pathlib.Path), got {value!r}.")
    try:
        found = Path(value).expanduser().absolute()
        if "\0" in str(found):
            raise ValueError("it contains a null character")
        found.lstat()
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        file = next(parent for parent in found.parents if parent.exists())
        raise InvalidValueError(f"`{name}` is {str(value)!r}, but {file} is a file, not a folder.") from None
    except (OSError, ValueError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidValueError(f"`{name}` cannot be the path {str(value)[:80]!r}: {why}.") from error
    return found
