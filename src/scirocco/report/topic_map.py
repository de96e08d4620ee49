"""Topics in a plane: the nearer, the more alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco.models.lda.summary import Topic
from scirocco.report import svg
from scirocco.report.markup import Html, join, paragraph, tag

Array = np.ndarray[Any, np.dtype[Any]]

_MUCH = 300_000_000
_HEIGHT = 300


def topic_map(model: Any, listed: list[Topic]) -> Html:
    """A circle for each topic that leads to its card."""
    size, num_words = model.components_.shape
    if len(listed) < 3:
        return paragraph("A map needs three topics.")
    # Jensen–Shannon costs a logarithm for each word and pair of topics
    measure = "jensen_shannon" if size * size * num_words <= _MUCH else "hellinger"
    chosen = np.array([topic.number for topic in listed])
    distances = model.topic_distance(measure=measure)[np.ix_(chosen, chosen)]
    places, kept = embed(distances)
    name = {"jensen_shannon": "Jensen–Shannon", "hellinger": "Hellinger"}[measure]
    words = (
        f"{name} distances between topics, laid into the plane by classical scaling, which keeps {kept:.0%} of their "
        "squares: what is near here may still be apart. "
        + ("The area of a circle is the topic's share. " if listed[0].share is not None else "")
        + "A circle leads to the topic."
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
    reach = max(float(np.abs(places).max()), 1e-9) * 1.15
    frame = svg.Frame((-reach, reach), (-reach, reach), _HEIGHT, left=20, right=20, top=20, bottom=20)
    shares = np.array([topic.share if topic.share is not None else 1.0 for topic in listed])
    radii = np.maximum(2.5, 26.0 * np.sqrt(shares / shares.max()) / np.sqrt(1 + len(listed) / 12))
    across, down = frame.across(places[:, 0]), frame.down(places[:, 1])
    circles = []
    for place in np.argsort(-radii, kind="stable"):  # small ones on top
        topic = listed[place]
        said = f"Topic {topic.number}: " + ", ".join(word.word for word in topic.words[:4])
        x, y = f"{across[place]:.1f}", f"{down[place]:.1f}"
        mark = [tag("title", said), tag("circle", cx=x, cy=y, r=f"{radii[place]:.1f}")]
        if radii[place] > 6 or len(listed) <= 30:
            mark.append(tag("text", topic.number, x=x, y=f"{down[place] + 4:.1f}", text_anchor="middle"))
        circles.append(tag("a", *mark, href=f"#topic-{topic.number}", class_="bubble", aria_label=said))
    box = f"0 0 {svg.WIDTH} {_HEIGHT}"
    drawn = tag("svg", *circles, viewBox=box, role="group", aria_label="Map of topics")
    return tag("figure", drawn)
