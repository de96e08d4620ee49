"""Kernel Stein discrepancy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from scirocco.analysis import ksd
from scirocco.errors import InvalidTypeError, InvalidValueError


def by_differences(x: Any, s: Any, y: Any, t: Any, kernel: Any, step: float = 1e-4) -> float:
    """k₀(x, y) from the kernel alone, by central differences."""
    eye = np.eye(len(x)) * step
    in_x = np.array([(kernel(x + e, y) - kernel(x - e, y)) / (2 * step) for e in eye])
    in_y = np.array([(kernel(x, y + e) - kernel(x, y - e)) / (2 * step) for e in eye])
    mixed = sum(
        (kernel(x + e, y + e) - kernel(x + e, y - e) - kernel(x - e, y + e) + kernel(x - e, y - e))
        / (4 * step**2)
        for e in eye
    )
    return float(s @ t * kernel(x, y) + s @ in_y + t @ in_x + mixed)


@pytest.mark.parametrize("name", ["imq", "gaussian"])
def test_kernel_is_that_of_its_definition(name: str, seed: int) -> None:
    rng, c = np.random.default_rng(seed), 1.3
    x, s = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    kernels = {
        "imq": lambda a, b: (c**2 + np.sum((a - b) ** 2)) ** -0.5,
        "gaussian": lambda a, b: math.exp(-np.sum((a - b) ** 2) / (2 * c**2)),
    }
    exact = np.array(
        [
            [by_differences(*pair, kernels[name]) for pair in zip([a] * 5, [b] * 5, x, s, strict=True)]
            for a, b in zip(x, s, strict=True)
        ]
    )
    how: dict[str, Any] = {"kernel": name, "scale": c, "standardise": False}
    assert ksd(x, s, unbiased=False, **how).squared == pytest.approx(exact.mean(), abs=1e-5)
    off = exact.sum() - np.trace(exact)
    assert ksd(x, s, **how).squared == pytest.approx(off / 20, abs=1e-5)


def test_blocks_are_as_one(seed: int, monkeypatch: Any) -> None:
    from scirocco.analysis import stein

    x = np.random.default_rng(seed).normal(size=(230, 4))
    whole = ksd(x, -x)
    monkeypatch.setattr(stein, "_BLOCK", 50)
    parts = ksd(x, -x)
    np.testing.assert_allclose(parts, whole, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("name", ["imq", "gaussian"])
def test_exact_draws_have_none(name: str, seed: int) -> None:
    """The unbiased form has mean 0, with and without noise of the gradients."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(60):
        x = rng.normal(size=(150, 3))
        noisy = -x + rng.normal(size=x.shape)
        found.append([ksd(x, -x, kernel=name).squared, ksd(x, noisy, kernel=name).squared])
    error = np.std(found, axis=0, ddof=1) / math.sqrt(60)
    assert np.all(np.abs(np.mean(found, axis=0)) < 5.5 * error)


def test_falls_with_the_number_of_exact_draws(seed: int) -> None:
    """The biased form is E k₀(x, x)/n for independent exact draws: a quarter for four times as many."""
    rng = np.random.default_rng(seed)
    means = [
        np.mean(
            [
                ksd(x, -x, unbiased=False, scale=2.0, standardise=False).squared
                for x in rng.normal(size=(40, n, 2))
            ]
        )
        for n in (100, 400)
    ]
    assert 3.0 < means[0] / means[1] < 5.3


def test_tells_a_variance_that_is_a_tenth_too_large(seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(10_000, 3))
    right, wrong = ksd(x, -x), ksd(x * math.sqrt(1.1), -x * math.sqrt(1.1))
    # of exact draws the mean over pairs is of the order of 1/n, far below what a wrong variance makes
    assert wrong.squared > 5 * abs(right.squared) and wrong.squared > 2 * wrong.standard_error


def test_units_do_not_matter(seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(300, 3))
    units = np.array([1e-3, 1.0, 1e4])
    assert ksd(x * units + 7.0, -x / units).squared == pytest.approx(ksd(x, -x).squared, rel=1e-6, abs=1e-9)


def test_wrong_inputs() -> None:
    x = np.ones((4, 2))
    for draws, gradients, words in (
        (x, x[:3], "one shape"),
        (x[0], x[0], "one shape"),
        (x[:1], x[:1], "two draws"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            ksd(draws, gradients)
    with pytest.raises(InvalidValueError, match="number 2 is not"):
        ksd(x, np.where(np.arange(8).reshape(4, 2) == 4, np.nan, x))
    with pytest.raises(InvalidValueError, match="kernel"):
        ksd(x, x, kernel="rbf")
    with pytest.raises(InvalidValueError, match="scale"):
        ksd(x, x, scale=-1.0)
    with pytest.raises(InvalidTypeError, match="numbers"):
        ksd("draws", x)
