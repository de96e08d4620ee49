"""Topic models beside gensim, scikit-learn and tomotopy: perplexity of held-out documents at equal time.

    python benchmarks/lda.py                              # synthetic corpus, seed 101, all sides
    python benchmarks/lda.py --seeds 101 102 103
    python benchmarks/lda.py --wikipedia                  # needs the data set, see lda_wikipedia.py
    python benchmarks/lda.py --only ours tomotopy
    python benchmarks/lda.py --until tomotopy             # when "gibbs" reaches tomotopy's values, on five corpora
    python benchmarks/lda.py --marks 1 2 --seeds 1        # does it run?

One process after another, one thread each, on one core. Every side's topics are saved and then scored by the one scorer
of `lda_corpus.py`; a side that has been run with the same code, corpus and settings is not run again (`--fresh`
forgets). Compiling our kernels, and adding documents to tomotopy or gensim, are not timed. A timing is never a test:
the exit status is 1 only when a side crashed. Nothing was tuned on the scored seeds 101 to 103.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import environments
import lda_corpus
import lda_sides
import lda_tables
import lda_until
import lda_wikipedia
import numpy as np

FOLDER = environments.ROOT / "results" / "lda-benchmark"
SYNTHETIC_MARKS = (5.0, 15.0, 30.0, 60.0)
WIKIPEDIA_MARKS = tuple(10.0 * number for number in range(1, 10))
DOCUMENT_MARKS = (10_000, 20_000, 30_000, 40_000, 50_000)
SECONDS_FOR_SOME = 30.0


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wikipedia", action="store_true", help="instead of the synthetic corpus")
    parser.add_argument("--seeds", type=int, nargs="+", help="of the corpus or of the split (101; 0 for Wikipedia)")
    parser.add_argument("--marks", type=float, nargs="+", metavar="S", help="seconds (5 15 30 60; 10 20 ... 90)")
    parser.add_argument("--clock", choices=("cpu", "wall"), help="cpu for the synthetic corpus, else wall")
    parser.add_argument(
        "--only", nargs="+", metavar="SIDE", choices=("ours", *lda_sides.NAMES), help=" ".join(lda_sides.NAMES)
    )
    parser.add_argument(
        "--until",
        choices=("tomotopy",),
        help='CPU seconds until one state of "gibbs" is as good as this side after 15, 30 and 60 s; with --corpora',
    )
    parser.add_argument("--corpora", nargs="+", choices=lda_until.CORPORA, default=list(lda_until.CORPORA))
    parser.add_argument("--other", metavar="PYTHON", help="an interpreter that has the rivals")
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for topics and scores")
    parser.add_argument("--fresh", action="store_true", help="run again what has been run")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all numbers to this file")
    return parser.parse_args(arguments)


def scored(
    desk: lda_sides.Desk, side: lda_sides.Side, corpus: Path, options: Sequence[Any], split: lda_corpus.Split
) -> list[dict[str, Any]] | None:
    """Run a side unless it has been run, and score its marks."""
    path = desk.topics(side, corpus, options)
    if path is None:
        return None
    known = desk.scores(side.name)
    if known is not None:
        return known
    saved = np.load(path)
    found = []
    for place, kind in enumerate(saved["kind"]):
        row = {name: float(saved[name][place]) for name in ("mark", "cpu_s", "wall_s", "documents")}
        row |= {"kind": str(kind), "perplexity": lda_corpus.score(saved["topics"][place], split)}
        if "states" in saved:
            states = saved["states"][place]
            row["state"] = lda_corpus.score(saved["state"][place], split)
            row["predictions"] = lda_corpus.score(states[np.isfinite(states[:, 0, 0])], split)
        found.append(row)
    desk.keep_scores(side.name, found)
    return found


def corpus_file(desk: lda_sides.Desk, split: lda_corpus.Split) -> Path:
    """The training documents where the sides find them."""
    path = desk.folder / "corpus.npz"
    lda_corpus.save_training(path, split)
    return path


def synthetic(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """All sides on one corpus."""
    split = lda_corpus.make(seed)
    desk = lda_sides.Desk(options.folder / f"synthetic-{seed}", options.fresh, options.other)
    corpus = corpus_file(desk, split)
    told = ["--clock", options.clock or "cpu", "--marks", *(options.marks or SYNTHETIC_MARKS)]
    results = {}
    for side in lda_sides.chosen((*lda_sides.OURS, *lda_sides.RIVALS), options.only):
        results[side.name] = scored(desk, side, corpus, told, split)
    reference = {"unigram": lda_corpus.unigram(split), "true topics": lda_corpus.score(split.topics, split)}
    return {"seed": seed, "reference": reference, "sides": results}


def wikipedia(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """All sides on one split; then ours on the first documents alone."""
    split = lda_wikipedia.make(seed, options.data)
    desk = lda_sides.Desk(options.folder / f"wikipedia-{seed}", options.fresh, options.other)
    corpus = corpus_file(desk, split)
    told = ["--clock", options.clock or "wall", "--marks"]
    results = {}
    for side in lda_sides.chosen((*lda_sides.OURS, *lda_sides.WIKIPEDIA_RIVALS), options.only):
        results[side.name] = scored(desk, side, corpus, [*told, *(options.marks or WIKIPEDIA_MARKS)], split)
    for side in lda_sides.chosen(lda_sides.OURS, options.only):
        for number in DOCUMENT_MARKS:
            some = side.limited(number)
            results[some.name] = scored(desk, some, corpus, [*told, SECONDS_FOR_SOME], split)
    return {"seed": seed, "reference": {"unigram": lda_corpus.unigram(split)}, "sides": results}


def main() -> int:
    """Run what was asked for, print the tables, write the numbers."""
    options = parse()
    environments.pin_to_one_core()
    if options.until:
        return lda_until.main(options)
    seeds = options.seeds or ([0] if options.wikipedia else [lda_corpus.SCORED_SEEDS[0]])
    results = []
    for seed in seeds:
        results.append((wikipedia if options.wikipedia else synthetic)(seed, options))
        lda_tables.show(results[-1:], options.wikipedia)
    if len(results) > 1:
        lda_tables.show(results, options.wikipedia)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(any(side is None for result in results for side in result["sides"].values()))


if __name__ == "__main__":
    sys.exit(main())
