"""`scirocco cite`: which papers stand behind what was used."""

from __future__ import annotations

import difflib
from typing import Annotated, NamedTuple

from scirocco.cli._typer import JSON, print_json, typer
from scirocco.cli.references import REFERENCES
from scirocco.errors import InvalidValueError


class Work(NamedTuple):
    """What a name stands for: a sentence for a paper's methods section (`{}` are the citations), and keys."""

    kind: str
    sentence: str
    keys: tuple[str, ...]


def _works(kind: str, table: dict[str, tuple[str, tuple[str, ...]]]) -> dict[str, Work]:
    return {name: Work(kind, sentence, keys) for name, (sentence, keys) in table.items()}


_RECIPE = ("ma2015",)
WORKS: dict[str, Work] = {
    **_works(
        "sampler",
        {
            "SGLD": ("stochastic gradient Langevin dynamics", ("welling2011",)),
            "PSGLD": ("preconditioned stochastic gradient Langevin dynamics", ("li2016",)),
            "LeafScaledSGLD": (
                "stochastic gradient Langevin dynamics with a step size for each group of parameters",
                ("welling2011", "baker2018thesis"),
            ),
            "Preconditioned": ("a sampler moved in preconditioned coordinates", ("ma2015", "welling2011")),
            "SGFS": ("stochastic gradient Fisher scoring", ("ahn2012",)),
            "SGHMC": ("stochastic gradient Hamiltonian Monte Carlo", ("chen2014",)),
            "SGNHT": ("the stochastic gradient Nosé-Hoover thermostat", ("ding2014",)),
            "BAOAB": ("the BAOAB splitting of Langevin dynamics", ("leimkuhler2013",)),
            "BADODAB": (
                "the BADODAB splitting of the Nosé-Hoover thermostat",
                ("leimkuhler2016", "ding2014"),
            ),
            "SGRLD": ("stochastic gradient Riemannian Langevin dynamics", ("patterson2013", "ma2015")),
            "SGRHMC": ("stochastic gradient Riemannian Hamiltonian Monte Carlo", _RECIPE),
            "HMCDynamics": ("Hamiltonian dynamics with noisy gradients, written as a recipe", _RECIPE),
            "Recipe": ("a sampler of the complete recipe of D and Q", _RECIPE),
            "LowRank": ("a recipe whose matrices are diagonal plus low rank", _RECIPE),
            "Blocks": ("samplers that move the blocks of the parameters in turn", ("ma2015",)),
            "Gibbs": ("Gibbs updates of a block between stochastic gradient steps", ("chen2014",)),
            "SCIR": ("the stochastic Cox-Ingersoll-Ross process", ("baker2018",)),
            "SCIRCV": ("the stochastic Cox-Ingersoll-Ross process with control variates", ("barile2024",)),
            "SimplexSGRLD": (
                "stochastic gradient Riemannian Langevin dynamics on the simplex",
                ("patterson2013",),
            ),
        },
    ),
    **_works(
        "estimator",
        {
            "Full": ("exact gradients", ("scirocco",)),
            "Minibatch": ("minibatch estimates of the gradient", ("welling2011",)),
            "Weighted": ("minibatches with unequal probabilities", ("scirocco",)),
            "Stratified": ("stratified minibatches", ("barile2024",)),
            "ControlVariates": ("control variates for the gradient, centred at the mode", ("baker2019",)),
            "SVRG": ("stochastic variance reduced gradients", ("dubey2016", "johnson2013")),
            "SAGA": ("SAGA estimates of the gradient", ("dubey2016", "defazio2014")),
        },
    ),
    **_works(
        "model",
        {
            "LDA": ("latent Dirichlet allocation", ("blei2003", "baker2018")),
            "DPMixture": (
                "a Dirichlet-process mixture",
                ("ferguson1973", "neal2000", "walker2007", "baker2018"),
            ),
            "BPMF": ("Bayesian probabilistic matrix factorisation", ("salakhutdinov2008", "chen2014")),
            "BNN": ("a Bayesian neural network", ("neal1996", "chen2014")),
            "GaussianMixture": ("a mixture of normal distributions", ("scirocco",)),
            "LinearRegression": ("Bayesian linear regression", ("scirocco",)),
            "LogisticRegression": ("Bayesian logistic regression", ("baker2019",)),
            "horseshoe": ("the horseshoe prior", ("carvalho2010",)),
        },
    ),
    **_works(
        "method",
        {
            "zero_variance": ("zero-variance control variates after the run", ("mira2013", "baker2019")),
            "ksd": ("the kernel Stein discrepancy", ("gorham2017",)),
            "tune": ("step sizes tuned by a bandit", ("coullon2023",)),
            "subposteriors": ("a posterior for each part of the data", ("scott2016", "neiswanger2014")),
            "consensus": ("consensus Monte Carlo", ("scott2016",)),
            "gaussian_product": (
                "the product of normal approximations of subposteriors",
                ("neiswanger2014",),
            ),
            "kdemc": ("the product of kernel density estimates of subposteriors", ("neiswanger2014",)),
            "weierstrass": ("the Weierstrass sampler", ("wang2013",)),
            "sgmcmc": ("the interface of the R package sgmcmc", ("baker2019r",)),
            "scirocco": ("the library scirocco", ("scirocco",)),
        },
    ),
}
EXPERIMENTS: dict[str, tuple[str, ...]] = {
    "gaussian-scaling": ("baker2018thesis", "baker2019r"),
    "gaussian-mixture": ("baker2018thesis", "baker2019r"),
    "recipe-1d": _RECIPE,
    "recipe-2d": _RECIPE,
    "sparse-dirichlet": ("baker2018", "barile2024"),
    "dks": ("baker2018",),
    "scir-variance": ("barile2024",),
    "lda-wikipedia": ("baker2018", "barile2024", "patterson2013"),
    "lda-recipe": ("ma2015", "patterson2013"),
    "lda-cv": ("baker2018thesis", "baker2019"),
    "dp-msweb": ("baker2018",),
    "cost-in-n": ("baker2018thesis", "baker2019"),
    "zero-variance": ("baker2018thesis", "baker2019", "mira2013"),
    "tuning": ("coullon2023",),
    "logistic-covertype": ("baker2018thesis", "baker2019", "baker2019r"),
    "bpmf-movielens": ("baker2018thesis", "baker2019", "chen2014"),
    "bnn-mnist": ("baker2018thesis", "baker2019r"),
    "posterior-bias": ("scirocco",),
    "divide-and-conquer": ("baker2018thesis", "scott2016", "neiswanger2014", "wang2013"),
}


