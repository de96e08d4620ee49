"""Topics on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scirocco.cli._common import drawn_so_far, print_wrapped, say, width
from scirocco.cli._models import Opened, Shown
from scirocco.diagnostics.chains import largest_r_hat
from scirocco.errors import InvalidValueError

if TYPE_CHECKING:
    from scirocco.models import LDA
    from scirocco_latent.lda.describing import Topic, TopicComparison, Word

_BAR = 30  # characters of the picture of an interval


def shown_topics(
    opened: Opened, num_words: int, numbers: Sequence[int] | None = None, most: int | None = None
) -> Shown:
    """The topics of a run, the largest first: all of them, or those with these numbers; `most` of them for readers."""
    from scirocco_latent.lda.describing import summarise

    model = opened.model
    found = summarise(model, num_words, opened.interval)
    for number in numbers or ():
        if number not in range(len(found)):
            raise InvalidValueError(f"there is no topic {number} in {opened.path}: they are 0..{len(found) - 1}.")
    some = [each for each in found if numbers is None or each.number in numbers]
    values = {
        "num_topics": model.num_topics,
        "num_words": model.n_features_in_,
        "topics": [topic._asdict() | {"words": [word._asdict() for word in topic.words]} for topic in some],
    }

    def table() -> None:
        if numbers:
            print_details(some, opened.interval)
        else:
            print_overview(opened, some[:most])

    return Shown(opened.values() | values, table)


def print_overview(opened: Opened, topics: Sequence[Topic]) -> None:
    """Print one or more lines for each topic."""
    from scirocco._console import print_table

    with_share = any(topic.share is not None for topic in topics)
    with_rhat = any(topic.rhat is not None for topic in topics)
    columns = ["topic", *(["share"] if with_share else []), *(["R-hat"] if with_rhat else [])]
    names = [_name(topic) for topic in topics]
    left = sum(len(name) + 2 for name in columns) + 2 + max(max(map(len, names), default=0) - 5, 0)
    items = [[_item(word) for word in topic.words] for topic in topics]
    cells = [flow(row, width() - left) for row in items]
    rows = []
    for topic, name, words in zip(topics, names, cells, strict=True):
        row = [name]
        row += [f"{100 * topic.share:.1f} %" if topic.share is not None else ""] if with_share else []
        row += [_rhat(topic.rhat)] if with_rhat else []
        rows.append([" " + cell + " " for cell in row] + [words])
    total, interval = opened.model.num_topics, opened.interval
    some = f"{len(topics)} of {total} topics" if len(topics) < total else f"{total} topics"
    title = f"{some}, {drawn_so_far(opened.run.num_chains, opened.run.num_draws, opened.run.status)}"
    heading = f"word: weight in % ({100 * interval:g} % interval)"
    print_table(title, [*columns, heading], rows, right=tuple(range(len(columns))))
    limit = largest_r_hat(opened.run.num_draws, loose=True)
    apart = sum(topic.rhat is not None and topic.rhat > limit for topic in topics)
    if apart:
        advice = (
            f"R-hat is above {limit:.2g} in {apart} of these {len(topics)} topics: there the chains disagree, and "
            "the intervals cover the results of all of them. Longer chains (--epochs) or fewer topics may help."
        )
        print_wrapped(advice)


def _name(topic: Topic) -> str:
    return str(topic.number) if topic.name is None else f"{topic.number} {topic.name}"


def _item(word: Word) -> str:
    return f"{word.word} {_percent(word.weight)} ({_percent(word.low)}–{_percent(word.high)})"


def _percent(weight: float) -> str:
    return f"{100 * weight:.1f}" if weight >= 0.00995 else f"{100 * weight:.2f}"


def _rhat(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 100 else "> 100"


def flow(items: Sequence[str], most: int, comma: str = ",") -> str:
    """Fill lines with items without breaking an item over two lines."""
    lines = [""]
    for number, item in enumerate(items):
        text = item + (comma if number + 1 < len(items) else "")
        if lines[-1] and len(lines[-1]) + 1 + len(text) > most:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + text
    return "\n".join(lines)


def print_details(topics: Sequence[Topic], interval: float) -> None:
    """Print a table for each topic, with a line for each word."""
    from scirocco._console import print_table

    for topic in topics:
        most = max(word.high for word in topic.words)
        rows = [
            [
                f" {word.word} ",
                f" {_percent(word.weight)} ",
                f" {_percent(word.low)}–{_percent(word.high)} ",
                bar(word, most),
            ]
            for word in topic.words
        ]
        share = f", {100 * topic.share:.1f} % of the tokens" if topic.share is not None else ""
        rhat = f", R-hat {_rhat(topic.rhat)}" if topic.rhat is not None else ""
        columns = ["word", "weight %", f"{100 * interval:g} % interval", ""]
        print_table(f"topic {_name(topic)}{share}{rhat}", columns, rows, right=(1, 2))


def bar(word: Word, most: float) -> str:
    """The interval as a line, the mean as a dot."""
    low, mean, high = (round(value / most * (_BAR - 1)) for value in (word.low, word.weight, word.high))
    return "".join("●" if i == mean else "─" if low <= i <= high else " " for i in range(_BAR))


def print_comparison(found: TopicComparison, models: Sequence[LDA], paths: Sequence[Path], num_words: int) -> None:
    """Print the matched topics, nearest first, then the unmatched ones."""
    from scirocco._console import print_table

    first, second = (model.top_words(num_words) for model in models)
    numbers = ["first", "second", "distance"]
    half = (width() - sum(len(name) + 1 for name in numbers)) // 2 - 2
    rows = [
        [f" {a} ", f" {b} ", f" {distance:.2f} ", _column(first[a], half), _column(second[b], half)]
        for a, b, distance in found.pairs
    ]
    pairs = "1 pair" if len(rows) == 1 else f"{len(rows) or 'no'} pairs"
    title = f"{pairs} of topics, compared over {found.num_words:,} words"
    if rows:
        print_table(title, [*numbers, *(f" {path}" for path in paths)], rows, right=(0, 1, 2))
    else:
        say(title)
    for path, alone, words in zip(paths, (found.only_first, found.only_second), (first, second), strict=True):
        if alone:
            say(f"\nunmatched topics of {path}: {len(alone)}")
            for number in alone:
                say(f"  {number:>4}  {_list(words[number])}")
    if not found.only_first and not found.only_second:
        say("every topic is matched")


def comparison_as_json(
    found: TopicComparison, models: Sequence[LDA], paths: Sequence[Path], num_words: int
) -> dict[str, Any]:
    """The same as plain values."""
    first, second = (model.top_words(num_words) for model in models)
    return {
        "runs": [str(path) for path in paths],
        "num_words": found.num_words,
        "pairs": [
            pair._asdict() | {"words": [list(first[pair.first]), list(second[pair.second])]} for pair in found.pairs
        ],
        "only_first": list(found.only_first),
        "only_second": list(found.only_second),
    }


def _column(words: Sequence[object], most: int) -> str:
    """Words wrapped to a width, with a space on the left."""
    lines = flow([str(word) for word in words], most, "").split("\n")
    return "\n".join(f" {line}" for line in lines)


def _list(words: Sequence[object]) -> str:
    return " ".join(str(word) for word in words)
