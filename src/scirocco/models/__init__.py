"""Ready-made models with a scikit-learn interface."""

import os
from typing import Any

from scirocco.errors import InvalidTypeError
from scirocco.models import fits
from scirocco.models.dp import DPMixture
from scirocco.models.factorisation import BPMF
from scirocco.models.glmm import GLMM
from scirocco.models.graph import MixedMembership, StochasticBlockModel, held_out_links
from scirocco.models.hmm import HMM
from scirocco.models.lda import LDA
from scirocco.models.lda.correlated import CorrelatedTopics
from scirocco.models.lda.describing import choose_topics
from scirocco.models.lda.dynamic import DynamicTopics
from scirocco.models.mixture import GaussianMixture
from scirocco.models.network import BNN
from scirocco.models.regression import (
    LinearRegression,
    LogisticRegression,
    NegativeBinomialRegression,
    PoissonRegression,
    SoftmaxRegression,
    StudentRegression,
)
from scirocco.run.records import Record
from scirocco.store import holds_run, open_stored

__all__ = [
    "BNN",
    "BPMF",
    "GLMM",
    "HMM",
    "LDA",
    "CorrelatedTopics",
    "DPMixture",
    "DynamicTopics",
    "GaussianMixture",
    "LinearRegression",
    "LogisticRegression",
    "MixedMembership",
    "NegativeBinomialRegression",
    "PoissonRegression",
    "SoftmaxRegression",
    "StochasticBlockModel",
    "StudentRegression",
    "choose_topics",
    "held_out_links",
    "load",
]


def __dir__() -> list[str]:
    return __all__


KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(BNN, BPMF, GLMM, HMM, LDA, DPMixture, GaussianMixture, LinearRegression, LogisticRegression),
        *(NegativeBinomialRegression, PoissonRegression, SoftmaxRegression, StochasticBlockModel),
        *(MixedMembership, StudentRegression, CorrelatedTopics, DynamicTopics),
    )
}
"""The models by their names in records: a file names a model, never a module."""


def load(path: str | os.PathLike[str]) -> Any:
    """Load a fitted model of any class, from its `save` or from its `fit` with `store`.

    Examples
    --------
    >>> import tempfile, numpy as np, scirocco as sc
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = sc.models.LinearRegression(num_samples=20).fit(X, X[:, 0], progress=False)
    ...     model.save(f"{folder}/model")
    ...     sc.models.load(f"{folder}/model")
    LinearRegression(num_samples=20)
    """
    name = name_at(path)
    if name is None:
        raise InvalidTypeError(f"{path} is a run, not a fitted model of sc.models: open it with sc.load.")
    return KINDS[name].load(path)


def name_at(path: str | os.PathLike[str]) -> str | None:
    """The name of the fitted model in a folder; None for a run of another model."""
    record = Record.from_json(open_stored(path).record) if holds_run(path) else None
    return name if record and (name := fits.model_in(record)) in KINDS else None
