"""The precisions of the tables, drawn from their conditional law at every step."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from scirocco._tree import pytree_dataclass, rebuilt, static
from scirocco.errors import InvalidTypeError
from scirocco.models.factorisation.density import TABLES
from scirocco.samplers import Gradient, Sampler, Scales
from scirocco.types import Array, Key, Params, PyTree

PRECISIONS = "precisions"


def gamma_conditional(table: Array, shape: float, rate: float) -> tuple[float, Array]:
    """Shape and rate of λ given x_k ~ N(0, 1/λ) for each entry of `table`, when λ ~ Gamma(shape, rate).

    Gamma(shape + size/2, rate + Σ x_k²/2).
    """
    return shape + table.size / 2, rate + 0.5 * jnp.vdot(table, table)


class PrecisionState(NamedTuple):
    """Where the chain is, and the inner sampler's state, whose position lacks the precisions."""

    position: Params
    inner: Any


class PrecisionNoise(NamedTuple):
    """The inner sampler's, and a standard Gamma variate for each table: only its rate depends on the state."""

    inner: PyTree
    gammas: Array


@pytree_dataclass
class WithPrecisions(Sampler):
    r"""An inner sampler for the tables, and an exact draw of their precisions after each of its steps.

    .. math:: x' = \text{inner step}(x, ĝ(x, λ)), \qquad
        λ_t' ∼ Gamma(\text{shape} + d_t/2, \; \text{rate} + |x_t'|^2/2)

    Targets what the inner sampler targets: a Gibbs draw leaves the posterior as it is. Cost per step: four Gamma
    variates, and a sum of squares for each table.

    Parameters
    ----------
    inner
        Any sampler that is driven by the gradient alone; step sizes by name speak of the parameters without
        `precisions`.
    shape, rate
        Of the Gamma prior of the precisions, as in the model.
    """

    inner: Sampler
    shape: float = static(default=1.0)
    rate: float = static(default=1.0)

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Sampler):
            raise InvalidTypeError(f"`inner` must be a sampler such as sc.SGLD(1e-4), got {self.inner!r}.")
        if (
            self.inner.noise_kind != "none"
            or self.inner.needs_curvature
            or self.inner.needs_value
            or self.inner.proposes
            or self.inner.driven_by != "gradient"
        ):
            raise InvalidTypeError(
                f"{type(self.inner).__name__} needs more than the gradient: BPMF works with sc.SGLD, "
                "sc.LeafScaledSGLD, sc.SGHMC, sc.BAOAB, sc.SGNHT and sc.BADODAB."
            )

    @property
    def step_size(self) -> Any:
        """The inner sampler's."""
        return self.inner.step_size

    @property
    def temperature(self) -> Any:
        """The inner sampler's."""
        return getattr(self.inner, "temperature", 1.0)

    @property
    def step_order(self) -> int:  # type: ignore[override]
        """The inner sampler's."""
        return self.inner.step_order

    def resolve(self, scales: Scales, params: Params) -> WithPrecisions:
        """With the inner sampler's open numbers filled in."""
        cut = scales._replace(noise=_without(scales.noise), information=_without(scales.information))
        return rebuilt(self, inner=self.inner.resolve(cut, _without(params)))

    def check_params(self, params: Params, num_steps: int) -> None:
        """The inner sampler checks its own."""
        self.inner.check_params(_without(params), num_steps)

    def init(self, params: Params, key: Key) -> PrecisionState:
        """Precisions begin as they are given."""
        return PrecisionState(params, self.inner.init(_without(params), key))

    def noise(self, key: Key, params: Params) -> PrecisionNoise:
        """Normals for the tables, Gamma variates for the precisions."""
        first, second = jax.random.split(key)
        rest = _without(params)
        shapes = jnp.array([self.shape + rest[name].size / 2 for name in TABLES], params[PRECISIONS].dtype)
        return PrecisionNoise(
            self.inner.noise(first, rest), jax.random.gamma(second, shapes, dtype=shapes.dtype)
        )

    def step(self, state: PrecisionState, gradient: Gradient, noise: PyTree, number: Array) -> PrecisionState:
        """The tables move, then their precisions are drawn; positions hold log λ."""
        inner = self.inner.step(state.inner, Gradient(_without(gradient.total)), noise.inner, number)
        rates = jnp.stack([gamma_conditional(inner.position[t], self.shape, self.rate)[1] for t in TABLES])
        drawn = jnp.log(noise.gammas) - jnp.log(rates)
        return PrecisionState({**inner.position, PRECISIONS: drawn}, inner)

    def stats(self, state: PrecisionState) -> dict[str, Array]:
        """The inner sampler's."""
        return self.inner.stats(state.inner)


def _without(tree: PyTree) -> PyTree:
    """All but the precisions."""
    return {name: leaf for name, leaf in tree.items() if name != PRECISIONS}
