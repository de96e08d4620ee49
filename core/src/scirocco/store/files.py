"""Files that are complete or absent: atomic writes, documents with a checksum, and the lock of the single writer.

Everything that the store writes to disk goes through this module, so that the order of writes is visible in one place
and tests can make it fail.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from scirocco import _checks
from scirocco._adjustable import Adjustable
from scirocco.errors import InvalidTypeError, StoreError

TMP = ".tmp"
_LOCK_TRIES, _LOCK_WAIT = 10, 0.02  # tries, and seconds between two of them
_LOCK_BYTE = 1 << 20  # Windows forbids reading a locked byte: this one is beyond the text


@dataclass
class StoreSizes(Adjustable):
    """How a store is cut into files, and how many of them wait to be written."""

    chunk_draws: int = 8_192
    """The most draws in a chunk of an array."""
    unsynced_files: int = 256
    """Files written since the last sync."""


STORING = StoreSizes()


@contextlib.contextmanager
def writing(path: str, *, sync: bool, many_writers: bool = False) -> Iterator[BinaryIO]:
    """A file that replaces `path` when the block succeeds, and is removed when it fails.

    A run's folder has one writer, whose temporary files are known by name; with `many_writers` every process writes
    under its own name, and the last one wins.
    """
    tmp = f"{path}.{os.getpid()}{TMP}" if many_writers else path + TMP
    with drafted(tmp, path), open(tmp, "w+b") as file:
        yield file
        file.flush()
        if sync:
            os.fsync(file.fileno())


@contextlib.contextmanager
def drafted(draft: str, path: str) -> Iterator[None]:
    """What is written to `draft` takes the place of `path` when the block ends well, and vanishes when it does not."""
    try:
        yield
        _replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def _replace(tmp: str, path: str) -> None:
    """`os.replace`, with retries on Windows, where it fails while a reader has the old file open."""
    for _ in range(_LOCK_TRIES if sys.platform == "win32" else 0):
        try:
            return os.replace(tmp, path)
        except PermissionError:
            time.sleep(_LOCK_WAIT)
    try:
        os.replace(tmp, path)
    except IsADirectoryError as error:
        raise StoreError(f"{path} is a folder, where the run has a file: delete it, and try again.") from error


def write_file(path: str, data: bytes | memoryview | list[memoryview | int], *, sync: bool) -> None:
    """Write bytes, a contiguous array or several of them as one complete file; a number stands for so many zeros."""
    with writing(path, sync=sync) as file:
        for part in data if isinstance(data, list) else [data]:
            if not isinstance(part, int):
                file.write(part)
            elif part:
                file.truncate(file.seek(part, os.SEEK_CUR))  # a hole, which takes no time and no space


def sync_file(path: str) -> None:
    """Return when the file's bytes are on the disk."""
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(path: str) -> None:
    """Return when the folder's entries (names, renames) are on the disk; Windows has no such call."""
    if sys.platform == "win32":
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: str) -> None:
    """Make a folder whose parent exists, if it is not there yet."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        sync_folder(os.path.dirname(path) or ".")


class Unsynced:
    """Files that have been written but need not be on disk before the next commit.

    By the time of the commit the system has written most of them, so that waiting then is cheaper
    than after each file. The list is bounded: a caller that never commits waits earlier.
    """

    def __init__(self) -> None:
        self.files: dict[str, None] = {}

    def write(self, path: str, data: bytes | memoryview | list[memoryview | int]) -> None:
        """Write a complete file now; a file that replaces another is on disk before it does so."""
        # A rename may reach the disk before the new bytes do; the old file may hold committed draws.
        write_file(path, data, sync=os.path.exists(path))
        self.files[path] = None
        if len(self.files) >= STORING.unsynced_files:
            self.settle()

    def settle(self) -> None:
        """Return when every file written so far is on the disk under its name."""
        for path in self.files:
            sync_file(path)
        for folder in dict.fromkeys(os.path.dirname(path) for path in self.files):
            sync_folder(folder)
        self.files.clear()


# ------------------------------------------------------------------------------------------------- documents


def plain_json(value: object, name: str) -> Any:
    """`value` after a round trip through JSON (tuples become lists, keys become strings)."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidTypeError(
            f"`{name}` must contain only numbers, strings, booleans, None, lists and dicts of these ({error}). "
            f"Convert arrays to lists, or store them as draws or state."
        ) from error


def _checksum(content: object) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def write_document(path: str, content: dict[str, Any]) -> None:
    """Write plain JSON with its checksum, a line for each entry; on return it is on the disk under its name."""
    lines = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
    text = f'{{"crc32": {_checksum(content)},\n "content": {{{lines}}}}}'
    write_file(path, text.encode(), sync=True)
    sync_folder(os.path.dirname(path))


def read_document(path: str, rescue: str) -> dict[str, Any]:
    """What `write_document` wrote; any other file raises an error that ends with the advice in `rescue`."""
    _checks.readable(path)
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read())
    except (ValueError, RecursionError, IsADirectoryError) as error:
        raise StoreError(f"{path} is damaged: it is not a JSON document ({error}). {rescue}") from error
    if not isinstance(document, dict) or not isinstance(document.get("content"), dict):
        raise StoreError(f"{path} is damaged: it is not a scirocco document. {rescue}")
    if document.get("crc32") != _checksum(document["content"]):
        raise StoreError(f"{path} is damaged: its checksum does not match its content. {rescue}")
    return document["content"]


# ------------------------------------------------------------------------------------------------------ lock


class Lock:
    """The right to write, held through an open file; the system releases it when the process ends in any way."""

    def __init__(self, path: str):
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._take(path)
        except BaseException:
            os.close(self._fd)
            raise
        with contextlib.suppress(OSError):  # the holder's name is only information
            os.ftruncate(self._fd, 0)
            os.write(self._fd, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())

    def _take(self, path: str) -> None:
        for attempt in range(_LOCK_TRIES):
            try:
                return _lock(self._fd, exclusive=True)
            except (BlockingIOError, PermissionError):
                if attempt + 1 < _LOCK_TRIES:
                    time.sleep(_LOCK_WAIT)  # a reader that checks whether the run is active holds it briefly
            except OSError as error:
                return _checks.warn(
                    f"{path} cannot be locked on this file system ({error}): make sure that only one process writes."
                )
        raise StoreError(
            f"another process is writing to this run ({_holder(path)}). Wait for it, or stop it; to see the draws so "
            f"far, open the run for reading."
        )

    def release(self) -> None:
        """Release the lock; the file stays, because removing it would let two processes hold two locks."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1


def is_locked(path: str) -> bool:
    """True while some process holds the lock."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        _lock(fd, exclusive=False)
    except (BlockingIOError, PermissionError):
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def _holder(path: str) -> str:
    try:
        with open(path, "rb") as file:
            holder = json.loads(file.read(1_000))
        return f"process {int(holder['pid'])} on {str(holder['host'])!r}"
    except (OSError, ValueError, KeyError, TypeError):
        return "its process number is not known"


if sys.platform == "win32":
    import msvcrt

    def _lock(fd: int, *, exclusive: bool) -> None:
        os.lseek(fd, _LOCK_BYTE, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        if not exclusive:
            os.lseek(fd, _LOCK_BYTE, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
        os.lseek(fd, 0, os.SEEK_SET)
else:
    import fcntl

    def _lock(fd: int, *, exclusive: bool) -> None:
        fcntl.flock(fd, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
