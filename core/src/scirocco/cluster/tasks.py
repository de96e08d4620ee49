"""Jobs on the workers of a Dask cluster, or one after the other in this process: the same function, the same results.

Dask restarts a job when its worker dies, so a job should store its progress on disk and resume from there. A thread
of a worker cannot be stopped from outside: cancelled jobs end at their next progress report (`tell`).
"""

from __future__ import annotations

import collections
import contextlib
import functools
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from scirocco import _checks
from scirocco._extras import require
from scirocco.cluster.client import WAITS, address_of
from scirocco.cluster.pickling import Parcel, packed, unpacked
from scirocco.errors import InvalidValueError, SciroccoError, WorkerError

if TYPE_CHECKING:
    from distributed import Client

Tell = Callable[[int], None]

_TELL_SECONDS = 0.5  # between two progress reports of a job
_stopped: set[str] = set()
RUNNING_JOBS: collections.Counter[str] = collections.Counter()
_lock = threading.Lock()


class _Thread(threading.local):
    """The current work of a worker's thread."""

    check: Callable[[], None] | None = None
    """Ends the job if it was cancelled."""


_thread = _Thread()


class Cancelled(SciroccoError):
    """A job was cancelled."""


class Ticket(NamedTuple):
    """The call that a job belongs to, and its number in it."""

    run_id: str
    number: int
    key: str
    """The key of the task in Dask."""


@functools.lru_cache(maxsize=4)
def _loaded(function: Parcel) -> Callable[[Any, Tell], Any]:
    """The function of a call, loaded once for all its jobs: they share what JAX has compiled."""
    return unpacked(function)


def work(function: Parcel, job: Parcel, ticket: Ticket) -> Any:
    """Do a job; Dask calls this in a thread of the worker."""
    place = require("distributed", "tasks").get_worker()
    log, tasks = place.log_event, place.state.tasks
    told, last, unsaid = -_TELL_SECONDS, 0, False

    def check() -> None:
        # the scheduler releases the task of a client that died; only this check can end it
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
    _thread.check = check
    try:
        check()
        result = _loaded(function)(unpacked(job), tell)
        if unsaid:
            log(ticket.run_id, [ticket.number, last])
        return result
    finally:
        _thread.check = None
        _count(ticket.run_id, -1)


def check_wanted() -> None:
    """End the job of this thread if it was cancelled; for long work that does not report progress step by step."""
    if _thread.check is not None:
        _thread.check()


def _count(run_id: str, change: int) -> None:
    with _lock:  # a worker may have several threads
        RUNNING_JOBS[run_id] += change
        if not RUNNING_JOBS[run_id]:
            del RUNNING_JOBS[run_id]


def stop(run_id: str) -> None:
    """End the jobs of a call, at their next progress report."""
    _stopped.add(run_id)


def num_running(run_id: str) -> int:
    """The number of jobs of a call that this worker runs now."""
    return RUNNING_JOBS.get(run_id, 0)


Job = TypeVar("Job")
Result = TypeVar("Result")
OnProgress = Callable[[int, int], Any]

_END_SECONDS = 30.0  # for cancelled jobs to end


class _Word(NamedTuple):
    """A worker's message about a job: a step, or None when the job has ended."""

    number: int
    step: int | None


def run_tasks(
    function: Callable[[Job, Tell], Result],
    jobs: Sequence[Job],
    *,
    client: Client | None = None,
    names: Sequence[str] | None = None,
    on_progress: OnProgress | None = None,
) -> list[Result]:
    """Call `function(job, tell)` for every job; return the results, in the order of the jobs.

    Parameters
    ----------
    function
        Called with a job and with `tell`, a function of one number (the steps made so far), which reports progress and
        ends the job if it was cancelled. On a cluster, function and jobs are pickled, and a job is started
        again when its worker dies.
    jobs
        One argument for each task.
    client
        A `distributed.Client` (see `as_client`), or None: the jobs run in this process, one after the other.
    names
        Names of the jobs in messages; by default "job 0", "job 1", ...
    on_progress
        Called in this thread with the number of a job and its steps so far, on a cluster at most about twice per second
        for each job. A job that was restarted may report fewer steps than before.

    Returns
    -------
    list
        The results.

    Raises
    ------
    Exception
        The exception of `function`, with the name of the job; the other jobs are cancelled, and none is retried.
    WorkerError
        When the workers of a job died repeatedly, or the connection to the cluster ended.

    Examples
    --------
    >>> from scirocco.cluster import run_tasks
    >>> run_tasks(lambda job, tell: job**2, [1, 2, 3])
    [1, 4, 9]
    """
    jobs = list(jobs)
    titles = [f"job {number}" for number in range(len(jobs))] if names is None else list(names)
    if len(titles) != len(jobs):
        raise InvalidValueError(f"there are {len(jobs)} jobs, but {len(titles)} names.")
    heard = on_progress or (lambda number, step: None)
    if client is None:
        return [_run_here(function, job, n, titles[n], heard) for n, job in enumerate(jobs)]
    return _Tasks(client, titles, heard).run(function, jobs)


