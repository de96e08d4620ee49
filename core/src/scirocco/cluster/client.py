"""The `client` argument: None, a Dask client, the address of a scheduler, or a local cluster."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import jax

from scirocco import _checks
from scirocco._adjustable import Adjustable
from scirocco._extras import require
from scirocco._programs import available_cores
from scirocco._version import __version__
from scirocco.errors import InvalidTypeError, InvalidValueError

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

_HOST = "127.0.0.1"


@dataclass
class Waits(Adjustable):
    """Seconds that this process waits for a cluster."""

    answer: float = 10.0
    """Until a scheduler must have answered."""
    worker: float = 60.0
    """Until there must be a new worker, when all have gone."""
    look: float = 5.0
    """Between two checks of the connection."""
    silence: float = 30.0
    """Without a report, until waiting jobs are mentioned."""


WAITS = Waits()


class Local:
    """Worker processes on this machine and a client connected to them, as started by `local`.

    `with cluster.local(4) as client:` ends them with the block; otherwise they end with `close()` or with the program.

    Attributes
    ----------
    client
        A `distributed.Client`.
    cluster
        The `distributed.LocalCluster`.
    """

    def __init__(self, cluster: LocalCluster, client: Client):
        self.cluster, self.client = cluster, client

    def __enter__(self) -> Client:
        return self.client

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; their current work is lost."""
        self.client.close()
        self.cluster.close()

    def __repr__(self) -> str:
        return f"Local({self.cluster.scheduler_address!r}, workers={len(self.cluster.workers)})"


