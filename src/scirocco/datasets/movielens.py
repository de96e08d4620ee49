"""MovieLens 100k: 100,000 ratings of 1,682 films by 943 users, with the official folds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scirocco.datasets import making
from scirocco.datasets.files import Entry, File, Folder, find
from scirocco.datasets.originals import Original, Recipe

ENTRY = Entry(
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
        making.movielens100k,
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
    """Of the items."""
    genres: np.ndarray
    """bool (1682, 19)."""
    genre_names: tuple[str, ...]
    """Of the columns of `genres`."""
    source: str
    """Where it comes from, and its licence."""

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
        With the file, or with a folder `movielens100k` that has it. Default: see `scirocco.datasets`.

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
    path = find(ENTRY, folder)["movielens100k.npz"]
    with np.load(path) as stored:
        users, items = ((stored[name].astype(np.int32) - 1) for name in ("user", "item"))
        source = f"{ENTRY.name}: {ENTRY.origin}. Licence: {ENTRY.licence} Read from {path}."
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
