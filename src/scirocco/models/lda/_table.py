"""Compiled passes over the table of remembered topic counts, words × topics."""

from __future__ import annotations

from typing import Any

from scirocco.diffusions.host._random import cached


@cached
def move_counts(table: Any, totals: Any, words: Any, old: Any, new: Any) -> None:
    """Every token leaves its old topic (if it had one) for its new one; `totals` are the sums over words."""
    for i in range(words.size):
        w, before, after = words[i], old[i], new[i]
        if before == after:
            continue
        if before >= 0:
            table[w, before] -= 1
            totals[before] -= 1
        table[w, after] += 1
        totals[after] += 1


@cached
def gather_runs(source: Any, starts: Any, ends: Any, out: Any) -> None:
    """The entries starts[i]..ends[i]-1 of `source`, one run after the other."""
    place = 0
    for i in range(starts.size):
        for j in range(starts[i], ends[i]):
            out[place] = source[j]
            place += 1


@cached
def scatter_runs(values: Any, starts: Any, ends: Any, into: Any) -> None:
    """The other way round."""
    place = 0
    for i in range(starts.size):
        for j in range(starts[i], ends[i]):
            into[j] = values[place]
            place += 1
