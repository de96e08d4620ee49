"""What users write for D, Q and the auxiliaries of a recipe, in one form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scirocco import _checks
from scirocco.errors import InvalidValueError
from scirocco.samplers.matrices import POSITION, Varying


def normal_auxiliaries(written: Any, owner: str) -> tuple[tuple[str, Any], ...]:
    """Pairs (name, "normal" or a number)."""
    if isinstance(written, str):
        written = (written,)
    pairs = [entry if isinstance(entry, tuple) else (entry, "normal") for entry in written]
    items = written.items() if isinstance(written, Mapping) else pairs
    out = []
    for name, start in items:
        if not isinstance(name, str) or name == POSITION:
            raise InvalidValueError(
                f"`auxiliaries` of {owner} must have names other than 'position', got {name!r}."
            )
        if start != "normal" and not _checks.is_number(start):
            raise InvalidValueError(
                f"auxiliary `{name}` of {owner} must start 'normal' or at a number, got {start!r}."
            )
        out.append((name, start if start == "normal" else float(start)))
    return tuple(out)


def normal_matrix(written: Any, name: str, parts: tuple[str, ...], pairs: bool) -> Any:
    """A function becomes data of its own kind; constants are looked at now."""
    if isinstance(written, Varying) or written is None:
        return written
    if callable(written):
        return Varying(written)
    return by_part(written, name, parts, pairs)


def by_part(written: Any, name: str, parts: tuple[str, ...], pairs: bool) -> dict[Any, Any]:
    """Blocks by part (or pair of parts); a bare block belongs to the position when there is nothing else."""
    if written is None:
        return {}
    wanted = "pairs of parts" if pairs else "parts"
    keys = list(written) if isinstance(written, Mapping) else []
    by_part = bool(keys) and all((isinstance(k, tuple) if pairs else k in parts) for k in keys)
    if not by_part:
        if len(parts) > 1:
            raise InvalidValueError(
                f"`{name}` must be a dict of blocks by {wanted} when there are auxiliaries; parts are {sorted(parts)}."
            )
        return {(POSITION, POSITION) if pairs else POSITION: written}
    for key in keys:
        if pairs and (len(key) != 2 or not set(key) <= set(parts)):
            raise InvalidValueError(f"`{name}` names {key}; its keys are pairs of {sorted(parts)}.")
        if pairs and tuple(reversed(key)) in keys and key[0] != key[1]:
            raise InvalidValueError(
                f"`{name}` gives both {key} and {tuple(reversed(key))}: give one, the other is its negative transpose."
            )
    return dict(written)
