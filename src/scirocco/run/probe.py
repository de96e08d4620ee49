"""Looking before leaping: parameters, shapes and the first density are checked before a sampler is compiled."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco.data import Table
from scirocco.errors import BadStartError, InvalidTypeError, InvalidValueError
from scirocco.estimators import Batching
from scirocco.model import BlockModel, CountModel, Model, Posterior, Statistics
from scirocco.types import Array, Params, PyTree


def check_params(params: Params) -> Params:
    """The starting parameters as floating-point JAX arrays."""
    leaves, treedef = jax.tree.flatten(params)
    if not leaves:
        raise InvalidValueError("`params` holds no arrays: pass the starting value of every parameter.")
    named = zip(_tree.leaf_names(params), leaves, strict=True)
    return jax.tree.unflatten(treedef, [_check_leaf(name, leaf) for name, leaf in named])


def _check_leaf(name: str, leaf: Any) -> Array:
    if isinstance(leaf, int) and not isinstance(leaf, bool):
        _checks.warn(f"parameter `{name}` starts at the integer {leaf}: taken as {float(leaf)}.")
        leaf = float(leaf)
    try:
        host = np.asarray(leaf)
    except Exception as error:
        raise InvalidTypeError(f"parameter `{name}` cannot be read as an array: {error}") from error
    if host.dtype.kind in "iub":
        raise InvalidTypeError(
            f"parameter `{name}` has the integer dtype {host.dtype}. Gradient samplers need continuous parameters: "
            "start from floats (e.g. .astype(float)), and sum discrete ones out of the likelihood."
        )
    if host.dtype.kind != "f" and host.dtype.name != "bfloat16":
        raise InvalidTypeError(
            f"parameter `{name}` has dtype {host.dtype}; it must be a floating-point array."
        )
    if not np.all(np.isfinite(host)):
        count = int(np.sum(~np.isfinite(host)))
        raise InvalidValueError(
            f"the starting value of parameter `{name}` has {count} NaN or infinite entr{'y' if count == 1 else 'ies'}: "
            "start from finite numbers."
        )
    return jnp.asarray(leaf, jax.dtypes.canonicalize_dtype(host.dtype))


def check_shapes(model: Posterior, params: Params, source: Any, batching: Batching) -> None:
    """Trace the user's functions on shapes alone and refuse what has the wrong form."""
    if isinstance(model, BlockModel):
        _check_blocks(model, params, source, batching)
    elif isinstance(model, CountModel):
        _check_counts(model, params, params, source, batching)
    elif isinstance(model, Model):
        _check_densities(model, params, source, batching)


def _check_blocks(model: BlockModel, params: Params, source: Any, batching: Batching) -> None:
    """The joint density, the counts of each block that they drive, and that statistics can be traced."""
    _check_densities(model.model, params, source, batching)
    for name, block in model.blocks.items():
        if isinstance(block, CountModel):
            _check_counts(block, params, params[name], source, batching)
        elif isinstance(block, Statistics):
            key = (jax.eval_shape(jax.random.key, 0),) if block.takes_key else ()
            _trace(block._jitted, f"statistics of {name}", params, source.row_spec, *key)


def _check_counts(
    model: CountModel, given_params: Params, params: Params, source: Any, batching: Batching
) -> None:
    """Counts must have the structure and shapes of the parameters; the function may be given more of them."""
    spec = source.row_spec
    if model.form == "total":
        spec = jax.tree.map(lambda s: jax.ShapeDtypeStruct((batching.size, *s.shape), s.dtype), spec)
    key = (jax.eval_shape(jax.random.key, 0),) if model.takes_key else ()
    out = _trace(model._jitted, "counts", given_params, spec, *key)
    given = "one datum" if model.form == "datum" else "some rows"
    wanted = (
        f"counts must return an array like the parameters ({describe(params)}) for {given} ({describe(spec)})"
    )
    if not _tree.same_structure(out, params):
        raise InvalidValueError(f"{wanted}; got the structure {jax.tree.structure(out)}.")
    pairs = zip(_tree.leaf_names(params), jax.tree.leaves(out), jax.tree.leaves(params), strict=True)
    for name, leaf, like in pairs:
        if tuple(leaf.shape) != tuple(like.shape):
            batched = tuple(leaf.shape) == (batching.size, *like.shape)
            hint = " It is called with one row, not a batch." if model.form == "datum" else ""
            hint = " Sum over the rows." if batched and model.form == "total" else hint
            of = f" for `{name}`" if len(jax.tree.leaves(params)) > 1 else ""
            raise InvalidValueError(f"{wanted}; got shape {tuple(leaf.shape)}{of}.{hint}")


