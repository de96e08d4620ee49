"""The plain call on all of covertype beside NUTS: effective draws of the worst coefficient per second, cold.

    python benchmarks/covertype_default.py                              # about eight minutes on a CPU
    python benchmarks/covertype_default.py --data cov34.npz             # rows from a file: x (integers or floats), y
    python benchmarks/covertype_default.py --write cov34.npz            # make that file, and stop
    python benchmarks/covertype_default.py --rival-seconds 60 --quick   # does it run? (a tenth of the rows)

Logistic regression, class 2 against the rest, 581,012 rows × 34 columns: those that are not 0 in at least 1 % of the
rows, standardised, and a column of ones; prior N(0, 10). The file has the columns as the integers that they are: they
are standardised after loading, in double precision, so that nothing is rounded twice.

Seconds by the clock and of the CPU, compiling and set-up included.
plain     `sc.sample(model, data, zeros)` and nothing else, certificate included.
NumPyro   NUTS with a dense mass matrix, started at the mode, which costs it nothing; its warm-up counts.
BlackJAX  NUTS that is handed the mode and the covariance there at no cost; 30 iterations find its step size.
A rival runs until it has its draws or its time is up (of the CPU on a CPU, by the clock elsewhere): effective draws per
second are those of the draws that it has. One that is still warming up has none. The exit status is 0 in any case.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import scirocco as sc
from scirocco.diagnostics.measures import ess

PRIOR_VARIANCE, COMMON = 10.0, 0.01
BAR = 30.0
_NEWTON_STEPS, _CHUNK = 30, 1 << 16


def log_likelihood(beta: Any, row: Any) -> Any:
    """Of one row."""
    score = row["x"] @ beta
    return row["y"] * score - jax.nn.softplus(score)


MODEL = sc.Model(log_likelihood, lambda beta: -0.5 * jnp.sum(beta**2) / PRIOR_VARIANCE)


def raw_columns() -> dict[str, np.ndarray]:
    """The common columns and one of ones, as integers."""
    data = sc.datasets.covertype(raw=True)
    kept = np.mean(data.X != 0, axis=0) >= COMMON
    return {
        "x": np.column_stack([np.ones(len(data.X), np.int16), data.X[:, kept]]).astype(np.int16),
        "y": (np.asarray(data.y) == 2).astype(np.uint8),
    }


def standardised(raw: Any, every: int) -> dict[str, np.ndarray]:
    """Mean 0 and variance 1; a constant column stays 1."""
    x = np.asarray(raw["x"][::every], np.float64)
    spread = x.std(axis=0)
    x = np.where(spread > 0, (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0), 1.0)
    return {"x": np.ascontiguousarray(x, np.float32), "y": np.asarray(raw["y"][::every], np.float32)}


def mode_of(rows: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The mode and the covariance there, by Newton steps in double precision."""
    beta = np.zeros(rows["x"].shape[1])
    for _ in range(_NEWTON_STEPS):
        gradient, curvature = -beta / PRIOR_VARIANCE, np.eye(len(beta)) / PRIOR_VARIANCE
        for begin in range(0, len(rows["y"]), _CHUNK):
            x = rows["x"][begin : begin + _CHUNK].astype(np.float64)
            chance = 1 / (1 + np.exp(-x @ beta))
            gradient = gradient + (rows["y"][begin : begin + _CHUNK] - chance) @ x
            curvature = curvature + (x * (chance * (1 - chance))[:, None]).T @ x
        step = np.linalg.solve(curvature, gradient)
        beta = beta + step
        if gradient @ step < 1e-8:
            return beta, np.linalg.inv(curvature)
    raise RuntimeError(f"no mode in {_NEWTON_STEPS} Newton steps.")


def plain(rows: dict[str, np.ndarray]) -> tuple[np.ndarray, str]:
    """What a newcomer types."""
    run = sc.sample(MODEL, rows, jnp.zeros(rows["x"].shape[1]), progress=False)
    return np.asarray(run.draws), f"{run.preparation['chosen']}; certificate: {run.certificate}"


