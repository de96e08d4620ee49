"""The content of a folder: nothing, a run, an incomplete run, or files that do not belong to scirocco.

A run's own files are `run.json`, `commit.json` and the sampler's state, a file of arrays: never pickled, never code.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidTypeError, InvalidValueError, StoreError
from scirocco.store import files, layout
from scirocco.store.layout import INNER, Group

FORMAT, FORMAT_VERSION = "scirocco run", 1  # of run.json
LOCK = "lock"
_RUN, _COMMIT = "run.json", "commit.json"


def inner(root: str, name: str) -> str:
    """A file in the subfolder for everything except draws."""
    return os.path.join(root, INNER, name)


@dataclass(frozen=True)
class RunHeader:
    """The content of `run.json`, written once, when the run is created."""

    groups: dict[str, Group]
    record: dict[str, Any]
    version: str
    created_at: str
    run_id: str
    """A random name, which every commit repeats."""


@dataclass(frozen=True)
class Commit:
    """The content of `commit.json`: how much of the other files is valid."""

    number: int
    draws: dict[str, int]
    state: dict[str, Any]
    progress: dict[str, Any]
    checksums: dict[str, dict[str, str]]
    """The checksums of all chunks by group and folder, eight hexadecimal digits each."""


def attributes(header: RunHeader, progress: dict[str, Any]) -> dict[str, Any]:
    """Attributes that ArviZ expects; lists stay where they are (scores, and a point as large as a draw).

    They are written five times at every commit.
    """
    items = {k: v for k, v in {**header.record, **progress}.items() if not isinstance(v, list)}
    attributes = {
        "inference_library": "scirocco",
        "inference_library_version": header.version,
        "created_at": header.created_at,
    }
    for key, value in items.items():
        plain = isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value))
        attributes.setdefault(key, value if plain else json.dumps(value))
    return attributes


def rescue(root: str) -> str:
    """Advice on what can be recovered when one of scirocco's own files is damaged."""
    return (
        f"The run cannot be resumed from it, but the draws are in separate files: "
        f"`xarray.open_zarr({root!r}, group='posterior')` reads those of the last commit."
    )


def write_header(root: str, header: RunHeader) -> None:
    """Write `run.json`."""
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": header.version,
        "created_at": header.created_at,
        "run_id": header.run_id,
        "groups": layout.to_json(header.groups),
        "record": header.record,
    }
    files.write_document(inner(root, _RUN), content)


def read_header(root: str) -> RunHeader:
    """Read `run.json`; raise an error if the folder is not a run."""
    path = inner(root, _RUN)
    if not os.path.exists(path):
        raise InvalidValueError(_no_run(root))
    content = files.read_document(path, rescue(root))
    if content.get("format") != FORMAT or content.get("format_version") != FORMAT_VERSION:
        raise StoreError(
            f"{path} has the format {content.get('format')!r}, version {content.get('format_version')!r}; this "
            f"scirocco reads {FORMAT!r}, version {FORMAT_VERSION}. Use the version of scirocco that wrote it "
            f"({content.get('version')!r}). {rescue(root)}"
        )
    groups = layout.from_json(content.get("groups"), path)
    record = content.get("record")
    if not isinstance(record, dict):
        raise StoreError(f"{path} does not contain the record of the run. {rescue(root)}")
    run_id = str(content.get("run_id"))
    return RunHeader(groups, record, str(content.get("version")), str(content.get("created_at")), run_id)


def _no_run(root: str) -> str:
    if not os.path.exists(root):
        return f"there is no folder {root}."
    if not os.path.isdir(root):
        return f"{root} is a file, but a run is a folder."
    if is_unfinished(root):
        return _never_started(root)
    return f"{root} is not a scirocco run: it has no file {os.path.join(INNER, _RUN)}."


def _never_started(root: str) -> str:
    return (
        f"the run in {root} was never started: it has no commit and no draws. Start it again "
        f"with `sc.sample(..., store=...)`; the folder will be reused."
    )


def write_commit(root: str, commit: Commit, run_id: str) -> None:
    """The commit point: once the new `commit.json` is in place, its draws are valid."""
    content = {
        "commit": commit.number,
        "draws": commit.draws,
        "state": commit.state,
        "progress": commit.progress,
        "run_id": run_id,
        "checksums": commit.checksums,
    }
    files.write_document(inner(root, _COMMIT), content)


