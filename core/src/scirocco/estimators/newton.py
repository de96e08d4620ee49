"""Newton's method for the posterior mode, independent of the parameters' units.

The exact gradient g over all rows (one pass), and H δ = g solved by conjugate gradients with Hessian-vector products on
a sample of rows, in units that equalise the information about the parameters (in raw units they differ by
many orders of magnitude). The decrement gᵀδ is the squared distance to the mode in posterior standard deviations, so it
decides when to stop. A correction that does not raise the log posterior is undone and repeated with damping, which also
makes the step safe for models that are not concave.

If this stops far from the mode, `descend` takes over: it uses the whole Hessian with the absolute values of its
eigenvalues, and halves steps until they gain. It costs more, and gets through regions of negative curvature
(a location and a scale, started far away). Where a few rows have all the information about a parameter a sample may
have none of them: the Hessian is then that of all rows. The loop is `ascend`, which takes any log density with a value,
a gradient and a Hessian: the regressions pass theirs, in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import _tree
from scirocco._programs import setup_program
from scirocco.data.tables import Resident, Table
from scirocco.types import Array, ArrayLike, Key, Params, PyTree, Rows

_CG_STEPS = 40  # of conjugate gradients for a correction
_LOOKS, _LOOKS_OF_MANY = 15, 3
"""Maximum number of passes over all rows; fewer for corrections that are costly."""
DENSE_PARAMETERS, FEW_PARAMETERS = 200, 2_000
"""Maximum number of parameters for which corrections, and the last resort, use the whole Hessian."""
AFFORDABLE = 250_000_000
"""Rows × parameters of the sample above which the corrections of many parameters are costly."""
_LEAST_DAMPING, _MOST_DAMPING = 1e-2, 1e4  # relative to the information about each parameter alone
_SQUARED_NUMBERS, _LEAST_SQUARED, _MOST_SQUARED_NUMBERS = 1 << 22, 32, 1 << 27
"""Number of entries of single-row gradients from which the scales of the parameters are computed; the least number of
rows, because of a few some of a million parameters look as if nothing was known; the most entries of those."""
_CLOSE_ENOUGH = 0.25
"""Root-mean-square distance to the mode, in posterior standard deviations, at which corrections stop."""
FAR = 1.0
"""Distance beyond which a point is not accepted as the mode."""
_SADDLE = 1e-3
"""Minus the smallest eigenvalue of a Hessian with unit diagonal from which the log density bends the other way."""
_DESCENT_LOOKS, _DESCENT_LOOKS_AT_DISK, _HALVINGS = 200, 30, 20  # the last: of a step that does not gain
_FLATTEST, _FLATTEST_ON_ROWS = 1e-14, 1e-6
"""Smallest eigenvalue of a Hessian with unit diagonal that is believed: in double precision, and as computed here."""
WHOLE_WORK = 20_000_000_000
"""Rows × parameters² up to which the Hessian may be that of all rows: a second or so for each step of `descend`."""
_HESSIAN_NUMBERS = 1 << 23
"""Rows × columns of a Hessian that are evaluated together."""


def vector(tree: PyTree) -> tuple[np.ndarray, Callable[[np.ndarray], PyTree]]:
    """All numbers as one vector, in the order of `ravel_pytree`, and the way back: on the host, without a program.

    The way back takes arrays (..., d) and returns a tree of arrays (..., *shape), in the dtypes of the tree.
    """
    leaves, treedef = jax.tree.flatten(tree)
    host = [np.asarray(leaf) for leaf in leaves]
    dtype = jnp.result_type(*host)
    flat = np.concatenate([leaf.ravel().astype(dtype) for leaf in host])
    ends = np.cumsum([leaf.size for leaf in host])[:-1]

    def back(numbers: np.ndarray) -> PyTree:
        parts = zip(np.split(numbers, ends, axis=-1), host, strict=True)
        shaped = [part.reshape((*part.shape[:-1], *leaf.shape)).astype(leaf.dtype) for part, leaf in parts]
        return jax.tree.unflatten(treedef, shaped)

    return flat, back


class WholePass(NamedTuple):
    """The result of one pass over all rows at a point."""

    position: Params
    total: PyTree
    """Sum of the log-likelihood gradients."""
    gradient: PyTree
    """The gradient of the log posterior."""
    log_density: Array


class Corrected(NamedTuple):
    """Where corrections ended."""

    here: WholePass
    distance: float
    """To the mode, in posterior standard deviations."""
    looks: int
    """Passes over all rows."""
    convex: bool
    """Whether the last correction met no direction of negative curvature."""


def look(model: Any, table: Table, position: Params) -> WholePass:
    """One pass over all rows."""
    likelihood, total = table.sum(ValueAndGradient(model), position)
    return WholePass(position, total, *_with_prior(model, position, likelihood, total))


@setup_program(1)
def _with_prior(model: Any, position: Params, likelihood: Array, total: PyTree) -> tuple[PyTree, Array]:
    prior, gradient = jax.value_and_grad(model.log_prior_density)(position)
    return _tree.add(total, gradient), likelihood + prior


def correct(
    model: Any, table: Table, here: WholePass, rows: Rows, most: int | None = None, only_convex: bool = False
) -> Corrected:
    """Newton corrections, damped (Levenberg–Marquardt) while they do not help; at most `most` passes.

    `only_convex`: none once a correction meets a direction of negative curvature, as those of networks do.
    """
    if most is None:
        size = _tree.size(here.position)
        cheap = size <= FEW_PARAMETERS or size * jax.tree.leaves(rows)[0].shape[0] <= AFFORDABLE
        most = _LOOKS if cheap else _LOOKS_OF_MANY
    convex = True
    step = _dense_correction if _tree.size(here.position) <= DENSE_PARAMETERS else _correction

    def corrected(look: WholePass, damping: float) -> tuple[Params, float]:
        nonlocal convex
        of = (model, table.num_rows, look.position, look.gradient, rows, damping)
        found, distance, usable = step(*of)
        convex = bool(usable)
        return found, float(distance)

    damping, looks = 0.0, 1
    position, distance = corrected(here, damping)
    while looks < most and damping <= _MOST_DAMPING and (damping > 0 or distance > _CLOSE_ENOUGH):
        if only_convex and not convex:
            break
        there = look(model, table, position)
        looks += 1
        lighter = damping / 10 if damping > _LEAST_DAMPING else 0.0
        beyond = corrected(there, lighter)
        if _better(there, beyond[1], here, distance):
            here, (position, distance), damping = there, beyond, lighter
        else:
            damping = max(10 * damping, _LEAST_DAMPING)
            position, distance = corrected(here, damping)
    return Corrected(here, corrected(here, 0.0)[1] if damping > 0 else distance, looks, convex)


Seen = TypeVar("Seen")


class Curve(NamedTuple, Generic[Seen]):
    """A log density at a point, in double precision on the host."""

    at: np.ndarray
    value: float
    gradient: np.ndarray
    curvature: Callable[[], np.ndarray]
    """Minus the Hessian; computed where a step begins."""
    seen: Seen
    """What the caller wants to have back with the point."""


class Ascent(NamedTuple, Generic[Seen]):
    """Where `ascend` ended."""

    here: Curve[Seen]
    factor: np.ndarray
    """L with LLᵀ = |H|⁻¹, and the distance to the mode, at the last point where a step began."""
    distance: float
    looks: int


def ascend(
    here: Curve[Seen],
    look: Callable[[np.ndarray], Curve[Seen]],
    *,
    most: int,
    close: float,
    rounding: float = 1e-12,
    least: float = _FLATTEST,
) -> Ascent[Seen]:
    """Newton steps |H|⁻¹ g, halved until they gain.

    Parameters
    ----------
    here, look
        Where to begin, and what makes a `Curve` of another point.
    most
        No step begins after so many looks.
    close
        Distance to the mode, in posterior standard deviations (root mean square), at which steps end.
    rounding
        Of the log density, relative: a loss that small passes for none.
    least
        Smallest eigenvalue that is believed, see `inverse_root`.
    """
    looks, factor, distance = 0, np.eye(here.at.size), np.inf
    while looks < most and np.all(np.isfinite(here.gradient)):
        curvature = np.asarray(here.curvature(), np.float64)
        factor, half, distance = _scaled(curvature, here.gradient, least)
        if distance <= close:
            away = _out_of_a_saddle(curvature)
            sides = [] if away is None else [look(here.at + away), look(here.at - away)]
            looks += len(sides)
            higher = [there for there in sides if there.value > here.value + rounding * (1.0 + abs(here.value))]
            if not higher:
                break
            here = max(higher, key=lambda there: there.value)
            continue
        step, gain = factor @ half, float(half @ half)
        for halving in range(_HALVINGS):
            there = look(here.at + 0.5**halving * step)
            looks += 1
            needed = 1e-4 * 0.5**halving * gain - rounding * (1.0 + abs(here.value))
            if there.value - here.value >= needed:  # False for NaN
                break
        else:
            break
        here = there
    return Ascent(here, factor, distance, looks)


def _out_of_a_saddle(curvature: np.ndarray) -> np.ndarray | None:
    """A step in the direction in which the log density bends upwards the most; None at a maximum."""
    if not np.all(np.isfinite(curvature)):
        return None
    root, scaled = _unit_diagonal(curvature)
    values, vectors = np.linalg.eigh(scaled)
    return vectors[:, 0] / math.sqrt(-values[0]) / root if values[0] < -_SADDLE else None


def _scaled(curvature: np.ndarray, gradient: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray, float]:
    """L, Lᵀg and the distance to the mode that they imply, from minus the Hessian; L = 1 where that is not finite."""
    known = bool(np.all(np.isfinite(curvature)))
    factor = inverse_root(curvature, least) if known else np.eye(gradient.size)
    half = factor.T @ gradient
    far = not known and bool(np.any(half))
    return factor, half, np.inf if far else float(np.sqrt(half @ half / max(1, half.size)))


def descend(model: Any, table: Table, here: WholePass, rows: Rows | None) -> tuple[WholePass, float, int]:
    """Newton steps with |H| instead of H (few parameters), halved until they gain, repeated as long as they do.

    H is from a sample of rows, or from all of them where that is None; the steps are then few.

    Returns the best point, its distance to the mode in posterior standard deviations, and the number of passes.
    """
    flat, back = vector(here.position)
    device = here.gradient if rows is None else rows

    def curvature(at: Params) -> np.ndarray:
        if rows is not None:
            return np.asarray(_hessian_on_rows(model, table.num_rows, at, rows))
        return np.asarray(table.sum(RowCurvature(model), at), np.float64) + np.asarray(prior_curvature(model, at))

    def curve(at: np.ndarray, seen: WholePass) -> Curve[WholePass]:
        gradient = vector(seen.gradient)[0].astype(np.float64)
        return Curve(at, float(seen.log_density), gradient, partial(curvature, seen.position), seen)

    def there(at: np.ndarray) -> Curve[WholePass]:
        return curve(at, look(model, table, beside(device, back(at))))

    most = _DESCENT_LOOKS_AT_DISK if table.streamed or rows is None else _DESCENT_LOOKS
    begin = curve(flat.astype(np.float64), here)
    found = ascend(begin, there, most=most, close=_CLOSE_ENOUGH, rounding=1e-7, least=_FLATTEST_ON_ROWS)
    distance = found.distance
    if found.looks >= most:
        last = found.here
        distance = _scaled(np.asarray(last.curvature(), np.float64), last.gradient, _FLATTEST_ON_ROWS)[2]
    return found.here.seen, distance, found.looks


class Peak(NamedTuple):
    """A mode with its log density and L, where LLᵀ is the covariance of the Gaussian there."""

    position: Params
    log_density: float
    factor: np.ndarray


class OnRows:
    """The log posterior given n rows, each counted N/n times: its programs are looked up once for many positions.

    Numbers in vectors are those of positions in the order of `vector`.
    """

    def __init__(self, model: Any, num_rows: int, position: Params, rows: Rows):
        self.rows = rows
        self.flat, self._back = vector(position)
        self._value_and_gradient = _on_rows.of(model, num_rows)
        self._hessian = _hessian_on_rows.of(model, num_rows)

    def log_density(self, position: Params) -> float:
        """The log posterior."""
        return -float(self._value_and_gradient(beside(self.rows, position), self.rows)[0])

    def curvature(self, position: Params) -> np.ndarray:
        """Minus its Hessian."""
        return np.asarray(self._hessian(position, self.rows), np.float64)

    def peak(self, position: Params, least: float, flattest: float, value: float | None = None) -> Peak | None:
        """The log density at its mode (`value`, if it is known), and the Gaussian there; None if it is not concave."""
        value, curvature = self.log_density(position) if value is None else value, self.curvature(position)
        if not np.all(np.isfinite(curvature)) or not math.isfinite(value):
            return None
        factor, smallest = whitening(curvature, least)
        return None if smallest <= flattest else Peak(position, value, factor)

    def climb(self, begin: np.ndarray, above: float, most: int, least: float, flattest: float) -> Peak | None:
        """The mode that Newton's method ends at; None if it ends elsewhere, or does not begin above a log density."""
        end = self.ascend(begin, most, above)
        if end is None or not end.distance <= FAR:
            return None
        return self.peak(end.here.seen, least, flattest, end.here.value)

    def ascend(self, begin: np.ndarray, most: int = _DESCENT_LOOKS, above: float = -math.inf) -> Ascent[Params] | None:
        """The mode, by Newton's method from `begin`; None if the log density there is not finite and above another."""

        def curve(at: np.ndarray) -> Curve[Params]:
            there = beside(self.rows, self._back(at))
            value, gradient = self._value_and_gradient(there, self.rows)
            slopes = [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(gradient)]
            return Curve(at, -float(value), -np.concatenate(slopes), partial(self._hessian, there, self.rows), there)

        here = curve(vector(self._back(begin))[0].astype(np.float64))  # as the programs see it
        if not above < here.value < math.inf:  # False for NaN
            return None
        return ascend(here, curve, most=most, close=_CLOSE_ENOUGH, rounding=1e-7, least=_FLATTEST_ON_ROWS)


