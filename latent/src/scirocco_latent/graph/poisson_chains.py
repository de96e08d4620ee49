r"""Chains of mixed memberships with weights of nodes.

The exact sampler stores the communities of each edge and the weights of all nodes. A step takes a batch of nodes, draws
the communities of their edges, :math:`P(k, l) ∝ φ_{ik} Λ_{kl} ρ_j φ_{jl}`, the weights of each node,

.. math:: φ_{ik} ~ Gamma(a + n_{ik}, r + \textstyle\sum_{j ≠ i, l} Λ_{kl} ρ_j φ_{jl} + ...),

and after each pass the block matrix Λ, or, if edges are inside communities (Λ = I), after each step the rate r of the
prior of weights. ρ are factors of the nodes that edges of directed networks enter, otherwise 1. Pairs without an edge
enter through the sums of weights alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from scirocco._extras import later
from scirocco.errors import DivergenceError
from scirocco.models._core.chain import BlockPurpose
from scirocco.simplex import tables as gammas
from scirocco_latent.graph.edges import Array
from scirocco_latent.graph.gibbs import BlockPrior, Network, NodeChain, generator, seed_words
from scirocco_latent.graph.starts import clusters, embedding

_REFRESH = 20
"""Passes between two references of control-variate counts."""
METHODS = gammas.METHODS | {"scir_cv_counts": gammas.METHODS["scir"]}
"""How the compiled kernels move variables, by sampler."""
_LARGEST = 1e30
"""Sum of weights at which they have diverged."""
_STATE = ("weights", "sums", "rate", "matrix", "receive", "fro", "entering")
"""What all chains need in the next step."""
kernels = later("scirocco_latent.graph._poisson")
"""The compiled kernels."""


class PoissonPrior(NamedTuple):
    """The prior of mixed memberships with weights."""

    num: int
    """K."""
    shape: float
    """a."""
    scale: float
    """Prior mean of the rate of weights, if edges are inside communities."""
    edges: float = 0.0
    """c and d of Λ ~ Gamma(c, d) of a general model, otherwise 0."""
    pairs: float = 0.0
    spread: float = 1.0
    """ρ ~ Gamma(s, s)."""

    @property
    def general(self) -> bool:
        """Whether there is a block matrix."""
        return self.edges > 0


class GradientMethod(NamedTuple):
    """A sampler with stochastic gradients."""

    sampler: str
    step_size: float
    num_edges: int
    num_pairs: int = 0
    """Pairs without an edge of a node in a step, if their number matters."""

    def renews(self, number: int, batches: int) -> bool:
        """Whether a step begins with a new reference: of SCIR-CV once in the relaxation time of a weight."""
        every = {"scir_cv": max(1, round(1.0 / self.step_size)), "scir_cv_counts": _REFRESH}
        return self.sampler in every and number % (every[self.sampler] * batches) == 0

    def noise(self, net: Network) -> tuple[Array, float]:
        """Bounds of the variance of an estimated count over the count: of each node, and the mean over edges."""
        ratio = np.zeros(net.num_nodes)
        for pointers, _, units in (net.leaving, net.entering) if net.directed else (net.leaving,):
            sizes, sources = np.diff(pointers), np.repeat(np.arange(net.num_nodes), np.diff(pointers))
            total, squares = (np.bincount(sources, units**power, net.num_nodes) for power in (1, 2))
            own = np.where(sizes > self.num_edges, sizes / self.num_edges, 0.0) * squares / np.maximum(total, 1)
            ratio = np.maximum(ratio, own)
        degrees = net.degrees.sum(axis=1)
        return ratio, float(ratio @ degrees / max(degrees.sum(), 1))


class EdgeUnits(NamedTuple):
    """Edges by their first node, and the place of each of their units."""

    pointers: Array
    ends: Array
    places: Array


def units(net: Network) -> EdgeUnits:
    """Edges of a network, each at its source, or at its smaller node if it has no direction."""
    (_, ends, weights), sources = net.leaving, net.sources
    own = sources < ends if not net.directed else np.ones(len(ends), bool)
    counts = np.bincount(sources[own], minlength=net.num_nodes)
    places = np.concatenate([[0], np.cumsum(weights[own].astype(np.int64))])
    return EdgeUnits(np.concatenate([[0], np.cumsum(counts)]), ends[own], places)


class MixedChain(NodeChain):
    """One chain: a step draws communities of edges and weights of a batch of nodes."""

    STATE: ClassVar[tuple[str, ...]] = (*_STATE, "colours", "others")

    def __init__(self, net: Network, own: EdgeUnits, form: PoissonPrior, batch: int, seed: int, number: int):
        super().__init__(net, batch, seed, number)
        self.units, self.form = own, form
        self.colours = np.empty(0, np.int16)
        self.others = np.empty(0, np.int16)
        self.pairs: Array = np.empty((0, 0), np.int64)
        self.weights, self.matrix = np.empty((0, 0)), np.empty((0, 0))
        self.receive = np.ones(net.num_nodes if net.directed else 0)
        self.to, self.fro = np.empty((0, form.num)), np.empty((0, form.num))
        self.sums, self.entering = np.empty(0), np.empty(0)
        self.arrived = np.ascontiguousarray(net.degrees[:, -1])
        self.rate = 1.0 if form.general else form.scale

    def move(self) -> None:
        """A batch of nodes, and the block matrix, or the rate of the prior."""
        nodes, place = self._batch()
        self.update(nodes)
        if self.form.general:
            if place == self.batches - 1:
                self._draw_matrix()
                self.tabulate()
        else:
            rng = generator(self.words(BlockPurpose.MATRIX))
            shape = 1.0 + self.form.shape * self.weights.size
            total = self.sums if not self.net.directed else self.entering
            self.rate = float(rng.gamma(shape) / (1.0 / self.form.scale + total.sum()))

    def update(self, nodes: Array) -> None:
        """Draw the communities of the edges of some nodes, and their weights."""
        kernels().sweep(
            nodes,
            *self.units,
            self.unseen_arrays,
            self.colours,
            self.others,
            self.counts,
            self.pairs,
            self.state_arrays,
            self.arrived,
            self.form.shape,
            self.rate,
            self.form.spread,
            seed_words(self.words(BlockPurpose.BLOCKS)),
        )

    def _draw_matrix(self) -> None:
        shapes, rates = self.shapes_and_rates(self.pairs + self.pairs.T if not self.net.directed else self.pairs)
        found = generator(self.words(BlockPurpose.MATRIX)).gamma(shapes) / rates
        self.matrix = np.maximum(self.net.symmetric(found), 1e-200)

    def shapes_and_rates(self, pairs: Array) -> tuple[Array, Array]:
        """Shapes and rates of the block matrix given units of edges by the communities of both ends.

        Those of undirected networks are counted from either end.
        """
        exposed = self.net.over_pairs(
            self.weights, self.weights * self.receive[:, None] if self.net.directed else self.weights
        )
        if not self.net.directed:
            half = np.where(np.eye(self.form.num, dtype=bool), 0.5, 1.0)
            pairs, exposed = pairs * half, exposed * half
        return self.form.edges + pairs, self.form.pairs + np.maximum(exposed, 0.0)

    @property
    def state_arrays(self) -> tuple[Array, ...]:
        """The current state, as kernels take it."""
        return self.weights, self.to, self.fro, self.sums, self.entering, self.matrix, self.receive

    def tabulate(self) -> None:
        """What follows from the weights, see the kernels."""
        self.to, self.fro = tables(self.weights, self.matrix, self.receive)
        self.sums, self.entering = self.to.sum(axis=0), self.fro.sum(axis=0)

    def _ends(self) -> tuple[Array, Array]:
        """Nodes at both ends of each unit of an edge."""
        pointers, ends, places = self.units
        lengths = np.diff(places)
        sources = np.repeat(np.repeat(np.arange(len(pointers) - 1), np.diff(pointers)), lengths)
        return sources, np.repeat(ends, lengths).astype(np.int64)

    def begin(self) -> None:
        """Communities are clusters of the embedding: of the ends of an edge, or of one of them if it has only one."""
        form = self.form
        rng = np.random.default_rng([self.seed, BlockPurpose.START])
        prior = BlockPrior(form.num, True, True, 1.0, 1.0, 1.0, 1.0)
        labels = clusters(embedding(self.net, prior, rng), form.num, rng)
        sources, targets = self._ends()
        if form.general:
            self.colours, self.others = labels[sources].astype(np.int16), labels[targets].astype(np.int16)
        else:
            either = np.where(rng.random(len(sources)) < 0.5, sources, targets)
            self.colours = labels[either].astype(np.int16)
        self._count()
        self.weights = rng.gamma(form.shape + self.counts)
        if form.general:
            self.weights = np.maximum(self.weights / max(self.weights.sum(axis=1).mean(), 1e-9), 1e-200)
            self.matrix = np.ones((form.num, form.num))
            self._draw_matrix()
        else:
            self.weights = np.maximum(self.weights / np.sqrt(1.0 + self.counts.sum(axis=0)), 1e-200)
        self.tabulate()

    def take_over(self, draw: dict[str, Array]) -> None:
        """Continue from a draw for the first nodes of this network, see `grown`."""
        form = self.form
        self.weights = np.maximum(grown(draw["weights"], self.net), 1e-200)
        self.matrix = np.array(draw.get("block_matrix", np.empty((0, 0))), np.float64)
        self.receive[: len(draw.get("receiving", ()))] = draw.get("receiving", ())
        rng = np.random.default_rng([self.seed, BlockPurpose.START])
        if not form.general:
            shape = 1.0 + form.shape * self.weights.size
            self.rate = float(rng.gamma(shape) / (1.0 / form.scale + self.weights.sum()))
        self.tabulate()
        self.recall(rng)
        self._has_begun = True

    def recall(self, rng: np.random.Generator) -> None:
        """Draw the communities of all edges given weights."""
        sources, targets = self._ends()
        colours = [_drawn(rng, self.weights[i] * self.to[j]) for i, j in _parts(sources, targets, self.form.num)]
        self.colours = np.concatenate(colours).astype(np.int16)
        if self.form.general:
            begin, others = 0, list[Array]()
            for _, j in _parts(sources, targets, self.form.num):
                here = self.colours[begin : begin + len(j)]
                others.append(_drawn(rng, self.matrix[here] * self.weights[j]))
                begin += len(j)
            self.others = np.concatenate(others).astype(np.int16)
        self._count()

    def _count(self) -> None:
        num, (sources, targets) = self.form.num, self._ends()
        general = self.form.general
        there = self.others if general else self.colours
        total = np.zeros(self.net.num_nodes * num, np.int64)
        for side, colours in ((sources, self.colours), (targets, there)):
            total += np.bincount(side * num + colours, minlength=len(total))
        self.counts = total.reshape(-1, num)
        both = self.colours.astype(np.int64) * num + there if general else np.empty(0, np.int64)
        self.pairs = np.bincount(both, minlength=num * num).reshape(num, num)
        if not general:
            self.pairs = np.empty((0, 0), np.int64)

    def kept(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The weights, the shares of the communities in the edges, the block matrix, and statistics."""
        draws = {"weights": self.weights.copy(), "shares": self._shares()}
        if self.form.general:
            draws["block_matrix"] = self.matrix.copy()
        if self.net.directed:
            draws["receiving"] = self.receive.copy()
        return draws, {"log_likelihood": self.log_likelihood(), "passes": self.step / self.batches}

    def _shares(self) -> Array:
        """Shares of the communities in the edges."""
        found: Array = self.counts.sum(axis=0) / max(self.counts.sum(), 1)
        return found

    def log_likelihood(self) -> float:
        """log p(edges | parameters), up to a constant."""
        weights, to, net = self.weights, self.to, self.net
        logs = kernels().log_likelihood(*self.units, weights, to)
        exposed = float(weights.sum(axis=0) @ self.sums) - float((weights * to).sum())
        unseen = (weights[net.first] * to[net.second]).sum()
        return float(logs - exposed / (1 if net.directed else 2) + unseen)

    @property
    def _is_plain(self) -> bool:
        """Whether `to` are the weights."""
        return not self.form.general and not self.net.directed

    def state(self) -> dict[str, Array]:
        """Arrays from which `restore` resumes exactly."""
        return super().state() | ({} if self._is_plain else {"to": self.to})

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the chain from `state`."""
        super().restore(state)
        self.rate = float(self.rate)
        self.to = self.weights if self._is_plain else state["to"].copy()
        self._remember()

    def _remember(self) -> None:
        """What follows from the state."""
        self._count()


class LangevinChain(MixedChain):
    """One chain without communities of edges: weights move with counts estimated from some edges of each node."""

    STATE = (*_STATE, "pairs", "reference", "reference_matrix", "drawn", "drawn_pairs")

    def __init__(self, *given: Any, method: GradientMethod):
        super().__init__(*given)
        self.method = method
        self.reference, self.reference_matrix = np.empty((0, 0)), np.empty((0, 0))
        self.drawn, self.drawn_pairs = np.empty((0, self.form.num)), np.empty((0, 0))
        """Of SCIR-CV: communities of all edges by node, and by both ends, when they were last drawn."""
        self._noise, self._mean_noise = method.noise(self.net)
        self.refer()

    def update(self, nodes: Array) -> None:
        """One step of the weights of these nodes, and of the matrix."""
        method, general = self.method, self.form.general
        if method.renews(self.step, self.batches):
            if method.sampler == "scir_cv":
                self._draw_reference()
            else:
                self.reference, self.reference_matrix = self.weights.copy(), self.matrix.copy()
                self.refer()
        if self.step % self.batches == 0 or self.pairs.dtype != np.float64:
            self.pairs = np.zeros((self.form.num, self.form.num) if general else (0, 0))
        kernels().langevin(
            nodes,
            self.net.leaving,
            self.net.entering,
            self.unseen_arrays,
            self.state_arrays,
            self.referred,
            self.totals,
            self.pairs,
            self.arrived,
            self.form.shape,
            self.rate,
            self.form.spread,
            self.drawn,
            self._noise,
            method.num_edges,
            method.step_size,
            METHODS[method.sampler],
            seed_words(self.words(BlockPurpose.BLOCKS)),
        )
        check_finite(self.sums)

    def _draw_matrix(self) -> None:
        if not len(self.sums):  # the start
            super()._draw_matrix()
            return
        shapes, rates = self.shapes_and_rates(self.pairs + self.total_pairs)
        shapes = np.maximum(shapes, 1e-3 * self.form.edges)  # an estimate of a difference may be too small
        drawn = self.shapes_and_rates(self.drawn_pairs)[0] if len(self.drawn_pairs) else self.drawn_pairs
        how = self._mean_noise, self.method.step_size, METHODS[self.method.sampler], not self.net.directed
        words = seed_words(self.words(BlockPurpose.MATRIX))
        kernels().move_matrix(self.matrix, shapes, rates, drawn, *how, words)

    def _draw_reference(self) -> None:
        """Draw the communities of all edges: weights that move towards their counts have the exact distribution.

        Expected counts would not do: weights would have too little variance between two references.
        """
        super().recall(generator(self.words(BlockPurpose.START)))
        self.drawn = self.counts.astype(np.float64)
        pairs = self.pairs.astype(np.float64)
        self.drawn_pairs = pairs if self.net.directed or not pairs.size else pairs + pairs.T
        self.colours, self.others = np.empty(0, np.int16), np.empty(0, np.int16)

    def refer(self) -> None:
        """What follows from the reference of the control variates."""
        reference, matrix, num = self.reference, self.reference_matrix, self.form.num
        receive = np.ones(len(reference)) if self.net.directed else np.empty(0)
        to, fro = tables(reference, matrix, receive)  # factors ρ have no effect on communities
        nothing = np.empty(0)
        self.referred = (reference, to, fro, nothing, nothing, matrix, receive)
        self.totals = np.zeros(reference.shape)
        self.total_pairs = np.zeros((num, num) if self.form.general else (0, 0))
        if len(reference):
            kernels().expected(self.net.leaving, reference, to, matrix, self.totals, self.total_pairs)
            if self.net.directed:
                nobody = np.empty((0, 0))
                kernels().expected(self.net.entering, reference, fro, matrix, self.totals, nobody)

    def recall(self, rng: np.random.Generator) -> None:
        """There is nothing to recall."""

    def _shares(self) -> Array:
        found = self.sums * (self.sums if self._is_plain else self.weights.sum(axis=0))
        return found / found.sum()

    def _remember(self) -> None:
        self.refer()


def tables(weights: Array, matrix: Array, receive: Array) -> tuple[Array, Array]:
    """`to` and `fro` of the kernels."""
    nobody = np.empty((0, weights.shape[1]))
    if not matrix.size and not receive.size:
        return weights, nobody
    to = np.ascontiguousarray(weights @ matrix.T) if matrix.size else weights.copy()
    if not receive.size:
        return to, nobody
    fro = np.ascontiguousarray(weights @ matrix) if matrix.size else weights.copy()
    return to * receive[:, None], fro


def check_finite(sums: Array) -> None:
    """Raise an error if weights, whose sums by community are given, are NaN, too large, or all of them too small."""
    if not np.all(sums < _LARGEST) or sums.sum() < 1 / _LARGEST:
        raise DivergenceError(
            "the weights of nodes diverged (NaN, inf or 0): the step size is too large for this sampler. Try a "
            '`step_size` ten times smaller, or sampler="scir", which is stable for any step size.'
        )


def grown(known: Array, net: Network) -> Array:
    """Rows of all nodes: `known` ones of the first, and for each other node the mean of its neighbours' known rows.

    Nodes without such neighbours have the mean of all rows.
    """
    found = np.empty((net.num_nodes, known.shape[1]))
    found[: len(known)] = known
    mean = known.mean(axis=0, dtype=np.float64)
    for i in range(len(known), net.num_nodes):
        rows = [net.leaving, net.entering] if net.directed else [net.leaving]
        ends = np.concatenate([ends[pointers[i] : pointers[i + 1]] for pointers, ends, _ in rows])
        ends = ends[ends < len(known)]
        found[i] = known[ends].mean(axis=0) if len(ends) else mean
    return found


def _parts(sources: Array, targets: Array, width: int) -> Iterator[tuple[Array, Array]]:
    """Ends of edges, not too many at once."""
    size = max(1, 10**7 // width)
    for begin in range(0, len(sources), size):
        yield sources[begin : begin + size], targets[begin : begin + size]


def _drawn(rng: np.random.Generator, masses: Array) -> Array:
    """A column for each row, with probabilities proportional to its entries."""
    total = np.cumsum(masses, axis=1)
    chosen = (total < rng.random(len(masses))[:, None] * total[:, -1:]).sum(axis=1)
    found: Array = np.minimum(chosen, masses.shape[1] - 1)
    return found
