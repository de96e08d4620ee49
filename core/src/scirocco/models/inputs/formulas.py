"""Formulas as R, brms and bambi write them: `y ~ x1 * x2 + C(day) + offset(log_time) + (1 + x1 | shop)`.

Group terms are split off here; what is left is a formula of fixed effects, whose columns `formulaic` makes. It
evaluates a formula as Python code, and a saved model contains one: only names of columns and a list of functions pass.
"""

from __future__ import annotations

import ast
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from scirocco._extras import require
from scirocco.data.values import as_numpy, missing, named_columns
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.inputs.files import read_table
from scirocco.models.inputs.sizes import check_columns, check_numbers, check_size

FUNCTIONS = frozenset(
    {"C", "I", "bs", "cc", "center", "cr", "cs", "exp", "log", "log10", "log2", "poly", "scale", "sqrt"}
)
"""What may be called in a formula."""
_PROPORTION = ("proportion", "prop", "p")
_PARTS = (
    ast.Expression,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.Call,
    ast.keyword,
    ast.BinOp,
    ast.UnaryOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Pow,
    ast.UAdd,
    ast.USub,
    ast.Tuple,
    ast.List,
)


class GroupTerm(NamedTuple):
    """`(effects | factor)`: effects that differ between the levels of a factor."""

    effects: str
    factor: str
    """A column, or several joined by `:`, whose combinations are the levels."""
    correlated: bool


class Parsed(NamedTuple):
    """The parts of a formula."""

    response: str
    trials: str | None
    """The column of trials in `proportion(successes, trials)`."""
    fixed: str
    offset: str | None
    groups: tuple[GroupTerm, ...]


def parse(formula: str) -> Parsed:
    """Split a formula into response, fixed effects, offset and group terms."""
    if isinstance(formula, str):
        check_size(formula)
    if not isinstance(formula, str) or formula.count("~") != 1:
        raise InvalidValueError(f"a formula is a text such as 'y ~ x + (1 | group)' with one ~, got {formula!r}.")
    left, right = (side.strip() for side in formula.split("~"))
    response, trials = _response(left, formula)
    fixed, groups, offset = [], list[GroupTerm](), None
    for sign, text in _terms(right, formula):
        bare = text.strip()
        inside = bare[1:-1] if bare.startswith("(") and _closes_at_end(bare) else None
        if inside is not None and "|" in inside:
            if sign == "-":
                raise InvalidValueError(f"a group term cannot be subtracted: {bare!r} in {formula!r}.")
            groups += _group_terms(inside, formula)
        elif bare.startswith("offset(") and bare.endswith(")"):
            if offset is not None or sign == "-":
                raise InvalidValueError(f"a formula has at most one offset, and it is added: {formula!r}.")
            offset = bare[len("offset(") : -1].strip()
        else:
            fixed.append(f"{sign} {bare}")
    joined = " ".join(fixed).removeprefix("+ ")
    return Parsed(response, trials, joined or "1", offset, tuple(groups))


def _response(left: str, formula: str) -> tuple[str, str | None]:
    name, _, rest = left.partition("(")
    if name.strip() in _PROPORTION and rest.endswith(")"):
        parts = [part.strip() for part in rest[:-1].split(",")]
        if len(parts) == 2 and all(part.isidentifier() for part in parts):
            return parts[0], parts[1]
    if not left.isidentifier():
        raise InvalidValueError(
            f"the left side of {formula!r} must be the name of a column, or proportion(successes, trials); compute "
            "other responses as a column first."
        )
    return left, None


def _terms(text: str, formula: str) -> list[tuple[str, str]]:
    """The terms at the top level, with their signs."""
    found, depth, sign, begin = list[tuple[str, str]](), 0, "+", 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if depth < 0:
            break
        if letter in "+-" and depth == 0:
            if text[begin:place].strip():
                found.append((sign, text[begin:place]))
            sign, begin = letter, place + 1
    if depth != 0 or not text[begin:].strip():
        raise InvalidValueError(f"the formula {formula!r} is not complete: check its brackets and signs.")
    return [*found, (sign, text[begin:])]


def _closes_at_end(text: str) -> bool:
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place == len(text) - 1
    return False


