"""Argument checks with messages of one format: the requirement, the value, the fix."""

from __future__ import annotations

import difflib
import errno
import functools
import inspect
import math
import os
import re
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from scirocco.errors import ForkedError, InvalidTypeError, InvalidValueError, SciroccoError, SciroccoWarning


def warn(message: str, category: type[Warning] = SciroccoWarning) -> None:
    """Issue a warning that points at the line of the user's code, at any depth in the library."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("scirocco"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


P = ParamSpec("P")
R = TypeVar("R")
_ELSEWHERE = {
    "num_samples": ("draws", "n_samples", "n_draws", "num_draws", "samples", "iter", "n_iter", "num_iterations"),
    "num_burnin": ("num_warmup", "warmup", "n_warmup", "tune", "n_tune", "burnin", "burn_in", "n_burnin"),
    "num_chains": ("chains", "n_chains", "nchains"),
    "num_epochs": ("epochs", "n_epochs", "max_iter"),
    "seed": ("random_seed", "random_state", "rng", "rng_key", "key"),
    "thin": ("thinning", "num_thin", "n_thin"),
    "progress": ("progressbar", "progress_bar", "verbose"),
    "chain_method": ("cores", "num_cores", "n_jobs", "parallel"),
    "params": ("init", "init_params", "initial_params", "initvals", "start", "x0", "theta"),
    "sampler": ("kernel", "step", "method"),
    "step_size": ("lr", "learning_rate", "eps", "epsilon", "h"),
    "batch_size": ("minibatch_size", "subsample_size", "n"),
    "log_likelihood": ("logp", "log_density", "logdensity_fn", "log_prob", "potential_fn"),
    "num_topics": ("n_components", "n_topics", "k", "K"),
    "num_components": ("n_components", "n_clusters", "k", "K"),
    "num_factors": ("n_components", "n_factors", "rank", "latent_dim"),
    "sampler=sc.SGLD(step_size=...)": ("step_size", "learning_rate", "lr"),
    "sampler=sc.NUTS(target_acceptance=...)": ("target_accept", "target_accept_prob", "adapt_delta"),
    "estimator=sc.Minibatch(batch_size=...)": ("batch_size", "minibatch_size"),
}
"""Our arguments, or what to write, and the names that other libraries have for them."""


def known_arguments(
    function: Callable[P, R],
    owner: str = "",
    elsewhere: Mapping[str, str] | None = None,
    signature: inspect.Signature | None = None,
) -> Callable[P, R]:
    """Decorator: an unknown keyword raises an error that suggests the one that was meant.

    Errors of this library are raised from here, without the frames inside it; `SCIROCCO_TRACEBACK=full` keeps them.

    Parameters
    ----------
    function
        Its signature is kept.
    owner
        The name of the function in messages; by default `sc.NAME`.
    elsewhere
        Arguments that belong to another function, with the name of that.
    signature
        The signature that users see, if the function takes some of its arguments as `**options`.
    """
    seen = inspect.signature(function) if signature is None else signature
    names = [name for name in seen.parameters if name != "self"]
    belongs = dict(elsewhere or {})
    ours = f"sc.{function.__qualname__.removesuffix('.__init__')}"

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in names:
                words = _suggest(name, names, belongs)
                raise InvalidTypeError(f"{owner or ours} has no argument `{name}`{words}")
        try:
            return function(*args, **kwargs)
        except SciroccoError as error:
            if os.environ.get("SCIROCCO_TRACEBACK") == "full":
                raise
            error.__traceback__ = None
            raise error  # SCIROCCO_TRACEBACK=full shows the frames below

    if signature is not None:
        checked.__signature__ = signature  # type: ignore[attr-defined]
    return checked


def _suggest(name: str, known: list[str], elsewhere: Mapping[str, str]) -> str:
    meant = [ours for ours, theirs in _ELSEWHERE.items() if name in theirs]
    meant += difflib.get_close_matches(name, [*known, *elsewhere], 1)
    for ours in [name, *meant]:
        argument = ours.partition("=")[0]
        if argument in known:
            return f": use `{ours}`."
        if argument in elsewhere:
            return f": `{ours}` is an argument of {elsewhere[argument]}."
    return f". It has {', '.join(known)}."


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """` Did you mean ...?`, or nothing."""
    lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(str(word).lower(), lower, 1, cutoff=0.5)
    return f" Did you mean `{lower[close[0]]}`?" if close else ""


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


def readable(path: str | os.PathLike[str]) -> None:
    """Raise an error for a pipe, a socket or a device, because reading one may never end; a missing file is allowed."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InvalidValueError(
            f"{os.fspath(path)} is a pipe, a socket or a device, not a file. Save what it holds to a file first."
        )


