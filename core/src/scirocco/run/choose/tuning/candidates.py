"""The settings to try: a grid around what the curvature suggests, and the values that the user wants varied."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.samplers import Sampler, Scales, is_open
from scirocco.samplers.base import damping_of
from scirocco.types import Params

WIDTH = 32
"""Number of settings tried together."""
_SMALLEST, _LARGEST = 1 / 25, 12.0
"""Range of step sizes, in units of the first guess."""
_MULTIPLES = (1.0, 0.4, 2.5)


class Candidate(NamedTuple):
    """A sampler with all settings fixed, and the settings that distinguish it from the others."""

    sampler: Sampler
    settings: dict[str, Any]
    first_guess: bool
    """Whether its step size is what curvature and noise suggest."""
    at_end: bool
    """Whether its step size is at an end of the automatic range."""


def make_candidates(
    inner: Sampler,
    scales: Scales,
    params: Params,
    over: Mapping[str, Sequence[Any]],
    num_steps: int,
    around: float | None = None,
) -> list[Candidate]:
    """Every combination of `over`, and of step size and damping if they are open.

    Step sizes lie around `around`, or around what curvature and noise suggest.
    """
    axes: dict[str, Sequence[Any]] = {name: list(values) for name, values in over.items()}
    damping = inner.known.damping
    multiples: Sequence[float] = (1.0,)
    if damping and damping not in axes and damping_of(inner) is None:
        multiples = _MULTIPLES
    guess: float | None = None
    ends: tuple[float, ...] = ()
    if "step_size" not in axes:
        if is_open(inner.step_size):
            guess = around or float(_quietly_resolved(inner, scales, params).step_size)
            others = len(multiples) * int(np.prod([len(values) for values in axes.values()]))
            curvature = scales.largest_curvature
            most = inner.known.largest_step(curvature) if curvature > 0 else np.inf
            axes["step_size"] = sizes = _around(guess, max(5, WIDTH // others), most)
            ends = (sizes[0], sizes[-1]) if sizes[-1] < most else (sizes[0],)
        else:
            axes["step_size"] = [inner.step_size]
    found = []
    for values in itertools.product(*axes.values()):
        fields = dict(zip(axes, values, strict=True))
        for multiple in multiples:
            made = _candidate(inner, fields, damping, multiple, scales, params, num_steps)
            if made is not None:
                first = around is None and fields["step_size"] == guess and multiple == 1.0
                found.append(Candidate(*made, first, fields["step_size"] in ends))
    if not found:
        raise InvalidValueError(
            "none of the settings to try is possible for this sampler and its gradient noise: use larger "
            "batches, smaller step sizes, or sc.ControlVariates."
        )
    return found


def _around(guess: float, count: int, most: float) -> list[float]:
    """Powers of one ratio below and of another above the guess, which is included; none above `most`."""
    smallest, largest = guess * _SMALLEST, max(guess, min(guess * _LARGEST, most))
    below = max(1, round((count - 1) * np.log(guess / smallest) / np.log(largest / smallest)))
    above = count - 1 - below
    lower = np.geomspace(smallest, guess, below + 1)[:-1]
    upper = np.geomspace(guess, largest, above + 1)[1:]
    return [*map(float, lower), guess, *map(float, upper)]


def _candidate(
    inner: Sampler,
    fields: dict[str, Any],
    damping: str,
    multiple: float,
    scales: Scales,
    params: Params,
    num_steps: int,
) -> tuple[Sampler, dict[str, Any]] | None:
    """The sampler with these fields; None if it rejects them (a step too large for the noise, εC > 1)."""
    names = [field.name for field in dataclasses.fields(inner)]  # type: ignore[arg-type]
    if unknown := sorted(set(fields) - set(names)):
        raise InvalidValueError(
            f"`over` names {unknown}; {type(inner).__name__} has {names}, and the estimator has `batch_size`."
        )
    given = dataclasses.replace(inner, **fields)  # type: ignore[type-var]
    try:
        sampler = _quietly_resolved(given, scales, params)
        if multiple != 1.0:
            scaled = jax.tree.map(lambda c: multiple * c, damping_of(sampler))
            sampler = dataclasses.replace(sampler, **{damping: scaled})  # type: ignore[type-var]
        sampler.check_params(params, num_steps)
    except InvalidValueError:
        return None
    settings = {name: _plain(value) for name, value in fields.items()}
    if damping and damping not in settings:
        settings[damping] = float(np.mean([np.mean(c) for c in jax.tree.leaves(damping_of(sampler))]))
    return sampler, dict(sorted(settings.items(), key=lambda item: item[0] != "step_size"))


def _quietly_resolved(sampler: Sampler, scales: Scales, params: Params) -> Sampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sampler.resolve(scales, params)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def grouped(candidates: list[Candidate]) -> list[list[int]]:
    """Group the candidates that share a compiled program: those that differ only in numbers."""
    groups: dict[Any, list[int]] = {}
    for number, candidate in enumerate(candidates):
        groups.setdefault(jax.tree.structure(candidate.sampler), []).append(number)
    return list(groups.values())


def stacked(samplers: list[Sampler]) -> Sampler:
    """Samplers of one structure as one, leaves with a leading axis."""

    def one(*leaves: Any) -> Any:
        if all(isinstance(leaf, (np.ndarray, np.generic)) for leaf in leaves):  # without a program
            return np.stack(leaves)
        return jnp.stack([jnp.asarray(leaf) for leaf in leaves])

    return jax.tree.map(one, *samplers)


def check_over(over: Any) -> dict[str, list[Any]]:
    """`over` as lists, none of them empty."""
    if not isinstance(over, Mapping):
        raise InvalidTypeError(
            f'`over` must be a dict of the settings to vary, e.g. over={{"batch_size": [100, 500]}}, got {over!r}.'
        )
    out = {}
    for name, values in over.items():
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise InvalidTypeError(f"`over[{name!r}]` must be a list of values to try, got {values!r}.")
        out[name] = [_tree_number(value) for value in values]
        if name == "step_size" and not all(isinstance(value, (int, float)) for value in out[name]):
            raise InvalidTypeError(f"`over['step_size']` must contain numbers, got {out[name]!r}.")
        if not out[name]:
            raise InvalidValueError(f"`over[{name!r}]` is empty: list the values to try.")
    return out


def _tree_number(value: Any) -> Any:
    return value.item() if isinstance(value, (np.generic, jax.Array)) and _tree.size(value) == 1 else value
