"""The problems and the chains of `bpmf-movielens`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.datasets import MovieLens
from scirocco.estimators import ControlVariates, Estimator
from scirocco.run import Run, sample
from scirocco.samplers import LeafScaledSGLD, schedules
from scirocco.types import Params, PyTree
from scirocco_latent.factorisation.density import TABLES, Law, RatingModel, Ratings
from scirocco_latent.factorisation.method import WithPrecisions

TAU = 3.0
LAW = Law(shape=1.0, rate=300.0, rating_precision=TAU)
NUM_FACTORS, BATCH, THIN = 20, 5_000, 10
START_SD = 0.1


class Problem(NamedTuple):
    """Ratings less their mean, of some users."""

    train: Ratings
    test: Ratings
    num_users: int
    num_items: int

    @property
    def batch(self) -> int:
        """Ratings in a step."""
        return min(BATCH, len(self.train.value))


def problem(data: MovieLens, num_users: int, seed: int) -> Problem:
    """The first users, a tenth of their ratings for testing."""
    kept = np.flatnonzero(data.users < num_users)
    order = np.random.default_rng(seed).permutation(kept)
    count = len(order) // 10
    mean = np.float32(data.ratings[order[count:]].mean())
    train, test = (
        Ratings(data.users[part], data.items[part], data.ratings[part] - mean)
        for part in (order[count:], order[:count])
    )
    return Problem(train, test, num_users, data.num_items)


def start(given: Problem, seed: int) -> dict[str, np.ndarray]:
    """Small random tables."""
    rng = np.random.default_rng([seed, 0xB9])
    sizes = (
        (given.num_users, NUM_FACTORS),
        (given.num_items, NUM_FACTORS),
        (given.num_users,),
        (given.num_items,),
    )
    tables = {
        name: (START_SD * rng.normal(size=size)).astype(np.float32)
        for name, size in zip(TABLES, sizes, strict=True)
    }
    return tables | {"precisions": np.full(4, 10.0, np.float32)}


@jax.jit
def score(params: Params, test: Ratings) -> Any:
    """Mean log density of the test ratings given one draw."""
    return jnp.mean(LAW.log_likelihood(params, test))


@jax.jit
def scores(draws: PyTree, test: Ratings) -> Any:
    """The error of each draw."""
    return jax.lax.map(lambda params: score(params, test), draws)


def chain(
    given: Problem,
    begin: Any,
    estimator: Estimator,
    step: tuple[float, float],
    num_steps: int,
    seed: int,
    temperature: float = 1.0,
) -> Run:
    """Every tenth draw of one chain; `step` is ε and the power with which it falls. SGLD-CV keeps its gradients."""
    sampler = LeafScaledSGLD(schedules.polynomial(step[0], 1_000.0, step[1]), temperature=temperature)
    return sample(
        RatingModel(LAW),
        given.train,
        begin,
        sampler=WithPrecisions(sampler, LAW.shape, LAW.rate),
        estimator=estimator,
        num_samples=num_steps // THIN,
        thin=THIN,
        seed=seed,
        keep_gradients=isinstance(estimator, ControlVariates),
        progress=False,
    )


def last(run: Run) -> Any:
    """The parameters where the chain ended."""
    return jax.tree.map(lambda leaf: leaf[0, -1], run.draws)
