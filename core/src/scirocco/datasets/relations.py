"""Who chose what, and who knows whom: ratings of films, visits to the areas of a site, networks."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco.datasets.files import Arrays, DownloadRecipe, Entry, File, Folder, Original, find


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


MOVIELENS = Entry(
    "movielens100k",
    (File("movielens100k.npz", "a1aa96ccaa9eb1e19317d0ef0ed3bd5e99d75b5307227cae6f735c5a56648ba0", 717_298),),
    "MovieLens 100k of GroupLens (Harper and Konstan 2015): ml-100k",
    "The .npz holds u.data in its order (user, item: ids from 1; rating; timestamp), the number of the official test "
    "set that a rating is in (fold, 1 to 5, from u1.test to u5.test), membership of ua.test and ub.test, and titles, "
    "release dates and genres of u.item (item_title, item_release, item_genre, genre_names).",
    "for research; it may not be redistributed, nor used commercially, without permission of GroupLens.",
    DownloadRecipe(
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


GRAPHS = Entry(
    "graphs",
    (
        File("ca-GrQc.npz", "5abddb507b9a58a2f59ddcaadc6c295412eb23be0d7109ece9204c6d26b9549a", 51_744),
        File("ca-HepTh.npz", "1094f6d324cda5f0c1bd098480ed6ba90ed4451b1e38cc6c45691f891143d566", 99_150),
        File("ca-HepPh.npz", "bd902cbdea40b574c98517a9e6c59da7635b025123a55ebae4b2369f1b2b4881", 326_808),
        File("email-Eu-core.npz", "849770b0085cc7360645022fd8ce4123bdc07cde33e70645be17ad15ed0562e7", 53_117),
        File("netscience.npz", "285cba975706fc48f33a0a0d8f8ac6343b38db52b7d376f14c45c095f9e9b83e", 22_400),
    ),
    "SNAP: ca-GrQc, ca-HepTh, ca-HepPh (Leskovec, Kleinberg and Faloutsos 2007), email-Eu-core (Yin et al. 2017); "
    "netscience (Newman 2006)",
    "Each .npz holds edges (edges, 2) of nodes from 0 on: those of ca-* and netscience once, without loops, those of "
    "email-Eu-core from sender to receiver. Also department (email-Eu-core), name and weight (netscience), node_id.",
    "no formal licence; the authors ask to be cited.",
)
NAMES = tuple(file.name.removesuffix(".npz") for file in GRAPHS.files)


class Links(NamedTuple):
    """A network."""

    edges: np.ndarray
    """int64 (edges, 2): nodes from 0 on, without loops."""
    num_nodes: int
    """Number of nodes."""
    directed: bool
    """Whether edges go from the first node to the second."""
    labels: np.ndarray | None
    """Departments of the nodes (email-Eu-core), otherwise None."""
    names: tuple[str, ...] | None
    """Names of the nodes (netscience), otherwise None."""
    source: str
    """Origin and licence."""


def graphs(folder: Folder = None, which: str = "ca-GrQc") -> Links:
    """One of five networks of 1,005 to 12,008 nodes and 2,742 to 118,489 edges.

    Parameters
    ----------
    folder
        Folder with the files, or with a subfolder `graphs` that has them. Default: see `scirocco.datasets`.
    which
        "ca-GrQc", "ca-HepTh", "ca-HepPh" (coauthors), "email-Eu-core" (mails, with departments) or "netscience"
        (coauthors, with names).

    Examples
    --------
    >>> from scirocco import datasets
    >>> data = datasets.graphs(which="email-Eu-core")          # doctest: +SKIP
    >>> data.num_nodes, len(data.edges), data.directed         # doctest: +SKIP
    (1005, 24929, True)
    """
    _checks.choice(which, "which", NAMES)
    file = f"{which}.npz"
    path = find(GRAPHS.some(file), folder)[file]
    with np.load(path) as stored:
        edges = stored["edges"].astype(np.int64)
        labels = stored["department"] if "department" in stored else None
        names = tuple(map(str, stored["name"])) if "name" in stored else None
        counts = (len(each) for each in (labels, names) if each is not None)
        num_nodes = next(counts, int(edges.max()) + 1)
    apart = edges[edges[:, 0] != edges[:, 1]]
    return Links(apart, num_nodes, which == "email-Eu-core", labels, names, GRAPHS.source(path))
