"""Simulation-based calibration of the ready-made models, through `fit`: `sc.analysis.sbc`.

    python benchmarks/calibration.py                         # all of them, 200 data sets each, one after the other
    python benchmarks/calibration.py poisson glmm --sets 50
    python benchmarks/calibration.py --workers 4             # on so many processes of this machine

Parameters are drawn from the prior that a model documents, and data given them. A prior that is centred at the data
cannot be simulated from, so regressions have a column of ones instead of an intercept. Where noise is measured in
units of the response (Student's t), only data sets whose unit is within 2 % of 1 are used: a condition on the data
leaves posteriors as they are. All p-values of a model must exceed 0.01 / their number.
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


def regression(name: str, response: Callable[..., Any], shape: tuple[int, ...] = (3,), **settings: Any) -> Case:
    """Coefficients are standard normal, a dispersion is Exponential(1); `response(key, eta, params)`."""

    @jax.jit
    def simulate(key: Any) -> tuple[Any, Any]:
        first, second, third = jax.random.split(key, 3)
        params = {"coef": jax.random.normal(first, shape)}
        if response is negative_binomial:
            params["dispersion"] = jax.random.exponential(second)
        return params, {"y": response(third, X @ params["coef"].T, params)}

    return Case(simulate, _fit(name, **settings))


def _fit(name: str, **settings: Any) -> Callable[[Any, int], Any]:
    def fit(data: Any, seed: int) -> Any:
        model = getattr(sc.models, name)(**PLAIN, **LENGTH, seed=seed, **settings)
        return model.fit(X, np.asarray(data["y"]), progress=False).draws_

    return fit


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


def student() -> Case:
    """Noise Exponential(1) and degrees of freedom Gamma(2, 0.1), in units of 1.48 median absolute deviations of y."""
    tried = 1_000

    def once(key: Any) -> tuple[Any, Any, Any]:
        keys = jax.random.split(key, 4)
        params = {"coef": jax.random.normal(keys[0], (3,)), "noise": jax.random.exponential(keys[1])}
        params["freedom"] = 10.0 * jax.random.gamma(keys[2], 2.0)
        y = X @ params["coef"] + params["noise"] * jax.random.t(keys[3], params["freedom"], (ROWS,))
        return params, y, 1.4826 * jnp.median(jnp.abs(y - jnp.median(y)))

    @jax.jit
    def first(key: Any) -> tuple[Any, Any, Any]:
        params, y, unit = jax.vmap(once)(jax.random.split(key, tried))
        usable = jnp.abs(unit - 1.0) < 0.02
        place = jnp.argmax(usable)
        return {name: leaf[place] for name, leaf in params.items()}, {"y": y[place]}, usable.any()

    def simulate(key: Any) -> tuple[Any, Any]:
        while True:
            key, own = jax.random.split(key)
            params, data, found = first(own)
            if found:
                return params, data

    return Case(simulate, _fit("StudentRegression"))


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
    "negative_binomial": lambda: regression("NegativeBinomialRegression", negative_binomial, standardise=False),
    "student": student,
    "glmm": lambda: mixed("user"),
    "crossed": lambda: mixed("user", "film"),
}


def chi_square(ranks: np.ndarray, num_ranks: int) -> float:
    """Of ten bins; 9 degrees of freedom. The p-values of `sbc` are those of another, sharper test."""
    counts = np.bincount(10 * ranks // (num_ranks + 1), minlength=10)
    return float(np.sum((counts - len(ranks) / 10) ** 2) / (len(ranks) / 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(CASES)}")
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--each", action="store_true", help="also a line for every parameter")
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
            for place, quantity in enumerate(found.names if options.each else ()):
                chi2 = chi_square(found.ranks[:, place], found.num_ranks)
                print(f"    {quantity}: chi2 {chi2:.1f} of 9, p = {found.p_values[place]:.2g}", flush=True)
            if not found.ok:
                print(f"\n{name}: {found.words}\n")


if __name__ == "__main__":
    main()
