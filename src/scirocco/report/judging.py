"""What a model is judged and charted by, where its parameters do not keep their meaning from draw to draw."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco import _tree
from scirocco.models import BNN, BPMF, LDA, DPMixture, GaussianMixture
from scirocco.models.lda.results import TopWords
from scirocco.run import Run

_PAIRS = 8
_BY_SIZE = 4


class Judged(NamedTuple):
    """A run with numbers that can be compared between draws and chains, and what they are."""

    run: Run
    about: str


def _judged(run: Run, draws: dict[str, Any], about: str) -> Judged:
    """Numbers that never move say nothing of how chains mix, unless nothing does."""
    moving = {name: values for name, values in draws.items() if np.ptp(values) != 0}
    return Judged(dataclasses.replace(run, draws=moving or draws, path=None, origin=None), about)


def leading_words(model: LDA, run: Run, found: TopWords) -> Judged:
    """Topics, by the weight of their first word; `found` are their most probable words."""
    names = model.vocabulary_ or range(model.n_features_in_)
    draws = {
        f"topic {k}: {names[int(words[0])]}": found.draws[:, :, k, 0] for k, words in enumerate(found.words)
    }
    about = (
        "Judged by the weight of the first word of each topic, after the topics of the chains were matched."
    )
    return Judged(dataclasses.replace(run, draws=draws, path=None, origin=None), about)


def cluster_numbers(model: DPMixture, run: Run) -> Judged:
    """Clusters, by what is the same however they are numbered."""
    weights = model.draws_["weights"]
    kept = min(_BY_SIZE, weights.shape[2])
    largest = np.asarray(weights[:, :, :kept])
    draws = {
        "number of clusters": model.stats_["num_clusters"],
        "concentration": model.stats_["concentration"],
        "largest weight": largest[:, :, 0],
        **{f"weight of cluster {k + 1} by size": largest[:, :, k] for k in range(1, kept)},
    }
    about = (
        "Judged by what does not depend on how clusters are numbered: their number, the concentration and the largest "
        "weights. A number that is the same in all draws is left out."
    )
    return _judged(run, draws, about)


def components(model: GaussianMixture, run: Run) -> Judged:
    """A mixture of normals, its components in one order in all draws."""
    found = model.relabelled_
    names = getattr(model, "feature_names_in_", [f"column {k}" for k in range(model.n_features_in_)])
    draws: dict[str, Any] = {"weight": found["weights"]}
    for place, name in enumerate(names):
        draws[f"mean of {name}"] = found["means"][..., place]
        draws[f"sd of {name}"] = found["scales"][..., place]
    about = (
        "Judged and charted in the units of the columns, with the components of all draws in one order: the number in "
        "brackets is the component."
    )
    return _judged(run, draws, about)


def predictions(model: BPMF, run: Run) -> Judged:
    """A factorisation, by precisions and by the expected ratings of some pairs: factors may rotate."""
    drawn = run.draws
    draws: dict[str, Any] = {}
    if "rating_precision" in drawn:
        draws["rating precision"] = np.asarray(drawn["rating_precision"])
    of = ("user factors", "item factors", "user biases", "item biases")
    precisions = np.asarray(drawn["precisions"])
    draws |= {f"precision of {name}": precisions[:, :, k] for k, name in enumerate(of)}
    users = np.linspace(0, model.num_users_ - 1, min(_PAIRS, model.num_users_)).astype(int)
    items = np.linspace(0, model.num_items_ - 1, len(users)).astype(int)
    for user, item in zip(users.tolist(), items.tolist(), strict=True):
        left, right = (np.asarray(drawn[name][:, :, k]) for name, k in (("users", user), ("items", item)))
        biases = np.asarray(drawn["user_bias"][:, :, user]) + np.asarray(drawn["item_bias"][:, :, item])
        rating = np.sum(left * right, axis=-1, dtype=np.float64) + biases + model.offset_
        draws[f"rating of item {item} by user {user}"] = rating
    about = (
        "Factors may rotate and change sign along a chain. Judged and charted are what that does not change: the "
        f"precisions, and the expected ratings of {len(users)} pairs spread over users and items."
    )
    return _judged(run, draws, about)


def weight_arrays(model: BNN, run: Run) -> Judged:
    """A network, by the precision and the size of each of its arrays of weights: hidden units may change places."""
    draws: dict[str, Any] = {}
    arrays = zip(_tree.leaf_names(run.draws), jax.tree.leaves(run.draws), strict=True)
    precisions = dict(
        zip(_tree.leaf_names(model.precisions_), jax.tree.leaves(model.precisions_), strict=True)
    )
    for name, leaf in arrays:
        squares = [
            np.mean(np.square(np.asarray(leaf[:, k], np.float64)), axis=tuple(range(1, leaf.ndim - 1)))
            for k in range(leaf.shape[1])
        ]
        draws[f"size of {name}"] = np.sqrt(np.stack(squares, axis=1))
        if name in precisions:
            draws[f"precision of {name}"] = np.asarray(precisions[name])
    about = (
        "Hidden units have no order and weights no meaning of their own. Judged and charted are the precision of each "
        "array of weights, and its size: the root of the mean of their squares."
    )
    return _judged(run, draws, about)
