"""Data sets of the papers, found on this machine or downloaded, and checked; none of them is in the package.

A data set is looked for in the folder that is given; without one in the folder that the environment variable
SCIROCCO_DATA names, and then in the user's cache (`$XDG_CACHE_HOME/scirocco/data`, by default
`~/.cache/scirocco/data`); in each in a folder of the data set's name, or in the place itself. What is found is compared
with its sha256, once for each state of the file. What is not found, and has a public source that can be downloaded
(covertype, movielens100k, mnist; needs the extra `data`), is fetched from there into the cache, with checksums.
"""

from scirocco.datasets.corpora import acl_abstracts, ap, kos, newsgroups20, wikipedia
from scirocco.datasets.covertype import Covertype, covertype
from scirocco.datasets.files import Dataset, Entry, state
from scirocco.datasets.loading import ENTRIES, load
from scirocco.datasets.mnist import Digits, mnist
from scirocco.datasets.movielens import MovieLens, movielens100k
from scirocco.datasets.msweb import Visits, msweb

__all__ = [
    "ENTRIES",
    "Covertype",
    "Dataset",
    "Digits",
    "Entry",
    "MovieLens",
    "Visits",
    "acl_abstracts",
    "ap",
    "covertype",
    "kos",
    "load",
    "mnist",
    "movielens100k",
    "msweb",
    "newsgroups20",
    "state",
    "wikipedia",
]