def _group_terms(inside: str, formula: str) -> list[GroupTerm]:
    effects, bar, factor = inside.partition("||") if "||" in inside else inside.partition("|")
    levels = [part.strip() for part in factor.split("/")]
    names = [name.strip() for part in levels for name in part.split(":")]
    if not effects.strip() or not all(name.isidentifier() for name in names):
        raise InvalidValueError(
            f"the group term ({inside}) of {formula!r} must have the form (effects | column), (effects | a:b) or "
            "(effects | a/b)."
        )
    nested = [":".join(levels[: place + 1]) for place in range(len(levels))]
    return [GroupTerm(effects.strip(), ":".join(n.strip() for n in one.split(":")), bar == "|") for one in nested]


# -- columns -----------------------------------------------------------------------------------------------------------


class Design:
    """The columns of a formula of fixed effects: fitted to a table, then applied to others.

    Attributes
    ----------
    formula, names
        The formula, and the names of its columns.
    variables
        Columns of the table that it uses.

    An offset belongs to it, because a transform in one, such as `center(x)`, has the numbers of the fit as well.
    """

    def __init__(
        self,
        formula: str,
        frame: Any,
        spec: Any = None,
        sample: Mapping[str, list[Any]] | None = None,
        offset: str | Design | None = None,
    ):
        made = _made_terms(formula)
        self.formula = formula
        self.variables = checked_names(made, formula)
        labels, numbers = _uses(made)
        self._levels = labels - numbers
        self.categories = [name for name in self.variables if name in labels or not _is_number(frame[name])]
        self._sample = sample or {}
        if spec is None:
            check_columns(made, {name: frame[name] for name in self.categories}, len(frame), formula)
            table = self._made(made, frame)
            spec = table.model_spec
            sample = _sample(frame, self.variables, self.categories)
        self._spec, self._sample = spec, sample or {}
        self.names = list(spec.column_names)
        if isinstance(offset, str):
            if offset.isidentifier():
                column(frame, offset)
            text, offset = offset, Design(f"0 + {offset}", frame)
            if len(offset.names) != 1:
                raise InvalidValueError(f"offset({text}) must be one number per row, not several columns.")
        self._offset = offset
        if offset is not None:
            self.variables = list(dict.fromkeys([*self.variables, *offset.variables]))

    def _in_double(self, frame: Any) -> Any:
        """The columns that the formula uses, its numbers in double precision: uint8 would make 255 of 0 - 1.

        Whole numbers that are levels alone stay so, and with them the names `C(day)[T.3]`.
        """
        numbers = [name for name in self.variables if _is_number(frame[name])]
        wide = {name: np.float64 for name in numbers if name not in self._levels}
        return frame[self.variables].astype(wide)

    def _made(self, what: Any, frame: Any) -> Any:
        frame = self._in_double(frame)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                return what.get_model_matrix(frame, na_action="ignore", output="pandas")
        except Exception as error:
            raise InvalidValueError(
                f"the formula {self.formula!r} cannot be computed from the table: {self._reason(error, frame)}"
            ) from error

    def _reason(self, error: Exception, frame: Any) -> str:
        said = _first_line(error)
        if "categories outside" in said and not self._sample:
            return "`levels` of a C(...) lacks a level that the column has: list all of them."
        if "categories outside" in said:
            for name in self.categories:
                known = self._sample[name]
                unseen = [level for level in dict.fromkeys(frame[name].tolist()) if level not in known]
                if unseen:
                    return (
                        f"column `{name}` has {unseen[0]!r} in row {frame[name].tolist().index(unseen[0])}, which the "
                        f"fit did not have: its levels are {', '.join(sorted(set(map(repr, known)))[:20])}."
                    )
        if "extend beyond" in said:
            return (
                "a spline has values outside the range of the fit; write extrapolation='extend' or "
                "extrapolation='clip' in it, such as bs(x, df=5, extrapolation='extend'), to allow them."
            )
        return said

    def matrix(self, frame: Any) -> np.ndarray:
        """The columns (rows, p) of a table, in double precision."""
        found = np.asarray(self._made(self._spec, frame), np.float64)
        if not np.all(np.isfinite(found)):
            column = int(np.argmax(~np.isfinite(found).all(axis=0)))
            raise InvalidValueError(f"column `{self.names[column]}` of the formula {self.formula!r} is not finite.")
        return found.reshape(len(frame), len(self.names))

    def offset(self, frame: Any) -> np.ndarray | None:
        """What the formula adds to the linear predictor: a column, or a function of columns such as `log(time)`."""
        return None if self._offset is None else self._offset.matrix(frame)[:, 0]

    def written(self) -> dict[str, Any]:
        """What `read` needs, as JSON."""
        state = {name: _plain(values) for name, values in self._spec.transform_state.items()}
        offset = None if self._offset is None else self._offset.written()
        return {"formula": self.formula, "sample": self._sample, "state": state, "offset": offset}

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> Design:
        """The design that `written` described: rebuilt from a few rows, with the numbers of the fit."""
        pandas = require("pandas", "a formula")
        sample = {name: list(values) for name, values in written["sample"].items()}
        rows = pandas.DataFrame(sample)
        state = {name: _back(values) for name, values in written["state"].items()}
        spec = cls(written["formula"], rows)._spec.update(transform_state=state)
        offset = None if written["offset"] is None else cls.read(written["offset"])
        return cls(written["formula"], rows, spec, sample, offset)


