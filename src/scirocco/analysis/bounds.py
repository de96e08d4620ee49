r"""Upper bounds of the Wasserstein distance between the law of SGLD or SGLD-CV and the posterior.

All for θ' = θ + ε ĝ + √(2ε) ξ and a log posterior that is m-strongly concave and M-smooth: its curvature lies between
m and M everywhere. (Baker, Fearnhead, Fox & Nemeth 2019; thesis section 3.3 and appendix A.1; Dalalyan & Karagulyan
2019.)

The thesis' chapter 3 runs its chains with h/2 ∇ and N(0, h), but the proof couples them to dY = -∇f dt + √2 dB over a
time h: the h of its bounds is our ε, not 2ε.
"""

from __future__ import annotations

import math
from typing import Any

from scirocco import _checks
from scirocco.errors import InvalidValueError

ALPHA = 7.0 * math.sqrt(2.0) / 6.0
"""α of the discretisation error αM√(ε³d) of one step (needs εM ≤ 2)."""
_LARGEST = 1.0 - 1e-6  # of an open interval of step sizes: at its end nothing contracts


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
    r"""Upper bound of W₂ between the law of SGLD-CV after K steps and the posterior (thesis Prop. 3.3.6).

    .. math:: W_2(ν_K, π) ≤ (1 - A)^K W_2(ν_0, π) + \frac{C}{A} + \frac{B^2}{C + \sqrt{A} B}

    with A = 1 - √(2ε²M²/n + (1 - mε)²), B² = (2ε²M²/n)(c² + d/m) and C = αM√(ε³d). (The proposition prints M for
    M² in A; its proof has M².)

    Parameters
    ----------
    step_size, num_steps, batch_size
        ε, K and n. The bound holds for ε ≤ 2/(m + M) and ε < 2m/(2M²/n + m²); larger steps are refused.
    strong_concavity
        m, a lower bound of the curvature of the negative log posterior.
    smoothness
        M = Σ_i L_i, with L_i the Lipschitz constant of the gradient of row i (and of the prior), where row i is drawn
        with probability ∝ L_i. For rows drawn alike: N times the largest. The largest curvature of the sum is not
        enough: the noise of a batch depends on its rows.
    dimension
        d.
    start_distance
        W₂(ν₀, π). By default that of a chain that starts at the centre: at most √(c² + d/m).
    centre_distance
        c, the distance between the centre of the control variates and the posterior mean (root mean square).

    Returns
    -------
    float
        In the parameters' units; times √m it is the accuracy ε₀ of `sgld_cv_settings`.

    Examples
    --------
    >>> from scirocco.analysis.bounds import sgld_cv_bound
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
    r"""Upper bound of W₂ between the law of plain SGLD after K steps and the posterior.

    Dalalyan & Karagulyan (2019), theorem 4: A = mε, B² = σ²ε²d and C = αM√(ε³d) in the form of `sgld_cv_bound`.

    Parameters
    ----------
    step_size, num_steps
        ε ≤ 2/(m + M), and K.
    noise_variance
        σ²: the gradient estimate has errors of E|ξ|² ≤ σ²d everywhere. For n of N rows about N²/n times the variance
        of one row's gradient: it grows like N² where SGLD-CV has N.
    strong_concavity, smoothness, dimension
        m; M, the largest curvature; d.
    start_distance
        W₂(ν₀, π).

    Returns
    -------
    float
        In the parameters' units.
    """
    m, big, d = checked_constants(strong_concavity, smoothness, dimension)
    num_steps = _number_of_steps(num_steps)
    _checks.positive(step_size, "step_size")
    _checks.positive(noise_variance, "noise_variance", allow_zero=True)
    _checks.positive(start_distance, "start_distance", allow_zero=True)
    _check_step(step_size, 2.0 / (m + big))
    noise = math.sqrt(noise_variance * d) * step_size
    return _solve(1.0 - m * step_size, noise, _euler_error(big, step_size, d), start_distance, num_steps)


def _solve(keep: float, noise: float, drift: float, start: float, num_steps: int) -> float:
    """What x_{k+1}² ≤ (keep x_k + drift)² + noise² leaves of x after some steps (Dalalyan & Karagulyan, lemma 1)."""
    rate = 1.0 - keep
    below = drift + math.sqrt(rate) * noise
    return keep**num_steps * start + drift / rate + noise**2 / below


def _euler_error(smoothness: float, step_size: float, dimension: int) -> float:
    return ALPHA * smoothness * math.sqrt(step_size**3 * dimension)


def squared_spread(m: float, dimension: int, centre_distance: Any) -> float:
    """E|θ - centre|² under the posterior is at most this (Durmus & Moulines 2019)."""
    _checks.positive(centre_distance, "centre_distance", allow_zero=True)
    return float(centre_distance) ** 2 + dimension / m


def checked_start(start_distance: Any, spread: float) -> float:
    """W₂(ν₀, π), by default that of a start at the centre."""
    if start_distance is None:
        return math.sqrt(spread)
    _checks.positive(start_distance, "start_distance", allow_zero=True)
    return float(start_distance)


def checked_constants(strong_concavity: Any, smoothness: Any, dimension: Any) -> tuple[float, float, int]:
    """m, M and d."""
    _checks.positive(strong_concavity, "strong_concavity")
    _checks.positive(smoothness, "smoothness")
    if smoothness < strong_concavity:
        raise InvalidValueError(
            f"`smoothness` (the largest curvature) must be at least `strong_concavity` (the least one), got "
            f"{smoothness:g} and {strong_concavity:g}. Exchange them?"
        )
    return float(strong_concavity), float(smoothness), _checks.positive_int(dimension, "dimension")


def _number_of_steps(num_steps: Any) -> int:
    return _checks.positive_int(num_steps, "num_steps", minimum=0)


def _check_step(step_size: float, limit: float) -> None:
    if step_size > limit * (1.0 + 1e-12):  # a step that was computed from the limit may be rounded up
        raise InvalidValueError(
            f"the bound holds for step sizes up to {limit:.4g} with these constants, got {step_size:g}. Take a smaller "
            "step."
        )
