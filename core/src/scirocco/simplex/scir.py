"""The stochastic Cox–Ingersoll–Ross sampler (Baker, Fearnhead, Fox & Nemeth 2018), and its relatives.

SGRLD on the simplex makes Euler steps instead (Patterson & Teh 2013); SCIR-CV has control variates (Barile & Nemeth
2025).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.diffusions import cir
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.samplers import Gradient, Known, Mover, Needs, Reference, Renewals, schedules
from scirocco.simplex.tables import reflected, stable, steady
from scirocco.types import Array, ArrayLike, Key, Params, PyTree

LONGEST_STEP = 1.0  # relaxation times, for a step that is chosen
EXTRA_VARIANCE = 0.1  # share of the variance that the noise of a chosen step may add


class GammaState(NamedTuple):
    """The gamma variables."""

    position: Params
    """log θ."""


class _Exact(Mover):
    """Samplers with exact transitions; the step size is chosen if it is not given."""

    def __post_init__(self) -> None:
        if self.step_size is not None:
            step_size = schedules.normalise(self.step_size, type(self).__name__)
            object.__setattr__(self, "step_size", step_size)

    def noise(self, key: Key, params: Params) -> PyTree:
        """The key itself: the number of random numbers in a transition depends on the state."""
        return key


@cited("the stochastic Cox-Ingersoll-Ross process", "baker2018")
@pytree_dataclass
class SCIR(_Exact):
    r"""The stochastic CIR process: exact transitions, with the counts estimated from a minibatch.

    .. math::
        \hat a = α + \tfrac{N}{n} \sum_{i ∈ S} z_i, \qquad
        θ' = \tfrac{1 - e^{-h}}{2} W, \quad W ∼ χ^2\!\left(2\hat a,\; 2θ \tfrac{e^{-h}}{1 - e^{-h}}\right), \qquad
        ω = θ / \textstyle\sum θ

    There is no discretisation error: with exact counts (`sc.Full`) ω after burn-in follows Dirichlet(α + Σz) for any
    step size. With minibatches the mean of θ is still exact, and its variance is a + tanh(h/2) Var(â). For latent
    counts the target is the posterior of ω, as for SGLD, up to that noise. Cost per step: one estimate, one gamma
    variable (and for components below ½ one Poisson variable) for each entry of ω.

    Parameters
    ----------
    step_size
        h, the time between two estimates, in units of the relaxation time of θ, whose autocorrelation is e^(-h);
        number, tree or schedule. It is the paper's h (equation 3.3): the convention of `sc.SGLD` and that of the paper
        agree here. By default the noise of the counts in plain batches is measured at the start (one pass), and h is
        chosen so that it adds at most a tenth to the variance of any θ.

    Examples
    --------
    >>> import scirocco as sc
    >>> sampler = sc.SCIR(step_size=0.1)
    """

    needs = Needs(drive="counts")

    step_size: Any = None

    def resolve(self, scales: Reference, params: Params) -> SCIR:  # type: ignore[override]
        """h with tanh(h/2) Var(â) ≤ a/10 for every component."""
        if self.step_size is not None:
            return self
        limits = [
            step_for_variance(np.asarray(a), np.asarray(v))
            for a, v in zip(jax.tree.leaves(scales.total), jax.tree.leaves(scales.variance), strict=True)
        ]
        return dataclasses.replace(self, step_size=float(min(map(np.min, limits))))

    def init(self, params: Params, key: Key) -> GammaState:
        return GammaState(params)

    def step(self, state: GammaState, gradient: Gradient, noise: PyTree, number: Array) -> GammaState:
        times = self.sizes(state.position, number)
        ones = jax.tree.map(jnp.ones_like, gradient.total)
        return GammaState(transition(noise, state.position, gradient.total, times, ones))


def transition(key: Key, position: Params, shapes: PyTree, times: PyTree, rates: PyTree) -> Params:
    """CIR transitions of all leaves, on the log scale."""
    leaves, treedef = jax.tree.flatten(position)
    keys = [key] if len(leaves) == 1 else [jax.random.fold_in(key, number) for number in range(len(leaves))]
    parts = (jax.tree.leaves(tree) for tree in (shapes, times, rates))
    moved = [cir(*arguments, log=True) for arguments in zip(keys, leaves, *parts, strict=True)]
    return jax.tree.unflatten(treedef, moved)


def step_for_variance(shape: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The largest h, at most 1, with tanh(h/2) Var(â) ≤ a/10."""
    share = EXTRA_VARIANCE * shape / np.maximum(variance, 1e-30)
    return 2.0 * np.arctanh(np.minimum(share, np.tanh(LONGEST_STEP / 2)))


