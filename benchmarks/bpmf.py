"""Matrix factorisation on MovieLens 100k: ratings a second, beside the same update written plainly in JAX.

    python benchmarks/bpmf.py                     # about two minutes
    python benchmarks/bpmf.py --data DIR          # where movielens100k/ is (default: SCIROCCO_DATA)
    python benchmarks/bpmf.py --quick             # does it run? (the numbers mean nothing)

Both sides make the same steps: batches of 5,000 ratings, leaf-scaled SGLD of U, V, a, b and log τ, Gamma draws of the
four λ, D = 20, float32, one chain. `plain` is what a JAX user writes: `lax.scan`, `randint` and a gather for the batch,
`jax.grad` of the log posterior, `jax.random.normal` for each table. Compiling is left out; repeats are interleaved, and
the fastest of each side counts, by the CPU seconds of the process (the clock is beside it). Then the default fit, by an
exact Gibbs sampler: root mean square error and coverage of 90 % intervals on the first official test set. Bars: 2 × the
ratings a second, RMSE <= 0.92, coverage 85 to 95 %. The exit status is 0 whatever the numbers are.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import scirocco as sc
from scirocco.datasets import movielens100k
from scirocco.samplers import LeafScaledSGLD
from scirocco_latent.factorisation import BPMF
from scirocco_latent.factorisation.density import TABLES, Law, RatingModel, Ratings
from scirocco_latent.factorisation.method import WithPrecisions

BATCH, NUM_FACTORS, STEP = 5_000, 20, 0.01
SPEED, RMSE, COVERAGE = 2.0, 0.92, (0.85, 0.95)


def start(num_users: int, num_items: int) -> dict[str, np.ndarray]:
    """Small random tables."""
    rng = np.random.default_rng(0)
    shapes = ((num_users, NUM_FACTORS), (num_items, NUM_FACTORS), (num_users,), (num_items,))
    tables = {n: (0.1 * rng.normal(size=s)).astype(np.float32) for n, s in zip(TABLES, shapes, strict=True)}
    return tables | {"precisions": np.full(4, 10.0, np.float32), "rating_precision": np.float32(1.0)}


# -- the plain side ----------------------------------------------------------------------------------------------------


def log_posterior(params: Any, batch: Ratings, scale: float) -> Any:
    """With log λ and log τ; up to a constant."""
    lam, tau = jnp.exp(params["precisions"]), jnp.exp(params["rating_precision"])
    mean = jnp.sum(params["users"][batch.user] * params["items"][batch.item], axis=1)
    mean += params["user_bias"][batch.user] + params["item_bias"][batch.item]
    likelihood = jnp.sum(0.5 * jnp.log(tau) - 0.5 * tau * (batch.value - mean) ** 2)
    prior = sum(-0.5 * lam[k] * jnp.sum(params[name] ** 2) for k, name in enumerate(TABLES))
    return scale * likelihood + prior + params["rating_precision"] - tau


def plain_step(carry: Any, number: Any, data: Ratings) -> tuple[Any, None]:
    """Leaf-scaled SGLD, then the four λ."""
    params, squares, key = carry
    key, rows_key, noise_key, gamma_key = jax.random.split(key, 4)
    index = jax.random.randint(rows_key, (BATCH,), 0, len(data.value))
    batch = jax.tree.map(lambda leaf: leaf[index], data)
    gradient = jax.grad(log_posterior)(params, batch, len(data.value) / BATCH)
    moved, keys = dict(params), jax.random.split(noise_key, 5)
    for own, name in zip(keys, (*TABLES, "rating_precision"), strict=True):
        g = gradient[name]
        squares = {**squares, name: squares[name] + (jnp.mean(g**2) - squares[name]) / (number + 1)}
        eps = STEP / jnp.sqrt(squares[name])
        moved[name] = params[name] + eps * g + jnp.sqrt(2 * eps) * jax.random.normal(own, g.shape)
    shapes = jnp.array([1.0 + moved[name].size / 2 for name in TABLES])
    rates = jnp.array([1.0 + 0.5 * jnp.sum(moved[name] ** 2) for name in TABLES])
    moved["precisions"] = jnp.log(jax.random.gamma(gamma_key, shapes) / rates)
    return (moved, squares, key), None


def plain(data: Ratings, params: Any, num_steps: int) -> Callable[[int], Any]:
    """A compiled scan."""
    rows = jax.tree.map(jnp.asarray, data)
    begin = params | {name: np.log(params[name]) for name in ("precisions", "rating_precision")}
    squares = {name: jnp.zeros(()) for name in (*TABLES, "rating_precision")}

    @jax.jit
    def scan(params: Any, key: Any, rows: Ratings) -> Any:
        return jax.lax.scan(
            lambda carry, number: plain_step(carry, number, rows), (params, squares, key), jnp.arange(num_steps)
        )[0]

    return lambda seed: jax.block_until_ready(scan(begin, jax.random.key(seed), rows))


# -- ours --------------------------------------------------------------------------------------------------------------


def ours(data: Ratings, params: Any, num_steps: int) -> Callable[[int], Any]:
    """`sc.sample`, keeping the last draw."""
    model, sampler = RatingModel(Law()), WithPrecisions(LeafScaledSGLD(STEP))
    return lambda seed: sc.sample(
        model,
        data,
        params,
        sampler=sampler,
        estimator=sc.Minibatch(BATCH),
        num_samples=1,
        num_burnin=num_steps - 1,
        seed=seed,
        progress=False,
    )


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the CPU and by the clock."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def speed(data: Ratings, sizes: tuple[int, int], num_steps: int, repeats: int) -> None:
    """Ratings a second of both sides."""
    sides = {"plain": plain(data, start(*sizes), num_steps), "scirocco": ours(data, start(*sizes), num_steps)}
    for side in sides.values():
        side(0)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for repeat in range(1, repeats + 1):
        for name, side in sides.items():
            times[name].append(timed(lambda side=side, repeat=repeat: side(repeat)))  # type: ignore[misc]
    best = {name: np.array(found).min(axis=0) for name, found in times.items()}
    for name, (cpu, wall) in best.items():
        of_cpu, by_clock = (num_steps * BATCH / seconds / 1e6 for seconds in (cpu, wall))
        rates = f"{of_cpu:6.2f} M ratings/s of CPU, {by_clock:6.2f} by the clock"
        print(f"  {name:10}{rates}   ({cpu / num_steps * 1e6:.0f} µs a step)", flush=True)
    ratio = best["plain"] / best["scirocco"]
    met = "met" if ratio[0] >= SPEED else "NOT met"
    print(f"  ratio     {ratio[0]:.2f} by CPU, {ratio[1]:.2f} by the clock   (bar >= {SPEED:g}: {met})", flush=True)


def quality(found: Any, num_epochs: float | None) -> None:
    """The default fit on the first fold."""
    test = found.fold == 1
    model, train = BPMF(num_users=found.num_users, num_items=found.num_items), ~test
    cpu, wall = timed(
        lambda: model.fit(
            found.users[train], found.items[train], found.ratings[train], num_epochs=num_epochs, progress=False
        )
    )
    ratings = found.ratings[test]
    mean, low, high = model.predict(found.users[test], found.items[test], interval=0.9)
    error = float(np.sqrt(np.mean((mean - ratings) ** 2)))
    covered = float(np.mean((low <= ratings) & (ratings <= high)))
    print(f"  fit {cpu:.1f} s of CPU, {wall:.1f} by the clock, compiling included")
    print(f"  RMSE {error:.4f}   (bar <= {RMSE}: {'met' if error <= RMSE else 'NOT met'})")
    inside = COVERAGE[0] <= covered <= COVERAGE[1]
    print(f"  90 % intervals cover {covered:.1%}   (bar 85 to 95 %: {'met' if inside else 'NOT met'})")


def main() -> None:
    """Speed, then quality."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default=None)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    found = movielens100k(options.data)
    train = found.fold != 1
    mean = np.float32(found.ratings[train].mean())
    data = Ratings(found.users[train], found.items[train], found.ratings[train] - mean)
    sizes = (found.num_users, found.num_items)
    print(f"{len(data.value):,} ratings, {sizes[0]} users, {sizes[1]:,} items, D = {NUM_FACTORS}, batches of {BATCH:,}")
    speed(data, sizes, 50 if options.quick else 3_000, 1 if options.quick else 5)
    print("the default fit, tested on the first fold")
    quality(found, 10 if options.quick else None)


if __name__ == "__main__":
    main()
