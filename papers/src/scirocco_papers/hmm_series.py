"""Hidden Markov models: the reason for SCIR that its paper names first, on a simulated and on a real series.

Simulated: four states, 40 categories with sparse shares; each sampler has five seeds and as many passes, and is
compared by the held-out perplexity. Real: the daily returns of a stock that matplotlib ships (2004-2008), two states;
SCIR's posterior beside the exact one. Buffers: the error of the expected transitions of the returns that windows of 500
observations leave, by the length of their buffers. (The categories tell the state almost by themselves: their error is
zero with any buffer.)

The papers have no such experiment. Their sentences are about the samplers, and are checked here for these series.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco._extras import require
from scirocco.models import HMM
from scirocco_latent.hmm import buffered
from scirocco_latent.hmm.gibbs import StatePrior, start
from scirocco_latent.hmm.priors import resolve
from scirocco_latent.hmm.series import read
from scirocco_papers.base import Claim, Outcome, Settings, error_of, in_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_STATES, NUM_CATEGORIES, SPARSE = 4, 40, 0.1
SAMPLERS = {"exact": "gibbs", "SCIR": "scir", "SCIR-CV": "scir_cv", "SGRLD": "sgrld"}
BUFFERS = (0, 5, 10, 20, 40)
GEOMETRIC, LEFT, SMALL, NEAR = 0.9, 0.01, 1e-3, 0.5
"""R² of the line, what is left of the error at the longest buffer, the error that the choice leaves, and standard
deviations between posterior means."""


def run(settings: Settings) -> Outcome:
    """A quick run has a shorter series, three seeds and fewer passes."""
    seed = settings.seed or 0
    length, held, seeds, passes = (3_000, 2_000, 3, 40) if settings.quick else (20_000, 10_000, 5, 60)
    x, real = simulated(length + held, seed), series()
    numbers: dict[str, Any] = {
        "quick": settings.quick,
        "length": length,
        "passes": passes,
        "perplexities": perplexities(x[:length], x[length:], passes, [seed + k for k in range(seeds)]),
        "buffers": buffer_errors(real, seed),
        "returns": returns(real, 300 if settings.quick else 8_000, seed),
    }
    return Outcome(judge(numbers), numbers, lambda figure: draw(figure, numbers))


# -- measuring -----------------------------------------------------------------------------------------------


def simulated(length: int, seed: int) -> np.ndarray:
    """Categories."""
    rng = np.random.default_rng([seed, 41])
    stay = rng.uniform(0.85, 0.97, NUM_STATES)
    rest = rng.dirichlet(np.ones(NUM_STATES), NUM_STATES) * (1 - np.eye(NUM_STATES))
    moves = np.diag(stay) + (1 - stay)[:, None] * rest / rest.sum(axis=1, keepdims=True)
    shares = rng.dirichlet(np.full(NUM_CATEGORIES, SPARSE), NUM_STATES)
    z, edges, drawn = np.zeros(length, int), np.cumsum(moves, axis=1), rng.random(length)
    for t in range(1, length):
        z[t] = min(np.searchsorted(edges[z[t - 1]], drawn[t]), NUM_STATES - 1)
    found: np.ndarray = (rng.random(length)[:, None] > np.cumsum(shares, axis=1)[z, :-1]).sum(axis=1)
    return found


def series() -> np.ndarray:
    """Daily returns in per cent."""
    prices = require("matplotlib.cbook", "hmm-series").get_sample_data("goog.npz")["price_data"]
    found: np.ndarray = 100 * np.diff(np.log(prices["close"]))
    return found


def perplexities(x: np.ndarray, held: np.ndarray, passes: int, seeds: list[int]) -> dict[str, list[float]]:
    """exp(-held-out log likelihood per observation) of each sampler and seed."""
    found: dict[str, list[float]] = {}
    for name, sampler in SAMPLERS.items():
        found[name] = []
        for seed in seeds:
            model = HMM(
                NUM_STATES,
                emissions="categorical",
                sampler=sampler,
                prior={"concentration": SPARSE},
                categories=range(NUM_CATEGORIES),
                batch_size=None if sampler == "gibbs" else 1_000,
                num_starts=4,
                num_chains=1,
                num_samples=100,
                seed=seed,
                num_threads=1,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(x, num_epochs=passes, progress=False)
            found[name].append(float(np.exp(-model.score(held))))
    return found


def buffer_errors(x: np.ndarray, seed: int) -> dict[str, Any]:
    """The error of expected transitions per observation by the length of buffers, and the one that `HMM` chooses."""
    given = read(x)
    emission = resolve("gaussian", given, 2, None, None)
    prior, data = StatePrior(2, 1.0, 0.0, emission), emission.encode(given)
    params = start(prior, data, given.bounds, 4, seed)
    errors = [buffered.measured_error(prior, params, data, given.bounds, length, seed) for length in BUFFERS]
    chosen = buffered.settings("scir", prior, data, given.bounds, 1_000, None, None, 4, seed)
    return {"lengths": list(BUFFERS), "errors": errors, "chosen": chosen.buffer, "left": chosen.error}


def returns(x: np.ndarray, steps: int, seed: int) -> dict[str, Any]:
    """Posterior means and deviations by the exact sampler and by SCIR: deviations of returns, probabilities to stay."""
    found = {}
    for name in ("exact", "SCIR"):
        step = None if name == "exact" else 0.1
        model = HMM(2, sampler=SAMPLERS[name], step_size=step, num_chains=2, num_samples=steps // 4, seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(x, num_epochs=steps, progress=False)
        sd = np.sqrt(model.draws_["covariances"][..., 0, 0])
        stay = np.diagonal(model.draws_["transitions"], axis1=-2, axis2=-1)
        order = np.argsort(sd.mean(axis=(0, 1)))
        each = np.concatenate([np.log(sd[..., order]), np.log(1 - stay[..., order])], axis=-1)
        found[name] = {"mean": each.mean(axis=(0, 1)).tolist(), "sd": each.std(axis=(0, 1)).tolist()}
    return found


# -- judging -------------------------------------------------------------------------------------------------


def judge(numbers: dict[str, Any]) -> list[Claim]:
    """The claims, with the numbers found here."""
    return [
        _order("SCIR", "SGRLD", "the SCIR algorithm … outperforms existing methods (SGRLD), strictly", numbers),
        _order("SCIR-CV", "SCIR", "SCIR-CV improves on SCIR, or is level", numbers, level=True),
        _exact(numbers),
        _geometric(numbers["buffers"]),
        _chosen(numbers["buffers"]),
        _returns(numbers),
    ]


def _order(one: str, other: str, words: str, numbers: dict[str, Any], level: bool = False) -> Claim:
    first, second = (np.array(numbers["perplexities"][name]) for name in (one, other))
    gap, error = float((second - first).mean()), error_of(second - first)
    holds = gap > -2 * error if level else gap > 2 * error
    return Claim(
        words,
        f"held-out perplexity {one} {first.mean():.4f}, {other} {second.mean():.4f}, difference {gap:.4f} ± "
        f"{error:.4f} ({len(first)} seeds, {numbers['length']:,} observations, {numbers['passes']} passes)",
        "not above by two standard errors" if level else "below by more than two standard errors",
        bool(holds),
        because=_because(numbers),
        margin=in_errors((gap + (2 * error if level else 0.0), error)),
    )


def _because(numbers: dict[str, Any]) -> str:
    return "a quick run has too few steps to compare the samplers" if numbers["quick"] else ""


def _exact(numbers: dict[str, Any]) -> Claim:
    exact = np.array(numbers["perplexities"]["exact"])
    others = {name: np.array(numbers["perplexities"][name]) - exact for name in list(SAMPLERS)[1:]}
    worst = min(others, key=lambda name: float(others[name].mean()))
    gap, error = float(others[worst].mean()), error_of(others[worst])
    return Claim(
        "[not in the papers: no stochastic sampler is better than the exact one]",
        f"held-out perplexity of the exact sampler {exact.mean():.4f}; the nearest is {worst}, above by {gap:.4f} ± "
        f"{error:.4f}",
        "none is below it by two standard errors",
        bool(gap > -2 * error),
        because=_because(numbers),
        ours=True,
        margin=in_errors((gap + 2 * error, error)),
    )


def _geometric(facts: dict[str, Any]) -> Claim:
    lengths, errors = np.array(facts["lengths"]), np.array(facts["errors"])
    fit = float(np.corrcoef(lengths, np.log(errors))[0, 1] ** 2)
    left = errors[-1] / errors[0]
    return Claim(
        "the error of a buffered estimate decays geometrically with the length of the buffer",
        f"error of expected transitions per observation with buffers of {', '.join(map(str, lengths))}: "
        f"{', '.join(f'{error:.1e}' for error in errors)}; log error against length: R² = {fit:.3f}",
        f"R² at least {GEOMETRIC:g}, and less than {LEFT:g} of the error is left at {lengths[-1]}",
        bool(fit >= GEOMETRIC and left < LEFT),
    )


def _chosen(facts: dict[str, Any]) -> Claim:
    return Claim(
        "[not in the papers: the buffer that `HMM` measures and chooses is long enough]",
        f"a buffer of {facts['chosen']} is chosen, which leaves an error of {facts['left']:.1e} per observation",
        f"at most {SMALL:g}",
        bool(facts["left"] <= SMALL),
        ours=True,
    )


def _returns(numbers: dict[str, Any]) -> Claim:
    facts = numbers["returns"]
    exact, scir = ({k: np.array(v) for k, v in facts[name].items()} for name in ("exact", "SCIR"))
    apart = (scir["mean"] - exact["mean"]) / exact["sd"]
    return Claim(
        "[not in the papers: on a real series SCIR's posterior means are those of the exact sampler]",
        "log standard deviations of returns and log probabilities to leave, two states: means differ by "
        f"{', '.join(f'{a:+.2f}' for a in apart)} posterior standard deviations",
        f"at most {NEAR:g} each",
        bool((np.abs(apart) <= NEAR).all()),
        because=_because(numbers),
        ours=True,
    )


# -- drawing -------------------------------------------------------------------------------------------------


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """The figure of the experiment."""
    figure.set_size_inches(12, 4)
    left, middle, right = figure.subplots(1, 3)
    for place, values in enumerate(numbers["perplexities"].values()):
        left.plot(np.full(len(values), place), values, "o", color="#0072b2", alpha=0.6)
        left.plot(place, np.mean(values), "_", color="#d55e00", markersize=24)
    left.set_xticks(range(len(SAMPLERS)), list(SAMPLERS))
    left.set(title="Simulated series", ylabel="held-out perplexity, one point per seed")
    facts = numbers["buffers"]
    middle.semilogy(facts["lengths"], facts["errors"], "o-", color="#0072b2")
    middle.axvline(facts["chosen"], color="#d55e00", linestyle="--", label="chosen")
    middle.legend(frameon=False)
    middle.set(title="Buffers", xlabel="observations on either side", ylabel="error of transitions per observation")
    names = ["log sd 0", "log sd 1", "log leave 0", "log leave 1"]
    for shift, (name, told) in zip((-0.12, 0.12), numbers["returns"].items(), strict=True):
        right.errorbar(np.arange(4) + shift, told["mean"], 1.645 * np.array(told["sd"]), fmt="o", capsize=3, label=name)
    right.set_xticks(range(4), names)
    right.legend(frameon=False)
    right.set(title="Daily returns, 90 % intervals")
