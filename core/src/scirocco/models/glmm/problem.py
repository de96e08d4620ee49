"""From a formula and a table to what is sampled: arrays in internal units, factors, the model and where it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from scirocco import _checks
from scirocco._adjustable import Adjustable
from scirocco.data.arrays import ArraySource
from scirocco.data.groups import grouped, label_codes
from scirocco.errors import InvalidValueError
from scirocco.model import HierarchicalModel, Model
from scirocco.model.families import FAMILIES, PARAMETERS, Family
from scirocco.model.groups import MOST_LOCAL
from scirocco.models.glmm import density
from scirocco.models.glmm.density import Factor, slopes
from scirocco.models.inputs.formulas import (
    Design,
    GroupTerm,
    Parsed,
    as_frame,
    checked_weights,
    column,
    missing_rows,
    used_columns,
)
from scirocco.models.inputs.tables import float_type
from scirocco.types import Params

NAMES = {"noise": "sigma"}
"""Names that parameters of families have in mixed models, if they differ."""
_NEARLY_THE_SAME = 1e-3
"""Smallest eigenvalue of the products of the columns of a term, in units of their mean squares."""


@dataclass(frozen=True)
class Term:
    """A group term: its columns, levels and deviations of columns."""

    term: GroupTerm
    design: Design
    levels: np.ndarray
    """Labels, sorted; of several columns, tuples of labels."""
    scale: np.ndarray
    """Root mean squares of the columns."""

    def written(self) -> dict[str, Any]:
        """JSON, from which `read` makes the same."""
        levels, scale = self.levels.tolist(), self.scale.tolist()
        return {"term": list(self.term), "design": self.design.written(), "levels": levels, "scale": scale}

    @classmethod
    def read(cls, written: dict[str, Any]) -> Term:
        """What `written` returned."""
        levels, scale = as_labels(written["levels"]), np.asarray(written["scale"])
        return cls(GroupTerm(*written["term"]), Design.read(written["design"]), levels, scale)

    @property
    def name(self) -> str:
        """The factor."""
        return self.term.factor

    @property
    def intercept(self) -> int | None:
        """The place of the intercept among the effects."""
        names = self.design.names
        return names.index("Intercept") if "Intercept" in names else None


class InternalUnits(NamedTuple):
    """The internal units of fixed effects and of the response."""

    mean: np.ndarray
    deviation: np.ndarray
    centre: float
    """The value of the linear predictor in internal units of 0."""
    spread: float
    """That of a continuous response; otherwise 1."""


class MixedProblem(NamedTuple):
    """Everything that a fit needs."""

    model: Model
    source: ArraySource
    start: Params
    parsed: Parsed
    design: Design
    terms: tuple[Term, ...]
    factors: tuple[Factor, ...]
    by_blocks: bool
    """Whether effects are drawn in blocks, by `crossed`; otherwise those of one factor are integrated out."""
    units: InternalUnits
    num_rows: int

    def written(self) -> dict[str, Any]:
        """JSON of what results need in addition to the draws."""
        mean, deviation, centre, spread = self.units
        return {
            "design": self.design.written(),
            "terms": [term.written() for term in self.terms],
            "factors": [[factor.number, factor.size, factor.correlated] for factor in self.factors],
            "units": [mean.tolist(), deviation.tolist(), centre, spread],
        }


def read_frame(table: Any, parsed: Parsed, weights: str | None, missing: str) -> Any:
    """The columns of a fit, without rows with missing values if those are to be dropped."""
    frame = as_frame(table, used_columns(parsed, weights), "GLMM")
    bad = missing_rows(frame)
    if bad:
        rows = np.any(list(bad.values()), axis=0)
        if missing != "drop":
            name, where = next(iter(bad.items()))
            raise InvalidValueError(
                f"column `{name}` has {int(where.sum())} missing or infinite values, the first in row "
                f"{int(np.argmax(where))}; {int(rows.sum())} of {len(frame)} rows have one. Impute them, or pass "
                "missing='drop' to leave such rows out."
            )
        _checks.warn(f"GLMM leaves out {int(rows.sum())} of {len(frame)} rows with missing values.")
        frame = frame[~rows].reset_index(drop=True)
    if not len(frame):
        raise InvalidValueError("the table of GLMM has no rows.")
    return frame


def level_codes(frame: Any, factor: str) -> tuple[np.ndarray, np.ndarray]:
    """The levels of a factor in order, and each row's number; combinations of several columns are tuples."""
    names = factor.split(":")
    labels, codes = label_codes(frame[names[0]].to_numpy(), f"column `{names[0]}`")
    if len(names) == 1:
        return labels, codes
    levels: list[Any] = [(label,) for label in labels.tolist()]
    for name in names[1:]:
        others, more = label_codes(frame[name].to_numpy(), f"column `{name}`")
        pairs, codes = np.unique(codes * np.int64(len(others)) + more, return_inverse=True)
        last = others.tolist()
        levels = [(*levels[pair // len(last)], last[pair % len(last)]) for pair in pairs.tolist()]
    return as_labels(levels), codes.reshape(-1)


def as_labels(levels: Sequence[Any]) -> np.ndarray:
    """Levels as an array; those of several columns, lists in a file, as tuples."""
    if not any(isinstance(level, (tuple, list)) for level in levels):
        return np.asarray(levels)
    found = np.empty(len(levels), object)
    found[:] = [tuple(level) if isinstance(level, list) else level for level in levels]
    return found


def compose(formula: str, family: str, table: Any, weights: str | None, missing: str, parsed: Parsed) -> MixedProblem:
    """Check the table, and make the model."""
    frame = read_frame(table, parsed, weights, missing)
    if not parsed.groups:
        raise InvalidValueError(
            f"the formula {formula!r} has no group term such as (1 | shop): for a model without groups use "
            "sc.models.LinearRegression.from_formula, or another regression."
        )
    design = Design(parsed.fixed, frame, offset=parsed.offset)
    x = design.matrix(frame)
    y, trials = response(frame, parsed, family)
    known = FAMILIES[family]
    offset = design.offset(frame)
    units = _units(x, design.names, y, trials, offset, known)
    dtype = float_type(np.float64)
    arrays: dict[str, np.ndarray] = {"x": ((x - units.mean) / units.deviation).astype(dtype)}
    _check_rank(arrays["x"], design.names)
    arrays["y"] = ((y - units.centre) / units.spread if known.continuous else y).astype(dtype)
    if trials is not None:
        arrays["trials"] = trials.astype(dtype)
    shift = np.zeros(len(frame)) if known.continuous else np.full(len(frame), units.centre)
    if offset is not None:
        shift = shift + offset / units.spread
    if shift.any():
        arrays["offset"] = shift.astype(dtype)
    if weights is not None:
        arrays["weight"] = checked_weights(column(frame, weights), weights).astype(dtype)
    terms, codes = _terms(frame, parsed)
    columns = [(term.design.matrix(frame) / term.scale).astype(dtype) for term in terms]
    inner, by_blocks = roles(family, arrays, columns, codes, [len(term.levels) for term in terms], known.start)
    factors = tuple(Factor(k, columns[k].shape[1], term.term.correlated) for k, term in enumerate(terms))
    for term, factor, code in zip(terms, factors, codes, strict=True):
        arrays[f"z_{factor.number}"] = columns[factor.number]
        if factor.number != inner:
            arrays[f"level_{factor.number}"] = code.astype(np.int32)
        if by_blocks:
            _check_varying(term, arrays[f"z_{factor.number}"])
    start = _start(x.shape[1], known, terms, factors, inner, dtype)
    for factor, term, code in zip(factors, terms, codes, strict=True):
        if factor.number != inner and term.intercept is not None:
            _rough_effects(start, factor, term, code, y, trials, known, units)
    row = density.RowLikelihood(
        family, None if inner is None else factors[inner], tuple(f for f in factors if f.number != inner)
    )
    moved = [name for name in start if not (by_blocks and name.startswith("effects_"))]
    prior, constraints = density.GlobalPrior(family, factors), density.constraints(moved)
    if inner is None:
        model = Model(density.PlainRow(row), prior, transforms=constraints)
        source = ArraySource(arrays)
    else:
        local = np.zeros(factors[inner].size)
        model = HierarchicalModel(
            row,
            density.standard_normal,
            prior,
            groups="group",
            local=local,
            num_nodes=known.nodes,
            transforms=constraints,
        )
        binned = grouped({**arrays, "group": codes[inner].astype(np.int32)}, "group")
        assert isinstance(binned, ArraySource)
        source = binned
    return MixedProblem(model, source, start, parsed, design, terms, factors, by_blocks, units, len(frame))


def _terms(frame: Any, parsed: Parsed) -> tuple[tuple[Term, ...], list[np.ndarray]]:
    terms, codes = list[Term](), list[np.ndarray]()
    for term in parsed.groups:
        design = Design(term.effects, frame)
        z = design.matrix(frame)
        labels, code = level_codes(frame, term.factor)
        if len(labels) < 2:
            raise InvalidValueError(
                f"the factor `{term.factor}` has one level ({labels.tolist()[0]!r}), which cannot be told from the "
                "fixed effects: drop the term."
            )
        if any(other.name == term.factor for other in terms):
            raise InvalidValueError(
                f"`{term.factor}` has two group terms: write one, such as (1 + x | {term.factor}), or "
                f"(1 + x || {term.factor}) for uncorrelated effects."
            )
        scale = np.sqrt(np.mean(z**2, axis=0))
        if np.any(scale == 0):
            raise InvalidValueError(
                f"column `{design.names[int(np.argmin(scale))]}` of the term ({term.effects} | {term.factor}) is 0 "
                "everywhere: drop it."
            )
        terms.append(Term(term, design, labels, scale))
        codes.append(code)
    return tuple(terms), codes


def _check_varying(term: Term, z: np.ndarray) -> None:
    """Draws of a level's effects lose digits if the columns are nearly the same, such as 1 and a year."""
    least = float(np.linalg.eigvalsh(z.T.astype(np.float64) @ z / len(z))[0])
    if least < _NEARLY_THE_SAME:
        _checks.warn(
            f"the columns of ({term.term.effects} | {term.name}) are nearly the same, so that the effects of a level "
            "cannot be told apart in single precision. Subtract the mean: center(x) instead of x."
        )


def response(frame: Any, parsed: Parsed, family: str) -> tuple[np.ndarray, np.ndarray | None]:
    """The response as numbers, and the trials of a binomial one."""
    name, trials = parsed.response, None
    if (parsed.trials is not None) != FAMILIES[family].has_trials:
        raise InvalidValueError(
            "the binomial family requires proportion(successes, trials) on the left of ~, and others a column; got "
            f"family={family!r} and {name!r}{'' if parsed.trials is None else f' of {parsed.trials!r}'}."
        )
    y = column(frame, name)
    FAMILIES[family].check(y, name)
    if parsed.trials is not None:
        trials = column(frame, parsed.trials)
        if np.any(trials < y) or np.any(trials != np.round(trials)):
            bad = int(np.argmax((trials < y) | (trials != np.round(trials))))
            raise InvalidValueError(
                f"`{parsed.trials}` must be whole numbers, at least the successes `{name}`; row {bad} has "
                f"{trials[bad]:g} trials and {y[bad]:g} successes."
            )
    return y, trials


def _units(
    x: np.ndarray, names: list[str], y: np.ndarray, trials: np.ndarray | None, offset: np.ndarray | None, family: Family
) -> InternalUnits:
    mean, deviation = np.zeros(x.shape[1]), np.ones(x.shape[1])
    intercept = "Intercept" in names
    for place, name in enumerate(names):
        if name == "Intercept":
            continue
        spread = float(x[:, place].std())
        if spread == 0 and intercept:
            raise InvalidValueError(
                f"the column `{name}` is constant: it cannot be told from the intercept. Drop it from the formula."
            )
        mean[place] = x[:, place].mean() if intercept else 0.0
        deviation[place] = spread if spread > 0 else float(np.sqrt(np.mean(x[:, place] ** 2)))
    spread = family.spread(y)
    if spread == 0:
        raise InvalidValueError(f"the response is {y[0]:g} in all rows: there is nothing to explain.")
    return InternalUnits(mean, deviation, family.centre(y, trials, offset) if intercept else 0.0, spread)


def _check_rank(x: np.ndarray, names: list[str]) -> None:
    gram = x.T.astype(np.float64) @ x / len(x)
    root = np.sqrt(np.maximum(np.diagonal(gram), 1e-300))
    values, vectors = np.linalg.eigh(gram / np.outer(root, root))
    if values[0] < 1e-9:
        parts = [names[k] for k in np.argsort(-np.abs(vectors[:, 0]))[:3]]
        raise InvalidValueError(
            f"the columns of the formula are linearly dependent ({', '.join(parts)}): drop one of them."
        )


def _start(
    size: int, family: Family, terms: tuple[Term, ...], factors: tuple[Factor, ...], inner: int | None, dtype: Any
) -> dict[str, np.ndarray]:
    start: dict[str, np.ndarray] = {"coef": np.zeros(size, dtype)}
    for term, factor in zip(terms, factors, strict=True):
        start[f"sd_{factor.number}"] = np.full(factor.size, 0.5, dtype)
        if factor.size > 1 and factor.correlated:
            start[f"root_{factor.number}"] = np.eye(factor.size, dtype=dtype)
        if factor.number != inner:
            start[f"effects_{factor.number}"] = np.zeros((len(term.levels), factor.size), dtype)
    return start | {name: np.asarray(value, dtype) for name, value in family.start.items()}


def _rough_effects(
    start: dict[str, np.ndarray],
    factor: Factor,
    term: Term,
    code: np.ndarray,
    y: np.ndarray,
    trials: np.ndarray | None,
    family: Family,
    units: InternalUnits,
) -> None:
    """Start at the levels' own averages: where effects and their deviation are both small, the search would stay."""
    sizes = np.bincount(code, trials, len(term.levels))
    means = (np.bincount(code, y, len(term.levels)) + 0.5 * y.mean()) / (sizes + 0.5)
    rough = (family.linked(means) - units.centre) / units.spread
    place = term.intercept
    rough = rough - rough.mean()
    start[f"effects_{factor.number}"][:, place] = rough
    start[f"sd_{factor.number}"][place] = max(float(rough.std()), 0.1)


def outside(
    draws: Mapping[str, Any], units: InternalUnits, terms: tuple[Term, ...], names: list[str]
) -> dict[str, np.ndarray]:
    """Draws (chain, draw, ...) in the user's units, by name."""
    coef = np.asarray(draws["coef"], np.float64) * units.spread / units.deviation
    found = {"coef": coef}
    if "Intercept" in names:
        place = names.index("Intercept")
        coef[..., place] = coef[..., place] + units.centre - coef @ units.mean
    for number, term in enumerate(terms):
        found[f"sd_{term.name}"] = np.asarray(draws[f"sd_{number}"], np.float64) * units.spread / term.scale
        if f"root_{number}" in draws:
            root = np.asarray(draws[f"root_{number}"], np.float64)
            found[f"correlation_{term.name}"] = np.einsum("...ij,...kj->...ik", root, root)
    for name, parameter in PARAMETERS.items():
        if name in draws:
            factor = units.spread if parameter.has_units else 1.0
            found[NAMES.get(name, name)] = np.asarray(draws[name], np.float64) * factor
    return found


# -- which effects are integrated out, which are parameters of the chains, and when blocks are better ------------------

MOST_LEVELS = 100
"""Levels of all factors but the one that is integrated out, at most. Else all are drawn in blocks."""
_MANY_ROWS, _FEW_LEVELS = 1_000, 300
"""Rows per level from which on a factor of at most so many levels is not integrated out."""


@dataclass
class MixedSizes(Adjustable):
    """From which sizes on effects are drawn, read and saved in another way."""

    most_rows: int = 300_000
    """Rows up to which several factors are drawn in blocks, whatever their levels."""
    clearly: float = 10.0
    """Variance of estimated effects, in units of the square of their standard error, from which on levels differ."""
    most_numbers: int = 20_000_000
    """Entries of the columns that are read to find that out, at most."""
    most_saved: int = 50_000_000
    """Numbers in the draws of effects that are saved with a model."""


MIXED = MixedSizes()


def roles(
    family: str,
    arrays: Mapping[str, np.ndarray],
    columns: Sequence[np.ndarray],
    codes: Sequence[np.ndarray],
    counts: Sequence[int],
    theta: Params,
) -> tuple[int | None, bool]:
    """The factor that is integrated out, if any, and whether effects are drawn in blocks.

    Effects of several factors are drawn in blocks, as are those of a factor with many effects per level. Where a sweep
    over all rows would take long and one factor has nearly all levels, that one is integrated out, and the effects of
    the others are parameters; so are those of one factor that has few levels with many rows. The levels must differ
    for that: the density of effects and their deviation is not bounded where both are near 0, and has a mode elsewhere
    only if the variance of the estimated effects is more than four times the square of their standard error.

    `arrays` are in internal units. Each factor has `columns` (rows, q), `codes` of the rows' levels, and their number.
    """
    rows = len(codes[0])
    inner: int | None = int(np.argmax(counts))
    if rows / max(counts) > _MANY_ROWS and sum(counts) <= _FEW_LEVELS:
        inner = None
    others = [number for number in range(len(counts)) if number != inner]
    too_many = inner is not None and columns[inner].shape[1] > MOST_LOCAL
    by_blocks = (
        too_many
        or sum(counts[number] for number in others) > MOST_LEVELS
        or (len(counts) > 1 and rows <= MIXED.most_rows)
        or not _differ(family, arrays, [(columns[k], codes[k], counts[k]) for k in others], theta)
    )
    return None if by_blocks else inner, by_blocks


def _differ(
    family: str, arrays: Mapping[str, np.ndarray], factors: Sequence[tuple[np.ndarray, np.ndarray, int]], theta: Params
) -> bool:
    """Whether all effects clearly differ between levels, by one step of weighted least squares for all of them."""
    if not factors:
        return True
    from scipy import sparse

    width = arrays["x"].shape[1] + sum(z.shape[1] for z, _, _ in factors)
    rows, used = len(arrays["y"]), min(len(arrays["y"]), MIXED.most_numbers // width)
    if used < rows:
        some = np.sort(np.random.default_rng(0).choice(rows, used, replace=False))
        arrays = {name: array[some] for name, array in arrays.items()}
        factors = [(z[some], code[some], count) for z, code, count in factors]
    _, slope, weight = (
        np.asarray(each, np.float64)
        for each in slopes(family, dict(arrays), theta, jnp.zeros(used) + arrays.get("offset", 0.0))
    )
    parts, places = [sparse.csr_matrix(arrays["x"], dtype=np.float64)], []
    for z, code, count in factors:
        for values in z.T.astype(np.float64):
            places.append(slice(begin := sum(part.shape[1] for part in parts), begin + count))
            parts.append(sparse.csr_matrix((values, (np.arange(used), code)), shape=(used, count)))
    design = sparse.hstack(parts).tocsr()
    gram = (design.T @ sparse.diags_array(weight) @ design).toarray()
    covariance = np.linalg.inv(gram + np.eye(len(gram)) / density.PRIOR.scale**2)
    effects = covariance @ (design.T @ slope)
    for place in places:
        own, errors = effects[place] - effects[place].mean(), covariance[place, place]
        noise, share = np.trace(errors) - errors.sum() / len(own), used / rows
        if own @ own - (1.0 - share) * noise <= MIXED.clearly * share * noise:  # as of all rows
            return False
    return True
