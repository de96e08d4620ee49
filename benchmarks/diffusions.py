"""Exact CIR transitions: our kernels beside NumPy's and JAX's generators, and lazy updates beside eager ones.

    python benchmarks/diffusions.py          # on the CPU: compiled kernels, JAX rounds, lazy updates
    python benchmarks/diffusions.py --gpu    # on JAX's default device: JAX rounds only, no numba needed

Wall time, the best of several rounds in which all sides take turns; a side is called once before it is timed. Compare
only numbers of one run: machines differ, and so do minutes on a shared one. A timing is never a test: the exit status
is 0 whatever the ratios are.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

STEP = 0.1  # time of a transition
SHAPE, HEAVY = 0.1, 0.1  # the shape of most entries; the fraction of them with + Gamma(1, scale 50)
CPU_SIZE, GPU_SIZE = (100, 8_000), (1_000, 50_000)
COLUMNS, TOPICS, TOUCHED = 100_000, 20, 5_000


def problem(size: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Present values and shapes as a topic model has them: mostly tiny shapes, some up to a few hundred."""
    rng = np.random.default_rng(0)
    shape = np.full(size, SHAPE, np.float32)
    heavy = rng.random(size, np.float32) < HEAVY
    shape[heavy] += rng.gamma(1.0, 50.0, int(heavy.sum())).astype(np.float32)
    return rng.standard_gamma(shape).astype(np.float32), shape


def best_times(sides: dict[str, Callable[[int], Any]], rounds: int) -> dict[str, float]:
    """Milliseconds of the best call of each side, which gets the number of the call."""
    for side in sides.values():
        side(0)
    best = dict.fromkeys(sides, math.inf)
    for number in range(1, rounds + 1):
        for name, side in sides.items():
            begin = time.perf_counter()
            side(number)
            best[name] = min(best[name], 1e3 * (time.perf_counter() - begin))
    return best


def numpy_side(theta: np.ndarray, shape: np.ndarray) -> Callable[[int], Any]:
    """NumPy's non-central χ², with the constants taken out of the call."""
    rng = np.random.default_rng(1)
    decay, scale = math.exp(-STEP), -math.expm1(-STEP) / 2
    freedom, noncentrality = 2 * shape, theta * np.float32(decay / scale)
    return lambda _: scale * rng.noncentral_chisquare(freedom, noncentrality)


def jax_sides(theta: np.ndarray, shape: np.ndarray) -> dict[str, Callable[[int], Any]]:
    """`jax.random.poisson` and `gamma`, and the library's whole-array rounds where they are there."""
    start, shapes = jnp.asarray(theta), jnp.asarray(shape)
    scale = -math.expm1(-STEP)

    @jax.jit
    def by_jax_random(key: Any) -> Any:
        first, second = jax.random.split(key)
        counts = jax.random.poisson(first, start * (math.exp(-STEP) / scale))
        return scale * jax.random.gamma(second, shapes + counts)

    programs = {"jax.random": by_jax_random}
    try:
        from scirocco.diffusions import cir

        programs["scirocco.diffusions.cir"] = jax.jit(lambda key: cir(key, start, shapes, STEP))
    except ImportError:
        print("scirocco.diffusions.cir: not there yet")
    return {
        name: lambda number, program=program: program(jax.random.key(number)).block_until_ready()
        for name, program in programs.items()
    }


def host_sides(theta: np.ndarray, shape: np.ndarray) -> dict[str, Callable[[int], Any]]:
    """The compiled kernels with one thread and with two."""
    from scirocco.diffusions import host

    return {
        f"compiled, {threads} thread{'s' * (threads > 1)}": (
            lambda number, threads=threads: host.cir(number, theta, shape, STEP, num_threads=threads)
        )
        for threads in (1, 2)
    }


