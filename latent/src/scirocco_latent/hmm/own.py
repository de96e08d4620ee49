r"""Emissions that users write: an `sc.Model` of one observation given the parameters of one state.

Given the states, the parameters of each state have the log density

.. math:: ℓ_k(u) = \log p(u) + \sum_{t: z_t = k} \log f(x_t | u), \quad u \text{ on the real line}.

A Metropolis-Hastings step with a local normal approximation leaves it unchanged: with the gradient g and the matrix H
of second derivatives, of which the absolute eigenvalues are used, the proposal is

.. math:: u' ~ N(u + (1 - ρ) |H|^{-1} g, \; (1 - ρ^2) |H|^{-1}).

It needs no step size. If ℓ_k is quadratic, every proposal is accepted, and the draws are independent for ρ = 0. Each
step draws a new ρ: small moves help where few observations are in a state and ℓ_k is far from quadratic. In directions
where the eigenvalues nearly vanish, half of the sum of squared gradients of the rows takes their place.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.model.density import Model
from scirocco_latent.hmm.emissions import DENSE, Encoded, Params, distant, rows_of, stretches
from scirocco_latent.hmm.series import Array, SeriesData, real

_RESERVED = ("initial", "transitions", "last")
_KEPT = (0.0, 0.0, 0.5, 0.9)
"""Values of ρ, one of which is drawn in each step."""
_FLAT = 0.5  # the least curvature, in units of the squared gradients of rows
# steps uphill at the start and at each update; gain of log density that ends them
_ASCENTS, _FEW, _GAIN = 20, 3, 0.5
_PADDED = 4096  # rows are filled up to multiples, so that few shapes are compiled
_MOST_PARAMETERS = 50  # a matrix of them is inverted for each state


@dataclasses.dataclass(frozen=True)
class Own:
    """x | state k ~ exp(log_likelihood(θ_k, x)), θ_k with the prior of the model."""

    model: Model
    start: tuple[tuple[str, tuple[int, ...], tuple[float, ...]], ...]
    """Name, shape and values of the parameters of a state from which the search for starts begins."""
    width: int

    kind: ClassVar[str] = "own"

    # -- parameters: one vector per state on the real line inside, a dict in the user's units outside ------------------

    def one(self) -> dict[str, Array]:
        """The parameters of `start`."""
        return {name: np.array(values, np.float32).reshape(shape) for name, shape, values in self.start}

    def shapes(self, num: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters."""
        return {name: (num, *shape) for name, shape, _ in self.start}

    def inside(self, draw: Params) -> Params:
        """From the units of the user to those of the kernels."""
        given = {name: np.asarray(draw[name], np.float32) for name, *_ in self.start}
        return {"position": np.asarray(_to_line(self, given), np.float64)}

    def outside(self, draw: Params) -> Params:
        """From the units of the kernels to those of the user."""
        found = _from_line(self, np.asarray(draw["position"], np.float32))
        return {name: np.asarray(found[name], np.float64) for name, *_ in self.start}

    def features(self, draws: Params) -> Array:
        """Coordinates in which states of different draws are compared, (draws, K, f)."""
        flat = [draws[name].reshape(*draws[name].shape[:2], -1) for name, *_ in self.start]
        found = np.concatenate(flat, axis=-1)
        spread = np.maximum(found.std(axis=(0, 1)), 1e-12)
        scaled: Array = found / spread
        return scaled

    def sort_key(self, means: Params) -> Array | None:
        """Values by which states are numbered: the first parameter."""
        name = self.start[0][0]
        key: Array = means[name].reshape(len(means[name]), -1)[:, 0]
        return key

    # -- observations --------------------------------------------------------------------------------------------------

    def stats_width(self, data: Encoded) -> int:
        """Numbers per state that the kernels sum: none."""
        return 0

    def encode(self, given: SeriesData) -> Encoded:
        """Check real numbers."""
        return rows_of(real(given, self.width))

    def constant(self, data: Encoded) -> Array:
        """What the kernels leave out of the log density of each observation."""
        return np.zeros(data.num_rows)

    def kernel(self, params: Params, data: Encoded) -> tuple[Any, ...]:
        """Arguments of the kernels: the log densities of all observations in all states; NaN: missing."""
        x, seen = self._rows(data)
        logs = np.array(_densities(self, np.asarray(params["position"], np.float32), x), np.float64)
        logs[~(logs > -1e30)] = -1e30  # impossible in this state, but perhaps not in others
        logs[~seen] = np.nan
        return DENSE, data.codes, logs, np.empty((1, 1)), np.empty(1), np.empty((1, 1))

    def _rows(self, data: Encoded) -> tuple[Array, Array]:
        """Observations as the user's function takes them, and which are there; others are replaced by one of those."""
        seen = ~data.is_missing
        x = data.rows.astype(np.float32)
        if not seen.all():
            x[~seen] = x[np.argmax(seen)] if seen.any() else 0.0
        return (x[:, 0] if self.width == 1 else x), seen

    def simulate(self, rng: np.random.Generator, draw: Params, states: Array) -> Array:
        """Not known for a density: `forecast` says so."""
        raise NotImplementedError

    # -- draws ---------------------------------------------------------------------------------------------------------

    def draw(self, rng: np.random.Generator, params: Params, data: Encoded, z: Array, stats: Array) -> Params:
        """A Metropolis-Hastings step of the parameters of every state given the states of all observations."""
        x, place, weights = self._placed(data, z)
        u = np.asarray(params["position"], np.float64)
        kept = _KEPT[rng.integers(len(_KEPT))]
        here = self._local(u, x, place, weights)
        noise = rng.standard_normal(u.shape)
        limit = np.log(rng.random(len(u)))
        there_u = _single(here.proposal(u, noise, kept))
        there = self._local(there_u, x, place, weights)
        ratio = np.asarray(_gain(self, np.float32(u), np.float32(there_u), x, place, weights), np.float64)
        ratio = ratio + there.log_density(there_u, u, kept) - here.log_density(u, there_u, kept)
        accepted = limit < np.where(np.isnan(ratio), -np.inf, ratio)
        return {"position": np.where(accepted[:, None], there_u, u)}

    def _placed(self, data: Encoded, z: Array) -> tuple[Array, Array, Array]:
        """Observations, their states, and weights: 0 if one of the two is missing."""
        x, seen = self._rows(data)
        known = seen & (z >= 0)
        return x, np.where(known, z, 0).astype(np.int32), known.astype(np.float32)

    def _local(self, u: Array, x: Array, place: Array, weights: Array) -> _LocalNormal:
        found = _derivatives(self, np.float32(u), x, place, weights)
        return _LocalNormal.of(*(np.asarray(part, np.float64) for part in found))

    def curvature(self, params: Params, data: Encoded, shares: Array) -> Array:
        """|H|, (K, D, D), if an observation is in each state with a weight, `shares` (N, K)."""
        return self.terms(params["position"], data, shares).curvature()

    def langevin(
        self, rng: np.random.Generator, params: Params, data: Encoded, shares: Array, curvature: Array, step: float
    ) -> Params:
        """A Langevin step preconditioned by a fixed curvature, over a time that is `step` in its own units."""
        u, fixed = (np.asarray(params["position"], np.float64), _LocalNormal.of(0 * params["position"], curvature))
        here, kept = self.terms(u, data, shares), float(np.exp(-step))
        return {"position": _single(fixed.toward(here.gradient).proposal(u, rng.standard_normal(u.shape), kept))}

    def terms(self, u: Array, data: Encoded, shares: Array) -> _LocalNormal:
        """Derivatives with weights; padded to few different lengths, because each is compiled."""
        x, seen = self._rows(data)
        count, num = shares.shape
        more = -count % _PADDED
        x = np.concatenate([x, np.repeat(x[:1], more, axis=0)])
        weights = np.zeros((num, count + more), np.float32)
        weights[:, :count] = (shares * seen[:, None]).T
        place = np.repeat(np.arange(num, dtype=np.int32), count + more)
        return self._local(u, np.concatenate([x] * num), place, weights.ravel())

    def log_density(self, params: Params, data: Encoded, z: Array, stats: Array) -> float:
        """The log density of all observations given their states."""
        logs = self.kernel(params, data)[2]
        found = logs[np.arange(len(z)), np.maximum(z, 0)]
        return float(np.sum(found, where=(z >= 0) & ~np.isnan(found)))

    def first(self, rng: np.random.Generator, data: Encoded, num: int) -> Params:
        """Initial parameters: from `start` uphill, given groups of rows around distant ones."""
        seen = ~data.is_missing
        rows = data.rows / np.maximum(np.nanstd(data.rows, axis=0), 1e-12)
        centres = distant(rng, stretches(rng, rows[seen]), num)
        near = ((rows[:, None, :] - centres) ** 2).sum(axis=2)
        place = np.nan_to_num(near).argmin(axis=1)
        return self._uphill(np.tile(_flat(self).astype(np.float64), (num, 1)), data, place, _ASCENTS)

    def settled(self, params: Params, data: Encoded, z: Array) -> Params:
        """Far from the mode proposals are rarely accepted: a few steps uphill."""
        return self._uphill(params["position"], data, z, _FEW)

    def _uphill(self, u: Array, data: Encoded, z: Array, steps: int) -> Params:
        """Steps to the mode of ℓ_k, as long as they gain."""
        x, place, weights = self._placed(data, z)
        step = np.ones(len(u))
        for _ in range(steps):
            tried = u + step[:, None] * self._local(u, x, place, weights).uphill
            gain = np.asarray(_gain(self, np.float32(u), np.float32(tried), x, place, weights))
            better = gain > 0
            u = np.where(better[:, None], tried, u)
            step = np.where(better, np.minimum(1.0, 2.0 * step), 0.25 * step)
            if (np.abs(gain) < _GAIN).all():
                break
        return {"position": _single(u)}


