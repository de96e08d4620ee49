"""Stochastic gradient Langevin dynamics: plain, RMSprop-preconditioned, and scaled by the gradients of each array."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from scirocco import _checks, _tree
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.errors import InvalidValueError
from scirocco.samplers.base import Gradient, Known, Mover, Needs, check_fields
from scirocco.samplers.scales import Excess, Scales, langevin_step
from scirocco.types import Array, ArrayLike, Key, Params, PyTree


class LangevinState(NamedTuple):
    """The state of SGLD: the position."""

    position: Params


@cited("stochastic gradient Langevin dynamics", "welling2011")
@pytree_dataclass
class SGLD(Mover):
    r"""Stochastic gradient Langevin dynamics (Welling & Teh 2011).

    .. math:: θ' = θ + ε\,\hat g(θ) + \sqrt{2 ε T}\,ξ, \qquad ξ ∼ N(0, I)

    with ĝ an unbiased estimate of ∇ log posterior.

    Targets posterior^(1/T) as ε → 0. On a Gaussian with precision λ and gradient-noise variance V its exact stationary
    variance is (2T + εV) / (λ (2 - ελ)): the step adds a factor 1/(1 - ελ/2), the minibatch a factor 1 + εV/2T.

    Cost per step: one gradient estimate and one normal per parameter.

    Parameters
    ----------
    step_size
        ε: a number, a dict (any prefix of the parameters) of numbers, or a schedule. Its unit is that of the parameter,
        squared. The thesis and R's sgmcmc write h/2 ∇ and N(0, h): their h is 2ε. None: min(0.1/λ, 0.1/V) at the
        start, with at most 5 % more variance from the step and 5 % from the minibatches. "auto": chosen by
        trying many (see `sc.analysis.tune`).
    temperature
        T; 0 gives stochastic gradient ascent.

    References
    ----------
    Thesis eq. (4.3.2); Ma, Chen & Fox (2015) eq. (13): their recipe with D = I, Q = 0.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> data = jax.random.normal(jax.random.key(0), (1000,))
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> run = sc.sample(model, data, jnp.array(0.0), sampler=sc.SGLD(1e-4), estimator=sc.Minibatch(100),
    ...                 num_samples=500, progress=False)
    >>> run.draws.shape
    (1, 500)
    """

    step_size: Any = None
    temperature: ArrayLike = 1.0

    needs = Needs()

    def __post_init__(self) -> None:
        check_fields(self, automatic=True)

    @property
    def known(self) -> Known:
        return Known(gradient_alone=True, noise_ratio=self._noise_ratio, excess=self._excess)

    def _noise_ratio(self, scales: Scales, eps: PyTree, params: Params) -> PyTree:
        """ε V / 2 T."""
        return self._ratio(scales, eps)[0]

    def _excess(self, scales: Scales, stiffness: float, eps: PyTree, params: Params) -> Excess:
        """1/(1 - ελ/2) from the step, 1 + εV/2T from the minibatches."""
        ratio, noise = self._ratio(scales, eps)
        step = 1.0 / (1.0 - stiffness / 2.0) - 1.0 if stiffness < 2 else float("inf")
        return Excess(step, ratio, langevin_step(scales._replace(noise=noise)))

    def _ratio(self, scales: Scales, eps: PyTree) -> tuple[PyTree, PyTree]:
        """The ratio, and the gradient noise without the part that cancels over an epoch."""
        temperature = max(float(self.temperature), 1e-12)
        relaxation = jax.tree.map(lambda e, f: 1.0 / jnp.maximum(e * f, 1e-12), eps, scales.information)
        noise = scales.lasting_noise(relaxation)
        return jax.tree.map(lambda e, v: e * v / (2.0 * temperature), eps, noise), noise

    def init(self, params: Params, key: Key) -> LangevinState:
        return LangevinState(params)

    def step(self, state: LangevinState, gradient: Gradient, noise: PyTree, number: Array) -> LangevinState:
        eps = self.sizes(state.position, number)
        return LangevinState(
            jax.tree.map(
                lambda p, e, g, xi: p + e * g + jnp.sqrt(2.0 * e * self.temperature).astype(p.dtype) * xi,
                state.position,
                eps,
                gradient.total,
                noise,
            )
        )


class PreconditionedState(NamedTuple):
    """Position and the running mean of squared gradients."""

    position: Params
    squares: PyTree


@cited("preconditioned stochastic gradient Langevin dynamics", "li2016")
@pytree_dataclass
class PSGLD(Mover):
    r"""SGLD with an RMSprop preconditioner (Li et al. 2016).

    .. math::
        v' = α v + (1-α)\,\bar g^2, \qquad G = 1 / (δ + \sqrt{v'}) \\
        θ' = θ + ε\,[G \hat g + Γ] + \sqrt{2 ε T G}\,ξ, \qquad Γ_i = T\,∂G_i/∂θ_i

    where ḡ is the gradient estimate (over `gradient_scale`). Γ follows the current gradient's part of v',
    Γ_i = -T G_i² (1-α) ḡ_i (∂ḡ_i/∂θ_i) / √v'_i, with the curvature estimated on the same minibatch.

    Targets posterior^(1/T) as ε → 0 with `correction=True`; without Γ (the original paper's usual choice) it is
    biased by O(1-α), which vanishes as α → 1. Cost per step: one gradient estimate, and with Γ one
    Hessian-vector product.

    Parameters
    ----------
    step_size
        ε, in units of θ · δ (after preconditioning); number, tree or schedule.
    decay
        α in [0, 1]; 1 freezes the preconditioner.
    damping
        δ > 0: bounds the preconditioner by 1/δ.
    gradient_scale
        Gradients are divided by this before they are squared (N gives the mean gradient of the original paper).
    correction
        Whether Γ is included.
    temperature
        T.
    """

    step_size: Any
    decay: ArrayLike = 0.99
    damping: ArrayLike = 1e-5
    gradient_scale: ArrayLike = 1.0
    correction: bool = static(default=False)
    temperature: ArrayLike = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        _checks.positive(self.decay, "decay", "PSGLD", allow_zero=True)
        if isinstance(_checks.as_float(self.decay), float) and float(self.decay) > 1:
            raise InvalidValueError(f"`decay` of PSGLD must be between 0 and 1, got {self.decay}.")
        _checks.positive(self.damping, "damping", "PSGLD")
        _checks.positive(self.gradient_scale, "gradient_scale", "PSGLD")
        numbers = {"decay": self.decay, "damping": self.damping, "gradient_scale": self.gradient_scale}
        for name, value in numbers.items():  # whole numbers beyond 32 bits, too
            object.__setattr__(self, name, _checks.as_float(value))

    @property
    def needs(self) -> Needs:
        return Needs(curvature=self.correction)

    def init(self, params: Params, key: Key) -> PreconditionedState:
        """Squares start at one, which makes the first steps small."""
        return PreconditionedState(params, jax.tree.map(jnp.ones_like, params))

    def step(self, state: PreconditionedState, gradient: Gradient, noise: PyTree, number: Array) -> PreconditionedState:
        eps = self.sizes(state.position, number)
        scaled = _tree.scale(1.0 / self.gradient_scale, gradient.total)
        squares = jax.tree.map(lambda v, g: self.decay * v + (1.0 - self.decay) * g * g, state.squares, scaled)
        metric = jax.tree.map(lambda v: 1.0 / (self.damping + jnp.sqrt(v)), squares)
        drift = jax.tree.map(jnp.multiply, metric, gradient.total)
        if self.correction:

            def corrected(d: Array, m: Array, v: Array, g: Array, c: Array) -> Array:
                slope = c / self.gradient_scale
                return d - self.temperature * m * m * (1.0 - self.decay) * g * slope / _safe_sqrt(v)

            drift = jax.tree.map(corrected, drift, metric, squares, scaled, gradient.curvature)
        position = jax.tree.map(
            lambda p, e, d, m, xi: p + e * d + jnp.sqrt(2.0 * e * self.temperature * m) * xi,
            state.position,
            eps,
            drift,
            metric,
            noise,
        )
        return PreconditionedState(position, squares)


def _safe_sqrt(v: Array) -> Array:
    """√v, replaced by a positive number where v = 0: there the gradient is 0 too, so that Γ = 0."""
    return jnp.where(v > 0, jnp.sqrt(jnp.where(v > 0, v, 1.0)), 1.0)


class LeafScaledState(NamedTuple):
    """Position, and the mean of squared gradients for each leaf (a number each)."""

    position: Params
    squares: PyTree


@cited(
    "stochastic gradient Langevin dynamics with a step size for each group of parameters", "welling2011 baker2018thesis"
)
@pytree_dataclass
class LeafScaledSGLD(Mover):
    r"""SGLD with one global step size, divided by the root mean square of the gradient of each leaf.

    .. math::
        S_k = S_{k-1} + (|\hat g|^2/d - S_{k-1})/k, \qquad ε_{leaf} = ε/\sqrt{S_k} \\
        θ' = θ + ε_{leaf}\,\hat g + \sqrt{2 ε_{leaf} T}\,ξ

    with d the number of entries of the leaf and S_0 = 0. Leaves of very different scales (factors and biases, weights
    of layers) then need only one number.

    S is a mean over all steps so far, so it changes by O(1/k) at step k, and the chain targets posterior^(1/T) as
    ε → 0 once that is negligible. After `freeze_after` steps S is constant: from then on it is SGLD with constant step
    sizes, with the same stationary distribution. Cost per step: that of SGLD and a sum of squares.

    Parameters
    ----------
    step_size
        ε: a number, a tree or a schedule, in the units of the parameters. If gradient noise is small, √S is about 1/sd,
        so ε must be well below the smallest posterior standard deviation, and the relaxation time of a leaf is sd/ε
        steps: it grows with the square root of the condition number. The thesis' h is 2ε.
    freeze_after
        Steps after which S no longer changes; None: never.
    temperature
        T.

    Notes
    -----
    Thesis, appendix A.3. Its formula, S_k = (|ĝ|²/d - S_{k-1})/k, lacks the term S_{k-1} of a running mean:
    it would tend to 0 like 1/k, and the steps would grow without bound. S starts with the first gradient: a start
    far out in the tails makes the steps small for a while.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = jax.random.normal(jax.random.key(0), (1000, 2)) * jnp.array([1.0, 100.0])
    >>> model = sc.Model(lambda p, x: -0.5 * ((x[0] - p["a"]) ** 2 + ((x[1] - p["b"]) / 100.0) ** 2))
    >>> run = sc.sample(model, x, {"a": jnp.array(0.0), "b": jnp.array(0.0)}, sampler=sc.LeafScaledSGLD(0.02, 500),
    ...                 estimator=sc.Full(), num_samples=2000, num_burnin=500, progress=False)
    >>> bool(run.draws["a"].std() < 0.1), bool(run.draws["b"].std() > 0.5)
    (True, True)
    """

    known = Known(step_order=1)

    step_size: Any
    freeze_after: ArrayLike | None = None
    temperature: ArrayLike = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.freeze_after is not None:
            _checks.positive_int(self.freeze_after, "freeze_after")

    def init(self, params: Params, key: Key) -> LeafScaledState:
        return LeafScaledState(params, jax.tree.map(lambda leaf: jnp.zeros((), leaf.dtype), params))

    def step(self, state: LeafScaledState, gradient: Gradient, noise: PyTree, number: Array) -> LeafScaledState:
        count = number + 1
        learning = True if self.freeze_after is None else count <= self.freeze_after

        def measured(square: Array, g: Array) -> Array:
            mean = jnp.vdot(g, g) / max(1, g.size)
            return square + jnp.where(learning, (mean - square) / count.astype(g.dtype), 0.0)

        squares = jax.tree.map(measured, state.squares, gradient.total)

        def moved(p: Array, e: ArrayLike, square: Array, g: Array, xi: Array) -> Array:
            # a leaf whose gradient is exactly 0 so far: nothing to divide by
            eps = (e / jnp.sqrt(jnp.where(square > 0, square, 1.0))).astype(p.dtype)
            return p + eps * g + jnp.sqrt(2.0 * eps * self.temperature).astype(p.dtype) * xi

        eps = self.sizes(state.position, number)
        position = jax.tree.map(moved, state.position, eps, squares, gradient.total, noise)
        return LeafScaledState(position, squares)
