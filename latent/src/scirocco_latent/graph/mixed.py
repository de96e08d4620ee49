"""`sc.models.MixedMembership`: nodes that belong to several communities."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidValueError
from scirocco.models._core.chain import Chain, Spec
from scirocco.models._core.program import OwnChains
from scirocco.models._core.view import View
from scirocco.run.result import Run
from scirocco_latent.graph.base import LIKELIHOODS, Former
from scirocco_latent.graph.bernoulli_chains import MOST_PAIRS, BernoulliPrior, RoleChain, RoleLangevinChain
from scirocco_latent.graph.edges import Array, EdgeGraph
from scirocco_latent.graph.gibbs import BlockPrior, Network, network
from scirocco_latent.graph.poisson_chains import GradientMethod, LangevinChain, MixedChain, PoissonPrior, units
from scirocco_latent.graph.results import Memberships

SAMPLERS = ("gibbs", "scir", "scir_cv", "scir_cv_counts", "sgrld")
KINDS = ("assortative", "general")
_MOST_COMMUNITIES, _MOST_UNITS = 2_000, 2 * 10**8
"""Most communities, and the largest sum of the weights of edges."""


class MixedMembership(Memberships):
    r"""Mixed memberships: each node belongs to several communities to some degree; posterior draws.

    The edges of a pair are :math:`A_{ij} ~ Poisson(\sum_k φ_{ik} φ_{jk})`, with :math:`φ_{ik} ~ Gamma(a, r)`: nodes
    link if they share a community. The memberships :math:`π_i = φ_i / \sum_k φ_{ik}` have the prior Dir(a), and are
    independent of the propensity :math:`\sum_k φ_{ik}` of the node. Draws are exact; a pass over all nodes costs
    O(edges · communities).

    A general model also has edges between communities, :math:`Poisson(\sum_{kl} φ_{ik} Λ_{kl} φ_{jl})`, with
    :math:`Λ_{kl} ~ Gamma(c, d)`. In directed networks the rates are multiplied by a factor :math:`ρ_j` of the node that
    receives the edge. Without degree correction an edge has the probability :math:`π_i' B π_j`, with
    :math:`B_{kl} ~ Beta(c, d - c)`, the same for all k ≠ l if the model is assortative: the mixed-membership
    stochastic block model of Airoldi et al. (2008), and that of Li, Ahn and Welling (2016).

    Parameters
    ----------
    num_communities
        K.
    kind
        "assortative": nodes link if they share a community. "general": a block matrix, for networks with hubs and
        periphery, or of two sorts of nodes.
    degree_corrected
        Whether nodes have propensities. Without them, memberships also have to tell nodes with many edges from those
        with few.
    likelihood
        "poisson" (counts of edges; degree-corrected), or "bernoulli" (an edge or none; not degree-corrected). None:
        whichever fits `degree_corrected`.
    directed
        None: what a networkx or igraph graph says; a matrix is directed if it is not symmetric; edge lists are not.
    concentration
        a: smaller for nodes that belong to few communities. None: 1 / K.
    prior
        {"edges": c, "pairs": d} of the block matrix: a rate is worth c edges among d pairs. By default c = ½, and d
        such that the mean is the density of the network. Assortative, degree-corrected models have no block matrix.
    sampler
        "gibbs": exact. "scir", "scir_cv", "scir_cv_counts", "sgrld": stochastic gradients from some edges of each node;
        approximate. "scir_cv" is that of Barile & Nemeth: rates with which the mode is that of communities drawn for
        all edges, once in 1/h passes. "scir_cv_counts" is SCIR with control variates of the counts, expected
        communities at earlier weights. None: "gibbs", or "scir_cv_counts" if the model is not degree-corrected and the
        network has more than 3 · 10⁷ pairs, because exact draws of that model visit all pairs.
    step_size, num_edges, num_pairs
        Of these samplers: h, in units of the relaxation time of a weight (0.3 by default), the largest number of
        edges of a node in a step (4 by default), and of pairs without an edge (8 by default; degree-corrected models
        know their sum).
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

    ADVICE = (
        "Chains that found different communities rarely mix: use fewer communities or a longer fit (num_epochs). "
        "`co_membership` and `predict_proba` average over all of them."
    )
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "airoldi2008": {"kind": "general", "degree_corrected": False},
        "li2016": {"degree_corrected": False, "sampler": "sgrld"},
        "baker2018": {"degree_corrected": False, "sampler": "scir"},
        "barile2024": {"degree_corrected": False, "sampler": "scir_cv"},
    }
    _estimator_type: ClassVar[str | None] = "clusterer"

    def __init__(
        self,
        num_communities: int = 2,
        *,
        kind: str = "assortative",
        degree_corrected: bool = True,
        likelihood: str | None = None,
        directed: bool | None = None,
        concentration: float | None = None,
        prior: Mapping[str, float] | None = None,
        sampler: str | None = None,
        step_size: float | None = None,
        num_edges: int | None = None,
        num_pairs: int | None = None,
        batch_size: int | None = None,
        num_samples: int = 50,
        num_burnin: float = 0.5,
        thin: int | None = None,
        num_chains: int = 4,
        seed: int = 0,
    ):
        self.num_communities, self.kind, self.degree_corrected = num_communities, kind, degree_corrected
        self.likelihood, self.directed, self.prior = likelihood, directed, prior
        self.concentration, self.batch_size = concentration, batch_size
        self.sampler, self.step_size, self.num_edges, self.num_pairs = (sampler, step_size, num_edges, num_pairs)
        self.num_samples, self.num_burnin, self.thin = num_samples, num_burnin, thin
        self.num_chains, self.seed = num_chains, seed

    def _program(self, graph: EdgeGraph, unseen: Array | None, former: Former | None = None) -> OwnChains:
        self._check(graph)
        corrected, batch = bool(self.degree_corrected), self._batch()
        net = network(graph, BlockPrior(int(self.num_communities), corrected, False, 1.0, 1.0, 1.0, 1.0), unseen)
        method = self._method(graph)
        prior: PoissonPrior | BernoulliPrior = self._poisson_prior(graph) if corrected else self._bernoulli_prior(graph)
        inputs: tuple[Any, ...] = (net, units(net), prior, batch) if corrected else (net, prior, batch)
        classes: tuple[Any, Any] = (MixedChain, LangevinChain) if corrected else (RoleChain, RoleLangevinChain)
        build = functools.partial(classes[method is not None], *inputs)
        if method is not None:
            build = functools.partial(build, method=method)
        seed = _checks.positive_int(self.seed, "seed", minimum=0)

        def make(number: int) -> Chain:
            if former is None:
                return build(seed, number)
            chain = build(former.seed(seed), number)
            chain.take_over(former.of(number))
            return chain

        return self._own_chains(
            graph,
            unseen,
            self._words(graph, method),
            self._settings(prior, batch, method),
            self._spec(net, prior.general),
            make,
            width=prior.num,
            poisson=corrected,
            arrays={} if former is None else {"former": former.memberships()},
        )

    # -- what a fitted model is ---------------------------------------------------------------------------------------

    def _watched(self) -> dict[str, Array]:
        return {"shares": self.draws_["shares"], "log likelihood": np.asarray(self.run_.stats["log_likelihood"])}

    def _view(self, run: Run, **options: Any) -> View:
        from scirocco_latent.graph import view

        return view.of_communities(self, run)

    # -- settings -----------------------------------------------------------------------------------------------------

    def _check(self, graph: EdgeGraph) -> None:
        num = _checks.positive_int(self.num_communities, "num_communities")
        if num > min(_MOST_COMMUNITIES, graph.num_nodes):
            raise InvalidValueError(
                f"`num_communities` must be at most {_MOST_COMMUNITIES:,} and the number of nodes "
                f"({graph.num_nodes:,}), got {num:,}."
            )
        _checks.choice(self.kind, "kind", KINDS)
        _checks.flag(self.degree_corrected, "degree_corrected")
        wanted = LIKELIHOODS[0 if self.degree_corrected else 1]
        if self.likelihood is not None:
            _checks.choice(self.likelihood, "likelihood", LIKELIHOODS)
            if self.likelihood != wanted:
                raise InvalidValueError(
                    f"mixed memberships with degree_corrected={self.degree_corrected} have "
                    f'likelihood="{wanted}": pass degree_corrected={not self.degree_corrected} for '
                    f'"{self.likelihood}".'
                )
        if graph.has_weights and not self.degree_corrected:
            raise InvalidValueError("the network has weights above 1, which require degree_corrected=True.")
        if graph.weight.sum() > _MOST_UNITS:
            raise InvalidValueError(
                f"the weights of the edges have the sum {graph.weight.sum():,}, more than {_MOST_UNITS:,}. Divide them."
            )

    @property
    def _shape(self) -> float:
        shape = 1.0 / self.num_communities if self.concentration is None else self.concentration
        _checks.positive(shape, "concentration")
        return float(shape)

    def _poisson_prior(self, graph: EdgeGraph) -> PoissonPrior:
        num, shape = int(self.num_communities), self._shape
        density = float(graph.weight.sum()) / graph.num_pairs
        if self.kind == "general":  # weights have the mean a, so that the mean rate is Λ (K a)²
            edges, pairs = self._pseudo_counts(density / (num * shape) ** 2)
            return PoissonPrior(num, shape, 1.0, edges, pairs)
        if self.prior is not None:
            raise InvalidValueError(
                "assortative, degree-corrected mixed memberships have no block matrix: remove `prior`, or pass "
                'kind="general".'
            )
        return PoissonPrior(num, shape, shape * (num / density) ** 0.5)

    def _bernoulli_prior(self, graph: EdgeGraph) -> BernoulliPrior:
        density = min(float(len(graph.source)) / graph.num_pairs, 0.5)
        edges, pairs = self._pseudo_counts(density, poisson=False)
        return BernoulliPrior(int(self.num_communities), self._shape, edges, pairs, self.kind == "general")

    def _method(self, graph: EdgeGraph) -> GradientMethod | None:
        """The sampler with stochastic gradients; None for the exact one."""
        large = not self.degree_corrected and graph.num_pairs > MOST_PAIRS
        sampler = ("scir_cv_counts" if large else "gibbs") if self.sampler is None else self.sampler
        _checks.choice(sampler, "sampler", SAMPLERS)
        if sampler == "gibbs":
            if large:
                raise InvalidValueError(
                    f'sampler="gibbs" without degree correction visits all pairs of nodes ({graph.num_pairs:,.0f}, '
                    f'more than {MOST_PAIRS:,}): use sampler="scir_cv_counts", or degree_corrected=True.'
                )
            own = {"step_size": self.step_size, "num_edges": self.num_edges, "num_pairs": self.num_pairs}
            for name, value in own.items():
                if value is not None:
                    raise InvalidValueError(f'sampler="gibbs" has no `{name}`: remove it.')
            return None
        if self.degree_corrected and self.num_pairs is not None:
            raise InvalidValueError(
                "degree-corrected models know the sum over pairs without an edge: remove `num_pairs`."
            )
        step = 0.3 if self.step_size is None else self.step_size
        _checks.positive(step, "step_size")
        edges = 4 if self.num_edges is None else _checks.positive_int(self.num_edges, "num_edges")
        pairs = 8 if self.num_pairs is None else _checks.positive_int(self.num_pairs, "num_pairs")
        return GradientMethod(sampler, float(step), edges, 0 if self.degree_corrected else pairs)

    def _settings(
        self, prior: PoissonPrior | BernoulliPrior, batch: int, method: GradientMethod | None
    ) -> dict[str, Any]:
        """What defines the chains, in the record of a run."""
        told = {"num_communities": prior.num, "concentration": prior.shape, "batch_size": batch}
        if prior.general or not self.degree_corrected:
            told |= prior._asdict() | {"kind": self.kind}
        if method is not None:
            told |= {name: value for name, value in method._asdict().items() if value}
        return told

    def _spec(self, net: Network, general: bool) -> Spec:
        num = int(self.num_communities)
        spec = Spec.of({"weights": (net.num_nodes, num)}, {"log_likelihood": (), "passes": ()})
        spec.draws["shares"] = jax.ShapeDtypeStruct((num,), np.float64)
        if general or not self.degree_corrected:
            spec.draws["block_matrix"] = jax.ShapeDtypeStruct((num, num), np.float64)
        if net.directed and self.degree_corrected:
            spec.draws["receiving"] = jax.ShapeDtypeStruct((net.num_nodes,), np.float32)
        return spec

    def _words(self, graph: EdgeGraph, method: GradientMethod | None) -> str:
        general = self.kind == "general"
        between = " with edges between them" if general else ""
        edges = "Poisson counts" if self.degree_corrected else "Bernoulli edges, not degree-corrected"
        way = "directed " if graph.directed else ""
        words = f"{way}mixed memberships in {self.num_communities} communities{between}, {edges}; "
        if method is not None:
            return words + (
                f"{method.sampler} with at most {method.num_edges} edges of each node, step size {method.step_size:g}: "
                "approximate"
            )
        if not self.degree_corrected:
            return words + (
                "exact Gibbs sampler: a step draws the roles of a batch of nodes in their pairs, then their memberships"
            )
        return words + (
            "exact Gibbs sampler: a step draws the communities of the edges of a batch of nodes, then the "
            "weights of these nodes"
        )
