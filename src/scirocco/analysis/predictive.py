"""How well draws predict rows they have not seen: the log predictive density of a model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco.data import as_source
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.model import Model
from scirocco.run import Run
from scirocco.types import Array, Data, Params, PyTree, Rows

_DRAWS = 64  # at a time, side by side: with 1,024 rows some megabytes for a small model


class LogPredictive(NamedTuple):
    """The log predictive density of the rows, and how sure it is."""

    value: float
    """The mean over the rows."""
    standard_error: float
    """Of the mean, for rows drawn from a larger population; the draws are taken as they are. NaN for a single row."""
    each: np.ndarray[Any, np.dtype[Any]] | None = None
    """One number a row, where asked for."""


def log_predictive(
    model: Model, draws: Run | PyTree, data: Data, *, chunk: int = 1024, each: bool = False
) -> LogPredictive:
    r"""Mean over rows of the log predictive density, log (1/K) Σ_k p(x | θ_k).

    The average is over the probabilities, not over their logarithms: the score of the mixture of all K draws, those of
    all chains together. The larger the better.

    Parameters
    ----------
    model
        Its log likelihood, normalising constants included, is log p(x | θ); the prior plays no part.
    draws
        A run, or its draws: the structure of the parameters, leaves (chain, draw, ...), in the user's units.
    data
        Rows like those of the run, as arrays, a path or a source; best ones that the run has not seen.
    chunk
        Rows at a time. Besides the draws themselves, memory holds chunk × 64 likelihoods and what they are made from.
    each
        Keep the value of every row.

    Returns
    -------
    LogPredictive
        With the fields `value`, `standard_error` and `each`.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np
    >>> import scirocco as sc
    >>> from scirocco.analysis import log_predictive
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2 - 0.5 * jnp.log(2 * jnp.pi))
    >>> draws = np.zeros((1, 4), np.float32)  # one chain of four draws, all 0
    >>> round(log_predictive(model, draws, np.array([0.0, 1.0], np.float32)).value, 4)
    -1.1689
    """
    if not isinstance(model, Model):
        raise InvalidTypeError(f"log_predictive needs a sc.Model with a log likelihood, got {model!r}.")
    size = _checks.positive_int(chunk, "chunk")
    leaves, treedef = _flat_draws(draws)
    direct, source = _in_users_units(model), as_source(data)
    num_rows, num_draws = source.num_rows, len(leaves[0])
    size = min(size, num_rows)
    found = np.full(num_rows, -np.inf)
    for first in range(0, num_rows, size):
        stop = min(first + size, num_rows)
        rows = _padded(source.read(first, stop), size)
        for params, count in _blocks(leaves, treedef):
            part = np.asarray(_log_sum(direct, params, rows, count), np.float64)
            with np.errstate(invalid="ignore"):  # NaN is spoken of below
                # in double precision: many draws add up to a large sum
                found[first:stop] = np.logaddexp(found[first:stop], part[: stop - first])
    found -= math.log(num_draws)
    if np.isnan(found).any():
        row = int(np.flatnonzero(np.isnan(found))[0])
        raise InvalidValueError(
            f"the log likelihood of row {row} is NaN at one draw at least; look at the row, or at draws at the edge of "
            "their domain."
        )
    finite = num_rows > 1 and bool(np.isfinite(found).all())
    error = float(np.std(found, ddof=1)) / math.sqrt(num_rows) if finite else math.nan
    return LogPredictive(float(np.mean(found)), error, found if each else None)


@partial(jax.jit, static_argnums=0)
def _log_sum(model: Model, params: Params, rows: Rows, count: Array) -> Array:
    """log Σ p(row | θ) over the first `count` of these draws, for each row."""
    values = jax.vmap(model.log_likelihoods, (0, None))(params, rows)
    real = jnp.arange(values.shape[0])[:, None] < count
    return jax.nn.logsumexp(jnp.where(real, values, -jnp.inf), axis=0)


def _in_users_units(model: Model) -> Model:
    """The likelihood alone, at parameters as users see them: no way to the real line and back for the draws."""
    if model.form == "total":
        return Model.from_total(model.log_likelihood)
    return Model(model.log_likelihood, vectorized=model.form == "rows")


def _flat_draws(draws: Run | PyTree) -> tuple[list[Any], Any]:
    """Leaves with one leading axis, all draws of all chains."""
    if isinstance(draws, Run):
        if draws.draws is None or not draws.num_draws:
            raise InvalidValueError(f"the run holds no draws (status: {draws.status}).")
        draws = draws.draws
    leaves, treedef = jax.tree.flatten(draws)
    leaves = [leaf if hasattr(leaf, "shape") else np.asarray(leaf) for leaf in leaves]
    shapes = {tuple(leaf.shape[:2]) for leaf in leaves}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2 or 0 in next(iter(shapes)):
        named = dict(zip(_tree.leaf_names(draws), (leaf.shape for leaf in leaves), strict=True))
        raise InvalidValueError(
            f"`draws` must be a run, or have leaves (chain, draw, ...) with the same first two axes, got {named}."
        )
    return [np.asarray(leaf).reshape(-1, *leaf.shape[2:]) for leaf in leaves], treedef


def _blocks(leaves: list[Any], treedef: Any) -> Iterator[tuple[Params, np.int32]]:
    """The draws, `_DRAWS` at a time and always as many (the last ones repeated), with the number that count."""
    total = len(leaves[0])
    size = min(_DRAWS, total)
    for first in range(0, total, size):
        part = [_filled(leaf[first : first + size], size) for leaf in leaves]
        yield jax.tree.unflatten(treedef, part), np.int32(min(size, total - first))


def _padded(rows: Rows, size: int) -> Rows:
    """As many rows for each call, so that one program serves all."""
    return jax.tree.map(lambda leaf: _filled(np.asarray(leaf), size), rows)


def _filled(values: np.ndarray[Any, np.dtype[Any]], size: int) -> np.ndarray[Any, np.dtype[Any]]:
    missing = size - len(values)
    return values if not missing else np.concatenate([values, np.repeat(values[-1:], missing, axis=0)])
