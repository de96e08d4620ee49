"""Checks with model and data: curvature, gradient noise, Stein's identity, the influence of the prior."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import _tree
from scirocco.analysis.stein import ksd
from scirocco.estimators.base import around
from scirocco.model import Model
from scirocco.run import setup
from scirocco.run.choose import metric, pilot, reward
from scirocco.run.result import Origin
from scirocco.samplers import Sampler, Scales, schedules
from scirocco.samplers.preconditioned import core_of
from scirocco.types import Key, Params, PyTree

_DRAWS = 1_000
"""Number of draws at which gradients are computed."""
_BATCHES = 20  # batch means that a standard error is from
Array = np.ndarray[Any, np.dtype[Any]]


class Probe(NamedTuple):
    """The run's problem, reconstructed, and the location of the draws."""

    model: Model
    parts: Any
    table: Any
    position: Params
    """Mean of the draws' second half, on the real line."""
    scales: Scales
    """Curvature and gradient noise in the sampler's coordinates, around that position."""
    eps: Any
    """ε for each parameter, halfway through the run."""
    draws: Params
    """Some draws on the real line, leaves (chain, draw, ...)."""
    judge: reward.Judge
    key: Key


def make_probe(origin: Origin, draws: Params, num_steps: int, seed: int) -> Probe:
    """Measure around the draws."""
    model, key = origin.model, jax.random.key(seed)
    problem = setup.compose(model, origin.source, origin.sampler, origin.estimator, seed)
    first = jax.tree.map(lambda leaf: jnp.asarray(leaf[0, 0]), draws)
    model.check_start(first, problem.source, problem.parts.batching.size)
    some = some_on_the_real_line(model, draws)
    position = mean_of(some)
    memory = origin.memory
    if memory is None:
        estimator = around(origin.estimator, model.constrain(position))  # no need to search for the mode again
        memory = estimator.prepare(model, problem.table, position, key).memory
    sampler = origin.sampler
    scales = pilot.scales_at(
        model, problem.parts, problem.table, memory, position, sampler.known.factor, key, thorough=True
    )
    if origin.estimator.traits.is_exact:
        scales = scales._replace(noise=_tree.zeros_like(position))
    eps = schedules.step_sizes(sampler.step_size, position, num_steps // 2)
    one = np.ones(_tree.size(position), np.float32)
    judge = reward.make_judge(model, problem.table, position, one, one, 1.0, key)
    return Probe(model, problem.parts, problem.table, position, scales, eps, some, judge, key)


def some_on_the_real_line(model: Model, draws: Params) -> Params:
    """At most about a thousand of the draws, unconstrained."""
    return jax.jit(jax.vmap(jax.vmap(model.unconstrain)))(jax.tree.map(jnp.asarray, _thinned(draws)))


def mean_of(draws: Params) -> Params:
    """The mean of the second halves of the chains."""
    return jax.tree.map(lambda leaf: leaf[:, leaf.shape[1] // 2 :].mean(axis=(0, 1)), draws)


def _thinned(draws: Params) -> Params:
    chains, count = jax.tree.leaves(draws)[0].shape[:2]
    stride = max(1, count * chains // _DRAWS)
    return jax.tree.map(lambda leaf: np.asarray(leaf[:, ::stride]), draws)


class SteinChecks(NamedTuple):
    """The result of Stein's identity with the gradients at the draws."""

    inflation: float
    """tr(SΛ)/d - 1: by how much variances are too large, on average over directions."""
    error: float
    ksd: float
    ksd_of_exact_draws: float


def stein_checks(probe: Probe, shape: metric.Shape, temperature: float) -> SteinChecks:
    r"""Whether the draws and the gradients at them are consistent.

    For draws of the target, E[(x - m)ᵀ s] = -d with s = ∇ log π (Stein's identity for ½|x - m|²). For normal draws with
    covariance S and a normal target with precision Λ the left side is -tr(SΛ): its excess is the mean inflation of the
    variances. Errors of s that are independent of x average out. The discrepancy is computed in coordinates where the
    posterior is isotropic (`shape`), with a scale that does not depend on the draws.
    """
    block = reward.block_of(probe.judge)
    gradients = _gradients(probe.model, block, probe.judge, probe.draws, probe.key)
    flat = jax.vmap(jax.vmap(lambda tree: ravel_pytree(tree)[0]))
    x = np.asarray(flat(probe.draws), np.float64)
    s = np.asarray(flat(gradients), np.float64) / temperature
    centred = x - x.mean(axis=(0, 1))
    series = -(centred * s).sum(axis=2) / x.shape[2]
    size, scale = x.shape[2], float(np.sqrt(2.0 * x.shape[2]))
    found = ksd(*_round(centred, s, shape.factor), scale=scale, unbiased=False, standardise=False)
    exact = np.sqrt((size / scale + size / scale**3) / (x.shape[0] * x.shape[1]))
    return SteinChecks(float(series.mean() - 1), _batch_error(series), found.value, float(exact))


def _round(x: Array, s: Array, factor: Array) -> tuple[Array, Array]:
    factor = np.asarray(factor, np.float64)
    if factor.ndim == 1:
        return x / factor, s * factor
    return np.linalg.solve(factor, x.reshape(-1, x.shape[2]).T).T, s.reshape(-1, s.shape[2]) @ factor


_gradients = partial(jax.jit, static_argnums=(0, 1))(reward.gradients)


def _batch_error(series: Array) -> float:
    """Standard error of the mean of correlated numbers (chain, draw), by batch means."""
    chains, count = series.shape
    length = max(1, count // max(2, _BATCHES // chains))
    used = series[:, : count // length * length].reshape(-1, length)
    means = used.mean(axis=1)
    return float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else float("nan")


def prior_pull(model: Model, draws: Params) -> tuple[Array, Array]:
    r"""How far the prior moves each parameter, in posterior sds; how far out in the prior it is, in the prior's sds.

    The first is S E[∇ log prior] / sd: to first order the derivative of the posterior mean in α when the prior is
    raised to the power α. The second is |∇ log prior| / √(its curvature), exact for normal priors; infinite for priors
    without curvature there. `draws` are on the real line.
    """
    prior = model.log_prior
    position = mean_of(draws)
    if prior is None:
        return np.zeros(_tree.size(position)), np.zeros(_tree.size(position))

    def value(position: Params) -> Any:
        return jnp.squeeze(prior(model.constrain(position)))

    def slope(position: Params) -> Any:
        return ravel_pytree(jax.grad(value)(position))[0]

    slopes = np.asarray(jax.jit(jax.vmap(jax.vmap(slope)))(draws), np.float64)
    flat = np.asarray(jax.vmap(jax.vmap(lambda t: ravel_pytree(t)[0]))(draws), np.float64)
    x = flat.reshape(-1, flat.shape[2])
    centred = x - x.mean(axis=0)
    pull = centred.T @ (centred @ slopes.reshape(x.shape).mean(axis=0)) / len(x)
    ones = jax.tree.map(jnp.ones_like, position)
    # the row sums of the Hessian: its diagonal for priors of independent parameters
    bent = -np.asarray(ravel_pytree(jax.jvp(jax.grad(value), (position,), (ones,))[1])[0], np.float64)
    mean = np.abs(slopes.reshape(x.shape).mean(axis=0))
    out = np.where(bent > 0, mean / np.sqrt(np.where(bent > 0, bent, 1.0)), np.inf)
    return np.abs(pull) / (x.std(axis=0) + 1e-300), out


# -- closed forms --------------------------------------------------------------------------------------------


class Theory(NamedTuple):
    """The results of the closed forms for a run."""

    stiffness: float
    """ε λ for SGLD, ε² λ for samplers with momentum."""
    step: float
    """Relative excess of the variance in the stiffest direction, from the step alone; inf: unstable."""
    noise_ratio: float
    """Variance that gradient noise adds in a step over the injected variance, largest over parameters."""
    noise: float
    """Relative excess of the variance from gradient noise, largest over parameters."""
    place: int
    """Index of the parameter with that excess."""
    step_size: float
    """The current ε (the largest)."""
    suggested: float
    """ε at which step and noise each inflate variances by about 5 % (1 % for samplers with momentum)."""
    friction: float | None
    friction_needed: float | None
    """C at which the noise inflates variances by 5 %."""


def predict(probe: Probe, sampler: Sampler) -> Theory | None:
    """The results of the sampler's closed forms; None for samplers without them."""
    core = core_of(sampler)
    if core.known.noise_ratio is None:
        return None
    ratios = core.known.noise_ratio(probe.scales, probe.eps, probe.position)
    product = pilot.stiffness(probe.model, probe.table, probe.position, sampler, probe.eps, probe.key)
    found = core.known.excess(probe.scales, product, probe.eps, probe.position)
    if found is None:
        return None
    noise = _flat(found.noise)
    place = int(np.argmax(noise))
    return Theory(
        product,
        found.step,
        float(_flat(ratios).max()),
        0.0 if core.known.absorbs_noise else float(noise[place]),
        place,
        _largest(probe.eps),
        found.suggested,
        None if found.friction is None else float(_flat(found.friction)[place]),
        None if found.friction_needed is None else float(_flat(found.friction_needed).max()),
    )


def noise_ratios(scales: Scales, eps: PyTree, sampler: Sampler, position: Params) -> np.ndarray | None:
    """Variance that gradient noise adds in a step over the injected variance, for each parameter.

    None for samplers whose injected noise is not known in closed form.
    """
    ratio = core_of(sampler).known.noise_ratio
    return None if ratio is None else _flat(ratio(scales, eps, position))


def _flat(tree: PyTree) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)])


def _largest(tree: PyTree) -> float:
    return float(_flat(tree).max()) if _tree.size(tree) else 0.0