@dataclasses.dataclass(frozen=True)
class _LocalNormal:
    """A normal approximation around the parameters of every state."""

    gradient: Array
    vectors: Array
    values: Array
    """Absolute eigenvalues of H."""

    @classmethod
    def of(cls, gradient: Array, curvature: Array, products: Array | float = 0.0) -> _LocalNormal:
        """From derivatives; where they are not finite, a unit step with no direction."""
        good = np.isfinite(np.asarray(gradient.sum(axis=1) + (curvature + products).sum(axis=(1, 2))))
        gradient = np.where(good[:, None], gradient, 0.0)
        curvature = np.where(good[:, None, None], curvature, np.eye(gradient.shape[1]))
        products = np.where(good[:, None, None], products + 0.0 * curvature, 0.0)
        values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.transpose(0, 2, 1)))
        least = _FLAT * np.einsum("kdi,kde,kei->ki", vectors, products, vectors)
        values = np.maximum(np.abs(values), least)
        values = np.maximum(values, 1e-9 * values.max(axis=1, keepdims=True) + 1e-12)
        return cls(gradient, vectors, values)

    @property
    def uphill(self) -> Array:
        """|H|⁻¹ g, (K, D)."""
        turned = np.einsum("kdi,kd->ki", self.vectors, self.gradient)
        return np.einsum("kdi,ki->kd", self.vectors, turned / self.values)

    def toward(self, gradient: Array) -> _LocalNormal:
        """The same curvature with another gradient."""
        return dataclasses.replace(self, gradient=gradient)

    def curvature(self) -> Array:
        """|H|."""
        return np.einsum("kdi,ki,kei->kde", self.vectors, self.values, self.vectors)

    def proposal(self, u: Array, noise: Array, kept: float) -> Array:
        """Draw from the proposal, given standard normal noise."""
        shift = np.einsum("kdi,ki->kd", self.vectors, noise / np.sqrt(self.values))
        found: Array = u + (1.0 - kept) * self.uphill + np.sqrt(1.0 - kept**2) * shift
        return found

    def log_density(self, u: Array, to: Array, kept: float) -> Array:
        """Log density of the proposal from u to another place, (K,), up to a constant."""
        apart = np.einsum("kdi,kd->ki", self.vectors, to - u - (1.0 - kept) * self.uphill)
        squares = (apart**2 * self.values).sum(axis=1) / (1.0 - kept**2)
        found: Array = 0.5 * np.log(self.values).sum(axis=1) - 0.5 * squares
        return found


