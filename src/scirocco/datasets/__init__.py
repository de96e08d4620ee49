"""Data sets of the papers, found on this machine and checked; none of them is in the package.

A data set is looked for in the folder that is given; without one in the folder that the environment variable
SCIROCCO_DATA names, and then in the user's cache (`$XDG_CACHE_HOME/scirocco/data`, by default
`~/.cache/scirocco/data`); in each in a folder of the data set's name, or in the place itself. What is found is compared
with its sha256, once for each state of the file.
"""

from scirocco.datasets.corpora import ENTRIES as _CORPORA
from scirocco.datasets.corpora import acl_abstracts, ap, kos, newsgroups20, wikipedia
from scirocco.datasets.covertype import ENTRY as _COVERTYPE
from scirocco.datasets.covertype import Covertype, covertype
from scirocco.datasets.files import Dataset, Entry, state
from scirocco.datasets.msweb import ENTRY as _MSWEB
from scirocco.datasets.msweb import Visits, msweb

__all__ = [
    "ENTRIES",
    "Covertype",
    "Dataset",
    "Visits",
    "acl_abstracts",
    "ap",
    "covertype",
    "kos",
    "msweb",
    "newsgroups20",
    "state",
    "wikipedia",
]

ENTRIES: dict[str, Entry] = {**_CORPORA, _MSWEB.name: _MSWEB, _COVERTYPE.name: _COVERTYPE}
"""What is known of each data set, by its name."""
