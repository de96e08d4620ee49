"""Effective sample sizes, R-hat, Monte Carlo errors and autocorrelations, for many parameters at once.

Definitions are those of Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), Rank-normalization, folding, and
localization: an improved R-hat for assessing convergence of MCMC; numbers agree with ArviZ's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from scirocco import _checks
from scirocco.errors import InvalidValueError

Array: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int64]

_FEWEST_DRAWS = 4  # per chain: half-chains of two
_BLOCK = 1 << 18
"""Numbers processed together: few enough for the processor's cache, enough to be worth a call."""
_TAILS = (0.05, 0.95)  # quantiles of "tail"


def ess(values: npt.ArrayLike, method: str = "bulk", group_size: int = 1) -> Array:
    r"""Effective sample size: the number of independent draws with the same information.

    .. math:: \frac{S}{τ}, \qquad τ = -1 + 2 \sum_t ρ_t

    with S draws in total and ρ the autocorrelation over all half-chains, including differences between half-chains.
    The sum ends where the sum of a pair is below 0, and sums of pairs are made non-increasing (Geyer 1992).

    Parameters
    ----------
    values
        Draws (chain, draw, ...).
    method
        "bulk": of normal scores of the ranks, for the centre of the distribution; "tail": the smaller of those for the
        5 % and the 95 % quantile; "mean": of the draws themselves, for their mean; "identity": the same without
        splitting the chains.
    group_size
        Chains that share their batches (`run.group_size`); groups are consecutive chains. The chains of a group are
        dependent, so the unit is the mean m of a group: ess(m) · Var(draws) / Var(m).

    Returns
    -------
    numpy.ndarray
        One number for each parameter, shape `values.shape[2:]`. NaN with fewer than 4 draws per chain and where a draw
        is NaN; S where a parameter never moves.

    Examples
    --------
    >>> import numpy as np
    >>> import scirocco as sc
    >>> x = np.random.default_rng(0).normal(size=(4, 10_000, 2))
    >>> x[:, :, 1] = np.repeat(x[:, ::10, 1], 10, axis=1)  # every draw ten times
    >>> sc.diagnostics.ess(x).round(-3)
    array([39000.,  4000.])
    """
    measures = {
        "bulk": lambda x: _effective_of(_Ranked(x).scores(), group_size),
        "tail": lambda x: _tail(_Ranked(x), group_size),
        "mean": lambda x: _effective_of(_halves(x), group_size),
        "identity": lambda x: _effective_of(x, group_size, parts=1),
    }
    measure = measures[_checks.choice(method, "method", tuple(measures))]
    return _each(values, measure, group_size=group_size)


def rhat(values: npt.ArrayLike, method: str = "rank", group_size: int = 1) -> Array:
    r"""R-hat: √(estimated variance / variance within half-chains), 1 where chains agree.

    .. math:: \hat R = \sqrt{\frac{n - 1}{n} + \frac{\operatorname{Var}(\text{means of half-chains})}{W}}

    with n draws in a half-chain and W the mean of their variances. Above 1.01 you need more draws, or the chains
    are in different regions.

    Parameters
    ----------
    values
        Draws (chain, draw, ...).
    method
        "rank": the larger one of two, of normal scores of the ranks and of those of the distances from the median,
        which also detects different scales and handles infinite moments; "split": of the draws themselves.
    group_size
        Chains that share their batches, as for `ess`. The variance of the mean of a half-chain is then estimated by
        Var(means of groups) + (1 - 1/group_size) · (mean variance within groups), which is unbiased for chains that are
        dependent within groups.

    Returns
    -------
    numpy.ndarray
        One number for each parameter, shape `values.shape[2:]`. NaN with one chain (or group), with fewer than 4 draws
        per chain, where a draw is NaN and where a parameter never moves.

    Examples
    --------
    >>> import numpy as np
    >>> import scirocco as sc
    >>> x = np.random.default_rng(0).normal(size=(4, 1000, 2))
    >>> x[0, :, 1] += 1.0  # one chain is elsewhere
    >>> sc.diagnostics.rhat(x).round(2)
    array([1.  , 1.09])
    """
    measures = {
        "rank": lambda x: _rank_rhat(_Ranked(x), group_size),
        "split": lambda x: split_rhat(_halves(x), group_size),
    }
    measure = measures[_checks.choice(method, "method", tuple(measures))]
    return _each(values, measure, fewest_chains=2, group_size=group_size)


