"""What a report is about: a run, or a model and the run that it was fitted by."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from scirocco.errors import InvalidTypeError, InvalidValueError, SciroccoError
from scirocco.models import BNN, BPMF, LDA, DPMixture, GaussianMixture, LinearRegression, LogisticRegression
from scirocco.models.lda.results import TopWords
from scirocco.models.lda.summary import token_shares
from scirocco.report import judging
from scirocco.run import Run, load

_LOADED: dict[str, Any] = {
    kind.__name__: kind for kind in (LDA, DPMixture, LogisticRegression, LinearRegression)
}
"""Models that open their own stores."""
NUM_WORDS = 12
_REGRESSIONS = (LogisticRegression, LinearRegression)


class Subject(NamedTuple):
    """What the sections need to know."""

    kind: str
    """"run", "topics", "clusters" or "coefficients"."""
    run: Run
    judged: Run
    """The same run with the draws that are judged: those of topics, clusters and factors are not all comparable."""
    model: Any
    title: str
    subtitle: str
    about: str = ""
    """What is judged and charted, where that is not obvious."""
    named: dict[str, Any] | None = None
    """Draws that are charted, by name, where they are not those that are judged."""
    top_words: TopWords | None = None
    """Of topics: their most probable words, `NUM_WORDS` of each."""

    @property
    def charted(self) -> dict[str, Any]:
        """Draws (chain, draw, ...) by name."""
        return self.judged.named_draws() if self.named is None else self.named


def subject_of(what: Any) -> Subject:
    """Find out what it is, and open what is on disk."""
    if isinstance(what, (str, os.PathLike)):
        what = load(what)
    if isinstance(what, Run):
        _need_draws(what)
        kind = what.configuration.get("model")
        if what.path is None or kind not in _LOADED:
            return Subject("run", what, what, None, f"Posterior draws by {method(what)}", size(what))
        return _of_model(_LOADED[kind].load(what.path), what)
    run = getattr(what, "run_", None)
    if isinstance(what, (LDA, DPMixture, *_REGRESSIONS)):
        return _of_model(what, run if isinstance(run, Run) else _run_of(what))
    if isinstance(run, Run):
        _need_draws(run)
        return _of_model(what, run)
    if hasattr(what, "get_params"):
        raise InvalidValueError(
            f"this {type(what).__name__} holds no run: it has not been fitted, or was loaded without its draws. Report "
            "the folder of its run, or fit it first."
        )
    raise InvalidTypeError(
        f"a report is about a run, a fitted model or the folder of a stored run; got {type(what).__name__}."
    )


def _need_draws(run: Run) -> None:
    if run.draws is None or not run.num_draws:
        raise InvalidValueError(
            f"a report needs draws, and this run holds none (status: {run.status}). Go on with it, or sample with "
            "keep_draws=True."
        )


def method(run: Run) -> str:
    """The sampler's name, as a reader wants it."""
    sampler = run.configuration.get("sampler")
    if not isinstance(sampler, dict):
        return str(sampler)
    inner = sampler.get("inner")
    if isinstance(inner, dict) and sampler["name"] == "Preconditioned":
        return f"preconditioned {inner['name']}"
    return str(sampler["name"])


def _of_model(model: Any, run: Run) -> Subject:
    if isinstance(model, LDA):
        drawn = model.top_draws(NUM_WORDS)
        judged = judging.leading_words(model, run, drawn)
        title, width = f"{len(model.components_)} topics", ("words", model.n_features_in_)
        said = size(run, *width)
        return Subject("topics", run, judged.run, model, title, said, judged.about, top_words=drawn)
    if isinstance(model, DPMixture):
        judged = judging.cluster_numbers(model, run)
        title, width = f"A mixture of {len(model.weights_)} clusters", ("columns", model.n_features_in_)
        return Subject("clusters", run, judged.run, model, title, size(run, *width), judged.about)
    name = type(model).__name__
    if isinstance(model, _REGRESSIONS):
        about = "Judged in the coordinates of the sampler; the charts have the units of the columns as they were given."
        width = ("columns", model.n_features_in_)
        return Subject("coefficients", run, run, model, name, size(run, *width), about, model.named_draws())
    views: dict[type, Any] = {
        GaussianMixture: judging.components,
        BPMF: judging.predictions,
        BNN: judging.weight_arrays,
    }
    for kind, view in views.items():
        if isinstance(model, kind):
            judged = view(model, run)
            return Subject("run", run, judged.run, model, name, size(run), judged.about)
    return Subject("run", run, run, model, name, size(run))


def size(run: Run, unit: str = "parameters", width: int | None = None) -> str:
    """Rows, columns, chains, draws and how it ended."""
    rows = run.configuration.get("num_rows", 0)
    known = f"{rows:,} rows, " if rows > 1 else ""
    width = int(run.configuration.get("dimension", 0)) if width is None else width
    unit = unit.removesuffix("s") if width == 1 else unit
    chains = "1 chain" if run.num_chains == 1 else f"{run.num_chains} chains"
    return f"{known}{width:,} {unit}; {chains} × {run.num_draws:,} draws, {run.status}"


def _run_of(model: Any) -> Run:
    """The run of a model that was loaded, from its store; of one that was fitted bit by bit, what is known."""
    draws = model.draws_
    root = getattr(next(iter(draws.values())), "root", None)
    if root is not None:
        try:
            return load(root)
        except SciroccoError:  # moved or changed since: the model is still at hand
            pass
    number = sum(int(np.prod(leaf.shape[2:], dtype=int)) for leaf in draws.values())
    sampler = model.sampler if isinstance(model.sampler, str) else "posterior draws"
    known = {"model": type(model).__name__, "sampler": sampler, "dimension": number, "seed": model.seed}
    status = "loaded" if isinstance(model, _REGRESSIONS) else "fitted bit by bit"
    return Run(draws, None, getattr(model, "stats_", {}), known, {}, {}, status, [])


def shares_of(subject: Subject) -> np.ndarray | None:
    """Shares of the topics in the tokens, where a store knows them."""
    if subject.run.path is None:
        return None
    try:
        return token_shares(subject.run.path, subject.model)
    except SciroccoError:
        return None
