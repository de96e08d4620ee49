"""The header of a data folder, `scirocco-data.json`, and the folder that gets its name only when it is complete."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco.data.native.npy import ArrayFile
from scirocco.errors import DataChangedError, InvalidValueError

FILE_NAME = "scirocco-data.json"
STAMP_NAME = "scirocco-data.stamp"
"""The sizes and times of the files when they were last known to be intact, as a hash."""
FORMAT = "scirocco-data"
VERSION = 1  # of the format


@dataclasses.dataclass(frozen=True)
class ArrayEntry:
    """One array of the folder."""

    file: str
    dtype: str
    rows: int
    row_shape: tuple[int, ...]
    bytes: int
    crc32: str
    """The checksum of the rows, without the `.npy` header (which is compared as a whole when the folder is opened)."""
    columns: tuple[str, ...] = ()
    """The source's columns that were stacked into this matrix."""


@dataclasses.dataclass(frozen=True)
class Header:
    """The content of a data folder."""

    kind: str
    """`rows`: arrays with equal first axes; `corpus`: the three arrays of a sparse matrix."""
    num_rows: int
    shuffled: bool
    seed: int | None
    arrays: dict[str, ArrayEntry]
    single: bool = False
    """The data are one bare array, not a dict."""
    source: str = ""
    extra: dict[str, int] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        """The text of the header file; the same data give the same text."""
        content = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}
        return json.dumps(content, indent=1, ensure_ascii=False)

    @property
    def digest(self) -> str:
        """A hash of the header, hence (through the checksums) of the data."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def is_data_folder(path: Path) -> bool:
    """Whether there is a data folder, of any version and in any state."""
    try:
        content = json.loads((path / FILE_NAME).read_text("utf-8")) if (path / FILE_NAME).is_file() else None
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT


def read_header(path: Path) -> Header:
    """Read and check the header of a data folder."""
    if not path.exists():
        raise InvalidValueError(f"there is no folder {path}.")
    file = path / FILE_NAME
    if not file.is_file():
        raise InvalidValueError(
            f"{path} is not a scirocco data folder: it has no `{FILE_NAME}`. Make one from your data with "
            "`scirocco data convert SOURCE FOLDER` or `sc.data.convert(source, folder)`."
        )
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(file, str(error)) from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise damaged(file, f"its format is not {FORMAT!r}")
    version = content.pop("version", None)
    if version != VERSION:
        raise InvalidValueError(
            f"{path} was written in version {version!r} of the format; this scirocco reads version {VERSION}. Update "
            "scirocco, or convert the data again."
        )
    try:
        return _parse(content)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise damaged(file, f"{type(error).__name__}: {error}") from error


def _parse(content: dict[str, Any]) -> Header:
    arrays = {}
    for name, entry in content.pop("arrays").items():
        entry["row_shape"] = tuple(int(size) for size in entry["row_shape"])
        entry["columns"] = tuple(entry.get("columns", ()))
        arrays[name] = ArrayEntry(**entry)
        if not all(isinstance(value, int) for value in (arrays[name].rows, arrays[name].bytes)):
            raise TypeError(f"`rows` and `bytes` of {name!r} must be whole numbers")
        if not all(isinstance(column, str) for column in arrays[name].columns):
            raise TypeError(f"the names of columns of {name!r} must be strings")
        if Path(arrays[name].file).name != arrays[name].file:
            raise ValueError(f"{arrays[name].file!r} is not a plain file name")
        if np.dtype(arrays[name].dtype).kind not in "fiub":
            raise ValueError(f"{name!r} has dtype {arrays[name].dtype}")
    header = Header(arrays=arrays, **content)
    if not all(isinstance(value, int) for value in header.extra.values()):
        raise TypeError("`extra` holds more than whole numbers")
    if not arrays or header.num_rows < 1:
        raise ValueError("it lists no data")
    if header.kind == "rows" and any(entry.rows != header.num_rows for entry in arrays.values()):
        raise ValueError("its arrays have different numbers of rows")
    return header


def damaged(file: Path, problem: str) -> InvalidValueError:
    """The error for a header that cannot be used."""
    return InvalidValueError(
        f"`{file.name}` in {file.parent} cannot be used: {problem}. Convert the data again with overwrite=True."
    )


def open_arrays(path: Path, header: Header, map_limit: int) -> dict[str, ArrayFile]:
    """Open every array of the folder, and check it against the header."""
    files, left = {}, map_limit
    smallest_first = sorted(header.arrays.items(), key=lambda item: item[1].bytes)
    for name, entry in smallest_first:
        mapped = entry.bytes <= left
        left -= entry.bytes if mapped else 0
        try:
            dtype = np.dtype(entry.dtype)
            files[name] = ArrayFile(path / entry.file, dtype, entry.rows, entry.row_shape, mapped=mapped)
        except FileNotFoundError:
            raise InvalidValueError(
                f"`{entry.file}` is missing from the data folder {path}. Restore it, or convert the data again with "
                "overwrite=True."
            ) from None
    return {name: files[name] for name in header.arrays}


def stamp(files: dict[str, ArrayFile], digest: str) -> str:
    """A short hash of the header and of each file's current size and modification time: cheap, detects changes."""
    return _stamp([file.path for file in files.values()], digest)


