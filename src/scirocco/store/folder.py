"""What a folder holds: nothing, a run, the beginnings of one, or something that is none of scirocco's business."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from typing import Any

from scirocco.errors import InvalidValueError, StoreError
from scirocco.store import files, layout, state_file
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
    if not state_file.is_state_file(entry.get("file")):
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
        if name == _COMMIT or name.endswith(files.TMP) or state_file.is_state_file(name):
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
            old_state = (
                folder == folders[1] and state_file.is_state_file(name) and name != commit.state["file"]
            )
            ours = name.endswith(files.TMP) and (name.startswith(("c.", "zarr.json")) or folder == folders[1])
            if old_state or ours:
                os.unlink(os.path.join(folder, name))
