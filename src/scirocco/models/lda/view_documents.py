"""Documents in the report of topics: representative ones, and the shares of topics by group or date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scirocco.drawing.charts import forest
from scirocco.drawing.markup import Html, Section, join, paragraph, sortable, tag
from scirocco.errors import InvalidValueError
from scirocco.models.lda.describing import GroupShares, representative
from scirocco.models.lda.estimator import LDA
from scirocco.models.lda.summary import Topic
from scirocco.models.lda.texts import as_texts

_INTERVAL = 0.9
_MOST_CARDS, _SHOWN, _EXCERPT = 100, 3, 280
_GROUP_CARDS, _MOST_GROUPS, _MOST_ROWS = 12, 40, 2_000


class Read(NamedTuple):
    """Documents, read once for all sections."""

    shares: np.ndarray
    """Mean shares of the topics, (documents, topics)."""
    lengths: np.ndarray
    texts: list[str] | None
    groups: GroupShares | None


def read(model: LDA, documents: Any, groups: Any = None) -> Read:
    """Find the topics of documents, and their shares by group."""
    from scirocco.models.lda.collapsed_chain import document_lengths

    corpus = model._read(documents)
    shares = np.asarray(model.transform(corpus), np.float64)
    found = as_texts(documents) if isinstance(documents, Sequence | np.ndarray) else None
    by = None if groups is None else model.shares_by(corpus, _as_numbers(groups), interval=_INTERVAL)
    return Read(shares, document_lengths(corpus), None if found is None else list(found.read()), by)


def _as_numbers(groups: Any) -> np.ndarray:
    """Groups as numbers if all of them are, such as the years of a CSV file; so they are in order."""
    given = np.asarray(groups)
    if given.dtype.kind in "OUT":
        given = given.astype(str)
        try:
            numbers = given.astype(np.float64)
        except ValueError:
            return given
        return numbers.astype(np.int64) if np.all(numbers == np.floor(numbers)) else numbers
    return given


def sections(listed: list[Topic], found: Read, names: Sequence[str]) -> list[Section]:
    """The sections about documents; `names` are those of the first topics."""
    out = [_representatives(listed, found, names)]
    return out if found.groups is None else [*out, _by_group(listed, found.groups, names)]


def title_of(topic: Topic, names: Sequence[str]) -> str:
    """The name of a topic, or its number."""
    name = f" ({names[topic.number]})" if topic.number < len(names) else ""
    return f"Topic {topic.number}{name}"


def _representatives(listed: list[Topic], found: Read, names: Sequence[str]) -> Section:
    chosen = representative(found.shares, found.lengths, _SHOWN)
    cards = []
    for topic in listed[:_MOST_CARDS]:
        parts = [tag("h3", title_of(topic, names)), paragraph(_first_words(topic), class_="note")]
        parts += [
            paragraph(
                tag("strong", f"{share:.0%} "), f"of document {number}: ", _excerpt(found.texts, number)
            )
            for number, share in chosen[topic.number]
        ]
        cards.append(tag("article", *parts, class_="card"))
    words = (
        f"The {_SHOWN} documents with the largest shares of each topic, of {len(found.shares):,}; the first has the "
        "number 0."
    )
    if found.texts is None:
        words += " To see their words, pass the texts to the report (documents=...)."
    return Section(
        "documents", "Representative documents", join([paragraph(words), tag("div", *cards, class_="cards")])
    )


def _excerpt(texts: list[str] | None, number: int) -> str:
    if texts is None:
        return ""
    words = " ".join(texts[number].split())
    return words if len(words) <= _EXCERPT else f"{words[:_EXCERPT].rsplit(' ', 1)[0]} …"


def _first_words(topic: Topic) -> str:
    return ", ".join(word.word for word in topic.words[:6])


def _by_group(listed: list[Topic], found: GroupShares, names: Sequence[str]) -> Section:
    """The topics whose shares differ most between groups, and a table of all."""
    if len(found.groups) < 2:
        raise InvalidValueError("`groups` must have at least two different values.")
    largest = np.sort(np.argsort(-found.num_documents, kind="stable")[:_MOST_GROUPS])
    labels = [str(group) for group in found.groups[largest]]
    spread = np.ptp(found.mean[largest], axis=0)
    order = sorted(listed, key=lambda topic: -spread[topic.number])
    cards = []
    for topic in order[:_GROUP_CARDS]:
        k = topic.number
        ends = np.stack([found.low[largest, k], found.high[largest, k]], axis=1)
        label = f"Shares of topic {k} by group"
        chart = forest(labels, found.mean[largest, k], ends, ends, label, _first_words(topic))
        cards.append(tag("article", tag("h3", title_of(topic, names)), chart, class_="card"))
    words = (
        f"Mean share of a topic in the documents of each group, with central {_INTERVAL:.0%} intervals: the topics "
        "that differ most between groups, and all of them in the table."
    )
    if len(largest) < len(found.groups):
        words += f" The {len(largest)} largest of {len(found.groups):,} groups are shown."
    rows = [
        [
            labels[place],
            title_of(topic, names),
            f"{found.num_documents[group]:,}",
            *(f"{part[group, topic.number]:.2%}" for part in (found.mean, found.low, found.high)),
        ]
        for topic in order
        for place, group in enumerate(largest)
    ][:_MOST_ROWS]
    columns = ["group", "topic", "documents", "share", "low", "high"]
    table: Html = sortable("by-group", columns, rows, "Shares of topics by group", (0, 1))
    parts = [paragraph(words), tag("div", *cards, class_="cards"), tag("h3", "All topics"), table]
    return Section("groups", "Topics by group", join(parts))
