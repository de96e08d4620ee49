"""Samplers as a user writes them: in one file, with public names only."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import scirocco as sc


class Place(NamedTuple):
    """A position and nothing else."""

    position: Any


@sc.samplers.pytree_dataclass
class ScaledSGLD(sc.samplers.Mover):
    """θ' = θ + ε s² ĝ + √(2ε) s ξ."""

    known = sc.samplers.Known(gradient_alone=True)

    step_size: Any = None
    scale: Any = 1.0

    def __post_init__(self):
        step_size = sc.schedules.normalise(self.step_size, "ScaledSGLD", automatic=True)
        object.__setattr__(self, "step_size", step_size)

    def init(self, params, key):
        return Place(params)

    def step(self, state, gradient, noise, number):
        eps = self.sizes(state.position, number)

        def move(p, e, g, xi):
            return p + e * self.scale**2 * g + jnp.sqrt(2.0 * e) * self.scale * xi

        return Place(jax.tree.map(move, state.position, eps, gradient.total, noise))


class Watched(NamedTuple):
    """A position, and what was said of the one before it."""

    position: Any
    value: Any
    variance: Any


@sc.samplers.pytree_dataclass
class Watching(ScaledSGLD):
    """The same chain as ScaledSGLD, and the value of the log density before each step in its statistics."""

    needs = sc.samplers.Needs(value=True)

    def init(self, params, key):
        return Watched(params, jnp.zeros(()), jnp.zeros(()))

    def step(self, state, gradient, noise, number):
        moved = super().step(Place(state.position), gradient, noise, number)
        variance = gradient.value_variance
        return Watched(moved.position, gradient.value, jnp.full((), jnp.nan) if variance is None else variance)

    def stats(self, state):
        return {"value": state.value, "value_variance": state.variance}


@sc.samplers.pytree_dataclass
class WatchingNoise(Watching):
    """Asks for the covariance of the gradient, too."""

    needs = sc.samplers.Needs(value=True, noise="diagonal")


class Chosen(NamedTuple):
    """A position, and whether the last proposal was taken."""

    position: Any
    accepted: Any


@sc.samplers.pytree_dataclass
class MALA(sc.samplers.Proposer):
    """Langevin steps as proposals of a Metropolis step: with sc.Full its law is exactly the posterior."""

    needs = sc.samplers.Needs(value=True)

    step_size: Any = None
    biased: float = 0.0
    """Added to the log ratio: any other value than 0 breaks the accept step."""

    def __post_init__(self):
        step_size = sc.schedules.normalise(self.step_size, "MALA", automatic=True)
        object.__setattr__(self, "step_size", step_size)

    def init(self, params, key):
        return Chosen(params, jnp.zeros(()))

    def noise(self, key, params):
        move, choose = jax.random.split(key)
        return super().noise(move, params), jax.random.uniform(choose)

    def step(self, state, gradient, noise, number):
        eps = self.sizes(state.position, number)
        move = jax.tree.map(
            lambda p, e, g, xi: p + e * g + jnp.sqrt(2.0 * e) * xi, state.position, eps, gradient.total, noise[0]
        )
        return Chosen(move, jnp.ones(()))

    def accept(self, state, gradient, proposal, there, noise, number):
        eps = self.sizes(state.position, number)

        def log_transition(to, start, slope):
            terms = jax.tree.map(lambda a, b, e, g: jnp.sum((a - b - e * g) ** 2 / (4 * e)), to, start, eps, slope)
            return -sum(jax.tree.leaves(terms))

        forth = log_transition(proposal.position, state.position, gradient.total)
        back = log_transition(state.position, proposal.position, there.total)
        ratio = (
            there.value
            - gradient.value
            + back
            - forth
            + self.biased * (jax.tree.leaves(proposal.position)[0].sum() - jax.tree.leaves(state.position)[0].sum())
        )
        taken = jnp.log(noise[1]) < ratio
        stay = Chosen(state.position, jnp.zeros(()))
        return sc.samplers.select(taken, (proposal, there), (stay, gradient))

    def stats(self, state):
        return {"accepted": state.accepted}
