"""One round of tasks per step on Dask workers: tasks keep no state, so that a killed worker costs at most one round."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco.cluster.client import WAITS, address_of
from scirocco.errors import InvalidValueError, WorkerError

if TYPE_CHECKING:
    from distributed import Client

Common = TypeVar("Common")
Job = TypeVar("Job")
Result = TypeVar("Result")

log = logging.getLogger("scirocco")
_ATTEMPTS = 5  # of a round that lost a worker
_LOOK_SECONDS = 0.1  # between two looks for a new worker


class Workers:
    """The workers of a cluster, used for one round of tasks at a time.

    Data that all tasks of a round share are sent once, not once per task. A round depends only on what is sent, and no
    state stays on a worker: if a worker is lost, the round is sent again and gives the same result.
    `num_shards` is the number of tasks in a round; None: one for each thread of the workers.
    """

    def __init__(self, client: Client, num_shards: int | None):
        self.client = client
        given = None if num_shards is None else _checks.positive_int(num_shards, "num_shards")
        self.num_shards = given or sum(client.nthreads().values())

    def each(self, function: Callable[[Common, Job], Result], common: Common, jobs: Sequence[Job]) -> list[Result]:
        """`function(common, job)` for every job, in order."""
        attempt = 1
        while True:
            try:
                return self._round(function, common, jobs)
            except Exception as error:
                if not _lost(error):
                    raise
                if attempt == _ATTEMPTS:
                    raise WorkerError(
                        f"the cluster at {address_of(self.client)} lost workers in {_ATTEMPTS} attempts at one "
                        f"step ({error}). Check their logs: if a worker runs out of memory, use more shards "
                        "(`num_shards`) or a smaller `batch_size`."
                    ) from error
                log.info("a worker was lost (%s); the step is sent again", error)
                attempt += 1

    def _slots(self) -> list[str]:
        """The addresses of the current threads; waits if there are none.

        (A cluster's own `wait_for_workers` may not notice workers that were replaced.)
        """
        end = time.monotonic() + WAITS.worker
        while not (found := self.client.nthreads()):
            if time.monotonic() > end:
                raise WorkerError(
                    f"the cluster at {address_of(self.client)} has had no worker for {WAITS.worker:g} s. Start "
                    "one, and fit again; with a `store` and resume=True the fit resumes from its last commit."
                )
            time.sleep(_LOOK_SECONDS)
        return [address for address, num in sorted(found.items()) for _ in range(num)]

    def _round(self, function: Callable[[Common, Job], Result], common: Common, jobs: Sequence[Job]) -> list[Result]:
        slots = self._slots()
        futures: list[Any] = []
        # To one worker, from which the others fetch it: with broadcast=True a dying worker delayed a step by minutes.
        (shared,) = self.client.scatter([common], hash=False)
        try:
            # a shard stays on the same worker, which has its files in memory
            for number, job in enumerate(jobs):
                where = {"workers": slots[number % len(slots)], "allow_other_workers": True}
                futures.append(self.client.submit(function, shared, job, pure=False, **where))
            found: list[Result] = self.client.gather(futures)
            return found
        except BaseException:  # an error of one task, or Ctrl-C: stop the others
            self.client.cancel(futures, force=True)
            raise


def _lost(error: Exception) -> bool:
    """Whether the error comes from a lost worker, and not from the task."""
    distributed = require("distributed", "a fit on workers")
    gone = (CancelledError, distributed.KilledWorker, distributed.comm.CommClosedError, TimeoutError)
    return isinstance(error, gone)


@contextlib.contextmanager
def folder_for(store: str | os.PathLike[str] | None) -> Iterator[Path]:
    """A temporary folder for data in memory: next to the store, if there is one."""
    beside = None if store is None else Path(store).expanduser().absolute().parent
    if beside is not None:
        beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="scirocco-shards-", dir=beside, ignore_cleanup_errors=True) as path:
        yield Path(path)


def refuse_shards_alone(num_shards: int | None) -> None:
    """Raise an error for shards without workers."""
    if num_shards is not None:
        raise InvalidValueError(
            "`num_shards` is the number of tasks on the workers of a `client`: pass a `client`, or omit it."
        )


def spread_over(numbers: np.ndarray, num_rows: int, num_shards: int) -> list[np.ndarray]:
    """The positions in `numbers` by shard, without empty shards; shard s has the rows from s N/S on."""
    shard = numbers.astype(np.int64) * num_shards // num_rows
    order = np.argsort(shard, kind="stable")
    ends = np.searchsorted(shard[order], np.arange(1, num_shards))
    return [part for part in np.split(order, ends) if part.size]


@functools.lru_cache(maxsize=16)
def opened(open_source: Callable[[str], Any], path: str, fingerprint: str) -> Any:
    """A source that a worker keeps open; raises an error if the files are missing or different."""
    try:
        source = open_source(path)
    except (OSError, ValueError) as error:
        raise InvalidValueError(
            f"a worker cannot read {path} ({error}). Workers must have the files of this process under the same paths: "
            "keep the data (or the `store`, next to which data in memory are written) on a shared disk."
        ) from error
    if source.fingerprint() != fingerprint:
        raise InvalidValueError(f"a worker finds other data in {path} than this process: use a shared path.")
    return source
