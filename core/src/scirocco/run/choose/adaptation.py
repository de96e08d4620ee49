"""The adaptation of a sampler with trajectories: step size and coordinates, from the positions of several chains.

The chains are those of the run, in the same compiled program, because step size and L are data. Windows of 50 to 200
steps each end with a new L, from the covariance of all chains in the window; within a window the step size follows the
acceptance of trajectories every few steps (Robbins and Monro). The chains end where the run starts.
"""

from __future__ import annotations

import math
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco._random import SeedPurpose
from scirocco.diagnostics.measures import rhat
from scirocco.errors import BadStartError
from scirocco.estimators.mode import some_rows
from scirocco.estimators.newton import OnRows, vector
from scirocco.model import Model
from scirocco.reducers import Reducing
from scirocco.run import setup
from scirocco.run.chains import make_chains
from scirocco.run.choose import limits, set_up
from scirocco.run.choose.scores import flat_positions
from scirocco.run.keeping import DeviceChains, Keeping
from scirocco.run.session import Plan
from scirocco.run.setup import Problem, Ready
from scirocco.samplers import Jumps, Trajectory
from scirocco.samplers.preconditioned import rows_times
from scirocco.types import Key, Params

_SEARCH, _BLOCK = 4, 10
"""Steps between two changes of the step size: while its scale is searched for, and in a window."""
_WINDOWS, _LAST = (50, 100, 200), 60
"""Steps of the windows after which L changes (the last is repeated until chains agree), and of the one after them."""
_OTHER_SEED = 0x9E3779B9
"""The chains of the adaptation have other randomness than those of the run."""
_LOOKED_AT = 64
"""Starts whose log densities are computed; of more chains the others are taken to be finite, too."""
_SPREADS = (1.5, 0.5, 0.1)
"""How far apart chains start, in standard deviations; the next where a log density is not finite."""
_PRIOR = 5.0
"""The covariance of a window of n positions counts n, that of the window before this many."""


def adapt(problem: Problem, ready: Ready, plan: Plan, params: Params) -> tuple[Problem, Ready]:
    """Complete the sampler, and start the run's chains where the chains of the adaptation have ended."""
    count = min(limits.LIMITS.most_adaptation_chains, max(limits.LIMITS.adaptation_chains, plan.num_chains))
    keeping = Keeping(plan.keeping.gradients, 1, Reducing(None))
    seed = (plan.seed + _OTHER_SEED) % (1 << 32)
    own = Plan(1, 0, 1, count, seed, keeping, plan.chain_method)
    search = _Search(problem, _begun(problem, ready, own, params), ready.sampler)
    chosen: dict[str, Any] = {}
    try:
        search.settle()
        if ready.report.get("roundness", 0.0) >= limits.LIMITS.no_shape:
            search, chosen = _better(search, problem, _at_start(problem, ready, params, plan.key), own, params)
        for length in _WINDOWS[1:]:
            search.reshape(length)
        while search.disagreement > limits.LIMITS.adapted_r_hat and search.steps < limits.LIMITS.most_adaptation_steps:
            search.reshape(_WINDOWS[-1])
        search.set(step_size=search.window(_LAST)[1])
    finally:
        search.chains.close()
    report = {"steps": search.steps, "chains": count, "acceptance_rate": search.acceptance} | chosen
    start = ready.start._replace(places=search.chains.current[0])
    ready = ready._replace(sampler=search.sampler, start=start, report=ready.report | {"adaptation": report})
    return problem._replace(parts=problem.parts._replace(sampler=search.sampler)), ready


def _at_start(problem: Problem, ready: Ready, params: Params, key: Key) -> Ready:
    """The same sampler at the user's start, in units of the rows' information there."""
    model, table = cast(Model, problem.model), problem.table
    position = set_up.started(model, table, params, key)
    factor = set_up.information_factor(model, table, position, key)
    sampler: Any = ready.sampler
    sampler = sampler.with_settings(step_size=set_up.first_step(position), factor=factor)
    return ready._replace(sampler=sampler, start=ready.start._replace(position=position))


def _better(
    search: _Search, problem: Problem, other: Ready, plan: Plan, params: Params
) -> tuple[_Search, dict[str, Any]]:
    """The chains from the mode, or those from the user's start if they reach where the posterior has more mass."""
    try:
        again = _Search(problem, _begun(problem, other, plan, params), other.sampler)
    except BadStartError:  # the mode is what there is
        return search, {"from": "mode"}
    again.settle()
    margin = limits.LIMITS.clearly_better * math.sqrt(_tree.size(other.start.position))
    if again.log_mass() > search.log_mass() + margin:
        search.chains.close()
        return again, {"from": "start"}
    again.chains.close()
    return search, {"from": "mode"}


def _begun(problem: Problem, ready: Ready, plan: Plan, params: Params) -> DeviceChains:
    """Chains that start around the first guess, further apart than the posterior's standard deviations suggest."""
    for spread in (*_SPREADS, 0.0):
        places = _places(ready, spread, plan)
        chains = make_chains(problem, ready.start._replace(places=places), plan)
        gradient = chains.current[1]
        if all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient)):
            break
        if spread == 0.0:
            setup.check_first(problem, params, jnp.asarray(gradient.value), gradient.total)
        chains.close()
    return chains


