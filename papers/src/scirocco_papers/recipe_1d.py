"""Ma, Chen & Fox (2015), figure 2 left: who hits two one-dimensional targets, and what leaving Γ out costs.

Targets exp(-U) with U = θ²/2 (one peak) and U = θ⁴ - 2θ² (two peaks), exact gradients. The paper's metric is in a
supplement that is not available. Here G⁻¹ = 1.5 √(U - min U + ½) for both targets: smooth, positive, and different in
peaks, barrier and tails.

Without Γ the law is known. With g = G^(-1/2) the naive force -g U' is the right one, -g V' + g', for V = U + log g: the
naive sampler targets exp(-U)/g. So not only that it misses can be shown, but that it misses by as much as it must.

All chains start at θ = 1, in one of the two peaks. After 20 units of time every second unit the positions are kept;
their law is compared with the target by KL(draws ‖ target) over 60 cells that are equally probable under the target.
The estimate is positive for exact draws too: (60 - 1)/2M for M of them. That floor is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco.samplers import SGRHMC, Gradient, Recipe, verify_recipe
from scirocco.types import Key
from scirocco_papers.base import Claim, Outcome, Settings, in_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Potential = Callable[[Any], Any]

TARGETS: dict[str, Potential] = {"one peak": lambda t: t**2 / 2, "two peaks": lambda t: t**4 - 2 * t**2}
LOWEST = {"one peak": 0.0, "two peaks": -1.0}
NAMES = ("SGLD", "SGHMC", "naive gSGRHMC", "gSGRHMC")
RIGHT = tuple(name for name in NAMES if not name.startswith("naive"))
NUM_CELLS, NUM_KEPT = 60, 10
BURN_IN, SPACING, START = 20.0, 2.0, 1.0
HIT, MISS, NEAR = 2.0, 10.0, 0.25
FULL, QUICK = (40_000, 0.00125, 0.005), (10_000, 0.00125, 0.01)
"""Chains, the step of SGLD, and that of the others."""
_POINTS = (-1.3, -0.4, 0.2, 0.9, 1.7)
_COLOURS = {"one peak": "#0072b2", "two peaks": "#d55e00"}


class Law(NamedTuple):
    """A density on a fine grid."""

    x: np.ndarray
    density: np.ndarray
    cumulated: np.ndarray

    @classmethod
    def of(cls, potential: Potential, reach: float = 7.0) -> Law:
        """exp(-potential), normalised by the trapezoidal rule on (-reach, reach)."""
        x = np.linspace(-reach, reach, 28_001)
        heights = np.exp(-np.asarray(potential(x), np.float64))
        sums = np.concatenate([[0.0], np.cumsum((heights[1:] + heights[:-1]) / 2 * np.diff(x))])
        return cls(x, heights / sums[-1], sums / sums[-1])

    def edges(self, num_cells: int) -> np.ndarray:
        """The inner edges of equally probable cells."""
        return self.quantiles(np.arange(1, num_cells) / num_cells)

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """Where the distribution function has these values."""
        inside = np.diff(self.cumulated, prepend=-1.0) > 0
        return np.interp(levels, self.cumulated[inside], self.x[inside])

    def cells(self, edges: np.ndarray) -> np.ndarray:
        """Probabilities of the cells between these edges."""
        return np.diff(np.concatenate([[0.0], np.interp(edges, self.x, self.cumulated), [1.0]]))


def counts_in(edges: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """How many draws are in each cell."""
    return np.bincount(np.searchsorted(edges, draws.ravel()), minlength=len(edges) + 1)


def jackknifed(edges: np.ndarray, draws: np.ndarray, num_groups: int = 20) -> float:
    """The standard error of the divergence of draws (kept, chain), by leaving out groups of chains."""
    counts = np.array([counts_in(edges, each) for each in np.array_split(draws, num_groups, axis=1)])
    without = kl_of_cells(counts.sum(axis=0) - counts)
    return float(np.sqrt((num_groups - 1) * np.var(without)))


def kl_of_cells(weights: np.ndarray) -> Any:
    """KL(weights ‖ uniform) along the last axis: of counts or probabilities in equally probable cells."""
    weights = np.asarray(weights, np.float64)
    shares = weights / weights.sum(axis=-1, keepdims=True)
    return np.sum(shares * np.log(np.where(shares > 0, shares, 1.0) * shares.shape[-1]), axis=-1)


def inverse_root(name: str) -> Potential:
    """G^(-1/2) of a target: the root of 1.5 √(U - min U + ½)."""
    return lambda t: (1.5 * (TARGETS[name](t) - LOWEST[name] + 0.5) ** 0.5) ** 0.5


def naive_law(name: str) -> Law:
    """What gSGRHMC without Γ targets: exp(-U)/G^(-1/2)."""
    return Law.of(lambda t: TARGETS[name](t) + np.log(inverse_root(name)(t)))


def sampler(name: str, root: Potential, step_size: float, friction: float = 1.0) -> Recipe:
    """One of the four, as a recipe; `friction` is SGHMC's."""
    if name == "SGLD":
        return Recipe(step_size, diffusion=1.0)
    if name == "SGHMC":
        return Recipe(
            step_size,
            diffusion={"momentum": friction},
            curl={("position", "momentum"): -1.0},
            auxiliaries=("momentum",),
        )
    return SGRHMC(step_size, root, gamma="naive" if name.startswith("naive") else None)


