"""Ma, Chen & Fox (2015), figure 2 right: how fast a bent, strongly correlated law in two dimensions is explored.

U = θ₁⁴/10 + w²/2 with w = 4 (θ₂ + 1.2) - θ₁². In (θ₁, w), which has a constant Jacobian, the target is a product of
exp(-θ₁⁴/10) and a standard normal: 10 × 10 equally probable cells are known exactly. KL(draws ‖ target) over them is
measured for all that a chain has visited since its start at the mode, without burn-in; the mean over chains is shown
against log₃(steps/100) + 1, as in the paper. A step of every sampler costs one (exact) gradient.

The paper's settings are in a supplement that is missing here. Each sampler gets the best of a grid, `grid`: the setting
that needs the fewest steps to KL 0.05, which is what 1,000 independent draws have, in runs made for that alone. The
metric is G⁻¹ = c (U + ½)^a, smooth and positive as U ≥ 0, with a = ¼ or ½ (½ with c = 1.5: that of `recipe-1d`). SGRLD
has the metric but no momentum; it is not in the figure, but the paper's sentence about "either element" needs it.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.samplers import SGRLD, Recipe
from scirocco.types import Array, Key, Params
from scirocco_papers.base import Outcome, Settings
from scirocco_papers.recipe_1d import Law, first_states, kl_of_cells, mover, sampler
from scirocco_papers.recipe_2d.claims import LEVEL, LEVELS, judge, notes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

START = (0.0, -1.2)
SIDE = 10
NUM_GROUPS = 10
FULL, QUICK = (200, 400, 8), (50, 100, 6)
"""Chains of a pilot and of a run, and log₃(steps/100) + 1 at the end of a run."""
NAMES = ("SGLD", "SGRLD", "SGHMC", "gSGRHMC")
_COLOURS = {"SGLD": "#e69f00", "SGRLD": "#999999", "SGHMC": "#56b4e9", "gSGRHMC": "#d55e00"}


def potential(theta: Params) -> Any:
    """U."""
    return theta[0] ** 4 / 10 + across(theta) ** 2 / 2


def across(theta: Params) -> Any:
    """w: how far from the ridge, in standard deviations."""
    return 4 * (theta[1] + 1.2) - theta[0] ** 2


def edges() -> tuple[np.ndarray, np.ndarray]:
    """Inner edges, in θ₁ and in w, of equally probable cells."""
    return Law.of(lambda t: t**4 / 10).edges(SIDE), Law.of(lambda t: t**2 / 2).edges(SIDE)


def cell(theta: Array) -> Any:
    """The number of the cell that a point is in."""
    first, second = edges()
    return SIDE * jnp.sum(theta[0] > first) + jnp.sum(across(theta) > second)


class Setting(NamedTuple):
    """A sampler and its parameters."""

    name: str
    step_size: float
    friction: float = 1.0
    power: float = 0.0
    scale: float = 1.0

    @property
    def words(self) -> str:
        """The settings for tables."""
        metric = f", G⁻¹ = {self.scale:g} (U + ½)^{self.power:g}" if self.power else ""
        friction = f", friction {self.friction:g}" if self.name == "SGHMC" else ""
        return f"ε = {self.step_size:.3g}{friction}{metric}"


def grid(name: str) -> list[Setting]:
    """What is tried for a sampler: around the best step, up to those that are biased too much or not stable."""
    plain, powers = (0.01, 0.014, 0.02, 0.028, 0.04), (0.25, 0.5)
    if name == "SGLD":
        return [Setting(name, step) for step in plain]
    if name == "SGRLD":
        return [Setting(name, step, power=a) for a in powers for step in plain]
    if name == "SGHMC":
        return [Setting(name, step, c) for c in (0.3, 0.5, 0.7, 1.0, 2.0) for step in (0.13, 0.15, 0.17, 0.2)]
    return [
        Setting(name, relative / c**0.5, power=a, scale=c)
        for a in powers
        for c in (0.15, 0.5, 1.5)
        for relative in (0.1, 0.13, 0.16)
    ]


class Tried(NamedTuple):
    """A setting and its steps to each level in a short run."""

    setting: Setting
    steps: dict[float, float]


@functools.lru_cache
def _recipe(setting: Setting) -> Recipe:
    def inverse(theta: Array) -> Any:
        return setting.scale * (potential(theta) + 0.5) ** setting.power

    if setting.name == "SGRLD":
        return SGRLD(setting.step_size, inverse)
    return sampler(setting.name, lambda theta: jnp.sqrt(inverse(theta)), setting.step_size, setting.friction)


def recipe(setting: Setting) -> Recipe:
    """The sampler; those that differ in the step alone share one program."""
    return dataclasses.replace(_recipe(setting._replace(step_size=1.0)), step_size=setting.step_size)


def marks(last: int) -> list[int]:
    """Steps at which the divergence is taken: log₃(steps/100) + 1 = 0, ½, 1, ..., last."""
    return [round(100 * 3 ** (half / 2 - 1)) for half in range(2 * last + 1)]


@functools.partial(jax.jit, static_argnums=(0,))
def _advance(num_chains: int, recipe: Recipe, carry: Any, first: Any, last: Any, key: Key) -> Any:
    move = mover(recipe, potential, carry[0], key)
    chains = jnp.arange(num_chains)

    def one(number: Any, carry: Any) -> Any:
        states, counts = carry
        states = move(number, states)
        return states, counts.at[chains, jax.vmap(cell)(states.position)].add(1)

    return jax.lax.fori_loop(first, last, one, carry)


def curves(setting: Setting, num_chains: int, at: list[int], key: Key) -> np.ndarray:
    """Divergence (chain, mark) of what each chain has visited; infinite once a chain diverges."""
    begin, steps = jax.random.split(key)
    own = recipe(setting)
    carry = (first_states(own, START, num_chains, begin), jnp.zeros((num_chains, SIDE**2), jnp.int32))
    found = np.full((num_chains, len(at)), np.inf)
    for number, (first, last) in enumerate(zip([0, *at], at, strict=False)):
        carry = _advance(num_chains, own, carry, first, last, steps)
        if not np.isfinite(carry[0].position).all():
            break
        found[:, number] = kl_of_cells(np.asarray(carry[1]))
    return found


def steps_to(level: float, at: list[int], curve: np.ndarray) -> float:
    """Steps until a curve is below a level for the first time, interpolated between marks; infinite if never."""
    below = np.flatnonzero(curve <= level)
    if not len(below):
        return float("inf")
    last = below[0]
    if last == 0:
        return float(at[0])
    return float(
        np.exp(np.interp(-np.log(level), -np.log(curve[[last - 1, last]]), np.log(np.array(at)[[last - 1, last]])))
    )


def paths(setting: Setting, key: Key, num_points: int = 10) -> np.ndarray:
    """The first points of one chain."""
    own = recipe(setting)
    states = first_states(own, START, 1, key)
    move, points = mover(own, potential, states, key), [np.array(START)]
    for number in range(num_points):
        states = move(jnp.asarray(number), states)
        points.append(np.asarray(states.position[0]))
    return np.array(points)


def run(settings: Settings) -> Outcome:
    """For each sampler the grid, then the best of it for longer, with fresh randomness."""
    num_pilots, num_chains, last = QUICK if settings.quick else FULL
    at = marks(last)
    keys = jax.random.split(jax.random.key(settings.seed or 0), 3)
    numbers: dict[str, Any] = {"level": LEVEL, "steps": at, "num_chains": num_chains, "samplers": {}}
    shown: dict[str, np.ndarray] = {}
    for place, name in enumerate(NAMES):
        pilot, chosen, path = (jax.random.fold_in(key, place) for key in keys)
        tried = _pilot(grid(name)[:: 2 if settings.quick else 1], num_pilots, pilot)
        found, best, left = _best(tried, num_chains, at, chosen)
        facts = _measure(found, at) | {"setting": best.words, "left_the_finite_numbers": left}
        facts["grid"] = {one.setting.words: one.steps for one in tried}
        facts["best_of_grid"] = {level: min(one.steps[level] for one in tried) for level in LEVELS}
        facts["best_of_power"] = _by_power(tried)
        numbers["samplers"][name] = facts
        shown[name] = paths(best, path)
    return Outcome(judge(numbers), numbers, lambda figure: _draw(figure, numbers, shown), notes(numbers))


def _pilot(settings: list[Setting], num_chains: int, key: Key) -> list[Tried]:
    """Steps to each level for each setting, the fewest to `LEVEL` first; none for a setting that is not stable."""
    at, tried = marks(5), []
    for one in settings:
        mean = curves(one, num_chains, at, key).mean(axis=0)
        stable = np.isfinite(mean).all()
        tried.append(Tried(one, {level: steps_to(level, at, mean) if stable else float("inf") for level in LEVELS}))
    return sorted(tried, key=lambda pair: pair.steps[LEVEL])


def _by_power(tried: list[Tried]) -> dict[float, float]:
    """The fewest steps to `LEVEL` for each exponent of the metric."""
    powers = sorted({one.setting.power for one in tried})
    return {a: min(one.steps[LEVEL] for one in tried if one.setting.power == a) for a in powers}


def _best(tried: list[Tried], num_chains: int, at: list[int], key: Key) -> Any:
    """Curves of the best setting that stays finite, it, and those before it that did not."""
    left = []
    for setting, _ in tried:
        found = curves(setting, num_chains, at, key)
        if np.isfinite(found).all():
            break
        left.append(setting.words)
    return found, setting, left


def _measure(found: np.ndarray, at: list[int]) -> dict[str, Any]:
    """Mean curve, steps to each level, and their standard errors from ten groups of chains."""
    mean = found.mean(axis=0)
    groups = [group.mean(axis=0) for group in np.array_split(found, NUM_GROUPS)]
    steps = {level: steps_to(level, at, mean) for level in LEVELS}
    errors = {level: _standard_error([steps_to(level, at, group) for group in groups]) for level in LEVELS}
    return {"kl": mean, "steps_to": steps, "standard_errors": errors}


def _standard_error(values: list[float]) -> float:
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if np.isfinite(values).all() else float("inf")


def _draw(figure: Figure, numbers: dict[str, Any], shown: dict[str, np.ndarray]) -> None:
    """The curves, and the first ten points of each sampler on the contours."""
    figure.set_size_inches(11, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=(1.2, 1))
    places = np.log(np.array(numbers["steps"]) / 100) / np.log(3) + 1
    for name, facts in numbers["samplers"].items():
        line = ":" if name == "SGRLD" else "-"
        left.plot(
            places, facts["kl"], "o" + line, color=_COLOURS[name], markersize=3, label=f"{name}, {facts['setting']}"
        )
        right.plot(*shown[name].T, "o" + line, color=_COLOURS[name], markersize=3.5, linewidth=1, label=name)
    left.axhline(numbers["level"], color="grey", linewidth=0.8)
    left.set(
        yscale="log",
        xlabel="log₃(steps/100) + 1",
        ylabel="KL divergence",
        title="KL(visited ‖ target), mean over chains",
    )
    left.legend(fontsize=8.5)
    x, y = np.meshgrid(np.linspace(-3.2, 3.2, 200), np.linspace(-2.2, 1.8, 200))
    right.contour(x, y, np.exp(-potential((x, y))), levels=[0.01, 0.1, 0.3, 0.6, 0.9], colors="#bbbbbb", linewidths=0.8)
    right.set(title="the first ten points", xlabel="θ₁", ylabel="θ₂")
    right.legend(fontsize=8.5, loc="upper center", ncols=2)