def _run_here(function: Callable[[Job, Tell], Result], job: Job, number: int, title: str, heard: OnProgress) -> Result:
    try:
        return function(job, lambda step: heard(number, int(step)))
    except Exception as error:
        named(error, title)
        raise


def named(error: BaseException, title: str) -> BaseException:
    """The same error, with the name of the job."""
    first = error.args[0] if error.args else None
    if isinstance(first, str) and first.startswith(title):
        return error
    if isinstance(error, SciroccoError) and isinstance(first, str) and not isinstance(error, ImportError):
        error.args = (f"{title}: {first}", *error.args[1:])
    else:
        error.add_note(f"This happened in {title}.")
    return error


class _Tasks:
    """The jobs of one call on a cluster."""

    def __init__(self, client: Client, titles: list[str], heard: OnProgress):
        self.client, self.titles, self.heard = client, titles, heard
        self.run_id = f"scirocco-{uuid.uuid4().hex}"
        self.words: queue.SimpleQueue[_Word] = queue.SimpleQueue()
        self.pending: dict[int, Any] = {}
        self.waited = False
        """Whether the user has been told that the jobs are waiting."""

    def run(self, function: Callable[[Job, Tell], Result], jobs: list[Job]) -> list[Result]:
        results: dict[int, Result] = {}
        with self._listening():
            try:
                self._submit(function, jobs)
                while len(results) < len(jobs):
                    word = self._next_word()
                    if word.step is not None:
                        self.heard(word.number, word.step)
                    elif word.number not in results:
                        results[word.number] = self._result(word.number)
            except BaseException:
                self._stop()
                raise
        return [results[number] for number in range(len(jobs))]

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Receive workers' messages as events of a topic for this call."""
        self.client.subscribe_topic(self.run_id, lambda event: self.words.put(_Word(*event[1])))
        try:
            yield
        finally:
            with contextlib.suppress(Exception):  # the connection may be gone
                self.client.unsubscribe_topic(self.run_id)

    def _submit(self, function: Callable[[Job, Tell], Any], jobs: list[Job]) -> None:
        task = packed(function, "the task")
        parcels = [packed(job, title) for job, title in zip(jobs, self.titles, strict=True)]
        for number, parcel in enumerate(parcels):
            key = f"{self.titles[number].replace(' ', '-')}-{self.run_id}"
            ticket = Ticket(self.run_id, number, key)
            future = self.client.submit(work, task, parcel, ticket, key=key, pure=False, retries=0)
            self.pending[number] = future
            future.add_done_callback(lambda _, number=number: self.words.put(_Word(number, None)))

    def _next_word(self) -> _Word:
        warned, begin = False, time.monotonic()
        while True:
            try:
                return self.words.get(timeout=WAITS.look)
            except queue.Empty:
                self._check_connection()
                if not warned:
                    warned = self._warned(time.monotonic() - begin)

    def _warned(self, silent: float) -> bool:
        """Warn when jobs are silent because they are waiting, not working."""
        cluster = f"the cluster at {address_of(self.client)}"
        if not self.client.nthreads():
            _checks.warn(f"{cluster} has no workers left; the jobs wait for new workers.")
            return True
        if self.waited or silent < WAITS.silence:
            return False
        if any(self.client.run(num_running, self.run_id, on_error="ignore").values()):
            return False
        self.waited = True
        _checks.warn(f"all threads of {cluster} are busy with other work; the jobs wait.")
        return True

    def _check_connection(self) -> None:
        if self.client.status not in ("running", "connecting", "newly-created"):
            raise WorkerError(
                f"the connection to the cluster ended ({self.client.status}) before all jobs. What they have "
                "stored is safe: connect again and resume."
            )

    def _result(self, number: int) -> Any:
        # a result without references need not be recomputed when its worker dies
        future, title = self.pending.pop(number), self.titles[number]
        if future.status in ("finished", "pending", "lost"):  # lost with its worker: it is recomputed
            return future.result()
        if future.status != "error":
            self._check_connection()
            raise WorkerError(
                f"{title} was {future.status} by the cluster (the scheduler was restarted, or the job was cancelled). "
                "What it has stored is safe: resume."
            )
        error = future.exception()
        if isinstance(error, require("distributed", "tasks").KilledWorker):
            count = error.allowed_failures + 1
            died = f"{count} workers died in succession" if count > 1 else "1 worker died"
            raise WorkerError(
                f"{title}: {died} while running it, so it is not retried. The usual reason is too little memory: check "
                "the workers' logs, give them more memory, or use smaller shards."
            ) from error
        raise named(error, title)

    def _stop(self) -> None:
        """Cancel the waiting jobs, and wait until the running ones end at their next progress report."""
        with contextlib.suppress(Exception):  # do not hide the reason for stopping
            self.client.run(stop, self.run_id, on_error="ignore")
            self.client.cancel(list(self.pending.values()))
            end = time.monotonic() + _END_SECONDS
            while time.monotonic() < end:
                left = self.client.run(num_running, self.run_id, on_error="ignore")
                if not any(left.values()):
                    return
                time.sleep(0.1)
            _checks.warn(
                f"some jobs have not ended {_END_SECONDS:g} s after they were cancelled; they end at the next step."
            )
