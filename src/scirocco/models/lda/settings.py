"""What a topic model is told: checked once, in words that name the fix; and the papers' settings by name."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.samplers import schedules

SAMPLERS = ("scir", "scir_cv", "sgrld")
MEMORIES = ("auto", "documents", "none")
LOCALS = ("gibbs", "cvb0")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that defines a chain, but for the data and the seed."""

    num_topics: int
    alpha: np.ndarray
    """One number > 0 for each topic."""
    beta: float
    sampler: str
    memory: str
    """"documents" or "none"; "auto" has been resolved."""
    batch_size: int
    local: str
    sweeps: int
    burn_in: int
    first_sweeps: int
    """Sweeps over a document that is seen for the first time (with memory)."""
    step_size: schedules.Schedule
    refresh_every: int
    refresh_size: int
    num_threads: int | None

    def as_json(self) -> dict[str, Any]:
        """For records."""
        out = dataclasses.asdict(self)
        del out["num_threads"]
        out["alpha"] = self.alpha.tolist()
        out["step_size"] = repr(self.step_size)
        return out


def check_alpha(alpha: Any, num_topics: int) -> np.ndarray:
    """α as one number for each topic."""
    try:
        array = np.asarray(alpha, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"`alpha` must be a number or {num_topics} numbers, got {alpha!r}.") from error
    if array.shape not in ((), (num_topics,)):
        raise InvalidValueError(
            f"`alpha` must be a number or one for each of the {num_topics} topics; got shape {array.shape}."
        )
    if not np.all(np.isfinite(array)) or np.any(array <= 0):
        raise InvalidValueError(f"`alpha` must be finite and > 0, got {alpha}.")
    return np.full(num_topics, float(array)) if array.ndim == 0 else array.copy()


def resolve(given: dict[str, Any], num_documents: int) -> Settings:
    """The arguments of `LDA`, checked, with what was left open filled in."""
    num_topics = _checks.positive_int(given["num_topics"], "num_topics", minimum=2)
    _checks.positive(given["beta"], "beta")
    _checks.choice(given["sampler"], "sampler", SAMPLERS)
    _checks.choice(given["memory"], "memory", MEMORIES)
    _checks.choice(given["local"], "local", LOCALS)
    resolved = given["memory"]
    if resolved == "auto":
        resolved = "documents" if given["sampler"] == "scir" and given["local"] == "gibbs" else "none"
    if resolved == "documents" and (given["sampler"] != "scir" or given["local"] != "gibbs"):
        raise InvalidValueError(
            'memory="documents" goes with sampler="scir" and local="gibbs"; leave `memory` out for the others.'
        )
    with_memory = resolved == "documents"
    sweeps = given["sweeps"] if given["sweeps"] is not None else (1 if with_memory else 20)
    burn_in = given["burn_in"] if given["burn_in"] is not None else (0 if with_memory else sweeps // 4)
    _checks.positive_int(sweeps, "sweeps")
    if _checks.positive_int(burn_in, "burn_in", minimum=0) >= sweeps:
        raise InvalidValueError(f"`burn_in` ({burn_in}) must be less than `sweeps` ({sweeps}).")
    step = schedules.polynomial(1.0, 5.0, 0.4) if given["step_size"] is None else given["step_size"]
    schedule = schedules.normalise(step, "LDA")
    return Settings(
        num_topics,
        check_alpha(given["alpha"], num_topics),
        float(given["beta"]),
        given["sampler"],
        resolved,
        min(_checks.positive_int(given["batch_size"], "batch_size"), num_documents),
        given["local"],
        sweeps,
        burn_in,
        _checks.positive_int(given["first_sweeps"], "first_sweeps"),
        schedule if isinstance(schedule, schedules.Schedule) else schedules.constant(float(schedule)),
        _checks.positive_int(given["refresh_every"], "refresh_every"),
        _checks.positive_int(given["refresh_size"], "refresh_size"),
        None if given["num_threads"] is None else _checks.positive_int(given["num_threads"], "num_threads"),
    )


PRESETS: dict[str, dict[str, Any]] = {
    "patterson2013": {
        "sampler": "sgrld",
        "alpha": 0.01,
        "beta": 0.0001,
        "batch_size": 50,
        "sweeps": 200,
        "burn_in": 100,
        "step_size": ("polynomial", 0.01, 1000.0, 0.6),
    },
    "baker2018": {
        "sampler": "scir",
        "alpha": 0.1,
        "beta": 0.5,
        "batch_size": 50,
        "sweeps": 200,
        "burn_in": 100,
        "step_size": ("polynomial", 0.5, 10.0, 0.33),
    },
    "barile2024": {
        "sampler": "scir_cv",
        "alpha": 0.1,
        "beta": 0.1,
        "batch_size": 50,
        "sweeps": 200,
        "burn_in": 100,
        "step_size": ("polynomial", 1.0, 1000.0, 0.33),
        "refresh_every": 5,
        "refresh_size": 1000,
    },
}
"""Settings of Patterson & Teh (2013) as SCIR's table 2 gives them, of Baker et al. (2018), and of Barile & Nemeth. (The
last paper's table is damaged in the copies at hand, where κ reads 3.32 and α 1.1; 0.33 and 0.1 are taken.)"""


def preset(name: str) -> dict[str, Any]:
    """The arguments of `LDA` that make a paper's setting, with memory off, as the papers had none."""
    _checks.choice(name, "preset", tuple(PRESETS))
    found = dict(PRESETS[name])
    kind, *numbers = found["step_size"]
    found["step_size"] = getattr(schedules, kind)(*numbers)
    return {"memory": "none", **found}
