r"""`sc.models.MixedMembership`: nodes that belong to several communities.

The exact sampler stores the community of each edge and the weights of all nodes. A step takes a batch of nodes, draws
the communities of their edges, :math:`P(k) ∝ φ_{ik} φ_{jk}`, the weights of each node,

.. math:: φ_{ik} ~ Gamma(a + n_{ik}, r + \textstyle\sum_{j ≠ i} φ_{jk}),

and the rate r of their prior. Pairs without an edge enter through the sums of weights alone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment

from scirocco import _checks, _extras
from scirocco.diagnostics.intervals import central
from scirocco.errors import InvalidValueError
from scirocco.models import fits
from scirocco.models.fits.chains import BlockPurpose
from scirocco.models.graph.base import Chains, GraphModel
from scirocco.models.graph.edges import Array, Graph
from scirocco.models.graph.gibbs import (
    Network,
    Prior,
    batches_of,
    generator,
    network,
    num_batches,
    seed_words,
)
from scirocco.models.graph.links import with_interval
from scirocco.models.graph.starts import clusters, embedding
from scirocco.models.view import View
from scirocco.run.result import Run

SAMPLERS = ("gibbs", "scir", "scir_cv", "sgrld")
_REFRESH = 20  # passes between two references of control variates
_STREAMS, _ROUNDS, _MOST_COMMUNITIES, _MOST_UNITS = 16, 5, 2_000, 2 * 10**8


@functools.cache
def kernels() -> Any:
    """The compiled kernels."""
    _extras.require("numba", "mixed memberships")
    from scirocco.models.graph import _mixed

    return _mixed


class Units(NamedTuple):
    """Edges by their first node, and the place of each of their units."""

    pointers: Array
    ends: Array
    places: Array


class Method(NamedTuple):
    """A sampler with stochastic gradients."""

    sampler: str
    step_size: float
    num_edges: int


class MixedChain:
    """One chain, see `fits.Chain`: a step draws communities of edges and weights of a batch of nodes."""

    def __init__(
        self,
        net: Network,
        units: Units,
        num: int,
        shape: float,
        scale: float,
        batch: int,
        seed: int,
        chain: int,
    ):
        self.seed = int(np.random.SeedSequence([seed, chain]).generate_state(1, np.uint64)[0] >> 1)
        self.net, self.units, self.num, self.shape, self.scale = net, units, num, shape, scale
        self.batches, self.number = num_batches(net.num_nodes, batch), 0
        self._pass: tuple[int, list[Array]] | None = None
        self.colours: Array | None = None
        self.weights: Array = np.empty((0, 0))
        self.sums: Array = np.empty(0)
        self.rate = scale

    def advance(self, num_steps: int) -> None:
        """Make steps."""
        if not len(self.sums):  # here, not in the constructor: chains run in parallel threads
            self._begin()
        for _ in range(num_steps):
            number, place = divmod(self.number, self.batches)
            if self._pass is None or self._pass[0] != number:
                rng = np.random.default_rng([self.seed, number * _STREAMS + BlockPurpose.ORDER])
                self._pass = (number, batches_of(rng, self.net.num_nodes, self.batches))
            self._update(self._pass[1][place])
            rng = generator(self._words(BlockPurpose.MATRIX))
            shape = 1.0 + self.shape * self.weights.size
            self.rate = float(rng.gamma(shape) / (1.0 / self.scale + self.sums.sum()))
            self.number += 1

    def _update(self, nodes: Array) -> None:
        """Draw the communities of the edges of some nodes, and their weights."""
        kernels().sweep(
            nodes,
            *self.units,
            self._unseen,
            self.colours,
            self.counts,
            self.weights,
            self.sums,
            self.shape,
            self.rate,
            seed_words(self._words(BlockPurpose.BLOCKS)),
        )

    @property
    def _unseen(self) -> tuple[Array, ...]:
        net = self.net
        return net.first, net.second, net.numbers, net.pointers

    def _begin(self) -> None:
        """Edges inside a cluster of the embedding have its community, others one of those of their ends."""
        rng = np.random.default_rng([self.seed, BlockPurpose.START])
        prior = Prior(self.num, True, True, 1.0, 1.0, 1.0, 1.0)
        labels = clusters(embedding(self.net, prior, rng), self.num, rng)
        pointers, ends, places = self.units
        sources = np.repeat(np.repeat(np.arange(len(pointers) - 1), np.diff(pointers)), np.diff(places))
        targets = np.repeat(ends, np.diff(places))
        either = np.where(rng.random(len(sources)) < 0.5, sources, targets)
        self.colours = labels[either].astype(np.int16)
        self._count()
        self.weights = rng.gamma(self.shape + self.counts) / np.sqrt(1.0 + self.counts.sum(axis=0))
        self.weights = np.maximum(self.weights, 1e-200)
        self.sums = self.weights.sum(axis=0)

    def _count(self) -> None:
        assert self.colours is not None
        pointers, ends, places = self.units
        num, lengths = self.num, np.diff(places)
        sources = np.repeat(np.repeat(np.arange(len(pointers) - 1), np.diff(pointers)), lengths)
        targets = np.repeat(ends, lengths).astype(np.int64)
        total = np.zeros(self.net.num_nodes * num, np.int64)
        for side in (sources, targets):
            total += np.bincount(side * num + self.colours, minlength=len(total))
        self.counts = total.reshape(-1, num)

    def _words(self, purpose: int) -> tuple[int, int]:
        return self.seed, self.number * _STREAMS + purpose

    def kept(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The weights, the shares of the communities in the edges, and statistics."""
        draws = {"weights": self.weights.copy(), "shares": self._shares()}
        return draws, {"log_likelihood": self.log_likelihood(), "passes": self.number / self.batches}

    def _shares(self) -> Array:
        """Shares of the communities in the edges."""
        found: Array = self.counts.sum(axis=0) / max(self.counts.sum(), 1)
        return found

    def log_likelihood(self) -> float:
        """log p(edges | weights), up to a constant."""
        weights = self.weights
        logs = kernels().log_likelihood(*self.units, weights, np.empty(len(self.units.ends)))
        exposed = ((self.sums**2).sum() - (weights**2).sum()) / 2
        unseen = (weights[self.net.first] * weights[self.net.second]).sum()
        return float(logs - exposed + unseen)

    def state(self) -> dict[str, Array]:
        """Arrays from which `restore` resumes exactly."""
        assert self.colours is not None
        return {
            "colours": self.colours,
            "weights": self.weights,
            "sums": self.sums,
            "rate": np.array([self.rate]),
            "steps": np.array([self.number], np.int64),
        }

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the chain from `state`."""
        self.colours = np.array(state["colours"], np.int16)
        self.weights, self.sums = np.array(state["weights"]), np.array(state["sums"])
        self.rate, self.number = float(state["rate"][0]), int(state["steps"][0])
        self._count()


class LangevinChain(MixedChain):
    """One chain without communities of edges: weights move with counts estimated from some edges of each node."""

    def __init__(self, *given: Any, method: Method):
        super().__init__(*given)
        self.method = method
        self.reference: Array = np.empty((0, 0))
        self.totals: Array = np.empty((0, 0))

    def _update(self, nodes: Array) -> None:
        method = self.method
        if method.sampler == "scir_cv" and self.number % (_REFRESH * self.batches) == 0:
            self._refer(self.weights.copy())
        kernels().langevin(
            nodes,
            self.net.leaving,
            self._unseen,
            self.weights,
            self.sums,
            self.reference,
            self.totals,
            self.shape,
            self.rate,
            method.num_edges,
            method.step_size,
            method.sampler != "sgrld",
            seed_words(self._words(BlockPurpose.BLOCKS)),
        )

    def _refer(self, reference: Array) -> None:
        """Set the reference of the control variates."""
        self.reference, self.totals = reference, np.zeros(reference.shape)
        kernels().expected(self.net.leaving, reference, self.totals)

    def _shares(self) -> Array:
        return self.sums**2 / (self.sums**2).sum()

    def state(self) -> dict[str, Array]:
        """Arrays from which `restore` resumes exactly."""
        return {
            "weights": self.weights,
            "sums": self.sums,
            "reference": self.reference,
            "rate": np.array([self.rate]),
            "steps": np.array([self.number], np.int64),
        }

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the chain from `state`."""
        self.weights, self.sums = np.array(state["weights"]), np.array(state["sums"])
        self.rate, self.number = float(state["rate"][0]), int(state["steps"][0])
        if state["reference"].size:
            self._refer(np.array(state["reference"]))


