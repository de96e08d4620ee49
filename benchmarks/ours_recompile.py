"""How many programs a changed step size, seed or number of draws compiles, for SGLD and for SGLD-CV: none, we hope."""

from __future__ import annotations

from typing import Any

import jax
import logistic
import problem
from measure import emit, versions

import scirocco as sc

COMPILED = "/jax/core/compile/backend_compile_duration"
BASE: dict[str, Any] = {"step_size": 1e-7, "seed": 0, "num_samples": 1_000}
CHANGES: dict[str, tuple[Any, ...]] = {
    "step_size": (2e-7, 1e-8),
    "seed": (1, 12345),
    "num_samples": (1_500, 777, 4_001),
}

count = 0


def listen(event: str, duration: float, **_: Any) -> None:
    """Count what XLA compiles."""
    global count
    count += event == COMPILED


def compilations(model: Any, data: Any, estimator: Any, settings: dict[str, Any]) -> int:
    """Compilations during one call of `sample`."""
    before = count
    sc.sample(
        model,
        data,
        jax.numpy.zeros(problem.NUM_FEATURES),
        sampler=sc.SGLD(step_size=settings["step_size"]),
        estimator=estimator,
        num_samples=settings["num_samples"],
        seed=settings["seed"],
        progress=False,
    )
    return count - before


if __name__ == "__main__":
    jax.monitoring.register_event_duration_secs_listener(listen)
    x, y = problem.make_data(20_000)
    data, model = {"x": x, "y": y}, logistic.model()
    details: dict[str, dict[str, int]] = {}
    for name, estimator in {
        "sgld": sc.Minibatch(problem.BATCH_SIZE),
        "sgld_cv": sc.ControlVariates(problem.BATCH_SIZE),
    }.items():
        found = details[name] = {"first call": compilations(model, data, estimator, BASE)}
        for field, values in CHANGES.items():
            for value in values:
                found[f"{field}={value}"] = compilations(model, data, estimator, {**BASE, field: value})
    totals = {
        field: sum(n for found in details.values() for key, n in found.items() if key.startswith(f"{field}="))
        for field in CHANGES
    }
    emit({**totals, "details": details, "versions": versions()})
