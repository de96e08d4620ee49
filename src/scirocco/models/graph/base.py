"""What all models of networks share: reading the network, running the chains, files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from scirocco import _checks
from scirocco.data.arrays import ArraySource
from scirocco.errors import InvalidValueError
from scirocco.models import fits
from scirocco.models.fits.mixing import warn_if_unmixed
from scirocco.models.graph.edges import Array, Graph, GraphLike, pair_numbers, read
from scirocco.models.graph.gibbs import num_batches
from scirocco.models.graph.links import LinkResults, Nodes
from scirocco.run.encoding import decode, encode
from scirocco.run.progress import Callback, as_callbacks
from scirocco.run.result import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BATCH, _LEAST_EPOCHS, _MOST_EPOCHS, _WORK = 10_000, 100, 4_000, 10**9
_MOST_DRAWN = 500, 10_000
"""Nodes and edges of a network that is small enough for a picture."""


class Chains(NamedTuple):
    """The chains of a model, for `fits.Fit`."""

    known: dict[str, Any]
    """Settings that define the chains, as plain JSON."""
    spec: fits.Spec
    make: Any
    """Makes the chain with a number."""
    words: str
    """What was chosen."""
    poisson: bool


class GraphModel(fits.Conventions, LinkResults):
    """A model of a network with chains of its own."""

    _kind: ClassVar[fits.Kind]
    _watched: ClassVar[tuple[str, ...]]
    """Draws whose chains are compared."""
    _advice: ClassVar[str]
    _presets: ClassVar[dict[str, dict[str, Any]]]
    """Settings of papers."""
    directed: bool | None = None
    batch_size: int | None
    num_samples: int
    num_burnin: float
    thin: int | None
    num_chains: int
    seed: int

    @classmethod
    def preset(cls, name: str, number: int = 2, **changes: Any) -> Self:
        """A model with the settings of a paper, see the page on networks; `number` of blocks or communities.

        `changes` are other arguments.
        """
        _checks.choice(name, "preset", tuple(cls._presets))
        make: Callable[..., Self] = cls
        return make(number, **{**cls._presets[name], **changes})

    def _chains(self, graph: Graph, unseen: Array | None, batch: int) -> Chains:
        """The chains of a network; `unseen` are pairs that are not used."""
        raise NotImplementedError

    def _in_one_order(self, raw: dict[str, Array]) -> dict[str, Array]:
        """Draws (chain, draw, ...) with blocks or communities in the same order in all of them."""
        raise NotImplementedError

    def _compared(self) -> dict[str, Array]:
        """Draws (chain, draw, ...) whose chains are compared."""
        return {name: self.draws_[name] for name in self._watched}

    def _settle(self, run: Run, nodes: Nodes) -> None:
        """Set the results from the draws of a run."""
        self.__dict__.pop("draws_", None)
        self.run_, self.nodes_ = run, nodes
        if run.draws is None or not run.num_draws:
            return
        self.draws_ = self._in_one_order({name: np.asarray(values) for name, values in run.draws.items()})
        self.run_ = dataclasses.replace(run, converted=(self.draws_, self._coordinates()))

    def _coordinates(self) -> dict[str, list[Any]]:
        """Labels of axes of the draws."""
        raise NotImplementedError

    @property
    def _width(self) -> int:
        """Number of blocks or communities."""
        raise NotImplementedError

    def fit(
        self,
        graph: GraphLike,
        y: object = None,
        *,
        nodes: Any = None,
        held_out: Any = None,
        num_steps: int | None = None,
        num_epochs: float | None = None,
        max_seconds: float | None = None,
        store: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
    ) -> Self:
        """Sample from the posterior given a network.

        Parameters
        ----------
        graph
            Edges (edges, 2), or (edges, 3) with weights, as an array, a list, an iterator, a data frame, a CSV file or
            a data folder with columns source, target and perhaps weight; a SciPy sparse adjacency matrix; a networkx or
            igraph graph. Nodes are texts or integers. Self-loops are dropped.
            Pairs that occur several times count once, unless there are weights, which are added: whole numbers >= 0.
        y
            Ignored.
        nodes
            The names of all nodes (or their number, for 0 to n - 1), if some have no edge and the input does not name
            them. A node without edges belongs to the blocks with few edges.
        held_out
            Pairs (pairs, 2) that are not used: whether they have an edge is treated as unknown.
        num_steps, num_epochs, max_seconds
            The length of the run, including burn-in; give at most one of the three. An epoch draws all blocks once. By
            default `num_samples` times `thin` steps after the burn-in if `thin` is given, otherwise 100 epochs, up to
            4,000 for small networks.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`.
        """
        found = read(graph, self.directed, nodes)
        unseen = None if held_out is None else _unseen(held_out, found)
        batch = _BATCH if self.batch_size is None else _checks.positive_int(self.batch_size, "batch_size")
        chains = self._chains(found, unseen, batch)
        length = fits.check_length(
            num_steps,
            num_epochs,
            max_seconds,
            num_rows=num_batches(found.num_nodes, batch),
            batch_size=1,
            default_epochs=min(_MOST_EPOCHS, max(_LEAST_EPOCHS, _WORK // (len(found.source) * self._width))),
            planned_steps=fits.planned_steps(*self._draws_wanted()),
        )
        fit = self._fit(found, unseen, chains, length)
        if store is None:
            fit.warn_if_large("Pass a `store`, or fewer draws (num_samples).")
        told = Nodes(found.names, found.num_nodes, found.directed, chains.poisson, _to_draw(found))
        run = fits.run_fit(
            fit,
            store=store,
            resume=resume,
            overwrite=overwrite,
            callbacks=as_callbacks(callbacks),
            progress=progress,
            extra=self._extra(told),
        )
        if run.status == "interrupted" and not run.num_draws:
            raise KeyboardInterrupt
        self._settle(dataclasses.replace(run, preparation={"chosen": chains.words}), told)
        if "draws_" in self.__dict__:
            warn_if_unmixed(self._compared(), self._kind.words.removeprefix("a "), self._advice)
        return self

    def plot(self, interval: float = 0.9) -> Figure:
        """A matplotlib figure: the network with the colours of its blocks if it is small, and the shares of the blocks.

        Uncertain nodes have a ring, in the colour of the second block. Save it with `figure.savefig("blocks.pdf")`.
        """
        from scirocco.models.graph import plotting

        return plotting.plot(self, interval)

    def to_arviz(self) -> Any:
        """Convert the draws to ArviZ, with the blocks (or communities) of all draws in one order."""
        self._check_fitted()
        return fits.to_arviz(self._kind, self.run_, self.draws_, dict(self.run_.stats), self._coordinates())

    # -- on disk ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the fitted model: draws as a Zarr group, settings and names of nodes; no pickles and no code."""
        self._check_fitted()
        draws = {name: np.asarray(values) for name, values in (self.run_.draws or {}).items()}
        stats = {name: np.asarray(values) for name, values in self.run_.stats.items()}
        fits.save(self._kind, draws, stats, {"sampler": "gibbs"}, self._extra(self.nodes_), path, overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a model from `save`, or from the `store` of a fit, finished or not."""
        from scirocco.run.loading import load

        extra = fits.load(cls._kind, path).extra
        model = cls(**{name: decode(value, name) for name, value in extra["params"].items()})
        known = extra["nodes"]
        names = None if known["names"] is None else tuple(known["names"])
        model._settle(load(path), Nodes(**(known | {"names": names})))
        return model

    # -- inside -------------------------------------------------------------------------------------------------------

    def _extra(self, nodes: Nodes) -> dict[str, Any]:
        params = {
            name: encode(value.item() if isinstance(value, np.generic) else value)
            for name, value in self.get_params().items()
        }
        return {
            "params": params,
            "nodes": nodes._asdict() | {"names": None if nodes.names is None else list(nodes.names)},
        }

    def _draws_wanted(self) -> tuple[int, float, int | None]:
        """`num_samples`, `num_burnin` and `thin`, checked."""
        return fits.check_draws(self.num_samples, self.num_burnin, self.thin)

    def _fit(self, graph: Graph, unseen: Array | None, chains: Chains, length: fits.Length) -> fits.Fit:
        num_samples, num_burnin, thin = self._draws_wanted()
        num_chains = _checks.positive_int(self.num_chains, "num_chains")
        seed = _checks.positive_int(self.seed, "seed", minimum=0)
        arrays = {"source": graph.source, "target": graph.target, "weight": graph.weight}
        if unseen is not None and len(unseen):
            arrays["unseen"] = unseen

        def make(number: int) -> Any:
            chain = chains.make(number)
            if length.max_seconds is not None:  # it is for sampling, not for compiling and short chains
                chain.advance(0)
            return chain

        return fits.Fit(
            self._kind,
            {"sampler": "gibbs", **chains.known, "directed": graph.directed, "num_nodes": graph.num_nodes},
            lambda: "-".join(ArraySource({name: part}).fingerprint() for name, part in arrays.items()),
            len(graph.source),
            chains.spec,
            lambda: [make(number) for number in range(num_chains)],
            num_chains,
            num_samples,
            seed,
            length,
            num_burnin,
            thin,
            capacity=8 if graph.num_nodes < 10_000 else 1,
            chosen=f"{self._kind.name}: {chains.words}",
        )


def _to_draw(graph: Graph) -> list[list[int]] | None:
    """Edges of a small network."""
    if graph.num_nodes > _MOST_DRAWN[0] or len(graph.source) > _MOST_DRAWN[1]:
        return None
    return [graph.source.tolist(), graph.target.tolist()]


def _unseen(held_out: Any, graph: Graph) -> Array:
    pairs = pair_numbers(held_out, graph.names, graph.num_nodes)
    if np.any(pairs[:, 0] == pairs[:, 1]):
        raise InvalidValueError("`held_out` contains a pair of a node with itself.")
    return pairs
