"""One stopwatch for every side of the topic-model comparison: topics are kept at marks of time or of documents.

A side calls `look` after each of its steps. A mark is taken at the end of the step that passes it, so a side with long
steps gets a little more time than it is credited with. What reading out and saving the topics takes is not counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("cpu", "wall", "documents")


class Marks:
    """Topics at marks, with the CPU and wall seconds and the number of documents when they were taken."""

    def __init__(self, seconds: Sequence[float], documents: Sequence[int] = (), clock: str = "cpu"):
        self.clock = clock
        self._seconds, self._documents = sorted(seconds), sorted(documents)
        self._rows: list[tuple[str, float, float, float, int]] = []
        self._topics: list[dict[str, np.ndarray]] = []
        self._own = np.zeros(2)
        self._start = self._now()

    def _now(self) -> np.ndarray:
        return np.array([time.process_time(), time.perf_counter()])

    def begin(self) -> None:
        """The clocks start here."""
        self._start = self._now()

    def elapsed(self) -> float:
        """Seconds so far of the clock that counts."""
        return float((self._now() - self._start - self._own)[KINDS.index(self.clock)])

    def look(self, seen: int, topics: Callable[[], Any]) -> bool:
        """After a step: whether there are marks left. `topics()` gives a matrix, or several by name."""
        before = self._now()
        cpu, wall = before - self._start - self._own
        due = [(self.clock, mark) for mark in self._seconds if mark <= (cpu if self.clock == "cpu" else wall)]
        due += [("documents", mark) for mark in self._documents if mark <= seen]
        if due:
            self._seconds = [mark for mark in self._seconds if (self.clock, mark) not in due]
            self._documents = [mark for mark in self._documents if mark > seen]
            found = topics()
            named = found if isinstance(found, dict) else {"topics": found}
            for kind, mark in due:
                self._rows.append((kind, float(mark), float(cpu), float(wall), int(seen)))
                self._topics.append({name: np.asarray(part, np.float32) for name, part in named.items()})
            self._own += self._now() - before
        return bool(self._seconds or self._documents)

    def save(self, path: str | Path) -> None:
        """One file with all marks in the order in which they were taken."""
        kinds, marks, cpu, wall, seen = zip(*self._rows, strict=True) if self._rows else ((),) * 5
        stacked = {name: np.stack([part[name] for part in self._topics]) for name in self._topics[0]}
        np.savez(path, kind=kinds, mark=marks, cpu_s=cpu, wall_s=wall, documents=seen, **stacked)


def arguments(description: str) -> argparse.ArgumentParser:
    """What every side is told: the corpus, where to write, the marks, and the model."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("corpus", help="the three arrays of a CSR matrix, in random order")
    parser.add_argument("out")
    parser.add_argument("--marks", type=float, nargs="*", default=[5.0, 15.0, 30.0, 60.0], help="seconds")
    parser.add_argument("--document-marks", type=int, nargs="*", default=[], help="documents seen")
    parser.add_argument("--clock", choices=KINDS[:2], default="cpu")
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--beta", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def read(path: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]:
    """`indptr`, `indices`, `counts` and the shape of the training documents."""
    data = np.load(path)
    return data["indptr"], data["indices"], data["counts"], tuple(int(n) for n in data["shape"])
