"""What a folder holds: nothing, a run, the beginnings of one, or something that is none of scirocco's business.

A run's own files are `run.json`, `commit.json` and the sampler's state, a file of arrays: never pickled, never code.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from scirocco.errors import InvalidTypeError, InvalidValueError, StoreError
from scirocco.store import files, layout
from scirocco.store.layout import INNER, Group

FORMAT, FORMAT_VERSION = "scirocco run", 1
LOCK = "lock"
_RUN, _COMMIT = "run.json", "commit.json"


def inner(root: str, name: str) -> str:
    """A file in the folder with what is not draws."""
    return os.path.join(root, INNER, name)


@dataclass(frozen=True)
class Header:
    """What `run.json` holds: written once, when the run is created."""

    groups: dict[str, Group]
    record: dict[str, Any]
    version: str
    created_at: str


@dataclass(frozen=True)
class Commit:
    """What `commit.json` holds: how much of the rest counts."""

    number: int
    draws: dict[str, int]
    state: dict[str, Any]
    progress: dict[str, Any]


def rescue(root: str) -> str:
    """What can be saved when a file of scirocco's own is damaged."""
    return (
        f"The run cannot go on from it, but the draws are in files of their own: "
        f"`xarray.open_zarr({root!r}, group='posterior')` reads those of the last commit."
    )


def write_header(root: str, header: Header) -> None:
    """Write `run.json`."""
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": header.version,
        "created_at": header.created_at,
        "groups": layout.to_json(header.groups),
        "record": header.record,
    }
    files.write_document(inner(root, _RUN), content)


def read_header(root: str) -> Header:
    """Read `run.json`; a folder without one is not a run."""
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
        raise StoreError(f"{path} holds no record of the run. {rescue(root)}")
    return Header(groups, record, str(content.get("version")), str(content.get("created_at")))


def _no_run(root: str) -> str:
    if not os.path.exists(root):
        return f"there is no folder {root}."
    if not os.path.isdir(root):
        return f"{root} is a file; a run is a folder."
    if is_unfinished(root):
        return _never_started(root)
    return f"{root} is not a run of scirocco: it has no file {os.path.join(INNER, _RUN)}."


def _never_started(root: str) -> str:
    return (
        f"the run in {root} was never started: it has no commit and holds no draws. Start it again "
        f"with `sc.sample(..., store=...)`; the folder will be used anew."
    )


def write_commit(root: str, commit: Commit) -> None:
    """The commit point: when the new `commit.json` has its name, its draws count."""
    content = {
        "commit": commit.number,
        "draws": commit.draws,
        "state": commit.state,
        "progress": commit.progress,
    }
    files.write_document(inner(root, _COMMIT), content)


def read_commit(root: str, header: Header) -> Commit:
    """Read `commit.json`."""
    path = inner(root, _COMMIT)
    if not os.path.exists(path):
        raise StoreError(_never_started(root))
    content = files.read_document(path, rescue(root))
    number, draws = content.get("commit"), content.get("draws")
    entry, progress = content.get("state"), content.get("progress")
    if not isinstance(number, int) or not isinstance(entry, dict) or not isinstance(progress, dict):
        raise StoreError(f"{path} lacks what a commit must hold. {rescue(root)}")
    if not isinstance(draws, dict) or set(draws) != set(header.groups):
        raise StoreError(f"{path} and {_RUN} name different groups: they belong to two runs. {rescue(root)}")
    if not all(type(count) is int and count >= 0 for count in draws.values()):
        raise StoreError(f"{path} counts draws as {draws}. {rescue(root)}")
    if not is_state_file(entry.get("file")):
        raise StoreError(
            f"{path} names the state file {entry.get('file')!r}, which scirocco cannot have written. {rescue(root)}"
        )
    return Commit(number, draws, entry, progress)


def has_commit(root: str) -> bool:
    """True once draws count."""
    return os.path.exists(inner(root, _COMMIT))


def holds_run(path: str | os.PathLike[str]) -> bool:
    """True where there is a run that can be opened or gone on with."""
    return has_commit(os.path.abspath(os.fspath(path)))


def is_unfinished(root: str) -> bool:
    """True for an empty folder, or one in which creation ended before `run.json` was there."""
    entries = set(os.listdir(root))
    if not entries <= {INNER}:
        return False
    folder = os.path.join(root, INNER)
    return not entries or (os.path.isdir(folder) and set(os.listdir(folder)) <= {LOCK, _RUN + files.TMP})


