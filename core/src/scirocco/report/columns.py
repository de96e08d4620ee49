"""The parameters that a report includes, their summary, and the numbers for the charts."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from scirocco.diagnostics import measures
from scirocco.diagnostics.columns import Columns, Leaf, spread_evenly
from scirocco.diagnostics.measures import Array, Places

MOST_PARAMETERS = 300
_MOST_VALUES, _MOST_DRAWS = 4_000_000, 20_000
_GLANCE = 100
"""Number of draws used to find the largest of very many parameters."""
PROBABILITY = 0.9


def gather(named: Mapping[str, Leaf], most: int = MOST_PARAMETERS) -> Columns:
    """All parameters; of very many, half are the largest ones and half are spread evenly over all."""
    columns = Columns(named)
    wanted = _wanted(columns, most)
    numbers, draws = columns.num_chains * columns.num_draws * len(wanted), columns.num_draws
    return columns.select(wanted).thinned(max(1, -(-numbers // _MOST_VALUES), draws // _MOST_DRAWS))


def _wanted(columns: Columns, most: int) -> Places:
    total = columns.total
    if total <= most:
        return np.arange(total)
    means = []
    for leaf in columns.leaves.values():
        stride = max(1, leaf.shape[1] // _GLANCE)
        size = math.prod(leaf.shape[2:])
        sums = np.zeros(size)
        for draw in range(0, leaf.shape[1], stride):  # one at a time, as each may be large
            sums += np.asarray(leaf[:, draw], np.float64).reshape(-1, size).sum(axis=0) if size else 0.0
        means.append(np.abs(sums))
    largest = np.argsort(-np.concatenate(means), kind="stable")[: most // 2]
    return np.union1d(largest, spread_evenly(total, most - len(largest)))


def summarise(columns: Columns, probability: float = PROBABILITY, group_size: int = 1) -> dict[str, Array]:
    """The numbers of `run.summary()` and the central 50 % interval, one value per parameter.

    NaN where a draw is NaN; diagnostics also where one is infinite.
    """
    tail = (1 - probability) / 2
    found = measures.summarise(columns.values, (tail, 0.25, 0.75, 1 - tail), group_size)
    low, lower, upper, high = found.pop("quantiles")
    found |= {"low": low, "high": high, "lower": lower, "upper": upper, "mcse": found.pop("mcse_mean")}
    broken = np.isnan(columns.values).any(axis=(0, 1))
    endless = ~np.isfinite(columns.values).all(axis=(0, 1))
    for name, numbers in found.items():
        numbers[endless if name in ("mcse", "ess_bulk", "ess_tail", "r_hat") else broken] = np.nan
    return found


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


def rank_counts(values: Array, num_bins: int) -> Array:
    """How many draws of each chain are in each part of the pooled ranks: (chain, bin).

    Equal draws share their ranks evenly, so that integers work too.
    """
    levels = np.unique(values)
    below = np.stack([np.searchsorted(np.sort(chain), levels, side="right") for chain in values])
    pooled = np.concatenate([[0], below.sum(axis=0)])
    edges = np.linspace(0, values.size, num_bins + 1)
    return np.stack([np.diff(np.interp(edges, pooled, np.concatenate([[0], chain]))) for chain in below])
