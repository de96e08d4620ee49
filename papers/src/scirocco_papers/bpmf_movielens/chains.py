"""The problems and the chains of `bpmf-movielens`."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.analysis.zero_variance import zero_variance
from scirocco.datasets import MovieLens
from scirocco.estimators import ControlVariates, Estimator
from scirocco.run import Run, sample
from scirocco.samplers import LeafScaledSGLD, schedules
from scirocco.types import Key, Params, PyTree
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
    sizes = ((given.num_users, NUM_FACTORS), (given.num_items, NUM_FACTORS), (given.num_users,), (given.num_items,))
    tables = {
        name: (START_SD * rng.normal(size=size)).astype(np.float32) for name, size in zip(TABLES, sizes, strict=True)
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


# -- what is measured of chains ------------------------------------------------------------------------------


# -- how noisy the gradients are ---------------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=3)
def _noise(position: Any, centre: Params, rows: Ratings, size: int, key: Key) -> tuple[Any, Any]:
    """|ĝ - g|² of plain minibatches and of control variates, a batch each, over the gradients of all tables."""
    summand, total_rows = RatingModel(LAW).summand, len(rows.value)
    index = jax.random.choice(key, total_rows, (size,), replace=False)
    batch = jax.tree.map(lambda leaf: leaf[index], rows)

    def gap(estimate: Any, exact: Any) -> Any:
        return sum(jnp.sum((estimate[name] - exact[name]) ** 2) for name in TABLES)

    exact, exact_there = summand.total(position, rows), summand.total(centre, rows)
    here, there = summand.total(position, batch), summand.total(centre, batch)
    scale = total_rows / size
    plain = {name: scale * here[name] for name in TABLES}
    control = {name: exact_there[name] + scale * (here[name] - there[name]) for name in TABLES}
    return gap(plain, exact), gap(control, exact)


def noise_ratio(given: Problem, params: Params, centre: Params, seed: int) -> float:
    """Variance of a gradient by control variates over that by plain minibatches, at the same draw."""
    model, size = RatingModel(LAW), given.batch // 2
    position, there = (model.unconstrain(jax.tree.map(jnp.asarray, each)) for each in (params, centre))
    rows = jax.tree.map(jnp.asarray, given.train)
    keys = jax.random.split(jax.random.key(seed), 5)
    found = np.array([_noise(position, there, rows, size, key) for key in keys])
    return float(found[:, 1].mean() / found[:, 0].mean())


# -- zero variance -----------------------------------------------------------------------------------------------------


def directions(given: Problem, centre: Params) -> list[Any]:
    """Gradients of the score at the centre by table, and the same divided by the curvature of the log posterior."""
    slope = jax.grad(score)(jax.tree.map(jnp.asarray, centre), given.test)
    users, items = given.train.user, given.train.item
    left, right = np.asarray(centre["users"]), np.asarray(centre["items"])
    curvature = {
        "users": TAU * _sums(users, right[items] ** 2, given.num_users),
        "items": TAU * _sums(items, left[users] ** 2, given.num_items),
        "user_bias": TAU * np.bincount(users, minlength=given.num_users),
        "item_bias": TAU * np.bincount(items, minlength=given.num_items),
    }
    out = []
    for number, name in enumerate(TABLES):
        plain = np.asarray(slope[name], np.float64)
        out += [(name, plain), (name, plain / (curvature[name] + float(centre["precisions"][number])))]
    return out


def _sums(index: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    out = np.zeros((size, values.shape[1]))
    np.add.at(out, index, values)
    return out


def box(given: Problem, centre: Params, num_steps: int, step: float, seed: int) -> dict[str, Any]:
    """Scores along one chain of SGLD-CV without and with control variates."""
    estimator = ControlVariates(given.batch, centre=centre)
    run = chain(given, centre, estimator, (step, 0.0), num_steps, seed)
    values = np.asarray(scores(jax.tree.map(lambda leaf: leaf[0], run.draws), given.test), np.float64)
    gradients: Any = run.gradients
    features = np.stack(
        [
            np.tensordot(np.asarray(gradients[name][0], np.float64), c, axes=c.ndim)
            for name, c in directions(given, centre)
        ],
        axis=1,
    )
    features /= features.std(axis=0)
    half = len(values) // 2  # the first half is the way from the centre
    values, features = values[half:], features[half:]
    found = zero_variance((values[None], features[None]))
    after = values + features @ found.coefficients[:, 0]
    return {
        "without": values,
        "with": after,
        "variance_ratio": float(values.var() / after.var()),
        "reduction": float(found.reduction),
        "step": step,
    }
