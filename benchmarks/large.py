"""The plain call with many parameters, or many groups: seconds, memory, and how far it is from the exact posterior.

    python benchmarks/large.py                          # all, each in a process of its own; about half an hour of CPU
    python benchmarks/large.py --only normals-1e4 groups --seed 100 --limit 500 --jobs 8

linear-D    linear regression, 20,000 rows × D columns that are correlated like a series (0.9); exact.
wide-1e4    linear regression with more columns (10,000) than rows (2,000) and a prior N(0, 1); exact.
normals-D   D means with scales from 10⁻³ to 10³, 50 to 200 rows; exact.
groups      1,000 group means, their mean, 300,000 rows of groups of very different sizes; variances known: exact.
softmax     784 columns (mostly 0) and an intercept, 10 classes: 7,850 coefficients, 20,000 rows; no exact answer.
network-D   64 inputs, a hidden layer, 10 classes: about D weights; no exact answer, but the log loss of held-out rows.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np


class Problem(NamedTuple):
    """A model, its data and start; the exact means and standard deviations, flat, where they are known."""

    model: Any
    data: Any
    start: Any
    mean: np.ndarray | None = None
    sd: np.ndarray | None = None
    judge: Any = None
    """Words about the draws."""


def linear(size: int, num_rows: int = 20_000) -> Problem:
    """Correlated columns, noise of known variance."""
    import jax.numpy as jnp

    import scirocco as sc

    rng = np.random.default_rng(1)
    x = rng.standard_normal((num_rows, size))
    for column in range(1, size):
        x[:, column] = 0.9 * x[:, column - 1] + np.sqrt(1 - 0.81) * x[:, column]
    y = x @ rng.standard_normal(size) + rng.standard_normal(num_rows)
    model = sc.Model(lambda b, row: -0.5 * (row["y"] - row["x"] @ b) ** 2, lambda b: -0.005 * jnp.sum(b**2))
    covariance = np.linalg.inv(x.T @ x + 0.01 * np.eye(size))
    rows = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
    return Problem(model, rows, jnp.zeros(size), covariance @ (x.T @ y), np.sqrt(np.diagonal(covariance)))


def wide(size: int, num_rows: int = 2_000) -> Problem:
    """More columns than rows."""
    import jax.numpy as jnp

    import scirocco as sc

    rng = np.random.default_rng(1)
    x = rng.standard_normal((num_rows, size)) / np.sqrt(size)
    y = x @ rng.standard_normal(size) + 0.1 * rng.standard_normal(num_rows)
    model = sc.Model(lambda b, row: -50 * (row["y"] - row["x"] @ b) ** 2, lambda b: -0.5 * jnp.sum(b**2))
    gain = np.linalg.solve(x @ x.T + 0.01 * np.eye(num_rows), x)
    rows = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
    return Problem(model, rows, jnp.zeros(size), gain.T @ y, np.sqrt(1 - np.sum(x * gain, axis=0)))


def normals(size: int) -> Problem:
    """Independent means."""
    import jax.numpy as jnp

    import scirocco as sc

    rng, num_rows = np.random.default_rng(1), 200 if size <= 10_000 else 50
    scale = np.exp(rng.uniform(np.log(1e-3), np.log(1e3), size)).astype(np.float32)
    x = scale * (1 + rng.standard_normal((num_rows, size), dtype=np.float32))
    known = jnp.asarray(scale)
    model = sc.Model(lambda mean, row: -0.5 * jnp.sum(((row - mean) / known) ** 2))
    return Problem(model, x, jnp.zeros(size), x.mean(axis=0, dtype=np.float64), scale / np.sqrt(num_rows))


def groups(size: int = 1_000, num_rows: int = 300_000) -> Problem:
    """Group means around a common one, all variances known: normal, and exact by elimination of the groups."""
    import jax.numpy as jnp

    import scirocco as sc

    rng = np.random.default_rng(1)
    share = rng.dirichlet(np.full(size, 0.7))
    group = np.concatenate([np.arange(size), rng.choice(size, num_rows - size, p=share)]).astype(np.int32)
    means = 2 + 0.5 * rng.standard_normal(size)
    y = (means[group] + rng.standard_normal(num_rows)).astype(np.float32)

    def log_prior(p: Any) -> Any:
        return -2 * jnp.sum((p["groups"] - p["mean"]) ** 2) - 0.005 * p["mean"] ** 2

    model = sc.Model(lambda p, row: -0.5 * (row["y"] - p["groups"][row["group"]]) ** 2, log_prior)
    counts, sums = np.bincount(group, minlength=size), np.bincount(group, y, minlength=size)
    precision = np.zeros((size + 1, size + 1))
    precision[range(size), range(size)] = counts + 4.0
    precision[-1, :-1] = precision[:-1, -1] = -4.0
    precision[-1, -1] = 4.0 * size + 0.01
    covariance = np.linalg.inv(precision)
    mean = covariance @ np.append(sums, 0.0)
    start = {"groups": jnp.zeros(size), "mean": jnp.zeros(())}
    return Problem(model, {"group": group, "y": y}, start, mean, np.sqrt(np.diagonal(covariance)))


def softmax(num_rows: int = 20_000) -> Problem:
    """Ten classes."""
    import jax
    import jax.numpy as jnp

    import scirocco as sc

    rng = np.random.default_rng(1)
    x = ((rng.random((num_rows, 785)) < 0.15) * rng.random((num_rows, 785))).astype(np.float32)
    x[:, 0] = 1
    logits = x @ (0.5 * rng.standard_normal((785, 10)))
    y = (logits + rng.gumbel(size=(num_rows, 10))).argmax(axis=1).astype(np.int32)
    model = sc.Model(lambda w, row: jax.nn.log_softmax(row["x"] @ w)[row["y"]], lambda w: -0.5 * jnp.sum(w**2))
    return Problem(model, {"x": x, "y": y}, jnp.zeros((785, 10)))


def network(size: int, num_rows: int = 20_000) -> Problem:
    """One hidden layer."""
    import jax
    import jax.numpy as jnp

    import scirocco as sc

    rng, hidden = np.random.default_rng(1), size // 75
    first, second = rng.standard_normal((2, 64, 10))

    def rows(count: int) -> dict[str, np.ndarray]:
        x = rng.standard_normal((count, 64)).astype(np.float32)
        logits = 3 * np.tanh(x[:, :32] @ first[:32]) + 0.3 * x @ second
        return {"x": x, "y": (logits + rng.gumbel(size=(count, 10))).argmax(axis=1).astype(np.int32)}

    def logs(p: Any, x: Any) -> Any:
        return jax.nn.log_softmax(jnp.tanh(x @ p["w"] + p["b"]) @ p["v"] + p["c"])

    model = sc.Model(
        lambda p, row: logs(p, row["x"])[row["y"]],
        lambda p: -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(p)),
    )
    shapes = {"w": (64, hidden), "b": (hidden,), "v": (hidden, 10), "c": (10,)}
    start = {name: jnp.asarray(0.1 * rng.standard_normal(shape), jnp.float32) for name, shape in shapes.items()}
    held_out = rows(2_000)

    def judge(draws: Any) -> str:
        some = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:: max(1, leaf.shape[1] // 25)], draws)
        found = np.asarray(jax.lax.map(lambda p: logs(p, held_out["x"]), jax.tree.map(jnp.asarray, some)))
        right = found[:, np.arange(2_000), held_out["y"]]
        average = -np.log(np.exp(right).mean(axis=0)).mean()
        return f"log loss of 2,000 held-out rows {average:.3f} (a single draw {-right.mean():.3f})"

    return Problem(model, rows(num_rows), start, judge=judge)


PROBLEMS = {
    "linear-1500": lambda: linear(1_500),
    "linear-2000": lambda: linear(2_000),
    "wide-1e4": lambda: wide(10_000),
    "normals-1e4": lambda: normals(10**4),
    "normals-1e5": lambda: normals(10**5),
    "normals-1e6": lambda: normals(10**6),
    "groups": groups,
    "softmax": softmax,
    "network-1e4": lambda: network(10**4),
    "network-1e5": lambda: network(10**5),
}


def run_here(name: str, seed: int) -> None:
    """One plain call, in some lines."""
    import jax

    import scirocco as sc

    problem = PROBLEMS[name]()
    size = sum(leaf.size for leaf in jax.tree.leaves(problem.start))
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = sc.sample(problem.model, problem.data, problem.start, seed=seed, progress=False)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    parts = ", ".join(f"{name} {part['cpu']:.0f}" for name, part in run.timing.items() if "cpu" in part)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{name}: {size:,} parameters; {cpu:.0f} CPU s ({parts}), {wall:.0f} s, {peak:.1f} GiB at most")
    print(f"  {run.preparation['chosen']}\n  {run.certificate}")
    for each in caught:
        if issubclass(each.category, sc.errors.SciroccoWarning):
            print(f"  warning: {each.message}")
    if problem.judge is not None:
        print(f"  {problem.judge(run.draws)}")
    if problem.mean is not None and problem.sd is not None:
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(run.draws)]
        flat = np.concatenate([leaf.reshape(leaf.shape[0] * leaf.shape[1], -1) for leaf in leaves], axis=1)
        off = np.abs(flat.mean(axis=0, dtype=np.float64) - problem.mean) / problem.sd
        ratio = flat.std(axis=0, dtype=np.float64) / problem.sd
        print(
            f"  means off by {off.max():.3f} sd at most ({np.sqrt(np.mean(off**2)):.3f} root mean square), sds "
            f"{ratio.min():.3f} to {ratio.max():.3f} of the exact ones"
        )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, metavar="NAME", default=list(PROBLEMS))
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--limit", type=float, default=1_800, help="seconds for one")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        run_here(options.only[0], options.seed)
        return

    def apart(name: str) -> None:
        command = [sys.executable, __file__, "--here", "--only", name, "--seed", str(options.seed)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit)
            said = done.stdout or f"{name}: failed\n{done.stderr[-800:]}"
        except subprocess.TimeoutExpired:
            said = f"{name}: not finished after {options.limit:.0f} s\n"
        print(said, end="", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(apart, options.only))


if __name__ == "__main__":
    main()
