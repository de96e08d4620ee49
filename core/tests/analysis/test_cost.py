"""Bounds of SGLD and SGLD-CV, the settings they ask for, and what noise costs zero-variance control variates."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from scirocco.analysis.cost import (
    ALPHA,
    LangevinSettings,
    sgld_bound,
    sgld_cv_bound,
    sgld_cv_cost,
    sgld_cv_settings,
    sgld_settings,
)
from scirocco.analysis.zero_variance import zv_reduction, zv_reduction_bound
from scirocco.errors import InvalidTypeError, InvalidValueError

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("quick_compiler")]

GRID = list(
    itertools.product(
        (1e-2, 1.0, 1e6),  # m
        (1.0, 3.0, 50.0),  # R
        (1, 7, 500),  # d
        (0.01, 0.5, 3.0, 40.0),  # ε₀
        (0.0, 1.0, 10.0),  # distance of the centre, in units of 1/√m
    )
)


@pytest.mark.parametrize("num_steps", [0, 1, 7, 400])
def test_closed_form_bounds_the_recursion(num_steps):
    """x² = [(1 - A)x + C]² + B², step by step, never passes it."""
    for step, n, m, big, d in itertools.product((1e-3, 0.1), (1, 20), (0.7,), (0.7, 2.0), (1, 9)):
        if step >= 2 * m / (2 * big**2 + m**2):
            continue
        noise = 2 * (step * big) ** 2 / n
        spread, x = 4.0 + d / m, 5.0
        for _ in range(num_steps):
            drift = ALPHA * big * math.sqrt(step**3 * d)
            x = math.sqrt((math.sqrt(noise + (1 - m * step) ** 2) * x + drift) ** 2 + noise * spread)
        constants = {"strong_concavity": m, "smoothness": big, "dimension": d}
        bound = sgld_cv_bound(step, num_steps, n, start_distance=5.0, centre_distance=2.0, **constants)
        assert x <= bound * (1 + 1e-12)
        if num_steps == 400 and step == 0.1:
            assert bound < 3 * x  # not a loose one


def gaussian_distance(step, num_steps, precision, start):
    """W₂ between the exact law of θ' = θ - ελθ + √(2ε)ξ after some steps and N(0, 1/λ), coordinates independent."""
    keep = 1 - step * precision
    mean = keep**num_steps * start
    variance = 2 * step * (1 - keep ** (2 * num_steps)) / (1 - keep**2)
    return math.sqrt(np.sum(mean**2 + (np.sqrt(variance) - precision**-0.5) ** 2))


@pytest.mark.parametrize("num_steps", [1, 10, 100, 3_000])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_a_gaussian_posterior_is_nearer_than_the_bound(num_steps, scale):
    """Gradients linear with one slope for all rows: the control variates are exact, the chain is an autoregression."""
    precision = scale * np.array([1.0, 1.5, 3.0])
    start = np.array([2.0, 0.0, -1.0]) / math.sqrt(scale)
    distance = math.sqrt(np.sum(start**2 + 1 / precision))
    constants = {"strong_concavity": scale, "smoothness": 3 * scale, "dimension": 3, "start_distance": distance}
    centre = float(np.linalg.norm(start))
    for share in (0.01, 0.1, 0.9):
        step = share * 2 / (2 * 9.0 + 1) / scale
        exact = gaussian_distance(step, num_steps, precision, start)
        assert exact <= sgld_cv_bound(step, num_steps, 1, centre_distance=centre, **constants)
        assert exact <= sgld_bound(step, num_steps, 0.0, **constants)


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("num_steps", [1, 30, 2_000])
def test_noisy_control_variates_are_nearer_than_the_bound(batch_size, num_steps):
    """Rows with slopes a_i, N(θ | 0, 1/Σa_i): the noise is (Σ̂a - Σa)(θ - c), second moments are exact.

    W₂ is at least the difference of the root mean squares about any point.
    """
    slopes, centre = np.array([0.2, 1.0, 1.0, 3.8]), 0.7
    total, number = slopes.sum(), len(slopes)
    noise = number**2 * slopes.var() / batch_size  # rows drawn alike, with replacement
    big = number * slopes.max()  # N times the largest L_i
    step = 0.5 * 2 * total / (2 * big**2 / batch_size + total**2)
    mean, second = centre, centre**2
    for _ in range(num_steps):
        about = second - 2 * centre * mean + centre**2
        second = (1 - step * total) ** 2 * second + step**2 * noise * about + 2 * step
        mean *= 1 - step * total
    least = abs(math.sqrt(second) - total**-0.5)
    constants = {"strong_concavity": total, "smoothness": big, "dimension": 1}
    bound = sgld_cv_bound(step, num_steps, batch_size, centre_distance=centre, **constants)
    assert least <= bound


