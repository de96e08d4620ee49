"""Regressions: Poisson counts, 10⁶ rows and 20 columns, beside scikit-learn's mode and NumPyro's NUTS.

    python benchmarks/regressions.py     # CPU and wall seconds of a fit from call to summary, and its error

Use two cores (`taskset -c 0,1`). NumPyro runs on a part of the rows and its time is scaled to all of them: a gradient
of NUTS is a pass over the rows. scikit-learn's `PoissonRegressor` finds the mode only: a point without intervals.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import scirocco as sc

ROWS, COLUMNS, PART = 1_000_000, 20, 20_000


def timed(name: str, call: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{name:60s} {cpu:8.1f} CPU s {wall:8.1f} s", flush=True)
    return found, cpu


def counts(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Correlated columns, and counts with a mean of about 2."""
    rng = np.random.default_rng(0)
    mixing = np.eye(COLUMNS) + 0.3 * rng.normal(size=(COLUMNS, COLUMNS)) / COLUMNS**0.5
    X = (rng.normal(size=(num_rows, COLUMNS)) @ mixing).astype(np.float32)
    beta = 0.2 * rng.normal(size=COLUMNS)
    return X, rng.poisson(np.exp(0.5 + X @ beta)).astype(np.float32)


def exact(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mode and standard deviations of the coefficients, by Newton's method: d / N away from the posterior's."""
    Z = np.c_[np.asarray(X, np.float64), np.ones(len(X))]
    penalty = np.r_[(X.std(axis=0) / 2.5) ** 2, 0.01]
    theta = np.r_[np.zeros(X.shape[1]), np.log(y.mean())]
    for _ in range(12):
        mean = np.exp(Z @ theta)
        curvature = Z.T @ (mean[:, None] * Z) + np.diag(penalty)
        theta = theta + np.linalg.solve(curvature, Z.T @ (y - mean) - penalty * theta)
    return theta[:-1], np.sqrt(np.diagonal(np.linalg.inv(curvature)))[:-1]


def speed() -> None:
    """One fit, from the call to the summary, with everything that is compiled."""
    X, y = counts(ROWS)
    model = sc.models.PoissonRegression(seed=1)
    _, ours = timed(
        f"PoissonRegression, {ROWS:,} rows, call to summary", lambda: model.fit(X, y, progress=False).summary()
    )
    print("chosen:", model.run_.preparation["chosen"])
    summary = model.summary(digits=None)
    mode, sd = exact(X, y)
    drawn = model.draws_["coef"].reshape(-1, COLUMNS)
    print(f"largest |mean - mode| {np.max(np.abs(drawn.mean(axis=0) - mode) / sd):.3f} sd, sd / exact "
          f"{(drawn.std(axis=0) / sd).min():.3f} to {(drawn.std(axis=0) / sd).max():.3f}, smallest ESS "
          f"{summary['ess_bulk'].min():.0f}, largest R-hat {summary['r_hat'].max():.3f}")  # fmt: skip
    from sklearn.linear_model import PoissonRegressor

    _, point = timed(
        "scikit-learn's PoissonRegressor (newton-cholesky), mode only",
        lambda: PoissonRegressor(alpha=1e-6, solver="newton-cholesky").fit(X.astype(np.float64), y),
    )
    theirs, ess = numpyro_on(X[:PART], y[:PART])
    whole = theirs * ROWS / PART
    print(f"NumPyro scaled to {ROWS:,} rows: {whole:,.0f} CPU s, smallest ESS {ess:.0f}")
    ratio = (summary["ess_bulk"].min() / ours) / (ess / whole)
    print(f"effective draws per CPU second, ours / NumPyro (scaled): {ratio:.0f}; ours / scikit-learn's mode: "
          f"{ours / point:.1f} times its CPU seconds")  # fmt: skip


def numpyro_on(X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """CPU seconds of sampling, without compiling, and the smallest ESS."""
    import numpyro
    from numpyro import distributions as dist
    from numpyro.diagnostics import summary
    from numpyro.infer import MCMC, NUTS

    scale = 2.5 / X.std(axis=0)

    def model(X: Any, y: Any) -> None:
        beta = numpyro.sample("beta", dist.Normal(jnp.zeros(COLUMNS), scale).to_event(1))
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 10.0))
        numpyro.sample("y", dist.Poisson(jnp.exp(X @ beta + intercept)), obs=y)

    chain = MCMC(NUTS(model), num_warmup=300, num_samples=500, progress_bar=False)
    chain.run(jax.random.key(0), X, y)  # compiles
    _, cpu = timed(f"NumPyro NUTS, {len(X):,} rows, 300 + 500 draws", lambda: chain.run(jax.random.key(1), X, y))
    found = summary(chain.get_samples(group_by_chain=True))
    return cpu, float(found["beta"]["n_eff"].min())


if __name__ == "__main__":
    speed()
