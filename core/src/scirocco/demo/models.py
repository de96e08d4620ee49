"""Three models of the demonstration: small data simulated from a seed, the line that fits them, what it finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from scirocco import models

__all__ = ["MODELS", "Shown"]


class Shown(NamedTuple):
    """A model that is shown."""

    line: str
    """What a user types."""
    fit: Callable[[np.random.Generator], str]
    """Simulates data, fits, and says what was found."""


def fit_formula(rng: np.random.Generator) -> str:
    """Sales fall with the price, and less so at weekends."""
    import pandas as pd

    price, weekend = rng.uniform(1.0, 3.0, 4_000), rng.integers(0, 2, 4_000)
    mean = 10.0 - 2.0 * price + 1.5 * weekend * price
    table = pd.DataFrame({"price": price, "weekend": weekend, "sales": mean + rng.normal(0.0, 1.0, 4_000)})
    model = models.LinearRegression.from_formula("sales ~ price * weekend", table, progress=False)
    low, high = model.coef_interval_(0.9)
    return f"price: {model.coef_[0]:.2f} (90 %: {low[0]:.2f} to {high[0]:.2f}; the data have -2)"


def fit_texts(rng: np.random.Generator) -> str:
    """Texts about the sky or a farm."""
    words = np.array([["sun", "moon", "star", "comet"], ["cow", "horse", "sheep", "goat"]])
    texts = [" ".join(rng.choice(words[which % 2], 12)) for which in range(300)]
    model = models.LDA(2).fit(texts, progress=False)
    return "; ".join(" ".join(topic) for topic in model.top_words(4))


def fit_network(rng: np.random.Generator) -> str:
    """A hundred nodes in two blocks, inside of which there are more edges."""
    block = np.arange(100) % 2
    chance = np.where(block[:, None] == block[None, :], 0.3, 0.03)
    edges = np.argwhere(np.triu(rng.random((100, 100)) < chance, 1))
    model = models.StochasticBlockModel().fit(edges, progress=False)
    sizes = " and ".join(str(nodes) for nodes in model.blocks()["nodes"])
    return f"{len(edges)} edges of 100 nodes: blocks of {sizes}"


MODELS = (
    Shown('sc.models.LinearRegression.from_formula("sales ~ price * weekend", table)', fit_formula),
    Shown("sc.models.LDA(2).fit(texts)", fit_texts),
    Shown("sc.models.StochasticBlockModel().fit(edges)", fit_network),
)
