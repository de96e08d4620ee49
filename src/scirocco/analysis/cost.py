r"""What a wanted accuracy costs SGLD and SGLD-CV: the settings that their Wasserstein bounds ask for.

R = M/m is the ratio of the largest curvature to the least. Accuracies ε₀ are of √m W₂, the distance in units of the
posterior's own scale. Step sizes are ε of θ' = θ + ε ĝ + √(2ε) ξ; see `bounds` for the thesis' h.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scirocco import _checks
from scirocco.analysis.bounds import ALPHA, checked_constants, checked_start, squared_spread


class LangevinSettings(NamedTuple):
    """What to run for a wanted accuracy."""

    step_size: float
    num_steps: int
    batch_size: int

    @property
    def cost(self) -> int:
        """Rows visited by one chain, the set-up not counted."""
        return self.num_steps * self.batch_size


def sgld_cv_settings(
    accuracy: float,
    *,
    strong_concavity: float,
    smoothness: float,
    dimension: int,
    start_distance: float | None = None,
    centre_distance: float = 0.0,
) -> LangevinSettings:
    r"""Step size, steps and batch size that make √m W₂ ≤ ε₀ certain for SGLD-CV (thesis Thm 3.3.7).

    .. math::
        n ≥ \frac{64 R^2}{ε_0^2} mε (mc^2 + d), \quad
        mε = \min\left\{\frac{n}{2R^2 + n}, \frac{ε_0^2}{64 R^2 α^2 d}\right\}, \quad
        K ≥ \frac{1}{mε} \log \frac{4 m W_2^2(ν_0, π)}{ε_0^2}

    The theorem prints max for min: its proof needs both bounds of ε, so with max the wanted distance can be missed.
    β, which stands for mε in the bound of n, must then be no smaller than mε: the second term is.

    Parameters
    ----------
    accuracy
        ε₀ > 0, wanted of √m W₂.
    strong_concavity, smoothness, dimension, start_distance, centre_distance
        As for `sgld_cv_bound`.

    Returns
    -------
    LangevinSettings
        With the fields `step_size`, `num_steps`, `batch_size` and the property `cost`. They do not depend on N where
        R, d, √m c and √m W₂(ν₀, π) do not. Sufficient, and by orders of magnitude more than chains need.

    Examples
    --------
    >>> from scirocco.analysis.cost import sgld_cv_settings
    >>> for rows in (1e3, 1e6):
    ...     print(sgld_cv_settings(0.5, strong_concavity=rows, smoothness=2 * rows, dimension=2).cost)
    19322
    19322
    """
    m, big, d = checked_constants(strong_concavity, smoothness, dimension)
    _checks.positive(accuracy, "accuracy")
    ratio, spread = big / m, squared_spread(m, d, centre_distance)
    start = checked_start(start_distance, spread)
    batch = math.ceil(_batch_from_step(ratio, d, accuracy) * m * spread)
    # the last one is 2/(m + M), which only a very large accuracy asks for
    scaled = min(batch / (2.0 * ratio**2 + batch), _scaled_step(ratio, d, accuracy), 2.0 / (1.0 + ratio))
    return LangevinSettings(scaled / m, max(1, math.ceil(_length(m, start, accuracy) / scaled)), batch)


def sgld_cv_cost(
    accuracy: float,
    *,
    strong_concavity: float,
    smoothness: float,
    dimension: int,
    start_distance: float | None = None,
    centre_distance: float = 0.0,
) -> float:
    r"""Upper bound of the rows that SGLD-CV visits for √m W₂ ≤ ε₀ (thesis Cor. 3.3.8).

    .. math:: Kn ≤ \left[C_1 \log \frac{4 m W_2^2(ν_0, π)}{ε_0^2} + 1\right] \left[C_2 (mc^2 + d) + 1\right]

    with C₁ = max{2R² + 1, 64R²α²d/ε₀²} and C₂ = 1/(α²d): the corollary with the slip of its theorem mended (it has
    min in C₁). Logarithmic in the distance of the start, quadratic in that of the centre, and free of N.

    Parameters
    ----------
    accuracy, strong_concavity, smoothness, dimension, start_distance, centre_distance
        As for `sgld_cv_settings`, whose `cost` is at most this.

    Returns
    -------
    float
        K · n; the passes that find the centre are not counted.
    """
    m, big, d = checked_constants(strong_concavity, smoothness, dimension)
    _checks.positive(accuracy, "accuracy")
    ratio, spread = big / m, squared_spread(m, d, centre_distance)
    start = checked_start(start_distance, spread)
    first = max(2.0 * ratio**2 + 1.0, 1.0 / _scaled_step(ratio, d, accuracy))
    steps = first * _length(m, start, accuracy) + 1.0
    return steps * (_batch_from_step(ratio, d, accuracy) * m * spread + 1.0)


def sgld_settings(
    accuracy: float,
    *,
    strong_concavity: float,
    smoothness: float,
    dimension: int,
    row_variance: float,
    start_distance: float,
) -> LangevinSettings:
    r"""Step size, steps and batch size that make √m W₂ ≤ ε₀ certain for plain SGLD, by `sgld_bound`.

    mε = min{ε₀²/(16 R²α²d), 2/(1 + R)}, n ≥ 16 ε d σ₁²/ε₀², K ≥ log(2√m W₂(ν₀, π)/ε₀)/(mε).

    Parameters
    ----------
    accuracy
        ε₀ > 0, wanted of √m W₂.
    strong_concavity, smoothness, dimension, start_distance
        As for `sgld_bound`.
    row_variance
        σ₁², the `noise_variance` of a batch of one row; n rows have σ₁²/n. About N² times the variance of one row's
        gradient, so that n, and the cost with it, grow like N.

    Returns
    -------
    LangevinSettings
        With the fields `step_size`, `num_steps`, `batch_size` and the property `cost`.
    """
    m, big, d = checked_constants(strong_concavity, smoothness, dimension)
    for value, name in ((accuracy, "accuracy"), (row_variance, "row_variance")):
        _checks.positive(value, name)
    _checks.positive(start_distance, "start_distance", allow_zero=True)
    ratio = big / m
    scaled = min(4.0 * _scaled_step(ratio, d, accuracy), 2.0 / (1.0 + ratio))
    batch = max(1, math.ceil(16.0 * (scaled / m) * d * row_variance / accuracy**2))
    steps = max(1, math.ceil(0.5 * _length(m, start_distance, accuracy) / scaled))
    return LangevinSettings(scaled / m, steps, batch)


def _scaled_step(ratio: float, dimension: int, accuracy: float) -> float:
    """The largest mε at which the step alone leaves √m W₂ ≤ ε₀/4."""
    return accuracy**2 / (64.0 * ratio**2 * ALPHA**2 * dimension)


def _batch_from_step(ratio: float, dimension: int, accuracy: float) -> float:
    """C₂ = 64R²β/ε₀² with β the largest mε; all but α and d cancels."""
    return 64.0 * ratio**2 * _scaled_step(ratio, dimension, accuracy) / accuracy**2


def _length(m: float, start: float, accuracy: float) -> float:
    """log(4m W₂²/ε₀²): mεK that halves the wanted distance; 0 for a start that is near enough."""
    return max(0.0, math.log(4.0 * m * start**2 / accuracy**2)) if start > 0 else 0.0
