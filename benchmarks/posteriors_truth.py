"""References of `posteriors.py`: means and standard deviations of every parameter, in double precision.

    JAX_ENABLE_X64=1 python benchmarks/posteriors_truth.py [NAMES]

writes `posteriors.json`; with names, only theirs. The order of trust: closed forms; closed forms given one or two
parameters, which are integrated by quadrature; quadrature of the model's own log density (up to three parameters);
importance sampling from a Student-t law fitted to the posterior, with Pareto k < 0.5; four long chains of NUTS
(NumPyro). Errors are in units of the posterior sd: of quadrature, the change when every second point is left out; of
draws, two standard errors.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.special
import scipy.stats
from jax.flatten_util import ravel_pytree
from posteriors_problems import POSTERIORS, Problem

from scirocco import diagnostics

FILE = Path(__file__).with_suffix("").parent / "posteriors.json"
_NUMBERS_AT_ONCE = 4_000_000
_TINY = 1e-16
"""Density, relative to its maximum, at the edge of a grid."""


class Reference(NamedTuple):
    """Means and sds, flat in the order of `jax.tree.leaves`."""

    mean: np.ndarray
    sd: np.ndarray
    how: str
    error: float = 0.0


# -- the model's own log density, on the real line --------------------------------------------------------------------


class Target:
    """Log density of flat positions, and the parameters that belong to them."""

    def __init__(self, problem: Problem, weights: np.ndarray | None = None):
        model, rows = problem.model, jax.tree.map(_double, problem.data)
        start = jax.tree.map(_double, problem.start)
        self.start, unravel = ravel_pytree(model.unconstrain(start))
        weights = None if weights is None else jnp.asarray(weights)

        def log_density(u: jax.Array) -> jax.Array:
            position = unravel(u)
            total = model.log_likelihood_sum(position, rows, weights)
            return model.log_prior_density(position) + total

        def params(u: jax.Array) -> jax.Array:
            return ravel_pytree(model.constrain(unravel(u)))[0]

        self.log_density = jax.jit(log_density)
        self.gradient = jax.jit(jax.grad(log_density))
        self.hessian = jax.jit(jax.hessian(log_density))
        self._many = jax.jit(jax.vmap(log_density))
        self._params = jax.jit(jax.vmap(params))
        per_point = sum(leaf.size for leaf in jax.tree.leaves(rows)) / self.start.size
        self._block = int(max(1, _NUMBERS_AT_ONCE // max(per_point, self.start.size)))

    def many(self, points: np.ndarray) -> np.ndarray:
        """Log densities of points (point, dimension)."""
        return self._in_blocks(self._many, points)

    def params(self, points: np.ndarray) -> np.ndarray:
        """The parameters in the user's units."""
        return self._in_blocks(self._params, points)

    def _in_blocks(self, function: Callable[[Any], Any], points: np.ndarray) -> np.ndarray:
        block = min(self._block, len(points))
        parts = []
        for first in range(0, len(points), block):
            part = points[first : first + block]
            filled = np.concatenate([part, np.repeat(part[:1], block - len(part), axis=0)])  # one shape, one program
            parts.append(np.asarray(function(filled))[: len(part)])
        return np.concatenate(parts)

    def laplace(self) -> tuple[np.ndarray, np.ndarray]:
        """Mode and inverse curvature there."""
        found = scipy.optimize.minimize(
            lambda u: -float(self.log_density(u)),
            np.asarray(self.start),
            jac=lambda u: -np.asarray(self.gradient(u)),
            hess=lambda u: -np.asarray(self.hessian(u)),
            method="trust-exact",
            options={"gtol": 1e-6, "maxiter": 500},
        )
        return found.x, np.linalg.inv(-np.asarray(self.hessian(found.x)))


def _double(leaf: Any) -> jax.Array:
    leaf = np.asarray(leaf)
    return jnp.asarray(leaf, leaf.dtype if leaf.dtype.kind == "i" else np.float64)


