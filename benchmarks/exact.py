"""Exact samplers that read few rows, beside NUTS and BAOAB with control variates: effective draws per CPU second.

    python benchmarks/exact.py                        # logistic regressions of 10^4, 10^5, 10^6 rows, 10 columns
    python benchmarks/exact.py --data cov34.npz       # and covertype (covertype_default.py --write makes the file)
    python benchmarks/exact.py --quick --json out.json

One chain each, on one core. Our samplers run twice, and the second call counts, without compiling; with and without its
set-up (the search for the mode, and passes over the rows). NumPyro's NUTS starts at the mode with the covariance that
`sc.SMH` found, and neither compiling nor the search for its step size count, which favours it. MH-SS is the Metropolis
rule of Prado, Nemeth & Sherlock (2024) with the proposals, the expansion and the bounds of `sc.SMH`. Effective draws
are those of the worst coefficient. The last columns compare standard deviations and means with those of `sc.SMH`, in
units of the standard deviation, as a check that all sample the same.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import scirocco as sc
from scirocco._tree import pytree_dataclass
from scirocco.diagnostics.measures import ess

PRIOR_VARIANCE = 10.0
MODEL = sc.Model.linear("bernoulli", lambda beta: -0.5 * jnp.sum(beta**2) / PRIOR_VARIANCE)


@pytree_dataclass
class MHSS(sc.SMH):
    """The rows that are examined change the acceptance ratio, instead of each deciding for itself.

    For the difference d_i of row i's remainder and a bound b_i of |d_i| let S_i ~ Poisson((b_i - d_i)/2). The move is
    accepted with probability min(1, (ratio of the expansions) Π_i ((b_i + d_i)/(b_i - d_i))^S_i): all that depends on
    other rows cancels.
    """

    step_size: Any = 1.0

    def follow(self, state: Any, expansion: Any, remainder: Any, noise: Any, number: Any) -> Any:
        """As `sc.SMH`, with the other rule."""
        normals, waits, words = noise
        key, dtype = jax.random.wrap_key_data(words), normals.dtype
        u, proposal = expansion.coordinates(state.position), expansion.slope + normals
        here, there = expansion.position(u), expansion.position(proposal)
        limit = expansion.value_limit(u) + expansion.value_limit(proposal)

        def rest(place: Any) -> Any:
            return 0.5 * jnp.vdot(place, expansion.bend(place) + place)

        def look(carry: Any) -> Any:
            time, log, rows, tightness = carry
            own = jax.random.fold_in(key, rows)
            tiny = jnp.finfo(dtype).tiny
            uniforms = jax.random.uniform(jax.random.fold_in(own, 1), (2,), dtype, minval=tiny)
            change = remainder(there, own).value - remainder(here, own).value
            kept = uniforms[0] * limit < 0.5 * (limit - change)
            log = log + jnp.where(kept, jnp.log((limit + change) / (limit - change)), 0.0)
            later = time - jnp.log(uniforms[1]) / limit
            return later, log, rows + 1, jnp.maximum(tightness, jnp.abs(change) / limit)

        begin = (waits[1] / limit, rest(proposal) - rest(u), jnp.zeros((), jnp.int32), jnp.zeros((), dtype))
        _, log, rows, tightness = jax.lax.while_loop(lambda carry: carry[0] < 1, look, begin)
        alive = log > -waits[0]
        position = jax.tree.map(lambda a, b: jnp.where(alive, a, b), there, state.position)
        return type(state)(position, alive, rows, tightness.astype(jnp.float32))


OURS = {
    "SMH": (sc.SMH(), None, 20_000),
    "MH-SS": (MHSS(), None, 20_000),
    "ZigZag": (sc.ZigZag(), None, 5_000),
    "BouncyParticle": (sc.BouncyParticle(), None, 5_000),
    "ZigZag, order 1": (sc.ZigZag(), sc.Taylor(order=1), 200),
    "BAOAB-CV": (sc.Preconditioned(sc.BAOAB()), None, 20_000),
}
EXACT = ("SMH", "ZigZag", "BouncyParticle")
GOAL, FLAT = 5.0, 1.5


def simulated(num_rows: int, dimension: int = 10) -> dict[str, np.ndarray]:
    """Rows of a logistic regression."""
    rng = np.random.default_rng(num_rows)
    x = rng.standard_normal((num_rows, dimension)).astype(np.float32)
    x[:, 0] = 1.0
    chance = 1 / (1 + np.exp(-(x @ np.linspace(-1, 1, dimension))))
    return {"x": x, "y": (rng.random(num_rows) < chance).astype(np.float32)}


def covertype(path: str, quick: bool) -> dict[str, np.ndarray]:
    """Standardised columns of the file that `covertype_default.py --write` makes."""
    from covertype_default import standardised

    return standardised(np.load(path), 10 if quick else 1)


def ours(rows: Any, sampler: Any, estimator: Any, num_draws: int) -> dict[str, Any]:
    """The second of two calls."""
    for seed in range(2):
        start = time.process_time()
        run = sc.sample(
            MODEL, rows, jnp.zeros(rows["x"].shape[1]), sampler=sampler, estimator=estimator, seed=seed,
            num_samples=num_draws, num_burnin=num_draws // 20, num_chains=1, progress=False,
        )  # fmt: skip
        cpu = time.process_time() - start
    setup = run.timing["setup"]["cpu"]
    found = {"draws": np.asarray(run.draws), "cpu": cpu - setup, "setup": setup}
    looks = run.stats.get("n_rows")
    return found | ({} if looks is None else {"rows_per_draw": float(np.mean(looks))})


def nuts(rows: Any, mode: np.ndarray, covariance: np.ndarray, seconds: float) -> dict[str, Any]:
    """NumPyro's, with the covariance as its mass matrix; as many draws as fit into the time."""
    from numpyro.infer.hmc import hmc

    data = jax.tree.map(jnp.asarray, rows)
    init, move = hmc(potential_fn_gen=lambda data: lambda beta: -MODEL.look(beta, data), algo="NUTS")
    warmup = 30  # of the step size alone
    state = init(
        jnp.asarray(mode, jnp.float32), warmup, model_args=(data,), rng_key=jax.random.key(0), dense_mass=True,
        inverse_mass_matrix=jnp.asarray(covariance, jnp.float32), adapt_mass_matrix=False,
    )  # fmt: skip
    step = jax.jit(lambda state, data: move(state, model_args=(data,)))
    for _ in range(warmup):
        state = step(state, data)
    jax.block_until_ready(state.z)
    draws, start = [], time.process_time()
    while len(draws) < 2_000 and (time.process_time() - start < seconds or len(draws) < 20):
        state = step(state, data)
        draws.append(np.asarray(state.z))
    return {"draws": np.stack(draws)[None], "cpu": time.process_time() - start, "setup": 0.0}


