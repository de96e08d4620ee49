"""The papers' figures, reproduced, with checks of their claims: a module or a folder for each experiment.

To add one, write a module (or a folder with a module `run`) with `run(settings) -> Outcome`, and name it here.
`scirocco reproduce` finds this package by its entry point.
"""

from __future__ import annotations

import difflib
from typing import Any

from scirocco.errors import InvalidValueError
from scirocco_papers.base import Claim, Experiment, Outcome, Reproduction, Settings, reproduce, run_of
from scirocco_papers.series import Series, print_experiments, print_one

__all__ = [
    "ALL",
    "Claim",
    "Experiment",
    "Outcome",
    "Reproduction",
    "Series",
    "Settings",
    "find",
    "print_experiments",
    "print_one",
    "reproduce",
]


def _in_module(name: str, **known: Any) -> Experiment:
    """The experiment of the module (or folder) of that name, which is not imported before it runs."""
    return Experiment(name, run=run_of(name.replace("-", "_")), **known)


_EXPERIMENTS = (
    _in_module(
        name="gaussian-scaling",
        title="SGLD-CV and NUTS as the data grow",
        figure="thesis, figure 4.2.1",
        duration="about 3 min; quick 10 s",
        needs=("numpyro",),
        cite=("baker2018thesis", "baker2019r"),
    ),
    _in_module(
        name="gaussian-mixture",
        title="Six samplers on a mixture of two Gaussians",
        figure="thesis, figure 4.6.1",
        seed=2,
        duration="about 1 min; quick 20 s",
        needs=("numpyro", "optax"),
        cite=("baker2018thesis", "baker2019r"),
    ),
    _in_module(
        name="recipe-1d",
        title="The complete recipe: with Γ and without",
        figure="Ma, Chen & Fox (2015), figure 2 left",
        duration="about 30 s; quick 15 s",
        cite=("ma2015",),
    ),
    _in_module(
        name="recipe-2d",
        title="The complete recipe: exploring a bent law",
        figure="Ma, Chen & Fox (2015), figure 2 right",
        duration="about 2 min; quick 20 s",
        cite=("ma2015",),
    ),
    _in_module(
        name="sparse-dirichlet",
        title="A sparse Dirichlet posterior: small values and spread",
        figure="Baker et al. (2018), figure 1; Barile & Nemeth, figure 1",
        duration="about 25 s; quick 10 s",
        needs=("scipy",),
        cite=("baker2018", "barile2024"),
    ),
    _in_module(
        name="dks",
        title="Distance to Dirichlet posteriors by minibatch size",
        figure="Baker et al. (2018), figure 2",
        duration="about 4.5 min; quick 20 s",
        needs=("scipy",),
        cite=("baker2018",),
    ),
    _in_module(
        name="scir-variance",
        title="The variance of SCIR and SCIR-CV before and at stationarity",
        figure="Barile & Nemeth, figure 3",
        duration="about 10 s; quick 1 s",
        cite=("barile2024",),
    ),
    _in_module(
        name="lda-wikipedia",
        title="Topic models of Wikipedia: SCIR, SCIR-CV, SGRLD and Gibbs",
        figure="Baker et al. (2018), figures 3a, 4a; Barile & Nemeth, figure 2",
        duration="about 15 min; quick 15 s",
        needs=("scipy", "numba"),
        cite=("baker2018", "barile2024", "patterson2013"),
    ),
    _in_module(
        name="lda-recipe",
        title="Topic models of Wikipedia by the samplers of the complete recipe",
        figure="Ma, Chen & Fox (2015), figure 3",
        duration="about 2 min; quick 5 s",
        needs=("scipy", "numba"),
        cite=("ma2015", "patterson2013"),
    ),
    _in_module(
        name="lda-cv",
        title="Topic models of Wikipedia by SGLD with and without control variates",
        figure="thesis, figure 3.5.5",
        duration="about 6 min; quick 5 s",
        needs=("scipy", "numba"),
        cite=("baker2018thesis", "baker2019"),
    ),
    _in_module(
        name="dp-msweb",
        title="A Dirichlet-process mixture of web visits: SCIR, SCIR-CV, SGRLD and Gibbs",
        figure="Baker et al. (2018), figures 3b, 4b",
        duration="about 40 s; quick 10 s",
        needs=("scipy", "numba"),
        cite=("baker2018",),
    ),
    _in_module(
        name="hmm-series",
        title="Hidden Markov models: samplers side by side, and the error of buffers",
        figure="Baker et al. (2018), section 1; Barile & Nemeth, section 1; Aicher et al. (2019), figure 2",
        duration="about 1 min; quick 5 s",
        needs=("numba", "scipy"),
        cite=("baker2018", "barile2024", "aicher2019"),
    ),
    _in_module(
        name="network-links",
        title="Mixed memberships in networks: samplers side by side",
        figure="Baker et al. (2018), section 1; Barile & Nemeth, section 1; Li, Ahn & Welling (2016)",
        duration="about 6 min; quick 15 s",
        needs=("numba", "scipy"),
        cite=("baker2018", "barile2024"),
    ),
    _in_module(
        name="cost-in-n",
        title="What a fixed accuracy costs SGLD and SGLD-CV as the data grow",
        figure="thesis, section 3.3 (Cor. 3.3.8)",
        duration="about 2 min; quick 20 s",
        needs=("scipy",),
        cite=("baker2018thesis", "baker2019"),
    ),
    _in_module(
        name="exact-in-n",
        title="Exact samplers with few rows: their distribution and cost as the data grow",
        figure="thesis, section 2.4.1 (no figure there)",
        duration="about 5 min; quick 45 s",
        needs=("scipy",),
        cite=("baker2018thesis",),
    ),
    _in_module(
        name="zero-variance",
        title="Zero-variance control variates after SGLD-CV, on covertype",
        figure="thesis, figures 3.5.2 and 3.5.4, theorem 3.4.2",
        duration="about 30 s; quick 15 s",
        needs=("scipy",),
        cite=("baker2018thesis", "baker2019", "mira2013"),
    ),
    _in_module(
        name="tuning",
        title='`step_size="auto"` against grid search, on ten posteriors',
        figure="none: after Coullon, South & Nemeth (2021), MAMBA",
        duration="about 6 min; quick 80 s",
        needs=("numpyro", "optax"),
        cite=("coullon2023",),
    ),
    _in_module(
        name="logistic-covertype",
        title="Logistic regression on covertype: SGLD, SGLD-CV, SAGA, and R's six samplers",
        figure="thesis, figures 3.5.1, 3.5.2, 4.5.1, 4.6.2 and A.3.1",
        duration="about 3 min; quick 30 s",
        needs=("optax", "scipy"),
        cite=("baker2018thesis", "baker2019", "baker2019r"),
    ),
    _in_module(
        name="bpmf-movielens",
        title="Matrix factorisation of MovieLens 100k by SGLD, SGLD-CV and SAGA",
        figure="thesis, figures 3.5.3, 3.5.4 and A.3.2",
        duration="about 7 min; quick 45 s",
        needs=("scipy",),
        cite=("baker2018thesis", "baker2019", "chen2014"),
    ),
    _in_module(
        name="bnn-mnist",
        title="Bayesian neural network on MNIST: the log loss along six samplers",
        figure="thesis, figure 4.6.3",
        seed=1,
        duration="about 6 min (2 on an accelerator, with longer chains); quick 40 s",
        needs=("optax",),
        cite=("baker2018thesis", "baker2019r"),
    ),
    _in_module(
        name="posterior-bias",
        title="Bias and efficiency of every sampler with every estimator, against NUTS on covertype",
        figure="none: ours",
        duration="about 6 min; quick 1 min",
        needs=("optax", "numpyro", "arviz"),
        cite=("scirocco",),
    ),
    _in_module(
        name="divide-and-conquer",
        title="Stochastic gradients beside consensus, KDEMC and Weierstrass",
        figure="thesis, figures 2.4.1 to 2.4.4",
        duration="about 15 min; quick 2 min",
        needs=("numpyro", "scipy"),
        cite=("baker2018thesis", "scott2016", "neiswanger2014", "wang2013"),
    ),
)
ALL: dict[str, Experiment] = {experiment.name: experiment for experiment in _EXPERIMENTS}


def find(name: str) -> list[Experiment]:
    """The experiment of that name, or all of them for `all`."""
    if name == "all":
        return list(ALL.values())
    if name in ALL:
        return [ALL[name]]
    close = difflib.get_close_matches(name, [*ALL, "all"], n=1, cutoff=0.4)
    hint = f" Did you mean `{close[0]}`?" if close else ""
    raise InvalidValueError(
        f"there is no experiment `{name}`.{hint} `scirocco reproduce --list` shows them: {', '.join(ALL)}."
    )