class MixedMembership(GraphModel):
    r"""Mixed memberships: each node belongs to several communities to some degree; posterior draws.

    The edges of a pair are :math:`A_{ij} ~ Poisson(\sum_k φ_{ik} φ_{jk})`, with :math:`φ_{ik} ~ Gamma(a, r)`: nodes
    link if they share a community. The memberships :math:`π_i = φ_i / \sum_k φ_{ik}` have the prior Dir(a), and are
    independent of the propensity :math:`\sum_k φ_{ik}` of the node. Draws are exact; a pass over all nodes costs
    O(edges · communities).

    Parameters
    ----------
    num_communities
        K.
    concentration
        a: smaller for nodes that belong to few communities. None: 1 / K.
    sampler
        "gibbs" (default): exact, with the community of each edge in memory. "scir", "scir_cv", "sgrld": stochastic
        gradients from some edges of each node; approximate.
    step_size, num_edges
        Of these samplers: h, in units of the relaxation time of a weight (0.3 by default), and the largest number of
        edges of a node in a step (4 by default).
    batch_size
        Nodes per step, by default 10,000.
    num_samples
        Number of posterior draws per chain; a short run gives fewer. A draw has K numbers for each node.
    num_burnin
        Length of the burn-in, whose draws are discarded: steps (int), or a fraction of the run (float below 1).
    thin
        Steps between two draws. None: the draws are spread evenly over the run after the burn-in.
    num_chains, seed
        Number of independent chains, which run in parallel; the same seed gives the same draws.

    Attributes
    ----------
    memberships_, labels_
        Posterior means (nodes, communities), and the largest of each node. Communities are in the same order
        everywhere, by their share of the edges.
    draws_
        Draws (chain, draw, ...) with the communities of all draws in one order.
    run_
        The run; `run_.preparation["chosen"]` says what was chosen.

    Examples
    --------
    >>> import scirocco as sc
    >>> friends = [("a", "b"), ("b", "c"), ("a", "c"), ("x", "y"), ("y", "z"), ("x", "z"), ("c", "x")]
    >>> model = sc.models.MixedMembership(2, num_chains=2, seed=1).fit(friends, num_epochs=200, progress=False)
    >>> model.memberships().shape
    (6, 2)
    """

    _kind: ClassVar[fits.Kind] = fits.Kind("MixedMembership", "a mixed-membership model", "mixed_membership")
    _watched: ClassVar[tuple[str, ...]] = ("shares",)
    _advice: ClassVar[str] = (
        "Chains that found different communities rarely mix: use fewer communities or a longer fit (num_epochs). "
        "`co_membership` and `predict_proba` average over all of them."
    )
    _estimator_type: ClassVar[str | None] = "clusterer"

    def __init__(
        self,
        num_communities: int = 2,
        *,
        concentration: float | None = None,
        sampler: str = "gibbs",
        step_size: float | None = None,
        num_edges: int | None = None,
        batch_size: int | None = None,
        num_samples: int = 50,
        num_burnin: float = 0.5,
        thin: int | None = None,
        num_chains: int = 4,
        seed: int = 0,
    ):
        self.num_communities, self.concentration, self.batch_size = num_communities, concentration, batch_size
        self.sampler, self.step_size, self.num_edges = sampler, step_size, num_edges
        self.num_samples, self.num_burnin, self.thin = num_samples, num_burnin, thin
        self.num_chains, self.seed = num_chains, seed

    @property
    def _width(self) -> int:
        return int(self.num_communities)

    def _chains(self, graph: Graph, unseen: Array | None, batch: int) -> Chains:
        num = _checks.positive_int(self.num_communities, "num_communities")
        if num > min(_MOST_COMMUNITIES, graph.num_nodes):
            raise InvalidValueError(
                f"`num_communities` must be at most {_MOST_COMMUNITIES:,} and the number of nodes "
                f"({graph.num_nodes:,}), got {num:,}."
            )
        if graph.directed:
            raise InvalidValueError(
                "mixed memberships of directed networks are not supported: pass an edge list, which is read without "
                "directions."
            )
        if graph.weight.sum() > _MOST_UNITS:
            raise InvalidValueError(
                f"the weights of the edges have the sum {graph.weight.sum():,}, more than {_MOST_UNITS:,}. Divide them."
            )
        shape = 1.0 / num if self.concentration is None else self.concentration
        _checks.positive(shape, "concentration")
        seed = _checks.positive_int(self.seed, "seed", minimum=0)
        net = network(graph, Prior(num, True, False, 1.0, 1.0, 1.0, 1.0), unseen)
        units = _units(net)
        density = float(graph.weight.sum()) / graph.num_pairs
        scale = float(shape) * float(np.sqrt(num / density))
        size = {"weights": (graph.num_nodes, num), "shares": (num,)}
        spec = fits.Spec.of(size, {"log_likelihood": (), "passes": ()})
        spec.draws["shares"] = jax.ShapeDtypeStruct((num,), np.float64)
        given = (net, units, num, float(shape), scale, batch, seed)
        method = self._method()
        known: dict[str, Any] = {"num_communities": num, "concentration": float(shape), "batch_size": batch}
        words = f"mixed memberships in {num} communities, Poisson counts; "
        if method is None:
            words += (
                "exact Gibbs sampler: a step draws the communities of the edges of a batch of nodes, then the "
                "weights of these nodes"
            )
            return Chains(known, spec, lambda number: MixedChain(*given, number), words, True)
        words += (
            f"{method.sampler} with at most {method.num_edges} edges of each node, step size {method.step_size:g}: "
            "approximate"
        )
        make = functools.partial(LangevinChain, *given, method=method)
        return Chains(known | method._asdict(), spec, make, words, True)

    def _method(self) -> Method | None:
        """The sampler with stochastic gradients; None for the exact one."""
        _checks.choice(self.sampler, "sampler", SAMPLERS)
        if self.sampler == "gibbs":
            for name in ("step_size", "num_edges"):
                if getattr(self, name) is not None:
                    raise InvalidValueError(f'sampler="gibbs" has no `{name}`: remove it.')
            return None
        step = 0.3 if self.step_size is None else self.step_size
        _checks.positive(step, "step_size")
        edges = 4 if self.num_edges is None else _checks.positive_int(self.num_edges, "num_edges")
        return Method(self.sampler, float(step), edges)

    # -- results ------------------------------------------------------------------------------------------------------

    def _in_one_order(self, raw: dict[str, Array]) -> dict[str, Array]:
        return in_one_order(raw)

    def _coordinates(self) -> dict[str, list[Any]]:
        return {"weights_dim_0": self.nodes_.listed()}

    def memberships(self, interval: float | None = None) -> Any:
        """Memberships (nodes, communities), which sum to 1: posterior means, or `(mean, low, high)`."""
        self._check_fitted()
        weights = self.draws_["weights"]
        return with_interval(weights / weights.sum(axis=-1, keepdims=True), interval)

    @property
    def memberships_(self) -> Array:
        """Posterior mean memberships (nodes, communities)."""
        found: Array = self.memberships()
        return found

    @property
    def labels_(self) -> Array:
        """The community with the largest mean membership of each node."""
        found: Array = self.memberships_.argmax(axis=1)
        return found

    @property
    def node_names_(self) -> list[Any]:
        """The nodes, in the order of all results."""
        self._check_fitted()
        return self.nodes_.listed()

    def nodes(self) -> Any:
        """One row per node, as a pandas data frame: its largest membership, and all memberships."""
        import pandas as pd

        mean = self.memberships_
        found = {"community": mean.argmax(axis=1), "membership": mean.max(axis=1)}
        found |= {f"membership_{k}": mean[:, k] for k in range(mean.shape[1])}
        return pd.DataFrame(found, index=pd.Index(self.nodes_.listed(), name="node"))

    def shares(self, interval: float | None = None) -> Any:
        """Shares of the communities in the edges: posterior means, or `(mean, low, high)`."""
        self._check_fitted()
        return with_interval(self.draws_["shares"], interval)

    def co_membership(self, pairs: Any) -> Array:
        """P(two nodes act in the same community), Σ_k π_ik π_jk, of pairs (pairs, 2), averaged over draws."""
        self._check_fitted()
        i, j = self._numbers(pairs).T
        total = np.zeros(len(i))
        for weights in self._flat("weights"):
            shares = weights / weights.sum(axis=1, keepdims=True)
            total += (shares[i] * shares[j]).sum(axis=1)
        return total / self._num_draws

    def summary(self, interval: float = 0.9) -> Any:
        """One row per community, as a pandas data frame: share of the edges, nodes for which it is the largest."""
        import pandas as pd

        self._check_fitted()
        draws = self.draws_["shares"]
        low, high = central(draws, interval, (0, 1))
        mean = self.memberships_
        table = {
            "share": draws.mean(axis=(0, 1)),
            "share_low": low,
            "share_high": high,
            "nodes": np.bincount(mean.argmax(axis=1), minlength=mean.shape[1]),
            "members": (mean >= 0.1).sum(axis=0),
        }
        return pd.DataFrame(table, index=pd.Index(range(mean.shape[1]), name="community"))

    def _rates(self, pairs: Array, chosen: Array) -> Iterator[Array]:
        weights, (i, j) = self._flat("weights"), pairs.T
        for number in chosen:
            yield np.einsum("pk,pk->p", weights[number][i], weights[number][j], dtype=np.float64)

    def report_view(self, run: Run | None = None, **options: Any) -> View:
        """Contents of a report, see `scirocco.models.view`."""
        from scirocco.models.graph import view

        return view.mixed(self, run)


