"""Which effects of a mixed model are integrated out, which are parameters of the chains, and when blocks are better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from scirocco.model.groups import MOST_LOCAL
from scirocco.models.glmm.density import SCALE
from scirocco.models.glmm.layout import slopes
from scirocco.types import Params

_MOST_LEVELS, _MOST_ROWS = 100, 300_000
"""Levels of all factors but the one that is integrated out, at most; rows, at least. Else all are drawn in blocks."""
_MANY_ROWS, _FEW_LEVELS = 1_000, 300
"""Rows per level from which on a factor of at most so many levels is not integrated out."""
_CLEARLY = 10.0
"""Variance of estimated effects, in units of the square of their standard error, from which on levels differ."""
_MOST_NUMBERS = 20_000_000
"""Entries of the columns that are read to find that out, at most."""


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

    Parameters
    ----------
    family, arrays, theta
        The response and its columns in internal units, and other parameters of the family.
    columns, codes, counts
        Of each factor: its columns (rows, q), the level of each row, and the number of levels.
    """
    rows = len(codes[0])
    inner: int | None = int(np.argmax(counts))
    if rows / max(counts) > _MANY_ROWS and sum(counts) <= _FEW_LEVELS:
        inner = None
    others = [number for number in range(len(counts)) if number != inner]
    too_many = inner is not None and columns[inner].shape[1] > MOST_LOCAL
    by_blocks = (
        too_many
        or sum(counts[number] for number in others) > _MOST_LEVELS
        or (len(counts) > 1 and rows <= _MOST_ROWS)
        or not _differ(family, arrays, [(columns[k], codes[k], counts[k]) for k in others], theta)
    )
    return None if by_blocks else inner, by_blocks


def _differ(
    family: str,
    arrays: Mapping[str, np.ndarray],
    factors: Sequence[tuple[np.ndarray, np.ndarray, int]],
    theta: Params,
) -> bool:
    """Whether all effects clearly differ between levels, by one step of weighted least squares for all of them."""
    if not factors:
        return True
    from scipy import sparse

    width = arrays["x"].shape[1] + sum(z.shape[1] for z, _, _ in factors)
    rows, used = len(arrays["y"]), min(len(arrays["y"]), _MOST_NUMBERS // width)
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
        for column in z.T.astype(np.float64):
            places.append(slice(begin := sum(part.shape[1] for part in parts), begin + count))
            parts.append(sparse.csr_matrix((column, (np.arange(used), code)), shape=(used, count)))
    design = sparse.hstack(parts).tocsr()
    gram = (design.T @ sparse.diags_array(weight) @ design).toarray()
    covariance = np.linalg.inv(gram + np.eye(len(gram)) / SCALE**2)
    effects = covariance @ (design.T @ slope)
    for place in places:
        own, errors = effects[place] - effects[place].mean(), covariance[place, place]
        noise, share = np.trace(errors) - errors.sum() / len(own), used / rows
        if own @ own - (1.0 - share) * noise <= _CLEARLY * share * noise:  # as of all rows
            return False
    return True
