"""Newton's method with a Hessian that is handed to it, on tables that are hard for it."""

from __future__ import annotations

import numpy as np
import pytest

from scirocco.estimators.newton import Curve, ascend, inverse_root, whitening
from scirocco.models.regression.approximation import DesignRows, laplace

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]


def table(kind, rng):
    x = rng.standard_normal((300, 5))
    y = rng.random(300) < 1 / (1 + np.exp(-x[:, 0]))
    if kind == "separable":
        y = x[:, 0] > 0
    if kind == "collinear":
        x[:, 1], x[:, 2] = x[:, 0], x[:, 0] + 1e-5 * x[:, 2]
    if kind == "ill-scaled":
        x *= 10.0 ** np.linspace(-6, 6, 5)
    if kind == "few rows":
        x, y = rng.standard_normal((20, 50)), np.arange(20) % 2
    return x, y.astype(np.int32)


@pytest.mark.parametrize("kind", ["plain", "separable", "collinear", "ill-scaled", "few rows"])
def test_the_mode_is_found_to_rounding(seed, kind):
    """The distance of the gradient from 0, in posterior standard deviations; L whitens the Hessian."""
    x, y = table(kind, np.random.default_rng([seed, 3]))
    rows = DesignRows(x, y, 2, True)
    found = laplace(rows, 4.0)
    seen = rows.look(found.here.at[None])
    gradient = seen.gradient[0] - found.here.at / 4.0
    precision = seen.curvature + np.eye(len(gradient)) / 4.0
    scales = np.sqrt(np.diagonal(precision))
    assert np.max(np.abs(gradient) / scales) < 1e-6
    np.testing.assert_allclose(found.factor.T @ precision @ found.factor, np.eye(len(gradient)), atol=1e-4)


def test_regions_that_bend_the_wrong_way_are_left(seed):
    """log p = -(x² - 1)² has a minimum at 0, and undamped Newton steps would go there."""
    start = np.random.default_rng(seed).uniform(-0.4, 0.4, 3)

    def curve(x):
        return Curve(x, -np.sum((x**2 - 1) ** 2), -4 * x * (x**2 - 1), lambda: np.diag(4 * (3 * x**2 - 1)), None)

    found = ascend(curve(start), curve, most=100, close=1e-8)
    np.testing.assert_allclose(found.here.at, np.sign(start), atol=1e-6)


def test_steps_follow_the_gradient_where_the_hessian_is_not_finite():
    def curve(x):
        hessian = np.eye(2) if x[0] < 5 else np.full((2, 2), np.nan)
        return Curve(x, -0.5 * float(x @ x), -x, lambda: hessian, None)

    found = ascend(curve(np.array([9.0, 1.0])), curve, most=50, close=1e-8)
    np.testing.assert_allclose(found.here.at, 0.0, atol=1e-6)


def test_inverse_roots_of_matrices(seed):
    rng = np.random.default_rng([seed, 4])
    root = rng.standard_normal((4, 6)) * 10.0 ** np.arange(-2, 2)[:, None]
    precision = root @ root.T
    for factor in (inverse_root(precision), whitening(precision, 1e-14)[0]):
        np.testing.assert_allclose(factor.T @ precision @ factor, np.eye(4), atol=1e-8)
    indefinite = np.diag([4.0, -1.0])
    np.testing.assert_allclose(inverse_root(indefinite) @ inverse_root(indefinite).T, np.diag([0.25, 1.0]))