def _made_terms(formula: str) -> Any:
    """The terms of a formula of fixed effects, if they are few enough and have only what is supported."""
    formulaic = require("formulaic", "a formula")
    check_size(formula)
    try:
        return formulaic.Formula(formula)
    except Exception as error:
        raise InvalidValueError(f"the formula {formula!r} cannot be read: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def checked_names(formula: Any, text: str) -> list[str]:
    """The columns that a formula uses; anything but columns, numbers and known functions raises an error."""
    names = list[str]()
    for term in formula:
        for factor in term.factors:
            expression = str(factor.expr)
            if factor.eval_method.value == "literal":
                continue
            try:
                tree = ast.parse(expression, mode="eval")
            except SyntaxError as error:
                if factor.eval_method.value == "lookup":
                    names.append(expression)
                    continue
                raise InvalidValueError(f"{expression!r} in the formula {text!r} cannot be read.") from error
            check_numbers(tree, expression, text)
            called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
            for node in ast.walk(tree):
                name = node.id if isinstance(node, ast.Name) else None
                own = id(node) in called
                if not isinstance(node, _PARTS) or (own and name not in FUNCTIONS):
                    raise InvalidValueError(
                        f"{expression!r} in the formula {text!r} is not supported: columns, numbers and the functions "
                        f"{', '.join(sorted(FUNCTIONS))} are. Compute anything else as a column first."
                    )
                if name is not None and not own:
                    names.append(name)
    return list(dict.fromkeys(names))


def _uses(formula: Any) -> tuple[set[str], set[str]]:
    """The names in `C(...)`, and those elsewhere."""
    labels, numbers = set[str](), set[str]()
    for factor in {factor for term in formula for factor in term.factors}:
        if factor.eval_method.value == "lookup":
            numbers.add(str(factor.expr))
        elif factor.eval_method.value == "python":
            _sort_names(ast.parse(str(factor.expr), mode="eval"), labels, numbers)
    return labels, numbers


def _sort_names(tree: ast.AST, labels: set[str], numbers: set[str]) -> None:
    call = tree.func if isinstance(tree, ast.Call) else None
    for part in ast.iter_child_nodes(tree):
        if isinstance(call, ast.Name) and call.id == "C":
            labels |= {node.id for node in ast.walk(part) if isinstance(node, ast.Name) and node is not call}
        elif isinstance(part, ast.Name):
            numbers |= {part.id} - ({call.id} if part is call else set())
        else:
            _sort_names(part, labels, numbers)


def _sample(frame: Any, names: Sequence[str], categories: Sequence[str]) -> dict[str, list[Any]]:
    """A few rows with every level of every column of categories."""
    rows = list(range(min(20, len(frame))))
    for name in categories:
        rows += np.unique(np.asarray(frame[name]).astype(str), return_index=True)[1].tolist()
    few = frame.iloc[sorted(set(rows))]
    return {name: [_scalar(value) for value in few[name].tolist()] for name in names}


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _is_number(column: Any) -> bool:
    return column.dtype.kind in "fiu"


def _plain(value: Any) -> Any:
    """State of a transform as JSON: numbers, lists, dicts."""
    if isinstance(value, Mapping):
        return {"dict": [[_plain(key), _plain(one)] for key, one in value.items()]}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, (list, tuple)):
        return {"list": [_plain(one) for one in value]}
    value = _scalar(value)
    json.dumps(value)
    return value


