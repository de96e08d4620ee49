"""Comparison of models by leave-one-out or held-out log scores, with standard errors of the differences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from scirocco._extras import require
from scirocco.analysis.loo import LOO, Difference, difference, loo
from scirocco.analysis.scores import LogPredictive, log_predictive
from scirocco.drawing.charts import forest
from scirocco.drawing.markup import Html, Section, join, number, paragraph, sortable, tag
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.run import Run
from scirocco.types import Data

Array = np.ndarray[Any, np.dtype[Any]]

_HEADS = ("model", "elpd", "se", "difference", "se of difference", "p_loo", "k-hat")


class Compared(NamedTuple):
    """One model of a comparison."""

    name: str
    elpd: float
    """The log score, summed over the rows."""
    standard_error: float
    """The standard error of `elpd`."""
    difference: float
    """`elpd` minus that of the best model: 0 for the best, negative for the others."""
    difference_error: float
    """Standard error of `difference`, from the differences of the same rows."""
    sampling_error: float
    """The part of `difference_error` that comes from weighting only some of the rows."""
    p_loo: float
    """The effective number of parameters; NaN for held-out scores."""
    k_hat: float
    """The largest k̂; NaN for held-out scores."""


@dataclass(frozen=True)
class Comparison:
    """Models by decreasing log score.

    Attributes
    ----------
    table
        One `Compared` for each model, the best first.
    method
        "leave-one-out" or "held-out".
    num_rows
        Rows that were scored.
    warnings
        What makes the comparison unreliable, one sentence each.
    """

    table: tuple[Compared, ...]
    method: str
    num_rows: int
    warnings: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The result in one sentence for each model but the best."""
        best, lines = self.table[0], []
        for row in self.table[1:]:
            ratio = -row.difference / row.difference_error if row.difference_error > 0 else math.inf
            verdict = "no clear difference" if ratio < 2 else "worse" if ratio > 4 else "probably worse"
            lines.append(
                f"{row.name}: {row.difference:,.1f} ± {row.difference_error:.2g} against {best.name}, {verdict}"
            )
        return "; ".join(lines) or f"{best.name}: elpd {best.elpd:,.1f} ± {best.standard_error:.2g}"

    @property
    def frame(self) -> Any:
        """The table as a pandas data frame."""
        pandas = require("pandas", "comparison.frame")
        return pandas.DataFrame([row[1:] for row in self.table], [row.name for row in self.table], Compared._fields[1:])

    def __repr__(self) -> str:
        cells = [list(_HEADS), *map(_cells, self.table)]
        widths = [max(len(row[k]) for row in cells) for k in range(len(_HEADS))]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells]
        return "\n".join([f"{self.method} log score of {self.num_rows:,} rows", *lines, *self.warnings])

    def section(self, name: str = "comparison") -> Section:
        """A chart and a table for a report: `sc.report.write(run, path, checks=[comparison])`."""
        names = [row.name for row in self.table]
        means = np.array([row.difference for row in self.table])
        errors = np.array([row.difference_error for row in self.table])
        label = "Differences of the log score to the best model"
        spans = [np.stack([means - z * errors, means + z * errors], axis=1) for z in (1.0, 2.0)]
        chart = forest(names, means, spans[0], spans[1], label, label)
        told = f"{self.method.capitalize()} log score of {self.num_rows:,} rows; lines are one and two standard errors."
        parts = [paragraph(told, " ", self.words, "."), *(paragraph(text) for text in self.warnings)]
        parts += [tag("div", chart, class_="charts")]
        parts += [sortable(f"{name}-table", _HEADS, map(_cells, self.table), "Comparison of models")]
        return Section(name, "Comparison of models", join(parts))

    def _repr_html_(self) -> Html:
        """The table, for notebooks."""
        right = "text-align:right;padding:2px 8px"
        head = tag("tr", *(tag("th", name, style=right) for name in _HEADS))
        body = [tag("tr", *(tag("td", cell, style=right) for cell in _cells(row))) for row in self.table]
        return join([tag("table", head, *body), *(tag("p", text) for text in self.warnings)])


