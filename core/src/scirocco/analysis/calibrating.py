"""Simulation-based calibration: whether posteriors are right, on average over data simulated from the prior."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco._extras import require
from scirocco._random import SeedPurpose
from scirocco.analysis import pictures
from scirocco.analysis.uniformity import bands, counts, p_value
from scirocco.cluster import connected, run_tasks
from scirocco.data import as_source
from scirocco.diagnostics.columns import Columns
from scirocco.diagnostics.measures import ess
from scirocco.drawing.markup import Html, Section, tag
from scirocco.errors import InvalidTypeError, InvalidValueError, SciroccoError, SciroccoWarning
from scirocco.model import Model, Posterior
from scirocco.run import sample, setup
from scirocco.run.predicting import chosen, in_users_units, log_likelihood_matrix
from scirocco.types import Data, Key, Params

Array = np.ndarray[Any, np.dtype[Any]]
Simulate = Callable[[Key], tuple[Params, Data]]
"""From a key to parameters drawn from the prior and data drawn given them."""
Draw = Callable[[Data, int], Params]
"""From data and a seed to posterior draws, leaves (chain, draw, ...)."""

_MOST_RANKS, _FEWEST_RANKS = 99, 9  # draws that a truth is compared with
_POOR = 0.05
"""Share of the replications whose effective sample size may be below the number of ranks."""
_LENGTHS = {"num_samples": 250, "num_chains": 4}  # of runs, by default
_STARTS = 16  # simulated parameters whose mean is the start
_ALPHA = 0.01  # p-value times the number of quantities
_EXPECTED = "`model` must be a sc.Model or another posterior, or a function (data, seed) that returns draws"
_COMPARED = 1_000
"""Draws of a replication that are compared with the truth."""


@dataclass(frozen=True)
class SBC:
    """Ranks of the true parameters among posterior draws; for correct posteriors they are uniform.

    Attributes
    ----------
    names
        Quantities: every parameter, those of `quantities`, and `log_likelihood`.
    ranks
        (replication, quantity), each 0 ... `num_ranks`.
    num_ranks
        Nearly independent draws that each truth was compared with.
    p_values
        Of uniformity, one for each quantity, exact.
    failures
        Messages of replications that ended with an error; they have no ranks.
    warned
        Messages of warnings, and the number of replications that had them.
    """

    names: tuple[str, ...]
    ranks: Array = field(repr=False)
    num_ranks: int
    p_values: Array
    failures: tuple[str, ...] = ()
    warned: Mapping[str, int] = field(default_factory=dict)

    @property
    def num_replications(self) -> int:
        """Replications with ranks."""
        return len(self.ranks)

    @property
    def ok(self) -> bool:
        """Whether no quantity has ranks that are far from uniform: all p-values above 0.01 / their number."""
        return bool(np.all(self.p_values * len(self.names) > _ALPHA)) and not self.failures

    @property
    def words(self) -> str:
        """The result in one line."""
        wrong = [k for k in np.argsort(self.p_values) if self.p_values[k] * len(self.names) <= _ALPHA]
        compared = f"{self.num_replications} replications, {self.num_ranks} draws each"
        if self.failures:
            compared += f", {len(self.failures)} failed ({self.failures[0]})"
        if not wrong:
            least = float(self.p_values.min())
            return f"ranks are uniform as far as {compared} show (smallest p-value of {len(self.names)}: {least:.2g})"
        named = "; ".join(f"{self.names[k]}: {self.deviation(int(k))} (p = {self.p_values[k]:.1g})" for k in wrong[:5])
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        return f"not calibrated: {named}{more}; {compared}"

    def __repr__(self) -> str:
        return f"SBC({self.words})"

    def deviation(self, place: int) -> str:
        """How the ranks of a quantity differ from uniform ones, in words."""
        return _shape(self.ranks[:, place], self.num_ranks)

    @property
    def frame(self) -> Any:
        """p-value, mean and standard deviation of the scaled ranks (1/2 and 0.289 if uniform), as a data frame."""
        pandas = require("pandas", "sbc.frame")
        scaled = (self.ranks + 0.5) / (self.num_ranks + 1)
        numbers = {"p_value": self.p_values, "mean_rank": scaled.mean(axis=0), "sd_rank": scaled.std(axis=0)}
        return pandas.DataFrame(numbers, list(self.names))

    def curves(self, probability: float = 0.95) -> tuple[Array, Array, Array, Array]:
        """For the rank plot: k/(L + 1), observed shares of ranks below it minus k/(L + 1), and the band of that."""
        places = np.arange(1, self.num_ranks + 1) / (self.num_ranks + 1)
        limits = bands(self.num_replications, self.num_ranks, probability)
        found = np.stack([counts(column, self.num_ranks) for column in self.ranks.T])
        total = self.num_replications
        return places, found / total - places, limits.low / total - places, limits.high / total - places

    def section(self, name: str = "sbc") -> Section:
        """Charts and a table for a report: `sc.report.write(run, path, checks=[sbc])`."""
        return pictures.ranks_section(self, name)

    def plot(self, probability: float = 0.95) -> Any:
        """The rank plot: shares of ranks minus the expected ones with an exact band, as a matplotlib figure."""
        return pictures.ranks_figure(self, probability)

    def _repr_html_(self) -> Html:
        return tag("p", tag("b", "SBC"), f" {self.words}")


def _shape(ranks: Array, num_ranks: int) -> str:
    """What the ranks say, in words: the larger of the deviations of their mean and of their spread."""
    scaled = (ranks + 0.5) / (num_ranks + 1)
    shift = (scaled.mean() - 0.5) * math.sqrt(12 * len(ranks))
    wide = (np.mean((scaled - 0.5) ** 2) - 1 / 12) * math.sqrt(180 * len(ranks))
    if max(abs(shift), abs(wide)) < 2.5:
        return "none"
    if abs(shift) > abs(wide):
        return "posterior too low" if shift > 0 else "posterior too high"
    return "posterior too narrow" if wide > 0 else "posterior too wide"


class _Job(NamedTuple):
    """Some replications, one after the other: they share compiled programs."""

    model: Posterior | Draw
    simulate: Simulate
    start: Params | None
    quantities: Callable[[Params], Mapping[str, Any]] | None
    options: dict[str, Any]
    seed: int
    numbers: tuple[int, ...]


class _Replication(NamedTuple):
    """The signs of truth - draw, (draw, quantity), and effective sample sizes; or an error."""

    names: tuple[str, ...]
    signs: Array
    ess: Array
    error: str
    warned: tuple[str, ...]


def sbc(
    model: Posterior | Draw,
    simulate: Simulate,
    *,
    num_replications: int = 200,
    start: Params | None = None,
    quantities: Callable[[Params], Mapping[str, Any]] | None = None,
    num_ranks: int | None = None,
    seed: int = 0,
    client: Any = None,
    **options: Any,
) -> SBC:
    """Simulation-based calibration: compare true parameters with posterior draws, for many simulated data sets.

    If parameters are drawn from the prior and data given them, the rank of a true parameter among independent
    posterior draws is uniform. Deviations show a wrong likelihood or prior in the model, a wrong simulator, or a
    sampler with bias. All replications have data of one shape, so that they share one set of compiled programs.

    Parameters
    ----------
    model
        The model to check, or `model(data, seed) -> draws` for one that is not fitted by `sc.sample`, such as those of
        `sc.models`: draws by name, leaves (chain, draw, ...), as the parameters that `simulate` returns are named.
    simulate
        `simulate(key) -> (params, data)`: parameters drawn from the prior of the model, and data drawn given them,
        always of the same shapes.
    num_replications
        Simulated data sets. 200 detect a standard deviation that is wrong by about a fifth.
    start
        Where runs start; by default the mean of some simulated parameters.
    quantities
        `quantities(params) -> {name: number}`: further functions of the parameters to rank. For a `sc.Model`, the log
        likelihood of the data is always one: it detects posteriors that ignore some of the data.
    num_ranks
        Draws that a truth is compared with, spread evenly over all draws. By default as many, up to 99, as are nearly
        independent: at most the effective sample size in 95 % of the replications.
    seed
        Of simulations and runs.
    client
        A `distributed.Client`, e.g. of `sc.cluster.local()`: the replications run on its workers. By default they run
        here, one after the other.
    **options
        For `sc.sample`: sampler, estimator, num_samples, ... By default the plain call, with four chains of 250 draws.

    Returns
    -------
    SBC
        `ok`, `words`, `p_values`, `plot()`, and `section()` for reports.

    References
    ----------
    Talts, Betancourt, Simpson, Vehtari & Gelman (2018); Modrák et al. (2023) for the log likelihood; Säilynoja,
    Bürkner & Vehtari (2022) for the bands.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2, lambda mu: -0.5 * mu**2)
    >>> def simulate(key):
    ...     first, second = jax.random.split(key)
    ...     mu = jax.random.normal(first)
    ...     return mu, mu + jax.random.normal(second, (20,))
    >>> sc.analysis.sbc(model, simulate, num_replications=20).num_ranks
    99

    A regression, without an intercept, because its prior would be centred at the data:

    >>> def fitted(data, seed):
    ...     model = sc.models.PoissonRegression(intercept=False, standardise=False, scale=1.0, seed=seed)
    ...     return model.fit(data["x"], data["y"], progress=False).draws_

    Then `sc.analysis.sbc(fitted, simulate)`, where `simulate(key)` returns `{"coef": ...}` and `{"x": ..., "y": ...}`.
    """
    if not isinstance(model, Posterior) and (not callable(model) or isinstance(model, type)):
        raise InvalidTypeError(f"{_EXPECTED}, got {model!r}.")
    if not callable(simulate):
        raise InvalidTypeError("`simulate` must be a function of a key that returns (params, data).")
    if "store" in options or "data" in options:
        raise InvalidValueError("sbc takes the options of sc.sample except `store` and `data`.")
    total = _checks.positive_int(num_replications, "num_replications", minimum=2)
    seed = _checks.positive_int(seed, "seed", minimum=0)
    wanted = _MOST_RANKS if num_ranks is None else _checks.positive_int(num_ranks, "num_ranks")
    if isinstance(model, Posterior):
        start = _start(model, simulate, seed) if start is None else start
        lengths = _LENGTHS if options.get("sampler") is None else {}
        options = {**lengths, "progress": False, **options}
    elif options or start is not None:
        unused = sorted({*options, *(["start"] if start is not None else [])})
        raise InvalidValueError(
            f"{', '.join(f'`{name}`' for name in unused)} would not be used: `model` is a function that makes the "
            "draws itself. Set its options there."
        )

    def job(numbers: Array) -> _Job:
        return _Job(model, simulate, start, quantities, options, seed, tuple(map(int, numbers)))

    if client is None:
        parts = run_tasks(_replicate, [job(np.arange(total))], names=["the replications"])
    else:
        with connected(client, "sc.analysis.sbc") as workers:
            shares = np.array_split(np.arange(total), min(total, max(1, len(workers.ncores()))))
            parts = run_tasks(_replicate, [job(share) for share in shares], client=workers)
    return _ranked([found for part in parts for found in part], wanted, num_ranks is None, seed)


def _key(seed: int, number: int) -> Key:
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), int(SeedPurpose.CALIBRATION)), number)


def _simulated(simulate: Simulate, key: Key) -> tuple[Params, Data]:
    found = simulate(key)
    if not isinstance(found, tuple) or len(found) != 2:
        raise InvalidTypeError(f"simulate(key) must return a pair (params, data), got {type(found).__name__}.")
    return jax.tree.map(jnp.asarray, found[0]), found[1]


def _start(model: Posterior, simulate: Simulate, seed: int) -> Params:
    """The mean of some simulated parameters, on the real line, so that it is in the domain."""
    found = [_simulated(simulate, _key(seed, 2**31 + k)) for k in range(_STARTS)]
    params, data = found[0]
    model.check_start(params, setup.source_of(model, data), 1)
    positions = [model.unconstrain(params) for params, _ in found]
    mean = jax.tree.map(lambda *leaves: jnp.mean(jnp.stack(leaves), axis=0), *positions)
    return jax.tree.map(np.asarray, model.constrain(mean))


def _replicate(job: _Job, tell: Callable[[int], None]) -> list[_Replication]:
    found: list[_Replication] = []
    for done, which in enumerate(job.numbers):
        key = _key(job.seed, which)
        truth, data = _simulated(job.simulate, key)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", SciroccoWarning)
            try:
                made = _signs(job, _drawn(job, data, job.seed + which), truth, data)
            except SciroccoError as error:
                if not found:  # the first says what is wrong with the call
                    raise
                made = _Replication((), np.zeros(0), np.zeros(0), str(error), ())
        told = {str(w.message) for w in caught if issubclass(w.category, SciroccoWarning)}
        found.append(made._replace(warned=tuple(sorted(told))))
        tell(done + 1)
    return found


def _drawn(job: _Job, data: Data, seed: int) -> Params:
    """Posterior draws for one data set."""
    if isinstance(job.model, Posterior):
        return sample(job.model, data, job.start, **{**job.options, "seed": seed}).draws
    draws = job.model(data, seed)
    if any(np.ndim(leaf) < 2 for leaf in jax.tree.leaves(draws)):
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(draws)]
        raise InvalidTypeError(f"{_EXPECTED}; this one returned shapes {shapes}.")
    return draws


def _signs(job: _Job, draws: Params, truth: Params, data: Data) -> _Replication:
    """Compare the truth with the draws, quantity by quantity."""
    if not _tree.same_structure(draws, truth):
        raise InvalidValueError(
            f"simulate(key) returns parameters {_tree.leaf_names(truth)}, but the draws are {_tree.leaf_names(draws)}."
        )
    kept, chains = chosen(draws, _COMPARED), jax.tree.leaves(draws)[0].shape[0]
    together = jax.tree.map(lambda draw, true: np.concatenate([draw, np.asarray(true)[None]]), kept.params, truth)
    named = dict(zip(_tree.leaf_names(together), jax.tree.leaves(together), strict=True))
    columns = Columns({name: leaf[None] for name, leaf in named.items()})
    parts, names = [columns.values[0]], list(columns.names)
    if job.quantities is not None:
        more = jax.vmap(job.quantities)(together)
        names += list(more)
        parts += [np.asarray(value, np.float64).reshape(len(value), -1)[:, :1] for value in more.values()]
    if isinstance(job.model, Model) and not job.model.facts.takes_key:
        direct = in_users_units(job.model, "sc.analysis.sbc")
        sums = sum(
            part.astype(np.float64).sum(axis=0) for _, part in log_likelihood_matrix(direct, together, as_source(data))
        )
        names, parts = [*names, "log_likelihood"], [*parts, np.asarray(sums)[:, None]]
    values = np.concatenate(parts, axis=1)
    even = (len(values) - 1) % chains == 0  # not if draws were left out
    draws_alone = values[:-1].reshape(chains if even else 1, -1, values.shape[1])
    return _Replication(tuple(names), np.sign(values[-1] - values[:-1]).astype(np.int8), ess(draws_alone), "", ())


def _ranked(found: list[_Replication], wanted: int, adapt: bool, seed: int) -> SBC:
    """Choose the number of ranks by the effective sample sizes, thin, and count."""
    failures = tuple(each.error for each in found if each.error)
    good = [each for each in found if not each.error]
    if len(good) < 2:
        raise InvalidValueError(f"{len(failures)} of {len(found)} replications failed: {failures[0]}")
    least = np.array([np.nanmin(each.ess) if np.isfinite(each.ess).any() else 0.0 for each in good])
    length = min(len(each.signs) for each in good)
    enough = int(np.quantile(least, _POOR))
    count = min(wanted, length, max(enough, _FEWEST_RANKS) if adapt else length)
    if enough < count:
        _checks.warn(
            f"simulation-based calibration: in more than {100 * _POOR:.0f} % of the replications the effective sample "
            f"size is below the {count} draws that are compared (it is {enough} there), so that ranks are not uniform "
            "even for correct posteriors. Use longer runs (num_samples, thin) or a smaller `num_ranks`."
        )
    rng = np.random.default_rng([seed, int(SeedPurpose.CALIBRATION)])
    ranks = np.stack([_rank(each.signs, count, rng) for each in good])
    p_values = np.array([p_value(column, count) for column in ranks.T])
    told: dict[str, int] = {}
    for text in (text for each in found for text in each.warned):
        told[text] = told.get(text, 0) + 1
    return SBC(good[0].names, ranks, count, p_values, failures, told)


def _rank(signs: Array, count: int, rng: np.random.Generator) -> Array:
    """How many of `count` draws, spread evenly, are below the truth; ties are broken at random."""
    kept = signs[np.linspace(0, len(signs) - 1, count).round().astype(int)]
    equal = np.sum(kept == 0, axis=0)
    return np.sum(kept > 0, axis=0) + rng.integers(0, equal + 1)