def read_commit(root: str, header: RunHeader) -> Commit:
    """Read `commit.json`."""
    path = inner(root, _COMMIT)
    if not os.path.exists(path):
        raise StoreError(_never_started(root))
    content = files.read_document(path, rescue(root))
    number, draws = content.get("commit"), content.get("draws")
    entry, progress = content.get("state"), content.get("progress")
    if not isinstance(number, int) or not isinstance(entry, dict) or not isinstance(progress, dict):
        raise StoreError(f"{path} lacks required entries of a commit. {rescue(root)}")
    if content.get("run_id") != header.run_id:
        raise StoreError(
            f"{path} belongs to another run than {_RUN} (its id is {content.get('run_id')!r}, not {header.run_id!r}): "
            f"files of two runs were mixed. {rescue(root)}"
        )
    if not isinstance(draws, dict) or set(draws) != set(header.groups):
        raise StoreError(f"{path} and {_RUN} name different groups: they belong to two runs. {rescue(root)}")
    if not all(type(count) is int and count >= 0 for count in draws.values()):
        raise StoreError(f"{path} has invalid numbers of draws: {draws}. {rescue(root)}")
    if not is_state_file(entry.get("file")):
        raise StoreError(
            f"{path} names the state file {entry.get('file')!r}, which scirocco cannot have written. {rescue(root)}"
        )
    checksums = content.get("checksums", {})
    if not _are_checksums(checksums, header, draws):
        raise StoreError(f"{path} does not have one checksum for each chunk. {rescue(root)}")
    return Commit(number, draws, entry, progress, checksums)


def _are_checksums(checksums: Any, header: RunHeader, draws: dict[str, int]) -> bool:
    expected = {
        name: {c.node: 8 * group.num_chunks(draws[name]) * bool(math.prod(c.shape)) for c in group.columns}
        for name, group in header.groups.items()
    }
    try:
        return {name: {node: len(c) for node, c in of.items()} for name, of in checksums.items()} == expected
    except (AttributeError, TypeError):
        return False


def has_commit(root: str) -> bool:
    """True once there is a valid commit."""
    return os.path.exists(inner(root, _COMMIT))


def holds_run(path: str | os.PathLike[str]) -> bool:
    """True if there is a run that can be opened or resumed."""
    _checks.path(path, "path")
    return has_commit(os.path.abspath(os.fspath(path)))


def is_unfinished(root: str) -> bool:
    """True for an empty folder, or one in which creation ended before `run.json` was written."""
    entries = set(os.listdir(root))
    if not entries <= {INNER}:
        return False
    folder = os.path.join(root, INNER)
    return not entries or (os.path.isdir(folder) and set(os.listdir(folder)) <= {LOCK, _RUN + files.TMP})


def refuse_unless_free(path: str | os.PathLike[str], overwrite: bool) -> None:
    """Raise an error if no run can be created at this path; changes nothing."""
    root = os.path.abspath(_checks.path(path, "store"))
    if not os.path.lexists(root) or (os.path.isdir(root) and is_unfinished(root)):
        return
    try:
        header = read_header(root)
    except (InvalidValueError, StoreError) as error:
        raise InvalidValueError(
            f"`store`: {root} exists and is not a run that scirocco may replace, so nothing in it was touched "
            f"({error}) Choose another path, or delete it yourself."
        ) from error
    if has_commit(root) and not overwrite:
        raise InvalidValueError(
            f"{root} holds a run already ({_progress(root, header)}); use `sc.resume({root!r}, ...)` to resume it (a "
            f"model: fit with resume=True), or overwrite=True to delete it."
        )


def _progress(root: str, header: RunHeader) -> str:
    try:
        draws = read_commit(root, header).draws
    except StoreError:
        return "its commit is damaged"
    main = "posterior" if "posterior" in draws else next(iter(draws), None)
    configuration = header.record.get("configuration", header.record)
    total = configuration.get("num_samples") if isinstance(configuration, dict) else None
    of = f" of {total:,}" if isinstance(total, int) else ""
    return f"{draws[main] if main else 0:,}{of} draws"


def clear(root: str) -> None:
    """Delete a run's own files and no others; the caller holds the lock, and `run.json` is replaced."""
    if not os.path.exists(inner(root, _RUN)):
        return
    header = read_header(root)
    # Delete the commit first: if interrupted after that, the folder counts as a run that was never started.
    for name in [_COMMIT, *sorted(os.listdir(os.path.join(root, INNER)))]:
        if name == _COMMIT or name.endswith(files.TMP) or is_state_file(name):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(inner(root, name))
    files.sync_folder(os.path.join(root, INNER))
    for name in header.groups:
        if os.path.lexists(os.path.join(root, name)):
            shutil.rmtree(os.path.join(root, name))
    for name in ("zarr.json", "zarr.json" + files.TMP):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(root, name))


def adopt(root: str, draft: str) -> None:
    """Give the complete run in `draft` the name `root`; a run that is there is deleted then, and other files stay.

    Nothing is copied, so that a full disk cannot interrupt it.
    """
    if not os.path.lexists(root):
        return _rename_safely(draft, root)
    old = f"{draft}.old"
    lock = files.Lock(inner(root, LOCK)) if os.path.isdir(os.path.join(root, INNER)) else None
    try:
        os.replace(root, old)
        try:
            _rename_safely(draft, root)
        except BaseException:
            os.rename(old, root)
            raise
    finally:
        if lock is not None:
            lock.release()
    groups = read_header(old).groups if os.path.exists(inner(old, _RUN)) else ()
    for name in sorted(set(os.listdir(old)) - {INNER, "zarr.json", *groups}):
        os.rename(os.path.join(old, name), os.path.join(root, name))
    shutil.rmtree(old)


