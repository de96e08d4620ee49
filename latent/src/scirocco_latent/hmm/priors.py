"""Emission distributions from the arguments of the model, and to records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.model.density import Model
from scirocco_latent.hmm import own
from scirocco_latent.hmm.emissions import Categorical, Emission, NormalEmission, PoissonEmission
from scirocco_latent.hmm.series import Array, SeriesData, counts, labels, real

KINDS = ("auto", "categorical", "gaussian", "poisson")
_MOST_COUNTED = 20.0
"""The largest mean of counts that "auto" takes to be Poisson variables: larger ones usually vary more."""
_CLASSES: dict[str, Any] = {each.kind: each for each in (Categorical, NormalEmission, PoissonEmission)}


def resolve(
    kind: Any, given: SeriesData, num: int, prior: Mapping[str, Any] | None, categories: Any, start: Any = None
) -> Emission:
    """The emission distribution for some series: a prior that depends on their scale, unless one is given."""
    if not isinstance(kind, str):
        for name, value in {"prior": prior, "categories": categories}.items():
            if value is not None:
                raise InvalidValueError(f"`{name}` is for built-in emissions: an sc.Model has its own prior.")
        return own.resolve(kind, start, given)
    if start is not None:
        raise InvalidValueError("`start` is for emissions of your own: built-in ones start from the data.")
    if _checks.choice(kind, "emissions", KINDS) == "auto":
        kind = _kind_of(given, prior, categories)
    if categories is not None and kind != "categorical":
        raise InvalidValueError(f'`categories` requires emissions="categorical", got {kind!r}.')
    allowed = {
        "categorical": ("concentration",),
        "gaussian": ("mean", "strength", "degrees", "scale"),
        "poisson": ("shape", "rate"),
    }[kind]
    known = dict(prior or {})
    for name in known:
        if name not in allowed:
            raise InvalidValueError(f"the prior of {kind} emissions has no {name!r}. It has {', '.join(allowed)}.")
    if kind == "categorical":
        return _categorical(given, known, categories)
    values = real(given, None)
    return _gaussian(values, num, known) if kind == "gaussian" else _poisson(counts(values), known)


def _kind_of(given: SeriesData, prior: Mapping[str, Any] | None, categories: Any) -> str:
    """The emissions for series if the user does not choose them."""
    if categories is not None or set(prior or {}) == {"concentration"}:
        return "categorical"
    if prior:
        return "poisson" if set(prior) <= {"shape", "rate"} else "gaussian"
    values = given.values
    if values.dtype.kind in "US" or (values.dtype.kind == "O" and any(isinstance(v, str) for v in values.flat)):
        return "categorical" if values.ndim == 1 else "gaussian"
    seen = real(given, None)
    seen = seen[~np.isnan(seen[:, 0])]
    is_count = len(seen) > 0 and bool(np.all((seen >= 0) & (seen == np.floor(seen))))
    return "poisson" if is_count and float(seen.mean(axis=0).max()) <= _MOST_COUNTED else "gaussian"


def _categorical(given: SeriesData, known: dict[str, Any], categories: Any) -> Categorical:
    found, absent = labels(given.values)
    if categories is None:
        names = np.unique(found[~absent]).tolist()
    else:
        names = list(dict.fromkeys(np.asarray(categories).tolist()))
        if len(names) < len(np.asarray(categories)):
            raise InvalidValueError("`categories` contains a category twice.")
    if not names:
        raise InvalidValueError("all observations are missing.")
    if any(isinstance(name, bytes) for name in names):
        raise InvalidTypeError("the categories are bytes: decode them, as in np.char.decode(series).")
    return Categorical(tuple(names), _positive_number(known.get("concentration", 1.0), "concentration"))


_MOST = 1e150
"""The largest number whose square double precision holds, with room for sums."""


def _gaussian(values: Array, num: int, known: dict[str, Any]) -> NormalEmission:
    d = values.shape[1]
    seen = values[~np.isnan(values[:, 0])]
    if not len(seen):
        raise InvalidValueError("all observations are missing.")
    if np.abs(seen).max() > _MOST:
        raise InvalidValueError(
            f"the series has the value {seen.flat[np.abs(seen).argmax()]:g}: its squares are not finite. Divide the "
            "series by a number of its size."
        )
    centre, scale = seen.mean(axis=0), seen.std(axis=0)
    flat = np.flatnonzero(~(scale > 1e-12 * (1.0 + np.abs(centre))))
    if flat.size and set(known) < {"mean", "strength", "degrees", "scale"}:
        raise InvalidValueError(
            f"column {flat[0]} of the series is constant ({centre[flat[0]]:g}), so the scale of the prior cannot be "
            "taken from it. Drop the column, or pass prior={'mean': ..., 'strength': ..., 'degrees': ..., 'scale': "
            "...}."
        )
    scale = np.where(scale > 0, scale, 1.0)
    mean = np.broadcast_to(np.asarray(known.get("mean", centre), np.float64), d)
    degrees = _positive_number(known.get("degrees", d + 2.0), "degrees")
    if degrees <= d - 1:
        raise InvalidValueError(f"the prior's `degrees` must be above {d - 1}, got {degrees:g}.")
    wide = known.get("scale", scale / num ** (1 / d))
    wide = np.broadcast_to(np.asarray(wide, np.float64), d)
    if not (np.isfinite(wide).all() and (wide > 0).all()):
        raise InvalidValueError(f"the prior's `scale` must be finite and > 0, got {known['scale']!r}.")
    strength = _positive_number(known.get("strength", 0.01), "strength")
    middle = (mean - centre) / scale
    return NormalEmission(_plain(centre), _plain(scale), _plain(middle), strength, degrees, _plain((wide / scale) ** 2))


def _poisson(values: Array, known: dict[str, Any]) -> PoissonEmission:
    seen = values[~np.isnan(values[:, 0])]
    if not len(seen):
        raise InvalidValueError("all observations are missing.")
    shape = _positive_number(known.get("shape", 1.0), "shape")
    rate = np.asarray(known.get("rate", shape / np.maximum(seen.mean(axis=0), 1.0 / len(seen))), np.float64)
    if not (np.isfinite(rate).all() and (rate > 0).all()):
        raise InvalidValueError(f"the prior's `rate` must be finite and > 0, got {known['rate']!r}.")
    return PoissonEmission(shape, _plain(np.broadcast_to(rate, values.shape[1])))


def as_json(emission: Emission) -> dict[str, Any]:
    """JSON representation for records; of a user's model its name and its parameters."""
    if isinstance(emission, own.Own):
        start = [[name, list(shape), list(values)] for name, shape, values in emission.start]
        return {"kind": "own", "model": repr(emission.model), "start": start, "width": emission.width}
    assert isinstance(emission, Categorical | NormalEmission | PoissonEmission)
    return {"kind": emission.kind, **{k: _listed(v) for k, v in dataclasses.asdict(emission).items()}}


def from_json(written: Mapping[str, Any], model: Any = None) -> Emission:
    """Read what `as_json` wrote; `model` is that of emissions of the user's own."""
    if written["kind"] == "own":
        if not isinstance(model, Model):
            raise InvalidTypeError(
                f"the emissions of this HMM are a user's own, {written['model']}, and code is not stored: pass them, "
                "HMM.load(path, emissions=model)."
            )
        start = tuple((name, tuple(shape), tuple(values)) for name, shape, values in written["start"])
        return own.Own(model, start, written["width"])
    if model is not None:
        raise InvalidValueError(f"this HMM has {written['kind']} emissions: remove `emissions`.")
    fields = {name: tuple(v) if isinstance(v, list) else v for name, v in written.items() if name != "kind"}
    return _CLASSES[written["kind"]](**fields)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _plain(values: Array) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _positive_number(value: Any, name: str) -> float:
    _checks.positive(value, f"the prior's {name}")
    return float(value)
