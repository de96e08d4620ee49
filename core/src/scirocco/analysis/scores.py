"""Scores of predictions: log loss, accuracy, Brier score, perplexity, calibration, log predictive density.

Probabilities are of class 1, (n,), with labels 0 and 1; or of all K classes, (n, K), with labels 0 ... K-1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from scirocco import _checks
from scirocco.data import as_source
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.model import Model
from scirocco.run import Run
from scirocco.run.predicting import chosen, draws_of, filled, in_users_units, padded
from scirocco.types import Data, Params, PyTree, Rows

Array = np.ndarray[Any, np.dtype[Any]]

_SUM_TOLERANCE = 1e-4  # of probabilities in single precision
_DRAWS = 64  # draws per call: with 1,024 rows some megabytes for a small model


class Bin(NamedTuple):
    """Predictions with about the same probability."""

    predicted: float
    """The mean of the predicted probabilities."""
    observed: float
    """The share of correct predictions."""
    count: int  # type: ignore[assignment]
    standard_error: float
    """Standard error of `observed` for calibrated predictions: √(p(1 - p)/count) at p = `predicted`."""


class Calibration(NamedTuple):
    """Predicted probabilities and observed shares."""

    table: tuple[Bin, ...]
    """The bins that are not empty, by increasing probability."""
    error: float
    """The expected calibration error: |observed - predicted|, averaged over all predictions."""


def log_loss(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Mean of -log p(label); smaller is better.

    Probabilities are clipped to [e, 1 - e], e the machine epsilon of their type (2.2e-16; 1.2e-7 in single precision),
    as scikit-learn does: a label with predicted probability 0 costs 36 (or 16), not ∞.

    Examples
    --------
    >>> from scirocco.analysis import log_loss
    >>> round(log_loss([0.9, 0.2], [1, 0]), 4)
    0.1643
    """
    p, y = _predictions(probabilities, labels)
    return float(-np.mean(np.log(_of_label(_clipped(p), y))))


def accuracy(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Share of rows whose most probable class is the label; in a tie the first class counts.

    Examples
    --------
    >>> from scirocco.analysis import accuracy
    >>> accuracy([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]], [0, 1])
    0.5
    """
    p, y = _predictions(probabilities, labels)
    chosen = p > 0.5 if p.ndim == 1 else np.argmax(p, axis=1)
    return float(np.mean(chosen == y))


def brier(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Mean squared error of the probabilities, 0 to 1; for K classes summed over them, 0 to 2.

    Examples
    --------
    >>> from scirocco.analysis import brier
    >>> round(brier([0.9, 0.2], [1, 0]), 4)
    0.025
    """
    p, y = _predictions(probabilities, labels)
    if p.ndim == 1:
        return float(np.mean((p - y) ** 2))
    return float(np.mean(np.sum((p - np.eye(p.shape[1])[y]) ** 2, axis=1)))


def perplexity(log_likelihoods: npt.ArrayLike, counts: npt.ArrayLike | None = None) -> float:
    """Perplexity, exp(-Σ log likelihood / Σ counts): as uncertain as a choice among so many equally probable words.

    Parameters
    ----------
    log_likelihoods
        Log likelihoods of words or of documents; any shape.
    counts
        Words in each; 1 by default.

    Returns
    -------
    float
        At least 1 for probabilities of words; ∞ when a likelihood is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco.analysis import perplexity
    >>> round(perplexity([3 * np.log(0.1), np.log(0.1)], counts=[3, 1]), 6)
    10.0
    """
    values = _numbers(log_likelihoods, "log_likelihoods")
    if not values.size or np.isnan(values).any() or np.any(values == np.inf):
        raise InvalidValueError("`log_likelihoods` must be numbers below ∞, at least one, and not NaN.")
    weights = np.ones(values.shape) if counts is None else _numbers(counts, "counts")
    if weights.shape != values.shape:
        raise InvalidValueError(
            f"`counts` must have the shape of `log_likelihoods`, {values.shape}, got {weights.shape}."
        )
    if not np.all(np.isfinite(weights) & (weights >= 0)) or not weights.sum() > 0:
        raise InvalidValueError("`counts` must be finite, >= 0 and not all 0.")
    with np.errstate(over="ignore"):
        return float(np.exp(-values.sum() / weights.sum()))