def resolve(model: Any, start: Mapping[str, Any] | None, given: SeriesData) -> Own:
    """The emissions of a user's model; checks of everything that would fail in the run."""
    if not isinstance(model, Model):
        raise InvalidTypeError(
            "`emissions` must be a name or an sc.Model of one observation given the parameters of one state: "
            f"sc.Model(log_density, log_prior), with log_density(params, x). Got {model!r}."
        )
    if model.log_prior is None:
        raise InvalidValueError(
            "the sc.Model of `emissions` needs a log_prior: a state may have no observations, and then its parameters "
            "have no other distribution."
        )
    if model.takes_key or model.form == "total":
        raise InvalidTypeError("`emissions` need the exact log density of each observation: log_density(params, x).")
    if not isinstance(start, Mapping) or not start:
        raise InvalidTypeError(
            "emissions of your own need `start`, a dict with parameters of one state from which the search for starts "
            f"begins, for example start={{'mean': 0.0, 'scale': 1.0}}. Got {start!r}."
        )
    parts = []
    for name, value in start.items():
        if not isinstance(name, str) or name in _RESERVED:
            raise InvalidValueError(f"`start` cannot have a parameter {name!r}: choose another name.")
        array = np.asarray(value, np.float64)
        parts.append((name, array.shape, tuple(float(part) for part in array.ravel())))
    values = real(given, None)
    own = Own(model, tuple(parts), values.shape[1])
    _check(own, values)
    return own


