"""`sc.models.StochasticBlockModel`: blocks of nodes of a network, with their uncertainty."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from scirocco import _checks
from scirocco.data.arrays import ArraySource
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models import fits
from scirocco.models.fits.mixing import warn_if_unmixed
from scirocco.models.graph.edges import Array, Graph, GraphLike, pair_numbers, read
from scirocco.models.graph.gibbs import BlockChain, Network, Prior, network, num_batches
from scirocco.models.graph.links import Nodes
from scirocco.models.graph.results import Results
from scirocco.models.graph.starts import Starts
from scirocco.models.view import View
from scirocco.run.encoding import decode, encode
from scirocco.run.progress import Callback, as_callbacks
from scirocco.run.result import Run

KIND = fits.Kind("StochasticBlockModel", "a block model", "block_model")
LIKELIHOODS = ("poisson", "bernoulli")
_MOST_BLOCKS, _MOST_STARTS, _BATCH = 2_000, 1_000, 10_000
_LEAST_EPOCHS, _MOST_EPOCHS, _WORK, _START_WORK = 100, 4_000, 10**9, 2 * 10**7
_ADVICE = (
    "Chains that found different blocks rarely mix: use fewer blocks, raise `num_starts`, or a longer fit "
    "(num_epochs). `co_membership` and `predict_proba` average over all of them."
)


class StochasticBlockModel(fits.Conventions, Results):
    r"""Stochastic block model: nodes of a block link in the same way; posterior draws.

    Node i is in block :math:`z_i`, and the edges of a pair are :math:`A_{ij} ~ Poisson(θ_i θ_j ω_{z_i z_j})`
    (degree-corrected, the default), :math:`Poisson(ω_{z_i z_j})`, or :math:`Bernoulli(ω_{z_i z_j})`. Priors are
    conjugate: blocks have the shares Dir(a), :math:`ω ~ Gamma(c, d)` or Beta(c, d - c), and the propensities θ of a
    block of n nodes are n · Dir(γ). Draws are exact; a pass over all nodes costs O(edges · blocks).

    Parameters
    ----------
    num_blocks
        K.
    degree_corrected
        Whether nodes have propensities, so that blocks do not have to tell nodes with many edges from those with few.
    likelihood
        "poisson" (counts of edges), or "bernoulli" (an edge or none; not degree-corrected). None: "poisson" if the
        model is degree-corrected or there are weights, otherwise "bernoulli".
    directed
        None: what a networkx or igraph graph says; a matrix is directed if it is not symmetric; edge lists are not.
    concentration
        a.
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

    _estimator_type: ClassVar[str | None] = "clusterer"

    def __init__(
        self,
        num_blocks: int = 2,
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
    ) -> StochasticBlockModel:
        """Sample from the posterior given a network.

        Parameters
        ----------
        graph
            Edges (edges, 2), or (edges, 3) with weights, as an array, a list, a data frame or a CSV file; a SciPy
            sparse adjacency matrix; a networkx or igraph graph. Nodes are texts or integers. Self-loops are dropped.
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
        prior = self._prior(found)
        unseen = None if held_out is None else self._unseen(held_out, found)
        batch = _BATCH if self.batch_size is None else _checks.positive_int(self.batch_size, "batch_size")
        length = fits.check_length(
            num_steps,
            num_epochs,
            max_seconds,
            num_rows=num_batches(found.num_nodes, batch),
            batch_size=1,
            default_epochs=min(
                _MOST_EPOCHS, max(_LEAST_EPOCHS, _WORK // (len(found.source) * prior.num_blocks))
            ),
            planned_steps=fits.planned_steps(*self._draws_wanted()),
        )
        net = network(found, prior, unseen)
        fit, words = self._fit(found, prior, net, batch, length)
        if store is None:
            fit.warn_if_large("Pass a `store`, or fewer draws (num_samples).")
        told = Nodes(found.names, found.num_nodes, found.directed, prior.poisson)
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
        self._settle(dataclasses.replace(run, preparation={"chosen": words}), told)
        if "draws_" in self.__dict__:
            watched = {name: self.draws_[name] for name in ("block_matrix", "shares")}
            warn_if_unmixed(watched, "block model", _ADVICE)
        return self

    def report_view(self, run: Run | None = None, **options: Any) -> View:
        """Contents of a report, see `scirocco.models.view`."""
        from scirocco.models.graph import view

        return view.view(self, run)

    def to_arviz(self) -> Any:
        """Convert the draws to ArviZ, with the blocks of all draws in one order."""
        self._check_fitted()
        return fits.to_arviz(KIND, self.run_, self.draws_, dict(self.run_.stats), self._coordinates())

    # -- on disk ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the fitted model: draws as a Zarr group, settings and names of nodes; no pickles and no code."""
        self._check_fitted()
        draws = {name: np.asarray(values) for name, values in (self.run_.draws or {}).items()}
        stats = {name: np.asarray(values) for name, values in self.run_.stats.items()}
        fits.save(KIND, draws, stats, {"sampler": "gibbs"}, self._extra(self.nodes_), path, overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> StochasticBlockModel:
        """Load a model from `save`, or from the `store` of a fit, finished or not."""
        from scirocco.run.loading import load

        extra = fits.load(KIND, path).extra
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

    def _prior(self, graph: Graph) -> Prior:
        num = _checks.positive_int(self.num_blocks, "num_blocks")
        if num > min(_MOST_BLOCKS, graph.num_nodes):
            raise InvalidValueError(
                f"`num_blocks` must be at most {_MOST_BLOCKS:,} and the number of nodes ({graph.num_nodes:,}), got "
                f"{num:,}."
            )
        if not isinstance(self.degree_corrected, (bool, np.bool_)):
            raise InvalidTypeError(
                f"`degree_corrected` must be True or False, got {self.degree_corrected!r}."
            )
        _checks.positive(self.concentration, "concentration")
        _checks.positive(self.propensity, "propensity")
        if self.likelihood is not None:
            _checks.choice(self.likelihood, "likelihood", LIKELIHOODS)
        corrected = bool(self.degree_corrected)
        poisson = self.likelihood == "poisson" or (
            self.likelihood is None and (corrected or graph.has_weights)
        )
        if not poisson and corrected:
            raise InvalidValueError(
                'a degree-corrected model counts edges (likelihood="poisson"): pass degree_corrected=False for '
                'likelihood="bernoulli".'
            )
        if not poisson and graph.has_weights:
            raise InvalidValueError('the network has weights above 1, which require likelihood="poisson".')
        edges, pairs = self._pseudo_counts(graph, poisson)
        return Prior(num, poisson, corrected, float(self.concentration), edges, pairs, float(self.propensity))

    def _pseudo_counts(self, graph: Graph, poisson: bool) -> tuple[float, float]:
        if self.prior is not None and not isinstance(self.prior, Mapping):
            raise InvalidTypeError(f"`prior` must be a dict, got {type(self.prior).__name__}.")
        known = dict(self.prior or {})
        for name in known:
            if name not in ("edges", "pairs"):
                raise InvalidValueError(f"the prior has no {name!r}. It has edges and pairs.")
            _checks.positive(known[name], f"the prior's {name}")
        edges = float(known.get("edges", 0.5))
        density = float(graph.weight.sum()) / graph.num_pairs
        pairs = float(known.get("pairs", edges / (density if poisson else min(density, 0.5))))
        if not poisson and pairs <= edges:
            raise InvalidValueError(
                f"the prior must have more pairs than edges, got edges={edges:g} and pairs={pairs:g}."
            )
        return edges, pairs

    def _unseen(self, held_out: Any, graph: Graph) -> Array:
        pairs = pair_numbers(held_out, graph.names, graph.num_nodes)
        if np.any(pairs[:, 0] == pairs[:, 1]):
            raise InvalidValueError("`held_out` contains a pair of a node with itself.")
        return pairs

    def _starts(self, graph: Graph, num: int) -> int:
        if self.num_starts is None:
            return int(np.clip(_START_WORK // (len(graph.source) * num), 1, 8))
        starts = _checks.positive_int(self.num_starts, "num_starts")
        if starts > _MOST_STARTS:
            raise InvalidValueError(f"`num_starts` must be at most {_MOST_STARTS:,}, got {starts:,}.")
        return starts

    def _fit(
        self, graph: Graph, prior: Prior, net: Network, batch: int, length: fits.Length
    ) -> tuple[fits.Fit, str]:
        """The fit, and what was chosen in words."""
        num_samples, num_burnin, thin = self._draws_wanted()
        num_chains = _checks.positive_int(self.num_chains, "num_chains")
        seed = _checks.positive_int(self.seed, "seed", minimum=0)
        num_starts = self._starts(graph, prior.num_blocks)
        starts = Starts(prior, net, num_starts, seed)
        arrays = {"source": graph.source, "target": graph.target, "weight": graph.weight, "unseen": net.first}
        known = {**prior._asdict(), "directed": graph.directed, "num_nodes": graph.num_nodes}

        def make(number: int) -> BlockChain:
            chain = BlockChain(prior, net, starts, batch, seed, number)
            if length.max_seconds is not None:  # it is for sampling, not for compiling and short chains
                chain.advance(0)
            return chain

        fit = fits.Fit(
            KIND,
            {"sampler": "gibbs", **known, "batch_size": batch, "num_starts": num_starts},
            lambda: "-".join(
                ArraySource({name: part}).fingerprint() for name, part in arrays.items() if len(part)
            ),
            len(graph.source),
            _spec(prior, net),
            lambda: [make(number) for number in range(num_chains)],
            num_chains,
            num_samples,
            seed,
            length,
            num_burnin,
            thin,
            capacity=8 if graph.num_nodes < 10_000 else 1,
        )
        return fit, _words(graph, prior, batch, num_starts)


def _words(graph: Graph, prior: Prior, batch: int, starts: int) -> str:
    kind = "degree-corrected " if prior.corrected else ""
    way = "directed " if graph.directed else ""
    edges = "Poisson counts" if prior.poisson else "Bernoulli edges"
    batches = num_batches(graph.num_nodes, batch)
    some = "all" if batches == 1 else f"1/{batches} of the"
    short = "one short chain" if starts == 1 else f"the best of {starts} short chains"
    return (
        f"{way}{kind}block model of {edges}; exact Gibbs sampler: a step draws the blocks of {some} nodes with shares"
        f"{' and propensities' if prior.corrected else ''} integrated out, then the block matrix; starts from {short} "
        "after a spectral embedding"
    )


def _spec(prior: Prior, net: Network) -> fits.Spec:
    num = prior.num_blocks
    draws = {
        "blocks": jax.ShapeDtypeStruct((net.num_nodes,), np.int16),
        "shares": jax.ShapeDtypeStruct((num,), np.float64),
        "block_matrix": jax.ShapeDtypeStruct((num, num), np.float64),
    }
    if prior.corrected:
        draws["propensities"] = jax.ShapeDtypeStruct(net.degrees.shape, np.float32)
    return fits.Spec(draws, {name: jax.ShapeDtypeStruct((), np.float64) for name in ("log_joint", "passes")})
