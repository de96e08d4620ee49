r"""Chains of mixed memberships without weights: the mixed-membership stochastic block model of Airoldi et al. (2008).

An edge has the probability :math:`π_i' B π_j`, with :math:`π_i ~ Dir(a)` and :math:`B_{kl} ~ Beta(c, d - c)`; edges
between communities can share one probability (Li, Ahn and Welling 2016). The exact sampler draws the roles of nodes in
pairs, the memberships :math:`π_i ~ Dir(a + n_i)` of one node after the other, and B given the roles in all pairs. A
pass costs O(nodes²). The samplers with stochastic gradients estimate the counts n from some edges and some pairs
without an edge of each node, and cost O(nodes · K · (pairs of a node)).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from scirocco._extras import later
from scirocco.models._core.chain import BlockPurpose
from scirocco_latent.graph import poisson_chains
from scirocco_latent.graph.edges import Array
from scirocco_latent.graph.gibbs import BlockPrior, Network, NodeChain, generator, seed_words
from scirocco_latent.graph.poisson_chains import GradientMethod
from scirocco_latent.graph.starts import clusters, embedding

MOST_PAIRS = 3 * 10**7
"""Pairs of the largest network for the exact sampler."""
_OFTEN = 10**6
"""Up to so many pairs B is drawn after each pass, otherwise after each tenth."""
_LEAST = 1e-12
"""The least probability of an edge, and of none."""
kernels = later("scirocco_latent.graph._bernoulli")
"""The compiled kernels."""


class BernoulliPrior(NamedTuple):
    """The prior of mixed memberships without weights."""

    num: int
    """K."""
    shape: float
    """a."""
    edges: float
    """c and d of B ~ Beta(c, d - c)."""
    pairs: float
    general: bool
    """Whether each pair of communities has a probability of its own; otherwise different communities share one."""


class RoleChain(NodeChain):
    """One exact chain: a step draws the memberships of a batch of nodes."""

    STATE: ClassVar[tuple[str, ...]] = ("pi", "matrix", "to", "fro", "sums", "entering")

    def __init__(self, net: Network, form: BernoulliPrior, batch: int, seed: int, number: int):
        super().__init__(net, batch, seed, number)
        self.form = form
        self._marks = np.zeros(net.num_nodes, np.int64)
        self.pi, self.matrix = np.empty((0, 0)), np.empty((0, 0))
        self.to, self.fro = np.empty((0, form.num)), np.empty((0, form.num))
        self.sums, self.entering = np.empty(0), np.empty(0)

    def move(self) -> None:
        """A batch of nodes, and after a pass the block matrix."""
        nodes, place = self._batch()
        self.update(nodes)
        if place == self.batches - 1:
            self._update_matrix(self.step // self.batches)
            self.tabulate()

    def update(self, nodes: Array) -> None:
        """One step of the weights of these nodes, and of the matrix."""
        form, net = self.form, self.net
        kernels().sweep(
            nodes,
            net.leaving,
            net.entering,
            self.unseen_arrays,
            self.state_arrays,
            not form.general,
            form.shape,
            self._marks,
            seed_words(self.words(BlockPurpose.BLOCKS)),
        )

    def _update_matrix(self, number: int) -> None:
        """Draw B given the roles in all pairs."""
        if number % (1 if self.net.num_nodes**2 <= _OFTEN else 10):
            return
        num = self.form.num
        linked, apart = np.zeros((num, num), np.int64), np.zeros((num, num), np.int64)
        words = seed_words(self.words(BlockPurpose.UNSEEN))
        kernels().roles(self.net.leaving, self.unseen_arrays, self.state_arrays, linked, apart, self._marks, words)
        if not self.net.directed:  # from either end, as the other samplers count them
            linked, apart = linked + linked.T, apart + apart.T
        ones, zeros = self.shapes_of(linked, apart)
        self._set_matrix(generator(self.words(BlockPurpose.MATRIX)).beta(ones, zeros))

    def shapes_of(self, linked: Array, apart: Array) -> tuple[Array, Array]:
        """Shapes of the entries of B given counts of roles: (K, K), or (1, K + 1), the last of different communities.

        Counts of undirected networks are from either end of a pair.
        """
        form, num, found = self.form, self.form.num, list[Array]()
        for count, prior in ((linked, form.edges), (apart, form.pairs - form.edges)):
            own = np.diag(count) / (1 if self.net.directed else 2)
            if form.general:
                table = count + 0.0
                table[np.diag_indices(num)] = own
            else:
                rest = (count.sum() - np.trace(count)) / (1 if self.net.directed else 2)
                table = np.append(own, rest)[None, :]
            found.append(prior + table)
        return found[0], found[1]

    def _set_matrix(self, drawn: Array) -> None:
        """B from its free entries."""
        num = self.form.num
        drawn = np.clip(drawn, _LEAST, 1.0 - _LEAST)
        if not self.form.general:
            self.matrix = np.full((num, num), drawn[0, -1])
            self.matrix[np.diag_indices(num)] = drawn[0, :-1]
        else:
            self.matrix = self.net.symmetric(drawn)

    @property
    def state_arrays(self) -> tuple[Array, ...]:
        """The current state, as kernels take it."""
        return self.pi, self.to, self.fro, self.sums, self.entering, self.matrix

    def tabulate(self) -> None:
        """Compute what kernels look up from the current state."""
        self.to, self.fro = _tables(self.pi, self.matrix, self.net.directed)
        self.sums, self.entering = self.to.sum(axis=0), self.fro.sum(axis=0)

    def begin(self) -> None:
        """Nodes mostly belong to their cluster in the embedding, and to those of their neighbours."""
        form, net = self.form, self.net
        rng = np.random.default_rng([self.seed, BlockPurpose.START])
        labels = clusters(embedding(net, BlockPrior(form.num, True, True, 1.0, 1.0, 1.0, 1.0), rng), form.num, rng)
        sources, ends = net.sources, net.leaving[1]
        near = np.bincount(sources * form.num + labels[ends], minlength=net.num_nodes * form.num)
        near = (
            near.reshape(-1, form.num)
            + 4.0 * (1 + near.reshape(-1, form.num).sum(axis=1))[:, None] * np.eye(form.num)[labels]
        )
        self.pi = rng.gamma(form.shape + near)
        self.pi = np.maximum(self.pi, 1e-200)
        self.pi /= self.pi.sum(axis=1, keepdims=True)
        linked = np.bincount(labels[sources] * form.num + labels[ends], minlength=form.num**2)
        sizes = np.bincount(labels, minlength=form.num).astype(np.float64)
        pairs = np.outer(sizes, sizes) - np.diag(sizes)
        linked = linked.reshape(form.num, form.num)
        ones, zeros = self.shapes_of(linked, np.maximum(pairs - linked, 0.0))
        self._set_matrix(ones / (ones + zeros))
        self.tabulate()

    def take_over(self, draw: dict[str, Array]) -> None:
        """Continue from a draw for the first nodes of this network, see `poisson_chains.grown`."""
        self.pi = np.maximum(poisson_chains.grown(draw["weights"], self.net), 1e-200)
        self.pi /= self.pi.sum(axis=1, keepdims=True)
        self.matrix = np.array(draw["block_matrix"])
        self.tabulate()
        self._has_begun = True

    def kept(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Memberships, shares of the communities in the edges, B, and statistics."""
        draws = {"weights": self.pi.copy(), "shares": self._shares(), "block_matrix": self.matrix.copy()}
        return draws, {"log_likelihood": self.log_likelihood(), "passes": self.step / self.batches}

    def _shares(self) -> Array:
        """Expected shares of the communities in the edges."""
        found = self.pi.sum(axis=0) * self.sums
        if self.net.directed:
            found = found + self.pi.sum(axis=0) * self.entering
        return found / found.sum()

    def log_likelihood(self) -> float:
        """log p(edges | memberships, B), with log(1 - p) of pairs without an edge to second order."""
        pi, to, net = self.pi, self.to, self.net
        linked = np.einsum("ek,ek->e", pi[net.sources], to[net.leaving[1]])
        own, unseen = (pi * to).sum(axis=1), (pi[net.first] * to[net.second]).sum(axis=1)
        twice = 1 if net.directed else 2
        pairs = pi.sum(axis=0) @ self.sums - own.sum() - twice * unseen.sum()
        squares = ((pi.T @ pi) * (to.T @ to)).sum() - (own**2).sum() - twice * (unseen**2).sum()
        logs = np.log(linked).sum() - (pairs - linked.sum()) - (squares - (linked**2).sum()) / 2
        return float(logs / twice)


