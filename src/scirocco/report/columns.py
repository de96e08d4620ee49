"""Draws as columns: which parameters are looked at, their summary, and what the charts need of them."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from scirocco._extras import require
from scirocco.analysis.diagnosis.chains import label, read_columns

Array = np.ndarray[Any, np.dtype[Any]]

MOST_PARAMETERS = 300
_MOST_VALUES, _MOST_DRAWS = 4_000_000, 20_000
_GLANCE = 100
"""Draws by which the largest of very many parameters are found."""
PROBABILITY = 0.9


class Columns(NamedTuple):
    """Draws as one array (chain, draw, parameter) in double precision."""

    values: Array
    names: list[str]
    total: int
    """Parameters in all; fewer may be here."""
    stride: int
    """Every so many draws are here."""


def gather(named: dict[str, Any], most: int = MOST_PARAMETERS) -> Columns:
    """All parameters; of very many the half that is largest, and the other half spread evenly over all."""
    named = {name: leaf for name, leaf in named.items() if np.prod(leaf.shape[2:], dtype=int)}
    sizes = [int(np.prod(leaf.shape[2:], dtype=int)) for leaf in named.values()]
    total, first = sum(sizes), 0
    chains, draws = next(iter(named.values())).shape[:2]
    wanted = _wanted(named, total, most)
    stride = max(1, -(-chains * draws * len(wanted) // _MOST_VALUES), draws // _MOST_DRAWS)
    parts, names = [], []
    for (name, leaf), size in zip(named.items(), sizes, strict=True):
        here = wanted[(wanted >= first) & (wanted < first + size)] - first
        if len(here):
            parts.append(read_columns(leaf, here, stride))
            names += [label(name, leaf.shape[2:], int(place)) for place in here]
        first += size
    return Columns(np.concatenate(parts, axis=2), names, total, stride)


def _wanted(named: dict[str, Any], total: int, most: int) -> Array:
    if total <= most:
        return np.arange(total)
    means = []
    for leaf in named.values():
        stride = max(1, leaf.shape[1] // _GLANCE)
        size = int(np.prod(leaf.shape[2:], dtype=int))
        sums = np.zeros(size)
        for draw in range(0, leaf.shape[1], stride):  # one after the other, as each may be large
            sums += np.asarray(leaf[:, draw], np.float64).reshape(-1, size).sum(axis=0)
        means.append(np.abs(sums))
    largest = np.argsort(-np.concatenate(means), kind="stable")[: most // 2]
    spread = np.linspace(0, total - 1, most - len(largest)).round().astype(int)
    return np.union1d(largest, spread)


def summarise(columns: Columns, probability: float = PROBABILITY) -> dict[str, Array]:
    """The numbers of `run.summary()`, by the same formulas, and a central half: a value a parameter."""
    values, tail = columns.values, (1 - probability) / 2
    both = (0, 1)
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        low, lower, upper, high = np.quantile(values, [tail, 0.25, 0.75, 1 - tail], axis=both)
        few = values.shape[0] * values.shape[1] < 2
        sd = np.full(values.shape[2], np.nan) if few else values.std(axis=both, ddof=1)
        mean = values.mean(axis=both)
    out = {"mean": mean, "sd": sd, "low": low, "high": high}
    return out | {"lower": lower, "upper": upper} | _diagnostics(values)


def _diagnostics(values: Array) -> dict[str, Array]:
    """ArviZ's; nan where there are too few draws for them, one chain only, or draws that are not finite."""
    chains, draws, size = values.shape
    out = {name: np.full(size, np.nan) for name in ("mcse", "ess_bulk", "ess_tail", "r_hat")}
    finite = np.isfinite(values).all(axis=(0, 1))
    if draws < 4 or not finite.any():
        return out
    az, xarray = require("arviz", "a report"), require("xarray", "a report")
    data = xarray.Dataset({"x": (("chain", "draw", "parameter"), values[:, :, finite])})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out["mcse"][finite] = az.mcse(data, method="mean")["x"]
        out["ess_bulk"][finite] = az.ess(data, method="bulk")["x"]
        out["ess_tail"][finite] = az.ess(data, method="tail")["x"]
        if chains > 1:
            out["r_hat"][finite] = az.rhat(data)["x"]
    return out


def choose(summary: dict[str, Array], worst: int, largest: int) -> dict[int, str]:
    """Parameters worth a chart, and why: those that mixed worst, then those with the largest means."""
    size, chosen = len(summary["mean"]), dict[int, str]()
    ess = np.nan_to_num(summary["ess_bulk"], nan=np.inf)
    r_hat = np.minimum(np.nan_to_num(summary["r_hat"], nan=0.0), 1e6)
    for place in np.lexsort((ess, -np.round(r_hat, 2)))[:worst]:
        chosen[int(place)] = "mixed worst" if size > worst else ""
    for place in np.argsort(-np.abs(np.nan_to_num(summary["mean"])), kind="stable"):
        if len(chosen) >= min(size, worst + largest):
            break
        chosen.setdefault(int(place), "largest mean")
    return chosen


def autocorrelation(values: Array, num_lags: int) -> Array:
    """Of each chain of one parameter (chain, draw): (chain, lag), 1 at lag 0; nan for a chain that stands still."""
    length = values.shape[1]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        centred = values - values.mean(axis=1, keepdims=True)
        spectrum = np.abs(np.fft.rfft(centred, 2 * length, axis=1)) ** 2
        covariance = np.fft.irfft(spectrum, axis=1)[:, :num_lags]
        found: Array = np.where(covariance[:, :1] > 0, covariance / covariance[:, :1], np.nan)
    return found


def rank_counts(values: Array, num_bins: int) -> Array:
    """How many draws of each chain are in each part of the pooled ranks: (chain, bin).

    Draws that are equal share their ranks evenly, so that whole numbers can be looked at too.
    """
    levels = np.unique(values)
    below = np.stack([np.searchsorted(np.sort(chain), levels, side="right") for chain in values])
    pooled = np.concatenate([[0], below.sum(axis=0)])
    edges = np.linspace(0, values.size, num_bins + 1)
    return np.stack([np.diff(np.interp(edges, pooled, np.concatenate([[0], chain]))) for chain in below])