def first_states(recipe: Recipe, start: Any, num_chains: int, key: Key) -> Any:
    """All chains at `start`, their momenta drawn."""
    at = jnp.asarray(start, jnp.float32)
    return jax.vmap(lambda own: recipe.init(at, own))(jax.random.split(key, num_chains))


def mover(recipe: Recipe, potential: Potential, states: Any, key: Key) -> Callable[[Any, Any], Any]:
    """A function (step number, states of all chains) -> states, with exact gradients of -potential.

    Recipes draw standard normals alone, so those of all chains are drawn in one go.
    """
    num_chains = states.position.shape[0]
    one = jax.tree.map(lambda leaf: leaf[0], states.position)
    like = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((num_chains, *leaf.shape), leaf.dtype),
        jax.eval_shape(lambda: recipe.noise(key, one)),
    )
    slope = jax.grad(lambda position: -potential(position))

    def move(number: Any, states: Any) -> Any:
        normals = _tree.normal_like(jax.random.fold_in(key, number), like)
        return jax.vmap(lambda state, own: recipe.step(state, Gradient(total=slope(state.position)), own, number))(
            states, normals
        )

    return move


def run_chains(recipe: Recipe, potential: Potential, step_size: float, num_chains: int, key: Key) -> Any:
    """Positions (kept, chain)."""
    begin, steps = jax.random.split(key)
    first, between = round(BURN_IN / step_size), round(SPACING / step_size)

    @jax.jit
    def go() -> Any:
        states = first_states(recipe, START, num_chains, begin)
        move = mover(recipe, potential, states, steps)

        def stretch(carry: Any, _: Any) -> Any:
            number, states = carry
            states = jax.lax.fori_loop(number, number + between, move, states)
            return (number + between, states), states.position

        states = jax.lax.fori_loop(0, first, move, states)
        return jax.lax.scan(stretch, (jnp.asarray(first), states), length=NUM_KEPT)[1]

    return np.asarray(go())


