"""A Bayesian neural network on MNIST: steps per second beside plain JAX, and seconds to 97.5 % of the test images.

    python benchmarks/bnn.py                              # about three minutes on two cores
    python benchmarks/bnn.py --data FOLDER                # with mnist/mnist.npz in it (default: as the library looks)
    python benchmarks/bnn.py --only steps --one-core      # some: steps accuracy; the ratio on a machine that is in use
    python benchmarks/bnn.py --activation softmax         # the thesis' network (default: relu)
    python benchmarks/bnn.py --quick                      # does it run? (the numbers mean nothing)

steps     SGLD steps per second of `sc.sample`, and of the same step as one writes it in JAX: a scan, keys split at each
          step, rows by `randint` and a gather. Each is compiled first; then they take turns, and the best counts.
accuracy  `BNN().fit`, everything included (checks, moving the data, compiling): when the average of the probabilities
          over all draws since the burn-in first gets 97.5 % of the test images right, and what it gets in the end.

784-100-10, N = 60,000, batches of 500, float32. A timing is never a test: the exit status is 0 whatever the numbers
are. On a GPU it needs nothing but jax, optax, scipy, numba and xarray.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import scirocco as sc
from scirocco.data.arrays import ArraySource
from scirocco.datasets import mnist
from scirocco.models.network.estimator import BNN
from scirocco.models.network.problem import LabelledRows

LINES = ("steps", "accuracy")
BATCH, STEP, REPEATS = 500, 1e-6, 3
BAR, SECONDS = 0.975, 600.0


def machine() -> str:
    """Where this runs, in words."""
    device = jax.devices()[0]
    where = f"{jax.default_backend()} ({device.device_kind}), {os.cpu_count()} cores, {platform.machine()}"
    return f"{where}, jax {jax.__version__}"


@partial(jax.jit, static_argnums=(0, 1))
def plain(logits: Any, num_steps: int, params: Any, x: Any, y: Any, key: Any) -> Any:
    """θ' = θ + ε ∇ + √(2ε) ξ, written plainly."""

    def log_posterior(params: Any, rows: Any, labels: Any) -> Any:
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits(params, rows)), labels[:, None], 1)
        prior = sum(-(1 + leaf.size / 2) * jnp.log1p(jnp.sum(leaf**2) / 2) for leaf in jax.tree.leaves(params))
        return prior + len(y) / BATCH * jnp.sum(chosen)

    def step(params: Any, key: Any) -> tuple[Any, None]:
        rows, noise = jax.random.split(key)
        index = jax.random.randint(rows, (BATCH,), 0, len(y))
        gradient = jax.grad(log_posterior)(params, x[index], y[index])
        leaves, structure = jax.tree.flatten(params)
        keys = jax.tree.unflatten(structure, list(jax.random.split(noise, len(leaves))))
        moved = jax.tree.map(
            lambda p, g, k: p + STEP * g + jnp.sqrt(2 * STEP) * jax.random.normal(k, p.shape), params, gradient, keys
        )
        return moved, None

    return jax.lax.scan(step, params, jax.random.split(key, num_steps))[0]


def steps_per_second(digits: Any, activation: str, quick: bool) -> dict[str, list[float]]:
    """Of both sides, best of three turns: by the clock and by CPU time."""
    num_steps = 200 if quick else 1_500
    problem = BNN(activation=activation)._problem(digits.X, digits.y)
    flat = LabelledRows(problem.rows.x.reshape(len(digits.y), -1), problem.rows.y)
    x, y = jnp.asarray(flat.x, jnp.float32) / 255, jnp.asarray(flat.y)
    params = jax.tree.map(jnp.asarray, problem.params)
    source, model = ArraySource(flat), problem.model

    def ours(seed: int) -> np.ndarray:
        run = sc.sample(
            model,
            source,
            params,
            sampler=sc.SGLD(STEP),
            estimator=sc.Minibatch(BATCH),
            num_burnin=200,
            num_samples=num_steps // 50,
            thin=50,
            keep_draws=False,
            seed=seed,
            progress=False,
        )
        taken = run.timing["sampling"]
        return np.array([taken["steps"] / taken["wall"], taken["steps"] / taken["cpu"]])

    def theirs(seed: int) -> np.ndarray:
        wall, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(plain(problem.probabilities.apply, num_steps, params, x, y, jax.random.key(seed)))
        return num_steps / np.array([time.perf_counter() - wall, time.process_time() - cpu])

    sides = {"scirocco": ours, "plain JAX": theirs}
    turns = [{name: side(turn) for name, side in sides.items()} for turn in range(1 + REPEATS)]
    best = {name: np.max([turn[name] for turn in turns[1:]], axis=0) for name in sides}  # the first compiles
    for number, unit in enumerate(("second", "CPU second")):
        us, them = best["scirocco"][number], best["plain JAX"][number]
        print(f"  SGLD steps per {unit}: scirocco {us:.0f}, plain JAX {them:.0f}, ratio {us / them:.2f}", flush=True)
    return {name: rates.tolist() for name, rates in best.items()}


