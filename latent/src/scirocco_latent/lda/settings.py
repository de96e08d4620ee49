"""Validation of the arguments of a topic model, and presets with the settings of papers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from scirocco import _checks
from scirocco.data.sources import check_memory
from scirocco.diffusions.host._threads import available_cores
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models._core import device as devices
from scirocco.models._core.device import HOST
from scirocco.samplers import schedules
from scirocco_latent.lda.document_batches import Growth, automatic_growth, automatic_starts, check_growth
from scirocco_latent.lda.langevin import METHODS, check_options

SAMPLERS = ("auto", "scir", "scir_cv", "gibbs", *METHODS)
REMEMBERING = ("scir", "gibbs")
EXTENSIBLE = ("scir", "scir_cv")
"""Samplers without memory whose vocabulary can grow."""
ON_ARRAYS = ("scir", "gibbs", "scir_cv")
"""Samplers that have array programs."""
MEMORIES = ("auto", "documents", "none")
_SPARE = 0.2  # spare topics per topic
DEFAULT_BATCH = 500
"""Documents per batch of chains without memory, and of "scir"."""
_BATCH_TOKENS = 1_000_000  # at most, of "gibbs": enough for threads, and short enough for many draws in a pass
DEFAULT_STEP_SIZE = schedules.polynomial(1.0, 5.0, 0.4)
"""h, the step size of SCIR."""


class Size(NamedTuple):
    """Size of a corpus."""

    num_documents: int
    vocabulary_size: int
    num_tokens: int = 0
    streamed: bool = False


@dataclasses.dataclass(frozen=True)
class TopicSettings:
    """Settings that define a chain, except the data and the seed."""

    num_topics: int
    alpha: np.ndarray
    """One number > 0 per topic."""
    beta: float
    sampler: str
    memory: str
    """"documents" or "none"; "auto" has been resolved."""
    batch_size: int
    sweeps: int
    burn_in: int
    growth: Growth
    """Stages (documents, passes) before all documents are used (with memory)."""
    spare_topics: int
    """Number of additional topics in those stages."""
    step_size: schedules.Schedule | None
    """In the units of the sampler; None: `Steps` chooses it for the corpus."""
    refresh_every: int
    refresh_size: int
    options: tuple[tuple[str, float], ...]
    """Options of a Langevin sampler, by name."""
    learn_alpha: bool
    learn_beta: bool
    num_threads: int | None
    steps_per_exchange: int = 1
    """Number of steps of the schedule for the counts of one batch."""
    device: str = HOST
    """`HOST`, or "jax:" and a backend."""
    starts: int = 1
    """Number of short runs on all documents, of which the most probable is the start of a chain (with memory)."""

    @property
    def by_arrays(self) -> bool:
        """Whether the chain runs as array programs of JAX."""
        return self.device != HOST

    @property
    def words(self) -> str:
        """One line: the method, and where it runs."""
        backend = self.device.partition(":")[2]
        threads = available_cores() if self.num_threads is None else self.num_threads
        on_host = f"compiled kernels (CPU, {threads} thread{'s' * (threads > 1)})"
        where = f"array programs (JAX, {backend})" if self.by_arrays else on_host
        if self.memory == "none":
            return f'sampler "{self.sampler}" without memory of the documents, {where}.'
        if self.by_arrays:
            return f"exact Gibbs sampling of ω, η and z, {where}."
        starts = f", the best of {self.starts} starts" if self.starts > 1 else ""
        return f'exact sampler "{self.sampler}"{starts}, {where}.'

    def as_json(self) -> dict[str, Any]:
        """JSON representation for records."""
        out = dataclasses.asdict(self)
        del out["num_threads"]
        out["alpha"] = self.alpha.tolist()
        out["step_size"] = repr(self.step_size)
        out["growth"] = [list(stage) for stage in self.growth]
        out["options"] = dict(self.options)
        return out

    @classmethod
    def from_json(cls, written: Mapping[str, Any], num_threads: int | None) -> Self:
        """The settings of a record, without its step size: for results."""
        names = [each.name for each in dataclasses.fields(cls) if each.name in written]
        changes = {
            "alpha": np.array(written["alpha"], np.float64),
            "growth": tuple((size, passes) for size, passes in written["growth"]),
            "options": tuple(written["options"].items()),
            "step_size": None,
            "num_threads": num_threads,
        }
        return cls(**{name: written[name] for name in names} | changes)


def check_alpha(alpha: object, num_topics: int) -> np.ndarray:
    """Check α; return one number per topic."""
    try:
        array = np.asarray(alpha, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"`alpha` must be a number or {num_topics} numbers, got {alpha!r}.") from error
    if array.shape not in ((), (num_topics,)):
        raise InvalidValueError(
            f"`alpha` must be a number or one for each of the {num_topics} topics, got shape {array.shape}."
        )
    if not np.all(np.isfinite(array)) or np.any(array <= 0):
        raise InvalidValueError(f"`alpha` must be finite and > 0, got {alpha}.")
    return np.full(num_topics, float(array)) if array.ndim == 0 else array.copy()


def resolve(given: dict[str, Any], size: Size) -> TopicSettings:
    """Check the arguments of `LDA` and fill in the defaults for a corpus of this size."""
    num_topics = _checks.positive_int(given["num_topics"], "num_topics", minimum=2)
    words = f"num_topics={num_topics} topics of {size.vocabulary_size:,} words"
    check_memory(8 * num_topics * size.vocabulary_size, words, "Pass fewer topics.")  # a state and a draw
    _checks.positive(given["beta"], "beta")
    given = given | {"sampler": _sampler(given, size)}
    memory = _memory(given, size)
    with_memory = memory == "documents"
    sweeps = given["sweeps"] if given["sweeps"] is not None else (1 if with_memory else 20)
    burn_in = given["burn_in"] if given["burn_in"] is not None else (0 if with_memory else sweeps // 4)
    _checks.positive_int(sweeps, "sweeps")
    if _checks.positive_int(burn_in, "burn_in", minimum=0) >= sweeps:
        raise InvalidValueError(f"`burn_in` ({burn_in}) must be less than `sweeps` ({sweeps}).")
    device = _device(given)
    by_arrays = with_memory and device != HOST
    starts = automatic_starts(size.num_tokens) if with_memory and not by_arrays and _is_auto(given["growth"]) else 1
    grows = with_memory and starts == 1
    stages = _growth(given["growth"], size, num_topics, by_arrays) if grows else ()
    batch_size = min(_batch_size(given, size, with_memory), size.num_documents)
    return TopicSettings(
        num_topics,
        check_alpha(given["alpha"], num_topics),
        float(given["beta"]),
        given["sampler"],
        memory,
        size.num_documents if by_arrays else batch_size,
        sweeps,
        burn_in,
        stages,
        _spare(given["spare_topics"], num_topics, by_arrays) if stages or starts > 1 else 0,
        _step_size(given),
        _checks.positive_int(given["refresh_every"], "refresh_every"),
        _checks.positive_int(given["refresh_size"], "refresh_size"),
        check_options(given["sampler"], given["options"]),
        _learns(given, "learn_alpha", with_memory),
        _learns(given, "learn_beta", with_memory),
        None if given["num_threads"] is None else _checks.positive_int(given["num_threads"], "num_threads"),
        _exchange(given, with_memory),
        device,
        starts,
    )


def _batch_size(given: dict[str, Any], size: Size, with_memory: bool) -> int:
    """Documents per batch: by default so many that threads share the work; the sampler "gibbs" is exact for any."""
    if given["batch_size"] is not None:
        return _checks.positive_int(given["batch_size"], "batch_size")
    if not with_memory or given["sampler"] != "gibbs":
        return DEFAULT_BATCH
    return -(-size.num_documents // max(1, -(-size.num_tokens // _BATCH_TOKENS)))


def _sampler(given: dict[str, Any], size: Size) -> str:
    """The sampler; "auto": collapsed Gibbs where the documents can be remembered, otherwise SCIR."""
    sampler = _checks.choice(given["sampler"], "sampler", SAMPLERS)
    if sampler != "auto":
        return sampler
    remembers = _checks.choice(given["memory"], "memory", MEMORIES) != "none" and not size.streamed
    return "gibbs" if remembers else "scir"


def _memory(given: dict[str, Any], size: Size) -> str:
    """The memory of the chains: "documents" or "none"."""
    _checks.choice(given["memory"], "memory", MEMORIES)
    sampler, wanted = given["sampler"], given["memory"]
    able = sampler in REMEMBERING and not size.streamed
    if wanted == "documents" and not able:
        raise InvalidValueError(
            'memory="documents" requires sampler="scir" or "gibbs", and documents that can be read again by index '
            "(no stream); otherwise remove `memory`."
        )
    if sampler == "gibbs" and (wanted == "none" or not able):
        raise InvalidValueError(
            'sampler="gibbs" stores the topic of every token: it requires memory="documents" (or "auto") and '
            'no stream. For a stream use sampler="scir".'
        )
    return "documents" if able and wanted != "none" else "none"


def _device(given: dict[str, Any]) -> str:
    """Where the chains run: an accelerator if there is one and the sampler can use it, else compiled kernels."""
    requires = 'sampler="scir", "gibbs" or "scir_cv"'
    return devices.resolve(given.get("device", HOST), given["sampler"] in ON_ARRAYS, requires)


def _is_auto(given: object) -> bool:
    return isinstance(given, str) and given == "auto"


def _growth(given: object, size: Size, num_topics: int, by_arrays: bool) -> Growth:
    if given is None:
        return ()
    if _is_auto(given):
        return automatic_growth(size.num_documents, size.num_tokens, num_topics, by_arrays)
    return check_growth(given, size.num_documents)


def _step_size(given: dict[str, Any]) -> schedules.Schedule | None:
    if given["step_size"] is None:
        return None if given["sampler"] in METHODS else DEFAULT_STEP_SIZE
    schedule = schedules.normalise(given["step_size"], "LDA")
    if isinstance(schedule, schedules.Schedule):
        return schedule
    _checks.positive(schedule, "step_size", "LDA")
    return schedules.constant(float(schedule))


def _exchange(given: dict[str, Any], with_memory: bool) -> int:
    """Number of steps per batch: more than one only if equivalent to one longer step."""
    number = _checks.positive_int(given.get("steps_per_exchange", 1), "steps_per_exchange")
    if number > 1 and (with_memory or given["sampler"] not in ("scir", "scir_cv")):
        why = (
            'memory="documents" draws new topics at every step'
            if with_memory
            else f'the Euler steps of sampler="{given["sampler"]}" on the same counts are not one longer step'
        )
        raise InvalidValueError(
            f'`steps_per_exchange` = {number} requires sampler="scir" or "scir_cv" and memory="none": {why}. Remove '
            "it, or use a larger `batch_size`."
        )
    return number


def _spare(given: object, num_topics: int, by_arrays: bool) -> int:
    if given is None:
        return 0 if by_arrays else round(_SPARE * num_topics)
    return _checks.positive_int(given, "spare_topics", minimum=0)


def _learns(given: dict[str, Any], name: str, with_memory: bool) -> bool:
    _checks.flag(given[name], name)
    if given[name] and not with_memory:
        raise InvalidValueError(f'`{name}` requires memory="documents", with sampler="scir" or "gibbs".')
    return bool(given[name])


PRESETS: dict[str, dict[str, Any]] = {
    "patterson2013": {
        "memory": "none",
        "sampler": "sgrld",
        "alpha": 0.01,
        "beta": 0.0001,
        "batch_size": 50,
        "sweeps": 200,
        "burn_in": 100,
        "step_size": schedules.polynomial(0.01, 1000.0, 0.6),
    },
    "baker2018": {
        "memory": "none",
        "sampler": "scir",
        "alpha": 0.1,
        "beta": 0.5,
        "batch_size": 50,
        "sweeps": 200,
        "burn_in": 100,
        "step_size": schedules.polynomial(0.5, 10.0, 0.33),
    },
    "barile2024": {
        "memory": "none",
        "sampler": "scir_cv",
        "alpha": 0.1,
        "beta": 0.1,
        "batch_size": 50,
        "sweeps": 200,
        "burn_in": 100,
        "step_size": schedules.polynomial(1.0, 1000.0, 0.33),
        "refresh_every": 5,
        "refresh_size": 1000,
    },
}
"""Settings of Patterson & Teh (2013) as in table 2 of the SCIR paper, of Baker et al. (2018), and of Barile & Nemeth.
(The table of the last paper has typos in the available copies, κ = 3.32 and α = 1.1; 0.33 and 0.1 are used.)"""