@cited("stochastic gradient Riemannian Langevin dynamics on the simplex", "patterson2013")
@pytree_dataclass
class SimplexSGRLD(Mover):
    r"""An Euler step of the CIR process, reflected at 0 (expanded mean, Patterson & Teh 2013).

    .. math::
        θ' = \left|\, θ + ε (\hat a - θ) + \sqrt{2 ε θ}\, ξ \,\right|, \qquad ω = θ / \textstyle\sum θ

    Targets Dirichlet(α + Σz) as ε → 0. Near the boundary the error of a step is as large as θ itself, and reflection
    pushes it up: sparse components are badly biased unless ε is far below their size. Provided for comparison; prefer
    `sc.SCIR`, which costs about the same. Cost per step: one estimate, one normal for each entry of ω.

    Parameters
    ----------
    step_size
        ε; number, tree or schedule. (Patterson & Teh's ε is twice this one; the SCIR paper's h equals it.)

    Examples
    --------
    >>> import scirocco as sc
    >>> sampler = sc.SimplexSGRLD(step_size=0.005)
    """

    needs = Needs(drive="counts")
    known = Known(
        divergence="Its Euler steps are too long: try a tenth of the step size, or sc.SCIR, which has no such limit."
    )

    step_size: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "step_size", schedules.normalise(self.step_size, "SimplexSGRLD"))

    def init(self, params: Params, key: Key) -> GammaState:
        return GammaState(params)

    def step(self, state: GammaState, gradient: Gradient, noise: PyTree, number: Array) -> GammaState:
        times = self.sizes(state.position, number)
        return GammaState(jax.tree.map(_reflected, state.position, gradient.total, times, noise))


def _reflected(log_theta: Array, shape: Array, step: Array, xi: Array) -> Array:
    theta = jnp.exp(log_theta)
    step = jnp.asarray(step, theta.dtype)
    moved = reflected(jnp)(theta, shape - theta, step, xi)
    return jnp.log(jnp.maximum(moved, jnp.finfo(theta.dtype).tiny))


_REFRESH_STEPS = 20  # between renewals, at least, if they are chosen
_LEAST_NOISE = 0.05
"""Bound of what a correction changes: a factor of 20."""
_NODES, _FEW_ROWS = 64, 24.0
"""Values of a Poisson count of at most so many expected rows."""

Numbers = Array | np.ndarray


class ControlledState(NamedTuple):
    """The gamma variables, and the share of them that used the control variate in the last step."""

    position: Params
    """log θ."""
    controlled: Array
    """The share of components."""


@cited("the stochastic Cox-Ingersoll-Ross process with control variates", "barile2024")
@pytree_dataclass
class SCIRCV(_Exact):
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
    batches of `refresh_size`. Whether a
    component uses it is decided by the reference before it, less four standard errors: one that chose itself would be
    used where it is too large. Cost per step: as SCIR, plus the renewals.

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
        mean and variance a like Gamma(a, 1), to a few per cent where batches have only one or two of its rows, and
        better otherwise; see `correction`. Requires
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
        super().__post_init__()
        if isinstance(self.parametrization, bool) or not isinstance(self.parametrization, (int, np.integer)):
            raise InvalidTypeError(f"`parametrization` of SCIRCV must be 1 or 2, got {self.parametrization!r}.")
        if self.parametrization not in (1, 2):
            raise InvalidValueError(f"`parametrization` of SCIRCV must be 1 or 2, got {self.parametrization}.")
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
        return ControlledState(params, jnp.zeros((), jnp.float32))

    def step(self, state: ControlledState, gradient: Gradient, noise: PyTree, number: Array) -> ControlledState:
        assert gradient.reference is not None
        position, treedef = state.position, jax.tree.structure(state.position)
        last = gradient.reference
        leaves = [gradient.total, last.total, last.variance, self.sizes(position, number)]
        if last.before is not None:  # the last has an error
            leaves += [last.before, last.error]
        parts = zip(*map(jax.tree.leaves, leaves), strict=True)
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
        """The transition with corrected shape and noise: that of θ/s with the shape κâ/s."""
        assert gradient.reference is not None
        treedef = jax.tree.structure(position)
        leaves = (gradient.reference.total, gradient.reference.variance, self.sizes(position, number))
        parts = zip(*map(jax.tree.leaves, leaves), strict=True)
        found = [correction(self.parametrization, *part) for part in parts]
        factor, scale = (jax.tree.unflatten(treedef, list(some)) for some in zip(*found, strict=True))
        shapes = jax.tree.map(lambda a, k, s: k * a / s, gradient.total, factor, scale)
        scaled = jax.tree.map(lambda log, s: log - jnp.log(s), position, scale)
        moved = transition(key, scaled, shapes, times, rates)
        return jax.tree.map(lambda log, s: log + jnp.log(s), moved, scale)

    def stats(self, state: ControlledState) -> dict[str, Array]:
        return {"controlled": state.controlled}


