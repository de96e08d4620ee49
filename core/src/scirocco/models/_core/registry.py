"""The models of `sc.models`: where they are, what they are called, what to cite, their command.

The table is read without importing any of them: by `sc.models`, the command line, `scirocco cite`, configuration files,
and the test that all of them pass. A new model is its folder and a row here. Another distribution has its rows in a
module with `MODELS` (and `FUNCTIONS`), which an entry point in the group `scirocco.models` names.
"""

from __future__ import annotations

import importlib.metadata
import pkgutil
from typing import Any, NamedTuple

from scirocco.errors import MissingExtraError


class ModelEntry(NamedTuple):
    """A model."""

    module: str | type[Any]
    """The module that defines it; or the class, of a model that is defined elsewhere."""
    words: str
    """What it is, with its article: "a topic model"."""
    cite: str
    """Keys of the bibliography."""
    method: str = ""
    """A phrase for the methods section of a paper, if it differs from `words`."""
    command: str = ""
    """The words after `scirocco` that fit it, if it has its own commands: those of its group are in `commands/GROUP.py`
    of its package."""
    reads: str = "rows"
    """What `scirocco model fit` and `predict` read, if it has none: "rows" of a table, "pairs" or "documents"."""

    @property
    def folder(self) -> str:
        """The package of its model: `scirocco_latent.lda`; empty if the class is given."""
        parts = self.module.split(".") if isinstance(self.module, str) else []
        return ".".join(parts[: 3 if parts[:1] == ["scirocco"] else 2])

    @property
    def group(self) -> str:
        """The group of its commands: the first word."""
        return self.command.partition(" ")[0]

    @property
    def commands(self) -> str:
        """The module of its group of commands, which has the app `GROUP_app`."""
        return f"{str(self.module).partition('.')[0]}.commands.{self.group}"


MODELS = {
    "BNN": ModelEntry("scirocco.models.network", "a Bayesian neural network", "neal1996 chen2014"),
    "GLMM": ModelEntry("scirocco.models.glmm", "a mixed model", "scirocco", "a generalised linear mixed model"),
    "GaussianMixture": ModelEntry("scirocco.models.mixture", "a mixture of normal distributions", "scirocco"),
    "LinearRegression": ModelEntry(
        "scirocco.models.regression", "a linear regression", "scirocco", "Bayesian linear regression"
    ),
    "LogisticRegression": ModelEntry(
        "scirocco.models.regression", "a logistic regression", "baker2019", "Bayesian logistic regression"
    ),
    "NegativeBinomialRegression": ModelEntry(
        "scirocco.models.regression",
        "a negative binomial regression",
        "scirocco",
        "Bayesian negative binomial regression",
    ),
    "PoissonRegression": ModelEntry(
        "scirocco.models.regression", "a Poisson regression", "scirocco", "Bayesian Poisson regression"
    ),
    "SoftmaxRegression": ModelEntry(
        "scirocco.models.regression", "a softmax regression", "baker2019", "Bayesian regression for classes"
    ),
    "StudentRegression": ModelEntry(
        "scirocco.models.regression", "a Student regression", "scirocco", "Bayesian robust regression"
    ),
}
"""The models by their names in records: a file names a model, never a module."""

FUNCTIONS: dict[str, str] = {}
"""Functions of `sc.models`, and their modules."""

_ELSEWHERE = {
    "scirocco-latent": "BPMF CorrelatedTopics DPMixture DynamicTopics HMM LDA MixedMembership StochasticBlockModel "
    "choose_topics held_out_links cluster hmm network topics"
}
"""Models, functions and groups of commands by the distribution that has them."""


def model_class(name: str) -> Any:
    """The class of a model, imported when it is first used."""
    module = MODELS[name].module
    return module if isinstance(module, type) else pkgutil.resolve_name(f"{module}:{name}")


def refuse_if_missing(name: str, what: str) -> None:
    """Say what to install, if a distribution that is not installed has the model, function or group of commands."""
    groups = {entry.group for entry in MODELS.values()}
    for distribution, names in _ELSEWHERE.items():
        if name in names.split() and name not in groups and name not in MODELS and name not in FUNCTIONS:
            raise MissingExtraError(
                f"{what} is in the distribution {distribution}, which is not installed. "
                f"Install it with `pip install {distribution}`.",
                name=distribution,
            )


def _read_distributions() -> None:
    for point in importlib.metadata.entry_points(group="scirocco.models"):
        try:
            table = point.load()
        except ImportError:  # damaged, or being removed: whoever uses one of its models is told
            continue
        MODELS.update(table.MODELS)
        FUNCTIONS.update(table.FUNCTIONS)


_read_distributions()