def test_settings_keep_what_they_promise():
    for m, ratio, d, accuracy, centre in GRID:
        constants = {
            "strong_concavity": m,
            "smoothness": m * ratio,
            "dimension": d,
            "centre_distance": centre / math.sqrt(m),
        }
        found = sgld_cv_settings(accuracy, **constants)
        assert sgld_cv_bound(*found, **constants) <= accuracy / math.sqrt(m) * (1 + 1e-9)
        assert found.cost <= sgld_cv_cost(accuracy, **constants) * (1 + 1e-9)


def test_settings_of_plain_sgld_keep_what_they_promise():
    for m, ratio, d, accuracy, start in GRID:
        constants = {"strong_concavity": m, "smoothness": m * ratio, "dimension": d}
        constants["start_distance"] = start / math.sqrt(m)
        found = sgld_settings(accuracy, row_variance=30.0 * m**2, **constants)
        noise = 30.0 * m**2 / found.batch_size
        bound = sgld_bound(found.step_size, found.num_steps, noise, **constants)
        assert bound <= accuracy / math.sqrt(m) * (1 + 1e-9)


def test_the_theorem_as_printed_can_miss():
    """With max in (3.3.7) the largest allowed step leaves a bound far above ε₀, whatever K."""
    m, ratio, d, accuracy = 1.0, 3.0, 10, 0.1
    second = accuracy**2 / (64 * ratio**2 * ALPHA**2 * d)
    beta = max(1 / (2 * ratio**2 + 1), second)
    n = math.ceil(64 * ratio**2 * beta / accuracy**2 * d)
    step = min(max(n / (2 * ratio**2 + n), second), 0.999 * 2 / (2 * ratio**2 + 1)) / m
    constants = {"strong_concavity": m, "smoothness": ratio, "dimension": d}
    assert sgld_cv_bound(step, 10**6, n, **constants) > 50 * accuracy


def test_costs_as_the_data_grow():
    """m, M, 1/c² and the curvature's noise grow like N: SGLD-CV costs the same, SGLD N times as much."""
    flat, growing = [], []
    for rows in (1e3, 1e4, 1e6, 1e9):
        constants = {"strong_concavity": 0.1 * rows, "smoothness": 0.4 * rows, "dimension": 5}
        flat.append(sgld_cv_settings(0.3, centre_distance=rows**-0.5, **constants).cost)
        start = math.sqrt(50.0 / rows)
        growing.append(sgld_settings(0.3, row_variance=rows**2, start_distance=start, **constants).cost / rows)
    assert max(flat) - min(flat) <= 1e-6 * flat[0]
    assert growing[2] == pytest.approx(growing[3], rel=1e-2) and 0.5 < growing[0] / growing[3] < 2


def test_a_far_start_costs_a_logarithm_and_a_far_centre_a_square():
    constants = {"strong_concavity": 1.0, "smoothness": 2.0, "dimension": 1}
    near, far, further = (sgld_cv_cost(0.1, start_distance=x, **constants) for x in (1e2, 1e4, 1e6))
    assert further - far == pytest.approx(far - near, rel=1e-9)
    one, ten = (sgld_cv_settings(0.1, centre_distance=x, start_distance=1.0, **constants) for x in (10.0, 100.0))
    assert ten.batch_size / one.batch_size == pytest.approx(100, rel=0.05)


