"""The synthetic corpus that topic models are compared on, its held-out split, and the one scorer for all sides.

    python benchmarks/lda_corpus.py --seed 1                        # check the reference perplexities
    python benchmarks/lda_corpus.py --seed 1 --save corpus.npz      # what the rivals read
    python benchmarks/lda_corpus.py --seed 1 --score a.npz b.npz    # score topics that were saved at time marks

Topics ω_k ~ Dir(s·b) with b a Zipf law over the words, documents η_d ~ Dir(α), Poisson lengths. Every tenth token
of a held-out document is hidden and predicted from the other nine tenths.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

NUM_DOCUMENTS, NUM_HELD_OUT, NUM_WORDS, NUM_TOPICS, MEAN_LENGTH = 20_000, 1_000, 8_000, 100, 160
ALPHA = 0.1
ZIPF_EXPONENT = 1.0
ZIPF_OFFSET = 9.5
CONCENTRATION = 80.0
"""s, the sum of the Dirichlet parameters of a topic: 0.01 a word on average, 1.1 for the first."""
TUNING_SEEDS, SCORED_SEEDS = (1, 2, 3), (101, 102, 103)
"""Nothing may be tuned on the corpora that are scored."""
FOLD_IN_SWEEPS, FOLD_IN_BURN_IN = 60, 20


class Split(NamedTuple):
    """Training documents, and two parts of the held-out ones, all CSR matrices of int32 counts; the truth."""

    train: sp.csr_array
    seen: sp.csr_array
    hidden: sp.csr_array
    topics: np.ndarray


def make(seed: int, num_documents: int = NUM_DOCUMENTS, num_held_out: int = NUM_HELD_OUT) -> Split:
    """The corpus with this seed."""
    rng = np.random.default_rng([seed, 6])
    topics = _topics(rng)
    document, word, position = _tokens(rng, topics, num_documents + num_held_out)
    training = document < num_documents
    hidden = ~training & (position % 10 == 9)
    seen = ~training & ~hidden
    return Split(
        _matrix(document[training], word[training], num_documents),
        _matrix(document[seen] - num_documents, word[seen], num_held_out),
        _matrix(document[hidden] - num_documents, word[hidden], num_held_out),
        topics.astype(np.float32),
    )


def _topics(rng: np.random.Generator) -> np.ndarray:
    base = (np.arange(NUM_WORDS) + 1.0 + ZIPF_OFFSET) ** -ZIPF_EXPONENT
    weights = rng.gamma(CONCENTRATION * base / base.sum(), size=(NUM_TOPICS, NUM_WORDS))
    return weights / weights.sum(axis=1, keepdims=True)


def _tokens(rng: np.random.Generator, topics: np.ndarray, num_documents: int) -> tuple[np.ndarray, ...]:
    """Document, word and place in the document of every token; the order within a document is random."""
    lengths = rng.poisson(MEAN_LENGTH, num_documents)
    shares = rng.gamma(ALPHA, size=(num_documents, NUM_TOPICS))
    shares /= shares.sum(axis=1, keepdims=True)
    counts = rng.multinomial(lengths, shares)
    documents, words = [], []
    for topic in range(NUM_TOPICS):
        documents.append(np.repeat(np.arange(num_documents), counts[:, topic]))
        cumulative = np.cumsum(topics[topic])
        drawn = np.searchsorted(cumulative, rng.random(len(documents[-1])) * cumulative[-1], side="right")
        words.append(np.minimum(drawn, NUM_WORDS - 1))
    document, word = np.concatenate(documents), np.concatenate(words)
    order = np.lexsort((rng.random(len(document)), document))
    document, word = document[order], word[order]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return document, word, np.arange(len(document)) - starts[document]


def _matrix(document: np.ndarray, word: np.ndarray, num_documents: int) -> sp.csr_array:
    ones = np.ones(len(document), np.int32)
    return sp.coo_array((ones, (document, word)), shape=(num_documents, NUM_WORDS)).tocsr()


# ------------------------------------------------------------------------------------------------- the scorer


def unigram(split: Split) -> float:
    """Perplexity of the hidden tokens under the training frequencies of words (one added to each)."""
    frequency = np.asarray(split.train.sum(axis=0)).ravel() + 1.0
    words = split.hidden.indices
    return float(np.exp(-np.average(np.log(frequency / frequency.sum())[words], weights=split.hidden.data)))


def score(
    topics: np.ndarray,
    split: Split,
    seed: int = 0,
    *,
    alpha: float = ALPHA,
    sweeps: int = FOLD_IN_SWEEPS,
    burn_in: int = FOLD_IN_BURN_IN,
) -> float:
    """Document-completion perplexity exp(−Σ log p / tokens) of the hidden tokens; p is averaged over draws.

    Parameters
    ----------
    topics
        (K, V) or (draws, K, V), weights >= 0 that need not be normalised.
    split
        The corpus.
    seed
        Of the folding in: collapsed Gibbs for the topics of the seen tokens with ω fixed, the same for every side.
    alpha
        Dirichlet parameter of the documents, the same for every side: the true one.
    sweeps, burn_in
        Gibbs sweeps, and how many of them are not averaged.
    """
    draws = np.asarray(topics)
    draws = draws[None] if draws.ndim == 2 else draws
    tokens = np.repeat(split.seen.indices, split.seen.data).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(split.seen.data)])[split.seen.indptr].astype(np.int64)
    document = np.repeat(np.arange(split.hidden.shape[0]), np.diff(split.hidden.indptr))
    p = np.zeros(len(document))
    for number, draw in enumerate(draws):
        weights = np.ascontiguousarray(draw.T, np.float64)
        weights /= weights.sum(axis=0)
        shares = _compiled()(ends, tokens, weights, alpha, sweeps, burn_in, 1_000_003 * seed + number)
        p += np.einsum("ik,ik->i", shares[document], weights[split.hidden.indices]) / len(draws)
    return float(np.exp(-np.average(np.log(np.maximum(p, 1e-300)), weights=split.hidden.data)))


@functools.cache
def _compiled() -> Callable[..., np.ndarray]:
    import numba  # when it is needed: machines with an accelerator may not have it

    return numba.njit(cache=True)(_fold_in)  # type: ignore[no-any-return]


def _fold_in(ends, tokens, weights, alpha, sweeps, burn_in, seed):  # type: ignore[no-untyped-def]
    """Posterior mean of η for each document, by plain O(K) collapsed Gibbs with the topics fixed."""
    np.random.seed(seed)  # noqa: NPY002  (the only generator whose state numba keeps)
    num_topics = weights.shape[1]
    num_documents = len(ends) - 1
    shares = np.zeros((num_documents, num_topics))
    cumulative = np.empty(num_topics)
    for d in range(num_documents):
        first, length = ends[d], ends[d + 1] - ends[d]
        counts = np.zeros(num_topics)
        z = np.full(length, -1)
        for sweep in range(sweeps + 1):  # the first one, from nothing, is the start
            for i in range(length):
                if z[i] >= 0:
                    counts[z[i]] -= 1.0
                total = 0.0
                for k in range(num_topics):
                    total += (alpha + counts[k]) * weights[tokens[first + i], k]
                    cumulative[k] = total
                if total > 0.0:
                    u = np.random.random()  # noqa: NPY002
                    k = np.searchsorted(cumulative, u * total, side="right")
                else:  # a word without weight in any topic says nothing
                    k = np.random.randint(num_topics)  # noqa: NPY002
                z[i] = min(k, num_topics - 1)
                counts[z[i]] += 1.0
            if sweep > burn_in:
                shares[d] += (counts + alpha) / (length + alpha * num_topics) / (sweeps - burn_in)
    return shares


# ------------------------------------------------------------------------------------------------- the command


def save_training(path: Path, split: Split) -> None:
    """The training documents for a rival: the three arrays of a CSR matrix."""
    train = split.train
    np.savez(path, indptr=train.indptr, indices=train.indices, counts=train.data, shape=train.shape)


def score_file(path: Path, split: Split) -> list[dict[str, float]]:
    """Perplexity at each time mark of a file that a script in `rivals/` wrote."""
    saved = np.load(path)
    marks, topics = saved["cpu_s"], saved["topics"]
    return [
        {"cpu_s": round(float(mark), 2), "perplexity": round(score(draw, split), 1)}
        for mark, draw in zip(marks, topics, strict=True)
    ]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=TUNING_SEEDS[0])
    parser.add_argument("--save", type=Path, help="write the training documents for the rivals' scripts")
    parser.add_argument("--score", type=Path, nargs="*", default=[], help="files written by rivals/lda_*.py")
    options = parser.parse_args()
    split = make(options.seed)
    if options.save:
        save_training(options.save, split)
    report = {
        "tokens": int(split.train.data.sum()),
        "hidden": int(split.hidden.data.sum()),
        "unigram": round(unigram(split), 1),
        "true topics": round(score(split.topics, split), 1),
    }
    print(json.dumps(report), flush=True)
    for path in options.score:
        print(json.dumps({"file": path.name, "marks": score_file(path, split)}), flush=True)


if __name__ == "__main__":
    main()
