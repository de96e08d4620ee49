"""Topics in a report: a browser, a map, prevalence, perplexity, certainty of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scirocco.diagnostics.chains import largest_r_hat
from scirocco.drawing import svg
from scirocco.drawing.charts import scores, sparks
from scirocco.drawing.markup import Html, Section, choice, interval_cell, join, number, paragraph, search, sortable, tag
from scirocco.errors import InvalidValueError
from scirocco.models._core.view import View, size_of
from scirocco.run import Run
from scirocco_latent.lda import view_documents
from scirocco_latent.lda.alignment import topic_distance
from scirocco_latent.lda.describing import Topic, Word, summarise
from scirocco_latent.lda.estimator import LDA
from scirocco_latent.lda.results import TopWords

Array = np.ndarray[Any, np.dtype[Any]]

_NUM_WORDS, _INTERVAL, _MOST_TOPICS = 12, 0.9, 300  # words of a topic, probability of intervals, most topics
_EXTREMES = 20  # words in the tables of certain and uncertain ones
_TRACED, _MOST_LINES = 6, 3_000
"""Number of words per topic with traces, and of lines in total: each takes about half a kilobyte."""
_MUCH = 300_000_000  # logarithms that take too long
_WIDTH, _HEIGHT, _MARGIN = 340, 300, 26
"""Of the map: the width of a phone, so that its words can be read there."""


def view(model: LDA, run: Run, documents: Any = None, groups: Any = None, **reading: Any) -> View:
    """Report of the topics; diagnostics use their shares and first words."""
    if groups is not None and documents is None:
        raise InvalidValueError("a report by `groups` requires `documents`, with one group for each of them.")
    drawn = model.top_draws(_NUM_WORDS)
    about = (
        "The diagnostics use the share of each topic in the tokens and the weights of its first words, after matching "
        "the topics of the chains."
    )
    return View(
        run,
        "LDA",
        f"{len(model.components_)} topics, {size_of(run, 'words', model.n_features_in_)}",
        model._judged(),
        about,
        sections=lambda seen: _sections(model, run, drawn, documents, groups, **reading),
        shows_scores=True,
    )


class Prevalence(NamedTuple):
    """Share of each topic in the documents."""

    shares: np.ndarray | None
    leading: np.ndarray | None
    """Fraction of the documents in which a topic is the largest; None without documents."""
    words: str
    """Description of the shares."""


def _sections(model: LDA, run: Run, drawn: TopWords, documents: Any, groups: Any, **reading: Any) -> list[Section]:
    found = None if documents is None else view_documents.read(model, documents, groups, **reading)
    prevalence = _prevalence(model, found)
    listed = summarise(model, _NUM_WORDS, _INTERVAL, drawn, prevalence.shares)
    names, level = model.topic_names_, model._level(_INTERVAL)
    return [
        _browser(listed, drawn.draws, level, names),
        Section("map", "Map of topics", _topic_map(model, listed[:_MOST_TOPICS])),
        _prevalences(listed, prevalence),
        *([] if found is None else view_documents.sections(listed, found, names)),
        _perplexity(run),
        _certainty(listed, level),
    ]


def _prevalence(model: LDA, found: view_documents.Read | None) -> Prevalence:
    if found is not None:
        each = found.shares
        leading = np.bincount(each.argmax(axis=1), minlength=each.shape[1]) / len(each)
        return Prevalence(each.mean(axis=0), leading, f"Mean shares over {len(each):,} documents.")
    if model.shares_ is None:
        return Prevalence(None, None, "Not available: pass documents to the report (documents=...).")
    return Prevalence(model.shares_, None, "Shares of the tokens, posterior means.")


def _prevalences(listed: list[Topic], prevalence: Prevalence) -> Section:
    if prevalence.shares is None:
        return Section("prevalence", "Prevalence", paragraph(prevalence.words))
    largest = max(topic.share or 0.0 for topic in listed)
    columns = ["topic", "share"] + ([] if prevalence.leading is None else ["largest topic in"]) + ["first words"]
    rows = []
    for topic in listed:
        leading = [] if prevalence.leading is None else [f"{prevalence.leading[topic.number]:.1%} of documents"]
        first = ", ".join(word.word for word in topic.words[:4])
        rows.append([str(topic.number), f"{topic.share:.2%}", *leading, first])
    frame = svg.ChartFrame((0.0, float(len(listed))), (0.0, largest * 1.05))
    heights = [topic.share or 0.0 for topic in listed]
    drawn = [svg.axes(frame, "topics, the largest first"), svg.bars(frame, np.arange(len(listed) + 1), heights, "c0")]
    chart = svg.figure(frame, drawn, "Share of each topic")
    table = sortable("shares", columns, rows, "Prevalence of topics", (0, len(columns) - 1))
    return Section("prevalence", "Prevalence", join([paragraph(prevalence.words), chart, table]))


def _perplexity(run: Run) -> Section:
    chart = scores(run.scores)
    if chart is None:
        chart = paragraph("Not measured: pass documents to fit(..., validation=...).")
    else:
        words = paragraph(
            "Perplexity of held-out documents, given the latest draw of the first chain; lower is better."
        )
        chart = join([words, chart])
    return Section("perplexity", "Perplexity", chart)


def _certainty(listed: list[Topic], level: float) -> Section:
    every = [(word, topic.number) for topic in listed for word in topic.words if word.weight > 0]
    every.sort(key=lambda pair: _width_of(pair[0]))
    number_of = min(_EXTREMES, len(every) // 2)
    columns = ["word", "topic", "weight", "low", "high", "width / weight"]

    def table(name: str, label: str, chosen: Sequence[tuple[Word, int]]) -> Html:
        rows = [
            [word.word, str(topic), *(number(value, 3) for value in (*word[1:], _width_of(word)))]
            for word, topic in chosen
        ]
        return join([tag("h3", label), sortable(name, columns, rows, label)])

    words = f"The words of the browser, by the width of the central {level:.0%} interval relative to the weight."
    parts = [
        table("certain", "Most certain words", every[:number_of]),
        table("uncertain", "Most uncertain words", every[::-1][:number_of]),
    ]
    return Section("certainty", "Certain and uncertain words", join([paragraph(words), *parts]))


# -- the browser: a card for each topic, with the intervals of its words and, opened, their traces ---------------------


def _browser(listed: list[Topic], draws: Array, level: float, names: Sequence[str]) -> Section:
    """All cards, with a search box and sort options; draws are (chain, draw, topic, word)."""
    shown = listed[:_MOST_TOPICS]
    chains = min(len(draws), 4)
    num_traced = max(1, min(_TRACED, _MOST_LINES // (chains * len(shown))))
    traced = min(len(shown), _MOST_LINES // (chains * num_traced))
    cards = [
        _card(
            topic,
            place,
            draws[:, :, topic.number, :num_traced] if place < traced else None,
            view_documents.title_of(topic, names),
        )
        for place, topic in enumerate(shown)
    ]
    controls = tag(
        "div", search("topics", "Find a word", "cards"), choice("topics", _orders(shown[0])), class_="controls"
    )
    words = (
        f"The {len(shown[0].words)} most probable words of each topic. Bar: mean of the weight; line: central "
        f"{level:.0%}, from {draws.shape[0] * draws.shape[1]:,} draws; each topic has its own axis, from 0."
    )
    if len(listed) > len(shown):
        words += f" The first {len(shown)} of {len(listed)} topics are shown."
    keys = (
        "Click the name of a topic to open the traces of its words. Keys: / focuses the search, arrows move "
        "between topics, Enter opens one."
    )
    deck = tag("div", *cards, id="topics", class_="cards")
    agreed = _agreement(listed, largest_r_hat(draws.shape[1], loose=True))
    parts = [paragraph(words), paragraph(agreed), paragraph(keys, class_="note"), controls, deck]
    return Section("topic-browser", "Topics", join(parts))


def _orders(first: Topic) -> list[tuple[str, str]]:
    """Sort options of the cards."""
    known = "given order" if first.share is None else "prevalence"
    orders = [("place up", known), ("number up", "number")]
    orders += [("doubt down", "least certain"), ("doubt up", "most certain")]
    return orders if first.rhat is None else [*orders, ("rhat down", "R-hat, worst first")]


def _agreement(listed: list[Topic], limit: float) -> str:
    """A sentence about whether the chains have found the same topics."""
    found = [topic.rhat for topic in listed if topic.rhat is not None]
    if not found:
        return "Agreement of the chains cannot be tested: it requires two chains with four draws each."
    apart = sum(value > limit for value in found)
    if not apart:
        return f"The chains have found the same topics: R-hat of every topic is below {limit:.2g}."
    return (
        f"R-hat is above {limit:.2g} for {apart} of {len(found)} topics: there the chains have found different topics, "
        "or have not run long enough, and the intervals are unreliable."
    )


def _card(topic: Topic, place: int, draws: Array | None, title: str) -> Html:
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
    more, name = Html(), title
    if draws is not None:
        place_of = f"topic-{topic.number}-more"
        traces = sparks([word.word for word in topic.words], draws, f"Traces of the words of topic {topic.number}")
        more = tag("div", tag("h4", "Traces, a colour for each chain"), traces, id=place_of, class_="more")
        name = tag("button", title, type="button", class_="pick", aria_controls=place_of, aria_expanded="true")
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
        data_text=f"{title.lower()} " + " ".join(word.word for word in topic.words),
        data_place=place,
        data_number=topic.number,
        data_doubt=f"{np.mean([_width_of(word) for word in topic.words]):.4g}",
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


def _width_of(word: Word) -> float:
    """Width of the interval, relative to the weight."""
    return float((word.high - word.low) / word.weight) if word.weight > 0 else 0.0


# -- the map: topics in a plane; similar topics are close to each other ----------------------------------------------


def _topic_map(model: LDA, listed: list[Topic]) -> Html:
    """A circle for each topic with a link to its card."""
    size, num_words = len(listed), model.components_.shape[1]
    if len(listed) < 3:
        return paragraph("A map requires at least three topics.")
    # Jensen–Shannon costs a logarithm for each word and pair of topics
    measure = "jensen_shannon" if size * size * num_words <= _MUCH else "hellinger"
    chosen = np.array([topic.number for topic in listed])
    kept_topics = model.components_[chosen]
    distances = topic_distance(kept_topics, kept_topics, measure)
    places, kept = embed(distances)
    name = {"jensen_shannon": "Jensen–Shannon", "hellinger": "Hellinger"}[measure]
    words = (
        f"{name} distances between topics, projected to the plane by classical scaling. It keeps {kept:.0%} of their "
        "squares: topics that are close here may still differ. "
        + ("The area of a circle is the topic's share. " if listed[0].share is not None else "")
        + "Click a circle to go to its topic; its first word is shown where there is space."
    )
    return tag("div", paragraph(words), _drawn(listed, places), class_="split")


def embed(distances: Array) -> tuple[Array, float]:
    """Classical multidimensional scaling: positions (n, 2), and the fraction of squared distances that they keep.

    -½ J D² J = V Λ Vᵀ with J = I - 11ᵀ/n; the positions are the first two columns of V √Λ.
    """
    squares = distances**2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-0.5 * centred)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    signs = np.where(vectors[np.argmax(np.abs(vectors), axis=0), np.arange(len(values))] < 0, -1.0, 1.0)
    places = (vectors * signs)[:, :2] * np.sqrt(values[:2])
    total = float(values.sum())
    return places, float(values[:2].sum()) / total if total > 0 else 1.0


def _drawn(listed: list[Topic], places: Array) -> Html:
    # one scale for both directions, because the map shows distances
    room = np.array([_WIDTH, _HEIGHT]) / 2 - _MARGIN
    scale = max(float((np.abs(places).max(axis=0) / room).max()), 1e-9)
    across, down = _WIDTH / 2 + places[:, 0] / scale, _HEIGHT / 2 - places[:, 1] / scale
    shares = np.array([topic.share if topic.share is not None else 1.0 for topic in listed])
    radii = np.maximum(2.5, 22.0 * np.sqrt(shares / shares.max()) / np.sqrt(1 + len(listed) / 12))
    labels = _labels(listed, across, down, radii)
    circles = []
    for place in np.argsort(-radii, kind="stable"):  # small ones on top
        topic = listed[place]
        said = f"Topic {topic.number}: " + ", ".join(word.word for word in topic.words[:4])
        x, y = f"{across[place]:.1f}", f"{down[place]:.1f}"
        mark = [tag("title", said), tag("circle", cx=x, cy=y, r=f"{radii[place]:.1f}")]
        if place in labels:
            below = f"{down[place] + radii[place] + 8:.1f}"
            mark.append(tag("text", labels[place], x=x, y=below, text_anchor="middle"))
        circles.append(tag("a", *mark, href=f"#topic-{topic.number}", class_="bubble", aria_label=said))
    box = f"0 0 {_WIDTH} {_HEIGHT}"
    drawn = tag("svg", *circles, viewBox=box, role="group", aria_label="Map of topics")
    return tag("figure", drawn, class_="map")


def _labels(listed: list[Topic], across: Array, down: Array, radii: Array) -> dict[int, str]:
    """The first word of as many topics as fit, the largest first."""
    taken: list[tuple[float, float, float, float]] = []
    labels: dict[int, str] = {}
    for place in np.argsort(-radii, kind="stable").tolist():
        word = listed[place].words[0].word
        half, y = 2.4 * len(word) + 2, float(down[place] + radii[place] + 8)
        x = float(across[place])
        box = (x - half, y - 7, x + half, y + 2)
        if box[0] < 0 or box[2] > _WIDTH or any(_overlap(box, other) for other in taken):
            continue
        taken.append(box)
        labels[place] = word
    return labels


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
