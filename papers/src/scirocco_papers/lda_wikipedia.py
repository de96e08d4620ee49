"""Baker et al. (2018), figures 3a and 4a; Barile & Nemeth, figure 2: perplexity of Wikipedia by documents seen.

SCIR, SCIR-CV and SGRLD with the settings of both papers, five seeds each; collapsed Gibbs, and the settings of
`sc.models.LDA` itself, three seeds each; on the same 50,000 training documents and 1,000 held out.

What is reduced: a chain of the papers' sees 10,000 documents, 200 batches of 50; Gibbs has 50 sweeps over a batch, of
which 25 are dropped (200 and 100 in the papers); the corpus has 50,000 documents (317,008 in the first paper's code);
scores at 10 marks (the papers: every 5 batches); collapsed Gibbs makes 20 passes (100 in the first paper).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco.models import LDA
from scirocco.samplers import schedules
from scirocco_papers import lda_runs as runs
from scirocco_papers.base import Claim, Outcome, Settings
from scirocco_papers.lda_runs import at_time, ends, plot_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAKER, BARILE, OURS = "Baker et al., table 2", "Barile & Nemeth, table 1", "sc.models.LDA"
SCORES = ("from_start", "averaged", "now")
COMPETITIVE = 1.1
BATCH, REFRESH, REFERENCE = 50, 5, 1_000
"""Documents of a batch; batches between two references of SCIR-CV; documents of a reference."""
_SHORT = "a quick run ends before the chains are anywhere near their law"
Numbers = dict[str, Any]


def judge(numbers: Numbers, quick: bool) -> list[Claim]:
    """One claim for each sentence that numbers can decide; of a quick run, only the first counts."""
    baker, barile, ours = (numbers["curves"][group] for group in (BAKER, BARILE, OURS))
    claims = [
        _order(
            "SCIR keeps descending past where SGRLD begins to converge [settings of Baker et al.]",
            [("SCIR", baker["SCIR"]), ("SGRLD", baker["SGRLD"])],
        ),
        _order(
            "improvements given by SCIR-CV over SGRLD … and over SCIR [settings of Barile & Nemeth]",
            [(name, barile[name]) for name in ("SCIR-CV", "SCIR", "SGRLD")],
        ),
        _control(baker),
        _competitive(baker),
        _ours(baker, barile, ours),
    ]
    if not quick:
        return claims
    return [claims[0], *(dataclasses.replace(claim, because=_SHORT) for claim in claims[1:])]


def _listed(values: np.ndarray) -> str:
    return " ".join(f"{value:.0f}" for value in values)


def _order(paper: str, named: list[tuple[str, Any]]) -> Claim:
    """The first is the lowest, then the second, and so on, in every seed and by every score."""
    found = {score: np.array([ends(curves, score) for _, curves in named]) for score in SCORES}
    here = "; ".join(f"{name} {_listed(values)}" for (name, _), values in zip(named, found["from_start"], strict=True))
    now = ", ".join(f"{value:.0f}" for value in found["now"].mean(axis=1))
    return Claim(
        paper,
        f"perplexity after as many batches, by seed: {here}. Means for the topics as they are: {now}",
        f"{' < '.join(name for name, _ in named)} in every seed, with p averaged over all marks, over the later half "
        "of them, and for the topics as they are",
        all(bool(np.all(values[:-1] < values[1:])) for values in found.values()),
    )


def _control(baker: Numbers) -> Claim:
    named = {"SCIR-CV": "SCIR-CV, as SCIR", "SCIR": "SCIR", "SGRLD": "SGRLD"}
    found = {score: np.array([ends(baker[name], score) for name in named.values()]) for score in SCORES}
    now, later = found["now"], found["averaged"].mean(axis=1)
    parts = [f"{name} {_listed(values)}" for name, values in zip(named, now, strict=True)]
    means = [", ".join(f"{v:.0f}" for v in found[score].mean(axis=1)) for score in ("averaged", "from_start")]
    return Claim(
        "[not in the papers, the settings of SCIR in Baker et al. for SCIR-CV too: SCIR-CV ≤ SCIR < SGRLD after as "
        "many batches]",
        f"topics as they are at the end, by seed: {'; '.join(parts)}. Means with p averaged over the later half of the "
        f"marks: {means[0]}; over all: {means[1]}",
        "for the topics as they are in every seed, and in the mean with p averaged over the later half of the marks",
        bool(np.all(now[0] <= now[1]) and np.all(now[1] < now[2]) and later[0] <= later[1] < later[2]),
        ours=True,
    )


def _competitive(baker: Numbers) -> Claim:
    scir, gibbs = ends(baker["SCIR"]), ends(baker["Gibbs"])
    passes = [curve["documents"][-1] for curve in baker["Gibbs"]]
    return Claim(
        "the SCIR algorithm for LDA is competitive to exact, non-scalable methods",
        f"SCIR {scir.mean():.0f} after {baker['SCIR'][0]['documents'][-1]:,} documents, collapsed Gibbs "
        f"{gibbs.mean():.0f} after {passes[0]:,} (the same prior)",
        f"SCIR's mean at most {COMPETITIVE:g} times that of Gibbs",
        bool(scir.mean() <= COMPETITIVE * gibbs.mean()),
    )


def _ours(baker: Numbers, barile: Numbers, ours: Numbers) -> Claim:
    others = [curves for group in (baker, barile) for name, curves in group.items() if name != "Gibbs"]
    best = min(ends(curves).min() for curves in others)
    worst = {name: float(ends(curves).max()) for name, curves in ours.items()}
    listed = ", ".join(f"{name} {value:.0f}" for name, value in worst.items())
    return Claim(
        "[not in the papers: chains that remember the topics of all tokens end below SCIR, SCIR-CV and SGRLD]",
        f"the highest of the seeds: {listed}; the lowest of the three, of all settings and seeds, {best:.0f}; "
        f"collapsed Gibbs with the prior of SCIR {ends(baker['Gibbs']).mean():.0f}",
        "below, in every seed",
        bool(max(worst.values()) < best),
        ours=True,
    )


def read(curve: Numbers, control: bool) -> np.ndarray:
    """Documents that a chain has read at its marks: batches, and with control variates the references."""
    documents = np.asarray(curve["documents"])
    references = -(-documents // (REFRESH * BATCH)) if control else 0
    return np.asarray(documents + REFERENCE * references)


def _by_time(numbers: Numbers) -> str:
    parts = []
    for group, name in ((BAKER, "SCIR-CV, as SCIR"), (BARILE, "SCIR-CV")):
        scir, control = numbers["curves"][group]["SCIR"], numbers["curves"][group][name]
        spent = [float(np.mean([curve["seconds"][-1] for curve in each])) for each in (scir, control)]
        scores = "; ".join(
            f"{words} {at_time(control, spent[0], score).mean():.0f} and {ends(scir, score).mean():.0f}"
            for score, words in (("from_start", "p averaged over all marks"), ("now", "topics as they are"))
        )
        parts.append(
            f"With the settings of {group} a chain takes {spent[1]:.0f} s, SCIR's {spent[0]:.1f} s; after those "
            f"{spent[0]:.1f} s, SCIR-CV and SCIR are at: {scores}."
        )
    return " ".join(parts)


def notes(numbers: Numbers) -> list[str]:
    """Findings in addition to the claims."""
    baker = numbers["curves"][BAKER]
    own, fair = ends(baker["SGRLD"]).mean(), ends(baker["SGRLD, prior of SCIR"]).mean()
    scir, control = baker["SCIR"], baker["SCIR-CV, as SCIR"]
    return [
        f"With the prior of SCIR (α = 0.1, β = 0.5) and a schedule tuned on other documents, SGRLD ends at {fair:.0f} "
        f"in place of {own:.0f}; SCIR at {ends(scir).mean():.0f}. Much of the distance in the papers is the prior's.",
        "An average of p over noisy states hides most of the noise. SCIR's topics as they are, and with p averaged "
        f"over all marks: {ends(scir, 'now').mean():.0f}, {ends(scir, 'from_start').mean():.0f}; SCIR-CV's, as SCIR: "
        f"{ends(control, 'now').mean():.0f}, {ends(control, 'from_start').mean():.0f}.",
        f"The orders above are after as many batches. SCIR-CV also reads {REFERENCE:,} documents for every {REFRESH} "
        f"batches, {read(control[0], True)[-1]:,} in place of {read(scir[0], False)[-1]:,}. {_by_time(numbers)}",
        "The table of Barile & Nemeth is damaged in the copies at hand (κ = 3.32, α = 1.1); κ = 0.33 and α = 0.1 are "
        "taken.",
    ]


COLOURS = {
    "SCIR": "#d55e00",
    "SCIR-CV": "#009e73",
    "SCIR-CV, as SCIR": "#009e73",
    "SGRLD": "#7b3294",
    "SGRLD, prior of SCIR": "#b38bc4",
    "Gibbs": "#666666",
    "LDA()": "#0072b2",
    "LDA(sampler='gibbs')": "#56b4e9",
}


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """p averaged over the marks so far: means and bands of the seeds; dotted: the topics as they are."""
    figure.set_size_inches(13, 4.4)
    left, middle, right = figure.subplots(1, 3, sharey=True)
    curves = numbers["curves"]
    for axes, group in ((left, BAKER), (middle, BARILE)):
        for name, each in curves[group].items():
            if name != "Gibbs":
                _plot(axes, each, "documents", name)
        axes.set(title=f"settings of {group}", xlabel="documents read, references included", xscale="log")
    gibbs = [curve["averaged"][-1] for curve in curves[BAKER]["Gibbs"]]
    left.axhspan(
        min(gibbs), max(gibbs), color=COLOURS["Gibbs"], alpha=0.5, linewidth=1, label="Gibbs, later half of its run"
    )
    for group in (BAKER, OURS):
        for name, each in curves[group].items():
            _plot(right, each, "seconds", name)
    right.set(title="by time, one thread each", xlabel="processor time, s", xscale="log")
    left.set(ylabel="perplexity (dotted: of the topics as they are)", yscale="log")
    low, high = left.get_ylim()
    ticks = [
        tick for tick in (500, 700, 1000, 1200, 1300, 1400, 1600, 1800, 2000, 2500, 3000, 4000) if low <= tick <= high
    ]
    left.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    left.minorticks_off()
    for axes in (left, middle, right):
        axes.legend(fontsize=8)


def _plot(axes: Axes, curves: Any, x: str, name: str) -> None:
    style = {"color": COLOURS[name], "linestyle": "--" if "," in name else "-"}
    if x == "documents":
        curves = [curve | {x: read(curve, name.startswith("SCIR-CV"))} for curve in curves]
    plot_band(axes, curves, x, "from_start", label=name, **style)
    if x == "documents":
        now = np.mean([curve["now"] for curve in curves], axis=0)
        axes.plot(curves[0][x], now, color=COLOURS[name], linestyle=":", linewidth=1)


NUM_TRAINING, NUM_HELD, NUM_MARKS = 50_000, 1_000, 10
NUM_SEEDS, NUM_SEEDS_WITH_MEMORY = 5, 3
NUM_DOCUMENTS = 10_000
PASSES = {"Gibbs": 20, "LDA()": 20, "LDA(sampler='gibbs')": 20}
"""Of chains that remember the topic of every token."""
QUICK = {"training": 1_500, "held": 200, "documents": 750, "marks": 3, "seeds": 2}
SWEEPS = {"sweeps": 50, "burn_in": 25}
TUNED = schedules.polynomial(0.02, 100.0, 0.6)
"""For SGRLD with the prior of SCIR: the best of five schedules on other documents."""


def models(num_topics: tuple[int, int], sweeps: dict[str, int]) -> dict[str, dict[str, LDA]]:
    """What is compared, by group and name; topics of the first paper and ours, and of the second."""
    first, second = num_topics
    return {
        BAKER: {
            "SCIR": LDA.preset("baker2018", first, **sweeps),
            "SGRLD": LDA.preset("patterson2013", first, **sweeps),
            "Gibbs": LDA(first, alpha=0.1, beta=0.5, sampler="gibbs", growth=None),
            "SCIR-CV, as SCIR": LDA.preset("baker2018", first, sampler="scir_cv", **sweeps),
            "SGRLD, prior of SCIR": LDA.preset("baker2018", first, sampler="sgrld", step_size=TUNED, **sweeps),
        },
        BARILE: {
            name: LDA.preset("barile2024", second, sampler=sampler, **sweeps)
            for name, sampler in (("SCIR-CV", "scir_cv"), ("SCIR", "scir"), ("SGRLD", "sgrld"))
        },
        OURS: {"LDA()": LDA(first, sampler="scir"), "LDA(sampler='gibbs')": LDA(first, sampler="gibbs")},
    }


def run(settings: Settings) -> Outcome:
    """A quick run has fewer documents, topics, sweeps and seeds."""
    quick, seed = settings.quick, settings.seed or 0
    size = QUICK if quick else {"training": NUM_TRAINING, "held": NUM_HELD, "documents": NUM_DOCUMENTS}
    marks, num_seeds = (QUICK["marks"], QUICK["seeds"]) if quick else (NUM_MARKS, NUM_SEEDS)
    texts = runs.wikipedia(settings, size["training"], size["held"])
    groups = models((20, 20), {"sweeps": 20, "burn_in": 10}) if quick else models((100, 50), SWEEPS)
    jobs = {
        f"{group}/{name}": [
            runs.Job(model, PASSES.get(name, 0) * size["training"] or size["documents"], seed + number)
            for number in range(min(num_seeds, NUM_SEEDS_WITH_MEMORY if name in PASSES else num_seeds))
        ]
        for group, members in groups.items()
        for name, model in members.items()
    }
    found = runs.follow_all(texts, jobs, marks)
    numbers: dict[str, Any] = {
        "num_training": texts.training.num_documents,
        "num_held": size["held"],
        "settings": {
            group: {name: repr(model) for name, model in members.items()} for group, members in groups.items()
        },
        "curves": {group: {name: found[f"{group}/{name}"] for name in members} for group, members in groups.items()},
    }
    return Outcome(judge(numbers, quick), numbers, lambda figure: draw(figure, numbers), notes(numbers))
