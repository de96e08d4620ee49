"""The four posteriors of `divide-and-conquer`, with the sizes of the thesis, and exact draws from them.

t
    x_i ~ t₃(θ, Σ) in the plane, N = 800, flat prior. Exact draws: from a grid.
mixture
    x_i ~ ½ N(θ₁, I₂) + ½ N(θ₂, I₂), θ_j ~ N(0, 10 I₂), N = 10,000; the centres are 0.36 apart, so that the two modes
    overlap. Exact draws: NUTS, of which half get θ₁ and θ₂ exchanged, which leaves the posterior as it is.
warped
    x_i ~ N(θ₁ + θ₂², 25), θ_j ~ N(0, 1), N = 800. Exact draws: from a grid.
gaussian
    x_i ~ N(θ, Σ) in d dimensions, N = 800, flat prior: the posterior is N(x̄, Σ/N).

The thesis gives neither Σ, ν, σ_x and σ_θ nor the centres; these were chosen before any method was run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco._extras import require
from scirocco.estimators.newton import Curve, ascend
from scirocco.model import Model
from scirocco.types import Array, Key
from scirocco_papers.nuts import Nuts

NUM_SHARDS, BATCH = 20, 50
CELLS = 400
DEGREES, T_CORRELATION = 3.0, 0.5
SEPARATION, PRIOR_VARIANCE = 0.36, 10.0
WARPED_SCALE, WARPED_TRUTH = 5.0, (0.0, 1.0)
CORRELATION = 0.3
Draws = np.ndarray[Any, np.dtype[Any]]


def _identity(z: Array) -> Any:
    return z


@dataclass(frozen=True)
class Problem:
    """A posterior with its data, where chains start, and a source of exact draws."""

    name: str
    model: Model
    x: Draws
    start: Draws
    """A good starting point: the mode."""
    far: Draws
    """One that is far from the posterior's mass, on the scale of the data or of the prior."""
    exact: Callable[[int, int], Draws]
    """`exact(num_draws, seed)`: (draw, d); other seeds give other draws."""
    unfold: Callable[[Any], Any] = _identity
    """From coordinates in which NUTS moves easily to θ, with a Jacobian of modulus 1 (or any constant)."""
    fold: Callable[[Any], Any] = _identity
    """Its inverse."""
    shown: int = 2
    """How many of the coordinates are drawn: the first of the mixture's two centres."""
    exchange: Callable[[Draws], Draws] | None = None
    """Another point (..., d) with the same density, also on every shard: the centres the other way round."""
    normal: tuple[Draws, Draws] | None = None
    """Mean and covariance of a posterior that is normal."""

    @property
    def dimension(self) -> int:
        """Of θ."""
        return len(self.start)

    @functools.cached_property
    def curvature(self) -> float:
        """The largest at the starting point."""
        if self.normal is not None:  # a Hessian of 200 parameters is slow to compile
            return float(1 / np.linalg.eigvalsh(self.normal[1])[0])
        curve = jax.jit(jax.hessian(lambda theta: self.log_density(theta, self.x, 1)))
        return float(np.linalg.eigvalsh(-np.asarray(curve(jnp.asarray(self.start, jnp.float32)))).max())

    def shards(self) -> Draws:
        """The rows in equal shares, (shard, row, ...)."""
        return self.x.reshape(NUM_SHARDS, -1, *self.x.shape[1:])

    def folded_density(self, z: Array, rows: Any, num_shards: int) -> Array:
        """Of the coordinates in which NUTS moves."""
        return self.log_density(self.unfold(z), rows, num_shards)

    def log_density(self, theta: Array, rows: Any, num_shards: int) -> Array:
        """On some of the rows, with that share of the prior; up to a constant."""
        prior = 0.0 if self.model.log_prior is None else self.model.log_prior(theta) / num_shards
        return prior + jnp.sum(self.model.log_likelihood(theta, rows))


# -- the posteriors ------------------------------------------------------------------------------------------


def _t_log_likelihood(theta: Array, x: Array | Draws) -> Array:
    first, second = x[..., 0] - theta[0], x[..., 1] - theta[1]
    square = first**2 - 2 * T_CORRELATION * first * second + second**2
    return -0.5 * (DEGREES + 2) * jnp.log1p(square / (DEGREES * (1 - T_CORRELATION**2)))


def heavy_tailed(seed: int, num_rows: int = 800) -> Problem:
    """The location of a bivariate t law."""
    rng = np.random.default_rng([seed, 1])
    factor = np.linalg.cholesky(np.array([[1.0, T_CORRELATION], [T_CORRELATION, 1.0]]))
    radius = np.sqrt(rng.chisquare(DEGREES, num_rows) / DEGREES)
    x = (rng.normal(size=(num_rows, 2)) @ factor.T / radius[:, None]).astype(np.float32)
    model = Model(_t_log_likelihood, vectorized=True)
    mode = _mode_near(lambda theta: jnp.sum(_t_log_likelihood(theta, x)), np.median(x, axis=0))
    reach = 9 / num_rows**0.5

    def log_density(theta: Array) -> Array:
        return jnp.sum(_t_log_likelihood(theta, jnp.asarray(x, theta.dtype)))

    exact = grid_draws(log_density, mode - reach, mode + reach, cells=250)
    return Problem("t", model, x, mode, np.full(2, 3.0), exact)


