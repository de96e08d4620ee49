"""Topic models on an accelerator: perplexity of held-out documents against seconds, and token-samples per second.

    python benchmarks/accelerator_topics.py                        # synthetic corpora, seeds 101 to 103
    python benchmarks/accelerator_topics.py --wikipedia            # needs the data set, see lda_wikipedia.py
    python benchmarks/accelerator_topics.py --seeds 1 --seconds 1 --samplers gibbs scir scir_cv
    python benchmarks/accelerator_topics.py --device cpu --seconds 60    # the library's compiled kernels

The time is that of `LDA.fit(max_seconds=...)`, wall, by a clock around the call; programs are compiled before by a
short fit of the same corpus. The scorer is that of `lda_corpus.py`, by arrays: topics of the seen tokens by collapsed
Gibbs with ω fixed. "matrix" scores the posterior mean of the topics, "averaged" averages predictions over ten draws.
Constants for comparison (benchmarks/README.md, one CPU thread, 60 s; not measured in this run): tomotopy 823, 798, 829
and collapsed Gibbs of this library 815, 795, 825 for seeds 101, 102, 103; 1,218 after 40 s on Wikipedia, split 0.
"""

from __future__ import annotations

import argparse
import functools
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import lda_corpus
import lda_wikipedia
import numpy as np

import scirocco as sc

REFERENCES = {101: (823, 815), 102: (798, 795), 103: (829, 825)}
OPTIONS: dict[str, dict[str, Any]] = {
    "gibbs": {"sampler": "gibbs"},
    "scir": {"sampler": "scir", "memory": "none", "batch_size": 2_000},
    "scir_cv": {"sampler": "scir_cv", "batch_size": 2_000, "refresh_size": 5_000},
}


class Scorer:
    """`lda_corpus.score` for all documents at once, a scan over the places of their tokens."""

    def __init__(self, split: lda_corpus.Split, longest: int = 1_000):
        seen, hidden = split.seen, split.hidden
        size = seen.shape[0]
        lengths = np.asarray(seen.sum(axis=1)).ravel()
        document = np.repeat(np.repeat(np.arange(size), np.diff(seen.indptr)), seen.data)
        words = np.repeat(seen.indices, seen.data)
        order = np.random.default_rng(0).permutation(len(words))  # of long documents random tokens are used
        document, words = document[order], words[order]
        order = np.argsort(document, kind="stable")
        document, words = document[order], words[order]
        place = np.arange(len(words)) - np.concatenate([[0], np.cumsum(lengths)])[document]
        kept = place < longest
        self.words = np.full((min(int(lengths.max()), longest), size), -1, np.int32)
        self.words[place[kept], document[kept]] = words[kept]
        self.document = np.repeat(np.arange(size), np.diff(hidden.indptr))
        self.hidden, self.count = hidden.indices, hidden.data

    def chances(self, topics: np.ndarray, seed: int = 0) -> np.ndarray:
        """Probability of each hidden word."""
        found = _chances(jax.random.key(seed), topics, self.words, self.document, self.hidden, lda_corpus.ALPHA)
        return np.asarray(found)

    def perplexity(self, *draws: np.ndarray) -> float:
        """With probabilities averaged over the draws."""
        chance = np.mean([self.chances(draw, number) for number, draw in enumerate(draws)], axis=0)
        return float(np.exp(-np.average(np.log(np.maximum(chance, 1e-30)), weights=self.count)))


