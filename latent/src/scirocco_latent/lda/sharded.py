r"""The local step on Dask workers, with the global step in the main process.

A step is a map and a sum. The main process owns the topics and chooses the documents. A task opens the corpus by its
path, makes the local step of its documents and returns their sums, which are integers. The main process adds them and
moves the topics once. Each document has its own random stream, and integers can be added in any order: the draws are
bit for bit those of a fit without workers, for any number of shards.

A step of a batch with W distinct words sends 4WK bytes of topics to each worker; each task returns WK/8 bytes, plus one
to four for each nonzero pair of a word and a topic.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from scirocco.cluster.client import connected
from scirocco.cluster.rounds import Workers, folder_for, opened, refuse_shards_alone, spread_over
from scirocco.data.native.corpus import CorpusSource, write_corpus
from scirocco.errors import InvalidValueError
from scirocco_latent.lda import local, stochastic_chain
from scirocco_latent.lda.corpus import Corpus
from scirocco_latent.lda.document_batches import Delivery
from scirocco_latent.lda.settings import TopicSettings
from scirocco_latent.lda.streams import DocumentStream

Array = np.ndarray


def changes(given: dict[str, Any], streamed: bool) -> dict[str, Any]:
    """Changes of the arguments of `LDA` with `client`; an error for what cannot run on workers."""
    if streamed:
        raise InvalidValueError(
            "a DocumentStream is read in order by one process: with `client` pass a corpus, such as the path of a data "
            "folder, whose documents workers read by index."
        )
    if given["memory"] == "documents" or given["sampler"] == "gibbs":
        raise InvalidValueError(
            'with `client`, memory="documents" and sampler="gibbs" are not available: the topics of tokens would be '
            'stored on workers, which may be lost. Use memory="none" with sampler="scir", or remove `client`.'
        )
    if given["device"] not in ("auto", "cpu"):
        raise InvalidValueError(
            f'with `client` the local steps run on workers: device="{given["device"]}" is not available.'
        )
    return {"memory": "none", "device": "cpu"}


@contextlib.contextmanager
def counting_on(
    client: object,
    num_shards: int | None,
    corpus: Corpus | DocumentStream,
    settings: TopicSettings,
    store: str | os.PathLike[str] | None,
) -> Iterator[CountShards | None]:
    """Local steps on the workers of `client`; None without one. A corpus in memory is written once."""
    if client is None:
        refuse_shards_alone(num_shards)
        yield None
        return
    assert isinstance(corpus, Corpus) and isinstance(corpus.source, CorpusSource)
    with contextlib.ExitStack() as stack:
        workers = Workers(stack.enter_context(connected(client, "LDA.fit")), num_shards)
        source = corpus.source
        if source.path is None:
            source = _written(corpus, stack.enter_context(folder_for(store)))
        yield CountShards(workers, source, settings)


def _written(corpus: Corpus, folder: Path) -> CorpusSource:
    from scirocco._extras import require

    sparse = require("scipy.sparse", "a corpus in memory")
    indptr, words, counts = corpus.take_csr(np.arange(corpus.num_documents))
    matrix = sparse.csr_array((counts, words, indptr), shape=(corpus.num_documents, corpus.vocabulary_size))
    return write_corpus(folder / "corpus", matrix, shuffle=False)


class AskedBatch(NamedTuple):
    """A batch whose documents are read by workers."""

    documents: Array
    distinct: Array
    """The words of the batch, ascending."""


class CountInputs(NamedTuple):
    """Input common to all tasks of a step."""

    path: str
    fingerprint: str
    settings: TopicSettings
    seed: tuple[int, int]
    distinct: Array
    weights: Array
    """(words, topics), float32, of the words in `distinct`."""


class Found(NamedTuple):
    """The sums of a shard: a bit mask of nonzero entries (words × topics), and their values."""

    words: Array
    """Positions in `CountInputs.distinct`."""
    bits: Array
    values: Array

    @classmethod
    def packed(cls, words: Array, sums: Array) -> Found:
        """Pack sums in the narrowest sufficient type."""
        some = sums.ravel() != 0
        values = sums.ravel()[some]
        narrow = np.min_scalar_type(int(values.max(initial=0)))
        return cls(words.astype(np.int32), np.packbits(some), values.astype(narrow))

    def unpacked(self, num_topics: int, dtype: DTypeLike) -> Array:
        """The sums, (words, topics)."""
        out = np.zeros((len(self.words), num_topics), dtype)
        out.ravel()[np.unpackbits(self.bits, count=out.size).view(np.bool_)] = self.values
        return out


class CountShards:
    """Local steps by shard on workers, with the interface of `stochastic_chain.Here`."""

    def __init__(self, workers: Workers, source: CorpusSource, settings: TopicSettings):
        self.workers, self.source = workers, source
        self.settings = dataclasses.replace(settings, step_size=None)  # not needed in a local step

    def prepare(self, delivery: Delivery) -> AskedBatch:
        """The words of a batch."""
        _, words, counts = delivery.rows
        return AskedBatch(delivery.documents, local.distinct_words(words, counts))

    def counts(self, batch: AskedBatch, weights: Array, seed: tuple[int, int]) -> Array:
        """Counts (words, topics), float32."""
        path, fingerprint = str(self.source.path), self.source.fingerprint()
        common = CountInputs(path, fingerprint, self.settings, seed, batch.distinct.astype(np.int32), weights)
        shards = spread_over(batch.documents, self.source.num_rows, self.workers.num_shards)
        found = self.workers.each(count_shard, common, [batch.documents[places] for places in shards])
        return summed(found, weights.shape, stochastic_chain.unit(self.settings))


def count_shard(common: CountInputs, documents: Array) -> Found:
    """Sums of some documents, on a worker: one thread per task, as many tasks as the worker has threads."""
    source = opened(CorpusSource, common.path, common.fingerprint)
    rows = Corpus(source, None, 0).take_csr(documents)
    batch = local.from_counts(*rows, documents)
    places = np.searchsorted(common.distinct, batch.distinct)
    threads = common.settings.num_threads or 1
    sums = stochastic_chain.swept(
        batch, common.weights[places], common.settings, common.seed, threads, whole=True
    ).counts
    return Found.packed(places, sums)


def summed(found: list[Found], shape: tuple[int, ...], unit: float) -> Array:
    """Add the sums of all shards; the counts in float32 are rounded once, as without shards."""
    highest = sum(int(part.values.max(initial=0)) for part in found)
    total = np.zeros(shape, np.int32 if highest < 2**31 else np.int64)
    for part in found:
        total[part.words] += part.unpacked(shape[1], total.dtype)
    return local.scaled_sums(total, unit)
