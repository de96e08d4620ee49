"""Which samplers and estimators run on which posterior in `choosing.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from choosing_problems import Problem, log_gammas

import scirocco as sc

ROUND_STEP, SCORING_STEP = 0.1, 0.005
"""Steps of samplers that choose none themselves, in coordinates in which the posterior is round. Fisher scoring takes
the noise of a batch out of what it injects, 2ε, which it can if ε N/n < 2."""
LIPSCHITZ = "ControlVariates, lipschitz"


@dataclass(frozen=True)
class Cell:
    """A line of a table: what is typed, and what it makes."""

    names: tuple[str, str]
    problem: Problem
    """Perhaps in other coordinates than the table's."""
    sampler: Any
    """None: NumPyro's NUTS."""
    estimator: Any


def estimator(name: str, problem: Problem) -> Any:
    """By the name of its class."""
    if name == "Full":
        return sc.Full()
    if name == "Minibatch, with replacement":
        return sc.Minibatch(problem.batch_size, "with_replacement")
    if name == "Weighted":
        return sc.Weighted(problem.batch_size, problem.extra["sizes"])
    if name == "Stratified":
        return sc.Stratified(problem.batch_size, problem.extra["strata"])
    if name == LIPSCHITZ:
        return sc.ControlVariates(problem.batch_size, probabilities="lipschitz")
    return getattr(sc, name)(problem.batch_size)


def _rms(problem: Problem) -> Any:
    """PSGLD: its metric is about sd at a draw, so that ε/sd, times how stiff the law is in units of sd, is 0.1."""
    covariance, sd = problem.truth.covariance, problem.truth.sd
    stiffness = 1 / np.linalg.eigvalsh(covariance / np.outer(sd, sd))[0]
    return sc.PSGLD(float(ROUND_STEP * sd.min() / stiffness))


def _scoring(problem: Problem) -> Any:
    return sc.SGFS(SCORING_STEP, np.asarray(problem.truth.covariance, np.float32))


SAMPLERS: dict[str, Any] = {
    "SGLD()": lambda p: sc.SGLD(),
    "SGHMC()": lambda p: sc.SGHMC(),
    "SGNHT()": lambda p: sc.SGNHT(),
    "SGNHT(thermostat='elementwise')": lambda p: sc.SGNHT(thermostat="elementwise"),
    "BAOAB()": lambda p: sc.BAOAB(),
    "BADODAB()": lambda p: sc.BADODAB(),
    "SGLD('auto')": lambda p: sc.SGLD("auto"),
    "SGHMC('auto')": lambda p: sc.SGHMC("auto"),
    "BAOAB('auto')": lambda p: sc.BAOAB("auto"),
    "Preconditioned(SGLD())": lambda p: sc.Preconditioned(sc.SGLD()),
    "Preconditioned(BAOAB())": lambda p: sc.Preconditioned(sc.BAOAB()),
    "PSGLD(ε)": _rms,
    "SGFS(0.005, covariance)": _scoring,
    "SCIR()": lambda p: sc.SCIR(),
    "SCIRCV()": lambda p: sc.SCIRCV(),
    "SCIR(0.5)": lambda p: sc.SCIR(0.5),
    "SimplexSGRLD(0.01)": lambda p: sc.SimplexSGRLD(0.01),
    "SimplexSGRLD(0.001)": lambda p: sc.SimplexSGRLD(0.001),
    "NUTS": lambda p: None,
}
"""From what a user types (None for the one that is not ours); ε is said in the record."""

