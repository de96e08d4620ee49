r"""Upper bounds of the Wasserstein distance between SGLD or SGLD-CV and the posterior, and their cost.

All for θ' = θ + ε ĝ + √(2ε) ξ and a log posterior that is m-strongly concave and M-smooth: its curvature lies between
m and M everywhere. (Baker, Fearnhead, Fox & Nemeth 2019; thesis section 3.3 and appendix A.1; Dalalyan & Karagulyan
2019.) R = M/m is the ratio of the largest curvature to the least. Accuracies ε₀ are of √m W₂, the distance in units of
the posterior's own scale.

The thesis' chapter 3 runs its chains with h/2 ∇ and N(0, h), but the proof couples them to dY = -∇f dt + √2 dB over a
time h: the h of its bounds is our ε, not 2ε.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scirocco import _checks
from scirocco.errors import InvalidValueError

ALPHA = 7.0 * math.sqrt(2.0) / 6.0
"""α of the discretisation error αM√(ε³d) of one step (needs εM ≤ 2)."""
_LARGEST = 1.0 - 1e-6  # share of an open interval of step sizes: at its end nothing contracts


def sgld_cv_bound(
    step_size: float,
    num_steps: int,
    batch_size: int,
    *,
    strong_concavity: float,
    smoothness: float,
    dimension: int,
    start_distance: float | None = None,
    centre_distance: float = 0.0,
) -> float:
    r"""Upper bound of W₂ between the distribution of SGLD-CV after K steps and the posterior (thesis Prop. 3.3.6).

    .. math:: W_2(ν_K, π) ≤ (1 - A)^K W_2(ν_0, π) + \frac{C}{A} + \frac{B^2}{C + \sqrt{A} B}

    with A = 1 - √(2ε²M²/n + (1 - mε)²), B² = (2ε²M²/n)(c² + d/m) and C = αM√(ε³d). (The proposition prints M for
    M² in A; its proof has M².)

    Parameters
    ----------
    step_size, num_steps, batch_size
        ε, K and n. The bound holds for ε ≤ 2/(m + M) and ε < 2m/(2M²/n + m²); larger steps raise an error.
    strong_concavity
        m, a lower bound of the curvature of the negative log posterior.
    smoothness
        M = Σ_i L_i, with L_i the Lipschitz constant of the gradient of row i (and of the prior), where row i is drawn
        with probability ∝ L_i. For rows drawn uniformly: N times the largest. The largest curvature of the sum is not
        enough: the noise of a batch depends on its rows.
    dimension
        d.
    start_distance
        W₂(ν₀, π). By default the bound √(c² + d/m) for a chain that starts at the centre.
    centre_distance
        c, the distance between the centre of the control variates and the posterior mean (root mean square).

    Returns
    -------
    float
        The bound in the parameters' units; times √m it is the accuracy ε₀ of `sgld_cv_settings`.

    Examples
    --------
    >>> from scirocco.analysis.cost import sgld_cv_bound
    >>> sgld_cv_bound(1e-5, 10_000, 10, strong_concavity=1e3, smoothness=2e3, dimension=2) * 1e3**0.5
    0.49...
    """
    m, big, d = checked_constants(strong_concavity, smoothness, dimension)
    n, num_steps = _checks.positive_int(batch_size, "batch_size"), _number_of_steps(num_steps)
    _checks.positive(step_size, "step_size")
    spread = squared_spread(m, d, centre_distance)
    start = checked_start(start_distance, spread)
    _check_step(step_size, min(2.0 / (m + big), _LARGEST * 2.0 * m / (2.0 * big**2 / n + m**2)))
    noise = 2.0 * (step_size * big) ** 2 / n
    keep = math.sqrt(noise + (1.0 - m * step_size) ** 2)
    return _solve(keep, math.sqrt(noise * spread), _euler_error(big, step_size, d), start, num_steps)


def sgld_bound(
    step_size: float,
    num_steps: int,
    noise_variance: float,
    *,
    strong_concavity: float,
    smoothness: float,
    dimension: int,
    start_distance: float,
) -> float:
    r"""Upper bound of W₂ between the distribution of plain SGLD after K steps and the posterior.

    Dalalyan & Karagulyan (2019), theorem 4: A = mε, B² = σ²ε²d and C = αM√(ε³d) in the form of `sgld_cv_bound`.

    Parameters
    ----------
    step_size, num_steps
        ε ≤ 2/(m + M), and K.
    noise_variance
        σ²: the error of the gradient estimate has E|ξ|² ≤ σ²d everywhere. For n of N rows about N²/n times the variance
        of one row's gradient: it grows like N² where SGLD-CV has N.
    strong_concavity, smoothness, dimension
        m; M, the largest curvature; d.
    start_distance
        W₂(ν₀, π).

    Returns
    -------
    float
        The bound in the parameters' units.
    """
    m, big, d = checked_constants(strong_concavity, smoothness, dimension)
    num_steps = _number_of_steps(num_steps)
    _checks.positive(step_size, "step_size")
    _checks.positive(noise_variance, "noise_variance", allow_zero=True)
    _checks.positive(start_distance, "start_distance", allow_zero=True)
    _check_step(step_size, 2.0 / (m + big))
    noise = math.sqrt(noise_variance * d) * step_size
    return _solve(1.0 - m * step_size, noise, _euler_error(big, step_size, d), start_distance, num_steps)


class LangevinSettings(NamedTuple):
    """Settings that guarantee an accuracy."""

    step_size: float
    num_steps: int
    batch_size: int

    @property
    def cost(self) -> int:
        """Rows visited by one chain, excluding the set-up."""
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
    r"""Step size, steps and batch size that guarantee √m W₂ ≤ ε₀ for SGLD-CV (thesis Thm 3.3.7).

    .. math::
        n ≥ \frac{64 R^2}{ε_0^2} mε (mc^2 + d), \quad
        mε = \min\left\{\frac{n}{2R^2 + n}, \frac{ε_0^2}{64 R^2 α^2 d}\right\}, \quad
        K ≥ \frac{1}{mε} \log \frac{4 m W_2^2(ν_0, π)}{ε_0^2}

    The theorem prints max for min: its proof needs both bounds of ε, so with max the accuracy may not be reached.
    β, which stands for mε in the bound of n, must then be no smaller than mε: the second term is.

    Parameters
    ----------
    accuracy
        ε₀ > 0, the required bound of √m W₂.
    strong_concavity, smoothness, dimension, start_distance, centre_distance
        As for `sgld_cv_bound`.

    Returns
    -------
    LangevinSettings
        With the fields `step_size`, `num_steps`, `batch_size` and the property `cost`. They do not depend on N where
        R, d, √m c and √m W₂(ν₀, π) do not. Sufficient, but orders of magnitude more than chains need.

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
    # the last one is 2/(m + M), which matters only for a very large accuracy
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

    with C₁ = max{2R² + 1, 64R²α²d/ε₀²} and C₂ = 1/(α²d): the corollary with the error of its theorem corrected (it has
    min in C₁). Logarithmic in the distance of the start, quadratic in that of the centre, and independent of N.

    Parameters
    ----------
    accuracy, strong_concavity, smoothness, dimension, start_distance, centre_distance
        As for `sgld_cv_settings`, whose `cost` is at most this.

    Returns
    -------
    float
        K · n, excluding the passes that find the centre.
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
    r"""Step size, steps and batch size that guarantee √m W₂ ≤ ε₀ for plain SGLD, by `sgld_bound`.

    mε = min{ε₀²/(16 R²α²d), 2/(1 + R)}, n ≥ 16 ε d σ₁²/ε₀², K ≥ log(2√m W₂(ν₀, π)/ε₀)/(mε).

    Parameters
    ----------
    accuracy
        ε₀ > 0, the required bound of √m W₂.
    strong_concavity, smoothness, dimension, start_distance
        As for `sgld_bound`.
    row_variance
        σ₁², the `noise_variance` of a batch of one row; n rows have σ₁²/n. About N² times the variance of one row's
        gradient, so that n and the cost grow like N.

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
    """The largest mε for which the step alone gives √m W₂ ≤ ε₀/4."""
    return accuracy**2 / (64.0 * ratio**2 * ALPHA**2 * dimension)


def _batch_from_step(ratio: float, dimension: int, accuracy: float) -> float:
    """C₂ = 64R²β/ε₀² with β the largest mε; everything except α and d cancels."""
    return 64.0 * ratio**2 * _scaled_step(ratio, dimension, accuracy) / accuracy**2


def _length(m: float, start: float, accuracy: float) -> float:
    """log(4m W₂²/ε₀²): the mεK that reaches half of the accuracy; 0 for a start that is near enough."""
    return max(0.0, math.log(4.0 * m * start**2 / accuracy**2)) if start > 0 else 0.0


def _solve(keep: float, noise: float, drift: float, start: float, num_steps: int) -> float:
    """Bound of x after some steps of x_{k+1}² ≤ (keep x_k + drift)² + noise² (Dalalyan & Karagulyan, lemma 1)."""
    rate = 1.0 - keep
    below = drift + math.sqrt(rate) * noise
    return keep**num_steps * start + drift / rate + noise**2 / below


def _euler_error(smoothness: float, step_size: float, dimension: int) -> float:
    return ALPHA * smoothness * math.sqrt(step_size**3 * dimension)


def squared_spread(m: float, dimension: int, centre_distance: float) -> float:
    """Upper bound of E|θ - centre|² under the posterior (Durmus & Moulines 2019)."""
    _checks.positive(centre_distance, "centre_distance", allow_zero=True)
    return float(centre_distance) ** 2 + dimension / m


def checked_start(start_distance: float | None, spread: float) -> float:
    """W₂(ν₀, π), by default for a start at the centre."""
    if start_distance is None:
        return math.sqrt(spread)
    _checks.positive(start_distance, "start_distance", allow_zero=True)
    return float(start_distance)


def checked_constants(strong_concavity: float, smoothness: float, dimension: int) -> tuple[float, float, int]:
    """m, M and d."""
    _checks.positive(strong_concavity, "strong_concavity")
    _checks.positive(smoothness, "smoothness")
    if smoothness < strong_concavity:
        raise InvalidValueError(
            f"`smoothness` (the largest curvature) must be at least `strong_concavity` (the smallest), got "
            f"{smoothness:g} and {strong_concavity:g}. Are they swapped?"
        )
    return float(strong_concavity), float(smoothness), _checks.positive_int(dimension, "dimension")


def _number_of_steps(num_steps: int) -> int:
    return _checks.positive_int(num_steps, "num_steps", minimum=0)


def _check_step(step_size: float, limit: float) -> None:
    if step_size > limit * (1.0 + 1e-12):  # a step computed from the limit may be rounded up
        raise InvalidValueError(
            f"the bound holds for step sizes up to {limit:.4g} with these constants, got {step_size:g}. Use a smaller "
            "step."
        )
