"""Ten small posteriors of very different scale, dimension and correlation: what automatic tuning must cope with.

Columns are left in the units in which they come, and uncentred. The data are simulated in double precision and rounded
to single, so that every sampler sees the same numbers. Starts are values that are plain under the prior (0 for a
coefficient, about the median for a scale), never the mode. How the truth is found: `truth`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import transforms
from scirocco.errors import InvalidValueError
from scirocco.model import Model
from scirocco.types import Array, Data, Params, PyTree, Rows
from scirocco_papers.small_posteriors import regressions
from scirocco_papers.small_posteriors.regressions import Parts, log_lognormal_density, log_normal_density

_POSITIVE = transforms.positive


@dataclass(frozen=True, eq=False)
class SmallPosterior:
    """A model, its data, and a plain place to start.

    Parameters
    ----------
    name, note
        What it is called, and what is hard about it.
    model, data, start
        The first three arguments of `sc.sample`; `start` is in the user's units.
    """

    name: str
    model: Model
    data: Data
    start: Params
    note: str

    def log_density(self, position: Params, data: Data) -> Array:
        """The whole log posterior on the real line (with the Jacobian), in the precision of `position`."""
        return self.model.look(position, data)


def small_posteriors() -> list[SmallPosterior]:
    """All ten."""
    return [small_posterior(name) for name in NAMES]


@cache
def small_posterior(name: str, seed: int = 0) -> SmallPosterior:
    """One by name, with the data of a seed; the same object for the same arguments."""
    if name not in _MAKERS:
        raise InvalidValueError(f"there is no small posterior {name!r}; choose one of {', '.join(NAMES)}.")
    make, note = _MAKERS[name]
    model, data, start = make(np.random.default_rng([seed, NAMES.index(name)]))
    return SmallPosterior(name, model, _single(data), _single(start), note)


def _single(tree: PyTree) -> Any:
    """Floating-point leaves in single precision; group numbers stay whole."""
    kinds = {"f": np.float32, "i": np.int32}
    return jax.tree.map(lambda leaf: (leaf := np.asarray(leaf)).astype(kinds[leaf.dtype.kind]), tree)


# -- hierarchical normal -------------------------------------------------------------------------------------


def _hierarchical_rows(params: Params, rows: Rows) -> Array:
    return log_normal_density(rows["y"], params["theta"][rows["group"]], params["sigma"])


def _hierarchical_prior(params: Params) -> Array:
    return (
        log_normal_density(params["mu"], 400.0, 200.0)
        + log_lognormal_density(params["tau"], 50.0, 1.0)
        + log_lognormal_density(params["sigma"], 50.0, 1.0)
        + jnp.sum(log_normal_density(params["theta"], params["mu"], params["tau"]))
    )


def _hierarchical(rng: np.random.Generator) -> Parts:
    """Scores in twenty schools of unequal size."""
    n, groups = 1_000, 20
    size = rng.permutation(np.repeat([20, 35, 50, 65, 80], groups // 5))
    group = rng.permutation(np.repeat(np.arange(groups), size))
    y = rng.normal(500, 25, groups)[group] + rng.normal(0, 20, n)
    names = {"mu": None, "theta": None, "tau": _POSITIVE, "sigma": _POSITIVE}
    start = {"mu": 400.0, "theta": np.full(groups, 400.0), "tau": 50.0, "sigma": 50.0}
    model = Model(_hierarchical_rows, _hierarchical_prior, vectorized=True, transforms=names)
    return model, {"group": group, "y": y}, start


# -- mixture -------------------------------------------------------------------------------------------------


def _mixture_rows(params: Params, rows: Rows) -> Array:
    y, (m1, m2), (s1, s2) = rows["y"], params["means"], params["sds"]
    return jnp.logaddexp(
        jnp.log(params["weight"]) + log_normal_density(y, m1, s1),
        jnp.log1p(-params["weight"]) + log_normal_density(y, m2, s2),
    )


def _mixture_prior(params: Params) -> Array:
    """Uniform for the weight."""
    return jnp.sum(log_normal_density(params["means"], 3.0, 2.0)) + jnp.sum(
        log_lognormal_density(params["sds"], 1.0, 1.0)
    )


def _mixture(rng: np.random.Generator) -> Parts:
    """Eruptions, short and long, in minutes; the means are ordered, so the labels are fixed."""
    n = 2_000
    first = rng.uniform(size=n) < 0.35
    y = np.where(first, rng.normal(2.0, 0.25, n), rng.normal(4.3, 0.42, n))
    names = {"means": transforms.ordered, "sds": _POSITIVE, "weight": transforms.interval(0.0, 1.0)}
    start = {"means": np.array([1.0, 5.0]), "sds": np.ones(2), "weight": 0.5}
    return Model(_mixture_rows, _mixture_prior, vectorized=True, transforms=names), {"y": y}, start


# -- tiny numbers --------------------------------------------------------------------------------------------

TINY_PRIOR = {"strength": 0.01, "shape": 2.0, "rate": 3e-8}
"""σ² ~ inverse gamma(shape, rate), μ | σ ~ N(0, σ²/strength): conjugate."""


def _tiny_rows(params: Params, rows: Rows) -> Array:
    return log_normal_density(rows["y"], params["mu"], params["sigma"])


def _tiny_prior(params: Params) -> Array:
    sigma = params["sigma"]
    spread = sigma / TINY_PRIOR["strength"] ** 0.5
    variance = -(2 * TINY_PRIOR["shape"] + 1) * jnp.log(sigma) - TINY_PRIOR["rate"] / sigma**2
    return log_normal_density(params["mu"], 0.0, spread) + variance


def _tiny(rng: np.random.Generator) -> Parts:
    """Grains of sand, in metres."""
    names = {"mu": None, "sigma": _POSITIVE}
    model = Model(_tiny_rows, _tiny_prior, vectorized=True, transforms=names)
    return model, {"y": rng.normal(2.5e-4, 4.5e-5, 2_000)}, {"mu": 0.0, "sigma": 1e-4}


_MAKERS: dict[str, tuple[Callable[[np.random.Generator], Parts], str]] = {
    "linear": (regressions.linear, "raw units from shares to incomes; intercept and slopes correlated"),
    "logistic": (regressions.logistic_raw, "raw units, uncentred"),
    "poisson": (regressions.poisson, "offsets and large counts: the posterior is narrow"),
    "correlated": (regressions.logistic_correlated, "30 columns, neighbours correlated 0.95"),
    "student": (regressions.student, "t errors with unknown degrees of freedom"),
    "hierarchical": (_hierarchical, "twenty groups and their spread"),
    "mixture": (_mixture, "two normals; weight, means and spreads on transformed scales"),
    "tiny": (_tiny, "mean known to 1e-6 beside a spread known to 2 %"),
    "huge": (regressions.huge, "coefficients of 1e6 known to 1e3, correlated -0.99"),
    "softmax": (regressions.softmax, "three classes, units over two orders"),
}
NAMES = tuple(_MAKERS)