def compared(name: str, rows: Any, seconds: float, quick: bool) -> dict[str, Any]:
    """All samplers on one data set."""
    lines: dict[str, Any] = {}
    for method, (sampler, estimator, num_draws) in OURS.items():
        try:
            lines[method] = ours(rows, sampler, estimator, num_draws // (10 if quick else 1))
            print(f"{name}, {method}: {lines[method]['cpu']:.2f} CPU s", flush=True)
        except Exception as error:
            print(f"{name}, {method}: {type(error).__name__}: {error}", flush=True)
    try:
        draws = lines["SMH"]["draws"][0].astype(np.float64)
        lines["NUTS"] = nuts(rows, draws.mean(axis=0), np.cov(draws.T), seconds)
    except Exception as error:
        print(f"{name}, NUTS: {type(error).__name__}: {error}", flush=True)
    reference = lines["SMH"]["draws"][0].astype(np.float64)
    mean, sd = reference.mean(axis=0), reference.std(axis=0)
    print(f"\n{name}: {rows['x'].shape[0]:,} rows × {rows['x'].shape[1]} columns")
    print(f"{'':16} {'ESS':>8} {'ESS/CPU s':>10} {'with set-up':>11} {'/ NUTS':>8} {'rows':>7} {'sd':>6} {'mean':>6}")
    for line in lines.values():
        draws = line.pop("draws")
        line["ess"] = float(np.min(ess(draws)))
        line["per_second"] = line["ess"] / line["cpu"]
        line["with_setup"] = line["ess"] / (line["cpu"] + line["setup"])
        flat = draws.reshape(-1, draws.shape[-1]).astype(np.float64)
        line["sd_ratio"] = float(np.mean(flat.std(axis=0) / sd))
        line["mean_distance"] = float(np.max(np.abs(flat.mean(axis=0) - mean) / sd))
    base = lines.get("NUTS", {}).get("per_second", float("nan"))
    for method, line in lines.items():
        line["over_nuts"] = line["per_second"] / base
        print(
            f"{method:16} {line['ess']:8.0f} {line['per_second']:10.1f} {line['with_setup']:11.1f} "
            f"{line['over_nuts']:8.1f} {line.get('rows_per_draw', float('nan')):7.2f} {line['sd_ratio']:6.3f} "
            f"{line['mean_distance']:6.3f}",
            flush=True,
        )
    return lines


def main() -> None:
    """Print a table for each data set, and whether the goals are reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="covertype, made by covertype_default.py --write")
    parser.add_argument("--only", choices=("logistic", "covertype"), help="some of the data sets")
    parser.add_argument("--quick", action="store_true", help="small data, short runs: does it run?")
    parser.add_argument("--seconds", type=float, default=20.0, help="CPU seconds for NUTS on each data set")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    sizes = (10_000,) if options.quick else (10_000, 100_000, 1_000_000)
    sets = {f"logistic {size:.0e}": lambda size=size: simulated(size) for size in sizes}
    if options.data:
        sets["covertype"] = lambda: covertype(options.data, options.quick)
    sets = {name: make for name, make in sets.items() if not options.only or name.startswith(options.only)}
    found: dict[str, Any] = {}
    for name, make in sets.items():
        found[name] = compared(name, make(), 2.0 if options.quick else options.seconds, options.quick)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    if not options.quick and "logistic 1e+06" in found:
        least = min(found[name]["SMH"]["over_nuts"] for name in found if not name.endswith("04"))
        best = [
            max(line["per_second"] for method, line in found[f"logistic 1e+0{power}"].items() if method in EXACT)
            for power in (5, 6)
        ]
        flat = best[0] / best[1]
        print(f"\nSMH / NUTS from 10^5 rows on: at least {least:.0f} (goal {GOAL:.0f})")
        print(
            f"cost of an effective draw of the best exact one, 10^6 rows / 10^5 rows: {flat:.2f} (goal at most {FLAT})"
        )


if __name__ == "__main__":
    main()
