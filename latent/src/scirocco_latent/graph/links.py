"""Results that all models of networks share: names of nodes, probabilities of links, scores of hidden ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln
from scipy.stats import rankdata

from scirocco.diagnostics.intervals import Predicted, central
from scirocco.errors import InvalidValueError
from scirocco.models._core.model import FittedModel
from scirocco_latent.graph.edges import Array, GraphLike, pair_numbers, read

_MOST_DRAWS, _MOST_WORK, _LEAST_DRAWS = 500, 200_000_000, 50
"""Most draws to average over; most pairs times draws, but so many draws in any case."""


class Nodes(NamedTuple):
    """What results need to know of the network that was fitted."""

    names: tuple[Any, ...] | None
    """None: the nodes are 0 to n - 1."""
    num_nodes: int
    directed: bool
    poisson: bool
    """Whether edges are counts."""
    edges: list[list[int]] | None = None
    """[sources, targets] of a small network, for its picture."""

    def listed(self) -> list[Any]:
        """The names of the nodes."""
        return list(range(self.num_nodes)) if self.names is None else list(self.names)


class LinkResults(FittedModel):
    """Results from draws of a model that gives each pair of nodes a rate of edges."""

    draws_: dict[str, Array]
    """Draws (chain, draw, ...) with blocks or communities in the same order in all of them."""
    nodes_: Nodes

    def memberships(self) -> Any:
        """Probabilities or mean memberships (nodes, blocks or communities)."""
        raise NotImplementedError

    def block_matrix(self, interval: float | None = None) -> Any:
        """Rates of edges between blocks or communities."""
        raise NotImplementedError

    def _rates(self, pairs: Array, chosen: Array) -> Iterator[Array]:
        """For some draws, the rates (or probabilities) of edges of all pairs."""
        raise NotImplementedError

    # -- nodes and blocks ---------------------------------------------------------------------------------------------

    @property
    def node_names_(self) -> list[Any]:
        """The nodes, in the order of all results."""
        self._check_fitted()
        return self.nodes_.listed()

    @property
    def labels_(self) -> Array:
        """The most probable block, or the community with the largest mean membership, of each node."""
        labels: Array = self.memberships().argmax(axis=1)
        return labels

    def shares(self, interval: float | None = None) -> Any:
        """Shares of blocks in the nodes, or of communities in the edges: means, or `(mean, low, high)`."""
        self._check_fitted()
        return with_interval(self.draws_["shares"], interval)

    @property
    def shares_(self) -> Array:
        """Posterior mean shares of the blocks or communities."""
        mean: Array = self.shares()
        return mean

    @property
    def block_matrix_(self) -> Array:
        """Posterior mean rates of edges between blocks or communities."""
        mean: Array = self.block_matrix()
        return mean

    # -- links --------------------------------------------------------------------------------------------------------

    def predict_proba(self, pairs: Any, interval: float | None = None) -> Any:
        """P(at least one edge) of pairs of nodes (pairs, 2), averaged over draws.

        With `interval`, `(mean, low, high)`: the posterior interval of that probability.
        """
        self._check_fitted()
        numbers = self._numbers(pairs)
        found = (self._linked(rates) for rates in self._rates(numbers, self._chosen(len(numbers))))
        if interval is None:
            return _average(found, len(numbers))
        each = np.stack(list(found))
        low, high = central(each, interval)
        return Predicted(each.mean(axis=0), low, high)

    def log_predictive(self, pairs: Any, counts: Any) -> Array:
        """log p(edges of each pair | fitted data), averaged over draws before the logarithm.

        `counts`: the number of edges of each pair, or whether there is one.
        """
        self._check_fitted()
        numbers = self._numbers(pairs)
        seen = np.asarray(counts, np.float64)
        if seen.shape != (len(numbers),) or not np.all((seen >= 0) & (seen == np.floor(seen))):
            raise InvalidValueError(f"`counts` must have a whole number >= 0 for each of the {len(numbers):,} pairs.")
        if not self.nodes_.poisson:
            seen = np.minimum(seen, 1.0)

        def masses() -> Iterator[Array]:
            for rates in self._rates(numbers, self._chosen(len(numbers))):
                if self.nodes_.poisson:
                    logs = seen * np.log(np.maximum(rates, 1e-300)) - rates - gammaln(seen + 1)
                    yield np.exp(logs)
                else:
                    yield np.where(seen > 0, rates, 1.0 - rates)

        found: Array = np.log(np.maximum(_average(masses(), len(numbers)), 1e-300))
        return found

    def score(self, pairs: Any, counts: Any, density: float | None = None) -> float:
        """Mean of `log_predictive` over pairs that were held out.

        Pairs of `held_out_links` are linked far more often than those of the network, so that probabilities which are
        too large have a good score, ½ for all pairs the best of all constants. With `density`, the share of linked
        pairs in the network, the score is that of the probability of a link given how pairs were chosen; the best
        constant is then the density.
        """
        if density is None:
            return float(self.log_predictive(pairs, counts).mean())
        if not 0 < density < 1:
            raise InvalidValueError(f"`density` must be between 0 and 1, got {density!r}.")
        linked = np.asarray(counts) > 0
        share = np.clip(linked.mean(), 1e-12, 1 - 1e-12)
        p = np.clip(self.predict_proba(pairs), 1e-300, 1 - 1e-12)
        odds = p / (1 - p) * (1 - density) / density * share / (1 - share)
        return float(-np.log1p(np.where(linked, 1 / odds, odds)).mean())

    def perplexity(self, pairs: Any, counts: Any, density: float | None = None) -> float:
        """exp(-score): 1 is perfect."""
        return float(np.exp(-self.score(pairs, counts, density)))

    def auc(self, pairs: Any, counts: Any) -> float:
        """Probability that a linked pair is ranked above one that is not (area under the ROC curve)."""
        linked = np.asarray(counts) > 0
        if linked.all() or not linked.any():
            raise InvalidValueError("the AUC requires both linked pairs and pairs without an edge.")
        ranks = rankdata(self.predict_proba(pairs))
        ones = int(linked.sum())
        rest = len(linked) - ones
        return float((ranks[linked].sum() - ones * (ones + 1) / 2) / (ones * rest))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _linked(self, rates: Array) -> Array:
        return -np.expm1(-rates) if self.nodes_.poisson else rates

    def _numbers(self, pairs: Any) -> Array:
        return pair_numbers(pairs, self.nodes_.names, self.nodes_.num_nodes)

    @property
    def _num_draws(self) -> int:
        return int(np.prod(next(iter(self.draws_.values())).shape[:2]))

    def _chosen(self, num_pairs: int) -> Array:
        """Numbers of the draws to average over: fewer for many pairs."""
        most = min(self._num_draws, _MOST_DRAWS, max(_LEAST_DRAWS, _MOST_WORK // max(num_pairs, 1)))
        return np.unique(np.linspace(0, self._num_draws - 1, most).astype(int))

    def _flat(self, name: str) -> Array:
        values = self.draws_[name]
        return values.reshape(-1, *values.shape[2:])


def _average(parts: Iterator[Array], length: int) -> Array:
    total, count = np.zeros(length), 0
    for part in parts:
        total += part
        count += 1
    return total / max(count, 1)


def with_interval(draws: Array, interval: float | None) -> Any:
    """Posterior means of draws (chain, draw, ...), or `(mean, low, high)`."""
    mean = draws.mean(axis=(0, 1))
    return mean if interval is None else Predicted(mean, *central(draws, interval, (0, 1)))


def held_out_links(graph: GraphLike, share: float = 0.1, *, seed: int = 0, **options: Any) -> tuple[list[Any], Array]:
    """Choose pairs of nodes to hold out: some of the edges, and as many pairs without one.

    Parameters
    ----------
    graph
        A network, as for `StochasticBlockModel.fit`.
    share
        Share of the edges.
    seed
        Of the choice.
    options
        `directed` and `nodes`, as for the model.

    Returns
    -------
    pairs, counts
        Pairs of node names, for `fit(graph, held_out=pairs)`, and their numbers of edges, for `score(pairs, counts)`.
    """
    if not 0 < share < 1:
        raise InvalidValueError(f"`share` must be between 0 and 1, got {share!r}.")
    found = read(graph, **options)
    rng = np.random.default_rng(seed)
    num, edges = found.num_nodes, len(found.source)
    count = max(1, round(share * edges))
    chosen = rng.choice(edges, count, replace=False)
    taken = set((found.source * num + found.target).tolist())
    if found.num_pairs - edges < count:
        raise InvalidValueError(
            f"the network has too few pairs without an edge ({found.num_pairs - edges:,.0f}) to hold out {count:,}."
        )
    others = list[tuple[int, int]]()
    while len(others) < count:
        i, j = (int(end) for end in rng.integers(0, num, 2))
        i, j = (i, j) if found.directed or i < j else (j, i)
        if i != j and i * num + j not in taken:
            taken.add(i * num + j)
            others.append((i, j))
    pairs = [*zip(found.source[chosen].tolist(), found.target[chosen].tolist(), strict=True), *others]
    names = found.names
    told = pairs if names is None else [(names[i], names[j]) for i, j in pairs]
    return told, np.concatenate([found.weight[chosen], np.zeros(count, np.int64)])
