"""Topics in a plane: the nearer, the more alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco.models.lda.alignment import topic_distance
from scirocco.models.lda.summary import Topic
from scirocco.report import svg
from scirocco.report.markup import Html, join, paragraph, shorten, tag

Array = np.ndarray[Any, np.dtype[Any]]

_MUCH = 300_000_000
_HEIGHT, _MARGIN = 300, 26


def topic_map(model: Any, listed: list[Topic]) -> Html:
    """A circle for each topic that leads to its card."""
    size, num_words = len(listed), model.components_.shape[1]
    if len(listed) < 3:
        return paragraph("A map needs three topics.")
    # Jensen–Shannon costs a logarithm for each word and pair of topics
    measure = "jensen_shannon" if size * size * num_words <= _MUCH else "hellinger"
    chosen = np.array([topic.number for topic in listed])
    kept_topics = model.components_[chosen]
    distances = topic_distance(kept_topics, kept_topics, measure)
    places, kept = embed(distances)
    name = {"jensen_shannon": "Jensen–Shannon", "hellinger": "Hellinger"}[measure]
    words = (
        f"{name} distances between topics, laid into the plane by classical scaling, which keeps {kept:.0%} of their "
        "squares: what is near here may still be apart. "
        + ("The area of a circle is the topic's share. " if listed[0].share is not None else "")
        + "A circle leads to the topic; where there is room its first word is written."
    )
    return join([paragraph(words), _drawn(listed, places)])


def embed(distances: Array) -> tuple[Array, float]:
    """Classical multidimensional scaling: places (n, 2), and the share of the squared distances that they keep.

    -½ J D² J = V Λ Vᵀ with J = I - 11ᵀ/n; the places are the first two columns of V √Λ.
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
    # one scale for both directions, as distances are what the map is about
    room = np.array([svg.WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN]) / 2
    scale = max(float((np.abs(places).max(axis=0) / room).max()), 1e-9)
    reach = (room * scale).tolist()
    frame = svg.Frame(
        (-reach[0], reach[0]), (-reach[1], reach[1]), _HEIGHT, _MARGIN, _MARGIN, _MARGIN, _MARGIN
    )
    shares = np.array([topic.share if topic.share is not None else 1.0 for topic in listed])
    radii = np.maximum(2.5, 22.0 * np.sqrt(shares / shares.max()) / np.sqrt(1 + len(listed) / 12))
    across, down = frame.across(places[:, 0]), frame.down(places[:, 1])
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
    box = f"0 0 {svg.WIDTH} {_HEIGHT}"
    drawn = tag("svg", *circles, viewBox=box, role="group", aria_label="Map of topics")
    return tag("figure", drawn, class_="map")


def _labels(listed: list[Topic], across: Array, down: Array, radii: Array) -> dict[int, str]:
    """The first word of as many topics as there is room for, the largest first."""
    taken: list[tuple[float, float, float, float]] = []
    labels: dict[int, str] = {}
    for place in np.argsort(-radii, kind="stable").tolist():
        word = shorten(listed[place].words[0].word, 14)
        half, y = 2.4 * len(word) + 2, float(down[place] + radii[place] + 8)
        x = float(across[place])
        box = (x - half, y - 7, x + half, y + 2)
        if box[0] < 0 or box[2] > svg.WIDTH or any(_overlap(box, other) for other in taken):
            continue
        taken.append(box)
        labels[place] = word
    return labels


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
