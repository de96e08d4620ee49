"""Validation of the arguments of a mixture, and presets with the settings of the paper."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models._core.device import HOST
from scirocco.models._core.device import resolve as device_of
from scirocco.samplers import schedules
from scirocco_latent.dp.families import Gaussian, Multinomial

SAMPLERS = ("collapsed", "gibbs", "scir", "scir_cv", "sgrld")
COUNTS = ("auto", "kept", "estimated")
ESTIMATING = ("scir", "scir_cv", "sgrld")
_BASES: dict[str, Any] = {"multinomial": Multinomial, "gaussian": Gaussian}


@dataclasses.dataclass(frozen=True)
class MixtureSettings:
    """Settings that define a chain, except the base measure, the data and the seed."""

    sampler: str
    concentration: Gamma | float
    batch_size: int
    counts: str
    """"kept" or "estimated"; "auto" has been resolved."""
    step_size: schedules.Schedule | None
    stick_step_size: schedules.Schedule | None
    refresh_every: int
    refresh_size: int
    initial_clusters: int
    split_merge: int
    """Proposals per pass."""
    keep_clusters: int
    num_threads: int | None
    device: str = HOST
    """See `_core.device`."""

    @property
    def by_arrays(self) -> bool:
        """Whether the chain runs as array programs of JAX."""
        return self.device != HOST

    @property
    def words(self) -> str:
        """One line: the method, and where it runs."""
        where = f"array programs (JAX, {self.device.partition(':')[2]})" if self.by_arrays else "compiled kernels (CPU)"
        return f'sampler "{self.sampler}", {where}'

    def as_json(self) -> dict[str, Any]:
        """JSON representation for records."""
        out = dataclasses.asdict(self)
        del out["num_threads"]
        prior = self.concentration
        out["concentration"] = list(prior) if isinstance(prior, Gamma) else prior
        for name in ("step_size", "stick_step_size"):
            out[name] = repr(out[name]) if out[name] is not None else None
        return out


def base(given: object) -> Multinomial | Gaussian:
    """A base measure, or the default one of a name."""
    if isinstance(given, (Multinomial, Gaussian)):
        return given
    if not isinstance(given, str):
        raise InvalidTypeError(
            f'`base` must be "multinomial", "gaussian", a Multinomial or a Gaussian, got {type(given).__name__}.'
        )
    _checks.choice(given, "base", tuple(_BASES))
    chosen: Multinomial | Gaussian = _BASES[given]()
    return chosen


def resolve(given: dict[str, Any], kind: str, num_rows: int) -> MixtureSettings:
    """Check the arguments of `DPMixture` and fill in the defaults."""
    sampler = given["sampler"]
    _checks.choice(sampler, "sampler", SAMPLERS)
    if kind != "multinomial" and sampler in ("scir_cv", "sgrld"):
        raise InvalidValueError(
            f'sampler="{sampler}" requires base="multinomial". For real rows use sampler="collapsed", "gibbs" '
            'or "scir".'
        )
    counts = _counts(given, sampler)
    batch = min(_checks.positive_int(given["batch_size"], "batch_size"), num_rows)
    steps = _step_sizes(given, sampler, counts)
    device = device_of(given["device"], sampler == "gibbs", 'sampler="gibbs"')
    initial = given["initial_clusters"]
    if initial is None:
        usual = (30, 10) if device == HOST else (100, 30)  # more where passes are cheap
        initial = min(num_rows, usual[kind != "multinomial"])
    return MixtureSettings(
        sampler,
        check_concentration(given["concentration"]),
        num_rows if sampler == "gibbs" else batch,
        counts,
        *steps,
        _checks.positive_int(given["refresh_every"], "refresh_every"),
        min(_checks.positive_int(given["refresh_size"], "refresh_size"), num_rows),
        min(_checks.positive_int(initial, "initial_clusters"), num_rows),
        _checks.positive_int(given["split_merge"], "split_merge", minimum=0) if sampler == "collapsed" else 0,
        _checks.positive_int(given["keep_clusters"], "keep_clusters"),
        None if given["num_threads"] is None else _checks.positive_int(given["num_threads"], "num_threads"),
        device,
    )


def _counts(given: dict[str, Any], sampler: str) -> str:
    wanted = given["counts"]
    _checks.choice(wanted, "counts", COUNTS)
    if wanted == "estimated" and sampler not in ESTIMATING:
        raise InvalidValueError(
            f'sampler="{sampler}" keeps the counts of all rows; counts="estimated" requires {", ".join(ESTIMATING)}.'
        )
    if wanted == "kept" and sampler == "scir_cv":
        raise InvalidValueError(
            'sampler="scir_cv" reduces the noise of estimated counts; kept counts have none: use sampler="scir".'
        )
    if wanted == "auto":
        return "estimated" if sampler in ("scir_cv", "sgrld") else "kept"
    return str(wanted)


def _step_sizes(
    given: dict[str, Any], sampler: str, counts: str
) -> tuple[schedules.Schedule | None, schedules.Schedule | None]:
    """h of the components and of the sticks; None: an exact draw, which is the limit of a long step."""
    if sampler in ("collapsed", "gibbs"):
        for name in ("step_size", "stick_step_size"):
            if given[name] is not None:
                raise InvalidValueError(f'sampler="{sampler}" has no step size: remove `{name}`.')
        return None, None
    step, stick = given["step_size"], given["stick_step_size"]
    if step is None and counts == "estimated":
        step = {"scir": 0.02, "scir_cv": 0.1, "sgrld": 0.001}[sampler]
    if step is None and sampler == "sgrld":
        step = 0.001
    stick = step if stick is None else stick
    return _schedule(step), _schedule(stick)


def _schedule(given: object) -> schedules.Schedule | None:
    if given is None:
        return None
    made = schedules.normalise(given, "DPMixture")
    return made if isinstance(made, schedules.Schedule) else schedules.constant(float(made))


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "baker2018": {
        "scir": {"a": 0.5, "step_size": 0.1, "stick_step_size": 0.1, "initial_clusters": 20},
        "scir_cv": {"a": 0.5, "step_size": 0.1, "stick_step_size": 0.1, "initial_clusters": 20},
        "sgrld": {"a": 0.001, "step_size": 0.001, "stick_step_size": 0.005, "initial_clusters": 30},
        "gibbs": {"a": 0.5, "initial_clusters": 20},
    }
}
"""Table 3 of the supplement of Baker et al. (2018), by sampler. SCIR-CV, which is newer, uses the settings of SCIR."""


def preset(name: str, sampler: str) -> dict[str, Any]:
    """The arguments of `DPMixture` for the settings of a paper; counts are estimated, as there."""
    _checks.choice(name, "preset", tuple(PRESETS))
    _checks.choice(sampler, "sampler", tuple(PRESETS[name]))
    found = dict(PRESETS[name][sampler])
    estimated = {} if sampler == "gibbs" else {"counts": "estimated", "batch_size": 1000}
    return {"base": Multinomial(found.pop("a")), "sampler": sampler, **found, **estimated}


# -- the concentration α of the Dirichlet process: fixed, or with a Gamma(b₁, b₂) prior and drawn


class Gamma(NamedTuple):
    """A Gamma prior for the concentration."""

    shape: float
    rate: float


def check_concentration(given: object) -> Gamma | float:
    """A number, or a prior given as `Gamma(shape, rate)` or a pair."""
    if isinstance(given, (tuple, list)):
        if len(given) != 2:
            raise InvalidTypeError(f"`concentration` must be a number or Gamma(shape, rate), got {given!r}.")
        for value, name in zip(given, ("shape", "rate"), strict=True):
            _checks.positive(value, f"concentration's {name}")
        return Gamma(float(given[0]), float(given[1]))
    _checks.positive(given, "concentration")
    return float(given)  # type: ignore[arg-type]  # it has been checked


def first_concentration(prior: Gamma | float) -> float:
    """Initial value of α."""
    return prior.shape / prior.rate if isinstance(prior, Gamma) else prior


def given_partition(
    rng: np.random.Generator, alpha: float, prior: Gamma | float, num_clusters: int, num_rows: int
) -> float:
    r"""Draw α given a partition of `num_rows` rows into clusters, parameters integrated out (Escobar & West 1995).

    .. math:: p(α | k, N) ∝ p(α) α^k Γ(α)/Γ(α + N);

    η ~ Beta(α + 1, N) makes it a mixture of Gamma(b₁ + k, r) and Gamma(b₁ + k - 1, r) with r = b₂ - log η, odds
    (b₁ + k - 1) : N r.
    """
    if not isinstance(prior, Gamma) or num_rows == 0:
        return alpha
    rate = prior.rate - math.log(max(rng.beta(alpha + 1.0, num_rows), 1e-300))
    first = prior.shape + num_clusters - 1.0
    whole = rng.random() * (first + num_rows * rate) < first
    return max(float(rng.standard_gamma(first + whole)) / rate, 1e-10)
