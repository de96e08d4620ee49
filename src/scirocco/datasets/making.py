"""From the original files of three data sets to the arrays that loaders read."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np

from scirocco.datasets.originals import Arrays

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


def covertype(files: list[Path]) -> Arrays:
    """covtype.data.gz: 55 whole numbers a row."""
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


def mnist(files: list[Path]) -> Arrays:
    """Four files of bytes with a head of four or one dimensions (idx)."""
    names = ("x_train", "y_train", "x_test", "y_test")
    return {name: _idx(path) for name, path in zip(names, files, strict=True)}


def _idx(path: Path) -> np.ndarray:
    content = gzip.decompress(path.read_bytes())
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def movielens100k(files: list[Path]) -> Arrays:
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
