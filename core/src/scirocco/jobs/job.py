"""Start and resume runs from a configuration file."""

from __future__ import annotations

import contextlib
import hmac
import importlib
import inspect
import json
import operator
import os
import secrets
import shlex
import stat
import sys
import tomllib
import traceback
from collections.abc import Collection, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax.numpy as jnp

from scirocco import _checks, estimators, samplers, simplex
from scirocco.data.formats.conversion import open_table, read_columns
from scirocco.errors import InvalidTypeError, InvalidValueError, SciroccoError
from scirocco.jobs import zoo
from scirocco.model import Posterior
from scirocco.models._core.registry import MODELS
from scirocco.run import Run, resume, sample
from scirocco.run.loading import COLUMNS
from scirocco.run.records import Record
from scirocco.run.run_group import CHAINS, SHARDS
from scirocco.store import files, open_stored
from scirocco.types import Data, Params

_TABLES = (".csv", ".tsv", ".parquet", ".npz", ".feather")
_KEY_BYTES = 32
"""The length of the key that signs the names of job files."""
_TOP = ("model", "params", "data", "store", "sampler", "estimator", "run")
_OWN = ("model", "data", "params", "sampler", "estimator", "store", "resume", "overwrite", "notes", "progress")


class SampleJob(NamedTuple):
    """A run that can be started."""

    model: Posterior
    data: Data
    params: Params
    store: Path
    options: dict[str, Any]
    """Arguments of `sc.sample`: sampler, estimator and the rest."""
    notes: dict[str, str]


def read_job(path: Path, changes: dict[str, Any] | None = None, store: Path | None = None) -> SampleJob:
    """Read and check a configuration file; `changes` of its [run] and another `store` come from the command line."""
    path = path.resolve()
    written = _read(path)
    here = path.parent
    options = dict(written.get("run", {})) | (changes or {})
    known = [name for name in inspect.signature(sample).parameters if name not in _OWN]
    _refuse_unknown(options, known, f"[run] of {path}")
    for kind, rooms in (("sampler", (samplers, simplex)), ("estimator", (estimators,))):
        if kind in written:
            options[kind] = _make(written[kind], rooms, f"[{kind}] of {path}")
    data = read_data(here / written["data"])
    model, params = _model(written, data, path)
    where = here / written["store"] if store is None else store
    notes = {"config": str(path), "config_mark": signature(str(path))}
    if _zoo_name(written["model"]) is not None and (columns := zoo.column_names(data)):
        notes[COLUMNS] = json.dumps(columns)
    return SampleJob(model, data, params, where, options, notes)


