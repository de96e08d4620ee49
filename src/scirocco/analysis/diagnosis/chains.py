"""What the draws alone say: effective sample sizes, R-hat, drift, agreement of chains."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scirocco._extras import require

_MOST_PARAMETERS = 200
_MOST_DRAWS = 20_000
_BLOCK = 4_000_000
"""Numbers that are read at once."""
Array = np.ndarray[Any, np.dtype[Any]]


class Flat(NamedTuple):
    """Draws as one array (chain, draw, parameter), and the parameters' names; some of them, when there are many."""

    values: Array
    names: list[str]
    total: int
    """Parameters in all."""
    stride: int
    """Every so many draws."""


def flatten(named: dict[str, Any], most: int = _MOST_PARAMETERS) -> Flat:
    """Parameters spread evenly over all; draws thinned where there are very many."""
    sizes = {name: int(np.prod(leaf.shape[2:], dtype=int)) for name, leaf in named.items()}
    total = sum(sizes.values())
    wanted = np.unique(np.linspace(0, total - 1, min(total, most)).round().astype(int))
    columns, names, first = [], [], 0
    draws = next(iter(named.values())).shape[1]
    stride = max(1, draws // _MOST_DRAWS)
    for name, leaf in named.items():
        here = wanted[(wanted >= first) & (wanted < first + sizes[name])] - first
        if len(here):
            columns.append(read_columns(leaf, here, stride))
            names += [label(name, leaf.shape[2:], int(k)) for k in here]
        first += sizes[name]
    return Flat(np.concatenate(columns, axis=2), names, total, stride)


def read_columns(leaf: Any, places: Array, stride: int = 1) -> Array:
    """Some parameters of a leaf (chain, draw, ...) by their places, every `stride`-th draw: (chain, draw, parameter).

    A block of draws at a time, as a leaf may be on disk and larger than memory.
    """
    size = int(np.prod(leaf.shape[2:], dtype=int))
    block = max(1, _BLOCK // (size * leaf.shape[0]) // stride) * stride
    parts = [
        np.asarray(leaf[:, start : start + block : stride]).reshape(leaf.shape[0], -1, size)[:, :, places]
        for start in range(0, leaf.shape[1], block)
    ]
    return np.concatenate(parts, axis=1).astype(np.float64)


def label(name: str, shape: tuple[int, ...], place: int) -> str:
    """`beta[3]`, as `run.summary()` has it."""
    if not shape:
        return name
    return f"{name}[{', '.join(str(int(k)) for k in np.unravel_index(place, shape))}]"


def measure_chains(flat: Flat, num_steps: int, seconds: float | None) -> dict[str, Any]:
    """The numbers of `Diagnosis.measures` that need draws only. Diagnostics are ArviZ's."""
    values = flat.values
    moving = values.reshape(-1, values.shape[2]).std(axis=0) > 0
    stuck = [n for n, m in zip(flat.names, moving, strict=True) if not m]
    if not moving.any():
        return {"stuck": stuck}
    values, names = values[:, :, moving], [n for n, m in zip(flat.names, moving, strict=True) if m]
    bulk, tail, r_hat = _arviz(values)
    (drift, trend), spread = _drift(values), _spread(values)
    out: dict[str, Any] = {"stuck": stuck} if stuck else {}

    def worst(name: str, numbers: Array, largest: bool) -> None:
        place = int(np.nanargmax(numbers) if largest else np.nanargmin(numbers))
        out[name], out[f"{name}_parameter"] = float(numbers[place]), names[place]

    worst("ess_bulk", bulk, False)
    worst("ess_tail", tail, False)
    if np.isfinite(r_hat).any():
        worst("r_hat", r_hat, True)
    worst("drift", drift, True)
    out["trend"], out["chain_spread"] = float(trend.max()), float(spread.max())
    if values.shape[0] > 1:
        place = int(np.argmax(spread))
        out["ess_of_one_chain"] = float(np.median([_arviz(chain[None, :, [place]])[0] for chain in values]))
    if seconds:
        out["ess_per_second"] = out["ess_bulk"] / seconds
    out["ess_per_gradient"] = out["ess_bulk"] / max(1, num_steps * values.shape[0])
    return out


def _arviz(values: Array) -> tuple[Array, Array, Array]:
    az = require("arviz", "sc.analysis.diagnose")
    xarray = require("xarray", "sc.analysis.diagnose")
    dataset = xarray.Dataset({"x": (("chain", "draw", "parameter"), values)})
    bulk = np.asarray(az.ess(dataset, method="bulk")["x"])
    tail = np.asarray(az.ess(dataset, method="tail")["x"])
    if values.shape[0] == 1:
        halves = values[:, : values.shape[1] // 2 * 2].reshape(2, -1, values.shape[2])
        dataset = xarray.Dataset({"x": (("chain", "draw", "parameter"), halves)})
    return bulk, tail, np.asarray(az.rhat(dataset)["x"])


def _drift(values: Array) -> tuple[Array, Array]:
    """Mean of the second half less that of the first, in sds of the second halves.

    Averaged over chains without its sign (drift: also slow wandering has it), and with it (trend: only a way that all
    chains go has it; wandering has about 2/√chains).
    """
    half = values.shape[1] // 2
    first, second = values[:, :half], values[:, half:]
    scale = np.sqrt(second.var(axis=1).mean(axis=0)) + 1e-300
    moved = second.mean(axis=1) - first.mean(axis=1)
    return np.abs(moved).mean(axis=0) / scale, np.abs(moved.mean(axis=0)) / scale


def _spread(values: Array) -> Array:
    """Largest distance between means of the chains' second halves, in sds within chains."""
    second = values[:, values.shape[1] // 2 :]
    scale = np.sqrt(second.var(axis=1).mean(axis=0)) + 1e-300
    means = second.mean(axis=1)
    return (means.max(axis=0) - means.min(axis=0)) / scale
