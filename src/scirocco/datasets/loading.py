"""`sc.datasets.load`: any data set by its name."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from typing import Any

from scirocco.datasets import corpora
from scirocco.datasets.covertype import ENTRY as _COVERTYPE
from scirocco.datasets.covertype import covertype
from scirocco.datasets.files import Entry, Folder
from scirocco.datasets.mnist import ENTRY as _MNIST
from scirocco.datasets.mnist import mnist
from scirocco.datasets.movielens import ENTRY as _MOVIELENS
from scirocco.datasets.movielens import movielens100k
from scirocco.datasets.msweb import ENTRY as _MSWEB
from scirocco.datasets.msweb import msweb
from scirocco.errors import InvalidValueError

ENTRIES: dict[str, Entry] = {
    **corpora.ENTRIES,
    **{entry.name: entry for entry in (_MSWEB, _COVERTYPE, _MOVIELENS, _MNIST)},
}
"""What is known of each data set, by its name."""

_LOADERS: dict[str, Callable[..., Any]] = {
    **{name: getattr(corpora, name) for name in corpora.ENTRIES},
    "msweb": msweb,
    "covertype": covertype,
    "movielens100k": movielens100k,
    "mnist": mnist,
}
_told: set[str] = set()


def load(name: str, folder: Folder = None, **options: Any) -> Any:
    """A data set by its name; its licence is printed the first time.

    Parameters
    ----------
    name
        One of `sc.datasets.ENTRIES`: "covertype", "movielens100k", "mnist", "wikipedia", ...
    folder
        Where to look. Default: see `scirocco.datasets`; what is not found there is downloaded from its public source,
        where that is known.
    options
        Those of the data set's own function, e.g. `raw=True` for covertype.

    Examples
    --------
    >>> from scirocco import datasets
    >>> data = datasets.load("covertype")              # doctest: +SKIP
    >>> data.X.shape                                   # doctest: +SKIP
    (581012, 54)
    """
    if name not in _LOADERS:
        close = difflib.get_close_matches(str(name), _LOADERS, n=1, cutoff=0.4)
        hint = f" Did you mean `{close[0]}`?" if close else ""
        raise InvalidValueError(f"there is no data set `{name}`.{hint} There are {', '.join(_LOADERS)}.")
    found = _LOADERS[name](folder, **options)
    if name not in _told:
        _told.add(name)
        print(f"{name}: {ENTRIES[name].licence}", file=sys.stderr)
    return found
