"""Sections about topics: a browser, a map, prevalence, perplexity, how certain words are."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scirocco.models.lda.summary import Opened, Topic, summarise
from scirocco.report import curves, svg
from scirocco.report.markup import Html, join, number, paragraph, tag
from scirocco.report.page import Section
from scirocco.report.subjects import NUM_WORDS, Subject, shares_of
from scirocco.report.tables import sortable
from scirocco.report.topic_cards import INTERVAL, MOST_TOPICS, browser, width_of
from scirocco.report.topic_map import topic_map

_EXTREMES = 20


class Prevalence(NamedTuple):
    """How much of the documents is of each topic."""

    shares: np.ndarray | None
    leading: np.ndarray | None
    """Share of the documents in which a topic is the largest; None without documents."""
    words: str
    """What the shares are, or why there are none."""


def sections(subject: Subject, documents: Any) -> list[Section]:
    """Everything about topics."""
    model, run = subject.model, subject.run
    prevalence = _prevalence(subject, documents)
    opened = Opened(model, prevalence.shares, run.status, run.num_chains, run.num_draws)
    drawn = subject.top_words
    assert drawn is not None
    listed = summarise(opened, NUM_WORDS, INTERVAL, drawn)
    return [
        browser(listed, drawn.draws),
        Section("map", "Map of topics", topic_map(model, listed[:MOST_TOPICS])),
        _prevalences(listed, prevalence),
        _perplexity(subject),
        _certainty(listed),
    ]


def _prevalence(subject: Subject, documents: Any) -> Prevalence:
    if documents is not None:
        found = np.asarray(subject.model.transform(documents), np.float64)
        found = found[np.isfinite(found).all(axis=1)]
        leading = np.bincount(found.argmax(axis=1), minlength=found.shape[1]) / len(found)
        return Prevalence(found.mean(axis=0), leading, f"Mean shares over {len(found):,} documents.")
    shares = shares_of(subject)
    if shares is not None:
        return Prevalence(shares, None, "Shares of the tokens in the last state of the chains.")
    return Prevalence(
        None,
        None,
        "Not known: a fitted model does not keep its documents. Give them to the report (documents=...).",
    )


def _prevalences(listed: list[Topic], prevalence: Prevalence) -> Section:
    if prevalence.shares is None:
        return Section("prevalence", "Prevalence", paragraph(prevalence.words))
    largest = max(topic.share or 0.0 for topic in listed)
    columns = (
        ["topic", "share"] + ([] if prevalence.leading is None else ["largest topic in"]) + ["first words"]
    )
    rows = []
    for topic in listed:
        leading = (
            [] if prevalence.leading is None else [f"{prevalence.leading[topic.number]:.1%} of documents"]
        )
        first = ", ".join(word.word for word in topic.words[:4])
        rows.append([str(topic.number), f"{topic.share:.2%}", *leading, first])
    frame = svg.Frame((0.0, float(len(listed))), (0.0, largest * 1.05))
    heights = [topic.share or 0.0 for topic in listed]
    drawn = [
        svg.axes(frame, "topics, the largest first"),
        svg.bars(frame, np.arange(len(listed) + 1), heights, "c0"),
    ]
    chart = svg.figure(frame, drawn, "Share of each topic")
    table = sortable("shares", columns, rows, "Prevalence of topics", (0, len(columns) - 1))
    both = tag("div", tag("div", chart), table, class_="pair")
    return Section("prevalence", "Prevalence", join([paragraph(prevalence.words), both]))


def _perplexity(subject: Subject) -> Section:
    chart = curves.scores(subject.run)
    if chart is None:
        chart = paragraph("Not measured: give documents to fit(..., validation=...), and it is.")
    else:
        words = paragraph(
            "Of documents that were held out, given the latest draw of the first chain; lower is better."
        )
        chart = join([words, chart])
    return Section("perplexity", "Perplexity", chart)


def _certainty(listed: list[Topic]) -> Section:
    every = [(word, topic.number) for topic in listed for word in topic.words if word.weight > 0]
    every.sort(key=lambda pair: width_of(pair[0]))
    number_of = min(_EXTREMES, len(every) // 2)
    columns = ["word", "topic", "weight", "low", "high", "width / weight"]

    def table(name: str, label: str, chosen: list[Any]) -> Html:
        rows = [
            [word.word, str(topic), *(number(value, 3) for value in (*word[1:], width_of(word)))]
            for word, topic in chosen
        ]
        return join([tag("h3", label), sortable(name, columns, rows, label)])

    words = f"Among the words of the browser, by the width of the central {INTERVAL:.0%} interval over the weight."
    parts = [
        table("certain", "Most certain words", every[:number_of]),
        table("uncertain", "Most uncertain words", every[::-1][:number_of]),
    ]
    return Section("certainty", "Certain and uncertain words", join([paragraph(words), *parts]))
