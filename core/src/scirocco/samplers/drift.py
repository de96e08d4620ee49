"""Theorem 2 of the recipe: from the drift of a process and its stationary density to the curl matrix Q.

A process dz = f dt + √(2D) dW has the stationary density p = e^(-H) if and only if the current J p, with
J = f + D∇H - ∇·D, has no divergence. In one dimension it must then vanish, and Q = 0. In two dimensions it is the curl
of a scalar, J p = (∂₂ψ, -∂₁ψ), and Q = q [[0, 1], [-1, 0]] with q = ψ/p gives f = -(D + Q)∇H + Γ. Along a ray c + r n

    q(c + r₀ n) = ∫_{r₀}^∞ (n₁ J₂ - n₂ J₁)(c + r n) e^(H(c + r₀ n) - H(c + r n)) dr,

because ψ vanishes far away (Ma, Chen & Fox 2015, theorem 2 and its proof, which uses Fourier transforms).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.types import Array

_TOLERANCE = 5e-3
_PANELS, _NODES = 8, 12
_SKEW = np.array([[0.0, 1.0], [-1.0, 0.0]])


class Process:
    """A drift, a diffusion matrix and a log density of an array of some numbers."""

    def __init__(
        self,
        drift: Callable[[Array], Any],
        diffusion: Any,
        log_density: Callable[[Array], Any],
        at: Sequence[Any],
        extent: float = 12.0,
    ):
        self.points = [jnp.asarray(point, jnp.result_type(float)) for point in at]
        shape = self.points[0].shape
        if len(shape) != 1 or any(point.shape != shape for point in self.points):
            raise InvalidTypeError(f"points of a process must be arrays of one shape (d,), got {shape}.")
        self.size, self.extent = shape[0], extent
        self.log_density = lambda x: jnp.squeeze(jnp.asarray(log_density(x)))
        self.drift = lambda x: jnp.asarray(drift(x)).reshape(shape)
        self.given = diffusion
        self.centre = jnp.mean(jnp.stack(self.points), axis=0)

    def diffusion(self, x: Array) -> Array:
        """D as a matrix."""
        value = jnp.asarray(self.given(x) if callable(self.given) else self.given, x.dtype)
        return value if value.ndim == 2 else value * jnp.eye(self.size, dtype=x.dtype)

    def flow(self, x: Array) -> Array:
        """J = f + D∇H - ∇·D."""
        spread = jnp.einsum("ijj->i", jax.jacfwd(self.diffusion)(x))
        return self.drift(x) - self.diffusion(x) @ jax.grad(self.log_density)(x) - spread

    def curl(self, x: Array) -> Array:
        """Q."""
        offset = x - self.centre
        begin = jnp.sqrt(jnp.sum(offset**2) + 1e-12)
        towards = (offset + jnp.array([1e-6, 0.0], x.dtype)) / begin
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        starts = np.arange(_PANELS)[:, None] / _PANELS
        lengths = jnp.asarray((starts + (nodes + 1) / (2 * _PANELS)).ravel() * self.extent, x.dtype)
        shares = jnp.asarray(np.tile(weights, _PANELS) * self.extent / (2 * _PANELS), x.dtype)
        here = self.log_density(x)

        def integrand(length: Array) -> Array:
            there = x + length * towards
            flow = self.flow(there)
            return (towards[0] * flow[1] - towards[1] * flow[0]) * jnp.exp(self.log_density(there) - here)

        return jnp.vdot(shares, jax.vmap(integrand)(lengths)) * jnp.asarray(_SKEW, x.dtype)

    def leak(self, x: Array) -> tuple[Array, Array]:
        """∇·(J p) / p, and the size of its terms."""
        slopes = jnp.diagonal(jax.jacfwd(self.flow)(x))
        along = self.flow(x) * jax.grad(self.log_density)(x)
        return jnp.abs(jnp.sum(slopes + along)), jnp.sum(jnp.abs(slopes)) + jnp.sum(jnp.abs(along))

    def missed(self, x: Array) -> tuple[Array, Array]:
        """How far f is from -(D + Q)∇H + Γ, and how long f is."""
        left = self.flow(x)
        if self.size == 2:
            turned = self.curl(x) @ jax.grad(self.log_density)(x)
            left = left - turned - jnp.einsum("ijj->i", jax.jacfwd(self.curl)(x))
        return jnp.max(jnp.abs(left)), jnp.max(jnp.abs(self.drift(x)))

    def leakage(self) -> float:
        """How much of the probability current leaks, at worst: 0 up to rounding if the density is stationary."""

        def measured(x: Array) -> tuple[Array, ...]:
            return self.flow(x), *self.leak(x), jnp.max(jnp.abs(self.drift(x)))

        flows, leaks, terms, lengths = map(np.asarray, jax.jit(jax.vmap(measured))(jnp.stack(self.points)))
        scale = max(1e-6, float(lengths.max()))
        if self.size == 1:  # a current that does not leak is constant, and 0 far away
            return float(np.max(np.abs(flows)) / scale)
        return float(np.max(leaks / np.maximum(terms, 1e-3 * scale)))

    def problem(self, worst: float) -> str:
        """Why the density is not stationary if so much of its current leaks; "" if it is."""
        if worst <= _TOLERANCE:
            return ""
        return (
            f"the process does not have this stationary density: its probability current leaks by {100 * worst:.2g} % "
            "of its terms, so no D and Q describe it. Check the drift (does it contain ∇·D?), the diffusion, and the "
            "log density."
        )

    def check(self) -> None:
        """Raise an error unless the density is stationary and Q was found."""
        if self.size > 2:
            raise InvalidTypeError(
                f"from_drift solves for Q in one and two dimensions, and points have {self.size} numbers. "
                "sc.verify_recipe(drift, points, log_density, diffusion=D) tests stationarity in any dimension."
            )
        if words := self.problem(self.leakage()):
            raise InvalidValueError(words)
        missed, lengths = map(np.asarray, jax.jit(jax.vmap(self.missed))(jnp.stack(self.points)))
        error = float(missed.max()) / max(1e-6, float(lengths.max()))
        if not error <= _TOLERANCE:
            raise InvalidValueError(
                f"Q could not be computed: -(D + Q)∇H + Γ differs from the drift by {100 * error:.2g} %. Pass "
                f"`extent`, about ten standard deviations of the density (now {self.extent:g})."
            )
