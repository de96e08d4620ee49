"""How many documents a chain begins with: it finds topics in a few, and takes them to the others."""

from __future__ import annotations

import itertools
from typing import Any

from scirocco import _checks
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.lda.supply import Growth

_TOKENS_A_TOPIC = 3200
_FACTOR = 3
_PASSES = (50, 12, 6)  # of the first, the second and later stages
_LAST_PASSES = 3  # over all documents, with topics to spare
_LEAST_SHARE = 2.5  # that the next stage must be larger, for the last one before all documents


def automatic(num_documents: int, num_tokens: int, num_topics: int) -> Growth:
    """Stages of 3,200 tokens a topic, then three times as many and so on, at last all documents.

    Passes over few documents are cheap, and it is there that the topics part. The numbers were chosen on corpora other
    than those that are reported.

    Examples
    --------
    >>> automatic(20_000, 3_200_000, 100)
    ((2000, 50), (6000, 12), (20000, 3))
    """
    length = max(num_tokens / max(num_documents, 1), 1e-9)
    size = max(int(_TOKENS_A_TOPIC * num_topics / length), num_topics)
    stages: list[tuple[int, int]] = []
    while size * _LEAST_SHARE <= num_documents:
        stages.append((size, _PASSES[min(len(stages), len(_PASSES) - 1)]))
        size *= _FACTOR
    return (*stages, (num_documents, _LAST_PASSES))


def steps(growth: Growth, batch_size: int) -> int:
    """Batches that they take; none has documents of two passes."""
    return sum(passes * -(-size // batch_size) for size, passes in growth)


def within(growth: Growth, most_steps: float, batch_size: int) -> Growth:
    """The same stages with fewer passes, so that they take no more than this; nothing where that leaves no pass."""
    share = min(1.0, most_steps / max(steps(growth, batch_size), 1))
    return tuple((size, int(passes * share)) for size, passes in growth if int(passes * share))


def checked(given: Any, num_documents: int) -> Growth:
    """Stages as a user gives them."""
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise InvalidTypeError(
            '`growth` must be "auto", None or pairs (documents, passes) such as [(1000, 60), (4000, 15)]; '
            f"got {given!r}."
        )
    out = []
    for pair in given:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InvalidTypeError(
                f"each stage of `growth` must be a pair (documents, passes), got {pair!r}."
            )
        size = _checks.positive_int(pair[0], "growth: documents")
        if size > num_documents:
            raise InvalidValueError(
                f"a stage of `growth` has {size:,} documents, but there are only {num_documents:,}."
            )
        out.append((size, _checks.positive_int(pair[1], "growth: passes")))
    if any(later[0] <= former[0] for former, later in itertools.pairwise(out)):
        raise InvalidValueError(f"the stages of `growth` must have ever more documents, got {out}.")
    return tuple(out)
