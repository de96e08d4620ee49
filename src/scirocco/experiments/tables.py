"""What experiments found, on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from scirocco._showing import print_table, print_wrapped
from scirocco.experiments.base import Experiment, Reproduction


def print_reproduction(done: Reproduction) -> None:
    """The verdicts, the findings and where the files are."""
    rows = []
    for claim in done.outcome.claims:
        why = f"\nnot counted: {claim.because}" if claim.because else ""
        rows.append([f"«{claim.paper}»", f"{claim.here}\n(rule: {claim.rule}){why}", claim.verdict])
    title = f"{done.experiment.title} ({done.experiment.figure})"
    print_table(title, ["the paper's claim", "here", "holds"], rows, lines=True)
    for note in done.outcome.notes:
        print_wrapped(f"  note: {note}")
    print(f"\n  {done.record}\n  {done.picture}\n  {done.seconds:.0f} s")
    sys.stdout.flush()


def print_experiments(experiments: Sequence[Experiment]) -> None:
    """What can be reproduced."""
    rows = [[e.name, e.title, e.figure, e.duration] for e in experiments]
    print_table("scirocco reproduce NAME", ["name", "what", "where", "takes"], rows)
