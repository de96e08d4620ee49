"""Checks of what users write for a model, before compilation: functions on shapes alone, numbers, simplexes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, Literal

from scirocco import _tree
from scirocco._programs import setup_program
from scirocco.errors import BadStartError, InvalidTypeError, InvalidValueError
from scirocco.model.base import ReadableRows, SomeRows
from scirocco.types import Array, Params, PyTree

if TYPE_CHECKING:
    from scirocco.model.density import Model

_OFF_SIMPLEX = 1e-3  # error of a sum of numbers that were rounded to three digits


def fits(shape: tuple[int, ...], into: tuple[int, ...]) -> bool:
    """Whether an array of this shape can be broadcast to the other."""
    tail = into[len(into) - len(shape) :]
    return len(shape) <= len(into) and all(a in (1, b) for a, b in zip(shape, tail, strict=True))


def asks_for_key(function: Callable[..., Any], if_unknown: bool = False) -> bool:
    """Whether a user's function takes a key: its third positional argument has no default, or is named `key`.

    `if_unknown` is for a builtin without a signature, and for a function with `*arguments`.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return if_unknown
    placed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(placed) >= 3:
        return placed[2].default is placed[2].empty or placed[2].name == "key"
    return if_unknown and any(p.kind == p.VAR_POSITIONAL for p in parameters)


def value_and_auxiliary(out: Any) -> tuple[Any, PyTree | None]:
    """The result of a log likelihood that takes a key: a value, or a pair of a value and an auxiliary draw."""
    return out if isinstance(out, tuple) and len(out) == 2 else (out, None)


def spread(values: Any, like: Any, name: str) -> list[Any]:
    """One value for each leaf of the parameters: from a number, an array, a list of numbers, or a tree of those."""
    if isinstance(values, (list, tuple)) and not isinstance(like, (list, tuple)):
        values = np.asarray(values, np.float64)
    hint = " Give one value, or one for every parameter."
    return jax.tree.leaves(_tree.broadcast_prefix(values, like, name, hint=hint))


def check_fits(values: Any, like: Any, name: str) -> None:
    """Raise an error if an array cannot be broadcast to the shape of its parameter."""
    triples = zip(_tree.leaf_names(like), jax.tree.leaves(like), spread(values, like, name), strict=True)
    for leaf_name, leaf, value in triples:
        if not fits(np.shape(value), leaf.shape):
            raise InvalidValueError(
                f"`{name}` has shape {np.shape(value)}, which does not fit `{leaf_name}` of shape {leaf.shape}."
            )


