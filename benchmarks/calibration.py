"""Simulation-based calibration of the ready-made models, through `fit`: `sc.analysis.sbc`.

    python benchmarks/calibration.py                         # all of them, 200 data sets each, one after the other
    python benchmarks/calibration.py poisson glmm --sets 50
    python benchmarks/calibration.py --workers 4             # on so many processes of this machine

Parameters are drawn from the prior that a model documents, and data given them. A prior that is centred at the data
cannot be simulated from, so regressions have a column of ones instead of an intercept, and noise that is measured in
units of the response is known or left out. All p-values of a model must exceed 0.01 / their number.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import scirocco as sc

ROWS, GROUPS = 60, 15
COLUMNS = np.random.default_rng(0).normal(size=(ROWS, 2))
COLUMNS = (COLUMNS - COLUMNS.mean(axis=0)) / COLUMNS.std(axis=0)
X = np.column_stack([np.ones(ROWS), COLUMNS]).astype(np.float32)
PLAIN = {"prior": "normal", "scale": 1.0, "intercept": False, "constant_columns": "keep"}
LENGTH = {"num_samples": 250, "num_chains": 4}
ITEMS = {"user": np.arange(ROWS) % GROUPS, "film": np.arange(ROWS) // 5 % 12}


class Case(NamedTuple):
    """A model of `sc.models`, and data from its prior."""

    simulate: Callable[[Any], tuple[Any, Any]]
    fit: Callable[[Any, int], Any]


def regression(
    name: str, response: Callable[..., Any], shape: tuple[int, ...] = (3,), **settings: Any
) -> Case:
    """Coefficients are standard normal, a dispersion is Exponential(1); `response(key, eta, params)`."""

    @jax.jit
    def simulate(key: Any) -> tuple[Any, Any]:
        first, second, third = jax.random.split(key, 3)
        params = {"coef": jax.random.normal(first, shape)}
        if response is negative_binomial:
            params["dispersion"] = jax.random.exponential(second)
        return params, {"y": response(third, X @ params["coef"].T, params)}

    def fit(data: Any, seed: int) -> Any:
        model = getattr(sc.models, name)(**PLAIN, **LENGTH, seed=seed, **settings)
        return model.fit(X, np.asarray(data["y"]), progress=False).draws_

    return Case(simulate, fit)


def poisson(key: Any, eta: Any, params: Any) -> Any:
    return jax.random.poisson(key, jnp.exp(eta))


def negative_binomial(key: Any, eta: Any, params: Any) -> Any:
    """A Poisson variable whose mean is a gamma variable: variance μ + dispersion μ²."""
    first, second = jax.random.split(key)
    shape = 1.0 / params["dispersion"]
    return jax.random.poisson(second, jnp.exp(eta) * jax.random.gamma(first, shape, eta.shape) / shape)


def bernoulli(key: Any, eta: Any, params: Any) -> Any:
    return jax.random.bernoulli(key, jax.nn.sigmoid(eta))


def categorical(key: Any, eta: Any, params: Any) -> Any:
    return jax.random.categorical(key, jnp.column_stack([jnp.zeros(len(eta)), eta]))


def normal(key: Any, eta: Any, params: Any) -> Any:
    return eta + 0.7 * jax.random.normal(key, eta.shape)


def mixed(*factors: str) -> Case:
    """GLMM: coefficients Normal(0, 2.5²), deviations half-normal with scale 2.5. Tables of one value are left out."""
    import pandas

    @jax.jit
    def once(key: Any) -> tuple[Any, Any]:
        keys = jax.random.split(key, 2 + 2 * len(factors))
        coef = 2.5 * jax.random.normal(keys[0], (2,))
        params, eta = {"one": coef[0], "x": coef[1]}, coef[0] + coef[1] * X[:, 1]
        for place, factor in enumerate(factors):
            sd = params[f"sd({factor}: Intercept)"] = jnp.abs(2.5 * jax.random.normal(keys[2 + 2 * place]))
            eta = eta + sd * jax.random.normal(keys[3 + 2 * place], (GROUPS,))[ITEMS[factor]]
        return params, {"y": jax.random.bernoulli(keys[1], jax.nn.sigmoid(eta))}

    def simulate(key: Any) -> tuple[Any, Any]:
        while True:
            key, own = jax.random.split(key)
            params, data = once(own)
            if 0 < data["y"].sum() < ROWS:
                return params, data

    def fit(data: Any, seed: int) -> Any:
        frame = pandas.DataFrame({"y": np.asarray(data["y"], float), "x": X[:, 1], "one": 1.0, **ITEMS})
        terms = " + ".join(f"(1 | {factor})" for factor in factors)
        model = sc.models.GLMM(f"y ~ 0 + one + x + {terms}", "bernoulli", **LENGTH, seed=seed)
        return model.fit(frame, progress=False).named_draws()

    return Case(simulate, fit)


CASES: dict[str, Callable[[], Case]] = {
    "linear": lambda: regression("LinearRegression", normal, noise=0.7),
    "logistic": lambda: regression("LogisticRegression", bernoulli, classes=[False, True]),
    "softmax": lambda: regression("SoftmaxRegression", categorical, (2, 3), classes=[0, 1, 2]),
    "poisson": lambda: regression("PoissonRegression", poisson, standardise=False),
    "negative_binomial": lambda: regression(
        "NegativeBinomialRegression", negative_binomial, standardise=False
    ),
    "glmm": lambda: mixed("user"),
    "crossed": lambda: mixed("user", "film"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(CASES)}")
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(sc.cluster.local(options.workers)) if options.workers else None
        print("| model | data sets | draws compared | quantities | smallest p-value | warned | s |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for name in options.models or CASES:
            case, begin = CASES[name](), time.perf_counter()
            found = sc.analysis.sbc(
                case.fit, case.simulate, num_replications=options.sets, seed=options.seed, client=client
            )
            least = int(np.argmin(found.p_values))
            told = sum(found.warned.values())
            print(
                f"| {name} | {found.num_replications} | {found.num_ranks} | {len(found.names)} | "
                f"{found.p_values[least]:.2g} ({found.names[least]}) | {told} | {time.perf_counter() - begin:.0f} |",
                flush=True,
            )
            if not found.ok:
                print(f"\n{name}: {found.words}\n")


if __name__ == "__main__":
    main()