def _read(path: Path) -> dict[str, Any]:
    _checks.readable(path)
    try:
        written = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidValueError(f"{path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        table = f" A table is converted first: scirocco data convert {path.name} FOLDER." * (path.suffix in _TABLES)
        raise InvalidValueError(
            f"{path} is not TOML: {error}.{table} An example of such a file: scirocco sample --example logistic"
        ) from error
    _refuse_unknown(written, _TOP, str(path))
    if not isinstance(written.get("model", ""), (str, dict)):
        raise InvalidTypeError(f"`model` of {path} must be a name in quotes, got {written['model']!r}.")
    by_name = _zoo_name(written.get("model")) is not None
    for name in ("model", "data", "store", *(() if by_name else ("params",))):
        if name not in written:
            raise InvalidValueError(f"{path} lacks `{name}`.")
    for name in ("data", "store"):
        if not isinstance(written[name], str):
            raise InvalidTypeError(f"`{name}` of {path} must be a path in quotes, got {written[name]!r}.")
    for name in ("sampler", "estimator", "run"):
        if not isinstance(written.get(name, {}), dict):
            raise InvalidTypeError(f"`{name}` of {path} must be a table: [{name}] and lines below it.")
    return written


def _zoo_name(model: object) -> str | None:
    """The name of a known model: without a colon, as a string or in a table."""
    if isinstance(model, dict):
        return str(model.get("name", ""))
    return model if isinstance(model, str) and ":" not in model else None


def _model(written: dict[str, Any], data: Data, path: Path) -> tuple[Posterior, Params]:
    """The model and where to start."""
    name, here = _zoo_name(written["model"]), path.parent
    if name is None:
        model = find(written["model"], here)
        if not isinstance(model, Posterior):
            raise InvalidTypeError(
                f"`model` of {path} must name a sc.Model or sc.CountModel, got {type(model).__name__}."
            )
        return model, _params(written["params"], here)
    if name not in zoo.families():
        raise InvalidValueError(
            f"`model` of {path}: `{name}` is neither of the form module:object, e.g. regression:model, nor one of "
            f"{', '.join(zoo.families())}.{_checks.did_you_mean(name, zoo.families())}"
        )
    options = {k: v for k, v in written["model"].items() if k != "name"} if name != written["model"] else {}
    _refuse_unknown(options, zoo.options_of(name), f"`model` of {path}")
    known = zoo.make(name, options, data)
    return known.model, known.params if "params" not in written else _params(written["params"], here)


def start(job: SampleJob, *, overwrite: bool = False, go_on: bool = False, progress: bool = True) -> Run:
    """Run it."""
    return sample(
        job.model,
        job.data,
        job.params,
        store=job.store,
        overwrite=overwrite,
        resume=go_on,
        notes=job.notes,
        progress=progress,
        **job.options,
    )


def resume_job(
    path: Path, num_samples: int | None, config: Path | None = None, progress: bool = True, verify: bool = False
) -> Run:
    """Resume a stored run that was started from a file.

    A file names code to run. Without `config` it is the one that the run names, but only if this user started the run
    from it and it lies outside the run: the folder may come from somebody else.
    """
    if SHARDS.is_at(path):
        raise InvalidValueError(
            f"{path} contains subposteriors, a run for each shard: resume them in Python, with the original call of "
            "sc.combine.subposteriors."
        )
    written = origin(path)
    _refuse_others(path)
    if config is None and written is None:
        raise InvalidValueError(
            f"the run in {path} was not started from a configuration file, and a store does not contain the model. "
            f"Resume it in Python, sc.resume({str(path)!r}, model, data), or give a file with --config."
        )
    if config is None and not is_trusted(path):
        raise InvalidValueError(
            f"the run in {path} says that it was started from {written}, which names the code to run; but it was not "
            "started by you on this machine, or the file is inside the run. Read the file; if you trust it, name it: "
            f"scirocco resume {shlex.quote(str(path))} --config {shlex.quote(str(written))}"
        )
    job = read_job(config or Path(written or ""))
    return resume(
        path,
        job.model,
        job.data,
        params=job.params,
        num_samples=num_samples,
        reducers=job.options.get("reducers"),
        progress=progress,
        verify=verify,
    )


def is_trusted(path: Path) -> bool:
    """Whether the file that a run names lies outside it, and this user has started the run from that file."""
    notes = _record(path).notes or {}
    written, given = notes.get("config"), notes.get("config_mark")
    if not isinstance(written, str) or not isinstance(given, str):
        return False
    inside = Path(written).resolve().is_relative_to(path.resolve())
    return not inside and hmac.compare_digest(signature(written).encode(), given.encode())


def signature(config: str) -> str:
    """Proof that this user has started a run from a file: its name, signed with a key that only this user can read."""
    top = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    file = Path(top) / "scirocco" / "key"
    try:
        if not _is_key(file):  # an empty file, or a link to one that others know, proves nothing
            file.parent.mkdir(parents=True, exist_ok=True)
            with files.writing(str(file), sync=False, many_writers=True) as draft:
                os.chmod(draft.name, 0o600)
                draft.write(secrets.token_bytes(_KEY_BYTES))
        key = file.read_bytes()
    except OSError:  # nothing can be proven later: the user will have to name the file
        key = secrets.token_bytes(_KEY_BYTES)
    return hmac.new(key, os.fsencode(config), "sha256").hexdigest()


def _is_key(file: Path) -> bool:
    """Whether a file is a key that only this user can have written and read."""
    try:
        status = file.lstat()
    except FileNotFoundError:
        return False
    own = sys.platform == "win32" or (status.st_uid == os.getuid() and not status.st_mode & 0o077)
    return stat.S_ISREG(status.st_mode) and status.st_size == _KEY_BYTES and own


def origin(path: Path) -> str | None:
    """The configuration file that a stored run was started from."""
    config = (_record(path).notes or {}).get("config")
    return None if config is None else str(config)


def _record(path: Path) -> Record:
    """The record of the run; of chains in a folder each, that of the first."""
    first = CHAINS.path(str(path), 0) if CHAINS.is_at(path) else path
    return Record.from_json(open_stored(first).record)


def _refuse_others(path: Path) -> None:
    """Reject models with their own sampling loop, which have their own command."""
    model = _record(path).model
    if model not in MODELS:
        return
    command = MODELS[model].command
    again = (
        f"scirocco {command} ... --out {shlex.quote(str(path))} --resume"
        if command
        else f"fit(..., store={str(path)!r}, resume=True)"
    )
    what = "command with --resume" if command else "call"
    raise InvalidValueError(f"{path} contains a fitted {model}: repeat the original {what}: {again}")


def find(name: object, here: Path) -> Any:
    """The object that `module:object` names; modules next to the file come first."""
    module, colon, attribute = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not (module and colon and attribute):
        raise InvalidValueError(f"`{name}` must have the form module:object, e.g. regression:model.")
    sys.path.insert(0, str(here))
    try:
        value = operator.attrgetter(attribute)(_imported(module, str(name)))
    except ImportError as error:
        raise InvalidValueError(f"`{name}`: the module cannot be imported ({error}).") from error
    except AttributeError as error:
        raise InvalidValueError(f"`{name}`: {error}.") from error
    finally:
        sys.path.remove(str(here))
    return value


def _imported(module: str, name: str) -> Any:
    """Import the user's module; an error in it is reported in one line."""
    try:
        return importlib.import_module(module)
    except (ImportError, SciroccoError):
        raise
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1]
        raise InvalidValueError(
            f"`{name}`: the module fails when it is imported: {type(error).__name__}: {error} "
            f"({line.filename}, line {line.lineno})."
        ) from error


