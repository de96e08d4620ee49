"""The models of `sc.models`: where they are, what they are called, what to cite, their command.

The table is read without importing any of them: by `sc.models`, the command line, `scirocco cite`, configuration files,
and the test that all of them pass. A new model is its folder and a row here.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A model."""

    module: str | type[Any]
    """The module that defines it, below `scirocco.models`; or the class, of a model that is defined elsewhere."""
    words: str
    """What it is, with its article: "a topic model"."""
    cite: str
    """Keys of the bibliography."""
    method: str = ""
    """A phrase for the methods section of a paper, if it differs from `words`."""
    command: str = ""
    """The words after `scirocco` that fit it, if it has its own commands: those of its group are in `cli/GROUP.py`."""
    reads: str = "rows"
    """What `scirocco model fit` and `predict` read, if it has none: "rows" of a table, "pairs" or "documents"."""

    @property
    def folder(self) -> str:
        """Its folder in `scirocco.models`; empty if it is not there."""
        return self.module.partition(".")[0] if isinstance(self.module, str) else ""

    @property
    def group(self) -> str:
        """The group of its commands: the first word."""
        return self.command.partition(" ")[0]


MODELS = {
    "BNN": Entry("network", "a Bayesian neural network", "neal1996 chen2014"),
    "BPMF": Entry(
        "factorisation",
        "a matrix factorisation",
        "salakhutdinov2008 chen2014",
        "Bayesian probabilistic matrix factorisation",
        reads="pairs",
    ),
    "CorrelatedTopics": Entry(
        "lda.correlated", "a correlated topic model", "blei2007 blei2003", reads="documents"
    ),
    "DPMixture": Entry(
        "dp",
        "a Dirichlet-process mixture",
        "ferguson1973 neal2000 walker2007 baker2018",
        command="cluster fit",
    ),
    "DynamicTopics": Entry("lda.dynamic", "a dynamic topic model", "blei2006 blei2003", reads="documents"),
    "GLMM": Entry("glmm", "a mixed model", "scirocco", "a generalised linear mixed model"),
    "GaussianMixture": Entry("mixture", "a mixture of normal distributions", "scirocco"),
    "HMM": Entry("hmm", "a hidden Markov model", "scott2002 aicher2019 baker2018", command="hmm fit"),
    "LDA": Entry(
        "lda",
        "a topic model",
        "blei2003 baker2018",
        "latent Dirichlet allocation",
        command="topics fit",
        reads="documents",
    ),
    "LinearRegression": Entry("regression", "a linear regression", "scirocco", "Bayesian linear regression"),
    "LogisticRegression": Entry(
        "regression", "a logistic regression", "baker2019", "Bayesian logistic regression"
    ),
    "MixedMembership": Entry(
        "graph",
        "a mixed-membership model",
        "airoldi2008 ball2011",
        "a mixed-membership model of a network",
        command="network fit --mixed",
    ),
    "NegativeBinomialRegression": Entry(
        "regression",
        "a negative binomial regression",
        "scirocco",
        "Bayesian negative binomial regression",
    ),
    "PoissonRegression": Entry(
        "regression", "a Poisson regression", "scirocco", "Bayesian Poisson regression"
    ),
    "SoftmaxRegression": Entry(
        "regression", "a softmax regression", "baker2019", "Bayesian regression for classes"
    ),
    "StochasticBlockModel": Entry(
        "graph",
        "a block model",
        "holland1983 karrer2011 baker2018",
        "a stochastic block model",
        command="network fit",
    ),
    "StudentRegression": Entry(
        "regression", "a Student regression", "scirocco", "Bayesian robust regression"
    ),
}
"""The models by their names in records: a file names a model, never a module."""


def model_class(name: str) -> Any:
    """The class of a model, imported when it is first used."""
    module = MODELS[name].module
    if isinstance(module, type):
        return module
    return getattr(importlib.import_module(f"scirocco.models.{module}"), name)