class _Process:
    """Whether runs were made in this process, or in the one that it was forked from."""

    has_run = forked_after_run = False

    def after_fork(self) -> None:
        """In the child."""
        self.forked_after_run |= self.has_run


_process = _Process()
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_process.after_fork)


def note_run() -> None:
    """From now on this process cannot be forked: the threads of JAX exist only in the parent."""
    _process.has_run = True


def refuse_forked() -> None:
    """Raise an error in a process that was forked after a run: it would wait for threads that do not exist."""
    if _process.forked_after_run:
        raise ForkedError(
            "this process was forked after a run, and JAX does not work in a forked process: its threads exist only in "
            "the parent. Start processes with multiprocessing.get_context('spawn'), or fork before the first run."
        )


def is_number(value: object) -> bool:
    """True for a real scalar: Python, NumPy or a concrete JAX one; False for bool, str, None."""
    if isinstance(value, (bool, np.bool_, str, bytes, np.timedelta64)) or value is None:  # NumPy's spans are integers
        return False
    if isinstance(value, (int, float, np.integer, np.floating)):
        return True
    return isinstance(value, _Scalar) and value.shape == () and np.issubdtype(value.dtype, np.number)


@runtime_checkable
class _Shaped(Protocol):
    """What has a shape."""

    shape: tuple[int, ...]


@runtime_checkable
class _Scalar(_Shaped, Protocol):
    """An array of NumPy or JAX, or a tracer."""

    dtype: np.dtype


def _has_no_axes(value: object) -> bool:
    return isinstance(value, _Shaped) and not value.shape


def is_list(value: object) -> TypeGuard[Iterable[Any]]:
    """Whether there are items to take from it: neither a text nor an array without axes."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes)) and not _has_no_axes(value)


def numbers(values: npt.ArrayLike, name: str) -> np.ndarray:
    """Convert to an array of doubles."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"`{name}` must be an array of numbers, got {type(values).__name__}.") from error


def as_float(value: Any) -> Any:
    """A known number as a Python float, so that its type (int, NumPy, JAX) never recompiles; tracers pass."""
    try:
        return float(value)
    except Exception:
        return value


_LEAST = 1e-150
"""The smallest positive number that is accepted: its square is a number, too."""


def positive(value: object, name: str, owner: str = "", *, allow_zero: bool = False) -> None:
    """Check that a concrete scalar is finite and > 0 (>= 0 with `allow_zero`); tracers pass."""
    of = f" of {owner}" if owner else ""
    if not is_number(value):
        raise InvalidTypeError(f"`{name}`{of} must be a number, got {value!r} ({type(value).__name__}).")
    try:
        number = float(value)  # type: ignore[arg-type]
    except Exception:  # a tracer: its value is not known yet, nothing to check
        return
    if not math.isfinite(number) or number < 0 or (number < _LEAST and not (number == 0 and allow_zero)):
        sign = f"at least {_LEAST:g}" if 0 < number < _LEAST else ">= 0" if allow_zero else "> 0"
        raise InvalidValueError(f"`{name}`{of} must be finite and {sign}, got {value}.")


def choice(value: object, name: str, options: tuple[str, ...]) -> str:
    """Return `value` if it is one of `options`."""
    if not isinstance(value, str) or value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise InvalidValueError(f"`{name}` must be one of {listed}; got {value!r}.")
    return str(value)


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""`s3://bucket/run`, of which pathlib leaves s3:/bucket/run. The drive C:/ has one letter, and a:b no slash."""


def flag(value: object, name: str, owner: str = "") -> bool:
    """Return `value` if it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        of = f" of {owner}" if owner else ""
        raise InvalidTypeError(f"`{name}`{of} must be True or False, got {value!r}.")
    return bool(value)


def path(value: object, name: str) -> Path:
    """Return `value` as an absolute path that could exist: its nearest ancestor that exists is a folder.

    A URL is none: it would become a folder of this machine that is named after its scheme.
    """
    if not isinstance(value, (str, os.PathLike)) or isinstance(os.fspath(value), bytes):
        raise InvalidTypeError(f"`{name}` must be a path (a string or pathlib.Path), got {value!r}.")
    if _URL.match(os.fspath(value)):
        raise InvalidValueError(
            f"`{name}` is the URL {str(value)[:80]!r}: only folders and files of this machine are supported. Use a "
            "path, such as that of a mounted bucket, and copy what is in it afterwards."
        )
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
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InvalidValueError(f"`{name}` cannot be the path {str(value)[:80]!r}: {why}.") from error
    return found


def make_folder(where: str | os.PathLike[str], name: str) -> None:
    """Make a folder and its parents; only a full disk is an OSError, because then the path is not the mistake."""
    try:
        os.makedirs(where, exist_ok=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InvalidValueError(
            f"`{name}`: the folder {os.fspath(where)} cannot be made: {error.strerror}. Choose another path."
        ) from error
