"""Choices of users: ratings of films (MovieLens 100k) and visits to the areas of a site (Microsoft Web Data)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scirocco._extras import require
from scirocco.datasets.files import Entry, File, Folder, find
from scirocco.datasets.originals import Original, Recipe, make_movielens100k

MOVIELENS = Entry(
    "movielens100k",
    (File("movielens100k.npz", "a1aa96ccaa9eb1e19317d0ef0ed3bd5e99d75b5307227cae6f735c5a56648ba0", 717_298),),
    "MovieLens 100k of GroupLens (Harper and Konstan 2015): ml-100k",
    "The .npz holds u.data in its order (user, item: ids from 1; rating; timestamp), the number of the official test "
    "set that a rating is in (fold, 1 to 5, from u1.test to u5.test), membership of ua.test and ub.test, and titles, "
    "release dates and genres of u.item (item_title, item_release, item_genre, genre_names).",
    "for research; it may not be redistributed, nor used commercially, without permission of GroupLens.",
    Recipe(
        (
            Original(
                "ml-100k.zip",
                "https://files.grouplens.org/datasets/movielens/ml-100k.zip",
                "md5:0e33842e24a9c977be4e0107933c0723",
            ),
        ),
        make_movielens100k,
        "621f09711692e6869326affce1e7a4da68ce1708ac617582b4e11f4028446ad7",
    ),
)


class MovieLens(NamedTuple):
    """Ratings of films."""

    users: np.ndarray
    """int32, from 0 to 942."""
    items: np.ndarray
    """int32, from 0 to 1681."""
    ratings: np.ndarray
    """float32: 1 to 5 stars."""
    fold: np.ndarray
    """uint8, 1 to 5: the official test set that a rating is in; train on `fold != k`, test on `fold == k`."""
    timestamps: np.ndarray
    """int32, seconds since 1970."""
    titles: tuple[str, ...]
    """Titles of the items."""
    genres: np.ndarray
    """bool (1682, 19)."""
    genre_names: tuple[str, ...]
    """Names of the columns of `genres`."""
    source: str
    """Origin and licence."""

    @property
    def num_users(self) -> int:
        """943."""
        return int(self.users.max()) + 1

    @property
    def num_items(self) -> int:
        """1,682."""
        return len(self.titles)


def movielens100k(folder: Folder = None) -> MovieLens:
    """100,000 ratings, ids from 0 on, in the order of the original.

    Parameters
    ----------
    folder
        Folder with the file, or with a subfolder `movielens100k` that has it. Default: see `scirocco.datasets`.

    Returns
    -------
    MovieLens
        With `users`, `items`, `ratings`, `fold`, `timestamps`, `titles`, `genres`, `genre_names` and `source`.

    Examples
    --------
    >>> from scirocco import datasets
    >>> data = datasets.movielens100k()                # doctest: +SKIP
    >>> len(data.ratings), data.titles[0]              # doctest: +SKIP
    (100000, 'Toy Story (1995)')
    """
    path = find(MOVIELENS, folder)["movielens100k.npz"]
    with np.load(path) as stored:
        users, items = ((stored[name].astype(np.int32) - 1) for name in ("user", "item"))
        source = MOVIELENS.source(path)
        return MovieLens(
            users,
            items,
            stored["rating"].astype(np.float32),
            stored["fold"],
            stored["timestamp"],
            tuple(str(title) for title in stored["item_title"]),
            stored["item_genre"].astype(bool),
            tuple(str(name) for name in stored["genre_names"]),
            source,
        )


MSWEB = Entry(
    "msweb",
    (
        File("msweb.npz", "15678351d53f1724471dd2d3b7bf4854036d0a578ec5669830720950132c8efb", 206_497),
        File("areas.tsv", "1d03daf574bfa2e00d61c941c696102cc7f1853fcfb7a16857048f456b5819da", 10_448),
    ),
    "Anonymous Microsoft Web Data of UCI (Breese, Heckerman and Kadie 1998): anonymous-msweb.data and .test",
    "The .npz holds the visits as CSR matrices without values (train_indptr, train_indices, test_indptr, test_indices) "
    "and the original numbers of users and areas; areas.tsv has column, area_id, title and url.",
    "donated to UCI without a restriction in its description.",
)


@dataclass(frozen=True)
class Visits:
    """Users and the areas they visited.

    Attributes
    ----------
    train, test
        scipy CSR, int32, users × areas; 1 where a user visited an area.
    titles
        Titles of the areas, in the order of the columns; one occurs twice.
    source
        Origin and licence.
    extras
        The users' numbers in the original (`train_case_id`, `test_case_id`) and the areas' (`area_id`).
    """

    train: Any
    test: Any
    titles: tuple[str, ...]
    source: str
    extras: dict[str, np.ndarray]


def msweb(folder: Folder = None) -> Visits:
    """32,711 users for training and 5,000 for testing, 294 areas of www.microsoft.com, a week of February 1998.

    Nine areas have no visit by a training user; every user has at least one visit.

    Parameters
    ----------
    folder
        Folder with the files, or with a subfolder `msweb` that has them. Default: see `scirocco.datasets`.

    Examples
    --------
    >>> from scirocco import datasets
    >>> data = datasets.msweb()                        # doctest: +SKIP
    >>> data.train.shape, data.test.shape              # doctest: +SKIP
    ((32711, 294), (5000, 294))
    >>> data.titles[:2]                                # doctest: +SKIP
    ('regwiz', 'Support Desktop')
    """
    paths = find(MSWEB, folder)
    titles = _titles(paths["areas.tsv"])
    with np.load(paths["msweb.npz"]) as stored:
        train, test = (_matrix(stored, part, len(titles)) for part in ("train", "test"))
        extras = {name: stored[name] for name in ("train_case_id", "test_case_id", "area_id")}
    source = MSWEB.source(paths["msweb.npz"])
    return Visits(train, test, titles, source, extras)


def _matrix(stored: Any, part: str, num_areas: int) -> Any:
    """A matrix of ones, with the areas of each user in ascending order."""
    sparse = require("scipy.sparse", f"the data set `{MSWEB.name}`")
    indptr, indices = stored[f"{part}_indptr"], stored[f"{part}_indices"].astype(np.int32)
    shape = (len(indptr) - 1, num_areas)
    matrix = sparse.csr_matrix((np.ones(len(indices), np.int32), indices, indptr), shape=shape)
    matrix.sort_indices()
    return matrix


def _titles(path: Path) -> tuple[str, ...]:
    lines = path.read_text("utf-8").splitlines()
    place = lines[0].split("\t").index("title")
    return tuple(line.split("\t")[place] for line in lines[1:])