def test_wrong_constants():
    good = {"strong_concavity": 1.0, "smoothness": 2.0, "dimension": 3}
    for change, words in (
        ({"smoothness": 0.5}, "at least `strong_concavity`.*swapped"),
        ({"strong_concavity": 0.0}, "`strong_concavity` must be finite and > 0"),
        ({"centre_distance": -1.0}, "centre_distance"),
        ({"start_distance": np.nan}, "start_distance"),
        ({"dimension": 0}, "dimension"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            sgld_cv_settings(0.1, **(good | change))
        with pytest.raises(InvalidValueError, match=words):
            sgld_cv_bound(1e-3, 10, 1, **(good | change))
    with pytest.raises(InvalidValueError, match=r"step sizes up to 0\.2222 with these constants, got 1"):
        sgld_cv_bound(1.0, 10, 1, **good)
    with pytest.raises(InvalidValueError, match=r"up to 0\.6667"):
        sgld_bound(1.0, 10, 1.0, start_distance=1.0, **good)
    with pytest.raises(InvalidValueError, match="accuracy"):
        sgld_cv_cost(0.0, **good)
    with pytest.raises(InvalidTypeError, match="whole number"):
        sgld_cv_bound(1e-3, 10.5, 1, **good)
    assert LangevinSettings(0.1, 20, 3).cost == 60


def covariance(rng, d):
    root = rng.normal(size=(d, d))
    return root @ root.T


@pytest.mark.parametrize("d", [1, 4])
def test_zv_reduction_is_its_definition(d, seed):
    rng = np.random.default_rng([seed, d])
    v, noise, c = covariance(rng, d), covariance(rng, d), rng.normal(size=d)
    found = zv_reduction(v, noise, c)
    assert found.exact == pytest.approx(c @ np.linalg.solve(v, c), rel=1e-6)
    assert found.noisy == pytest.approx(c @ np.linalg.solve(v + noise, c), rel=1e-6)
    largest = np.linalg.eigvals(np.linalg.solve(v, noise)).real.max()
    assert found.bound == pytest.approx(found.exact / (1 + largest), rel=1e-6)
    assert found.bound <= found.noisy * (1 + 1e-9) and found.noisy <= found.exact
    tight = zv_reduction(v, 3.0 * v, c)
    assert tight.noisy == pytest.approx(tight.bound, rel=1e-6)
    assert zv_reduction(v, 0.0 * v, c).noisy == pytest.approx(found.exact, rel=1e-9)


@pytest.mark.parametrize(("num_rows", "batch_size"), [(10, 1), (1_000, 10), (1_000, 1_000)])
def test_the_thesis_bound_of_the_reduction_fails(num_rows, batch_size):
    """x_i = ±2 ~ N(θ, 1), flat prior: gradients θ - x_i, posterior N(0, 1/N), batches drawn with replacement."""
    rows = 2.0 * np.array([1.0, -1.0] * (num_rows // 2))
    gradient = num_rows**2 * (1 / num_rows)  # Var(N θ)
    noise = num_rows**2 / batch_size * rows.var()
    row_gradient = float(np.max(1 / num_rows + rows**2))  # the flat prior's is 0
    truth = zv_reduction(gradient, noise, 1.0)  # g = θ
    promised = zv_reduction_bound(truth.exact, noise, row_gradient, num_rows)
    assert truth.exact == pytest.approx(1 / num_rows)
    assert truth.noisy == pytest.approx(truth.bound) and truth.noisy == pytest.approx(
        truth.exact / (1 + 4 * num_rows / batch_size)
    )
    assert promised > 1.2 * truth.noisy
    # the lemma's inequality itself is true, on the wrong side
    assert gradient <= row_gradient * (num_rows + 1)


def test_wrong_covariances():
    eye = np.eye(2)
    for call, words in (
        (lambda: zv_reduction(eye, eye, np.ones(3)), r"shape \(3, 3\)"),
        (lambda: zv_reduction(0 * eye, eye, np.ones(2)), "positive definite"),
        (lambda: zv_reduction(eye, -eye, np.ones(2)), "no negative eigenvalue"),
        (lambda: zv_reduction([[1.0, 0.5], [0.0, 1.0]], eye, np.ones(2)), "symmetric"),
        (lambda: zv_reduction(eye, eye * np.nan, np.ones(2)), "`noise_covariance` must be finite"),
        (lambda: zv_reduction(eye, eye, eye), r"vector \(d,\)"),
        (lambda: zv_reduction_bound(1.0, 1.0, 0.0, 10), "row_gradient"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            call()