def works() -> dict[str, Work]:
    """Everything that can be cited, by name."""
    return {name: work(name) for name in (*WORKS, *EXPERIMENTS)}


def work(name: str) -> Work:
    """What a name stands for."""
    if name in WORKS:
        return WORKS[name]
    from scirocco.experiments import ALL  # takes a while

    return Work("experiment", f"the experiment «{ALL[name].title}» ({ALL[name].figure})", EXPERIMENTS[name])


def find(name: str) -> str:
    """The name as it is written here; capitals and `-`, `_` do not matter."""
    known = {_plain(each): each for each in (*EXPERIMENTS, *WORKS)}
    if _plain(name) in known:
        return known[_plain(name)]
    close = difflib.get_close_matches(_plain(name), known, 1, cutoff=0.5)
    hint = f" Did you mean `{known[close[0]]}`?" if close else ""
    raise InvalidValueError(
        f"there is nothing to cite for `{name}`.{hint} `scirocco cite --list` shows all names."
    )


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(".", "")


def sentence(name: str) -> str:
    """For the methods section of a paper."""
    what = work(name)
    cited = ", ".join(f"{REFERENCES[key].short} \\cite{{{key}}}" for key in what.keys if key != "scirocco")
    tool = "scirocco \\cite{scirocco}"
    return f"We used {what.sentence}{f' [{cited}]' if cited else ''}, as implemented in {tool}."


def cite(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Samplers, estimators, models, experiments.", metavar="SAMPLER...", show_default=False
        ),
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="Show all names and stop.")] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """The papers to cite for what was used: a sentence for each, and BibTeX for all.

    Example: scirocco cite SGHMC ControlVariates
    """
    from scirocco._showing import print_table

    if list_them:
        known = works()
        if as_json:
            print_json({name: each._asdict() for name, each in known.items()})
            return
        rows = [
            [name, each.kind, ", ".join(REFERENCES[key].short for key in each.keys)]
            for name, each in known.items()
        ]
        print_table("scirocco cite NAME", ["name", "what", "papers"], rows)
        return
    if not names:
        raise InvalidValueError("cite what? Give a name, such as SGLD; `scirocco cite --list` shows all.")
    found = [find(name) for name in names]
    keys = dict.fromkeys([key for name in found for key in work(name).keys] + ["scirocco"])
    if as_json:
        entries = {key: REFERENCES[key].bibtex(key) for key in keys}
        print_json({"sentences": {name: sentence(name) for name in found}, "bibtex": entries})
        return
    for name in found:
        print(f"% {sentence(name)}")
    print()
    print("\n\n".join(REFERENCES[key].bibtex(key) for key in keys))
