"""PyMC's transforms to the real line, as `sc.transforms`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Self

import jax.numpy as jnp

from scirocco.bridges._pymc_graph import Function, Grouping, of_one_group
from scirocco.bridges._pymc_walk import Variable, copy, inputs_of
from scirocco.transforms import Transform
from scirocco.types import Array, Params


@dataclass(frozen=True, eq=False)
class PymcTransform(Transform):
    """A transform of PyMC; it may depend on other variables, as the bounds of pm.Uniform("u", 0, top)."""

    name: str
    maps: tuple[Callable[..., Sequence[Array]], ...] = field(repr=False)
    """To the user's units, back, and the log-Jacobian: functions of the value and of the variables in `depends_on`."""
    depends_on: tuple[str, ...] = ()
    others: tuple[Any, ...] = field(default=(), repr=False)
    axis: int | None = None
    """For the value of one group: the axis of the groups, which it does not have."""

    @property
    def domain(self) -> str:  # type: ignore[override]
        """A description of the set, for messages."""
        return f"the support of the variable; PyMC's transform is {self.name}"

    @property
    def functions(self) -> tuple[Callable[[Params], Any], ...]:
        """The other variables."""
        return tuple(map(itemgetter, self.depends_on))

    def at(self, params: Params) -> Self:
        """With these values of the other variables."""
        return replace(self, others=tuple(params[name] for name in self.depends_on))

    def forward(self, u: Array) -> Array:
        """To the user's units (`backward` in PyMC)."""
        return self._mapped(0, u)

    def inverse(self, x: Array) -> Array:
        """To the real line."""
        return self._mapped(1, x)

    def log_det(self, u: Array) -> Array:
        """PyMC's log-Jacobian."""
        u = u if self.axis is None else jnp.expand_dims(u, self.axis)
        return jnp.sum(self.maps[2](u, *self.others)[0])

    def _mapped(self, way: int, x: Array) -> Array:
        if self.axis is None:
            return self.maps[way](x, *self.others)[0]
        return jnp.squeeze(self.maps[way](jnp.expand_dims(x, self.axis), *self.others)[0], self.axis)

    def contains(self, x: Array) -> Array:
        """The way to the real line and back exists."""
        u = self.inverse(x)
        return jnp.all(jnp.isfinite(u)) & jnp.allclose(self.forward(u), x, rtol=1e-3, atol=1e-3)


def find_transform(
    model: Any, rv: Variable, values: Mapping[str, Variable], grouping: Grouping | None = None
) -> PymcTransform | None:
    """PyMC's transform of a free variable, or of the value of one group; None where it has none."""
    transform = model.rvs_to_transforms[rv]
    if transform is None:
        return None
    real, value = model.rvs_to_values[rv].type(), values[rv.name].type()
    graphs = [
        transform.backward(real, *rv.owner.inputs),
        transform.forward(value, *rv.owner.inputs),
        transform.log_jac_det(real, *rv.owner.inputs),
    ]
    graphs = copy(graphs, {other: values[other.name] for other in model.free_RVs})
    axis = None
    if grouping is not None:
        axis, ends = grouping.axes[rv.name], (real, value)
        one, also = (of_one_group({rv.name: end}, grouping)[rv.name] for end in ends)
        graphs = copy(graphs, {real: one, value: also}, {grouping.size: 1})
        real, value = one, also
    needed = inputs_of(graphs)
    others = tuple(name for name, other in values.items() if other in needed)
    inputs = [[start, *(values[name] for name in others)] for start in (real, value, real)]
    maps = tuple(Function(given, [graph]) for given, graph in zip(inputs, graphs, strict=True))
    return PymcTransform(type(transform).__name__, maps, others, axis=axis)