class Watch:
    """A callback: the accuracy of the average over all draws so far."""

    def __init__(self, digits: Any, predict: Any, began: float):
        self.x, self.y, self.predict, self.began = jnp.asarray(digits.X_test), digits.y_test, predict, began
        self.total, self.reached, self.step = np.zeros((len(self.y), 10)), None, 0

    def __call__(self, report: Any) -> dict[str, float] | None:
        """Every draw of the chunk, one after the other."""
        if report.draws is None:
            return None
        leaves, structure = jax.tree.flatten(report.draws)
        for number in range(leaves[0].shape[1]):
            params = jax.tree.unflatten(structure, [leaf[0, number] for leaf in leaves])
            self.total += np.asarray(self.predict(params, self.x))
        accuracy = float(np.mean(self.total.argmax(axis=1) == self.y))
        if accuracy >= BAR and self.reached is None:
            self.reached, self.step = time.perf_counter() - self.began, report.step
        return {"accuracy": accuracy}


def accuracy(digits: Any, activation: str, quick: bool) -> dict[str, Any]:
    """A whole fit, by the clock."""
    net = BNN(activation=activation, num_samples=100_000, num_burnin=0.1, num_chains=1)
    predict = jax.jit(net._problem(digits.X[:100], digits.y[:100]).probabilities)
    began = time.perf_counter()
    watch = Watch(digits, predict, began)
    net.fit(
        digits.X,
        digits.y,
        X_test=digits.X_test,
        y_test=digits.y_test,
        num_epochs=(400 if quick else 12_000) * 500 / len(digits.X),
        callbacks=[watch],
        progress=False,
    )
    seconds, timing = time.perf_counter() - began, net.run_.timing["sampling"]
    rate = timing["steps"] / timing["wall"]
    when = "never" if watch.reached is None else f"after {watch.reached:.1f} s, {watch.step:,} steps"
    met = "met" if watch.reached is not None and watch.reached <= SECONDS else "NOT met"
    print(f"  the average over draws has {BAR:.1%} of the test images right {when} (bar <= {SECONDS:g} s: {met})")
    shown = ", ".join(f"{name} {value:.4f}" for name, value in net.scores_.items())
    single = ", ".join(
        f"{name} {value:.4f}" for name, value in net.scores(digits.X_test, digits.y_test)["single draw"].items()
    )
    print(f"  in the end, {seconds:.0f} s and {rate:.0f} steps per second (scoring included): {shown}")
    print(f"  the last draw alone: {single}", flush=True)
    return {
        "seconds_to_bar": watch.reached,
        "steps_to_bar": watch.step,
        "seconds": seconds,
        "rate": rate,
        **net.scores_,
    }


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with mnist/mnist.npz")
    parser.add_argument("--only", nargs="+", choices=LINES, default=LINES)
    parser.add_argument("--activation", default="relu")
    parser.add_argument("--one-core", action="store_true", help="XLA's second thread spins: CPU time counts twice")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    given = parser.parse_args()
    warnings.simplefilter("ignore", sc.errors.SciroccoWarning)
    if given.one_core and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    digits = mnist(given.data)
    print(f"BNN 784-100-10 ({given.activation}) on MNIST, batches of {BATCH}; {machine()}", flush=True)
    work = {"steps": steps_per_second, "accuracy": accuracy}
    numbers = {name: work[name](digits, given.activation, given.quick) for name in given.only}
    if given.json:
        given.json.write_text(json.dumps({"machine": machine(), **numbers}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
