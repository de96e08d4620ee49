"""Some documents kept back, to be scored while the others are fitted."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np

from scirocco._checks import is_number
from scirocco.errors import InvalidValueError
from scirocco.models.lda.corpus import Corpus
from scirocco.models.lda.prediction import split
from scirocco.models.lda.streams import Rows

_PURPOSE = 0x4E1D
DEFAULT_SHARE = 0.01


class PartSource:
    """Some rows of a corpus, read where they are."""

    def __init__(self, source: Any, rows: np.ndarray):
        self._source, self._rows = source, rows
        self.num_rows, self.vocabulary_size = len(rows), source.vocabulary_size

    def take_csr(self, indices: Any) -> Rows:
        """Rows by their numbers within the part."""
        found: Rows = self._source.take_csr(self._rows[np.asarray(indices)])
        return found

    def fingerprint(self) -> str:
        """A short hash of the whole corpus and of which rows are in the part."""
        rows = np.ascontiguousarray(self._rows, np.int64).tobytes()
        return hashlib.sha256(self._source.fingerprint().encode() + rows).hexdigest()[:16]


def part(corpus: Corpus, rows: np.ndarray) -> Corpus:
    """The documents with these numbers; nothing is copied."""
    source: Any = PartSource(corpus.source, rows)
    tokens = empty = 0
    for begin in range(0, len(rows), 1 << 14):
        indptr, _, counts = source.take_csr(np.arange(begin, min(begin + (1 << 14), len(rows))))
        ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])[indptr]
        tokens, empty = tokens + int(ends[-1]), empty + int(np.sum(np.diff(ends) == 0))
    return replace(corpus, source=source, num_tokens=tokens, num_empty=empty, notes=())


def hold_out(corpus: Corpus, share: float | None, seed: int) -> tuple[Corpus, Corpus | None]:
    """The documents to fit, and those kept back: a random share, the same for the same seed.

    Parameters
    ----------
    corpus
        All documents.
    share
        From 0 (none) to below 1. None: one in a hundred, or none where that is too little to be scored.
    seed
        Of the choice.

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco.models.lda import as_corpus
    >>> corpus = as_corpus(np.full((200, 3), 10))
    >>> fitted, held = hold_out(corpus, 0.1, seed=0)
    >>> fitted.num_documents, held.num_documents
    (180, 20)
    """
    wanted = DEFAULT_SHARE if share is None else share
    if not is_number(wanted) or not 0 <= float(wanted) < 1:
        raise InvalidValueError(f"the share that is held out must be from 0 to below 1, got {wanted}.")
    count = round(float(wanted) * corpus.num_documents)
    if float(wanted) == 0 or (share is None and count < 2):
        return corpus, None
    if not 0 < count < corpus.num_documents:
        raise InvalidValueError(
            f"{wanted:g} of {corpus.num_documents:,} documents are {count}: some must be held out, and some be left. "
            "Give another share, or 0 to hold out none."
        )
    order = np.random.default_rng([seed, _PURPOSE]).permutation(corpus.num_documents)
    held, fitted = part(corpus, np.sort(order[:count])), part(corpus, np.sort(order[count:]))
    _, hidden = split(held.take_csr(np.arange(count)))
    if hidden[2].sum() > 0 and fitted.num_tokens > 0:
        return fitted, held
    if share is None:
        return corpus, None
    raise InvalidValueError(
        f"the {count} documents held out have fewer than 10 words each, so none can be hidden and scored. Hold out "
        "more, or 0 for none."
    )
