"""Experiments in a row: what is left out and why, one table at the end, and a file with it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scirocco._console import print_table, print_wrapped, to_json
from scirocco._version import versions
from scirocco.errors import MissingDataError, MissingExtraError
from scirocco_papers.base import Experiment, Reproduction, Settings, machine, reproduce


@dataclass(frozen=True)
class Skipped:
    """An experiment that was not made, for want of data or of a package, or because of an error."""

    experiment: Experiment
    why: str
    """One sentence."""
    failed: bool = False
    """Whether it ended in an error."""


class Series:
    """Experiments that `scirocco reproduce` makes one after the other.

    Parameters
    ----------
    settings
        For each of them.
    all_of_them
        Whether they were requested as `all`: then one whose data or packages are not on this machine is left out, one
        that fails does not end the others, and a summary is printed and written at the end. Requested by its name, it
        is an error.
    """

    def __init__(self, settings: Settings, all_of_them: bool):
        from scirocco.run.progress import Clock

        self.settings = settings
        self.all_of_them = all_of_them
        self.done: list[Reproduction] = []
        self.skipped: list[Skipped] = []
        self._clock = Clock()

    @property
    def ok(self) -> bool:
        """Whether every claim that is expected to hold does, in all that were made, and none failed."""
        return all(one.ok for one in self.done) and not any(one.failed for one in self.skipped)

    def add(self, experiment: Experiment) -> Reproduction | Skipped:
        """Make one, or leave it out."""
        try:
            found = reproduce(experiment, self.settings)
        except (MissingDataError, MissingExtraError) as missing:
            if not self.all_of_them:
                raise
            self.skipped.append(Skipped(experiment, _first_sentence(str(missing))))
            return self.skipped[-1]
        except Exception as error:
            if not self.all_of_them:
                raise
            why = f"{type(error).__name__}: {_first_sentence(str(error))}"
            self.skipped.append(Skipped(experiment, why, failed=True))
            return self.skipped[-1]
        self.done.append(found)
        return found

    def finish(self) -> None:
        """Print and write the summary."""
        if not self.all_of_them:
            return
        if not self.done and not any(one.failed for one in self.skipped):
            raise MissingDataError(f"none of the experiments can be made here. {self.skipped[0].why}")
        record = self.record()
        print_series(self.done, self.skipped, record["seconds"]["wall"])
        print(f"\n  {self._write(record)}", flush=True)

    def record(self) -> dict[str, Any]:
        """The summary for a file: claims, seconds, versions, machine."""
        chosen = " --quick" * self.settings.quick
        if self.settings.seed is not None:
            chosen += f" --seed {self.settings.seed}"
        return {
            "command": f"scirocco reproduce all{chosen}",
            "quick": self.settings.quick,
            "seconds": self._clock.read(),
            "experiments": {done.experiment.name: counts(done) for done in self.done},
            **self._left_out(),
            "versions": versions(),
            "machine": machine(),
        }

    def as_json(self) -> dict[str, Any]:
        """What the files hold, and where they are."""
        made = {
            one.experiment.name: json.loads(one.record.read_text("utf-8"))
            | {"ok": one.ok, "files": [str(one.record), str(one.picture)]}
            for one in self.done
        }
        return {"ok": self.ok, "experiments": made, **self._left_out()}

    def _left_out(self) -> dict[str, dict[str, str]]:
        return {
            title: {one.experiment.name: one.why for one in self.skipped if one.failed == failed}
            for title, failed in (("skipped", False), ("failed", True))
        }

    def _write(self, record: dict[str, Any]) -> Path:
        self.settings.out_dir.mkdir(parents=True, exist_ok=True)
        path = self.settings.out_dir / ("all-quick.json" if self.settings.quick else "all.json")
        text = json.dumps(to_json(record), indent=1, ensure_ascii=False, allow_nan=False)
        path.write_text(text + "\n", "utf-8")
        return path


def counts(done: Reproduction) -> dict[str, float]:
    """Claims that count, those of them that hold and that are not decided, those that do not count; the seconds."""
    claims = done.outcome.claims
    counted = [claim for claim in claims if not claim.because]
    return {
        "hold": sum(claim.holds and not claim.undecided for claim in counted),
        "undecided": sum(claim.undecided for claim in counted),
        "counted": len(counted),
        "not_counted": len(claims) - len(counted),
        "seconds": done.seconds,
    }


def print_reproduction(done: Reproduction) -> None:
    """The verdicts, the findings and where the files are."""
    rows = []
    for claim in done.outcome.claims:
        why = f"\nnot counted: {claim.because}" if claim.because else ""
        if claim.undecided:
            why = f"\nnot decided: {claim.margin:.1f} standard errors from the limit of the rule"
        rows.append([f"«{claim.paper}»", f"{claim.here}\n(rule: {claim.rule}){why}", claim.verdict])
    title = f"{done.experiment.title} ({done.experiment.figure})"
    print_table(title, ["the paper's claim", "here", "holds"], rows, lines=True)
    for note in done.outcome.notes:
        print_wrapped(f"  note: {note}")
    print(f"\n  {done.record}\n  {done.picture}\n  {done.seconds:.0f} s")
    sys.stdout.flush()


def print_one(one: Reproduction | Skipped) -> None:
    """The verdicts; or one line that says why there are none."""
    if isinstance(one, Reproduction):
        print_reproduction(one)
    else:
        print(f"{one.experiment.name}: {'FAILED' if one.failed else 'skipped'}. {one.why}", flush=True)


def print_series(done: Sequence[Reproduction], skipped: Sequence[Skipped], seconds: float) -> None:
    """One line an experiment, and the total."""
    rows = []
    for one in done:
        n = counts(one)
        rows.append(
            [
                f"{one.experiment.name}  ",
                "yes" if one.ok else "NO",
                f"{n['hold']} of {n['counted']}",
                str(n["undecided"]),
                str(n["not_counted"]),
                f"{one.seconds:.0f}",
            ]
        )
    rows += [[one.experiment.name, "FAILED" if one.failed else "skipped", "", "", "", ""] for one in skipped]
    rows.append(["total", "", "", "", "", f"{seconds:.0f}"])
    # narrow columns stand close together: spaces keep them apart
    columns = ["experiment", "as claimed", "  hold", "  not decided", "  not counted", "  seconds"]
    print_table("All experiments", columns, rows, right=(2, 3, 4, 5))


def _first_sentence(text: str) -> str:
    """Messages about data list files and licences; a line in a log wants the gist."""
    flat = " ".join(text.split())
    end = flat.find(". ")
    return flat if end < 0 else flat[: end + 1]


def print_experiments(experiments: Sequence[Experiment]) -> None:
    """What can be reproduced."""
    rows = [[e.name, e.title, e.figure, e.duration] for e in experiments]
    print_table("scirocco reproduce NAME", ["name", "what", "where", "takes"], rows)