def refuse_unless_free(path: str | os.PathLike[str], overwrite: bool) -> None:
    """Refuse a path at which no run can be created; nothing is touched."""
    root = os.path.abspath(os.fspath(path))
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
            f"{root} holds a run already ({_progress(root, header)}); use `sc.resume({root!r}, ...)` to go on (a "
            f"model: fit with resume=True), or overwrite=True to delete it."
        )


def _progress(root: str, header: Header) -> str:
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
    """Delete a run's own files, whatever else lies beside them; the lock is the caller's, `run.json` is replaced."""
    if not os.path.exists(inner(root, _RUN)):
        return
    header = read_header(root)
    # The commit goes first: from here on, if this is interrupted, the folder is one that was never started.
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


def sweep(root: str, header: Header, commit: Commit) -> None:
    """Remove what an interrupted process left: half-written files and states that no commit names."""
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
_BLOCK = 1 << 20


def is_state_file(name: object) -> bool:
    """True for names that `write_state` gives (and so never for a way out of the folder)."""
    return isinstance(name, str) and _FILE_NAME.fullmatch(name) is not None


def write_state(
    folder: str, number: int, arrays: dict[str, np.ndarray], dtypes: dict[str, str]
) -> dict[str, Any]:
    """Write prepared arrays; return what the commit must know of them."""
    name = f"state-{number}.npz"
    with files.writing(os.path.join(folder, name), sync=True) as file:
        # As `np.savez` does, which cannot store an array called `file`.
        with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
            for key, array in arrays.items():
                with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        file.flush()
        crc = _checksum(file)
    files.sync_folder(folder)
    return {"file": name, "crc32": crc, "dtypes": dtypes}


def prepare(state: dict[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """NumPy arrays that a file can hold, and the types of those that are held as plain bits (bfloat16)."""
    arrays, dtypes = {}, {}
    for key, value in state.items():
        if not isinstance(key, str) or not key or "\0" in key or "\\" in key:
            raise InvalidTypeError(f"the state has an array called {key!r}: names must be plain strings.")
        try:
            array = np.asarray(value)
        except Exception as error:
            raise InvalidTypeError(f"`{key}` of the state cannot become a NumPy array: {error}") from error
        if array.dtype.hasobject or array.dtype.names is not None:
            raise InvalidTypeError(
                f"`{key}` of the state has the type {array.dtype}: only numbers can be stored."
            )
        if array.dtype.kind == "V":
            dtypes[key] = array.dtype.name
            array = array.view(f"u{array.dtype.itemsize}")
        arrays[key] = array
    return arrays, dtypes


def _checksum(file: BinaryIO) -> int:
    """Of the whole file, in blocks: the state of SAGA can be as large as the data."""
    file.seek(0)
    crc = 0
    while block := file.read(_BLOCK):
        crc = zlib.crc32(block, crc)
    file.seek(0, os.SEEK_END)
    return crc


def read_state(folder: str, entry: dict[str, Any], rescue: str) -> dict[str, np.ndarray]:
    """The arrays that the commit tells of."""
    name = entry.get("file")
    if not is_state_file(name):
        raise StoreError(
            f"the commit names a state file {name!r}, which scirocco cannot have written. {rescue}"
        )
    path = os.path.join(folder, str(name))
    try:
        with open(path, "rb") as file:
            if _checksum(file) != entry.get("crc32"):
                raise StoreError(f"{path} is damaged: its checksum is not the commit's. {rescue}")
            file.seek(0)
            return _read_arrays(file, entry.get("dtypes", {}))
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing. {rescue}") from error
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise StoreError(
            f"{path} does not hold plain arrays ({error}); it was not loaded. {rescue}"
        ) from error


def _read_arrays(file: BinaryIO, dtypes: dict[str, str]) -> dict[str, np.ndarray]:
    out = {}
    with zipfile.ZipFile(file) as archive:
        for member in archive.namelist():
            key = member.removesuffix(".npy")
            with archive.open(member) as stream:
                array = np.lib.format.read_array(stream, allow_pickle=False)
            out[key] = array.view(np.dtype(dtypes[key])) if key in dtypes else array
    return out
