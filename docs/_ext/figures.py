"""Directives that show the results in docs/results: `{claims} NAME` for one experiment, `{verdicts}` for all.

Both read the JSON files that `scirocco reproduce` wrote; the page contains no copy of their numbers. A result without
a section on the page is a warning, which `make docs` treats as an error.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).resolve().parents[1] / "results"
_logger = logging.getLogger(__name__)
_SHOWN = ("python", "scirocco", "jax", "numpy", "scipy", "numpyro")


def results() -> dict[str, dict[str, Any]]:
    """The records of all experiments, by name; summaries of several are not among them."""
    found = (json.loads(path.read_text("utf-8")) for path in sorted(RESULTS.glob("*.json")))
    return {record["experiment"]: record for record in found if "experiment" in record}


def quick() -> dict[str, Any]:
    """The summary of `scirocco reproduce all --quick`."""
    loaded: dict[str, Any] = json.loads((RESULTS / "all-quick.json").read_text("utf-8"))
    return loaded


def verdict(claim: dict[str, Any]) -> str:
    """The verdict in words: yes, NO, or the verdict of a claim that does not count."""
    word = "yes" if claim["holds"] else "no"
    return word.replace("no", "NO") if claim["counts"] else f"{word}; does not count"


def tally(claims: list[dict[str, Any]]) -> list[int]:
    """Claims of the papers that count and hold, and that count; the same of our own; claims that do not count."""
    papers, ours = ([c for c in claims if c["counts"] and c.get("ours", False) == own] for own in (False, True))
    both = [[sum(claim["holds"] for claim in each), len(each)] for each in (papers, ours)]
    return [*both[0], *both[1], len(claims) - len(papers) - len(ours)]


def share(hold: int, counted: int) -> str:
    """A cell such as `5 of 6`; empty if no claim counts."""
    return f"{hold} of {counted}" if counted else ""


def duration(seconds: float) -> str:
    """Seconds or minutes, rounded."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


# -- pieces of a page ----------------------------------------------------------------------------------------


def text(words: str, *classes: str) -> nodes.paragraph:
    """A paragraph; text between backticks is code."""
    out = nodes.paragraph(classes=list(classes))
    for number, piece in enumerate(re.split(r"`([^`]+)`", words)):
        if piece:
            out += nodes.literal("", piece) if number % 2 else nodes.Text(piece)
    return out


def table(head: list[str], rows: list[list[nodes.Node]], widths: list[int], name: str) -> nodes.table:
    """A table whose cells are nodes."""
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=width) for width in widths]
    group += nodes.thead("", _row([text(title) for title in head]))
    group += nodes.tbody("", *(_row(row) for row in rows))
    return nodes.table("", group, classes=[name, "colwidths-given"])


def _row(cells: list[nodes.Node]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", cell) for cell in cells))


def folded(summary: str, inside: list[nodes.Node]) -> list[nodes.Node]:
    """Content that a reader can unfold; always visible in formats other than HTML."""
    begin = nodes.raw("", f"<details><summary>{summary}</summary>", format="html")
    return [begin, *inside, nodes.raw("", "</details>", format="html")]


# -- the directives ------------------------------------------------------------------------------------------


class Claims(SphinxDirective):
    """A table of claims with measurement, rule and verdict, followed by notes and the command."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Nodes for one experiment."""
        name = self.arguments[0]
        record = results().get(name)
        if record is None:
            raise self.error(f"there are no results of `{name}` in docs/results.")
        self.env.note_dependency(str(RESULTS / f"{name}.json"))
        out: list[nodes.Node] = [_claims_table(record)]
        if record["notes"]:
            notes = nodes.bullet_list("", *(nodes.list_item("", text(note)) for note in record["notes"]))
            count = len(record["notes"])
            out += folded(f"{count} {'note' if count == 1 else 'notes'}, with numbers", [notes])
        return [nodes.container("", *out, _made_by(record, name), classes=["experiment"], experiment=name)]


def _claims_table(record: dict[str, Any]) -> nodes.table:
    rows: list[list[nodes.Node]] = []
    for claim in record["claims"]:
        here = nodes.container("", text(claim["here"]), text(f"Rule: {claim['rule']}", "rule"))
        if not claim["counts"]:
            here += text(f"Does not count: {claim['because']}", "reason")
        fails = claim["counts"] and not claim["holds"]
        rows.append([text(claim["paper"]), here, text(verdict(claim), "fails" if fails else "holds")])
    return table([record["figure"], "here", "holds"], rows, [34, 54, 12], "claims")


def _made_by(record: dict[str, Any], name: str) -> nodes.paragraph:
    machine, versions = record["machine"], record["versions"]
    where = "one GPU" if machine["backend"] == "gpu" else f"{machine['cores']} cores"
    packages = ", ".join(f"{package} {versions[package]}" for package in _SHOWN if package in versions)
    out = text(f"`{record['command']}` · {record['seconds']['wall']:.0f} s on {where} · {packages} · ")
    link = addnodes.download_reference("", "", reftarget=f"/results/{name}.json", refdoc="", reftype="download")
    link += nodes.literal("", f"{name}.json")
    out += link
    return out


class Verdicts(SphinxDirective):
    """All experiments: what, where, claims that hold, times of full and quick runs."""

    def run(self) -> list[nodes.Node]:
        """An empty table; `_fill` fills it when the page has been read."""
        self.env.note_dependency(str(RESULTS / "all-quick.json"))
        return [nodes.container("", classes=["verdicts"], verdicts=True)]


def _fill(app: Sphinx, document: nodes.document) -> None:
    """Fill the table, in the order of the sections on the page."""
    empty = [node for node in document.findall(nodes.container) if node.get("verdicts")]
    if not empty:
        return
    found = results()
    sections = {node["experiment"]: node.parent for node in document.findall(nodes.container) if "experiment" in node}
    for name in sorted(found.keys() - sections.keys()):
        _logger.warning("the results of `%s` are not on the page of figures", name, location=document)
    for node in empty:
        node += _verdicts_table({name: (found[name], section) for name, section in sections.items()})


def _verdicts_table(shown: dict[str, tuple[dict[str, Any], Any]]) -> nodes.table:
    shortly, rows = quick(), []
    total = [0] * 5
    seconds = 0.0
    for name, (record, section) in shown.items():
        count = tally(record["claims"])
        total = [a + b for a, b in zip(total, count, strict=True)]
        seconds += record["seconds"]["wall"]
        fast = shortly["experiments"].get(name)
        link = nodes.paragraph("", "", nodes.reference("", name, internal=True, refid=_identifier(section)))
        rows.append(
            [
                link,
                text(record["figure"]),
                text(share(*count[:2])),
                text(share(*count[2:4])),
                text(str(count[4]) if count[4] else ""),
                text(duration(record["seconds"]["wall"])),
                text(duration(fast["seconds"]) if fast else "not run"),
            ]
        )
    sums = [
        share(*total[:2]),
        share(*total[2:4]),
        str(total[4]),
        duration(seconds),
        duration(shortly["seconds"]["wall"]),
    ]
    rows.append([text("all"), text(""), *(text(words) for words in sums)])
    head = ["experiment", "figure", "claims of the paper that hold", "our own", "not counted", "full", "quick"]
    return table(head, rows, [20, 32, 12, 8, 8, 10, 10], "verdicts")


def _identifier(node: Any) -> str:
    """The identifier of the section that contains a node."""
    while not isinstance(node, nodes.section):
        node = node.parent
    return str(node["ids"][0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("claims", Claims)
    app.add_directive("verdicts", Verdicts)
    app.connect("doctree-read", _fill)
    app.add_css_file("figures.css")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
