"""The interface between a run and a model of any kind."""

from __future__ import annotations

import abc
import dataclasses
import gc
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from scirocco._adjustable import Adjustable
from scirocco.errors import InvalidTypeError
from scirocco.types import Array, Key, Params, PyTree, Rows


@dataclasses.dataclass
class MapLimits(Adjustable):
    """When compiled programs are dropped."""

    look_every: int = 8
    """Models that are made from one count of the maps to the next."""
    share: float = 0.5
    """Share of the maps that programs may use: others in the process need maps, too."""


ROOM = MapLimits()
MAPS, MAPS_LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
_calls = itertools.count(1)


def make_room() -> None:
    """Drop this library's compiled programs when they use up the memory maps of the process.

    Programs are compiled for a model, and kept for the next run of it. Each takes memory maps, of which Linux allows
    65,530 (some 250 to 450 models); beyond that the compiler crashes. Models that are still in use are compiled again.
    """
    if next(_calls) % ROOM.look_every:
        return
    try:
        used, limit = MAPS.read_bytes().count(b"\n"), int(MAPS_LIMIT.read_text())
    except (OSError, ValueError):  # other systems have no such limit
        return
    if used > ROOM.share * limit:
        for name, module in list(sys.modules.items()):
            for value in list(vars(module).values()) if name.partition(".")[0] == "scirocco" else ():
                clear = getattr(value, "clear_cache", None)
                if callable(clear) and not isinstance(value, type):
                    clear()
        gc.collect()


class WithValue(NamedTuple):
    """A gradient and the log density it belongs to: of one row, of a sum over rows, or of the posterior."""

    gradient: PyTree
    value: Array


def without_value(tree: PyTree) -> PyTree:
    """The tree with every `WithValue` in it replaced by its gradient."""

    def is_pair(node: Any) -> bool:
        return isinstance(node, WithValue)

    return jax.tree.map(lambda node: node.gradient if is_pair(node) else node, tree, is_leaf=is_pair)


class SomeRows(Protocol):
    """The part of a data table that a model may read before the run."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""

    def spread_rows(self, count: int) -> Rows:
        """Rows spaced evenly over the data."""


class ReadableRows(Protocol):
    """The part of a data source that the check of a user's functions needs."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""

    @property
    def row_spec(self) -> PyTree:
        """Shapes and dtypes of one row."""

    def read(self, begin: int, end: int) -> Rows:
        """Some rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known about a model, and what it offers in addition to what every run requires."""

    drive: str
    """The kind of the sum: "gradient", "counts" or "blocks". A sampler declares which one it needs."""
    takes_key: bool = False
    """Whether the summand is random (latent variables drawn for each row)."""
    has_density: bool = False
    """Whether it is the log density of all parameters, whose curvature can be computed (`sc.Model`)."""
    has_rows: bool = True
    """Whether its data have rows; otherwise they are None (`sc.Model(log_density=...)`)."""
    has_value: bool = False
    """Whether `summand` and `combine` yield a `WithValue`."""
    groups: str | None = None
    """The column of the data with the group of each row, if a datum is a group (`sc.HierarchicalModel`)."""
    transforms: PyTree | None = None
    """The constraints of the parameters."""
    dims: Mapping[str, Sequence[str | None]] = dataclasses.field(default_factory=dict)
    """The names of the axes of parameters and derived quantities."""
    coords: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    """Labels along named axes."""
    row_cost: Callable[[PyTree], float] = lambda row_spec: 1.0
    """`row_cost(row_spec)`: the cost of a row, in units of one of a plain model: set-ups look at fewer rows if it is
    high."""
    derive: Callable[[Params], dict[str, np.ndarray]] | None = None
    """`derive(draws)`: quantities that are computed from draws, leaves (chain, draw, ...)."""
    auxiliary: Callable[[Params, Rows, Key | None], PyTree] | None = None
    """`auxiliary(params, rows, key)`: the latent variables that the likelihood draws for these rows."""
    valued: Callable[..., Posterior] | None = None
    """The same posterior with its log density next to the gradient: its sums and drives are `WithValue`. That of a
    `has_density` takes a reference, see `valued`."""
    bare: Posterior | None = None
    """The posterior that this one with its log density was made from."""
    finer: Callable[[], Posterior] | None = None
    """The same posterior, computed more precisely, where it is a numerical approximation."""