class RoleLangevinChain(RoleChain):
    """One chain that moves memberships and B with estimated counts of roles."""

    STATE = (
        *RoleChain.STATE,
        *("theta", "ones", "zeros", "linked", "exposed", "reference", "reference_matrix"),
        *("drawn", "drawn_ones", "weight"),
    )

    def __init__(self, *given: Any, method: GradientMethod):
        super().__init__(*given)
        self.method, num = method, self.form.num
        self.theta, self.ones, self.zeros = np.empty((0, 0)), np.empty((0, 0)), np.empty((0, 0))
        self.linked, self.exposed = np.zeros((num, num)), np.zeros((num, num))
        self.reference, self.reference_matrix = np.empty((0, num)), np.empty((0, 0))
        self.drawn, self.drawn_ones = np.empty((0, num)), np.empty((0, 0))
        """Of SCIR-CV: roles of all nodes, and shapes of the edges of B, when they were last drawn."""
        self.weight = np.ones(self.net.num_nodes)
        """Of SGRLD: Σθ of a node has the shape K a plus this, about the number of its roles."""
        self._noise, self._mean_noise = method.noise(self.net)
        self.refer()

    def begin(self) -> None:
        """The same, and where θ start."""
        super().begin()
        self.spread_out()

    def take_over(self, draw: dict[str, Array]) -> None:
        """Continue from a draw for the first nodes of this network."""
        super().take_over(draw)
        self.spread_out()

    def spread_out(self) -> None:
        """θ of memberships and of B, on the scale on which they move."""
        size = 1.0 + self.net.degrees.sum(axis=1) + self.matrix.max() * self.net.num_nodes
        self.theta, self.weight = self.pi * size[:, None], size
        ones, zeros = self._matrix_shapes(None)
        free = self.matrix if self.form.general else np.append(np.diag(self.matrix), self.matrix[0, -1])[None, :]
        self.ones, self.zeros = (ones + zeros) * free, (ones + zeros) * (1.0 - free)

    def update(self, nodes: Array) -> None:
        """One step of the weights of these nodes, and of the matrix."""
        form, net, method = self.form, self.net, self.method
        if method.renews(self.step, self.batches):
            if method.sampler == "scir_cv":
                self._draw_reference()
            else:
                self.reference, self.reference_matrix = self.pi.copy(), self.matrix.copy()
                self.refer()
        if self.step % self.batches == 0:
            self.linked, self.exposed = np.zeros_like(self.linked), np.zeros_like(self.exposed)
        kernels().move(
            nodes,
            net.leaving,
            net.entering,
            self.unseen_arrays,
            self.theta,
            self.state_arrays,
            self.referred,
            self.totals,
            not form.general,
            form.shape,
            method.num_edges,
            method.num_pairs,
            self.drawn,
            self._noise,
            self.weight,
            method.step_size,
            poisson_chains.METHODS[method.sampler],
            self.linked,
            self.exposed,
            self._marks,
            seed_words(self.words(BlockPurpose.BLOCKS)),
        )
        poisson_chains.check_finite(self.theta.sum(axis=0))

    def _update_matrix(self, number: int) -> None:
        """Move B = θ₁ / (θ₁ + θ₀) with the counts of this pass."""
        ones, zeros = self._matrix_shapes((self.linked + self.total_linked, self.exposed + self.total_exposed))
        move, method = poisson_chains.kernels().move_matrix, poisson_chains.METHODS[self.method.sampler]
        how = self._mean_noise, self.method.step_size, method, self.form.general and not self.net.directed
        for purpose, theta, shapes, drawn in (
            (BlockPurpose.MATRIX, self.ones, ones, self.drawn_ones),
            (BlockPurpose.UNSEEN, self.zeros, zeros, np.empty((0, 0))),  # pairs without an edge have no noise
        ):
            words = seed_words(self.words(purpose))
            move(theta, shapes, np.ones_like(shapes), drawn, *how, words)
        self._set_matrix(self.ones / (self.ones + self.zeros))

    def _matrix_shapes(self, found: tuple[Array, Array] | None) -> tuple[Array, Array]:
        """Shapes of θ₁ and θ₀ given estimates of `linked` and `exposed`; None: those of all edges, to first order."""
        net, pi = self.net, self.pi
        if found is None:
            num = self.form.num
            found = np.zeros((num, num)), np.zeros((num, num))
            inside, top = not self.form.general, self.matrix.max()
            kernels().count_edges(net.leaving, self.state_arrays, inside, 0, top, np.zeros_like(pi), *found)
        linked, exposed = found
        pairs = net.over_pairs(pi, pi) + exposed
        if not net.directed:
            linked, pairs = (linked + linked.T) / 2, (pairs + pairs.T) / 2
        ones, zeros = self.shapes_of(linked, (1.0 - self.matrix) * pairs)
        least = 1e-3 * self.form.edges  # an estimate may be too small
        return np.maximum(ones, least), np.maximum(zeros, least)

    def _draw_reference(self) -> None:
        """Draw the roles of all nodes, and those at both ends of all edges."""
        net, num, nobody = self.net, self.form.num, np.empty((0, 0), np.int64)
        words = seed_words(self.words(BlockPurpose.START))
        self.drawn, linked = np.zeros((net.num_nodes, num)), np.zeros((num, num), np.int64)
        rows = net.leaving, net.entering, self.unseen_arrays
        kernels().draw_roles(*rows, self.state_arrays, self._marks, self.drawn, words)
        words = seed_words(self.words(BlockPurpose.DRAW))
        kernels().roles(net.leaving, self.unseen_arrays, self.state_arrays, linked, nobody, self._marks, words)
        linked = linked if net.directed else linked + linked.T
        self.drawn_ones = self.shapes_of(linked, np.zeros((num, num)))[0]

    def refer(self) -> None:
        """What follows from the reference of the control variates."""
        reference, matrix, num = self.reference, self.reference_matrix, self.form.num
        if len(reference):
            to, fro = _tables(reference, matrix, self.net.directed)
        else:
            to, fro = np.empty((0, num)), np.empty((0, num))
        nothing = np.empty(0)
        self.referred = (reference, to, fro, nothing, nothing, matrix)
        self.totals = np.zeros(reference.shape)
        self.total_linked, self.total_exposed = np.zeros((num, num)), np.zeros((num, num))
        if len(reference):
            count, nobody = kernels().count_edges, np.empty((0, 0))
            inside, top, state = not self.form.general, matrix.max(), self.referred
            count(self.net.leaving, state, inside, 0, top, self.totals, self.total_linked, self.total_exposed)
            if self.net.directed:
                count(self.net.entering, state, inside, 1, top, self.totals, nobody, nobody)

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the chain from `state`."""
        super().restore(state)
        self.refer()


def _tables(pi: Array, matrix: Array, directed: bool) -> tuple[Array, Array]:
    """`to` and `fro` of the kernels."""
    to = np.ascontiguousarray(pi @ matrix.T)
    return to, np.ascontiguousarray(pi @ matrix) if directed else np.empty((0, pi.shape[1]))
