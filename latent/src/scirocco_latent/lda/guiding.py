r"""Topics that are known in part: seed words, and labels of documents.

A seed word w of topic k has a larger Dirichlet parameter there, β + s with a whole number s: the same posterior as if
the topic had s more tokens of the word. So s is added to the counts n_wk with which a chain begins, and every step
remains exact. In a labelled document, only the topics of its labels and those of no label have α_k > 0. α
and β can be learned in either case (`hyper`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scirocco import _checks
from scirocco.data import fingerprints
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.lda import hyper
from scirocco_latent.lda.corpus import Corpus
from scirocco_latent.lda.streams import DocumentStream

Array = np.ndarray

SeedWords = Mapping[str, Sequence[str]]
Labels = Iterable[object] | str
_LEAST, _SHARE = 10, 0.01
"""Default prior count of a seed word: this share of the tokens of an average topic, and at least so many."""


class Guide(NamedTuple):
    """What is known about the topics of a fit."""

    names: tuple[str, ...]
    """Names of the first topics."""
    counts: Array
    """(n, 3): word, topic, and prior count of each seed word."""
    offsets: Array
    """Topics of document d are topics[offsets[d] : offsets[d + 1]]; empty without labels."""
    topics: Array

    @property
    def has_labels(self) -> bool:
        """Whether some documents have labels."""
        return len(self.offsets) > 0

    @property
    def allowed(self) -> tuple[Array, Array] | None:
        """Offsets of the documents and their topics, if some documents have labels."""
        return (self.offsets, self.topics) if self.has_labels else None

    def mask(self, documents: Array, shape: tuple[int, int]) -> Array:
        """Whether each of these documents has each topic, in an array that may be larger."""
        out = np.zeros(shape, bool)
        for row, d in enumerate(documents):
            out[row, self.topics[self.offsets[d] : self.offsets[d + 1]]] = True
        return out

    def tables(self, rng: np.random.Generator, table: Array, beta: float) -> int:
        """Number of tables that β opens in the counts (words, topics) of tokens and seed words, see `hyper`."""
        sizes, before = np.bincount(table.ravel()), np.bincount(self.counts[:, 2])
        sizes[: len(before)] -= before
        return int(hyper.tables_given(rng, sizes[None], np.array([beta]))[0])

    def totals(self, num_topics: int) -> Array:
        """Sum of the prior counts of each topic."""
        return np.bincount(self.counts[:, 1], self.counts[:, 2], num_topics).astype(np.int64)

    def add_to(self, table: Array, totals: Array) -> None:
        """Add the prior counts to counts (words, topics), and to their sums over words."""
        words, topics, counts = self.counts.T
        np.add.at(table, (words, topics), counts.astype(table.dtype))
        np.add.at(totals, topics, counts)

    def as_json(self) -> dict[str, Any]:
        """JSON representation for records."""
        labels = fingerprints.shortened(self.offsets.tobytes() + self.topics.tobytes())
        return {
            "names": list(self.names),
            "counts": self.counts.tolist(),
            "labels": labels if self.has_labels else None,
        }

    def changes(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of `LDA` that a guided fit changes; an error if they were given otherwise."""
        what = "labels" if self.has_labels else "seed words"
        able = ("auto", "gibbs") if self.has_labels else ("auto", "gibbs", "scir")
        if params["sampler"] not in able or params["memory"] == "none":
            raise InvalidValueError(
                f'{what} require memory of the documents and sampler="gibbs" (the default); got '
                f'sampler="{params["sampler"]}", memory="{params["memory"]}".'
            )
        if params["spare_topics"]:
            raise InvalidValueError(f"`spare_topics` cannot be combined with {what}: remove it.")
        return {"spare_topics": 0}

    @property
    def words(self) -> str:
        """A few words for the line that says what was chosen; empty if nothing was."""
        if not len(self.counts):
            return ""
        least, most = int(self.counts[:, 2].min()), int(self.counts[:, 2].max())
        return f"seed words count as {least:,}{'' if least == most else f' to {most:,}'} tokens each"


NOTHING = Guide((), np.zeros((0, 3), np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32))
"""No seed words and no labels."""


