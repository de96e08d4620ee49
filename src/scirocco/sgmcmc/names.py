"""One function, two spellings of its arguments: R's camelCase and Python's snake_case."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

from scirocco.errors import InvalidTypeError

T = TypeVar("T")


def snake_case(name: str) -> str:
    """`nItersOpt` as `n_iters_opt`; names without a capital inside stay as they are."""
    return re.sub(r"(?<=[a-z])([A-Z])", lambda match: "_" + match[1].lower(), name)


def both_spellings(function: Callable[..., T]) -> Callable[..., T]:
    """Let keyword arguments be given in either spelling; refuse unknown ones with the nearest known one."""
    names = list(inspect.signature(function).parameters)
    spellings = {spelling: name for name in names for spelling in (name, snake_case(name))}

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> T:
        translated: dict[str, Any] = {}
        for given, value in kwargs.items():
            name = spellings.get(given)
            if name is None:
                raise InvalidTypeError(_unknown(function.__name__, given, names, spellings))
            if name in translated:
                raise InvalidTypeError(
                    f"{function.__name__}() got both `{name}` and `{snake_case(name)}`: give one."
                )
            translated[name] = value
        return function(*args, **translated)

    return wrapper


def _unknown(function: str, given: str, names: list[str], spellings: dict[str, str]) -> str:
    lower = {spelling.lower(): spelling for spelling in spellings}
    near = difflib.get_close_matches(given.lower(), lower, n=1)
    hint = f" Did you mean `{lower[near[0]]}`?" if near else ""
    return f"{function}() has no argument `{given}`.{hint} Its arguments are {', '.join(names)} (or in snake_case)."


def suggest(unknown: str, known: list[str]) -> str:
    """A sentence that names the nearest known name, or nothing."""
    near = difflib.get_close_matches(unknown, known, n=1)
    return f" Did you mean `{near[0]}`?" if near else ""
