"""SCIR with control variates (Barile & Nemeth 2025)."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.samplers import Gradient, Mover, Needs, Reference, Renewals, schedules
from scirocco.simplex.scir import EXTRA_VARIANCE, LONGEST_STEP, step_for_variance, transition
from scirocco.types import Array, Key, Params, PyTree

_REFRESH_STEPS = 20
_MARGIN = 2.0
_LEAST_NOISE = 0.05

Numbers = Array | np.ndarray


class ControlledState(NamedTuple):
    """The gamma variables, and the share of them that used the control variate in the last step."""

    position: Params
    """log θ."""
    controlled: Array
    """The share of components."""


@cited("the stochastic Cox-Ingersoll-Ross process with control variates", "barile2024")
@pytree_dataclass
class SCIRCV(Mover):
    r"""SCIR whose rate depends on the estimate, so that the mode is fixed: little minibatch noise is left.

    With a the parameter of all the data, and \hat a its estimate from a minibatch,

    .. math::
        \hat b = (\hat a - 1)/(a - 1), \qquad
        dθ = (\hat a - \hat b θ)\,dt + \sqrt{2 θ}\,dW

    is simulated exactly, for the time h (parametrisation 2; rate b̂ in the papers' notation, equation 18) or h/b̂
    (parametrisation 1, equation 7). Targets Gamma(a, 1) for each θ, hence Dirichlet(a) for ω = θ/Σθ, with a bias of
    order Var(â)/(a - 1)². b̂ may be negative in parametrisation 2; if it is in 1, that component makes a step of 2.

    A component uses plain SCIR if the control variate would do harm: if a ≤ 1 (there is no mode to fix), or if the
    component is so rare that most batches miss it. Then b̂ < 0 at most steps, θ grows by e^(-b̂h) at each, and it can
    grow without bound between two batches that include it. With m = (a - 1)²/Var(â), about the number of its rows in a
    batch, the second moment contracts if m (1 - e^(-2h/m)) > 2h/(a - 1); the control variate is used if the left side
    is at least twice the right.

    The reference a is the exact sum over all rows at the start. For counts that depend on ω or are random (latent
    variables) it is renewed every `refresh_every` steps, and in between θ moves around it: with random counts and
    renewals from all rows that is a Gibbs sampler, for any h. A reference from fewer rows has its own error, which
    persists for `refresh_every` steps: it adds like that of plain SCIR with steps of `refresh_every` times h and
    batches of `refresh_size`. Cost per step: as SCIR, plus the renewals.

    Parameters
    ----------
    step_size
        h, as for `sc.SCIR`; the papers' h. By default chosen from the measured noise of the counts.
    parametrization
        2 (default, the more accurate) or 1.
    refresh_every
        ℓ, steps between renewals of a; 0: never. By default never for observed counts; for latent ones as many as there
        are batches in a pass over the data, at least 20, so that renewals cost as much as the batches.
    refresh_size
        Rows for a renewal; by default all.
    corrected
        Whether the bias that is left is removed from mean and variance (False: the process of the paper). θ then has
        mean and variance a like Gamma(a, 1), up to errors of order Var(â)²/(a - 1)⁴; see `correction`. Requires
        observed counts and independent batches: `sc.Minibatch(n, sampling="without_replacement")`, the default then.

    Examples
    --------
    >>> import scirocco as sc
    >>> sampler = sc.SCIRCV(step_size=0.5)
    """

    step_size: Any = None
    parametrization: int = static(default=2)
    refresh_every: int | None = static(default=None)
    refresh_size: int | None = static(default=None)
    corrected: bool = static(default=False)

    def __post_init__(self) -> None:
        if self.step_size is not None:
            object.__setattr__(self, "step_size", schedules.normalise(self.step_size, "SCIRCV"))
        if isinstance(self.parametrization, bool) or not isinstance(self.parametrization, (int, np.integer)):
            raise InvalidTypeError(
                f"`parametrization` of SCIRCV must be 1 or 2, got {self.parametrization!r}."
            )
        if self.parametrization not in (1, 2):
            raise InvalidValueError(
                f"`parametrization` of SCIRCV must be 1 or 2, got {self.parametrization}."
            )
        if not isinstance(self.corrected, bool):
            raise InvalidTypeError(f"`corrected` of SCIRCV must be True or False, got {self.corrected!r}.")
        if self.refresh_every is not None:
            _checks.positive_int(self.refresh_every, "refresh_every", minimum=0)
        if self.refresh_size is not None:
            _checks.positive_int(self.refresh_size, "refresh_size")

    @property
    def needs(self) -> Needs:
        """A reference; if it is corrected, independent batches, which the recursions assume."""
        renewals = Renewals(self.refresh_every, self.refresh_size, self._completed)
        return Needs(drive="counts", reference=renewals, independent_batches=self.corrected)

    def _completed(self, latent: bool, batch_size: int, num_rows: int) -> SCIRCV:
        """Fill in the default: renewals cost as much as the batches, and are only for latent counts."""
        every = max(_REFRESH_STEPS, -(-num_rows // batch_size))
        return dataclasses.replace(self, refresh_every=every if latent else 0)

    def resolve(self, scales: Reference, params: Params) -> SCIRCV:  # type: ignore[override]
        """h with h Var(â)/(a - 1)² ≤ 1/10 where the control variate is used; SCIR's elsewhere and for the reference."""
        if self.step_size is not None:
            return self
        limits = []
        pairs = zip(jax.tree.leaves(scales.total), jax.tree.leaves(scales.variance), strict=True)
        for a, v in ((np.asarray(total), np.asarray(variance)) for total, variance in pairs):
            relative = v / np.maximum(a - 1.0, 1e-6) ** 2
            held = np.minimum(LONGEST_STEP, EXTRA_VARIANCE / np.maximum(relative, 1e-30))
            used = np.asarray(
                control_is_stable(self.parametrization, jnp.asarray(a), jnp.asarray(v), jnp.asarray(held))
            )
            limits.append(np.min(np.where(used, held, step_for_variance(a, v))))
            if self.refresh_every and scales.renewed is not None:
                limits.append(np.min(step_for_variance(a, v * scales.renewed)) / self.refresh_every)
        return dataclasses.replace(self, step_size=float(min(limits)))

    def init(self, params: Params, key: Key) -> ControlledState:
        """Start at the model's initial position."""
        return ControlledState(params, jnp.zeros((), jnp.float32))

    def noise(self, key: Key, params: Params) -> PyTree:
        """The key itself: the number of random numbers in a transition depends on the state."""
        return key

    def step(
        self, state: ControlledState, gradient: Gradient, noise: PyTree, number: Array
    ) -> ControlledState:
        """One exact transition with the estimated shapes and rates."""
        assert gradient.reference is not None
        position, treedef = state.position, jax.tree.structure(state.position)
        leaves = (gradient.total, gradient.reference.total, gradient.reference.variance)
        parts = zip(*map(jax.tree.leaves, (*leaves, self.sizes(position, number))), strict=True)
        chosen = [controlled(self.parametrization, *part) for part in parts]
        times, rates, used = (jax.tree.unflatten(treedef, list(some)) for some in zip(*chosen, strict=True))
        if self.corrected:
            moved = self._corrected(noise, position, gradient, times, rates, number)
        else:
            moved = transition(noise, position, gradient.total, times, rates)
        counts = [(jnp.sum(leaf), leaf.size) for leaf in jax.tree.leaves(used)]
        share = sum(count for count, _ in counts) / sum(size for _, size in counts)
        return ControlledState(moved, jnp.asarray(share, jnp.float32))

    def _corrected(
        self, key: Key, position: Params, gradient: Gradient, times: PyTree, rates: PyTree, number: Array
    ) -> Params:
        """The transition with corrected shape and noise: that of θ/s with the shape (â + shift)/s."""
        assert gradient.reference is not None
        treedef = jax.tree.structure(position)
        leaves = (gradient.reference.total, gradient.reference.variance, self.sizes(position, number))
        parts = zip(*map(jax.tree.leaves, leaves), strict=True)
        found = [correction(self.parametrization, *part) for part in parts]
        shift, scale = (jax.tree.unflatten(treedef, list(some)) for some in zip(*found, strict=True))
        shapes = jax.tree.map(lambda a, d, s: jnp.maximum(a + d, 0.0) / s, gradient.total, shift, scale)
        scaled = jax.tree.map(lambda log, s: log - jnp.log(s), position, scale)
        moved = transition(key, scaled, shapes, times, rates)
        return jax.tree.map(lambda log, s: log + jnp.log(s), moved, scale)

    def stats(self, state: ControlledState) -> dict[str, Array]:
        """The share of components that use the control variate."""
        return {"controlled": state.controlled}


def controlled(
    parametrization: int, estimate: Array, reference: Array, variance: Array, step: Array
) -> tuple[Array, Array, Array]:
    """Time and rate of the transition, and whether the control variate is used, for each component."""
    step = jnp.asarray(step, estimate.dtype)
    used = control_is_stable(parametrization, reference, variance, step)
    rate = jnp.where(used, (estimate - 1.0) / jnp.where(used, reference - 1.0, 1.0), 1.0)
    if parametrization == 2:
        return jnp.broadcast_to(step, rate.shape), rate, used
    return jnp.where(rate > 0.0, step / jnp.where(rate > 0.0, rate, 1.0), step), rate, used


def correction(parametrization: int, reference: Array, variance: Array, step: Array) -> tuple[Array, Array]:
    r"""Shift δ of the shape and scale s of the noise with which θ has mean and variance a in the limit.

    dθ = (â + δ - b̂θ) dt + √(2sθ) dW for a time t has, with e = e^(-b̂t) and g = (1 - e)/b̂, the recursions

        m' = E[e] m + E[(â + δ) g],   V' = E[e²] V + s (2 E[eg] m + E[(â + δ) g²]) + Var(e m + (â + δ) g)

    for independent batches (`theory.recursions`). m = a is a fixed point of the first for one δ, V = a of the second
    for one s. The expectations are those over two points with the mean, the variance and the skewness of â (that of
    a Poisson count), so that the error is of order Var(â)². s is at least 1/20: where the minibatch noise alone has
    more than the variance of the target (a step that is far too long), part of it is left.
    """
    step = jnp.asarray(step, reference.dtype)
    sd = jnp.sqrt(jnp.maximum(variance, 0.0))
    skewness = jnp.minimum(sd / jnp.maximum(reference, 1e-6), 1e3)
    root = jnp.sqrt(skewness**2 + 4.0)
    chances = jnp.stack([(root - skewness), (root + skewness)]) / (2.0 * root)
    points = reference + sd * 0.5 * jnp.stack([skewness + root, skewness - root])
    times, rates, _ = controlled(parametrization, points, reference, variance, step)
    decay, gain = jnp.exp(-rates * times), times * _mean_decay(rates * times)

    def mean(values: Array) -> Array:
        return jnp.sum(chances * values, axis=0)

    lost = mean(-jnp.expm1(-rates * times))
    shift = (reference * lost - mean(points * gain)) / mean(gain)
    ends = decay * reference + (points + shift) * gain
    moved = mean((ends - mean(ends)) ** 2)
    noise = 2.0 * reference * mean(decay * gain) + mean((points + shift) * gain**2)
    needed = reference * mean(-jnp.expm1(-2.0 * rates * times)) - moved
    return shift, jnp.clip(needed / noise, _LEAST_NOISE, 1.0 / _LEAST_NOISE)


def _mean_decay(x: Array) -> Array:
    """(1 - e^(-x))/x, which is 1 at 0."""
    small = jnp.abs(x) < 1e-4
    return jnp.where(small, 1.0 - 0.5 * x, -jnp.expm1(-x) / jnp.where(small, 1.0, x))


def control_is_stable(
    parametrization: int, reference: Numbers, variance: Numbers, step: Numbers | float, xp: Any = jnp
) -> Any:
    """Whether a component's second moment contracts well with control, by a Poisson model of its count in a batch.

    E[e^(-2b̂h)] < 1, with a margin: in parametrisation 2 b̂ is about its count over m, less 1/(a - 1); in 1 a step
    shrinks θ by e^(-h) if the batch has the component, and lets it grow by e^(h/(a - 1)) if not. `xp` is the
    array module, for callers without JAX.
    """
    excess = xp.maximum(reference - 1.0, 1e-6)
    in_batch = xp.minimum(excess * excess / xp.maximum(variance, 1e-30), 1e6)
    growth = 2.0 * step / excess
    if parametrization == 2:
        pull = in_batch * -xp.expm1(-2.0 * step / in_batch)
        return (reference > 1.0) & (pull > _MARGIN * growth)
    absent = xp.exp(-in_batch)
    pull = (1.0 - absent) * -xp.expm1(-2.0 * step)
    return (reference > 1.0) & (pull > _MARGIN * absent * xp.expm1(xp.minimum(growth, 50.0)))
