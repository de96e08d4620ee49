"""What the chains of all samplers of a mixture have in common: the order of the rows, and what a draw is."""

from __future__ import annotations

import abc
import warnings
from types import ModuleType
from typing import Any

import numpy as np

from scirocco._extras import later
from scirocco.data.arrays import ArraySource
from scirocco.errors import SciroccoWarning
from scirocco.models._core.chain import Arrays, Chain, MixturePurpose, Spec
from scirocco_latent.dp.families import BaseMeasure
from scirocco_latent.dp.rows import Array, RealRows, Rows
from scirocco_latent.dp.settings import MixtureSettings, first_concentration

collapsed_kernels = later("scirocco_latent.dp._collapsed")
"""Kernels of the collapsed sampler."""
slice_kernels = later("scirocco_latent.dp._slices")
"""Kernels of the slice sampler."""
order_kernels = later("scirocco_latent.dp._common")
"""Kernels of random row orders."""
_ROWS = {"multinomial": later("scirocco_latent.dp._counts_rows"), "gaussian": later("scirocco_latent.dp._normal_rows")}
_CHUNK = 16
"""Neighbours that stay together in batches: their labels fill one cache line."""
_MANY_ROWS = 4096
"""Rows from which neighbours stay together: fewer fit in a cache in any order."""


def row_kernels(kind: str) -> ModuleType:
    """`sweep`, `tally` and `allocate`, the loops over rows of a family."""
    return _ROWS[kind]()


class MixtureChain(Chain):
    """A chain with a label for each row, and clusters; the rows are in a random order.

    A batch consists of chunks of neighbours.
    """

    def __init__(self, rows: Rows, family: BaseMeasure[Any], settings: MixtureSettings, seed: int, number: int):
        super().__init__(seed, number)
        self.family, self.settings = family, settings
        self.num_rows: int = rows.num_rows
        self.alpha = first_concentration(settings.concentration)
        """The concentration."""
        self._warned = False

    def _first_labels(self, num_clusters: int) -> tuple[Array, np.random.Generator]:
        """Initial labels, uniform; and the generator, for what else a chain starts with."""
        rng = np.random.default_rng([self.seed, MixturePurpose.ROWS])
        return rng.integers(0, num_clusters, self.num_rows).astype(np.int32), rng

    @property
    @abc.abstractmethod
    def num_clusters(self) -> int:
        """Number of clusters that have rows."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator) -> tuple[Array, float, dict[str, Array]]:
        """Weights of the clusters that have rows and of the rest, and the parameters of these clusters."""

    @property
    def steps_a_pass(self) -> int:
        """Steps that draw all labels once."""
        return -(-self.num_rows // self.settings.batch_size)

    def batch(self) -> Array:
        """The rows of this step: those of a pass are all rows, in an order that depends on the pass."""
        number, part = divmod(self.step, self.steps_a_pass)
        begin, end = (k * self.num_rows // self.steps_a_pass for k in (part, part + 1))
        return self.some_rows(begin, end - begin, number, MixturePurpose.ROWS)

    def some_rows(self, first: int, count: int, order: int, purpose: int) -> Array:
        """`count` rows of a random order of all rows, starting at position `first`."""
        out = np.empty(count, np.int64)
        seed = np.array([self.seed, (order << self.PURPOSE_BITS) + purpose], np.uint64)
        chunk = _CHUNK if self.num_rows >= _MANY_ROWS else 1
        order_kernels().rows_at(first, self.num_rows, chunk, *seed, out)
        return out

    def kept(self) -> tuple[Arrays, dict[str, float]]:
        """A posterior draw: clusters by decreasing weight, padded with empty ones; and its statistics."""
        rng = np.random.default_rng(list(self.words(MixturePurpose.DRAW)))
        weights, rest, parameters = self.draw(rng)
        capacity = self.settings.keep_clusters
        order = np.argsort(-weights, kind="stable")[:capacity]
        if len(weights) > capacity:
            rest = max(rest, 1.0 - float(weights[order].sum()))
            self._warn(len(weights))
        draws = {"weights": weights[order], **{name: part[order] for name, part in parameters.items()}}
        draws = {name: _padded(part, capacity, self.family.dtype) for name, part in draws.items()}
        draws["rest"] = np.asarray(rest, self.family.dtype)
        stats = {
            "num_clusters": float(self.num_clusters),
            "concentration": float(self.alpha),
            "passes": self.step / self.steps_a_pass,
        }
        return draws, stats

    def _warn(self, count: int) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"a draw has {count} clusters, but only the {self.settings.keep_clusters} largest are kept; the others "
                f"are treated as empty. Set keep_clusters={2 * count} to keep them.",
                SciroccoWarning,
                stacklevel=2,
            )


def _padded(values: Array, capacity: int, dtype: type[np.floating]) -> Array:
    out = np.zeros((capacity, *values.shape[1:]), dtype)
    out[: len(values)] = values
    return out


def spec(family: BaseMeasure[Any], settings: MixtureSettings) -> Spec:
    """Arrays of one draw, with their shapes; in the precision of the family."""
    num = settings.keep_clusters
    parameters = {name: (num, *shape) for name, shape in family.shapes().items()}
    stats = dict.fromkeys(("num_clusters", "concentration", "passes"), ())
    made = Spec.of({"weights": (num,), "rest": (), **parameters}, stats)
    return made._replace(draws={name: leaf.update(dtype=family.dtype) for name, leaf in made.draws.items()})


def fingerprint(family: BaseMeasure[Any], rows: Rows) -> str:
    """Fingerprint of the data."""
    if isinstance(rows, RealRows):
        return ArraySource({"values": rows.values}).fingerprint()
    parts = [ArraySource({"part": part}).fingerprint() for part in rows.data]
    return "-".join([str(family.width), *parts])
