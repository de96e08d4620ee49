"""Mixed memberships: the stochastic block models that SCIR's paper names as a reason, on two networks of coauthors.

A fifth of the edges, and as many pairs without one, are held out. All samplers start from the same clusters, have the
same number of passes, and get the step size of a common grid that is best on one half of the held-out pairs; they are
compared on the other half, for each seed.

Half of the held-out pairs are linked, in the network one of a thousand. The perplexity that ignores this is not proper:
½ for all pairs has 2, which is far less than the density of the network has. Samplers are compared by the perplexity of
the probabilities given how the pairs were chosen (odds times the ratio of the two shares of links), which is least for
the true ones.

The papers have no such experiment. Their sentences are about the samplers, and are checked here for these networks.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco import datasets
from scirocco.errors import DivergenceError
from scirocco.models import MixedMembership, held_out_links
from scirocco_papers.base import Claim, Outcome, Settings, error_of, in_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NETWORKS = ("ca-GrQc", "ca-HepTh")
NUM_COMMUNITIES, STEPS = 20, (0.1, 1.0, 3.0)
SAMPLERS = {
    "exact": "gibbs",
    "SCIR": "scir",
    "SCIR-CV": "scir_cv",
    "SCIR, CV counts": "scir_cv_counts",
    "SGRLD": "sgrld",
}
SCORES = ("given the choice of pairs", "plain", "AUC")


def run(settings: Settings) -> Outcome:
    """A quick run has one network, three seeds, one step size and fewer passes."""
    seed = settings.seed or 0
    networks, seeds, steps, passes = (NETWORKS[:1], 3, (1.0,), 40) if settings.quick else (NETWORKS, 5, STEPS, 200)
    numbers: dict[str, Any] = {
        "quick": settings.quick,
        "passes": passes,
        "scores": {
            name: scores(settings.data_dir, name, steps, passes, [seed + k for k in range(seeds)]) for name in networks
        },
    }
    return Outcome(judge(numbers), numbers, lambda figure: draw(figure, numbers))


# -- measuring -----------------------------------------------------------------------------------------------


def scores(
    folder: Path | None, network: str, steps: tuple[float, ...], passes: int, seeds: list[int]
) -> dict[str, dict[str, list[float]]]:
    """Of each sampler: both perplexities, AUC and the chosen step, by seed."""
    given = datasets.graphs(folder, which=network)
    found: dict[str, dict[str, list[float]]] = {name: {key: [] for key in (*SCORES, "step")} for name in SAMPLERS}
    for seed in seeds:
        listed, found_edges = held_out_links(given.edges, 0.2, seed=seed, nodes=given.num_nodes)
        pairs, counts = np.array(listed), np.minimum(found_edges, 1)
        validation = np.random.default_rng([seed, 43]).permutation(len(pairs)) % 2 == 0
        halves = [(pairs[half], counts[half]) for half in (validation, ~validation)]
        for name, sampler in SAMPLERS.items():
            tried = [
                (fitted(given, pairs, sampler, step, passes, seed, halves), step)
                for step in (steps if sampler != "gibbs" else (0.0,))
            ]
            (_, *scored), step = min(tried, key=lambda each: each[0][0])
            for key, value in zip((*SCORES, "step"), (*scored, step), strict=True):
                found[name][key].append(float(value))
    return found


def fitted(
    given: datasets.Links,
    pairs: np.ndarray,
    sampler: str,
    step: float,
    passes: int,
    seed: int,
    halves: list[tuple[np.ndarray, np.ndarray]],
) -> tuple[float, ...]:
    """The score of the validation pairs, then those of the test pairs; of a chain that diverges the worst."""
    model = MixedMembership(
        NUM_COMMUNITIES, sampler=sampler, step_size=step or None, num_chains=1, num_samples=40, seed=seed
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(given.edges, nodes=given.num_nodes, held_out=pairs, num_epochs=passes, progress=False)
    except DivergenceError:
        return np.inf, np.inf, np.inf, 0.5
    density = 2 * len(given.edges) / given.num_nodes / (given.num_nodes - 1)
    (first, counted), (second, told) = halves
    return (
        model.perplexity(first, counted, density),
        model.perplexity(second, told, density),
        model.perplexity(second, told),
        model.auc(second, told),
    )


# -- judging -------------------------------------------------------------------------------------------------


def judge(numbers: dict[str, Any]) -> list[Claim]:
    """The claims, with the numbers found here."""
    _, plain, auc = SCORES
    return [
        _order("SCIR", "SGRLD", "the SCIR algorithm … outperforms existing methods (SGRLD), strictly", numbers),
        _order("SCIR-CV", "SCIR", "SCIR-CV improves on SCIR, or is level", numbers, level=True),
        _order(
            "SCIR, CV counts",
            "SCIR",
            "[not in the papers: SCIR with control variates of the counts improves on SCIR, or is level]",
            numbers,
            level=True,
        ),
        _order(
            "SCIR",
            "SGRLD",
            "the same by the perplexity that ignores how pairs were chosen",
            numbers,
            of=plain,
            because="it is least for probabilities that are far too large",
        ),
        _order(
            "SGRLD",
            "SCIR",
            "[not in the papers: SCIR ranks hidden links above pairs without an edge more often than SGRLD]",
            numbers,
            of=auc,
        ),
    ]


def _order(
    one: str,
    other: str,
    words: str,
    numbers: dict[str, Any],
    level: bool = False,
    of: str = SCORES[0],
    because: str = "",
) -> Claim:
    """That `one` is below `other` on each network."""
    told, parts = [], []
    for network, found in numbers["scores"].items():
        first, second = (np.array(found[name][of]) for name in (one, other))
        gap, error = float((second - first).mean()), error_of(second - first)
        parts.append((gap + 2 * error if level else gap - 2 * error, error))
        told.append(
            f"{network} {one} {first.mean():.3f}, {other} {second.mean():.3f}, difference {gap:.3f} ± {error:.3f}"
        )
    what = "AUC" if of == "AUC" else f"held-out perplexity ({of})"
    return Claim(
        words,
        f"{what}: {'; '.join(told)} ({numbers['passes']} passes)",
        "not above by two standard errors" if level else "below by more than two standard errors",
        all(gap > 0 for gap, _ in parts),
        because=because or ("a quick run has too few passes" if numbers["quick"] else ""),
        ours=words.startswith("["),
        margin=in_errors(*parts),
    )


# -- drawing -------------------------------------------------------------------------------------------------


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """The figure of the experiment."""
    networks = list(numbers["scores"])
    figure.set_size_inches(12, 3.6 * len(networks))
    rows = np.atleast_2d(figure.subplots(len(networks), len(SCORES)))
    for axes, network in zip(rows, networks, strict=True):
        for axis, of in zip(axes, SCORES, strict=True):
            for place, found in enumerate(numbers["scores"][network].values()):
                axis.plot(np.full(len(found[of]), place), found[of], "o", color="#0072b2", alpha=0.6)
                axis.plot(place, np.mean(found[of]), "_", color="#d55e00", markersize=24)
            axis.set_xticks(range(len(SAMPLERS)), list(SAMPLERS))
            what = "AUC (higher is better)" if of == "AUC" else f"perplexity, {of}"
            axis.set(title=network, ylabel=what)