def controlled(
    parametrization: int,
    estimate: Array,
    reference: Array,
    variance: Array,
    step: Array,
    before: Array | None = None,
    error: ArrayLike = 0.0,
) -> tuple[Array, Array, Array]:
    """Time and rate of the transition, and whether the control variate is used, for each component.

    A reference from some rows does not choose itself: the one `before` does, lowered by its `error` (`tables.steady`).
    """
    step = jnp.asarray(step, estimate.dtype)
    used = control_is_stable(parametrization, reference if before is None else before, variance, step)
    if before is not None:
        used &= steady(jnp)(before, 0.0, error, variance, step) & (reference > 1.0)
    rate = jnp.where(used, (estimate - 1.0) / jnp.where(used, reference - 1.0, 1.0), 1.0)
    if parametrization == 2:
        return jnp.broadcast_to(step, rate.shape), rate, used
    return jnp.where(rate > 0.0, step / jnp.where(rate > 0.0, rate, 1.0), step), rate, used


def correction(parametrization: int, reference: Array, variance: Array, step: Array) -> tuple[Array, Array]:
    r"""Factor κ of the shape and scale s of the noise with which θ has mean and variance a in the limit.

    dθ = (κâ - b̂θ) dt + √(2sθ) dW for a time t has, with e = e^(-b̂t) and g = (1 - e)/b̂, the recursions

        m' = E[e] m + κ E[âg],   V' = E[e²] V + s (2 E[eg] m + κ E[âg²]) + Var(em + κâg)

    for independent batches (`theory.recursions`). m = a is a fixed point of the first for one κ, V = a of the second
    for one s, whatever the distribution of â (`theory.correction`); κâ is never negative, unlike a shape with a shift.
    Here the distribution is that of a Poisson count with the mean and the variance of â, if few of its rows are in a
    batch, else two points with these moments and its skewness. s is at least 1/20: where the minibatch noise alone has
    more than the variance of the target (a step that is far too long), part of it is left.
    """
    step = jnp.asarray(step, reference.dtype)

    def add(number: Array, sums: Array) -> Array:
        point, chance = _node(number, reference, variance)
        times, rates, _ = controlled(parametrization, point, reference, variance, step)
        gain = times * _mean_decay(rates * times)
        lost, push = -jnp.expm1(-rates * times), point * gain
        away = push - reference * lost  # of the end of a step that begins at a, from a, for κ = 1
        terms = (lost, -jnp.expm1(-2.0 * rates * times), (1.0 - lost) * gain, push, push * gain)
        return sums + chance * jnp.stack([*terms, away, away**2, away * push, push**2])

    sums = jax.lax.fori_loop(0, _NODES, add, jnp.zeros((9, *reference.shape), reference.dtype))
    lost, squares, slope, push, noise, away, away_squared, both, push_squared = sums
    factor = jnp.clip(reference * lost / push, _LEAST_NOISE, 1.0 / _LEAST_NOISE)
    more = factor - 1.0
    moved = away_squared + 2.0 * more * both + more**2 * push_squared - (away + more * push) ** 2
    scale = (reference * squares - moved) / (2.0 * reference * slope + factor * noise)
    return factor, jnp.clip(scale, _LEAST_NOISE, 1.0 / _LEAST_NOISE)


def _node(number: Array, reference: Array, variance: Array) -> tuple[Array, Array]:
    """A value of â and its probability, see `correction`."""
    spread = jnp.maximum(variance, 0.0)
    rows = reference * reference / jnp.maximum(spread, 1e-30)
    few = rows <= _FEW_ROWS
    rows = jnp.where(few, rows, 1.0)
    logs = number * jnp.log(rows) - rows - jax.scipy.special.gammaln(number + 1.0)
    sd = jnp.sqrt(spread)
    skewness = jnp.minimum(sd / jnp.maximum(reference, 1e-6), 1e3)
    sign, root = jnp.where(number == 0, -1.0, 1.0), jnp.sqrt(skewness**2 + 4.0)
    chance = jnp.where(number < 2, (root - sign * skewness) / (2.0 * root), 0.0)
    point = reference + sd * 0.5 * (skewness + sign * root)
    return jnp.where(few, number * reference / rows, point), jnp.where(few, jnp.exp(logs), chance)


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
    return stable(xp)(parametrization, reference, variance, step)