def _check_densities(model: Model, params: Params, source: Any, batching: Batching) -> None:
    """A scalar for one datum, or one value a row."""
    if model.log_prior is not None:
        out = _trace(model._jitted_prior, "log_prior", params)
        _expect(out, (), "log_prior(params) must return a scalar")
    spec = source.row_spec
    if model.form == "datum":
        out = _trace(model._jitted, "log_likelihood", params, spec)
        hint = "It is called with one row, not a batch."
        if _single_columns(source):
            hint += (
                f" Data {_single_columns(source)} have shape (N, 1), so one row has shape (1,): drop that axis, "
                "as in y[:, 0]."
            )
        elif _shape(out) and _shape(out)[0] > 1:
            hint += " For a function of a whole batch that returns one value a row use Model(..., vectorized=True)."
        _expect(out, (), f"log_likelihood must return a scalar for one datum ({describe(spec)})", hint)
        return
    rows = jax.tree.map(lambda s: jax.ShapeDtypeStruct((batching.size, *s.shape), s.dtype), spec)
    out = _trace(model._jitted, "log_likelihood", params, rows)
    if model.form == "total":
        if int(np.prod(_shape(out))) != 1:
            raise InvalidValueError(
                "the log likelihood must return one number, the sum over the rows it is given; "
                f"got shape {_shape(out)} for {batching.size} rows. Sum it."
            )
        return
    _expect(
        out,
        (batching.size,),
        f"with vectorized=True, log_likelihood must return one value a row, shape ({batching.size},) for "
        f"{batching.size} rows",
        "Drop the other axes."
        if _shape(out)
        else "A sum or mean over the batch hides the rows: return them unsummed.",
    )
    _compare_forms(model, params, source, batching.size)


def _compare_forms(model: Model, params: Params, source: Any, size: int) -> None:
    """A vectorised likelihood must give a row the same value alone and in company (on two batches)."""
    position = model.unconstrain(params)
    for begin in (0, max(0, source.num_rows - size)):
        rows = jax.tree.map(jnp.asarray, source.read(begin, begin + size))
        together, alone = _both_forms(model, position, rows)
        if not np.allclose(together, alone, rtol=1e-3, atol=1e-4, equal_nan=True):
            row = int(np.argmax(np.abs(np.asarray(together) - np.asarray(alone))))
            raise InvalidValueError(
                "log_likelihood (vectorized=True) gives a row another value in a batch than alone: row "
                f"{begin + row} has {float(together[row]):.6g} in a batch of {size} and {float(alone[row]):.6g} by "
                "itself. It must treat the rows independently (no mean or sum over the batch inside)."
            )


@partial(jax.jit, static_argnums=0)
def _both_forms(model: Model, position: Params, rows: PyTree) -> tuple[Array, Array]:
    alone = jax.vmap(model.log_likelihood_of_one, (None, 0))(position, rows)
    return model.log_likelihoods(position, rows), alone


def _trace(function: Any, name: str, params: Params, *arguments: Any) -> Any:
    try:
        return jax.eval_shape(function, params, *arguments)
    except Exception as error:
        data = f" and data {describe(arguments[0])}" if arguments else ""
        said = str(error).partition("\n")[0].rstrip(".")
        raise InvalidValueError(
            f"{name} failed when it was tried with parameters {describe(params)}{data}: {type(error).__name__}: {said}."
            + _hint(error, params)
        ) from error


def _hint(error: Exception, params: Params) -> str:
    """The two slips that newcomers to JAX make most."""
    if isinstance(error, (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)):
        return (
            " JAX traces the function before it has numbers: use jnp for np, and jnp.where for if, on what depends "
            "on the parameters or the data."
        )
    if any(isinstance(node, list) for node in jax.tree.leaves(params, is_leaf=lambda x: isinstance(x, list))):
        return " A Python list counts as separate parameters: pass np.array([...]) for one array."
    return ""


