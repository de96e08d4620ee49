"""Looking before leaping: the starting parameters, and the first density, are checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco.errors import BadStartError, InvalidTypeError, InvalidValueError
from scirocco.types import Array, Params, PyTree

if TYPE_CHECKING:
    from scirocco.run.setup import Problem


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


def check_first(problem: Problem, params: Params, density: Array, gradient: PyTree) -> None:
    """The first log density and gradient must be finite; looks closer, and says what is wrong, when they are not."""
    names, leaves = _tree.leaf_names(gradient), jax.tree.leaves(gradient)
    unhappy = [name for name, leaf in zip(names, leaves, strict=True) if not np.all(np.isfinite(leaf))]
    if not unhappy and np.all(np.isfinite(density)):
        return
    problem.model.explain_bad_start(problem.model.unconstrain(check_params(params)), problem.table, unhappy)
    raise BadStartError(
        "the log density is not finite at the starting point for some rows. Start elsewhere, or look for rows that the "
        "likelihood has no value for."
    )
