"""From R's arguments, in either spelling, to scirocco's model, sampler and estimator, with checks in R's terms."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import re
import secrets
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import numpy as np
import numpy.typing as npt

from scirocco import _checks
from scirocco._extras import require
from scirocco.data import ArraySource, as_source
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import ControlVariates, Estimator, Minibatch
from scirocco.model import Model
from scirocco.samplers import SGHMC, SGLD, SGNHT, Sampler
from scirocco.types import Array, LogLikelihood, LogPrior, Params, PyTree, Rows

T = TypeVar("T")
NamedArrays: TypeAlias = Mapping[str, npt.ArrayLike]
PerParameter: TypeAlias = float | Mapping[str, float]
"""One number for all parameters, or one for each by name."""

_PROBE_ROWS = 64  # on which sums are compared
_DEFAULT_OPTIMIZER_STEPS = 10_000  # as in R


class ChainJob(NamedTuple):
    """Everything that defines a chain."""

    name: str
    """Which of the six functions."""
    model: Model
    data: ArraySource
    params: Params
    sampler: Sampler
    estimator: Estimator
    inner: int
    """Steps per iteration (R's L)."""
    seed: int
    verbose: bool


class Dynamics(NamedTuple):
    """One of the three dynamics: converts R's step-size constants to one of scirocco's samplers."""

    sampler: Callable[[Params], Sampler]
    inner: int = 1


class Descent(NamedTuple):
    """R's search for the mode. Both None: scirocco's own."""

    stepsize: float | None
    num_steps: int | None


def compose(
    name: str,
    method: Dynamics,
    logLik: LogLikelihood,
    dataset: NamedArrays,
    params: NamedArrays,
    logPrior: LogPrior | None,
    minibatchSize: float,
    verbose: bool,
    seed: int | None,
    descent: Descent | None = None,
) -> ChainJob:
    """Check everything that can be checked before a chain starts. `descent` is None without control variates."""
    if not callable(logLik):
        raise InvalidTypeError(f"`logLik` must be a function (params, dataset), got {logLik!r}.")
    if logPrior is not None and not callable(logPrior):
        raise InvalidTypeError(f"`logPrior` must be a function of params or None, got {logPrior!r}.")
    params = _named_arrays(params, "params", "{'theta': 0.0}")
    data: Any = as_source(_named_arrays(dataset, "dataset", "{'X': X, 'y': y}"))
    size = batch_size(minibatchSize, data.num_rows)
    model = Model.from_total(logLik, logPrior)
    _check_sum(model, params, data)
    estimator = Minibatch(size) if descent is None else _control_variates(size, descent)
    return ChainJob(
        name, model, data, params, method.sampler(params), estimator, method.inner, _seed(seed, verbose), bool(verbose)
    )


def _named_arrays(value: object, name: str, example: str) -> dict[str, Any]:
    """A dict with lists converted to arrays, like R's vectors."""
    if not isinstance(value, Mapping):
        raise InvalidTypeError(f"`{name}` must be a dict of arrays such as {example}, got a {type(value).__name__}.")
    if not value:
        raise InvalidValueError(f"`{name}` is empty. It must be a dict of arrays such as {example}.")
    for key in value:
        if not isinstance(key, str):
            raise InvalidTypeError(f"the names in `{name}` must be strings, got {key!r}.")
    return {key: _from_list(leaf, f"{name}[{key!r}]") for key, leaf in value.items()}


def _from_list(leaf: npt.ArrayLike, name: str) -> Any:
    if not isinstance(leaf, (list, tuple)):
        return leaf
    try:
        return np.asarray(leaf)
    except ValueError as error:
        raise InvalidTypeError(f"`{name}` is a ragged list: it must have the shape of an array.") from error


def batch_size(minibatchSize: float, num_rows: int) -> int:
    """Rows per step from a count, or from a share of all rows between 0 and 1."""
    if not _checks.is_number(minibatchSize):
        raise InvalidTypeError(f"`minibatchSize` must be a number, got {minibatchSize!r}.")
    if 0 < minibatchSize < 1:
        size = round(float(minibatchSize) * num_rows)
        if not size:
            raise InvalidValueError(
                f"`minibatchSize`={minibatchSize} is less than one of the {num_rows} rows. Give a larger share, or the "
                "number of rows itself, e.g. minibatchSize=100."
            )
        return size
    if isinstance(minibatchSize, (float, np.floating)) and minibatchSize == 1:
        raise InvalidValueError(
            f"`minibatchSize`=1.0 could mean one row or all of them: write 1 or {num_rows} (whole numbers)."
        )
    size = _checks.positive_int(minibatchSize, "minibatchSize")
    if size > num_rows:
        raise InvalidValueError(f"`minibatchSize` is {size}, but `dataset` has only {num_rows} rows.")
    return size


def _check_sum(model: Model, params: Params, data: ArraySource) -> None:
    """Check that the log likelihood of some rows is the sum over single rows; a mean would go unnoticed otherwise.

    Other errors of the function (shapes, infinities) are left to the checks of the run, which explain them.
    """
    rows = data.read(0, min(data.num_rows, _PROBE_ROWS))
    try:
        values = [_both_ways(model, at, rows) for at in _start_and_near(params)]
    except Exception:
        return
    for together, alone in values:
        if together.shape != () or alone.ndim != 1 or not np.all(np.isfinite(alone)):
            continue
        if abs(together - alone.sum()) > 1e-3 * np.abs(alone).sum():
            raise InvalidValueError(
                f"`logLik` must return the SUM over the rows it is given: for {len(alone)} rows it returns "
                f"{together:.6g}, but the rows one by one add up to {alone.sum():.6g}. Did you take a mean, or add a "
                "prior or a constant? (The prior belongs in `logPrior`.)"
            )


def _both_ways(model: Model, params: Params, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """The log likelihood of all rows together, and of each alone."""
    together, alone = _jitted_both_ways(model, params, rows)
    return np.asarray(together, np.float64), np.asarray(alone, np.float64)


@partial(jax.jit, static_argnums=0)
def _jitted_both_ways(model: Model, params: Params, rows: Rows) -> tuple[Array, Array]:
    return model.log_likelihood_sum(params, rows), model.log_likelihoods(params, rows)


def _start_and_near(params: Params) -> list[Params]:
    """The start, where a sum may happen to equal a mean, and a point next to it."""
    rng = np.random.default_rng(0)
    start = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)
    return [start, jax.tree.map(lambda p: p + 0.1 * rng.standard_normal(p.shape, np.float32), start)]


def _control_variates(size: int, descent: Descent) -> ControlVariates:
    steps = None if descent.num_steps is None else _checks.positive_int(descent.num_steps, "nItersOpt")
    if descent.stepsize is None:
        return ControlVariates(size, num_optimizer_steps=steps)
    _checks.positive(descent.stepsize, "optStepsize")
    optimizer = _gradient_descent(float(descent.stepsize))
    return ControlVariates(
        size, optimizer=optimizer, num_optimizer_steps=steps or _DEFAULT_OPTIMIZER_STEPS, polish=False
    )


@lru_cache(maxsize=64)
def _gradient_descent(stepsize: float) -> Any:
    """A cached optimiser: Optax makes new functions at each call, which would be compiled again."""
    return require("optax", "`optStepsize`").sgd(stepsize)


def _seed(seed: int | None, verbose: bool) -> int:
    if seed is not None:
        return _checks.positive_int(seed, "seed", minimum=0)
    seed = secrets.randbelow(2**31)
    if verbose:
        print(f"seed={seed} (chosen at random; pass it to reproduce this chain)")
    return seed


# -- R's constants as scirocco's samplers ------------------------------------------------------------------


def langevin(stepsize: PerParameter) -> Dynamics:
    """θ + (h/2) ĝ + N(0, h): SGLD with ε = h/2."""

    def make(params: Params) -> Sampler:
        sizes = _per_parameter(stepsize, params, "stepsize")
        return SGLD(step_size={name: size / 2 for name, size in sizes.items()})

    return Dynamics(make)


def hamiltonian(stepsize: PerParameter, alpha: PerParameter | None, L: int) -> Dynamics:
    """L steps of ν' = (1-α)ν + η ĝ + N(0, 2αη), θ' = θ + ν' from a new ν: SGHMC with ε = √η and C = α/√η."""
    inner = _checks.positive_int(L, "L")

    def make(params: Params) -> Sampler:
        sampler = SGHMC.from_r(_per_parameter(stepsize, params, "stepsize"), num_leapfrog=inner)
        return dataclasses.replace(sampler, friction=_per_step(alpha, sampler.step_size, params, "alpha"))

    return Dynamics(make, inner)


def thermostat(stepsize: PerParameter, a: PerParameter | None) -> Dynamics:
    """ν' = (1-α)ν + η ĝ + N(0, 2aη), θ' = θ + ν', α' = α + ν'ᵀν'/p - η: SGNHT with ε = √η and A = a/√η."""

    def make(params: Params) -> Sampler:
        sampler = SGNHT.from_r(_per_parameter(stepsize, params, "stepsize"))
        return dataclasses.replace(sampler, diffusion=_per_step(a, sampler.step_size, params, "a"))

    return Dynamics(make)


def _per_step(value: PerParameter | None, eps: dict[str, float], params: Params, name: str) -> PyTree | None:
    """R's friction per step as a rate: α/ε. None stays None: the sampler then chooses."""
    if value is None:
        return None
    fractions = _per_parameter(value, params, name)
    worst = max(fractions.values())
    if worst > 1:
        raise InvalidValueError(
            f"`{name}` must be at most 1, got {worst}: it is the share of the momentum that one step removes "
            "(scirocco's friction × √stepsize)."
        )
    return {key: fraction / eps[key] for key, fraction in fractions.items()}


def _per_parameter(value: PerParameter, params: Params, name: str) -> dict[str, float]:
    """A positive number for each parameter, from one for all or a dict."""
    if not isinstance(value, Mapping):
        if not _checks.is_number(value):
            raise InvalidTypeError(f"`{name}` must be a number, or a dict with one for each parameter; got {value!r}.")
        value = dict.fromkeys(params, value)
    known = sorted(params)
    for key in value:
        if key not in params:
            hint = suggest(str(key), known)
            raise InvalidValueError(
                f"`{name}` names `{key}`, which is not a parameter.{hint} The parameters are {known}."
            )
    missing = [key for key in known if key not in value]
    if missing:
        raise InvalidValueError(f"`{name}` lacks {missing}. Give one for each of the parameters {known}.")
    for key in known:
        _checks.positive(value[key], f"{name}[{key!r}]" if len(known) > 1 else name)
    return {key: float(value[key]) for key in params}


# -- R's camelCase and Python's snake_case -------------------------------------------------------------------


def snake_case(name: str) -> str:
    """`nItersOpt` as `n_iters_opt`; names without a capital inside stay as they are."""
    return re.sub(r"(?<=[a-z])([A-Z])", lambda match: "_" + match[1].lower(), name)


def both_spellings(function: Callable[..., T]) -> Callable[..., T]:
    """Accept keyword arguments in either spelling; reject unknown ones with the nearest known one."""
    names = list(inspect.signature(function).parameters)
    spellings = {spelling: name for name in names for spelling in (name, snake_case(name))}

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> T:
        translated: dict[str, Any] = {}
        for given, value in kwargs.items():
            name = spellings.get(given)
            if name is None:
                raise InvalidTypeError(_unknown(function.__name__, given, names, spellings))
            if name in translated:
                raise InvalidTypeError(f"{function.__name__}() got both `{name}` and `{snake_case(name)}`: give one.")
            translated[name] = value
        return function(*args, **translated)

    return wrapper


def _unknown(function: str, given: str, names: list[str], spellings: dict[str, str]) -> str:
    lower = {spelling.lower(): spelling for spelling in spellings}
    near = difflib.get_close_matches(given.lower(), lower, n=1)
    hint = f" Did you mean `{lower[near[0]]}`?" if near else ""
    return f"{function}() has no argument `{given}`.{hint} Its arguments are {', '.join(names)} (or in snake_case)."


def suggest(unknown: str, known: list[str]) -> str:
    """A sentence that names the nearest known name, or nothing."""
    near = difflib.get_close_matches(unknown, known, n=1)
    return f" Did you mean `{near[0]}`?" if near else ""
