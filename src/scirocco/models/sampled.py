"""Common code of models fitted by `sc.sample`: length of a run in steps, epochs or seconds, and saving."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scirocco import _checks, _tree
from scirocco.errors import InvalidValueError
from scirocco.estimators import ControlVariates, Full
from scirocco.models import fits
from scirocco.models.fits.conventions import new_names
from scirocco.models.fits.drive import BY_THE_CLOCK
from scirocco.models.fits.length import Spread, spread
from scirocco.run import Run, load, snapshot
from scirocco.run.encoding import decode, encode
from scirocco.run.progress import Callback, as_callbacks
from scirocco.run.time_limit import Stopwatch, affordable
from scirocco.samplers import BAOAB, Preconditioned
from scirocco.store import Store, holds_run, open_stored

Path = str | os.PathLike[str]
Wanted = tuple[int, float, int | None]
"""Draws per chain, burn-in (steps, or a fraction of the run), steps between draws (None: spread evenly); checked."""

_TRIAL = 0.1
"""Fraction of a time limit that is used to measure the speed of the steps."""
_CODE = ("sampler", "estimator", "apply", "params")
"""Arguments with code or weights of the user, which are not saved."""
_SAMPLER = "posterior draws"


def lengths(
    wanted: tuple[int, float | None, int | None],
    num_epochs: float | None,
    max_seconds: float | None,
    *,
    num_rows: int,
    batch_size: int,
    thin: int,
    num_burnin: float,
    share: float,
) -> tuple[fits.Length, Wanted]:
    """The length of a run, and which draws to keep.

    Parameters
    ----------
    wanted
        `num_samples`, `num_burnin` and `thin` of the model; the last two may be None.
    num_epochs, max_seconds
        Arguments of `fit`, at most one. With neither, `num_samples` draws after the burn-in, `thin` steps apart.
    num_rows, batch_size
        Number of rows of the data, and of a step.
    thin, num_burnin
        Defaults for None in `wanted` if no length is given; `num_burnin` in units of `thin` steps.
    share
        Default for None if a length is given: the fraction of it that is burn-in. Then `thin` stays None, and draws are
        spread evenly.
    """
    num_samples, burn_in, apart = wanted
    if num_epochs is None and max_seconds is None:
        _, _, apart = fits.check_draws(num_samples, 0, thin if apart is None else apart)
        burn_in = num_burnin * (apart or thin) if burn_in is None else burn_in
    chosen = fits.check_draws(num_samples, share if burn_in is None else burn_in, apart)
    length = fits.check_length(
        *(None, num_epochs, max_seconds),
        num_rows=num_rows,
        batch_size=batch_size,
        planned_steps=fits.planned_steps(*chosen),
    )
    return length, chosen


def warn_of_steps(num_steps: int | None, num_rows: int, batch_size: int) -> None:
    """Say how `num_steps`, which `fit` once took, is given now."""
    if num_steps is not None:
        epochs = f"{_checks.positive_int(num_steps, 'num_steps') * batch_size / num_rows:.6g}"
        if math.ceil(float(epochs) * num_rows / batch_size) != num_steps:  # rounded, another length
            epochs = repr((num_steps - 0.5) * batch_size / num_rows)
        _checks.warn(
            f"`num_steps` of `fit` is now `num_epochs`, passes over the rows: give num_epochs={epochs} for "
            f"{num_steps} steps. The old name will be removed in the next version.",
            FutureWarning,
        )


def draw(
    sampling: Callable[..., Run],
    length: fits.Length,
    wanted: Wanted,
    *,
    store: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    arrays: Mapping[str, np.ndarray] | None = None,
) -> Run:
    """Run for a number of steps, or of seconds.

    Parameters
    ----------
    sampling
        `sc.sample` with all arguments except its lengths (`num_samples`, `num_burnin`, `thin`) and the options below.
    length, wanted
        From `lengths`, or from `fits.check_length` and `fits.check_draws`. The time limit is for sampling: set-up and
        compilation are not counted. A trial of a tenth of it measures the speed, which determines the planned
        number of steps, at least those of the first draw; the run ends at the time limit in any case. A stored run that
        is resumed keeps its plan.
    store, resume, overwrite, callbacks, progress
        As for `sc.sample`.
    arrays
        Arrays needed to load the model from the store that are too large for `notes`; written when the run ends.
    """
    callbacks = as_callbacks(callbacks)
    options = {"store": store, "resume": resume, "overwrite": overwrite, "progress": progress}
    if length.num_steps is not None:
        places = _lengths(_places(wanted, length.num_steps))
        return with_arrays(sampling(**places, callbacks=callbacks, **options), arrays)
    seconds = length.max_seconds or 0.0
    if store is not None and resume and holds_run(store):
        was = load(store).configuration
        plan, left = Spread(was["num_samples"], was["num_burnin"], was["thin"]), seconds
    else:
        trial = functools.partial(sampling, **_lengths(Spread(1, BY_THE_CLOCK, 1)))
        num_steps, left = affordable(trial, seconds)
        plan = _places(wanted, max(num_steps, first_draw(wanted)))
    watch = Stopwatch(left, plan.burn_in + plan.thin)
    return with_arrays(sampling(**_lengths(plan), callbacks=(*callbacks, watch), **options), arrays)


def draw_chosen(
    sampling: Callable[..., Run],
    wanted: tuple[int | None, float | None, int | None],
    num_epochs: float | None,
    max_seconds: float | None,
    *,
    num_rows: int,
    batch_size: int,
    **options: Any,
) -> Run:
    """Run as `sc.sample` chooses; for a length in epochs or seconds, BAOAB with control variates on such batches.

    `sampling` and `options` are as for `draw`, `wanted` as for `lengths`.
    """
    if num_epochs is None and max_seconds is None:
        names = ("num_samples", "num_burnin", "thin")
        return sampling(**dict(zip(names, wanted, strict=True)), **options)
    size, (num_samples, burn_in, apart) = min(batch_size, num_rows), wanted
    length, plan = lengths(
        (1_000 if num_samples is None else num_samples, burn_in, apart),
        num_epochs,
        max_seconds,
        num_rows=num_rows,
        batch_size=size,
        thin=10,
        num_burnin=10,
        share=0.2,
    )
    estimator = Full() if size == num_rows else ControlVariates(size)
    given = {"sampler": Preconditioned(BAOAB()), "estimator": estimator}
    return draw(functools.partial(sampling, **given), length, plan, **options)


def with_arrays(run: Run, arrays: Mapping[str, np.ndarray] | None) -> Run:
    """The run, after arrays that the model needs were added to its store."""
    if run.path is not None and arrays:
        with Store.open(run.path) as store:
            added = {snapshot.FITTED + name: array for name, array in arrays.items()}
            store.commit(store.read_state() | added, store.progress)
    return run


def first_draw(wanted: Wanted) -> int:
    """Number of steps of the shortest run with a draw."""
    return fits.planned_steps(1, wanted[1], wanted[2] or 1) or 1


def _places(wanted: Wanted, num_steps: int) -> Spread:
    num_samples, num_burnin, thin = wanted
    return spread(num_steps, num_samples, num_burnin, thin=thin)


def _lengths(plan: Spread) -> dict[str, int]:
    return {"num_samples": plan.num_draws, "num_burnin": plan.burn_in, "thin": plan.thin}


# -- on disk -----------------------------------------------------------------------------------------------------------


class Saved(NamedTuple):
    """A saved model."""

    settings: dict[str, Any]
    """Arguments of the constructor, without code."""
    extra: dict[str, Any]
    arrays: dict[str, np.ndarray]
    run: Run


def save(
    kind: fits.Kind,
    model: fits.Conventions,
    draws: dict[str, Any],
    extra: dict[str, Any],
    path: Path,
    overwrite: bool,
    arrays: dict[str, np.ndarray] | None = None,
) -> None:
    """Save draws (chain, draw, ...), settings and JSON `extra`, with `arrays` of any size."""
    known = with_settings(model, extra)
    fits.save(kind, draws, {}, {"sampler": _SAMPLER}, known, path, overwrite, arrays)


def notes(kind: fits.Kind, model: fits.Conventions, extra: dict[str, Any]) -> dict[str, str]:
    """Settings and JSON `extra`, for `sc.sample` to write with the draws; `open_saved` reads them."""
    return fits.notes(kind, with_settings(model, extra))


def with_settings(model: fits.Conventions, extra: dict[str, Any]) -> dict[str, Any]:
    """JSON of the arguments of the constructor, and `extra`: what `open_saved` reads."""
    given = model.get_params().items()
    return {"settings": {name: _written(name, value) for name, value in given if name not in _CODE}, **extra}


def open_saved(kind: fits.Kind, path: Path, renamed: Mapping[str, str]) -> Saved:
    """Open a model written by `save`, or by `sc.sample` with `notes`; settings of older versions are renamed."""
    extra, run = fits.load(kind, path).extra, load(path)
    if not run.num_draws:
        raise InvalidValueError(f"the run in {path} has no draws yet (status: {run.status}): resume it.")
    read = {n: v if isinstance(v, list) else decode(v, n) for n, v in extra["settings"].items()}
    arrays = {n.removeprefix(snapshot.FITTED): a for n, a in open_stored(path).read_state().items()}
    return Saved(new_names(read, renamed, warn=False), extra, arrays, run)


def _written(name: str, value: Any) -> Any:
    if name == "classes" and value is not None:
        value = np.asarray(value).tolist()
    scalar = _tree.is_array(value) and value.shape == ()
    return encode(value.item() if scalar else value)


def write_labels(classes: np.ndarray) -> dict[str, Any]:
    """Labels of any type, as JSON values."""
    return {"classes": classes.tolist(), "classes_type": classes.dtype.str}


def read_labels(extra: Mapping[str, Any]) -> np.ndarray:
    """Read the labels written by `write_labels`."""
    return np.asarray(extra["classes"], dtype=np.dtype(extra["classes_type"]))