def lazy_times(rounds: int, num_threads: int) -> dict[str, float]:
    """A step of LazySCIR (read, then advance) and of the eager kernel on the whole matrix, with the same batches."""
    from scirocco.diffusions import host
    from scirocco.simplex.lazy import LazySCIR

    rng = np.random.default_rng(2)
    theta = rng.gamma(SHAPE, size=(COLUMNS, TOPICS)).astype(np.float32)
    lazy = LazySCIR(SHAPE, theta, seed=3, num_threads=num_threads)
    shapes = np.full(theta.shape, SHAPE, np.float32)
    best = {"eager": math.inf, "lazy": math.inf}
    for number in range(rounds + 30):  # in the first steps little is overdue: not counted
        columns = rng.choice(COLUMNS, TOUCHED, replace=False)
        counts = rng.gamma(1.0, 50.0, (TOUCHED, TOPICS)) * (rng.random((TOUCHED, TOPICS)) < HEAVY)
        own = (SHAPE + counts).astype(np.float32)
        begin = time.perf_counter()
        lazy.read(columns)
        lazy.advance(columns, own, STEP)
        took = {"lazy": 1e3 * (time.perf_counter() - begin)}
        if number < 30:
            continue
        shapes[columns] = own
        begin = time.perf_counter()
        host.cir((4, number), theta, shapes, STEP, out=theta, num_threads=num_threads)
        took["eager"] = 1e3 * (time.perf_counter() - begin)
        shapes[columns] = SHAPE
        best = {name: min(best[name], took[name]) for name in best}
    return best


def show(title: str, times: dict[str, float]) -> None:
    print(f"\n{title}")
    for name, milliseconds in times.items():
        print(f"  {name:28}{milliseconds:10.2f} ms")


def show_ratio(name: str, ratio: float, bar: float) -> None:
    print(f"  {name:44}{ratio:8.1f}   (bar ≥ {bar:g})")


def on_the_cpu(rounds: int) -> None:
    """Lines (a) and (c)."""
    theta, shape = problem(CPU_SIZE)
    fast = best_times({"numpy noncentral_chisquare": numpy_side(theta, shape), **host_sides(theta, shape)}, 3 * rounds)
    slow = best_times(jax_sides(theta, shape), rounds)
    show(f"CIR transitions of a {CPU_SIZE[0]} × {CPU_SIZE[1]:,} matrix, float32", fast | slow)
    for threads in ("1 thread", "2 threads"):
        show_ratio(f"compiled, {threads} / numpy", fast["numpy noncentral_chisquare"] / fast[f"compiled, {threads}"], 2)
    if "scirocco.diffusions.cir" in slow:
        show_ratio("JAX rounds / jax.random", slow["jax.random"] / slow["scirocco.diffusions.cir"], 4)
    for threads in (1, 2):
        times = lazy_times(5 * rounds, threads)
        show(f"A step of {COLUMNS:,} columns of {TOPICS}, {TOUCHED:,} of them touched, {threads} thread(s)", times)
        show_ratio("lazy / eager", times["eager"] / times["lazy"], 10)


def on_the_device(rounds: int) -> None:
    """Line (b)."""
    theta, shape = problem(GPU_SIZE)
    times = best_times(jax_sides(theta, shape), 3 * rounds)
    show(f"CIR transitions of a {GPU_SIZE[0]:,} × {GPU_SIZE[1]:,} matrix, float32, {jax.devices()[0]}", times)
    if "scirocco.diffusions.cir" in times:
        print("  bar for scirocco.diffusions.cir on an H200: ≤ 15 ms")
        show_ratio("JAX rounds / jax.random", times["jax.random"] / times["scirocco.diffusions.cir"], 4)


def main() -> None:
    """Print the times and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", action="store_true", help="1,000 × 50,000 on JAX's default device")
    parser.add_argument("--rounds", type=int, default=5, help="how often the slowest side is timed")
    arguments = parser.parse_args()
    (on_the_device if arguments.gpu else on_the_cpu)(arguments.rounds)


if __name__ == "__main__":
    main()