class Until:
    """Iterates a compiled step until there are enough states or time is up."""

    def __init__(self, seconds: float):
        self.clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
        self.end = self.clock() + seconds

    def iterate(self, step: Callable[[Any], Any], state: Any, most: int) -> tuple[Any, list[Any]]:
        """The last state, and all of them."""
        states: list[Any] = []
        while len(states) < most and self.clock() < self.end:
            state = jax.block_until_ready(step(state))
            states.append(state)
        return state, states


def numpyro_nuts(
    rows: dict[str, np.ndarray], mode: np.ndarray, seconds: float, chains: int, warmup: int, draws: int
) -> tuple[np.ndarray, str]:
    """Draws after the warm-up (chain, draw, coefficient)."""
    import numpyro
    from numpyro.distributions import Bernoulli, Normal
    from numpyro.infer import NUTS

    def model(x: Any, y: Any) -> None:
        beta = numpyro.sample("beta", Normal(jnp.zeros(x.shape[1]), PRIOR_VARIANCE**0.5).to_event(1))
        numpyro.sample("y", Bernoulli(logits=x @ beta), obs=y)

    until = Until(seconds)
    arguments = (jnp.asarray(rows["x"]), jnp.asarray(rows["y"]))
    kernel = NUTS(model, dense_mass=True)
    key = jax.random.PRNGKey(0)
    keys, start = (jax.random.split(key, chains), np.tile(mode, (chains, 1))) if chains > 1 else (key, mode)
    state = kernel.init(keys, warmup, {"beta": jnp.asarray(start, jnp.float32)}, arguments, {})
    step = jax.jit(lambda state, arguments: kernel.sample(state, arguments, {}))
    state, warm = until.iterate(lambda state: step(state, arguments), state, warmup)
    _, states = until.iterate(lambda state: step(state, arguments), state, draws)
    found = [np.reshape(each.z["beta"], (chains, -1)) for each in states]
    empty = np.zeros((chains, 0, mode.size))
    return np.stack(found, axis=1) if found else empty, f"{len(warm)} of {warmup} iterations of warm-up"


def blackjax_nuts(
    rows: dict[str, np.ndarray], mode: np.ndarray, covariance: np.ndarray, seconds: float, chains: int, draws: int
) -> tuple[np.ndarray, str]:
    """Draws after the search for a step size (chain, draw, coefficient)."""
    import blackjax
    from blackjax.optimizers.dual_averaging import dual_averaging

    until, kernel = Until(seconds), blackjax.nuts.build_kernel()
    data = {name: jnp.asarray(leaf) for name, leaf in rows.items()}
    metric = jnp.asarray(covariance, jnp.float32)

    def density(data: Any) -> Callable[[Any], Any]:
        return lambda beta: MODEL.look(beta, data)

    @jax.jit
    def step(states: Any, key: Any, size: Any, data: Any) -> Any:
        keys = jax.random.split(key, chains)
        move = jax.vmap(lambda key, state: kernel(key, state, density(data), size, metric))
        return move(keys, states)

    start = jnp.asarray(np.tile(mode, (chains, 1)), jnp.float32)
    state = jax.jit(jax.vmap(lambda at, data: blackjax.nuts.init(at, density(data)), (0, None)))(start, data)
    begin, update, final = dual_averaging()
    search, keys = begin(0.5), iter(jax.random.split(jax.random.key(0), 100_000))
    for _ in range(30):
        state, info = jax.block_until_ready(step(state, next(keys), jnp.exp(search.log_x), data))
        search = update(search, 0.8 - jnp.mean(info.acceptance_rate))
    size = jnp.asarray(final(search))
    _, states = until.iterate(lambda state: step(state, next(keys), size, data)[0], state, draws)
    found = [np.asarray(each.position) for each in states]
    empty = np.zeros((chains, 0, mode.size))
    return np.stack(found, axis=1) if found else empty, f"step size {float(size):.2g}"


