"""Moves whose length does not depend on the gradient: the Barker proposal, and the zig-zag process on minibatches."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr

from scirocco import _checks, _tree
from scirocco._tree import cited, pytree_dataclass
from scirocco.samplers.base import Gradient, Known, Mover, check_amounts, check_fields, coefficients, is_open
from scirocco.samplers.langevin import LangevinState
from scirocco.samplers.scales import Excess, Scales, langevin_step, largest
from scirocco.types import Array, ArrayLike, Key, Params, PyTree

_SPREAD = 0.1  # of the lengths of moves, relative to their root mean square
_MOST_NOISE, _CLOSE = 0.6, 0.95  # of q for a move of usual length, and of any
_STEP_OVER_NOISE = 4.0 * _MOST_NOISE / np.pi  # ε V / T at which q is that
_NOISIER = 3.0  # as much noise as SGLD's default step allows


class _Robust(Mover):
    """Two normals for each parameter: the length of the move, and what decides on its direction."""

    def __post_init__(self) -> None:
        check_fields(self, automatic=True)
        _checks.positive(self.temperature, "temperature", type(self).__name__)

    def noise(self, key: Key, params: Params) -> PyTree:
        first, second = jax.random.split(key)
        return _tree.normal_like(first, params), _tree.normal_like(second, params)


@cited("the stochastic gradient Barker proposal", "mauri2024 livingstone2022")
@pytree_dataclass
class SGBarker(_Robust):
    r"""The stochastic gradient Barker proposal (Mauri & Zanella 2024), with their correction for gradient noise.

    .. math:: θ' = θ ± z, \qquad z = \sqrt{2εT}\,(\sqrt{0.99} + 0.1 ξ), \qquad
        P(+) = \frac{1}{1 + e^{-α z \hat g / T}}, \qquad α^2 = \frac{1 + 0.28 q}{1 - q}, \quad q = \frac{π z^2 V}{8 T^2}

    for each parameter, with V the variance of ĝ. The gradient chooses the direction and never the length: no step is
    longer than about √(2εT), wherever the chain starts and however large the gradient of a row is, and no step size
    diverges. For small ε the drift is εĝ and the noise has variance 2εT, as for `SGLD`.

    Targets posterior^(1/T) as ε → 0, whatever V: noise makes the choice too even, which α undoes (the slope of the
    probability at g = 0, averaged over normal noise, is that without noise within 0.2 %). That is possible while q < 1.
    Where ε V > 0.76 T, the steps are those of ε = 0.76 T/V. On a Gaussian with precision λ the step makes the variance
    larger by a factor 1 + ελ/2 for small ελ, as SGLD's.

    Cost per step: one gradient estimate, two normals and an exponential function for each parameter.

    Parameters
    ----------
    step_size
        ε, as for `SGLD`: a number, a dict (any prefix of the parameters) of numbers, or a schedule. None: chosen at the
        start, min(0.1/λ, 0.3/V); "auto": by trying many.
    gradient_noise
        V: a number or prefix tree. None: measured near the mode (the part that does not cancel over an epoch); 0: no
        correction.
    temperature
        T > 0.

    Notes
    -----
    Mauri and Zanella's α² is 1/(1 - q'), with q' = z² V/1.702² for T = 1: the slope is then up to 7 % too small. They
    take the sign of ĝ where q' ≥ 1; here the step is shortened.

    References
    ----------
    Mauri & Zanella (2024); Livingstone & Zanella (2022), with a Metropolis step; Vogrinc, Livingstone & Zanella (2023),
    for lengths that hardly vary.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> data = 3.0 + jax.random.normal(jax.random.key(0), (1000,))
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> run = sc.sample(model, data, jnp.array(0.0), sampler=sc.SGBarker(1e-4), estimator=sc.Minibatch(100),
    ...                 num_burnin=1000, num_samples=4000, progress=False)
    >>> bool(abs(run.draws.mean() - data.mean()) < 0.02)
    True
    """

    step_size: Any = None
    gradient_noise: Any = None
    temperature: ArrayLike = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_amounts(self, "gradient_noise", allow_zero=True)

    @property
    def known(self) -> Known:
        return Known(gradient_alone=True, excess=self._excess)

    def _excess(self, scales: Scales, stiffness: float, eps: PyTree, params: Params) -> Excess:
        """1 + ελ/2 from the step, nothing from the noise."""
        nothing = jax.tree.map(lambda v: jnp.zeros_like(v), scales.noise)
        return Excess(stiffness / 2.0, nothing, self._default_step(scales))

    @property
    def is_open(self) -> bool:
        return is_open(self.step_size) or self.gradient_noise is None

    def resolve(self, scales: Scales, params: Params) -> SGBarker:
        """Fill in the step size, and the variance of the gradient."""
        step = self._default_step(scales) if is_open(self.step_size) else self.step_size
        noise = self.gradient_noise
        if noise is None:
            eps = dataclasses.replace(self, step_size=step).sizes(params, jnp.array(0))
            relaxation = jax.tree.map(lambda e, f: 1.0 / jnp.maximum(e * f, 1e-12), eps, scales.information)
            noise = scales.lasting_noise(relaxation)
        return dataclasses.replace(self, step_size=step, gradient_noise=noise)

    def _default_step(self, scales: Scales) -> float:
        return langevin_step(scales._replace(noise=jax.tree.map(lambda v: v / _NOISIER, scales.noise)))

    def init(self, params: Params, key: Key) -> LangevinState:
        return LangevinState(params)

    def step(self, state: LangevinState, gradient: Gradient, noise: PyTree, number: Array) -> LangevinState:
        eps = self.sizes(state.position, number)
        variance = coefficients(0.0 if self.gradient_noise is None else self.gradient_noise, state.position, "noise")

        def move(p: Array, e: Array, v: ArrayLike, g: Array, xi: Array, choice: Array) -> Array:
            e = jnp.minimum(e, _STEP_OVER_NOISE * self.temperature / jnp.maximum(v, 1e-30))
            length = jnp.sqrt(2.0 * e * self.temperature) * ((1.0 - _SPREAD**2) ** 0.5 + _SPREAD * xi)
            q = jnp.minimum(np.pi / 8.0 * (length / self.temperature) ** 2 * v, _CLOSE)
            slope = jnp.sqrt((1.0 + 0.28 * q) / (1.0 - q))
            forth = ndtr(choice) < jax.nn.sigmoid(slope * length * g / self.temperature)
            return jnp.where(jnp.isnan(g), g, p + jnp.where(forth, length, -length)).astype(p.dtype)

        return LangevinState(jax.tree.map(move, state.position, eps, variance, gradient.total, *noise))


class ZigZagState(NamedTuple):
    """Position, the sign of the velocity of each parameter, and the length of the next step over ε."""

    position: Params
    direction: PyTree
    length: PyTree


@cited("the stochastic gradient zig-zag process", "fearnhead2024 bertazzi2023")
@pytree_dataclass
class SGZigZag(_Robust):
    r"""The zig-zag process with minibatches and a fixed step, without bounds on the rates (Fearnhead et al. 2024).

    .. math:: P(v' = -v) = 1 - e^{-ε u (-v \hat g)^+/T}, \qquad θ' = θ + \tfrac ε2 (u + u')\, v'

    for each parameter, with v = ±1 and u, u' the random lengths of this step and the next, normal with mean 1 and
    standard deviation 0.3: the splitting of Bertazzi, Dobson & Monmarché (2023), which is of second order in ε, with a
    gradient estimate in place of the gradient. `sc.ZigZag` is exact, for models with bounds; this one needs only
    gradients, as SGLD.

    Targets posterior^(1/T) as ε → 0. No step is longer than about 2ε, whatever the gradient. With a gradient variance
    V and T = 1, variances are larger by about ε √V / 2: noise adds turns in both directions.

    Cost per step: one gradient estimate and two normals for each parameter.

    Parameters
    ----------
    step_size
        ε, in units of θ: a number, a dict (any prefix of the parameters) of numbers, or a schedule. None:
        min(0.2/√λ, 0.1/√V) at the start; "auto": by trying many.
    temperature
        T > 0.

    References
    ----------
    Fearnhead, Grazzi, Nemeth & Roberts (2024); Bertazzi, Dobson & Monmarché (2023).

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> data = 3.0 + jax.random.normal(jax.random.key(0), (1000,))
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> run = sc.sample(model, data, jnp.array(3.0), sampler=sc.SGZigZag(3e-3), estimator=sc.Minibatch(100),
    ...                 num_samples=4000, progress=False)
    >>> bool(abs(run.draws.mean() - data.mean()) < 0.02)
    True
    """

    known = Known(step_order=1, gradient_alone=True, stiffest=0.2)

    step_size: Any = None
    temperature: ArrayLike = 1.0

    def resolve(self, scales: Scales, params: Params) -> SGZigZag:
        """Fill in the step size."""
        if not is_open(self.step_size):
            return self
        steepest = max(scales.largest_curvature, 4.0 * largest(scales.noise))
        return dataclasses.replace(self, step_size=0.2 * steepest**-0.5)

    def init(self, params: Params, key: Key) -> ZigZagState:
        signs = jax.tree.map(lambda xi: jnp.where(xi < 0, -1.0, 1.0).astype(xi.dtype), _tree.normal_like(key, params))
        return ZigZagState(params, signs, jax.tree.map(jnp.ones_like, params))

    def step(self, state: ZigZagState, gradient: Gradient, noise: PyTree, number: Array) -> ZigZagState:
        eps = self.sizes(state.position, number)

        def turn(v: Array, e: Array, u: Array, g: Array, choice: Array) -> Array:
            turned = -log_ndtr(choice) < e * u * jnp.maximum(-v * g, 0.0) / self.temperature
            return jnp.where(jnp.isnan(g), g, jnp.where(turned, -v, v))

        direction = jax.tree.map(turn, state.direction, eps, state.length, gradient.total, noise[1])
        following = jax.tree.map(lambda xi: jnp.abs(1.0 + 0.3 * xi), noise[0])

        def move(p: Array, e: Array, v: Array, u: Array, then: Array) -> Array:
            return (p + 0.5 * e * (u + then) * v).astype(p.dtype)

        position = jax.tree.map(move, state.position, eps, direction, state.length, following)
        return ZigZagState(position, direction, following)
