"""What runs on a worker: a job that tells how far it is, and ends when it is no longer wanted."""

from __future__ import annotations

import collections
import functools
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from scirocco._extras import require
from scirocco.cluster.pickling import Parcel, unpacked
from scirocco.errors import SciroccoError

Tell = Callable[[int], None]

_TELL_SECONDS = 0.5
_stopped: set[str] = set()
_running: collections.Counter[str] = collections.Counter()
_lock = threading.Lock()
_here = threading.local()


class Cancelled(SciroccoError):
    """A job was told to end."""


class Ticket(NamedTuple):
    """Which call a job belongs to, and its number there."""

    run_id: str
    number: int
    key: str
    """Dask's name for it."""


@functools.lru_cache(maxsize=4)
def _loaded(function: Parcel) -> Callable[[Any, Tell], Any]:
    """The function of a call, once for all its jobs: what JAX compiled for the first serves the others."""
    return unpacked(function)


def work(function: Parcel, job: Parcel, ticket: Ticket) -> Any:
    """Do a job; Dask calls this in a thread of the worker."""
    place = require("distributed", "tasks").get_worker()
    log, tasks = place.log_event, place.state.tasks
    told, last, unsaid = -_TELL_SECONDS, 0, False

    def check() -> None:
        # the task of a client that has died is taken back by the scheduler, and nobody else can end it
        task = tasks.get(ticket.key)
        if ticket.run_id in _stopped or task is None or task.state == "cancelled":
            raise Cancelled("the job was cancelled.")

    def tell(step: int) -> None:
        nonlocal told, last, unsaid
        check()
        now, last, unsaid = time.monotonic(), int(step), True
        if now - told >= _TELL_SECONDS:
            told, unsaid = now, False
            log(ticket.run_id, [ticket.number, last])

    _count(ticket.run_id, 1)
    _here.check = check
    try:
        check()
        result = _loaded(function)(unpacked(job), tell)
        if unsaid:
            log(ticket.run_id, [ticket.number, last])
        return result
    finally:
        del _here.check
        _count(ticket.run_id, -1)


def check_wanted() -> None:
    """End the job that this thread works on if it is no longer wanted; for long work that is not told step by step."""
    check = getattr(_here, "check", None)
    if check is not None:
        check()


def _count(run_id: str, change: int) -> None:
    with _lock:  # a worker may have several threads
        _running[run_id] += change
        if not _running[run_id]:
            del _running[run_id]


def stop(run_id: str) -> None:
    """End the jobs of a call, at their next word."""
    _stopped.add(run_id)


def num_running(run_id: str) -> int:
    """Jobs of a call that this worker runs now."""
    return _running.get(run_id, 0)