def calibration(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = 10) -> Calibration:
    """Calibration: whether predictions of about p are correct with frequency p, in bins of equal width.

    For K classes the prediction is the most probable class, and it is correct if that is the label.

    Parameters
    ----------
    probabilities, labels
        (n,) with 0 and 1, or (n, K) with 0 ... K-1.
    bins
        Number of bins on [0, 1]; empty ones are omitted. A probability at an edge belongs to the upper bin.

    Returns
    -------
    Calibration
        With the fields `table`, one `Bin` each (`predicted`, `observed`, `count`, `standard_error`), and `error`. Even
        for calibrated predictions the error is above 0: it is about 0.8 of the mean standard error.

    Examples
    --------
    >>> from scirocco.analysis import calibration
    >>> found = calibration([0.25, 0.25, 0.25, 0.25, 0.75], [0, 0, 0, 1, 1], bins=2)
    >>> found.table[0].predicted, found.table[0].observed, round(found.error, 6)
    (0.25, 0.25, 0.05)
    """
    p, y = _predictions(probabilities, labels)
    number = _checks.positive_int(bins, "bins")
    came = y == 1 if p.ndim == 1 else np.argmax(p, axis=1) == y
    p = p if p.ndim == 1 else p.max(axis=1)
    place = np.minimum((p.astype(np.float64) * number).astype(int), number - 1)
    table = []
    for index in np.unique(place):
        inside = place == index
        mean, share, count = (
            float(np.mean(p[inside], dtype=np.float64)),
            float(came[inside].mean()),
            int(inside.sum()),
        )
        table.append(Bin(mean, share, count, math.sqrt(mean * (1.0 - mean) / count)))
    error = sum(row.count * abs(row.observed - row.predicted) for row in table) / len(p)
    return Calibration(tuple(table), error)


def _of_label(p: Array, y: Array) -> Array:
    return np.where(y == 1, p, 1.0 - p) if p.ndim == 1 else p[np.arange(len(p)), y]


def _clipped(p: Array) -> Array:
    epsilon = np.finfo(p.dtype).eps
    return np.clip(p, epsilon, 1.0 - epsilon).astype(np.float64)


def _predictions(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Array, Array]:
    p = _numbers(probabilities, "probabilities")
    if p.ndim not in (1, 2) or not p.size or (p.ndim == 2 and p.shape[1] < 2):
        raise InvalidValueError(
            "`probabilities` must have the shape (n,), of class 1, or (n, K), of all K >= 2 classes, got "
            f"{p.shape}. Average over the draws first."
        )
    wrong = ~((p >= 0) & (p <= 1)).reshape(len(p), -1).all(axis=1)  # also NaN
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InvalidValueError(
            f"`probabilities` must lie between 0 and 1: {wrong.sum()} of {len(p)} rows do not; the first is number "
            f"{row}, {p[row]}. Are they logits?"
        )
    if p.ndim == 2 and np.any(np.abs(p.sum(axis=1) - 1.0) > _SUM_TOLERANCE):
        row = int(np.argmax(np.abs(p.sum(axis=1) - 1.0)))
        raise InvalidValueError(f"each row of `probabilities` must sum to 1; number {row} sums to {p[row].sum():g}.")
    return p, _labels(labels, p)


def _labels(labels: npt.ArrayLike, p: Array) -> Array:
    y, classes = _numbers(labels, "labels"), 2 if p.ndim == 1 else p.shape[1]
    if y.shape != (len(p),):
        raise InvalidValueError(f"`labels` must have one number per row, shape ({len(p)},), got {y.shape}.")
    whole = np.isin(y, np.arange(classes))
    if not whole.all():
        row = int(np.argmin(whole))
        raise InvalidValueError(
            f"`labels` must be 0 ... {classes - 1} for {classes} classes; number {row} is {y[row]:g}."
        )
    return y.astype(np.intp)


