"""Bags of words: English Wikipedia, ACL abstracts, 20 Newsgroups, Associated Press, KOS."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco.datasets.files import Dataset, Entry, File, Folder, find
from scirocco.errors import InvalidValueError

_KEYS = "The .npz holds the rows of a CSR matrix: indptr, indices (word ids from 0) and counts."
_DICTIONARY = "the vocabulary of onlineldavb (dictnostops.txt, 7,702 words, lower case)"
_CLEANING = "lower case, '-' to a space, everything outside [a-z ] dropped, split at spaces"
_WORDS = File("vocab_dictnostops.txt", "223b1da89d686d5db3ea7f47b71ab464c5af4a8a0825ed29fa3fbdb72e3ce23f", 58_692)

ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "wikipedia",
            (
                File(
                    "wikipedia_dictnostops.npz",
                    "62346daedca3d298deb3e59ebb683051d4d24455c8f0c51c7f7b11612af3c5cd",
                    21_917_940,
                ),
                _WORDS,
            ),
            "English Wikipedia of spring 2014, page ids 18,228,284 to 20,925,000, run through WikiExtractor",
            f"Counts in {_DICTIONARY}: {_CLEANING}; articles with 20 tokens or more, by page id. {_KEYS} page_id too.",
            "Text CC BY-SA 3.0 and GFDL by its contributors; only counts are kept.",
        ),
        Entry(
            "acl_abstracts",
            (
                File(
                    "acl_abstracts_dictnostops.npz",
                    "59e7cf38e4760c4f87952cb893010a6b6b5349f27a4e784473b23a13e7cfa28f",
                    3_752_647,
                ),
                _WORDS,
            ),
            "the ACL Anthology's data/xml (commit 70ba973)",
            f"Titles and abstracts from 2016 on, 100 characters and 10 tokens or more, in {_DICTIONARY}. {_KEYS}",
            "CC BY 4.0.",
        ),
        Entry(
            "newsgroups20",
            (
                File(
                    "newsgroups20_dictnostops.npz",
                    "da39760c4a16af1a9ea8fa8f120741edd097441caadb19a154d03c960a3444d0",
                    1_712_063,
                ),
                _WORDS,
                File(
                    "newsgroups20_top20k.npz",
                    "47b68134ddf54f51ac5738d46aae2ba755376fb0317cf005ae10c759f542c546",
                    2_532_082,
                ),
                File("vocab_top20k.txt", "5cbd5da5cf1d45ff5f89210eda37c7e05346aa1be17c90b9c4298a4d69617863", 158_157),
            ),
            "20 Newsgroups, the version sorted by date (11,314 training and 7,532 test documents)",
            f"Headers dropped, {_CLEANING}; the 20,000 commonest words of 8 documents or more, or {_DICTIONARY}. "
            + _KEYS,
            "Public Usenet posts; only counts are kept.",
        ),
        Entry(
            "ap",
            (
                File("ap.npz", "69cd6ab5eb95b2bf497c6a6afaa552b452c13ca76b09fb46809ff8286dff48ef", 555_026),
                File("vocab.txt", "fbf0d0f836cb2b0360bd3cae0f71c2f34b140b1dd8dd0d0bdb618a64704337f6", 85_532),
            ),
            "the example of lda-c (ap.dat and vocab.txt in ap.tgz)",
            f"The rows of ap.dat with their ids sorted. {_KEYS}",
            "lda-c is GPL-2+; the text is the Associated Press'. Only counts are kept; prefer others for publications.",
        ),
        Entry(
            "kos",
            (File("kos.npz", "b8c9a7a5a80a964220fb451dfd94c3006f6240ac36d55413a84d50d5d7fc1604", 558_371),),
            "docword.kos.txt of UCI's Bag of Words (Newman 2008)",
            f"The counts as they are, ids from 0. {_KEYS} n_vocab too.",
            "CC BY 4.0.",
        ),
    )
}


def wikipedia(folder: Folder = None, min_tokens: int = 50) -> Dataset:
    """142,885 articles of the English Wikipedia in the 7,702 words that the papers on SGRLD and SCIR use.

    Rows are in the order of page ids, and neighbours are related: shuffle them before using them in order.

    Parameters
    ----------
    folder
        Folder with the files, or with a subfolder `wikipedia` that has them. Default: see `scirocco.datasets`.
    min_tokens
        Articles with fewer tokens are left out; 20 or less keeps all, 50 keeps 90,218.

    Examples
    --------
    >>> from scirocco import datasets
    >>> data = datasets.wikipedia()                    # doctest: +SKIP
    >>> data.matrix.shape, data.vocabulary[:2]         # doctest: +SKIP
    ((90218, 7702), ('writings', 'yellow'))
    """
    return read_counts(ENTRIES["wikipedia"], folder, min_tokens, ("page_id",))


def acl_abstracts(folder: Folder = None, min_tokens: int = 0) -> Dataset:
    """58,656 titles and abstracts of computational linguistics, 2016-2026, in the words of `wikipedia`."""
    return read_counts(ENTRIES["acl_abstracts"], folder, min_tokens)


def newsgroups20(folder: Folder = None, min_tokens: int = 1, vocabulary: str = "top20k") -> Dataset:
    """20 Newsgroups, 18,846 documents; `vocabulary` is "top20k" (20,000 words) or "dictnostops" (as `wikipedia`).

    The extras of "dictnostops" have the test split (`test`), the group (`label`, 0..19) and the article number
    (`article`) of each document; rows are the same for both if `min_tokens` is 0.
    """
    _checks.choice(vocabulary, "vocabulary", ("top20k", "dictnostops"))
    files = (f"newsgroups20_{vocabulary}.npz", f"vocab_{vocabulary}.txt")
    extras = ("test", "label", "article") if vocabulary == "dictnostops" else ()
    return read_counts(ENTRIES["newsgroups20"].some(*files), folder, min_tokens, extras)


def ap(folder: Folder = None, min_tokens: int = 0) -> Dataset:
    """2,246 articles of the Associated Press, 10,473 words: the example of lda-c."""
    return read_counts(ENTRIES["ap"], folder, min_tokens)


def kos(folder: Folder = None, min_tokens: int = 0) -> Dataset:
    """3,430 blog entries, 6,906 words; the words themselves are not available."""
    return read_counts(ENTRIES["kos"], folder, min_tokens)


def read_counts(entry: Entry, folder: Folder, min_tokens: int, extras: tuple[str, ...] = ()) -> Dataset:
    """The counts (the one .npz) and the words (the .txt, if any) of an entry, without the short rows."""
    _checks.positive_int(min_tokens, "min_tokens", minimum=0)
    sparse = require("scipy.sparse", f"the data set `{entry.name}`")
    paths = find(entry, folder)
    counts = next(path for name, path in paths.items() if name.endswith(".npz"))
    text = next((path for name, path in paths.items() if name.endswith(".txt")), None)
    words = None if text is None else _read_words(text)
    with np.load(counts) as stored:
        size = int(stored["n_vocab"]) if words is None else len(words)
        shape = (len(stored["indptr"]) - 1, size)
        parts = (stored["counts"].astype(np.int32), stored["indices"].astype(np.int32), stored["indptr"])
        matrix = sparse.csr_matrix(parts, shape=shape)
        found = {name: stored[name] for name in extras}
    keep = np.asarray(matrix.sum(axis=1)).ravel() >= min_tokens
    if not keep.any():
        raise InvalidValueError(f"no document of `{entry.name}` has {min_tokens:,} tokens; use a smaller `min_tokens`.")
    if not keep.all():
        matrix, found = matrix[keep], {name: array[keep] for name, array in found.items()}
    return Dataset(matrix, words, entry.source(counts), found)


def _read_words(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text("utf-8").split())