def _rename_safely(draft: str, root: str) -> None:
    """Rename and return when that is on the disk; it is undone if the disk fails."""
    os.replace(draft, root)
    try:
        files.sync_folder(os.path.dirname(root))
    except BaseException:
        os.rename(root, draft)
        raise


def sweep(root: str, header: RunHeader, commit: Commit) -> None:
    """Remove the leftovers of an interrupted process: incomplete files, and states that no commit names."""
    folders = [root, os.path.join(root, INNER)]
    for name, group in header.groups.items():
        nodes = ["chain", "draw", *(column.node for column in group.columns)]
        folders += [os.path.join(root, name), *(os.path.join(root, name, node) for node in nodes)]
    for folder in folders:
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            old_state = folder == folders[1] and is_state_file(name) and name != commit.state["file"]
            ours = name.endswith(files.TMP) and (name.startswith(("c.", "zarr.json")) or folder == folders[1])
            if old_state or ours:
                os.unlink(os.path.join(folder, name))


_FILE_NAME = re.compile(r"state-\d{1,18}\.npz")
_BLOCK = 1 << 20  # bytes read at a time


def is_state_file(name: object) -> bool:
    """True for file names that `write_state` creates (and therefore never for a path out of the folder)."""
    return isinstance(name, str) and _FILE_NAME.fullmatch(name) is not None


def write_state(folder: str, number: int, arrays: dict[str, np.ndarray], dtypes: dict[str, str]) -> dict[str, Any]:
    """Write prepared arrays; return their entry for the commit."""
    name = f"state-{number}.npz"
    with files.writing(os.path.join(folder, name), sync=True) as file:
        # Like `np.savez`, which cannot store an array named `file`.
        with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
            for key, array in arrays.items():
                with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        file.flush()
        crc = _checksum(file)
    files.sync_folder(folder)
    return {"file": name, "crc32": crc, "dtypes": dtypes}


def prepare(state: dict[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """NumPy arrays that a file can hold, and the dtypes of those that are stored as plain bits (bfloat16)."""
    arrays, dtypes = {}, {}
    for key, value in state.items():
        if not isinstance(key, str) or not key or "\0" in key or "\\" in key:
            raise InvalidTypeError(f"the state has an array named {key!r}: names must be plain strings.")
        try:
            array = np.asarray(value)
        except Exception as error:
            raise InvalidTypeError(f"`{key}` of the state cannot be converted to a NumPy array: {error}") from error
        if array.dtype.hasobject or array.dtype.names is not None:
            raise InvalidTypeError(f"`{key}` of the state has dtype {array.dtype}, but only numbers can be stored.")
        if array.dtype.kind == "V":
            dtypes[key] = array.dtype.name
            array = array.view(f"u{array.dtype.itemsize}")
        arrays[key] = array
    return arrays, dtypes


def _checksum(file: BinaryIO) -> int:
    """The checksum of the file, read in blocks: the state of SAGA can be as large as the data."""
    file.seek(0)
    crc = 0
    while block := file.read(_BLOCK):
        crc = zlib.crc32(block, crc)
    file.seek(0, os.SEEK_END)
    return crc


def read_state(folder: str, entry: dict[str, Any], rescue: str) -> dict[str, np.ndarray]:
    """The arrays of the state that the commit names."""
    name = entry.get("file")
    if not is_state_file(name):
        raise StoreError(f"the commit names a state file {name!r}, which scirocco cannot have written. {rescue}")
    path = os.path.join(folder, str(name))
    try:
        _checks.readable(path)
        with open(path, "rb") as file:
            if _checksum(file) != entry.get("crc32"):
                raise StoreError(f"{path} is damaged: its checksum differs from that in the commit. {rescue}")
            file.seek(0)
            return _read_arrays(file, entry.get("dtypes", {}))
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing. {rescue}") from error
    except (ValueError, KeyError, TypeError, EOFError, IsADirectoryError, zipfile.BadZipFile) as error:
        raise StoreError(f"{path} does not contain plain arrays ({error}); it was not loaded. {rescue}") from error


def _read_arrays(file: BinaryIO, dtypes: dict[str, str]) -> dict[str, np.ndarray]:
    out = {}
    with zipfile.ZipFile(file) as archive:
        for member in archive.namelist():
            key = member.removesuffix(".npy")
            with archive.open(member) as stream:
                array = np.lib.format.read_array(stream, allow_pickle=False)
            out[key] = array.view(np.dtype(dtypes[key])) if key in dtypes else array
    return out
