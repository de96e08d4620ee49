"""Replica exchange: copies of a chain at higher temperatures, which cross between modes and pass on where they are."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.samplers.base import Gradient, Known, Mover, Needs, Sampler, is_tuned, rebuilt
from scirocco.samplers.scales import Scales
from scirocco.samplers.trajectories import Trajectory
from scirocco.types import Array, Key, Params, PyTree

_HOTTEST = 100.0
"""The highest temperature of "auto": barriers of a hundred times the thermal energy become one."""
_SPACING = 1.2
"""Differences of log temperatures in units of √(2/d): about half of the swaps between Gaussians are then accepted."""
_REMEMBERED = 200
"""Steps over which the variance of energy differences is averaged."""


class ReplicaState(NamedTuple):
    """The cold chain's position, and the states of all copies, the coldest first."""

    position: Params
    copies: Any
    totals: PyTree
    """Estimates of the gradient of the log posterior where the copies are."""
    values: Array
    """Those of the log posterior."""
    variances: Array
    """The variance of the difference of two estimates of it, for neighbours."""
    swaps: Array
    """Share of the neighbours asked in this step that swapped."""
    begun: Array


@cited("replica exchange", "geyer1991 ceperley1999")
@pytree_dataclass
class ReplicaExchange(Trajectory):
    r"""Chains at several temperatures, of which neighbours swap their places; the draws are those of the coldest.

    .. math:: π_r(θ) \propto π(θ \mid x)^{1/T_r}, \qquad 1 = T_1 < \dots < T_R, \qquad
        α = \min\left(1, e^{Δ - σ^2/2}\right), \qquad Δ = (1/T_r - 1/T_{r+1}) (U_r - U_{r+1}), \quad U = -\log π

    Hot copies cross barriers that a chain at T = 1 does not, and pass on what they find. Before each step, every second
    pair of neighbours is asked to swap. With trajectories as inner sampler and `sc.Full()` the swaps are exact (σ = 0).
    With minibatches the energies are noisy; their difference is estimated from two independent batches, which also
    tell its variance σ², averaged over steps, for the penalty e^(-σ²/2) that makes swaps right for normal noise. It is
    small with control variates; with plain batches of large data nearly all swaps are rejected.

    Cost per step: R times that of the inner sampler (trajectories), or 2 R estimates. Chains, store and resume treat
    all copies as one state.

    Parameters
    ----------
    inner
        `sc.NUTS()`, `sc.HMC()` or `sc.MALA()`, whose L is multiplied by √T for the copies; or a sampler that moves by
        estimates, e.g. `sc.SGLD(1e-4)`, `sc.Preconditioned(sc.BAOAB())`, with the same step size for all copies.
    temperatures
        "auto" (up to 100), a number (the highest, with as many between as d parameters need: neighbours differ by a
        factor of about e^(1.2 √(2/d))), or all of them, ascending from 1.

    Notes
    -----
    Statistics for each draw: those of the inner sampler for the coldest copy, and `swaps`, the share of the asked pairs
    that swapped. Below about 0.1 more temperatures are needed.

    References
    ----------
    Swendsen & Wang (1986); Geyer (1991); Ceperley & Dewing (1999) for noisy energies; Deng et al. (2020).

    Examples
    --------
    >>> import jax.numpy as jnp, scirocco as sc
    >>> model = sc.Model(lambda x, y: jnp.logaddexp(-0.5 * (x - 9) ** 2, jnp.log(3.0) - 0.5 * (x + 9) ** 2))
    >>> sampler = sc.ReplicaExchange(sc.HMC(1.0, factor=jnp.ones(1)), temperatures=(1, 4, 16, 64))
    >>> run = sc.sample(model, jnp.zeros(1), jnp.array(9.0), sampler=sampler, num_samples=4000, progress=False)
    >>> bool(abs((run.draws < 0).mean() - 0.75) < 0.1)
    True
    """

    inner: Any
    temperatures: Any = static(default="auto")

    def __post_init__(self) -> None:
        if not isinstance(self.inner, (Mover, Trajectory)) or isinstance(self.inner, ReplicaExchange):
            raise InvalidTypeError(
                "`inner` of ReplicaExchange must be a sampler that moves by gradients, such as sc.NUTS() or "
                f"sc.BAOAB(); got {self.inner!r}."
            )
        if is_tuned(self.inner):
            raise InvalidValueError('step_size="auto" is not tuned inside ReplicaExchange: give a number, or None.')
        if self.inner.needs.drive != "gradient" or self.inner.needs.reference or self.inner.needs.auxiliary:
            raise InvalidTypeError(
                f"ReplicaExchange cannot run {type(self.inner).__name__}, which uses more than a gradient."
            )
        if self.temperatures == "auto":
            return
        given = self.temperatures if isinstance(self.temperatures, (tuple, list, np.ndarray)) else [self.temperatures]
        known = all(_checks.is_number(one) for one in given)
        ladder = np.array(given, float) if known else np.zeros(1)
        if not np.all(np.isfinite(ladder)) or np.any(np.diff(ladder) <= 0) or ladder[-1] <= 1:
            raise InvalidValueError(
                '`temperatures` must be "auto", a number above 1, or ascending numbers from 1, '
                f"got {self.temperatures!r}."
            )
        if ladder.size > 1 and ladder[0] != 1:
            raise InvalidValueError(f"the first of `temperatures` must be 1, whose draws are kept; got {ladder[0]:g}.")
        object.__setattr__(self, "temperatures", tuple(ladder.tolist()))

    @property
    def step_size(self) -> Any:
        """The step size of the inner sampler."""
        return self.inner.step_size

    @property
    def factor(self) -> Any:
        """The matrix L of the inner sampler."""
        return self.inner.known.factor

    @property
    def target_acceptance(self) -> float:  # type: ignore[override]
        """The acceptance that the adaptation aims at."""
        return float(self.inner.target_acceptance)

    @property
    def jumps(self) -> Any:  # type: ignore[override]
        """The jumps of the inner sampler."""
        return self.inner.jumps

    @property
    def reference(self) -> Any:
        """Where the inner sampler has log densities 0."""
        return getattr(self.inner, "reference", None)

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """What the inner sampler requires, with the log posterior, from independent batches."""
        needs = self.inner.needs
        return dataclasses.replace(needs, value=True, independent_batches=not needs.trajectory)

    @property
    def known(self) -> Known:
        """What is known about the inner sampler, for the coldest copy."""
        return self.inner.known

    @property
    def is_open(self) -> bool:
        """Whether the inner sampler is."""
        return self.inner.is_open

    def resolve(self, scales: Scales, params: Params) -> Sampler:
        """With the inner sampler's missing hyper-parameters filled in."""
        return dataclasses.replace(self, inner=self.inner.resolve(scales, params))

    def with_settings(self, **settings: Any) -> Trajectory:
        """New settings of the inner sampler."""
        return rebuilt(self, inner=self.inner.with_settings(**settings))

    def check_params(self, params: Params, num_steps: int) -> None:
        """Check the hyper-parameters of the inner sampler."""
        self.inner.check_params(params, num_steps)

    def ladder(self, size: int) -> np.ndarray:
        """All temperatures for so many parameters."""
        given = (_HOTTEST,) if self.temperatures == "auto" else self.temperatures
        if len(given) > 1:
            return np.array(given)
        count = 1 + math.ceil(math.log(given[0]) / (_SPACING * math.sqrt(2 / max(size, 1))))
        return np.geomspace(1.0, given[0], max(count, 2))

    def init(self, params: Params, key: Key) -> ReplicaState:
        """All copies at the same place."""
        count = len(self.ladder(_tree.size(params)))
        copies = jax.vmap(self.inner.init, in_axes=(None, 0))(params, jax.random.split(key, count))
        totals = jax.tree.map(jnp.zeros_like, copies.position)
        zeros = jnp.zeros(count, jnp.result_type(*jax.tree.leaves(params)))
        return ReplicaState(params, copies, totals, zeros, zeros[1:], zeros[0], jnp.zeros((), jnp.int32))

    def noise(self, key: Key, params: Params) -> PyTree:
        """That of each copy, and a uniform number for each pair."""
        count = len(self.ladder(_tree.size(params)))
        first, second = jax.random.split(key)
        own = jax.vmap(self.inner.noise, in_axes=(0, None))(jax.random.split(first, count), params)
        return own, jax.random.uniform(second, (count - 1,))

    def step(
        self,
        state: ReplicaState,
        gradient: Gradient,
        evaluate: Callable[[Params], Gradient],
        noise: PyTree,
        number: Array,
    ) -> tuple[ReplicaState, Gradient]:
        """Swaps, and then a step of each copy."""
        own, chances = noise
        ladder = self.ladder(_tree.size(state.position))
        cool = jnp.asarray(1 / ladder, state.values.dtype)
        first = state.begun == 0  # all copies are where the cold chain is
        values = jnp.where(first, jnp.asarray(gradient.value), state.values)
        totals = jax.tree.map(lambda one, all_: jnp.where(first, one, all_), gradient.total, state.totals)
        variances = state.variances
        here = Gradient(totals, value=values)
        if not self.inner.needs.trajectory:  # two estimates at the same place, from independent batches
            here = jax.vmap(evaluate)(state.copies.position)
            change = jnp.diff(jnp.asarray(here.value) - values)
            weight = 1.0 / jnp.minimum(state.begun + 1, _REMEMBERED)
            variances = variances + weight * (0.5 * change**2 - variances)
            values = 0.5 * (values + jnp.asarray(here.value))
        penalty = 0.0 if self.inner.needs.trajectory else 0.25 * variances
        apart = -jnp.diff(cool)
        asked = jnp.arange(len(apart)) % 2 == number % 2
        accepted = asked & (jnp.log(chances) < apart * jnp.diff(values) - apart**2 * penalty)
        order = jnp.arange(len(cool)) + jnp.append(accepted, False) - jnp.append(False, accepted)
        copies, here = jax.tree.map(lambda leaf: leaf[order], (state.copies, here))

        def move(copy: Any, at: Gradient, cool: Array, own: PyTree) -> tuple[Any, Gradient]:
            if not self.inner.needs.trajectory:
                moved = self.inner.step(copy, _tempered(at, cool), own, number)
                return moved, evaluate(moved.position)
            inner = rebuilt(self.inner, factor=self.inner.factor / jnp.sqrt(cool))
            moved, there = inner.step(copy, _tempered(at, cool), lambda p: _tempered(evaluate(p), cool), own, number)
            return moved, _tempered(there, 1 / cool)

        copies, there = jax.vmap(move)(copies, here, cool, own)
        swaps = jnp.sum(accepted) / jnp.maximum(jnp.sum(asked), 1)
        cold, at = jax.tree.map(lambda leaf: leaf[0], (copies.position, there))
        if self.inner.needs.trajectory:
            at = at._replace(value_variance=gradient.value_variance)
        moved = ReplicaState(
            cold, copies, there.total, jnp.asarray(there.value), variances, swaps.astype(values.dtype), state.begun + 1
        )
        return moved, at

    def stats(self, state: ReplicaState) -> dict[str, Array]:
        """Those of the coldest copy, and the swaps."""
        return self.inner.stats(jax.tree.map(lambda leaf: leaf[0], state.copies)) | {"swaps": state.swaps}


def _tempered(gradient: Gradient, cool: Array) -> Gradient:
    """What drives a copy of inverse temperature `cool`."""

    def times(tree: PyTree, by: Array) -> PyTree:
        return jax.tree.map(lambda leaf: (leaf * by).astype(leaf.dtype), tree)

    return gradient._replace(
        total=times(gradient.total, cool),
        noise=times(gradient.noise, cool**2),
        curvature=times(gradient.curvature, cool),
        value=times(gradient.value, cool),
        value_variance=None,
    )