class Posterior(abc.ABC):
    """A posterior whose data enter through a sum over the rows.

    Samplers move a *position*; the user sees *parameters*. A sampler is driven by `combine(position, total)`, computed
    from the prior and an estimate of the sum of `summand` over all rows. Models are compared and hashed by the user's
    functions, because compiled programs are kept for each.
    """

    @property
    @abc.abstractmethod
    def facts(self) -> Facts:
        """What is known about it."""

    # -- positions and parameters ---------------------------------------------------------------------------

    @abc.abstractmethod
    def constrain(self, position: Params) -> Params:
        """From the sampler's position to the user's parameters."""

    @abc.abstractmethod
    def unconstrain(self, params: Params) -> Params:
        """From the user's parameters to a position."""

    def place(self, position: Params, table: SomeRows, key: Key) -> Params:
        """Where the sampler starts if the user starts at `position`; by default there."""
        return position

    def check_start(self, params: Params, source: ReadableRows, batch_size: int) -> None:  # noqa: B027
        """Raise an error for values outside their domain, and for functions whose results have the wrong form.

        The user's functions are traced on shapes alone.
        """

    def explain_bad_start(self, position: Params, table: SomeRows, unhappy: list[str]) -> None:  # noqa: B027
        """Raise an error for what is not finite at the start; `unhappy` names such parameters (empty: unknown)."""

    # -- what drives a sampler ------------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def summand(self) -> Any:
        """f in Σ_i f(θ, x_i)."""

    @abc.abstractmethod
    def combine(self, position: Params, total: PyTree) -> PyTree:
        """The sampler's input: the exact part of the prior, and an estimate `total` of the sum over the data."""

    def blank_total(self, position: Params, row_spec: PyTree) -> PyTree:
        """A value with the structure and shapes of the sum over the rows: by default those of a position."""
        return position

    # -- values ---------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def look(self, position: Params, rows: Rows, key: Key | None = None) -> Array:
        """A number that is finite if the model can be evaluated at `position` with these rows."""

    @abc.abstractmethod
    def values(self, position: Params, rows: Rows) -> dict[str, Array]:
        """Values of the model by name: when a run is resumed, models with equal values are taken to be the same."""

    @abc.abstractmethod
    def stats(self, total: PyTree) -> dict[str, Array]:
        """Statistics of an estimate, for the user."""


class Wrapper(Posterior):
    """A posterior that drives samplers in another way than `model`, and says what that one says otherwise."""

    model: Any

    def constrain(self, position: Params) -> Params:
        """The model's."""
        return self.model.constrain(position)

    def unconstrain(self, params: Params) -> Params:
        """The model's."""
        return self.model.unconstrain(params)

    def look(self, position: Params, rows: Rows, key: Key | None = None) -> Array:
        """The model's."""
        return self.model.look(position, rows, key)

    def values(self, position: Params, rows: Rows) -> dict[str, Array]:
        """The model's."""
        return self.model.values(position, rows)

    def stats(self, total: PyTree) -> dict[str, Array]:
        """The model's."""
        return self.model.stats(total)


def valued(model: Posterior, reference: Array | None = None) -> Posterior:
    """The same posterior with its log density next to the gradient; relative to that at a `reference`, if given."""
    if model.facts.valued is None:
        raise InvalidTypeError(f"a {type(model).__name__} has no log density, so a sampler cannot use its value.")
    return model.facts.valued() if reference is None else model.facts.valued(reference)


def bare(model: Posterior) -> Any:
    """The posterior that `valued` was made from; itself otherwise."""
    return model if model.facts.bare is None else model.facts.bare


def finer(model: Posterior) -> Any:
    """The same posterior, computed more precisely where it is a numerical approximation; otherwise itself."""
    return model if model.facts.finer is None else model.facts.finer()


def blank(spec: PyTree) -> PyTree:
    """Zeros of these shapes and dtypes."""
    return jax.tree.map(lambda s: jax.numpy.zeros(s.shape, s.dtype), spec)


def one_row(row_spec: PyTree) -> PyTree:
    """A batch of one row, all zeros."""
    return jax.tree.map(lambda s: jax.numpy.zeros((1, *s.shape), s.dtype), row_spec)