def _expect(out: Any, shape: tuple[int, ...], wanted: str, hint: str = "") -> None:
    if not hasattr(out, "shape") or tuple(out.shape) != shape:
        got = f"shape {_shape(out)}" if hasattr(out, "shape") else f"a {type(out).__name__}"
        raise InvalidValueError(f"{wanted}; got {got}. {hint}".rstrip())
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise InvalidTypeError(
            f"{wanted.partition(' must')[0]} must return floating-point numbers, got {out.dtype}."
        )


def _shape(out: Any) -> tuple[int, ...]:
    return tuple(getattr(out, "shape", ()))


def _single_columns(source: Any) -> str:
    names = zip(_tree.leaf_names(source.row_spec), jax.tree.leaves(source.row_spec), strict=True)
    return ", ".join(f"`{name}`" for name, leaf in names if leaf.shape == (1,))


def describe(tree: PyTree) -> str:
    """Names and shapes, for messages: `beta (50,), bias ()`."""
    leaves = jax.tree.leaves(tree)
    if len(leaves) == 1 and leaves[0] is tree:
        return f"of shape {tuple(leaves[0].shape)}"
    named = zip(_tree.leaf_names(tree), leaves, strict=True)
    return "{" + ", ".join(f"{name} {tuple(leaf.shape)}" for name, leaf in named) + "}"


def check_first(problem: Any, params: Params, density: Array, gradient: PyTree) -> None:
    """The first log density and gradient must be finite; looks closer, and says what is wrong, when they are not."""
    names, leaves = _tree.leaf_names(gradient), jax.tree.leaves(gradient)
    unhappy = [name for name, leaf in zip(names, leaves, strict=True) if not np.all(np.isfinite(leaf))]
    if not unhappy and np.all(np.isfinite(density)):
        return
    if isinstance(problem.model, BlockModel):
        explain_bad_start(
            problem.model.model,
            problem.model.mixed(problem.model.unconstrain(check_params(params))),
            problem.table,
        )
    if isinstance(problem.model, (CountModel, BlockModel)):
        raise BadStartError(
            "the counts are negative, NaN or infinite at the starting point for some rows. `counts` must return "
            "numbers >= 0: is there a division by a component of omega that is 0?"
        )
    position = problem.model.unconstrain(check_params(params))
    explain_bad_start(problem.model, position, problem.table)
    raise BadStartError(
        f"the gradient of the log density with respect to `{', '.join(unhappy)}` is not finite at the starting point "
        "although the density is (a root or an absolute value at 0 does that). Start elsewhere or rewrite it smoothly."
    )


def explain_bad_start(model: Model, position: Params, table: Table) -> None:
    """Raise with what is not finite at the start, prior or likelihood; silent when both are finite."""
    size = min(table.num_rows, 10_000)
    prior, likelihood = _first_density(model, position, table.spread_rows(size))
    if not np.isfinite(prior):
        what = (
            "outside the support of the prior" if prior == -np.inf else "where the prior cannot be evaluated"
        )
        raise BadStartError(
            f"the log prior is {float(prior)} at the starting point: it lies {what}. Start elsewhere, or constrain the "
            "parameter, e.g. Model(..., transforms={'scale': sc.transforms.positive})."
        )
    bad = np.flatnonzero(~np.isfinite(np.atleast_1d(likelihood)))
    if len(bad):
        raise BadStartError(
            f"the log likelihood is {np.atleast_1d(likelihood)[bad[0]]} at the starting point for {len(bad)} of the "
            f"{size} rows looked at. Is there a log or root of a negative number? Start elsewhere, or "
            "constrain the parameter, e.g. Model(..., transforms={'scale': sc.transforms.positive})."
        )


@partial(jax.jit, static_argnums=0)
def _first_density(model: Model, position: Params, rows: PyTree) -> tuple[Array, Array]:
    values = (
        model.log_likelihoods(position, rows)
        if model.form != "total"
        else model.log_likelihood_sum(position, rows)
    )
    return model.log_prior_density(position), values
