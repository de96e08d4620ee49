"""What the papers say of perplexities on Wikipedia, with checks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from scirocco_papers.base import Claim
from scirocco_papers.lda_runs import at_time, ends

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
    here = "; ".join(
        f"{name} {_listed(values)}" for (name, _), values in zip(named, found["from_start"], strict=True)
    )
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
