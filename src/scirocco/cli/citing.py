"""`scirocco cite`: the papers to cite for a method, model or experiment."""

from __future__ import annotations

import difflib
import re
from functools import cache
from importlib.resources import files
from typing import Annotated, NamedTuple

from scirocco._version import __version__
from scirocco.cli._common import JSON, print_json, typer
from scirocco.cli.papers import find_papers
from scirocco.errors import InvalidValueError
from scirocco.models._core.registry import MODELS

_ENTRY = re.compile(r"^@(\w+)\{(\w+),\n(.*?)^\}", re.M | re.S)
_FIELD = re.compile(r"^ *(\w+) *= \{(.*)\},$", re.M)


class Reference(NamedTuple):
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
def references() -> dict[str, Reference]:
    """The bibliography, `references.bib`, by key."""
    text = files("scirocco.cli").joinpath("references.bib").read_text("utf-8").replace("VERSION", __version__)
    return {
        entry[2]: Reference(entry[1], dict(_FIELD.findall(entry[3])), entry[0])
        for entry in _ENTRY.finditer(text)
    }


class Work(NamedTuple):
    """What a name refers to: a phrase for a paper's methods section, and keys of the bibliography."""

    kind: str
    sentence: str
    keys: tuple[str, ...]


# kind -> name -> phrase for a methods section, keys of references.bib
_TABLE = {
    "sampler": {
        "SGLD": ("stochastic gradient Langevin dynamics", "welling2011"),
        "PSGLD": ("preconditioned stochastic gradient Langevin dynamics", "li2016"),
        "LeafScaledSGLD": (
            "stochastic gradient Langevin dynamics with a step size for each group of parameters",
            "welling2011 baker2018thesis",
        ),
        "HMC": ("Hamiltonian Monte Carlo on all rows", "duane1987"),
        "MALA": ("the Metropolis-adjusted Langevin algorithm on all rows", "roberts1996"),
        "ZigZag": ("the zig-zag process with control variates", "bierkens2019"),
        "BouncyParticle": ("the bouncy particle sampler with control variates", "bouchard2018 bierkens2019"),
        "SMH": ("scalable Metropolis-Hastings", "cornish2019"),
        "NUTS": ("the no-U-turn sampler on all rows", "hoffman2014"),
        "Preconditioned": ("a sampler moved in preconditioned coordinates", "ma2015 welling2011"),
        "SGFS": ("stochastic gradient Fisher scoring", "ahn2012"),
        "SGHMC": ("stochastic gradient Hamiltonian Monte Carlo", "chen2014"),
        "SGNHT": ("the stochastic gradient Nosé-Hoover thermostat", "ding2014"),
        "BAOAB": ("the BAOAB splitting of Langevin dynamics", "leimkuhler2013"),
        "BADODAB": ("the BADODAB splitting of the Nosé-Hoover thermostat", "leimkuhler2016 ding2014"),
        "SGRLD": ("stochastic gradient Riemannian Langevin dynamics", "patterson2013 ma2015"),
        "SGRHMC": ("stochastic gradient Riemannian Hamiltonian Monte Carlo", "ma2015"),
        "HMCDynamics": ("Hamiltonian dynamics with noisy gradients, written as a recipe", "ma2015"),
        "Recipe": ("a sampler of the complete recipe of D and Q", "ma2015"),
        "LowRank": ("a recipe whose matrices are diagonal plus low rank", "ma2015"),
        "Blocks": ("samplers that move the blocks of the parameters in turn", "ma2015"),
        "Gibbs": ("Gibbs updates of a block between stochastic gradient steps", "chen2014"),
        "SCIR": ("the stochastic Cox-Ingersoll-Ross process", "baker2018"),
        "SCIRCV": ("the stochastic Cox-Ingersoll-Ross process with control variates", "barile2024"),
        "SimplexSGRLD": ("stochastic gradient Riemannian Langevin dynamics on the simplex", "patterson2013"),
    },
    "estimator": {
        "Full": ("exact gradients", "scirocco"),
        "Minibatch": ("minibatch estimates of the gradient", "welling2011"),
        "Weighted": ("minibatches with unequal probabilities", "scirocco"),
        "Stratified": ("stratified minibatches", "barile2024"),
        "ControlVariates": ("control variates for the gradient, centred at the mode", "baker2019"),
        "Taylor": ("control variates of second order for the gradient", "cornish2019 baker2019"),
        "SVRG": ("stochastic variance reduced gradients", "dubey2016 johnson2013"),
        "SAGA": ("SAGA estimates of the gradient", "dubey2016 defazio2014"),
    },
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
WORKS = {
    name: Work(kind, sentence, tuple(keys.split()))
    for kind, named in _TABLE.items()
    for name, (sentence, keys) in named.items()
}


def experiments() -> dict[str, Work]:
    """The experiments of the papers; empty if the package `scirocco-papers` is not installed."""
    papers = find_papers()
    return {
        name: Work("experiment", f'the experiment "{each.title}" ({each.figure})', each.cite)
        for name, each in ({} if papers is None else papers.ALL).items()
    }


def find(name: str) -> tuple[str, Work]:
    """Look up a name, ignoring case, `-`, `_` and `.`: its usual spelling, and what it refers to."""
    known = WORKS
    if _plain(name) not in map(_plain, WORKS):
        known = experiments() | WORKS
    plain = {_plain(each): each for each in known}
    if _plain(name) in plain:
        found = plain[_plain(name)]
        return found, known[found]
    close = difflib.get_close_matches(_plain(name), plain, 1, cutoff=0.5)
    hint = f" Did you mean `{plain[close[0]]}`?" if close else ""
    raise InvalidValueError(
        f"there is nothing to cite for `{name}`.{hint} `scirocco cite --list` shows all names."
    )


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
        typer.Argument(
            help="Samplers, estimators, models, experiments.", metavar="SAMPLER...", show_default=False
        ),
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
        works = WORKS | experiments()
        if as_json:
            print_json({name: each._asdict() for name, each in works.items()})
            return
        rows = [
            [name, each.kind, ", ".join(known[key].short for key in each.keys)]
            for name, each in works.items()
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
