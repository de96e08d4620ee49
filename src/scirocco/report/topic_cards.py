"""The topic browser: a card for each topic, with the intervals of its words and, opened, their traces."""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco.models.lda.summary import Topic, Word
from scirocco.report.charts import sparks
from scirocco.report.markup import Html, join, number, paragraph, tag
from scirocco.report.page import Section
from scirocco.report.tables import choice, interval_cell, search

INTERVAL, MOST_TOPICS = 0.9, 300
_AGREED = 1.1
_TRACED, _MOST_LINES = 6, 3_000
"""Words of a topic whose traces are drawn, and lines in all: each is about half a kilobyte."""


def browser(listed: list[Topic], draws: np.ndarray) -> Section:
    """All cards, with a box to search them and a choice of their order; draws are (chain, draw, topic, word)."""
    shown = listed[:MOST_TOPICS]
    chains = min(len(draws), 4)
    num_traced = max(1, min(_TRACED, _MOST_LINES // (chains * len(shown))))
    traced = min(len(shown), _MOST_LINES // (chains * num_traced))
    cards = [
        _card(topic, place, draws[:, :, topic.number, :num_traced] if place < traced else None)
        for place, topic in enumerate(shown)
    ]
    controls = tag(
        "div",
        search("topics", "Find a word", "cards"),
        choice("topics", _orders(shown[0])),
        class_="controls",
    )
    words = (
        f"The {len(shown[0].words)} most probable words of each topic. Bar: mean of the weight; dark line: central "
        f"{INTERVAL:.0%}, from {draws.shape[0] * draws.shape[1]:,} draws; each topic has an axis of its own, from 0."
    )
    if len(listed) > len(shown):
        words += f" The first {len(shown)} of {len(listed)} topics are shown."
    keys = (
        "A topic’s name opens the traces of its words. Keys: / goes to the search, arrows go from topic to topic, "
        "Enter opens one."
    )
    deck = tag("div", *cards, id="topics", class_="cards")
    parts = [paragraph(words), paragraph(_agreement(listed)), paragraph(keys, class_="note"), controls, deck]
    return Section("topic-browser", "Topics", join(parts))


def _orders(first: Topic) -> list[tuple[str, str]]:
    """What cards can be sorted by."""
    known = "given order" if first.share is None else "prevalence"
    orders = [("place up", known), ("number up", "number")]
    orders += [("doubt down", "least certain"), ("doubt up", "most certain")]
    return orders if first.rhat is None else [*orders, ("rhat down", "R-hat, worst first")]


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


def _card(topic: Topic, place: int, draws: Any) -> Html:
    largest = max((word.high for word in topic.words), default=1.0)
    said = [] if topic.share is None else [f"{topic.share:.1%} of the text"]
    said += [] if topic.rhat is None else [f"R-hat {number(topic.rhat, 3)}"]
    heads = [
        tag("th", text, scope="col", class_="num" if text == "weight" else None)
        for text in ("word", "weight", "interval")
    ]
    table = tag(
        "table",
        tag("thead", tag("tr", *heads)),
        tag("tbody", *(_row(word, largest) for word in topic.words)),
        aria_label=f"Words of topic {topic.number}",
    )
    title, more = f"Topic {topic.number}", Html()
    name: Any = title
    if draws is not None:
        place_of = f"topic-{topic.number}-more"
        traces = sparks(
            [word.word for word in topic.words], draws, f"Traces of the words of topic {topic.number}"
        )
        more = tag("div", tag("h4", "Traces, a colour for each chain"), traces, id=place_of, class_="more")
        name = tag(
            "button", title, type="button", class_="pick", aria_controls=place_of, aria_expanded="true"
        )
    return tag(
        "article",
        tag("h3", name),
        paragraph(", ".join(said), class_="note") if said else Html(),
        table,
        more,
        id=f"topic-{topic.number}",
        class_="card",
        tabindex="-1",
        aria_label=title,
        data_text=f"topic {topic.number} " + " ".join(word.word for word in topic.words),
        data_place=place,
        data_number=topic.number,
        data_doubt=f"{np.mean([width_of(word) for word in topic.words]):.4g}",
        data_rhat=None if topic.rhat is None else f"{topic.rhat:.4g}",
    )


def _row(word: Word, largest: float) -> Html:
    ends = f"{number(word.low, 3)} to {number(word.high, 3)}"
    return tag(
        "tr",
        tag("th", word.word, scope="row"),
        tag("td", number(word.weight, 3), class_="num", title=ends),
        interval_cell(word.weight, word.low, word.high, largest),
    )


def width_of(word: Any) -> float:
    """Of the interval, in units of the weight."""
    return float((word.high - word.low) / word.weight) if word.weight > 0 else 0.0
