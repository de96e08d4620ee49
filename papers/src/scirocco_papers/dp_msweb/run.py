"""Baker et al. (2018), figures 3b and 4b: log predictive of test users of msweb, by iterations and by time.

A Dirichlet-process mixture of the areas that 32,711 users visited. SCIR, SGRLD and the Gibbs slice sampler with the
settings of the paper's table 3, SCIR-CV with those of SCIR, and `sc.models.DPMixture` as it comes, collapsed and with
SCIR on kept counts; five seeds each, 1,000 steps. The score is the mean of -log p(visits) over 5,000 other users, p as
for an ordered sequence (no multinomial coefficient).

What differs from the paper: the score includes the components that are not there yet (their share times the density
under the base measure), where the released code leaves them out; a Gibbs step is a pass over all users.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scirocco import datasets
from scirocco._programs import available_cores
from scirocco.models import DPMixture
from scirocco_latent.dp.prediction import log_predictive
from scirocco_papers.base import Outcome, Settings
from scirocco_papers.dp_msweb.claims import DEFAULT, KEPT, judge, notes, tail
from scirocco_papers.lda_runs import plot_band

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {
    "SCIR": "#d55e00",
    "SCIR-CV": "#009e73",
    "SGRLD": "#7b3294",
    "Gibbs": "#666666",
    DEFAULT: "#0072b2",
    KEPT: "#56b4e9",
}


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """Means and bands of the seeds."""
    figure.set_size_inches(13, 4.4)
    left, middle, right = figure.subplots(1, 3)
    curves, one = numbers["curves"], numbers["one_component"]
    for name in curves:
        if name != "Gibbs":
            plot_band(left, curves[name], "steps", "now", label=name, color=COLOURS[name])
    gibbs = tail(curves["Gibbs"])
    left.axhspan(gibbs.min(), gibbs.max(), color=COLOURS["Gibbs"], alpha=0.5, linewidth=1, label="Gibbs, end")
    left.set(title="single states, by iterations", xlabel="minibatches of 1,000 users", xlim=(0, None))
    left.set_ylabel("-log predictive of a test user")
    for axes, score, title in (
        (middle, "now", "single states, by time"),
        (right, "averaged", "p averaged over states, by time"),
    ):
        for name, each in curves.items():
            plot_band(axes, each, "seconds", score, label=name, color=COLOURS[name])
        axes.set(title=title, xlabel="processor time of one thread, s", xscale="log")
    lowest = min(np.min([curve["averaged"] for curve in each]) for each in curves.values())
    for axes in (left, middle, right):
        axes.axhline(one, color="black", linewidth=0.8, linestyle=":")
        axes.set_ylim(lowest - 0.02, one + 0.1)
        axes.legend(fontsize=8, loc="upper right", bbox_to_anchor=(1, 0.85))
    left.annotate("one component", (1, one), (0, 2), ("axes fraction", "data"), "offset points", ha="right", fontsize=8)


NUM_SEEDS, NUM_STEPS, NUM_MARKS = 5, 1_000, 50
QUICK = {"steps": 300, "sweeps": 40, "marks": 10, "seeds": 4}


class Job(NamedTuple):
    """One chain to follow."""

    model: DPMixture
    num_steps: int
    seed: int


def models() -> dict[str, DPMixture]:
    """What is compared, by name."""
    preset = {"SCIR": "scir", "SCIR-CV": "scir_cv", "SGRLD": "sgrld", "Gibbs": "gibbs"}
    papers = {name: DPMixture.preset("baker2018", sampler=sampler) for name, sampler in preset.items()}
    return {**papers, DEFAULT: DPMixture(), KEPT: DPMixture(sampler="scir")}


def follow(visits: datasets.Visits, job: Job, num_marks: int) -> dict[str, Any]:
    """Run a chain in this thread, and score it at as many marks.

    Returns
    -------
    dict
        At each mark: `steps` made, `seconds` of processor time they took, the score of the state as it is `now`, that
        of p `averaged` over the later half of the marks so far, and how many clusters are `occupied`.
    """
    chain = DPMixture(**{**job.model.get_params(), "seed": job.seed, "num_threads": 1}).chain(visits.train)
    rows = chain.family.rows(visits.test)
    out: dict[str, Any] = {name: [] for name in ("steps", "seconds", "now", "averaged", "occupied")}
    kept: list[np.ndarray] = []
    seconds = 0.0
    for mark in range(1, num_marks + 1):
        target = round(mark * job.num_steps / num_marks)
        began = time.thread_time()
        chain.advance(target - (out["steps"][-1] if out["steps"] else 0))
        seconds += time.thread_time() - began
        draws, stats = chain.kept()
        kept.append(np.exp(log_predictive(chain.family, rows, draws)))
        later = np.mean(kept[len(kept) // 2 :], axis=0)
        values = (target, seconds, score(kept[-1]), score(later), int(stats["num_clusters"]))
        for name, value in zip(out, values, strict=True):
            out[name].append(value)
    return out


def score(chances: np.ndarray) -> float:
    """Mean of -log p."""
    with np.errstate(divide="ignore"):
        return float(-np.log(chances).mean())


def follow_all(visits: datasets.Visits, jobs: Mapping[str, list[Job]], num_marks: int) -> dict[str, Any]:
    """All chains of all names, as many at a time as there are cores; each has one thread."""
    with ThreadPoolExecutor(available_cores()) as pool:
        started = {name: [pool.submit(follow, visits, job, num_marks) for job in each] for name, each in jobs.items()}
        return {name: [future.result() for future in each] for name, each in started.items()}


def one_component(visits: datasets.Visits, concentration: float = 0.5) -> float:
    """The score of a mixture of one component, at its posterior mean."""
    counts = np.asarray(visits.train.sum(axis=0)).ravel() + concentration
    return float(-(visits.test @ np.log(counts / counts.sum())).mean())


def run(settings: Settings) -> Outcome:
    """A quick run has fewer steps and seeds."""
    quick, seed = settings.quick, settings.seed or 0
    num_seeds, num_marks = (QUICK["seeds"], QUICK["marks"]) if quick else (NUM_SEEDS, NUM_MARKS)
    num_steps = QUICK["steps"] if quick else NUM_STEPS
    special = {"Gibbs": QUICK["sweeps"]} if quick else {}
    visits = datasets.msweb(settings.data_dir)
    compared = models()
    jobs = {
        name: [Job(model, special.get(name, num_steps), seed + number) for number in range(num_seeds)]
        for name, model in compared.items()
    }
    numbers: dict[str, Any] = {
        "num_training": visits.train.shape[0],
        "num_test": visits.test.shape[0],
        "one_component": one_component(visits),
        "settings": {name: repr(model) for name, model in compared.items()},
        "curves": follow_all(visits, jobs, num_marks),
    }
    return Outcome(judge(numbers, quick), numbers, lambda figure: draw(figure, numbers), notes(numbers))