def run(settings: Settings) -> Outcome:
    """Four samplers on two targets; a quick run has a quarter of the chains and, but for SGLD, steps twice as long."""
    num_chains, langevin, others = QUICK if settings.quick else FULL
    steps = {name: langevin if name == "SGLD" else others for name in NAMES}
    key = jax.random.key(settings.seed or 0)
    laws = {name: Law.of(potential) for name, potential in TARGETS.items()}
    numbers: dict[str, Any] = {
        "num_draws": num_chains * NUM_KEPT,
        "num_cells": NUM_CELLS,
        "step_sizes": steps,
        "targets": {},
    }
    shares: dict[str, dict[str, np.ndarray]] = {}
    for place, (target, law) in enumerate(laws.items()):
        edges = law.edges(NUM_CELLS)
        rng = np.random.default_rng([settings.seed or 0, place])
        facts: dict[str, Any] = {"floor": floor(law, edges, num_chains * NUM_KEPT, rng)}
        facts["naive_limit"] = float(kl_of_cells(naive_law(target).cells(edges)))
        facts["samplers"], shares[target] = {}, {}
        for number, name in enumerate(NAMES):
            recipe = sampler(name, inverse_root(target), steps[name])
            own = jax.random.fold_in(key, len(NAMES) * place + number)
            draws = run_chains(recipe, TARGETS[target], steps[name], num_chains, own)
            counts = counts_in(edges, draws)
            shares[target][name] = counts / counts.sum() * NUM_CELLS
            found = {"kl": float(kl_of_cells(counts)), "kl_error": jackknifed(edges, draws)}
            facts["samplers"][name] = found | _verify(recipe, TARGETS[target])
        numbers["targets"][target] = facts
    return Outcome(judge(numbers), numbers, lambda figure: draw(figure, numbers, shares, laws), notes(numbers))


def floor(law: Law, edges: np.ndarray, num_draws: int, rng: np.random.Generator) -> dict[str, float]:
    """The divergence estimated from exact draws: mean and standard deviation of 20 such samples."""
    found = [kl_of_cells(counts_in(edges, law.quantiles(rng.random(num_draws)))) for _ in range(20)]
    return {"mean": float(np.mean(found)), "sd": float(np.std(found, ddof=1))}


def _verify(recipe: Recipe, potential: Potential) -> dict[str, Any]:
    found = verify_recipe(recipe, [jnp.asarray(point) for point in _POINTS], lambda t: -potential(t))
    return {"verified": found.ok, "residual": found.residual, "said": str(found)}


def judge(numbers: dict[str, Any]) -> list[Claim]:
    """The claims, with the numbers found here."""
    targets = numbers["targets"]
    verified = {name: all(t["samplers"][name]["verified"] for t in targets.values()) for name in NAMES}
    refused = not any(t["samplers"]["naive gSGRHMC"]["verified"] for t in targets.values())
    residuals = {name: max(t["samplers"][name]["residual"] for t in targets.values()) for name in NAMES}
    said = next(iter(targets.values()))["samplers"]["naive gSGRHMC"]["said"]
    return [
        *(_misses(target, facts) for target, facts in targets.items()),
        *(_hits(name, targets) for name in reversed(RIGHT)),
        Claim(
            "Indeed, this system cannot be written within our framework [the naive one; the others can].",
            f"residuals of the Fokker-Planck equation: {', '.join(f'{n} {r:.1g}' for n, r in residuals.items())}. "
            f"Of the naive one verify_recipe says: {said}",
            "sc.verify_recipe passes SGLD, SGHMC and gSGRHMC and refuses the naive one, on both targets",
            refused and all(verified[name] for name in RIGHT),
        ),
    ]


def _misses(target: str, facts: dict[str, Any]) -> Claim:
    found, limit, exact = (facts["samplers"]["naive gSGRHMC"]["kl"], facts["naive_limit"], facts["floor"]["mean"])
    error = facts["samplers"]["naive gSGRHMC"].get("kl_error", np.nan)
    return Claim(
        f"the naïve implementation does not converge to the target distribution ({target})",
        f"KL {found:.5f}; the law exp(-U)/G^(-1/2) that it must have: {limit:.5f}; exact draws {exact:.5f}",
        f"above {MISS:g} times the KL of as many exact draws, and less the latter within {NEAR:.0%} of its own law's",
        bool(found > MISS * exact and abs(found - exact - limit) < NEAR * limit),
        margin=in_errors((found - MISS * exact, error), (NEAR * limit - abs(found - exact - limit), error)),
    )