def guide(
    seed_words: SeedWords | None,
    seed_weight: int | None,
    labels: Labels | None,
    corpus: Corpus | DocumentStream,
    num_topics: int,
) -> Guide | None:
    """Check seed words and labels; None if there are none of them."""
    if seed_weight is not None:
        _checks.positive_int(seed_weight, "seed_weight")
    if seed_words is None and labels is None:
        return None
    if isinstance(corpus, DocumentStream):
        raise InvalidValueError("seed words and labels require documents that can be read again, not a stream.")
    seeds = _seeds(seed_words)
    given = None if labels is None else _labels(labels, corpus.num_documents)
    found = sorted({name for each in given or () for name in each} - set(seeds))
    names = (*seeds, *found)
    if len(names) > num_topics:
        raise InvalidValueError(
            f"{len(names)} names of topics (seed words and labels) require at least so many topics, got "
            f"num_topics={num_topics}. Topics without a name are free: pass num_topics={len(names) + 5}, say."
        )
    weight = seed_weight or max(_LEAST, round(_SHARE * corpus.num_tokens / num_topics))
    counts = _prior_counts(seeds, weight, corpus.vocabulary)
    if given is None:
        return Guide(names, counts, np.zeros(0, np.int64), np.zeros(0, np.int32))
    numbers = {name: k for k, name in enumerate(names)}
    labelled = {numbers[name] for each in given for name in each}
    free = [k for k in range(num_topics) if k not in labelled]
    topics = [sorted([*(numbers[name] for name in each), *free]) if each else list(range(num_topics)) for each in given]
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in topics])]).astype(np.int64)
    return Guide(names, counts, offsets, np.concatenate(topics).astype(np.int32))


def _seeds(given: object) -> dict[str, list[str]]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not given:
        raise InvalidTypeError(
            f'`seed_words` must be a dict of lists of words, such as {{"sport": ["game", "team"]}}; got {given!r}.'
        )
    found = {}
    for name, words in given.items():
        if isinstance(words, str) or not isinstance(words, Iterable):
            raise InvalidTypeError(f"`seed_words`: {name!r} must have a list of words, got {words!r}.")
        found[str(name)] = [str(word) for word in words]
        if not found[str(name)]:
            raise InvalidValueError(f"`seed_words`: {name!r} has no words.")
    return found


def _prior_counts(seeds: dict[str, list[str]], weight: int, vocabulary: tuple[str, ...] | None) -> Array:
    """(word, topic, count) of each seed word; an error if words are not in the vocabulary."""
    if seeds and vocabulary is None:
        raise InvalidValueError("`seed_words` require words with names: pass fit(..., vocabulary=words).")
    places = {word: place for place, word in enumerate(vocabulary or ())}
    rows, unknown = {}, []
    for topic, words in enumerate(seeds.values()):
        for word in dict.fromkeys(words):
            place = places.get(word, places.get(word.lower()))
            if place is None:
                near = difflib.get_close_matches(word, places, 1)
                unknown.append(f"{word!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
            else:
                rows[place, topic] = weight
    if unknown:
        raise InvalidValueError(
            f"`seed_words`: {', '.join(unknown[:5])} {'is' if len(unknown) == 1 else 'are'} not in the vocabulary of "
            f"{len(places):,} words. Rare words and stop words are left out of texts, see `tokeniser`."
        )
    return np.array([(*at, count) for at, count in rows.items()], np.int64).reshape(-1, 3)


def _labels(given: Labels, num_documents: int) -> list[set[str]]:
    """The labels of each document; an empty set if it has none."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidTypeError(
            f"`labels` must have an entry for each document: a label, a list of labels, or None; got {given!r}."
        )
    found = [_label_set(each) for each in given]
    if len(found) != num_documents:
        raise InvalidValueError(
            f"`labels` must have an entry for each of the {num_documents:,} documents, got {len(found):,}."
        )
    if not any(found):
        raise InvalidValueError("`labels`: no document has a label.")
    return found


def _label_set(each: Any) -> set[str]:
    if isinstance(each, list | tuple | set | frozenset | np.ndarray):
        return {str(label) for label in each}
    missing = each is None or each == "" or bool(each != each)  # NaN is not equal to itself
    return set() if missing else {str(each)}