def _moments(weights: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    weights = weights / weights.sum()
    mean = weights @ values
    return mean, np.sqrt(weights @ (values - mean) ** 2)


# -- of any model -----------------------------------------------------------------------------------------------


def grid(problem: Problem, points: int = 401, reach: float = 40.0) -> Reference:
    """The trapezoidal rule in coordinates in which the curvature at the mode is 1."""
    target = Target(problem)
    mode, covariance = target.laplace()
    root = np.linalg.cholesky(covariance)
    dimension = len(mode)
    low, high = np.full(dimension, -reach), np.full(dimension, reach)
    coarse = {1: 2_001, 2: 161, 3: 61}[dimension]
    for _ in range(3):  # narrow the box to where there is mass
        z, logs = _on_grid(target, mode, root, low, high, coarse)
        inside = z[logs > logs.max() + np.log(_TINY)]
        step = (high - low) / (coarse - 1)
        low, high = np.maximum(inside.min(axis=0) - 2 * step, -reach), inside.max(axis=0) + 2 * step
    z, logs = _on_grid(target, mode, root, low, high, points)
    values, weights = target.params(mode + z @ root.T), np.exp(logs - logs.max())
    mean, sd = _moments(weights, values)
    shape = (points,) * dimension
    every_second = (slice(None, None, 2),) * dimension
    half = np.arange(len(z)).reshape(shape)[every_second].ravel()
    mean2, sd2 = _moments(weights[half], values[half])
    error = np.max(np.abs([(mean2 - mean) / sd, np.log(sd2 / sd)]))
    return Reference(mean, sd, f"quadrature of the log density, {points} points in each direction", float(error))


def _on_grid(
    target: Target, mode: np.ndarray, root: np.ndarray, low: np.ndarray, high: np.ndarray, points: int
) -> tuple[np.ndarray, np.ndarray]:
    axes = [np.linspace(a, b, points) for a, b in zip(low, high, strict=True)]
    z = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(mode))
    logs = target.many(mode + z @ root.T)
    return z, np.where(np.isnan(logs), -np.inf, logs)


def normal_law(problem: Problem) -> Reference:
    """Log densities that are quadratic: one Newton step."""
    target = Target(problem)
    covariance = np.linalg.inv(-np.asarray(target.hessian(target.start)))
    mode = np.asarray(target.start) + covariance @ np.asarray(target.gradient(target.start))
    return Reference(mode, np.sqrt(np.diag(covariance)), "closed form (normal law)")


def importance(problem: Problem, draws: int = 200_000, df: float = 8.0, grouped: bool = False) -> Reference:
    """A Student-t proposal, first at the mode, then twice with the mean and covariance of the weighted draws."""
    weights = None
    if grouped:
        problem, weights = _group(problem)
    target = Target(problem, weights)
    centre, covariance = target.laplace()
    rng = np.random.default_rng(0)
    for count in (20_000, 20_000, draws):
        points, logs = _student_draws(rng, centre, covariance, df, count)
        weights, k = _smoothed(target.many(points) - logs)
        if count != draws:
            centre = weights @ points
            covariance = (weights[:, None] * (points - centre)).T @ (points - centre)
    return _weighted(target.params(points), weights, k, f"importance sampling, {draws} draws of a Student-t law")


def pairs(problem: Problem, count: int) -> Reference:
    """For many rows and no transforms: pairs ±z from the Laplace approximation, with second moments exactly 1."""
    target = Target(problem)
    mode, covariance = target.laplace()
    z = np.random.default_rng(0).normal(size=(count, len(mode)))
    z = np.linalg.solve(np.linalg.cholesky(z.T @ z / count), z.T).T
    z = np.concatenate([z, -z])
    points = mode + z @ np.linalg.cholesky(covariance).T
    weights, k = _smoothed(target.many(points) + 0.5 * np.sum(z**2, axis=1))
    values = target.params(points)
    whole = _weighted(values, weights, k, f"importance sampling, {count} pairs ±z of the Laplace approximation")
    # Equal weights would give the moments of the Laplace approximation exactly: only the rest is random.
    excess = (weights / weights.sum() - 0.5 / count)[:, None]
    off = (values - mode) / np.sqrt(np.diag(covariance))
    terms = excess * off, 0.5 * excess * (off**2 - 1)
    errors = [np.sqrt(np.sum((term[:count] + term[count:]) ** 2, axis=0)).max() for term in terms]
    return whole._replace(error=float(2 * max(errors)))


