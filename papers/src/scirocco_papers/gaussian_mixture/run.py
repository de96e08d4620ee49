"""Thesis figure 4.6.1: the six samplers of the R package on a mixture of two Gaussians, against NUTS.

x_i ~ ½ N(θ₁, I₂) + ½ N(θ₂, I₂), θ_j ~ N(0, 10 I₂), N = 1,000, batches of 100 rows drawn without replacement. Data and
starting points are the paper's own (R's `set.seed(2)` and the authors' script). The text gives the centres (0, 0) and
(0.1, 0.1); the script has (0, 0) and (0.5, 0.5), which fits the Stan draws stored with it and is used here.

Step sizes are the thesis': for SGLD its h is our 2ε; SGHMC and SGNHT run in R's form (α = a = 0.01, L = 5). 10,000
iterations after a burn-in of as many (SGHMC a fifth, of 5 steps each); with control variates no burn-in, from a mode
found by 10,000 steps of stochastic gradient descent with rate 5·10⁻⁵. The paper shows one chain of each; here a claim
is checked on the mean over several chains. `measures` documents what is measured of a chain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import gaussian_kde

from scirocco._extras import require
from scirocco.errors import DivergenceError
from scirocco.estimators import ControlVariates, Estimator, Full, Minibatch
from scirocco.model import Model
from scirocco.run import Kernel, sample
from scirocco.samplers import SGHMC, SGLD, SGNHT, Sampler
from scirocco.types import Array, Params
from scirocco_papers.base import Outcome, Settings
from scirocco_papers.gaussian_mixture.as_in_r import sample_as_in_r
from scirocco_papers.gaussian_mixture.claims import judge, notes
from scirocco_papers.gaussian_mixture.measures import Pair, Yardstick
from scirocco_papers.nuts import Nuts
from scirocco_papers.r_stream import RStream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GRID = (np.linspace(-0.7, 1.1, 70), np.linspace(-0.7, 1.2, 74))
_KERNELS = 2_000
_MASSES = (0.9, 0.7, 0.5, 0.3, 0.1)
_COLOURS = {"sgld": "#e69f00", "sghmc": "#56b4e9", "sgnht": "#009e73"}


@dataclass(frozen=True)
class Density:
    """A kernel density estimate of 2-D draws on the common grid, as probabilities of its cells."""

    cells: np.ndarray

    @classmethod
    def of(cls, draws: np.ndarray) -> Density:
        """From draws (draw, 2), thinned to the same number for every sampler so that all are smoothed equally."""
        kept = draws[np.linspace(0, len(draws) - 1, _KERNELS).astype(int)]
        x, y = np.meshgrid(*_GRID)
        values = gaussian_kde(kept.T)(np.stack([x.ravel(), y.ravel()])).reshape(x.shape)
        return cls(values / values.sum())

    def levels(self) -> list[float]:
        """Heights whose contours enclose 90, 70, 50, 30 and 10 % of the mass."""
        ordered = np.sort(self.cells.ravel())[::-1]
        return [float(ordered[np.searchsorted(np.cumsum(ordered), mass)]) for mass in _MASSES]


def total_variation(a: Density, b: Density) -> float:
    """½ Σ |a - b| over the grid's cells."""
    return float(0.5 * np.abs(a.cells - b.cells).sum())


def draw(figure: Figure, densities: dict[str, Density], numbers: dict[str, Any]) -> None:
    """2 × 3 panels: the first chain of each sampler in colour over the black contours of NUTS."""
    figure.set_size_inches(10.5, 7.2)
    panels = figure.subplots(2, 3, sharex=True, sharey=True)
    names = [name for name in densities if name != "nuts"]
    for axes, name in zip(panels.ravel(), names, strict=True):
        colour = _COLOURS[name.removesuffix("cv")]
        for key, shade, width in (("nuts", "black", 0.9), (name, colour, 1.7)):
            axes.contour(*_GRID, densities[key].cells, levels=densities[key].levels(), colors=shade, linewidths=width)
        facts = numbers["samplers"][name]
        step = f"h = {facts['h']:g}" + (" (thesis' h diverges)" if facts["h"] != facts["thesis_h"] else "")
        axes.set_title(f"{name}, {step}", color="black", loc="left")
        axes.text(
            0.97,
            0.03,
            f"share {facts['share']:.2f}   spread {facts['spread']:.2f}   TV {facts['tv']:.2f}",
            transform=axes.transAxes,
            ha="right",
            fontsize=8.5,
            color="#444444",
        )
    for axes in panels[1]:
        axes.set_xlabel("first coordinate of θ₁")
    for axes in panels[:, 0]:
        axes.set_ylabel("second coordinate of θ₁")
    figure.suptitle("θ₁ of the Gaussian mixture: one chain of each sampler (colour) over NUTS (black)")


