"""What runs on a worker: a job that tells how far it is, and ends when it is no longer wanted."""

from __future__ import annotations

import collections
import functools
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from scirocco._extras import require
from scirocco.errors import SciroccoError

Tell = Callable[[int], None]

_TELL_SECONDS = 0.5
_stopped: set[str] = set()
_running: collections.Counter[str] = collections.Counter()
_lock = threading.Lock()


class Cancelled(SciroccoError):
    """A job was told to end."""


class Ticket(NamedTuple):
    """Which call a job belongs to, and its number there."""

    run_id: str
    number: int


@functools.lru_cache(maxsize=4)
def _loaded(pickled: bytes) -> Callable[[Any, Tell], Any]:
    """The function of a call, once for all its jobs: what JAX compiled for the first serves the others."""
    return pickle.loads(pickled)


def work(pickled: bytes, job: Any, ticket: Ticket) -> Any:
    """Do a job; Dask calls this in a thread of the worker."""
    log = require("distributed", "tasks").get_worker().log_event
    told, last, unsaid = -_TELL_SECONDS, 0, False

    def tell(step: int) -> None:
        nonlocal told, last, unsaid
        if ticket.run_id in _stopped:
            raise Cancelled("the job was cancelled.")
        now, last, unsaid = time.monotonic(), int(step), True
        if now - told >= _TELL_SECONDS:
            told, unsaid = now, False
            log(ticket.run_id, [ticket.number, last])

    _count(ticket.run_id, 1)
    try:
        if ticket.run_id in _stopped:
            raise Cancelled("the job was cancelled.")
        result = _loaded(pickled)(job, tell)
        if unsaid:
            log(ticket.run_id, [ticket.number, last])
        return result
    finally:
        _count(ticket.run_id, -1)


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