def local(num_workers: int | None = None, threads_per_worker: int = 1, **options: Any) -> Local:
    """Start worker processes on this machine.

    They listen on the loopback address only, without a dashboard. A worker that dies is replaced. Each worker has as
    many computing threads as tasks at a time, so that workers do not compete for cores, and allocates GPU memory
    on demand. JAX uses the same precision as in this process.

    A script that calls this must guard its code with `if __name__ == "__main__":`, because every worker imports it.

    Parameters
    ----------
    num_workers
        Number of processes; by default one for every `threads_per_worker` cores available to this process.
    threads_per_worker
        Number of tasks that a worker runs at a time.
    options
        Further arguments of `distributed.LocalCluster`.

    Returns
    -------
    Local
        In a `with` statement, its `distributed.Client`.

    Examples
    --------
    >>> from scirocco import cluster
    >>> with cluster.local(2) as client:  # doctest: +SKIP
    ...     client.submit(sum, [1, 2]).result()
    3
    """
    threads = _checks.positive_int(threads_per_worker, "threads_per_worker")
    if num_workers is None:
        num_workers = max(1, available_cores() // threads)
    num_workers = _checks.positive_int(num_workers, "num_workers")
    if options.get("processes", True) is not True:
        raise InvalidValueError(
            "scirocco's tasks require worker processes (killed ones are replaced, and each has its own XLA): omit "
            f"`processes`, got {options['processes']!r}."
        )
    distributed = require("distributed", "a cluster on this machine")
    environment = _environment(threads) | dict(options.pop("env", None) or {})
    settings = {
        "host": _HOST,
        "dashboard_address": None,
        # Dask still serves some status pages: only on this machine, at a free port
        "scheduler_kwargs": {"dashboard": False, "dashboard_address": f"{_HOST}:0"},
        "memory_limit": 0,  # draws go to disk; Dask would count JAX's memory, and pause or kill the worker
        "processes": True,
        "silence_logs": logging.CRITICAL,  # errors of tasks are raised here: Dask would print each of them again
    }
    cluster = distributed.LocalCluster(
        n_workers=num_workers, threads_per_worker=threads, env=environment, **(settings | options)
    )
    try:
        return Local(cluster, distributed.Client(cluster, set_as_default=False))
    except BaseException:
        cluster.close()
        raise


def _environment(threads: int) -> dict[str, str]:
    """The environment that a worker needs before it imports JAX."""
    found = {
        # the threads of XLA's pools on a CPU; by default every worker has one for each core
        "NPROC": str(threads),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "JAX_ENABLE_X64": str(int(jax.config.read("jax_enable_x64"))),
    }
    return found | {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


_PROTOCOLS = ("tcp://", "tls://", "ucx://", "ucxx://", "ws://", "wss://", "inproc://")
_WORKER_SECONDS = 30.0  # for a first worker to come


def as_client(client: object, purpose: str, *, wait: float = _WORKER_SECONDS) -> Client | None:
    """A connected Dask client with at least one worker, or None to compute in this process.

    Parameters
    ----------
    client
        None, a `distributed.Client`, the address of a scheduler ("tcp://127.0.0.1:8786"), or what `cluster.local`
        returned.
    purpose
        The caller's name for the messages: "sc.combine.subposteriors".
    wait
        Seconds to wait for the first worker.

    Returns
    -------
    distributed.Client or None
        The caller must close a client that was made from an address; `connected` does this.
    """
    if client is None:
        return None
    if isinstance(client, Local):
        client = client.client
    distributed = require("distributed", f"`client` of {purpose}")
    if isinstance(client, str):
        client = _connect(distributed, client, purpose)
        try:
            return _with_workers(client, purpose, wait)
        except BaseException:
            client.close()
            raise
    if not isinstance(client, distributed.Client):
        kind = f"got {type(client).__name__}"
        hint = "distributed.Client(cluster)" if isinstance(client, distributed.deploy.Cluster) else "cluster.local()"
        raise InvalidTypeError(
            f"`client` of {purpose} must be a distributed.Client, the address of a scheduler such as "
            f"'tcp://127.0.0.1:8786', or None; {kind}. Create one with {hint}."
        )
    if client.asynchronous:
        raise InvalidTypeError(
            f"`client` of {purpose} is asynchronous (asynchronous=True, or created inside an event loop); a "
            "synchronous client is required: Client(address) in an ordinary thread."
        )
    return _with_workers(client, purpose, wait)


@contextlib.contextmanager
def connected(client: object, purpose: str) -> Iterator[Any]:
    """`as_client` as a context; a client that was made from an address is closed at its end."""
    found = as_client(client, purpose)
    try:
        yield found
    finally:
        if isinstance(client, str) and found is not None:
            found.close()


def _connect(distributed: ModuleType, address: str, purpose: str) -> Client:
    if not address.startswith(_PROTOCOLS):
        raise InvalidValueError(
            f"`client` of {purpose} must be the address of a scheduler, such as 'tcp://127.0.0.1:8786'; got "
            f"{address!r}."
        )
    try:
        return distributed.Client(address, timeout=WAITS.answer, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InvalidValueError(
            f"`client` of {purpose}: no scheduler answers at {address} ({error}). Start one with `dask scheduler`, and "
            "workers with `dask worker ADDRESS`."
        ) from error


def _with_workers(client: Client, purpose: str, wait: float) -> Client:
    if client.status != "running":
        raise InvalidValueError(
            f"`client` of {purpose} is {client.status}: its connection has ended. Create a new one."
        )
    if client.nthreads():
        _check_versions(client)
        return client
    address = address_of(client)
    start = f"Start one with `dask worker {address}`"
    if wait > 0:
        _checks.warn(f"the cluster at {address} has no workers yet; waiting {wait:g} s for one. {start}.")
        with contextlib.suppress(TimeoutError):
            client.wait_for_workers(1, timeout=wait)
    if not client.nthreads():
        raise InvalidValueError(f"`client` of {purpose}: the cluster at {address} has no workers. {start}.")
    _check_versions(client)
    return client


def address_of(client: Client) -> str:
    """The address of the scheduler that a client is connected to."""
    scheduler: Any = client.scheduler
    return scheduler.address


def _check_versions(client: Client) -> None:
    """Check the workers' version first: workers without this library die at the first task without a reason."""

    def version() -> str:  # a local function is sent as code, not by name
        from scirocco import _version

        return _version.__version__

    for address, found in client.run(version, on_error="return").items():
        if found != __version__:
            raise InvalidValueError(
                f"the worker {address} has scirocco {found}, this process {__version__}: install the same one."
                if isinstance(found, str)
                else f"the worker {address} cannot import scirocco ({found!r}): install it there."
            )
