"""Stored corpora for the topic-model comparison: 50,000 documents at most to learn from, 1,000 to be scored on.

Rows with 50 tokens or more, in random order. Every token of a held-out document is hidden with probability 0.1 and
predicted from the others. The data are looked for in $SCIROCCO_DATA, then in ../shared/data beside the repository.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from lda_corpus import Split

LEAST_TOKENS, NUM_DOCUMENTS, NUM_HELD_OUT, HIDDEN = 50, 50_000, 1_000, 0.1
FILES = {
    "wikipedia": "wikipedia/wikipedia_dictnostops.npz",
    "newsgroups20": "newsgroups20/newsgroups20_dictnostops.npz",
}
NUM_WORDS = 7_702


def find(folder: Path | None = None, name: str = "wikipedia") -> Path:
    """The file, or an end with one line that says where it should be."""
    root = Path(__file__).resolve().parent.parent
    named = [folder] if folder else [Path(p) for p in (os.environ.get("SCIROCCO_DATA"),) if p]
    places = [*named, root.parent / "shared" / "data"]
    for place in places:
        if (place / FILES[name]).is_file():
            return place / FILES[name]
    raise SystemExit(
        f"there is no {FILES[name]} in {' or '.join(map(str, places))}: set SCIROCCO_DATA to the folder with the data "
        "sets."
    )


def make(seed: int, folder: Path | None = None, num_documents: int = NUM_DOCUMENTS, name: str = "wikipedia") -> Split:
    """The split with this seed; no topics are known to be true."""
    saved = np.load(find(folder, name))
    indptr, words = saved["indptr"], saved["indices"].astype(np.int32)
    num_words = max(NUM_WORDS, int(words.max()) + 1)
    everything = sp.csr_array((saved["counts"].astype(np.int32), words, indptr), shape=(len(indptr) - 1, num_words))
    rng = np.random.default_rng([seed, 66])
    long = np.flatnonzero(np.asarray(everything.sum(axis=1)).ravel() >= LEAST_TOKENS)
    chosen = rng.permutation(long)[: num_documents + NUM_HELD_OUT]
    train, held = everything[chosen[NUM_HELD_OUT:]], everything[chosen[:NUM_HELD_OUT]]
    hidden, seen = held.copy(), held.copy()
    hidden.data = rng.binomial(held.data, HIDDEN).astype(np.int32)
    seen.data = held.data - hidden.data
    for part in (hidden, seen):
        part.eliminate_zeros()
    return Split(train, seen, hidden, np.empty((0, num_words), np.float32))