def read_data(path: Path) -> Data:
    """A data folder (streamed), or the arrays or columns of a file (in memory)."""
    if path.is_dir():
        return path
    table = open_table(path)
    found = read_columns(table, table.names)
    return found["data"] if table.single else found


def _params(written: object, here: Path) -> Params:
    if isinstance(written, str):
        found = find(written, here)
        if not callable(found):
            return found
        with contextlib.suppress(ValueError):  # some compiled functions have no signature
            needed = [p for p in inspect.signature(found).parameters.values() if p.default is p.empty]
            if any(p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in needed):
                raise InvalidTypeError(f"`params`: {written} must be a function without arguments that are required.")
        return found()
    try:
        if isinstance(written, dict):
            return {name: jnp.asarray(value, jnp.float32) for name, value in written.items()}
        return jnp.asarray(written, jnp.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidTypeError(f"`params` must be numbers, or module:object ({error}).") from error


def _make(written: object, rooms: tuple[ModuleType, ...], place: str) -> Any:
    """An object of the library by name and fields."""
    if not isinstance(written, dict) or "name" not in written:
        raise InvalidValueError(f"{place} requires a `name`.")
    fields = {key: value for key, value in written.items() if key != "name"}
    named = {name: vars(room)[name] for room in rooms for name in room.__all__}
    known = [name for name, item in named.items() if isinstance(item, type)]
    _refuse_unknown([written["name"]], known, place)
    cls = named[written["name"]]
    _refuse_unknown(fields, list(inspect.signature(cls).parameters), place)
    try:
        return cls(**{key: _schedule(value, place) for key, value in fields.items()})
    except SciroccoError:
        raise
    except TypeError as error:  # an argument without a default was left out
        raise InvalidValueError(f"{place}: {error}.") from error


def _schedule(value: object, place: str) -> Any:
    """`step_size = {schedule = "polynomial", start = 1e-4, tau = 100, kappa = 0.33}`."""
    if not isinstance(value, dict) or "schedule" not in value:
        return value
    made = samplers.schedules
    known = {"constant": made.constant, "polynomial": made.polynomial, "cyclical": made.cyclical}
    _refuse_unknown([value["schedule"]], known, place)
    fields = {key: item for key, item in value.items() if key != "schedule"}
    schedule = known[value["schedule"]]
    _refuse_unknown(fields, list(inspect.signature(schedule).parameters), f"the schedule in {place}")
    return schedule(**fields)


def _refuse_unknown(names: Iterable[object], known: Collection[str], place: str) -> None:
    for name in names:
        if name not in known:
            hint = _checks.did_you_mean(name, known) or f" Known: {', '.join(known)}."
            raise InvalidValueError(f"{place} has an unknown entry `{name}`.{hint}")
