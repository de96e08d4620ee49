"""Whether SGLD-CV's time per step grows with the number of rows, and what its set-up costs in passes over them."""

from __future__ import annotations

import time
from typing import Any

import jax
import logistic
import numpy as np
import problem
from jax import numpy as jnp
from measure import effort, emit, is_quick, versions

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


def sample(model: Any, x: np.ndarray, y: np.ndarray, estimator: Any, num_samples: int, seed: int) -> Any:
    """One run at a step size that suits the number of rows."""
    return sc.sample(
        model,
        {"x": x, "y": y},
        jnp.zeros(NUM_FEATURES),
        sampler=sc.SGLD(step_size=0.1 / len(x)),
        estimator=estimator,
        num_samples=num_samples,
        seed=seed,
        progress=False,
    )


class Size:
    """One number of rows, and what has been measured for it.

    Every estimator has the rows checked, shuffled and moved; what a plain minibatch's set-up takes is that part, and
    the rest of SGLD-CV's set-up is the search for the mode with the exact gradient there.
    """

    def __init__(self, model: Any, num_rows: int):
        self.model, self.num_rows = model, num_rows
        self.x, self.y = problem.make_data(num_rows, NUM_FEATURES)
        self.step_us: list[float] = []
        self.setup: list[float] = []
        self.arranging: list[float] = []
        self.report: dict[str, float] = {}

    def measure(self, seed: int, num_steps: int) -> None:
        """Time one run with control variates and one set-up without."""
        start = time.process_time()
        run = sample(self.model, self.x, self.y, sc.ControlVariates(problem.BATCH_SIZE), num_steps, seed)
        total = time.process_time() - start
        plain = sample(self.model, self.x, self.y, sc.Minibatch(problem.BATCH_SIZE), 1, seed)
        setup = run.timing["setup"]["cpu"]
        self.setup.append(setup)
        self.step_us.append(1e6 * (total - setup) / num_steps)
        self.arranging.append(plain.timing["setup"]["cpu"])
        self.report = run.preparation

    def forget(self) -> None:
        """Drop the measurements of the call that compiled."""
        self.step_us, self.setup, self.arranging = [], [], []

    def result(self) -> dict[str, float]:
        """The best of each."""
        one_pass = pass_cpu_s(self.x, self.y)
        setup, arranging = min(self.setup), min(self.arranging)
        return {
            "num_rows": self.num_rows,
            "us_per_step": min(self.step_us),
            "pass_cpu_s": one_pass,
            "setup_cpu_s": setup,
            "arranging_cpu_s": arranging,
            "setup_in_passes": setup / one_pass,
            "mode_in_passes": (setup - arranging) / one_pass,
            "passes_reported": self.report["passes"],
            "distance_to_mode_in_sd": self.report["distance_to_mode_in_sd"],
        }


def main() -> None:
    """Measure the sizes in turn, round after round, so that a slow minute of the machine falls on all of them."""
    plan, model = effort(), logistic.model()
    sizes = [Size(model, num_rows) for num_rows in SIZES]
    for size in sizes:
        size.measure(0, plan.num_steps)
        size.forget()
    for seed in range(1, plan.repeats + 1):
        for size in sizes:
            size.measure(seed, plan.num_steps)
    results = [size.result() for size in sizes]
    times = [result["us_per_step"] for result in results]
    by_rows = {f"{field}_{result['num_rows']}": result[field] for result in results for field in result}
    all_times = {str(size.num_rows): size.step_us for size in sizes}
    emit({"step_time_ratio": max(times) / min(times), **by_rows, "us_per_step_all": all_times, "versions": versions()})


if __name__ == "__main__":
    main()
