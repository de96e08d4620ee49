"""CPU seconds until one state of "gibbs" predicts as well as one state of tomotopy after 15, 30 and 60 CPU seconds.

Both have K = 100, α = 0.1, β = 0.05 and one thread. Our states are kept at times that grow by a tenth; the first that
is as good counts, with the time at which it was taken. Run by `lda.py --until tomotopy`.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import lda_corpus
import lda_sides
import lda_wikipedia
import numpy as np

CORPORA = ("synthetic-101", "synthetic-102", "synthetic-103", "wikipedia", "newsgroups20")
MARKS = (15.0, 30.0, 60.0)
FIRST, GROWTH = 1.0, 1.1
GOAL = 0.8
OURS = lda_sides.Side("states_gibbs", "ours_lda.py", "ours", ("--sampler", "gibbs", "--states"))


def make(name: str, options: argparse.Namespace) -> lda_corpus.Split:
    """The corpus with this name."""
    kind, _, seed = name.partition("-")
    return lda_corpus.make(int(seed)) if kind == "synthetic" else lda_wikipedia.make(0, options.data, name=name)


def times(most: float) -> list[float]:
    """Marks of our side."""
    return [FIRST * GROWTH**i for i in range(int(np.log(most / FIRST) / np.log(GROWTH)) + 2)]


def first_as_good(saved: Any, split: lda_corpus.Split, value: float) -> tuple[float, float]:
    """When a state is first as good as `value` (inf: never) and its perplexity, by bisection."""
    low, high, found = 0, len(saved["topics"]), float("nan")
    while low < high:
        middle = (low + high) // 2
        perplexity = lda_corpus.score(saved["topics"][middle], split)
        if perplexity <= value:
            high, found = middle, perplexity
        else:
            low = middle + 1
    return (float(saved["cpu_s"][high]) if high < len(saved["topics"]) else float("inf")), found


def compare(name: str, options: argparse.Namespace) -> list[dict[str, Any]] | None:
    """The rows of one corpus; None if a side crashed."""
    split, marks = make(name, options), options.marks or MARKS
    desk = lda_sides.Desk(options.folder / f"until-{name}", options.fresh, options.other)
    path = desk.folder / "corpus.npz"
    lda_corpus.save_training(path, split)
    theirs = desk.topics(lda_sides.TOMOTOPY, path, ["--marks", *marks])
    ours = desk.topics(OURS, path, ["--marks", *times(max(marks))])
    if theirs is None or ours is None:
        return None
    saved, rows = np.load(theirs), []
    states = dict(np.load(ours))
    for mark, seconds, topics in zip(saved["mark"], saved["cpu_s"], saved["topics"], strict=True):
        value = lda_corpus.score(topics, split)
        reached, perplexity = first_as_good(states, split, value)
        rows.append({"corpus": name, "tomotopy_s": float(seconds), "perplexity": value, "ours_s": reached})
        print(
            f"{name:14} tomotopy after {mark:3.0f} s ({seconds:5.1f}): {value:8.1f}   ours {perplexity:8.1f} after "
            f"{reached:5.1f} s   ratio {reached / seconds:.2f}{'' if reached <= GOAL * seconds else '  NOT below 0.8'}",
            flush=True,
        )
    return rows


def main(options: argparse.Namespace) -> int:
    """All corpora that were named."""
    found = [compare(name, options) for name in options.corpora]
    rows = [row for part in found for row in part or ()]
    below = sum(row["ours_s"] <= GOAL * row["tomotopy_s"] for row in rows)
    print(f"{below} of {len(rows)} below {GOAL} of tomotopy's time")
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(part is None for part in found))
