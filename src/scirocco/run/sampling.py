"""`sc.sample`: from a log likelihood and data to posterior draws."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from scirocco import _checks, _tree
from scirocco.errors import DivergenceError, InvalidTypeError, InvalidValueError
from scirocco.estimators import ControlVariates, Estimator
from scirocco.model import Model
from scirocco.run import chains as _chains
from scirocco.run import pilot, probe, setup
from scirocco.run.progress import Bar, Callback, Clock, Report, as_scores
from scirocco.run.result import Run, describe_configuration
from scirocco.samplers import SGLD, Sampler
from scirocco.types import Data, Params, PyTree

_CHUNK_SECONDS = 0.3
_FIRST_CHUNK, _SECOND_CHUNK = 128, 1_024
_NEVER = 1 << 30
_DEFAULT_BATCH = 500


def sample(
    model: Model,
    data: Data,
    params: Params,
    *,
    sampler: Sampler | None = None,
    estimator: Estimator | None = None,
    num_samples: int = 10_000,
    num_burnin: int = 0,
    thin: int = 1,
    num_chains: int = 1,
    seed: int = 0,
    keep_gradients: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    chain_method: str = "auto",
) -> Run:
    """Draw from the posterior of `model` given `data`.

    Parameters
    ----------
    model
        `sc.Model(log_likelihood, log_prior)`.
    data
        A pytree of arrays with one common first axis (one row per datum).
    params
        Where to start: any pytree of floating-point arrays. Control variates start at the mode they find from here.
    sampler
        By default `sc.SGLD()`, whose step size is then chosen from the curvature and the gradient noise.
    estimator
        By default `sc.ControlVariates(500)` (fewer where there are fewer rows).
    num_samples, num_burnin, thin
        Draws kept in each chain; steps made before the first; steps for every kept draw.
    num_chains
        Independent chains.
    seed
        The same seed, configuration and machine give the same draws.
    keep_gradients
        Keep with every draw the gradient estimate at it (for zero-variance and Stein methods).
    callbacks
        Functions called with a `Report` after every chunk; they may return a score or stop the run.
    progress
        Show a bar when there is a terminal.
    chain_method
        "threads" (default on a CPU), "vmap" (default on accelerators).

    Returns
    -------
    Run
        `run.draws` has the structure of `params`, leaves (chain, draw, ...).

    Raises
    ------
    DivergenceError
        When a chain leaves the finite numbers; `error.run` holds every draw made before that.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = 3.0 + jax.random.normal(jax.random.key(1), (5000,))
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2, lambda mu: -0.005 * mu**2)
    >>> run = sc.sample(model, x, jnp.array(0.0), sampler=sc.SGLD(step_size=5e-5),
    ...                 estimator=sc.ControlVariates(batch_size=100), num_samples=1000, progress=False)
    >>> abs(float(run.draws.mean()) - 3.0) < 0.1
    True
    """
    num_samples = _checks.positive_int(num_samples, "num_samples")
    num_burnin = _checks.positive_int(num_burnin, "num_burnin", minimum=0)
    thin = _checks.positive_int(thin, "thin")
    num_chains = _checks.positive_int(num_chains, "num_chains")
    seed = _checks.positive_int(seed, "seed", minimum=0)
    if seed >= 1 << 32:
        raise InvalidValueError(f"`seed` must be below 2^32, got {seed}.")
    if num_burnin + num_samples * thin >= 1 << 31:
        raise InvalidValueError(
            f"the run would make {num_burnin + num_samples * thin} steps; a chain can count 2^31 - 1 of them. Split it."
        )
    _checks.choice(chain_method, "chain_method", _chains.METHODS)
    _check_callbacks(callbacks)
    clock = Clock()
    bar = Bar(num_burnin + num_samples * thin, progress)
    try:
        sampler = SGLD() if sampler is None else sampler
        estimator = _default_estimator(data) if estimator is None else estimator
        problem = setup.compose(model, data, sampler, estimator, seed)
        key = jax.random.key(seed)
        num_steps = num_burnin + num_samples * thin
        ready = setup.prepare(problem, params, num_steps=num_steps, num_chains=num_chains, key=key)
        chains = _chains.make_chains(model, ready, num_chains, key, keep_gradients, chain_method)
        probe.check_first(problem, params, chains.first_density, chains.first_gradient)
        timing = {"setup": clock.read()}
        session = _Session(chains, num_samples, num_burnin, thin, num_chains, tuple(callbacks), bar)
        session.drive()
        timing |= session.timing
    finally:
        bar.close()
    configuration = describe_configuration(
        problem, ready, num_samples, num_burnin, thin, num_chains, seed, keep_gradients, params
    )
    run = session.collect(configuration, ready.report, timing)
    if session.bad is not None:
        raise _divergence(session, problem, ready, run)
    return run


def _default_estimator(data: Data) -> Estimator:
    leaves = jax.tree.leaves(data)
    rows = len(leaves[0]) if leaves and hasattr(leaves[0], "__len__") else _DEFAULT_BATCH
    return ControlVariates(max(1, min(_DEFAULT_BATCH, rows)))


def _check_callbacks(callbacks: Any) -> None:
    if callable(callbacks) or not all(callable(callback) for callback in callbacks):
        raise InvalidTypeError("`callbacks` must be a sequence of functions, e.g. callbacks=[my_function].")


class _Session:
    """The host loop over chunks: how many steps next, what to keep, when to stop."""

    def __init__(
        self,
        chains: Any,
        num_samples: int,
        num_burnin: int,
        thin: int,
        num_chains: int,
        callbacks: tuple[Callback, ...],
        bar: Bar,
    ):
        self.chains, self.bar, self.callbacks = chains, bar, callbacks
        self.num_samples, self.num_burnin, self.thin, self.num_chains = (
            num_samples,
            num_burnin,
            thin,
            num_chains,
        )
        self.total = num_burnin + num_samples * thin
        self.step = self.kept = 0
        self.rate = self.began = 0.0
        self.chunks: list[Any] = []
        self.scores: list[tuple[int, dict[str, float]]] = []
        self.status = "complete"
        self.bad: tuple[int, int, int] | None = None
        self.timing: dict[str, dict[str, float]] = {}

    def drive(self) -> None:
        """Chunks until the end, an interrupt, a callback's stop or a divergence."""
        clock, self.began = Clock(), time.perf_counter()
        try:
            while self.step < self.total and self.status == "complete":
                self._chunk()
                if "first_chunk" not in self.timing:  # compiles; kept apart so that speeds can be told
                    self.timing["first_chunk"] = clock.read()
                    self.timing["first_chunk"]["steps"] = self.step
                    clock.restart()
        except KeyboardInterrupt:
            self.status = "interrupted"
            _checks.warn(
                f"interrupted after {self.kept} of {self.num_samples} draws; the run holds them.",
            )
        finally:
            self.chains.close()
        self.timing["sampling"] = clock.read() | {
            "steps": self.step - self.timing.get("first_chunk", {}).get("steps", 0)
        }

    def _chunk(self) -> None:
        burning = self.step < self.num_burnin
        steps = self._next_steps()
        draws = 0 if burning else steps // self.thin
        begin = time.perf_counter()
        chunk = self.chains.advance(steps, _NEVER if burning else self.thin, draws)
        seconds = time.perf_counter() - begin
        if self.step:  # the first chunk compiles: its speed says nothing
            self.rate = steps / seconds
        self._look_for_divergence(chunk, draws)
        if self.bad is None:
            if draws:
                self.chunks.append(chunk)
            self.step += steps
            self.kept += draws
            self._tell("burn-in" if burning else "sampling", None if burning else chunk.draws)

    def _next_steps(self) -> int:
        """As many steps as take about a third of a second, whole draws, within the buffers."""
        if not self.step:
            wanted = _FIRST_CHUNK
        elif not self.rate:
            wanted = _SECOND_CHUNK
        else:
            wanted = int(self.rate * _CHUNK_SECONDS)
        if self.step < self.num_burnin:
            return max(1, min(wanted, self.num_burnin - self.step))
        draws = max(1, min(wanted // self.thin, self.chains.capacity, self.num_samples - self.kept))
        return draws * self.thin

    def _look_for_divergence(self, chunk: Any, draws: int) -> None:
        if np.all(chunk.bad_step < 0):
            return
        chain = int(np.argmin(np.where(chunk.bad_step < 0, np.iinfo(np.int32).max, chunk.bad_step)))
        step = int(chunk.bad_step[chain])
        self.bad = (chain, step, int(chunk.bad_leaf[chain]))
        self.status = "diverged"
        good = min(draws, max(0, (step - self.step) // self.thin))
        if good:
            self.chunks.append(chunk._replace(**_first(chunk, good)))
            self.kept += good

    def _tell(self, phase: str, draws: PyTree | None) -> None:
        elapsed = time.perf_counter() - self.began
        report = Report(self.step, self.total, self.num_chains, draws, self.rate, elapsed)
        shown: dict[str, float] = {}
        for callback in self.callbacks:
            shown |= as_scores(callback(report))
        if shown:
            self.scores.append((self.step, shown))
        if report.stopped:
            self.status = "stopped"
        self.bar.update(self.step, phase, self.rate, shown)

    def collect(self, configuration: dict[str, Any], report: dict[str, Any], timing: dict[str, Any]) -> Run:
        """All chunks as one run."""
        if not self.chunks:
            return Run(None, None, {}, configuration, report, timing, self.status, self.scores)

        def join(*leaves: np.ndarray) -> np.ndarray:
            return np.concatenate(leaves, axis=1)

        draws = jax.tree.map(join, *[chunk.draws for chunk in self.chunks])
        gradients = jax.tree.map(join, *[chunk.gradients for chunk in self.chunks])
        stats = jax.tree.map(join, *[chunk.stats for chunk in self.chunks])
        return Run(draws, gradients, stats, configuration, report, timing, self.status, self.scores)


def _first(chunk: Any, count: int) -> dict[str, Any]:
    names = ("draws", "gradients", "stats")
    return {name: jax.tree.map(lambda leaf: leaf[:, :count], getattr(chunk, name)) for name in names}


def _divergence(session: _Session, problem: setup.Problem, ready: setup.Ready, run: Run) -> DivergenceError:
    """Where it happened, why it is likely, and a step size that should work."""
    chain, step, leaf = session.bad or (0, 0, 0)
    name = _tree.leaf_names(ready.start.position)[leaf]
    limit = pilot.curvature_limit(problem.model, ready.parts, ready.start.position, jax.random.key(0))
    sampler = ready.parts.sampler
    order = 1.0 if type(sampler).__name__ in ("SGLD", "PSGLD") else 0.5
    advice = (
        f"try step_size={0.1 / limit**order:.2g} (a tenth of the scale that the curvature at the start allows)"
        if np.isfinite(limit) and limit > 0
        else "try a smaller step size"
    )
    kept = (
        f"The {run.num_draws} draws before it are in `error.run`."
        if run.num_draws
        else "There is no draw before it."
    )
    message = (
        f"chain {chain} left the finite numbers at step {step}: parameter `{name}` is NaN or infinite. The step size "
        f"({_show(sampler.step_size)}) is probably too large: {advice}, standardise the data, or use a prior that "
        f"keeps the parameters finite. {kept}"
    )
    return DivergenceError(message, run=run if run.num_draws else None, chain=chain, step=step)


def _show(step_size: Any) -> str:
    leaves = [f"{float(leaf):.3g}" for leaf in jax.tree.leaves(step_size) if np.ndim(leaf) == 0]
    return ", ".join(leaves[:4])
