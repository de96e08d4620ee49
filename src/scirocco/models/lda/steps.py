r"""Step sizes of chains without memory: as given, or SCIR's schedule carried over to the other samplers.

A step of SCIR renews the share 1 - e^{-h} of a topic, whatever the corpus. The others follow a force that grows with
it. Where θ_kw is about 1, as at the start, a word in the expanded mean is drawn back at the rate 1 + n/V, if n is the
number of tokens for each topic. SGRLD and SGLD renew about as much as SCIR with the first of these steps, SGRHMC and
SGHMC, whose ε²/2 is a time, with the second:

.. math:: ε = h / (1 + n/V), \qquad ε = \sqrt{2h / (1 + n/V)}

In the expanded natural parametrisation θ is the logarithm, and a batch moves it by as much as ε n_kw. A leap is worse
than a slow start (e^θ throws it back, beyond return), so the most frequent word of a topic decides, and with few counts
the prior: ε = 4h / (10 + max n_kw).

How many tokens there are, in all and of a topic's first word, is the mean over the batches so far: an adaptation that
dies out, and the same for a corpus, a stream and `partial_fit`.
"""

from __future__ import annotations

import math

import numpy as np

from scirocco.models.lda.topics import Arrays
from scirocco.samplers import schedules

DEFAULT = schedules.polynomial(1.0, 5.0, 0.4)
"""h, SCIR's own step."""
_LEAP = 4.0  # where h is 1; twice as much is too long for some corpora
_PRIOR = 10.0  # about the largest e^θ among thousands at the start


class Steps:
    """The step sizes of one chain.

    Parameters
    ----------
    sampler
        Its name.
    given
        A schedule in the sampler's own unit. None: by the corpus (for those of `langevin`).
    num_words, num_topics
        V and K.
    together
        Steps of the schedule that one batch drives. Given the counts, steps of the CIR process make one of their
        length, exactly: so it is made as one.
    """

    def __init__(
        self,
        sampler: str,
        given: schedules.Schedule | None,
        num_words: int,
        num_topics: int,
        together: int = 1,
    ):
        self.sampler, self.given, self.together = sampler, given, together
        self._size = num_words, num_topics
        self.seen = np.zeros(3)
        """Batches; sums over them of the tokens a document, and of the largest count n_kw a document."""

    def time(self, number: int, counts: np.ndarray, num_documents: int, total: int) -> float:
        """Of step `number`, given what a batch of so many documents has found, of a corpus of `total`."""
        if self.given is not None:
            first = number * self.together
            return sum(float(self.given(step)) for step in range(first, first + self.together))
        h = float(DEFAULT(number))
        self.seen += 1.0, counts.sum(dtype=np.float64) / num_documents, counts.max() / num_documents
        _, tokens, largest = self.seen * (total / self.seen[0])
        if self.sampler in ("sgld_natural", "sgld_cv"):
            return _LEAP * h / (_PRIOR + largest)
        num_words, num_topics = self._size
        step = h / (1.0 + tokens / (num_topics * num_words))
        return math.sqrt(2.0 * step) if self.sampler in ("sgrhmc", "sghmc") else step

    def state(self) -> Arrays:
        """What batches have shown, if it is used."""
        return {"seen": self.seen.copy()} if self.given is None else {}

    def restore_state(self, arrays: Arrays) -> None:
        """Go on from what `state` gave."""
        if self.given is None:
            self.seen = arrays["seen"].copy()
