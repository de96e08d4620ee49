"""Labels of a batch drawn on Dask workers.

Given sticks and parameters, labels are independent. Drawing them is most of the work of a step and can be distributed.
The main process keeps labels, sums and components. A task gets the indices of its rows, their slices and current
labels, reads the rows from a data folder, and returns new labels. The random number of a row is determined by its
position in the batch, and the main process updates the clusters in the order of the rows: the draws are bit for bit
those of a fit without workers, for counts and for real rows.

A step sends the parameters of the components in use to each worker (8 bytes per number) and 20 bytes per row of the
batch to its task (24 beyond 2³¹ rows); 2 bytes per row come back.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scirocco.cluster.client import connected
from scirocco.cluster.rounds import Workers, folder_for, opened, refuse_shards_alone, spread_over
from scirocco.data.native.corpus import CorpusSource, write_corpus
from scirocco.data.native.folder import FolderSource, write_folder
from scirocco.errors import InvalidValueError
from scirocco_latent.dp.chain import row_kernels, slice_kernels
from scirocco_latent.dp.families import BaseMeasure
from scirocco_latent.dp.rows import Array, CountRows, Rows


@contextlib.contextmanager
def labelling_on(
    client: object,
    num_shards: int | None,
    rows: Rows,
    family: BaseMeasure[Any],
    sampler: str,
    store: str | os.PathLike[str] | None,
) -> Iterator[LabelShards | None]:
    """The object that draws labels on the workers of `client`; None without one. The rows are written once."""
    if client is None:
        refuse_shards_alone(num_shards)
        yield None
        return
    if sampler == "collapsed":
        raise InvalidValueError(
            'sampler="collapsed" draws labels one after another, each given all others, and cannot be distributed: '
            'with `client` use sampler="gibbs" or "scir".'
        )
    with connected(client, "DPMixture.fit") as found, folder_for(store) as folder:
        yield LabelShards(Workers(found, num_shards), _written(rows, family, folder), family.kind)


def _written(rows: Rows, family: BaseMeasure[Any], folder: Path) -> CorpusSource | FolderSource:
    """Write the rows in the format of compiled code, in their order."""
    from scirocco._extras import require

    data = family.kernel_data(rows)
    if not isinstance(rows, CountRows):
        return write_folder(folder / "rows", {"values": data[0]}, shuffle=False, dtype="float64")
    sparse = require("scipy.sparse", "counts on workers")
    matrix = sparse.csr_array((data[2], data[1], data[0]), shape=(rows.num_rows, rows.width))
    return write_corpus(folder / "rows", matrix, shuffle=False)


class LabelInputs(NamedTuple):
    """Input common to all tasks of a step."""

    path: str
    fingerprint: str
    kind: str
    parameters: tuple[Array, ...]
    weights: Array
    num: int
    """Number of components."""
    seed: Array
    batch_size: int


class ShardRows(NamedTuple):
    """The rows of a batch that are in one shard."""

    places: Array
    """Positions in the batch, which determine the random numbers of the rows."""
    rows: Array
    bounds: Array
    labels: Array


class LabelShards:
    """Draw labels on workers."""

    def __init__(self, workers: Workers, source: CorpusSource | FolderSource, kind: str):
        self.workers, self.source, self.kind = workers, source, kind

    def draw(
        self,
        batch: Array,
        labels: Array,
        bounds: Array,
        parameters: tuple[Array, ...],
        weights: Array,
        num: int,
        seed: Array,
    ) -> Array:
        """Draw a label for each row of the batch, among the first `num` components."""
        vector = slice_kernels().VECTOR
        wide = min(-(-num // vector) * vector, len(weights))
        path, fingerprint = str(self.source.path), self.source.fingerprint()
        needed = _needed(self.kind, parameters, wide)
        common = LabelInputs(path, fingerprint, self.kind, needed, weights[:wide], num, seed, batch.size)
        number = np.int32 if self.source.num_rows < 2**31 else np.int64
        shards = spread_over(batch, self.source.num_rows, self.workers.num_shards)
        jobs = [
            ShardRows(places.astype(np.int32), batch[places].astype(number), bounds[places], labels[batch[places]])
            for places in shards
        ]
        chosen = np.empty(batch.size, np.int32)
        for places, found in zip(shards, self.workers.each(label_shard, common, jobs), strict=True):
            chosen[places] = found
        return chosen


def _needed(kind: str, parameters: tuple[Array, ...], wide: int) -> tuple[Array, ...]:
    """The parameters of the first components that densities depend on: for counts, only the probabilities."""
    if kind == "multinomial":
        return np.empty((0, 0)), np.ascontiguousarray(parameters[1][:, :wide])
    return tuple(np.ascontiguousarray(part[..., :wide]) for part in parameters)


def label_shard(common: LabelInputs, job: ShardRows) -> Array:
    """Draw the labels of some rows of a batch (on a worker), with the random numbers of their positions."""
    rows = np.full(common.batch_size, -1, np.int64)  # -1: of another shard
    rows[job.places] = np.arange(job.rows.size)
    bounds, chosen = np.zeros(common.batch_size), np.empty(common.batch_size, np.int32)
    bounds[job.places] = job.bounds
    kernels = row_kernels(common.kind)
    kernels.allocate(
        *(rows, _data(common, job.rows), tuple(_own(part) for part in common.parameters)),
        *(_own(common.weights), bounds, _own(job.labels), chosen, common.num, _own(common.seed)),
        *(0, -(-common.batch_size // slice_kernels().BLOCK)),
    )
    return chosen[job.places].astype(np.min_scalar_type(common.num))


def _data(common: LabelInputs, rows: Array) -> tuple[Array, ...]:
    if common.kind == "multinomial":
        found = opened(CorpusSource, common.path, common.fingerprint).take_csr(rows)
        kinds = (np.int64, np.int32, np.int32)
        return tuple(_own(np.asarray(part, kind)) for part, kind in zip(found, kinds, strict=True))
    return (_own(opened(FolderSource, common.path, common.fingerprint).take(rows)["values"]),)


def _own(array: Array) -> Array:
    """A contiguous, writeable array, as compiled code requires: deserialised arrays may be read-only."""
    return np.require(array, None, ["C", "W", "E"])
