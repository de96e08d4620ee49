"""Data sets from their public sources: original files are downloaded, checked and converted for the loaders.

The result is compared with a digest of its arrays, so that it is exactly the data set that the loaders expect.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scirocco._extras import require
from scirocco.errors import InvalidValueError, MissingDataError
from scirocco.store.files import writing

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Original:
    """A file of the public source."""

    name: str
    address: str
    checksum: str
    """`sha256:...` or `md5:...`, as published."""


@dataclass(frozen=True)
class Recipe:
    """Recipe to make a data set from its originals."""

    originals: tuple[Original, ...]
    make: Callable[[list[Path]], Arrays]
    """Makes the arrays from the files, in the order of `originals`."""
    content: str
    """Expected `digest` of the result of `make`."""


def digest(arrays: Arrays) -> str:
    """sha256 over names, types, shapes and bytes of some arrays."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def obtain(name: str, recipe: Recipe, path: Path) -> None:
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


QUANTITATIVE = (
    "Elevation",
    "Aspect",
    "Slope",
    "Horizontal_Distance_To_Hydrology",
    "Vertical_Distance_To_Hydrology",
    "Horizontal_Distance_To_Roadways",
    "Hillshade_9am",
    "Hillshade_Noon",
    "Hillshade_3pm",
    "Horizontal_Distance_To_Fire_Points",
)
_AREAS, _SOILS = 4, 40


def make_covertype(files: list[Path]) -> Arrays:
    """covtype.data.gz: 55 integers per row."""
    with gzip.open(files[0], "rt", encoding="ascii") as stream:
        table = np.loadtxt(stream, delimiter=",", dtype=np.int16)
    first, second = len(QUANTITATIVE), len(QUANTITATIVE) + _AREAS
    return {
        "quantT": np.ascontiguousarray(table[:, :first].T),
        "quant_names": np.array(QUANTITATIVE),
        "wilderness": table[:, first:second].argmax(axis=1).astype(np.uint8),
        "soil": table[:, second : second + _SOILS].argmax(axis=1).astype(np.uint8),
        "cover_type": table[:, -1].astype(np.uint8),
    }


def make_mnist(files: list[Path]) -> Arrays:
    """Four files of bytes with idx headers."""
    names = ("x_train", "y_train", "x_test", "y_test")
    return {name: _idx(path) for name, path in zip(names, files, strict=True)}


def _idx(path: Path) -> np.ndarray:
    content = gzip.decompress(path.read_bytes())
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def make_movielens100k(files: list[Path]) -> Arrays:
    """ml-100k.zip: u.data, the official test sets, u.item, u.user and u.genre."""
    with zipfile.ZipFile(files[0]) as archive:

        def lines(name: str) -> list[str]:
            return archive.read(f"ml-100k/{name}").decode("latin-1").splitlines()

        def ratings(name: str) -> np.ndarray:
            return np.loadtxt(io.StringIO("\n".join(lines(name))), dtype=np.int64, ndmin=2)

        rated = ratings("u.data")
        place = {(u, i): number for number, (u, i) in enumerate(rated[:, :2].tolist())}
        marks = {name: np.zeros(len(rated), np.uint8) for name in ("fold", "ua_test", "ub_test")}
        for file, name, mark in [
            *((f"u{k}.test", "fold", k) for k in range(1, 6)),
            ("ua.test", "ua_test", 1),
            ("ub.test", "ub_test", 1),
        ]:
            marks[name][[place[u, i] for u, i in ratings(file)[:, :2].tolist()]] = mark
        items = [line.split("|") for line in lines("u.item") if line]
        users = [line.split("|") for line in lines("u.user") if line]
        genres = [line.split("|")[0] for line in lines("u.genre") if line]
    return {
        "user": rated[:, 0].astype(np.int16),
        "item": rated[:, 1].astype(np.int16),
        "rating": rated[:, 2].astype(np.uint8),
        "timestamp": rated[:, 3].astype(np.int32),
        "fold": marks["fold"],
        "ua_test": marks["ua_test"].astype(bool),
        "ub_test": marks["ub_test"].astype(bool),
        "item_title": np.array([row[1] for row in items]),
        "item_release": np.array([row[2] for row in items]),
        "item_genre": np.array([row[5:] for row in items]).astype(np.uint8),
        "genre_names": np.array(genres),
        "user_age": np.array([row[1] for row in users]).astype(np.uint8),
        "user_gender": np.array([row[2] for row in users]),
        "user_occupation": np.array([row[3] for row in users]),
        "user_zip": np.array([row[4] for row in users]),
    }
