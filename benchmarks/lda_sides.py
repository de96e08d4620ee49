"""Who takes part in the topic-model comparison, with what settings, and how a side is run once and remembered."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import environments

HERE = Path(__file__).resolve().parent
OURS_DEPENDS_ON = ("latent/src/scirocco_latent/lda", "core/src/scirocco/diffusions/host", "core/src/scirocco/simplex")


@dataclass(frozen=True)
class Side:
    """A script that reads a corpus and writes topics at marks; `where` says in whose interpreter it runs."""

    name: str
    script: str
    where: str
    arguments: tuple[str, ...] = ()

    def limited(self, documents: int) -> Side:
        """The same side with the first documents only."""
        return replace(
            self, name=f"{self.name}_{documents}", arguments=(*self.arguments, "--documents", str(documents))
        )


OURS = (
    Side("ours_scir", "ours_lda.py", "ours", ("--sampler", "scir")),
    Side("ours_gibbs", "ours_lda.py", "ours", ("--sampler", "gibbs")),
)
# `usual`: a document may take as many iterations as by default. Ten at most make both variational rivals several times
# faster for the same or better topics; the other settings are the best that were found on corpora for tuning.
TOMOTOPY = Side("tomotopy", "rivals/lda_tomotopy.py", "topics")
GENSIM = Side("gensim", "rivals/lda_gensim.py", "topics", ("--batch", "1000", "--inner", "10"))
SKLEARN = Side("sklearn", "rivals/lda_sklearn.py", "topics", ("--batch", "500", "--inner", "10"))
RIVALS = (
    TOMOTOPY,
    GENSIM,
    Side("gensim_usual", "rivals/lda_gensim.py", "topics", ("--batch", "2000")),
    SKLEARN,
    Side("sklearn_usual", "rivals/lda_sklearn.py", "topics", ("--batch", "1000")),
)
_PASS = ("--beta", "0.1", "--one-pass", "--document-marks", "10000", "20000", "30000", "40000", "50000")
WIKIPEDIA_RIVALS = (
    TOMOTOPY,
    replace(GENSIM, arguments=(*GENSIM.arguments, "--beta", "0.1")),
    replace(SKLEARN, arguments=("--batch", "1000", "--inner", "10", *_PASS)),
    replace(SKLEARN, name="sklearn_usual", arguments=("--batch", "500", "--decay", "0.6", "--offset", "64", *_PASS)),
)
NAMES = tuple(side.name for side in (*OURS, *RIVALS))


def chosen(sides: Sequence[Side], only: Sequence[str] | None) -> list[Side]:
    """Those that were named; `ours` means both of ours."""
    if only is None:
        return list(sides)
    wanted = {*only, *(side.name for side in OURS if "ours" in only)}
    return [side for side in sides if side.name in wanted]


class Desk:
    """A folder in which every side's topics and scores are kept, so that a run can be taken up where it ended."""

    def __init__(self, folder: Path, fresh: bool, other: str | None = None):
        self.folder, self.fresh, self.other = folder, fresh, other
        folder.mkdir(parents=True, exist_ok=True)

    def topics(self, side: Side, corpus: Path, options: Sequence[Any]) -> Path | None:
        """The file with the side's topics, made unless it is there; None (and its errors) when it crashed."""
        words = [*side.arguments, *map(str, options)]
        wanted = {"arguments": words, "code": _fingerprint(side), "corpus": _digest(corpus.read_bytes())}
        out = self.folder / f"{side.name}.npz"
        record = self._record(side.name)
        if out.exists() and not self.fresh and {key: record.get(key) for key in wanted} == wanted:
            return out
        python = sys.executable if side.where == "ours" else self.other or environments.topics_python()
        command = [python, str(HERE / side.script), str(corpus), str(out), *words]
        start = time.perf_counter()
        done = subprocess.run(command, env=environments.child_variables(False, None), capture_output=True, text=True)
        if done.returncode != 0:
            print(f"{side.name}: crashed with status {done.returncode}\n{done.stderr}", file=sys.stderr)
            return None
        print(f"{side.name}: {time.perf_counter() - start:.0f} s", flush=True)
        self._write(side.name, wanted)
        return out

    def scores(self, name: str) -> list[dict[str, Any]] | None:
        """Scores that were remembered."""
        found: list[dict[str, Any]] | None = self._record(name).get("scores")
        return found

    def keep_scores(self, name: str, scores: list[dict[str, Any]]) -> None:
        """Remember them."""
        self._write(name, self._record(name) | {"scores": scores})

    def _record(self, name: str) -> dict[str, Any]:
        path = self.folder / f"{name}.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def _write(self, name: str, record: dict[str, Any]) -> None:
        (self.folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")


def _fingerprint(side: Side) -> str:
    """Of the code that makes the topics: the script, and for ours the library, for rivals their versions."""
    files = [HERE / side.script, HERE / "lda_marks.py"]
    versions = ""
    if side.where == "ours":
        files += sorted(path for part in OURS_DEPENDS_ON for path in (HERE.parent / part).rglob("*.py"))
    else:
        versions = " ".join(environments.TOPIC_RIVALS)
    return _digest(b"".join(path.read_bytes() for path in files) + versions.encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
