"""Whether SGLD-CV's time per step grows with the number of rows, and what its set-up costs in passes over them."""

from __future__ import annotations

import time
from typing import Any

import jax
import logistic
import numpy as np
import problem
from jax import numpy as jnp
from measure import effort, emit, is_quick, time_calls, versions
from ours import outcome

import scirocco as sc

NUM_FEATURES = 20
SIZES = (10_000, 100_000) if is_quick() else (10_000, 100_000, 1_000_000, 10_000_000)


def pass_cpu_s(x: np.ndarray, y: np.ndarray) -> float:
    """CPU seconds of one gradient of the whole sum over the rows, best of 3."""

    @jax.jit
    def gradient(b: jax.Array, data: dict[str, jax.Array]) -> jax.Array:
        def total(b: jax.Array) -> jax.Array:
            return jax.vmap(logistic.log_likelihood, in_axes=(None, 0))(b, data).sum()

        return jax.grad(total)(b)

    data, b = {"x": jnp.asarray(x), "y": jnp.asarray(y)}, jnp.zeros(NUM_FEATURES)
    gradient(b, data).block_until_ready()
    seconds = []
    for _ in range(3):
        start = time.process_time()
        gradient(b, data).block_until_ready()
        seconds.append(time.process_time() - start)
    return min(seconds)


def at_size(model: Any, num_rows: int) -> dict[str, float]:
    """Time per step and set-up for one number of rows."""
    plan = effort()
    x, y = problem.make_data(num_rows, NUM_FEATURES)

    def run(seed: int) -> Any:
        return outcome(
            sc.sample(
                model,
                {"x": x, "y": y},
                jnp.zeros(NUM_FEATURES),
                sampler=sc.SGLD(step_size=0.1 / num_rows),
                estimator=sc.ControlVariates(problem.BATCH_SIZE),
                num_samples=plan.num_steps,
                seed=seed,
                progress=False,
            )
        )

    outcomes, seconds, _ = time_calls(lambda: run, plan.repeats)
    setup = min(o.setup_cpu_s for o in outcomes)
    sampling = min(s - o.setup_cpu_s for s, o in zip(seconds, outcomes, strict=True))
    one_pass = pass_cpu_s(x, y)
    return {
        "num_rows": num_rows,
        "us_per_step": 1e6 * sampling / plan.num_steps,
        "setup_cpu_s": setup,
        "pass_cpu_s": one_pass,
        "setup_passes": setup / one_pass,
    }


if __name__ == "__main__":
    model = logistic.model()
    sizes = [at_size(model, num_rows) for num_rows in SIZES]
    times = [entry["us_per_step"] for entry in sizes]
    emit(
        {
            "step_time_ratio": max(times) / min(times),
            "setup_passes": sizes[-1]["setup_passes"],
            "sizes": sizes,
            "versions": versions(),
        }
    )
