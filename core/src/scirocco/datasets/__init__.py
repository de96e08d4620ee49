"""Data sets of the papers, found on this machine or downloaded, and checked; none is part of the package.

A data set is searched in the given folder; without one, in the folder of the environment variable SCIROCCO_DATA, and
then in the user's cache (`$XDG_CACHE_HOME/scirocco/data`, by default
`~/.cache/scirocco/data`); in each in a subfolder with the name of the data set, or in the folder itself. Files are
compared with their sha256. A missing data set with a public source (covertype,
movielens100k, mnist; requires the extra `data`) is downloaded from there into the cache, with checksums.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from scirocco._checks import did_you_mean
from scirocco.datasets import corpora
from scirocco.datasets.classification import COVERTYPE, MNIST, Covertype, Digits, covertype, mnist
from scirocco.datasets.corpora import acl_abstracts, ap, kos, newsgroups20, wikipedia
from scirocco.datasets.files import Dataset, Entry, Folder, state
from scirocco.datasets.relations import GRAPHS, MOVIELENS, MSWEB, Links, MovieLens, Visits, graphs, movielens100k, msweb
from scirocco.errors import InvalidValueError

__all__ = [
    "ENTRIES",
    "Covertype",
    "Dataset",
    "Digits",
    "Entry",
    "Links",
    "MovieLens",
    "Visits",
    "acl_abstracts",
    "ap",
    "covertype",
    "graphs",
    "kos",
    "load",
    "mnist",
    "movielens100k",
    "msweb",
    "newsgroups20",
    "state",
    "wikipedia",
]


def __dir__() -> list[str]:
    return __all__


ENTRIES: dict[str, Entry] = {
    **corpora.ENTRIES,
    **{entry.name: entry for entry in (MSWEB, COVERTYPE, MOVIELENS, MNIST, GRAPHS)},
}
"""Metadata of each data set, by name."""

_LOADERS: dict[str, Callable[..., Any]] = {
    **{f.__name__: f for f in (wikipedia, acl_abstracts, newsgroups20, ap, kos)},
    "msweb": msweb,
    "covertype": covertype,
    "movielens100k": movielens100k,
    "mnist": mnist,
    "graphs": graphs,
}
TOLD: set[str] = set()


def load(name: str, folder: Folder = None, **options: Any) -> Any:
    """Load a data set by name; its licence is printed the first time.

    Parameters
    ----------
    name
        One of `sc.datasets.ENTRIES`: "covertype", "movielens100k", "mnist", "wikipedia", ...
    folder
        Folder to search. Default: see `scirocco.datasets`; a missing data set is downloaded from its public source, if
        known.
    options
        Options of the function of the data set, e.g. `raw=True` for covertype.

    Examples
    --------
    >>> from scirocco import datasets
    >>> data = datasets.load("covertype")              # doctest: +SKIP
    >>> data.X.shape                                   # doctest: +SKIP
    (581012, 54)
    """
    if name not in _LOADERS:
        hint = did_you_mean(name, _LOADERS)
        raise InvalidValueError(f"there is no data set `{name}`.{hint} Available are {', '.join(_LOADERS)}.")
    found = _LOADERS[name](folder, **options)
    if name not in TOLD:
        TOLD.add(name)
        print(f"{name}: {ENTRIES[name].licence}", file=sys.stderr)
    return found
