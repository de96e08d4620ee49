"""Limits of formulas, checked before anything is computed: a saved model has a formula, and may be a stranger's.

A short formula can stand for a long computation: `x**99999999`, `I(9**9**9)` and `(x + z)**30` would run for days.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from scirocco.errors import InvalidValueError

MOST_CHARACTERS = 10_000
"""The length of a formula; the names of its columns are part of it."""
_MOST_TERMS = 10_000
"""Products of columns that a formula stands for, counted before equal ones are dropped."""
_MOST_POWER = 100
"""The largest number as an exponent in `I(x**2)`."""
_MOST_KNOTS, _MOST_DEGREE = 1000, 20
"""Numbers of columns and degrees of splines and polynomials."""
_MOST_NUMBERS = 2_000_000_000
"""Largest number of values in the columns of a formula: 16 GB."""
_OPERATORS = ((r"\^", "**"), (r"%in%", "/"), (r":", "@"), (r"`[^`]*`", "quoted"), (r"\|\|?", "+"))
"""Signs of formulas that Python does not have, and what stands for them while terms are counted."""


def check_size(formula: str) -> None:
    """Raise an error for a formula that is too long, or stands for too many terms."""
    if len(formula) > MOST_CHARACTERS:
        raise InvalidValueError(
            f"a formula has at most {MOST_CHARACTERS:,} characters, got {len(formula):,}: {formula[:60]!r}... Rename "
            "columns with long names, or pass a table of features without a formula."
        )
    text = formula.partition("~")[2] or formula
    for sign, python in _OPERATORS[::-1]:
        text = re.sub(sign, python, text)
    try:
        number = _terms(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, InvalidValueError):
            raise
        raise InvalidValueError(
            f"the formula {formula[:200]!r} cannot be read: check its brackets and signs."
        ) from error
    if number > _MOST_TERMS:
        raise InvalidValueError(
            f"the formula {formula[:200]!r} stands for {number:,} products of columns; at most {_MOST_TERMS:,} are "
            "possible. Use lower powers, or fewer columns in a product."
        )


def _terms(node: ast.expr) -> int:
    """The number of products that an expression of a formula stands for."""
    if isinstance(node, ast.UnaryOp):
        return _terms(node.operand)
    if not isinstance(node, ast.BinOp):
        return 1
    left = _terms(node.left)
    if isinstance(node.op, ast.Pow):
        return _power(left, node.right)
    right = _terms(node.right)
    if isinstance(node.op, ast.MatMult):
        return _bounded(left * right)
    if isinstance(node.op, (ast.Mult, ast.Div)):
        return _bounded(left + right + left * right)
    return _bounded(left + right)


def _power(number: int, exponent: ast.expr) -> int:
    power = exponent.value if isinstance(exponent, ast.Constant) else None
    if type(power) is not int or not 1 <= power <= _MOST_TERMS:
        raise InvalidValueError(
            f"a power of terms is a whole number from 1 on, got {ast.unparse(exponent)[:60]}; the power of a column is "
            "I(x**2)."
        )
    return _bounded(number**power) if number > 1 and power < 20 else (power if number == 1 else _MOST_TERMS + 1)


def _bounded(number: int) -> int:
    return min(number, 10**12)


def check_numbers(tree: ast.AST, expression: str, formula: str) -> None:
    """Raise an error for powers and arguments of functions that would take for ever, or all memory."""
    for node in ast.walk(tree):
        wrong = None
        if isinstance(node, ast.BinOp):
            wrong = _wrong_operands(node)
        elif isinstance(node, ast.Call):
            wrong = _wrong_arguments(node)
        if wrong is not None:
            raise InvalidValueError(f"{expression!r} in the formula {formula[:200]!r}: {wrong}.")


def _wrong_operands(node: ast.BinOp) -> str | None:
    for side in (node.left, node.right):
        if isinstance(side, (ast.List, ast.Tuple)) or (
            isinstance(side, ast.Constant) and not isinstance(side.value, (int, float))
        ):
            return "only columns and numbers are added or multiplied"
    if isinstance(node.op, ast.Pow):
        right = node.right.operand if isinstance(node.right, ast.UnaryOp) else node.right
        small = isinstance(right, ast.Constant) and abs(right.value) <= _MOST_POWER  # type: ignore[arg-type]
        plain = [part for part in (node.left, right) if not any(isinstance(n, ast.Name) for n in ast.walk(part))]
        if not small and (right in plain or len(plain) == 2):
            return f"an exponent is a number up to {_MOST_POWER}, or a column"
        if node.left in plain and not isinstance(node.left, (ast.Constant, ast.UnaryOp)):
            return "the base of a power is a number or has a column"
    return None


def _wrong_arguments(node: ast.Call) -> str | None:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    given = [(None, part) for part in node.args[1:]] + [(part.arg, part.value) for part in node.keywords]
    for key, value in given:
        if any(isinstance(part, ast.BinOp) for part in ast.walk(value)):
            return f"write the arguments of {name} after the first as plain numbers"
        most = _MOST_DEGREE if key == "degree" or (key is None and name == "poly") else _MOST_KNOTS
        for part in ast.walk(value):
            whole = isinstance(part, ast.Constant) and type(part.value) is int
            if whole and key in (None, "df", "degree") and part.value > most:  # type: ignore[attr-defined]
                return f"{key or 'the argument'} of {name} is at most {most}, got {part.value}"  # type: ignore[attr-defined]
    return None


def check_columns(terms: Any, categories: Mapping[str, Any], num_rows: int, formula: str) -> None:
    """Raise an error if the columns of a formula, with one for each level, do not fit into memory."""
    levels = {name: len(set(column.tolist())) for name, column in categories.items()}
    number = 0
    for term in terms:
        names = {name for factor in term.factors for name in re.findall(r"\w+", str(factor.expr))}
        width = 1
        for name in names & levels.keys():
            width *= levels[name]
        number += width
    if number * num_rows > _MOST_NUMBERS:
        largest = max(levels, key=lambda name: levels[name])
        raise InvalidValueError(
            f"the formula {formula[:200]!r} has {number:,} columns for {num_rows:,} rows, more than memory holds: "
            f"column `{largest}` has {levels[largest]:,} levels. Use sc.models.GLMM with (1 | {largest})."
        )
