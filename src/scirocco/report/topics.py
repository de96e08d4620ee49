"""Sections about topics: a browser, a map, prevalence, perplexity, how certain words are."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scirocco.models.lda.summary import Opened, Topic, summarise
from scirocco.report import curves, svg
from scirocco.report.markup import Html, join, number, paragraph, tag
from scirocco.report.page import Section
from scirocco.report.subjects import Subject, shares_of
from scirocco.report.tables import choice, interval_cell, search, sortable
from scirocco.report.topic_map import topic_map

_INTERVAL, _NUM_WORDS, _MOST_TOPICS, _EXTREMES, _AGREED = 0.9, 12, 300, 20, 1.1


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
    listed = summarise(opened, _NUM_WORDS, _INTERVAL)
    return [
        _browser(listed, run.num_chains * run.num_draws),
        Section("map", "Map of topics", topic_map(model, listed[:_MOST_TOPICS])),
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


def _browser(listed: list[Topic], num_draws: int) -> Section:
    shown = listed[:_MOST_TOPICS]
    largest = max((word.high for topic in shown for word in topic.words[:1]), default=1.0)
    cards = [_card(topic, place, largest) for place, topic in enumerate(shown)]
    orders = [
        ("place up", "prevalence"),
        ("number up", "number"),
        ("doubt down", "least certain"),
        ("doubt up", "most certain"),
    ]
    if shown[0].share is None:
        orders[0] = ("place up", "given order")
    if shown[0].rhat is not None:
        orders.append(("rhat down", "R-hat, worst first"))
    controls = tag(
        "div", search("topics", "Find a word", "cards"), choice("topics", orders), class_="controls"
    )
    words = (
        f"The {len(shown[0].words)} most probable words of each topic. Mark: mean of the weight; line: central "
        f"{_INTERVAL:.0%}, from {num_draws:,} draws; all on one axis from 0 to {number(largest, 3)}."
    )
    if len(listed) > len(shown):
        words += f" The first {len(shown)} of {len(listed)} topics are shown."
    deck = tag("div", *cards, id="topics", class_="cards")
    parts = [paragraph(words), paragraph(_agreement(listed)), controls, deck]
    return Section("topic-browser", "Topics", join(parts))


def _agreement(listed: list[Topic]) -> str:
    """Whether chains have found the same topics, in words."""
    found = [topic.rhat for topic in listed if topic.rhat is not None]
    if not found:
        return "Whether chains agree could not be judged: that needs two chains, and four draws of each."
    apart = sum(value > _AGREED for value in found)
    if not apart:
        return f"The chains have found the same topics: R-hat of every topic is below {_AGREED}."
    return (
        f"R-hat is above {_AGREED} for {apart} of {len(found)} topics: there the chains have found different topics, "
        "or have not run long enough, and intervals are not to be trusted."
    )


def _card(topic: Topic, place: int, largest: float) -> Html:
    said = [] if topic.share is None else [f"{topic.share:.1%} of the text"]
    said += [] if topic.rhat is None else [f"R-hat {number(topic.rhat, 3)}"]
    rows = [
        tag(
            "tr",
            tag("th", word.word, scope="row"),
            tag(
                "td",
                number(word.weight, 3),
                class_="num",
                title=f"{number(word.low, 3)} to {number(word.high, 3)}",
            ),
            interval_cell(word.weight, word.low, word.high, largest),
        )
        for word in topic.words
    ]
    heads = [
        tag("th", text, scope="col", class_="num" if text == "weight" else None)
        for text in ("word", "weight", "interval")
    ]
    table = tag(
        "table",
        tag("thead", tag("tr", *heads)),
        tag("tbody", *rows),
        aria_label=f"Words of topic {topic.number}",
    )
    return tag(
        "article",
        tag("h3", f"Topic {topic.number}"),
        paragraph(", ".join(said), class_="note") if said else Html(),
        table,
        id=f"topic-{topic.number}",
        class_="card",
        tabindex="-1",
        data_text=f"topic {topic.number} " + " ".join(word.word for word in topic.words),
        data_place=place,
        data_number=topic.number,
        data_doubt=f"{np.mean([_width(word) for word in topic.words]):.4g}",
        data_rhat=None if topic.rhat is None else f"{topic.rhat:.4g}",
    )


def _width(word: Any) -> float:
    """Of the interval, in units of the weight."""
    return float((word.high - word.low) / word.weight) if word.weight > 0 else 0.0


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
    return Section("prevalence", "Prevalence", join([paragraph(prevalence.words), chart, table]))


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
    every.sort(key=lambda pair: _width(pair[0]))
    number_of = min(_EXTREMES, len(every) // 2)
    columns = ["word", "topic", "weight", "low", "high", "width / weight"]

    def table(name: str, label: str, chosen: list[Any]) -> Html:
        rows = [
            [word.word, str(topic), *(number(value, 3) for value in (*word[1:], _width(word)))]
            for word, topic in chosen
        ]
        return join([tag("h3", label), sortable(name, columns, rows, label)])

    words = f"Among the words of the browser, by the width of the central {_INTERVAL:.0%} interval over the weight."
    parts = [
        table("certain", "Most certain words", every[:number_of]),
        table("uncertain", "Most uncertain words", every[::-1][:number_of]),
    ]
    return Section("certainty", "Certain and uncertain words", join([paragraph(words), *parts]))
