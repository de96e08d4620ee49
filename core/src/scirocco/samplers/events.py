"""Samplers that are exact with a few rows for each draw: the zig-zag and the bouncy particle, and Metropolis steps.

The log posterior is split into an expansion around its mode, which is quadratic and whose gradients cost no data, and
the remainders of the rows. Those have a bound (`Expansion`), so that a row is examined only at the times of a Poisson
process with the bound as its rate, and has an effect with probability (its remainder) / (the bound): thinning. Each
sampler has the posterior as its stationary distribution, whatever the number of rows at a time.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from scirocco import _checks
from scirocco._expansion import Expansion
from scirocco._random import normal
from scirocco._tree import cited, derived, pytree_dataclass
from scirocco.errors import InvalidValueError
from scirocco.samplers.base import Average, Gradient, Known, Needs, Sampler, rebuilt
from scirocco.types import Array, Key, Params, PyTree

Remainder = Callable[[Params, Key], Gradient]
"""An estimate of what the expansion leaves out, from the rows that the key determines."""
_TOLERATED = 1e-3
"""The part of its bound by which a remainder may exceed it: rounding errors."""
_VIOLATED = (
    "A row's gradient differs from the expansion at the mode by more than the model's `curvature_bound` and "
    "`third_bound` allow (or the log likelihood is not finite): draws would have another distribution. Correct the "
    "bounds; sc.NUTS() and sc.HMC() need none."
)
"""Advice when a bound does not hold."""


class EventState(NamedTuple):
    """The position and the velocity in the coordinates u, and counts since the last draw."""

    position: Params
    velocity: Array
    n_events: Array
    """Changes of the velocity."""
    n_rows: Array
    """Looks at rows."""
    tightness: Array
    """The largest remainder over its bound; a number above 1 is an error."""
    path: PyTree = None
    """Averages along the path since the last step, if a reducer uses them."""


class _Path(NamedTuple):
    """A point of a path: place u, velocity, time that is left, and counts."""

    place: Array
    velocity: Array
    left: Array
    proposals: Array
    events: Array
    rows: Array
    tightness: Array
    integrals: PyTree = None


class Events(Sampler):
    """Samplers that use an expansion of the log posterior and bounds for what it leaves out."""

    step_size: Any = 1.0
    needs = Needs(expansion=1)

    @property
    def known(self) -> Known:
        """That it is exact, and what a violated bound means."""
        return Known(step_order=1, is_exact=True, divergence=_VIOLATED)

    @property
    def is_open(self) -> bool:
        return False

    def check_params(self, params: Params, num_steps: int) -> None:
        """Nothing depends on the parameters."""

    @abc.abstractmethod
    def step(self, state: Any, expansion: Expansion, remainder: Remainder, noise: PyTree, number: Array) -> Any:
        """The state after a step.

        `remainder(position, key)` estimates what the expansion leaves out, from rows that the key determines.
        """

    def noise(self, key: Key, params: Params) -> PyTree:
        """The key of the step: how many numbers it needs depends on the path."""
        return jax.random.key_data(key)


class _EventSampler(Events):
    """Straight lines, and events that change the velocity; draws are positions at equal times."""

    average: Any = None
    """What a reducer averages along the path, if any (`Known.averaging`)."""

    def __post_init__(self) -> None:
        if not isinstance(self.step_size, jax.Array):
            _checks.positive(self.step_size, "step_size")

    @abc.abstractmethod
    def fresh(self, key: Key, size: int, dtype: Any) -> Array:
        """A velocity from its stationary distribution."""

    @abc.abstractmethod
    def event(self, path: _Path, expansion: Expansion, look: Callable[[Array], Array], key: Key) -> _Path:
        """The path after its next event or proposal; `look`: Lᵀ remainder at a place u."""

    def init(self, params: Params, key: Key) -> EventState:
        flat = ravel_pytree(params)[0]
        zero = jnp.zeros((), jnp.int32)
        velocity = self.fresh(key, flat.size, flat.dtype)
        return EventState(params, velocity, zero, zero, jnp.zeros((), jnp.float32), self._zeros(params))

    @property
    def known(self) -> Known:
        """That its path can be averaged, exactly where an average is exact for each straight line."""
        return dataclasses.replace(super().known, averaging=self._averaging)

    def _averaging(self, average: Average) -> Any:
        return rebuilt(self, average=average)

    def _zeros(self, params: Params) -> PyTree:
        if self.average is None:
            return None
        spec = jax.eval_shape(self.average, params, params, params)
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), spec)

    def _integrated(self, before: _Path, after: _Path, expansion: Expansion, origin: Params) -> _Path:
        """The path with the integrals over its last straight line."""
        if self.average is None:
            return after
        time = before.left - after.left
        found = self.average(origin, expansion.position(before.place), expansion.position(after.place))
        integrals = jax.tree.map(lambda sum_, mean: sum_ + time * mean, before.integrals, found)
        return after._replace(integrals=integrals)

    def step(
        self, state: EventState, expansion: Expansion, remainder: Remainder, noise: PyTree, number: Array
    ) -> EventState:
        key, dtype = jax.random.wrap_key_data(noise), state.velocity.dtype
        zero = jnp.zeros((), jnp.int32)
        begin = _Path(
            expansion.coordinates(state.position),
            state.velocity,
            jnp.asarray(self.step_size, dtype),
            zero,
            zero,
            zero,
            jnp.zeros((), dtype),
            self._zeros(state.position),
        )

        def one(path: _Path) -> _Path:
            def look(place: Array) -> Array:
                found = remainder(expansion.position(place), jax.random.fold_in(key, 2 * path.proposals + 1))
                return expansion.pulled(found.total)

            after = self.event(path, expansion, look, jax.random.fold_in(key, 2 * path.proposals))
            return self._integrated(path, after, expansion, state.position)

        def unfinished(path: _Path) -> Array:
            return (path.left > 0) & ~(path.tightness > 1 + _TOLERATED)

        end = jax.lax.while_loop(unfinished, one, begin)
        wrong = ~(end.tightness <= 1 + _TOLERATED)
        place = jnp.where(wrong, jnp.nan, end.place)
        means = jax.tree.map(lambda sum_: sum_ / begin.left, end.integrals)
        tightness = end.tightness.astype(jnp.float32)
        return EventState(expansion.position(place), end.velocity, end.events, end.rows, tightness, means)

    def stats(self, state: EventState) -> dict[str, Array]:
        return {"n_events": state.n_events, "n_rows": state.n_rows, "tightness": state.tightness}


@cited("the zig-zag process with control variates", "bierkens2019")
@pytree_dataclass
class ZigZag(_EventSampler):
    r"""The zig-zag process with control variates: exact, with a few rows for each draw. Uses `sc.Taylor()`.

    In the coordinates u of θ = θ̂ + L u, in which the posterior is about round, the process moves with velocity
    v ∈ {-1, 1}^d. Coordinate j turns at the rate

    .. math:: (-v_j q_j(u))^+ + E_i\left[(-v_j\, (L^T r_i(θ))_j / p_i)^+\right],

    with q the gradient of the quadratic expansion and r_i the remainder of row i, drawn with probability p_i. The
    posterior is the stationary distribution, because for every row the rates at v and at v with v_j reversed differ by
    -v_j (q_j + (Lᵀr_i)_j/p_i), whose mean over i is -v_j ∂_j log π (Bierkens, Fearnhead & Roberts 2019). The first
    part is linear along the path, and its times are drawn by inversion. For the second, a row is examined at the
    rate √d (C |u|^order + allowance), which is at least Σ_j |(Lᵀr_i)_j|/p_i because |x|₁ ≤ √d |x|₂, and one coordinate
    turns with probability Σ_j (-v_j (Lᵀr_i)_j/p_i)⁺ over that rate. The bound holds if that of the model does
    (`sc.Taylor`); it is checked at every look, and a run that violates it ends with an error.

    Cost of a draw: about d/2 turns, and C |u|^order √d looks at `batch_size` rows, for any number of rows N.

    Parameters
    ----------
    step_size
        Time between draws, in which each u_j moves by at most as much; the posterior has unit variance there.

    Notes
    -----
    Requires bounds (`sc.Model.linear`, or `curvature_bound` of `sc.Model`), a normal or flat prior, and rows in memory.
    Statistics for each draw: `n_events`, `n_rows` (looks), `tightness` (the largest remainder over its bound).

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, scirocco as sc
    >>> rng = np.random.default_rng(0)
    >>> data = {"x": rng.normal(size=(1000, 2)).astype(np.float32), "y": rng.integers(0, 2, 1000)}
    >>> model = sc.Model.linear("bernoulli", lambda beta: -0.5 * jnp.sum(beta**2))
    >>> run = sc.sample(model, data, jnp.zeros(2), sampler=sc.ZigZag(), num_samples=1000, progress=False)
    >>> bool(run.stats["tightness"].max() <= 1)
    True
    """

    step_size: Any = 1.0
    average: Any = derived(default=None, init=False)

    def fresh(self, key: Key, size: int, dtype: Any) -> Array:
        return jnp.where(jax.random.bernoulli(key, shape=(size,)), 1.0, -1.0).astype(dtype)

    def event(self, path: _Path, expansion: Expansion, look: Callable[[Array], Array], key: Key) -> _Path:
        """A turn because of the expansion, a look at a row, or the end of the time."""
        u, v = path.place, path.velocity
        size = u.shape[0]
        uniforms = jax.random.uniform(key, (size + 4,), u.dtype, minval=jnp.finfo(u.dtype).tiny)
        waits = -jnp.log(uniforms[: size + 2])
        turns = linear_time(-v * expansion.gradient(u), -v * expansion.bend(v), waits[:size])
        which, turn = jnp.argmin(turns), jnp.min(turns)
        root = jnp.sqrt(jnp.asarray(size, u.dtype))
        proposal = expansion.proposal_time(u, root, root, waits[size:])
        time = jnp.minimum(path.left, jnp.minimum(turn, proposal))
        place = u + time * v
        looks = (proposal < turn) & (proposal < path.left)

        def from_row(_: Array) -> tuple[Array, Array, Array]:
            rates = jnp.maximum(-v * look(place), 0.0)
            limit = root * expansion.limit(u, time, root)
            coordinate = jnp.searchsorted(jnp.cumsum(rates), uniforms[size + 3] * jnp.sum(rates))
            turned = uniforms[size + 2] * limit < jnp.sum(rates)
            return jnp.minimum(coordinate, size - 1), turned, jnp.sum(rates) / limit

        def from_expansion(_: Array) -> tuple[Array, Array, Array]:
            return which, (turn <= proposal) & (turn < path.left), jnp.zeros((), u.dtype)

        coordinate, turned, ratio = jax.lax.cond(looks, from_row, from_expansion, place)
        velocity = jnp.where((jnp.arange(size) == coordinate) & turned, -v, v)
        return advanced(path, time, place, velocity, turned, looks, ratio)


@cited("the bouncy particle sampler with control variates", "bouchard2018 bierkens2019")
@pytree_dataclass
class BouncyParticle(_EventSampler):
    r"""The bouncy particle sampler with control variates: exact, with a few rows for each draw. Uses `sc.Taylor()`.

    In the coordinates u of θ = θ̂ + L u the process moves with a velocity v ~ N(0, 1). It bounces,

    .. math:: v' = v - 2 \frac{v \cdot g}{|g|^2} g,

    on the gradient g = q(u) of the expansion at the rate (-v·q)⁺, and on the remainder g = Lᵀr_i/p_i of a row drawn
    with probability p_i at the rate (-v·g)⁺, which is at most |v| (C |u|^order + allowance); and v is redrawn at
    the rate `refresh`. For every row the rates at v and v' differ by -v·g and |v| = |v'|, so that the posterior is the
    stationary distribution (Bouchard-Côté, Vollmer & Doucet 2018; Pakman et al. 2017). See `sc.ZigZag` for times,
    bounds, requirements and statistics.

    Parameters
    ----------
    step_size
        Time between draws.
    refresh
        Rate at which the velocity is redrawn; without it, paths on a Gaussian would repeat themselves.

    Examples
    --------
    >>> import scirocco as sc
    >>> sc.BouncyParticle()
    BouncyParticle(step_size=1.0, refresh=1.0)
    """

    step_size: Any = 1.0
    refresh: Any = 1.0
    average: Any = derived(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.refresh, jax.Array):
            _checks.positive(self.refresh, "refresh")

    def fresh(self, key: Key, size: int, dtype: Any) -> Array:
        return normal(key, size, dtype)

    def event(self, path: _Path, expansion: Expansion, look: Callable[[Array], Array], key: Key) -> _Path:
        """A bounce on the expansion, a new velocity, a look at a row, or the end of the time."""
        u, v = path.place, path.velocity
        first, second = jax.random.split(key)
        uniforms = jax.random.uniform(first, (5,), u.dtype, minval=jnp.finfo(u.dtype).tiny)
        waits, speed = -jnp.log(uniforms[:4]), jnp.sqrt(jnp.sum(v**2))
        slope = expansion.gradient(u)
        bounce = linear_time(-jnp.vdot(v, slope), -jnp.vdot(v, expansion.bend(v)), waits[0])
        renewal = waits[1] / jnp.asarray(self.refresh, u.dtype)
        proposal = expansion.proposal_time(u, speed, speed, waits[2:])
        time = jnp.minimum(path.left, jnp.minimum(bounce, jnp.minimum(renewal, proposal)))
        place = u + time * v
        looks = proposal == time

        def from_row(_: Array) -> tuple[Array, Array, Array]:
            gradient = look(place)
            limit, rate = speed * expansion.limit(u, time, speed), jnp.maximum(-jnp.vdot(v, gradient), 0.0)
            turned = uniforms[4] * limit < rate
            return jnp.where(turned, reflected(v, gradient), v), turned, rate / limit

        def without(_: Array) -> tuple[Array, Array, Array]:
            drawn = self.fresh(second, u.shape[0], u.dtype)
            new = jnp.where(renewal == time, drawn, v)
            new = jnp.where(bounce == time, reflected(v, expansion.gradient(place)), new)
            return new, (renewal == time) | (bounce == time), jnp.zeros((), u.dtype)

        velocity, turned, ratio = jax.lax.cond(looks, from_row, without, place)
        return advanced(path, time, place, velocity, turned, looks, ratio)


class SMHState(NamedTuple):
    """The position, and statistics of the step that led to it."""

    position: Params
    accepted: Array
    n_rows: Array
    tightness: Array


@cited("scalable Metropolis-Hastings", "cornish2019")
@pytree_dataclass
class SMH(Events):
    r"""Scalable Metropolis-Hastings: independent proposals from the Laplace approximation, corrected with few rows.

    .. math:: u^* = m + \sqrt{1 - s^2}\, (u - m) + s\, ξ, \qquad
        α = \min(1, e^{D(u^*) - D(u)}) \prod_i \min(1, e^{R_i(u^*) - R_i(u)})

    in the coordinates u of θ = θ̂ + L u. The proposal is reversible for N(m, 1), the Laplace approximation; D is the
    part of the quadratic expansion that differs from it (rounding errors), R_i the third-order remainder of row i. Each
    factor of α satisfies detailed balance, so that the posterior is the stationary distribution. The product is the
    probability that a Poisson process of rate Σ_i (R_i(u) - R_i(u*))⁺ has no event in a unit of time. Thinning decides
    that: rows are examined at the rate Λ = C (|u|³ + |u*|³)/3 + allowance, which decreases like 1/√N.
    With many rows most proposals are accepted without a look at any, and draws are nearly independent.

    Parameters
    ----------
    step_size
        s, at most 1 (default): independent proposals. Smaller ones are correlated with the position, and accepted more
        often where there are few rows for many parameters.

    Notes
    -----
    With few rows the tails of the posterior are heavier than those of the proposals, and are visited rarely and for
    long: use `sc.ZigZag` there. Uses `sc.Taylor()` of order 2: requires `third_bound`, a normal or flat prior and rows
    in memory. Statistics for
    each draw: `accepted`, `n_rows` (looks), `tightness` (the largest remainder over its bound).

    References
    ----------
    Cornish, Vanetti, Bouchard-Côté, Deligiannidis & Doucet (2019).

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, scirocco as sc
    >>> rng = np.random.default_rng(0)
    >>> data = {"x": rng.normal(size=(1000, 2)).astype(np.float32), "y": rng.integers(0, 2, 1000)}
    >>> model = sc.Model.linear("bernoulli", lambda beta: -0.5 * jnp.sum(beta**2))
    >>> run = sc.sample(model, data, jnp.zeros(2), sampler=sc.SMH(), num_samples=1000, progress=False)
    >>> bool(run.stats["accepted"].mean() > 0.9)
    True
    """

    step_size: Any = 1.0

    needs = Needs(value=True, expansion=2)

    def __post_init__(self) -> None:
        if isinstance(self.step_size, jax.Array):
            return
        _checks.positive(self.step_size, "step_size")
        if self.step_size > 1:
            raise InvalidValueError(f"`step_size` of SMH must be at most 1, got {self.step_size}.")

    def init(self, params: Params, key: Key) -> SMHState:
        return SMHState(params, jnp.ones((), bool), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32))

    def noise(self, key: Key, params: Params) -> PyTree:
        """The proposal, a uniform number, and a key for what depends on the path."""
        first, second, third = jax.random.split(key, 3)
        flat = jax.eval_shape(lambda: ravel_pytree(params)[0])
        wait = -jnp.log(jax.random.uniform(second, (2,), flat.dtype, minval=jnp.finfo(flat.dtype).tiny))
        return normal(first, flat.size, flat.dtype), wait, jax.random.key_data(third)

    def step(
        self, state: SMHState, expansion: Expansion, remainder: Remainder, noise: PyTree, number: Array
    ) -> SMHState:
        normals, waits, words = noise
        key, dtype = jax.random.wrap_key_data(words), normals.dtype
        size, mean = jnp.asarray(self.step_size, dtype), expansion.slope
        u = expansion.coordinates(state.position)
        proposal = mean + jnp.sqrt(1 - size**2) * (u - mean) + size * normals

        def rest(place: Array) -> Array:  # of the expansion, over the law of the proposals
            return 0.5 * jnp.vdot(place, expansion.bend(place) + place)

        here, there = expansion.position(u), expansion.position(proposal)
        rate = expansion.value_limit(u) + expansion.value_limit(proposal)

        def look(carry: tuple[Any, Any, Array, Array]) -> tuple[Any, Any, Array, Array]:
            time, alive, rows, tightness = carry
            own = jax.random.fold_in(key, rows)
            uniforms = jax.random.uniform(jax.random.fold_in(own, 1), (2,), dtype, minval=jnp.finfo(dtype).tiny)
            change = jnp.asarray(remainder(there, own).value) - jnp.asarray(remainder(here, own).value)
            dies = uniforms[0] * rate < -change
            later = time - jnp.log(uniforms[1]) / rate
            ratio = jnp.maximum(tightness, jnp.abs(change) / rate)
            return later, alive & ~dies, rows + 1, jnp.where(jnp.isnan(change), jnp.nan, ratio)

        alive = rest(proposal) - rest(u) > -waits[0]
        begin = (waits[1] / rate, alive, jnp.zeros((), jnp.int32), jnp.zeros((), dtype))
        _, alive, rows, tightness = jax.lax.while_loop(lambda c: (c[0] < 1) & c[1], look, begin)
        place = jnp.where(alive, ravel_pytree(there)[0], ravel_pytree(state.position)[0])
        place = jnp.where(tightness <= 1 + _TOLERATED, place, jnp.nan)
        back = ravel_pytree(state.position)[1]
        return SMHState(back(place), alive, rows, tightness.astype(jnp.float32))

    def stats(self, state: SMHState) -> dict[str, Array]:
        return {"accepted": state.accepted, "n_rows": state.n_rows, "tightness": state.tightness}


def advanced(
    path: _Path, time: Array, place: Array, velocity: Array, turned: Array, looks: Array, ratio: Array
) -> _Path:
    """The path after one event or proposal."""
    return path._replace(
        place=place,
        velocity=velocity,
        left=path.left - time,
        proposals=path.proposals + 1,
        events=path.events + turned.astype(jnp.int32),
        rows=path.rows + looks.astype(jnp.int32),
        tightness=jnp.where(jnp.isnan(ratio), jnp.nan, jnp.maximum(path.tightness, ratio)),
    )


def linear_time(start: Array, slope: Array, wait: Array) -> Array:
    """The first time of a Poisson process of rate (start + slope t)⁺: where its integral is `wait`; inf: never."""
    inside = start**2 + 2 * slope * wait
    rising = 2 * wait / (start + jnp.sqrt(jnp.maximum(inside, 0.0)))
    safe = jnp.where(slope > 0, slope, 1.0)
    later = -start / safe + jnp.sqrt(2 * wait / safe)
    found = jnp.where(start >= 0, jnp.where(inside >= 0, rising, jnp.inf), jnp.where(slope > 0, later, jnp.inf))
    return jnp.where(jnp.isnan(found), jnp.inf, found)


def reflected(velocity: Array, gradient: Array) -> Array:
    """v - 2 (v·g) g / |g|²."""
    square = jnp.sum(gradient**2)
    return velocity - 2 * jnp.vdot(velocity, gradient) * gradient / jnp.where(square > 0, square, 1.0)