def _back(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "dict" in value:
        return {_back(key): _back(one) for key, one in value["dict"]}
    return np.asarray(value["array"]) if "array" in value else [_back(one) for one in value["list"]]


# -- tables ------------------------------------------------------------------------------------------------------------


def used_columns(parsed: Parsed, weights: str | None = None, response: bool = True) -> list[str]:
    """All columns of the table that a formula uses, with the response and the weights or without."""
    names = [parsed.response, parsed.trials] if response else []
    names += [weights if response else None]
    names += [name for term in parsed.groups for name in term.factor.split(":")]
    offset = [] if parsed.offset is None else [f"0 + {parsed.offset}"]
    for text in (*offset, parsed.fixed, *(term.effects for term in parsed.groups)):
        names += checked_names(_made_terms(text), text)
    return list(dict.fromkeys(name for name in names if name is not None))


def as_frame(table: Any, names: Sequence[str], who: str, keep: Sequence[str] = ()) -> Any:
    """These columns of a table of pandas, polars or Arrow, a dict of columns, a file or a folder, as a pandas frame.

    Columns of True and False become numbers, except those to `keep`.
    """
    pandas = require("pandas", f"{who} with a formula")
    if isinstance(table, (str, os.PathLike)):
        table = read_table(table, names, folders=True)
    if type(table).__name__ == "LazyFrame":  # of polars
        raise InvalidTypeError(f"{who} takes a table in memory, got a {type(table).__name__}: pass its .collect().")
    columns = named_columns(table)
    columns = table if columns is None else columns
    if not isinstance(columns, Mapping):
        raise InvalidTypeError(
            f"{who} takes a table with named columns: a data frame of pandas, polars or Arrow, a dict of columns, or "
            f"the path of a file or folder; got {type(table).__name__}."
        )
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise InvalidValueError(
            f"the table of {who} has no column {unknown[0]!r}; it has {', '.join(map(str, list(columns)[:20]))}."
        )
    kept = {}
    for name in names:
        array = as_numpy(columns[name], f"column `{name}`")
        # as databases have them; gaps may be None
        decimals = array.dtype == object and all(value is None or isinstance(value, Decimal) for value in array)
        if array.ndim != 1:
            raise InvalidTypeError(f"column `{name}` has shape {array.shape}; one value per row is required.")
        if (array.dtype.kind == "b" and name not in keep) or decimals:
            array = array.astype(np.float64)
        kept[name] = array
    lengths = {name: len(array) for name, array in kept.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidValueError(f"the columns have different numbers of rows: {lengths}.")
    return pandas.DataFrame(kept)


def missing_rows(frame: Any) -> dict[str, np.ndarray]:
    """Columns with missing or infinite values, and where."""
    found = {}
    for name in frame.columns:
        values = frame[name].to_numpy()
        if values.dtype.kind == "f":
            bad = ~np.isfinite(values)
        elif values.dtype == object:
            bad = np.fromiter((missing(value) for value in values), bool, len(values))
        else:
            bad = np.zeros(len(values), bool) if values.dtype.kind in "iubUS" else np.asarray(frame[name].isna())
        if bad.any():
            found[str(name)] = bad
    return found


def refuse_missing(table: Any) -> None:
    """Raise an error for the first column with missing values."""
    for name, where in missing_rows(table).items():
        raise InvalidValueError(
            f"column `{name}` has {int(where.sum())} missing or infinite values, the first in row "
            f"{int(np.argmax(where))}: fill them, or drop these rows first."
        )


def column(frame: Any, name: str) -> np.ndarray:
    """A column of numbers, in double precision."""
    values = frame[name].to_numpy()
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(
            f"column `{name}` must have numbers, got {values.dtype} such as {values[0]!r}."
        ) from error


def checked_weights(weights: np.ndarray, name: str) -> np.ndarray:
    """Weights of rows: at least 0, not all 0."""
    if np.any(weights < 0) or not weights.any():
        raise InvalidValueError(f"the weights `{name}` must be at least 0, and not all 0.")
    return weights