PAIRS: dict[str, list[tuple[str, str]]] = {
    "plain": [
        *(("SGLD()", name) for name in ("ControlVariates", "Minibatch", "SVRG", "SAGA", "Full")),
        *(
            (sampler, name)
            for sampler in ("SGHMC()", "SGNHT()", "BAOAB()", "BADODAB()", "PSGLD(ε)")
            for name in ("ControlVariates", "Minibatch")
        ),
        ("SGFS(0.005, covariance)", "Minibatch"),
        ("SGFS(0.005, covariance)", "Minibatch, with replacement"),
        ("SGLD('auto')", "ControlVariates"),
        ("SGLD('auto')", "Minibatch"),
        ("BAOAB('auto')", "ControlVariates"),
        ("NUTS", ""),
    ],
    "far": [
        *(("SGLD()", name) for name in ("ControlVariates", "Minibatch", "SVRG", "SAGA")),
        *((sampler, "Minibatch") for sampler in ("SGHMC()", "SGNHT()", "BAOAB()", "SGLD('auto')")),
    ],
    "raw": [
        ("SGLD()", "ControlVariates"),
        ("SGLD('auto')", "ControlVariates"),
        ("SGLD('auto')", "Minibatch"),
        ("Preconditioned(SGLD())", "ControlVariates"),
        ("Preconditioned(SGLD())", "Minibatch"),
        ("Preconditioned(BAOAB())", "ControlVariates"),
        ("BAOAB('auto')", "ControlVariates"),
        ("SGHMC()", "ControlVariates"),
        ("PSGLD(ε)", "ControlVariates"),
        ("SGFS(0.005, covariance)", "Minibatch, with replacement"),
    ],
    "heavy": [
        *(("SGLD()", name) for name in ("ControlVariates", "Minibatch", "Weighted", "Stratified", "SVRG", "SAGA")),
        ("SGHMC()", "Minibatch"),
        ("SGHMC()", "Weighted"),
        ("SGHMC()", LIPSCHITZ),
        ("Preconditioned(BAOAB())", LIPSCHITZ),
        ("Preconditioned(BAOAB())", "ControlVariates"),
        ("Preconditioned(BAOAB())", "Weighted"),
        ("BAOAB('auto')", LIPSCHITZ),
        ("SGNHT(thermostat='elementwise')", "Minibatch"),
        ("SGLD('auto')", "ControlVariates"),
    ],
    "bimodal": [
        *(("SGLD()", name) for name in ("ControlVariates", "Minibatch", "SVRG", "SAGA", "Full")),
        ("SGHMC()", "ControlVariates"),
        ("SGHMC()", "Minibatch"),
        ("SGHMC()", "SVRG"),
        ("BAOAB()", "Minibatch"),
        ("SGLD('auto')", "Minibatch"),
        ("SGLD('auto')", "ControlVariates"),
    ],
    "hierarchical": [
        ("SGLD()", "ControlVariates"),
        ("SGLD('auto')", "ControlVariates"),
        ("SGLD('auto')", "Minibatch"),
        ("Preconditioned(SGLD())", "ControlVariates"),
        ("SGHMC('auto')", "ControlVariates"),
        ("BAOAB('auto')", "ControlVariates"),
    ],
    "simplex": [
        ("SCIRCV()", "Minibatch"),
        ("SCIR()", "Minibatch"),
        ("SCIR(0.5)", "Stratified"),
        ("SCIR(0.5)", "Full"),
        ("SimplexSGRLD(0.01)", "Minibatch"),
        ("SimplexSGRLD(0.001)", "Minibatch"),
        ("SGLD()", "ControlVariates"),
    ],
    "small": [
        ("SGLD()", "Full"),
        ("BAOAB()", "Full"),
        ("SGHMC()", "Full"),
        ("SGLD()", "ControlVariates"),
        ("BAOAB()", "ControlVariates"),
        ("SGLD()", "Minibatch"),
        ("NUTS", ""),
    ],
}
CORE = {
    "plain": [("SGLD()", "ControlVariates"), ("SGLD()", "Minibatch"), ("BAOAB()", "ControlVariates")],
    "heavy": [("SGLD()", "Weighted")],
    "simplex": [("SCIRCV()", "Minibatch"), ("SCIR()", "Minibatch")],
    "small": [("SGLD()", "Full")],
}
"""Of a quick run."""


def cells(problem: Problem, quick: bool) -> list[Cell]:
    """The lines of a problem's table."""
    return [_cell(problem, *names) for names in (CORE if quick else PAIRS).get(problem.name, [])]


def _cell(problem: Problem, sampler: str, name: str) -> Cell:
    made = SAMPLERS[sampler](problem)
    if problem.name == "simplex" and made.driven_by != "counts":
        problem = log_gammas(problem)
    return Cell((sampler, name), problem, made, estimator(name, problem) if name else None)
