"""Hidden Markov models in a report: the states, and the transitions between them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco.diagnostics.intervals import widest
from scirocco.drawing.charts import forest
from scirocco.drawing.markup import Html, Section, join, number, paragraph, sortable, tag
from scirocco.models.view import View, own_run, size_of, with_draws
from scirocco.run import Run

if TYPE_CHECKING:
    from scirocco.models.hmm.estimator import HMM

_INTERVAL, _MOST = 0.9, 30


def view(model: HMM, run: Run | None) -> View:
    """Report of states and transitions; draws are diagnosed with their states in one order."""
    run = own_run(model, run)
    model._check_fitted()
    draws: dict[str, Any] = {"transitions": model.draws_["transitions"], **model._told()}
    if "log_joint" in run.stats:
        draws["log joint density"] = np.asarray(run.stats["log_joint"])
    chosen = run.preparation.get("chosen", "")
    about = (
        "Diagnosed and plotted with the states of all draws and chains in one order: the number in brackets is the "
        "state, of transitions from the first to the second."
    )
    if chosen:
        about += f" Method: {chosen}."
    return View(
        run,
        "HMM",
        size_of(run, "states", model._num_states),
        with_draws(run, draws),
        about,
        sections=lambda seen: [_states(model), _transitions(model)],
    )


def _level(model: HMM) -> float:
    """The probability of the intervals that are shown: less if there are few draws."""
    return widest(math.prod(model.draws_["initial"].shape[:2]), _INTERVAL)


def _states(model: HMM) -> Section:
    level = _level(model)
    table = model.summary(level)
    names = [name for name in table.columns if not name.endswith(("_low", "_high"))]
    rows = [[f"state {k}", *(_cell(row, name) for name in names)] for k, row in table.iterrows()]
    words = (
        f"Posterior means, and the central {level:.0%} in brackets. Share: of time, in the long run. "
        "Dwell: expected steps of a visit."
    )
    found = sortable("states", ["state", *names], rows, "States", texts=range(len(names) + 1))
    return Section("states", "States", join([paragraph(words), found]))


def _cell(row: Any, name: str) -> str:
    if f"{name}_low" not in row:
        return str(row[name])
    return f"{number(row[name], 3)} ({number(row[f'{name}_low'], 3)} to {number(row[f'{name}_high'], 3)})"


def _transitions(model: HMM) -> Section:
    level = _level(model)
    mean, low, high = (np.asarray(part) for part in model.transitions(level))
    num = len(mean)
    order = np.argsort(-mean, axis=None)[:_MOST]
    places = [divmod(int(place), num) for place in order]
    at = tuple(np.array(places).T)
    chart = forest(
        [f"{j} → {k}" for j, k in places],
        mean[at],
        np.stack([mean[at], mean[at]], axis=1),
        np.stack([low[at], high[at]], axis=1),
        "Transition probabilities",
        Html(),
    )
    head = [f"to {k}" for k in range(num)]
    rows = [[f"state {j}", *(number(value, 3) for value in mean[j])] for j in range(num)]
    words = f"Posterior means; the lines are the central {level:.0%}."
    if num * num > _MOST:
        words += f" The {_MOST} largest of {num * num}."
    parts = [
        paragraph(words),
        sortable("moves", ["from", *head], rows, "Transition probabilities"),
        tag("div", chart, class_="charts"),
    ]
    return Section("transitions", "Transitions", join(parts))