def mcse(values: npt.ArrayLike, group_size: int = 1) -> Array:
    """Monte Carlo standard error of the mean of all draws: sd / √ess(values, "mean").

    Parameters
    ----------
    values
        Draws (chain, draw, ...).
    group_size
        Chains that share their batches, as for `ess`.

    Returns
    -------
    numpy.ndarray
        One number for each parameter, shape `values.shape[2:]`. NaN with fewer than 4 draws per chain and where a draw
        is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> import scirocco as sc
    >>> x = np.random.default_rng(0).normal(size=(4, 2500))  # 10,000 independent draws with sd 1
    >>> sc.diagnostics.mcse(x).round(3)
    np.float64(0.01)
    """
    return _each(values, lambda x: _error(x, group_size), group_size=group_size)


def autocorrelation(values: npt.ArrayLike, num_lags: int | None = None) -> Array:
    """Autocorrelation of each chain at the lags 0, 1, 2, ...

    Parameters
    ----------
    values
        Draws (chain, draw, ...).
    num_lags
        Number of lags; by default the number of draws.

    Returns
    -------
    numpy.ndarray
        (chain, lag, ...): 1 at lag 0; NaN for a chain that never moves, and at lags that it is too short for.

    Examples
    --------
    >>> import numpy as np
    >>> import scirocco as sc
    >>> x = np.random.default_rng(0).normal(size=(4, 5000))
    >>> sums = x[:, 1:] + x[:, :-1]  # neighbours have one number of two in common
    >>> sc.diagnostics.autocorrelation(sums, 3).mean(axis=0).round(1)
    array([1. , 0.5, 0. ])
    """
    given = _checked(values)
    draws = given.shape[1]
    num_lags = draws if num_lags is None else _checks.positive_int(num_lags, "num_lags")
    x = np.moveaxis(given, 1, -1).astype(np.float64)
    still = (x == x[..., :1]).all(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        spectrum, length = _padded_fft(x - x.mean(axis=-1, keepdims=True))
        covariance = np.fft.irfft(np.abs(spectrum) ** 2, length, axis=-1)
    found = np.full((*still.shape, num_lags), np.nan)
    found[..., :draws] = covariance[..., : min(num_lags, draws)]
    with np.errstate(invalid="ignore", divide="ignore"):
        found /= np.where(still, np.nan, covariance[..., 0])[..., None]
    return np.moveaxis(found, -1, 1)


def summarise(values: npt.ArrayLike, quantiles: Sequence[float], group_size: int = 1) -> dict[str, Array]:
    """All statistics of a summary of draws (chain, draw, column), one value per column; `quantiles` has a row for each.

    Mean, sd and quantiles ignore draws that are NaN.
    """
    given = _checked(values, group_size)
    chains, draws, size = given.shape
    names = ("mean", "sd", "mcse_mean", "ess_bulk", "ess_tail", "r_hat")
    out = np.full((len(names) + len(quantiles), size), np.nan)

    def measure(x: Array) -> Array:
        flat = x.reshape(len(x), -1)
        ranked = _Ranked(x)
        rows = [flat.mean(axis=1), flat.std(axis=1, ddof=1) if flat.shape[1] > 1 else np.full(len(x), np.nan)]
        if draws < _FEWEST_DRAWS:
            rows += [np.full(len(x), np.nan)] * 4
        else:
            scores = ranked.scores()
            rows += [_error(x, group_size), _effective_of(scores, group_size), _tail(ranked, group_size)]
            several = chains > group_size
            rows.append(_rank_rhat(ranked, group_size, scores) if several else np.full(len(x), np.nan))
        return np.stack(rows + [ranked.end(probability) for probability in quantiles])

    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for part, x in _blocks(given):
            whole = ~np.isnan(x).any(axis=(1, 2))
            if whole.any():
                out[:, part][:, whole] = measure(x[whole])
            for place in np.flatnonzero(~whole):
                kept = x[place][~np.isnan(x[place])]
                if kept.size:
                    out[0, part.start + place] = kept.mean()
                    out[1, part.start + place] = kept.std(ddof=1) if kept.size > 1 else np.nan
                    out[len(names) :, part.start + place] = np.quantile(kept, quantiles, method="weibull")
    return dict(zip(names, out, strict=False)) | {"quantiles": out[len(names) :]}


# -- many columns, a block at a time -----------------------------------------------------------------------------------


def _checked(values: npt.ArrayLike, group_size: int = 1) -> npt.NDArray[np.generic]:
    given = np.asarray(values)
    if given.ndim < 2 or 0 in given.shape[:2]:
        raise InvalidValueError(f"draws must be an array (chain, draw, ...), got the shape {given.shape}.")
    if given.shape[0] % _checks.positive_int(group_size, "group_size"):
        raise InvalidValueError(
            f"{given.shape[0]} chains cannot be divided into groups of {group_size} (`group_size`)."
        )
    return given


def _blocks(given: npt.NDArray[np.generic]) -> Iterator[tuple[slice, Array]]:
    """Blocks of parameters: their places, and their draws (column, chain, draw)."""
    flat = given.reshape(*given.shape[:2], -1)
    step = max(1, _BLOCK // (flat.shape[0] * flat.shape[1]))
    for first in range(0, flat.shape[2], step):
        part = slice(first, first + step)
        yield part, np.ascontiguousarray(np.moveaxis(flat[:, :, part], 2, 0), np.float64)


def _each(
    values: npt.ArrayLike, measure: Callable[[Array], Array], fewest_chains: int = 1, group_size: int = 1
) -> Array:
    """One number for each parameter, NaN where it cannot be computed."""
    given = _checked(values, group_size)
    chains, draws = given.shape[:2]
    out = np.full(math.prod(given.shape[2:]), np.nan)
    if chains // group_size >= fewest_chains and draws >= _FEWEST_DRAWS:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            for part, x in _blocks(given):
                whole = ~np.isnan(x).any(axis=(1, 2))
                if whole.any():
                    out[part][whole] = measure(x[whole])
    found: Array = out.reshape(given.shape[2:])[()]
    return found


# -- measures of draws (column, chain, draw) ---------------------------------------------------------------------------


class _Ranked:
    """Sorted draws of each column, all chains together, for ranks and quantiles."""

    def __init__(self, x: Array):
        flat = x.reshape(len(x), -1)
        self.x = x
        self._places = np.argsort(flat, axis=1)
        self._places += np.arange(len(x))[:, None] * flat.shape[1]  # in all of x
        self._sorted = np.take(x, self._places)

    def quantile(self, probability: float) -> Array:
        """Quantiles by linear interpolation (R's type 7), with the arithmetic of SciPy's `mquantiles`.

        A quantile equal to a draw must not be a rounding error below it: that draw would not count.
        """
        size = self._sorted.shape[1]
        if size == 1:
            return self._sorted[:, 0]
        place = size * probability + (1.0 - probability)
        below = int(np.clip(place, 1, size - 1))
        share = np.clip(place - below, 0.0, 1.0)
        found: Array = (1.0 - share) * self._sorted[:, below - 1] + share * self._sorted[:, below]
        return found

    def end(self, probability: float) -> Array:
        """End of an interval by the rule of `intervals`: rank p (n + 1)."""
        size = self._sorted.shape[1]
        place = min(max(probability * (size + 1), 1.0), float(size))
        below = int(place)
        found: Array = self._sorted[:, below - 1] + (place - below) * (
            self._sorted[:, min(below, size - 1)] - self._sorted[:, below - 1]
        )
        return found

    def scores(self) -> Array:
        """Normal scores of the ranks, of half-chains: (column, half-chain, draw)."""
        places, ordered = self._of_halves()
        return self._in_place(places, _scores(ordered))

    def folded_scores(self) -> Array:
        """Normal scores of the ranks of the distances from the median."""
        places, ordered = self._of_halves()
        columns, size = ordered.shape
        median = 0.5 * (ordered[:, (size - 1) // 2] + ordered[:, size // 2])
        distances = np.abs(ordered - median[:, None])
        order = np.argsort(distances, axis=1, kind="stable")  # decreasing, then increasing: two sorted runs to merge
        order += np.arange(columns)[:, None] * size
        return self._in_place(np.take(places, order), _scores(np.take(distances, order)))

    def _of_halves(self) -> tuple[Places, Array]:
        """The order without the middle draws of chains of odd length, which belong to neither half."""
        draws = self.x.shape[2]
        if draws % 2 == 0:
            return self._places, self._sorted
        chain, draw = np.divmod(self._places, draws)
        kept = draw != draws // 2
        places = self._places - chain - (draw > draws // 2)
        return places[kept].reshape(len(self.x), -1), self._sorted[kept].reshape(len(self.x), -1)

    def _in_place(self, places: Places, scores: Array) -> Array:
        out = np.empty(scores.size)
        out[places] = scores
        return out.reshape(len(self.x), 2 * self.x.shape[1], -1)


def _scores(ordered: Array) -> Array:
    """Normal scores of the ranks of sorted rows; equal numbers share the mean of their ranks."""
    rows, size = ordered.shape
    table = _scores_of_ranks(size)
    out = np.tile(table[::2], (rows, 1))
    same = np.zeros((rows, size + 1), bool)  # equal to the one before
    np.equal(ordered[:, 1:], ordered[:, :-1], out=same[:, 1:-1])
    if same.any():
        first = np.flatnonzero(same[:, 1:] & ~same[:, :-1])
        last = np.flatnonzero(same[:, :-1] & ~same[:, 1:])
        lengths = last - first + 1
        tied = np.arange(lengths.sum()) + np.repeat(first - np.cumsum(lengths) + lengths, lengths)
        out.reshape(-1)[tied] = np.repeat(table[first % size + last % size], lengths)
    return out


@lru_cache(maxsize=4)
def _scores_of_ranks(size: int) -> Array:
    """Normal scores of the ranks 1, 1.5, 2, ..., `size` (Blom 1958). Importing SciPy's function is slow."""
    quantile = NormalDist().inv_cdf
    lower = np.array([quantile((twice / 2 - 0.375) / (size + 0.25)) for twice in range(2, size + 1)])
    return np.concatenate([lower, [0.0], -lower[::-1]])


def _halves(x: Array) -> Array:
    """Two half-chains for each chain; the middle draw of an odd number is left out."""
    columns, chains, draws = x.shape
    half = draws // 2
    if draws % 2:
        x = np.stack([x[:, :, :half], x[:, :, -half:]], axis=2)
    return x.reshape(columns, 2 * chains, half)


def _tail(ranked: _Ranked, group_size: int) -> Array:
    sizes = []
    for probability in _TAILS:
        below = ranked.x <= ranked.quantile(probability)[:, None, None]
        sizes.append(_effective_of(_halves(below.astype(np.float64)), group_size))
    return np.minimum(*sizes)


def _by_group(x: Array, group_size: int, parts: int) -> Array:
    """Chains, of which each is divided into so many parts, by group: (column, group and part, member, draw)."""
    columns, _, length = x.shape
    by_member = x.reshape(columns, -1, group_size, parts, length)
    return by_member.swapaxes(2, 3).reshape(columns, -1, group_size, length)


def _effective_of(x: Array, group_size: int, parts: int = 2) -> Array:
    """Effective sample size of (half-)chains that are dependent within groups.

    The mean of all draws is the mean of the groups' means m, which are independent: its variance is Var(m) / ess(m).
    """
    if group_size == 1:
        return _effective(x)
    means = _by_group(x, group_size, parts).mean(axis=2)
    still = _never_moves(x)
    whole, part = (v.reshape(len(x), -1).var(axis=1) for v in (x, means))
    ratio = np.where(still | (part == 0), group_size, whole / part)
    return _effective(means) * ratio


def _error(x: Array, group_size: int) -> Array:
    x = _by_group(x, group_size, 1).mean(axis=2)
    spread = x.reshape(len(x), -1).std(axis=1, ddof=1)
    return np.where(_never_moves(x), 0.0, spread / np.sqrt(_effective(_halves(x))))


def _rank_rhat(ranked: _Ranked, group_size: int, scores: Array | None = None) -> Array:
    bulk = split_rhat(ranked.scores() if scores is None else scores, group_size)
    tail = split_rhat(ranked.folded_scores(), group_size)
    return np.where(tail > bulk, tail, bulk)


def split_rhat(halves: Array, group_size: int) -> Array:
    """R-hat of halves of chains; chains of a group share their batches."""
    length = halves.shape[2]
    within = halves.var(axis=2, ddof=1).mean(axis=1)
    if group_size == 1:
        between = halves.mean(axis=2).var(axis=1, ddof=1)
    else:  # a part that a group has in common, and a part of each chain
        means = _by_group(halves, group_size, 2).mean(axis=3)
        own = means.var(axis=2, ddof=1).mean(axis=1)
        between = means.mean(axis=2).var(axis=1, ddof=1) + (1.0 - 1.0 / group_size) * own
    found: Array = np.sqrt((length - 1) / length + between / within)
    found[_never_moves(halves)] = np.nan
    return found


def _effective(x: Array) -> Array:
    """Effective sample size of chains (column, chain, draw), which are half-chains except for "identity"."""
    columns, chains, length = x.shape
    means = x.mean(axis=2)
    spectrum, padded = _padded_fft(x - means[:, :, None])
    parts = spectrum.view(np.float64)  # real, imaginary, real, ...
    power = np.einsum("ijk,ijk->ik", parts, parts).reshape(columns, -1, 2).sum(axis=2)
    covariance = np.fft.irfft(power, padded, axis=1)[:, :length] / (chains * length)
    total = covariance[:, 0] + (means.var(axis=1, ddof=1) if chains > 1 else 0.0)
    within = covariance[:, 0] * length / (length - 1.0)
    rho = 1.0 - (within[:, None] - covariance) / total[:, None]
    rho[:, 0] = 1.0
    num_pairs = max(1, (length - 1) // 2)
    even = rho[:, : 2 * num_pairs : 2]
    pairs = even + rho[:, 1 : 2 * num_pairs : 2]
    ends = pairs <= 0
    end = np.where(ends.any(axis=1), ends.argmax(axis=1), num_pairs - 1)[:, None]
    falling = np.where(np.arange(num_pairs) < end, np.minimum.accumulate(pairs, axis=1), 0.0)
    last = np.take_along_axis(even, end, axis=1)
    last = np.where((last > 0) | (np.take_along_axis(pairs, end, axis=1) >= 0), last, 0.0)
    times = -1.0 + 2.0 * falling.sum(axis=1) + last[:, 0]
    count = chains * length
    found = np.where(np.isfinite(total), count / np.maximum(times, 1.0 / np.log10(count)), np.nan)
    found[_never_moves(x)] = count
    return found


def _never_moves(x: Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (x == x[:, :1, :1]).all(axis=(1, 2))
    return found


def _padded_fft(centred: Array) -> tuple[npt.NDArray[np.complex128], int]:
    """The spectrum along the last axis, padded so that autocovariances do not wrap around; and the padded length."""
    length = _fast_length(2 * centred.shape[-1])
    return np.fft.rfft(centred, length, axis=-1), length


def _fast_length(least: int) -> int:
    """The smallest even number >= `least` with no prime factors except 2, 3 and 5."""
    odd = [3**i * 5**j for i in range(20) for j in range(14)]
    return min(number << max(1, math.ceil(math.log2(least / number))) for number in odd if number <= least)
