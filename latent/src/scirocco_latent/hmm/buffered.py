r"""Stochastic gradients from random subsequences with buffers, for series whose states are not stored.

A step takes some windows of the series. The expected transitions and observations in each window, given the current
parameters, follow from the observations in the window and in a buffer on either side (Aicher, Ma, Foti & Fox 2019): a
hidden Markov chain forgets geometrically, so the error decreases geometrically with the length of the buffer. Scaled to
the whole series they estimate the shapes of gamma distributions:

.. math:: \hat a = a + \frac{G}{n} \sum_{\text{windows}} E[\text{counts} | \text{window and buffers}].

Transitions, first states and categories are normalised gamma variables that move by SCIR, SCIR-CV or SGRLD. Poisson
rates and precisions move by the same exact diffusion with estimated shape and rate (precision matrices in their
Bartlett factors), means by an Ornstein-Uhlenbeck process, and parameters of a user's emissions by preconditioned
Langevin steps. The stationary distribution is the posterior up to the noise of the estimates, which vanishes with the
step size and with the size of the batch, and up to the error of the buffers. (SCIR moves the sum of a row with its
expected count, which depends on the shares: an effect of relative order 1/√N. SGRLD's sums do not depend on them.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scirocco import _checks
from scirocco.diffusions.host._threads import run_blocks
from scirocco.models._core.chain import Chain, StatePurpose
from scirocco.samplers import schedules
from scirocco.simplex import tables
from scirocco_latent.hmm.emissions import (
    Categorical,
    Emission,
    Encoded,
    NormalEmission,
    Params,
    PoissonEmission,
    positive,
)
from scirocco_latent.hmm.gibbs import Parameters, StatePrior, kernels, layout, log_likelihoods, start, stationary
from scirocco_latent.hmm.own import Own
from scirocco_latent.hmm.series import Array

_WINDOW, _BATCH = 500, 10_000  # observations of a window, and of a step
_STEPS = {"scir": 0.02, "scir_cv": 0.05}  # default step sizes
_EULER = 0.1  # step of "sgrld" in units of the time in which its fastest variables move
# when a filter has forgotten its start; longest buffer; windows of the test
_TOLERANCE, _LONGEST, _PLACES = 1e-3, 1_000, 100
_REFRESH_EVERY, _REFRESH = 10, 10
"""Steps of "scir_cv" between two references, and how many times more windows these have."""


class WindowSettings(NamedTuple):
    """Settings of the chains."""

    sampler: str
    step_size: schedules.Schedule
    windows: int
    """Groups of windows per step."""
    batches: int
    buffer: int
    error: float
    num_starts: int
    words: str


def settings(
    sampler: str,
    prior: StatePrior,
    data: Encoded,
    bounds: Array,
    batch_size: int | None,
    step_size: Any,
    buffer: int | None,
    num_starts: int,
    seed: int,
) -> WindowSettings:
    """Check the arguments, and measure the buffer if it is not given."""
    if step_size is None:
        counts = float(bounds[-1]) / prior.num_states / (prior.num_states * prior.concentration)
        step_size = _STEPS.get(sampler, _EULER / (1.0 + counts))
    made = schedules.normalise(step_size, "HMM")
    steps = made if isinstance(made, schedules.Schedule) else schedules.constant(float(made))
    groups = layout(bounds, _WINDOW, 0, gap=0).num_groups
    size = _BATCH if batch_size is None else batch_size
    windows = int(min(max(1, round(size / _WINDOW)), groups))
    found = start(prior, data, bounds, num_starts, seed)
    if buffer is None:
        length = _forgotten(prior.emission, found, data, bounds, seed)
    else:
        length = _checks.positive_int(buffer, "buffer", minimum=0)
    error = measured_error(prior, found, data, bounds, length, seed)
    words = (
        f"{sampler}: {windows} of {groups} groups of windows of {_WINDOW} observations per step, with buffers of "
        f"{length} on either side (error of expected transitions per observation: {error:.1e})"
    )
    return WindowSettings(sampler, steps, windows, max(1, groups // windows), length, error, num_starts, words)


def _places(data: Encoded, bounds: Array, length: int, seed: int) -> Array:
    """Some windows (low, high) of at most `length` observations."""
    rng = np.random.default_rng([seed, StatePurpose.WINDOWS])
    pieces = layout(bounds, length, int(rng.integers(length)), gap=0).pieces
    return pieces[rng.permutation(len(pieces))[:_PLACES]]


def _forgotten(emission: Emission, params: Parameters, data: Encoded, bounds: Array, seed: int) -> int:
    """Steps after which filters that started in different states differ by at most the tolerance, on average."""
    pieces = _places(data, bounds, _LONGEST, seed)
    out = np.full((len(pieces), _LONGEST), np.nan)
    kernels().forget(emission.kernel(params.emission, data), params.chain(), pieces[:, :2], out)
    lengths = pieces[:, 1] - pieces[:, 0]
    longest = int(lengths.max())
    far = np.array([np.nanmean(out[:, t]) for t in range(longest)])
    near = np.flatnonzero(far <= _TOLERANCE)
    if near.size:
        return int(near[0]) + 1
    if longest == _LONGEST:
        _checks.warn(
            f"the states of this HMM remember more than {_LONGEST:,} observations: after so many, filters still differ "
            f'by {far[-1]:.2g}. Use sampler="gibbs", or pass `buffer`.'
        )
    return longest


def measured_error(
    prior: StatePrior, params: Parameters, data: Encoded, bounds: Array, buffer: int, seed: int
) -> float:
    """Largest error of an expected transition count per observation, compared with buffers four times as long."""
    pieces = _places(data, bounds, _WINDOW, seed)
    total = (pieces[:, 1] - pieces[:, 0]).sum()
    near, far = (
        expected(prior, params, data, with_buffers(pieces, bounds, length), 1).moves.sum(axis=0)
        for length in (buffer, 4 * buffer + 100)
    )
    return float(np.abs(near - far).max() / total)


def with_buffers(pieces: Array, bounds: Array, buffer: int) -> Array:
    """Windows for the kernel, from pieces (begin, end, left, right)."""
    number = np.searchsorted(bounds, pieces[:, 0], side="right") - 1
    low = np.maximum(pieces[:, 0] - buffer, bounds[number])
    high = np.minimum(pieces[:, 1] + buffer, bounds[number + 1])
    return np.stack([pieces[:, 0], pieces[:, 1], low, high, low > bounds[number]], axis=1).astype(np.int64)


class WindowSums(NamedTuple):
    """Expected counts of windows, (window, ...)."""

    firsts: Array
    moves: Array
    stats: Array


def expected(
    prior: StatePrior,
    params: Parameters,
    data: Encoded,
    windows: Array,
    num_threads: int | None,
    shares: Array | None = None,
) -> WindowSums:
    """Expected counts of some windows; `shares` (N, K) gets the probabilities of the states in them."""
    num, width = prior.num_states, prior.emission.stats_width(data)
    count = len(windows)
    sums = WindowSums(np.zeros((count, num)), np.zeros((count, num, num)), np.zeros((count, num, width)))
    arguments, chain, run = prior.emission.kernel(params.emission, data), params.chain(), kernels().smooth
    out = np.empty((0, 0)) if shares is None else shares

    def work(first: int, last: int) -> None:
        run(arguments, chain, windows, *sums, out, first, last)

    run_blocks(work, count, num_threads)
    return sums


class BufferedChain(Chain):
    """One chain: a step moves all parameters by estimates from some windows."""

    def __init__(
        self,
        prior: StatePrior,
        data: Encoded,
        bounds: Array,
        known: WindowSettings,
        seed: int,
        chain: int,
        num_threads: int | None,
    ):
        super().__init__(seed, chain)
        self.prior, self.data, self.bounds, self.known = prior, data, bounds, known
        self.num_threads = num_threads
        self.coded = len(data.codes) > 0
        self.parts: dict[str, Array] | None = None
        """Unnormalised initial distribution, transitions, and emissions."""
        self.reference: dict[str, Array] = {}
        self._shares: tuple[Encoded, Array]

    # -- parameters ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start from the best of several short chains."""
        found = start(self.prior, self.data, self.bounds, self.known.num_starts, self.seed)
        parts = {"initial": found.initial, "transitions": found.transitions, **found.emission}
        # the sum of a row is a gamma variable of shape prior + counts, of SGRLD of shape prior
        counts = 0.0 if self.known.sampler == "sgrld" else float(self.bounds[-1]) / self.prior.num_states
        for name, prior in self._priors().items():
            total = np.broadcast_to(prior, parts[name].shape).sum(axis=-1, keepdims=True)
            parts[name] = parts[name] * (total + (0.0 if name == "initial" else counts))
        self.parts = parts

    def params(self) -> Parameters:
        """The current parameters."""
        assert self.parts is not None
        emission: Params = {n: part for n, part in self.parts.items() if n not in ("initial", "transitions")}
        if "probabilities" in emission:
            emission = {"probabilities": _shares(emission["probabilities"])}
        return Parameters(_shares(self.parts["initial"]), _shares(self.parts["transitions"]), emission)

    def move(self) -> None:
        """All parameters, by estimates from some windows."""
        if self.known.sampler == "scir_cv" and self.step % _REFRESH_EVERY == 0:
            self._refer()
        self._move(self.estimate(self.known.windows, StatePurpose.WINDOWS))

    def _chosen(self, number: int, purpose: StatePurpose) -> tuple[Array, Array, int]:
        """Windows of some random groups, the first window of each group, and the number of all groups."""
        rng = np.random.default_rng(list(self.words(purpose)))
        found = layout(self.bounds, _WINDOW, int(rng.integers(_WINDOW)), gap=0)
        chosen = rng.permutation(found.num_groups)[:number]
        each = [np.arange(found.groups[g], found.groups[g + 1]) for g in chosen]
        firsts = np.cumsum([0, *(len(rows) for rows in each[:-1])])
        windows = with_buffers(found.pieces[np.concatenate(each)], self.bounds, self.known.buffer)
        return windows, firsts, found.num_groups

    def _refer(self) -> None:
        """Renew the reference of the control variates: shapes, and the variances of their estimates in a step."""
        windows, firsts, total = self._chosen(_REFRESH * self.known.windows, StatePurpose.REFRESH)
        sums = expected(self.prior, self.params(), self.data, windows, self.num_threads)
        used, batch = len(firsts), self.known.windows
        whole = self._counts(WindowSums(*(total / used * part.sum(axis=0) for part in sums)))
        each = self._counts(WindowSums(*(np.add.reduceat(part, firsts, axis=0) for part in sums)))
        scale, share = total**2 * (1.0 / batch - 1.0 / total), total**2 * (1.0 / used - 1.0 / total)
        step = float(self.known.step_size(self.step))
        for name, prior in self._priors().items():
            spread = each[name].var(axis=0, ddof=int(used > 1))
            now = {"counted": whole[name], "error": np.sqrt(share * spread), "variance": scale * spread}
            before = now if used == total else {part: self.reference.get(f"{name}_{part}") for part in now}
            if before["counted"] is not None:
                told = before["counted"], prior, before["error"], before["variance"]
                kept = tables.steady(np)(*told, step) & (whole[name] > 0.0)
                self.reference[name] = np.where(kept, prior + whole[name], 0.0)
            self.reference |= {f"{name}_{part}": values for part, values in now.items()}

    def estimate(self, number: int, purpose: StatePurpose) -> WindowSums:
        """Unbiased estimates of the expected counts of all series, up to the error of the buffers."""
        windows, firsts, total = self._chosen(number, purpose)
        scale = total / len(firsts)
        if isinstance(self.prior.emission, Own):
            shares = np.zeros((self.data.num_rows, self.prior.num_states))
            sums = expected(self.prior, self.params(), self.data, windows, self.num_threads, shares)
            used = np.concatenate([np.arange(begin, end) for begin, end in windows[:, :2]])
            self._shares = self.data.take(used), scale * shares[used]
        else:
            sums = expected(self.prior, self.params(), self.data, windows, self.num_threads)
        return WindowSums(*(scale * part.sum(axis=0) for part in sums))

    def _priors(self) -> dict[str, Any]:
        """Prior shapes of the gamma variables, in the order of `_counts`."""
        shapes = {"initial": self.prior.concentration, "transitions": self.prior.transitions}
        emission = self.prior.emission
        return shapes | ({"probabilities": emission.concentration} if isinstance(emission, Categorical) else {})

    def _counts(self, sums: WindowSums) -> dict[str, Array]:
        found = {"initial": sums.firsts, "transitions": sums.moves}
        return found | ({"probabilities": sums.stats} if isinstance(self.prior.emission, Categorical) else {})

    def _shapes(self, sums: WindowSums) -> dict[str, Array]:
        counts = self._counts(sums)
        return {name: prior + counts[name] for name, prior in self._priors().items()}

    def _move(self, sums: WindowSums) -> None:
        assert self.parts is not None
        step = float(self.known.step_size(self.step))
        seed = self.words(StatePurpose.MOVES)
        counts = self._counts(sums)
        for place, (name, shape) in enumerate(self._shapes(sums).items()):
            words = seed[0], seed[1] * 4 + place
            x = self.parts[name]
            if self.known.sampler == "sgrld":
                self.parts[name] = tables.euler(words, x, shape, counts[name].sum(axis=-1, keepdims=True), step)
            else:
                known = self.reference.get(name), self.reference.get(f"{name}_variance")  # of SCIR-CV
                self.parts[name] = tables.moved(words, x, shape, step, *known, num_threads=1)
        emission, words = self.prior.emission, (seed[0], seed[1] * 4 + 3)
        if isinstance(emission, PoissonEmission):
            count, total = emission.summed(sums.stats, self.coded)
            rate = np.array(emission.rate) + count[:, None]
            self.parts["rates"] = _cir(words, self.parts["rates"], emission.shape + total, rate, step)
        elif isinstance(emission, NormalEmission):
            self._move_normal(emission, sums.stats, step, words)
        elif isinstance(emission, Own):
            self._move_own(emission, step, words)

    def _move_normal(self, emission: NormalEmission, stats: Array, step: float, words: tuple[int, int]) -> None:
        """The mean given the precision, then the precision given the mean."""
        assert self.parts is not None
        rng = np.random.default_rng(list(words))
        count, total, square = emission.sums(stats)
        prior, kappa, stay = np.array(emission.mean), emission.strength + count, np.exp(-step)
        centre = (emission.strength * prior + total) / kappa[:, None]
        mean, cover = self.parts["means"], self.parts["covariances"]
        noise = (np.linalg.cholesky(cover) @ rng.standard_normal((*mean.shape, 1)))[..., 0]
        mean = centre + (mean - centre) * stay + noise * np.sqrt((1.0 - stay**2) / kappa)[:, None]
        apart, cross = mean - prior, total[:, :, None] * mean[:, None, :]
        psi = (
            np.diag(emission.spread)
            + emission.strength * apart[:, :, None] * apart[:, None, :]
            + (square - cross - cross.transpose(0, 2, 1))
            + count[:, None, None] * mean[:, :, None] * mean[:, None, :]
        )
        free = emission.degrees + 1.0 + count
        words = words[0], words[1] + 1
        self.parts["means"] = mean
        self.parts["covariances"] = _wishart(words, cover, free, positive(psi, np.array(emission.spread)), step)

    def _move_own(self, emission: Own, step: float, words: tuple[int, int]) -> None:
        """Stochastic gradients, preconditioned by the curvature where the chain began."""
        assert self.parts is not None
        data, shares = self._shares
        params = {"position": self.parts["position"]}
        if "curvature" not in self.reference:
            self.reference["curvature"] = emission.curvature(params, data, shares)
        rng = np.random.default_rng(list(words))
        self.parts |= emission.langevin(rng, params, data, shares, self.reference["curvature"], step)

    # -- draws --------------------------------------------------------------------------------------------------------

    def kept(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parameters in the units of the user, the last state of a single series, and statistics."""
        initial, moves, emission = params = self.params()
        draws = {"initial": initial, "transitions": moves, **self.prior.emission.outside(emission)}
        if len(self.bounds) == 2:
            low = max(0, int(self.bounds[-1]) - 1 - self.known.buffer)
            near = self.data.take(np.arange(low, int(self.bounds[-1])))
            begun = params._replace(initial=stationary(moves)) if low else params
            _, ends = log_likelihoods(self.prior.emission, begun, near, np.array([0, near.num_rows]), 1)
            rng = np.random.default_rng(list(self.words(StatePurpose.REFERENCE)))
            draws["last"] = np.array(rng.choice(self.prior.num_states, p=ends[0]), np.int64)
        return draws, {"passes": self.step / self.known.batches}

    def state(self) -> dict[str, Array]:
        """Arrays from which `restore` resumes exactly."""
        assert self.parts is not None
        marked = {f"reference_{name}": part for name, part in self.reference.items()}
        return {**self.parts, **marked, **super().state()}

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the chain from `state`."""
        names = [name for name in state if name != "steps" and not name.startswith("reference_")]
        self.parts = {name: np.array(state[name]) for name in names}
        self.reference = {
            name.removeprefix("reference_"): np.array(part)
            for name, part in state.items()
            if name.startswith("reference_")
        }
        super().restore(state)


def _shares(x: Array) -> Array:
    found: Array = x / np.maximum(x.sum(axis=-1, keepdims=True), 1e-300)
    return found


def _wishart(words: tuple[int, int], cover: Array, free: Array, psi: Array, step: float) -> Array:
    """Covariances whose inverses move by a diffusion with stationary distribution Wishart(free, psi⁻¹).

    Bartlett's factors of the inverse are independent: their squared diagonal entries are gamma variables, which move by
    `_cir`, and the entries below are normal, which move by Ornstein-Uhlenbeck processes.
    """
    d, stay = cover.shape[1], np.exp(-step)
    root = np.linalg.cholesky(np.linalg.inv(psi))
    factor = np.linalg.solve(root, np.linalg.cholesky(np.linalg.inv(cover)))
    at = np.arange(d)
    shape = 0.5 * (free[:, None] - at)
    halves = _cir(words, 0.5 * factor[:, at, at] ** 2, shape, np.ones_like(shape), step)
    noise = np.random.default_rng([*words, 1]).standard_normal(factor.shape)
    factor = np.tril(stay * factor + np.sqrt(1.0 - stay**2) * noise, -1)
    factor[:, at, at] = np.sqrt(2.0 * halves)
    side = np.linalg.inv(root @ factor)
    found: Array = side.transpose(0, 2, 1) @ side
    return found


def _cir(words: tuple[int, int], x: Array, shape: Array, rate: Array, step: float) -> Array:
    """The diffusion with stationary distribution Gamma(shape, rate), over a time that is `step` in its own units."""
    scaled = tables.moved(words, x * rate, np.maximum(shape, 1e-3), step, num_threads=1)
    return np.maximum(scaled / rate, 1e-300)