def _check(own: Own, values: Array) -> None:
    one = own.one()
    own.model.check_domain(one)
    seen = values[~np.isnan(values[:, 0])]
    if not len(seen):
        raise InvalidValueError("all observations are missing.")
    row = np.float32(seen[0, 0] if own.width == 1 else seen[0])
    position = own.model.unconstrain(one)
    out = jax.eval_shape(own.model.log_likelihood_of_one, position, row)
    if out.shape != ():
        raise InvalidValueError(
            f"log_density(params, x) of `emissions` must return one number, got the shape {out.shape}. x is one "
            f"observation: {'a number' if own.width == 1 else f'an array with {own.width} entries'}."
        )
    if len(np.asarray(_flat(own))) > _MOST_PARAMETERS:
        raise InvalidValueError(f"emissions of your own can have at most {_MOST_PARAMETERS} parameters per state.")
    some = np.float32(seen[:1_000, 0] if own.width == 1 else seen[:1_000])
    logs = np.asarray(_densities(own, np.asarray(_flat(own))[None], some))
    if not np.isfinite(logs).any() or np.isnan(logs).any() or np.isposinf(logs).any():
        raise InvalidValueError(
            f"the log density of the observations at `start` is not finite ({logs.ravel()[0]:g} for the first). Choose "
            "another start, or check log_density(params, x)."
        )


# -- compiled programs -------------------------------------------------------------------------------------------------


def _single(u: Array) -> Array:
    """Positions that single precision can represent: a density is then that of the position that is kept."""
    return u.astype(np.float32).astype(np.float64)


def _flat(own: Own) -> Array:
    found: Array = np.asarray(ravel_pytree(own.model.unconstrain(own.one()))[0], np.float32)
    return found


