r"""The exact sampler: states of a batch of pieces given the parameters, then all parameters given all states.

The states of all observations are stored, with the sums that the conjugate updates need. A pass cuts long series at new
random places. Given the states at the cuts, the pieces between them are independent, and the states of a piece are
drawn jointly (forward filtering, backward sampling). A step does so for a batch of pieces, updates the sums by what has
changed, and draws the parameters:

.. math:: π ~ Dir(a + n_1), \quad A_j ~ Dir(a + κ e_j + n_j), \quad θ_k | \text{observations in state } k.

Every step is a Gibbs update of the joint posterior of states and parameters: exact for any batch size and any length of
the pieces. In the first pass, states that have not been drawn yet are integrated out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scirocco._extras import later
from scirocco.diffusions.host._threads import run_blocks
from scirocco.models._core.chain import Chain, StatePurpose
from scirocco_latent.hmm.emissions import Emission, Encoded, Params, dirichlet
from scirocco_latent.hmm.series import Array

PIECE = 8192
"""Observations in a piece: its densities and filters fit in a fast cache."""
_STREAMS = 16  # purposes of random numbers in a step
# observations of short chains, the length of their pieces, sweeps of all and of the best
_START_ROWS, _START_PIECE, _START_SWEEPS = 10_000, 1_000, (12, 30)
_LEAST = 1e-100  # of a transition probability: the filter divides by sums of them
kernels = later("scirocco_latent.hmm._kernels")
"""The compiled kernels."""


class StatePrior(NamedTuple):
    """The prior of a hidden Markov model."""

    num_states: int
    concentration: float
    """a of the Dirichlet distributions."""
    sticky: float
    """κ, added to a for staying in a state."""
    emission: Emission

    @property
    def transitions(self) -> Array:
        """Shapes of the Dirichlet priors of transitions (K, K)."""
        return self.concentration + self.sticky * np.eye(self.num_states)


class Parameters(NamedTuple):
    """Parameters in the units of the kernels."""

    initial: Array
    transitions: Array
    emission: Params

    def chain(self) -> tuple[Array, Array, Array, Array]:
        """Arguments of the kernels."""
        moves = np.maximum(self.transitions, _LEAST)
        first = np.maximum(self.initial, _LEAST)
        return first, np.ascontiguousarray(moves), np.ascontiguousarray(moves.T), stationary(moves)


def stationary(transitions: Array) -> Array:
    """The stationary distribution of transition matrices (..., K, K)."""
    num = transitions.shape[-1]
    system = np.eye(num) - transitions + 1.0  # π (I - A + 1) = 1
    system, ones = np.swapaxes(system, -1, -2), np.ones((*transitions.shape[:-2], num, 1))
    try:
        found = np.linalg.solve(system, ones)[..., 0]
    except np.linalg.LinAlgError:  # no state is ever left: all are alike
        found = (np.linalg.pinv(system) @ ones)[..., 0]
    found = np.maximum(found, _LEAST)
    return found / found.sum(axis=-1, keepdims=True)


class PieceLayout(NamedTuple):
    """Pieces of all series, and groups of pieces with about as many observations."""

    pieces: Array
    """(begin, end, left, right), see the kernels."""
    groups: Array
    """Group g is the pieces groups[g] to groups[g + 1]."""

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return len(self.groups) - 1


def layout(bounds: Array, length: int, offset: int, gap: int = 1) -> PieceLayout:
    """Cut series that are longer than `length`; the `gap` observations at each cut are in no piece."""
    begins, ends = bounds[:-1], bounds[1:]
    short = ends - begins <= length
    zeros = np.zeros(int(short.sum()), np.int64)
    parts = [np.stack([begins[short], ends[short], zeros, zeros], axis=1)]
    for begin, end in zip(begins[~short], ends[~short], strict=True):
        cuts = np.arange(begin + offset, end, length + gap)
        low = np.concatenate([[begin], cuts + gap])
        high = np.concatenate([cuts, [end]])
        full = low < high
        low, high = low[full], high[full]
        parts.append(np.stack([low, high, low > begin, high < end], axis=1))
    pieces = np.concatenate(parts).astype(np.int64)
    pieces = pieces[np.argsort(pieces[:, 0], kind="stable")]
    number = pieces[:, 0] // length
    starts = np.flatnonzero(np.concatenate([[True], np.diff(number) > 0]))
    return PieceLayout(pieces, np.append(starts, len(pieces)).astype(np.int64))


class States:
    """States of all observations, and the sums that follow from them."""

    def __init__(self, prior: StatePrior, data: Encoded, bounds: Array, num_threads: int | None):
        num, width = prior.num_states, prior.emission.stats_width(data)
        self.prior, self.data, self.bounds, self.num_threads = prior, data, bounds, num_threads
        self.z = np.full(data.num_rows, -1, np.int8)
        self.firsts, self.moves, self.stats = np.zeros(num), np.zeros((num, num)), np.zeros((num, width))

    def step(self, params: Parameters, found: PieceLayout, chosen: Array, seed: tuple[int, int]) -> None:
        """Draw the states of some groups of pieces."""
        sums = [np.zeros((len(chosen), *part.shape)) for part in (self.firsts, self.moves, self.stats)]
        data = self.prior.emission.kernel(params.emission, self.data)
        words = np.array(seed, np.uint64)
        chain, run = params.chain(), kernels().sample_groups

        def work(first: int, last: int) -> None:
            run(data, chain, self.z, found.pieces, found.groups, chosen, *sums, (words[0], words[1]), first, last)

        run_blocks(work, len(chosen), self.num_threads)
        for total, change in zip((self.firsts, self.moves, self.stats), sums, strict=True):
            total += change.sum(axis=0)

    def draw(self, rng: np.random.Generator, params: Parameters) -> Parameters:
        """Draw all parameters given the states; the last ones matter if the prior is not conjugate."""
        # sums of differences of whole numbers are exact; those of products may be rounded below 0
        prior = self.prior
        initial = dirichlet(rng, prior.concentration + self.firsts)
        moves = dirichlet(rng, prior.transitions + self.moves)
        emission = prior.emission.draw(rng, params.emission, self.data, self.z, self.stats)
        return Parameters(initial, moves, emission)

    def log_joint(self, params: Parameters) -> float:
        """log p(observations, states | parameters), up to a constant; it does not depend on labels."""
        logs = (self.firsts * np.log(np.maximum(params.initial, _LEAST))).sum()
        logs += (self.moves * np.log(np.maximum(params.transitions, _LEAST))).sum()
        emission = self.prior.emission
        return float(logs) + emission.log_density(params.emission, self.data, self.z, self.stats)


class StateChain(Chain):
    """One chain: a step draws the states of a batch, then the parameters."""

    def __init__(
        self,
        prior: StatePrior,
        data: Encoded,
        bounds: Array,
        *,
        batch_size: int,
        num_starts: int,
        seed: int,
        chain: int,
        num_threads: int | None,
        piece: int = PIECE,
        of_states: type[States] = States,
    ):
        super().__init__(seed, chain)
        self.prior, self.piece, self.num_starts = prior, piece, num_starts
        self.states = of_states(prior, data, bounds, num_threads)
        self.batches = num_batches(bounds, batch_size, piece)
        self._whole = self.batches == 1 and int(np.diff(bounds).max()) <= piece  # then all passes are the same
        self._pass: tuple[int, PieceLayout, list[Array]] | None = None
        self.params: Parameters | None = None

    def begin(self) -> None:
        """Start from the best of several short chains."""
        self.params = start(self.prior, self.states.data, self.states.bounds, self.num_starts, self.seed)

    def move(self) -> None:
        """States of a batch, then all parameters."""
        assert self.params is not None
        number, place = divmod(self.step, self.batches)
        if self._pass is None or (self._pass[0] != number and not self._whole):
            self._pass = (number, *self._layout(number))
        _, found, batches = self._pass
        self.states.step(self.params, found, batches[place], self.words(StatePurpose.STATES))
        words = np.array(self.words(StatePurpose.PARAMETERS), np.uint64)
        rng = np.random.Generator(np.random.Philox(key=words))
        self.params = self.states.draw(rng, self.params)

    def _layout(self, number: int) -> tuple[PieceLayout, list[Array]]:
        """Pieces and batches of a pass: they depend on its number alone."""
        rng = np.random.default_rng([self.seed, number * _STREAMS + StatePurpose.ORDER])
        found = layout(self.states.bounds, self.piece, int(rng.integers(self.piece + 1)))
        return found, np.array_split(rng.permutation(found.num_groups), self.batches)

    def kept(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parameters in the units of the user, the last state of a single series, and statistics."""
        assert self.params is not None
        initial, moves, emission = self.params
        draws = {"initial": initial, "transitions": moves, **self.prior.emission.outside(emission)}
        if len(self.states.bounds) == 2:
            last = int(self.states.z[-1])
            draws["last"] = np.array(last if last >= 0 else 0, np.int64)
        return draws, {"log_joint": self.states.log_joint(self.params), "passes": self.step / self.batches}

    def state(self) -> dict[str, Array]:
        """Arrays from which `restore` resumes exactly."""
        assert self.params is not None
        states = self.states
        return {
            "z": states.z,
            "firsts": states.firsts,
            "moves": states.moves,
            "stats": states.stats,
            "initial": self.params.initial,
            "transitions": self.params.transitions,
            **{f"emission_{name}": part for name, part in self.params.emission.items()},
            **super().state(),
        }

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the chain from `state`."""
        self.states.z = np.array(state["z"], np.int8)
        for name in ("firsts", "moves", "stats"):
            setattr(self.states, name, np.array(state[name]))
        marked = {name: part for name, part in state.items() if name.startswith("emission_")}
        emission = {name.removeprefix("emission_"): np.array(part) for name, part in marked.items()}
        self.params = Parameters(np.array(state["initial"]), np.array(state["transitions"]), emission)
        super().restore(state)


def num_batches(bounds: Array, batch_size: int, piece: int = PIECE) -> int:
    """Steps in a pass: the same for all cuts, none of them empty."""
    fewest = max(1, layout(bounds, piece, 0).num_groups - 1)
    return int(min(max(1, round(bounds[-1] / batch_size)), fewest))


def start(prior: StatePrior, data: Encoded, bounds: Array, num_starts: int, seed: int) -> Parameters:
    """Parameters to start from: the best of several short chains on a part of the observations.

    All chains make some sweeps, and the better quarter of them some more.
    """
    rng = np.random.default_rng([seed, StatePurpose.START])
    part, parts = _some(rng, data, bounds)
    whole = layout(parts, max(1, part.num_rows), 0)
    everything, num = np.arange(whole.num_groups), prior.num_states
    racing = list[tuple[States, Parameters]]()
    for _ in range(max(1, num_starts)):
        moves = dirichlet(rng, 1.0 + 8.0 * np.eye(num))
        emission = prior.emission.first(rng, part, num)
        racing.append((States(prior, part, parts, 1), Parameters(np.full(num, 1 / num), moves, emission)))
    sweep = 0
    for sweeps in _START_SWEEPS if num_starts else ():
        moved = list[tuple[float, States, Parameters]]()
        for states, params in racing:
            for _ in range(sweeps):
                states.step(params, whole, everything, (seed, sweep * _STREAMS + StatePurpose.START))
                params, sweep = states.draw(rng, params), sweep + 1
                nearer = prior.emission.settled(params.emission, part, states.z)
                params = params._replace(emission=nearer)
            logs, _ends = log_likelihoods(prior.emission, params, part, parts, 1)
            moved.append((float(logs.sum()), states, params))
        moved.sort(key=lambda one: -one[0])
        racing = [(states, params) for _, states, params in moved[: -(-len(moved) // 4)]]
    return racing[0][1]


def _some(rng: np.random.Generator, data: Encoded, bounds: Array) -> tuple[Encoded, Array]:
    """Random pieces of the series, at most 10,000 observations."""
    if data.num_rows <= _START_ROWS:
        return data, bounds
    found = layout(bounds, _START_PIECE, int(rng.integers(_START_PIECE)), gap=0).pieces
    order = rng.permutation(len(found))
    sizes = found[order, 1] - found[order, 0]
    chosen = np.sort(order[: max(1, int(np.searchsorted(np.cumsum(sizes), _START_ROWS)))])
    rows = np.concatenate([np.arange(begin, end) for begin, end in found[chosen, :2]])
    return data.take(rows), np.concatenate([[0], np.cumsum(found[chosen, 1] - found[chosen, 0])])


def log_likelihoods(
    emission: Emission, params: Parameters, data: Encoded, bounds: Array, num_threads: int | None = None
) -> tuple[Array, Array]:
    """Log likelihood of each series up to `emission.constant`, and the distribution of its last state."""
    logs, ends = np.empty(len(bounds) - 1), np.empty((len(bounds) - 1, len(params.initial)))
    arguments, chain, run = emission.kernel(params.emission, data), params.chain(), kernels().filter_series

    def work(first: int, last: int) -> None:
        run(arguments, chain, bounds, logs, ends, first, last)

    run_blocks(work, len(logs), num_threads)
    return logs, ends