NUM_ROWS, BATCH_SIZE, NUM_LEAPFROG = 1_000, 100, 5
CENTRES = np.array([[0.0, 0.0], [0.5, 0.5]])
PRIOR_VARIANCE = 10.0
STEP_SIZES = {"sgld": 5e-3, "sghmc": 5e-4, "sgnht": 3e-4, "sgldcv": 1e-2, "sghmccv": 1.5e-3, "sgnhtcv": 3e-3}
NUM_STEPS, OPTIMIZER_RATE = 10_000, 5e-5
FULL, QUICK = (8, 10_000), (3, 2_000)
"""Chains of a sampler, and draws of a run of NUTS."""
_SAMPLERS: dict[str, Callable[[float], Sampler]] = {
    "sgld": lambda h: SGLD(h / 2),
    # R's friction is far too small for the noise, which scirocco would measure and warn of; it is known here: see notes
    "sghmc": lambda h: dataclasses.replace(SGHMC.from_r(h, 0.01, NUM_LEAPFROG), gradient_noise=0.0),
    "sgnht": lambda h: SGNHT.from_r(h, a=0.01),
}


def log_likelihood(params: Params, x: Array) -> Any:
    """Log likelihood of one row."""
    first, second = (-0.5 * jnp.sum((x - params[name]) ** 2) for name in ("theta1", "theta2"))
    return jnp.logaddexp(first, second)


def log_prior(params: Params) -> Any:
    """N(0, 10) for every coordinate."""
    return -0.5 * sum(jnp.sum(theta**2) for theta in params.values()) / PRIOR_VARIANCE


MODEL = Model(log_likelihood, log_prior)


class Problem(NamedTuple):
    """The paper's data and starting point, and what the chains are compared with."""

    x: np.ndarray
    start: Pair
    yardstick: Yardstick
    runs: tuple[np.ndarray, np.ndarray]
    """θ₁ of two runs of NUTS apart: how far two such samples are from each other."""


def paper_data() -> tuple[np.ndarray, Pair]:
    """Rows and starting point of the authors' script."""
    stream = RStream(2)
    component = stream.sample(2, NUM_ROWS)
    normals = stream.normal(2 * NUM_ROWS).reshape(NUM_ROWS, 2)
    rotated = np.stack([-normals[:, 1], normals[:, 0]], axis=1)  # MASS::mvrnorm: times the eigenvectors of I₂
    start = {name: stream.normal(2).astype(np.float32) for name in ("theta1", "theta2")}
    return (CENTRES[component] + rotated).astype(np.float32), start


def run(settings: Settings) -> Outcome:
    """NUTS, the six samplers, and two of them as the R package runs them."""
    seed = settings.seed or 0
    num_chains, num_reference = QUICK if settings.quick else FULL
    problem = _problem(seed, num_reference)
    yardstick = problem.yardstick
    densities = {"nuts": Density.of(yardstick.reference["theta1"])}
    numbers: dict[str, Any] = {}
    for name in STEP_SIZES:
        draws, facts = _run_one(name, problem, num_chains, seed)
        densities[name] = Density.of(draws["theta1"][0])
        numbers[name] = facts | yardstick.measure(draws) | {"tv": total_variation(densities[name], densities["nuts"])}
    exact = _sample("sgnht", STEP_SIZES["sgnht"], problem, 2, seed, Full())
    everything = {
        "num_chains": num_chains,
        "posterior": _facts(problem),
        "samplers": numbers,
        "sgnht_with_exact_gradients": yardstick.measure(exact),
        "as_in_r": {
            name: yardstick.measure(_run_in_r(name, problem, num_chains, seed)) for name in ("sghmc", "sgldcv")
        },
    }
    return Outcome(judge(everything), everything, lambda figure: draw(figure, densities, everything), notes(everything))


