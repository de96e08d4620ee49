"""Kernel Stein discrepancy."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from scirocco._stein import stein_kernel
from scirocco.analysis import ksd
from scirocco.errors import InvalidTypeError, InvalidValueError

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]


def by_differences(x: Any, s: Any, y: Any, t: Any, kernel: Any, step: float = 1e-4) -> float:
    """k₀(x, y) from the kernel alone, by central differences."""
    eye = np.eye(len(x)) * step
    in_x = np.array([(kernel(x + e, y) - kernel(x - e, y)) / (2 * step) for e in eye])
    in_y = np.array([(kernel(x, y + e) - kernel(x, y - e)) / (2 * step) for e in eye])
    mixed = sum(
        (kernel(x + e, y + e) - kernel(x + e, y - e) - kernel(x - e, y + e) + kernel(x - e, y - e)) / (4 * step**2)
        for e in eye
    )
    return float(s @ t * kernel(x, y) + s @ in_y + t @ in_x + mixed)


def test_kernel_is_that_of_its_definition(seed: int) -> None:
    rng, c = np.random.default_rng(seed), 1.3
    x, s = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))

    def kernel(a: Any, b: Any) -> Any:
        return (c**2 + np.sum((a - b) ** 2)) ** -0.5

    exact = np.array(
        [
            [by_differences(*pair, kernel) for pair in zip([a] * 5, [b] * 5, x, s, strict=True)]
            for a, b in zip(x, s, strict=True)
        ]
    )
    how: dict[str, Any] = {"scale": c, "standardise": False}
    assert ksd(x, s, unbiased=False, **how).squared == pytest.approx(exact.mean(), abs=1e-5)
    off = exact.sum() - np.trace(exact)
    assert ksd(x, s, **how).squared == pytest.approx(off / 20, abs=1e-5)


def test_blocks_are_as_one(seed: int) -> None:
    """Draws that all stand twice have the same mean over all pairs; 1,024 are a block."""
    x = np.random.default_rng(seed).normal(size=(700, 4))
    twice, how = np.concatenate([x, x]), {"unbiased": False, "scale": 1.0, "standardise": False}
    assert ksd(twice, -twice, **how).squared == pytest.approx(ksd(x, -x, **how).squared, rel=1e-9, abs=1e-14)


def test_exact_draws_have_none(seed: int) -> None:
    """The unbiased form has mean 0, with and without noise of the gradients."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(60):
        x = rng.normal(size=(150, 3))
        noisy = -x + rng.normal(size=x.shape)
        found.append([ksd(x, -x).squared, ksd(x, noisy).squared])
    error = np.std(found, axis=0, ddof=1) / math.sqrt(60)
    assert np.all(np.abs(np.mean(found, axis=0)) < 5.5 * error)


def test_tells_a_variance_that_is_a_fifth_too_large(seed: int) -> None:
    """By z-scores. For exact draws the mean over pairs has the variance 2 E k₀²/n², which falls like 1/n²."""
    x = np.random.default_rng(seed).normal(size=(4_000, 3))
    how: dict[str, Any] = {"scale": 1.0, "standardise": False}
    right, wrong = (ksd(y, -y, **how).squared for y in (x, x * math.sqrt(1.2)))
    values = stein_kernel(np, x[:1_000], -x[:1_000], x[1_000:2_000], -x[1_000:2_000], 1.0)
    noise = math.sqrt(2 * np.mean(values**2)) / len(x)
    assert abs(right) < 5 * noise  # at this scale the wrong variance is about 18 of them
    assert wrong > 5 * noise


def test_units_do_not_matter(seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(300, 3))
    units = np.array([1e-3, 1.0, 1e4])
    assert ksd(x * units + 7.0, -x / units).squared == pytest.approx(ksd(x, -x).squared, rel=1e-6, abs=1e-9)


def test_wrong_inputs() -> None:
    x = np.ones((4, 2))
    for draws, gradients, words in (
        (x, x[:3], "the same shape"),
        (x[0], x[0], "the same shape"),
        (x[:1], x[:1], "two draws"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            ksd(draws, gradients)
    with pytest.raises(InvalidValueError, match="number 2 is not"):
        ksd(x, np.where(np.arange(8).reshape(4, 2) == 4, np.nan, x))
    with pytest.raises(InvalidValueError, match="scale"):
        ksd(x, x, scale=-1.0)
    with pytest.raises(InvalidTypeError, match="numbers"):
        ksd("draws", x)
    with pytest.raises(InvalidTypeError, match=r"requires `gradients`.*keep_gradients=True"):
        ksd(x)


def test_exact_draws_fall_like_the_root_of_their_number(seed: int) -> None:
    """√ of the mean of the biased form, over n from 50 to 800: slope -½, and the constant E k₀(x, x)."""
    rng, scale = np.random.default_rng(seed), 2.0
    counts = np.array([50, 200, 800])
    how: dict[str, Any] = {"unbiased": False, "scale": scale, "standardise": False}
    squares = [np.mean([ksd(x, -x, **how).squared for x in rng.normal(size=(6_400 // n, n, 2))]) for n in counts]
    own = 2.0 / scale + 2.0 / scale**3  # E|s|² = 2 for two standard normal coordinates
    np.testing.assert_allclose(np.array(squares) * counts / own, 1.0, atol=0.5)
    slope = np.polyfit(np.log(counts), 0.5 * np.log(squares), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.12)


def test_noisy_gradients_add_noise_but_no_bias(seed: int) -> None:
    """Draws that are too wide: the mean over noisy gradients is that with exact ones."""
    rng = np.random.default_rng(seed)
    x = 1.3 * rng.normal(size=(250, 3))
    how: dict[str, Any] = {"scale": 2.0, "standardise": False}
    exact = ksd(x, -x, **how).squared
    found = [ksd(x, -x + 2.0 * rng.normal(size=x.shape), **how).squared for _ in range(60)]
    assert abs(np.mean(found) - exact) < 5.5 * np.std(found, ddof=1) / math.sqrt(60)


def test_memory_grows_with_the_draws_alone(seed: int) -> None:
    """All pairs of 6,000 draws would be 0.3 GB."""
    x = np.random.default_rng(seed).normal(size=(6_000, 5))
    tracemalloc.start()
    try:
        ksd(x, -x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100e6
