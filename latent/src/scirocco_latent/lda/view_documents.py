"""Documents in reports of topics: representative ones, shares of topics by group or date, topics over time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scirocco.data.values import Frame
from scirocco.drawing.charts import forest
from scirocco.drawing.markup import Html, Section, join, paragraph, sortable, tag
from scirocco.errors import InvalidValueError
from scirocco.models._core.view import Seen, View, size_of
from scirocco.run.result import Run
from scirocco_latent.lda.describing import GroupShares, Topic, Word, representative
from scirocco_latent.lda.estimator import LDA
from scirocco_latent.lda.texts import as_numbers, as_texts, column_of

if TYPE_CHECKING:
    from scirocco_latent.lda.correlated import CorrelatedTopics
    from scirocco_latent.lda.dynamic import DynamicTopics

_INTERVAL = 0.9  # probability of intervals
_MOST_CARDS, _SHOWN, _EXCERPT = 100, 3, 280  # topics, documents of each, and characters of an excerpt
_GROUP_CARDS, _MOST_GROUPS, _MOST_ROWS = 12, 40, 2_000  # topics with a chart, groups in it, rows of a table


class Read(NamedTuple):
    """Documents, read once for all sections."""

    shares: np.ndarray
    """Mean shares of the topics, (documents, topics)."""
    lengths: np.ndarray
    texts: list[str] | None
    groups: GroupShares | None


def read(model: LDA, documents: Any, groups: Any = None, column: str | None = None, encoding: str = "utf-8") -> Read:
    """Find the topics of documents, and their shares by group."""
    from scirocco_latent.lda.collapsed_chain import document_lengths

    if isinstance(documents, (str, os.PathLike)):
        documents = Path(documents).expanduser()
    corpus = model._read(documents, column, encoding, may_be_empty=True)
    shares = np.asarray(model.transform(corpus), np.float64)
    has_texts = isinstance(documents, Path | Frame | Sequence | np.ndarray)
    found = as_texts(documents, column, encoding) if has_texts else None
    if isinstance(groups, str):
        groups = column_of(documents, groups, encoding)
    by = None if groups is None else model.shares_by(corpus, as_numbers(groups), interval=_INTERVAL)
    return Read(shares, document_lengths(corpus), None if found is None else list(found.read()), by)


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
            paragraph(tag("strong", f"{share:.0%} "), f"of document {number}: ", _excerpt(found.texts, number))
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


def over_time(model: DynamicTopics, run: Run) -> View:
    """The report of a dynamic model: shares of topics by time, and the words of each topic at each time."""
    level = model._level(_INTERVAL)
    about = (
        "Diagnosed and plotted: the mean shares of the topics in each time slice [time, topic], and τ (spread) and σ "
        "(drift) if they are learned."
    )

    def drawn(seen: Seen) -> list[Section]:
        listed = [
            Topic(k, None, None, tuple(Word(word, 0.0, 0.0, 0.0) for word in words.split(", ")))
            for k, words in enumerate(model.labels(6))
        ]
        return [_by_group(listed, model.shares(level), (), "time"), _words_over_time(model)]

    size = f"{len(model.times_)} time slices, {size_of(run, 'topics', model.num_topics)}"
    return View(run, "DynamicTopics", size, model._judged(), about, sections=drawn)


def of_correlations(model: CorrelatedTopics, run: Run) -> View:
    """The report of a correlated model: topics, and the pairs that are correlated most."""
    level = model._level(_INTERVAL)

    def drawn(seen: Seen) -> list[Section]:
        mean, low, high = model.correlations(level)
        names = [f"Topic {k}: {words}" for k, words in enumerate(model.labels(4))]
        pairs = sorted(zip(*np.triu_indices(len(mean), 1), strict=True), key=lambda pair: -abs(mean[pair]))
        rows = [
            [names[j], names[k], *(f"{part[j, k]:.2f}" for part in (mean, low, high))] for j, k in pairs[:_MOST_ROWS]
        ]
        listed = [[name, f"{share:.2%}"] for name, share in zip(names, model.shares_, strict=True)]
        columns = ["topic", "other topic", "correlation", "low", "high"]
        parts = [
            sortable("topics", ["topic", "share"], listed, "Topics", (0,)),
            paragraph(f"Correlations of centred log shares, with central {level:.0%} intervals."),
            sortable("pairs", columns, rows, "Correlations between topics", (0, 1)),
        ]
        return [Section("correlations", "Topics and their correlations", join(parts))]

    size = size_of(run, "topics", model.num_topics)
    about = "Diagnosed and plotted: shares of the topics and their correlations; topics are in one order in all chains."
    return View(run, "CorrelatedTopics", size, model._judged(), about, sections=drawn)


def _words_over_time(model: DynamicTopics) -> Section:
    rows = [
        [str(time), f"Topic {k}", ", ".join(map(str, words))]
        for time, topics in model.top_words(8).items()
        for k, words in enumerate(topics)
    ][:_MOST_ROWS]
    rows.sort(key=lambda row: int(row[1].split()[1]))
    table: Html = sortable("by-time", ["time", "topic", "words"], rows, "Words of topics by time", range(3))
    words = "The most probable words of each topic at each time. " + f"σ is {model.drift_:.3g}: the standard deviation "
    words += "of the change of a log weight from one slice to the next."
    return Section("time", "Words over time", join([paragraph(words), table]))


def _by_group(listed: list[Topic], found: GroupShares, names: Sequence[str], what: str = "group") -> Section:
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
        label = f"Shares of topic {k} by {what}"
        chart = forest(labels, found.mean[largest, k], ends, ends, label, _first_words(topic))
        cards.append(tag("article", tag("h3", title_of(topic, names)), chart, class_="card"))
    words = (
        f"Mean share of a topic in the documents of each {what}, with central {_INTERVAL:.0%} intervals: the topics "
        f"that differ most between {what}s, and all of them in the table."
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
    columns = [what, "topic", "documents", "share", "low", "high"]
    table: Html = sortable("by-group", columns, rows, f"Shares of topics by {what}", (0, 1))
    parts = [paragraph(words), tag("div", *cards, class_="cards"), tag("h3", "All topics"), table]
    return Section("groups", f"Topics by {what}", join(parts))