def _units(net: Network) -> Units:
    """Edges of a network, each at its smaller node."""
    pointers, ends, weights = net.leaving
    sources = np.repeat(np.arange(net.num_nodes), np.diff(pointers))
    own = sources < ends
    counts = np.bincount(sources[own], minlength=net.num_nodes)
    places = np.concatenate([[0], np.cumsum(weights[own].astype(np.int64))])
    return Units(np.concatenate([[0], np.cumsum(counts)]), ends[own], places)


def in_one_order(raw: dict[str, Array]) -> dict[str, Array]:
    """Draws (chain, draw, ...) with the communities of each in the same order, that with most edges first.

    Communities are compared by the memberships of all nodes.
    """
    shape = raw["shares"].shape[:2]
    weights = raw["weights"].reshape(-1, *raw["weights"].shape[2:])
    shares = raw["shares"].reshape(len(weights), -1)
    pi = weights / weights.sum(axis=-1, keepdims=True)
    reference, order = pi[-1], np.zeros(shares.shape, np.int64)
    for _ in range(_ROUNDS):
        before = order.copy()
        for number, one in enumerate(pi):
            order[number] = linear_sum_assignment(-(reference.T @ one))[1]
        if np.array_equal(before, order):
            break
        reference = np.mean([one[:, place] for one, place in zip(pi, order, strict=True)], axis=0)
    ranked = np.argsort(-np.take_along_axis(shares, order, axis=1).mean(axis=0), kind="stable")
    order = order[:, ranked]
    found = {
        "weights": np.stack([one[:, place] for one, place in zip(weights, order, strict=True)]),
        "shares": np.take_along_axis(shares, order, axis=1),
    }
    return {name: values.reshape(*shape, *values.shape[1:]) for name, values in found.items()}