def _problem(seed: int, num_reference: int) -> Problem:
    x, start = paper_data()
    optimizer = require("optax", "`scirocco reproduce gaussian-mixture`").sgd(OPTIMIZER_RATE)
    estimator = ControlVariates(
        BATCH_SIZE, optimizer=optimizer, num_optimizer_steps=NUM_STEPS, polish=False, sampling="without_replacement"
    )
    kernel = Kernel(MODEL, x, SGLD(1e-4), estimator)
    mode = jax.tree.map(np.asarray, kernel.position(kernel.init(jax.random.key(seed), start)))
    nuts = Nuts(MODEL.log_density, start, x, num_warmup=1_000, num_draws=num_reference)
    first, second = (nuts.run(seed + k).draws for k in range(2))
    both = {name: np.concatenate([first[name], second[name]]) for name in first}
    exchanged = {"theta1": both["theta2"], "theta2": both["theta1"]}  # as likely as the draws themselves
    reference = {name: np.concatenate([both[name], exchanged[name]]) for name in both}
    return Problem(x, start, Yardstick.of(mode, reference), (first["theta1"], second["theta1"]))


def _facts(problem: Problem) -> dict[str, Any]:
    """The posterior in numbers, with what decides how the samplers fare: its curvature and the gradient noise."""
    mode, reference = problem.yardstick.mode, problem.yardstick.reference["theta1"]
    slopes = jax.vmap(jax.grad(log_likelihood), (None, 0))(mode, problem.x)
    flat = np.concatenate([mode["theta1"], mode["theta2"]])

    def of_vector(vector: Any) -> Any:
        return MODEL.log_density({"theta1": vector[:2], "theta2": vector[2:]}, problem.x)

    noise = {sign: float(np.var(slopes["theta1"] + sign * slopes["theta2"], axis=0).sum()) for sign in (1, -1)}
    return {
        "mode": mode,
        "mean": reference.mean(axis=0),
        "sd": reference.std(axis=0),
        "tv_of_two_runs": total_variation(*(Density.of(theta) for theta in problem.runs)),
        "disc_radii": problem.yardstick.radii,
        "largest_curvature": float(np.linalg.eigvalsh(-jax.hessian(of_vector)(flat)).max()),
        "noise_of_sum_over_noise_of_difference": noise[1] / noise[-1],
    }


def _run_one(name: str, problem: Problem, num_chains: int, seed: int) -> tuple[Pair, dict[str, Any]]:
    """All chains; at half the thesis' step, and again, as long as chains diverge (NaN or inf)."""
    h, facts = STEP_SIZES[name], {"thesis_h": STEP_SIZES[name]}
    while True:
        try:
            draws = _sample(name, h, problem, num_chains, seed)
            return draws, facts | {"h": h}
        except DivergenceError as error:
            facts.setdefault("diverged_at_step", error.step)
            h /= 2


def _sample(
    name: str, h: float, problem: Problem, num_chains: int, seed: int, estimator: Estimator | None = None
) -> Pair:
    family, controlled = name.removesuffix("cv"), name.endswith("cv")
    thin = NUM_LEAPFROG if family == "sghmc" else 1
    if estimator is None:
        estimator = Minibatch(BATCH_SIZE, sampling="without_replacement")
        if controlled:
            estimator = ControlVariates(BATCH_SIZE, centre=problem.yardstick.mode, sampling="without_replacement")
    result = sample(
        MODEL,
        problem.x,
        problem.start,
        sampler=_SAMPLERS[family](h),
        estimator=estimator,
        num_samples=NUM_STEPS // thin,
        num_burnin=0 if controlled else NUM_STEPS,
        thin=thin,
        num_chains=num_chains,
        seed=seed,
        progress=False,
    )
    return _double(result.draws)


def _run_in_r(name: str, problem: Problem, num_chains: int, seed: int) -> Pair:
    family, controlled = name.removesuffix("cv"), name.endswith("cv")
    count = NUM_STEPS // NUM_LEAPFROG if family == "sghmc" else NUM_STEPS
    draws = sample_as_in_r(
        family,
        MODEL,
        problem.x,
        problem.start,
        STEP_SIZES[name],
        batch_size=BATCH_SIZE,
        num_samples=count,
        num_burnin=0 if controlled else count,
        num_chains=num_chains,
        seed=seed,
        centre=problem.yardstick.mode if controlled else None,
        num_leapfrog=NUM_LEAPFROG,
    )
    return _double(draws)


def _double(draws: Pair) -> Pair:
    return {name: np.asarray(theta, np.float64) for name, theta in draws.items()}