def _hits(name: str, targets: dict[str, Any]) -> Claim:
    found = {target: facts["samplers"][name]["kl"] for target, facts in targets.items()}
    exact = {target: facts["floor"] for target, facts in targets.items()}
    shown = [f"{t}: KL {found[t]:.5f}, exact draws {exact[t]['mean']:.5f} ± {exact[t]['sd']:.5f}" for t in targets]
    sentence = {
        "gSGRHMC": "the gSGRHMC algorithm obtained via our recipe indeed has the correct invariant distribution"
    }.get(name, f"[bars of {name}: it has the correct one, too]")
    return Claim(
        sentence,
        "; ".join(shown),
        f"at most {HIT:g} times the KL of as many exact draws: what the step adds is below the Monte Carlo error",
        all(found[target] <= HIT * exact[target]["mean"] for target in targets),
        margin=in_errors(
            *(
                (HIT * exact[t]["mean"] - found[t], facts["samplers"][name].get("kl_error", np.nan))
                for t, facts in targets.items()
            )
        ),
    )


def notes(numbers: dict[str, Any]) -> list[str]:
    """Findings in addition to the claims."""
    steps = numbers["step_sizes"]
    return [
        "The metric is ours, G⁻¹ = 1.5 √(U - min U + ½): the paper's is in its supplement. Heights of the naive bars "
        "depend on it; with a constant one they would vanish.",
        f"Steps: SGLD {steps['SGLD']:g}, the others {steps['gSGRHMC']:g}; friction of SGHMC 1; exact gradients; "
        f"{numbers['num_draws']:,} draws; KL(draws ‖ target) over {NUM_CELLS} equally probable cells.",
    ]


def draw(figure: Figure, numbers: dict[str, Any], shares: dict[str, Any], laws: dict[str, Law]) -> None:
    """Bars as in the paper, and beside them the laws of the two Riemannian samplers relative to the target."""
    figure.set_size_inches(11.5, 4)
    bars, *panels = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
    for shift, (target, facts) in zip((-0.19, 0.19), numbers["targets"].items(), strict=True):
        places = np.arange(len(NAMES)) + shift
        heights = [facts["samplers"][name]["kl"] for name in NAMES]
        bars.bar(places, heights, 0.36, color=_COLOURS[target], label=target)
        limit, exact = facts["naive_limit"] + facts["floor"]["mean"], facts["floor"]["mean"]
        bars.plot(places[2] + np.array([-0.18, 0.18]), [limit, limit], color="black", linewidth=1.5)
        bars.plot([places[0] - 0.18, places[-1] + 0.18], [exact, exact], ":", color="black", linewidth=0.9)
    bars.set_xticks(range(len(NAMES)), [name.replace(" ", "\n") for name in NAMES])
    bars.set(title="KL(draws ‖ target)", ylabel="KL divergence")
    bars.plot([], [], color="black", label="exp(-U)/G^(-1/2)")
    bars.plot([], [], ":", color="black", label="as many exact draws")
    bars.legend(fontsize=8.5, loc="upper left")
    for axes, (target, law) in zip(panels, laws.items(), strict=True):
        middles = law.quantiles((np.arange(NUM_CELLS) + 0.5) / NUM_CELLS)
        wrong = naive_law(target).cells(law.edges(NUM_CELLS)) * NUM_CELLS
        axes.axhline(1.0, color="grey", linewidth=0.8)
        axes.plot(middles, wrong, color="black", linewidth=1, label="exp(-U)/G^(-1/2)")
        for name, colour in (("naive gSGRHMC", "#d55e00"), ("gSGRHMC", "#009e73")):
            axes.plot(middles, shares[target][name], ".", color=colour, label=name)
        axes.set(title=f"{target}: density over the target's", xlabel="θ")
    panels[0].legend(fontsize=8.5)