def programs(model: Any, table: Resident, position: Params, rows: Rows) -> list[tuple[Any, tuple[Any, ...]]]:
    """The jitted functions of a search with the whole Hessian, with their arguments."""
    of = (model, table.num_rows, position, rows)
    return [(_on_rows, of), (_hessian_on_rows, of), table.program(ValueAndGradient(model), position)]


def beside(rows: PyTree, position: Params) -> Params:
    """The position on the device of the rows: programs would be compiled for others first, and then for this one."""
    first = jax.tree.leaves(rows)[0]
    alone = isinstance(getattr(first, "sharding", None), jax.sharding.SingleDeviceSharding)
    return jax.device_put(position, first.sharding if alone and first.committed else None)


@setup_program(2)
def _on_rows(model: Any, num_rows: int, position: Params, rows: Rows) -> tuple[Array, PyTree]:
    return jax.value_and_grad(negative_log_posterior(model, num_rows, rows))(position)


def inverse_root(precision: np.ndarray, least: float = _FLATTEST) -> np.ndarray:
    """L with LLᵀ = P⁻¹, by Cholesky; that of `whitening` where P is not positive definite."""
    root, scaled = _unit_diagonal(np.asarray(precision, np.float64))
    try:
        lower = np.linalg.cholesky(scaled)
    except np.linalg.LinAlgError:
        return whitening(precision, least)[0]
    if np.min(np.diagonal(lower), initial=1.0) ** 2 <= least:
        return whitening(precision, least)[0]
    return np.asarray(np.linalg.inv(lower).T / root[:, None])