@functools.partial(jax.jit, static_argnames=("sweeps", "burn_in"))
def _chances(
    key: Any, topics: Any, words: Any, document: Any, hidden: Any, alpha: float, sweeps: int = 60, burn_in: int = 20
) -> Any:
    weights = topics.T / topics.sum(axis=1)
    size, num_topics = words.shape[1], weights.shape[1]
    rows, lengths = jnp.arange(size), jnp.sum(words >= 0, axis=0)[:, None]

    def place(held: Any, at: Any) -> Any:
        word, old, uniform = at
        held = held.at[rows, jnp.where(old < 0, num_topics, old)].add(-1.0, mode="drop")
        sums = jnp.cumsum((held + alpha) * weights[word], axis=1)
        total = sums[:, -1]
        point = jnp.minimum(uniform * total, jnp.nextafter(total, jnp.zeros_like(total)))
        new = jnp.minimum(jnp.sum(sums <= point[:, None], axis=1), num_topics - 1)
        new = jnp.where(word < 0, -1, new)
        return held.at[rows, jnp.where(word < 0, num_topics, new)].add(1.0, mode="drop"), new

    def sweep(carry: Any, number: Any) -> Any:
        held, z, shares = carry
        uniform = jax.random.uniform(jax.random.fold_in(key, number), words.shape)
        held, z = jax.lax.scan(place, held, (words, z, uniform))
        mean = (held + alpha) / (lengths + alpha * num_topics)
        return (held, z, shares + jnp.where(number > burn_in, mean, 0.0) / (sweeps - burn_in)), None

    nothing = jnp.zeros((size, num_topics))
    start = nothing, jnp.full(words.shape, -1, jnp.int32), nothing
    (_, _, shares), _ = jax.lax.scan(sweep, start, jnp.arange(sweeps + 1))
    return jnp.sum(shares[document] * weights[hidden], axis=1)


def fitted(split: lda_corpus.Split, seconds: float, options: dict[str, Any]) -> tuple[sc.models.LDA, float]:
    """A fit of this many seconds, and what the clock says."""
    model = sc.models.LDA(lda_corpus.NUM_TOPICS, num_chains=1, seed=1, **options)
    begin = time.perf_counter()
    model.fit(split.train, max_seconds=seconds, progress=False)
    return model, time.perf_counter() - begin


def measure(name: str, split: lda_corpus.Split, arguments: argparse.Namespace) -> None:
    """Print one line for each sampler and time."""
    scorer, tokens = Scorer(split), int(split.train.data.sum())
    for sampler in arguments.samplers:
        options = {"device": arguments.device, **OPTIONS[sampler]}
        _, compiling = fitted(split, 1.0, options)
        for seconds in arguments.seconds:
            model, wall = fitted(split, seconds, options)
            assert model.run_ is not None
            passes = float(model.run_.stats["passes"][0, -1])
            sweeps = model._fitted.sweeps if model._fitted.memory == "none" else 1
            matrix = scorer.perplexity(model.components_)
            averaged = scorer.perplexity(*model._some_draws())
            print(
                f"| {name} | {sampler} | {model._fitted.device} | {seconds:g} | {wall:.2f} | {passes:,.0f} | "
                f"{passes * sweeps * tokens / wall / 1e6:,.0f} | {matrix:.1f} | {averaged:.1f} | {compiling:.1f} |",
                flush=True,
            )


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="*", default=list(lda_corpus.SCORED_SEEDS))
    parser.add_argument("--wikipedia", action="store_true", help="instead of the synthetic corpora")
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument("--seconds", type=float, nargs="+", default=[0.5, 1.0, 2.0, 3.0, 6.0])
    parser.add_argument("--samplers", nargs="+", choices=tuple(OPTIONS), default=["gibbs"])
    parser.add_argument("--device", default="auto")
    told = parser.parse_args(arguments)
    names = "corpus sampler device seconds wall passes token-samples/s(M) matrix averaged first-fit".split()
    print("|", " | ".join(names), "|\n|", "---|" * len(names), flush=True)
    if told.wikipedia:
        measure("Wikipedia, split 0", lda_wikipedia.make(0, told.data), told)
        return
    for seed in told.seeds:
        measure(f"synthetic {seed}", lda_corpus.make(seed), told)
        if seed in REFERENCES:
            rival, ours = REFERENCES[seed]
            print(f"| constants | tomotopy; ours on a CPU | one thread | 60 | | | | {rival} | {ours} | |")


if __name__ == "__main__":
    main()
