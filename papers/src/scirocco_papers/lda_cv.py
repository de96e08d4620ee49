"""Thesis, figure 3.5.5: SGLD and SGLD-CV for the topics of Wikipedia by the number of documents.

As in the thesis: the 1,000 commonest words, K = 20, α = β = 1, batches of 50, the expanded-natural parametrisation, and
the tuned step sizes of its appendix (their h is our 2ε) for 0.1 N, 0.6 N and N = 81,538 documents. SGLD-CV optimises
without noise for a third of the run, then takes its reference from one pass over all documents, and samples. Gibbs has
20 sweeps over a batch, 10 dropped. SAGA, whose table of gradients is K × V numbers a document, is left out.

"The pre-processing steps for SGLD-CV are included in the plots" of the thesis, and its first figure of this kind is
"plotted against time": so the sentence about SGLD-CV and SGLD counts by processor time, with the optimisation and the
reference in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco.models import LDA
from scirocco_papers import lda_runs as runs
from scirocco_papers.base import Claim, Outcome, Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_DOCUMENTS, NUM_HELD, NUM_WORDS, NUM_TOPICS, BATCH = 81_538, 1_000, 1_000, 20, 50
NUM_MARKS, NUM_SEEDS = 15, 5
SIZES = {"0.1 N": (0.1, 3, 8e-4), "0.6 N": (0.6, 1, 8e-5), "N": (1.0, 1, 5e-5)}
"""Share of the documents, passes over them, the thesis' h."""
QUICK_SIZES = {"0.05 N": (0.05, 1, 8e-4)}
OPTIMISED = 3
"""One part in so many of a run of SGLD-CV is the optimisation; `NUM_MARKS` is a multiple."""
_ONCE = 1 << 40
_SENTENCE = "the scalability improvements of using SGLD-CV over SGLD are clear as the dataset size increases"
_NO_REFERENCE = (
    "the thesis includes the pre-processing in its plots. Batches leave out the reference, which is a pass over all "
    "documents, and that SGLD-CV finds the topics of a batch twice"
)
COLOURS = {"SGLD": "#7b3294", "SGLD-CV": "#009e73"}