def whitening(precision: np.ndarray, least: float) -> tuple[np.ndarray, float]:
    """L = D⁻¹ Q |Λ|^(-1/2), from D⁻¹ P D⁻¹ = Q Λ Qᵀ with unit diagonal, and the smallest of Λ.

    Directions that are flat or bend the other way are bounded: |Λ| is at least `least`.
    """
    root, scaled = _unit_diagonal(np.asarray(precision, np.float64))
    values, vectors = np.linalg.eigh(scaled)
    return vectors / np.sqrt(np.maximum(np.abs(values), least)) / root[:, None], float(values[0])


def _unit_diagonal(precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    diagonal = np.abs(np.diagonal(precision))
    positive = diagonal[diagonal > 0]
    root = np.sqrt(np.where(diagonal > 0, diagonal, positive.min() if len(positive) else 1.0))
    return root, (precision + precision.T) / 2 / np.outer(root, root)


@setup_program(2)
def _hessian_on_rows(model: Any, num_rows: int, position: Params, rows: Rows) -> Array:
    flat, unravel = ravel_pytree(position)
    negative = negative_log_posterior(model, num_rows, rows)
    return hessian(lambda x: negative(unravel(x)), flat, jax.tree.leaves(rows)[0].shape[0])


def negative_log_posterior(model: Any, num_rows: int, rows: Rows) -> Callable[[Params], Array]:
    """A function of the position, from a sample of so many rows."""
    scale = num_rows / jax.tree.leaves(rows)[0].shape[0]
    return lambda at: -model.log_prior_density(at) - scale * model.log_likelihood_sum(at, rows)


def hessian(function: Callable[[Array], Array], at: Array, num_rows: int) -> Array:
    """The Hessian of a sum over that many rows; the number of columns at a time limits the memory."""
    size = at.shape[0]
    if size * num_rows <= _HESSIAN_NUMBERS:
        return jax.hessian(function)(at)

    def column(direction: Array) -> Array:
        return jax.jvp(jax.grad(function), (at,), (direction,))[1]

    together = max(1, _HESSIAN_NUMBERS // num_rows)
    return jax.lax.map(column, jnp.eye(size, dtype=at.dtype), batch_size=min(together, size))


def _better(there: WholePass, closer: float, here: WholePass, distance: float) -> bool:
    """Higher; or equal up to rounding, and closer: a log density of -10⁷ has no decimals in float32."""
    gain = float(there.log_density) - float(here.log_density)  # comparisons with NaN are False
    rounding = 1e-6 * abs(float(here.log_density))
    return gain > rounding or (gain > -rounding and closer < distance)


@setup_program(2)
def _correction(
    model: Any, num_rows: int, position: Params, gradient: PyTree, rows: Rows, damping: ArrayLike
) -> tuple[Params, Array, Array]:
    """The position after a Newton correction (H + damping · D) δ = g, and the implied distance to the mode.

    Last, whether the curvature was positive in all directions that were tried.

    D is the information about each parameter alone: damping does not depend on the parameters' units.
    """
    scale = num_rows / jax.tree.leaves(rows)[0].shape[0]
    variances = _variances(model, scale, position, rows)
    negative_gradient = jax.grad(negative_log_posterior(model, num_rows, rows))

    def curvature_times(direction: PyTree) -> PyTree:
        product = jax.jvp(negative_gradient, (position,), (direction,))[1]
        return jax.tree.map(lambda h, d, v: (h + damping * d / v).astype(h.dtype), product, direction, variances)

    correction, usable = _conjugate_gradients(curvature_times, gradient, variances)
    distance = jnp.sqrt(jnp.maximum(_tree.vdot(gradient, correction), 0.0) / max(1, _tree.size(position)))
    return _tree.add(position, correction), distance, usable


def _dense_correction(
    model: Any, num_rows: int, position: Params, gradient: PyTree, rows: Rows, damping: float
) -> tuple[Params, float, bool]:
    """The same for few parameters, on the host, from a Hessian whose program the search has already."""
    curvature = np.asarray(_hessian_on_rows(model, num_rows, position, rows), np.float64)
    flat, back = vector(position)
    if not np.all(np.isfinite(curvature)):
        return position, np.inf, False
    curvature = curvature + damping * np.diag(np.abs(np.diagonal(curvature)))
    factor = inverse_root(curvature, _FLATTEST_ON_ROWS)
    half = factor.T @ vector(gradient)[0].astype(np.float64)
    distance = float(np.sqrt(half @ half / max(1, flat.size)))
    found = beside(rows, back(flat + factor @ half))
    return found, distance, bool(np.linalg.eigvalsh(curvature)[0] > 0)


@dataclass(frozen=True)
class RowCurvature:
    """Summand -∇² log p(x_i | θ), a matrix."""

    model: Any

    def total(self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None) -> Array:
        flat, unravel = ravel_pytree(position)
        count = jax.tree.leaves(rows)[0].shape[0]
        return -hessian(lambda x: self.model.log_likelihood_sum(unravel(x), rows, weights), flat, count)


@setup_program(1)
def prior_curvature(model: Any, position: Params) -> Array:
    """-∇² log prior, a matrix."""
    flat, unravel = ravel_pytree(position)
    return jax.hessian(lambda x: -model.log_prior_density(unravel(x)))(flat)


@dataclass(frozen=True)
class ValueAndGradient:
    """Summand (log p(x_i | θ), ∇ log p(x_i | θ)), so that one pass gives both sums."""

    model: Any

    def total(self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None) -> PyTree:
        return jax.value_and_grad(self.model.log_likelihood_sum)(position, rows, weights)


def _variances(model: Any, scale: float, position: Params, rows: Rows) -> PyTree:
    """One over the information about each parameter, from rows and prior: its variance if the others were known."""
    size = max(1, _tree.size(position))
    count = max(_SQUARED_NUMBERS // size, min(_LEAST_SQUARED, _MOST_SQUARED_NUMBERS // size))
    count = max(2, min(jax.tree.leaves(rows)[0].shape[0], count))
    some = jax.tree.map(lambda leaf: leaf[:count], rows)
    squares = jax.tree.map(lambda g: jnp.mean(g * g, axis=0), model.summand.each(position, some))
    num_rows = jax.tree.leaves(rows)[0].shape[0]
    information = jax.tree.map(
        lambda f, p: scale * num_rows * f + jnp.abs(p), squares, _prior_diagonal(model, position)
    )
    largest = jnp.max(jnp.stack([jnp.max(leaf) for leaf in jax.tree.leaves(information)]))
    # a parameter without information moves like the best informed one, which is safe
    return jax.tree.map(lambda f: jnp.where(f > 0, 1.0 / f, 1.0 / jnp.maximum(largest, 1e-30)), information)


def _prior_diagonal(model: Any, position: Params) -> PyTree:
    """The diagonal of the prior's Hessian, the only information about hyperparameters. Zero for many parameters."""
    if _tree.size(position) > FEW_PARAMETERS:
        return _tree.zeros_like(position)
    flat, unravel = ravel_pytree(position)
    return unravel(jnp.diagonal(jax.hessian(lambda x: model.log_prior_density(unravel(x)))(flat)))


def _conjugate_gradients(multiply: Any, target: PyTree, variances: PyTree) -> tuple[PyTree, Array]:
    """Approximate solution x of A x = target, and whether no direction of negative curvature has ended the search.

    `variances`, about 1/diag(A), is the preconditioner. If the first direction already has negative curvature, the
    result is the gradient in units of the parameters.
    """

    def rescaled(residual: PyTree) -> PyTree:
        return jax.tree.map(lambda r, v: (r * v).astype(r.dtype), residual, variances)

    first = rescaled(target)
    squared = _tree.vdot(target, first)

    def proceed(carry: tuple[Any, ...]) -> Array:
        _, _, _, rho, step, usable = carry
        return usable & (step < _CG_STEPS) & (rho > 1e-6 * squared)

    def one(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        x, residual, direction, rho, step, _ = carry
        product = multiply(direction)
        curvature = _tree.vdot(direction, product)
        usable = curvature > 0
        alpha = jnp.where(usable, rho / jnp.where(usable, curvature, 1.0), jnp.where(step == 0, 1.0, 0.0))
        x = jax.tree.map(lambda a, d: (a + alpha * d).astype(a.dtype), x, direction)
        residual = jax.tree.map(lambda r, p: (r - alpha * p).astype(r.dtype), residual, product)
        scaled = rescaled(residual)
        rho_next = _tree.vdot(residual, scaled)
        direction = jax.tree.map(lambda r, d: (r + rho_next / rho * d).astype(r.dtype), scaled, direction)
        return x, residual, direction, rho_next, step + 1, usable

    start = (_tree.zeros_like(target), target, first, squared, jnp.array(0), jnp.array(True))
    end = jax.lax.while_loop(proceed, one, start)
    return end[0], end[5]
