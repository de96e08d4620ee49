"""Anonymous Microsoft Web Data: which areas of a site its users visited, split into training and test users."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scirocco._extras import require
from scirocco.datasets.files import Entry, File, Folder, find

ENTRY = Entry(
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
        Of the areas, in the order of the columns; one occurs twice.
    source
        Where it comes from, and its licence.
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

    Nine areas are visited by no training user; no user is without a visit.

    Parameters
    ----------
    folder
        With the files, or with a folder `msweb` that has them. Default: see `scirocco.datasets`.

    Examples
    --------
    >>> from scirocco import datasets
    >>> data = datasets.msweb()                        # doctest: +SKIP
    >>> data.train.shape, data.test.shape              # doctest: +SKIP
    ((32711, 294), (5000, 294))
    >>> data.titles[:2]                                # doctest: +SKIP
    ('regwiz', 'Support Desktop')
    """
    paths = find(ENTRY, folder)
    titles = _titles(paths["areas.tsv"])
    with np.load(paths["msweb.npz"]) as stored:
        train, test = (_matrix(stored, part, len(titles)) for part in ("train", "test"))
        extras = {name: stored[name] for name in ("train_case_id", "test_case_id", "area_id")}
    source = f"{ENTRY.name}: {ENTRY.origin}. Licence: {ENTRY.licence} Read from {paths['msweb.npz']}."
    return Visits(train, test, titles, source, extras)


def _matrix(stored: Any, part: str, num_areas: int) -> Any:
    """Of ones, with the areas of each user in ascending order."""
    sparse = require("scipy.sparse", f"the data set `{ENTRY.name}`")
    indptr, indices = stored[f"{part}_indptr"], stored[f"{part}_indices"].astype(np.int32)
    shape = (len(indptr) - 1, num_areas)
    matrix = sparse.csr_matrix((np.ones(len(indices), np.int32), indices, indptr), shape=shape)
    matrix.sort_indices()
    return matrix


def _titles(path: Path) -> tuple[str, ...]:
    lines = path.read_text("utf-8").splitlines()
    place = lines[0].split("\t").index("title")
    return tuple(line.split("\t")[place] for line in lines[1:])
