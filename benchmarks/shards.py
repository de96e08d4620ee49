"""A step of a topic model on Dask workers beside one in a process: seconds, bytes, and the batch from which it pays.

    python benchmarks/shards.py            # 20,000 documents, 100 topics, batches of 500, 2,000 and 8,000: minutes
    python benchmarks/shards.py --quick    # does it run? (the numbers mean nothing)

Sides take turns, and the best round of each counts; compiling and the start of the cluster are not timed. `here` is one
process with one thread, `threads` one with two; workers have one thread each.

Seconds by the clock depend on what else the machine does; the cost model is made of CPU seconds, which do not: `local`
of all tasks, and `own` of this process, in which Dask's part is counted. A step on W workers takes at least own +
local/W; it pays from the batch on at which that is below the CPU seconds of a step here, if nobody waits for messages.
Both are taken to be a + b n for n documents, fitted by least squares. Bytes are those of the pickles: `out` what goes
to one worker, and `in` what comes back from all tasks of a step.

A timing is never a test: the exit status is 0 whatever the ratios are.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lda_corpus
import numpy as np

from scirocco.cluster import local as local_cluster
from scirocco.cluster.rounds import Workers
from scirocco.data.native.corpus import CorpusSource, write_corpus
from scirocco_latent.lda import LDA, as_corpus
from scirocco_latent.lda.chain import TopicChain
from scirocco_latent.lda.settings import Size, resolve
from scirocco_latent.lda.sharded import CountShards

BATCHES = (500, 2_000, 8_000)
WARM_STEPS = 3


class Weighed(Workers):
    """Workers that note how many bytes a round moves, and the CPU seconds of its tasks."""

    sent = received = 0
    local = 0.0

    def each(self, function: Callable[[Any, Any], Any], common: Any, jobs: Any) -> list[Any]:
        """As `Workers`."""

        def timed(common: Any, job: Any) -> tuple[Any, float]:
            begin = time.thread_time()
            return function(common, job), time.thread_time() - begin

        pairs = super().each(timed, common, jobs)
        found = [part for part, _ in pairs]
        self.local = sum(seconds for _, seconds in pairs)
        self.sent = len(pickle.dumps(common)) + len(pickle.dumps(jobs[0]))
        self.received = sum(len(pickle.dumps(part)) for part in found)
        return found


def chain(corpus: Any, num_topics: int, batch_size: int, threads: int, counting: Any = None) -> TopicChain:
    """A chain without memory, some steps on its way."""
    model = LDA(num_topics, memory="none", batch_size=batch_size, num_threads=threads)
    settings = resolve(model.get_params(), Size(corpus.num_documents, corpus.vocabulary_size, corpus.num_tokens))
    made = TopicChain(corpus, settings, 0, 0, counting(settings) if counting else None)
    made.advance(WARM_STEPS)
    return made


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of a step by side and batch, and bytes by batch."""
    split = lda_corpus.make(1, num_documents=1_000 if args.quick else lda_corpus.NUM_DOCUMENTS, num_held_out=10)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        source = write_corpus(Path(folder) / "corpus", split.train, shuffle=False)
        corpus = as_corpus(source)
        clients = {number: stack.enter_context(local_cluster(number)) for number in (1, 2)}
        workers = {number: Weighed(client, None) for number, client in clients.items()}
        for batch in (100, 200) if args.quick else BATCHES:
            found[str(batch)] = _one(corpus, source, args.topics, batch, workers, args.rounds)
            print(json.dumps({"batch": batch, **found[str(batch)]}), flush=True)
    return found


def _one(
    corpus: Any, source: CorpusSource, num_topics: int, batch: int, workers: dict[int, Weighed], rounds: int
) -> dict[str, float]:
    sides = {"here": chain(corpus, num_topics, batch, 1), "threads": chain(corpus, num_topics, batch, 2)}
    for number, each in workers.items():
        sides[f"workers{number}"] = chain(
            corpus, num_topics, batch, 1, lambda settings, each=each: CountShards(each, source, settings)
        )
    best = dict.fromkeys((*sides, "cpu", "own", "local"), math.inf)
    for _ in range(rounds):
        for name, side in sides.items():
            begin, cpu = time.perf_counter(), time.process_time()
            side.advance(1)
            seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
            best[name] = min(best[name], seconds)
            if name == "here":
                best["cpu"] = min(best["cpu"], cpu)
            if name == "workers2":
                best["own"], best["local"] = min(best["own"], cpu), min(best["local"], workers[2].local)
    draws = [side.draw() for side in sides.values()]
    assert all(np.array_equal(draws[0], draw) for draw in draws)
    return {**best, "out": workers[2].sent, "in": workers[2].received}


CLOCK, CPU = ("here", "threads", "workers1", "workers2"), ("cpu", "own", "local")


def report(found: dict[str, Any]) -> None:
    """Ratios, and where the lines cross."""
    print("\nseconds a step:  by the clock" + 27 * " " + "CPU")
    print(f"{'batch':>8}" + "".join(f"{name:>10}" for name in (*CLOCK, *CPU)) + "    out MB     in MB   1/2 workers")
    for batch, line in found.items():
        seconds = "".join(f"{line[name]:10.3f}" for name in (*CLOCK, *CPU))
        ratio = line["workers1"] / line["workers2"]
        print(f"{batch:>8}{seconds}{line['out'] / 1e6:10.2f}{line['in'] / 1e6:10.2f}{ratio:14.2f}")
    sizes = np.array([float(batch) for batch in found])
    slope, constant = {}, {}
    for name in (*CLOCK, *CPU):
        slope[name], constant[name] = np.polyfit(sizes, [line[name] for line in found.values()], 1)
        print(f"  {name:9}{1e3 * constant[name]:8.1f} ms + {1e6 * slope[name]:8.1f} µs a document")
    pays = _crossing(slope["here"] - slope["workers2"], constant["workers2"] - constant["here"], sizes)
    print(f"  by the clock 2 workers pay beside one thread from a batch of: {pays}")
    for number in (2, 4, 16):
        gain = slope["cpu"] - slope["own"] - slope["local"] / number
        pays = _crossing(gain, constant["own"] + constant["local"] / number - constant["cpu"], sizes)
        print(f"  by CPU seconds alone, which leave out waiting, {number} workers: {pays}")


def _crossing(gain: float, extra: float, sizes: np.ndarray) -> str:
    """Where two lines cross, as far as that was measured."""
    if gain <= 0:
        return "never"
    batch = extra / gain
    return f"{batch:,.0f} documents" if batch > sizes.min() else f"less than {sizes.min():,.0f}, the smallest here"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--quick", action="store_true")
    report(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
