"""`scirocco cite`: the papers to cite for a method, model or experiment."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Annotated, NamedTuple

from scirocco._version import __version__
from scirocco.cli._common import JSON, print_json, typer
from scirocco.cli.running import find_papers
from scirocco.errors import InvalidValueError
from scirocco.models._core.registry import MODELS

_ENTRY = re.compile(r"^@(\w+)\{(\w+),\n(.*?)^\}", re.M | re.S)
_FIELD = re.compile(r"^ *(\w+) *= \{(.*)\},$", re.M)


class BibliographyEntry(NamedTuple):
    """An entry of the bibliography."""

    kind: str
    fields: dict[str, str]
    bibtex: str

    @property
    def short(self) -> str:
        """`Welling and Teh (2011)`."""
        names = [author.split(",")[0].strip("{}") for author in self.fields["author"].split(" and ")]
        when = f" ({self.fields['year']})" if "year" in self.fields else ""
        if len(names) > 3:
            return f"{names[0]} et al.{when}"
        return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) + when


@cache
def references() -> dict[str, BibliographyEntry]:
    """The bibliography, `references.bib`, by key."""
    text = files("scirocco.cli").joinpath("references.bib").read_text("utf-8").replace("VERSION", __version__)
    return {
        entry[2]: BibliographyEntry(entry[1], dict(_FIELD.findall(entry[3])), entry[0])
        for entry in _ENTRY.finditer(text)
    }


class Work(NamedTuple):
    """What a name refers to: a phrase for a paper's methods section, and keys of the bibliography."""

    kind: str
    sentence: str
    keys: tuple[str, ...]


_TABLE = {
    "model": {
        **{name: (entry.method or entry.words, entry.cite) for name, entry in MODELS.items()},
        "horseshoe": ("the horseshoe prior", "carvalho2010"),
    },
    "method": {
        "zero_variance": ("zero-variance control variates after the run", "mira2013 baker2019"),
        "ksd": ("the kernel Stein discrepancy", "gorham2017"),
        "tune": ("step sizes tuned by a bandit", "coullon2023"),
        "subposteriors": ("a posterior for each part of the data", "scott2016 neiswanger2014"),
        "consensus": ("consensus Monte Carlo", "scott2016"),
        "gaussian_product": ("the product of normal approximations of subposteriors", "neiswanger2014"),
        "kdemc": ("the product of kernel density estimates of subposteriors", "neiswanger2014"),
        "weierstrass": ("the Weierstrass sampler", "wang2013"),
        "sgmcmc": ("the interface of the R package sgmcmc", "baker2019r"),
        "scirocco": ("the library scirocco", "scirocco"),
    },
}
"""Kind, name, phrase for a methods section, and keys of references.bib, of what has no class with `cited`."""
_ROOMS = {"samplers": "sampler", "simplex": "sampler", "estimators": "estimator"}
"""Rooms whose classes and functions are decorated with `cited`, and what these are."""


@cache
def works() -> dict[str, Work]:
    """Everything of the library that can be cited. Decorators are read from the source: importing it takes seconds."""
    found = dict[str, Work]()
    for room, kind in _ROOMS.items():
        for path in sorted(files("scirocco").joinpath(room).iterdir(), key=str):
            if path.name.endswith(".py"):
                found |= {name: Work(kind, *of) for name, of in _cited(path.read_text("utf-8"))}
    for kind, named in _TABLE.items():
        found |= {name: Work(kind, phrase, tuple(keys.split())) for name, (phrase, keys) in named.items()}
    return found


def _cited(source: str) -> Iterator[tuple[str, tuple[str, tuple[str, ...]]]]:
    """The names that a module defines under `@cited(phrase, keys)`, and those two."""
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef):
            continue
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "cited":
                phrase, keys = map(ast.literal_eval, call.args)
                yield node.name, (phrase, tuple(keys.split()))


def experiments() -> dict[str, Work]:
    """The experiments of the papers; empty if the package `scirocco-papers` is not installed."""
    papers = find_papers()
    return {
        name: Work("experiment", f'the experiment "{each.title}" ({each.figure})', each.cite)
        for name, each in ({} if papers is None else papers.ALL).items()
    }


def find(name: str) -> tuple[str, Work]:
    """Look up a name, ignoring case, `-`, `_` and `.`: its usual spelling, and what it refers to."""
    known = works()
    if _plain(name) not in map(_plain, known):
        known = experiments() | known
    plain = {_plain(each): each for each in known}
    if _plain(name) in plain:
        found = plain[_plain(name)]
        return found, known[found]
    close = difflib.get_close_matches(_plain(name), plain, 1, cutoff=0.5)
    hint = f" Did you mean `{plain[close[0]]}`?" if close else ""
    raise InvalidValueError(f"there is nothing to cite for `{name}`.{hint} `scirocco cite --list` shows all names.")


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(".", "")


def sentence(what: Work) -> str:
    """A sentence for the methods section of a paper."""
    known = references()
    cited = ", ".join(f"{known[key].short} \\cite{{{key}}}" for key in what.keys if key != "scirocco")
    tool = "scirocco \\cite{scirocco}"
    return f"We used {what.sentence}{f' [{cited}]' if cited else ''}, as implemented in {tool}."


def cite(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Samplers, estimators, models, experiments.", metavar="SAMPLER...", show_default=False),
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="Show all names and exit.")] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Show the papers to cite: a sentence for each name, and BibTeX for all.

    Example: scirocco cite SGHMC ControlVariates
    """
    from scirocco._console import print_table

    known = references()
    if list_them:
        everything = works() | experiments()
        if as_json:
            print_json({name: each._asdict() for name, each in everything.items()})
            return
        rows = [
            [name, each.kind, ", ".join(known[key].short for key in each.keys)] for name, each in everything.items()
        ]
        print_table("scirocco cite NAME", ["name", "what", "papers"], rows)
        return
    if not names:
        raise InvalidValueError("cite what? Give a name, such as SGLD; `scirocco cite --list` shows all.")
    found = [find(name) for name in names]
    keys = dict.fromkeys([key for _, work in found for key in work.keys] + ["scirocco"])
    if as_json:
        entries = {key: known[key].bibtex for key in keys}
        print_json({"sentences": {name: sentence(work) for name, work in found}, "bibtex": entries})
        return
    for _, work in found:
        print(f"% {sentence(work)}")
    print()
    print("\n\n".join(known[key].bibtex for key in keys))
