"""Leave-one-out cross-validation of large data: Pareto-smoothed importance weights for a random part of the rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco._random import SeedPurpose
from scirocco.data.arrays import RowSource
from scirocco.diagnostics.columns import Columns
from scirocco.diagnostics.measures import ess
from scirocco.diagnostics.pareto import largest_k, psis
from scirocco.errors import InvalidValueError
from scirocco.model import Model
from scirocco.run.predicting import DRAWS, chosen, draws_of, in_users_units, log_likelihood_matrix, origin_of
from scirocco.types import Data, Params, PyTree

Array = np.ndarray[Any, np.dtype[Any]]

_EXACT, _SUBSAMPLE = 20_000, 4_000
"""All rows are weighted up to so many; of more, a random part."""
_COLUMNS, _TOGETHER = 32, 512
"""Parameters whose effective sample sizes are averaged; rows weighted at once."""
_FEWEST_ROWS, _FEWEST_DRAWS = 2, 25  # 25: psis needs a tail of five


@dataclass(frozen=True)
class LOO:
    """The expected log predictive density of new rows, by leave-one-out cross-validation.

    Attributes
    ----------
    elpd
        Σ_i log p(x_i | all other rows), over all rows; larger is better.
    standard_error
        Its standard error as a prediction for other rows of the same population.
    sampling_error
        The part of its error that comes from weighting only some of the rows; 0 if all were weighted.
    p_loo
        The effective number of parameters: how much lower it is than the log density of the rows that were fitted.
    k_hat
        The tail shape of the weights of each row in `rows`; above `largest_k`, the row's value is not reliable.
    rows, each
        The numbers of the weighted rows, and log p(x_i | all other rows) of each.
    approximate
        For all rows: log p(x_i | θ̄), with θ̄ the posterior mean.
    num_draws
        Draws that were weighted.
    """

    elpd: float
    standard_error: float
    sampling_error: float
    p_loo: float
    k_hat: Array = field(repr=False)
    rows: Array = field(repr=False)
    each: Array = field(repr=False)
    approximate: Array = field(repr=False)
    num_draws: int

    @property
    def num_rows(self) -> int:
        """All rows."""
        return len(self.approximate)

    @property
    def largest_k(self) -> float:
        """The largest k̂ that is reliable with this number of draws."""
        return largest_k(self.num_draws)

    @property
    def num_bad(self) -> int:
        """Weighted rows whose k̂ is too large."""
        return int(np.sum(self.k_hat > self.largest_k))

    @property
    def ok(self) -> bool:
        """Whether the weights of all weighted rows are reliable."""
        return not self.num_bad

    @property
    def words(self) -> str:
        """The result in one line."""
        some = f"{len(self.rows):,} of {self.num_rows:,} rows" if self.sampling_error else f"{self.num_rows:,} rows"
        part = f" (± {self.sampling_error:.2g} from the choice of rows)" if self.sampling_error else ""
        k_hat = f"k-hat up to {self.k_hat.max():.2f}"
        if not self.ok:
            k_hat += f", not reliable in {self.num_bad:,} rows (above {self.largest_k:.2f})"
        return (
            f"elpd {self.elpd:,.1f} ± {self.standard_error:.2g}{part}, p_loo {self.p_loo:.1f}; {some} weighted with "
            f"{self.num_draws:,} draws, {k_hat}"
        )

    def __repr__(self) -> str:
        return f"LOO({self.words})"


class Difference(NamedTuple):
    """Estimates for the total of a population from a sample of it and an approximation of all."""

    total: float
    sampling_variance: float
    """The variance of `total` over samples."""
    spread: float
    """N times the variance of the values in the population: the variance of a total of N new values."""


def difference(approximate: Array, rows: Array, each: Array) -> Difference:
    r"""The difference estimator of Σ_i π_i from a simple random sample S of m rows and approximations π̃ of all N.

    .. math:: \hat t = \sum_i \tilde π_i + \frac{N}{m} \sum_{i ∈ S} e_i, \qquad e_i = π_i - \tilde π_i

    Its variance over samples is N² (1 - m/N) s²/m, where s² is estimated without bias by the sample variance of e. The
    spread Σ(π_i - π̄)² is Σπ_i² - (Σπ_i)²/N: the first sum is estimated in the same way, with π̃² as the
    approximation, and the square of the total by t̂² minus its variance. All three are unbiased.

    References
    ----------
    Magnusson, Vehtari, Jonasson & Andersen (2020), Leave-one-out cross-validation for Bayesian model comparison in
    large data, AISTATS.
    """
    total, count = len(approximate), len(rows)
    there = approximate[rows]
    errors = each - there
    estimate = float(approximate.sum() + total / count * errors.sum())
    if count < total:
        left = float(total**2 * (1.0 - count / total) * errors.var(ddof=1) / count)
    else:
        left = 0.0
    # around the mean, so that large means do not cancel
    centre = estimate / total
    squares = float(
        np.sum((approximate - centre) ** 2) + total / count * np.sum((each - centre) ** 2 - (there - centre) ** 2)
    )
    return Difference(estimate, left, squares + left / total)


def loo(
    run: Any,
    data: Data | None = None,
    *,
    model: Model | None = None,
    num_rows: int | None = None,
    num_draws: int | None = None,
    seed: int = 0,
) -> LOO:
    """Leave-one-out cross-validation by Pareto-smoothed importance weights, for any number of rows.

    A pass over all rows computes their log densities at the posterior mean. A random part of the rows is weighted,
    which costs `num_draws` log likelihoods each, and corrects the sum (the difference estimator): the result is
    unbiased, and `sampling_error` says how much the choice of the rows matters. Memory holds a chunk
    of rows, and 8 bytes per row.

    Parameters
    ----------
    run
        The run, or its draws: leaves (chain, draw, ...) in your units.
    data, model
        For a run that was loaded: its data and its model. The log likelihood must include normalising constants if
        models with different likelihoods are compared.
    num_rows
        Rows to weight; by default all up to 20,000, and 4,000 of more. The same number and seed choose the same rows,
        so that models of the same data are compared on the same rows.
    num_draws
        At most so many draws, spread evenly over the chains; by default 1,000.
    seed
        For the choice of the rows.

    Returns
    -------
    LOO
        `elpd`, `standard_error`, `sampling_error`, `p_loo`, `k_hat`. A warning names the rows whose weights are not
        reliable.

    References
    ----------
    Vehtari, Gelman & Gabry (2017); Magnusson, Andersen, Jonasson & Vehtari (2019, 2020).

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = 3.0 + jax.random.normal(jax.random.key(1), (500,))
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2 - 0.5 * jnp.log(2 * jnp.pi))
    >>> found = sc.analysis.loo(sc.sample(model, x, jnp.array(0.0), progress=False))
    >>> found.ok, abs(found.p_loo - 1) < 0.3
    (True, True)
    """
    model, source = origin_of(run, model, data, "sc.analysis.loo")
    direct = in_users_units(model, "sc.analysis.loo")
    if source.num_rows < _FEWEST_ROWS:
        raise InvalidValueError("leave-one-out requires at least 2 rows.")
    few = chosen(draws_of(run), DRAWS if num_draws is None else num_draws)
    if few.count < _FEWEST_DRAWS:
        raise InvalidValueError(
            f"leave-one-out requires at least {_FEWEST_DRAWS} draws (some hundred are better), got {few.count}."
        )
    rows = _rows(source.num_rows, num_rows, seed)
    approximate = _at_mean(model, direct, few.params, source)
    each, k_hat, fitted = (np.empty(len(rows)) for _ in range(3))
    efficiency = _efficiency(draws_of(run), few.count)
    for first, part in log_likelihood_matrix(direct, few.params, source, rows):
        for start in range(0, len(part), _TOGETHER):
            values = part[start : start + _TOGETHER].astype(np.float64)
            here = slice(first + start, first + start + len(values))
            smoothed = psis(-values, efficiency)
            each[here] = np.logaddexp.reduce(smoothed.log_weights + values, axis=1)
            fitted[here] = np.logaddexp.reduce(values, axis=1) - math.log(few.count)
            k_hat[here] = smoothed.k_hat
    found = difference(approximate, rows, each)
    p_loo = source.num_rows * float(np.mean(fitted - each))
    result = LOO(
        found.total,
        math.sqrt(max(found.spread, 0.0)),
        math.sqrt(found.sampling_variance),
        p_loo,
        k_hat,
        rows,
        each,
        approximate,
        few.count,
    )
    if not result.ok:
        worst = rows[np.argmax(k_hat)]
        _checks.warn(
            f"leave-one-out is not reliable for {result.num_bad:,} of the {len(rows):,} weighted rows: their k-hat is "
            f"above {result.largest_k:.2f} (largest {k_hat.max():.2f}, row {worst}). These rows move the posterior: "
            "look at them, use a likelihood with heavier tails, more draws (num_draws), or score rows that were not "
            "fitted (sc.analysis.log_predictive)."
        )
    return result


def _rows(total: int, wanted: int | None, seed: int) -> Array:
    """The numbers of the rows to weight, in increasing order: a simple random sample."""
    seed = _checks.positive_int(seed, "seed", minimum=0)
    if wanted is None:
        wanted = total if total <= _EXACT else _SUBSAMPLE
    wanted = _checks.positive_int(wanted, "num_rows", minimum=_FEWEST_ROWS)
    if wanted >= total:
        return np.arange(total)
    rng = np.random.default_rng([seed, int(SeedPurpose.LOO_ROWS)])
    return np.sort(rng.choice(total, wanted, replace=False))


def _at_mean(model: Any, direct: Model, params: Params, source: RowSource) -> Array:
    """log p(x_i | θ̄) of all rows. The mean is taken on the real line, so that it is always in the domain."""
    centre = jax.tree.map(lambda leaf: np.asarray(leaf)[None], _mean(model, params))
    found = np.empty(source.num_rows)
    for first, part in log_likelihood_matrix(direct, centre, source):
        found[first : first + len(part)] = part[:, 0]
    return found


@partial(jax.jit, static_argnums=0)
def _mean(model: Any, params: Params) -> Params:
    positions = jax.vmap(model.unconstrain)(params)
    return model.constrain(jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), positions))


def _efficiency(draws: PyTree, count: int) -> float:
    """Effective draws per weighted draw, averaged over some parameters; at most 1."""
    named = dict(zip(_tree.leaf_names(draws), jax.tree.leaves(draws), strict=True))
    found = ess(Columns(named).spread(_COLUMNS).values)
    found = found[np.isfinite(found)]
    return float(np.clip(found.mean() / count, 1.0 / count, 1.0)) if len(found) else 1.0