def compare(
    models: Mapping[str, Any],
    *,
    rows: Data | None = None,
    num_rows: int | None = None,
    num_draws: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare models of the same data by their expected log predictive density, with paired standard errors.

    The difference of two models has a much smaller standard error than either of their scores, because it is computed
    row by row. If only some of the rows are weighted, all models use the same rows.

    Parameters
    ----------
    models
        By name: runs or fitted models of this process; or results of `loo` or of `log_predictive(each=True)`, all of
        the same rows in the same order.
    rows
        Rows that no model has seen: runs are then scored on them (`sc.analysis.log_predictive`), not by leave-one-out.
    num_rows, num_draws, seed
        As for `sc.analysis.loo`.

    Returns
    -------
    Comparison
        `table`, `frame`, `words`, and `section()` for reports.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = 1.0 + jax.random.normal(jax.random.key(1), (200,))
    >>> def normal(mu, x): return -0.5 * (x - mu) ** 2 - 0.5 * jnp.log(2 * jnp.pi)
    >>> free = sc.sample(sc.Model(normal), x, jnp.array(0.0), progress=False)
    >>> tight = sc.sample(sc.Model(normal, lambda mu: -50.0 * mu**2), x, jnp.array(0.0), progress=False)
    >>> [row.name for row in sc.analysis.compare({"tight": tight, "free": free}).table]
    ['free', 'tight']
    """
    if not isinstance(models, Mapping) or not models:
        raise InvalidTypeError('`models` must be a dict of runs by name: {"a": run_a, "b": run_b}.')
    options: dict[str, Any] = {"num_rows": num_rows, "num_draws": num_draws, "seed": seed}
    found = {str(name): _scored(name, what, rows, options) for name, what in models.items()}
    kinds = {type(score) for score in found.values()}
    if len(kinds) > 1:
        raise InvalidTypeError("leave-one-out and held-out scores cannot be compared with each other.")
    _check_rows(found)
    scores = {name: _total(score) for name, score in found.items()}
    order = sorted(found, key=lambda name: -scores[name].total)
    table = tuple(_compared(name, found, scores, order[0]) for name in order)
    held_out = LogPredictive in kinds
    count = len(_approximate(found[order[0]]))
    return Comparison(table, "held-out" if held_out else "leave-one-out", count, tuple(_warnings(found)))


def _scored(name: str, what: Any, rows: Data | None, options: dict[str, Any]) -> LOO | LogPredictive:
    if isinstance(what, LOO):
        return what
    if isinstance(what, LogPredictive):
        if what.each is None:
            raise InvalidValueError(
                f"the scores of `{name}` are not known row by row: use log_predictive(..., each=True)."
            )
        return what
    run = what if isinstance(what, Run) else getattr(what, "run_", None)
    if not isinstance(run, Run):
        raise InvalidTypeError(
            f"`{name}` must be a run, a fitted model, a LOO or a LogPredictive, got {type(what).__name__}."
        )
    if rows is None:
        return loo(run, **options)
    if run.origin is None:
        raise InvalidValueError(
            f"`{name}` was loaded and does not know its model: pass log_predictive(model, run, rows, each=True)."
        )
    return log_predictive(run.origin.model, run, rows, each=True)


def _approximate(score: LOO | LogPredictive) -> Array:
    found = score.approximate if isinstance(score, LOO) else score.each
    return np.asarray(found)


def _check_rows(found: Mapping[str, LOO | LogPredictive]) -> None:
    """Differences are taken row by row, so that all must have scored the same rows."""
    first, *others = found
    for name in others:
        a, b = found[first], found[name]
        lengths = len(_approximate(a)), len(_approximate(b))
        if lengths[0] != lengths[1]:
            raise InvalidValueError(
                f"`{first}` was scored on {lengths[0]:,} rows and `{name}` on {lengths[1]:,}: compare models of the "
                "same rows."
            )
        if isinstance(a, LOO) and isinstance(b, LOO) and not np.array_equal(a.rows, b.rows):
            raise InvalidValueError(
                f"`{first}` and `{name}` were weighted on different rows: call loo with the same `num_rows` and `seed`."
            )


def _total(score: LOO | LogPredictive, other: LOO | LogPredictive | None = None) -> Difference:
    """The sum of a score over all rows, or of its difference to another one."""
    approximate, base = _approximate(score), 0.0 if other is None else _approximate(other)
    if not isinstance(score, LOO):
        values = approximate - base
        return difference(values, np.arange(len(values)), values)
    each = score.each - (other.each if isinstance(other, LOO) else 0.0)
    return difference(approximate - base, score.rows, each)


def _compared(
    name: str, found: Mapping[str, LOO | LogPredictive], scores: Mapping[str, Difference], best: str
) -> Compared:
    own, score = scores[name], found[name]
    against = _total(score, found[best]) if name != best else Difference(0.0, 0.0, 0.0)
    error = math.sqrt(max(against.spread, 0.0) + against.sampling_variance)
    p_loo, k_hat = (score.p_loo, float(score.k_hat.max())) if isinstance(score, LOO) else (math.nan, math.nan)
    own_error = math.sqrt(max(own.spread, 0.0) + own.sampling_variance)
    return Compared(
        name, own.total, own_error, against.total, error, math.sqrt(against.sampling_variance), p_loo, k_hat
    )


def _warnings(found: Mapping[str, LOO | LogPredictive]) -> list[str]:
    return [
        f"k-hat of {name} is above {score.largest_k:.2f} in {score.num_bad:,} of {len(score.rows):,} weighted rows: "
        "its score is not reliable."
        for name, score in found.items()
        if isinstance(score, LOO) and not score.ok
    ]


def _cells(row: Compared) -> list[str]:
    p_loo = "" if math.isnan(row.p_loo) else f"{row.p_loo:.1f}"
    k_hat = "" if math.isnan(row.k_hat) else f"{row.k_hat:.2f}"
    sums = [
        f"{row.elpd:,.1f}",
        number(row.standard_error, 3),
        f"{row.difference:,.1f}",
        number(row.difference_error, 3),
    ]
    return [row.name, *sums, p_loo, k_hat]
