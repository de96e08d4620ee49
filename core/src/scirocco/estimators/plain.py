"""Estimators without memory: all rows, a minibatch, a minibatch with given probabilities or from given strata."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from scirocco import _checks
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.data.batching import SAMPLING, AllRows, Batching, batching
from scirocco.data.unequal import StratifiedRows, WeightedRows
from scirocco.errors import InvalidTypeError
from scirocco.estimators.base import (
    PRECISIONS,
    Context,
    Estimate,
    Estimator,
    Passes,
    Summand,
    Traits,
    estimate_from_rows,
    full_sum,
    none_at_all,
)
from scirocco.types import Params, PyTree


@cited("exact gradients", "scirocco")
@pytree_dataclass
class Full(Estimator):
    """The exact sum over all rows, at every step: cost O(N). The reference for the others.

    Examples
    --------
    >>> import scirocco as sc
    >>> sc.Full()
    Full()
    """

    traits = Traits(is_exact=True, can_spread=True, serves_blocks=True, can_be_referenced=True)

    def batching(self, num_rows: int) -> Batching:
        return AllRows(num_rows, num_rows)

    def estimate(
        self, summand: Summand, position: Params, memory: PyTree, context: Context, noise: str = "none"
    ) -> tuple[Estimate, PyTree]:
        """Exact; its noise covariance is zero."""
        total = full_sum(summand, position, context.data, context.batch.num_rows, key=context.key)
        return self._absorbed(total, position, memory, noise)

    @property
    def passes(self) -> Passes:
        return Passes(lambda number, num_rows: number, self._absorbed)

    def _absorbed(self, total: PyTree, position: Params, memory: PyTree, kind: str) -> tuple[Estimate, PyTree]:
        return Estimate(total, none_at_all(total, position, kind)), memory


class _FromRows(Estimator):
    """Estimators whose estimate is the weighted sum over the batch."""

    def estimate(
        self, summand: Summand, position: Params, memory: PyTree, context: Context, noise: str = "none"
    ) -> tuple[Estimate, PyTree]:
        return estimate_from_rows(summand, position, context.batch, context.key, noise), memory


@cited("minibatch estimates of the gradient", "welling2011")
@pytree_dataclass
class Minibatch(_FromRows):
    """(N/n) Σ_{i in S} f(θ, x_i) over a minibatch S of n rows: unbiased, cost O(n).

    Parameters
    ----------
    batch_size
        n, at most the number of rows.
    sampling
        "auto" (blocks in memory; for streamed data what suits the source), "blocks" (fastest), "without_replacement"
        or "with_replacement"; their effect on the distribution is documented in `scirocco.data.batching` and, for
        streamed data, in `scirocco.data.superbatches`.
    precision
        Of the factors of matrix products on accelerators; parameters, sums and the update stay in float32. None
        (default): that of the device, about 10 bits on NVIDIA GPUs; "float32": all 24 bits; "bfloat16": 8 bits.
        Rounding is harmless as long as the spacing of the rounded numbers, |θ|/128 for bfloat16 and |θ|/1024 by
        default, is below the posterior standard deviation of θ. A CPU always computes in float32.

    Examples
    --------
    >>> import scirocco as sc
    >>> sc.Minibatch(batch_size=500)
    Minibatch(batch_size=500, sampling='auto', precision=None)
    """

    batch_size: int = static()
    sampling: str = static(default="auto")
    precision: str | None = static(default=None)

    def __post_init__(self) -> None:
        _checks.positive_int(self.batch_size, "batch_size")
        _checks.choice(self.sampling, "sampling", SAMPLING)
        if self.precision is not None:
            _checks.choice(self.precision, "precision", tuple(PRECISIONS))

    @cached_property
    def traits(self) -> Traits:
        return Traits(
            can_spread=True,
            serves_blocks=True,
            can_be_referenced=True,
            looks_once=True,
            sampling=self.sampling,
            precision=self.precision,
        )

    def batching(self, num_rows: int) -> Batching:
        return batching(self.batch_size, num_rows, self.sampling)


@cited("minibatches with unequal probabilities", "scirocco")
@pytree_dataclass
class Weighted(_FromRows):
    """Σ_{i in S} f(θ, x_i) / (n p_i) over n rows drawn with probability p_i: unbiased for any p_i > 0.

    Use it if a few rows have much larger gradients than the rest: p_i ∝ L_i (a Lipschitz constant, |x_i|, ...).

    Parameters
    ----------
    batch_size
        n; rows may repeat.
    probabilities
        One number > 0 per row; they are normalised.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> estimator = sc.Weighted(batch_size=100, probabilities=np.array([1.0, 2.0, 3.0]))
    """

    traits = Traits(is_uniform=False, serves_blocks=True, looks_once=True)

    batch_size: int = static()
    probabilities: Any

    def __post_init__(self) -> None:
        _checks.positive_int(self.batch_size, "batch_size")
        if self.probabilities is None or isinstance(self.probabilities, (str, bytes)):
            raise InvalidTypeError(
                f"`probabilities` of Weighted must be an array with one number > 0 per row, got {self.probabilities!r}."
            )

    def batching(self, num_rows: int) -> Batching:
        return WeightedRows.from_probabilities(self.probabilities, num_rows, self.batch_size)


@cited("stratified minibatches", "barile2024")
@pytree_dataclass
class Stratified(_FromRows):
    """Σ_s (N_s/n_s) Σ_{i in S_s} f(θ, x_i): some rows of every stratum s, at every step; unbiased.

    Use it if the rows of a stratum are similar. Counts of categories, with the categories as strata, are exact; and no
    batch lacks a rare one (the CV paper's remedy for estimates below 1, section 2.1).

    Parameters
    ----------
    batch_size
        n, at least the number of strata. Divided in proportion to the strata, at least one row for each.
    strata
        One label per row (numbers or strings).

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> estimator = sc.Stratified(batch_size=10, strata=np.array([0, 0, 1, 1, 1] * 20))
    """

    traits = Traits(is_uniform=False, can_be_referenced=True, looks_once=True)

    batch_size: int = static()
    strata: Any

    def __post_init__(self) -> None:
        _checks.positive_int(self.batch_size, "batch_size")
        if self.strata is None or isinstance(self.strata, (str, bytes)):
            raise InvalidTypeError(
                f"`strata` of Stratified must be an array with one label per row, got {self.strata!r}."
            )

    def batching(self, num_rows: int) -> Batching:
        return StratifiedRows.from_strata(self.strata, num_rows, self.batch_size)
