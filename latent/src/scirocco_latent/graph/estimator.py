"""`sc.models.StochasticBlockModel`: blocks of nodes of a network, with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidValueError
from scirocco.models._core.chain import Spec
from scirocco.models._core.program import FitOptions, OwnChains
from scirocco.models._core.view import View
from scirocco.run.result import Run
from scirocco_latent.graph.base import LIKELIHOODS
from scirocco_latent.graph.edges import Array, EdgeGraph
from scirocco_latent.graph.gibbs import BlockChain, BlockPrior, Network, network, num_batches
from scirocco_latent.graph.results import BlockResults
from scirocco_latent.graph.starts import Starts

STATS = ("log_joint", "num_blocks", "splits", "passes")
"""Statistics of a draw."""
_LEAST_DRAWN, _TYPICAL, _MOST_DRAWN = 16, 30, 200
"""Limits of the number of blocks if it is drawn, and the number for which a pass is counted."""
_MOST_BLOCKS, _MOST_STARTS, _START_WORK = 2_000, 1_000, 5 * 10**6
"""Most blocks and short chains; by default as many short chains as visit this number of edges times blocks."""
_MOST_WATCHED = 30
"""Blocks up to which all rates are compared between chains; of more, those inside blocks."""


class StochasticBlockModel(BlockResults):
    r"""Stochastic block model: nodes of a block link in the same way; posterior draws.

    Node i is in block :math:`z_i`, and the edges of a pair are :math:`A_{ij} ~ Poisson(θ_i θ_j ω_{z_i z_j})`
    (degree-corrected, the default), :math:`Poisson(ω_{z_i z_j})`, or :math:`Bernoulli(ω_{z_i z_j})`. Priors are
    conjugate: blocks come from a Dirichlet process (the default) or have the shares Dir(a), :math:`ω ~ Gamma(c, d)` or
    Beta(c, d - c), and the propensities θ of a block of n nodes are n · Dir(γ). Draws are exact: nodes move one after
    the other, which costs O(edges · blocks) for all of them, and whole blocks are split and merged.

    Parameters
    ----------
    num_blocks
        K. None (the default): the number of blocks is drawn, too. Blocks then come from a Dirichlet process, and
        `run_.stats["num_blocks"]` has their number in each draw (at most 2 √N, and 200).
    degree_corrected
        Whether nodes have propensities, so that blocks do not have to tell nodes with many edges from those with few.
    likelihood
        "poisson" (counts of edges), or "bernoulli" (an edge or none; not degree-corrected). None: "poisson" if the
        model is degree-corrected or there are weights, otherwise "bernoulli".
    directed
        None: what a networkx or igraph graph says; a matrix is directed if it is not symmetric; edge lists are not.
    concentration
        a of the shares Dir(a); α of the Dirichlet process.
    propensity
        γ: smaller for degrees that differ more.
    prior
        {"edges": c, "pairs": d}: the prior of a rate is worth c edges among d pairs. By default c = ½, and d such that
        the mean is the density of the network.
    batch_size
        Nodes per step, by default 10,000.
    num_starts
        Each chain starts from the best of so many short chains, which start from clusters of a spectral embedding.
        None: 8, fewer for large networks.
    num_samples
        Number of posterior draws per chain; a short run gives fewer.
    num_burnin
        Length of the burn-in, whose draws are discarded: steps (int), or a fraction of the run (float below 1).
    thin
        Steps between two draws. None: the draws are spread evenly over the run after the burn-in.
    num_chains, seed
        Number of independent chains, which run in parallel; the same seed gives the same draws.

    Attributes
    ----------
    labels_, block_matrix_, shares_
        The most probable block of each node; posterior means. Blocks are in the same order everywhere, by size.
    node_names_
        The nodes, in the order of all results.
    draws_
        Draws (chain, draw, ...) with the blocks of all draws in one order.
    run_
        The run; `run_.preparation["chosen"]` says what was chosen.

    Examples
    --------
    >>> import scirocco as sc
    >>> friends = [("a", "b"), ("b", "c"), ("a", "c"), ("x", "y"), ("y", "z"), ("x", "z"), ("c", "x")]
    >>> model = sc.models.StochasticBlockModel(2, degree_corrected=False, num_chains=2, seed=1)
    >>> model = model.fit(friends, num_epochs=200, progress=False)
    >>> model.co_membership([("a", "b"), ("a", "z")]).round()
    array([1., 0.])
    """

    ADVICE = (
        "Chains that found different blocks rarely mix: use fewer blocks, raise `num_starts`, or a longer fit "
        "(num_epochs). `co_membership` and `predict_proba` average over all of them."
    )
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "holland1983": {"degree_corrected": False},
        "nowicki2001": {"degree_corrected": False, "directed": True},
        "karrer2011": {"degree_corrected": True},
    }
    _estimator_type: ClassVar[str | None] = "clusterer"

    def __init__(
        self,
        num_blocks: int | None = None,
        *,
        degree_corrected: bool = True,
        likelihood: str | None = None,
        directed: bool | None = None,
        concentration: float = 1.0,
        propensity: float = 0.5,
        prior: Mapping[str, float] | None = None,
        batch_size: int | None = None,
        num_starts: int | None = None,
        num_samples: int = 250,
        num_burnin: float = 0.5,
        thin: int | None = None,
        num_chains: int = 4,
        seed: int = 0,
    ):
        self.num_blocks, self.degree_corrected, self.likelihood = num_blocks, degree_corrected, likelihood
        self.directed, self.concentration, self.propensity = directed, concentration, propensity
        self.prior, self.batch_size, self.num_starts = prior, batch_size, num_starts
        self.num_samples, self.num_burnin, self.thin = num_samples, num_burnin, thin
        self.num_chains, self.seed = num_chains, seed

    def _program(self, graph: EdgeGraph, unseen: Array | None) -> OwnChains:
        prior, batch = self._prior(graph), self._batch()
        net = network(graph, prior, unseen)
        seed = _checks.positive_int(self.seed, "seed", minimum=0)
        num_starts = self._starts(graph, self._width)
        starts = Starts(prior, net, num_starts, seed)
        return self._own_chains(
            graph,
            unseen,
            _words(graph, prior, batch, num_starts),
            {**prior._asdict(), "batch_size": batch, "num_starts": num_starts},
            _spec(prior, net),
            lambda number: BlockChain(prior, net, starts, batch, seed, number),
            width=self._width,
            poisson=prior.poisson,
        )

    def _drawn(self, graph: EdgeGraph, unseen: Array | None, options: FitOptions) -> Self:
        super()._drawn(graph, unseen, options)
        most = self._most(graph.num_nodes)
        if self.num_blocks is None and self.run_.stats["num_blocks"][...].max() == most < graph.num_nodes:
            _checks.warn(f"the number of blocks reached the most that are drawn ({most}): pass a larger `num_blocks`.")
        return self

    # -- what a fitted model is ---------------------------------------------------------------------------------------

    def _watched(self) -> dict[str, Array]:
        """Shares and rates of the blocks that are in all draws, and what does not depend on blocks."""
        always = (self.draws_["shares"] > 0).all(axis=(0, 1))
        matrix = self.draws_["block_matrix"][:, :, always][..., always]
        rates = (
            {"block_matrix": matrix}
            if matrix.shape[-1] <= _MOST_WATCHED
            else {"inside": np.diagonal(matrix, axis1=-2, axis2=-1)}
        )
        stats = {name: np.asarray(self.run_.stats[name]) for name in ("num_blocks", "log_joint")}
        number = {"number of blocks": stats["num_blocks"]} if self.num_blocks is None else {}
        return {
            "shares": self.draws_["shares"][:, :, always],
            **rates,
            **number,
            "log joint density": stats["log_joint"],
        }

    def _view(self, run: Run, **options: Any) -> View:
        from scirocco_latent.graph import view

        return view.of_blocks(self, run)

    # -- settings -----------------------------------------------------------------------------------------------------

    def _prior(self, graph: EdgeGraph) -> BlockPrior:
        num = self._most(graph.num_nodes)
        if num > min(_MOST_BLOCKS, graph.num_nodes):
            raise InvalidValueError(
                f"`num_blocks` must be at most {_MOST_BLOCKS:,} and the number of nodes ({graph.num_nodes:,}), got "
                f"{num:,}."
            )
        _checks.flag(self.degree_corrected, "degree_corrected")
        _checks.positive(self.concentration, "concentration")
        _checks.positive(self.propensity, "propensity")
        if self.likelihood is not None:
            _checks.choice(self.likelihood, "likelihood", LIKELIHOODS)
        corrected = bool(self.degree_corrected)
        poisson = self.likelihood == "poisson" or (self.likelihood is None and (corrected or graph.has_weights))
        if not poisson and corrected:
            raise InvalidValueError(
                'a degree-corrected model counts edges (likelihood="poisson"): pass degree_corrected=False for '
                'likelihood="bernoulli".'
            )
        if not poisson and graph.has_weights:
            raise InvalidValueError('the network has weights above 1, which require likelihood="poisson".')
        density = float(graph.weight.sum()) / graph.num_pairs
        edges, pairs = self._pseudo_counts(density if poisson else min(density, 0.5), poisson)
        shape, process = float(self.propensity), self.num_blocks is None
        return BlockPrior(num, poisson, corrected, float(self.concentration), edges, pairs, shape, process)

    def _most(self, num_nodes: int) -> int:
        """The number of blocks, or the most that there may be."""
        if self.num_blocks is not None:
            return _checks.positive_int(self.num_blocks, "num_blocks")
        return min(num_nodes, max(_LEAST_DRAWN, min(_MOST_DRAWN, math.ceil(2 * math.sqrt(num_nodes)))))

    def _starts(self, graph: EdgeGraph, num: int) -> int:
        if self.num_starts is None:
            return int(np.clip(_START_WORK // (len(graph.source) * num), 1, 8))
        starts = _checks.positive_int(self.num_starts, "num_starts")
        if starts > _MOST_STARTS:
            raise InvalidValueError(f"`num_starts` must be at most {_MOST_STARTS:,}, got {starts:,}.")
        return starts

    @property
    def _width(self) -> int:
        return _TYPICAL if self.num_blocks is None else int(self.num_blocks)


def _words(graph: EdgeGraph, prior: BlockPrior, batch: int, starts: int) -> str:
    kind = "degree-corrected " if prior.corrected else ""
    number = "a Dirichlet process draws the number of blocks by " if prior.process else ""
    way = "directed " if graph.directed else ""
    edges = "Poisson counts" if prior.poisson else "Bernoulli edges"
    batches = num_batches(graph.num_nodes, batch)
    some = "all" if batches == 1 else f"1/{batches} of the"
    short = "one short chain" if starts == 1 else f"the best of {starts} short chains"
    return (
        f"{way}{kind}block model of {edges}; exact Gibbs sampler: a step draws the blocks of {some} nodes with shares"
        f"{' and propensities' if prior.corrected else ''} integrated out, then the block matrix; {number}splits and "
        f"merges of whole blocks; starts from {short} after a spectral embedding"
    )


def _spec(prior: BlockPrior, net: Network) -> Spec:
    num = prior.num_blocks
    draws = {
        "blocks": jax.ShapeDtypeStruct((net.num_nodes,), np.int16),
        "shares": jax.ShapeDtypeStruct((num,), np.float64),
        "block_matrix": jax.ShapeDtypeStruct((num, num), np.float64),
    }
    if prior.corrected:
        draws["propensities"] = jax.ShapeDtypeStruct(net.degrees.shape, np.float32)
    return Spec(draws, {name: jax.ShapeDtypeStruct((), np.float64) for name in STATS})
