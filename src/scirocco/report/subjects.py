"""What a report is about: a run, topics or clusters, from whatever it was asked for."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, NamedTuple

import numpy as np

from scirocco.errors import InvalidTypeError, InvalidValueError, SciroccoError
from scirocco.models.dp import DPMixture
from scirocco.models.lda import LDA
from scirocco.models.lda.summary import open_run
from scirocco.run import Run, load

_KINDS: dict[str, Any] = {"LDA": LDA, "DPMixture": DPMixture}


class Subject(NamedTuple):
    """What the sections need to know."""

    kind: str
    """"run", "topics" or "clusters"."""
    run: Run
    judged: Run
    """The same run with the draws that are charted and judged: those of topics and clusters are not all comparable."""
    model: Any
    title: str
    subtitle: str
    about: str = ""
    """What is judged, where that is not obvious."""


def subject_of(what: Any) -> Subject:
    """Find out what it is, and open what is on disk."""
    if isinstance(what, (str, os.PathLike)):
        what = load(what)
    if isinstance(what, Run):
        _need_draws(what)
        kind = what.configuration.get("model")
        if what.path is None or kind not in _KINDS:
            return Subject("run", what, what, None, _title(what), repr(what))
        return _of_model(_KINDS[kind].load(what.path), what)
    run = getattr(what, "run_", None)
    if isinstance(what, (LDA, DPMixture)):
        what._check_fitted()
        return _of_model(what, run if isinstance(run, Run) else _run_of(what))
    if isinstance(run, Run):
        _need_draws(run)
        return Subject("run", run, run, what, type(what).__name__, repr(run))
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


def _title(run: Run) -> str:
    sampler = run.configuration.get("sampler")
    name = sampler.get("name") if isinstance(sampler, dict) else sampler
    return f"Posterior draws by {name}"


def _of_model(model: Any, run: Run) -> Subject:
    if isinstance(model, LDA):
        judged = dataclasses.replace(run, draws=_leading_words(model), path=None, origin=None)
        about = "Judged by the weight of the first word of each topic, after the topics of the chains were matched."
        title = f"{len(model.components_)} topics"
        return Subject("topics", run, judged, model, title, _size(run, "words", model.n_features_in_), about)
    judged = dataclasses.replace(run, draws=_cluster_numbers(model), path=None, origin=None)
    about = (
        "Judged by what does not depend on how clusters are numbered: their number, the concentration and the largest "
        "weights. A number that is the same in all draws is left out."
    )
    title = f"A mixture of {len(model.weights_)} clusters"
    return Subject("clusters", run, judged, model, title, _size(run, "columns", model.n_features_in_), about)


def _size(run: Run, unit: str, width: int) -> str:
    rows = run.configuration.get("num_rows", 0)
    known = f"{rows:,} rows, " if rows > 1 else ""
    chains = "1 chain" if run.num_chains == 1 else f"{run.num_chains} chains"
    return f"{known}{width:,} {unit}; {chains} × {run.num_draws:,} draws, {run.status}"


def _leading_words(model: LDA) -> dict[str, Any]:
    """(chain, draw) for each topic."""
    order = model._top(1)
    drawn = model._of_words(order)[..., 0]
    words = model.vocabulary_ or range(model.n_features_in_)
    return {f"topic {k}: {words[int(order[k, 0])]}": drawn[:, :, k] for k in range(len(order))}


def _cluster_numbers(model: DPMixture) -> dict[str, Any]:
    """(chain, draw) of what is the same however clusters are numbered."""
    weights = np.asarray(model._draws["weights"])
    found = {
        "number of clusters": model._stats["num_clusters"],
        "concentration": model._stats["concentration"],
        "largest weight": weights[:, :, 0],
        **{
            f"weight of cluster {k + 1} by size": weights[:, :, k] for k in range(1, min(4, weights.shape[2]))
        },
    }
    moving = {name: values for name, values in found.items() if np.ptp(values) > 0}
    return moving or found


def _run_of(model: Any) -> Run:
    """The run of a model that was loaded, from its store; of one that was fitted bit by bit, what is known."""
    draws = model._draws if isinstance(model._draws, dict) else {"topics": model._draws}
    root = getattr(next(iter(draws.values())), "root", None)
    if root is not None:
        try:
            return load(root)
        except SciroccoError:  # moved or changed since: the model is still at hand
            pass
    size = sum(int(np.prod(leaf.shape[2:], dtype=int)) for leaf in draws.values())
    known = {"model": type(model).__name__, "sampler": model.sampler, "dimension": size, "seed": model.seed}
    return Run(draws, None, model._stats, known, {}, {}, "fitted bit by bit", [])


def shares_of(subject: Subject) -> np.ndarray | None:
    """Shares of the topics in the tokens, where a store knows them."""
    if subject.run.path is None:
        return None
    try:
        return open_run(subject.run.path).shares
    except SciroccoError:
        return None
