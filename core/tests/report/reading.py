"""A report as a parser sees it (elements by id, tables as text, links), and runs to report."""

import dataclasses
from html.parser import HTMLParser

import numpy as np

from scirocco.run import Run

_VOID = {"input", "meta", "link", "br", "hr", "wbr"}


class Page(HTMLParser):
    """What a page holds. `problems` are tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.tags, self.problems = [], [], [], []
        self.sections, self.rows, self.controls, self.labels = {}, {}, [], set()
        self._open, self._section, self._table, self._row = [], None, None, None
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        known = dict(attrs)
        self.tags.append((tag, known))
        if tag not in _VOID:
            self._open.append(tag)
        if "id" in known:
            self.ids.append(known["id"])
        self.links += [known[name] for name in ("href", "src", "srcset", "action", "data") if name in known]
        if tag == "section":
            self._section = known["id"]
            self.sections[self._section] = ""
        if tag in ("input", "select"):
            self.controls.append(known["id"])
        if tag == "label":
            self.labels.add(known["for"])
        if tag == "table":
            self._table = known.get("id")
            self.rows.setdefault(self._table, [])
        if tag == "tr":
            self._row = []
        if tag in ("td", "th") and self._row is not None:
            self._row.append("")

    def handle_endtag(self, tag):
        if not self._open or self._open.pop() != tag:
            self.problems.append((tag, self.getpos()))
        if tag == "tr" and self._row is not None:
            self.rows[self._table].append(self._row)
            self._row = None
        if tag == "section":
            self._section = None

    def handle_data(self, data):
        if self._section is not None:
            self.sections[self._section] += data
        if self._row:
            self._row[-1] += data


def made_run(draws, **changes):
    """A run of given draws, as one that was loaded."""
    chains, number = next(iter(draws.values())).shape[:2]
    size = sum(int(np.prod(leaf.shape[2:], dtype=int)) for leaf in draws.values())
    known = {"model": "made", "sampler": {"name": "SGLD", "step_size": 0.1}, "estimator": {"name": "Full"}}
    known |= {"dimension": size, "num_rows": 10, "num_chains": chains, "num_samples": number}
    known |= {"num_burnin": 0, "thin": 1, "versions": {}}
    made = Run(draws, None, {}, known, {}, {}, "complete", [])
    return dataclasses.replace(made, **changes)


def noise(seed, *shape):
    return np.random.default_rng([seed, 5]).normal(size=shape)
