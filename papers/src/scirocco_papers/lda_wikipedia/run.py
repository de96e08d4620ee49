"""Baker et al. (2018), figures 3a and 4a; Barile & Nemeth, figure 2: perplexity of Wikipedia by documents seen.

SCIR, SCIR-CV and SGRLD with the settings of both papers, five seeds each; collapsed Gibbs, and the settings of
`sc.models.LDA` itself, three seeds each; on the same 50,000 training documents and 1,000 held out.

What is reduced: a chain of the papers' sees 10,000 documents, 200 batches of 50; Gibbs has 50 sweeps over a batch, of
which 25 are dropped (200 and 100 in the papers); the corpus has 50,000 documents (317,008 in the first paper's code);
scores at 10 marks (the papers: every 5 batches); collapsed Gibbs makes 20 passes (100 in the first paper).
"""

from __future__ import annotations

from typing import Any

from scirocco.models import LDA
from scirocco.samplers import schedules
from scirocco_papers import lda_runs as runs
from scirocco_papers.base import Outcome, Settings
from scirocco_papers.lda_wikipedia.claims import BAKER, BARILE, OURS, judge, notes
from scirocco_papers.lda_wikipedia.figure import draw

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
            "SGRLD, prior of SCIR": LDA.preset(
                "baker2018", first, sampler="sgrld", step_size=TUNED, **sweeps
            ),
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
        "curves": {
            group: {name: found[f"{group}/{name}"] for name in members} for group, members in groups.items()
        },
    }
    return Outcome(judge(numbers, quick), numbers, lambda figure: draw(figure, numbers), notes(numbers))