def positive_tree(values: Any, name: str) -> Any:
    """Numbers and arrays > 0, as Python floats and NumPy arrays."""
    leaves, treedef = jax.tree.flatten(values)
    if not leaves:
        raise InvalidValueError(f"`{name}` of CountModel contains no numbers.")
    out = []
    for leaf in leaves:
        try:
            array = np.asarray(leaf, np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidTypeError(f"`{name}` of CountModel must contain numbers > 0, got {leaf!r}.") from error
        if array.size == 0 or not np.all(np.isfinite(array)) or np.any(array <= 0):
            worst = leaf if array.ndim == 0 else f"{np.min(array) if array.size else 'an empty array'} among them"
            raise InvalidValueError(f"`{name}` of CountModel must be finite and > 0, got {worst}.")
        out.append(float(array) if array.ndim == 0 else array)
    return jax.tree.unflatten(treedef, out)


def check_simplex(name: str, host: np.ndarray) -> None:
    """Raise an error if a starting value is not on the simplex."""
    if host.ndim == 0 or host.shape[-1] < 2:
        raise InvalidValueError(
            f"`{name}` has shape {host.shape}: a point on the simplex has at least two components along its last axis."
        )
    if np.any(host < 0):
        raise InvalidValueError(
            f"the starting value of `{name}` is off the simplex: its minimum is {host.min():g}; it must be >= 0."
        )
    sums = host.sum(axis=-1)
    worst = sums.ravel()[np.argmax(np.abs(sums - 1.0))]
    if abs(worst - 1.0) > _OFF_SIMPLEX:
        raise InvalidValueError(
            f"the starting value of `{name}` is off the simplex: along the last axis it sums to {worst:.6g}, not 1. "
            "Divide by the sum, e.g. np.full(10, 0.1)."
        )


# -- functions on shapes alone --------------------------------------------------------------------------------


def trace(function: Any, name: str, params: Params, *arguments: Any) -> Any:
    """The shapes that a user's function returns; an error in it is raised again with the shapes of its arguments."""
    try:
        return jax.eval_shape(function, params, *arguments)
    except Exception as error:
        data = f" and data {describe(arguments[0])}" if arguments else ""
        said = str(error).partition("\n")[0].rstrip(".")
        raise InvalidValueError(
            f"{name} failed for parameters {describe(params)}{data}: {type(error).__name__}: {said}."
            + hint(error, params)
        ) from error


def hint(error: Exception, params: Params) -> str:
    """Hints for the two most common mistakes of newcomers to JAX."""
    if isinstance(error, (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)):
        return (
            " JAX traces the function without numbers: use jnp for np, and jnp.where for if, on values that depend "
            "on the parameters or the data."
        )
    if any(isinstance(node, list) for node in jax.tree.leaves(params, is_leaf=lambda x: isinstance(x, list))):
        return " A Python list is treated as separate parameters: pass np.array([...]) for one array."
    return ""


def accepts(model: Model, params: Params, rows: PyTree) -> bool:
    """Whether the log likelihood takes parameters and rows of these shapes, and returns what it should."""
    try:
        values = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), _real_type(leaf)), params)
        rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), _real_type(leaf)), rows)
        (length,) = {leaf.shape[0] for leaf in jax.tree.leaves(rows)}
        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), rows)
        key = (jax.eval_shape(jax.random.key, 0),) if model.takes_key else ()
        out = jax.eval_shape(model.log_likelihood, values, one if model.form == "datum" else rows, *key)
    except Exception:  # whatever the user's function raises for arguments that are not its own
        return False
    out = value_and_auxiliary(out)[0] if model.takes_key else out
    return _tree.is_array(out) and out.shape == ((length,) if model.form == "rows" else ())


def _real_type(leaf: Any) -> Any:
    return jax.dtypes.canonicalize_dtype(leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype)


def only_swapped(model: Model, data: PyTree, params: PyTree) -> bool:
    """Whether the log likelihood takes `data` for the parameters and `params` for rows, but not the other way round."""
    return accepts(model, data, params) and not accepts(model, params, data)


def look_swapped(model: Model, data: PyTree, params: PyTree) -> bool:
    """Whether each of the many rows of `params` is like all of `data`, and the log likelihood takes them either way.

    Such a log likelihood sums over an axis that it was not written for: Σ (x - μ)² runs for x (5,) and μ (1000, 5), a
    number and a table, as well as for two vectors.
    """
    try:
        leaves, tables = jax.tree.leaves(data), jax.tree.leaves(params)
    except ValueError:  # keys of a dict that cannot be sorted: the check of `params` says so
        return False
    if _tree.leaf_names(data) != _tree.leaf_names(params) or not all(
        isinstance(leaf, (np.ndarray, jax.Array)) for leaf in (*leaves, *tables)
    ):
        return False
    lengths = {leaf.shape[:1] for leaf in tables}
    if len(lengths) != 1 or any(t.shape[1:] != a.shape or a.ndim == 0 for t, a in zip(tables, leaves, strict=True)):
        return False
    ((rows,),) = lengths
    if rows <= max(leaf.shape[0] for leaf in leaves) or model.form != "datum" or model.takes_key:
        return False
    if not accepts(model, data, params):
        return False
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], _real_type(leaf)), params)
    graph = jax.make_jaxpr(model.log_likelihood)(data, one).jaxpr
    return any(used_inputs(graph, [True] * len(graph.outvars))[len(jax.tree.leaves(data)) :])


def expect(out: Any, shape: tuple[int, ...], wanted: str, hint: str = "") -> None:
    """Raise an error unless this is a floating-point array of this shape."""
    if not _tree.is_array(out) or tuple(out.shape) != shape:
        got = f"shape {shape_of(out)}" if _tree.is_array(out) else f"a {type(out).__name__}"
        raise InvalidValueError(f"{wanted}; got {got}. {hint}".rstrip())
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise InvalidTypeError(f"{wanted.partition(' must')[0]} must return floating-point numbers, got {out.dtype}.")


def shape_of(out: Any) -> tuple[int, ...]:
    """The shape of an array; () for anything else."""
    return tuple(out.shape) if _tree.is_array(out) else ()