def _student_draws(
    rng: np.random.Generator, centre: np.ndarray, covariance: np.ndarray, df: float, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws and their log density."""
    root = np.linalg.cholesky(covariance)
    z = rng.normal(size=(count, len(centre))) * np.sqrt(df / rng.chisquare(df, count))[:, None]
    return centre + z @ root.T, -0.5 * (df + len(centre)) * np.log1p(np.sum(z**2, axis=1) / df)


def _smoothed(logs: np.ndarray) -> tuple[np.ndarray, float]:
    import arviz

    smoothed, k = arviz.psislw(np.where(np.isnan(logs), -np.inf, logs))
    return np.exp(np.asarray(smoothed)), float(k)


def _weighted(values: np.ndarray, weights: np.ndarray, k: float, how: str) -> Reference:
    if k > 0.5:
        raise RuntimeError(f"Pareto k is {k:.2f}: importance sampling is not reliable here.")
    weights = weights / weights.sum()
    mean, sd = _moments(weights, values)
    z = (values - mean) / sd
    errors = np.sqrt(weights**2 @ np.stack([z**2, 0.25 * (z**2 - 1) ** 2]).reshape(2, len(z), -1))
    effective = 1 / np.sum(weights**2)
    return Reference(mean, sd, f"{how}, {effective:.0f} effective, Pareto k {k:.2f}", float(2 * errors.max()))


def _group(problem: Problem) -> tuple[Problem, np.ndarray]:
    """Equal rows once, with their number."""
    table = np.column_stack([problem.data["x"], problem.data["y"]])
    rows, counts = np.unique(table, axis=0, return_counts=True)
    return problem._replace(data={"x": rows[:, :-1], "y": rows[:, -1]}), counts.astype(float)


def nuts(problem: Problem, draws: int) -> Reference:
    """Four chains of NumPyro's NUTS."""
    target = Target(problem)
    chains = _chains(target.log_density, target.start, draws)
    values = target.params(chains.reshape(-1, chains.shape[-1]))
    return _of_chains(values.reshape(chains.shape), f"NUTS, 4 × {draws} draws")


def _chains(log_density: Callable[[jax.Array], jax.Array], start: np.ndarray, draws: int) -> np.ndarray:
    import numpyro.infer

    kernel = numpyro.infer.NUTS(potential_fn=lambda u: -log_density(u), target_accept_prob=0.9, dense_mass=True)
    how = {"chain_method": "sequential", "progress_bar": False}
    mcmc = numpyro.infer.MCMC(kernel, num_warmup=2_000, num_samples=draws, num_chains=4, **how)
    starts = start + 0.1 * np.random.default_rng(0).normal(size=(4, len(start)))
    mcmc.run(jax.random.key(0), init_params=jnp.asarray(starts))
    return np.asarray(mcmc.get_samples(group_by_chain=True))


def _of_chains(values: np.ndarray, how: str) -> Reference:
    mean, sd = values.mean(axis=(0, 1)), values.std(axis=(0, 1))
    z = (values - mean) / sd
    effective, rhat = diagnostics.ess(z).min(), diagnostics.rhat(z).max()
    if effective < 40_000 or rhat > 1.001:
        raise RuntimeError(f"{effective:.0f} effective draws, R-hat {rhat:.4f}: make more.")
    errors = [diagnostics.mcse(z), 0.5 * diagnostics.mcse(z**2)]
    return Reference(
        mean, sd, f"{how}, at least {effective:.0f} effective, R-hat ≤ {rhat:.4f}", float(2 * np.max(errors))
    )


# -- of one kind of model ---------------------------------------------------------------------------------------


def linear(problem: Problem, points: int = 2_001) -> Reference:
    """Coefficients are normal given the noise, which is integrated over its logarithm."""
    x, y = _design(problem)
    prior_sd, noise_scale = problem.facts["prior_sd"], problem.facts["noise_scale"]
    rows, columns = x.shape
    units = np.sqrt(np.mean(x**2, axis=0))
    x = x / units
    prior = np.diag(1 / (prior_sd * units) ** 2)
    gram, moment = x.T @ x, x.T @ y
    rest = y - x @ np.linalg.solve(gram, moment)  # of least squares
    squares = rest @ rest
    best = np.linalg.solve(gram, moment)
    centre = 0.5 * np.log(squares / rows)
    width = 14 / np.sqrt(2 * rows)
    logs, means, variances = [], [], []
    noises = np.exp(np.linspace(centre - width, centre + width, points))
    for noise in noises:
        factor = scipy.linalg.cho_factor(gram / noise**2 + prior, lower=True)
        mean = scipy.linalg.cho_solve(factor, moment / noise**2)
        off = mean - best
        value = -0.5 * (squares + off @ gram @ off) / noise**2 - 0.5 * mean @ prior @ mean
        value -= np.log(np.diag(factor[0])).sum() + rows * np.log(noise)
        logs.append(value - noise / noise_scale + np.log(noise))
        means.append(mean)
        variances.append(np.diag(scipy.linalg.cho_solve(factor, np.eye(columns))))
    means, variances = np.array(means) / units, np.array(variances) / units**2

    def answer(use: slice) -> tuple[np.ndarray, np.ndarray]:
        values = np.column_stack([means, noises])[use]
        inner = np.column_stack([variances, np.zeros(points)])[use]
        return _total(np.exp(logs - np.max(logs))[use], values, inner)

    return _reported(answer, "closed form given the noise, quadrature over it")


def _design(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Columns and y of a regression, a sample or a series, in double precision."""
    if isinstance(problem.data, dict):
        return problem.data["x"].astype(float), problem.data["y"].astype(float)
    data = problem.data.astype(float)
    if "order" not in problem.facts:
        return np.ones((len(data), 1)), data
    series, order = data[0], problem.facts["order"]
    lagged = [series[order - lag : len(series) - lag] for lag in range(1, order + 1)]
    return np.column_stack([np.ones(len(series) - order), *lagged]), series[order:]


def _total(weights: np.ndarray, means: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of a mixture of laws with these means and variances."""
    weights = weights / weights.sum()
    mean = weights @ means
    return mean, np.sqrt(weights @ (variances + (means - mean) ** 2))


def _reported(answer: Callable[[slice], tuple[np.ndarray, np.ndarray]], how: str) -> Reference:
    mean, sd = answer(slice(None))
    mean2, sd2 = answer(slice(None, None, 2))
    error = np.max(np.abs([(mean2 - mean) / sd, np.log(sd2 / sd)]))
    return Reference(mean, sd, how, float(error))


def schools(problem: Problem, centred: bool) -> Reference:
    """Effects are normal given their mean and sd, which are on a grid."""
    y, error = problem.data["y"].astype(float), problem.data["error"].astype(float)
    mu, log_tau = np.linspace(-50, 50, 801), np.linspace(-25, 9, 1_601)

    def answer(use: slice) -> tuple[np.ndarray, np.ndarray]:
        m, t = (a.ravel() for a in np.meshgrid(mu[use], np.exp(log_tau[use]), indexing="ij"))
        spread = error**2 + t[:, None] ** 2
        logs = -0.5 * np.sum((y - m[:, None]) ** 2 / spread + np.log(spread), axis=1)
        logs += -0.5 * (m / 5) ** 2 - np.log1p((t / 5) ** 2) + np.log(t)
        share = t[:, None] ** 2 / spread
        if centred:
            means, variances = m[:, None] + share * (y - m[:, None]), share * error**2
        else:
            means, variances = t[:, None] * (y - m[:, None]) / spread, error**2 / spread
        zero = np.zeros((len(m), 2))
        return _total(np.exp(logs - logs.max()), np.column_stack([m, t, means]), np.column_stack([zero, variances]))

    return _reported(answer, "closed form given mean and sd of the effects, quadrature over these")


def intercepts(problem: Problem) -> Reference:
    """Effects and their mean are normal given the two sds, which are on a grid."""
    y, group = problem.data["y"].astype(float), problem.data["group"]
    size = len(y) // (group.max() + 1)
    y = y.reshape(-1, size)  # rows are in the order of the groups
    groups, averages, within = len(y), y.mean(axis=1), np.sum((y - y.mean(axis=1, keepdims=True)) ** 2)
    log_noise, log_sd = np.linspace(np.log(1.5) - 0.4, np.log(1.5) + 0.4, 401), np.linspace(-1.0, 2.5, 401)

    def answer(use: slice) -> tuple[np.ndarray, np.ndarray]:
        noise, sd = (np.exp(a).ravel() for a in np.meshgrid(log_noise[use], log_sd[use], indexing="ij"))
        spread = sd**2 + noise**2 / size
        precision = groups / spread + 1 / 20**2
        mean, variance = averages.sum() / spread / precision, 1 / precision
        squares = np.sum(averages**2) / spread - mean**2 * precision
        logs = -0.5 * (squares + groups * np.log(spread) + np.log(precision) + within / noise**2)
        logs += -groups * (size - 1) * np.log(noise) - sd / 5 - noise / 5 + np.log(noise) + np.log(sd)
        share = (sd**2 / spread)[:, None]
        effects = mean[:, None] + share * (averages - mean[:, None])
        inner = share * (noise**2 / size)[:, None] + (1 - share) ** 2 * variance[:, None]
        values = np.column_stack([effects, mean, noise, sd])
        variances = np.column_stack([np.repeat(inner, groups, axis=1), variance, 0 * sd, 0 * sd])
        return _total(np.exp(logs - logs.max()), values, variances)

    return _reported(answer, "closed form given the two sds, quadrature over these")


def funnel(problem: Problem) -> Reference:
    """x is normal given v, which is on a grid."""
    y, v = problem.data["y"].astype(float), np.linspace(-40, 25, 4_001)

    def answer(use: slice) -> tuple[np.ndarray, np.ndarray]:
        scale = np.exp(v[use])[:, None]
        logs = -0.5 * np.sum(y**2 / (scale + 4) + np.log(scale + 4), axis=1) - 0.5 * (v[use] / 3) ** 2
        share = scale / (scale + 4)
        values = np.column_stack([v[use], share * y])
        return _total(np.exp(logs - logs.max()), values, np.column_stack([0 * v[use], share * 4, share * 4]))

    return _reported(answer, "closed form given v, quadrature over it")


def horseshoe(problem: Problem, draws: int = 40_000) -> Reference:
    """NUTS for the scales alone: z, which mixes badly with them, is normal given the scales."""
    x, y = _design(problem)
    rows, columns = x.shape

    def given(u: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Log density of the scales; mean of z given them, and the inverse root of its precision."""
        log_global, log_local, log_noise = u[0], u[1 : columns + 1], u[columns + 1]
        scaled = x * jnp.exp(log_local + log_global - log_noise)
        factor = jnp.linalg.cholesky(jnp.eye(columns) + scaled.T @ scaled)
        inverse = jax.scipy.linalg.solve_triangular(factor, jnp.eye(columns), lower=True)
        half = inverse @ (scaled.T @ y * jnp.exp(-log_noise))
        value = -0.5 * (y @ y * jnp.exp(-2 * log_noise) - half @ half) - rows * log_noise
        value -= jnp.sum(jnp.log(jnp.diag(factor))) + 0.5 * log_noise**2
        value += jnp.sum(log_local - jnp.log1p(jnp.exp(2 * log_local)))
        value += log_global - jnp.log1p(jnp.exp(2 * log_global) / 0.2**2)
        return value, inverse.T @ half, inverse

    start = np.zeros(columns + 2)
    chains = _chains(lambda u: given(u)[0], start, draws)
    scales = chains.reshape(-1, columns + 2)
    means, roots = jax.lax.map(lambda u: given(u)[1:], jnp.asarray(scales), batch_size=10_000)
    noise = np.random.default_rng(0).normal(size=means.shape)
    z = np.asarray(means) + np.einsum("nji,nj->ni", np.asarray(roots), noise)
    values = np.concatenate([chains, z.reshape(4, draws, columns)], axis=2)
    return _of_chains(values, f"NUTS for the scales, 4 × {draws} draws, closed form for z given these")


def exchanged(problem: Problem) -> Reference:
    """One of the modes that differ by the labels alone, far apart: all labels have the mean and sd of their mixture."""
    one = importance(problem)
    count = len(one.mean)
    mean, sd = _total(np.full(count, 1 / count), one.mean[:, None], one.sd[:, None] ** 2)
    how = f"{one.how} around one mode, averaged over the labels"
    return Reference(np.repeat(mean, count), np.repeat(sd, count), how, one.error)


def kinked(problem: Problem) -> Reference:
    """A location and the logarithm of a scale, on a grid: the curvature at the mode says nothing."""
    target, y = Target(problem), problem.data.astype(float)
    places, logs = np.linspace(y.min() - 2, y.max() + 2, 2_001), np.linspace(-1.5, 3.0, 401)

    def answer(use: slice) -> tuple[np.ndarray, np.ndarray]:
        points = np.stack(np.meshgrid(places[use], logs[use], indexing="ij"), axis=-1).reshape(-1, 2)
        found = target.many(points)
        return _moments(np.exp(found - found.max()), target.params(points))

    return _reported(answer, "quadrature of the log density on a fine grid")


def proportion(problem: Problem) -> Reference:
    ones = float(problem.data.sum())
    law = scipy.stats.beta(1 + ones, 1 + len(problem.data) - ones)
    return Reference(np.array([law.mean()]), np.array([law.std()]), "closed form (beta law)")


def truncated(problem: Problem) -> Reference:
    mean, sd = problem.data.astype(float).mean(), len(problem.data) ** -0.5
    law = scipy.stats.truncnorm(-mean / sd, np.inf, mean, sd)
    return Reference(np.array([law.mean()]), np.array([law.std()]), "closed form (truncated normal law)")


METHODS: dict[str, Callable[[Problem], Reference]] = {
    "logistic_ten_thousand": partial(pairs, count=4_000),
    "logistic_hundred_thousand": partial(pairs, count=2_000),
    "logistic_million": partial(pairs, count=500),
    "logistic_far_start": partial(pairs, count=10_000),
    "logistic_saturated_start": partial(pairs, count=4_000),
    "poisson_million": partial(pairs, count=500),
    "mixture_three": exchanged,
    "laplace_location": kinked,
    "logistic_complete": partial(grid, points=121),
    "logistic_rare": partial(importance, grouped=True),
    "schools_noncentred": partial(schools, centred=False),
    "schools_centred": partial(schools, centred=True),
    "random_intercepts": intercepts,
    "funnel": funnel,
    "proportion_near_zero": proportion,
    "mean_at_bound": truncated,
    "michaelis_menten": partial(grid, points=121),
    "logistic_separated": partial(grid, points=121),
    "horseshoe": horseshoe,
    "hierarchical_logistic": partial(nuts, draws=32_000),
}
METHODS |= dict.fromkeys(("one_row", "normal_two_scales", "gaussian_condition_1e6"), normal_law)
METHODS |= {name: linear for name in POSTERIORS if name.startswith(("linear_", "normal_")) and name not in METHODS}
METHODS |= dict.fromkeys(("ar1_pairs", "ar2_triples", "ar1_one_row", "ar2_one_row"), linear)
_PLANES = ("dose_response", "beta_binomial", "student_location", "ar1_near_one", "mixture_known_weights")
_PLANES += (
    "mixture_symmetric",
    "square",
    "exponential_censored",
    "weibull_censored",
    "gamma_five_rows",
    "banana",
    "variance_at_zero",
    "gamma_narrow",
)
METHODS |= dict.fromkeys(_PLANES, grid) | {"square": partial(grid, points=1_001, reach=120.0)}
METHODS = {name: METHODS.get(name, importance) for name in POSTERIORS}


def names_of(start: dict[str, np.ndarray]) -> list[str]:
    """The parameters in the order of `jax.tree.leaves`."""
    names = []
    for name, value in sorted(start.items()):
        places = [",".join(map(str, place)) for place in np.ndindex(value.shape)]
        names += [f"{name}[{place}]" if place else name for place in places]
    return names


def main(names: list[str]) -> None:
    """Make the references of these posteriors (none: all)."""
    if not jax.config.jax_enable_x64:
        sys.exit("References are made in double precision: set JAX_ENABLE_X64=1.")
    stored = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in names or POSTERIORS:
        started = time.process_time()
        problem = POSTERIORS[name].build()
        found = METHODS[name](problem)
        stored[name] = {
            "how": found.how,
            "error": float(f"{found.error:.1e}"),
            "parameters": names_of(problem.start),
            "mean": [float(f"{value:.8g}") for value in found.mean],
            "sd": [float(f"{value:.8g}") for value in found.sd],
        }
        print(f"{name}: {found.how}; error {found.error:.1e} sd; {time.process_time() - started:.0f} CPU s", flush=True)
        ready = {name: stored[name] for name in POSTERIORS if name in stored}
        lines = ",\n".join(
            f" {json.dumps(name)}: {json.dumps(entry, ensure_ascii=False)}" for name, entry in ready.items()
        )
        FILE.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
