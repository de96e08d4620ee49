"""Search for the files of a data set, and verification by checksums."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scirocco._extras import require
from scirocco.errors import InvalidTypeError, InvalidValueError, MissingDataError
from scirocco.store.files import writing

VARIABLE = "SCIROCCO_DATA"

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Original:
    """A file of the public source."""

    name: str
    address: str
    checksum: str
    """`sha256:...` or `md5:...`, as published."""


@dataclass(frozen=True)
class DownloadRecipe:
    """Recipe to make a data set from its originals."""

    originals: tuple[Original, ...]
    make: Callable[[list[Path]], Arrays]
    """Makes the arrays from the files, in the order of `originals`."""
    content: str
    """Expected `digest` of the result of `make`."""


Folder = str | os.PathLike[str] | None


@dataclass(frozen=True)
class File:
    """One file of a data set."""

    name: str
    sha256: str
    size: int
    """Bytes."""


@dataclass(frozen=True)
class Entry:
    """Metadata of a data set."""

    name: str
    """Also the name of its folder."""
    files: tuple[File, ...]
    origin: str
    """Origin of the data set."""
    preparation: str
    """Description of how the files are made from the original."""
    licence: str
    recipe: DownloadRecipe | None = None
    """Recipe to make it from its public source, if that can be downloaded."""

    def some(self, *names: str) -> Entry:
        """A copy with only these files."""
        return dataclasses.replace(self, files=tuple(file for file in self.files if file.name in names))

    def source(self, path: Path) -> str:
        """A sentence with the origin and licence."""
        return f"{self.name}: {self.origin}. Licence: {self.licence} Read from {path}."


@dataclass(frozen=True)
class Dataset:
    """Word counts for a topic model.

    Attributes
    ----------
    matrix
        scipy CSR, int32, documents × words.
    vocabulary
        The words in the order of the columns; None if not known.
    source
        Origin and licence.
    extras
        Arrays with one entry per row (such as labels), by name.
    """

    matrix: Any
    vocabulary: tuple[str, ...] | None
    source: str
    extras: dict[str, np.ndarray] = field(default_factory=dict)


def cache_folder() -> Path:
    """The user's cache: `$XDG_CACHE_HOME/scirocco/data`, by default `~/.cache/scirocco/data`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "scirocco" / "data"


def find(entry: Entry, folder: Folder = None) -> dict[str, Path]:
    """The checked files of a data set, by name."""
    places = _places(folder)
    out = {}
    for file in entry.files:
        path = next((p for p in _candidates(entry, file, places) if p.is_file()), None)
        if path is not None:
            check(path, file)
        elif entry.recipe is not None and folder is None:
            path = _made(entry, entry.recipe)
        else:
            raise MissingDataError(_missing(entry, places))
        out[file.name] = path
    return out


def _made(entry: Entry, recipe: DownloadRecipe) -> Path:
    """The file made on this machine from the public source; it is created on first use."""
    path = _made_path(entry)
    if not path.is_file():
        print(f"downloading {entry.name} from its public source. Licence: {entry.licence}", file=sys.stderr)
        path.parent.mkdir(parents=True, exist_ok=True)
        obtain(entry.name, recipe, path)
    return path


def _made_path(entry: Entry) -> Path:
    return cache_folder() / entry.name / f"{entry.name}-made.npz"


def state(entry: Entry, folder: Folder = None) -> str:
    """Whether its files are on this machine: "yes", "no", or "damaged" if the checksum of one is wrong."""
    places = _places(folder)
    if entry.recipe is not None and folder is None and _made_path(entry).is_file():
        return "yes"
    for file in entry.files:
        path = next((p for p in _candidates(entry, file, places) if p.is_file()), None)
        if path is None:
            return "no"
        try:
            check(path, file)
        except InvalidValueError:
            return "damaged"
    return "yes"


def _places(folder: Folder) -> list[Path]:
    """Folders to search; a given folder is the only one, so that a wrong path is not ignored."""
    if folder is not None:
        if not isinstance(folder, (str, os.PathLike)):
            raise InvalidTypeError(f"`folder` must be a path, got {type(folder).__name__}.")
        return [_existing(Path(folder).expanduser(), "`folder`")]
    named = os.environ.get(VARIABLE)
    first = [_existing(Path(named).expanduser(), f"the environment variable {VARIABLE}")] if named else []
    return [*first, cache_folder()]


def _existing(path: Path, what: str) -> Path:
    if not path.is_dir():
        state = "is not a folder" if path.exists() else "does not exist"
        raise InvalidValueError(f"{what} is {path}, which {state}.")
    return path


def _candidates(entry: Entry, file: File, places: list[Path]) -> list[Path]:
    """Possible paths: in a subfolder with the name of the data set, or in the folder itself."""
    return [path for place in places for path in (place / entry.name / file.name, place / file.name)]


def _missing(entry: Entry, places: list[Path]) -> str:
    listed = "\n".join(f"  {file.name} ({file.size:,} bytes, sha256 {file.sha256})" for file in entry.files)
    wheres = " or ".join(str(place / entry.name) for place in places)
    unknown = "" if entry.recipe is not None else ", and no download address is known"
    return (
        f"the data set `{entry.name}` was not found{unknown}. "
        f"Put these files into {wheres}, or pass their folder (folder=..., {VARIABLE}=..., or --data on the command "
        f"line):\n{listed}\n"
        f"They are made from: {entry.origin}. {entry.preparation} Licence: {entry.licence}"
    )


# -- checking ------------------------------------------------------------------------------------------------


def check(path: Path, file: File) -> None:
    """Compare a file with its sha256."""
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != file.sha256:
        raise InvalidValueError(
            f"{path} is damaged or another version: its sha256 is {found} ({path.stat().st_size:,} bytes), expected "
            f"{file.sha256} ({file.size:,} bytes). Replace the file."
        )


# -- downloads, and what is made of them: compared with a digest, so that it is exactly what the loaders expect --------


def digest(arrays: Arrays) -> str:
    """sha256 over names, types, shapes and bytes of some arrays."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def obtain(name: str, recipe: DownloadRecipe, path: Path) -> None:
    """Download the originals into the cache, make the arrays, and write them to `path` atomically."""
    arrays = recipe.make([download(name, original, path.parent) for original in recipe.originals])
    found = digest(arrays)
    if found != recipe.content:
        raise InvalidValueError(
            f"the arrays made from the originals of `{name}` have the wrong digest ({found}, expected "
            f"{recipe.content}): the public source has changed. Nothing was kept."
        )
    try:
        with writing(str(path), sync=False, many_writers=True) as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise InvalidValueError(f"`{name}` cannot be written to {path.parent}: {error}.") from error


def download(name: str, original: Original, folder: Path) -> Path:
    """Download one file and check it before renaming it; existing files are not downloaded again."""
    pooch = require("pooch", f"downloading the data set `{name}`")
    pooch.get_logger().setLevel("WARNING")
    try:
        found = pooch.retrieve(original.address, original.checksum, fname=original.name, path=folder)
    except ValueError as error:
        raise InvalidValueError(
            f"the file that {original.address} sent for {original.name} of `{name}` is damaged or another version: "
            f"its checksum should be {original.checksum}. Nothing was kept."
        ) from error
    except Exception as error:  # requests has its own exceptions; in any case there is no file
        raise MissingDataError(
            f"{original.name} of the data set `{name}` could not be downloaded from {original.address} ({error}). Put "
            f"it into {folder} yourself (checksum {original.checksum}), or pass a folder with the data set."
        ) from None  # the cause is in the message; its own traceback has 60 lines
    return Path(found)
