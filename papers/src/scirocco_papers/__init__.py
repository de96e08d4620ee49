"""The papers' figures, reproduced, with checks of their claims: one folder per experiment.

To add one, make a folder with a constant `EXPERIMENT` and a module `run` with `run(settings) -> Outcome`, and name it
here. `scirocco reproduce` finds this package by its entry point.
"""

from __future__ import annotations

import difflib

from scirocco.errors import InvalidValueError
from scirocco_papers import (
    bnn_mnist,
    bpmf_movielens,
    cost_in_n,
    divide_and_conquer,
    dks,
    dp_msweb,
    exact_in_n,
    gaussian_mixture,
    gaussian_scaling,
    hmm_series,
    lda_cv,
    lda_recipe,
    lda_wikipedia,
    logistic_covertype,
    network_links,
    posterior_bias,
    recipe_1d,
    recipe_2d,
    scir_variance,
    sparse_dirichlet,
    tuning,
    zero_variance,
)
from scirocco_papers.base import Claim, Experiment, Outcome, Reproduction, Settings, reproduce
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

ALL: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        gaussian_scaling,
        gaussian_mixture,
        recipe_1d,
        recipe_2d,
        sparse_dirichlet,
        dks,
        scir_variance,
        lda_wikipedia,
        lda_recipe,
        lda_cv,
        dp_msweb,
        hmm_series,
        network_links,
        cost_in_n,
        exact_in_n,
        zero_variance,
        tuning,
        logistic_covertype,
        bpmf_movielens,
        bnn_mnist,
        posterior_bias,
        divide_and_conquer,
    )
}


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