def model(name: str, num_steps: int, num_training: int, h: float) -> LDA:
    """One of the two, for a run of so many steps."""
    control = name == "SGLD-CV"
    return LDA(
        NUM_TOPICS,
        alpha=1.0,
        beta=1.0,
        sampler="sgld_cv" if control else "sgld_natural",
        memory="none",
        batch_size=BATCH,
        sweeps=20,
        burn_in=10,
        step_size=h / 2,
        options={"optimise_steps": num_steps // OPTIMISED} if control else None,
        refresh_every=_ONCE,
        refresh_size=num_training,
    )


def run(settings: Settings) -> Outcome:
    """A quick run has fewer documents, one pass and two seeds."""
    seed, quick = settings.seed or 0, settings.quick
    marks, num_seeds = (6, 2) if quick else (NUM_MARKS, NUM_SEEDS)
    numbers: dict[str, Any] = {"sizes": {}}
    for label, (share, passes, h) in (QUICK_SIZES if quick else SIZES).items():
        texts = runs.wikipedia(
            settings, round(share * NUM_DOCUMENTS), 300 if quick else NUM_HELD, num_words=NUM_WORDS, min_tokens=30
        )
        size = texts.training.num_documents
        jobs = {
            name: [
                runs.Job(model(name, passes * size // BATCH, size, h), passes * size, seed + number)
                for number in range(num_seeds)
            ]
            for name in COLOURS
        }
        curves = runs.follow_all(texts, jobs, marks)
        numbers["sizes"][label] = {"num_documents": size, "passes": passes, "h": h, "curves": curves}
    return Outcome(judge(numbers, quick), numbers, lambda figure: draw(figure, numbers), notes(numbers))


# -- judging -------------------------------------------------------------------------------------------------


def judge(numbers: dict[str, Any], quick: bool) -> list[Claim]:
    """The two sentences of the thesis, the first by processor time and by batches."""
    short = "a quick run has one size and is too short" if quick else ""
    return [_faster(numbers, short), _better(numbers, short or _NO_REFERENCE), _drop(numbers, short)]


def _faster(numbers: dict[str, Any], because: str) -> Claim:
    parts, holds = [], True
    for label, facts in numbers["sizes"].items():
        plain, control = facts["curves"]["SGLD"], facts["curves"]["SGLD-CV"]
        spent = float(np.mean([curve["seconds"][-1] for curve in plain]))
        end, then = runs.ends(plain, "now").mean(), runs.at_time(control, spent, "now").mean()
        holds = holds and bool(then < end)
        parts.append(f"{label}: after {spent:.1f} s {then:.0f} against {end:.0f}")
    return Claim(
        f"{_SENTENCE} [by time, with the optimisation and the reference]",
        "perplexity of the topics, SGLD-CV against SGLD at the end of SGLD's run, means of the seeds: "
        + "; ".join(parts),
        "SGLD-CV lower at every size",
        holds,
        because,
    )


def _better(numbers: dict[str, Any], because: str) -> Claim:
    parts, holds = [], True
    for label, facts in numbers["sizes"].items():
        plain, control = (late(facts["curves"][name]) for name in ("SGLD", "SGLD-CV"))
        error = np.sqrt((plain.var(ddof=1) + control.var(ddof=1)) / len(plain))
        holds = holds and bool(np.all(control < plain))
        parts.append(f"{label}: {control.mean():.1f} against {plain.mean():.1f} (± {error:.1f})")
    return Claim(
        f"{_SENTENCE} [after as many batches]",
        f"perplexity of the topics, mean over the last third of the marks and the seeds: {'; '.join(parts)}",
        "SGLD-CV lower at every size, in every seed",
        holds,
        because,
    )


def late(curves: list[dict[str, Any]]) -> np.ndarray:
    """The perplexity of the topics as they are, averaged over the last third of the marks, of each chain."""
    return np.array([np.mean(curve["now"][-(len(curve["now"]) // 3) :]) for curve in curves])


def _drop(numbers: dict[str, Any], because: str) -> Claim:
    parts, holds = [], True
    for label, facts in numbers["sizes"].items():
        falls = fall_at_switch(facts["curves"])
        holds = holds and falls["SGLD-CV"] > falls["SGLD"]
        parts.append(f"{label}: {falls['SGLD-CV']:.1f}, SGLD {falls['SGLD']:.1f} there")
    return Claim(
        "the sudden drop in perplexity for SGLD-CV occurs at the switch from the optimisation to SGLD-CV",
        f"fall from the last mark before the switch to the first after it, means of the seeds: {'; '.join(parts)}",
        "SGLD-CV falls more than SGLD at the same documents, at every size",
        holds,
        because,
    )


def fall_at_switch(curves: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """How much the perplexity of the topics falls from the mark before the one at the switch to the mark after it."""
    found = {name: np.array([curve["now"] for curve in each]) for name, each in curves.items()}
    at = len(found["SGLD-CV"][0]) // OPTIMISED - 1
    return {name: float(np.mean(scores[:, at - 1] - scores[:, at + 1])) for name, scores in found.items()}


def notes(numbers: dict[str, Any]) -> list[str]:
    """Findings in addition to the claims."""
    notes = []
    for label, facts in numbers["sizes"].items():
        curves = facts["curves"]
        averaged = {name: runs.ends(curves[name]).mean() for name in COLOURS}
        seconds = {name: np.mean([curve["seconds"][-1] for curve in curves[name]]) for name in COLOURS}
        notes.append(
            f"{label}: with p averaged over the later half of the marks SGLD-CV {averaged['SGLD-CV']:.1f}, SGLD "
            f"{averaged['SGLD']:.1f}; processor time {seconds['SGLD-CV']:.0f} s and {seconds['SGLD']:.0f} s, documents "
            f"read {read(facts, 'SGLD-CV')[-1]:,} and {read(facts, 'SGLD')[-1]:,} (SGLD-CV finds the topics of a batch "
            "twice, and those of all documents once)."
        )
    return notes


# -- drawing -------------------------------------------------------------------------------------------------


def read(facts: dict[str, Any], name: str) -> np.ndarray:
    """Documents that a chain has read at its marks: batches, and for SGLD-CV the pass that makes its reference."""
    documents = np.asarray(facts["curves"][name][0]["documents"])
    switch = facts["passes"] * facts["num_documents"] // BATCH // OPTIMISED * BATCH
    return np.asarray(documents + facts["num_documents"] * ((documents > switch) & (name == "SGLD-CV")))


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """The figure of the experiment."""
    sizes = numbers["sizes"]
    figure.set_size_inches(4.2 * len(sizes) + 0.5, 7.6)
    panels = figure.subplots(2, len(sizes), squeeze=False, sharey="col")
    for (above, below), (label, facts) in zip(panels.T, sizes.items(), strict=True):
        for name, each in facts["curves"].items():
            counted = [curve | {"read": read(facts, name)} for curve in each]
            for axes, x in ((above, "read"), (below, "seconds")):
                runs.plot_band(axes, counted, x, "now", color=COLOURS[name], label=name)
        above.set(title=f"{label} = {facts['num_documents']:,} documents", xlabel="documents read")
        below.set(xlabel="processor time, s")
        above.locator_params(axis="x", nbins=5)
    for axes in panels[:, 0]:
        axes.set_ylabel("perplexity of held-out words")
    panels[0, -1].legend(title="long steps right: the reference of SGLD-CV")