def _places(ready: Ready, spread: float, plan: Plan) -> Params:
    """Where chains start: around the mode, or around all modes that they will jump between, in turn by their mass."""
    jumps: Jumps | None = cast(Trajectory, ready.sampler).jumps
    if jumps is None:
        return scattered(ready.start.position, ready.sampler.known.factor, spread, plan.num_chains, plan.seed)
    shares = np.cumsum(np.exp(jumps.log_weights - np.max(jumps.log_weights)))
    at = np.searchsorted(shares / shares[-1], (np.arange(plan.num_chains) + 0.5) / plan.num_chains)
    back = vector(ready.start.position)[1]
    normals = np.random.default_rng([plan.seed, SeedPurpose.PLACES]).standard_normal(np.shape(jumps.centres[at]))
    return back(jumps.centres[at] + spread * np.einsum("cij,cj->ci", jumps.factors[at], normals))


def spread_out(problem: Problem, ready: Ready, plan: Plan) -> Ready:
    """Start the chains apart from each other, where the sampler knows the posterior's standard deviations."""
    position, factor = ready.start.position, ready.sampler.known.factor
    if factor is None or plan.num_chains * _tree.size(position) > limits.LIMITS.spread_out_numbers:
        return ready
    given = OnRows(problem.model, problem.table.num_rows, position, some_rows(problem.model, problem.table, plan.key))
    for spread in _SPREADS:
        places = scattered(position, factor, spread, plan.num_chains, plan.seed)
        some = [
            jax.tree.map(lambda leaf, n=number: leaf[n], places) for number in range(min(plan.num_chains, _LOOKED_AT))
        ]
        if np.all(np.isfinite([given.log_density(one) for one in some])):
            return ready._replace(start=ready.start._replace(places=places))
    return ready


def scattered(position: Params, factor: Any, spread: float, count: int, seed: int) -> Params:
    """`count` points around `position`, with so many times the standard deviations of L: leaves (point, ...)."""
    flat, back = vector(position)
    normals = np.random.default_rng([seed, SeedPurpose.PLACES]).standard_normal((count, flat.size))
    return back(flat + spread * rows_times(np.asarray(factor), normals))


class _Search:
    """The chains with the current step size and L."""

    def __init__(self, problem: Problem, chains: DeviceChains, sampler: Any):
        self.model, self.chains, self.sampler = problem.model, chains, sampler
        self.steps, self.acceptance, self.disagreement = 0, 0.0, np.inf

    def advance(self, steps: int) -> Params:
        """The draws, leaves (chain, step, ...)."""
        chunk = self.chains.advance(steps, 1)
        self.steps += steps
        rates = np.nan_to_num(np.asarray(chunk.stats["acceptance_rate"], float))
        slowest = float(rates.mean(axis=1).min())  # a chain that hardly moves must not be outvoted
        self.acceptance = slowest if slowest < limits.LIMITS.stuck else float(rates.mean())
        return chunk.draws

    def set(self, **settings: Any) -> None:
        """New hyper-parameters; the chains stay where they are."""
        self.sampler = self.sampler.with_settings(**settings)
        self.chains.retune(self.sampler)

    def find_scale(self) -> None:
        """Double or halve the step size until some trajectories are accepted, and some are not."""
        for _ in range(20):
            self.advance(_SEARCH)
            if 0.3 <= self.acceptance <= 0.98:
                return
            self.set(step_size=self.sampler.step_size * (0.4 if self.acceptance < 0.3 else 1.6))

    def settle(self) -> None:
        """A first step size and a first window."""
        self.find_scale()
        self.reshape(_WINDOWS[0])

    def log_mass(self) -> float:
        """The posterior's mass where the chains are, up to a constant: of a Gaussian with L, at their log densities."""
        values = np.asarray(self.chains.current[1].value, np.float64)
        factor = np.asarray(self.sampler.known.factor, np.float64)
        entropy = np.sum(np.log(np.abs(np.diagonal(factor) if factor.ndim == 2 else factor)))
        return float(np.mean(values) + entropy)

    def window(self, length: int) -> tuple[np.ndarray, float]:
        """Positions (chain, step, d) while the step size follows the acceptance, and its mean over the second half."""
        positions, logs = [], list[float]()
        for block in range(length // _BLOCK):
            if logs:
                self.set(step_size=math.exp(logs[-1]))
            positions.append(flat_positions(self.model, self.advance(_BLOCK)))
            gain = 1.5 / (block + 1) ** 0.6
            log = math.log(self.sampler.step_size) + gain * (self.acceptance - self.sampler.target_acceptance)
            logs.append(log)
        return np.concatenate(positions, axis=1), math.exp(float(np.mean(logs[len(logs) // 2 :])))

    def reshape(self, length: int) -> None:
        """A window, then L from the covariance of its second half, shrunk towards the L before."""
        positions, step_size = self.window(length)
        self.disagreement = float(np.nanmax(rhat(positions, "split"), initial=1.0))
        flat = positions[:, positions.shape[1] // 3 :].reshape(-1, positions.shape[-1])
        if self.sampler.jumps is not None:  # the shape of single modes
            nearest = np.asarray(jax.vmap(lambda one: self.sampler.jumps.around(one)[0])(flat))
            for mode in np.unique(nearest):
                flat[nearest == mode] -= flat[nearest == mode].mean(axis=0)
        old = np.asarray(self.sampler.known.factor, np.float64)
        weight = len(flat) / (len(flat) + _PRIOR * (flat.shape[1] if old.ndim == 2 else 1))
        if old.ndim == 1:
            spread = weight * flat.var(axis=0) + (1 - weight) * old**2
            self.set(step_size=step_size, factor=np.sqrt(spread).astype(np.float32))
            return
        u = np.linalg.solve(old, (flat - flat.mean(axis=0)).T)
        inner = weight * (u @ u.T) / u.shape[1] + (1 - weight) * np.eye(len(u))
        self.set(step_size=step_size, factor=(old @ np.linalg.cholesky(inner)).astype(np.float32))