def _position(own: Own, u: Any) -> Any:
    """The parameters of one state on the real line, as the model takes them."""
    like = jax.eval_shape(own.model.unconstrain, own.one())
    leaves, node = jax.tree.flatten(like)
    ends = np.cumsum([int(np.prod(leaf.shape)) for leaf in leaves])
    parts = [
        u[end - int(np.prod(leaf.shape)) : end].reshape(leaf.shape) for leaf, end in zip(leaves, ends, strict=True)
    ]
    return jax.tree.unflatten(node, parts)


def _of_one(own: Own, u: Any, x: Any) -> Any:
    return own.model.log_likelihood_of_one(_position(own, u), x)


def _log_prior(own: Own, u: Any) -> Any:
    return own.model.log_prior_density(_position(own, u))


@functools.partial(jax.jit, static_argnums=0)
def _from_line(own: Own, u: Any) -> Any:
    return jax.vmap(lambda one: own.model.constrain(_position(own, one)))(u)


@functools.partial(jax.jit, static_argnums=0)
def _to_line(own: Own, params: Any) -> Any:
    return jax.vmap(lambda one: ravel_pytree(own.model.unconstrain(one))[0])(params)


@functools.partial(jax.jit, static_argnums=0)
def _densities(own: Own, u: Any, x: Any) -> Any:
    """Log densities (N, K)."""
    return jax.vmap(lambda one: own.model.log_likelihoods(_position(own, one), x), out_axes=1)(u)


def _sums(own: Own, values: Any, place: Any, weights: Any, num: int) -> Any:
    """Sums of values of rows over the rows of each state; a sum over states and rows would lose digits."""
    return jax.ops.segment_sum(jnp.where(weights > 0, weights * values, 0.0), place, num)


@functools.partial(jax.jit, static_argnums=0)
def _gain(own: Own, u: Any, v: Any, x: Any, place: Any, weights: Any) -> Any:
    """ℓ_k(v) - ℓ_k(u) of every state; differences of rows are summed, which keeps their digits."""
    of_rows = jax.vmap(functools.partial(_of_one, own))
    apart = of_rows(v[place], x) - of_rows(u[place], x)
    prior = jax.vmap(functools.partial(_log_prior, own))
    return _sums(own, apart, place, weights, len(u)) + prior(v) - prior(u)


@functools.partial(jax.jit, static_argnums=0)
def _derivatives(own: Own, u: Any, x: Any, place: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Gradients (K, D) of ℓ_k at u_k, minus the matrices of second derivatives, and Σ g gᵀ of prior and rows."""

    def total(u: Any) -> Any:
        values = jax.vmap(functools.partial(_of_one, own))(u[place], x)
        priors = jax.vmap(functools.partial(_log_prior, own))(u)
        return jnp.where(weights > 0, weights * values, 0.0).sum() + priors.sum()

    of_rows = jax.vmap(jax.grad(functools.partial(_of_one, own)))(u[place], x)
    of_prior = jax.vmap(jax.grad(functools.partial(_log_prior, own)))(u)

    def column(unit: Any) -> Any:  # states do not share parameters: one product gives a column of all matrices
        _, second = jax.jvp(jax.grad(total), (u,), (jnp.broadcast_to(unit, u.shape),))
        products = jnp.where(weights[:, None] > 0, weights[:, None] * of_rows * (of_rows @ unit)[:, None], 0.0)
        return -second, jax.ops.segment_sum(products, place, len(u)) + of_prior * (of_prior @ unit)[:, None]

    curvature, products = jax.lax.map(column, jnp.eye(u.shape[1]))
    gradient = jax.ops.segment_sum(jnp.where(weights[:, None] > 0, weights[:, None] * of_rows, 0.0), place, len(u))
    return gradient + of_prior, jnp.moveaxis(curvature, 0, 2), jnp.moveaxis(products, 0, 2)