def describe(tree: PyTree) -> str:
    """Names and shapes, for messages: `beta (50,), bias ()`."""
    leaves = jax.tree.leaves(tree)
    if len(leaves) == 1 and leaves[0] is tree:
        return f"of shape {tuple(leaves[0].shape)}"
    named = zip(_tree.leaf_names(tree), leaves, strict=True)
    return "{" + ", ".join(f"{name} {tuple(leaf.shape)}" for name, leaf in named) + "}"


# -- log densities --------------------------------------------------------------------------------------------


def check_density(model: Model, params: Params, source: ReadableRows, batch_size: int) -> None:
    """Check that the result is a scalar for one datum, or one value per row."""
    if model.log_prior is not None:
        out = trace(model._jitted_prior, "log_prior", params)
        expect(out, (), "log_prior(params) must return a scalar")
    if not model.facts.has_rows:
        out = trace(model.log_likelihood.log_density, "log_density", params)  # type: ignore[attr-defined]
        expect(out, (), "log_density(params) must return a scalar")
        return
    spec = source.row_spec
    key = (jax.eval_shape(jax.random.key, 0),) if model.takes_key else ()
    if model.form == "datum":
        out = trace(model._jitted, "log_likelihood", params, spec, *key)
        if model.takes_key:
            out, _ = value_and_auxiliary(out)
        hint = "It is called with one row, not a batch."
        if _single_columns(source):
            hint += (
                f" Data {_single_columns(source)} have shape (N, 1), so one row has shape (1,): remove that axis, "
                "as in y[:, 0]."
            )
        elif shape_of(out) and shape_of(out)[0] > 1:
            hint += " For a function of a whole batch that returns one value per row, use Model(..., vectorized=True)."
        expect(out, (), f"log_likelihood must return a scalar for one datum ({describe(spec)})", hint)
        return
    rows = jax.tree.map(lambda s: jax.ShapeDtypeStruct((batch_size, *s.shape), s.dtype), spec)
    out = trace(model._jitted, "log_likelihood", params, rows, *key)
    if isinstance(out, tuple) and model.takes_key:
        raise InvalidValueError(
            "a log_likelihood of several rows returned a tuple, but an auxiliary draw belongs to one row and "
            "its key. To return (value, auxiliary), write log_likelihood(params, datum, key) for one row."
        )
    if model.form == "total":
        if int(np.prod(shape_of(out))) != 1:
            raise InvalidValueError(
                "the log likelihood must return one number, the sum over its rows; "
                f"got shape {shape_of(out)} for {batch_size} rows. Sum over the rows."
            )
        return
    expect(
        out,
        (batch_size,),
        f"with vectorized=True, log_likelihood must return one value per row, shape ({batch_size},) for "
        f"{batch_size} rows",
        "Remove the other axes." if shape_of(out) else "Return the values of the rows, not their sum or mean.",
    )
    if not model.takes_key:
        _compare_forms(model, params, source, batch_size)


def _compare_forms(model: Model, params: Params, source: ReadableRows, size: int) -> None:
    """Check that a vectorised likelihood gives a row the same value alone and in a batch (on two batches)."""
    position = model.unconstrain(params)
    for begin in (0, max(0, source.num_rows - size)):
        rows = jax.tree.map(jnp.asarray, source.read(begin, begin + size))
        together, alone = _both_forms(model, position, rows)
        if not np.allclose(together, alone, rtol=1e-3, atol=1e-4, equal_nan=True):
            row = int(np.argmax(np.abs(np.asarray(together) - np.asarray(alone))))
            raise InvalidValueError(
                "log_likelihood (vectorized=True) gives a row different values in a batch and alone: row "
                f"{begin + row} has {float(together[row]):.6g} in a batch of {size} and {float(alone[row]):.6g} "
                "alone. It must treat the rows independently (no mean or sum over the batch inside)."
            )


