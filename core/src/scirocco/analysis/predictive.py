"""Predictive checks: whether data simulated from the posterior (or the prior) look like the data that were observed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco import _checks, _tree
from scirocco._extras import require
from scirocco._random import SeedPurpose
from scirocco.analysis import pictures
from scirocco.analysis.scores import Calibration, calibration
from scirocco.data import ArraySource
from scirocco.data.sources import check_memory
from scirocco.drawing.markup import Html, Section, number, tag
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.model import Model
from scirocco.model.checks import asks_for_key, describe
from scirocco.run import Run
from scirocco.run.predicting import HostFunction, RowProgram, chosen, draws_and_rows, prepared, simulator, values
from scirocco.types import Data, Key, Params, PyTree, Rows

Array = np.ndarray[Any, np.dtype[Any]]
Statistic = Callable[[Array], Any]

_ROWS, _DRAWS = 10_000, 500  # checked by default
_TAILS = (0.05, 0.95)  # ends of the 90 % intervals
_ALPHA = 0.01  # p-value times the number of statistics
_BINS, _MOST_COUNTS, _MOST_GROUPS = 40, 60, 40  # in a chart

# test statistics by kind of outcome
CONTINUOUS: dict[str, Statistic] = {
    "mean": np.mean,
    "sd": np.std,
    "smallest": np.min,
    "5 %": lambda y: np.quantile(y, 0.05),
    "median": np.median,
    "95 %": lambda y: np.quantile(y, 0.95),
    "largest": np.max,
}
# of counts
COUNTS: dict[str, Statistic] = {
    "mean": np.mean,
    "sd": np.std,
    "share of zeros": lambda y: np.mean(y == 0),
    "95 %": lambda y: np.quantile(y, 0.95),
    "largest": np.max,
}
BINARY: dict[str, Statistic] = {"mean": np.mean}


class Checked(NamedTuple):
    """A number of the observed data, compared with that of simulated data."""

    name: str
    observed: float
    mean: float
    """Over simulated data sets."""
    low: float
    high: float
    """Between them are 90 % of the simulated data sets."""
    p_value: float
    """Two-sided: twice the share of simulated data sets on the rarer side of the observed one.

    If the observed one is beyond all of them, by an exponential tail through the outermost tenth of them.
    """


@dataclass(frozen=True)
class PredictiveCheck:
    """Observed data, compared with data simulated for the same rows.

    Attributes
    ----------
    kind
        "continuous", "counts" or "binary".
    statistics
        One `Checked` for each test statistic.
    groups
        The mean by group, one `Checked` for each, if groups were given.
    calibration
        For binary outcomes: predicted probabilities and observed shares.
    observed, simulated
        The outcomes of the checked rows, (row,), and simulated ones, (draw, row).
    size, title
        How many rows and draws; the heading.
    """

    kind: str
    statistics: tuple[Checked, ...]
    groups: tuple[Checked, ...]
    calibration: Calibration | None
    observed: Array = field(repr=False)
    simulated: Array = field(repr=False)
    size: str
    title: str

    @property
    def flagged(self) -> tuple[Checked, ...]:
        """Statistics and groups that deviate: p-value times their number below 0.01, the worst first."""
        few = sorted(self.statistics, key=lambda row: row.p_value)
        many = sorted(self.groups, key=lambda row: row.p_value)
        return tuple(row for rows in (few, many) for row in rows if row.p_value * len(rows) < _ALPHA)

    @property
    def ok(self) -> bool:
        """Whether nothing deviates."""
        return not self.flagged

    @property
    def words(self) -> str:
        """What deviates, in one line."""
        if self.ok:
            return f"the observed data look like simulated ones ({self.size})"
        shown = "; ".join(
            f"{row.name} is {number(row.observed)}, simulated {number(row.low)} to {number(row.high)}"
            for row in self.flagged[:4]
        )
        more = f"; and {len(self.flagged) - 4} more" if len(self.flagged) > 4 else ""
        return f"the observed data differ from simulated ones: {shown}{more} ({self.size})"

    def __repr__(self) -> str:
        return f"PredictiveCheck({self.words})"

    @property
    def frame(self) -> Any:
        """Statistics and groups as a pandas data frame."""
        pandas = require("pandas", "check.frame")
        rows = [*self.statistics, *self.groups]
        return pandas.DataFrame([row[1:] for row in rows], [row.name for row in rows], Checked._fields[1:])

    # -- pictures -----------------------------------------------------------------------------------------------------

    def curve(self) -> tuple[Array, Array, Array]:
        """Edges, observed heights and simulated heights (draw, bin): a density, or root frequencies of counts."""
        if self.kind == "continuous":
            low, high = np.quantile(np.append(self.observed, self.simulated.ravel()[::7]), (0.002, 0.998))
            room = 0.0 if high > low else 0.5
            edges = np.linspace(low - room, high + room, _BINS + 1)
            return edges, _heights(self.observed, edges, True), _heights(self.simulated, edges, True)
        most = max(1, int(max(self.observed.max(), np.quantile(self.simulated, 0.999))))
        step = -(-(most + 1) // _MOST_COUNTS)
        edges = np.arange(0, most + 1 + step, step) - 0.5
        seen, made = _heights(self.observed, edges, False), _heights(self.simulated, edges, False)
        return edges, np.sqrt(seen), np.sqrt(made)

    def section(self, name: str = "predictive-check") -> Section:
        """Charts and tables for a report: `sc.report.write(run, path, checks=[check])`."""
        return pictures.check_section(self, name)

    def plot(self) -> Any:
        """The density (or rootogram), test statistics, calibration or groups, as a matplotlib figure."""
        return pictures.check_figure(self)

    def _repr_html_(self) -> Html:
        return tag("p", tag("b", self.title), f" {self.words}")


def predictive_check(
    run: Any,
    simulate: Callable[[Params, Any, Key], Any] | None = None,
    data: Data | None = None,
    *,
    observed: str | Callable[[Rows], Any] | None = None,
    group: str | Callable[[Rows], Any] | None = None,
    statistics: Mapping[str, Statistic] | None = None,
    num_rows: int = _ROWS,
    num_draws: int = _DRAWS,
    seed: int = 0,
    title: str = "Predictive check",
) -> PredictiveCheck:
    """Simulate the outcomes of rows at posterior draws, and compare them with those that were observed.

    Every draw gives one simulated data set for the same rows. The check compares densities (for counts the roots of
    the frequencies, a rootogram), test statistics, means by group, and for binary outcomes the calibration.

    Parameters
    ----------
    run
        The run; or draws, leaves (chain, draw, ...): with `sc.analysis.prior_draws(...)` this is a prior predictive
        check.
    simulate
        `simulate(params, row, key) -> outcome`: one number for one row, drawn from the likelihood, or a dict of
        numbers by name. By default as the model of the run draws them: models of PyMC and NumPyro, and those with
        `simulate` of `sc.Model`.
    data
        Rows with outcomes; by default those of the run. For a fitted regression pass them in your units.
    observed
        The column of the outcomes, or a function of several rows that returns one number each; by default `y`. If
        there are several outcomes by name, the one to check.
    group
        A column, or a function of several rows, with group labels: means are compared by group.
    statistics
        Further test statistics by name: functions of an array of outcomes that return a number.
    num_rows, num_draws
        At most so many rows, drawn at random, and draws, spread evenly. Memory holds one number for each pair.
    seed
        Of the rows and the simulations.
    title
        The heading in a report.

    Returns
    -------
    PredictiveCheck
        `ok`, `words`, `statistics`, `frame`, `plot()`, and `section()` for reports.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> y = jax.random.t(jax.random.key(1), 2.0, (1000,))  # heavy tails
    >>> model = sc.Model(lambda mu, row: -0.5 * (row["y"] - mu) ** 2)
    >>> run = sc.sample(model, {"y": y}, jnp.array(0.0), progress=False)
    >>> check = sc.analysis.predictive_check(run, lambda mu, row, key: mu + jax.random.normal(key))
    >>> check.ok, check.flagged[0].name in ("sd", "smallest", "largest", "5 %", "95 %")
    (False, True)
    """
    simulate = simulator(run, simulate, "predictive_check")
    if not isinstance(simulate, HostFunction) and not (callable(simulate) and asks_for_key(simulate)):
        raise InvalidTypeError("`simulate` must be a function (params, row, key) that draws the outcome of one row.")
    seed = _checks.positive_int(seed, "seed", minimum=0)
    most = _checks.positive_int(num_rows, "num_rows")
    draws, source = draws_and_rows(run, data, "predictive_check")
    numbers = np.arange(source.num_rows)
    if source.num_rows > most:
        rng = np.random.default_rng([seed, int(SeedPurpose.CHECKED_ROWS)])
        numbers = np.sort(rng.choice(source.num_rows, most, replace=False))
    rows = source.take(numbers)
    few = chosen(draws, num_draws)
    check_memory(8 * len(numbers) * few.count, "the simulated outcomes", "Use fewer rows or draws.")
    own = ArraySource(jax.tree.map(np.asarray, rows))
    job = prepared(simulate, few.params, own)
    name = _outcome(job.out, observed)
    seen = _column(*_seen(run, rows, observed, name), "observed")
    made = _simulated(job, name, few.params, own, few.count, seed)
    kind = _kind(seen, made)
    chosen_statistics = {**{"continuous": CONTINUOUS, "counts": COUNTS, "binary": BINARY}[kind], **(statistics or {})}
    found = tuple(_checked(name, statistic, seen, made) for name, statistic in chosen_statistics.items())
    groups = _by_group(seen, made, None if group is None else _labels(rows, group))
    calibrated = calibration(np.clip(made.mean(axis=0), 0.0, 1.0), seen) if kind == "binary" else None
    some = (
        f"{len(numbers):,} of {source.num_rows:,} rows" if len(numbers) < source.num_rows else f"{len(numbers):,} rows"
    )
    return PredictiveCheck(kind, found, groups, calibrated, seen, made, f"{some}, {few.words}", title)


def prior_draws(draw: Callable[[Key], Params], num_draws: int = _DRAWS, seed: int = 0) -> Params:
    """Independent draws of a prior, leaves (1, draw, ...), for prior predictive checks.

    A model knows the density of its prior, not how to draw from it: `draw(key) -> params` does.

    Examples
    --------
    >>> import jax, scirocco as sc
    >>> sc.analysis.prior_draws(lambda key: {"mu": jax.random.normal(key)}, 10)["mu"].shape
    (1, 10)
    """
    count = _checks.positive_int(num_draws, "num_draws")
    key = jax.random.key(_checks.positive_int(seed, "seed", minimum=0))
    drawn = jax.jit(jax.vmap(draw))(jax.random.split(key, count))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], drawn)


def _column(rows: Rows, which: str | Callable[[Rows], Any], name: str) -> Array:
    """One number for each row."""
    if callable(which):
        found = which(rows)
    elif isinstance(rows, Mapping):
        if which not in rows:
            raise InvalidValueError(f"`{name}` is {which!r}, but the rows have the columns {describe(rows)}.")
        found = rows[which]
    elif _tree.is_array(rows) and name == "observed":
        found = rows
    else:
        raise InvalidValueError(
            f"`{name}` must be a function of the rows, which have no named columns: {describe(rows)}."
        )
    array, count = np.asarray(found), len(jax.tree.leaves(rows)[0])
    if array.shape != (count,):
        raise InvalidValueError(f"`{name}` must be one number for each of the {count} rows, got shape {array.shape}.")
    return array.astype(np.float64) if array.dtype.kind in "fiub" else array


def _labels(rows: Rows, group: str | Callable[[Rows], Any]) -> Array:
    return _column(rows, group, "group")


def _outcome(out: PyTree, observed: str | Callable[[Rows], Any] | None) -> str | None:
    """The name of the outcome among those that are simulated; None if it has none."""
    if not isinstance(out, Mapping):
        return None
    name = observed if isinstance(observed, str) and observed in out else None
    if name is None and len(out) > 1:
        raise InvalidValueError(
            f"several outcomes are simulated: {sorted(out)}. Check one at a time, e.g. observed={sorted(out)[0]!r}."
        )
    return next(iter(out)) if name is None else name


def _seen(
    run: Any, rows: Rows, observed: str | Callable[[Rows], Any] | None, name: str | None
) -> tuple[Rows, str | Callable[[Rows], Any]]:
    """The rows, and where in them the outcome is."""
    model = run.known_model(None) if isinstance(run, Run) else None
    known = model.observed if isinstance(model, Model) else None
    if observed is None or observed == name:
        if known is None:
            return rows, "y" if name is None else name
        found = known(rows)
        return {"y": found if name is None else found[name]}, "y"
    return rows, observed


def _simulated(job: RowProgram, name: str | None, params: Params, source: ArraySource, count: int, seed: int) -> Array:
    """(draw, row)."""
    out = job.out if name is None else job.out[name]
    if not _tree.is_array(out) or out.shape != ():
        raise InvalidValueError(
            f"`simulate` must return one number for one row, got {describe(out)}. Check one outcome at a time: pass "
            "simulate, and observed, for it."
        )
    made = np.empty((count, source.num_rows))
    for first, stop, found in values(job, params, source, jax.random.key(seed)):
        part = found if name is None else found[name]
        made[:, first:stop] = np.asarray(part)[: stop - first].T
    if not np.isfinite(made).all():
        row = int(np.argmax(~np.isfinite(made).all(axis=0)))
        raise InvalidValueError(f"`simulate` returned NaN or inf for at least one draw at row {row} of those checked.")
    return made


def _kind(seen: Array, made: Array) -> str:
    whole = all(np.array_equal(part, np.round(part)) and part.min() >= 0 for part in (seen, made))
    if not whole:
        return "continuous"
    return "binary" if max(seen.max(), made.max()) <= 1 else "counts"


def _checked(name: str, statistic: Statistic, seen: Array, made: Array) -> Checked:
    try:
        own, others = float(statistic(seen)), np.array([float(statistic(each)) for each in made])
    except (TypeError, ValueError) as error:
        raise InvalidValueError(
            f"the statistic `{name}` must return one number for an array of outcomes: {error}"
        ) from error
    return _summary(name, own, others)


def _summary(name: str, own: float, others: Array) -> Checked:
    below = float(np.sum(others < own) + 0.5 * np.sum(others == own))
    rarer = (min(below, len(others) - below) + 0.5) / (len(others) + 1)
    p_value = min(1.0, 2 * rarer)
    if below in (0.0, len(others)):
        p_value = min(p_value, _beyond(own, others))
    low, high = np.quantile(others, _TAILS)
    return Checked(name, own, float(others.mean()), float(low), float(high), p_value)


def _beyond(own: float, others: Array) -> float:
    """The two-sided p-value of a number beyond all others, whose outer tenth is taken to have an exponential tail."""
    if np.ptp(others) == 0:
        return 0.0
    sign = 1.0 if own > others.max() else -1.0
    start = float(np.quantile(sign * others, 0.9))
    excess = sign * others - start
    mean = float(excess[excess > 0].mean()) if np.any(excess > 0) else math.inf
    return 0.2 * math.exp(-(sign * own - start) / mean)


def _by_group(seen: Array, made: Array, labels: Array | None) -> tuple[Checked, ...]:
    """Means of the largest groups."""
    if labels is None:
        return ()
    names, places, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    order = np.argsort(-sizes, kind="stable")[:_MOST_GROUPS]
    found = []
    for k in sorted(order):
        inside = places == k
        name = f"{names[k]:g}" if names.dtype.kind in "fiu" else str(names[k])
        found.append(_summary(f"group {name} ({sizes[k]:,})", float(seen[inside].mean()), made[:, inside].mean(axis=1)))
    return tuple(found)


def _heights(part: Array, edges: Array, density: bool) -> Array:
    """Histograms along the last axis."""
    flat = np.atleast_2d(part)
    found = np.stack([np.histogram(row, edges)[0] for row in flat]).astype(np.float64)
    if density:
        found /= flat.shape[1] * np.diff(edges)
    return found[0] if part.ndim == 1 else found