def _mode_near(log_density: Callable[[Any], Array], start: Draws) -> Draws:
    """By Newton's method."""
    derivatives = jax.jit(jax.value_and_grad(log_density))
    curvature = jax.jit(lambda at: -jax.hessian(log_density)(at))

    def curve(at: Draws) -> Curve[None]:
        value, gradient = derivatives(jnp.asarray(at, jnp.float32))
        slope = np.asarray(gradient, np.float64)
        return Curve(at, float(value), slope, lambda: curvature(jnp.asarray(at, jnp.float32)), None)

    return ascend(curve(np.asarray(start, np.float64)), curve, most=20, close=1e-5, rounding=1e-7).here.at


def _mixture_log_likelihood(theta: Array, x: Array) -> Array:
    """With m = (θ₁ + θ₂)/2 and u = (θ₁ - θ₂)/2: -|x - m|²/2 - |u|²/2 + log cosh u·(x - m), cheaper than two normals."""
    half = 0.5 * (theta[:2] - theta[2:])
    away = x - 0.5 * (theta[:2] + theta[2:])
    tilt = jnp.abs(away @ half)
    return tilt + jnp.log1p(jnp.exp(-2 * tilt)) - 0.5 * (jnp.sum(away**2, axis=-1) + jnp.sum(half**2))


def _mixture_log_prior(theta: Array) -> Array:
    return -0.5 * jnp.sum(theta**2) / PRIOR_VARIANCE


def _centres(z: Array | Draws) -> Array:
    """(middle, half difference) to (θ₁, θ₂)."""
    return jnp.concatenate([z[:2] + z[2:], z[:2] - z[2:]])


def _exchanged(theta: Draws) -> Draws:
    return np.roll(theta, 2, axis=-1)


def _middle(theta: Array | Draws) -> Array:
    return 0.5 * jnp.concatenate([theta[:2] + theta[2:], theta[:2] - theta[2:]])


def mixture_rows(seed: int, separation: float = SEPARATION, num_rows: int = 10_000) -> tuple[Draws, Draws]:
    """Data, and the centres they come from."""
    rng = np.random.default_rng([seed, 2])
    step = separation / 2**0.5
    x = rng.normal(size=(num_rows, 2)) + step * rng.integers(2, size=num_rows)[:, None]
    return x.astype(np.float32), np.repeat([0.0, step], 2)


def mixture(seed: int, num_reference: int = 5_000, num_rows: int = 10_000) -> Problem:
    """The two centres of a mixture, which may be exchanged; `num_reference` draws in each of two chains."""
    x, start = mixture_rows(seed, num_rows=num_rows)
    model = Model(_mixture_log_likelihood, _mixture_log_prior, vectorized=True)
    far = np.array([1.0, -1.0, 0.5, 2.0])
    kept: list[Draws] = []

    def exact(count: int, seed: int) -> Draws:
        rng = np.random.default_rng([seed, count])
        chosen = kept[0][rng.choice(len(kept[0]), size=count, replace=count > len(kept[0]))]
        return np.where(rng.random(count)[:, None] < 0.5, _exchanged(chosen), chosen)

    problem = Problem("mixture", model, x, start, far, exact, _centres, _middle, exchange=_exchanged)
    nuts = Nuts(
        lambda z, rows: problem.folded_density(z, rows, 1),
        np.asarray(_middle(start)),
        x,
        num_warmup=500,
        num_draws=num_reference,
    )
    with ThreadPoolExecutor(2) as pool:
        chains = list(pool.map(lambda k: nuts.run(seed + k).draws, range(2)))
    kept.append(np.asarray(jax.vmap(_centres)(np.concatenate(chains)), np.float64))
    return problem


def _warped_log_likelihood(theta: Array, x: Array) -> Array:
    return -0.5 * ((x - theta[0] - theta[1] ** 2) / WARPED_SCALE) ** 2


def _warped_log_prior(theta: Array) -> Array:
    return -0.5 * jnp.sum(theta**2)


def _bent(z: Array) -> Any:
    return jnp.stack([z[0] - z[1] ** 2, z[1]])


def _straight(theta: Array) -> Any:
    return jnp.stack([theta[0] + theta[1] ** 2, theta[1]])


def warped(seed: int, num_rows: int = 800) -> Problem:
    """θ₁ + θ₂² is known well, each of them hardly."""
    rng = np.random.default_rng([seed, 3])
    mean = WARPED_TRUTH[0] + WARPED_TRUTH[1] ** 2
    x = (mean + WARPED_SCALE * rng.normal(size=num_rows)).astype(np.float32)
    model = Model(_warped_log_likelihood, _warped_log_prior, vectorized=True)

    def log_density(theta: Array) -> Array:
        return jnp.sum(_warped_log_likelihood(theta, jnp.asarray(x, theta.dtype))) + _warped_log_prior(theta)

    exact = grid_draws(log_density, (-5.5, -2.6), (3.0, 2.6))
    start = np.array([float(x.mean()) - 0.25, 0.5])
    return Problem("warped", model, x, start, np.array([-4.0, -4.0]), exact, _bent, _straight)


