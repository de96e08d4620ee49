"""A mixture on disk: what a store holds besides draws."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any

import jax
import numpy as np

from scirocco.data.arrays import ArraySource
from scirocco.errors import SciroccoWarning
from scirocco.models import fits
from scirocco.models.dp.concentration import Gamma
from scirocco.models.dp.gaussian import Gaussian, GaussianFamily
from scirocco.models.dp.multinomial import Multinomial, MultinomialFamily
from scirocco.models.dp.rows import CountRows, RealRows
from scirocco.models.dp.settings import Settings
from scirocco.run.encoding import decode, encode

_LARGE = 2**30
KIND = fits.Kind("DPMixture", "a Dirichlet-process mixture", "dp")
_BASES = {"Multinomial": Multinomial, "Gaussian": Gaussian}


def spec(family: Any, settings: Settings) -> fits.Spec:
    """What one draw leaves."""
    num = settings.keep_clusters
    parameters = {name: (num, *shape) for name, shape in family.shapes().items()}
    stats = dict.fromkeys(("num_clusters", "concentration", "passes"), ())
    shapes = {"weights": (num,), "rest": (), **parameters}
    return fits.Spec(
        {name: jax.ShapeDtypeStruct(shape, family.dtype) for name, shape in shapes.items()},
        {name: jax.ShapeDtypeStruct(shape, np.float64) for name, shape in stats.items()},
    )


def warn_if_large(fit: fits.Fit) -> None:
    """Draws that are kept in memory hold room for many clusters."""
    each = sum(np.dtype(leaf.dtype).itemsize * math.prod(leaf.shape) for leaf in fit.spec.draws.values())
    total = each * fit.num_samples * fit.num_chains
    if total > _LARGE:
        warnings.warn(
            f"the draws will take {total / 2**30:.1f} GiB of memory: {fit.num_chains} × {fit.num_samples} of "
            f"{each / 2**20:.0f} MiB. Give fewer `keep_clusters` or `num_samples`, or a `store`.",
            SciroccoWarning,
            stacklevel=3,
        )


def fingerprint(family: Any, rows: Any) -> str:
    """Of the data."""
    if isinstance(rows, RealRows):
        return ArraySource({"values": rows.values}).fingerprint()
    parts = [ArraySource({"part": part}).fingerprint() for part in rows.data]
    return "-".join([str(family.width), *parts])


def extra(params: dict[str, Any], family: Any, judges: Any) -> dict[str, Any]:
    """What is needed to come back: arguments, the base measure, rows by which clusters are compared."""
    arrays = {name: encode(value) for name, value in judges._asdict().items()}
    return {
        "params": {name: _written(value) for name, value in params.items()},
        "family": family.as_json(),
        "judges": arrays,
    }


def opened(written: dict[str, Any]) -> tuple[dict[str, Any], Any, Any]:
    """Arguments, family and rows again."""
    params = {name: _read(value, name) for name, value in written["params"].items()}
    kind = {**written["family"]}
    name = kind.pop("kind")
    arrays = {key: decode(value, key) for key, value in written["judges"].items()}
    if name == "multinomial":
        parts: Any = [np.asarray(arrays[key]) for key in ("indptr", "indices", "counts")]
        rows: Any = CountRows(parts[0], parts[1], parts[2], int(arrays["width"]))
        return params, MultinomialFamily(**kind), rows
    known: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in kind.items()}
    return params, GaussianFamily(**known), RealRows(np.asarray(arrays["values"]))


def _written(value: Any) -> Any:
    """`encode`, which does not know base measures or priors."""
    if type(value).__name__ in _BASES and dataclasses.is_dataclass(value):
        fields = dataclasses.asdict(value)  # type: ignore[arg-type]
        return {"base": type(value).__name__, "fields": {name: encode(part) for name, part in fields.items()}}
    if isinstance(value, np.generic):
        value = value.item()
    return encode(tuple(value) if isinstance(value, Gamma) else value)


def _read(written: Any, name: str) -> Any:
    if isinstance(written, dict) and "base" in written:
        fields = {key: decode(value, key) for key, value in written["fields"].items()}
        return _BASES[written["base"]](**fields)
    return decode(written, name)