def measured(name: str, side: Callable[[], tuple[np.ndarray, str]], laplace: Any) -> dict[str, Any]:
    """One line: seconds, effective draws, and how far moments are from those of the Laplace approximation."""
    wall, cpu = time.perf_counter(), time.process_time()
    draws, words = side()
    found: dict[str, Any] = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    found |= {"draws": int(draws.shape[0] * draws.shape[1]), "ess": 0.0, "words": words}
    errors = ""
    if draws.shape[1] >= 8:
        draws = draws.astype(np.float64)
        found["ess"] = float(np.min(ess(draws)))
        mode, covariance = laplace
        sd = np.sqrt(np.diagonal(covariance))
        means = (draws.mean(axis=(0, 1)) - mode) / sd
        ratio = draws.reshape(-1, len(mode)).std(axis=0) / sd
        found |= {"mean": float(np.abs(means).max()), "sd": [float(ratio.min()), float(ratio.max())]}
        errors = f"means within {found['mean']:.2f} sd, sds {ratio.min():.2f}-{ratio.max():.2f} of Laplace's"
    found["per_second"], found["per_cpu"] = found["ess"] / found["wall"], found["ess"] / found["cpu"]
    print(
        f"{name:10}{found['wall']:8.1f} s {found['cpu']:8.1f} CPU s {found['draws']:7,} draws, min ESS "
        f"{found['ess']:8,.0f}: {found['per_second']:9.3f} per s, {found['per_cpu']:9.3f} per CPU s   {errors}\n"
        f"          {words}",
        flush=True,
    )
    return found


def main() -> None:
    """Print a line for each side, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="FILE.npz")
    parser.add_argument("--write", type=Path, metavar="FILE.npz")
    parser.add_argument("--rival-seconds", type=float, default=240.0)
    parser.add_argument("--chains", type=int, help="of the rivals: by default 1 on a CPU, where they share it, else 4")
    parser.add_argument("--warmup", type=int, default=150, help="iterations of NumPyro's warm-up")
    parser.add_argument("--draws", type=int, default=500, help="of each of a rival's chains")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all numbers to this file")
    options = parser.parse_args()
    raw = raw_columns() if options.data is None else np.load(options.data)
    if options.write is not None:
        np.savez_compressed(options.write, x=raw["x"], y=raw["y"])
        return
    rows = standardised(raw, 10 if options.quick else 1)
    chains = options.chains or (1 if jax.default_backend() == "cpu" else 4)
    laplace = mode, covariance = mode_of(rows)
    scales = np.linalg.eigvalsh(covariance)
    print(
        f"{rows['x'].shape[0]:,} rows × {rows['x'].shape[1]} columns on {jax.devices()[0].device_kind}; condition of "
        f"the covariance {scales[-1] / scales[0]:.2g}",
        flush=True,
    )
    found = {"plain": measured("plain", lambda: plain(rows), laplace)}
    how = (options.rival_seconds, chains)
    if importlib.util.find_spec("numpyro") is not None:
        found["NumPyro"] = measured(
            "NumPyro", lambda: numpyro_nuts(rows, mode, *how, options.warmup, options.draws), laplace
        )
    if importlib.util.find_spec("blackjax") is not None:
        found["BlackJAX"] = measured(
            "BlackJAX", lambda: blackjax_nuts(rows, mode, covariance, *how, options.draws), laplace
        )
    for name in [name for name in found if name != "plain"]:
        other = found[name]
        if other["ess"] == 0:
            print(f"plain / {name}: no draw of {name}'s within {other['wall']:.0f} s")
            continue
        ratio, of_cpu = (found["plain"][kind] / other[kind] for kind in ("per_second", "per_cpu"))
        met = "met" if ratio >= BAR else "NOT met"
        print(f"plain / {name}: {ratio:.1f} per s ({of_cpu:.1f} per CPU s)   (bar >= {BAR:g}: {met})")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
