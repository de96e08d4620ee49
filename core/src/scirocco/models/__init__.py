"""Ready-made models with a scikit-learn interface; each is imported when it is first used."""

from __future__ import annotations

import importlib
import os
import pkgutil
from typing import TYPE_CHECKING, Any

from scirocco.models._core.registry import FUNCTIONS, MODELS, model_class, refuse_if_missing

if TYPE_CHECKING:
    from scirocco.models.glmm import GLMM
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
    from scirocco_latent.dp import DPMixture
    from scirocco_latent.factorisation import BPMF
    from scirocco_latent.graph import MixedMembership, StochasticBlockModel, held_out_links
    from scirocco_latent.hmm import HMM
    from scirocco_latent.lda import LDA
    from scirocco_latent.lda.correlated import CorrelatedTopics
    from scirocco_latent.lda.describing import choose_topics
    from scirocco_latent.lda.dynamic import DynamicTopics

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
    return sorted([*MODELS, *FUNCTIONS, "load"])  # those that are installed


def __getattr__(name: str) -> Any:
    refuse_if_missing(name, f"`sc.models.{name}`")
    folders = {entry.folder.rpartition(".")[2]: entry.folder for entry in MODELS.values() if entry.folder}
    if name in MODELS:
        value = model_class(name)
    elif name in FUNCTIONS:
        value = pkgutil.resolve_name(f"{FUNCTIONS[name]}:{name}")
    elif name in folders:
        value = importlib.import_module(folders[name])
    else:
        raise AttributeError(f"scirocco.models has no {name!r}. It has {', '.join(__dir__())}.")
    globals()[name] = value
    return value


def load(path: str | os.PathLike[str], **code: Any) -> Any:
    """Load a fitted model of any class, from its `save` or from its `fit` with `store`.

    `code` are arguments of its constructor with functions of your own, see `load` of the model.

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
    from scirocco.errors import InvalidTypeError

    name = name_at(path)
    if name is None:
        raise InvalidTypeError(f"{path} is a run, not a fitted model of sc.models: open it with sc.load.")
    return model_class(name).load(path, **code)


def name_at(path: str | os.PathLike[str]) -> str | None:
    """The name of the fitted model in a folder; None for a run of another model."""
    from scirocco.models._core.files import model_in
    from scirocco.run.records import Record
    from scirocco.store import holds_run, open_stored

    record = Record.from_json(open_stored(path).record) if holds_run(path) else None
    if not record or not (name := model_in(record)):
        return None
    refuse_if_missing(name, f"The model of {path}, {name},")
    return name if name in MODELS else None