def explain_density(model: Model, position: Params, table: SomeRows, unhappy: list[str]) -> None:
    """Name the prior, the likelihood or the gradient as the cause; returns if all are finite as far as is known."""
    size = min(table.num_rows, 10_000)
    prior, likelihood = _first_density(model, position, table.spread_rows(size))
    if not np.isfinite(prior):
        what = "outside the support of the prior" if prior == -np.inf else "where the prior cannot be evaluated"
        raise BadStartError(
            f"the log prior is {float(prior)} at the starting point: it is {what}. Start elsewhere, or constrain "
            "the parameter, e.g. Model(..., transforms={'scale': sc.transforms.positive})."
        )
    bad = np.flatnonzero(~np.isfinite(np.atleast_1d(likelihood)))
    if len(bad):
        what, of = "likelihood", f" for {len(bad)} of the {size} rows checked"
        if not model.facts.has_rows:
            what, of = "density", ""
        raise BadStartError(
            f"the log {what} is {np.atleast_1d(likelihood)[bad[0]]} at the starting point{of}. Is there a log or root "
            "of a negative number, or a matrix that is singular in 32 bits (use a larger jitter, or "
            'precision="float64")? Start elsewhere, or constrain the parameter, e.g. '
            "Model(..., transforms={'scale': sc.transforms.positive})."
        )
    if unhappy:
        raise BadStartError(
            f"the gradient of the log density with respect to `{', '.join(unhappy)}` is not finite at the starting "
            "point although the density is (for example a root or an absolute value at 0, or a matrix that is nearly "
            'singular in 32 bits). Start elsewhere, use a smooth form, or try a larger jitter or precision="float64".'
        )


def left_domain(model: Model, params: Params, draws: Params, table: SomeRows) -> str | None:
    """A sentence if a parameter that was positive has reached 0 or less, where the log density is not a finite number.

    `params`: the user's starting values; `draws`: leaves (chain, draw, ...).
    """
    starts = jax.tree.leaves(params)
    for name, start, leaf in zip(_tree.leaf_names(draws), starts, jax.tree.leaves(draws), strict=True):
        low = leaf.reshape(*leaf.shape[:2], -1).min(axis=2)
        if not leaf.size or not np.all(np.asarray(start) > 0) or not low.min() <= 0:
            continue
        chain, draw = (int(place[0]) for place in np.nonzero(low <= 0))
        there = jax.tree.map(lambda each, at=(chain, draw): np.asarray(each[at]), draws)
        values = _first_density(model, model.unconstrain(there), table.spread_rows(min(table.num_rows, 100)))
        if not all(np.isfinite(value).all() for value in values):
            entry = f"{{'{name}': sc.transforms.positive}}" if isinstance(draws, dict) else "sc.transforms.positive"
            return (
                f"`{name}` is {low[chain, draw]:.3g} at draw {draw} of chain {chain}, where the log density is not "
                "finite, so these draws are not from the posterior. If the parameter must be positive, constrain it: "
                f"sc.Model(..., transforms={entry})."
            )
    return None


@setup_program(1)
def _both_forms(model: Model, position: Params, rows: PyTree) -> tuple[Array, Array]:
    alone = jax.vmap(model.log_likelihood_of_one, (None, 0))(position, rows)
    return model.log_likelihoods(position, rows), alone


@setup_program(1)
def _first_density(model: Model, position: Params, rows: PyTree) -> tuple[Array, Array]:
    values = (
        model.log_likelihoods(position, rows) if model.form != "total" else model.log_likelihood_sum(position, rows)
    )
    return model.log_prior_density(position), values


def _single_columns(source: ReadableRows) -> str:
    names = zip(_tree.leaf_names(source.row_spec), jax.tree.leaves(source.row_spec), strict=True)
    return ", ".join(f"`{name}`" for name, leaf in names if leaf.shape == (1,))


def used_inputs(graph: Jaxpr, wanted: list[bool]) -> list[bool]:
    """For each input of a jaxpr, whether one of the wanted outputs depends on it; looks into jitted functions."""
    pairs = zip(graph.outvars, wanted, strict=True)
    needed = {var for var, want in pairs if want and not isinstance(var, Literal)}
    for equation in reversed(graph.eqns):
        outputs = [var in needed for var in equation.outvars]
        if not any(outputs):
            continue
        inner = equation.params.get("jaxpr")
        if equation.primitive.name in ("pjit", "jit") and inner is not None:
            flags = used_inputs(inner.jaxpr, outputs)
        else:
            flags = [True] * len(equation.invars)
        needed.update(
            var for var, flag in zip(equation.invars, flags, strict=True) if flag and not isinstance(var, Literal)
        )
    return [var in needed for var in graph.invars]