def _stamp(paths: list[Path], digest: str, *, any_touch: bool = False) -> str:
    """With `any_touch` also the time that no program can set back; links and new permissions change it too."""
    stamp = [digest]
    for path in paths:
        try:
            status = os.stat(path)
        except OSError as error:
            raise DataChangedError(
                f"`{path.name}` has disappeared from {path.parent} ({error.strerror}). Restore it and resume."
            ) from error
        stamp.append(f"{status.st_size}:{status.st_mtime_ns}" + f":{status.st_ctime_ns}" * any_touch)
    return hashlib.sha256(" ".join(stamp).encode()).hexdigest()[:16]


VERIFIED: dict[Path, str] = {}
"""Stamps of folders that this process has verified but may not write to."""


def check_unchanged(files: dict[str, ArrayFile], header: Header) -> None:
    """Raise an error if a file is no longer the one that the header describes.

    Files are read only if their sizes or times are not those that were noted when the folder was written, or last
    verified; `verify_arrays` reads them in any case.
    """
    folder = next(iter(files.values())).path.parent
    now = _stamp([file.path for file in files.values()], header.digest, any_touch=True)
    with contextlib.suppress(OSError, ValueError):
        _checks.readable(folder / STAMP_NAME)
        VERIFIED[folder] = (folder / STAMP_NAME).read_text("ascii")
    if VERIFIED.get(folder) == now:
        return
    verify_arrays(files, header)
    VERIFIED[folder] = now
    draft = folder / f"{STAMP_NAME}.{os.getpid()}.tmp"
    with contextlib.suppress(OSError):
        draft.write_text(now, "ascii")
        os.replace(draft, folder / STAMP_NAME)


def verify_arrays(files: dict[str, ArrayFile], header: Header) -> None:
    """Read everything and compare the checksums."""
    for name, file in files.items():
        found, expected = file.checksum(), header.arrays[name].crc32
        if found != expected:
            raise InvalidValueError(
                f"`{file.path.name}` in {file.path.parent} was changed after writing (checksum {found}, expected "
                f"{expected}). Restore it, or convert the data again with overwrite=True."
            )


_MARK = "being-written-by-scirocco"


class PartialFolder:
    """`FOLDER.partial`, renamed to `FOLDER` at the end; the next attempt removes the files of an interrupted one."""

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool):
        self.target = _checks.path(path, "path")
        self.overwrite = overwrite
        if not self.target.name:
            raise InvalidValueError(f"`path` is {self.target}, the root of all folders. Choose another folder.")
        self.path = self.target.with_name(self.target.name + ".partial")
        self._check_target()
        if self.path.exists():
            ours = self.path.is_dir() and ((self.path / _MARK).exists() or not any(self.path.iterdir()))
            if not ours:
                raise InvalidValueError(
                    f"{self.path} exists and is not from an interrupted conversion. Move it, or choose another folder."
                )
            shutil.rmtree(self.path)
        _checks.make_folder(self.path, "path")
        (self.path / _MARK).touch()

    def _check_target(self) -> None:
        if not self.target.exists():
            return
        if not self.overwrite:
            raise InvalidValueError(
                f"{self.target} exists already. Pass overwrite=True to replace it, or choose another folder."
            )
        if not is_data_folder(self.target):
            raise InvalidValueError(
                f"{self.target} is not a scirocco data folder, so it is not deleted, even with overwrite=True. Choose "
                "another folder."
            )
        strangers = sorted(set(os.listdir(self.target)) - _own_files(self.target))
        if strangers:
            raise InvalidValueError(
                f"{self.target} also holds `{strangers[0]}`, which scirocco did not write, so it is not deleted. Move "
                "that file, or choose another folder."
            )

    def finish(self, header: Header) -> None:
        """Write the header, sync it to disk, and rename the folder."""
        with open(self.path / FILE_NAME, "w", encoding="utf-8") as file:
            file.write(header.to_json())
            file.flush()
            os.fsync(file.fileno())
        arrays = [self.path / entry.file for entry in header.arrays.values()]
        (self.path / STAMP_NAME).write_text(_stamp(arrays, header.digest, any_touch=True), "ascii")
        (self.path / _MARK).unlink()
        self._check_target()
        old = self.target.with_name(self.target.name + ".replaced")
        if self.target.exists():
            if is_data_folder(old):
                shutil.rmtree(old)
            os.rename(self.target, old)
        os.rename(self.path, self.target)
        if is_data_folder(old):
            shutil.rmtree(old)

    def abandon(self) -> None:
        """Remove everything that was written."""
        shutil.rmtree(self.path, ignore_errors=True)


def _own_files(path: Path) -> set[str]:
    try:
        arrays = read_header(path).arrays
    # a damaged header names no files: then every .npy file is treated as part of the folder
    except InvalidValueError:
        return {FILE_NAME, STAMP_NAME, *(file.name for file in path.glob("*.npy"))}
    return {FILE_NAME, STAMP_NAME, *(entry.file for entry in arrays.values())}