def _ar_log_likelihood(theta: Array, x: Array) -> Array:
    """With Σ_ij = ρ^|i - j|, whose inverse has three diagonals."""
    away = x - theta
    steps = away[..., 1:] - CORRELATION * away[..., :-1]
    return -0.5 * (away[..., 0] ** 2 + jnp.sum(steps**2, axis=-1) / (1 - CORRELATION**2))


def ar_factor(dimension: int) -> Draws:
    """L with L Lᵀ = Σ."""
    places = np.arange(dimension)
    return np.asarray(np.linalg.cholesky(CORRELATION ** np.abs(places[:, None] - places)))


def gaussian(seed: int, dimension: int, num_rows: int = 800) -> Problem:
    """The location of a normal law, Σ_ij = 0.3^|i - j|."""
    rng = np.random.default_rng([seed, 4, dimension])
    factor = ar_factor(dimension)
    x = (rng.normal(size=(num_rows, dimension)) @ factor.T).astype(np.float32)
    mean = x.mean(axis=0, dtype=np.float64)

    def exact(count: int, seed: int) -> Draws:
        rng = np.random.default_rng([seed, count])
        return np.asarray(mean + rng.normal(size=(count, dimension)) @ factor.T / num_rows**0.5)

    model = Model(_ar_log_likelihood, vectorized=True)
    normal = mean, factor @ factor.T / num_rows
    return Problem("gaussian", model, x, mean, np.full(dimension, 3.0), exact, shown=dimension, normal=normal)


def grid_draws(
    log_density: Callable[[Any], Any], low: Any, high: Any, cells: int = CELLS
) -> Callable[[int, int], Draws]:
    """Draws from a density in the plane: a cell by its probability, a point uniformly in the cell."""
    axes = [(np.arange(cells) + 0.5) * (b - a) / cells + a for a, b in zip(low, high, strict=True)]
    with jax.enable_x64(True):
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        values = np.asarray(jax.jit(lambda at: jax.lax.map(log_density, at, batch_size=500))(points))
    heights = np.exp(values - values.max())
    chances = heights / heights.sum()
    width = (np.asarray(high) - np.asarray(low)) / cells

    def draws(count: int, seed: int) -> Draws:
        rng = np.random.default_rng([seed, count])
        chosen = rng.choice(len(points), size=count, p=chances)
        return np.asarray(points[chosen] + (rng.random((count, 2)) - 0.5) * width)

    return draws


# -- draws of the subposteriors ------------------------------------------------------------------------------


WARMUP, DEPTH = 300, 3
"""At most 2³ - 1 leapfrog steps: all chains wait for the longest."""


def subposterior_draws(problem: Problem, num_runs: int, num_draws: int, seed: int) -> Draws:
    """(run, shard, draw, d)."""
    if problem.normal is not None:
        return _known(problem, problem.normal[1], num_runs, num_draws, seed)
    draws = _nuts(problem, num_runs, num_draws, seed)
    if problem.exchange is None:
        return draws
    heads = np.random.default_rng([seed, 6]).random(draws.shape[:-1]) < 0.5
    return np.where(heads[..., None], problem.exchange(draws), draws)


def _known(problem: Problem, covariance: Draws, num_runs: int, num_draws: int, seed: int) -> Draws:
    means = problem.shards().mean(axis=1, dtype=np.float64)
    rng = np.random.default_rng([seed, 5, problem.dimension])
    normals = rng.normal(size=(num_runs, NUM_SHARDS, num_draws, problem.dimension))
    return np.asarray(means[:, None] + normals @ np.linalg.cholesky(NUM_SHARDS * covariance).T)


def _nuts(problem: Problem, num_runs: int, num_draws: int, seed: int) -> Draws:
    require("numpyro", "`scirocco reproduce divide-and-conquer`")
    from numpyro.infer.hmc import hmc

    shards = jnp.asarray(problem.shards())
    start = problem.fold(jnp.asarray(problem.start, jnp.float32))
    init, move = hmc(potential_fn_gen=lambda rows: lambda z: -problem.folded_density(z, rows, NUM_SHARDS), algo="NUTS")

    def chain(key: Key, rows: Any) -> Any:
        state = init(start, WARMUP, max_tree_depth=DEPTH, model_args=(rows,), rng_key=key)

        def step(state: Any, _: None) -> tuple[Any, Any]:
            state = move(state, model_args=(rows,))
            return state, state.z

        return jax.vmap(problem.unfold)(jax.lax.scan(step, state, length=WARMUP + num_draws)[1][WARMUP:])

    keys = jax.random.split(jax.random.PRNGKey(seed), num_runs * NUM_SHARDS)
    every = jnp.tile(shards, (num_runs, *[1] * (shards.ndim - 1)))
    draws = np.asarray(jax.jit(jax.vmap(chain))(keys, every), np.float64)
    return draws.reshape(num_runs, NUM_SHARDS, num_draws, problem.dimension)