def _numbers(values: npt.ArrayLike, name: str) -> Array:
    try:
        found = np.asarray(values)
        return found if found.dtype in (np.float32, np.float64) else found.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"`{name}` must be an array of numbers, got {type(values).__name__}.") from error


# -- the log predictive density of a model ---------------------------------------------------------------------


class LogPredictive(NamedTuple):
    """The log predictive density of the rows, and its standard error."""

    value: float
    """The mean over the rows."""
    standard_error: float
    """Standard error of the mean, for rows drawn from a larger population and fixed draws. NaN for a single row."""
    each: Array | None = None
    """One number per row, if requested."""


def log_predictive(
    model: Model, draws: Run | PyTree, data: Data, *, chunk: int = 1024, each: bool = False
) -> LogPredictive:
    r"""Mean over rows of the log predictive density, log (1/K) Σ_k p(x | θ_k).

    The average is over the probabilities, not over their logarithms: it is the score of the mixture of all K draws of
    all chains. Larger is better.

    Parameters
    ----------
    model
        Its log likelihood, including normalising constants, is log p(x | θ); the prior is not used.
    draws
        The run, or its draws: the structure of the parameters, leaves (chain, draw, ...), in your units.
    data
        Rows like those of the run, as arrays, a path or a source; preferably rows not used in the run.
    chunk
        Rows at a time. In addition to the draws, memory holds chunk × 64 likelihoods and their intermediate values.
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
    size = _checks.positive_int(chunk, "chunk")
    direct, source = in_users_units(model, "log_predictive"), as_source(data, model.facts.groups)
    leaves, treedef = jax.tree.flatten(chosen(draws_of(draws), None).params)
    num_rows, num_draws = source.num_rows, len(leaves[0])
    size = min(size, num_rows)
    found = np.full(num_rows, -np.inf)
    for first in range(0, num_rows, size):
        stop = min(first + size, num_rows)
        rows = padded(source.read(first, stop), size)
        for params, count in _blocks(leaves, treedef):
            part = np.asarray(_log_sum(direct, params, rows, count), np.float64)
            with np.errstate(invalid="ignore"):  # NaN is reported below
                # in double precision, as the sum of many draws is large
                found[first:stop] = np.logaddexp(found[first:stop], part[: stop - first])
    found -= math.log(num_draws)
    if np.isnan(found).any():
        row = int(np.flatnonzero(np.isnan(found))[0])
        raise InvalidValueError(
            f"the log likelihood of row {row} is NaN for at least one draw; check the row, and draws at the edge of "
            "their domain."
        )
    finite = num_rows > 1 and bool(np.isfinite(found).all())
    error = float(np.std(found, ddof=1)) / math.sqrt(num_rows) if finite else math.nan
    return LogPredictive(float(np.mean(found)), error, found if each else None)


@partial(jax.jit, static_argnums=0)
def _log_sum(model: Model, params: Params, rows: Rows, count: np.int32) -> jax.Array:
    """log Σ p(row | θ) over the first `count` of these draws, for each row."""
    values = jax.vmap(model.log_likelihoods, (0, None))(params, rows)
    real = jnp.arange(values.shape[0])[:, None] < count
    return jax.nn.logsumexp(jnp.where(real, values, -jnp.inf), axis=0)


def _blocks(leaves: list[Any], treedef: PyTree) -> Iterator[tuple[Params, np.int32]]:
    """The draws in blocks of exactly `_DRAWS` (the last draw repeated), with the number that count."""
    total = len(leaves[0])
    size = min(_DRAWS, total)
    for first in range(0, total, size):
        part = [filled(leaf[first : first + size], size) for leaf in leaves]
        yield jax.tree.unflatten(treedef, part), np.int32(min(size, total - first))
